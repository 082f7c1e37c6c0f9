/* naive on the CPU: what attention costs when S and P are matrices in memory and a BLAS multiplies them.
 *
 * Forward, over all heads: pass 1 "scores" S = scale Q K^T (sgemm), pass 2 "softmax" P = softmax(S) in place, zeros
 * where a key is not visible, pass 3 "output" O = P V (sgemm). All of S is in the workspace.
 *
 * Backward reads the stored P, as the frameworks do; `prepare` computes it from q and k into the plan. Four sgemm: "dv"
 * dV = P^T dO, "dp" dP = dO V^T, "ds" dS = P * (dP - D) in place with D = sum(P dP) / sum(P), "dq" dQ = scale dS K,
 * "dk" dK = scale dS^T Q.
 *
 * With dropout the plan has P * M beside P, for dV and D, and with a softcap its derivative, which dS is multiplied by.
 * Of packed rows S is [q_heads, total_q, longest kv_len].
 *
 * 8-bit inputs are copied to fp32 by a pass before, "dequantise", each element times its scale, and a cache in pages is
 * made contiguous by it, or else by the pass "gather": their values change between launches, so that it cannot be done
 * before.
 *
 * Layouts are expressed by leading dimensions, no other tensor is copied. Each thread calls the BLAS for its own slice
 * of rows or keys, with one thread inside the BLAS: that works the same for any library, and no second pool of threads
 * competes for the cores. A head is cut into as many slices as there are threads for it. */
#include "reference/registry.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu_kernels.h"
#include "reference/blas.h"
#include "reference/elements.h"

struct naive_plan {
    float *p;     /* [batch, q_heads, q_len, kv_len] */
    float *kept;  /* P * M; p without dropout */
    float *slope; /* the softcap's derivative; NULL without one */
};

enum {
    KNOWN = ATTN_WITH_WINDOW | ATTN_WITH_DROPOUT | ATTN_WITH_SOFTCAP | ATTN_WITH_PACKED_LENGTHS | ATTN_WITH_CACHE |
            ATTN_WITH_PAGES | ATTN_WITH_BLOCK_MASK | ATTN_WITH_8_BIT | ATTN_WITH_V_HEAD_DIM | ATTN_WITH_SINK |
            ATTN_WITH_DSINK | ATTN_WITH_ALIBI | ATTN_WITH_BIAS | ATTN_WITH_DBIAS | ATTN_WITH_FAST |
            ATTN_WITH_FEWER_OUTPUTS | ATTN_WITH_PACKED_ROWS | ATTN_WITH_CACHE_DTYPE
};

static int64_t rows_of_scores(const struct attn_problem *p)
{
    return p->q_heads * (attn_rows_are_packed(p) ? p->total_q : p->batch * p->q_len);
}

/* Bytes of S for all heads; false when that is more than can be addressed. */
static bool scores_bytes(const struct attn_problem *p, size_t *bytes)
{
    const bool packed = attn_rows_are_packed(p);
    size_t n;
    return !__builtin_mul_overflow(packed ? 1 : (size_t)p->batch, (size_t)p->q_heads, &n) &&
           !__builtin_mul_overflow(n, packed ? (size_t)p->total_q : (size_t)p->q_len, &n) &&
           !__builtin_mul_overflow(n, (size_t)p->kv_len, &n) && !__builtin_mul_overflow(n, sizeof(float), bytes) &&
           *bytes <= PTRDIFF_MAX;
}

