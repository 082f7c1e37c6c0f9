/* The decision rules. Bounds use Student's t: there are only a few differences, one from each pair of processes. */
#include "cmd/gate/decide.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/stats.h"

/* The only place that sets pairs, limits and bounds. They are chosen for the spread between processes in
 * tests/unit/data/spread.csv (written by scripts/measure_spread.sh); test_decide.c simulates runs with that spread, and
 * simulate_gates.c with other kinds of noise. With the outliers that the test adds, a delta of 1 % would leave one of
 * six unchanged runs of 40 configurations undecided. */
const struct decide_rules decide_defaults = {
    .delta = 0.01980, /* 2 % */
    .pairs_min = 6,
    .pairs_max = 16,
    .error_regress = 0.01,
    .error_pass = 0.05,
    .control_paired = 0.01,
    .control_raw = 0.02,
    .throttled_pct = 1,
    .repeats_max = 3,
    .preheat_s = 3,
    .warmup_ms = 150,
    .min_time_ms = 400,
    .samples = 30,
    .gate_delta = 0.04879, /* 5 % */
    .gate_gemm = 0.03,
    .gate_spread = 0.02,
    .gate_spread_pass = 0.01,
    .gate_runs_max = 5,
    .gate_wait_pct = 20,
    .gate_load = 2,
};

enum decide_basis decide_basis_of(const struct decide_value *from, const struct decide_value *to)
{
    return from->speedup_vs_control > 0 && to->speedup_vs_control > 0 ? BASIS_CONTROL
           : from->pct_of_gemm > 0 && to->pct_of_gemm > 0             ? BASIS_GEMM
           : from->time_ms > 0 && to->time_ms > 0                     ? BASIS_TIME
                                                                      : BASIS_NONE;
}

double decide_logarithm(const struct decide_value *value, enum decide_basis basis)
{
    switch (basis) {
    case BASIS_CONTROL: return -log(value->speedup_vs_control);
    case BASIS_GEMM: return -log(value->pct_of_gemm);
    case BASIS_TIME: return log(value->time_ms);
    case BASIS_NONE: break;
    }
    return NAN;
}

double decide_difference(const struct decide_value *from, const struct decide_value *to, bool *is_paired)
{
    const enum decide_basis basis = decide_basis_of(from, to);
    *is_paired = basis == BASIS_CONTROL || basis == BASIS_GEMM;
    return decide_logarithm(to, basis) - decide_logarithm(from, basis);
}

double decide_cross_check(const struct decide_value *from, const struct decide_value *to)
{
    if (!(from->speedup_vs_control > 0 && to->speedup_vs_control > 0 && from->pct_of_gemm > 0 && to->pct_of_gemm > 0))
        return NAN;
    return log(from->pct_of_gemm) - log(to->pct_of_gemm);
}

double decide_mean(const double *values, int count)
{
    double sum = 0;
    int used = 0;
    for (int i = 0; i < count; i++)
        if (!isnan(values[i])) {
            sum += values[i];
            used++;
        }
    return used ? sum / used : NAN;
}

double decide_spread(const struct decide_series *s)
{
    double squares = 0;
    for (int i = 0; i < s->count; i++)
        squares += (s->d[i] - s->mean) * (s->d[i] - s->mean);
    return s->count > 1 ? sqrt(squares / (s->count - 1)) : 0;
}

/* ---- order and randomisation test ---- */

int decide_block_pairs(const struct decide_rules *rules, int first)
{
    const int end = first < rules->pairs_min ? rules->pairs_min : rules->pairs_max;
    return end - first < 2 ? 1 : 2;
}

void decide_draw_order(uint64_t *state, int pairs, int order[4])
{
    static const int orders[6][4] = {{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 1, 0},
                                     {1, 0, 0, 1}, {1, 0, 1, 0}, {1, 1, 0, 0}};
    const uint64_t drawn = number_mix(*state += NUMBER_MIX_STEP) >> 32;
    if (pairs == 2) {
        memcpy(order, orders[drawn % 6], sizeof orders[0]);
    } else {
        order[0] = (int)(drawn % 2);
        order[1] = !order[0];
    }
}

/* The sums of differences that the orders of one block give; returns their number. */
static int block_sums(const struct decide_series *s, int first, int pairs, double sums[6])
{
    if (pairs == 1) {
        sums[0] = s->d[first];
        sums[1] = -s->d[first];
        return 2;
    }
    const double v[4] = {s->from[first], s->from[first + 1], s->to[first], s->to[first + 1]};
    int count = 0;
    for (int i = 0; i < 4; i++)
        for (int k = i + 1; k < 4; k++)
            sums[count++] = 2 * (v[i] + v[k]) - (v[0] + v[1] + v[2] + v[3]);
    return count;
}

/* The distribution of the sum over all blocks, on a grid of its whole range: exact but for the rounding of each block's
 * sums to the grid, which is allowed for. */
