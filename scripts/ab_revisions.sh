#!/usr/bin/env bash
# Builds two git revisions and compares them on this device now:
#
#   scripts/ab_revisions.sh OLD [NEW] [options of fabench ab]
#
# OLD and NEW are anything that git names (main, HEAD~3, v0.1, a hash). Without NEW (the next word is an option, or
# there is none) it is the working tree as it is. Revisions are built once, in build/revisions/<commit>/; the exit code
# is that of fabench ab. `--` ends the revisions where an argument could be taken for one.
set -euo pipefail
case ${1:-} in
--help | -h)
    sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p'
    exit 0
    ;;
esac
cd "$(dirname "$0")/.."
root=$PWD
# shellcheck source=scripts/functions.bash
. scripts/functions.bash

usage() { echo "ab_revisions: $*; scripts/ab_revisions.sh OLD [NEW] [options of fabench ab]" >&2; exit 2; }
[ $# -gt 0 ] && [ "${1#-}" = "$1" ] || usage "needs a revision"
old=$1
shift
new=
if [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then
    new=$1
    shift
fi
[ "${1:-}" != -- ] || shift

# build_revision REVISION: prints the path of its program.
build_revision() {
    local commit folder log arguments=(-DFABENCH_TESTS=OFF -DCMAKE_BUILD_TYPE=Release)
    commit=$(git rev-parse --verify --quiet --short=12 "$1^{commit}") || usage "$1: git knows no such revision"
    folder=$root/build/revisions/$commit
    mkdir -p "$folder"
    # Only one build of a revision at a time: another one would remove its worktree.
    if [ ! -x "$folder/fabench" ] && command -v flock >/dev/null; then
        exec 9>"$folder/lock"
        flock -n 9 || { echo "ab_revisions: $1 ($commit) is being built by another run: waiting" >&2; flock 9; }
    fi
    if [ ! -x "$folder/fabench" ]; then
        log=$folder/build.log
        echo "ab_revisions: building $1 ($commit), everything that is said: $log" >&2
        if [ -e .deps/setup.env ]; then
            # shellcheck source=/dev/null
            . .deps/setup.env
            arguments+=("${fabench_cmake_arguments[@]}")
        fi
        git worktree prune
        [ ! -e "$folder/source" ] || git worktree remove --force "$folder/source"
        git worktree add --detach --force "$folder/source" "$commit" >"$log" 2>&1 &&
            cmake -S "$folder/source" -B "$folder/build" "${arguments[@]}" >>"$log" 2>&1 &&
            cmake --build "$folder/build" -j "$(nproc)" --target fabench >>"$log" 2>&1 ||
            { tail -n 30 "$log" >&2; echo "ab_revisions: $1 does not build" >&2; exit 5; }
        # Moved into place only when complete, because the next run only checks that it exists.
        { cp "$folder/build/fabench" "$folder/fabench.new" && mv "$folder/fabench.new" "$folder/fabench"; } ||
            { echo "ab_revisions: $folder/fabench cannot be written" >&2; exit 7; }
        git worktree remove --force "$folder/source"
        rm -rf "$folder/build"
    fi
    exec 9>&-
    echo "$folder/fabench"
}

scripts/setup.sh
build_preset release fabench
if [ -e .deps/setup.env ]; then # where cuDNN lies
    # shellcheck source=/dev/null
    . .deps/setup.env
fi
old_program=$(build_revision "$old")
if [ -n "$new" ]; then
    new_program=$(build_revision "$new")
else
    new_program=$root/build/release/fabench
fi
exec "$root/build/release/fabench" ab "$old_program" "$new_program" "$@"
