/* Warps of different blocks that take turns at a piece of device memory, which the copy engine or reductions change for
 * them. A turn is a count: of those that have had it. PTX ISA, "Memory Consistency Model"; "ld.acquire",
 * "fence.acq_rel"; sm_90 and newer, as the copy engine.
 *
 * All of a warp call these and one thread acts, that of elect_one (elect.cuh), which sends what the copy engine adds. What
 * the others write is ordered by a __syncwarp before turn_next and one after a turn has come. A loop in one thread alone would
 * keep all that outlives it out of the uniform registers: 40 instructions more in a step of the backward. */
#pragma once
#include <cstdint>

#include "kernels/device/bulk.cuh"
#include "kernels/device/elect.cuh"

namespace device {

/* Ends the warp's turn at `mine`, to which it has sent all it will send, and looks whether its turn at `next` has come,
 * after `before` others; NULL: no such turn. Fences cost far more than both: one serves the end and the look. */
__device__ __forceinline__ bool turn_next(int *mine, const int *next, int before)
{
    bool has_come = false;

    if (elect_one()) {
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
        has_come = now == before;
    }
    return __any_sync(0xffffffffu, has_come);
}

/* Waits until the turn has come. */
__device__ __forceinline__ void turn_wait(const int *turn, int before)
{
    bool has_come;

    do {
        int now = -1;

        if (elect_one())
            asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory");
        has_come = __any_sync(0xffffffffu, now == before);
    } while (!has_come);
    if (elect_one())
        bulk_global_fence();
}

} // namespace device
