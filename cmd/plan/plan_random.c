/* Draws the problems of `verify --random`. */
#include "cmd/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"

#define LENGTH_OF(array) ((int64_t)(sizeof(array) / sizeof(array)[0]))

/* ---- random numbers ---- */

static uint64_t next(struct random_draw *d) { return number_mix(d->state += NUMBER_MIX_STEP); }

/* From `low` to `high`, both included. */
static int64_t between(struct random_draw *d, int64_t low, int64_t high)
{
    return low + (int64_t)(next(d) % (uint64_t)(high - low + 1));
}

/* True in `percent` of 100 cases. */
static bool chance(struct random_draw *d, int percent) { return between(d, 1, 100) <= percent; }

/* From `low` to `high`; as many from n to 2 n as from 2 n to 4 n. */
static int64_t between_by_size(struct random_draw *d, int64_t low, int64_t high)
{
    const double share = (double)(next(d) >> 11) * 0x1p-53;
    const int64_t value = (int64_t)floor((double)low * exp(share * log((double)(high + 1) / (double)low)));
    return value < low ? low : value > high ? high : value;
}

/* ---- the attributes ---- */

static bool is_cache(const struct random_draw *d) { return d->item->problem.lengths == ATTN_CACHE; }

/* Sequences that a batch has at least, where they fit: --invariance compares batches. */
static int64_t least_batch(const struct random_draw *d) { return d->options->invariance ? 2 : 1; }

static bool has_8_bits(const struct random_draw *d) { return attn_dtype_is_8_bit(d->item->problem.dtype); }

/* True for an option that was typed. */
static bool was_given(const struct options *o, const char *name)
{
    for (int i = 0; i + 1 < o->given.count; i += 2)
        if (strcmp(o->given.names[i], name) == 0)
            return true;
    return false;
}

/* The types that may be drawn with 8 bits, or with more; how many there are. */
static int64_t dtypes_asked(const struct random_draw *d, bool of_8_bits, enum attn_dtype asked[5])
{
    static const enum attn_dtype all[] = {ATTN_FP16, ATTN_BF16, ATTN_FP32, ATTN_E4M3, ATTN_E5M2};
    const struct options *o = d->options;
    int64_t count = 0;
    for (int t = 0; t < LENGTH_OF(all); t++) {
        const bool is_8_bit = attn_dtype_is_8_bit(all[t]);
        const bool by_default = is_8_bit || (d->platform == ATTN_CPU) == (all[t] == ATTN_FP32);
        if (is_8_bit == of_8_bits && (o->dtypes_given ? o->dtypes[all[t]] : by_default))
            asked[count++] = all[t];
    }
    return count;
}

static int64_t longest(const struct random_draw *d)
{
    return d->platform == ATTN_CPU ? RANDOM_LEN_CPU : RANDOM_LEN_CUDA;
}

/* 8-bit inputs and caches have no backward. */
static void draw_mode(struct random_draw *d)
{
    const bool *asked = d->options->modes;
    enum attn_dtype wide[5];
    const bool is_forward =
        d->options->invariance || (asked[ATTN_FWD] && asked[ATTN_BWD] ? chance(d, 50) : !asked[ATTN_BWD]);
    d->item->mode = is_forward || dtypes_asked(d, false, wide) == 0 ? ATTN_FWD : ATTN_BWD;
}

/* A seventh of the problems, in the forward, unless --mode says otherwise. */
static void draw_cache(struct random_draw *d)
{
    const struct options *o = d->options;
    const bool is_drawn = chance(d, 30);
    if (d->item->mode == ATTN_FWD && (o->mode_given ? o->modes[MODE_DECODE] : is_drawn))
        d->item->problem.lengths = ATTN_CACHE;
}

static void draw_dtype(struct random_draw *d)
{
    enum attn_dtype asked[5];
    const int64_t count = dtypes_asked(d, false, asked);
    if (count)
        d->item->problem.dtype = asked[between(d, 0, count - 1)];
}

