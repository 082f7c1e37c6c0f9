/* Orders and counts the lines of verdicts, and prints them to the terminal. */
#include "cmd/gate/verdicts.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/annotation.h"
#include "cmd/base/csv.h"
#include "cmd/base/junit.h"
#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/paths.h"
#include "cmd/base/terminal.h"
#include "cmd/base/text.h"
#include "cmd/run/outputs.h"

static const struct {
    const char *name, *counted; /* in the summary: "2 slower" */
    int exit_code;
    const char *color;
} verdicts[] = {
    [VERDICT_ERROR] = {"ERROR", "in error", EXIT_DEVICE, "31"},
    [VERDICT_FAIL] = {"FAIL", "wrong", EXIT_CHECK_FAILED, "31"},
    [VERDICT_LOST] = {"LOST", "lost", EXIT_REGRESSION, "31"},
    [VERDICT_FLOOR] = {"FLOOR", "below a floor", EXIT_REGRESSION, "31"},
    [VERDICT_REGRESS] = {"REGRESS", "slower", EXIT_REGRESSION, "31"},
    [VERDICT_ABSENT] = {"ABSENT", "absent", EXIT_NOT_COMPARABLE, "33"},
    [VERDICT_UNCHECKED] = {"UNCHECKED", "not checked", EXIT_NOT_COMPARABLE, "33"},
    [VERDICT_UNDECIDED] = {"UNDECIDED", "without an interval", EXIT_INCONCLUSIVE, "33"},
    [VERDICT_INCONCLUSIVE] = {"INCONCLUSIVE", "undecided", EXIT_INCONCLUSIVE, "33"},
    [VERDICT_PASS] = {"pass", NULL, EXIT_OK, "32"},
    [VERDICT_IMPROVE] = {"IMPROVE", "faster", EXIT_OK, "32"},
    [VERDICT_FIXED] = {"FIXED", "fixed", EXIT_OK, "32"},
    [VERDICT_NEW] = {"NEW", "new", EXIT_OK, "32"},
};
enum { VERDICT_COUNT = sizeof verdicts / sizeof verdicts[0] };

const char *verdict_name(enum verdict v) { return verdicts[v].name; }
int verdict_exit(enum verdict v) { return verdicts[v].exit_code; }

const char *verdict_state(int exit_code)
{
    switch (exit_code) {
    case EXIT_OK: return "PASS";
    case EXIT_CHECK_FAILED: return "CHECK FAILED";
    case EXIT_REGRESSION: return "REGRESSION";
    case EXIT_INCONCLUSIVE: return "INCONCLUSIVE";
    case EXIT_NOT_COMPARABLE: return "NOT COMPARABLE";
    case EXIT_INTERRUPTED: return "INTERRUPTED";
    default: return "ERROR";
    }
}

static int compare_lines(const void *left, const void *right)
{
    const struct verdict_line *a = left, *b = right;
    if (a->verdict != b->verdict)
        return (a->verdict > b->verdict) - (a->verdict < b->verdict);
    const double x = isnan(a->change_pct) ? -INFINITY : a->change_pct;
    const double y = isnan(b->change_pct) ? -INFINITY : b->change_pct;
    if (x != y)
        return (x < y) - (x > y);
    const int order = strcmp(a->configuration, b->configuration);
    return order ? order : strcmp(a->impl, b->impl);
}

void verdicts_sort(struct verdict_line *lines, int count)
{
    if (count > 1)
        qsort(lines, (size_t)count, sizeof *lines, compare_lines);
}

int verdicts_exit(const struct verdict_line *lines, int count)
{
    int code = EXIT_OK;
    for (int i = 0; i < count; i++)
        code = (int)exit_worst((enum exit_code)code, (enum exit_code)verdict_exit(lines[i].verdict));
    return code;
}

bool verdicts_remove(const struct options *o, const char *folder)
{
    char *table = folder ? xasprintf("%s/verdicts.csv", folder) : NULL;
    const bool junit_is_gone = !o->junit_path || path_discard(o->junit_path);
    const bool table_is_gone = !table || path_discard(table);
    free(table);
    return junit_is_gone && table_is_gone;
}

char *verdicts_count(const struct verdict_line *lines, int count, char *buffer, size_t size)
{
    int counts[VERDICT_COUNT] = {0};
    struct text text = {0};
    for (int i = 0; i < count; i++)
        counts[lines[i].verdict]++;
    for (int v = 0; v < VERDICT_COUNT; v++)
        if (counts[v] && verdicts[v].counted)
            text_add(&text, "%s%d %s", text.length ? ", " : "", counts[v], verdicts[v].counted);
    if (!text.length && count == 1)
        text_add(&text, "the only one passes");
    else
        text_add(&text, text.length ? " of %d" : "all %d pass", count);
    snprintf(buffer, size, "%s", text_string(&text));
    text_free(&text);
    return buffer;
}

