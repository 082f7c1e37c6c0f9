/* The command: reads the records, draws the charts, writes the files. */
#include "cmd/report/report.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd/base/csv.h"
#include "cmd/base/log.h"
#include "cmd/base/paths.h"
#include "cmd/base/terminal.h"
#include "cmd/chart/chart_gnuplot.h"
#include "cmd/record/record_row.h"
#include "cmd/report/boards.h"
#include "cmd/report/history.h"
#include "cmd/report/report_data.h"
#include "cmd/report/report_page.h"

/* ---- charts ---- */

/* The figures of one group as record files for the charts, one file for each label. Their rows have the implementation
 * `best`, and with is_naive_wanted also naive. Texts of the rows belong to the report. */
struct chart_rows {
    struct record_file *files;
    const char **names;
    int count;
    bool is_naive_wanted;
};

static void add_row(struct record_file *file, const struct record_row *row, const char *impl)
{
    struct record_row *copy = &file->rows[file->count++];
    *copy = *row;
    copy->samples_ms = NULL;
    copy->samples = 0;
    snprintf(copy->impl, sizeof copy->impl, "%s", impl);
}

static void make_chart_rows(const struct report *r, int group, bool is_naive_wanted, struct chart_rows *rows)
{
    memset(rows, 0, sizeof *rows);
    rows->files = xcalloc((unsigned long)r->input->label_count, sizeof *rows->files);
    rows->names = xcalloc((unsigned long)r->input->label_count, sizeof *rows->names);
    for (int l = 0; l < r->input->label_count; l++) {
        if (r->summaries[l].group != group)
            continue;
        const struct report_label *label = &r->input->labels[l];
        struct record_file *file = &rows->files[rows->count];
        rows->names[rows->count++] = label->name;
        file->header = r->input->files[label->files[0]].header; /* borrowed */
        file->rows = xcalloc(2 * (unsigned long)r->point_count + 1, sizeof *file->rows);
        for (int p = 0; p < r->point_count; p++) {
            const struct report_figure *f = report_figure_at(r, p, l);
            if (!f->is_there)
                continue;
            add_row(file, &f->best, "best");
            if (!is_naive_wanted || !isfinite(f->naive_workspace_mb))
                continue;
            add_row(file, &f->best, role_name(ATTN_ROLE_NAIVE));
            file->rows[file->count - 1].workspace_mb = f->naive_workspace_mb;
        }
    }
}

static void free_chart_rows(struct chart_rows *rows)
{
    for (int i = 0; i < rows->count; i++)
        free(rows->files[i].rows);
    free(rows->files);
    free(rows->names);
}

/* Draws one page of charts and adds its name to `charts`, also when gnuplot is not installed and only its script is
 * written. */
static int draw_page(const struct chart_set *set, const struct chart_page *page, const char *dir,
                     struct report_charts *charts)
{
    const int written = chart_write_page(set, page, dir, PLOT_SVG);
    if (written <= 0)
        return written < 0 ? EXIT_IO : EXIT_OK;
    if (!charts->is_gnuplot_absent)
        switch (chart_run_page(dir, page->name, PLOT_SVG)) {
        case GNUPLOT_DONE: break;
        case GNUPLOT_ABSENT: charts->is_gnuplot_absent = true; break;
        case GNUPLOT_STUCK:
        case GNUPLOT_FAILED: return EXIT_IO;
        }
    charts->names = xrealloc(charts->names, (unsigned long)(charts->count + 1) * sizeof *charts->names);
    snprintf(charts->names[charts->count++], sizeof charts->names[0], "%s", page->name);
    return EXIT_OK;
}

/* Draws one kind of chart for a group: one page for each dtype, decode apart, two panels per line. */
static int draw_kind(const struct report *r, int group, enum chart_kind kind, const struct overlay *overlay,
                     const char *dir, struct report_charts *charts)
{
    struct chart_rows rows;
    struct chart_set set;
    int status = EXIT_OK;
    make_chart_rows(r, group, kind == CHART_MEMORY, &rows);
    chart_set_make(&set, &(struct chart_input){
                             .files = rows.files, .file_count = rows.count, .labels = rows.names, .overlay = overlay});
    for (int first = 0, count; first < set.panel_count; first += count) {
        count = chart_family_panels(&set, first);
        struct chart_page page = {kind, &set.panels[first], count, count > 1 ? 2 : 1, "", false};
        chart_page_name(&page);
        if (r->group_count > 1)
            snprintf(page.name + strlen(page.name), sizeof page.name - strlen(page.name), "-group%d", group + 1);
        status = exit_worst(status, draw_page(&set, &page, dir, charts));
    }
    chart_set_free(&set);
    free_chart_rows(&rows);
    return status;
}

