/* The table of a problem's fields, and what is made from it. */
#include "cmd/problem/problem_key.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/text.h"

static bool has_equal_heads(const struct problem_key *k) { return k->kv_heads == k->q_heads; }
static bool has_fixed_lengths(const struct problem_key *k) { return !k->lengths[0] || !strcmp(k->lengths, "fixed"); }
static bool has_own_lengths(const struct problem_key *k) { return !has_fixed_lengths(k); } /* --lengths says them */
static bool is_decode(const struct problem_key *k) { return k->mode == MODE_DECODE; }
/* Their lengths say how many sequences there are and how long; against a cache how long the cache is. */
static bool has_packed_lengths(const struct problem_key *k) { return has_own_lengths(k) && !is_decode(k); }
/* Their lengths say how many rows of Q each has, which lengths of caches may do, too. */
static bool has_packed_rows(const struct problem_key *k)
{
    return has_own_lengths(k) && !(is_decode(k) && k->total_q <= 0);
}
/* --total-tokens limits what is drawn: nothing is against a cache. */
static bool has_no_limit(const struct problem_key *k) { return !has_packed_lengths(k); }

static bool has_default_keys(const struct problem_key *k)
{
    return has_own_lengths(k) || (k->kv_len == k->q_len && !is_decode(k));
}

static bool has_no_mask(const struct problem_key *k) { return !k->block_mask[0] || !strcmp(k->block_mask, "none"); }
static bool is_normal(const struct problem_key *k) { return k->dist == FILL_NORMAL; }
static bool has_no_left(const struct problem_key *k) { return k->window_left < 0; }
static bool has_no_right(const struct problem_key *k) { return k->window_right < 0; }
static bool has_default_output(const struct problem_key *k) { return k->out_dtype < 0 || k->out_dtype == ATTN_BF16; }
static bool has_no_cache_dtype(const struct problem_key *k) { return k->cache_dtype < 0; }
/* --fp8-scale is for 8-bit Q, K and V; a cache's K and V have scales of heads. */
static bool has_default_scales(const struct problem_key *k)
{
    return k->quant_scale <= ATTN_SCALE_TENSOR || !has_no_cache_dtype(k);
}
static bool has_default_blocks(const struct problem_key *k) { return k->scale_block <= 0 || k->scale_block == 128; }
static bool is_not_rotated(const struct problem_key *k) { return k->hadamard != 1; }
static bool is_quantised_before(const struct problem_key *k) { return k->quant_in_time != 1; }
static bool has_no_bias(const struct problem_key *k) { return k->bias <= BIAS_NONE; }
static bool has_equal_dims(const struct problem_key *k) { return k->v_head_dim == INT64_MIN; }
static bool has_no_dropout(const struct problem_key *k) { return k->dropout == 0; }

#define HAS_NO(kind, field, name, c_type, option, absent, words) \
    static bool has_no_##field(const struct problem_key *k) { return k->field == absent; }
PROBLEM_ATTRIBUTES(HAS_NO)
PROBLEM_LATER_ATTRIBUTES(HAS_NO)

static bool is_cold(const struct problem_key *k) { return k->l2 == L2_COLD; }

static bool has_default_scale(const struct problem_key *k)
{
    return (float)k->scale == (float)(1.0 / sqrt((double)k->head_dim));
}

#define FIELD(field, type) .name = #field, .kind = type, .offset = offsetof(struct problem_key, field)
#define NAMED(field) FIELD(field, PROBLEM_NAME), .names = problem_##field##_names

