/* Rules 1 to 6 of docs/design.md, section 6, computed from block sums. Every comparison is written so that NaN
 * fails. */
#include "cmd/judge/judge.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/base/log.h"

const char *judge_rule_name(enum judge_rule rule)
{
    static const char *const names[RULE_COUNT] = {"nonfinite", "element", "rms", "block_rms",
                                                  "gain",      "naive",   "lse", "guard"};
    return names[rule];
}

/* Upper limit of error / bound: JSON cannot store infinity. */
static const double USED_MAX = 999;

/* rms[] is indexed by attn_mode.
 * lse: of rule 6. An LSE is stored in fp32 whatever the dtype is; where the inputs are fp32 too, nothing on the way to
 * it is rounded to 16 bits.
 * eps: the machine epsilon of the dtype (for fp32 eight times its rounding unit, because the arithmetic is not wider
 * than the dtype).
 * tiny: four times the smallest number above 0 of the dtype; smaller terms are lost before they are summed.
 * ulp: the one-ulp term of rule 5. 0 in fp32, where the rule does not apply: naive has no lower precision there, and a
 * fused backward, which recomputes P from an LSE rounded to fp32, is necessarily less exact than naive, which reads its
 * P. */
struct dtype_bounds {
    double atol_rms, rtol, rms[2], gain, eps, tiny, ulp, lse;
};

static const struct dtype_bounds dtype_bounds[] = {
    [ATTN_FP32] = {1e-3, 1e-3, {1e-4, 2e-4}, 1e-4, 0x1p-21, 0x1p-124, 0, 1e-4},
    [ATTN_FP16] = {0.01, 1e-2, {8e-4, 1.2e-3}, 1e-3, 0x1p-10, 0x1p-22, 0x1p-10, 1e-3},
    [ATTN_BF16] = {0.05, 1e-2, {5e-3, 8e-3}, 1e-3, 0x1p-7, 0x1p-124, 0x1p-7, 1e-3},
};

/* Rule 6. */
static struct judge_bounds lse_bounds(const struct dtype_bounds *d, enum attn_dtype dtype, bool doubled,
                                      double reference_rms)
{
    if (dtype == ATTN_FP32)
        /* A logit is a sum over head_dim in fp32; its error is a few rounding units of its largest terms. These can be
         * larger than the LSE of their own row, therefore the rms of all rows counts too. Inputs that are normal(0, 1)
         * have an LSE of about ln(kv_len), and this adds a tenth to the bound. */
        return (struct judge_bounds){.atol_absolute = d->lse + 2 * d->eps * reference_rms, .rtol = d->eps};
    struct judge_bounds lse = {.atol_absolute = doubled ? 2 * d->lse : d->lse};
    if (doubled) {
        /* naive rounds S to the dtype, and with it the largest logit m: an error of up to eps / 2 * |m|. |m| is at most
         * |LSE| + ln(kv_len), and ln(kv_len) is below 16. */
        lse.atol_absolute += 8 * d->eps;
        lse.rtol = d->eps / 2;
    }
    return lse;
}

/* What one element of dQ or dK may be off in 16 bits, in eps of its product over absolute values: the terms dS_ij K_jc
 * are rounded to half a unit each, and D with O: independent errors, whose standard deviation together is at most
 * sqrt(2/3) * eps / 2 of the product, and 0.3 eps on average over mantissas. Five to seven of them. */
static const double ELEMENT_DEVIATIONS = 2;

/* True of what is made from dS or D, whose terms cancel each other. */
static bool is_of_ds(enum problem_tensor tensor)
{
    return tensor == TENSOR_DQ || tensor == TENSOR_DK || tensor == TENSOR_DSINK || tensor == TENSOR_DBIAS;
}

