/* CPU implementations that are wrong on purpose, loaded with --impl-lib, and one that is right.
 *
 * All of them are one plain tiled attention in fp32 arithmetic on fp32 or bf16 tensors (64 x 64 tiles, online softmax,
 * recomputation in backward) with one hook for each fault, so that a wrong one differs from the right one by its fault
 * alone. The judge must reject every
 * wrong one, but for those whose fault is smaller than the rounding of bf16, and pass `right_cpu`; verdicts.txt has
 * each verdict. wrong_cuda.cu has the first of these faults, up to NONDETERMINISTIC, for CUDA.
 *
 * Forward, per block of 64 rows:  S = Q K^T, P = exp(S - m), O += P V.
 * Backward, first pass per block of 64 rows:  dQ += dS K; second pass per block of 64 keys:  dV += P^T dO,
 * dK += dS^T Q. Every tile product is the one loop of tile_multiply.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/attention.h"

enum { TILE = 64, MAX_HEAD_DIM = 128 };

enum fault {
    RIGHT,
    INVERTED_MASK,    /* a causal row sees the keys that it must not see */
    DIAGONAL,         /* a causal row sees one key too many */
    SCALE,            /* scale times 1.01 */
    LAST_TILE,        /* the last 128 keys are skipped; their dK and dV stay unwritten */
    LAST_ROWS,        /* the last 64 rows of O, LSE and dQ stay unwritten */
    STALE,            /* only the first launch after prepare writes */
    LAZY,             /* only the first two do: the checked one and one of the timed ones */
    NAN_ROW,          /* the middle row of the last head of O or dQ is NaN */
    HEADS,            /* heads 0 and 1 change places in every output */
    PAST_END,         /* writes one element behind O or dV */
    DK,               /* dK times 1.01 */
    LSE,              /* every LSE is 3e-4 too large: too much where the inputs are fp32, not where they have 16 bits */
    NONDETERMINISTIC, /* O and dQ change in the last bits from launch to launch, although promised as deterministic */
    DIAGONAL_SHORT,   /* a causal row does not see its last key */
    TOP_LEFT,         /* the causal diagonal begins at key 0 where there are more keys than rows */
    MASK_ZERO,        /* masked logits count as 0 in the tiles on the diagonal */
    LAST_KEY,         /* the very last key is not read */
    TAIL_TILE,        /* the last tile of keys is not read where it is not full */
    KV_HEAD,          /* query head h reads kv head h modulo kv_heads */
    BATCH,            /* batch 1 reads the keys of batch 0 */
    HEAD_DIM_TAIL,    /* the last 8 columns of Q K^T are not summed */
    SCALE_PERMILLE,   /* scale times 1.001 */
    NO_MAX,           /* the largest logit is not subtracted */
    NO_RESCALE,       /* O is not rescaled when the largest logit changes */
    SUM_NO_RESCALE,   /* the sum of P is not */
    LSE_LOG2,         /* LSE is a logarithm to base 2 */
    LSE_NO_SCALE,     /* LSE of logits without the scale */
    LSE_MAX,          /* LSE is the largest logit */
    LSE_ROW,          /* LSE of the row before */
    P_BF16,           /* P is rounded to bf16 before it is multiplied */
    SUM_BF16,         /* sums over tiles are kept in bf16 */
    EXP_COARSE,       /* an exponential that is off by up to 0.3 % */
    STALE_ROWS,       /* the last 3 rows of O or dQ are those of the tile before */
    LAYOUT,           /* O is written as bhsd where bshd is asked, and the other way round */
    ONE_ELEMENT,      /* one element of O or dQ is off by 10 % */
    GAIN,             /* O times 1.0005 */
    SIGN_ROW,         /* one row of O or dQ has the wrong sign */
    DQ_TILE,          /* dQ lacks the second tile of keys */
    DQ_LOST,          /* dQ lacks it in every third launch only */
    DQ_NO_SCALE,      /* dQ lacks the scale */
    DK_NO_SCALE,      /* dK lacks the scale */
    DKDV_TILE,        /* dK and dV change places in the second tile of keys */
    DELTA_ROW,        /* D of the row before */
    DELTA_NONE,       /* D is 0 */
    GROUP_FIRST,      /* dK and dV of the first query head of a group only */
    DK_ROW_TILE       /* dK lacks the last row tile where it is not full */
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

