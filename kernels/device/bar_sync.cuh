/* A barrier of some warps of a thread block. PTX ISA, "Parallel Synchronization and Communication Instructions:
 * bar, barrier". Barrier 0 is __syncthreads. */
#pragma once
#include <cstdint>

namespace device {

/* Waits until `threads` threads (a multiple of 32, whole warps) are at barrier `id` (1..15); orders shared memory
 * between them. */
__device__ __forceinline__ void bar_sync(uint32_t id, uint32_t threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* The same for warps that come to the barrier at different instructions: bar_sync promises that all who wait at it do so at one,
 * and synccheck holds a kernel to that. */
__device__ __forceinline__ void bar_sync_apart(uint32_t id, uint32_t threads)
{
    asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* Arrives at the barrier and goes on; those that wait there see what was written to shared memory before. */
__device__ __forceinline__ void bar_arrive(uint32_t id, uint32_t threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

} // namespace device
