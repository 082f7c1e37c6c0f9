/* Charts as gnuplot scripts with their data, and gnuplot as a child process. */
#ifndef FABENCH_CHART_GNUPLOT_H
#define FABENCH_CHART_GNUPLOT_H

#include <stdio.h>

#include "cmd/chart/chart_data.h"
#include "cmd/options/options.h"

/* Writes <dir>/<name>.gp and .dat. 1 = written, 0 = nothing to draw, -1 = an I/O error, reported on stderr. */
int chart_write_page(const struct chart_set *, const struct chart_page *, const char *dir, enum plot_format);

/* Runs gnuplot on <dir>/<name>.gp. A failed image is removed. */
enum gnuplot_result chart_run_page(const char *dir, const char *name, enum plot_format);

/* Draws one panel as text, `width` columns wide, to `out`. */
enum gnuplot_result chart_print_panel(const struct chart_set *, const struct chart_panel *, int width, bool color,
                                      FILE *out);

/* GNUPLOT_STUCK: it did not end within GNUPLOT_LIMIT_S (or FABENCH_GNUPLOT_LIMIT_S seconds) and was killed. */
enum gnuplot_result { GNUPLOT_DONE, GNUPLOT_ABSENT, GNUPLOT_FAILED, GNUPLOT_STUCK };
enum { GNUPLOT_LIMIT_S = 60 };

/* Runs gnuplot in `dir` (NULL = here) on a script, "-" = `input`. Its stdout goes to `output`, or to its stderr where
 * that is NULL; the first lines of stderr are printed as warnings with `name`, and so is a failure. No shell and none
 * of the user's start-up files are used. */
enum gnuplot_result gnuplot_run(const char *dir, const char *script, FILE *input, FILE *output, const char *name);

#endif
