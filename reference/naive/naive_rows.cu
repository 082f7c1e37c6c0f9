/* The row kernels of naive, see naive_rows.h.
 *
 * A row is held in the registers of THREADS threads, VECTORS 16-byte vectors each, so that it is read once and written
 * once; thread t has vectors t, t + THREADS, ... With THREADS = 32 a block of four warps works on four rows, else the
 * block works on one. Rows that are too long for every instance of the kernels are read twice. Problems with attributes
 * have kernels of their own, which read every row from memory in each step: a row a block, an element a thread. */
#include "reference/naive/naive_rows.h"

#include "kernels/device/arithmetic.cuh"
#include "reference/elements.h"
#include "reference/rows.cuh"
#include "reference/status.h"

/* A score matrix, as the kernels take it. */
struct matrix_shape {
    int64_t rows, pitch;
    struct key_mask mask;
};

template <typename T> struct vector_of {
    enum { COUNT = 16 / sizeof(T) };
};

template <typename T> union vector_bits {
    uint4 bits;
    T element[vector_of<T>::COUNT];
    __device__ vector_bits() : bits(make_uint4(0, 0, 0, 0)) {}
};

enum { WARP_ROW_BLOCK = 128, LONG_ROW_THREADS = 1024, MASKED_ROW_THREADS = 256 };

/* Threads of a block, and how many blocks a multiprocessor should hold: 1024 threads, so 64 registers each. */
static constexpr int block_threads(int row_threads) { return row_threads == 32 ? WARP_ROW_BLOCK : row_threads; }
static constexpr int row_occupancy(int row_threads) { return 1024 / block_threads(row_threads); }

template <bool MAXIMUM> __device__ __forceinline__ float warp_reduce(float x)
{
    for (int lane = 16; lane > 0; lane >>= 1) {
        const float other = __shfl_xor_sync(0xffffffffu, x, lane);
        x = MAXIMUM ? fmaxf(x, other) : x + other;
    }
    return x;
}

/* Two sums over the threads of a row, the same in all of them. `shared` has a slot per warp. */
template <int THREADS> __device__ __forceinline__ void sum_over_row(float *a, float *b, float2 *shared)
{
    *a = warp_reduce<false>(*a);
    *b = warp_reduce<false>(*b);
    if (THREADS == 32)
        return;
    __syncthreads(); /* the slots may still be read for the previous row */
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = make_float2(*a, *b);
    __syncthreads();
    const int lane = threadIdx.x % 32;
    const float2 part = lane < THREADS / 32 ? shared[lane] : make_float2(0, 0);
    *a = warp_reduce<false>(part.x);
    *b = warp_reduce<false>(part.y);
}

/* A row, how many of its keys are visible, and this thread's number among the row's. */
struct row_place {
    int64_t row, visible;
    int thread;
};

template <int THREADS> __device__ __forceinline__ row_place place_of(const struct matrix_shape &shape, int64_t block)
{
    row_place place;
    place.thread = threadIdx.x % THREADS;
    place.row = block * (THREADS == 32 ? WARP_ROW_BLOCK / 32 : 1) + threadIdx.x / THREADS;
    int64_t first, end;
    const int64_t head = quotient(place.row, shape.mask.q_len);
    visible_keys(shape.mask, place.row - head * shape.mask.q_len, &first, &end);
    place.visible = end > 0 ? end : 0;
    return place;
}

template <int THREADS> __device__ __forceinline__ int64_t row_blocks(int64_t rows)
{
    const int64_t per_block = THREADS == 32 ? WARP_ROW_BLOCK / 32 : 1;
    return (rows + per_block - 1) / per_block;
}

/* 2^((x - maximum) log2 e). In one multiply-add where x has 16 bits: its rounding, 2^-24 of the largest logit, is far
 * below that of x. */
