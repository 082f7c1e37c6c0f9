/* fused_sm80, forward: packed lengths and block masks, also with windows, at a head_dim that the tile has exactly; with
 * dropout windows alone, too (without: window.cuh). The kernel and its description: kernel.cuh.
 *
 * The dense kernel's loop over a list of tiles (tile_lists.cuh). A tile of which a warp's rows see every pair is
 * computed as in the dense kernel; any other in two pieces of half its keys: a warp leaves a piece out where none of
 * its rows sees any of it, and computes it with masks where one does. */
#pragma once
#include "kernels/sm80/fwd/math.cuh"
#include "kernels/family/tile_lists.cuh"

namespace sm80_fwd {

/* How a block's threads copy rows of Q and K: PASS_CHUNKS chunks of COPY_STEP rows at once. */
template <typename Tile> struct SparseShape : Traits<Tile> {
    static constexpr int CHUNKS = Traits<Tile>::CHUNKS;
    static constexpr int PASS_CHUNKS = Traits<Tile>::V_IS_AS_WIDE && Traits<Tile>::THREADS % CHUNKS == 0 ? CHUNKS : 8;
    static constexpr int COPY_STEP = Traits<Tile>::THREADS / PASS_CHUNKS;
    static_assert(COPY_STEP % 8 == 0, "the swizzle of a thread's chunk is the same in all its rows");
    static_assert(PASS_CHUNKS == CHUNKS || PASS_CHUNKS == 8, "a pass is whole rows or a panel");
};

/* The same of V, in passes as those of K, so that a thread has the same chunk and rows. */
template <typename Tile> struct SparseShapeOfV : SparseShape<Tile> {
    static constexpr int CHUNKS = Traits<Tile>::V_CHUNKS;
};

/* Where the thread's first chunk goes in a tile of ROWS rows, and where it comes from: from row `row` of a head on. */
template <typename Shape, int ROWS> __device__ __forceinline__ uint32_t sparse_offset()
{
    const unsigned thread = forget(threadIdx.x), chunk = thread % Shape::PASS_CHUNKS;
    return chunk / 8 * (ROWS * 128) + swizzle_128b(thread / Shape::PASS_CHUNKS, chunk % 8);
}

template <typename T, typename Shape>
__device__ __forceinline__ const T *sparse_source(const uint16_t *head, int row, int64_t stride)
{
    const unsigned thread = forget(threadIdx.x), chunk = thread % Shape::PASS_CHUNKS;
    return reinterpret_cast<const T *>(head) + (row + thread / Shape::PASS_CHUNKS) * stride + chunk * 8;
}

/* Copies ROWS rows; with CHECKED only the `rows` first exist, the others become zero, and `legal` stands in for their
 * address. Without, nothing unless `is_wanted`. Advances `from` by ROWS rows either way. */
template <typename T, typename Shape, int ROWS, bool CHECKED>
__device__ __forceinline__ void sparse_copy_and_advance(uint32_t to, const T *&from, int64_t stride, bool is_wanted,
                                                        const void *legal, int rows)
{
    const int left = rows - static_cast<int>(threadIdx.x) / Shape::PASS_CHUNKS;
    const int chunk = threadIdx.x % Shape::PASS_CHUNKS;
    static_assert(ROWS % Shape::COPY_STEP == 0, "all threads copy alike");
#pragma unroll
    for (int i = 0; i < ROWS; i += Shape::COPY_STEP) {
#pragma unroll
        for (int c = 0; c < Shape::CHUNKS; c += Shape::PASS_CHUNKS) {
            const bool is_column = c + Shape::PASS_CHUNKS <= Shape::CHUNKS || c + chunk < Shape::CHUNKS;
            const uint32_t target = to + c / 8 * (ROWS * 128) + i * 128;
            if (CHECKED) {
                if (is_column)
                    cp_async_16(target, i < left ? static_cast<const void *>(from + c * 8) : legal, i < left);
            } else if (is_wanted && is_column) {
                cp_async_16(target, from + c * 8, true);
            }
        }
        from += Shape::COPY_STEP * stride;
        keep_pointer(from);
    }
}

/* The same of an address that is not needed afterwards. */
template <typename T, typename Shape, int ROWS, bool CHECKED>
__device__ __forceinline__ void sparse_copy(uint32_t to, const T *from, int64_t stride, bool is_wanted,
                                            const void *legal, int rows)
{
    sparse_copy_and_advance<T, Shape, ROWS, CHECKED>(to, from, stride, is_wanted, legal, rows);
}

/* Loads the tiles of K and V that it is told. Addresses are computed anew each time: five registers less. */
template <typename T, typename Tile> struct SparseLoader {
    using Shape = SparseShape<Tile>;
    using ShapeOfV = SparseShapeOfV<Tile>;
    static constexpr int N = Tile::BLOCK_N;
    static constexpr uint32_t V_OFFSET = STAGES * Traits<Tile>::STAGE_BYTES;
    const volatile BlockFacts *facts;
    uint32_t to; /* the stage of K that is next */
    int tile;
    bool is_whole; /* there is such a tile, it has BLOCK_N keys, and it has not been copied */

    template <bool CHECKED> __device__ __forceinline__ void copy_tile(const Params &params, int rows) const
    {
        const uint32_t own = to + sparse_offset<Shape, N>();
        sparse_copy<T, Shape, N, CHECKED>(own, sparse_source<T, Shape>(facts->k, tile * N, params.k_strides.row),
                                          params.k_strides.row, is_whole, params.k, rows);
        sparse_copy<T, ShapeOfV, N, CHECKED>(own + V_OFFSET,
                                             sparse_source<T, ShapeOfV>(facts->v, tile * N, params.v_strides.row),
                                             params.v_strides.row, is_whole, params.v, rows);
    }

    __device__ __forceinline__ void copy_whole(const Params &params) const { copy_tile<false>(params, N); }

    /* Any tile, of `rows` keys, at once. */
    __device__ __forceinline__ void copy(const Params &params, int rows) const { copy_tile<true>(params, rows); }
};

/* What all warps of a block need seldom. */
struct SparseBlock {
    FamilyWork work;
    BlockFacts facts;
    TileList list;
};

/* All threads fill the list with the tiles from `first` on, of those that rows of `work` see. */
template <typename Tile>
__device__ __forceinline__ void list_key_tiles(TileList &list, const fused_sm80_family &family, const FamilyWork &work,
                                               int first, int end)
{
    constexpr int M = Tile::BLOCK_M, N = Tile::BLOCK_N;
    if (family.lists.entries != NULL) {
        load_list(list, family.lists, list_number(family.lists, work.sequence.number, work.head, work.own),
                  first & ~(LIST_TILES - 1), end, [] {});
        return;
    }
    fill_list<Traits<Tile>::THREADS>(list, first, end, [&](int tile) {
        return tile_bits_of<false>(family.window, work.sequence, work.first_row, M, tile * N, N);
    });
}

/* The first entry of the next section that has any, or -1. All threads call it. */
template <typename Tile>
__device__ __forceinline__ int next_key_section(SparseBlock &block, const fused_sm80_family &family)
{
    int entry = -1;
    while (entry < 0 && block.list.has_more_sections()) {
        const int first = block.list.first + LIST_TILES, end = block.list.end;
        __syncthreads(); /* all have read the section before */
        list_key_tiles<Tile>(block.list, family, block.work, first, end);
        entry = block.list.at(0);
    }
    return entry;
}

/* The first of the warp's rows, and what they see. */
template <typename Tile> __device__ __forceinline__ int warp_row_of(const SparseBlock &block)
{
    return block.work.first_row + static_cast<int>(threadIdx.x) / WARP * Traits<Tile>::ROWS;
}

template <typename Tile> __device__ __forceinline__ RowsView warp_view_of(const SparseBlock &block)
{
    const Sequence &s = block.work.sequence;
    const int row = warp_row_of<Tile>(block);
    return {row + s.kv_len - s.q_len, min(Traits<Tile>::ROWS, s.q_len - row), s.kv_len};
}

/* A tile that the warp's rows do not see in full. */
template <typename T, typename Tile, typename Attributes>
__device__ __forceinline__ void compute_cut_tile(Accumulators<Tile> &acc, const SparseLoader<T, Tile> &loader,
                                                 const Params &params, LaneAddresses at, const SparseBlock &block,
                                                 int entry)
{
    constexpr int KEYS = Tile::BLOCK_N / 2;
    using Piece = PieceOf<Tile, KEYS>;
    const int row = warp_row_of<Tile>(block);
    const RowsView view = warp_view_of<Tile>(block);
    const bool has_hidden = (entry & TILE_HAS_HIDDEN) != 0;
    int key = (entry >> TILE_BITS) * Tile::BLOCK_N;
#pragma unroll 1
    for (int piece = 0; piece < Tile::BLOCK_N; piece += KEYS, key += KEYS, at.k += KEYS * 128, at.v += KEYS * 128)
        if (key < view.kv_len && view.sees(params.family.window, key, KEYS))
            compute_tile<T, Piece, true, Attributes>(acc, loader, params, at, 0, Mask(),
                                                     {&block.facts, view.kv_len, row, key, view.diagonal, has_hidden,
                                                      has_hidden || !view.sees_all(params.family.window, key, KEYS)});
}

/* What is needed of a tile that the warp's rows see in full: with dropout, where it is. */
template <typename Tile, typename Attributes>
__device__ __forceinline__ FamilyTile whole_tile(const SparseBlock &block, int entry)
{
    FamilyTile tile = {};
    if (Attributes::DROPOUT) {
        tile.facts = &block.facts;
        tile.row = warp_row_of<Tile>(block);
        tile.key = (entry >> TILE_BITS) * Tile::BLOCK_N;
    }
    return tile;
}

/* Whether the warp's rows see all pairs of a tile. */
template <typename Tile>
__device__ __forceinline__ bool sees_whole(const SparseBlock &block, const fused_sm80_family &family, int entry)
{
    if ((entry & (TILE_IS_CUT | TILE_HAS_HIDDEN)) == 0)
        return true;
    const RowsView view = warp_view_of<Tile>(block);
    return (entry & TILE_HAS_HIDDEN) == 0 && view.rows > 0 &&
           view.sees_all(family.window, (entry >> TILE_BITS) * Tile::BLOCK_N, Tile::BLOCK_N);
}

/* Sparse attention: the tiles of keys that the rows of the block see, one after the other. */
template <typename T, typename Tile, typename Attributes>
__device__ __forceinline__ void compute_sparse(const Params &params, Smem<Tile> &smem)
{
    using Shape = SparseShape<Tile>;
    constexpr int M = Tile::BLOCK_M, N = Tile::BLOCK_N, STAGE_BYTES = Traits<Tile>::STAGE_BYTES;
    __shared__ SparseBlock block;
    const fused_sm80_family &family = params.family;
    const int lane = threadIdx.x % WARP, warp_offset = threadIdx.x / WARP * Traits<Tile>::ROWS;
    const FamilyWork work = family_work_of_block(params, M, blockIdx.x);
    const Sequence &s = work.sequence;
    if (s.number < 0)
        return;
    const uint16_t *q = family_head(params, params.q, params.q_strides, s, s.q_first, work.head);
    sparse_copy<T, Shape, M, true>(shared_address(smem.q) + sparse_offset<Shape, M>(),
                                   sparse_source<T, Shape>(q, work.first_row, params.q_strides.row),
                                   params.q_strides.row, true, params.q, s.q_len - work.first_row);
    if (threadIdx.x == 0) {
        const int kv_head = quotient(work.head, params.order.group);
        block.work = work;
        block.facts.k = family_head(params, params.k, params.k_strides, s, s.k_first, kv_head);
        block.facts.v = family_head(params, params.v, params.v_strides, s, s.k_first, kv_head);
        block.facts.mask = family.mask.blocks == NULL ? NULL : mask_of_head(family.mask, s.number, work.head);
        block.facts.sequence = s.number;
        block.facts.head = work.head;
    }
    const TileRange range = key_tiles_of(family.window, s, work.first_row, M, N);
    list_key_tiles<Tile>(block.list, family, work, range.first, range.end);
    SparseLoader<T, Tile> loader;
    loader.facts = &block.facts;
    int entry = block.list.at(0);
    if (entry < 0)
        entry = next_key_section<Tile>(block, family);
    if (entry >= 0) {
        loader.tile = entry >> TILE_BITS;
        loader.to = shared_address(smem.k);
        loader.copy(params, s.kv_len - loader.tile * N);
    }
    cp_async_commit();
    if (entry < 0)
        wait_for_tile(); /* for all of Q: O goes to where it is */
    Accumulators<Tile> acc;
    clear<Tile>(acc);
    LaneAddresses at = {shared_address(smem.q) + warp_offset * 128 + rows_first(lane), 0, 0};
    for (int i = 1, stage = 0; entry >= 0; ++i, stage ^= 1) {
        int next = block.list.at(i);
        if (next < 0 && block.list.has_more_sections()) {
            next = next_key_section<Tile>(block, family);
            i = 0;
        }
        const bool is_whole = sees_whole<Tile>(block, family, entry);
        loader.tile = next >> TILE_BITS;
        loader.to = shared_address(smem.k) + (stage ^ 1) * STAGE_BYTES;
        loader.is_whole = next >= 0 && (next & TILE_IS_SHORT) == 0 && is_whole;
        at.k = shared_address(smem.k) + columns_first(lane) + stage * STAGE_BYTES;
        at.v = shared_address(smem.v) + rows_first(lane) + stage * STAGE_BYTES;
        wait_for_tile();
        if (next >= 0 && !loader.is_whole)
            loader.copy(params, block.work.sequence.kv_len - loader.tile * N);
        if (is_whole)
            compute_tile<T, Tile, false, Attributes>(acc, loader, params, at, 0, Mask(),
                                                     whole_tile<Tile, Attributes>(block, entry));
        else
            compute_cut_tile<T, Tile, Attributes>(acc, loader, params, at, block, entry);
        cp_async_commit();
        entry = next;
    }
    store_output<T, Tile, Attributes>(acc, params, block.work, smem.q);
}

} // namespace sm80_fwd
