/* The command `gate`: reads the records, measures where one side is not stored, and puts out the verdicts. */
#include "cmd/gate/gate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/base/clock.h"
#include "cmd/base/log.h"
#include "cmd/base/paths.h"
#include "cmd/gate/fingerprint.h"
#include "cmd/gate/floors.h"
#include "cmd/gate/gate_cases.h"
#include "cmd/gate/gate_lines.h"
#include "cmd/gate/gate_measure.h"
#include "cmd/gate/verdicts.h"
#include "cmd/record/record.h"
#include "cmd/record/record_figures.h"

struct gate {
    const struct options *options;
    struct decide_rules rules;
    struct gate_side baseline, current;
    struct gate_cases cases;
    struct gate_lines lines;
    struct floors *floors;
    bool is_unread;    /* a file that was named is absent or cannot be read */
    int measured_code; /* exit code of a measuring process that no row explains; EXIT_OK with --current */
};

/* ---- reading ---- */

static int read_whole(struct gate *g, const char *path, struct record_file *file)
{
    struct attn_message why = {""};
    if (!record_read(path, file, &why)) {
        log_error("%s", why.text);
        g->is_unread = access(path, R_OK) != 0;
        return EXIT_NOT_COMPARABLE;
    }
    if (file->cut) {
        log_error("%s: its last line is cut and rows may be missing: a gate needs a complete record", path);
        return EXIT_NOT_COMPARABLE;
    }
    return EXIT_OK;
}

static bool has_times(const struct record_file *file)
{
    for (int i = 0; i < file->count; i++)
        if (gate_is_judged(&file->rows[i], NULL) && record_row_is_timed(&file->rows[i]))
            return true;
    log_error("%s: none of its rows has a time to compare with; a baseline is the record of a sweep that passed its "
              "checks",
              file->path);
    return false;
}

/* Is a record whole, of one kind, and measured as those of the baseline were? */
static int accept(const struct gate *g, const struct record_file *file, bool is_baseline)
{
    struct attn_message why = {""};
    const bool is_first = is_baseline && g->baseline.count == 0;
    if (!fingerprint_is_uniform(file, &why) || !record_file_agrees(file, &why) ||
        (!is_first && g->baseline.count && !fingerprint_matches(&g->baseline.files[0], file, &why))) {
        log_error("%s%s%s", is_baseline && !is_first && strstr(why.text, "the baseline's") ? file->path : "",
                  is_baseline && !is_first && strstr(why.text, "the baseline's") ? ": " : "", why.text);
        return EXIT_NOT_COMPARABLE;
    }
    return is_baseline && !has_times(file) ? EXIT_NOT_COMPARABLE : EXIT_OK;
}

static bool is_same_run(const struct record_file *a, const struct record_file *b)
{
    return a->count && b->count && a->rows[0].run_id[0] && strcmp(a->rows[0].run_id, b->rows[0].run_id) == 0;
}

/* Reads the files of one side. */
static int read_side(struct gate *g, const struct name_list *paths, struct gate_side *side)
{
    const bool is_baseline = side == &g->baseline;
    int code = EXIT_OK;
    for (int i = 0; i < paths->count && code == EXIT_OK; i++) {
        struct record_file *const file = &side->files[side->count];
        code = read_whole(g, paths->names[i], file);
        if (code == EXIT_OK)
            code = accept(g, file, is_baseline);
        for (int k = 0; k < side->count && code == EXIT_OK; k++)
            if (is_same_run(&side->files[k], file)) {
                log_error("%s %s: is the same run as %s; each must be a process of its own",
                          is_baseline ? "--baseline" : "--current", paths->names[i], paths->names[k]);
                code = EXIT_NOT_COMPARABLE;
            }
        if (code == EXIT_OK)
            side->count++;
        else
            record_file_free(file);
    }
    gate_side_index(side);
    return code;
}

/* Decides again with all records so far. */
static void decide(struct gate *g)
{
    gate_side_index(&g->current);
    gate_cases_free(&g->cases);
    gate_cases_make(&g->cases, &g->rules, &g->baseline, &g->current);
}

