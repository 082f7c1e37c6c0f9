/* The steps of `ab`: the checked runs, the pairs, the order of both. */
#include "cmd/gate/gate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cmd/base/clock.h"
#include "cmd/base/log.h"
#include "cmd/base/process.h"
#include "cmd/base/program.h"
#include "cmd/base/text.h"
#include "cmd/gate/ab_report.h"
#include "cmd/gate/fresh_process.h"
#include "cmd/gate/verdicts.h"
#include "cmd/options/options_line.h"
#include "cmd/record/record_figures.h"
#include "cmd/record/record_row.h"

/* ---- the checked runs ---- */

static enum ab_outcome outcome_of(const struct record_row *row)
{
    if (row->status == STATUS_OK && row->check == CHECKED_FAIL)
        return OUTCOME_FAIL;
    if (row->status == STATUS_OK) /* null writes nothing that can be checked */
        return record_row_is_checked(row) || role_of_name(row->impl) == ATTN_ROLE_NOTHING ? OUTCOME_PASS : OUTCOME_NONE;
    return record_row_is_broken(row) ? OUTCOME_ERROR : OUTCOME_REFUSED;
}

/* Why a row failed, as text; "" for a row that passed. */
static void reason_of(const struct record_row *row, char *reason, size_t size)
{
    reason[0] = 0;
    for (int i = 0; i < row->tensor_count && !reason[0]; i++)
        snprintf(reason, size, "%s", row->tensors[i].failure);
    if (!reason[0] && row->reason[0])
        snprintf(reason, size, "%s", row->reason);
    if (!reason[0] && row->check == CHECKED_FAIL)
        snprintf(reason, size, "%s is %.3g times its bound", row->err_tensor, row->err_used);
}

static struct ab_config *find_config(struct ab *a, const struct problem_key *key, const char *impl)
{
    for (int i = 0; i < a->config_count; i++)
        if (problem_key_compare(&a->configs[i].key, key, false) == 0 && strcmp(a->configs[i].impl, impl) == 0)
            return &a->configs[i];
    return NULL;
}

/* The command that compares this configuration alone; the caller frees it. */
static char *make_repro(const struct ab_setup *s, const struct record_row *r, const char *impl)
{
    struct text command = {0};
    text_add(&command, "%s ab", program_name());
    for (int build = 0; build < AB_BUILDS; build++)
        text_add_shell_word(&command, s->builds[build].path);
    char *repro = options_repro(s->options, COMMAND_AB, text_string(&command), impl, &r->key);
    text_free(&command);
    return repro;
}

/* Reads the rows of one build's checked run. Problems are numbered in the order of the rows, which is that of the plan.
 * */
static int take_checks(struct ab *a, int build, const struct record_file *records)
{
    int point = -1;
    for (int i = 0; i < records->count; i++) {
        const struct record_row *row = &records->rows[i];
        const char *subject = ab_subject_of(&a->setup, row);
        if (i == 0 || problem_key_compare(&row->key, &records->rows[i - 1].key, false) != 0)
            point++;
        if (!subject || subject == a->setup.control)
            continue;
        struct ab_config *c = find_config(a, &row->key, subject);
        if (!c) {
            a->configs = xrealloc(a->configs, (unsigned long)(a->config_count + 1) * sizeof *a->configs);
            c = &a->configs[a->config_count++];
            memset(c, 0, sizeof *c);
            c->key = row->key;
            snprintf(c->impl, sizeof c->impl, "%s", subject);
            problem_key_label(&row->key, c->label, sizeof c->label);
            c->point = point;
            c->series = -1;
            c->repro = make_repro(&a->setup, row, c->impl);
        } else if (c->outcome[build] != OUTCOME_NONE) {
            log_error("ab %s: its record has %s %s twice", a->setup.builds[build].path, c->impl, c->label);
            return EXIT_NOT_COMPARABLE;
        } else if (c->point != point) {
            log_error("ab: OLD and NEW make different plans of the same options (%s): they cannot be compared",
                      c->label);
            return EXIT_NOT_COMPARABLE;
        }
        c->outcome[build] = outcome_of(row);
        if (c->outcome[build] == OUTCOME_NONE) {
            log_error("ab %s: its record says nothing about the results of %s %s: they were not checked",
                      a->setup.builds[build].path, c->impl, c->label);
            return EXIT_NOT_COMPARABLE;
        }
        reason_of(row, c->reason[build], sizeof c->reason[build]);
    }
    a->point_count = point + 1 > a->point_count ? point + 1 : a->point_count;
    return EXIT_OK;
}

