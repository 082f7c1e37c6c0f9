/* The decisions of `ab` by hand-made numbers and by simulation (of `gate`: test_decide_gate.c; tests/simulate has other
 * kinds of noise). The simulation calls cmd/gate/decide.c as cmd/gate/ab.c does, with SYNTHETIC runs: no
 * device is used and nothing is measured.
 *
 * In a simulated process, the time of a configuration relative to the control is
 *     exp(shift + ratio + tail)        ratio ~ N(0, spread of the configuration's ratio)
 *                                      tail  = Exp(TAIL_MEAN) with probability TAIL_SHARE, else 0
 * the time of the control relative to the GEMM is
 *     exp(control_ratio + gemm_offset) control_ratio ~ N(0, spread of the control's ratio to the GEMM)
 *                                      gemm_offset = -Exp(SLOW_GEMM_MEAN) with probability SLOW_GEMM_SHARE, else 0; the
 *                                      same for a whole process
 * and the time of the control is
 *     exp(drift + clock)               clock ~ N(0, spread of the configuration's time), drift linear over the run
 * The spreads are those of tests/unit/data/spread.csv (scripts/measure_spread.sh). The tails are added to them, for
 * single slow configurations in a process. The offset of the GEMM was seen on the device: in one of 50 processes the
 * GEMM was 2.5 % slower relative to everything else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/gate/decide.h"
#include "cmd/base/log.h"
#include "cmd/base/stats.h"
#include "tests/simulate/random.h"

#define TAIL_SHARE 0.05
#define TAIL_MEAN 0.01
#define SLOW_GEMM_SHARE 0.02
#define SLOW_GEMM_MEAN 0.025
enum { CONFIGS = 40, SPREADS_MAX = 64 };
/* Runs of a simulation: 4000 with FABENCH_TEST_LONG (scripts/nightly.sh), else fewer. */
static int runs_wanted = 1000;

static struct spread {
    double time, ratio, control;
} spreads[SPREADS_MAX];
static int spread_count;

/* ---- one simulated run of ab ---- */

/* What the rounds also measure: a control and the GEMM, a control alone (the CPU), the GEMM alone, or neither. */
enum reference { CONTROL_AND_GEMM, CONTROL_ONLY, GEMM_ONLY, NO_REFERENCE };

struct scenario {
    enum reference reference;
    double shift[CONFIGS];         /* of NEW, in logarithms */
    double drift;                  /* of everything in plain time over pairs_max pairs, in logarithms */
    double drift_ratio;            /* likewise of the ratio to the control: what pairing does not remove */
    double control_shift[CONFIGS]; /* of the reference in NEW, in logarithms */
    bool has_steady_gemm;
};

/* One process: every case's figures, and its control's (without a control, those of the GEMM or of whatever is
 * watched). */
static void process(const struct scenario *s, bool is_new, double progress, struct decide_value *values,
                    struct decide_value *controls)
{
    const bool is_slow = uniform() < SLOW_GEMM_SHARE && !s->has_steady_gemm;
    const double gemm_offset = is_slow ? SLOW_GEMM_MEAN * log(uniform()) : 0;
    for (int i = 0; i < CONFIGS; i++) {
        const struct spread *spread = &spreads[i % spread_count];
        const double tail = uniform() < TAIL_SHARE ? -TAIL_MEAN * log(uniform()) : 0;
        const double shift = is_new ? s->shift[i] : 0, control_shift = is_new ? s->control_shift[i] : 0;
        const double ratio = shift + spread->ratio * normal() + tail + s->drift_ratio * progress;
        const double control_ratio = spread->control * normal() + gemm_offset;
        const double clock = spread->time * normal() + s->drift * progress;
        values[i] = (struct decide_value){exp(ratio + clock), NAN, NAN};
        controls[i] = (struct decide_value){exp(clock + control_shift), NAN, NAN};
        if (s->reference == CONTROL_AND_GEMM || s->reference == GEMM_ONLY)
            values[i].pct_of_gemm = 50 * exp(-ratio - control_ratio);
        if (s->reference == CONTROL_AND_GEMM)
            controls[i].pct_of_gemm = 50 * exp(-control_ratio - control_shift);
        if (s->reference == CONTROL_AND_GEMM || s->reference == CONTROL_ONLY)
            values[i].speedup_vs_control = exp(control_shift - ratio);
    }
}