struct judge_bounds judge_bounds_for(enum problem_tensor tensor, enum attn_dtype dtype, enum attn_mode mode,
                                     bool doubled, double atol, double rtol, double reference_rms)
{
    const struct dtype_bounds *d = &dtype_bounds[dtype];
    const double factor = doubled ? 2 : 1;
    if (tensor == TENSOR_LSE)
        return lse_bounds(d, dtype, doubled, reference_rms);
    struct judge_bounds b = {.rtol = (isnan(rtol) ? d->rtol : rtol) * factor,
                             .ulp = d->ulp,
                             .rms = d->rms[mode] * factor,
                             .block_rms = 2 * d->rms[mode] * factor,
                             .gain = d->gain * factor};
    /* dQ, dK, dSink and dBias are sums with cancellation. The rounding of O changes D in every row, so that the rms
     * error can reach eps times the rms of the product over absolute values, and a single element four times that. For
     * O and dV eps times this product is only the lower limit of the norm. In fp32 the error itself has this size. */
    const bool has_cancellation = is_of_ds(tensor) || dtype == ATTN_FP32;
    b.norm_abs = has_cancellation ? d->eps / d->rms[mode] : d->eps;
    if (d->ulp > 0 && is_of_ds(tensor))
        b.ulp_abs = ELEMENT_DEVIATIONS * d->eps;
    /* Rows much smaller than the rest of the tensor are sums of terms that underflow relative to others, or in the
     * dtype. */
    const double floor_rms = d->eps * reference_rms;
    b.norm_floor = fmax(floor_rms, d->tiny / d->rms[mode]);
    if (isnan(atol)) {
        b.atol_rms = d->atol_rms * factor;
        b.atol_abs = (has_cancellation ? 4 * d->eps : d->atol_rms * d->eps) * factor;
        b.atol_absolute = (d->atol_rms * floor_rms + d->tiny) * factor;
    } else {
        b.atol_absolute = atol * factor;
    }
    return b;
}

void judge_floor_of_sums(struct judge_bounds *b, enum problem_tensor tensor, enum attn_dtype dtype, bool doubled,
                         int64_t head_dim, double largest_lse)
{
    if (!is_of_ds(tensor))
        return;
    if (dtype != ATTN_FP32) {
        b->atol_element = ELEMENT_DEVIATIONS * dtype_bounds[dtype].eps;
    } else {
        /* S is a sum of head_dim terms, of which each addition rounds to half a unit, 2^-24, of a partial sum as large
         * as the logit; P and dS have that relative error. Six standard deviations of 2^-23 / sqrt(12) each. */
        b->atol_element = 6 * 0x1p-23 * sqrt((double)head_dim / 12) * fmax(1, largest_lse);
    }
    if (doubled)
        b->atol_element *= 2;
}

void judge_floor_of_logits(struct judge_bounds *b, enum problem_tensor tensor, enum attn_dtype dtype, bool doubled,
                           int64_t head_dim, double largest_lse, double largest_slope)
{
    /* The error of a logit is the absolute one of LSE and the relative one of P. fp32: two standard deviations, as
     * above. 16 bits: tensor cores add the products of 8 columns or more at a time and cut off what is below the unit
     * of the partial sum, 2^-23 of the logit at most. All these errors have one sign, and half a unit is their mean.
     * LSE itself is rounded with the scale and with ln 2. */
    const bool is_cut = dtype != ATTN_FP32;
    const double cuts = (double)head_dim / 8 + (tensor == TENSOR_LSE ? 2 : 0);
    const double unit = 0x1p-23 * fmax(largest_lse, largest_slope);
    const double error = unit * (is_cut ? cuts : 2 * sqrt((double)head_dim / 12));
    if (tensor == TENSOR_LSE) { /* the same for naive, which in fp32 has no lower precision, and wider bounds else */
        b->atol_absolute = fmax(b->atol_absolute, error);
        return;
    }
    /* One element: six standard deviations, or the most. It is a sum of P, or dS, times rows, so that its error is
     * bounded by the same product over absolute values. What is made from dS has it as a floor of its norm, too: where
     * logits have a part in common, a column of K is large and dQ a difference there, in which the errors do not
     * cancel. The product of dQ and dK holds each term's error by its row's LSE, in 16 bits. Other products have the
     * usual size of dP - D, not that of each key: where one term is far larger, it is the element, and its error a part
     * of the element. */
    const bool is_in_product = is_cut && (tensor == TENSOR_DQ || tensor == TENSOR_DK) && largest_slope <= largest_lse;
    const bool has_cancellation = is_of_ds(tensor) && !is_in_product;
    const double element = (doubled ? 2 : 1) * (is_cut ? error : 3 * error);
    if (has_cancellation && !is_cut) { /* judge_floor_of_sums has set atol_element */
        b->rtol += element;
    } else if (has_cancellation && error > dtype_bounds[dtype].eps / 2) {
        b->rtol += element;
        b->atol_element += element;
        b->ulp_abs += element;
    } else if (!is_of_ds(tensor) && error > b->rms) {
        b->atol_element = fmax(b->atol_element, element);
    }
    const double relative = (doubled ? 2 : 1) * (is_cut ? error / 2 : error);
    if (has_cancellation)
        b->norm_abs = fmax(b->norm_abs, relative / fmax(b->rms, relative));
    if (!is_in_product) {
        b->rms = fmax(b->rms, relative);
        b->block_rms = fmax(b->block_rms, 2 * relative);
    }
    b->gain = fmax(b->gain, relative);
    if (b->ulp > 0)
        b->ulp += error;
}

