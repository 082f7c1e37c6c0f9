/* The tiles of the fused CPU path: the source of struct cpu_kernels, included by tiles.c after vector.h,
 * which says what a vector is; the products are in products.h. Everything is static.
 *
 * Forward (Dao 2023, algorithm 1). One call owns a tile of rows and walks over the keys:
 *     S^T = K Q^T     rows of the tile along the vector lanes, so max and sum over keys need no horizontal steps
 *     P^T = exp(scale S^T - scale max), running max and sum, O = diag(exp(old max - new max)) O + P V
 *
 * Backward (algorithm 2, kv outside). One call owns a tile of keys and walks over the rows of every query head of its
 * group:
 *     S = Q K^T, dP = dO V^T, P = exp(scale S - LSE), dS = P (dP - D),
 *     dV += P^T dO, dK += dS^T Q, dQ += dS K
 * dQ is the only output that several calls share: they add to it in a fixed order (cpu_kernels.h, dq_semaphore).
 *
 * Padding. Rows and keys of the last tiles and head dimensions that are no multiple of LANES are copied into zero
 * padded scratch; full contiguous tiles are read in place.
 */
#include <float.h>
#include <math.h>
#include <sched.h>
#include <string.h>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/products.h"

_Static_assert(FORWARD_ROWS % PANEL == 0 && FORWARD_ROWS % BLOCK_M == 0 && FORWARD_COLS % BLOCK_M == 0,
               "forward tiles are whole panels and register blocks");
_Static_assert(BACKWARD_ROWS % BLOCK_M == 0 && BACKWARD_COLS % BLOCK_M == 0 && BACKWARD_COLS % PANEL == 0,
               "backward tiles are whole panels and register blocks");

static inline int64_t round_up(int64_t x, int64_t step) { return (x + step - 1) / step * step; }

/* ---- operands ---------------------------------------------------------------------------------------------------- */

struct view {
    const float *data;
    int64_t stride;
};

/* `count` rows of d floats as rows whose number is a multiple of BLOCK_M and whose length is one of LANES: in place
 * where they are that already and lie together, else as a zero padded copy. */
CPU_TARGET static struct view view_rows(const float *from, int64_t stride, int64_t count, int64_t d, float *copy)
{
    const int64_t width = round_up(d, LANES), height = round_up(count, BLOCK_M);
    if (stride == width && d == width && count == height)
        return (struct view){from, stride};
    for (int64_t i = 0; i < height; i++) {
        const int64_t used = i < count ? d : 0;
        if (used)
            memcpy(copy + i * width, from + i * stride, (size_t)d * sizeof *copy);
        memset(copy + i * width + used, 0, (size_t)(width - used) * sizeof *copy);
    }
    return (struct view){copy, width};
}

/* `count` rows of d floats, transposed into panels [panel][d][PANEL] that cover `padded` columns, times `sign`. */
CPU_TARGET static void pack_transposed(const float *from, int64_t stride, int64_t count, int64_t padded, int64_t d,
                                       float sign, float *panels)
{
    for (int64_t first = 0; first < padded; first += PANEL, panels += d * PANEL)
        for (int64_t i = 0; i < PANEL; i++) {
            const float *row = from + (first + i) * stride;
            if (first + i < count)
                for (int64_t t = 0; t < d; t++)
                    panels[t * PANEL + i] = sign * row[t];
            else
                for (int64_t t = 0; t < d; t++)
                    panels[t * PANEL + i] = 0.0f;
        }
}

/* The visible keys of each row, relative to col0 and cut to the tile, as floats that v_between compares. Rows beyond
 * `rows` see nothing. */
