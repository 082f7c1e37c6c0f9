/* Counters of the hardware: the plan of metrics with the library itself, which needs no device for that (skipped where
 * there is none), and counting with a made-up library. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/device/counters.h"
#include "cmd/device/cupti.h"
#include "tests/fake/fake_cupti.h"

static char why[256];
static struct counter_plan plan;

/* ---- the library itself ---- */

static int real_library(void **state)
{
    (void)state;
    memset(&plan, 0, sizeof plan);
    return unsetenv("FABENCH_CUPTI");
}

static int free_plan(void **state)
{
    (void)state;
    counter_plan_free(&plan);
    return 0;
}

/* Makes the plan of a chip, or skips the test in words. */
static void plan_of(const char *chip)
{
#ifdef __SANITIZE_ADDRESS__ /* the library opens another one in a way that the sanitizer refuses (RTLD_DEEPBIND) */
    print_message("CUPTI does not run under AddressSanitizer\n");
    skip();
#endif
    if (!cupti_load(why, sizeof why)) {
        print_message("no CUPTI here, so that no metrics are planned: %s\n", why);
        skip();
    }
    if (!counter_plan_make(chip, &plan, why, sizeof why))
        fail_msg("%s: %s", chip, why);
}

static bool has_metric(const char *metric)
{
    for (int i = 0; i < plan.count; i++)
        if (!strcmp(plan.metrics[i], metric))
            return true;
    return false;
}

static void hopper_counts_everything(void **state)
{
    (void)state;
    plan_of("GH100");
    for (int i = 0; i < COUNTER_COUNT; i++)
        if (!plan.is_planned[i] || plan.is_absent[i])
            fail_msg("counter %d is not planned", i);
    /* HMMA and HGMMA are both counted. */
    assert_true(has_metric("sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32.sum"));
    assert_true(has_metric("sm__ops_path_tensor_op_hmma_src_bf16_dst_fp32.sum"));
    assert_true(has_metric("sm__ops_path_tensor_op_hmma_src_fp16_dst_fp16.sum"));
    assert_true(has_metric("dram__bytes_read.sum") && has_metric("dram__bytes_write.sum"));
    assert_true(plan.config && plan.config_bytes && plan.host);
    assert_in_range(plan.passes, 1, 6); /* few launches: more than these counters need at most */
}

static void other_chips(void **state)
{
    (void)state;
    plan_of("GA100"); /* A100: no 8-bit floats */
    assert_true(plan.is_planned[COUNTER_DRAM_READ] && plan.is_planned[COUNTER_FLOP + COUNTED_BF16]);
    assert_true(!plan.is_planned[COUNTER_FLOP + COUNTED_FP8] && plan.is_absent[COUNTER_FLOP + COUNTED_FP8]);
    const struct counters c = counters_begin(&plan);
    assert_true(c.values[COUNTER_FLOP + COUNTED_FP8] == 0);
    counter_plan_free(&plan);
    plan_of("AD102");
    assert_true(plan.is_planned[COUNTER_FLOP + COUNTED_FP8]);
    counter_plan_free(&plan);
    plan_of("GB100"); /* counts 8 bits in two passes */
    for (int i = 0; i < COUNTED_TYPES; i++)
        assert_true(plan.is_planned[COUNTER_FLOP + i]);
    counter_plan_free(&plan);
    plan_of("GB202"); /* names them otherwise */
    assert_true(plan.is_planned[COUNTER_DRAM_READ] && plan.is_planned[COUNTER_DRAM_WRITE]);
}

static void unknown_chip(void **state)
{
    (void)state;
    plan_of("GH100");
    counter_plan_free(&plan);
    assert_false(counter_plan_make("NO100", &plan, why, sizeof why));
    assert_non_null(strstr(why, "the counters of NO100: "));
}

/* A machine with the library and without a driver: a sentence. With a driver this is the device's own test. */
static void without_driver(void **state)
{
    (void)state;
    plan_of("GH100");
    struct counting own;
    if (counting_begin(&own, 0, why, sizeof why))
        print_message("there is a device that can be counted on\n");
    else
        assert_true(strlen(why) > 20);
    counting_end(&own);
}

