/* 16-bit inputs -> 8-bit inputs and their scales. */
#include "reference/harness/quantise.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "reference/harness/fill.h"

enum { HEAD_DIM_MAX = 576 };

/* What attn_scale_index takes of one tensor. */
struct rows {
    int64_t heads, len, total, group;
};

static struct rows rows_of(const struct attn_problem *p, enum quantised tensor)
{
    if (tensor == QUANTISED_Q)
        return (struct rows){p->q_heads, p->q_len, p->total_q, p->q_heads / p->kv_heads};
    return (struct rows){p->kv_heads, p->kv_len, p->total_k, 1};
}

int64_t quantise_scales(const struct attn_problem *p, enum quantised tensor)
{
    const struct rows r = rows_of(p, tensor);
    if (p->quant_scale == ATTN_SCALE_HEAD)
        return p->batch * p->kv_heads;
    if (p->quant_scale != ATTN_SCALE_BLOCK)
        return 1;
    if (p->lengths != ATTN_FIXED && r.total != 0)
        return r.heads * (r.total / p->scale_block + p->batch);
    return p->batch * r.heads * ((r.len + p->scale_block - 1) / p->scale_block);
}

int64_t quantise_scale_at(const struct attn_problem *p, enum quantised tensor, const int32_t *cu_seqlens, int64_t batch,
                          int64_t head, int64_t row)
{
    const struct rows r = rows_of(p, tensor);
    return attn_scale_index(p, cu_seqlens, r.total, r.heads, r.len, r.group, batch, head, row);
}

bool quantise_negates(uint64_t seed, int64_t column)
{
    enum { SIGNS = 0x68616461 }; /* not the numbers of a tensor */
    return fill_random16(seed, SIGNS, (uint64_t)column) & 1;
}

void quantise_rotate(float *row, int64_t count, uint64_t seed)
{
    const float factor = (float)(1 / sqrt((double)count));
    for (int64_t c = 0; c < count; c++)
        row[c] *= quantise_negates(seed, c) ? -factor : factor;
    for (int64_t step = 1; step < count; step *= 2)
        for (int64_t c = 0; c < count; c++)
            if (!(c & step)) {
                const float a = row[c], b = row[c + step];
                row[c] = a + b;
                row[c + step] = a - b;
            }
}

/* Where a row of a sequence begins, in elements. */
static int64_t offset_of(const struct quantise_job *job, const struct attn_tensor *t, int64_t b, int64_t head,
                         int64_t row)
{
    const struct attn_tensors arrays = {.page_table = job->page_table};
    if (job->cu_seqlens)
        return head * t->stride_head + (job->cu_seqlens[b] + row) * t->stride_row;
    if (job->seqused_k)
        return attn_key_offset(job->problem, &arrays, *t, b, head, row);
    return b * t->stride_batch + head * t->stride_head + row * t->stride_row;
}

static enum attn_dtype dtype_of(const struct quantise_job *job)
{
    return job->tensor == QUANTISED_Q ? job->problem->dtype : attn_kv_dtype(job->problem);
}

/* The columns of the tensor. */
static int64_t columns_of(const struct quantise_job *job)
{
    return job->tensor == QUANTISED_V ? attn_v_head_dim(job->problem) : job->problem->head_dim;
}

static void load_row(const struct quantise_job *job, int64_t b, int64_t head, int64_t row, float *to)
{
    const int64_t d = columns_of(job), from = offset_of(job, &job->from, b, head, row);
    for (int64_t c = 0; c < d; c++)
        to[c] = fill_load(job->from.data, job->from_dtype, from + c);
    if (job->is_rotated)
        quantise_rotate(to, d, job->seed);
}

static int64_t length_of(const struct quantise_job *job, int64_t b)
{
    if (job->seqused_k)
        return job->seqused_k[b];
    return job->cu_seqlens ? job->cu_seqlens[b + 1] - job->cu_seqlens[b] : rows_of(job->problem, job->tensor).len;
}

/* The largest |value| of the rows of one scale, for one head of one sequence, into its scale. Heads that share a scale
 * are in one task. */
static void find_largest(const struct quantise_job *job, int64_t b, int64_t head)
{
    float row[HEAD_DIM_MAX];
    for (int64_t i = 0; i < length_of(job, b); i++) {
        float *scale = &job->scales[quantise_scale_at(job->problem, job->tensor, job->cu_seqlens, b, head, i)];
        load_row(job, b, head, i, row);
        for (int64_t c = 0; c < columns_of(job); c++)
            *scale = fmaxf(*scale, fabsf(row[c]));
    }
}

static void store(const struct quantise_job *job, int64_t b, int64_t head)
{
    const struct attn_problem *p = job->problem;
    float row[HEAD_DIM_MAX];
    for (int64_t i = 0; i < length_of(job, b); i++) {
        const float scale = job->scales[quantise_scale_at(p, job->tensor, job->cu_seqlens, b, head, i)];
        const int64_t to = offset_of(job, &job->to, b, head, i);
        load_row(job, b, head, i, row);
        for (int64_t c = 0; c < columns_of(job); c++)
            fill_store(job->to.data, dtype_of(job), to + c, row[c] / scale);
    }
}

/* The largest of a whole tensor, which all tasks share. */
static float largest_of_all(const struct quantise_job *job, int threads)
{
    const struct rows r = rows_of(job->problem, job->tensor);
    float largest = 0;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) reduction(max : largest)
    for (int64_t task = 0; task < job->problem->batch * r.heads; task++) {
        float own = 0;
        struct quantise_job one = *job;
        one.scales = &own;
        find_largest(&one, task / r.heads, task % r.heads);
        largest = fmaxf(largest, own);
    }
    return largest;
}

void quantise(const struct quantise_job *job, int threads_wanted)
{
    const int threads = threads_wanted > 0 ? threads_wanted : omp_get_max_threads();
    const struct attn_problem *p = job->problem;
    const struct rows r = rows_of(p, job->tensor);
    const int64_t count = quantise_scales(p, job->tensor);
    const float most = dtype_of(job) == ATTN_E4M3 ? 448.0f : 57344.0f;
    for (int64_t i = 0; i < count; i++)
        job->scales[i] = 0;
    if (p->quant_scale != ATTN_SCALE_HEAD && p->quant_scale != ATTN_SCALE_BLOCK) {
        job->scales[0] = largest_of_all(job, threads);
    } else {
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
        for (int64_t task = 0; task < p->batch * r.heads / r.group; task++)
            for (int64_t g = 0; g < r.group; g++)
                find_largest(job, task / (r.heads / r.group), task % (r.heads / r.group) * r.group + g);
    }
    for (int64_t i = 0; i < count; i++)
        job->scales[i] = job->scales[i] > 0 ? fmaxf(job->scales[i] / most, 0x1p-126f) : 1;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t task = 0; task < p->batch * r.heads; task++)
        store(job, task / r.heads, task % r.heads);
}
