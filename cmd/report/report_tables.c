/* Makes the tables of figures point by point: the devices compared, and each device alone. */
#include "cmd/record/record_figures.h"
#include "cmd/report/report_page.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/report/report_data.h"

const char *report_label_name(const struct report *r, int label) { return r->input->labels[label].name; }

/* A measured value, or an empty cell. */
void report_cell_real(struct page *page, enum page_emphasis emphasis, double value)
{
    char text[40];
    page_cell(page, emphasis, "%s", isfinite(value) ? number_print_short(value, text, sizeof text) : "");
}

static void cell_percent(struct page *page, double value)
{
    if (isfinite(value) && value > 0 && value < 0.5)
        page_cell(page, CELL_PLAIN, "< 1 %%");
    else if (isfinite(value))
        page_cell(page, CELL_PLAIN, "%.0f %%", value);
    else
        page_cell(page, CELL_PLAIN, "%s", "");
}

void report_cell(struct page *page, const struct report *r, enum page_emphasis emphasis, enum report_kind kind,
                 double value)
{
    switch (kind) {
    case REPORT_SPEED: report_cell_real(page, emphasis, value * r->unit_scale); break;
    case REPORT_PERCENT: cell_percent(page, value); break;
    case REPORT_REAL: report_cell_real(page, emphasis, value); break;
    case REPORT_CLOCK: page_cell(page, emphasis, isfinite(value) ? "%.0f" : "", value); break;
    }
}

/* ---- point by point ---- */

static const char *mask_name(const struct record_row *row) { return row->key.causal ? "causal" : "full"; }

/* The conditions that all lines of a table share: "fwd fp16, 16384 tokens, heads x d = 2048, bshd, N(0,1), L2 cold". */
static void describe_conditions(const struct record_row *row, char *text, size_t size)
{
    char data[PROBLEM_DATA_SIZE], extras[PROBLEM_LABEL_SIZE];
    const struct problem_key *k = &row->key;
    const int64_t len = k->mode == MODE_DECODE ? k->kv_len : k->q_len;
    const double tokens = k->total_q > 0 ? (double)k->total_q : (double)k->batch * (double)len;
    problem_key_extras(k, extras, sizeof extras);
    snprintf(text, size, "%s %s, %.0f tokens, heads x d = %.0f%s, %s, %s, L2 %s%s%s", problem_mode_name(row->key.mode),
             problem_dtype_name(row->key.dtype), tokens, (double)row->key.q_heads * (double)row->key.head_dim,
             row->key.kv_heads != row->key.q_heads ? " (grouped kv heads)" : "", problem_layout_name(row->key.layout),
             problem_key_data(&row->key, data, sizeof data), problem_l2_name(row->key.l2), extras[0] ? "," : "",
             extras);
}

static void cell_length(struct page *page, const struct record_row *row)
{
    char text[56];
    page_cell(page, CELL_PLAIN, "%s", problem_key_lengths(&row->key, text, sizeof text));
}

/* The unit of speed of a problem, and how many make 1 TFLOPS of it: GB/s for decode, whose time is that of reading. */
static const char *unit_of(const struct report *r, const struct record_row *row)
{
    return row->key.mode == MODE_DECODE ? "GB/s" : r->unit;
}

static double scale_of(const struct report *r, const struct record_row *row)
{
    return row->key.mode == MODE_DECODE ? row->min_gb / row->flops * 1e12 : r->unit_scale;
}

/* "655.0 ± 0.3 %": half the width of the interval, relative to the figure. */
static void cell_figure(struct page *page, const struct report *r, const struct report_figure *f)
{
    char text[40];
    number_print_short(f->best.tflops * scale_of(r, &f->best), text, sizeof text);
    if (f->rank == 1 && f->is_tied)
        page_cell(page, CELL_STRONG, "tie %s ± %.1f %%", text, 50 * (f->hi - f->lo) / f->best.tflops);
    else
        page_cell(page, f->rank == 1 ? CELL_STRONG : CELL_PLAIN, "%s ± %.1f %%", text,
                  50 * (f->hi - f->lo) / f->best.tflops);
}

static bool is_shared(const struct report *r, int point, int group)
{
    for (int l = 0; l < r->input->label_count; l++)
        if (r->summaries[l].group == group && report_figure_at(r, point, l)->rank > 0)
            return true;
    return false;
}