template <typename T> __device__ __forceinline__ float softmax_weight(float x, float maximum)
{
    constexpr float LOG2E = 1.4426950408889634f;
    return device::exp2_approx(sizeof(T) == 2 ? fmaf(x, LOG2E, -maximum * LOG2E) : (x - maximum) * LOG2E);
}

/* Each warp of a row passes the maximum of its part and the sum of the exponentials relative to it, and gets maximum
 * and sum of the row. One barrier; a maximum first and then a sum would need two. */
template <typename T, int THREADS>
__device__ __forceinline__ void combine_warps(float *maximum, float *sum, float2 *shared)
{
    if (THREADS == 32)
        return;
    __syncthreads(); /* the slots may still be read for the previous row */
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = make_float2(*maximum, *sum);
    __syncthreads();
    const int lane = threadIdx.x % 32;
    const float2 part = lane < THREADS / 32 ? shared[lane] : make_float2(-INFINITY, 0);
    *maximum = warp_reduce<true>(part.x);
    *sum = warp_reduce<false>(part.y * softmax_weight<T>(part.x, *maximum));
}

/* 16 bytes of results. */
template <typename T> __device__ __forceinline__ uint4 packed(const float (&x)[4])
{
    return make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]), __float_as_uint(x[3]));
}

template <typename T> __device__ __forceinline__ uint4 packed(const float (&x)[8])
{
    return make_uint4(device::pack2<T>(x[0], x[1]), device::pack2<T>(x[2], x[3]), device::pack2<T>(x[4], x[5]),
                      device::pack2<T>(x[6], x[7]));
}

/* matrix: S in, P out. lse may be NULL. Masked elements are -inf, whose exponential is 0. A warp takes exponentials
 * relative to its own maximum and rescales them to the row's at the end. */
template <typename T, int THREADS, int VECTORS>
__global__ void __launch_bounds__(block_threads(THREADS), row_occupancy(THREADS))
    softmax_rows(T *matrix, float *lse, struct matrix_shape shape)
{
    constexpr int COUNT = vector_of<T>::COUNT;
    __shared__ float2 shared[THREADS / 32];
    for (int64_t block = blockIdx.x; block < row_blocks<THREADS>(shape.rows); block += gridDim.x) {
        const row_place at = place_of<THREADS>(shape, block);
        if (at.row >= shape.rows)
            return; /* a whole warp of a block of warp rows */
        T *const row = matrix + at.row * shape.pitch;
        const int visible = (int)at.visible;
        vector_bits<T> in[VECTORS];
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            const int column = (v * THREADS + at.thread) * COUNT;
            if (column < visible)
                in[v].bits = *reinterpret_cast<const uint4 *>(row + column);
        }
        float x[VECTORS][COUNT], maximum = -INFINITY;
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            const int column = (v * THREADS + at.thread) * COUNT;
#pragma unroll
            for (int e = 0; e < COUNT; e++) {
                x[v][e] = column + e < visible ? to_float(in[v].element[e]) : -INFINITY;
                maximum = fmaxf(maximum, x[v][e]);
            }
        }
        maximum = warp_reduce<true>(maximum);
        const float warp_maximum = maximum, origin = maximum > -INFINITY ? maximum : 0;
        float sum = 0;
#pragma unroll
        for (int v = 0; v < VECTORS; v++)
#pragma unroll
            for (int e = 0; e < COUNT; e++) {
                x[v][e] = softmax_weight<T>(x[v][e], origin);
                sum += x[v][e];
            }
        sum = warp_reduce<false>(sum);
        combine_warps<T, THREADS>(&maximum, &sum, shared);
        const float factor = visible > 0 ? softmax_weight<T>(warp_maximum, maximum) / sum : 0;
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            const int column = (v * THREADS + at.thread) * COUNT;
#pragma unroll
            for (int e = 0; e < COUNT; e++)
                x[v][e] *= factor;
            if (column < shape.pitch)
                *reinterpret_cast<uint4 *>(row + column) = packed<T>(x[v]);
        }
        if (lse && at.thread == 0)
            lse[at.row] = visible > 0 ? maximum + logf(sum) : -INFINITY;
    }
}

