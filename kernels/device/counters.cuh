/* Counters in device memory by which warps of one thread block tell those of others that they have written something.
 * sm_80 and newer; with the copy engine of sm_90: semaphores of grid_order.cuh. PTX ISA, "Memory Consistency Model". In
 * these functions warps stay together, so that the assembler keeps values of the code behind them in uniform
 * registers. */
#pragma once
#include <cstdint>

namespace device {

/* Adds 1 to a counter, behind the stores of all lanes of the warp. */
__device__ __forceinline__ void count_stores(int *counter, uint32_t lane)
{
    __syncwarp();
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    if (lane == 0)
        asm volatile("red.relaxed.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
}

/* With what was stored ahead of the counting behind it, for this thread. */
__device__ __forceinline__ int read_count(const int *counter)
{
    int count;
    asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
    return count;
}

/* Waits until a counter is at `count` or more. All lanes of the warp call it. */
__device__ __forceinline__ void wait_for_count(const int *counter, int count)
{
    int now;
    do {
        now = read_count(counter);
    } while (!__any_sync(0xffffffffu, now >= count));
}

/* The same of one thread, behind which a barrier of the block follows. */
__device__ __forceinline__ void wait_for_count_alone(const int *counter, int count)
{
    while (read_count(counter) < count) {
    }
}

} // namespace device
