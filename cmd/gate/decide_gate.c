/* The decision rules of `gate`. */
#include "cmd/gate/decide_gate.h"

#include <math.h>
#include <stdlib.h>

#include "cmd/base/log.h"
#include "cmd/base/stats.h"

/* The configurations whose changes show the spread where each side is one process; below this many they show nothing.
 * own_weight: the degrees of freedom for which all configurations count beside one. */
enum { FAMILY_MIN = 6 };
static const double own_weight = 4;

static double log_ratio(double over, double under) { return over > 0 && under > 0 ? log(over / under) : NAN; }

/* The value of a run in a measure: the logarithm of a time, up to a constant. */
static double value_of(const struct decide_stored *s, enum decide_measure measure, bool is_cpu)
{
    if (measure == MEASURE_TIME)
        return s->time_ms > 0 ? log(s->time_ms) : NAN;
    const double speed = is_cpu ? s->over_control : s->share;
    return speed > 0 ? -log(speed) : NAN;
}

/* Mean and sum of squared deviations of the runs of one side; NaN where one of them has no value. */
struct moments {
    double mean, squares;
};
static struct moments moments_of(const struct decide_stored *runs, int count, enum decide_measure measure, bool is_cpu)
{
    struct moments m = {0, 0};
    for (int i = 0; i < count; i++)
        m.mean += value_of(&runs[i], measure, is_cpu) / count;
    for (int i = 0; i < count; i++)
        m.squares += pow(value_of(&runs[i], measure, is_cpu) - m.mean, 2);
    return m;
}

static double change_of(const struct decide_case *c, enum decide_measure measure, bool is_cpu)
{
    return moments_of(c->now, c->now_count, measure, is_cpu).mean -
           moments_of(c->was, c->was_count, measure, is_cpu).mean;
}

/* Squared deviations of the runs of a configuration from the means of their sides. */
static double squares_of(const struct decide_case *c, enum decide_measure measure, bool is_cpu)
{
    return moments_of(c->was, c->was_count, measure, is_cpu).squares +
           moments_of(c->now, c->now_count, measure, is_cpu).squares;
}

static int freedom_of(const struct decide_case *c) { return c->was_count + c->now_count - 2; }

/* The variance of one process from the changes of all configurations: the shortest interval that holds half of them,
 * which is 1.349 standard deviations of a normal distribution, with the correction for small numbers of Rousseeuw and
 * Leroy. Its efficiency is 37 %, so that it counts as so many degrees of freedom. */
static void spread_of_changes(double *changes, int count, double *variance, double *freedom)
{
    const int half = (count + 1) / 2;
    double shortest = INFINITY;
    stats_sort(changes, count);
    for (int i = 0; i + half <= count; i++)
        shortest = fmin(shortest, changes[i + half - 1] - changes[i]);
    const double deviation = shortest / 1.349 * (1 + 5.0 / (count - 1));
    *variance = deviation * deviation / 2; /* a change has the variance of two processes */
    *freedom = 0.37 * (count - 1);
}

struct decide_family decide_family_of(const struct decide_case *cases, int count, bool is_cpu)
{
    struct decide_family f = {.count = count, .is_cpu = is_cpu};
    double *changes = xmalloc((unsigned long)(count + 1) * sizeof *changes);
    for (int m = 0; m < MEASURES; m++) {
        double squares = 0, freedom = 0;
        int used = 0;
        for (int i = 0; i < count; i++) {
            const double change = change_of(&cases[i], (enum decide_measure)m, is_cpu);
            if (isnan(change))
                continue;
            changes[used++] = change;
            squares += squares_of(&cases[i], (enum decide_measure)m, is_cpu);
            freedom += freedom_of(&cases[i]);
        }
        if (freedom > 0) {
            f.variance[m] = squares / freedom;
            f.freedom[m] = freedom;
        } else if (used >= FAMILY_MIN) {
            spread_of_changes(changes, used, &f.variance[m], &f.freedom[m]);
        }
    }
    free(changes);
    return f;
}

/* ---- one measure of one configuration ---- */

struct estimate {
    double change;
    double deviation; /* of one process */
    double regress;   /* half-width of the bounds of a regression */
    double pass;      /* of the bound of a pass */
    double within;    /* half-width of the bounds of a regression from the noise within the processes alone */
};

static bool has_interval(const struct decide_stored *s)
{
    return s->samples > 0 && s->ci_lo_ms > 0 && s->ci_hi_ms >= s->ci_lo_ms;
}

static double quantile(double error, double freedom)
{
    const int whole = freedom < 1 ? 1 : freedom > 200 ? 200 : (int)(freedom + 0.5);
    return stats_t_quantile(1 - error, whole);
}

/* Adds the variance of the mean of the medians of one side, from their intervals, and what Satterthwaite's formula
 * needs. */
