/* CUDA implementations that are wrong on purpose, loaded with --impl-lib, and one that is right: the CUDA versions of
 * wrong_cpu.c, fp16 and bf16, head dims up to 64.
 *
 * One plain tiled attention in fp32 arithmetic. A block of 256 threads (16 x 16) owns 64 rows (forward, dQ) or 64 keys
 * (dK and dV); a thread owns rows 4 ty .. 4 ty + 3 and columns tx, tx + 16, tx + 32, tx + 48 of every 64 x 64 product.
 * Tiles lie in shared memory as floats, 65 to a row so that columns do not share a bank. Shared memory, in tiles of
 * 16.25 KiB:  forward Q K V P,  dQ and dKdV Q K V dO P dS (98 KiB).
 *
 * Launches may be captured in a graph and replayed, so the number of the launch is counted on the device: the last
 * kernel of each launch adds one.
 */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdio>

#include "kernels/attention.h"

enum { TILE = 64, ROW = TILE + 1, TILE_FLOATS = TILE * ROW, THREADS = 256, MAX_HEAD_DIM = 64 };

enum fault {
    RIGHT,
    INVERTED_MASK,
    DIAGONAL,
    SCALE,
    LAST_TILE,
    LAST_ROWS,
    STALE,
    LAZY,
    NAN_ROW,
    HEADS,
    PAST_END,
    DK,
    NONDETERMINISTIC
};

struct arguments {
    struct attn_problem p;
    struct attn_tensors t;
    enum fault fault;
    float scale;
    int64_t keys;          /* number of keys that are read */
    float *delta;          /* [batch, q_heads, q_len] */
    const unsigned *calls; /* launches since prepare */
};

typedef float fragment[4][4];

__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void from_float(__half *to, float x) { *to = __float2half_rn(x); }
__device__ __forceinline__ void from_float(__nv_bfloat16 *to, float x) { *to = __float2bfloat16_rn(x); }

template <typename T> __device__ __forceinline__ T *row_of(const struct attn_tensor &t, int64_t b, int64_t h, int64_t i)
{
    return (T *)t.data + b * t.stride_batch + h * t.stride_head + i * t.stride_row;
}

__device__ __forceinline__ int my_row(int r) { return (int)(threadIdx.x / 16) * 4 + r; }
__device__ __forceinline__ int my_col(int c) { return (int)(threadIdx.x % 16) + 16 * c; }

template <typename T>
__device__ void load_tile(float *s_tile, const struct attn_tensor &t, int64_t b, int64_t h, int64_t row, int64_t rows,
                          int64_t head_dim)
{
    for (int n = threadIdx.x; n < TILE * TILE; n += THREADS) {
        const int i = n / TILE, c = n % TILE;
        s_tile[i * ROW + c] = i < rows && c < head_dim ? to_float(row_of<T>(t, b, h, row + i)[c]) : 0.0f;
    }
}

/* acc += A B^T, A B and A^T B of 64 x 64 tiles in shared memory. */
__device__ void multiply_nt(fragment &acc, const float *s_a, const float *s_b)
{
    for (int k = 0; k < TILE; k++)
        for (int r = 0; r < 4; r++)
            for (int c = 0; c < 4; c++)
                acc[r][c] += s_a[my_row(r) * ROW + k] * s_b[my_col(c) * ROW + k];
}

__device__ void multiply_nn(fragment &acc, const float *s_a, const float *s_b)
{
    for (int k = 0; k < TILE; k++)
        for (int r = 0; r < 4; r++)
            for (int c = 0; c < 4; c++)
                acc[r][c] += s_a[my_row(r) * ROW + k] * s_b[k * ROW + my_col(c)];
}

__device__ void multiply_tn(fragment &acc, const float *s_a, const float *s_b)
{
    for (int k = 0; k < TILE; k++)
        for (int r = 0; r < 4; r++)
            for (int c = 0; c < 4; c++)
                acc[r][c] += s_a[k * ROW + my_row(r)] * s_b[k * ROW + my_col(c)];
}

