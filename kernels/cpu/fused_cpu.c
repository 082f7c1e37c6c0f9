/* fused_cpu: which tiles there are and which thread computes them. The tiles themselves are in kernels/cpu/tiles.h.
 *
 * Forward: every (batch, query head, tile of rows) is one independent task, the last rows of a head first because under
 * a causal mask they are the longest. The keys of a cache may lie in pages, which a tile copies to its scratch, and may
 * be split: then each part is a task with an O and an LSE of its own in the workspace, and a second pass merges them,
 * LSE = ln sum exp(lse_i), O = sum exp(lse_i - LSE) O_i (Dao et al. 2023, Flash-Decoding).
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
 * Memory: scratch for each thread, the copies of 8-bit inputs, for the backward a word for each row and for each tile
 * of rows, for splits an O and an LSE of each; nothing grows with the square of the length. Speed: docs/kernels/cpu.md.
 */

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

enum {
    KNOWN = ATTN_WITH_WINDOW | ATTN_WITH_DROPOUT | ATTN_WITH_SOFTCAP | ATTN_WITH_PACKED_LENGTHS | ATTN_WITH_CACHE |
            ATTN_WITH_PAGES | ATTN_WITH_BLOCK_MASK | ATTN_WITH_8_BIT | ATTN_WITH_SPLITS | ATTN_WITH_V_HEAD_DIM |
            ATTN_WITH_SINK | ATTN_WITH_DSINK | ATTN_WITH_ALIBI | ATTN_WITH_BIAS | ATTN_WITH_DBIAS |
            ATTN_WITH_INVARIANT | ATTN_WITH_FAST | ATTN_WITH_FEWER_OUTPUTS | ATTN_WITH_PACKED_ROWS |
            ATTN_WITH_CACHE_DTYPE,
    SPLITS_MAX = 1024
};

