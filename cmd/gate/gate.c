/* Reads the records, compares their configurations, applies the floors and makes the verdict lines. */
#include "cmd/gate/gate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/paths.h"
#include "cmd/gate/decide.h"
#include "cmd/gate/verdicts.h"
#include "cmd/options/options_line.h"
#include "cmd/record/record.h"
#include "cmd/record/record_figures.h"
#include "cmd/record/record_row.h"

struct gate {
    const struct options *options;
    struct decide_rules rules;
    struct record_file baseline, current;
    struct floors *floors;
    struct verdict_line *lines;
    int count;
    int not_requested; /* configurations of the baseline that the options left out */
    int measured_code; /* exit code of the measuring process that no row explains; EXIT_OK with --current */
    int family;        /* configurations whose times are compared */
    double gemm_sum, control_time_sum, control_relative_sum;
    int gemm_count, control_count, control_relative_count;
};

/* ---- reading ---- */

static int read_whole(const char *path, struct record_file *file)
{
    struct attn_message why = {""};
    if (!record_read(path, file, &why)) {
        log_error("%s", why.text);
        return EXIT_NOT_COMPARABLE;
    }
    if (file->cut) {
        log_error("%s: its last line is cut and rows may be missing: a gate needs a complete record", path);
        return EXIT_NOT_COMPARABLE;
    }
    return EXIT_OK;
}

/* A peer is the control, null measures the harness: neither is judged. */
static bool is_judged(const struct record_row *row)
{
    const enum attn_role role = role_of_name(row->impl);
    return role != ATTN_ROLE_NOTHING && role != ATTN_ROLE_PEER;
}

static bool has_times(const struct record_file *file)
{
    for (int i = 0; i < file->count; i++)
        if (is_judged(&file->rows[i]) && record_row_is_timed(&file->rows[i]))
            return true;
    log_error("%s: none of its rows has a time to compare with; a baseline is the record of a sweep that passed its "
              "checks",
              file->path);
    return false;
}

static int read_all(struct gate *g, const char *folder)
{
    const struct options *o = g->options;
    struct attn_message why = {""};
    int code = o->baseline ? read_whole(o->baseline, &g->baseline) : EXIT_OK;
    if (code == EXIT_OK && o->floors && !(g->floors = floors_read(o->floors, &why))) {
        log_error("--floors: %s", why.text);
        return EXIT_NOT_COMPARABLE;
    }
    if (code == EXIT_OK && o->baseline &&
        (!fingerprint_is_uniform(&g->baseline, &why) || !record_file_agrees(&g->baseline, &why))) {
        log_error("%s", why.text);
        return EXIT_NOT_COMPARABLE;
    }
    if (code == EXIT_OK && o->baseline && !has_times(&g->baseline))
        return EXIT_NOT_COMPARABLE;
    if (code == EXIT_OK)
        code = o->current ? read_whole(o->current, &g->current)
                          : gate_measure(o, o->baseline ? &g->baseline : NULL, folder, &g->current, &g->measured_code);
    if (code != EXIT_OK)
        return code;
    if (!fingerprint_is_uniform(&g->current, &why) || !record_file_agrees(&g->current, &why) ||
        (o->baseline && !fingerprint_matches(&g->baseline, &g->current, &why))) {
        log_error("%s", why.text);
        return EXIT_NOT_COMPARABLE;
    }
    return EXIT_OK;
}

/* ---- configurations ---- */

/* The row of the same configuration in the current record, or NULL. Where both requested `fused`, it may have resolved
 * to another kernel now: its successor. */
static const struct record_row *find_now(const struct gate *g, const struct record_row *was)
{
    const struct record_row *successor = NULL;
    for (int i = 0; i < g->current.count; i++) {
        const struct record_row *row = &g->current.rows[i];
        if (problem_key_compare(&row->key, &was->key, false) != 0)
            continue;
        if (strcmp(row->impl, was->impl) == 0)
            return row;
        if (strcmp(was->asked, "fused") == 0 && strcmp(row->asked, "fused") == 0)
            successor = row;
    }
    return successor;
}

static struct decide_stored stored(const struct record_row *r)
{
    const bool has_interval = record_row_has_interval(r);
    return (struct decide_stored){r->time_ms,
                                  has_interval ? r->time_ms_ci_lo : NAN,
                                  has_interval ? r->time_ms_ci_hi : NAN,
                                  r->pct_of_gemm,
                                  r->gemm_tflops,
                                  r->throttled_pct,
                                  has_interval ? r->samples : 0};
}

/* Are the times of this configuration of the baseline compared? */
static bool is_compared(const struct record_row *was, const struct record_row *now)
{
    return now && is_judged(was) && record_row_is_checked(was) && record_row_is_checked(now) &&
           record_row_is_timed(was) && record_row_is_timed(now);
}

