/* gnuplot scripts. A script needs only its data file, so that a user can edit it and run it again.
 *
 * Text from records appears only inside single quotes, where gnuplot expands nothing; the terminals are `noenhanced`,
 * so that an underscore is not a subscript. Every panel has its own margins on the screen; a last, empty plot over the
 * whole page has title, conditions and key, so that these never cover data.
 */
#include "cmd/chart/chart_gnuplot.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/process.h"
#include "cmd/base/terminal.h"
#include "cmd/base/text.h"
#include "cmd/chart/chart_script.h"
#include "cmd/record/record.h"
#include "cmd/record/record_row.h"

static bool is_drawable(const struct script *s, const struct chart_kind_def *kind, const struct chart_point *point)
{
    return isfinite(point->value) && (!kind->has_log_y || point->value > 0 || (point->value == 0 && s->zero_y > 0));
}

static double y_of(const struct script *s, const struct chart_kind_def *kind, double value)
{
    return kind->has_log_y && value == 0 ? s->zero_y : value;
}

/* Points with `is_failed` as asked, as one block; false when there are none. */
static bool put_points(struct script *s, const struct chart_kind_def *kind, const struct chart_point *points, int count,
                       bool is_failed, const char *title, const char *label)
{
    int written = 0;
    for (int i = 0; i < count; i++) {
        const struct chart_point *p = &points[i];
        if (p->is_failed != is_failed || !is_drawable(s, kind, p))
            continue;
        if (!written)
            script_begin_block(s, "%s, %s%s: n, %s, low, high", title, label, is_failed ? ", failed its check" : "",
                               kind->is_speed || s->is_over_batch
                                   ? s->unit
                                   : chart_kind_name((enum chart_kind)(kind - chart_kinds), (struct chart_family){0}));
        else if (!is_failed && p->is_after_gap)
            fputc('\n', s->data);
        fprintf(s->data, "%lld,%.10g,%.10g,%.10g\n", (long long)p->n, y_of(s, kind, p->value), y_of(s, kind, p->lo),
                y_of(s, kind, p->hi));
        written++;
    }
    return written > 0;
}

static void add_series(struct script *s, const struct chart_set *set, const struct chart_panel *panel, int index,
                       enum chart_kind which)
{
    const struct chart_kind_def *kind = &chart_kinds[which];
    const struct chart_series *series = &set->series[index];
    struct chart_point *points;
    char title[64], label[sizeof series->label];
    const int count = chart_points(set, panel, series, which, &points);
    if (which == CHART_SPEEDUP && role_of_name(series->impl) == ATTN_ROLE_NAIVE) {
        free(points);
        return;
    }
    chart_panel_title(panel, title, sizeof title);
    text_clean(series->label, label, sizeof label);
    if (put_points(s, kind, points, count, false, title, label)) {
        const bool has_bars = (which == CHART_TFLOPS || which == CHART_TIME) && !s->is_text;
        script_begin_element(s);
        fprintf(s->body, "%s index %d using %s with %s ", s->source, s->blocks - 1, has_bars ? "1:2:3:4" : "1:2",
                has_bars ? "yerrorlines" : "linespoints");
        script_series_style(s, series, s->body);
        fprintf(s->body, " title ");
        script_put_quoted(s->body, series->label);
        s->is_used[index] = true;
    }
    if (put_points(s, kind, points, count, true, title, label)) {
        script_begin_element(s);
        fprintf(s->body, "%s index %d using 1:2 with points lc rgb '%s' pt %d ps 1.3 lw 2 title ", s->source,
                s->blocks - 1, "#FF0000", series->point - 1);
        script_put_quoted(s->body, s->is_text ? "FAILED" : "");
        s->has_failed = true;
    }
    free(points);
}

/* The model of a series' bytes, as a line without points. */
static void add_model(struct script *s, const struct chart_set *set, const struct chart_panel *panel, int index)
{
    const struct chart_series *series = &set->series[index];
    struct chart_point *points;
    char title[64], label[sizeof series->label];
    const int count = chart_model(set, panel, series, &points);
    text_clean(series->label, label, sizeof label);
    for (int i = 0; i < count; i++) {
        if (i == 0)
            script_begin_block(s, "%s, %s: n, bytes of the model", chart_panel_title(panel, title, sizeof title),
                               label);
        fprintf(s->data, "%lld,%.10g\n", (long long)points[i].n, points[i].value);
    }
    if (count) {
        script_begin_element(s);
        fprintf(s->body, "%s index %d using 1:2 with lines lc rgb '%s' dt 3 lw 1.5 title ''", s->source, s->blocks - 1,
                series->color);
        s->is_used[index] = s->has_model = true;
    }
    free(points);
}

