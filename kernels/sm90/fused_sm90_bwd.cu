/* fused_sm90, backward: FlashAttention-2's backward (Dao 2023, algorithm 2) on wgmma and TMA, for compute capability
 * 9.0. Three kernels, side by side with fused_sm90_bwd_side.cu, each starting while the one before ends:
 *   preprocess (side)  lse2 = LSE * log2 e and -D = -rowsum(dO * O) of every query; zeros in the fp32 sums of dQ
 *   backward           a block owns 128 keys of a kv head and goes through the tiles of queries of every query head of the
 *                      group, last tile first: recomputes P, keeps dK and dV in registers, adds dQ to the sums
 *   convert (side)     dQ = scale * sums, rounded
 *
 * Two warpgroups own 64 keys each and never wait for one another; the third copies and multiplies for dQ. A step:
 *
 *   key warpgroup (S^T, dP^T: rows are keys)                     query warpgroup
 *     P^T is in registers, in 16 bits                              wait for dS of both
 *     start dP^T = V dO^T, dV += P^T dO                            twice 64 x 64: dQ = dS K
 *     dS^T = P^T * (dP^T - D), in the place of P^T                   meanwhile the 64 x 64 before goes out, by way of
 *     dS^T to shared memory, for dQ                                  shared memory: the copy engine adds it
 *     start S^T = K Q^T of the next step                             one thread: Q, dO, lse2, -D of three steps on
 *     start dK += dS^T Q                                             registers to shared memory; at d64 the second pass is
 *     P^T = exp2(scale_log2 S^T - lse2) of the next step             added from registers
 *
 *   The query warpgroup is told of dS before S is started at d128, after that at d64. Both P^T and dS^T leave the
 *   accumulators as A operands; of all the scores only dS goes to shared memory. S, P and dP share one set of registers, P
 *   and dS another: 128 (d128) or 64 (d64) of dK and dV, 32 or 64, 16 or 32; dS is therefore computed from P as rounded for
 *   dV. What is left of 216 holds parts of V and K, which spares their reads by every step.
 *   Products of a warpgroup run under its own exponentials, and under the other's.
 *
 *   shared memory (KB)  K 32 | V 32 | Q 3 x 16 | dO 3 x 16 | dS 2 x 16 | dQ 2 x 16 | lse2, -D 3 x 0.5   d128, 64 queries
 *                       K 16 | V 16 | Q 3 x 16 | dO 3 x 16 | dS 2 x 32 | dQ 16     | lse2, -D 3 x 1     d64, 128 queries
 *   read and written in a step, but for statistics: 356 KB, 2780 cycles, to 2560 cycles of products (d128); 292 KB (d64).
 *
 * Sums of dQ lie in the order of the accumulators. Blocks add in the order in which they get there or, for
 * request.deterministic, in the order of their keys, turn by turn: each warp of the query warpgroup waits for the same warp
 * of the blocks with earlier keys, which start earlier, go through the queries in the same order, and so stay ahead. This
 * needs blocks to start in the order of their numbers, as they do, though no manual promises it. dK and dV are sums of one
 * block in a fixed order. Rows without a key and rows that pad have lse2 = +inf, hence P = 0; keys that pad and keys behind
 * the diagonal are masked where a uniform branch says that a tile has any. A warpgroup whose keys a tile does not see leaves
 * out everything but zeros in dS.
 *
 * The assembler (CUDA 13.0) starts accumulators at register 24 and leaves the last three of a limit unused; it keeps sums
 * that are still to be rounded over the start of a product if it may, which a barrier in between prevents. So dS is stored
 * before S is started: with S first there is no room for V.
 *
 * Ladder. H200 (700 W), fp16, 16384 tokens, hidden 2048, all kernels, at 1K 4K 16K. To step 8 TFLOPS from separate runs,
 * whose clocks differ by 5 to 10 %; then changes of speed between versions in the rounds of one run (results/h200/races).
 *   1 the above, with dQ added from registers by red.v4; expected 500 cycles a step for these, under the products; ncu: the
 *     query warpgroup waits 850 of 3600 for them and is never idle at d128; d64 full 332 487 476, d128 full 419 560 560
 *   2 the copy engine adds; expected a seventh, what leaving the additions out gave; got 4 to 8 % at d64 (333 516 514),
 *     nothing at d128, whose shared memory is 78 % busy
 *   3 full: one head after the other instead of as many as the L2 holds; expected little; 1K 333 to 415 at d64, 419 to 437
 *     at d128: the sums went to device memory and back
 *   4 S of the next step before dS is stored, dQ out during the next pass, first statistics loaded early; expected 5 %,
 *     got less than the noise; the first of them undone by 11
 *   5 one in four exponentials off the special function unit; expected 4 % at d64; 6 % slower             (dropped)
 *   6 exponentials of the two warpgroups in turns; expected up to 8 % at d64; +-1 %                       (dropped)
 *   7 V in registers at d64; expected 5 % less shared-memory traffic; 2 to 4 % faster at 1K and 4K
 *   8 sections of 16 heads; expected the L2's gain and a full end; d128 causal 4K 448 to 483, others 0 to 2 %
 *   9 Q and dO asked for half a step earlier; expected 1 %: d64 +0.4 +1.2 +2.5 %, d128 +0.4 +0.7 +0.7 %
 *  10 d64: half of dQ added from registers, half by the copy engine; expected 4 %: +2.5 +3.3 +4 % (d128: -1 %)
 *  11 d128: 3/8 of V in registers; expected 3 % (12 of 368 KB a step): full +1.8 +2.2 +2.9 %, causal +1.3 +2.3 +3.0 %
 *  12 d64: 3/4 of K in registers; expected 3 %: full +1.0 +1.8 +0.7 %, causal +1.0 +0.9 +0.9 %
 *  13 full: sections of 8 heads; expected nothing: +0.2 to +0.9 %
 *  14 deterministic: the wait for the turn behind the reads of dS and the next loads: +10 to +20 %. The wait before dS is
 *     awaited, where there is time: -12 %, blocks fall into step
 *  15 deterministic: a look at the turn a pass ahead, the end of a turn a step later; expected 10 %, two round trips to the
 *     L2 a step; -5 to +4 %. In the rounds of one run 0.71 to 0.83 of the default from 4K on; runs of their own had said 0.79
 *     to 0.90, where the power limit slows the default more
 *  16 d64: no wait for the copy engine in the pass that is added from registers; expected 1 %; 0 to -1.4 %  (dropped)
 *  17 deterministic: turns for each warp, no barrier of the warpgroup, one fence for an end and the look at the next;
 *     expected 10 %; +5 to +15 %. It is the fence: without it +3 to +13 % more, without waits too 0.96 to 0.99 of the default
 *  18 deterministic: a turn for two tiles of 64 queries (d128), half the fences; expected half of what they cost. d64, a turn
 *     for two of 128: -7 % (full 4K) to +4 % (16K): the longer a turn, the longer all who come after wait at the start
 *  19 deterministic: 8 heads a section if full (4 before), 32 if causal (16); expected a shorter start; d64 full 4K +12 %, 16K
 *     0; causal 4K +2 %, 16K -2 %. What 18 and 19 each give at d128 is not known: the versions that told them apart lacked a
 *     wait there (races 17 and 18). Together, over the default at 4K 16K: d128 full 0.83 0.82 to 0.89 0.89, causal 0.79 0.80
 *     to 0.85 0.85, from two runs. Then, fp16, 4K 8K 16K: d64 full 0.93 0.92 0.92, causal 0.86 0.88 0.89; d128 full 0.89 0.89
 *     0.89, causal 0.85 0.86 0.85; at 1K 0.80 to 0.83
 *     dropped: the fence by one warp in four for all, -5 to +2 %; with the fence a pass later -3 to +9 %, less than 18
 *  20 d128: copies by elect.sync, and their counts in all of the warp: no loop around a copy any more, and what is the same
 *     in all of a warp stays in uniform registers (race 75): full +3 +4 +5 %, causal +2 +3 +4 %; with counts that one thread
 *     keeps -0.2 to -0.7 %. And where a block works in registers; from shared memory it was read again after every wait (race
 *     76): full +3 +5 +7 %, causal +2 +4 +6 %. d64, where nobody waits for this warpgroup: -0.5 to +0.7 %
 *  21 d128: the next step asked for before the additions of the pass (race 79): +0.1 to 0.9 %; not at d64 (-0.1 to -0.6 %),
 *     where its slot is not free yet. Additions by elect.sync: +0.2 to 0.7 %
 *  22 deterministic: the wait for a turn by the whole warp; in one thread it keeps what outlives it out of the uniform
 *     registers, by the listing 40 instructions a step; d64 gained nothing by it. With 20 and 21, over cuDNN at 4K and 16K, from
 *     two runs (races 80 and 83): d128 full 0.98 1.00 to 1.12 1.16, causal 1.02 0.99 to 1.14 1.14; d64 full 1.23 1.26 to 1.22
 *     1.27, causal 1.20 1.30 to 1.20 1.28. Over the default at 4K 8K 16K: d64 full 0.91 0.92 0.91, causal 0.86 0.87 0.88; d128
 *     full 0.91 0.91 0.92, causal 0.87 0.89 0.88
 *     no gain in 20 to 22: copies by three warps (-0.1 to -0.6 %), by another one (-0.3 to +0.1 %), later (-1 to -6 %)
 *  23 operands of wgmma and the base of shared memory in uniform registers (keep_uniform); expected what the forward had of it,
 *     0.2 to 1.3 % (races 95 and 96): d64 +0.9 to 2.2 %, d128 -0.2 to +0.4 %. The loop of d128's keys 709 -> 684 instructions,
 *     of d64's 1043 -> 1027
 *  24 d128: dP - D under dV's product, times P after it; expected 3 %, as the tensor cores wait there; with 23 +1.2 to 3.2 %
 *     (race 105). Times P there, too, an operand of dV, which PTX leaves undefined, it was half of that; that at d64 -1.3 to
 *     -4.0 % (race 96). With a branch in between, or more registers of its own, the assembler gives up and serialises
 *  25 d64: dS told of after S is started, its fence out of the way: 0 to +1.3 % (race 96), and with the buffer awaited before
 *     dV -0.4 to +1.1 % (races 97, 98). d128 -1.2 to -2.6 %: it seems to wait for dQ
 *     23 to 25, 1K 4K 16K (race 105): d64 full +2.5 +2.8 +3.0 %, causal +1.7 +2.4 +3.0 %; d128 full +2.1 +2.4 +3.2 %, causal
 *     +1.2 +2.2 +3.0 %. Deterministic, dP - D of d128 apart (race 106): +0.3 to 2.0 %; over cuDNN at 4K 16K by c4e10af (race
 *     104): d64 full 1.22 1.27, causal 1.20 1.25; d128 full 1.12 1.17, causal 1.14 1.14
 *     no gain: dQ begun with the dS of the first warpgroup, without the other's (d128 -0.6 %, d64 -1 %); more of V or K held,
 *     which still does not fit
 *   no gain: sums of dQ zeroed and converted by blocks of the main kernel two waves earlier and later (expected 10 % at 1K:
 *     -2 to -7 %); half of dV's product under dS (d128 -0.7 %, d64 -2 %); statistics four at a time (expected half of the
 *     loads' cycles: -1 %). dQ of 64 x 128 in one pass, 16 KB a step less, does not fit: 200 registers for a key warpgroup
 *     are 5 too few. 224 would hold 5/8 of V at d128 and all of K at d64, and 64 are enough for the query warpgroup (56 are
 *     not), but that makes 512, and a launch of 384 threads gets 504; compiled only.
 *   With 1 to 13, over cuDNN 9.19 in the rounds of one run, medians of three (results/h200/repeats/20261121-8989ea877b-sm90 and
 *   two of repeats/):
 *   d64 full 1.21 1.32 1.37, causal 1.26 1.39 1.44; d128 full 1.11 1.10 1.12, causal 1.16 1.21 1.16. Over the best peer's
 *   ratios to cuDNN: 0.97 (d128 causal 8K bf16) to 1.12, geometric mean of 40 points 1.027.
 *   racecheck (compute-sanitizer 2025.3) reports the copy of statistics into a slot against the reads of its last use, in all
 *   shapes that use a slot twice. The reads end before dS is told of; __syncwarp; lane 0 arrives at `empty`; the thread that issues
 *   the copy waits for all eight warps there. The tool does not follow __syncwarp into the arrival of one lane: of the four
 *   rings of gpu_test_blocks it reports the two that one lane gives back for its warp, also where plain stores fill the slots,
 *   and neither of the two that all lanes give back. 256 arrivals a step instead of 8 would silence it.
 *   With 1 to 22 (results/h200/repeats/20261122-9fb46a1b48-paper and two more): d64 full 1.22 1.33 1.39, causal 1.27 1.41
 *   1.45; d128 full 1.19 1.23 1.27, causal 1.22 1.32 1.30. Over the best peer's ratios: 1.029 to 1.139, geometric mean 1.087.
 *   With 1 to 25 (results/h200/repeats/20261122-07b67df17f-bwd and two more): d64 full 1.25 1.37 1.43, causal 1.28 1.44
 *   1.49; d128 full 1.22 1.26 1.30, causal 1.24 1.35 1.34. Over the best peer's ratios: 1.042 to 1.171, geometric mean 1.111.
 *   next: lse2 and D through the matrix unit, as a sixteenth more of head_dim that multiplies parts of them by 1: spares 256
 *   loads of the 2780 cycles of shared memory a step (d128), costs 128 of products. At 16K the power limit holds: 0.842
 *   TFLOPS/W (d128 causal, bf16) beside cuDNN's 0.750 (results/h200/20261122-9fb46a1b48-acceptance). Deterministic: the fence
 *   from a warp that has nothing else to do. d128 seems to wait for dQ (25), which two passes of 64 x 64 make long: dS told of
 *   before dV is there needs 16 registers more, dQ in one pass 5 more.
 */