/* Simulates a whole run; the states are in `configs`. Returns the exit code. */
static int simulate(const struct scenario *s, struct decide_config *configs, int *pairs)
{
    struct decide_run run;
    uint64_t order_state = random_state;
    decide_begin(&run, &decide_defaults, configs, CONFIGS, s->reference == CONTROL_AND_GEMM);
    do {
        static struct decide_value values[2][2][CONFIGS], references[2][2][CONFIGS]; /* pair, build, configuration */
        const int block = decide_block_pairs(&decide_defaults, run.pairs), first = 2 * run.pairs;
        int order[4], done[2] = {0, 0};
        decide_draw_order(&order_state, block, order);
        for (int n = 0; n < 2 * block; n++) {
            const int build = order[n], pair = done[build]++;
            process(s, build, (first + n) / (2.0 * decide_defaults.pairs_max), values[pair][build],
                    references[pair][build]);
        }
        for (int p = 0; p < block; p++) {
            double from[CONFIGS], to[CONFIGS], cross_check[CONFIGS], controls[CONFIGS];
            bool is_paired;
            for (int i = 0; i < CONFIGS; i++) {
                const struct decide_value *const was = &values[p][0][i], *const is = &values[p][1][i];
                const enum decide_basis basis = decide_basis_of(was, is);
                from[i] = configs[i].state == DECIDE_OPEN ? decide_logarithm(was, basis) : NAN;
                to[i] = decide_logarithm(is, basis);
                cross_check[i] = decide_cross_check(was, is);
                controls[i] = decide_difference(&references[p][0][i], &references[p][1][i], &is_paired);
            }
            decide_pair(&run, from, to, cross_check, decide_mean(controls, CONFIGS));
        }
    } while (decide_needs_pair(&run));
    decide_end(&run);
    if (pairs)
        *pairs = run.pairs;
    return decide_exit(&run);
}

struct tally {
    int regression, inconclusive, pairs;
};

static struct tally simulate_many(const struct scenario *s, int runs)
{
    struct tally tally = {0};
    for (int i = 0; i < runs; i++) {
        struct decide_config configs[CONFIGS];
        int pairs;
        const int code = simulate(s, configs, &pairs);
        tally.regression += code == EXIT_REGRESSION;
        tally.inconclusive += code == EXIT_INCONCLUSIVE;
        tally.pairs += pairs;
    }
    print_message("    %d runs: %.2f %% exit 3, %.2f %% exit 4, %.1f pairs\n", runs, 100.0 * tally.regression / runs,
                  100.0 * tally.inconclusive / runs, 1.0 * tally.pairs / runs);
    return tally;
}

static void no_change_raises_no_alarm(void **state)
{
    (void)state;
    for (int reference = CONTROL_AND_GEMM; reference <= NO_REFERENCE; reference++) {
        const struct scenario s = {.reference = (enum reference)reference};
        const struct tally t = simulate_many(&s, runs_wanted);
        assert_true(t.regression < 0.01 * runs_wanted);
        assert_true(t.inconclusive < 0.05 * runs_wanted);
    }
}

static void three_per_cent_in_one_configuration_are_found(void **state)
{
    (void)state;
    int found = 0, named = 0, others = 0, runs = 0;
    for (int i = 0; i < runs_wanted; i++, runs++) {
        struct scenario s = {.reference = CONTROL_AND_GEMM};
        struct decide_config configs[CONFIGS];
        const int slow = i % CONFIGS;
        s.shift[slow] = log(1.03);
        found += simulate(&s, configs, NULL) == EXIT_REGRESSION;
        named += configs[slow].state == DECIDE_REGRESS;
        for (int c = 0; c < CONFIGS; c++)
            others += c != slow && configs[c].state == DECIDE_REGRESS;
    }
    print_message("    %d runs: %.2f %% exit 3, %.2f %% name it, %d others named\n", runs, 100.0 * found / runs,
                  100.0 * named / runs, others);
    assert_true(found > 0.95 * runs);
    assert_true(named > 0.95 * runs);
    assert_true(others < 0.01 * runs);
}

