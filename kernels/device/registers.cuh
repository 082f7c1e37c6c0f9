/* Registers of threads and warps: values hidden from the compiler, uniform values, one thread of a warp,
 * registers handed between warpgroups, the timer. */
#pragma once
#include <cstdint>

#include "kernels/device/memory.cuh"

namespace device {

/* ---- opaque values ---- */

/* Values of which the compiler does not know how they were computed. No instructions are emitted. */

/* Keeps a pointer that is advanced step by step from being rewritten as base + i * stride, which costs a multiplication
 * and registers at every step. */
template <typename T> __device__ __forceinline__ void keep_pointer(T *&pointer) { asm volatile("" : "+l"(pointer)); }

/* Returns x, which the compiler does not know: it computes again what follows from the result, instead of keeping it in
 * registers from an earlier use of x. */
__device__ __forceinline__ int forget(int x)
{
    asm volatile("" : "+r"(x));
    return x;
}

/* ---- uniform values ---- */

/* Values for the uniform registers of a warp, sm_90 and newer: conditions of branches that the whole warp takes, and
 * operands of wgmma.
 *
 * A value that the assembler knows to come from an address is computed again at every use: five instructions for an
 * operand in a circular buffer, all of them between two products. A value from __shfl_sync is not. */

/* Lane 0's value, in all lanes. The assembler knows that it is uniform, and nothing else of it. The whole warp calls
 * it. */
template <typename T> __device__ __forceinline__ T keep_uniform(T x) { return __shfl_sync(0xffffffffu, x, 0); }

/* The same for the address of an object in shared memory. */
template <typename T> __device__ __forceinline__ T *keep_shared_uniform(void *object)
{
    return static_cast<T *>(__cvta_shared_to_generic(keep_uniform(shared_address(object))));
}

/* ---- one thread of a warp ---- */

/* One thread of a warp, sm_90 and newer. PTX ISA, "Parallel Synchronization and Communication Instructions:
 * elect.sync". The assembler knows that the code under it runs in one thread. Under a comparison of threadIdx.x it does
 * not, and puts a loop over the threads around every instruction whose operands are those of the whole warp, such as
 * copies. */

/* True in one thread of the warp, always the same one. The whole warp calls it. */
__device__ __forceinline__ bool elect_one()
{
    uint32_t elected;
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "elect.sync _|p, 0xffffffff;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}"
                 : "=r"(elected));
    return elected != 0;
}

/* ---- register counts ---- */

/* Registers handed from the warpgroups that copy to those that compute, sm_90a. PTX ISA, "Miscellaneous Instructions:
 * setmaxnreg". All warps of a warpgroup call it; the kernel needs a register count fixed by __launch_bounds__. */

template <int registers> __device__ __forceinline__ void registers_increase()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

template <int registers> __device__ __forceinline__ void registers_decrease()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

/* ---- timer ---- */

/* The global nanosecond timer, the same for all multiprocessors; its resolution is the device's choice (up to 1 us).
 * PTX ISA, "Special Registers: %globaltimer". */

__device__ __forceinline__ uint64_t globaltimer_ns()
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

} // namespace device