/* ---- the terminal ---- */

enum { CELL = 48, COLUMNS_MAX = 9 };

static void print_ms(double ms, char *cell)
{
    if (isnan(ms))
        strcpy(cell, "-");
    else
        number_print_short(ms, cell, CELL);
}

static void print_change(double pct, char *cell)
{
    if (isnan(pct))
        strcpy(cell, "-");
    else
        snprintf(cell, CELL, "%+.1f %%", pct);
}

/* The cells of a line up to `why`. */
static int fill_cells(const struct verdict_report *r, const struct verdict_line *line, char cells[][CELL])
{
    int n = 0;
    print_ms(line->from_ms, cells[n++]);
    print_ms(line->to_ms, cells[n++]);
    if (r->view == VERDICTS_GATE) {
        print_change(line->change_pct, cells[n++]);
        print_change(line->relative_change_pct, cells[n++]);
        return n;
    }
    print_change(line->raw_change_pct, cells[n++]);
    print_change(line->change_pct, cells[n++]);
    snprintf(cells[n++], CELL, "%s", line->bound[0] ? line->bound : "-");
    if (line->pairs)
        snprintf(cells[n++], CELL, "%d", line->pairs);
    else
        strcpy(cells[n++], "-");
    return n;
}

static bool has_several_impls(const struct verdict_report *r)
{
    for (int i = 1; i < r->count; i++)
        if (strcmp(r->lines[i].impl, r->lines[0].impl) != 0)
            return true;
    return false;
}

static void print_line(const struct verdict_report *r, const struct verdict_line *line, const int *widths,
                       int label_width, int impl_width, FILE *out, int width, bool color)
{
    char cells[COLUMNS_MAX][CELL];
    int column = 12 + 2 + label_width + (impl_width ? impl_width + 2 : 0);
    if (color)
        fprintf(out, "\033[%sm", verdicts[line->verdict].color);
    fprintf(out, "%-12s", verdict_name(line->verdict));
    if (color)
        fputs("\033[0m", out);
    fprintf(out, "  %-*s", label_width, line->configuration);
    if (impl_width)
        fprintf(out, "  %-*s", impl_width, line->impl);
    const int count = fill_cells(r, line, cells);
    for (int i = 0; i < count; i++) {
        fprintf(out, "  %*s", widths[i], cells[i]);
        column += 2 + widths[i];
    }
    if (!line->why[0] || wrap_columns(line->why) <= width - column - 2) {
        fprintf(out, "%s%s\n", line->why[0] ? "  " : "", line->why);
        return;
    }
    fputc('\n', out); /* a reason that does not fit goes to the next lines */
    wrap_words(out, width, 14, 14, line->why);
}

void verdicts_print(const struct verdict_report *r, FILE *out, int width, bool color)
{
    const char *const ab[] = {"OLD ms",        "NEW ms", "raw", r->decider ? r->decider : "vs control",
                              "decided by, %", "pairs"};
    const char *const gate[] = {"was ms", "is ms", "time", r->decider ? r->decider : "against GEMM"};
    const char *const *headings = r->view == VERDICTS_AB ? ab : gate;
    const int columns = r->view == VERDICTS_AB ? 6 : 4;
    int widths[COLUMNS_MAX], label_width = 13, impl_width = has_several_impls(r) ? 4 : 0;
    for (int i = 0; i < columns; i++)
        widths[i] = (int)strlen(headings[i]);
    for (int i = 0; i < r->count; i++) {
        char cells[COLUMNS_MAX][CELL];
        const int count = fill_cells(r, &r->lines[i], cells);
        const int label = (int)strlen(r->lines[i].configuration), impl = (int)strlen(r->lines[i].impl);
        for (int c = 0; c < count; c++)
            if ((int)strlen(cells[c]) > widths[c])
                widths[c] = (int)strlen(cells[c]);
        label_width = label > label_width ? label : label_width;
        if (impl_width && impl > impl_width)
            impl_width = impl;
    }
    if (r->count) {
        fprintf(out, "%-12s  %-*s", "verdict", label_width, "configuration");
        if (impl_width)
            fprintf(out, "  %-*s", impl_width, "impl");
        for (int i = 0; i < columns; i++)
            fprintf(out, "  %*s", widths[i], headings[i]);
        fputs("  why\n", out);
    }
    for (int i = 0; i < r->count; i++)
        print_line(r, &r->lines[i], widths, label_width, impl_width, out, width, color);
    if (r->control && wrap_columns(r->control) <= width - 14) {
        fprintf(out, "%-12s  %s\n", "control", r->control);
    } else if (r->control) {
        char *line = xasprintf("control %s", r->control);
        wrap_words(out, width, 0, 14, line);
        free(line);
    }
    wrap_words(out, width, 0, 2, r->summary);
    if (r->soft_code)
        fprintf(out, "exit 0: --soft replaced %d (%s)\n", r->soft_code, verdict_state(r->soft_code));
    if (r->count && verdict_exit(r->lines[0].verdict) != EXIT_OK && r->lines[0].repro && r->lines[0].repro[0]) {
        fputs("to measure the first line again:\n", out);
        wrap_command(out, width, 2, r->lines[0].repro);
    }
}

