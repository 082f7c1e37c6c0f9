/* The decision rules. Bounds use Student's t: there are only a few differences, one from each pair of processes. */
#include "cmd/gate/decide.h"

#include <math.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/stats.h"

/* The only place that sets pairs, limits and bounds. They are chosen for the spread between processes in
 * tests/unit/data/spread.csv (written by scripts/measure_spread.sh); test_decide.c simulates runs with that spread.
 * With the outliers that the test adds, a delta of 1 % would leave one of six unchanged runs of 40 configurations
 * undecided. */
const struct decide_rules decide_defaults = {
    .delta = 0.01980, /* 2 % */
    .pairs_min = 5,
    .pairs_max = 12,
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
};

enum decide_basis decide_basis_of(const struct decide_value *from, const struct decide_value *to)
{
    return from->speedup_vs_control > 0 && to->speedup_vs_control > 0 ? BASIS_CONTROL
           : from->pct_of_gemm > 0 && to->pct_of_gemm > 0             ? BASIS_GEMM
           : from->time_ms > 0 && to->time_ms > 0                     ? BASIS_TIME
                                                                      : BASIS_NONE;
}

double decide_difference(const struct decide_value *from, const struct decide_value *to, bool *is_paired)
{
    const enum decide_basis basis = decide_basis_of(from, to);
    *is_paired = basis == BASIS_CONTROL || basis == BASIS_GEMM;
    switch (basis) {
    case BASIS_CONTROL: return log(from->speedup_vs_control) - log(to->speedup_vs_control);
    case BASIS_GEMM: return log(from->pct_of_gemm) - log(to->pct_of_gemm);
    case BASIS_TIME: return log(to->time_ms) - log(from->time_ms);
    case BASIS_NONE: break;
    }
    return NAN;
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

/* Adds a difference and updates mean and bounds. t_*: quantiles by number of pairs. */
static void add(struct decide_series *s, double d, const double *t_regress, const double *t_pass)
{
    s->d[s->count++] = d;
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

static void judge(const struct decide_rules *rules, struct decide_config *c)
{
    if (c->change.count < rules->pairs_min)
        return;
    const enum decide_state verdict = verdict_of(rules, &c->change);
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
    memset(configs, 0, (size_t)count * sizeof *configs);
    /* Bonferroni: the error of a regression is divided by the number of configurations. */
    for (int n = 2; n <= rules->pairs_max; n++) {
        run->t_regress[n] = stats_t_quantile(1 - rules->error_regress / (count > 1 ? count : 1), n - 1);
        run->t_control[n] = stats_t_quantile(1 - rules->error_regress, n - 1);
        run->t_pass[n] = stats_t_quantile(1 - rules->error_pass, n - 1);
    }
}

void decide_pair(struct decide_run *run, const double *d, const double *cross_check, double control)
{
    FABENCH_ASSERT(run->pairs < run->rules->pairs_max, "%d pairs", run->pairs);
    for (int i = 0; i < run->config_count; i++) {
        struct decide_config *c = &run->configs[i];
        if (c->state != DECIDE_OPEN || isnan(d[i]))
            continue;
        add(&c->change, d[i], run->t_regress, run->t_pass);
        if (cross_check && !isnan(cross_check[i]))
            add(&c->cross_check, cross_check[i], run->t_regress, run->t_pass);
        judge(run->rules, c);
    }
    if (!isnan(control))
        add(&run->control, control, run->t_control, run->t_pass);
    run->pairs++;
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

/* ---- gate ---- */

static double log_ratio(double over, double under) { return over > 0 && under > 0 ? log(over / under) : NAN; }

static bool has_interval(const struct decide_stored *s)
{
    return s->samples > 0 && s->ci_lo_ms > 0 && s->ci_hi_ms >= s->ci_lo_ms;
}

/* The square of the standard error of log(median). */
static double variance_of(const struct decide_stored *s)
{
    const double error = log(s->ci_hi_ms / s->ci_lo_ms) / (2 * 1.959964);
    return error * error;
}

/* The lower bound of the change of the time. */
static double lower_bound(const struct decide_rules *rules, const struct decide_stored *a,
                          const struct decide_stored *b, int family)
{
    const double change = log(b->time_ms / a->time_ms), va = variance_of(a), vb = variance_of(b);
    if (!(va + vb > 0))
        return change;
    const double freedom =
        (va + vb) * (va + vb) / (va * va / sqrt((double)a->samples) + vb * vb / sqrt((double)b->samples));
    const int whole = freedom < 1 ? 1 : freedom > 1000 ? 1000 : (int)freedom;
    return change - stats_t_quantile(1 - rules->error_regress / (family > 1 ? family : 1), whole) * sqrt(va + vb);
}

/* Why a configuration that is slower by both measures is no regression, or REASON_NONE. */
static enum decide_reason doubt_of(const struct decide_rules *rules, const struct decide_stored *baseline,
                                   const struct decide_stored *current, int family)
{
    if (current->throttled_pct > rules->throttled_pct)
        return REASON_THROTTLED;
    if (!(current->ci_lo_ms > baseline->ci_hi_ms))
        return REASON_NOISE;
    return lower_bound(rules, baseline, current, family) > 0 ? REASON_NONE : REASON_FAMILY;
}

struct decide_gate decide_gate(const struct decide_rules *rules, const struct decide_stored *baseline,
                               const struct decide_stored *current, int family)
{
    struct decide_gate g = {.state = DECIDE_PASS};
    g.time_change = log_ratio(current->time_ms, baseline->time_ms);
    g.relative_change = log_ratio(baseline->pct_of_gemm, current->pct_of_gemm);
    g.gemm_change = log_ratio(baseline->gemm_tflops, current->gemm_tflops);
    const bool has_gemm = !isnan(g.relative_change);
    const bool slower_raw = g.time_change > rules->gate_delta;
    const bool slower_relative = has_gemm ? g.relative_change > rules->gate_delta : slower_raw;
    if (!has_gemm)
        g.reason = REASON_NO_GEMM;
    if (isnan(g.time_change)) {
        g.state = DECIDE_INCONCLUSIVE;
        return g;
    }
    if (!has_interval(baseline) || !has_interval(current)) {
        g.state = DECIDE_INCONCLUSIVE;
        g.reason = REASON_NO_INTERVAL;
        return g;
    }
    if (slower_raw != slower_relative) {
        g.reason = slower_raw ? REASON_RAW_ONLY : REASON_GEMM_ONLY;
        if (!(fabs(g.gemm_change) <= rules->gate_gemm)) {
            g.state = DECIDE_INCONCLUSIVE;
            g.reason = REASON_GEMM_CHANGED;
        }
        return g;
    }
    if (slower_raw) {
        const enum decide_reason doubt = doubt_of(rules, baseline, current, family);
        g.state = doubt == REASON_NONE ? DECIDE_REGRESS : DECIDE_INCONCLUSIVE;
        if (doubt != REASON_NONE)
            g.reason = doubt;
    } else if (g.time_change < -rules->gate_delta && (!has_gemm || g.relative_change < -rules->gate_delta)) {
        g.state = DECIDE_IMPROVE;
    }
    return g;
}
