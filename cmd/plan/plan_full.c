/* Slices of the presets full and decode. */
#include "cmd/plan/plan_full.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"

static const struct plan_slice slices_cuda[] = {
    /* dense */
    {.head_dims = "32,64,96,128,192,256", .lens = "1k,4k,16k"},
    {.head_dims = "64,128", .lens = "1k,4k,16k", .is_fp16 = true},
    {.head_dims = "64,128", .lens = "1k", .kv_lens = "16k"},
    /* grouped heads */
    {.head_dims = "64,128", .lens = "4k", .shapes = {{16, 4}, {16, 1}}},
    /* windows */
    {.head_dims = "64,128", .lens = "16k", .windows_left = "256,1k,4k"},
    {.head_dims = "64,128", .lens = "4k", .windows_left = "256"},
    {.head_dims = "64,128", .lens = "16k", .windows_left = "512", .windows_right = "512"},
    /* packed sequences */
    {.head_dims = "64,128", .lengths = "lognormal:512:1,lognormal:2048:1,uniform:1:1024"},
    {.head_dims = "128", .lengths = "lognormal:2048:1", .windows_left = "256"},
    /* block masks */
    {.head_dims = "64,128", .lens = "16k", .block_masks = "random:0.1,random:0.25,random:0.5,local:8"},
    /* what changes P or S */
    {.head_dims = "64,128", .lens = "4k,16k", .dropout = 0.1},
    {.head_dims = "64,128,256", .lens = "4k", .softcap = 30},
};

static const struct plan_slice slices_cpu[] = {
    {.head_dims = "32,64,96,128,192,256", .lens = "256"},
    {.head_dims = "64", .lens = "64", .kv_lens = "256"},
    {.head_dims = "64", .lens = "256", .shapes = {{4, 2}, {4, 1}}},
    {.head_dims = "64", .lens = "256", .windows_left = "64"},
    {.head_dims = "64", .lens = "256", .windows_left = "32", .windows_right = "32"},
    {.head_dims = "64", .lengths = "lognormal:100:1"},
    {.head_dims = "64", .lens = "512", .block_masks = "random:0.5"},
    {.head_dims = "64", .lens = "256", .dropout = 0.1},
    {.head_dims = "64", .lens = "256", .softcap = 30},
};

/* Caches of equal lengths; batches that users publish, some of them with one long cache among short ones. */
#define CACHES_CUDA \
    .is_cache = true, .head_dims = "128", .batches = "1,8,64,256", .kv_lens = "1k,8k,32k,128k", \
    .shapes = {{32, 8}, {64, 8}, {32, 32}, {32, 1}}
#define UNEQUAL_CUDA \
    .is_cache = true, .head_dims = "128", .shapes = {{32, 8}}, \
    .lengths = "list:512*64,list:128*32:4k*32,list:16k:64*15,list:128k:4k*31"
#define CACHES_CPU \
    .is_cache = true, .head_dims = "64", .batches = "1,4", .kv_lens = "256,1k", .shapes = {{4, 2}, {4, 1}}
#define UNEQUAL_CPU .is_cache = true, .head_dims = "64", .shapes = {{4, 2}}, .lengths = "list:1k:64*7"

static const struct plan_slice decode_cuda[] = {
    {CACHES_CUDA},  {CACHES_CUDA, .page_size = 16},  {CACHES_CUDA, .page_size = 64},
    {UNEQUAL_CUDA}, {UNEQUAL_CUDA, .page_size = 16}, {UNEQUAL_CUDA, .page_size = 64},
};
static const struct plan_slice decode_cpu[] = {
    {CACHES_CPU}, {CACHES_CPU, .page_size = 16}, {UNEQUAL_CPU}, {UNEQUAL_CPU, .page_size = 16}};

static const int64_t cache_bytes_max = INT64_C(32) << 30;

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof(array)[0]))

const struct plan_slice *plan_slices(enum preset preset, enum attn_platform platform, int *count)
{
    const bool is_cuda = platform == ATTN_CUDA;
    if (preset == PRESET_DECODE) {
        *count = is_cuda ? COUNT_OF(decode_cuda) : COUNT_OF(decode_cpu);
        return is_cuda ? decode_cuda : decode_cpu;
    }
    *count = is_cuda ? COUNT_OF(slices_cuda) : COUNT_OF(slices_cpu);
    return is_cuda ? slices_cuda : slices_cpu;
}

bool plan_cache_fits(const struct attn_problem *p)
{
    const double columns = (double)p->head_dim + (double)attn_v_head_dim(p);
    return p->lengths != ATTN_CACHE ||
           2.0 * (double)p->batch * (double)p->kv_len * (double)p->kv_heads * columns <= (double)cache_bytes_max;
}