static int draw(const struct report *r, const struct overlay *overlay, const char *dir, struct report_charts *charts)
{
    static const enum chart_kind kinds[] = {CHART_SUSTAINED, CHART_TFLOPS, CHART_SPEEDUP, CHART_MEMORY};
    int status = EXIT_OK;
    charts->was_asked = true;
    for (int g = 0; g < r->group_count; g++)
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
            status = exit_worst(status, draw_kind(r, g, kinds[k], overlay, dir, charts));
    if (charts->is_gnuplot_absent)
        log_warn("gnuplot is not installed: the page has no charts; their scripts and data are in %s", dir);
    return status;
}

/* ---- files ---- */

static char *default_dir(void)
{
    const char *root = getenv("FABENCH_OUT_ROOT");
    const time_t now = time(NULL);
    struct tm utc;
    char stamp[32] = "";
    if (gmtime_r(&now, &utc))
        strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &utc);
    return xasprintf("%s/report-%s", root && *root ? root : "fabench-out", stamp);
}

enum page_format { PAGE_MARKDOWN, PAGE_HTML, PAGE_CSV };

/* Writes one file of the report: first as <path>.new, then renamed, so that an incomplete file never has the final
 * name. */
static int write_file(const struct report *r, const struct page *page, const char *dir, enum page_format format)
{
    static const char *const names[] = {"report.md", "report.html", "report.csv"};
    char *path = xasprintf("%s/%s", dir, names[format]), *draft = xasprintf("%s.new", path);
    FILE *out = fopen(draft, "we");
    bool good = out != NULL;
    if (good && format == PAGE_MARKDOWN)
        page_write_markdown(page, out, true);
    else if (good && format == PAGE_HTML)
        good = page_write_html(page, out, dir);
    else if (good)
        report_write_csv(r, out);
    good = good && fflush(out) == 0 && !ferror(out);
    if (out && fclose(out) != 0)
        good = false;
    if (!good || rename(draft, path) != 0) {
        log_error("%s: %s", path, errno ? strerror(errno) : "not written");
        good = false;
        remove(draft);
    }
    free(draft);
    free(path);
    return good ? EXIT_OK : EXIT_IO;
}

static int write_report(const struct report *r, const struct options *o, const struct overlay *overlay)
{
    struct report_charts charts = {0};
    char *dir = o->out_dir ? xstrdup(o->out_dir) : default_dir();
    const bool is_made = path_make_dirs(dir);
    int status = is_made ? EXIT_OK : EXIT_IO;
    if (is_made && o->plot != PLOT_NONE)
        status = draw(r, overlay, dir, &charts);
    if (is_made) { /* a chart that failed was reported on stderr and is not on the page */
        struct page *page = report_page(r, &charts, overlay), *brief = report_brief(r);
        int written = EXIT_OK;
        for (int format = PAGE_MARKDOWN; format <= PAGE_CSV; format++)
            written = exit_worst(written, write_file(r, page, dir, (enum page_format)format));
        status = exit_worst(status, written);
        if (written == EXIT_OK && !o->quiet) {
            page_write_text(brief, stdout, terminal_width());
            printf("\nreport: %s/ report.html report.md report.csv, %d chart%s\n", dir,
                   charts.is_gnuplot_absent ? 0 : charts.count, charts.count == 1 ? "" : "s");
        }
        page_close(page);
        page_close(brief);
    }
    free(charts.names);
    free(dir);
    return status;
}

int report_run(const struct options *o, const struct overlay *overlay)
{
    struct report_input input;
    struct report report;
    if (o->is_fleet)
        return boards_run(o);
    if (o->is_history)
        return history_run(o);
    int status = report_input_read(o, &input);
    if (status == EXIT_OK) {
        report_make(&report, &input);
        report_make_groups(&report);
        if (o->out_dir && strcmp(o->out_dir, "none") == 0) {
            struct page *page = report_page(&report, &(struct report_charts){0}, NULL);
            page_write_markdown(page, stdout, false);
            page_close(page);
        } else {
            status = write_report(&report, o, overlay);
        }
        if (report.group_count > 1) {
            log_error("not comparable: the %d labels make %d groups that share no problem under the same conditions",
                      input.label_count, report.group_count);
            status = exit_worst(status, EXIT_NOT_COMPARABLE);
        }
        report_free(&report);
    }
    report_input_free(&input);
    return status;
}

/* Writes the figures of the report as CSV. */

enum { DIGITS = 10 }; /* significant ones of a real number */

/* Columns of the record that are written unchanged. */
#define REAL(field) \
    { \
#field, offsetof(struct record_row, field) \
    }
