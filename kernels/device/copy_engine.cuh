/* Copies by the copy engine, sm_90 and newer. */
#pragma once
#include <cstdint>
#include <cuda.h>

namespace device {

/* ---- boxes of a tensor ---- */

/* The copy engine between device memory and shared memory, sm_90 and newer: boxes of a tensor that a CUtensorMap
 * describes. PTX ISA, "Data Movement and Conversion Instructions: cp.async.bulk.tensor" and ".prefetch".
 *
 * One thread issues a copy. Elements outside the tensor are read as zeros and not written; a load counts the bytes of
 * its whole box. Maps have rank 4, coordinates (column, row, head, batch), where not said otherwise. */

/* How long the second-level cache should keep what a copy touches: fractional policies that createpolicy yields, as
 * the 64-bit operand of .L2::cache_hint. */
constexpr uint64_t L2_EVICT_FIRST = 0x12f0000000000000ull, L2_EVICT_LAST = 0x14f0000000000000ull;
constexpr uint64_t L2_EVICT_NORMAL = 0x1000000000000000ull;

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

/* The same into the thread blocks of the cluster whose bits are set in `blocks`, at the same address in each, with the
 * barrier at the same address. */
__device__ __forceinline__ void tma_load_multicast(uint32_t shared, const CUtensorMap *map, uint32_t barrier,
                                                   uint16_t blocks, uint64_t l2_policy, int column, int row, int head,
                                                   int batch)
{
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%5, %6, %7, %8}], [%2], %3, %4;" ::"r"(shared),
        "l"(map), "r"(barrier), "h"(blocks), "l"(l2_policy), "r"(column), "r"(row), "r"(head), "r"(batch)
        : "memory");
}

/* Starts to bring a box into the second-level cache. */
__device__ __forceinline__ void tma_prefetch(const CUtensorMap *map, int column, int row, int head, int batch)
{
    asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];" ::"l"(map), "r"(column), "r"(row),
                 "r"(head), "r"(batch)
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

/* The same for what no later kernel of the pass reads: the cache may drop it first. */
__device__ __forceinline__ void tma_store_once(const CUtensorMap *map, uint32_t shared, int column, int row, int head,
                                               int batch)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group.L2::cache_hint "
                 "[%0, {%2, %3, %4, %5}], [%1], %6;" ::"l"(map),
                 "r"(shared), "r"(column), "r"(row), "r"(head), "r"(batch), "l"(L2_EVICT_FIRST)
                 : "memory");
}

/* Boxes of a map of rank 5, coordinates (column, row, head, end, wrap): tensor_map_encode_ranges of launch.h. */
__device__ __forceinline__ void tma_load(uint32_t shared, const CUtensorMap *map, uint32_t barrier, uint64_t l2_policy,
                                         int column, int row, int head, int end, int wrap)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1, {%4, %5, %6, %7, %8}], [%2], %3;" ::"r"(shared),
                 "l"(map), "r"(barrier), "l"(l2_policy), "r"(column), "r"(row), "r"(head), "r"(end), "r"(wrap)
                 : "memory");
}

__device__ __forceinline__ void tma_prefetch(const CUtensorMap *map, int column, int row, int head, int end, int wrap)
{
    asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global [%0, {%1, %2, %3, %4, %5}];" ::"l"(map), "r"(column),
                 "r"(row), "r"(head), "r"(end), "r"(wrap)
                 : "memory");
}

__device__ __forceinline__ void tma_store(const CUtensorMap *map, uint32_t shared, int column, int row, int head,
                                          int end, int wrap)
{
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map),
                 "r"(shared), "r"(column), "r"(row), "r"(head), "r"(end), "r"(wrap)
                 : "memory");
}

__device__ __forceinline__ void tma_store_once(const CUtensorMap *map, uint32_t shared, int column, int row, int head,
                                               int end, int wrap)
{
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group.L2::cache_hint "
                 "[%0, {%2, %3, %4, %5, %6}], [%1], %7;" ::"l"(map),
                 "r"(shared), "r"(column), "r"(row), "r"(head), "r"(end), "r"(wrap), "l"(L2_EVICT_FIRST)
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

/* ---- rows of bytes ---- */

/* The copy engine on plain rows of bytes, sm_90 and newer. PTX ISA, "Data Movement and Conversion Instructions:
 * cp.async.bulk". Addresses and sizes are multiples of 16 bytes; one thread issues a copy. */

/* Starts a load whose bytes arrive at `barrier` (barriers.cuh). */
__device__ __forceinline__ void bulk_load(uint32_t shared, const void *global, uint32_t bytes, uint32_t barrier)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
        "l"(global), "r"(bytes), "r"(barrier)
        : "memory");
}

/* The same into the thread blocks of the cluster whose bits are set in `blocks`, at the same addresses in each. */
__device__ __forceinline__ void bulk_load_multicast(uint32_t shared, const void *global, uint32_t bytes,
                                                    uint32_t barrier, uint16_t blocks)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(shared),
                 "l"(global), "r"(bytes), "r"(barrier), "h"(blocks)
                 : "memory");
}

/* Starts a copy from this block's shared memory to `to` in that of a block of the cluster, whose bytes arrive at
 * `barrier` there; both addresses are of address_in_block (barriers.cuh). Its writers: async_proxy_fence. */
__device__ __forceinline__ void bulk_send(uint32_t to, uint32_t from, uint32_t bytes, uint32_t barrier)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "r"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

/* Starts adding `bytes` of floats in shared memory to floats in device memory, which the cache keeps, in the bulk group
 * of this thread that tma_store_commit closes. The shared memory must be visible to the copy engine:
 * async_proxy_fence. */
__device__ __forceinline__ void bulk_reduce_add(float *global, uint32_t shared, uint32_t bytes)
{
    asm volatile(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.add.f32 [%0], [%1], %2, %3;" ::"l"(global),
        "r"(shared), "r"(bytes), "l"(L2_EVICT_LAST)
        : "memory");
}

/* Waits until all bulk groups of this thread have ended and their writes are visible to it. */
__device__ __forceinline__ void bulk_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

/* Orders this thread's accesses to device memory before and the copy engine's after, or the other way round.
 * PTX ISA, "membar / fence: fence.proxy". */
__device__ __forceinline__ void bulk_global_fence() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

} // namespace device
