/* The tiles of the sm_90 decode, their sizes, and their shared memory. */
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/sm90/decode/params.h"

namespace sm90_decode {

using Params = fused_sm90_decode_params;
using Part = sm90_decode_part;

constexpr int CONSUMER_THREADS = 128, CONSUMER_WARPS = 4; /* the first warps: a warpgroup; behind it the producer */
constexpr int THREADS = CONSUMER_THREADS + 32;
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
};

template <typename Tile> struct alignas(1024) SharedStorage {
    char q[Q_STAGES][Tile::Q_BYTES];
    char kv[Tile::SLOTS][Tile::SLOT_BYTES];
    uint64_t q_full[Q_STAGES], q_empty[Q_STAGES], kv_full[Tile::SLOTS], kv_empty[Tile::SLOTS];
    Part part[Q_STAGES]; /* whose rows a stage of Q holds; sequence -1: there are no more */
    int arrived;         /* what the counter of a group of parts was */
};

} // namespace sm90_decode
