/* The kernels of fused_sm80's backward that do not depend on its tiles, of dense attention and of the family
 * (docs/kernels/sm80.md).
 *
 * preprocess, bound by device memory: 8 or 16 threads for each row compute D = rowsum(dO * O) in fp32 and LSE in
 * base 2. Rows that see no key, and rows that only pad, get lse2 = +inf: then P = exp2(S - lse2) is 0 in the main
 * kernel without a mask. The same threads zero dq_sum, or what of it the main kernel does not (zero_shares.h).
 * Where the sparse kernels have pieces (places.h), all this is of the first sections of heads alone.
 * Blocks go from the last row to the first one, so that the main kernel, which begins with the first heads, finds their
 * rows of dO and of dq_sum in the L2.
 *
 * sum_dsink, behind the main kernel: dSink from LSE and D. write_dbias_zeros and round_dbias, ahead of it and behind
 * it: the main kernel adds dS to sums in fp32.
 *
 * backward_dq, for request.deterministic: dQ in a fixed order of additions, where the blocks of the main kernel add
 * to dQ in the order in which they get there. A block has 64 queries, recomputes S and dP tile by tile of 64 keys in
 * ascending order, and keeps dQ in registers: dS leaves the accumulators as the A operand of dQ += dS K. Together
 * with the main kernel this takes seven products instead of five.
 *
 *   warp w: queries 16 w .. 16 w + 15, all keys of the tile
 *   shared memory: Q | dO | K 0 | K 1 | V 0 | V 1, 8 KB each at head_dim 64, 16 KB at 128
 *   loop: wait for stage i, barrier, start loading stage i + 1, S = Q K^T, dP = dO V^T, dS, dQ += dS K */
#include "kernels/sm80/bwd/params.h"

#include "kernels/device/arithmetic.cuh"
#include "kernels/family/dropout.cuh"
#include "kernels/device/tile_io_sm80.cuh"
#include "kernels/sm80/bwd/rows.cuh"
#include "kernels/sm80/score.cuh"

