#!/usr/bin/env bash
# scripts/compare_sass.py: which differences count as a change of the machine code. The listings here are made up; a
# stand-in for cuobjdump prints them.
# What the assembler said about the sm_90a kernels when they were built: no register spills, no products of wgmma that
# it serialises, no setmaxnreg that it ignores. These cost speed without an error, and another compiler may decide
# otherwise: with the compiler that the kernels were measured with they fail the test, with any other they are only
# printed.
#
# The build lists the objects and their compiler's version in <build>/compiler_reports.txt, and keeps the report of each
# in OBJECT.report (scripts/keep_compiler_report.sh). Every kernel that an object registers must be in its report.
. "$(dirname "$0")/lib.sh"

command -v python3 >/dev/null || skip "no python3"

cat >cuobjdump <<'SH'
#!/bin/sh
cat "$2$1"
SH
chmod +x cuobjdump
export CUOBJDUMP=$PWD/cuobjdump

# listing FILE: an object file with the functions `scale<float>` and `add`, which the variables below change.
listing() {
    local unit=${file:-fused_sm90_bwd}_cu
    local space=_GLOBAL__N__${hash:-98048670}_${#unit}_${unit}_620df312
    space=_ZN${#space}$space
    local scale="${space}5scaleIfEEvNS_${parameter:-9Arguments}E" add="${space}${added:-3add}EPf"
    touch "$1"
    cat >"$1-sass" <<SASS

Fatbin elf code:
================
arch = ${arch:-sm_90a}
identifier = /somewhere/$1

	code for sm_90a
		Function : $scale
	.headerflags	@"EF_CUDA_SM90"
        /*${at:-0000}*/                   LDC R1, c[0x0][0x28] ;                /* 0x00000a00ff017b82 */
                                                                          /* ${stall:-0x000fe20000000800} */
        /*0010*/                   LDC.64 R2, c[0x4][${symbol:-0x8}] ;             /* ${address:-0x01000200ff027b82} */
                                                                          /* 0x000e620000000a00 */
        /*0020*/                   ${operation:-FMUL R4, R4, R5} ;                    /* 0x0000000504047220 */
                                                                          /* 0x000fca0000400000 */
		..........


		Function : $add
	.headerflags	@"EF_CUDA_SM90"
        /*0000*/              @!P0 FADD R4, R4, R5 ;                      /* 0x0000000504047221 */
                                                                          /* 0x000fca0000000000 */
		..........
SASS
    cat >"$1-res-usage" <<USAGE

Fatbin elf code:
================
arch = ${arch:-sm_90a}

Resource usage:
 Common:
  GLOBAL:0
 Function $scale:
  REG:${registers:-43} STACK:${stack:-0} SHARED:${shared:-17408} LOCAL:0 CONSTANT[0]:1664 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function $add:
  REG:8 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:540 TEXTURE:0 SURFACE:0 SAMPLER:0
USAGE
}
compare() {
    what="compare_sass.py $*"
    code=0
    python3 "$root/scripts/compare_sass.py" "$@" >out 2>err </dev/null || code=$?
}
# changed MESSAGE VARIABLE=VALUE...: a build with these differs, and the message says how.
changed() {
    local message=$1
    shift
    (declare "$@" && listing new)
    compare old new
    expect_code 1
    expect_stdout "$message"
    expect_stdout 'kernels compared, [1-9] differ$'
}

listing old
listing new
compare old new
expect_code 0
expect_stdout '^2 kernels compared, 0 differ$'

# Not a change: another file, another place in it, other symbols' addresses, a new name of a type or a function.
for same in hash=12345678 file=scheduler at=0080 symbol=0x18 address=0x01000600ff027b82 parameter=10Parameters \
    added=4plus; do
    (declare "$same" && listing new)
    compare old new
    expect_code 0
    expect_stdout '^2 kernels compared, 0 differ$'
done

# A change: an instruction, its scheduling, registers, spills, shared memory, another function under the old names.
changed 'scale.*differs: 3 -> 3 instructions, the first that differs is number 2' operation='FMUL R4, R4, R6'
changed 'scale.*instructions, the first that differs is number 0' stall=0x000fc40000000800
changed 'scale.*differs: REG:43 -> REG:44' registers=44
changed 'scale.*differs: STACK:0 -> STACK:16' stack=16
changed 'scale.*differs: SHARED:17408 -> SHARED:17424' shared=17424
changed 'sm_90a .*scale.*missing in the new build' arch=sm_80
changed 'sm_80 .*scale.*only in the new build' arch=sm_80
sed -e 's/5scaleIfEEvNS_9ArgumentsE/@/; s/3addEPf/5scaleIfEEvNS_9ArgumentsE/; s/@/3addEPf/' old-sass >new-sass
sed -e 's/5scaleIfEEvNS_9ArgumentsE/@/; s/3addEPf/5scaleIfEEvNS_9ArgumentsE/; s/@/3addEPf/' old-res-usage >new-res-usage
compare old new
expect_code 1
expect_stdout '2 kernels compared, 2 differ'

# A function left out; folders of object files.
mkdir one two
(cd one && listing bwd.cu.o)
(cd two && listing bwd.cu.o && listing other.cu.o)
compare one two
expect_code 1
expect_stdout '2 kernels compared, 2 differ'
compare two one
expect_code 1
expect_stdout 'missing in the new build'
compare one two --only bwd
expect_code 0

# What cannot be compared.
CUOBJDUMP=/nowhere/cuobjdump compare old new
expect_code 2
expect_stderr 'no cuobjdump'
compare old nowhere
expect_code 2
expect_stderr 'nowhere: no such file or folder'
: >empty
: >empty-sass
: >empty-res-usage
compare empty new
expect_code 2
expect_stderr 'empty: holds no CUDA machine code'
compare old
expect_code 2
compare --help
expect_code 0
expect_stdout 'OLD_BUILD'

# ---- compiler_report ----
next_part
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
    # For each kernel, "N bytes spill stores" must follow its name as that of a function (it may call another one).
    kernels=$(kernels_of "$1")
    [ -n "$kernels" ] || problems="$1 registers no kernel"
    for kernel in $kernels; do
        awk -v name="$kernel" '
            /Compiling entry function/ { here = $0 ~ /sm_90a/ && index($0, "\047" name "\047") > 0; own = 0 }
            /Function properties for/ { own = here && $NF == name }
            own && /bytes spill stores/ { found = 1 }
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
[ -e "$list" ] || skip_rest "no $list: built without CUDA or without tests"
command -v readelf >/dev/null || skip_rest "no readelf (binutils)"
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