/* Writes verdicts for other programs: JUnit XML, CSV, GitHub annotations. */

/* ab: "vs cudnn +3.4 % (+2.6 .. +4.2), raw time +3.1 %, 4.197 -> 4.340 ms: why"; gate: "time +3.1 %, against GEMM
 * +3.4 % (+2.6 .. +4.2), ...". The changes have the names of their columns, the bounds follow the change that decides.
 * The caller frees it. */
static char *describe(const struct verdict_report *r, const struct verdict_line *line)
{
    struct text text = {0};
    const char *of_ab = r->decider ? r->decider : "vs control";
    if (!isnan(line->change_pct))
        text_add(&text, "%s %+.2f %%", r->view == VERDICTS_GATE ? "time" : of_ab, line->change_pct);
    if (!isnan(line->relative_change_pct))
        text_add(&text, ", %s %+.2f %%", r->decider ? r->decider : "against GEMM", line->relative_change_pct);
    if (!isnan(line->low_pct))
        text_add(&text, " (%+.2f .. %+.2f)", line->low_pct, line->high_pct);
    if (!isnan(line->raw_change_pct))
        text_add(&text, ", raw time %+.2f %%", line->raw_change_pct);
    if (!isnan(line->from_ms) && !isnan(line->to_ms))
        text_add(&text, ", %.4g -> %.4g ms", line->from_ms, line->to_ms);
    if (line->why[0]) {
        text_separate(&text, ": ");
        text_add(&text, "%s", line->why);
    }
    return text_take(&text);
}

/* Copies a label with single spaces between its words: "bwd causal d128 16k bf16". */
static void collapse_spaces(const char *label, char *text, size_t size)
{
    size_t used = 0;
    for (; *label && used + 1 < size; label++)
        if (*label != ' ' || (used && text[used - 1] != ' '))
            text[used++] = *label;
    while (used && text[used - 1] == ' ')
        used--;
    text[used] = 0;
}

/* ---- GitHub ---- */

void verdicts_annotate(const struct verdict_report *r, FILE *out)
{
    if (!annotation_is_wanted())
        return;
    for (int i = 0; i < r->count; i++) {
        const struct verdict_line *line = &r->lines[i];
        char label[PROBLEM_LABEL_SIZE], title[160];
        const int code = verdict_exit(line->verdict);
        if (code == EXIT_OK)
            continue;
        /* --soft made the exit code 0: a warning, because an error would mark the build as failed. */
        const bool is_soft = r->soft_code && r->exit_code == EXIT_OK;
        collapse_spaces(line->configuration, label, sizeof label);
        snprintf(title, sizeof title, "fabench %s: %s %s", r->view == VERDICTS_AB ? "ab" : "gate",
                 verdict_name(line->verdict), label);
        char *described = describe(r, line);
        char *text = xasprintf("%s %s", line->impl, described);
        annotation_put(out, is_soft || code == EXIT_INCONCLUSIVE ? "warning" : "error", title, text);
        free(text);
        free(described);
    }
    annotation_put(out,
                   r->exit_code   ? "error"
                   : r->soft_code ? "warning"
                                  : "notice",
                   r->view == VERDICTS_AB ? "fabench ab" : "fabench gate", r->summary);
}

/* ---- --quiet ---- */

void verdicts_say(const struct verdict_report *r)
{
    for (int i = 0; i < r->count; i++) {
        const struct verdict_line *line = &r->lines[i];
        char label[PROBLEM_LABEL_SIZE];
        if (verdict_exit(line->verdict) == EXIT_OK)
            continue;
        collapse_spaces(line->configuration, label, sizeof label);
        char *text = describe(r, line);
        log_error("%s %s %s: %s", verdict_name(line->verdict), line->impl, label, text);
        free(text);
    }
    if (r->exit_code != EXIT_OK)
        log_error("%s", r->summary);
    else if (r->soft_code)
        log_warn("%s; exit 0: --soft replaced %d", r->summary, r->soft_code);
}