#include "kernels/sm90/fused_sm90_bwd.h"

#include <climits>
#include <cstring>

#include "kernels/common/checks.h"
#include "kernels/device/bulk.cuh"
#include "kernels/device/elect.cuh"
#include "kernels/device/exp2.cuh"
#include "kernels/device/grid_dependency.cuh"
#include "kernels/device/ldmatrix.cuh"
#include "kernels/device/mbarrier.cuh"
#include "kernels/device/opaque.cuh"
#include "kernels/device/pack.cuh"
#include "kernels/device/pipeline_state.cuh"
#include "kernels/device/red_add.cuh"
#include "kernels/device/semaphore.cuh"
#include "kernels/device/setmaxnreg.cuh"
#include "kernels/device/shared_memory.cuh"
#include "kernels/device/stmatrix.cuh"
#include "kernels/device/tma.cuh"
#include "kernels/device/uniform.cuh"
#include "kernels/device/wgmma.cuh"
#include "kernels/sm90/fused_sm90.h"
#include "kernels/common/tensor_map.h"

namespace fused_sm90_bwd {

using namespace device;

namespace {

constexpr int64_t MAX_LEN = INT32_MAX - 65536; /* row numbers of whole tiles stay within an int */
constexpr int STAGES = 3; /* of Q and dO */
constexpr int ROW_PADDING = 128;               /* stats and dq_sum are padded to whole tiles of any size */

/* ---- tiles ---------------------------------------------------------------------------------------------------- */

/* head_dim, queries, and how many sixteens of head_dim of V and of K a key warpgroup holds in registers */
#define BWD_TILES(ROW)                                                                                                 \
    ROW(128, 64, 3, 0)                                                                                                 \
    ROW(128, 64, 0, 0)                                                                                                 \
    ROW(64, 128, 4, 3)                                                                                                 \
    ROW(64, 128, 4, 0)

#define TILE_NAME(DIM, Q, V_HELD, K_HELD) BwdD##DIM##Q##Q##V##V_HELD##K##K_HELD
#define TILE_STRUCT(DIM, Q, V_HELD, K_HELD)                                                                            \
    struct TILE_NAME(DIM, Q, V_HELD, K_HELD) {                                                                         \
        static constexpr int HEAD_DIM = DIM, Q_TILE = Q, V_STEPS = V_HELD, K_STEPS = K_HELD;                           \
    };
BWD_TILES(TILE_STRUCT)

template <typename Tile> struct Size {
    static constexpr int HALVES = 2, HALF = KV_TILE / HALVES; /* a warpgroup's keys */
    static constexpr int THREADS = WARPGROUP * (1 + HALVES), KEY_WARPS = HALVES * 4, DQ_WARPS = 4;
    static constexpr int PANELS = Tile::HEAD_DIM / PANEL_COLUMNS, Q_PANELS = Tile::Q_TILE / PANEL_COLUMNS;
    static constexpr int KV_PANEL_BYTES = KV_TILE * ROW_BYTES, Q_PANEL_BYTES = Tile::Q_TILE * ROW_BYTES;
    static constexpr int KV_BYTES = PANELS * KV_PANEL_BYTES, Q_BYTES = PANELS * Q_PANEL_BYTES;
    static constexpr int DS_BYTES = Q_PANELS * KV_PANEL_BYTES;
    static constexpr int STATS_BYTES = 2 * Tile::Q_TILE * int(sizeof(float));
    static constexpr int STEP_BYTES = 2 * Q_BYTES + STATS_BYTES;
    static constexpr int SCORES = Tile::Q_TILE / 2, GRADIENTS = Tile::HEAD_DIM / 2; /* registers of a thread */
    static constexpr int KEYS_REGISTERS = 216, DQ_REGISTERS = 72;
    static constexpr int PASSES = 2; /* of 64 x 64 in dQ */
    static constexpr int PASS_FLOATS = SUM_FLOATS / PASSES;
    /* The copy engine adds passes of dQ, and for d64 registers add the last one: there both ways together are faster than
     * either. Buffers of a pass on its way out: what there is room for. */
    static constexpr bool ADDS_FROM_REGISTERS = Tile::HEAD_DIM == 64;
    static constexpr int DQ_BUFFERS = Tile::HEAD_DIM == 64 ? 1 : 2;
    static constexpr int TURN_TILES = 128 / Tile::Q_TILE; /* share a turn: its end and its look cost a fence */
    /* A step of d128 seems to wait for dQ: what of dS needs no P is computed while dV still is, and dS told of before S is
     * started. At d64 dV is awaited and S started first. Either way at the other head_dim costs 2 to 3 %. */
    static constexpr bool DS_FIRST = Tile::HEAD_DIM == 128;
    static_assert(Tile::HEAD_DIM * Tile::Q_TILE == SUM_FLOATS, "a tile of dQ is two passes");
    static_assert(2 * KEYS_REGISTERS + DQ_REGISTERS <= 504, "168 registers a thread at launch");
};

/* One tile of keys of one kv head. Blocks go section by section of kv heads and in a section tile by tile, so that of
 * causal work the longest comes first and blocks that run at the same time read the same queries. */
struct Work {
    int batch, kv_head, kv_tile;
    int first_tile[2]; /* of queries that see a warpgroup's keys; q_tiles when none does */
    int steps;         /* all that see the first warpgroup's keys, of the whole group of heads */
};

template <typename Tile> struct alignas(1024) Smem {
    using S = Size<Tile>;
    unsigned char k[S::KV_BYTES], v[S::KV_BYTES]; /* at the end dK and dV on their way out */
    unsigned char q[STAGES][S::Q_BYTES], dout[STAGES][S::Q_BYTES];
    unsigned char ds[2][S::DS_BYTES]; /* panels of [keys][64 queries] */
    float dq[S::DQ_BUFFERS][S::DQ_WARPS][SLAB_FLOATS]; /* on its way to the sums */
    float stats[STAGES][2 * Tile::Q_TILE];                /* lse2, then -D */
    uint64_t k_full, v_full, full[STAGES], empty[STAGES], ds_full[2], ds_empty[2];
    Work work; /* for the key warpgroups, which have no registers to spare; the query warpgroup takes a copy */
};

/* ---- where a block works --------------------------------------------------------------------------------------- */

template <typename Tile> __device__ __forceinline__ Work block_work(const Arguments &arg)
{
    const int section_blocks = arg.section_heads * arg.kv_tiles;
    const int section = blockIdx.x / section_blocks, rest = blockIdx.x - section * section_blocks;
    const int first_head = section * arg.section_heads;
    const int heads = min(arg.section_heads, arg.kv_heads_in_all - first_head), kv_tile = rest / heads;
    const int head = first_head + rest - kv_tile * heads, batch = head / arg.kv_heads;
    Work work = {batch, head - batch * arg.kv_heads, kv_tile, {0, 0}, 0};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int first_key = kv_tile * KV_TILE + half * Size<Tile>::HALF;
        const int first_query = arg.causal && first_key > arg.shift ? first_key - arg.shift : 0;
        work.first_tile[half] =
            first_key < arg.kv_len && first_query < arg.q_len ? first_query / Tile::Q_TILE : arg.q_tiles;
    }
    work.steps = (arg.q_tiles - work.first_tile[0]) * arg.group;
    return work;
}

/* A step of a block: a tile of queries of a query head of the group, the last tile first. */
struct Cursor {
    int head, tile; /* head of the group */