/* gradient: dP in, dS out.
 * D is the mean of dP weighted by the stored P, not rowsum(dO * O): O was computed from a P whose rounded row does not
 * sum to 1, and the difference times dP would be an error in every dS of the row. It is computed relative to the row's
 * first dP, which makes it exact for equal dP: a constant V gives dS = 0, the right result. */
template <typename T, int THREADS, int VECTORS>
__global__ void __launch_bounds__(block_threads(THREADS), row_occupancy(THREADS))
    gradient_rows(const T *p, T *gradient, struct matrix_shape shape)
{
    constexpr int COUNT = vector_of<T>::COUNT;
    __shared__ float2 shared[THREADS / 32];
    for (int64_t block = blockIdx.x; block < row_blocks<THREADS>(shape.rows); block += gridDim.x) {
        const row_place at = place_of<THREADS>(shape, block);
        if (at.row >= shape.rows)
            return;
        const T *const p_row = p + at.row * shape.pitch;
        T *const row = gradient + at.row * shape.pitch;
        const int visible = (int)at.visible;
        const float origin = visible > 0 ? to_float(row[0]) : 0;
        vector_bits<T> weight[VECTORS], in[VECTORS];
        float sum = 0, weights = 0;
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            const int column = (v * THREADS + at.thread) * COUNT;
            if (column < visible) {
                weight[v].bits = *reinterpret_cast<const uint4 *>(p_row + column);
                in[v].bits = *reinterpret_cast<const uint4 *>(row + column);
            }
        }
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            const int column = (v * THREADS + at.thread) * COUNT;
#pragma unroll
            for (int e = 0; e < COUNT; e++)
                if (column + e < visible) {
                    weights += to_float(weight[v].element[e]);
                    sum += to_float(weight[v].element[e]) * (to_float(in[v].element[e]) - origin);
                }
        }
        sum_over_row<THREADS>(&sum, &weights, shared);
        const float delta = sum / weights; /* used only where a key is visible */
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            const int column = (v * THREADS + at.thread) * COUNT;
            float out[COUNT];
#pragma unroll
            for (int e = 0; e < COUNT; e++)
                out[e] = column + e < visible
                             ? to_float(weight[v].element[e]) * ((to_float(in[v].element[e]) - origin) - delta)
                             : 0;
            if (column < shape.pitch)
                *reinterpret_cast<uint4 *>(row + column) = packed<T>(out);
        }
    }
}

/* Rows too long for registers: read twice, one element a thread at a time. */
template <typename T>
__global__ void __launch_bounds__(LONG_ROW_THREADS) softmax_long_rows(T *matrix, float *lse, struct matrix_shape shape)
{
    __shared__ float2 shared[LONG_ROW_THREADS / 32];
    for (int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
        const row_place at = place_of<LONG_ROW_THREADS>(shape, row);
        T *const x = matrix + row * shape.pitch;
        float maximum = -INFINITY, sum = 0;
        for (int64_t j = at.thread; j < at.visible; j += LONG_ROW_THREADS)
            maximum = fmaxf(maximum, to_float(x[j]));
        maximum = warp_reduce<true>(maximum);
        const float origin = maximum > -INFINITY ? maximum : 0;
        for (int64_t j = at.thread; j < at.visible; j += LONG_ROW_THREADS)
            sum += softmax_weight<T>(to_float(x[j]), origin);
        sum = warp_reduce<false>(sum);
        combine_warps<T, LONG_ROW_THREADS>(&maximum, &sum, shared);
        for (int64_t j = at.thread; j < shape.pitch; j += LONG_ROW_THREADS)
            x[j] = from_float<T>(j < at.visible ? softmax_weight<T>(to_float(x[j]), maximum) / sum : 0);
        if (lse && at.thread == 0)
            lse[row] = at.visible > 0 ? maximum + logf(sum) : -INFINITY;
    }
}

