/* The float64 oracle: attention by its definition, in four numbered passes.
 *
 * Of each kv head, K, V and their transposes are converted to double once. Each block of rows of a query head is then
 * computed independently:
 *     1. scores     Q K^T, over the keys that the block sees
 *     2. softmax    S = scale Q K^T, or with a softcap c S = c tanh(scale Q K^T / c), and what a bias adds; P =
 *                   softmax of the visible part of each row, LSE
 *     3. output     O = (P * M) V, |O| = (P * M) |V|, where M is 1 without dropout
 *     4. gradients  dP = M * (dO V^T), D = rowsum(dO * O), dS = P * (dP - D), times 1 - (S / c)^2 with a softcap,
 *                   dQ = scale dS K
 *                   and the products over absolute values of dSa, see reference/reference.h
 * When LSE and D of all rows are known, each block of keys is independent too: for the rows that see it, it computes S,
 * P = exp(S - LSE), dP and dS again, and sums dV += (P * M)^T dO, dK += scale dS^T Q and their absolute values. That is
 * a fifth more work than summing dK and dV in pass 4, but threads need not wait for each other.
 *
 * A sink is one more term of the sum of pass 2; dSink follows when D of all rows is known.
 *
 * Loops are blocked for the caches and vector code is allowed; nothing else is optimised. Every sum has an order that
 * depends on the problem alone, so the result has the same bits for any number of threads. Memory is O(length). Threads
 * share (batch, kv head) pairs where there are enough of them, else the blocks of one. Every sequence of a batch is a
 * problem of its own, with its own lengths; 8-bit inputs are multiplied by their scales where they are loaded.
 */
#include "reference/reference.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/harness/fill.h"
#include "reference/oracle_product.h"

enum { BLOCK_ROWS = 32, BLOCK_KEYS = 64 };

/* ---- one kv head and the query heads that share it --------------------------------------------------------------- */

struct head {
    const struct attn_problem *whole;
    const struct attn_problem *p; /* the whole problem with the lengths of this sequence */
    const struct attn_tensors *t;
    const struct reference_outputs *out;
    enum attn_mode mode;
    int threads; /* inside this head */
    int64_t b, kv_head, group;
    int64_t d, dv;         /* columns of Q and K, of V and O */
    double *k, *v;         /* [kv_len][d], [kv_len][dv] */
    double *kt, *vt;       /* [d][kv_len], [dv][kv_len] */
    double *lse, *dot;     /* [group][q_len]; D */
    double *spread, *size; /* [group][q_len]; sqrt(rowsum((dO * O)^2)) and sqrt(rowsum(dS^2)) */
    double *scratch;       /* scratch_doubles for each thread */
    double *biases;        /* of dBias' element 0: two each, dBias and the square of |dBias|; NULL = none */
    double *sinks;         /* of (sequence, query head) 0: two each, dSink and the square of |dSink|; NULL = none */
};

/* Scratch memory of one thread. */
struct scratch {
    double *q, *dout; /* [BLOCK_ROWS][d], [BLOCK_ROWS][dv] */
    double *o;        /* [BLOCK_ROWS][the larger of d and dv]; also where dQ is summed */
    double *s, *dp;   /* [BLOCK_ROWS][kv_len]: S then P then dSa, dP then dS */
    double *kept;     /* [BLOCK_ROWS][kv_len]: P * M; s without dropout */
    double *slope;    /* [BLOCK_ROWS][kv_len]: dS / d(scale Q K^T) with a softcap, else NULL */
    double *sums[5];  /* dK, dV, |dK|, |dV| and the squares of dK's terms: [BLOCK_KEYS][the larger of d and dv] */
};

static int64_t widest_of(const struct attn_problem *p)
{
    return attn_v_head_dim(p) > p->head_dim ? attn_v_head_dim(p) : p->head_dim;
}

