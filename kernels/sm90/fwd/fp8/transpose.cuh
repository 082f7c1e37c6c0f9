/* V on its way to the second product, whose operands of 8 bits have to be k-major: rows of V are keys, those of V
 * transposed are columns of V. Warps of the producer's warpgroup read a block of V from shared memory and write it
 * transposed to another place there. Rows and keys are in the order in which they cost least:
 *
 *   keys     of 16 keys, position 4 q + 2 t + e has key 8 t + 2 q + e (q < 4; t, e < 2). The accumulator of S = Q K^T
 *            gives a thread the keys 2 q, 2 q + 1, 2 q + 8, 2 q + 9 of a row, and A in registers wants four positions
 *            that follow each other: P stays in its registers (pack_weights in softmax.cuh).
 *   columns  of 16 columns, row 8 e + r has column 2 r + e (r < 8): the eight rows that an instruction stores lie in
 *            different banks, and a thread has four columns of O that follow each other (epilogue.cuh). */
#pragma once

#include "kernels/device/barriers.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/warp_matrix.cuh"
#include "kernels/sm90/fwd/fp8/tiles.cuh"

namespace sm90_fp8 {

/* A panel whose rows have 128 or 64 bytes, with the 128B or the 64B swizzle: where chunk `chunk` of 16 bytes lies. */
template <int ROW_BYTES> __device__ __forceinline__ uint32_t swizzled(uint32_t row, uint32_t chunk)
{
    if constexpr (ROW_BYTES == 128)
        return swizzle_128b(row, chunk);
    else
        return row * 64u + ((chunk ^ (row >> 1 & 3u)) << 4);
}

/* A transposer's part of a block of keys: columns 16 c to 16 c + 15 of c = transposer, transposer + TRANSPOSERS, ...
 * A load takes 32 keys of these: its register i has the keys 8 i + 2 q, 8 i + 2 q + 1 of the columns 2 r, 2 r + 1, with
 * r = lane / 4 and q = lane % 4. `from` and `to`: the lane's addresses in V and in V transposed, where 32 keys further
 * are 32 bytes further ahead of the swizzle. */
template <typename Tile> __device__ __forceinline__ void transpose_block(const void *raw, const void *v, int transposer)
{
    constexpr int ROW_BYTES = Traits<Tile>::ROW_BYTES, AT_ONCE = 4; /* loads ahead of their stores */
    const int lane = threadIdx.x % 32, matrix = lane / 8, row = lane % 8;
#pragma unroll 1
    for (int c = transposer; c < Tile::HEAD_DIM / 16; c += TRANSPOSERS) {
        const uint32_t from = shared_address(raw) + swizzled<ROW_BYTES>(lane, c);
        const uint32_t to = shared_address(v) + swizzle_128b(16 * c + matrix % 2 * 8 + row, matrix / 2);
#pragma unroll
        for (int keys = 0; keys < Tile::BLOCK_N; keys += 32 * AT_ONCE) {
            uint32_t x[AT_ONCE][4];
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i)
                ldmatrix_x4_trans(x[i], from + (keys + 32 * i) * ROW_BYTES);
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                const uint32_t columns[4] = {
                    __byte_perm(x[i][0], x[i][1], 0x6420), __byte_perm(x[i][0], x[i][1], 0x7531),
                    __byte_perm(x[i][2], x[i][3], 0x6420), __byte_perm(x[i][2], x[i][3], 0x7531)};
                stmatrix_x4(to ^ (keys + 32 * i), columns);
            }
        }
    }
}

/* All blocks of all work tiles of the thread block, in the order in which the producer loads them. */
template <typename Tile> __device__ __forceinline__ void transpose(SharedStorage<Tile> &smem, int transposer)
{
    const bool arrives = threadIdx.x % 32 == 0;
    PipelineState<Q_STAGES> q;
    PipelineState<Tile::RAW_STAGES> raw;
    PipelineState<Tile::V_STAGES> v;

    for (;; q.advance()) {
        mbarrier_wait(shared_address(&smem.work_tile_full[q.stage]), q.phase);
        const int key_blocks = smem.work_tile[q.stage].key_blocks;
        __syncwarp();
        if (arrives)
            mbarrier_arrive(shared_address(&smem.q_empty[q.stage]));
        if (key_blocks == 0)
            break;
#pragma unroll 1
        for (int n = 0; n < key_blocks; ++n) {
            mbarrier_wait(shared_address(&smem.v_empty[v.stage]), v.phase ^ 1);
            mbarrier_wait(shared_address(&smem.raw_full[raw.stage]), raw.phase);
            transpose_block<Tile>(smem.raw[raw.stage], smem.v[v.stage], transposer);
            /* Behind all reads and writes of the warp, ahead of the copy that overwrites V and of the product. */
            async_proxy_fence();
            __syncwarp();
            if (arrives) {
                mbarrier_arrive(shared_address(&smem.v_full[v.stage]));
                mbarrier_arrive(shared_address(&smem.raw_empty[raw.stage]));
            }
            raw.advance();
            v.advance();
        }
    }
}

} // namespace sm90_fp8
