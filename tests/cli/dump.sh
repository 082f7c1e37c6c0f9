#!/usr/bin/env bash
# A wrong kernel's tensors: --dump writes the reference and the differences, verify --only dumps one hard shape, --input
# takes a dump whole, and verify --outputs judges results that stand in files.
# --dump writes the tensors, --input reads them back: same inputs, same verdict; what is no fitting .npy is refused.
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

# ---- npy ----
next_part
shape=(--device cpu --seqlen 96 --kv-len 160 --d 64 --batch 2 --heads 4 --kv-heads 2 --impl fused --warmup-ms 0
    --min-time-ms 1 --samples 6 --max-noise 100% --out none --plot none)

run "${shape[@]}" --mode bwd --causal --seed 7 --dump dumped
shape+=(--l2 hot)
expect_code 0
find dumped -name '*.npy' | sort >names
for tensor in q k v "do" dq dk dv lse; do
    expect "$tensor.npy among the dumped files" grep -qE "(^|/)$tensor\.npy\$" names
done
from=$(dirname "$(grep -E '/q\.npy$' names | head -1)")
expect "numpy's magic" test "$(head -c 6 "$from/q.npy" | tail -c 5)" = NUMPY
expect "the shape in the header" sh -c "head -c 128 '$from/q.npy' | tr -d '\\0' | grep -q '(2, 4, 96, 64)'"
expect "the keys' shape in the header" sh -c "head -c 128 '$from/k.npy' | tr -d '\\0' | grep -q '(2, 2, 160, 64)'"

# Round trip: other seed, same files, same results.
run "${shape[@]}" --mode bwd --causal --seed 8 --input "$from" --dump again
expect_code 0
to=$(dirname "$(find again -name q.npy | head -1)")
for tensor in q k v "do"; do
    expect "the same $tensor" cmp -s "$from/$tensor.npy" "$to/$tensor.npy"
done
outputs=$(cd "$from" && find . -name dq.npy) # in a folder of the implementation
outputs=$(dirname "$outputs")
for tensor in dq dk dv; do
    expect "the same $tensor" cmp -s "$from/$outputs/$tensor.npy" "$to/$outputs/$tensor.npy"
done
if python3 -c 'import numpy' 2>/dev/null; then
    expect "numpy to agree" python3 - "$from" <<'END'
import sys, numpy
q = numpy.load(sys.argv[1] + "/q.npy")
assert q.shape == (2, 4, 96, 64) and q.dtype == numpy.float32, (q.shape, q.dtype)
assert abs(q.std() - 1) < 0.05
END
fi

# tensors.json beside the files describes each of them; with --dump-dtype fp32 they are float32 whatever was computed.
for folder in "$from" "$from/$outputs"; do
    for file in "$folder"/*.npy; do
        expect "$file in tensors.json" grep -qF "\"${file##*/}\"" "$folder/tensors.json"
    done
done
tr -d ' \n' <"$from/tensors.json" >described
expect "the dtype and the shape of k" grep -qF \
    '"tensor":"k","dtype":"fp32","stored_as":"float32","shape":[2,2,160,64],"dimensions":["batch",' described
run "${shape[@]}" --mode bwd --causal --seed 7 --dump floats --dump-dtype fp32
expect_code 0
expect "the same q as float32" cmp -s "$from/q.npy" "floats/$(basename "$from")/q.npy"
run "${shape[@]}" --mode bwd --causal --seed 8 --input "floats/$(basename "$from")"
expect_code 0

# One set of tensors serves every mode and mask; backward alone reads dO. Tensors of two shapes are refused.
run "${shape[@]}" --seed 8 --input "$from" --dump every
expect_code 0
expect "a folder for each of two modes and masks" test "$(find every -name q.npy | wc -l)" -eq 4
for file in $(find every -name q.npy); do expect "the same q in $file" cmp -s "$from/q.npy" "$file"; done
mkdir forward
cp "$from"/{q,k,v}.npy forward/
run "${shape[@]}" --mode fwd --input forward
expect_code 0
run "${shape[@]}" --input forward
expect_code 7
expect_stderr 'forward/do\.npy: cannot be opened'
run --device cpu --seqlen 96 --kv-len 160,161 --d 64 --batch 2 --heads 4 --kv-heads 2 --input "$from" --out none
expect_code 2
expect_sentence 'make q \[2, 4, 96, 64\] with k and v \[2, 2, 160, 64\], and q .* with k and v \[2, 2, 161, 64\]:'

