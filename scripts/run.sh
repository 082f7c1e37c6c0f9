#!/usr/bin/env bash
# Sets up, builds and runs fabench: scripts/run.sh [fabench options]
#
# Without options: the default sweep on the GPU where there is one, else `quick` on the CPU. Records and charts go to
# results/local/<device>-<utc>/ unless --out says otherwise. Set-up happens once; see scripts/setup.sh.
# FABENCH_CUDA=ON builds with CUDA where there is a toolkit and no GPU driver, too; FABENCH_CUDA=OFF never.
# `scripts/run.sh help [COMMAND]` lists the options of fabench. This page builds and runs nothing.
set -euo pipefail
case ${1:-} in
--help | -h)
    sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p'
    exit 0
    ;;
esac
started_in=$PWD
called_as=$0
cd "$(dirname "$0")/.."
root=$PWD
# shellcheck source=scripts/functions.bash
. scripts/functions.bash

is_new=1
[ ! -x build/release/fabench ] || is_new=0
scripts/setup.sh
build_preset release fabench fabench_pages # pages: for cmake --install
if [ $is_new -eq 1 ]; then
    echo "run: built $root/build/release/fabench; to type fabench in this shell:" \
        "export PATH=$(printf %q "$root/build/release"):\$PATH" >&2
fi
if [ -e .deps/setup.env ]; then
    # shellcheck source=/dev/null
    . .deps/setup.env
fi
export FABENCH_OUT_ROOT=$root/results/local
export FABENCH_CALLED_AS=$called_as # in the hints at the end of a run: they work as they stand
cd "$started_in" # paths among the options are the caller's
exec "$root/build/release/fabench" "$@"