#define KIND_OF_COUNT PROBLEM_COUNT
#define KIND_OF_REAL PROBLEM_REAL
#define KIND_OF_FLAG PROBLEM_COUNT
#define IS_FLAG_COUNT false
#define IS_FLAG_REAL false
#define IS_FLAG_FLAG true
#define ROW(type, field, title, c_type, option_name, value, words) \
    {.name = #title, \
     .kind = KIND_OF_##type, \
     .offset = offsetof(struct problem_key, field), \
     .meaning = words, \
     .option = option_name, \
     .is_default = has_no_##field, \
     .is_compared = true, \
     .label = #title, \
     .absent = #value, \
     .is_flag = IS_FLAG_##type},

/* In the order of the CSV's columns, which is part of the contract: new rows go to the end. */
const struct problem_field problem_fields[] = {
    {NAMED(mode), .meaning = "direction: fwd, bwd; decode = forward against a cache", .option = "--mode",
     .is_compared = true},
    {NAMED(dtype),
     .meaning = "type of Q, K, V, the output and the gradients: fp16, bf16, fp32, e4m3, e5m2; of O see out_dtype",
     .option = "--dtype", .is_compared = true},
    {FIELD(causal, PROBLEM_COUNT), .meaning = "1 with the causal mask, else 0", .option = "--causal",
     .is_compared = true},
    {FIELD(batch, PROBLEM_COUNT), .meaning = "sequences", .option = "--batch", .is_default = has_packed_lengths,
     .is_compared = true},
    {FIELD(q_heads, PROBLEM_COUNT), .meaning = "query heads", .option = "--heads", .is_compared = true},
    {FIELD(kv_heads, PROBLEM_COUNT), .meaning = "heads of K and V", .option = "--kv-heads",
     .is_default = has_equal_heads, .is_compared = true},
    {FIELD(q_len, PROBLEM_COUNT), .meaning = "query length; the longest one", .option = "--seqlen",
     .is_default = has_packed_rows, .is_compared = true},
    {FIELD(kv_len, PROBLEM_COUNT), .meaning = "key length; the longest one", .option = "--kv-len",
     .is_default = has_default_keys, .is_compared = true},
    {FIELD(head_dim, PROBLEM_COUNT), .meaning = "head dimension", .option = "--d", .is_compared = true},
    {NAMED(layout), .meaning = "order of the dimensions in memory: bshd, bhsd (batch, s = length, heads, d)",
     .option = "--layout", .is_compared = true},
    {FIELD(window_left, PROBLEM_COUNT), .meaning = "keys of the window left of the diagonal; -1 = unbounded",
     .option = "--window-left", .is_default = has_no_left, .is_compared = true, .label = "left"},
    {FIELD(window_right, PROBLEM_COUNT), .meaning = "keys of the window right of it; -1 = unbounded",
     .option = "--window-right", .is_default = has_no_right, .is_compared = true, .label = "right"},
    {FIELD(dropout, PROBLEM_REAL), .meaning = "probability of dropping; 0 = none", .option = "--dropout",
     .is_default = has_no_dropout, .is_compared = true, .label = "dropout"},
    {FIELD(scale, PROBLEM_REAL), .meaning = "factor of Q K^T", .option = "--scale", .is_default = has_default_scale,
     .is_compared = true},
    {NAMED(dist), .meaning = "distribution of the inputs, see --dist", .option = "--dist", .is_default = is_normal,
     .is_compared = true},
    {FIELD(seed, PROBLEM_COUNT), .meaning = "random seed of the inputs", .option = "--seed"},
    {NAMED(l2), .meaning = "L2 cache before each sample: cold, hot", .option = "--l2", .is_default = is_cold,
     .is_compared = true},
    {FIELD(logit_std, PROBLEM_REAL), .meaning = "standard deviation of the logits, to which Q is scaled",
     .option = "--logit-std", .is_compared = true, .may_be_empty = true},
    {FIELD(lengths, PROBLEM_TEXT), .meaning = "lengths of the sequences, see --lengths; fixed = all have the same",
     .option = "--lengths", .is_default = has_fixed_lengths, .is_compared = true, .label = "lengths",
     .absent = "fixed"},
    {FIELD(total_q, PROBLEM_COUNT), .meaning = "query tokens of all sequences, where they are packed",
     .option = "--total-tokens", .is_default = has_no_limit, .is_compared = true, .may_be_empty = true},
    {FIELD(block_mask, PROBLEM_TEXT), .meaning = "blocks that are computed, see --block-mask; none = all",
     .option = "--block-mask", .is_default = has_no_mask, .is_compared = true, .label = "mask", .absent = "none"},
    {FIELD(mask_block, PROBLEM_COUNT), .meaning = "rows and keys of a block of the mask; 0 = no mask",
     .option = "--mask-block", .is_default = has_no_mask, .is_compared = true, .label = "of", .absent = "0"},
    PROBLEM_ATTRIBUTES(ROW){FIELD(out_dtype, PROBLEM_NAME), .names = problem_dtype_names,
                            .meaning = "type of O where dtype has 8 bits: bf16, fp16", .option = "--out-dtype",
                            .is_default = has_default_output, .is_compared = true, .label = "out",
                            .may_be_empty = true},
    {FIELD(quant_scale, PROBLEM_NAME), .names = problem_quant_names,
     .meaning = "what a scale of 8-bit inputs is for: tensor, head, block; none = 16- or 32-bit inputs",
     .option = "--fp8-scale", .is_default = has_default_scales, .is_compared = true, .label = "scale",
     .absent = "none"},
    {FIELD(scale_block, PROBLEM_COUNT), .meaning = "rows of a block that has a scale of its own; 0 = no such scales",
     .option = "--scale-block", .is_default = has_default_blocks, .is_compared = true, .label = "of", .absent = "0"},
    {FIELD(hadamard, PROBLEM_COUNT),
     .meaning = "1 where Q and K were rotated by a random-sign Hadamard matrix before they were quantised, else 0",
     .option = "--hadamard", .is_default = is_not_rotated, .is_compared = true, .label = "hadamard", .absent = "0",
     .is_flag = true},
    {FIELD(v_head_dim, PROBLEM_COUNT), .meaning = "head dimension of V and O, where it is not head_dim",
     .is_default = has_equal_dims, .is_compared = true, .label = "dv", .may_be_empty = true},
    PROBLEM_LATER_ATTRIBUTES(ROW){FIELD(logit_mean, PROBLEM_REAL),
                                  .meaning = "what the first columns of Q and K add to all logits",
                                  .option = "--logit-mean", .is_compared = true, .may_be_empty = true},
    {NAMED(bias), .meaning = "which sequences and heads have a bias of their own: none, full, heads, batch",
     .option = "--bias", .is_default = has_no_bias, .is_compared = true, .label = "bias", .absent = "none"},
    {FIELD(cache_dtype, PROBLEM_NAME), .names = problem_dtype_names,
     .meaning = "type of K and V of a cache, where it is not dtype: e4m3, e5m2", .option = "--cache-dtype",
     .is_default = has_no_cache_dtype, .is_compared = true, .label = "cache", .may_be_empty = true},
    {FIELD(quant_in_time, PROBLEM_COUNT),
     .meaning = "1 where time_ms includes quantising the inputs (quant_ms), else 0", .option = "--quant-in-time",
     .is_default = is_quantised_before, .is_compared = true, .label = "quantised in time", .absent = "0",
     .is_flag = true}};
const int problem_field_count = sizeof problem_fields / sizeof problem_fields[0];

static const void *field_of(const struct problem_field *field, const struct problem_key *key)
{
    return (const char *)key + field->offset;
}

static bool is_absent(const struct problem_field *field, const struct problem_key *key)
{
    const void *value = field_of(field, key);
    return field->kind == PROBLEM_TEXT    ? !*(const char *)value
           : field->kind == PROBLEM_NAME  ? *(const int *)value < 0
           : field->kind == PROBLEM_COUNT ? *(const int64_t *)value == INT64_MIN
                                          : isnan(*(const double *)value);
}

void problem_key_clear(struct problem_key *key)
{
    for (int i = 0; i < problem_field_count; i++) {
        void *field = (char *)key + problem_fields[i].offset;
        switch (problem_fields[i].kind) {
        case PROBLEM_NAME: *(int *)field = -1; break;
        case PROBLEM_COUNT: *(int64_t *)field = INT64_MIN; break;
        case PROBLEM_REAL: *(double *)field = NAN; break;
        case PROBLEM_TEXT: *(char *)field = '\0'; break;
        }
    }
}

void problem_key_complete(struct problem_key *key)
{
    for (int i = 0; i < problem_field_count; i++)
        if (problem_fields[i].absent && is_absent(&problem_fields[i], key))
            FABENCH_ASSERT(problem_field_parse(&problem_fields[i], problem_fields[i].absent, key), "%s",
                           problem_fields[i].name);
}

#define FROM_PROBLEM(kind, field, name, c_type, option, absent, words) .field = (PROBLEM_KEY_TYPE_##kind)p->field,
#define INTO_PROBLEM(kind, field, name, c_type, option, absent, words) to->field = (c_type)from->field;

struct problem_key problem_key_of(const struct attn_problem *p, const struct problem_arrays *arrays,
                                  enum attn_mode mode, enum fill_dist dist, double logit_std, uint64_t seed,
                                  enum l2_policy l2)
{
    struct problem_key key = {.mode = problem_mode_of(p, mode),
                              .dtype = p->dtype,
                              .causal = p->causal,
                              .batch = p->batch,
                              .q_heads = p->q_heads,
                              .kv_heads = p->kv_heads,
                              .q_len = p->q_len,
                              .kv_len = p->kv_len,
                              .head_dim = p->head_dim,
                              .layout = p->layout,
                              .window_left = p->window_left,
                              .window_right = p->window_right,
                              .dropout = (double)p->dropout,
                              .scale = (double)p->scale,
                              .dist = dist,
                              .seed = (int64_t)seed,
                              .l2 = l2,
                              .logit_std = logit_std > 0 ? logit_std : NAN,
                              .logit_mean = NAN,
                              .total_q = attn_rows_are_packed(p) ? p->total_q : INT64_MIN,
                              .mask_block = p->mask_block,
                              .out_dtype = attn_dtype_is_8_bit(p->dtype) ? (int)p->out_dtype : -1,
                              .quant_scale = p->quant_scale,
                              .scale_block = p->scale_block,
                              .v_head_dim = attn_v_head_dim(p) == p->head_dim ? INT64_MIN : p->v_head_dim,
                              PROBLEM_ATTRIBUTES(FROM_PROBLEM) PROBLEM_LATER_ATTRIBUTES(FROM_PROBLEM).bias =
                                  problem_bias_of(p),
                              .cache_dtype = p->cache_dtype != ATTN_FP32 ? (int)p->cache_dtype : -1};
    snprintf(key.lengths, sizeof key.lengths, "%s", arrays && arrays->lengths[0] ? arrays->lengths : "fixed");
    snprintf(key.block_mask, sizeof key.block_mask, "%s",
             arrays && arrays->block_mask[0] ? arrays->block_mask : "none");
    return key;
}

char *problem_key_data(const struct problem_key *key, char *buffer, size_t size)
{
    const char *name = key->dist == FILL_NORMAL    ? "N(0,1)"
                       : key->dist == FILL_UNIFORM ? "U(-1,1)"
                                                   : problem_dist_name(key->dist);
    snprintf(buffer, size, "%s", name);
    if (!isnan(key->logit_std))
        snprintf(buffer, size, "%s with logit-std %.9g", name, key->logit_std);
    const size_t used = strlen(buffer);
    if (!isnan(key->logit_mean))
        snprintf(buffer + used, size - used, "%s logit-mean %.9g", isnan(key->logit_std) ? " with" : " and",
                 key->logit_mean);
    return buffer;
}

#define FROM_KEY(kind, field, name, c_type, option, absent, words) .field = (PROBLEM_TYPE_##kind)key->field,

struct problem_attributes problem_attributes_of(const struct problem_key *key)
{
    return (struct problem_attributes){.dropout = key->dropout,
                                       PROBLEM_ATTRIBUTES(FROM_KEY) PROBLEM_LATER_ATTRIBUTES(FROM_KEY)};
}

void problem_set_attributes(const struct problem_attributes *from, struct attn_problem *to)
{
    to->dropout = (float)from->dropout;
    PROBLEM_ATTRIBUTES(INTO_PROBLEM)
    PROBLEM_LATER_ATTRIBUTES(INTO_PROBLEM)
}

/* The shortest text that gives the same float: "1e-06", which an option takes, not the "9.99999997e-07" below its least
 * value. */
static void print_float(double value, char *buffer, size_t size)
{
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(buffer, size, "%.*g", digits, value);
        if (strtof(buffer, NULL) == (float)value)
            return;
    }
}

