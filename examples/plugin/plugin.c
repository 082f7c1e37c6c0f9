/* A CPU implementation for `fabench --impl-lib`: plain fp32 attention, forward and backward, one row at a time.
 *
 * Written for clarity, from the equations at the top of attention.h. Each thread keeps a row of P in its part of the
 * workspace; backward recomputes it from the LSE. dK and dV are summed over rows, so a thread owns a whole key head.
 */
#include <fabench/attention.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct rows {
    float *p, *ds;
}; /* [kv_len] each: one row of P and of dS */

static float *row_of(struct attn_tensor t, int64_t b, int64_t h, int64_t i)
{
    return (float *)t.data + b * t.stride_batch + h * t.stride_head + i * t.stride_row;
}

/* In double: where one logit is larger by hundreds, dS depends on the last digits of the logits. */
static double dot(const float *x, const float *y, int64_t count)
{
    double sum = 0;
    for (int64_t c = 0; c < count; c++)
        sum += (double)x[c] * y[c];
    return sum;
}

static void add_scaled(float *to, float factor, const float *x, int64_t count)
{
    for (int64_t c = 0; c < count; c++)
        to[c] += factor * x[c];
}

/* O_i and LSE_i of query head h. */
static void forward_row(const struct attn_problem *p, const struct attn_tensors *t, int64_t b, int64_t h, int64_t i,
                        struct rows work)
{
    const int64_t kv = h / (p->q_heads / p->kv_heads), d = p->head_dim;
    float *o = row_of(t->o, b, h, i), *lse = &t->lse[(b * p->q_heads + h) * p->q_len + i];
    float max = -INFINITY, sum = 0;
    int64_t first, last;
    attn_visible(p, i, &first, &last);
    memset(o, 0, (size_t)d * sizeof *o);
    *lse = -INFINITY;
    if (first > last)
        return;
    for (int64_t j = first; j <= last; j++) {
        work.p[j] = (float)(p->scale * dot(row_of(t->q, b, h, i), row_of(t->k, b, kv, j), d));
        max = fmaxf(max, work.p[j]);
    }
    for (int64_t j = first; j <= last; j++)
        sum += work.p[j] = expf(work.p[j] - max);
    for (int64_t j = first; j <= last; j++)
        add_scaled(o, work.p[j] / sum, row_of(t->v, b, kv, j), d);
    *lse = max + logf(sum);
}

/* dQ_i of query head h, and what row i adds to dK and dV of its key head. */
static void backward_row(const struct attn_problem *p, const struct attn_tensors *t, int64_t b, int64_t h, int64_t i,
                         struct rows work)
{
    const int64_t kv = h / (p->q_heads / p->kv_heads), d = p->head_dim;
    const float *q = row_of(t->q, b, h, i), *dout = row_of(t->dout, b, h, i);
    const double lse = t->lse[(b * p->q_heads + h) * p->q_len + i], delta = dot(dout, row_of(t->o, b, h, i), d);
    float *dq = row_of(t->dq, b, h, i);
    int64_t first, last;
    attn_visible(p, i, &first, &last);
    memset(dq, 0, (size_t)d * sizeof *dq);
    for (int64_t j = first; j <= last; j++) {
        work.p[j] = expf((float)(p->scale * dot(q, row_of(t->k, b, kv, j), d) - lse));
        work.ds[j] = (float)(work.p[j] * (dot(dout, row_of(t->v, b, kv, j), d) - delta));
        add_scaled(dq, p->scale * work.ds[j], row_of(t->k, b, kv, j), d);
        add_scaled(row_of(t->dk, b, kv, j), p->scale * work.ds[j], q, d);
        add_scaled(row_of(t->dv, b, kv, j), work.p[j], dout, d);
    }
}

/* Everything of one key head and of the query heads that share it. */
static void head_group(const struct attn_request *request, const struct attn_tensors *t, int64_t b, int64_t kv,
                       struct rows work)
{
    const struct attn_problem *p = request->problem;
    const int64_t group = p->q_heads / p->kv_heads;
    for (int64_t j = 0; j < p->kv_len && request->mode == ATTN_BWD; j++) {
        memset(row_of(t->dk, b, kv, j), 0, (size_t)p->head_dim * sizeof(float));
        memset(row_of(t->dv, b, kv, j), 0, (size_t)p->head_dim * sizeof(float));
    }
    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
        for (int64_t i = 0; i < p->q_len; i++)
            if (request->mode == ATTN_FWD)
                forward_row(p, t, b, h, i, work);
            else
                backward_row(p, t, b, h, i, work);
}

static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    (void)why;
#pragma omp parallel for schedule(dynamic) num_threads(request->device->threads)
    for (int64_t n = 0; n < p->batch * p->kv_heads; n++) {
        float *mine = (float *)run->workspace + n * 2 * p->kv_len;
        const struct rows work = {mine, mine + p->kv_len};
        head_group(request, tensors, n / p->kv_heads, n % p->kv_heads, work);
    }
    return ATTN_OK;
}

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    /* Refuses everything beyond dense attention but windows, which attn_visible knows, and forward the invariant mode:
     * a row is computed from its own sequence alone, in the same order in every batch. */
    const unsigned of_forward = request->mode == ATTN_FWD ? ATTN_WITH_INVARIANT : 0;
    const enum attn_status status = attn_check_attributes(request, ATTN_WITH_WINDOW | of_forward, why);
    if (status != ATTN_OK || request->problem->dtype == ATTN_FP32)
        return status;
    snprintf(why->text, sizeof why->text, "takes fp32");
    return ATTN_UNSUPPORTED;
}

static size_t workspace_bytes(const struct attn_request *request)
{
    const struct attn_problem *p = request->problem;
    return (size_t)(p->batch * p->kv_heads * p->kv_len) * 2 * sizeof(float);
}

const struct attn_impl *fabench_impls(int abi)
{
    static const struct attn_impl table[] = {
        {.abi = ATTN_ABI,
         .name = "plugin_cpu",
         .summary = "example: plain fp32 attention, a row at a time",
         .platform = ATTN_CPU,
         .repeatable = {ATTN_O | ATTN_LSE, ATTN_DQ | ATTN_DK | ATTN_DV},
         .repeatable_deterministic = {ATTN_O | ATTN_LSE, ATTN_DQ | ATTN_DK | ATTN_DV},
         .invariant = {ATTN_O | ATTN_LSE, 0},
         .accepts = accepts,
         .workspace_bytes = workspace_bytes,
         .launch = launch},
        {.name = NULL},
    };
    return abi == ATTN_ABI ? table : NULL;
}
