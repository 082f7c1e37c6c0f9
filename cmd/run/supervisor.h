/* The supervisor process: it starts the workers, writes every output, and decides the exit code. It never uses the
 * device. */
#ifndef FABENCH_SUPERVISOR_H
#define FABENCH_SUPERVISOR_H

#include <stdio.h>

#include "cmd/options/options.h"

/* Runs a sweep or verify to its end and returns the exit code. */
int supervisor_run(const struct options *);

/* The same on several devices (supervisor_boards.c): a process for each of them, in which supervisor_run_board runs it,
 * and one record. */
int supervisor_run_boards(const struct options *);

/* One of them: header and rows go to `sink` (cmd/run/outputs.h). resume: what its record has already, or NULL. */
struct resume;
int supervisor_run_board(const struct options *, const char *run_id, struct resume *, FILE *sink);

/* Calls `function` once for each of the devices of the options, in their order, each in a process of its own; the worse
 * of the codes. */
int supervisor_call_boards(const struct options *, const char *what, int (*function)(const struct options *),
                           double limit_s);

/* An id for all rows of a run. */
void supervisor_run_id(char *id, size_t size);

/* Runs one function in a child process, so that a crash of a library or driver ends in a sentence and exit 6; killed
 * after limit_s seconds (0 = no limit). `what` names it in messages. */
int supervisor_call(const struct options *, const char *what, int (*function)(const struct options *), double limit_s);

#endif
