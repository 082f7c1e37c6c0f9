#!/usr/bin/env bash
# Is the kernel right? Needs no GPU. Exit 0, or fabench's code (1: a check failed, 7: this build of fabench cannot be
# trusted to judge).
set -euo pipefail
. "$(dirname "$0")/settings.sh"
export PATH=$fabench_prefix/bin:$PATH
mkdir -p "$out"

build_in .
# The judge first: hands it results that are wrong in ten known ways.
fabench selftest --device cpu --seqlen 1k --jsonl "$out/selftest.jsonl"
# Hard shapes; without --preset quick all of them.
fabench verify --preset quick --device cpu --impl-lib "$cpu_library" --impl "$cpu_impl" "${cpu_verify[@]}" --out "$out/verify"
# Once around with times. On a shared machine they say little; the errors do not depend on it.
fabench --device cpu --impl-lib "$cpu_library" --impl "$cpu_impl,fused" "${cpu_options[@]}" --out "$out/sweep" --plot none
