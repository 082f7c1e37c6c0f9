#!/usr/bin/env bash
# scripts/fused_vs_flash2.py, cudnn_vs_pytorch.py, decode_vs_fa3.py and eight_bits_vs_fa3.py: which problems both sides
# are asked for, ratios, bars, files and exit codes. PyTorch (tests/fake/python) and fabench are stand-ins, which say
# FAKE_TORCH_MS and FAKE_MS.
. "$(dirname "$0")/lib.sh"

command -v python3 >/dev/null || skip "no python3"

mkdir -p nvidia/cudnn/lib
touch nvidia/cudnn/__init__.py nvidia/cudnn/lib/libcudnn.so.9
export PYTHONPATH=$root/tests/fake/python:$tmp PYTHONDONTWRITEBYTECODE=1
export FAKE_TORCH_CALLS=$tmp/calls FAKE_TORCH_MS=2 FAKE_MS=2 FAKE_CHECK=pass

# Answers with a row of each implementation that --impl names: 4e12 FLOP, so 2 ms are 2000 TFLOPS; NAME:fast takes
# FAKE_FAST_MS.
cat >fake_fabench <<'END'
#!/usr/bin/env bash
echo "$*" >>asked
[ "$2" = "${FAKE_REFUSED-}" ] && { echo 'refused here' >&2; exit 6; }
echo 'a line before'
echo 'impl,cudnn,check,time_ms,flops,tflops,gemm_tflops,pct_of_read,variant,sm_clock_mhz'
for impl in ${2//,/ }; do
    ms=$FAKE_MS
    [[ $impl == *:fast ]] && ms=$FAKE_FAST_MS
    echo "$impl,9.19.0,$FAKE_CHECK,$ms,4e12,$(awk "BEGIN { print 4000 / $ms }"),${FAKE_GEMM-700},90,tile,1980"
done
END
chmod +x fake_fabench

python_run() { # python_run SCRIPT ARGUMENT...
    what=$*
    code=0
    : >calls
    : >asked
    python3 "$root/scripts/$1" "${@:2}" >out 2>err </dev/null || code=$?
}
flash2() { python_run fused_vs_flash2.py "$@"; }

flash2 --list
expect_code 0
expect "the points" test "$(wc -l <out)" -eq 84
cp out whole
for part in 1 2 3; do
    flash2 --list --part $part/3
    cat out >>parts
done
expect "every point in one part" cmp -s <(sort parts) <(sort whole)
flash2 --list --only windows
expect "windows that are shorter than the length" test "$(grep -c ' 4096 .*window 4096' out)" -eq 0
expect "the others" test "$(wc -l <out)" -eq 20

# One point of each group, the number of which is from `whole`.
number() { grep -nE "$1" whole | head -1 | cut -d: -f1; }
point() { flash2 --fabench ./fake_fabench --csv point.csv --part "$(number "$1")/84" "${@:2}"; }

FAKE_TORCH_MS=3 point '^head-dims bwd +0 16384 +96'
expect_code 0
expect_stdout '^head-dims bwd +0 16384 +96 +2000\.0 +1333\.3 +1\.5000$'
expect_stdout '^head-dims: 1 points, geometric mean 1\.500, least 1\.500$'
expect_stdout '^bar of head-dims, windows, packed: 1 points, .*; at least 1\.05 and 0\.97: reached$'
expect "the row" grep -qx 'head-dims,bwd,0,96,16384,fixed,-1,0,2000.0,1333.3,1.5000' point.csv
expect "asked for in fabench" grep -q -- '--impl fused_sm80 --mode bwd --causal=no --d 96 --seqlen 16384 --total' asked
expect "how in fabench" grep -qE -- '--layout bshd --dtype bf16 --check sample .*-ms 50 --min-time-ms 100' asked
expect "asked for in PyTorch" grep -qE \
    '^flash_backward grad_out=1x16384x21x96 .*max_q=16384 max_k=16384 dropout_p=0.0 is_causal=False rng_state=' calls
expect "no window" sh -c '! grep -q window_size calls'

FAKE_TORCH_MS=3 point '^windows +fwd .* 16384 +64 .*window 1024'
expect_code 0
expect "the window in fabench" grep -q -- '--causal=yes --d 64 --seqlen 16384 --window-left 1024 ' asked
expect "and in PyTorch" grep -qE \
    '^flash_forward query=1x16384x32x64 .*is_causal=True .*window_size_left=1024 window_size_right=0$' calls

FAKE_TORCH_MS=3 point '^packed +fwd +1 .*lognormal:2048'
expect_code 0
lengths=$(sed -nE 's/.*--lengths list:([0-9:]+) .*/\1/p' asked)
expect "all tokens" test "$(tr : '\n' <<<"$lengths" | awk '{ sum += $1 } END { print sum }')" -eq 16384
starts=$(sed -nE 's/.*cum_seq_q=\[([0-9, ]+)\].*/\1/p' calls | head -1)
expect "the same lengths in PyTorch" test "$(tr , '\n' <<<"$starts" | awk '
    NR > 1 { printf "%s%d", sep, $1 - last; sep = ":" }
    { last = $1 }')" = "$lengths"
expect "the longest" grep -qE "max_q=$(tr : '\n' <<<"$lengths" | sort -n | tail -1) " calls
expect "packed tensors" grep -q '^flash_forward query=16384x32x64 ' calls
expect "the row" grep -qE '^packed,fwd,1,64,[0-9]+,lognormal:2048:1,-1,0,' point.csv

# Dropout has a bar of its own; a point below its least ratio is measured three times.
FAKE_TORCH_MS=1.92 point '^dropout +bwd'
expect_code 0
expect_stdout ' 0\.9600$'
expect "measured once" test "$(wc -l <asked)" -eq 1
expect "the same probability" grep -q -- '--dropout 0.1 ' asked
expect "and in PyTorch" grep -q '^flash_backward .*dropout_p=0.1 .*rng_state=rng_state unused=unused' calls
cp point.csv dropout.csv
FAKE_TORCH_MS=1.88 point '^dropout +bwd'
expect_code 1
expect_stdout '^bar of dropout: .*at least 0\.95: missed$'
FAKE_TORCH_MS=1.92 point '^head-dims fwd'
expect_code 1
expect "measured three times" test "$(wc -l <asked)" -eq 3
cp point.csv slow.csv
FAKE_TORCH_MS=2.06 point '^head-dims fwd' # above the least, below the mean
expect_code 1
expect "measured once" test "$(wc -l <asked)" -eq 1

# What fails does not stop the rest.
failing=(--fabench ./fake_fabench --csv point.csv --only windows --part 1/7)
FAKE_TORCH_REFUSED=1024 FAKE_TORCH_MS=3 flash2 "${failing[@]}"
expect_code 6
expect_stdout '^windows .* failed  window 1024$'
expect_stdout '^windows .* 1\.5000  window 256$'
expect_stdout '^1 points could not be measured$'
expect_stderr '^fused_vs_flash2: windows: this window is refused$'
expect "a row without figures" grep -q ',1024,0,,,$' point.csv
FAKE_REFUSED=fused_sm80 flash2 "${failing[@]}"
expect_code 6
expect_stderr 'exit code 6: refused here'
FAKE_CHECK=off flash2 "${failing[@]}"
expect_code 6
expect_stderr 'the check of fused_sm80 says off'
FAKE_GEMM='' flash2 "${failing[@]}"
expect_code 6
expect_stderr 'no GEMM'

# Parts are judged together.
flash2 --summary dropout.csv slow.csv
expect_code 1
expect_stdout '^bar of head-dims, windows, packed: .*missed$'
expect_stdout '^bar of dropout: .*reached$'
flash2 --summary dropout.csv
expect_code 0
flash2 --summary dropout.csv point.csv
expect_code 6
flash2 --summary absent.csv
expect_code 5
expect_stderr '^fused_vs_flash2: absent.csv: No such file'
flash2 --summary fake_fabench
expect_code 5
flash2 --fabench ./fake_fabench --csv no/point.csv
expect_code 7
for wrong in '--part 3/2' '--part 0/2' '--only decode' '--samples 3' '--warmup-ms 1'; do
    # shellcheck disable=SC2086 # two words
    flash2 --list $wrong
    expect_code 2
done

# ---- cudnn_vs_pytorch ----
cudnn() { python_run cudnn_vs_pytorch.py --mode bwd --dtype fp16 --causal no --d 64 --seqlen 4k "$@"; }

# 2.5 x 4 x 4 x 32 x 64 x 4096^2 FLOP in 2.749 ms are 500 TFLOPS, as the stand-in's 4e12 in 8 ms.
export FAKE_TORCH_MS=2.749 FAKE_MS=8
cudnn --fabench ./fake_fabench
expect_code 0
expect_stdout '^bwd +fp16 +0 +4096 +64 +500\.0 +500\.0 +1\.000$'
expect "asked for in fabench" grep -q -- '--impl cudnn --mode bwd --causal=no --d 64 --seqlen 4096 --dtype fp16' asked
expect "asked for in PyTorch" grep -q '^cudnn_backward grad_out=4x32x4096x64 ' calls
echo '{"impl":"cudnn","mode":"bwd","dtype":"fp16","causal":0,"q_len":4096,"head_dim":64,"tflops":450}' >record.jsonl
cudnn --records record.jsonl
expect_code 1
expect_stdout ' 450\.0 +500\.0 +0\.900  < minimum$'

# ---- decode_vs_fa3 ----
fa3() { python_run decode_vs_fa3.py --fabench ./fake_fabench "$@"; }
touch library.so
FAKE_MS=2 FAKE_TORCH_MS=2.5 fa3 --library library.so --csv decode.csv --shape 32x8,32x1 --batch 1 --kv-len 8k \
    --page-size 16
expect_code 0
expect "the points" test "$(wc -l <asked)" -eq 2
expect_stdout ' 32 +8 +1 +8192 +16 +1 +34 +2000\.0 +2500\.0 +90\.0 +72\.0 +1\.2500$'
expect_stdout '^all: 2 points, geometric mean 1\.250, least 1\.250; at least 1\.06 and 0\.99: reached$'
expect_stdout '^one key head, batch 1: 1 points, .*: reached$'
expect "the row" grep -qx '32,1,1,8192,16,1,4,2000.0,2500.0,90.0,72.0,1.2500' decode.csv
expect "asked for in fabench" \
    grep -q -- '--mode decode .*--shape 32x8 --batch 1 --kv-len 8192 --seqlen 1 --page-size 16' asked
expect "asked for in PyTorch" \
    grep -q '^fa3_forward query=1x1x32x128 key=1x8192x8x128 .*seqused_k=\[8192\] .*num_splits=0' calls
FAKE_MS=2 FAKE_TORCH_MS=1.9 fa3 --library library.so --shape 32x8 --batch 1 --kv-len 8k
expect_code 1
expect "measured three times" test "$(wc -l <asked)" -eq 3
FAKE_CHECK=fail fa3 --library library.so --shape 32x8 --batch 1 --kv-len 8k
expect_code 6
expect_stderr '^decode_vs_fa3: the check of fused_sm90 says fail$'
fa3 --library library.so --batch 256 --kv-len 128k --shape 32x32 # nothing is small enough
expect_code 6
fa3 --kv-len 1k
expect_code 6
expect_stderr 'no package fa3_fwd'
fa3 --library absent.so
expect_code 6
expect_stderr '^decode_vs_fa3: absent.so: '
fa3 --library library.so --csv no/decode.csv
expect_code 7
for wrong in '--shape 3x2' '--batch 0' '--kv-len x'; do
    # shellcheck disable=SC2086 # two words
    fa3 $wrong
    expect_code 2
done

# ---- eight_bits_vs_fa3 ----
eight() { python_run eight_bits_vs_fa3.py --fabench ./fake_fabench --library library.so "$@"; }
FAKE_MS=2 FAKE_FAST_MS=1.9 FAKE_TORCH_MS=2.2 eight --csv eight.csv --d 128 --seqlen 4k
expect_code 0
expect "the points" test "$(wc -l <asked)" -eq 2
expect_stdout '^d128 full +4096 +2000\.0 fast +2105\.3 FA3 +1818\.2 +ratio 1\.1000 fast 1\.1579, over fast 0\.9500$'
expect "the row" grep -qx \
    '128,causal,4096,16,16,tile,2.0000,1.9000,2.2000,2000.0,2105.3,1818.2,1.1000,1.1579,0.9500,1980' eight.csv
expect "asked for in fabench" grep -q -- \
    '--impl fused_sm90,fused_sm90:fast .* e4m3 --fp8-scale head --d 128 --causal=yes .*--batch 4 --shape 16x16' asked
expect "asked for in PyTorch" grep -q \
    '^fa3_forward query=4x4096x16x128 .*is_causal=True num_splits=1 q_descale=4x16 k_descale=4x16 v_descale=4x16' calls
# Below the bar of :fast, of sums in fp32, and of one beside the other; at 1024 tokens of d128 sums in fp32 have none.
for case in '128 4k 1.0 1.9 1.95' '128 4k 2 1.7 1.95' '64 4k 2 1.95 2.2' '64 4k 2 1.7 2.2' '128 4k 2 1.8 2.2' \
    '128 1k 2 1.9 1.9'; do
    read -r d n ms fast theirs <<<"$case"
    FAKE_MS=$ms FAKE_FAST_MS=$fast FAKE_TORCH_MS=$theirs eight --d "$d" --seqlen "$n"
    expect_code 1
    expect "measured three times" test "$(wc -l <asked)" -eq 6
done
FAKE_MS=2 FAKE_FAST_MS=1.9 FAKE_TORCH_MS=1.995 eight --d 128 --seqlen 1k
expect_code 0
FAKE_MS=2 FAKE_FAST_MS=1.9 FAKE_TORCH_MS=1.9 eight --d 128 --seqlen 1k --once
expect_code 1
expect "measured once" test "$(wc -l <asked)" -eq 2
FAKE_MS=2 FAKE_FAST_MS=1.9 FAKE_CHECK=fail eight --d 128 --seqlen 1k
expect_code 6
expect_stderr '^eight_bits_vs_fa3: the check of fused_sm90 says fail$'
eight --csv no/eight.csv
expect_code 7
eight --d x
expect_code 2

finish
