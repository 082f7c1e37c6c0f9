/* Checks, pairs, report. */
#include "cmd/ab.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd/ab_side.h"
#include "cmd/log.h"
#include "cmd/unit.h"
#include "cmd/verdicts.h"

/* How one side's checked run of a case ended. */
enum fate { FATE_NONE, FATE_PASS, FATE_FAIL, FATE_REFUSED, FATE_ERROR };

/* One configuration: a problem and an implementation. */
struct ab_case {
    char key[CASE_KEY_SIZE], label[CASE_LABEL_SIZE], impl[40];
    int point;              /* number of the problem in the plan */
    enum fate fate[AB_SIDES];
    char reason[AB_SIDES][200];
    int series;             /* in ab.series; -1 = not timed */
    double log_ms[AB_SIDES], log_mhz[AB_SIDES]; /* sums over the pairs that count */
    int clocks;
    char repro[700];
};

struct ab {
    struct ab_setup setup;
    struct decide_rules rules;
    struct ab_case *cases;
    int case_count, point_count, timed_count;
    struct decide_case *series;
    struct decide_run run;
    int repeats;            /* pairs repeated for thermal slowdown */
    bool gave_up;           /* one too many of them */
    double *pair_means;     /* of each pair over all its configurations; for the geomean */
    int pair_count;
    double pair_s;          /* what the last pair took; 0 = none yet */
};

/* ---- the checked runs ---- */

static enum fate fate_of(const struct record_row *row)
{
    if (strcmp(row->status, "ok") == 0)
        return strcmp(row->check, "fail") == 0 ? FATE_FAIL : FATE_PASS;
    return strcmp(row->status, "error") == 0 || strcmp(row->status, "timeout") == 0 ? FATE_ERROR : FATE_REFUSED;
}

/* Why a row is not well, in words. */
static void reason_of(const struct record_row *row, char *reason, size_t size)
{
    reason[0] = 0;
    for (int i = 0; i < row->tensor_count && !reason[0]; i++)
        snprintf(reason, size, "%s", row->tensors[i].failure);
    if (!reason[0] && row->reason[0])
        snprintf(reason, size, "%s", row->reason);
    if (!reason[0] && strcmp(row->check, "fail") == 0)
        snprintf(reason, size, "%s is %.3g times its bound", row->err_tensor, row->err_used);
}

static struct ab_case *find_case(struct ab *a, const char *key, const char *impl)
{
    for (int i = 0; i < a->case_count; i++)
        if (strcmp(a->cases[i].key, key) == 0 && strcmp(a->cases[i].impl, impl) == 0)
            return &a->cases[i];
    return NULL;
}

/* The command that compares this case alone. */
static void make_repro(const struct ab_setup *s, const struct record_row *r, struct ab_case *c)
{
    char kv_len[32] = "", kv_heads[32] = "";
    if (r->kv_len != r->q_len)
        snprintf(kv_len, sizeof kv_len, " --kv-len %lld", (long long)r->kv_len);
    if (r->kv_heads != r->q_heads)
        snprintf(kv_heads, sizeof kv_heads, " --kv-heads %lld", (long long)r->kv_heads);
    snprintf(c->repro, sizeof c->repro,
             "fabench ab '%s' '%s' --impl %s --mode %s --causal=%s --d %lld --seqlen %lld%s --batch %lld --heads %lld%s "
             "--dtype %s%s",
             s->sides[AB_OLD].path, s->sides[AB_NEW].path, c->impl, r->mode, r->causal == 1 ? "yes" : "no",
             (long long)r->head_dim, (long long)r->q_len, kv_len, (long long)r->batch, (long long)r->q_heads, kv_heads,
             r->dtype, s->options->device == DEVICE_CPU ? " --device cpu" : "");
}

