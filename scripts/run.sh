#!/usr/bin/env bash
# Sets up, builds and runs fabench: scripts/run.sh [fabench options]
#
# Without options: the default sweep on the GPU where there is one, else `quick` on the CPU. Records and charts go to
# results/local/<device>-<utc>/ unless --out says otherwise. Set-up happens once; see scripts/setup.sh.
set -euo pipefail
started_in=$PWD
cd "$(dirname "$0")/.."
root=$PWD
# shellcheck source=scripts/build.bash
. scripts/build.bash

scripts/setup.sh
build_preset release fabench
if [ -e .deps/setup.env ]; then
    # shellcheck source=/dev/null
    . .deps/setup.env
fi
export FABENCH_OUT_ROOT=$root/results/local
cd "$started_in" # paths among the options are the caller's
exec "$root/build/release/fabench" "$@"
