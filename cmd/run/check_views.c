/* Views of a problem: where their tensors, scales and masks begin. No device. */
#include "cmd/run/check_views.h"

#include "cmd/base/numbers.h"

void *check_element_at(const struct attn_tensor *t, enum attn_dtype dtype, int64_t b, int64_t h)
{
    if (!t->data)
        return NULL;
    return (char *)t->data + (b * t->stride_batch + h * t->stride_head) * (int64_t)attn_dtype_bytes(dtype);
}

void *check_row_at(const struct attn_tensor *t, enum attn_dtype dtype, int64_t row)
{
    return t->data ? (char *)t->data + row * t->stride_row * (int64_t)attn_dtype_bytes(dtype) : NULL;
}

/* Moves the tensors that have a row for each query. */
static void skip_query_rows(struct attn_tensors *t, const struct attn_problem *p, int64_t rows)
{
    struct attn_tensor *const moved[] = {&t->q, &t->o, &t->dout, &t->dq};
    for (int i = 0; i < 4; i++)
        moved[i]->data = check_row_at(moved[i], i == 0 ? p->dtype : attn_output_dtype(p), rows);
}

int64_t check_batch_of_rows(const struct check_view *view)
{
    return attn_rows_are_packed(&view->problem) ? 0 : view->batch_offset;
}

struct attn_tensors check_view_tensors(const struct attn_tensors *t, const struct check_view *view)
{
    struct attn_tensors moved = *t;
    struct attn_tensor *const of_q[] = {&moved.q, &moved.o, &moved.dout, &moved.dq};
    struct attn_tensor *const of_kv[] = {&moved.k, &moved.v, &moved.dk, &moved.dv};
    const bool has_pages = view->problem.page_size > 0; /* which the table finds, from the view's first sequence on */
    const int64_t q_batch = check_batch_of_rows(view);
    for (int i = 0; i < 4; i++) {
        const enum attn_dtype output = attn_output_dtype(&view->problem), input = view->problem.dtype;
        const enum attn_dtype cached = attn_kv_dtype(&view->problem);
        of_q[i]->data = check_element_at(of_q[i], i == 0 ? input : output, q_batch, view->q_head_offset);
        of_kv[i]->data = check_element_at(of_kv[i], i < 2 ? cached : output, has_pages ? 0 : view->batch_offset,
                                          view->kv_head_offset);
    }
    if (moved.seqused_k)
        moved.seqused_k += view->batch_offset;
    if (has_pages)
        moved.page_table +=
            view->batch_offset * ((view->problem.kv_len + view->problem.page_size - 1) / view->problem.page_size);
    moved.lse = NULL;
    if (moved.scale_q)
        moved.scale_q += view->scale_q_offset;
    if (moved.scale_k) {
        moved.scale_k += view->scale_kv_offset;
        moved.scale_v += view->scale_kv_offset;
    }
    if (moved.block_mask)
        moved.block_mask += view->mask_offset;
    if (moved.sink)
        moved.sink += view->q_head_offset;
    if (moved.alibi_slopes)
        moved.alibi_slopes += view->q_head_offset;
    moved.bias.data = check_element_at(&moved.bias, view->problem.bias_dtype, view->bias_batch, view->bias_head);
    moved.bias.data = check_row_at(&moved.bias, view->problem.bias_dtype, view->row_offset);
    skip_query_rows(&moved, &view->problem, view->row_offset);
    moved.dsink = NULL;
    return moved;
}

/* Where the blocks of a sequence and query head of the whole problem begin in the mask. */
static int64_t mask_offset_of(const struct attn_problem *p, int64_t batch, int64_t head)
{
    if (p->mask_block == 0)
        return 0;
    const int64_t plane = (p->mask_batch > 1 ? batch : 0) * p->mask_heads + (p->mask_heads > 1 ? head : 0);
    const int64_t rows = (p->q_len + p->mask_block - 1) / p->mask_block;
    const int64_t keys = (p->kv_len + p->mask_block - 1) / p->mask_block;
    return plane * rows * keys;
}

/* Where the scales of 8-bit inputs begin for a sequence and a query head. */
static void set_scales(const struct plan_item *item, int64_t batch, int64_t q_head, struct check_view *view)
{
    const struct attn_problem *p = &item->problem;
    const int32_t *cu_q = attn_rows_are_packed(p) ? item->arrays->cu_seqlens_q : NULL;
    const bool is_packed = p->lengths == ATTN_PACKED;
    view->scale_q_offset = quantise_scale_at(p, QUANTISED_Q, cu_q, batch, q_head, 0);
    view->scale_kv_offset = quantise_scale_at(p, QUANTISED_K, is_packed ? item->arrays->cu_seqlens_k : NULL, batch,
                                              q_head / (p->q_heads / p->kv_heads), 0);
}