/* ---- counting with the fake ---- */

static struct counting counting;

static int fake_library(void **state)
{
    (void)state;
    return fake_cupti_use();
}

static bool open_it(void)
{
    return counting_begin(&counting, 0, why, sizeof why) && counting_attach(&counting, why, sizeof why);
}

/* Whatever happened, nothing is left open. */
static int end_counting(void **state)
{
    (void)state;
    fake_cupti->failing = NULL;
    counting_end(&counting);
    return fake_cupti->hosts || fake_cupti->profilers || fake_cupti->initialized || fake_cupti->is_started;
}

/* Which step is to fail, and how often each was taken. */
struct taken {
    int before, launch, behind;
    const int *failing;
};

static enum attn_status take(struct taken *t, int *times, struct attn_message *message)
{
    ++*times;
    snprintf(message->text, sizeof message->text, "a step failed");
    return times == t->failing ? ATTN_ERROR : ATTN_OK;
}

static enum attn_status before(void *context, struct attn_message *message)
{
    struct taken *const t = context;
    assert_false(fake_cupti->is_pushed); /* not counted */
    return take(t, &t->before, message);
}

static enum attn_status launch(void *context, struct attn_message *message)
{
    struct taken *const t = context;
    assert_true(fake_cupti->is_pushed && t->launch == t->behind); /* in a range */
    return take(t, &t->launch, message);
}

static enum attn_status behind(void *context, struct attn_message *message)
{
    struct taken *const t = context;
    assert_true(fake_cupti->is_pushed && t->launch == t->behind + 1);
    return take(t, &t->behind, message);
}

static struct taken taken;
static struct counters after;

/* False, with the sentence in `why`, where it is not counted. What was counted behind the launch is in `after`. */
static bool count(struct counters *counters)
{
    const struct counted_steps steps = {.before = before, .launch = launch, .behind = behind, .context = &taken};
    struct attn_message message;
    bool is_counted;
    taken = (struct taken){0};
    assert_int_equal(counting_run(&counting, &steps, counters, &after, &is_counted, &message), ATTN_OK);
    snprintf(why, sizeof why, "%s", message.text);
    return is_counted;
}

static void set_value(int i, const char *metric, double value, double value_behind)
{
    fake_cupti->values[i].metric = metric;
    fake_cupti->values[i].value = value;
    fake_cupti->values[i].behind = value_behind;
}

static void sums_of_metrics(void **state)
{
    struct counters counters;
    (void)state;
    set_value(0, "dram__bytes_read.sum", 5e9, 2e9);
    set_value(1, "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32.sum", 3e12, 0);
    set_value(2, "sm__ops_path_tensor_op_hmma_src_bf16_dst_fp32.sum", 1e12, 0);
    set_value(3, "sm__ops_path_tensor_src_fp8.sum", 7e12, 0);
    assert_true(open_it());
    assert_true(count(&counters));
    assert_true(counters.values[COUNTER_DRAM_READ] == 5e9 && counters.values[COUNTER_DRAM_WRITE] == 0);
    assert_true(counters.values[COUNTER_FLOP + COUNTED_BF16] == 4e12);
    assert_true(counters_flop(&counters) == 11e12);
    assert_true(after.values[COUNTER_DRAM_READ] == 2e9 && counters_flop(&after) == 0);
    assert_true(isnan(counters_flop(&(struct counters){.values = {[COUNTER_FLOP] = NAN, NAN, NAN, NAN, NAN}})));
    /* A launch for each pass: 12 metrics by fours. */
    assert_int_equal(counting.plan.passes, 3);
    assert_true(taken.before == 3 && taken.launch == 3 && taken.behind == 3);
    assert_int_equal(fake_cupti->decoded, 1);
}

