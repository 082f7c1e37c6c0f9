/* Values for the uniform registers of a warp, sm_90 and newer: conditions of branches that the whole warp takes, and
 * operands of wgmma.
 *
 * A value that the assembler knows to come from an address is computed again at every use: five instructions for an
 * operand in a circular buffer, all of them between two products. A value from __shfl_sync is not. */
#pragma once

#include "kernels/device/shared_memory.cuh"

namespace device {

/* Lane 0's value, in all lanes. The assembler knows that it is uniform, and nothing else of it. The whole warp calls
 * it. */
template <typename T> __device__ __forceinline__ T keep_uniform(T x) { return __shfl_sync(0xffffffffu, x, 0); }

/* The same for the address of an object in shared memory. */
template <typename T> __device__ __forceinline__ T *keep_shared_uniform(void *object)
{
    return static_cast<T *>(__cvta_shared_to_generic(keep_uniform(shared_address(object))));
}

} // namespace device
