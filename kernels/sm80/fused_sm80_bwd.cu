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
#include "kernels/device/memory.cuh"
#include "kernels/device/tile_io_sm80.cuh"

namespace sm80_bwd {

using namespace device;

namespace {

/* ---- Tiles ---------------------------------------------------------------------------------------------------- */

/* KV keys and Q queries; WARPS_KV x WARPS_Q warps over the scores: WARPS_Q warps have the same 32 keys and divide
 * the columns of their dK and dV among them. DEFER_DQ: dQ of a step is computed in the next one, which takes a
 * second buffer of dS. BLOCKS_PER_SM: the blocks that registers are limited for. */
struct Sm80BwdD64 {
    static constexpr int HEAD_DIM = 64, KV = 128, Q = 64, WARPS_KV = 4, WARPS_Q = 1, BLOCKS_PER_SM = 2;
    static constexpr bool DEFER_DQ = true;
};
struct Sm80BwdD64OneDs {
    static constexpr int HEAD_DIM = 64, KV = 128, Q = 64, WARPS_KV = 4, WARPS_Q = 1, BLOCKS_PER_SM = 2;
    static constexpr bool DEFER_DQ = false;
};
struct Sm80BwdD128 {
    static constexpr int HEAD_DIM = 128, KV = 128, Q = 64, WARPS_KV = 4, WARPS_Q = 2, BLOCKS_PER_SM = 1;
    static constexpr bool DEFER_DQ = true;
};
struct Sm80BwdD128OneDs {
    static constexpr int HEAD_DIM = 128, KV = 128, Q = 64, WARPS_KV = 4, WARPS_Q = 2, BLOCKS_PER_SM = 1;
    static constexpr bool DEFER_DQ = false;
};
struct Sm80BwdD128Small {
    static constexpr int HEAD_DIM = 128, KV = 64, Q = 32, WARPS_KV = 2, WARPS_Q = 2, BLOCKS_PER_SM = 1;
    static constexpr bool DEFER_DQ = true;
};

constexpr int WARP_KEYS = 32; /* keys of a warp in every tile */

/* What follows from a tile. */
template <typename Tile> struct Traits {
    static constexpr int WARPS = Tile::WARPS_KV * Tile::WARPS_Q, THREADS = WARPS * LANES;
    static constexpr int PANELS = Tile::HEAD_DIM / PANEL_COLUMNS;
    static constexpr int KV_PANEL_BYTES = Tile::KV * ROW_BYTES, Q_PANEL_BYTES = Tile::Q * ROW_BYTES;
    static constexpr int KV_BYTES = PANELS * KV_PANEL_BYTES, Q_BYTES = PANELS * Q_PANEL_BYTES;
    static constexpr int WARP_Q = Tile::Q / Tile::WARPS_Q;    /* queries of a warp in the scores */
    static constexpr int CHUNK_Q = WARP_Q < 32 ? WARP_Q : 32; /* of them at a time in registers */
    static constexpr bool EXCHANGE = Tile::WARPS_Q > 1;       /* of P and dS between two warps */
    static constexpr int DS_BUFFERS = Tile::DEFER_DQ ? 2 : 1, P_BUFFERS = EXCHANGE ? 1 : 0;
    static constexpr int DQ_WARPS_D = Tile::HEAD_DIM / 32; /* dQ: 32 x 32 of a warp at a time */
    static constexpr int DQ_WARPS_Q = WARPS / DQ_WARPS_D;
    static constexpr int DQ_PASSES = Tile::Q / (32 * DQ_WARPS_Q);

    static_assert(Tile::KV == Tile::WARPS_KV * WARP_KEYS, "a warp has 32 keys");
    static_assert(Tile::HEAD_DIM == Tile::WARPS_Q * PANEL_COLUMNS, "a warp has one panel of dK and dV");
    static_assert(Tile::WARPS_Q <= 2, "the scores are exchanged between two warps");
    static_assert(Tile::Q <= PANEL_COLUMNS && ROW_STEP % Tile::Q == 0, "dS is one panel, padding is whole tiles");
    static_assert(DQ_PASSES * 32 * DQ_WARPS_Q == Tile::Q, "dQ is divided in 32 x 32");
};

template <typename Tile> struct Smem {
    using S = Traits<Tile>;
    alignas(1024) unsigned char k[S::KV_BYTES], v[S::KV_BYTES]; /* at the end dK and dV, from where they are stored */
    unsigned char q[2][S::Q_BYTES], dout[2][S::Q_BYTES];
    unsigned char ds[S::DS_BUFFERS + S::P_BUFFERS][S::KV_PANEL_BYTES]; /* [KV][Q]; the last one is P where exchanged */
    float stats[2][2 * Tile::Q];                                       /* lse2, then -D */
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

template <typename Tile> using ScoreFragments = Fragments<2, Traits<Tile>::CHUNK_Q / 16>;

/* What a warp reads and writes in a step. */
struct StepOperands {
    struct operand k, v;              /* A of the scores: this warp's keys */
    struct operand q, dout;           /* B of the scores: this warp's queries */
    struct operand q_rows, dout_rows; /* B of dK, dV: all queries, this warp's panel */
    struct operand ds, p;             /* this warp's keys, all queries */
    uint32_t lse2, neg_delta;         /* this lane's first of this warp's queries */
};

template <typename Tile>
__device__ __forceinline__ StepOperands operands_of(const Smem<Tile> &s, int stage, uint32_t warp_kv, uint32_t warp_q,
                                                    uint32_t rows_8, uint32_t rows_16)
{
    using S = Traits<Tile>;
    const uint32_t lane = threadIdx.x % LANES;
    const uint32_t keys = warp_kv * WARP_KEYS * ROW_BYTES, queries = warp_q * S::WARP_Q * ROW_BYTES;
    const uint32_t panel = warp_q * S::Q_PANEL_BYTES;
    StepOperands at;
    at.k = {rows_16, shared_address(s.k) + keys, S::KV_PANEL_BYTES};
    at.v = {rows_16, shared_address(s.v) + keys, S::KV_PANEL_BYTES};
    at.q = {rows_8, shared_address(s.q[stage]) + queries, S::Q_PANEL_BYTES};
    at.dout = {rows_8, shared_address(s.dout[stage]) + queries, S::Q_PANEL_BYTES};
    at.q_rows = {rows_16, shared_address(s.q[stage]) + panel, 0};
    at.dout_rows = {rows_16, shared_address(s.dout[stage]) + panel, 0};
    at.ds = {rows_16, shared_address(s.ds[Tile::DEFER_DQ ? stage : 0]) + keys, 0};
    at.p = {rows_16, shared_address(s.ds[S::EXCHANGE ? S::DS_BUFFERS : 0]) + keys, 0};
    at.lse2 = shared_address(s.stats[stage]) + (warp_q * S::WARP_Q + lane % 4 * 2) * sizeof(float);
    at.neg_delta = at.lse2 + Tile::Q * sizeof(float);
    return at;
}

/* P = exp2(scale_log2 S - lse2) in place (Dao et al. 2022, algorithm 4, line 13). */
template <int N8> __device__ __forceinline__ void probabilities(Accumulator<2, N8> &s, float scale_log2, uint32_t lse2)
{
#pragma unroll
    for (int n = 0; n < N8; ++n) {
        const float2 lse = load_shared_float2(lse2 + n * 8 * sizeof(float));
#pragma unroll
        for (int m = 0; m < 2; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                s.at[m][n][i] = exp2_approx(fmaf(s.at[m][n][i], scale_log2, i % 2 ? -lse.y : -lse.x));
    }
}

/* Zeros where key - query, both counted from the tile's first, is over `diagonal`, or the key is not below keys. */
template <int N8> __device__ __forceinline__ void mask_probabilities(Accumulator<2, N8> &p, int diagonal, int keys)
{
    const int lane = threadIdx.x % LANES;
#pragma unroll
    for (int m = 0; m < 2; ++m)
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
template <int N8> __device__ __forceinline__ void start_from_delta(Accumulator<2, N8> &dp, uint32_t neg_delta)
{
#pragma unroll
    for (int n = 0; n < N8; ++n) {
        const float2 delta = load_shared_float2(neg_delta + n * 8 * sizeof(float));
#pragma unroll
        for (int m = 0; m < 2; ++m) {
            dp.at[m][n][0] = dp.at[m][n][2] = delta.x;
            dp.at[m][n][1] = dp.at[m][n][3] = delta.y;
        }
    }
}

/* P and dS = P * (dP - D) of CHUNK_Q of this warp's queries, from `query` on. */
template <typename Tile, typename T, bool MASKED>
__device__ __forceinline__ void score_chunk(ScoreFragments<Tile> &p_fragments, ScoreFragments<Tile> &ds_fragments,
                                            const StepOperands &at, int query, float scale_log2, int diagonal, int keys)
{
    constexpr int N8 = Traits<Tile>::CHUNK_Q / 8;
    Accumulator<2, N8> p, ds;
    struct operand q = at.q, dout = at.dout;
    q.first += query * ROW_BYTES;
    dout.first += query * ROW_BYTES;
    clear(p);
    gemm_by_columns<Tile::HEAD_DIM / 16, T>(p, at.k, q);
    start_from_delta(ds, at.neg_delta + query * sizeof(float));
    gemm_by_columns<Tile::HEAD_DIM / 16, T>(ds, at.v, dout);
    probabilities(p, scale_log2, at.lse2 + query * sizeof(float));
    if (MASKED)
        mask_probabilities(p, diagonal, keys);
    pack_fragments<T>(p_fragments, p);
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int n = 0; n < N8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                ds.at[m][n][i] *= p.at[m][n][i];
    pack_fragments<T>(ds_fragments, ds);
}

/* dQ (without scale) of a finished step: dS K, added to the tile's part of dq_sum. */
template <typename Tile, typename T>
__device__ __forceinline__ void add_dq(float *dq_sum, int32_t index, uint32_t ds_first, uint32_t k_first, uint32_t warp)
{
    using S = Traits<Tile>;
    const uint32_t lane = threadIdx.x % LANES, warp_d = warp % S::DQ_WARPS_D, warp_q = warp / S::DQ_WARPS_D;
    const struct operand k = {columns_right(lane_rows_16(lane), warp_d % 2 * 32),
                              k_first + warp_d / 2 * S::KV_PANEL_BYTES, 0};
#pragma unroll
    for (int pass = 0; pass < S::DQ_PASSES; ++pass) {
        Accumulator<2, 4> dq;
        clear(dq);
        const struct operand ds = {columns_right(lane_rows_8(lane), (pass * S::DQ_WARPS_Q + warp_q) * 32), ds_first, 0};
        gemm_by_rows<Tile::KV / 16, T>(dq, ds, k);
        float *quad = dq_sum + static_cast<int64_t>(index) * (Tile::Q * Tile::HEAD_DIM) +
                      (pass * S::WARPS + warp) * 8 * QUAD_FLOATS;
#pragma unroll
        for (int m = 0; m < 2; ++m)
#pragma unroll
            for (int n = 0; n < 4; ++n)
                red_add_quad(quad + (m * 4 + n) * QUAD_FLOATS, lane, dq.at[m][n]);
    }
}

/* The products of one step over this warp's own queries: dV += P^T dO, dK += dS^T Q; P and dS to shared memory. */
template <typename Tile, typename T, bool MASKED>
__device__ __forceinline__ void accumulate_own(Accumulator<2, 8> &dk, Accumulator<2, 8> &dv, const StepOperands &at,
                                               int first_query, float scale_log2, int diagonal, int keys)
{
    using S = Traits<Tile>;
#if __CUDA_ARCH__ >= 900
#pragma unroll
#else /* without uniform offsets in ldmatrix the addresses of two chunks do not fit the registers */
#pragma unroll 1
#endif
    for (int query = 0; query < S::WARP_Q; query += S::CHUNK_Q) {
        ScoreFragments<Tile> p, ds;
        score_chunk<Tile, T, MASKED>(p, ds, at, query, scale_log2, diagonal + query, keys);
        store_fragments(at.ds, (first_query + query) / 16, ds);
        if (S::EXCHANGE)
            store_fragments(at.p, (first_query + query) / 16, p);
        gemm_registers<T>(dv, p, at.dout_rows, (first_query + query) / 16);
        gemm_registers<T>(dk, ds, at.q_rows, (first_query + query) / 16);
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

/* The same products over the queries of the other warp with the same keys, from what it stored. */
template <typename Tile, typename T>
__device__ __forceinline__ void accumulate_other(Accumulator<2, 8> &dk, Accumulator<2, 8> &dv, const StepOperands &at,
                                                 int other_query)
{
    ScoreFragments<Tile> fragments;
    load_fragments(fragments, at.p, other_query / 16);
    gemm_registers<T>(dv, fragments, at.dout_rows, other_query / 16);
    load_fragments(fragments, at.ds, other_query / 16);
    gemm_registers<T>(dk, fragments, at.q_rows, other_query / 16);
}

/* ---- Main kernel ----------------------------------------------------------------------------------------------- */

/* dK and dV of this warp's keys, by way of the shared memory of K and V. */
template <typename Tile, typename T>
__device__ __forceinline__ void store_gradients(Accumulator<2, 8> &dk, Accumulator<2, 8> &dv, const Smem<Tile> &s,
                                                const Params &params, const WorkTile &work, int64_t first_key,
                                                uint32_t warp_kv, uint32_t warp_q, int keys)
{
    const uint32_t panel = warp_q * Traits<Tile>::KV_PANEL_BYTES + warp_kv * WARP_KEYS * ROW_BYTES;
    const int64_t key = first_key + warp_kv * WARP_KEYS;
    const int column = warp_q * PANEL_COLUMNS;
    store_rows(dk, params.scale, shared_address(s.k) + panel,
               head_pointer<T>(params.dk, work.batch, work.kv_head) + key * params.dk.stride_row + column,
               params.dk.stride_row, keys);
    store_rows(dv, 1.0f, shared_address(s.v) + panel,
               head_pointer<T>(params.dv, work.batch, work.kv_head) + key * params.dv.stride_row + column,
               params.dv.stride_row, keys);
}

/* WITH_DQ is off where a second kernel computes dQ in a fixed order. */
template <typename Tile, typename T, bool WITH_DQ>
__global__ void __launch_bounds__(Traits<Tile>::THREADS, Tile::BLOCKS_PER_SM)
    backward_main(const __grid_constant__ Params params)
{
    using S = Traits<Tile>;
    constexpr bool DEFERRED = WITH_DQ && Tile::DEFER_DQ, AT_ONCE = WITH_DQ && !Tile::DEFER_DQ;
    extern __shared__ __align__(1024) unsigned char s_bytes[];
    Smem<Tile> &s = *reinterpret_cast<Smem<Tile> *>(s_bytes);
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
    Accumulator<2, 8> dk, dv;
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
            accumulate_own<Tile, T, false>(dk, dv, at, first_query, params.scale_log2, diagonal, keys);
        else if (diagonal > -S::WARP_Q)
            accumulate_own<Tile, T, true>(dk, dv, at, first_query, params.scale_log2, diagonal, keys);
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

/* ---- Convert: dQ = scale * dq_sum ------------------------------------------------------------------------------ */

/* One block per tile of queries, its warps placed as add_dq places them. */
template <typename Tile, typename T>
__global__ void __launch_bounds__(Traits<Tile>::THREADS) convert_dq(const __grid_constant__ Params params)
{
    using S = Traits<Tile>;
    constexpr int ROW_CHUNKS = Tile::HEAD_DIM / 8;
    __shared__ alignas(1024) unsigned char s_dq[S::Q_BYTES];
    const uint32_t warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const uint32_t warp_d = warp % S::DQ_WARPS_D, warp_q = warp / S::DQ_WARPS_D;
    const int64_t head_index = blockIdx.x / params.q_tiles, tile = blockIdx.x % params.q_tiles;
    const float *dq_tile = params.dq_sum + (head_index * params.q_rows + tile * Tile::Q) * Tile::HEAD_DIM;

#pragma unroll
    for (int pass = 0; pass < S::DQ_PASSES; ++pass) {
        Accumulator<2, 4> dq;
        Fragments<2, 2> packed;
        const float *quad = dq_tile + (pass * S::WARPS + warp) * 8 * QUAD_FLOATS;
#pragma unroll
        for (int m = 0; m < 2; ++m)
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                load_quad(dq.at[m][n], quad + (m * 4 + n) * QUAD_FLOATS, lane);
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    dq.at[m][n][i] *= params.scale;
            }
        pack_fragments<T>(packed, dq);
        const uint32_t first_row = (pass * S::DQ_WARPS_Q + warp_q) * 32;
        const uint32_t first = shared_address(s_dq) + warp_d / 2 * S::Q_PANEL_BYTES + first_row * ROW_BYTES;
        store_fragments({lane_rows_16(lane), first, 0}, warp_d % 2 * 2, packed);
    }
    __syncthreads();
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

} // namespace

} // namespace sm80_bwd

using namespace sm80_bwd;

/* ---- Variants ---------------------------------------------------------------------------------------------------- */

/* Best first for each head_dim: name, tile, summary. */
#define BWD_VARIANTS(ROW)                                                                                              \
    ROW("d64_kv128q64", Sm80BwdD64, "128 keys x 64 queries, 4 warps, dQ a step later, 97 KB shared memory")            \
    ROW("d64_kv128q64_oneds", Sm80BwdD64OneDs, "128 keys x 64 queries, 4 warps, 81 KB shared memory")                  \
    ROW("d128_kv128q64", Sm80BwdD128, "128 keys x 64 queries, 8 warps, dQ a step later, 177 KB shared memory")         \
    ROW("d128_kv128q64_oneds", Sm80BwdD128OneDs, "128 keys x 64 queries, 8 warps, 161 KB shared memory")               \
    ROW("d128_kv64q32", Sm80BwdD128Small, "64 keys x 32 queries, 4 warps, dQ a step later, 89 KB shared memory")

#define KERNELS(Tile, WITH_DQ)                                                                                         \
    {                                                                                                                  \
        backward_main<Tile, __half, WITH_DQ>, backward_main<Tile, __nv_bfloat16, WITH_DQ>                              \
    }
#define TILE_ROW(name, Tile, summary)                                                                                  \
    {{{name, summary}, Tile::HEAD_DIM, Tile::BLOCKS_PER_SM, sizeof(Smem<Tile>)},                                       \
     Tile::Q,                                                                                                          \
     Tile::KV,                                                                                                         \
     Traits<Tile>::THREADS,                                                                                            \
     {KERNELS(Tile, true), KERNELS(Tile, false)},                                                                      \
     {convert_dq<Tile, __half>, convert_dq<Tile, __nv_bfloat16>}},

extern "C" const struct fused_sm80_bwd_tile fused_sm80_bwd_tiles[] = {BWD_VARIANTS(TILE_ROW){}};