/* Rounds to the nearest bf16. */
static float to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

/* exp(x) as 2^n times a parabola: off by up to 0.3 %. */
static float coarse_exp(float x)
{
    const float y = x * 1.44269504f, n = floorf(y), f = y - n;
    return x < -80 ? 0 : ldexpf(1.0f + f * (0.6565f + 0.3435f * f), (int)n);
}

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

/* Index of the first element of a row. */
static int64_t row_at(const struct attn_tensor *t, int64_t b, int64_t h, int64_t i)
{
    return b * t->stride_batch + h * t->stride_head + i * t->stride_row;
}

static float load(const struct work *w, const struct attn_tensor *t, int64_t at)
{
    if (w->p->dtype == ATTN_FP32)
        return ((const float *)t->data)[at];
    const uint32_t bits = (uint32_t)((const uint16_t *)t->data)[at] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void store(const struct work *w, const struct attn_tensor *t, int64_t at, float value)
{
    if (w->p->dtype == ATTN_FP32) {
        ((float *)t->data)[at] = value;
        return;
    }
    uint32_t bits;
    value = isnan(value) ? value : to_bf16(value);
    memcpy(&bits, &value, sizeof bits);
    ((uint16_t *)t->data)[at] = (uint16_t)(bits >> 16);
}

static void load_block(const struct work *w, struct block *to, const struct attn_tensor *from, int64_t b, int64_t h,
                       int64_t row, int64_t rows, int64_t head_dim)
{
    const int64_t d = padded(head_dim);
    memset(to->data, 0, sizeof(float) * (size_t)(TILE * d));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < head_dim; c++)
            to->data[i * d + c] = load(w, from, row_at(from, b, h, row + i) + c);
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
    if (w->p->causal && w->fault == DIAGONAL_SHORT)
        *last -= 1;
    if (w->p->causal && w->fault == TOP_LEFT)
        *last = smaller(i, w->p->kv_len - 1);
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

/* The kv head that query head h reads. */
static int64_t kv_head(const struct work *w, int64_t h)
{
    return w->fault == KV_HEAD ? h % w->p->kv_heads : h / (w->p->q_heads / w->p->kv_heads);
}

/* The batch whose keys are read for batch b. */
static int64_t key_batch(const struct work *w, int64_t b) { return w->fault == BATCH && b == 1 ? 0 : b; }

/* Columns of Q and K that are summed into S. */
static int64_t summed_columns(const struct work *w, int64_t d)
{
    return w->fault == HEAD_DIM_TAIL ? w->p->head_dim - 8 : d;
}

static float exponential(const struct work *w, float x) { return w->fault == EXP_COARSE ? coarse_exp(x) : expf(x); }

/* After each tile: what the fault leaves of a sum over tiles. */
static void keep_sum(const struct work *w, float *sum, int64_t count)
{
    for (int64_t n = 0; n < count && w->fault == SUM_BF16; n++)
        sum[n] = to_bf16(sum[n]);
}

static bool skips_row(const struct work *w, int64_t i) { return w->fault == LAST_ROWS && i >= w->p->q_len - TILE; }

/* The value that is stored for an element of O or dQ. */
static float faulty(const struct work *w, int64_t h, int64_t i, float value)
{
    if (w->fault == NAN_ROW && h == w->p->q_heads - 1 && i == w->p->q_len / 2)
        return NAN;
    if (w->fault == NONDETERMINISTIC && w->call % 2)
        return nextafterf(value, INFINITY);
    if (w->fault == GAIN)
        return value * 1.0005f;
    if (w->fault == SIGN_ROW && h == w->p->q_heads - 1 && i == w->p->q_len / 2)
        return -value;
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
            const bool seen = key + j >= first && key + j <= last;
            si[j] = seen ? si[j] * w->scale : w->fault == MASK_ZERO && key + j < w->keys ? 0 : -INFINITY;
            new_max = w->fault == NO_MAX ? 0 : fmaxf(new_max, si[j]);
        }
        if (new_max == -INFINITY) {
            memset(si, 0, sizeof(float) * TILE);
            continue;
        }
        const float correction = w->fault == NO_MAX ? 1 : exponential(w, max[i] - new_max);
        float row_sum = w->fault == SUM_NO_RESCALE ? sum[i] : sum[i] * correction;
        for (int64_t j = 0; j < TILE; j++) {
            si[j] = si[j] == -INFINITY ? 0 : exponential(w, si[j] - new_max);
            row_sum += si[j];
            if (w->fault == P_BF16)
                si[j] = to_bf16(si[j]);
        }
        for (int64_t c = 0; c < d && w->fault != NO_RESCALE; c++)
            out[i * d + c] *= correction;
        max[i] = new_max;
        sum[i] = row_sum;
    }
    for (int64_t i = rows; i < TILE; i++)
        memset(&s[i * TILE], 0, sizeof(float) * TILE);
}

