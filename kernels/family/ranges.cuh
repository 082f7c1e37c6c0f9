/* Visible ranges of a tile: which tiles of keys its rows see, which tiles of rows see its keys, and what lies at an
 * edge, as far as causality, window and the ends of the sequence go. The diagonal is aligned at the bottom right: row i
 * is at key i + kv_len - q_len. */
#pragma once
#include "kernels/family/lengths.cuh"
#include "kernels/family/window.h"

namespace family {

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

/* The tiles of keys that any of the rows from `row` on, `rows` of them, sees. */
__device__ __forceinline__ TileRange key_tiles_of(const family_window &window, const Sequence &s, int row, int rows,
                                                  int size)
{
    const int shift = s.kv_len - s.q_len, last = min(row + rows, s.q_len) - 1;
    if (last < row)
        return {0, 0};
    return tiles_between(row + shift - window.left, last + shift + window.right + 1, s.kv_len, size);
}

/* The same for the tiles of rows that see any of the keys from `key` on. */
__device__ __forceinline__ TileRange row_tiles_of(const family_window &window, const Sequence &s, int key, int keys,
                                                  int size)
{
    const int shift = s.kv_len - s.q_len, last = min(key + keys, s.kv_len) - 1;
    if (last < key)
        return {0, 0};
    return tiles_between(key - shift - window.right, last - shift + window.left + 1, s.q_len, size);
}

/* What some rows see: `rows` of them, the first of which is at key `diagonal`. */
struct RowsView {
    int diagonal, rows, kv_len;

    /* Whether any row sees any of the keys from `key` on. */
    __device__ __forceinline__ bool sees(const family_window &window, int key, int keys) const
    {
        return rows > 0 && key <= diagonal + rows - 1 + window.right && key + keys > diagonal - window.left;
    }
    /* Whether all rows see all of them. */
    __device__ __forceinline__ bool sees_all(const family_window &window, int key, int keys) const
    {
        return key + keys <= min(kv_len, diagonal + window.right + 1) && key >= diagonal + rows - 1 - window.left;
    }
};

} // namespace family