/* Extends the line to both edges, so that a ceiling is visible even for a single length. */
static void add_reference(struct script *s, const struct chart_panel *panel, const struct chart_point *points,
                          int count, const char *style, const char *label)
{
    char title[64];
    if (!count)
        return;
    script_begin_block(s, "%s, %s: n, value", chart_panel_title(panel, title, sizeof title), label);
    fprintf(s->data, "%.10g,%.10g\n", (double)s->least_n * 0.8, points[0].value);
    for (int i = 0; i < count; i++)
        fprintf(s->data, "%lld,%.10g\n", (long long)points[i].n, points[i].value);
    fprintf(s->data, "%.10g,%.10g\n", (double)s->most_n * 1.25, points[count - 1].value);
    script_begin_element(s);
    fprintf(s->body, "%s index %d using 1:2 with lines %s title ", s->source, s->blocks - 1, s->is_text ? "" : style);
    script_put_quoted(s->body, s->is_text ? label : "");
}

static void add_references(struct script *s, const struct chart_set *set, const struct chart_panel *panel,
                           enum chart_kind which)
{
    struct chart_point *points;
    char style[64];
    for (int f = 0; which == CHART_TFLOPS && f < set->file_count; f++) {
        const int count = chart_ceiling(set, panel, f, &points);
        add_reference(s, panel, points, count, script_ceiling_style(set, f, style, sizeof style),
                      chart_ceiling_name(panel));
        s->has_ceiling_of[f] |= count > 0;
        s->has_ceiling |= count > 0;
        free(points);
    }
    for (int of_naive = 0; which == CHART_ERROR && of_naive < 2; of_naive++) {
        const int count = chart_bound(set, panel, of_naive, &points);
        add_reference(s, panel, points, count, of_naive ? script_naive_bound_style : script_bound_style, "bound");
        if (of_naive)
            s->has_naive_bound |= count > 0;
        else
            s->has_bound |= count > 0;
        free(points);
    }
    if (which == CHART_SPEEDUP && s->elements) {
        script_begin_element(s);
        fprintf(s->body, "1 with lines %s title ''", script_unity_style);
    }
}

/* Published points: marks without a line, drawn below everything measured. */
static void add_overlay(struct script *s, const struct chart_set *set, const struct chart_panel *panel)
{
    for (int i = 0; i < set->overlay_count; i++) {
        struct chart_point *points;
        char title[64], style[64], label[64];
        const int count = chart_overlay(set, panel, i, &points);
        if (count) {
            script_begin_block(s, "%s, %s, published: n, %s", chart_panel_title(panel, title, sizeof title),
                               set->overlay_names[i], set->unit);
            for (int k = 0; k < count; k++)
                fprintf(s->data, "%lld,%.10g\n", (long long)points[k].n, points[k].value);
            script_begin_element(s);
            snprintf(label, sizeof label, "%s (published)", set->overlay_names[i]);
            fprintf(s->body, "%s index %d using 1:2 with points %s title ", s->source, s->blocks - 1,
                    s->is_text ? "" : script_overlay_style(i, style, sizeof style));
            script_put_quoted(s->body, s->is_text ? label : "");
            s->has_overlay_of[i] = true;
        }
        free(points);
    }
}

/* ---- axes ---- */

static void put_tick(FILE *out, const char *separator, int64_t n)
{
    if (n % 1024 == 0)
        fprintf(out, "%s'%lldK' %lld", separator, (long long)(n / 1024), (long long)n);
    else
        fprintf(out, "%s'%lld' %lld", separator, (long long)n, (long long)n);
}

/* Tics at powers of two; where fewer than two lie in the range, at its ends. */
static void put_x_axis(struct script *s)
{
    int ticks = 0;
    fprintf(s->body, "set logscale x 2\nset xrange [%.10g:%.10g]\nset xtics (", (double)s->least_n * 0.8,
            (double)s->most_n * 1.25);
    for (int bit = 0; bit < 62; bit++)
        if ((int64_t)1 << bit >= s->least_n && (int64_t)1 << bit <= s->most_n)
            put_tick(s->body, ticks++ ? ", " : "", (int64_t)1 << bit);
    if (ticks == 0)
        put_tick(s->body, "", s->least_n);
    if (ticks < 2 && s->most_n > s->least_n + s->least_n / 8)
        put_tick(s->body, ", ", s->most_n);
    fprintf(s->body, ")\n");
}

