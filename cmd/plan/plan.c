/* Options x presets -> problems. Order: dtype, type of O and scales, mode, mask, head_dim, inputs, lengths. */
#include "cmd/plan/plan.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/paths.h"
#include "cmd/base/text.h"
#include "cmd/options/options_line.h"
#include "cmd/plan/plan_full.h"
#include "cmd/problem/problem.h"
#include "cmd/problem/problem_key.h"

enum { PLAN_MAX_ITEMS = 100000, EXTRAS_MAX = 96 };

/* The values of a preset for options that were not given. The CPU's quick preset is smaller, so that it ends in under a
 * minute on two cores. */
struct preset_values {
    const char *name;
    const char *seqlens;
    int64_t total_tokens, hidden;
    double warmup_ms, min_time_ms, max_noise_pct;
    int64_t samples;
    double sustain_s;
};

static const struct preset_values presets_cuda[] = {
    [PRESET_QUICK] = {"quick", "1k,4k", 16384, 2048, 100, 200, 0.5, 30, 0},
    [PRESET_PAPER] = {"paper", "1k:16k:*2", 16384, 2048, 500, 500, 0.5, 30, 0},
    [PRESET_CI] = {"ci", "1k,4k,16k", 16384, 2048, 500, 500, 0.5, 30, 0},
    [PRESET_ACCEPTANCE] = {"acceptance", "4k,16k", 16384, 2048, 500, 500, 0.5, 30, 10},
    [PRESET_FULL] = {"full", "1k,4k,16k", 16384, 2048, 100, 200, 0.5, 30, 0},
    [PRESET_DATA] = {"data", "4k,16k", 16384, 2048, 200, 300, 0.5, 30, 0},
    [PRESET_NODE] = {"node", "4k,16k", 16384, 2048, 100, 200, 0.5, 30, 0},
    [PRESET_DECODE] = {"decode", "1k,8k,32k,128k", 0, 4096, 50, 100, 0.5, 30, 0},
    [PRESET_GENERATIONS] = {"generations", "512:16k:*2", 16384, 2048, 200, 300, 0.5, 30, 0},
};

static const struct preset_values presets_cpu[] = {
    [PRESET_QUICK] = {"quick", "1k,4k", 4096, 128, 20, 100, 0.5, 6, 0},
    [PRESET_PAPER] = {"paper", "1k:16k:*2", 16384, 2048, 500, 500, 0.5, 30, 0},
    [PRESET_CI] = {"ci", "1k,4k,16k", 16384, 2048, 500, 500, 0.5, 30, 0},
    [PRESET_ACCEPTANCE] = {"acceptance", "4k,16k", 16384, 2048, 500, 500, 0.5, 30, 10},
    [PRESET_FULL] = {"full", "256", 512, 128, 20, 100, 0.5, 6, 0},
    [PRESET_DATA] = {"data", "1k", 1024, 128, 20, 100, 0.5, 6, 0},
    [PRESET_NODE] = {"node", "1k", 1024, 128, 20, 100, 0.5, 6, 0},
    [PRESET_DECODE] = {"decode", "256,1k", 0, 128, 20, 100, 0.5, 6, 0},
    [PRESET_GENERATIONS] = {"generations", "512,1k", 1024, 128, 20, 100, 0.5, 6, 0},
};

void plan_add(struct plan *plan, const struct plan_item *item)
{
    const bool is_full = (plan->count & (plan->count - 1)) == 0; /* there is room for the next power of two */
    if (is_full)
        plan->items = xrealloc(plan->items, (plan->count ? 2 * (unsigned long)plan->count : 1) * sizeof *plan->items);
    plan->items[plan->count++] = *item;
}

void plan_free(struct plan *plan)
{
    for (int i = 0; i < plan->array_count; i++) {
        problem_arrays_free(plan->arrays[i]);
        free(plan->arrays[i]);
    }
    free(plan->arrays);
    free(plan->items);
    name_list_free(&plan->folders);
    memset(plan, 0, sizeof *plan);
}

struct problem_key plan_item_key(const struct plan_item *item, enum l2_policy l2)
{
    struct problem_key key =
        problem_key_of(&item->problem, item->arrays, item->mode, item->dist, item->logit_std, item->seed, l2);
    key.hadamard = item->hadamard;
    key.quant_in_time = item->quant_in_time;
    key.logit_mean = item->logit_mean != 0 ? item->logit_mean : NAN;
    return key;
}