static bool is_head_dim(int64_t d) { return d >= 8 && d <= 256 && d % 8 == 0; }

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    enum attn_status status = attn_check_attributes(request, KNOWN, why);
    if (status != ATTN_OK)
        return status;
    if (request->device->platform != ATTN_CPU)
        return attn_fail(why, ATTN_UNSUPPORTED, "runs on the CPU only");
    if ((status = cpu_accepts_types(request, why)) != ATTN_OK)
        return status;
    if (!(is_head_dim(p->head_dim) && is_head_dim(attn_v_head_dim(p))) &&
        !(p->head_dim == 576 && p->v_head_dim == 512 && p->lengths == ATTN_CACHE))
        return attn_fail(why, ATTN_UNSUPPORTED, "takes head dims that are multiples of 8 up to 256%s",
                         p->lengths == ATTN_CACHE ? ", and 576 with a V of 512" : "");
    if (request->mode == ATTN_BWD && (p->lengths == ATTN_CACHE || request->splits != 0))
        return attn_fail(why, ATTN_UNSUPPORTED, "takes a cache and a number of splits in the forward only");
    if (request->invariant && (request->mode == ATTN_BWD || request->splits != 0))
        return attn_fail(why, ATTN_UNSUPPORTED, "takes the invariant mode in the forward only, without splits");
    if (request->splits < 0 || request->splits > SPLITS_MAX)
        return attn_fail(why, ATTN_UNSUPPORTED, "takes up to 1024 splits");
    if (p->page_size != 0 && p->lengths != ATTN_CACHE)
        return attn_fail(why, ATTN_UNSUPPORTED, "takes pages of a cache only");
    if (p->bias_heads > 0 && p->bias_dtype != ATTN_FP32)
        return attn_fail(why, ATTN_UNSUPPORTED, "takes a bias in fp32 only");
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
 * only), then one scratch per thread, then, of a forward with more than one split, LSE [splits, rows] and O [splits,
 * rows, V's head dim], the rows in the order of LSE. Everything on multiples of 64 bytes. */
struct layout {
    size_t delta_floats, semaphore_words, scratch_floats; /* scratch of one thread */
    size_t rows, split_lse_floats, split_o_floats;        /* rows of Q over all heads; 0 = no splits */
    int64_t splits;
    int threads;
};

static size_t whole_cache_lines(size_t words) { return (words + 15) / 16 * 16; }

static struct layout workspace_layout(const struct attn_request *request, const struct cpu_kernels *kernels)
{
    const struct attn_problem *p = request->problem;
    struct layout layout = {.threads = request->device->threads > 0 ? request->device->threads : 1, .splits = 1};
    const size_t heads = (size_t)p->batch * (size_t)p->q_heads;
    layout.rows = attn_rows_are_packed(p) ? (size_t)p->q_heads * (size_t)p->total_q : heads * (size_t)p->q_len;
    if (request->mode == ATTN_FWD) {
        layout.scratch_floats = whole_cache_lines(kernels->forward_scratch_floats(p->head_dim, attn_v_head_dim(p)));
        if (request->splits > 1) {
            layout.splits = request->splits;
            layout.split_lse_floats = whole_cache_lines((size_t)layout.splits * layout.rows);
            layout.split_o_floats = whole_cache_lines((size_t)layout.splits * layout.rows * (size_t)attn_v_head_dim(p));
        }
        return layout;
    }
    const size_t tiles = (size_t)((p->q_len + kernels->backward_rows - 1) / kernels->backward_rows);
    layout.delta_floats = whole_cache_lines(layout.rows);
    layout.semaphore_words = whole_cache_lines(heads * tiles);
    layout.scratch_floats = whole_cache_lines(kernels->backward_scratch_floats(p->head_dim, attn_v_head_dim(p)));
    return layout;
}

/* Without the copies of 8-bit inputs, which follow. */
static size_t tiles_bytes(const struct layout *layout)
{
    const size_t scratch_floats = (size_t)layout->threads * layout->scratch_floats;
    return (layout->delta_floats + layout->semaphore_words + scratch_floats + layout->split_lse_floats +
            layout->split_o_floats) *
           sizeof(float);
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
    bool wants_dsink, wants_dbias;
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
    return (struct cpu_place){.whole = x->p,
                              .block_mask = x->t->block_mask,
                              .alibi_slopes = x->t->alibi_slopes,
                              .bias = x->p->bias_heads > 0 ? x->t->bias.data : NULL,
                              .dbias = x->wants_dbias ? x->t->dbias.data : NULL,
                              .strides = x->t->bias,
                              .dbias_strides = x->t->dbias,
                              .batch = b,
                              .head = head};
}

/* Where the O and the LSE of the splits lie; NULL without splits. */
struct split_results {
    float *o, *lse;
};

static struct split_results split_results_of(const struct call *x, float *scratch)
{
    if (x->layout->splits < 2)
        return (struct split_results){NULL, NULL};
    float *lse = scratch + (size_t)x->layout->threads * x->layout->scratch_floats;
    return (struct split_results){lse + x->layout->split_lse_floats, lse};
}

/* The tile of some rows without its keys. */
static struct cpu_forward_tile forward_tile_of(const struct call *x, const struct attn_problem *one, int64_t b,
                                               int64_t h, int64_t row0)
{
    const struct attn_problem *p = x->p;
    const struct attn_tensors *t = x->t;
    const int64_t step = x->kernels->forward_rows, left = one->q_len - row0, kv_head = h / x->group;
    struct cpu_forward_tile tile = {
        .problem = one,
        .place = place_of(x, b, h),
        .q = row_of(x, t->q, b, h, row0),
        .o = row_of(x, t->o, b, h, row0),
        .lse = t->lse ? t->lse + attn_lse_index(p, t, b, h, row0) : NULL,
        .sink = t->sink ? t->sink[h] : -INFINITY,
        .q_stride = t->q.stride_row,
        .k_stride = t->k.stride_row,
        .v_stride = t->v.stride_row,
        .o_stride = t->o.stride_row,
        .row0 = row0,
        .rows = left < step ? left : step,
    };
    if (p->page_size > 0) {
        const int64_t pages = (p->kv_len + p->page_size - 1) / p->page_size;
        tile.k = (const float *)t->k.data + kv_head * t->k.stride_head;
        tile.v = (const float *)t->v.data + kv_head * t->v.stride_head;
        tile.pages = (struct cpu_pages){t->page_table + b * pages, p->page_size, t->k.stride_batch, t->v.stride_batch};
    } else {
        tile.k = key_of(x, t->k, b, kv_head, 0);
        tile.v = key_of(x, t->v, b, kv_head, 0);
    }
    return tile;
}

/* The keys of one split: as many whole tiles of keys as each other split has, so that the last may have none. */
static void choose_keys(const struct call *x, int64_t split, struct cpu_forward_tile *tile)
{
    const int64_t kv_len = tile->problem->kv_len, cols = x->kernels->forward_cols, splits = x->layout->splits;
    const int64_t tiles = (kv_len + cols - 1) / cols, step = (tiles + splits - 1) / splits * cols;
    const int64_t end = (split + 1) * step;
    tile->key0 = split * step;
    tile->key1 = end < kv_len ? end : kv_len;
}

/* Of every sequence as many tiles as the longest has; a shorter one has no work in the last of them. */
static void forward(const struct call *x, float *scratch)
{
    const struct attn_problem *p = x->p;
    const int64_t step = x->kernels->forward_rows, tiles = (p->q_len + step - 1) / step, splits = x->layout->splits;
    const int64_t tasks = p->batch * p->q_heads * tiles * splits;
    const struct split_results parts = split_results_of(x, scratch);
#pragma omp parallel for schedule(dynamic, 1) num_threads(x->layout->threads)
    for (int64_t task = 0; task < tasks; task++) {
        const int64_t split = task % splits, of_tile = task / splits;
        const int64_t b = of_tile / tiles / p->q_heads, h = of_tile / tiles % p->q_heads;
        const struct attn_problem one = sequence_of(x, b);
        const int64_t row0 = (tiles - 1 - of_tile % tiles) * step;
        if (row0 >= one.q_len)
            continue;
        struct cpu_forward_tile tile = forward_tile_of(x, &one, b, h, row0);
        choose_keys(x, split, &tile);
        if (parts.o) {
            const size_t row = (size_t)split * x->layout->rows + (size_t)attn_lse_index(p, x->t, b, h, row0);
            tile.o = parts.o + row * (size_t)attn_v_head_dim(p);
            tile.o_stride = attn_v_head_dim(p);
            tile.lse = parts.lse + row;
            tile.sink = -INFINITY; /* which the merge adds once */
        }
        tile.scratch = scratch + (size_t)omp_get_thread_num() * x->layout->scratch_floats;
        x->kernels->forward_tile(&tile);
    }
}

/* One row of O and LSE (where it is wanted) from those of the splits and the sink. A split that saw no key has
 * LSE = -inf and adds nothing. */
static void merge_row(const struct call *x, const struct split_results *parts, size_t row, double sink, float *o,
                      float *lse)
{
    const size_t d = (size_t)attn_v_head_dim(x->p), rows = x->layout->rows;
    const int64_t splits = x->layout->splits;
    double max = sink, sum = 0;
    for (int64_t s = 0; s < splits; s++) /* NaN becomes the maximum, and the results NaN */
        max = (double)parts->lse[(size_t)s * rows + row] <= max ? max : (double)parts->lse[(size_t)s * rows + row];
    memset(o, 0, d * sizeof *o);
    if (lse)
        *lse = (float)max;
    if (max == -INFINITY)
        return;
    for (int64_t s = 0; s < splits; s++)
        sum += exp((double)parts->lse[(size_t)s * rows + row] - max);
    sum += exp(sink - max);
    for (int64_t s = 0; s < splits; s++) {
        const size_t at = (size_t)s * rows + row;
        const float weight = (float)(exp((double)parts->lse[at] - max) / sum);
        for (size_t c = 0; c < d && weight != 0; c++)
            o[c] += weight * parts->o[at * d + c];
    }
    if (lse)
        *lse = (float)(max + log(sum));
}

static void merge_splits(const struct call *x, float *scratch)
{
    const struct attn_problem *p = x->p;
    const struct split_results parts = split_results_of(x, scratch);
    const int64_t rows = p->batch * p->q_heads * p->q_len;
#pragma omp parallel for schedule(static) num_threads(x->layout->threads)
    for (int64_t n = 0; n < rows; n++) {
        const int64_t b = n / p->q_len / p->q_heads, h = n / p->q_len % p->q_heads, row = n % p->q_len;
        if (row >= attn_sequence_at(p, x->t, b).q_len)
            continue;
        const int64_t at = attn_lse_index(p, x->t, b, h, row);
        merge_row(x, &parts, (size_t)at, x->t->sink ? (double)x->t->sink[h] : -INFINITY, row_of(x, x->t->o, b, h, row),
                  x->t->lse ? x->t->lse + at : NULL);
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
        for (int64_t c = 0; c < attn_v_head_dim(&one); c++)
            sum += (double)o[c] * (double)dout[c];
        delta[attn_lse_index(x->p, x->t, b, h, i)] = (float)sum;
        memset(row_of(x, x->t->dq, b, h, i), 0, (size_t)one.head_dim * sizeof(float));
    }
    int64_t first, last;
    cpu_visible_columns(&one, row0, rows, &first, &last);
    dq_semaphore[semaphore_place(x, b, h - h % x->group) + h % x->group * row_tiles_of(x, &one) + tile] =
        (int32_t)(first / x->kernels->backward_cols);
}

/* The keys of column tile `tile` of one sequence and kv head. */
static void backward_column(const struct call *x, int64_t b, int64_t h, int64_t tile, const float *delta,
                            int32_t *dq_semaphore, float *scratch)
{
    const struct attn_problem *p = x->p;
    const struct attn_tensors *t = x->t;
    const int64_t step = x->kernels->backward_cols, head = h * x->group;
    const struct attn_problem one = sequence_of(x, b);
    const int64_t col0 = tile * step, left = one.kv_len - col0;
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

/* dSink of one head, row after row, from D of all rows. */
static void sink_gradient(const struct call *x, const float *delta, int64_t h)
{
    double sum = 0;
    for (int64_t b = 0; b < x->p->batch; b++)
        for (int64_t i = 0; i < attn_sequence_at(x->p, x->t, b).q_len; i++) {
            const int64_t at = attn_lse_index(x->p, x->t, b, h, i);
            sum -= exp((double)x->t->sink[h] - (double)x->t->lse[at]) * (double)delta[at];
        }
    x->t->dsink[h] = (float)sum;
}

/* Sequences, and kv heads, whose columns are a task each. Those that add to the same dBias are one task, in which they
 * follow each other, so that its sums have one order. */
static int64_t task_batches(const struct call *x) { return x->wants_dbias && x->p->bias_batch == 1 ? 1 : x->p->batch; }

static int64_t task_heads(const struct call *x) { return x->wants_dbias && x->p->bias_heads == 1 ? 1 : x->p->kv_heads; }

static void backward_task(const struct call *x, int64_t task, int64_t cols_tiles, const float *delta,
                          int32_t *dq_semaphore, float *scratch)
{
    const int64_t unit = task / cols_tiles, batches = task_batches(x), heads = task_heads(x);
    for (int64_t b = unit / heads; b < x->p->batch; b += batches)
        for (int64_t h = unit % heads; h < x->p->kv_heads; h += heads)
            backward_column(x, b, h, task % cols_tiles, delta, dq_semaphore, scratch);
}

/* dBias is summed from zero. */
static void clear_dbias_row(const struct call *x, int64_t n)
{
    const struct attn_problem *p = x->p;
    const int64_t plane = n / p->q_len;
    const int64_t at = attn_bias_offset(p, x->t->dbias, plane / p->bias_heads, plane % p->bias_heads, n % p->q_len);
    memset((float *)x->t->dbias.data + at, 0, (size_t)p->kv_len * sizeof(float));
}

static void backward(const struct call *x, float *workspace)
{
    const struct attn_problem *p = x->p;
    float *delta = workspace;
    int32_t *dq_semaphore = (int32_t *)(void *)(workspace + x->layout->delta_floats);
    float *scratch = workspace + x->layout->delta_floats + x->layout->semaphore_words;
    const int64_t row_tiles = row_tiles_of(x, p), prepared = p->batch * p->q_heads * row_tiles;
    const int64_t cols_tiles = (p->kv_len + x->kernels->backward_cols - 1) / x->kernels->backward_cols;
    const int64_t tasks = task_batches(x) * task_heads(x) * cols_tiles;
    const int64_t bias_rows = x->wants_dbias ? p->bias_batch * p->bias_heads * p->q_len : 0;
    int64_t next = 0;
#pragma omp parallel num_threads(x->layout->threads)
    {
#pragma omp for schedule(static) nowait
        for (int64_t n = 0; n < bias_rows; n++)
            clear_dbias_row(x, n);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < prepared; i++)
            prepare_tile(x, i / row_tiles / p->q_heads, i / row_tiles % p->q_heads, i % row_tiles, delta, dq_semaphore);
#pragma omp for schedule(dynamic, 1) nowait
        for (int64_t h = 0; h < (x->wants_dsink ? p->q_heads : 0); h++)
            sink_gradient(x, delta, h);
        float *own = scratch + (size_t)omp_get_thread_num() * x->layout->scratch_floats;
        for (;;) {
            int64_t task;
#pragma omp atomic capture
            task = next++;
            if (task >= tasks)
                break;
            backward_task(x, task, cols_tiles, delta, dq_semaphore, own);
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
    const bool has_8_bits = cpu_is_widened(p);
    struct cpu_widened wide;
    struct call call = {p, tensors, kernels, &layout, p->q_heads / p->kv_heads, false, false};
    if (has_8_bits) {
        cpu_widen(request, tensors, (char *)run->workspace + tiles_bytes(&layout), &wide);
        call.p = &wide.problem;
        call.t = &wide.tensors;
    }
    call.wants_dsink = attn_wanted_outputs(request) & ATTN_DSINK;
    call.wants_dbias = attn_wanted_outputs(request) & ATTN_DBIAS;
    if (request->mode == ATTN_FWD)
        forward(&call, run->workspace);
    else
        backward(&call, run->workspace);
    if (layout.splits > 1)
        merge_splits(&call, run->workspace);
    if (has_8_bits)
        cpu_narrow(request, &wide, tensors);
    return ATTN_OK;
}

enum { FORWARD_OUTPUTS = ATTN_O | ATTN_LSE, BACKWARD_OUTPUTS = ATTN_DQ | ATTN_DK | ATTN_DV | ATTN_DSINK | ATTN_DBIAS };

const struct attn_impl attn_fused_cpu = {
    .abi = ATTN_ABI,
    .name = "fused_cpu",
    .summary = "FlashAttention-2's tiles over CPU threads, fp32; 8-bit inputs are copied to fp32 first, in its time",
    .platform = ATTN_CPU,
    .repeatable = {FORWARD_OUTPUTS, BACKWARD_OUTPUTS},
    .repeatable_deterministic = {FORWARD_OUTPUTS, BACKWARD_OUTPUTS},
    .invariant = {FORWARD_OUTPUTS, 0}, /* a tile's work is that of its sequence; splits are as asked, never chosen */
    .accepts = accepts,
    .workspace_bytes = workspace_bytes,
    .variant = variant,
    .launch = launch,
    .variants = variants,
};