template <typename T>
__global__ void __launch_bounds__(LONG_ROW_THREADS)
    gradient_long_rows(const T *p, T *gradient, struct matrix_shape shape)
{
    __shared__ float2 shared[LONG_ROW_THREADS / 32];
    for (int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
        const row_place at = place_of<LONG_ROW_THREADS>(shape, row);
        const T *const weight = p + row * shape.pitch;
        T *const x = gradient + row * shape.pitch;
        const float origin = at.visible > 0 ? to_float(x[0]) : 0;
        float sum = 0, weights = 0;
        for (int64_t j = at.thread; j < at.visible; j += LONG_ROW_THREADS) {
            weights += to_float(weight[j]);
            sum += to_float(weight[j]) * (to_float(x[j]) - origin);
        }
        sum_over_row<LONG_ROW_THREADS>(&sum, &weights, shared); /* no thread reads x[0] after its barriers */
        const float delta = sum / weights;
        for (int64_t j = at.thread; j < shape.pitch; j += LONG_ROW_THREADS)
            x[j] = from_float<T>(j < at.visible ? to_float(weight[j]) * ((to_float(x[j]) - origin) - delta) : 0);
    }
}

/* ---- rows of problems with attributes ---------------------------------------------------------------------------- */

struct masked_shape {
    struct attn_problem problem;
    struct attn_tensors tensors;
    int64_t rows, pitch;
};

/* The keys [from, to) of a row that the causal mask and the window leave. */
__device__ __forceinline__ struct element_row masked_row(const struct masked_shape &shape, int64_t number,
                                                         int64_t *from, int64_t *to)
{
    const struct attn_problem &p = shape.problem;
    const struct element_row at = element_row_at(&p, &shape.tensors, number);
    const struct key_mask mask = {at.q_len, at.kv_len, p.window_left, p.window_right, p.causal};
    visible_keys(mask, at.row, from, to);
    return at;
}

/* S of one element from scale Q K^T; -inf where the block mask hides it. */
__device__ __forceinline__ float masked_score(const struct masked_shape &shape, const struct element_row &at,
                                              int64_t key, float x)
{
    const bool is_visible = attn_block_is_visible(&shape.problem, shape.tensors.block_mask, at.b, at.head, at.row, key);
    return is_visible
               ? element_capped(x, shape.problem.softcap) +
                     element_added(&shape.problem, &shape.tensors, at.b, at.head, at.q_len, at.kv_len, at.row, key)
               : -INFINITY;
}

/* See naive_masked_softmax. */
template <typename T>
__global__ void __launch_bounds__(MASKED_ROW_THREADS)
    softmax_masked_rows(T *matrix, T *kept, T *slope, float *lse, const __grid_constant__ struct masked_shape shape)
{
    __shared__ float2 shared[MASKED_ROW_THREADS / 32];
    for (int64_t number = blockIdx.x; number < shape.rows; number += gridDim.x) {
        int64_t from, to;
        const struct element_row at = masked_row(shape, number, &from, &to);
        const struct attn_problem &p = shape.problem;
        T *const row = matrix + number * shape.pitch;
        const float sink = shape.tensors.sink ? shape.tensors.sink[at.head] : -INFINITY;
        float maximum = sink,
              sum = threadIdx.x == 0 && sink > -INFINITY ? 1.0f : 0.0f; /* relative to the sink, first */
        int sees = 0;
        for (int64_t j = from + threadIdx.x; j < to; j += MASKED_ROW_THREADS) {
            maximum = fmaxf(maximum, masked_score(shape, at, j, to_float(row[j])));
            sees |= attn_block_is_visible(&p, shape.tensors.block_mask, at.b, at.head, at.row, j);
        }
        sees = __syncthreads_or(sees);
        maximum = warp_reduce<true>(maximum);
        const float origin = maximum > -INFINITY ? maximum : 0;
        sum *= sink > -INFINITY ? softmax_weight<float>(sink, origin) : 0.0f;
        for (int64_t j = from + threadIdx.x; j < to; j += MASKED_ROW_THREADS)
            sum += softmax_weight<float>(masked_score(shape, at, j, to_float(row[j])), origin);
        sum = warp_reduce<false>(sum);
        combine_warps<float, MASKED_ROW_THREADS>(&maximum, &sum, shared);
        for (int64_t j = threadIdx.x; j < at.kv_len; j += MASKED_ROW_THREADS) {
            const bool is_inside = sees && j >= from && j < to;
            const float x = to_float(row[j]);
            const float weight = is_inside ? softmax_weight<float>(masked_score(shape, at, j, x), maximum) / sum : 0.0f;
            const float factor = is_inside ? attn_dropout_factor(&p, at.b, at.head, at.row, j) : 0.0f;
            if (slope)
                slope[number * shape.pitch + j] = from_float<T>(is_inside ? element_slope(x, p.softcap) : 0.0f);
            if (kept != matrix)
                kept[number * shape.pitch + j] = from_float<T>(weight * factor);
            row[j] = from_float<T>(kept != matrix ? weight : weight * factor);
        }
        if (lse && threadIdx.x == 0)
            lse[number] = sees ? maximum + logf(sum) : sink;
    }
}

