/* The kernels of reference_sequences.cu: each works on the rows of one query head of one sequence. */
#pragma once
#include "reference/elements.h"
#include "reference/reference.h"
#include "reference/rows.cuh"

/* What the kernels know of a block: rows [first, first + rows) of a query head of a sequence. */
struct score_block {
    struct attn_problem problem;
    struct attn_tensors tensors; /* arrays in device memory */
    float sink;                  /* of this head; -inf = none */
    struct key_mask mask;        /* with the lengths of this sequence */
    int64_t b, head;             /* in the problem, for the block mask */
    int64_t first, rows, pitch;
    int64_t first_batch, first_head, first_row; /* of struct reference_outputs */
    float *dbias, *dbias_abs;                   /* of this sequence and head, [q_len, kv_len]; NULL = not asked for */
    int64_t bias_pitch;
};

__device__ __forceinline__ bool is_in_mask(const struct score_block &x, int64_t row, int64_t key)
{
    return attn_block_is_visible(&x.problem, x.tensors.block_mask, x.b, x.head, row + x.first_row, key);
}

__device__ __forceinline__ float added(const struct score_block &x, int64_t row, int64_t key)
{
    return element_added(&x.problem, &x.tensors, x.b, x.head, x.mask.q_len, x.mask.kv_len, row, key);
}

__device__ __forceinline__ float dropout_factor(const struct score_block &x, int64_t row, int64_t key)
{
    return attn_dropout_factor(&x.problem, x.b + x.first_batch, x.head + x.first_head, row + x.first_row, key);
}

/* scale Q K^T in, P out, in place. lse: of the block's first row. slope: NULL, or the softcap's derivative of the keys
 * that the causal mask and the window leave. */
__global__ void __launch_bounds__(REFERENCE_THREADS)
    sequence_softmax(const __grid_constant__ struct score_block x, float *s, float *slope, float *lse)
{
    __shared__ double sums[REFERENCE_THREADS / 32];
    __shared__ float maxima[REFERENCE_THREADS / 32];
    for (int64_t r = blockIdx.x; r < x.rows; r += gridDim.x) {
        float *const row = s + r * x.pitch;
        int64_t from, to;
        visible_keys(x.mask, x.first + r, &from, &to);
        float maximum = x.sink;
        int sees = 0;
        for (int64_t j = from + threadIdx.x; j < to; j += REFERENCE_THREADS) {
            const bool is_visible = is_in_mask(x, x.first + r, j);
            if (slope)
                slope[r * x.pitch + j] = element_slope(row[j], x.problem.softcap);
            row[j] = is_visible ? element_capped(row[j], x.problem.softcap) + added(x, x.first + r, j) : -INFINITY;
            maximum = fmaxf(maximum, row[j]);
            sees |= is_visible;
        }
        sees = __syncthreads_or(sees);
        maximum = block_max(maximum, maxima);
        double sum = 0;
        for (int64_t j = from + threadIdx.x; sees && j < to; j += REFERENCE_THREADS)
            sum += expf(row[j] - maximum);
        sum = block_sum(sum, sums) + (x.sink == -INFINITY ? 0.0 : (double)expf(x.sink - maximum));
        const float inverse = (float)(1 / sum);
        for (int64_t j = threadIdx.x; j < x.mask.kv_len; j += REFERENCE_THREADS)
            row[j] = sees && j >= from && j < to ? expf(row[j] - maximum) * inverse : 0;
        if (threadIdx.x == 0)
            lse[r] = maximum > -INFINITY ? (float)((double)maximum + log(sum)) : -INFINITY;
    }
}

/* kept = M * p; kept may be p. */
__global__ void __launch_bounds__(REFERENCE_THREADS)
    sequence_dropout(const __grid_constant__ struct score_block x, const float *p, float *kept)
{
    for (int64_t r = blockIdx.x; r < x.rows; r += gridDim.x)
        for (int64_t j = threadIdx.x; j < x.mask.kv_len; j += REFERENCE_THREADS)
            kept[r * x.pitch + j] = p[r * x.pitch + j] * dropout_factor(x, x.first + r, j);
}

/* dS of an element. t: dP, or without a softcap dS already. */
__device__ __forceinline__ double gradient_again(const struct score_block &x, const float *p, const float *t,
                                                 const float *slope, float delta, int64_t r, int64_t j)
{
    const int64_t at = r * x.pitch + j;
    return slope ? (double)(p[at] * (t[at] * dropout_factor(x, x.first + r, j) - delta) * slope[at]) : (double)t[at];
}

/* Adds dS to dBias, and the square of its error to |dBias|. Heads follow each other, so that no two add at a time. */
__device__ __forceinline__ void add_bias(const struct score_block &x, int64_t row, int64_t key, float ds, float error)
{
    const int64_t at = row * x.bias_pitch + key;
    x.dbias[at] += ds;
    if (x.dbias_abs)
        x.dbias_abs[at] += error * error;
}

__global__ void sequence_root(float *x, int64_t count)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x)
        x[i] = sqrtf(x[i]);
}