namespace sm80_bwd {

using namespace device;

namespace {

constexpr int PREPROCESS_THREADS = SM80_BWD_PREPROCESS_THREADS;
constexpr int DQ_TILE = SM80_BWD_DQ_TILE, DQ_THREADS = SM80_BWD_DQ_THREADS, DSINK_THREADS = SM80_BWD_DSINK_THREADS;
static_assert(DQ_THREADS == DQ_TILE / 16 * LANES, "a warp has 16 queries");

/* ---- preprocess ------------------------------------------------------------------------------------------------ */

/* The main kernel's blocks have not counted anything yet. */
__device__ __forceinline__ void clear_counters(const Params &params)
{
    if (blockIdx.x != 0)
        return;
    for (int i = threadIdx.x; i < params.counters; i += PREPROCESS_THREADS)
        params.zeroed[i] = 0;
}

/* A block has rows of one head only. */
template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(PREPROCESS_THREADS) preprocess(const __grid_constant__ Params params)
{
    constexpr int ROW_LANES = HEAD_DIM / 8, ROWS = PREPROCESS_THREADS / ROW_LANES;
    const uint32_t number = gridDim.x - 1 - blockIdx.x;
    const int64_t head_blocks = params.q_rows / ROWS, head_index = number / head_blocks;
    const int64_t row = number % head_blocks * ROWS + threadIdx.x / ROW_LANES;
    const int64_t batch = head_index / params.q_heads, head = head_index % params.q_heads;
    const int column = threadIdx.x % ROW_LANES * 8;
    const bool valid = row < params.q_len;
    float sum = 0.0f;

    if (valid) {
        const uint16_t *o = head_pointer<uint16_t>(params.o, batch, head) + row * params.o.stride_row + column;
        const uint16_t *dout = head_pointer<uint16_t>(params.dout, batch, head) + row * params.dout.stride_row + column;
        sum = dot8<T>(load_once(reinterpret_cast<const uint4 *>(o)), *reinterpret_cast<const uint4 *>(dout));
    }
#pragma unroll
    for (int offset = ROW_LANES / 2; offset > 0; offset /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    const int64_t index = head_index * params.q_rows + row;
    if (column == 0) {
        const float lse = valid ? params.lse[head_index * params.q_len + row] : -INFINITY;
        store_stats(params, params.stats + stats_index(params, index), params.q_tile, lse, sum);
    }
    if (index < params.zeros.preprocessed_rows) {
        float4 *zeros =
            reinterpret_cast<float4 *>(params.dq_sum + static_cast<int64_t>(number) * ROWS * HEAD_DIM) + threadIdx.x;
        zeros[0] = zeros[PREPROCESS_THREADS] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    clear_counters(params);
}

/* The same of the family: a block has FAMILY_ROW_BLOCK rows of one head of one sequence, and as many lanes as a row
 * needs, 1 to 32, take one row. */
template <typename T>
__global__ void __launch_bounds__(PREPROCESS_THREADS) preprocess_rows(const __grid_constant__ Params params)
{
    const uint32_t number = gridDim.x - 1 - blockIdx.x;
    const int64_t head_blocks = params.q_rows / FAMILY_ROW_BLOCK, head_index = number / head_blocks;
    const int64_t first = number % head_blocks * FAMILY_ROW_BLOCK, padded = head_index * params.q_rows + first;
    const RowBlock block = row_block_at(params, head_index, first);
    const Sequence &s = block.sequence;
    const uint16_t *o = family_head(params, params.o, s, s.q_first, block.head);
    const uint16_t *dout = family_head(params, params.dout, s, s.q_first, block.head);
    const float *lse = params.lse + lse_offset(params.family.lengths, s, block.head, params.q_heads);
    int lanes = 1;
    while (lanes * 8 < params.family.head_dim)
        lanes *= 2;

    const int column = threadIdx.x % lanes * 8;
    for (int in_block = threadIdx.x / lanes; in_block < FAMILY_ROW_BLOCK; in_block += PREPROCESS_THREADS / lanes) {
        const int64_t row = block.row + in_block;
        const bool valid = row < s.q_len;
        float sum = 0.0f;
        if (valid && column < params.family.head_dim)
            sum = dot8<T>(load_once(reinterpret_cast<const uint4 *>(o + row * params.o.stride_row + column)),
                          *reinterpret_cast<const uint4 *>(dout + row * params.dout.stride_row + column));
        for (int offset = lanes / 2; offset > 0; offset /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        if (column == 0) {
            const float row_lse = valid ? lse[row] : -INFINITY;
            store_stats(params, params.stats + stats_index(params, padded + in_block), params.q_tile, row_lse, sum);
        }
    }
    if (padded < params.zeros.preprocessed_rows) {
        float4 *zeros = reinterpret_cast<float4 *>(params.dq_sum + padded * params.padded_head_dim);
        for (int i = threadIdx.x; i < FAMILY_ROW_BLOCK * params.padded_head_dim / 4; i += PREPROCESS_THREADS)
            zeros[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    clear_counters(params);
}

/* ---- dSink ------------------------------------------------------------------------------------------------------- */

/* A block for each query head: the sum of exp(sink - LSE) * -D over its rows, in all sequences and always in the same
 * order. Rows that only pad have LSE = inf, D = 0. */
__global__ void __launch_bounds__(DSINK_THREADS) sum_dsink(const __grid_constant__ Params params)
{
    __shared__ double of_warps[DSINK_THREADS / LANES];
    const int head = blockIdx.x, heads = params.q_heads;
    const int batches = params.family.lengths.cu_seqlens_q == NULL ? params.family.lengths.batch : 1;
    const float sink2 = params.score.sinks[head] * LOG2_E - params.lse2_less;
    double sum = 0.0;

    for (int batch = 0; batch < batches; ++batch) {
        const int64_t first = (static_cast<int64_t>(batch) * heads + head) * params.q_rows;
#pragma unroll 4
        for (int64_t row = threadIdx.x; row < params.q_rows; row += DSINK_THREADS) {
            const float *stats = params.stats + stats_index(params, first + row);
            sum += exp2_approx(sink2 - stats[0]) * stats[params.q_tile];
        }
    }
    for (int offset = LANES / 2; offset > 0; offset /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (threadIdx.x % LANES == 0)
        of_warps[threadIdx.x / LANES] = sum;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    for (int warp = 1; warp < DSINK_THREADS / LANES; ++warp)
        sum += of_warps[warp];
    params.dsink[head] = static_cast<float>(sum);
}

/* ---- dBias ------------------------------------------------------------------------------------------------------- */

constexpr int DBIAS_THREADS = SM80_BWD_DBIAS_THREADS;

__global__ void __launch_bounds__(DBIAS_THREADS) write_dbias_zeros(const __grid_constant__ Params params)
{
    const int64_t row = blockIdx.x;
    for (int key = threadIdx.x; key < params.kv_len; key += DBIAS_THREADS)
        params.dbias.sums[row * params.kv_len + key] = 0.0f;
}

__device__ __forceinline__ void store_rounded(float *to, float x) { *to = x; }
__device__ __forceinline__ void store_rounded(__half *to, float x) { *to = __float2half_rn(x); }
__device__ __forceinline__ void store_rounded(__nv_bfloat16 *to, float x) { *to = __float2bfloat16_rn(x); }

/* A block for each row of dBias, in elements of type B. */
template <typename B>
__global__ void __launch_bounds__(DBIAS_THREADS) round_dbias(const __grid_constant__ Params params)
{
    const int64_t row = blockIdx.x, plane = row / params.q_len;
    const struct attn_tensor &dbias = params.dbias.to;
    B *to = static_cast<B *>(dbias.data) + plane / params.dbias.heads * dbias.stride_batch +
            plane % params.dbias.heads * dbias.stride_head + row % params.q_len * dbias.stride_row;
    for (int key = threadIdx.x; key < params.kv_len; key += DBIAS_THREADS)
        store_rounded(to + key, params.dbias.sums[row * params.kv_len + key]);
}

/* ---- dQ in a fixed order ---------------------------------------------------------------------------------------- */

template <int HEAD_DIM> struct DqSmem {
    static constexpr int PANELS = HEAD_DIM / PANEL_COLUMNS, PANEL_BYTES = DQ_TILE * ROW_BYTES;
    alignas(1024) unsigned char q[PANELS * PANEL_BYTES]; /* at the end dQ, from where it is stored */
    unsigned char dout[PANELS * PANEL_BYTES], k[2][PANELS * PANEL_BYTES], v[2][PANELS * PANEL_BYTES];
};

/* The statistics of a thread's two rows. */
struct DqRows {
    float lse2[2], neg_delta[2];
    int64_t last_key[2]; /* the last one seen, below 0 when none */
};

/* dS = P * (dP - D) of 16 queries (m) and a tile of keys (n) from `key` on, as the A operand of dQ. */
template <int HEAD_DIM, typename T>
__device__ __forceinline__ void score_rows(Fragments<1, DQ_TILE / 16> &fragments, const DqSmem<HEAD_DIM> &s, int stage,
                                           const DqRows &rows, float scale_log2, int64_t key)
{
    constexpr int N8 = DQ_TILE / 8, PANEL = DqSmem<HEAD_DIM>::PANEL_BYTES;
    const uint32_t warp = threadIdx.x / LANES, lane = threadIdx.x % LANES, row = warp * ROWS_16_BYTES;
    const uint32_t rows_16 = lane_rows_16(lane), rows_8 = lane_rows_8(lane);
    Accumulator<1, N8> p, ds;
    clear(p);
    gemm_by_columns<HEAD_DIM / 16, T>(p, {rows_16, shared_address(s.q) + row, PANEL},
                                      {rows_8, shared_address(s.k[stage]), PANEL});
    clear(ds);
    gemm_by_columns<HEAD_DIM / 16, T>(ds, {rows_16, shared_address(s.dout) + row, PANEL},
                                      {rows_8, shared_address(s.v[stage]), PANEL});
#pragma unroll
    for (int n = 0; n < N8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float probability = exp2_approx(fmaf(p.at[0][n][i], scale_log2, -rows.lse2[i / 2]));
            ds.at[0][n][i] = (ds.at[0][n][i] + rows.neg_delta[i / 2]) * probability;
        }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int last = clamp_to_tile(rows.last_key[half] - key) - lane % 4 * 2;
        if (last >= DQ_TILE - 1)
            continue;
#pragma unroll
        for (int n = 0; n < N8; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i)
                if (8 * n + i > last)
                    ds.at[0][n][2 * half + i] = 0.0f;
    }
    pack_fragments<T>(fragments, ds);
}

/* Blocks of the last queries, which see most under a causal mask, come first. */
template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(DQ_THREADS) backward_dq(const __grid_constant__ Params params)
{
    using S = DqSmem<HEAD_DIM>;
    extern __shared__ __align__(1024) unsigned char s_bytes[];
    S &s = *reinterpret_cast<S *>(s_bytes);
    const uint32_t warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int64_t q_tiles = params.q_rows / DQ_TILE;
    const int64_t head_index = blockIdx.x / q_tiles, tile = q_tiles - 1 - blockIdx.x % q_tiles;
    const int64_t batch = head_index / params.q_heads, head = head_index % params.q_heads;
    const int64_t first_row = tile * DQ_TILE, warp_row = first_row + warp * 16, q_left = params.q_len - first_row;
    const uint16_t *k = head_pointer<uint16_t>(params.k, batch, head / params.group);
    const uint16_t *v = head_pointer<uint16_t>(params.v, batch, head / params.group);
    int64_t keys = params.kv_len; /* that any row of the tile sees */
    if (params.causal && first_row + DQ_TILE + params.shift < keys)
        keys = first_row + DQ_TILE + params.shift;

    load_rows<DQ_TILE, HEAD_DIM, DQ_THREADS>(
        shared_address(s.q), head_pointer<uint16_t>(params.q, batch, head) + first_row * params.q.stride_row,
        params.q.stride_row, q_left);
    load_rows<DQ_TILE, HEAD_DIM, DQ_THREADS>(
        shared_address(s.dout), head_pointer<uint16_t>(params.dout, batch, head) + first_row * params.dout.stride_row,
        params.dout.stride_row, q_left);
    load_rows<DQ_TILE, HEAD_DIM, DQ_THREADS>(shared_address(s.k[0]), k, params.k.stride_row, params.kv_len);
    load_rows<DQ_TILE, HEAD_DIM, DQ_THREADS>(shared_address(s.v[0]), v, params.v.stride_row, params.kv_len);
    cp_async_commit();

    Accumulator<1, 8> dq[S::PANELS];
    DqRows rows;
#pragma unroll
    for (int panel = 0; panel < S::PANELS; ++panel)
        clear(dq[panel]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int64_t row = warp_row + lane / 4 + 8 * half, diagonal = row + params.shift, last = params.kv_len - 1;
        const float *stats = params.stats + stats_index(params, head_index * params.q_rows + row);
        rows.lse2[half] = stats[0];
        rows.neg_delta[half] = stats[params.q_tile];
        rows.last_key[half] = params.causal && diagonal < last ? diagonal : last;
    }
    int stage = 0;
    for (int64_t key = 0; key < keys; key += DQ_TILE, stage ^= 1) {
        cp_async_wait<0>();
        __syncthreads();
        if (key + DQ_TILE < keys) {
            const int64_t left = params.kv_len - key - DQ_TILE;
            k += DQ_TILE * params.k.stride_row;
            v += DQ_TILE * params.v.stride_row;
            load_rows<DQ_TILE, HEAD_DIM, DQ_THREADS>(shared_address(s.k[stage ^ 1]), k, params.k.stride_row, left);
            load_rows<DQ_TILE, HEAD_DIM, DQ_THREADS>(shared_address(s.v[stage ^ 1]), v, params.v.stride_row, left);
        }
        cp_async_commit();
        Fragments<1, DQ_TILE / 16> ds;
        score_rows<HEAD_DIM, T>(ds, s, stage, rows, params.scale_log2, key);
#pragma unroll
        for (int panel = 0; panel < S::PANELS; ++panel)
            gemm_registers<T>(dq[panel], ds,
                              {lane_rows_16(lane), shared_address(s.k[stage]) + panel * S::PANEL_BYTES, 0}, 0);
    }
    cp_async_wait<0>();
    __syncthreads();
#pragma unroll
    for (int panel = 0; panel < S::PANELS; ++panel)
        store_rows(dq[panel], params.scale, shared_address(s.q) + panel * S::PANEL_BYTES + warp * ROWS_16_BYTES,
                   head_pointer<T>(params.dq, batch, head) + warp_row * params.dq.stride_row + panel * PANEL_COLUMNS,
                   params.dq.stride_row, clamp_to_tile(params.q_len - warp_row));
}

/* ---- dQ in a fixed order, of the family ------------------------------------------------------------------------- */

/* head_dim of Q and K, and that of V. */
template <int DIM, int V_DIM = DIM> struct DqDims {
    static constexpr int HEAD_DIM = DIM, V_HEAD_DIM = V_DIM, WIDEST = DIM > V_DIM ? DIM : V_DIM;
};

/* KEYS of a tile, and stages of K and V: where they would not fit, one. */
template <typename Dims> struct DqFamily {
    static constexpr int KEYS = Dims::WIDEST <= 128 ? 64 : 32, STAGES = Dims::WIDEST <= 64 ? 2 : 1;
    static constexpr int PANELS = Dims::HEAD_DIM / PANEL_COLUMNS, V_PANELS = Dims::V_HEAD_DIM / PANEL_COLUMNS;
    static constexpr int Q_PANEL = DQ_TILE * ROW_BYTES, K_PANEL = KEYS * ROW_BYTES;
    struct Smem {
        alignas(1024) unsigned char q[PANELS * Q_PANEL]; /* at the end dQ, from where it is stored */
        unsigned char dout[V_PANELS * Q_PANEL], k[STAGES][PANELS * K_PANEL], v[STAGES][V_PANELS * K_PANEL];
    };
};

/* What a warp of the family knows of a tile of keys. */
struct DqStep {
    int sequence, head, row, key; /* the first of the warp's rows and of the tile's keys */
    int shift, kv_len;
    const uint8_t *mask; /* block mask of the head; NULL where all blocks of the tile are visible */
};

/* Zeros where a row does not see a key. */
template <int N8>
__device__ __forceinline__ void mask_rows(Accumulator<1, N8> &p, const fused_sm80_family &family, const DqStep &step)
{
    const int lane = threadIdx.x % LANES, column = step.key + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int diagonal = step.row + 8 * half + lane / 4 + step.shift;
        const int first = diagonal - family.window.left - column;
        const int end = min(step.kv_len, diagonal + family.window.right + 1) - column;
        uint32_t seen = ~0u; /* by these eight rows, of every eight keys */
        if (step.mask != NULL) {
            const int row_block = min((step.row + 8 * half) / family.mask.block, family.mask.row_blocks - 1);
            const int key_block = min((step.key + lane % N8 * 8) / family.mask.block, family.mask.key_blocks - 1);
            seen = __ballot_sync(0xffffffffu,
                                 step.mask[static_cast<int64_t>(row_block) * family.mask.key_blocks + key_block] != 0);
        }
#pragma unroll
        for (int n = 0; n < N8; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i)
                if (8 * n + i < first || 8 * n + i >= end || !(seen >> n & 1u))
                    p.at[0][n][2 * half + i] = 0.0f;
    }
}

/* Makes `ds` dP - D; with a softcap, whose `inner` is not 0, S the tanh and `ds` the product with its derivative. */
template <int N8>
__device__ __forceinline__ void cap_rows(Accumulator<1, N8> &s, Accumulator<1, N8> &ds, float inner,
                                         const float (&neg_delta)[2])
{
#pragma unroll
    for (int n = 0; n < N8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            ds.at[0][n][i] += neg_delta[i / 2];
            if (inner == 0.0f)
                continue;
            const float u = __fdividef(1.0f, 1.0f + exp2_approx(s.at[0][n][i] * inner));
            ds.at[0][n][i] *= 4.0f * u * (1.0f - u);
            s.at[0][n][i] = 1.0f - 2.0f * u;
        }
}

/* dS of 16 queries and a tile of keys, as the A operand of dQ. */
template <typename Dims, typename T, typename Attributes, typename Smem>
__device__ __forceinline__ void score_family(Fragments<1, DqFamily<Dims>::KEYS / 16> &fragments, const Smem &s,
                                             int stage, const float (&lse2)[2], const float (&neg_delta)[2],
                                             const Params &params, const DqStep &step)
{
    using S = DqFamily<Dims>;
    constexpr int N8 = S::KEYS / 8;
    const fused_sm80_family &family = params.family;
    const uint32_t warp = threadIdx.x / LANES, lane = threadIdx.x % LANES, row = warp * ROWS_16_BYTES;
    const uint32_t rows_16 = lane_rows_16(lane), rows_8 = lane_rows_8(lane);
    Accumulator<1, N8> p, ds;
    clear(p);
    gemm_by_columns<Dims::HEAD_DIM / 16, T>(p, {rows_16, shared_address(s.q) + row, S::Q_PANEL},
                                            {rows_8, shared_address(s.k[stage]), S::K_PANEL});
    clear(ds);
    gemm_by_columns<Dims::V_HEAD_DIM / 16, T>(ds, {rows_16, shared_address(s.dout) + row, S::Q_PANEL},
                                              {rows_8, shared_address(s.v[stage]), S::K_PANEL});
    if (family.dropout.threshold != 0) {
        const DropoutTest test(family.dropout.threshold);
        const DropoutHead head(family.dropout.keys, step.sequence, step.head);
        const DropoutRows rows = dropout_rows(head, step.row / 16 * 8 + lane / 4);
#pragma unroll
        for (int k = 0; k < N8 / 2; ++k) {
            uint32_t kept[4];
            dropout_mask(kept, test, head, rows, dropout_keys(head, (step.key / 16 + k) * 4 + lane % 4));
#pragma unroll
            for (int i = 0; i < 8; ++i) { /* register i / 2 of the fragment, its half i % 2 */
                float &x = ds.at[0][2 * k + i / 4][i / 2 % 2 * 2 + i % 2];
                x = (kept[i / 2] >> i % 2 * 16 & 1u) != 0 ? x * family.dropout.keep_factor : 0.0f;
            }
        }
    }
    if constexpr (Attributes::SCORE) { /* the softcap first; its derivative goes to dP - D */
        cap_rows(p, ds, family.softcap.inner, neg_delta);
        const ScorePlace at = {step.sequence,
                               step.head,
                               step.row + static_cast<int>(lane) / 4,
                               step.key + static_cast<int>(lane) % 4 * 2,
                               step.kv_len - step.shift,
                               step.kv_len};
        add_to_scores<T>(params.score, at, [&](const auto &add) {
#pragma unroll
            for (int n = 0; n < N8; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    add(p.at[0][n][i], i / 2 * 8, 8 * n + i % 2);
        });
    }
#pragma unroll
    for (int n = 0; n < N8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if constexpr (Attributes::SCORE) {
                p.at[0][n][i] = exp2_approx(fmaf(p.at[0][n][i], params.scale_log2, -lse2[i / 2]));
                continue;
            }
            float derivative = 1.0f;
            if (family.softcap.inner != 0.0f) { /* tanh and its derivative as in kernel.cuh */
                const float u = __fdividef(1.0f, 1.0f + exp2_approx(p.at[0][n][i] * family.softcap.inner));
                derivative = 4.0f * u * (1.0f - u);
                p.at[0][n][i] = 1.0f - 2.0f * u;
            }
            p.at[0][n][i] = exp2_approx(fmaf(p.at[0][n][i], params.scale_log2, -lse2[i / 2]));
            ds.at[0][n][i] = (ds.at[0][n][i] + neg_delta[i / 2]) * derivative;
        }
    mask_rows(p, family, step);
#pragma unroll
    for (int n = 0; n < N8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            ds.at[0][n][i] *= p.at[0][n][i];
    pack_fragments<T>(fragments, ds);
}

/* As backward_dq, for any sequence, visible keys and width; of a V of another width exactly that of Dims. */
template <typename T, typename Dims, typename Attributes>
__global__ void __launch_bounds__(DQ_THREADS) backward_dq_family(const __grid_constant__ Params params)
{
    using S = DqFamily<Dims>;
    constexpr int HEAD_DIM = Dims::HEAD_DIM, V_HEAD_DIM = Dims::V_HEAD_DIM, KEYS = S::KEYS;
    extern __shared__ __align__(1024) unsigned char s_bytes[];
    typename S::Smem &s = *reinterpret_cast<typename S::Smem *>(s_bytes);
    const fused_sm80_family &family = params.family;
    const uint32_t warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int64_t q_tiles = params.q_rows / DQ_TILE, head_index = blockIdx.x / q_tiles;
    const int64_t tile = q_tiles - 1 - blockIdx.x % q_tiles;
    const RowBlock block = row_block_at(params, head_index, tile * DQ_TILE);
    const Sequence &q = block.sequence;
    const int warp_row = block.row + static_cast<int>(warp) * 16, kv_head = block.head / params.group;
    const int columns = family.head_dim, v_columns = HEAD_DIM == V_HEAD_DIM ? columns : V_HEAD_DIM;
    const TileRange range = key_tiles_of(family.window, q, block.row, DQ_TILE, KEYS);
    const auto mask = [&] { return mask_of_head(family.mask, q.number, block.head); };
    const auto load_keys = [&](int n, int stage) {
        const int64_t key = static_cast<int64_t>(n) * KEYS;
        load_panels<KEYS, HEAD_DIM, DQ_THREADS>(shared_address(s.k[stage]),
                                                family_head(params, params.k, q, q.k_first, kv_head) +
                                                    key * params.k.stride_row,
                                                params.k.data, params.k.stride_row, q.kv_len - n * KEYS, columns);
        load_panels<KEYS, V_HEAD_DIM, DQ_THREADS>(shared_address(s.v[stage]),
                                                  family_head(params, params.v, q, q.k_first, kv_head) +
                                                      key * params.v.stride_row,
                                                  params.v.data, params.v.stride_row, q.kv_len - n * KEYS, v_columns);
    };
    VisibleTiles<DQ_TILE, KEYS, false> visible;
    int n = visible.start(family.mask, mask, range, block.row);

    if (block.row >= q.q_len) /* rows that only pad */
        return;
    load_panels<DQ_TILE, HEAD_DIM, DQ_THREADS>(
        shared_address(s.q), family_head(params, params.q, q, q.q_first, block.head) + block.row * params.q.stride_row,
        params.q.data, params.q.stride_row, q.q_len - block.row, columns);
    load_panels<DQ_TILE, V_HEAD_DIM, DQ_THREADS>(
        shared_address(s.dout),
        family_head(params, params.dout, q, q.q_first, block.head) + block.row * params.dout.stride_row,
        params.dout.data, params.dout.stride_row, q.q_len - block.row, v_columns);
    if (S::STAGES == 2 && n < range.end)
        load_keys(n, 0);
    cp_async_commit();

    Accumulator<1, 8> dq[S::PANELS];
    float lse2[2], neg_delta[2];
#pragma unroll
    for (int panel = 0; panel < S::PANELS; ++panel)
        clear(dq[panel]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int64_t row = head_index * params.q_rows + tile * DQ_TILE + warp * 16 + lane / 4 + 8 * half;
        const float *stats = params.stats + stats_index(params, row);
        lse2[half] = stats[0] + params.lse2_less;
        neg_delta[half] = stats[params.q_tile];
    }
    for (int stage = 0; n < range.end; stage ^= S::STAGES - 1) {
        const bool is_whole = visible.is_whole(n);
        const int next = visible.after(family.mask, mask, n, range.end, block.row);
        if (S::STAGES == 1) {
            __syncthreads(); /* all have finished with the tile before */
            load_keys(n, 0);
            cp_async_commit();
        }
        cp_async_wait<0>();
        __syncthreads();
        if (S::STAGES == 2 && next < range.end)
            load_keys(next, stage ^ 1);
        cp_async_commit();
        Fragments<1, KEYS / 16> ds;
        score_family<Dims, T, Attributes>(ds, s, stage, lse2, neg_delta, params,
                                          {q.number, block.head, warp_row, n * KEYS, q.kv_len - q.q_len, q.kv_len,
                                           is_whole ? NULL : mask_of_head(family.mask, q.number, block.head)});
#pragma unroll
        for (int panel = 0; panel < S::PANELS; ++panel)
            gemm_registers<T>(dq[panel], ds, {lane_rows_16(lane), shared_address(s.k[stage]) + panel * S::K_PANEL, 0},
                              0);
        n = next;
    }
    cp_async_wait<0>();
    __syncthreads();
    uint16_t *to = family_head(params, params.dq, q, q.q_first, block.head) + warp_row * params.dq.stride_row;
#pragma unroll
    for (int panel = 0; panel < S::PANELS; ++panel)
        store_rows<T, true>(dq[panel], params.scale, shared_address(s.q) + panel * S::Q_PANEL + warp * ROWS_16_BYTES,
                            reinterpret_cast<T *>(to) + panel * PANEL_COLUMNS, params.dq.stride_row,
                            clamp_to_tile(q.q_len - warp_row), columns - panel * PANEL_COLUMNS);
}

} // namespace

} // namespace sm80_bwd

using namespace sm80_bwd;

extern "C" {

const fused_sm80_bwd_kernel fused_sm80_bwd_preprocess[2][2] = {
    {preprocess<__half, 64>, preprocess<__half, 128>}, {preprocess<__nv_bfloat16, 64>, preprocess<__nv_bfloat16, 128>}};

const fused_sm80_bwd_kernel fused_sm80_bwd_preprocess_rows[2] = {preprocess_rows<__half>,
                                                                 preprocess_rows<__nv_bfloat16>};

const fused_sm80_bwd_kernel fused_sm80_bwd_dsink = sum_dsink;
const fused_sm80_bwd_kernel fused_sm80_bwd_dbias_zeros = write_dbias_zeros;
const fused_sm80_bwd_kernel fused_sm80_bwd_dbias[3] = {round_dbias<__half>, round_dbias<__nv_bfloat16>,
                                                       round_dbias<float>};

#define DENSE_DQ(HEAD_DIM) \
    { \
        backward_dq<__half, HEAD_DIM>, backward_dq<__nv_bfloat16, HEAD_DIM> \
    }
#define FAMILY_DQ(DIMS, ATTRIBUTES) \
    { \
        backward_dq_family<__half, DIMS, ATTRIBUTES>, backward_dq_family<__nv_bfloat16, DIMS, ATTRIBUTES> \
    }
#define NO_DQ \
    { \
        NULL, NULL \
    }
using D64V128 = DqDims<64, 128>;
using D192V128 = DqDims<192, 128>;

const struct fused_sm80_bwd_dq_row fused_sm80_bwd_dq[] = {
    {64, 64, sizeof(DqSmem<64>), {DENSE_DQ(64), FAMILY_DQ(DqDims<64>, Family), FAMILY_DQ(DqDims<64>, Score)}},
    {128, 128, sizeof(DqSmem<128>), {DENSE_DQ(128), FAMILY_DQ(DqDims<128>, Family), FAMILY_DQ(DqDims<128>, Score)}},
    {192,
     192,
     sizeof(DqFamily<DqDims<192>>::Smem),
     {NO_DQ, FAMILY_DQ(DqDims<192>, Family), FAMILY_DQ(DqDims<192>, Score)}},
    {256,
     256,
     sizeof(DqFamily<DqDims<256>>::Smem),
     {NO_DQ, FAMILY_DQ(DqDims<256>, Family), FAMILY_DQ(DqDims<256>, Score)}},
    {64, 128, sizeof(DqFamily<D64V128>::Smem), {NO_DQ, FAMILY_DQ(D64V128, Family), NO_DQ}},
    {192, 128, sizeof(DqFamily<D192V128>::Smem), {NO_DQ, FAMILY_DQ(D192V128, Family), NO_DQ}},
    {0, 0, 0, {NO_DQ, NO_DQ, NO_DQ}},
};

} /* extern "C" */