/* A tenth of the problems, in the forward, unless --dtype says otherwise. */
static void draw_8_bits(struct random_draw *d)
{
    enum attn_dtype asked[5], wide[5];
    const int64_t count = dtypes_asked(d, true, asked);
    const bool is_drawn = chance(d, d->options->dtypes_given ? 50 : 20);
    if (count && d->item->mode == ATTN_FWD && (is_drawn || dtypes_asked(d, false, wide) == 0))
        d->item->problem.dtype = asked[between(d, 0, count - 1)];
}

/* A fifth of the other caches have 8 bits beside 16-bit queries, unless --dtype leaves out these. */
static void draw_cache_dtype(struct random_draw *d)
{
    const struct options *o = d->options;
    struct attn_problem *p = &d->item->problem;
    const bool is_drawn = chance(d, 20);
    const enum attn_dtype of_q = chance(d, 50) ? ATTN_FP16 : ATTN_BF16, cache = chance(d, 50) ? ATTN_E4M3 : ATTN_E5M2;
    if (!is_cache(d) || has_8_bits(d) || !is_drawn || (o->dtypes_given && !o->dtypes[of_q]))
        return;
    p->dtype = of_q;
    p->cache_dtype = cache;
    p->quant_scale = ATTN_SCALE_HEAD;
}

static void draw_out_dtype(struct random_draw *d)
{
    static const enum attn_dtype all[] = {ATTN_BF16, ATTN_FP16}; /* as --out-dtype numbers them */
    const struct options *o = d->options;
    const bool is_any = !was_given(o, "--out-dtype") || (o->out_dtypes[0] && o->out_dtypes[1]);
    const int64_t drawn = between(d, 0, 1);
    if (has_8_bits(d))
        d->item->problem.out_dtype = all[is_any ? drawn : o->out_dtypes[1]];
}

static void draw_fp8_scale(struct random_draw *d)
{
    const struct options *o = d->options;
    const bool is_limited = was_given(o, "--fp8-scale");
    enum attn_quant_scale asked[3];
    int64_t count = 0;
    for (int i = 0; i < 3; i++)
        if (!is_limited || o->fp8_scales[i])
            asked[count++] = (enum attn_quant_scale)(ATTN_SCALE_TENSOR + i);
    if (has_8_bits(d))
        d->item->problem.quant_scale = asked[between(d, 0, count - 1)];
}

/* Half of them tiles, half of them any number, also beyond all rows. */
static void draw_scale_block(struct random_draw *d)
{
    static const int64_t tiles[] = {16, 32, 64, 128};
    const int64_t tile = tiles[between(d, 0, LENGTH_OF(tiles) - 1)];
    const int64_t drawn = chance(d, 50) ? tile : between_by_size(d, 1, 2 * longest(d));
    if (d->item->problem.quant_scale == ATTN_SCALE_BLOCK)
        d->item->problem.scale_block = d->options->scale_block ? d->options->scale_block : drawn;
}

static bool is_power_of_two(int64_t n) { return (n & (n - 1)) == 0; }

static void draw_hadamard(struct random_draw *d)
{
    const bool is_drawn = chance(d, 50);
    d->item->hadamard =
        has_8_bits(d) && is_power_of_two(d->item->problem.head_dim) && (is_drawn || d->options->hadamard);
}

/* Half of them those with tiles of their own. With --hadamard powers of two. */
static void draw_head_dim(struct random_draw *d)
{
    static const int64_t native[] = {64, 96, 128, 192, 256};
    const struct int_list *asked = &d->options->head_dims;
    struct attn_problem *p = &d->item->problem;
    if (asked->count) {
        const int64_t dims = asked->values[between(d, 0, asked->count - 1)];
        p->head_dim = dims_qk(dims) > 256 && !is_cache(d) ? DIMS_CACHE_V / 4 : dims_qk(dims);
        p->v_head_dim = dims_qk(dims) > 256 && !is_cache(d) ? 0 : dims_v(dims);
    } else if (chance(d, 50))
        p->head_dim = native[between(d, 0, LENGTH_OF(native) - 1)];
    else
        p->head_dim = 8 * between(d, 1, 32);
    while (d->options->hadamard && !is_power_of_two(p->head_dim)) /* the next smaller one */
        p->head_dim &= p->head_dim - 1;
}

