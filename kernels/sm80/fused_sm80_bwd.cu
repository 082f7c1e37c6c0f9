/* fused_sm80, backward: FlashAttention-2's backward (Dao 2023, algorithm 2) for sm_80 and newer, with mma.sync,
 * ldmatrix and cp.async. Three kernels:
 *   preprocess     lse2 = LSE * log2 e and -D = -rowsum(dO * O) of every query; zeros in dq_sum, the fp32 sums of dQ
 *   backward_main  a block has KV keys of a kv head and goes through the tiles of Q queries of all query heads of its
 *                  group: recomputes P, keeps dK and dV in registers, adds its part of dQ to dq_sum
 *   convert_dq     dQ = scale * dq_sum, rounded
 * With request.deterministic backward_main leaves out dQ and backward_dq (fused_sm80_bwd_preprocess_dq.cu) replaces
 * convert_dq.
 *
 * A step, with keys as rows: S^T = K Q^T, P^T = exp2(scale_log2 S^T - lse2), dP^T - D = V dO^T - D, dS^T = P^T *
 * (dP^T - D), dV += P^T dO, dK += dS^T Q, dQ += dS K. A warp has 32 keys and multiplies 32 x 32 of S and of dP at a
 * time: P^T and dS^T leave the accumulators as A operands of dV and dK; only dS goes to shared memory, for dQ. At
 * head_dim 128 registers hold dK and dV of 32 keys x 64 columns: two warps have the same 32 keys, each has half of
 * the queries in S and half of the columns in dK and dV, and they exchange P and dS.
 *
 *   shared memory, d128_kv128q64 (KB):  K 32 | V 32 | Q 2 x 16 | dO 2 x 16 | dS 2 x 16 | P 16 | lse2, -D 2 x 0.5
 *                  d64_kv128q64:        K 16 | V 16 | Q 2 x 8  | dO 2 x 8  | dS 2 x 16 | -    | lse2, -D 2 x 0.5
 *   step i   all warps:   wait for stage i, barrier, start loading stage i + 1
 *            own queries: S, dP, P, dS (to shared memory), dV, dK
 *            all warps:   dQ of step i - 1 from the other buffer of dS, added to dq_sum
 *            pair (d128): barrier of two warps; dV, dK over the other warp's queries
 *   With one buffer of dS ("oneds") dQ of step i comes last, after a barrier of the block.
 *
 * What must not be reordered: dQ of the previous step comes before the barrier of the pair, where it hides the wait
 * for the other warp. Lane offsets stay apart from tile addresses (warp_gemm_sm80.cuh), so that the latter are
 * uniform.
 *
 * dq_sum lies in the order of the accumulators (memory.cuh), so that a warp adds to whole lines. Rows without a key
 * and rows that pad have lse2 = +inf, hence P = 0; keys that pad and keys right of the diagonal are masked in a
 * second copy of the step that only boundary tiles run; a warp whose queries see none of its keys skips it. dK and
 * dV are sums of one block in a fixed order. Measurements: docs/kernels/sm80.md. */
#include "kernels/sm80/fused_sm80_bwd.h"

#include <climits>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/barriers.cuh"
#include "kernels/device/dropout.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/tile_io_sm80.cuh"
#include "kernels/sm80/bwd_rows.cuh"

