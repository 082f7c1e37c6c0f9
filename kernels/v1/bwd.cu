/* fused_v1, backward: FlashAttention's first algorithm (Dao et al. 2022, algorithm 4) on mma.sync, as its code had it.
 *
 * preprocess    D = rowsum(dO * O), LSE to the base 2, and zeros where blocks share dQ
 * backward      the loops below
 * convert       where blocks share dQ: dQ times the scale, rounded
 *
 * A block has one kv head. The outer loop goes over the keys, 256 at head_dim 64 and 128 at 128, the inner loop over
 * the rows of Q, 16 in a step, of all heads of the group. Each of the eight warps has an eighth of the keys: their K,
 * as an operand of S, and dK and dV are in its registers; V, and K as an operand of dQ, are in shared memory.
 *
 *   S_ij = Q_i K_j^T, dP_ij = dO_i V_j^T        each warp the columns of its keys
 *   P_ij = exp(S_ij - LSE_i), dS_ij = P_ij * (dP_ij - D_i)
 *   dQ_i += dS_ij K_j                           the warps' products meet in shared memory; fp32 in device memory
 *   dV_j += P_ij^T dO_i, dK_j += dS_ij^T Q_i    P and dS transposed by way of shared memory
 *
 * dQ_i is read from device memory in every step and written back; with the last keys that a row sees it is rounded to
 * the output. Where there are fewer heads than multiprocessors, blocks share a head, each with turns of the outer loop
 * of its own: then they add to dQ_i by atomics, in any order. */
#include "kernels/v1/tile.cuh"

