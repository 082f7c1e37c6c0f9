/* Comparing one output tensor with its reference, block by block: the sums and maxima from which cmd/judge/judge.c
 * decides. compare_blocks_cpu and compare_blocks_cuda fill the same struct by the same rules; a test compares the two.
 */
#ifndef FABENCH_COMPARE_H
#define FABENCH_COMPARE_H

#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/attention.h"
#include "reference/harness/signs.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { COMPARE_BLOCK_ROWS = 64 };

/* Numbers of this size round to infinity. */
ATTN_FUNCTION double compare_overflow(enum attn_dtype dtype)
{
    return dtype == ATTN_FP16 ? 65520.0 : dtype == ATTN_BF16 ? 0x1.ffp127 : (double)FLT_MAX;
}

/* Whether x is an infinity that it may be: the reference is finite, but within `bound` of a number that rounds to this
 * infinity in the type of the output. */
ATTN_FUNCTION bool compare_may_overflow(float x, float ref, double bound, double overflow)
{
    return isinf(x) && isfinite(ref) && (x > 0) == (ref > 0) && fabs((double)ref) + bound >= overflow;
}

/* A finite number within the range of a type, rounded to it, to nearest even. */
ATTN_FUNCTION float compare_rounded(float x, enum attn_dtype dtype)
{
    const uint32_t cut = dtype == ATTN_FP16 ? 13 : dtype == ATTN_BF16 ? 16 : 0;
    uint32_t bits;

    if (cut == 0)
        return x;
    if (dtype == ATTN_FP16 && fabsf(x) < 0x1p-14f) /* fp16 is denormal */
        return rintf(x * 0x1p24f) * 0x1p-24f;
    memcpy(&bits, &x, sizeof bits);
    bits += (1u << (cut - 1)) - 1 + (bits >> cut & 1);
    bits &= ~((1u << cut) - 1);
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The rows [64 i, 64 i + 64) of one (batch, head). Elements that are not finite, in the output or the reference, are
 * counted and not added to the sums; an infinity that may be (compare_may_overflow) is neither. */
struct compare_block {
    double err2;      /* sum (x - ref)^2 */
    double ref2;      /* sum ref^2 */
    double abs2;      /* sum abs^2: the product over absolute values; 0 without one */
    double err_dot;   /* sum (x - ref) * ref */
    double round_dot; /* the same for the reference rounded to the output's type: 0 in fp32 */
    float max_abs_err;
    float max_abs_x;
    float max_abs_product; /* the largest product over absolute values; 0 without one */
    float max_used;        /* max |x - ref| / bound of the element; +inf where the bound is 0 and the error is not */
    int32_t max_used_at;   /* row_in_block * head_dim + col of that element, -1 when the block has no finite pair */
    int32_t bad;           /* elements with !(|x - ref| <= bound of the element), non-finite mismatches included */
    int32_t first_bad_row, last_bad_row; /* within the block, -1 when none */
    int32_t nonfinite; /* elements whose finiteness, infinity's sign or NaN-ness differs from the reference's */
    int32_t first_nonfinite_at; /* like max_used_at, -1 when none */
};

/* One tensor to compare. Row i of the reference lies at ((b * heads + h) * len + i) * head_dim. */
struct compare_job {
    struct attn_tensor x; /* the implementation's output, in dtype */
    enum attn_dtype dtype;
    const float *ref, *abs; /* contiguous fp32; abs may be NULL */
    int64_t batch, heads, len, head_dim;
    /* bound of an element: max(atol_row, atol_element * abs) + rtol |ref| with
     *   atol_row = atol_absolute + max(atol_rms * rms(ref row), atol_abs * rms(abs row)) */
    double atol_absolute, atol_rms, atol_abs, atol_element, rtol;
    struct column_signs signs; /* columns of the reference that are compared with the other sign */
};

static inline int64_t compare_blocks_per_head(int64_t len)
{
    return (len + COMPARE_BLOCK_ROWS - 1) / COMPARE_BLOCK_ROWS;
}

/* blocks: batch * heads * compare_blocks_per_head(len) results, in that order; host memory on the CPU, device memory
 * on CUDA (enqueued on stream). compare_blocks_cuda returns a cudaError_t as int. */
void compare_blocks_cpu(const struct compare_job *, struct compare_block *blocks, int threads);
int compare_blocks_cuda(const struct compare_job *, struct compare_block *blocks, void *stream);

#ifdef __cplusplus
}
#endif
#endif
