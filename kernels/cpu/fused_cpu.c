/* fused_cpu: which tiles there are and which thread computes them. The tiles themselves are in kernels/cpu/tiles.h.
 *
 * Forward: every (batch, query head, tile of rows) is one independent task, the last rows of a head first because under
 * a causal mask they are the longest.
 *
 * Backward: a short pass computes D = rowsum(dO * O), zeroes dQ and sets the semaphores; then every (batch, kv head,
 * tile of keys) is one task.
 *
 * What must not be reordered: tasks start in ascending order, and a task adds to a tile of dQ only after the tile of
 * keys before it has. So no sum depends on the number of threads, S and dP are computed once, and the task with the
 * lowest number never waits: there is no deadlock, however the system schedules the threads.
 *
 * Memory: scratch for each thread, and for the backward a word for each row and for each tile of rows; nothing grows
 * with the square of the length. Speed: docs/kernels/cpu.md. */

#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernels/common/checks.h"
#include "kernels/cpu/cpu_kernels.h"

static const struct attn_variant variants[] = {
#if defined(__x86_64__)
    {"avx512", "512-bit vectors (AVX-512F)"},
    {"avx2", "256-bit vectors (AVX2 and FMA)"},
    {"portable", "128-bit vectors (SSE2)"},
#elif defined(__aarch64__)
    {"neon", "128-bit vectors (NEON)"},
#else
    {"portable", "128-bit vectors"},
#endif
    {NULL, NULL},
};

/* NULL when there is no such variant or this processor cannot run it. */
static const struct cpu_kernels *find_kernels(const char *variant)
{
    if (!variant)
        return cpu_kernels_best();
    const struct cpu_kernels *all[] = {cpu_kernels_avx512(), cpu_kernels_avx2(), cpu_kernels_baseline()};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] && strcmp(all[i]->name, variant) == 0)
            return all[i];
    return NULL;
}

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const enum attn_status status = attn_check_attributes(request, ATTN_WITH_WINDOW, why);
    if (status != ATTN_OK)
        return status;
    if (request->device->platform != ATTN_CPU)
        return attn_fail(why, ATTN_UNSUPPORTED, "runs on the CPU only");
    if (p->dtype != ATTN_FP32)
        return attn_fail(why, ATTN_UNSUPPORTED, "computes in fp32 only");
    if (p->head_dim < 8 || p->head_dim > 256 || p->head_dim % 8 != 0)
        return attn_fail(why, ATTN_UNSUPPORTED, "takes head dims that are multiples of 8 up to 256");
    if (request->variant && !find_kernels(request->variant)) {
        bool known = false;
        for (const struct attn_variant *v = variants; v->name; v++)
            known = known || strcmp(v->name, request->variant) == 0;
        return attn_fail(why, ATTN_UNSUPPORTED,
                         known ? "variant %.64s: this processor lacks the instructions" : "has no variant %.64s",
                         request->variant);
    }
    return ATTN_OK;
}

static const char *variant(const struct attn_request *request)
{
    const struct cpu_kernels *kernels = find_kernels(request->variant);
    return kernels ? kernels->name : NULL;
}

/* The workspace: delta [batch, q_heads, q_len] and dq_semaphore [batch, q_heads, row tiles] (both backward only), then
 * one scratch per thread, everything on multiples of 64 bytes. */
struct layout {
    size_t delta_floats, semaphore_words, scratch_floats; /* scratch of one thread */
    int threads;
};

static size_t whole_cache_lines(size_t words) { return (words + 15) / 16 * 16; }

static struct layout workspace_layout(const struct attn_request *request, const struct cpu_kernels *kernels)
{
    const struct attn_problem *p = request->problem;
    struct layout layout = {.threads = request->device->threads > 0 ? request->device->threads : 1};
    if (request->mode == ATTN_FWD) {
        layout.scratch_floats = whole_cache_lines(kernels->forward_scratch_floats(p->head_dim));
        return layout;
    }
    const size_t heads = (size_t)p->batch * (size_t)p->q_heads;
    const size_t tiles = (size_t)((p->q_len + kernels->backward_rows - 1) / kernels->backward_rows);
    layout.delta_floats = whole_cache_lines(heads * (size_t)p->q_len);
    layout.semaphore_words = whole_cache_lines(heads * tiles);
    layout.scratch_floats = whole_cache_lines(kernels->backward_scratch_floats(p->head_dim));
    return layout;
}

