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

/* The same for warps that reach the barrier at different instructions. bar.sync is barrier.sync.aligned, which requires
 * that all threads execute the same instruction; synccheck reports a kernel where they do not. */
__device__ __forceinline__ void bar_sync_unaligned(uint32_t id, uint32_t threads)
{
    asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* Arrives at the barrier and goes on; those that wait there see what was written to shared memory before. */
__device__ __forceinline__ void bar_arrive(uint32_t id, uint32_t threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

} // namespace device
