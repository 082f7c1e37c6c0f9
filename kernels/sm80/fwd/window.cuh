/* fused_sm80, forward: windows, and dense attention at head dims 32, 96, 192 and 256, of sequences of the same lengths,
 * without block masks, at a head_dim that the tile has exactly. The kernel and its description: kernel.cuh.
 *
 * A block's tiles of keys follow from its rows, so that it needs no list of them: those on the left and those on the
 * right that its window or the end of the keys cuts, and between them those that all rows see in full. The whole ones
 * come first, as in the dense kernel. Then come the cut ones, two at a time, one of either side in each stage. The
 * first warps see much of one of them and the last warps of the other, so that all take about as long; between the two
 * there is no barrier of the block. The first of them is copied beside the last whole tile, the second one beside the
 * first: an mbarrier says when its copies have arrived. */
#pragma once
#include "kernels/device/barriers.cuh"
#include "kernels/sm80/fwd/sparse.cuh"

namespace sm80_fwd {

/* Tiles of keys of a block, by number: those that are cut on the left from `first` on, whole ones from `whole` on,
 * those that are cut on the right from `whole_end` on. */
struct WindowTiles {
    int first, whole, whole_end, end;

    __device__ __forceinline__ int cut() const { return whole - first + end - whole_end; }

    /* The i-th of the cut ones: one of either side in turns, as long as there are any, those next to the whole ones
     * first. */
    __device__ __forceinline__ int cut_tile(int i) const
    {
        const int lefts = whole - first, rights = end - whole_end, both = min(lefts, rights);
        const int within = i < 2 * both ? i / 2 : i - both;
        const bool is_right = i < 2 * both ? i % 2 == 0 : rights > lefts;
        return is_right ? whole_end + within : whole - 1 - within;
    }

