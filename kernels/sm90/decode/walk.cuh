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

/* Which units a sequence has depends on the type of the parts. */
template <typename Tile> __device__ __forceinline__ int64_t units_of(const Params &params, int sequence)
{
    if constexpr (!std::is_same_v<PartOf<Tile>, Part>) {
        const sm90_decode_lengths lengths = lengths_of(params);
        if (sequence >= params.shape.batch)
            return 0;
        const sm90_decode_sequence own = sm90_decode_sequence_at(&params.shape, &lengths, sequence);
        return sm90_decode_ragged_units(&params.shape, &own);
    }
    return sequence < params.shape.batch ? family_decode_units(&params.shape, __ldg(params.seqused_k + sequence)) : 0;
}

/* All lanes have the result. */
template <typename Tile>
__device__ __forceinline__ family_decode_walk start_walk(const Params &params, int block, int lane)
{
    const int batch = params.shape.batch;
    int64_t total = 0;

#pragma unroll 4
    for (int base = 0; base < batch; base += 32)
        total += units_of<Tile>(params, base + lane);
    total = __shfl_sync(WHOLE_WARP, sum_so_far(total, lane), 31);
    family_decode_walk walk = family_decode_range(&params.shape, total, block);
    if (walk.next >= walk.end)
        return walk;
    for (int base = 0;; base += 32) {
        const int64_t mine = units_of<Tile>(params, base + lane), sum = sum_so_far(mine, lane);
        const unsigned behind = __ballot_sync(WHOLE_WARP, walk.next < walk.first + sum);
        if (behind != 0) {
            const int found = __ffs(behind) - 1;
            walk.sequence = base + found;
            walk.first += __shfl_sync(WHOLE_WARP, sum - mine, found);
            break;
        }
        walk.first += __shfl_sync(WHOLE_WARP, sum, 31);
    }
    walk.used = __ldg(params.seqused_k + walk.sequence);
    return walk;
}

/* The block's next part. */
__device__ __forceinline__ bool next_part(const Params &params, family_decode_walk &walk, Part &part)
{
    return family_decode_next(&params.shape, params.seqused_k, &walk, &part);
}

__device__ __forceinline__ bool next_part(const Params &params, family_decode_walk &walk, RaggedPart &part)
{
    const sm90_decode_lengths lengths = lengths_of(params);
    return sm90_decode_next_ragged(&params.shape, &lengths, &walk, &part, &part.own);
}

} // namespace sm90_decode
