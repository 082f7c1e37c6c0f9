/* Parts of an item in the workspace of the sm_90 decode: how they are added up by the block that finishes last. Many
 * parts are added up in two steps: those of a group of neighbours (sm90_decode_fan) in the slot of the group's first
 * part, then the groups. Parts are added in the order of their keys, whoever does it: results do not differ from run to
 * run. */
#pragma once
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/barriers.cuh"
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

__device__ __forceinline__ RowSums load_sums(const Params &params, int64_t row)
{
    const float4 x = __ldcg(params.part_rows + row);
    return {x.x, x.y, x.z};
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

/* o += weight * the lane's columns of a row of a slot: 2 neighbouring ones in every 64. */
template <int PAIRS>
__device__ __forceinline__ void add_row(float2 (&o)[PAIRS], const float *row, float weight, int lane)
{
#pragma unroll
    for (int i = 0; i < PAIRS; ++i) {
        const float2 x = __ldcg(reinterpret_cast<const float2 *>(row + 64 * i + 2 * lane));
        o[i].x = fmaf(weight, x.x, o[i].x);
        o[i].y = fmaf(weight, x.y, o[i].y);
    }
}

/* A warp adds up one row, `row` within the tile, of all addends. */
template <typename T, typename Tile>
__device__ __forceinline__ void add_up_row(const Params &params, const Part &part, const Addends &addends,
                                           const RowTile &tile, int row, int lane)
{
    constexpr int PAIRS = Tile::HEAD_DIM / 64;
    const int64_t slot_rows = rows_of_slot(params);
    const int64_t target = sm90_decode_slot(&part, addends.first) * slot_rows + row;
    float top = -INFINITY, sum = 0.0f, rounded = 0.0f;
    float2 o[PAIRS];

#pragma unroll
    for (int i = 0; i < PAIRS; ++i)
        o[i] = make_float2(0.0f, 0.0f);
    for (int i = lane; i < addends.count; i += 32)
        top = fmaxf(
            top,
            load_sums(params, sm90_decode_slot(&part, addends.first + i * addends.step) * slot_rows + row).max_log2);
    top = warp_max(top);
    const float reference = top == -INFINITY ? 0.0f : top;
    for (int base = 0; base < addends.count; base += 32) {
        float weight = 0.0f;
        if (base + lane < addends.count) {
            const int number = addends.first + (base + lane) * addends.step;
            const RowSums sums = load_sums(params, sm90_decode_slot(&part, number) * slot_rows + row);
            weight = exp2_approx(sums.max_log2 - reference);
            sum = fmaf(weight, sums.sum, sum);
            rounded = fmaf(weight, sums.rounded, rounded);
        }
#pragma unroll 8
        for (int i = 0; i < min(addends.count - base, 32); ++i) {
            const int number = addends.first + (base + i) * addends.step;
            const float *const from =
                params.part_o + (sm90_decode_slot(&part, number) * slot_rows + row) * Tile::HEAD_DIM;
            add_row(o, from, __shfl_sync(WHOLE_WARP, weight, i), lane);
        }
    }
    const RowSums sums = {top, warp_sum(sum), warp_sum(rounded)};
    if (!addends.is_all) { /* all lanes have read what is overwritten: the sums above */
        if (lane == 0)
            __stcg(params.part_rows + target, make_float4(sums.max_log2, sums.sum, sums.rounded, 0.0f));
#pragma unroll
        for (int i = 0; i < PAIRS; ++i)
            __stcg(reinterpret_cast<float2 *>(params.part_o + target * Tile::HEAD_DIM + 64 * i + 2 * lane), o[i]);
        return;
    }
    const Row where = row_at(params, tile, row);
    float lse;
    const float scale = finish_row(params, sums, where.head, lse);
    T *const to = o_row<T>(params, part.sequence, where);
#pragma unroll
    for (int i = 0; i < PAIRS; ++i)
        *reinterpret_cast<uint32_t *>(to + 64 * i + 2 * lane) = pack2<T>(o[i].x * scale, o[i].y * scale);
    if (lane == 0)
        params.lse[lse_index(params, part.sequence, where)] = lse;
}

/* Says that the block has written its addend, and whether it is the last one of `count`. All consumers call it. */
template <typename Tile> __device__ __forceinline__ bool arrive_last(SharedStorage<Tile> &smem, int *counter, int count)
{
    __threadfence();
    bar_sync(CONSUMER_BARRIER, CONSUMER_THREADS);
    if (threadIdx.x == 0) {
        smem.arrived = atomicAdd(counter, 1);
        __threadfence();
    }
    bar_sync(CONSUMER_BARRIER, CONSUMER_THREADS);
    const bool is_last = smem.arrived == count - 1;
    bar_sync(CONSUMER_BARRIER, CONSUMER_THREADS); /* smem.arrived is written again in the next step */
    return is_last;
}

template <typename T, typename Tile>
__device__ __forceinline__ void add_up(const Params &params, const Part &part, const Addends &addends)
{
    const RowTile tile = row_tile_of(params, part);

    for (int row = threadIdx.x / 32; row < int(rows_of_slot(params)); row += CONSUMER_WARPS)
        if (row_at(params, tile, row).exists)
            add_up_row<T, Tile>(params, part, addends, tile, row, threadIdx.x % 32);
}

/* Behind the stores of a part: the last block of a group adds up its parts, the last group adds up the groups. */
template <typename T, typename Tile>
__device__ __forceinline__ void combine_part(SharedStorage<Tile> &smem, const Params &params, const Part &part)
{
    const int fan = sm90_decode_fan(part.parts), group = part.number / fan, groups = (part.parts + fan - 1) / fan;
    const int first = group * fan, count = min(part.parts - first, fan);

    if (!arrive_last(smem, params.counters + sm90_decode_slot(&part, first), count))
        return;
    add_up<T, Tile>(params, part, {first, 1, count, groups == 1});
    if (groups > 1 &&
        arrive_last(smem, params.counters + sm90_decode_slots(&params.shape) + sm90_decode_slot(&part, 0), groups))
        add_up<T, Tile>(params, part, {0, fan, groups, true});
}

} // namespace sm90_decode