    __device__ __forceinline__ void advance(const Arguments &arg, int first_tile)
    {
        if (--tile < first_tile) {
            ++head;
            tile = arg.q_tiles - 1;
        }
    }
};

/* The step's tile, counted over all heads. */
__device__ __forceinline__ int tile_index(const Arguments &arg, const Work &work, const Cursor &at)
{
    return (work.batch * arg.q_heads + work.kv_head * arg.group + at.head) * arg.q_tiles + at.tile;
}

/* ---- the query warpgroup: copies, and dQ ------------------------------------------------------------------------ */

template <typename Tile>
__device__ __forceinline__ void load_keys(const unsigned char *to, const CUtensorMap *map, const uint64_t *full,
                                          const Work &work)
{
    using S = Size<Tile>;
    mbarrier_arrive_expect(shared_address(full), S::KV_BYTES);
#pragma unroll
    for (int panel = 0; panel < S::PANELS; ++panel)
        tma_load(shared_address(to) + panel * S::KV_PANEL_BYTES, map, shared_address(full), L2_EVICT_FIRST,
                 panel * PANEL_COLUMNS, work.kv_tile * KV_TILE, work.kv_head, work.batch);
}

/* Q, dO and the statistics of a step. */
template <typename Tile>
__device__ __forceinline__ void load_step(Smem<Tile> &smem, const Arguments &arg, const Work &work, const Cursor &at,
                                          int slot)
{
    using S = Size<Tile>;
    const uint32_t full = shared_address(&smem.full[slot]);
    const int head = work.kv_head * arg.group + at.head, row = at.tile * Tile::Q_TILE;
    const int tile = tile_index(arg, work, at);

    mbarrier_arrive_expect(full, S::STEP_BYTES);
#pragma unroll
    for (int panel = 0; panel < S::PANELS; ++panel)
        tma_load(shared_address(smem.q[slot]) + panel * S::Q_PANEL_BYTES, &arg.q, full, L2_EVICT_LAST,
                 panel * PANEL_COLUMNS, row, head, work.batch);
    bulk_load(shared_address(smem.stats[slot]), arg.stats + int64_t(tile) * (2 * Tile::Q_TILE), S::STATS_BYTES, full);
#pragma unroll
    for (int panel = 0; panel < S::PANELS; ++panel)
        tma_load(shared_address(smem.dout[slot]) + panel * S::Q_PANEL_BYTES, &arg.dout, full, L2_EVICT_LAST,
                 panel * PANEL_COLUMNS, row, head, work.batch);
}

/* Starts 64 x 64 of dQ = dS K. */
template <typename T, typename Tile>
__device__ __forceinline__ void start_dq(float (&dq)[32], uint32_t ds, uint32_t k, int pass)
{
    using S = Size<Tile>;
    const int ds_panel = S::Q_PANELS == 2 ? pass : 0, k_panel = S::Q_PANELS == 2 ? 0 : pass;

    ds += ds_panel * (S::KV_PANEL_BYTES / 16);
    k += k_panel * (S::KV_PANEL_BYTES / 16);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < KV_TILE / 16; ++step)
        wgmma<T, 64>::template shared<WGMMA_MN_MAJOR, WGMMA_MN_MAJOR>(dq, ds + step * (16 * ROW_BYTES / 16),
                                                                      k + step * (16 * ROW_BYTES / 16), step > 0);
    wgmma_commit();
}

