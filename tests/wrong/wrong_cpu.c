/* CPU implementations that are wrong on purpose, loaded with --impl-lib, and one that is right.
 *
 * All of them are one plain tiled fp32 attention (64 x 64 tiles, online softmax, recomputation in backward) with one
 * hook for each fault, so that a wrong one differs from the right one by its fault alone. The judge must reject every
 * wrong one and pass `right_cpu`, at 1K and at 16K. wrong_cuda.cu has the same names and faults for CUDA,
 * but for wrong_lse, whose fault is within the bound of 16-bit inputs.
 *
 * Forward, per block of 64 rows:  S = Q K^T, P = exp(S - m), O += P V.
 * Backward, first pass per block of 64 rows:  dQ += dS K; second pass per block of 64 keys:  dV += P^T dO,
 * dK += dS^T Q. Every tile product is the one loop of tile_multiply.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/attention.h"

enum { TILE = 64, MAX_HEAD_DIM = 128 };

enum fault {
    RIGHT,
    INVERTED_MASK,   /* a causal row sees the keys that it must not see */
    DIAGONAL,        /* a causal row sees one key too many */
    SCALE,           /* scale times 1.01 */
    LAST_TILE,       /* the last 128 keys are skipped; their dK and dV stay unwritten */
    LAST_ROWS,       /* the last 64 rows of O, LSE and dQ stay unwritten */
    STALE,           /* only the first launch after prepare writes */
    LAZY,            /* only the first two do: the checked one and one of the timed ones */
    NAN_ROW,         /* the middle row of the last head of O or dQ is NaN */
    HEADS,           /* heads 0 and 1 change places in every output */
    PAST_END,        /* writes one element behind O or dV */
    DK,              /* dK times 1.01 */
    LSE,             /* every LSE is 3e-4 too large: too much where the inputs are fp32, not where they have 16 bits */
    NONDETERMINISTIC /* O and dQ change in the last bits from launch to launch, although promised as deterministic */
};

/* Arguments shared by all functions of a launch. */
struct work {
    const struct attn_problem *p;
    const struct attn_tensors *t;
    enum fault fault;
    float scale;
    int64_t keys;  /* number of keys that are read */
    unsigned call; /* number of this launch since prepare */
    float *delta;  /* [batch, q_heads, q_len] */
};

/* A block of up to 64 rows of a tensor as contiguous floats, filled up with zeros to TILE x padded head_dim. */
struct block {
    float data[TILE * MAX_HEAD_DIM];
};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t padded(int64_t head_dim) { return (head_dim + TILE - 1) / TILE * TILE; }

/* Cloned by instruction set: arch=NAME is that one model of CPU and none after it.
 * c[m][0..63] = (c or 0) + sum over k < k_count of a[m * a_row + k * a_k] * b[k * b_row + 0..63], m < 64. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
__attribute__((target_clones("fma", "default")))
#endif
static void
tile_multiply(float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_k, const float *b, int64_t b_row,
              int64_t k_count, bool accumulate)
{
    for (int64_t m = 0; m < TILE; m++) {
        float sum[TILE];
        for (int n = 0; n < TILE; n++)
            sum[n] = accumulate ? c[m * c_row + n] : 0;
        for (int64_t k = 0; k < k_count; k++) {
            const float factor = a[m * a_row + k * a_k];
            for (int n = 0; n < TILE; n++)
                sum[n] += factor * b[k * b_row + n];
        }
        for (int n = 0; n < TILE; n++)
            c[m * c_row + n] = sum[n];
    }
}

static float *row_of(const struct attn_tensor *t, int64_t b, int64_t h, int64_t i)
{
    return (float *)t->data + b * t->stride_batch + h * t->stride_head + i * t->stride_row;
}

static void load_block(struct block *to, const struct attn_tensor *from, int64_t b, int64_t h, int64_t row,
                       int64_t rows, int64_t head_dim)
{
    const int64_t d = padded(head_dim);
    memset(to->data, 0, sizeof(float) * (size_t)(TILE * d));
    for (int64_t i = 0; i < rows; i++)
        memcpy(&to->data[i * d], row_of(from, b, h, row + i), sizeof(float) * (size_t)head_dim);
}

static void transpose_block(struct block *to, const struct block *from, int64_t d)
{
    for (int64_t i = 0; i < TILE; i++)
        for (int64_t c = 0; c < d; c++)
            to->data[c * TILE + i] = from->data[i * d + c];
}

/* What row i sees under this fault: a range of keys, empty when first > last. */
static void visible(const struct work *w, int64_t i, int64_t *first, int64_t *last)
{
    attn_visible(w->p, i, first, last);
    if (w->p->causal && w->fault == INVERTED_MASK) {
        *first = *last + 1;
        *last = w->p->kv_len - 1;
    }
    if (w->p->causal && w->fault == DIAGONAL)
        *last = smaller(*last + 1, w->p->kv_len - 1);
    if (*first < 0)
        *first = 0;
    *last = smaller(*last, w->keys - 1);
}

