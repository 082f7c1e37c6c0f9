/* Copies of tiles of rows from device memory into panels of shared memory (panel_sm80.cuh) by all threads of a block,
 * asynchronously, 16 bytes a copy.
 *
 * Shape::CHUNKS is the number of 16-byte chunks in a row and Shape::COPY_STEP the number of rows that the threads cover
 * at once, a multiple of 8 so that a thread's swizzle is the same in all its rows: thread t copies chunk t % CHUNKS of
 * the rows t / CHUNKS + i * COPY_STEP. */
#pragma once
#include <cstdint>

#include "kernels/device/cp_async.cuh"
#include "kernels/device/ldmatrix.cuh"
#include "kernels/device/opaque.cuh"

namespace device {

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
