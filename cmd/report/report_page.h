/* Makes the page of a report: comparability, summary, figures, conditions. */
#ifndef FABENCH_REPORT_PAGE_H
#define FABENCH_REPORT_PAGE_H

#include "cmd/report/page.h"
#include "cmd/chart/overlay.h"
#include "cmd/report/report_data.h"

/* The charts of the page, by the names of their files without the extension. */
struct report_charts {
    char (*names)[64];
    int count;
    bool is_gnuplot_absent, was_asked; /* --plot none: not asked */
};

/* The whole page; the caller frees it with page_close. overlay: published figures that the charts also show, or NULL.
 * */
struct page *report_page(const struct report *, const struct report_charts *, const struct overlay *overlay);

/* The first part of the page, for the terminal: comparability, warnings, summary. The caller frees it with page_close.
 * */
struct page *report_brief(const struct report *);

/* Writes the figures as CSV (RFC 4180), one line per label and point. */
void report_write_csv(const struct report *, FILE *);

#endif