void report_put_comparison(struct page *page, const struct report *r, int group)
{
    const int labels = r->input->label_count;
    char *alignment = xcalloc(2 * (unsigned long)labels + 8, 1), last[200] = "", here[200];
    int columns = 0, shared = 0;
    bool has_decode = false;
    for (int p = 0; p < r->point_count; p++) {
        shared += is_shared(r, p, group);
        has_decode |= r->points[p].row->key.mode == MODE_DECODE;
    }
    strcpy(alignment, "lrr");
    for (int l = 0; l < labels; l++)
        if (r->summaries[l].group == group) {
            strcat(alignment, "rl");
            columns++;
        }
    if (columns > 1 && shared) {
        page_heading(page, 2, "Side by side, burst%s", r->group_count > 1 ? " (within a group)" : "");
        page_text(page,
                  "%s%s of the best implementation that passed its check, and its name; ± half of the 95 %% interval "
                  "of the median. Bold: the fastest; tie: the intervals of the fastest overlap. Empty: not measured.",
                  r->unit, has_decode ? " (of decode GB/s)" : "");
    }
    for (int p = 0; p < r->point_count && columns > 1; p++) {
        const struct record_row *row = r->points[p].row;
        if (!is_shared(r, p, group))
            continue;
        describe_conditions(row, here, sizeof here);
        if (strcmp(here, last) != 0) {
            page_heading(page, 3, "%s", here);
            page_table(page, alignment);
            page_cell(page, CELL_PLAIN, "mask");
            page_cell(page, CELL_PLAIN, "d");
            page_cell(page, CELL_PLAIN, "n");
            for (int l = 0; l < labels; l++)
                if (r->summaries[l].group == group) {
                    page_cell(page, CELL_PLAIN, "%s", report_label_name(r, l));
                    page_cell(page, CELL_PLAIN, "by");
                }
            snprintf(last, sizeof last, "%s", here);
        }
        page_cell(page, CELL_PLAIN, "%s", mask_name(row));
        page_cell(page, CELL_PLAIN, "%lld", (long long)row->key.head_dim);
        cell_length(page, row);
        for (int l = 0; l < labels; l++) {
            const struct report_figure *f = report_figure_at(r, p, l);
            if (r->summaries[l].group != group)
                continue;
            if (f->is_there)
                cell_figure(page, r, f);
            else
                page_cell(page, CELL_PLAIN, "%s", "");
            page_cell(page, CELL_PLAIN, "%s", f->is_there ? f->best.impl : "");
        }
    }
    free(alignment);
}

/* ---- one device ---- */

/* Columns of struct record_row; omitted where no row has a value. */
#define COLUMN(name, field, kind) \
    { \
        name, offsetof(struct record_row, field), kind, NULL \
    }
static const struct report_column device_columns[] = {
    COLUMN("sustained", tflops_sustained, REPORT_SPEED),
    COLUMN("% of GEMM", pct_of_gemm, REPORT_PERCENT),
    COLUMN("% of read", pct_of_read, REPORT_PERCENT),
    COLUMN("x naive", speedup_vs_naive, REPORT_REAL),
    {"x cudnn", 0, REPORT_REAL, "cudnn"},
    {"x fa3", 0, REPORT_REAL, "fa3"},
    COLUMN("TFLOPS/W", tflops_per_w, REPORT_REAL),
    COLUMN("J per pass", energy_j, REPORT_REAL),
    COLUMN("MHz", sm_clock_mhz, REPORT_REAL),
    COLUMN("capped", power_capped_pct, REPORT_PERCENT),
    COLUMN("throttled", throttled_pct, REPORT_PERCENT),
    COLUMN("workspace MB", workspace_mb, REPORT_REAL),
    COLUMN("err/bound", err_used, REPORT_REAL),
};
enum { SUSTAINED_COLUMN = 0 }; /* stands before the burst figure */
enum { DEVICE_COLUMNS = sizeof device_columns / sizeof device_columns[0] };

static double value_at(const struct report_figure *f, int column)
{
    if (device_columns[column].over)
        return strcmp(f->best.impl, device_columns[column].over) == 0
                   ? NAN
                   : record_speedup_over(&f->best, device_columns[column].over);
    return *(const double *)((const char *)&f->best + device_columns[column].offset);
}