/* In double, because the products of lengths may overflow every integer type. */
static double scratch_doubles(const struct attn_problem *p)
{
    const double n = (double)p->kv_len, d = (double)widest_of(p);
    return BLOCK_ROWS * (3 * d + (2 + (p->dropout != 0) + (p->softcap != 0)) * n) + 5 * BLOCK_KEYS * d;
}

static double head_doubles(const struct attn_problem *p, int threads)
{
    const double rows = (double)(p->q_heads / p->kv_heads) * (double)p->q_len;
    return 2 * (double)p->kv_len * (double)(p->head_dim + attn_v_head_dim(p)) + 4 * rows + threads * scratch_doubles(p);
}

/* any: what all heads have in common. */
static struct head head_state(const struct head *any, const struct attn_problem *p, double *memory)
{
    struct head h = *any;
    h.whole = p;
    h.group = p->q_heads / p->kv_heads;
    h.d = p->head_dim;
    h.dv = attn_v_head_dim(p);
    const size_t rows = (size_t)h.group * (size_t)p->q_len;
    const size_t of_k = (size_t)(p->kv_len * h.d), of_v = (size_t)(p->kv_len * h.dv);
    h.k = memory;
    h.v = h.k + of_k;
    h.kt = h.v + of_v;
    h.vt = h.kt + of_k;
    h.lse = h.vt + of_v;
    h.dot = h.lse + rows;
    h.spread = h.dot + rows;
    h.size = h.spread + rows;
    h.scratch = h.size + rows;
    return h;
}

static struct scratch own_scratch(const struct head *h)
{
    const size_t n = (size_t)h->whole->kv_len, d = (size_t)widest_of(h->whole);
    struct scratch x = {.q = h->scratch + (size_t)omp_get_thread_num() * (size_t)scratch_doubles(h->whole)};
    x.dout = x.q + BLOCK_ROWS * d;
    x.o = x.dout + BLOCK_ROWS * d;
    x.s = x.o + BLOCK_ROWS * d;
    x.dp = x.s + BLOCK_ROWS * n;
    double *next = x.dp + BLOCK_ROWS * n;
    x.kept = h->whole->dropout != 0 ? next : x.s;
    next += h->whole->dropout != 0 ? BLOCK_ROWS * n : 0;
    x.slope = h->whole->softcap != 0 ? next : NULL;
    next += h->whole->softcap != 0 ? BLOCK_ROWS * n : 0;
    x.sums[0] = next;
    for (int i = 1; i < 5; i++)
        x.sums[i] = x.sums[i - 1] + BLOCK_KEYS * d;
    return x;
}

static void load_row(struct attn_tensor x, enum attn_dtype dtype, int64_t from, int64_t columns, float scale,
                     double *to)
{
    for (int64_t c = 0; c < columns; c++)
        to[c] = (double)fill_load(x.data, dtype, from + c) * (double)scale;
}

/* Rows of dO. */
static void load_dout(const struct head *h, int64_t tensor_head, int64_t row0, int64_t rows, double *to)
{
    const struct attn_tensor x = h->t->dout;
    for (int64_t i = 0; i < rows; i++)
        load_row(x, attn_output_dtype(h->p), attn_row_offset(h->whole, h->t, x, h->b, tensor_head, row0 + i), h->dv, 1,
                 to + i * h->dv);
}

static void load_q(const struct head *h, int64_t tensor_head, int64_t row0, int64_t rows, double *to)
{
    const struct attn_problem *p = h->whole;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t scale = attn_scale_index(p, h->t->cu_seqlens_q, p->total_q, p->q_heads, p->q_len, h->group, h->b,
                                               tensor_head, row0 + i + h->out->first_row);
        load_row(h->t->q, p->dtype, attn_row_offset(p, h->t, h->t->q, h->b, tensor_head, row0 + i), h->d,
                 h->t->scale_q ? h->t->scale_q[scale] : 1, to + i * h->d);
    }
}

