/* The sizes of inputs from which the floors of fp16 gradients follow, and those floors. */
#include "cmd/run/denormals.h"

#include <math.h>
#include <string.h>

#include "tests/dense.h"
#include "tests/unit/unit_help.h"

#include "cmd/device/inputs.h"
#include "cmd/run/check.h"

static struct plan_item item_of(int64_t batch, int64_t q_heads, int64_t kv_heads, int64_t len, enum fill_dist dist)
{
    struct plan_item item = {.mode = ATTN_BWD, .dist = dist, .seed = 3};
    item.problem =
        (struct attn_problem)DENSE(batch, q_heads, kv_heads, len, len, 64, ATTN_FP16, ATTN_BSHD, false, -1, -1, 0, 0);
    item.problem.scale = 0.125f;
    return item;
}

/* The view of a problem whose inputs were made and measured. */
static struct check_view measured(const struct plan_item *item)
{
    struct backend be;
    struct attn_message why = {""};
    struct tensor_set inputs;
    struct check_reference reference;
    assert_int_equal(backend_open(&be, DEVICE_CPU, 0, &why), ATTN_OK);
    assert_int_equal(inputs_make(&be, item, NULL, &inputs, &why), ATTN_OK);
    assert_int_equal(check_reference_make(&be, item, CHECK_FULL, &inputs, &reference, &why), ATTN_OK);
    const struct check_view view = reference.views[0];
    tensor_set_free(&be, &inputs);
    check_reference_free(&be, &reference);
    be.ops->close(&be);
    return view;
}

static void assert_near(double got, double want, double share)
{
    if (!(fabs(got / want - 1) < share))
        fail_msg("%.6g is not near %.6g", got, want);
}

/* With `rising` Q has the number 8 in its first column and K a ramp to 60; batches or heads take turns. */
static void columns_are_measured(void **state)
{
    (void)state;
    const struct plan_item many_heads = item_of(2, 6, 3, 300, FILL_RISING),
                           many_batches = item_of(5, 2, 1, 300, FILL_RISING);
    for (int n = 0; n < 2; n++) {
        const struct check_view view = measured(n ? &many_batches : &many_heads);
        assert_near(view.sizes.q.column, 8, 1e-3);
        assert_near(view.sizes.q.rms, sqrt(1 + 63.0 / 64), 0.02);
        assert_near(view.sizes.k.column, 60 / sqrt(3), 0.02);
        assert_near(view.sizes.v.rms, 1, 0.02);
        assert_near(view.sizes.dout.rms, 1, 0.02);
        assert_near(view.sizes.q.largest, 8, 1e-3);
        assert_near(view.sizes.v.largest, 4.2, 0.05);                   /* normal numbers end at 4.33 */
        assert_in_range((int)(100 * view.sizes.dout.column), 100, 130); /* the largest of many columns */
    }
    struct plan_item other = many_heads;
    other.problem.dtype = ATTN_BF16;
    const struct check_view view = measured(&other);
    const struct judge_denormals none = denormals_of(&view, TENSOR_DV);
    assert_true(view.sizes.q.rms == 0 && none.column == 0 && none.rms == 0);
}

/* Of a forward with dropout V is measured, the used slots of a cache alone; of others nothing. */
static void values_of_a_forward_are_measured(void **state)
{
    (void)state;
    struct plan_item item = item_of(2, 6, 3, 300, FILL_NORMAL);
    item.mode = ATTN_FWD;
    assert_true(measured(&item).sizes.v.rms == 0);
    item.problem.dropout = 0.5f;
    const struct check_view fixed = measured(&item);
    assert_near(fixed.sizes.v.rms, 1, 0.02);
    assert_near(fixed.sizes.v.largest, 4.2, 0.05);
    assert_true(fixed.sizes.q.rms == 0 && denormals_of(&fixed, TENSOR_O).column > 0);
    struct plan plan = {0};
    struct reason why = {""};
    item.problem.lengths = ATTN_CACHE;
    item.problem.q_len = 1;
    assert_true(plan_set_arrays(&plan, &item, "list:300:20", 0, "none", 0, &why));
    const struct check_view cached = measured(&item);
    assert_near(cached.sizes.v.rms, 1, 0.02);
    plan_free(&plan);
}

/* 300 rows of two query heads: sqrt(600) deviations of 2^-24 / sqrt(12). A window has fewer rows. */
static void errors_follow_from_sizes(void **state)
{
    (void)state;
    const struct plan_item item = item_of(1, 2, 1, 300, FILL_NORMAL);
    struct check_view view = {.problem = item.problem};
    view.sizes = (struct input_sizes){.q = {1, 8}, .k = {1, 2}, .v = {1, 1}, .dout = {1, 3}};
    const double unit = 0x1p-24 / sqrt(12), from_p = sqrt(1 + 2 * 64.0);
    assert_near(denormals_of(&view, TENSOR_DV).rms, unit * sqrt(600), 1e-9);
    assert_near(denormals_of(&view, TENSOR_DV).column, 3 * unit * sqrt(600), 1e-9);
    assert_near(denormals_of(&view, TENSOR_DK).column, 8 * 0.125 * unit * from_p * sqrt(600), 1e-9);
    assert_near(denormals_of(&view, TENSOR_DQ).column, 2 * 0.125 * unit * from_p * sqrt(300), 1e-9);
    assert_true(denormals_of(&view, TENSOR_O).rms == 0);
    view.problem.window_left = 11;
    assert_near(denormals_of(&view, TENSOR_DV).rms, unit * sqrt(600), 1e-9);
    view.problem.causal = true;
    assert_near(denormals_of(&view, TENSOR_DV).rms, unit * sqrt(24), 1e-9);
    view.problem.dropout = 0.75f;
    assert_near(denormals_of(&view, TENSOR_DV).rms, 2 * unit * sqrt(24), 1e-9);
    view.sizes.v.largest = view.sizes.dout.largest = 4;
    assert_near(denormals_of(&view, TENSOR_DV).one, 4 * 4 * 0x1p-25, 1e-9); /* half a unit, times 1 / (1 - 0.75) */
    assert_near(denormals_of(&view, TENSOR_O).one, 4 * 4 * 0x1p-25, 1e-9);
    assert_near(denormals_of(&view, TENSOR_DV).row,
                4 * 0x1p-25 * view.sizes.dout.rms * sqrt((double)attn_v_head_dim(&view.problem)), 1e-9);
    assert_near(denormals_of(&view, TENSOR_O).rms, 2 * unit * sqrt(12), 1e-9); /* the keys of the window */
    assert_true(denormals_of(&view, TENSOR_DK).one == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(columns_are_measured),
                                       cmocka_unit_test(values_of_a_forward_are_measured),
                                       cmocka_unit_test(errors_follow_from_sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
