/* The least time of a launch. */
#include "cmd/run/floors.h"

#include <math.h>
#include <stdio.h>

#include "cmd/problem/problem.h"

/* Dense FLOPs that a multiprocessor does in a clock, at most, from the architectures' white papers: products of 16
 * bits, of TF32 (fp32 problems: a kernel may split its products), of 8 bits. */
struct matrix_rate {
    int compute_capability;
    double of_16_bits, of_tf32, of_8_bits;
};

static const struct matrix_rate rates[] = {{80, 2048, 1024, 2048}, {86, 1024, 512, 1024},    {89, 1024, 512, 2048},
                                           {90, 4096, 2048, 8192}, {100, 8192, 4096, 16384}, {103, 8192, 4096, 16384},
                                           {120, 1024, 512, 2048}};

static double rate_of(int compute_capability, enum attn_dtype dtype)
{
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++)
        if (rates[i].compute_capability == compute_capability)
            return attn_dtype_is_8_bit(dtype) ? rates[i].of_8_bits
                   : dtype == ATTN_FP32       ? rates[i].of_tf32
                                              : rates[i].of_16_bits;
    return 0;
}

/* May a kernel find, without computing them, that some pairs have no weight? */
static bool may_leave_pairs(const struct plan_item *item)
{
    const bool is_even = item->dist == FILL_NORMAL || item->dist == FILL_UNIFORM || item->dist == FILL_ZEROS;
    return item->folder || !is_even || item->logit_std > 4 || item->problem.has_alibi;
}

/* Does every row of Q, K and V take part? */
static bool takes_all_rows(const struct attn_problem *p)
{
    const bool has_blind = p->causal && (p->q_len > p->kv_len || p->lengths == ATTN_PACKED);
    return p->window_left < 0 && p->window_right < 0 && p->mask_block == 0 && !has_blind;
}

struct floors floors_of(const struct device_info *device, const struct plan_item *item, bool is_cold, bool keeps_p)
{
    struct floors f = {0};
    const struct attn_problem *p = &item->problem;
    const double clocks_per_s = device->max_sm_clock_mhz > 0 ? 1e6 * device->max_sm_clock_mhz : 0;
    const double bytes = problem_needed_bytes(p, item->mode, problem_used_keys(p, item->arrays));
    double flops = plan_item_flops(item);
    if (keeps_p && item->mode == ATTN_BWD)
        flops -= 2 * (double)p->head_dim * problem_pairs(p, item->arrays);
    f.peak_tflops =
        1e-12 * rate_of(device->compute_capability, p->dtype) * (double)device->multiprocessors * clocks_per_s;
    f.peak_gb_per_s = device->memory_gb_per_s;
    if (f.peak_tflops > 0 && !may_leave_pairs(item))
        f.compute_ms = flops / f.peak_tflops * 1e-9;
    if (f.peak_gb_per_s > 0 && is_cold && bytes > device->l2_bytes && takes_all_rows(p))
        f.read_ms = bytes / f.peak_gb_per_s * 1e-6;
    return f;
}

bool floors_allow(const struct floors *f, double time_ms, double sustained_ms)
{
    return !(time_ms < fmax(f->compute_ms, f->read_ms)) && !(sustained_ms < f->compute_ms);
}

void floors_describe(const struct floors *f, double time_ms, double sustained_ms, int64_t samples, char *text,
                     unsigned long size)
{
    const bool is_read = f->read_ms > f->compute_ms && time_ms < f->read_ms;
    const double claimed_ms = time_ms < fmax(f->compute_ms, f->read_ms) ? time_ms : sustained_ms;
    snprintf(text, size,
             is_read
                 ? "a launch is said to take %.4g ms (%lld samples); reading its inputs takes %.4g ms at the %.4g GB/s "
                   "that the memory has at most"
                 : "a launch is said to take %.4g ms (%lld samples); its FLOPs take %.4g ms at the %.4g TFLOPS that "
                   "the device has at its highest clock",
             claimed_ms, (long long)samples, is_read ? f->read_ms : f->compute_ms,
             is_read ? f->peak_gb_per_s : f->peak_tflops);
}
