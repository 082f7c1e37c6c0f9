/* The producers of the sm_90 forward: two threads in two warps that issue TMA loads, one of Q and K, the other of V. */
#pragma once

#include "kernels/device/barriers.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/grid_order.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/sm90/fwd/pair.cuh"
#include "kernels/sm90/fwd/policies.cuh"

namespace sm90_fwd {

/* All panels of one box of rows. */
template <typename Tile, int PANEL_BYTES>
__device__ __forceinline__ void load_panels(const void *stage, const CUtensorMap *map, const uint64_t *full,
                                            uint64_t l2_policy, const typename Tile::Work::Place &place)
{
    const uint32_t barrier = shared_address(full);
    mbarrier_arrive_expect(barrier, Traits<Tile>::PANELS * PANEL_BYTES);
#pragma unroll
    for (int panel = 0; panel < Traits<Tile>::PANELS; ++panel)
        Tile::Work::load(shared_address(stage) + panel * PANEL_BYTES, map, barrier, l2_policy, panel * PANEL_COLUMNS,
                         place);
}

template <typename Tile>
__device__ __forceinline__ void load_q(SharedStorage<Tile> &smem, const Params &params, int stage,
                                       const WorkTileOf<Tile> &tile)
{
    load_panels<Tile, Traits<Tile>::Q_PANEL_BYTES>(smem.q[stage], &params.q, &smem.q_full[stage], L2_EVICT_FIRST,
                                                   Tile::Work::q_place(tile, tile.first_row));
}

/* Block n of K or V. */
template <typename Tile>
__device__ __forceinline__ void load_key_block(const void *stage, const CUtensorMap *map, const uint64_t *full, int n,
                                               int kv_head, const WorkTileOf<Tile> &tile)
{
    load_panels<Tile, Traits<Tile>::KV_PANEL_BYTES>(stage, map, full, L2_EVICT_LAST,
                                                    Tile::Work::template key_place<Tile>(tile, n, kv_head));
}

/* Says which work tile a stage of Q will hold. The other producer and the consumers wait for it. */
template <typename Tile, bool HAS_PARTS>
__device__ __forceinline__ void publish_work_tile(SharedStorage<Tile> &smem, int stage, const WorkTileOf<Tile> &tile,
                                                  const KeyPart &keys)
{
    smem.work_tile[stage] = tile;
    if constexpr (HAS_PARTS)
        smem.key_part[stage] = keys;
    mbarrier_arrive(shared_address(&smem.work_tile_full[stage]));
}

/* The prologue's loads: the first Q, K and V, into stages that nobody has used. They are issued while the barriers are
 * being initialised and not in the producers, whose instructions have to be fetched from memory first. A pair loads K
 * and V in the producers: until then the other block's barriers may not be there. Returns the block's first tile. */
template <typename Tile>
__device__ __forceinline__ WorkTileOf<Tile> load_prologue(SharedStorage<Tile> &smem, const Params &params)
{
    const WorkTileOf<Tile> tile = work_tile_of<Tile>(params, blockIdx.x / Tile::CLUSTER);
    load_q<Tile>(smem, params, 0, tile);
    if constexpr (Traits<Tile>::IS_PAIR)
        return tile;
    const int kv_head = quotient(tile.head, params.group);
    load_key_block<Tile>(smem.k[0], &params.k, &smem.k_full[0], tile.key_blocks - 1, kv_head, tile);
    load_key_block<Tile>(smem.v[0], &params.v, &smem.v_full[0], tile.key_blocks - 1, kv_head, tile);
    return tile;
}

/* The number of the next work tile; params.tiles or more: there is none. */
template <typename Tile>
__device__ __forceinline__ int take_work(SharedStorage<Tile> &smem, const Params &params, PipelineState<2> &at)
{
    if (params.tile_counter == NULL)
        return params.tiles;
    if constexpr (Traits<Tile>::IS_PAIR)
        return take_work_of_pair(smem, params, at);
    return atomicAdd(params.tile_counter, 1) + static_cast<int>(gridDim.x) * Tile::HALVES;
}

/* Q and K of all tiles. The number of the next tile is taken from the counter before the last two blocks of keys of a
 * tile are loaded: early enough to hide the latency of the counter. It is not taken earlier, so that thread blocks take
 * tiles in about the order in which they finish their last ones. */
template <typename Tile, bool HAS_PARTS>
__device__ __forceinline__ void produce_qk(SharedStorage<Tile> &smem, const Params &params)
{
    PipelineState<Q_STAGES> q;
    PipelineState<Tile::STAGES> k;
    const auto load_k = [&](const WorkTileOf<Tile> &tile, int kv_head, int n) {
        mbarrier_wait(shared_address(&smem.k_empty[k.stage]), k.phase ^ 1);
        if constexpr (Traits<Tile>::IS_PAIR)
            load_half_for_both<Tile>(smem.k[k.stage], &params.k, &smem.k_full[k.stage],
                                     &smem.pair.other_k_empty[k.stage], k.phase, n, kv_head, tile);
        else
            load_key_block<Tile>(smem.k[k.stage], &params.k, &smem.k_full[k.stage], n, kv_head, tile);
        k.advance();
    };
    WorkTileOf<Tile> tile = work_tile_of<Tile>(params, blockIdx.x / Tile::CLUSTER);
    KeyPart keys = {0, -1};
    int kv_head = quotient(tile.head, params.group);
    PipelineState<2> next_work;
    bool swaps_rows = false; /* a pair: this block has the rows of the other rank */

    q.advance(); /* load_prologue */
    if constexpr (Traits<Tile>::IS_PAIR)
        load_k(tile, kv_head, tile.key_blocks - 1);
    else
        k.advance();
    for (;;) {
        const int first = HAS_PARTS ? keys.lowest_block : 0;
        int n = first + tile.key_blocks - 2;
#pragma unroll 1
        for (; n > first + 1; --n)
            load_k(tile, kv_head, n);
        const int next = take_work(smem, params, next_work);
#pragma unroll 1
        for (; n >= first; --n)
            load_k(tile, kv_head, n);
        mbarrier_wait(shared_address(&smem.q_empty[q.stage]), q.phase ^ 1);
        if (next >= params.tiles)
            break;
        tile = work_tile_of<Tile, HAS_PARTS>(keys, params, next);
        if constexpr (Traits<Tile>::IS_PAIR) {
            swaps_rows = !swaps_rows;
            if (params.causal && swaps_rows)
                tile.first_row = rows_of_other<Tile>(tile.first_row);
        }
        kv_head = quotient(tile.head, params.group);
        publish_work_tile<Tile, HAS_PARTS>(smem, q.stage, tile, keys);
        load_q<Tile>(smem, params, q.stage, tile);
        q.advance();
        load_k(tile, kv_head, keys.lowest_block + tile.key_blocks - 1);
    }
    publish_work_tile<Tile, HAS_PARTS>(smem, q.stage, {0, 0, 0, 0}, {0, -1}); /* there are no more */
    if constexpr (HAS_PARTS)
        grid_let_next_start(); /* the kernel that puts the parts together */
}

/* The same for work tiles that begin at any block of keys, of which there may be none. How many work tiles there are
 * stands in device memory (order.count): the first one without blocks ends them. */
template <typename Tile>
__device__ __forceinline__ void produce_qk_of_ranges(SharedStorage<Tile> &smem, const Params &params)
{
    PipelineState<Q_STAGES> q;
    PipelineState<Tile::STAGES> k;
    PipelineState<2> next_work;
    int number = Tile::HALVES == 1 ? blockIdx.x : 2 * blockIdx.x + threadIdx.x / 64;
    grid_wait_for_last(); /* for the lists of the kernel ahead */
    WorkTileOf<Tile> tile;
    tile.key_blocks = 0;
    if (Tile::HALVES == 1 || number < params.tiles) /* the other half may have the last one */
        tile = Tile::Work::template work_tile<Tile>(params, number);

#pragma unroll 1
    while (tile.key_blocks > 0) {
        mbarrier_wait(shared_address(&smem.q_empty[q.stage]), q.phase ^ 1);
        publish_work_tile<Tile, false>(smem, q.stage, tile, {0, -1});
        load_q<Tile>(smem, params, q.stage, tile);
        q.advance();
        const int kv_head = quotient(tile.head, params.group);
        const auto load_k = [&](int n) {
            mbarrier_wait(shared_address(&smem.k_empty[k.stage]), k.phase ^ 1);
            load_key_block<Tile>(smem.k[k.stage], &params.k, &smem.k_full[k.stage], n, kv_head, tile);
            k.advance();
        };
        int n = tile.lowest_block + tile.key_blocks - 1;
#pragma unroll 1
        for (; n > tile.lowest_block + 1; --n)
            load_k(n);
        number = take_work(smem, params, next_work); /* as in produce_qk */
#pragma unroll 1
        for (; n >= tile.lowest_block; --n)
            load_k(n);
        tile.key_blocks = 0;
        if (number < params.tiles)
            tile = Tile::Work::template work_tile<Tile>(params, number);
    }
    mbarrier_wait(shared_address(&smem.q_empty[q.stage]), q.phase ^ 1);
    publish_work_tile<Tile, false>(smem, q.stage, tile, {0, -1});
}

/* V of all tiles. It waits for the number of the next tile as the consumers do, but not for Q. It runs in another warp
 * than produce_qk, so that the two use issue slots of two scheduler partitions of the multiprocessor and not of one. */
template <typename Tile, bool HAS_PARTS>
__device__ __forceinline__ void produce_v(SharedStorage<Tile> &smem, const Params &params)
{
    PipelineState<Q_STAGES> q;
    PipelineState<Tile::STAGES> v;
    int loaded = Tile::CLUSTER == 1 && Tile::Work::IS_DENSE ? 1 : 0; /* load_prologue */

    if (loaded > 0)
        v.advance();
    for (;; q.advance()) {
        mbarrier_wait(shared_address(&smem.work_tile_full[q.stage]), q.phase);
        const WorkTileOf<Tile> tile = smem.work_tile[q.stage];
        int first = HAS_PARTS ? smem.key_part[q.stage].lowest_block : 0;
        if constexpr (!Tile::Work::IS_DENSE)
            first = tile.lowest_block;
        mbarrier_arrive(shared_address(&smem.q_empty[q.stage]));
        if (tile.key_blocks == 0)
            break;
        const int kv_head = quotient(tile.head, params.group);
#pragma unroll 1
        for (int n = first + tile.key_blocks - 1 - loaded; n >= first; --n) {
            mbarrier_wait(shared_address(&smem.v_empty[v.stage]), v.phase ^ 1);
            if constexpr (Traits<Tile>::IS_PAIR)
                load_half_for_both<Tile>(smem.v[v.stage], &params.v, &smem.v_full[v.stage],
                                         &smem.pair.other_v_empty[v.stage], v.phase, n, kv_head, tile);
            else
                load_key_block<Tile>(smem.v[v.stage], &params.v, &smem.v_full[v.stage], n, kv_head, tile);
            v.advance();
        }
        loaded = 0;
    }
}

} // namespace sm90_fwd