static enum attn_status refuse(struct attn_message *why, const char *sentence)
{
    snprintf(why->text, sizeof why->text, "%s", sentence);
    return ATTN_UNSUPPORTED;
}

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    size_t bytes;
    enum attn_status status = attn_check_attributes(request, KNOWN, why);
    if (status != ATTN_OK)
        return status;
    if (request->device->platform != ATTN_CPU)
        return refuse(why, "runs on the CPU only");
    if ((status = cpu_accepts_types(request, why)) != ATTN_OK)
        return status;
    if (request->variant) {
        snprintf(why->text, sizeof why->text, "has no variant %.64s", request->variant);
        return ATTN_UNSUPPORTED;
    }
    if (request->mode == ATTN_BWD && p->lengths == ATTN_CACHE)
        return refuse(why, "takes a cache in the forward only");
    if (p->page_size != 0 && p->lengths != ATTN_CACHE)
        return refuse(why, "takes pages of a cache only");
    if (p->bias_heads > 0 && p->bias_dtype != ATTN_FP32)
        return refuse(why, "takes a bias in fp32 only");
    if (!scores_bytes(p, &bytes))
        return refuse(why, "S would have more bytes than can be addressed");
    if (!blas_library()) {
        snprintf(why->text, sizeof why->text, "no BLAS: %s", blas_problem());
        return ATTN_UNSUPPORTED;
    }
    return ATTN_OK;
}

static int64_t widest_of(const struct attn_problem *p)
{
    return attn_v_head_dim(p) > p->head_dim ? attn_v_head_dim(p) : p->head_dim;
}

/* Elements of K, or of V, that are gathered from pages; 0 = none: the copies of 8-bit inputs have no pages. */
static size_t gathered_elements(const struct attn_problem *p)
{
    return p->page_size > 0 && !cpu_is_widened(p)
               ? (size_t)p->batch * (size_t)p->kv_heads * (size_t)p->kv_len * (size_t)widest_of(p)
               : 0;
}

/* What each row adds to dSink, behind S; 0 = dSink is not asked for. */
static size_t sink_row_bytes(const struct attn_request *request)
{
    return attn_wanted_outputs(request) & ATTN_DSINK ? (size_t)rows_of_scores(request->problem) * sizeof(float) : 0;
}

/* S, then the copies of 8-bit inputs, or of K and V from pages, or the rows of dSink. */
static size_t workspace_bytes(const struct attn_request *request)
{
    size_t bytes = 0;
    scores_bytes(request->problem, &bytes);
    return bytes + cpu_widened_bytes(request->problem) + 2 * gathered_elements(request->problem) * sizeof(float) +
           sink_row_bytes(request);
}

static size_t plan_bytes(const struct attn_request *request, const void *plan)
{
    return plan ? workspace_bytes(request) * (request->problem->dropout != 0 ? 2 : 1) : 0;
}

/* ---- slices ------------------------------------------------------------------------------------------------------ */

/* Rows [from, from + count) of head `index`. */
struct slice {
    int64_t index, from, count;
};

static int64_t slices_per_head(int64_t heads, int threads, int64_t len)
{
    const int64_t slices = (threads + heads - 1) / heads;
    return slices < len ? slices : len;
}

static struct slice slice_of(int64_t task, int64_t slices, int64_t len)
{
    const int64_t part = task % slices, from = part * len / slices;
    return (struct slice){task / slices, from, (part + 1) * len / slices - from};
}

/* BLAS checks that a leading dimension is not less than the width, also for a single row, where it is not used. */
static int64_t leading(struct attn_tensor tensor, int64_t d) { return tensor.stride_row > d ? tensor.stride_row : d; }

/* ---- passes ------------------------------------------------------------------------------------------------------ */

struct passes {
    const struct attn_problem *p;
    const struct attn_tensors *t;
    const struct attn_run *run; /* NULL inside prepare */
    int threads;
    int64_t group;
};

static struct passes passes_of(const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run)
{
    const struct attn_problem *p = request->problem;
    blas_set_threads(1);
    return (struct passes){p, tensors, run, request->device->threads > 0 ? request->device->threads : 1,
                           p->q_heads / p->kv_heads};
}

static void begin(const struct passes *x, const char *name)
{
    if (x->run && x->run->pass)
        x->run->pass(x->run->pass_context, name);
}

/* A row of Q, O, dO, dQ, a key of K, V, dK, dV, and a row of S. */
static float *row_of(const struct passes *x, struct attn_tensor tensor, int64_t b, int64_t h, int64_t row)
{
    return (float *)tensor.data + attn_row_offset(x->p, x->t, tensor, b, h, row);
}

