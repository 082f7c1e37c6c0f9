/* Parts of an item in the workspace of the sm_90 decode: how they are added up by the block that finishes last. Many
 * parts are added up in two steps: those of a group of neighbours (family_decode_fan) in the slot of the group's first
 * part, then the groups. Parts are added in the order of their keys, whoever does it: results do not differ from run to
 * run. */
#pragma once
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/barriers.cuh"
#include "kernels/device/grid_order.cuh"
#include "kernels/sm90/decode/rows.cuh"
#include "kernels/sm90/decode/walk.cuh"

namespace sm90_decode {

/* Neighbouring parts, every step-th one from `first` on. */
struct Addends {
    int first, step, count;
    bool is_all; /* the item's last addition */
};

__device__ __forceinline__ int64_t rows_of_slot(const Params &params)
{
    return params.shape.heads * params.shape.tokens;
}

__device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
        x = fmaxf(x, __shfl_xor_sync(WHOLE_WARP, x, lanes));
    return x;
}

__device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
        x += __shfl_xor_sync(WHOLE_WARP, x, lanes);
    return x;
}

/* A lane's columns of a row, or of 128 columns of it: 2 neighbouring ones in every 64. */
template <typename Tile> struct RowColumns {
    static constexpr int PAIRS = Tile::COLUMNS / 64;
    float2 at[PAIRS];
};

/* What is read of one row: of every addend the lane's columns, and the sums of addend `lane`. */
template <typename Tile> struct AddendRows {
    RowColumns<Tile> o[FAMILY_DECODE_FEW_PARTS];
    float4 sums;
};

/* A row of the tile, and its columns [column, column + Tile::COLUMNS). */
struct RowPiece {
    int row, column;
};

template <typename Tile>
__device__ __forceinline__ void load_addends(AddendRows<Tile> &rows, const Params &params, const Part &part,
                                             const Addends &addends, const RowPiece &piece, int lane)
{
    const int64_t slot_rows = rows_of_slot(params);

    rows.sums = make_float4(-INFINITY, 0.0f, 0.0f, 0.0f);
    if (lane < addends.count)
        rows.sums = __ldcg(params.part_rows +
                           family_decode_slot(&part, addends.first + lane * addends.step) * slot_rows + piece.row);
    const int64_t slot_floats = slot_rows * Tile::HEAD_DIM, step = addends.step * part.slot_step * slot_floats;
    const float *from = params.part_o + (part.base_slot + addends.first * part.slot_step) * slot_floats +
                        piece.row * Tile::HEAD_DIM + piece.column + 2 * lane;
    const float *const first = addends.first == 0 ? from + (part.first_slot - part.base_slot) * slot_floats : from;
#pragma unroll
    for (int i = 0; i < FAMILY_DECODE_FEW_PARTS; ++i) {
#pragma unroll
        for (int j = 0; j < RowColumns<Tile>::PAIRS; ++j)
            rows.o[i].at[j] = i < addends.count
                                  ? __ldcg(reinterpret_cast<const float2 *>((i == 0 ? first : from) + 64 * j))
                                  : make_float2(0.0f, 0.0f);
        from += step;
    }
}

/* The sum of what was read, in the order of the keys: O's columns, and what is known of the row. */
template <typename Tile>
__device__ __forceinline__ RowSums sum_addends(RowColumns<Tile> &o, const AddendRows<Tile> &rows)
{
    const float top = warp_max(rows.sums.x), reference = top == -INFINITY ? 0.0f : top;
    const float weight = exp2_approx(rows.sums.x - reference);

#pragma unroll
    for (int j = 0; j < RowColumns<Tile>::PAIRS; ++j)
        o.at[j] = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int i = 0; i < FAMILY_DECODE_FEW_PARTS; ++i) {
        const float its = __shfl_sync(WHOLE_WARP, weight, i); /* 0 behind the last */
#pragma unroll
        for (int j = 0; j < RowColumns<Tile>::PAIRS; ++j) {
            o.at[j].x = fmaf(its, rows.o[i].at[j].x, o.at[j].x);
            o.at[j].y = fmaf(its, rows.o[i].at[j].y, o.at[j].y);
        }
    }
    return {top, warp_sum(weight * rows.sums.y), warp_sum(weight * rows.sums.z)};
}

/* Where the sum of a row goes: to O and LSE, or to the slot of the first addend, all of whose values have been read.
 * The row's sums are written with its last columns: the columns before them need those of the first addend. */
