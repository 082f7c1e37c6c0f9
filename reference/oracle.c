/* The float64 oracle: attention by its definition, in four numbered passes, one block of rows after another.
 *
 * Every head is converted to double once (K, V and their transposes). Then for each block of BLOCK_ROWS rows of each
 * query head, with S, P, dP of the block over all keys it sees:
 *     1. scores     S = scale Q K^T
 *     2. softmax    P = softmax of the visible part of each row, LSE
 *     3. output     O = P V, |O| = P |V|
 *     4. gradients  dP = dO V^T, D = rowsum(dO * O), dS = P * (dP - D), dQ = scale dS K, dV += P^T dO, dK += scale dS^T Q,
 *                   and the products over absolute values, dSa = P * sqrt(rowsum((dO * O)^2))
 * The only optimisations are that loops are blocked for the caches and that vector code is allowed; every sum runs in
 * an order that depends on the problem alone, so the result has the same bits for any number of threads. Memory is
 * O(length). Threads share (batch, kv head) pairs where there are enough of them, else the rows and keys of one.
 */
#include "reference/reference.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/fill.h"

enum { BLOCK_ROWS = 128, ROW_CHUNK = 16, KEY_CHUNK = 256 };
enum { PRODUCT_COLS = 256, PRODUCT_DEPTH = 64 }; /* 128 KB of B stay in the second-level cache */

/* ---- matrix product ------------------------------------------------------------------------------------------------ */

/* C += A B, or C += |A| |B|; C is m x n, A(i, t) = a[i * a_row + t * a_col], B and C are row-major. */
struct product {
    int64_t m, n, k;
    const double *a;
    int64_t a_row, a_col;
    const double *b;
    int64_t b_row;
    double *c;
    int64_t c_row;
};

static inline __attribute__((always_inline)) double maybe_abs(double x, bool absolute)
{
    return absolute ? fabs(x) : x;
}

/* One row of C over one block of columns, `depth` steps of k, four at a time. */
static inline __attribute__((always_inline)) void row_product(double *c, int64_t n, const double *a, int64_t a_col,
                                                              const double *b, int64_t b_row, int64_t depth,
                                                              bool absolute)
{
    int64_t t = 0;
    for (; t + 4 <= depth; t += 4) {
        const double a0 = maybe_abs(a[t * a_col], absolute), a1 = maybe_abs(a[(t + 1) * a_col], absolute);
        const double a2 = maybe_abs(a[(t + 2) * a_col], absolute), a3 = maybe_abs(a[(t + 3) * a_col], absolute);
        const double *b0 = b + t * b_row, *b1 = b0 + b_row, *b2 = b1 + b_row, *b3 = b2 + b_row;
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            c[j] += (a0 * maybe_abs(b0[j], absolute) + a1 * maybe_abs(b1[j], absolute)) +
                    (a2 * maybe_abs(b2[j], absolute) + a3 * maybe_abs(b3[j], absolute));
    }
    for (; t < depth; t++) {
        const double a0 = maybe_abs(a[t * a_col], absolute);
        const double *b0 = b + t * b_row;
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            c[j] += a0 * maybe_abs(b0[j], absolute);
    }
}

static inline __attribute__((always_inline)) void multiply_body(const struct product *p, bool absolute)
{
    for (int64_t j = 0; j < p->n; j += PRODUCT_COLS) {
        const int64_t n = p->n - j < PRODUCT_COLS ? p->n - j : PRODUCT_COLS;
        for (int64_t t = 0; t < p->k; t += PRODUCT_DEPTH) {
            const int64_t depth = p->k - t < PRODUCT_DEPTH ? p->k - t : PRODUCT_DEPTH;
            for (int64_t i = 0; i < p->m; i++)
                row_product(p->c + i * p->c_row + j, n, p->a + i * p->a_row + t * p->a_col, p->a_col,
                            p->b + t * p->b_row + j, p->b_row, depth, absolute);
        }
    }
}

static void multiply_baseline(const struct product *p, bool absolute)
{
    if (absolute)
        multiply_body(p, true);
    else
        multiply_body(p, false);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void multiply_avx2(const struct product *p, bool absolute)
{
    if (absolute)
        multiply_body(p, true);
    else
        multiply_body(p, false);
}
#endif

static void multiply(const struct product *p, bool absolute)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        multiply_avx2(p, absolute);
        return;
    }
#endif
    multiply_baseline(p, absolute);
}