/* Measures the current side: one process, and further ones while noise leaves a configuration open. */
static int measure(struct gate *g, const char *folder)
{
    int code = EXIT_OK;
    bool is_open;
    if (g->baseline.count == 1 && gate_is_cpu(&g->baseline))
        log_warn("gate: one record of the baseline decides nothing on the CPU, whatever is measured now; give more "
                 "records (--baseline), five are better");
    do {
        const double start_ms = clock_ms();
        struct record_file *const file = &g->current.files[g->current.count];
        code = gate_measure(g->options, g->baseline.count ? &g->baseline.files[0] : NULL, folder, g->current.count + 1,
                            file, &g->measured_code);
        if (code == EXIT_OK)
            code = accept(g, file, false);
        if (code != EXIT_OK) {
            record_file_free(file);
            return code;
        }
        g->current.count++;
        decide(g);
        is_open = g->baseline.count && g->measured_code == EXIT_OK &&
                  gate_cases_need_run(&g->cases, &g->rules, g->current.count);
        if (is_open)
            log_note("gate: process %d of at most %d took %.0f s; noise, or a change to be confirmed, asks for another",
                     g->current.count, g->rules.gate_runs_max, 1e-3 * (clock_ms() - start_ms));
    } while (is_open);
    return code;
}

static int read_all(struct gate *g, const char *folder)
{
    const struct options *o = g->options;
    struct attn_message why = {""};
    int code = EXIT_OK;
    if (o->floors && !(g->floors = floors_read(o->floors, &why))) {
        log_error("--floors: %s", why.text);
        g->is_unread = access(o->floors, R_OK) != 0;
        return g->is_unread ? EXIT_NOT_COMPARABLE : EXIT_USAGE;
    }
    code = read_side(g, &o->baselines, &g->baseline);
    if (code == EXIT_OK && o->currents.count) {
        code = read_side(g, &o->currents, &g->current);
        if (code == EXIT_OK)
            decide(g);
        return code;
    }
    return code == EXIT_OK ? measure(g, folder) : code;
}

/* ---- the command ---- */

static void describe_summary(const struct gate *g, int code, char *text, size_t size)
{
    char counts[200], rest[300];
    gate_describe_rest(&g->lines, &g->cases, g->options, rest, sizeof rest);
    snprintf(text, size, "%s: %s%s", verdict_state(code),
             g->lines.count ? verdicts_count(g->lines.items, g->lines.count, counts, sizeof counts)
                            : "nothing was compared",
             rest);
}

int gate_run(const struct options *o)
{
    struct gate g = {.options = o, .rules = decide_defaults};
    struct verdict_report r = {.view = VERDICTS_GATE};
    char control[400] = "", decider[60];
    const char *folder = o->out_dir && strcmp(o->out_dir, "none") != 0 ? o->out_dir : NULL;
    if (!isnan(o->delta_pct))
        g.rules.gate_delta = log1p(o->delta_pct / 100);
    if (o->runs_max)
        g.rules.gate_runs_max = (int)o->runs_max;
    int code = !verdicts_remove(o, folder) || (folder && !path_make_dirs(folder)) ? EXIT_IO : read_all(&g, folder);
    if (code == EXIT_OK)
        code = gate_lines_make(&g.lines, o, &g.cases, &g.baseline, &g.current, g.floors);
    if (code != EXIT_USAGE) {
        verdicts_sort(g.lines.items, g.lines.count);
        code = (int)exit_worst((enum exit_code)code, (enum exit_code)verdicts_exit(g.lines.items, g.lines.count));
        code = (int)exit_worst((enum exit_code)code, (enum exit_code)g.measured_code);
        gate_describe_control(&g.cases, &g.baseline, &g.current, control, sizeof control);
        r.control = control[0] && g.lines.count ? control : NULL;
        snprintf(decider, sizeof decider, "against %s", g.cases.control ? g.cases.control : "GEMM");
        r.decider = decider;
        r.is_unread = g.is_unread;
        r.lines = g.lines.items;
        r.count = g.lines.count;
        describe_summary(&g, code, r.summary, sizeof r.summary);
        code = verdicts_output(&r, code, o, folder);
    }
    if (g.floors)
        floors_free(g.floors);
    gate_lines_free(&g.lines, &g.current);
    gate_cases_free(&g.cases);
    gate_side_free(&g.baseline);
    gate_side_free(&g.current);
    return code;
}
