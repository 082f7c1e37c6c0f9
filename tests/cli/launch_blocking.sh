#!/usr/bin/env bash
# Where launches wait for the device, as under compute-sanitizer or here with CUDA_LAUNCH_BLOCKING, there is no stream
# gate: rows are timed, with a warning; beside a library none is, in words. Needs a GPU; tests/unit/device has the
# decision.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
"$fabench" info --device cuda:0 >/dev/null 2>&1 || skip "no GPU"

export CUDA_LAUNCH_BLOCKING=1
run_small --device cuda:0 --seqlen 256 --impl fused,naive
expect_code 0
expect_stderr 'warning: launches wait for the device here .*: in all times is what the host does meanwhile'
expect_stdout '^PASS: 2 of 2 rows'
run_small --device cuda:0 --seqlen 256 --impl-lib "$plugins/libwrong_cuda.so" --impl right_cuda
expect_code 6
expect_stderr 'right_cuda: .*launches wait for the device here .*: where libraries take part nothing can be timed'
unset CUDA_LAUNCH_BLOCKING
run_small --device cuda:0 --seqlen 256 --impl fused
expect_code 0
expect "no warning" test "$(grep -c 'launches wait' err)" -eq 0
finish
