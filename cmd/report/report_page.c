/* Makes the sections of the page, in the order in which they appear. */
#include "cmd/report/report_page.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/stats.h"
#include "cmd/base/text.h"
#include "cmd/report/report_data.h"

static const char title[] = "Attention: devices side by side";

/* ---- comparability ---- */

/* Do labels of one group differ in a fact in which they should agree? */
static bool differs(const struct report *r, int fact)
{
    for (int a = 0; a < r->input->label_count && report_facts[fact].should_agree; a++)
        for (int b = 0; b < a; b++) {
            char *one = report_fact_text(r, a, fact), *two = report_fact_text(r, b, fact);
            const bool is_same = strcmp(one, two) == 0;
            free(one);
            free(two);
            if (r->summaries[a].group == r->summaries[b].group && !is_same)
                return true;
        }
    return false;
}

/* Lists differences that allow a comparison but can influence it: driver, clocks, other processes on the device. */
static void put_differences(struct page *page, const struct report *r)
{
    for (int fact = 0; fact < report_fact_count; fact++) {
        struct text line = {0};
        if (!differs(r, fact) || report_fact_is_commit(fact)) /* the commit is said under the heading */
            continue;
        for (int l = 0; l < r->input->label_count; l++) {
            char *text = report_fact_text(r, l, fact);
            text_separate(&line, ", ");
            text_add(&line, "%s %s", report_label_name(r, l), text[0] ? text : "not known");
            free(text);
        }
        page_item(page, "They differ in %s: %s.", report_facts[fact].name, text_string(&line));
        text_free(&line);
    }
}

static void put_groups(struct page *page, const struct report *r)
{
    const int count = r->input->label_count;
    char text[600], *extent = report_extent(r);
    if (count == 1) {
        page_text(page, "There is nothing to compare (%s).", extent);
        free(extent);
        return;
    }
    if (r->group_count == 1) {
        page_text(page,
                  "Yes: they share problems and conditions (%s). They are compared only where both have a figure for "
                  "the same problem; where intervals overlap it is a tie.",
                  extent);
        free(extent);
        put_differences(page, r);
        return;
    }
    page_text(page, "No (%s): nothing below compares devices of different groups.", extent);
    free(extent);
    for (int g = 0; g < r->group_count; g++) {
        struct text names = {0};
        for (int l = 0; l < count; l++)
            if (r->summaries[l].group == g) {
                text_separate(&names, ", ");
                text_add(&names, "%s", report_label_name(r, l));
            }
        page_item(page, "Group %d: %s.", g + 1, text_string(&names));
        text_free(&names);
    }
    for (int a = 0; a < count; a++)
        for (int b = 0; b < a; b++) {
            if (r->summaries[a].group == r->summaries[b].group)
                continue;
            report_difference(r, b, a, text, sizeof text);
            page_item(page, "%s and %s have no problem in common: %s.", report_label_name(r, b),
                      report_label_name(r, a), text);
        }
    put_differences(page, r);
}

static void put_warnings(struct page *page, const struct report *r)
{
    for (int l = 0; l < r->input->label_count; l++) {
        const struct report_summary *s = &r->summaries[l];
        const struct report_label *label = &r->input->labels[l];
        char *notes = report_notes(r, l);
        if (notes[0])
            page_item(page, "%s: %s.", label->name, notes);
        free(notes);
        if (s->counts.repeated)
            page_item(page, "%s: %d row%s measured again later in the same file; the last one counts.", label->name,
                      s->counts.repeated, s->counts.repeated == 1 ? " was" : "s were");
        for (int f = 0; f < label->file_count; f++)
            if (r->input->files[label->files[f]].cut)
                page_item(page, "%s: %s ends in a cut line and is read up to there.", label->name,
                          r->input->files[label->files[f]].path);
        if (label->file_count > 1)
            page_item(page,
                      "%s: %d record files, %s; figures are medians over them, intervals are from the lowest "
                      "to the highest end.",
                      label->name, label->file_count,
                      report_boards(r, l) == 1                   ? "all of one board"
                      : report_boards(r, l) == label->file_count ? "each of a different board"
                                                                 : "which may be of one board or of several: the "
                                                                   "records do not say");
    }
    for (int p = 0; p < r->point_count; p++)
        for (int l = 0; l < r->input->label_count; l++) {
            const struct report_figure *f = report_figure_at(r, p, l);
            if (f->is_there && f->best.pct_of_gemm > 105)
                page_item(page, "%s: %s at %s d%lld n=%lld has %.0f %% of the GEMM ceiling, which is suspect.",
                          report_label_name(r, l), f->best.impl, problem_mode_name(f->best.key.mode),
                          (long long)f->best.key.head_dim, (long long)f->best.key.q_len, f->best.pct_of_gemm);
        }
}