namespace sm80_bwd {

using namespace device;

namespace {

/* ---- Tiles ---------------------------------------------------------------------------------------------------- */

/* head_dim; KV keys and Q queries of a tile; WARPS_KV x WARPS_Q warps over the scores, each with WARP_KEYS keys: WARPS_Q
 * warps have the same keys and divide the columns of their dK and dV among them; dQ: DQ_ROWS x DQ_COLUMNS of a warp at a
 * time. BLOCKS: the blocks that registers are limited for. DEFER: dQ of a step is computed in the next one, which takes a
 * second buffer of dS. */
#define BWD_TILE(NAME, DIM, KEYS, QUERIES, W_KV, W_Q, KEYS_OF_WARP, ROWS_OF_DQ, COLUMNS_OF_DQ, BLOCKS, DEFER)          \
    struct NAME {                                                                                                      \
        static constexpr int HEAD_DIM = DIM, KV = KEYS, Q = QUERIES, WARPS_KV = W_KV, WARPS_Q = W_Q,                   \
                             WARP_KEYS = KEYS_OF_WARP, DQ_ROWS = ROWS_OF_DQ, DQ_COLUMNS = COLUMNS_OF_DQ,               \
                             BLOCKS_PER_SM = BLOCKS;                                                                   \
        static constexpr bool DEFER_DQ = DEFER;                                                                        \
    };
BWD_TILE(Sm80BwdD32, 32, 128, 64, 4, 1, 32, 16, 32, 2, true)
BWD_TILE(Sm80BwdD64, 64, 128, 64, 4, 1, 32, 32, 32, 2, true)
BWD_TILE(Sm80BwdD64OneDs, 64, 128, 64, 4, 1, 32, 32, 32, 2, false)
BWD_TILE(Sm80BwdD96, 96, 128, 64, 4, 2, 32, 16, 48, 1, true)
BWD_TILE(Sm80BwdD96Small, 96, 64, 32, 2, 2, 32, 16, 48, 1, true)
BWD_TILE(Sm80BwdD128, 128, 128, 64, 4, 2, 32, 32, 32, 1, true)
BWD_TILE(Sm80BwdD128OneDs, 128, 128, 64, 4, 2, 32, 32, 32, 1, false)
BWD_TILE(Sm80BwdD128Small, 128, 64, 32, 2, 2, 32, 32, 32, 1, true)
BWD_TILE(Sm80BwdD192, 192, 64, 64, 2, 4, 32, 32, 48, 1, true)
BWD_TILE(Sm80BwdD192Small, 192, 32, 32, 2, 2, 16, 16, 48, 2, true)
BWD_TILE(Sm80BwdD256, 256, 64, 64, 2, 4, 32, 32, 32, 1, true)
BWD_TILE(Sm80BwdD256Small, 256, 32, 32, 2, 2, 16, 16, 64, 2, true)

/* What follows from a tile. */
template <typename Tile> struct Traits {
    static constexpr int WARPS = Tile::WARPS_KV * Tile::WARPS_Q, THREADS = WARPS * LANES;
    static constexpr int PANELS = (Tile::HEAD_DIM + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
    static constexpr int KV_PANEL_BYTES = Tile::KV * ROW_BYTES, Q_PANEL_BYTES = Tile::Q * ROW_BYTES;
    static constexpr int KV_BYTES = PANELS * KV_PANEL_BYTES, Q_BYTES = PANELS * Q_PANEL_BYTES;
    static constexpr int KEYS16 = Tile::WARP_KEYS / 16;
    static constexpr int COLUMNS = Tile::HEAD_DIM / Tile::WARPS_Q; /* of a warp in dK and dV */
    static constexpr int WARP_Q = Tile::Q / Tile::WARPS_Q;         /* queries of a warp in the scores */
    static constexpr int CHUNK_Q = WARP_Q < 32 ? WARP_Q : 32;      /* of them at a time in registers */
    static constexpr bool EXCHANGE = Tile::WARPS_Q > 1;            /* of P and dS between the warps with the same keys */
    static constexpr int STAGES = Tile::HEAD_DIM == 256 && Tile::KV == 32 ? 1 : 2; /* of Q, dO, lse2 and -D */
    static constexpr int DS_BUFFERS = Tile::DEFER_DQ ? 2 : 1, P_BUFFERS = EXCHANGE ? 1 : 0;
    static constexpr int DQ_WARPS_D = Tile::HEAD_DIM / Tile::DQ_COLUMNS;
    static constexpr int DQ_WARPS_Q = WARPS / DQ_WARPS_D;
    static constexpr int DQ_PASSES = Tile::Q / (Tile::DQ_ROWS * DQ_WARPS_Q);
    static constexpr int DQ_QUADS = Tile::DQ_ROWS / 16 * (Tile::DQ_COLUMNS / 8); /* of a warp at a time */

    static_assert(Tile::KV == Tile::WARPS_KV * Tile::WARP_KEYS, "the warps have all keys");
    static_assert(COLUMNS % 16 == 0 && Tile::DQ_COLUMNS % 16 == 0 && WARP_Q % 16 == 0, "whole fragments");
    static_assert(Tile::Q <= PANEL_COLUMNS && ROW_STEP % Tile::Q == 0, "dS is one panel, padding is whole tiles");
    static_assert(DQ_PASSES * Tile::DQ_ROWS * DQ_WARPS_Q == Tile::Q, "dQ is divided among the warps");
};

template <typename Tile> struct Smem {
    using S = Traits<Tile>;
    alignas(1024) unsigned char k[S::KV_BYTES], v[S::KV_BYTES]; /* at the end dK and dV, from where they are stored */
    unsigned char q[S::STAGES][S::Q_BYTES], dout[S::STAGES][S::Q_BYTES];
    unsigned char ds[S::DS_BUFFERS + S::P_BUFFERS][S::KV_PANEL_BYTES]; /* [KV][Q]; the last one is P where exchanged */
    float stats[S::STAGES][2 * Tile::Q];                               /* lse2, then -D */
};

/* ---- Tile scheduler --------------------------------------------------------------------------------------- */

/* One tile of keys of one kv head. Blocks go section by section of kv heads, and within a section first over the
 * heads, then over the tiles of keys: in causal problems the longest tiles come first, and blocks that run at the
 * same time read the same queries. */
struct WorkTile {
    int64_t batch, kv_head;
    int32_t kv_tile;
};

__device__ __forceinline__ WorkTile work_tile_of_block(const Params &params)
{
    const int64_t section_blocks = static_cast<int64_t>(params.section_heads) * params.kv_tiles;
    const int64_t section = blockIdx.x / section_blocks, rest = blockIdx.x % section_blocks;
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
    const int64_t left = params.q_len - static_cast<int64_t>(at.tile) * Tile::Q;
    load_rows<Tile::Q, Tile::HEAD_DIM, THREADS>(shared_address(s.q[stage]), at.q, params.q.stride_row, left);
    load_rows<Tile::Q, Tile::HEAD_DIM, THREADS>(shared_address(s.dout[stage]), at.dout, params.dout.stride_row, left);
    if (threadIdx.x < Tile::Q / 2)
        cp_async_16(shared_address(s.stats[stage]) + threadIdx.x * 16,
                    params.stats + static_cast<int64_t>(at.index) * (2 * Tile::Q) + threadIdx.x * 4, true);
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

/* ---- One step: a tile of queries -------------------------------------------------------------------------------- */

template <typename Tile> using ScoreFragments = Fragments<Traits<Tile>::KEYS16, Traits<Tile>::CHUNK_Q / 16>;

/* dK or dV of a warp. */
template <typename Tile> using Gradient = Accumulator<Traits<Tile>::KEYS16, Traits<Tile>::COLUMNS / 8>;

/* What a warp reads and writes in a step. */
struct StepOperands {
    struct operand k, v;              /* A of the scores: this warp's keys */
    struct operand q, dout;           /* B of the scores: this warp's queries */
    struct operand q_rows, dout_rows; /* B of dK, dV: all queries; of this warp's columns, or of all with `column16` */
    uint32_t column16;                /* the first of this warp's columns, in 16s, where a panel is not one warp's */
    struct operand ds, p;             /* this warp's keys, all queries */
    uint32_t lse2, neg_delta;         /* this lane's first of this warp's queries */
};

template <typename Tile>
__device__ __forceinline__ StepOperands operands_of(const Smem<Tile> &s, int step, uint32_t warp_kv, uint32_t warp_q,
                                                    uint32_t rows_8, uint32_t rows_16)
{
    using S = Traits<Tile>;
    const int stage = S::STAGES == 2 ? step : 0;
    const uint32_t lane = threadIdx.x % LANES;
    const uint32_t keys = warp_kv * Tile::WARP_KEYS * ROW_BYTES, queries = warp_q * S::WARP_Q * ROW_BYTES;
    const bool own_panel = S::COLUMNS == PANEL_COLUMNS;
    const uint32_t panel = own_panel ? warp_q * S::Q_PANEL_BYTES : 0, panels = own_panel ? 0 : S::Q_PANEL_BYTES;
    StepOperands at;
    at.k = {rows_16, shared_address(s.k) + keys, S::KV_PANEL_BYTES};
    at.v = {rows_16, shared_address(s.v) + keys, S::KV_PANEL_BYTES};
    at.q = {rows_8, shared_address(s.q[stage]) + queries, S::Q_PANEL_BYTES};
    at.dout = {rows_8, shared_address(s.dout[stage]) + queries, S::Q_PANEL_BYTES};
    at.q_rows = {rows_16, shared_address(s.q[stage]) + panel, panels};
    at.dout_rows = {rows_16, shared_address(s.dout[stage]) + panel, panels};
    at.column16 = own_panel ? 0 : warp_q * (S::COLUMNS / 16);
    at.ds = {rows_16, shared_address(s.ds[Tile::DEFER_DQ ? step : 0]) + keys, 0};
    at.p = {rows_16, shared_address(s.ds[S::EXCHANGE ? S::DS_BUFFERS : 0]) + keys, 0};
    at.lse2 = shared_address(s.stats[stage]) + (warp_q * S::WARP_Q + lane % 4 * 2) * sizeof(float);
    at.neg_delta = at.lse2 + Tile::Q * sizeof(float);
    return at;
}

/* P = exp2(scale_log2 S - lse2) in place (Dao et al. 2022, algorithm 4, line 13). */
template <int M16, int N8>
__device__ __forceinline__ void probabilities(Accumulator<M16, N8> &s, float scale_log2, uint32_t lse2)
{
#pragma unroll
    for (int n = 0; n < N8; ++n) {
        const float2 lse = load_shared_float2(lse2 + n * 8 * sizeof(float));
#pragma unroll
        for (int m = 0; m < M16; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                s.at[m][n][i] = exp2_approx(fmaf(s.at[m][n][i], scale_log2, i % 2 ? -lse.y : -lse.x));
    }
}

/* Zeros where key - query, both counted from the tile's first, is over `diagonal`, or the key is not below keys. */
template <int M16, int N8>
__device__ __forceinline__ void mask_probabilities(Accumulator<M16, N8> &p, int diagonal, int keys)
{
    const int lane = threadIdx.x % LANES;
#pragma unroll
    for (int m = 0; m < M16; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int key = 16 * m + half * 8 + lane / 4;
            const int first_query = key < keys ? key - diagonal - lane % 4 * 2 : INT_MAX;
#pragma unroll
            for (int n = 0; n < N8; ++n)
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    if (8 * n + i < first_query)
                        p.at[m][n][2 * half + i] = 0.0f;
        }
}

/* An accumulator that starts from -D, so that the product dO V^T makes it dP - D. */
template <int M16, int N8>
__device__ __forceinline__ void start_from_delta(Accumulator<M16, N8> &dp, uint32_t neg_delta)
{
#pragma unroll
    for (int n = 0; n < N8; ++n) {
        const float2 delta = load_shared_float2(neg_delta + n * 8 * sizeof(float));
#pragma unroll
        for (int m = 0; m < M16; ++m) {
            dp.at[m][n][0] = dp.at[m][n][2] = delta.x;
            dp.at[m][n][1] = dp.at[m][n][3] = delta.y;
        }
    }
}

/* What a block of the family computes: keys of a sequence, and the tiles of queries that see any of them but for the
 * block mask. In shared memory, so that it takes no registers. */
struct BlockFacts {
    Sequence sequence;
    int kv_head, first_key, first_tile, end_tile;
};

/* What a warp of the family knows of a step. */
struct FamilyStep {
    const volatile BlockFacts *facts;
    int head;        /* query head */
    int key, query;  /* the first of this warp's */
    bool has_hidden; /* the block mask hides a part of the tile */

    __device__ __forceinline__ int shift() const { return facts->sequence.kv_len - facts->sequence.q_len; }
};

/* Zeros where a query does not see a key; `query` counts from the warp's first one. */
template <int M16, int N8>
__device__ __forceinline__ void mask_family(Accumulator<M16, N8> &p, const fused_sm80_family &family,
                                            const FamilyStep &step, int query)
{
    const int lane = threadIdx.x % LANES, first_query = step.query + query, column = first_query + lane % 4 * 2;
    const int shift = step.shift(), kv_len = step.facts->sequence.kv_len;
#pragma unroll
    for (int m = 0; m < M16; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int eight_keys = step.key + 16 * m + 8 * half, key = eight_keys + lane / 4;
            const int first = key < kv_len ? key - shift - family.window_right - column : INT_MAX;
            const int last = key - shift + family.window_left - column;
            uint32_t seen = ~0u; /* of these eight keys, by every eight queries */
            if (step.has_hidden) {
                const uint8_t *mask = mask_of_head(family, step.facts->sequence.number, step.head);
                const int row_block =
                    min((first_query + lane % N8 * 8) / family.mask_block, family.mask_row_blocks - 1);
                const int key_block = min(eight_keys / family.mask_block, family.mask_key_blocks - 1);
                seen = __ballot_sync(
                    0xffffffffu, mask[static_cast<int64_t>(row_block) * family.mask_key_blocks + key_block] != 0);
            }
#pragma unroll
            for (int n = 0; n < N8; ++n)
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    if (8 * n + i < first || 8 * n + i > last || !(seen >> n & 1u))
                        p.at[m][n][2 * half + i] = 0.0f;
        }
}

/* Makes S tanh(inner' S), inner' S = scale / softcap Q K^T, and multiplies dP - D by the derivative 1 - tanh^2. With
 * u = 1 / (1 + e^2x), tanh x = 1 - 2 u and the derivative is 4 u (1 - u). */
template <int M16, int N8>
__device__ __forceinline__ void cap_scores(Accumulator<M16, N8> &s, Accumulator<M16, N8> &dp, float inner)
{
#pragma unroll
    for (int m = 0; m < M16; ++m)
#pragma unroll
        for (int n = 0; n < N8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float u = __fdividef(1.0f, 1.0f + exp2_approx(s.at[m][n][i] * inner));
                dp.at[m][n][i] *= 4.0f * u * (1.0f - u);
                s.at[m][n][i] = 1.0f - 2.0f * u;
            }
}

/* Makes dO V^T the dP of dropout, M times it. Returns a bit for each element that is kept. */
template <int M16, int N8>
__device__ __forceinline__ uint32_t drop_dp(Accumulator<M16, N8> &dp, const fused_sm80_family &family,
                                            const FamilyStep &step, int query)
{
    static_assert(M16 * N8 * 4 <= 32, "a bit for each element");
    uint32_t bits = 0;
#pragma unroll
    for (int k = 0; k < N8 / 2; ++k)
#pragma unroll
        for (int m = 0; m < M16; ++m) {
            uint32_t kept[4];
            dropout_mask_transposed(kept, family.dropout_seed, family.dropout_threshold,
                                    step.facts->sequence.number, step.head, (step.query + query) / 16 + k,
                                    step.key / 16 + m);
#pragma unroll
            for (int i = 0; i < 8; ++i) { /* register i / 2 of the fragment, its half i % 2 */
                const int n = 2 * k + i / 4, at = i / 2 % 2 * 2 + i % 2;
                const bool is_kept = (kept[i / 2] >> i % 2 * 16 & 1u) != 0;
                dp.at[m][n][at] = is_kept ? dp.at[m][n][at] * family.keep_factor : 0.0f;
                bits |= is_kept ? 1u << ((m * N8 + n) * 4 + at) : 0u;
            }
        }
    return bits;
}

/* dP - D. */
template <int M16, int N8>
__device__ __forceinline__ void subtract_delta(Accumulator<M16, N8> &dp, uint32_t neg_delta)
{
#pragma unroll
    for (int n = 0; n < N8; ++n) {
        const float2 delta = load_shared_float2(neg_delta + n * 8 * sizeof(float));
#pragma unroll
        for (int m = 0; m < M16; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                dp.at[m][n][i] += i % 2 ? delta.y : delta.x;
    }
}

template <int M16, int N8> __device__ __forceinline__ void drop_p(Accumulator<M16, N8> &p, uint32_t kept)
{
#pragma unroll
    for (int m = 0; m < M16; ++m)
#pragma unroll
        for (int n = 0; n < N8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (!(kept >> ((m * N8 + n) * 4 + i) & 1u))
                    p.at[m][n][i] = 0.0f;
}

/* P and dS = P * (dP - D) of CHUNK_Q of this warp's queries, from `query` on. */
template <typename Tile, typename T, bool MASKED, typename Attributes>
__device__ __forceinline__ void score_chunk(ScoreFragments<Tile> &p_fragments, ScoreFragments<Tile> &ds_fragments,
                                            const StepOperands &at, int query, const Params &params, int diagonal, int keys,
                                            const FamilyStep &step)
{
    using S = Traits<Tile>;
    constexpr int N8 = S::CHUNK_Q / 8;
    Accumulator<S::KEYS16, N8> p, ds;
    struct operand q = at.q, dout = at.dout;
    q.first += query * ROW_BYTES;
    dout.first += query * ROW_BYTES;
    clear(p);
    gemm_by_columns<Tile::HEAD_DIM / 16, T>(p, at.k, q);
    if (Attributes::FAMILY && params.family.dropout_threshold != 0)
        clear(ds);
    else
        start_from_delta(ds, at.neg_delta + query * sizeof(float));
    gemm_by_columns<Tile::HEAD_DIM / 16, T>(ds, at.v, dout);
    [[maybe_unused]] uint32_t kept = ~0u;
    if constexpr (Attributes::FAMILY) {
        if (params.family.dropout_threshold != 0) {
            kept = drop_dp(ds, params.family, step, query);
            subtract_delta(ds, at.neg_delta + query * sizeof(float));
        }
        if (params.family.softcap_inner != 0.0f)
            cap_scores(p, ds, params.family.softcap_inner);
    }
    probabilities(p, params.scale_log2, at.lse2 + query * sizeof(float));
    if constexpr (Attributes::FAMILY && MASKED)
        mask_family(p, params.family, step, query);
    else if constexpr (MASKED)
        mask_probabilities(p, diagonal, keys);
    if (!Attributes::FAMILY)
        pack_fragments<T>(p_fragments, p);
#pragma unroll
    for (int m = 0; m < S::KEYS16; ++m)
#pragma unroll
        for (int n = 0; n < N8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                ds.at[m][n][i] *= p.at[m][n][i];
    pack_fragments<T>(ds_fragments, ds);
    if (Attributes::FAMILY) { /* dV takes P without what is dropped, dS all of it */
        if (kept != ~0u)
            drop_p(p, kept);
        pack_fragments<T>(p_fragments, p);
    }
}

/* dQ (without scale) of a finished step: dS K, added to the tile's part of dq_sum. */
template <typename Tile, typename T>
__device__ __forceinline__ void add_dq(float *dq_sum, int32_t index, uint32_t ds_first, uint32_t k_first, uint32_t warp)
{
    using S = Traits<Tile>;
    constexpr int N8 = Tile::DQ_COLUMNS / 8, M16 = Tile::DQ_ROWS / 16;
    constexpr bool IN_PANEL = PANEL_COLUMNS % Tile::DQ_COLUMNS == 0; /* the warp's columns lie in one panel */
    constexpr int OF_PANEL = IN_PANEL ? PANEL_COLUMNS / Tile::DQ_COLUMNS : 1;
    const uint32_t lane = threadIdx.x % LANES, warp_d = warp % S::DQ_WARPS_D, warp_q = warp / S::DQ_WARPS_D;
    const struct operand k = {columns_right(lane_rows_16(lane), IN_PANEL ? warp_d % OF_PANEL * Tile::DQ_COLUMNS : 0),
                              k_first + (IN_PANEL ? warp_d / OF_PANEL * S::KV_PANEL_BYTES : 0), S::KV_PANEL_BYTES};
#pragma unroll
    for (int pass = 0; pass < S::DQ_PASSES; ++pass) {
        Accumulator<M16, N8> dq;
        clear(dq);
        const struct operand ds = {
            columns_right(lane_rows_8(lane), (pass * S::DQ_WARPS_Q + warp_q) * Tile::DQ_ROWS), ds_first, 0};
        gemm_by_rows<Tile::KV / 16, T>(dq, ds, k, IN_PANEL ? 0 : warp_d * (Tile::DQ_COLUMNS / 16));
        float *quad = dq_sum + static_cast<int64_t>(index) * (Tile::Q * Tile::HEAD_DIM) +
                      (pass * S::WARPS + warp) * S::DQ_QUADS * QUAD_FLOATS;
#pragma unroll
        for (int m = 0; m < M16; ++m)
#pragma unroll
            for (int n = 0; n < N8; ++n)
                red_add_quad(quad + (m * N8 + n) * QUAD_FLOATS, lane, dq.at[m][n]);
    }
}

/* The products of one step over this warp's own queries: dV += P^T dO, dK += dS^T Q; P and dS to shared memory. */
template <typename Tile, typename T, bool MASKED, typename Attributes>
__device__ __forceinline__ void accumulate_own(Gradient<Tile> &dk, Gradient<Tile> &dv, const StepOperands &at,
                                               int first_query, const Params &params, int diagonal, int keys,
                                               const FamilyStep &step)
{
    using S = Traits<Tile>;
#if __CUDA_ARCH__ >= 900
#pragma unroll
#else /* without uniform offsets in ldmatrix the addresses of two chunks do not fit the registers */
#pragma unroll 1
#endif
    for (int query = 0; query < S::WARP_Q; query += S::CHUNK_Q) {
        ScoreFragments<Tile> p, ds;
        score_chunk<Tile, T, MASKED, Attributes>(p, ds, at, query, params, diagonal + query, keys, step);
        store_fragments(at.ds, (first_query + query) / 16, ds);
        if (S::EXCHANGE)
            store_fragments(at.p, (first_query + query) / 16, p);
        gemm_registers<T>(dv, p, at.dout_rows, (first_query + query) / 16, at.column16);
        gemm_registers<T>(dk, ds, at.q_rows, (first_query + query) / 16, at.column16);
    }
}

/* Instead of accumulate_own where this warp's queries see none of its keys. */
template <typename Tile> __device__ __forceinline__ void store_zeros(const StepOperands &at, int first_query)
{
    using S = Traits<Tile>;
    const ScoreFragments<Tile> zero = {};
#pragma unroll
    for (int query = 0; query < S::WARP_Q; query += S::CHUNK_Q) {
        store_fragments(at.ds, (first_query + query) / 16, zero);
        if (S::EXCHANGE)
            store_fragments(at.p, (first_query + query) / 16, zero);
    }
}

/* The same products over the queries of another warp with the same keys, from what it stored. */
template <typename Tile, typename T>
__device__ __forceinline__ void accumulate_other(Gradient<Tile> &dk, Gradient<Tile> &dv, const StepOperands &at,
                                                 int other_query)
{
    ScoreFragments<Tile> fragments;
    load_fragments(fragments, at.p, other_query / 16);
    gemm_registers<T>(dv, fragments, at.dout_rows, other_query / 16, at.column16);
    load_fragments(fragments, at.ds, other_query / 16);
    gemm_registers<T>(dk, fragments, at.q_rows, other_query / 16, at.column16);
}

/* ---- Dense attention --------------------------------------------------------------------------------------------- */

/* dK and dV of this warp's keys, by way of the shared memory of K and V. */
template <typename Tile, typename T>
__device__ __forceinline__ void store_gradients(Gradient<Tile> &dk, Gradient<Tile> &dv, const Smem<Tile> &s,
                                                const Params &params, const WorkTile &work, int64_t first_key,
                                                uint32_t warp_kv, uint32_t warp_q, int keys)
{
    const uint32_t panel = warp_q * Traits<Tile>::KV_PANEL_BYTES + warp_kv * Tile::WARP_KEYS * ROW_BYTES;
    const int64_t key = first_key + warp_kv * Tile::WARP_KEYS;
    const int column = warp_q * PANEL_COLUMNS;
    store_rows(dk, params.scale, shared_address(s.k) + panel,
               head_pointer<T>(params.dk, work.batch, work.kv_head) + key * params.dk.stride_row + column,
               params.dk.stride_row, keys);
    store_rows(dv, 1.0f, shared_address(s.v) + panel,
               head_pointer<T>(params.dv, work.batch, work.kv_head) + key * params.dv.stride_row + column,
               params.dv.stride_row, keys);
}

/* ---- The family -------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ void find_work(BlockFacts &facts, const Params &params, int key_tile, int query_tile)
{
    const fused_sm80_family &family = params.family;
    if (family.work == NULL) {
        const WorkTile work = work_tile_of_block(params);
        facts.sequence = {static_cast<int>(work.batch), params.q_len, params.kv_len, 0, 0};
        facts.kv_head = static_cast<int>(work.kv_head);
        facts.first_key = work.kv_tile * key_tile;
    } else {
        const fused_sm80_work work = family.work[blockIdx.x / params.kv_heads];
        facts.sequence.number = work.sequence;
        if (work.sequence < 0)
            return;
        facts.sequence = sequence_at(family, work.sequence, 0, 0);
        facts.kv_head = blockIdx.x % params.kv_heads;
        facts.first_key = work.tile * key_tile;
    }
    const TileRange range = row_tiles_of(family, facts.sequence, facts.first_key, key_tile, query_tile);
    facts.first_tile = range.first;
    facts.end_tile = range.end;
}

/* Where a block is in its loop: a tile of queries of a query head of the group, `group` after the last one. */
template <typename Tile> struct FamilyCursor {
    int head, tile;
    bool is_whole; /* the block mask hides nothing of it */
    VisibleTiles<Tile::Q, Tile::KV, true> visible;

    __device__ __forceinline__ static const uint8_t *mask_of(const Params &params, const BlockFacts &facts, int head)
    {
        return mask_of_head(params.family, facts.sequence.number, facts.kv_head * params.group + head);
    }

    /* To the first tile of `first_head` or of a head behind it. */
    __device__ __forceinline__ void start(const Params &params, const BlockFacts &facts, int first_head)
    {
        const TileRange range = {facts.first_tile, facts.end_tile};
        head = range.first < range.end ? first_head : params.group;
        for (; head < params.group; ++head) {
            const auto mask = [&] { return mask_of(params, facts, head); };
            tile = visible.start(params.family, mask, range, facts.first_key);
            if (tile < range.end)
                break;
        }
        is_whole = visible.is_whole(tile);
    }

    __device__ __forceinline__ void advance(const Params &params, const BlockFacts &facts)
    {
        const auto mask = [&] { return mask_of(params, facts, head); };
        tile = visible.after(params.family, mask, tile, facts.end_tile, facts.first_key);
        if (tile < facts.end_tile)
            is_whole = visible.is_whole(tile);
        else
            start(params, facts, head + 1);
    }
};

/* Number of a tile of queries, counted over the padded rows of all heads. */
template <typename Tile>
__device__ __forceinline__ int32_t family_index(const Params &params, const BlockFacts &facts, int head, int tile)
{
    return static_cast<int32_t>(
        padded_row(params, facts.sequence, facts.kv_head * params.group + head) / Tile::Q + tile);
}

template <typename Tile>
__device__ __forceinline__ void load_family_step(Smem<Tile> &s, const Params &params, const BlockFacts &facts, int head,
                                                 int tile, int stage)
{
    constexpr int THREADS = Traits<Tile>::THREADS;
    const Sequence &sequence = facts.sequence;
    const int q_head = facts.kv_head * params.group + head, left = sequence.q_len - tile * Tile::Q;
    const int64_t row = static_cast<int64_t>(tile) * Tile::Q;
    load_panels<Tile::Q, Tile::HEAD_DIM, THREADS>(
        shared_address(s.q[stage]),
        family_head(params, params.q, sequence, sequence.q_first, q_head) + row * params.q.stride_row, params.q.data,
        params.q.stride_row, left, params.family.head_dim);
    load_panels<Tile::Q, Tile::HEAD_DIM, THREADS>(
        shared_address(s.dout[stage]),
        family_head(params, params.dout, sequence, sequence.q_first, q_head) + row * params.dout.stride_row,
        params.dout.data, params.dout.stride_row, left, params.family.head_dim);
    if (threadIdx.x < Tile::Q / 2)
        cp_async_16(shared_address(s.stats[stage]) + threadIdx.x * 16,
                    params.stats +
                        static_cast<int64_t>(family_index<Tile>(params, facts, head, tile)) * (2 * Tile::Q) +
                        threadIdx.x * 4,
                    true);
}

template <typename Tile>
__device__ __forceinline__ void load_family_keys(uint32_t shared, const Params &params, const struct attn_tensor &tensor,
                                                 const BlockFacts &facts)
{
    load_panels<Tile::KV, Tile::HEAD_DIM, Traits<Tile>::THREADS>(
        shared,
        family_head(params, tensor, facts.sequence, facts.sequence.k_first, facts.kv_head) +
            facts.first_key * tensor.stride_row,
        tensor.data, tensor.stride_row, facts.sequence.kv_len - facts.first_key, params.family.head_dim);
}

/* Fragments to rows from `rows` on, from column 16 * column16 on, in any panels. */
template <int PANEL_BYTES, int M16, int K16>
__device__ __forceinline__ void store_columns(uint32_t rows, uint32_t column16, const Fragments<M16, K16> &fragments)
{
#pragma unroll
    for (int k = 0; k < K16; ++k) {
        const uint32_t column = column16 + k;
        Fragments<M16, 1> part;
#pragma unroll
        for (int m = 0; m < M16; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                part.at[m][0][i] = fragments.at[m][k][i];
        store_fragments({lane_rows_16(threadIdx.x % LANES), rows + column / 4 * PANEL_BYTES, 0}, column % 4, part);
    }
}

/* A warp's part of dK or dV times `scale`, rounded, to the rows of `keys` in shared memory. */
template <typename Tile, typename T>
__device__ __forceinline__ void round_gradient(Gradient<Tile> &sums, float scale, uint32_t keys, uint32_t warp_q)
{
    using S = Traits<Tile>;
    Fragments<S::KEYS16, S::COLUMNS / 16> packed;
#pragma unroll
    for (int m = 0; m < S::KEYS16; ++m)
#pragma unroll
        for (int n = 0; n < S::COLUMNS / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                sums.at[m][n][i] *= scale;
    pack_fragments<T>(packed, sums);
    store_columns<S::KV_PANEL_BYTES>(keys, warp_q * (S::COLUMNS / 16), packed);
}

/* ROWS rows from panels in shared memory to the `rows` first rows and `columns` first columns of `to`. */
template <int ROWS, int COLUMNS, int THREADS>
__device__ __forceinline__ void store_panels(uint16_t *to, int64_t stride, uint32_t shared, int rows, int columns)
{
    constexpr int ROW_CHUNKS = COLUMNS / 8;
    for (int index = threadIdx.x; index < ROWS * ROW_CHUNKS; index += THREADS) {
        const int row = index / ROW_CHUNKS, chunk = index % ROW_CHUNKS;
        if (row < rows && chunk * 8 < columns)
            *reinterpret_cast<uint4 *>(to + row * stride + chunk * 8) =
                load_shared_128(shared + chunk / 8 * (ROWS * ROW_BYTES) + swizzle_128b(row, chunk % 8));
    }
}

template <typename Tile, typename T>
__device__ __forceinline__ void store_family_gradients(Gradient<Tile> &dk, Gradient<Tile> &dv, const Smem<Tile> &s,
                                                       const Params &params, const BlockFacts &facts, uint32_t warp_kv,
                                                       uint32_t warp_q)
{
    constexpr int THREADS = Traits<Tile>::THREADS;
    const uint32_t keys = warp_kv * Tile::WARP_KEYS * ROW_BYTES;
    const Sequence &sequence = facts.sequence;
    const int left = sequence.kv_len - facts.first_key, columns = params.family.head_dim;
    round_gradient<Tile, T>(dk, params.scale, shared_address(s.k) + keys, warp_q);
    round_gradient<Tile, T>(dv, params.family.keep_factor, shared_address(s.v) + keys, warp_q);
    __syncthreads();
    store_panels<Tile::KV, Tile::HEAD_DIM, THREADS>(
        family_head(params, params.dk, sequence, sequence.k_first, facts.kv_head) +
            facts.first_key * params.dk.stride_row,
        params.dk.stride_row, shared_address(s.k), left, columns);
    store_panels<Tile::KV, Tile::HEAD_DIM, THREADS>(
        family_head(params, params.dv, sequence, sequence.k_first, facts.kv_head) +
            facts.first_key * params.dv.stride_row,
        params.dv.stride_row, shared_address(s.v), left, columns);
}

/* What a warp's queries see of its keys, as far as causality, window and the ends of the sequence go. */
template <typename Tile> struct WarpView {
    bool any, all;

    __device__ __forceinline__ WarpView(const fused_sm80_family &family, const FamilyStep &step)
    {
        constexpr int KEYS = Tile::WARP_KEYS, QUERIES = Traits<Tile>::WARP_Q;
        const int diagonal = step.query + step.shift(), kv_len = step.facts->sequence.kv_len;
        any = step.key < kv_len && step.key <= diagonal + QUERIES - 1 + family.window_right &&
              step.key + KEYS > diagonal - family.window_left;
        all = step.key + KEYS <= min(kv_len, diagonal + family.window_right + 1) &&
              step.key >= diagonal + QUERIES - 1 - family.window_left;
    }
};

/* Everything else: the tiles of queries that see any of the block's keys, head by head of the group. */
template <typename Tile, typename T>
__device__ __forceinline__ void compute_family(const Params &params, Smem<Tile> &s)
{
    using S = Traits<Tile>;
    __shared__ BlockFacts facts;
    const fused_sm80_family &family = params.family;
    const uint32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / LANES, 0);
    const uint32_t warp_kv = warp / Tile::WARPS_Q, warp_q = warp % Tile::WARPS_Q, first_query = warp_q * S::WARP_Q;
    const uint32_t lane = threadIdx.x % LANES, rows_8 = lane_rows_8(lane), rows_16 = lane_rows_16(lane);
    const bool with_dq = params.dq_sum != NULL;
    FamilyCursor<Tile> now;
    Gradient<Tile> dk, dv;

    if (threadIdx.x == 0)
        find_work(facts, params, Tile::KV, Tile::Q);
    __syncthreads();
    if (facts.sequence.number < 0)
        return;
    now.start(params, facts, 0);
    clear(dk);
    clear(dv);
    load_family_keys<Tile>(shared_address(s.k), params, params.k, facts);
    load_family_keys<Tile>(shared_address(s.v), params, params.v, facts);
    if (now.head < params.group)
        load_family_step<Tile>(s, params, facts, now.head, now.tile, 0);
    cp_async_commit();

    int32_t index_before = -1;
    int stage = 0;
    while (now.head < params.group) {
        const int32_t index = family_index<Tile>(params, facts, now.head, now.tile);
        const FamilyStep step = {&facts, facts.kv_head * params.group + now.head,
                                 facts.first_key + static_cast<int>(warp_kv) * Tile::WARP_KEYS,
                                 now.tile * Tile::Q + static_cast<int>(first_query), !now.is_whole};
        now.advance(params, facts);
        cp_async_wait<0>();
        __syncthreads();
        if (S::STAGES == 2 && now.head < params.group)
            load_family_step<Tile>(s, params, facts, now.head, now.tile, stage ^ 1);
        cp_async_commit();

        const StepOperands at = operands_of(s, stage, warp_kv, warp_q, rows_8, rows_16);
        const WarpView<Tile> view(family, step);
        if (view.all && !step.has_hidden)
            accumulate_own<Tile, T, false, Family>(dk, dv, at, first_query, params, 0, 0, step);
        else if (view.any)
            accumulate_own<Tile, T, true, Family>(dk, dv, at, first_query, params, 0, 0, step);
        else
            store_zeros<Tile>(at, first_query);

        if (with_dq && index_before >= 0)
            add_dq<Tile, T>(params.dq_sum, index_before, shared_address(s.ds[stage ^ 1]), shared_address(s.k), warp);
        if (S::EXCHANGE) {
            bar_sync(1 + warp_kv, Tile::WARPS_Q * LANES);
#pragma unroll
            for (int other = 1; other < Tile::WARPS_Q; ++other)
                accumulate_other<Tile, T>(dk, dv, at, (warp_q + other) % Tile::WARPS_Q * S::WARP_Q);
        }
        if (S::STAGES == 1) {
            __syncthreads();
            if (now.head < params.group)
                load_family_step<Tile>(s, params, facts, now.head, now.tile, 0);
            cp_async_commit();
        }
        index_before = index;
        stage ^= 1;
    }

    cp_async_wait<0>();
    __syncthreads();
    if (with_dq && index_before >= 0) {
        add_dq<Tile, T>(params.dq_sum, index_before, shared_address(s.ds[stage ^ 1]), shared_address(s.k), warp);
        __syncthreads();
    }
    store_family_gradients<Tile, T>(dk, dv, s, params, facts, warp_kv, warp_q);
}

/* ---- Main kernel ----------------------------------------------------------------------------------------------- */

template <typename Tile, typename T, typename Attributes>
__global__ void __launch_bounds__(Traits<Tile>::THREADS, Tile::BLOCKS_PER_SM)
    backward_main(const __grid_constant__ Params params)
{
    extern __shared__ __align__(1024) unsigned char s_bytes[];
    Smem<Tile> &s = *reinterpret_cast<Smem<Tile> *>(s_bytes);
    if constexpr (Attributes::FAMILY) {
        compute_family<Tile, T>(params, s);
    } else {
        using S = Traits<Tile>;
        constexpr bool DEFERRED = Attributes::WITH_DQ && Tile::DEFER_DQ, AT_ONCE = Attributes::WITH_DQ && !Tile::DEFER_DQ;
        constexpr int WARP_KEYS = Tile::WARP_KEYS;
        const WorkTile work = work_tile_of_block(params);
        /* Read from lane 0 so that the compiler knows it to be uniform. */
        const uint32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / LANES, 0);
        const uint32_t warp_kv = warp / Tile::WARPS_Q, warp_q = warp % Tile::WARPS_Q, first_query = warp_q * S::WARP_Q;
        const int64_t first_key = static_cast<int64_t>(work.kv_tile) * Tile::KV;
        const int keys = clamp_to_tile(params.kv_len - first_key) - static_cast<int>(warp_kv) * WARP_KEYS;
        const uint32_t lane = threadIdx.x % LANES, rows_8 = lane_rows_8(lane), rows_16 = lane_rows_16(lane);
        int32_t first_tile = 0;
        if (params.causal && first_key > params.shift)
            first_tile = static_cast<int32_t>((first_key - params.shift) / Tile::Q);

        Cursor now = cursor_at(params, work, first_tile < params.q_tiles ? 0 : params.group, first_tile);
        Gradient<Tile> dk, dv;
        clear(dk);
        clear(dv);
        load_keys<Tile>(shared_address(s.k), params.k, work, first_key, params.kv_len);
        load_keys<Tile>(shared_address(s.v), params.v, work, first_key, params.kv_len);
        if (now.head < params.group)
            load_step(s, params, now, 0);
        cp_async_commit();

        int32_t index_before = -1;
        int stage = 0;
        while (now.head < params.group) {
            const int32_t tile = now.tile, index = now.index;
            advance<Tile>(now, params, work, first_tile);
            cp_async_wait<0>();
            __syncthreads();
            if (now.head < params.group)
                load_step(s, params, now, stage ^ 1);
            cp_async_commit();

            const StepOperands at = operands_of(s, stage, warp_kv, warp_q, rows_8, rows_16);
            int diagonal = WARP_KEYS; /* this warp's key i sees its query j iff i - j <= diagonal */
            if (params.causal)
                diagonal = clamp_to_tile(static_cast<int64_t>(tile) * Tile::Q + params.shift - first_key) +
                           static_cast<int>(first_query - warp_kv * WARP_KEYS);
            if (diagonal >= WARP_KEYS - 1 && keys >= WARP_KEYS)
                accumulate_own<Tile, T, false, Attributes>(dk, dv, at, first_query, params, diagonal, keys, FamilyStep());
            else if (diagonal > -S::WARP_Q)
                accumulate_own<Tile, T, true, Attributes>(dk, dv, at, first_query, params, diagonal, keys, FamilyStep());
            else
                store_zeros<Tile>(at, first_query);

            if (DEFERRED && index_before >= 0)
                add_dq<Tile, T>(params.dq_sum, index_before, shared_address(s.ds[stage ^ 1]), shared_address(s.k), warp);
            if (AT_ONCE)
                __syncthreads();
            else if (S::EXCHANGE)
                bar_sync(1 + warp_kv, Tile::WARPS_Q * LANES);
            if (S::EXCHANGE)
                accumulate_other<Tile, T>(dk, dv, at, (warp_q ^ 1) * S::WARP_Q);
            if (AT_ONCE)
                add_dq<Tile, T>(params.dq_sum, index, shared_address(s.ds), shared_address(s.k), warp);
            index_before = index;
            stage ^= 1;
        }

        cp_async_wait<0>();
        __syncthreads();
        if (DEFERRED && index_before >= 0) {
            add_dq<Tile, T>(params.dq_sum, index_before, shared_address(s.ds[stage ^ 1]), shared_address(s.k), warp);
            __syncthreads();
        }
        store_gradients<Tile, T>(dk, dv, s, params, work, first_key, warp_kv, warp_q, keys);
    }
}

/* ---- Convert: dQ = scale * dq_sum ------------------------------------------------------------------------------ */

/* One block per tile of queries, its warps placed as add_dq places them. */
template <typename Tile, typename T, typename Attributes>
__global__ void __launch_bounds__(Traits<Tile>::THREADS) convert_dq(const __grid_constant__ Params params)
{
    using S = Traits<Tile>;
    constexpr int M16 = Tile::DQ_ROWS / 16, N8 = Tile::DQ_COLUMNS / 8;
    __shared__ alignas(1024) unsigned char s_dq[S::Q_BYTES];
    const uint32_t warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const uint32_t warp_d = warp % S::DQ_WARPS_D, warp_q = warp / S::DQ_WARPS_D;
    const uint32_t tiles = Attributes::FAMILY ? static_cast<uint32_t>(params.q_rows / Tile::Q) : params.q_tiles;
    const int64_t head_index = blockIdx.x / tiles, tile = blockIdx.x % tiles;
    const float *dq_tile = params.dq_sum + (head_index * params.q_rows + tile * Tile::Q) * Tile::HEAD_DIM;

#pragma unroll
    for (int pass = 0; pass < S::DQ_PASSES; ++pass) {
        Accumulator<M16, N8> dq;
        Fragments<M16, N8 / 2> packed;
        const float *quad = dq_tile + (pass * S::WARPS + warp) * S::DQ_QUADS * QUAD_FLOATS;
#pragma unroll
        for (int m = 0; m < M16; ++m)
#pragma unroll
            for (int n = 0; n < N8; ++n) {
                load_quad(dq.at[m][n], quad + (m * N8 + n) * QUAD_FLOATS, lane);
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    dq.at[m][n][i] *= params.scale;
            }
        pack_fragments<T>(packed, dq);
        const uint32_t first_row = (pass * S::DQ_WARPS_Q + warp_q) * Tile::DQ_ROWS;
        if constexpr (!Attributes::FAMILY) {
            const uint32_t first = shared_address(s_dq) + warp_d / 2 * S::Q_PANEL_BYTES + first_row * ROW_BYTES;
            store_fragments({lane_rows_16(lane), first, 0}, warp_d % 2 * 2, packed);
        } else {
            store_columns<S::Q_PANEL_BYTES>(shared_address(s_dq) + first_row * ROW_BYTES,
                                            warp_d * (Tile::DQ_COLUMNS / 16), packed);
        }
    }
    __syncthreads();
    if constexpr (Attributes::FAMILY) {
        const RowBlock block = row_block_at(params, head_index, tile * Tile::Q);
        store_panels<Tile::Q, Tile::HEAD_DIM, S::THREADS>(
            family_head(params, params.dq, block.sequence, block.sequence.q_first, block.head) +
                block.row * params.dq.stride_row,
            params.dq.stride_row, shared_address(s_dq), block.sequence.q_len - block.row, params.family.head_dim);
    } else {
        constexpr int ROW_CHUNKS = Tile::HEAD_DIM / 8;
        T *head = head_pointer<T>(params.dq, head_index / params.q_heads, head_index % params.q_heads);
#pragma unroll
        for (int index = threadIdx.x; index < Tile::Q * ROW_CHUNKS; index += S::THREADS) {
            const int row = index / ROW_CHUNKS, chunk = index % ROW_CHUNKS;
            const int64_t q_row = tile * Tile::Q + row;
            const uint32_t address = shared_address(s_dq) + chunk / 8 * S::Q_PANEL_BYTES + swizzle_128b(row, chunk % 8);
            if (q_row < params.q_len)
                *reinterpret_cast<uint4 *>(head + q_row * params.dq.stride_row + chunk * 8) = load_shared_128(address);
        }
    }
}

} // namespace

} // namespace sm80_bwd

using namespace sm80_bwd;

/* ---- Variants ---------------------------------------------------------------------------------------------------- */

/* Best first for each head_dim: name, tile, what it is compiled for, summary. */
#define BWD_VARIANTS(ROW)                                                                                              \
    ROW("d32_kv128q64", Sm80BwdD32, FAMILY, "128 keys x 64 queries, 4 warps, dQ a step later, 97 KB shared memory")    \
    ROW("d64_kv128q64", Sm80BwdD64, BOTH, "128 keys x 64 queries, 4 warps, dQ a step later, 97 KB shared memory")      \
    ROW("d64_kv128q64_oneds", Sm80BwdD64OneDs, DENSE, "128 keys x 64 queries, 4 warps, 81 KB shared memory")           \
    ROW("d96_kv128q64", Sm80BwdD96, FAMILY, "128 keys x 64 queries, 8 warps, dQ a step later, 177 KB shared memory")   \
    ROW("d96_kv64q32", Sm80BwdD96Small, FAMILY, "64 keys x 32 queries, 4 warps, dQ a step later, 89 KB shared memory") \
    ROW("d128_kv128q64", Sm80BwdD128, BOTH, "128 keys x 64 queries, 8 warps, dQ a step later, 177 KB shared memory")   \
    ROW("d128_kv128q64_oneds", Sm80BwdD128OneDs, DENSE, "128 keys x 64 queries, 8 warps, 161 KB shared memory")        \
    ROW("d128_kv64q32", Sm80BwdD128Small, BOTH, "64 keys x 32 queries, 4 warps, dQ a step later, 89 KB shared memory") \
    ROW("d192_kv64q64", Sm80BwdD192, FAMILY, "64 keys x 64 queries, 8 warps, dQ a step later, 169 KB shared memory")   \
    ROW("d192_kv32q32", Sm80BwdD192Small, FAMILY,                                                                      \
        "32 keys x 32 queries, 4 warps, dQ a step later, 85 KB shared memory")                                         \
    ROW("d256_kv64q64", Sm80BwdD256, FAMILY, "64 keys x 64 queries, 8 warps, dQ a step later, 217 KB shared memory")   \
    ROW("d256_kv32q32", Sm80BwdD256Small, FAMILY,                                                                      \
        "32 keys x 32 queries, 4 warps, 1 stage, dQ a step later, 77 KB shared memory")

#define KERNELS(Kernel, Tile, Attributes)                                                                              \
    {                                                                                                                  \
        Kernel<Tile, __half, Attributes>, Kernel<Tile, __nv_bfloat16, Attributes>                                      \
    }
#define NO_KERNELS {NULL, NULL}
#define MAIN_DENSE(Tile) {KERNELS(backward_main, Tile, DenseDq), KERNELS(backward_main, Tile, DenseNoDq), NO_KERNELS}
#define MAIN_FAMILY(Tile) {NO_KERNELS, NO_KERNELS, KERNELS(backward_main, Tile, Family)}
#define MAIN_BOTH(Tile)                                                                                                \
    {                                                                                                                  \
        KERNELS(backward_main, Tile, DenseDq), KERNELS(backward_main, Tile, DenseNoDq),                                \
            KERNELS(backward_main, Tile, Family)                                                                       \
    }
#define CONVERT_DENSE(Tile) {KERNELS(convert_dq, Tile, DenseDq), NO_KERNELS}
#define CONVERT_FAMILY(Tile) {NO_KERNELS, KERNELS(convert_dq, Tile, Family)}
#define CONVERT_BOTH(Tile) {KERNELS(convert_dq, Tile, DenseDq), KERNELS(convert_dq, Tile, Family)}
#define TILE_ROW(name, Tile, FOR, summary)                                                                             \
    {{{name, summary}, Tile::HEAD_DIM, Tile::BLOCKS_PER_SM, sizeof(Smem<Tile>)},                                       \
     Tile::Q,                                                                                                          \
     Tile::KV,                                                                                                         \
     Traits<Tile>::THREADS,                                                                                            \
     MAIN_##FOR(Tile),                                                                                                 \
     CONVERT_##FOR(Tile)},

extern "C" const struct fused_sm80_bwd_tile fused_sm80_bwd_tiles[] = {BWD_VARIANTS(TILE_ROW){}};
