/* What the main kernel of the sm_90 backward is compiled for beside its tile: which queries see the keys of a work tile
 * and where both lie (`Work`), and what becomes of a score before the softmax (`Score`). Everybody knows of both only
 * what is declared here: a kernel for other work is another struct with the members of Dense, a kernel for other scores
 * one with those of Plain, and its line in instances/. Dense's work tiles are made by work.cuh and parts.c, those of a
 * struct that is not IS_DENSE by its own work_tile; pairs and parts take Dense alone.
 *
 * A work tile goes through tiles of queries from the last one that sees any of its keys back to the first; with
 * HAS_LISTS (lists.cuh) some are left out, and the producer notes which one a step has. */
#pragma once
#include <climits>

#include "kernels/device/copy_engine.cuh"
#include "kernels/sm90/bwd/params.h"

namespace sm90_bwd {

using namespace device;
using WorkTile = fused_sm90_bwd_work_tile;

/* A step as the producer notes it for the others, where its tile of queries does not follow from the step before, or
 * registers are few (Traits::NOTES_STEPS): of its head, and in stats and dq_sum. */
struct NotedStep {
    int tile, index;
};
constexpr int NOTED_STEPS = 8; /* what is enough: note_step (producer.cuh) */

/* Dense attention, full or causal, of sequences of the same lengths: all tiles of queries from the first that sees a
 * key on see it. */
struct Dense {
    /* ---- which queries see a work tile's keys ---- */

    static constexpr bool IS_DENSE = true;
    static constexpr bool HAS_LISTS = false; /* the tiles of queries of a work tile are not contiguous (lists.cuh) */
    struct StepList {};
    using WorkTile = fused_sm90_bwd_work_tile;
    using Listed = WorkTile; /* what the list of work tiles in device memory has of each (Params::work) */

    /* What a KV warpgroup keeps of a work tile for its masks: nothing, all are in the parameters. */
    struct Bounds {};

    __device__ __forceinline__ static Bounds bounds(const WorkTile &, [[maybe_unused]] int first_key) { return {}; }

    /* The first tile of q_tile queries that sees a key from first_key on; params.q_tiles where there is none. */
    __device__ __forceinline__ static int first_tile(const Params &params, int first_key, int q_tile)
    {
        return sm90_bwd_first_tile(first_key, params.causal, params.shift, params.q_len, params.kv_len, q_tile,
                                   params.q_tiles);
    }

    /* The last tile of queries of a head that sees a work tile's keys. begin_tile: the one with which the work tile
     * begins, which may be in the middle of a head. */
    __device__ __forceinline__ static int last_tile(const Params &params, [[maybe_unused]] int begin_tile)
    {
        return params.q_tiles - 1;
    }

    /* Whether no query of a tile sees a key of a KV warpgroup, which then passes over the step. limit: of the warpgroup
     * and the work tile. */
    __device__ __forceinline__ static int pass_limit(const WorkTile &work, int group) { return work.first_tile[group]; }
    __device__ __forceinline__ static bool passes_over([[maybe_unused]] int group, int tile, int limit)
    {
        return tile < limit;
    }

    /* The query at which the diagonal meets a key, counted from the first of a tile of q_tile queries. */
    __device__ __forceinline__ static int diagonal(const Params &params, const Bounds &, int key, int tile, int q_tile)
    {
        return key - params.shift - tile * q_tile;
    }

    /* Whether a query of a tile does not see one of `keys` keys from first_key on. diagonal: that of first_key. */
    __device__ __forceinline__ static bool is_cut(const Params &params, const Bounds &, int first_key, int keys,
                                                  int diagonal)
    {
        return (params.causal && diagonal + keys - 1 > 0) || first_key + keys > params.kv_len;
    }

    /* The columns that see a key, counted from the thread's first one, which is `column`: from `first` on, INT_MAX
     * where none does. row: the key, counted from first_key. */
    struct Columns {
        int first;

        __device__ __forceinline__ bool has(int column) const { return column >= first; }
    };

    __device__ __forceinline__ static Columns visible(const Params &params, const Bounds &, int first_key, int row,
                                                      int diagonal, int column)
    {
        if (first_key + row >= params.kv_len)
            return {INT_MAX};
        return {params.causal ? diagonal + row - column : 0};
    }

    /* ---- where queries and keys lie ---- */

    /* Where a box begins in the tensor maps: row `row` of a query head in Q and dO, a key of the work tile's kv head in
     * K, V, dK and dV. */
    struct Place {
        int row, head, batch;
    };

    __device__ __forceinline__ static Place q_place(const WorkTile &, int row, int head, int batch)
    {
        return {row, head, batch};
    }
    __device__ __forceinline__ static Place key_place(const WorkTile &work, int key)
    {
        return {key, work.kv_head, work.batch};
    }

    /* Where the rows of dK and dV of a work tile's sequence lie: the batch, row 0, and how many there are. */
    struct KeyRows {
        int batch, first, count;
    };

    __device__ __forceinline__ static KeyRows key_rows(const Params &params, const WorkTile &work)
    {
        return {work.batch, 0, params.kv_len};
    }

    /* Copies of a box (copy_engine.cuh). */
    __device__ __forceinline__ static void prefetch(const CUtensorMap *map, int column, const Place &place)
    {
        tma_prefetch(map, column, place.row, place.head, place.batch);
    }
    __device__ __forceinline__ static void load(uint32_t shared, const CUtensorMap *map, uint32_t barrier,
                                                uint64_t l2_policy, int column, const Place &place)
    {
        tma_load(shared, map, barrier, l2_policy, column, place.row, place.head, place.batch);
    }
    __device__ __forceinline__ static void store_once(const CUtensorMap *map, uint32_t shared, int column,
                                                      const Place &place)
    {
        tma_store_once(map, shared, column, place.row, place.head, place.batch);
    }
};

/* Scores as they are: the softmax multiplies them with scale * log2(e), and dS needs no other factor. Softcap:
 * softcap.cuh. */
struct Plain {
    static constexpr bool HAS_SLOPE = false; /* dS has another factor, which comes from the score */
};

template <typename Tile> using WorkTileOf = typename Tile::Work::WorkTile;

/* A tile with its policies; `Tile` is such a type in all functions of the main kernel. */
template <typename OwnTile, typename WorkPolicy, typename ScorePolicy> struct With : OwnTile {
    using Work = WorkPolicy;
    using Score = ScorePolicy;
};

} // namespace sm90_bwd
