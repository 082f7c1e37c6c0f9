/* Makes the verdict lines of a gate. */
#include "cmd/gate/gate_lines.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/impl_name.h"
#include "cmd/base/log.h"
#include "cmd/options/options_line.h"
#include "cmd/record/record.h"
#include "cmd/record/record_figures.h"

/* ---- words ---- */

static struct verdict_line *new_line(struct gate_lines *g, const struct record_row *row)
{
    struct verdict_line *line = &g->items[g->count++];
    *line = (struct verdict_line){.from_ms = NAN,
                                  .to_ms = NAN,
                                  .change_pct = NAN,
                                  .low_pct = NAN,
                                  .high_pct = NAN,
                                  .relative_change_pct = NAN,
                                  .raw_change_pct = NAN,
                                  .verdict = VERDICT_PASS,
                                  .repro = row->repro,
                                  .row = row};
    problem_key_label(&row->key, line->configuration, sizeof line->configuration);
    snprintf(line->impl, sizeof line->impl, "%s", row->impl);
    return line;
}

static double per_cent(double logarithm) { return 100 * expm1(logarithm); }

/* The geometric mean of the times of one side. */
static double mean_ms(const struct decide_stored *runs, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += log(runs[i].time_ms);
    return exp(sum / count);
}

/* The name of the ceiling that a configuration is compared with. */
static const char *ceiling_of(const struct record_row *row)
{
    return !(row->pct_of_gemm > 0) && row->pct_of_read > 0 ? "read ceiling" : "GEMM";
}

/* A limit in per cent, rounded up to half a per cent. */
static double round_up(double logarithm) { return ceil(2 * per_cent(logarithm)) / 2; }

/* "5 baselines, 1 run": how many processes of each side. */
static void describe_runs(const struct decide_case *c, char *text, size_t size)
{
    snprintf(text, size, "%d process%s of the baseline, %d now", c->was_count, c->was_count == 1 ? "" : "es",
             c->now_count);
}

static void describe_noise(const struct decide_family *family, const struct gate_case *c, char *why, size_t size)
{
    const struct decide_gate *const d = &c->decision;
    char runs[80];
    describe_runs(&c->times, runs, sizeof runs);
    if (d->reason == REASON_FAMILY)
        snprintf(why, size, "too noisy: the lower 99 %% bound of the change, for %d configuration%s, is below 0 (%s)",
                 family->count, family->count == 1 ? "" : "s", runs);
    else
        snprintf(why, size,
                 "too noisy for this limit: %s %.1f %% from process to process (%s); from %.1f %% on it "
                 "could be decided",
                 c->times.was_count + c->times.now_count > 2 ? "the times vary by" : "the times may vary by",
                 per_cent(d->spread), runs, round_up(d->possible));
}

static void describe_times(const struct decide_family *family, const struct gate_case *c, struct verdict_line *line)
{
    const struct decide_gate *const d = &c->decision;
    const double gemm_pct = per_cent(d->gemm_change);
    const char *const ceiling = ceiling_of(c->was);
    char *const why = line->why, cause[100];
    const size_t size = sizeof line->why;
    line->change_pct = per_cent(d->time_change);
    line->relative_change_pct = per_cent(d->relative_change);
    line->low_pct = per_cent(d->low);
    line->high_pct = per_cent(d->high);
    switch (d->reason) {
    case REASON_RAW_ONLY:
        snprintf(why, size, "the device was slower (%s time %+.1f %%), not the kernel", ceiling, gemm_pct);
        break;
    case REASON_GEMM_ONLY:
        snprintf(why, size, "the %s was faster (time %+.1f %%), the kernel was not slower", ceiling, gemm_pct);
        break;
    case REASON_GEMM_CHANGED:
        snprintf(why, size, "the %s changed by %+.1f %%: too much to separate the device from the kernel", ceiling,
                 gemm_pct);
        break;
    case REASON_NOISE: snprintf(why, size, "the intervals of the medians overlap"); break;
    case REASON_FAMILY:
    case REASON_SPREAD: describe_noise(family, c, why, size); break;
    case REASON_NO_INTERVAL:
        snprintf(why, size, "too few samples for an interval: it takes at least 6, in both records");
        break;
    case REASON_NO_CONTROL:
        snprintf(why, size,
                 "no control: on the CPU a time alone says nothing, because other programs slow it down; naive must "
                 "run beside it in both records (--impl NAME,naive)");
        break;
    case REASON_ONE_BASELINE:
        snprintf(why, size,
                 "one record of the baseline: on the CPU nothing tells how far two processes of one program differ; "
                 "give more records (--baseline), five are better");
        break;
    case REASON_ONE_NOW:
        snprintf(why, size,
                 "%s in the one process of the current build: on the CPU a second one must confirm it; give more "
                 "records (--current)",
                 d->relative_change > 0 ? "slower" : "faster");
        break;
    case REASON_BUSY:
        if (d->waited_pct > decide_defaults.gate_wait_pct)
            snprintf(cause, sizeof cause, "its threads waited for a CPU for %.0f %% of their time", d->waited_pct);
        else
            snprintf(cause, sizeof cause, "its load was above %g for each CPU", decide_defaults.gate_load);
        snprintf(why, size, "%s while others used the machine (%s)", d->relative_change > 0 ? "slower" : "faster",
                 cause);
        break;
    case REASON_THROTTLED: snprintf(why, size, "measured under thermal slowdown"); break;
    case REASON_NO_GEMM:
        snprintf(why, size, d->state == DECIDE_PASS ? "" : "by its time alone: no GEMM ceiling here");
        break;
    case REASON_NONE:
        if (d->state != DECIDE_PASS && !family->is_cpu)
            snprintf(why, size, "%s time %+.1f %%", ceiling, gemm_pct);
        break;
    }
}