/* Does any of the rows [row, row + rows) see any of the keys [key, key + keys)? The ranges only move right. */
static bool any_visible(const struct work *w, int64_t row, int64_t rows, int64_t key, int64_t keys)
{
    int64_t first, last, unused;
    visible(w, row, &first, &unused);
    visible(w, row + rows - 1, &unused, &last);
    return first < key + keys && last >= key;
}

/* The head whose place in an output gets the results of head h. */
static int64_t output_head(const struct work *w, int64_t h, int64_t heads)
{
    return w->fault == HEADS && heads > 1 && h < 2 ? 1 - h : h;
}

static bool skips_row(const struct work *w, int64_t i) { return w->fault == LAST_ROWS && i >= w->p->q_len - TILE; }

/* The value that is stored for an element of O or dQ. */
static float faulty(const struct work *w, int64_t h, int64_t i, float value)
{
    if (w->fault == NAN_ROW && h == w->p->q_heads - 1 && i == w->p->q_len / 2)
        return NAN;
    if (w->fault == NONDETERMINISTIC && w->call % 2)
        return nextafterf(value, INFINITY);
    return value;
}

/* One step of the online softmax: s becomes P of this tile, the rows of `out` are rescaled. */
static void softmax_step(const struct work *w, float *s, float *out, int64_t d, float *max, float *sum, int64_t row,
                         int64_t rows, int64_t key)
{
    for (int64_t i = 0; i < rows; i++) {
        int64_t first, last;
        visible(w, row + i, &first, &last);
        float *si = &s[i * TILE], new_max = max[i];
        for (int64_t j = 0; j < TILE; j++) {
            si[j] = key + j >= first && key + j <= last ? si[j] * w->scale : -INFINITY;
            new_max = fmaxf(new_max, si[j]);
        }
        if (new_max == -INFINITY) {
            memset(si, 0, sizeof(float) * TILE);
            continue;
        }
        const float correction = expf(max[i] - new_max);
        float row_sum = sum[i] * correction;
        for (int64_t j = 0; j < TILE; j++) {
            si[j] = si[j] == -INFINITY ? 0 : expf(si[j] - new_max);
            row_sum += si[j];
        }
        for (int64_t c = 0; c < d; c++)
            out[i * d + c] *= correction;
        max[i] = new_max;
        sum[i] = row_sum;
    }
    for (int64_t i = rows; i < TILE; i++)
        memset(&s[i * TILE], 0, sizeof(float) * TILE);
}

static void forward_rows(const struct work *w, int64_t b, int64_t h, int64_t row)
{
    const struct attn_problem *p = w->p;
    const int64_t d = padded(p->head_dim), rows = smaller(TILE, p->q_len - row);
    const int64_t kv = h / (p->q_heads / p->kv_heads), to_head = output_head(w, h, p->q_heads);
    struct block q, k, v, out;
    float s[TILE * TILE], max[TILE], sum[TILE];
    memset(out.data, 0, sizeof out.data);
    for (int i = 0; i < TILE; i++) {
        max[i] = -INFINITY;
        sum[i] = 0;
    }
    load_block(&q, &w->t->q, b, h, row, rows, p->head_dim);
    for (int64_t key = 0; key < w->keys; key += TILE) {
        const int64_t keys = smaller(TILE, w->keys - key);
        if (!any_visible(w, row, rows, key, keys))
            continue;
        load_block(&v, &w->t->k, b, kv, key, keys, p->head_dim);
        transpose_block(&k, &v, d);
        load_block(&v, &w->t->v, b, kv, key, keys, p->head_dim);
        tile_multiply(s, TILE, q.data, d, 1, k.data, TILE, d, false);
        softmax_step(w, s, out.data, d, max, sum, row, rows, key);
        for (int64_t c = 0; c < d; c += TILE)
            tile_multiply(&out.data[c], d, s, TILE, 1, &v.data[c], d, TILE, true);
    }
    for (int64_t i = 0; i < rows && !skips_row(w, row + i); i++) {
        const float factor = sum[i] > 0 ? 1 / sum[i] : 0;
        float *o = row_of(&w->t->o, b, to_head, row + i);
        for (int64_t c = 0; c < p->head_dim; c++)
            o[c] = faulty(w, h, row + i, out.data[i * d + c] * factor);
        const float shift = w->fault == LSE ? 3e-4f : 0;
        w->t->lse[(b * p->q_heads + to_head) * p->q_len + row + i] =
            sum[i] > 0 ? max[i] + logf(sum[i]) + shift : -INFINITY;
    }
}

