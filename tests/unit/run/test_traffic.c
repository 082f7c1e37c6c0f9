/* The model of a launch's bytes and FLOPs, by hand; and the rule "executed" on made-up counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/problem/problem_arrays.h"
#include "cmd/run/executed.h"
#include "cmd/run/traffic.h"
#include "tests/dense.h"

/* 2 sequences of 4 heads, 1024 rows and 2048 keys of 64 columns, bf16. */
static struct plan_item item_of(enum attn_mode mode, bool causal)
{
    struct plan_item item;
    const struct attn_problem p = DENSE(2, 4, 4, 1024, 2048, 64, ATTN_BF16, ATTN_BSHD, causal, -1, -1, 0.125f, 0);
    memset(&item, 0, sizeof item);
    item.mode = mode;
    item.problem = p;
    return item;
}

static const double heads = 2 * 4, q = 2 * 4 * 1024 * 64 * 2.0, k = 2 * 4 * 2048 * 64 * 2.0, lse = 2 * 4 * 1024 * 4.0,
                    square = 2 * 4 * 1024 * 2048.0;
static const struct attn_work silent = {0}, tiled = {.tile_rows = 128, .tile_keys = 64, .flops = 12345};

static void is_equal(double value, double wanted)
{
    if (!(fabs(value / wanted - 1) < 1e-9))
        fail_msg("%.10g, not %.10g", value, wanted);
}

/* S and P: written, read, written, read. */
static void naive_forward(void **state)
{
    (void)state;
    struct plan_item item = item_of(ATTN_FWD, false);
    struct traffic t = traffic_of(&item, true, &silent);
    is_equal(t.dram_bytes, 2 * q + 2 * k + lse + 4 * square * 2);
    is_equal(t.flops, 4 * 64 * square);
    assert_true(isnan(t.l2_bytes));
    /* A mask spares reading what is not seen, and no product. 1024 rows at the end of 2048 keys see 3/4 of all. */
    item = item_of(ATTN_FWD, true);
    t = traffic_of(&item, true, &silent);
    is_equal(t.dram_bytes, 2 * q + 2 * k + lse + (3 + problem_pairs(&item.problem, NULL) / square) * square * 2);
    assert_true(fabs(problem_pairs(&item.problem, NULL) / square - 0.75) < 1e-3);
    is_equal(t.flops, 4 * 64 * square);
    /* Rows are padded to 16 bytes. */
    item = item_of(ATTN_FWD, false);
    item.problem.kv_len = 2041;
    t = traffic_of(&item, true, &silent);
    is_equal(t.flops, 4 * 64 * square);
}

/* P read, dP written, both read, dS written, dS read twice; dO twice, O and LSE not. */
static void naive_backward(void **state)
{
    (void)state;
    const struct plan_item item = item_of(ATTN_BWD, false);
    const struct traffic t = traffic_of(&item, true, &silent);
    is_equal(t.dram_bytes, 4 * q + 4 * k + 7 * square * 2);
    is_equal(t.flops, 8 * 64 * square);
}

static void fused_forward(void **state)
{
    (void)state;
    struct plan_item item = item_of(ATTN_FWD, false);
    struct traffic t = traffic_of(&item, false, &tiled);
    is_equal(t.dram_bytes, 2 * q + 2 * k + lse);
    is_equal(t.flops, 12345);
    /* Each of 8 tiles of rows reads all keys. */
    is_equal(t.l2_bytes, 2 * q + lse + 8 * 2 * k);
    /* Causal, the tile from row r on sees 1024 + r + 128 keys. */
    item = item_of(ATTN_FWD, true);
    t = traffic_of(&item, false, &tiled);
    double keys = 0;
    for (int row = 0; row < 1024; row += 128)
        keys += 1024 + row + 128;
    is_equal(t.l2_bytes, 2 * q + lse + heads * keys * 2 * 64 * 2);
    /* A window of 100 keys: rows r to r + 127 see keys r + 924 to r + 1151, in tiles of 64: from r + 896 on, 256. */
    item.problem.window_left = 100;
    t = traffic_of(&item, false, &tiled);
    is_equal(t.l2_bytes, 2 * q + lse + heads * 8 * 256 * 2 * 64 * 2);
    /* What does not say its tiles has no traffic of the L2 and no FLOPs. */
    t = traffic_of(&item, false, &silent);
    assert_true(isnan(t.l2_bytes) && isnan(t.flops) && t.dram_bytes > 0);
}

static void fused_backward(void **state)
{
    (void)state;
    const struct plan_item item = item_of(ATTN_BWD, false);
    const struct traffic t = traffic_of(&item, false, &tiled);
    const double sums = 2 * q, statistics = 2 * lse;
    /* Q K V O LSE dO -> dQ dK dV; dO again; fp32 sums and statistics written and read. */
    is_equal(t.dram_bytes, 4 * q + 4 * k + lse + q + 2 * sums + 2 * statistics);
    /* 32 tiles of keys read Q, dO and statistics and add to the sums; the rest once, see traffic.c. */
    is_equal(t.l2_bytes, 3 * q + lse + statistics + 2 * sums + 4 * k + 32 * (2 * q + statistics + sums));
}

/* What has no model. */
static void no_model(void **state)
{
    (void)state;
    struct plan_item item = item_of(ATTN_FWD, false);
    item.problem.softcap = 30;
    assert_true(isnan(traffic_of(&item, true, &silent).dram_bytes));
    item = item_of(ATTN_FWD, false);
    item.problem.mask_block = 128;
    assert_true(isnan(traffic_of(&item, false, &tiled).l2_bytes));
}

