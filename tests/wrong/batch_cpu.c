/* CPU implementations for --invariance, loaded with --impl-lib. All of them compute the right forward, in fp32 and
 * by plain loops, of sequences with fixed lengths, packed or in a cache, with pages or without. They differ in what
 * decides the order in which a row sums its keys, and so its last bits: nothing, or what a sequence must not depend on.
 * tests/cli/invariance.sh says what is found. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/attention.h"

enum {
    KEEPS,     /* nothing */
    BATCH,     /* whether there are several sequences */
    NUMBER,    /* the number of the sequence */
    LONGEST,   /* the length of the longest sequence */
    PAGES,     /* whether the cache has pages */
    LSE_ALONE, /* as BATCH, and of LSE alone */
};

static bool is_backwards(int kind, const struct attn_problem *p, int64_t b, int64_t kv_len)
{
    return (kind == BATCH && p->batch > 1) || (kind == NUMBER && b % 2 == 1) ||
           (kind == LONGEST && kv_len < p->kv_len) || (kind == PAGES && p->page_size > 0);
}

static float dot(const float *x, const float *y, int64_t count)
{
    float sum = 0;
    for (int64_t c = 0; c < count; c++)
        sum += x[c] * y[c];
    return sum;
}

static void forward_row(int kind, const struct attn_problem *p, const struct attn_tensors *t, int64_t b, int64_t h,
                        int64_t i)
{
    const struct attn_sequence s = attn_sequence_at(p, t, b);
    struct attn_problem one = *p; /* attn_visible reads these two */
    one.q_len = s.q_len;
    one.kv_len = s.kv_len;
    const int64_t d = p->head_dim, kv = h / (p->q_heads / p->kv_heads);
    const float *q = (const float *)t->q.data + attn_row_offset(p, t, t->q, b, h, i);
    float *o = (float *)t->o.data + attn_row_offset(p, t, t->o, b, h, i), max = -INFINITY, sum = 0, other_sum = 0;
    int64_t first, last;
    attn_visible(&one, i, &first, &last);
    for (int64_t j = first; j <= last; j++)
        max = fmaxf(max, p->scale * dot(q, (const float *)t->k.data + attn_key_offset(p, t, t->k, b, kv, j), d));
    memset(o, 0, (size_t)d * sizeof *o);
    for (int64_t n = first; n <= last; n++) {
        const int64_t j = is_backwards(kind, p, b, s.kv_len) ? first + last - n : n, other = first + last - j;
        const float *const k = (const float *)t->k.data, *const v = (const float *)t->v.data;
        const float weight = expf(p->scale * dot(q, k + attn_key_offset(p, t, t->k, b, kv, j), d) - max);
        sum += weight;
        other_sum += expf(p->scale * dot(q, k + attn_key_offset(p, t, t->k, b, kv, other), d) - max);
        for (int64_t c = 0; c < d; c++)
            o[c] += weight * v[attn_key_offset(p, t, t->v, b, kv, j) + c];
    }
    for (int64_t c = 0; c < d && first <= last; c++)
        o[c] /= sum;
    t->lse[attn_lse_index(p, t, b, h, i)] =
        first > last ? -INFINITY : max + logf(kind == LSE_ALONE && p->batch > 1 ? other_sum : sum);
}

static enum attn_status compute(int kind, const struct attn_request *request, const struct attn_tensors *t)
{
    const struct attn_problem *p = request->problem;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = 0; i < attn_sequence_at(p, t, b).q_len; i++)
                forward_row(kind, p, t, b, h, i);
    return ATTN_OK;
}

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const enum attn_status status =
        attn_check_attributes(request,
                              ATTN_WITH_WINDOW | ATTN_WITH_PACKED_LENGTHS | ATTN_WITH_CACHE | ATTN_WITH_PAGES |
                                  ATTN_WITH_PACKED_ROWS | ATTN_WITH_INVARIANT,
                              why);
    if (status != ATTN_OK || (p->dtype == ATTN_FP32 && request->mode == ATTN_FWD))
        return status;
    snprintf(why->text, sizeof why->text, "takes fp32, forward");
    return ATTN_UNSUPPORTED;
}

static size_t workspace_bytes(const struct attn_request *request)
{
    (void)request;
    return 0;
}

#define LAUNCH(name, kind) \
    static enum attn_status launch_##name(const struct attn_request *request, const struct attn_tensors *t, \
                                          const struct attn_run *run, struct attn_message *why) \
    { \
        (void)run; \
        (void)why; \
        return compute(kind, request, t); \
    }
LAUNCH(keeps, KEEPS)
LAUNCH(batch, BATCH)
LAUNCH(number, NUMBER)
LAUNCH(longest, LONGEST)
LAUNCH(pages, PAGES)
LAUNCH(lse, LSE_ALONE)

#define ROW(title, function, promised) \
    { \
        .abi = ATTN_ABI, .name = title, .summary = "test: bits and batches", .platform = ATTN_CPU, \
        .invariant = {promised, 0}, .accepts = accepts, .workspace_bytes = workspace_bytes, .launch = function \
    }

const struct attn_impl *fabench_impls(int abi)
{
    enum { BOTH = ATTN_O | ATTN_LSE };
    static const struct attn_impl table[] = {
        ROW("keeps", launch_keeps, BOTH),
        ROW("by_batch", launch_batch, BOTH),
        ROW("by_number", launch_number, BOTH),
        ROW("by_longest", launch_longest, BOTH),
        ROW("by_pages", launch_pages, BOTH),
        ROW("lse_by_batch", launch_lse, BOTH),
        ROW("o_promised", launch_lse, ATTN_O), /* its LSE is not promised */
        ROW("plain_keeps", launch_keeps, 0),
        ROW("plain_by_batch", launch_batch, 0),
        {.name = NULL},
    };
    return abi == ATTN_ABI ? table : NULL;
}