bool plan_has_slices(enum preset preset, const struct options *o)
{
    const bool has_8_bit = o->dtypes_given && (o->dtypes[ATTN_E4M3] || o->dtypes[ATTN_E5M2]);
    if (preset == PRESET_DECODE)
        return !o->input_dir;
    return preset == PRESET_FULL && !o->q_lens.count && !o->kv_lens.count && !o->lengths.count && !o->batches.count &&
           !o->input_dir && !o->modes[MODE_DECODE] && !has_8_bit;
}

static bool is_asked_already(const struct plan_slice *slice, const struct options *o)
{
    if (slice->is_cache)
        return (slice->lengths ? !o->lengths.count && (o->batches.count || o->kv_lens.count) : o->lengths.count > 0) ||
               (slice->page_size > 0 && o->page_size_given);
    return (slice->windows_left && o->windows_left.count) || (slice->windows_right && o->windows_right.count) ||
           (slice->shapes[0][0] && (o->heads.count || o->kv_heads.count || o->shapes.count || o->hidden)) ||
           (slice->block_masks && o->block_masks.count) || (slice->dropout > 0 && o->attributes.dropout > 0) ||
           (slice->softcap > 0 && o->attributes.softcap > 0) || (slice->is_fp16 && o->dtypes_given);
}

/* Gives a list that is empty the values of `text`, which may be NULL. */
static void set_list(struct slice_options *s, struct int_list *field, const char *text)
{
    char why[128];
    if (!text || field->count)
        return;
    struct int_list *list = &s->lists[s->list_count++];
    const bool is_legal = number_parse_list(text, &list->values, &list->count, why, sizeof why);
    FABENCH_ASSERT(is_legal, "%s", text);
    *field = *list;
}

/* Gives the pairs of heads of the slice where nothing else says them. */
static void set_shapes(struct slice_options *s, const struct plan_slice *slice)
{
    struct options *o = &s->options;
    if (!slice->shapes[0][0] || o->shapes.count || o->heads.count || o->kv_heads.count || o->hidden)
        return;
    struct int_list *list = &s->lists[s->list_count++];
    list->values = xcalloc(1, sizeof slice->shapes);
    for (int i = 0; i < PLAN_SLICE_SHAPES && slice->shapes[i][0]; i++) {
        list->values[list->count++] = slice->shapes[i][0];
        list->values[list->count++] = slice->shapes[i][1];
    }
    o->shapes = *list;
}

static void set_texts(struct slice_options *s, struct name_list *field, const char *text)
{
    if (!text || field->count)
        return;
    struct name_list *list = &s->texts[s->text_count++];
    for (const char *from = text; *from;) {
        const size_t length = strcspn(from, ",");
        name_list_add_part(list, from, length);
        from += length + (from[length] == ',');
    }
    *field = *list;
}

bool slice_options_make(const struct plan_slice *slice, const struct options *given, enum attn_platform platform,
                        struct slice_options *s)
{
    struct options *o = &s->options;
    memset(s, 0, sizeof *s);
    if (is_asked_already(slice, given))
        return false;
    *o = *given;
    set_list(s, &o->head_dims, slice->head_dims);
    set_list(s, &o->q_lens, slice->lens);
    set_list(s, &o->kv_lens, slice->kv_lens);
    set_list(s, &o->windows_left, slice->windows_left);
    set_list(s, &o->windows_right, slice->windows_right);
    set_list(s, &o->batches, slice->batches);
    set_shapes(s, slice);
    if (slice->page_size > 0)
        o->attributes.page_size = slice->page_size;
    set_texts(s, &o->lengths, slice->lengths);
    set_texts(s, &o->block_masks, slice->block_masks);
    if (slice->dropout > 0)
        o->attributes.dropout = slice->dropout;
    if (slice->softcap > 0)
        o->attributes.softcap = slice->softcap;
    if (!o->dtypes_given && platform == ATTN_CUDA) {
        o->dtypes_given = true;
        memset(o->dtypes, 0, sizeof o->dtypes);
        o->dtypes[slice->is_fp16 ? ATTN_FP16 : ATTN_BF16] = true;
    }
    return true;
}

void slice_options_free(struct slice_options *s)
{
    for (int i = 0; i < s->list_count; i++)
        free(s->lists[i].values);
    for (int i = 0; i < s->text_count; i++)
        name_list_free(&s->texts[i]);
    memset(s, 0, sizeof *s);
}