/* ---- executed ---- */

static char sentence[400];

static struct counters counted(double bf16, double fp16, double fp16_in_fp16, double fp8, double tf32)
{
    const struct counters c = {.values = {[COUNTER_FLOP] = bf16, fp16, fp16_in_fp16, fp8, tf32}};
    return c;
}

static void enough(void **state)
{
    (void)state;
    const struct plan_item item = item_of(ATTN_FWD, false);
    const double needed = 4 * 64 * square;
    struct counters c = counted(needed, 0, 0, 0, 0);
    assert_true(executed_allows(&item, false, &c, sentence, sizeof sentence));
    c = counted(2 * needed, 0, 0, needed, 0); /* more, and other work beside it */
    assert_true(executed_allows(&item, false, &c, sentence, sizeof sentence));
    c = counted(needed / 2, needed / 2, 0, 0, 0); /* fp16 with sums in fp32 is no narrower than bf16 */
    assert_true(executed_allows(&item, false, &c, sentence, sizeof sentence));
    c = counted(NAN, 0, 0, 0, 0); /* not counted */
    assert_true(executed_allows(&item, false, &c, sentence, sizeof sentence));
}

static void too_few(void **state)
{
    (void)state;
    struct plan_item item = item_of(ATTN_FWD, false);
    const double needed = 4 * 64 * square;
    struct counters c = counted(0.99 * needed, 0, 0, 0, 0);
    assert_false(executed_allows(&item, false, &c, sentence, sizeof sentence));
    assert_non_null(strstr(sentence, "as wide as bf16; the visible pairs need 4.295e+09; by type: bf16=4.252"));
    c = counted(0, 0, 0, 0, 0);
    assert_false(executed_allows(&item, false, &c, sentence, sizeof sentence));
    assert_non_null(strstr(sentence, "by type: none"));
    /* A mask: the pairs that it leaves. */
    item = item_of(ATTN_FWD, true);
    c = counted(0.76 * needed, 0, 0, 0, 0);
    assert_true(executed_allows(&item, false, &c, sentence, sizeof sentence));
    c = counted(0.74 * needed, 0, 0, 0, 0);
    assert_false(executed_allows(&item, false, &c, sentence, sizeof sentence));
}

/* Narrower products do not count, whatever their number. */
static void other_types(void **state)
{
    (void)state;
    struct plan_item item = item_of(ATTN_FWD, false);
    const double needed = 4 * 64 * square;
    struct counters c = counted(needed / 2, 0, 0, needed, 0); /* Q K^T in 8 bits */
    assert_false(executed_allows(&item, false, &c, sentence, sizeof sentence));
    assert_non_null(strstr(sentence, "fp8=4.29497e+09"));
    c = counted(0, 0, needed, 0, 0); /* sums in fp16 */
    assert_false(executed_allows(&item, false, &c, sentence, sizeof sentence));
    assert_non_null(strstr(sentence, "fp16_in_fp16="));
    item.problem.dtype = ATTN_FP16;
    c = counted(needed, 0, 0, 0, 0); /* bf16 in an fp16 row */
    assert_false(executed_allows(&item, false, &c, sentence, sizeof sentence));
    item.problem.dtype = ATTN_E4M3;
    c = counted(0, 0, 0, needed, 0);
    assert_true(executed_allows(&item, false, &c, sentence, sizeof sentence));
    c = counted(0, 0, 0, 0.9 * needed, 0);
    assert_false(executed_allows(&item, false, &c, sentence, sizeof sentence));
}

static void backward(void **state)
{
    (void)state;
    const struct plan_item item = item_of(ATTN_BWD, false);
    const double product = 2 * 64 * square;
    struct counters c = counted(4 * product, 0, 0, 0, 0);
    assert_false(executed_allows(&item, false, &c, sentence, sizeof sentence));
    assert_true(executed_allows(&item, true, &c, sentence, sizeof sentence)); /* naive has P from before */
}

/* Where tensor cores are not needed, or pairs have no weight. */
static void no_rule(void **state)
{
    (void)state;
    const struct counters none = counted(0, 0, 0, 0, 0);
    struct plan_item item = item_of(ATTN_FWD, false);
    item.problem.dtype = ATTN_FP32;
    assert_true(executed_allows(&item, false, &none, sentence, sizeof sentence));
    item = item_of(ATTN_FWD, false);
    item.problem.lengths = ATTN_CACHE;
    assert_true(executed_allows(&item, false, &none, sentence, sizeof sentence));
    item = item_of(ATTN_FWD, false);
    item.dist = FILL_ZEROS;
    assert_true(executed_allows(&item, false, &none, sentence, sizeof sentence));
}

static void words_of_types(void **state)
{
    char text[96], small[16];
    (void)state;
    const struct counters c = counted(1e12, 2e12, 3e12, 4e12, NAN);
    executed_types(&c, text, sizeof text);
    assert_string_equal(text, "bf16=1e+12 fp16=2e+12 fp16_in_fp16=3e+12 fp8=4e+12");
    executed_types(&c, small, sizeof small);
    assert_string_equal(small, "bf16=1e+12"); /* whole words */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(naive_forward),  cmocka_unit_test(naive_backward), cmocka_unit_test(fused_forward),
        cmocka_unit_test(fused_backward), cmocka_unit_test(no_model),       cmocka_unit_test(enough),
        cmocka_unit_test(too_few),        cmocka_unit_test(other_types),    cmocka_unit_test(backward),
        cmocka_unit_test(no_rule),        cmocka_unit_test(words_of_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