static float *key_of(const struct passes *x, struct attn_tensor tensor, int64_t b, int64_t h, int64_t key)
{
    return (float *)tensor.data + attn_key_offset(x->p, x->t, tensor, b, h, key);
}

static int64_t scores_of(const struct passes *x, int64_t b, int64_t h, int64_t row)
{
    return attn_lse_index(x->p, x->t, b, h, row) * x->p->kv_len;
}

static struct blas_operand operand(float *rows, struct attn_tensor tensor, int64_t d, bool transposed)
{
    return (struct blas_operand){rows, leading(tensor, d), transposed};
}

/* Zeros where a sequence has nothing to sum over. */
static void clear_rows(float *rows, struct attn_tensor tensor, int64_t count, int64_t d)
{
    for (int64_t i = 0; i < count; i++)
        memset(rows + i * tensor.stride_row, 0, (size_t)d * sizeof *rows);
}

/* s = alpha A B^T for all heads: A has q_len rows per query head, B kv_len rows per kv head, both d columns. */
static void all_pairs(const struct passes *x, int64_t d, float alpha, struct attn_tensor a, struct attn_tensor b,
                      float *s)
{
    const struct attn_problem *p = x->p;
    const int64_t heads = p->batch * p->q_heads, slices = slices_per_head(heads, x->threads, p->q_len);
#pragma omp parallel for schedule(dynamic) num_threads(x->threads)
    for (int64_t task = 0; task < heads * slices; task++) {
        const int64_t batch = task / slices / p->q_heads, h = task / slices % p->q_heads;
        const struct attn_sequence length = attn_sequence_at(p, x->t, batch);
        const struct slice at = slice_of(task, slices, length.q_len);
        if (at.count > 0 && length.kv_len > 0)
            blas_sgemm(at.count, length.kv_len, d, alpha, operand(row_of(x, a, batch, h, at.from), a, d, false),
                       operand(key_of(x, b, batch, h / x->group, 0), b, d, true), 0,
                       s + scores_of(x, batch, h, at.from), p->kv_len);
    }
}

/* out = alpha S B for all heads: out has q_len rows per query head, B kv_len rows per kv head. */
static void times_keys(const struct passes *x, int64_t d, float alpha, const float *s, struct attn_tensor b,
                       struct attn_tensor out)
{
    const struct attn_problem *p = x->p;
    const int64_t heads = p->batch * p->q_heads, slices = slices_per_head(heads, x->threads, p->q_len);
#pragma omp parallel for schedule(dynamic) num_threads(x->threads)
    for (int64_t task = 0; task < heads * slices; task++) {
        const int64_t batch = task / slices / p->q_heads, h = task / slices % p->q_heads;
        const struct attn_sequence length = attn_sequence_at(p, x->t, batch);
        const struct slice at = slice_of(task, slices, length.q_len);
        float *rows = row_of(x, out, batch, h, at.from);
        if (at.count > 0 && length.kv_len > 0)
            blas_sgemm(at.count, d, length.kv_len, alpha,
                       (struct blas_operand){s + scores_of(x, batch, h, at.from), p->kv_len, false},
                       operand(key_of(x, b, batch, h / x->group, 0), b, d, false), 0, rows, leading(out, d));
        else
            clear_rows(rows, out, at.count, d);
    }
}

/* out = alpha S^T B, summed over the query heads of each kv head: out has kv_len rows, B q_len rows per query head. */
static void times_rows(const struct passes *x, int64_t d, float alpha, const float *s, struct attn_tensor b,
                       struct attn_tensor out)
{
    const struct attn_problem *p = x->p;
    const int64_t heads = p->batch * p->kv_heads, slices = slices_per_head(heads, x->threads, p->kv_len);
#pragma omp parallel for schedule(dynamic) num_threads(x->threads)
    for (int64_t task = 0; task < heads * slices; task++) {
        const int64_t batch = task / slices / p->kv_heads, h = task / slices % p->kv_heads;
        const struct attn_sequence length = attn_sequence_at(p, x->t, batch);
        const struct slice at = slice_of(task, slices, length.kv_len);
        float *keys = key_of(x, out, batch, h, at.from);
        if (at.count == 0 || length.q_len == 0) {
            clear_rows(keys, out, at.count, d);
            continue;
        }
        for (int64_t g = 0; g < x->group; g++) {
            const int64_t q_head = h * x->group + g;
            blas_sgemm(at.count, d, length.q_len, alpha,
                       (struct blas_operand){s + scores_of(x, batch, q_head, 0) + at.from, p->kv_len, true},
                       operand(row_of(x, b, batch, q_head, 0), b, d, false), g == 0 ? 0.0f : 1.0f, keys,
                       leading(out, d));
        }
    }
}

