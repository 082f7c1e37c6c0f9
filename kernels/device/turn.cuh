/* Warps of different blocks that take turns at a piece of device memory, which the copy engine or reductions change for
 * them. A turn is a count: of those that have had it. PTX ISA, "Memory Consistency Model"; "ld.acquire",
 * "fence.acq_rel"; sm_90 and newer, as the copy engine.
 *
 * One thread of a warp calls these; what the others of the warp write is ordered by a __syncwarp in between. */
#pragma once
#include <cstdint>

#include "kernels/device/bulk.cuh"

namespace device {

/* Ends this thread's turn at `mine`, to which it has sent all it will send, and looks whether its turn at `next` has
 * come, after `before` others; NULL: no such turn. Fences cost far more than both: one serves the end and the look. */
__device__ __forceinline__ bool turn_next(int *mine, const int *next, int before)
{
    int now = -1;

    if (next)
        asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(now) : "l"(next) : "memory");
    if (mine) {
        bulk_wait();
        bulk_global_fence();
    }
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    if (mine)
        asm volatile("red.relaxed.gpu.global.add.s32 [%0], 1;" ::"l"(mine) : "memory");
    bulk_global_fence();
    return now == before;
}

/* Waits until the turn has come; what those before did is visible then. */
__device__ __forceinline__ void turn_wait(const int *turn, int before)
{
    int now;

    do
        asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory");
    while (now != before);
    bulk_global_fence();
}

} // namespace device
