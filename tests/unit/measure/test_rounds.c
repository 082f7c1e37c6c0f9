/* The timing method on a fake device: the order of the samples, and when sampling ends. No test depends on the clock.
 * */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cmd/measure/rounds.h"
#include "cmd/run/row.h"

enum { MEMBERS = 3, LOG_SIZE = 1 << 16 };

/* Member m is recognised by its request pointer; samples report made-up times without waiting. */
static struct attn_request requests[MEMBERS];
static int sampled[LOG_SIZE], sample_count, fail_at, stop_at;
static double spread, swing;

/* The steps of the clock that times the samples, in ms; 0 = none. */
static double step_ms;

/* The program's own clock: the system's, or one that stands still. */
static bool is_clock_still;
int clock_gettime(clockid_t id, struct timespec *time)
{
    static struct timespec last;
    if (!is_clock_still && syscall(SYS_clock_gettime, id, &last) != 0)
        return -1;
    *time = last;
    return 0;
}

static int member_of(const struct launcher *l) { return (int)(l->request - requests); }

static enum attn_status fake_sample(struct backend *be, const struct launcher *l, bool cold, double *time_ms,
                                    struct attn_message *why)
{
    (void)be;
    assert_true(cold);
    if (sample_count == fail_at) {
        strcpy(why->text, "made up");
        return ATTN_ERROR;
    }
    *time_ms = (member_of(l) + 1) * (1 + spread * (sample_count % 7 - 3));
    if (member_of(l) == 0 && sample_count / MEMBERS % 40 < 10) /* ten consecutive slow rounds of 40 */
        *time_ms *= 1 + swing;
    if (step_ms > 0) { /* the difference of two readings, from a beginning anywhere within a step */
        const double begin_ms = step_ms * fmod(sample_count * 0.618, 1);
        *time_ms = step_ms * (floor((begin_ms + *time_ms) / step_ms) - floor(begin_ms / step_ms));
    }
    if (sample_count < LOG_SIZE)
        sampled[sample_count] = member_of(l);
    sample_count++;
    return ATTN_OK;
}

static bool enter(void *context, int member)
{
    (void)context;
    assert_in_range(member, 0, MEMBERS - 1);
    return sample_count != stop_at;
}

static enum attn_status before_sample(void *context, int member, bool is_timed, struct attn_message *why)
{
    (void)context;
    (void)why;
    (void)is_timed;
    assert_in_range(member, 0, MEMBERS - 1);
    return ATTN_OK;
}

static const struct backend_ops fake_ops = {.sample = fake_sample};

/* What the last call of run said. */
static struct attn_message last_reason;

static enum attn_status run(struct rounds_plan plan, struct rounds_member *members, struct rounds_result *result)
{
    struct backend be = {.ops = &fake_ops};
    memset(members, 0, MEMBERS * sizeof *members);
    for (int m = 0; m < MEMBERS; m++)
        members[m].launcher.request = &requests[m];
    plan.cold = true;
    plan.enter = enter;
    plan.before_sample = before_sample;
    return rounds_run(&be, members, MEMBERS, &plan, result, &last_reason);
}

static int reset(void **state)
{
    (void)state;
    sample_count = 0;
    fail_at = stop_at = -1;
    spread = swing = step_ms = 0;
    is_clock_still = false;
    return 0;
}

static void discard(struct rounds_member *members)
{
    for (int m = 0; m < MEMBERS; m++)
        free(members[m].samples_ms);
}

/* Every round has every member once. In 2 x count rounds each member follows each other one, and is first, equally
 * often. */
static void neighbours_are_balanced(void **state)
{
    (void)state;
    for (int count = 1; count <= 9; count++) {
        int follows[9][9] = {{0}}, begins[9] = {0}, order[9];
        for (int r = 0; r < 2 * count; r++) {
            int seen = 0;
            rounds_order(count, r, order);
            for (int i = 0; i < count; i++) {
                assert_in_range(order[i], 0, count - 1);
                seen |= 1 << order[i];
                if (i > 0)
                    follows[order[i - 1]][order[i]]++;
            }
            assert_int_equal(seen, (1 << count) - 1);
            begins[order[0]]++;
        }
        for (int a = 0; a < count; a++) {
            assert_int_equal(begins[a], 2);
            for (int b = 0; b < count; b++)
                assert_int_equal(follows[a][b], a == b ? 0 : 2);
        }
    }
}