/* Rows of one side's checked run; problems are numbered in the order in which they appear, which is the plan's. */
static int take_checks(struct ab *a, int side, const struct record_file *records)
{
    char key[CASE_KEY_SIZE], last_key[CASE_KEY_SIZE] = "";
    int point = -1;
    for (int i = 0; i < records->count; i++) {
        const struct record_row *row = &records->rows[i];
        const char *subject = ab_subject_of(&a->setup, row);
        case_problem_key(row, key, sizeof key);
        if (strcmp(key, last_key) != 0)
            point++;
        memcpy(last_key, key, sizeof key);
        if (!subject || subject == a->setup.control)
            continue;
        struct ab_case *c = find_case(a, key, subject);
        if (!c) {
            a->cases = xrealloc(a->cases, (unsigned long)(a->case_count + 1) * sizeof *a->cases);
            c = &a->cases[a->case_count++];
            memset(c, 0, sizeof *c);
            memcpy(c->key, key, sizeof key);
            snprintf(c->impl, sizeof c->impl, "%s", subject);
            case_label(row, c->label, sizeof c->label);
            c->point = point;
            c->series = -1;
            make_repro(&a->setup, row, c);
        } else if (c->fate[side] != FATE_NONE) {
            log_error("ab %s: its record has %s %s twice", a->setup.sides[side].path, c->impl, c->label);
            return EXIT_NOT_COMPARABLE;
        } else if (c->point != point) {
            log_error("ab: OLD and NEW make another plan of the same options (%s): they cannot be compared", c->label);
            return EXIT_NOT_COMPARABLE;
        }
        c->fate[side] = fate_of(row);
        reason_of(row, c->reason[side], sizeof c->reason[side]);
    }
    a->point_count = point + 1 > a->point_count ? point + 1 : a->point_count;
    return EXIT_OK;
}

static bool control_ran(const struct ab *a, const struct record_file *records)
{
    for (int i = 0; i < records->count; i++)
        if (ab_subject_of(&a->setup, &records->rows[i]) == a->setup.control && case_is_timed(&records->rows[i]))
            return true;
    return false;
}

static void drop_cases(struct ab *a)
{
    free(a->cases);
    a->cases = NULL;
    a->case_count = a->point_count = 0;
}

/* Each side once. A side whose build or machine has not got the control is asked again without one. */
static int check_sides(struct ab *a)
{
    struct record_file records;
    struct attn_message why[AB_SIDES] = {{""}, {""}};
    bool refused[AB_SIDES] = {false, false};
    for (int side = 0; side < AB_SIDES; side++) {
        char progress[80];
        snprintf(progress, sizeof progress, "checking %s", a->setup.sides[side].name);
        const struct ab_task task = {.side = side, .is_check = true, .progress = progress};
        int code = ab_unit(&a->setup, &task, &records, &why[side]);
        const bool lacks = a->setup.control && (code == EXIT_USAGE || (code == EXIT_OK && !control_ran(a, &records)));
        if (lacks) {
            if (code == EXIT_OK)
                record_file_free(&records);
            a->setup.control = NULL;
            drop_cases(a);
            side = -1; /* both again: the members of the rounds must be the same */
            refused[AB_OLD] = refused[AB_NEW] = false;
            continue;
        }
        if (code == EXIT_USAGE) {
            refused[side] = true;
            continue;
        }
        if (code == EXIT_OK) {
            code = take_checks(a, side, &records);
            record_file_free(&records);
        }
        if (code != EXIT_OK)
            return code;
    }
    for (int side = 0; side < AB_SIDES; side++)
        if (refused[side]) {
            log_error("ab %s %s: refuses these options: %s", a->setup.sides[side].name, a->setup.sides[side].path,
                      why[side].text);
            return refused[!side] ? EXIT_USAGE : EXIT_NOT_COMPARABLE;
        }
    return EXIT_OK;
}

/* ---- pairs ---- */

/* What one process measured of a case: its own row, and the GEMM's and the control's beside it. */
struct measured {
    struct decide_value value;
    double clock_mhz, gemm_tflops;
};

struct side_result {
    struct measured *cases;          /* by case */
    struct decide_value *controls;   /* by point */
    double *gemm_tflops;             /* by point */
    double throttled_pct;            /* the largest of any row */
};