/* Some query heads of one sequence; of all sequences where rows are packed, as their tensors cannot be divided. */
static struct check_view part_of(const struct plan_item *item, int64_t batch, int64_t q_head, int64_t q_heads)
{
    const struct attn_problem *p = &item->problem;
    struct check_view view = {.problem = *p, .q_head_offset = q_head};
    set_scales(item, batch, q_head, &view);
    view.kv_head_offset = q_head / (p->q_heads / p->kv_heads);
    const bool is_packed = attn_rows_are_packed(p);
    view.mask_offset = mask_offset_of(p, is_packed ? 0 : batch, q_head);
    view.problem.kv_heads = 1;
    view.problem.q_heads = q_heads;
    view.problem.mask_heads = p->mask_heads > 1 ? q_heads : p->mask_heads;
    view.problem.bias_heads = p->bias_heads > 1 ? q_heads : p->bias_heads;
    view.bias_head = p->bias_heads > 1 ? q_head : 0;
    if (is_packed)
        return view;
    view.problem.batch = 1;
    view.problem.mask_batch = p->mask_batch > 1 ? 1 : p->mask_batch;
    view.problem.bias_batch = p->bias_batch > 1 ? 1 : p->bias_batch;
    view.bias_batch = p->bias_batch > 1 ? batch : 0;
    view.batch_offset = batch;
    return view;
}

struct check_view check_group_of(const struct plan_item *item, int64_t batch, int64_t kv_head)
{
    const struct attn_problem *p = &item->problem;
    const int64_t group = p->q_heads / p->kv_heads;
    return part_of(item, attn_rows_are_packed(p) ? 0 : batch, kv_head * group, group);
}

int64_t check_rows_of(const struct plan_item *item, int64_t batch)
{
    const int32_t *cu_q = attn_rows_are_packed(&item->problem) ? item->arrays->cu_seqlens_q + batch : NULL;
    return cu_q ? cu_q[1] - cu_q[0] : item->problem.q_len;
}

/* Is the mask of some rows that of a problem whose last rows they are, and whose last key is the last one that they
 * see? Its length says how the blocks of a mask follow each other, and arrays have the lengths of caches. */
static bool may_take_any_rows(const struct attn_problem *p)
{
    if (p->lengths == ATTN_CACHE || (p->causal && p->mask_block > 0))
        return false;
    return p->causal || (p->window_left < 0 && p->window_right < 0 && !p->has_alibi);
}

struct check_some_rows check_some_rows_of(const struct plan_item *item, int64_t batch, int64_t head, int64_t first_row)
{
    const struct attn_problem *p = &item->problem;
    struct check_some_rows rows = {.view = part_of(item, batch, head, 1)};
    struct attn_problem *part = &rows.view.problem;
    const bool is_packed = attn_rows_are_packed(p);
    const int32_t *cu_q = is_packed ? item->arrays->cu_seqlens_q + batch : NULL;
    const int32_t *cu_k = p->lengths == ATTN_PACKED ? item->arrays->cu_seqlens_k + batch : NULL;
    const int64_t q_len = check_rows_of(item, batch), all_keys = cu_k ? cu_k[1] - cu_k[0] : p->kv_len;
    int64_t count = q_len - first_row < COMPARE_BLOCK_ROWS ? q_len - first_row : COMPARE_BLOCK_ROWS;
    int64_t keys = all_keys - (p->causal ? q_len - first_row - count : 0);
    if (!may_take_any_rows(p) || keys < 1) {
        count = q_len < COMPARE_BLOCK_ROWS ? q_len : COMPARE_BLOCK_ROWS;
        first_row = q_len - count;
        keys = all_keys;
    }
    rows.first_row = rows.q_offset = first_row;
    rows.view.mask_offset = mask_offset_of(p, batch, head);
    part->mask_batch = part->mask_heads = p->mask_block ? 1 : 0;
    part->bias_batch = part->bias_heads = p->bias_heads > 0 ? 1 : 0;
    rows.view.bias_batch = p->bias_batch > 1 ? batch : 0;
    if (!is_packed) {
        part->q_len = count;
        part->kv_len = keys;
        return rows;
    }
    part->batch = 1; /* q_len and kv_len stay: they say where the rows of the mask begin */
    part->total_q = count;
    rows.q_offset += cu_q[0];
    rows.cu_seqlens[1] = (int32_t)part->total_q;
    if (!cu_k) { /* a cache has a batch dimension, whose sequence seqused_k belongs to */
        rows.view.batch_offset = batch;
        return rows;
    }
    part->total_k = keys;
    rows.kv_offset = cu_k[0];
    rows.cu_seqlens[3] = (int32_t)part->total_k;
    return rows;
}

