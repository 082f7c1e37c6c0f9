#!/usr/bin/env bash
# Installs what a fresh Debian or Ubuntu machine lacks to build and run fabench, and writes the settings to
# .deps/setup.env for run.sh and test.sh. Does nothing when this version of the script has already set up this machine.
#
#   scripts/setup.sh           set up where needed
#   scripts/setup.sh --again   look at everything again
#
# 1. The distribution's packages, only those that are missing, by apt (with sudo where not root).
# 2. CUDA: an installed toolkit >= 12.4 ($CUDACXX, $CUDA_HOME, $CUDA_PATH, PATH, /usr/local/cuda*). Where a GPU driver
#    is present but no toolkit, NVIDIA's toolkit wheels from PyPI go into .deps/cuda. Without a driver the build is
#    without CUDA, except where FABENCH_CUDA is ON or TOOLKIT (scripts/functions.bash).
# 3. For a build with CUDA, the headers of cuDNN's frontend from PyPI go into .deps/cudnn-frontend; where there is a
#    driver but no cudnn.h, cuDNN's own wheel follows: its headers beside the frontend's, its libraries to .deps/cudnn.
# For each part that cannot be installed it prints one line and continues.
#
# Test hook: FABENCH_SETUP_PRETEND_DRIVER=13000 acts as if there were no toolkit and a driver for CUDA 13.0.
set -euo pipefail
case ${1:-} in
--help | -h)
    sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p'
    exit 0
    ;;
--again | '') ;;
*)
    echo "setup: $1: no such option; --again or none" >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")/.."

deps=$PWD/.deps
stamp=$deps/setup.stamp
environment=$deps/setup.env
log=$deps/setup.log

# The wheels of CUDA 13.0 serve every driver for CUDA 13.x. (CUDA 12's nvcc wheel holds ptxas but no nvcc.)
cuda_wheels=(nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96
    nvidia-cuda-cccl==13.0.85 nvidia-cuda-nvrtc==13.0.88 nvidia-cuda-profiler-api==13.0.85 nvidia-nvtx==13.0.85
    nvidia-cublas==13.1.0.3)
cudnn_frontend_wheel=nvidia-cudnn-frontend==1.32.0
cudnn_version=9.19.0.56 # of nvidia-cudnn-cu12 and nvidia-cudnn-cu13