static void clear_result(const struct ab *a, struct side_result *r)
{
    const struct decide_value nothing = {NAN, NAN};
    r->cases = xmalloc((unsigned long)(a->case_count + 1) * sizeof *r->cases);
    r->controls = xmalloc((unsigned long)(a->point_count + 1) * sizeof *r->controls);
    r->gemm_tflops = xmalloc((unsigned long)(a->point_count + 1) * sizeof *r->gemm_tflops);
    r->throttled_pct = 0;
    for (int i = 0; i < a->case_count; i++)
        r->cases[i] = (struct measured){nothing, NAN, NAN};
    for (int i = 0; i < a->point_count; i++) {
        r->controls[i] = nothing;
        r->gemm_tflops[i] = NAN;
    }
}

static void free_result(struct side_result *r)
{
    free(r->cases);
    free(r->controls);
    free(r->gemm_tflops);
}

static int point_of(const struct ab *a, const char *key)
{
    for (int i = 0; i < a->case_count; i++)
        if (strcmp(a->cases[i].key, key) == 0)
            return a->cases[i].point;
    return -1;
}

static void take_times(struct ab *a, const struct record_file *records, struct side_result *result)
{
    char key[CASE_KEY_SIZE];
    for (int i = 0; i < records->count; i++) {
        const struct record_row *row = &records->rows[i];
        const char *subject = ab_subject_of(&a->setup, row);
        const int point = point_of(a, case_problem_key(row, key, sizeof key));
        if (!subject || point < 0 || !case_is_timed(row))
            continue;
        const struct decide_value value = {row->time_ms, row->pct_of_gemm};
        result->throttled_pct = fmax(result->throttled_pct, row->throttled_pct); /* fmax passes over NaN */
        result->gemm_tflops[point] = row->gemm_tflops;
        if (subject == a->setup.control)
            result->controls[point] = value;
        else
            result->cases[find_case(a, key, subject) - a->cases] =
                (struct measured){value, row->sm_clock_mhz, row->gemm_tflops};
    }
}

/* Points of the cases that are still open, in the plan's order; returns their number. */
static int open_points(const struct ab *a, int *points)
{
    int count = 0;
    for (int p = 0; p < a->point_count; p++)
        for (int i = 0; i < a->case_count; i++)
            if (a->cases[i].point == p && a->cases[i].series >= 0 &&
                a->series[a->cases[i].series].state == DECIDE_OPEN) {
                points[count++] = p;
                break;
            }
    return count;
}

/* One process of one side; every open case must be in it. */
static int measure(struct ab *a, int side, const int *points, int point_count, struct side_result *result)
{
    struct record_file records;
    struct attn_message why = {""};
    char progress[160], left[60] = "";
    if (a->pair_s > 0 && a->run.pairs < a->rules.pairs_min)
        snprintf(left, sizeof left, ", about %.0f s to pair %d", a->pair_s * (a->rules.pairs_min - a->run.pairs),
                 a->rules.pairs_min);
    snprintf(progress, sizeof progress, "pair %d of %d..%d: %s, %d of %d problems%s", a->run.pairs + 1,
             a->rules.pairs_min, a->rules.pairs_max, a->setup.sides[side].name, point_count, a->point_count, left);
    const struct ab_task task = {.side = side, .points = point_count < a->point_count ? points : NULL,
                                 .point_count = point_count, .progress = progress};
    const int code = ab_unit(&a->setup, &task, &records, &why);
    if (code == EXIT_USAGE)
        log_error("ab %s %s: process %d refuses its options: %s", a->setup.sides[side].name,
                  a->setup.sides[side].path, a->setup.units, why.text);
    if (code != EXIT_OK)
        return code == EXIT_USAGE ? EXIT_NOT_COMPARABLE : code;
    take_times(a, &records, result);
    record_file_free(&records);
    for (int i = 0; i < a->case_count; i++) {
        const struct ab_case *c = &a->cases[i];
        if (c->series < 0 || a->series[c->series].state != DECIDE_OPEN || !isnan(result->cases[i].value.time_ms))
            continue;
        log_error("ab %s %s: process %d has no time of %s %s, which ran when it was checked", a->setup.sides[side].name,
                  a->setup.sides[side].path, a->setup.units, c->impl, c->label);
        return EXIT_DEVICE;
    }
    return EXIT_OK;
}

