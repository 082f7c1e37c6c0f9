/* Makes the verdict lines, the line of the control and the summary of `ab`. */
#include "cmd/gate/ab_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/gate/verdicts.h"

int ab_untimed_verdict(const struct ab_config *c)
{
    const enum ab_outcome from = c->outcome[AB_OLD], to = c->outcome[AB_NEW];
    if (to == OUTCOME_ERROR)
        return VERDICT_ERROR;
    if (to == OUTCOME_FAIL)
        return VERDICT_FAIL;
    if (to == OUTCOME_PASS)
        return from == OUTCOME_PASS                            ? VERDICT_PASS
               : from == OUTCOME_FAIL || from == OUTCOME_ERROR ? VERDICT_FIXED
                                                               : VERDICT_NEW;
    return from == OUTCOME_REFUSED || from == OUTCOME_NONE ? -1 : VERDICT_LOST;
}

static double per_cent(double logarithm) { return 100 * expm1(logarithm); }

static void describe_untimed(const struct ab_config *c, struct verdict_line *line)
{
    static const char *const words[] = {"does not run it", "passes", "fails its check", "refuses", "fails"};
    const enum ab_outcome from = c->outcome[AB_OLD], to = c->outcome[AB_NEW];
    switch (line->verdict) {
    case VERDICT_FIXED: snprintf(line->why, sizeof line->why, "OLD %s, NEW passes", words[from]); break;
    case VERDICT_NEW:
        snprintf(line->why, sizeof line->why, "OLD %s, NEW passes",
                 from == OUTCOME_REFUSED ? words[from] : words[OUTCOME_NONE]);
        break;
    case VERDICT_FAIL:
        snprintf(line->why, sizeof line->why, "%s: %s",
                 from == OUTCOME_FAIL ? "OLD and NEW fail their check" : "NEW fails its check", c->reason[AB_NEW]);
        break;
    default:
        snprintf(line->why, sizeof line->why, "NEW %s%s%s", words[to], c->reason[AB_NEW][0] ? ": " : "",
                 c->reason[AB_NEW]);
        break;
    }
}

/* "within +0.9 (95 %)": the bound that decided, on the change in the column before it; without a decision the 99 %
 * range. */
static void describe_bound(const struct decide_config *decided, char *text, size_t size)
{
    const struct decide_series *d = &decided->change;
    switch (decided->state) {
    case DECIDE_REGRESS: snprintf(text, size, ">= %+.1f (99%%)", per_cent(d->regress_low)); break;
    case DECIDE_IMPROVE: snprintf(text, size, "<= %+.1f (99%%)", per_cent(d->regress_high)); break;
    case DECIDE_PASS: snprintf(text, size, "<= %+.1f (95%%)", per_cent(d->pass_high)); break;
    default: snprintf(text, size, "%+.1f .. %+.1f (99%%)", per_cent(d->regress_low), per_cent(d->regress_high)); break;
    }
}

static void describe_timed(const struct ab *a, const struct ab_config *c, struct verdict_line *line)
{
    static const enum verdict verdicts[] = {
        [DECIDE_OPEN] = VERDICT_INCONCLUSIVE, [DECIDE_PASS] = VERDICT_PASS,
        [DECIDE_IMPROVE] = VERDICT_IMPROVE,   [DECIDE_INCONCLUSIVE] = VERDICT_INCONCLUSIVE,
        [DECIDE_REGRESS] = VERDICT_REGRESS,
    };
    const struct decide_config *decided = &a->series[c->series];
    const struct decide_series *d = &decided->change;
    char clocks[60] = "", against[60] = "";
    line->verdict = verdicts[decided->state];
    line->pairs = d->count;
    if (d->count == 0) {
        snprintf(line->why, sizeof line->why, "%s", a->is_too_hot ? "thermal slowdown" : "not measured");
        return;
    }
    line->from_ms = exp(c->log_ms[AB_OLD] / d->count);
    line->to_ms = exp(c->log_ms[AB_NEW] / d->count);
    line->change_pct = per_cent(d->mean);
    line->raw_change_pct = 100 * (line->to_ms / line->from_ms - 1);
    if (d->count > 1) {
        describe_bound(decided, line->bound, sizeof line->bound);
        line->low_pct = per_cent(d->regress_low);
        line->high_pct = per_cent(d->regress_high);
    }
    if (c->clocks == d->count) {
        const double change = 100 * expm1((c->log_mhz[AB_NEW] - c->log_mhz[AB_OLD]) / c->clocks);
        snprintf(clocks, sizeof clocks, fabs(change) < 0.5 ? "clocks equal (%+.1f %%)" : "clocks %+.1f %%", change);
    }
    if (line->verdict == VERDICT_INCONCLUSIVE) {
        if (decided->is_contradicted)
            snprintf(against, sizeof against, "relative to the GEMM it is %+.1f %%, ",
                     per_cent(decided->cross_check.mean));
        snprintf(line->why, sizeof line->why, "%s%s%s",
                 decide_control_changed(&a->run) ? "the control changed, "
                 : a->is_too_hot                 ? "thermal slowdown, "
                                                 : against,
                 clocks, clocks[0] ? ", " : "");
        const size_t used = strlen(line->why);
        const bool is_chance = decided->chance > a->run.chance_regress && decided->chance < 1;
        snprintf(line->why + used, sizeof line->why - used, "spread %.1f %%%s", 100 * decide_spread(d),
                 is_chance ? ", not rare enough among the orders that could have been drawn" : "");
    } else if (line->verdict != VERDICT_PASS) {
        snprintf(line->why, sizeof line->why, "%s", clocks);
    }
}