/* Half of them at or beside the edge of a tile, or the shortest or longest. */
static int64_t draw_length(struct random_draw *d)
{
    static const int64_t edges[] = {64, 128, 192, 256, 320, 384, 512, 1024, 2048, 4096};
    if (!chance(d, 50))
        return between_by_size(d, 1, longest(d));
    const int64_t which = between(d, -1, LENGTH_OF(edges) - 1);
    const int64_t len = which < 0 ? (chance(d, 70) ? 1 : longest(d)) : edges[which] + between(d, -1, 1);
    return len <= longest(d) ? len : between_by_size(d, 1, longest(d));
}

/* A V of another head dim than Q and K: pairs that models have, or any; of a cache also one that V shares with K. With
 * --d those that were asked. */
static void draw_v_head_dim(struct random_draw *d)
{
    static const int64_t pairs[][2] = {{192, 128}, {64, 128}, {128, 64}, {96, 64}};
    struct attn_problem *p = &d->item->problem;
    const bool is_drawn = chance(d, 12), is_any = chance(d, 30), is_shared = chance(d, 30);
    const int64_t pair = between(d, 0, LENGTH_OF(pairs) - 1), any = 8 * between(d, 1, 32);
    if (d->options->head_dims.count || d->options->hadamard || !is_drawn)
        return;
    if (is_cache(d) && is_shared) {
        p->head_dim = DIMS_CACHE_QK;
        p->v_head_dim = DIMS_CACHE_V;
    } else if (is_any) {
        p->v_head_dim = any == p->head_dim ? 0 : any;
    } else {
        p->head_dim = pairs[pair][0];
        p->v_head_dim = pairs[pair][1];
    }
}

/* Against a cache few new tokens, half of the time one. */
static void draw_q_len(struct random_draw *d)
{
    d->item->problem.q_len = !is_cache(d) ? draw_length(d) : chance(d, 50) ? 1 : between(d, 1, RANDOM_NEW_TOKENS);
}

/* A cache has the keys of the new tokens. */
static void draw_kv_len(struct random_draw *d)
{
    struct attn_problem *p = &d->item->problem;
    p->kv_len = chance(d, is_cache(d) ? 5 : 50) ? p->q_len : draw_length(d);
    if (is_cache(d) && p->kv_len < p->q_len)
        p->kv_len = p->q_len;
}

/* New tokens of their own for each of `count` sequences: one, a chunk of up to all keys, or none. The sequence with the
 * longest cache has the longest chunk, which becomes q_len. */
static void draw_chunks(struct random_draw *d, int64_t count, int64_t longest_at)
{
    struct attn_problem *p = &d->item->problem;
    const int64_t chunk = between_by_size(d, 1, p->kv_len);
    int used = snprintf(d->lengths, sizeof d->lengths, "list");
    d->sequences = count;
    p->q_len = chunk;
    for (int64_t b = 0; b < count; b++) {
        const int64_t k = b == longest_at ? p->kv_len : between_by_size(d, 1, p->kv_len), most = k < chunk ? k : chunk;
        const int64_t q = b == longest_at ? chunk : chance(d, 40) ? 1 : chance(d, 20) ? 0 : between(d, 1, most);
        used += snprintf(d->lengths + used, sizeof d->lengths - (size_t)used, ":%lldx%lld", (long long)q, (long long)k);
    }
}