/* See naive_masked_gradient. D as in gradient_rows; with dropout it is sum(P * M * dP) / sum(P), and with a sink, whose
 * share is missing in sum(P), that is added to it. */
template <typename T>
__global__ void __launch_bounds__(MASKED_ROW_THREADS)
    gradient_masked_rows(const T *p, const T *kept, const T *slope, T *gradient, float *sink_rows,
                         const __grid_constant__ struct masked_shape shape)
{
    __shared__ float2 shared[MASKED_ROW_THREADS / 32];
    for (int64_t number = blockIdx.x; number < shape.rows; number += gridDim.x) {
        int64_t from, to;
        const struct element_row at = masked_row(shape, number, &from, &to);
        const int64_t first = number * shape.pitch;
        const bool drops = kept != p;
        const float *const sink = shape.tensors.sink;
        const float share = sink ? expf(sink[at.head] - shape.tensors.lse[number]) : 0.0f;
        const float origin = from < to && !drops && !sink ? to_float(gradient[first + from]) : 0;
        float sum = 0, weights = 0;
        for (int64_t j = from + threadIdx.x; j < to; j += MASKED_ROW_THREADS) {
            weights += to_float(p[first + j]);
            sum += to_float(kept[first + j]) * (to_float(gradient[first + j]) - origin);
        }
        sum_over_row<MASKED_ROW_THREADS>(&sum, &weights, shared); /* behind its barriers no thread reads `origin` */
        const float delta = weights > 0 ? sum / (weights + share) : 0;
        if (sink_rows && threadIdx.x == 0)
            sink_rows[number] = share * delta;
        for (int64_t j = threadIdx.x; j < at.kv_len; j += MASKED_ROW_THREADS) {
            float out = 0;
            if (j >= from && j < to) {
                const float weight = to_float(p[first + j]), x = to_float(gradient[first + j]) - origin;
                out = drops ? to_float(kept[first + j]) * x - weight * delta : weight * (x - delta);
                out *= slope ? to_float(slope[first + j]) : 1.0f;
            }
            gradient[first + j] = from_float<T>(out);
        }
    }
}

