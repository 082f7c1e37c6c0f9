/* The tiles that a thread block goes over where it does not see all of a range, as a list in shared memory that all its
 * threads fill ahead of the loop: then the loop has one load for each tile, and no tile costs more than the dense
 * kernel's unless something cuts it. Without a block mask these are all tiles of a range; with one, the kernels ahead
 * have listed them (schedule.cu).
 *
 * An entry is tile * 8 + bits of enum tile_bits, relative to the first tile of the list's section of LIST_TILES tiles;
 * behind the last one stands LIST_END. A longer range is several sections, one after the other. */
#pragma once
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/family/ranges.cuh"
#include "kernels/family/tile_lists.h"

namespace family {

constexpr int LIST_TILES = FAMILY_LIST_TILES, LIST_END = 0xffff, TILE_BITS = 3;

enum tile_bits {
    TILE_IS_CUT = 1,    /* causality, window or the end of the keys hides a pair of it */
    TILE_IS_SHORT = 2,  /* rows of it do not exist, on the side of the tiles */
    TILE_HAS_HIDDEN = 4 /* the block mask hides a part of it */
};

struct TileList {
    int first, end; /* of the section, and of the range */
    alignas(16) uint16_t entries[LIST_TILES + FAMILY_LIST_CHUNK];

    /* Entry i, tile * 8 + bits, or -1 behind the section's last one. */
    __device__ __forceinline__ int at(int i) const
    {
        const int entry = entries[i];
        return entry == LIST_END ? -1 : (first << TILE_BITS) + entry;
    }
    __device__ __forceinline__ bool has_more_sections() const { return first + LIST_TILES < end; }
};

/* TILE_IS_CUT and TILE_IS_SHORT of the tile of rows x keys from (row, key) on. ROWS_MOVE: its list is of tiles of rows,
 * not of keys. */
template <bool ROWS_MOVE>
__device__ __forceinline__ int tile_bits_of(const family_window &window, const Sequence &s, int row, int rows, int key,
                                            int keys)
{
    const int diagonal = row + s.kv_len - s.q_len, seen_rows = ROWS_MOVE ? rows : min(rows, s.q_len - row);
    const bool is_whole =
        key + keys <= min(s.kv_len, diagonal + window.right + 1) && key >= diagonal + seen_rows - 1 - window.left;
    const bool is_short = ROWS_MOVE ? row + rows > s.q_len : key + keys > s.kv_len;
    return (is_whole ? 0 : TILE_IS_CUT) | (is_short ? TILE_IS_SHORT : 0);
}

/* Number of the list of own tile `own` (of packed sequences: of the work tile's number) of a query head. */
__device__ __forceinline__ int64_t list_number(const family_tile_lists &lists, int sequence, int head, int own)
{
    return sequence * lists.batch_stride + head * lists.head_stride + own;
}

/* The first entry of a list's section, which begins with tile `first`, a multiple of LIST_TILES. */
__device__ __forceinline__ uint16_t *list_section(const family_tile_lists &lists, int64_t number, int first)
{
    return lists.entries + (number * lists.sections + first / LIST_TILES) * (lists.chunks * FAMILY_LIST_CHUNK);
}

/* All THREADS threads of the block list the tiles from `first` on of a range that ends before `end`, one section of
 * them; on return all see the list. bits_of(tile): TILE_IS_CUT and TILE_IS_SHORT. */
template <int THREADS, typename Bits>
__device__ __forceinline__ void fill_list(TileList &list, int first, int end, const Bits &bits_of)
{
    static_assert(LIST_TILES % THREADS == 0, "whole passes");
    const int thread = device::forget(threadIdx.x);
#pragma unroll
    for (int i = thread; i < LIST_TILES; i += THREADS)
        if (first + i < end)
            list.entries[i] = static_cast<uint16_t>(i << TILE_BITS | bits_of(first + i));
    if (thread == 0) {
        list.entries[max(0, min(end - first, LIST_TILES))] = LIST_END;
        list.first = first;
        list.end = end;
    }
    __syncthreads();
}

/* The same for a section of a list that the kernels ahead have made; `first` is a multiple of LIST_TILES. meanwhile():
 * what is done while it is loaded. */
template <typename Meanwhile>
__device__ __forceinline__ void load_list(TileList &list, const family_tile_lists &lists, int64_t number, int first,
                                          int end, const Meanwhile &meanwhile)
{
    const int thread = device::forget(threadIdx.x);
    uint4 chunk = {};
    if (thread < lists.chunks)
        chunk = __ldg(reinterpret_cast<const uint4 *>(list_section(lists, number, first)) + thread);
    meanwhile();
    if (thread < lists.chunks)
        reinterpret_cast<uint4 *>(list.entries)[thread] = chunk;
    if (thread == 0) {
        list.first = first;
        list.end = end;
    }
    __syncthreads();
}

} // namespace family