void judge_floor_of_equal_weights(struct judge_bounds *b, enum problem_tensor tensor, enum attn_dtype dtype,
                                  double largest_logit)
{
    if (tensor == TENSOR_LSE || dtype == ATTN_FP32 || !(largest_logit <= dtype_bounds[dtype].eps / 16))
        return;
    /* The relative error of P rounded to nearest, the same in a whole row. Not doubled for naive, which rounds P once,
     * too. */
    b->gain = fmax(b->gain, dtype_bounds[dtype].eps / 2);
}

void judge_floor_of_dropout(struct judge_bounds *b, enum problem_tensor tensor, enum attn_dtype dtype, double dropout)
{
    if ((tensor != TENSOR_O && tensor != TENSOR_DV) || dtype == ATTN_FP32 || !(dropout > 0 && dropout < 1))
        return;
    const double factor = 1 / (1 - dropout);
    b->gain = fmax(b->gain, fabs((double)compare_rounded((float)factor, dtype) / factor - 1));
}

void judge_floor_of_denormals(struct judge_bounds *b, const struct judge_denormals *lost)
{
    /* Six standard deviations for one of many elements, which are not enough for a sum of one or two; for the norm
     * 1.25, because the mean over a tensor hardly varies: half of what the rule for blocks allows then. A block may
     * have one row that is not zero, and its mean is no mean. */
    b->atol_absolute += 6 * lost->column + lost->one;
    if (lost->rms > 0) {
        b->norm_floor = fmax(b->norm_floor, 1.25 * lost->rms / b->rms);
        b->norm_row = fmax(b->norm_row, lost->row / b->rms);
        b->ulp_absolute = fmax(b->ulp_absolute, 6 * lost->column + lost->one);
    }
}

/* By the inputs' type; docs/judging.md has the calibration. */
struct rounding_of_p {
    double rms, atol_rms, gain;
};

static const struct rounding_of_p roundings_of_p[] = {
    [ATTN_E4M3] = {0.045, 0.25, 3e-3}, [ATTN_E5M2] = {0.09, 0.5, 6e-3}};

void judge_rounded_p(struct judge_bounds *b, enum attn_dtype inputs, bool doubled, double atol)
{
    const struct rounding_of_p *r = &roundings_of_p[inputs];
    const double factor = doubled ? 2 : 1;
    b->rms = r->rms * factor;
    b->block_rms = 2 * b->rms;
    b->gain = r->gain * factor;
    b->ulp = 0; /* rule 5: a naive that does not round P to 8 bits has a far smaller error */
    if (isnan(atol)) {
        const double wider = r->atol_rms * factor / b->atol_rms;
        b->atol_rms *= wider;
        b->atol_abs *= wider;
        b->atol_absolute *= wider;
    }
}

void judge_floor_of_8_bits(struct judge_bounds *b, enum problem_tensor tensor, int64_t head_dim, int64_t kv_len,
                           double largest_lse, double of_one_term)
{
    /* As in judge_floor_of_logits, but sums keep 13 bits behind the first one. LSE is at most ln(kv_len) above the
     * logits that have weight: at usual ones, where it is little else, the difference is near 0. Where one key has
     * nearly all of P, which is where the largest logit is above 2 ln(kv_len), the error is that of its logit: each of
     * its head_dim products is cut off by itself, half a unit on average, and after a rotation all that are small
     * enough for it may have one sign. Over many keys such errors cancel. */
    const double spread = log((double)kv_len);
    const double unit = 0x1p-13 * fmax(0, largest_lse - spread);
    const double of_one_key = 0x1p-13 * fmax(0, largest_lse - 2 * spread);
    const double error = ((double)head_dim / 8 + 2) * unit + (double)head_dim * 3 / 8 * of_one_key;
    if (tensor == TENSOR_LSE)
        b->atol_absolute += error;
    if (tensor != TENSOR_O)
        return;
    b->rtol = fmax(b->rtol, of_one_term);
    if (error > b->rms)
        b->atol_element = fmax(b->atol_element, error);
    b->gain = fmax(b->gain, 2 * unit); /* what all logits have too little of: as a scale that is too small */
}