static void load_key(const struct head *h, int64_t key)
{
    const struct attn_problem *p = h->whole;
    const int64_t n = h->p->kv_len;
    const int64_t scale =
        attn_scale_index(p, h->t->cu_seqlens_k, p->total_k, p->kv_heads, p->kv_len, 1, h->b, h->kv_head, key);
    load_row(h->t->k, attn_kv_dtype(p), attn_key_offset(p, h->t, h->t->k, h->b, h->kv_head, key), h->d,
             h->t->scale_k ? h->t->scale_k[scale] : 1, h->k + key * h->d);
    load_row(h->t->v, attn_kv_dtype(p), attn_key_offset(p, h->t, h->t->v, h->b, h->kv_head, key), h->dv,
             h->t->scale_v ? h->t->scale_v[scale] : 1, h->v + key * h->dv);
    for (int64_t c = 0; c < h->d; c++)
        h->kt[c * n + key] = h->k[key * h->d + c];
    for (int64_t c = 0; c < h->dv; c++)
        h->vt[c * n + key] = h->v[key * h->dv + c];
}

/* Where a row lies among all rows of the heads: outputs are [batch, heads, len], packed [heads, total]. */
static int64_t place_of_row(const struct head *h, int64_t head, int64_t row)
{
    return attn_lse_index(h->whole, h->t, h->b, head, row);
}

static int64_t place_of_key(const struct head *h, int64_t key)
{
    const struct attn_problem *p = h->whole;
    return p->lengths == ATTN_PACKED ? h->kv_head * p->total_k + h->t->cu_seqlens_k[h->b] + key
                                     : (h->b * p->kv_heads + h->kv_head) * p->kv_len + key;
}

/* Stores rows of doubles times a factor as fp32, the first at `place`; does nothing when `to` is NULL. */
static void store_rows(const double *from, double factor, float *to, int64_t place, int64_t rows, int64_t d)
{
    if (!to)
        return;
    float *at = to + place * d;
    for (int64_t i = 0; i < rows * d; i++)
        at[i] = (float)(factor * from[i]);
}

/* Rows of a query head, and the keys [lo, hi] that they work on; none when lo > hi. */
struct block {
    int64_t g, row0, rows, lo, hi;
};

/* c [rows][keys] = A [rows][d] times X^T. c has rows of kv_len, of which [lo, hi] is written. */
static void times_transposed(const struct head *h, const struct block *at, int64_t d, const double *a, const double *xt,
                             double *c)
{
    const int64_t n = h->p->kv_len, keys = at->hi + 1 - at->lo;
    for (int64_t i = 0; i < at->rows && keys > 0; i++)
        memset(c + i * n + at->lo, 0, (size_t)keys * sizeof *c);
    oracle_multiply(&(struct product){.m = at->rows,
                                      .n = keys,
                                      .k = d,
                                      .a = a,
                                      .a_row = d,
                                      .a_col = 1,
                                      .b = xt + at->lo,
                                      .b_row = n,
                                      .c = c + at->lo,
                                      .c_row = n},
                    TERMS_PLAIN);
}

/* c [rows][d] = A [rows][keys] times X. */
static void times_rows(const struct head *h, const struct block *at, int64_t d, const double *a, const double *x,
                       double *c, enum terms terms)
{
    const int64_t n = h->p->kv_len;
    memset(c, 0, (size_t)(at->rows * d) * sizeof *c);
    oracle_multiply(&(struct product){.m = at->rows,
                                      .n = d,
                                      .k = at->hi + 1 - at->lo,
                                      .a = a + at->lo,
                                      .a_row = n,
                                      .a_col = 1,
                                      .b = x + at->lo * d,
                                      .b_row = d,
                                      .c = c,
                                      .c_row = d},
                    terms);
}

