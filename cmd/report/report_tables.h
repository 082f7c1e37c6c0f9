/* Makes the tables of the page, and the cells that the summary uses too. */
#ifndef FABENCH_REPORT_TABLES_H
#define FABENCH_REPORT_TABLES_H

#include "cmd/report/page.h"
#include "cmd/report/report_data.h"

const char *report_label_name(const struct report *, int label);

/* A measured value, or an empty cell where it is not finite. */
void report_cell_real(struct page *, enum page_emphasis, double value);
void report_cell_percent(struct page *, double value);

/* Adds tables of all points that at least two labels of the group have; nothing where there are none. */
void report_put_comparison(struct page *, const struct report *, int group);

/* Adds the section of a label: the heading with its notes, the number of rows by outcome, and all its figures. */
void report_put_device(struct page *, const struct report *, int label);

#endif