const char *problem_field_text(const struct problem_field *field, const struct problem_key *key, char *buffer,
                               size_t size)
{
    const void *value = field_of(field, key);
    buffer[0] = '\0';
    if (field->kind == PROBLEM_NAME && *(const int *)value >= 0)
        snprintf(buffer, size, "%s", field->names[*(const int *)value]);
    else if (field->kind == PROBLEM_COUNT && *(const int64_t *)value != INT64_MIN)
        snprintf(buffer, size, "%" PRId64, *(const int64_t *)value);
    else if (field->kind == PROBLEM_REAL && !isnan(*(const double *)value))
        print_float(*(const double *)value, buffer, size);
    else if (field->kind == PROBLEM_TEXT)
        snprintf(buffer, size, "%s", (const char *)value);
    return buffer;
}

bool problem_field_parse(const struct problem_field *field, const char *text, struct problem_key *key)
{
    void *value = (char *)key + field->offset;
    if (field->kind == PROBLEM_COUNT)
        return number_parse_count(text, value);
    if (field->kind == PROBLEM_REAL)
        return number_parse_real(text, value);
    if (field->kind == PROBLEM_TEXT)
        return strlen(text) < PROBLEM_TEXT_SIZE && *strcpy(value, text);
    for (int i = 0; field->names[i]; i++)
        if (strcmp(field->names[i], text) == 0) {
            *(int *)value = i;
            return true;
        }
    return false;
}

