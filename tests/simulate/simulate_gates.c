/* Simulates `ab` and `gate` with made-up times of many kinds of noise, through the code that decides
 * (cmd/gate/decide.c, decide_gate.c): nothing is measured. Prints a table in Markdown, and fails where a bar is missed.
 *
 *   simulate_gates [RUNS [SEED]]      runs of each kind, default 200
 *
 * A run compares CASES configurations. A process has, for each of them, SAMPLES samples with normal noise `within`
 * in the logarithm of the time, around a median that is moved by a normal deviate `between` of its own, and by a
 * disturbance that is the same for all configurations of the process or, where the table says "each", drawn for each:
 *
 *   drift      2 % over the run, linear
 *   outliers   one process in twenty is slower by an exponential deviate of mean 3 %, each
 *   clocks     4 % slower in a random half of the processes
 *   modes      1.5 % slower in a random half of the processes, each
 *   period P   2.5 % times sin(2 pi (n / P + phase)) in the n-th process, phase drawn for each run
 *
 * No control and no GEMM take part: what a ratio within rounds would remove reaches the decision. Asked are: an
 * unchanged build (false alarm = REGRESS of any configuration, pass = all of them), and a loss in one configuration.
 * `gate` compares with five stored processes, and with one; it measures up to gate_runs_max processes, as the program
 * does. */
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/stats.h"
#include "cmd/gate/decide.h"
#include "cmd/gate/decide_gate.h"
#include "tests/simulate/random.h"

enum { CASES = 12, SAMPLES = 30, BASELINES = 5 };

static const double two_pi = 6.283185307179586;

/* ---- processes ---- */

struct noise {
    const char *name;
    double within, between;                /* standard deviations in logarithms */
    double drift, outliers, clocks, modes; /* sizes in logarithms; 0 = none */
    double wave, period;                   /* amplitude, and length in processes */
};

/* The phase of the wave and the number of processes so far, of one run. */
struct run_state {
    double phase;
    int processes;
};

/* The median of SAMPLES samples and its interval, in ms, around `level`. */
static struct decide_stored sample(const struct noise *noise, double level)
{
    double logs[SAMPLES];
    for (int i = 0; i < SAMPLES; i++)
        logs[i] = level + noise->within * normal();
    const struct stats s = stats_of(logs, SAMPLES);
    return (struct decide_stored){exp(s.median), exp(s.ci_lo), exp(s.ci_hi), NAN, NAN, NAN, 0, SAMPLES, NAN};
}

/* One process: what it measures of each configuration. The first one is slower by `loss`. */
static void process(const struct noise *noise, struct run_state *run, double loss, struct decide_stored *out)
{
    const double n = run->processes++;
    double common = noise->drift * n / (2.0 * decide_defaults.pairs_max);
    if (noise->clocks > 0 && uniform() < 0.5)
        common += noise->clocks;
    if (noise->period > 0)
        common += noise->wave * sin(two_pi * (n / noise->period + run->phase));
    for (int i = 0; i < CASES; i++) {
        double level = common + noise->between * normal() + (i == 0 ? loss : 0);
        if (noise->outliers > 0 && uniform() < 0.05)
            level -= noise->outliers * log(uniform());
        if (noise->modes > 0 && uniform() < 0.5)
            level += noise->modes;
        out[i] = sample(noise, level);
    }
}

/* ---- what is asked ---- */

enum answer { ANSWER_REGRESS, ANSWER_PASS, ANSWER_OPEN, ANSWERS };

/* alarms: runs that call a configuration slower which is not; lost[]: what became of the one that is; whole[]: of the
 * run. */
struct tally {
    int runs, alarms, lost[ANSWERS], whole[ANSWERS];
    double processes;
};

static void count(struct tally *t, const enum decide_state *states, bool has_loss, int processes)
{
    bool is_alarm = false, all_pass = true, any_regress = false;
    for (int i = 0; i < CASES; i++) {
        const bool is_slow = has_loss && i == 0, regress = states[i] == DECIDE_REGRESS;
        is_alarm |= regress && !is_slow;
        any_regress |= regress;
        all_pass &= states[i] == DECIDE_PASS || states[i] == DECIDE_IMPROVE;
    }
    t->runs++;
    t->alarms += is_alarm;
    t->whole[any_regress ? ANSWER_REGRESS : all_pass ? ANSWER_PASS : ANSWER_OPEN]++;
    t->lost[states[0] == DECIDE_REGRESS                               ? ANSWER_REGRESS
            : states[0] == DECIDE_PASS || states[0] == DECIDE_IMPROVE ? ANSWER_PASS
                                                                      : ANSWER_OPEN]++;
    t->processes += processes;
}

