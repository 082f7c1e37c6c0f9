/* Markdown tables of panels. */
#include "cmd/chart/chart_markdown.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/text.h"

/* The columns of numbers, each a kind of chart. */
enum { TIME, SPEED, SHARE, SUSTAINED, ENERGY, COLUMNS };
static const enum chart_kind kinds[COLUMNS] = {[TIME] = CHART_TIME,
                                               [SPEED] = CHART_TFLOPS,
                                               [SHARE] = CHART_GEMM,
                                               [SUSTAINED] = CHART_SUSTAINED,
                                               [ENERGY] = CHART_ENERGY};

/* A line of a table. */
struct line {
    int64_t n;
    int series;
    double values[COLUMNS], half_width; /* NaN = not there; of the time's interval, relative */
    bool is_failed;
};

static int compare_lines(const void *left, const void *right)
{
    const struct line *a = left, *b = right;
    return a->n != b->n ? (a->n > b->n ? 1 : -1) : a->series - b->series;
}

static struct line *line_at(struct line **lines, int *count, int64_t n, int series)
{
    for (int i = *count - 1; i >= 0 && (*lines)[i].series == series; i--)
        if ((*lines)[i].n == n)
            return &(*lines)[i];
    *lines = xrealloc(*lines, (unsigned long)(*count + 1) * sizeof **lines);
    struct line *added = &(*lines)[(*count)++];
    *added = (struct line){.n = n, .series = series, .half_width = NAN};
    for (int c = 0; c < COLUMNS; c++)
        added->values[c] = NAN;
    return added;
}

static int collect_lines(const struct chart_set *set, const struct chart_panel *panel, struct line **lines)
{
    int count = 0;
    *lines = NULL;
    for (int s = 0; s < set->series_count; s++)
        for (int c = 0; c < COLUMNS; c++) {
            struct chart_point *points;
            const int found = chart_points(set, panel, &set->series[s], kinds[c], &points);
            for (int i = 0; i < found; i++) {
                struct line *line = line_at(lines, &count, points[i].n, s);
                line->values[c] = points[i].value;
                line->is_failed |= points[i].is_failed;
                if (c == TIME && points[i].hi > points[i].lo)
                    line->half_width = (points[i].hi - points[i].lo) / 2 / points[i].value;
            }
            free(points);
        }
    if (count)
        qsort(*lines, (size_t)count, sizeof **lines, compare_lines);
    return count;
}

/* The least time of this length that passed; NaN where none did. */
static double fastest_of(const struct line *lines, int count, int64_t n)
{
    double least = NAN;
    for (int i = 0; i < count; i++)
        if (lines[i].n == n && !lines[i].is_failed)
            least = fmin(least, lines[i].values[TIME]); /* fmin leaves NaN out */
    return least;
}

/* Text of a record in a cell: no line break, no bar, no markup. */
static void put_text(FILE *out, const char *text)
{
    char clean[500];
    text_clean(text, clean, sizeof clean);
    for (const char *c = clean; *c; c++)
        fprintf(out, strchr("|\\`*_<>[]", *c) ? "\\%c" : "%c", *c);
}

static void put_value(FILE *out, double value)
{
    char text[40];
    fprintf(out, " %s |", isfinite(value) ? number_print_short(value, text, sizeof text) : "");
}

static void put_line(FILE *out, const struct chart_set *set, const struct line *line, double fastest,
                     const bool shown[COLUMNS])
{
    char n[24];
    fprintf(out, "| %s | ", number_print_count(line->n, n, sizeof n));
    put_text(out, set->series[line->series].label);
    fprintf(out, " |");
    put_value(out, line->values[TIME]);
    fprintf(out, isfinite(line->half_width) ? " %.1f %% |" : " |", 100 * line->half_width);
    for (int c = SPEED; c < COLUMNS; c++) {
        if (!shown[c])
            continue;
        if (line->is_failed && (c == SPEED || c == SHARE || c == SUSTAINED)) /* a wrong result has no speed */
            fprintf(out, " FAILED |");
        else
            put_value(out, line->values[c]);
    }
    put_value(out, line->is_failed ? NAN : line->values[TIME] / fastest);
    fputc('\n', out);
}

static void put_panel(FILE *out, const struct chart_set *set, const struct chart_panel *panel)
{
    const struct chart_family family = chart_family_of(panel);
    struct line *lines;
    const int count = collect_lines(set, panel, &lines);
    bool shown[COLUMNS] = {true, true};
    char title[64], words[400];
    for (int i = 0; i < count; i++)
        for (int c = 0; c < COLUMNS; c++)
            shown[c] |= isfinite(lines[i].values[c]);
    fprintf(out, "### %s, %s\n\n", chart_panel_title(panel, title, sizeof title), problem_dtype_name(panel->dtype));
    for (int f = 0; f < set->file_count; f++) {
        chart_device_text(set, f, family, words, sizeof words);
        if (words[0]) {
            put_text(out, words);
            fputs("; ", out);
        }
    }
    chart_condition_text(set, family, words, sizeof words);
    put_text(out, words);
    fprintf(out, "%s%s\n\n| %s | by | ms | ± |", set->has_unchecked ? ", NOT ALL CHECKED" : "",
            set->is_synthetic ? ", SYNTHETIC DATA" : "",
            set->axis == AXIS_LENGTH ? "n" : chart_axis_title(set, family));
    fprintf(out, " %s |", chart_unit(set, panel));
    if (shown[SHARE])
        fprintf(out, " %% of %s |", family.is_decode ? "reading" : "GEMM");
    if (shown[SUSTAINED])
        fprintf(out, " sustained %s |", chart_unit(set, panel));
    if (shown[ENERGY])
        fprintf(out, " J |");
    fprintf(out, " relative |\n| ---: | :--- | ---: | ---: |");
    for (int c = SPEED; c < COLUMNS + 1; c++)
        if (c == COLUMNS || shown[c])
            fprintf(out, " ---: |");
    fputc('\n', out);
    for (int i = 0; i < count; i++)
        put_line(out, set, &lines[i], fastest_of(lines, count, lines[i].n), shown);
    free(lines);
}

void chart_put_markdown(const struct chart_set *set, FILE *out)
{
    for (int i = 0; i < set->panel_count; i++) {
        if (i)
            fputc('\n', out);
        put_panel(out, set, &set->panels[i]);
    }
}
