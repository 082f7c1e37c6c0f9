/* `fabench report [LABEL=]A.jsonl ...`: devices, or commits, side by side, from records alone. DESIGN section 9. */
#ifndef FABENCH_REPORT_H
#define FABENCH_REPORT_H

#include "cmd/options/options.h"
#include "cmd/chart/overlay.h"

/* Writes report.md, report.csv, report.html and the charts into --out (default fabench-out/report-<utc>/), and the
 * verdict with the summary to stdout; with --out none the whole page goes to stdout as Markdown. EXIT_OK;
 * EXIT_NOT_COMPARABLE where the records cannot be reported, or where not all labels can be compared (the page is
 * written and says so); EXIT_USAGE for labels and prices; EXIT_IO. */
int report_run(const struct options *, const struct overlay *overlay);

#endif