/* Again and again with one profiler, whose configuration stays; and without a step before or behind the launch. */
static void one_configuration(void **state)
{
    struct counters counters;
    struct attn_message message;
    bool is_counted;
    (void)state;
    set_value(0, "dram__bytes_read.sum", 5e9, 2e9);
    assert_true(open_it());
    for (int i = 0; i < 3; i++) {
        assert_true(count(&counters));
        assert_true(counters.values[COUNTER_DRAM_READ] == 5e9);
    }
    const struct counted_steps alone = {.launch = launch, .context = &taken};
    taken = (struct taken){0};
    fake_cupti->metrics_per_pass = 100;
    counting_end(&counting);
    assert_true(open_it());
    assert_int_equal(counting_run(&counting, &alone, &counters, &after, &is_counted, &message), ATTN_OK);
    assert_true(is_counted && taken.launch == 1 && counters.values[COUNTER_DRAM_READ] == 5e9);
    assert_true(isnan(after.values[COUNTER_DRAM_READ]));
}

/* Metrics that take too many passes together with those before them are left out: nothing is known of them. */
static void too_many_passes(void **state)
{
    struct counters counters;
    (void)state;
    fake_cupti->metrics_per_pass = 1;
    fake_cupti->passes_per_metric = 2;
    assert_true(open_it());
    assert_int_equal(counting.plan.passes, COUNTER_PASSES_MAX); /* of 6 metrics */
    assert_true(counting.plan.is_planned[COUNTER_FLOP + COUNTED_BF16]);
    assert_false(counting.plan.is_planned[COUNTER_FLOP + COUNTED_FP8] ||
                 counting.plan.is_absent[COUNTER_FLOP + COUNTED_FP8]);
    assert_true(count(&counters));
    assert_int_equal(taken.launch, COUNTER_PASSES_MAX);
    assert_true(counters.values[COUNTER_FLOP + COUNTED_BF16] == 0);
    assert_true(isnan(counters.values[COUNTER_FLOP + COUNTED_FP8]));
}

/* A pass that the library did not speak of before: what was counted is not whole. */
static void passes_left(void **state)
{
    struct counters counters;
    (void)state;
    assert_true(open_it());
    fake_cupti->passes_more = 1;
    assert_false(count(&counters));
    assert_non_null(strstr(why, "what was counted got lost"));
    assert_true(isnan(counters.values[COUNTER_L2]));
}

/* A chip without a metric has the next alternative, or none. */
static void alternatives(void **state)
{
    struct counters counters;
    (void)state;
    fake_cupti->unknown = "hgmma_src";
    fake_cupti->values[0].metric = "sm__ops_path_tensor_src_bf16_dst_fp32.sum";
    fake_cupti->values[0].value = 2e12;
    assert_true(open_it());
    assert_true(count(&counters));
    assert_true(counters.values[COUNTER_FLOP + COUNTED_BF16] == 2e12);
    counting_end(&counting);
    fake_cupti->unknown = "bytes";
    assert_true(open_it());
    assert_true(count(&counters));
    assert_true(isnan(counters.values[COUNTER_DRAM_READ]) && isnan(counters.values[COUNTER_L2]));
    assert_true(counters.values[COUNTER_FLOP + COUNTED_BF16] == 2e12 || counters_flop(&counters) == 0);
    counting_end(&counting);
    fake_cupti->unknown = "__";
    assert_false(open_it());
    assert_non_null(strstr(why, "the counters of GH100: it has none of them"));
}