static void members_take_turns_in_the_rounds_order(void **state)
{
    (void)state;
    struct rounds_member members[MEMBERS];
    struct rounds_result result;
    const struct rounds_plan plan = {.samples = 40, .max_noise_pct = 1, .limit_ms = 1e6};
    assert_int_equal(run(plan, members, &result), ATTN_OK);
    assert_int_equal(result.rounds, 40);
    assert_int_equal(sample_count, 40 * MEMBERS);
    assert_string_equal(result.stop, "noise");
    for (int r = 0; r < 40; r++) {
        int order[MEMBERS];
        rounds_order(MEMBERS, r, order);
        assert_memory_equal(&sampled[r * MEMBERS], order, sizeof order);
    }
    for (int m = 0; m < MEMBERS; m++)
        for (int r = 0; r < 40; r++)
            assert_true(members[m].samples_ms[r] == m + 1);
    discard(members);
}

static void noise_above_the_bound_goes_on(void **state)
{
    (void)state;
    struct rounds_member members[MEMBERS];
    struct rounds_result result;
    spread = 0.05;
    const struct rounds_plan plan = {.samples = 10, .max_noise_pct = 5, .limit_ms = 1e6, .min_time_ms = 1e5};
    stop_at = 3000;
    assert_int_equal(run(plan, members, &result), ATTN_OK); /* min_time_ms keeps it going until it is interrupted */
    assert_true(result.interrupted);
    assert_int_equal(result.rounds, 1000);
    assert_null(result.stop);
    discard(members);
}

static void the_limit_ends_what_stays_noisy(void **state)
{
    (void)state;
    struct rounds_member members[MEMBERS];
    struct rounds_result result;
    spread = 0.1;
    const struct rounds_plan plan = {.samples = 12, .max_noise_pct = 1e-6, .limit_ms = 1e6, .min_time_ms = 0};
    assert_int_equal(run(plan, members, &result), ATTN_OK);
    assert_string_equal(result.stop, "limit");
    assert_int_equal(result.rounds, 12);
    discard(members);
}

/* Slow periods change the ratio, not the median. */
static void slow_periods_are_noise(void **state)
{
    (void)state;
    struct rounds_member members[MEMBERS];
    struct rounds_result result;
    const struct rounds_plan plan = {.samples = 100, .max_noise_pct = 1, .limit_ms = 1e6};
    swing = 0.3;
    assert_int_equal(run(plan, members, &result), ATTN_OK);
    assert_string_equal(result.stop, "limit");
    assert_int_equal(result.rounds, 100);
    discard(members);
    swing = 0.001;
    assert_int_equal(run(plan, members, &result), ATTN_OK);
    assert_string_equal(result.stop, "noise");
    discard(members);
}

static void the_time_limit_cuts_even_few_samples(void **state)
{
    (void)state;
    struct rounds_member members[MEMBERS];
    struct rounds_result result;
    const struct rounds_plan plan = {.samples = 1000, .max_noise_pct = 1, .limit_ms = 0};
    assert_int_equal(run(plan, members, &result), ATTN_OK);
    assert_string_equal(result.stop, "limit");
    assert_int_equal(result.rounds, 1);
    discard(members);
}

static void a_failing_member_is_named(void **state)
{
    (void)state;
    struct rounds_member members[MEMBERS];
    struct rounds_result result;
    const struct rounds_plan plan = {.samples = 30, .max_noise_pct = 1, .limit_ms = 1e6};
    fail_at = 4; /* round 1 is 2 1 0 */
    assert_int_equal(run(plan, members, &result), ATTN_ERROR);
    assert_int_equal(result.failed_member, 1);
    assert_int_equal(result.rounds, 1);
    discard(members);
}

/* Members take 1, 2 and 3 ms. */
static enum attn_status run_with_steps_of(double ms, int *failed_member)
{
    struct rounds_member members[MEMBERS];
    struct rounds_result result;
    const struct rounds_plan plan = {.samples = 40, .max_noise_pct = 100, .limit_ms = 1e6};
    reset(NULL);
    step_ms = ms;
    const enum attn_status status = run(plan, members, &result);
    *failed_member = result.failed_member;
    discard(members);
    return status;
}

static void samples_below_the_clocks_step_are_no_time(void **state)
{
    (void)state;
    int member = -1;
    assert_int_equal(run_with_steps_of(0.01, &member), ATTN_OK);
    assert_int_equal(run_with_steps_of(1, &member), ATTN_OK);
    assert_int_equal(run_with_steps_of(1.5, &member), ATTN_ERROR); /* a third of the first one's samples are 0 */
    assert_int_equal(member, 0);
    assert_non_null(
        strstr(last_reason.text, " of 40 samples took 0 ms: the clock stands still, or its steps are longer"));
    assert_int_equal(run_with_steps_of(1e9, &member), ATTN_ERROR); /* a clock of the device that does not move */
    assert_non_null(strstr(last_reason.text, "40 of 40 samples took 0 ms"));
}