/* LSE of a row with these results of the online softmax. */
static float lse_of(const struct work *w, float max, float sum)
{
    if (!(sum > 0))
        return -INFINITY;
    switch (w->fault) {
    case LSE_LOG2: return (max + logf(sum)) * 1.44269504f;
    case LSE_NO_SCALE: return max / w->scale + logf(sum);
    case LSE_MAX: return max;
    default: return max + logf(sum);
    }
}

/* Index in O of row i. */
static int64_t output_at(const struct work *w, int64_t b, int64_t h, int64_t i)
{
    const struct attn_problem *p = w->p;
    struct attn_tensor t = w->t->o;
    if (w->fault == LAYOUT) {
        const bool is_bshd = p->layout == ATTN_BSHD;
        t.stride_head = is_bshd ? p->q_len * p->head_dim : p->head_dim;
        t.stride_row = is_bshd ? p->head_dim : p->q_heads * p->head_dim;
    }
    return row_at(&t, b, h, i);
}

/* ONE_ELEMENT: adds 10 % to the first element of the middle row of head 0. */
static void spoil_element(const struct work *w, const struct attn_tensor *t, int64_t b, int64_t h)
{
    const int64_t at = row_at(t, b, h, w->p->q_len / 2);
    const float first = load(w, t, at), second = load(w, t, at + 1);
    store(w, t, at, first + 0.1f * fmaxf(fabsf(first), fabsf(second)));
}

