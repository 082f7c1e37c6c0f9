/* The tiles of the sm_90 backward, their sizes, shared memory, and the order of work. */
#pragma once
#include <cstdint>

#include "kernels/sm90/bwd_params.h"

namespace sm90_bwd {

/* head_dim; queries; how many steps of 16 columns of V and of K a KV warpgroup keeps in registers; times of a step and
 * of a block (bwd_geometry.h). docs/kernels/sm90_bwd.md has the measurements behind the last two. */
#define BWD_TILES(ROW)                                                                                                 \
    ROW(128, 64, 3, 0, 100, 200)                                                                                       \
    ROW(128, 64, 0, 0, 100, 200)                                                                                       \
    ROW(64, 128, 4, 3, 100, 200)                                                                                       \
    ROW(64, 128, 4, 0, 100, 200)                                                                                       \
    ROW(64, 64, 2, 0, 54, 140)

#define TILE_NAME(DIM, Q, V_COUNT, K_COUNT) BwdD##DIM##Q##Q##V##V_COUNT##K##K_COUNT
#define TILE_STRUCT(DIM, Q, V_COUNT, K_COUNT, STEP_TIME, BLOCK_TIME)                                                   \
    struct TILE_NAME(DIM, Q, V_COUNT, K_COUNT) {                                                                       \
        static constexpr int HEAD_DIM = DIM, Q_TILE = Q, V_STEPS = V_COUNT, K_STEPS = K_COUNT;                         \
    };
BWD_TILES(TILE_STRUCT)

/* What follows from a tile's row above. docs/kernels/sm90_bwd.md has the measurements behind the choices. */
template <typename Tile> struct Traits {
    /* The order of work of a KV warpgroup: bwd_kv_short_steps.cuh, otherwise bwd_kv_warpgroup.cuh. */
    static constexpr bool HAS_SHORT_STEPS = Tile::HEAD_DIM * Tile::Q_TILE < ROW_BLOCK_FLOATS;
    static constexpr int STAGES = HAS_SHORT_STEPS ? 4 : 3;                /* of Q and dO */
    static constexpr int KV_GROUPS = 2, GROUP_KEYS = KV_TILE / KV_GROUPS; /* KV warpgroups, and the keys of one */
    static constexpr int THREADS = WARPGROUP * (1 + KV_GROUPS), KV_WARPS = KV_GROUPS * 4, DQ_WARPS = 4;
    static constexpr int PANELS = Tile::HEAD_DIM / PANEL_COLUMNS, Q_PANELS = Tile::Q_TILE / PANEL_COLUMNS;
    static constexpr int KV_PANEL_BYTES = KV_TILE * ROW_BYTES, Q_PANEL_BYTES = Tile::Q_TILE * ROW_BYTES;
    static constexpr int KV_BYTES = PANELS * KV_PANEL_BYTES, Q_BYTES = PANELS * Q_PANEL_BYTES;
    static constexpr int DS_BYTES = Q_PANELS * KV_PANEL_BYTES;
    static constexpr int STATS_BYTES = 2 * Tile::Q_TILE * int(sizeof(float));
    static constexpr int STAGE_BYTES = 2 * Q_BYTES + STATS_BYTES;
    static constexpr int SCORES = Tile::Q_TILE / 2, GRADIENTS = Tile::HEAD_DIM / 2; /* registers of a thread */
    static constexpr int KV_REGISTERS = 216, DQ_REGISTERS = 72;
    static constexpr int Q_FLOATS = Tile::HEAD_DIM * Tile::Q_TILE, PASS_FLOATS = 64 * 64; /* of dQ */
    static constexpr int PASSES = Q_FLOATS / PASS_FLOATS, LAST_PASS = PASSES - 1;
    /* The copy engine adds the passes of dQ to dq_sum; with 128 queries the last pass is added from registers
     * instead. */
    static constexpr bool ADDS_FROM_REGISTERS = Tile::Q_TILE == 128;
    static constexpr int DQ_BUFFERS = Tile::Q_TILE == 128 ? 1 : 2; /* 128 queries leave no room for more */
    static constexpr int SEMAPHORE_TILES = 128 / Tile::Q_TILE;     /* that share a semaphore, to execute fewer fences */
    static constexpr int ROW_BLOCK_TILES = ROW_BLOCK_FLOATS / Q_FLOATS; /* of a block of preprocess */
    /* The order within a step of kv_warpgroup, which in both cases stores dS before it starts S of the next step. True:
     * dP - D is computed while dV still runs, and dS is announced (arrive_ds_full) before S is started. False: dV is
     * waited for first, and dS is announced after S has been started. */
    static constexpr bool DS_FIRST = Tile::HEAD_DIM == 128;
    static_assert(PASSES == 2 || HAS_SHORT_STEPS, "a tile of dQ is two passes");
    static_assert(SEMAPHORE_TILES % ROW_BLOCK_TILES == 0, "semaphores are those of a block of preprocess");
    static_assert(2 * KV_REGISTERS + DQ_REGISTERS <= 504, "168 registers a thread at launch");
    static_assert(THREADS == SM90_BWD_THREADS, "the host launches as many");
};

/* A step of a block: a tile of queries of a query head of the group, the last tile first. */
struct Cursor {
    int head, tile; /* head of the group */