/* The control's difference: its ratio to the GEMM where it has one; without a control the GEMM's own time. */
static double control_difference(struct ab *a, const struct side_result *from, const struct side_result *to)
{
    double *d = xmalloc((unsigned long)(a->point_count + 1) * sizeof *d);
    bool is_paired = false;
    for (int p = 0; p < a->point_count; p++) {
        bool paired = false;
        if (a->setup.control)
            d[p] = decide_difference(&from->controls[p], &to->controls[p], &paired);
        else
            d[p] = log(from->gemm_tflops[p] / to->gemm_tflops[p]);
        is_paired |= paired;
    }
    const double mean = decide_mean(d, a->point_count);
    free(d);
    a->run.control_is_paired = is_paired;
    return mean;
}

static void take_pair(struct ab *a, const struct side_result results[AB_SIDES])
{
    double *d = xmalloc((unsigned long)(a->timed_count + 1) * sizeof *d);
    bool is_whole = true;
    for (int i = 0; i < a->case_count; i++) {
        struct ab_case *c = &a->cases[i];
        bool is_paired;
        if (c->series < 0)
            continue;
        d[c->series] = NAN;
        if (a->series[c->series].state != DECIDE_OPEN) {
            is_whole = false;
            continue;
        }
        const struct measured *const from = &results[AB_OLD].cases[i], *const to = &results[AB_NEW].cases[i];
        d[c->series] = decide_difference(&from->value, &to->value, &is_paired);
        c->log_ms[AB_OLD] += log(from->value.time_ms);
        c->log_ms[AB_NEW] += log(to->value.time_ms);
        if (from->clock_mhz > 0 && to->clock_mhz > 0) {
            c->log_mhz[AB_OLD] += log(from->clock_mhz);
            c->log_mhz[AB_NEW] += log(to->clock_mhz);
            c->clocks++;
        }
    }
    /* Pairs with all configurations make the geomean; later ones have the difficult ones alone. */
    if (is_whole)
        a->pair_means[a->pair_count++] = decide_mean(d, a->timed_count);
    decide_pair(&a->run, d, control_difference(a, &results[AB_OLD], &results[AB_NEW]));
    free(d);
}

static int measure_pair(struct ab *a, int *points)
{
    struct side_result results[AB_SIDES];
    const int point_count = open_points(a, points);
    const int first = a->run.pairs % 2 ? AB_NEW : AB_OLD; /* ABBA */
    struct timespec start, end;
    int code = EXIT_OK;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int side = 0; side < AB_SIDES; side++)
        clear_result(a, &results[side]);
    for (int n = 0; n < AB_SIDES && code == EXIT_OK; n++) {
        const int side = n ? !first : first;
        code = measure(a, side, points, point_count, &results[side]);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    a->pair_s = difftime(end.tv_sec, start.tv_sec);
    if (code == EXIT_OK) {
        const double throttled = fmax(results[AB_OLD].throttled_pct, results[AB_NEW].throttled_pct);
        if (!(throttled > a->rules.throttled_pct))
            take_pair(a, results);
        else if (a->repeats++ < a->rules.repeats_max)
            log_warn("pair %d under thermal slowdown (%.1f %% of a problem's time): repeated", a->run.pairs + 1,
                     throttled);
        else
            a->gave_up = true;
    }
    for (int side = 0; side < AB_SIDES; side++)
        free_result(&results[side]);
    return code;
}

static int measure_pairs(struct ab *a)
{
    int *points = xmalloc((unsigned long)(a->point_count + 1) * sizeof *points), code = EXIT_OK;
    while (code == EXIT_OK && !a->gave_up && (a->run.pairs == 0 || decide_wants_more(&a->run)))
        code = measure_pair(a, points);
    free(points);
    return code;
}

/* ---- what is said ---- */

