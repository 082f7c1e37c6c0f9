/* Slices of the preset full. */
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
    {.head_dims = "64,128", .lens = "4k", .shapes = "16,4,16,1"},
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
    {.head_dims = "64", .lens = "256", .shapes = "4,2,4,1"},
    {.head_dims = "64", .lens = "256", .windows_left = "64"},
    {.head_dims = "64", .lens = "256", .windows_left = "32", .windows_right = "32"},
    {.head_dims = "64", .lengths = "lognormal:100:1"},
    {.head_dims = "64", .lens = "512", .block_masks = "random:0.5"},
    {.head_dims = "64", .lens = "256", .dropout = 0.1},
    {.head_dims = "64", .lens = "256", .softcap = 30},
};

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof(array)[0]))

const struct plan_slice *plan_slices(enum attn_platform platform, int *count)
{
    *count = platform == ATTN_CUDA ? COUNT_OF(slices_cuda) : COUNT_OF(slices_cpu);
    return platform == ATTN_CUDA ? slices_cuda : slices_cpu;
}

bool plan_has_slices(const struct options *o)
{
    const bool has_8_bit = o->dtypes_given && (o->dtypes[ATTN_E4M3] || o->dtypes[ATTN_E5M2]);
    return !o->q_lens.count && !o->kv_lens.count && !o->lengths.count && !o->batches.count && !o->input_dir &&
           !o->modes[MODE_DECODE] && !has_8_bit;
}

static bool is_asked_already(const struct plan_slice *slice, const struct options *o)
{
    return (slice->windows_left && o->windows_left.count) || (slice->windows_right && o->windows_right.count) ||
           (slice->shapes && (o->heads.count || o->kv_heads.count || o->shapes.count || o->hidden)) ||
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
    set_list(s, &o->shapes, slice->shapes);
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
