/* The copy engine between device memory and shared memory, sm_90 and newer: boxes of a tensor that a CUtensorMap
 * describes. PTX ISA, "Data Movement and Conversion Instructions: cp.async.bulk.tensor" and ".prefetch".
 *
 * One thread issues a copy. Elements outside the tensor are read as zeros and not written; a load counts the bytes of
 * its whole box. Maps here have rank 4, coordinates (column, row, head, batch). */
#pragma once
#include <cstdint>
#include <cuda.h>

namespace device {

/* How long the second-level cache should keep what a copy touches: fractional policies that createpolicy yields, as
 * the 64-bit operand of .L2::cache_hint. */
constexpr uint64_t L2_EVICT_FIRST = 0x12f0000000000000ull, L2_EVICT_LAST = 0x14f0000000000000ull;

__device__ __forceinline__ void tma_prefetch_map(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Starts a load whose bytes arrive at `barrier`. */
__device__ __forceinline__ void tma_load(uint32_t shared, const CUtensorMap *map, uint32_t barrier, uint64_t l2_policy,
                                         int column, int row, int head, int batch)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1, {%4, %5, %6, %7}], [%2], %3;" ::"r"(shared),
                 "l"(map), "r"(barrier), "l"(l2_policy), "r"(column), "r"(row), "r"(head), "r"(batch)
                 : "memory");
}

/* Starts a store. The shared memory must be visible to the copy engine: async_proxy_fence by its writers. */
__device__ __forceinline__ void tma_store(const CUtensorMap *map, uint32_t shared, int column, int row, int head,
                                          int batch)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
                 "r"(shared), "r"(column), "r"(row), "r"(head), "r"(batch)
                 : "memory");
}

/* Closes the group of this thread's stores since the last one. */
__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/* Waits until all but the last `pending` groups of this thread have read their shared memory. */
template <int pending> __device__ __forceinline__ void tma_store_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

/* What this thread wrote to shared memory is visible to copies and wgmma that start after a following barrier.
 * PTX ISA, "membar / fence: fence.proxy". */
__device__ __forceinline__ void async_proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

} // namespace device