/* Fills the line of a row that did not run or failed its check. False when the row passed, and its time is to be
 * compared. */
static bool fill_failure(const struct record_row *now, const struct record_row *was, struct verdict_line *line)
{
    if (now->status == STATUS_OK && now->check != CHECKED_FAIL)
        return false;
    const bool is_refusal =
        now->status == STATUS_UNSUPPORTED || now->status == STATUS_OOM || now->status == STATUS_SKIPPED;
    line->verdict = now->status == STATUS_OK ? VERDICT_FAIL : is_refusal ? VERDICT_LOST : VERDICT_ERROR;
    if (line->verdict == VERDICT_FAIL) {
        snprintf(line->why, sizeof line->why, "its check fails: %s is %.3g times its bound", now->err_tensor,
                 now->err_used);
        for (int i = 0; i < now->tensor_count; i++)
            if (now->tensors[i].failure[0]) {
                snprintf(line->why, sizeof line->why, "%s", now->tensors[i].failure);
                break;
            }
    } else {
        snprintf(line->why, sizeof line->why, "%s%s%s",
                 now->status < 0 ? "has no status" : record_status_names[now->status], now->reason[0] ? ": " : "",
                 now->reason);
    }
    line->from_ms = was ? was->time_ms : NAN;
    return true;
}

/* Fills the line of a row that ran, or whose baseline ran, without a check that it passed. False when both are checked,
 * or the baseline is known to have failed. */
static bool fill_unchecked(const struct record_row *now, const struct record_row *was, struct verdict_line *line)
{
    const bool now_is = record_row_is_checked(now);
    if (now_is && (!was || was->status != STATUS_OK || was->check == CHECKED_FAIL || record_row_is_checked(was)))
        return false;
    line->verdict = VERDICT_UNCHECKED;
    line->from_ms = was ? was->time_ms : NAN;
    line->to_ms = now->time_ms;
    snprintf(line->why, sizeof line->why, "its results were not checked in the %s",
             now_is ? "baseline" : "current record");
    return true;
}

/* Did the command line select problems or implementations? Only then may configurations of the baseline be missing;
 * options on timing do not allow it. */
static bool selects_subset(const struct options *o)
{
    for (int i = 0; i < o->sweep_words.count; i++)
        if (options_word_asks_problem(o->sweep_words.names[i]))
            return true;
    return o->impls.count || o->is_subset;
}

/* The verdict where the baseline or the current row has no time. */
static void describe_untimed(const struct record_row *was, const struct record_row *now, struct verdict_line *line)
{
    const bool ran = was->status == STATUS_OK;
    line->verdict = !ran ? VERDICT_NEW : was->check == CHECKED_FAIL ? VERDICT_FIXED : VERDICT_INCONCLUSIVE;
    if (!ran)
        snprintf(line->why, sizeof line->why, "the baseline: %s",
                 was->status < 0 ? "has no status" : record_status_names[was->status]);
    else if (line->verdict == VERDICT_FIXED)
        snprintf(line->why, sizeof line->why, "the baseline's check failed");
    else
        snprintf(line->why, sizeof line->why, "it has no time in the %s",
                 record_row_is_timed(now) ? "baseline" : "current record");
}

