#!/usr/bin/env bash
# How often `gate` on the CPU raises a false alarm, passes and finds a slower plugin, also where others use the machine.
#
#   scripts/gate_under_load.sh [REPEATS [LOAD ...]]      10 gates at each of the loads 0 4 10
#   CPUS="2,3 4,5 6,7" scripts/gate_under_load.sh ...    the parts side by side, each on CPUs of its own
#   PARTS="same10 slower8" scripts/gate_under_load.sh    these parts alone
#
# Parts: sameLOAD gates an unchanged plugin of tests/fake (as fast as fused_cpu) beside so many endless loops, slower20
# and slower8 one that is so many per cent slower, at load 0. Each measures five records of the baseline first, without
# load. Prints a line for each gate, and what is to hold:
#   the same plugin: never REGRESS; at load 0 at least 8 of 10 pass
#   20 % slower: found in at least 9 of 10; 8 % slower: never passes
# Needs a quiet machine with two CPUs, or two for each part in CPUS; loads run on the CPUs of their part. A gate takes
# 10 s where one process decides, 50 s where it takes five: an hour in all, 10 minutes with five pairs in CPUS. Exit 1
# where a bar is missed, 2 where a part has no result.
# FABENCH, PACED: the program and the folder with libpaced_*.so; default build/release. OPTIONS: more options of each
# run, as --preheat-s=1 for shorter ones.
set -euo pipefail
case ${1:-} in
--help | -h)
    sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p'
    exit 0
    ;;
esac
script=$(realpath "$0")
cd "$(dirname "$0")/.."
repeats=${1:-10}
shift || true
loads=("${@:-0}")
[ $# -gt 0 ] || loads=(0 4 10)
parts=${PARTS:-$(printf 'same%s ' "${loads[@]}")slower20 slower8}
fabench=${FABENCH:-build/release/fabench}
paced=${PACED:-$(dirname "$fabench")/tests/fake}
work=$(mktemp -d)
children=()
loops=()
# A child that a signal ends before it has forgotten these traps runs them, too: it leaves all alone.
calm() {
    [ "$BASHPID" = "$own" ] || return 0
    [ ${#loops[@]} -eq 0 ] || kill -KILL "${loops[@]}" 2>/dev/null || true
    [ ${#children[@]} -eq 0 ] || kill "${children[@]}" 2>/dev/null || true
    wait "${children[@]}" 2>/dev/null || true
    children=()
    loops=()
}
own=$$
trap 'calm; [ "$BASHPID" != $$ ] || rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
await() { # await COMMAND...: so that a signal ends it at once
    local code=0
    "$@" &
    children+=($!)
    wait $! || code=$?
    unset 'children[-1]'
    return $code
}

# ---- all parts, on pairs of CPUs ----

# One pair: takes parts until none is left.
serve() { # serve CPUS
    local part
    children=()
    own=$BASHPID
    trap calm EXIT
    trap 'exit 130' INT TERM
    for part in $parts; do
        mkdir "$work/taken.$part" 2>/dev/null || continue
        PARTS=$part CPUS='' await taskset -c "$1" "$script" "$repeats" "${loads[@]}" >"$work/$part.log" 2>&1 || true
    done
}
if [ -n "${CPUS:-}" ]; then
    for pair in $CPUS; do
        serve "$pair" &
        children+=($!)
    done
    wait "${children[@]}"
    children=()
    for part in $parts; do
        cat "$work/$part.log"
    done
    grep -q '^MISSED' "$work"/*.log && exit 1
    for part in $parts; do
        grep -q '^holds' "$work/$part.log" || exit 2
    done
    exit 0
fi

# ---- the parts of this process ----

# shellcheck disable=SC2054,SC2206 # a list of names; OPTIONS are words
problem=(--device cpu --seqlen 512 --d 64 --batch 4 --heads 2 --mode fwd --impl naive,paced_cpu --l2 hot --samples 30
    --min-time-ms 250 ${OPTIONS:-})
export FABENCH_LOCK_DIR=$work # parts side by side, each on CPUs of its own, do not wait for each other
export OMP_WAIT_POLICY=passive # threads of a plugin that wait do not spin into the next launch
[[ ${OPTIONS:-} == *--preheat-s* ]] || problem+=(--preheat-s 3)
given=()
for n in 1 2 3 4 5; do
    await "$fabench" "${problem[@]}" --impl-lib "$paced/libpaced_0.so" --out none --jsonl "$work/$n.jsonl" --quiet \
        2>"$work/err" || [ $? -eq 4 ] || { cat "$work/err"; exit 2; }
    given+=(--baseline "$work/$n.jsonl")
done
declare -A seen=()
gates() { # gates PART LIBRARY LOAD
    local code start
    for _ in $(seq "$repeats"); do
        for _ in $(seq "$3"); do
            (while :; do :; done) &
            loops+=($!)
            disown $!
        done
        code=0
        start=$SECONDS
        await "$fabench" gate "${given[@]}" "${problem[@]}" --impl-lib "$paced/$2" >"$work/out" 2>&1 || code=$?
        calm
        seen[$code]=$((${seen[$code]:-0} + 1))
        echo "$1: exit $code, $((SECONDS - start)) s, $(grep -m 1 -E '^[A-Z ]+: ' "$work/out" || tail -n 1 "$work/out")"
    done
}
missed=0
holds() { # holds SENTENCE CONDITION...
    local sentence=$1
    shift
    if "$@"; then echo "holds: $sentence"; else echo "MISSED: $sentence"; missed=1; fi
}
for part in $parts; do
    seen=()
    case $part in
    same*)
        load=${part#same}
        gates "$part" libpaced_0.so "$load"
        holds "the same plugin at load $load is never slower" [ "${seen[3]:-0}" -eq 0 ]
        [ "$load" -gt 0 ] || holds "at load 0 eight of ten pass" [ $((10 * ${seen[0]:-0})) -ge $((8 * repeats)) ]
        ;;
    slower20)
        gates slower20 libpaced_20.so 0
        holds "20 % slower is found in nine of ten" [ $((10 * ${seen[3]:-0})) -ge $((9 * repeats)) ]
        ;;
    slower8)
        gates slower8 libpaced_8.so 0
        holds "8 % slower never passes" [ "${seen[0]:-0}" -eq 0 ]
        ;;
    *)
        echo "gate_under_load: $part: no such part" >&2
        exit 2
        ;;
    esac
done
exit $missed
