/* On which inputs naive is skipped: where S rounded to 16 bits cannot give P, and nowhere else. */
#include "cmd/run/naive_limits.h"

#include <math.h>

#include "tests/unit/unit_help.h"

static struct plan_item item_of(enum attn_dtype dtype, enum fill_dist dist, double logit_std)
{
    struct plan_item item = {.dist = dist, .logit_std = logit_std};
    item.problem = (struct attn_problem){.batch = 1, .q_heads = 1, .kv_heads = 1, .q_len = 300, .kv_len = 300};
    item.problem.head_dim = 64;
    item.problem.dtype = dtype;
    item.problem.out_dtype = ATTN_BF16;
    item.problem.window_left = item.problem.window_right = -1;
    item.problem.scale = 0.125f;
    return item;
}

static bool is_limited(struct plan_item item) { return naive_limits(&item, ATTN_CUDA) != NULL; }

static void steep_logits(void **state)
{
    (void)state;
    const enum fill_dist steep[] = {FILL_SHARP,    FILL_HUGE,     FILL_RISING, FILL_FALLING,
                                    FILL_OUTLIERS, FILL_CHANNELS, FILL_DRIFT};
    bool is_steep[FILL_DISTS] = {false};
    for (size_t i = 0; i < sizeof steep / sizeof steep[0]; i++) {
        is_steep[steep[i]] = true;
        assert_true(is_limited(item_of(ATTN_BF16, steep[i], 0)));
        assert_true(is_limited(item_of(ATTN_FP16, steep[i], 0)));
        assert_false(is_limited(item_of(ATTN_FP32, steep[i], 0)));
    }
    assert_false(is_limited(item_of(ATTN_FP16, FILL_SHARP, 2)));
    for (int dist = 0; dist < FILL_DISTS; dist++)
        if (!is_steep[dist]) {
            assert_false(is_limited(item_of(ATTN_BF16, (enum fill_dist)dist, 0)));
            assert_false(is_limited(item_of(ATTN_FP16, (enum fill_dist)dist, 0)));
        }
}

/* By the option or by the scale; with less of P kept, and in bf16, less. */
static void deviation_of_logits(void **state)
{
    (void)state;
    assert_true(is_limited(item_of(ATTN_BF16, FILL_NORMAL, 2)));
    assert_false(is_limited(item_of(ATTN_FP16, FILL_NORMAL, 2)));
    assert_true(is_limited(item_of(ATTN_FP16, FILL_NORMAL, 4)));
    assert_false(is_limited(item_of(ATTN_BF16, FILL_NORMAL, 0.25)));
    struct plan_item item = item_of(ATTN_BF16, FILL_NORMAL, 0);
    item.problem.scale = 0.25f;
    assert_true(is_limited(item));
    item.folder = "the user's";
    assert_false(is_limited(item));
    item.folder = NULL;
    item.dist = FILL_UNIFORM;
    assert_false(is_limited(item));
    item.problem.scale = -0.75f;
    assert_true(is_limited(item));
    struct plan_item few_rows = item_of(ATTN_FP16, FILL_NORMAL, 2); /* 300 = 4 * 64 + 44 */
    few_rows.problem.q_len = 193;
    assert_true(is_limited(few_rows));
    few_rows.problem.q_len = 200;
    assert_false(is_limited(few_rows));
    few_rows.problem.kv_len = 71;
    assert_true(is_limited(few_rows));
    few_rows.logit_std = 1.5;
    assert_false(is_limited(few_rows));
    few_rows.problem.lengths = ATTN_PACKED;
    assert_false(is_limited(few_rows));
    few_rows.logit_std = 2;
    assert_true(is_limited(few_rows));
    struct plan_item dropping = item_of(ATTN_FP16, FILL_NORMAL, 2);
    dropping.problem.dropout = 0.9f;
    assert_false(is_limited(dropping));
    dropping.problem.dropout = 0.999f;
    assert_true(is_limited(dropping));
    struct plan_item usual = item_of(ATTN_BF16, FILL_NORMAL, 0);
    usual.problem.dropout = 0.999f;
    for (int64_t d = 1; d <= 256; d++) {
        usual.problem.head_dim = d;
        usual.problem.scale = (float)(1 / sqrt((double)d));
        assert_false(is_limited(usual));
    }
}

static void peaks(void **state)
{
    (void)state;
    struct plan_item item = item_of(ATTN_BF16, FILL_PEAK, 0);
    item.problem.causal = true;
    item.problem.dropout = 0.5f;
    item.problem.window_left = 0;
    assert_false(is_limited(item));
    item.problem.mask_block = 16;
    assert_true(is_limited(item));
    item.problem.mask_block = 0;
    item.problem.head_dim = 56;
    assert_true(is_limited(item));
    item.problem.head_dim = 64;
    item.problem.dtype = ATTN_E4M3;
    assert_true(is_limited(item));
    assert_null(naive_limits(&item, ATTN_CPU)); /* S in fp32 */
    item.dist = FILL_NORMAL;
    assert_false(is_limited(item));
}

/* Where a bias is as small as the other inputs, all P are equal; where it is not, its size is not known here. */
static void logits_with_a_bias(void **state)
{
    (void)state;
    struct plan_item item = item_of(ATTN_BF16, FILL_TINY, 0);
    item.problem.bias_batch = item.problem.bias_heads = 1;
    assert_true(limits_largest_logit(&item) > 4.33 * 0x1p-20 && limits_largest_logit(&item) < 0x1p-17);
    item.dist = FILL_ZEROS;
    assert_true(limits_largest_logit(&item) == 0);
    item.dist = FILL_NORMAL;
    assert_true(limits_largest_logit(&item) == INFINITY);
    item.dist = FILL_TINY;
    item.problem.has_alibi = true;
    assert_true(limits_largest_logit(&item) == INFINITY);
}

/* Of outliers in 8 bits that the program draws, and of nothing else. */
static void one_term_of_outliers(void **state)
{
    (void)state;
    struct plan_item item = item_of(ATTN_E4M3, FILL_OUTLIERS, 0);
    assert_true(limits_one_term(&item) == 0x1p-4);
    item.problem.dtype = ATTN_E5M2;
    assert_true(limits_one_term(&item) == 0x1p-3);
    item.folder = "the user's";
    assert_true(limits_one_term(&item) == 0);
    item = item_of(ATTN_BF16, FILL_OUTLIERS, 0);
    assert_true(limits_one_term(&item) == 0);
    item = item_of(ATTN_E4M3, FILL_CHANNELS, 0);
    assert_true(limits_one_term(&item) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(steep_logits), cmocka_unit_test(deviation_of_logits),
                                       cmocka_unit_test(peaks), cmocka_unit_test(one_term_of_outliers),
                                       cmocka_unit_test(logits_with_a_bias)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
