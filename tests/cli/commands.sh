#!/usr/bin/env bash
# list, info, verify, plot and --dry-run on a machine without a GPU, and what happens when a GPU is asked for there.
. "$(dirname "$0")/lib.sh"

run list --device cpu
expect_code 0
for implementation in naive fused; do
    expect_stdout "(^| )$implementation"
done
expect_no_stderr
run info --device cpu
expect_code 0
expect_stdout '[Cc][Pp][Uu]'

run_small --dry-run --seqlen 64,128 --mode fwd,bwd --impl naive,fused --jsonl planned.jsonl
expect_code 0
expect_stdout '[0-9]'
expect "no record of a run that was not" sh -c "test ! -s planned.jsonl || ! grep -q '\"row\"' planned.jsonl"
# A plan is made even for problems that are too large for any memory.
run --device cpu --dry-run --seqlen 1m --batch 64 --heads 64 --d 128 --impl naive
expect "a plan or a sentence, not exit $code" test "$code" -eq 0 -o "$code" -eq 2
run verify --device cpu --dry-run --preset quick
expect_code 0
expect_stdout 'problems x [0-9]+ implementations, untimed'

run_small --profile --impl fused
expect_code 0

# Variants of one implementation are separate members of the rounds, with different names in every output.
run list --device cpu
variant=$(awk '/^fused_cpu /{ours = 1} ours && $1 == "variant" {last = $2} END {print last}' out)
run_small --impl "fused_cpu:$variant,fused_cpu" --csv -
expect_code 0
expect "a row named fused_cpu:$variant" test "$(csv_cell out 1 impl)" = "fused_cpu:$variant"
expect "that variant, not '$(csv_cell out 1 variant)'" test "$(csv_cell out 1 variant)" = "$variant"
expect "a command that makes it again" grep -qF -- "--impl fused_cpu:$variant " <<<"$(csv_cell out 1 repro)"
expect "another row named fused_cpu" test "$(csv_cell out 2 impl)" = fused_cpu
run_small --impl "fused_cpu:$variant,fused_cpu" --dump dumped
expect_code 0
expect "a folder of each" test "$(find dumped -name o.npy | wc -l)" -eq 2
run_small --impl fused_cpu:"${variant}x"
expect_code 2
expect_sentence "unknown variant, did you mean fused_cpu:$variant"
run_small --impl fused:"$variant"
expect_code 2
expect_sentence 'what follows the colon belongs to a kernel'
run_small --impl "naive:$variant"
expect_code 2
expect_sentence 'naive has no variants'
run selftest --device cpu --seqlen 256 --impl "fused_cpu:$variant"
expect_code 2
expect_sentence 'not their variants'

# fp16 on the CPU: a named implementation that runs on no problem gives exit 6.
run --device cpu --seqlen 64 --d 64 --dtype fp16 --impl fused --out none --plot none
expect_code 6
expect "a reason" grep -qiE 'fp32|fp16' out err

# Out of memory: a row that says how much it would need.
run --device cpu --seqlen 256k --d 64 --batch 1 --heads 1 --causal --mode fwd --impl naive --check off --out none \
    --csv -
expect_code 6
expect "status oom, not '$(csv_cell out 1 status)'" test "$(csv_cell out 1 status)" = oom
expect "the bytes in the reason, not '$(csv_cell out 1 reason)'" grep -qE '[0-9].*(B|byte)' \
    <<<"$(csv_cell out 1 reason)"

run verify --device cpu --preset quick
expect_code 0
expect_stdout 'pass'
run verify --device cpu --preset quick --mode bwd --causal --d 64 --impl fused --jsonl v.jsonl
expect_code 0
expect "rows without a time" sh -c "! grep -q '\"time_ms\"' v.jsonl"
expect "all of them pass" sh -c "! grep -E '\"type\": *\"row\"' v.jsonl | grep -vqE '\"check\": *\"pass\"'"

if [ -e /dev/nvidia0 ] || [ -e /dev/dxg ]; then
    echo "a GPU is here: its absence is not tried"
else
    for device in cuda:0 cuda:7; do
        run --device $device --seqlen 64 --out none --plot none
        expect_code 6
        expect_sentence 'device|CUDA|driver'
        expect_no_stdout
    done
    run verify --device cuda:0
    expect_code 6
    run info --device cuda:0
    expect_code 6
    # Without an option it falls back to the CPU and says so in one line.
    run --preset quick --dry-run
    expect_code 0
    expect "one line about the CPU" test "$(grep -ciE 'cpu' err)" -eq 1
    for preset in ci acceptance; do # these never fall back
        run --preset $preset --samples 1 --out none
        expect_code 6
        expect_sentence "preset $preset needs a GPU"
    done
    # Their plan needs none.
    run --preset ci --dry-run
    expect_code 0
    expect_stderr 'the plan of a GPU; no implementation was asked'
    expect "12 problems" test "$(grep -cE '^(fwd|bwd) .* bf16 +batch ' out)" -eq 12
    expect_stdout '^12 problems x 3 implementations, about [0-9]+ s '
    run --preset acceptance --dry-run --impl fused --mode fwd
    expect_code 0
    expect_stdout '^8 problems x 1 implementation, about [0-9]+ s '
    run --preset ci --dry-run --device cuda:0
    expect_code 6
fi
finish
