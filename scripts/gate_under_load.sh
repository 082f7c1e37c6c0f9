#!/usr/bin/env bash
# How `gate` and `ab` judge on the CPU of a machine that others use too: scripts/gate_under_load.sh [REPEATS [LOAD ...]]
#
# Measures five records of the baseline without load, with a plugin of tests/fake that is as fast as fused_cpu. Then, at
# each LOAD (0 4 10: so many endless loops), REPEATS (10) gates of the same plugin; and at load 0 those of a plugin that
# is 20 % and one that is 8 % slower. Prints a line for each gate, and what is to hold:
#   the same plugin: never REGRESS; at load 0 at least 8 of 10 pass
#   20 % slower: found in at least 9 of 10; 8 % slower: never passes
# Needs a quiet machine and takes one to three hours: run it where nothing else does. Exit 1 where a bar is missed.
# FABENCH, PACED: the program and the folder with libpaced_*.so; default build/release.
set -euo pipefail
case ${1:-} in
--help | -h)
    sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p'
    exit 0
    ;;
esac
cd "$(dirname "$0")/.."
repeats=${1:-10}
shift || true
loads=("${@:-0}")
[ $# -gt 0 ] || loads=(0 4 10)
fabench=${FABENCH:-build/release/fabench}
paced=${PACED:-$(dirname "$fabench")/tests/fake}
work=$(mktemp -d)
hogs=()
calm() {
    [ ${#hogs[@]} -eq 0 ] || kill "${hogs[@]}" 2>/dev/null || true
    wait "${hogs[@]}" 2>/dev/null || true
    hogs=()
}
trap 'calm; rm -rf "$work"' EXIT
busy() {
    for _ in $(seq "$1"); do
        (while :; do :; done) &
        hogs+=($!)
    done
}
# shellcheck disable=SC2054 # a list of names
problem=(--device cpu --seqlen 512 --d 64 --batch 1 --heads 2 --mode fwd --impl naive,paced_cpu)
export OMP_WAIT_POLICY=passive # threads of a plugin that wait do not spin into the next launch
echo "five records of the baseline"
given=()
for n in 1 2 3 4 5; do
    "$fabench" "${problem[@]}" --impl-lib "$paced/libpaced_0.so" --preheat-s 3 --out none --jsonl "$work/$n.jsonl" \
        --quiet || [ $? -eq 4 ]
    given+=(--baseline "$work/$n.jsonl")
done
declare -A seen=()
gates() { # gates NAME LIBRARY LOAD
    local code
    for _ in $(seq "$repeats"); do
        busy "$3"
        code=0
        "$fabench" gate "${given[@]}" "${problem[@]}" --impl-lib "$paced/$2" >"$work/out" 2>&1 || code=$?
        calm
        seen[$1.$code]=$((${seen[$1.$code]:-0} + 1))
        echo "$1, load $3: exit $code, $(grep -m 1 -E '^[A-Z ]+: ' "$work/out" || tail -n 1 "$work/out")"
    done
}
for load in "${loads[@]}"; do
    gates "same$load" libpaced_0.so "$load"
done
gates slower20 libpaced_20.so 0
gates slower8 libpaced_8.so 0
missed=0
holds() { # holds SENTENCE CONDITION...
    local sentence=$1
    shift
    if "$@"; then echo "holds: $sentence"; else echo "MISSED: $sentence"; missed=1; fi
}
for load in "${loads[@]}"; do
    holds "the same plugin at load $load is never slower" [ "${seen[same$load.3]:-0}" -eq 0 ]
done
holds "at load 0 eight of ten pass" [ $((10 * ${seen[same0.0]:-0})) -ge $((8 * repeats)) ]
holds "20 % slower is found in nine of ten" [ $((10 * ${seen[slower20.3]:-0})) -ge $((9 * repeats)) ]
holds "8 % slower never passes" [ "${seen[slower8.0]:-0}" -eq 0 ]
exit $missed