/* dBias from dS: an element a thread, over what shares it. 0 where no sequence has the row or the key. */
template <typename T, typename B>
__global__ void sum_biases(const T *ds, B *dbias, const __grid_constant__ struct masked_shape shape)
{
    const struct attn_problem &p = shape.problem;
    const int64_t elements = p.bias_batch * p.bias_heads * p.q_len * p.kv_len;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < elements;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t key = i % p.kv_len, row = i / p.kv_len % p.q_len, plane = i / p.kv_len / p.q_len;
        const int64_t bias_head = plane % p.bias_heads, bias_b = plane / p.bias_heads;
        float sum = 0;
        for (int64_t b = bias_b; b < (p.bias_batch > 1 ? bias_b + 1 : p.batch); b++) {
            const struct attn_sequence at = attn_sequence_at(&p, &shape.tensors, b);
            for (int64_t h = bias_head;
                 row < at.q_len && key < at.kv_len && h < (p.bias_heads > 1 ? bias_head + 1 : p.q_heads); h++)
                sum += to_float(ds[attn_lse_index(&p, &shape.tensors, b, h, row) * shape.pitch + key]);
        }
        dbias[attn_bias_offset(&p, shape.tensors.dbias, bias_b, bias_head, row) + key] = from_float<B>(sum);
    }
}

/* dS times the softcap's derivative. */
template <typename T>
__global__ void slope_rows(T *ds, const T *slope, const __grid_constant__ struct masked_shape shape)
{
    for (int64_t number = blockIdx.x; number < shape.rows; number += gridDim.x) {
        int64_t from, to;
        masked_row(shape, number, &from, &to);
        for (int64_t j = from + threadIdx.x; j < to; j += blockDim.x) {
            const int64_t at = number * shape.pitch + j;
            ds[at] = from_float<T>(to_float(ds[at]) * to_float(slope[at]));
        }
    }
}

template <typename T>
static cudaError_t launch_biases(const struct masked_shape *shape, const void *slope, void *ds, cudaStream_t stream)
{
    const struct attn_problem *p = &shape->problem;
    const int64_t blocks = (p->bias_batch * p->bias_heads * p->q_len * p->kv_len + 255) / 256;
    const unsigned grid = (unsigned)(blocks < 65536 ? blocks : 65536);
    if (p->bias_dtype == ATTN_FP32)
        sum_biases<T, float><<<grid, 256, 0, stream>>>((const T *)ds, (float *)shape->tensors.dbias.data, *shape);
    else
        sum_biases<T, T><<<grid, 256, 0, stream>>>((const T *)ds, (T *)shape->tensors.dbias.data, *shape);
    if (slope)
        slope_rows<T><<<grid_size(shape->rows), MASKED_ROW_THREADS, 0, stream>>>((T *)ds, (const T *)slope, *shape);
    return cudaGetLastError();
}

enum attn_status naive_sum_biases(const struct attn_problem *problem, const struct attn_tensors *tensors,
                                  const void *slope, void *ds, void *stream, struct attn_message *why)
{
    const struct masked_shape shape = {*problem, *tensors, element_rows(problem), naive_pitch(problem)};
    const cudaStream_t s = (cudaStream_t)stream;
    const cudaError_t error = problem->dtype == ATTN_FP16   ? launch_biases<__half>(&shape, slope, ds, s)
                              : problem->dtype == ATTN_BF16 ? launch_biases<__nv_bfloat16>(&shape, slope, ds, s)
                                                            : launch_biases<float>(&shape, slope, ds, s);
    return status_cuda(error, "sum_biases", why);
}

/* dSink of a head, a block each: the sum over its rows, always in the same order. */
__global__ void __launch_bounds__(REFERENCE_THREADS)
    sum_sinks(const float *sink_rows, const __grid_constant__ struct masked_shape shape)
{
    __shared__ double sums[REFERENCE_THREADS / 32];
    const struct attn_problem &p = shape.problem;
    const bool packed = attn_rows_are_packed(&p);
    const int64_t rows = packed ? p.total_q : p.q_len, batch = packed ? 1 : p.batch;
    for (int64_t head = blockIdx.x; head < p.q_heads; head += gridDim.x) {
        double sum = 0;
        for (int64_t b = 0; b < batch; b++)
            for (int64_t i = threadIdx.x; i < rows; i += REFERENCE_THREADS)
                sum += (double)sink_rows[(b * p.q_heads + head) * rows + i];
        sum = block_sum(sum, sums);
        if (threadIdx.x == 0)
            shape.tensors.dsink[head] = (float)-sum;
    }
}

