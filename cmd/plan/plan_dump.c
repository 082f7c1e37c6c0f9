/* The problems in folders that --dump wrote, from their tensors.json. */
#include "cmd/plan/plan.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/base/log.h"
#include "cmd/problem/problem_key.h"

/* A dump's largest gap between batches: that of verify. */
enum { GAP_MAX_BITS = 33 };

/* True when the option was given. */
static bool is_given(const struct options *o, const char *option)
{
    for (int i = 0; option && i + 1 < o->given.count; i += 2)
        if (strcmp(o->given.names[i], option) == 0)
            return true;
    return false;
}

static bool is_in(const struct int_list *list, int64_t value)
{
    bool is_one = list->count == 0;
    for (int i = 0; i < list->count; i++)
        is_one |= list->values[i] == value;
    return is_one;
}

static bool is_shape(const struct int_list *shapes, const struct attn_problem *p)
{
    bool is_one = shapes->count == 0;
    for (int i = 0; i + 1 < shapes->count; i += 2)
        is_one |= shapes->values[i] == p->q_heads && shapes->values[i + 1] == p->kv_heads;
    return is_one;
}

/* True of the fields that say how 8-bit inputs were made; has_kind compares them. */
static bool is_of_8_bits(const struct problem_field *field)
{
    return field->offset == offsetof(struct problem_key, quant_scale) ||
           field->offset == offsetof(struct problem_key, scale_block) ||
           field->offset == offsetof(struct problem_key, hadamard);
}

/* The type of O and the scales of 8-bit inputs are among those that were given. */
static bool has_kind(const struct options *o, const struct plan_item *item)
{
    const struct attn_problem *p = &item->problem;
    if (is_given(o, "--cache-dtype") && !o->cache_dtypes[p->cache_dtype == ATTN_E5M2 ? 2 : p->cache_dtype == ATTN_E4M3])
        return false;
    if (!attn_dtype_is_8_bit(p->dtype))
        return !is_given(o, "--fp8-scale") && !is_given(o, "--out-dtype") && !o->scale_block && !o->hadamard;
    return (!is_given(o, "--out-dtype") || o->out_dtypes[p->out_dtype == ATTN_FP16]) &&
           (!is_given(o, "--fp8-scale") || o->fp8_scales[p->quant_scale - ATTN_SCALE_TENSOR]) &&
           (!o->scale_block || o->scale_block == p->scale_block) && (!o->hadamard || item->hadamard);
}

/* A legal description of 8-bit inputs, or of none. */
static bool is_legal_kind(const struct problem_key *k)
{
    const bool has_blocks = k->quant_scale == ATTN_SCALE_BLOCK;
    if (k->cache_dtype >= 0)
        return attn_dtype_is_8_bit((enum attn_dtype)k->cache_dtype) &&
               (k->dtype == ATTN_FP16 || k->dtype == ATTN_BF16) && k->mode == MODE_DECODE && k->out_dtype < 0 &&
               k->quant_scale == ATTN_SCALE_HEAD && k->scale_block == 0 && k->hadamard == 0;
    if (!attn_dtype_is_8_bit((enum attn_dtype)k->dtype))
        return k->out_dtype < 0 && k->quant_scale == ATTN_SCALE_NONE && k->scale_block == 0 && k->hadamard == 0;
    return k->mode == ATTN_FWD && (k->out_dtype == ATTN_BF16 || k->out_dtype == ATTN_FP16) &&
           k->quant_scale > ATTN_SCALE_NONE && k->scale_block >= has_blocks &&
           k->scale_block <= (has_blocks ? 65536 : 0) &&
           (k->hadamard == 0 || (k->hadamard == 1 && (k->head_dim & (k->head_dim - 1)) == 0));
}

