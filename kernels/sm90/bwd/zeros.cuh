/* Zeros in dq_sum, the fp32 sums of dQ of the sm_90 backward. Where blocks take one work tile after the other they
 * write those of a later section of kv heads (struct sm90_bwd_zeros) while the tensor cores compute, so that
 * preprocess, which is bound by device memory, writes those of the first sections alone.
 *
 * The dQ warpgroup writes a share at the start of a work tile, while the KV warpgroups begin with it. The producer
 * waits for all shares of a section before it loads a work tile's first queries, without which nothing is added to
 * dq_sum. It waits for work tiles with smaller numbers, which are running or done. */
#pragma once

#include "kernels/device/grid_order.cuh"
#include "kernels/sm90/bwd/tiles.cuh"

namespace sm90_bwd {

using namespace device;

/* Warps of a block that write: those of the dQ warpgroup but the first, the producer. */
template <typename Tile> constexpr int ZERO_WARPS = Traits<Tile>::DQ_WARPS - 1;

/* The work tile's share of the zeros, by warps 1 to ZERO_WARPS of each of its blocks. A warp stays together here, so
 * that the assembler keeps its values in uniform registers behind this. */
template <typename Tile>
__device__ __forceinline__ void write_zeros(const Params &params, const WorkTile &work, int warp, int lane)
{
    constexpr int FLOAT4S = ROW_BLOCK_FLOATS<Tile::HEAD_DIM> / 4;
    const int section = keep_uniform(work.section);
    const int first_work = section * params.section_heads * params.head_works;
    const struct sm90_bwd_zero_share share =
        sm90_bwd_zero_share_of(&params.zeros, section, keep_uniform(work.number) - first_work);

    if (share.count == 0)
        return;
    float4 *to = reinterpret_cast<float4 *>(params.dq_sum) + int64_t(share.first) * FLOAT4S + lane;
    const int rank = Traits<Tile>::IS_PAIR ? pair_rank() : 0;
#pragma unroll 1
    for (int64_t i = (rank * ZERO_WARPS<Tile> + warp - 1) * LANES; i < int64_t(share.count) * FLOAT4S;
         i += Traits<Tile>::CLUSTER * ZERO_WARPS<Tile> * LANES)
        to[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    semaphore_release_stores(params.zeroed + share.section);
}

/* Waits for the zeros of a section. The whole warp calls it. */
template <typename Tile> __device__ __forceinline__ void wait_for_zeros(const Params &params, int section)
{
    if (section < params.zeros.preprocessed)
        return;
    semaphore_wait(params.zeroed + section,
                   sm90_bwd_zero_shares(&params.zeros, section) * ZERO_WARPS<Tile> * Traits<Tile>::CLUSTER);
}

} // namespace sm90_bwd
