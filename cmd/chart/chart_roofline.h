/* Rooflines: speed over FLOPs per byte of device memory, below the ceilings of copying and of the GEMM. */
#ifndef FABENCH_CHART_ROOFLINE_H
#define FABENCH_CHART_ROOFLINE_H

#include "cmd/chart/chart_data.h"

/* Writes the script and data of a page with a point for each implementation and length; as chart_write_page. */
int roofline_write_page(const struct chart_set *, const struct chart_page *, const char *dir, enum plot_format);

#endif