/* Attributes that were given on the command line have these values. */
static bool has_attributes(const struct options *o, const struct attn_problem *p)
{
    struct attn_problem wanted = {.batch = 1};
    problem_set_attributes(&o->attributes, &wanted);
    const struct problem_key want = problem_key_of(&wanted, NULL, ATTN_FWD, FILL_NORMAL, 0, 0, L2_COLD);
    const struct problem_key have = problem_key_of(p, NULL, ATTN_FWD, FILL_NORMAL, 0, 0, L2_COLD);
    for (int i = 0; i < problem_field_count; i++) {
        const struct problem_field *field = &problem_fields[i];
        char a[PROBLEM_TEXT_SIZE], b[PROBLEM_TEXT_SIZE];
        if (((field->absent && field->kind != PROBLEM_TEXT && !is_of_8_bits(field)) ||
             field->offset == offsetof(struct problem_key, dropout)) &&
            is_given(o, field->option) &&
            strcmp(problem_field_text(field, &want, a, sizeof a), problem_field_text(field, &have, b, sizeof b)) != 0)
            return false;
    }
    return true;
}

/* True for a problem that the options do not exclude. */
static bool is_wanted(const struct options *o, const struct plan_item *item)
{
    const struct attn_problem *p = &item->problem;
    return (!o->mode_given || o->modes[problem_mode_of(p, item->mode)]) && o->causal[p->causal] &&
           (!o->dtypes_given || o->dtypes[p->dtype]) &&
           is_in(&o->head_dims, dims_of(p->head_dim, attn_v_head_dim(p))) && is_in(&o->q_lens, p->q_len) &&
           is_in(&o->kv_lens, p->kv_len) && is_in(&o->batches, p->batch) && is_in(&o->heads, p->q_heads) &&
           is_in(&o->kv_heads, p->kv_heads) && is_shape(&o->shapes, p) && is_in(&o->windows_left, p->window_left) &&
           is_in(&o->windows_right, p->window_right) && has_attributes(o, p) && has_kind(o, item) &&
           (!is_given(o, "--bias") || o->bias == problem_bias_of(p)) &&
           (isnan(o->scale) || (float)o->scale == p->scale) && (!is_given(o, "--layout") || o->layout == p->layout) &&
           (!o->dists_given || o->dists[item->dist]) && (!is_given(o, "--seed") || o->seed == item->seed);
}

/* One field of the problem: numbers and names as JSON has them. False when it is absent or of another kind. */
static bool read_field(const json_t *object, const struct problem_field *field, struct problem_key *key)
{
    const json_t *value = json_object_get(object, field->name);
    void *to = (char *)key + field->offset;
    switch (field->kind) {
    case PROBLEM_TEXT:
    case PROBLEM_NAME: return json_is_string(value) && problem_field_parse(field, json_string_value(value), key);
    case PROBLEM_COUNT: *(int64_t *)to = json_integer_value(value); return json_is_integer(value);
    case PROBLEM_REAL: *(double *)to = json_number_value(value); return json_is_number(value);
    }
    return false;
}

/* The lengths and the mask of a key: those that its texts and its seed make, and of the shape that it says. */
static bool has_arrays(const struct problem_key *key, struct plan *plan, struct plan_item *item)
{
    const struct attn_problem dense = item->problem;
    const struct attn_problem *p = &item->problem;
    struct reason ignored;
    const bool has_mask = strcmp(key->block_mask, "none") != 0;
    const bool is_decode = key->mode == MODE_DECODE;
    if (key->page_size < 0 || key->page_size > PAGE_SIZE_MAX || key->page_size % 8 || (key->page_size && !is_decode) ||
        (is_decode && has_mask))
        return false;
    if (is_decode)
        item->problem.lengths = ATTN_CACHE;
    if (!strcmp(key->lengths, "fixed") && !has_mask && !is_decode && !key->has_sink && !key->has_alibi)
        return key->mask_block == 0;
    if (has_mask && (key->mask_block < 8 || key->mask_block > 65536 || key->mask_block % 8))
        return false;
    return plan &&
           plan_set_arrays(plan, item, key->lengths, key->total_q > 0 ? key->total_q : 0, key->block_mask,
                           key->mask_block, &ignored) &&
           p->batch == dense.batch && p->q_len == dense.q_len && p->kv_len == dense.kv_len;
}

/* What a dump says about strides beside the problem's fields: the gap between batches and enum plan_strides, 0 where it
 * says nothing, -1 where it is nothing legal. */
struct dump_strides {
    int64_t batch_gap;
    int strides;
};

