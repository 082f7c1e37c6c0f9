/* The least time of a launch. */
#include "cmd/run/floors.h"

#include <math.h>
#include <stdio.h>

#include "cmd/problem/problem.h"
#include "cmd/run/naive_limits.h"

/* FLOPs of dense matrix products that a multiprocessor does in a clock, at most: of 16 bits, of TF32 (fp32 problems: a
 * kernel may split its products) and of 8 bits, integers too. They are the TFLOPS that NVIDIA tells of the device in
 * the row, divided by its multiprocessors and clock; where cards of an architecture differ, the fastest, sums in 16
 * bits included. The memory's clock, too, is believed of these devices alone: one that shares the host's memory may
 * tell another. */
struct matrix_rate {
    int compute_capability;
    double of_16_bits, of_tf32, of_8_bits;
};

static const struct matrix_rate rates[] = {
    /* A100 white paper: 312, 156, 624 (INT8); 108 at 1.41 GHz */
    {80, 2048, 1024, 4096},
    /* A40 data sheet: 149.7, 74.8, 299.3 (INT8); 84 at 1.74 GHz */
    {86, 1024, 512, 2048},
    /* Ada white paper, RTX 4090: 330.3, 660.6; 128 at 2.52 GHz. TF32: half of 16 bits as above, twice what it has */
    {89, 1024, 512, 2048},
    /* H100 white paper, SXM5: 989.4, 494.7, 1978.9; 132 at 1.83 GHz */
    {90, 4096, 2048, 8192},
    /* B200 and B300 data sheets: 2250, 1125, 4500; 148 at 1.86 GHz */
    {100, 8192, 4096, 16384},
    {103, 8192, 4096, 16384},
    /* RTX Blackwell white paper, RTX 5090: 419, 838; 170 at 2.41 GHz. TF32: as RTX 4090 */
    {120, 1024, 512, 2048},
};

static const struct matrix_rate *rates_of(int compute_capability)
{
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++)
        if (rates[i].compute_capability == compute_capability)
            return &rates[i];
    return NULL;
}

static double rate_for(const struct matrix_rate *r, enum attn_dtype dtype)
{
    return attn_dtype_is_8_bit(dtype) ? r->of_8_bits : dtype == ATTN_FP32 ? r->of_tf32 : r->of_16_bits;
}

bool floors_may_leave_pairs(const struct plan_item *item)
{
    const bool is_even = item->dist == FILL_NORMAL || item->dist == FILL_UNIFORM;
    return item->folder || !is_even || limits_logit_std(item) > 4 || item->problem.has_alibi ||
           item->problem.dropout > 0.9f;
}

/* Does every row of Q, K and V take part? */
static bool takes_all_rows(const struct attn_problem *p)
{
    const bool has_blind = p->causal && (p->q_len > p->kv_len || p->lengths != ATTN_FIXED);
    return p->window_left < 0 && p->window_right < 0 && p->mask_block == 0 && !has_blind;
}

struct floors floors_of(const struct device_info *device, const struct plan_item *item, bool keeps_p)
{
    struct floors f = {0};
    const struct attn_problem *p = &item->problem;
    const struct matrix_rate *const rate = rates_of(device->compute_capability);
    if (!rate || floors_may_leave_pairs(item))
        return f;
    const double clocks_per_s = device->max_sm_clock_mhz > 0 ? 1e6 * device->max_sm_clock_mhz : 0;
    f.peak_tflops = 1e-12 * rate_for(rate, p->dtype) * (double)device->multiprocessors * clocks_per_s;
    f.peak_gb_per_s = device->memory_gb_per_s;
    double flops = plan_item_flops(item);
    if (keeps_p && item->mode == ATTN_BWD)
        flops -= 2 * (double)p->head_dim * problem_pairs(p, item->arrays);
    if (f.peak_tflops > 0)
        f.compute_ms = flops / f.peak_tflops * 1e-9;
    const double read = problem_needed_bytes(p, item->mode, problem_used_keys(p, item->arrays)) - device->l2_bytes;
    if (f.peak_gb_per_s > 0 && read > 0 && takes_all_rows(p))
        f.read_ms = read / f.peak_gb_per_s * 1e-6;
    return f;
}

static double least_ms(const struct floors *f) { return fmax(f->compute_ms, f->read_ms); }

bool floors_allow(const struct floors *f, double time_ms, double sustained_ms)
{
    return !(time_ms < least_ms(f)) && !(sustained_ms < least_ms(f));
}

void floors_describe(const struct floors *f, double time_ms, double sustained_ms, int64_t samples, char *text,
                     unsigned long size)
{
    const bool is_read = f->read_ms > f->compute_ms;
    const double claimed_ms = time_ms < least_ms(f) ? time_ms : sustained_ms;
    snprintf(text, size,
             is_read
                 ? "a launch is said to take %.4g ms (%lld samples); reading the inputs that the L2 cannot hold takes "
                   "%.4g ms at the %.4g GB/s that the memory has at most"
                 : "a launch is said to take %.4g ms (%lld samples); its FLOPs take %.4g ms at the %.4g TFLOPS that "
                   "the device has at its highest clock",
             claimed_ms, (long long)samples, is_read ? f->read_ms : f->compute_ms,
             is_read ? f->peak_gb_per_s : f->peak_tflops);
}