double decide_chance(const struct decide_rules *rules, const struct decide_series *s)
{
    enum { CELLS = 1024 };
    double range = 0, observed = 0, sums[6], *chances = xcalloc(2 * CELLS + 1, sizeof *chances),
           *next = xcalloc(2 * CELLS + 1, sizeof *next);
    int blocks = 0;
    for (int first = 0; first < s->count; blocks++) {
        const int pairs = first + 2 <= s->count ? decide_block_pairs(rules, first) : 1;
        const int count = block_sums(s, first, pairs, sums);
        double largest = 0;
        for (int i = 0; i < count; i++)
            largest = fmax(largest, fabs(sums[i]));
        range += largest;
        for (int i = 0; i < pairs; i++)
            observed += s->d[first + i];
        first += pairs;
    }
    const double cell = range > 0 ? range / (CELLS - DECIDE_PAIRS_MAX) : 1; /* room for the rounding */
    chances[CELLS] = 1;
    for (int first = 0; first < s->count;) {
        const int pairs = first + 2 <= s->count ? decide_block_pairs(rules, first) : 1;
        const int count = block_sums(s, first, pairs, sums);
        memset(next, 0, (2 * CELLS + 1) * sizeof *next);
        for (int i = 0; i < count; i++) {
            const int shift = (int)lround(sums[i] / cell);
            for (int c = 0; c <= 2 * CELLS; c++)
                if (chances[c] > 0 && c + shift >= 0 && c + shift <= 2 * CELLS)
                    next[c + shift] += chances[c] / count;
        }
        double *const swap = chances;
        chances = next;
        next = swap;
        first += pairs;
    }
    double chance = 0;
    const double least = fabs(observed) / cell - 0.5 * blocks - 1e-9;
    for (int c = 0; c <= 2 * CELLS; c++)
        if ((observed < 0 ? CELLS - c : c - CELLS) >= least)
            chance += chances[c];
    free(chances);
    free(next);
    return fmin(chance, 1);
}

/* The number of times that a run may decide. */
static int decisions_of(const struct decide_rules *rules)
{
    int count = 0;
    for (int pairs = 0; pairs < rules->pairs_max;) {
        pairs += decide_block_pairs(rules, pairs);
        count += pairs >= rules->pairs_min;
    }
    return count;
}

static double chance_allowed(const struct decide_rules *rules, int count)
{
    return rules->error_regress / (count > 1 ? count : 1) / decisions_of(rules);
}

/* The chance of the one order that gives the largest sum, after so many pairs. */
static double least_chance(const struct decide_rules *rules, int end)
{
    double chance = 1;
    for (int pairs = 0; pairs < end; pairs += decide_block_pairs(rules, pairs))
        chance /= decide_block_pairs(rules, pairs) == 2 ? 6 : 2;
    return chance;
}

int decide_pairs_needed(const struct decide_rules *rules, int count)
{
    for (int pairs = 0; pairs < rules->pairs_max;) {
        pairs += decide_block_pairs(rules, pairs);
        const double chance = least_chance(rules, pairs);
        if (pairs >= rules->pairs_min && chance <= chance_allowed(rules, count))
            return pairs;
    }
    return 0;
}

/* ---- verdicts ---- */

/* Adds a pair and updates mean and bounds. t_*: quantiles by number of pairs. */
static void add(struct decide_series *s, double from, double to, const double *t_regress, const double *t_pass)
{
    s->from[s->count] = from;
    s->to[s->count] = to;
    s->d[s->count++] = to - from;
    s->mean = decide_mean(s->d, s->count);
    const double error = s->count > 1 ? decide_spread(s) / sqrt(s->count) : INFINITY;
    const double regress = s->count > 1 ? error * t_regress[s->count] : INFINITY;
    const double pass = s->count > 1 ? error * t_pass[s->count] : INFINITY;
    s->regress_low = s->mean - regress;
    s->regress_high = s->mean + regress;
    s->pass_low = s->mean - pass;
    s->pass_high = s->mean + pass;
}

static enum decide_state verdict_of(const struct decide_rules *rules, const struct decide_series *s)
{
    if (s->mean > rules->delta && s->regress_low > 0)
        return DECIDE_REGRESS;
    if (s->mean < -rules->delta && s->regress_high < 0)
        return DECIDE_IMPROVE;
    return s->pass_high < rules->delta ? DECIDE_PASS : DECIDE_OPEN;
}

static bool contradicts(const struct decide_rules *rules, const struct decide_series *cross_check,
                        enum decide_state verdict)
{
    if (cross_check->count < rules->pairs_min)
        return false;
    if (verdict == DECIDE_REGRESS)
        return cross_check->pass_high < rules->delta;
    if (verdict == DECIDE_IMPROVE)
        return cross_check->pass_low > -rules->delta;
    return verdict == DECIDE_PASS && cross_check->mean > rules->delta && cross_check->pass_low > 0;
}