    __device__ __forceinline__ void advance(const Params &params, int first_tile)
    {
        if (--tile < first_tile) {
            ++head;
            tile = params.q_tiles - 1;
        }
    }
};

/* One part of one tile of keys of one kv head. */
struct WorkTile {
    int batch, kv_head, kv_tile;
    int first_tile[2]; /* of queries that see the keys of a KV warpgroup; q_tiles when none does */
    Cursor begin;      /* the first step */
    int steps;         /* of the part; a tile has a step for each tile of queries that sees the first warpgroup's keys,
                          of all query heads of the group */
    int part, parts;   /* which part of how many; a block whose part is not below `parts` has no work */
};

template <typename Tile> struct alignas(1024) Smem {
    using S = Traits<Tile>;
    unsigned char k[S::KV_BYTES], v[S::KV_BYTES]; /* at the end dK and dV, from where they are stored */
    unsigned char q[S::STAGES][S::Q_BYTES], dout[S::STAGES][S::Q_BYTES];
    unsigned char ds[2][S::DS_BYTES];                  /* panels of [keys][64 queries] */
    float dq[S::DQ_BUFFERS][S::DQ_WARPS][SLAB_FLOATS]; /* from where the copy engine adds them to dq_sum */
    float stats[S::STAGES][2 * Tile::Q_TILE];          /* lse2, then -D */
    uint64_t k_full, v_full, full[S::STAGES], empty[S::STAGES], ds_full[2], ds_empty[2];
    WorkTile work; /* read from here by the KV warpgroups, which have no registers to spare */
};

/* A tile of keys: the first tile of queries of each KV warpgroup. Also of the kernel that adds up the parts. */
__device__ __forceinline__ void find_first_tiles(int (&first_tile)[2], const Params &params, int kv_tile, int q_tile)
{
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int first_key = kv_tile * KV_TILE + half * (KV_TILE / 2);
        first_tile[half] = sm90_bwd_first_tile(first_key, params.causal, params.shift, params.q_len, params.kv_len,
                                               q_tile, params.q_tiles);
    }
}

/* How many parts a tile of keys with this many steps has. */
__device__ __forceinline__ int parts_of(const Params &params, int steps)
{
    return params.max_parts == 1 ? 1 : sm90_bwd_part_count(steps, params.part_steps);
}

/* The first step of a part, counted over the tile's. Tiles of queries that share a semaphore are not divided. */
template <typename Tile>
__device__ __forceinline__ int part_begin(const Params &params, const WorkTile &work, int part, int steps)
{
    const int begin = static_cast<int>(static_cast<int64_t>(steps) * part / work.parts);
    const int head_steps = params.q_tiles - work.first_tile[0], within = begin % head_steps;
    return begin + (within > 0 && (params.q_tiles - within) % Traits<Tile>::SEMAPHORE_TILES > 0);
}

/* The tile scheduler. Blocks go section by section of kv heads, and within a section first over the heads and the
 * parts, then over the tiles of keys: in causal problems the longest tiles come first, and blocks that run at the same
 * time read the same queries. */
template <typename Tile> __device__ __forceinline__ WorkTile work_tile_of_block(const Params &params)
{
    const int section_blocks = params.section_heads * params.kv_tiles * params.max_parts;
    const int section = blockIdx.x / section_blocks, rest = blockIdx.x - section * section_blocks;
    const int first_head = section * params.section_heads;
    const int columns = min(params.section_heads, params.kv_heads_total - first_head) * params.max_parts;
    const int kv_tile = rest / columns, column = rest - kv_tile * columns;
    const int head = first_head + column / params.max_parts, batch = head / params.kv_heads;
    WorkTile work = {batch, head - batch * params.kv_heads, kv_tile, {0, 0}, {0, params.q_tiles - 1}, 0, 0, 1};

    find_first_tiles(work.first_tile, params, kv_tile, Tile::Q_TILE);
    work.steps = (params.q_tiles - work.first_tile[0]) * params.group;
    work.part = column % params.max_parts;
    work.parts = parts_of(params, work.steps);
    if (work.parts > 1 && work.part < work.parts) {
        const int begin = part_begin<Tile>(params, work, work.part, work.steps);
        const int head_steps = params.q_tiles - work.first_tile[0];
        work.steps = part_begin<Tile>(params, work, work.part + 1, work.steps) - begin;
        work.begin = {begin / head_steps, params.q_tiles - 1 - begin % head_steps};
    }
    return work;
}

/* Where a part's sums of a tile of keys lie in kv_sums. tile: of all kv heads. */
template <int HEAD_DIM> __device__ __forceinline__ int64_t kv_sums_offset(const Params &params, int part, int64_t tile)
{
    const int64_t tiles = int64_t(params.kv_heads_total) * params.kv_tiles;
    return sm90_bwd_sums_offset(part, tile, tiles, HEAD_DIM);
}

/* Tiles of a head in stats and dq_sum: those of whole blocks of preprocess. */
template <typename Tile> __device__ __forceinline__ int head_tiles(const Params &params)
{
    constexpr int MULTIPLE = Traits<Tile>::ROW_BLOCK_TILES;
    return (params.q_tiles + MULTIPLE - 1) / MULTIPLE * MULTIPLE;
}

/* The step's tile, counted over all heads. */
template <typename Tile>
__device__ __forceinline__ int tile_index(const Params &params, const WorkTile &work, const Cursor &at)
{
    return (work.batch * params.q_heads + work.kv_head * params.group + at.head) * head_tiles<Tile>(params) + at.tile;
}

} // namespace sm90_bwd
