/* The list of `verify --accepted FILE`: the rows that must run. A kernel that begins to refuse a problem fails no
 * check; with the list its missing row does. A text file, one line a row: implementation and key of the problem. */
#ifndef FABENCH_ACCEPTED_H
#define FABENCH_ACCEPTED_H

#include "cmd/options/options.h"
#include "cmd/record/record_file.h"

/* Reads a list that exists before anything runs: EXIT_OK, or EXIT_USAGE, EXIT_IO after a message. */
int accepted_begin(const struct options *);

/* Compares the rows of a run with the list; where the file does not exist, writes it from the rows that ran, which the
 * run says in a line. Returns EXIT_OK; EXIT_CHECK_FAILED after a message for each row that was not accepted (of
 * --max-failures) and is_missed[row] set; EXIT_IO after a message. is_whole: the run ended by itself; else nothing is
 * written. is_missed: as many as rows, may be NULL. *missed_count: rows of the list that did not run. */
int accepted_check(const struct options *, const struct record_file *rows, bool is_whole, bool *is_missed,
                   int *missed_count);

#endif