enum attn_status naive_sum_sinks(const struct attn_problem *problem, const struct attn_tensors *tensors,
                                 const float *sink_rows, void *stream, struct attn_message *why)
{
    const struct masked_shape shape = {*problem, *tensors, 0, 0};
    sum_sinks<<<grid_size(problem->q_heads), REFERENCE_THREADS, 0, (cudaStream_t)stream>>>(sink_rows, shape);
    return status_cuda(cudaGetLastError(), "sum_sinks", why);
}

template <typename T>
static cudaError_t launch_masked(const struct masked_shape *shape, const struct naive_matrices *m, void *gradient,
                                 float *row_values, cudaStream_t stream)
{
    const unsigned grid = grid_size(shape->rows);
    if (gradient)
        gradient_masked_rows<T><<<grid, MASKED_ROW_THREADS, 0, stream>>>(
            (const T *)m->p, (const T *)m->kept, (const T *)m->slope, (T *)gradient, row_values, *shape);
    else
        softmax_masked_rows<T>
            <<<grid, MASKED_ROW_THREADS, 0, stream>>>((T *)m->p, (T *)m->kept, (T *)m->slope, row_values, *shape);
    return cudaGetLastError();
}

/* gradient == NULL: softmax of m->p; else its dP becomes dS. row_values: LSE; of the gradient the rows of dSink. */
static enum attn_status run_masked(const struct attn_problem *problem, const struct attn_tensors *tensors,
                                   const struct naive_matrices *m, void *gradient, float *row_values, void *stream,
                                   struct attn_message *why)
{
    const struct masked_shape shape = {*problem, *tensors, element_rows(problem), naive_pitch(problem)};
    const cudaStream_t s = (cudaStream_t)stream;
    if (shape.rows == 0)
        return ATTN_OK;
    const cudaError_t error = problem->dtype == ATTN_FP16 ? launch_masked<__half>(&shape, m, gradient, row_values, s)
                              : problem->dtype == ATTN_BF16
                                  ? launch_masked<__nv_bfloat16>(&shape, m, gradient, row_values, s)
                                  : launch_masked<float>(&shape, m, gradient, row_values, s);
    return status_cuda(error, gradient ? "gradient_masked_rows" : "softmax_masked_rows", why);
}

enum attn_status naive_masked_softmax(const struct attn_problem *problem, const struct attn_tensors *tensors,
                                      const struct naive_matrices *to, float *lse, void *stream,
                                      struct attn_message *why)
{
    return run_masked(problem, tensors, to, NULL, lse, stream, why);
}

enum attn_status naive_masked_gradient(const struct attn_problem *problem, const struct attn_tensors *tensors,
                                       const struct naive_matrices *from, void *matrix, float *sink_rows, void *stream,
                                       struct attn_message *why)
{
    return run_masked(problem, tensors, from, matrix, sink_rows, stream, why);
}

__global__ void zero_kernel(const struct naive_zeros zeros)
{
    const int64_t elements = zeros.count[0] * zeros.count[1] * zeros.count[2] * zeros.rows * zeros.cols;
    for (int64_t n = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; n < elements;
         n += (int64_t)gridDim.x * blockDim.x) {
        const int64_t row = n / zeros.cols, plane = row / zeros.rows, rest = plane / zeros.count[0];
        const int64_t at = plane % zeros.count[0] * zeros.stride[0] + rest % zeros.count[1] * zeros.stride[1] +
                           rest / zeros.count[1] * zeros.stride[2] + row % zeros.rows * zeros.row_stride +
                           n % zeros.cols;
        if (zeros.element_bytes == 2)
            static_cast<uint16_t *>(zeros.data)[at] = 0;
        else
            static_cast<uint32_t *>(zeros.data)[at] = 0;
    }
}