/* Neither the warm-up nor the samples would end, since both are limited by time. */
static void a_clock_that_stands_still_ends_the_rounds(void **state)
{
    (void)state;
    struct rounds_member members[MEMBERS];
    struct rounds_result result;
    const struct rounds_plan plans[] = {{.samples = 30, .max_noise_pct = 1, .limit_ms = 1e6, .warmup_ms = 1},
                                        {.samples = 30, .max_noise_pct = 1, .limit_ms = 1e6, .min_time_ms = 1}};
    for (int i = 0; i < 2; i++) {
        is_clock_still = true;
        const enum attn_status status = run(plans[i], members, &result);
        is_clock_still = false;
        assert_int_equal(status, ATTN_ERROR);
        assert_string_equal(last_reason.text, "the clock stands still: it has shown the same time for 1000 rounds");
        discard(members);
    }
}

/* A drift that affects whole rounds does not change ratios within rounds; a failed row has times but no TFLOPS. */
static void ratios_are_paired_and_failure_has_no_speed(void **state)
{
    (void)state;
    double ours[31], peer[31], gemm[31];
    struct record_row row;
    for (int i = 0; i < 31; i++) {
        const double drift = 1 + 0.02 * i;
        ours[i] = 2 * drift;
        peer[i] = 3 * drift;
        gemm[i] = 1 * drift;
    }
    const struct row_baselines baselines = {.gemm_ms = gemm, .peer_ms = peer, .gemm_flops = 1e12, .peer = "cudnn"};
    memset(&row, 0, sizeof row);
    record_row_clear(&row);
    row.flops = 1e12;
    row.check = CHECKED_PASS;
    row_times(&row, ours, 31, "noise", &baselines);
    assert_true(fabs(row.speedup_vs_peer - 1.5) < 1e-12);
    assert_true(fabs(row.pct_of_gemm - 50) < 1e-9);
    assert_true(fabs(row.tflops - 1e12 / row.time_ms * 1e-9) < 1e-9);
    assert_true(isnan(row.speedup_vs_naive));
    record_row_free(&row);
    record_row_clear(&row);
    row.flops = 1e12;
    row.check = CHECKED_FAIL;
    row_times(&row, ours, 31, "noise", &baselines);
    assert_true(row.time_ms > 0);
    assert_true(isnan(row.tflops) && isnan(row.pct_of_gemm) && isnan(row.speedup_vs_peer));
    record_row_free(&row);
}

/* Of decode: bytes over time, and their share of a ceiling that read a little more, within rounds. */
static void a_row_of_decode_has_a_share_of_reading(void **state)
{
    (void)state;
    double ours[9], reading[9];
    struct record_row row;
    for (int i = 0; i < 9; i++) {
        ours[i] = 2 + i;
        reading[i] = 0.5 * ours[i];
    }
    const struct row_baselines baselines = {.read_ms = reading, .read_gb = 0.125};
    memset(&row, 0, sizeof row);
    for (int is_wrong = 0; is_wrong < 2; is_wrong++) {
        record_row_clear(&row);
        row.flops = 1e9;
        row.min_gb = 0.1;
        row.key.mode = MODE_DECODE;
        row.check = is_wrong ? CHECKED_FAIL : CHECKED_PASS;
        row_times(&row, ours, 9, "noise", &baselines);
        assert_true(fabs(row.read_gb_per_s - 0.125 / 3 * 1e3) < 1e-9);
        assert_true(isnan(row.gemm_tflops) && isnan(row.pct_of_gemm));
        assert_true(is_wrong ? isnan(row.pct_of_read) : fabs(row.pct_of_read - 100 * 0.8 * 0.5) < 1e-9);
        assert_true(is_wrong ? isnan(row.gb_per_s) : fabs(row.gb_per_s - 0.1 / 6 * 1e3) < 1e-9);
    }
    record_row_free(&row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_are_balanced),
        cmocka_unit_test_setup(members_take_turns_in_the_rounds_order, reset),
        cmocka_unit_test_setup(noise_above_the_bound_goes_on, reset),
        cmocka_unit_test_setup(the_limit_ends_what_stays_noisy, reset),
        cmocka_unit_test_setup(slow_periods_are_noise, reset),
        cmocka_unit_test_setup(the_time_limit_cuts_even_few_samples, reset),
        cmocka_unit_test_setup(a_failing_member_is_named, reset),
        cmocka_unit_test_setup(samples_below_the_clocks_step_are_no_time, reset),
        cmocka_unit_test_setup(a_clock_that_stands_still_ends_the_rounds, reset),
        cmocka_unit_test(ratios_are_paired_and_failure_has_no_speed),
        cmocka_unit_test(a_row_of_decode_has_a_share_of_reading),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