int plan_kinds_of(const struct options *o, enum attn_dtype dtype, struct attn_problem kinds[PLAN_KINDS_MAX])
{
    static const enum attn_dtype outputs[] = {ATTN_BF16, ATTN_FP16}; /* in the order of --out-dtype's names */
    int count = 0;
    if (!attn_dtype_is_8_bit(dtype)) {
        static const enum attn_dtype caches[] = {ATTN_FP32, ATTN_E4M3, ATTN_E5M2}; /* as --cache-dtype numbers them */
        for (int c = 1; c < 3 && dtype != ATTN_FP32; c++)
            if (o->cache_dtypes[c])
                kinds[count++] =
                    (struct attn_problem){.dtype = dtype, .cache_dtype = caches[c], .quant_scale = ATTN_SCALE_HEAD};
        if (o->cache_dtypes[0] || count == 0)
            kinds[count++] = (struct attn_problem){.dtype = dtype};
        return count;
    }
    for (int out = 0; out < 2; out++)
        for (int scale = ATTN_SCALE_TENSOR; scale <= ATTN_SCALE_BLOCK; scale++) {
            if (!o->out_dtypes[out] || !o->fp8_scales[scale - ATTN_SCALE_TENSOR])
                continue;
            struct attn_problem *kind = &kinds[count++];
            *kind = (struct attn_problem){
                .dtype = dtype, .out_dtype = outputs[out], .quant_scale = (enum attn_quant_scale)scale};
            if (scale == ATTN_SCALE_BLOCK)
                kind->scale_block = o->scale_block ? o->scale_block : 128;
        }
    return count;
}

double plan_item_flops(const struct plan_item *item)
{
    return problem_flops(&item->problem, item->mode, problem_pairs(&item->problem, item->arrays));
}

/* From sink.npy in the folder of the item's inputs, or from the seed. */
static bool set_sink(const struct plan_item *item, struct problem_arrays *arrays, struct reason *why)
{
    char *path = item->folder ? xasprintf("%s/sink.npy", item->folder) : NULL;
    const bool good = problem_set_sink(&item->problem, arrays, path, item->seed, why);
    free(path);
    return good;
}

bool plan_set_arrays(struct plan *plan, struct plan_item *item, const char *lengths, int64_t total_tokens,
                     const char *block_mask, int64_t mask_block, struct reason *why)
{
    const bool has_lengths = *lengths && strcmp(lengths, "fixed") != 0;
    const bool has_mask = *block_mask && strcmp(block_mask, "none") != 0;
    const bool is_decode = item->problem.lengths == ATTN_CACHE;
    const bool has_sink = item->problem.has_sink, has_alibi = item->problem.has_alibi;
    if (!has_lengths && !has_mask && !is_decode && !has_sink && !has_alibi)
        return true;
    struct problem_arrays *arrays = xcalloc(1, sizeof *arrays);
    plan->arrays = xrealloc(plan->arrays, (unsigned long)(plan->array_count + 1) * sizeof(void *));
    plan->arrays[plan->array_count++] = arrays;
    item->arrays = arrays;
    if (has_alibi)
        problem_set_alibi(&item->problem, arrays);
    return (is_decode      ? problem_set_cache(&item->problem, arrays, lengths, item->seed, why)
            : !has_lengths ? true
                           : problem_set_lengths(&item->problem, arrays, lengths, total_tokens, item->seed, why)) &&
           (!has_mask || problem_set_block_mask(&item->problem, arrays, block_mask, mask_block, item->seed, why)) &&
           (!has_sink || set_sink(item, arrays, why));
}

/* The list that was given, or the default, parsed from text. */
static struct int_list list_or(const struct int_list *given, const char *text)
{
    struct int_list list = {0};
    if (given->count) {
        list.values = xmalloc((unsigned long)given->count * sizeof *list.values);
        memcpy(list.values, given->values, (size_t)given->count * sizeof *list.values);
        list.count = given->count;
        return list;
    }
    char why[128];
    const bool legal = number_parse_list(text, &list.values, &list.count, why, sizeof why);
    FABENCH_ASSERT(legal, "%s", text);
    return list;
}

