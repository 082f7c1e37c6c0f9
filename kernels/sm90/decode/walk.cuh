/* Where a thread block begins in the row of units (decode_work.h), found by a warp from the lengths of all sequences.
 * */
#pragma once
#include <cstdint>
#include <type_traits>

#include "kernels/device/softmax.cuh"
#include "kernels/sm90/decode/tiles.cuh"

namespace sm90_decode {

using namespace device;

/* The sum of the lanes' values up to this one. */
__device__ __forceinline__ int64_t sum_so_far(int64_t x, int lane)
{
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int64_t before = __shfl_up_sync(WHOLE_WARP, x, step);
        x += lane >= step ? before : 0;
    }
    return x;
}

__device__ __forceinline__ sm90_decode_lengths lengths_of(const Params &params)
{
    return {params.seqused_k, params.cu_seqlens_q};
}

/* The shape, in which the compiler knows what is a constant of the kernel: divisions become shifts. */
template <typename Tile> __device__ __forceinline__ family_decode_shape shape_of(const Params &params)
{
    family_decode_shape shape = params.shape;
    shape.tile_keys = Tile::TILE_KEYS;
    return shape;
}

/* Which units a sequence has depends on the type of the parts. used: its keys, where it has no rows of its own. */
template <typename Tile> __device__ __forceinline__ int64_t units_of(const Params &params, int sequence, int used)
{
    const family_decode_shape shape = shape_of<Tile>(params);
    if constexpr (!std::is_same_v<PartOf<Tile>, Part>) {
        const sm90_decode_lengths lengths = lengths_of(params);
        if (sequence >= shape.batch)
            return 0;
        const sm90_decode_sequence own = sm90_decode_sequence_at(&shape, &lengths, sequence);
        return sm90_decode_ragged_units(&shape, &own);
    }
    return sequence < shape.batch ? family_decode_units(&shape, used) : 0;
}

/* The keys of a sequence; of one behind the last 0. */
__device__ __forceinline__ int used_of(const Params &params, int sequence)
{
    return sequence < params.shape.batch ? __ldg(params.seqused_k + sequence) : 0;
}

/* All lanes have the result. first_used: used_of `lane`, which the caller has read early. */
template <typename Tile>
__device__ __forceinline__ family_decode_walk start_walk(const Params &params, int block, int lane, int first_used)
{
    const int batch = params.shape.batch;
    int64_t total = units_of<Tile>(params, lane, first_used);

#pragma unroll 4
    for (int base = 32; base < batch; base += 32)
        total += units_of<Tile>(params, base + lane, used_of(params, base + lane));
    total = __shfl_sync(WHOLE_WARP, sum_so_far(total, lane), 31);
    family_decode_walk walk = family_decode_range(&params.shape, total, block);
    if (walk.next >= walk.end)
        return walk;
    for (int base = 0;; base += 32) {
        const int used = base == 0 ? first_used : used_of(params, base + lane);
        const int64_t mine = units_of<Tile>(params, base + lane, used), sum = sum_so_far(mine, lane);
        const unsigned behind = __ballot_sync(WHOLE_WARP, walk.next < walk.first + sum);
        if (behind != 0) {
            const int found = __ffs(behind) - 1;
            walk.sequence = base + found;
            walk.first += __shfl_sync(WHOLE_WARP, sum - mine, found);
            walk.used = __shfl_sync(WHOLE_WARP, used, found);
            return walk;
        }
        walk.first += __shfl_sync(WHOLE_WARP, sum, 31);
    }
}

/* The item of a block's cluster. */
struct ClusterItem {
    int sequence, item;
};

__device__ __forceinline__ ClusterItem cluster_item(const Params &params)
{
    const int number = blockIdx.x / params.cluster;
    const int sequence = params.shape.batch == 1 ? 0 : number / params.shape.items;

    return {sequence, number - sequence * params.shape.items};
}

/* The block's part of it, which may have no tiles. */
template <typename Tile>
__device__ __forceinline__ Part cluster_part(const Params &params, const ClusterItem &own, int used)
{
    const family_decode_shape shape = shape_of<Tile>(params);
    const family_decode_keys keys = family_decode_keys_of(&shape, used);
    const int rank = blockIdx.x % params.cluster; /* 2, 4 or 8 blocks: a tile's number times 8 is an int */
    const int begin = keys.tiles * rank / params.cluster, end = keys.tiles * (rank + 1) / params.cluster;

    return {own.sequence,   own.item, keys.begin, keys.end, keys.first_tile + begin, end - begin, rank,
            params.cluster, 0,        0,          0};
}

/* The block's next part. */
template <typename Tile>
__device__ __forceinline__ bool next_part(const Params &params, family_decode_walk &walk, Part &part)
{
    const family_decode_shape shape = shape_of<Tile>(params);
    return family_decode_next(&shape, params.seqused_k, &walk, &part);
}

template <typename Tile>
__device__ __forceinline__ bool next_part(const Params &params, family_decode_walk &walk, RaggedPart &part)
{
    const family_decode_shape shape = shape_of<Tile>(params);
    const sm90_decode_lengths lengths = lengths_of(params);
    return sm90_decode_next_ragged(&shape, &lengths, &walk, &part, &part.own);
}

} // namespace sm90_decode
