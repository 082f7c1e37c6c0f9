/* Decides which charts are drawn, and draws text bars where gnuplot is absent. */
#include "cmd/chart/chart.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/paths.h"
#include "cmd/base/terminal.h"
#include "cmd/base/text.h"
#include "cmd/chart/chart_gnuplot.h"
#include "cmd/chart/chart_markdown.h"
#include "cmd/chart/chart_roofline.h"
#include "cmd/chart/chart_slide.h"
#include "cmd/record/record_figures.h"
#include "cmd/record/record_file.h"
#include "cmd/record/record_row.h"

/* State of the chart writer: whether gnuplot works, and what was written. A gnuplot that did not end once is not
 * started again. */
struct progress {
    const bool *kinds; /* that are drawn; NULL: the usual ones */
    enum plot_layout layout;
    bool is_absent, is_stuck;
    int scripts, images, failures;
};

static void make_page(const struct chart_set *set, const struct chart_page *page, const char *dir,
                      enum plot_format format, struct progress *progress)
{
    const int written = progress->layout == LAYOUT_SLIDE ? slide_write(set, page, dir, format)
                        : page->kind == CHART_ROOFLINE   ? roofline_write_page(set, page, dir, format)
                                                         : chart_write_page(set, page, dir, format);
    if (written <= 0) {
        progress->failures += written < 0;
        return;
    }
    progress->scripts++;
    if (progress->is_absent || progress->is_stuck)
        return;
    switch (chart_run_page(dir, page->name, format)) {
    case GNUPLOT_DONE: progress->images++; break;
    case GNUPLOT_ABSENT: progress->is_absent = true; break;
    case GNUPLOT_STUCK:
        progress->is_stuck = true;
        progress->failures++;
        break;
    case GNUPLOT_FAILED: progress->failures++; break;
    }
}

static bool is_drawn(const struct chart_set *set, const struct progress *progress, int kind)
{
    if (progress->layout == LAYOUT_SLIDE && kind == CHART_ROOFLINE) /* has no bars */
        return false;
    return progress->kinds ? progress->kinds[kind]
                           : kind < CHART_USUAL_KINDS || (set->has_counts && kind >= CHART_BYTES);
}

/* A page of one panel: "tflops-fwd-causal-d64-bf16". */
static struct chart_page page_of_panel(enum chart_kind kind, const struct chart_panel *panel)
{
    struct chart_page page = {.kind = kind, .panels = panel, .panel_count = 1, .columns = 1};
    char heads[48] = "", batch[32] = "";
    if (panel->q_heads)
        snprintf(heads, sizeof heads, "-h%lldx%lld", (long long)panel->q_heads, (long long)panel->kv_heads);
    if (panel->batch < 0)
        snprintf(batch, sizeof batch, "-unequal");
    else if (panel->batch)
        snprintf(batch, sizeof batch, "-b%lld", (long long)panel->batch);
    snprintf(page.name, sizeof page.name, "%s-%s-%s-d%lld-%s%s%s", chart_kind_name(kind, chart_family_of(panel)),
             problem_mode_name(panel->mode), panel->causal ? "causal" : "full", (long long)panel->head_dim,
             problem_dtype_name(panel->dtype), heads, batch);
    return page;
}

/* Slides of the panels [first, first + count) of one family: one for each kind and mode; for each panel where these
 * would have too many bars. */
static void make_slides(const struct chart_set *set, int first, int count, const char *dir, enum plot_format format,
                        struct progress *progress)
{
    for (int kind = 0; kind < CHART_KIND_COUNT; kind++)
        for (int p = first, end; is_drawn(set, progress, kind) && p < first + count; p = end) {
            for (end = p; end < first + count && set->panels[end].mode == set->panels[p].mode;)
                end++;
            struct chart_page page = {
                .kind = (enum chart_kind)kind, .panels = &set->panels[p], .panel_count = end - p, .columns = 1};
            snprintf(page.name, sizeof page.name, "%s-%s-%s-slide",
                     chart_kind_name(page.kind, chart_family_of(page.panels)), problem_mode_name(set->panels[p].mode),
                     problem_dtype_name(set->panels[p].dtype));
            if (slide_fits(set, &page)) {
                make_page(set, &page, dir, format, progress);
                continue;
            }
            for (int i = p; i < end; i++) {
                page = page_of_panel((enum chart_kind)kind, &set->panels[i]);
                strcat(page.name, "-slide");
                make_page(set, &page, dir, format, progress);
            }
        }
}

