/* Which labels of a report can be compared, and why others cannot. */
#ifndef FABENCH_REPORT_GROUPS_H
#define FABENCH_REPORT_GROUPS_H

#include "cmd/report/report_data.h"

/* Labels that share a point are of one group, and so are those that are joined through others; fills summaries[].group
 * and group_count. */
void report_make_groups(struct report *);

/* Why two labels share no point, as "dtype fp32 against fp16, bf16; tokens 4096 against 16384". */
void report_difference(const struct report *, int label, int other, char *text, size_t size);

#endif
