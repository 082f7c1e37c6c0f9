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

/* What is known of a row's keys, or of those of a part. */
struct RowSums {
    float max_log2; /* the largest score times scale * log2(e); -inf: no key yet */
    /* Of P = 2^(score - max_log2): before rounding, which LSE needs, and as it is multiplied with V, so that O is a
     * weighted mean whatever the rounding. */
    float sum, rounded;
};

constexpr int CONSUMER_THREADS = 128, CONSUMER_WARPS = 4; /* the first warps: a warpgroup; behind it the producers */
constexpr int PRODUCER_WARPS = 2;                         /* one brings Q and K, the other V */
constexpr int THREADS = CONSUMER_THREADS + 32 * PRODUCER_WARPS;

/* Of the kernels for 8 bits: four warpgroups, which share the registers. The producers are alone in the second one. The
 * two others widen tiles, one those of K, the other those of V. */
constexpr int WIDENING_WARPS = 4, FIRST_WIDENING_WARP = 8, THREADS_8_BIT = 512;
constexpr int CONSUMER_REGISTERS = 240, PRODUCER_REGISTERS = 80, WIDENING_REGISTERS = 96; /* 512 in all */

constexpr int ROWS = SM90_DECODE_ROWS;
constexpr int ROW_BYTES = 128, PANEL_COLUMNS = 64; /* of a panel in shared memory, see kernels/device/wgmma.cuh */
constexpr int Q_STAGES = 2;                        /* the part that is computed and the next one */
constexpr int MOST_CLUSTER = 8;                    /* thread blocks of a cluster */
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
    static constexpr int WARPS = CONSUMER_WARPS; /* that compute */
    static constexpr bool IS_INVARIANT = false, IS_8_BIT = false, IS_CLUSTER = false;
    /* The consumer's ways: scores of the next tile during the softmax; no softmax of rows that the tile does not have.
     * */
    static constexpr bool OVERLAPS = false, SKIPS_ROWS = false;
    /* How tiles are loaded: panels of LOAD_COLUMNS columns, whose rows of keys have LOAD_ROW bytes. */
    static constexpr int LOAD_ROW = ROW_BYTES, LOAD_COLUMNS = PANEL_COLUMNS, LOAD_PANELS = PANELS;
    static constexpr bool IS_ONE_COPY = false; /* a copy for each panel */
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

/* Of 16 query rows or fewer (few_rows.cuh). K and V stay in shared memory as they are in the cache. Four warps share
 * the keys of a tile, and two such groups take tiles in turn; where registers do not suffice for that each has half of
 * the columns of O instead. */
template <int DIM, int KEYS, int SLOTS_, bool IS_NARROW> struct FewRowsTile {
    static constexpr int HEAD_DIM = DIM, TILE_KEYS = KEYS, SLOTS = SLOTS_, ROWS = 16;
    static constexpr int PANELS = DIM / PANEL_COLUMNS, Q_PANEL_BYTES = ROWS * ROW_BYTES;
    static constexpr int Q_BYTES = PANELS * Q_PANEL_BYTES, SLOT_BYTES = KEYS * DIM * (IS_NARROW ? 1 : 2);
    static constexpr int COLUMNS = DIM < 128 ? DIM : 128; /* that are added up together */
    static constexpr bool IS_INVARIANT = false, IS_8_BIT = IS_NARROW, IS_CLUSTER = false;
    static constexpr int WARPS = 8, KEY_WARPS = 4, COLUMN_PARTS = DIM > 128 ? 2 : 1;
    static constexpr int OUTPUT_COLUMNS = DIM / COLUMN_PARTS; /* of a warp */
    static constexpr int GROUP_WARPS = KEY_WARPS * COLUMN_PARTS, GROUPS = WARPS / GROUP_WARPS;
    static constexpr int ADDENDS = WARPS / COLUMN_PARTS; /* of a column of O at the end of a part */
    static constexpr int PASS_ROWS = 4;                  /* that are added up together */
    static constexpr int WARP_KEYS = KEYS / KEY_WARPS, EIGHTS = WARP_KEYS / 8;
    static constexpr int LOAD_ROW = IS_NARROW && DIM < 128 ? DIM : ROW_BYTES;
    static constexpr int LOAD_COLUMNS = IS_NARROW ? LOAD_ROW : PANEL_COLUMNS, LOAD_PANELS = DIM / LOAD_COLUMNS;
    static constexpr bool IS_ONE_COPY = true; /* all panels of a box */
    using PartType = Part;
    /* Two groups never wait for the same slot: one could take the phase before last for the last one. */
    static_assert(SLOTS % (2 * GROUPS) == 0 || GROUPS == 1, "within a part a slot is that of one group");
};

