/* The family on the device: sequences, visible keys and rows, block masks, copies of narrower rows. Shared by the
 * kernels of both directions, which have it in instantiations of their own: with the attributes `Dense` the compiler
 * sees nothing of it. Which attributes a problem has is decided at run time, in branches that a whole block takes. */
#pragma once
#include <cstdint>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/copies_sm80.cuh"
#include "kernels/device/warp_matrix.cuh"
#include "kernels/sm80/family.h"

namespace sm80_family {

/* The attributes that a kernel is compiled with: none; which pairs are visible, at head dims that a tile has exactly;
 * the same with dropout; all. */
struct Dense {
    static constexpr bool FAMILY = false, SPARSE = false, DROPOUT = false;
};
struct Sparse {
    static constexpr bool FAMILY = false, SPARSE = true, DROPOUT = false;
};
struct Window { /* as Sparse, of sequences of the same lengths without a block mask; the forward's */
    static constexpr bool FAMILY = false, SPARSE = true, DROPOUT = false;
};
struct SparseDropout {
    static constexpr bool FAMILY = false, SPARSE = true, DROPOUT = true;
};
struct Family {
    static constexpr bool FAMILY = true, SPARSE = false, DROPOUT = true; /* decided at run time */
};

template <typename Attributes> __device__ __forceinline__ bool has_dropout(const fused_sm80_family &family)
{
    return Attributes::DROPOUT && (!Attributes::FAMILY || family.dropout_threshold != 0);
}

/* ---- sequences ------------------------------------------------------------------------------------------------- */

struct Sequence {
    int number, q_len, kv_len;
    int q_first, k_first; /* packed: its first row in Q and in K, else 0 */
};

__device__ __forceinline__ Sequence sequence_at(const fused_sm80_family &family, int number, int q_len, int kv_len)
{
    Sequence s = {number, q_len, kv_len, 0, 0};
    if (family.cu_seqlens_q != NULL) {
        s.q_first = family.cu_seqlens_q[number];
        s.q_len = family.cu_seqlens_q[number + 1] - s.q_first;
        s.k_first = family.cu_seqlens_k[number];
        s.kv_len = family.cu_seqlens_k[number + 1] - s.k_first;
    }
    return s;
}

/* The element with which a head of a sequence begins; first: q_first or k_first. */
__device__ __forceinline__ int64_t head_offset(const fused_sm80_family &family, int64_t stride_batch,
                                               int64_t stride_head, int64_t stride_row, const Sequence &s, int first,
                                               int head)
{
    return (family.cu_seqlens_q != NULL ? 0 : s.number * stride_batch) + head * stride_head + first * stride_row;
}

/* Where row 0 of a head of a sequence lies in LSE. */
__device__ __forceinline__ int64_t lse_offset(const fused_sm80_family &family, const Sequence &s, int head, int heads)
{
    return family.cu_seqlens_q != NULL ? head * family.total_q + s.q_first
                                       : (static_cast<int64_t>(s.number) * heads + head) * s.q_len;
}

/* ---- visible tiles ----------------------------------------------------------------------------------------------- */

/* Tiles from `first` to before `end`. */
struct TileRange {
    int first, end;
};

/* Tiles of `size` that hold the positions from `first` to before `end`, of which those from 0 to before `len` exist. */
__device__ __forceinline__ TileRange tiles_between(int first, int end, int len, int size)
{
    first = max(first, 0);
    end = min(end, len);
    if (first >= end)
        return {0, 0};
    return {first / size, (end - 1) / size + 1};
}

/* The tiles of keys that any of the rows from `row` on, `rows` of them, sees as far as causality, window and the ends
 * of the sequence go. */
__device__ __forceinline__ TileRange key_tiles_of(const fused_sm80_family &family, const Sequence &s, int row, int rows,
                                                  int size)
{
    const int shift = s.kv_len - s.q_len, last = min(row + rows, s.q_len) - 1;
    if (last < row)
        return {0, 0};
    return tiles_between(row + shift - family.window_left, last + shift + family.window_right + 1, s.kv_len, size);
}

/* The same for the tiles of rows that see any of the keys from `key` on. */
__device__ __forceinline__ TileRange row_tiles_of(const fused_sm80_family &family, const Sequence &s, int key, int keys,
                                                  int size)
{
    const int shift = s.kv_len - s.q_len, last = min(key + keys, s.kv_len) - 1;
    if (last < key)
        return {0, 0};
    return tiles_between(key - shift - family.window_right, last - shift + family.window_left + 1, s.q_len, size);
}

/* ---- block masks ------------------------------------------------------------------------------------------------- */

/* The mask of a head of a sequence. */
__device__ __forceinline__ const uint8_t *mask_of_head(const fused_sm80_family &family, int sequence, int head)
{
    return family.block_mask + sequence * family.mask_batch_stride + head * family.mask_head_stride;
}

/* Whether any (bit 0) and whether all (bit 1) of the blocks that rows x keys from (row, key) on touch are visible. */
__device__ __forceinline__ unsigned blocks_seen(const fused_sm80_family &family, const uint8_t *mask, int row, int rows,
                                                int key, int keys)
{
    const struct divisor &by = family.mask_block_by;
    const int last_row = min(device::quotient(row + rows - 1, by), family.mask_row_blocks - 1);
    const int last_key = min(device::quotient(key + keys - 1, by), family.mask_key_blocks - 1);
    bool any = false, all = true;
    for (int r = device::quotient(row, by); r <= last_row; ++r)
        for (int k = device::quotient(key, by); k <= last_key; ++k) {
            const bool seen = mask[static_cast<int64_t>(r) * family.mask_key_blocks + k] != 0;
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

    template <typename Mask>
    __device__ __forceinline__ void look_up(const fused_sm80_family &family, const Mask &mask, int tile, int end,
                                            int fixed)
    {
        const int own = tile / 32 * 32 + static_cast<int>(threadIdx.x % 32);
        unsigned seen = 2;
        if (own < end)
            seen =
                blocks_seen(family, mask(), ROWS_MOVE ? own * ROWS : fixed, ROWS, ROWS_MOVE ? fixed : own * KEYS, KEYS);
        any = __ballot_sync(0xffffffffu, seen & 1u);
        all = __ballot_sync(0xffffffffu, seen & 2u);
    }

    /* mask(): that of the head, asked for only where there is one. */
    template <typename Mask>
    __device__ __forceinline__ int start(const fused_sm80_family &family, const Mask &mask, TileRange range, int fixed)
    {
        any = all = ~0u;
        if (family.block_mask != NULL)
            look_up(family, mask, range.first, range.end, fixed);
        return first_from(family, mask, range.first, range.end, fixed);
    }

    /* The first visible tile from `tile` on, or `end`. The 32 tiles of `tile` have been looked up. */
    template <typename Mask>
    __device__ __forceinline__ int first_from(const fused_sm80_family &family, const Mask &mask, int tile, int end,
                                              int fixed)
    {
        while (family.block_mask != NULL && tile < end) {
            const uint32_t left = any >> tile % 32;
            if (left != 0)
                return tile + __ffs(left) - 1;
            tile = tile / 32 * 32 + 32;
            look_up(family, mask, tile, end, fixed);
        }
        return min(tile, end);
    }

    /* The first visible tile behind `tile`, which was the last that was found. */
    template <typename Mask>
    __device__ __forceinline__ int after(const fused_sm80_family &family, const Mask &mask, int tile, int end,
                                         int fixed)
    {
        if (family.block_mask != NULL && tile % 32 == 31)
            look_up(family, mask, tile + 1, end, fixed);
        return first_from(family, mask, tile + 1, end, fixed);
    }

    /* Whether all blocks of the tile that was found last are visible. */
    __device__ __forceinline__ bool is_whole(int tile) const { return (all >> tile % 32 & 1u) != 0; }
};

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* All THREADS threads of a block start copying ROWS rows of COLUMNS elements to panels of 64 columns, of which `rows`
 * rows and `columns` columns exist; the rest becomes zero, and `legal` stands in for its address. Thread t copies chunk
 * t % 8 of each panel. */
template <int ROWS, int COLUMNS, int THREADS>
__device__ __forceinline__ void load_panels(uint32_t shared, const uint16_t *from, const void *legal, int64_t stride,
                                            int rows, int columns)
{
    constexpr int STEP = THREADS / 8;
    static_assert(ROWS % STEP == 0 && STEP % 8 == 0, "passes are whole and keep the swizzle's phase");
    const int first = static_cast<int>(threadIdx.x) / 8, chunk = static_cast<int>(threadIdx.x) % 8;
    shared += device::swizzle_128b(first, chunk);
    from += first * stride + chunk * 8;
#pragma unroll
    for (int row = 0; row < ROWS; row += STEP) {
#pragma unroll
        for (int column = 0; column < COLUMNS; column += 64) {
            const bool valid = first + row < rows && column + chunk * 8 < columns;
            if (column + 64 <= COLUMNS || column + chunk * 8 < COLUMNS)
                device::cp_async_16(shared + column / 64 * (ROWS * 128) + row * 128, valid ? from + column : legal,
                                    valid);
        }
        from += STEP * stride;
        device::keep_pointer(from);
    }
}

} // namespace sm80_family
