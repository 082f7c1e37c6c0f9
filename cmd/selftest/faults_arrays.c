/* Faults that are made by other lengths, pages, blocks or scales. */
#include "cmd/selftest/faults_arrays.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"

/* Lets the right kernel compute `changed` with these arrays, from the inputs of `wrong` into its outputs. */
static enum attn_status compute_with(const struct fault_job *job, const struct attn_problem *changed,
                                     const struct problem_arrays *arrays, struct host_tensors *wrong,
                                     struct attn_message *why)
{
    const struct problem_arrays *const held = wrong->arrays;
    wrong->arrays = arrays;
    const enum attn_status status = job->attend(job->context, changed, job->mode, wrong, why);
    wrong->arrays = held;
    return status;
}

static int32_t *copy_of(const int32_t *from, int64_t count)
{
    int32_t *copy = xmalloc((unsigned long)count * sizeof *copy);
    memcpy(copy, from, (size_t)count * sizeof *copy);
    return copy;
}

/* ---- packed sequences ---- */

/* The keys of all sequences with those that a fault adds. */
struct key_list {
    int32_t *cu_seqlens; /* [batch + 1] */
    int64_t *from;       /* of each key, the row of the true K and V */
    int64_t count, longest;
};

/* The first key of the next sequence that has keys; -1 behind the last one. */
static int64_t first_key_after(const struct attn_problem *p, const int32_t *cu_seqlens, int64_t b)
{
    for (int64_t next = b + 1; next < p->batch; next++)
        if (cu_seqlens[next + 1] > cu_seqlens[next])
            return cu_seqlens[next];
    return -1;
}

static struct key_list with_first_keys(const struct attn_problem *p, const int32_t *cu_seqlens)
{
    struct key_list list = {.cu_seqlens = xcalloc((unsigned long)p->batch + 1, sizeof *list.cu_seqlens),
                            .from = xcalloc((unsigned long)(p->total_k + p->batch), sizeof *list.from)};
    for (int64_t b = 0; b < p->batch; b++) {
        const int64_t begin = list.count, foreign = first_key_after(p, cu_seqlens, b);
        if (foreign >= 0)
            list.from[list.count++] = foreign;
        for (int64_t key = cu_seqlens[b]; key < cu_seqlens[b + 1]; key++)
            list.from[list.count++] = key;
        list.cu_seqlens[b + 1] = (int32_t)list.count;
        list.longest = list.count - begin > list.longest ? list.count - begin : list.longest;
    }
    return list;
}

/* Copies the rows of whole [heads, len, dim] that the list names to listed [heads, list->count, dim]. */
static void take_keys(float *listed, const float *whole, const struct attn_problem *p, const struct key_list *list)
{
    for (int64_t h = 0; h < p->kv_heads; h++)
        for (int64_t i = 0; i < list->count; i++)
            memcpy(listed + (h * list->count + i) * p->head_dim, whole + (h * p->total_k + list->from[i]) * p->head_dim,
                   (size_t)p->head_dim * sizeof *listed);
}

/* The gradients of keys that are listed more than once are their sums. */
static void give_keys(const float *listed, float *whole, const struct attn_problem *p, const struct key_list *list)
{
    memset(whole, 0, (size_t)(p->kv_heads * p->total_k * p->head_dim) * sizeof *whole);
    for (int64_t h = 0; h < p->kv_heads; h++)
        for (int64_t i = 0; i < list->count; i++)
            for (int64_t c = 0; c < p->head_dim; c++)
                whole[(h * p->total_k + list->from[i]) * p->head_dim + c] +=
                    listed[(h * list->count + i) * p->head_dim + c];
}

static enum attn_status attend_to_list(const struct fault_job *job, const struct key_list *list,
                                       struct host_tensors *wrong, struct attn_message *why)
{
    static const enum problem_tensor kept[] = {TENSOR_Q, TENSOR_O, TENSOR_LSE, TENSOR_DO, TENSOR_DQ};
    const int64_t kept_count = job->mode == ATTN_FWD ? 3 : 5;
    struct attn_problem changed = *job->problem;
    struct problem_arrays arrays = *job->correct->arrays;
    changed.kv_len = list->longest;
    changed.total_k = list->count;
    arrays.cu_seqlens_k = list->cu_seqlens;
    struct host_tensors t = host_tensors_make(&changed, job->mode);
    for (int64_t i = 0; i < kept_count; i++)
        memcpy(t.at[kept[i]], wrong->at[kept[i]], (size_t)host_tensors_elements(&changed, kept[i]) * sizeof(float));
    take_keys(t.at[TENSOR_K], wrong->at[TENSOR_K], job->problem, list);
    take_keys(t.at[TENSOR_V], wrong->at[TENSOR_V], job->problem, list);
    const enum attn_status status = compute_with(job, &changed, &arrays, &t, why);
    for (int64_t i = 0; i < kept_count && status == ATTN_OK; i++)
        memcpy(wrong->at[kept[i]], t.at[kept[i]], (size_t)host_tensors_elements(&changed, kept[i]) * sizeof(float));
    if (status == ATTN_OK && job->mode == ATTN_BWD) {
        give_keys(t.at[TENSOR_DK], wrong->at[TENSOR_DK], job->problem, list);
        give_keys(t.at[TENSOR_DV], wrong->at[TENSOR_DV], job->problem, list);
    }
    host_tensors_free(&t);
    return status;
}

