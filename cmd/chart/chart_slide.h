/* Slides: 16:9, grouped bars with values over one y axis (--plot-layout slide). */
#ifndef FABENCH_CHART_SLIDE_H
#define FABENCH_CHART_SLIDE_H

#include "cmd/chart/chart_data.h"
#include "cmd/options/options.h"

/* Writes <dir>/<name>.gp and .dat of the panels of a page, which are of one mode. 1 = written, 0 = nothing to draw,
 * -1 = an I/O error, reported on stderr. */
int slide_write(const struct chart_set *, const struct chart_page *, const char *dir, enum plot_format);

/* Are the bars of all panels few enough for one slide? Else each panel has a slide of its own. */
bool slide_fits(const struct chart_set *, const struct chart_page *);

#endif
