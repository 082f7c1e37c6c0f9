/* compare_blocks_cuda: the rules of reference/compare.h and reference/compare_cpu.c on the device.
 *
 * A thread block judges one block of 64 rows: each of its warps takes every eighth row, first the row's two sums of
 * squares, from which the bound follows, then the elements. Sums are double and are added in a fixed order (lane by
 * lane over a warp's rows, then a shuffle tree, then the warps in turn), so equal inputs give equal bits. */
#include <cuda_runtime.h>

#include "reference/compare.h"
#include "reference/rows.cuh"

enum { COMPARE_WARPS = 8 };

__device__ __forceinline__ int32_t first_of(int32_t a, int32_t b) /* -1 = none */
{
    return a < 0 ? b : b < 0 ? a : min(a, b);
}

/* What two disjoint sets of elements give together. */
__device__ __forceinline__ void merge(struct compare_block *into, const struct compare_block &other)
{
    into->err2 += other.err2;
    into->ref2 += other.ref2;
    into->abs2 += other.abs2;
    into->err_dot += other.err_dot;
    into->round_dot += other.round_dot;
    into->max_abs_err = fmaxf(into->max_abs_err, other.max_abs_err);
    into->max_abs_x = fmaxf(into->max_abs_x, other.max_abs_x);
    into->max_abs_product = fmaxf(into->max_abs_product, other.max_abs_product);
    const bool ours = into->max_used_at >= 0, theirs = other.max_used_at >= 0;
    if (theirs && (!ours || other.max_used > into->max_used ||
                   (other.max_used == into->max_used && other.max_used_at < into->max_used_at))) {
        into->max_used = other.max_used;
        into->max_used_at = other.max_used_at;
    }
    into->bad += other.bad;
    into->first_bad_row = first_of(into->first_bad_row, other.first_bad_row);
    into->last_bad_row = max(into->last_bad_row, other.last_bad_row);
    into->nonfinite += other.nonfinite;
    into->first_nonfinite_at = first_of(into->first_nonfinite_at, other.first_nonfinite_at);
}

__device__ __forceinline__ struct compare_block shuffled(const struct compare_block &from, int lane)
{
    struct compare_block r;
    const unsigned all = 0xffffffffu;
    r.err2 = __shfl_down_sync(all, from.err2, lane);
    r.ref2 = __shfl_down_sync(all, from.ref2, lane);
    r.abs2 = __shfl_down_sync(all, from.abs2, lane);
    r.err_dot = __shfl_down_sync(all, from.err_dot, lane);
    r.round_dot = __shfl_down_sync(all, from.round_dot, lane);
    r.max_abs_err = __shfl_down_sync(all, from.max_abs_err, lane);
    r.max_abs_x = __shfl_down_sync(all, from.max_abs_x, lane);
    r.max_abs_product = __shfl_down_sync(all, from.max_abs_product, lane);
    r.max_used = __shfl_down_sync(all, from.max_used, lane);
    r.max_used_at = __shfl_down_sync(all, from.max_used_at, lane);
    r.bad = __shfl_down_sync(all, from.bad, lane);
    r.first_bad_row = __shfl_down_sync(all, from.first_bad_row, lane);
    r.last_bad_row = __shfl_down_sync(all, from.last_bad_row, lane);
    r.nonfinite = __shfl_down_sync(all, from.nonfinite, lane);
    r.first_nonfinite_at = __shfl_down_sync(all, from.first_nonfinite_at, lane);
    return r;
}

__device__ __forceinline__ struct compare_block nothing_compared()
{
    struct compare_block block = {};
    block.max_used_at = block.first_bad_row = block.last_bad_row = block.first_nonfinite_at = -1;
    return block;
}