/* Panels beside each other: full and causal where both are there; two of decode where it has many. */
static int columns_of(const struct chart_set *set, const struct chart_panel *panels)
{
    const int count = chart_family_panels(set, (int)(panels - set->panels));
    bool has_mask[2] = {false, false};
    for (int i = 0; i < count; i++)
        has_mask[panels[i].causal != 0] = true;
    return (has_mask[0] && has_mask[1]) || panels->q_heads || panels->batch || panels->kv_len ? 2 : 1;
}

/* Times of decode over the batch, where it has more than one: a page for each dtype. */
static void make_pages_over_batch(const struct chart_input *input, const char *dir, enum plot_format format,
                                  struct progress *progress)
{
    struct chart_input again = *input;
    struct chart_set set;
    again.over_batch = true;
    chart_set_make(&set, &again);
    for (int first = 0, count; first < set.panel_count && set.has_batches; first += count) {
        count = chart_family_panels(&set, first);
        struct chart_page page = {.kind = CHART_TIME,
                                  .panels = &set.panels[first],
                                  .panel_count = count,
                                  .columns = count > 1 ? 2 : 1,
                                  .over_batch = true};
        chart_page_name(&page);
        make_page(&set, &page, dir, format, progress);
    }
    chart_set_free(&set);
}

/* The panels [first, first + count) have one family: a page of each kind, and one image per panel for the speed. */
static void make_family(const struct chart_set *set, int first, int count, const char *dir, enum plot_format format,
                        struct progress *progress)
{
    const struct chart_panel *panels = &set->panels[first];
    for (int kind = 0; kind < CHART_KIND_COUNT; kind++) {
        if (!is_drawn(set, progress, kind) || (kind == CHART_ROOFLINE && panels[0].mode == MODE_DECODE))
            continue;
        struct chart_page page = {
            .kind = (enum chart_kind)kind, .panels = panels, .panel_count = count, .columns = columns_of(set, panels)};
        chart_page_name(&page);
        make_page(set, &page, dir, format, progress);
    }
    for (int i = 0; i < count && is_drawn(set, progress, CHART_TFLOPS); i++) {
        const struct chart_page page = page_of_panel(CHART_TFLOPS, &panels[i]);
        make_page(set, &page, dir, format, progress);
    }
}

/* ---- bars ---- */

struct bar {
    int64_t n;
    int order; /* of the series, within one n */
    const char *label;
    double value;
    bool is_failed, is_published;
};

static int compare_bars(const void *left, const void *right)
{
    const struct bar *a = left, *b = right;
    return a->n != b->n ? (a->n > b->n ? 1 : -1) : a->order - b->order;
}

static int collect_bars(const struct chart_set *set, const struct chart_panel *panel, struct bar **bars)
{
    int count = 0;
    *bars = NULL;
    for (int i = 0; i < set->series_count; i++) {
        struct chart_point *points;
        const int found = chart_points(set, panel, &set->series[i], CHART_TFLOPS, &points);
        *bars = xrealloc(*bars, (unsigned long)(count + found + 1) * sizeof **bars);
        for (int k = 0; k < found; k++)
            (*bars)[count++] =
                (struct bar){points[k].n, i, set->series[i].label, points[k].value, points[k].is_failed, false};
        free(points);
    }
    for (int i = 0; i < set->overlay_count; i++) {
        struct chart_point *points;
        const int found = chart_overlay(set, panel, i, &points);
        *bars = xrealloc(*bars, (unsigned long)(count + found + 1) * sizeof **bars);
        for (int k = 0; k < found; k++)
            (*bars)[count++] = (struct bar){
                points[k].n, set->series_count + set->file_count + i, set->overlay_names[i], points[k].value, false,
                true};
        free(points);
    }
    for (int f = 0; f < set->file_count; f++) {
        struct chart_point *points;
        const int found = chart_ceiling(set, panel, f, &points);
        *bars = xrealloc(*bars, (unsigned long)(count + found + 1) * sizeof **bars);
        for (int k = 0; k < found; k++)
            (*bars)[count++] = (struct bar){
                points[k].n, set->series_count + f, chart_ceiling_name(panel), points[k].value, false, false};
        free(points);
    }
    if (count)
        qsort(*bars, (size_t)count, sizeof **bars, compare_bars);
    return count;
}