/* Whole decades that contain all values of the page, and one decade below for zeros. */
static void measure_y(struct script *s, const struct chart_set *set, const struct chart_page *page)
{
    double least = INFINITY, most = 0;
    bool has_zero = false;
    for (int p = 0; p < page->panel_count; p++)
        for (int i = 0; i < 2 * set->series_count + 2; i++) {
            struct chart_point *points;
            int count = 0;
            if (i < set->series_count)
                count = chart_points(set, &page->panels[p], &set->series[i], page->kind, &points);
            else if (page->kind == CHART_BYTES && i < 2 * set->series_count)
                count = chart_model(set, &page->panels[p], &set->series[i - set->series_count], &points);
            else if (page->kind == CHART_ERROR && i < set->series_count + 2)
                count = chart_bound(set, &page->panels[p], i > set->series_count, &points);
            else
                break;
            for (int k = 0; k < count; k++) {
                has_zero |= points[k].value == 0;
                if (points[k].value > 0) {
                    least = fmin(least, points[k].value);
                    most = fmax(most, points[k].value);
                }
            }
            free(points);
        }
    if (!isfinite(least))
        least = most = 1; /* nothing but zeros */
    /* Even absurd values are drawn, limited to the range of gnuplot's arithmetic. */
    s->low_y = pow(10, fmax(floor(log10(least) - 0.02), -300));
    s->high_y = pow(10, fmin(ceil(log10(most) + 0.02), 300));
    s->zero_y = NAN;
    if (has_zero && page->kind == CHART_MEMORY) {
        s->zero_y = s->low_y / 10;
        s->low_y = s->zero_y / 2;
    }
}

/* The end of a linear axis that all panels of a page share: what the highest of all points needs, and some room. */
static double linear_top(const struct chart_set *set, const struct chart_page *page)
{
    double most = 0;
    for (int p = 0; p < page->panel_count; p++) {
        const int references = page->kind == CHART_TFLOPS ? set->file_count + set->overlay_count : 0;
        for (int i = 0; i < set->series_count + references; i++) {
            const int file = i - set->series_count, name = file - set->file_count;
            struct chart_point *points;
            const int count = file < 0   ? chart_points(set, &page->panels[p], &set->series[i], page->kind, &points)
                              : name < 0 ? chart_ceiling(set, &page->panels[p], file, &points)
                                         : chart_overlay(set, &page->panels[p], name, &points);
            for (int k = 0; k < count; k++) /* the interval of a published point is not there */
                most = fmax(most, fmax(points[k].value, file < 0 ? points[k].hi : NAN));
            free(points);
        }
    }
    return page->kind == CHART_SPEEDUP ? fmax(most, 1) : most;
}

static void put_y_axis(struct script *s, const struct chart_kind_def *kind)
{
    if (!kind->has_log_y) {
        if (s->high_y > 0 && isfinite(s->high_y))
            fprintf(s->body, "set yrange [0:%.10g]\n", s->high_y);
        else
            fprintf(s->body, "set yrange [0:*]\n");
        return;
    }
    fprintf(s->body, "set logscale y\nset yrange [%.10g:%.10g]\nset format y '%s'\n", s->low_y, s->high_y,
            s->high_y > 0.5 ? "%g" : "%.0e");
    if (s->zero_y > 0) {
        fprintf(s->body, "set ytics (%s%.10g", "'0' ", s->zero_y);
        for (double y = s->zero_y * 10; y < s->high_y * 1.5; y *= 10)
            fprintf(s->body, ", '%g' %.10g", y, y);
        fprintf(s->body, ")\n");
    }
}

/* ---- pages ---- */

