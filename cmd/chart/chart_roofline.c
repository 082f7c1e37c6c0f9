/* The script of a roofline. Both axes are logarithmic, and all panels of a page have the same. */
#include "cmd/chart/chart_roofline.h"

#include <math.h>
#include <stdlib.h>

#include "cmd/base/text.h"
#include "cmd/chart/chart_script.h"
#include "cmd/record/record_row.h"

/* What the axes have to show. */
struct extent {
    double least_x, most_x, least_y, most_y;
};

static void widen(struct extent *e, double x, double y)
{
    e->least_x = fmin(e->least_x, x);
    e->most_x = fmax(e->most_x, x);
    e->least_y = fmin(e->least_y, y);
    e->most_y = fmax(e->most_y, y);
}

/* The GEMM ceiling of a panel in TFLOPS, the highest of a file's; NaN where there is none. */
static double gemm_of(const struct chart_set *set, const struct chart_panel *panel, int file)
{
    struct chart_point *points;
    const int count = chart_ceiling(set, panel, file, &points);
    double most = NAN;
    for (int i = 0; i < count; i++)
        most = fmax(most, points[i].value / set->unit_scale);
    free(points);
    return most;
}

/* 1e9 bytes per second of copying, read and written; NaN where the header does not have it. */
static double copy_of(const struct chart_set *set, int file)
{
    const json_t *const device = json_object_get(set->files[file].header, "device");
    const json_t *const copy = json_object_get(device, "copy_gbps");
    return json_is_number(copy) && json_number_value(copy) > 0 ? json_number_value(copy) : (double)NAN;
}

static struct extent measure(const struct chart_set *set, const struct chart_page *page)
{
    struct extent e = {INFINITY, 0, INFINITY, 0};
    for (int p = 0; p < page->panel_count; p++) {
        for (int i = 0; i < set->series_count; i++) {
            struct chart_point *points;
            const int count = chart_points(set, &page->panels[p], &set->series[i], CHART_ROOFLINE, &points);
            for (int k = 0; k < count; k++)
                if (!points[k].is_failed && points[k].value > 0)
                    widen(&e, points[k].intensity, points[k].value);
            free(points);
        }
        for (int f = 0; f < set->file_count; f++) {
            const double gemm = gemm_of(set, &page->panels[p], f), ridge = gemm / copy_of(set, f) * 1e3;
            if (isfinite(e.least_x) && isfinite(gemm))
                widen(&e, isfinite(ridge) ? ridge : e.least_x, gemm);
        }
    }
    return e;
}

/* Full points for bytes that were counted, hollow ones for those of the model; of rows that passed. */
static void put_series(struct script *s, const struct chart_set *set, const struct chart_panel *panel, int index)
{
    const struct chart_series *series = &set->series[index];
    struct chart_point *points;
    char title[64], label[sizeof series->label];
    const int count = chart_points(set, panel, series, CHART_ROOFLINE, &points);
    text_clean(series->label, label, sizeof label);
    for (int modelled = 0; modelled < 2; modelled++) {
        int written = 0;
        for (int i = 0; i < count; i++) {
            if (points[i].is_failed || !(points[i].value > 0) || points[i].is_modelled != modelled)
                continue;
            if (!written++)
                script_begin_block(s, "%s, %s: FLOPs per byte %s, TFLOPS, n",
                                   chart_panel_title(panel, title, sizeof title), label,
                                   modelled ? "of the model" : "counted");
            fprintf(s->data, "%.10g,%.10g,%lld\n", points[i].intensity, points[i].value, (long long)points[i].n);
        }
        if (!written)
            continue;
        script_begin_element(s);
        fprintf(s->body, "%s index %d using 1:2 with points lc rgb '%s' pt %d ps 1.1 lw 2 title ''", s->source,
                s->blocks - 1, series->color, modelled ? series->point - 1 : series->point);
        s->is_used[index] = true;
    }
    free(points);
}

