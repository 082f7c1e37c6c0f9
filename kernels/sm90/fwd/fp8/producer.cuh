/* The producer of the 8-bit sm_90 forward: one thread that takes work tiles and loads Q, K and V. */
#pragma once

#include "kernels/device/barriers.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/sm90/fwd/fp8/tiles.cuh"

namespace sm90_fp8 {

/* Loads a box of whole rows; `full` waits for its bytes. */
__device__ __forceinline__ void load_rows(const void *stage, const CUtensorMap *map, const uint64_t *full, int bytes,
                                          uint64_t l2_policy, const Dense::Place &place)
{
    const uint32_t barrier = shared_address(full);
    mbarrier_arrive_expect(barrier, bytes);
    Dense::load(shared_address(stage), map, barrier, l2_policy, 0, place);
}

__device__ __forceinline__ int take_work(const Params &params)
{
    if (params.dense.tile_counter == NULL)
        return params.dense.tiles;
    return atomicAdd(params.dense.tile_counter, 1) + static_cast<int>(gridDim.x);
}

/* Q, K and V of all tiles. A block of K is loaded ahead of the same block of V. The wait for a free stage of either
 * never ends later than the consumers' next step: neither holds up the other. The number of the next tile is taken from
 * the counter ahead of the last block of a tile. */
template <typename Tile> __device__ __forceinline__ void produce(SharedStorage<Tile> &smem, const Params &params)
{
    using S = Traits<Tile>;
    PipelineState<Q_STAGES> q;
    PipelineState<Tile::K_STAGES> k;
    PipelineState<Tile::RAW_STAGES> raw;
    int number = blockIdx.x;

#pragma unroll 1
    while (number < params.dense.tiles) {
        const Dense::WorkTile tile = sm90_fwd::work_tile_of<Tile>(params.dense, number);
        const int kv_head = quotient(tile.head, params.dense.group);
        mbarrier_wait(shared_address(&smem.q_empty[q.stage]), q.phase ^ 1);
        smem.work_tile[q.stage] = tile;
        mbarrier_arrive(shared_address(&smem.work_tile_full[q.stage]));
        load_rows(smem.q[q.stage], &params.dense.q, &smem.q_full[q.stage], S::Q_BYTES, L2_EVICT_FIRST,
                  Dense::q_place(tile, tile.first_row));
        q.advance();
#pragma unroll 1
        for (int n = tile.key_blocks - 1; n >= 0; --n) {
            const Dense::Place place = Dense::key_place<Tile>(tile, n, kv_head);
            mbarrier_wait(shared_address(&smem.k_empty[k.stage]), k.phase ^ 1);
            load_rows(smem.k[k.stage], &params.dense.k, &smem.k_full[k.stage], S::KV_BYTES, L2_EVICT_LAST, place);
            k.advance();
            if (n == 0)
                number = take_work(params);
            mbarrier_wait(shared_address(&smem.raw_empty[raw.stage]), raw.phase ^ 1);
            load_rows(smem.raw[raw.stage], &params.dense.v, &smem.raw_full[raw.stage], S::KV_BYTES, L2_EVICT_LAST,
                      place);
            raw.advance();
        }
    }
    mbarrier_wait(shared_address(&smem.q_empty[q.stage]), q.phase ^ 1);
    smem.work_tile[q.stage] = {0, 0, 0, 0}; /* there are no more */
    mbarrier_arrive(shared_address(&smem.work_tile_full[q.stage]));
}

} // namespace sm90_fp8
