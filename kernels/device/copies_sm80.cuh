/* Asynchronous copies from device memory to shared memory by the threads themselves, sm_80 and newer. */
#pragma once
#include <cstdint>

#include "kernels/device/memory.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/device/warp_matrix.cuh"

namespace device {

/* ---- cp.async ---- */

/* Asynchronous copies from global to shared memory, sm_80 and newer.
 * PTX ISA, "Data Movement and Conversion Instructions: cp.async" and "cp.async.commit_group / wait_group". */

/* Copies 16 bytes past L1; where valid is false nothing is read and 16 zero bytes are written.
 * Both addresses are 16-byte aligned; `global` must be a legal address even when not valid. */
__device__ __forceinline__ void cp_async_16(uint32_t shared, const void *global, bool valid)
{
    const int source_bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(source_bytes)
                 : "memory");
}

/* The policy of the second-level cache for data that is not read again: it is dropped first. PTX ISA, "createpolicy",
 * sm_80 and newer, for which the constants of copy_engine.cuh are not known to hold. */
__device__ __forceinline__ uint64_t once_policy()
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* cp_async_16 with such a policy. */
__device__ __forceinline__ void cp_async_16(uint32_t shared, const void *global, bool valid, uint64_t policy)
{
    const int source_bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(shared), "l"(global),
                 "r"(source_bytes), "l"(policy)
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

/* The thread arrives at an mbarrier (barriers.cuh) once all its copies so far have arrived, without waiting. PTX ISA,
 * "cp.async.mbarrier.arrive"; the arrival counts among those that the barrier expects (.noinc). */
__device__ __forceinline__ void cp_async_arrive(uint32_t barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/* ---- tiles ---- */

/* Copies of tiles of rows from device memory into panels of shared memory (warp_matrix.cuh) by all threads of a block,
 * asynchronously, 16 bytes a copy.
 *
 * Shape::CHUNKS is the number of 16-byte chunks in a row and Shape::COPY_STEP the number of rows that the threads cover
 * at once, a multiple of 8 so that a thread's swizzle is the same in all its rows: thread t copies chunk t % CHUNKS of
 * the rows t / CHUNKS + i * COPY_STEP. */

/* Where the thread's first chunk goes in a tile of ROWS rows. */
template <typename Shape, int ROWS> __device__ __forceinline__ uint32_t copy_offset()
{
    const int row = threadIdx.x / Shape::CHUNKS, chunk = threadIdx.x % Shape::CHUNKS;
    return chunk / 8 * (ROWS * 128) + swizzle_128b(row, chunk % 8);
}

/* Where it comes from in a tensor of 16-bit elements, given the tile's first row. */
template <typename T, typename Shape>
__device__ __forceinline__ const T *copy_source(const void *first_row, int64_t stride)
{
    const int row = threadIdx.x / Shape::CHUNKS, chunk = threadIdx.x % Shape::CHUNKS;
    return static_cast<const T *>(first_row) + row * stride + chunk * 8;
}

/* Copies a tile of which `rows` rows exist; the others become zero and `legal` (16 bytes) stands in for their address.
 * Advances `from` to the tile after. */
template <typename T, typename Shape, int ROWS>
__device__ __forceinline__ void copy_tile(uint32_t to, const T *&from, const void *legal, int64_t stride, int rows)
{
    const int left = rows - int(threadIdx.x) / Shape::CHUNKS;
    static_assert(ROWS % Shape::COPY_STEP == 0, "all threads copy alike");
#pragma unroll
    for (int i = 0; i < ROWS; i += Shape::COPY_STEP) {
        cp_async_16(to + i * 128, i < left ? from : legal, i < left);
        from += Shape::COPY_STEP * stride;
        keep_pointer(from);
    }
}

/* Copies a tile whose rows all exist, or nothing, by predicate. Advances `from` either way. */
template <typename T, typename Shape, int ROWS>
__device__ __forceinline__ void copy_whole_tile(uint32_t to, const T *&from, int64_t stride, bool is_wanted)
{
#pragma unroll
    for (int i = 0; i < ROWS; i += Shape::COPY_STEP) {
        if (is_wanted)
            cp_async_16(to + i * 128, from, true);
        from += Shape::COPY_STEP * stride;
        keep_pointer(from);
    }
}

} // namespace device