static void put_conditions(struct page *page, const struct report *r)
{
    const int labels = r->input->label_count;
    char *alignment = xcalloc((unsigned long)labels + 2, 1);
    memset(alignment, 'l', (size_t)labels + 1);
    page_heading(page, 2, "Measured under");
    page_table(page, alignment);
    page_cell(page, CELL_PLAIN, "%s", "");
    for (int l = 0; l < labels; l++)
        page_cell(page, CELL_PLAIN, "%s", report_label_name(r, l));
    for (int fact = 0; fact < report_fact_count; fact++) {
        bool is_known = false;
        for (int l = 0; l < labels; l++) {
            char *text = report_fact_text(r, l, fact);
            is_known |= text[0] != '\0';
            free(text);
        }
        if (!is_known)
            continue;
        const bool is_marked = differs(r, fact);
        page_cell(page, is_marked ? CELL_STRONG : CELL_PLAIN, "%s%s", report_facts[fact].name,
                  is_marked ? " (differs)" : "");
        for (int l = 0; l < labels; l++) {
            char *text = report_fact_text(r, l, fact);
            page_cell(page, CELL_PLAIN, "%s", text);
            free(text);
        }
    }
    free(alignment);
}

/* ---- summary ---- */

/* Columns of struct report_summary; omitted where no label has a value. */
#define OF_GEOMEANS(name, field, kind) \
    { \
        name, offsetof(struct report_summary, geomeans.field), kind, NULL \
    }
static const struct report_column summary_columns[] = {
    OF_GEOMEANS("sustained", tflops_sustained, REPORT_SPEED),
    OF_GEOMEANS("burst", tflops, REPORT_SPEED),
    OF_GEOMEANS("burst fwd", tflops_fwd, REPORT_SPEED),
    OF_GEOMEANS("burst bwd", tflops_bwd, REPORT_SPEED),
    OF_GEOMEANS("% of GEMM", pct_of_gemm, REPORT_PERCENT),
    OF_GEOMEANS("x naive", speedup_vs_naive, REPORT_REAL),
    OF_GEOMEANS("TFLOPS/W", tflops_per_w, REPORT_REAL),
    {"MHz", offsetof(struct report_summary, clock_mhz), REPORT_CLOCK, NULL},
    {"capped", offsetof(struct report_summary, capped_pct), REPORT_PERCENT, NULL},
    {"throttled", offsetof(struct report_summary, throttled_pct), REPORT_PERCENT, NULL},
};
enum { SUMMARY_COLUMNS = sizeof summary_columns / sizeof summary_columns[0] };

static double summary_value(const struct report_summary *s, int column)
{
    return *(const double *)((const char *)s + summary_columns[column].offset);
}