static void forward_rows(const struct work *w, int64_t b, int64_t h, int64_t row)
{
    const struct attn_problem *p = w->p;
    const int64_t d = padded(p->head_dim), rows = smaller(TILE, p->q_len - row);
    const int64_t kv = kv_head(w, h), kv_b = key_batch(w, b), to_head = output_head(w, h, p->q_heads);
    struct block q, k, v, out;
    float s[TILE * TILE], max[TILE], sum[TILE];
    memset(out.data, 0, sizeof out.data);
    for (int i = 0; i < TILE; i++) {
        max[i] = w->fault == NO_MAX ? 0 : -INFINITY;
        sum[i] = 0;
    }
    load_block(w, &q, &w->t->q, b, h, row, rows, p->head_dim);
    for (int64_t key = 0; key < w->keys; key += TILE) {
        const int64_t keys = smaller(TILE, w->keys - key);
        if (!any_visible(w, row, rows, key, keys))
            continue;
        load_block(w, &v, &w->t->k, kv_b, kv, key, keys, p->head_dim);
        transpose_block(&k, &v, d);
        load_block(w, &v, &w->t->v, b, kv, key, keys, p->head_dim);
        tile_multiply(s, TILE, q.data, d, 1, k.data, TILE, summed_columns(w, d), false);
        softmax_step(w, s, out.data, d, max, sum, row, rows, key);
        for (int64_t c = 0; c < d; c += TILE)
            tile_multiply(&out.data[c], d, s, TILE, 1, &v.data[c], d, TILE, true);
        keep_sum(w, out.data, TILE * d);
    }
    for (int64_t i = 0; i < rows && !skips_row(w, row + i); i++) {
        const float factor = sum[i] > 0 ? 1 / sum[i] : 0;
        float *lse = &w->t->lse[(b * p->q_heads + to_head) * p->q_len + row];
        for (int64_t c = 0; c < p->head_dim; c++)
            store(w, &w->t->o, output_at(w, b, to_head, row + i) + c,
                  faulty(w, h, row + i, out.data[i * d + c] * factor));
        if (w->fault == ONE_ELEMENT && h == 0 && row + i == p->q_len / 2)
            spoil_element(w, &w->t->o, b, to_head);
        lse[i] = lse_of(w, max[i], sum[i]);
        if (w->fault == LSE)
            lse[i] += 3e-4f;
        if (w->fault == LSE_ROW && i > 0)
            lse[i] = lse_of(w, max[i - 1], sum[i - 1]);
    }
}

/* D_i = sum over c of dO_ic O_ic. */
static void delta_rows(const struct work *w, int64_t b, int64_t h, int64_t row)
{
    const struct attn_problem *p = w->p;
    for (int64_t i = row; i < smaller(row + TILE, p->q_len); i++) {
        const int64_t dout = row_at(&w->t->dout, b, h, i), o = row_at(&w->t->o, b, h, i);
        float sum = 0;
        for (int64_t c = 0; c < p->head_dim; c++)
            sum += load(w, &w->t->dout, dout + c) * load(w, &w->t->o, o + c);
        w->delta[(b * p->q_heads + h) * p->q_len + i] = w->fault == DELTA_NONE ? 0 : sum;
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
            delta = w->delta[w->fault == DELTA_ROW && row + i > 0 ? at - 1 : at];
        }
        for (int64_t j = 0; j < TILE; j++) {
            const bool seen = key + j >= first && key + j <= last && lse != -INFINITY;
            const float probability = seen ? exponential(w, s[i * TILE + j] * w->scale - lse) : 0;
            s[i * TILE + j] = w->fault == P_BF16 ? to_bf16(probability) : probability;
            dp[i * TILE + j] = probability * (dp[i * TILE + j] - delta) * w->scale;
        }
    }
}

/* Is the second tile of keys left out of dQ in this launch? */
static bool skips_dq(const struct work *w, int64_t key)
{
    return key == TILE && (w->fault == DQ_TILE || (w->fault == DQ_LOST && w->call % 3 == 2));
}