/* Drift in plain time, which pairing removes, and drift of the ratio, which it does not. */
static void drift_raises_no_alarm(void **state)
{
    (void)state;
    for (int sign = -1; sign <= 1; sign += 2) {
        const struct scenario all[] = {{.reference = CONTROL_AND_GEMM, .drift = sign * 0.02},
                                       {.reference = CONTROL_AND_GEMM, .drift_ratio = sign * 0.02},
                                       {.reference = GEMM_ONLY, .drift = sign * 0.02},
                                       {.reference = NO_REFERENCE, .drift = sign * 0.02}};
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
            const struct tally t = simulate_many(&all[i], runs_wanted / 4);
            assert_true(t.regression < 0.01 * runs_wanted / 4);
            assert_true(t.inconclusive < 0.05 * runs_wanted / 4);
        }
    }
}

/* The control changes in all configurations: faster, slower, and slower together with the kernels. While the GEMM is
 * stable this is always found. A slow GEMM can hide it, and then a control that became faster leads to a false
 * regression. */
static void a_control_that_changed_is_4_and_never_3(void **state)
{
    (void)state;
    for (int way = 0; way < 6; way++) {
        struct scenario s = {.reference = CONTROL_AND_GEMM, .has_steady_gemm = way < 3};
        for (int c = 0; c < CONFIGS; c++) {
            s.control_shift[c] = way % 3 == 0 ? -log(1.03) : log(1.03);
            s.shift[c] = way % 3 == 2 ? log(1.03) : 0;
        }
        const struct tally t = simulate_many(&s, 200);
        if (s.has_steady_gemm) {
            assert_int_equal(t.regression, 0);
            assert_int_equal(t.inconclusive, 200);
        } else {
            assert_true(t.inconclusive > 0.95 * 200);
        }
    }
}

/* The control changes in one configuration alone, which its mean over all does not show: 4 % faster with an unchanged
 * kernel, or 4 % slower with a kernel that is 4 % slower too. */
static void a_control_that_changed_in_one_configuration_decides_nothing_there(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        int regressed = 0, passed = 0, runs = 0;
        for (int i = 0; i < 1000; i++, runs++) {
            struct scenario s = {.reference = CONTROL_AND_GEMM};
            struct decide_config configs[CONFIGS];
            const int here = i % CONFIGS;
            s.control_shift[here] = way ? log(1.04) : -log(1.04);
            s.shift[here] = way ? log(1.04) : 0;
            simulate(&s, configs, NULL);
            regressed += configs[here].state == DECIDE_REGRESS;
            passed += configs[here].state == DECIDE_PASS;
        }
        print_message("    %d runs: %d regressions, %d passes in that configuration\n", runs, regressed, passed);
        assert_true(regressed < 0.1 * runs && passed < 0.1 * runs); /* a slow GEMM can hide the change of the control */
    }
}

/* ---- by hand ---- */

static enum decide_state after(const double *d, int count, int family, struct decide_config *out)
{
    struct decide_config configs[CONFIGS];
    struct decide_run run;
    double all[CONFIGS], zeros[CONFIGS] = {0};
    decide_begin(&run, &decide_defaults, configs, family, true);
    for (int k = 0; k < count; k++) {
        for (int i = 0; i < family; i++)
            all[i] = i ? NAN : d[k];
        decide_pair(&run, zeros, all, NULL, 0);
    }
    *out = configs[0];
    return configs[0].state;
}

