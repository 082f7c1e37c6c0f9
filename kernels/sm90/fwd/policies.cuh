/* What a kernel of the sm_90 forward is compiled for beside its tile: which rows and keys a work tile has and which
 * pairs of them are visible (`Work`), and what becomes of a score before the softmax (`Score`). Producer, consumers and
 * epilogue know of both only what is declared here. A kernel for other work is another struct with the members that
 * Dense and Ranges (ranges.cuh) share and, with IS_DENSE true, count_key_blocks and highest_seen_block as in Dense,
 * or, with IS_DENSE false, work_tile and seen_blocks as in Ranges. Pairs and parts take Dense alone. A
 * kernel for other scores has the members of Plain (softcap.cuh). Each has its line in instances/.
 *
 * Blocks of keys have BLOCK_N keys and are numbered from the first key of a sequence. A work tile has blocks from
 * one number down to another, which is how everybody goes through them, so that what is masked at the right edge
 * comes first. A kernel whose work tiles have other blocks lists them, and numbers the entries of its list (lists.cuh):
 * with HAS_LISTS true block_number says which block a masked one is. */
#pragma once

#include "kernels/device/copy_engine.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/sm90/fwd/tiles.cuh"

namespace sm90_fwd {

using namespace device;

/* The 64 rows of a consumer warpgroup, with what it has of each block of keys. */
struct RowGroup {
    int first_row; /* in its sequence */
    int first_key; /* in each block, of the warpgroup's key split */
    int shift;     /* kv_len - q_len: row i is at key i + shift of the diagonal */
};

/* Dense attention, full or causal, of sequences of the same lengths. */
struct Dense {
    /* Which rows of which query head a thread block has, and how many blocks of BLOCK_N keys they need; in a pair as
     * many as the rows of both. key_blocks 0: there are no more tiles. */
    struct WorkTile {
        int batch, head, first_row, key_blocks;
    };

    /* ---- where a work tile lies ---- */

    __device__ __forceinline__ static int q_len(const Params &params, const WorkTile &) { return params.q_len; }

    /* What all work tiles have in common. A consumer computes it once: within the loop over work tiles it would take
     * registers of the main loop. */
    struct Common {
        int shift; /* kv_len - q_len */
    };

    __device__ __forceinline__ static Common common(const Params &params) { return {params.kv_len - params.q_len}; }
    __device__ __forceinline__ static int shift(const Common &common, const WorkTile &) { return common.shift; }

    /* Where a box begins in the tensor maps: row `row` of the tile's sequence and query head in Q and O; a block's
     * first key in K and V. */
    struct Place {
        int row, head, batch;
    };

    __device__ __forceinline__ static Place q_place(const WorkTile &tile, int row)
    {
        return {row, tile.head, tile.batch};
    }

    template <typename Tile>
    __device__ __forceinline__ static Place key_place(const WorkTile &tile, int block, int kv_head)
    {
        return {block * Tile::BLOCK_N, kv_head, tile.batch};
    }

    /* Copies of a box (copy_engine.cuh). */
    __device__ __forceinline__ static void load(uint32_t shared, const CUtensorMap *map, uint32_t barrier,
                                                uint64_t l2_policy, int column, const Place &place)
    {
        tma_load(shared, map, barrier, l2_policy, column, place.row, place.head, place.batch);
    }

    __device__ __forceinline__ static void store(const CUtensorMap *map, uint32_t shared, int column,
                                                 const Place &place)
    {
        tma_store(map, shared, column, place.row, place.head, place.batch);
    }

    /* LSE of row 0 of the tile's sequence and head. */
    __device__ __forceinline__ static float *lse(const Params &params, const WorkTile &tile)
    {
        return params.lse + (int64_t(tile.batch) * params.q_heads.value + tile.head) * params.q_len;
    }

    /* ---- which keys its rows see ---- */

    /* True: work tiles go from some block of keys back to block 0, work_tile_of (work.cuh) makes them, and the first
     * one's Q, K and V are asked for before the other barriers exist (load_prologue). */
    static constexpr bool IS_DENSE = true;
    static constexpr bool HAS_LISTS = false; /* blocks of a work tile are not contiguous (lists.cuh) */

