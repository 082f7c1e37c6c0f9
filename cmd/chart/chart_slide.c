/* Slides: 16:9, grouped bars with their values over one y axis. The panels of a mode stand beside each other; each
 * group is a length, each bar of it a series. */
#include "cmd/chart/chart_slide.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/terminal.h"
#include "cmd/base/text.h"
#include "cmd/chart/chart_script.h"

enum {
    WIDTH = 1280,
    HEIGHT = 720,
    LEFT = 84,
    RIGHT = 24,
    TOP = 142,
    BOTTOM = 108,
    BARS_MAX = 72, /* of a slide with several panels */
    LETTER = 9     /* pixels of one, of a value above a bar */
};

static const double GROUP_GAP = 0.8, PANEL_GAP = 2.2; /* in bars */

/* Where a bar stands. */
struct bar {
    int series;
    double x;
    struct chart_point point;
};

/* The groups of a slide. */
struct slide {
    struct bar *bars;
    int bar_count;
    struct {
        double first, last; /* left and right end of its bars */
        int64_t n;
        int panel;
    } * groups;
    int group_count, series_count; /* series_count: of those with a bar */
    double width, least, most;     /* most: the highest end of an interval */
};

static int compare_lengths(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* Memory and errors span decades; bars of all else begin at 0. */
static bool has_log_y(enum chart_kind kind)
{
    return kind == CHART_MEMORY || kind == CHART_ERROR || kind == CHART_QUANTISING || kind == CHART_BYTES;
}

static bool is_shown(enum chart_kind kind, const struct chart_point *point)
{
    return isfinite(point->value) && (point->value > 0 || (point->value == 0 && !has_log_y(kind)));
}

/* The bars of one panel, from x on. */
static void add_panel(struct slide *slide, const struct chart_set *set, const struct chart_page *page, int panel)
{
    struct chart_point **points = xcalloc((unsigned long)set->series_count + 1, sizeof *points);
    int *counts = xcalloc((unsigned long)set->series_count + 1, sizeof *counts), length_count = 0;
    int64_t *lengths = NULL;
    for (int i = 0; i < set->series_count; i++) {
        const bool is_own = page->kind == CHART_SPEEDUP && role_of_name(set->series[i].impl) == ATTN_ROLE_NAIVE;
        counts[i] = chart_points(set, &page->panels[panel], &set->series[i], page->kind, &points[i]);
        lengths = xrealloc(lengths, (unsigned long)(length_count + counts[i] + 1) * sizeof *lengths);
        for (int k = 0; k < counts[i]; k++)
            lengths[length_count++] = points[i][k].n;
        counts[i] = is_own ? 0 : counts[i];
    }
    if (length_count)
        qsort(lengths, (size_t)length_count, sizeof *lengths, compare_lengths);
    double x = slide->bar_count ? slide->width + PANEL_GAP : 0;
    for (int l = 0; l < length_count; l++) {
        const double first = x;
        if (l && lengths[l] == lengths[l - 1])
            continue;
        for (int i = 0; i < set->series_count; i++)
            for (int k = 0; k < counts[i]; k++) {
                const struct chart_point *point = &points[i][k];
                if (point->n != lengths[l] || !is_shown(page->kind, point))
                    continue;
                slide->bars = xrealloc(slide->bars, (unsigned long)(slide->bar_count + 1) * sizeof *slide->bars);
                slide->bars[slide->bar_count++] = (struct bar){i, x + 0.5, *point};
                slide->least = point->value > 0 ? fmin(slide->least, point->value) : slide->least;
                slide->most = fmax(slide->most, fmax(point->value, isfinite(point->hi) ? point->hi : 0));
                x += 1;
            }
        if (x == first)
            continue;
        slide->groups = xrealloc(slide->groups, (unsigned long)(slide->group_count + 1) * sizeof *slide->groups);
        slide->groups[slide->group_count].first = first;
        slide->groups[slide->group_count].last = x;
        slide->groups[slide->group_count].n = lengths[l];
        slide->groups[slide->group_count++].panel = panel;
        slide->width = x;
        x += GROUP_GAP;
    }
    for (int i = 0; i < set->series_count; i++)
        free(points[i]);
    free(points);
    free(counts);
    free(lengths);
}

static void make_slide(struct slide *slide, const struct chart_set *set, const struct chart_page *page)
{
    memset(slide, 0, sizeof *slide);
    slide->least = INFINITY;
    for (int p = 0; p < page->panel_count; p++)
        add_panel(slide, set, page, p);
}

static void free_slide(struct slide *slide)
{
    free(slide->bars);
    free(slide->groups);
}

_Static_assert((int)CHART_KIND_COUNT == (int)PLOT_KINDS, "a kind of charts needs a name in --plot-kind");

bool slide_fits(const struct chart_set *set, const struct chart_page *page)
{
    struct slide slide;
    make_slide(&slide, set, page);
    const int bars = slide.bar_count;
    free_slide(&slide);
    return bars <= BARS_MAX;
}

/* "655", "65.5", "0.0655" */
static const char *short_value(double value, char *text, size_t size)
{
    snprintf(text, size,
             value >= 100    ? "%.0f"
             : value >= 10   ? "%.1f"
             : value >= 1    ? "%.2f"
             : value >= 1e-3 ? "%.3g"
                             : "%.1e",
             value);
    return text;
}

/* Letters of the longest value. */
static int longest_value(const struct slide *slide)
{
    char text[32];
    size_t longest = 0;
    for (int i = 0; i < slide->bar_count; i++) {
        const char *value =
            slide->bars[i].point.is_failed ? "FAILED" : short_value(slide->bars[i].point.value, text, sizeof text);
        longest = strlen(value) > longest ? strlen(value) : longest;
    }
    return (int)longest;
}

/* ---- the script ---- */

static void put_words(struct script *s, const struct chart_set *set, const struct chart_page *page)
{
    const struct chart_family family = chart_family_of(page->panels);
    const struct chart_kind_def *words = script_words_of(page);
    char text[600], device[300], title[64];
    if (page->panel_count == 1)
        chart_panel_title(page->panels, title, sizeof title);
    else
        snprintf(title, sizeof title, "%s", problem_mode_name(page->panels[0].mode));
    snprintf(text, sizeof text, "%s, %s, %s", words->title, title, problem_dtype_name(family.dtype));
    fprintf(s->body, "set label 1 ");
    script_put_quoted(s->body, text);
    fprintf(s->body, " at screen %.4f,%.4f left font ',24'\n", (double)LEFT / WIDTH, 1 - 34.0 / HEIGHT);
    chart_device_text(set, 0, family, device, sizeof device);
    if (set->file_count > 1)
        snprintf(device, sizeof device, "%d records", set->file_count);
    chart_condition_text(set, family, text, sizeof text);
    char *conditions = xasprintf("%s; %s%s%s", device, text, set->has_unchecked ? ", NOT ALL CHECKED" : "",
                                 set->is_synthetic ? ", SYNTHETIC DATA" : "");
    wrap_shorten(conditions, 170);
    fprintf(s->body, "set label 2 ");
    script_put_quoted(s->body, conditions);
    fprintf(s->body, " at screen %.4f,%.4f left font ',13' tc rgb '#555555'\n", (double)LEFT / WIDTH,
            1 - 66.0 / HEIGHT);
    free(conditions);
    const char *const interval = strstr(words->caption, "ars: "); /* "Bars:", which are something else here */
    if (interval)
        snprintf(text, sizeof text, "%.*sThin lines: %s", (int)(interval - 1 - words->caption), words->caption,
                 interval + 5);
    else
        snprintf(text, sizeof text, "%s", words->caption);
    char *caption = xasprintf("%s Below the bars: %s.", text, chart_axis_title(set, family));
    fprintf(s->body, "set label 3 ");
    script_put_quoted(s->body, caption);
    free(caption);
    fprintf(s->body, " at screen %.4f,%.4f left font ',12' tc rgb '#555555'\n", (double)LEFT / WIDTH, 16.0 / HEIGHT);
}

/* Lengths below the groups, and below these the panels. */
static void put_x_labels(struct script *s, const struct chart_page *page, const struct slide *slide)
{
    const double plot = WIDTH - LEFT - RIGHT, scale = plot / (slide->width + 2);
    char n[24], title[64];
    int label = 10;
    for (int g = 0, first = 0; g < slide->group_count; g++) {
        const double x = (LEFT + ((slide->groups[g].first + slide->groups[g].last) / 2 + 1) * scale) / WIDTH;
        fprintf(s->body, "set label %d '%s' at screen %.4f,%.4f center font ',14'\n", label++,
                number_print_count(slide->groups[g].n, n, sizeof n), x, (BOTTOM - 18.0) / HEIGHT);
        if (g + 1 < slide->group_count && slide->groups[g + 1].panel == slide->groups[g].panel)
            continue;
        const double middle = (slide->groups[first].first + slide->groups[g].last) / 2;
        fprintf(s->body, "set label %d ", label++);
        script_put_quoted(s->body, chart_panel_title(&page->panels[slide->groups[g].panel], title, sizeof title));
        fprintf(s->body, " at screen %.4f,%.4f center font ',16'\n", (LEFT + (middle + 1) * scale) / WIDTH,
                (BOTTOM - 46.0) / HEIGHT);
        first = g + 1;
    }
}

static void put_axes(struct script *s, const struct chart_page *page, const struct slide *slide)
{
    const bool is_log = has_log_y(page->kind);
    fprintf(s->body,
            "set lmargin at screen %.4f\nset rmargin at screen %.4f\nset tmargin at screen %.4f\n"
            "set bmargin at screen %.4f\nset border 3\nset boxwidth 0.92 absolute\nset style fill solid 1 noborder\n"
            "set xrange [-1:%.10g]\nset xtics ('' 0) scale 0\n",
            (double)LEFT / WIDTH, 1 - (double)RIGHT / WIDTH, 1 - (double)TOP / HEIGHT, (double)BOTTOM / HEIGHT,
            slide->width + 1);
    fprintf(s->body, "set ylabel '%s%s' font ',15'\nset ytics font ',13'\n",
            chart_kinds[page->kind].is_speed ? s->unit : "", script_words_of(page)->y_label);
    if (is_log) {
        const double low = fmax(floor(log10(slide->least) - 0.3), -300), high = fmin(log10(slide->most) + 1, 300);
        fprintf(s->body, "set logscale y\nset yrange [%.10g:%.10g]\nset format y '%%g'\n", pow(10, low), pow(10, high));
    } else {
        fprintf(s->body, "set yrange [0:%.10g]\n", slide->most > 0 ? fmin(slide->most * 1.13, 1e300) : 1);
    }
    fprintf(s->body, "set key at screen 0.5,%.4f center center horizontal Left reverse samplen 1.5 font ',15'\n",
            1 - 104.0 / HEIGHT);
}

/* One series: boxes, the interval where the kind has one, and the value above. */
static void put_series(struct script *s, const struct chart_set *set, const struct slide *slide, int index,
                       bool is_failed, bool is_turned)
{
    const struct chart_series *series = &set->series[index];
    char label[sizeof series->label], value[32];
    int written = 0;
    text_clean(series->label, label, sizeof label);
    for (int i = 0; i < slide->bar_count; i++) {
        const struct bar *bar = &slide->bars[i];
        if (bar->series != index || bar->point.is_failed != is_failed)
            continue;
        if (!written++)
            script_begin_block(s, "%s%s: x, value, low, high, text, n", label, is_failed ? ", failed its check" : "");
        fprintf(s->data, "%.10g,%.10g,%.10g,%.10g,%s,%lld\n", bar->x, bar->point.value, bar->point.lo, bar->point.hi,
                is_failed ? "FAILED" : short_value(bar->point.value, value, sizeof value), (long long)bar->point.n);
    }
    if (!written)
        return;
    const int block = s->blocks - 1;
    script_begin_element(s);
    fprintf(s->body, "%s index %d using 1:2 with boxes ", s->source, block);
    if (is_failed)
        fprintf(s->body, "fs empty border rgb '#FF0000' lc rgb '#FF0000' title ");
    else
        fprintf(s->body, "lc rgb '%s' title ", series->color);
    script_put_quoted(s->body, is_failed ? "" : series->label);
    if (!is_failed) {
        script_begin_element(s);
        fprintf(s->body, "%s index %d using 1:3:(0):($4 - $3) with vectors nohead lw 1.5 lc rgb '#333333' title ''",
                s->source, block);
    }
    script_begin_element(s);
    fprintf(s->body, "%s index %d using 1:(%s):5 with labels %s font ',%d'%s title ''", s->source, block,
            is_failed ? "$2" : "$4 > $2 ? $4 : $2", is_turned ? "rotate left offset 0,0.3" : "center offset 0,0.6",
            is_turned ? 11 : 13, is_failed ? " tc rgb '#FF0000'" : "");
}

/* The ceiling over each group, of one file. */
static void put_ceiling(struct script *s, const struct chart_set *set, const struct chart_page *page,
                        const struct slide *slide, int file)
{
    char style[64], label[sizeof set->file_labels[file] + 32];
    int written = 0;
    for (int p = 0; p < page->panel_count; p++) {
        struct chart_point *points;
        const int count = chart_ceiling(set, &page->panels[p], file, &points);
        for (int g = 0; g < slide->group_count; g++)
            for (int k = 0; k < count && slide->groups[g].panel == p; k++) {
                if (points[k].n != slide->groups[g].n)
                    continue;
                if (!written++)
                    script_begin_block(s, "%s: x, value", chart_ceiling_name(page->panels));
                fprintf(s->data, "%.10g,%.10g\n%.10g,%.10g\n\n", slide->groups[g].first - 0.3, points[k].value,
                        slide->groups[g].last + 0.3, points[k].value);
            }
        free(points);
    }
    if (!written)
        return;
    if (set->file_count > 1)
        snprintf(label, sizeof label, "%s, %s", chart_ceiling_name(page->panels), set->file_labels[file]);
    else
        snprintf(label, sizeof label, "%s", chart_ceiling_name(page->panels));
    script_begin_element(s);
    fprintf(s->body, "%s index %d using 1:2 with lines %s title ", s->source, s->blocks - 1,
            script_ceiling_style(set, file, style, sizeof style));
    script_put_quoted(s->body, label);
}

int slide_write(const struct chart_set *set, const struct chart_page *page, const char *dir, enum plot_format format)
{
    struct script s;
    struct slide slide;
    char source[sizeof page->name + 8];
    int result = 0;
    make_slide(&slide, set, page);
    for (int f = 0; f < set->file_count && page->kind == CHART_TFLOPS; f++)
        for (int p = 0; p < page->panel_count; p++) {
            struct chart_point *points;
            const int count = chart_ceiling(set, &page->panels[p], f, &points);
            for (int k = 0; k < count; k++)
                slide.most = fmax(slide.most, points[k].value);
            free(points);
        }
    if (slide.bar_count && isfinite(slide.least)) {
        const bool is_turned = (WIDTH - LEFT - RIGHT) / (slide.width + 2) < LETTER * longest_value(&slide);
        script_open(&s, set);
        snprintf(source, sizeof source, "'%s.dat'", page->name);
        s.source = source;
        s.unit = chart_unit(set, page->panels);
        script_put_head(&s, page->name, WIDTH, HEIGHT, format);
        put_words(&s, set, page);
        put_x_labels(&s, page, &slide);
        put_axes(&s, page, &slide);
        for (int i = 0; i < set->series_count; i++)
            for (int is_failed = 0; is_failed < 2; is_failed++)
                put_series(&s, set, &slide, i, is_failed, is_turned);
        for (int f = 0; f < set->file_count && page->kind == CHART_TFLOPS; f++)
            put_ceiling(&s, set, page, &slide, f);
        fprintf(s.body, "\nunset output\n");
        script_finish(&s);
        result = script_write(&s, dir, page->name) ? 1 : -1;
        script_close(&s);
    }
    free_slide(&slide);
    return result;
}
