/* The order of work of the sm_90 backward: which tiles of keys, or parts of them, its blocks compute. Where a block
 * takes one after the other the kernel before the main one writes the list. */
#pragma once

#include "kernels/sm90/bwd/params.h"
#include "kernels/sm90/bwd/policies.cuh"

namespace sm90_bwd {

/* How many tiles of queries share a semaphore, to execute fewer fences. */
__host__ __device__ constexpr int semaphore_tiles(int q_tile) { return 128 / q_tile; }

/* Queries of the tiles whose blocks take one work tile after the other, from a list. */
__host__ __device__ constexpr int listed_q_tile(int head_dim)
{
    return head_dim == 64 ? ROW_BLOCK_ROWS<64> : ROW_BLOCK_ROWS<128>;
}

/* A tile of keys: the first tile of queries of each KV warpgroup. Also of the kernel that adds up the parts. */
__device__ __forceinline__ void find_first_tiles(int (&first_tile)[2], const Params &params, int kv_tile, int q_tile)
{
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int first_key = kv_tile * KV_TILE + half * (KV_TILE / 2);
        first_tile[half] = Dense::first_tile(params, first_key, q_tile);
    }
}

/* Steps of a tile of keys, as sm90_bwd_steps on the host. */
__device__ __forceinline__ int steps_of(const Params &params, int kv_tile, int q_tile)
{
    int first_tile[2];
    find_first_tiles(first_tile, params, kv_tile, q_tile);
    return (params.q_tiles - first_tile[0]) * params.group;
}

/* How many parts a tile of keys with this many steps has. */
__device__ __forceinline__ int parts_of(const Params &params, int steps)
{
    return params.max_parts == 1 ? 1 : sm90_bwd_part_count(steps, params.part_steps);
}

/* The first step of a part of a work tile, counted over all steps of its tile of keys. */
template <int Q_TILE>
__device__ __forceinline__ int part_begin(const Params &params, const WorkTile &work, int part, int steps)
{
    return sm90_bwd_part_begin(params.part_kind, part, work.parts, steps, params.part_steps,
                               params.q_tiles - work.first_tile[0], params.q_tiles,
                               params.dq_semaphores != NULL ? semaphore_tiles(Q_TILE) : 1);
}

/* A work tile of a kv head: which tile of keys (of a pair: which two), and which part of it. */
struct KvPart {
    int kv_work, part;
};

using WorkPlace = sm90_bwd_place;

/* Work tiles are numbered section by section of kv heads. Within a section they go first over the heads, so that those
 * that run at the same time read the same queries. number: below params.kv_heads_total * params.head_works. */
__device__ __forceinline__ WorkPlace work_place(const Params &params, int number)
{
    const int section_works = params.section_heads * params.head_works;
    const int section = number / section_works, rest = number - section * section_works;
    const int first_head = section * params.section_heads;
    const int heads = min(params.section_heads, params.kv_heads_total - first_head), place = rest / heads;
    return {first_head + rest - place * heads, place};
}

/* The same for deterministic kernels, which may have another order. */
template <bool DETERMINISTIC> __device__ __forceinline__ WorkPlace work_place(const Params &params, int number)
{
    if (DETERMINISTIC && params.stagger > 0)
        return sm90_bwd_staggered_place(number, params.section_heads, params.kv_heads_total / params.section_heads,
                                        params.head_works, params.stagger);
    return work_place(params, number);
}

/* Which part has a place where parts of a tile are equal: part `parts` of a tile is none. */
template <int Q_TILE> __device__ __forceinline__ KvPart equal_part(const Params &params, int place)
{
    if (params.part_kind == SM90_BWD_EQUAL_PARTS)
        return {place / params.max_parts, place % params.max_parts};
    const int turn = place / params.kv_tiles, tile = place - turn * params.kv_tiles;
    const int parts = parts_of(params, steps_of(params, tile, Q_TILE));
    return {tile, sm90_bwd_part_at_turn(turn, parts, params.max_parts)};
}

/* Which part has a place with SM90_BWD_WHOLE_PARTS. Those of part_steps steps come first, in max_parts turns: a tile of
 * keys begins its parts at turns that are as far in all turns as the part is in the tile, so that parts that run at the
 * same time read the same heads of a group. Then come the rests of the tiles, the longest first, so that all
 * multiprocessors finish at about the same time. All threads of the block call it, one for each tile of keys. Not
 * inlined, so that it takes no registers of the main loop. shared: SM90_BWD_MOST_SEARCHED_TILES + 2 ints. */
