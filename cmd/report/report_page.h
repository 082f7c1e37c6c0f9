/* Makes the page of a report: comparability, summary, figures, conditions. Its tables and its verdict have files of
 * their own. */
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

/* Makes the tables of the page, and the cells that the summary uses too. */

const char *report_label_name(const struct report *, int label);

/* A column whose values are a field of a struct. */
struct report_column {
    const char *name;
    size_t offset; /* of a double */
    /* How it is shown; REPORT_SPEED: in the unit of the page. */
    enum report_kind { REPORT_SPEED, REPORT_PERCENT, REPORT_REAL, REPORT_CLOCK } kind;
    const char *over; /* the speed over this implementation instead of a field; NULL = the field */
};

/* A measured value, or an empty cell where it is not finite. */
void report_cell(struct page *, const struct report *, enum page_emphasis, enum report_kind, double value);
void report_cell_real(struct page *, enum page_emphasis, double value);

/* Adds tables of all points that at least two labels of the group have; nothing where there are none. */
void report_put_comparison(struct page *, const struct report *, int group);

/* Adds the section of a label: the heading with its notes, the number of rows by outcome, and all its figures. */
void report_put_device(struct page *, const struct report *, int label);

/* The beginning of the page: the verdict in one paragraph, which programs measured, and why one device is slower. */

/* Adds one paragraph: which label is the fastest and by how much, at how many points, the price, and whether any check
 * failed; or that nothing can be compared. */
void report_put_verdict(struct page *, const struct report *);

/* Adds a warning where the records are of different commits of fabench; else nothing. */
void report_put_commits(struct page *, const struct report *);

/* Adds one item for each label that is slower than the fastest one of its group: by how much, and in what the two
 * differ that decides speed (clock, power cap and limit, GEMM), over the points that both have. */
void report_put_reasons(struct page *, const struct report *);

/* "3 labels, 2 boards, 4 records": what is compared. The caller frees it. */
char *report_extent(const struct report *);

#endif