/* What row i sees under the fault: a range of keys, empty when first > last. */
__device__ void visible(const struct arguments &a, int64_t i, int64_t *first, int64_t *last)
{
    const int64_t diagonal = i + a.p.kv_len - a.p.q_len;
    *first = 0;
    *last = a.p.kv_len - 1;
    if (a.p.causal && a.fault == INVERTED_MASK)
        *first = max((int64_t)0, diagonal + 1);
    else if (a.p.causal)
        *last = min(*last, diagonal + (a.fault == DIAGONAL ? 1 : 0));
    *last = min(*last, a.keys - 1);
}

/* Does any of the rows [row, row + rows) see any of the keys [key, key + keys)? */
__device__ bool any_visible(const struct arguments &a, int64_t row, int64_t rows, int64_t key, int64_t keys)
{
    int64_t first, last, unused;
    visible(a, row, &first, &unused);
    visible(a, row + rows - 1, &unused, &last);
    return first < key + keys && last >= key;
}

__device__ int64_t output_head(const struct arguments &a, int64_t h, int64_t heads)
{
    return a.fault == HEADS && heads > 1 && h < 2 ? 1 - h : h;
}

__device__ bool is_stale(const struct arguments &a)
{
    return (a.fault == STALE && *a.calls > 0) || (a.fault == LAZY && *a.calls > 1);
}

/* Stores one row fragment of O or dQ, with the faults of the store. */
template <typename T>
__device__ void store_query_row(const struct arguments &a, const struct attn_tensor &t, int64_t b, int64_t h, int64_t i,
                                const float *values, float factor)
{
    if (i >= a.p.q_len || (a.fault == LAST_ROWS && i >= a.p.q_len - TILE))
        return;
    T *to = row_of<T>(t, b, output_head(a, h, a.p.q_heads), i);
    for (int c = 0; c < 4; c++) {
        if (my_col(c) >= a.p.head_dim)
            continue;
        float value = values[c] * factor;
        if (a.fault == NAN_ROW && h == a.p.q_heads - 1 && i == a.p.q_len / 2)
            value = __int_as_float(0x7fc00000);
        if (a.fault == NONDETERMINISTIC && *a.calls % 2 && my_col(c) == 0)
            value *= 1 + 1.0f / 128; /* one unit in the last place of bf16, in one column */
        from_float(&to[my_col(c)], value);
    }
}

template <typename T> __global__ void __launch_bounds__(THREADS) forward_kernel(const struct arguments a)
{
    extern __shared__ float s_memory[];
    float *s_q = s_memory, *s_k = s_q + TILE_FLOATS, *s_v = s_k + TILE_FLOATS, *s_p = s_v + TILE_FLOATS;
    const int64_t row = (int64_t)blockIdx.x * TILE, h = blockIdx.y, b = blockIdx.z;
    const int64_t rows = min((int64_t)TILE, a.p.q_len - row), kv = h / (a.p.q_heads / a.p.kv_heads);
    float row_max[4], row_sum[4];
    fragment out = {};
    if (is_stale(a))
        return;
    for (int r = 0; r < 4; r++) {
        row_max[r] = -INFINITY;
        row_sum[r] = 0;
    }
    load_tile<T>(s_q, a.t.q, b, h, row, rows, a.p.head_dim);
    for (int64_t key = 0; key < a.keys; key += TILE) {
        const int64_t keys = min((int64_t)TILE, a.keys - key);
        if (!any_visible(a, row, rows, key, keys))
            continue;
        __syncthreads();
        load_tile<T>(s_k, a.t.k, b, kv, key, keys, a.p.head_dim);
        load_tile<T>(s_v, a.t.v, b, kv, key, keys, a.p.head_dim);
        __syncthreads();
        fragment s = {};
        multiply_nt(s, s_q, s_k);
        for (int r = 0; r < 4; r++) {
            int64_t first, last;
            visible(a, row + my_row(r), &first, &last);
            float new_max = row_max[r], sum = 0;
            for (int c = 0; c < 4; c++) {
                const int64_t j = key + my_col(c);
                s[r][c] = j >= first && j <= last ? s[r][c] * a.scale : -INFINITY;
                new_max = fmaxf(new_max, s[r][c]);
            }
            for (int offset = 8; offset; offset /= 2)
                new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffffu, new_max, offset, 16));
            for (int c = 0; c < 4; c++) {
                s[r][c] = s[r][c] == -INFINITY ? 0.0f : expf(s[r][c] - new_max);
                sum += s[r][c];
                s_p[my_row(r) * ROW + my_col(c)] = s[r][c];
            }
            for (int offset = 8; offset; offset /= 2)
                sum += __shfl_xor_sync(0xffffffffu, sum, offset, 16);
            const float correction = new_max == -INFINITY ? 1.0f : expf(row_max[r] - new_max);
            row_sum[r] = row_sum[r] * correction + sum;
            row_max[r] = new_max;
            for (int c = 0; c < 4; c++)
                out[r][c] *= correction;
        }
        __syncthreads();
        multiply_nn(out, s_p, s_v);
    }
    for (int r = 0; r < 4; r++) {
        const int64_t i = row + my_row(r);
        store_query_row<T>(a, a.t.o, b, h, i, out[r], row_sum[r] > 0 ? 1 / row_sum[r] : 0.0f);
        if (i < a.p.q_len && my_col(0) == 0 && !(a.fault == LAST_ROWS && i >= a.p.q_len - TILE))
            a.t.lse[(b * a.p.q_heads + output_head(a, h, a.p.q_heads)) * a.p.q_len + i] =
                row_sum[r] > 0 ? row_max[r] + logf(row_sum[r]) : -INFINITY;
    }
}

