/* fused_sm80, backward: its tiles, what a block has in shared memory, which keys it computes, and its loads of dense
 * attention. The kernel and its description: kernel.cuh. */
#pragma once
#include "kernels/device/tile_io_sm80.cuh"
#include "kernels/sm80/bwd/rows.cuh"

namespace sm80_bwd {

using namespace device;

/* ---- Tiles ---------------------------------------------------------------------------------------------------- */

/* head_dim; KV keys and Q queries of a tile; WARPS_KV x WARPS_Q warps over the scores, each with WARP_KEYS keys:
 * WARPS_Q warps have the same keys and divide the columns of their dK and dV among them; dQ: DQ_ROWS x DQ_COLUMNS of a
 * warp at a time. BLOCKS: the blocks that registers are limited for; IN_STAGES: of Q and dO. DEFER: dQ of a step is
 * computed in the next one, which takes a second buffer of dS. DIVIDE: in the sparse kernels half of the warps compute
 * S and dV, the other half dP and dK (divided.cuh). */
#define BWD_TILE(NAME, DIM, KEYS, QUERIES, W_KV, W_Q, KEYS_OF_WARP, ROWS_OF_DQ, COLUMNS_OF_DQ, BLOCKS, IN_STAGES, \
                 DEFER, DIVIDE) \
    struct NAME { \
        static constexpr int HEAD_DIM = DIM, V_HEAD_DIM = DIM, KV = KEYS, Q = QUERIES, WARPS_KV = W_KV, WARPS_Q = W_Q, \
                             WARP_KEYS = KEYS_OF_WARP, DQ_ROWS = ROWS_OF_DQ, DQ_COLUMNS = COLUMNS_OF_DQ, \
                             BLOCKS_PER_SM = BLOCKS, STAGES = IN_STAGES, CHUNK = 32; \
        static constexpr bool DEFER_DQ = DEFER, DIVIDES_SCORES = DIVIDE; \
    };
BWD_TILE(Sm80BwdD32, 32, 128, 64, 4, 1, 32, 16, 32, 2, 2, true, false)
BWD_TILE(Sm80BwdD64, 64, 128, 64, 4, 1, 32, 32, 32, 2, 2, true, false)
BWD_TILE(Sm80BwdD64OneDs, 64, 128, 64, 4, 1, 32, 32, 32, 2, 2, false, false)
BWD_TILE(Sm80BwdD96, 96, 128, 64, 4, 2, 32, 16, 48, 1, 2, true, true)
BWD_TILE(Sm80BwdD96Small, 96, 64, 32, 2, 2, 32, 16, 48, 1, 2, true, false)
BWD_TILE(Sm80BwdD128, 128, 128, 64, 4, 2, 32, 32, 32, 1, 2, true, false)
BWD_TILE(Sm80BwdD128OneDs, 128, 128, 64, 4, 2, 32, 32, 32, 1, 2, false, false)
BWD_TILE(Sm80BwdD128OneStage, 128, 64, 64, 2, 2, 32, 32, 32, 1, 1, true, false)
BWD_TILE(Sm80BwdD128Small, 128, 64, 32, 2, 2, 32, 32, 32, 1, 2, true, false)
BWD_TILE(Sm80BwdD192, 192, 64, 64, 2, 4, 32, 32, 48, 1, 2, true, true)
BWD_TILE(Sm80BwdD192Small, 192, 32, 32, 2, 2, 16, 16, 48, 2, 2, true, false)
BWD_TILE(Sm80BwdD256, 256, 64, 64, 2, 4, 32, 32, 32, 1, 2, true, true)
BWD_TILE(Sm80BwdD256Small, 256, 32, 32, 2, 2, 16, 16, 64, 2, 1, true, false)
BWD_TILE(Sm80BwdD64TwoWarpsQ, 64, 128, 64, 4, 2, 32, 16, 32, 1, 2, true, false)
BWD_TILE(Sm80BwdD64TwoWarpsQSmall, 64, 64, 32, 2, 2, 32, 16, 32, 1, 2, true, false)

/* A tile as TILE, with a V of another head dim. */
#define BWD_V_TILE(NAME, TILE, V_DIM) \
    struct NAME : TILE { \
        static constexpr int V_HEAD_DIM = V_DIM; \
    };