/* D_i = sum over c of dO_ic O_ic. */
static void delta_rows(const struct work *w, int64_t b, int64_t h, int64_t row)
{
    const struct attn_problem *p = w->p;
    for (int64_t i = row; i < smaller(row + TILE, p->q_len); i++) {
        const float *dout = row_of(&w->t->dout, b, h, i), *o = row_of(&w->t->o, b, h, i);
        float sum = 0;
        for (int64_t c = 0; c < p->head_dim; c++)
            sum += dout[c] * o[c];
        w->delta[(b * p->q_heads + h) * p->q_len + i] = sum;
    }
}

/* s = S and dp = dP of one tile become P and scale * dS. */
static void gradient_step(const struct work *w, float *s, float *dp, int64_t b, int64_t h, int64_t row, int64_t rows,
                          int64_t key)
{
    for (int64_t i = 0; i < TILE; i++) {
        int64_t first = 1, last = 0;
        float lse = 0, delta = 0;
        if (i < rows) {
            const int64_t at = (b * w->p->q_heads + h) * w->p->q_len + row + i;
            visible(w, row + i, &first, &last);
            lse = w->t->lse[at];
            delta = w->delta[at];
        }
        for (int64_t j = 0; j < TILE; j++) {
            const bool seen = key + j >= first && key + j <= last && lse != -INFINITY;
            const float probability = seen ? expf(s[i * TILE + j] * w->scale - lse) : 0;
            s[i * TILE + j] = probability;
            dp[i * TILE + j] = probability * (dp[i * TILE + j] - delta) * w->scale;
        }
    }
}

static void dq_rows(const struct work *w, int64_t b, int64_t h, int64_t row)
{
    const struct attn_problem *p = w->p;
    const int64_t d = padded(p->head_dim), rows = smaller(TILE, p->q_len - row);
    const int64_t kv = h / (p->q_heads / p->kv_heads), to_head = output_head(w, h, p->q_heads);
    struct block q, dout, k, transposed, dq;
    float s[TILE * TILE], dp[TILE * TILE];
    memset(dq.data, 0, sizeof dq.data);
    load_block(&q, &w->t->q, b, h, row, rows, p->head_dim);
    load_block(&dout, &w->t->dout, b, h, row, rows, p->head_dim);
    for (int64_t key = 0; key < w->keys; key += TILE) {
        const int64_t keys = smaller(TILE, w->keys - key);
        if (!any_visible(w, row, rows, key, keys))
            continue;
        load_block(&k, &w->t->v, b, kv, key, keys, p->head_dim);
        transpose_block(&transposed, &k, d);
        tile_multiply(dp, TILE, dout.data, d, 1, transposed.data, TILE, d, false);
        load_block(&k, &w->t->k, b, kv, key, keys, p->head_dim);
        transpose_block(&transposed, &k, d);
        tile_multiply(s, TILE, q.data, d, 1, transposed.data, TILE, d, false);
        gradient_step(w, s, dp, b, h, row, rows, key);
        for (int64_t c = 0; c < d; c += TILE)
            tile_multiply(&dq.data[c], d, dp, TILE, 1, &k.data[c], d, TILE, true);
    }
    for (int64_t i = 0; i < rows && !skips_row(w, row + i); i++)
        for (int64_t c = 0; c < p->head_dim; c++)
            row_of(&w->t->dq, b, to_head, row + i)[c] = faulty(w, h, row + i, dq.data[i * d + c]);
}