    /* End of the tiles that follow each other and have all their `keys` keys: the whole ones, and the first of the cut
     * ones where that is on the right. */
    __device__ __forceinline__ int loaded_end(int keys, int kv_len) const
    {
        return whole_end < end && (whole_end + 1) * keys <= kv_len ? whole_end + 1 : whole_end;
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
    const TileRange range = key_tiles_of(family.window, s, work.first_row, M, N);
    const int diagonal = work.first_row + s.kv_len - s.q_len, rows = min(M, s.q_len - work.first_row);
    /* What all rows see: from key `left` on, to before `right`. */
    const int left = max(diagonal + rows - 1 - family.window.left, 0);
    const int right = max(min(s.kv_len, diagonal + family.window.right + 1), 0);
    const int whole = max(min((left + N - 1) / N, range.end), range.first);
    return {{s, work.head, work.first_row, 0}, {range.first, whole, max(min(right / N, range.end), whole), range.end}};
}

/* A tile that the warp's rows may not see in full, in pieces: the warp leaves those out of which none of its rows sees
 * any. */
template <typename T, typename Tile, typename Attributes>
__device__ __forceinline__ void compute_cut_window(Accumulators<Tile> &acc, const SparseLoader<T, Tile> &loader,
                                                   const Params &params, LaneAddresses at, int row, int tile)
{
    constexpr int KEYS = 32;
    using Piece = PieceOf<Tile, KEYS>;
    const RowsView view = {row + params.kv_len - params.q_len, min(Traits<Tile>::ROWS, params.q_len - row),
                           params.kv_len};
    int key = tile * Tile::BLOCK_N;
#pragma unroll 1
    for (int piece = 0; piece < Tile::BLOCK_N; piece += KEYS, key += KEYS, at.k += KEYS * 128, at.v += KEYS * 128)
        if (key < view.kv_len && view.sees(params.family.window, key, KEYS))
            compute_tile<T, Piece, true, Attributes>(
                acc, loader, params, at, 0, Mask(),
                {NULL, view.kv_len, row, key, view.diagonal, false, !view.sees_all(params.family.window, key, KEYS)});
}

/* What all warps of a block need seldom. */
struct WindowBlock {
    BlockFacts facts; /* k and v alone */
    uint64_t arrived; /* mbarrier: all threads' copies of the second of two cut tiles */
    int whole_end, loaded_end;
};

/* Loads tiles that follow each other. Addresses advance where there are registers for them, or are computed anew. */
template <typename T, typename Tile, bool ADVANCES> struct WindowLoader : SparseLoader<T, Tile> {
    __device__ __forceinline__ void start(const Params &, uint32_t) {}

    __device__ __forceinline__ void aim(uint32_t stages, int tile)
    {
        this->to = stages + tile % STAGES * Traits<Tile>::STAGE_BYTES;
    }
};

template <typename T, typename Tile> struct WindowLoader<T, Tile, true> : SparseLoader<T, Tile> {
    using Shape = SparseShape<Tile>;
    using ShapeOfV = SparseShapeOfV<Tile>;
    const T *k, *v; /* this thread's chunk of the next tile */
    uint32_t own;   /* its address in stage 0 of K */

    __device__ __forceinline__ void start(const Params &params, uint32_t stages)
    {
        k = sparse_source<T, Shape>(this->facts->k, this->tile * Tile::BLOCK_N, params.k_strides.row);
        v = sparse_source<T, ShapeOfV>(this->facts->v, this->tile * Tile::BLOCK_N, params.v_strides.row);
        own = stages + sparse_offset<Shape, Tile::BLOCK_N>();
    }

    __device__ __forceinline__ void aim(uint32_t, int tile)
    {
        this->to = own + tile % STAGES * Traits<Tile>::STAGE_BYTES;
    }

    __device__ __forceinline__ void copy_whole(const Params &params)
    {
        constexpr int N = Tile::BLOCK_N;
        const uint32_t to = this->to;
        sparse_copy_and_advance<T, Shape, N, false>(to, k, params.k_strides.row, this->is_whole, NULL, N);
        sparse_copy_and_advance<T, ShapeOfV, N, false>(to + this->V_OFFSET, v, params.v_strides.row, this->is_whole,
                                                       NULL, N);
    }
};

/* Where the stage of a tile begins. With V of another head_dim a choice: the product takes a register more, which tiles
 * of 256 x 64 do not have. */
template <typename Tile> __device__ __forceinline__ uint32_t window_stage(int tile)
{
    constexpr int BYTES = Traits<Tile>::STAGE_BYTES;
    return Traits<Tile>::V_IS_AS_WIDE ? tile % STAGES * BYTES : tile % STAGES != 0 ? BYTES : 0;
}

/* Work is found again where it is needed: then it takes no registers in between. Tile n is in stage n % STAGES, but the
 * second of two cut tiles in the other one than the first. */
template <typename T, typename Tile, typename Attributes>
__device__ __forceinline__ void compute_window(const Params &params, Smem<Tile> &smem)
{
    using Shape = SparseShape<Tile>;
    constexpr int M = Tile::BLOCK_M, N = Tile::BLOCK_N, STAGE_BYTES = Traits<Tile>::STAGE_BYTES;
    constexpr bool HAS_REGISTERS = Tile::V_HEAD_DIM != 128; /* for addresses and bounds over the loop */
    __shared__ WindowBlock shared;
    const volatile WindowBlock &block = shared;
    const int lane = threadIdx.x % WARP, warp_offset = threadIdx.x / WARP * Traits<Tile>::ROWS;
    WindowLoader<T, Tile, HAS_REGISTERS> loader;
    Accumulators<Tile> acc;

    loader.facts = &shared.facts;
    {
        const WindowWork own = window_work<Tile>(params, blockIdx.x);
        const Sequence &s = own.rows.sequence;
        const uint16_t *q = family_head(params, params.q, params.q_strides, s, 0, own.rows.head);
        sparse_copy<T, Shape, M, true>(shared_address(smem.q) + sparse_offset<Shape, M>(),
                                       sparse_source<T, Shape>(q, own.rows.first_row, params.q_strides.row),
                                       params.q_strides.row, true, params.q, s.q_len - own.rows.first_row);
        if (threadIdx.x == 0) {
            const int kv_head = quotient(own.rows.head, params.order.group);
            mbarrier_init(shared_address(&shared.arrived), Traits<Tile>::THREADS);
            shared.facts.k = family_head(params, params.k, params.k_strides, s, 0, kv_head);
            shared.facts.v = family_head(params, params.v, params.v_strides, s, 0, kv_head);
            shared.whole_end = own.tiles.whole_end;
            shared.loaded_end = own.tiles.loaded_end(N, params.kv_len);
        }
        __syncthreads();
        loader.tile = own.tiles.whole;
        loader.start(params, shared_address(smem.k));
        loader.aim(shared_address(smem.k), loader.tile);
        loader.is_whole = loader.tile < own.tiles.loaded_end(N, params.kv_len);
        loader.copy_whole(params);
        cp_async_commit();
    }
    clear<Tile>(acc);
    LaneAddresses at = {shared_address(smem.q) + warp_offset * 128 + rows_first(lane), 0, 0};
    const uint32_t k_lane = shared_address(smem.k) + columns_first(lane);
    const uint32_t v_lane = shared_address(smem.v) + rows_first(lane);
    const int whole_end = block.whole_end, loaded_end = block.loaded_end;
    while (loader.tile < (HAS_REGISTERS ? whole_end : block.whole_end)) {
        wait_for_tile();
        at.k = k_lane + window_stage<Tile>(loader.tile);
        at.v = v_lane + window_stage<Tile>(loader.tile);
        ++loader.tile;
        loader.aim(shared_address(smem.k), loader.tile);
        loader.is_whole = loader.tile < (HAS_REGISTERS ? loaded_end : block.loaded_end);
        compute_tile<T, Tile, false, Attributes>(acc, loader, params, at, 0, Mask(), FamilyTile());
        cp_async_commit();
    }

    const WindowWork own = window_work<Tile>(params, forget(blockIdx.x));
    const int thread = forget(threadIdx.x), cut = own.tiles.cut();
    const int warp_row = own.rows.first_row + keep_uniform(thread / WARP) * Traits<Tile>::ROWS;
    const uint32_t arrived = shared_address(&shared.arrived);
    for (int i = 0; i < cut; i += STAGES) {
        const int tiles = min(STAGES, cut - i);
        int stage = own.tiles.whole_end % STAGES;
        if (i > 0)
            __syncthreads(); /* all have finished with the tiles before */
        if (i > 0 || own.tiles.loaded_end(N, params.kv_len) == own.tiles.whole_end) {
            loader.tile = own.tiles.cut_tile(i);
            loader.to = shared_address(smem.k) + stage * STAGE_BYTES;
            loader.copy(params, params.kv_len - loader.tile * N);
            cp_async_commit();
        }
        wait_for_tile();
        if (tiles > 1) {
            loader.tile = own.tiles.cut_tile(i + 1);
            loader.to = shared_address(smem.k) + (stage ^ 1) * STAGE_BYTES;
            loader.copy(params, params.kv_len - loader.tile * N);
            cp_async_arrive(arrived);
        }
#pragma unroll 1
        for (int j = 0; j < tiles; ++j, stage ^= 1) {
            if (j > 0)
                while (!mbarrier_test_together(arrived, i / STAGES % 2)) {
                }
            at.k = shared_address(smem.k) + columns_first(thread % WARP) + stage * STAGE_BYTES;
            at.v = shared_address(smem.v) + rows_first(thread % WARP) + stage * STAGE_BYTES;
            compute_cut_window<T, Tile, Attributes>(acc, loader, params, at, warp_row, own.tiles.cut_tile(i + j));
        }
    }
    wait_for_tile(); /* for all of Q, if there was no tile: O goes to where it is */
    store_output<T, Tile, Attributes>(acc, params, window_work<Tile>(params, forget(blockIdx.x)).rows, smem.q);
}

} // namespace sm80_fwd
