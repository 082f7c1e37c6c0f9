/* The decisions of `gate` by hand-made numbers, and on a crowded CPU by simulation (tests/simulate has other kinds of
 * noise). No device is used and nothing is measured. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "cmd/gate/decide.h"
#include "cmd/gate/decide_gate.h"
#include "cmd/base/log.h"
#include "tests/simulate/random.h"

/* The decision on one configuration of which each side is one process, in a gate of `family` such configurations of
 * which nothing else is known. */
static struct decide_gate decided(struct decide_stored was, struct decide_stored now, int family)
{
    const struct decide_case c = {&was, &now, 1, 1};
    const struct decide_family f = {.count = family};
    return decide_gate(&decide_defaults, &f, &c);
}

static struct decide_stored run_of(double ms, double half_width, double share)
{
    return (struct decide_stored){ms, ms - half_width, ms + half_width, share, share > 0 ? 700 : NAN, NAN, 0, 30, NAN};
}

static struct decide_gate gated(double time, double share, double gemm)
{
    const struct decide_stored from = {10, 9.99, 10.01, 50, 700, NAN, 0, 30, NAN};
    const struct decide_stored to = {10 * time, 9.99 * time, 10.01 * time, 50 * share, 700 * gemm, NAN, 0, 30, NAN};
    return decided(from, to, 1);
}

static void gate_by_hand(void **state)
{
    (void)state;
    assert_int_equal(gated(1, 1, 1).state, DECIDE_PASS);
    assert_int_equal(gated(1.02, 0.98, 1).state, DECIDE_PASS);
    assert_int_equal(gated(1.08, 0.925, 1).state, DECIDE_REGRESS);
    assert_int_equal(gated(0.9, 1.11, 1).state, DECIDE_IMPROVE);
    /* Near the limit a single process on each side shows neither. */
    assert_int_equal(gated(1.04, 0.96, 1).reason, REASON_SPREAD);
    assert_int_equal(gated(1.06, 0.94, 1).reason, REASON_FAMILY);
    /* Slower in time alone: the device was slower, as long as the GEMM changed little. */
    struct decide_gate g = gated(1.06, 0.98, 0.98);
    assert_int_equal(g.state, DECIDE_PASS);
    assert_int_equal(g.reason, REASON_RAW_ONLY);
    g = gated(1.10, 1, 0.91);
    assert_int_equal(g.state, DECIDE_INCONCLUSIVE);
    assert_int_equal(g.reason, REASON_GEMM_CHANGED);
    g = gated(1.02, 0.94, 1.02);
    assert_int_equal(g.state, DECIDE_PASS);
    assert_int_equal(g.reason, REASON_GEMM_ONLY);
}

static void gate_without_certainty(void **state)
{
    (void)state;
    const struct decide_stored base = {10, 9.9, 10.1, 50, 700, NAN, 0, 30, NAN};
    struct decide_stored now = {10.8, 10.05, 11.5, 46, 700, NAN, 0, 30, NAN};
    assert_int_equal(decided(base, now, 1).state, DECIDE_INCONCLUSIVE);
    assert_int_equal(decided(base, now, 1).reason, REASON_NOISE);
    now.ci_lo_ms = 10.6;
    assert_int_equal(decided(base, now, 1).state, DECIDE_REGRESS);
    now.throttled_pct = 5;
    assert_int_equal(decided(base, now, 1).reason, REASON_THROTTLED);
    now.time_ms = NAN;
    assert_int_equal(decided(base, now, 1).state, DECIDE_INCONCLUSIVE);
}

static void gate_on_a_device_without_a_gemm(void **state)
{
    (void)state;
    const struct decide_stored base = run_of(10, 0.1, NAN), slow = run_of(10.8, 0.1, NAN);
    const struct decide_gate g = decided(base, slow, 1);
    assert_int_equal(g.state, DECIDE_REGRESS);
    assert_int_equal(g.reason, REASON_NO_GEMM);
    assert_int_equal(decided(base, base, 1).state, DECIDE_PASS);
}

