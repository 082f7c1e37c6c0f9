/* The order of work of the sm_90 backward: which tiles of keys, or parts of them, its blocks compute. Where a block
 * takes one after the other the kernel before the main one writes the list. */
#pragma once

#include "kernels/sm90/bwd_params.h"

namespace sm90_bwd {

using WorkTile = fused_sm90_bwd_work_tile;

/* How many tiles of queries share a semaphore, to execute fewer fences. */
__host__ __device__ constexpr int semaphore_tiles(int q_tile) { return 128 / q_tile; }

/* Queries of the tiles whose blocks take one work tile after the other, from a list. */
__host__ __device__ constexpr int listed_q_tile(int head_dim) { return ROW_BLOCK_FLOATS / head_dim; }

/* A tile of keys: the first tile of queries of each KV warpgroup. Also of the kernel that adds up the parts. */
__device__ __forceinline__ void find_first_tiles(int (&first_tile)[2], const Params &params, int kv_tile, int q_tile)
{
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int first_key = kv_tile * KV_TILE + half * (KV_TILE / 2);
        first_tile[half] = sm90_bwd_first_tile(first_key, params.causal, params.shift, params.q_len, params.kv_len,
                                               q_tile, params.q_tiles);
    }
}

/* How many parts a tile of keys with this many steps has. */
__device__ __forceinline__ int parts_of(const Params &params, int steps)
{
    return params.max_parts == 1 ? 1 : sm90_bwd_part_count(steps, params.part_steps);
}

/* The first step of a part, counted over the tile's. Tiles of queries that share a semaphore are not divided. */
template <int Q_TILE>
__device__ __forceinline__ int part_begin(const Params &params, const WorkTile &work, int part, int steps)
{
    const int most = steps / work.parts, rest = steps - most * work.parts;
    const int begin = most * part + rest * part / work.parts; /* steps * part / parts, without a division in 64 bits */
    const int head_steps = params.q_tiles - work.first_tile[0], within = begin % head_steps;
    return begin + (within > 0 && (params.q_tiles - within) % semaphore_tiles(Q_TILE) > 0);
}

/* The order of work. Work tiles are numbered section by section of kv heads, and within a section first over the heads
 * and the parts, then over the tiles of keys: in causal problems the longest come first, and those that run at the same
 * time read the same queries. number: below params.work_tiles. */
template <int Q_TILE> __device__ __forceinline__ WorkTile work_tile(const Params &params, int number)
{
    const int section_tiles = params.section_heads * params.kv_works * params.max_parts;
    const int section = number / section_tiles, rest = number - section * section_tiles;
    const int first_head = section * params.section_heads;
    const int columns = min(params.section_heads, params.kv_heads_total - first_head) * params.max_parts;
    const int kv_work = rest / columns, column = rest - kv_work * columns, kv_tile = kv_work * params.cluster;
    const int head = first_head + column / params.max_parts, batch = head / params.kv_heads;
    WorkTile work = {.batch = batch, .kv_head = head - batch * params.kv_heads, .kv_tile = kv_tile, .number = number};

    find_first_tiles(work.first_tile, params, kv_tile, Q_TILE);
    const int head_steps = params.q_tiles - work.first_tile[0], steps = head_steps * params.group;
    work.begin_tile = params.q_tiles - 1;
    work.steps = steps;
    work.part = column % params.max_parts;
    work.parts = parts_of(params, steps);
    if (work.part >= work.parts) {
        work.steps = SKIPPED;
    } else if (work.parts > 1) {
        const int begin = part_begin<Q_TILE>(params, work, work.part, steps);
        work.steps = part_begin<Q_TILE>(params, work, work.part + 1, steps) - begin;
        work.first_head = begin / head_steps;
        work.begin_tile = params.q_tiles - 1 - begin % head_steps;
    }
    return work;
}

} // namespace sm90_bwd