static void states_by_hand(void **state)
{
    (void)state;
    struct decide_config c;
    const double same[] = {0.001, -0.001, 0.001, -0.001, 0, 0};
    const double slow[] = {0.030, 0.031, 0.029, 0.030, 0.030, 0.031, 0.029, 0.030, 0.030, 0.031, 0.030, 0.029};
    const double wild[] = {0.09, -0.05, 0.08, -0.04, 0.05, 0.06};
    double fast[12];
    for (int i = 0; i < 12; i++)
        fast[i] = -slow[i];
    assert_int_equal(after(same, 5, 1, &c), DECIDE_OPEN); /* too few pairs, although equal */
    assert_int_equal(after(same, 6, 1, &c), DECIDE_PASS);
    assert_int_equal(after(slow, 6, 1, &c), DECIDE_OPEN);    /* one of 216 orders gives this: not rare enough */
    assert_int_equal(after(slow, 8, 1, &c), DECIDE_REGRESS); /* one of 1296 */
    assert_int_equal(after(slow, 10, 40, &c), DECIDE_OPEN);
    assert_int_equal(after(slow, 11, 40, &c), DECIDE_OPEN); /* not in the middle of a block */
    assert_int_equal(after(slow, 12, 40, &c), DECIDE_REGRESS);
    assert_int_equal(after(fast, 8, 1, &c), DECIDE_IMPROVE);
    assert_int_equal(after(wild, 6, 1, &c), DECIDE_OPEN);
    /* eight: mean 0.03, sd 0.000756, t(0.99, 7) = 2.998 */
    after(slow, 8, 1, &c);
    assert_true(fabs(c.change.mean - 0.03) < 1e-12);
    assert_true(fabs(c.change.regress_low - (0.03 - 2.997952 * 0.000755929 / sqrt(8))) < 1e-8);
    assert_true(fabs(c.change.pass_high - (0.03 + 1.894579 * 0.000755929 / sqrt(8))) < 1e-8);
}

/* A mean above delta is no regression while its lower bound is below 0; a mean below delta is none, however small its
 * spread. */
static void both_conditions_are_needed(void **state)
{
    (void)state;
    struct decide_config c;
    const double unsure[] = {0.10, -0.02, 0.05, 0.0, 0.02, 0.01}, small[] = {0.019, 0.019, 0.019, 0.0191, 0.019, 0.019};
    assert_int_equal(after(unsure, 6, 1, &c), DECIDE_OPEN);
    assert_true(c.change.mean > decide_defaults.delta);
    assert_int_equal(after(small, 6, 1, &c), DECIDE_PASS);
}

static void a_decided_configuration_stays_as_it_is(void **state)
{
    (void)state;
    struct decide_config c;
    const double d[] = {0, 0, 0, 0, 0.0001, 0, 5, 5};
    assert_int_equal(after(d, 8, 1, &c), DECIDE_PASS);
    assert_int_equal(c.change.count, 6);
}

/* ---- the order of the processes ---- */

static void orders_are_balanced_and_drawn(void **state)
{
    (void)state;
    int seen[16] = {0}, kinds = 0;
    uint64_t one = 7, again = 7;
    for (int i = 0; i < 6000; i++) {
        int order[4], same[4], bits = 0;
        decide_draw_order(&one, 2, order);
        decide_draw_order(&again, 2, same);
        assert_memory_equal(order, same, sizeof order);
        assert_int_equal(order[0] + order[1] + order[2] + order[3], 2);
        for (int k = 0; k < 4; k++)
            bits |= order[k] << k;
        seen[bits]++;
    }
    for (int i = 0; i < 16; i++) {
        kinds += seen[i] > 0;
        assert_true(seen[i] == 0 || (seen[i] > 800 && seen[i] < 1200));
    }
    assert_int_equal(kinds, 6);
    for (int i = 0; i < 100; i++) {
        int order[4];
        decide_draw_order(&one, 1, order);
        assert_int_equal(order[0] + order[1], 1);
    }
}