static void dq_rows(const struct work *w, int64_t b, int64_t h, int64_t row)
{
    const struct attn_problem *p = w->p;
    const int64_t d = padded(p->head_dim), rows = smaller(TILE, p->q_len - row);
    const int64_t kv = kv_head(w, h), kv_b = key_batch(w, b), to_head = output_head(w, h, p->q_heads);
    const float dq_factor = w->fault == DQ_NO_SCALE ? 1 / w->scale : 1.0f;
    struct block q, dout, k, transposed, dq;
    float s[TILE * TILE], dp[TILE * TILE];
    memset(dq.data, 0, sizeof dq.data);
    load_block(w, &q, &w->t->q, b, h, row, rows, p->head_dim);
    load_block(w, &dout, &w->t->dout, b, h, row, rows, p->head_dim);
    for (int64_t key = 0; key < w->keys; key += TILE) {
        const int64_t keys = smaller(TILE, w->keys - key);
        if (!any_visible(w, row, rows, key, keys) || skips_dq(w, key))
            continue;
        load_block(w, &k, &w->t->v, b, kv, key, keys, p->head_dim);
        transpose_block(&transposed, &k, d);
        tile_multiply(dp, TILE, dout.data, d, 1, transposed.data, TILE, d, false);
        load_block(w, &k, &w->t->k, kv_b, kv, key, keys, p->head_dim);
        transpose_block(&transposed, &k, d);
        tile_multiply(s, TILE, q.data, d, 1, transposed.data, TILE, summed_columns(w, d), false);
        gradient_step(w, s, dp, b, h, row, rows, key);
        for (int64_t c = 0; c < d; c += TILE)
            tile_multiply(&dq.data[c], d, dp, TILE, 1, &k.data[c], d, TILE, true);
        keep_sum(w, dq.data, TILE * d);
    }
    for (int64_t i = 0; i < rows && !skips_row(w, row + i); i++)
        for (int64_t c = 0; c < p->head_dim; c++)
            store(w, &w->t->dq, row_at(&w->t->dq, b, to_head, row + i) + c,
                  faulty(w, h, row + i, dq.data[i * d + c] * dq_factor));
    if (w->fault == ONE_ELEMENT && h == 0 && p->q_len / 2 / TILE == row / TILE)
        spoil_element(w, &w->t->dq, b, to_head);
}

static void dkdv_keys(const struct work *w, int64_t b, int64_t kv, int64_t key)
{
    const struct attn_problem *p = w->p;
    const int64_t d = padded(p->head_dim), keys = smaller(TILE, w->keys - key), group = p->q_heads / p->kv_heads;
    const float dk_factor = w->fault == DK ? 1.01f : w->fault == DK_NO_SCALE ? 1 / w->scale : 1.0f;
    const int64_t first_head = w->fault == KV_HEAD ? kv : kv * group, head_step = w->fault == KV_HEAD ? p->kv_heads : 1;
    const int64_t heads = w->fault == GROUP_FIRST ? 1 : group;
    struct block k, v, q, dout, dk, dv;
    float s[TILE * TILE], dp[TILE * TILE];
    memset(dk.data, 0, sizeof dk.data);
    memset(dv.data, 0, sizeof dv.data);
    load_block(w, &q, &w->t->k, key_batch(w, b), kv, key, keys, p->head_dim);
    transpose_block(&k, &q, d);
    load_block(w, &q, &w->t->v, b, kv, key, keys, p->head_dim);
    transpose_block(&v, &q, d);
    for (int64_t n = 0; n < heads; n++)
        for (int64_t row = 0; row < p->q_len; row += TILE) {
            const int64_t rows = smaller(TILE, p->q_len - row), h = first_head + n * head_step;
            if (!any_visible(w, row, rows, key, keys) || (w->fault == DK_ROW_TILE && rows < TILE))
                continue;
            load_block(w, &q, &w->t->q, b, h, row, rows, p->head_dim);
            load_block(w, &dout, &w->t->dout, b, h, row, rows, p->head_dim);
            tile_multiply(s, TILE, q.data, d, 1, k.data, TILE, summed_columns(w, d), false);
            tile_multiply(dp, TILE, dout.data, d, 1, v.data, TILE, d, false);
            gradient_step(w, s, dp, b, h, row, rows, key);
            for (int64_t c = 0; c < d; c += TILE) {
                tile_multiply(&dv.data[c], d, s, 1, TILE, &dout.data[c], d, TILE, true);
                tile_multiply(&dk.data[c], d, dp, 1, TILE, &q.data[c], d, TILE, true);
            }
            keep_sum(w, dv.data, TILE * d);
            keep_sum(w, dk.data, TILE * d);
        }
    const int64_t to_head = output_head(w, kv, p->kv_heads);
    const bool swaps = w->fault == DKDV_TILE && key == TILE;
    const struct attn_tensor *to_dk = swaps ? &w->t->dv : &w->t->dk, *to_dv = swaps ? &w->t->dk : &w->t->dv;
    for (int64_t j = 0; j < keys; j++)
        for (int64_t c = 0; c < p->head_dim; c++) {
            store(w, to_dk, row_at(to_dk, b, to_head, key + j) + c, dk.data[j * d + c] * dk_factor);
            store(w, to_dv, row_at(to_dv, b, to_head, key + j) + c, dv.data[j * d + c]);
        }
}