enum attn_status faults_first_key(const struct fault_job *job, enum problem_tensor tensor, struct host_tensors *wrong,
                                  struct attn_message *why)
{
    (void)tensor;
    struct key_list list = with_first_keys(job->problem, job->correct->arrays->cu_seqlens_k);
    const enum attn_status status = attend_to_list(job, &list, wrong, why);
    free(list.cu_seqlens);
    free(list.from);
    return status;
}

/* ---- caches ---- */

/* Pages of one sequence in the table. */
static int64_t table_width(const struct attn_problem *p) { return (p->kv_len + p->page_size - 1) / p->page_size; }

enum attn_status faults_swapped_pages(const struct fault_job *job, enum problem_tensor tensor,
                                      struct host_tensors *wrong, struct attn_message *why)
{
    (void)tensor;
    const struct attn_problem *p = job->problem;
    struct problem_arrays arrays = *job->correct->arrays;
    int32_t *const table = copy_of(arrays.page_table, p->batch * table_width(p));
    int32_t *const last = table + (p->batch - 1) * table_width(p);
    const int32_t held = table[0];
    table[0] = *last;
    *last = held;
    arrays.page_table = table;
    const enum attn_status status = compute_with(job, p, &arrays, wrong, why);
    free(table);
    return status;
}

enum attn_status faults_unused_slots(const struct fault_job *job, enum problem_tensor tensor,
                                     struct host_tensors *wrong, struct attn_message *why)
{
    (void)tensor;
    struct attn_problem changed = *job->problem;
    struct problem_arrays arrays = *job->correct->arrays;
    const int32_t size = (int32_t)changed.page_size;
    int32_t *const used = copy_of(arrays.seqused_k, changed.batch);
    for (int64_t b = 0; b < changed.batch; b++)
        used[b] = (used[b] + size - 1) / size * size;
    changed.kv_len = table_width(&changed) * changed.page_size;
    arrays.seqused_k = used;
    const enum attn_status status = compute_with(job, &changed, &arrays, wrong, why);
    free(used);
    return status;
}

enum attn_status faults_next_chunk(const struct fault_job *job, enum problem_tensor tensor, struct host_tensors *wrong,
                                   struct attn_message *why)
{
    (void)tensor;
    struct attn_problem changed = *job->problem;
    changed.causal = false;
    changed.window_right = FAULT_CHUNK;
    return compute_with(job, &changed, job->correct->arrays, wrong, why);
}

/* Copies `count` keys of a sequence and head, from key `first` on, out of the cache in K or V. */
static void take_from_cache(const struct fault_job *job, enum problem_tensor tensor, int64_t b, int64_t h,
                            int64_t first, int64_t count, float *to)
{
    const struct attn_problem *p = job->problem;
    const struct tensor_shape s = tensor_shape_of(p, tensor);
    const struct attn_tensor strides = problem_strides(ATTN_BHSD, s.heads, s.len, s.head_dim);
    const struct attn_tensors arrays = {.page_table = job->correct->arrays->page_table};
    for (int64_t i = 0; i < count; i++)
        memcpy(to + i * p->head_dim, job->correct->at[tensor] + attn_key_offset(p, &arrays, strides, b, h, first + i),
               (size_t)p->head_dim * sizeof *to);
}

/* Attention of all rows over one part of the keys, which is a contiguous cache of its own: O and LSE, which is -inf
 * where the part has no keys. The caller frees it. */
static enum attn_status attend_to_split(const struct fault_job *job, int64_t split, struct host_tensors *part,
                                        struct attn_message *why)
{
    struct attn_problem p = *job->problem;
    struct problem_arrays arrays = {.seqused_k = copy_of(job->correct->arrays->seqused_k, p.batch)};
    p.page_size = p.pages = 0;
    p.kv_len = (job->problem->kv_len + FAULT_SPLITS - 1) / FAULT_SPLITS;
    *part = host_tensors_make(&p, ATTN_FWD);
    memcpy(part->at[TENSOR_Q], job->correct->at[TENSOR_Q], (size_t)host_tensors_elements(&p, TENSOR_Q) * sizeof(float));
    for (int64_t b = 0; b < p.batch; b++) {
        const int64_t first = split * p.kv_len, left = arrays.seqused_k[b] - first;
        const int64_t count = left < 0 ? 0 : left < p.kv_len ? left : p.kv_len;
        arrays.seqused_k[b] = (int32_t)count;
        for (int64_t h = 0; h < p.kv_heads; h++) {
            const int64_t at = (b * p.kv_heads + h) * p.kv_len * p.head_dim;
            take_from_cache(job, TENSOR_K, b, h, first, count, part->at[TENSOR_K] + at);
            take_from_cache(job, TENSOR_V, b, h, first, count, part->at[TENSOR_V] + at);
        }
    }
    const enum attn_status status = compute_with(job, &p, &arrays, part, why);
    free(arrays.seqused_k);
    return status;
}

