/* Kinds of charts, styles and small pieces of scripts. */
#include "cmd/chart/chart_script.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/terminal.h"
#include "cmd/base/text.h"

const struct chart_kind_def chart_kinds[CHART_KIND_COUNT] = {
    [CHART_TFLOPS] =
        {"Attention speed", "",
         "FLOPs: forward 4 d per visible pair and head, backward 2.5 x that. Bars: 95 % interval of the median.", false,
         true},
    [CHART_SUSTAINED] =
        {"Sustained attention speed", ", sustained",
         "Over a region of --sustain-s that is each implementation's own; burst figures have a page of their own.",
         false, true},
    [CHART_SPEEDUP] = {"Speed-up over the naive three passes", "x naive",
                       "Ratios within rounds; above the dashed line is faster than naive.", false, false},
    [CHART_MEMORY] =
        {"Workspace beside inputs and outputs", "workspace, MB",
         "1 MB = 1e6 bytes. Naive keeps S and P, O(N^2) per head; fused kernels keep O(N), which is flat where "
         "batch x n is fixed.",
         true, false},
    [CHART_ERROR] = {"Error against the reference", "rel. RMS error",
                     "||x - ref|| / ||ref|| of the tensor nearest its bound; above the dashed line is a failure.", true,
                     false},
    [CHART_GEMM] = {"Share of the ceiling", "% of GEMM", "Of cuBLAS 8192^3 in the same rounds.", false, false},
    [CHART_TIME] = {"Time of a pass", "ms", "Median of the samples. Bars: its 95 % interval.", true, false},
    [CHART_ENERGY] = {"Energy of a pass", "J", "Of the board, over a region of --sustain-s.", true, false},
    [CHART_QUANTISING] = {"Error of 8-bit inputs", "rel. RMS error",
                          "Of O against the reference on the inputs before quantising: quantising and kernel, added as "
                          "independent errors.",
                          true, false},
    [CHART_BYTES] =
        {"Bytes to and from device memory", "1e9 bytes",
         "Points: counted by the hardware in one launch from a cold L2. Dotted: the model of docs/counters.md.", true,
         false},
    [CHART_ROOFLINE] =
        {"Roofline", "TFLOPS",
         "FLOPs of the visible pairs over bytes of device memory: counted, where the point is full; of the "
         "model, where it is hollow.",
         true, false},
};

/* Of decode. */
static const struct chart_kind_def decode_kinds[CHART_KIND_COUNT] = {
    [CHART_TFLOPS] = {"Attention against a cache, GB/s", "",
                      "Bytes of Q, O, LSE and the used K and V over the time; bars: its 95 % interval.", false, true},
    [CHART_SUSTAINED] = {"Sustained attention against a cache, GB/s", ", sustained",
                         "Over a region of --sustain-s that is each implementation's own.", false, true},
    [CHART_TIME] = {"Time of attention against a cache, us", "us", "Median of the samples. Bars: its 95 % interval.",
                    true, false},
    [CHART_GEMM] = {"Share of the ceiling", "% of reading", "Of as many bytes, only read, in the same rounds.", false,
                    false},
};

const struct chart_kind_def *script_words_of(const struct chart_page *page)
{
    const bool is_own = page->over_batch || (chart_family_of(page->panels).is_decode &&
                                             (chart_kinds[page->kind].is_speed || page->kind == CHART_GEMM));
    return &(is_own ? decode_kinds : chart_kinds)[page->kind];
}

const char script_unity_style[] = "lc rgb '#000000' dt 2 lw 1.5";
static const char ceiling_style[] = "lc rgb '%s' dt %d lw 1.5";             /* a dash type for each file */
static const char overlay_style[] = "lc rgb '#555555' pt %d ps 0.9 lw 1.5"; /* plus, cross, star: not used by series */
const char script_bound_style[] = "lc rgb '#D55E00' dt 2 lw 1.5";
const char script_naive_bound_style[] = "lc rgb '#D55E00' dt 3 lw 1.5";
const char script_model_style[] = "lc rgb '#555555' dt 3 lw 1.5";
const char script_roof_style[] = "lc rgb '#000000' dt 2 lw 1.5";

void script_put_quoted(FILE *out, const char *text)
{
    char clean[1024];
    text_clean(text, clean, sizeof clean);
    fputc('\'', out);
    for (const char *c = clean; *c; c++)
        fprintf(out, *c == '\'' ? "''" : "%c", *c);
    fputc('\'', out);
}

