/* Numbers for the warp's own registers, sm_90 and newer: those that branches of the whole warp depend on, and operands of wgmma.
 *
 * What the assembler knows to come from an address it works out again at every use: five instructions for an operand in a ring of
 * slots, and all of them between two products. */
#pragma once

#include "kernels/device/shared_memory.cuh"

namespace device {

/* A number that is the same in all lanes, worked out once: of what comes from another lane the assembler knows that all of the
 * warp has it, and nothing else. All of the warp calls it. */
template <typename T> __device__ __forceinline__ T keep_uniform(T x) { return __shfl_sync(0xffffffffu, x, 0); }

/* The same object in shared memory, its address known as above. */
template <typename T> __device__ __forceinline__ T *keep_shared_uniform(void *object)
{
    return static_cast<T *>(__cvta_shared_to_generic(keep_uniform(shared_address(object))));
}

} // namespace device
