/* Thread blocks that take turns at a piece of device memory. PTX ISA, "Memory Consistency Model"; "ld.acquire" and
 * "red.release", sm_70 and newer. */
#pragma once
#include <cstdint>

namespace device {

/* Waits until `turn` counts to `mine`. What its givers did before turn_pass is visible then. One thread; the others of
 * its block follow by a barrier. */
__device__ __forceinline__ void turn_wait(const int *turn, int mine)
{
    int now;
    do
        asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory");
    while (now != mine);
}

/* Gives the next its turn. One thread, after a fence of all that wrote (__threadfence) and a barrier. */
__device__ __forceinline__ void turn_pass(int *turn)
{
    asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(turn) : "memory");
}

} // namespace device