/* ---- one kv head and the query heads that share it ------------------------------------------------------------------- */

struct head {
    const struct attn_problem *p;
    const struct attn_tensors *t;
    const struct reference_outputs *out;
    enum attn_mode mode;
    int threads;                         /* inside this head */
    double *k, *v;                       /* [kv_len][d] */
    double *kt, *vt;                     /* [d][kv_len] */
    double *dk, *dv, *dk_abs, *dv_abs;   /* [kv_len][d], backward only */
    double *q, *dout, *o, *dq;           /* [BLOCK_ROWS][d] */
    double *s, *dp, *dp_abs;             /* [BLOCK_ROWS][kv_len]: S then P, dP then dS, dSa */
};

/* Which rows a block is, and the keys [lo, hi] that any of them sees; none when lo > hi. */
struct block {
    int64_t b, q_head, row0, rows, lo, hi;
};

/* In double, because the lengths alone may be too large for any integer. */
static double head_doubles(const struct attn_problem *p, enum attn_mode mode)
{
    const double n = (double)p->kv_len, d = (double)p->head_dim;
    return mode == ATTN_FWD ? 4 * n * d + BLOCK_ROWS * (2 * d + n) : 8 * n * d + BLOCK_ROWS * (4 * d + 3 * n);
}

static struct head head_state(double *memory, const struct attn_problem *p, enum attn_mode mode)
{
    const size_t n = (size_t)p->kv_len, d = (size_t)p->head_dim;
    struct head h = {.p = p, .mode = mode, .threads = 1};
    h.k = memory;
    h.v = h.k + n * d;
    h.kt = h.v + n * d;
    h.vt = h.kt + n * d;
    h.q = h.vt + n * d;
    h.o = h.q + BLOCK_ROWS * d;
    h.s = h.o + BLOCK_ROWS * d;
    if (mode == ATTN_FWD)
        return h;
    h.dout = h.s + BLOCK_ROWS * n;
    h.dq = h.dout + BLOCK_ROWS * d;
    h.dp = h.dq + BLOCK_ROWS * d;
    h.dp_abs = h.dp + BLOCK_ROWS * n;
    h.dk = h.dp_abs + BLOCK_ROWS * n;
    h.dv = h.dk + n * d;
    h.dk_abs = h.dv + n * d;
    h.dv_abs = h.dk_abs + n * d;
    return h;
}

static void load_rows(const struct attn_problem *p, struct attn_tensor x, int64_t b, int64_t h, int64_t row0,
                      int64_t rows, double *to, double *transposed)
{
    for (int64_t i = 0; i < rows; i++) {
        const int64_t from = b * x.stride_batch + h * x.stride_head + (row0 + i) * x.stride_row;
        for (int64_t c = 0; c < p->head_dim; c++) {
            const double value = (double)fill_load(x.data, p->dtype, from + c);
            to[i * p->head_dim + c] = value;
            if (transposed)
                transposed[c * rows + i] = value;
        }
    }
}

/* Stores rows of doubles as fp32 where `to` is wanted; head is that of the tensor, batch included. */
static void store_rows(const double *from, double factor, float *to, int64_t head, int64_t len, int64_t row0,
                       int64_t rows, int64_t d)
{
    if (!to)
        return;
    float *at = to + (head * len + row0) * d;
    for (int64_t i = 0; i < rows * d; i++)
        at[i] = (float)(factor * from[i]);
}

/* [rows][keys] (+)= A [rows][d] times X^T, for the keys the block sees; threads take chunks of keys. */
static void times_transposed(const struct head *h, const struct block *at, const double *a, const double *xt, double *c,
                             bool absolute)
{
    const int64_t n = h->p->kv_len, d = h->p->head_dim;
#pragma omp parallel for schedule(dynamic) num_threads(h->threads)
    for (int64_t key = at->lo; key <= at->hi; key += KEY_CHUNK) {
        const int64_t keys = at->hi + 1 - key < KEY_CHUNK ? at->hi + 1 - key : KEY_CHUNK;
        for (int64_t i = 0; i < at->rows; i++)
            memset(c + i * n + key, 0, (size_t)keys * sizeof *c);
        multiply(&(struct product){.m = at->rows, .n = keys, .k = d, .a = a, .a_row = d, .a_col = 1, .b = xt + key,
                                   .b_row = n, .c = c + key, .c_row = n},
                 absolute);
    }
}