static bool control_ran(const struct ab *a, const struct record_file *records)
{
    for (int i = 0; i < records->count; i++)
        if (ab_subject_of(&a->setup, &records->rows[i]) == a->setup.control && record_row_is_timed(&records->rows[i]))
            return true;
    return false;
}

static void drop_configs(struct ab *a)
{
    for (int i = 0; i < a->config_count; i++)
        free(a->configs[i].repro);
    free(a->configs);
    a->configs = NULL;
    a->config_count = a->point_count = 0;
}

/* Runs each build once with the full check. Where one of them does not run the control, both run again without a
 * control. */
static int check_builds(struct ab *a)
{
    struct record_file records;
    struct attn_message why[AB_BUILDS] = {{""}, {""}};
    bool refused[AB_BUILDS] = {false, false};
    for (int build = 0; build < AB_BUILDS; build++) {
        char progress[80];
        snprintf(progress, sizeof progress, "checking %s", a->setup.builds[build].name);
        const struct ab_task task = {.build = build, .is_check = true, .progress = progress};
        int code = ab_run_process(&a->setup, &task, &records, &why[build]);
        const bool lacks_control =
            a->setup.control && (code == EXIT_USAGE || (code == EXIT_OK && !control_ran(a, &records)));
        if (lacks_control) {
            if (code == EXIT_OK)
                record_file_free(&records);
            a->setup.control = NULL;
            drop_configs(a);
            build = -1; /* both again: the members of the rounds must be the same in OLD and NEW */
            refused[AB_OLD] = refused[AB_NEW] = false;
            continue;
        }
        if (code == EXIT_USAGE) {
            refused[build] = true;
            continue;
        }
        if (code == EXIT_OK) {
            code = take_checks(a, build, &records);
            record_file_free(&records);
        }
        if (code != EXIT_OK)
            return code;
    }
    for (int build = 0; build < AB_BUILDS; build++)
        if (refused[build]) {
            log_error("ab %s %s: refuses these options: %s", a->setup.builds[build].name, a->setup.builds[build].path,
                      why[build].text);
            return refused[!build] ? EXIT_USAGE : EXIT_NOT_COMPARABLE;
        }
    return EXIT_OK;
}

/* ---- pairs ---- */

/* What one process measured of a configuration. clock_mhz: the SM clock; gemm_tflops: the GEMM ceiling. NaN = not
 * measured. */
struct measurement {
    struct decide_value value;
    double clock_mhz, gemm_tflops;
};

struct build_result {
    struct measurement *configs;   /* by configuration */
    struct decide_value *controls; /* by point */
    double *gemm_tflops;           /* by point */
    double throttled_pct;          /* per cent of the time under thermal or brake slowdown: the largest of all rows */
};

static void clear_result(const struct ab *a, struct build_result *r)
{
    const struct decide_value nothing = {NAN, NAN, NAN};
    r->configs = xmalloc((unsigned long)(a->config_count + 1) * sizeof *r->configs);
    r->controls = xmalloc((unsigned long)(a->point_count + 1) * sizeof *r->controls);
    r->gemm_tflops = xmalloc((unsigned long)(a->point_count + 1) * sizeof *r->gemm_tflops);
    r->throttled_pct = 0;
    for (int i = 0; i < a->config_count; i++)
        r->configs[i] = (struct measurement){nothing, NAN, NAN};
    for (int i = 0; i < a->point_count; i++) {
        r->controls[i] = nothing;
        r->gemm_tflops[i] = NAN;
    }
}