/* The verdict of a case that is not timed; VERDICT_PASS = it is, -1 = neither side runs it. */
static int untimed_verdict(const struct ab_case *c)
{
    const enum fate from = c->fate[AB_OLD], to = c->fate[AB_NEW];
    if (to == FATE_ERROR)
        return VERDICT_ERROR;
    if (to == FATE_FAIL)
        return VERDICT_FAIL;
    if (to == FATE_PASS)
        return from == FATE_PASS ? VERDICT_PASS : from == FATE_FAIL || from == FATE_ERROR ? VERDICT_FIXED : VERDICT_NEW;
    return from == FATE_REFUSED || from == FATE_NONE ? -1 : VERDICT_LOST;
}

static double per_cent(double logarithm) { return 100 * expm1(logarithm); }

static void say_untimed(const struct ab_case *c, struct verdict_line *line)
{
    static const char *const fates[] = {"does not run it", "passes", "fails its check", "refuses", "fails"};
    const enum fate from = c->fate[AB_OLD], to = c->fate[AB_NEW];
    switch (line->verdict) {
    case VERDICT_FIXED:
        snprintf(line->why, sizeof line->why, "A %s, B passes", fates[from]);
        break;
    case VERDICT_NEW:
        snprintf(line->why, sizeof line->why, "A %s, B passes", from == FATE_REFUSED ? fates[from] : fates[FATE_NONE]);
        break;
    case VERDICT_FAIL:
        snprintf(line->why, sizeof line->why, "%s: %s", from == FATE_FAIL ? "A and B fail their check" : "B fails its check",
                 c->reason[AB_NEW]);
        break;
    default:
        snprintf(line->why, sizeof line->why, "B %s%s%s", fates[to], c->reason[AB_NEW][0] ? ": " : "",
                 c->reason[AB_NEW]);
        break;
    }
}

static void say_timed(const struct ab *a, const struct ab_case *c, struct verdict_line *line)
{
    static const enum verdict verdicts[] = {
        [DECIDE_OPEN] = VERDICT_INCONCLUSIVE,   [DECIDE_PASS] = VERDICT_PASS,
        [DECIDE_IMPROVE] = VERDICT_IMPROVE,     [DECIDE_INCONCLUSIVE] = VERDICT_INCONCLUSIVE,
        [DECIDE_REGRESS] = VERDICT_REGRESS,
    };
    const struct decide_case *d = &a->series[c->series];
    char clocks[60] = "";
    line->verdict = verdicts[d->state];
    line->pairs = d->count;
    if (d->count == 0) {
        snprintf(line->why, sizeof line->why, "%s", a->gave_up ? "thermal slowdown" : "not measured");
        return;
    }
    line->from_ms = exp(c->log_ms[AB_OLD] / d->count);
    line->to_ms = exp(c->log_ms[AB_NEW] / d->count);
    line->change_pct = per_cent(d->mean);
    if (d->count > 1) {
        line->low_pct = per_cent(d->regress_low);
        line->high_pct = per_cent(d->regress_high);
    }
    if (c->clocks == d->count) {
        const double change = 100 * expm1((c->log_mhz[AB_NEW] - c->log_mhz[AB_OLD]) / c->clocks);
        snprintf(clocks, sizeof clocks, fabs(change) < 0.5 ? "clocks equal (%+.1f %%)" : "clocks %+.1f %%", change);
    }
    if (line->verdict == VERDICT_INCONCLUSIVE) {
        double squares = 0;
        for (int i = 0; i < d->count; i++)
            squares += (d->d[i] - d->mean) * (d->d[i] - d->mean);
        snprintf(line->why, sizeof line->why, "%s%s%s",
                 decide_control_moved(&a->run) ? "the control moved, "
                 : a->gave_up                  ? "thermal slowdown, "
                                               : "",
                 clocks, clocks[0] ? ", " : "");
        const size_t used = strlen(line->why);
        snprintf(line->why + used, sizeof line->why - used, "spread %.1f %%",
                 d->count > 1 ? 100 * sqrt(squares / (d->count - 1)) : 0);
    } else if (line->verdict != VERDICT_PASS) {
        snprintf(line->why, sizeof line->why, "%s", clocks);
    }
}