/* c [keys][d] += A^T times X [rows][d]. */
static void add_to_keys(const struct head *h, const struct block *at, int64_t d, const double *a, const double *x,
                        double *c, enum terms terms)
{
    const int64_t n = h->p->kv_len;
    oracle_multiply(&(struct product){.m = at->hi + 1 - at->lo,
                                      .n = d,
                                      .k = at->rows,
                                      .a = a + at->lo,
                                      .a_row = 1,
                                      .a_col = n,
                                      .b = x,
                                      .b_row = d,
                                      .c = c,
                                      .c_row = d},
                    terms);
}

/* 1 - tanh(x / cap)^2 without a difference of nearly equal numbers. */
static double slope_of(double x, double cap)
{
    const double power = exp(-2 * fabs(x / cap)), sum = 1 + power;
    return 4 * power / (sum * sum);
}

/* What is added to S of an element behind the softcap. */
static double added(const struct head *h, int64_t g, int64_t row, int64_t key)
{
    const struct attn_problem *p = h->p;
    const int64_t head = h->kv_head * h->group + g;
    if (p->bias_heads > 0)
        return (double)fill_load(h->t->bias.data, p->bias_dtype,
                                 attn_bias_offset(h->whole, h->t->bias, h->b, head, row) + key);
    return p->has_alibi ? -(double)h->t->alibi_slopes[head] * (double)attn_alibi_distance(p->q_len, p->kv_len, row, key)
                        : 0;
}

/* Every row's S from Q K^T, in place, for the keys of [lo, hi]; -infinity where the row does not see the key. With a
 * softcap its derivative, too. */
static void logits(const struct head *h, const struct block *at, const struct scratch *x)
{
    const struct attn_problem *p = h->p;
    const double scale = (double)p->scale, cap = (double)p->softcap;
    for (int64_t i = 0; i < at->rows; i++) {
        double *s = x->s + i * p->kv_len;
        int64_t first, last;
        attn_visible(p, at->row0 + i, &first, &last);
        for (int64_t j = at->lo; j <= at->hi; j++) {
            if (cap != 0)
                x->slope[i * p->kv_len + j] = slope_of(scale * s[j], cap);
            s[j] = cap != 0 ? cap * tanh(scale * s[j] / cap) : scale * s[j];
            s[j] += added(h, at->g, at->row0 + i, j);
            if (j < first || j > last ||
                !attn_block_is_visible(h->whole, h->t->block_mask, h->b, h->kv_head * h->group + at->g,
                                       at->row0 + i + h->out->first_row, j))
                s[j] = -INFINITY;
        }
    }
}

/* Pass 2. Keys of [lo, hi] that a row does not see get P = 0. */
static void softmax_rows(const struct head *h, const struct block *at, const struct scratch *x)
{
    const struct attn_problem *p = h->p;
    double *s = x->s;
    logits(h, at, x);
    for (int64_t i = 0; i < at->rows; i++, s += p->kv_len) {
        const double sink = h->t->sink ? (double)h->t->sink[h->kv_head * h->group + at->g] : -INFINITY;
        double max = sink, sum = 0;
        for (int64_t j = at->lo; j <= at->hi; j++)
            if (!(s[j] <= max)) /* a NaN becomes the maximum, so that the whole row becomes NaN */
                max = s[j];
        for (int64_t j = at->lo; j <= at->hi; j++) {
            s[j] = max == -INFINITY ? 0 : exp(s[j] - max);
            sum += s[j];
        }
        sum += sink == -INFINITY ? 0 : exp(sink - max);
        for (int64_t j = at->lo; j <= at->hi && sum != 0; j++)
            s[j] /= sum;
        h->lse[at->g * p->q_len + at->row0 + i] = max == -INFINITY ? -INFINITY : max + log(sum);
    }
}

/* to = M * from, for dropout; `to` may be `from`. */
static void drop(const struct head *h, const struct block *at, const double *from, double *to)
{
    const int64_t n = h->p->kv_len, head = h->kv_head * h->group + at->g + h->out->first_head;
    if (h->p->dropout == 0)
        return;
    const double factor = 1 / (1 - (double)h->p->dropout);
    for (int64_t i = 0; i < at->rows; i++)
        for (int64_t j = at->lo; j <= at->hi; j++)
            to[i * n + j] =
                attn_dropout_factor(h->p, h->b + h->out->first_batch, head, at->row0 + i + h->out->first_row, j) != 0
                    ? factor * from[i * n + j]
                    : 0;
}