/* Of few items and short caches: a cluster of thread blocks has each item. */
template <typename Tile> struct ClusterTile : Tile {
    static constexpr bool IS_CLUSTER = true;
    static constexpr int PASS_ROWS = 8;
};

template <typename Tile> using PartOf = typename Tile::PartType;

template <typename Tile> struct alignas(1024) SharedStorage {
    char q[Q_STAGES][Tile::Q_BYTES];
    char kv[Tile::SLOTS][Tile::SLOT_BYTES];
    uint64_t q_full[Q_STAGES], q_empty[Q_STAGES], kv_full[Tile::SLOTS], kv_empty[Tile::SLOTS];
    PartOf<Tile> part[Q_STAGES]; /* whose rows a stage of Q holds; sequence -1: there are no more */
    int arrived;                 /* what the counter of a group of parts was */

    /* How tiles are loaded. */
    static constexpr int LOAD_SLOTS = Tile::SLOTS, LOAD_ROW = Tile::LOAD_ROW, LOAD_COLUMNS = Tile::LOAD_COLUMNS;
    static constexpr int LOAD_PANELS = Tile::LOAD_PANELS, LOAD_PANEL_BYTES = Tile::TILE_KEYS * LOAD_ROW;
    static constexpr bool IS_ONE_COPY = Tile::IS_ONE_COPY;
};

/* The buffer of 8-bit tiles: panels as wide as their rows, with the swizzle of that width. A row has all columns, up to
 * 128. */
template <typename Tile> struct alignas(1024) Storage8Bit {
    static constexpr int LOAD_SLOTS = Tile::LOAD_SLOTS, LOAD_ROW = Tile::HEAD_DIM < 128 ? Tile::HEAD_DIM : 128;
    static constexpr int LOAD_COLUMNS = LOAD_ROW, LOAD_PANELS = Tile::HEAD_DIM / LOAD_COLUMNS;
    static constexpr int LOAD_PANEL_BYTES = Tile::TILE_KEYS * LOAD_ROW;
    static constexpr bool IS_ONE_COPY = false;

    char kv[LOAD_SLOTS][LOAD_PANELS * LOAD_PANEL_BYTES];
    uint64_t kv_full[LOAD_SLOTS], kv_empty[LOAD_SLOTS];
};

/* With room for what the warps have of a part: of all rows what is known of them, of some at a time O. */
template <typename Tile> struct alignas(1024) FewRowsStorage {
    SharedStorage<Tile> tiles;
    float o[Tile::ADDENDS][Tile::PASS_ROWS][Tile::HEAD_DIM + 8]; /* 8 more, for the banks */
    RowSums sums[Tile::ADDENDS][Tile::ROWS];
    /* IS_CLUSTER: what the blocks of the cluster have of the rows that this one adds up (combine_cluster). */
    float4 part_sums[Tile::IS_CLUSTER ? Tile::ROWS : 1];
    float part_o[Tile::IS_CLUSTER ? Tile::ROWS : 1][Tile::IS_CLUSTER ? Tile::HEAD_DIM : 2];
    uint64_t parts_full; /* all of these are there */
};

template <typename Tile> struct alignas(1024) SharedStorage8Bit {
    SharedStorage<Tile> wide;
    Storage8Bit<Tile> loaded;
};

} // namespace sm90_decode
