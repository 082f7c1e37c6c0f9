#!/usr/bin/env bash
# Every fault between kernel and judge and every lie about work is caught on the CPU: all dtypes, directions and masks
# at 1K; and the self-test can fail. With the argument 16k: causal at 16K alone, which takes minutes (nightly_selftest).
# With the argument short, for builds with sanitizers: at 384 instead of 1K.
. "$(dirname "$0")/lib.sh"

limit_s=3000
if [ "${1:-}" = 16k ]; then
    run selftest --device cpu --seqlen 16k --causal
    expect_code 0
    expect_stdout '^PASS: ([0-9]+) of \1 faults and 18 of 18 lies about work caught, ([0-9]+) of \2 right results pass'
    expect_stdout '^bwd causal d=64 n=16k bf16 '
    finish
    exit
fi
limit_s=300
faults=("inverted mask" "diagonal off by one" "missing scale" "scale off by 1 %" "last tile skipped" "stale output"
    "NaN row" "swapped heads" "one element past the end" "dK off by 1 %" "window left edge"
    "window right edge" "bwd dropout mask" "1/\(1-P\) missing" "neighbour's first key" "two pages swapped"
    "unused slots read" "a split forgotten" "splits unweighted" "Q scale of next block" "K scale of next block"
    "a block skipped")
lies=("lazy on valid output" "cached by input hash" "the same, inputs of files" "a slow clock"
    "first result, right signs" "every second call" "only while checked" "one launch left out" "first of two streams")
fault_rows() { grep -E '"type": *"fault"' "$1"; }

length=1k others="128 384"
if [ "${1:-}" = short ]; then
    length=384 others=128
fi
run selftest --device cpu --seqlen $length --jsonl st.jsonl
expect_code 0
expect_no_stderr
for fault in "${faults[@]}"; do
    expect_stdout "^$fault +[1-9]"
done
expect_stdout '^PASS: ([0-9]+) of \1 faults and 18 of 18 lies about work caught, ([0-9]+) of \2 right results pass'
tried=$(sed -nE 's/^PASS: ([0-9]+) of .*/\1/p' out)
right=$(sed -nE 's/^PASS: .* ([0-9]+) of [0-9]+ right results.*/\1/p' out)
expect "more than 200 faults in more than 60 problems" test "$tried" -gt 200 -a "$right" -gt 60
# Lies about work, once forward and once backward. The lazy one finds no outputs of an earlier launch: it computes each
# time. All others leave work undone and are found.
for lie in "${lies[@]:1}"; do
    expect_stdout "^$lie +2 +[0-9]+ +[1-9][0-9]* +[a-z_]+ +2/2$"
done
expect_stdout "^${lies[0]} +2 +[1-9][0-9]* +0 +- +2/2$"
expect_stdout '^honest launches +2 +[1-9][0-9]* +0 +- +2/2$'
expect "no line over 110 columns" awk 'length > 110 { exit 1 }' "$tmp/out"
expect "a header" grep -qE '^\{"type": *"header".*"command": *"selftest"' st.jsonl
expect "a row for each result and each lie" test "$(fault_rows st.jsonl | wc -l)" -eq $((tried + right + 2 * 10))
expect "a right result of every problem, honest launches of each direction" \
    test "$(fault_rows st.jsonl | grep -c '"fault": *"none"')" -eq $((right + 2))
for lie in "${lies[@]}"; do
    expect "$lie" test "$(fault_rows st.jsonl | grep -F "\"$lie\"" | grep -c '"caught": *true')" -eq 2
done
expect "lazy: each launch computed" test "$(fault_rows st.jsonl | grep -F "\"${lies[0]}\"" |
    grep -E '"check": *"pass"' | grep -cE '"without_work": *0\b')" -eq 2
expect "the others: some did not, and the check failed" test "$(fault_rows st.jsonl | grep -E '"caught": *true' |
    grep -E '"check": *"fail"' | grep -cE '"without_work": *[1-9]')" -eq 16
expect "none that got through" test "$(fault_rows st.jsonl | grep -c '"caught": *false')" -eq 0
for dtype in fp16 bf16 fp32; do
    for mode in fwd bwd; do
        expect "$dtype $mode" test \
            "$(fault_rows st.jsonl | grep -E "\"mode\": *\"$mode\"" | grep -cE "\"dtype\": *\"$dtype\"")" -ge 20
    done
done
# Where two tiles of keys are missing; the command of a cache and of 8-bit inputs tests them again.
for n in $others; do
    run selftest --device cpu --seqlen $n --jsonl $n.jsonl
    expect_code 0
    for fault in "${faults[@]}"; do
        [ $n = 128 ] && [ "$fault" = "last tile skipped" ] || expect_stdout "^$fault +[1-9]"
    done
    expect_stdout '^PASS: ([0-9]+) of \1 faults'
done
right=2 # of decode: beside a problem one with chunks
for fault in "two pages swapped" "K scale of next block"; do
    words=()
    eval "words=($(grep -F "\"$fault\"" 128.jsonl | sed -n '1s/.*"repro":"\([^"]*\)".*/\1/p'))"
    run "${words[@]:1}"
    expect_code 0
    expect_stdout "^$fault +1 "
    expect_stdout "^PASS: .* $right of $right right results pass"
    right=1
done
what="fault rows are no rows to other commands"
run plot st.jsonl --out plots
expect_code 0
expect_stderr 'no charts'

