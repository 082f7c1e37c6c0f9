#!/usr/bin/env bash
# Compares the kernel's speed with an earlier one, on the GPU of this machine or on FABENCH_DEVICE.
#
#   ci/gate.sh ab REVISION   this checkout against another revision of it, built and measured side by side, now
#   ci/gate.sh baseline      measures this checkout into ci/baseline.jsonl, to be committed
#   ci/gate.sh gate          this checkout against ci/baseline.jsonl
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

# must_build DIR: runs build_in; exit code 5 when it fails, because a build tool's own code could be taken for one of
# fabench's (1 = a wrong result). It runs in a subshell and not before `||`, where `set -e` has no effect on the lines
# of build_in.
must_build() {
    local code
    set +e
    (set -e; build_in "$1")
    code=$?
    set -e
    [ "$code" -eq 0 ] || { echo "${0##*/}: $1 does not build (code $code)" >&2; exit 5; }
}

case $1 in
ab)
    [ $# -eq 2 ] || usage
    git rev-parse --verify --quiet "$2^{commit}" >/dev/null || { echo "gate.sh: $2: no such revision" >&2; exit 2; }
    old=$(mktemp -d)
    trap 'git worktree remove --force "$old"' EXIT
    git worktree add --quiet --detach "$old" "$2"
    must_build "$old"
    must_build .
    fabench verify --device "$device" --impl-lib "$library" --impl "$impl" "${verify[@]}" --out "$out/verify" \
        --overwrite --junit "$out/verify.xml"
    # Kept, because the worktree goes away, and with it the command that fabench prints to measure a line again.
    mkdir -p "$out/old"
    cp "$old/$library" "$out/old/"
    fabench ab "$out/old/${library##*/}" "$library" --impl "$impl" "${options[@]}" --device "$device" \
        --junit "$out/ab.xml" --out "$out/ab"
    ;;
baseline)
    [ $# -eq 1 ] || usage
    must_build .
    fabench --impl-lib "$library" --impl "$impl" "${options[@]}" --preheat-s 3 --device "$device" \
        --out "$out/baseline" --overwrite --jsonl "$baseline"
    ;;
gate)
    [ $# -eq 1 ] || usage
    must_build .
    fabench gate --baseline "$baseline" --impl-lib "$library" --impl "$impl" "${options[@]}" \
        --device "$device" --junit "$out/gate.xml" --out "$out/gate"
    ;;
*) usage ;;
esac