/* All lines; the caller frees them. */
static struct verdict_line *make_lines(const struct ab *a, int *count)
{
    struct verdict_line *lines = xcalloc((unsigned long)(a->case_count + a->setup.lost.count + 1), sizeof *lines);
    const struct verdict_line empty = {.from_ms = NAN, .to_ms = NAN, .change_pct = NAN, .low_pct = NAN, .high_pct = NAN,
                                       .share_change_pct = NAN};
    *count = 0;
    for (int i = 0; i < a->case_count; i++) {
        const struct ab_case *c = &a->cases[i];
        const int verdict = untimed_verdict(c);
        if (verdict < 0)
            continue;
        struct verdict_line *line = &lines[(*count)++];
        *line = empty;
        line->verdict = (enum verdict)verdict;
        snprintf(line->configuration, sizeof line->configuration, "%s", c->label);
        snprintf(line->impl, sizeof line->impl, "%s", c->impl);
        line->repro = c->repro;
        if (c->series >= 0)
            say_timed(a, c, line);
        else
            say_untimed(c, line);
    }
    for (int i = 0; i < a->setup.lost.count; i++) {
        struct verdict_line *line = &lines[(*count)++];
        *line = empty;
        line->verdict = VERDICT_LOST;
        snprintf(line->configuration, sizeof line->configuration, "all");
        snprintf(line->impl, sizeof line->impl, "%s", a->setup.lost.names[i]);
        snprintf(line->why, sizeof line->why, "B has no implementation of this name");
    }
    verdicts_sort(lines, *count);
    return lines;
}

static void say_control(const struct ab *a, char *text, size_t size)
{
    const struct decide_case *c = &a->run.control;
    const char *what = a->setup.control ? a->setup.control : "gemm";
    if (c->count < 2)
        snprintf(text, size, "none: nothing ran in both that is the same on both sides");
    else
        snprintf(text, size, "%s, in both: %+.2f %% (%+.2f .. %+.2f), %d pairs: %s", what, per_cent(c->mean),
                 per_cent(c->regress_low), per_cent(c->regress_high), c->count,
                 decide_control_moved(&a->run)   ? "it MOVED, nothing can be said of the rest"
                 : decide_control_quiet(&a->run) ? "device and harness are quiet"
                                                 : "too noisy to say that it did not move");
}

static void say_summary(const struct ab *a, const struct verdict_report *r, int code, char *text, size_t size)
{
    char counts[200], geomean[100] = "", repeats[80] = "";
    struct decide_case all = {.count = 0};
    struct decide_run run;
    decide_begin(&run, &a->rules, &all, 1, false);
    for (int i = 0; i < a->pair_count && i < a->rules.pairs_max; i++) {
        all.state = DECIDE_OPEN; /* every pair counts here */
        decide_pair(&run, &a->pair_means[i], NAN);
    }
    if (all.count > 1)
        snprintf(geomean, sizeof geomean, "; geomean %+.1f %% (%+.1f .. %+.1f)", per_cent(all.mean),
                 per_cent(all.pass_low), per_cent(all.pass_high));
    if (a->repeats)
        snprintf(repeats, sizeof repeats, "; %d pair%s repeated (thermal slowdown)",
                 a->gave_up ? a->repeats - 1 : a->repeats, a->repeats == 1 ? "" : "s");
    if (r->count == 0) {
        snprintf(text, size, "%s: nothing was compared", verdict_state(code));
        return;
    }
    snprintf(text, size, "%s: %s%s%s", verdict_state(code), verdicts_count(r->lines, r->count, counts, sizeof counts),
             geomean, repeats);
}

