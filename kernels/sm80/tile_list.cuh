/* The tiles that a block of a sparse kernel goes over, as a list in shared memory that one warp makes ahead of the
 * loop: then the loop has one load for each tile, and no tile costs more than the dense kernel's unless something cuts
 * it.
 *
 * An entry is tile * 8 + bits of enum tile_bits, relative to the first tile of the list's section of LIST_TILES tiles;
 * behind the last one stands LIST_END. A longer range is several sections, one after the other. */
#pragma once
#include "kernels/sm80/family.cuh"

namespace sm80_family {

constexpr int LIST_TILES = 256, LIST_END = 0xffff, TILE_BITS = 3;

enum tile_bits {
    TILE_IS_CUT = 1,    /* causality, window or the end of the keys hides a pair of it */
    TILE_IS_SHORT = 2,  /* rows of it do not exist, on the side of the tiles */
    TILE_HAS_HIDDEN = 4 /* the block mask hides a part of it */
};

struct TileList {
    int first, end; /* of the section, and of the range */
    uint16_t entries[LIST_TILES + 1];

    /* Entry i, tile * 8 + bits, or -1 behind the section's last one. */
    __device__ __forceinline__ int at(int i) const
    {
        const int entry = entries[i];
        return entry == LIST_END ? -1 : (first << TILE_BITS) + entry;
    }
    __device__ __forceinline__ bool has_more_sections() const { return first + LIST_TILES < end; }
};

/* What a block mask shows of the tiles of a section, 0 nothing, 1 a part, 3 all, to the entries. `fixed` is as in
 * fill_list. Where every tile lies in one block of the mask, the loads are all on their way at once. */
template <int ROWS, int KEYS, bool ROWS_MOVE>
__device__ __forceinline__ void look_up(TileList &list, const fused_sm80_family &family, const uint8_t *mask, int first,
                                        int end, int fixed)
{
    constexpr int SIZE = ROWS_MOVE ? ROWS : KEYS, GROUPS = LIST_TILES / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (family.mask_block % ROWS == 0 && family.mask_block % KEYS == 0) {
        const int ratio = family.mask_block / SIZE, line = fixed / family.mask_block;
        const int64_t stride = ROWS_MOVE ? family.mask_key_blocks : 1;
        const uint8_t *blocks = mask + (ROWS_MOVE ? line : static_cast<int64_t>(line) * family.mask_key_blocks);
        int block = (first + lane) / ratio, rest = (first + lane) % ratio;
        bool seen[GROUPS];
#pragma unroll
        for (int group = 0; group < GROUPS; ++group) {
            seen[group] = first + 32 * group + lane < end && __ldg(blocks + block * stride) != 0;
            block += 32 / ratio;
            rest += 32 % ratio;
            if (rest >= ratio) {
                rest -= ratio;
                ++block;
            }
        }
#pragma unroll
        for (int group = 0; group < GROUPS; ++group)
            list.entries[32 * group + lane] = seen[group] ? 3 : 0;
    } else {
#pragma unroll 1
        for (int i = lane; i < LIST_TILES && first + i < end; i += 32) {
            const int tile = (first + i) * SIZE;
            list.entries[i] = static_cast<uint16_t>(
                blocks_seen(family, mask, ROWS_MOVE ? tile : fixed, ROWS, ROWS_MOVE ? fixed : tile, KEYS));
        }
    }
    __syncwarp();
}

/* One warp lists the visible tiles of the section from `first` on of a range that ends before `end`. `fixed`: the first
 * row of the tile of rows whose tiles of keys these are, or with ROWS_MOVE the other way round; mask: of the head, or
 * NULL; bits_of(tile): TILE_IS_CUT and TILE_IS_SHORT. */
template <int ROWS, int KEYS, bool ROWS_MOVE, typename Bits>
__device__ __forceinline__ void fill_list(TileList &list, const fused_sm80_family &family, const uint8_t *mask,
                                          int first, int end, int fixed, const Bits &bits_of)
{
    const int lane = static_cast<int>(threadIdx.x) % 32;
    int count = 0;
    if (mask != NULL)
        look_up<ROWS, KEYS, ROWS_MOVE>(list, family, mask, first, end, fixed);
        /* In place: the entries of 32 tiles go to where these, or tiles before them, were. */
#pragma unroll 1
    for (int i = lane; i - lane < LIST_TILES && first + i - lane < end; i += 32) {
        const unsigned seen = first + i >= end ? 0u : mask == NULL ? 3u : list.entries[i];
        const unsigned any = __ballot_sync(0xffffffffu, seen & 1u);
        __syncwarp();
        if (seen & 1u)
            list.entries[count + __popc(any & ((1u << lane) - 1u))] =
                static_cast<uint16_t>(i << TILE_BITS | bits_of(first + i) | (seen & 2u ? 0 : TILE_HAS_HIDDEN));
        count += __popc(any);
    }
    __syncwarp();
    if (lane == 0) {
        list.entries[count] = LIST_END;
        list.first = first;
        list.end = end;
    }
}

} // namespace sm80_family