bool plan_shape_fits(const struct attn_problem *p)
{
    int64_t n = 0;
    const int64_t heads = p->q_heads, len = p->q_len > p->kv_len ? p->q_len : p->kv_len;
    const bool is_packed = p->lengths == ATTN_PACKED;
    const int64_t tokens = is_packed ? (p->total_q > p->total_k ? p->total_q : p->total_k) : len;
    int64_t bias = 1;
    const bool bias_fits = number_multiply(p->bias_batch, p->bias_heads, &bias) &&
                           number_multiply(bias, p->q_len, &bias) && number_multiply(bias, p->kv_len, &bias) &&
                           bias <= INT64_C(1) << 40;
    const int64_t widest = attn_v_head_dim(p) > p->head_dim ? attn_v_head_dim(p) : p->head_dim;
    return number_multiply(is_packed ? 1 : p->batch, heads, &n) && number_multiply(n, tokens, &n) && bias_fits &&
           number_multiply(n, widest, &n) && n <= INT64_C(1) << 40 && len <= INT32_MAX && p->batch <= INT32_MAX &&
           heads <= INT32_MAX && p->batch > 0 && p->q_len > 0 && p->kv_len > 0 && p->head_dim > 0 && heads > 0;
}

/* What one problem of a sweep is made from; 0 = by the papers' convention, or equal. */
struct choice {
    int64_t head_dim, v_head_dim, q_len, kv_len, batch, q_heads, kv_heads, window_left, window_right;
    const char *lengths, *block_mask; /* "" = fixed, none */
};

static bool has_own_lengths(const struct choice *c) { return c->lengths[0] && strcmp(c->lengths, "fixed") != 0; }

/* As many sequences as the tokens make, those of the caches in decode, where lengths of their own say how many. */
static int64_t default_batch(const struct attn_problem *p, const struct choice *c, int64_t tokens)
{
    const bool is_decode = p->lengths == ATTN_CACHE;
    const int64_t batch = tokens / (is_decode ? p->kv_len : p->q_len);
    return c->batch ? c->batch : is_decode && has_own_lengths(c) ? 0 : batch > 1 ? batch : 1;
}

/* Fills the shape, with batch and heads by the papers' convention or as the user gave them, and the arrays. */
static int shape_of(const struct options *o, const struct preset_values *preset, const struct choice *c,
                    struct plan *plan, struct plan_item *item)
{
    struct attn_problem *p = &item->problem;
    struct reason why;
    const int64_t tokens = o->total_tokens ? o->total_tokens : preset->total_tokens;
    const int64_t hidden = o->hidden ? o->hidden : preset->hidden;
    p->head_dim = c->head_dim;
    p->v_head_dim = c->v_head_dim;
    p->q_len = c->q_len;
    p->kv_len = c->kv_len ? c->kv_len : c->q_len;
    p->batch = default_batch(p, c, tokens);
    p->q_heads = c->q_heads ? c->q_heads : (hidden / c->head_dim > 1 ? hidden / c->head_dim : 1);
    p->kv_heads = c->kv_heads ? c->kv_heads : p->q_heads;
    p->scale = isnan(o->scale) ? (float)(1.0 / sqrt((double)c->head_dim)) : (float)o->scale;
    p->layout = o->layout;
    p->window_left = c->window_left;
    p->window_right = c->window_right;
    problem_set_attributes(&o->attributes, p);
    if (p->q_heads %
        p->kv_heads) { /* with --heads or --hidden the parser has refused it (cmd/options/options_rules.c) */
        log_error("--kv-heads %lld: must divide the %lld query heads of head dim %lld; --heads sets their number",
                  (long long)p->kv_heads, (long long)p->q_heads, (long long)c->head_dim);
        return EXIT_USAGE;
    }
    /* A list or a file says all lengths; tokens limit them only where the user asks. */
    const bool is_drawn = c->lengths[0] != '@' && strncmp(c->lengths, "list", 4) != 0;
    if (!plan_set_arrays(plan, item, c->lengths, is_drawn ? tokens : o->total_tokens, c->block_mask,
                         o->mask_block ? o->mask_block : 128, &why)) {
        log_error("%s", why.text);
        return EXIT_USAGE;
    }
    if (p->lengths == ATTN_CACHE && p->total_q > 0 && o->q_lens.count) {
        log_error(
            "--lengths %s: cannot be used with --seqlen, which it replaces: it says the new tokens of each sequence",
            path_shown(c->lengths).text);
        return EXIT_USAGE;
    }
    problem_set_bias(p, o->bias); /* of the sequences that the lengths have made */
    if (!plan_shape_fits(p)) {
        log_error("batch %lld x heads %lld x length %lld x head dim %lld: more than 2^40 elements in one tensor",
                  (long long)p->batch, (long long)p->q_heads, (long long)(p->q_len > p->kv_len ? p->q_len : p->kv_len),
                  (long long)c->head_dim);
        return EXIT_USAGE;
    }
    return EXIT_OK;
}

