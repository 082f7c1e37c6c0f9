#!/usr/bin/env bash
# The tests that take too long for every change (ctest label nightly): the self-test and the wrong kernels at 16K on the
# CPU, and with a GPU the wrong kernels at 16K on it. Builds the whole preset release first, all architectures.
#
#   scripts/nightly.sh          exit 0: all passed
#
# All output is also written to build/release/ctest-nightly.log.
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
# shellcheck source=scripts/build.bash
. scripts/build.bash

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
echo "nightly: $([ $code -eq 0 ] && echo passed || echo FAILED), log: $PWD/$log"
exit $code