/* D_i = sum over c of dO_ic O_ic: one warp for each row. */
template <typename T> __global__ void __launch_bounds__(THREADS) delta_kernel(const struct arguments a)
{
    const int64_t i = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32, h = blockIdx.y, b = blockIdx.z;
    if (i >= a.p.q_len)
        return;
    float sum = 0;
    for (int64_t c = threadIdx.x % 32; c < a.p.head_dim; c += 32)
        sum += to_float(row_of<T>(a.t.dout, b, h, i)[c]) * to_float(row_of<T>(a.t.o, b, h, i)[c]);
    for (int offset = 16; offset; offset /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (threadIdx.x % 32 == 0)
        a.delta[(b * a.p.q_heads + h) * a.p.q_len + i] = sum;
}

/* P and scale * dS of one tile into shared memory; Q, K, V and dO are there. Synchronises before it returns. */
__device__ void gradient_tile(const struct arguments &a, const float *s_q, const float *s_k, const float *s_v,
                              const float *s_dout, float *s_p, float *s_ds, int64_t b, int64_t h, int64_t row,
                              int64_t key)
{
    fragment s = {}, dp = {};
    multiply_nt(s, s_q, s_k);
    multiply_nt(dp, s_dout, s_v);
    for (int r = 0; r < 4; r++) {
        const int64_t i = row + my_row(r), at = (b * a.p.q_heads + h) * a.p.q_len + i;
        int64_t first = 1, last = 0;
        float lse = 0, delta = 0;
        if (i < a.p.q_len) {
            visible(a, i, &first, &last);
            lse = a.t.lse[at];
            delta = a.delta[at];
        }
        for (int c = 0; c < 4; c++) {
            const int64_t j = key + my_col(c);
            const bool seen = j >= first && j <= last && lse != -INFINITY;
            const float probability = seen ? expf(s[r][c] * a.scale - lse) : 0.0f;
            s_p[my_row(r) * ROW + my_col(c)] = probability;
            s_ds[my_row(r) * ROW + my_col(c)] = probability * (dp[r][c] - delta) * a.scale;
        }
    }
    __syncthreads();
}

template <typename T> __global__ void __launch_bounds__(THREADS) dq_kernel(const struct arguments a)
{
    extern __shared__ float s_memory[];
    float *s_q = s_memory, *s_dout = s_q + TILE_FLOATS, *s_k = s_dout + TILE_FLOATS, *s_v = s_k + TILE_FLOATS;
    float *s_p = s_v + TILE_FLOATS, *s_ds = s_p + TILE_FLOATS;
    const int64_t row = (int64_t)blockIdx.x * TILE, h = blockIdx.y, b = blockIdx.z;
    const int64_t rows = min((int64_t)TILE, a.p.q_len - row), kv = h / (a.p.q_heads / a.p.kv_heads);
    fragment dq = {};
    if (is_stale(a))
        return;
    load_tile<T>(s_q, a.t.q, b, h, row, rows, a.p.head_dim);
    load_tile<T>(s_dout, a.t.dout, b, h, row, rows, a.p.head_dim);
    for (int64_t key = 0; key < a.keys; key += TILE) {
        const int64_t keys = min((int64_t)TILE, a.keys - key);
        if (!any_visible(a, row, rows, key, keys))
            continue;
        __syncthreads();
        load_tile<T>(s_k, a.t.k, b, kv, key, keys, a.p.head_dim);
        load_tile<T>(s_v, a.t.v, b, kv, key, keys, a.p.head_dim);
        __syncthreads();
        gradient_tile(a, s_q, s_k, s_v, s_dout, s_p, s_ds, b, h, row, key);
        multiply_nn(dq, s_ds, s_k);
    }
    for (int r = 0; r < 4; r++)
        store_query_row<T>(a, a.t.dq, b, h, row + my_row(r), dq[r], 1.0f);
}

template <typename T> __global__ void __launch_bounds__(THREADS) dkdv_kernel(const struct arguments a)
{
    extern __shared__ float s_memory[];
    float *s_q = s_memory, *s_dout = s_q + TILE_FLOATS, *s_k = s_dout + TILE_FLOATS, *s_v = s_k + TILE_FLOATS;
    float *s_p = s_v + TILE_FLOATS, *s_ds = s_p + TILE_FLOATS;
    const int64_t key = (int64_t)blockIdx.x * TILE, kv = blockIdx.y, b = blockIdx.z;
    const int64_t keys = min((int64_t)TILE, a.keys - key), group = a.p.q_heads / a.p.kv_heads;
    fragment dk = {}, dv = {};
    if (is_stale(a))
        return;
    load_tile<T>(s_k, a.t.k, b, kv, key, keys, a.p.head_dim);
    load_tile<T>(s_v, a.t.v, b, kv, key, keys, a.p.head_dim);
    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
        for (int64_t row = 0; row < a.p.q_len; row += TILE) {
            const int64_t rows = min((int64_t)TILE, a.p.q_len - row);
            if (!any_visible(a, row, rows, key, keys))
                continue;
            __syncthreads();
            load_tile<T>(s_q, a.t.q, b, h, row, rows, a.p.head_dim);
            load_tile<T>(s_dout, a.t.dout, b, h, row, rows, a.p.head_dim);
            __syncthreads();
            gradient_tile(a, s_q, s_k, s_v, s_dout, s_p, s_ds, b, h, row, key);
            multiply_tn(dv, s_p, s_dout);
            multiply_tn(dk, s_ds, s_q);
        }
    const int64_t to_head = output_head(a, kv, a.p.kv_heads);
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++) {
            if (my_row(r) >= keys || my_col(c) >= a.p.head_dim)
                continue;
            from_float(&row_of<T>(a.t.dk, b, to_head, key + my_row(r))[my_col(c)],
                       dk[r][c] * (a.fault == DK ? 1.01f : 1.0f));
            from_float(&row_of<T>(a.t.dv, b, to_head, key + my_row(r))[my_col(c)], dv[r][c]);
        }
}

