/* The terminal table and the summary under it (section 4 of docs/design.md): at most 110 columns wide, a narrow
 * form under 100, rows grouped by problem, verdict next to speed. */
#ifndef FABENCH_TABLE_H
#define FABENCH_TABLE_H

#include <stdio.h>

#include "cmd/record/record.h"

struct table;

/* Prints to `out` (stdout). width: columns of the terminal (110 where there is none). color: ANSI colours. peer: the
 * implementation that `x peer` compares with, or NULL. verify: rows without times (columns of correctness only). */
struct table *table_open(FILE *out, int width, bool color, const char *peer, bool verify);
void table_header_line(struct table *, const char *line); /* lines above the table, e.g. the device */
/* Text for the group headings that is not in the rows, e.g. "16384 tokens" or "batch 4"; NULL = none. */
void table_convention(struct table *, const char *words);
/* The device's name for nvidia-smi, when its clocks are not locked: if they changed, the summary says how to lock
 * them. */
void table_clocks(struct table *, const char *pci_bus_id);
/* At most this many failures are printed in full, all of them where it was not called. Of the others verify prints
 * nothing and a sweep the row alone; the summary says how many there are. */
void table_max_failures(struct table *, int64_t);
/* The half-width of the 95 % interval that was asked for, in per cent (--max-noise): rows whose interval is wider are
 * marked with `!` and counted in the last line. NaN = not known, nothing is marked. */
void table_noise(struct table *, double asked_pct);
/* Whether naive runs; where it does not, there is no column of ratios over it. */
void table_has_naive(struct table *, bool);
/* --verbose: below each row the number of samples and why sampling ended. */
void table_verbose(struct table *);
/* Refused rows are not printed, with --verbose they are; the summary has their reasons, each with its number. */
void table_group_refusals(struct table *);
/* Rows that pass or did not run are not printed, with --verbose they are; the summary has the reasons of the latter. */
void table_failures_alone(struct table *);
/* Rows have a column that says whether bits are the same in other batches. */
void table_invariance(struct table *);
/* --quiet: only failures, rows that did not finish, and at the end what is no PASS or noisy; as messages on stderr. */
void table_quiet(struct table *);
/* Rows are of several boards: each row begins with the end of its board's PCI address. */
void table_boards(struct table *);
/* The command to go on with, which the summary prints instead of the one that draws the record. */
void table_next(struct table *, const char *command);
/* Prints a group heading first when mode, causal, d, dtype or another fact of the group changes. */
void table_row(struct table *, const struct record_row *);
/* Prints the summary: rows checked and passed, geomean over the peer and over naive per fused implementation, the
 * element nearest its bound, telemetry (power-capped, throttled, temperature and GEMM range), where the
 * records are, and the verdict line (PASS, FAILED: n of m rows, NOT CHECKED) with the number of noisy rows and the
 * machine's load. elapsed_s and exit code end it. */
struct summary_files;
void table_close(struct table *, const struct summary_files *, double elapsed_s, int exit_code);

/* What stands below a row of the table (details.c): why it failed its check, its passes, samples and sustained region;
 * and the texts that its cells have too. Each function writes whole lines of at most `width` columns. */

enum { CELL_SIZE = 80 };

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
void details_counters(FILE *out, int width, const struct record_row *);

#endif
