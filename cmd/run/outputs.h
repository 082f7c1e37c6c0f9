/* The outputs of a run: terminal table, CSV, JSONL, and after the last row the charts. */
#ifndef FABENCH_RUN_OUTPUTS_H
#define FABENCH_RUN_OUTPUTS_H

#include <stdio.h>

#include "cmd/options/options.h"
#include "cmd/record/record.h"

struct run_outputs;

/* Makes the run's folder, opens the files and prints the table's first lines. NULL after a sentence on stderr.
 * resume: the record to continue, or NULL; its writer then belongs to the outputs. */
struct resume;
struct run_outputs *run_outputs_open(const struct options *, const json_t *header, struct resume *);

/* Outputs that pass header and rows on, as lines of JSON, to the process that writes those of several boards:
 * {"msg":"header","header":{..}} and {"msg":"row","row":{..}}. */
struct run_outputs *run_outputs_forward(FILE *sink, const json_t *header);

/* The header of another board, whose rows follow in the same outputs; rows of several boards are told apart by `pci`.
 * is_new: it is not yet in the record. EXIT_OK, or EXIT_IO after a sentence. */
int run_outputs_add_header(struct run_outputs *, const json_t *header, bool is_new);

/* An object of another type into the record: no row of table, CSV or charts. It is not passed on. EXIT_OK, or EXIT_IO
 * after a sentence. */
int run_outputs_note(struct run_outputs *, const json_t *object);

/* Where the table goes, NULL where there is none, as when the record goes to stdout; and its width. */
FILE *run_outputs_page(const struct run_outputs *, int *width);

/* Adds a row that the record has already to table, CSV and charts, but not to the record; it is not passed on.
 * EXIT_OK, or EXIT_IO after a sentence. */
int run_outputs_show(struct run_outputs *, const struct record_row *);

/* Writes one new row to every output; it is in the file when this returns. EXIT_OK, or EXIT_IO after a sentence. */
int run_outputs_add(struct run_outputs *, const struct record_row *);

/* Closes the files, prints the summary, draws the charts, writes --junit; the worse of exit_code and an error here. */
int run_outputs_close(struct run_outputs *, double elapsed_s, int exit_code);

#endif