/* Bars of '#', the ceiling's of '-', a failed one's of 'x', a published one's of '.'. */
static void print_bars(const struct chart_set *set, const struct chart_panel *panel, int width, bool color, FILE *out)
{
    struct bar *bars;
    const int count = collect_bars(set, panel, &bars);
    char title[64], n[24], value[40];
    double most = 0;
    int label_width = 0;
    for (int i = 0; i < count; i++) {
        most = fmax(most, bars[i].value);
        if (wrap_columns(bars[i].label) > label_width)
            label_width = wrap_columns(bars[i].label);
    }
    if (label_width > width / 3)
        label_width = width / 3;
    const int room = width - 7 - label_width - 1 - 11;
    fprintf(out, "%s %s, %s\n", chart_panel_title(panel, title, sizeof title), problem_dtype_name(panel->dtype),
            chart_unit(set, panel));
    for (int i = 0; i < count; i++) {
        char label[200];
        /* A value below 0 (a record may hold any number) has no bar. */
        const int length = most > 0 && bars[i].value > 0 ? (int)(bars[i].value / most * room + 0.5) : 0;
        const char fill = bars[i].is_failed                                       ? 'x'
                          : bars[i].is_published                                  ? '.'
                          : strcmp(bars[i].label, chart_ceiling_name(panel)) == 0 ? '-'
                                                                                  : '#';
        text_clean(bars[i].label, label, sizeof label);
        wrap_shorten(label, label_width);
        fprintf(out, "%6s %s%*s ",
                i == 0 || bars[i].n != bars[i - 1].n ? number_print_count(bars[i].n, n, sizeof n) : "", label,
                label_width - wrap_columns(label), "");
        if (color && bars[i].is_failed)
            fputs("\033[1;31m", out);
        for (int k = 0; k < length; k++)
            fputc(fill, out);
        fprintf(out, "%s %s%s\n", color && bars[i].is_failed ? "\033[0m" : "",
                bars[i].is_failed ? "FAILED" : number_print_short(bars[i].value, value, sizeof value),
                bars[i].is_published ? " *" : "");
    }
    for (int i = 0; i < count; i++)
        if (bars[i].is_published) {
            fprintf(out, "* published, not measured here: ");
            wrap_words(out, width, 0, 2, set->overlay->source[0] ? set->overlay->source : "(no source given)");
            break;
        }
    free(bars);
}

static int print_term(const struct chart_set *set, int width, bool color)
{
    bool has_gnuplot = true;
    int failures = 0;
    width = width > 200 ? 200 : width < 40 ? 40 : width;
    for (int i = 0; i < set->panel_count; i++) {
        if (has_gnuplot)
            switch (chart_print_panel(set, &set->panels[i], width, color, stdout)) {
            case GNUPLOT_DONE: break;
            case GNUPLOT_ABSENT: has_gnuplot = false; break;
            case GNUPLOT_STUCK:
                has_gnuplot = false;
                failures++;
                break;
            case GNUPLOT_FAILED: failures++; break;
            }
        if (!has_gnuplot)
            print_bars(set, &set->panels[i], width, color, stdout);
        fputc('\n', stdout);
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        log_error("standard output: %s", strerror(errno));
        failures++;
    }
    return failures ? EXIT_IO : EXIT_OK;
}

/* Warns once when no published point has a row to be drawn with. Single points without a row are normal. */
static void check_overlay(const struct chart_set *set)
{
    for (int p = 0; p < set->panel_count; p++)
        for (int i = 0; i < set->overlay_count; i++) {
            struct chart_point *points;
            const int count = chart_overlay(set, &set->panels[p], i, &points);
            free(points);
            if (count)
                return;
        }
    if (set->overlay)
        log_warn("--overlay: none of its %d points is of a problem, dtype and conditions that are drawn here",
                 set->overlay->count);
}

