#!/usr/bin/env bash
# Is the kernel as fast as before? On the GPU of this machine, or where FABENCH_DEVICE says.
#
#   ci/gate.sh ab REVISION   this checkout against another revision of it, built and measured side by side, now
#   ci/gate.sh baseline      measures this checkout into ci/baseline.jsonl, to be committed
#   ci/gate.sh gate          this checkout against ci/baseline.jsonl
#
# Exit: fabench's. 0 as fast as before, 1 wrong, 3 slower, 4 too noisy to say, 5 not comparable, 6 no usable GPU.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
export PATH=$fabench_prefix/bin:$PATH
baseline=$(dirname "$0")/baseline.jsonl
device=${FABENCH_DEVICE:-cuda:0}
if [ "$device" = cpu ]; then
    library=$cpu_library impl=$cpu_impl options=("${cpu_options[@]}") verify=("${cpu_verify[@]}")
else
    library=$cuda_library impl=$cuda_impl options=("${cuda_options[@]}") verify=("${cuda_verify[@]}")
fi

usage() { sed -n '4,6s/^# *//p' "$0" >&2; exit 2; }
[ $# -ge 1 ] || usage
mkdir -p "$out"

case $1 in
ab)
    [ $# -eq 2 ] || usage
    git rev-parse --verify --quiet "$2^{commit}" >/dev/null || { echo "gate.sh: $2: no such revision" >&2; exit 2; }
    old=$(mktemp -d)
    trap 'git worktree remove --force "$old"' EXIT
    git worktree add --quiet --detach "$old" "$2"
    build_in "$old"
    build_in .
    fabench verify --device "$device" --impl-lib "$library" --impl "$impl" "${verify[@]}" --out "$out/verify"
    fabench ab "$old/$library" "$library" --impl "$impl" "${options[@]}" --device "$device" --junit "$out/ab.xml" --out "$out/ab"
    ;;
baseline)
    [ $# -eq 1 ] || usage
    build_in .
    fabench --impl-lib "$library" --impl "$impl" "${options[@]}" --preheat-s 3 --device "$device" \
        --out "$out/baseline" --jsonl "$baseline"
    ;;
gate)
    [ $# -eq 1 ] || usage
    build_in .
    fabench gate --baseline "$baseline" --impl-lib "$library" --impl "$impl" "${options[@]}" \
        --device "$device" --junit "$out/gate.xml" --out "$out/gate"
    ;;
*) usage ;;
esac