/* sqrt(rowsum(dS^2)) of whole rows, from P and M * dP. */
static void gradient_sizes(const struct head *h, const struct block *at, const struct scratch *x)
{
    const int64_t first_row = at->g * h->p->q_len + at->row0, n = h->p->kv_len;
    for (int64_t i = 0; i < at->rows; i++) {
        double squares = 0;
        for (int64_t j = at->lo; j <= at->hi; j++) {
            const double p = x->s[i * n + j], part = x->dp[i * n + j] - h->dot[first_row + i];
            const double ds = p * part * (x->slope ? x->slope[i * n + j] : 1);
            squares += ds * ds;
        }
        h->size[first_row + i] = sqrt(squares);
    }
}

/* dS from M * dP in place, and dSa from P in place; without dropout `kept` is P's memory. */
static void score_gradients(const struct head *h, const struct block *at, const struct scratch *x)
{
    const int64_t first_row = at->g * h->p->q_len + at->row0, n = h->p->kv_len;
    for (int64_t i = 0; i < at->rows; i++) {
        const double lambda = reference_logit_error(h->p, h->lse[first_row + i]);
        for (int64_t j = at->lo; j <= at->hi; j++) {
            const double p = x->s[i * n + j], part = x->dp[i * n + j] - h->dot[first_row + i];
            const double steep = x->slope ? x->slope[i * n + j] : 1;
            const double own = fmax(h->spread[first_row + i] * steep, h->size[first_row + i]);
            x->dp[i * n + j] = p * part * steep;
            x->s[i * n + j] = p * (own + fabs(part) * (1 - steep + lambda * steep));
        }
    }
}

/* Adds dS of a block of rows, before the softcap's derivative, to dBias, and the squares of its error to |dBias|. */
static void bias_gradients(const struct head *h, const struct block *at, const struct scratch *x)
{
    const struct attn_problem *p = h->whole;
    const int64_t n = h->p->kv_len, head = h->kv_head * h->group + at->g;
    const struct attn_tensor sums = {.stride_batch = p->bias_heads * p->q_len * p->kv_len,
                                     .stride_head = p->q_len * p->kv_len,
                                     .stride_row = p->kv_len};
    for (int64_t i = 0; i < at->rows; i++) {
        const int64_t first_row = at->g * h->p->q_len + at->row0 + i;
        double *const row = h->biases + 2 * attn_bias_offset(p, sums, h->b, head, at->row0 + i);
        const double lambda = reference_logit_error(h->p, h->lse[first_row]);
        for (int64_t j = at->lo; j <= at->hi; j++) {
            const double prob = x->s[i * n + j], part = x->dp[i * n + j] - h->dot[first_row];
            const double error = prob * reference_bias_error(h->spread[first_row], lambda, part, h->dot[first_row]);
            row[2 * j] += prob * part;
            row[2 * j + 1] += error * error;
        }
    }
}

/* The product over absolute values is at least what independent errors of the terms of dS sum up to. squares: of these
 * terms. */
static void take_terms(double *product, const double *squares, int64_t elements)
{
    for (int64_t i = 0; i < elements; i++)
        product[i] = reference_product(product[i], squares[i]);
}

