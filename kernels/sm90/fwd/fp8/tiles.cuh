/* The tiles of the 8-bit sm_90 forward, their sizes, and their shared memory. */
#pragma once
#include <cstdint>

#include "kernels/sm90/fwd/fp8/params.h"
#include "kernels/sm90/fwd/policies.cuh"

namespace sm90_fp8 {

using namespace device;
using Params = fused_sm90_fp8_params;
using sm90_fwd::Dense;
using sm90_fwd::WARPGROUP;

constexpr int Q_STAGES = 2;                                   /* of Q, each with its work tile */
constexpr int TRANSPOSERS = 3;                                /* warps that transpose V */
constexpr int V_ROW_BYTES = 128;                              /* of V transposed: a column of V, all keys of a block */
constexpr int O_PANEL_COLUMNS = 64, O_PANEL_BYTES = 16 * 128; /* of O: what a warp stores of 64 columns */

/* head_dim; rows; keys of a block; pipeline stages of K, of V as it comes, and of V transposed; how many steps of 32
 * columns of Q are kept in registers; whether warpgroups issue their products in turn; of how many weights one is a
 * polynomial (pack_weights); whether short sums are faster, which `fast` requests have then; time for a row and key in
 * per cent of that of the first tile of the head_dim; time of a tile apart from its keys, in keys. */
#define FP8_TILES_D128(ROW) ROW(128, 128, 128, 4, 2, 3, 0, false, 0, false, 100, 200)
#define FP8_TILES_D64(ROW) \
    ROW(64, 192, 128, 5, 2, 4, 0, true, 0, true, 100, 200) \
    ROW(64, 128, 128, 5, 2, 4, 2, true, 8, false, 120, 200)

#define FP8_TILE_NAME(DIM, ROWS) Fp8D##DIM##M##ROWS
#define FP8_TILE_STRUCT(DIM, ROWS, KEYS, OF_K, OF_RAW, OF_V, Q_STEPS, TURNS, EVERY, SHORT, COST, START) \
    struct FP8_TILE_NAME(DIM, ROWS) { \
        using Work = Dense; \
        static constexpr int HEAD_DIM = DIM, BLOCK_M = ROWS, BLOCK_N = KEYS, CLUSTER = 1; \
        static constexpr int K_STAGES = OF_K, RAW_STAGES = OF_RAW, V_STAGES = OF_V, Q_REGISTER_STEPS = Q_STEPS; \
        static constexpr bool IN_TURN = TURNS; \
        static constexpr int POLYNOMIAL_EVERY = EVERY; \
    };
FP8_TILES_D128(FP8_TILE_STRUCT)
FP8_TILES_D64(FP8_TILE_STRUCT)

/* A tile with what its kernel is compiled for. BLOCK_SCALES: K and V have scales of blocks, otherwise of heads or one
 * each. FAST: O is summed in the accumulator of wgmma; otherwise the product of a block of keys is, and those of blocks
 * are added in fp32. */
template <typename OwnTile, bool HAS_BLOCK_SCALES, bool IS_FAST> struct With : OwnTile {
    static constexpr bool BLOCK_SCALES = HAS_BLOCK_SCALES, FAST = IS_FAST;
};

/* What follows from a tile's row above. Every consumer warpgroup has 64 rows. */
template <typename Tile> struct Traits {
    static constexpr int CONSUMERS = Tile::BLOCK_M / 64, THREADS = WARPGROUP * (1 + CONSUMERS);
    static constexpr int ROW_BYTES = Tile::HEAD_DIM; /* of Q, K and V in shared memory: one panel */
    static constexpr int Q_BYTES = Tile::BLOCK_M * ROW_BYTES, KV_BYTES = Tile::BLOCK_N * ROW_BYTES;
    static constexpr int SCORES = Tile::BLOCK_N / 2, OUTPUTS = Tile::HEAD_DIM / 2; /* registers for S and for O */
    static constexpr int PRODUCTS = Tile::FAST ? 1 : OUTPUTS; /* for the product of a block, where it is apart */
    static constexpr int Q_FRAGMENTS = Tile::Q_REGISTER_STEPS > 0 ? Tile::Q_REGISTER_STEPS : 1;
    static constexpr int O_PANELS = Tile::HEAD_DIM / O_PANEL_COLUMNS;
    /* setmaxnreg takes multiples of 8; the sum over all threads is what __launch_bounds__ gives at launch. */
    static constexpr int PRODUCER_REGISTERS = CONSUMERS == 2 ? 40 : 32;
    static constexpr int CONSUMER_REGISTERS = CONSUMERS == 2 ? 232 : 160;
    static_assert(CONSUMERS == 2 || CONSUMERS == 3, "the register budgets are for two and three");
    static_assert(Tile::BLOCK_N == V_ROW_BYTES, "a block of V transposed is one panel");
    static_assert(ROW_BYTES == 64 || ROW_BYTES == 128, "there are swizzles for these");
};

template <typename Tile> struct alignas(1024) SharedStorage {
    uint8_t q[Q_STAGES][Traits<Tile>::Q_BYTES];
    uint8_t k[Tile::K_STAGES][Traits<Tile>::KV_BYTES];
    uint8_t raw[Tile::RAW_STAGES][Traits<Tile>::KV_BYTES];                          /* V as it comes */
    uint8_t v[Tile::V_STAGES][Traits<Tile>::KV_BYTES];                              /* V transposed (transpose.cuh) */
    uint8_t o[Traits<Tile>::CONSUMERS * 4][Traits<Tile>::O_PANELS * O_PANEL_BYTES]; /* of each consumer warp */
    /* Barriers, and what arrives at them. q_full, k_full, raw_full: the producer, and the bytes of its copies.
     * work_tile_full: the producer. q_empty: every consumer warp and every transposer. k_empty, v_empty: every consumer
     * warp. raw_empty, v_full: every transposer. Named barriers: from 1 on, one for each warpgroup's turn. */
    uint64_t q_full[Q_STAGES], q_empty[Q_STAGES], work_tile_full[Q_STAGES];
    uint64_t k_full[Tile::K_STAGES], k_empty[Tile::K_STAGES];
    uint64_t raw_full[Tile::RAW_STAGES], raw_empty[Tile::RAW_STAGES];
    uint64_t v_full[Tile::V_STAGES], v_empty[Tile::V_STAGES];
    Dense::WorkTile work_tile[Q_STAGES]; /* which tile a stage of Q holds or waits for */
};

} // namespace sm90_fp8
