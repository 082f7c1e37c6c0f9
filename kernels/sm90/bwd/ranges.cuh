/* Windows and packed lengths: a policy of the sm_90 backward (policies.cuh). A work tile goes through the tiles of
 * queries from the last that sees any of its keys to the first; queries are masked at both edges. Work tiles have no
 * parts. Those of packed sequences come from a list (kernels/family/schedule.cu): the longest first, or, deterministic,
 * in the order of the keys of each sequence. */
#pragma once

#include "kernels/common/launch.h"
#include "kernels/family/ranges.cuh"
#include "kernels/sm90/bwd/policies.cuh"
#include "kernels/sm90/bwd/work.cuh"

namespace sm90_bwd {

struct Ranges {
    static constexpr bool IS_DENSE = false, HAS_LISTS = false;
    struct StepList {};

    struct alignas(16) Listed : fused_sm90_bwd_work_tile { /* a multiple of 16 bytes, for the copy engine */
        int shift, kv_len;                                 /* of the sequence; shift: kv_len - q_len */
        int q_row, k_row, q_end, k_end, wrap; /* coordinates of row 0 and key 0 (tensor_map_encode_ranges) */
        int first_q_tile;                     /* of the sequence, in stats and dq_sum, of query head 0 */
        int highest_of_first;                 /* the highest tile that sees a key of the first KV warpgroup, or -1 */
    };
    struct WorkTile : Listed {
        alignas(16) NotedStep noted[NOTED_STEPS]; /* of the first slot; behind all that the copy engine brings, padding
                                                     too */
    };

    /* As seen from the warpgroup's first key: the query that it is the diagonal of, and how many keys there are from it
     * on. In place of that key, so that they take one register more. */
    struct Bounds {
        int query, keys;
    };

    __device__ __forceinline__ static Bounds bounds(const WorkTile &work, int first_key)
    {
        return {keep_uniform(first_key - work.shift), keep_uniform(work.kv_len - first_key)};
    }

    /* The work tile of that number. Packed: the list stands for all kv heads, section by section of heads; behind its
     * end there is none (SKIPPED). */
    template <typename Tile> __device__ __forceinline__ static WorkTile work_tile(const Params &params, int number)
    {
        return {listed_work_tile<Tile::HEAD_DIM, Tile::Q_TILE>(params, number), {}};
    }
    /* WITH_SECTION: of windows, for zeros in dq_sum. */
    template <int HEAD_DIM, int Q_TILE, bool WITH_SECTION = false>
    __device__ __forceinline__ static Listed listed_work_tile(const Params &params, int number)
    {
        constexpr int ROWS = ROW_BLOCK_ROWS<HEAD_DIM>, BLOCK_TILES = ROWS / Q_TILE;
        const bool is_packed = params.lengths.cu_seqlens_q != NULL;
        Listed work = {};

        work.number = number;
        if (is_packed) {
            const int count = *params.order.count, section_works = count * params.section_heads;
            if (number >= count * params.kv_heads) {
                work.steps = SKIPPED;
                return work;
            }
            const int section = number / section_works, rest = number - section * section_works;
            const int first_head = section * params.section_heads;
            const int heads = min(params.section_heads, params.kv_heads - first_head), entry = rest / heads;
            const family_work listed = params.order.work[entry];
            work.batch = listed.sequence;
            work.kv_head = first_head + rest - entry * heads;
            work.kv_tile = listed.tile;
        } else {
            const WorkPlace at =
                params.dq_semaphores != NULL ? work_place<true>(params, number) : work_place(params, number);
            work.batch = at.head / params.kv_heads;
            work.kv_head = at.head - work.batch * params.kv_heads;
            work.kv_tile = at.place;
            if (WITH_SECTION)
                work.section = at.head / params.section_heads;
        }
        const family::Sequence s = family::sequence_at(params.lengths, work.batch, params.q_len, params.kv_len);
        work.shift = s.kv_len - s.q_len;
        work.kv_len = s.kv_len;
        work.q_row = is_packed ? TENSOR_MAP_WRAP - s.q_len : 0;
        work.k_row = is_packed ? TENSOR_MAP_WRAP - s.kv_len : 0;
        work.q_end = is_packed ? s.q_first + s.q_len : work.batch;
        work.k_end = is_packed ? s.k_first + s.kv_len : work.batch;
        work.wrap = is_packed ? TENSOR_MAP_WRAP : 0;
        work.first_q_tile =
            BLOCK_TILES * (is_packed ? s.q_first / ROWS + work.batch : work.batch * params.q_heads * params.row_blocks);
        const family::TileRange all = family::row_tiles_of(params.window, s, work.kv_tile * KV_TILE, KV_TILE, Q_TILE);

        /* The first warpgroup's keys are seen from the lowest tile on, and not by the highest; the second one's not by
         * the lowest. Neither passes over more than one step that others lie behind (docs/kernels/sm90_bwd.md). */
        const family::TileRange first =
            family::row_tiles_of(params.window, s, work.kv_tile * KV_TILE, KV_TILE / 2, Q_TILE);
        work.highest_of_first = first.first < first.end ? first.end - 1 : -1;
        const family::TileRange second =
            family::row_tiles_of(params.window, s, work.kv_tile * KV_TILE + KV_TILE / 2, KV_TILE / 2, Q_TILE);
        work.first_tile[0] = all.first;
        work.first_tile[1] = second.first < second.end ? second.first : INT_MAX;
        work.begin_tile = all.end - 1;
        work.steps = (all.end - all.first) * params.group;
        work.parts = 1;
        return work;
    }