static void free_result(struct build_result *r)
{
    free(r->configs);
    free(r->controls);
    free(r->gemm_tflops);
}

static int point_of(const struct ab *a, const struct problem_key *key)
{
    for (int i = 0; i < a->config_count; i++)
        if (problem_key_compare(&a->configs[i].key, key, false) == 0)
            return a->configs[i].point;
    return -1;
}

/* t_control / t, computed within rounds; NaN where the record does not have it. */
static double speedup_vs_control(const struct ab_setup *s, const struct record_row *row)
{
    if (s->control && role_of_name(s->control) == ATTN_ROLE_NAIVE)
        return row->speedup_vs_naive;
    return s->control && strcmp(s->control, row->peer) == 0 ? row->speedup_vs_peer : NAN;
}

static void take_times(struct ab *a, const struct record_file *records, struct build_result *result)
{
    for (int i = 0; i < records->count; i++) {
        const struct record_row *row = &records->rows[i];
        const char *subject = ab_subject_of(&a->setup, row);
        const int point = point_of(a, &row->key);
        if (!subject || point < 0 || !record_row_is_timed(row))
            continue;
        const struct decide_value value = {row->time_ms, row->pct_of_gemm,
                                           subject == a->setup.control ? NAN : speedup_vs_control(&a->setup, row)};
        result->throttled_pct = fmax(result->throttled_pct, row->throttled_pct); /* fmax ignores NaN */
        result->gemm_tflops[point] = row->gemm_tflops;
        if (subject == a->setup.control)
            result->controls[point] = value;
        else
            result->configs[find_config(a, &row->key, subject) - a->configs] =
                (struct measurement){value, row->sm_clock_mhz, row->gemm_tflops};
    }
}

/* Fills `points` with the problems of undecided configurations, in the order of the plan; returns their number. */
static int open_points(const struct ab *a, int *points)
{
    int count = 0;
    for (int p = 0; p < a->point_count; p++)
        for (int i = 0; i < a->config_count; i++)
            if (a->configs[i].point == p && a->configs[i].series >= 0 &&
                a->series[a->configs[i].series].state == DECIDE_OPEN) {
                points[count++] = p;
                break;
            }
    return count;
}

/* Runs one process of one build. Its record must have a time for every undecided configuration. */
static int measure(struct ab *a, int build, const int *points, int point_count, struct build_result *result)
{
    struct record_file records;
    struct attn_message why = {""};
    char progress[160], left[60] = "";
    if (a->pair_s > 0 && a->run.pairs < a->rules.pairs_min)
        snprintf(left, sizeof left, ", about %.0f s to pair %d", a->pair_s * (a->rules.pairs_min - a->run.pairs),
                 a->rules.pairs_min);
    snprintf(progress, sizeof progress, "pair %d of %d..%d: %s, %d of %d problem%s%s", a->run.pairs + 1,
             a->rules.pairs_min, a->rules.pairs_max, a->setup.builds[build].name, point_count, a->point_count,
             a->point_count == 1 ? "" : "s", left);
    const struct ab_task task = {.build = build,
                                 .points = point_count < a->point_count ? points : NULL,
                                 .point_count = point_count,
                                 .progress = progress};
    const int code = ab_run_process(&a->setup, &task, &records, &why);
    if (code == EXIT_USAGE)
        log_error("ab %s %s: process %d refuses its options: %s", a->setup.builds[build].name,
                  a->setup.builds[build].path, a->setup.process_count, why.text);
    if (code != EXIT_OK)
        return code == EXIT_USAGE ? EXIT_NOT_COMPARABLE : code;
    take_times(a, &records, result);
    record_file_free(&records);
    for (int i = 0; i < a->config_count; i++) {
        const struct ab_config *c = &a->configs[i];
        if (c->series < 0 || a->series[c->series].state != DECIDE_OPEN || !isnan(result->configs[i].value.time_ms))
            continue;
        log_error("ab %s %s: process %d has no time of %s %s, which ran when it was checked",
                  a->setup.builds[build].name, a->setup.builds[build].path, a->setup.process_count, c->impl, c->label);
        return EXIT_DEVICE;
    }
    return EXIT_OK;
}

