/* The problems of `fabench selftest`. */
#include "cmd/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/base/log.h"

/* Options -> the problems of `selftest`. Order: dtype, mask, mode, head_dim, length, what is beyond dense attention; of
 * each dtype caches last. */

/* For the faults of cmd/selftest/faults.c that need more than dense attention: a row for each set of attributes. The
 * windows are narrow, so that one key is a large part of them at any length, and no multiple of a tile. A window to the
 * right is left out under the causal mask. */
static const struct selftest_family {
    int64_t window_left, window_right;
    struct problem_attributes attributes;
    bool is_packed, has_block_mask;
    int64_t head_dim, v_head_dim; /* 0 = those of the options */
    enum problem_bias bias;
    int64_t mask_block; /* 0 = small ones; else at lengths of eight such blocks and more */
} selftest_family[] = {
    {-1, -1, {.dropout = 0}, false, false, 0, 0, BIAS_NONE, 0},
    {100, 30, {.dropout = 0}, false, false, 0, 0, BIAS_NONE, 0},
    {100, 30, {.dropout = 0.1, .dropout_seed = 1}, false, false, 0, 0, BIAS_NONE, 0},
    {-1, -1, {.dropout = 0}, true, false, 0, 0, BIAS_NONE, 0},
    {-1, -1, {.dropout = 0}, false, true, 0, 0, BIAS_NONE, 0},
    {-1, -1, {.dropout = 0}, false, false, 192, 128, BIAS_NONE, 0},
    {-1, -1, {.has_sink = true}, false, false, 0, 0, BIAS_NONE, 0},
    {-1, -1, {.has_alibi = true}, false, false, 0, 0, BIAS_NONE, 0},
    {-1, -1, {.dropout = 0}, false, false, 0, 0, BIAS_HEADS, 0},
    {-1, -1, {.dropout = 0}, false, true, 0, 0, BIAS_NONE, 128}, /* a tile of kernels that take no smaller ones */
};

/* Blocks of 8-bit inputs that have a scale; small, so that there are two at the shortest length. An implementation that
 * does not take them gets larger ones (cmd/selftest/selftest.c). */
enum { SELFTEST_SCALE_BLOCK = 64, SELFTEST_PAGE = 16 };

static struct plan_item item_of_selftest(const struct options *o, enum attn_dtype dtype, enum attn_mode mode,
                                         bool causal, int64_t dims, int64_t len)
{
    struct plan_item item = {.mode = mode, .dist = o->dist, .seed = o->seed};
    struct attn_problem *p = &item.problem;
    p->batch = 1;
    p->q_heads = p->kv_heads =
        o->selftest_heads ? o->selftest_heads : 2; /* at least two, because one fault swaps two heads */
    p->q_len = p->kv_len = len;
    p->head_dim = dims_qk(dims);
    p->v_head_dim = dims_v(dims);
    p->dtype = dtype;
    p->layout = ATTN_BSHD;
    p->causal = causal;
    p->window_left = p->window_right = -1;
    p->scale = (float)(1.0 / sqrt((double)p->head_dim));
    return item;
}

static void add_with_arrays(struct plan *plan, struct plan_item *item, const char *lengths, const char *block_mask,
                            int64_t mask_block)
{
    struct reason why;
    const bool good = plan_set_arrays(plan, item, lengths, 0, block_mask, mask_block, &why);
    FABENCH_ASSERT(good, "%s", why.text);
    plan_add(plan, item);
}

/* Rows of long sequences: the last ones, because the reference takes most of the time. */
static int64_t some_rows(int64_t len) { return len < 1024 ? len : 1024; }

/* Packed: `len` is the longest length; a sequence of 100 shows one key more, and one has none. A block of the mask is
 * at least 1/256 of what a row sees. */
static void add_wide(const struct plan_item *dense, const struct selftest_family *family, struct plan *plan)
{
    struct plan_item item = *dense;
    struct attn_problem *p = &item.problem;
    const int64_t len = p->kv_len, small_block = len <= 16384 ? 32 : (len + 511) / 512;
    const int64_t mask_block = family->mask_block ? family->mask_block : small_block;
    char lengths[96] = "";
    if (len < 8 * family->mask_block || mask_block < small_block)
        return;
    p->window_left = family->window_left;
    p->window_right = p->causal ? -1 : family->window_right;
    problem_set_attributes(&family->attributes, p);
    if (family->is_packed)
        snprintf(lengths, sizeof lengths, "list:%lldx%lld:0:100:%lldx%lld", (long long)some_rows(len), (long long)len,
                 (long long)some_rows(len / 3), (long long)(len / 3));
    if (family->has_block_mask || family->head_dim || family->attributes.has_sink || family->attributes.has_alibi ||
        family->bias)
        p->q_len = some_rows(len);
    if (family->head_dim) {
        p->head_dim = family->head_dim;
        p->v_head_dim = family->v_head_dim;
        p->scale = (float)(1.0 / sqrt((double)p->head_dim));
    }
    problem_set_bias(p, family->bias);
    add_with_arrays(plan, &item, lengths, family->has_block_mask ? "random:0.5" : "", mask_block);
    for (int64_t h = 0; h < p->q_heads && p->has_sink; h++) /* as large as all keys together, so that it shows */
        plan->arrays[plan->array_count - 1]->sink[h] += (float)log((double)len);
}

