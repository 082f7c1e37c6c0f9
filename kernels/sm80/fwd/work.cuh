/* fused_sm80, forward: which rows a block computes, what they see, and where their output goes. */
#pragma once
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/sm80/fwd/tiles.cuh"

namespace sm80_fwd {

/* ---- work ----------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ WorkTile work_tile_of_block(const Params &params, int block_m, int block)
{
    const int bulk_blocks = params.bulk_heads * params.row_tiles, section_blocks = params.group * params.row_tiles;
    int first_head = params.bulk_heads, heads = params.heads_total - params.bulk_heads, within = block - bulk_blocks;
    if (within < 0) {
        first_head = block / section_blocks * params.group;
        heads = params.group;
        within = block % section_blocks;
    }
    const int head = first_head + within % heads;
    return {head / params.q_heads, head % params.q_heads, (params.row_tiles - 1 - within / heads) * block_m};
}

/* The same by divisors that the host has prepared, of all kernels but the dense ones, where it was not tried. */
__device__ __forceinline__ WorkTile ordered_work_tile(const Params &params, int block_m, int block)
{
    const fused_sm80_order &order = params.order;
    const int bulk_blocks = params.bulk_heads * params.row_tiles;
    int first_head = params.bulk_heads, tile, head;
    if (block < bulk_blocks) {
        const int section = quotient(block, order.section_blocks);
        const int within = block - section * order.section_blocks.value;
        tile = quotient(within, order.group);
        first_head = section * params.group;
        head = within - tile * params.group;
    } else {
        tile = quotient(block - bulk_blocks, order.tail_heads);
        head = block - bulk_blocks - tile * order.tail_heads.value;
    }
    head += first_head;
    const int batch = quotient(head, order.q_heads);
    return {batch, head - batch * params.q_heads, (params.row_tiles - 1 - tile) * block_m};
}

__device__ __forceinline__ FamilyWork family_work_of_block(const Params &params, int block_m, int block)
{
    const fused_sm80_family &family = params.family;
    FamilyWork work;
    if (family.order.work == NULL) {
        const WorkTile tile = ordered_work_tile(params, block_m, block);
        work.head = tile.head;
        work.first_row = tile.first_row;
        work.own = 0;
        work.sequence = sequence_at(family.lengths, tile.batch, params.q_len, params.kv_len);
    } else {
        const int number = quotient(block, family.order.heads);
        const family_work tile = family.order.work[number];
        work.head = tile.head + block - number * family.order.heads.value;
        work.first_row = tile.tile * block_m;
        work.own = family.lengths.cu_seqlens_q == NULL ? tile.tile : number;
        work.sequence.number = tile.sequence;
        if (tile.sequence >= 0)
            work.sequence = sequence_at(family.lengths, tile.sequence, params.q_len, params.kv_len);
    }
    return work;
}

/* ---- output --------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ float *lse_of(const Params &params, const WorkTile &work)
{
    return params.lse + (int64_t(work.batch) * params.q_heads + work.head) * params.q_len;
}

__device__ __forceinline__ float *lse_of(const Params &params, const FamilyWork &work)
{
    return params.lse + lse_offset(params.family.lengths, work.sequence, work.head, params.q_heads);
}

template <typename T> __device__ __forceinline__ T *output_of(const Params &params, const WorkTile &work)
{
    return static_cast<T *>(params.o) + work.batch * params.o_strides.batch + work.head * params.o_strides.head;
}

template <typename T> __device__ __forceinline__ T *output_of(const Params &params, const FamilyWork &work)
{
    return reinterpret_cast<T *>(
        family_head(params, params.o, params.o_strides, work.sequence, work.sequence.q_first, work.head));
}

/* Adds exp(sink) to the `sum` of a row, which is relative to 2^max_log2. Returns what O is to be multiplied with for
 * the maximum that is in use then. */
__device__ __forceinline__ float add_sink(float &sum, float &max_log2, float sink)
{
    const float sink_log2 = sink * LOG2_E, larger = fmaxf(max_log2, sink_log2);
    const float factor = exp2_approx(max_log2 - larger); /* 0 where the row sees no key */
    sum = fmaf(sum, factor, exp2_approx(sink_log2 - larger));
    max_log2 = larger;
    return factor;
}

/* O and LSE of the warp's rows, not of dense attention (store_dense_output); O goes through the warp's own rows of
 * shared memory to become 16-byte stores. */
template <typename T, typename Tile, typename Attributes>
__device__ __forceinline__ void store_output(const Accumulators<Tile> &acc, const Params &params,
                                             const FamilyWork &work, uint16_t *s_o)
{
    constexpr int ROW_CHUNKS = Traits<Tile>::V_CHUNKS;
    constexpr bool BY_PANELS = Attributes::FAMILY || WARP % ROW_CHUNKS != 0;
    constexpr int CHUNKS = BY_PANELS ? 8 : ROW_CHUNKS; /* that one store of a warp takes from a row */
    constexpr int ROWS_AT_ONCE = WARP / CHUNKS, PANELS = BY_PANELS ? (ROW_CHUNKS + 7) / 8 : 1;
    constexpr int PANEL_BYTES = Tile::BLOCK_M * 128;
    const int thread = forget(threadIdx.x), lane = thread % WARP, warp_row = thread / WARP * Traits<Tile>::ROWS;
    const int first_row = work.first_row + warp_row, rows = work.sequence.q_len - first_row;
    const uint32_t shared = shared_address(s_o) + warp_row * 128;
    float *lse = lse_of(params, work) + first_row;
    float factor[Traits<Tile>::ROW_TILES][2];

#pragma unroll
    for (int m = 0; m < Traits<Tile>::ROW_TILES; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = 16 * m + 8 * half + lane / 4;
            float sum = SUM_BY_MMA<T, Tile, Attributes> ? acc.sum[m][2 * half] : quad_sum(acc.sum[m][2 * half]);
            float max_log2 = acc.max_log2[m][half];
            [[maybe_unused]] float of_sink = 1.0f;
            if (Attributes::SCORE && params.score.sinks != NULL)
                of_sink = add_sink(sum, max_log2, params.score.sinks[work.head]);
            float inverse = sum == 0.0f ? 0.0f : __fdividef(1.0f, sum);
            if (Attributes::SCORE)
                inverse *= of_sink;
            factor[m][half] = Attributes::DROPOUT ? inverse * params.family.dropout.keep_factor : inverse;
            if (lane % 4 == 0 && row < rows)
                lse[row] = sum == 0.0f ? -INFINITY : LN_2 * (max_log2 + log2f(sum));
        }
    __syncwarp(); /* all lanes have read their Q */
#pragma unroll
    for (int d = 0; d < ROW_CHUNKS; ++d) {
        const uint32_t to = shared + swizzle_128b(lane / 4, d % 8) + lane % 4 * 4; /* as of all rows eight further */
#pragma unroll
        for (int m = 0; m < Traits<Tile>::ROW_TILES; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                store_shared_32(
                    to + d / 8 * PANEL_BYTES + (16 * m + 8 * half) * 128,
                    pack2<T>(acc.o[m][d][2 * half] * factor[m][half], acc.o[m][d][2 * half + 1] * factor[m][half]));
    }
    __syncwarp();

    const int row = lane / CHUNKS, chunk = lane % CHUNKS;
    T *o = output_of<T>(params, work) + (first_row + row) * params.o_strides.row + chunk * 8;
#pragma unroll
    for (int i = 0; i < Traits<Tile>::ROWS; i += ROWS_AT_ONCE) {
        const uint32_t from = shared + chunk / 8 * PANEL_BYTES + i / 8 * 8 * 128 + swizzle_128b(i % 8 + row, chunk % 8);
#pragma unroll
        for (int panel = 0; panel < PANELS; ++panel)
            if (i + row < rows && (!BY_PANELS || panel * 64 + chunk * 8 < params.family.head_dim))
                *reinterpret_cast<uint4 *>(o + panel * 64) = load_shared_128(from + panel * PANEL_BYTES);
        o += ROWS_AT_ONCE * params.o_strides.row;
        keep_pointer(o);
    }
}

} // namespace sm80_fwd
