/* Charts as gnuplot scripts with their data. */
#ifndef FABENCH_CHART_GNUPLOT_H
#define FABENCH_CHART_GNUPLOT_H

#include "cmd/chart_data.h"
#include "cmd/gnuplot.h"
#include "cmd/options.h"

/* One image: panels of one dtype, `columns` beside each other, one key and one title for all. */
struct chart_page {
    enum chart_kind kind;
    const struct chart_panel *panels;
    int panel_count, columns;
    char name[64]; /* of the files, without an ending */
};

/* The name of a kind as files have it: tflops speedup memory error. */
const char *chart_kind_name(enum chart_kind);

/* Writes <dir>/<name>.gp and .dat. 1 = written, 0 = there is nothing to draw, -1 = an I/O error, already said. */
int chart_write_page(const struct chart_set *, const struct chart_page *, const char *dir, enum plot_format);

/* Runs gnuplot on <dir>/<name>.gp. A failed image is removed. */
enum gnuplot_result chart_run_page(const char *dir, const char *name, enum plot_format);

/* Draws one panel with characters, `width` columns wide, to `out`. */
enum gnuplot_result chart_print_panel(const struct chart_set *, const struct chart_panel *, int width, bool color,
                                        FILE *out);

#endif
