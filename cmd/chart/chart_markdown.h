/* Tables in Markdown instead of charts (--plot md), to be pasted into a page or an issue. */
#ifndef FABENCH_CHART_MARKDOWN_H
#define FABENCH_CHART_MARKDOWN_H

#include <stdio.h>

#include "cmd/chart/chart_data.h"

/* A table for each panel: a line for each length and implementation, with time, its interval, speed, share of the
 * ceiling, time relative to the fastest that passed, and energy. A column without values is left out. */
void chart_put_markdown(const struct chart_set *, FILE *);

#endif