static struct dump_strides read_strides(const json_t *object)
{
    const json_t *gap = json_object_get(object, "batch_gap"), *strides = json_object_get(object, "strides");
    struct dump_strides read = {gap ? json_integer_value(gap) : 0, strides ? -1 : 0};
    const char *name = json_string_value(strides);
    for (int i = 0; name && plan_strides_names[i]; i++)
        if (strcmp(name, plan_strides_names[i]) == 0)
            read.strides = i;
    return read;
}

static bool is_dim(int64_t dim) { return dim >= 8 && dim <= 256 && dim % 8 == 0; }

/* Those that --d takes. */
static bool has_legal_dims(const struct problem_key *key)
{
    const int64_t v = key->v_head_dim == INT64_MIN ? key->head_dim : key->v_head_dim;
    return (is_dim(key->head_dim) && is_dim(v)) ||
           (key->head_dim == DIMS_CACHE_QK && v == DIMS_CACHE_V && key->mode == MODE_DECODE);
}

/* The item of a key that is complete, whose tensors are in `folder`. False when no command could have made it. */
static bool item_of(const struct problem_key *key, const struct dump_strides *read, const char *folder,
                    struct plan *plan, struct plan_item *item)
{
    const bool may_be_packed = key->q_len == key->kv_len && key->layout == ATTN_BSHD && key->v_head_dim == INT64_MIN;
    const bool is_legal = key->mode >= 0 && key->dtype >= 0 && key->layout >= 0 && key->dist >= 0 &&
                          (key->causal | 1) == 1 && has_legal_dims(key) && key->kv_heads > 0 && key->q_heads > 0 &&
                          key->q_heads % key->kv_heads == 0 && key->window_left >= -1 &&
                          key->window_left <= INT32_MAX && key->window_right >= -1 &&
                          key->window_right <= (key->causal ? 0 : INT32_MAX) && key->dropout >= 0 &&
                          key->dropout <= 0.9999 && is_legal_kind(key) && key->scale >= 1e-30 && key->scale <= 1e30 &&
                          read->batch_gap >= 0 && read->batch_gap >> GAP_MAX_BITS == 0 && read->strides >= 0 &&
                          (read->strides != PLAN_PACKED_QKV || may_be_packed);
    *item = (struct plan_item){.mode = problem_direction(key->mode),
                               .dist = (enum fill_dist)key->dist,
                               .logit_std = key->logit_std > 0 ? key->logit_std : 0,
                               .logit_mean = isnan(key->logit_mean) ? 0 : key->logit_mean,
                               .seed = (uint64_t)key->seed,
                               .batch_gap = read->batch_gap,
                               .strides = (enum plan_strides)read->strides,
                               .hadamard = key->hadamard == 1,
                               .problem = {.batch = key->batch,
                                           .q_heads = key->q_heads,
                                           .kv_heads = key->kv_heads,
                                           .q_len = key->q_len,
                                           .kv_len = key->kv_len,
                                           .head_dim = key->head_dim,
                                           .dtype = (enum attn_dtype)key->dtype,
                                           .layout = (enum attn_layout)key->layout,
                                           .causal = key->causal == 1,
                                           .window_left = key->window_left,
                                           .window_right = key->window_right,
                                           .scale = (float)key->scale,
                                           .quant_scale = (enum attn_quant_scale)key->quant_scale,
                                           .scale_block = key->scale_block,
                                           .v_head_dim = key->v_head_dim > 0 ? key->v_head_dim : 0}};
    if (key->cache_dtype >= 0)
        item->problem.cache_dtype = (enum attn_dtype)key->cache_dtype;
    if (key->out_dtype >= 0)
        item->problem.out_dtype = (enum attn_dtype)key->out_dtype;
    const struct problem_attributes attributes = problem_attributes_of(key);
    problem_set_attributes(&attributes, &item->problem);
    item->folder = folder;
    const bool has_one_bias = key->bias >= BIAS_NONE && !(key->bias && key->has_alibi);
    if (is_legal && has_one_bias && key->batch > 0)
        problem_set_bias(&item->problem, (enum problem_bias)key->bias);
    const bool is_good = is_legal && has_one_bias && plan_shape_fits(&item->problem) && has_arrays(key, plan, item);
    item->folder = NULL;
    return is_good;
}