static void blocks_end_where_decisions_are(void **state)
{
    (void)state;
    struct decide_rules odd = decide_defaults;
    odd.pairs_min = 3;
    odd.pairs_max = 6;
    static const int of_odd[] = {2, -1, 1, 2, -1, 1}; /* by the first pair of the block */
    for (int i = 0; i < 6; i++)
        if (of_odd[i] > 0)
            assert_int_equal(decide_block_pairs(&odd, i), of_odd[i]);
    for (int i = 0; i < decide_defaults.pairs_max; i += 2)
        assert_int_equal(decide_block_pairs(&decide_defaults, i), 2);
    assert_int_equal(decide_pairs_needed(&decide_defaults, 1), 8);
    assert_int_equal(decide_pairs_needed(&decide_defaults, 12), 10);
    assert_int_equal(decide_pairs_needed(&decide_defaults, 40), 12);
    assert_int_equal(decide_pairs_needed(&odd, 1), 0);
}

/* The chance of the randomisation test by hand, and against all orders of three blocks. */
static void chance_by_hand(void **state)
{
    (void)state;
    struct decide_series s = {.from = {0, 0}, .to = {1, 1}, .d = {1, 1}, .count = 2};
    assert_true(fabs(decide_chance(&decide_defaults, &s) - 1.0 / 6) < 1e-9);
    s = (struct decide_series){.from = {0, 1}, .to = {1, 0}, .d = {1, -1}, .count = 2}; /* nothing: as far as any */
    assert_true(decide_chance(&decide_defaults, &s) > 0.8);
    for (int k = 0; k < 20; k++) {
        double sums[3][6], observed = 0;
        int as_far = 0;
        s.count = 6;
        for (int i = 0; i < 6; i++) {
            s.from[i] = 0.01 * normal();
            s.to[i] = 0.01 + 0.01 * normal();
            observed += s.d[i] = s.to[i] - s.from[i];
        }
        for (int b = 0; b < 3; b++) {
            const double v[4] = {s.from[2 * b], s.from[2 * b + 1], s.to[2 * b], s.to[2 * b + 1]};
            int n = 0;
            for (int i = 0; i < 4; i++)
                for (int j = i + 1; j < 4; j++)
                    sums[b][n++] = 2 * (v[i] + v[j]) - (v[0] + v[1] + v[2] + v[3]);
        }
        for (int i = 0; i < 216; i++)
            as_far += (observed < 0 ? -1 : 1) * (sums[0][i % 6] + sums[1][i / 6 % 6] + sums[2][i / 36]) >=
                      fabs(observed) - 1e-12;
        const double chance = decide_chance(&decide_defaults, &s);
        assert_true(chance >= as_far / 216.0 - 1e-9 && chance <= (as_far + 2) / 216.0);
    }
}

/* A disturbance that repeats every four processes is a loss of 5 % for the order OLD NEW NEW OLD, which a fixed order
 * would find in every run. */
static void a_period_of_four_raises_no_alarm(void **state)
{
    (void)state;
    int alarms = 0;
    for (int i = 0; i < runs_wanted; i++) {
        struct decide_config one;
        struct decide_run run;
        uint64_t order_state = (uint64_t)i + 1;
        int n = 0;
        decide_begin(&run, &decide_defaults, &one, 1, true);
        do {
            double values[2][2];
            int order[4], done[2] = {0, 0};
            decide_draw_order(&order_state, 2, order);
            for (int k = 0; k < 4; k++, n++)
                values[order[k]][done[order[k]]++] =
                    0.025 * cos(6.283185307179586 * (n / 4.0 - 0.375)) + 1e-4 * normal();
            for (int p = 0; p < 2; p++)
                decide_pair(&run, &values[0][p], &values[1][p], NULL, 0);
        } while (decide_needs_pair(&run));
        decide_end(&run);
        alarms += one.state == DECIDE_REGRESS || one.state == DECIDE_IMPROVE;
    }
    print_message("    %d runs: %d alarms\n", runs_wanted, alarms);
    assert_true(alarms < 0.02 * runs_wanted); /* 1 % in either direction */
}