/* The element with index `at` within the block, in row `row`. */
__device__ __forceinline__ struct compare_block compare_element(double bound, enum attn_dtype dtype, float x, float ref,
                                                                float abs_product, int32_t row, int32_t at)
{
    struct compare_block one = nothing_compared();
    const bool same_kind = isfinite(ref) ? isfinite(x) || compare_may_overflow(x, ref, bound, compare_overflow(dtype))
                                         : (isnan(ref) ? isnan(x) : x == ref);
    one.nonfinite = !same_kind;
    one.first_nonfinite_at = same_kind ? -1 : at;
    bool within = same_kind;
    if (isfinite(x) && isfinite(ref)) {
        const double err = (double)x - (double)ref;
        one.err2 = err * err;
        one.ref2 = (double)ref * (double)ref;
        one.abs2 = (double)abs_product * (double)abs_product;
        one.err_dot = err * (double)ref;
        one.round_dot = ((double)compare_rounded(ref, dtype) - (double)ref) * (double)ref;
        one.max_abs_err = (float)fabs(err);
        one.max_abs_x = fabsf(x);
        one.max_abs_product = fmaxf(abs_product, 0.0f);
        one.max_used = bound > 0 ? (float)(fabs(err) / bound) : (err == 0 ? 0.0f : INFINITY);
        one.max_used_at = at;
        within = one.max_used <= 1;
    }
    one.bad = !within;
    one.first_bad_row = one.last_bad_row = within ? -1 : row;
    return one;
}

/* atol_row of a row of the reference; the same value in every lane. */
__device__ __forceinline__ double row_atol(const struct compare_job &job, int64_t from, int lane)
{
    double ref2 = 0, abs2 = 0;
    for (int64_t c = lane; c < job.head_dim; c += 32) {
        const float ref = job.ref[from + c], a = job.abs ? job.abs[from + c] : 0;
        ref2 += isfinite(ref) ? (double)ref * (double)ref : 0;
        abs2 += isfinite(a) ? (double)a * (double)a : 0;
    }
    for (int other = 16; other > 0; other >>= 1) {
        ref2 += __shfl_xor_sync(0xffffffffu, ref2, other);
        abs2 += __shfl_xor_sync(0xffffffffu, abs2, other);
    }
    return job.atol_absolute +
           fmax(job.atol_rms * sqrt(ref2 / (double)job.head_dim), job.atol_abs * sqrt(abs2 / (double)job.head_dim));
}

template <typename T>
__global__ void __launch_bounds__(COMPARE_WARPS * 32, 2)
    compare_kernel(struct compare_job job, int64_t per_head, struct compare_block *blocks)
{
    __shared__ struct compare_block shared[COMPARE_WARPS];
    const int64_t count = job.batch * job.heads * per_head;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int64_t n = blockIdx.x; n < count; n += gridDim.x) {
        const int64_t head = n / per_head, first = (n - head * per_head) * COMPARE_BLOCK_ROWS;
        struct compare_block mine = nothing_compared();
        for (int32_t row = warp; row < COMPARE_BLOCK_ROWS && first + row < job.len; row += COMPARE_WARPS) {
            const int64_t global_row = head * job.len + first + row, from = global_row * job.head_dim;
            const T *const x = static_cast<const T *>(job.x.data) + row_offset(job.x, job.heads, job.len, global_row);
            const double atol = row_atol(job, from, lane);
            for (int64_t c = lane; c < job.head_dim; c += 32) {
                const float ref = column_is_negated(&job.signs, c) ? -job.ref[from + c] : job.ref[from + c];
                const float a = job.abs ? job.abs[from + c] : 0;
                const double own = isfinite(a) ? fmax(atol, job.atol_element * (double)a) : atol;
                merge(&mine, compare_element(own + job.rtol * fabs((double)ref), job.dtype, to_float(x[c]), ref, a, row,
                                             (int32_t)(row * job.head_dim + c)));
            }
        }
        for (int other = 16; other > 0; other >>= 1)
            merge(&mine, shuffled(mine, other));
        if (lane == 0)
            shared[warp] = mine;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int w = 1; w < COMPARE_WARPS; w++)
                merge(&mine, shared[w]);
            blocks[n] = mine;
        }
        __syncthreads();
    }
}

int compare_blocks_cuda(const struct compare_job *job, struct compare_block *blocks, void *stream)
{
    const int64_t per_head = compare_blocks_per_head(job->len);
    const unsigned grid = grid_size(job->batch * job->heads * per_head);
    const cudaStream_t s = (cudaStream_t)stream;
    if (job->dtype == ATTN_FP16)
        compare_kernel<__half><<<grid, COMPARE_WARPS * 32, 0, s>>>(*job, per_head, blocks);
    else if (job->dtype == ATTN_BF16)
        compare_kernel<__nv_bfloat16><<<grid, COMPARE_WARPS * 32, 0, s>>>(*job, per_head, blocks);
    else
        compare_kernel<float><<<grid, COMPARE_WARPS * 32, 0, s>>>(*job, per_head, blocks);
    return cudaGetLastError();
}