/* The last three rows of O or dQ become those of the tile before, as if a tile in memory was not loaded again. */
static void repeat_rows(const struct work *w, const struct attn_tensor *t)
{
    const struct attn_problem *p = w->p;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = p->q_len > TILE + 3 ? p->q_len - 3 : p->q_len; i < p->q_len; i++)
                for (int64_t c = 0; c < p->head_dim; c++)
                    store(w, t, row_at(t, b, h, i) + c, load(w, t, row_at(t, b, h, i - TILE) + c));
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

/* Number of keys that are read. */
static int64_t keys_read(const struct attn_problem *p, enum fault fault)
{
    switch (fault) {
    case LAST_TILE: return p->kv_len > 128 ? p->kv_len - 128 : 0;
    case LAST_KEY: return p->kv_len - 1;
    case TAIL_TILE: return p->kv_len / TILE * TILE;
    default: return p->kv_len;
    }
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
    if (fault == SCALE_PERMILLE)
        w.scale *= 1.001f;
    w.keys = keys_read(p, fault);
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
    if (fault == STALE_ROWS)
        repeat_rows(&w, request->mode == ATTN_FWD ? &tensors->o : &tensors->dq);
    if (fault == PAST_END)
        store(&w, last_output, row_at(last_output, p->batch - 1, last_heads - 1, last_len - 1) + p->head_dim, 1.0f);
    return ATTN_OK;
}

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const char *reason = NULL;
    const enum attn_status status = attn_check_attributes(request, 0, why);
    if (status != ATTN_OK)
        return status;
    if (p->dtype == ATTN_FP16)
        reason = "takes fp32 and bf16 only";
    else if (p->head_dim > MAX_HEAD_DIM)
        reason = "takes head dims up to 128";
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

/* X(name after "wrong_", fault, what `fabench list` says) */
#define SEE "wrong: see tests/liars/verdicts.txt"
#define FAULTS(X) \
    X(inverted_mask, INVERTED_MASK, "wrong: causal mask inverted") \
    X(diagonal, DIAGONAL, "wrong: causal diagonal off by one") \
    X(scale, SCALE, "wrong: scale off by 1 %") \
    X(last_tile, LAST_TILE, "wrong: last 128 keys skipped") \
    X(last_rows, LAST_ROWS, "wrong: last 64 rows not written") \
    X(stale, STALE, "wrong: only the first launch writes") \
    X(lazy, LAZY, "wrong: only the first two launches write") \
    X(nan_row, NAN_ROW, "wrong: one row is NaN") \
    X(heads, HEADS, "wrong: heads 0 and 1 swapped") \
    X(past_end, PAST_END, "wrong: writes one element past the end") \
    X(dk, DK, "wrong: dK off by 1 %") \
    X(lse, LSE, "wrong: LSE off by 3e-4") \
    X(nondeterministic, NONDETERMINISTIC, "wrong: promises repeatable bits and breaks it") \
    X(diagonal_short, DIAGONAL_SHORT, SEE) \
    X(top_left, TOP_LEFT, SEE) \
    X(mask_zero, MASK_ZERO, SEE) \
    X(last_key, LAST_KEY, SEE) \
    X(tail_tile, TAIL_TILE, SEE) \
    X(kv_head, KV_HEAD, SEE) \
    X(batch, BATCH, SEE) \
    X(head_dim_tail, HEAD_DIM_TAIL, SEE) \
    X(scale_permille, SCALE_PERMILLE, SEE) \
    X(no_max, NO_MAX, SEE) \
    X(no_rescale, NO_RESCALE, SEE) \
    X(sum_no_rescale, SUM_NO_RESCALE, SEE) \
    X(lse_log2, LSE_LOG2, SEE) \
    X(lse_no_scale, LSE_NO_SCALE, SEE) \
    X(lse_max, LSE_MAX, SEE) \
    X(lse_row, LSE_ROW, SEE) \
    X(p_bf16, P_BF16, SEE) \
    X(sum_bf16, SUM_BF16, SEE) \
    X(exp_coarse, EXP_COARSE, SEE) \
    X(stale_rows, STALE_ROWS, SEE) \
    X(layout, LAYOUT, SEE) \
    X(one_element, ONE_ELEMENT, SEE) \
    X(gain, GAIN, SEE) \
    X(sign_row, SIGN_ROW, SEE) \
    X(dq_tile, DQ_TILE, SEE) \
    X(dq_lost, DQ_LOST, SEE) \
    X(dq_no_scale, DQ_NO_SCALE, SEE) \
    X(dk_no_scale, DK_NO_SCALE, SEE) \
    X(dkdv_tile, DKDV_TILE, SEE) \
    X(delta_row, DELTA_ROW, SEE) \
    X(delta_none, DELTA_NONE, SEE) \
    X(group_first, GROUP_FIRST, SEE) \
    X(dk_row_tile, DK_ROW_TILE, SEE)