/* Blocks of rows of the query heads of the first and of the last (sequence, kv head): the first and the last block, and
 * one drawn from --seed in each of as many equal parts between them. */
static int take_blocks_of_rows(const struct plan_item *item, struct check_view views[CHECK_MAX_VIEWS])
{
    const struct attn_problem *p = &item->problem;
    const int64_t group = p->q_heads / p->kv_heads, blocks = compare_blocks_per_head(p->q_len);
    for (int64_t n = 0; n < CHECK_MAX_VIEWS; n++) {
        const int64_t side = n / CHECK_BLOCKS, part = n % CHECK_BLOCKS;
        const int64_t first = part * blocks / CHECK_BLOCKS, end = (part + 1) * blocks / CHECK_BLOCKS;
        const int64_t draw = (int64_t)(number_mix(item->seed + (uint64_t)n * NUMBER_MIX_STEP) >> 1);
        const int64_t block = part == 0 ? 0 : part == CHECK_BLOCKS - 1 ? blocks - 1 : first + draw % (end - first);
        const int64_t head = side * (p->q_heads - group) + part % group;
        const struct check_some_rows rows =
            check_some_rows_of(item, side * (p->batch - 1), head, block * COMPARE_BLOCK_ROWS);
        views[n] = rows.view;
        views[n].row_offset = rows.first_row;
    }
    return CHECK_MAX_VIEWS;
}

int check_make_views(const struct plan_item *item, enum check_scope scope, struct check_view views[CHECK_MAX_VIEWS])
{
    const struct attn_problem *p = &item->problem;
    const bool is_packed = attn_rows_are_packed(p);
    if (scope == CHECK_OFF)
        return 0;
    if (scope == CHECK_SAMPLE && item->mode == ATTN_FWD && !is_packed && p->q_len > CHECK_WHOLE_ROWS &&
        (!p->causal || p->kv_len >= p->q_len) && may_take_any_rows(p))
        return take_blocks_of_rows(item, views);
    views[0] = (struct check_view){.problem = *p};
    if (scope == CHECK_FULL || (is_packed ? 1 : p->batch) * p->kv_heads <= 2)
        return 1;
    if (is_packed && p->mask_batch > 1 &&
        p->mask_heads > 1) /* some heads of all sequences are no part of such a mask */
        return 1;
    if (is_packed && (p->quant_scale == ATTN_SCALE_HEAD ||
                      (p->quant_scale == ATTN_SCALE_BLOCK && p->lengths == ATTN_CACHE))) /* nor of such scales */
        return 1;
    if (item->mode == ATTN_BWD && (p->has_sink || p->bias_heads > 0)) /* dSink and dBias sum over sequences and heads */
        return 1;
    const int64_t group = p->q_heads / p->kv_heads;
    views[0] = part_of(item, 0, 0, group);
    views[1] = part_of(item, is_packed ? 0 : p->batch - 1, p->q_heads - group, group);
    return 2;
}

void check_skip_rows(struct attn_tensors *t, const struct attn_problem *p, const struct check_some_rows *rows)
{
    struct attn_tensor *const of_kv[] = {&t->k, &t->v};
    skip_query_rows(t, p, rows->q_offset);
    t->bias.data = check_row_at(&t->bias, p->bias_dtype, rows->first_row);
    for (int i = 0; i < 2; i++)
        of_kv[i]->data = check_row_at(of_kv[i], attn_kv_dtype(p), rows->kv_offset);
}

int64_t check_find_sequence(const struct plan_item *item, int64_t batch)
{
    const struct attn_problem *p = &item->problem;
    if (!attn_rows_are_packed(p))
        return batch;
    const int32_t *cu_q = item->arrays->cu_seqlens_q;
    const int32_t *cu_k =
        p->lengths == ATTN_PACKED ? item->arrays->cu_seqlens_k : cu_q; /* a cache has those of its rows */
    for (int64_t i = 0, b = batch; i < p->batch; i++, b = (b + 1) % p->batch)
        if (cu_q[b + 1] > cu_q[b] && cu_k[b + 1] > cu_k[b])
            return b;
    return -1;
}
