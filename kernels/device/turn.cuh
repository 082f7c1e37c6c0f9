/* Thread blocks that take turns at a piece of device memory. PTX ISA, "Memory Consistency Model"; "ld.acquire" and
 * "red.release", sm_70 and newer. */
#pragma once
#include <cstdint>

namespace device {

/* Whether `turn` counts to `mine`. If so, what its givers did before turn_pass is visible. One thread; the others of its
 * block follow by a barrier. */
__device__ __forceinline__ bool turn_is(const int *turn, int mine)
{
    int now;
    asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory");
    return now == mine;
}

/* Waits until it does. */
__device__ __forceinline__ void turn_wait(const int *turn, int mine)
{
    while (!turn_is(turn, mine))
        ;
}

/* Gives the next its turn. One thread; others of its block that wrote come to a barrier with it first. */
__device__ __forceinline__ void turn_pass(int *turn)
{
    asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(turn) : "memory");
}

} // namespace device
