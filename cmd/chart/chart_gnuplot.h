/* Charts as gnuplot scripts with their data. */
#ifndef FABENCH_CHART_GNUPLOT_H
#define FABENCH_CHART_GNUPLOT_H

#include "cmd/chart/chart_data.h"
#include "cmd/chart/gnuplot.h"
#include "cmd/options/options.h"

/* Writes <dir>/<name>.gp and .dat. 1 = written, 0 = nothing to draw, -1 = an I/O error, reported on stderr. */
int chart_write_page(const struct chart_set *, const struct chart_page *, const char *dir, enum plot_format);

/* Runs gnuplot on <dir>/<name>.gp. A failed image is removed. */
enum gnuplot_result chart_run_page(const char *dir, const char *name, enum plot_format);

/* Draws one panel as text, `width` columns wide, to `out`. */
enum gnuplot_result chart_print_panel(const struct chart_set *, const struct chart_panel *, int width, bool color,
                                      FILE *out);

#endif
