/* fused_v1, forward: FlashAttention's first algorithm (Dao et al. 2022, algorithm 1) on mma.sync, as its code had it.
 *
 * A block has one head. It goes over the keys in the outer loop, 256 at head_dim 64 and 128 at 128, and over all rows
 * of Q in the inner loop, 16 in a step. Each of its four warps has a quarter of the keys, whose K and V stay in its
 * registers during the inner loop. Of a step with the rows i and the keys j:
 *
 *   S_ij = Q_i K_j^T                  each warp the columns of its keys
 *   m' = max(m_i, rowmax(S_ij))       the warps' maxima meet in shared memory: the first exchange
 *   P_ij = exp(S_ij - m')             to the base 2; rounded to 16 bits, in registers
 *   l' = e^(m_i - m') l_i + rowsum(P_ij)
 *   O_i = (l_i e^(m_i - m') O_i + P_ij V_j) / l'      the warps' products meet in shared memory: the second exchange
 *
 * O_i (normalised, in fp32), m_i and l_i are read from device memory in every step and written back; with the last keys
 * that a row sees O_i is rounded to the output and LSE = m + ln l. S and P are never in device memory.
 *
 * Where there are fewer heads than the device runs blocks at a time, `splits` blocks share the rows of a head: every
 * splits-th step is a block's, in every turn of the outer loop, so that no two blocks meet in a row.
 *
 * A causal inner loop begins at the diagonal, and in it every score is compared with its row's limit. */
#include "kernels/v1/tile.cuh"

