/* The tiles of the sm_90 forward, their sizes, and their shared memory. */
#pragma once
#include <cstdint>

#include "kernels/sm90/fwd/work.cuh"

namespace sm90_fwd {

constexpr int WARPGROUP = 128; /* threads */
constexpr int ROW_BYTES = 128; /* of a panel in shared memory, see kernels/device/wgmma.cuh */
constexpr int PANEL_COLUMNS = 64;
constexpr int Q_STAGES = 2; /* of Q, each with its work tile: the one that is computed and the next one */
/* Blocks of keys that the diagonal of a work tile's rows may go through where rounding errors of largest weights are
 * taken out of O: rows whose first key comes later than in the first block are begun in the next one, before the first
 * correction (start_late_rows). */
constexpr int MOST_BLOCKS_OF_DIAGONAL = 1;

/* When a warpgroup compares its scores with the row max in use. BEFORE_EXP: before the exponentials, while O += P V
 * still runs. AFTER_EXP: afterwards on P, of which a register holds two elements; the exponentials are repeated in the
 * rare case that one is too large. AFTER_EXP takes fewer instructions but keeps the scores in registers until then. */
enum RowMaxCheck { BEFORE_EXP, AFTER_EXP };

/* The order of the main loop. All orders compute the same; which one is fastest depends on how the assembler arranges
 * the instructions and was found by trying (docs/kernels/sm90_fwd.md). */
struct Schedule {
    bool halves_first_block; /* half of a tile's first block is left out where no row of a warpgroup sees it. Elsewhere
                                than in SCHEDULE_D128 the assembler has no registers for it (C7511). */
    bool waits_for_v_first;  /* BEFORE_EXP: V is waited for ahead of K, otherwise behind it */
    bool releases_k_late;    /* a stage of K is released behind the mask, otherwise as soon as S is there */
    bool releases_v_late;    /* with ping-pong: one of V behind the exponentials, otherwise as soon as O is there */
    bool finds_next_late;    /* the warpgroup that is next in the ping-pong is computed in each block, not ahead of the
                                loop */
    bool sharpens_early;     /* AFTER_EXP, without ping-pong: where scores are known to grow, the row max of the last
                                block is taken ahead of its exponentials, otherwise behind them as elsewhere */
};
constexpr Schedule SCHEDULE_D128 = {true, true, true, false, false, false},
                   SCHEDULE_D128_PAIR = {false, false, true, false, false, false},
                   SCHEDULE_D64_N128 = {false, false, true, true, false, true},
                   SCHEDULE_D64_N64 = {false, false, true, true, true, true},
                   SCHEDULE_D64_PAIR = {false, false, false, true, true, true},
                   SCHEDULE_SPLIT = {false, false, false, false, false, false},
                   SCHEDULE_RANGES_D128 = {false, true, true, false, false, false};

/* head_dim; rows (BLOCK_M); keys (BLOCK_N); pipeline stages of K and of V; among how many warpgroups with the same rows
 * the keys of a block are split; when the row max is checked; how many steps of 16 columns of Q are kept in registers;
 * thread blocks that load keys for each other, of adjacent rows (pair.cuh); time for a row and key in per cent of
 * that of the first tile of the head_dim; time of a causal tile apart from its keys, in keys; the order of the main
 * loop. Times are those of bursts, but of pairs those of steady load. docs/kernels/sm90_fwd.md. */
#define FWD_TILES_D128(ROW) \
    ROW(128, 128, 128, 2, 1, BEFORE_EXP, 2, 1, 100, 130, SCHEDULE_D128) \
    ROW(128, 128, 128, 2, 1, BEFORE_EXP, 4, 2, 97, 175, SCHEDULE_D128_PAIR) \
    ROW(128, 64, 128, 2, 2, BEFORE_EXP, 8, 1, 120, 320, SCHEDULE_SPLIT)
#define FWD_TILES_D64(ROW) \
    ROW(64, 192, 128, 3, 1, AFTER_EXP, 0, 1, 100, 170, SCHEDULE_D64_N128) \
    ROW(64, 256, 64, 5, 1, AFTER_EXP, 0, 1, 99, 160, SCHEDULE_D64_N64) \
    ROW(64, 256, 64, 8, 1, AFTER_EXP, 0, 2, 98, 197, SCHEDULE_D64_PAIR) \
    ROW(64, 128, 128, 3, 2, AFTER_EXP, 0, 1, 104, 320, SCHEDULE_SPLIT) \
    ROW(64, 64, 128, 5, 2, AFTER_EXP, 4, 1, 150, 190, SCHEDULE_SPLIT)

#define TILE_NAME(DIM, ROWS, KEYS, KV, SPLITS, CLUSTER) FwdD##DIM##M##ROWS##N##KEYS##S##KV##K##SPLITS##C##CLUSTER
#define TILE_STRUCT(DIM, ROWS, KEYS, KV, SPLITS, CHECK, Q_STEPS, BLOCKS, COST, START, ORDER) \
    struct TILE_NAME(DIM, ROWS, KEYS, KV, SPLITS, BLOCKS) { \
        static constexpr int HEAD_DIM = DIM, BLOCK_M = ROWS, BLOCK_N = KEYS, STAGES = KV, KEY_SPLITS = SPLITS; \
        static constexpr int Q_REGISTER_STEPS = Q_STEPS, CLUSTER = BLOCKS, HALVES = 1; \
        static constexpr bool CHECKS_AFTER_EXP = CHECK == AFTER_EXP; \
        static constexpr Schedule SCHEDULE = ORDER; \
    };
FWD_TILES_D128(TILE_STRUCT)
FWD_TILES_D64(TILE_STRUCT)

/* What follows from a tile's row above. Every consumer warpgroup has 64 rows, a row group. */
template <typename Tile> struct Traits {
    static constexpr bool IS_PAIR = Tile::CLUSTER == 2;
    static constexpr int WORK_ROWS = Tile::CLUSTER * Tile::BLOCK_M; /* of a work tile */
    static constexpr int ROW_GROUPS = Tile::BLOCK_M / 64, CONSUMERS = ROW_GROUPS * Tile::KEY_SPLITS; /* warpgroups */
    /* HALVES 2: a thread block has two work tiles at a time, each with producers, consumers (CONSUMERS is those of one)
     * and shared memory of its own. */
    static constexpr int ALL_CONSUMERS = Tile::HALVES * CONSUMERS, THREADS = WARPGROUP * (1 + ALL_CONSUMERS);
    static constexpr int PANELS = Tile::HEAD_DIM / PANEL_COLUMNS;
    static constexpr int Q_PANEL_BYTES = Tile::BLOCK_M * ROW_BYTES, KV_PANEL_BYTES = Tile::BLOCK_N * ROW_BYTES;
    static constexpr int KEYS = Tile::BLOCK_N / Tile::KEY_SPLITS;         /* of a block, for one warpgroup */
    static constexpr int SCORES = KEYS / 2, OUTPUTS = Tile::HEAD_DIM / 2; /* registers of a thread for S and for O */
    /* AFTER_EXP: beside V's columns there are 8 of ones, two for each thread of a quad, for the sum of the rounded P
     * (softmax.cuh). That panel of 16 rows lies behind all stages of V and is the same for all keys. */
    static constexpr bool HAS_SUM_COLUMN = Tile::CHECKS_AFTER_EXP;
    static constexpr int V_COLUMNS = Tile::HEAD_DIM + (HAS_SUM_COLUMN ? 8 : 0), ACCUMULATORS = V_COLUMNS / 2;
    static constexpr int ONES = HAS_SUM_COLUMN ? 16 * PANEL_COLUMNS : 1;
    /* A thread of the first split sends to one of the last: O with its column of sums, and the row max and row sum of
     * its two rows; without that column their largest scores as well. */
    static constexpr int SENT_FLOATS = ACCUMULATORS + (HAS_SUM_COLUMN ? 4 : 8), LAST_SPLIT = Tile::KEY_SPLITS - 1;
    static constexpr int EXCHANGE_FLOATS = Tile::KEY_SPLITS == 1 ? 0 : ROW_GROUPS * SENT_FLOATS * WARPGROUP;
    static constexpr int EXCHANGE_BUFFERS = PANELS == 1 ? Q_STAGES : 1; /* for head_dim 128 only one fits */
    static constexpr int Q_FRAGMENTS =
        Tile::Q_REGISTER_STEPS > 0 ? Tile::Q_REGISTER_STEPS : 1; /* arrays are not empty */
    /* Whether LSE and 1 / row sum are computed while the last product runs: not where it computes the sum. */
    static constexpr bool FINALIZES_EARLY = !HAS_SUM_COLUMN;
    /* SKIPS_BLOCKS: a warpgroup skips blocks of keys that none of its rows sees. ROTATES_ROWS: the warpgroups of a
     * thread block skip different ones, so that they take turns with the rows that see most. */
    static constexpr bool ROTATES_ROWS = KEYS < Tile::BLOCK_M, SKIPS_BLOCKS = ROTATES_ROWS || IS_PAIR;
    /* Whether the main loop is left every few blocks for cancel_rounding (rounding.cuh), if scores spread widely.
     * The two warpgroups that split a row's keys would have to agree on that; their problems are small. */
    static constexpr bool CANCELS_ROUNDING = HAS_SUM_COLUMN && Tile::KEY_SPLITS == 1;
    /* Whether rounding errors of largest weights are taken out of O where P is in bf16 (correct_largest,
     * rounding.cuh). The two warpgroups that split a row's keys would have to agree on that, too. */
    static constexpr bool CORRECTS_LARGEST_IN_BF16 = !HAS_SUM_COLUMN && Tile::KEY_SPLITS == 1;
    /* Work tiles without a mask may have parts (tail.h). Tiles with split keys are for problems of few tiles, which
     * have none. */
    static constexpr bool HAS_PARTS = Tile::KEY_SPLITS == 1;
    /* setmaxnreg takes multiples of 8; the sum over all threads is what __launch_bounds__ gives at launch. */
    static constexpr int PRODUCER_REGISTERS = ALL_CONSUMERS == 2 ? 40 : 32;
    static constexpr int CONSUMER_REGISTERS = ALL_CONSUMERS == 2 ? 232 : ALL_CONSUMERS == 3 ? 160 : 112;
    static_assert(ALL_CONSUMERS >= 2 && ALL_CONSUMERS <= 4, "the register budgets are for two, three and four");
    static_assert(!IS_PAIR || Tile::KEY_SPLITS == 1, "pairs do not exchange O");
    static_assert(Tile::KEY_SPLITS <= 2 && SENT_FLOATS % 4 == 0, "at most two splits are combined, by float4");
    static_assert(Tile::Q_REGISTER_STEPS <= Tile::HEAD_DIM / 16, "steps in registers are steps of the tile");
    static_assert(!CORRECTS_LARGEST_IN_BF16 || Tile::BLOCK_M <= MOST_BLOCKS_OF_DIAGONAL * Tile::BLOCK_N,
                  "all rows begin ahead of corrections (start_late_rows)");
    static_assert(!Tile::SCHEDULE.halves_first_block || KEYS % 32 == 0, "half a block is whole steps of wgmma");
    static_assert(!HAS_SUM_COLUMN || PANELS == 1, "the panel of ones is the second one");
    static_assert(KEYS % 16 == 0 && Tile::HEAD_DIM % PANEL_COLUMNS == 0, "whole steps of wgmma, whole panels");
};

/* A consumer thread's number in its half of the thread block. */
template <typename Tile> __device__ __forceinline__ unsigned consumer_thread(unsigned thread)
{
    return Tile::HALVES == 1 ? thread - WARPGROUP : (thread - WARPGROUP) % (Traits<Tile>::CONSUMERS * WARPGROUP);
}

/* What cancel_rounding (rounding.cuh) keeps of a row's keys so far. */
struct alignas(16) RowHistory {
    float sum;      /* of P before rounding */
    float added;    /* of the rounded P */
    float squares;  /* of the sums of P from one correction to the next, times 2^-32 */
    float max_log2; /* the row max that these refer to */
};

/* A pair: whether the other block's consumers have released a stage of K or V; the numbers of the next work tiles,
 * which rank 0 sends to rank 1. */
template <typename Tile, bool = Traits<Tile>::IS_PAIR> struct PairStorage {
};
template <typename Tile> struct PairStorage<Tile, true> {
    uint64_t other_k_empty[Tile::STAGES], other_v_empty[Tile::STAGES], next_work_full[2];
    int next_work[2];
};

template <typename Tile> struct alignas(1024) SharedStorage {
    uint16_t q[Q_STAGES][Tile::BLOCK_M * Tile::HEAD_DIM]; /* Q, and O in the epilogue */
    uint16_t k[Tile::STAGES][Tile::BLOCK_N * Tile::HEAD_DIM];
    uint16_t v[Tile::STAGES][Tile::BLOCK_N * Tile::HEAD_DIM];
    uint16_t ones[Traits<Tile>::ONES];
    /* Barriers, and what arrives at them. full: the producer, and the bytes of its copies. work_tile_full: the
     * producer of Q and K, when work_tile is written. q_empty: every consumer warp and the producer of V. k_empty,
     * v_empty: every consumer warp, of the block's own consumers. Named barriers: 1 and more for the warpgroups that
     * exchange O or share a stage of Q, then one for each warpgroup's turn (mainloop.cuh). */
    uint64_t q_full[Q_STAGES], q_empty[Q_STAGES], work_tile_full[Q_STAGES];
    uint64_t k_full[Tile::STAGES], k_empty[Tile::STAGES], v_full[Tile::STAGES], v_empty[Tile::STAGES];
    WorkTileOf<Tile> work_tile[Q_STAGES]; /* which tile a stage of Q holds or waits for */
    /* From the first key split to the last one. */
    float4 exchange[Traits<Tile>::EXCHANGE_BUFFERS]
                   [Traits<Tile>::EXCHANGE_FLOATS > 0 ? Traits<Tile>::EXCHANGE_FLOATS / 4 : 1];
    KeyPart key_part[Q_STAGES]; /* of work_tile, where tiles may have parts */
    PairStorage<Tile> pair;
    /* Of a consumer thread: threads 0 and 2 of a quad have row g, 1 and 3 row g + 8, with the same values. */
    RowHistory history[Traits<Tile>::CANCELS_ROUNDING ? Traits<Tile>::CONSUMERS * WARPGROUP : 1];
    /* Of a consumer thread's two rows (correct_largest). */
    float2 squares[Traits<Tile>::CORRECTS_LARGEST_IN_BF16 ? Traits<Tile>::CONSUMERS * WARPGROUP : 1];
};

} // namespace sm90_fwd