static void put_geomean_row(struct page *page, const struct report *r, int l, const bool *is_shown)
{
    const struct report_summary *s = &r->summaries[l];
    page_cell(page, CELL_STRONG, "%s", report_label_name(r, l));
    if (!isfinite(s->geomeans.tflops)) /* the columns of speed need the whole set */
        page_cell(page, CELL_PLAIN, "%d of %d points", s->geomeans.points, REPORT_SET_POINTS);
    else
        page_cell(page, CELL_PLAIN, "all %d", REPORT_SET_POINTS);
    for (int c = 0; c < SUMMARY_COLUMNS; c++)
        if (is_shown[c])
            report_cell(page, r, c < 2 ? CELL_STRONG : CELL_PLAIN, summary_columns[c].kind, summary_value(s, c));
    page_cell(page, s->counts.fail ? CELL_BAD : CELL_PLAIN, "%d of %d", s->counts.pass, s->counts.rows);
}

static void put_geomeans(struct page *page, const struct report *r)
{
    bool is_shown[SUMMARY_COLUMNS] = {false};
    char alignment[SUMMARY_COLUMNS + 4] = "lr";
    for (int c = 0; c < SUMMARY_COLUMNS; c++) {
        for (int l = 0; l < r->input->label_count; l++)
            is_shown[c] |= isfinite(summary_value(&r->summaries[l], c));
        if (is_shown[c])
            strcat(alignment, "r");
    }
    page_table(page, strcat(alignment, "r"));
    page_cell(page, CELL_PLAIN, "%s", r->unit);
    page_cell(page, CELL_PLAIN, "of the set");
    for (int c = 0; c < SUMMARY_COLUMNS; c++)
        if (is_shown[c])
            page_cell(page, CELL_PLAIN, "%s", summary_columns[c].name);
    page_cell(page, CELL_PLAIN, "checked");
    for (int l = 0; l < r->input->label_count; l++)
        put_geomean_row(page, r, l, is_shown);
}

/* ---- power ---- */

/* The median power over the sustained regions of a label's figures; NaN where none has it. */
static double watts_of(const struct report *r, int label)
{
    double *watts = xcalloc((unsigned long)r->point_count + 1, sizeof *watts);
    int count = 0;
    for (int p = 0; p < r->point_count; p++) {
        const struct report_figure *f = report_figure_at(r, p, label);
        if (f->is_there && isfinite(f->best.power_w))
            watts[count++] = f->best.power_w;
    }
    const double median = stats_median(watts, count);
    free(watts);
    return median;
}

/* Minutes of all sustained regions in the records of a label; NaN where there are none. */
static double minutes_of(const struct report *r, int label)
{
    double seconds = 0;
    for (int f = 0; f < r->input->labels[label].file_count; f++) {
        const struct record_file *file = &r->input->files[r->input->labels[label].files[f]];
        for (int i = 0; i < file->count; i++)
            seconds += isfinite(file->rows[i].sustain_s) && file->rows[i].sustain_s > 0 ? file->rows[i].sustain_s : 0;
    }
    return seconds > 0 ? seconds / 60 : NAN;
}

static void cell_or_not_measured(struct page *page, const char *format, double value)
{
    if (isfinite(value))
        page_cell(page, CELL_STRONG, format, value);
    else
        page_cell(page, CELL_PLAIN, "not measured");
}

/* Watts of each device, for how long it was under load, and how to measure what is absent. */
static void put_load(struct page *page, const struct report *r)
{
    bool is_all = true;
    page_table(page, "lrrr");
    page_cell(page, CELL_PLAIN, "%s", "");
    page_cell(page, CELL_PLAIN, "W under load");
    page_cell(page, CELL_PLAIN, "power limit");
    page_cell(page, CELL_PLAIN, "minutes of load");
    for (int l = 0; l < r->input->label_count; l++) {
        const double watts = watts_of(r, l), minutes = minutes_of(r, l);
        char *limit = report_power_limit_text(r, l);
        page_cell(page, CELL_STRONG, "%s", report_label_name(r, l));
        cell_or_not_measured(page, "%.0f", watts);
        page_cell(page, CELL_PLAIN, "%s", limit[0] ? limit : "not measured");
        cell_or_not_measured(page, "%.1f", minutes);
        is_all &= isfinite(watts) && isfinite(minutes);
        free(limit);
    }
    page_text(page,
              "W under load: the median over the points of the board's mean power in a sustained region, of the "
              "fastest implementation; minutes of load: of all sustained regions in the records.%s",
              is_all
                  ? ""
                  : " Not measured: fabench --preset acceptance --out DIR puts each row under 10 s of load and reads "
                    "power and energy, where the device tells them.");
}