/* Ends each launch: counts it, and writes behind the last output where that is the fault. */
template <typename T> __global__ void finish_kernel(unsigned *calls, T *past_end)
{
    ++*calls;
    if (past_end)
        from_float(past_end, 1.0f);
}

static enum attn_status failed(cudaError_t error, const char *what, struct attn_message *why)
{
    snprintf(why->text, sizeof why->text, "%s: %s", what, cudaGetErrorString(error));
    return error == cudaErrorMemoryAllocation ? ATTN_NO_MEMORY : ATTN_ERROR;
}

static enum attn_status prepare(const struct attn_request *, const struct attn_tensors *, void **plan,
                                struct attn_message *why)
{
    cudaError_t error = cudaMalloc(plan, sizeof(unsigned));
    if (error == cudaSuccess)
        error = cudaMemset(*plan, 0, sizeof(unsigned));
    if (error == cudaSuccess)
        error = cudaDeviceSynchronize();
    return error == cudaSuccess ? ATTN_OK : failed(error, "the counter of launches", why);
}

static void release(void *plan) { cudaFree(plan); }

template <typename T>
static cudaError_t enqueue(const struct arguments &a, enum attn_mode mode, unsigned *calls, cudaStream_t stream)
{
    const int forward_bytes = 4 * TILE_FLOATS * (int)sizeof(float),
              backward_bytes = 6 * TILE_FLOATS * (int)sizeof(float);
    const unsigned batch = (unsigned)a.p.batch, heads = (unsigned)a.p.q_heads, kv_heads = (unsigned)a.p.kv_heads;
    const unsigned row_tiles = (unsigned)((a.p.q_len + TILE - 1) / TILE),
                   key_tiles = (unsigned)((a.keys + TILE - 1) / TILE);
    cudaError_t error;
    if (mode == ATTN_FWD) {
        error = cudaFuncSetAttribute(forward_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, forward_bytes);
        if (error != cudaSuccess)
            return error;
        forward_kernel<T><<<dim3(row_tiles, heads, batch), THREADS, forward_bytes, stream>>>(a);
    } else {
        error = cudaFuncSetAttribute(dq_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, backward_bytes);
        if (error == cudaSuccess)
            error = cudaFuncSetAttribute(dkdv_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, backward_bytes);
        if (error != cudaSuccess)
            return error;
        const unsigned delta_blocks = (unsigned)((a.p.q_len + THREADS / 32 - 1) / (THREADS / 32));
        delta_kernel<T><<<dim3(delta_blocks, heads, batch), THREADS, 0, stream>>>(a);
        dq_kernel<T><<<dim3(row_tiles, heads, batch), THREADS, backward_bytes, stream>>>(a);
        if (key_tiles > 0)
            dkdv_kernel<T><<<dim3(key_tiles, kv_heads, batch), THREADS, backward_bytes, stream>>>(a);
    }
    T *past_end = NULL;
    if (a.fault == PAST_END) {
        const struct attn_tensor *t = mode == ATTN_FWD ? &a.t.o : &a.t.dv;
        const int64_t last_head = (mode == ATTN_FWD ? a.p.q_heads : a.p.kv_heads) - 1;
        const int64_t last_row = (mode == ATTN_FWD ? a.p.q_len : a.p.kv_len) - 1;
        past_end = (T *)t->data + (a.p.batch - 1) * t->stride_batch + last_head * t->stride_head +
                   last_row * t->stride_row + a.p.head_dim;
    }
    finish_kernel<T><<<1, 1, 0, stream>>>(calls, past_end);
    return cudaGetLastError();
}

