/* Decides whether one output tensor is correct, from the block sums of reference/compare.h. Arithmetic only: no device,
 * no allocation. The rules are in section 6 of docs/design.md, bounds and calibration in docs/judging.md. */
#ifndef FABENCH_JUDGE_H
#define FABENCH_JUDGE_H

#include "cmd/problem/problem.h"
#include "cmd/record/record.h"
#include "reference/compare.h"

/* The rules, by their names in records. This module applies the first JUDGE_RULES; cmd/run/check.h applies RULE_GUARD.
 * */
enum judge_rule {
    RULE_NONFINITE,
    RULE_ELEMENT,
    RULE_RMS,
    RULE_BLOCK_RMS,
    RULE_GAIN,
    RULE_NAIVE,
    RULE_LSE,
    JUDGE_RULES,
    RULE_GUARD = JUDGE_RULES,
    RULE_COUNT
};
const char *judge_rule_name(enum judge_rule); /* nonfinite element rms block_rms gain naive lse guard */

struct judge_bounds {
    /* Rule 2: |x - ref| <= rtol |ref| + max(atol_row, atol_element * abs), with
     *   atol_row = atol_absolute + max(atol_rms * rms(ref row), atol_abs * rms(abs row)),
     * where "abs" is the product over absolute values of reference/reference.h. */
    double rtol, atol_rms, atol_abs, atol_element, atol_absolute;
    /* Rules 3 and 4, relative to a norm that is never below norm_abs * ||abs||, norm_floor * sqrt(elements) nor
     * norm_row; 0 = not applied (LSE). */
    double rms, block_rms, gain, norm_abs, norm_floor, norm_row;
    double ulp; /* the one-ulp term of rule 5, relative to the largest output; 0 = not applied */
    /* The least of that term, relative to the largest "abs" of a block of rows, and as a number. Not of the tolerances
     * of a user. */
    double ulp_abs, ulp_absolute;
};

/* doubled: twice the bounds, for naive. atol, rtol: of the user, NaN = not given. reference_rms: of the whole tensor.
 * */
struct judge_bounds judge_bounds_for(enum problem_tensor, enum attn_dtype, enum attn_mode, bool doubled, double atol,
                                     double rtol, double reference_rms);

/* What one element of dQ or dK may be off because of the rounding of the terms that it is a sum of
 * (docs/judging.md): sets atol_element, for default tolerances. Nothing for other tensors. largest_lse: the largest
 * |LSE| of the problem, which stands for the logits of the keys that have weight. */
void judge_floor_of_sums(struct judge_bounds *, enum problem_tensor, enum attn_dtype, bool doubled, int64_t head_dim,
                         double largest_lse);

/* Widens the bounds of O, which judge_bounds_for has set for its type, to those for kernels that round P to the 8 bits
 * of their inputs (docs/judging.md). `inputs`: e4m3 or e5m2; doubled and atol as there. */
void judge_rounded_p(struct judge_bounds *, enum attn_dtype inputs, bool doubled, double atol);

/* What LSE, one element of O and its gain may be off because tensor cores sum products of 8-bit numbers in 13 bits
 * (docs/judging.md). Behind judge_rounded_p; not for naive, which has no such products. of_one_term: half a unit of P
 * where one value of V may be most of an element, else 0. */
void judge_floor_of_8_bits(struct judge_bounds *, enum problem_tensor, int64_t head_dim, int64_t kv_len,
                           double largest_lse, double of_one_term);

/* What a tensor may be off because the logits are sums in fp32 (docs/judging.md), rounded ones for fp32 inputs, on
 * tensor cores for narrower ones: the least bounds of rules 3, 4 and 6, and a part of the term of rule 5. Of dQ and dK
 * in 16 bits the product of reference/reference.h holds most of it. largest_slope: what stands for the logits in the
 * softcap's derivative, of which that product knows nothing; 0 = none. */
void judge_floor_of_logits(struct judge_bounds *, enum problem_tensor, enum attn_dtype, bool doubled, int64_t head_dim,
                           double largest_lse, double largest_slope);

/* What the gain of a tensor may be off in 16 bits because P is rounded where all P of a row are equal
 * (docs/judging.md): the least bound of rule 4. largest_logit: no |logit| of the problem is above it; INFINITY where
 * that is not known. Nothing for LSE, for fp32, and where the logits are large enough to make P differ. */
void judge_floor_of_equal_weights(struct judge_bounds *, enum problem_tensor, enum attn_dtype, double largest_logit);

/* What the gain of O or dV may be off because P / (1 - dropout) is rounded to 16 bits, where one key has nearly all of
 * P and this is the same number in every row (docs/judging.md): the least bound of rule 4. Nothing for other tensors
 * and for fp32. */
void judge_floor_of_dropout(struct judge_bounds *, enum problem_tensor, enum attn_dtype, double dropout);

/* What a tensor in fp16 may be off because P and dS of keys with little weight are denormal (docs/judging.md): a term
 * of every element's bound and a least norm. The standard deviation of that error, column: in the column where it is
 * largest, rms: over all columns. Where a sum may have few summands, the largest error of one, one: in an element, row:
 * the root of the sum of its squares over a row of the tensor. 0 = nothing. */
struct judge_denormals {
    double column, rms, one, row;
};
void judge_floor_of_denormals(struct judge_bounds *, const struct judge_denormals *);

/* How many rows share the norm of a tensor: (sum of r)^2 / sum of r^2 of the squared norms r of its rows; their number
 * where all are equal, 1 where one row has all of it. blocks: one for each row, compared with len = 1. 0 where all are
 * zero. */
double judge_rows_sharing(const struct compare_block *, int64_t rows);

struct judge_input {
    enum problem_tensor tensor;
    const struct compare_block *blocks; /* batch * heads * compare_blocks_per_head(len) */
    int64_t batch, heads, len, head_dim;
    int64_t batch_offset, head_offset, row_offset; /* of this view in the whole tensor, for coordinates */
    /* The number of query rows or of rows of this tensor, over all heads, whichever is smaller, with much dropout
     * or where a block mask leaves few rows at most judge_rows_sharing; at least 1. The bound of rule 4 is gain +
     * rms / sqrt(this), because independent errors of rows average out. The rows of dK and dV are not independent:
     * all keys share the error in D of a query, and most of dV comes from the few keys with large weights. So the
     * number of queries limits the averaging. */
    int64_t independent_rows;
    struct judge_bounds bounds;
    double naive_max_abs_err; /* rule 5; NaN = naive did not run, failed or was not finite */
    /* Reads output and reference at one element of the view, for the message; may be NULL. */
    void (*peek)(void *context, int64_t b, int64_t h, int64_t row, int64_t col, float *got, float *want);
    void *peek_context;
    double *by_rule; /* for each of JUDGE_RULES the error / its bound, NaN where a rule was not applied; may be NULL */
};

/* Fills *out, `failure` included; true when every rule holds. */
bool judge_tensor(const struct judge_input *, struct record_tensor *out);

/* Keeps the worse of two verdicts on the same tensor (two views, or before and after timing) in *into. */
void judge_merge(struct record_tensor *into, const struct record_tensor *other);

/* rms of the reference over all blocks of a tensor with this many elements. */
double judge_reference_rms(const struct compare_block *, int64_t blocks, double elements);

#endif