static void run_ab(const struct noise *noise, double loss, struct tally *t)
{
    const struct decide_rules *rules = &decide_defaults;
    struct run_state state = {uniform(), 0};
    struct decide_config configs[CASES];
    struct decide_run run;
    uint64_t order_state = (uint64_t)(uniform() * 9e15);
    decide_begin(&run, rules, configs, CASES, false);
    do {
        struct decide_stored out[2][2][CASES]; /* build, pair of the block, case */
        int order[4], done[2] = {0, 0};
        const int pairs = decide_block_pairs(rules, run.pairs);
        decide_draw_order(&order_state, pairs, order);
        for (int i = 0; i < 2 * pairs; i++)
            process(noise, &state, order[i] ? loss : 0, out[order[i]][done[order[i]]++]);
        for (int p = 0; p < pairs; p++) {
            double from[CASES], to[CASES];
            for (int c = 0; c < CASES; c++) {
                from[c] = log(out[0][p][c].time_ms);
                to[c] = log(out[1][p][c].time_ms);
            }
            decide_pair(&run, from, to, NULL, NAN);
        }
    } while (decide_needs_pair(&run));
    decide_end(&run);
    enum decide_state states[CASES];
    for (int c = 0; c < CASES; c++)
        states[c] = configs[c].state;
    count(t, states, loss > 0, state.processes);
}

static void run_gate(const struct noise *noise, int baselines, double loss, struct tally *t)
{
    const struct decide_rules *rules = &decide_defaults;
    struct run_state state = {uniform(), 0};
    struct decide_stored out[CASES];
    static struct decide_stored was[CASES][GATE_RUNS_MAX], now[CASES][GATE_RUNS_MAX];
    struct decide_case cases[CASES];
    enum decide_state states[CASES];
    for (int c = 0; c < CASES; c++)
        cases[c] = (struct decide_case){was[c], now[c], 0, 0};
    for (int b = 0; b < baselines; b++) {
        process(noise, &state, 0, out);
        for (int c = 0; c < CASES; c++)
            cases[c].was[cases[c].was_count++] = out[c];
    }
    state.processes += (int)(8 * uniform()); /* measured at another time */
    const int before = state.processes;
    bool is_open = true;
    while (is_open) {
        process(noise, &state, loss, out);
        for (int c = 0; c < CASES; c++)
            cases[c].now[cases[c].now_count++] = out[c];
        const struct decide_family family = decide_family_of(cases, CASES, false);
        is_open = false;
        for (int c = 0; c < CASES; c++) {
            const struct decide_gate g = decide_gate(rules, &family, &cases[c]);
            states[c] = g.state;
            is_open |= decide_gate_needs_run(rules, &g, cases[0].now_count);
        }
    }
    count(t, states, loss > 0, state.processes - before);
}

/* ---- the table ---- */

/* The bars. decides_ab, decides_gate: kinds of noise in which an unchanged build must pass and a loss be found. */
static const double alarms_max = 0.01, decided_min = 0.95;
static bool decides_ab(const struct noise *n)
{
    return n->within <= 0.0101 && n->between <= 0.0101 &&
           !(n->drift + n->outliers + n->clocks + n->modes + n->wave > 0);
}
static bool decides_gate(const struct noise *n)
{
    return n->within <= 0.00501 && n->between <= 0.00301 &&
           !(n->drift + n->outliers + n->clocks + n->modes + n->wave > 0);
}

enum question { AB_SAME, AB_3, GATE_SAME, GATE_8, GATE_1_SAME, GATE_1_8, QUESTIONS };

static double share(int part, int runs) { return (double)part / runs; }

/* Misses: a share that is beyond its bar by more than chance explains, three standard errors at the bar. */
static bool is_above(int part, int runs, double bar)
{
    return share(part, runs) > bar + 3 * sqrt(bar * (1 - bar) / runs);
}
static bool is_below(int part, int runs, double bar)
{
    return share(part, runs) < bar - 3 * sqrt(bar * (1 - bar) / runs);
}

static int missed(const struct noise *n, const struct tally *t, bool is_whole)
{
    int misses = 0;
    for (int q = 0; q < QUESTIONS; q++)
        misses += is_whole ? share(t[q].alarms, t[q].runs) >= alarms_max : is_above(t[q].alarms, t[q].runs, alarms_max);
    if (decides_ab(n)) {
        misses += is_below(t[AB_SAME].whole[ANSWER_PASS], t[AB_SAME].runs, decided_min);
        misses += is_below(t[AB_3].lost[ANSWER_REGRESS], t[AB_3].runs, decided_min);
    }
    if (decides_gate(n)) {
        misses += is_below(t[GATE_SAME].whole[ANSWER_PASS], t[GATE_SAME].runs, decided_min);
        misses += is_below(t[GATE_8].lost[ANSWER_REGRESS], t[GATE_8].runs, decided_min);
    }
    return misses;
}

/* Everything that was asked about one kind of noise. */
struct kind {
    struct noise noise;
    struct tally tallies[QUESTIONS];
    int misses;
};