namespace v1 {
namespace {

constexpr int WARPS = V1_FWD_WARPS, THREADS = WARPS * WARP;

template <int HEAD_DIM> struct Fwd {
    static constexpr int KEYS = V1_KEYS(HEAD_DIM), WARP_KEYS = KEYS / WARPS;
    static constexpr int KEY_8 = WARP_KEYS / 8, KEY_16 = WARP_KEYS / 16, D_8 = HEAD_DIM / 8, D_16 = HEAD_DIM / 16;
    static constexpr int QUARTERS = HEAD_DIM / 4;            /* of a row, four floats each */
    static constexpr int PIECES = ROWS * QUARTERS / THREADS; /* of O_i, that a thread has */
    static constexpr int K_PANEL = KEYS * ROW_BYTES, Q_PANEL = ROWS * ROW_BYTES;

    struct Keys {
        unsigned char k[KEYS * HEAD_DIM * 2], v[KEYS * HEAD_DIM * 2];
    };
    struct Sums {
        float o[2][ROWS * HEAD_DIM]; /* O_i of two steps */
        float partial[WARPS][ROWS * HEAD_DIM];
    };
    struct Smem {
        alignas(1024) unsigned char q[2][ROWS * HEAD_DIM * 2];
        float2 rows[2][ROWS]; /* m_i, l_i of two steps */
        float max[WARPS][ROWS], sum[WARPS][ROWS];
        union {
            alignas(1024) Keys keys; /* before the inner loop */
            Sums sums;               /* in it */
        };
    };
};

/* K and V of the warp's keys as B operands. */
template <int HEAD_DIM> struct KeyFragments {
    uint32_t k[Fwd<HEAD_DIM>::KEY_16][Fwd<HEAD_DIM>::D_16][4], v[Fwd<HEAD_DIM>::KEY_16][Fwd<HEAD_DIM>::D_16][4];
};

/* What a block knows of its head, and of the turn of the outer loop. */
template <typename T> struct Head {
    int64_t first_row; /* row 0 of the head in params.sum and params.rows */
    const uint16_t *q, *k, *v;
    T *o;
    float *lse;
};

template <typename T> __device__ __forceinline__ Head<T> head_of(const Params &params, int index)
{
    const int batch = index / params.q_heads, head = index % params.q_heads, kv_head = head / params.group;
    return {index * params.q_rows,
            head_pointer<uint16_t>(params.q, batch, head),
            head_pointer<uint16_t>(params.k, batch, kv_head),
            head_pointer<uint16_t>(params.v, batch, kv_head),
            head_pointer<T>(params.o, batch, head),
            params.lse + static_cast<int64_t>(index) * params.q_len};
}

/* All threads: the keys from `key` on, through shared memory to registers. */
template <typename T, int HEAD_DIM>
__device__ __forceinline__ void load_keys(KeyFragments<HEAD_DIM> &keys, typename Fwd<HEAD_DIM>::Smem &smem,
                                          const Params &params, const Head<T> &head, int64_t key)
{
    using F = Fwd<HEAD_DIM>;
    const uint32_t lane = threadIdx.x % WARP, first = threadIdx.x / WARP * (F::WARP_KEYS * ROW_BYTES);
    const struct operand k = {lane_rows_8(lane), shared_address(smem.keys.k) + first, F::K_PANEL};
    const struct operand v = {lane_rows_16(lane), shared_address(smem.keys.v) + first, F::K_PANEL};

    load_rows<F::KEYS, HEAD_DIM, THREADS>(shared_address(smem.keys.k), head.k + key * params.k.stride_row,
                                          params.k.stride_row, params.kv_len - key);
    load_rows<F::KEYS, HEAD_DIM, THREADS>(shared_address(smem.keys.v), head.v + key * params.v.stride_row,
                                          params.v.stride_row, params.kv_len - key);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
#pragma unroll
    for (int n = 0; n < F::KEY_16; ++n)
#pragma unroll
        for (int d = 0; d < F::D_16; ++d) {
            ldmatrix_x4(keys.k[n][d], block_address(k, n, d));
            ldmatrix_x4_trans(keys.v[n][d], block_address(v, n, d));
        }
    __syncthreads(); /* the same memory holds sums from here on */
}

/* All threads start copying what step `step` reads. */
template <typename T, int HEAD_DIM>
__device__ __forceinline__ void copy_step(typename Fwd<HEAD_DIM>::Smem &smem, const Params &params, const Head<T> &head,
                                          int step, int stage, bool has_sums)
{
    using F = Fwd<HEAD_DIM>;
    const int64_t row = static_cast<int64_t>(step) * ROWS, in_sum = head.first_row + row;

    load_rows<ROWS, HEAD_DIM, THREADS>(shared_address(smem.q[stage]), head.q + row * params.q.stride_row,
                                       params.q.stride_row, params.q_len - row);
    if (has_sums) {
        const float *o = params.sum + in_sum * HEAD_DIM;
#pragma unroll
        for (int i = 0; i < F::PIECES; ++i) {
            const int at = (i * THREADS + threadIdx.x) * 4;
            cp_async_16(shared_address(smem.sums.o[stage]) + at * 4, o + at, true);
        }
        if (threadIdx.x < ROWS / 2)
            cp_async_16(shared_address(smem.rows[stage]) + threadIdx.x * 16, params.rows + in_sum * 2 + threadIdx.x * 4,
                        true);
    }
    cp_async_commit();
}

/* m of a row with the new keys. */
template <typename Smem> __device__ __forceinline__ float new_max(const Smem &smem, int row, float old)
{
    float top = old;
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp)
        top = fmaxf(top, smem.max[warp][row]);
    return top;
}

/* S, the maxima, P and P V of the warp's keys; what the others need of them goes to shared memory. */
template <typename T, int HEAD_DIM>
__device__ __forceinline__ void multiply(const KeyFragments<HEAD_DIM> &keys, typename Fwd<HEAD_DIM>::Smem &smem,
                                         const Params &params, int key, int step, int stage)
{
    using F = Fwd<HEAD_DIM>;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const struct operand q = {lane_rows_16(lane), shared_address(smem.q[stage]), F::Q_PANEL};
    Accumulator<1, F::KEY_8> s;
    Accumulator<1, F::D_8> o;
    Fragments<1, F::KEY_16> p;

    clear(s);
    clear(o);
#pragma unroll
    for (int d = 0; d < F::D_16; ++d) {
        uint32_t a[4];
        ldmatrix_x4(a, block_address(q, 0, d));
#pragma unroll
        for (int n = 0; n < F::KEY_8; ++n)
            mma_m16n8k16<T>(s.at[0][n], a, keys.k[n / 2][d][n % 2 * 2], keys.k[n / 2][d][n % 2 * 2 + 1]);
    }
    if (params.causal || key + F::KEYS > params.kv_len)
        mask(params, s.at[0], key + warp * F::WARP_KEYS, step * ROWS + lane / 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float top = quad_max(lane_max(s.at[0], half)) * params.scale_log2;
        if (lane % 4 == 0)
            smem.max[warp][lane / 4 + 8 * half] = top;
    }
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = lane / 4 + 8 * half;
        const float top = new_max(smem, row, key > 0 ? smem.rows[stage][row].x : -INFINITY);
        const float less = top == -INFINITY ? 0.0f : top;
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < F::KEY_8; ++n)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; ++i) {
                s.at[0][n][i] = exp2_approx(fmaf(s.at[0][n][i], params.scale_log2, -less));
                sum += s.at[0][n][i];
            }
        sum = quad_sum(sum);
        if (lane % 4 == 0)
            smem.sum[warp][row] = sum;
    }
    pack_fragments<T>(p, s);
#pragma unroll
    for (int k = 0; k < F::KEY_16; ++k)
#pragma unroll
        for (int n = 0; n < F::D_8; ++n)
            mma_m16n8k16<T>(o.at[0][n], p.at[0][k], keys.v[k][n / 2][n % 2 * 2], keys.v[k][n / 2][n % 2 * 2 + 1]);
    store_partial<HEAD_DIM>(smem.sums.partial[warp], o.at[0], 0);
}

