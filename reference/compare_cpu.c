/* The CPU side of reference/compare.h, in plain C; reference/compare_cuda.cu follows the same rules. */
#include "reference/compare.h"

#include <math.h>
#include <string.h>

#include "reference/harness/fill.h"

static void element(struct compare_block *block, double bound, enum attn_dtype dtype, float x, float ref,
                    float abs_product, int32_t row, int32_t at)
{
    const bool same_kind = isfinite(ref) ? isfinite(x) || compare_may_overflow(x, ref, bound, compare_overflow(dtype))
                                         : (isnan(ref) ? isnan(x) : x == ref);
    if (!same_kind) {
        if (block->nonfinite++ == 0)
            block->first_nonfinite_at = at;
    }
    bool within = same_kind;
    if (isfinite(x) && isfinite(ref)) {
        const double err = (double)x - (double)ref;
        block->err2 += err * err;
        block->ref2 += (double)ref * (double)ref;
        block->abs2 += (double)abs_product * (double)abs_product;
        block->err_dot += err * (double)ref;
        block->round_dot += ((double)compare_rounded(ref, dtype) - (double)ref) * (double)ref;
        const float abs_err = (float)fabs(err);
        if (abs_err > block->max_abs_err)
            block->max_abs_err = abs_err;
        if (fabsf(x) > block->max_abs_x)
            block->max_abs_x = fabsf(x);
        if (abs_product > block->max_abs_product)
            block->max_abs_product = abs_product;
        const float used = bound > 0 ? (float)(fabs(err) / bound) : (err == 0 ? 0.0f : INFINITY);
        if (used > block->max_used || block->max_used_at < 0) {
            block->max_used = used;
            block->max_used_at = at;
        }
        within = used <= 1;
    }
    if (!within) {
        if (block->bad++ == 0)
            block->first_bad_row = row;
        block->last_bad_row = row;
    }
}

static void compare_row(const struct compare_job *job, struct compare_block *block, int64_t b, int64_t h, int64_t i,
                        int32_t row)
{
    const int64_t d = job->head_dim;
    const int64_t from = ((b * job->heads + h) * job->len + i) * d;
    const int64_t x_from = b * job->x.stride_batch + h * job->x.stride_head + i * job->x.stride_row;
    double ref2 = 0, abs2 = 0;
    for (int64_t c = 0; c < d; c++) {
        const float ref = job->ref[from + c];
        const float a = job->abs ? job->abs[from + c] : 0;
        ref2 += isfinite(ref) ? (double)ref * (double)ref : 0;
        abs2 += isfinite(a) ? (double)a * (double)a : 0;
    }
    const double atol =
        job->atol_absolute + fmax(job->atol_rms * sqrt(ref2 / (double)d), job->atol_abs * sqrt(abs2 / (double)d));
    for (int64_t c = 0; c < d; c++) {
        const float ref = column_is_negated(&job->signs, c) ? -job->ref[from + c] : job->ref[from + c];
        const float a = job->abs ? job->abs[from + c] : 0;
        const double own = isfinite(a) ? fmax(atol, job->atol_element * (double)a) : atol;
        element(block, own + job->rtol * fabs((double)ref), job->dtype, fill_load(job->x.data, job->dtype, x_from + c),
                ref, a, row, (int32_t)(row * d + c));
    }
}

void compare_blocks_cpu(const struct compare_job *job, struct compare_block *blocks, int threads)
{
    const int64_t per_head = compare_blocks_per_head(job->len);
    const int64_t count = job->batch * job->heads * per_head;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t n = 0; n < count; n++) {
        struct compare_block *block = &blocks[n];
        memset(block, 0, sizeof *block);
        block->max_used_at = block->first_bad_row = block->last_bad_row = block->first_nonfinite_at = -1;
        const int64_t head = n / per_head, first = n % per_head * COMPARE_BLOCK_ROWS;
        for (int32_t row = 0; row < COMPARE_BLOCK_ROWS && first + row < job->len; row++)
            compare_row(job, block, head / job->heads, head % job->heads, first + row, row);
    }
}