say() { echo "setup: $*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }
# True when the loader knows a library of this name. (/sbin is not in every user's PATH.)
has_library() { [[ $(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null) == *"$1"* ]]; }

# --- identity of the machine; cheap, because every start needs it

has_driver() {
    [ -n "${FABENCH_SETUP_PRETEND_DRIVER:-}" ] || [ -e /proc/driver/nvidia/version ] || have nvidia-smi ||
        [ -e /usr/lib/wsl/lib/libcuda.so.1 ] || has_library libcuda.so.1
}

# True where a toolkit, if there is one, is built with.
wants_cuda() { has_driver || [ "${FABENCH_CUDA:-}" = ON ] || [ "${FABENCH_CUDA:-}" = TOOLKIT ]; }

# Prints "major minor" of a toolkit's nvcc.
nvcc_version() { "$1" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1 \2/p'; }

is_new_enough() {
    local major minor
    read -r major minor <<<"$(nvcc_version "$1")" || return 1
    [ -n "$minor" ] && { [ "$major" -gt 12 ] || { [ "$major" -eq 12 ] && [ "$minor" -ge 4 ]; }; }
}

# Every nvcc of this machine, the preferred one first.
nvcc_candidates() {
    [ -z "${FABENCH_SETUP_PRETEND_DRIVER:-}" ] || { echo "$deps/cuda/bin/nvcc"; return; }
    [ -z "${CUDACXX:-}" ] || command -v "$CUDACXX" || true
    [ -z "${CUDA_HOME:-}" ] || echo "$CUDA_HOME/bin/nvcc"
    [ -z "${CUDA_PATH:-}" ] || echo "$CUDA_PATH/bin/nvcc"
    command -v nvcc || true
    echo /usr/local/cuda/bin/nvcc
    printf '%s\n' /usr/local/cuda-*/bin/nvcc | sort -rV
    echo "$deps/cuda/bin/nvcc"
}

facts() {
    sha256sum <scripts/setup.sh
    uname -m
    cat /etc/os-release 2>/dev/null || true
    echo "$PWD"
    ! has_driver || echo driver
    ! wants_cuda || [ -e "$deps/cudnn-frontend/include/cudnn_frontend.h" ] || echo "headers of cuDNN's frontend wanted"
    nvcc_candidates | while read -r nvcc; do [ ! -x "$nvcc" ] || stat -L -c '%n %s %Y' "$nvcc"; done
}

# --- packages

# Prints the missing packages. It checks for the tools and files themselves, so that other installations count.
missing_packages() {
    { have cc && have c++ && have make; } || echo build-essential
    { have cmake && have ctest; } || echo cmake
    have pkg-config || echo pkg-config
    [ -e /usr/include/jansson.h ] || pkg-config --exists jansson 2>/dev/null || echo libjansson-dev
    [ -e /usr/include/cmocka.h ] || pkg-config --exists cmocka 2>/dev/null || echo libcmocka-dev
    have gnuplot || echo gnuplot-nox
    has_library libopenblas.so.0 || echo libopenblas0-pthread
    have python3 || echo python3 # for the test unit_rooms and the scripts in Python; the program does not use it
    if needs_wheels; then
        python3 -m pip --version >/dev/null 2>&1 || echo python3-pip
    fi
}

needs_wheels() {
    if [ -n "$(find_toolkit)" ]; then
        wants_cuda && [ ! -e "$deps/cudnn-frontend/include/cudnn_frontend.h" ]
    else
        has_driver
    fi
}

install_packages() {
    local as_root=() apt packages
    mapfile -t packages < <(missing_packages)
    [ ${#packages[@]} -gt 0 ] || return 0
    if ! have apt-get; then
        say "warning: no apt-get here; install what provides: ${packages[*]}"
        return 0
    fi
    if [ "$(id -u)" -ne 0 ]; then
        if have sudo && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
            as_root=(sudo)
        else
            say "warning: not root and no sudo; missing: ${packages[*]}"
            return 0
        fi
    fi
    say "installing ${packages[*]}"
    apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -q -o DPkg::Lock::Timeout=120
        -o Acquire::Retries=1 -o Acquire::http::Timeout=20)
    "${apt[@]}" update >>"$log" 2>&1 || true
    if ! "${apt[@]}" install --no-install-recommends "${packages[@]}" >>"$log" 2>&1; then
        for package in "${packages[@]}"; do # one by one, so that an unavailable package does not prevent the others
            "${apt[@]}" install --no-install-recommends "$package" >>"$log" 2>&1 || true
        done
    fi
    hash -r
    mapfile -t packages < <(missing_packages)
    [ ${#packages[@]} -eq 0 ] || say "warning: could not install ${packages[*]} (see $log); going on without"
}

# --- CUDA

find_toolkit() {
    local nvcc
    while read -r nvcc; do
        if [ -x "$nvcc" ] && is_new_enough "$nvcc"; then
            echo "$nvcc"
            return
        fi
    done < <(nvcc_candidates)
}

# The CUDA version that the driver serves, as 1000 * major + 10 * minor; nothing when it cannot be asked.
driver_cuda_version() {
    if [ -n "${FABENCH_SETUP_PRETEND_DRIVER:-}" ]; then
        echo "$FABENCH_SETUP_PRETEND_DRIVER"
        return
    fi
    python3 - 2>/dev/null <<'END' || true
import ctypes
try:
    driver = ctypes.CDLL("libcuda.so.1")
except OSError:
    driver = ctypes.CDLL("/usr/lib/wsl/lib/libcuda.so.1")
version = ctypes.c_int()
if driver.cuDriverGetVersion(ctypes.byref(version)) == 0:
    print(version.value)
END
}

# fetch_wheels FOLDER WHEEL...: downloads and unpacks, replacing the folder.
fetch_wheels() {
    local folder=$1 machine wheel
    shift
    machine=$(uname -m)
    rm -rf "$folder"
    mkdir -p "$folder"
    python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.11 --implementation cp \
        --platform "manylinux2014_$machine" --platform "manylinux_2_17_$machine" \
        --platform "manylinux_2_27_$machine" --platform "manylinux_2_28_$machine" \
        --timeout 20 --retries 1 --dest "$folder" "$@" >>"$log" 2>&1 || return 1
    for wheel in "$folder"/*.whl; do
        python3 -m zipfile -e "$wheel" "$folder" || return 1
    done
}

# The wheels hold one tree, nvidia/cu13. As a toolkit it lacks the execute bits, lib64, and the names of the libraries
# without a version.
install_cuda_wheels() {
    local fetched=$deps/fetch.cuda library
    say "fetching NVIDIA's CUDA 13.0 toolkit from PyPI into .deps/cuda (about 700 MB)"
    if ! fetch_wheels "$fetched" "${cuda_wheels[@]}" || [ ! -e "$fetched/nvidia/cu13/bin/nvcc" ]; then
        rm -rf "$fetched"
        return 1
    fi
    rm -rf "$deps/cuda"
    mv "$fetched/nvidia/cu13" "$deps/cuda"
    rm -rf "$fetched"
    chmod -R a+rX "$deps/cuda"
    find "$deps/cuda/bin" "$deps/cuda/nvvm/bin" -type f -exec chmod a+x {} +
    ln -sfn lib "$deps/cuda/lib64"
    for library in "$deps"/cuda/lib/lib*.so.*; do
        ln -sf "$(basename "$library")" "${library%%.so.*}.so"
    done
    is_new_enough "$deps/cuda/bin/nvcc"
}

# Sets nvcc to the compiler to use, empty for a build without CUDA.
choose_cuda() {
    nvcc=$(find_toolkit)
    if [ -n "$nvcc" ]; then
        wants_cuda || say "no GPU driver: building without CUDA (FABENCH_CUDA=ON builds with it)"
        return 0
    fi
    if ! has_driver; then
        say "no CUDA toolkit >= 12.4 and no GPU driver: building without CUDA"
        return 0
    fi
    local version
    version=$(driver_cuda_version)
    if [ "${version:-0}" -lt 13000 ]; then
        say "warning: the driver serves CUDA ${version:-?} (1000 * major + 10 * minor), NVIDIA's wheels need 13000;" \
            "install a CUDA toolkit >= 12.4 or a driver >= 580. Building without CUDA"
    elif install_cuda_wheels; then
        nvcc=$deps/cuda/bin/nvcc
    else
        say "warning: could not fetch NVIDIA's toolkit wheels (see $log): building without CUDA"
    fi
}

# True when cuDNN's header exists, in the toolkit, the system or an earlier download.
has_cudnn_header() {
    local folder
    for folder in "$(dirname "$nvcc")/../include" /usr/local/cuda/include /usr/include \
        "/usr/include/$(uname -m)-linux-gnu" "$deps/cudnn-frontend/include"; do
        [ ! -e "$folder/cudnn.h" ] || return 0
    done
    return 1
}

# The frontend is headers only. It needs cudnn.h too; the library itself is opened at run time, by fabench.
choose_cudnn() {
    local fetched=$deps/fetch.cudnn headers=$deps/cudnn-frontend/include major
    [ -n "$nvcc" ] && wants_cuda || return 0
    if [ ! -e "$headers/cudnn_frontend.h" ]; then
        if fetch_wheels "$fetched" "$cudnn_frontend_wheel" && [ -e "$fetched/include/cudnn_frontend.h" ]; then
            rm -rf "$deps/cudnn-frontend"
            mkdir -p "$deps/cudnn-frontend"
            mv "$fetched/include" "$headers"
        else
            say "could not fetch the headers of cuDNN's frontend (see $log): building without the cudnn peer"
            return 0
        fi
    fi
    has_cudnn_header && return 0
    if ! has_driver; then
        say "no cudnn.h and no GPU driver: building without the cudnn peer"
        return 0
    fi
    major=$(nvcc_version "$nvcc")
    say "fetching cuDNN from PyPI into .deps/cudnn (about 350 MB)"
    if fetch_wheels "$fetched" "nvidia-cudnn-cu${major% *}==$cudnn_version" &&
        [ -e "$fetched/nvidia/cudnn/include/cudnn.h" ]; then
        cp "$fetched"/nvidia/cudnn/include/*.h "$headers/"
        rm -rf "$deps/cudnn"
        mv "$fetched/nvidia/cudnn" "$deps/cudnn"
    else
        say "could not fetch cuDNN (see $log): building without the cudnn peer"
    fi
}

# What run.sh and test.sh need to know, as shell variables.
write_environment() {
    local cmake_arguments=()
    if [ -n "$nvcc" ]; then
        cmake_arguments+=("-DCMAKE_CUDA_COMPILER=$nvcc")
    else
        cmake_arguments+=(-DFABENCH_CUDA=OFF)
    fi
    if [ "$nvcc" = "$deps/cuda/bin/nvcc" ]; then
        # CMake leaves out the folders that nvcc links by itself.
        cmake_arguments+=("-DCMAKE_BUILD_RPATH=$deps/cuda/lib" "-DCMAKE_INSTALL_RPATH=$deps/cuda/lib")
    fi
    if [ -n "$nvcc" ] && [ -e "$deps/cudnn-frontend/include/cudnn_frontend.h" ] && has_cudnn_header; then
        cmake_arguments+=("-DFABENCH_CUDNN_FRONTEND_DIR=$deps/cudnn-frontend/include")
    else
        cmake_arguments+=(-DFABENCH_CUDNN_FRONTEND_DIR=)
    fi
    if [ -n "${FABENCH_SETUP_PRETEND_DRIVER:-}" ] && [ -n "$nvcc" ]; then # CMake sees no driver
        cmake_arguments+=(-DFABENCH_CUDA=ON)
    fi
    # Where the installed program finds it without the settings below.
    [ ! -e "$deps/cudnn/lib/libcudnn.so.9" ] || cmake_arguments+=("-DFABENCH_CUDNN_DIR=$deps/cudnn")
    if [ ! -e /usr/include/cmocka.h ] && ! pkg-config --exists cmocka 2>/dev/null; then
        cmake_arguments+=(-DFABENCH_TESTS=OFF)
    fi
    echo "# written by scripts/setup.sh"
    echo "fabench_cmake_arguments=(${cmake_arguments[*]@Q})"
    if [ "$nvcc" = "$deps/cuda/bin/nvcc" ]; then # for what cuDNN opens by name
        # shellcheck disable=SC2016 # expands where it is read
        echo 'export LD_LIBRARY_PATH="'"$deps"'/cuda/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"'
    fi
    if [ -e "$deps/cudnn/lib/libcudnn.so.9" ]; then
        # shellcheck disable=SC2016
        echo 'export FABENCH_CUDNN="${FABENCH_CUDNN:-'"$deps"'/cudnn}"'
    fi
}

# --- main

mkdir -p "$deps"
if [ "${1:-}" != --again ] && [ -e "$environment" ] && [ "$(facts | sha256sum)" = "$(cat "$stamp" 2>/dev/null)" ]; then
    exit 0
fi
rm -f "$stamp"
: >"$log"
install_packages
choose_cuda
choose_cudnn
rm -rf "$deps/fetch.cudnn" "$deps/fetch.cuda"
write_environment >"$environment"
for tool in cc cmake; do
    have $tool || { say "error: $tool is missing and could not be installed"; exit 1; }
done
facts | sha256sum >"$stamp"
