#include "cmd/run/naive_limits.h"

#include <math.h>
#include <stddef.h>

#include "reference/compare.h"

double limits_logit_std(const struct plan_item *item)
{
    const double root = sqrt((double)item->problem.head_dim), drawn = fabs((double)item->problem.scale) * root;
    if (item->logit_std > 0 || item->folder)
        return item->logit_std;
    switch (item->dist) {
    case FILL_NORMAL:
    case FILL_CONSTANT: return drawn;
    case FILL_UNIFORM: return drawn / 3; /* a variance of 1/3 in each factor */
    case FILL_SHARP: return 8 * drawn;
    case FILL_HUGE: return 256 * drawn;
    case FILL_PEAK: return 64 * root * drawn; /* of the peak itself */
    case FILL_RISING:
    case FILL_FALLING: return 60 * drawn;
    case FILL_OUTLIERS: return 1.1 * drawn;
    case FILL_CHANNELS: return 20 * 20 / sqrt(32) * drawn;
    case FILL_DRIFT: return 8 * drawn; /* of the last keys */
    case FILL_TINY: return 0x1p-40 * drawn;
    case FILL_ZEROS:
    case FILL_DISTS: break;
    }
    return 0;
}

/* Rising and falling logits run from 0 to a top; a common offset is that of all. Where a softcap c makes half of them
 * or more equal, so are P, and one rounding is that of all rows: c (1 - tanh |x|), about 2 c e^(-2 |x|), is below a
 * sixteenth of what bf16 tells apart. */
static bool softcap_makes_equal(const struct plan_item *item)
{
    const struct attn_problem *p = &item->problem;
    const struct fill_spec spec = {
        .dist = item->dist, .logit_mean = item->logit_mean, .scale = (double)item->problem.scale};
    const struct fill_column q = fill_first_column(&spec, FILL_Q, p->head_dim);
    const struct fill_column k = fill_first_column(&spec, FILL_K, p->head_dim);
    const double cap = (double)p->softcap, median = fabs(q.top * k.top * (double)p->scale) / 2;
    return cap > 0 && median > cap * log(2 * cap * 0x1p12) / 2;
}

/* No |bias| is above it, where that is small. */
static double largest_bias(const struct plan_item *item)
{
    if (item->problem.bias_heads == 0 || item->dist == FILL_ZEROS)
        return 0;
    return item->dist == FILL_TINY ? 4.4 * 0x1p-20 : INFINITY; /* the largest quantile of the normal table is 4.33 */
}

double limits_largest_logit(const struct plan_item *item)
{
    const struct fill_spec spec = {.dist = item->dist,
                                   .logit_std = item->logit_std,
                                   .logit_mean = item->logit_mean,
                                   .scale = (double)item->problem.scale};
    if (item->folder || attn_dtype_is_8_bit(attn_kv_dtype(&item->problem)) || item->problem.has_alibi)
        return INFINITY;
    const double drawn = softcap_makes_equal(item) ? 0 : fill_largest_logit(&spec, item->problem.head_dim);
    return drawn + largest_bias(item);
}

double limits_one_term(const struct plan_item *item)
{
    const double half_unit = attn_kv_dtype(&item->problem) == ATTN_E4M3 ? 0x1p-4 : 0x1p-3;
    return item->dist == FILL_OUTLIERS && attn_dtype_is_8_bit(item->problem.dtype) && !item->folder ? half_unit : 0;
}

/* Whether a block of rows or keys, which the judge looks at by itself, has fewer than eight. */
static bool has_short_block(const struct attn_problem *p)
{
    const int64_t rows = p->q_len % COMPARE_BLOCK_ROWS, keys = p->kv_len % COMPARE_BLOCK_ROWS;
    return p->lengths != ATTN_FIXED || (rows > 0 && rows < 8) || (keys > 0 && keys < 8);
}

/* The largest standard deviation with which naive meets its bounds. With most of P dropped, or few rows, a block may
 * have one element of P, whose own error counts then, and not the mean of many. */
static double largest_std(const struct attn_problem *p)
{
    if (p->dropout > 0.9f)
        return 1.01; /* 1, and what the rounding of the scale adds */
    return attn_output_dtype(p) == ATTN_BF16 || has_short_block(p) ? 1.5 : 2;
}

/* The rounding of a logit is 1.7e-3 of it in bf16 on average, an eighth of that in fp16: P is off by that, and at
 * 3 or 24 by half of naive's bound. */
static double largest_mean(const struct attn_problem *p) { return attn_output_dtype(p) == ATTN_BF16 ? 3 : 24; }

/* For --dist peak: where the largest logit of a row is not above the others by hundreds, or is not exact enough. */
static const char *limits_of_peak(const struct attn_problem *p)
{
    if (attn_dtype_is_8_bit(attn_kv_dtype(p)))
        return "naive rounds 8-bit inputs times their scales to 16 bits, and S: logits this large are beyond it";
    if (p->mask_block > 0)
        return "naive rounds S to 16 bits: the block mask hides the peak of some rows, and without it logits this "
               "close and this large are beyond it";
    if (p->head_dim < 64)
        return "naive rounds S to 16 bits: with a head_dim below 64 a peak may be close to other logits as large";
    return NULL;
}

static bool is_steep_dist(enum fill_dist dist)
{
    return dist == FILL_SHARP || dist == FILL_HUGE || dist == FILL_RISING || dist == FILL_FALLING ||
           dist == FILL_OUTLIERS || dist == FILL_CHANNELS || dist == FILL_DRIFT;
}

const char *naive_limits(const struct plan_item *item, enum attn_platform platform)
{
    const struct attn_problem *p = &item->problem;
    const bool is_steep = is_steep_dist(item->dist);
    if (p->dtype == ATTN_FP32 || (platform == ATTN_CPU && attn_dtype_is_8_bit(attn_kv_dtype(p))))
        return NULL;
    if (fabs(item->logit_mean) > largest_mean(p))
        return "naive rounds S to 16 bits: logits with a common part this large are beyond it";
    if (item->dist == FILL_PEAK && !item->folder)
        return limits_of_peak(p);
    return (item->logit_std == 0 && is_steep) || limits_logit_std(item) > largest_std(p)
               ? "naive rounds S to 16 bits: logits this close and this large are beyond it"
               : NULL;
}
