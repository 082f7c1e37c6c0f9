/* The tile scheduler of the sm_90 forward: in which order work tiles are taken, and what a work tile is.
 *
 * Heads are divided into sections (fused_sm90_fwd_sections), which are taken one after the other. In a causal problem
 * the K and V of a section take a part of the L2 cache; otherwise, as all tiles are equally long, a section is the
 * query heads of one kv head. Within a section all heads have their tile of the same rows one after the other; a causal
 * problem begins with the last rows, which have the most keys, so that the shortest tiles come last. Without a mask the
 * keys of the last tiles may be shared out to parts, which are taken like tiles, behind the whole ones (tail.h).
 *
 * A thread block's first tile is the one of its own number, always a whole one. Further tiles come from the counter in
 * the workspace (produce_qk in producer.cuh). Two thread blocks of a pair (pair.cuh) count as one here: a work
 * tile has the rows of both. */
#pragma once

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/barriers.cuh"
#include "kernels/sm90/fwd/params.h"

namespace sm90_fwd {

using namespace device;
using Params = fused_sm90_fwd_params;

/* A work tile, as the tile's policy describes it (policies.cuh). */
template <typename Tile> using WorkTileOf = typename Tile::Work::WorkTile;

/* Which keys of a work tile a thread block has: WorkTile::key_blocks blocks, from lowest_block up. slot: where a part
 * stores its result (Params::part_o); -1: the thread block has all keys. */
struct KeyPart {
    int lowest_block, slot;
};

/* Which rows of which query head. */
struct TilePlace {
    int batch, head, row_tile;
};

/* Those of the work tile that is number `tile` in the order above; parts have no numbers of their own here. */
__device__ __forceinline__ TilePlace tile_place(const Params &params, int tile)
{
    const int first_tiles = params.first_heads.value * params.row_tiles;
    const bool is_first = tile < first_tiles;
    int first_head = 0;
    if (!is_first) {
        const int section = quotient(tile - first_tiles, params.section_tiles);
        tile -= first_tiles + section * params.section_tiles.value;
        first_head = params.first_heads.value + section * params.section_heads.value;
    }
    const divisor &heads = is_first ? params.first_heads : params.section_heads;
    const int rank = quotient(tile, heads), head = first_head + tile - rank * heads.value;
    const int batch = quotient(head, params.q_heads), row_tile = params.causal ? params.row_tiles - 1 - rank : rank;
    return {batch, head - batch * params.q_heads.value, row_tile};
}

/* The whole work tile of that number, of a pair the block's half of it. */
template <typename Tile> __device__ __forceinline__ WorkTileOf<Tile> work_tile_of(const Params &params, int tile)
{
    const TilePlace place = tile_place(params, tile);
    const int first_row = place.row_tile * (Tile::CLUSTER * Tile::BLOCK_M);
    const int own_row = Tile::CLUSTER == 1 ? first_row : first_row + pair_rank() * Tile::BLOCK_M;
    return {place.batch, place.head, own_row, Tile::Work::template count_key_blocks<Tile>(params, first_row)};
}

/* The work tile or part that is number `number` of all, 0 .. params.tiles - 1. */
template <typename Tile, bool HAS_PARTS>
__device__ __forceinline__ WorkTileOf<Tile> work_tile_of(KeyPart &keys, const Params &params, int number)
{
    const int slot = number - params.tail.first;
    const bool is_part = HAS_PARTS && slot >= 0;
    const int part = is_part ? quotient(slot, params.tail_works) : 0;
    WorkTileOf<Tile> tile = work_tile_of<Tile>(params, number - part * params.tail.works);
    keys = {0, -1};
    if (is_part) {
        keys = {sm90_fwd_part_begin(&params.tail, part), slot};
        tile.key_blocks = sm90_fwd_part_begin(&params.tail, part + 1) - keys.lowest_block;
    }
    return tile;
}

} // namespace sm90_fwd