static void put_memory(struct page *page, const struct report *r, int label)
{
    char *memory = report_memory_text(r, label);
    page_cell(page, CELL_PLAIN, "%s", memory);
    free(memory);
}

/* Speed per 1000 units of the currency, and the memory that comes with it. The CSV has TFLOPS per unit; in the table
 * these numbers would be too small to read. */
static void put_prices(struct page *page, const struct report *r)
{
    const char *currency = r->input->currency;
    bool has_sustained = false;
    for (int l = 0; l < r->input->label_count; l++)
        has_sustained |= isfinite(r->summaries[l].geomeans.tflops_sustained);
    page_table(page, has_sustained ? "lrrrr" : "lrrr");
    page_cell(page, CELL_PLAIN, "%s", "");
    page_cell(page, CELL_PLAIN, "price, %s", currency);
    page_cell(page, CELL_PLAIN, "memory");
    if (has_sustained)
        page_cell(page, CELL_PLAIN, "sustained %s per 1000 %s", r->unit, currency);
    page_cell(page, CELL_PLAIN, "burst %s per 1000 %s", r->unit, currency);
    for (int l = 0; l < r->input->label_count; l++) {
        const double price = r->input->labels[l].price;
        const struct report_geomeans *g = &r->summaries[l].geomeans;
        page_cell(page, CELL_STRONG, "%s", report_label_name(r, l));
        if (isfinite(price))
            page_cell(page, CELL_PLAIN, "%.*f", price == floor(price) ? 0 : 2, price);
        else
            page_cell(page, CELL_PLAIN, "%s", "");
        put_memory(page, r, l);
        if (has_sustained)
            report_cell_real(page, CELL_STRONG, r->unit_scale * 1000 * g->tflops_sustained / price);
        report_cell_real(page, CELL_STRONG, r->unit_scale * 1000 * g->tflops / price);
    }
    page_text(page,
              "Prices are from the command line, for one device. The last columns are geometric means divided by the "
              "price in 1000 %s; memory is that of one device.",
              currency);
}

static void put_spread(struct page *page, const struct report *r, int l)
{
    const struct report_summary *s = &r->summaries[l];
    const struct report_label *label = &r->input->labels[l];
    const int boards = report_boards(r, l);
    if (label->file_count < 2)
        return;
    if (isfinite(s->file_least))
        page_item(page,
                  "%s: the geometric means of its files are from %.1f to %.1f %s, a spread of %.1f %% "
                  "%s.",
                  label->name, s->file_least * r->unit_scale, s->file_most * r->unit_scale, r->unit,
                  100 * (s->file_most - s->file_least) / s->geomeans.tflops,
                  boards == 1                   ? "between runs of one board"
                  : boards == label->file_count ? "between boards"
                                                : "between runs or boards: the records do not say which");
    else
        page_item(page,
                  "%s: fewer than two of its %d files hold the whole published set; the spread between them is "
                  "given point by point.",
                  label->name, label->file_count);
}

