/* Pairs of thread blocks of the sm_90 backward: two blocks of a cluster, ranks 0 and 1, have adjacent tiles of keys of
 * a kv head and go through the same tiles of queries at the same time.
 *   - Q and lse2 of a step are loaded by the block of rank 0 into both (multicast), dO and -D by that of rank 1. Q has
 *     three stages, dO, which is needed for a shorter time, two; either ring is released to the block that loads.
 *   - Each block computes half of dQ of a step for the keys of both, a pass of 64 x 64 with 256 keys, and adds it to
 *     dq_sum: half as many additions as two blocks with 128 keys each make. Rank r has the columns from 64 r on
 *     (head_dim 128) or the queries from 64 r on (head_dim 64). For that it holds a panel of the other block's K, and
 *     for each step a panel of its dS, which the warps of the other block send when they have stored it.
 * So the second-level cache is read and added to half as often, which costs energy (docs/kernels/sm90_bwd.md).
 * The steps are those of the first tile; warps whose keys fewer queries see pass over the last ones, with zeros as dS.
 * Arrivals at a barrier of the other block have the scope of a block (barriers.cuh). */
#pragma once

#include "kernels/device/barriers.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/sm90/bwd/tiles.cuh"

namespace sm90_bwd {

using namespace device;

constexpr int Q_LOADER = 0, DOUT_LOADER = 1;  /* ranks */
constexpr int WARP_DS_BYTES = 16 * ROW_BYTES; /* a warp's rows of a panel of dS */

/* One thread of a KV warp, whose rows of dS are stored: sends those of the panel that belongs to the other block's half
 * of dQ, and releases dO of the step. `other`: the rank of the other block. */
template <typename Tile>
__device__ __forceinline__ void send_warp_ds(Smem<Tile> &smem, int step, int warp_row, int other)
{
    using S = Traits<Tile>;
    const int buffer = step % 2;
    const uint32_t rows = warp_row * ROW_BYTES;
    const uint32_t from = shared_address(smem.ds[buffer]) + (S::Q_PANELS == 2 ? other * S::KV_PANEL_BYTES : 0) + rows;

    bulk_send(address_in_block(shared_address(smem.dq.other_ds[buffer]) + rows, other), from, WARP_DS_BYTES,
              address_in_block(shared_address(&smem.pair.ds_received[buffer]), other));
    mbarrier_arrive_in_cluster(address_in_block(shared_address(&smem.pair.dout_empty[buffer]), DOUT_LOADER));
}

/* One thread: the warp has finished with a work tile. In a pair rank 0 copies the next ones to both blocks. */
template <typename Tile> __device__ __forceinline__ void release_work(Smem<Tile> &smem, int slot)
{
    const uint32_t empty = shared_address(&smem.work_empty[slot]);

    mbarrier_arrive(empty);
    if (Traits<Tile>::IS_PAIR && pair_rank() != 0)
        mbarrier_arrive_in_cluster(address_in_block(empty, 0));
}

/* One thread: Q or dO of a step into a stage of both blocks, whose statistics arrive at the same barrier. */
template <typename Tile>
__device__ __forceinline__ void load_rows_for_both(const unsigned char *to, const uint64_t *full,
                                                   const CUtensorMap *map, int row, int head, int batch)
{
    using S = Traits<Tile>;
    constexpr int BYTES = S::Q_BYTES + Tile::Q_TILE * int(sizeof(float));
    const uint32_t barrier = shared_address(full);

    mbarrier_arrive_expect(barrier, BYTES);
    mbarrier_arrive_expect_in_cluster(address_in_block(barrier, 1 - pair_rank()), BYTES);
#pragma unroll
    for (int panel = 0; panel < S::PANELS; ++panel)
        tma_load_multicast(shared_address(to) + panel * S::Q_PANEL_BYTES, map, barrier, BOTH_BLOCKS, L2_EVICT_NORMAL,
                           panel * PANEL_COLUMNS, row, head, batch);
}

/* The same for lse2 or -D; `stats`: in device memory. */
template <typename Tile>
__device__ __forceinline__ void load_stats_for_both(const float *to, const uint64_t *full, const float *stats)
{
    bulk_load_multicast(shared_address(to), stats, Tile::Q_TILE * int(sizeof(float)), shared_address(full),
                        BOTH_BLOCKS);
}

} // namespace sm90_bwd