/* Half of the caches have kv_len keys each. The others have lengths of their own, from q_len to kv_len: a list, or
 * drawn ones for a batch that is drawn later; or new tokens of their own, too. */
static void draw_cache_lengths(struct random_draw *d)
{
    const struct attn_problem *p = &d->item->problem;
    const int64_t count = between(d, least_batch(d), 6), longest_at = between(d, 0, count - 1);
    if (chance(d, 30)) {
        draw_chunks(d, count, longest_at);
        return;
    }
    if (chance(d, 50))
        return;
    if (chance(d, 25)) {
        snprintf(d->lengths, sizeof d->lengths, "uniform:%lld:%lld", (long long)p->q_len, (long long)p->kv_len);
        return;
    }
    if (p->q_len == 1 && chance(d, 25)) { /* lognormal has lengths from 1 on */
        snprintf(d->lengths, sizeof d->lengths, "lognormal:%lld:0.5", (long long)(p->kv_len + 3) / 4);
        return;
    }
    d->sequences = count;
    int used = snprintf(d->lengths, sizeof d->lengths, "list");
    for (int64_t b = 0; b < count; b++)
        used += snprintf(d->lengths + used, sizeof d->lengths - (size_t)used, ":%lld",
                         (long long)(b == longest_at ? p->kv_len : between_by_size(d, p->q_len, p->kv_len)));
}

/* Sequences of lengths of their own, some of them 0: a list, with equal lengths of queries and keys where q_len and
 * kv_len are equal, or drawn ones. q_len and kv_len are the longest of a list, and become those of drawn ones. */
static void draw_lengths(struct random_draw *d)
{
    const struct attn_problem *p = &d->item->problem;
    if (is_cache(d)) {
        draw_cache_lengths(d);
        return;
    }
    const int64_t kind = between(d, 0, 3), count = between(d, least_batch(d), 6);
    if (!chance(d, d->options->invariance ? 60 : 25))
        return;
    d->sequences = count;
    if (kind == 0 || kind == 1) {
        d->total_tokens = p->q_len * count;
        if (kind == 0)
            snprintf(d->lengths, sizeof d->lengths, "uniform:1:%lld", (long long)p->q_len);
        else
            snprintf(d->lengths, sizeof d->lengths, "lognormal:%lld:0.5", (long long)(p->q_len + 1) / 2);
        return;
    }
    int used = snprintf(d->lengths, sizeof d->lengths, "list");
    const int64_t longest_at = between(d, 0, count - 1);
    for (int64_t b = 0; b < count; b++) {
        const int64_t q = b == longest_at ? p->q_len : chance(d, 20) ? 0 : between_by_size(d, 1, p->q_len);
        const int64_t k = b == longest_at ? p->kv_len : chance(d, 20) ? 0 : between_by_size(d, 1, p->kv_len);
        used += snprintf(d->lengths + used, sizeof d->lengths - (size_t)used,
                         p->q_len == p->kv_len ? ":%lld" : ":%lldx%lld", (long long)q, (long long)k);
    }
}

/* How many heads of this problem, over all sequences, are computed in a reasonable time: a whole forward has four times
 * as many FLOPs as `most`. */
static int64_t heads_that_fit(const struct random_draw *d)
{
    const int64_t most = d->platform == ATTN_CPU ? INT64_C(1) << 24 : INT64_C(1) << 35;
    const struct attn_problem *p = &d->item->problem;
    const int64_t fit = most / (p->q_len * p->kv_len * p->head_dim) / (d->sequences ? d->sequences : 1);
    return fit < 1 ? 1 : fit > 256 ? 256 : fit;
}