static void put_summary(struct page *page, const struct report *r)
{
    page_heading(page, 2, "Summary");
    page_text(page,
              "Geometric means over the published set (%s) of the best implementation that passed its check. "
              "Where a point of the set is missing there is no mean.",
              REPORT_SET_WORDS);
    put_geomeans(page, r);
    put_load(page, r);
    report_put_reasons(page, r);
    for (int l = 0; l < r->input->label_count; l++)
        put_spread(page, r, l);
    for (int l = 0; l < r->input->label_count; l++) {
        int shared = 0;
        for (int p = 0; p < r->point_count; p++)
            shared += report_figure_at(r, p, l)->rank > 0;
        if (shared)
            page_item(page, "%s: fastest at %d and tied for fastest at %d of the %d point%s it shares.",
                      report_label_name(r, l), r->summaries[l].best_points, r->summaries[l].tied_points, shared,
                      shared == 1 ? "" : "s");
    }
    page_text(page,
              "Sustained figures are of seconds of load (--sustain-s), burst figures of single launches; those of "
              "a column without either word are of burst. MHz is the median SM clock, capped the median share of "
              "time under the power cap, which is normal; throttled is the largest share of thermal and brake "
              "slowdown.");
    if (r->input->currency[0])
        put_prices(page, r);
}

/* ---- the page ---- */

static bool is_speed_chart(const char *name)
{
    return strncmp(name, "tflops-", 7) == 0 || strncmp(name, "sustained-", 10) == 0 ||
           strncmp(name, "bandwidth-", 10) == 0;
}

/* Adds the charts of speed, or all others. */
static void put_charts(struct page *page, const struct report_charts *charts, bool of_speed)
{
    for (int i = 0; !charts->is_gnuplot_absent && i < charts->count; i++)
        if (is_speed_chart(charts->names[i]) == of_speed)
            page_chart(page, charts->names[i], charts->names[i]);
}

static void put_speed_charts(struct page *page, const struct report_charts *charts, const struct overlay *overlay)
{
    page_heading(page, 2, "Speed over length");
    if (charts->is_gnuplot_absent)
        page_text(page, "gnuplot was not installed where this page was made, so it has no charts. Their scripts and "
                        "data are in the same folder; gnuplot NAME.gp draws one.");
    put_charts(page, charts, true);
    if (overlay && charts->count)
        page_text(page,
                  "Grey marks are published figures that were not measured here. They are in no table and no "
                  "ranking. %s",
                  overlay->source);
}

static void put_beginning(struct page *page, const struct report *r)
{
    report_put_verdict(page, r);
    report_put_commits(page, r);
    page_heading(page, 2, "Comparable?");
    put_groups(page, r);
    put_warnings(page, r);
    put_summary(page, r);
}

struct page *report_brief(const struct report *r)
{
    struct page *page = page_open(title);
    put_beginning(page, r);
    return page;
}

struct page *report_page(const struct report *r, const struct report_charts *charts, const struct overlay *overlay)
{
    struct page *page = page_open(title);
    put_beginning(page, r);
    if (charts->was_asked)
        put_speed_charts(page, charts, overlay);
    for (int g = 0; g < r->group_count; g++)
        report_put_comparison(page, r, g);
    put_conditions(page, r);
    for (int l = 0; l < r->input->label_count; l++)
        report_put_device(page, r, l);
    if (charts->count && !charts->is_gnuplot_absent)
        page_heading(page, 2, "Speed-up and memory");
    put_charts(page, charts, false);
    page_heading(page, 2, "How to read this");
    page_item(page, "FLOPs: forward 4 x batch x heads x head dim x visible pairs, backward 2.5 times that, for every "
                    "implementation; ratios of TFLOPS are ratios of time.");
    page_item(page, "Every figure is of a row whose outputs were compared with an fp32 (CUDA) or float64 (CPU) "
                    "reference before and after it was timed. err/bound is the largest error divided by its bound.");
    page_item(page, "%% of GEMM: of cuBLAS 8192^3 in the same dtype, sampled in the same rounds as the attention.");
    page_item(page, "Energy is that of the board, measured by its own counter over the sustained region, not that of "
                    "the whole machine.");
    page_item(page, "Nothing is extrapolated, normalised or filled in; an empty cell was not measured.");
    return page;
}