/* Reads the object "problem" of a tensors.json. False with a sentence that names the file. */
static bool read_problem(const json_t *object, const char *path, struct plan *plan, struct plan_item *item,
                         struct attn_message *why)
{
    struct problem_key key;
    problem_key_clear(&key);
    key.dropout = 0;
    for (int i = 0; i < problem_field_count; i++) {
        const char *name = problem_fields[i].name;
        if (strcmp(name, "l2") == 0) /* no part of what tensors are */
            continue;
        const bool may_lack =
            problem_fields[i].absent || problem_fields[i].offset == offsetof(struct problem_key, dropout);
        if (may_lack && !json_object_get(object, name)) /* written before there was the attribute */
            continue;
        if (problem_fields[i].may_be_empty && !json_object_get(object, name))
            continue;
        if (!read_field(object, &problem_fields[i], &key)) {
            snprintf(why->text, sizeof why->text, "%.300s: its problem has no legal '%s'", path, name);
            return false;
        }
    }
    problem_key_complete(&key);
    const struct dump_strides strides = read_strides(object);
    char *folder = xasprintf("%.*s", (int)(strlen(path) - strlen("/tensors.json")), path);
    const bool is_good = item_of(&key, &strides, folder, plan, item);
    free(folder);
    if (is_good)
        return true;
    snprintf(why->text, sizeof why->text, "%.300s: its problem is one that no command makes", path);
    return false;
}

bool plan_item_read(const char *path, struct plan *plan, struct plan_item *item, bool *has_problem,
                    struct attn_message *why)
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    const json_t *problem = json_object_get(root, "problem");
    bool good = root != NULL;
    if (!root)
        snprintf(why->text, sizeof why->text, "%.300s: is not JSON: %.100s", path, error.text);
    else if (problem)
        good = read_problem(problem, path, plan, item, why);
    *has_problem = good && problem;
    json_decref(root);
    return good;
}

/* Adds the problem of one folder, if it has a tensors.json with one and the options want it; *found counts it then. */
static bool add_folder(const struct options *o, const char *folder, const char *name, struct plan *plan, int *found,
                       struct attn_message *why)
{
    char *path = xasprintf("%s/tensors.json", folder);
    struct plan_item item;
    bool has_problem = false;
    const bool good = access(path, F_OK) != 0 || plan_item_read(path, plan, &item, &has_problem, why);
    *found += has_problem;
    if (has_problem && is_wanted(o, &item)) {
        snprintf(item.name, sizeof item.name, "%s", name);
        name_list_add(&plan->folders, folder);
        item.folder = plan->folders.names[plan->folders.count - 1];
        item.deterministic = o->deterministic;
        item.splits = o->splits;
        plan_add(plan, &item);
    }
    free(path);
    return good;
}

static int is_visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

/* The last part of a path, without slashes at its end; the caller frees it. */
static char *last_part(const char *path)
{
    size_t end = strlen(path), begin;
    while (end > 1 && path[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && path[begin - 1] != '/'; begin--)
        ;
    return xasprintf("%.*s", (int)(end - begin), path + begin);
}

int plan_add_dump(const struct options *o, const char *option, const char *dir, struct plan *plan)
{
    struct attn_message why = {""};
    struct dirent **entries = NULL;
    char *name = last_part(dir);
    int found = 0;
    bool good = add_folder(o, dir, name, plan, &found, &why);
    free(name);
    const int count = good && found == 0 ? scandir(dir, &entries, is_visible, alphasort) : 0;
    if (count < 0) {
        log_error("%s %s: cannot be read: %s", option, dir, strerror(errno));
        return EXIT_IO;
    }
    for (int i = 0; i < count; i++) {
        char *folder = xasprintf("%s/%s", dir, entries[i]->d_name);
        if (good)
            good = add_folder(o, folder, entries[i]->d_name, plan, &found, &why);
        free(folder);
        free(entries[i]);
    }
    free(entries);
    if (!good) {
        log_error("%s: %s", option, why.text);
        return EXIT_IO;
    }
    if (found && plan->count == 0) {
        log_error("%s %s: none of its %d problems is one that the other options ask for", option, dir, found);
        return EXIT_USAGE;
    }
    return EXIT_OK;
}
