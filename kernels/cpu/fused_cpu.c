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
 * 8-bit inputs are copied to fp32 at the beginning of a launch, each element times its scale.
 *
 * Memory: scratch for each thread, the copies of 8-bit inputs, and for the backward a word for each row and for each
 * tile of rows; nothing grows with the square of the length. Speed: docs/kernels/cpu.md. */

#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernels/common/checks.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/widen.h"

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

enum {
    KNOWN = ATTN_WITH_WINDOW | ATTN_WITH_DROPOUT | ATTN_WITH_SOFTCAP | ATTN_WITH_PACKED_LENGTHS | ATTN_WITH_BLOCK_MASK |
            ATTN_WITH_8_BIT
};

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    enum attn_status status = attn_check_attributes(request, KNOWN, why);
    if (status != ATTN_OK)
        return status;
    if (request->device->platform != ATTN_CPU)
        return attn_fail(why, ATTN_UNSUPPORTED, "runs on the CPU only");
    if ((status = cpu_accepts_dtype(request, why)) != ATTN_OK)
        return status;
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

/* The workspace: delta [batch, q_heads, q_len], as LSE, and dq_semaphore [batch, q_heads, row tiles] (both backward
 * only), then one scratch per thread, everything on multiples of 64 bytes. */
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
    layout.delta_floats = whole_cache_lines(p->lengths == ATTN_PACKED ? (size_t)p->q_heads * (size_t)p->total_q
                                                                      : heads * (size_t)p->q_len);
    layout.semaphore_words = whole_cache_lines(heads * tiles);
    layout.scratch_floats = whole_cache_lines(kernels->backward_scratch_floats(p->head_dim));
    return layout;
}

/* Without the copies of 8-bit inputs, which follow. */
static size_t tiles_bytes(const struct layout *layout)
{
    const size_t scratch_floats = (size_t)layout->threads * layout->scratch_floats;
    return (layout->delta_floats + layout->semaphore_words + scratch_floats) * sizeof(float);
}

static size_t workspace_bytes(const struct attn_request *request)
{
    const struct cpu_kernels *kernels = find_kernels(request->variant);
    if (!kernels)
        return 0;
    const struct layout layout = workspace_layout(request, kernels);
    return tiles_bytes(&layout) + cpu_widened_bytes(request->problem);
}

/* One call: the whole problem and its tensors. */
struct call {
    const struct attn_problem *p;
    const struct attn_tensors *t;
    const struct cpu_kernels *kernels;
    const struct layout *layout;
    int64_t group;
};

static float *row_of(const struct call *x, struct attn_tensor tensor, int64_t b, int64_t h, int64_t row)
{
    return (float *)tensor.data + attn_row_offset(x->p, x->t, tensor, b, h, row);
}

static float *key_of(const struct call *x, struct attn_tensor tensor, int64_t b, int64_t h, int64_t key)
{
    return (float *)tensor.data + attn_key_offset(x->p, x->t, tensor, b, h, key);
}

/* The problem with the lengths of sequence b. */
static struct attn_problem sequence_of(const struct call *x, int64_t b)
{
    const struct attn_sequence at = attn_sequence_at(x->p, x->t, b);
    struct attn_problem one = *x->p;
    one.q_len = at.q_len;
    one.kv_len = at.kv_len;
    return one;
}

static struct cpu_place place_of(const struct call *x, int64_t b, int64_t head)
{
    return (struct cpu_place){x->p, x->t->block_mask, b, head};
}

/* Of every sequence as many tiles as the longest has; a shorter one has no work in the last of them. */
static void forward(const struct call *x, float *scratch)
{
    const struct attn_problem *p = x->p;
    const struct attn_tensors *t = x->t;
    const int64_t step = x->kernels->forward_rows, tiles = (p->q_len + step - 1) / step;
    const int64_t tasks = p->batch * p->q_heads * tiles;
#pragma omp parallel for schedule(dynamic, 1) num_threads(x->layout->threads)
    for (int64_t task = 0; task < tasks; task++) {
        const int64_t b = task / tiles / p->q_heads, h = task / tiles % p->q_heads;
        const struct attn_problem one = sequence_of(x, b);
        const int64_t row0 = (tiles - 1 - task % tiles) * step, left = one.q_len - row0;
        if (left <= 0)
            continue;
        x->kernels->forward_tile(&(struct cpu_forward_tile){
            .problem = &one,
            .place = place_of(x, b, h),
            .q = row_of(x, t->q, b, h, row0),
            .k = key_of(x, t->k, b, h / x->group, 0),
            .v = key_of(x, t->v, b, h / x->group, 0),
            .o = row_of(x, t->o, b, h, row0),
            .lse = t->lse + attn_lse_index(p, t, b, h, row0),
            .q_stride = t->q.stride_row,
            .k_stride = t->k.stride_row,
            .v_stride = t->v.stride_row,
            .o_stride = t->o.stride_row,
            .row0 = row0,
            .rows = left < step ? left : step,
            .scratch = scratch + (size_t)omp_get_thread_num() * x->layout->scratch_floats,
        });
    }
}

static int64_t row_tiles_of(const struct call *x, const struct attn_problem *p)
{
    return (p->q_len + x->kernels->backward_rows - 1) / x->kernels->backward_rows;
}

/* The semaphores of the first query head of a group; those of the others follow, each with the tiles of its sequence.
 * */
static int64_t semaphore_place(const struct call *x, int64_t b, int64_t first_head)
{
    return (b * x->p->q_heads + first_head) * row_tiles_of(x, x->p);
}

