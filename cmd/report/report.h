/* `fabench report [LABEL=]A.jsonl ...` compares devices or commits, from their records alone
 * (section 9 of docs/design.md). */
#ifndef FABENCH_REPORT_H
#define FABENCH_REPORT_H

#include "cmd/options/options.h"
#include "cmd/chart/overlay.h"

/* Writes report.md, report.csv, report.html and the charts into --out (default fabench-out/report-<utc>/), and
 * comparability and summary to stdout. With --out none the whole page goes to stdout as Markdown. overlay: published
 * figures for the charts, or NULL. Returns EXIT_OK; EXIT_NOT_COMPARABLE when the records cannot be reported, or not all
 * labels can be compared (the page is still written); EXIT_USAGE for wrong labels or prices; EXIT_IO. */
int report_run(const struct options *, const struct overlay *overlay);

#endif