/* The ci preset's twelve points: both modes, both head dims, three lengths; the mask alternates with the length unless
 * the user chose one. The node preset's eight are causal. */
static bool mask_wanted(const struct options *o, enum preset preset, bool causal, int64_t q_len)
{
    if (preset == PRESET_CI && !o->causal_given)
        return causal == (q_len != 4096);
    if (preset == PRESET_NODE && !o->causal_given)
        return causal;
    return o->causal[causal];
}

/* One kind of inputs. */
struct plan_data {
    enum fill_dist dist;
    double logit_std, logit_mean; /* 0 = as drawn */
};

/* The kinds of inputs of the options or the preset; the caller frees them. */
static struct plan_data *data_of(const struct options *o, enum preset preset, int *count)
{
    static const struct plan_data of_preset[] = {{FILL_NORMAL, 1, 0}, {FILL_NORMAL, 4, 0},  {FILL_NORMAL, 16, 0},
                                                 {FILL_RISING, 0, 0}, {FILL_FALLING, 0, 0}, {FILL_ZEROS, 0, 0}};
    static const double as_drawn[] = {0};
    const int std_count = o->logit_stds.count ? o->logit_stds.count : 1;
    const int mean_count = o->logit_means.count ? o->logit_means.count : 1;
    struct plan_data *data =
        xcalloc((unsigned long)FILL_DISTS * (unsigned long)std_count * (unsigned long)mean_count, sizeof *data);
    *count = 0;
    if (preset == PRESET_DATA && !o->dists_given && !o->logit_stds.count && !o->logit_means.count && !o->input_dir) {
        memcpy(data, of_preset, sizeof of_preset);
        *count = (int)(sizeof of_preset / sizeof of_preset[0]);
        return data;
    }
    for (int dist = 0; dist < FILL_DISTS; dist++)
        for (int s = 0; s < std_count * mean_count && o->dists[dist]; s++)
            data[(*count)++] = (struct plan_data){
                .dist = (enum fill_dist)dist,
                .logit_std = (o->logit_stds.count ? o->logit_stds.values : as_drawn)[s / mean_count],
                .logit_mean = (o->logit_means.count ? o->logit_means.values : as_drawn)[s % mean_count]};
    return data;
}

/* Refuses a logit-std for which Q would leave fp16, whose largest number is 65504, and normal inputs reach 4.4. */
static int check_range(const struct plan_item *item)
{
    const struct fill_spec spec = {
        .dist = item->dist, .logit_std = item->logit_std, .scale = (double)item->problem.scale};
    const double gain = item->logit_std > 0 ? (double)fill_logit_gain(&spec, item->problem.head_dim) : 1;
    const double largest = item->dist == FILL_UNIFORM ? 1 : 4.4;
    const struct fill_spec with_mean = {.logit_mean = item->logit_mean, .scale = spec.scale};
    const double of_q = fill_first_column(&with_mean, FILL_Q, item->problem.head_dim).top;
    const double of_k = fabs(fill_first_column(&with_mean, FILL_K, item->problem.head_dim).top);
    if (item->problem.dtype == ATTN_FP16 && item->logit_mean != 0 && fmax(of_q, of_k) >= 65504) {
        log_error(
            "--logit-mean %g: with a scale of %g the first columns of Q and K are %g and %g, beyond the range of fp16; "
            "a larger --scale or another --dtype are not",
            item->logit_mean, spec.scale, of_q, of_k);
        return EXIT_USAGE;
    }
    if (item->problem.dtype != ATTN_FP16 || gain * largest < 65504)
        return EXIT_OK;
    log_error(
        "--logit-std %g: with a scale of %g Q is multiplied by %.3g and leaves the range of fp16; a larger --scale "
        "or another --dtype does not",
        item->logit_std, (double)item->problem.scale, gain);
    return EXIT_USAGE;
}

/* One list of values, and the field of the choice that they go to. A pair list fills two fields. */
struct axis {
    const struct int_list *list;
    int64_t *field, *second; /* second: of a list of pairs */
};

