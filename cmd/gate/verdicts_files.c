/* Writes verdicts for other programs: JUnit XML, CSV, GitHub annotations. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/csv.h"
#include "cmd/base/junit.h"
#include "cmd/base/log.h"
#include "cmd/base/terminal.h"
#include "cmd/base/text.h"
#include "cmd/gate/verdicts.h"
#include "cmd/run/outputs.h"

/* "+3.4 % (+2.6 .. +4.2), 4.197 -> 4.340 ms: why". The caller frees it. */
static char *describe(const struct verdict_line *line)
{
    struct text text = {0};
    if (!isnan(line->change_pct))
        text_add(&text, "%+.2f %%", line->change_pct);
    if (!isnan(line->low_pct))
        text_add(&text, " (%+.2f .. %+.2f)", line->low_pct, line->high_pct);
    if (!isnan(line->raw_change_pct))
        text_add(&text, ", raw time %+.2f %%", line->raw_change_pct);
    if (!isnan(line->relative_change_pct))
        text_add(&text, ", against the GEMM %+.2f %%", line->relative_change_pct);
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

/* Percent, line ends and, in properties, the separators are written as %XX. */
static void put_escaped(FILE *out, const char *text, bool is_property)
{
    for (; *text; text++)
        if (*text == '%' || *text == '\r' || *text == '\n' || (is_property && (*text == ':' || *text == ',')))
            fprintf(out, "%%%02X", (unsigned char)*text);
        else
            fputc(*text, out);
}

void verdicts_annotate(const struct verdict_report *r, FILE *out)
{
    const char *in_actions = getenv("GITHUB_ACTIONS");
    if (!in_actions || strcmp(in_actions, "true") != 0)
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
        char *text = describe(line);
        fprintf(out, "::%s title=", is_soft || code == EXIT_INCONCLUSIVE ? "warning" : "error");
        put_escaped(out, title, true);
        fputs("::", out);
        put_escaped(out, line->impl, false);
        fputs(" ", out);
        put_escaped(out, text, false);
        fputc('\n', out);
        free(text);
    }
    fprintf(out, "::%s title=fabench %s::",
            r->exit_code   ? "error"
            : r->soft_code ? "warning"
                           : "notice",
            r->view == VERDICTS_AB ? "ab" : "gate");
    put_escaped(out, r->summary, false);
    fputc('\n', out);
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
        char *text = describe(line);
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
    char *text = describe(line), *class_name = xasprintf("fabench.%s", line->impl);
    char *message = xasprintf("%s %s", verdict_name(line->verdict), text);
    junit_add(junit, class_name, label,
              code == EXIT_OK           ? JUNIT_PASSED
              : r->exit_code == EXIT_OK ? JUNIT_SKIPPED /* --soft */
              : code == EXIT_DEVICE     ? JUNIT_ERROR
                                        : JUNIT_FAILED,
              message);
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
    csv_add(row, line->impl);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        csv_add_real(row, numbers[i], 6);
    csv_add_count(row, line->pairs ? line->pairs : INT64_MIN);
    csv_add(row, line->why);
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
        (code == EXIT_NOT_COMPARABLE && o->soft[SOFT_NOT_COMPARABLE])) {
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