/* t = dS = p * (M * t - D) * slope. absolute: p = p * (max(sqrt(rowsum((dO * O)^2)) * slope, sqrt(rowsum(dS^2))) +
 * |M * t - D| (1 - slope)) + lambda |dS| and t = dS^2, whose old t is dS, with a softcap dP again. dout, o, lse: of the
 * block's first row. 0 where the row does not see the key. */
__global__ void __launch_bounds__(REFERENCE_THREADS)
    sequence_gradient(const __grid_constant__ struct score_block x, float *p, float *t, const float *slope,
                      const float *dout, const float *o, const float *lse, bool absolute)
{
    __shared__ double sums[REFERENCE_THREADS / 32];
    const int64_t d = attn_v_head_dim(&x.problem);
    for (int64_t r = blockIdx.x; r < x.rows; r += gridDim.x) {
        const float lambda = (float)reference_logit_error(&x.problem, (double)lse[r]);
        double sum = 0, squares = 0;
        for (int64_t c = threadIdx.x; c < d; c += REFERENCE_THREADS) {
            const double product = (double)dout[r * d + c] * (double)o[r * d + c];
            sum += product;
            squares += product * product;
        }
        const float delta = (float)block_sum(sum, sums), spread = (float)sqrt(block_sum(squares, sums));
        int64_t from, to;
        visible_keys(x.mask, x.first + r, &from, &to);
        double size = 0;
        for (int64_t j = from + threadIdx.x; absolute && j < to; j += REFERENCE_THREADS) {
            const double ds = gradient_again(x, p, t, slope, delta, r, j);
            size += ds * ds;
        }
        size = absolute ? sqrt(block_sum(size, sums)) : 0;
        for (int64_t j = threadIdx.x; j < x.mask.kv_len; j += REFERENCE_THREADS) {
            const int64_t at = r * x.pitch + j;
            float out = 0, product = 0;
            if (j >= from && j < to) {
                const float steep = slope ? slope[at] : 1.0f;
                const float part = absolute && !slope ? 0.0f : t[at] * dropout_factor(x, x.first + r, j) - delta;
                const float ds = absolute && !slope ? t[at] : p[at] * part * steep;
                const float own = p[at] * (fmaxf(spread * steep, (float)size) + fabsf(part) * (1.0f - steep));
                if (x.dbias && !absolute)
                    add_bias(x, x.first + r, j, p[at] * part,
                             (float)(p[at] * reference_bias_error(spread, lambda, part, delta)));
                product = own + lambda * fabsf(ds);
                out = absolute ? ds * ds : p[at] * (part * steep);
            }
            t[at] = out;
            if (absolute)
                p[at] = product;
        }
    }
}

/* The part of each row of dSink, and of |dSink|: rows[2 r], rows[2 r + 1]. The square of the latter would be lost where
 * exp(sink - LSE) is 1e-22, with logits of 50. dout, o, lse: of the block's first row. */
__global__ void __launch_bounds__(REFERENCE_THREADS)
    sequence_sink_rows(const __grid_constant__ struct score_block x, const float *dout, const float *o,
                       const float *lse, float *rows)
{
    __shared__ double sums[REFERENCE_THREADS / 32];
    const int64_t d = attn_v_head_dim(&x.problem);
    for (int64_t r = blockIdx.x; r < x.rows; r += gridDim.x) {
        double sum = 0, squares = 0;
        for (int64_t c = threadIdx.x; c < d; c += REFERENCE_THREADS) {
            const double product = (double)dout[r * d + c] * (double)o[r * d + c];
            sum += product;
            squares += product * product;
        }
        sum = block_sum(sum, sums);
        squares = block_sum(squares, sums);
        if (threadIdx.x == 0) {
            const double share = exp((double)x.sink - (double)lse[r]);
            rows[2 * r] = (float)(share * sum);
            rows[2 * r + 1] = (float)(share * sqrt(squares));
        }
    }
}

/* Adds the rows of a block to the two sums of its head; one block of threads. */
__global__ void __launch_bounds__(REFERENCE_THREADS)
    sequence_add_sinks(const float *rows, int64_t count, double *head_sums)
{
    __shared__ double sums[REFERENCE_THREADS / 32];
    double sum = 0, squares = 0;
    for (int64_t r = threadIdx.x; r < count; r += REFERENCE_THREADS) {
        sum += (double)rows[2 * r];
        squares += (double)rows[2 * r + 1] * (double)rows[2 * r + 1];
    }
    sum = block_sum(sum, sums);
    squares = block_sum(squares, sums);
    if (threadIdx.x == 0) {
        head_sums[0] -= sum;
        head_sums[1] += squares;
    }
}

__global__ void sequence_store_sinks(const double *sinks, int64_t heads, float *dsink, float *dsink_abs)
{
    for (int64_t h = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; h < heads; h += (int64_t)gridDim.x * blockDim.x) {
        dsink[h] = (float)sinks[2 * h];
        if (dsink_abs)
            dsink_abs[h] = (float)sqrt(sinks[2 * h + 1]);
    }
}