static void judge(const struct decide_run *run, struct decide_config *c)
{
    const struct decide_rules *rules = run->rules;
    enum decide_state verdict = verdict_of(rules, &c->change);
    c->chance = 1;
    if (verdict == DECIDE_REGRESS || verdict == DECIDE_IMPROVE) {
        c->chance = least_chance(rules, c->change.count);
        if (c->chance <= run->chance_regress)
            c->chance = decide_chance(rules, &c->change);
        if (c->chance > run->chance_regress)
            verdict = DECIDE_OPEN;
    }
    c->is_contradicted = contradicts(rules, &c->cross_check, verdict);
    if (!c->is_contradicted)
        c->state = verdict;
}

void decide_begin(struct decide_run *run, const struct decide_rules *rules, struct decide_config *configs, int count,
                  bool control_is_paired)
{
    FABENCH_ASSERT(rules->pairs_min >= 2 && rules->pairs_min <= rules->pairs_max &&
                       rules->pairs_max <= DECIDE_PAIRS_MAX,
                   "%d..%d pairs", rules->pairs_min, rules->pairs_max);
    memset(run, 0, sizeof *run);
    run->rules = rules;
    run->configs = configs;
    run->config_count = count;
    run->control_is_paired = control_is_paired;
    run->chance_regress = chance_allowed(rules, count);
    memset(configs, 0, (size_t)count * sizeof *configs);
    for (int i = 0; i < count; i++)
        configs[i].chance = 1;
    /* Bonferroni: the error of a regression is divided by the number of configurations. */
    for (int n = 2; n <= rules->pairs_max; n++) {
        run->t_regress[n] = stats_t_quantile(1 - rules->error_regress / (count > 1 ? count : 1), n - 1);
        run->t_control[n] = stats_t_quantile(1 - rules->error_regress, n - 1);
        run->t_pass[n] = stats_t_quantile(1 - rules->error_pass, n - 1);
    }
}

/* Is this number of pairs the end of a block, and a decision? */
static bool is_decision(const struct decide_rules *rules, int pairs)
{
    int end = 0;
    while (end < pairs)
        end += decide_block_pairs(rules, end);
    return end == pairs && pairs >= rules->pairs_min;
}

void decide_pair(struct decide_run *run, const double *from, const double *to, const double *cross_check,
                 double control)
{
    FABENCH_ASSERT(run->pairs < run->rules->pairs_max, "%d pairs", run->pairs);
    run->pairs++;
    for (int i = 0; i < run->config_count; i++) {
        struct decide_config *c = &run->configs[i];
        if (c->state != DECIDE_OPEN || isnan(to[i] - from[i]))
            continue;
        add(&c->change, from[i], to[i], run->t_regress, run->t_pass);
        if (cross_check && !isnan(cross_check[i]))
            add(&c->cross_check, 0, cross_check[i], run->t_regress, run->t_pass);
        if (is_decision(run->rules, run->pairs) && c->change.count >= run->rules->pairs_min)
            judge(run, c);
    }
    if (!isnan(control))
        add(&run->control, 0, control, run->t_control, run->t_pass);
}

bool decide_needs_pair(const struct decide_run *run)
{
    if (run->pairs >= run->rules->pairs_max)
        return false;
    for (int i = 0; i < run->config_count; i++)
        if (run->configs[i].state == DECIDE_OPEN)
            return true;
    return false;
}

static double control_limit(const struct decide_run *run)
{
    return run->control_is_paired ? run->rules->control_paired : run->rules->control_raw;
}

bool decide_control_changed(const struct decide_run *run)
{
    const struct decide_series *c = &run->control;
    return c->count > 1 && fabs(c->mean) > control_limit(run) && (c->regress_low > 0 || c->regress_high < 0);
}

bool decide_control_stable(const struct decide_run *run)
{
    const struct decide_series *c = &run->control;
    return c->count > 1 && c->pass_low >= -control_limit(run) && c->pass_high <= control_limit(run);
}

void decide_end(struct decide_run *run)
{
    const bool changed = decide_control_changed(run);
    for (int i = 0; i < run->config_count; i++) {
        enum decide_state *state = &run->configs[i].state;
        if (*state == DECIDE_OPEN || (changed && *state != DECIDE_PASS))
            *state = DECIDE_INCONCLUSIVE;
    }
}

int decide_exit(const struct decide_run *run)
{
    int code = decide_control_changed(run) ? EXIT_INCONCLUSIVE : EXIT_OK;
    for (int i = 0; i < run->config_count; i++) {
        const enum decide_state state = run->configs[i].state;
        if (state == DECIDE_REGRESS)
            code = exit_worst(code, EXIT_REGRESSION);
        else if (state == DECIDE_INCONCLUSIVE || state == DECIDE_OPEN)
            code = exit_worst(code, EXIT_INCONCLUSIVE);
    }
    return code;
}