/* Two reals are equal when their first 6 digits are: one run may write a float, another the double it was rounded
 * from. */
static int compare_reals(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) - isnan(b);
    return fabs(a - b) <= 1e-6 * fmax(fabs(a), fabs(b)) ? 0 : a > b ? 1 : -1;
}

static int compare_field(const struct problem_field *field, const struct problem_key *a, const struct problem_key *b)
{
    const void *x = field_of(field, a), *y = field_of(field, b);
    if (field->kind == PROBLEM_REAL)
        return compare_reals(*(const double *)x, *(const double *)y);
    if (field->kind == PROBLEM_TEXT)
        return strcmp(x, y);
    if (field->kind == PROBLEM_NAME)
        return (*(const int *)x > *(const int *)y) - (*(const int *)x < *(const int *)y);
    return (*(const int64_t *)x > *(const int64_t *)y) - (*(const int64_t *)x < *(const int64_t *)y);
}

int problem_key_compare(const struct problem_key *a, const struct problem_key *b, bool only_compared)
{
    for (int i = 0; i < problem_field_count; i++) {
        const int order = only_compared && !problem_fields[i].is_compared ? 0 : compare_field(&problem_fields[i], a, b);
        if (order)
            return order;
    }
    return 0;
}

bool problem_key_agrees(const struct problem_key *a, const struct problem_key *b)
{
    for (int i = 0; i < problem_field_count; i++) {
        const struct problem_field *field = &problem_fields[i];
        if (!is_absent(field, a) && !is_absent(field, b) && compare_field(field, a, b) != 0)
            return false;
    }
    return true;
}