/* All lines; the caller frees them. */
static struct verdict_line *make_lines(const struct ab *a, int *count)
{
    struct verdict_line *lines = xcalloc((unsigned long)(a->config_count + a->setup.lost.count + 1), sizeof *lines);
    const struct verdict_line empty = {.from_ms = NAN,
                                       .to_ms = NAN,
                                       .change_pct = NAN,
                                       .low_pct = NAN,
                                       .high_pct = NAN,
                                       .relative_change_pct = NAN,
                                       .raw_change_pct = NAN};
    *count = 0;
    for (int i = 0; i < a->config_count; i++) {
        const struct ab_config *c = &a->configs[i];
        const int verdict = ab_untimed_verdict(c);
        if (verdict < 0)
            continue;
        struct verdict_line *line = &lines[(*count)++];
        *line = empty;
        line->verdict = (enum verdict)verdict;
        snprintf(line->configuration, sizeof line->configuration, "%s", c->label);
        snprintf(line->impl, sizeof line->impl, "%s", c->impl);
        line->repro = c->repro;
        if (c->series >= 0)
            describe_timed(a, c, line);
        else
            describe_untimed(c, line);
    }
    for (int i = 0; i < a->setup.lost.count; i++) {
        struct verdict_line *line = &lines[(*count)++];
        *line = empty;
        line->verdict = VERDICT_LOST;
        snprintf(line->configuration, sizeof line->configuration, "all");
        snprintf(line->impl, sizeof line->impl, "%s", a->setup.lost.names[i]);
        snprintf(line->why, sizeof line->why, "not in NEW");
    }
    verdicts_sort(lines, *count);
    return lines;
}

static void describe_control(const struct ab *a, char *text, size_t size)
{
    const struct decide_series *c = &a->run.control;
    const char *what = a->setup.control ? a->setup.control : "gemm";
    if (c->count < 2)
        snprintf(text, size, "none: nothing that is the same in OLD and NEW ran in both");
    else
        snprintf(text, size, "%s, in both, %s: %+.2f %% (%+.2f .. %+.2f), %d pairs, spread %.1f %%", what,
                 decide_control_changed(&a->run)  ? "CHANGED, the other results are not valid"
                 : decide_control_stable(&a->run) ? "device and harness are stable"
                                                  : "too noisy to say whether it changed",
                 per_cent(c->mean), per_cent(c->regress_low), per_cent(c->regress_high), c->count,
                 100 * decide_spread(c));
}

static void describe_summary(const struct ab *a, const struct verdict_report *r, int code, char *text, size_t size)
{
    char counts[200], geomean[100] = "", repeats[80] = "", noise[80] = "";
    const int repeated = a->is_too_hot ? a->repeats - 1 : a->repeats;
    struct decide_config all = {.state = DECIDE_OPEN};
    struct decide_run run;
    decide_begin(&run, &a->rules, &all, 1, false);
    for (int i = 0; i < a->pair_count && i < a->rules.pairs_max; i++) {
        all.state = DECIDE_OPEN; /* every pair is used here, also after a decision */
        decide_pair(&run, &(const double){0}, &a->pair_means[i], NULL, NAN);
    }
    if (all.change.count > 1)
        snprintf(geomean, sizeof geomean, "; geomean %+.1f %% (%+.1f .. %+.1f)", per_cent(all.change.mean),
                 per_cent(all.change.pass_low), per_cent(all.change.pass_high));
    if (repeated)
        snprintf(repeats, sizeof repeats, "; %d time%s pairs were repeated (thermal slowdown)", repeated,
                 repeated == 1 ? "" : "s");
    if (r->control && a->run.control.count > 1 && !decide_control_stable(&a->run) && !decide_control_changed(&a->run))
        snprintf(noise, sizeof noise, "; NOISY: the control varies by %.1f %% between pairs",
                 100 * decide_spread(&a->run.control));
    char after[40] = "";
    if (code == EXIT_INTERRUPTED)
        snprintf(after, sizeof after, " after %d pair%s", a->run.pairs, a->run.pairs == 1 ? "" : "s");
    if (r->count == 0) {
        snprintf(text, size, "%s%s: nothing was compared", verdict_state(code), after);
        return;
    }
    snprintf(text, size, "%s%s: %s%s%s%s", verdict_state(code), after,
             verdicts_count(r->lines, r->count, counts, sizeof counts), geomean, repeats, noise);
}

