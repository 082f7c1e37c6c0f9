/* The invariant mode of the sm_90 decode: leaves and nodes (ragged.h) are parts and groups of combine.cuh, but each is
 * added to the sum of those before it: as a block does it in registers that has several leaves of a node from the first
 * one on. */
#pragma once
#include "kernels/sm90/decode/consumer.cuh"

namespace sm90_decode {

__device__ __forceinline__ RowSums load_sums(const Params &params, int64_t row)
{
    const float4 x = __ldcg(params.part_rows + row);
    return {x.x, x.y, x.z};
}

/* The columns of a row that a lane has, and what else is known of it: to the slot, or, of the last addition, out. */
template <typename T, typename Tile>
__device__ __forceinline__ void store_fold(const float2 (&o)[Tile::HEAD_DIM / 64], const RowSums &sums,
                                           const Params &params, const PartOf<Tile> &part, const Addends &addends,
                                           const RowTile &tile, int row, int lane)
{
    constexpr int PAIRS = Tile::HEAD_DIM / 64;
    const int64_t target = family_decode_slot(&part, addends.first) * rows_of_slot(params) + row;

    if (!addends.is_all) {
        if (lane == 0)
            __stcg(params.part_rows + target, make_float4(sums.max_log2, sums.sum, sums.rounded, 1.0f));
#pragma unroll
        for (int i = 0; i < PAIRS; ++i)
            __stcg(reinterpret_cast<float2 *>(params.part_o + target * Tile::HEAD_DIM + 64 * i + 2 * lane), o[i]);
        return;
    }
    const Row where = row_at(params, tile, row);
    float lse;
    const float scale = finish_row(params, sums, where.head, lse) * output_scale<Tile>(params, part, tile.kv_head);
    T *const to = o_row<T>(params, part, where);
#pragma unroll
    for (int i = 0; i < PAIRS; ++i)
        *reinterpret_cast<uint32_t *>(to + 64 * i + 2 * lane) = pack2<T>(o[i].x * scale, o[i].y * scale);
    if (lane == 0)
        params.lse[lse_index(params, part, where)] = lse;
}

/* What the sum so far and the next addend are multiplied with when it is added. */
struct FoldWeights {
    float before, addend;
};

__device__ __forceinline__ FoldWeights fold_weights(float max_before, float max_addend)
{
    const float top = fmaxf(max_before, max_addend), reference = top == -INFINITY ? 0.0f : top;
    return {exp2_approx(max_before - reference), exp2_approx(max_addend - reference)};
}

/* One rounding of each product, and of each sum: wherever this is compiled. */
__device__ __forceinline__ float fold(float before, float addend, const FoldWeights &weights)
{
    return fmaf(weights.addend, addend, __fmul_rn(weights.before, before));
}

/* A warp adds up one row from left to right, of up to 32 addends, the first of which may have several leaves. */
template <typename T, typename Tile>
__device__ __forceinline__ void fold_row(const Params &params, const PartOf<Tile> &part, const Addends &addends,
                                         const RowTile &tile, int row, int lane)
{
    constexpr int PAIRS = Tile::HEAD_DIM / 64;
    const int64_t slot_rows = rows_of_slot(params);
    const int64_t first_row = family_decode_slot(&part, addends.first) * slot_rows + row;
    const float4 first = __ldcg(params.part_rows + first_row);
    const int contained = addends.step == 1 ? int(first.w) : 1, others = addends.count - contained;
    RowSums sums = {first.x, first.y, first.z}, own = {-INFINITY, 0.0f, 0.0f};
    float2 o[PAIRS];

#pragma unroll
    for (int i = 0; i < PAIRS; ++i)
        o[i] = __ldcg(reinterpret_cast<const float2 *>(params.part_o + first_row * Tile::HEAD_DIM + 64 * i + 2 * lane));
    if (lane < others)
        own = load_sums(params,
                        family_decode_slot(&part, addends.first + (contained + lane) * addends.step) * slot_rows + row);
    float top = own.max_log2; /* of the lanes up to this one */
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const float x = __shfl_up_sync(WHOLE_WARP, top, step);
        top = lane >= step ? fmaxf(top, x) : top;
    }
    const float left = __shfl_up_sync(WHOLE_WARP, top, 1);
    const float before = lane == 0 ? first.x : fmaxf(first.x, left);
    const FoldWeights weights = fold_weights(before, own.max_log2);
#pragma unroll 8
    for (int i = 0; i < others; ++i) {
        const FoldWeights now = {__shfl_sync(WHOLE_WARP, weights.before, i),
                                 __shfl_sync(WHOLE_WARP, weights.addend, i)};
        const int number = addends.first + (contained + i) * addends.step;
        const float *const from =
            params.part_o + (family_decode_slot(&part, number) * slot_rows + row) * Tile::HEAD_DIM + 2 * lane;
        sums.sum = fold(sums.sum, __shfl_sync(WHOLE_WARP, own.sum, i), now);
        sums.rounded = fold(sums.rounded, __shfl_sync(WHOLE_WARP, own.rounded, i), now);
#pragma unroll
        for (int j = 0; j < PAIRS; ++j) {
            const float2 x = __ldcg(reinterpret_cast<const float2 *>(from + 64 * j));
            o[j].x = fold(o[j].x, x.x, now);
            o[j].y = fold(o[j].y, x.y, now);
        }
    }
    sums.max_log2 = fmaxf(first.x, __shfl_sync(WHOLE_WARP, top, 31));
    store_fold<T, Tile>(o, sums, params, part, addends, tile, row, lane);
}