char *problem_key_extras(const struct problem_key *key, char *buffer, size_t size)
{
    size_t used = 0;
    buffer[0] = '\0';
    for (int i = 0; i < problem_field_count && used < size; i++) {
        const struct problem_field *field = &problem_fields[i];
        char value[PROBLEM_TEXT_SIZE];
        if (field->label && !is_absent(field, key) && !field->is_default(key))
            used += (size_t)snprintf(buffer + used, size - used, " %s%s%s", field->label, field->is_flag ? "" : " ",
                                     field->is_flag ? "" : problem_field_text(field, key, value, sizeof value));
    }
    return buffer;
}

int64_t problem_key_length(const struct problem_key *key)
{
    const bool has_mean = has_own_lengths(key) && key->total_q > 0 && key->batch > 0;
    if (is_decode(key))
        return key->kv_len;
    return has_mean ? (key->total_q + key->batch / 2) / key->batch : key->q_len;
}

char *problem_key_lengths(const struct problem_key *key, char *buffer, size_t size)
{
    char q[24], kv[24];
    number_print_count(is_decode(key) ? key->q_len : problem_key_length(key), q, sizeof q);
    number_print_count(key->kv_len, kv, sizeof kv);
    if (has_packed_lengths(key))
        snprintf(buffer, size, "~%s", q);
    else
        snprintf(buffer, size, key->q_len == key->kv_len ? "%s" : "%sx%s", q, kv);
    return buffer;
}