const char *script_ceiling_style(const struct chart_set *set, int file, char *text, size_t size)
{
    if (set->is_by_file)
        snprintf(text, size, ceiling_style, chart_file_color(file), 2);
    else
        snprintf(text, size, ceiling_style, "#000000", 2 + file % 4);
    return text;
}

const char *script_overlay_style(int name, char *text, size_t size)
{
    snprintf(text, size, overlay_style, 1 + name % 3);
    return text;
}

void script_series_style(const struct script *s, const struct chart_series *series, FILE *out)
{
    if (s->is_text)
        fprintf(out, "lc rgb '%s'", series->color);
    else
        fprintf(out, "lc rgb '%s' pt %d ps 0.8 dt %d lw 2", series->color, series->point, series->dash);
}

void script_begin_block(struct script *s, const char *format, ...)
{
    va_list arguments;
    fprintf(s->data, "%s# ", s->blocks ? "\n\n" : "");
    va_start(arguments, format);
    vfprintf(s->data, format, arguments);
    va_end(arguments);
    fputc('\n', s->data);
    s->blocks++;
}

void script_open(struct script *s, const struct chart_set *set)
{
    memset(s, 0, sizeof *s);
    s->data = open_memstream(&s->data_text, &s->data_bytes);
    s->body = open_memstream(&s->body_text, &s->body_bytes);
    if (!s->data || !s->body) {
        log_error("out of host memory (a chart)");
        exit(EXIT_IO);
    }
    s->is_used = xcalloc((unsigned long)set->series_count + 1, sizeof *s->is_used);
    s->has_ceiling_of = xcalloc((unsigned long)set->file_count + 1, sizeof *s->has_ceiling_of);
    s->has_overlay_of = xcalloc((unsigned long)set->overlay_count + 1, sizeof *s->has_overlay_of);
    s->zero_y = NAN;
}

void script_finish(struct script *s)
{
    if (fclose(s->data) != 0 || fclose(s->body) != 0) {
        log_error("out of host memory (a chart)");
        exit(EXIT_IO);
    }
}

void script_close(struct script *s)
{
    free(s->data_text);
    free(s->body_text);
    free(s->is_used);
    free(s->has_ceiling_of);
    free(s->has_overlay_of);
}

const char *script_ending(enum plot_format format) { return format == PLOT_PNG ? "png" : "svg"; }

static bool write_text(const char *dir, const char *name, const char *end, const char *first, const char *second)
{
    char *path = xasprintf("%s/%s.%s", dir, name, end);
    FILE *out = fopen(path, "we");
    bool good = out != NULL;
    if (good) {
        good = fputs(first, out) >= 0 && fputs(second, out) >= 0;
        good = fclose(out) == 0 && good;
    }
    if (!good)
        log_error("%s: %s", path, strerror(errno));
    free(path);
    return good;
}

/* The SVG has the layout's pixels; the PNG twice as many, for screens that show two for one. */
void script_put_head(struct script *s, const char *name, int width, int height, enum plot_format format)
{
    fprintf(s->body, "# Draws %s.%s from %s.dat. Change what you like and run in this folder: gnuplot %s.gp\n", name,
            script_ending(format), name, name);
    if (format == PLOT_PNG)
        fprintf(s->body,
                "set terminal pngcairo size %d,%d background rgb 'white' noenhanced font 'Arial,13' fontscale 1.5 "
                "pointscale 2.6 linewidth 2\n",
                2 * width, 2 * height);
    else
        fprintf(s->body, "set terminal svg size %d,%d dynamic background rgb 'white' noenhanced font 'Arial,13'\n",
                width, height);
    fprintf(
        s->body,
        "set output '%s.%s'\n"
        "set encoding utf8\nset datafile separator ','\n"
        "set border 3 lc rgb '#555555'\nset tics out nomirror scale 0.6\nset grid ytics lc rgb '#DDDDDD' lt 1 lw 1\n"
        "set bars 0.6\nunset key\nset xlabel offset 0,0.4\n",
        name, script_ending(format));
}

bool script_write(const struct script *s, const char *dir, const char *name)
{
    return write_text(dir, name, "dat", s->data_text, "\n") && write_text(dir, name, "gp", s->body_text, "");
}

void script_begin_element(struct script *s) { fprintf(s->body, "%s", s->elements++ ? ", \\\n     " : "plot "); }

/* The layout of a page: where the panels are, title and conditions above them, key below. */