/* One row of the whole problem: its sequence, with the lengths of that sequence. */
struct score_row {
    int64_t b, h, row;
    struct attn_problem one;
    float *at; /* of S */
};

/* Row n of [batch, q_heads, q_len]; false where the sequence is shorter. */
static bool score_row(const struct passes *x, int64_t n, float *s, struct score_row *r)
{
    const struct attn_problem *p = x->p;
    *r = (struct score_row){n / p->q_len / p->q_heads, n / p->q_len % p->q_heads, n % p->q_len, *p, NULL};
    const struct attn_sequence at = attn_sequence_at(p, x->t, r->b);
    r->one.q_len = at.q_len;
    r->one.kv_len = at.kv_len;
    if (r->row >= at.q_len)
        return false;
    r->at = s + scores_of(x, r->b, r->h, r->row);
    return true;
}

/* Softcap, bias and block mask of the keys [first, last]; false when none of them is seen. slope: where the softcap's
 * derivatives of the row go, NULL = nowhere. */
static bool cap_row(const struct passes *x, const struct score_row *r, int64_t first, int64_t last, float *slope)
{
    const float cap = x->p->softcap;
    bool sees = x->p->mask_block == 0 && first <= last;
    for (int64_t j = first; j <= last && slope; j++)
        slope[j] = element_slope(r->at[j], cap);
    for (int64_t j = first; j <= last && cap != 0.0f; j++)
        r->at[j] = element_capped(r->at[j], cap);
    for (int64_t j = first; j <= last && (x->p->has_alibi || x->p->bias_heads > 0); j++)
        r->at[j] += element_added(x->p, x->t, r->b, r->h, r->one.q_len, r->one.kv_len, r->row, j);
    for (int64_t j = first; j <= last && x->p->mask_block != 0; j++) {
        const bool is_visible = attn_block_is_visible(x->p, x->t->block_mask, r->b, r->h, r->row, j);
        r->at[j] = is_visible ? r->at[j] : -INFINITY;
        sees |= is_visible;
    }
    return sees;
}

/* Makes P of a row that of a row with a sink, and returns its LSE. */
static float add_sink(float sink, float *row, int64_t count, float lse)
{
    const double low = fmin((double)sink, (double)lse), high = fmax((double)sink, (double)lse);
    const double sum = high + log1p(exp(low - high)), factor = exp((double)lse - sum);
    for (int64_t j = 0; j < count; j++)
        row[j] *= (float)factor;
    return (float)sum;
}

/* Pass 2. lse and slope may be NULL. kept: where P * M goes; s, or a matrix of its own. */
static void softmax(const struct passes *x, float *s, float *kept, float *slope, float *lse)
{
    const struct attn_problem *p = x->p;
    const struct cpu_kernels *kernels = cpu_kernels_best();
    const int64_t rows = p->batch * p->q_heads * p->q_len;
#pragma omp parallel for schedule(static) num_threads(x->threads)
    for (int64_t n = 0; n < rows; n++) {
        struct score_row r;
        int64_t first, last;
        if (!score_row(x, n, s, &r))
            continue;
        attn_visible(&r.one, r.row, &first, &last);
        const bool sees = cap_row(x, &r, first, last, slope ? slope + (r.at - s) : NULL);
        const int64_t from = sees ? first : 0, seen = sees ? last + 1 - first : 0, end = from + seen;
        float row_lse = sees ? kernels->softmax_row(r.at + from, seen) : -INFINITY;
        if (x->t->sink)
            row_lse = add_sink(x->t->sink[r.h], r.at + from, seen, row_lse);
        memset(r.at, 0, (size_t)from * sizeof *r.at);
        memset(r.at + end, 0, (size_t)(r.one.kv_len - end) * sizeof *r.at);
        if (lse)
            lse[attn_lse_index(p, x->t, r.b, r.h, r.row)] = row_lse;
        float *to = kept + (r.at - s);
        for (int64_t j = 0; j < r.one.kv_len && p->dropout != 0.0f; j++)
            to[j] = r.at[j] * attn_dropout_factor(p, r.b, r.h, r.row, j);
    }
}

