#!/usr/bin/env bash
# What scripts/setup.sh writes for the build, and what CMake makes of it: CUDA only where there is a driver or it is
# asked for, the folder of a cuDNN that set-up brought, warnings as errors for developers alone. Nothing is downloaded
# or installed: a toolkit and cuDNN are made up, pip has no index, and apt-get is a stand-in that fails.
. "$(dirname "$0")/lib.sh"

command -v cmake >/dev/null || skip "no cmake"
unset FABENCH_CUDA FABENCH_WERROR CUDACXX CUDA_HOME CUDA_PATH FABENCH_SETUP_PRETEND_DRIVER
has_driver() {
    [ -e /proc/driver/nvidia/version ] || command -v nvidia-smi >/dev/null || [ -e /usr/lib/wsl/lib/libcuda.so.1 ] ||
        PATH=$PATH:/sbin:/usr/sbin ldconfig -p | grep -q 'libcuda\.so\.1'
}
mkdir -p stubs checkout/.deps
for tool in apt-get sudo; do
    printf '#!/bin/sh\nexit 1\n' >stubs/$tool
done
cp -r "$root/scripts" checkout/
# set_up WORDS...: env WORDS... scripts/setup.sh; the arguments for CMake become $arguments.
set_up() {
    what="scripts/setup.sh with $*"
    code=0
    env "PATH=$tmp/stubs:$PATH" PIP_NO_INDEX=1 "$@" checkout/scripts/setup.sh >out 2>err </dev/null || code=$?
    expect_code 0
    arguments=$(sed -n 's/^fabench_cmake_arguments=//p' checkout/.deps/setup.env)
}
expect_argument() { expect "$1 for CMake, not: $arguments" grep -qF -- "'$1'" <<<"$arguments"; }
expect_no_argument() { expect "no $1 for CMake" sh -c "! grep -qF -- '$1' <<'END'
$arguments
END"; }
# a_toolkit FOLDER: a compiler that says its version.
a_toolkit() {
    mkdir -p "$1/bin" "$1/include"
    printf '#!/bin/sh\necho "Cuda compilation tools, release 13.0, V13.0.88"\n' >"$1/bin/nvcc"
    chmod +x "$1/bin/nvcc"
    touch "$1/include/cudnn.h"
}
chmod +x stubs/*

# A driver, and what set-up brought before: the wheels of the toolkit, the front end's headers, cuDNN.
deps=$tmp/checkout/.deps
a_toolkit "$deps/cuda"
mkdir -p "$deps/cudnn-frontend/include" "$deps/cudnn/lib"
touch "$deps/cudnn-frontend/include/cudnn_frontend.h" "$deps/cudnn/lib/libcudnn.so.9"
set_up FABENCH_SETUP_PRETEND_DRIVER=13000
expect_argument "-DCMAKE_CUDA_COMPILER=$deps/cuda/bin/nvcc"
expect_argument "-DFABENCH_CUDA=ON"
expect_argument "-DFABENCH_CUDNN_DIR=$deps/cudnn"
expect_argument "-DCMAKE_INSTALL_RPATH=$deps/cuda/lib"
expect_argument "-DFABENCH_CUDNN_FRONTEND_DIR=$deps/cudnn-frontend/include"

# A toolkit without a driver: no headers are fetched unless CUDA is asked for.
rm -rf "$deps"
a_toolkit "$tmp/toolkit"
if ! has_driver; then
    set_up CUDACXX="$tmp/toolkit/bin/nvcc"
    expect_stderr 'no GPU driver: building without CUDA \(FABENCH_CUDA=ON builds with it\)'
    expect "nothing fetched" sh -c '! grep -q fetch err'
    expect_no_argument -DFABENCH_CUDNN_DIR
    set_up CUDACXX="$tmp/toolkit/bin/nvcc"
    expect_no_stderr # set up already
    set_up CUDACXX="$tmp/toolkit/bin/nvcc" FABENCH_CUDA=ON
    expect_stderr "could not fetch the headers of cuDNN's frontend"
    expect_argument "-DCMAKE_CUDA_COMPILER=$tmp/toolkit/bin/nvcc"
fi

# CMake by hand. configured NAME ARGUMENT...: configures the sources; NAME is the folder.
configured() {
    local folder=$1
    shift
    what="cmake $*"
    code=0
    (cd "$root" && cmake -B "$tmp/$folder" -DFABENCH_TESTS=OFF "$@") >out 2>err </dev/null || code=$?
}
setting() { sed -n "s/^$2:[A-Z]*=//p" "$1/CMakeCache.txt"; }
if ! has_driver; then
    configured by-hand --preset release
    expect_code 0
    expect_stdout '^-- CUDA: OFF \(no GPU driver here; -DFABENCH_CUDA=ON builds with CUDA\)'
    expect "warnings that are no errors" test "$(setting by-hand FABENCH_WERROR)" = OFF
fi
configured asan --preset asan
expect_code 0
expect_stdout '^-- CUDA: OFF, peer'
expect "warnings that are errors" test "$(setting asan FABENCH_WERROR)" = ON
configured wrong -DFABENCH_CUDA=maybe
expect "a refusal" test "$code" -ne 0
expect_stderr 'FABENCH_CUDA=maybe: must be AUTO, TOOLKIT, ON or OFF'
for preset in debug one-arch; do
    expect "FABENCH_WERROR of the preset $preset" python3 - "$preset" "$root/CMakePresets.json" <<'END'
import json, sys
presets = {p["name"]: p["cacheVariables"] for p in json.load(open(sys.argv[2]))["configurePresets"]}
sys.exit(presets[sys.argv[1]].get("FABENCH_WERROR") != "ON" or presets["one-arch"].get("FABENCH_CUDA") != "TOOLKIT")
END
done
finish