/* Geometry of a page in pixels. */
enum {
    PAGE_LEFT = 100,
    PAGE_RIGHT = 22,
    PANEL_GAP_X = 72,
    PANEL_GAP_Y = 70,
    PANEL_TITLE = 30,
    X_AXIS = 58,
    KEY_LINE = 22,
    TITLE_LINE = 32,
    WORDS_LINE = 20
};

static const double WORDS_WIDTH = 5.9; /* of a character, on average */

/* True when a published point is drawn on this page. */
static bool has_overlay(const struct chart_set *set, const struct chart_page *page)
{
    bool has = false;
    for (int p = 0; page->kind == CHART_TFLOPS && p < page->panel_count && !has; p++)
        for (int i = 0; i < set->overlay_count && !has; i++) {
            struct chart_point *points;
            has = chart_overlay(set, &page->panels[p], i, &points) > 0;
            free(points);
        }
    return has;
}

enum { FILES_NAMED = 4 };

/* The lines between title and panels: devices, conditions, how to read it, the source of published points. */
static void words_of(const struct chart_set *set, const struct chart_page *page, bool has_ceiling,
                     struct name_list *lines)
{
    const struct chart_family family = chart_family_of(page->panels);
    char words[400];
    int silent = 0;
    for (int f = 0; f < set->file_count; f++) {
        chart_device_text(set, f, family, words, sizeof words);
        if (!words[0])
            continue; /* it has no row of this family */
        if (lines->count == FILES_NAMED) {
            silent++;
            continue;
        }
        const bool is_said = !set->is_by_file && strncmp(words, set->file_labels[f], strlen(set->file_labels[f])) == 0;
        name_list_print(lines, "%s%s%s", is_said ? "" : set->file_labels[f], is_said ? "" : ": ", words);
    }
    if (silent) {
        char **last = &lines->names[lines->count - 1], *longer = xasprintf("%s ... and %d more", *last, silent);
        free(*last);
        *last = longer;
    }
    chart_condition_text(set, family, words, sizeof words);
    name_list_print(lines, "%s%s%s", words, set->has_unchecked ? ", NOT ALL CHECKED" : "",
                    set->is_synthetic ? ", SYNTHETIC DATA" : "");
    name_list_print(lines, "%s%s", script_words_of(page)->caption,
                    !has_ceiling       ? ""
                    : family.is_decode ? " Ceiling: as many bytes, only read, in the same rounds."
                                       : " GEMM: cuBLAS 8192^3 in the same rounds.");
    if (has_overlay(set, page))
        name_list_print(lines, "Published, not measured here: %s",
                        set->overlay->source[0] ? set->overlay->source : "no source given");
}

struct frame_layout frame_lay_out(const struct chart_set *set, const struct chart_page *page)
{
    struct frame_layout l;
    const bool is_alone = page->panel_count == 1;
    const int names = set->file_count > 1 ? 2 : 5; /* columns of the key */
    struct name_list words = {0};
    words_of(set, page, false, &words);
    const int references = set->overlay_count + (set->is_by_file ? set->file_count : 0);
    const int entries = set->series_count + (page->kind == CHART_TFLOPS ? references : 0);
    l.rows = (page->panel_count + page->columns - 1) / page->columns;
    l.panel_width = page->columns == 1 ? 880 : 440;
    l.panel_height = is_alone ? 400 : 250;
    l.top = 12 + TITLE_LINE + words.count * WORDS_LINE + PANEL_TITLE;
    l.bottom = X_AXIS + ((entries + names - 1) / names + 1) * KEY_LINE + 8;
    l.width = PAGE_LEFT + page->columns * l.panel_width + (page->columns - 1) * PANEL_GAP_X + PAGE_RIGHT;
    l.height = l.top + l.rows * l.panel_height + (l.rows - 1) * PANEL_GAP_Y + l.bottom;
    name_list_free(&words);
    return l;
}

void frame_put_margins(struct script *s, const struct frame_layout *l, int row, int column)
{
    const double left = PAGE_LEFT + column * (l->panel_width + PANEL_GAP_X);
    const double top = l->top + row * (l->panel_height + PANEL_GAP_Y);
    fprintf(s->body, "set lmargin at screen %.4f\nset rmargin at screen %.4f\n", left / l->width,
            (left + l->panel_width) / l->width);
    fprintf(s->body, "set tmargin at screen %.4f\nset bmargin at screen %.4f\n", 1 - top / l->height,
            1 - (top + l->panel_height) / l->height);
}