/* Puts a warp's slab of a finished pass into `stage`. */
__device__ __forceinline__ void stage_dq(const float (&dq)[32], uint32_t stage, int lane)
{
#pragma unroll
    for (int i = 0; i < SLAB_QUADS; ++i) {
        const float quad[4] = {dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]};
        store_shared_float4(stage + (i * QUAD_FLOATS + lane * 4) * sizeof(float), quad);
    }
}

/* The copy engine adds a warp's slab of `pass` to the sums of `tile`. */
template <typename Tile>
__device__ __forceinline__ void add_dq(Smem<Tile> &smem, const Arguments &arg, int tile, int pass, int warp)
{
    using S = Size<Tile>;
    async_proxy_fence();
    __syncwarp();
    if (elect_one()) {
        bulk_reduce_add(arg.dq_sum + int64_t(tile) * SUM_FLOATS + pass * S::PASS_FLOATS + warp * SLAB_FLOATS,
                        shared_address(smem.dq[pass % S::DQ_BUFFERS][warp]), SLAB_FLOATS * sizeof(float));
        tma_store_commit();
    }
}

/* The same from registers. */
template <typename Tile>
__device__ __forceinline__ void add_dq(const float (&dq)[32], const Arguments &arg, int tile, int pass, int warp, int lane)
{
    float *sums = arg.dq_sum + int64_t(tile) * SUM_FLOATS + pass * Size<Tile>::PASS_FLOATS + warp * SLAB_FLOATS;
#pragma unroll
    for (int i = 0; i < SLAB_QUADS; ++i) {
        const float quad[4] = {dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]};
        red_add_quad(sums + i * QUAD_FLOATS, lane, quad);
    }
}

/* A warp's turn at its slabs of the tiles from `first_tile` on, which share it; NULL for none. */
__device__ __forceinline__ int *turn_of(const Arguments &arg, int first_tile, int warp)
{
    return first_tile < 0 ? NULL : arg.turns + int64_t(first_tile) * TILE_TURNS + warp;
}

