/* Pairs of thread blocks of the sm_90 forward: two blocks of a cluster, ranks 0 and 1, have adjacent rows of a query
 * head as a work tile and go through the same blocks of keys at the same time. Each loads half of a block of K or V
 * into both (multicast), so that the second-level cache is read half as often, which costs less energy.
 *
 * A stage is free when the consumers of both blocks have released it: they release it to their own producer, which
 * tells the other one and waits for its word. In a causal problem one block of the two sees a block of keys less and
 * skips it; the blocks take turns with those rows (rows_of_other), so that neither gets ahead of the other for long.
 * Rank 0 takes the numbers of the work tiles from the counter and sends them to rank 1. Arrivals at a barrier of the
 * other block have the scope of a block (barriers.cuh). docs/kernels/sm90_fwd.md. */
#pragma once

#include "kernels/device/barriers.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/sm90/fwd/tiles.cuh"

namespace sm90_fwd {

using namespace device;

/* One thread of each block, ahead of the first cluster_sync. */
template <typename Tile> __device__ __forceinline__ void init_pair(SharedStorage<Tile> &smem)
{
    for (int i = 0; i < Tile::STAGES; ++i) {
        mbarrier_init(shared_address(&smem.pair.other_k_empty[i]), 1);
        mbarrier_init(shared_address(&smem.pair.other_v_empty[i]), 1);
    }
    for (int i = 0; i < 2; ++i)
        mbarrier_init(shared_address(&smem.pair.next_work_full[i]), 1);
}

/* One thread of each block, when the own consumers have released a stage: waits until those of the other block have,
 * and loads half of block n of K or V into both. `full`, `other_empty`: of the stage; `phase`: of the load. */
template <typename Tile>
__device__ __forceinline__ void load_half_for_both(const void *stage, const CUtensorMap *map, const uint64_t *full,
                                                   const uint64_t *other_empty, uint32_t phase, int n, int kv_head,
                                                   const WorkTileOf<Tile> &tile)
{
    using S = Traits<Tile>;
    const int first_key = pair_rank() * (Tile::BLOCK_N / 2);
    const typename Tile::Work::Place place = Tile::Work::template key_place<Tile>(tile, n, kv_head);
    const uint32_t barrier = shared_address(full), to = shared_address(stage) + first_key * ROW_BYTES;

    mbarrier_arrive_expect(barrier, S::PANELS * S::KV_PANEL_BYTES); /* both halves */
    mbarrier_arrive_in_cluster(address_in_block(shared_address(other_empty), 1 - pair_rank()));
    mbarrier_wait(shared_address(other_empty), phase);
#pragma unroll
    for (int panel = 0; panel < S::PANELS; ++panel)
        tma_load_multicast(to + panel * S::KV_PANEL_BYTES, map, barrier, BOTH_BLOCKS, L2_EVICT_LAST,
                           panel * PANEL_COLUMNS, place.row + first_key, place.head, place.batch);
}

/* The first row of the other block of the pair, from the own one of the same work tile. */
template <typename Tile> __device__ __forceinline__ int rows_of_other(int first_row)
{
    return first_row / Tile::BLOCK_M % 2 == 0 ? first_row + Tile::BLOCK_M : first_row - Tile::BLOCK_M;
}

/* One thread of each block: the number of the next work tile. */
template <typename Tile>
__device__ __forceinline__ int take_work_of_pair(SharedStorage<Tile> &smem, const Params &params, PipelineState<2> &at)
{
    const uint32_t full = shared_address(&smem.pair.next_work_full[at.stage]);
    int *const number = &smem.pair.next_work[at.stage];
    int next;

    if (pair_rank() == 0) {
        next = atomicAdd(params.tile_counter, 1) + static_cast<int>(gridDim.x) / 2;
        send_in_cluster(address_in_block(shared_address(number), 1), next, address_in_block(full, 1));
    } else {
        mbarrier_arrive_expect(full, sizeof *number);
        mbarrier_wait(full, at.phase);
        next = *static_cast<volatile int *>(number);
    }
    at.advance();
    return next;
}

/* At the end of a producer's and of a consumer's work: until the other block has come here, too, it may arrive at
 * barriers of this one and load into it. The other threads of a producer's warp must end before and not come here:
 * while they wait, the producer does not sleep at a barrier, and takes instruction slots from the consumers. */
__device__ __forceinline__ void leave_pair() { cluster_sync(); }

} // namespace sm90_fwd
