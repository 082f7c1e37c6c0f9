/* Options -> the problems of `selftest`. Order: dtype, mode, mask, head_dim, length. */
#include "cmd/plan/plan.h"

#include <math.h>
#include <string.h>

#include "cmd/base/log.h"

static void add_problem(const struct options *o, enum attn_dtype dtype, enum attn_mode mode, bool causal,
                        int64_t head_dim, int64_t len, struct plan *plan)
{
    struct plan_item item = {.mode = mode, .dist = o->dist, .seed = o->seed};
    struct attn_problem *p = &item.problem;
    p->batch = 1;
    p->q_heads = p->kv_heads = o->heads ? o->heads : 2; /* at least two, because one fault swaps two heads */
    p->q_len = p->kv_len = len;
    p->head_dim = head_dim;
    p->dtype = dtype;
    p->layout = ATTN_BSHD;
    p->causal = causal;
    p->window_left = p->window_right = -1;
    p->scale = (float)(1.0 / sqrt((double)head_dim));
    plan_add(plan, &item);
}

int plan_make_selftest(const struct options *o, struct plan *plan)
{
    static const enum attn_dtype dtypes[] = {ATTN_FP16, ATTN_BF16, ATTN_FP32};
    static int64_t default_dims[] = {64}, default_lens[] = {1024, 16384};
    const struct int_list dims = o->head_dims.count ? o->head_dims : (struct int_list){default_dims, 1};
    const struct int_list lens = o->q_lens.count ? o->q_lens : (struct int_list){default_lens, 2};
    memset(plan, 0, sizeof *plan);
    plan->warmup_ms = plan->min_time_ms = plan->max_noise_pct = NAN; /* nothing is timed */
    plan->preset = "selftest";
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 4; i++) {
            const bool is_backward = i & 1, causal = i >> 1 & 1;
            if ((o->dtypes_given && !o->dtypes[dtypes[t]]) || !o->modes[is_backward] || !o->causal[causal])
                continue;
            for (int d = 0; d < dims.count; d++)
                for (int n = 0; n < lens.count; n++)
                    add_problem(o, dtypes[t], is_backward ? ATTN_BWD : ATTN_FWD, causal, dims.values[d], lens.values[n],
                                plan);
        }
    return 0;
}