template <int Q_TILE> __device__ __noinline__ KvPart find_part(int *shared, const Params &params, int place)
{
    const int tile = threadIdx.x, warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    int *const found = shared + SM90_BWD_MOST_SEARCHED_TILES;
    int whole = 0, rest = -1 /* none */, parts = 0;

    if (tile < params.kv_tiles) {
        const int steps = steps_of(params, tile, Q_TILE);
        whole = steps / params.part_steps;
        parts = parts_of(params, steps);
        rest = parts > whole ? steps - whole * params.part_steps : -1;
    }
    if (place < params.whole_parts) {
        int part = -1, before = 0; /* before: parts of earlier turns */
        bool begins;
        /* sm90_bwd_part_at_turn without divisions. progress: towards the next part, in 1 / max_parts */
        for (int progress = params.max_parts - parts;;) {
            progress += parts;
            begins = progress >= params.max_parts && ++part < whole;
            progress -= progress >= params.max_parts ? params.max_parts : 0;
            const int count = __syncthreads_count(begins);
            if (place < before + count)
                break;
            before += count;
        }
        const unsigned in_warp = __ballot_sync(0xffffffffu, begins);
        if (lane == 0)
            shared[warp] = static_cast<int>(in_warp);
        __syncthreads();
        int rank = before + __popc(in_warp & ((1u << lane) - 1));
        for (int other = 0; other < warp; ++other)
            rank += __popc(static_cast<unsigned>(shared[other]));
        if (begins && rank == place) {
            found[0] = tile;
            found[1] = part;
        }
    } else {
        shared[tile] = rest;
        __syncthreads();
        int rank = params.whole_parts;
        for (int other = 0; other < params.kv_tiles; ++other)
            rank += shared[other] > rest || (shared[other] == rest && other < tile);
        if (rest >= 0 && rank == place) {
            found[0] = tile;
            found[1] = whole;
        }
    }
    __syncthreads();
    return {found[0], found[1]};
}

/* Gives a work tile the steps of its part work.part. steps, head_steps: of its tile of keys, and of a head of these. */
template <int Q_TILE>
__device__ __forceinline__ void set_part_steps(WorkTile &work, const Params &params, int steps, int head_steps)
{
    const int begin = part_begin<Q_TILE>(params, work, work.part, steps);
    work.steps = part_begin<Q_TILE>(params, work, work.part + 1, steps) - begin;
    work.first_head = begin / head_steps;
    work.begin_tile = params.q_tiles - 1 - begin % head_steps;
}

/* A work tile of a kv head. */
template <int Q_TILE>
__device__ __forceinline__ WorkTile work_tile(const Params &params, int head, KvPart kv, int number)
{
    const int batch = head / params.kv_heads, kv_tile = kv.kv_work * params.cluster;
    WorkTile work = {.batch = batch, .kv_head = head - batch * params.kv_heads, .kv_tile = kv_tile, .number = number};

    find_first_tiles(work.first_tile, params, kv_tile, Q_TILE);
    const int head_steps = params.q_tiles - work.first_tile[0], steps = head_steps * params.group;
    work.begin_tile = params.q_tiles - 1;
    work.steps = steps;
    work.part = kv.part;
    work.parts = parts_of(params, steps);
    if (work.part >= work.parts)
        work.steps = SKIPPED;
    else if (work.parts > 1)
        set_part_steps<Q_TILE>(work, params, steps, head_steps);
    return work;
}

/* The same where tiles of keys have no parts: in causal problems the longest come first. */
template <int Q_TILE, bool DETERMINISTIC>
__device__ __forceinline__ WorkTile undivided_work_tile(const Params &params, int number)
{
    const WorkPlace at = work_place<DETERMINISTIC>(params, number);
    WorkTile work = work_tile<Q_TILE>(params, at.head, {at.place, 0}, number);

    if (!DETERMINISTIC)
        work.section = at.head / params.section_heads;
    return work;
}

/* The same of the list, whose last work tiles may have parts (Params::tail). */
template <int Q_TILE, bool DETERMINISTIC>
__device__ __forceinline__ WorkTile listed_work_tile(const Params &params, int number)
{
    if (DETERMINISTIC || number < params.tail.first)
        return undivided_work_tile<Q_TILE, DETERMINISTIC>(params, number);
    const int in_tail = number - params.tail.first, part = in_tail / params.tail.works;
    WorkTile work = undivided_work_tile<Q_TILE, false>(params, number - part * params.tail.works);

    work.number = number;
    work.part = part;
    work.parts = params.tail.parts;
    set_part_steps<Q_TILE>(work, params, work.steps, params.q_tiles - work.first_tile[0]);
    return work;
}

} // namespace sm90_bwd