static void add_within(const struct decide_stored *runs, int count, double *variance, double *denominator)
{
    for (int i = 0; i < count; i++) {
        const double error = log(runs[i].ci_hi_ms / runs[i].ci_lo_ms) / (2 * 1.959964) / count;
        *variance += error * error;
        *denominator += error * error * error * error / sqrt((double)runs[i].samples);
    }
}

/* Half-widths from the spread between processes. */
static void widen_by_spread(const struct decide_rules *rules, const struct decide_family *f,
                            const struct decide_case *c, enum decide_measure m, double error, struct estimate *e)
{
    const double scale = sqrt(1.0 / c->was_count + 1.0 / c->now_count);
    const double assumed = rules->gate_spread, least = rules->gate_spread_pass;
    const double own = freedom_of(c);
    if (own > 0) {
        const double others = fmin(own_weight, f->freedom[m] - own);
        const double variance = (squares_of(c, m, f->is_cpu) + others * f->variance[m]) / (own + others);
        e->deviation = sqrt(variance);
        e->regress = quantile(error, own + others) * e->deviation * scale;
        e->pass = quantile(rules->error_pass, own + others) * e->deviation * scale;
        return;
    }
    e->regress = quantile(error, INFINITY) * assumed * scale;
    e->pass = quantile(rules->error_pass, INFINITY) * least * scale;
    e->deviation = assumed;
    if (f->freedom[m] <= 0)
        return;
    /* One process on each side, and enough configurations. Their changes do not show what they have in common: only a
     * measure relative to something of the same rounds is taken to be as good as they say. */
    const double deviation = sqrt(f->variance[m]);
    const double regress = quantile(error, f->freedom[m]) * deviation * scale;
    const double pass = quantile(rules->error_pass, f->freedom[m]) * deviation * scale;
    e->deviation = deviation;
    if (m == MEASURE_RELATIVE || deviation > assumed)
        e->regress = deviation > assumed ? regress : fmin(regress, e->regress);
    e->pass = deviation > least ? pass : fmin(pass, e->pass);
}

static struct estimate estimate_of(const struct decide_rules *rules, const struct decide_family *f,
                                   const struct decide_case *c, enum decide_measure m)
{
    const double error = rules->error_regress / (f->count > 1 ? f->count : 1);
    struct estimate e = {.change = change_of(c, m, f->is_cpu)};
    double variance = 0, denominator = 0;
    if (isnan(e.change))
        return e;
    widen_by_spread(rules, f, c, m, error, &e);
    add_within(c->was, c->was_count, &variance, &denominator);
    add_within(c->now, c->now_count, &variance, &denominator);
    if ((m == MEASURE_TIME || f->is_cpu) && denominator > 0) {
        const double freedom = variance * variance / denominator;
        e.within = quantile(error, floor(freedom)) * sqrt(variance);
        e.regress = fmax(e.regress, e.within);
        e.pass = fmax(e.pass, quantile(rules->error_pass, floor(freedom)) * sqrt(variance));
    }
    return e;
}

/* ---- verdicts ---- */

static bool overlaps(const struct decide_case *c)
{
    return c->was_count == 1 && c->now_count == 1 && !(c->now[0].ci_lo_ms > c->was[0].ci_hi_ms);
}

static bool is_throttled(const struct decide_rules *rules, const struct decide_case *c)
{
    for (int i = 0; i < c->now_count; i++)
        if (c->now[i].throttled_pct > rules->throttled_pct)
            return true;
    return false;
}

/* The spread between processes is that of the measure that decides; in the other one the change must be as large, and
 * more than the noise within the processes. */
static bool is_faster(const struct decide_rules *rules, const struct estimate *decider, const struct estimate *other)
{
    return decider->change < -rules->gate_delta && decider->change + decider->regress < 0 &&
           other->change < -rules->gate_delta && other->change + other->within < 0;
}

/* A limit that the spread exceeds is never passed. */
static bool is_within(const struct decide_rules *rules, const struct estimate *e)
{
    return e->pass < rules->gate_delta && e->change + e->pass < rules->gate_delta;
}

/* The largest share of the time in which threads waited for a CPU; NaN = no record says. */
static double waited_pct(const struct decide_case *c)
{
    double largest = NAN; /* fmax ignores NaN */
    for (int i = 0; i < c->was_count; i++)
        largest = fmax(largest, c->was[i].cpu_wait_pct);
    for (int i = 0; i < c->now_count; i++)
        largest = fmax(largest, c->now[i].cpu_wait_pct);
    return largest;
}

/* On the CPU one process may be slower or faster for a reason of its own by any factor. */
static bool says_too_little(const struct decide_rules *rules, const struct decide_family *f,
                            const struct decide_case *c, struct decide_gate *g)
{
    const bool is_busy = f->is_busy || g->waited_pct > rules->gate_wait_pct;
    if (!f->is_cpu || (c->now_count > 1 && !is_busy))
        return false;
    g->state = DECIDE_INCONCLUSIVE;
    g->reason = is_busy ? REASON_BUSY : REASON_ONE_NOW;
    return true;
}