static void dkdv_keys(const struct work *w, int64_t b, int64_t kv, int64_t key)
{
    const struct attn_problem *p = w->p;
    const int64_t d = padded(p->head_dim), keys = smaller(TILE, w->keys - key), group = p->q_heads / p->kv_heads;
    const float dk_factor = w->fault == DK ? 1.01f : 1.0f;
    struct block k, v, q, dout, dk, dv;
    float s[TILE * TILE], dp[TILE * TILE];
    memset(dk.data, 0, sizeof dk.data);
    memset(dv.data, 0, sizeof dv.data);
    load_block(&q, &w->t->k, b, kv, key, keys, p->head_dim);
    transpose_block(&k, &q, d);
    load_block(&q, &w->t->v, b, kv, key, keys, p->head_dim);
    transpose_block(&v, &q, d);
    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
        for (int64_t row = 0; row < p->q_len; row += TILE) {
            const int64_t rows = smaller(TILE, p->q_len - row);
            if (!any_visible(w, row, rows, key, keys))
                continue;
            load_block(&q, &w->t->q, b, h, row, rows, p->head_dim);
            load_block(&dout, &w->t->dout, b, h, row, rows, p->head_dim);
            tile_multiply(s, TILE, q.data, d, 1, k.data, TILE, d, false);
            tile_multiply(dp, TILE, dout.data, d, 1, v.data, TILE, d, false);
            gradient_step(w, s, dp, b, h, row, rows, key);
            for (int64_t c = 0; c < d; c += TILE) {
                tile_multiply(&dv.data[c], d, s, 1, TILE, &dout.data[c], d, TILE, true);
                tile_multiply(&dk.data[c], d, dp, 1, TILE, &q.data[c], d, TILE, true);
            }
        }
    const int64_t to_head = output_head(w, kv, p->kv_heads);
    for (int64_t j = 0; j < keys; j++)
        for (int64_t c = 0; c < p->head_dim; c++) {
            row_of(&w->t->dk, b, to_head, key + j)[c] = dk.data[j * d + c] * dk_factor;
            row_of(&w->t->dv, b, to_head, key + j)[c] = dv.data[j * d + c];
        }
}

/* Calls `step` for every (batch, head, block of 64 rows). */
static void for_each_block(const struct work *w, int64_t heads, int64_t len, int threads,
                           void (*step)(const struct work *, int64_t b, int64_t h, int64_t row))
{
    const int64_t per_head = (len + TILE - 1) / TILE, count = w->p->batch * heads * per_head;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t n = 0; n < count; n++)
        step(w, n / per_head / heads, n / per_head % heads, n % per_head * TILE);
}

/* prepare makes the counter of launches that stale and nondeterministic need. */
static enum attn_status prepare(const struct attn_request *request, const struct attn_tensors *tensors, void **plan,
                                struct attn_message *why)
{
    (void)request, (void)tensors, (void)why;
    *plan = calloc(1, sizeof(unsigned));
    return *plan ? ATTN_OK : ATTN_NO_MEMORY;
}

static enum attn_status launch(enum fault fault, const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run)
{
    const struct attn_problem *p = request->problem;
    struct work w = {.p = p, .t = tensors, .fault = fault, .scale = p->scale, .keys = p->kv_len};
    const int threads = request->device->threads > 0 ? request->device->threads : 1;
    w.call = (*(unsigned *)run->plan)++;
    w.delta = run->workspace;
    if ((fault == STALE && w.call > 0) || (fault == LAZY && w.call > 1))
        return ATTN_OK;
    if (fault == SCALE)
        w.scale *= 1.01f;
    if (fault == LAST_TILE)
        w.keys = p->kv_len > 128 ? p->kv_len - 128 : 0;
    const struct attn_tensor *last_output = request->mode == ATTN_FWD ? &tensors->o : &tensors->dv;
    const int64_t last_len = request->mode == ATTN_FWD ? p->q_len : p->kv_len;
    const int64_t last_heads = request->mode == ATTN_FWD ? p->q_heads : p->kv_heads;
    if (request->mode == ATTN_FWD) {
        for_each_block(&w, p->q_heads, p->q_len, threads, forward_rows);
    } else {
        for_each_block(&w, p->q_heads, p->q_len, threads, delta_rows);
        for_each_block(&w, p->q_heads, p->q_len, threads, dq_rows);
        for_each_block(&w, p->kv_heads, w.keys, threads, dkdv_keys);
    }
    if (fault == PAST_END)
        row_of(last_output, p->batch - 1, last_heads - 1, last_len - 1)[p->head_dim] = 1.0f;
    return ATTN_OK;
}

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const char *reason = NULL;
    if (p->dtype != ATTN_FP32)
        reason = "takes fp32 only";
    else if (p->head_dim > MAX_HEAD_DIM)
        reason = "takes head dims up to 128";
    else if (p->dropout != 0 || p->window_left >= 0 || p->window_right >= 0)
        reason = "takes no windows and no dropout";
    if (!reason)
        return ATTN_OK;
    strcpy(why->text, reason);
    return ATTN_UNSUPPORTED;
}

