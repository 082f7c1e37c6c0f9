#!/usr/bin/env bash
# Where the driver reports a GPU that this build cannot use, the CPU is not the default: exit 6 and the two ways on.
. "$(dirname "$0")/lib.sh"

"$fabench" info --device cuda:0 >/dev/null 2>&1 && skip "there is a GPU that this build can use"
LD_LIBRARY_PATH=$(dirname "${FABENCH_FAKE:-$(dirname "$fabench")/tests/fake/fake_fabench}")/driver
export LD_LIBRARY_PATH OMP_NUM_THREADS=1
[ -e "$LD_LIBRARY_PATH/libcuda.so.1" ] || { echo "no made-up driver in $LD_LIBRARY_PATH"; exit 1; }
tiny=(--d 32 --seqlen 32 --batch 1 --heads 1 --samples 1 --warmup-ms 0 --min-time-ms 0 --max-noise 100% --l2 hot
    --out none --impl fused --mode fwd --causal)

export FAKE_GPUS=2
for command in "${tiny[*]}" "verify --only n-65" "selftest --seqlen 128"; do
    # shellcheck disable=SC2086 # words
    run $command
    expect_code 6
    expect "both ways on" grep -qE 'reports 2 GPUs.*--device cpu.*a build with CUDA' <(tr '\n' ' ' <err)
done
for command in info list; do
    run $command
    expect_code 0
    expect "to say it" grep -q "reports 2 GPUs" err
done
run "${tiny[@]}" --device cpu
expect_code 0
expect "no word of it" test "$(grep -c "reports" err)" -eq 0

export FAKE_GPUS=0 # none, or hidden by CUDA_VISIBLE_DEVICES
run "${tiny[@]}"
expect_code 0
expect "to say that it runs on the CPU" grep -q "running on the CPU" err
FAKE_CU_INIT=100 run "${tiny[@]}"
expect_code 0
finish