/* The largest error / bound so far in one tensor, where it is, and the largest of each rule. */
struct worst_share {
    double used;
    const char *rule;
    int64_t block; /* index of the block */
    int32_t at;    /* element in that block, -1 = its worst element */
    double by_rule[JUDGE_RULES];
};

static void take_share(struct worst_share *worst, enum judge_rule rule, double used, int64_t block, int32_t at)
{
    if (!(used <= USED_MAX))
        used = USED_MAX;
    worst->by_rule[rule] = fmax(worst->by_rule[rule], used);
    if (used > worst->used || worst->rule == NULL) {
        worst->used = used;
        worst->rule = judge_rule_name(rule);
        worst->block = block;
        worst->at = at;
    }
}

static double share_of(double value, double bound) { return value == 0 ? 0 : value / bound; }

/* How many elements share a norm: (sum of x)^2 / sum of x^2 of their squared products over absolute values; INFINITY
 * where there are many. dSink has one for each query head. */
static double elements_sharing(const struct judge_input *in, int64_t count)
{
    double sum = 0, squares = 0;
    for (int64_t n = 0; n < count && in->tensor == TENSOR_DSINK; n++) { /* a block is an element */
        sum += in->blocks[n].abs2;
        squares += in->blocks[n].abs2 * in->blocks[n].abs2;
    }
    return squares > 0 ? sum * sum / squares : INFINITY;
}

/* The squared norm that an error over `elements` elements is divided by: that of the reference, or its lower limit. */
static double norm2_of(const struct judge_bounds *b, double ref2, double abs2, double elements)
{
    return fmax(fmax(ref2, b->norm_abs * b->norm_abs * abs2),
                fmax(b->norm_floor * b->norm_floor * elements, b->norm_row * b->norm_row));
}

static double relative_rms(const struct judge_bounds *b, double err2, double ref2, double abs2, double elements)
{
    return err2 == 0 ? 0 : sqrt(err2 / norm2_of(b, ref2, abs2, elements));
}

/* Elements in block number n. */
static double block_elements(const struct judge_input *in, int64_t n)
{
    const int64_t base = n % compare_blocks_per_head(in->len) * COMPARE_BLOCK_ROWS;
    const int64_t rows = in->len - base < COMPARE_BLOCK_ROWS ? in->len - base : COMPARE_BLOCK_ROWS;
    return (double)(rows * in->head_dim);
}

struct totals {
    double err2, ref2, abs2, err_dot, round_dot, max_abs_err, max_abs_x, block_rms;
    int64_t nonfinite;
};

static struct totals scan_blocks(const struct judge_input *in, int64_t count, struct worst_share *worst)
{
    struct totals t = {0};
    for (int64_t n = 0; n < count; n++) {
        const struct compare_block *b = &in->blocks[n];
        t.err2 += b->err2;
        t.ref2 += b->ref2;
        t.abs2 += b->abs2;
        t.err_dot += b->err_dot;
        t.round_dot += b->round_dot;
        t.max_abs_err = fmax(t.max_abs_err, b->max_abs_err);
        t.max_abs_x = fmax(t.max_abs_x, b->max_abs_x);
        t.nonfinite += b->nonfinite;
        if (b->nonfinite)
            take_share(worst, RULE_NONFINITE, USED_MAX, n, b->first_nonfinite_at);
        if (b->max_used_at >= 0)
            take_share(worst, in->tensor == TENSOR_LSE ? RULE_LSE : RULE_ELEMENT, b->max_used, n, b->max_used_at);
        if (in->bounds.block_rms > 0) {
            const double rms = relative_rms(&in->bounds, b->err2, b->ref2, b->abs2, block_elements(in, n));
            t.block_rms = fmax(t.block_rms, rms);
            take_share(worst, RULE_BLOCK_RMS, share_of(rms, in->bounds.block_rms), n, b->max_used_at);
        }
    }
    return t;
}

/* "0.78 % of elements, in all 16 heads, all in rows 112..127": over the elements or, when a norm failed while every
 * element passed, over the blocks whose norm failed. */