void frame_put(struct script *s, const struct chart_set *set, const struct chart_page *page,
               const struct frame_layout *l)
{
    const char *dtype = problem_dtype_name(page->panels[0].dtype);
    char text[512], title[64];
    struct name_list words = {0};
    words_of(set, page, s->has_ceiling, &words);
    double y = 12 + TITLE_LINE / 2.0;
    int label = 1;
    fprintf(s->body, "\nunset logscale\nunset tics\nunset border\nunset grid\nunset title\nunset xlabel\nunset ylabel\n"
                     "set lmargin at screen 0\nset rmargin at screen 1\nset tmargin at screen 1\n"
                     "set bmargin at screen 0\nset xrange [0:1]\nset yrange [0:1]\n");
    if (page->panel_count == 1)
        snprintf(text, sizeof text, "%s, %s, %s", script_words_of(page)->title,
                 chart_panel_title(&page->panels[0], title, sizeof title), dtype);
    else
        snprintf(text, sizeof text, "%s, %s", script_words_of(page)->title, dtype);
    fprintf(s->body, "set label %d ", label++);
    script_put_quoted(s->body, text);
    fprintf(s->body, " at screen %.4f,%.4f left font ',19'\n", (double)PAGE_LEFT / l->width, 1 - y / l->height);
    y += TITLE_LINE / 2.0 + WORDS_LINE / 2.0;
    for (int i = 0; i < words.count; i++, y += WORDS_LINE) {
        wrap_shorten(words.names[i], (int)((l->width - PAGE_LEFT) / WORDS_WIDTH));
        fprintf(s->body, "set label %d ", label++);
        script_put_quoted(s->body, words.names[i]);
        fprintf(s->body, " at screen %.4f,%.4f left font ',12' tc rgb '#555555'\n", (double)PAGE_LEFT / l->width,
                1 - y / l->height);
    }
    name_list_free(&words);
    fprintf(s->body, "set key at screen 0.5,%.4f center bottom horizontal Left reverse samplen 3 width 0 font ',13'\n",
            6.0 / l->height);
}

void frame_put_key(struct script *s, const struct chart_set *set, const struct chart_page *page)
{
    const char *const ceiling = chart_ceiling_name(page->panels); /* its first word alone beside a file's name */
    const int word = (int)strcspn(ceiling, " ");
    const struct {
        bool is_shown;
        const char *with, *style, *label;
    } references[] = {
        {s->has_bound, "lines", script_bound_style, "bound"},
        {s->has_naive_bound, "lines", script_naive_bound_style, "bound of naive"},
        {s->has_model, "lines", script_model_style, "model"},
        {s->has_roof, "lines", script_roof_style, "ceilings: copying, GEMM"},
        {s->has_failed, "points", "lc rgb '#FF0000' pt 6 ps 1.3 lw 2", "failed its check"},
    };
    s->elements = 0;
    for (int i = 0; i < set->series_count; i++) {
        if (!s->is_used[i])
            continue;
        script_begin_element(s);
        fprintf(s->body, "NaN with linespoints ");
        script_series_style(s, &set->series[i], s->body);
        fprintf(s->body, " title ");
        script_put_quoted(s->body, set->series[i].label);
    }
    for (int f = 0; f < set->file_count; f++) {
        char style[64], label[sizeof set->file_labels[f] + 16];
        if (!s->has_ceiling_of[f])
            continue;
        if (set->file_count > 1)
            snprintf(label, sizeof label, "%.*s, %s", word, ceiling, set->file_labels[f]);
        else
            snprintf(label, sizeof label, "%s", ceiling);
        script_begin_element(s);
        fprintf(s->body, "NaN with lines %s title ", script_ceiling_style(set, f, style, sizeof style));
        script_put_quoted(s->body, label);
    }
    for (int i = 0; i < set->overlay_count; i++) {
        char style[64], label[64];
        if (!s->has_overlay_of[i])
            continue;
        snprintf(label, sizeof label, "%s (published)", set->overlay_names[i]);
        script_begin_element(s);
        fprintf(s->body, "NaN with points %s title ", script_overlay_style(i, style, sizeof style));
        script_put_quoted(s->body, label);
    }
    for (size_t i = 0; i < sizeof references / sizeof references[0]; i++) {
        if (!references[i].is_shown)
            continue;
        script_begin_element(s);
        fprintf(s->body, "NaN with %s %s title '%s'", references[i].with, references[i].style, references[i].label);
    }
    fputc('\n', s->body);
}