static void put_panel(struct script *s, const struct chart_set *set, const struct chart_page *page, int index,
                      const struct frame_layout *l)
{
    const int row = index / page->columns, column = index % page->columns;
    const struct chart_panel *panel = &page->panels[index];
    const bool is_lowest = index + page->columns >= page->panel_count;
    char title[64];
    fputc('\n', s->body);
    frame_put_margins(s, l, row, column);
    if (page->panel_count > 1) {
        fprintf(s->body, "set title ");
        script_put_quoted(s->body, chart_panel_title(panel, title, sizeof title));
        fprintf(s->body, " offset 0,-0.5\n");
    }
    fprintf(s->body, "set xlabel '%s'\nset ylabel '%s%s'\n",
            is_lowest ? chart_axis_title(set, chart_family_of(panel)) : "",
            column == 0 && chart_kinds[page->kind].is_speed ? s->unit : "",
            column == 0 ? script_words_of(page)->y_label : "");
    s->elements = 0;
    if (page->kind == CHART_TFLOPS)
        add_overlay(s, set, panel);
    for (int i = set->series_count - 1; i >= 0; i--) /* the first of the key is drawn last, on top */
        add_series(s, set, panel, i, page->kind);
    for (int i = set->series_count - 1; i >= 0 && page->kind == CHART_BYTES; i--)
        add_model(s, set, panel, i);
    add_references(s, set, panel, page->kind);
    if (s->elements == 0)
        fprintf(s->body, "plot NaN title ''");
    fputc('\n', s->body);
}

int chart_write_page(const struct chart_set *set, const struct chart_page *page, const char *dir,
                     enum plot_format format)
{
    struct script s;
    const struct chart_kind_def *kind = &chart_kinds[page->kind];
    const struct frame_layout l = frame_lay_out(set, page);
    char source[sizeof page->name + 8];
    bool has_data = false;
    script_open(&s, set);
    snprintf(source, sizeof source, "'%s.dat'", page->name);
    s.source = source;
    chart_axis_range(set, chart_family_of(page->panels), &s.least_n, &s.most_n);
    s.unit = chart_unit(set, page->panels);
    s.is_over_batch = page->over_batch;
    if (kind->has_log_y)
        measure_y(&s, set, page);
    else if (page->panel_count > 1)
        s.high_y = fmin(linear_top(set, page) * 1.06, 1e300);
    script_put_head(&s, page->name, l.width, l.height, format);
    put_x_axis(&s);
    put_y_axis(&s, kind);
    fprintf(s.body, "set multiplot\n");
    for (int i = 0; i < page->panel_count; i++)
        put_panel(&s, set, page, i, &l);
    for (int i = 0; i < set->series_count; i++)
        has_data |= s.is_used[i];
    has_data |= s.has_failed;
    frame_put(&s, set, page, &l);
    frame_put_key(&s, set, page);
    fprintf(s.body, "unset multiplot\nunset output\n");
    script_finish(&s);
    int result = 0;
    if (has_data)
        result = script_write(&s, dir, page->name) ? 1 : -1;
    script_close(&s);
    return result;
}

enum gnuplot_result chart_run_page(const char *dir, const char *name, enum plot_format format)
{
    char *script = xasprintf("%s.gp", name), *image = xasprintf("%s/%s.%s", dir, name, script_ending(format));
    enum gnuplot_result result = gnuplot_run(dir, script, NULL, NULL, name);
    if (result == GNUPLOT_DONE && access(image, F_OK) != 0) {
        log_error("%s: gnuplot did not write it", image);
        result = GNUPLOT_FAILED;
    }
    if (result == GNUPLOT_FAILED)
        unlink(image);
    free(script);
    free(image);
    return result;
}

/* Copies the output of gnuplot's dumb terminal without its form feed, empty lines and trailing spaces. */
static void copy_text(FILE *from, FILE *to)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    rewind(from);
    while ((length = getline(&line, &room, from)) >= 0) {
        const char *text = line + strspn(line, "\f");
        while (length > 0 && strchr(" \n\f", line[length - 1]))
            line[--length] = '\0';
        if (*text)
            fprintf(to, "%s\n", text);
    }
    free(line);
}

