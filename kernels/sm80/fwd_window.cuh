/* fused_sm80, forward: windows, and dense attention at head dims 32, 96, 192 and 256, of sequences of the same lengths,
 * without block masks, at a head_dim that the tile has exactly. The kernel and its description: fused_sm80_fwd.cu.
 *
 * A block's tiles of keys follow from its rows, so that it needs no list of them: those on the left and those on the
 * right that its window or the end of the keys cuts, and between them those that all rows see in full. The whole ones
 * come first, as in the dense kernel. Then come the cut ones, two at a time, one of either side in each stage. The
 * first warps see much of one of them and the last warps of the other, so that all take about as long; between the two
 * there is no barrier. */
#pragma once
#include "kernels/sm80/fwd_sparse.cuh"

namespace sm80_fwd {

/* Tiles of keys of a block, by number: those that are cut on the left from `first` on, whole ones from `whole` on,
 * those that are cut on the right from `whole_end` on. */
struct WindowTiles {
    int first, whole, whole_end, end;

    __device__ __forceinline__ int cut() const { return whole - first + end - whole_end; }

    /* The i-th of the cut ones: one of either side in turns, as long as there are any. */
    __device__ __forceinline__ int cut_tile(int i) const
    {
        const int lefts = whole - first, rights = end - whole_end, both = min(lefts, rights);
        const int within = i < 2 * both ? i / 2 : i - both;
        const bool is_left = i < 2 * both ? i % 2 == 0 : lefts > rights;
        return is_left ? first + within : end - 1 - within;
    }
};

/* What a block computes. */
struct WindowWork {
    FamilyWork rows;
    WindowTiles tiles;
};

template <typename Tile> __device__ __forceinline__ WindowWork window_work(const Params &params, int block)
{
    constexpr int M = Tile::BLOCK_M, N = Tile::BLOCK_N;
    const fused_sm80_family &family = params.family;
    const WorkTile work = ordered_work_tile(params, M, block);
    const Sequence s = {work.batch, params.q_len, params.kv_len, 0, 0};
    const TileRange range = key_tiles_of(family, s, work.first_row, M, N);
    const int diagonal = work.first_row + s.kv_len - s.q_len, rows = min(M, s.q_len - work.first_row);
    /* What all rows see: from key `left` on, to before `right`. */
    const int left = max(diagonal + rows - 1 - family.window_left, 0);
    const int right = max(min(s.kv_len, diagonal + family.window_right + 1), 0);
    const int whole = max(min((left + N - 1) / N, range.end), range.first);
    return {{s, work.head, work.first_row, 0}, {range.first, whole, max(min(right / N, range.end), whole), range.end}};
}

/* A tile that the warp's rows may not see in full, in pieces of half its keys: it leaves those out of which none of its
 * rows sees any. */
template <typename T, typename Tile, typename Attributes>
__device__ __forceinline__ void compute_cut_window(Accumulators<Tile> &acc, const SparseLoader<T, Tile> &loader,
                                                   const Params &params, LaneAddresses at, int row, int tile)
{
    constexpr int KEYS = Tile::BLOCK_N / 2;
    using Piece = PieceOf<Tile, KEYS>;
    const WarpView view = {row + params.kv_len - params.q_len, min(Traits<Tile>::ROWS, params.q_len - row),
                           params.kv_len};
    int key = tile * Tile::BLOCK_N;
#pragma unroll 1
    for (int piece = 0; piece < Tile::BLOCK_N; piece += KEYS, key += KEYS, at.k += KEYS * 128, at.v += KEYS * 128)
        if (key < view.kv_len && view.sees(params.family, key, KEYS))
            compute_tile<T, Piece, true, Attributes>(
                acc, loader, params, at, 0, Mask(),
                {NULL, view.kv_len, row, key, view.diagonal, false, !view.sees_all(params.family, key, KEYS)});
}

/* Work is found again where it is needed: then it takes no registers in between. */
template <typename T, typename Tile, typename Attributes>
__device__ __forceinline__ void compute_window(const Params &params, Smem<Tile> &smem)
{
    using Shape = SparseShape<Tile>;
    constexpr int M = Tile::BLOCK_M, N = Tile::BLOCK_N, STAGE_BYTES = Traits<Tile>::STAGE_BYTES;
    __shared__ BlockFacts facts; /* k and v alone */
    const int lane = threadIdx.x % WARP, warp_offset = threadIdx.x / WARP * Traits<Tile>::ROWS;
    SparseLoader<T, Tile> loader;
    Accumulators<Tile> acc;
    int whole; /* tiles that all rows see in full and that are left; the stage of the next one is whole % STAGES */

    loader.facts = &facts;
    {
        const WindowWork own = window_work<Tile>(params, blockIdx.x);
        const Sequence &s = own.rows.sequence;
        const uint16_t *q = family_head(params, params.q, params.q_strides, s, 0, own.rows.head);
        sparse_copy<T, Shape, M, true>(shared_address(smem.q) + sparse_offset<Shape, M>(),
                                       sparse_source<T, Shape>(q, own.rows.first_row, params.q_strides.row),
                                       params.q_strides.row, true, params.q, s.q_len - own.rows.first_row);
        if (threadIdx.x == 0) {
            const int kv_head = quotient(own.rows.head, params.order.group);
            facts.k = family_head(params, params.k, params.k_strides, s, 0, kv_head);
            facts.v = family_head(params, params.v, params.v_strides, s, 0, kv_head);
        }
        __syncthreads();
        whole = own.tiles.whole_end - own.tiles.whole;
        loader.tile = own.tiles.whole;
        loader.to = shared_address(smem.k) + whole % STAGES * STAGE_BYTES;
        loader.is_whole = whole > 0;
        loader.copy_whole(params);
        cp_async_commit();
    }
    clear<Tile>(acc);
    LaneAddresses at = {shared_address(smem.q) + warp_offset * 128 + rows_first(lane), 0, 0};
    const uint32_t k_lane = shared_address(smem.k) + columns_first(lane);
    const uint32_t v_lane = shared_address(smem.v) + rows_first(lane);
    for (; whole > 0; --whole) {
        wait_for_tile();
        ++loader.tile;
        loader.to = shared_address(smem.k) + (whole - 1) % STAGES * STAGE_BYTES;
        loader.is_whole = whole > 1;
        at.k = k_lane + whole % STAGES * STAGE_BYTES;
        at.v = v_lane + whole % STAGES * STAGE_BYTES;
        compute_tile<T, Tile, false, Attributes>(acc, loader, params, at, 0, Mask(), FamilyTile());
        cp_async_commit();
    }

    const WindowWork own = window_work<Tile>(params, forget(blockIdx.x));
    const int thread = forget(threadIdx.x), cut = own.tiles.cut();
    const int warp_row = own.rows.first_row + keep_uniform(thread / WARP) * Traits<Tile>::ROWS;
    for (int i = 0; i < cut; i += STAGES) {
        const int tiles = min(STAGES, cut - i);
        __syncthreads(); /* all have finished with the tiles before */
#pragma unroll 1
        for (int stage = 0; stage < tiles; ++stage) {
            loader.tile = own.tiles.cut_tile(i + stage);
            loader.to = shared_address(smem.k) + stage * STAGE_BYTES;
            loader.copy(params, params.kv_len - loader.tile * N);
        }
        cp_async_commit();
        wait_for_tile();
#pragma unroll 1
        for (int stage = 0; stage < tiles; ++stage) {
            at.k = shared_address(smem.k) + columns_first(thread % WARP) + stage * STAGE_BYTES;
            at.v = shared_address(smem.v) + rows_first(thread % WARP) + stage * STAGE_BYTES;
            compute_cut_window<T, Tile, Attributes>(acc, loader, params, at, warp_row, own.tiles.cut_tile(i + stage));
        }
    }
    wait_for_tile(); /* for all of Q, if there was no tile: O goes to where it is */
    store_output<T, Tile, Attributes>(acc, params, window_work<Tile>(params, forget(blockIdx.x)).rows, smem.q);
}

} // namespace sm80_fwd