/* dSink = - sum of what its rows have, row after row. */
static void sum_sinks(const struct passes *x, const float *sink_rows)
{
    const struct attn_problem *p = x->p;
    for (int64_t h = 0; h < p->q_heads; h++) {
        double sum = 0;
        for (int64_t b = 0; b < p->batch; b++)
            for (int64_t i = 0; i < attn_sequence_at(p, x->t, b).q_len; i++)
                sum += (double)sink_rows[attn_lse_index(p, x->t, b, h, i)];
        x->t->dsink[h] = (float)-sum;
    }
}

/* sink_rows: where each row of dP leaves its part of -dSink; NULL = nobody asks. */
static void score_gradients(const struct passes *x, const struct naive_plan *plan, float *dp, float *sink_rows)
{
    const struct attn_problem *p = x->p;
    const int64_t rows = p->batch * p->q_heads * p->q_len;
#pragma omp parallel for schedule(static) num_threads(x->threads)
    for (int64_t n = 0; n < rows; n++) {
        struct score_row r;
        if (!score_row(x, n, dp, &r))
            continue;
        const float *prob = plan->p + (r.at - dp), *kept = plan->kept + (r.at - dp);
        const bool drops = p->dropout != 0.0f;
        float *at = r.at, sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
        for (int64_t j = 0; j < r.one.kv_len; j++) {
            sum += prob[j];
            dot += kept[j] * at[j];
        }
        const int64_t place = attn_lse_index(p, x->t, r.b, r.h, r.row);
        const float share =
            x->t->sink ? expf(x->t->sink[r.h] - x->t->lse[place]) : 0.0f; /* the sink's of the sum of P */
        const float d = sum > 0 ? dot / (sum + share) : 0.0f;
        if (sink_rows)
            sink_rows[place] = share * d;
#pragma omp simd
        for (int64_t j = 0; j < r.one.kv_len; j++)
            at[j] = drops ? kept[j] * at[j] - prob[j] * d : prob[j] * (at[j] - d);
    }
}

/* Softcap: dS times its derivative. */
static void apply_slopes(const struct passes *x, const struct naive_plan *plan, float *ds)
{
    const struct attn_problem *p = x->p;
    const int64_t rows = p->batch * p->q_heads * p->q_len;
#pragma omp parallel for schedule(static) num_threads(x->threads)
    for (int64_t n = 0; n < rows; n++) {
        struct score_row r;
        if (!score_row(x, n, ds, &r))
            continue;
        const float *prob = plan->p + (r.at - ds), *slope = plan->slope + (r.at - ds);
        for (int64_t j = 0; j < r.one.kv_len; j++)
            r.at[j] = prob[j] != 0 ? r.at[j] * slope[j] : 0.0f; /* where a key is not visible there is no slope */
    }
}

/* A row of dBias: dS of what shares it, in the order of sequences and heads. */
static void sum_bias_row(const struct passes *x, const float *ds, int64_t bias_b, int64_t bias_head, int64_t row)
{
    const struct attn_problem *p = x->p;
    float *const to = (float *)x->t->dbias.data + attn_bias_offset(p, x->t->dbias, bias_b, bias_head, row);
    memset(to, 0, (size_t)p->kv_len * sizeof *to);
    for (int64_t b = bias_b; b < (p->bias_batch > 1 ? bias_b + 1 : p->batch); b++) {
        const struct attn_sequence at = attn_sequence_at(p, x->t, b);
        for (int64_t h = bias_head; row < at.q_len && h < (p->bias_heads > 1 ? bias_head + 1 : p->q_heads); h++) {
            const float *const from = ds + scores_of(x, b, h, row);
            for (int64_t j = 0; j < at.kv_len; j++)
                to[j] += from[j];
        }
    }
}