/* Each refusal is a sentence that says what stands in the way. */
static void refusals(void **state)
{
    static const struct {
        const char *function;
        int status;
        const char *words;
    } cases[] = {{"cuptiProfilerInitialize", 999, "CUPTI could not be initialised"},
                 {"cuptiDeviceGetChipName", 2, "CUPTI does not tell the chip"},
                 {"cuptiProfilerHostInitialize", 46, "this CUPTI does not know the chip"},
                 {"cuptiRangeProfilerEnable", 35, "not permitted: the driver lets an administrator alone"},
                 {"cuptiRangeProfilerEnable", 43, "not with MIG"},
                 {"cuptiRangeProfilerEnable", 39, "another profiler is attached"},
                 {"cuptiRangeProfilerEnable", 26, "another program holds the counters"},
                 {"cuptiRangeProfilerEnable", 77, "CUPTI error 77"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fake_cupti->failing = cases[i].function;
        fake_cupti->status = cases[i].status;
        assert_false(open_it());
        if (!strstr(why, cases[i].words))
            fail_msg("no '%s' in: %s", cases[i].words, why);
        fake_cupti->failing = NULL;
        counting_end(&counting);
        assert_int_equal(fake_cupti->hosts + fake_cupti->profilers + fake_cupti->initialized, 0);
    }
}

/* A step that fails ends the counting of the launch, with a sentence, and not the run. */
static void failing_steps(void **state)
{
    static const char *const steps[] = {"cuptiRangeProfilerGetCounterDataSize",
                                        "cuptiRangeProfilerCounterDataImageInitialize",
                                        "cuptiRangeProfilerSetConfig",
                                        "cuptiRangeProfilerStart",
                                        "cuptiRangeProfilerPushRange",
                                        "cuptiRangeProfilerPopRange",
                                        "cuptiRangeProfilerStop",
                                        "cuptiRangeProfilerDecodeData",
                                        "cuptiProfilerHostEvaluateToGpuValues"};
    struct counters counters;
    (void)state;
    assert_true(open_it());
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        fake_cupti->failing = steps[i];
        fake_cupti->status = 35;
        if (count(&counters))
            fail_msg("%s failed and was not noticed", steps[i]);
        assert_non_null(strstr(why, "not permitted"));
        fake_cupti->failing = NULL;
        assert_true(count(&counters)); /* and the next launch is counted again */
    }
}

static void failing_launch(void **state)
{
    const int *const failing[] = {&taken.before, &taken.launch, &taken.behind};
    const struct counted_steps steps = {.before = before, .launch = launch, .behind = behind, .context = &taken};
    struct attn_message message;
    struct counters counters;
    (void)state;
    assert_true(open_it());
    for (int i = 0; i < 3; i++) {
        bool is_counted = true;
        taken = (struct taken){.failing = failing[i]};
        assert_int_equal(counting_run(&counting, &steps, &counters, &after, &is_counted, &message), ATTN_ERROR);
        assert_string_equal(message.text, "a step failed");
        assert_int_equal(*failing[i], 1);
        assert_false(is_counted || fake_cupti->is_started || fake_cupti->is_pushed);
        assert_true(count(&counters));
    }
}

static void absent_library(void **state)
{
    (void)state;
    assert_int_equal(setenv("FABENCH_CUPTI", "/nowhere/libcupti.so", 1), 0);
    assert_false(open_it());
    assert_non_null(strstr(why, "FABENCH_CUPTI=/nowhere/libcupti.so cannot be loaded"));
    assert_int_equal(setenv("FABENCH_CUPTI", FAKE_NVML, 1), 0); /* a library, but not this one */
    assert_false(open_it());
    assert_non_null(strstr(why, "older than that of CUDA 12.6"));
}

int main(void)
{
    const struct CMUnitTest real[] = {
        cmocka_unit_test_setup_teardown(hopper_counts_everything, real_library, free_plan),
        cmocka_unit_test_setup_teardown(other_chips, real_library, free_plan),
        cmocka_unit_test_setup_teardown(unknown_chip, real_library, free_plan),
        cmocka_unit_test_setup_teardown(without_driver, real_library, free_plan),
    };
    const struct CMUnitTest made_up[] = {
        cmocka_unit_test_setup_teardown(sums_of_metrics, fake_library, end_counting),
        cmocka_unit_test_setup_teardown(one_configuration, fake_library, end_counting),
        cmocka_unit_test_setup_teardown(too_many_passes, fake_library, end_counting),
        cmocka_unit_test_setup_teardown(passes_left, fake_library, end_counting),
        cmocka_unit_test_setup_teardown(alternatives, fake_library, end_counting),
        cmocka_unit_test_setup_teardown(refusals, fake_library, end_counting),
        cmocka_unit_test_setup_teardown(failing_steps, fake_library, end_counting),
        cmocka_unit_test_setup_teardown(failing_launch, fake_library, end_counting),
        cmocka_unit_test_setup_teardown(absent_library, fake_library, end_counting),
    };
    return cmocka_run_group_tests(real, NULL, NULL) + cmocka_run_group_tests(made_up, NULL, NULL);
}