bad() { # bad REGEX: the folder `broken` is refused
    run "${shape[@]}" --mode fwd --causal --input broken
    expect_code 7
    expect_stderr "$1"
    expect "no crash" sh -c "! grep -qiE 'signal|segmentation|internal error' err"
}
fresh() { rm -rf broken; mkdir broken; cp "$from"/{q,k,v}.npy broken/; }
fresh; rm broken/k.npy; bad 'k\.npy'
fresh; printf 'NOTNUMPYATALL' >broken/q.npy; bad 'q\.npy'
fresh; : >broken/q.npy; bad 'q\.npy'
fresh; head -c 1000 "$from/q.npy" >broken/q.npy; bad 'q\.npy'
fresh; printf 'xxxx' >>broken/q.npy; bad 'q\.npy'
fresh; cp "$from/k.npy" broken/q.npy; bad 'q\.npy'
fresh; sed 's/<f4/<f8/' "$from/v.npy" >broken/v.npy; bad 'v\.npy'
fresh; sed 's/<f4/>f4/' "$from/v.npy" >broken/v.npy; bad 'v\.npy'
fresh; sed 's/False/True /' "$from/v.npy" >broken/v.npy; bad 'v\.npy'
fresh; sed 's/(2, 4, 96, 64)/(2, 4, 96, 65)/' "$from/q.npy" >broken/q.npy; bad 'q\.npy'
fresh; sed 's/(2, 4, 96, 64)/(9999999999, 9999999999, 9999999999, 64)/' "$from/q.npy" >broken/q.npy; bad 'q\.npy'
fresh; sed 's/(2, 4, 96, 64)/(2, -4, 96, 64)/' "$from/q.npy" >broken/q.npy; bad 'q\.npy'
fresh; rm broken/v.npy; mkdir broken/v.npy; bad 'v\.npy'
fresh; printf '\0\0\300\177' | dd of=broken/v.npy bs=1 seek=$(($(stat -c %s broken/v.npy) - 4)) conv=notrunc status=none
bad 'v\.npy.*not finite'
fresh # 1e6 is a number in fp32, and none in fp16
printf '\0\44\164\111' | dd of=broken/v.npy bs=1 seek=$(($(stat -c %s broken/v.npy) - 4)) conv=notrunc status=none
run "${shape[@]}" --mode fwd --causal --input broken
expect_code 0
run "${shape[@]}" --mode fwd --causal --input broken --dtype fp32,fp16
expect_code 7
expect_stderr 'v\.npy.*not finite in fp16'

# A key and --seed name the inputs: the same files whatever else is run, and in a sweep with the seed of the row.
next_part
number=0
key=fwd-causal-d-64-n-113x203-fp32-b-2-h-2x2-normal-bhsd
for words in "" "--mode fwd --causal" "--d 64 --dtype fp32"; do
    # shellcheck disable=SC2086 # words
    run verify --device cpu --impl fused --repeats 0 --only $key --dump "dump$((++number))" --csv "$number.csv" \
        --out none $words
    expect_code 0
done
eval "words=($(csv_cell 1.csv 1 repro))"
expect "the command of a sweep" test "${words[1]}" != verify
run "${words[@]:1}" --warmup-ms 0 --min-time-ms 0 --samples 1 --max-noise 100% --l2 hot --out none --dump dump4
expect_code 0
for name in q k v; do
    for i in 2 3 4; do
        expect "the same $name in dump$i" cmp -s dump1/*/$name.npy dump$i/*/$name.npy
    done
done
run verify --device cpu --impl fused --repeats 0 --only $key --seed 2 --dump dump5 --out none
expect "another seed, another q" sh -c '! cmp -s dump1/*/q.npy dump5/*/q.npy'
finish