template <typename T, typename Tile, bool BY_TURNS>
__device__ __forceinline__ void query_warpgroup(Smem<Tile> &smem, const Arguments &arg)
{
    using S = Size<Tile>;
    /* The step three on is asked for before the pass before goes out where the slot is free by then: at d64 it is not, and by
     * turns nothing goes out before. */
    constexpr bool LOADS_FIRST = Tile::HEAD_DIM == 128 && !BY_TURNS;
    const Work work = smem.work; /* read again at every use it cost d128 2 to 7 % */
    const int warp = keep_uniform(threadIdx.x / LANES), lane = threadIdx.x % LANES;
    const int steps = work.steps;
    /* Operands of wgmma: K, and dS of the first buffer. */
    const uint32_t k = keep_uniform(wgmma_mn_major(shared_address(smem.k), S::KV_PANEL_BYTES));
    const uint32_t first_ds = keep_uniform(wgmma_mn_major(shared_address(smem.ds[0]), S::KV_PANEL_BYTES));
    constexpr uint32_t DS_STEP = S::DS_BYTES / 16;
    Cursor load = {0, arg.q_tiles - 1}, at = load;
    PipelineState<STAGES> filled;
    int loaded = 0, before = -1; /* the tile of the step before, of which something may still have to go out */
    int turn = -1;               /* by turns: the first of the tiles that share the turn of now, or of the step before */
    bool has_come = false;       /* that turn */
    /* All of the warp counts what one thread asks for: counts of its own would be in no uniform register. */
    const auto load_next = [&](int slot) {
        if (elect_one())
            load_step<Tile>(smem, arg, work, load, slot);
        load.advance(arg, work.first_tile[0]);
        ++loaded;
    };
    const auto refill = [&] { /* this step's slot, free about now */
        if (warp == 0 && loaded < steps) {
            mbarrier_wait(shared_address(&smem.empty[filled.stage]), filled.phase);
            load_next(filled.stage);
            filled.advance();
        }
    };

    if (warp == 0 && elect_one())
        load_keys<Tile>(smem.k, &arg.k, &smem.k_full, work);
    grid_wait_for_last(); /* statistics and zeros */
    if (warp == 0) {
        if (steps > 0)
            load_next(0);
        if (elect_one())
            load_keys<Tile>(smem.v, &arg.v, &smem.v_full, work);
        while (loaded < STAGES && loaded < steps)
            load_next(loaded);
    }
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const int buffer = step % 2, tile = tile_index(arg, work, at), turn_tile = tile - at.tile % S::TURN_TILES;
        mbarrier_wait(shared_address(&smem.ds_full[buffer]), step / 2 % 2);
#pragma unroll
        for (int pass = 0; pass < S::PASSES; ++pass) {
            float dq[32];
            start_dq<T, Tile>(dq, first_ds + buffer * DS_STEP, k, pass);
            if (LOADS_FIRST && pass == S::PASSES - 1)
                refill();
            /* The pass before goes out while this one is computed. By turns both go out after the last, when nobody waits
             * for this warpgroup: dS is read and the next data asked for. */
            if (!BY_TURNS && pass > 0)
                add_dq(smem, arg, tile, pass - 1, warp);
            else if (!BY_TURNS && before >= 0 && !S::ADDS_FROM_REGISTERS)
                add_dq(smem, arg, before, S::PASSES - 1, warp);
            if (BY_TURNS && pass == S::PASSES - 1 && turn_tile != turn) { /* by now all that was sent has arrived */
                __syncwarp();
                has_come = semaphore_release_and_test(turn_of(arg, turn, warp), turn_of(arg, turn_tile, warp),
                                                      work.kv_tile);
                turn = turn_tile;
            }
            if (elect_one()) {
                if (BY_TURNS && pass > 0) /* for what this pass will stage */
                    tma_store_wait_read<0>();
                else
                    tma_store_wait_read<S::DQ_BUFFERS - 1>();
            }
            if (!LOADS_FIRST && pass == S::PASSES - 1)
                refill();
            __syncwarp();
            wgmma_wait<0>();
            wgmma_hold(dq);
            if (pass == S::PASSES - 1 && lane == 0)
                mbarrier_arrive(shared_address(&smem.ds_empty[buffer]));
            if (BY_TURNS && pass == S::PASSES - 1) {
                if (!has_come)
                    semaphore_wait(turn_of(arg, turn, warp), work.kv_tile);
                has_come = true;
                add_dq(smem, arg, tile, pass - 1, warp);
            }
            if (S::ADDS_FROM_REGISTERS && pass == S::PASSES - 1)
                add_dq<Tile>(dq, arg, tile, pass, warp, lane);
            else
                stage_dq(dq, shared_address(smem.dq[pass % S::DQ_BUFFERS][warp]), lane);
        }
        if (BY_TURNS && !S::ADDS_FROM_REGISTERS)
            add_dq(smem, arg, tile, S::PASSES - 1, warp);
        before = tile;
        at.advance(arg, work.first_tile[0]);
    }
    if (BY_TURNS && turn >= 0) {
        __syncwarp();
        semaphore_release_and_test(turn_of(arg, turn, warp), NULL, 0);
    } else if (before >= 0 && !S::ADDS_FROM_REGISTERS)
        add_dq(smem, arg, before, S::PASSES - 1, warp);
    if (elect_one())
        tma_store_wait_read<0>(); /* shared memory must outlive the additions */
}

/* ---- a key warpgroup: scores, dK and dV -------------------------------------------------------------------------- */

/* The first sixteens of head_dim of a warp's rows of K or V, as an operand in registers. */
__host__ __device__ constexpr int held_registers(int steps) { return steps > 0 ? 4 * steps : 1; }

template <typename Tile, int STEPS>
__device__ __forceinline__ void hold(uint32_t (&held)[held_registers(STEPS)], const unsigned char *keys, int warp_row,
                                     int lane)
{
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
        uint32_t chunk[4];
        ldmatrix_x4(chunk, shared_address(keys) + i / 4 * Size<Tile>::KV_PANEL_BYTES + warp_row * ROW_BYTES +
                               swizzle_128b(lane % 16, i % 4 * 2 + lane / 16));
#pragma unroll
        for (int j = 0; j < 4; ++j)
            held[4 * i + j] = chunk[j];
    }
}

/* Starts C = A B^T: A this warpgroup's keys of K or V, the first STEPS sixteens from registers; B the queries. */
template <typename T, typename Tile, int STEPS>
__device__ __forceinline__ void start_scores(float (&c)[Size<Tile>::SCORES],
                                             const uint32_t (&held)[held_registers(STEPS)], uint32_t keys,
                                             uint32_t queries)
{
    using S = Size<Tile>;
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < Tile::HEAD_DIM / 16; ++step) {
        const int panel = step / 4, within = step % 4 * 32;
        const uint32_t b = queries + (panel * S::Q_PANEL_BYTES + within) / 16;
        if (step < STEPS)
            wgmma<T, Tile::Q_TILE>::template registers<WGMMA_K_MAJOR>(c, &held[step < STEPS ? 4 * step : 0], b, step > 0);
        else
            wgmma<T, Tile::Q_TILE>::template shared<WGMMA_K_MAJOR, WGMMA_K_MAJOR>(
                c, keys + (panel * S::KV_PANEL_BYTES + within) / 16, b, step > 0);
    }
    wgmma_commit();
}

/* Starts C += A B: A is P^T or dS^T in registers, B the queries' dO or Q. */
template <typename T, typename Tile>
__device__ __forceinline__ void start_gradient(float (&c)[Size<Tile>::GRADIENTS], uint32_t (&a)[Size<Tile>::SCORES / 2],
                                               uint32_t queries)
{
    wgmma_hold(c);
    wgmma_hold(a);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < Tile::Q_TILE / 16; ++step)
        wgmma<T, Tile::HEAD_DIM>::template registers<WGMMA_MN_MAJOR>(c, &a[4 * step],
                                                                     queries + step * (16 * ROW_BYTES / 16), true);
    wgmma_commit();
}

/* A lane's statistics of its first columns, loaded before the products that they meet are there. */
constexpr int EARLY = 2;
struct EarlyStats {
    float2 at[EARLY];
};

__device__ __forceinline__ EarlyStats load_early(uint32_t stats)
{
    EarlyStats early;
#pragma unroll
    for (int n = 0; n < EARLY; ++n)
        early.at[n] = load_shared_float2(stats + n * 8 * sizeof(float));
    return early;
}

/* P = exp2(scale_log2 S - lse2) in place (Dao et al. 2022, algorithm 4, line 13). Masked, columns left of first_seen,
 * relative to this thread's first column, are 0: one number for each of its two keys. */
template <bool MASKED, int SCORES>
__device__ __forceinline__ void probabilities(float (&s)[SCORES], uint32_t lse2, const EarlyStats &early,
                                              float scale_log2, const int (&first_seen)[2])
{
#pragma unroll
    for (int n = 0; n < SCORES / 4; ++n) {
        const float2 lse = n < EARLY ? early.at[n] : load_shared_float2(lse2 + n * 8 * sizeof(float));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float x = fmaf(s[4 * n + i], scale_log2, i % 2 ? -lse.y : -lse.x);
            s[4 * n + i] = exp2_approx(x);
            if (MASKED && 8 * n + i % 2 < first_seen[i / 2])
                s[4 * n + i] = 0.0f;
        }
    }
}