/* The mean difference of the control over all problems: of its time relative to the GEMM, or of its plain time where
 * there is no GEMM. Without a control: of the time of the GEMM. */
static double control_difference(struct ab *a, const struct build_result *from, const struct build_result *to)
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
    a->run.control_is_paired = is_paired && (a->run.control_is_paired || a->run.pairs == 0);
    return mean;
}

/* Adds a pair to the series of the open configurations. */
static void take_pair(struct ab *a, const struct build_result results[AB_BUILDS])
{
    const unsigned long bytes = (unsigned long)(a->timed_count + 1) * sizeof(double);
    double *from = xmalloc(bytes), *to = xmalloc(bytes), *cross_check = xmalloc(bytes), *d = xmalloc(bytes);
    bool has_all = true;
    for (int i = 0; i < a->config_count; i++) {
        struct ab_config *c = &a->configs[i];
        const int s = c->series;
        if (s < 0)
            continue;
        from[s] = to[s] = d[s] = cross_check[s] = NAN;
        if (a->series[s].state != DECIDE_OPEN) {
            has_all = false;
            continue;
        }
        const struct measurement *const was = &results[AB_OLD].configs[i], *const is = &results[AB_NEW].configs[i];
        c->basis = decide_basis_of(&was->value, &is->value);
        from[s] = decide_logarithm(&was->value, c->basis);
        to[s] = decide_logarithm(&is->value, c->basis);
        d[s] = to[s] - from[s];
        cross_check[s] = decide_cross_check(&was->value, &is->value);
        c->log_ms[AB_OLD] += log(was->value.time_ms);
        c->log_ms[AB_NEW] += log(is->value.time_ms);
        if (was->clock_mhz > 0 && is->clock_mhz > 0) {
            c->log_mhz[AB_OLD] += log(was->clock_mhz);
            c->log_mhz[AB_NEW] += log(is->clock_mhz);
            c->clocks++;
        }
    }
    /* The geomean uses only pairs with all configurations; later pairs measure the undecided ones alone. */
    if (has_all)
        a->pair_means[a->pair_count++] = decide_mean(d, a->timed_count);
    decide_pair(&a->run, from, to, cross_check, control_difference(a, &results[AB_OLD], &results[AB_NEW]));
    free(from);
    free(to);
    free(d);
    free(cross_check);
}

/* Takes the pairs of a block, or none of them where one of its processes was too hot. */
static void take_block(struct ab *a, const struct build_result results[][AB_BUILDS], int pairs)
{
    double throttled = 0;
    for (int p = 0; p < pairs; p++)
        throttled = fmax(throttled, fmax(results[p][AB_OLD].throttled_pct, results[p][AB_NEW].throttled_pct));
    if (throttled > a->rules.throttled_pct) {
        if (a->repeats++ < a->rules.repeats_max)
            log_warn("pair %d under thermal slowdown (%.1f %% of a problem's time): repeated", a->run.pairs + 1,
                     throttled);
        else
            a->is_too_hot = true;
        return;
    }
    for (int p = 0; p < pairs; p++) {
        take_pair(a, results[p]);
        ab_print_pair(a);
    }
}

/* Runs the processes of a block of one or two pairs, in an order that is drawn for it. */
static int measure_block(struct ab *a, int *points)
{
    struct build_result results[2][AB_BUILDS];
    const int point_count = open_points(a, points), pairs = decide_block_pairs(&a->rules, a->run.pairs);
    const double start_ms = clock_ms();
    int order[4], done[AB_BUILDS] = {0, 0}, code = EXIT_OK;
    decide_draw_order(&a->order_state, pairs, order);
    for (int p = 0; p < pairs; p++)
        for (int build = 0; build < AB_BUILDS; build++)
            clear_result(a, &results[p][build]);
    for (int n = 0; n < 2 * pairs && code == EXIT_OK; n++)
        code = measure(a, order[n], points, point_count, &results[done[order[n]]++][order[n]]);
    a->pair_s = 1e-3 * (clock_ms() - start_ms) / pairs;
    if (code == EXIT_OK)
        take_block(a, (const struct build_result(*)[AB_BUILDS])results, pairs);
    for (int p = 0; p < pairs; p++)
        for (int build = 0; build < AB_BUILDS; build++)
            free_result(&results[p][build]);
    return code;
}

