/* Sustained regions: the loop on a fake device, the columns of a row from made-up regions, and one whole problem on the
 * CPU with a fake NVML, which then loses its device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>

#include "cmd/base/log.h"
#include "cmd/run/row.h"
#include "cmd/measure/sustain.h"
#include "cmd/run/worker.h"
#include "cmd/options/options.h"
#include "tests/fake/fake_nvml.h"

/* The index of a word among the names of an enum; -1 for "" and words that are none. */
static int index_of(const char *const *names, const char *word)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], word) == 0)
            return i;
    return -1;
}

/* ---- the loop ---- */

static int64_t launched, batches, stop_at_batch, fail_at_batch;

static enum attn_status fake_repeat(struct backend *be, const struct launcher *l, int64_t count,
                                    struct attn_message *message)
{
    (void)be, (void)l;
    if (batches == fail_at_batch) {
        strcpy(message->text, "made up");
        return ATTN_ERROR;
    }
    launched += count;
    batches++;
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    return ATTN_OK;
}

static bool before_batch(void *context)
{
    (void)context;
    return batches != stop_at_batch;
}

static const struct backend_ops fake_ops = {.repeat = fake_repeat};

static enum attn_status run(double lead_s, double seconds, struct sustain_result *result)
{
    struct backend be = {.ops = &fake_ops};
    struct attn_message why = {""};
    const struct launcher launcher = {.impl = NULL};
    const struct sustain_plan plan = {
        .lead_s = lead_s, .seconds = seconds, .pass_ms = 50, .before_batch = before_batch};
    return sustain_run(&be, &launcher, &plan, result, &why);
}

static int reset(void **state)
{
    (void)state;
    launched = batches = 0;
    stop_at_batch = fail_at_batch = -1;
    return 0;
}

static void region_lasts_and_counts(void **state)
{
    (void)state;
    struct sustain_result result;
    assert_int_equal(run(0, 0.01, &result), ATTN_OK);
    assert_true(result.seconds >= 0.01);
    assert_int_equal(result.passes, launched); /* without a lead all are counted */
    assert_false(result.interrupted);
    assert_true(isnan(result.telemetry.energy_counter_j));
    const int64_t before = launched;
    assert_int_equal(run(0.005, 0.01, &result), ATTN_OK);
    assert_true(result.passes > 0 && result.passes < launched - before); /* the lead is not counted */
}

static void region_is_interrupted_or_fails(void **state)
{
    (void)state;
    struct sustain_result result;
    stop_at_batch = 1;
    assert_int_equal(run(0, 1e6, &result), ATTN_OK);
    assert_true(result.interrupted);
    reset(NULL);
    stop_at_batch = 0; /* in the lead */
    assert_int_equal(run(1e6, 1e6, &result), ATTN_OK);
    assert_true(result.interrupted);
    assert_int_equal(launched, 0);
    reset(NULL);
    fail_at_batch = 2;
    assert_int_equal(run(0, 1e6, &result), ATTN_ERROR);
}

static void batches_follow_the_pass(void **state)
{
    (void)state;
    assert_int_equal(sustain_batch(SUSTAIN_BATCH_MS), 1);
    assert_int_equal(sustain_batch(10 * SUSTAIN_BATCH_MS), 1);
    assert_int_equal(sustain_batch(SUSTAIN_BATCH_MS / 8), 8);
    assert_int_equal(sustain_batch(NAN), 1);
    assert_in_range(sustain_batch(0), 1, 1000000);
}

/* ---- the columns ---- */

static struct record_row row_of(const char *check, const struct sustain_result *result)
{
    struct record_row row;
    memset(&row, 0, sizeof row);
    record_row_clear(&row);
    row.flops = 2e12;
    row.check = index_of(record_check_names, check);
    row_sustained(&row, result);
    return row;
}

