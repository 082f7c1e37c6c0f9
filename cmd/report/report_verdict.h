/* The beginning of the page: the verdict in one paragraph, which programs measured, and why one device is slower. */
#ifndef FABENCH_REPORT_VERDICT_H
#define FABENCH_REPORT_VERDICT_H

#include "cmd/report/page.h"
#include "cmd/report/report_data.h"

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
