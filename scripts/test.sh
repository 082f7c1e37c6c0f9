#!/usr/bin/env bash
# Sets up, builds and passes every test that this machine can run: scripts/test.sh
#
# Release: unit tests, the command line end to end, GPU tests where there is a GPU. Then the same under AddressSanitizer
# and UndefinedBehaviorSanitizer on the CPU, where the command-line tests leave out their long cases.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/build.bash
. scripts/build.bash

failed=0
summary=()

# suite NAME FOLDER CTEST-ARGUMENT...: runs one ctest and keeps its closing lines.
suite() {
    local name=$1 folder=$2 log
    shift 2
    log=$folder/ctest-$name.log
    echo "== $name ($folder)"
    if ! ctest --test-dir "$folder" --output-on-failure --no-tests=error "$@" 2>&1 | tee "$log"; then
        failed=1
    fi
    summary+=("$name: $(grep -E 'tests passed|tests failed|No tests' "$log" | tail -1)")
}

has_gpu() { [ -e /dev/nvidia0 ] || [ -e /dev/dxg ] || { command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; }; }

scripts/setup.sh
if grep -q FABENCH_TESTS=OFF .deps/setup.env; then
    echo "test: cmocka is missing and could not be installed; see .deps/setup.log" >&2
    exit 1
fi
build_preset release
suite unit build/release -L unit -j "$(nproc)"
suite cli build/release -L cli -j "$(nproc)"
if has_gpu; then
    suite gpu build/release -L gpu
fi

build_preset asan
export ASAN_OPTIONS=detect_leaks=1:${ASAN_OPTIONS:-}
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:${UBSAN_OPTIONS:-}
suite unit-asan build/asan -L unit -j "$(nproc)"
suite cli-asan build/asan -L cli -j "$(nproc)"

echo
printf '%s\n' "${summary[@]}"
has_gpu || echo "gpu: no GPU here, not run"
if [ $failed -ne 0 ]; then
    echo "FAILED"
    exit 1
fi
echo "all tests passed"
