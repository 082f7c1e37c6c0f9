/* `fabench plot A.jsonl ...`: charts from records, no device needed. */
#ifndef FABENCH_PLOT_H
#define FABENCH_PLOT_H

#include "cmd/chart/overlay.h"
#include "cmd/options/options.h"

/* Draws the record files that the options name, with published points where overlay is not NULL, to the folder of --out
 * (default: the working folder), or to stdout with --plot term. EXIT_OK; EXIT_NOT_COMPARABLE where a record cannot be
 * read; EXIT_IO. */
int plot_run(const struct options *, const struct overlay *overlay);

#endif
