#!/usr/bin/env bash
# A time that the device cannot reach fails by the rule `floor`, on a made-up device whose times are made up, too
# (tests/fake/fake_boards.c): 5.12 ms at 512 rows, which an H100 does at 0.025 MHz, and memory at 0.08 GB/s.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
real=$fabench
fabench=${FABENCH_BOARDS:-$(dirname "$real")/tests/fake/fabench_boards}
export FABENCH_NVML=/absent FABENCH_LOCK_DIR=$tmp
[ -x "$fabench" ] || { echo "no program at $fabench"; exit 1; }

# one BOARD ARGUMENT...: one problem there.
one() {
    export FAKE_BOARDS=$1
    shift
    rm -f run.jsonl
    run_small --device cuda:0 --seqlen 512 --dtype fp32 --jsonl run.jsonl "$@"
}
passes() { one "$@" && expect_code 0 && expect "no rule" test "$(grep -c '"rule": *"floor"' run.jsonl)" -eq 0; }
fails() {
    one "$@"
    expect_code 1
    expect "the rule" grep -qE '"rule": *"floor"' run.jsonl
    expect "no TFLOPS" test "$(grep -cE '"tflops": *[0-9]' run.jsonl)" -eq 0
    expect "the time" grep -qE '"time_ms": *[0-9]' run.jsonl
}

passes ok
passes clock=1980
fails clock=0.01
expect "both figures, and the samples" grep -qE \
    'said to take 5\.[0-9]* ms \(6 samples\); its FLOPs take 12\.[0-9]* ms at the 0\.002[0-9]* TFLOPS' run.jsonl
expect "a command" grep -qE '"repro": *"fabench .*--device cuda:0 ' run.jsonl
passes memory=3350
fails memory=0.05
expect "both figures" grep -qE \
    'reading the inputs that the L2 cannot hold takes 7\.[0-9]* ms at the 0\.05 GB/s' run.jsonl
small_l2=cold fails memory=0.05

# A loaded one: all loaded ones first run in workers of their own.
fails clock=0.01 --impl right_cpu --impl-lib "$plugins/libwrong_cpu.so"
FAKE_BOARDS=clock=0.01 run_small --device cuda:0 --seqlen 512 --dtype fp32 --jsonl both.jsonl \
    --impl right_cpu,fused --impl-lib "$plugins/libwrong_cpu.so"
expect_code 1
expect "both rows, once" test "$(grep -cE '"rule": *"floor"' both.jsonl)" -eq 2

# Not on the CPU.
fabench=$real
run_small --seqlen 512 --dtype fp32
expect_code 0
finish
