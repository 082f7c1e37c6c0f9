#!/usr/bin/env bash
# What the assembler said about the sm_90a kernels when they were built: no register spills, no products of wgmma that
# it serialises, no setmaxnreg that it ignores. These cost speed without an error, and another compiler may decide
# otherwise: with the compiler that the kernels were measured with they fail the test, with any other they are only
# printed.
#
# The build lists the objects and their compiler's version in <build>/compiler_reports.txt, and keeps the report of each
# in OBJECT.report (scripts/keep_compiler_report.sh). Every kernel that an object registers must be in its report.
. "$(dirname "$0")/lib.sh"
measured_with=13.0

# kernels_of OBJECT: the names under which it registers its kernels: constant texts of the host code, mangled.
kernels_of() {
    local section
    for section in $(readelf -S -W "$1" | grep -o '\.rodata\.str[^ ]*'); do
        readelf -p "$section" "$1"
    done | grep -oE ' _Z[A-Za-z0-9_]+$' | sort -u
}

# judge OBJECT: sets `problems` (what makes the report incomplete) and `losses`, both empty where all is well.
judge() {
    local report=$1.report kernels kernel missing=0
    problems='' losses=''
    if [ ! -s "$report" ]; then
        problems="no $report: delete the object and build again"
        return
    fi
    if [ "$report" -ot "$1" ]; then
        problems="$report is older than the object: delete the object and build again"
        return
    fi
    # For each kernel, "N bytes spill stores" must follow its name.
    kernels=$(kernels_of "$1")
    [ -n "$kernels" ] || problems="$1 registers no kernel"
    for kernel in $kernels; do
        awk -v name="'$kernel'" '
            /Compiling entry function/ { here = $0 ~ /sm_90a/ && index($0, name) > 0 }
            here && /bytes spill stores/ { found = 1 }
            END { exit !found }' "$report" && continue
        [ $((missing++)) -ge 3 ] || problems+="nothing about $kernel"$'\n'
    done
    [ $missing -le 3 ] || problems+="and $((missing - 3)) more"
    # C7508: setmaxnreg ignored; C7510 to C7519: products serialised, or waits and fences put in.
    losses=$(grep -E 'C75[0-9][0-9]' "$report"
        grep -E 'bytes spill stores' "$report" | grep -v ' 0 bytes spill stores, 0 bytes spill loads')
}

# ---- the judge itself: a report that is changed on purpose must be seen ----
list=$(dirname "$fabench")/compiler_reports.txt
[ -e "$list" ] || skip "no $list: built without CUDA or without tests"
command -v readelf >/dev/null || skip "no readelf (binutils)"
{ read -r version && mapfile -t objects; } <"$list"
expect "objects in $list" test "${#objects[@]}" -gt 0
sample=$tmp/sample.o
cp "${objects[0]}" "$sample"
tried() { # tried WHAT SED-SCRIPT VARIABLE: the changed report of the first object must be found out
    what="a report $1"
    sed "$2" "${objects[0]}.report" >"$sample.report"
    judge "$sample"
    expect "it to be seen" test -n "${!3}"
}
tried "that is empty" d problems
what="a report that is older than the object"
cp "${objects[0]}.report" "$sample.report"
touch -d '1 hour ago' "$sample.report"
judge "$sample"
expect "it to be seen" test -n "$problems"
tried "without one kernel's lines" '0,/bytes spill stores/{/bytes spill stores/d}' problems
tried "with a spill" '0,/ 0 bytes spill stores/s/ 0 bytes spill stores/ 8 bytes spill stores/' losses
tried "of products that are serialised" \
    '$a ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized' losses
tried "of a setmaxnreg that is ignored" '$a ptxas info    : (C7508) setmaxnreg ignored' losses

# ---- the kernels ----
for object in "${objects[@]}"; do
    what=${object##*/}
    judge "$object"
    expect "a whole report: $problems" test -z "$problems"
    if [[ $version == "$measured_with"* ]]; then
        expect "no losses: $losses" test -z "$losses"
    elif [ -n "$losses" ]; then
        printf '%s, compiler %s, not the measured one (%s):\n%s\n' "$what" "$version" "$measured_with" "$losses"
    fi
done
finish