/* Shared key heads (a group above 1) and a single key head as often as equal numbers. */
static void draw_heads(struct random_draw *d)
{
    struct attn_problem *p = &d->item->problem;
    const int64_t fit = heads_that_fit(d);
    const int64_t group = chance(d, 35) ? 1 : between(d, 2, d->platform == ATTN_CPU ? 8 : 16);
    const int64_t kv_heads = chance(d, 35) ? 1 : between(d, 2, d->platform == ATTN_CPU ? 3 : 8);
    const int64_t group_fits = group < fit ? group : fit, kv_fits = fit / group_fits;
    p->kv_heads = kv_heads < kv_fits ? kv_heads : kv_fits;
    p->q_heads = p->kv_heads * group_fits;
}

static void draw_batch(struct random_draw *d)
{
    struct attn_problem *p = &d->item->problem;
    const int64_t least = least_batch(d);
    const int64_t fit = heads_that_fit(d) / p->q_heads, batch = chance(d, 50) ? least : between_by_size(d, least, 5);
    if (d->sequences) /* whose number the lengths say */
        return;
    p->batch = batch < fit ? batch : fit > 1 ? fit : 1;
}

/* Pages smaller and larger than tiles, and larger than the cache. */
static void draw_page_size(struct random_draw *d)
{
    static const int64_t sizes[] = {8, 16, 24, 64, 128, 256};
    const int64_t size = sizes[between(d, 0, LENGTH_OF(sizes) - 1)], any = 8 * between(d, 1, 64);
    if (is_cache(d) && chance(d, 70))
        d->item->problem.page_size = chance(d, 80) ? size : any;
}

/* Also more parts than there are keys. */
static void draw_splits(struct random_draw *d)
{
    const int64_t splits = chance(d, 80) ? between(d, 1, 8) : between_by_size(d, 1, 1024);
    d->item->splits = is_cache(d) && chance(d, 40) && !d->options->invariance ? splits : 0;
}

static void draw_layout(struct random_draw *d) { d->item->problem.layout = chance(d, 60) ? ATTN_BSHD : ATTN_BHSD; }

static void draw_strides(struct random_draw *d)
{
    const struct attn_problem *p = &d->item->problem;
    const bool is_list = strncmp(d->lengths, "list", 4) == 0;
    const bool may_be_packed = p->layout == ATTN_BSHD && p->q_len == p->kv_len && (is_list || !d->lengths[0]) &&
                               !is_cache(d) && !p->v_head_dim;
    const bool is_contiguous = chance(d, 60), is_packed = chance(d, 70), is_own = chance(d, 60);
    d->item->strides = is_contiguous                ? PLAN_CONTIGUOUS
                       : may_be_packed && is_packed ? PLAN_PACKED_QKV
                       : is_own                     ? PLAN_OWN_STRIDES
                                                    : PLAN_PADDED_ROWS;
}

/* Room between the sequences. */
static void draw_batch_gap(struct random_draw *d) { d->item->batch_gap = chance(d, 10) ? 8 * between(d, 1, 64) : 0; }

static void draw_causal(struct random_draw *d)
{
    const bool *asked = d->options->causal;
    d->item->problem.causal = asked[0] && asked[1] ? chance(d, 50) : asked[1];
}

/* One side of a window: none, the diagonal alone, a few keys, the edge of a tile, within the keys, beyond them. */
static int64_t draw_side(struct random_draw *d)
{
    const int64_t len = d->item->problem.kv_len;
    if (!chance(d, 30))
        return -1;
    switch (between(d, 0, 5)) {
    case 0: return 0;
    case 1: return between(d, 1, 16);
    case 2: return 64 * between(d, 1, 4) + between(d, -1, 1);
    case 3: return between(d, 0, len);
    case 4: return len + between(d, 0, 2);
    default: return chance(d, 50) ? INT32_MAX : between(d, 0, len);
    }
}

static void draw_window_left(struct random_draw *d) { d->item->problem.window_left = draw_side(d); }

/* With the causal mask the right side is none or 0. */
static void draw_window_right(struct random_draw *d)
{
    struct attn_problem *p = &d->item->problem;
    const int64_t side = draw_side(d);
    p->window_right = !p->causal ? side : side == 0 ? 0 : -1;
}