void ab_print_heading(const struct ab *a)
{
    if (a->setup.options->quiet)
        return;
    const struct ab_setup *s = &a->setup;
    char *impls = name_list_join(&s->subjects);
    printf("%s | OLD %s%s%s%s | NEW %s%s%s%s\n", s->device, s->builds[AB_OLD].path,
           s->builds[AB_OLD].commit[0] ? " (" : "", s->builds[AB_OLD].commit, s->builds[AB_OLD].commit[0] ? ")" : "",
           s->builds[AB_NEW].path, s->builds[AB_NEW].commit[0] ? " (" : "", s->builds[AB_NEW].commit,
           s->builds[AB_NEW].commit[0] ? ")" : "");
    printf(
        "%s, %d configuration%s, OLD and NEW checked once each; fresh processes in random order (--order-seed %lld), "
        "%d..%d pairs; limit %.3g %%\n",
        impls, a->config_count, a->config_count == 1 ? "" : "s", (long long)a->order_seed, a->rules.pairs_min,
        a->rules.pairs_max, 100 * expm1(a->rules.delta));
    if (a->timed_count && !decide_pairs_needed(&a->rules, a->timed_count)) {
        struct decide_rules more = a->rules;
        do
            more.pairs_max++;
        while (more.pairs_max < DECIDE_PAIRS_MAX && !decide_pairs_needed(&more, a->timed_count));
        printf("%d pairs are too few to call one of %d slower or faster: the order of so few processes proves nothing; "
               "it takes %d\n",
               a->rules.pairs_max, a->timed_count, decide_pairs_needed(&more, a->timed_count));
    }
    free(impls);
    fflush(stdout);
}

void ab_print_pair(const struct ab *a)
{
    int open = 0;
    double least = INFINITY, most = -INFINITY;
    for (int i = 0; i < a->timed_count; i++) {
        const struct decide_series *const s = &a->series[i].change;
        if (a->series[i].state != DECIDE_OPEN || s->count == 0)
            continue;
        open++;
        least = fmin(least, s->mean);
        most = fmax(most, s->mean);
    }
    if (a->setup.options->quiet)
        return;
    printf("pair %2d: %4.0f s, %d of %d decided", a->run.pairs, a->pair_s, a->timed_count - open, a->timed_count);
    if (open == 1)
        printf("; the open one %+.1f %%", per_cent(most));
    else if (open)
        printf("; the open ones %+.1f .. %+.1f %%", per_cent(least), per_cent(most));
    putchar('\n');
    fflush(stdout);
}

/* The name of the column that decides: "vs cudnn", "vs GEMM", or the plain time where nothing ran beside it; "vs
 * control" where not all configurations are compared by the same. */
static const char *name_decider(const struct ab *a, char *text, size_t size)
{
    enum decide_basis basis = BASIS_NONE;
    bool is_mixed = false;
    for (int i = 0; i < a->config_count; i++) {
        const struct ab_config *c = &a->configs[i];
        if (c->series < 0 || a->series[c->series].change.count == 0)
            continue;
        is_mixed |= basis != BASIS_NONE && basis != c->basis;
        basis = c->basis;
    }
    if (!is_mixed && basis == BASIS_GEMM)
        snprintf(text, size, "vs GEMM");
    else if (!is_mixed && basis == BASIS_TIME)
        snprintf(text, size, "time");
    else if (!is_mixed && basis == BASIS_CONTROL && a->setup.control)
        snprintf(text, size, "vs %s", a->setup.control);
    else
        snprintf(text, size, "vs control");
    return text;
}

int ab_report(const struct ab *a, int code)
{
    char control[240], decider[64];
    struct verdict_report r = {.view = VERDICTS_AB};
    r.lines = make_lines(a, &r.count);
    r.decider = name_decider(a, decider, sizeof decider);
    code = (int)exit_worst((enum exit_code)code, (enum exit_code)verdicts_exit(r.lines, r.count));
    if (a->timed_count && a->run.pairs) {
        describe_control(a, control, sizeof control);
        r.control = control;
        code = (int)exit_worst((enum exit_code)code, (enum exit_code)decide_exit(&a->run));
    }
    describe_summary(a, &r, code, r.summary, sizeof r.summary);
    code = verdicts_output(&r, code, a->setup.options, a->setup.is_temporary ? NULL : a->setup.folder);
    free(r.lines);
    return code;
}
