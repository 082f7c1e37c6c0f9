/* Writes the figures of the report as CSV. */
#include <math.h>
#include <stddef.h>

#include "cmd/base/csv.h"
#include "cmd/report/report_page.h"

enum { DIGITS = 10 }; /* significant ones of a real number */

/* Columns of the record that are written unchanged. */
#define REAL(field)                                                                                                    \
    {                                                                                                                  \
#field, offsetof(struct record_row, field)                                                                     \
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
        csv_add(line, texts[i]);
}

/* The columns on the device, the problem and the timing method. */
static void add_conditions(struct csv_row *line, const struct report *r, int point, int label)
{
    const struct report_figure *f = report_figure_at(r, point, label);
    const struct record_row *row = r->points[point].row;
    const int64_t counts[] = {row->key.causal,   row->key.batch,       row->key.q_heads,
                              row->key.kv_heads, row->key.q_len,       row->key.kv_len,
                              row->key.head_dim, row->key.window_left, row->key.window_right};
    csv_add(line, r->input->labels[label].name);
    csv_add(line, f->best.device);
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
    csv_add(line, f->best.impl);
    csv_add(line, f->ties);
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