template <typename T, int COUNT>
__device__ __forceinline__ void round_pairs(uint32_t (&rounded)[COUNT], const float (&c)[2 * COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
        rounded[i] = pack2<T>(c[2 * i], c[2 * i + 1]);
}

/* dP - D of columns 8 n to 8 n + 7, also in place of dP. */
template <int SCORES>
__device__ __forceinline__ void subtract_delta(float (&difference)[SCORES], const float (&dp)[SCORES], int n,
                                               uint32_t neg_delta, const EarlyStats &early)
{
    const float2 delta = n < EARLY ? early.at[n] : load_shared_float2(neg_delta + n * 8 * sizeof(float));
#pragma unroll
    for (int i = 0; i < 4; ++i)
        difference[4 * n + i] = dp[4 * n + i] + (i % 2 ? delta.y : delta.x);
}

/* dS = P * (dP - D) of these columns, in place of P, in 16 bits. */
template <typename T, int SCORES>
__device__ __forceinline__ void score_gradients(uint32_t (&p)[SCORES / 2], int n, const float (&difference)[SCORES])
{
#pragma unroll
    for (int i = 2 * n; i < 2 * n + 2; ++i) {
        const float2 pair = unpack2<T>(p[i]);
        p[i] = pack2<T>(pair.x * difference[2 * i], pair.y * difference[2 * i + 1]);
    }
}

/* A warp's rows of a gradient, by way of the panels at `rows` (its 16 rows of each), to the map. */
template <typename T, typename Tile>
__device__ __forceinline__ void store_gradient(const float (&c)[Size<Tile>::GRADIENTS], float scale, uint32_t rows,
                                               const CUtensorMap *map, int row, const Work &work, int lane)
{
    using S = Size<Tile>;
#pragma unroll
    for (int i = 0; i < S::GRADIENTS / 8; ++i) {
        uint32_t packed[4];
#pragma unroll
        for (int j = 0; j < 4; ++j)
            packed[j] = pack2<T>(c[8 * i + 2 * j] * scale, c[8 * i + 2 * j + 1] * scale);
        stmatrix_x4(rows + i / 4 * S::KV_PANEL_BYTES + swizzle_128b(lane % 16, i % 4 * 2 + lane / 16), packed);
    }
    async_proxy_fence();
    __syncwarp();
    if (lane == 0) {
#pragma unroll
        for (int panel = 0; panel < S::PANELS; ++panel)
            tma_store(map, rows + panel * S::KV_PANEL_BYTES, panel * PANEL_COLUMNS, row, work.kv_head, work.batch);
        tma_store_commit();
    }
}

template <typename T, typename Tile>
__device__ __forceinline__ void key_warpgroup(Smem<Tile> &smem, const Arguments &arg, int half)
{
    using S = Size<Tile>;
    const int warp = keep_uniform(threadIdx.x / LANES % 4), lane = threadIdx.x % LANES;
    const int half_row = half * S::HALF, warp_row = half_row + warp * 16;
    const Work &work = smem.work;
    const int first_key = work.kv_tile * KV_TILE + half_row, steps = keep_uniform(work.steps);
    const int first_tile = keep_uniform(work.first_tile[0]);
    const int first_seen_tile = keep_uniform(work.first_tile[half]);
    /* Operands of wgmma: this warpgroup's keys; Q and dO of slot 0, by rows and by columns, and how far the next slot is. */
    const uint32_t k = keep_uniform(wgmma_k_major(shared_address(smem.k) + half_row * ROW_BYTES));
    const uint32_t v = keep_uniform(wgmma_k_major(shared_address(smem.v) + half_row * ROW_BYTES));
    const uint32_t first_q = keep_uniform(wgmma_k_major(shared_address(smem.q[0])));
    const uint32_t first_dout = keep_uniform(wgmma_k_major(shared_address(smem.dout[0])));
    const uint32_t first_q_turned = keep_uniform(wgmma_mn_major(shared_address(smem.q[0]), S::Q_PANEL_BYTES));
    const uint32_t first_dout_turned = keep_uniform(wgmma_mn_major(shared_address(smem.dout[0]), S::Q_PANEL_BYTES));
    constexpr uint32_t SLOT_STEP = S::Q_BYTES / 16;
    PipelineState<STAGES> ring;
    int step = 0, tile = arg.q_tiles - 1;
    float dk[S::GRADIENTS], dv[S::GRADIENTS], s[S::SCORES]; /* S, P, dP */
    uint32_t weights[S::SCORES / 2];                        /* P, dS in 16 bits */
    uint32_t v_held[held_registers(Tile::V_STEPS)], k_held[held_registers(Tile::K_STEPS)];

#pragma unroll
    for (int i = 0; i < S::GRADIENTS; ++i)
        dk[i] = dv[i] = 0.0f;

    const auto lane_stats = [&](int slot, int row) {
        return shared_address(&smem.stats[slot][row * Tile::Q_TILE]) + lane % 4 * 2 * sizeof(float);
    };
    /* dS of a step to shared memory; before that, until dQ of the step before the last is computed. */
    const auto await_ds = [&](int of_step) {
        mbarrier_wait(shared_address(&smem.ds_empty[of_step % 2]), of_step / 2 % 2 ^ 1);
        return shared_address(smem.ds[of_step % 2]) + warp_row * ROW_BYTES;
    };
    const auto ds_is_there = [&](int of_step) {
        async_proxy_fence();
        __syncwarp();
        if (lane == 0)
            mbarrier_arrive(shared_address(&smem.ds_full[of_step % 2]));
    };
    const auto store_ds = [&](uint32_t to) {
        const uint32_t l = forget(lane);
        const uint32_t row = swizzle_128b(l % 16, l / 16); /* again at every step: addresses would hold registers */
#pragma unroll
        for (int i = 0; i < S::SCORES / 8; ++i) {
            const uint32_t chunk[4] = {weights[4 * i], weights[4 * i + 1], weights[4 * i + 2], weights[4 * i + 3]};
            stmatrix_x4(to + i / 4 * S::KV_PANEL_BYTES + (row ^ i % 4 * 32), chunk);
        }
    };
    /* All of it for a step without anything to see. */
    const auto give_zeros = [&](int of_step) {
        const uint32_t ds = await_ds(of_step) + lane * 16;
        const float zeros[4] = {};
#pragma unroll
        for (int i = 0; i < S::SCORES / 8; ++i)
            store_shared_float4(ds + i / 4 * S::KV_PANEL_BYTES + i % 4 * (16 * ROW_BYTES / 4), zeros);
        ds_is_there(of_step);
    };
    const auto release = [&](int slot) {
        __syncwarp(); /* all lanes have read the statistics; since then each came through the proxy fence of ds_is_there */
        if (lane == 0)
            mbarrier_arrive(shared_address(&smem.empty[slot]));
    };
    const auto advance = [&] {
        ++step;
        ring.advance();
        if (--tile < first_tile)
            tile = arg.q_tiles - 1;
    };
    /* From `step` on to the next with something to see, and waits for its data. The steps in between, at most one a head
     * where there are others, are for skip. */
    const auto seek = [&] {
        while (step < steps && tile < first_seen_tile)
            advance();
        if (step < steps)
            mbarrier_wait(shared_address(&smem.full[ring.stage]), ring.phase);
    };
    /* Steps without anything to see. */
    const auto skip = [&](int from, int to) {
        for (; from < to; ++from) {
            mbarrier_wait(shared_address(&smem.full[from % STAGES]), from / STAGES % 2);
            give_zeros(from);
            release(from % STAGES);
        }
    };
    /* Scores to probabilities. Only tiles at the diagonal and at the end of the keys need the mask. */
    const auto exponentiate = [&](const EarlyStats &early) {
        /* The tile's first query that sees this warpgroup's first key, counted from the tile's first. */
        const int diagonal = first_key - arg.shift - tile * Tile::Q_TILE;
        int first_seen[2] = {0, 0};

        if ((arg.causal && diagonal + S::HALF - 1 > 0) || first_key + S::HALF > arg.kv_len) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int row = warp * 16 + lane / 4 + 8 * i;
                first_seen[i] = arg.causal ? diagonal + row - lane % 4 * 2 : 0;
                if (first_key + row >= arg.kv_len)
                    first_seen[i] = INT_MAX;
            }
            probabilities<true>(s, lane_stats(ring.stage, 0), early, arg.scale_log2, first_seen);
        } else {
            probabilities<false>(s, lane_stats(ring.stage, 0), early, arg.scale_log2, first_seen);
        }
    };

    const auto finish_dv = [&] { /* then P is no operand any more */
        wgmma_wait<0>();
        wgmma_hold(dv);
        wgmma_hold(weights);
    };

    mbarrier_wait(shared_address(&smem.k_full), 0);
    hold<Tile, Tile::K_STEPS>(k_held, smem.k, warp_row, lane);
    seek();
    skip(0, step);
    if (step < steps) {
        start_scores<T, Tile, Tile::K_STEPS>(s, k_held, k, first_q + ring.stage * SLOT_STEP);
        const EarlyStats lse2 = load_early(lane_stats(ring.stage, 0));
        wgmma_wait<0>();
        wgmma_hold(s);
        exponentiate(lse2);
        round_pairs<T>(weights, s);
    }
    mbarrier_wait(shared_address(&smem.v_full), 0);
    hold<Tile, Tile::V_STEPS>(v_held, smem.v, warp_row, lane);
