/* The tiles of the sm_90 decode, their sizes, and their shared memory. */
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/sm90/decode/params.h"

namespace sm90_decode {

using Params = fused_sm90_decode_params;
using Part = family_decode_part;

/* With numbers of rows of its own, and in the invariant mode. */
struct RaggedPart : family_decode_part {
    sm90_decode_own own;
};

constexpr int CONSUMER_THREADS = 128, CONSUMER_WARPS = 4; /* the first warps: a warpgroup; behind it the producer */
constexpr int THREADS = CONSUMER_THREADS + 32;

/* Of the kernels for 8 bits: four warpgroups, which share the registers. The producer is alone in the second one. The
 * two others widen tiles, one those of K, the other those of V. */
constexpr int WIDENING_WARPS = 4, FIRST_WIDENING_WARP = 8, THREADS_8_BIT = 512;
constexpr int CONSUMER_REGISTERS = 240, PRODUCER_REGISTERS = 80, WIDENING_REGISTERS = 96; /* 512 in all */

constexpr int ROWS = SM90_DECODE_ROWS;
constexpr int ROW_BYTES = 128, PANEL_COLUMNS = 64; /* of a panel in shared memory, see kernels/device/wgmma.cuh */
constexpr int Q_STAGES = 2;                        /* the part that is computed and the next one */
constexpr uint32_t CONSUMER_BARRIER = 1;           /* bar_sync of the warpgroup */

/* DIM: head_dim; KEYS: of a tile; SLOTS: of the circular buffer in which tiles of K and of V alternate, as many as
 * there is room for, so that 160 KB or more are on their way. */
template <int DIM, int KEYS, int SLOTS_> struct Tile {
    static constexpr int HEAD_DIM = DIM, TILE_KEYS = KEYS, SLOTS = SLOTS_;
    static constexpr int PANELS = DIM / PANEL_COLUMNS;
    static constexpr int Q_PANEL_BYTES = ROWS * ROW_BYTES, KV_PANEL_BYTES = KEYS * ROW_BYTES;
    static constexpr int SLOT_BYTES = PANELS * KV_PANEL_BYTES, Q_BYTES = PANELS * Q_PANEL_BYTES;
    static constexpr int SCORES = KEYS / 2; /* registers of a thread for S */
    /* O is computed by products of at most 128 columns. */
    static constexpr int COLUMNS = DIM < 128 ? DIM : 128, OUTPUTS = DIM / COLUMNS, OUTPUT_PANELS = COLUMNS / 64;
    static constexpr bool IS_INVARIANT = false, IS_8_BIT = false;
    /* The consumer's ways: scores of the next tile during the softmax; no softmax of rows that the tile does not have.
     * */
    static constexpr bool OVERLAPS = false, SKIPS_ROWS = false;
    using PartType = Part;
};

/* Of sequences with numbers of rows of their own. */
template <typename Tile> struct PackedTile : Tile {
    using PartType = RaggedPart;
};

/* Of the invariant mode. */
template <typename Tile> struct InvariantTile : PackedTile<Tile> {
    static constexpr bool IS_INVARIANT = true;
};

/* Of a cache with 8 bits. Its tiles are loaded into a buffer of LOAD_SLOTS; other warps widen them to the 16 bits of
 * the products (widen.cuh), in the buffer of SLOTS. */
template <typename Tile> struct Tile8Bit : Tile {
    static constexpr bool IS_8_BIT = true, SKIPS_ROWS = true;
    static constexpr bool OVERLAPS = Tile::HEAD_DIM <= 128; /* otherwise registers do not suffice */
    static constexpr int LOAD_SLOTS = Tile::HEAD_DIM < 256 ? 16 : 4;
};

template <typename Tile> using PartOf = typename Tile::PartType;

template <typename Tile> struct alignas(1024) SharedStorage {
    char q[Q_STAGES][Tile::Q_BYTES];
    char kv[Tile::SLOTS][Tile::SLOT_BYTES];
    uint64_t q_full[Q_STAGES], q_empty[Q_STAGES], kv_full[Tile::SLOTS], kv_empty[Tile::SLOTS];
    PartOf<Tile> part[Q_STAGES]; /* whose rows a stage of Q holds; sequence -1: there are no more */
    int arrived;                 /* what the counter of a group of parts was */

    /* How tiles are loaded. */
    static constexpr int LOAD_SLOTS = Tile::SLOTS, LOAD_ROW = ROW_BYTES, LOAD_COLUMNS = PANEL_COLUMNS;
    static constexpr int LOAD_PANELS = Tile::PANELS, LOAD_PANEL_BYTES = Tile::KV_PANEL_BYTES;
};

/* The buffer of 8-bit tiles: panels as wide as their rows, with the swizzle of that width. A row has all columns, up to
 * 128. */
template <typename Tile> struct alignas(1024) Storage8Bit {
    static constexpr int LOAD_SLOTS = Tile::LOAD_SLOTS, LOAD_ROW = Tile::HEAD_DIM < 128 ? Tile::HEAD_DIM : 128;
    static constexpr int LOAD_COLUMNS = LOAD_ROW, LOAD_PANELS = Tile::HEAD_DIM / LOAD_COLUMNS;
    static constexpr int LOAD_PANEL_BYTES = Tile::TILE_KEYS * LOAD_ROW;

    char kv[LOAD_SLOTS][LOAD_PANELS * LOAD_PANEL_BYTES];
    uint64_t kv_full[LOAD_SLOTS], kv_empty[LOAD_SLOTS];
};

template <typename Tile> struct alignas(1024) SharedStorage8Bit {
    SharedStorage<Tile> wide;
    Storage8Bit<Tile> loaded;
};

} // namespace sm90_decode