static int axis_length(const struct axis *axis)
{
    return axis->list->count ? axis->list->count / (axis->second ? 2 : 1) : 1; /* an empty list leaves the default */
}

static void axis_set(const struct axis *axis, int index)
{
    if (axis->list->count == 0)
        return;
    *axis->field = axis->list->values[axis->second ? 2 * index : index];
    if (axis->second)
        *axis->second = axis->list->values[2 * index + 1];
}

/* Sets the fields of the n-th combination; the last axis changes fastest. False when there are no more. */
static bool choose(const struct axis *axes, int count, int64_t n)
{
    for (int i = count - 1; i >= 0; i--) {
        const int length = axis_length(&axes[i]);
        axis_set(&axes[i], (int)(n % length));
        n /= length;
    }
    return n == 0;
}

/* All lengths, heads and windows of one head dim and kind of inputs; `item` has dtype, mode and mask. */
static int cross_lengths(const struct options *o, enum preset preset, const struct preset_values *values,
                         struct choice c, struct plan_item item, struct plan *plan)
{
    /* With lengths of their own the sequences need no q_len here, and caches no kv_len. In decode the lengths of a
     * preset are those of the caches. */
    const bool is_decode = item.problem.lengths == ATTN_CACHE;
    struct int_list lens = list_or(&o->q_lens, is_decode || has_own_lengths(&c) ? "1" : values->seqlens);
    struct int_list keys = list_or(&o->kv_lens, has_own_lengths(&c) || !is_decode ? "1" : values->seqlens);
    const struct axis axes[] = {{&lens, &c.q_len, NULL},
                                {is_decode ? &keys : &o->kv_lens, &c.kv_len, NULL},
                                {&o->batches, &c.batch, NULL},
                                {&o->shapes, &c.q_heads, &c.kv_heads},
                                {&o->heads, &c.q_heads, NULL},
                                {&o->kv_heads, &c.kv_heads, NULL},
                                {&o->windows_left, &c.window_left, NULL},
                                {&o->windows_right, &c.window_right, NULL}};
    const struct plan_item base = item;
    int status = EXIT_OK;
    for (int64_t n = 0; status == EXIT_OK && choose(axes, (int)(sizeof axes / sizeof axes[0]), n); n++) {
        /* A causal mask ends at the diagonal; with --causal the parser has refused such a window. */
        if (!mask_wanted(o, preset, item.problem.causal, c.q_len) || (item.problem.causal && c.window_right > 0))
            continue;
        item = base;
        status = shape_of(o, values, &c, plan, &item);
        if (status == EXIT_OK && plan->count >= PLAN_MAX_ITEMS) {
            log_error("the lists make more than %d problems", PLAN_MAX_ITEMS);
            status = EXIT_USAGE;
        }
        if (status == EXIT_OK)
            status = check_range(&item);
        if (status == EXIT_OK)
            plan_add(plan, &item);
    }
    free(lens.values);
    free(keys.values);
    return status;
}

static int cross(const struct options *o, enum preset preset, const struct preset_values *values,
                 const struct attn_problem *kind, enum problem_mode mode, bool causal, struct plan *plan)
{
    struct int_list dims = list_or(&o->head_dims, "64,128");
    int status = EXIT_OK, data_count = 0;
    struct plan_data *data = data_of(o, preset, &data_count);
    for (int d = 0; d < dims.count && status == EXIT_OK; d++)
        for (int i = 0; i < data_count && status == EXIT_OK; i++) {
            struct plan_item item = {.mode = problem_direction(mode),
                                     .dist = data[i].dist,
                                     .logit_std = data[i].logit_std,
                                     .logit_mean = data[i].logit_mean,
                                     .seed = o->seed,
                                     .deterministic = o->deterministic,
                                     .splits = o->splits,
                                     .folder = o->input_dir};
            item.problem = *kind;
            item.problem.lengths = mode == MODE_DECODE ? ATTN_CACHE : ATTN_FIXED;
            item.problem.causal = causal;
            item.hadamard = o->hadamard && attn_dtype_is_8_bit(kind->dtype);
            item.quant_in_time = o->quant_in_time && attn_dtype_is_8_bit(kind->dtype);
            for (int l = 0; l < (o->lengths.count ? o->lengths.count : 1) && status == EXIT_OK; l++)
                for (int m = 0; m < (o->block_masks.count ? o->block_masks.count : 1) && status == EXIT_OK; m++) {
                    const struct choice c = {.head_dim = dims_qk(dims.values[d]),
                                             .v_head_dim = dims_v(dims.values[d]),
                                             .window_left = -1,
                                             .window_right = -1,
                                             .lengths = o->lengths.count ? o->lengths.names[l] : "",
                                             .block_mask = o->block_masks.count ? o->block_masks.names[m] : ""};
                    status = cross_lengths(o, preset, values, c, item, plan);
                }
        }
    free(data);
    free(dims.values);
    return status;
}