#pragma unroll 1
    while (step < steps) { /* P of this step is in `weights`, no product is under way */
        const int slot = ring.stage, now = step;
        start_scores<T, Tile, Tile::V_STEPS>(s, v_held, v, first_dout + slot * SLOT_STEP);
        start_gradient<T, Tile>(dv, weights, first_dout_turned + slot * SLOT_STEP);
        advance();
        seek();
        uint32_t to = S::DS_FIRST ? 0 : await_ds(now);
        const EarlyStats neg_delta = load_early(lane_stats(slot, 1));
        if (S::DS_FIRST)
            wgmma_wait<1>();
        else
            finish_dv();
        wgmma_hold(s);
        /* In place while dV is under way, when registers are few; apart the assembler arranges the step better. */
        float apart[S::SCORES];
        float(&difference)[S::SCORES] = S::DS_FIRST ? s : apart;
#pragma unroll
        for (int n = 0; n < S::SCORES / 4; ++n) {
            subtract_delta(difference, s, n, lane_stats(slot, 1), neg_delta);
            if (!S::DS_FIRST)
                score_gradients<T>(weights, n, difference);
        }
        if (S::DS_FIRST) {
            finish_dv();
#pragma unroll
            for (int n = 0; n < S::SCORES / 4; ++n)
                score_gradients<T>(weights, n, difference);
            to = await_ds(now);
        }
        store_ds(to);
        if (S::DS_FIRST)
            ds_is_there(now);
        /* After the last step: of what lies there. */
        start_scores<T, Tile, Tile::K_STEPS>(s, k_held, k, first_q + ring.stage * SLOT_STEP);
        if (!S::DS_FIRST)
            ds_is_there(now);
        start_gradient<T, Tile>(dk, weights, first_q_turned + slot * SLOT_STEP);
        skip(now + 1, step);
        const EarlyStats lse2 = load_early(lane_stats(ring.stage, 0));
        wgmma_wait<1>();
        wgmma_hold(s);
        exponentiate(lse2);
        wgmma_wait<0>();
        wgmma_hold(dk);
        wgmma_hold(weights);
        release(slot);
        round_pairs<T>(weights, s);
    }

    store_gradient<T, Tile>(dv, 1.0f, shared_address(smem.v) + warp_row * ROW_BYTES, &arg.dv,
                            first_key + warp * 16, work, lane);
    if (steps > 0) /* dQ of the last step has read K */
        mbarrier_wait(shared_address(&smem.ds_empty[(steps - 1) % 2]), (steps - 1) / 2 % 2);
    store_gradient<T, Tile>(dk, arg.scale, shared_address(smem.k) + warp_row * ROW_BYTES, &arg.dk,
                            first_key + warp * 16, work, lane);
    if (lane == 0)
        tma_store_wait_read<0>(); /* shared memory must outlive the stores */
}

/* ---- kernel ----------------------------------------------------------------------------------------------------- */

template <typename T, typename Tile, bool BY_TURNS>
__global__ void __launch_bounds__(Size<Tile>::THREADS, 1) backward(const __grid_constant__ Arguments arg)
{
    using S = Size<Tile>;
    extern __shared__ __align__(1024) unsigned char s_bytes[];
    Smem<Tile> &smem = *keep_shared_uniform<Smem<Tile>>(s_bytes);
    const int warpgroup = keep_uniform(threadIdx.x / WARPGROUP);

    grid_let_next_start();
    if (threadIdx.x == 0) {
        mbarrier_init(shared_address(&smem.k_full), 1);
        mbarrier_init(shared_address(&smem.v_full), 1);
        for (int i = 0; i < STAGES; ++i) {
            mbarrier_init(shared_address(&smem.full[i]), 1);
            mbarrier_init(shared_address(&smem.empty[i]), S::KEY_WARPS);
        }
        for (int i = 0; i < 2; ++i) {
            mbarrier_init(shared_address(&smem.ds_full[i]), S::KEY_WARPS);
            mbarrier_init(shared_address(&smem.ds_empty[i]), S::DQ_WARPS);
        }
        mbarrier_init_fence();
        smem.work = block_work<Tile>(arg);
    }
    __syncthreads();
    if (warpgroup == 0) {
        registers_decrease<S::DQ_REGISTERS>();
        query_warpgroup<T, Tile, BY_TURNS>(smem, arg);
    } else {
        registers_increase<S::KEYS_REGISTERS>();
        key_warpgroup<T, Tile>(smem, arg, warpgroup - 1);
    }
}

/* ---- variants and launch ---------------------------------------------------------------------------------------- */

struct Variant {
    struct attn_variant shown;
    int head_dim, q_tile;
    size_t smem_bytes;
    void (*kernels[2][2])(Arguments); /* in any order, by turns; fp16, bf16 */
};

#define SHOWN(D, Q, V_HELD, K_HELD)                                                                                    \
    {                                                                                                                  \
        "bwd_d" #D "_k128q" #Q "_v" #V_HELD "k" #K_HELD,                                                               \
            "128 keys x " #Q " queries, two warpgroups of keys and one for dQ; " #V_HELD " and " #K_HELD               \
            " sixteens of head_dim of V and of K in registers"                                                         \
    }
#define DTYPES(TILE, BY_TURNS) {backward<__half, TILE, BY_TURNS>, backward<__nv_bfloat16, TILE, BY_TURNS>}
#define TABLE_ROW(DIM, Q, V_HELD, K_HELD)                                                                              \
    {SHOWN(DIM, Q, V_HELD, K_HELD), DIM, Q, sizeof(Smem<TILE_NAME(DIM, Q, V_HELD, K_HELD)>),                           \
     {DTYPES(TILE_NAME(DIM, Q, V_HELD, K_HELD), false), DTYPES(TILE_NAME(DIM, Q, V_HELD, K_HELD), true)}},
