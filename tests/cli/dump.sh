#!/usr/bin/env bash
# A wrong kernel's tensors: --dump writes the reference and the differences, verify --only dumps one hard shape, --input
# takes a dump whole, and verify --outputs judges results that stand in files.
. "$(dirname "$0")/lib.sh"

shape=(--device cpu --seqlen 64,96 --d 64 --batch 2 --heads 2 --warmup-ms 0 --min-time-ms 1 --samples 6
    --max-noise 100% --l2 hot --out none)

# The reference beside the inputs, the difference beside each result.
run "${shape[@]}" --impl naive,fused --dump whole
expect_code 0
expect "a folder for each problem" test "$(find whole -mindepth 1 -maxdepth 1 -type d | wc -l)" -eq 8
for tensor in o lse; do
    expect_file "whole/fwd-causal-d-64-n-96-fp32/${tensor}_reference.npy"
    expect_file "whole/fwd-causal-d-64-n-96-fp32/fused_cpu/${tensor}_difference.npy"
done
for tensor in dq dk dv; do
    expect_file "whole/bwd-full-d-64-n-64-fp32/${tensor}_reference.npy"
    expect_file "whole/bwd-full-d-64-n-64-fp32/naive/${tensor}_difference.npy"
done
run "${shape[@]}" --impl fused --check off --dump unchecked
expect_code 0
expect "no reference where none was made" \
    test -z "$(find unchecked -name '*_reference.npy' -o -name '*_difference.npy')"

# --input takes the dump whole: the same problems with the same values, without options that say them again.
timing=(--device cpu --warmup-ms 0 --min-time-ms 1 --samples 6 --max-noise 100% --l2 hot --out none)
run "${timing[@]}" --input whole --impl fused --dump again --csv again.csv
expect_code 0
expect "its rows" test "$(grep -c fused_cpu again.csv)" -eq 8
(cd whole && find . -name '*.npy' ! -path '*/naive/*') | while read -r file; do
    cmp -s "whole/$file" "again/$file" || echo "$file"
done >differ
expect "the same inputs, results and differences" test ! -s differ
run "${timing[@]}" --input whole/bwd-full-d-64-n-64-fp32 --impl fused --csv one.csv
expect_code 0
expect "one of its folders is one problem" test "$(wc -l <one.csv)" -eq 2
repro=$(csv_cell one.csv 1 repro)
run "${timing[@]}" --input whole --mode bwd --seqlen 64,65 --impl fused --csv some.csv
expect_code 0
expect "options choose among its problems" test "$(wc -l <some.csv)" -eq 3
repro=$(csv_cell some.csv 2 repro)
# shellcheck disable=SC2086 # its words
run ${repro#fabench } --out none --csv repro.csv
expect_code 0
expect "repro to make one row" test "$(wc -l <repro.csv)" -eq 2
expect "of the same problem" test "$(csv_cell repro.csv 1 causal)" = "$(csv_cell some.csv 2 causal)"
run "${timing[@]}" --input whole --seqlen 77
expect_code 2
expect_sentence '--input whole: none of its 8 problems is one that the other options ask for'

# verify --dump DIR --only KEY.
run verify --device cpu --dry-run --dtype fp32
expect_code 0
key=$(grep -E '^bwd-causal.*-peak-' out | head -1)
expect "a key in the dry run" test -n "$key"
run verify --device cpu --impl fused --out none --only "$key" --dump hard --csv hard.csv
expect_code 0
expect "its folder" test "$(ls hard)" = "$key"
expect_file "hard/$key/fused_cpu/dk_difference.npy"
run verify --device cpu --impl fused --out none --only fwd-causal --csv words.csv
expect_code 0
expect "many" test "$(wc -l <words.csv)" -gt 20
expect "these alone" sh -c '! grep -E ",bwd,|,fwd,fp32,0," words.csv'
run verify --device cpu --only nonsense
expect_code 2
expect_sentence '--only nonsense: no problem has this key.*--dry-run prints the keys'
run "${timing[@]}" --input hard --impl fused --csv hard.csv
expect_code 0
expect "the distribution comes with it" test "$(csv_cell hard.csv 1 dist)" = peak

# verify --outputs: results that stand in files.
right() { # right NAME: results of that name for every problem, taken from fused_cpu
    for folder in whole/*/; do
        cp -r "$folder/fused_cpu" "$folder/$1"
        rm "$folder/$1"/*_difference.npy "$folder/$1/tensors.json"
    done
}
run verify --device cpu --out none --outputs whole --csv all.csv
expect_code 0
expect "every folder of results is judged" test "$(grep -cE ',(naive|fused_cpu),' all.csv)" -eq 16
right mine
rm whole/*/mine/lse.npy # not every program has it
run verify --device cpu --out none --outputs whole --impl mine --csv mine.csv --jsonl mine.jsonl
expect_code 0
expect "8 passes" test "$(grep -c ',mine,.*,pass,' mine.csv)" -eq 8
expect "LSE not among the judged" sh -c '! grep -q "\"name\": *\"lse\"" mine.jsonl'
expect "O among them" grep -qE '"name": *"o"' mine.jsonl

cp whole/fwd-full-d-64-n-96-fp32/v.npy whole/fwd-full-d-64-n-96-fp32/mine/o.npy
cp whole/bwd-full-d-64-n-64-fp32/k.npy whole/bwd-full-d-64-n-96-fp32/mine/dk.npy
rm whole/bwd-causal-d-64-n-64-fp32/mine/dv.npy
rm -r whole/fwd-causal-d-64-n-64-fp32/mine
run verify --device cpu --out none --outputs whole --impl mine --csv mine.csv
expect_code 1
expect "3 failures" test "$(grep -c ',mine,.*,fail,' mine.csv)" -eq 3
expect_stdout 'dk\.npy: its shape is not \[2, 2, 96, 64\]'
expect_stdout 'dv\.npy: cannot be opened'
expect "why there is none" grep -q ',unsupported,.*no results in its folder mine/' mine.csv
expect_stdout '^ +fabench verify .*--outputs whole .*--only '
key=fwd-full-d-64-n-96-fp32
run verify --device cpu --out none --outputs whole --impl mine --only $key --dump differences
expect_code 1
expect_file differences/$key/mine/o_difference.npy
run verify --device cpu --out none --outputs "whole/$key/" --impl mine
expect_code 1

# What cannot be judged is a sentence.
run verify --device cpu --outputs whole --impl mime
expect_code 2
expect_sentence '--impl mime: no problem of --outputs has results in a folder of this name, only in '
run verify --device cpu --outputs whole --repeats 3
expect_code 2
expect_sentence '--repeats 3: cannot be used with --outputs'
run verify --device cpu --outputs whole --dump whole
expect_code 2
mkdir empty bare
run verify --device cpu --outputs empty
expect_code 7
expect_sentence '--outputs empty: neither it nor a folder in it has a tensors.json with a problem'
cp whole/$key/*.* bare/
run verify --device cpu --outputs bare
expect_code 7
expect_sentence 'no folder with results .* beside the inputs in bare'
sed -i 's/"kv_heads": 2/"kv_heads": 3/' bare/tensors.json
run verify --device cpu --outputs bare
expect_code 7
expect_sentence 'bare/tensors.json: its problem is one that no command makes'
sed -i 's/"kv_heads": 3/"kv_heads": "two"/' bare/tensors.json
run verify --device cpu --outputs bare
expect_code 7
expect_sentence "its problem has no legal 'kv_heads'"
echo '{' >bare/tensors.json
run verify --device cpu --outputs bare
expect_code 7
expect_sentence 'bare/tensors.json: is not JSON'
finish
