/* The global nanosecond timer, the same for all multiprocessors; its resolution is the device's choice (up to 1 us).
 * PTX ISA, "Special Registers: %globaltimer". */
#pragma once
#include <cstdint>

namespace device {

__device__ __forceinline__ uint64_t globaltimer_ns()
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

} // namespace device