/* Says that the block has written `mine` addends, and whether it is the last one: then the counter is `count`, and 0
 * again for the block's next item. All consumers call it. */
template <typename Tile>
__device__ __forceinline__ bool arrive_with(SharedStorage<Tile> &smem, int *counter, int mine, int count)
{
    bar_sync(CONSUMER_BARRIER, CONSUMER_THREADS); /* all have written, and read smem.arrived of the step before */
    if (threadIdx.x == 0) {
        __threadfence(); /* also for what the others have written: the barrier is in between */
        smem.arrived = atomicAdd(counter, mine) + mine;
        if (smem.arrived == count)
            *counter = 0;
        __threadfence();
    }
    bar_sync(CONSUMER_BARRIER, CONSUMER_THREADS);
    return smem.arrived == count;
}

template <typename T, typename Tile>
__device__ __forceinline__ void fold_up(const Params &params, const PartOf<Tile> &part, const Addends &addends)
{
    const RowTile tile = row_tile_of(params, part);

    for (int row = threadIdx.x / 32; row < int(rows_of_slot(params)); row += CONSUMER_WARPS)
        if (row_at(params, tile, row).exists)
            fold_row<T, Tile>(params, part, addends, tile, row, threadIdx.x % 32);
}

/* Behind the stores of `mine` leaves of the node that begins with leaf `first`. is_sum: they are
 * all of it, and what is in its slot is their sum. */
template <typename T, typename Tile>
__device__ __forceinline__ void combine_leaves(SharedStorage<Tile> &smem, const Params &params,
                                               const PartOf<Tile> &part, int first, int mine, bool is_sum)
{
    const int nodes = (part.parts + part.own.fan - 1) / part.own.fan, count = min(part.parts - first, part.own.fan);
    int *const counters =
        params.counters + family_decode_slot(&part, 0) / params.shape.most_leaves * SM90_DECODE_NODE_COUNTERS;

    grid_wait_for_last(); /* the counters are zero */
    if (!is_sum) {
        if (!arrive_with(smem, counters + first / part.own.fan, mine, count))
            return;
        fold_up<T, Tile>(params, part, {first, 1, count, nodes == 1});
    }
    if (nodes > 1 && arrive_with(smem, counters + SM90_DECODE_NODE_COUNTERS - 1, 1, nodes))
        fold_up<T, Tile>(params, part, {0, part.own.fan, nodes, true});
    bar_sync(CONSUMER_BARRIER, CONSUMER_THREADS); /* the block's next item may have the same slots */
}

/* Are there registers for the sum of a node? Otherwise every leaf goes to its slot, and the sums are the same. */
template <typename Tile> constexpr bool FOLDS_IN_REGISTERS = Tile::HEAD_DIM <= 128 && !Tile::IS_8_BIT;

/* What a block has added up of the leaves of a node, from its first one on. */
template <typename Tile> struct NodeSum {
    RowSums sums[2];
    float o[Tile::OUTPUTS][Tile::COLUMNS / 2];
};

