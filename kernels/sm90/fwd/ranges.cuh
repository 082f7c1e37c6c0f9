/* Windows and packed lengths: a policy of the sm_90 forward (policies.cuh). A work tile has the blocks of keys from the
 * first to the last that any of its rows sees; a consumer leaves out those at both ends that none of its 64 rows sees.
 * Keys are masked at the right edge, as in dense causal attention, and at the left one; where a window is shorter than
 * a block both may be in one. Sequences that are packed have a list of work tiles, the longest first
 * (kernels/family/schedule.cu); others the order of dense attention. */
#pragma once

#include "kernels/common/launch.h"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/family/ranges.cuh"
#include "kernels/sm90/fwd/policies.cuh"

namespace sm90_fwd {

struct Ranges {
    static constexpr bool IS_DENSE = false, HAS_LISTS = false;

    struct WorkTile {
        int head, first_row, key_blocks,
            lowest_block; /* lowest_block: the lowest; key_blocks 0: there are no more tiles */
        int q_len, kv_len;
        int q_row, k_row, q_end, k_end; /* coordinates of row 0 and key 0 in the maps (encode_rows in host.c) */
        int sequence;
    };

    /* Nothing: lengths are those of the tile's sequence. */
    struct Common {};

    __device__ __forceinline__ static Common common(const Params &) { return {}; }
    __device__ __forceinline__ static int shift(const Common &, const WorkTile &tile)
    {
        return tile.kv_len - tile.q_len;
    }
    __device__ __forceinline__ static int q_len(const Params &, const WorkTile &tile) { return tile.q_len; }

    struct Place {
        int row, head, end;
    };

    __device__ __forceinline__ static Place q_place(const WorkTile &tile, int row)
    {
        return {tile.q_row + row, tile.head, tile.q_end};
    }

    template <typename Tile>
    __device__ __forceinline__ static Place key_place(const WorkTile &tile, int block, int kv_head)
    {
        return {tile.k_row + block * Tile::BLOCK_N, kv_head, tile.k_end};
    }

    __device__ __forceinline__ static void load(uint32_t shared, const CUtensorMap *map, uint32_t barrier,
                                                uint64_t l2_policy, int column, const Place &place)
    {
        tma_load(shared, map, barrier, l2_policy, column, place.row, place.head, place.end);
    }

    __device__ __forceinline__ static void store(const CUtensorMap *map, uint32_t shared, int column,
                                                 const Place &place)
    {
        tma_store(map, shared, column, place.row, place.head, place.end);
    }

    __device__ __forceinline__ static float *lse(const Params &params, const WorkTile &tile)
    {
        if (params.ranges.lengths.cu_seqlens_q != NULL)
            return params.lse + tile.head * params.ranges.lengths.total_q + (tile.q_end - tile.q_len);
        return params.lse + (int64_t(tile.sequence) * params.q_heads.value + tile.head) * params.q_len;
    }