/* Pass 4 of a block of rows: D and dQ. x->o holds O on entry. */
static void row_gradients(const struct head *h, const struct block *at, const struct scratch *x)
{
    const struct attn_problem *p = h->p;
    const int64_t d = h->d, dv = h->dv, head = h->kv_head * h->group + at->g, place = place_of_row(h, head, at->row0);
    load_dout(h, head, at->row0, at->rows, x->dout);
    for (int64_t i = 0; i < at->rows; i++) {
        double dot = 0, squares = 0;
        for (int64_t c = 0; c < dv; c++) {
            const double product = x->dout[i * dv + c] * x->o[i * dv + c];
            dot += product;
            squares += product * product;
        }
        h->dot[at->g * p->q_len + at->row0 + i] = dot;
        h->spread[at->g * p->q_len + at->row0 + i] = sqrt(squares);
    }
    times_transposed(h, at, dv, x->dout, h->vt, x->dp);
    drop(h, at, x->dp, x->dp);
    gradient_sizes(h, at, x);
    if (h->biases)
        bias_gradients(h, at, x);
    score_gradients(h, at, x);
    times_rows(h, at, d, x->dp, h->k, x->o, TERMS_PLAIN);
    store_rows(x->o, (double)p->scale, h->out->dq, place, at->rows, d);
    if (!h->out->dq_abs)
        return;
    times_rows(h, at, d, x->s, h->k, x->o, TERMS_ABSOLUTE);
    times_rows(h, at, d, x->dp, h->k, x->q, TERMS_SQUARED);
    take_terms(x->o, x->q, at->rows * d);
    store_rows(x->o, fabs((double)p->scale), h->out->dq_abs, place, at->rows, d);
}

static void attend_rows(const struct head *h, int64_t g, int64_t row0)
{
    const struct attn_problem *p = h->p;
    const struct scratch x = own_scratch(h);
    const int64_t head = h->kv_head * h->group + g, left = p->q_len - row0, place = place_of_row(h, head, row0);
    struct block at = {.g = g, .row0 = row0, .rows = left < BLOCK_ROWS ? left : BLOCK_ROWS};
    int64_t ignored;
    attn_visible(p, row0, &at.lo, &ignored);
    attn_visible(p, row0 + at.rows - 1, &ignored, &at.hi);

    load_q(h, head, row0, at.rows, x.q);
    times_transposed(h, &at, h->d, x.q, h->kt, x.s); /* 1 */
    softmax_rows(h, &at, &x);                        /* 2 */
    for (int64_t i = 0; i < at.rows; i++)
        h->out->lse[place + i] = (float)h->lse[g * p->q_len + row0 + i];
    drop(h, &at, x.s, x.kept);
    if (h->out->o_abs) { /* 3 */
        times_rows(h, &at, h->dv, x.kept, h->v, x.o, TERMS_ABSOLUTE);
        store_rows(x.o, 1, h->out->o_abs, place, at.rows, h->dv);
    }
    times_rows(h, &at, h->dv, x.kept, h->v, x.o, TERMS_PLAIN);
    store_rows(x.o, 1, h->out->o, place, at.rows, h->dv);
    if (h->mode == ATTN_BWD)
        row_gradients(h, &at, &x); /* 4 */
}

/* Adds the contribution of a block of rows to dK and dV of its keys. */
static void add_rows(const struct head *h, const struct block *at, const struct scratch *x)
{
    const struct attn_problem *p = h->p;
    const int64_t q_head = h->kv_head * h->group + at->g, n = p->kv_len;
    load_q(h, q_head, at->row0, at->rows, x->q);
    load_dout(h, q_head, at->row0, at->rows, x->dout);
    times_transposed(h, at, h->d, x->q, h->kt, x->s);
    logits(h, at, x);
    for (int64_t i = 0; i < at->rows; i++) {
        const double lse = h->lse[at->g * p->q_len + at->row0 + i];
        for (int64_t j = at->lo; j <= at->hi; j++)
            x->s[i * n + j] = x->s[i * n + j] == -INFINITY ? 0 : exp(x->s[i * n + j] - lse);
    }
    drop(h, at, x->s, x->kept);
    times_transposed(h, at, h->dv, x->dout, h->vt, x->dp);
    add_to_keys(h, at, h->dv, x->kept, x->dout, x->sums[1], TERMS_PLAIN);
    if (h->out->dv_abs)
        add_to_keys(h, at, h->dv, x->kept, x->dout, x->sums[3], TERMS_ABSOLUTE);
    drop(h, at, x->dp, x->dp);
    score_gradients(h, at, x);
    add_to_keys(h, at, h->d, x->dp, x->q, x->sums[0], TERMS_PLAIN);
    if (!h->out->dk_abs)
        return;
    add_to_keys(h, at, h->d, x->s, x->q, x->sums[2], TERMS_ABSOLUTE);
    add_to_keys(h, at, h->d, x->dp, x->q, x->sums[4], TERMS_SQUARED);
}