/* 8-bit inputs have a backward nowhere. */
static void add_8_bits(const struct plan_item *dense, struct plan *plan)
{
    struct plan_item item = *dense;
    item.problem.out_dtype = ATTN_BF16;
    item.problem.quant_scale = ATTN_SCALE_BLOCK;
    item.problem.scale_block = SELFTEST_SCALE_BLOCK;
    if (item.mode == ATTN_FWD)
        plan_add(plan, &item);
}

/* Caches in pages, one new token each: the longest has `len` keys; one of a third has one whole split and a short one;
 * the last page of some is not full. */
static void add_cache(const struct options *o, enum attn_dtype dtype, int64_t head_dim, int64_t len, struct plan *plan)
{
    struct plan_item item = item_of_selftest(o, dtype, ATTN_FWD, !o->causal_given || o->causal[1], head_dim, len);
    char lengths[64];
    item.problem.batch = 0; /* as many as there are lengths */
    item.problem.q_len = 1;
    item.problem.lengths = ATTN_CACHE;
    item.problem.page_size = SELFTEST_PAGE;
    snprintf(lengths, sizeof lengths, "list:%lld:%lld:%lld:37", (long long)len, (long long)(len - 27),
             (long long)(len / 3));
    add_with_arrays(plan, &item, lengths, "", 0);
}

/* Chunks of a prefill beside a sequence with one new token: the longest cache has `len` keys, of which the last are
 * those of its chunk. */
static void add_mixed(const struct options *o, enum attn_dtype dtype, int64_t head_dim, int64_t len, struct plan *plan)
{
    struct plan_item item = item_of_selftest(o, dtype, ATTN_FWD, !o->causal_given || o->causal[1], head_dim, len);
    char lengths[96];
    item.problem.batch = 0;
    item.problem.lengths = ATTN_CACHE;
    item.problem.page_size = SELFTEST_PAGE;
    snprintf(lengths, sizeof lengths, "list:%lldx%lld:1x%lld:40x%lld", (long long)some_rows(len), (long long)len,
             (long long)(len - 27), (long long)(len / 3 + 40));
    add_with_arrays(plan, &item, lengths, "", 0);
}

/* All of one dtype, direction, mask, head dim and length. */
static void add_family(const struct plan_item *dense, struct plan *plan)
{
    if (attn_dtype_is_8_bit(dense->problem.dtype)) {
        add_8_bits(dense, plan);
        return;
    }
    for (size_t f = 0; f < sizeof selftest_family / sizeof selftest_family[0]; f++)
        add_wide(dense, &selftest_family[f], plan);
}

int plan_make_selftest(const struct options *o, struct plan *plan)
{
    static const enum attn_dtype dtypes[] = {ATTN_FP16, ATTN_BF16, ATTN_FP32, ATTN_E4M3, ATTN_E5M2};
    static int64_t default_dims[] = {64}, default_lens[] = {1024, 16384};
    const struct int_list dims = o->head_dims.count ? o->head_dims : (struct int_list){default_dims, 1};
    const struct int_list lens = o->q_lens.count ? o->q_lens : (struct int_list){default_lens, 2};
    const bool has_caches = !o->mode_given || o->modes[MODE_DECODE];
    memset(plan, 0, sizeof *plan);
    plan->warmup_ms = plan->min_time_ms = plan->max_noise_pct = NAN; /* nothing is timed */
    plan->preset = "selftest";
    for (int t = 0; t < 5; t++) {
        if (o->dtypes_given && !o->dtypes[dtypes[t]])
            continue;
        for (int i = 0; i < 4 * dims.count * lens.count; i++) {
            const int64_t len = lens.values[i % lens.count], dim = dims.values[i / lens.count % dims.count];
            const int which = i / lens.count / dims.count;
            const enum attn_mode mode = which & 1 ? ATTN_BWD : ATTN_FWD;
            const struct plan_item dense = item_of_selftest(o, dtypes[t], mode, which >> 1, dim, len);
            if (o->modes[mode] && o->causal[which >> 1])
                add_family(&dense, plan);
        }
        for (int i = 0; i < dims.count * lens.count && has_caches && !attn_dtype_is_8_bit(dtypes[t]); i++)
            add_cache(o, dtypes[t], dims.values[i / lens.count], lens.values[i % lens.count], plan);
        for (int i = 0; i < dims.count * lens.count && has_caches && !attn_dtype_is_8_bit(dtypes[t]); i++)
            add_mixed(o, dtypes[t], dims.values[i / lens.count], lens.values[i % lens.count], plan);
    }
    return 0;
}