/* Which dtypes run: the user's, else the device's (fp16 on CUDA, fp32 on the CPU; bf16 in ci, acceptance, data, node
 * and decode; both 16-bit in full). */
static bool dtype_wanted(const struct options *o, enum attn_platform platform, enum preset preset,
                         enum attn_dtype dtype)
{
    if (o->dtypes_given)
        return o->dtypes[dtype];
    if (platform == ATTN_CPU)
        return dtype == (o->cache_dtypes[1] || o->cache_dtypes[2] ? ATTN_BF16 : ATTN_FP32);
    if (preset == PRESET_FULL)
        return dtype == ATTN_FP16 || dtype == ATTN_BF16;
    const bool takes_bf16 = preset == PRESET_CI || preset == PRESET_ACCEPTANCE || preset == PRESET_DATA ||
                            preset == PRESET_NODE || preset == PRESET_DECODE;
    return dtype == (takes_bf16 ? ATTN_BF16 : ATTN_FP16);
}

/* --points: removes all other problems from the plan. */
static int keep_points(const struct options *o, struct plan *plan)
{
    struct plan_item *kept = xmalloc((unsigned long)o->points.count * sizeof *kept);
    for (int i = 0; i < o->points.count; i++) {
        if (o->points.values[i] >= plan->count) {
            log_error("--points %lld: the plan has the problems 0 to %d", (long long)o->points.values[i],
                      plan->count - 1);
            free(kept);
            return EXIT_USAGE;
        }
        kept[i] = plan->items[o->points.values[i]];
    }
    free(plan->items);
    plan->items = kept;
    plan->count = o->points.count;
    return EXIT_OK;
}

static bool has_tensors_like(const struct attn_problem *a, const struct attn_problem *b)
{
    return a->batch == b->batch && a->q_heads == b->q_heads && a->kv_heads == b->kv_heads && a->q_len == b->q_len &&
           a->kv_len == b->kv_len && a->head_dim == b->head_dim && attn_v_head_dim(a) == attn_v_head_dim(b) &&
           a->lengths == b->lengths && a->total_q == b->total_q;
}

static const char *print_shapes(const struct attn_problem *p, char *buffer, size_t size)
{
    snprintf(buffer, size, "q [%lld, %lld, %lld, %lld] with k and v [%lld, %lld, %lld, %lld]", (long long)p->batch,
             (long long)p->q_heads, (long long)p->q_len, (long long)p->head_dim, (long long)p->batch,
             (long long)p->kv_heads, (long long)p->kv_len, (long long)p->head_dim);
    return buffer;
}

/* --input holds one set of tensors: modes, masks and dtypes may differ, shapes may not. */
static int check_input_shapes(const struct plan *plan)
{
    for (int i = 1; i < plan->count; i++) {
        char first[256], other[256];
        if (has_tensors_like(&plan->items[i].problem, &plan->items[0].problem))
            continue;
        log_error("--input is for tensors of one shape, these options make %s, and %s: narrow them with --d and "
                  "--seqlen",
                  print_shapes(&plan->items[0].problem, first, sizeof first),
                  print_shapes(&plan->items[i].problem, other, sizeof other));
        return EXIT_USAGE;
    }
    return EXIT_OK;
}

static bool asks_shape(const struct options *o)
{
    return o->q_lens.count || o->kv_lens.count || o->head_dims.count || o->batches.count || o->heads.count ||
           o->kv_heads.count || o->shapes.count || o->hidden || o->total_tokens;
}

/* --input names what --dump wrote: its problems are the plan. A folder of tensors is any problem of their shape instead
 * where the options ask for a shape. */
static int add_input(const struct options *o, struct plan *plan)
{
    char *tensor = xasprintf("%s/q.npy", o->input_dir);
    const bool is_of_any_problem = access(tensor, F_OK) == 0 && asks_shape(o);
    free(tensor);
    return is_of_any_problem ? EXIT_OK : plan_add_dump(o, "--input", o->input_dir, plan);
}