    /* The blocks of which some keys are masked for 64 rows, counted from the first block of a part. */
    struct Edges {
        int first_masked; /* from this one on, at the right */

        __device__ __forceinline__ bool has(int block) const { return block >= first_masked; }
        /* has(block) || block < 1, as one comparison: for block 0 block - 1 is the largest unsigned number. */
        __device__ __forceinline__ bool has_or_is_last(int block) const
        {
            return static_cast<unsigned>(block - 1) >= static_cast<unsigned>(max(first_masked - 1, 0));
        }
    };

    /* How many blocks of keys a work tile has, which begin with block 0: up to the last that any of its rows, from
     * `first_row` on, sees; where none sees any it is one, all of it masked. */
    template <typename Tile> __device__ __forceinline__ static int count_key_blocks(const Params &params, int first_row)
    {
        int keys = params.kv_len;
        if (params.causal)
            keys =
                min(keys, min(first_row + Tile::CLUSTER * Tile::BLOCK_M, params.q_len) + params.kv_len - params.q_len);
        return (max(keys, 1) + Tile::BLOCK_N - 1) / Tile::BLOCK_N;
    }

    /* The highest block of which one of the rows sees the warpgroup's keys, or 0. */
    template <typename Tile>
    __device__ __forceinline__ static int highest_seen_block(const Params &params, const RowGroup &rows)
    {
        const int sees = rows.first_row >= params.q_len ? 0
                         : params.causal                ? rows.first_row + 64 + rows.shift
                                                        : params.kv_len;
        return max(sees - 1 - rows.first_key, 0) / Tile::BLOCK_N;
    }

    /* The lowest block that has to be masked: one of the rows does not see all of it. */
    template <typename Tile>
    __device__ __forceinline__ static int first_masked_block(const Params &params, const RowGroup &rows)
    {
        const int seen_by_all =
            params.causal ? max(min(params.kv_len, rows.first_row + 1 + rows.shift), 0) : params.kv_len;
        return (seen_by_all + Tile::BLOCK_N - Traits<Tile>::KEYS - rows.first_key) / Tile::BLOCK_N;
    }

    template <typename Tile>
    __device__ __forceinline__ static Edges edges(const Params &params, const WorkTile &, const RowGroup &rows,
                                                  int part_begin)
    {
        return {first_masked_block<Tile>(params, rows) - part_begin};
    }

    /* All keys that one of the rows sees are ahead of this one. */
    __device__ __forceinline__ static int seen_end(const Params &params, const WorkTile &, const RowGroup &rows)
    {
        return params.causal ? min(params.kv_len, rows.first_row + 64 + rows.shift) : params.kv_len;
    }

    /* The scores of a block that a row does not see become -inf. first_column: the thread's first key. diagonal_end:
     * the key behind the one at which the diagonal meets this thread's row g; a causal row does not see it. */
    template <int SCORES>
    __device__ __forceinline__ static void mask(float (&s)[SCORES], const Params &params, const WorkTile &,
                                                int first_column, int diagonal_end)
    {
        const int limit[2] = {(params.causal ? min(params.kv_len, diagonal_end) : params.kv_len) - first_column,
                              (params.causal ? min(params.kv_len, diagonal_end + 8) : params.kv_len) - first_column};
        mask_scores(s, limit);
    }
};

/* Scores as they are: the softmax multiplies them with scale * log2(e). */
struct Plain {
    static constexpr bool KEEPS_MINUS_INFINITY = true;
    static constexpr bool IS_PLAIN = true;

    /* Called with the accumulator of S = Q K^T, ahead of the mask; where the main loop can leave scores as they are
     * (LEAVES_SCORES) only of blocks that are masked, and of a work tile's first one. */
    template <int SCORES> __device__ __forceinline__ static void apply(float (&)[SCORES], const Params &) {}
};

/* A tile with its policies; `Tile` is such a type in all functions of the kernel. */
template <typename OwnTile, typename WorkPolicy, typename ScorePolicy> struct With : OwnTile {
    using Work = WorkPolicy;
    using Score = ScorePolicy;
};

} // namespace sm90_fwd