/* ---- configurations of the baseline ---- */

/* Adds the line of one configuration of the baseline. */
static void add_case(struct gate_lines *g, const struct options *o, const struct decide_family *family,
                     const struct gate_case *c)
{
    static const enum verdict verdicts[] = {[DECIDE_OPEN] = VERDICT_INCONCLUSIVE,
                                            [DECIDE_PASS] = VERDICT_PASS,
                                            [DECIDE_IMPROVE] = VERDICT_IMPROVE,
                                            [DECIDE_INCONCLUSIVE] = VERDICT_INCONCLUSIVE,
                                            [DECIDE_REGRESS] = VERDICT_REGRESS};
    const struct record_row *const was = c->was, *const now = c->now;
    const bool ran = was->status == STATUS_OK;
    if (!now) {
        /* The options may leave it out. */
        if (!ran || selects_subset(o)) {
            g->not_requested += ran;
            return;
        }
        struct verdict_line *line = new_line(g, was);
        line->verdict = VERDICT_ABSENT;
        line->from_ms = was->time_ms;
        snprintf(line->why, sizeof line->why, "in the baseline, not in the current record");
        return;
    }
    if (!ran && now->status != STATUS_OK && now->status != STATUS_ERROR && now->status != STATUS_TIMEOUT)
        return; /* refused in both */
    struct verdict_line *line = new_line(g, now);
    if (fill_failure(now, ran ? was : NULL, line) || fill_unchecked(now, was, line))
        return;
    line->to_ms = now->time_ms;
    line->from_ms = record_row_is_timed(was) ? was->time_ms : NAN;
    if (!c->is_compared) {
        describe_untimed(was, now, line);
        return;
    }
    line->from_ms = mean_ms(c->times.was, c->times.was_count);
    line->to_ms = mean_ms(c->times.now, c->times.now_count);
    line->verdict = c->decision.reason == REASON_NO_INTERVAL ? VERDICT_UNDECIDED : verdicts[c->decision.state];
    describe_times(family, c, line);
    if (strcmp(now->impl, was->impl) != 0) {
        const size_t used = strlen(line->why);
        snprintf(line->why + used, sizeof line->why - used, "%swas %s", used ? "; " : "", was->impl);
    }
}

/* ---- rows of the current records ---- */

static int *line_at(struct gate_lines *g, const struct gate_side *current, int file, const struct record_row *row)
{
    return &g->line_of[file][row - current->files[file].rows];
}

/* Gives the rows of a configuration, of each process, to its line. */
static void claim_rows(struct gate_lines *g, const struct gate_side *current, const struct gate_case *c, int line)
{
    for (int f = 0; f < current->count; f++)
        if (c->now_rows[f])
            *line_at(g, current, f, c->now_rows[f]) = line;
}

/* Adds lines for current rows that have none yet: failed checks, errors, and, with a baseline, new configurations. A
 * refused row that is not in the baseline gets no line, a configuration one. */
static void add_others(struct gate_lines *g, const struct gate_side *current, const char *control, bool has_baseline)
{
    const struct gate_entry *last = NULL;
    for (int i = 0; i < current->entry_count; i++) {
        const struct gate_entry *const e = &current->entries[i];
        const struct record_row *const row = e->row;
        const bool is_ok = row->status == STATUS_OK, has_line = *line_at(g, current, e->file, row) >= 0;
        const bool is_wrong = is_ok ? row->check == CHECKED_FAIL : record_row_is_broken(row);
        const bool is_same = last && problem_key_compare(&last->row->key, &row->key, false) == 0 &&
                             strcmp(last->row->impl, row->impl) == 0 && strcmp(last->row->asked, row->asked) == 0;
        if (has_line || !is_same)
            last = has_line ? e : NULL;
        if (!gate_is_judged(row, control) || has_line || (is_same && last) || !(is_wrong || (is_ok && has_baseline)))
            continue;
        last = e;
        struct verdict_line *line = new_line(g, row);
        if (fill_failure(row, NULL, line) || fill_unchecked(row, NULL, line))
            continue;
        line->to_ms = row->time_ms;
        line->verdict = VERDICT_NEW;
        snprintf(line->why, sizeof line->why, "not in the baseline");
    }
}