static const struct {
    const char *name;
    size_t offset;
} reals[] = {
    REAL(tflops_sustained), REAL(gemm_tflops),  REAL(pct_of_gemm),  REAL(speedup_vs_naive), REAL(power_w),
    REAL(energy_j),         REAL(tflops_per_w), REAL(sm_clock_mhz), REAL(temp_c),           REAL(power_capped_pct),
    REAL(throttled_pct),    REAL(workspace_mb), REAL(err_used),
};
enum { REALS = sizeof reals / sizeof reals[0] };

static void add_texts(struct csv_row *line, const char *const *texts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        csv_add_foreign(line, texts[i]);
}

/* The columns on the device, the problem and the timing method. */
static void add_conditions(struct csv_row *line, const struct report *r, int point, int label)
{
    const struct report_figure *f = report_figure_at(r, point, label);
    const struct record_row *row = r->points[point].row;
    const int64_t counts[] = {row->key.causal,   row->key.batch,       row->key.q_heads,
                              row->key.kv_heads, row->key.q_len,       row->key.kv_len,
                              row->key.head_dim, row->key.window_left, row->key.window_right};
    csv_add_foreign(line, r->input->labels[label].name);
    csv_add_foreign(line, f->best.device);
    csv_add_count(line, r->summaries[label].group + 1);
    csv_add(line, problem_mode_name(row->key.mode));
    csv_add(line, problem_dtype_name(row->key.dtype));
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        csv_add_count(line, counts[i]);
    add_texts(line,
              (const char *const[]){problem_layout_name(row->key.layout), problem_dist_name(row->key.dist),
                                    problem_l2_name(row->key.l2), row->method},
              4);
    csv_add_count(line, r->points[point].set_index >= 0);
}

static void add_figures(struct csv_row *line, const struct report *r, int point, int label)
{
    const struct report_figure *f = report_figure_at(r, point, label);
    const double price = r->input->labels[label].price;
    csv_add_foreign(line, f->best.impl);
    csv_add_foreign(line, f->ties);
    csv_add_real(line, f->best.tflops, DIGITS);
    csv_add_real(line, f->lo, DIGITS);
    csv_add_real(line, f->hi, DIGITS);
    csv_add_count(line, f->file_count);
    csv_add_real(line, f->file_count > 1 ? 100 * (f->most - f->least) / f->best.tflops : NAN, DIGITS);
    csv_add_count(line, f->rank ? f->rank : INT64_MIN);
    csv_add_count(line, f->rank ? f->is_tied : INT64_MIN);
    for (int i = 0; i < REALS; i++)
        csv_add_real(line, *(const double *)((const char *)&f->best + reals[i].offset), DIGITS);
    csv_add(line, f->has_naive ? "ok" : f->naive_is_oom ? "oom" : "");
    csv_add_real(line, f->naive_workspace_mb, DIGITS);
    csv_add_real(line, price, DIGITS);
    csv_add(line, isfinite(price) ? r->input->currency : "");
    csv_add_real(line, f->best.tflops / price, DIGITS);
    csv_add_real(line, r->points[point].row->key.logit_std, DIGITS);
}

static void add_names(struct csv_row *line)
{
    static const char *const conditions[] = {
        "label",   "device",   "group", "mode",   "dtype",           "causal",      "batch",
        "q_heads", "kv_heads", "q_len", "kv_len", "head_dim",        "window_left", "window_right",
        "layout",  "dist",     "l2",    "method", "in_published_set"};
    static const char *const figures[] = {
        "impl", "tied_impls", "tflops", "tflops_ci_lo", "tflops_ci_hi", "files", "spread_between_files_pct",
        "rank", "is_tied"};
    static const char *const more[] = {"naive_status", "naive_workspace_mb",       "price",
                                       "currency",     "tflops_per_currency_unit", "logit_std"};
    add_texts(line, conditions, sizeof conditions / sizeof conditions[0]);
    add_texts(line, figures, sizeof figures / sizeof figures[0]);
    for (int i = 0; i < REALS; i++)
        csv_add(line, reals[i].name);
    add_texts(line, more, sizeof more / sizeof more[0]);
}

void report_write_csv(const struct report *r, FILE *out)
{
    struct csv_row line = {0};
    add_names(&line);
    csv_put(&line, out);
    for (int p = 0; p < r->point_count; p++)
        for (int l = 0; l < r->input->label_count; l++) {
            if (!report_figure_at(r, p, l)->is_there)
                continue;
            add_conditions(&line, r, p, l);
            add_figures(&line, r, p, l);
            csv_put(&line, out);
        }
    csv_free(&line);
}