/* [rows][d] = A [rows][keys] times X; threads take chunks of rows. */
static void times_rows(const struct head *h, const struct block *at, const double *a, const double *x, double *c,
                       bool absolute)
{
    const int64_t n = h->p->kv_len, d = h->p->head_dim;
    memset(c, 0, (size_t)(at->rows * d) * sizeof *c);
    if (at->lo > at->hi)
        return;
#pragma omp parallel for schedule(dynamic) num_threads(h->threads)
    for (int64_t row = 0; row < at->rows; row += ROW_CHUNK)
        multiply(&(struct product){.m = at->rows - row < ROW_CHUNK ? at->rows - row : ROW_CHUNK, .n = d,
                                   .k = at->hi + 1 - at->lo, .a = a + row * n + at->lo, .a_row = n, .a_col = 1,
                                   .b = x + at->lo * d, .b_row = d, .c = c + row * d, .c_row = d},
                 absolute);
}

/* [keys][d] += A^T times X [rows][d]; threads take chunks of keys. */
static void add_to_keys(const struct head *h, const struct block *at, const double *a, const double *x, double *c,
                        bool absolute)
{
    const int64_t n = h->p->kv_len, d = h->p->head_dim;
#pragma omp parallel for schedule(dynamic) num_threads(h->threads)
    for (int64_t key = at->lo; key <= at->hi; key += KEY_CHUNK) {
        const int64_t keys = at->hi + 1 - key < KEY_CHUNK ? at->hi + 1 - key : KEY_CHUNK;
        multiply(&(struct product){.m = keys, .n = d, .k = at->rows, .a = a + key, .a_row = 1, .a_col = n, .b = x,
                                   .b_row = d, .c = c + key * d, .c_row = d},
                 absolute);
    }
}

/* Pass 2. Keys of [lo, hi] that a row does not see get P = 0. */
static void softmax_rows(const struct head *h, const struct block *at, float *lse)
{
    const struct attn_problem *p = h->p;
#pragma omp parallel for schedule(dynamic) num_threads(h->threads)
    for (int64_t i = 0; i < at->rows; i++) {
        double *s = h->s + i * p->kv_len;
        int64_t first, last;
        attn_visible(p, at->row0 + i, &first, &last);
        double max = -INFINITY, sum = 0;
        for (int64_t j = first; j <= last; j++)
            if (!((double)p->scale * s[j] <= max)) /* a NaN becomes the maximum, so that the row shows it */
                max = (double)p->scale * s[j];
        for (int64_t j = at->lo; j <= at->hi; j++) {
            s[j] = j >= first && j <= last ? exp((double)p->scale * s[j] - max) : 0;
            sum += s[j];
        }
        for (int64_t j = first; j <= last; j++)
            s[j] /= sum;
        lse[i] = (float)(first <= last ? max + log(sum) : -INFINITY);
    }
}

/* dS from dP in place, and dSa. */
static void score_gradients(const struct head *h, const struct block *at)
{
    const int64_t n = h->p->kv_len, d = h->p->head_dim;
#pragma omp parallel for schedule(dynamic) num_threads(h->threads)
    for (int64_t i = 0; i < at->rows; i++) {
        double dot = 0, squares = 0;
        for (int64_t c = 0; c < d; c++) {
            const double x = h->dout[i * d + c] * h->o[i * d + c];
            dot += x;
            squares += x * x;
        }
        const double spread = sqrt(squares);
        for (int64_t j = at->lo; j <= at->hi; j++) {
            h->dp[i * n + j] = h->s[i * n + j] * (h->dp[i * n + j] - dot);
            h->dp_abs[i * n + j] = h->s[i * n + j] * spread;
        }
    }
}

/* Pass 4. */
static void gradients(const struct head *h, const struct block *at, int64_t head)
{
    const struct attn_problem *p = h->p;
    const double scale = (double)p->scale;
    load_rows(p, h->t->dout, at->b, at->q_head, at->row0, at->rows, h->dout, NULL);
    times_transposed(h, at, h->dout, h->vt, h->dp, false);
    score_gradients(h, at);

    times_rows(h, at, h->dp, h->k, h->dq, false);
    store_rows(h->dq, scale, h->out->dq, head, p->q_len, at->row0, at->rows, p->head_dim);
    add_to_keys(h, at, h->s, h->dout, h->dv, false);
    add_to_keys(h, at, h->dp, h->q, h->dk, false);
    if (h->out->dq_abs) {
        times_rows(h, at, h->dp_abs, h->k, h->dq, true);
        store_rows(h->dq, fabs(scale), h->out->dq_abs, head, p->q_len, at->row0, at->rows, p->head_dim);
    }
    if (h->out->dv_abs)
        add_to_keys(h, at, h->s, h->dout, h->dv_abs, true);
    if (h->out->dk_abs)
        add_to_keys(h, at, h->dp_abs, h->q, h->dk_abs, true);
}

