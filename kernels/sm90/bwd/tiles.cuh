/* The tiles of the sm_90 backward, their sizes, shared memory, and the order of work. */
#pragma once
#include <cstdint>
#include <cuda_bf16.h>
#include <type_traits>

#include "kernels/device/barriers.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/sm90/bwd/work.cuh"

namespace sm90_bwd {

using namespace device;

/* When the first -D of a step are loaded: when the next step's Q is there, when dV has been started, or before that. */
enum DeltaLoad { WITH_NEXT_Q, BEHIND_DV_START, BEFORE_DV_START };
/* A pair: whether a warp asks for dO of the next step while S is computed, which spares it the time of the question
 * when it needs dO; before or behind the first lse2. */
enum DoutTest { NO_TEST, TESTS_EARLY, TESTS_LATE };

/* The order within a step of kv_warpgroup, which in all cases stores dS before it starts S of the next step. All orders
 * compute the same; which one is fastest depends on how the assembler arranges the instructions and was found by trying
 * (docs/kernels/sm90_bwd.md). */
struct Schedule {
    bool ds_beside_dv;    /* dS (fp16: dP - D) is computed while dV still runs; otherwise dV is waited for first */
    bool packs_p_last;    /* P for dV is rounded behind P for dS, at the end of a step */
    bool announces_first; /* dS is announced (arrive_ds_full) before S is started; otherwise after that */
    bool waits_late; /* the buffer of dS is waited for when dS (fp16: dP - D) has been computed; otherwise before */
    DeltaLoad loads_delta;
    bool loads_lse_early; /* the first lse2 are loaded before dK is started */
    bool releases_last;   /* a stage is released when P has been rounded */
    bool ds_in_two_loops; /* dP - D of all columns is computed before dS of the first */
    int prefetched; /* statistics that a thread loads ahead, while the product that they are needed for still runs:
                             of how many times 8 columns */
    DoutTest tests_dout;
};
constexpr Schedule D128 = {true, false, true, true, WITH_NEXT_Q, false, false, false, 2, NO_TEST},
                   D128_LOOP_BF16 = {true, true, true, false, WITH_NEXT_Q, false, false, false, 2, NO_TEST},
                   D128_PAIR_FP16 = {true, false, true, true, WITH_NEXT_Q, false, false, false, 2, TESTS_EARLY},
                   D128_PAIR_BF16 = {true, false, true, false, BEHIND_DV_START, false, false, false, 2, TESTS_EARLY},
                   D64 = {false, false, false, false, WITH_NEXT_Q, false, false, false, 2, NO_TEST},
                   D64_BF16 = {true, false, false, true, WITH_NEXT_Q, false, false, false, 2, NO_TEST},
                   D64_LOOP_BF16 = {true, false, false, false, BEFORE_DV_START, true, true, true, 3, NO_TEST},
                   D64_PAIR_BF16 = {true, false, false, true, WITH_NEXT_Q, false, false, true, 2, TESTS_LATE};

/* head_dim; queries; how many steps of 16 columns of V and of K a KV warpgroup keeps in registers in fp16, of V in bf16
 * (none of K); ONCE: a block has one work tile, LOOP: it takes one after the other, PAIR: two blocks of a cluster do,
 * together, FEW: it keeps the queries of a head, which are one tile, and goes over tiles of keys; times of a step, of a
 * work tile and of the start of a block (geometry.h); the order of a step in fp16 and in bf16.
 * docs/kernels/sm90_bwd.md, "Which tile": measured in bursts, but of pairs under steady load. Pairs and FEW
 * have no deterministic kernels. */
#define BWD_TILES_D128(ROW) \
    ROW(128, 64, 3, 0, 0, ONCE, 100, 200, 0, D128, D128) \
    ROW(128, 64, 3, 0, 0, LOOP, 100, 160, 40, D128, D128_LOOP_BF16) \
    ROW(128, 64, 3, 0, 0, PAIR, 96, 160, 40, D128_PAIR_FP16, D128_PAIR_BF16)
#define BWD_TILES_D64(ROW) \
    ROW(64, 128, 4, 3, 1, ONCE, 100, 200, 0, D64, D64_BF16) \
    ROW(64, 128, 4, 3, 1, LOOP, 100, 160, 40, D64, D64_LOOP_BF16) \
    ROW(64, 128, 4, 3, 1, PAIR, 94, 180, 60, D64, D64_PAIR_BF16) \
    ROW(64, 64, 2, 0, 2, ONCE, 59, 130, 0, D64, D64) \
    ROW(64, 128, 0, 0, 0, FEW, 100, 70, 56, D64, D64)

#define TILE_NAME(DIM, Q, BLOCK) BwdD##DIM##Q##Q##BLOCK
#define TILE_STRUCT(DIM, Q, V_FP16, K_FP16, V_BF16, BLOCK, STEP, WORK, START, FP16, BF16) \
    template <typename T> struct TILE_NAME(DIM, Q, BLOCK) { \
        using Element = T; \
        static constexpr int HEAD_DIM = DIM, Q_TILE = Q; \
        static constexpr int V_STEPS = IS_BF16<T> ? V_BF16 : V_FP16, K_STEPS = IS_BF16<T> ? 0 : K_FP16; \
        static constexpr bool IS_LOOP = BLOCK == LOOP || BLOCK == PAIR, IS_PAIR = BLOCK == PAIR; \
        static constexpr bool IS_FEW = BLOCK == FEW; \
        static constexpr int STEP_TIME = STEP, BLOCK_TIME = WORK, START_TIME = START; \
        static constexpr Schedule SCHEDULE = IS_BF16<T> ? BF16 : FP16; \
    };
template <typename T> constexpr bool IS_BF16 = std::is_same<T, __nv_bfloat16>::value;
enum { ONCE, LOOP, PAIR, FEW };
BWD_TILES_D128(TILE_STRUCT)
BWD_TILES_D64(TILE_STRUCT)

/* What follows from a tile's row above. docs/kernels/sm90_bwd.md has sizes of shared memory and registers. */
template <typename Tile> struct Traits {
    /* The order of work of a KV warpgroup: kv_short_steps.cuh, otherwise kv_warpgroup.cuh. */
    static constexpr bool HAS_SHORT_STEPS = Tile::Q_TILE < ROW_BLOCK_ROWS<Tile::HEAD_DIM>;
    static constexpr int STAGES = HAS_SHORT_STEPS ? 4 : 3; /* of Q, and of dO but in a pair */
    /* Two blocks of a cluster have adjacent tiles of keys and go through the same steps (pair.cuh), with fewer
     * stages of dO. */
    static constexpr bool IS_PAIR = Tile::IS_PAIR;
    static constexpr int CLUSTER = IS_PAIR ? 2 : 1; /* blocks that have a work tile together */
    static constexpr int DOUT_STAGES = IS_PAIR ? 2 : STAGES;
    static constexpr int KV_GROUPS = 2, GROUP_KEYS = KV_TILE / KV_GROUPS; /* KV warpgroups, and the keys of one */
    static constexpr int THREADS = WARPGROUP * (1 + KV_GROUPS), KV_WARPS = KV_GROUPS * 4, DQ_WARPS = 4;
    static constexpr int PANELS = Tile::HEAD_DIM / PANEL_COLUMNS, Q_PANELS = Tile::Q_TILE / PANEL_COLUMNS;
    static constexpr int KV_PANEL_BYTES = KV_TILE * ROW_BYTES, Q_PANEL_BYTES = Tile::Q_TILE * ROW_BYTES;
    static constexpr int KV_BYTES = PANELS * KV_PANEL_BYTES, Q_BYTES = PANELS * Q_PANEL_BYTES;
    static constexpr int DS_BYTES = Q_PANELS * KV_PANEL_BYTES;
    static constexpr int STAGE_STATS = IS_PAIR ? Tile::Q_TILE : 2 * Tile::Q_TILE; /* in a stage of Q */
    static constexpr int STATS_BYTES = 2 * Tile::Q_TILE * int(sizeof(float));
    static constexpr int STAGE_BYTES = 2 * Q_BYTES + STATS_BYTES;
    /* Whether a block goes on to another work tile when it has finished one. K of the next one takes the place of V:
     * as soon as V is in registers, if all of it is, otherwise when dP of the last step has been computed. */
    static constexpr bool TAKES_MORE = Tile::IS_LOOP, V_IN_REGISTERS = 16 * Tile::V_STEPS == Tile::HEAD_DIM;
    static constexpr bool IS_RANGES_LOOP = TAKES_MORE && !Tile::Work::IS_DENSE && !Tile::Work::HAS_LISTS;
    /* Whether a KV warpgroup goes on to the first step of the next work tile as it goes on to a step: K of that has an
     * area of its own, and V comes where V of this one is. */
    static constexpr bool CROSSES_WORK = IS_RANGES_LOOP && Tile::HEAD_DIM == 64;
    static constexpr int KEY_AREAS = CROSSES_WORK ? 3 : 2;
    static_assert(!CROSSES_WORK || (Tile::V_STEPS == 0 && Tile::K_STEPS == 0), "nothing is kept in registers");
    /* Whether the next K and V are brought to the second-level cache before that. */
    static constexpr bool PREFETCHES_KEYS = TAKES_MORE && !V_IN_REGISTERS && Tile::HEAD_DIM == 64;
    static_assert(!TAKES_MORE || Tile::Q_TILE == listed_q_tile(Tile::HEAD_DIM), "preprocess lists the work tiles");
    /* Work tiles in shared memory: those that a warp of the block may be at, and the next one. A multiple of 2. */
    static constexpr int WORK_SLOTS = TAKES_MORE ? 4 : 1;
    /* Whether the producer notes which tile of queries a step has (NotedStep): in loops of ranges its warpgroup has no
     * registers to follow it. */
    static constexpr bool NOTES_STEPS = Tile::Work::HAS_LISTS || IS_RANGES_LOOP;
    /* Whether the KV warpgroups read that, too. */
    static constexpr bool KV_READS_NOTES = NOTES_STEPS && !CROSSES_WORK;
    /* Whether work tiles write zeros in dq_sum (zeros.cuh). */
    static constexpr bool WRITES_ZEROS = TAKES_MORE && (Tile::Work::IS_DENSE || CROSSES_WORK);
    static constexpr int SCORES = Tile::Q_TILE / 2, GRADIENTS = Tile::HEAD_DIM / 2; /* registers of a thread */
    /* FEW: the dQ warpgroup keeps all of dQ in registers. */
    static constexpr int KV_REGISTERS = Tile::IS_FEW ? 200 : 216, DQ_REGISTERS = Tile::IS_FEW ? 96 : 72;
    static constexpr int Q_FLOATS = Tile::HEAD_DIM * Tile::Q_TILE, PASS_FLOATS = 64 * 64; /* of dQ */
    static constexpr int PASSES = Q_FLOATS / PASS_FLOATS, LAST_PASS = PASSES - 1;
    /* The copy engine adds the passes of dQ to dq_sum; with 128 queries the last pass is added from registers
     * instead. */
    static constexpr bool ADDS_FROM_REGISTERS = Tile::Q_TILE == 128;
    static constexpr int DQ_BUFFERS = Tile::Q_TILE == 128 ? 1 : 2; /* 128 queries leave no room for more */
    /* Quads of a slab that the copy engine adds, in passes that it adds. */
    static constexpr int COPIED_QUADS = CROSSES_WORK ? 6 : SLAB_QUADS;
    static constexpr int DQ_BUFFER_FLOATS = COPIED_QUADS * (SLAB_FLOATS / SLAB_QUADS);
    static constexpr int SEMAPHORE_TILES = semaphore_tiles(Tile::Q_TILE);
    static constexpr int ROW_BLOCK_TILES = ROW_BLOCK_ROWS<Tile::HEAD_DIM> / Tile::Q_TILE; /* of a block of preprocess */
    /* Whether P for dS has registers of its own, in fp16: in bf16, because that has too few bits for it, and where it
     * has another factor (softcap.cuh). Short steps keep it in fp32. */
    static constexpr bool HAS_SLOPE = Tile::Score::HAS_SLOPE;
    static constexpr bool KEEPS_P = (IS_BF16<typename Tile::Element> || HAS_SLOPE) && !HAS_SHORT_STEPS;
    static_assert(!HAS_SLOPE || (KEEPS_P && !Tile::SCHEDULE.packs_p_last && !Tile::IS_FEW), "what a slope needs");
    /* A pair has as many stages of dO as buffers of dS; a warp keeps Q of a step while it waits for that of the step
     * after next. */
    static_assert(!IS_PAIR || (DOUT_STAGES == 2 && STAGES >= 3 && TAKES_MORE && !HAS_SHORT_STEPS), "what pairs need");
    static_assert(PASSES == 2 || HAS_SHORT_STEPS, "a tile of dQ is two passes");
    static_assert(SEMAPHORE_TILES % ROW_BLOCK_TILES == 0, "semaphores are those of a block of preprocess");
    static_assert(2 * KV_REGISTERS + DQ_REGISTERS <= 504, "168 registers a thread at launch");
    static_assert(THREADS == SM90_BWD_THREADS, "the host launches as many");
    static_assert(THREADS >= SM90_BWD_MOST_SEARCHED_TILES, "find_part has a thread for each");
};

/* Which of Smem::keys K of the work tile in a slot is in; V is in the other one. */
template <typename Tile> __device__ __forceinline__ int k_area(int slot)
{
    return Traits<Tile>::CROSSES_WORK ? slot % 2 * 2 : Traits<Tile>::TAKES_MORE ? slot % 2 : 0;
}

template <typename Tile> __device__ __forceinline__ int v_area(int slot)
{
    return Traits<Tile>::CROSSES_WORK ? 1 : 1 - k_area<Tile>(slot);
}

/* Shared memory for dQ: from where the copy engine adds it to dq_sum. */
template <typename Tile, bool = Traits<Tile>::IS_PAIR> struct DqSmem {
    float buffers[Traits<Tile>::DQ_BUFFERS][Traits<Tile>::DQ_WARPS][Traits<Tile>::DQ_BUFFER_FLOATS];
};

/* A pair: a panel of the other block's K, and one of its dS of a step, for the block's half of dQ of both. */
template <typename Tile> struct DqSmem<Tile, true> {
    unsigned char other_k[Traits<Tile>::KV_PANEL_BYTES], other_ds[2][Traits<Tile>::KV_PANEL_BYTES];
};

/* A pair: -D and the barriers of dO, which has stages of its own, and those of dS from the other block. */
template <typename Tile, bool = Traits<Tile>::IS_PAIR> struct PairSmem {
};

template <typename Tile> struct PairSmem<Tile, true> {
    alignas(16) float neg_delta[Traits<Tile>::DOUT_STAGES][Tile::Q_TILE];
    uint64_t dout_full[Traits<Tile>::DOUT_STAGES], dout_empty[Traits<Tile>::DOUT_STAGES]; /* empty: DOUT_LOADER's */
    uint64_t ds_received[2];
};

template <typename Tile> struct alignas(1024) Smem {
    using S = Traits<Tile>;
    unsigned char keys[S::KEY_AREAS][S::KV_BYTES]; /* K and V */
    unsigned char q[S::STAGES][S::Q_BYTES], dout[S::DOUT_STAGES][S::Q_BYTES];
    unsigned char ds[2][S::DS_BYTES]; /* panels of [keys][64 queries] */
    DqSmem<Tile> dq;
    float stats[S::STAGES][S::STAGE_STATS]; /* lse2, then -D; a pair: lse2 */
    /* Barriers, and what arrives at them. full, k_full, v_full: the producer, and the bytes of its copies. empty: every
     * KV warp, for Q, dO and statistics of a stage. ds_full: every KV warp; ds_empty: every warp that computes dQ.
     * work_empty: both kinds. operands_full: every KV warp. In a pair the warps of both blocks arrive at `empty`,
     * ds_empty and rank 0's work_empty; `empty` is that of Q_LOADER. */
    uint64_t full[S::STAGES], empty[S::STAGES], ds_full[2], ds_empty[2];
    uint64_t first_stats_full;      /* not in a pair: the statistics of the block's first step */
    uint64_t k_full[S::WORK_SLOTS]; /* the slot has a work tile, and its K has arrived */
    uint64_t v_full[S::WORK_SLOTS]; /* a pair: and the panel of the other block's K */
    uint64_t work_full;             /* the next work tile has been copied to its slot */
    /* All warps have finished with the slot, its dK and dV are on their way. A pair: rank 0's counts both blocks. */
    uint64_t work_empty[S::WORK_SLOTS];
    uint64_t operands_full;   /* what is kept in registers of a work tile's K and V is there */
    int kv_work[S::KV_WARPS]; /* how many work tiles each KV warp has finished */
    PairSmem<Tile> pair;
    alignas(16) WorkTileOf<
        Tile> work[S::WORK_SLOTS]; /* read from here by the KV warpgroups, which have no registers to spare */
};

/* The block's tile of keys of a work tile. */
template <typename Tile> __device__ __forceinline__ int own_kv_tile(const WorkTile &work)
{
    return work.kv_tile + (Traits<Tile>::IS_PAIR ? pair_rank() : 0);
}

/* Where a part's sums of a tile of keys lie in kv_sums. tile: one of params.summed_tiles. */
template <int HEAD_DIM> __device__ __forceinline__ int64_t kv_sums_offset(const Params &params, int part, int64_t tile)
{
    return sm90_bwd_sums_offset(part, tile, params.summed_tiles, HEAD_DIM);
}

/* Which of params.summed_tiles the block's tile of keys of a work tile with parts is. */
template <typename Tile> __device__ __forceinline__ int summed_tile(const Params &params, const WorkTile &work)
{
    if (!Traits<Tile>::TAKES_MORE)
        return (work.batch * params.kv_heads + work.kv_head) * params.kv_tiles + work.kv_tile;
    const int of_tail = work.number - params.tail.first - work.part * params.tail.works;
    return Traits<Tile>::IS_PAIR ? 2 * of_tail + pair_rank() : of_tail;
}

/* Tiles of a head in stats and dq_sum: those of whole blocks of preprocess. */
template <typename Tile> __device__ __forceinline__ int head_tiles(const Params &params)
{
    constexpr int MULTIPLE = Traits<Tile>::ROW_BLOCK_TILES;
    if constexpr (!Tile::Work::IS_DENSE)
        return params.row_blocks * MULTIPLE;
    return (params.q_tiles + MULTIPLE - 1) / MULTIPLE * MULTIPLE;
}

/* A tile of queries of a query head of a batch, counted over all heads. */
template <typename Tile> __device__ __forceinline__ int tile_index(const Params &params, int batch, int head, int tile)
{
    return (batch * params.q_heads + head) * head_tiles<Tile>(params) + tile;
}

/* The same of a work tile's sequence. */
template <typename Tile>
__device__ __forceinline__ int tile_index(const Params &params, const WorkTileOf<Tile> &work, int batch, int head,
                                          int tile)
{
    if constexpr (!Tile::Work::IS_DENSE && !Tile::Work::HAS_LISTS)
        return work.first_q_tile + head * head_tiles<Tile>(params) + tile;
    else
        return tile_index<Tile>(params, batch, head, tile);
}

} // namespace sm90_bwd