BWD_V_TILE(Sm80BwdD64V128, Sm80BwdD64TwoWarpsQ, 128)
BWD_V_TILE(Sm80BwdD64V128Small, Sm80BwdD64TwoWarpsQSmall, 128)
BWD_V_TILE(Sm80BwdD192V128, Sm80BwdD192, 128)
BWD_V_TILE(Sm80BwdD192V128Small, Sm80BwdD192Small, 128)

/* What follows from a width: of Q, K, dQ and dK, or of V, O, dO and dV. */
template <typename Tile, int DIM> struct Width {
    static constexpr int PANELS = (DIM + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
    static constexpr int KV_PANEL_BYTES = Tile::KV * ROW_BYTES, Q_PANEL_BYTES = Tile::Q * ROW_BYTES;
    static constexpr int KV_BYTES = PANELS * KV_PANEL_BYTES, Q_BYTES = PANELS * Q_PANEL_BYTES;
    static constexpr int COLUMNS = DIM / Tile::WARPS_Q; /* of a warp in dK or dV */
    /* A warp's columns are a panel, or every WARPS_Q-th 16 columns: then it has the same lane offset in all panels. */
    static constexpr bool OWN_PANEL = COLUMNS == PANEL_COLUMNS;
    static constexpr int COLUMN16_STEP = OWN_PANEL ? 1 : Tile::WARPS_Q;
    static_assert(COLUMNS % 16 == 0, "whole fragments");
};

/* What follows from a tile. */
template <typename Tile> struct Traits : Width<Tile, Tile::HEAD_DIM> {
    using OfV = Width<Tile, Tile::V_HEAD_DIM>;
    static constexpr bool V_IS_AS_WIDE = Tile::HEAD_DIM == Tile::V_HEAD_DIM;
    static constexpr int WARPS = Tile::WARPS_KV * Tile::WARPS_Q, THREADS = WARPS * LANES;
    static constexpr int KEYS16 = Tile::WARP_KEYS / 16;
    static constexpr int WARP_Q = Tile::Q / Tile::WARPS_Q;                      /* queries of a warp in the scores */
    static constexpr int CHUNK_Q = WARP_Q < Tile::CHUNK ? WARP_Q : Tile::CHUNK; /* of them at a time in registers */
    static constexpr bool EXCHANGE = Tile::WARPS_Q > 1; /* of P and dS between the warps with the same keys */
    static constexpr int STAGES = Tile::STAGES;         /* of Q, dO, lse2 and -D */
    static constexpr int DS_BUFFERS = Tile::DEFER_DQ ? 2 : 1, P_BUFFERS = EXCHANGE ? 1 : 0;
    static constexpr int SUM_BUFFERS = Tile::DIVIDES_SCORES && Tile::WARPS_Q > 2 ? 1 : 0; /* see divided.cuh */
    static constexpr int DQ_WARPS_D = Tile::HEAD_DIM / Tile::DQ_COLUMNS;
    /* In the same way of dQ: a part of a panel, or every DQ_WARPS_D-th 16 columns. */
    static constexpr bool DQ_IN_PANEL = PANEL_COLUMNS % Tile::DQ_COLUMNS == 0;
    static constexpr int DQ_COLUMN16_STEP = DQ_IN_PANEL ? 1 : DQ_WARPS_D;
    static constexpr int DQ_WARPS_Q = WARPS / DQ_WARPS_D;
    static constexpr int DQ_PASSES = Tile::Q / (Tile::DQ_ROWS * DQ_WARPS_Q);
    static constexpr int DQ_QUADS = Tile::DQ_ROWS / 16 * (Tile::DQ_COLUMNS / 8); /* of a warp at a time */

    static_assert(Tile::KV == Tile::WARPS_KV * Tile::WARP_KEYS, "the warps have all keys");
    static_assert(Tile::DQ_COLUMNS % 16 == 0 && WARP_Q % 16 == 0, "whole fragments");
    static_assert(Tile::Q <= PANEL_COLUMNS && ROW_STEP % Tile::Q == 0, "dS is one panel, padding is whole tiles");
    static_assert(DQ_PASSES * Tile::DQ_ROWS * DQ_WARPS_Q == Tile::Q, "dQ is divided among the warps");
};

template <typename Tile> struct Smem {
    using S = Traits<Tile>;
    alignas(1024) unsigned char k[S::KV_BYTES], v[S::OfV::KV_BYTES]; /* at the end dK and dV, to be stored */
    unsigned char q[S::STAGES][S::Q_BYTES], dout[S::STAGES][S::OfV::Q_BYTES];
    unsigned char ds[S::DS_BUFFERS + S::P_BUFFERS + S::SUM_BUFFERS]
                    [S::KV_PANEL_BYTES]; /* [KV][Q]; then P where exchanged */
    float stats[S::STAGES][2 * Tile::Q]; /* lse2, then -D */
};

/* ---- Tile scheduler --------------------------------------------------------------------------------------- */

/* One tile of keys of one kv head. Blocks go section by section of kv heads, and within a section first over the
 * heads, then over the tiles of keys: in causal problems the longest tiles come first, and blocks that run at the
 * same time read the same queries. */
struct WorkTile {
    int64_t batch, kv_head;
    int32_t kv_tile;
};

__device__ __forceinline__ WorkTile work_tile_of_block(const Params &params, uint32_t block = blockIdx.x)
{
    const int64_t section_blocks = static_cast<int64_t>(params.section_heads) * params.kv_tiles;
    const int64_t section = block / section_blocks, rest = block % section_blocks;
    const int64_t first_head = section * params.section_heads, heads_left = params.kv_head_count - first_head;
    const int64_t heads = heads_left < params.section_heads ? heads_left : params.section_heads;
    const int64_t head = first_head + rest % heads;
    return {head / params.kv_heads, head % params.kv_heads, static_cast<int32_t>(rest / heads)};
}

/* Where a block is in its loop: a tile of queries of a query head of the group. */
struct Cursor {
    int32_t head, tile;
    int32_t index;            /* of the tile, counted over all heads, q_rows each */
    const uint16_t *q, *dout; /* first row */
};

__device__ __forceinline__ Cursor cursor_at(const Params &params, const WorkTile &work, int32_t head, int32_t tile)
{
    const int64_t q_head = work.kv_head * params.group + head, row = static_cast<int64_t>(tile) * params.q_tile;
    const int64_t first_row = (work.batch * params.q_heads + q_head) * params.q_rows + row;
    return {head, tile, static_cast<int32_t>(first_row / params.q_tile),
            head_pointer<uint16_t>(params.q, work.batch, q_head) + row * params.q.stride_row,
            head_pointer<uint16_t>(params.dout, work.batch, q_head) + row * params.dout.stride_row};
}

/* Q, dO, lse2 and -D of a step. */
template <typename Tile>
__device__ __forceinline__ void load_step(Smem<Tile> &s, const Params &params, const Cursor &at, int stage)
{
    constexpr int THREADS = Traits<Tile>::THREADS;
    /* With one stage registers are short: what follows from the thread's index is not kept over the loop. */
    const uint32_t thread = Tile::STAGES == 1 ? forget(threadIdx.x) : threadIdx.x;
    const int64_t left = params.q_len - static_cast<int64_t>(at.tile) * Tile::Q;
    load_rows<Tile::Q, Tile::HEAD_DIM, THREADS>(shared_address(s.q[stage]), at.q, params.q.stride_row, left, thread);
    load_rows<Tile::Q, Tile::HEAD_DIM, THREADS>(shared_address(s.dout[stage]), at.dout, params.dout.stride_row, left,
                                                thread);
    if (thread < Tile::Q / 2)
        cp_async_16(shared_address(s.stats[stage]) + thread * 16,
                    params.stats + static_cast<int64_t>(at.index) * (2 * Tile::Q) + thread * 4, true);
}

/* To the next tile of queries, or to the next head's first. */
template <typename Tile>
__device__ __forceinline__ void advance(Cursor &at, const Params &params, const WorkTile &work, int32_t first_tile)
{
    if (++at.tile < params.q_tiles) {
        ++at.index;
        at.q += Tile::Q * params.q.stride_row;
        at.dout += Tile::Q * params.dout.stride_row;
    } else {
        at = cursor_at(params, work, at.head + 1, first_tile);
    }
}

/* The block's keys of K or V. */
template <typename Tile>
__device__ __forceinline__ void load_keys(uint32_t shared, const struct attn_tensor &tensor, const WorkTile &work,
                                          int64_t first_key, int32_t kv_len)
{
    load_rows<Tile::KV, Tile::HEAD_DIM, Traits<Tile>::THREADS>(
        shared, head_pointer<uint16_t>(tensor, work.batch, work.kv_head) + first_key * tensor.stride_row,
        tensor.stride_row, kv_len - first_key);
}

} // namespace sm80_bwd
