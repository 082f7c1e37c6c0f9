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
. "$(dirname "$0")/functions.sh"
export PATH=$fabench_prefix/bin:$PATH
mkdir -p "$out"
# The hard shapes that the kernel takes: one that it refuses later fails the check. Written by the first run.
accepted=$(dirname "$0")/accepted-cpu.txt

[ -e "$accepted" ] || [ -z "${CI:-}" ] || {
    echo "check.sh: $accepted is missing: nothing says which rows the kernel must take. Run check.sh once outside CI," \
        "and commit the file that it writes" >&2
    exit 5
}
must_build .
# First the judge itself: it must find results that are wrong in known ways.
shown fabench selftest --device cpu --seqlen 1k --jsonl "$out/selftest.jsonl" --junit "$out/selftest.xml"
# Hard shapes; all of them without --preset quick.
shown fabench verify --preset quick --device cpu --impl-lib "$cpu_library" --impl "$cpu_impl" "${cpu_verify[@]}" \
    --accepted "$accepted" --out "$out/verify" --overwrite --junit "$out/verify.xml"
# One sweep with times. On a shared machine the times mean little, but the errors do not depend on it.
shown fabench --device cpu --impl-lib "$cpu_library" --impl "$cpu_impl,fused" "${cpu_options[@]}" --out "$out/sweep" \
    --overwrite --plot none
