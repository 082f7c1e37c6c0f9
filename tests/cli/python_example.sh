#!/usr/bin/env bash
# examples/python: a function in Python runs on the inputs of a dump and is judged; a wrong one fails.
. "$(dirname "$0")/lib.sh"
python3 -c 'import numpy' 2>/dev/null || skip "no python3 with NumPy"
export FABENCH=$fabench PYTHONDONTWRITEBYTECODE=1
folder=$root/examples/python

race() { # race ARGUMENT...: like run, of the script
    what="race.py $*"
    code=0
    timeout --kill-after=5 120 python3 "$folder/race.py" "$@" >out 2>err </dev/null || code=$?
}
shape=(--device cpu --seqlen 48,80 --kv-len 64 --d 64 --batch 2 --heads 4 --kv-heads 2 --impl fused --warmup-ms 0
    --min-time-ms 1 --samples 6 --max-noise 100% --l2 hot)

race "$folder/numpy_attention.py" --samples 2 -- "${shape[@]}"
expect_code 0
expect "8 problems of both modes and masks, with rows that see no key" \
    test "$(grep -cE '^(fwd|bwd)-(full|causal).* mine +[0-9.]+ +pass 0\.[0-9]+ of its bound' out)" -eq 8
expect "a ratio for each" test "$(grep -cE '^ +fused_cpu +[0-9.]+ +[0-9.]+ x +pass$' out)" -eq 8
expect "its verdicts" test "$(grep -c ',mine,.*,pass,' race/verdicts.csv)" -eq 8

# A function of one's own: forward alone, without LSE; then one with an error of 1 %.
cat >own.py <<END
import sys
sys.path.insert(0, "$folder")
import numpy_attention

def forward(q, k, v, scale, causal):
    return numpy_attention.forward(q, k, v, scale, causal)[0]
END
race own.py --name own --samples 1 -- "${shape[@]}" --causal
expect_code 0
expect "the forward alone" test "$(grep -cE '^fwd-causal.* own ' out)" -eq 2
expect "no backward" sh -c '! grep -q "^bwd" out'
sed -i 's/causal)\[0\]/causal)[0] * 1.01/' own.py
race own.py --samples 1 -- "${shape[@]}" --mode fwd
expect_code 1
expect "fails" test "$(grep -cE '^fwd-.* mine .* fail ' out)" -eq 4

# Refusals.
race own.py --samples 1 -- "${shape[@]}" --mode bwd
expect_code 2
expect_stderr '^race: own.py has no function for any of these problems'
race absent.py
expect_code 2
expect_stderr '^race: absent.py: no such file'
mkdir precious
touch precious/file
race own.py --folder precious
expect_code 2
expect "its file" test -e precious/file
race own.py -- --device cpu --seqlen nonsense
expect_code 2
race --help
expect_code 0
finish