static void sum_biases(const struct passes *x, const float *ds)
{
    const struct attn_problem *p = x->p;
    const int64_t rows = p->bias_batch * p->bias_heads * p->q_len;
#pragma omp parallel for schedule(static) num_threads(x->threads)
    for (int64_t n = 0; n < rows; n++)
        sum_bias_row(x, ds, n / p->q_len / p->bias_heads, n / p->q_len % p->bias_heads, n % p->q_len);
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

/* K and V of a paged cache as [batch, kv_heads, kv_len, head_dim]; what is behind the used keys is not written. */
static void gather(const struct passes *x, int64_t d, struct attn_tensor from, struct attn_tensor to)
{
    const struct attn_problem *p = x->p;
    const int64_t heads = p->batch * p->kv_heads;
#pragma omp parallel for schedule(dynamic) num_threads(x->threads)
    for (int64_t n = 0; n < heads; n++) {
        const int64_t b = n / p->kv_heads, h = n % p->kv_heads;
        float *row = (float *)to.data + b * to.stride_batch + h * to.stride_head;
        for (int64_t j = 0; j < x->t->seqused_k[b]; j++, row += to.stride_row)
            memcpy(row, key_of(x, from, b, h, j), (size_t)d * sizeof *row);
    }
}

/* Gathers K and V, and makes the problem and the tensors those of a contiguous cache. */
static void gather_cache(const struct passes *x, float *memory, struct attn_problem *p, struct attn_tensors *t)
{
    struct attn_tensor *const both[] = {&t->k, &t->v};
    for (int i = 0; i < 2; i++, memory += gathered_elements(x->p)) {
        const int64_t d = i == 0 ? p->head_dim : attn_v_head_dim(p);
        const struct attn_tensor from = *both[i];
        *both[i] = (struct attn_tensor){memory, p->kv_heads * p->kv_len * d, p->kv_len * d, d};
        gather(x, d, from, *both[i]);
    }
    t->page_table = NULL;
    p->page_size = p->pages = 0;
}

/* ---- the implementation ------------------------------------------------------------------------------------------ */

static enum attn_status check_strides(const struct attn_tensors *t, struct attn_message *why)
{
    const struct attn_tensor all[] = {t->q, t->k, t->v, t->o, t->dout, t->dq, t->dk, t->dv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].data && all[i].stride_row > INT32_MAX)
            return refuse(why, "BLAS takes 32-bit leading dimensions, and a row stride is larger");
    return ATTN_OK;
}

static void release(void *plan)
{
    struct naive_plan *made = plan;
    if (made && made->kept != made->p)
        free(made->kept);
    if (made) {
        free(made->slope);
        free(made->p);
    }
    free(made);
}

static enum attn_status prepare(const struct attn_request *request, const struct attn_tensors *tensors, void **plan,
                                struct attn_message *why)
{
    *plan = NULL;
    const enum attn_status status = check_strides(tensors, why);
    if (status != ATTN_OK || request->mode == ATTN_FWD)
        return status;
    const size_t bytes = workspace_bytes(request);
    struct naive_plan *made = calloc(1, sizeof *made);
    const bool drops = request->problem->dropout != 0, caps = request->problem->softcap != 0;
    if (made) {
        made->p = malloc(bytes);
        made->kept = drops ? malloc(bytes) : made->p;
        made->slope = caps ? malloc(bytes) : NULL;
    }
    if (!made || !made->p || !made->kept || (caps && !made->slope)) {
        release(made);
        snprintf(why->text, sizeof why->text, "P needs %.1f GB of host memory",
                 (1 + drops + caps) * (double)bytes / 1e9);
        return ATTN_NO_MEMORY;
    }
    const struct passes x = passes_of(request, tensors, NULL);
    all_pairs(&x, request->problem->head_dim, request->problem->scale, tensors->q, tensors->k, made->p);
    softmax(&x, made->p, made->kept, made->slope, NULL);
    *plan = made;
    return ATTN_OK;
}