enum gnuplot_result chart_print_panel(const struct chart_set *set, const struct chart_panel *panel, int width,
                                      bool color, FILE *out)
{
    struct script s;
    const struct chart_page page = {CHART_TFLOPS, panel, 1, 1, "term", false};
    const struct chart_family family = chart_family_of(panel);
    char title[64], text[160];
    int height = width / 4;
    height = height < 16 ? 16 : height > 26 ? 26 : height;
    FILE *input = tmpfile(), *output = tmpfile();
    enum gnuplot_result result = GNUPLOT_FAILED;
    script_open(&s, set);
    s.source = "$data";
    s.unit = chart_unit(set, panel);
    s.is_text = true;
    chart_axis_range(set, family, &s.least_n, &s.most_n);
    snprintf(text, sizeof text, "%s %s, %s over %s", chart_panel_title(panel, title, sizeof title),
             problem_dtype_name(panel->dtype), s.unit,
             set->axis == AXIS_LENGTH && !family.is_decode ? "sequence length" : chart_axis_title(set, family));
    fprintf(s.body, "set terminal dumb size %d,%d noenhanced %s\nset datafile separator ','\nset title ", width, height,
            color ? "ansi256" : "mono");
    script_put_quoted(s.body, text);
    fprintf(s.body, "\nset key outside bottom center horizontal width 2\nset tics nomirror\nset border 3\n");
    put_x_axis(&s);
    put_y_axis(&s, &chart_kinds[CHART_TFLOPS]);
    for (int i = 0; i < set->series_count; i++)
        add_series(&s, set, panel, i, page.kind);
    add_overlay(&s, set, panel);
    add_references(&s, set, panel, page.kind);
    fputc('\n', s.body);
    script_finish(&s);
    if (!input || !output)
        log_error("a temporary file for gnuplot: %s", strerror(errno));
    else if (fprintf(input, "$data << EOD\n%s\nEOD\n%s", s.data_text, s.body_text) < 0 || fflush(input) != 0)
        log_error("a temporary file for gnuplot: %s", strerror(errno));
    else {
        rewind(input);
        result = gnuplot_run(NULL, "-", input, output, text);
        if (result == GNUPLOT_DONE)
            copy_text(output, out);
    }
    if (input)
        fclose(input);
    if (output)
        fclose(output);
    script_close(&s);
    return result;
}

/* Runs gnuplot as a child process, with files instead of pipes for input and output, so that neither can block the
 * other. */

/* Passes on what gnuplot wrote to its stderr, a few lines of it. */
static void report_stderr(FILE *errors, const char *name)
{
    char line[256];
    int count = 0;
    rewind(errors);
    while (count < 6 && fgets(line, sizeof line, errors)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[strspn(line, " \t\r^")] == '\0')
            continue;
        char clean[sizeof line];
        text_clean(line, clean, sizeof clean);
        log_warn("gnuplot (%s): %s", name, clean);
        count++;
    }
}

/* Seconds that one chart may take: a chart of 10000 rows takes less than one. */
static double limit_s(void)
{
    const char *text = getenv("FABENCH_GNUPLOT_LIMIT_S");
    double wanted;
    return text && number_parse_real(text, &wanted) && wanted > 0 ? wanted : GNUPLOT_LIMIT_S;
}

enum gnuplot_result gnuplot_run(const char *dir, const char *script, FILE *input, FILE *output, const char *name)
{
    char *const arguments[] = {"gnuplot", "-d", (char *)(uintptr_t)script, NULL};
    FILE *errors = tmpfile();
    struct process process;
    struct process_result result = {.end = PROCESS_STUCK};
    char how[100];
    if (!errors) {
        log_error("gnuplot's messages: %s", strerror(errno));
        return GNUPLOT_FAILED;
    }
    const struct process_request request = {.argv = arguments,
                                            .dir = dir,
                                            .in = input ? fileno(input) : PROCESS_NO_FILE,
                                            .out = fileno(output ? output : errors),
                                            .err = fileno(errors),
                                            .own_group = true};
    /* Without a UTF-8 locale gnuplot warns about its own degree sign in every chart. */
    int error = setenv("LC_ALL", "C.UTF-8", 1) != 0 ? errno : process_start(&request, &process);
    if (!error)
        process_watch(&process, &(struct process_watch){.limit_s = limit_s()}, &result);
    const bool is_absent = error == ENOENT || (!error && result.end == PROCESS_EXITED && result.code == 127);
    const bool is_done = !error && result.end == PROCESS_EXITED && result.code == 0;
    if (error && !is_absent)
        log_error("gnuplot (%s): %s", name, strerror(error));
    if (!error && !is_absent) {
        report_stderr(errors, name);
        if (!is_done)
            log_error("gnuplot (%s) %s", name, process_describe(&result, how, sizeof how));
    }
    fclose(errors);
    return is_absent                                    ? GNUPLOT_ABSENT
           : is_done                                    ? GNUPLOT_DONE
           : !error && result.end == PROCESS_OVER_LIMIT ? GNUPLOT_STUCK
                                                        : GNUPLOT_FAILED;
}