/* Slower by every measure that counts; see is_faster. */
static void judge_slower(const struct decide_rules *rules, const struct decide_case *c, const struct estimate *decider,
                         const struct estimate *other, bool has_interval_rule, struct decide_gate *g)
{
    g->state = DECIDE_INCONCLUSIVE;
    if (is_throttled(rules, c))
        g->reason = REASON_THROTTLED;
    else if (has_interval_rule && overlaps(c))
        g->reason = REASON_NOISE;
    else if (!(decider->change - decider->regress > 0) || !(other->change - other->within > 0))
        g->reason = REASON_FAMILY;
    else
        g->state = DECIDE_REGRESS;
}

/* The mean change of the time of the ceiling. */
static double ceiling_change(const struct decide_case *c)
{
    double sum = 0;
    for (int i = 0; i < c->was_count; i++)
        sum += log_ratio(c->was[i].ceiling, 1) / c->was_count;
    for (int i = 0; i < c->now_count; i++)
        sum -= log_ratio(c->now[i].ceiling, 1) / c->now_count;
    return sum;
}

static bool all_have_intervals(const struct decide_case *c)
{
    bool all = true;
    for (int i = 0; i < c->was_count; i++)
        all &= has_interval(&c->was[i]);
    for (int i = 0; i < c->now_count; i++)
        all &= has_interval(&c->now[i]);
    return all;
}

/* Decides by the time and by the time relative to the ceiling, or by one of them alone. */
static void judge(const struct decide_rules *rules, const struct decide_family *f, const struct decide_case *c,
                  struct decide_gate *g)
{
    const struct estimate time = estimate_of(rules, f, c, MEASURE_TIME);
    const struct estimate relative = estimate_of(rules, f, c, MEASURE_RELATIVE);
    const bool has_relative = !isnan(relative.change);
    const struct estimate *const decider = has_relative ? &relative : &time;
    const struct estimate *const other = has_relative && !f->is_cpu ? &time : decider;
    const bool slower = decider->change > rules->gate_delta, slower_too = other->change > rules->gate_delta;
    g->low = decider->change - decider->regress;
    g->high = decider->change + decider->regress;
    g->spread = decider->deviation;
    g->possible = fmin(decider->pass, other->pass);
    const bool faster = is_faster(rules, decider, other);
    if (((slower && slower_too) || faster) && says_too_little(rules, f, c, g))
        return;
    if (slower && slower_too) {
        judge_slower(rules, c, decider, other, !f->is_cpu, g);
    } else if (faster) {
        g->state = DECIDE_IMPROVE;
    } else if (!is_within(rules, decider) && !is_within(rules, other)) {
        g->state = DECIDE_INCONCLUSIVE;
        g->reason = REASON_SPREAD;
    } else if (slower != slower_too) {
        const bool has_moved = !(fabs(g->gemm_change) <= rules->gate_gemm);
        g->reason = has_moved ? REASON_GEMM_CHANGED : slower ? REASON_GEMM_ONLY : REASON_RAW_ONLY;
        g->state = has_moved ? DECIDE_INCONCLUSIVE : DECIDE_PASS;
    }
}

struct decide_gate decide_gate(const struct decide_rules *rules, const struct decide_family *family,
                               const struct decide_case *c)
{
    struct decide_gate g = {.state = DECIDE_PASS, .low = NAN, .high = NAN, .spread = NAN, .possible = NAN};
    g.time_change = change_of(c, MEASURE_TIME, family->is_cpu);
    g.relative_change = change_of(c, MEASURE_RELATIVE, family->is_cpu);
    g.gemm_change = ceiling_change(c);
    g.waited_pct = waited_pct(c);
    if (isnan(g.time_change)) {
        g.state = DECIDE_INCONCLUSIVE;
    } else if (!all_have_intervals(c)) {
        g.state = DECIDE_INCONCLUSIVE;
        g.reason = REASON_NO_INTERVAL;
    } else if (family->is_cpu && isnan(g.relative_change)) {
        g.state = DECIDE_INCONCLUSIVE;
        g.reason = REASON_NO_CONTROL;
    } else if (family->is_cpu && c->was_count < 2) {
        g.state = DECIDE_INCONCLUSIVE;
        g.reason = REASON_ONE_BASELINE;
    } else {
        if (isnan(g.relative_change))
            g.reason = REASON_NO_GEMM;
        judge(rules, family, c, &g);
    }
    return g;
}

bool decide_gate_needs_run(const struct decide_rules *rules, const struct decide_gate *g, int runs)
{
    if (runs >= rules->gate_runs_max)
        return false;
    switch (g->reason) {
    case REASON_NOISE:
    case REASON_FAMILY:
    case REASON_SPREAD:
    case REASON_GEMM_CHANGED:
    case REASON_ONE_NOW:
    case REASON_THROTTLED: return true;
    default: return g->state == DECIDE_REGRESS && runs < 2;
    }
}
