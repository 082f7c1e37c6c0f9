/* The tiles that a block of a sparse kernel goes over, as a list in shared memory that all its threads make ahead of
 * the loop: then the loop has one load for each tile, and no tile costs more than the dense kernel's unless something
 * cuts it.
 *
 * An entry is tile * 8 + bits of enum tile_bits, relative to the first tile of the list's section of LIST_TILES tiles;
 * behind the last one stands LIST_END. A longer range is several sections, one after the other. */
#pragma once
#include "kernels/device/arithmetic.cuh"
#include "kernels/sm80/family.cuh"

namespace sm80_family {

constexpr int LIST_TILES = 256, LIST_END = 0xffff, TILE_BITS = 3;

enum tile_bits {
    TILE_IS_CUT = 1,    /* causality, window or the end of the keys hides a pair of it */
    TILE_IS_SHORT = 2,  /* rows of it do not exist, on the side of the tiles */
    TILE_HAS_HIDDEN = 4 /* the block mask hides a part of it */
};

struct TileList {
    int first, end;                              /* of the section, and of the range */
    alignas(16) int visible_of[LIST_TILES / 32]; /* visible tiles of each group of 32 */
    uint16_t entries[LIST_TILES + 1];

    /* Entry i, tile * 8 + bits, or -1 behind the section's last one. */
    __device__ __forceinline__ int at(int i) const
    {
        const int entry = entries[i];
        return entry == LIST_END ? -1 : (first << TILE_BITS) + entry;
    }
    __device__ __forceinline__ bool has_more_sections() const { return first + LIST_TILES < end; }
};

/* What a block mask shows of a tile, as blocks_seen says it: any (bit 0), all (bit 1). `fixed` is as in fill_list. */
template <int ROWS, int KEYS, bool ROWS_MOVE>
__device__ __forceinline__ unsigned tile_seen(const fused_sm80_family &family, const uint8_t *mask, int tile, int fixed)
{
    const int row = ROWS_MOVE ? tile * ROWS : fixed, key = ROWS_MOVE ? fixed : tile * KEYS;
    if (family.mask_block % ROWS != 0 || family.mask_block % KEYS != 0)
        return blocks_seen(family, mask, row, ROWS, key, KEYS);
    const int row_block = device::quotient(row, family.mask_block_by);
    const int key_block = device::quotient(key, family.mask_block_by);
    return __ldg(mask + static_cast<int64_t>(row_block) * family.mask_key_blocks + key_block) != 0 ? 3u : 0u;
}

/* Visible tiles of the groups before `group`. */
__device__ __forceinline__ int visible_before(const TileList &list, int group)
{
    int sum = 0;
#pragma unroll
    for (int i = 0; i < LIST_TILES / 32; ++i)
        sum += i < group ? list.visible_of[i] : 0;
    return sum;
}

/* All THREADS threads of the block list the visible tiles of the section from `first` on of a range that ends before
 * `end`; on return all see the list. `fixed`: the first row of the tile of rows whose tiles of keys these are, or with
 * ROWS_MOVE the other way round; mask: of the head, or NULL; bits_of(tile): TILE_IS_CUT and TILE_IS_SHORT. */
template <int ROWS, int KEYS, bool ROWS_MOVE, int THREADS, typename Bits>
__device__ __forceinline__ void fill_list(TileList &list, const fused_sm80_family &family, const uint8_t *mask,
                                          int first, int end, int fixed, const Bits &bits_of)
{
    constexpr int GROUPS = LIST_TILES / 32, PASSES = LIST_TILES / THREADS;
    static_assert(LIST_TILES % THREADS == 0, "whole passes");
    const int thread = device::forget(threadIdx.x), lane = thread % 32;
    unsigned seen[PASSES], any[PASSES];
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) {
        const int tile = first + pass * THREADS + thread;
        seen[pass] = tile >= end ? 0u : mask == NULL ? 3u : tile_seen<ROWS, KEYS, ROWS_MOVE>(family, mask, tile, fixed);
    }
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) {
        any[pass] = __ballot_sync(0xffffffffu, seen[pass] & 1u);
        if (lane == 0)
            list.visible_of[(pass * THREADS + thread) / 32] = __popc(any[pass]);
    }
    __syncthreads();
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) {
        const int i = pass * THREADS + thread;
        if (seen[pass] & 1u)
            list.entries[visible_before(list, i / 32) + __popc(any[pass] & ((1u << lane) - 1u))] =
                static_cast<uint16_t>(i << TILE_BITS | bits_of(first + i) | (seen[pass] & 2u ? 0 : TILE_HAS_HIDDEN));
    }
    if (thread == 0) {
        list.entries[visible_before(list, GROUPS)] = LIST_END;
        list.first = first;
        list.end = end;
    }
    __syncthreads();
}

} // namespace sm80_family
