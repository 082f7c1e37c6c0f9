/* The copy engine on plain rows of bytes, sm_90 and newer. PTX ISA, "Data Movement and Conversion Instructions:
 * cp.async.bulk". Addresses and sizes are multiples of 16 bytes; one thread issues a copy. */
#pragma once
#include <cstdint>

namespace device {

/* Starts a load whose bytes arrive at `barrier` (mbarrier.cuh). */
__device__ __forceinline__ void bulk_load(uint32_t shared, const void *global, uint32_t bytes, uint32_t barrier)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
        "l"(global), "r"(bytes), "r"(barrier)
        : "memory");
}

/* Starts adding `bytes` of floats in shared memory to floats in device memory, in the bulk group of this thread that
 * tma_store_commit closes (tma.cuh). The shared memory must be visible to the copy engine: async_proxy_fence. */
__device__ __forceinline__ void bulk_reduce_add(float *global, uint32_t shared, uint32_t bytes)
{
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(global),
                 "r"(shared), "r"(bytes)
                 : "memory");
}

/* Waits until all bulk groups of this thread have ended and their writes are visible to it. */
__device__ __forceinline__ void bulk_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

/* Orders this thread's accesses to device memory before and the copy engine's after, or the other way round.
 * PTX ISA, "membar / fence: fence.proxy". */
__device__ __forceinline__ void bulk_global_fence() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

} // namespace device