/* Merges one row of `count` parts, by their LSE or each with the same weight. */
static void merge_row(const struct host_tensors *parts, int count, bool is_rescaled, int64_t row, int64_t dim,
                      struct host_tensors *wrong)
{
    double sum = 0;
    int with_keys = 0;
    for (int s = 0; s < count; s++) {
        sum += exp((double)parts[s].at[TENSOR_LSE][row]);
        with_keys += isfinite(parts[s].at[TENSOR_LSE][row]);
    }
    float *const o = wrong->at[TENSOR_O] + row * dim;
    memset(o, 0, (size_t)dim * sizeof *o);
    for (int s = 0; s < count; s++) {
        const double lse = (double)parts[s].at[TENSOR_LSE][row],
                     weight = is_rescaled ? exp(lse) / sum : 1.0 / with_keys;
        for (int64_t c = 0; c < dim && isfinite(lse); c++)
            o[c] += (float)(weight * (double)parts[s].at[TENSOR_O][row * dim + c]);
    }
    if (is_rescaled)
        wrong->at[TENSOR_LSE][row] = (float)log(sum);
}

static enum attn_status merge_splits(const struct fault_job *job, int count, bool is_rescaled,
                                     struct host_tensors *wrong, struct attn_message *why)
{
    const struct attn_problem *p = job->problem;
    struct host_tensors parts[FAULT_SPLITS];
    enum attn_status status = ATTN_OK;
    int made = 0;
    while (made < count && status == ATTN_OK) {
        status = attend_to_split(job, made, &parts[made], why);
        made++;
    }
    for (int64_t row = 0; row < host_tensors_elements(p, TENSOR_LSE) && status == ATTN_OK; row++)
        merge_row(parts, count, is_rescaled, row, p->head_dim, wrong);
    for (int s = 0; s < made; s++)
        host_tensors_free(&parts[s]);
    return status;
}

enum attn_status faults_lost_split(const struct fault_job *job, enum problem_tensor tensor, struct host_tensors *wrong,
                                   struct attn_message *why)
{
    (void)tensor;
    return merge_splits(job, FAULT_SPLITS - 1, true, wrong, why);
}

enum attn_status faults_plain_merge(const struct fault_job *job, enum problem_tensor tensor, struct host_tensors *wrong,
                                    struct attn_message *why)
{
    (void)tensor;
    return merge_splits(job, FAULT_SPLITS, false, wrong, why);
}

/* ---- 8-bit inputs ---- */

/* The first block of each head has the scale of the second, or none: 1. `wrong` has scales of its own; afterwards they
 * are the right ones again. */
static enum attn_status with_other_scales(const struct fault_job *job, enum quantised which, bool is_forgotten,
                                          struct host_tensors *wrong, struct attn_message *why)
{
    const struct attn_problem *p = job->problem;
    const int64_t heads = which == QUANTISED_Q ? p->q_heads : p->kv_heads, count = quantise_scales(p, which);
    float *const scales = wrong->scales[which];
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < heads; h++)
            scales[quantise_scale_at(p, which, NULL, b, h, 0)] =
                is_forgotten ? 1 : scales[quantise_scale_at(p, which, NULL, b, h, p->scale_block)];
    const enum attn_status status = compute_with(job, p, job->correct->arrays, wrong, why);
    memcpy(scales, job->correct->scales[which], (size_t)count * sizeof(float));
    return status;
}

enum attn_status faults_scale_of_q(const struct fault_job *job, enum problem_tensor tensor, struct host_tensors *wrong,
                                   struct attn_message *why)
{
    (void)tensor;
    return with_other_scales(job, QUANTISED_Q, false, wrong, why);
}

enum attn_status faults_scale_of_k(const struct fault_job *job, enum problem_tensor tensor, struct host_tensors *wrong,
                                   struct attn_message *why)
{
    (void)tensor;
    return with_other_scales(job, QUANTISED_K, false, wrong, why);
}

enum attn_status faults_no_scale_of_k(const struct fault_job *job, enum problem_tensor tensor,
                                      struct host_tensors *wrong, struct attn_message *why)
{
    (void)tensor;
    return with_other_scales(job, QUANTISED_K, true, wrong, why);
}