static void read_from(const char *folder, struct plan *plan)
{
    name_list_add(&plan->folders, folder);
    for (int i = 0; i < plan->count; i++)
        plan->items[i].folder = plan->folders.names[0];
}

void plan_name_more(struct plan_item *item, const char *format, ...)
{
    const size_t used = strlen(item->name);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(item->name + used, sizeof item->name - used, format, arguments);
    va_end(arguments);
}

void plan_name_attributes(struct plan_item *item)
{
    const struct problem_key key = plan_item_key(item, L2_COLD);
    char extras[PROBLEM_LABEL_SIZE];
    if (strlen(problem_key_extras(&key, extras, sizeof extras)) <= EXTRAS_MAX)
        plan_name_more(item, "%s", extras);
    else /* long texts, as paths of files, stay different when they are cut */
        plan_name_more(item, "%.*s %08x", EXTRAS_MAX, extras, (unsigned)text_hash(extras));
    for (char *at = item->name; *at; at++)
        *at = strchr(" =/@*", *at) ? '-' : *at;
}

/* The folder's name in --dump: "bwd-causal-d-128-n-16k-bf16", with what is not as drawn from N(0,1). */
static void name_items(const struct options *o, bool has_slices, struct plan *plan)
{
    const bool has_lists =
        has_slices || o->batches.count > 1 || o->heads.count > 1 || o->kv_heads.count > 1 || o->shapes.count > 2;
    for (int i = 0; i < plan->count; i++) {
        struct plan_item *item = &plan->items[i];
        const struct attn_problem *p = &item->problem;
        problem_print(p, item->mode, item->name, sizeof item->name);
        if (has_lists)
            plan_name_more(item, " b=%lld h=%lldx%lld", (long long)p->batch, (long long)p->q_heads,
                           (long long)p->kv_heads);
        if (item->dist != FILL_NORMAL)
            plan_name_more(item, " %s", problem_dist_name(item->dist));
        if (item->logit_std > 0)
            plan_name_more(item, " std %g", item->logit_std);
        if (item->logit_mean != 0)
            plan_name_more(item, " mean %g", item->logit_mean);
        plan_name_attributes(item);
    }
}

/* All combinations of the options. */
static int cross_all(const struct options *o, enum attn_platform platform, enum preset preset,
                     const struct preset_values *values, struct plan *plan)
{
    static const enum attn_dtype dtypes[] = {ATTN_FP16, ATTN_BF16, ATTN_FP32, ATTN_E4M3, ATTN_E5M2};
    int status = EXIT_OK;
    for (int t = 0; t < 5; t++) {
        struct attn_problem kinds[PLAN_KINDS_MAX];
        const int kind_count = dtype_wanted(o, platform, preset, dtypes[t]) ? plan_kinds_of(o, dtypes[t], kinds) : 0;
        for (int kind = 0; kind < kind_count; kind++)
            for (int mode = 0; mode < MODE_COUNT; mode++)
                for (int causal = 0; causal < 2; causal++)
                    if (status == EXIT_OK && o->modes[mode] &&
                        (mode != MODE_BWD || !attn_dtype_is_8_bit(dtypes[t])) && /* of 8 bits the forward */
                        (mode != MODE_DECODE || o->causal_given || causal))
                        status = cross(o, preset, values, &kinds[kind], (enum problem_mode)mode, causal, plan);
    }
    return status;
}

/* Removes the problems from `first` on whose caches are larger than those of the preset. */
static void keep_caches_that_fit(const struct options *o, struct plan *plan, int first)
{
    int kept = first;
    if (o->lengths.count || (o->batches.count && o->kv_lens.count))
        return; /* the user's own */
    for (int i = first; i < plan->count; i++)
        if (plan_cache_fits(&plan->items[i].problem))
            plan->items[kept++] = plan->items[i];
    plan->count = kept;
}

/* The presets full and decode: slice by slice. */
static int cross_slices(const struct options *o, enum attn_platform platform, enum preset preset,
                        const struct preset_values *values, struct plan *plan)
{
    int count, status = EXIT_OK;
    const struct plan_slice *slices = plan_slices(preset, platform, &count);
    for (int i = 0; i < count && status == EXIT_OK; i++) {
        struct slice_options slice;
        const int before = plan->count;
        if (slice_options_make(&slices[i], o, platform, &slice))
            status = cross_all(&slice.options, platform, preset, values, plan);
        slice_options_free(&slice);
        keep_caches_that_fit(o, plan, before);
    }
    return status;
}