/* On the CPU only what ran beside it counts: a load that triples all times is no loss, a calm machine hides none. */
static void gate_on_the_cpu(void **state)
{
    (void)state;
    struct decide_stored was[5], now[5];
    const struct decide_case c = {was, now, 5, 5};
    for (int loss = 0; loss < 2; loss++) {
        for (int i = 0; i < 5; i++) {
            was[i] = run_of(10, 0.1, NAN);
            now[i] = run_of(loss ? 5 : 30, 0.1, NAN);
            was[i].over_control = 3 + 0.02 * i;
            now[i].over_control = (loss ? 2 : 3) + 0.02 * i;
        }
        struct decide_family f = decide_family_of(&c, 1, true);
        struct decide_gate g = decide_gate(&decide_defaults, &f, &c);
        assert_int_equal(g.state, loss ? DECIDE_REGRESS : DECIDE_PASS);
        f = decide_family_of(&c, 1, false); /* and by time it would be the other way round */
        assert_int_equal(decide_gate(&decide_defaults, &f, &c).state, loss ? DECIDE_IMPROVE : DECIDE_REGRESS);
        was[0].over_control = NAN;
        f = decide_family_of(&c, 1, true);
        g = decide_gate(&decide_defaults, &f, &c);
        assert_int_equal(g.state, DECIDE_INCONCLUSIVE);
        assert_int_equal(g.reason, REASON_NO_CONTROL);
    }
}

/* On the CPU a change needs two processes on each side, a machine that was not busy, and less noise within them. */
static void gate_of_few_processes_on_the_cpu(void **state)
{
    (void)state;
    struct decide_stored was[3], now[3];
    for (int loss = -1; loss <= 1; loss++)
        for (int wases = 1; wases <= 3; wases++)
            for (int nows = 1; nows <= 3; nows++)
                for (int busy = 0; busy < 2; busy++) {
                    for (int i = 0; i < 3; i++) {
                        was[i] = now[i] = run_of(10, 0.1, NAN);
                        was[i].over_control = 3 + 0.01 * i;
                        now[i].over_control = (3 + 0.01 * i) * exp(-0.4 * loss);
                    }
                    const struct decide_case c = {was, now, wases, nows};
                    struct decide_family f = decide_family_of(&c, 1, true);
                    f.is_busy = busy;
                    const struct decide_gate g = decide_gate(&decide_defaults, &f, &c);
                    const bool is_open = wases == 1 || (loss && (nows == 1 || busy));
                    assert_int_equal(g.state, is_open    ? DECIDE_INCONCLUSIVE
                                              : loss > 0 ? DECIDE_REGRESS
                                              : loss < 0 ? DECIDE_IMPROVE
                                                         : DECIDE_PASS);
                    assert_int_equal(g.reason, !is_open     ? REASON_NONE
                                               : wases == 1 ? REASON_ONE_BASELINE
                                               : busy       ? REASON_BUSY
                                                            : REASON_ONE_NOW);
                    /* a second process may confirm a change, it does not mend the baseline */
                    assert_int_equal(decide_gate_needs_run(&decide_defaults, &g, nows), g.reason == REASON_ONE_NOW);
                }
    /* A load of all CPUs does not tell it: in one process threads waited for others. */
    for (int who = 0; who < 6; who++) {
        const double waits[] = {0, 20, 20.1, NAN};
        for (int w = 0; w < 4; w++) {
            struct decide_stored *const one = who < 3 ? &was[who] : &now[who - 3];
            one->cpu_wait_pct = waits[w];
            const struct decide_case c = {was, now, 3, 3};
            const struct decide_family f = decide_family_of(&c, 1, true);
            const struct decide_gate g = decide_gate(&decide_defaults, &f, &c);
            assert_int_equal(g.state, w == 2 ? DECIDE_INCONCLUSIVE : DECIDE_REGRESS);
            assert_int_equal(g.reason, w == 2 ? REASON_BUSY : REASON_NONE);
            assert_false(decide_gate_needs_run(&decide_defaults, &g, 3));
        }
    }
    /* Six samples that differ by half: the ratio to the control is no better known than the median. */
    const struct decide_case c = {was, now, 3, 3};
    for (int i = 0; i < 3; i++) {
        was[i] = now[i] = (struct decide_stored){10, 7, 13, NAN, NAN, 3 + 0.01 * i, 0, 6, NAN};
        now[i].over_control *= 0.8;
    }
    const struct decide_family f = decide_family_of(&c, 1, true);
    assert_int_equal(decide_gate(&decide_defaults, &f, &c).state, DECIDE_INCONCLUSIVE);
}

/* A crowded CPU: processes of one program that differ by 10 to 40 % relative to the control, also by single slow ones.
 * Slower and faster have an error of 1 % each: no gate of four configurations may say either more often than twice in
 * a hundred. */