enum attn_status faults_no_scale_of_v(const struct fault_job *job, enum problem_tensor tensor,
                                      struct host_tensors *wrong, struct attn_message *why)
{
    (void)tensor;
    return with_other_scales(job, QUANTISED_V, true, wrong, why);
}

/* ---- sink ---- */

enum attn_status faults_sink_twice(const struct fault_job *job, enum problem_tensor tensor, struct host_tensors *wrong,
                                   struct attn_message *why)
{
    (void)tensor;
    const int64_t heads = job->problem->q_heads;
    struct problem_arrays arrays = *job->correct->arrays;
    float *const sink = xmalloc((unsigned long)heads * sizeof *sink);
    for (int64_t h = 0; h < heads; h++)
        sink[h] = arrays.sink[h] + logf(2);
    arrays.sink = sink;
    const enum attn_status status = compute_with(job, job->problem, &arrays, wrong, why);
    free(sink);
    return status;
}

enum attn_status faults_no_sink_in_lse(const struct fault_job *job, enum problem_tensor tensor,
                                       struct host_tensors *wrong, struct attn_message *why)
{
    (void)tensor;
    (void)why;
    const struct attn_problem *p = job->problem;
    float *const lse = wrong->at[TENSOR_LSE];
    for (int64_t i = 0; i < p->q_heads * p->q_len; i++) { /* of one sequence */
        const double sink = (double)job->correct->arrays->sink[i / p->q_len];
        lse[i] = (float)((double)lse[i] + log1p(-exp(sink - (double)lse[i])));
    }
    return ATTN_OK;
}

enum attn_status faults_next_slope(const struct fault_job *job, enum problem_tensor tensor, struct host_tensors *wrong,
                                   struct attn_message *why)
{
    (void)tensor;
    const int64_t heads = job->problem->q_heads;
    struct problem_arrays arrays = *job->correct->arrays;
    float *const slopes = xmalloc((unsigned long)heads * sizeof *slopes);
    for (int64_t h = 0; h < heads; h++)
        slopes[h] = arrays.alibi_slopes[(h + 1) % heads];
    arrays.alibi_slopes = slopes;
    const enum attn_status status = compute_with(job, job->problem, &arrays, wrong, why);
    free(slopes);
    return status;
}

/* ---- block mask ---- */

static int64_t blocks_of(const struct attn_problem *p, int64_t len)
{
    return (len + p->mask_block - 1) / p->mask_block;
}

/* The first visible block of a row of blocks that has at least `wanted`, as an index of the plane; -1 where it has
 * fewer. Without a window the last row of the block sees the most keys. */
static int64_t block_to_skip(const struct attn_problem *p, const uint8_t *plane, int64_t row_block, int64_t wanted)
{
    const int64_t last_row = (row_block + 1) * p->mask_block - 1, keys = blocks_of(p, p->kv_len);
    int64_t first_key, last_key, found = -1, visible = 0;
    attn_visible(p, last_row < p->q_len ? last_row : p->q_len - 1, &first_key, &last_key);
    for (int64_t j = keys - 1; j >= 0; j--)
        if (plane[row_block * keys + j] && j * p->mask_block <= last_key) {
            found = row_block * keys + j;
            visible++;
        }
    return visible >= wanted ? found : -1;
}

/* In the last row of blocks of the first plane that has two visible ones, else one; -1 where nothing is visible. */
static int64_t skipped_block(const struct attn_problem *p, const uint8_t *mask)
{
    const int64_t rows = blocks_of(p, p->q_len), size = rows * blocks_of(p, p->kv_len);
    for (int64_t wanted = 2; wanted >= 1; wanted--)
        for (int64_t plane = 0; plane < p->mask_batch * p->mask_heads; plane++)
            for (int64_t row = rows - 1; row >= 0; row--) {
                const int64_t found = block_to_skip(p, mask + plane * size, row, wanted);
                if (found >= 0)
                    return plane * size + found;
            }
    return -1;
}

enum attn_status faults_skipped_block(const struct fault_job *job, enum problem_tensor tensor,
                                      struct host_tensors *wrong, struct attn_message *why)
{
    (void)tensor;
    struct problem_arrays arrays = *job->correct->arrays;
    size_t bytes;
    const void *const mask = problem_array(job->problem, &arrays, ARRAY_BLOCK_MASK, &bytes);
    const int64_t skipped = skipped_block(job->problem, mask);
    arrays.mask = xmalloc(bytes);
    memcpy(arrays.mask, mask, bytes);
    if (skipped >= 0)
        arrays.mask[skipped] = 0;
    const enum attn_status status = compute_with(job, job->problem, &arrays, wrong, why);
    free(arrays.mask);
    return status;
}