static size_t workspace_bytes(const struct attn_request *request)
{
    const struct attn_problem *p = request->problem;
    return request->mode == ATTN_FWD ? 0 : sizeof(float) * (size_t)(p->batch * p->q_heads * p->q_len);
}

#define LAUNCH(function, fault)                                                                                        \
    static enum attn_status function(const struct attn_request *request, const struct attn_tensors *tensors,           \
                                     const struct attn_run *run, struct attn_message *why)                             \
    {                                                                                                                  \
        (void)why;                                                                                                     \
        return launch(fault, request, tensors, run);                                                                   \
    }

LAUNCH(launch_right, RIGHT)
LAUNCH(launch_inverted_mask, INVERTED_MASK)
LAUNCH(launch_diagonal, DIAGONAL)
LAUNCH(launch_scale, SCALE)
LAUNCH(launch_last_tile, LAST_TILE)
LAUNCH(launch_last_rows, LAST_ROWS)
LAUNCH(launch_stale, STALE)
LAUNCH(launch_lazy, LAZY)
LAUNCH(launch_nan_row, NAN_ROW)
LAUNCH(launch_heads, HEADS)
LAUNCH(launch_past_end, PAST_END)
LAUNCH(launch_dk, DK)
LAUNCH(launch_lse, LSE)
LAUNCH(launch_nondeterministic, NONDETERMINISTIC)

#define ALL_FWD (ATTN_O | ATTN_LSE)
#define ALL_BWD (ATTN_DQ | ATTN_DK | ATTN_DV)
#define ROW(row_name, row_summary, row_launch)                                                                         \
    {                                                                                                                  \
        .abi = ATTN_ABI, .name = row_name, .summary = row_summary, .platform = ATTN_CPU,                               \
        .repeatable = {ALL_FWD, ALL_BWD}, .repeatable_deterministic = {ALL_FWD, ALL_BWD}, .accepts = accepts,          \
        .workspace_bytes = workspace_bytes, .prepare = prepare, .launch = row_launch, .release = free                  \
    }

/* Refuses problems that the others accept, so that tests see which requests arrive. */
static enum attn_status accepts_any_order(const struct attn_request *request, struct attn_message *why)
{
    if (!request->deterministic)
        return accepts(request, why);
    strcpy(why->text, "keeps no order");
    return ATTN_UNSUPPORTED;
}

static const struct attn_impl table[] = {
    ROW("right_cpu", "right: plain tiled fp32 attention", launch_right),
    {.abi = ATTN_ABI,
     .name = "unordered_cpu",
     .summary = "right, but for --deterministic",
     .platform = ATTN_CPU,
     .accepts = accepts_any_order,
     .workspace_bytes = workspace_bytes,
     .prepare = prepare,
     .launch = launch_right,
     .release = free},
    ROW("wrong_inverted_mask", "wrong: causal mask inverted", launch_inverted_mask),
    ROW("wrong_diagonal", "wrong: causal diagonal off by one", launch_diagonal),
    ROW("wrong_scale", "wrong: scale off by 1 %", launch_scale),
    ROW("wrong_last_tile", "wrong: last 128 keys skipped", launch_last_tile),
    ROW("wrong_last_rows", "wrong: last 64 rows not written", launch_last_rows),
    ROW("wrong_stale", "wrong: only the first launch writes", launch_stale),
    ROW("wrong_lazy", "wrong: only the first two launches write", launch_lazy),
    ROW("wrong_nan_row", "wrong: one row is NaN", launch_nan_row),
    ROW("wrong_heads", "wrong: heads 0 and 1 swapped", launch_heads),
    ROW("wrong_past_end", "wrong: writes one element past the end", launch_past_end),
    ROW("wrong_dk", "wrong: dK off by 1 %", launch_dk),
    ROW("wrong_lse", "wrong: LSE off by 3e-4", launch_lse),
    ROW("wrong_nondeterministic", "wrong: promises repeatable bits and breaks it", launch_nondeterministic),
    {.name = NULL},
};

const struct attn_impl *fabench_impls(int abi) { return abi == ATTN_ABI ? table : NULL; }
