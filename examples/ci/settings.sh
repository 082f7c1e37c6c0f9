# What this repository builds, and what is measured of it: the one file to edit. Sourced by check.sh and gate.sh, which
# run in the root of the repository.
# shellcheck shell=bash disable=SC2034 # used by who sources it

# Where `cmake --install` put fabench.
fabench_prefix=${FABENCH_PREFIX:-$HOME/fabench}
# Records, JUnit files and charts; what CI keeps.
out=${FABENCH_CI_OUT:-fabench-ci}

# The library of each device, relative to the root, the implementation in it, and the problems to time: any options of
# fabench. Preset ci is twelve fixed points on a GPU; drop --mode fwd when the kernel has a backward pass.
cpu_library=build/plugin_cpu.so
cpu_impl=plugin_cpu
cpu_options=(--seqlen 512 --d 64 --batch 1 --heads 2)
cuda_library=build/plugin_cuda.so
cuda_impl=plugin_cuda
cuda_options=(--preset ci --mode fwd)
# Options that limit `verify` to what the kernel supports, such as one direction.
cpu_verify=()
cuda_verify=(--mode fwd)

# On the CPU threads of OpenMP that wait must not spin: the others of the round would wait for them.
export OMP_WAIT_POLICY=passive

# build_in DIR: builds the libraries of a checkout.
build_in() {
    cmake -S "$1" -B "$1/build" -DCMAKE_PREFIX_PATH="$fabench_prefix" && cmake --build "$1/build"
}
