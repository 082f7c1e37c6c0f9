#!/usr/bin/env bash
# scripts/compare_sass.py: which differences count as a change of the machine code. The listings here are made up; a
# stand-in for cuobjdump prints them.
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

# Where a parameter lies counts, unless it is said that it may move; what is done with it always counts.
parameter_moves() {
    sed 's/c\[0x0\]\[0x28\]/c[0x0][0x40]/; s/0x00000a00ff017b82/0x00001000ff017b82/' old-sass >new-sass
}
parameter_moves
cp old-res-usage new-res-usage
compare old new
expect_code 1
compare old new --parameters-may-move
expect_code 0
expect_stdout '^2 kernels compared, 0 differ$'
parameter_moves
sed -i 's/LDC R1, c/LDC R2, c/' new-sass
compare old new --parameters-may-move
expect_code 1

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

finish