#define SHOWN_ROW(...) SHOWN(__VA_ARGS__),

const Variant table[] = {BWD_TILES(TABLE_ROW)};

/* The variant that the request forces, or else the first of its head_dim. NULL with the reason when there is none. */
const Variant *find_variant(const struct attn_request *request, struct attn_message *why)
{
    const size_t limit = request->device->smem_per_block_bytes;
    const int64_t head_dim = request->problem->head_dim;
    const Variant *known = NULL;

    for (const Variant &v : table) {
        if (v.head_dim != head_dim || (request->variant && strcmp(v.shown.name, request->variant) != 0))
            continue;
        known = &v;
        if (v.smem_bytes <= limit)
            return &v;
    }
    if (!known)
        attn_fail(why, ATTN_UNSUPPORTED, "the backward has no variant %s for head_dim %d", request->variant,
                  int(head_dim));
    else
        attn_fail(why, ATTN_UNSUPPORTED, "%s needs %zu bytes of shared memory, a block has at most %zu",
                  known->shown.name, known->smem_bytes, limit);
    return NULL;
}

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

/* The workspace: statistics, sums of dQ, turns, each from a multiple of 256 bytes on. */
struct Workspace {
    int64_t stats_bytes, sum_bytes, turn_bytes;
};

Workspace workspace_of(const struct attn_request *request)
{
    const struct attn_problem *p = request->problem;
    const int64_t rows = p->batch * p->q_heads * round_up(p->q_len, ROW_PADDING);
    const int64_t turns = request->deterministic ? rows * p->head_dim / SUM_FLOATS * TILE_TURNS : 0;
    return {2 * rows * int64_t(sizeof(float)), rows * p->head_dim * int64_t(sizeof(float)),
            round_up(turns * int64_t(sizeof(int)), 256)};
}

/* Heads of K whose blocks run side by side, so that where lengths differ the short ones fill the gaps and Q, dO and the
 * sums of dQ are still in the L2 when the next block of keys comes. From 4 to 16 of Q were within 1 % of each other by
 * default from 4K on; causal work at 1K wants 16. By turns fewer blocks of a head at a time wait less for each other. */
int section_heads_of(const Arguments &arg)
{
    const int q_heads = arg.causal ? (arg.turns ? 32 : 16) : 8, heads = q_heads / arg.group;
    return heads < 1 ? 1 : heads > arg.kv_heads_in_all ? arg.kv_heads_in_all : heads;
}

enum attn_status make_arguments(const struct attn_request *request, const struct attn_tensors *t, const Variant *v,
                                void *workspace, Arguments *arg, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const struct {
        CUtensorMap *map;
        const char *name;
        const struct attn_tensor *tensor;
        bool is_kv;
        int box_rows;
    } maps[] = {{&arg->q, "q", &t->q, false, v->q_tile},       {&arg->k, "k", &t->k, true, KV_TILE},
                {&arg->v, "v", &t->v, true, KV_TILE},          {&arg->dout, "dout", &t->dout, false, v->q_tile},
                {&arg->dk, "dk", &t->dk, true, 16 /* a warp's */}, {&arg->dv, "dv", &t->dv, true, 16}};
    for (const auto &m : maps) {
        const enum attn_status status =
            tensor_map_encode(m.map, m.name, m.tensor, p, m.is_kv ? p->kv_heads : p->q_heads,
                              m.is_kv ? p->kv_len : p->q_len, m.box_rows, why);
        if (status != ATTN_OK)
            return status;
    }
    const Workspace space = workspace_of(request);
    char *bytes = static_cast<char *>(workspace);
    arg->o_rows = t->o, arg->dout_rows = t->dout, arg->dq_rows = t->dq;
    arg->lse = t->lse;
    arg->stats = reinterpret_cast<float *>(bytes);
    arg->dq_sum = reinterpret_cast<float *>(bytes + space.stats_bytes);
    arg->turns = request->deterministic ? reinterpret_cast<int *>(bytes + space.stats_bytes + space.sum_bytes) : NULL;
    arg->shift = int(p->kv_len - p->q_len);
    arg->q_len = int(p->q_len);
    arg->kv_len = int(p->kv_len);
    arg->q_heads = int(p->q_heads);
    arg->kv_heads = int(p->kv_heads);
    arg->group = int(p->q_heads / p->kv_heads);
    arg->q_tile = v->q_tile;
    arg->q_tiles = int((p->q_len + v->q_tile - 1) / v->q_tile);
    arg->kv_tiles = int((p->kv_len + KV_TILE - 1) / KV_TILE);
    arg->kv_heads_in_all = int(p->batch * p->kv_heads);
    arg->scale = p->scale;
    arg->scale_log2 = p->scale * LOG2_E;
    arg->causal = p->causal;
    arg->section_heads = section_heads_of(*arg); /* from the fields above */
    return ATTN_OK;
}

} // namespace

} // namespace fused_sm90_bwd

using namespace fused_sm90_bwd;

extern "C" {

const struct attn_variant fused_sm90_bwd_variants[] = {BWD_TILES(SHOWN_ROW){NULL, NULL}};

enum attn_status fused_sm90_bwd_accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const Variant *v = find_variant(request, why);

    if (!v)
        return ATTN_UNSUPPORTED;
    if (p->q_len > MAX_LEN || p->kv_len > MAX_LEN)
        return attn_fail(why, ATTN_UNSUPPORTED, "the backward takes lengths up to %lld", (long long)MAX_LEN);
    /* A block of keys, and a step of it, are numbered in 32 bits. */
    const enum attn_status status =
        attn_check_grid((p->kv_len + KV_TILE - 1) / KV_TILE, p->kv_heads, p->batch, why);
    if (status != ATTN_OK)
        return status;
    return attn_check_grid((p->q_len + v->q_tile - 1) / v->q_tile, p->q_heads, p->batch, why);
}

size_t fused_sm90_bwd_workspace_bytes(const struct attn_request *request)
{
    const Workspace space = workspace_of(request);
    return size_t(space.stats_bytes + space.sum_bytes + space.turn_bytes);
}

const char *fused_sm90_bwd_variant(const struct attn_request *request)
{
    struct attn_message why;
    const Variant *v = find_variant(request, &why);

    return v ? v->shown.name : NULL;
}

enum attn_status fused_sm90_bwd_launch(const struct attn_request *request, const struct attn_tensors *tensors,
                                       const struct attn_run *run, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const Variant *v = find_variant(request, why);
    Arguments arg = {};

    if (!v)
        return ATTN_UNSUPPORTED;
    enum attn_status status = make_arguments(request, tensors, v, run->workspace, &arg, why);
    if (status == ATTN_OK)
        status = launch_preprocess(p, arg, run, why);
    if (status == ATTN_OK)
        status = launch_kernel(v->kernels[request->deterministic][p->dtype == ATTN_BF16], "main",
                               int64_t(arg.kv_tiles) * arg.kv_heads_in_all, WARPGROUP * 3, v->smem_bytes, true, arg, run,
                               why);
    if (status == ATTN_OK)
        status = launch_convert(p, arg, run, why);
    return status;
}

} /* extern "C" */