static struct sustain_result region(double counter_j, double integral_j)
{
    return (struct sustain_result){.seconds = 10,
                                   .passes = 1000,
                                   .telemetry = {.seconds = 10.1,
                                                 .sm_clock_mhz = 1600,
                                                 .temp_c = 60,
                                                 .power_capped_pct = 99,
                                                 .throttled_pct = 0,
                                                 .energy_counter_j = counter_j,
                                                 .energy_integral_j = integral_j}};
}

static bool near(double a, double b) { return fabs(a / b - 1) < 1e-12; }

static void columns_from_a_region(void **state)
{
    (void)state;
    struct sustain_result result = region(7070, 7000);
    struct record_row row = row_of("pass", &result);
    assert_true(near(row.tflops_sustained, 200) && near(row.power_w, 700) && near(row.energy_j, 7));
    assert_true(near(row.tflops_per_w, 200.0 / 700));
    assert_string_equal(row.energy_source, "counter");
    assert_true(row.energy_counter_j == 7070 && row.energy_integral_j == 7000); /* both are recorded */
    assert_true(row.sustain_s == 10 && row.sustain_passes == 1000 && row.sustain_sm_clock_mhz == 1600);
    assert_true(isnan(row.tflops) && isnan(row.sm_clock_mhz)); /* no burst figures from a region */

    result = region(NAN, 7000);
    row = row_of("off", &result);
    assert_string_equal(row.energy_source, "integral");
    assert_true(near(row.power_w, 7000 / 10.1));

    result = region(0, 7000); /* a counter that does not change is not used */
    row = row_of("pass", &result);
    assert_string_equal(row.energy_source, "integral");

    result = region(NAN, NAN);
    row = row_of("pass", &result);
    assert_true(near(row.tflops_sustained, 200));
    assert_true(isnan(row.power_w) && isnan(row.energy_j) && isnan(row.tflops_per_w));
    assert_string_equal(row.energy_source, "");

    result = region(7070, 7000);
    row = row_of("fail", &result); /* measured values stay, TFLOPS do not */
    assert_true(near(row.power_w, 700) && row.sustain_s == 10);
    assert_true(isnan(row.tflops_sustained) && isnan(row.tflops_per_w));

    memset(&result, 0, sizeof result); /* there was no region */
    row = row_of("pass", &result);
    assert_true(isnan(row.sustain_s) && isnan(row.tflops_sustained) && isnan(row.power_w));
}

/* ---- one problem on the CPU, with a fake NVML ---- */

static struct record_row rows[4];
static int row_count;
static enum case_stage vanishes_in; /* STAGE_IDLE = never */

static void on_stage(void *context, enum case_stage stage, int slot, const char *impl)
{
    (void)slot, (void)impl;
    *(unsigned *)context |= 1u << stage;
    if (stage == vanishes_in && fake->lost_after_calls < 0)
        fake->lost_after_calls = fake->calls;
}

static bool never(void *context)
{
    (void)context;
    return false;
}

static void keep_row(void *context, int slot, const struct record_row *row)
{
    (void)context, (void)slot;
    char why[128];
    json_t *object = record_row_json(row);
    assert_true(row_count < 4);
    memset(&rows[row_count], 0, sizeof rows[0]);
    assert_true(record_row_parse(object, &rows[row_count++], why, sizeof why));
    json_decref(object);
}

static enum attn_status run_problem(unsigned *stages, struct attn_message *why, int *failed)
{
    char *words[] = {"fabench", "--device",    "cpu",       "--seqlen", "64",          "--d", "64",
                     "--batch", "1",           "--heads",   "1",        "--mode",      "fwd", "--causal",
                     "--impl",  "naive,fused", "--samples", "6",        "--warmup-ms", "0",   "--min-time-ms",
                     "1",       "--max-noise", "100%"};
    struct options o;
    struct session s;
    bool done = false;
    assert_int_equal(options_parse(sizeof words / sizeof *words, words, &o, &done), EXIT_OK);
    assert_int_equal(session_open(&o, "test", false, &s), EXIT_OK);
    assert_true(nvml_open(FAKE_BUS_ID, s.nvml_problem, sizeof s.nvml_problem));
    s.plan.sustain_s = 0.02; /* shorter than the option takes */
    const struct case_setting setting = {
        .backend = &s.backend,
        .options = &o,
        .plan = &s.plan,
        .facts = &s.facts,
        .slots = s.slots,
        .slot_count = s.slot_count,
        .timed = true,
        .use_nvml = true,
        .hooks = {.context = stages, .stage = on_stage, .interrupted = never, .row = keep_row}};
    const enum attn_status status = case_run(&setting, 0, 0, 0, failed, why);
    session_close(&s);
    options_free(&o);
    return status;
}