static void locate(const struct judge_input *in, int64_t count, char *text, size_t size)
{
    const int64_t per_head = compare_blocks_per_head(in->len);
    int64_t bad = 0, first_row = INT64_MAX, last_row = -1, heads_hit = 0, last_head = -1;
    bool by_element = false;
    for (int64_t n = 0; n < count; n++)
        by_element |= in->blocks[n].bad > 0;
    for (int64_t n = 0; n < count; n++) {
        const struct compare_block *b = &in->blocks[n];
        const int64_t head = n / per_head, base = n % per_head * COMPARE_BLOCK_ROWS;
        const int64_t rows = in->len - base < COMPARE_BLOCK_ROWS ? in->len - base : COMPARE_BLOCK_ROWS;
        int64_t first = base + b->first_bad_row, last = base + b->last_bad_row, elements = b->bad;
        if (!by_element) {
            const double rms = relative_rms(&in->bounds, b->err2, b->ref2, b->abs2, block_elements(in, n));
            elements = rms <= in->bounds.block_rms ? 0 : rows * in->head_dim;
            first = base;
            last = base + rows - 1;
        }
        if (elements == 0)
            continue;
        bad += elements;
        first_row = first < first_row ? first : first_row;
        last_row = last > last_row ? last : last_row;
        heads_hit += head != last_head;
        last_head = head;
    }
    if (bad == 0) {
        snprintf(text, size, "spread over the whole tensor");
        return;
    }
    const int64_t heads = in->batch * in->heads;
    const double share = 100.0 * (double)bad / ((double)heads * (double)in->len * (double)in->head_dim);
    char where[64];
    if (heads == 1)
        snprintf(where, sizeof where, "in the only head");
    else if (heads_hit == heads)
        snprintf(where, sizeof where, "in all %lld heads", (long long)heads);
    else
        snprintf(where, sizeof where, "in %lld of %lld heads", (long long)heads_hit, (long long)heads);
    snprintf(text, size,
             share < 10 ? "%.2g %% of %s, %s, all in rows %lld..%lld" : "%.0f %% of %s, %s, all in rows %lld..%lld",
             share, by_element ? "elements" : "elements (whole 64-row blocks)", where,
             (long long)(first_row + in->row_offset), (long long)(last_row + in->row_offset));
}

static void describe(const struct judge_input *in, int64_t count, const struct worst_share *worst,
                     struct record_tensor *out)
{
    const int64_t per_head = compare_blocks_per_head(in->len);
    const int32_t at = worst->at < 0 ? 0 : worst->at;
    const int64_t head = worst->block / per_head;
    const int64_t b = head / in->heads, h = head % in->heads;
    const int64_t row = worst->block % per_head * COMPARE_BLOCK_ROWS + at / in->head_dim, col = at % in->head_dim;
    snprintf(out->worst, sizeof out->worst, in->tensor == TENSOR_LSE ? "%s[%lld,%lld,%lld]" : "%s[%lld,%lld,%lld,%lld]",
             out->name, (long long)(b + in->batch_offset), (long long)(h + in->head_offset),
             (long long)(row + in->row_offset), (long long)col);
    if (out->used <= 1)
        return;
    float got = NAN, want = NAN;
    char values[64] = "", where[256];
    if (in->peek) {
        in->peek(in->peek_context, b, h, row, col, &got, &want);
        snprintf(values, sizeof values, ": got %.5g want %.5g", (double)got, (double)want);
    }
    locate(in, count, where, sizeof where);
    snprintf(out->failure, sizeof out->failure,
             "%s b=%lld h=%lld row=%lld col=%lld%s; %s; by rule %s, %.3g x its bound", out->name,
             (long long)(b + in->batch_offset), (long long)(h + in->head_offset), (long long)(row + in->row_offset),
             (long long)col, values, where, out->rule, out->used);
}

/* Rule 5, of each block. */
static void compare_with_naive(const struct judge_input *in, int64_t count, const struct totals *t,
                               struct worst_share *worst)
{
    const struct judge_bounds *bound = &in->bounds;
    const double elements = (double)in->batch * (double)in->heads * (double)in->len * (double)in->head_dim;
    /* For a tensor near zero: what rule 3 allows for its rms, times four for a single element. */
    const double one_ulp =
        fmax(bound->ulp * t->max_abs_x, 4 * bound->rms * sqrt(norm2_of(bound, 0, t->abs2, elements) / elements));
    for (int64_t n = 0; n < count; n++) {
        const struct compare_block *b = &in->blocks[n];
        const double own_ulp = fmax(fmax(one_ulp, bound->ulp_absolute), bound->ulp_abs * (double)b->max_abs_product);
        take_share(worst, RULE_NAIVE, share_of((double)b->max_abs_err, 2 * in->naive_max_abs_err + own_ulp), n,
                   b->max_used_at);
    }
}

