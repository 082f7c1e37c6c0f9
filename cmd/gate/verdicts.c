/* Orders and counts the lines of verdicts, and prints them to the terminal. */
#include "cmd/gate/verdicts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/paths.h"
#include "cmd/base/terminal.h"
#include "cmd/base/text.h"

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
    static const char *const gate[] = {"was ms", "is ms", "time", "against GEMM"};
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
