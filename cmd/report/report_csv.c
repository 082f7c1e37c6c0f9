/* The report's figures for programs. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "cmd/base/text.h"
#include "cmd/report/report_page.h"

static void put_text(FILE *out, const char *text)
{
    char clean[600];
    text_clean(text, clean, sizeof clean);
    if (!strpbrk(clean, ",\"")) {
        fputs(clean, out);
        return;
    }
    fputc('"', out);
    for (const char *c = clean; *c; c++)
        fprintf(out, *c == '"' ? "\"\"" : "%c", *c);
    fputc('"', out);
}

static void put_real(FILE *out, double value)
{
    if (isfinite(value))
        fprintf(out, ",%.10g", value);
    else
        fputc(',', out);
}

static void put_count(FILE *out, int64_t value)
{
    if (value == INT64_MIN)
        fputc(',', out);
    else
        fprintf(out, ",%lld", (long long)value);
}

/* Figures that go out as they are, by their columns' names. */
#define REAL(field) {#field, offsetof(struct record_row, field)}
static const struct { const char *name; size_t offset; } reals[] = {
    REAL(tflops_sustained), REAL(gemm_tflops),   REAL(pct_of_gemm),  REAL(speedup_vs_naive), REAL(power_w),
    REAL(energy_j),         REAL(tflops_per_w),  REAL(sm_clock_mhz), REAL(temp_c),           REAL(power_capped_pct),
    REAL(throttled_pct),    REAL(workspace_mb),  REAL(err_used),
};
enum { REALS = sizeof reals / sizeof reals[0] };

static void put_line(const struct report *r, int point, int label, FILE *out)
{
    const struct report_figure *f = report_figure_at(r, point, label);
    const struct report_label *l = &r->input->labels[label];
    const struct record_row *row = r->points[point].row;
    const int64_t counts[] = {row->key.causal,  row->key.batch,  row->key.q_heads,     row->key.kv_heads,    row->key.q_len,
                              row->key.kv_len,  row->key.head_dim, row->key.window_left, row->key.window_right};
    put_text(out, l->name);
    fputc(',', out);
    put_text(out, f->best.device);
    fprintf(out, ",%d,%s,%s", r->summaries[label].group + 1, problem_mode_name(row->key.mode),
            problem_dtype_name(row->key.dtype));
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        put_count(out, counts[i]);
    fprintf(out, ",%s,%s,%s,%s", problem_layout_name(row->key.layout), problem_dist_name(row->key.dist),
            problem_l2_name(row->key.l2), row->method);
    fprintf(out, ",%d,%s,", r->points[point].set_index >= 0, f->best.impl);
    put_text(out, f->ties);
    put_real(out, f->best.tflops);
    put_real(out, f->lo);
    put_real(out, f->hi);
    fprintf(out, ",%d", f->file_count);
    put_real(out, f->file_count > 1 ? 100 * (f->most - f->least) / f->best.tflops : NAN);
    put_count(out, f->rank ? f->rank : INT64_MIN);
    put_count(out, f->rank ? f->is_tied : INT64_MIN);
    for (int i = 0; i < REALS; i++)
        put_real(out, *(const double *)((const char *)&f->best + reals[i].offset));
    fprintf(out, ",%s", f->has_naive ? "ok" : f->naive_is_oom ? "oom" : "");
    put_real(out, f->naive_workspace_mb);
    put_real(out, l->price);
    fprintf(out, ",%s", isfinite(l->price) ? r->input->currency : "");
    put_real(out, f->best.tflops / l->price);
    fputc('\n', out);
}

void report_write_csv(const struct report *r, FILE *out)
{
    fputs("label,device,group,mode,dtype,causal,batch,q_heads,kv_heads,q_len,kv_len,head_dim,window_left,window_right,"
          "layout,dist,l2,method,in_published_set,impl,tied_impls,tflops,tflops_ci_lo,tflops_ci_hi,files,"
          "spread_between_files_pct,rank,is_tied", out);
    for (int i = 0; i < REALS; i++)
        fprintf(out, ",%s", reals[i].name);
    fputs(",naive_status,naive_workspace_mb,price,currency,tflops_per_currency_unit\n", out);
    for (int p = 0; p < r->point_count; p++)
        for (int l = 0; l < r->input->label_count; l++)
            if (report_figure_at(r, p, l)->is_there)
                put_line(r, p, l, out);
}
