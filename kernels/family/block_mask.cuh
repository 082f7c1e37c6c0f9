/* What a block mask shows of tiles. */
#pragma once
#include <cstdint>

#include "kernels/device/arithmetic.cuh"
#include "kernels/family/block_mask.h"
#include "kernels/family/ranges.cuh"

namespace family {

/* The mask of a head of a sequence. */
__device__ __forceinline__ const uint8_t *mask_of_head(const family_block_mask &mask, int sequence, int head)
{
    return mask.blocks + sequence * mask.batch_stride + head * mask.head_stride;
}

/* Whether any (bit 0) and whether all (bit 1) of the blocks that rows x keys from (row, key) on touch are visible.
 * `blocks`: of the head. */
__device__ __forceinline__ unsigned blocks_seen(const family_block_mask &mask, const uint8_t *blocks, int row, int rows,
                                                int key, int keys)
{
    const struct divisor &by = mask.block_by;
    const int last_row = min(device::quotient(row + rows - 1, by), mask.row_blocks - 1);
    const int last_key = min(device::quotient(key + keys - 1, by), mask.key_blocks - 1);
    bool any = false, all = true;
    for (int r = device::quotient(row, by); r <= last_row; ++r)
        for (int k = device::quotient(key, by); k <= last_key; ++k) {
            const bool seen = blocks[static_cast<int64_t>(r) * mask.key_blocks + k] != 0;
            any = any || seen;
            all = all && seen;
        }
    return (any ? 1u : 0u) | (all ? 2u : 0u);
}

/* Goes over the tiles of a range of which a block mask shows anything, in ascending order. 32 tiles at a time, from a
 * multiple of 32 on and one for each lane, are looked up together; their bits are the same in the whole warp. `fixed`
 * is the first row of the tile of rows whose tiles of keys it goes over, or with ROWS_MOVE the other way round. */
template <int ROWS, int KEYS, bool ROWS_MOVE> struct VisibleTiles {
    uint32_t any, all; /* a bit for each of the 32 tiles: whether any, and whether all of its blocks are visible */

    template <typename Blocks>
    __device__ __forceinline__ void look_up(const family_block_mask &mask, const Blocks &blocks, int tile, int end,
                                            int fixed)
    {
        const int own = tile / 32 * 32 + static_cast<int>(threadIdx.x % 32);
        unsigned seen = 2;
        if (own < end)
            seen =
                blocks_seen(mask, blocks(), ROWS_MOVE ? own * ROWS : fixed, ROWS, ROWS_MOVE ? fixed : own * KEYS, KEYS);
        any = __ballot_sync(0xffffffffu, seen & 1u);
        all = __ballot_sync(0xffffffffu, seen & 2u);
    }

    /* blocks(): those of the head, asked for only where there is a mask. */
    template <typename Blocks>
    __device__ __forceinline__ int start(const family_block_mask &mask, const Blocks &blocks, TileRange range,
                                         int fixed)
    {
        any = all = ~0u;
        if (mask.blocks != NULL)
            look_up(mask, blocks, range.first, range.end, fixed);
        return first_from(mask, blocks, range.first, range.end, fixed);
    }

    /* The first visible tile from `tile` on, or `end`. The 32 tiles of `tile` have been looked up. */
    template <typename Blocks>
    __device__ __forceinline__ int first_from(const family_block_mask &mask, const Blocks &blocks, int tile, int end,
                                              int fixed)
    {
        while (mask.blocks != NULL && tile < end) {
            const uint32_t left = any >> tile % 32;
            if (left != 0)
                return tile + __ffs(left) - 1;
            tile = tile / 32 * 32 + 32;
            look_up(mask, blocks, tile, end, fixed);
        }
        return min(tile, end);
    }

    /* The first visible tile behind `tile`, which was the last that was found. */
    template <typename Blocks>
    __device__ __forceinline__ int after(const family_block_mask &mask, const Blocks &blocks, int tile, int end,
                                         int fixed)
    {
        if (mask.blocks != NULL && tile % 32 == 31)
            look_up(mask, blocks, tile + 1, end, fixed);
        return first_from(mask, blocks, tile + 1, end, fixed);
    }

    /* Whether all blocks of the tile that was found last are visible. */
    __device__ __forceinline__ bool is_whole(int tile) const { return (all >> tile % 32 & 1u) != 0; }
};

} // namespace family
