#!/usr/bin/env bash
# Compares the kernel's speed with an earlier one, on the GPU of this machine or on FABENCH_DEVICE.
#
#   ci/gate.sh ab REVISION   this checkout against another revision of it, built and measured side by side, now
#   ci/gate.sh baseline      measures this checkout five times (FABENCH_BASELINES) into ci/baseline-1.jsonl ..., to be
#                            committed: how much they differ is the noise that the gate allows for
#   ci/gate.sh gate          this checkout against these files
# Exit codes are fabench's: 0 as fast as before, 1 wrong, 3 slower, 4 too noisy to say, 5 not comparable, or a checkout
# does not build, 6 no usable GPU.
#
# Two `ab` or `gate` on one GPU wait for each other (fabench's lock); `verify` and `baseline` do not: measure a baseline
# while nothing else runs on the GPU.
set -euo pipefail
case ${1:-} in
--help | -h)
    sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p'
    exit 0
    ;;
esac
. "$(dirname "$0")/settings.sh"
. "$(dirname "$0")/functions.sh"
export PATH=$fabench_prefix/bin:$PATH
baselines=$(dirname "$0")
device=${FABENCH_DEVICE:-cuda:0}
if [ "$device" = cpu ]; then
    library=$cpu_library impl=$cpu_impl options=("${cpu_options[@]}") verify=("${cpu_verify[@]}")
    beside=,naive # on the CPU the control of gate: without it a time says nothing
else
    library=$cuda_library impl=$cuda_impl options=("${cuda_options[@]}") verify=("${cuda_verify[@]}")
    beside=
fi
# The hard shapes that the kernel takes: one that it refuses later fails the check.
accepted=$(dirname "$0")/accepted-gate-${device%%:*}.txt

usage() { sed -n '4,7s/^# *//p' "$0" >&2; exit 2; }
[ $# -ge 1 ] || usage
mkdir -p "$out"

case $1 in
ab)
    [ $# -eq 2 ] || usage
    git rev-parse --verify --quiet "$2^{commit}" >/dev/null || { echo "gate.sh: $2: no such revision" >&2; exit 2; }
    old=$(mktemp -d)
    trap 'git worktree remove --force "$old"' EXIT
    git worktree add --quiet --detach "$old" "$2"
    must_build "$old"
    must_build .
    # What the older revision takes, where no list was committed: the new one must take it, too.
    if [ ! -e "$accepted" ]; then
        accepted=$out/accepted-old.txt
        rm -f "$accepted"
        fabench verify --device "$device" --impl-lib "$old/$library" --impl "$impl" "${verify[@]}" \
            --accepted "$accepted" --out "$out/verify-old" --overwrite --quiet || true
        [ -e "$accepted" ] || [ -z "${CI:-}" ] || {
            echo "gate.sh: $2 does not pass its checks, so that nothing says which rows must run; commit" \
                "${0%/*}/accepted-gate-${device%%:*}.txt" >&2
            exit 5
        }
    fi
    shown fabench verify --device "$device" --impl-lib "$library" --impl "$impl" "${verify[@]}" --accepted "$accepted" \
        --out "$out/verify" --overwrite --junit "$out/verify.xml"
    # Kept, because the worktree goes away, and with it the command that fabench prints to measure a line again.
    mkdir -p "$out/old"
    cp "$old/$library" "$out/old/"
    shown fabench ab "$out/old/${library##*/}" "$library" --impl "$impl" "${options[@]}" --device "$device" \
        --junit "$out/ab.xml" --out "$out/ab"
    ;;
baseline)
    [ $# -eq 1 ] || usage
    must_build .
    rm -f "$baselines"/baseline-*.jsonl
    for n in $(seq "${FABENCH_BASELINES:-5}"); do
        fabench --impl-lib "$library" --impl "$impl$beside" "${options[@]}" --preheat-s 3 --device "$device" \
            --out "$out/baseline" --overwrite --jsonl "$baselines/baseline-$n.jsonl"
    done
    ;;
gate)
    [ $# -eq 1 ] || usage
    must_build .
    given=()
    for file in "$baselines"/baseline*.jsonl; do
        given+=(--baseline "$file")
    done
    shown fabench gate "${given[@]}" --impl-lib "$library" --impl "$impl$beside" "${options[@]}" \
        --device "$device" --junit "$out/gate.xml" --out "$out/gate"
    ;;
*) usage ;;
esac
