/* Kinds of charts, styles and small pieces of scripts. */
#include "cmd/chart/chart_script.h"

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
};

const char script_unity_style[] = "lc rgb '#000000' dt 2 lw 1.5";
static const char ceiling_style[] = "lc rgb '%s' dt %d lw 1.5";             /* a dash type for each file */
static const char overlay_style[] = "lc rgb '#555555' pt %d ps 0.9 lw 1.5"; /* plus, cross, star: not used by series */
const char script_bound_style[] = "lc rgb '#D55E00' dt 2 lw 1.5";
const char script_naive_bound_style[] = "lc rgb '#D55E00' dt 3 lw 1.5";

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

void script_begin_element(struct script *s) { fprintf(s->body, "%s", s->elements++ ? ", \\\n     " : "plot "); }
