#!/usr/bin/env bash
# Is the kernel right? Needs no GPU. Exit 0, or fabench's code (1: a check failed, 7: this build of fabench cannot be
# trusted to judge), or 5: the kernel does not build.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
export PATH=$fabench_prefix/bin:$PATH
mkdir -p "$out"

# must_build DIR: build_in, or exit code 5: a build tool's own would read as one of fabench's, 1 as a wrong result. In a
# shell of its own and behind no `||`, where `set -e` would not hold for the lines of build_in.
must_build() {
    local code
    set +e
    (set -e; build_in "$1")
    code=$?
    set -e
    [ "$code" -eq 0 ] || { echo "${0##*/}: $1 does not build (code $code)" >&2; exit 5; }
}

must_build .
# The judge first: hands it results that are wrong in ten known ways.
fabench selftest --device cpu --seqlen 1k --jsonl "$out/selftest.jsonl"
# Hard shapes; without --preset quick all of them.
fabench verify --preset quick --device cpu --impl-lib "$cpu_library" --impl "$cpu_impl" "${cpu_verify[@]}" --out "$out/verify"
# Once around with times. On a shared machine they say little; the errors do not depend on it.
fabench --device cpu --impl-lib "$cpu_library" --impl "$cpu_impl,fused" "${cpu_options[@]}" --out "$out/sweep" --plot none
