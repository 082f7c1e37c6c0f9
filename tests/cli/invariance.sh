#!/usr/bin/env bash
# verify --invariance: bits of sequences alone, in other batches and orders, in pages and contiguous. Who promises them
# is held to it, of the others the column batch_invariant says it; fused_cpu keeps its promise.
#
#   invariance.sh [COUNT]    of random problems; 60 where not given, 500 in ctest's nightly_invariance
. "$(dirname "$0")/lib.sh"

export OMP_NUM_THREADS=2
count=${1:-60}
limit_s=$((60 + 5 * count))
plugin=(verify --device cpu --invariance --impl-lib "$plugins/libbatch_cpu.so" --repeats 0 --out none)
packed=lengths-list:0:1:129:0:1:64
caches=list:300:1:129 # in pages of 16

# column NAME FILE: its values, one a line.
column() { for row in $(seq $(($(wc -l <"$2") - 1))); do csv_cell "$2" "$row" "$1"; done; }
# broken NAME KEY REGEX: exit 1, the row fails by the rule, says where, and its command makes it again.
broken() {
    local where
    rm -f run.*
    run "${plugin[@]}" --impl "$1" --only "$2" --csv run.csv --jsonl run.jsonl
    expect_code 1
    expect_stdout "^ +(o|lse): promised the same bits in every batch, differs: $3"
    expect "the mode in the name" test "$(csv_cell run.csv 1 impl)" = "$1:invariant"
    where=$(csv_cell run.csv 1 batch_invariant)
    expect "where, not '$where'" grep -qE "^no $3" <<<"$where"
    expect "the rule" grep -q '"rule": *"invariant"' run.jsonl
}
broken by_batch "$packed" 'o\[2,0,[0-9]+\] alone'
broken by_batch d-64-n-129-fp32-b-2 'o\[0,0,[0-9]+\] alone'
broken by_number "$packed" 'o\[5,0,[0-9]+\] alone'
broken by_number d-64-n-129-fp32-b-2 'o\[1,0,[0-9]+\] alone'
broken by_longest "$packed" 'o\[5,0,[0-9]+\] alone'
broken by_pages "$caches" 'o\[0,0,0\] contiguous'
broken by_pages list:257:128 'o\[0,0,0\] pages 16'
broken lse_by_batch "$packed" 'lse\[2,0,[0-9]+\] alone'
eval "words=($(csv_cell run.csv 1 repro))"
run "${words[@]:1}" --out none
expect_code 1
expect_stdout '^FAILED: 1 of 1 rows'

# Promises that are kept, or not made.
rm -f run.*
run "${plugin[@]}" --impl keeps,o_promised,plain_keeps,plain_by_batch --only "$packed" --csv run.csv
expect_code 0
expect_stdout '^keeps:invariant: the same bits in all batches, 2 of 2 rows$'
expect_stdout '^plain_by_batch: other bits in other batches in 2 of 2 rows, first'
expect_stdout 'lengths-list.*: o\[2,0,[0-9]+\] alone'
expect_stdout 'check +invariant +err/bound'
expect "yes or no" test "$(column batch_invariant run.csv | cut -c1-5 | sort | uniq -c | tr -s ' \n' ' ')" = \
    " 2 no ls 2 no o[ 4 yes "
# The plain name beside its mode stays as it is.
rm -f run.*
run "${plugin[@]}" --impl by_batch,by_batch:invariant --only "$packed" --csv run.csv
expect_code 1
expect "both" test "$(csv_cell run.csv 1 impl) $(csv_cell run.csv 2 impl)" = "by_batch by_batch:invariant"
expect "one is not held to it" test "$(csv_cell run.csv 1 check) $(csv_cell run.csv 2 check)" = "pass fail"

# Our own kernel and naive, on random batches of all kinds, and on the hard ones.
rm -f run.*
run verify --device cpu --invariance --random "$count" --seed 3 --repeats 0 --out none --csv run.csv
expect_code 0
expect_stdout '^fused_cpu:invariant: the same bits in all batches, ([0-9]+) of \1 rows$'
kept=$(grep -c '^1,.*fused_cpu:invariant.*,yes' run.csv)
expect "nearly all of them, not $kept" test "$kept" -ge $((count * 98 / 100))
expect_stdout '^naive: (the same|other) bits'
expect "several sequences" test "$(column batch run.csv | grep -cv '^1$')" -gt "$count"
expect "caches" test "$(column mode run.csv | grep -c decode)" -gt $((count / 6))
expect "packed lengths" test "$(column lengths run.csv | grep -c list)" -gt $((count / 6))
expect "no backward" test "$(column mode run.csv | grep -c bwd)" -eq 0
expect "no dropout" test "$(column dropout run.csv | sort -u)" = 0
run verify --device cpu --invariance --preset quick --d 64 --impl fused --repeats 0 --out none
expect_code 0
expect_stdout '^fused_cpu:invariant: the same bits in all batches, ([0-9]+) of \1 rows$'

# In a sweep and without --invariance the column stays empty.
run_small --csv -
expect "an empty cell" test "$(csv_cell out 1 batch_invariant)" = ""

refused '--mode fwd,bwd.*--invariance' verify --device cpu --invariance --mode fwd,bwd
refused '--variant avx2.*--invariance' verify --device cpu --invariance --variant avx2
refused '--invariance: cannot be used with --outputs' verify --device cpu --invariance --outputs "$tmp"
refused '--impl fused_cpu:portable:invariant' verify --device cpu --invariance --impl fused_cpu:portable:invariant
run --device cpu --mode decode --kv-len 64 --batch 1 --heads 1 --d 64 --impl fused_cpu:invariant --splits 2 --out none
expect_code 6
expect_stdout 'invariant goes with no --splits'
finish