static void attend_block(const struct head *h, const struct block *at)
{
    const struct attn_problem *p = h->p;
    const int64_t head = at->b * p->q_heads + at->q_head;
    load_rows(p, h->t->q, at->b, at->q_head, at->row0, at->rows, h->q, NULL);
    times_transposed(h, at, h->q, h->kt, h->s, false);                                                    /* 1 */
    softmax_rows(h, at, h->out->lse + head * p->q_len + at->row0);                                         /* 2 */
    if (h->out->o_abs) {                                                                                   /* 3 */
        times_rows(h, at, h->s, h->v, h->o, true);
        store_rows(h->o, 1, h->out->o_abs, head, p->q_len, at->row0, at->rows, p->head_dim);
    }
    times_rows(h, at, h->s, h->v, h->o, false);
    store_rows(h->o, 1, h->out->o, head, p->q_len, at->row0, at->rows, p->head_dim);
    if (h->mode == ATTN_BWD)
        gradients(h, at, head);                                                                            /* 4 */
}

static void attend_head(const struct head *h, int64_t b, int64_t kv_head)
{
    const struct attn_problem *p = h->p;
    const int64_t n = p->kv_len, d = p->head_dim, group = p->q_heads / p->kv_heads;
    load_rows(p, h->t->k, b, kv_head, 0, n, h->k, h->kt);
    load_rows(p, h->t->v, b, kv_head, 0, n, h->v, h->vt);
    if (h->mode == ATTN_BWD)
        memset(h->dk, 0, (size_t)(4 * n * d) * sizeof *h->dk);
    for (int64_t g = 0; g < group; g++)
        for (int64_t row0 = 0; row0 < p->q_len; row0 += BLOCK_ROWS) {
            struct block at = {.b = b, .q_head = kv_head * group + g, .row0 = row0};
            at.rows = p->q_len - row0 < BLOCK_ROWS ? p->q_len - row0 : BLOCK_ROWS;
            int64_t ignored;
            attn_visible(p, row0, &at.lo, &ignored);
            attn_visible(p, row0 + at.rows - 1, &ignored, &at.hi);
            attend_block(h, &at);
        }
    if (h->mode == ATTN_FWD)
        return;
    const int64_t head = b * p->kv_heads + kv_head;
    store_rows(h->dk, (double)p->scale, h->out->dk, head, n, 0, n, d);
    store_rows(h->dv, 1, h->out->dv, head, n, 0, n, d);
    store_rows(h->dk_abs, fabs((double)p->scale), h->out->dk_abs, head, n, 0, n, d);
    store_rows(h->dv_abs, 1, h->out->dv_abs, head, n, 0, n, d);
}

enum attn_status oracle_attention(const struct attn_problem *p, enum attn_mode mode, const struct attn_tensors *t,
                                  const struct reference_outputs *out, int threads, struct attn_message *why)
{
    const int64_t heads = p->batch * p->kv_heads;
    const int wanted = threads > 1 ? threads : 1;
    const int workers = heads >= wanted ? wanted : 1; /* heads at a time; else the threads work inside a head */
    const double bytes = workers * head_doubles(p, mode) * sizeof(double);
    double *memory = bytes < (double)(PTRDIFF_MAX / 2) ? malloc((size_t)bytes) : NULL;
    if (!memory) {
        snprintf(why->text, sizeof why->text, "the float64 oracle needs %.1f GB of host memory", bytes / 1e9);
        return ATTN_NO_MEMORY;
    }
    const size_t doubles = (size_t)head_doubles(p, mode);
#pragma omp parallel for schedule(dynamic) num_threads(workers) if (workers > 1)
    for (int64_t i = 0; i < heads; i++) {
        struct head h = head_state(memory + (size_t)omp_get_thread_num() * doubles, p, mode);
        h.t = t;
        h.out = out;
        h.threads = workers > 1 ? 1 : wanted;
        attend_head(&h, i / p->kv_heads, i % p->kv_heads);
    }
    free(memory);
    return ATTN_OK;
}