enum attn_status naive_zero(const struct naive_zeros *zeros, void *stream, struct attn_message *why)
{
    const int64_t elements = zeros->count[0] * zeros->count[1] * zeros->count[2] * zeros->rows * zeros->cols;
    if (elements == 0)
        return ATTN_OK;
    const int64_t blocks = (elements + 255) / 256;
    zero_kernel<<<(unsigned)(blocks < 4096 ? blocks : 4096), 256, 0, (cudaStream_t)stream>>>(*zeros);
    return status_cuda(cudaGetLastError(), "zero_kernel", why);
}

/* ---- dense problems ---------------------------------------------------------------------------------------------- */

/* The kernels for rows of up to threads * vectors * 16 bytes. */
template <typename T> struct row_kernels {
    int threads, vectors;
    void (*softmax)(T *, float *, struct matrix_shape);
    void (*gradient)(const T *, T *, struct matrix_shape);
};

#define ROW(THREADS, VECTORS) \
    { \
        THREADS, VECTORS, softmax_rows<T, THREADS, VECTORS>, gradient_rows<T, THREADS, VECTORS> \
    }

template <typename T> static struct row_kernels<T> kernels_for(int64_t pitch) {
    static const struct row_kernels<T> table[] = {
        ROW(32, 1), ROW(32, 2), ROW(32, 4), ROW(64, 4), ROW(128, 4), ROW(256, 4), ROW(512, 4), ROW(1024, 4)
    };
    for (const struct row_kernels<T> &row : table)
        if (pitch <= (int64_t)row.threads * row.vectors * vector_of<T>::COUNT)
            return row;
    const struct row_kernels<T> loop = {
        LONG_ROW_THREADS, 0, softmax_long_rows<T>, gradient_long_rows<T>
    };
    return loop;
}

#undef ROW

template <typename T>
static cudaError_t launch_rows(const void *p, void *matrix, float *lse, const struct matrix_shape *shape,
                               cudaStream_t stream)
{
    const struct row_kernels<T> kernels = kernels_for<T>(shape->pitch);
    const int per_block = kernels.threads == 32 ? WARP_ROW_BLOCK / 32 : 1;
    const int threads = block_threads(kernels.threads);
    const unsigned grid = grid_size((shape->rows + per_block - 1) / per_block);
    if (p)
        kernels.gradient<<<grid, threads, 0, stream>>>((const T *)p, (T *)matrix, *shape);
    else
        kernels.softmax<<<grid, threads, 0, stream>>>((T *)matrix, lse, *shape);
    return cudaGetLastError();
}

/* p == NULL: softmax of `matrix` in place; else its dP becomes dS. */
static enum attn_status run_rows(const struct attn_problem *problem, const void *p, void *matrix, float *lse,
                                 void *stream, struct attn_message *why)
{
    const struct matrix_shape shape = {problem->batch * problem->q_heads * problem->q_len, naive_pitch(problem),
                                       key_mask_of(problem)};
    const cudaStream_t s = (cudaStream_t)stream;
    const cudaError_t error = problem->dtype == ATTN_FP16   ? launch_rows<__half>(p, matrix, lse, &shape, s)
                              : problem->dtype == ATTN_BF16 ? launch_rows<__nv_bfloat16>(p, matrix, lse, &shape, s)
                                                            : launch_rows<float>(p, matrix, lse, &shape, s);
    return status_cuda(error, p ? "gradient_rows" : "softmax_rows", why);
}

enum attn_status naive_softmax(const struct attn_problem *problem, void *matrix, float *lse, void *stream,
                               struct attn_message *why)
{
    return run_rows(problem, NULL, matrix, lse, stream, why);
}

enum attn_status naive_gradient(const struct attn_problem *problem, const void *p, void *matrix, void *stream,
                                struct attn_message *why)
{
    return run_rows(problem, p, matrix, NULL, stream, why);
}