template <typename Tile>
__device__ __forceinline__ void fold_leaf(NodeSum<Tile> &node, const ThreadRows &rows,
                                          const float (&o)[Tile::OUTPUTS][Tile::COLUMNS / 2], bool is_first)
{
    FoldWeights weights[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        RowSums &sums = node.sums[half];
        const RowSums &leaf = rows.at[half];
        if (is_first)
            sums = {-INFINITY, 0.0f, 0.0f};
        weights[half] = fold_weights(sums.max_log2, leaf.max_log2);
        sums = {fmaxf(sums.max_log2, leaf.max_log2), fold(sums.sum, leaf.sum, weights[half]),
                fold(sums.rounded, leaf.rounded, weights[half])};
    }
#pragma unroll
    for (int i = 0; i < Tile::OUTPUTS; ++i)
#pragma unroll
        for (int j = 0; j < Tile::COLUMNS / 2; ++j)
            node.o[i][j] = fold(is_first ? 0.0f : node.o[i][j], o[i][j], weights[j / 2 % 2]);
}

/* Behind the products of leaf `leaf` of the part, in the invariant mode. */
template <typename T, typename Tile>
__device__ __forceinline__ void finish_leaf(SharedStorage<Tile> &smem, const Params &params, const PartOf<Tile> &part,
                                            const RowTile &tile, int first_row, int leaf, const ThreadRows &rows,
                                            const float (&o)[Tile::OUTPUTS][Tile::COLUMNS / 2], NodeSum<Tile> &node)
{
    const int number = part.number + leaf, first = number / part.own.fan * part.own.fan; /* of the node */
    const int end = min(first + part.own.fan, part.parts);
    const bool is_from_first = first >= part.number, is_last = number + 1 == end;
    const int mine = number + 1 - max(first, part.number); /* leaves of the node so far */

    if constexpr (FOLDS_IN_REGISTERS<Tile>) {
        if (is_from_first) {
            fold_leaf(node, rows, o, number == first);
            if (!is_last && leaf + 1 < part.own.leaves)
                return;
            if (is_last && part.parts <= part.own.fan) {
                store_item<T, Tile>(node.o, node.sums, params, part, tile, first_row);
                return;
            }
            store_part<Tile>(node.o, node.sums, params, part, tile, first_row, {first, mine});
            combine_leaves<T, Tile>(smem, params, part, first, mine, is_last);
            return;
        }
    } else if (part.parts == 1) {
        store_item<T, Tile>(o, rows.at, params, part, tile, first_row);
        return;
    }
    store_part<Tile>(o, rows.at, params, part, tile, first_row, {number, 1});
    if (is_last || leaf + 1 == part.own.leaves)
        combine_leaves<T, Tile>(smem, params, part, first, mine, false);
}

template <typename T, typename Tile>
__device__ __forceinline__ void consume_leaves(SharedStorage<Tile> &smem, const Params &params)
{
    const int first_row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    PipelineState<Q_STAGES> q;
    PipelineState<Tile::SLOTS> kv;
    NodeSum<Tile> node;

    for (;; q.advance()) {
        mbarrier_wait(shared_address(&smem.q_full[q.stage]), q.phase);
        const PartOf<Tile> part = smem.part[q.stage];
        if (part.sequence < 0)
            break;
        const RowTile tile = row_tile_of(params, part);
        const PartView view = view_of<T, Tile>(smem, params, part, tile, q);
        const bool is_empty = part.keys_end <= part.keys_begin;
        ThreadRows rows;
        int begin = part.first_tile;
#pragma unroll
        for (int half = 0; half < 2; ++half)
            rows.seen[half] = seen_keys(params, part, row_at(params, tile, first_row + 8 * half).token);
#pragma unroll 1
        for (int leaf = 0; leaf < part.own.leaves; ++leaf) {
            const int end =
                part.own.item_first_tile + sm90_decode_leaf_begin(&part.own, part.parts, part.number + leaf + 1);
            float o[Tile::OUTPUTS][Tile::COLUMNS / 2];
            compute_range<T, Tile>(smem, part, view, {begin, is_empty ? 0 : end - begin, leaf + 1 == part.own.leaves},
                                   rows, o, kv);
            finish_leaf<T, Tile>(smem, params, part, tile, first_row, leaf, rows, o, node);
            begin = end;
        }
    }
}

} // namespace sm90_decode
