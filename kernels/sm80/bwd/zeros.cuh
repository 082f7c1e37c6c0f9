/* fused_sm80, backward: zeros in dq_sum that blocks write for the next section of kv heads. How they are divided:
 * zero_shares.h. The kernel and its description: kernel.cuh.
 *
 * A block writes its share once its first tiles are on their way, so that this runs while they are waited for. All
 * warps but the last one write; the last one waits meanwhile until the zeros of the block's own section are there.
 * Nothing is added to dq_sum before a barrier of the block behind that. The zeros of a section are written by blocks
 * with smaller numbers, which have started, and write without waiting for anything. */
#pragma once
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/counters.cuh"
#include "kernels/sm80/bwd/tiles.cuh"

namespace sm80_bwd {

using namespace device;

/* All threads of the block call it, ahead of a barrier behind which the first of them adds to dq_sum. `warp` is
 * uniform. */
template <typename Tile> __device__ __forceinline__ void write_next_zeros(const Params &params, uint32_t warp)
{
    constexpr int WRITERS = Traits<Tile>::WARPS - 1, QUADS = SM80_BWD_ROW_STEP * Tile::HEAD_DIM / 4;
    const fused_sm80_bwd_zeros &zeros = params.zeros;
    if (zeros.sections == 0)
        return;
    const int block = blockIdx.x, section = min(quotient(block, params.order.section_blocks), zeros.sections - 1);
    if (warp == WRITERS) {
        if (section >= zeros.preprocessed)
            wait_for_count(params.zeroed + section, fused_sm80_bwd_zeros_of_section(&zeros, section).shares * WRITERS);
        return;
    }
    const fused_sm80_bwd_zero_share share =
        fused_sm80_bwd_zero_share_of(&zeros, section, block - section * params.order.section_blocks.value);
    if (share.count == 0)
        return;
    const uint32_t lane = forget(threadIdx.x) % LANES;
    float4 *to = reinterpret_cast<float4 *>(params.dq_sum) + static_cast<int64_t>(share.first) * QUADS + lane;
#pragma unroll 4
    for (int64_t i = warp * LANES; i < static_cast<int64_t>(share.count) * QUADS; i += WRITERS * LANES)
        to[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    count_stores(params.zeroed + section + 1, lane);
}

} // namespace sm80_bwd