/* The problems of the options and the preset, with their names. */
static int make_problems(const struct options *o, enum attn_platform platform, enum preset preset,
                         const struct preset_values *values, struct plan *plan)
{
    const bool has_slices = plan_has_slices(preset, o);
    const int status =
        has_slices ? cross_slices(o, platform, preset, values, plan) : cross_all(o, platform, preset, values, plan);
    name_items(o, has_slices, plan);
    return status;
}

int plan_make(const struct options *o, enum attn_platform platform, struct plan *plan)
{
    enum preset preset = o->preset;
    if (preset == PRESET_NONE)
        preset = platform == ATTN_CUDA ? PRESET_PAPER : PRESET_QUICK;
    const struct preset_values *values = &(platform == ATTN_CUDA ? presets_cuda : presets_cpu)[preset];
    FABENCH_ASSERT(values->name, "preset %d", preset);
    memset(plan, 0, sizeof *plan);
    plan->preset = values->name;
    plan->warmup_ms = isnan(o->warmup_ms) ? values->warmup_ms : o->warmup_ms;
    plan->min_time_ms = isnan(o->min_time_ms) ? values->min_time_ms : o->min_time_ms;
    plan->max_noise_pct = isnan(o->max_noise_pct) ? values->max_noise_pct : o->max_noise_pct;
    plan->sustain_s = isnan(o->sustain_s) ? values->sustain_s : o->sustain_s;
    plan->preheat_ms = isnan(o->preheat_s) ? 0 : o->preheat_s * 1e3;
    plan->samples = o->samples ? o->samples : values->samples;
    plan->total_tokens = o->batches.count ? 0 : o->total_tokens ? o->total_tokens : values->total_tokens;
    int status = o->input_dir ? add_input(o, plan) : EXIT_OK;
    const bool is_dump = plan->count > 0;
    if (is_dump)
        plan->total_tokens = 0;
    else if (status == EXIT_OK)
        status = make_problems(o, platform, preset, values, plan);
    if (status == EXIT_OK && o->points.count)
        status = keep_points(o, plan);
    if (status == EXIT_OK && o->profile && plan->count != 1) {
        log_error("--profile runs one problem, these options make %d: narrow them with --mode, --causal, --d, --seqlen "
                  "and --dtype",
                  plan->count);
        status = EXIT_USAGE;
    }
    if (status == EXIT_OK && o->input_dir && !is_dump)
        status = check_input_shapes(plan);
    if (status == EXIT_OK && o->input_dir && !is_dump)
        read_from(o->input_dir, plan);
    if (status != EXIT_OK)
        plan_free(plan);
    return status;
}

char *plan_repro(const struct options *o, const struct plan_item *item, const char *impl)
{
    const bool is_of_verify =
        item->batch_gap > 0 || item->strides || item->is_captured || item->deterministic != o->deterministic;
    if (item->folder ? o->command == COMMAND_VERIFY : is_of_verify) /* which verify alone makes */
        return plan_repro_verify(o, item, impl);
    const struct problem_key key = plan_item_key(item, o->l2);
    char *command = options_repro(o, COMMAND_SWEEP, "fabench", impl, &key);
    struct text longer = {0};
    text_add(&longer, "%s", command);
    free(command);
    if (item->splits != 0 && item->splits != o->splits) /* which is in it already where it was given */
        text_add(&longer, " --splits %lld", (long long)item->splits);
    if (o->preset == PRESET_DECODE && item->problem.page_size == 0)
        text_add(&longer, " --page-size 0"); /* of the preset's three */
    return text_take(&longer);
}

char *plan_repro_verify(const struct options *o, const struct plan_item *item, const char *impl)
{
    char *command = options_repro(o, COMMAND_VERIFY, "fabench verify", impl, NULL);
    struct text longer = {0};
    text_add(&longer, "%s --only", command);
    if (o->random_count) /* the first word of a key, which says the problem's number, is enough */
        text_add(&longer, " %.*s", (int)strcspn(item->name, "-"), item->name);
    else
        text_add_shell_word(&longer, item->name);
    free(command);
    return text_take(&longer);
}
