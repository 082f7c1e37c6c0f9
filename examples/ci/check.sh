#!/usr/bin/env bash
# ci/check.sh: checks the kernel's results. Needs no GPU. Exit 0, or fabench's code (1: a check failed, 7: the
# self-test of fabench failed), or 5: the kernel does not build.
set -euo pipefail
case ${1:-} in
--help | -h)
    sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p'
    exit 0
    ;;
esac
. "$(dirname "$0")/settings.sh"
export PATH=$fabench_prefix/bin:$PATH
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

must_build .
# First the judge itself: it must find results that are wrong in ten known ways.
fabench selftest --device cpu --seqlen 1k --jsonl "$out/selftest.jsonl" --junit "$out/selftest.xml"
# Hard shapes; all of them without --preset quick.
fabench verify --preset quick --device cpu --impl-lib "$cpu_library" --impl "$cpu_impl" "${cpu_verify[@]}" \
    --out "$out/verify" --overwrite --junit "$out/verify.xml"
# One sweep with times. On a shared machine the times mean little, but the errors do not depend on it.
fabench --device cpu --impl-lib "$cpu_library" --impl "$cpu_impl,fused" "${cpu_options[@]}" --out "$out/sweep" \
    --overwrite --plot none