bool judge_tensor(const struct judge_input *in, struct record_tensor *out)
{
    const int64_t count = in->batch * in->heads * compare_blocks_per_head(in->len);
    const double sharing = elements_sharing(in, count);
    struct judge_bounds of_tensor = in->bounds;
    const struct judge_bounds *bound = &of_tensor;
    struct worst_share worst = {0};
    /* The error of one element of dSink is a sum of dO O times the rounding of O, which is that of one row where all
     * rows have the same O: 0.21 eps of its product over absolute values on average, and above eps in one of 5000. A
     * norm of one element is allowed what an element is, that of many a usual one. */
    of_tensor.norm_abs *= fmax(1, ELEMENT_DEVIATIONS / sqrt(sharing));
    for (int i = 0; i < JUDGE_RULES; i++)
        worst.by_rule[i] = NAN;
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s", problem_tensor_name(in->tensor));
    const struct totals t = scan_blocks(in, count, &worst);
    out->max_abs_err = t.max_abs_err;
    const double elements = (double)in->batch * (double)in->heads * (double)in->len * (double)in->head_dim;
    out->rel_rms_err = relative_rms(bound, t.err2, t.ref2, t.abs2, elements);
    out->rel_rms_bound = out->block_rms_err = out->gain_err = out->err_ratio = NAN;
    if (bound->rms > 0) {
        out->rel_rms_bound = bound->rms;
        out->block_rms_err = t.block_rms;
        out->gain_err = t.err_dot == 0 ? 0 : fabs(t.err_dot) / norm2_of(bound, t.ref2, t.abs2, elements);
        take_share(&worst, RULE_RMS, share_of(out->rel_rms_err, bound->rms), worst.block, worst.at);
        FABENCH_ASSERT(in->independent_rows > 0, "rule 4: independent_rows is not set");
        /* Where elements are equal so are the errors of rounding them to the output's type. */
        const double rounding = t.round_dot == 0 ? 0 : fabs(t.round_dot) / norm2_of(bound, t.ref2, t.abs2, elements);
        const double rows = fmin((double)in->independent_rows, sharing);
        const double gain_bound = bound->gain + bound->rms / sqrt(rows) + rounding;
        take_share(&worst, RULE_GAIN, share_of(out->gain_err, gain_bound), worst.block, worst.at);
        if (isfinite(in->naive_max_abs_err)) {
            out->err_ratio = t.max_abs_err == 0 ? 0 : t.max_abs_err / fmax(in->naive_max_abs_err, DBL_MIN);
            if (!(out->err_ratio <= USED_MAX))
                out->err_ratio = USED_MAX;
            if (bound->ulp > 0)
                compare_with_naive(in, count, &t, &worst);
        }
    }
    out->used = worst.used;
    snprintf(out->rule, sizeof out->rule, "%s", worst.rule ? worst.rule : "none");
    if (in->by_rule)
        memcpy(in->by_rule, worst.by_rule, sizeof worst.by_rule);
    describe(in, count, &worst, out);
    return out->used <= 1;
}

void judge_merge(struct record_tensor *into, const struct record_tensor *other)
{
    const double max_abs_err = fmax(into->max_abs_err, other->max_abs_err);
    const double rel_rms_err = fmax(into->rel_rms_err, other->rel_rms_err);
    if (!(other->used <= into->used))
        *into = *other;
    into->max_abs_err = max_abs_err;
    into->rel_rms_err = rel_rms_err;
}

double judge_reference_rms(const struct compare_block *blocks, int64_t count, double elements)
{
    double ref2 = 0;
    for (int64_t n = 0; n < count; n++)
        ref2 += blocks[n].ref2;
    return sqrt(ref2 / elements);
}

double judge_rows_sharing(const struct compare_block *blocks, int64_t rows)
{
    double sum = 0, squares = 0;
    for (int64_t n = 0; n < rows; n++) {
        sum += blocks[n].ref2;
        squares += blocks[n].ref2 * blocks[n].ref2;
    }
    return squares > 0 ? sum * sum / squares : 0;
}