namespace v1 {
namespace {

constexpr int WARPS = V1_BWD_WARPS, THREADS = WARPS * WARP, PASS_THREADS = V1_PASS_THREADS;

template <int HEAD_DIM> struct Bwd {
    static constexpr int KEYS = V1_KEYS(HEAD_DIM), WARP_KEYS = KEYS / WARPS;
    static constexpr int KEY_8 = WARP_KEYS / 8, KEY_16 = WARP_KEYS / 16, D_16 = HEAD_DIM / 16;
    static constexpr int QUARTERS = HEAD_DIM / 4;            /* of a row, four floats each */
    static constexpr int PIECES = ROWS * QUARTERS / THREADS; /* of dQ_i, that a thread has */
    static constexpr int PANELS = HEAD_DIM / PANEL_COLUMNS;
    static constexpr int K_PANEL = KEYS * ROW_BYTES, Q_PANEL = ROWS * ROW_BYTES;

    struct Smem {
        alignas(1024) unsigned char k[KEYS * HEAD_DIM * 2];
        unsigned char v[KEYS * HEAD_DIM * 2], q[2][ROWS * HEAD_DIM * 2], dout[2][ROWS * HEAD_DIM * 2];
        unsigned char p[ROWS * KEYS * 2], ds[ROWS * KEYS * 2]; /* panels of 64 keys */
        float partial[WARPS][ROWS * HEAD_DIM];                 /* of dQ_i; at the end dV and dK, to be stored */
        float lse2[2][ROWS], delta[2][ROWS];
    };
};

/* What a warp keeps during the inner loop. */
template <int HEAD_DIM> struct KeyState {
    uint32_t k[Bwd<HEAD_DIM>::KEY_16][Bwd<HEAD_DIM>::D_16][4]; /* B operand of S */
    Accumulator<Bwd<HEAD_DIM>::KEY_16, 8> dk[Bwd<HEAD_DIM>::PANELS], dv[Bwd<HEAD_DIM>::PANELS];
};

/* A query head. */
template <typename T> struct Head {
    int64_t first_row; /* row 0 of the head in params.sum and params.rows */
    const uint16_t *q, *dout;
    T *dq;
};

template <typename T> __device__ __forceinline__ Head<T> head_of(const Params &params, int batch, int head)
{
    return {(static_cast<int64_t>(batch) * params.q_heads + head) * params.q_rows,
            head_pointer<uint16_t>(params.q, batch, head), head_pointer<uint16_t>(params.dout, batch, head),
            head_pointer<T>(params.dq, batch, head)};
}

/* All threads start copying what step `step` reads. */
template <typename T, int HEAD_DIM>
__device__ __forceinline__ void copy_step(typename Bwd<HEAD_DIM>::Smem &smem, const Params &params, const Head<T> &head,
                                          int step, int stage)
{
    constexpr int HALF = THREADS / 2;
    const uint32_t thread = forget(threadIdx.x) % HALF;
    const int64_t row = static_cast<int64_t>(step) * ROWS, left = params.q_len - row;

    if (threadIdx.x < HALF) {
        load_rows<ROWS, HEAD_DIM, HALF>(shared_address(smem.q[stage]), head.q + row * params.q.stride_row,
                                        params.q.stride_row, left, thread);
        if (thread < 2 * ROWS / 4) { /* four rows in 16 bytes, of lse2 and of D */
            const float *from = params.rows + (thread < ROWS / 4 ? 0 : params.heads_total * params.q_rows);
            cp_async_16(shared_address(thread < ROWS / 4 ? smem.lse2[stage] : smem.delta[stage]) +
                            thread % (ROWS / 4) * 16,
                        from + head.first_row + row + thread % (ROWS / 4) * 4, true);
        }
    } else {
        load_rows<ROWS, HEAD_DIM, HALF>(shared_address(smem.dout[stage]), head.dout + row * params.dout.stride_row,
                                        params.dout.stride_row, left, thread);
    }
    cp_async_commit();
}

/* All threads: the keys from `key` on. */
template <int HEAD_DIM>
__device__ __forceinline__ void load_keys(KeyState<HEAD_DIM> &keys, typename Bwd<HEAD_DIM>::Smem &smem,
                                          const Params &params, int batch, int kv_head, int64_t key)
{
    using B = Bwd<HEAD_DIM>;
    const uint32_t first = threadIdx.x / WARP * (B::WARP_KEYS * ROW_BYTES);
    const struct operand k = {lane_rows_8(threadIdx.x % WARP), shared_address(smem.k) + first, B::K_PANEL};

    load_rows<B::KEYS, HEAD_DIM, THREADS>(shared_address(smem.k),
                                          head_pointer<uint16_t>(params.k, batch, kv_head) + key * params.k.stride_row,
                                          params.k.stride_row, params.kv_len - key);
    load_rows<B::KEYS, HEAD_DIM, THREADS>(shared_address(smem.v),
                                          head_pointer<uint16_t>(params.v, batch, kv_head) + key * params.v.stride_row,
                                          params.v.stride_row, params.kv_len - key);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
#pragma unroll
    for (int n = 0; n < B::KEY_16; ++n)
#pragma unroll
        for (int d = 0; d < B::D_16; ++d)
            ldmatrix_x4(keys.k[n][d], block_address(k, n, d));
#pragma unroll
    for (int panel = 0; panel < B::PANELS; ++panel) {
        clear(keys.dk[panel]);
        clear(keys.dv[panel]);
    }
}

/* Writes the warp's columns of P or dS, 16 rows, to their panels; fragments as an A operand has them. */
template <int HEAD_DIM>
__device__ __forceinline__ void store_columns(uint32_t panels, const Fragments<1, Bwd<HEAD_DIM>::KEY_16> &a)
{
    const int thread = forget(threadIdx.x), lane = thread % WARP, column = thread / WARP * Bwd<HEAD_DIM>::WARP_KEYS;
#pragma unroll
    for (int k = 0; k < Bwd<HEAD_DIM>::KEY_16; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            store_shared_32(panels + column / PANEL_COLUMNS * Bwd<HEAD_DIM>::Q_PANEL + lane % 4 * 4 +
                                swizzle_128b(lane / 4 + i % 2 * 8, column % PANEL_COLUMNS / 8 + 2 * k + i / 2),
                            a.at[0][k][i]);
}

/* The warp's columns of such panels, transposed: an A operand whose rows are keys. */
template <int HEAD_DIM> __device__ __forceinline__ struct operand transposed_columns(const unsigned char *panels)
{
    const uint32_t column = threadIdx.x / WARP * Bwd<HEAD_DIM>::WARP_KEYS;
    return {columns_right(lane_rows_8(threadIdx.x % WARP), column % PANEL_COLUMNS),
            shared_address(panels) + column / PANEL_COLUMNS * Bwd<HEAD_DIM>::Q_PANEL, 0};
}

/* P and dS of the warp's keys, rounded, to shared memory; dS also as an A operand whose rows are those of Q. */
template <typename T, int HEAD_DIM>
__device__ __forceinline__ void score(Fragments<1, Bwd<HEAD_DIM>::KEY_16> &fragments, const KeyState<HEAD_DIM> &keys,
                                      typename Bwd<HEAD_DIM>::Smem &smem, const Params &params, int key, int step,
                                      int stage)
{
    using B = Bwd<HEAD_DIM>;
    const int thread = forget(threadIdx.x), warp = thread / WARP, lane = thread % WARP;
    const struct operand q = {lane_rows_16(lane), shared_address(smem.q[stage]), B::Q_PANEL};
    const struct operand dout = {lane_rows_16(lane), shared_address(smem.dout[stage]), B::Q_PANEL};
    const struct operand v = {lane_rows_8(lane), shared_address(smem.v) + warp * (B::WARP_KEYS * ROW_BYTES),
                              B::K_PANEL};
    Accumulator<1, B::KEY_8> p, ds;

    clear(p);
#pragma unroll
    for (int d = 0; d < B::D_16; ++d) {
        uint32_t a[4];
        ldmatrix_x4(a, block_address(q, 0, d));
#pragma unroll
        for (int n = 0; n < B::KEY_8; ++n)
            mma_m16n8k16<T>(p.at[0][n], a, keys.k[n / 2][d][n % 2 * 2], keys.k[n / 2][d][n % 2 * 2 + 1]);
    }
    clear(ds);
#pragma unroll
    for (int d = 0; d < B::D_16; ++d) {
        uint32_t a[4], b[4];
        ldmatrix_x4(a, block_address(dout, 0, d));
#pragma unroll
        for (int n = 0; n < B::KEY_8; ++n) {
            if (n % 2 == 0)
                ldmatrix_x4(b, block_address(v, n / 2, d));
            mma_m16n8k16<T>(ds.at[0][n], a, b[n % 2 * 2], b[n % 2 * 2 + 1]);
        }
    }
    if (params.causal || key + B::KEYS > params.kv_len)
        mask(params, p.at[0], key + warp * B::WARP_KEYS, step * ROWS + lane / 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float lse2 = smem.lse2[stage][lane / 4 + 8 * half], delta = smem.delta[stage][lane / 4 + 8 * half];
#pragma unroll
        for (int n = 0; n < B::KEY_8; ++n)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; ++i) {
                p.at[0][n][i] = exp2_approx(fmaf(p.at[0][n][i], params.scale_log2, -lse2));
                ds.at[0][n][i] = p.at[0][n][i] * (ds.at[0][n][i] - delta);
            }
    }
    pack_fragments<T>(fragments, p);
    store_columns<HEAD_DIM>(shared_address(smem.p), fragments);
    pack_fragments<T>(fragments, ds);
    store_columns<HEAD_DIM>(shared_address(smem.ds), fragments);
    __syncwarp(); /* a warp's columns are read by the warp alone */
}

/* The warp's part of dQ_i to shared memory. */
template <typename T, int HEAD_DIM>
__device__ __forceinline__ void multiply_dq(const Fragments<1, Bwd<HEAD_DIM>::KEY_16> &ds,
                                            typename Bwd<HEAD_DIM>::Smem &smem)
{
    using B = Bwd<HEAD_DIM>;
    const int thread = forget(threadIdx.x), warp = thread / WARP, lane = thread % WARP;
    const uint32_t k = shared_address(smem.k) + warp * (B::WARP_KEYS * ROW_BYTES);
#pragma unroll
    for (int panel = 0; panel < B::PANELS; ++panel) {
        Accumulator<1, 8> dq;
        clear(dq);
        gemm_registers<T>(dq, ds, {lane_rows_16(lane), k + panel * B::K_PANEL, 0}, 0);
        store_partial<HEAD_DIM>(smem.partial[warp], dq.at[0], panel * 8);
    }
}

/* dV and dK of the warp's keys with the rows of the step. */
template <typename T, int HEAD_DIM>
__device__ __forceinline__ void multiply_keys(KeyState<HEAD_DIM> &keys, typename Bwd<HEAD_DIM>::Smem &smem, int stage)
{
    using B = Bwd<HEAD_DIM>;
    const int lane = forget(threadIdx.x) % WARP;
    const struct operand p_columns = transposed_columns<HEAD_DIM>(smem.p);
    const struct operand ds_columns = transposed_columns<HEAD_DIM>(smem.ds);
#pragma unroll
    for (int panel = 0; panel < B::PANELS; ++panel) {
        gemm_by_rows<1, T>(keys.dv[panel], p_columns,
                           {lane_rows_16(lane), shared_address(smem.dout[stage]) + panel * B::Q_PANEL, 0});
        gemm_by_rows<1, T>(keys.dk[panel], ds_columns,
                           {lane_rows_16(lane), shared_address(smem.q[stage]) + panel * B::Q_PANEL, 0});
    }
}

/* dQ_i so far, of a block that has all keys of its head; zeros with the first ones. */
template <typename T, int HEAD_DIM>
__device__ __forceinline__ void load_dq(float4 (&dq)[Bwd<HEAD_DIM>::PIECES], const Params &params, const Head<T> &head,
                                        int key, int step)
{
    const float *from = params.sum + (head.first_row + static_cast<int64_t>(step) * ROWS) * HEAD_DIM;
#pragma unroll
    for (int i = 0; i < Bwd<HEAD_DIM>::PIECES; ++i)
        dq[i] = key > 0 ? __ldcg(reinterpret_cast<const float4 *>(from) + i * THREADS + forget(threadIdx.x))
                        : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

/* dQ_i with these keys, to device memory. */
template <typename T, int HEAD_DIM>
__device__ __forceinline__ void update_dq(const float4 (&old)[Bwd<HEAD_DIM>::PIECES],
                                          const typename Bwd<HEAD_DIM>::Smem &smem, const Params &params,
                                          const Head<T> &head, int key, int step)
{
    using B = Bwd<HEAD_DIM>;
    const bool is_last = key + B::KEYS >= visible_keys(params, step * ROWS + ROWS - 1);
    const int thread = forget(threadIdx.x);
#pragma unroll
    for (int i = 0; i < B::PIECES; ++i) {
        const int at = i * THREADS + thread, in_step = at / B::QUARTERS, quarter = at % B::QUARTERS;
        const int64_t row = static_cast<int64_t>(step) * ROWS + in_step;
        const float4 part = sum_partials<HEAD_DIM, WARPS>(smem.partial[0], in_step, quarter);
        const float4 dq = make_float4(old[i].x + part.x, old[i].y + part.y, old[i].z + part.z, old[i].w + part.w);
        if (!is_last)
            *reinterpret_cast<float4 *>(params.sum + (head.first_row + row) * HEAD_DIM + quarter * 4) = dq;
        else if (row < params.q_len)
            *reinterpret_cast<uint2 *>(head.dq + row * params.dq.stride_row + quarter * 4) = make_uint2(
                pack2<T>(dq.x * params.scale, dq.y * params.scale), pack2<T>(dq.z * params.scale, dq.w * params.scale));
    }
}

/* The same where blocks share it: neighbouring threads add neighbouring floats. */
template <typename T, int HEAD_DIM>
__device__ __forceinline__ void add_dq(const typename Bwd<HEAD_DIM>::Smem &smem, const Params &params,
                                       const Head<T> &head, int step)
{
    float *to = params.sum + (head.first_row + static_cast<int64_t>(step) * ROWS) * HEAD_DIM;
#pragma unroll
    for (int at = forget(threadIdx.x); at < ROWS * HEAD_DIM; at += THREADS) {
        const int row = at / HEAD_DIM, column = at % HEAD_DIM;
        const int from = partial_offset<HEAD_DIM>(row, column / 8) + column % 8;
        float sum = 0.0f;
#pragma unroll
        for (int warp = 0; warp < WARPS; ++warp)
            sum += smem.partial[warp][from];
        atomicAdd(to + at, sum);
    }
}

/* The inner loop over the rows of a head. */
template <typename T, int HEAD_DIM>
__device__ __forceinline__ void go_over_rows(KeyState<HEAD_DIM> &keys, typename Bwd<HEAD_DIM>::Smem &smem,
                                             const Params &params, const Head<T> &head, int key)
{
    const int steps = (params.q_len + ROWS - 1) / ROWS;
    int step = first_step(params, key), stage = 0;

    if (step < steps)
        copy_step<T, HEAD_DIM>(smem, params, head, step, stage);
    for (; step < steps; ++step, stage ^= 1) {
        Fragments<1, Bwd<HEAD_DIM>::KEY_16> ds;
        float4 old[Bwd<HEAD_DIM>::PIECES];
        cp_async_wait<0>();
        __syncthreads(); /* Q_i and dO_i are there; dQ of the step before has been written */
        if (step + 1 < steps)
            copy_step<T, HEAD_DIM>(smem, params, head, step + 1, stage ^ 1);
        score<T, HEAD_DIM>(ds, keys, smem, params, key, step, stage);
        multiply_dq<T, HEAD_DIM>(ds, smem);
        if (params.splits == 1)
            load_dq<T, HEAD_DIM>(old, params, head, key, step);
        multiply_keys<T, HEAD_DIM>(keys, smem, stage);
        __syncthreads();
        if (params.splits == 1)
            update_dq<T, HEAD_DIM>(old, smem, params, head, key, step);
        else
            add_dq<T, HEAD_DIM>(smem, params, head, step);
    }
    __syncthreads(); /* the stages and the partial products have been read, dQ is in device memory */
}

/* dK and dV of the warp's keys to the outputs. */
template <typename T, int HEAD_DIM>
__device__ __forceinline__ void store_keys(KeyState<HEAD_DIM> &keys, typename Bwd<HEAD_DIM>::Smem &smem,
                                           const Params &params, int batch, int kv_head, int64_t key)
{
    using B = Bwd<HEAD_DIM>;
    const int warp = threadIdx.x / WARP;
    const int64_t first = key + warp * B::WARP_KEYS, rest = params.kv_len - first;
    const int left = static_cast<int>(rest < 0 ? 0 : rest > B::WARP_KEYS ? B::WARP_KEYS : rest);
    const uint32_t panel_bytes = B::WARP_KEYS * ROW_BYTES;
    const uint32_t own = shared_address(smem.partial[0]) + warp * (B::PANELS * panel_bytes);
    T *dk = head_pointer<T>(params.dk, batch, kv_head) + first * params.dk.stride_row;
    T *dv = head_pointer<T>(params.dv, batch, kv_head) + first * params.dv.stride_row;
#pragma unroll
    for (int panel = 0; panel < B::PANELS; ++panel)
        store_rows(keys.dv[panel], 1.0f, own + panel * panel_bytes, dv + panel * PANEL_COLUMNS, params.dv.stride_row,
                   left);
    __syncwarp();
#pragma unroll
    for (int panel = 0; panel < B::PANELS; ++panel)
        store_rows(keys.dk[panel], params.scale, own + panel * panel_bytes, dk + panel * PANEL_COLUMNS,
                   params.dk.stride_row, left);
}

template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(THREADS, 1) backward(const __grid_constant__ Params params)
{
    using B = Bwd<HEAD_DIM>;
    extern __shared__ __align__(1024) unsigned char smem_bytes[];
    typename B::Smem &smem = *reinterpret_cast<typename B::Smem *>(smem_bytes);
    const int heads = params.heads_total / params.group, split = blockIdx.x / heads, number = blockIdx.x % heads;
    const int batch = number / params.kv_heads, kv_head = number % params.kv_heads;
    KeyState<HEAD_DIM> keys;

    for (int64_t key = static_cast<int64_t>(split) * B::KEYS; key < params.kv_len;
         key += static_cast<int64_t>(params.splits) * B::KEYS) {
        load_keys<HEAD_DIM>(keys, smem, params, batch, kv_head, key);
        for (int head = kv_head * params.group; head < (kv_head + 1) * params.group; ++head)
            go_over_rows<T, HEAD_DIM>(keys, smem, params, head_of<T>(params, batch, head), static_cast<int>(key));
        store_keys<T, HEAD_DIM>(keys, smem, params, batch, kv_head, key);
        __syncthreads(); /* dK and dV have left shared memory */
    }
}

/* ---- before and after it ----------------------------------------------------------------------------------------- */

/* A thread has 8 columns of a row of all heads, whose number is counted with the padded rows. */
template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(PASS_THREADS) preprocess(const __grid_constant__ Params params)
{
    constexpr int LANES = HEAD_DIM / 8;
    const int64_t index = static_cast<int64_t>(blockIdx.x) * (PASS_THREADS / LANES) + threadIdx.x / LANES;
    const int64_t head_index = index / params.q_rows, row = index % params.q_rows;
    const int column = threadIdx.x % LANES * 8;
    const bool is_row = head_index < params.heads_total && row < params.q_len;
    float sum = 0.0f;

    if (is_row) {
        const int64_t batch = head_index / params.q_heads, head = head_index % params.q_heads;
        const uint16_t *o = head_pointer<uint16_t>(params.o, batch, head) + row * params.o.stride_row + column;
        const uint16_t *dout = head_pointer<uint16_t>(params.dout, batch, head) + row * params.dout.stride_row + column;
        sum = dot8<T>(*reinterpret_cast<const uint4 *>(o), *reinterpret_cast<const uint4 *>(dout));
    }
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (head_index >= params.heads_total)
        return;
    if (column == 0) { /* a row that sees no key, or that is none: then P is 0 */
        const float lse = is_row ? params.lse[head_index * params.q_len + row] : -INFINITY;
        params.rows[index] = lse == -INFINITY ? INFINITY : lse * LOG2_E;
        params.rows[params.heads_total * params.q_rows + index] = lse == -INFINITY ? 0.0f : sum;
    }
    if (params.splits > 1) {
        float4 *zeros = reinterpret_cast<float4 *>(params.sum + index * HEAD_DIM + column);
        zeros[0] = zeros[1] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
}

template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(PASS_THREADS) convert(const __grid_constant__ Params params)
{
    constexpr int LANES = HEAD_DIM / 8;
    const int64_t index = static_cast<int64_t>(blockIdx.x) * (PASS_THREADS / LANES) + threadIdx.x / LANES;
    const int64_t head_index = index / params.q_rows, row = index % params.q_rows;
    const int64_t batch = head_index / params.q_heads, head = head_index % params.q_heads;
    const int column = threadIdx.x % LANES * 8;

    if (head_index >= params.heads_total || row >= params.q_len)
        return;
    const float4 *from = reinterpret_cast<const float4 *>(params.sum + index * HEAD_DIM + column);
    const float4 a = from[0], b = from[1];
    const float scale = params.scale;
    *reinterpret_cast<uint4 *>(head_pointer<T>(params.dq, batch, head) + row * params.dq.stride_row + column) =
        make_uint4(pack2<T>(a.x * scale, a.y * scale), pack2<T>(a.z * scale, a.w * scale),
                   pack2<T>(b.x * scale, b.y * scale), pack2<T>(b.z * scale, b.w * scale));
}

} // namespace
} // namespace v1

static_assert(sizeof(v1::Bwd<64>::Smem) == 121 << 10 && sizeof(v1::Bwd<128>::Smem) == 153 << 10, "the list says it");

#define KERNELS(NAME, DIM) \
    { \
        v1::NAME<__half, DIM>, v1::NAME<__nv_bfloat16, DIM> \
    }
#define TILE(DIM, KEYS, KB) \
    { \
        {{"bwd_d" #DIM "_m16n" #KEYS, "16 x " #KEYS " tile, 8 warps along keys, 2 stages, " #KB " KB shared memory"}, \
         DIM, \
         V1_BWD_BLOCKS_PER_SM, \
         sizeof(v1::Bwd<DIM>::Smem)}, \
            KERNELS(backward, DIM), KERNELS(preprocess, DIM), KERNELS(convert, DIM) \
    }
const struct fused_v1_tile fused_v1_bwd_list[] = {TILE(64, 256, 121), TILE(128, 128, 153), {}};
