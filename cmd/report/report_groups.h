/* Finds which labels of a report can be compared, and why the others cannot. */
#ifndef FABENCH_REPORT_GROUPS_H
#define FABENCH_REPORT_GROUPS_H

#include "cmd/report/report_data.h"

/* Puts labels that share a point into one group, also labels that are connected only through others. Fills
 * summaries[].group and group_count. */
void report_make_groups(struct report *);

/* Writes why two labels share no point: "dtype fp32 against fp16, bf16; tokens 4096 against 16384". */
void report_difference(const struct report *, int label, int other, char *text, size_t size);

#endif