/* O_i, m_i and l_i with the new keys, to device memory. */
template <typename T, int HEAD_DIM>
__device__ __forceinline__ void update_rows(const typename Fwd<HEAD_DIM>::Smem &smem, const Params &params,
                                            const Head<T> &head, int key, int step, int stage)
{
    using F = Fwd<HEAD_DIM>;
    const bool is_last = key + F::KEYS >= visible_keys(params, step * ROWS + ROWS - 1);
#pragma unroll
    for (int i = 0; i < F::PIECES; ++i) {
        const int at = i * THREADS + threadIdx.x, in_step = at / F::QUARTERS, quarter = at % F::QUARTERS;
        const int64_t row = static_cast<int64_t>(step) * ROWS + in_step;
        const float2 old = key > 0 ? smem.rows[stage][in_step] : make_float2(-INFINITY, 0.0f);
        const float top = new_max(smem, in_step, old.x);
        const float old_part = old.y * exp2_approx(old.x - (top == -INFINITY ? 0.0f : top));
        float sum = old_part;
#pragma unroll
        for (int warp = 0; warp < WARPS; ++warp)
            sum += smem.sum[warp][in_step];
        const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
        float4 o = sum_partials<HEAD_DIM, WARPS>(smem.sums.partial[0], in_step, quarter);
        if (key > 0) {
            const float4 o_old = *reinterpret_cast<const float4 *>(smem.sums.o[stage] + at * 4);
            o = make_float4(fmaf(old_part, o_old.x, o.x), fmaf(old_part, o_old.y, o.y), fmaf(old_part, o_old.z, o.z),
                            fmaf(old_part, o_old.w, o.w));
        }
        o = make_float4(o.x * inverse, o.y * inverse, o.z * inverse, o.w * inverse);
        if (!is_last) {
            *reinterpret_cast<float4 *>(params.sum + (head.first_row + row) * HEAD_DIM + quarter * 4) = o;
            if (quarter == 0)
                *reinterpret_cast<float2 *>(params.rows + (head.first_row + row) * 2) = make_float2(top, sum);
        } else if (row < params.q_len) {
            *reinterpret_cast<uint2 *>(head.o + row * params.o.stride_row + quarter * 4) =
                make_uint2(pack2<T>(o.x, o.y), pack2<T>(o.z, o.w));
            if (quarter == 0)
                head.lse[row] = sum == 0.0f ? -INFINITY : LN_2 * (top + log2f(sum));
        }
    }
}

template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(THREADS, V1_FWD_BLOCKS_PER_SM) forward(const __grid_constant__ Params params)
{
    using F = Fwd<HEAD_DIM>;
    extern __shared__ __align__(1024) unsigned char smem_bytes[];
    typename F::Smem &smem = *reinterpret_cast<typename F::Smem *>(smem_bytes);
    const Head<T> head = head_of<T>(params, blockIdx.x % params.heads_total);
    const int split = blockIdx.x / params.heads_total, steps = (params.q_len + ROWS - 1) / ROWS;
    KeyFragments<HEAD_DIM> keys;

    for (int key = 0; key < params.kv_len; key += F::KEYS) {
        const int begin = first_step(params, key);
        int step = begin + (split + params.splits - begin % params.splits) % params.splits, stage = 0;
        if (step >= steps)
            break;
        load_keys<T, HEAD_DIM>(keys, smem, params, head, key);
        copy_step<T, HEAD_DIM>(smem, params, head, step, stage, key > 0);
        for (; step < steps; step += params.splits, stage ^= 1) {
            cp_async_wait<0>();
            __syncthreads(); /* Q_i, O_i, m_i and l_i are there; the step before has been written */
            if (step + params.splits < steps)
                copy_step<T, HEAD_DIM>(smem, params, head, step + params.splits, stage ^ 1, key > 0);
            multiply<T, HEAD_DIM>(keys, smem, params, key, step, stage);
            __syncthreads();
            update_rows<T, HEAD_DIM>(smem, params, head, key, step, stage);
        }
        __syncthreads(); /* the rows are in device memory, the partial products have been read */
    }
}

} // namespace
} // namespace v1

static_assert(sizeof(v1::Fwd<64>::Smem) == 69 << 10 && sizeof(v1::Fwd<128>::Smem) == 73 << 10, "the list says it");

#define TILE(DIM, KEYS, KB) \
    { \
        {{"fwd_d" #DIM "_m16n" #KEYS, "16 x " #KEYS " tile, 4 warps along keys, 2 stages, " #KB " KB shared memory"}, \
         DIM, \
         V1_FWD_BLOCKS_PER_SM, \
         sizeof(v1::Fwd<DIM>::Smem)}, \
            {v1::forward<__half, DIM>, v1::forward<__nv_bfloat16, DIM>}, {NULL, NULL}, \
        { \
            NULL, NULL \
        } \
    }
const struct fused_v1_tile fused_v1_fwd_list[] = {TILE(64, 256, 69), TILE(128, 128, 73), {}};