# The record stream alone on stdout; a longer form; another head count.
run selftest --device cpu --seqlen 256 --heads 3 --dtype fp32 --mode bwd --causal --jsonl -
expect_code 0
expect "records only" sh -c "! grep -vE '^\{\"type\":' '$tmp/out'"
run selftest --device cpu --seqlen 256 --dtype fp32 --mode bwd --causal --verbose
expect_code 0
expect_stdout '^  dK off by 1 % in dk:.* gain\*'
expect_stdout '^  one element past the end in dv: guard\*'

# The self-test must be able to fail. With inputs that are all zero even the faulty results are right, and are not
# caught.
run selftest --device cpu --seqlen 256 --dtype fp16 --mode fwd --causal --dist zeros --jsonl through.jsonl
expect_code 7
expect_stdout '^NOT CAUGHT: scale off by 1 %: rule lse at 0 of its bound; again:$'
expect_stdout \
    '^  fabench selftest --device cpu --mode fwd --dtype fp16 --causal=yes --heads 2 --seqlen 256 --d 64 --dist '
expect "no line over 110 columns" awk 'length > 110 { exit 1 }' "$tmp/out"
expect_stdout '^FAILED: [0-9]+ of [0-9]+ faults and 6 of 9 lies about work caught'
expect_stdout '^NOT CAUGHT: cached by input hash: [1-9][0-9]* timed launches, [1-9][0-9]* without work; again:$'
expect "rows that say so" grep -qE '"fault": *"swapped heads".*"caught": *false' through.jsonl
# A kernel whose own result is wrong: faults are not tested, because catching them would prove nothing.
run selftest --device cpu --seqlen 256 --dtype fp32 --mode fwd --causal --impl-lib "$plugins/libwrong_cpu.so" \
    --impl wrong_scale
expect_code 7
expect_stdout 'the right result FAILS its check:$'
expect_stdout '^  (o|lse) b=0 '
expect_stdout '^FAILED: 0 of 0 faults and 0 of 0 lies'
run selftest --device cpu --seqlen 256 --dtype fp32 --mode fwd --causal --impl-lib "$plugins/libwrong_cpu.so" \
    --impl right_cpu
expect_code 0
# Two libraries with long paths: their names are whole in the command that a row gives, and the shell reads it.
long="$tmp/$(printf 'p%.0s' {1..70})'s"
mkdir "$long"
cp "$plugins/libwrong_cpu.so" "$plugins/../fake/libpaced_0.so" "$long"
run selftest --device cpu --seqlen 256 --dtype fp32 --mode fwd --causal --impl-lib "$long/libwrong_cpu.so" \
    --impl-lib "$long/libpaced_0.so" --impl right_cpu --jsonl long.jsonl
expect_code 0
words=()
eval "words=($(sed -n '2s/.*"repro":"\([^"]*\)".*/\1/p' long.jsonl | sed 's/\\\\/\\/g'))"
expect "both paths" grep -qF -- "--impl-lib $long/libwrong_cpu.so --impl-lib $long/libpaced_0.so " <<<"${words[*]}"
run "${words[@]:1}"
expect_code 0
expect_stdout '^fwd causal d=64 n=256 fp32 +right_cpu '

# 8-bit kernels that take scales of whole tiles alone get those, and every fault of scales is tried and caught. One that
# takes none has tested nothing, which is no success.
scales=(selftest --device cpu --seqlen 384 --causal --impl-lib "$plugins/../fake/libpaced_0.so" --impl paced_cpu)
for dtype in e4m3 e5m2; do
    PACED_SCALE_TILE=128 run "${scales[@]}" --dtype $dtype --jsonl scales.jsonl
    expect_code 0
    for fault in "Q scale of next block" "K scale of next block" "K scale forgotten" "V scale forgotten"; do
        expect_stdout "^$fault +1 .* 1/1 "
    done
    expect_stdout '^PASS: ([1-9][0-9]*) of \1 faults'
    expect "blocks of 128" test "$(fault_rows scales.jsonl | grep -c '"scale_block": *128')" -gt 4
    PACED_SCALE_TILE=0 run "${scales[@]}" --dtype $dtype
    expect_code 6
    expect_sentence 'paced_cpu: none of 1 problems was tested: scales of blocks of 64 rows'
    expect_stdout '^INCOMPLETE: 0 of 0 faults'
done

# What cannot be run.
run selftest --device cpu --seqlen 256 --d 256 --dtype fp32 --impl-lib "$plugins/libwrong_cpu.so" --impl right_cpu
expect_code 6
expect_stdout 'not run: takes head dims up to 128'
expect_stdout '^INCOMPLETE: 0 of 0'
for arguments in "--impl null" "--seqlen 127" "--heads 1" "--batch 2" "--impl nobody" "--jsonl /absent/x.jsonl" \
    "word"; do
    # shellcheck disable=SC2086 # words
    run selftest --device cpu $arguments
    expect_code 2
    expect_sentence "${arguments%% *}"
done
run selftest --device cpu --seqlen 256 --dtype fp32 --mode fwd --jsonl /dev/full
expect_code 7
if ! [ -e /dev/nvidia0 ] && ! [ -e /dev/dxg ]; then
    run selftest --device cuda:0
    expect_code 6
    expect_sentence 'CUDA|device'
fi
finish
