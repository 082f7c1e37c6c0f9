#!/usr/bin/env bash
# What the assembler said about the kernels of both architectures when they were built: no more register spills than the
# budget has for the file (none on sm_90), no products of wgmma that it serialises, no setmaxnreg that it ignores. These
# cost speed without an error, and another compiler may decide otherwise: with the compiler that the kernels were
# measured with they fail the test, with any other they are only printed. And how many kernels each file has: the budget
# is tests/kernel_budget.txt, so that a build does not become longer unseen.
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

# judge OBJECT [SPILLS]: SPILLS, how many bytes its kernels may spill, is 0 where it is not given. Sets `problems` (what
# makes the report incomplete) and `losses`, both empty where all is well.
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
    # For each kernel, "N bytes spill stores" must follow its name as that of a function (it may call another one).
    kernels=$(kernels_of "$1")
    [ -n "$kernels" ] || problems="$1 registers no kernel"
    for kernel in $kernels; do
        awk -v name="$kernel" '
            /Compiling entry function/ { here = index($0, "\047" name "\047") > 0; own = 0 }
            /Function properties for/ { own = here && $NF == name }
            own && /bytes spill stores/ { found = 1 }
            END { exit !found }' "$report" && continue
        [ $((missing++)) -ge 3 ] || problems+="nothing about $kernel"$'\n'
    done
    [ $missing -le 3 ] || problems+="and $((missing - 3)) more"
    # C7508: setmaxnreg ignored; C7510 to C7519: products serialised, or waits and fences put in.
    losses=$(grep -E 'C75[0-9][0-9]' "$report")
    # In bytes, of all kernels together; what is read again without a store counts, too.
    spilled=$(awk '/bytes spill stores/ { stores += $5; if ($5 == 0) stores += $9 } END { print stores + 0 }' "$report")
    [ "$spilled" -le "${2:-0}" ] || losses+="spills of $spilled bytes, the budget is ${2:-0}"
}

# ---- the judge itself: a report that is changed on purpose must be seen ----
list=$(dirname "$fabench")/compiler_reports.txt
[ -e "$list" ] || skip_rest "no $list: built without CUDA or without tests"
command -v readelf >/dev/null || skip_rest "no readelf (binutils)"
{ read -r version && mapfile -t objects; } <"$list"
objects=("${objects[@]//\/.\//\/}") # Ninja's paths have /./ in them
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
budget=$root/tests/kernel_budget.txt
# budget_of OBJECT COLUMN: what the line of its source has in that column.
budget_of() {
    local source=${1%.o}
    awk -v source="${source#*.dir/}" -v column="$2" '$1 == source { print $column }' "$budget"
}
# within_budget OBJECT: its source has a line in the budget, and the object no more kernels than that says.
within_budget() {
    local source=${1#*.dir/} count most
    most=$(budget_of "$1" 2)
    count=$(kernels_of "$1" | wc -l)
    [ -n "$most" ] || { echo "$source has $count kernels and no line in tests/kernel_budget.txt" && return 1; }
    [ "$count" -le "$most" ] ||
        { echo "$source has $count kernels, its line in tests/kernel_budget.txt says $most" && return 1; }
}
for object in "${objects[@]}"; do
    what=${object#*.dir/}
    judge "$object" "$(budget_of "$object" 3)"
    case $object in
    */kernels_sm*) expect "a place in the budget" within_budget "$object" ;;
    esac
    expect "a whole report: $problems" test -z "$problems"
    if [[ $version == "$measured_with"* ]]; then
        expect "no losses: $losses" test -z "$losses"
    elif [ -n "$losses" ]; then
        printf '%s, compiler %s, not the measured one (%s):\n%s\n' "$what" "$version" "$measured_with" "$losses"
    fi
done

finish
