/* Block masks of 128 rows and keys, or multiples of that: a policy of the sm_90 forward (policies.cuh). A work tile is
 * 128 rows, so that they lie in one block of the mask, and has the blocks of 128 keys that the mask shows them, as far
 * as a causal problem lets them see those: a list, which a kernel ahead makes (kernels/family/schedule.cu). Blocks of a
 * work tile are numbered by their place in it. As the mask hides whole blocks, elements are masked only where the
 * diagonal or the end of the keys cuts a block, which is one of the highest two in the list.
 *
 * Work tiles come from a list, too, those with most blocks first, in each section of heads. */
#pragma once

#include "kernels/family/tile_lists.cuh"
#include "kernels/sm90/fwd/policies.cuh"

namespace sm90_fwd {

struct Lists : Dense {
    static constexpr bool IS_DENSE = false, HAS_LISTS = true;

    struct WorkTile {
        static constexpr int HIGHEST = 3, lowest_block = 0;
        int batch, head, first_row;
        int key_blocks;          /* of the list, but 1 where that is empty; 0: there are no more tiles */
        int kv_end;              /* kv_len; 0 where the list is empty: then block 0 is masked as a whole */
        int highest[HIGHEST];    /* the numbers of the highest blocks, the last one first; where there are fewer -1 */
        const uint16_t *numbers; /* those of all, ascending */
    };

    __device__ __forceinline__ static int q_len(const Params &params, const WorkTile &) { return params.q_len; }
    __device__ __forceinline__ static int shift(const Common &common, const WorkTile &) { return common.shift; }

    __device__ __forceinline__ static Place q_place(const WorkTile &tile, int row)
    {
        return {row, tile.head, tile.batch};
    }

    /* Of the producers, who have nearly all of a list in the first-level cache. */
    template <typename Tile>
    __device__ __forceinline__ static Place key_place(const WorkTile &tile, int block, int kv_head)
    {
        const int number = tile.kv_end > 0 ? __ldg(tile.numbers + block) : 0;
        return {number * Tile::BLOCK_N, kv_head, tile.batch};
    }

    /* Of a block that is masked: one of the highest. */
    __device__ __forceinline__ static int block_number(const WorkTile &tile, int block)
    {
        return tile.highest[min(tile.key_blocks - 1 - block, WorkTile::HIGHEST - 1)];
    }

    __device__ __forceinline__ static float *lse(const Params &params, const WorkTile &tile)
    {
        return params.lse + (int64_t(tile.batch) * params.q_heads.value + tile.head) * params.q_len;
    }

    /* The work tile of that number. */
    template <typename Tile> __device__ __forceinline__ static WorkTile work_tile(const Params &params, int number)
    {
        static_assert(Tile::BLOCK_M == 128 && 128 % Tile::BLOCK_N == 0 && Tile::CLUSTER == 1, "blocks of the mask");
        const family_work work = params.ranges.order.work[number];
        const int64_t list = family::list_number(params.lists, work.sequence, work.head, work.tile);
        const int visible = params.lists.visible[list];
        WorkTile tile;

        tile.batch = work.sequence;
        tile.head = work.head;
        tile.first_row = work.tile * Tile::BLOCK_M;
        tile.key_blocks = max(visible, 1);
        tile.kv_end = visible > 0 ? params.kv_len : 0;
        tile.numbers = family::list_section(params.lists, list, 0);
#pragma unroll
        for (int i = 0; i < WorkTile::HIGHEST; ++i)
            tile.highest[i] = visible > i ? __ldg(tile.numbers + visible - 1 - i) : -1;
        if (visible == 0)
            tile.highest[0] = 0;
        return tile;
    }

    /* The key behind the last one that one of the 64 rows sees, if the mask shows it. */
    __device__ __forceinline__ static int seen_end(const Params &params, const WorkTile &tile, const RowGroup &rows)
    {
        return params.causal ? min(tile.kv_end, rows.first_row + 64 + rows.shift) : tile.kv_end;
    }

    /* As in Ranges. The 64 rows do not see the highest block where the diagonal of the other 64 alone goes through it;
     * if it is the only one it is masked as a whole. Rows that do not exist have the lowest one alone. */
    template <typename Tile>
    __device__ __forceinline__ static int seen_blocks(int &last, int &before, int &behind, const Params &params,
                                                      const WorkTile &tile, const RowGroup &rows)
    {
        behind = tile.highest[0] * Tile::BLOCK_N >= seen_end(params, tile, rows) ? 1 : 0;
        if (rows.first_row >= params.q_len)
            behind = tile.key_blocks;
        behind = min(behind, tile.key_blocks - 1);
        before = 0;
        last = tile.key_blocks - 1 - behind;
        return 0;
    }

    /* The masked blocks, and one more, for rows whose first key is in the block behind the masked ones (start_late_rows
     * in softmax.cuh). */
    struct Edges {
        int first_masked;

        __device__ __forceinline__ bool has(int block) const { return block >= first_masked; }
        __device__ __forceinline__ bool has_or_is_last(int block) const { return has(block) || block < 1; }
    };

    template <typename Tile>
    __device__ __forceinline__ static Edges edges(const Params &params, const WorkTile &tile, const RowGroup &rows, int)
    {
        const int seen_by_all = params.causal ? min(tile.kv_end, rows.first_row + 1 + rows.shift) : tile.kv_end;
        int cut = 0;
#pragma unroll
        for (int i = 0; i < WorkTile::HIGHEST; ++i)
            cut += (tile.highest[i] + 1) * Tile::BLOCK_N > seen_by_all && tile.highest[i] >= 0;
        /* Without corrections there is no block for such rows; with blocks of 64 keys `highest` has none. */
        return {cut == 0 ? tile.key_blocks : tile.key_blocks - cut - (Tile::BLOCK_N == 128 ? 1 : 0)};
    }

    template <int SCORES>
    __device__ __forceinline__ static void mask(float (&s)[SCORES], const Params &params, const WorkTile &tile,
                                                int first_column, int diagonal_end)
    {
        const int limit[2] = {(params.causal ? min(tile.kv_end, diagonal_end) : tile.kv_end) - first_column,
                              (params.causal ? min(tile.kv_end, diagonal_end + 8) : tile.kv_end) - first_column};
        mask_scores(s, limit);
    }
};

} // namespace sm90_fwd