static void a_crowded_cpu_raises_no_alarm(void **state)
{
    (void)state;
    enum { RUNS = 1000, CONFIGURATIONS = 4 };
    for (int baselines = 1; baselines <= 5; baselines += 2)
        for (int nows = 1; nows <= 5; nows += 2)
            for (int percent = 10; percent <= 40; percent += 10) {
                int alarms = 0;
                random_state = 20261128;
                for (int run = 0; run < RUNS; run++) {
                    struct decide_stored was[CONFIGURATIONS][5], now[CONFIGURATIONS][5];
                    struct decide_case cases[CONFIGURATIONS];
                    bool is_alarm = false;
                    for (int c = 0; c < CONFIGURATIONS; c++) {
                        for (int i = 0; i < 5; i++) {
                            was[c][i] = now[c][i] = run_of(10, 0.3, NAN);
                            was[c][i].over_control = exp(0.01 * percent * normal());
                            now[c][i].over_control = exp(0.01 * percent * normal());
                        }
                        cases[c] = (struct decide_case){was[c], now[c], baselines, nows};
                    }
                    const struct decide_family f = decide_family_of(cases, CONFIGURATIONS, true);
                    for (int c = 0; c < CONFIGURATIONS; c++) {
                        const enum decide_state s = decide_gate(&decide_defaults, &f, &cases[c]).state;
                        is_alarm |= s == DECIDE_REGRESS || s == DECIDE_IMPROVE;
                    }
                    alarms += is_alarm;
                }
                /* slower and faster each have an error of 1 % */
                assert_true(baselines > 1 && nows > 1 ? alarms <= RUNS * 2 / 100 : alarms == 0);
            }
}

/* Without an interval on either side nothing is decided, whichever way the times differ. */
static void gate_without_an_interval(void **state)
{
    (void)state;
    const struct decide_stored whole = {10, 9.9, 10.1, 50, 700, NAN, 0, 30, NAN},
                               single = {10, NAN, NAN, 50, 700, NAN, 0, 0, NAN};
    const struct decide_stored slow = {20, NAN, NAN, 25, 700, NAN, 0, 0, NAN};
    const struct decide_stored pairs[][2] = {
        {single, single}, {single, whole}, {whole, single}, {whole, slow}, {slow, whole}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const struct decide_gate g = decided(pairs[i][0], pairs[i][1], 1);
        assert_int_equal(g.state, DECIDE_INCONCLUSIVE);
        assert_int_equal(g.reason, REASON_NO_INTERVAL);
    }
}

/* The same change is a regression of one configuration, and noise among many. */
static void gate_by_the_number_of_configurations(void **state)
{
    (void)state;
    const struct decide_stored base = run_of(10, 0.2, NAN), slow = run_of(10.8, 0.2, NAN);
    assert_int_equal(decided(base, slow, 1).state, DECIDE_REGRESS);
    const struct decide_gate g = decided(base, slow, 80);
    assert_int_equal(g.state, DECIDE_INCONCLUSIVE);
    assert_int_equal(g.reason, REASON_FAMILY);
    /* 2 % between processes, nothing else known: z(0.99) = 2.326 (t with 200 degrees 2.345), times sqrt(2) x 2 %: 6.6 %
     * in logarithms, 6.9 % of the time. */
    assert_int_equal(decided(base, run_of(10.7, 0.2, NAN), 1).state, DECIDE_REGRESS);
    assert_int_equal(decided(base, run_of(10.67, 0.2, NAN), 1).reason, REASON_FAMILY);
    /* Noise within the processes: standard errors 0.0163 and 0.0152, together 0.0223; 10.9 degrees of freedom,
     * t(0.99, 10) = 2.764: the bound of 0.0770 is 0.0153; with 80 configurations it is below 0. */
    const struct decide_stored wide = run_of(10, 0.32, NAN), wide_now = run_of(10.8, 0.32, NAN);
    assert_int_equal(decided(wide, wide_now, 1).state, DECIDE_REGRESS);
    assert_int_equal(decided(wide, wide_now, 80).reason, REASON_FAMILY);
    /* samples without any spread, and a change beyond every spread between processes */
    assert_int_equal(decided(run_of(10, 0, NAN), run_of(11.2, 0, NAN), 80).state, DECIDE_REGRESS);
}