static enum attn_status launch(enum fault fault, const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run, struct attn_message *why)
{
    struct arguments a = {};
    a.p = *request->problem;
    a.t = *tensors;
    a.fault = fault;
    a.scale = fault == SCALE ? a.p.scale * 1.01f : a.p.scale;
    a.keys = fault != LAST_TILE ? a.p.kv_len : a.p.kv_len > 128 ? a.p.kv_len - 128 : 0;
    a.delta = (float *)run->workspace;
    a.calls = (const unsigned *)run->plan;
    const cudaStream_t stream = (cudaStream_t)run->stream;
    unsigned *calls = (unsigned *)run->plan;
    const cudaError_t error = a.p.dtype == ATTN_FP16 ? enqueue<__half>(a, request->mode, calls, stream)
                                                     : enqueue<__nv_bfloat16>(a, request->mode, calls, stream);
    return error == cudaSuccess ? ATTN_OK : failed(error, "launch", why);
}

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const char *reason = NULL;
    const enum attn_status status = attn_check_attributes(request, 0, why);
    if (status != ATTN_OK)
        return status;
    if (p->dtype == ATTN_FP32)
        reason = "takes fp16 and bf16 only";
    else if (p->head_dim > MAX_HEAD_DIM)
        reason = "takes head dims up to 64";
    else if (p->batch > 65535 || p->q_heads > 65535)
        reason = "takes at most 65535 heads and batches";
    else if (request->device->sm < 80 || request->device->smem_per_block_bytes < 6 * TILE_FLOATS * sizeof(float))
        reason = "needs an sm_80 or newer device with 98 KiB of shared memory";
    if (!reason)
        return ATTN_OK;
    snprintf(why->text, sizeof why->text, "%s", reason);
    return ATTN_UNSUPPORTED;
}

