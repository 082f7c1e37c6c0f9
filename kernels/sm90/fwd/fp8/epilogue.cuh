/* The epilogue of the 8-bit sm_90 forward: O = scale_v O' / l and LSE = ln 2 (m - 8 + log2 l) of a warpgroup's rows. A
 * row that sees no key has l = 0: O = 0, LSE = -inf. O goes to device memory through the warp's own part of shared
 * memory. */
#pragma once

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/device/warp_matrix.cuh"
#include "kernels/sm90/fwd/fp8/softmax.cuh"
#include "kernels/sm90/fwd/fp8/tiles.cuh"

namespace sm90_fp8 {

/* Completes the row sums, writes LSE where it is asked for, and says what O is to be multiplied with: 0 in a row that
 * sees no key. `row`: this thread's first one in the sequence. */
__device__ __forceinline__ void finalize_rows(float (&factor)[2], RowState &rows, float scale_v,
                                              const Dense::WorkTile &tile, const Params &params, int row)
{
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float sum = quad_sum(rows.sum[half]);
        const bool sees_none = sum < NO_WEIGHT;
        factor[half] = sees_none ? 0.0f : __fdividef(scale_v, sum);
        if (params.dense.lse != NULL && threadIdx.x % 4 == 0 && row + 8 * half < params.dense.q_len)
            Dense::lse(params.dense, tile)[row + 8 * half] =
                sees_none ? -INFINITY : LN_2 * (rows.max_log2[half] - OFFSET_LOG2 + __log2f(sum));
    }
}

/* This warp's O, rounded, to `stage` in shared memory. In the accumulator row 8 e + r of V transposed is column 2 r + e
 * of 16: a thread has the columns 4 q to 4 q + 3 of each 16. */
template <typename T, typename Tile>
__device__ __forceinline__ void write_rows(uint8_t *stage, const float (&o)[Traits<Tile>::OUTPUTS],
                                           const float (&factor)[2])
{
    const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < Tile::HEAD_DIM / 16; ++i) {
        uint8_t *const to = stage + i / 4 * O_PANEL_BYTES + swizzle_128b(g, i % 4 * 2 + q / 2) + q % 2 * 8;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float *const x = &o[8 * i + 2 * half];
            *reinterpret_cast<uint2 *>(to + half * 1024) = make_uint2(
                pack2<T>(x[0] * factor[half], x[4] * factor[half]), pack2<T>(x[1] * factor[half], x[5] * factor[half]));
        }
    }
}

/* Writes O of this warp's 16 rows from `row` on; rows from q_len on are not written. */
template <typename Tile>
__device__ __forceinline__ void write_output(SharedStorage<Tile> &smem, int consumer,
                                             const float (&o)[Traits<Tile>::OUTPUTS], const float (&factor)[2],
                                             const Dense::WorkTile &tile, const Params &params, int row)
{
    uint8_t *const stage = smem.o[consumer * 4 + threadIdx.x / 32 % 4];
    if (elect_one())
        tma_store_wait_read<0>(); /* of the last tile */
    __syncwarp();
    if (params.has_bf16_output)
        write_rows<__nv_bfloat16, Tile>(stage, o, factor);
    else
        write_rows<__half, Tile>(stage, o, factor);
    async_proxy_fence();
    __syncwarp();
    if (elect_one()) {
#pragma unroll
        for (int panel = 0; panel < Traits<Tile>::O_PANELS; ++panel)
            Dense::store(&params.dense.o, shared_address(stage) + panel * O_PANEL_BYTES, panel * O_PANEL_COLUMNS,
                         Dense::q_place(tile, row));
        tma_store_commit();
    }
}

} // namespace sm90_fp8
