#!/usr/bin/env bash
# The tests that take too long for every change (ctest label nightly): on the CPU the self-test and the wrong kernels
# at 16K, the plugins that lie with a cold cache, 2,000 problems with logits of all sizes, 500 random ones in other
# batches (verify --invariance), wrong kernels on hard data at 512, docs/ci.md with the settings of examples/ci, the
# sums of large libraries in the package, `ab` and `gate` under all kinds of made-up noise, and more rows, draws and
# runs of four unit tests; with a GPU the wrong kernels at 16K on it. Builds the whole preset release first, all
# architectures. Then, where clang has libFuzzer, each target of tests/fuzz runs for 60 s (preset fuzz, label fuzz).
#
#   scripts/nightly.sh          exit 0: all passed
#
# All output is also written to build/release/ctest-nightly.log and build/fuzz/ctest-fuzz.log. An input that failed
# stays in build/fuzz/tests/fuzz/found/; it is added to tests/fuzz/corpus.txt with its correction.
set -euo pipefail
case ${1:-} in
--help | -h)
    sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p'
    exit 0
    ;;
?*)
    echo "nightly: $1: takes no arguments but --help" >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")/.."
# shellcheck source=scripts/functions.bash
. scripts/functions.bash

export FABENCH_CUDA=${FABENCH_CUDA:-TOOLKIT} # wherever there is a toolkit
log=build/release/ctest-nightly.log
scripts/setup.sh
if grep -q FABENCH_TESTS=OFF .deps/setup.env; then
    echo "nightly: cmocka is missing and could not be installed; see .deps/setup.log" >&2
    exit 1
fi
build_preset release
echo "nightly: log: $PWD/$log"
code=0
ctest --test-dir build/release -L nightly --no-tests=error --output-on-failure -j "$(nproc)" 2>&1 |
    tee "$log" || code=$?

# A program of clang with libFuzzer, compiled and linked: several distributions leave its runtime out of their package.
has_libfuzzer() {
    command -v clang >/dev/null &&
        echo 'int LLVMFuzzerTestOneInput(const unsigned char *data, unsigned long size) { return data && size > 9; }' |
        clang -fsanitize=fuzzer,address -x c - -o /dev/null 2>/dev/null
}
if has_libfuzzer; then
    fuzz_log=build/fuzz/ctest-fuzz.log
    build_preset fuzz fuzz
    ctest --test-dir build/fuzz -L fuzz --no-tests=error --output-on-failure -j "$(nproc)" 2>&1 |
        tee "$fuzz_log" || code=$?
else
    echo "nightly: no clang with libFuzzer here: the targets of tests/fuzz were not run with inputs of their own"
fi
echo "nightly: $([ $code -eq 0 ] && echo passed || echo FAILED), log: $PWD/$log${fuzz_log:+, $PWD/$fuzz_log}"
exit $code