static struct verdict_line *new_line(struct gate *g, const struct record_row *row)
{
    struct verdict_line *line = &g->lines[g->count++];
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

static void describe_times(const struct gate *g, const struct decide_gate *d, struct verdict_line *line)
{
    const double gemm_pct = per_cent(d->gemm_change);
    char *const why = line->why;
    const size_t size = sizeof line->why;
    line->change_pct = per_cent(d->time_change);
    line->relative_change_pct = per_cent(d->relative_change);
    switch (d->reason) {
    case REASON_RAW_ONLY:
        snprintf(why, size, "the device was slower (GEMM time %+.1f %%), not the kernel", gemm_pct);
        break;
    case REASON_GEMM_ONLY:
        snprintf(why, size, "the GEMM was faster (time %+.1f %%), the kernel was not slower", gemm_pct);
        break;
    case REASON_GEMM_CHANGED:
        snprintf(why, size, "the GEMM changed by %+.1f %%: too much to separate the device from the kernel", gemm_pct);
        break;
    case REASON_NOISE: snprintf(why, size, "the intervals of the medians overlap"); break;
    case REASON_FAMILY:
        snprintf(why, size, "too noisy: the lower 99 %% bound of the change, for %d configuration%s, is below 0",
                 g->family, g->family == 1 ? "" : "s");
        break;
    case REASON_NO_INTERVAL:
        snprintf(why, size, "too few samples for an interval: it takes at least 6, in both records");
        break;
    case REASON_THROTTLED: snprintf(why, size, "measured under thermal slowdown"); break;
    case REASON_NO_GEMM:
        snprintf(why, size, d->state == DECIDE_PASS ? "" : "by its time alone: no GEMM ceiling here");
        break;
    case REASON_NONE:
        if (d->state != DECIDE_PASS)
            snprintf(why, size, "GEMM time %+.1f %%", gemm_pct);
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

static void add_control(struct gate *g, const struct record_row *was, const struct record_row *now)
{
    if (!record_row_is_timed(was) || !record_row_is_timed(now))
        return;
    g->control_time_sum += log(now->time_ms / was->time_ms);
    g->control_count++;
    if (was->pct_of_gemm > 0 && now->pct_of_gemm > 0) {
        g->control_relative_sum += log(was->pct_of_gemm / now->pct_of_gemm);
        g->control_relative_count++;
    }
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

/* Compares one configuration of the baseline. */
static void compare_row(struct gate *g, const struct record_row *was)
{
    static const enum verdict verdicts[] = {[DECIDE_OPEN] = VERDICT_INCONCLUSIVE,
                                            [DECIDE_PASS] = VERDICT_PASS,
                                            [DECIDE_IMPROVE] = VERDICT_IMPROVE,
                                            [DECIDE_INCONCLUSIVE] = VERDICT_INCONCLUSIVE,
                                            [DECIDE_REGRESS] = VERDICT_REGRESS};
    const struct record_row *now = find_now(g, was);
    const bool ran = was->status == STATUS_OK;
    if (!is_judged(was)) {
        if (now && role_of_name(was->impl) == ATTN_ROLE_PEER)
            add_control(g, was, now);
        return;
    }
    if (!now) {
        /* The options may leave it out. */
        if (!ran || selects_subset(g->options)) {
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
    if (!record_row_is_timed(was) || !record_row_is_timed(now)) {
        line->from_ms = record_row_is_timed(was) ? was->time_ms : NAN;
        describe_untimed(was, now, line);
        return;
    }
    const struct decide_stored before = stored(was), after = stored(now);
    const struct decide_gate d = decide_gate(&g->rules, &before, &after, g->family);
    line->from_ms = was->time_ms;
    line->verdict = d.reason == REASON_NO_INTERVAL ? VERDICT_UNDECIDED : verdicts[d.state];
    describe_times(g, &d, line);
    if (strcmp(now->impl, was->impl) != 0) {
        const size_t used = strlen(line->why);
        snprintf(line->why + used, sizeof line->why - used, "%swas %s", used ? "; " : "", was->impl);
    }
    if (!isnan(d.gemm_change)) {
        g->gemm_sum += d.gemm_change;
        g->gemm_count++;
    }
}

static struct verdict_line *line_of(const struct gate *g, const struct record_row *row)
{
    for (int i = 0; i < g->count; i++)
        if (g->lines[i].row == row)
            return &g->lines[i];
    return NULL;
}

/* Adds lines for current rows that have none yet: failed checks, errors, and, with a baseline, new configurations. A
 * refused row that is not in the baseline gets no line. */
static void compare_others(struct gate *g)
{
    for (int i = 0; i < g->current.count; i++) {
        const struct record_row *row = &g->current.rows[i];
        const bool is_ok = row->status == STATUS_OK;
        const bool is_wrong = is_ok ? row->check == CHECKED_FAIL : record_row_is_broken(row);
        if (!is_judged(row) || line_of(g, row) || !(is_wrong || (is_ok && g->options->baseline)))
            continue;
        struct verdict_line *line = new_line(g, row);
        if (fill_failure(row, NULL, line) || fill_unchecked(row, NULL, line))
            continue;
        line->to_ms = row->time_ms;
        line->verdict = VERDICT_NEW;
        snprintf(line->why, sizeof line->why, "not in the baseline");
    }
}

/* Applies the floors to rows that passed their check. A row that is not in the baseline gets its own line. */
static void compare_floors(struct gate *g)
{
    for (int i = 0; i < g->current.count; i++) {
        const struct record_row *row = &g->current.rows[i];
        char missed[200];
        const enum floors_result answer = floors_check(g->floors, row, missed, sizeof missed);
        struct verdict_line *line = line_of(g, row);
        if (!line && answer == FLOORS_NO_MATCH)
            continue;
        if (!line) {
            line = new_line(g, row);
            line->to_ms = row->time_ms;
            if (fill_failure(row, NULL, line) || fill_unchecked(row, NULL, line))
                continue;
        }
        if (answer == FLOORS_NO_MATCH || line->verdict <= VERDICT_FLOOR || line->verdict == VERDICT_UNCHECKED)
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

/* ---- the command ---- */

static void describe_summary(const struct gate *g, int code, char *text, size_t size)
{
    char counts[200], gemm[60] = "", asked[100] = "";
    if (g->gemm_count)
        snprintf(gemm, sizeof gemm, "; GEMM time %+.1f %%", per_cent(g->gemm_sum / g->gemm_count));
    if (g->not_requested)
        snprintf(asked, sizeof asked, "; %d more of the baseline %s", g->not_requested,
                 g->options->current ? "are not in this record" : "were not asked for");
    snprintf(text, size, "%s: %s%s%s", verdict_state(code),
             g->count ? verdicts_count(g->lines, g->count, counts, sizeof counts) : "nothing was compared", gemm,
             asked);
}

static int compare(struct gate *g)
{
    struct attn_message why = {""};
    g->lines = xcalloc((unsigned long)(g->baseline.count + g->current.count + 1), sizeof *g->lines);
    for (int i = 0; i < g->baseline.count; i++)
        g->family += is_compared(&g->baseline.rows[i], find_now(g, &g->baseline.rows[i]));
    for (int i = 0; i < g->baseline.count; i++)
        compare_row(g, &g->baseline.rows[i]);
    if (g->floors)
        compare_floors(g);
    const bool is_matched = !g->floors || floors_are_matched(g->floors, &why);
    const bool is_compared = g->count > 0;
    compare_others(g);
    if (!is_matched) {
        log_error("--floors: %s", why.text);
        return EXIT_NOT_COMPARABLE;
    }
    if (is_compared)
        return EXIT_OK;
    const char *made_by = json_string_value(json_object_get(g->baseline.header, "command_line"));
    log_error("gate: no configuration of the baseline is in the current record; the baseline was made by: %s",
              made_by ? made_by : "(not recorded)");
    return EXIT_NOT_COMPARABLE;
}

/* The change of the peer over all its configurations; relative to the GEMM over those where it was measured. */
static void describe_control(const struct gate *g, char *text, size_t size)
{
    const int all = g->control_count, relative = g->control_relative_count;
    const double time = per_cent(g->control_time_sum / all);
    const double against_gemm = per_cent(g->control_relative_sum / fmax(1, relative));
    if (relative == 0)
        snprintf(text, size, "cudnn, not judged: time %+.1f %% (geomean of %d)", time, all);
    else if (relative == all)
        snprintf(text, size, "cudnn, not judged: time %+.1f %%, against the GEMM %+.1f %% (geomeans of %d)", time,
                 against_gemm, all);
    else
        snprintf(text, size, "cudnn, not judged: time %+.1f %% (geomean of %d), against the GEMM %+.1f %% (of %d)",
                 time, all, against_gemm, relative);
}

int gate_run(const struct options *o)
{
    struct gate g = {.options = o, .rules = decide_defaults};
    struct verdict_report r = {.view = VERDICTS_GATE};
    char control[160];
    const char *folder = o->out_dir && strcmp(o->out_dir, "none") != 0 ? o->out_dir : NULL;
    if (!isnan(o->delta_pct))
        g.rules.gate_delta = log1p(o->delta_pct / 100);
    int code = !verdicts_remove(o, folder) || (folder && !path_make_dirs(folder)) ? EXIT_IO : read_all(&g, folder);
    if (code == EXIT_OK)
        code = compare(&g);
    if (code != EXIT_USAGE) {
        verdicts_sort(g.lines, g.count);
        code = (int)exit_worst((enum exit_code)code, (enum exit_code)verdicts_exit(g.lines, g.count));
        code = (int)exit_worst((enum exit_code)code, (enum exit_code)g.measured_code);
        if (g.control_count) {
            describe_control(&g, control, sizeof control);
            r.control = control;
        }
        r.lines = g.lines;
        r.count = g.count;
        describe_summary(&g, code, r.summary, sizeof r.summary);
        code = verdicts_output(&r, code, o, folder);
    }
    if (g.floors)
        floors_free(g.floors);
    record_file_free(&g.baseline);
    record_file_free(&g.current);
    free(g.lines);
    return code;
}