/* Applies the floors to rows that passed their check. A row that is not in the baseline gets its own line. */
static void add_floors(struct gate_lines *g, const struct gate_side *current, struct floors *floors)
{
    for (int f = 0; f < current->count; f++)
        for (int i = 0; i < current->files[f].count; i++) {
            const struct record_row *row = &current->files[f].rows[i];
            char missed[200];
            const enum floors_result answer = floors_check(floors, row, missed, sizeof missed);
            int *const at = line_at(g, current, f, row);
            if (answer == FLOORS_NO_MATCH)
                continue;
            if (*at < 0) {
                struct verdict_line *added = new_line(g, row);
                *at = g->count - 1;
                added->to_ms = row->time_ms;
                if (fill_failure(row, NULL, added) || fill_unchecked(row, NULL, added))
                    continue;
            }
            struct verdict_line *const line = &g->items[*at];
            if (line->verdict <= VERDICT_FLOOR || line->verdict == VERDICT_UNCHECKED)
                continue;
            if (record_row_is_timed(row) && !record_row_has_interval(row)) {
                line->verdict = VERDICT_UNDECIDED;
                snprintf(line->why, sizeof line->why, "too few samples for an interval: it takes at least 6");
            } else if (answer == FLOORS_MISSED) {
                line->verdict = VERDICT_FLOOR;
                snprintf(line->why, sizeof line->why, "%s", missed);
            }
        }
}

/* On the CPU a time says nothing without the control's in the same rounds: it is added to the command of each line. */
static void add_control(struct gate_lines *g, const char *control)
{
    static const char option[] = " --impl ";
    if (!control)
        return;
    g->repros = xcalloc((unsigned long)g->count + 1, sizeof *g->repros);
    for (int i = 0; i < g->count; i++) {
        struct verdict_line *const line = &g->items[i];
        const char *const at = line->repro ? strstr(line->repro, option) : NULL;
        if (!at)
            continue;
        const int length = (int)(at - line->repro + (int)sizeof option - 1 + (int)strcspn(at + sizeof option - 1, " "));
        line->repro = g->repros[g->repro_count++] =
            xasprintf("%.*s,%s%s", length, line->repro, control, line->repro + length);
    }
}

/* ---- the whole ---- */

int gate_lines_make(struct gate_lines *g, const struct options *o, const struct gate_cases *cases,
                    const struct gate_side *baseline, const struct gate_side *current, struct floors *floors)
{
    struct attn_message why = {""};
    memset(g, 0, sizeof *g);
    g->items = xcalloc((unsigned long)(cases->count + current->entry_count + 1), sizeof *g->items);
    for (int f = 0; f < current->count; f++) {
        g->line_of[f] = xmalloc((unsigned long)(current->files[f].count + 1) * sizeof *g->line_of[f]);
        for (int i = 0; i < current->files[f].count; i++)
            g->line_of[f][i] = -1;
    }
    for (int i = 0; i < cases->count; i++)
        if (gate_is_judged(cases->items[i].was, cases->control)) {
            const int before = g->count;
            add_case(g, o, &cases->family, &cases->items[i]);
            if (g->count > before && cases->items[i].now)
                claim_rows(g, current, &cases->items[i], before);
        }
    if (floors)
        add_floors(g, current, floors);
    const bool is_matched = !floors || floors_are_matched(floors, &why);
    const bool is_compared = g->count > 0;
    add_others(g, current, cases->control, baseline->count > 0);
    add_control(g, cases->control);
    if (!is_matched) {
        log_error("--floors: %s", why.text);
        return EXIT_NOT_COMPARABLE;
    }
    if (is_compared)
        return EXIT_OK;
    const char *made_by =
        baseline->count ? json_string_value(json_object_get(baseline->files[0].header, "command_line")) : NULL;
    log_error("gate: no configuration of the baseline is in the current record; the baseline was made by: %s",
              made_by ? made_by : "(not recorded)");
    return EXIT_NOT_COMPARABLE;
}

void gate_lines_free(struct gate_lines *g, const struct gate_side *current)
{
    for (int f = 0; f < current->count; f++)
        free(g->line_of[f]);
    for (int i = 0; i < g->repro_count; i++)
        free(g->repros[i]);
    free(g->repros);
    free(g->items);
    memset(g, 0, sizeof *g);
}

/* ---- control, load, summary ---- */