static void free_rows(void)
{
    for (int i = 0; i < row_count; i++)
        record_row_free(&rows[i]);
    row_count = 0;
}

static void rows_carry_the_device(void **state)
{
    (void)state;
    unsigned stages = 0;
    int failed = -1;
    struct attn_message why = {""};
    assert_int_equal(fake_nvml_use(FAKE_NVML), 0);
    assert_int_equal(run_problem(&stages, &why, &failed), ATTN_OK);
    assert_int_equal(row_count, 2);
    assert_true(stages & 1u << STAGE_SUSTAIN);
    for (int i = 0; i < 2; i++) {
        assert_true(rows[i].sm_clock_mhz == 1500 && rows[i].temp_c == 60);
        assert_true(isfinite(rows[i].power_capped_pct) && rows[i].throttled_pct == 0);
        assert_true(rows[i].power_w > 0 && rows[i].energy_j > 0 && rows[i].tflops_per_w > 0);
        assert_true(rows[i].energy_counter_j > 0 && rows[i].energy_integral_j > 0);
        assert_true(rows[i].tflops_sustained > 0 && rows[i].sustain_passes > 0);
        assert_true(fabs(rows[i].energy_j * (double)rows[i].sustain_passes / rows[i].sustain_s / rows[i].power_w - 1) <
                    1e-9);
        assert_string_equal(rows[i].energy_source, "counter");
        assert_int_equal(rows[i].check, CHECKED_PASS);
    }
    assert_string_equal(rows[0].asked, "naive");
    assert_string_equal(rows[1].asked, "fused");
    assert_string_equal(rows[1].impl, "fused_cpu");
    free_rows();
}

/* In its own process, because a problem that fails does not free its memory. */
static int lose_device_in(enum case_stage stage, int wanted_failed)
{
    int state = 0;
    const pid_t pid = fork();
    if (pid == 0) {
        unsigned stages = 0;
        int failed = 99;
        struct attn_message why = {""};
        vanishes_in = stage;
        const bool is_error = fake_nvml_use(FAKE_NVML) == 0 && run_problem(&stages, &why, &failed) == ATTN_ERROR;
        const bool went_on = stage == STAGE_TIME && stages & 1u << STAGE_SUSTAIN;
        _exit(!is_error ? 1 : failed != wanted_failed ? 2 : !strstr(why.text, "lost") ? 3 : row_count ? 4 : went_on);
    }
    assert_true(pid > 0 && waitpid(pid, &state, 0) == pid && WIFEXITED(state));
    return WEXITSTATUS(state);
}

/* When the device is lost, no row of the problem is delivered. */
static void a_lost_device_fails_the_problem(void **state)
{
    (void)state;
    assert_int_equal(lose_device_in(STAGE_TIME, -1), 0);   /* in the rounds: all members fail */
    assert_int_equal(lose_device_in(STAGE_SUSTAIN, 0), 0); /* in a region: the member that ran fails */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(region_lasts_and_counts, reset),
        cmocka_unit_test_setup(region_is_interrupted_or_fails, reset),
        cmocka_unit_test(batches_follow_the_pass),
        cmocka_unit_test(columns_from_a_region),
        cmocka_unit_test(a_lost_device_fails_the_problem), /* forks, so it must run before threads are started */
        cmocka_unit_test(rows_carry_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