/* The state after `pairs` pairs with differences near d and cross-checks that alternate by +-swing. */
static enum decide_state with_cross_check(double d, double cross_check, double swing, int pairs, bool *is_contradicted)
{
    struct decide_config one;
    struct decide_run run;
    decide_begin(&run, &decide_defaults, &one, 1, true);
    for (int k = 0; k < pairs; k++)
        decide_pair(&run, (double[]){0}, (double[]){d + 1e-4 * (k % 3)},
                    (double[]){cross_check + swing * (k % 2 ? 1 : -1)}, 0);
    *is_contradicted = one.is_contradicted;
    return one.state;
}

static void no_verdict_against_the_cross_check(void **state)
{
    (void)state;
    bool no;
    assert_int_equal(with_cross_check(0.04, 0.04, 0.001, 8, &no), DECIDE_REGRESS);
    assert_int_equal(with_cross_check(0.04, 0, 0.05, 8, &no),
                     DECIDE_REGRESS); /* the cross-check is too noisy to contradict */
    assert_false(no);
    assert_int_equal(with_cross_check(0.04, 0, 0.001, 8, &no), DECIDE_OPEN); /* the control changed, not the kernel */
    assert_true(no);
    assert_int_equal(with_cross_check(0, 0.04, 0.001, 8, &no), DECIDE_OPEN); /* control and kernel are slower */
    assert_true(no);
    assert_int_equal(with_cross_check(-0.04, 0, 0.001, 8, &no), DECIDE_OPEN);
    assert_true(no);
    assert_int_equal(with_cross_check(-0.04, -0.04, 0.001, 8, &no), DECIDE_IMPROVE);
    assert_int_equal(with_cross_check(0, 0.01, 0.001, 6, &no), DECIDE_PASS);
}

static void the_end_of_an_open_run(void **state)
{
    (void)state;
    struct decide_config configs[2];
    struct decide_run run;
    decide_begin(&run, &decide_defaults, configs, 2, true);
    for (int k = 0; k < decide_defaults.pairs_max; k++) {
        assert_true(k == 0 || decide_needs_pair(&run));
        decide_pair(&run, (double[]){0, 0}, (double[]){k % 2 ? 0.2 : -0.2, 0}, NULL, 0);
    }
    assert_false(decide_needs_pair(&run));
    decide_end(&run);
    assert_int_equal(configs[0].state, DECIDE_INCONCLUSIVE);
    assert_int_equal(configs[1].state, DECIDE_PASS);
    assert_int_equal(decide_exit(&run), EXIT_INCONCLUSIVE);
}

/* A control whose mean is near 0 while its pairs differ by 35 % is not stable: nothing is known of it. */
static void a_wide_spread_is_not_stable(void **state)
{
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        const double step = wide ? 0.35 : 0.002;
        struct decide_config one;
        struct decide_run run;
        decide_begin(&run, &decide_defaults, &one, 1, true);
        for (int k = 0; k < 6; k++)
            decide_pair(&run, (double[]){0}, (double[]){0}, NULL, k % 2 ? step : -step);
        assert_true(fabs(run.control.mean) < 1e-9);
        assert_true(fabs(decide_spread(&run.control) / (step * sqrt(6.0 / 5)) - 1) < 1e-9);
        assert_false(decide_control_changed(&run));
        assert_int_equal(decide_control_stable(&run), !wide);
    }
}

static void what_decides(void **state)
{
    (void)state;
    const struct decide_value all = {1, 50, 2}, no_control = {1, 50, NAN}, time_only = {1, NAN, NAN},
                              none = {NAN, NAN, NAN};
    assert_int_equal(decide_basis_of(&all, &all), BASIS_CONTROL);
    assert_int_equal(decide_basis_of(&all, &no_control), BASIS_GEMM);
    assert_int_equal(decide_basis_of(&time_only, &all), BASIS_TIME);
    assert_int_equal(decide_basis_of(&none, &all), BASIS_NONE);
}

static void nothing_measured_is_inconclusive(void **state)
{
    (void)state;
    struct decide_config one;
    struct decide_run run;
    decide_begin(&run, &decide_defaults, &one, 1, false);
    for (int k = 0; k < decide_defaults.pairs_max; k++)
        decide_pair(&run, (double[]){NAN}, (double[]){NAN}, NULL, NAN);
    decide_end(&run);
    assert_false(decide_control_changed(&run));
    assert_int_equal(decide_exit(&run), EXIT_INCONCLUSIVE);
}

