/* The least time of a launch: what it is of a known device, and where there is none. */
#include "cmd/run/floors.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct device_info h100 = {.compute_capability = 90,
                                        .multiprocessors = 132,
                                        .max_sm_clock_mhz = 1980,
                                        .memory_gb_per_s = 3350,
                                        .l2_bytes = 50e6};

/* 16 heads of 4096 rows of 128 columns: Q, K and V have 16 MiB each. */
static struct plan_item item_of(enum attn_mode mode, enum attn_dtype dtype)
{
    struct plan_item item;
    memset(&item, 0, sizeof item);
    item.mode = mode;
    item.problem = (struct attn_problem){.dtype = dtype,
                                         .batch = 1,
                                         .q_heads = 16,
                                         .kv_heads = 16,
                                         .q_len = 4096,
                                         .kv_len = 4096,
                                         .head_dim = 128,
                                         .window_left = -1,
                                         .window_right = -1};
    return item;
}

static void is_near(double value, double wanted) { assert_true(fabs(value / wanted - 1) < 1e-3); }

static void flops_at_the_peak(void **state)
{
    (void)state;
    const double flops = 4.0 * 16 * 4096 * 4096 * 128;
    const struct plan_item fwd = item_of(ATTN_FWD, ATTN_BF16), bwd = item_of(ATTN_BWD, ATTN_BF16);
    struct floors f = floors_of(&h100, &fwd, false);
    is_near(f.peak_tflops, 1070.5); /* 4096 x 132 x 1.98 GHz */
    is_near(f.compute_ms, flops / 1070.5e9);
    is_near(floors_of(&h100, &bwd, false).compute_ms, 2.5 * f.compute_ms);
    is_near(floors_of(&h100, &bwd, true).compute_ms, 2 * f.compute_ms); /* four products of five */
    struct plan_item causal = fwd;
    causal.problem.causal = true;
    is_near(floors_of(&h100, &causal, false).compute_ms, f.compute_ms * 4097 / 8192);
    const struct plan_item fp32 = item_of(ATTN_FWD, ATTN_FP32), fp8 = item_of(ATTN_FWD, ATTN_E4M3);
    is_near(floors_of(&h100, &fp32, false).compute_ms, 2 * f.compute_ms);
    is_near(floors_of(&h100, &fp8, false).compute_ms, f.compute_ms / 2);
    assert_true(floors_allow(&f, 1.01 * f.compute_ms, NAN) && !floors_allow(&f, 0.99 * f.compute_ms, NAN));
    assert_true(!floors_allow(&f, 1.01 * f.compute_ms, 0.99 * f.compute_ms));
}

/* 3 x 16 MiB, of which the L2 may hold 40 MB from before. */
static void bytes_that_the_cache_cannot_hold(void **state)
{
    (void)state;
    const struct plan_item fwd = item_of(ATTN_FWD, ATTN_BF16), bwd = item_of(ATTN_BWD, ATTN_BF16);
    struct device_info small = {.compute_capability = 90, .memory_gb_per_s = 3350, .l2_bytes = 40e6};
    const double mib = 1048576;
    const struct floors f = floors_of(&small, &fwd, false);
    is_near(f.read_ms, (48 * mib - 40e6) / 3350e6);
    assert_true(f.compute_ms == 0 && !floors_allow(&f, 0.99 * f.read_ms, NAN) && floors_allow(&f, f.read_ms, NAN));
    assert_false(floors_allow(&f, f.read_ms, 0.99 * f.read_ms));
    is_near(floors_of(&small, &bwd, false).read_ms, (64 * mib - 40e6) / 3350e6); /* and dO */
    struct plan_item other = fwd;
    other.problem.window_left = 100; /* some keys may be seen by no row */
    assert_true(floors_of(&small, &other, false).read_ms == 0);
    other = fwd;
    other.logit_std = 16; /* V of a key without weight */
    assert_true(floors_of(&small, &other, false).read_ms == 0);
    other = fwd;
    other.problem.bias_batch = other.problem.bias_heads = 1;
    other.problem.bias_dtype = ATTN_BF16;
    is_near(floors_of(&small, &other, false).read_ms, (80 * mib - 40e6) / 3350e6);
    other.problem.causal = true; /* half of the bias is not read */
    is_near(floors_of(&small, &other, false).read_ms, f.read_ms);
    small.l2_bytes = 51e6;
    assert_true(floors_of(&small, &fwd, false).read_ms == 0);
    small = (struct device_info){.compute_capability = 87, .memory_gb_per_s = 83}; /* its memory's clock is another */
    assert_true(floors_of(&small, &fwd, false).read_ms == 0);
}

/* A CPU, an unknown device, and inputs of which a right kernel may leave keys out. */
static void none(void **state)
{
    (void)state;
    const struct plan_item item = item_of(ATTN_FWD, ATTN_BF16);
    const struct device_info cpu = {.l2_bytes = 1e6, .multiprocessors = 2};
    struct device_info unknown = h100;
    unknown.compute_capability = 47;
    unknown.memory_gb_per_s = 0;
    const struct floors none = floors_of(&cpu, &item, false);
    assert_true(none.compute_ms == 0 && none.read_ms == 0 && floors_allow(&none, 1e-9, 1e-9));
    assert_true(floors_of(&unknown, &item, false).compute_ms == 0);
    for (int dist = 0; dist < FILL_DISTS; dist++) {
        struct plan_item drawn = item;
        drawn.dist = (enum fill_dist)dist;
        const bool is_even = dist == FILL_NORMAL || dist == FILL_UNIFORM;
        assert_true((floors_of(&h100, &drawn, false).compute_ms > 0) == is_even);
    }
    struct plan_item wide = item;
    wide.logit_std = 16;
    assert_true(floors_of(&h100, &wide, false).compute_ms == 0);
    wide = item;
    wide.problem.scale = 1; /* the same by its scale: logits with a deviation of 11 */
    assert_true(floors_of(&h100, &wide, false).compute_ms == 0);
    wide = item;
    wide.problem.dropout = 0.95f;
    assert_true(floors_of(&h100, &wide, false).compute_ms == 0);
}

static void words(void **state)
{
    (void)state;
    const struct plan_item item = item_of(ATTN_FWD, ATTN_BF16);
    char text[400];
    const struct floors f = floors_of(&h100, &item, false);
    floors_describe(&f, 0.1, NAN, 37, text, sizeof text);
    assert_string_equal(text, "a launch is said to take 0.1 ms (37 samples); its FLOPs take 0.1284 ms at the 1071 "
                              "TFLOPS that the device has at its highest clock");
    floors_describe(&f, 0.2, 0.05, 37, text, sizeof text); /* the sustained region's */
    assert_non_null(strstr(text, "said to take 0.05 ms"));
    const struct floors read = {.read_ms = 0.3, .compute_ms = 0.2, .peak_gb_per_s = 3350};
    floors_describe(&read, 0.25, NAN, 6, text, sizeof text);
    assert_string_equal(text,
                        "a launch is said to take 0.25 ms (6 samples); reading the inputs that the L2 cannot hold "
                        "takes 0.3 ms at the 3350 GB/s that the memory has at most");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(flops_at_the_peak),
                                       cmocka_unit_test(bytes_that_the_cache_cannot_hold), cmocka_unit_test(none),
                                       cmocka_unit_test(words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