CPU_TARGET static void visible_ranges(const struct attn_problem *p, int64_t row0, int64_t rows, int64_t padded,
                                      int64_t col0, int64_t cols, float *low, float *high)
{
    for (int64_t i = 0; i < padded; i++) {
        int64_t first = col0 + cols, last = col0 - 1;
        if (i < rows)
            attn_visible(p, row0 + i, &first, &last);
        const int64_t from = first - col0, to = last - col0;
        low[i] = (float)(from < 0 ? 0 : from > cols ? cols : from);
        high[i] = (float)(to < -1 ? -1 : to >= cols ? cols - 1 : to);
    }
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

struct forward {
    const struct cpu_forward_tile *tile;
    int64_t d, v_d, width, v_width;         /* head dims of Q and K, of V; in whole vectors */
    int64_t padded_rows, lanes;             /* lanes: padded rows in whole panels */
    float scale;                            /* > 0; a negative one is in the sign of Q^T */
    float *qt;                              /* [lanes / PANEL][d][PANEL] */
    float *o;                               /* [FORWARD_ROWS][v_width] */
    float *st;                              /* [FORWARD_COLS][FORWARD_ROWS] */
    float *max, *sum, *factor, *low, *high; /* [FORWARD_ROWS]; max is that of scale * S */
    float *k_copy, *v_copy;                 /* [FORWARD_COLS][width], [FORWARD_COLS][v_width] */
};

static size_t forward_scratch_floats(int64_t d, int64_t v_d)
{
    const int64_t width = round_up(d, LANES), v_width = round_up(v_d, LANES);
    return (size_t)(FORWARD_ROWS * d + FORWARD_ROWS * v_width + FORWARD_COLS * FORWARD_ROWS + 5 * FORWARD_ROWS +
                    FORWARD_COLS * (width + v_width));
}

static struct forward forward_state(const struct cpu_forward_tile *tile)
{
    struct forward s = {.tile = tile, .d = tile->problem->head_dim, .v_d = attn_v_head_dim(tile->problem)};
    s.width = round_up(s.d, LANES);
    s.v_width = round_up(s.v_d, LANES);
    s.padded_rows = round_up(tile->rows, BLOCK_M);
    s.lanes = round_up(s.padded_rows, PANEL);
    /* Not zero: a masked score of -infinity times the scale has to stay -infinity. */
    s.scale = fmaxf(fabsf(tile->problem->scale), FLT_MIN);
    s.qt = tile->scratch;
    s.o = s.qt + FORWARD_ROWS * s.d;
    s.st = s.o + FORWARD_ROWS * s.v_width;
    s.max = s.st + FORWARD_COLS * FORWARD_ROWS;
    s.sum = s.max + FORWARD_ROWS;
    s.factor = s.sum + FORWARD_ROWS;
    s.low = s.factor + FORWARD_ROWS;
    s.high = s.low + FORWARD_ROWS;
    s.k_copy = s.high + FORWARD_ROWS;
    s.v_copy = s.k_copy + FORWARD_COLS * s.width;
    return s;
}

CPU_TARGET static void mask_scores(const struct forward *s, int64_t cols)
{
    const vec masked = v_set(-INFINITY);
    for (int64_t c = 0; c < cols; c++)
        for (int64_t r = 0; r < s->lanes; r += LANES) {
            float *at = s->st + c * FORWARD_ROWS + r;
            v_store(at, v_between(v_load(s->low + r), v_set((float)c), v_load(s->high + r), v_load(at), masked));
        }
}

/* Scores to probabilities relative to the running maximum; factor = what O and the old sum must be multiplied by. */
CPU_TARGET static void online_softmax(const struct forward *s, int64_t cols)
{
    const vec scale = v_set(s->scale), nothing = v_set(-INFINITY);
    for (int64_t r = 0; r < s->lanes; r += LANES) {
        float *scores = s->st + r;
        vec max = nothing, other = nothing;
        int64_t c = 0;
        for (; c + 2 <= cols; c += 2) {
            max = v_max(v_load(scores + c * FORWARD_ROWS), max);
            other = v_max(v_load(scores + (c + 1) * FORWARD_ROWS), other);
        }
        if (c < cols)
            max = v_max(v_load(scores + c * FORWARD_ROWS), max);
        const vec old = v_load(s->max + r);
        max = v_max(v_mul(v_max(max, other), scale), old);
        v_store(s->max + r, max);
        /* A row that has seen nothing yet is measured from 0 instead of -infinity; its exponentials are all 0. */
        const vec from = v_between(nothing, max, nothing, v_set(0.0f), max);
        const vec minus = v_sub(v_set(0.0f), from), factor = v_exp(v_sub(old, from));
        vec sum = v_set(0.0f);
        for (c = 0; c < cols; c++) {
            const vec p = v_exp(v_fma(v_load(scores + c * FORWARD_ROWS), scale, minus));
            v_store(scores + c * FORWARD_ROWS, p);
            sum = v_add(sum, p);
        }
        v_store(s->sum + r, v_fma(v_load(s->sum + r), factor, sum));
        v_store(s->factor + r, factor);
    }
}

/* Softcap, bias and block mask, before the other masks: what is scaled afterwards is divided by the scale. */
CPU_TARGET static void cap_scores(const struct forward *s, int64_t col0, int64_t cols)
{
    const struct cpu_forward_tile *t = s->tile;
    const float cap = t->problem->softcap;
    for (int64_t c = 0; c < cols; c++)
        for (int64_t r = 0; r < t->rows; r++) {
            float *at = s->st + c * FORWARD_ROWS + r;
            if (cap != 0.0f)
                *at = cap / s->scale * tanhf(s->scale * *at / cap);
            *at += cpu_added(t->problem, &t->place, 0, t->row0 + r, col0 + c) / s->scale;
            if (!attn_block_is_visible(t->place.whole, t->place.block_mask, t->place.batch, t->place.head, t->row0 + r,
                                       col0 + c))
                *at = -INFINITY;
        }
}

/* Dropout of the exponentials, whose sum has been taken. */
CPU_TARGET static void drop_scores(const struct forward *s, int64_t col0, int64_t cols)
{
    const struct cpu_forward_tile *t = s->tile;
    for (int64_t c = 0; c < cols; c++)
        for (int64_t r = 0; r < t->rows; r++)
            s->st[c * FORWARD_ROWS + r] *=
                attn_dropout_factor(t->problem, t->place.batch, t->place.head, t->row0 + r, col0 + c);
}

/* The keys [col0, col0 + cols) of K or V as view_rows gives them; where they lie in pages always as a copy. */
CPU_TARGET static struct view view_keys(const struct forward *s, int64_t d, const float *from, int64_t stride,
                                        int64_t page_stride, int64_t col0, int64_t cols, float *copy)
{
    const struct cpu_pages *pages = &s->tile->pages;
    const int64_t height = round_up(cols, BLOCK_M), width = round_up(d, LANES);
    if (!pages->table)
        return view_rows(from + col0 * stride, stride, cols, d, copy);
    memset(copy, 0, (size_t)(height * width) * sizeof *copy);
    for (int64_t i = 0; i < cols; i++) {
        const int64_t key = col0 + i, page = pages->table[key / pages->size];
        memcpy(copy + i * width, from + page * page_stride + key % pages->size * stride, (size_t)d * sizeof *copy);
    }
    return (struct view){copy, width};
}

CPU_TARGET static void forward_step(const struct forward *s, int64_t col0, int64_t cols)
{
    const struct cpu_forward_tile *t = s->tile;
    const struct view k = view_keys(s, s->d, t->k, t->k_stride, t->pages.k_stride, col0, cols, s->k_copy);
    const struct view v = view_keys(s, s->v_d, t->v, t->v_stride, t->pages.v_stride, col0, cols, s->v_copy);
    multiply_rows(&(struct product){.m = round_up(cols, BLOCK_M),
                                    .n = s->lanes,
                                    .k = s->d,
                                    .a = k.data,
                                    .a_stride = k.stride,
                                    .b = s->qt,
                                    .b_stride = PANEL,
                                    .b_panel = s->d * PANEL,
                                    .c = s->st,
                                    .c_stride = FORWARD_ROWS});
    if (cpu_has_attributes(t->problem))
        cap_scores(s, col0, cols);
    if (!cpu_sees_all(t->problem, t->row0, t->rows, col0, cols)) {
        visible_ranges(t->problem, t->row0, t->rows, s->lanes, col0, cols, s->low, s->high);
        mask_scores(s, cols);
    }
    online_softmax(s, cols);
    if (t->problem->dropout != 0.0f)
        drop_scores(s, col0, cols);
    multiply_columns(&(struct product){.m = s->padded_rows,
                                       .n = s->v_width,
                                       .k = cols,
                                       .a = s->st,
                                       .a_stride = FORWARD_ROWS,
                                       .b = v.data,
                                       .b_stride = v.stride,
                                       .b_panel = PANEL,
                                       .c = s->o,
                                       .c_stride = s->v_width},
                     s->factor);
}

CPU_TARGET static void write_lse(const struct cpu_forward_tile *t, int64_t row, double lse)
{
    if (t->lse)
        t->lse[row] = (float)lse;
}

/* O = O / sum and LSE. The exponentials were taken relative to the rounded product that `max` holds, so LSE is max + ln
 * sum without an error of that rounding, and as good for huge logits as for small ones. */
CPU_TARGET static void forward_finish(const struct forward *s)
{
    const struct cpu_forward_tile *t = s->tile;
    for (int64_t r = 0; r < t->rows; r++) {
        float *o = t->o + r * t->o_stride;
        const float *sums = s->o + r * s->v_width;
        const double top = fmax((double)s->max[r], (double)t->sink); /* the larger logit, of a row with a sink */
        if (t->sink != -INFINITY && s->sum[r] == s->sum[r]) {
            const double share = s->sum[r] == 0 ? 0 : exp((double)s->max[r] - top);
            const double sum = share * (double)s->sum[r] + exp((double)t->sink - top);
            for (int64_t c = 0; c < s->v_d; c++)
                o[c] = (float)((double)sums[c] * (share / sum));
            write_lse(t, r, top + log(sum));
            continue;
        }
        if (s->sum[r] == 0) { /* not by the maximum, which does not see a NaN */
            memset(o, 0, (size_t)s->v_d * sizeof *o);
            write_lse(t, r, -INFINITY);
            continue;
        }
        const float inverse = 1.0f / s->sum[r];
        for (int64_t c = 0; c < s->v_d; c++)
            o[c] = sums[c] * inverse;
        write_lse(t, r, (double)s->max[r] + log((double)s->sum[r]));
    }
}

CPU_TARGET static void forward_tile(const struct cpu_forward_tile *tile)
{
    const struct forward s = forward_state(tile);
    const struct attn_problem *p = tile->problem;
    pack_transposed(tile->q, tile->q_stride, tile->rows, s.lanes, s.d, p->scale < 0 ? -1.0f : 1.0f, s.qt);
    memset(s.o, 0, (size_t)(s.padded_rows * s.v_width) * sizeof *s.o);
    for (int64_t r = 0; r < s.lanes; r++) {
        s.max[r] = -INFINITY;
        s.sum[r] = 0.0f;
    }
    int64_t first, last;
    cpu_visible_columns(p, tile->row0, tile->rows, &first, &last);
    first = first > tile->key0 ? first : tile->key0;
    last = last < tile->key1 ? last : tile->key1 - 1;
    for (int64_t col0 = first / FORWARD_COLS * FORWARD_COLS; col0 <= last; col0 += FORWARD_COLS) {
        const int64_t left = tile->key1 - col0;
        forward_step(&s, col0, left < FORWARD_COLS ? left : FORWARD_COLS);
    }
    forward_finish(&s);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

struct backward {
    const struct cpu_backward_column *column;
    int64_t d, v_d, width, v_width, padded_cols, lanes;
    float *kt, *vt;                   /* [lanes / PANEL][d][PANEL], [lanes / PANEL][v_d][PANEL] */
    float *dk, *dv;                   /* [BACKWARD_COLS][width], without the scale; [BACKWARD_COLS][v_width] */
    float *p, *ds;                    /* [BACKWARD_ROWS][BACKWARD_COLS] */
    float *dq;                        /* [BACKWARD_ROWS][width], this column's part */
    float *k_copy, *q_copy, *do_copy; /* [BACKWARD_COLS or _ROWS][width], dO's [BACKWARD_ROWS][v_width] */
    float *low, *high;                /* [BACKWARD_ROWS] */
    float *ones;                      /* [BACKWARD_COLS] */
    struct view k;
};

static size_t backward_scratch_floats(int64_t d, int64_t v_d)
{
    const int64_t width = round_up(d, LANES), v_width = round_up(v_d, LANES);
    return (size_t)(BACKWARD_COLS * (d + v_d) + BACKWARD_COLS * (2 * width + v_width) +
                    2 * BACKWARD_ROWS * BACKWARD_COLS + BACKWARD_ROWS * (2 * width + v_width) + 2 * BACKWARD_ROWS +
                    BACKWARD_COLS);
}

static struct backward backward_state(const struct cpu_backward_column *column)
{
    struct backward s = {.column = column, .d = column->problem->head_dim, .v_d = attn_v_head_dim(column->problem)};
    s.width = round_up(s.d, LANES);
    s.v_width = round_up(s.v_d, LANES);
    s.padded_cols = round_up(column->cols, BLOCK_M);
    s.lanes = round_up(s.padded_cols, LANES);
    s.kt = column->scratch;
    s.vt = s.kt + BACKWARD_COLS * s.d;
    s.dk = s.vt + BACKWARD_COLS * s.v_d;
    s.dv = s.dk + BACKWARD_COLS * s.width;
    s.k_copy = s.dv + BACKWARD_COLS * s.v_width;
    s.p = s.k_copy + BACKWARD_COLS * s.width;
    s.ds = s.p + BACKWARD_ROWS * BACKWARD_COLS;
    s.dq = s.ds + BACKWARD_ROWS * BACKWARD_COLS;
    s.q_copy = s.dq + BACKWARD_ROWS * s.width;
    s.do_copy = s.q_copy + BACKWARD_ROWS * s.width;
    s.low = s.do_copy + BACKWARD_ROWS * s.v_width;
    s.high = s.low + BACKWARD_ROWS;
    s.ones = s.high + BACKWARD_ROWS;
    return s;
}

/* From S and dP to P and dS, in place. lse and delta: of the tile's first row. */
CPU_TARGET static void score_gradients(const struct backward *s, const float *lse, const float *delta, int64_t row0,
                                       int64_t rows)
{
    const struct cpu_backward_column *t = s->column;
    const vec scale = v_set(t->problem->scale), zero = v_set(0.0f);
    const bool all = t->cols == s->lanes && cpu_sees_all(t->problem, row0, rows, t->col0, t->cols);
    float lane[LANES];
    for (int i = 0; i < LANES; i++)
        lane[i] = (float)i;
    if (!all)
        visible_ranges(t->problem, row0, rows, rows, t->col0, t->cols, s->low, s->high);
    for (int64_t r = 0; r < rows; r++) {
        const vec minus_lse = v_set(-lse[r]), d = v_set(delta[r]);
        for (int64_t c = 0; c < s->lanes; c += LANES) {
            float *p_at = s->p + r * BACKWARD_COLS + c, *ds_at = s->ds + r * BACKWARD_COLS + c;
            vec p = v_exp(v_fma(v_load(p_at), scale, minus_lse));
            if (!all)
                p = v_between(v_set(s->low[r]), v_add(v_load(lane), v_set((float)c)), v_set(s->high[r]), p, zero);
            v_store(p_at, p);
            v_store(ds_at, v_mul(p, v_sub(v_load(ds_at), d)));
        }
    }
}

/* The derivative of the softcap: 1 - tanh(x / cap)^2 without a difference of nearly equal numbers. */
CPU_INLINE float softcap_slope(float x, float cap)
{
    const float power = expf(-2.0f * fabsf(x / cap)), sum = 1.0f + power;
    return 4.0f * power / (sum * sum);
}

/* The same with softcap, dropout and a block mask: P becomes what is kept of it. Element by element. */
CPU_TARGET static void attribute_gradients(const struct backward *s, int64_t head, const float *lse, const float *delta,
                                           int64_t row0, int64_t rows)
{
    const struct cpu_backward_column *t = s->column;
    const struct attn_problem *p = t->problem;
    for (int64_t r = 0; r < rows; r++) {
        int64_t first, last;
        attn_visible(p, row0 + r, &first, &last);
        for (int64_t c = 0; c < s->lanes; c++) {
            float *p_at = s->p + r * BACKWARD_COLS + c, *ds_at = s->ds + r * BACKWARD_COLS + c;
            const int64_t key = t->col0 + c;
            if (c >= t->cols || key < first || key > last ||
                !attn_block_is_visible(t->place.whole, t->place.block_mask, t->place.batch, t->place.head + head,
                                       row0 + r, key)) {
                *p_at = *ds_at = 0.0f;
                continue;
            }
            const float product = p->scale * *p_at, cap = p->softcap;
            const float logit = cap != 0.0f ? cap * tanhf(product / cap) : product;
            const float slope = cap != 0.0f ? softcap_slope(product, cap) : 1.0f;
            const float probability = expf(logit + cpu_added(p, &t->place, head, row0 + r, key) - lse[r]);
            const float kept = attn_dropout_factor(p, t->place.batch, t->place.head + head, row0 + r, key);
            *p_at = kept * probability;
            const float ds = probability * (kept * *ds_at - delta[r]);
            *ds_at = ds * slope;
            if (t->place.dbias)
                t->place.dbias[attn_bias_offset(t->place.whole, t->place.dbias_strides, t->place.batch,
                                                t->place.head + head, row0 + r) +
                               key] += ds;
        }
    }
}

CPU_INLINE void wait_a_little(unsigned spins)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    if (spins % 64 == 63)
        sched_yield();
}

/* Adds scale * s->dq to these rows of dQ when every earlier column has. */
CPU_TARGET static void add_dq_in_order(const struct backward *s, float *dq, int64_t rows, int32_t *dq_semaphore)
{
    const struct cpu_backward_column *t = s->column;
    const int32_t column = (int32_t)(t->col0 / BACKWARD_COLS);
    for (unsigned spins = 0; __atomic_load_n(dq_semaphore, __ATOMIC_ACQUIRE) != column; spins++)
        wait_a_little(spins);
    const float scale = t->problem->scale;
    for (int64_t r = 0; r < rows; r++) {
        float *to = dq + r * t->dq_stride;
        const float *from = s->dq + r * s->width;
        int64_t c = 0;
        for (; c + LANES <= s->d; c += LANES)
            v_store(to + c, v_fma(v_set(scale), v_load(from + c), v_load(to + c)));
        for (; c < s->d; c++)
            to[c] += scale * from[c];
    }
    __atomic_store_n(dq_semaphore, column + 1, __ATOMIC_RELEASE);
}

CPU_TARGET static void backward_step(const struct backward *s, int64_t head, int64_t row0, int64_t rows,
                                     int32_t *dq_semaphore)
{
    const struct cpu_backward_column *t = s->column;
    const int64_t padded_rows = round_up(rows, BLOCK_M);
    const struct view q = view_rows(t->q + head * t->q_head + row0 * t->q_stride, t->q_stride, rows, s->d, s->q_copy);
    const struct view dout =
        view_rows(t->dout + head * t->dout_head + row0 * t->dout_stride, t->dout_stride, rows, s->v_d, s->do_copy);
    struct product scores = {.m = padded_rows,
                             .n = s->lanes,
                             .k = s->d,
                             .a = q.data,
                             .a_stride = q.stride,
                             .b = s->kt,
                             .b_stride = PANEL,
                             .b_panel = s->d * PANEL,
                             .c = s->p,
                             .c_stride = BACKWARD_COLS};
    multiply_rows(&scores);
    scores.k = s->v_d;
    scores.a = dout.data;
    scores.a_stride = dout.stride;
    scores.b = s->vt;
    scores.b_panel = s->v_d * PANEL;
    scores.c = s->ds;
    multiply_rows(&scores);
    const float *lse = t->lse + head * t->lse_head + row0, *delta = t->delta + head * t->lse_head + row0;
    if (cpu_has_attributes(t->problem))
        attribute_gradients(s, head, lse, delta, row0, rows);
    else
        score_gradients(s, lse, delta, row0, rows);

    struct product gradient = {.m = s->padded_cols,
                               .n = s->v_width,
                               .k = rows,
                               .a = s->p,
                               .a_stride = BACKWARD_COLS,
                               .b = dout.data,
                               .b_stride = dout.stride,
                               .b_panel = PANEL,
                               .c = s->dv,
                               .c_stride = s->v_width};
    multiply_columns(&gradient, s->ones);
    gradient.n = gradient.c_stride = s->width;
    gradient.a = s->ds;
    gradient.b = q.data;
    gradient.b_stride = q.stride;
    gradient.c = s->dk;
    multiply_columns(&gradient, s->ones);
    multiply_rows(&(struct product){.m = padded_rows,
                                    .n = s->width,
                                    .k = t->cols,
                                    .a = s->ds,
                                    .a_stride = BACKWARD_COLS,
                                    .b = s->k.data,
                                    .b_stride = s->k.stride,
                                    .b_panel = PANEL,
                                    .c = s->dq,
                                    .c_stride = s->width});
    add_dq_in_order(s, t->dq + head * t->dq_head + row0 * t->dq_stride, rows, dq_semaphore);
}

CPU_TARGET static void backward_finish(const struct backward *s)
{
    const struct cpu_backward_column *t = s->column;
    for (int64_t i = 0; i < t->cols; i++) {
        for (int64_t c = 0; c < s->d; c++)
            t->dk[i * t->dk_stride + c] = t->problem->scale * s->dk[i * s->width + c];
        memcpy(t->dv + i * t->dv_stride, s->dv + i * s->v_width, (size_t)s->v_d * sizeof *t->dv);
    }
}

CPU_TARGET static void backward_column(const struct cpu_backward_column *column)
{
    struct backward s = backward_state(column);
    const struct attn_problem *p = column->problem;
    const int64_t row_tiles = (p->q_len + BACKWARD_ROWS - 1) / BACKWARD_ROWS;
    pack_transposed(column->k, column->k_stride, column->cols, s.lanes, s.d, 1.0f, s.kt);
    pack_transposed(column->v, column->v_stride, column->cols, s.lanes, s.v_d, 1.0f, s.vt);
    s.k = view_rows(column->k, column->k_stride, column->cols, s.d, s.k_copy);
    memset(s.dk, 0, (size_t)(s.padded_cols * s.width) * sizeof *s.dk);
    memset(s.dv, 0, (size_t)(s.padded_cols * s.v_width) * sizeof *s.dv);
    for (int i = 0; i < BACKWARD_COLS; i++)
        s.ones[i] = 1.0f;
    for (int64_t head = 0; head < column->group; head++)
        for (int64_t tile = 0; tile < row_tiles; tile++) {
            const int64_t row0 = tile * BACKWARD_ROWS, left = p->q_len - row0;
            const int64_t rows = left < BACKWARD_ROWS ? left : BACKWARD_ROWS;
            int64_t first, last;
            cpu_visible_columns(p, row0, rows, &first, &last);
            if (first < column->col0 + column->cols && column->col0 <= last)
                backward_step(&s, head, row0, rows, column->dq_semaphore + head * row_tiles + tile);
        }
    backward_finish(&s);
}

/* ---- softmax of a stored row, for the three-pass implementation -------------------------------------------------- */

CPU_TARGET static float softmax_row(float *x, int64_t n)
{
    const int64_t whole = n / LANES * LANES;
    float lane[LANES];
    for (int i = 0; i < LANES; i++)
        lane[i] = whole + i < n ? x[whole + i] : -INFINITY;
    vec maxima = v_load(lane);
    for (int64_t i = 0; i < whole; i += LANES)
        maxima = v_max(v_load(x + i), maxima);
    v_store(lane, maxima);
    float max = lane[0];
    for (int i = 1; i < LANES; i++)
        max = lane[i] > max ? lane[i] : max;

    vec even = v_set(0.0f), odd = v_set(0.0f);
    for (int64_t i = 0; i < whole; i += LANES) {
        const vec p = v_exp(v_sub(v_load(x + i), v_set(max)));
        v_store(x + i, p);
        if (i & LANES)
            odd = v_add(odd, p);
        else
            even = v_add(even, p);
    }
    for (int i = 0; i < LANES; i++)
        lane[i] = whole + i < n ? x[whole + i] : -INFINITY;
    const vec rest = v_exp(v_sub(v_load(lane), v_set(max)));
    v_store(lane, rest);
    for (int64_t i = whole; i < n; i++)
        x[i] = lane[i - whole];
    v_store(lane, v_add(v_add(even, odd), rest));
    double sum = 0;
    for (int i = 0; i < LANES; i++)
        sum += (double)lane[i];
    const float inverse = (float)(1.0 / sum);
    for (int64_t i = 0; i < n; i++)
        x[i] *= inverse;
    return (float)((double)max + log(sum));
}

static const struct cpu_kernels kernels = {
    .name = CPU_KERNELS_NAME,
    .forward_rows = FORWARD_ROWS,
    .forward_cols = FORWARD_COLS,
    .backward_rows = BACKWARD_ROWS,
    .backward_cols = BACKWARD_COLS,
    .forward_scratch_floats = forward_scratch_floats,
    .backward_scratch_floats = backward_scratch_floats,
    .forward_tile = forward_tile,
    .backward_column = backward_column,
    .softmax_row = softmax_row,
};