static void print_heading(const struct ab *a)
{
    const struct ab_setup *s = &a->setup;
    char impls[200] = "";
    for (int i = 0; i < s->subjects.count; i++)
        snprintf(impls + strlen(impls), sizeof impls - strlen(impls), "%s%s", i ? "," : "", s->subjects.names[i]);
    printf("%s | A %s%s%s%s | B %s%s%s%s\n", s->device, s->sides[AB_OLD].path, s->sides[AB_OLD].commit[0] ? " (" : "",
           s->sides[AB_OLD].commit, s->sides[AB_OLD].commit[0] ? ")" : "", s->sides[AB_NEW].path,
           s->sides[AB_NEW].commit[0] ? " (" : "", s->sides[AB_NEW].commit, s->sides[AB_NEW].commit[0] ? ")" : "");
    printf("%s, %d configurations, checked once per side; ABBA, fresh processes, %d..%d pairs; limit %.3g %%\n", impls,
           a->case_count, a->rules.pairs_min, a->rules.pairs_max, 100 * expm1(a->rules.delta));
    fflush(stdout);
}

/* Terminal, annotations and files; the exit code. */
static int report(struct ab *a, int code)
{
    char control[200];
    struct verdict_report r = {.view = VERDICTS_AB};
    r.lines = make_lines(a, &r.count);
    code = (int)exit_worst((enum exit_code)code, (enum exit_code)verdicts_exit(r.lines, r.count));
    if (a->timed_count && a->run.pairs) {
        say_control(a, control, sizeof control);
        r.control = control;
        code = (int)exit_worst((enum exit_code)code, (enum exit_code)decide_exit(&a->run));
    }
    say_summary(a, &r, code, r.summary, sizeof r.summary);
    code = verdicts_deliver(&r, code, a->setup.options, a->setup.is_temporary ? NULL : a->setup.folder);
    free(r.lines);
    return code;
}

/* ---- the whole ---- */

static void set_rules(struct ab *a, const struct options *o)
{
    a->rules = decide_defaults;
    if (!isnan(o->delta_pct))
        a->rules.delta = log1p(o->delta_pct / 100);
    if (o->pairs.count) {
        a->rules.pairs_min = (int)o->pairs.values[0];
        a->rules.pairs_max = (int)o->pairs.values[o->pairs.count - 1];
    }
}

static int compare_all(struct ab *a)
{
    int code = check_sides(a);
    if (code != EXIT_OK) {
        drop_cases(a); /* half of a comparison is none */
        return code;
    }
    for (int i = 0; i < a->case_count; i++)
        if (untimed_verdict(&a->cases[i]) == VERDICT_PASS)
            a->cases[i].series = a->timed_count++;
    a->series = xcalloc((unsigned long)(a->timed_count + 1), sizeof *a->series);
    a->pair_means = xcalloc((unsigned long)a->rules.pairs_max + 1, sizeof *a->pair_means);
    decide_begin(&a->run, &a->rules, a->series, a->timed_count, false);
    print_heading(a);
    if (a->timed_count)
        code = measure_pairs(a);
    if (code == EXIT_OK)
        decide_end(&a->run);
    return code;
}

/* What no side runs is no comparison. */
static int nothing_ran(const struct ab *a)
{
    for (int i = 0; i < a->case_count; i++)
        if (untimed_verdict(&a->cases[i]) >= 0)
            return EXIT_OK;
    if (a->setup.lost.count)
        return EXIT_OK;
    log_error("ab: neither side runs any of this%s%s", a->case_count && a->cases[0].reason[AB_NEW][0] ? ": " : "",
              a->case_count ? a->cases[0].reason[AB_NEW] : "");
    return EXIT_DEVICE;
}

int ab_run(const struct options *o)
{
    struct ab a;
    memset(&a, 0, sizeof a);
    set_rules(&a, o);
    unit_catch_interrupts();
    int code = ab_open(&a.setup, o, &a.rules);
    if (code == EXIT_OK && a.setup.subjects.count)
        code = compare_all(&a);
    if (code == EXIT_OK)
        code = nothing_ran(&a);
    if (code != EXIT_USAGE)
        code = report(&a, code);
    if (code == EXIT_INTERRUPTED)
        log_note("interrupted; the verdicts so far are of whole pairs");
    ab_close(&a.setup);
    free(a.cases);
    free(a.series);
    free(a.pair_means);
    return code;
}
