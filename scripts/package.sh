#!/usr/bin/env bash
# Packs fabench so that it runs on a machine that has a driver and nothing else:
#
#   scripts/package.sh [--out DIR] [--stage] [--without-cuda]
#
#   --out DIR        where the archive goes (build/)
#   --stage          leave the folder there instead of an archive
#   --without-cuda   pack a program that was built without CUDA, for CPUs alone; refused otherwise
#
# Sets up and builds the release preset, or takes the build folder that FABENCH_BUILD names. The archive is
# fabench-<version>-<commit>-linux-<machine>.tar.gz: the program, cuBLAS, the CUDA runtime, NVRTC, cuDNN where one is
# found (FABENCH_CUDNN, .deps/cudnn, beside cuBLAS, the loader's path), the licences of all of them, and acceptance.sh.
# Exit: 0, 1 where it cannot be packed, 2 usage.
set -euo pipefail
case ${1:-} in
--help | -h)
    sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p'
    exit 0
    ;;
esac
started_in=$PWD
cd "$(dirname "$0")/.."

refuse() { echo "package: $*" >&2; exit 1; }
say() { echo "package: $*" >&2; }
out=build stage_only=0 without_cuda=0
while [ $# -gt 0 ]; do
    case $1 in
    --out)
        [ $# -ge 2 ] && [ -n "$2" ] || { echo "package: --out needs a folder" >&2; exit 2; }
        out=$2
        [[ $out == /* ]] || out=$started_in/$out
        shift
        ;;
    --stage) stage_only=1 ;;
    --without-cuda) without_cuda=1 ;;
    *) echo "package: $1: no such option; --out DIR, --stage, --without-cuda" >&2; exit 2 ;;
    esac
    shift
done

build=${FABENCH_BUILD:-build/release}
[[ $build == /* || -z "${FABENCH_BUILD:-}" ]] || build=$started_in/$build
if [ -z "${FABENCH_BUILD:-}" ]; then
    # shellcheck source=scripts/functions.bash
    . scripts/functions.bash
    # The machine that the package is made for has a driver.
    [ $without_cuda -eq 1 ] || export FABENCH_CUDA=${FABENCH_CUDA:-TOOLKIT}
    scripts/setup.sh
    build_preset release fabench
fi
[ -x "$build/fabench" ] || refuse "no program at $build/fabench; build it first"
mkdir -p "$out" || refuse "$out: cannot be made"

version=$("$build/fabench" --version | sed -n '1s/^fabench \([^ ]*\) .*/\1/p')
commit=$("$build/fabench" --version | sed -n '1s/.*(\(.*\))$/\1/p')
[ -n "$version" ] && [ -n "$commit" ] || refuse "$build/fabench --version says neither version nor commit"
machine=$(uname -m)
name=fabench-$version-$commit-linux-$machine
case $commit in
unknown | *dirty*) say "warning: made from $commit sources: its records cannot be published" ;;
esac
has_cuda=1
"$build/fabench" --version | grep -q '; no CUDA;' && has_cuda=0
if [ "$has_cuda" -eq 0 ] && [ "$without_cuda" -eq 0 ]; then
    refuse "the program was built without CUDA; --without-cuda packs it for CPUs alone"
fi

stage=$out/$name
rm -rf "$stage"
mkdir -p "$stage/lib" "$stage/LICENSES"
trap 'code=$?; if [ $code -ne 0 ]; then rm -rf "$stage" "$out/$name.tar.gz.new"; fi' EXIT
cmake --install "$build" --component program --prefix "$stage" --strip >/dev/null
[ -x "$stage/bin/fabench" ] || refuse "$build: installing left no bin/fabench"

# --- libraries

# The library folder of the toolkit, where the program looks too.
toolkit_folder=$(sed -n 's/^CUDA_CUDART:[^=]*=\(.*\)\/[^/]*$/\1/p' "$build/CMakeCache.txt" | head -n 1)

# folder_of_cublas: where FABENCH_CUBLAS, a file or a folder around it, says that the library lies; nothing where it is
# not set. The program opens it at run time, so ldd does not tell.
folder_of_cublas() {
    local folder named=${FABENCH_CUBLAS:-}
    if [ -n "$named" ] && [ ! -d "$named" ]; then named=$(dirname "$named"); fi
    for folder in "$named" "$named/lib" "$named/nvidia/cublas/lib" "$named/nvidia/cu$cuda/lib"; do
        if [ -n "$named" ] && [ -e "$folder/libcublas.so.$cuda" ]; then
            echo "$folder"
            return
        fi
    done
}

# folders_of_cudnn: where it may lie, best first; FABENCH_CUDNN is a file or a folder around it, as fabench takes it.
folders_of_cudnn() {
    local named=${FABENCH_CUDNN:-}
    if [ -n "$named" ] && [ ! -d "$named" ]; then named=$(dirname "$named"); fi
    if [ -n "$named" ]; then
        printf '%s\n' "$named" "$named/lib" "$named/nvidia/cudnn/lib"
        return
    fi
    printf '%s\n' .deps/cudnn/lib "$(dirname "$(find_library "libcublas.so.$cuda")")" "$toolkit_folder"
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | sed -n 's/.*libcudnn\.so\.9 .*=> \(\/.*\)\/[^/]*$/\1/p'
}

# find_library NAME: its path, from the folders in which the program looks for cuBLAS; nothing where it is not found.
find_library() {
    local folder
    for folder in "$(folder_of_cublas)" "$toolkit_folder" .deps/cuda/lib; do
        if [ -n "$folder" ] && [ -e "$folder/$1" ]; then
            echo "$folder/$1"
            return
        fi
    done
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | sed -n "s/^[[:space:]]*${1//./\\.} .*=> //p" | head -n 1
}

# take FILE: copies the file, or a link's target, into lib/ under its own name, with the license texts near it.
take() {
    local text
    cp -L "$1" "$stage/lib/$(basename "$1")"
    for text in "$(dirname "$1")"/../dist-info/nvidia_{cublas,cudnn,cuda_nvrtc,cuda_runtime}*/licenses/License.txt \
        "$(dirname "$1")"/../{EULA,LICENSE,License}.txt "$(dirname "$1")"/{LICENSE,License}.txt \
        /usr/share/doc/{libcudnn9,libcublas}*/copyright; do
        [ -e "$text" ] || continue
        case $text in
        */dist-info/*) cp "$text" "$stage/LICENSES/$(basename "${text%/licenses/*}" .dist-info).txt" ;;
        /usr/share/*) cp "$text" "$stage/LICENSES/$(basename "$(dirname "$text")").txt" ;;
        *) cp "$text" "$stage/LICENSES/$(basename "$(cd "$(dirname "$text")" && pwd)")-$(basename "$text")" ;;
        esac
    done
}

driver=
if [ "$has_cuda" -eq 1 ]; then
    cuda=$("$build/fabench" --version | sed -n 's/.*CUDA \([0-9]*\)\..*/\1/p' | head -n 1)
    [ -n "$cuda" ] || refuse "$build/fabench --version does not say for which CUDA it was built"
    for library in "libcublas.so.$cuda" "libcublasLt.so.$cuda" "libcudart.so.$cuda" "libnvrtc.so.$cuda"; do
        found=$(find_library "$library")
        [ -n "$found" ] || refuse "$library is not found; it must be in the package"
        take "$found"
    done
    for found in "$(dirname "$(find_library "libnvrtc.so.$cuda")")"/libnvrtc-builtins.so.*; do
        [ ! -e "$found" ] || take "$found"
    done
    while read -r folder; do
        [ -n "$folder" ] && [ -e "$folder/libcudnn.so.9" ] || continue
        for found in "$folder"/libcudnn*.so.9; do take "$found"; done
        break
    done < <(folders_of_cudnn)
    [ -e "$stage/lib/libcudnn.so.9" ] || say "warning: no cuDNN found: the package measures without that peer"
    driver=" and an NVIDIA driver for CUDA $cuda"
    if ls "$stage"/lib/libcuda.so* "$stage"/lib/libnvidia-* >/dev/null 2>&1; then
        refuse "parts of a driver are among the libraries; they must be the machine's own"
    fi
    # cuDNN needs zlib. Nearly every machine has one, usually newer; ours is used only where there is none.
    if [ -e "$stage/lib/libcudnn.so.9" ]; then
        found=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p | sed -n 's/^[[:space:]]*libz\.so\.1 .*=> //p' | head -n 1)
        [ -n "$found" ] || refuse "libz.so.1 is not found; cuDNN needs it"
        mkdir "$stage/lib/zlib"
        cp -L "$found" "$stage/lib/zlib/libz.so.1"
        [ ! -e /usr/share/doc/zlib1g/copyright ] || cp /usr/share/doc/zlib1g/copyright "$stage/LICENSES/zlib.txt"
    fi
    # Every library that the program and its libraries need must be in the package or belong to the C library.
    missing=$(for file in "$stage/bin/fabench" "$stage"/lib/*.so*; do
        LD_LIBRARY_PATH=$stage/lib:$stage/lib/zlib ldd "$file" 2>/dev/null
    done | sed -n 's/ (0x[0-9a-f]*)$//; s/^[[:space:]]*\([^ ]*\) => \(.*\)/\1 \2/p' | sort -u |
        while read -r library where; do
        case $where in
        "$stage"/* | *libc.so.6 | *libm.so.6 | *libdl.so.2 | *libpthread.so.0 | *librt.so.1) ;;
        *libgcc_s.so.1 | *libstdc++.so.6) ;;
        *) echo "$library" ;;
        esac
    done | sort -u)
    [ -z "$missing" ] || refuse "needed and not packed: ${missing//$'\n'/ }"
fi
# Linked into the program: their notices go with it.
for text in /usr/share/doc/{libjansson-dev,libgomp1}/copyright; do
    [ ! -e "$text" ] || cp -L "$text" "$stage/LICENSES/$(basename "$(dirname "$text")").txt"
done

# --- words

{
    echo "What is in this package that is not fabench, and under whose terms"
    echo
    if [ "$has_cuda" -eq 1 ]; then
        echo "lib/ holds NVIDIA's cuBLAS, CUDA runtime and NVRTC, unchanged." \
            "NVIDIA's license for the CUDA toolkit names"
        echo "them among what may be passed on with an application: https://docs.nvidia.com/cuda/eula/"
        if [ -e "$stage/lib/libcudnn.so.9" ]; then
            echo "It holds zlib (zlib license), and cuDNN, unchanged, under the license of cuDNN:"
            echo "https://docs.nvidia.com/deeplearning/cudnn/latest/reference/eula.html"
            echo "bin/fabench was compiled with the headers of cuDNN's frontend (MIT):"
            echo "https://github.com/NVIDIA/cudnn-frontend"
        fi
        echo "These libraries may be used with this program; who passes the package on is bound by the same terms."
        echo
    fi
    echo "bin/fabench contains Jansson (MIT) and GCC's runtime libraries (GPL 3 with the GCC runtime exception)."
    echo
    echo "Texts in this folder: $(cd "$stage/LICENSES" && printf '%s\n' *.txt | grep -v '^NOTICE.txt$' | paste -sd ' ')"
} >"$stage/LICENSES/NOTICE.txt"
if [ "$has_cuda" -eq 1 ] && [ -z "$(find "$stage/LICENSES" -iname "*cublas*" -o -iname "*eula*")" ]; then
    say "warning: no license text of cuBLAS was found; LICENSES/NOTICE.txt has the address"
fi
glibc=$(find "$stage/bin" "$stage/lib" -type f -exec grep -aohE 'GLIBC_2\.[0-9]+' {} + | sort -uV | tail -n 1)
[ -n "$glibc" ] || refuse "bin/fabench names no version of the C library that it needs"
sed -e "s/@MACHINE@/$machine/" -e "s/@GLIBC@/${glibc#GLIBC_}/" -e "s/@DRIVER@/$driver/" scripts/package/README.txt \
    >"$stage/README.txt"
{
    "$build/fabench" --version
    echo "packed: $name"
    (cd "$stage" && find lib -type f -printf '%p %s bytes\n' | sort)
} >"$stage/PACKAGE.txt"
cp scripts/package/fabench scripts/package/acceptance.sh "$stage/"
(cd "$stage" && find . -type f ! -name SHA256SUMS -print0 | sort -z | xargs -0 sha256sum >SHA256SUMS)

# The program must start in the package, with the libraries of the package.
env -i PATH=/usr/bin:/bin "$stage/fabench" --version >/dev/null || refuse "the packed program does not start"
if [ "$stage_only" -eq 1 ]; then
    echo "$stage: $(du -sm "$stage" | cut -f1) MB"
    exit 0
fi
compress=gzip
if command -v pigz >/dev/null; then compress=pigz; fi
tar -C "$out" --sort=name --owner=0 --group=0 --numeric-owner -I "$compress" -cf "$out/$name.tar.gz.new" "$name"
mv "$out/$name.tar.gz.new" "$out/$name.tar.gz"
rm -rf "$stage"
echo "$out/$name.tar.gz: $(du -m "$out/$name.tar.gz" | cut -f1) MB"