static int measure_pairs(struct ab *a)
{
    int *points = xmalloc((unsigned long)(a->point_count + 1) * sizeof *points), code = EXIT_OK;
    while (code == EXIT_OK && !a->is_too_hot && (a->run.pairs == 0 || decide_needs_pair(&a->run)))
        code = measure_block(a, points);
    free(points);
    return code;
}

/* ---- the command ---- */

/* A seed that a person can type again. */
static int64_t draw_seed(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return 1 + (now.tv_sec * 1000003 + now.tv_nsec / 1000 + getpid()) % 999999;
}

static void set_rules(struct ab *a, const struct options *o)
{
    a->rules = decide_defaults;
    a->order_seed = o->order_seed ? o->order_seed : draw_seed();
    a->order_state = (uint64_t)a->order_seed;
    if (!isnan(o->delta_pct))
        a->rules.delta = log1p(o->delta_pct / 100);
    if (o->pairs.count) {
        a->rules.pairs_min = (int)o->pairs.values[0];
        a->rules.pairs_max = (int)o->pairs.values[o->pairs.count - 1];
    }
}

static int compare_all(struct ab *a)
{
    int code = check_builds(a);
    if (code != EXIT_OK) {
        drop_configs(a); /* no verdicts from an incomplete check */
        return code;
    }
    for (int i = 0; i < a->config_count; i++)
        if (ab_untimed_verdict(&a->configs[i]) == VERDICT_PASS)
            a->configs[i].series = a->timed_count++;
    a->series = xcalloc((unsigned long)(a->timed_count + 1), sizeof *a->series);
    a->pair_means = xcalloc((unsigned long)a->rules.pairs_max + 1, sizeof *a->pair_means);
    decide_begin(&a->run, &a->rules, a->series, a->timed_count, false);
    ab_print_heading(a);
    if (a->timed_count)
        code = measure_pairs(a);
    if (code == EXIT_OK)
        decide_end(&a->run);
    return code;
}

/* EXIT_DEVICE when neither build runs any configuration. */
static int nothing_ran(const struct ab *a)
{
    for (int i = 0; i < a->config_count; i++)
        if (ab_untimed_verdict(&a->configs[i]) >= 0)
            return EXIT_OK;
    if (a->setup.lost.count)
        return EXIT_OK;
    log_error("ab: neither OLD nor NEW runs any of this%s%s",
              a->config_count && a->configs[0].reason[AB_NEW][0] ? ": " : "",
              a->config_count ? a->configs[0].reason[AB_NEW] : "");
    return EXIT_DEVICE;
}

int ab_run(const struct options *o)
{
    struct ab a;
    if (!verdicts_remove(o, o->out_dir && strcmp(o->out_dir, "none") != 0 ? o->out_dir : NULL))
        return EXIT_IO;
    memset(&a, 0, sizeof a);
    set_rules(&a, o);
    process_catch_interrupts();
    int code = ab_open(&a.setup, o, &a.rules);
    if (code == EXIT_OK && a.setup.subjects.count)
        code = compare_all(&a);
    if (code == EXIT_OK)
        code = nothing_ran(&a);
    if (code != EXIT_USAGE)
        code = ab_report(&a, code);
    if (code == EXIT_INTERRUPTED)
        log_note("interrupted; the verdicts use only the pairs that are complete");
    ab_close(&a.setup);
    for (int i = 0; i < a.config_count; i++)
        free(a.configs[i].repro);
    free(a.configs);
    free(a.series);
    free(a.pair_means);
    return code;
}