/* Several processes of the baseline: their spread is what counts, and says which limit is possible. */
static void gate_with_several_baselines(void **state)
{
    (void)state;
    struct decide_stored was[5], now = run_of(10.8, 0.01, NAN);
    const struct decide_case c = {was, &now, 5, 1};
    for (int wide = 0; wide < 2; wide++) {
        for (int i = 0; i < 5; i++)
            was[i] = run_of(10 * (1 + (wide ? 0.03 : 0.002) * (i - 2)), 0.01, NAN);
        const struct decide_family f = decide_family_of(&c, 1, false);
        const struct decide_gate g = decide_gate(&decide_defaults, &f, &c);
        /* sd of -2 .. 2 steps: 1.581 steps; t(0.95, 4) = 2.132, times sqrt(1 + 1/5): 3.69 steps */
        assert_true(fabs(g.spread / (1.581 * (wide ? 0.03 : 0.002)) - 1) < 0.01);
        assert_true(fabs(g.possible / (3.693 * (wide ? 0.03 : 0.002)) - 1) < 0.01);
        assert_int_equal(g.state, wide ? DECIDE_INCONCLUSIVE : DECIDE_REGRESS);
    }
    /* A limit below the spread is never passed, also where the mean is the same. */
    now = run_of(10, 0.01, NAN);
    const struct decide_family f = decide_family_of(&c, 1, false);
    assert_int_equal(decide_gate(&decide_defaults, &f, &c).reason, REASON_SPREAD);
    struct decide_rules wider = decide_defaults;
    wider.gate_delta = 0.12;
    assert_int_equal(decide_gate(&wider, &f, &c).state, DECIDE_PASS);
}

/* One process on each side: the changes of all configurations say how far processes differ, and a loss of up to half of
 * them is not taken for that. */
static void spread_from_the_changes_of_many(void **state)
{
    (void)state;
    struct decide_stored was[12], now[12];
    struct decide_case cases[12];
    static const double small[] = {0, 0.002, -0.003, 0.001, 0.004, -0.002, 0.003, -0.001, 0, 0.002, -0.004, 0.001};
    for (int lost = 0; lost <= 6; lost += 6)
        for (int noisy = 0; noisy < 2; noisy++) {
            for (int i = 0; i < 12; i++) {
                was[i] = run_of(10, 0.001, 50);
                now[i] = run_of(10 * exp((noisy ? 20 : 1) * small[i] + (i < lost ? 0.08 : 0)), 0.001, 50);
                now[i].share = 500 / now[i].time_ms;
                cases[i] = (struct decide_case){&was[i], &now[i], 1, 1};
            }
            const struct decide_family f = decide_family_of(cases, 12, false);
            int slower = 0, passed = 0;
            for (int i = 0; i < 12; i++) {
                const enum decide_state s = decide_gate(&decide_defaults, &f, &cases[i]).state;
                slower += s == DECIDE_REGRESS;
                passed += s == DECIDE_PASS;
            }
            assert_int_equal(slower, noisy ? 0 : lost);
            if (!noisy || !lost)
                assert_int_equal(passed, noisy ? 0 : 12 - lost);
        }
}

static void another_process_is_needed(void **state)
{
    (void)state;
    const int most = decide_defaults.gate_runs_max;
    const struct decide_gate slower = {.state = DECIDE_REGRESS}, passed = {.state = DECIDE_PASS},
                             noisy = {.state = DECIDE_INCONCLUSIVE, .reason = REASON_SPREAD},
                             alone = {.state = DECIDE_INCONCLUSIVE, .reason = REASON_NO_CONTROL};
    assert_true(decide_gate_needs_run(&decide_defaults, &slower, 1)); /* one slow process is confirmed by another */
    assert_false(decide_gate_needs_run(&decide_defaults, &slower, 2));
    assert_false(decide_gate_needs_run(&decide_defaults, &passed, 1));
    assert_true(decide_gate_needs_run(&decide_defaults, &noisy, most - 1));
    assert_false(decide_gate_needs_run(&decide_defaults, &noisy, most));
    assert_false(decide_gate_needs_run(&decide_defaults, &alone, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gate_by_hand),
        cmocka_unit_test(gate_without_certainty),
        cmocka_unit_test(gate_on_a_device_without_a_gemm),
        cmocka_unit_test(gate_on_the_cpu),
        cmocka_unit_test(gate_of_few_processes_on_the_cpu),
        cmocka_unit_test(a_crowded_cpu_raises_no_alarm),
        cmocka_unit_test(gate_without_an_interval),
        cmocka_unit_test(gate_by_the_number_of_configurations),
        cmocka_unit_test(gate_with_several_baselines),
        cmocka_unit_test(spread_from_the_changes_of_many),
        cmocka_unit_test(another_process_is_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
