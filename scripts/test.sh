#!/usr/bin/env bash
# Sets up, builds and runs every test that this machine can run: scripts/test.sh
#
# 1. The unit tests and the end-to-end tests of the command line. On a machine with a GPU they test the preset release,
#    which scripts/run.sh also builds. Without a GPU they test the preset one-arch: its device code is for sm_80 and
#    sm_90a only, which compiles faster; no device code can run there.
# 2. On a machine with a GPU, the GPU tests.
# 3. The tests of step 1 again, on the CPU under AddressSanitizer and UndefinedBehaviorSanitizer.
# 4. scripts/format.sh --check.
#
# CUDA code is built wherever there is a toolkit, and warnings are errors. FABENCH_CUDA and FABENCH_WERROR, where set,
# decide this instead (scripts/functions.bash).
# On the CPU the self-test and the wrong kernels at 16K take too long for this: scripts/nightly.sh runs them.
set -euo pipefail
case ${1:-} in
--help | -h)
    sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p'
    exit 0
    ;;
?*)
    echo "test: $1: takes no arguments but --help" >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")/.."
# shellcheck source=scripts/functions.bash
. scripts/functions.bash

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

has_gpu() {
    [ -e /dev/nvidia0 ] || [ -e /dev/dxg ] || { command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; }
}

export FABENCH_CUDA=${FABENCH_CUDA:-TOOLKIT} FABENCH_WERROR=${FABENCH_WERROR:-ON}
scripts/setup.sh
if grep -q FABENCH_TESTS=OFF .deps/setup.env; then
    echo "test: cmocka is missing and could not be installed; see .deps/setup.log" >&2
    exit 1
fi
preset=one-arch
! has_gpu || preset=release
build_preset $preset
suite unit-and-cli build/$preset -L '^(unit|cli)$' -j "$(nproc)"
if has_gpu; then
    suite gpu build/$preset -L gpu
fi

build_preset asan
export ASAN_OPTIONS=detect_leaks=1:${ASAN_OPTIONS:-}
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:${UBSAN_OPTIONS:-}
suite unit-and-cli-asan build/asan -L '^(unit|cli)$' -j "$(nproc)"

# The layout of the code; 77: no clang-format of the right version here.
code=0
scripts/format.sh --check || code=$?
case $code in
0) summary+=("format: as .clang-format says") ;;
77) summary+=("format: not checked, no clang-format 14 here") ;;
*)
    summary+=("format: files differ, see above")
    failed=1
    ;;
esac

echo
printf '%s\n' "${summary[@]}"
has_gpu || echo "gpu: no GPU here, not run"
if [ $failed -ne 0 ]; then
    echo "FAILED"
    exit 1
fi
echo "all tests passed"
