/* The hard shapes of `fabench verify`: what real kernels got wrong (section 6 of docs/design.md). */
#include "cmd/plan/plan.h"

#include <math.h>
#include <string.h>

#include "cmd/base/log.h"

/* One shape; each is crossed with modes, masks, dtypes and head dims. */
struct hard_shape {
    int64_t batch, q_heads, kv_heads, q_len, kv_len;
    enum fill_dist dist;
    enum attn_layout layout;
    bool quick;     /* also in --preset quick, the set for a sanitizer */
    bool cuda_only; /* too slow for the CPU oracle */
    int64_t batch_gap;
};

static const struct hard_shape shapes[] = {
    /* Lengths around the tiles of 64 and 128, and primes. */
    {1, 1, 1, 1, 1, FILL_NORMAL, ATTN_BSHD, true, false, 0},
    {2, 2, 2, 63, 63, FILL_NORMAL, ATTN_BHSD, false, false, 0},
    {1, 2, 2, 64, 64, FILL_NORMAL, ATTN_BSHD, false, false, 0},
    {1, 2, 2, 65, 65, FILL_NORMAL, ATTN_BSHD, true, false, 0},
    {1, 2, 2, 127, 127, FILL_NORMAL, ATTN_BSHD, false, false, 0},
    {1, 2, 2, 128, 128, FILL_NORMAL, ATTN_BHSD, false, false, 0},
    {2, 3, 3, 129, 129, FILL_NORMAL, ATTN_BSHD, true, false, 0},
    {1, 2, 2, 251, 251, FILL_NORMAL, ATTN_BSHD, false, false, 0},
    {1, 1, 1, 1021, 1021, FILL_NORMAL, ATTN_BSHD, false, false, 0},
    /* q_len and kv_len differ; with the causal mask and q_len > kv_len some rows see no key. */
    {1, 2, 2, 1, 257, FILL_NORMAL, ATTN_BSHD, true, false, 0},
    {1, 2, 2, 257, 1, FILL_NORMAL, ATTN_BSHD, true, false, 0},
    {2, 2, 2, 113, 203, FILL_NORMAL, ATTN_BHSD, false, false, 0},
    {1, 2, 2, 203, 113, FILL_NORMAL, ATTN_BSHD, true, false, 0},
    {1, 2, 2, 64, 700, FILL_NORMAL, ATTN_BSHD, false, false, 0},
    {1, 2, 2, 700, 64, FILL_NORMAL, ATTN_BHSD, false, false, 0},
    /* Shared key heads. */
    {2, 4, 2, 190, 190, FILL_NORMAL, ATTN_BSHD, true, false, 0},
    {1, 6, 1, 129, 255, FILL_NORMAL, ATTN_BHSD, false, false, 0},
    {1, 32, 8, 300, 300, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    /* More work tiles than an H200 has multiprocessors, so that a persistent block takes several of them, also of
     * different key blocks. */
    {1, 136, 34, 70, 130, FILL_NORMAL, ATTN_BSHD, true, true, 0},
    {5, 16, 4, 700, 900, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    /* Hard values. */
    {1, 2, 2, 257, 257, FILL_SHARP, ATTN_BSHD, false, false, 0},
    {1, 2, 2, 257, 257, FILL_HUGE, ATTN_BSHD, true, false, 0},
    {1, 2, 2, 257, 257, FILL_PEAK, ATTN_BSHD, true, false, 0},
    {1, 4, 2, 130, 301, FILL_PEAK, ATTN_BHSD, false, false, 0},
    {1, 2, 2, 257, 257, FILL_CONSTANT, ATTN_BSHD, true, false, 0},
    {1, 2, 2, 257, 257, FILL_TINY, ATTN_BSHD, false, false, 0},
    {1, 2, 2, 257, 257, FILL_ZEROS, ATTN_BSHD, false, false, 0},
    {1, 1, 1, 1, 257, FILL_CONSTANT, ATTN_BSHD, false, false, 0},
    /* Many heads (grid limits), long sequences, element offsets past 2^31. */
    {70000, 1, 1, 5, 5, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    {1, 2, 2, 4096, 4096, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    {1, 1, 1, 16384, 16384, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    {2, 2, 2, 130, 130, FILL_NORMAL, ATTN_BSHD, false, true, (INT64_C(1) << 31) + 64},
};

static void add_shape(const struct options *o, const struct hard_shape *shape, enum attn_dtype dtype,
                      enum attn_mode mode, bool causal, int64_t head_dim, struct plan *plan)
{
    struct plan_item item = {.mode = mode,
                             .dist = shape->dist,
                             .batch_gap = shape->batch_gap,
                             .deterministic = o->deterministic,
                             .repeats = o->repeats};
    item.seed = (o->seed + (uint64_t)plan->count) & INT64_MAX; /* what --seed takes */
    struct attn_problem *p = &item.problem;
    p->batch = shape->batch;
    p->q_heads = shape->q_heads;
    p->kv_heads = shape->kv_heads;
    p->q_len = shape->q_len;
    p->kv_len = shape->kv_len;
    p->head_dim = head_dim;
    p->dtype = dtype;
    p->layout = shape->layout;
    p->causal = causal;
    p->window_left = p->window_right = -1;
    p->scale = isnan(o->scale) ? (float)(1.0 / sqrt((double)head_dim)) : (float)o->scale;
    plan_add(plan, &item);
}

int plan_make_verify(const struct options *o, enum attn_platform platform, struct plan *plan)
{
    static const enum attn_dtype dtypes[] = {ATTN_FP16, ATTN_BF16, ATTN_FP32};
    static const int64_t head_dims[] = {64, 128};
    memset(plan, 0, sizeof *plan);
    plan->warmup_ms = plan->min_time_ms = plan->max_noise_pct = NAN; /* nothing is timed */
    plan->preset = o->preset == PRESET_QUICK ? "quick" : "verify";
    if (o->q_lens.count || o->kv_lens.count || o->batch || o->heads || o->kv_heads) {
        log_error(
            "verify brings its own shapes: --seqlen, --kv-len, --batch, --heads and --kv-heads belong to the sweep");
        return EXIT_USAGE;
    }
    for (int t = 0; t < 3; t++) {
        const bool by_default = platform == ATTN_CPU ? dtypes[t] == ATTN_FP32 : dtypes[t] != ATTN_FP32;
        if (!(o->dtypes_given ? o->dtypes[dtypes[t]] : by_default))
            continue;
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
            if ((o->preset == PRESET_QUICK && !shapes[s].quick) || (platform == ATTN_CPU && shapes[s].cuda_only))
                continue;
            for (int i = 0; i < 4; i++) {
                const enum attn_mode mode = (enum attn_mode)(i & 1);
                const bool causal = i >> 1 & 1;
                const int count = o->head_dims.count ? o->head_dims.count : 2;
                for (int d = 0; d < count; d++)
                    if (o->modes[mode] && o->causal[causal])
                        add_shape(o, &shapes[s], dtypes[t], mode, causal,
                                  o->head_dims.count ? o->head_dims.values[d] : head_dims[d], plan);
            }
        }
    }
    return EXIT_OK;
}
