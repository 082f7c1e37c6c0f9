/* The tables of the page, and the cells that its summary has in common with them. */
#ifndef FABENCH_REPORT_TABLES_H
#define FABENCH_REPORT_TABLES_H

#include "cmd/report/page.h"
#include "cmd/report/report_data.h"

const char *report_label_name(const struct report *, int label);

/* A measured value, or an empty cell where it is not finite. */
void report_cell_real(struct document *, enum document_emphasis, double value);
void report_cell_percent(struct document *, double value);

/* Tables of all points that at least two labels of the group have; nothing where there are none. */
void report_put_comparison(struct document *, const struct report *, int group);

/* A label's heading with its remarks, what became of its rows, and all its figures. */
void report_put_device(struct document *, const struct report *, int label);

#endif
