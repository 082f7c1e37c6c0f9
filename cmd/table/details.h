/* What stands below a row of the table: why it failed its check, its passes, samples and sustained region; and the
 * texts that its cells have too. Each function writes whole lines of at most `width` columns. */
#ifndef FABENCH_TABLE_DETAILS_H
#define FABENCH_TABLE_DETAILS_H

#include <stdio.h>

#include "cmd/record/record.h"

enum { CELL_SIZE = 80 };

/* "causal", "full w128,-"; at most CELL_SIZE bytes, as the next one. */
void cell_mask(const struct record_row *, char *cell);
/* Three significant digits down to 0.001, so that a CPU's small TFLOPS are not shown as zeros. "-" = not finite. */
void cell_figure(char *cell, double value);

/* The paragraph of a row that failed its check: the tensors, where, and the command that makes it again. */
void details_failure(FILE *out, int width, const struct record_row *);
/* --verbose: the time of each pass of a multi-pass implementation, from one launch with time stamps. */
void details_passes(FILE *out, int width, const struct record_row *);
/* --verbose: how many samples the time is made of, and why sampling ended. */
void details_samples(FILE *out, int width, const struct record_row *);
/* The figures of the implementation's sustained region, below its burst figures and compared with them. */
void details_sustained(FILE *out, int width, const struct record_row *);

#endif