/* Pass 4 of a block of keys: dK and dV. */
static void key_gradients(const struct head *h, int64_t key0)
{
    const struct attn_problem *p = h->p;
    const struct scratch x = own_scratch(h);
    const int64_t left = p->kv_len - key0, keys = left < BLOCK_KEYS ? left : BLOCK_KEYS;
    for (int i = 0; i < 5; i++)
        memset(x.sums[i], 0, (size_t)(keys * widest_of(p)) * sizeof *x.sums[i]);
    for (int64_t g = 0; g < h->group; g++)
        for (int64_t row0 = 0; row0 < p->q_len; row0 += BLOCK_ROWS) {
            struct block at = {.g = g, .row0 = row0, .lo = key0, .hi = key0 + keys - 1};
            at.rows = p->q_len - row0 < BLOCK_ROWS ? p->q_len - row0 : BLOCK_ROWS;
            int64_t first, last, ignored;
            attn_visible(p, row0, &first, &ignored);
            attn_visible(p, row0 + at.rows - 1, &ignored, &last);
            if (first <= at.hi && at.lo <= last)
                add_rows(h, &at, &x);
        }
    const int64_t place = place_of_key(h, key0);
    const double scale = (double)p->scale;
    take_terms(x.sums[2], x.sums[4], keys * h->d);
    store_rows(x.sums[0], scale, h->out->dk, place, keys, h->d);
    store_rows(x.sums[1], 1, h->out->dv, place, keys, h->dv);
    store_rows(x.sums[2], fabs(scale), h->out->dk_abs, place, keys, h->d);
    store_rows(x.sums[3], 1, h->out->dv_abs, place, keys, h->dv);
}

/* dSink of the query heads of this sequence, when LSE and D of all rows are known. */
static void sink_gradients(const struct head *h)
{
    const struct attn_problem *p = h->p;
    for (int64_t g = 0; g < h->group; g++) {
        const int64_t head = h->kv_head * h->group + g;
        double *const sums = h->sinks + 2 * (h->b * p->q_heads + head);
        for (int64_t row = g * p->q_len; row < (g + 1) * p->q_len; row++) {
            const double share = exp((double)h->t->sink[head] - h->lse[row]);
            sums[0] -= share * h->dot[row];
            sums[1] += share * share * h->spread[row] * h->spread[row];
        }
    }
}

static void attend_head(const struct head *h)
{
    const struct attn_problem *p = h->p;
    const int64_t blocks = (p->q_len + BLOCK_ROWS - 1) / BLOCK_ROWS;
    const int64_t together = h->biases ? 1 : h->group; /* heads at a time: they may share elements of dBias */
#pragma omp parallel num_threads(h->threads)
    {
#pragma omp for schedule(static)
        for (int64_t key = 0; key < p->kv_len; key++)
            load_key(h, key);
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < together * blocks; i++)
            for (int64_t g = i / blocks; g < h->group; g += together)
                attend_rows(h, g, i % blocks * BLOCK_ROWS);
        if (h->mode == ATTN_BWD) {
#pragma omp for schedule(dynamic)
            for (int64_t key0 = 0; key0 < p->kv_len; key0 += BLOCK_KEYS)
                key_gradients(h, key0);
        }
    }
    if (h->sinks)
        sink_gradients(h);
}