static void draw_block_mask(struct random_draw *d)
{
    static const int64_t blocks[] = {8, 16, 64, 128};
    static const char *const masks[] = {"random:0.1", "random:0.5", "random:0.9", "random:1",
                                        "local:0",    "local:1",    "strided:2",  "strided:3"};
    if (is_cache(d)) /* whose few rows have no blocks */
        return;
    d->mask_block = chance(d, 15) ? blocks[between(d, 0, LENGTH_OF(blocks) - 1)] : 0;
    snprintf(d->block_mask, sizeof d->block_mask, "%s",
             d->mask_block ? masks[between(d, 0, LENGTH_OF(masks) - 1)] : "");
}

static void draw_dropout(struct random_draw *d)
{
    static const float probabilities[] = {0.1f, 0.1f, 0.25f, 0.5f, 0.75f, 0.9f, 0x1p-16f, 0.999f};
    struct attn_problem *p = &d->item->problem;
    p->dropout = 0;
    p->dropout_seed = 0;
    if (!chance(d, 25) || d->options->invariance)
        return;
    p->dropout = probabilities[between(d, 0, LENGTH_OF(probabilities) - 1)];
    p->dropout_seed = chance(d, 50) ? (uint64_t)between(d, 0, 9) : next(d) & INT64_MAX; /* above 32 bits, too */
}

static void draw_softcap(struct random_draw *d)
{
    static const float bounds[] = {0.5f, 5, 30, 50};
    d->item->problem.softcap = chance(d, 15) ? bounds[between(d, 0, LENGTH_OF(bounds) - 1)] : 0;
}

static void draw_sink(struct random_draw *d) { d->item->problem.has_sink = chance(d, 15); }

static void draw_alibi(struct random_draw *d) { d->item->problem.has_alibi = chance(d, 12); }

/* Not beside ALiBi; of a size that leaves room for the others. The lengths have to be known: its planes are. */
static void draw_bias(struct random_draw *d)
{
    const bool is_drawn = chance(d, 15);
    const int64_t kind = between(d, BIAS_FULL, BIAS_BATCH);
    d->bias = is_drawn && !d->item->problem.has_alibi ? (enum problem_bias)kind : BIAS_NONE;
}

static void draw_scale(struct random_draw *d)
{
    static const double factors[] = {0.25, 0.5, 2};
    const double usual = 1 / sqrt((double)d->item->problem.head_dim);
    d->item->problem.scale = !isnan(d->options->scale) ? (float)d->options->scale
                             : chance(d, 85)           ? (float)usual
                                                       : (float)(usual * factors[between(d, 0, 2)]);
}

static void draw_dist(struct random_draw *d)
{
    d->item->dist = chance(d, 50) ? FILL_NORMAL : (enum fill_dist)between(d, 0, FILL_DISTS - 1);
}

static void draw_logit_std(struct random_draw *d)
{
    static const double sizes[] = {0.25, 2, 4, 16};
    const bool is_drawn = chance(d, 15) && fill_takes_logit_std(d->item->dist);
    d->item->logit_std = is_drawn ? sizes[between(d, 0, LENGTH_OF(sizes) - 1)] : 0;
}

/* Where the first columns that it needs fit into every type. */
static void draw_logit_mean(struct random_draw *d)
{
    static const double sizes[] = {-20000, -2000, -500, 100, 20000};
    const double mean = sizes[between(d, 0, LENGTH_OF(sizes) - 1)];
    const bool is_drawn = chance(d, 5) && fill_takes_logit_std(d->item->dist) &&
                          !attn_dtype_is_8_bit(attn_kv_dtype(&d->item->problem)) &&
                          fabs(mean) < 1e8 * fabs((double)d->item->problem.scale);
    d->item->logit_mean = is_drawn ? mean : 0;
}

static void draw_deterministic(struct random_draw *d)
{
    d->item->deterministic = d->options->deterministic || chance(d, 15);
}