static size_t workspace_bytes(const struct attn_request *request)
{
    const struct cpu_kernels *kernels = find_kernels(request->variant);
    if (!kernels)
        return 0;
    const struct layout layout = workspace_layout(request, kernels);
    const size_t scratch_floats = (size_t)layout.threads * layout.scratch_floats;
    return (layout.delta_floats + layout.semaphore_words + scratch_floats) * sizeof(float);
}

static float *row_of(struct attn_tensor tensor, int64_t b, int64_t h, int64_t row)
{
    return (float *)tensor.data + b * tensor.stride_batch + h * tensor.stride_head + row * tensor.stride_row;
}

static void forward(const struct attn_problem *p, const struct attn_tensors *t, const struct cpu_kernels *kernels,
                    const struct layout *layout, float *scratch)
{
    const int64_t step = kernels->forward_rows, tiles = (p->q_len + step - 1) / step;
    const int64_t group = p->q_heads / p->kv_heads, tasks = p->batch * p->q_heads * tiles;
#pragma omp parallel for schedule(dynamic, 1) num_threads(layout->threads)
    for (int64_t task = 0; task < tasks; task++) {
        const int64_t head = task / tiles, b = head / p->q_heads, h = head % p->q_heads;
        const int64_t row0 = (tiles - 1 - task % tiles) * step, left = p->q_len - row0;
        kernels->forward_tile(&(struct cpu_forward_tile){
            .problem = p,
            .q = row_of(t->q, b, h, row0),
            .k = row_of(t->k, b, h / group, 0),
            .v = row_of(t->v, b, h / group, 0),
            .o = row_of(t->o, b, h, row0),
            .lse = t->lse + head * p->q_len + row0,
            .q_stride = t->q.stride_row,
            .k_stride = t->k.stride_row,
            .v_stride = t->v.stride_row,
            .o_stride = t->o.stride_row,
            .row0 = row0,
            .rows = left < step ? left : step,
            .scratch = scratch + (size_t)omp_get_thread_num() * layout->scratch_floats,
        });
    }
}

/* D, zeroed dQ and the first column of every tile of rows. */
static void prepare_tile(const struct attn_problem *p, const struct attn_tensors *t, int64_t head, int64_t row0,
                         int64_t rows, int64_t tile_cols, float *delta, int32_t *dq_semaphore)
{
    const int64_t b = head / p->q_heads, h = head % p->q_heads;
    for (int64_t i = 0; i < rows; i++) {
        const float *o = row_of(t->o, b, h, row0 + i), *dout = row_of(t->dout, b, h, row0 + i);
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < p->head_dim; c++)
            sum += (double)o[c] * (double)dout[c];
        delta[i] = (float)sum;
        memset(row_of(t->dq, b, h, row0 + i), 0, (size_t)p->head_dim * sizeof(float));
    }
    int64_t first, last;
    cpu_visible_columns(p, row0, rows, &first, &last);
    *dq_semaphore = (int32_t)(first / tile_cols);
}