static void forward(struct passes *x, const struct attn_request *request, float *s)
{
    const struct attn_tensors *asked = x->t;
    const bool has_8_bits = cpu_is_widened(x->p);
    struct cpu_widened wide = {*x->p, *x->t};
    size_t s_bytes = 0;
    scores_bytes(x->p, &s_bytes);
    if (has_8_bits) {
        begin(x, "dequantise");
        cpu_widen(request, x->t, (char *)s + s_bytes, &wide);
    } else if (x->p->page_size > 0) {
        begin(x, "gather");
        gather_cache(x, s + s_bytes / sizeof *s, &wide.problem, &wide.tensors);
    }
    x->p = &wide.problem;
    x->t = &wide.tensors;
    begin(x, "scores");
    all_pairs(x, x->p->head_dim, x->p->scale, x->t->q, x->t->k, s);
    begin(x, "softmax");
    softmax(x, s, s, NULL, x->t->lse);
    begin(x, "output");
    times_keys(x, attn_v_head_dim(x->p), 1, s, x->t->v, x->t->o);
    if (has_8_bits)
        cpu_narrow(request, &wide, asked);
}

static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *t,
                               const struct attn_run *run, struct attn_message *why)
{
    const struct naive_plan *plan = run->plan;
    if (!blas_library() || !run->workspace || run->workspace_bytes < workspace_bytes(request) ||
        (request->mode == ATTN_BWD && !plan)) {
        snprintf(why->text, sizeof why->text, "naive: launched without a BLAS, its workspace or its plan");
        return ATTN_ERROR;
    }
    struct passes x = passes_of(request, t, run);
    const float scale = request->problem->scale;
    const int64_t d = request->problem->head_dim, dv = attn_v_head_dim(request->problem);
    float *s = run->workspace;
    if (request->mode == ATTN_FWD) {
        forward(&x, request, s);
        return ATTN_OK;
    }
    begin(&x, "dv");
    times_rows(&x, dv, 1, plan->kept, t->dout, t->dv);
    begin(&x, "dp");
    all_pairs(&x, dv, 1, t->dout, t->v, s);
    begin(&x, "ds");
    float *sink_rows = sink_row_bytes(request) ? s + rows_of_scores(request->problem) * request->problem->kv_len : NULL;
    score_gradients(&x, plan, s, sink_rows);
    if (sink_rows)
        sum_sinks(&x, sink_rows);
    if (attn_wanted_outputs(request) & ATTN_DBIAS)
        sum_biases(&x, s);
    if (plan->slope)
        apply_slopes(&x, plan, s);
    begin(&x, "dq");
    times_keys(&x, d, scale, s, t->k, t->dq);
    begin(&x, "dk");
    times_rows(&x, d, scale, s, t->q, t->dk);
    return ATTN_OK;
}

enum { FORWARD_OUTPUTS = ATTN_O | ATTN_LSE, BACKWARD_OUTPUTS = ATTN_DQ | ATTN_DK | ATTN_DV | ATTN_DSINK | ATTN_DBIAS };

const struct attn_impl attn_naive_cpu = {
    .abi = ATTN_ABI,
    .name = "naive",
    .summary = "three passes on BLAS, S and P in memory, fp32; copies 8-bit inputs to fp32, and pages, in its time",
    .platform = ATTN_CPU,
    .repeatable = {FORWARD_OUTPUTS, BACKWARD_OUTPUTS},
    .repeatable_deterministic = {FORWARD_OUTPUTS, BACKWARD_OUTPUTS},
    .accepts = accepts,
    .workspace_bytes = workspace_bytes,
    .plan_bytes = plan_bytes,
    .prepare = prepare,
    .launch = launch,
    .release = release,
    .role = ATTN_ROLE_NAIVE,
};