static void simulate(struct kind *k, int runs, bool is_whole)
{
    const struct noise *const n = &k->noise;
    struct tally *const t = k->tallies;
    for (int i = 0; i < runs; i++) {
        run_ab(n, 0, &t[AB_SAME]);
        run_ab(n, log(1.03), &t[AB_3]);
        run_gate(n, BASELINES, 0, &t[GATE_SAME]);
        run_gate(n, BASELINES, log(1.08), &t[GATE_8]);
        run_gate(n, 1, 0, &t[GATE_1_SAME]);
        run_gate(n, 1, log(1.08), &t[GATE_1_8]);
    }
    k->misses = missed(n, t, is_whole);
}

/* The columns of an unchanged build and of a loss, in per cent of the runs. */
static void print_pair(const struct tally *same, const struct tally *loss)
{
    printf(" %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |",
           100 * share(same->alarms + loss->alarms, same->runs + loss->runs),
           100 * share(same->whole[ANSWER_PASS], same->runs), 100 * share(same->whole[ANSWER_OPEN], same->runs),
           100 * share(loss->lost[ANSWER_REGRESS], loss->runs), 100 * share(loss->lost[ANSWER_PASS], loss->runs),
           100 * share(loss->lost[ANSWER_OPEN], loss->runs));
}

static void print_name(const struct noise *n)
{
    printf("| %s | %.1f | %.1f |", n->name, 100 * n->within, 100 * n->between);
}

/* Two tables, in per cent: `ab`, and `gate` with five records of the baseline and with one. */
static void print_tables(const struct kind *kinds, int count)
{
    puts("### ab, a limit of 2 %, a loss of 3 %\n\n"
         "| noise | within | between | false alarm | unchanged: pass | undecided | loss: found | passed | undecided | "
         "pairs |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for (int i = 0; i < count; i++) {
        const struct tally *const t = kinds[i].tallies;
        print_name(&kinds[i].noise);
        print_pair(&t[AB_SAME], &t[AB_3]);
        printf(" %.1f |\n", t[AB_3].processes / 2 / t[AB_3].runs);
    }
    for (int one = 0; one < 2; one++) {
        printf("\n### gate, %s, a limit of 5 %%, a loss of 8 %%\n\n"
               "| noise | within | between | false alarm | unchanged: pass | undecided | loss: found | passed | "
               "undecided | processes |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
               one ? "one record of the baseline" : "five records of the baseline");
        for (int i = 0; i < count; i++) {
            const struct tally *const t = &kinds[i].tallies[one ? GATE_1_SAME : GATE_SAME];
            print_name(&kinds[i].noise);
            print_pair(&t[0], &t[1]);
            printf(" %.1f |\n", t[0].processes / t[0].runs);
        }
    }
}

int main(int argc, char **argv)
{
    static const double withins[] = {0.001, 0.005, 0.01, 0.02}, betweens[] = {0, 0.003, 0.005, 0.01, 0.02};
    static const struct noise others[] = {
        {.name = "drift", .within = 0.005, .between = 0.003, .drift = 0.02},
        {.name = "outliers", .within = 0.005, .between = 0.003, .outliers = 0.03},
        {.name = "clocks", .within = 0.005, .between = 0.003, .clocks = 0.04},
        {.name = "modes", .within = 0.005, .between = 0.003, .modes = 0.015},
        {.name = "modes, 1 %", .within = 0.01, .between = 0.01, .modes = 0.015},
    };
    static const char *const periods[] = {"period 2", "period 3", "period 4", "period 5",
                                          "period 6", "period 7", "period 8"};
    enum { KINDS_MAX = 64 };
    const int runs = argc > 1 ? atoi(argv[1]) : 200;
    if (argc > 2)
        random_state ^= strtoull(argv[2], NULL, 10) * 2654435761u;
    const bool is_whole = runs >= 2000;
    int misses = 0;
    if (runs < 1) {
        fprintf(stderr, "simulate_gates [RUNS [SEED]]\n");
        return 2;
    }
    static struct kind kinds[KINDS_MAX];
    int count = 0;
    for (size_t w = 0; w < sizeof withins / sizeof withins[0]; w++)
        for (size_t b = 0; b < sizeof betweens / sizeof betweens[0]; b++)
            kinds[count++].noise = (struct noise){.name = "normal", .within = withins[w], .between = betweens[b]};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        kinds[count++].noise = others[i];
    for (int period = 2; period <= 8; period++)
        kinds[count++].noise = (struct noise){
            .name = periods[period - 2], .within = 0.005, .between = 0.003, .wave = 0.025, .period = period};
    for (int i = 0; i < count; i++) {
        simulate(&kinds[i], runs, is_whole);
        misses += kinds[i].misses;
        if (kinds[i].misses)
            fprintf(stderr, "simulate_gates: %s %.1f %.1f: %d bars missed\n", kinds[i].noise.name,
                    100 * kinds[i].noise.within, 100 * kinds[i].noise.between, kinds[i].misses);
    }
    print_tables(kinds, count);
    return misses ? 1 : 0;
}