int charts_write(const struct chart_input *input, const char *dir, enum plot_format format, int width, bool color,
                 int *images)
{
    struct chart_set set;
    struct progress progress = {.kinds = input->kinds, .layout = input->layout};
    int result = EXIT_OK;
    *images = 0;
    if (format == PLOT_NONE)
        return EXIT_OK;
    chart_set_make(&set, input);
    if (set.panel_count)
        check_overlay(&set);
    if (set.panel_count == 0) {
        log_note("no timed row to draw: no charts");
    } else if (format == PLOT_TERM) {
        result = print_term(&set, width, color);
    } else if (format == PLOT_MARKDOWN) {
        chart_put_markdown(&set, stdout);
        if (fflush(stdout) != 0 || ferror(stdout)) {
            log_error("standard output: %s", strerror(errno));
            result = EXIT_IO;
        }
    } else {
        for (int first = 0, count; first < set.panel_count; first += count) {
            count = chart_family_panels(&set, first);
            if (input->layout == LAYOUT_SLIDE)
                make_slides(&set, first, count, dir, format, &progress);
            else
                make_family(&set, first, count, dir, format, &progress);
        }
        if (input->layout != LAYOUT_SLIDE && (!input->kinds || input->kinds[CHART_TIME]))
            make_pages_over_batch(input, dir, format, &progress);
        if (progress.is_absent)
            log_warn("gnuplot is not installed: %d chart scripts and their data are in %s; there, `gnuplot NAME.gp` "
                     "draws one",
                     progress.scripts, dir);
        if (progress.is_stuck)
            log_error("gnuplot does not end: it was not started again; %d chart scripts and their data are in %s",
                      progress.scripts, dir);
        result = progress.failures ? EXIT_IO : EXIT_OK;
        *images = progress.images;
    }
    chart_set_free(&set);
    return result;
}

/* The command `plot`. */

static bool read_record(const char *path, struct record_file *file)
{
    struct attn_message why = {""};
    if (!record_read(path, file, &why)) {
        log_error("%s", why.text);
        return false;
    }
    if (!record_file_samples_agree(file, &why)) {
        log_error("%s", why.text);
        return false;
    }
    if (file->cut)
        log_warn("%s: its last line is cut; the lines before it are drawn", path);
    return true;
}

int plot_run(const struct options *o, const struct overlay *overlay)
{
    const int count = o->files.count;
    const char *const dir = o->out_dir ? o->out_dir : ".";
    struct record_file *files = xcalloc((unsigned long)count, sizeof *files);
    int status = EXIT_OK, images = 0;
    for (int i = 0; i < count && status == EXIT_OK; i++)
        if (!read_record(o->files.names[i], &files[i]))
            status = EXIT_NOT_COMPARABLE;
    const bool has_files = o->plot == PLOT_SVG || o->plot == PLOT_PNG;
    if (status == EXIT_OK && has_files && !path_make_dirs(dir))
        status = EXIT_IO;
    bool has_kinds = false;
    for (int kind = 0; kind < PLOT_KINDS; kind++)
        has_kinds |= o->plot_kinds[kind];
    const struct chart_input input = {.files = files,
                                      .file_count = count,
                                      .overlay = overlay,
                                      .kinds = has_kinds ? o->plot_kinds : NULL,
                                      .layout = o->plot_layout};
    if (status == EXIT_OK)
        status = charts_write(&input, dir, o->plot, terminal_width(), terminal_color(o->color), &images);
    if (images && !o->quiet)
        printf("%d chart%s in %s%s (*.%s, with the .gp and .dat that drew them)\n", images, images == 1 ? "" : "s", dir,
               dir[strlen(dir) - 1] == '/' ? "" : "/", o->plot == PLOT_PNG ? "png" : "svg");
    for (int i = 0; i < count; i++)
        record_file_free(&files[i]);
    free(files);
    return status;
}