    /* Deterministic: queries that share a semaphore see the tiles of keys from one to another, whose work tiles add to
     * their dQ in that order. The first of them, for queries from first_row on, and the last one, for queries up to
     * last_row, if the work tile is one of them. */
    __device__ __forceinline__ static int first_key_tile(const Params &params, const WorkTile &work, int first_row)
    {
        const int row = max(first_row, -(work.shift + params.window.right)); /* rows before see no key */
        return max(row + work.shift - params.window.left, 0) / KV_TILE;
    }
    __device__ __forceinline__ static int last_key_tile(const Params &params, const WorkTile &work, int last_row)
    {
        const int row = min(last_row, work.kv_len - work.shift - 1);
        return min(row + work.shift + params.window.right, work.kv_len - 1) / KV_TILE;
    }

    __device__ __forceinline__ static int pass_limit(const WorkTile &work, int group)
    {
        return group == 0 ? work.highest_of_first : work.first_tile[1];
    }
    __device__ __forceinline__ static bool passes_over(int group, int tile, int limit)
    {
        return group == 0 ? tile > limit : tile < limit;
    }
    /* Whether it passes over all steps. */
    __device__ __forceinline__ static bool sees_none(int group, int limit)
    {
        return group == 0 ? limit < 0 : limit == INT_MAX;
    }

    __device__ __forceinline__ static int last_tile(const Params &, int begin_tile) { return begin_tile; }

    /* The query at which the diagonal meets a key, counted from the first of a tile of q_tile queries. */
    __device__ __forceinline__ static int diagonal(const Params &, const Bounds &bounds, int, int tile, int q_tile)
    {
        return bounds.query - tile * q_tile;
    }

    __device__ __forceinline__ static bool is_cut(const Params &params, const Bounds &bounds, int, int keys,
                                                  int diagonal)
    {
        return diagonal + keys - 1 - params.window.right > 0 || diagonal + params.window.left < params.q_tile - 1 ||
               keys > bounds.keys;
    }

    /* The columns that see a key: from `first` to before `end`. */
    struct Columns {
        int first, end;

        __device__ __forceinline__ bool has(int column) const { return column >= first && column < end; }
    };

    __device__ __forceinline__ static Columns visible(const Params &params, const Bounds &bounds, int, int row,
                                                      int diagonal, int column)
    {
        if (row >= bounds.keys)
            return {0, 0};
        const int at = diagonal + row - column;
        return {at - params.window.right, at + params.window.left + 1};
    }

    struct Place {
        int row, head, end, wrap;
    };

    __device__ __forceinline__ static Place q_place(const WorkTile &work, int row, int head, int)
    {
        return {work.q_row + row, head, work.q_end, work.wrap};
    }
    __device__ __forceinline__ static Place key_place(const WorkTile &work, int key)
    {
        return {work.k_row + key, work.kv_head, work.k_end, work.wrap};
    }

    struct KeyRows {
        int batch, first, count;
    };

    __device__ __forceinline__ static KeyRows key_rows(const Params &, const WorkTile &work)
    {
        if (work.wrap == 0)
            return {work.batch, 0, work.kv_len};
        return {0, work.k_end - work.kv_len, work.kv_len};
    }

    __device__ __forceinline__ static void prefetch(const CUtensorMap *map, int column, const Place &place)
    {
        tma_prefetch(map, column, place.row, place.head, place.end, place.wrap);
    }
    __device__ __forceinline__ static void load(uint32_t shared, const CUtensorMap *map, uint32_t barrier,
                                                uint64_t l2_policy, int column, const Place &place)
    {
        tma_load(shared, map, barrier, l2_policy, column, place.row, place.head, place.end, place.wrap);
    }
    __device__ __forceinline__ static void store_once(const CUtensorMap *map, uint32_t shared, int column,
                                                      const Place &place)
    {
        tma_store_once(map, shared, column, place.row, place.head, place.end, place.wrap);
    }
};

} // namespace sm90_bwd