    /* The work tile of that number. */
    template <typename Tile> __device__ __forceinline__ static WorkTile work_tile(const Params &params, int number)
    {
        const sm90_fwd_ranges &ranges = params.ranges;
        WorkTile tile = {};
        int row_tile;
        if (ranges.order.work == NULL) {
            const TilePlace place = tile_place(params, number);
            tile.sequence = place.batch;
            tile.head = place.head;
            row_tile = place.row_tile;
        } else {
            /* Section by section of heads, and in each the longest tiles first, of all its heads together. */
            const int count = *ranges.order.count, section_works = count * ranges.packed_section_heads;
            if (number >= count * params.q_heads.value)
                return tile;
            const int section = number / section_works, rest = number - section * section_works;
            const int first_head = section * ranges.packed_section_heads;
            const int heads = min(ranges.packed_section_heads, params.q_heads.value - first_head), entry = rest / heads;
            const family_work work = ranges.order.work[entry];
            tile.sequence = work.sequence;
            tile.head = first_head + rest - entry * heads;
            row_tile = work.tile;
        }
        const family::Sequence s = family::sequence_at(ranges.lengths, tile.sequence, params.q_len, params.kv_len);
        const bool is_packed = ranges.lengths.cu_seqlens_q != NULL;
        tile.first_row = row_tile * Tile::BLOCK_M;
        tile.q_len = s.q_len;
        tile.kv_len = s.kv_len;
        tile.q_row = is_packed ? params.q_len - s.q_len : 0;
        tile.k_row = is_packed ? params.kv_len - s.kv_len : 0;
        tile.q_end = is_packed ? s.q_first + s.q_len : tile.sequence;
        tile.k_end = is_packed ? s.k_first + s.kv_len : tile.sequence;
        const family::TileRange keys =
            family::key_tiles_of(ranges.window, s, tile.first_row, Tile::BLOCK_M, Tile::BLOCK_N);
        tile.lowest_block = keys.first;
        tile.key_blocks = max(keys.end - keys.first, 1); /* where no row sees a key one block, all of it masked */
        return tile;
    }

    /* Which of the tile's blocks the 64 rows see: returns the first one; `last` is the last one counted from it,
     * before and behind are the tile's other blocks. Where the rows see none it is the tile's first block. */
    template <typename Tile>
    __device__ __forceinline__ static int seen_blocks(int &last, int &before, int &behind, const Params &params,
                                                      const WorkTile &tile, const RowGroup &rows)
    {
        const family_window &window = params.ranges.window;
        const int end_row = min(rows.first_row + 64, tile.q_len);
        const int first_key = max(rows.first_row + rows.shift - window.left, 0);
        const int end_key = min(tile.kv_len, end_row + rows.shift + window.right);
        const bool sees = end_row > rows.first_row && first_key < end_key;
        const int first_seen = sees ? first_key / Tile::BLOCK_N - tile.lowest_block : 0;
        const int last_seen = sees ? (end_key - 1) / Tile::BLOCK_N - tile.lowest_block : 0;
        before = first_seen;
        behind = tile.key_blocks - 1 - last_seen;
        last = last_seen - first_seen;
        return tile.lowest_block + first_seen;
    }

    /* The blocks of which some keys are masked for 64 rows, counted from the first that these see. */
    struct Edges {
        int first_masked, left_end; /* from the former on at the right, below the latter at the left */

        __device__ __forceinline__ bool has(int block) const { return block >= first_masked || block < left_end; }
        __device__ __forceinline__ bool has_or_is_last(int block) const { return has(block) || block < 1; }
    };

    template <typename Tile>
    __device__ __forceinline__ static Edges edges(const Params &params, const WorkTile &tile, const RowGroup &rows,
                                                  int lowest_block)
    {
        const family_window &window = params.ranges.window;
        const int seen_by_all = max(min(tile.kv_len, rows.first_row + 1 + rows.shift + window.right), 0);
        const int first_of_last_row = max(rows.first_row + 63 + rows.shift - window.left, 0);
        return {seen_by_all / Tile::BLOCK_N - lowest_block,
                (first_of_last_row + Tile::BLOCK_N - 1) / Tile::BLOCK_N - lowest_block};
    }

    __device__ __forceinline__ static int seen_end(const Params &params, const WorkTile &tile, const RowGroup &rows)
    {
        return min(tile.kv_len, rows.first_row + 64 + rows.shift + params.ranges.window.right);
    }

    template <int SCORES>
    __device__ __forceinline__ static void mask(float (&s)[SCORES], const Params &params, const WorkTile &tile,
                                                int first_column, int diagonal_end)
    {
        const family_window &window = params.ranges.window;
        const int first = diagonal_end - 1 - window.left - first_column, end = diagonal_end + window.right;
        mask_scores(s, {first, first + 8},
                    {min(tile.kv_len, end) - first_column, min(tile.kv_len, end + 8) - first_column});
    }
};

} // namespace sm90_fwd
