/* What becomes of O at the end of a part of the sm_80 decode: warps that have the same rows and different keys are
 * added up in shared memory; a whole item goes to O and LSE, a part of one to its slot of the workspace. */
#pragma once
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/barriers.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/device/warp_gemm_sm80.cuh"
#include "kernels/sm80/decode/rows.cuh"

namespace sm80_decode {

/* The two rows of a thread, of which four threads share each: sums are those of the thread's columns. */
struct ThreadRows {
    RowSums at[2];
    SeenKeys seen[2];
};

__device__ __forceinline__ int64_t rows_of_slot(const Params &params)
{
    return params.shape.heads * params.shape.tokens;
}

/* What is known of a row over the keys of all warps; weights: what each warp's sum of P V is multiplied with. */
template <typename Tile>
__device__ __forceinline__ RowSums sum_warps(const SharedStorage<Tile> &smem, int row,
                                             float (&weights)[Tile::KEY_WARPS])
{
    float4 sums[Tile::KEY_WARPS];
    RowSums all = {-INFINITY, 0.0f, 0.0f};

#pragma unroll
    for (int i = 0; i < Tile::KEY_WARPS; ++i) {
        sums[i] = smem.sums[i][row];
        all.max_log2 = fmaxf(all.max_log2, sums[i].x);
    }
    const float reference = all.max_log2 == -INFINITY ? 0.0f : all.max_log2;
#pragma unroll
    for (int i = 0; i < Tile::KEY_WARPS; ++i) {
        weights[i] = exp2_approx(sums[i].x - reference);
        all.sum = fmaf(weights[i], sums[i].y, all.sum);
        all.rounded = fmaf(weights[i], sums[i].z, all.rounded);
    }
    return all;
}

/* A row, or four columns of it, that a thread writes. */
struct OutputRow {
    Row where;
    int64_t slot_row; /* in the workspace; -1: the row goes to O */
};

template <typename T, typename Tile>
__device__ __forceinline__ void store_columns(const Params &params, const Part &part, const OutputRow &row, int column,
                                              const float4 &value)
{
    if (row.slot_row >= 0)
        __stcg(reinterpret_cast<float4 *>(params.part_o + row.slot_row * Tile::HEAD_DIM + column), value);
    else
        *reinterpret_cast<uint2 *>(o_row<T>(params, part.sequence, row.where) + column) =
            make_uint2(pack2<T>(value.x, value.y), pack2<T>(value.z, value.w));
}

/* All consumers call it. A thread writes, of some rows, 4 of every 32 columns. */
template <typename T, typename Tile>
__device__ __forceinline__ void store_part(SharedStorage<Tile> &smem, const Params &params, const Part &part,
                                           const RowTile &tile, ThreadRows &rows,
                                           const Accumulator<1, Tile::HEAD_DIM / 8> &o)
{
    constexpr int PASS_ROWS = Tile::CONSUMER_THREADS / 8, OWN = Tile::ROWS / PASS_ROWS;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, quad = lane % 4;
    const int own_row = threadIdx.x / 8, own_column = threadIdx.x % 8 * 4;
    float weights[OWN][Tile::KEY_WARPS];
    OutputRow out[OWN];

#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float sum = quad_sum(rows.at[half].sum), rounded = quad_sum(rows.at[half].rounded);
        if (quad == 0)
            smem.sums[warp / Tile::ROW_WARPS][warp % Tile::ROW_WARPS * 16 + lane / 4 + 8 * half] =
                make_float4(rows.at[half].max_log2, sum, rounded, 0.0f);
    }
    bar_sync(CONSUMER_BARRIER, Tile::CONSUMER_THREADS);
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
        const int row = PASS_ROWS * i + own_row;
        const RowSums sums = sum_warps<Tile>(smem, row, weights[i]);
        out[i] = {row_at(params, tile, row), -1};
        if (!out[i].where.exists)
            continue;
        if (part.parts > 1) {
            out[i].slot_row = family_decode_slot(&part, part.number) * rows_of_slot(params) + row;
            if (own_column == 0)
                __stcg(params.part_rows + out[i].slot_row, make_float4(sums.max_log2, sums.sum, sums.rounded, 0.0f));
            continue;
        }
        float lse;
        const float scale = finish_row(params, sums, out[i].where.head, lse);
        if (own_column == 0)
            params.lse[lse_index(params, part.sequence, out[i].where)] = lse;
#pragma unroll
        for (int k = 0; k < Tile::KEY_WARPS; ++k)
            weights[i][k] *= scale;
    }
#pragma unroll
    for (int column = 0; column < Tile::HEAD_DIM; column += OUT_COLUMNS) {
        float(&mine)[16][OUT_STRIDE] = smem.out[warp];
#pragma unroll
        for (int n = 0; n < OUT_COLUMNS / 8; ++n)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                *reinterpret_cast<float2 *>(&mine[lane / 4 + 8 * half][8 * n + 2 * quad]) =
                    make_float2(o.at[0][column / 8 + n][2 * half], o.at[0][column / 8 + n][2 * half + 1]);
        bar_sync(CONSUMER_BARRIER, Tile::CONSUMER_THREADS);
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
            for (int k = 0; k < Tile::KEY_WARPS; ++k) {
                const int row = PASS_ROWS * i + own_row;
                const float4 its =
                    *reinterpret_cast<const float4 *>(&smem.out[k * Tile::ROW_WARPS + row / 16][row % 16][own_column]);
                sum.x = fmaf(weights[i][k], its.x, sum.x);
                sum.y = fmaf(weights[i][k], its.y, sum.y);
                sum.z = fmaf(weights[i][k], its.z, sum.z);
                sum.w = fmaf(weights[i][k], its.w, sum.w);
            }
            if (out[i].where.exists)
                store_columns<T, Tile>(params, part, out[i], column + own_column, sum);
        }
        bar_sync(CONSUMER_BARRIER, Tile::CONSUMER_THREADS); /* the columns have been read */
    }
}

} // namespace sm80_decode