#define LAUNCH(name, fault, ...) \
    static enum attn_status launch_##name(const struct attn_request *request, const struct attn_tensors *tensors, \
                                          const struct attn_run *run, struct attn_message *why) \
    { \
        (void)why; \
        return launch(fault, request, tensors, run); \
    }

LAUNCH(right, RIGHT)
FAULTS(LAUNCH)

#define ALL_FWD (ATTN_O | ATTN_LSE)
#define ALL_BWD (ATTN_DQ | ATTN_DK | ATTN_DV)
#define ROW(row_name, row_summary, row_launch) \
    { \
        .abi = ATTN_ABI, .name = row_name, .summary = row_summary, .platform = ATTN_CPU, \
        .repeatable = {ALL_FWD, ALL_BWD}, .repeatable_deterministic = {ALL_FWD, ALL_BWD}, .accepts = accepts, \
        .workspace_bytes = workspace_bytes, .prepare = prepare, .launch = row_launch, .release = free \
    }

/* Refuses problems that the others accept, so that tests see which requests arrive. */
static enum attn_status accepts_any_order(const struct attn_request *request, struct attn_message *why)
{
    if (!request->deterministic)
        return accepts(request, why);
    strcpy(why->text, "keeps no order");
    return ATTN_UNSUPPORTED;
}

static enum attn_status accepts_forward(const struct attn_request *request, struct attn_message *why)
{
    if (request->mode == ATTN_FWD)
        return accepts(request, why);
    snprintf(why->text, sizeof why->text, "forward_cpu: has no backward");
    return ATTN_UNSUPPORTED;
}

#define WRONG_ROW(name, fault, says) ROW("wrong_" #name, says, launch_##name),
static const struct attn_impl table[] = {
    ROW("right_cpu", "right: plain tiled fp32 attention", launch_right),
    {.abi = ATTN_ABI,
     .name = "forward_cpu",
     .summary = "right, forward alone",
     .platform = ATTN_CPU,
     .accepts = accepts_forward,
     .workspace_bytes = workspace_bytes,
     .prepare = prepare,
     .launch = launch_right,
     .release = free},
    {.abi = ATTN_ABI,
     .name = "unordered_cpu",
     .summary = "right, but for --deterministic",
     .platform = ATTN_CPU,
     .accepts = accepts_any_order,
     .workspace_bytes = workspace_bytes,
     .prepare = prepare,
     .launch = launch_right,
     .release = free},
    FAULTS(WRONG_ROW){.name = NULL},
};

const struct attn_impl *fabench_impls(int abi) { return abi == ATTN_ABI ? table : NULL; }