static void put_device_line(struct page *page, const struct report *r, int label, int point, const bool *is_shown,
                            bool has_spread, bool has_naive)
{
    const struct report_figure *f = report_figure_at(r, point, label);
    const struct record_row *row = r->points[point].row;
    char text[40];
    page_cell(page, CELL_PLAIN, "%s", mask_name(row));
    page_cell(page, CELL_PLAIN, "%lld", (long long)row->key.head_dim);
    cell_length(page, row);
    page_cell(page, CELL_PLAIN, "%s%s%s%s", f->best.impl, f->ties[0] ? " (tie: " : "", f->ties, f->ties[0] ? ")" : "");
    if (is_shown[SUSTAINED_COLUMN])
        report_cell_real(page, CELL_STRONG, scale_of(r, &f->best) * f->best.tflops_sustained);
    number_print_short(scale_of(r, &f->best) * f->best.tflops, text, sizeof text);
    page_cell(page, CELL_STRONG, "%s", text);
    page_cell(page, CELL_PLAIN, "%.1f %%", 50 * (f->hi - f->lo) / f->best.tflops);
    if (has_spread && f->file_count > 1)
        page_cell(page, CELL_PLAIN, "%.1f %% of %d", 100 * (f->most - f->least) / f->best.tflops, f->file_count);
    else if (has_spread)
        page_cell(page, CELL_PLAIN, "%s", "");
    for (int c = 0; c < DEVICE_COLUMNS; c++)
        if (is_shown[c] && c != SUSTAINED_COLUMN)
            report_cell(page, r, CELL_PLAIN, device_columns[c].kind, value_at(f, c));
    if (has_naive && f->naive_is_oom && !f->has_naive)
        page_cell(page, CELL_BAD, "does not fit");
    else if (has_naive)
        report_cell_real(page, CELL_PLAIN, f->naive_workspace_mb);
}

static void put_device_tables(struct page *page, const struct report *r, int label)
{
    bool is_shown[DEVICE_COLUMNS] = {false}, has_spread = false, has_naive = false;
    char alignment[DEVICE_COLUMNS + 12] = "lrrlrr", last[200] = "", here[200];
    for (int p = 0; p < r->point_count; p++) {
        const struct report_figure *f = report_figure_at(r, p, label);
        for (int c = 0; c < DEVICE_COLUMNS && f->is_there; c++)
            is_shown[c] |= isfinite(value_at(f, c));
        has_spread |= f->is_there && f->file_count > 1;
        has_naive |= f->is_there && (f->naive_is_oom || isfinite(f->naive_workspace_mb));
    }
    for (int c = -2; c < DEVICE_COLUMNS; c++)
        if (c == -2 ? has_spread : c == -1 ? has_naive : is_shown[c])
            strcat(alignment, "r");
    for (int p = 0; p < r->point_count; p++) {
        if (!report_figure_at(r, p, label)->is_there)
            continue;
        describe_conditions(r->points[p].row, here, sizeof here);
        if (strcmp(here, last) != 0) {
            static const char *const first[] = {"mask", "d", "n", "best"};
            snprintf(last, sizeof last, "%s", here);
            page_heading(page, 3, "%s: %s", report_label_name(r, label), here);
            page_table(page, alignment);
            for (size_t i = 0; i < sizeof first / sizeof first[0]; i++)
                page_cell(page, CELL_PLAIN, "%s", first[i]);
            if (is_shown[SUSTAINED_COLUMN])
                page_cell(page, CELL_PLAIN, "sustained %s", unit_of(r, r->points[p].row));
            page_cell(page, CELL_PLAIN, "burst %s", unit_of(r, r->points[p].row));
            page_cell(page, CELL_PLAIN, "±");
            if (has_spread)
                page_cell(page, CELL_PLAIN, "between files");
            for (int c = 0; c < DEVICE_COLUMNS; c++)
                if (is_shown[c] && c != SUSTAINED_COLUMN)
                    page_cell(page, CELL_PLAIN, "%s", device_columns[c].name);
            if (has_naive)
                page_cell(page, CELL_PLAIN, "naive MB");
        }
        put_device_line(page, r, label, p, is_shown, has_spread, has_naive);
    }
}

void report_put_device(struct page *page, const struct report *r, int label)
{
    char *notes = report_notes(r, label), *naive = report_naive_text(r, label);
    bool has_energy = false;
    for (int p = 0; p < r->point_count; p++)
        has_energy |=
            isfinite(report_figure_at(r, p, label)->best.tflops_sustained) && report_figure_at(r, p, label)->is_there;
    page_heading(page, 2, "%s%s%s%s", report_label_name(r, label), notes[0] ? " (" : "", notes, notes[0] ? ")" : "");
    page_item(page, "%d of %d rows passed their check; %d did not fit, %d were refused by their implementation.",
              r->summaries[label].counts.pass, r->summaries[label].counts.rows, r->summaries[label].counts.oom,
              r->summaries[label].counts.unsupported);
    page_item(page, "Memory of naive (three passes): %s.", naive[0] ? naive : "not measured");
    if (!has_energy)
        page_item(page, "No sustained TFLOPS, TFLOPS/W or J per pass: these records hold no --sustain-s region.");
    put_device_tables(page, r, label);
    free(notes);
    free(naive);
}
