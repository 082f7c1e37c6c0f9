/* Slabs: 16 rows of 64 columns of a result, as a warp has them in accumulator registers; rounded to 16 bits and written
 * as rows of device memory. sm_90 and newer. */
#pragma once
#include <cstdint>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/warp_matrix.cuh"

namespace device {

constexpr int SLAB_ROWS = 16, SLAB_FLOATS_OF_LANE = 32;
constexpr int VECTOR = 8; /* elements in 16 bytes */

/* Rounds a warp's slab times `scale` and writes it to rows of device memory, by way of 16 rows of 128 bytes of shared
 * memory that are the warp's own. `rows`: as many as exist. */
template <typename T>
__device__ __forceinline__ void write_slab(const float (&slab)[SLAB_FLOATS_OF_LANE], float scale, uint32_t shared,
                                           T *to, int64_t stride_row, int64_t rows, int lane)
{
#pragma unroll
    for (int i = 0; i < SLAB_FLOATS_OF_LANE / 4; i += 2) {
        uint32_t packed[4];
#pragma unroll
        for (int j = 0; j < 4; ++j)
            packed[j] = pack2<T>(slab[4 * i + 2 * j] * scale, slab[4 * i + 2 * j + 1] * scale);
        stmatrix_x4(shared + swizzle_128b(lane % 16, i + lane / 16), packed);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < SLAB_ROWS * 8 / 32; ++i) {
        const int row = i * 4 + lane / 8, chunk = lane % 8;
        if (row < rows)
            store_once(reinterpret_cast<uint4 *>(to + row * stride_row + chunk * VECTOR),
                       load_shared_128(shared + swizzle_128b(row, chunk)));
    }
}

} // namespace device
