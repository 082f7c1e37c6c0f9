/* The problems of `fabench verify`: hard shapes, what real kernels got wrong (section 6 of docs/design.md); and those
 * of `fabench selftest`. */
#include "cmd/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/problem/problem.h"
#include "cmd/problem/problem_key.h"

/* One shape; each is crossed with modes, masks, dtypes and head dims. */
struct hard_shape {
    int64_t batch, q_heads, kv_heads, q_len, kv_len;
    enum fill_dist dist;
    enum attn_layout layout;
    bool quick;     /* also in --preset quick, the set for a sanitizer */
    bool cuda_only; /* too slow for the CPU oracle */
    int64_t batch_gap;
};

static const struct hard_shape shapes[] = {
    /* Lengths around the tiles of 64 and 128, and primes. */
    {1, 1, 1, 1, 1, FILL_NORMAL, ATTN_BSHD, true, false, 0},
    {2, 2, 2, 63, 63, FILL_NORMAL, ATTN_BHSD, false, false, 0},
    {1, 2, 2, 64, 64, FILL_NORMAL, ATTN_BSHD, false, false, 0},
    {1, 2, 2, 65, 65, FILL_NORMAL, ATTN_BSHD, true, false, 0},
    {1, 2, 2, 127, 127, FILL_NORMAL, ATTN_BSHD, false, false, 0},
    {1, 2, 2, 128, 128, FILL_NORMAL, ATTN_BHSD, false, false, 0},
    {2, 3, 3, 129, 129, FILL_NORMAL, ATTN_BSHD, true, false, 0},
    {1, 2, 2, 251, 251, FILL_NORMAL, ATTN_BSHD, false, false, 0},
    {1, 1, 1, 1021, 1021, FILL_NORMAL, ATTN_BSHD, false, false, 0},
    /* q_len and kv_len differ; with the causal mask and q_len > kv_len some rows see no key. */
    {1, 2, 2, 1, 257, FILL_NORMAL, ATTN_BSHD, true, false, 0},
    {1, 2, 2, 257, 1, FILL_NORMAL, ATTN_BSHD, true, false, 0},
    {2, 2, 2, 113, 203, FILL_NORMAL, ATTN_BHSD, false, false, 0},
    {1, 2, 2, 203, 113, FILL_NORMAL, ATTN_BSHD, true, false, 0},
    {1, 2, 2, 64, 700, FILL_NORMAL, ATTN_BSHD, false, false, 0},
    {1, 2, 2, 700, 64, FILL_NORMAL, ATTN_BHSD, false, false, 0},
    /* Shared key heads. */
    {2, 4, 2, 190, 190, FILL_NORMAL, ATTN_BSHD, true, false, 0},
    {1, 6, 1, 129, 255, FILL_NORMAL, ATTN_BHSD, false, false, 0},
    {1, 32, 8, 300, 300, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    /* More work tiles than an H200 has multiprocessors, so that a persistent block takes several of them, also of
     * different key blocks: tiles of rows in the forward, of keys in the backward. With 430 keys a tile of 128
     * has several steps, the last one has keys in its first half alone, and work tiles of fused_sm90's backward
     * write zeros in the sums of dQ. */
    {1, 136, 34, 70, 130, FILL_NORMAL, ATTN_BSHD, true, true, 0},
    {1, 272, 68, 70, 130, FILL_NORMAL, ATTN_BSHD, true, true, 0},
    {5, 30, 30, 330, 430, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    {5, 16, 4, 700, 900, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    /* Full, fused_sm90's forward on an H200: the last work tiles in parts, with both head dims. With 1960 queries the
     * last tile of a head has 64 rows and more behind the last query, with 1300 keys the last block is not whole. */
    {1, 18, 6, 1960, 1300, FILL_NORMAL, ATTN_BHSD, false, true, 0},
    {1, 18, 18, 2100, 1300, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    /* Causal, fused_sm90's backward on an H200: tiles of keys in parts of one size and rests; in equal parts in turns,
     * as the queries of the key head exceed the L2. */
    {4, 24, 2, 137, 655, FILL_NORMAL, ATTN_BSHD, true, true, 0},
    {1, 32, 1, 7700, 200, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    /* Full, fused_sm90's backward on an H200, where blocks take one work tile after the other: the last work tiles in
     * parts, of one query head and of three for each key head, and key heads in sections. */
    {1, 8, 8, 2100, 2150, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    {1, 24, 8, 700, 2150, FILL_NORMAL, ATTN_BSHD, true, true, 0},
    /* Few queries, fused_sm90's backward on an H200: blocks that keep them. With 690 keys they have four or five tiles
     * of keys, begin within a head and end in another, and the last tile has keys in its first half alone; with 2030
     * each head has four blocks with four tiles. */
    {3, 30, 30, 100, 690, FILL_NORMAL, ATTN_BSHD, true, true, 0},
    {2, 16, 16, 128, 2030, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    /* Hard values. */
    {1, 2, 2, 257, 257, FILL_SHARP, ATTN_BSHD, false, false, 0},
    {1, 2, 2, 257, 257, FILL_HUGE, ATTN_BSHD, true, false, 0},
    {1, 2, 2, 257, 257, FILL_PEAK, ATTN_BSHD, true, false, 0},
    {1, 4, 2, 130, 301, FILL_PEAK, ATTN_BHSD, false, false, 0},
    {1, 2, 2, 257, 257, FILL_CONSTANT, ATTN_BSHD, true, false, 0},
    {1, 2, 2, 257, 257, FILL_TINY, ATTN_BSHD, false, false, 0},
    {1, 2, 2, 257, 257, FILL_ZEROS, ATTN_BSHD, false, false, 0},
    {1, 1, 1, 1, 257, FILL_CONSTANT, ATTN_BSHD, false, false, 0},
    /* Many heads (grid limits), long sequences, element offsets past 2^31. */
    {70000, 1, 1, 5, 5, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    {1, 2, 2, 4096, 4096, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    {1, 1, 1, 16384, 16384, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    {2, 2, 2, 130, 130, FILL_NORMAL, ATTN_BSHD, false, true, (INT64_C(1) << 31) + 64},
};

/* Shapes beyond dense attention; each is crossed like the others. Windows are around the diagonal of the bottom
 * right; a window to the right runs without the causal mask alone. */
struct family_shape {
    struct hard_shape shape;
    int64_t window_left, window_right;
    struct problem_attributes attributes;
};

static const struct family_shape family_shapes[] = {
    /* Two keys, the diagonal as an edge, both edges in one tile, edges at and around tiles, rows that see nothing, a
     * window beyond all keys. */
    {{1, 2, 2, 129, 129, FILL_NORMAL, ATTN_BSHD, true, false, 0}, 1, 0, {.dropout = 0}},
    {{1, 2, 2, 129, 140, FILL_NORMAL, ATTN_BSHD, false, false, 0}, 0, 3, {.dropout = 0}},
    {{1, 4, 2, 190, 257, FILL_NORMAL, ATTN_BHSD, false, false, 0}, 5, 3, {.dropout = 0}},
    {{1, 2, 1, 257, 300, FILL_NORMAL, ATTN_BSHD, false, false, 0}, 127, -1, {.dropout = 0}},
    {{1, 2, 2, 300, 300, FILL_NORMAL, ATTN_BSHD, false, false, 0}, 128, 0, {.dropout = 0}},
    {{2, 2, 2, 203, 113, FILL_NORMAL, ATTN_BSHD, true, false, 0}, 16, -1, {.dropout = 0}},
    {{1, 2, 2, 130, 130, FILL_NORMAL, ATTN_BSHD, false, false, 0}, INT32_MAX, 1, {.dropout = 0}},
    {{1, 2, 2, 257, 257, FILL_PEAK, ATTN_BSHD, false, false, 0}, 64, -1, {.dropout = 0}},
    /* Softcap: far below the logits, among them, above them; with a window and dropout. */
    {{1, 4, 2, 190, 190, FILL_NORMAL, ATTN_BSHD, true, false, 0}, -1, -1, {.softcap = 0.5}},
    {{1, 2, 2, 257, 257, FILL_SHARP, ATTN_BSHD, false, false, 0}, 100, -1, {.softcap = 5}},
    {{2, 2, 2, 113, 203, FILL_NORMAL, ATTN_BHSD, false, false, 0}, -1, -1, {.softcap = 50, .dropout = 0.1}},
    /* Dropout, with grouped heads, several sequences, a window. */
    {{2, 4, 2, 190, 190, FILL_NORMAL, ATTN_BSHD, true, false, 0}, -1, -1, {.dropout = 0.1, .dropout_seed = 3}},
    {{1, 2, 2, 113, 203, FILL_NORMAL, ATTN_BHSD, false, false, 0}, -1, -1, {.dropout = 0.9, .dropout_seed = 1}},
    {{1, 2, 1, 257, 257, FILL_NORMAL, ATTN_BSHD, false, false, 0}, 32, -1, {.dropout = 0.5, .dropout_seed = 1}},
    /* A dS so small without its factor 1 / (1 - p) that fp16 has it as a denormal number; a P of 1 in every row, which
     * with that factor is rounded alike everywhere. */
    {{1, 2, 2, 2048, 2048, FILL_NORMAL, ATTN_BSHD, false, true, 0}, -1, -1, {.dropout = 0.999, .dropout_seed = 1}},
    {{1, 70, 5, 64, 64, FILL_HUGE, ATTN_BSHD, false, true, 0}, -1, -1, {.dropout = 0.1, .dropout_seed = 1}},
    /* So many tiles of queries or keys that a kernel which lists them makes its list in several sections. */
    {{1, 4, 2, 33000, 70, FILL_NORMAL, ATTN_BSHD, false, true, 0}, -1, -1, {.dropout = 0.1, .dropout_seed = 1}},
    {{1, 2, 1, 70, 33000, FILL_NORMAL, ATTN_BSHD, false, true, 0}, 32900, -1, {.dropout = 0}},
};

/* Added last, so that the seeds of all others stay as they were. */
static const struct family_shape later_shapes[] = {
    /* More pairs of work tiles than an H200 has pairs of multiprocessors, and the second tile of a head's last pair
     * has no rows: pairs of thread blocks of fused_sm90's forward, if they are asked for (--impl). */
    {{1, 24, 8, 1650, 1700, FILL_NORMAL, ATTN_BSHD, false, true, 0}, -1, -1, {.dropout = 0}},
    /* A window with whole tiles between edges that are wider than a tile. */
    {{1, 2, 1, 777, 900, FILL_NORMAL, ATTN_BSHD, false, false, 0}, 500, 150, {.dropout = 0}},
    /* So many key heads that fused_sm80's backward has four sections of them or more where the L2 has up to 60 MB, and
     * blocks with pieces of the passes before and after it, both kinds at both head dims. */
    {{26, 64, 16, 250, 260, FILL_NORMAL, ATTN_BSHD, false, true, 0}, 100, 20, {.dropout = 0}},
};

/* Each tensor with strides of its own, so that one that is read or written by those of another gives another result. */
static const struct hard_shape strided_shapes[] = {
    {2, 4, 2, 129, 190, FILL_NORMAL, ATTN_BSHD, true, false, 0},
    {2, 2, 2, 203, 113, FILL_NORMAL, ATTN_BHSD, false, false, 0},
};

/* Caches: one key, whole and begun pages, pages smaller and larger than tiles, sequences that use little or all of the
 * table, as many keys as new tokens, new tokens over several tiles, windows, dropout, softcap. Not crossed with the
 * modes; causal unless --causal says otherwise. */
static const struct {
    struct hard_shape shape;
    const char *lengths;
    int64_t window_left;
    struct problem_attributes attributes;
} cache_shapes[] = {
    {{1, 2, 2, 1, 1, FILL_NORMAL, ATTN_BSHD, true, false, 0}, "fixed", -1, {.page_size = 8}},
    {{3, 4, 2, 1, 300, FILL_NORMAL, ATTN_BSHD, true, false, 0}, "list:300:1:129", -1, {.page_size = 16}},
    {{2, 8, 1, 1, 257, FILL_NORMAL, ATTN_BHSD, true, false, 0}, "list:257:128", -1, {.page_size = 0}},
    {{4, 2, 2, 5, 260, FILL_NORMAL, ATTN_BSHD, false, false, 0}, "list:5:64:65:260", -1, {.page_size = 64}},
    {{1, 2, 1, 1, 4096, FILL_NORMAL, ATTN_BSHD, false, false, 0}, "fixed", -1, {.page_size = 128}},
    {{2, 4, 4, 130, 390, FILL_PEAK, ATTN_BHSD, false, false, 0}, "list:130:390", -1, {.page_size = 256}},
    {{3, 2, 1, 3, 200, FILL_NORMAL, ATTN_BSHD, false, false, 0}, "list:200:7:129", 50, {.dropout = 0.3}},
    {{2, 4, 1, 2, 333, FILL_SHARP, ATTN_BSHD, false, false, 0}, "list:333:40", 127, {.softcap = 5, .page_size = 24}},
};

/* Packed sequences and block masks; crossed like the others, but for the head dim, which says nothing about them. q_len
 * and kv_len of packed sequences are those of the list. */
struct hard_arrays {
    struct hard_shape shape;
    int64_t head_dim;
    const char *lengths, *block_mask; /* "" = fixed, none */
    int64_t mask_block, window_left, window_right;
    double dropout;
};

static const struct hard_arrays array_shapes[] = {
    /* Sequences of no token and of one, first and among others; one long beside many short ones; q_len and kv_len
     * differ, and one of them is 0; windows, in lengths that are shorter and longer than they are; dropout, which
     * counts from the beginning of a sequence. */
    {{1, 2, 2, 1, 1, FILL_NORMAL, ATTN_BSHD, true, false, 0}, 64, "list:0:1:129:0:1:64", "", 0, -1, -1, 0},
    {{1, 2, 1, 1, 1, FILL_NORMAL, ATTN_BSHD, false, false, 0}, 128, "list:1:7:260:1:2:1:5:3:1:64:2", "", 0, -1, -1, 0},
    {{1, 2, 1, 1, 1, FILL_NORMAL, ATTN_BHSD, true, false, 0}, 64, "list:70x130:99x7:0x50:60x0", "", 0, -1, -1, 0},
    {{1, 2, 2, 1, 1, FILL_NORMAL, ATTN_BSHD, false, false, 0}, 128, "list:129:1:65:37", "", 0, 16, 3, 0},
    {{1, 2, 1, 1, 1, FILL_NORMAL, ATTN_BSHD, false, false, 0}, 64, "list:100x40:1x65:64x128", "", 0, 50, -1, 0.3},
    /* Blocks of rows that see no key; one visible block in all, and few keys in it; a mask for each head, and lengths
     * that are no multiple of its blocks; with a window; of packed sequences. */
    {{1, 2, 2, 203, 113, FILL_NORMAL, ATTN_BSHD, true, false, 0}, 128, "", "local:0", 64, -1, -1, 0},
    {{1, 2, 1, 40, 300, FILL_NORMAL, ATTN_BHSD, false, false, 0}, 64, "", "local:0", 128, -1, -1, 0},
    {{2, 2, 1, 130, 200, FILL_NORMAL, ATTN_BSHD, true, false, 0}, 128, "", "random:0.3", 64, -1, -1, 0},
    {{1, 2, 2, 150, 150, FILL_NORMAL, ATTN_BSHD, false, false, 0}, 64, "", "strided:3", 16, 40, -1, 0},
    {{1, 2, 2, 1, 1, FILL_NORMAL, ATTN_BSHD, false, false, 0}, 128, "list:130:0:99x70", "random:0.5", 64, -1, -1, 0.1},
    /* Lists of visible tiles in several sections, of which some are empty: the only visible blocks are far apart. */
    {{1, 4, 2, 33000, 130, FILL_NORMAL, ATTN_BSHD, false, true, 0}, 64, "", "random:0.4", 64, -1, -1, 0},
    {{1, 4, 2, 33000, 130, FILL_NORMAL, ATTN_BSHD, false, true, 0}, 128, "", "local:0", 128, -1, -1, 0},
    {{1, 2, 2, 200, 66000, FILL_NORMAL, ATTN_BSHD, false, true, 0}, 64, "", "random:0.4", 128, -1, -1, 0},
    {{1, 2, 1, 200, 33000, FILL_NORMAL, ATTN_BHSD, false, true, 0}, 128, "", "strided:300", 64, -1, -1, 0},
};

const char *const plan_strides_names[] = {[PLAN_CONTIGUOUS] = "contiguous",
                                          [PLAN_PACKED_QKV] = "packed_qkv",
                                          [PLAN_PADDED_ROWS] = "padded_rows",
                                          [PLAN_OWN_STRIDES] = "own_strides",
                                          NULL};

/* The name of a sweep and what may differ between the shapes: "bwd-full-d-64-n-257-fp16-b-1-h-2x2-peak-bshd". */
void plan_name_whole(struct plan_item *item)
{
    const struct attn_problem *p = &item->problem;
    problem_print(p, item->mode, item->name, sizeof item->name);
    plan_name_more(item, " b=%lld h=%lldx%lld %s %s%s", (long long)p->batch, (long long)p->q_heads,
                   (long long)p->kv_heads, problem_dist_name(item->dist), problem_layout_name(p->layout),
                   item->batch_gap ? " far" : "");
    if (item->strides)
        plan_name_more(item, " %s", plan_strides_names[item->strides]);
    plan_name_more(item, "%s", item->is_captured ? " graph" : "");
    if (item->splits)
        plan_name_more(item, " splits %lld", (long long)item->splits);
    plan_name_attributes(item);
}

/* Without its name; the number of the plan's problems makes its seed. */
static struct plan_item item_of_shape(const struct options *o, const struct hard_shape *shape,
                                      const struct attn_problem *beyond, const struct attn_problem *kind,
                                      enum attn_mode mode, bool causal, int64_t head_dim, const struct plan *plan)
{
    struct plan_item item = {.mode = mode,
                             .dist = shape->dist,
                             .batch_gap = shape->batch_gap,
                             .deterministic = o->deterministic,
                             .hadamard = o->hadamard && attn_dtype_is_8_bit(kind->dtype),
                             .repeats = o->repeats};
    item.seed = (o->seed + (uint64_t)plan->count) & INT64_MAX; /* what --seed takes */
    struct attn_problem *p = &item.problem;
    *p = *beyond;
    p->batch = shape->batch;
    p->q_heads = shape->q_heads;
    p->kv_heads = shape->kv_heads;
    p->q_len = shape->q_len;
    p->kv_len = shape->kv_len;
    p->head_dim = head_dim;
    p->dtype = kind->dtype;
    p->out_dtype = kind->out_dtype;
    p->quant_scale = kind->quant_scale;
    p->scale_block = kind->scale_block;
    p->layout = shape->layout;
    p->causal = causal;
    p->scale = isnan(o->scale) ? (float)(1.0 / sqrt((double)head_dim)) : (float)o->scale;
    return item;
}

/* arrays: NULL = none. */
static void add_shape(const struct options *o, const struct hard_shape *shape, const struct hard_arrays *arrays,
                      const struct attn_problem *beyond, const struct attn_problem *kind, enum attn_mode mode,
                      bool causal, int64_t head_dim, struct plan *plan)
{
    struct reason why;
    struct plan_item item = item_of_shape(o, shape, beyond, kind, mode, causal, head_dim, plan);
    const bool good =
        !arrays || plan_set_arrays(plan, &item, arrays->lengths, 0, arrays->block_mask, arrays->mask_block, &why);
    FABENCH_ASSERT(good, "%s", why.text);
    plan_name_whole(&item);
    plan_add(plan, &item);
}

static const int64_t verify_dims[] = {64, 128};

/* A shape with each mode, mask, head dim and kind of the options. */
static void cross_shape(const struct options *o, enum attn_platform platform, const struct hard_shape *shape,
                        const struct hard_arrays *arrays, const struct attn_problem *beyond,
                        const struct attn_problem *kinds, int kind_count, struct plan *plan)
{
    const int64_t *const dims = o->head_dims.count ? o->head_dims.values : arrays ? &arrays->head_dim : verify_dims;
    const int dim_count = o->head_dims.count ? o->head_dims.count : arrays ? 1 : 2;
    if ((o->preset == PRESET_QUICK && !shape->quick) || (platform == ATTN_CPU && shape->cuda_only))
        return;
    for (int i = 0; i < 4; i++) {
        const enum attn_mode mode = (enum attn_mode)(i & 1);
        const bool causal = i >> 1 & 1;
        for (int d = 0; d < dim_count; d++)
            for (int k = 0; k < kind_count; k++)
                if (o->modes[mode] && !(attn_dtype_is_8_bit(kinds[k].dtype) && mode == ATTN_BWD) && o->causal[causal] &&
                    !(causal && beyond->window_right > 0))
                    add_shape(o, shape, arrays, beyond, &kinds[k], mode, causal, dims[d], plan);
    }
}

static void add_arrays(const struct options *o, enum attn_platform platform, const struct attn_problem *kinds,
                       int kind_count, struct plan *plan)
{
    for (size_t s = 0; s < sizeof array_shapes / sizeof array_shapes[0]; s++) {
        const struct hard_arrays *arrays = &array_shapes[s];
        struct attn_problem beyond = {.window_left = arrays->window_left, .window_right = arrays->window_right};
        problem_set_attributes(&(struct problem_attributes){.dropout = arrays->dropout}, &beyond);
        cross_shape(o, platform, &arrays->shape, arrays, &beyond, kinds, kind_count, plan);
    }
}

static void add_family_shapes(const struct options *o, enum attn_platform platform, const struct family_shape *rows,
                              size_t count, const struct attn_problem *kinds, int kind_count, struct plan *plan)
{
    for (size_t s = 0; s < count; s++) {
        struct attn_problem beyond = {.window_left = rows[s].window_left, .window_right = rows[s].window_right};
        problem_set_attributes(&rows[s].attributes, &beyond);
        cross_shape(o, platform, &rows[s].shape, NULL, &beyond, kinds, kind_count, plan);
    }
}

static void add_strided_shapes(const struct options *o, enum attn_platform platform, const struct attn_problem *kinds,
                               int kind_count, struct plan *plan)
{
    const struct attn_problem dense = {.window_left = -1, .window_right = -1};
    const int first = plan->count;
    for (size_t s = 0; s < sizeof strided_shapes / sizeof strided_shapes[0]; s++)
        cross_shape(o, platform, &strided_shapes[s], NULL, &dense, kinds, kind_count, plan);
    for (int i = first; i < plan->count; i++) {
        plan->items[i].strides = PLAN_OWN_STRIDES;
        plan_name_whole(&plan->items[i]);
    }
}

/* The caches of one dtype and its scales. */
static void add_caches(const struct options *o, const struct attn_problem *kind, struct plan *plan)
{
    const int dims = o->head_dims.count ? o->head_dims.count : 2, count = sizeof cache_shapes / sizeof cache_shapes[0];
    if (o->mode_given && !o->modes[MODE_DECODE])
        return;
    for (int n = 0; n < count * 2 * dims; n++) {
        const int s = n / dims / 2, d = n % dims;
        const bool causal = n / dims % 2 == 0;
        struct attn_problem beyond = {
            .lengths = ATTN_CACHE, .window_left = cache_shapes[s].window_left, .window_right = -1};
        struct reason why;
        if ((o->preset == PRESET_QUICK && !cache_shapes[s].shape.quick) ||
            !(o->causal_given ? o->causal[causal] : causal))
            continue;
        problem_set_attributes(&cache_shapes[s].attributes, &beyond);
        struct plan_item item = item_of_shape(o, &cache_shapes[s].shape, &beyond, kind, ATTN_FWD, causal,
                                              o->head_dims.count ? o->head_dims.values[d] : verify_dims[d], plan);
        const bool good = plan_set_arrays(plan, &item, cache_shapes[s].lengths, 0, "", 0, &why);
        FABENCH_ASSERT(good, "%s", why.text);
        plan_name_whole(&item);
        plan_add(plan, &item);
    }
}

/* True when the words of `part` follow each other in `name`; words have - between them. */
static bool has_words(const char *name, const char *part)
{
    const size_t length = strlen(part);
    for (const char *at = name; (at = strstr(at, part)); at++)
        if ((at == name || at[-1] == '-') && (at[length] == '\0' || at[length] == '-'))
            return true;
    return false;
}

/* --only: removes all other problems. One that has the whole key is taken alone. */
static int keep_only(const struct options *o, struct plan *plan)
{
    int kept = 0;
    bool is_whole = false;
    for (int i = 0; i < plan->count; i++)
        is_whole |= strcmp(plan->items[i].name, o->only) == 0;
    for (int i = 0; i < plan->count; i++)
        if (is_whole ? strcmp(plan->items[i].name, o->only) == 0 : has_words(plan->items[i].name, o->only))
            plan->items[kept++] = plan->items[i];
    plan->count = kept;
    if (kept)
        return EXIT_OK;
    log_error("--only %s: no problem has this key, nor these words in it; fabench verify --dry-run prints the keys%s",
              o->only, o->outputs_dir ? " with the same --outputs" : ", and --dtype, --mode, --causal, --d add some");
    return EXIT_USAGE;
}

/* The problems of --outputs. */
static int make_outputs(const struct options *o, struct plan *plan)
{
    int status = plan_add_dump(o, "--outputs", o->outputs_dir, plan);
    if (status == EXIT_OK && plan->count == 0) {
        log_error("--outputs %s: neither it nor a folder in it has a tensors.json with a problem, as --dump writes it",
                  o->outputs_dir);
        status = EXIT_IO;
    }
    return status;
}

static int finish_plan(const struct options *o, int status, struct plan *plan)
{
    if (status == EXIT_OK && o->only)
        status = keep_only(o, plan);
    if (status != EXIT_OK)
        plan_free(plan);
    return status;
}

static bool is_wanted_dtype(const struct options *o, enum attn_platform platform, enum attn_dtype dtype)
{
    return o->dtypes_given ? o->dtypes[dtype]
                           : !attn_dtype_is_8_bit(dtype) && (platform == ATTN_CPU) == (dtype == ATTN_FP32);
}

int plan_make_verify(const struct options *o, enum attn_platform platform, struct plan *plan)
{
    static const enum attn_dtype dtypes[] = {ATTN_FP16, ATTN_BF16, ATTN_FP32, ATTN_E4M3, ATTN_E5M2};
    memset(plan, 0, sizeof *plan);
    plan->warmup_ms = plan->min_time_ms = plan->max_noise_pct = NAN; /* nothing is timed */
    plan->preset = o->preset == PRESET_QUICK ? "quick" : "verify";
    if (o->q_lens.count || o->kv_lens.count || o->batches.count || o->heads.count || o->kv_heads.count) {
        log_error(
            "verify brings its own shapes: --seqlen, --kv-len, --batch, --heads and --kv-heads belong to the sweep");
        return EXIT_USAGE;
    }
    if (o->outputs_dir)
        return finish_plan(o, make_outputs(o, plan), plan);
    if (o->random_count) {
        plan->preset = "random";
        for (int64_t n = 0; n < o->random_count; n++)
            plan_random_add(o, platform, n, plan);
        return finish_plan(o, EXIT_OK, plan);
    }
    for (int t = 0; t < 5; t++) {
        struct attn_problem kinds[PLAN_KINDS_MAX];
        const int kind_count = plan_kinds_of(o, dtypes[t], kinds);
        if (!is_wanted_dtype(o, platform, dtypes[t]))
            continue;
        for (size_t n = 0; n < sizeof shapes / sizeof shapes[0]; n++)
            cross_shape(o, platform, &shapes[n], NULL, &(struct attn_problem){.window_left = -1, .window_right = -1},
                        kinds, kind_count, plan);
        add_family_shapes(o, platform, family_shapes, sizeof family_shapes / sizeof family_shapes[0], kinds, kind_count,
                          plan);
    }
    for (int t = 0; t < 5; t++) { /* at the end, so that the seeds of the others stay */
        struct attn_problem kinds[PLAN_KINDS_MAX];
        const int kind_count = is_wanted_dtype(o, platform, dtypes[t]) ? plan_kinds_of(o, dtypes[t], kinds) : 0;
        for (int k = 0; k < kind_count; k++)
            add_caches(o, &kinds[k], plan);
    }
    for (int t = 0; t < 5; t++) {
        struct attn_problem kinds[PLAN_KINDS_MAX];
        if (is_wanted_dtype(o, platform, dtypes[t]))
            add_arrays(o, platform, kinds, plan_kinds_of(o, dtypes[t], kinds), plan);
    }
    for (int t = 0; t < 5; t++) {
        struct attn_problem kinds[PLAN_KINDS_MAX];
        if (is_wanted_dtype(o, platform, dtypes[t]))
            add_family_shapes(o, platform, later_shapes, sizeof later_shapes / sizeof later_shapes[0], kinds,
                              plan_kinds_of(o, dtypes[t], kinds), plan);
    }
    for (int t = 0; t < 5; t++) {
        struct attn_problem kinds[PLAN_KINDS_MAX];
        if (is_wanted_dtype(o, platform, dtypes[t]))
            add_strided_shapes(o, platform, kinds, plan_kinds_of(o, dtypes[t], kinds), plan);
    }
    return finish_plan(o, EXIT_OK, plan);
}

/* ---- selftest ---- */

/* Options -> the problems of `selftest`. Order: dtype, mask, mode, head_dim, length, what is beyond dense attention; of
 * each dtype caches last. */

/* For the faults of cmd/selftest/faults.c that need more than dense attention: a row for each set of attributes. The
 * windows are narrow, so that one key is a large part of them at any length, and no multiple of a tile. A window to the
 * right is left out under the causal mask. */
static const struct selftest_family {
    int64_t window_left, window_right;
    struct problem_attributes attributes;
    bool is_packed, has_block_mask;
} selftest_family[] = {
    {-1, -1, {.dropout = 0}, false, false},
    {100, 30, {.dropout = 0}, false, false},
    {100, 30, {.dropout = 0.1, .dropout_seed = 1}, false, false},
    {-1, -1, {.dropout = 0}, true, false},
    {-1, -1, {.dropout = 0}, false, true},
};

/* Blocks of 8-bit inputs that have a scale; small, so that there are two at the shortest length. */
enum { SELFTEST_SCALE_BLOCK = 64, SELFTEST_PAGE = 16 };

static struct plan_item item_of_selftest(const struct options *o, enum attn_dtype dtype, enum attn_mode mode,
                                         bool causal, int64_t head_dim, int64_t len)
{
    struct plan_item item = {.mode = mode, .dist = o->dist, .seed = o->seed};
    struct attn_problem *p = &item.problem;
    p->batch = 1;
    p->q_heads = p->kv_heads =
        o->selftest_heads ? o->selftest_heads : 2; /* at least two, because one fault swaps two heads */
    p->q_len = p->kv_len = len;
    p->head_dim = head_dim;
    p->dtype = dtype;
    p->layout = ATTN_BSHD;
    p->causal = causal;
    p->window_left = p->window_right = -1;
    p->scale = (float)(1.0 / sqrt((double)head_dim));
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
    const int64_t len = p->kv_len, mask_block = len <= 16384 ? 32 : (len + 511) / 512;
    char lengths[96] = "";
    p->window_left = family->window_left;
    p->window_right = p->causal ? -1 : family->window_right;
    problem_set_attributes(&family->attributes, p);
    if (family->is_packed)
        snprintf(lengths, sizeof lengths, "list:%lldx%lld:0:100:%lldx%lld", (long long)some_rows(len), (long long)len,
                 (long long)some_rows(len / 3), (long long)(len / 3));
    if (family->has_block_mask)
        p->q_len = some_rows(len);
    add_with_arrays(plan, &item, lengths, family->has_block_mask ? "random:0.5" : "", mask_block);
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
    }
    return 0;
}