/* The load of the machine when a record began, as its runs say: "0.4", or "0.4 to 4.1". "" = not in the record. */
static void describe_load(const struct gate_side *s, char *text, size_t size)
{
    double least = INFINITY, most = -INFINITY;
    text[0] = 0;
    for (int f = 0; f < s->count; f++) {
        const json_t *load = header_value(s->files[f].header, "host.load");
        if (!json_is_number(load))
            continue;
        least = fmin(least, json_number_value(load));
        most = fmax(most, json_number_value(load));
    }
    if (most > least + 0.05)
        snprintf(text, size, "%.1f to %.1f", least, most);
    else if (most >= 0)
        snprintf(text, size, "%.1f", most);
}

void gate_describe_control(const struct gate_cases *g, const struct gate_side *baseline,
                           const struct gate_side *current, char *text, size_t size)
{
    double time_sum = 0, relative_sum = 0;
    int all = 0, relative = 0;
    char name[IMPL_NAME_SIZE] = "cudnn", was[40], is[40];
    text[0] = 0;
    for (int i = 0; i < g->count; i++) {
        const struct record_row *const a = g->items[i].was, *const b = g->items[i].now;
        const bool is_it = g->control ? strcmp(a->impl, g->control) == 0 : role_of_name(a->impl) == ATTN_ROLE_PEER;
        if (!is_it || !b || !record_row_is_timed(a) || !record_row_is_timed(b))
            continue;
        snprintf(name, sizeof name, "%s", a->impl);
        time_sum += log(b->time_ms / a->time_ms);
        all++;
        if (a->pct_of_gemm > 0 && b->pct_of_gemm > 0) {
            relative_sum += log(a->pct_of_gemm / b->pct_of_gemm);
            relative++;
        }
    }
    describe_load(baseline, was, sizeof was);
    describe_load(current, is, sizeof is);
    if (all) {
        const double time = per_cent(time_sum / all), against_gemm = per_cent(relative_sum / fmax(1, relative));
        const int used =
            snprintf(text, size, "%s, not judged%s: time %+.1f %% (geomean%s of %d", name,
                     g->control ? ", the others are compared with it" : "", time, relative == all ? "s" : "", all);
        if (relative == all)
            snprintf(text, size, "%s, not judged: time %+.1f %%, against the GEMM %+.1f %% (geomeans of %d)", name,
                     time, against_gemm, all);
        else if (relative)
            snprintf(text + used, size - (size_t)used, "), against the GEMM %+.1f %% (of %d)", against_gemm, relative);
        else
            snprintf(text + used, size - (size_t)used, ")");
    }
    if (was[0] && is[0]) {
        const size_t used = strlen(text);
        snprintf(text + used, size - used, "%sload of the machine %s in the baseline, %s now", used ? "; " : "", was,
                 is);
    }
}

void gate_describe_rest(const struct gate_lines *lines, const struct gate_cases *cases, const struct options *o,
                        char *text, size_t size)
{
    double sum = 0, possible = 0;
    int count = 0, used = 0;
    bool is_open = false, lacks_baselines = false, is_busy = false;
    text[0] = 0;
    for (int i = 0; i < cases->count; i++) {
        const struct gate_case *const c = &cases->items[i];
        if (!c->is_compared)
            continue;
        if (!isnan(c->decision.gemm_change)) {
            sum += c->decision.gemm_change;
            count++;
        }
        if (c->decision.reason == REASON_SPREAD)
            possible = fmax(possible, c->decision.possible);
        is_open |= c->decision.state == DECIDE_INCONCLUSIVE;
        lacks_baselines |= c->decision.reason == REASON_ONE_BASELINE;
        is_busy |= c->decision.reason == REASON_BUSY;
    }
    if (count)
        used += snprintf(text + used, size - (size_t)used, "; GEMM time %+.1f %%", per_cent(sum / count));
    if (is_busy)
        used += snprintf(text + used, size - (size_t)used,
                         "; others used the machine: measure the records again when it is quiet");
    else if (possible > 0)
        used += snprintf(text + used, size - (size_t)used,
                         "; the noise allows a limit of %.1f %% (--delta), or give further records (--baseline)",
                         round_up(possible));
    else if (is_open)
        used += snprintf(text + used, size - (size_t)used, "; give more records (%s)",
                         lacks_baselines     ? "--baseline; five are better"
                         : o->currents.count ? "--baseline, --current"
                                             : "--baseline");
    if (lines->not_requested)
        snprintf(text + used, size - (size_t)used, "; %d more of the baseline %s", lines->not_requested,
                 o->currents.count ? "are not in this record" : "were not asked for");
}
