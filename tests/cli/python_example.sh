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
expect "no speed of a wrong result" sh -c '! grep -qE "[0-9] x +pass" out && grep -qE " - +pass" out'

# What the function does not name is refused in words, not judged as if it were absent.
for words in "--window-left 16" "--softcap 1" "--dropout 0.1" "--block-mask local:1 --mask-block 16" \
    "--lengths list:5:9"; do
    # shellcheck disable=SC2206 # words
    some=(--device cpu --d 64 --heads 2 --mode fwd --impl fused --warmup-ms 0 --min-time-ms 1 --samples 6 --l2 hot
        --max-noise 100% --causal $words)
    [[ $words == --lengths* ]] || some+=(--seqlen 48 --batch 1)
    race "$folder/numpy_attention.py" --samples 1 -- "${some[@]}"
    expect_code 2
    expect_stderr '^race: .*numpy_attention.py: forward has no parameter for what fwd-.* needs: .*; nothing was judged'
done
race "$folder/numpy_attention.py" --samples 1 -- --device cpu --mode decode --kv-len 64 --d 64 --heads 2 --batch 2 \
    --impl fused --warmup-ms 0 --min-time-ms 1 --samples 6 --l2 hot --max-noise 100%
expect_code 2
expect_stderr 'has no parameter for what decode-.* needs: .*seqused_k'
# A function that names them computes every problem from the files alone.
cat >whole.py <<END
import sys
import numpy
sys.path.insert(0, "$folder")
import numpy_attention

def one(q, k, v, scale, causal, left, right, softcap, mask):
    heads = q.shape[1]
    s = scale * numpy.einsum("bhid,bhjd->bhij", q, numpy_attention.spread(k, heads))
    if softcap:
        s = softcap * numpy.tanh(s / softcap)
    rows, keys = s.shape[2:]
    i, j = numpy.arange(rows)[:, None] + keys - rows, numpy.arange(keys)[None, :]
    hidden = numpy.zeros((1, 1, rows, keys), bool)
    hidden |= (j > i) if causal else False
    hidden |= (j < i - left) if left >= 0 else False
    hidden |= (j > i + right) if right >= 0 else False
    if mask is not None:
        hidden = hidden | (mask[:, :, :rows, :keys] == 0)
    s = numpy.where(hidden, -numpy.inf, s)
    most = numpy.where(numpy.isfinite(s.max(-1, keepdims=True)), s.max(-1, keepdims=True), 0)
    e = numpy.exp(s - most)
    total = e.sum(-1, keepdims=True)
    return numpy.einsum("bhij,bhjd->bhid", e, numpy_attention.spread(v, heads)) / numpy.where(total > 0, total, 1)

def forward(q, k, v, scale, causal, window_left=-1, window_right=-1, softcap=0, block_mask=None, mask_block=0,
            cu_seqlens_q=None, cu_seqlens_k=None):
    mask = None if block_mask is None else block_mask.repeat(mask_block, 2).repeat(mask_block, 3)
    if cu_seqlens_q is None:
        return one(q, k, v, scale, causal, window_left, window_right, softcap, mask)
    o = numpy.zeros_like(q)
    for a, b, c, d in zip(cu_seqlens_q, cu_seqlens_q[1:], cu_seqlens_k, cu_seqlens_k[1:]):
        o[:, :, a:b] = one(q[:, :, a:b], k[:, :, c:d], v[:, :, c:d], scale, causal, window_left, window_right, softcap,
                           mask)
    return o
END
for words in "--window-left 16" "--softcap 1" "--block-mask random:0.5 --mask-block 16" "--lengths list:5:9x20"; do
    # shellcheck disable=SC2206 # words
    some=(--device cpu --d 64 --heads 2 --mode fwd --impl fused --warmup-ms 0 --min-time-ms 1 --samples 6 --l2 hot
        --max-noise 100% --causal $words)
    [[ $words == --lengths* ]] || some+=(--seqlen 48 --batch 1)
    race whole.py --samples 1 -- "${some[@]}"
    expect_code 0
    expect "it passes" test "$(grep -cE '^fwd-.* mine .* pass ' out)" -ge 1
done

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