static void draw_graph(struct random_draw *d) { d->item->is_captured = d->platform == ATTN_CUDA && chance(d, 25); }

/* A row reads what those above it have drawn: lengths before heads, heads before the batch, and so on. */
static const struct random_attribute attributes[] = {
    {"mode", draw_mode},
    {"cache", draw_cache},
    {"dtype", draw_dtype},
    {"8 bits", draw_8_bits},
    {"cache-dtype", draw_cache_dtype},
    {"out-dtype", draw_out_dtype},
    {"fp8-scale", draw_fp8_scale},
    {"scale-block", draw_scale_block},
    {"head dim", draw_head_dim},
    {"V's head dim", draw_v_head_dim},
    {"hadamard", draw_hadamard},
    {"q_len", draw_q_len},
    {"kv_len", draw_kv_len},
    {"lengths", draw_lengths},
    {"heads", draw_heads},
    {"batch", draw_batch},
    {"page size", draw_page_size},
    {"splits", draw_splits},
    {"layout", draw_layout},
    {"strides", draw_strides},
    {"batch gap", draw_batch_gap},
    {"causal", draw_causal},
    {"window left", draw_window_left},
    {"window right", draw_window_right},
    {"block mask", draw_block_mask},
    {"dropout", draw_dropout},
    {"softcap", draw_softcap},
    {"sink", draw_sink},
    {"alibi", draw_alibi},
    {"bias", draw_bias},
    {"scale", draw_scale},
    {"dist", draw_dist},
    {"logit-std", draw_logit_std},
    {"logit-mean", draw_logit_mean},
    {"deterministic", draw_deterministic},
    {"graph", draw_graph},
};

const struct random_attribute *plan_random_attributes(int *count)
{
    *count = (int)LENGTH_OF(attributes);
    return attributes;
}

void plan_random_draw(struct random_draw *d, const struct random_attribute *attribute)
{
    d->state = number_mix_text(d->seed, attribute->name);
    attribute->draw(d);
}

/* The key: number first, then what the problem is. */
static void name_item(int64_t number, struct plan_item *item)
{
    char rest[sizeof item->name];
    plan_name_whole(item);
    memcpy(rest, item->name, sizeof rest);
    snprintf(item->name, sizeof item->name, "r%lld-%.*s", (long long)number, (int)sizeof rest - 24, rest);
}

/* When the lengths have made the sequences. */
static void set_bias(struct random_draw *d)
{
    struct attn_problem *p = &d->item->problem;
    const double most = d->platform == ATTN_CPU ? 0x1p22 : 0x1p27; /* elements */
    const double elements = (double)p->batch * (double)p->q_heads * (double)p->q_len * (double)p->kv_len;
    problem_set_bias(p, elements <= most ? d->bias : BIAS_NONE);
}

void plan_random_add(const struct options *o, enum attn_platform platform, int64_t number, struct plan *plan)
{
    struct plan_item item;
    struct reason why = {""};
    memset(&item, 0, sizeof item); /* padding, too: equal problems are equal bytes */
    struct random_draw d = {.options = o,
                            .platform = platform,
                            .seed = number_mix(number_mix(o->seed) + (uint64_t)number * NUMBER_MIX_STEP),
                            .item = &item};
    item.problem.window_left = item.problem.window_right = -1;
    item.seed = d.seed & INT64_MAX; /* what --seed takes */
    item.repeats = o->repeats;
    for (int i = 0; i < LENGTH_OF(attributes); i++)
        plan_random_draw(&d, &attributes[i]);
    const bool has_arrays = plan_set_arrays(plan, &item, d.lengths, d.total_tokens, d.block_mask, d.mask_block, &why);
    FABENCH_ASSERT(has_arrays, "%s", why.text);
    set_bias(&d);
    name_item(number, &item);
    plan_add(plan, &item);
}
