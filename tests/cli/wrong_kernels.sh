#!/usr/bin/env bash
# Every wrong kernel must fail its check, at 1K and at 16K: row check=fail, the right tensor and rows named, exit 1; and
# the right one from the same library must pass.
#
#   wrong_kernels.sh [cpu|cuda] [LENGTH...]   cpu (fp32) and 1024 where not given; cuda: bf16 and fp16
#
# ctest runs cpu 1024 as cli_wrong_kernels, cpu 16384 as nightly_wrong_kernels, both lengths of cuda as gpu tests.
# All faults of a length and mode run side by side, so that the reference is computed once.
. "$(dirname "$0")/lib.sh"

platform=${1:-cpu}
limit_s=600
lengths=("${@:2}")
[ ${#lengths[@]} -gt 0 ] || lengths=(1024)
dtypes=("fp32")
device=cpu
if [ "$platform" = cuda ]; then
    dtypes=(bf16 fp16)
    device=cuda:0
    "$fabench" info --device cuda:0 >/dev/null 2>&1 || skip "no GPU"
fi
right=right_$platform
l2=cold
[ "$platform" = cuda ] || l2=hot # to empty a large cache of a CPU takes longer than these runs
library=$plugins/libwrong_$platform.so
common=(--device "$device" --d 64 --batch 1 --causal --warmup-ms 0 --min-time-ms 0 --samples 1 --timeout-s 300
    --l2 $l2 --out none --plot none --impl-lib "$library" --jsonl run.jsonl --csv run.csv)

# run_faults MODE HEADS IMPL...: one run of all of them; the exit code must be 1.
run_faults() {
    local mode=$1 heads=$2
    shift 2
    run "${common[@]}" --dtype "$dtype" --mode "$mode" --heads "$heads" --seqlen "$n" --impl "$(IFS=,; echo "$*")"
    all=$what
    expect_code 1
    expect "a row for each of $#" test "$(rows run.jsonl | wc -l)" -eq $#
}

# took IMPL: the row of an implementation of the last run becomes $row, what was said of it $said.
took() {
    impl=$1
    what="$impl in $all"
    row=$(rows run.jsonl "\"impl\": *\"$impl\"")
    said=$(grep -oE '"failure": *"[^"]*"' <<<"$row")
}

# wrong IMPL TENSOR...: it failed, and its worst tensor is among these; one with a + must itself be over its bound.
wrong() {
    local tensor legal=0 worst_tensor
    took "wrong_$1"
    shift
    expect "status ok" test "$(row_value status <<<"$row")" = ok
    expect "check fail" test "$(row_value check <<<"$row")" = fail
    expect "err_used above 1" awk -v x="$(row_value err_used <<<"$row")" 'BEGIN { exit !(x > 1) }'
    expect "its time kept" test -n "$(row_value time_ms <<<"$row")"
    expect "no TFLOPS" test -z "$(row_value tflops <<<"$row")"
    worst_tensor=$(row_value err_tensor <<<"$row")
    for tensor in "$@"; do
        [ "$worst_tensor" != "${tensor%+}" ] || legal=1
        if [ "$tensor" != "${tensor%+}" ]; then
            expect "a failure sentence for ${tensor%+}" grep -qE "\"failure\": *\"${tensor%+}[ :]" <<<"$row"
        fi
    done
    expect "err_tensor among $*, not '$worst_tensor'" test $legal -eq 1
    expect "a FAIL text on stdout" grep -qE "FAIL $impl " out
}

# The failure sentences of the last row.
says() { checks=$((checks + 1)); grep -qE -- "$1" <<<"$said" || fail "its failure does not say: $1: $said"; }
# Every range of rows that they name lies within FIRST..LAST, and there is one.
says_rows_within() {
    checks=$((checks + 1))
    grep -oE 'rows [0-9]+\.\.[0-9]+' <<<"$said" | sed 's/rows //; s/\.\./ /' |
        awk -v first="$1" -v last="$2" '{ n++; if ($1 < first || $2 > last) bad = 1 } END { exit bad || !n }' ||
        fail "its failure does not lie in rows $1..$2: $said"
}
# A tensor of the last row is within its bounds.
passes() {
    local entry
    entry=$(tensor_entry "$1" <<<"$row")
    checks=$((checks + 1))
    { [ -n "$entry" ] && ! grep -qE '"failure": *"[^"]' <<<"$entry"; } || fail "expected $1 to pass"
}
right() {
    took "$1"
    expect "check pass" test "$(row_value check <<<"$row")" = pass
}

forward_faults() {
    local last=$((n - 1))
    run_faults fwd 1 "$right" wrong_{inverted_mask,diagonal,scale,last_tile,last_rows,stale,lazy,nan_row,past_end}
    right "$right"
    wrong inverted_mask o lse+
    wrong diagonal o+ lse+
    wrong scale o+ lse+
    wrong last_tile o+ lse+ # the last 128 keys: seen by the last 128 rows only
    says_rows_within $((n - 128)) $last
    wrong last_rows o+ lse+
    says "rows $((n - 64))\.\.$last"
    says_rows_within $((n - 64)) $last
    wrong stale o+ lse+
    wrong lazy o+ lse+
    wrong nan_row o+
    says "row=$((n / 2)) "
    says "rows $((n / 2))\.\.$((n / 2))"
    passes lse
    wrong past_end o+
    says "outside|past|behind|beyond"
    passes lse
}

backward_faults() {
    local last=$((n - 1))
    run_faults bwd 1 "$right" wrong_{inverted_mask,diagonal,scale,last_tile,last_rows,stale,lazy,nan_row,past_end,dk}
    right "$right"
    wrong inverted_mask dq+ dk+ dv+
    wrong diagonal dq+ dk+ dv+
    wrong scale dq+ dk+ dv
    wrong last_tile dq dk+ dv+
    says_rows_within $((n - 128)) $last
    says "rows $((n - 128))\.\.$last"
    wrong last_rows dq+
    says "rows $((n - 64))\.\.$last"
    says_rows_within $((n - 64)) $last
    passes dk
    passes dv
    wrong stale dq+ dk+ dv+
    wrong lazy dq+ dk+ dv+
    wrong nan_row dq+
    says "rows $((n / 2))\.\.$((n / 2))"
    passes dk
    wrong past_end dv+
    says "outside|past|behind|beyond"
    passes dq
    passes dk
    wrong dk dk+
    passes dq
    passes dv
}

swapped_heads() {
    run_faults fwd 2 "$right" wrong_heads
    right "$right"
    wrong heads o+ lse+
    says "in all 2 heads"
    if [ "$n" -le 1024 ] || [ "$platform" = cuda ]; then # the oracle is slow
        run_faults bwd 2 "$right" wrong_heads
        right "$right"
        wrong heads dq+ dk+ dv+
        says "in all 2 heads"
    fi
}

for n in "${lengths[@]}"; do
    for dtype in "${dtypes[@]}"; do
        forward_faults
        backward_faults
        swapped_heads
    done
done

# What depends on no length is tested beside the shortest.
[[ " ${lengths[*]} " == *" 1024 "* ]] || { finish; exit; }

# Ours beside a wrong one: a wrong neighbour costs nobody else the check.
n=1024
dtype=${dtypes[0]}
run_faults bwd 1 naive wrong_dk fused "$right"
expect "only the wrong one to fail" test "$(for i in 1 2 3 4; do csv_cell run.csv $i check; done | tr '\n' ' ')" = \
    "pass fail pass pass "

# An LSE whose error is three times what fp32 inputs allow, and a third of what 16-bit inputs do.
if [ "$platform" = cpu ]; then
    run_faults fwd 1 "$right" wrong_lse
    right "$right"
    wrong lse lse+
    says 'by rule lse, [23](\.[0-9]+)? x its bound'
    passes o
fi

# A fault that a loose tolerance would hide is still found by the norms.
run "${common[@]}" --dtype "$dtype" --impl wrong_scale --mode fwd --heads 1 --seqlen $n --atol 1 --rtol 1
expect_code 1
expect_stderr 'warning: --atol'

# Broken promises of bit-equal results are found by verify.
run verify --device $device --preset quick --impl-lib "$library" --impl wrong_nondeterministic --d 64
expect_code 1
expect_stdout 'FAIL'
expect_stdout 'bit-equal'
run verify --device $device --preset quick --impl-lib "$library" --impl wrong_nondeterministic --d 64 --repeats 0
expect "nobody to compare bits" test "$(grep -c bit-equal out)" -eq 0
run verify --device $device --preset quick --impl-lib "$library" --impl "$right" --d 64
expect_code 0
finish