template <typename T, typename Tile>
__device__ __forceinline__ void store_sum(const RowColumns<Tile> &o, const RowSums &sums, const Params &params,
                                          const PartOf<Tile> &part, const Addends &addends, const Row &where,
                                          const RowPiece &piece, int lane)
{
    constexpr int PAIRS = RowColumns<Tile>::PAIRS;
    const bool writes_sums = lane == 0 && piece.column + Tile::COLUMNS == Tile::HEAD_DIM;

    if (!addends.is_all) {
        const int64_t target = family_decode_slot(&part, addends.first) * rows_of_slot(params) + piece.row;
        float *const to = params.part_o + target * Tile::HEAD_DIM + piece.column + 2 * lane;
        if (writes_sums)
            __stcg(params.part_rows + target, make_float4(sums.max_log2, sums.sum, sums.rounded, 0.0f));
#pragma unroll
        for (int j = 0; j < PAIRS; ++j)
            __stcg(reinterpret_cast<float2 *>(to + 64 * j), o.at[j]);
        return;
    }
    float lse;
    const float scale =
        finish_row(params, sums, where.head, lse) * output_scale<Tile>(params, part, where.head / params.group);
    T *const to = o_row<T>(params, part, where) + piece.column + 2 * lane;
#pragma unroll
    for (int j = 0; j < PAIRS; ++j)
        *reinterpret_cast<uint32_t *>(to + 64 * j) = pack2<T>(o.at[j].x * scale, o.at[j].y * scale);
    if (writes_sums)
        params.lse[lse_index(params, part, where)] = lse;
}

/* Each warp adds up rows. It reads all values of a row, or of 128 columns of it, at once: a row's time is that of a
 * trip to the second-level cache. */
template <typename T, typename Tile>
__device__ __forceinline__ void add_up(const Params &params, const PartOf<Tile> &part, const Addends &addends)
{
    const RowTile tile = row_tile_of(params, part);
    const int lane = threadIdx.x % 32, rows = int(rows_of_slot(params));

#pragma unroll 1
    for (int row = threadIdx.x / 32; row < rows; row += Tile::WARPS) {
        const Row where = row_at(params, tile, row);
        if (!where.exists)
            continue;
#pragma unroll 1
        for (int column = 0; column < Tile::HEAD_DIM; column += Tile::COLUMNS) {
            const RowPiece piece = {row, column};
            AddendRows<Tile> read;
            RowColumns<Tile> o;
            load_addends<Tile>(read, params, part, addends, piece, lane);
            const RowSums sums = sum_addends<Tile>(o, read);
            store_sum<T, Tile>(o, sums, params, part, addends, where, piece, lane);
        }
    }
}

/* Says that the block has written its addend, and whether it is the last one of `count`. All consumers call it. */
template <typename Tile> __device__ __forceinline__ bool arrive_last(SharedStorage<Tile> &smem, int *counter, int count)
{
    bar_sync(CONSUMER_BARRIER, 32 * Tile::WARPS); /* all have written, and read smem.arrived of the step before */
    if (threadIdx.x == 0) {
        smem.arrived = counter_add(counter); /* behind what the others have written, too: the barrier is in between */
    }
    bar_sync(CONSUMER_BARRIER, 32 * Tile::WARPS);
    return smem.arrived == count - 1;
}

/* Behind the stores of a part: the last block of a group adds up its parts, the last group adds up the groups. */
template <typename T, typename Tile>
__device__ __forceinline__ void combine_part(SharedStorage<Tile> &smem, const Params &params, const PartOf<Tile> &part)
{
    static_assert(FAMILY_DECODE_FEW_PARTS * FAMILY_DECODE_FEW_PARTS >= FAMILY_DECODE_MOST_SPLITS &&
                      FAMILY_DECODE_FEW_PARTS * FAMILY_DECODE_FEW_PARTS >= FAMILY_DECODE_MOST_BLOCKS,
                  "no step has more addends than a warp reads at once");
    const int fan = family_decode_fan(part.parts), group = part.number / fan, groups = (part.parts + fan - 1) / fan;
    const int first = group * fan, count = min(part.parts - first, fan);

    grid_wait_for_last(); /* the counters are zero */
    if (!arrive_last(smem, params.counters + family_decode_slot(&part, first), count))
        return;
    add_up<T, Tile>(params, part, {first, 1, count, groups == 1});
    if (groups > 1 &&
        arrive_last(smem, params.counters + family_decode_slots(&params.shape) + family_decode_slot(&part, 0), groups))
        add_up<T, Tile>(params, part, {0, fan, groups, true});
}

} // namespace sm90_decode