/* The ceilings of a file: copying up to the ridge, the GEMM from there on. */
static void put_roof(struct script *s, const struct chart_set *set, const struct chart_panel *panel, int file,
                     const struct extent *e)
{
    const double gemm = gemm_of(set, panel, file), copy = copy_of(set, file) * 1e-3, ridge = gemm / copy;
    const double left = e->least_x / 4, right = e->most_x * 4;
    char title[64];
    if (!isfinite(gemm))
        return;
    script_begin_block(s, "%s, ceilings of %s: FLOPs per byte, TFLOPS", chart_panel_title(panel, title, sizeof title),
                       set->file_labels[file]);
    if (isfinite(ridge) && ridge > left)
        fprintf(s->data, "%.10g,%.10g\n%.10g,%.10g\n", left, left * copy, ridge, gemm);
    else
        fprintf(s->data, "%.10g,%.10g\n", left, gemm);
    fprintf(s->data, "%.10g,%.10g\n", right, gemm);
    script_begin_element(s);
    fprintf(s->body, "%s index %d using 1:2 with lines %s title ''", s->source, s->blocks - 1, script_roof_style);
    s->has_roof = true;
}

static void put_panel(struct script *s, const struct chart_set *set, const struct chart_page *page, int index,
                      const struct frame_layout *l, const struct extent *e)
{
    const struct chart_panel *panel = &page->panels[index];
    const bool is_lowest = index + page->columns >= page->panel_count;
    char title[64];
    fputc('\n', s->body);
    frame_put_margins(s, l, index / page->columns, index % page->columns);
    if (page->panel_count > 1) {
        fprintf(s->body, "set title ");
        script_put_quoted(s->body, chart_panel_title(panel, title, sizeof title));
        fprintf(s->body, " offset 0,-0.5\n");
    }
    fprintf(s->body, "set xlabel '%s'\nset ylabel '%s'\n", is_lowest ? "FLOPs per byte of device memory" : "",
            index % page->columns == 0 ? chart_kinds[CHART_ROOFLINE].y_label : "");
    s->elements = 0;
    for (int i = set->series_count - 1; i >= 0; i--)
        put_series(s, set, panel, i);
    for (int f = 0; f < set->file_count && s->elements; f++)
        put_roof(s, set, panel, f, e);
    if (s->elements == 0)
        fprintf(s->body, "plot NaN title ''");
    fputc('\n', s->body);
}

static void put_axes(struct script *s, const struct extent *e)
{
    fprintf(s->body,
            "set logscale x 2\nset xrange [%.10g:%.10g]\nset format x '%%g'\nset logscale y\nset yrange "
            "[%.10g:%.10g]\nset format y '%%g'\n",
            pow(2, floor(log2(e->least_x) - 0.2)), pow(2, ceil(log2(e->most_x) + 0.2)), e->least_y / 2, e->most_y * 2);
    /* 1, 2 and 5 of each decade: few rooflines have a whole one. */
    const char *separator = "set ytics (";
    for (double decade = pow(10, floor(log10(e->least_y)) - 1); decade < e->most_y * 2; decade *= 10)
        for (int i = 0; i < 3; i++, separator = ", ")
            fprintf(s->body, "%s%g", separator, decade * (i == 0 ? 1 : i == 1 ? 2 : 5));
    fprintf(s->body, ")\n");
}

int roofline_write_page(const struct chart_set *set, const struct chart_page *page, const char *dir,
                        enum plot_format format)
{
    struct script s;
    const struct frame_layout l = frame_lay_out(set, page);
    const struct extent e = measure(set, page);
    char source[sizeof page->name + 8];
    int result = 0;
    if (!isfinite(e.least_x) || !(e.most_y > 0))
        return 0;
    script_open(&s, set);
    snprintf(source, sizeof source, "'%s.dat'", page->name);
    s.source = source;
    s.unit = chart_kinds[CHART_ROOFLINE].y_label;
    script_put_head(&s, page->name, l.width, l.height, format);
    put_axes(&s, &e);
    fprintf(s.body, "set multiplot\n");
    for (int i = 0; i < page->panel_count; i++)
        put_panel(&s, set, page, i, &l, &e);
    frame_put(&s, set, page, &l);
    frame_put_key(&s, set, page);
    fprintf(s.body, "unset multiplot\nunset output\n");
    script_finish(&s);
    result = script_write(&s, dir, page->name) ? 1 : -1;
    script_close(&s);
    return result;
}
