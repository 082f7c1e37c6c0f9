#!/usr/bin/env bash
# Fetches FlashAttention-3's library and compiles fa3.so, the plugin that calls it:
#
#   ./build.sh [--wheels DIR] [--include DIR] [OUT]
#
# OUT (build/ in this folder) gets fa3.so and, below it, what it loads: the library of one wheel and, of another, the
# CUDA runtime that this library needs. Both wheels are downloaded by pip (78 MB and 2 MB) unless DIR of --wheels holds
# them; their SHA-256 are checked, and nothing else of them is used. --include names the folder of attention.h: in a
# checkout of fabench its kernels/, elsewhere include/fabench of the installed program. Needs x86-64 Linux, a C
# compiler (CC), python3 with pip; no GPU, no CUDA toolkit.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

library_wheel=dew_flash_attn_cu13-0.3.6-py3-none-manylinux_2_28_x86_64.whl
library_sha256=6a2a593f1bb8e302f399eb96f036d88ae41993f03afc13e40855482fad022706
library_file=dew_flash_attn/libdew_flash_attn3.so
runtime_wheel=nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
runtime_sha256=7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
runtime_file=nvidia/cu13/lib/libcudart.so.13 # where the library looks for it, beside its own folder

usage() { sed -n '2,/^set/p' "${BASH_SOURCE[0]}" | sed -n 's/^# \{0,1\}//p'; }
refuse() { echo "flash_attention_3: $*" >&2; exit 1; }

wheels='' include='' out=
while [ $# -gt 0 ]; do
    case $1 in
    --help | -h) usage; exit 0 ;;
    --wheels | --include)
        [ $# -ge 2 ] || { echo "flash_attention_3: $1 needs a folder" >&2; exit 2; }
        if [ "$1" = --wheels ]; then wheels=$2; else include=$2; fi
        shift 2
        ;;
    -* | '') echo "flash_attention_3: $1: unknown option (--help)" >&2; exit 2 ;;
    *)
        [ -z "$out" ] || { echo "flash_attention_3: one folder only (--help)" >&2; exit 2; }
        out=$1
        shift
        ;;
    esac
done
out=${out:-$here/build}
wheels=${wheels:-$out/wheels}
include=${include:-$here/../../../kernels}

[ "$(uname -sm)" = "Linux x86_64" ] || refuse "the library is made for x86-64 Linux, this is $(uname -sm)"
[ -e "$include/attention.h" ] || refuse "no attention.h in $include: name its folder with --include"
for program in python3 sha256sum "${CC:-cc}"; do
    command -v "$program" >/dev/null || refuse "needs $program, which is not installed"
done
mkdir -p "$out" "$wheels" || refuse "cannot write to $out"

# fetch FILE SHA256: the wheel, downloaded if it is not there, and no other version.
fetch() {
    local file=$1 wanted=$2 found package version
    IFS=- read -r package version _ <<<"$file"
    package=${package//_/-}
    if [ ! -e "$wheels/$file" ]; then
        echo "downloading $package==$version"
        python3 -m pip --disable-pip-version-check download --quiet --no-deps --only-binary=:all: \
            --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 --dest "$wheels" "$package==$version" ||
            refuse "cannot download $package==$version; put $file into a folder and name it with --wheels"
        [ -e "$wheels/$file" ] || refuse "pip did not fetch $file"
    fi
    found=$(sha256sum "$wheels/$file" | cut -d' ' -f1)
    [ "$found" = "$wanted" ] ||
        refuse "$wheels/$file is another file than the plugin was made for: SHA-256 $found, not $wanted"
}

# unpack WHEEL FILE: one file of it, to the same path below OUT.
unpack() {
    python3 -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extract(sys.argv[2], sys.argv[3])' \
        "$wheels/$1" "$2" "$out" || refuse "cannot unpack $2 of $wheels/$1"
}

fetch "$library_wheel" "$library_sha256"
fetch "$runtime_wheel" "$runtime_sha256"
unpack "$library_wheel" "$library_file"
unpack "$runtime_wheel" "$runtime_file"
"${CC:-cc}" -std=c11 -O2 -Wall -Wextra -fPIC -shared -fvisibility=hidden -I "$include" -o "$out/fa3.so" \
    "$here/plugin.c" "$here/library.c" -ldl || refuse "fa3.so does not compile"
echo "fabench --impl-lib $out/fa3.so --impl fa3,fused_sm90,cudnn --peer fa3"