/* Head `index` of batch * kv_heads. */
static void attend_head_at(const struct attn_problem *p, const struct head *any, int64_t index, double *memory)
{
    struct head h = head_state(any, p, memory);
    h.b = index / p->kv_heads;
    h.kv_head = index % p->kv_heads;
    const struct attn_sequence sequence = attn_sequence_at(p, h.t, h.b);
    struct attn_problem one = *p;
    one.q_len = sequence.q_len;
    one.kv_len = sequence.kv_len;
    h.p = &one;
    attend_head(&h);
}

static void store_biases(const struct attn_problem *p, const double *biases, const struct reference_outputs *out)
{
    for (int64_t i = 0; i < p->bias_batch * p->bias_heads * p->q_len * p->kv_len; i++) {
        out->dbias[i] = (float)biases[2 * i];
        if (out->dbias_abs)
            out->dbias_abs[i] = (float)sqrt(biases[2 * i + 1]);
    }
}

/* Sums over the sequences. */
static void store_sinks(const struct attn_problem *p, const double *sinks, const struct reference_outputs *out)
{
    for (int64_t head = 0; head < p->q_heads; head++) {
        double sum = 0, squares = 0;
        for (int64_t b = 0; b < p->batch; b++) {
            sum += sinks[2 * (b * p->q_heads + head)];
            squares += sinks[2 * (b * p->q_heads + head) + 1];
        }
        out->dsink[head] = (float)sum;
        if (out->dsink_abs)
            out->dsink_abs[head] = (float)sqrt(squares);
    }
}

enum attn_status oracle_attention(const struct attn_problem *p, enum attn_mode mode, const struct attn_tensors *t,
                                  const struct reference_outputs *out, int threads, struct attn_message *why)
{
    const int64_t heads = p->batch * p->kv_heads;
    const int wanted = threads > 1 ? threads : 1;
    const bool has_biases = p->bias_heads > 0 && mode == ATTN_BWD && out->dbias;
    const int workers =
        heads >= wanted && !has_biases ? wanted : 1; /* heads at a time; else the threads work inside a head */
    const int inside = workers > 1 ? 1 : wanted;
    const double bytes = workers * head_doubles(p, inside) * sizeof(double);
    double *memory = bytes < (double)(PTRDIFF_MAX / 2) ? malloc((size_t)bytes) : NULL;
    const bool has_sinks = p->has_sink && mode == ATTN_BWD && out->dsink;
    double *sinks = has_sinks ? calloc((size_t)(p->batch * p->q_heads), 2 * sizeof *sinks) : NULL;
    const int64_t elements = p->bias_batch * p->bias_heads * p->q_len * p->kv_len;
    double *biases = has_biases ? calloc((size_t)elements, 2 * sizeof *biases) : NULL;
    if (!memory || (has_sinks && !sinks) || (has_biases && !biases)) {
        free(memory);
        free(sinks);
        free(biases);
        snprintf(why->text, sizeof why->text, "the float64 oracle needs %.1f GB of host memory", bytes / 1e9);
        return ATTN_NO_MEMORY;
    }
    const size_t doubles = (size_t)head_doubles(p, inside);
    const struct head any = {.t = t, .out = out, .mode = mode, .threads = inside, .sinks = sinks, .biases = biases};
    if (workers == 1) /* not a parallel region of one thread: those inside it would get new threads for every head */
        for (int64_t i = 0; i < heads; i++)
            attend_head_at(p, &any, i, memory);
    else {
#pragma omp parallel for schedule(dynamic) num_threads(workers)
        for (int64_t i = 0; i < heads; i++)
            attend_head_at(p, &any, i, memory + (size_t)omp_get_thread_num() * doubles);
    }
    if (sinks)
        store_sinks(p, sinks, out);
    if (biases)
        store_biases(p, biases, out);
    free(memory);
    free(sinks);
    free(biases);
    return ATTN_OK;
}