static void regression_outweighs_inconclusive(void **state)
{
    (void)state;
    struct decide_config configs[2];
    struct decide_run run;
    decide_begin(&run, &decide_defaults, configs, 2, true);
    for (int k = 0; k < decide_defaults.pairs_max; k++)
        decide_pair(&run, (double[]){0, 0}, (double[]){k % 2 ? 0.2 : -0.2, 0.03 + 1e-4 * (k % 3)}, NULL, 0);
    decide_end(&run);
    assert_int_equal(decide_exit(&run), EXIT_REGRESSION);
}

static void differences(void **state)
{
    (void)state;
    bool is_paired;
    const struct decide_value a = {2, 50, NAN}, b = {3, 40, 1.5}, c = {3, 60, 1.2}, no_gemm = {3, NAN, NAN};
    const struct decide_value nothing = {NAN, NAN, NAN};
    assert_true(fabs(decide_difference(&b, &c, &is_paired) - log(1.25)) < 1e-15);
    assert_true(is_paired);
    assert_true(fabs(decide_difference(&a, &b, &is_paired) - log(1.25)) < 1e-15);
    assert_true(is_paired);
    assert_true(fabs(decide_difference(&a, &no_gemm, &is_paired) - log(1.5)) < 1e-15);
    assert_false(is_paired);
    assert_true(isnan(decide_difference(&a, &nothing, &is_paired)));
    assert_true(fabs(decide_cross_check(&b, &c) - log(40.0 / 60)) < 1e-15);
    assert_true(isnan(decide_cross_check(&a, &b))); /* d already uses the GEMM */
}

static int read_spreads(void **state)
{
    (void)state;
    char line[256];
    bool has_names = false;
    FILE *file = fopen("tests/unit/data/spread.csv", "r");
    if (!file)
        return -1;
    while (fgets(line, sizeof line, file)) {
        double time, ratio, control;
        if (line[0] == '#')
            continue;
        if (!has_names) {
            has_names =
                strcmp(line, "configuration,processes,sd_log_time_pct,sd_log_ratio_pct,sd_log_control_pct\n") == 0;
            if (!has_names)
                break;
            continue;
        }
        if (spread_count == SPREADS_MAX || sscanf(line, "%*[^,],%*d,%lf,%lf,%lf", &time, &ratio, &control) != 3)
            break;
        spreads[spread_count++] = (struct spread){time / 100, ratio / 100, control / 100};
    }
    const bool good = feof(file) && spread_count > 0;
    fclose(file);
    return good ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(differences),
        cmocka_unit_test(states_by_hand),
        cmocka_unit_test(both_conditions_are_needed),
        cmocka_unit_test(a_decided_configuration_stays_as_it_is),
        cmocka_unit_test(the_end_of_an_open_run),
        cmocka_unit_test(nothing_measured_is_inconclusive),
        cmocka_unit_test(regression_outweighs_inconclusive),
        cmocka_unit_test(no_change_raises_no_alarm),
        cmocka_unit_test(three_per_cent_in_one_configuration_are_found),
        cmocka_unit_test(drift_raises_no_alarm),
        cmocka_unit_test(a_control_that_changed_is_4_and_never_3),
        cmocka_unit_test(a_wide_spread_is_not_stable),
        cmocka_unit_test(what_decides),
        cmocka_unit_test(a_control_that_changed_in_one_configuration_decides_nothing_there),
        cmocka_unit_test(no_verdict_against_the_cross_check),
        cmocka_unit_test(orders_are_balanced_and_drawn),
        cmocka_unit_test(blocks_end_where_decisions_are),
        cmocka_unit_test(chance_by_hand),
        cmocka_unit_test(a_period_of_four_raises_no_alarm),
    };
    if (getenv("FABENCH_TEST_LONG"))
        runs_wanted = 4000;
    return cmocka_run_group_tests(tests, read_spreads, NULL);
}
