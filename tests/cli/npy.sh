#!/usr/bin/env bash
# --dump writes the tensors, --input reads them back: same inputs, same verdict; what is no fitting .npy is refused.
. "$(dirname "$0")/lib.sh"

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
finish
