/* CPU implementations whose fault shows in special inputs alone, loaded with --impl-lib: a workspace that is not zero,
 * tensors with strides of their own, a launch that is repeated, logits far from 0. tests/cli/hidden.sh says which
 * problems of `verify` must find each. Plain loops in fp32, for short problems. */
#define _GNU_SOURCE
#include <string.h>

#include "tests/liars/liars.h"

enum fault { ZEROED_WORKSPACE, STRIDES_OF_V, STRIDES_OF_DOUT, STRIDES_OF_DV, STRIDES_OF_DQ, SEVENTH_DQ, LOW_MAX };

enum { WORKSPACE_BYTES = 64, LAUNCHES_MOST = 7 };

static void take_strides(struct attn_tensor *to, const struct attn_tensor *from)
{
    to->stride_batch = from->stride_batch;
    to->stride_head = from->stride_head;
    to->stride_row = from->stride_row;
}

/* The running maximum begins at -1e4: rows whose logits are all below it get an LSE of -1e4 and less. */
static void low_max_row(const struct call *c, int64_t b, int64_t h, int64_t i)
{
    const struct attn_problem *p = c->request->problem;
    const int64_t kv = h / (p->q_heads / p->kv_heads);
    float max = -1e4f, sum = 0, *o = row_of(&c->t->o, b, h, i);
    int64_t first, last;
    attn_visible(p, i, &first, &last);
    for (int64_t j = first; j <= last; j++)
        max = fmaxf(max, p->scale * dot(row_of(&c->t->q, b, h, i), row_of(&c->t->k, b, kv, j), p->head_dim));
    memset(o, 0, sizeof(float) * (size_t)p->head_dim);
    for (int64_t j = first; j <= last; j++) {
        const float s = p->scale * dot(row_of(&c->t->q, b, h, i), row_of(&c->t->k, b, kv, j), p->head_dim);
        sum += expf(s - max);
        add_scaled(o, expf(s - max), row_of(&c->t->v, b, kv, j), p->head_dim);
    }
    for (int64_t n = 0; n < p->head_dim && sum > 0; n++)
        o[n] /= sum;
    c->t->lse[(b * p->q_heads + h) * p->q_len + i] = sum > 0 ? max + logf(sum) : -INFINITY;
}

static void low_max(const struct call *c)
{
    const struct attn_problem *p = c->request->problem;
    for (int64_t n = 0; n < p->batch * p->q_heads * p->q_len; n++)
        low_max_row(c, n / p->q_len / p->q_heads, n / p->q_len % p->q_heads, n % p->q_len);
}

static enum attn_status launch(enum fault fault, const struct attn_request *request, const struct attn_tensors *t,
                               const struct attn_run *run)
{
    unsigned *launches = run->plan;
    float *last = run->workspace ? (float *)run->workspace + WORKSPACE_BYTES / sizeof(float) - 1 : NULL;
    const float found = last ? *last : 0;
    struct attn_tensors used = *t;
    if (fault == STRIDES_OF_V)
        take_strides(&used.v, &t->k);
    if (fault == STRIDES_OF_DOUT)
        take_strides(&used.dout, &t->o);
    if (fault == STRIDES_OF_DV)
        take_strides(&used.dv, &t->dk);
    if (fault == STRIDES_OF_DQ)
        take_strides(&used.dq, &t->q);
    const struct call c = {.request = request, .t = &used, .run = run};
    if (fault == LOW_MAX && request->mode == ATTN_FWD)
        low_max(&c);
    else
        work(&c);
    if (fault == ZEROED_WORKSPACE) {
        float *output = request->mode == ATTN_FWD ? t->o.data : t->dq.data;
        *output += found == 0 ? 0 : 1;
        *last = 0;
    }
    if (fault == SEVENTH_DQ && ++*launches % LAUNCHES_MOST == 0 && request->mode == ATTN_BWD)
        for (int64_t n = 0; n < request->problem->head_dim; n++)
            ((float *)t->dq.data)[n] *= 1.5f;
    return ATTN_OK;
}

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const enum attn_status status = attn_check_attributes(request, 0, why);
    if (status != ATTN_OK || request->problem->dtype == ATTN_FP32)
        return status;
    strcpy(why->text, "takes fp32");
    return ATTN_UNSUPPORTED;
}

static size_t workspace_bytes(const struct attn_request *request)
{
    (void)request;
    return WORKSPACE_BYTES;
}

static enum attn_status prepare(const struct attn_request *request, const struct attn_tensors *tensors, void **plan,
                                struct attn_message *why)
{
    (void)request, (void)tensors, (void)why;
    *plan = calloc(1, sizeof(unsigned));
    return *plan ? ATTN_OK : ATTN_NO_MEMORY;
}

/* X(name, fault, outputs of a backward whose bits it promises) */
#define ALL_BWD (ATTN_DQ | ATTN_DK | ATTN_DV)
#define FAULTS(X) \
    X(zeroed_workspace, ZEROED_WORKSPACE, ALL_BWD) \
    X(strides_of_v, STRIDES_OF_V, ALL_BWD) \
    X(strides_of_dout, STRIDES_OF_DOUT, ALL_BWD) \
    X(strides_of_dv, STRIDES_OF_DV, ALL_BWD) \
    X(strides_of_dq, STRIDES_OF_DQ, ALL_BWD) \
    X(seventh_dq, SEVENTH_DQ, ATTN_DK | ATTN_DV) \
    X(low_max, LOW_MAX, ALL_BWD)

#define LAUNCH(name, fault, promised) \
    static enum attn_status launch_##name(const struct attn_request *request, const struct attn_tensors *tensors, \
                                          const struct attn_run *run, struct attn_message *why) \
    { \
        (void)why; \
        return launch(fault, request, tensors, run); \
    }
FAULTS(LAUNCH)

#define ROW(row_name, fault, promised) \
    {.abi = ATTN_ABI, \
     .name = "hidden_" #row_name, \
     .summary = "wrong in special inputs alone: see tests/cli/hidden.sh", \
     .platform = ATTN_CPU, \
     .repeatable = {ATTN_O | ATTN_LSE, promised}, \
     .repeatable_deterministic = {ATTN_O | ATTN_LSE, promised}, \
     .accepts = accepts, \
     .workspace_bytes = workspace_bytes, \
     .prepare = prepare, \
     .launch = launch_##row_name, \
     .release = free},
static const struct attn_impl table[] = {FAULTS(ROW){.name = NULL}};

const struct attn_impl *fabench_impls(int abi) { return abi == ATTN_ABI ? table : NULL; }
