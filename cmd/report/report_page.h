/* The report as a page: what can be compared, the summary, the figures. */
#ifndef FABENCH_REPORT_PAGE_H
#define FABENCH_REPORT_PAGE_H

#include "cmd/report/page.h"
#include "cmd/chart/overlay.h"
#include "cmd/report/report_data.h"

/* Charts that were drawn for the page, by the names of their files without an ending. */
struct report_charts {
    char (*names)[64];
    int count;
    bool is_gnuplot_absent, was_asked; /* --plot none: not asked */
};

/* The page, whole; the caller closes it. overlay: what the charts show beside our figures, or NULL. */
struct document *report_page(const struct report *, const struct report_charts *, const struct overlay *overlay);

/* Its beginning alone, for the terminal: comparability, the summary, warnings. */
struct document *report_brief(const struct report *);

/* One line per label and point, RFC 4180, for programs. */
void report_write_csv(const struct report *, FILE *);

#endif