/* ---- files ---- */

static bool finish(FILE *out, const char *path)
{
    const bool written = out && !ferror(out);
    const bool closed = out && fclose(out) == 0;
    if (!written || !closed)
        log_error("%s: cannot be written: %s", path, strerror(errno));
    return written && closed;
}

static void add_test(struct junit *junit, const struct verdict_report *r, const struct verdict_line *line)
{
    char label[PROBLEM_LABEL_SIZE];
    const int code = verdict_exit(line->verdict);
    collapse_spaces(line->configuration, label, sizeof label);
    char *text = describe(r, line), *class_name = xasprintf("fabench.%s", line->impl);
    char *message = xasprintf("%s %s", verdict_name(line->verdict), text);
    junit_add(junit, class_name, label,
              code == EXIT_OK           ? JUNIT_PASSED
              : r->exit_code == EXIT_OK ? JUNIT_SKIPPED /* --soft */
              : code == EXIT_DEVICE     ? JUNIT_ERROR
                                        : JUNIT_FAILED,
              message);
    char *body = line->repro && line->repro[0] ? xasprintf("%s\nagain: %s", message, line->repro) : NULL;
    junit_detail(junit, line->to_ms * 1e-3, body); /* the time of the case itself */
    free(body);
    free(message);
    free(class_name);
    free(text);
}

bool verdicts_junit(const struct verdict_report *r, const char *path)
{
    struct junit junit = {0};
    const char *const command = r->view == VERDICTS_AB ? "ab" : "gate";
    for (int i = 0; i < r->count; i++)
        add_test(&junit, r, &r->lines[i]);
    /* Where the run failed and none of its lines did, the reason is reported as a test case of its own. */
    if (r->exit_code != EXIT_OK && junit_count(&junit, JUNIT_FAILED) + junit_count(&junit, JUNIT_ERROR) == 0)
        junit_add(&junit, "fabench", command, JUNIT_ERROR, r->summary);
    char *suite = xasprintf("fabench %s", command);
    const bool is_written = junit_write(&junit, suite, r->summary, path);
    free(suite);
    junit_free(&junit);
    return is_written;
}

static void add_verdict(struct csv_row *row, const struct verdict_line *line)
{
    const double numbers[] = {line->from_ms, line->to_ms,    line->change_pct,
                              line->low_pct, line->high_pct, line->relative_change_pct};
    char label[PROBLEM_LABEL_SIZE];
    collapse_spaces(line->configuration, label, sizeof label);
    csv_add(row, verdict_name(line->verdict));
    csv_add(row, label);
    csv_add_foreign(row, line->impl);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        csv_add_real(row, numbers[i], 6);
    csv_add_count(row, line->pairs ? line->pairs : INT64_MIN);
    csv_add_foreign(row, line->why);
    csv_add_real(row, line->raw_change_pct, 6);
    csv_add(row, line->bound);
}

bool verdicts_csv(const struct verdict_report *r, const char *path)
{
    static const char *const names[] = {"verdict",    "configuration",  "impl",      "from_ms",          "to_ms",
                                        "change_pct", "low_pct",        "high_pct",  "against_gemm_pct", "pairs",
                                        "why",        "raw_change_pct", "decided_by"};
    struct csv_row row = {0};
    FILE *out = fopen(path, "we");
    if (!out)
        return finish(NULL, path);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        csv_add(&row, names[i]);
    csv_put(&row, out);
    for (int i = 0; i < r->count; i++) {
        add_verdict(&row, &r->lines[i]);
        csv_put(&row, out);
    }
    csv_free(&row);
    return finish(out, path);
}

int verdicts_output(struct verdict_report *r, int code, const struct options *o, const char *folder)
{
    r->exit_code = code;
    r->soft_code = 0;
    if ((code == EXIT_INCONCLUSIVE && o->soft[SOFT_INCONCLUSIVE]) ||
        (code == EXIT_NOT_COMPARABLE && o->soft[SOFT_NOT_COMPARABLE] && !r->is_unread)) {
        r->soft_code = code;
        r->exit_code = EXIT_OK;
    }
    if (o->quiet)
        verdicts_say(r);
    else
        verdicts_print(r, stdout, terminal_width(), terminal_color(o->color));
    verdicts_annotate(r, stdout);
    bool written = !o->junit_path || verdicts_junit(r, o->junit_path);
    if (folder) {
        char *path = xasprintf("%s/verdicts.csv", folder);
        written = verdicts_csv(r, path) && written;
        free(path);
    }
    return written ? r->exit_code : EXIT_IO;
}
