/* Where rows go: terminal table, CSV, JSONL, and after the last one the charts. */
#ifndef FABENCH_SINKS_H
#define FABENCH_SINKS_H

#include "cmd/options/options.h"
#include "cmd/record/record.h"

struct sinks;

/* Makes the run's folder, opens the files and prints the table's first lines. NULL after a sentence on stderr.
 * resume: the record to go on with, or NULL; its writer becomes the sinks'. */
struct resume;
struct sinks *sinks_open(const struct options *, const json_t *header, struct resume *);

/* A row that the record holds already: every view of it but the record. EXIT_OK, or EXIT_IO after a sentence. */
int sinks_keep(struct sinks *, const struct record_row *);

/* Every view of one row, on disk when it returns. EXIT_OK, or EXIT_IO after a sentence. */
int sinks_row(struct sinks *, const struct record_row *);

/* Closes the files, prints the summary, draws the charts; the worse of exit_code and what went wrong here. */
int sinks_close(struct sinks *, double elapsed_s, int exit_code);

#endif