/* D, zeroed dQ and the first column of every tile of rows. */
static void prepare_tile(const struct call *x, int64_t b, int64_t h, int64_t tile, float *delta, int32_t *dq_semaphore)
{
    const struct attn_problem one = sequence_of(x, b);
    const int64_t step = x->kernels->backward_rows, row0 = tile * step, left = one.q_len - row0;
    const int64_t rows = left < step ? left : step;
    if (left <= 0)
        return;
    for (int64_t i = row0; i < row0 + rows; i++) {
        const float *o = row_of(x, x->t->o, b, h, i), *dout = row_of(x, x->t->dout, b, h, i);
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < one.head_dim; c++)
            sum += (double)o[c] * (double)dout[c];
        delta[attn_lse_index(x->p, x->t, b, h, i)] = (float)sum;
        memset(row_of(x, x->t->dq, b, h, i), 0, (size_t)one.head_dim * sizeof(float));
    }
    int64_t first, last;
    cpu_visible_columns(&one, row0, rows, &first, &last);
    dq_semaphore[semaphore_place(x, b, h - h % x->group) + h % x->group * row_tiles_of(x, &one) + tile] =
        (int32_t)(first / x->kernels->backward_cols);
}

static void backward_task(const struct call *x, int64_t task, const float *delta, int32_t *dq_semaphore, float *scratch)
{
    const struct attn_problem *p = x->p;
    const struct attn_tensors *t = x->t;
    const int64_t step = x->kernels->backward_cols, cols_tiles = (p->kv_len + step - 1) / step;
    const int64_t b = task / cols_tiles / p->kv_heads, h = task / cols_tiles % p->kv_heads, head = h * x->group;
    const struct attn_problem one = sequence_of(x, b);
    const int64_t col0 = task % cols_tiles * step, left = one.kv_len - col0;
    const int64_t lse = attn_lse_index(p, t, b, head, 0);
    if (left <= 0)
        return;
    x->kernels->backward_column(&(struct cpu_backward_column){
        .problem = &one,
        .place = place_of(x, b, head),
        .q = row_of(x, t->q, b, head, 0),
        .dout = row_of(x, t->dout, b, head, 0),
        .lse = t->lse + lse,
        .delta = delta + lse,
        .lse_head = attn_lse_index(p, t, b, 1, 0) - attn_lse_index(p, t, b, 0, 0),
        .k = key_of(x, t->k, b, h, col0),
        .v = key_of(x, t->v, b, h, col0),
        .dq = row_of(x, t->dq, b, head, 0),
        .dk = key_of(x, t->dk, b, h, col0),
        .dv = key_of(x, t->dv, b, h, col0),
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
        .group = x->group,
        .col0 = col0,
        .cols = left < step ? left : step,
        .dq_semaphore = dq_semaphore + semaphore_place(x, b, head),
        .scratch = scratch,
    });
}

static void backward(const struct call *x, float *workspace)
{
    const struct attn_problem *p = x->p;
    float *delta = workspace;
    int32_t *dq_semaphore = (int32_t *)(void *)(workspace + x->layout->delta_floats);
    float *scratch = workspace + x->layout->delta_floats + x->layout->semaphore_words;
    const int64_t row_tiles = row_tiles_of(x, p), prepared = p->batch * p->q_heads * row_tiles;
    const int64_t cols_tiles = (p->kv_len + x->kernels->backward_cols - 1) / x->kernels->backward_cols;
    const int64_t tasks = p->batch * p->kv_heads * cols_tiles;
    int64_t next = 0;
#pragma omp parallel num_threads(x->layout->threads)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < prepared; i++)
            prepare_tile(x, i / row_tiles / p->q_heads, i / row_tiles % p->q_heads, i % row_tiles, delta, dq_semaphore);
        float *own = scratch + (size_t)omp_get_thread_num() * x->layout->scratch_floats;
        for (;;) {
            int64_t task;
#pragma omp atomic capture
            task = next++;
            if (task >= tasks)
                break;
            backward_task(x, task, delta, dq_semaphore, own);
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
    const struct attn_problem *p = request->problem;
    const bool has_8_bits = attn_dtype_is_8_bit(p->dtype);
    struct cpu_widened wide;
    struct call call = {p, tensors, kernels, &layout, p->q_heads / p->kv_heads};
    if (has_8_bits) {
        cpu_widen(request, tensors, (char *)run->workspace + tiles_bytes(&layout), &wide);
        call.p = &wide.problem;
        call.t = &wide.tensors;
    }
    if (request->mode == ATTN_FWD)
        forward(&call, run->workspace);
    else
        backward(&call, run->workspace);
    if (has_8_bits)
        cpu_narrow(request, &wide, tensors);
    return ATTN_OK;
}

enum { FORWARD_OUTPUTS = ATTN_O | ATTN_LSE, BACKWARD_OUTPUTS = ATTN_DQ | ATTN_DK | ATTN_DV };

const struct attn_impl attn_fused_cpu = {
    .abi = ATTN_ABI,
    .name = "fused_cpu",
    .summary = "FlashAttention-2's tiles over CPU threads, fp32; 8-bit inputs are copied to fp32 first, in its time",
    .platform = ATTN_CPU,
    .repeatable = {FORWARD_OUTPUTS, BACKWARD_OUTPUTS},
    .repeatable_deterministic = {FORWARD_OUTPUTS, BACKWARD_OUTPUTS},
    .accepts = accepts,
    .workspace_bytes = workspace_bytes,
    .variant = variant,
    .launch = launch,
    .variants = variants,
};
