/* `fabench report --history A.jsonl ...`: the speed of each case over commits, with its band. */
#ifndef FABENCH_HISTORY_H
#define FABENCH_HISTORY_H

#include "cmd/options/options.h"

/* A table for each device and dtype: a line for each problem and implementation, a column for each commit (or label),
 * in the order in which they were measured. To stdout as text, with --out none as Markdown, else to DIR/history.md.
 * Exit codes as report_run. */
int history_run(const struct options *);

#endif
