/* Where a thread block begins in the row of units (kernels/family/decode_work.h), found by a warp from the lengths of
 * all sequences. */
#pragma once
#include <cstdint>

#include "kernels/device/softmax.cuh"
#include "kernels/sm80/decode/tiles.cuh"

namespace sm80_decode {

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

__device__ __forceinline__ int64_t units_of(const Params &params, int sequence)
{
    return sequence < params.shape.batch ? family_decode_units(&params.shape, __ldg(params.seqused_k + sequence)) : 0;
}

/* All lanes have the result. */
__device__ __forceinline__ family_decode_walk start_walk(const Params &params, int block, int lane)
{
    const int batch = params.shape.batch;
    int64_t total = 0;

#pragma unroll 4
    for (int base = 0; base < batch; base += 32)
        total += units_of(params, base + lane);
    total = __shfl_sync(WHOLE_WARP, sum_so_far(total, lane), 31);
    family_decode_walk walk = family_decode_range(&params.shape, total, block);
    if (walk.next >= walk.end)
        return walk;
    for (int base = 0;; base += 32) {
        const int64_t mine = units_of(params, base + lane), sum = sum_so_far(mine, lane);
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

} // namespace sm80_decode
