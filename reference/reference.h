/* The references that results are judged by: the float64 oracle on the CPU and the fp32 three-pass reference on CUDA.
 *
 * Both compute, from the same rounded inputs, every output in fp32 and beside it a product over absolute values that
 * bounds the effect of rounding:
 *   |O|  = P |V|                        |dV| = P^T |dO|
 *   dSa  = P * (max(sqrt(rowsum((dO * O)^2)) g, sqrt(rowsum(dS^2))) + |M dP - D| (1 - g)) + lambda |dS|,
 *          g = 1 - (S / softcap)^2; 1 without a softcap; lambda: reference_logit_error below
 *   |dQ| = scale max(dSa |K|, 0.8 sqrt(dS^2 K^2))        |dK| = scale max(dSa^T |Q|, 0.8 sqrt((dS^T)^2 Q^2))
 *          squares of each element; 0.8 = sqrt(2 / pi)
 *   |dBias| = sqrt(sum over what shares the element of (P sqrt(rowsum((dO * O)^2)) + lambda |dS| + 9/16 P |M dP|)^2):
 *             the errors of D, of the logits, and of P, dP and dS in 16 bits, independent
 *   |dSink| = sqrt(sum over rows of (exp(sink - LSE) sqrt(rowsum((dO * O)^2)))^2): each row's error of D, independent
 * The judge uses eps(dtype) times these as floor of every norm. Backward is given O rounded to the dtype; the first
 * part of dSa is the effect of that rounding on D = rowsum(dO * O). Where one key has nearly all of P, dS = P (dP - D)
 * is a difference of nearly equal numbers, and only that error is left. Kernels also round dS: independent errors,
 * whose sum over a row is sqrt(rowsum(dS^2)). That is as large as the other one on average, but where the numbers dO *
 * O of a row are small, as happens with few columns, it is the one that is left. The plain product over absolute
 * values, |dO| |V|^T + rowsum(|dO| * |O|), bounds the same error, but it is too large by the square root of head_dim
 * and by the square root of the length: at 16K it would hide the errors that the rules are to find.
 * What rounding dS does to one element of dQ is that root of a sum of squares. Of normal K it is P sqrt(rowsum(dS^2))
 * |K| but for the mean of |K|, which is the 0.8. Where a number of K is 30 times as large as others, and its key has
 * much of dS and little of P, it is several times that; so where few rows see a key, in dK. With a softcap dS is
 * multiplied by g, of which the rounding of S / softcap leaves no relative precision where that is near 1: the second
 * term is its error.
 * The third is that of the logits: where they are large, each P, and each dS, has a relative error e that may have one
 * sign in many rows. 2 eps lambda |dS| is what e exceeds eps / 2 by, at worst in every term; the other parts hold the
 * rest, which is as large as that of rounding dS. */
#ifndef FABENCH_REFERENCE_H
#define FABENCH_REFERENCE_H

#include <math.h>

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* lambda of a row with this LSE, for 16-bit inputs; 0 for others and up to an error of eps / 2. Tensor cores cut off
 * each partial sum of 8 columns below 2^-23 of it, and the scale and the LSE are rounded: e is (head_dim / 8 + 2) such
 * units of the logit at most, and |LSE| stands for the logits that have weight. */
ATTN_FUNCTION double reference_logit_error(const struct attn_problem *p, double lse)
{
    const double eps = p->dtype == ATTN_FP16 ? 0x1p-10 : 0x1p-7;
    const double error = ((double)p->head_dim / 8 + 2) * 0x1p-23 * fabs(lse);
    if ((p->dtype != ATTN_FP16 && p->dtype != ATTN_BF16) || !(error > eps / 2 && error < INFINITY))
        return 0;
    return (error - eps / 2) / (2 * eps);
}

/* The product of an element of dQ or dK: dSa times |K| or |Q|, and the sum of the squared terms of dS times these. */
ATTN_FUNCTION double reference_product(double product, double squares)
{
    const double terms = 0.79788456080286536 * sqrt(squares); /* sqrt(2 / pi) */
    return terms > product && terms < INFINITY ? terms : product;
}

/* The error of a term of dBias over P, from sqrt(rowsum((dO * O)^2)), lambda, M dP - D and D. naive stores P, dP and dS
 * in 16 bits: 0.21 eps each on average, 0.36 eps together. Where one key has nearly all of P, dS is far smaller than
 * P dP. Six deviations are 9/16 of the 4 eps that naive is allowed. */
ATTN_FUNCTION double reference_bias_error(double spread, double lambda, double part, double delta)
{
    return spread + lambda * fabs(part) + 0.5625 * fabs(part + delta);
}

/* Contiguous fp32 [batch, heads, len, head_dim] (whatever the layout of the problem; [heads, total, head_dim] where the
 * lengths are packed), owned by the caller, on the
 * device that computes. mode fwd fills o, lse, o_abs; mode bwd fills those too (its caller rounds o for the
 * implementations) and dq dk dv and their _abs. A NULL _abs pointer is not computed. */
struct reference_outputs {
    float *o, *lse, *dq, *dk, *dv;
    float *o_abs, *dq_abs, *dk_abs, *dv_abs;
    float *dsink, *dsink_abs; /* [q_heads]; where the problem has a sink, mode bwd */
    float *dbias, *dbias_abs; /* [bias_batch, bias_heads, q_len, kv_len]; where it has a bias, mode bwd */
    /* Where the problem lies in a larger one of which it is a part: its first sequence, query head and row there.
     * Dropout counts from there, and so do the rows of the block mask and of the scales of Q. */
    int64_t first_batch, first_head, first_row;
};

/* Float64 oracle: four passes, threads over (batch, kv head), no approximations. tensors: q k v (dout for bwd), and the
 * arrays of the problem's attributes, host pointers, any dtype, any strides, any head_dim, every attribute.
 * Errors: ATTN_NO_MEMORY. */
enum attn_status oracle_attention(const struct attn_problem *, enum attn_mode, const struct attn_tensors *,
                                  const struct reference_outputs *, int threads, struct attn_message *why);

/* The same on CUDA in fp32 (no TF32), by blocks of rows so that no S-sized buffer exceeds 2 GiB. Device pointers, every
 * attribute. Enqueues on `stream` (cudaStream_t) and does not wait, except that it copies the lengths of packed
 * sequences and of caches, and sinks, to the host and waits for that. ATTN_UNSUPPORTED: backward against a cache. */
size_t reference_cuda_workspace_bytes(const struct attn_problem *, enum attn_mode);
enum attn_status reference_cuda(const struct attn_problem *, enum attn_mode, const struct attn_tensors *,
                                const struct reference_outputs *, void *workspace, size_t workspace_bytes, void *stream,
                                struct attn_message *why);

#ifdef __cplusplus
}
#endif
#endif
