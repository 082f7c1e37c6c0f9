/* The copy engine on plain rows of bytes, sm_90 and newer. PTX ISA, "Data Movement and Conversion Instructions:
 * cp.async.bulk". Addresses and sizes are multiples of 16 bytes; one thread issues a copy. */
#pragma once
#include <cstdint>

namespace device {

/* Starts a load whose bytes arrive at `barrier` (mbarrier.cuh). */
__device__ __forceinline__ void bulk_load(uint32_t shared, const void *global, uint32_t bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
                 "l"(global), "r"(bytes), "r"(barrier)
                 : "memory");
}

} // namespace device