static void backward_task(const struct attn_problem *p, const struct attn_tensors *t, const struct cpu_kernels *kernels,
                          int64_t task, const float *delta, int32_t *dq_semaphore, float *scratch)
{
    const int64_t step = kernels->backward_cols, cols_tiles = (p->kv_len + step - 1) / step;
    const int64_t row_tiles = (p->q_len + kernels->backward_rows - 1) / kernels->backward_rows;
    const int64_t b = task / cols_tiles / p->kv_heads, h = task / cols_tiles % p->kv_heads;
    const int64_t group = p->q_heads / p->kv_heads, head = b * p->q_heads + h * group;
    const int64_t col0 = task % cols_tiles * step, left = p->kv_len - col0;
    kernels->backward_column(&(struct cpu_backward_column){
        .problem = p,
        .q = row_of(t->q, b, h * group, 0),
        .dout = row_of(t->dout, b, h * group, 0),
        .lse = t->lse + head * p->q_len,
        .delta = delta + head * p->q_len,
        .k = row_of(t->k, b, h, col0),
        .v = row_of(t->v, b, h, col0),
        .dq = row_of(t->dq, b, h * group, 0),
        .dk = row_of(t->dk, b, h, col0),
        .dv = row_of(t->dv, b, h, col0),
        .q_stride = t->q.stride_row,
        .dout_stride = t->dout.stride_row,
        .dq_stride = t->dq.stride_row,
        .q_head = t->q.stride_head,
        .dout_head = t->dout.stride_head,
        .dq_head = t->dq.stride_head,
        .k_stride = t->k.stride_row,
        .v_stride = t->v.stride_row,
        .dk_stride = t->dk.stride_row,
        .dv_stride = t->dv.stride_row,
        .group = group,
        .col0 = col0,
        .cols = left < step ? left : step,
        .dq_semaphore = dq_semaphore + head * row_tiles,
        .scratch = scratch,
    });
}

static void backward(const struct attn_problem *p, const struct attn_tensors *t, const struct cpu_kernels *kernels,
                     const struct layout *layout, float *workspace)
{
    float *delta = workspace;
    int32_t *dq_semaphore = (int32_t *)(void *)(workspace + layout->delta_floats);
    float *scratch = workspace + layout->delta_floats + layout->semaphore_words;
    const int64_t step = kernels->backward_rows, row_tiles = (p->q_len + step - 1) / step;
    const int64_t prepared = p->batch * p->q_heads * row_tiles;
    const int64_t tasks = p->batch * p->kv_heads * ((p->kv_len + kernels->backward_cols - 1) / kernels->backward_cols);
    int64_t next = 0;
#pragma omp parallel num_threads(layout->threads)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < prepared; i++) {
            const int64_t head = i / row_tiles, row0 = i % row_tiles * step, left = p->q_len - row0;
            prepare_tile(p, t, head, row0, left < step ? left : step, kernels->backward_cols,
                         delta + head * p->q_len + row0, dq_semaphore + i);
        }
        float *own = scratch + (size_t)omp_get_thread_num() * layout->scratch_floats;
        for (;;) {
            int64_t task;
#pragma omp atomic capture
            task = next++;
            if (task >= tasks)
                break;
            backward_task(p, t, kernels, task, delta, dq_semaphore, own);
        }
    }
}

static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run, struct attn_message *why)
{
    const struct cpu_kernels *kernels = find_kernels(request->variant);
    if (!kernels)
        return attn_fail(why, ATTN_ERROR, "has no variant %.64s", request->variant);
    const enum attn_status status = attn_check_workspace(run, workspace_bytes(request), why);
    if (status != ATTN_OK)
        return status;
    const struct layout layout = workspace_layout(request, kernels);
    if (request->mode == ATTN_FWD)
        forward(request->problem, tensors, kernels, &layout, run->workspace);
    else
        backward(request->problem, tensors, kernels, &layout, run->workspace);
    return ATTN_OK;
}

enum { FORWARD_OUTPUTS = ATTN_O | ATTN_LSE, BACKWARD_OUTPUTS = ATTN_DQ | ATTN_DK | ATTN_DV };

const struct attn_impl attn_fused_cpu = {
    .abi = ATTN_ABI,
    .name = "fused_cpu",
    .summary = "FlashAttention-2's tiles over CPU threads, fp32",
    .platform = ATTN_CPU,
    .repeatable = {FORWARD_OUTPUTS, BACKWARD_OUTPUTS},
    .repeatable_deterministic = {FORWARD_OUTPUTS, BACKWARD_OUTPUTS},
    .accepts = accepts,
    .workspace_bytes = workspace_bytes,
    .variant = variant,
    .launch = launch,
    .variants = variants,
};
