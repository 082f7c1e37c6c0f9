/* Asynchronous copies from global to shared memory, sm_80 and newer.
 * PTX ISA, "Data Movement and Conversion Instructions: cp.async" and "cp.async.commit_group / wait_group". */
#pragma once
#include <cstdint>

#include "kernels/device/shared_memory.cuh"

namespace device {

/* Copies 16 bytes past L1; where valid is false nothing is read and 16 zero bytes are written.
 * Both addresses are 16-byte aligned; `global` must be a legal address even when not valid. */
__device__ __forceinline__ void cp_async_16(uint32_t shared, const void *global, bool valid)
{
    const int source_bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(source_bytes)
                 : "memory");
}

/* Copies 4 bytes through L1 (rows of LSE and D); zero-fills where not valid. */
__device__ __forceinline__ void cp_async_4(uint32_t shared, const void *global, bool valid)
{
    const int source_bytes = valid ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global), "r"(source_bytes)
                 : "memory");
}

__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Waits until at most PENDING of this thread's groups are in flight. Others see the data after a barrier. */
template <int PENDING> __device__ __forceinline__ void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

} // namespace device