static size_t workspace_bytes(const struct attn_request *request)
{
    const struct attn_problem *p = request->problem;
    return request->mode == ATTN_FWD ? 0 : sizeof(float) * (size_t)(p->batch * p->q_heads * p->q_len);
}

#define LAUNCH(function, fault) \
    static enum attn_status function(const struct attn_request *request, const struct attn_tensors *tensors, \
                                     const struct attn_run *run, struct attn_message *why) \
    { \
        return launch(fault, request, tensors, run, why); \
    }

LAUNCH(launch_right, RIGHT)
LAUNCH(launch_inverted_mask, INVERTED_MASK)
LAUNCH(launch_diagonal, DIAGONAL)
LAUNCH(launch_scale, SCALE)
LAUNCH(launch_last_tile, LAST_TILE)
LAUNCH(launch_last_rows, LAST_ROWS)
LAUNCH(launch_stale, STALE)
LAUNCH(launch_lazy, LAZY)
LAUNCH(launch_nan_row, NAN_ROW)
LAUNCH(launch_heads, HEADS)
LAUNCH(launch_past_end, PAST_END)
LAUNCH(launch_dk, DK)
LAUNCH(launch_nondeterministic, NONDETERMINISTIC)

typedef enum attn_status launch_function(const struct attn_request *, const struct attn_tensors *,
                                         const struct attn_run *, struct attn_message *);

static struct attn_impl row(const char *name, const char *summary, launch_function *function)
{
    struct attn_impl impl = {};
    impl.abi = ATTN_ABI;
    impl.name = name;
    impl.summary = summary;
    impl.platform = ATTN_CUDA;
    impl.repeatable[ATTN_FWD] = impl.repeatable_deterministic[ATTN_FWD] = ATTN_O | ATTN_LSE;
    impl.repeatable[ATTN_BWD] = impl.repeatable_deterministic[ATTN_BWD] = ATTN_DQ | ATTN_DK | ATTN_DV;
    impl.accepts = accepts;
    impl.workspace_bytes = workspace_bytes;
    impl.prepare = prepare;
    impl.launch = function;
    impl.release = release;
    return impl;
}

extern "C" const struct attn_impl *fabench_impls(int abi)
{
    static const struct attn_impl table[] = {
        row("right_cuda", "right: plain tiled attention", launch_right),
        row("wrong_inverted_mask", "wrong: causal mask inverted", launch_inverted_mask),
        row("wrong_diagonal", "wrong: causal diagonal off by one", launch_diagonal),
        row("wrong_scale", "wrong: scale off by 1 %", launch_scale),
        row("wrong_last_tile", "wrong: last 128 keys skipped", launch_last_tile),
        row("wrong_last_rows", "wrong: last 64 rows not written", launch_last_rows),
        row("wrong_stale", "wrong: only the first launch writes", launch_stale),
        row("wrong_lazy", "wrong: only the first two launches write", launch_lazy),
        row("wrong_nan_row", "wrong: one row is NaN", launch_nan_row),
        row("wrong_heads", "wrong: heads 0 and 1 swapped", launch_heads),
        row("wrong_past_end", "wrong: writes one element past the end", launch_past_end),
        row("wrong_dk", "wrong: dK off by 1 %", launch_dk),
        row("wrong_nondeterministic", "wrong: promises repeatable bits and breaks it", launch_nondeterministic),
        {},
    };
    return abi == ATTN_ABI ? table : NULL;
}