char *problem_key_label(const struct problem_key *key, char *buffer, size_t size)
{
    char lengths[56], dim[24];
    problem_key_lengths(key, lengths, sizeof lengths);
    snprintf(dim, sizeof dim, "d%" PRId64, key->head_dim);
    const int used = snprintf(buffer, size, "%s %-6s %-4s %-3s %s", problem_mode_name(key->mode),
                              key->causal == 1 ? "causal" : "full", dim, lengths, problem_dtype_name(key->dtype));
    problem_key_extras(key, buffer + used, size - (size_t)used);
    return buffer;
}

char *problem_key_shape(const struct problem_key *key, char *buffer, size_t size)
{
    char q[24], kv[24], v_dim[24] = "";
    number_print_count(key->q_len, q, sizeof q);
    number_print_count(key->kv_len, kv, sizeof kv);
    if (key->v_head_dim > 0)
        snprintf(v_dim, sizeof v_dim, "/%" PRId64, key->v_head_dim);
    snprintf(buffer, size, "%" PRId64 "x%" PRId64 "/%" PRId64 "x%sx%sx%" PRId64 "%s%s", key->batch, key->q_heads,
             key->kv_heads, q, kv, key->head_dim, v_dim, key->layout == ATTN_BHSD ? " bhsd" : "");
    return buffer;
}

char *problem_key_mask(const struct problem_key *key, char *buffer, size_t size)
{
    const char *mask = key->causal == 1 ? "causal" : "full";
    char left[24] = "-", right[24] = "-";
    if (key->window_left < 0 && key->window_right < 0) { /* "not measured" is below 0 too */
        snprintf(buffer, size, "%s", mask);
        return buffer;
    }
    if (key->window_left >= 0)
        snprintf(left, sizeof left, "%" PRId64, key->window_left);
    if (key->window_right >= 0)
        snprintf(right, sizeof right, "%" PRId64, key->window_right);
    snprintf(buffer, size, "%s w%s,%s", mask, left, right);
    return buffer;
}

char *problem_key_dist(const struct problem_key *key, char *buffer, size_t size)
{
    char std[32] = "", mean[32] = "";
    if (key->logit_std > 0)
        snprintf(std, sizeof std, " std %g", key->logit_std);
    if (isfinite(key->logit_mean))
        snprintf(mean, sizeof mean, " mean %g", key->logit_mean);
    snprintf(buffer, size, "%s%s%s", problem_dist_name(key->dist), std, mean);
    return buffer;
}

char *problem_key_options(const struct problem_key *key)
{
    struct text options = {0};
    for (int i = 0; i < problem_field_count; i++) {
        const struct problem_field *field = &problem_fields[i];
        char value[PROBLEM_TEXT_SIZE];
        if (!field->option || (field->is_default && field->is_default(key)) ||
            !*problem_field_text(field, key, value, sizeof value))
            continue;
        /* --causal takes words, while its column has numbers; --d has two columns. */
        const bool is_mask = field->offset == offsetof(struct problem_key, causal);
        if (field->offset == offsetof(struct problem_key, head_dim) && !has_equal_dims(key))
            snprintf(value, sizeof value, "%" PRId64 "x%" PRId64, key->head_dim, key->v_head_dim);
        text_add(&options, " %s%s", field->option,
                 is_mask          ? key->causal == 1 ? "=yes" : "=no"
                 : field->is_flag ? ""
                                  : " ");
        if (!is_mask && !field->is_flag)
            text_add_quoted(&options, value);
    }
    return text_take(&options);
}
