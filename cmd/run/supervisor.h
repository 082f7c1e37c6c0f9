/* The supervisor process: it starts the workers, writes every output, and decides the exit code. It never uses the
 * device. */
#ifndef FABENCH_SUPERVISOR_H
#define FABENCH_SUPERVISOR_H

#include "cmd/options/options.h"

/* Runs a sweep or verify to its end and returns the exit code. */
int supervisor_run(const struct options *);

/* Runs one function in a child process, so that a crash of a library or driver ends in a sentence and exit 6; killed
 * after limit_s seconds (0 = no limit). `what` names it in messages. */
int supervisor_call(const struct options *, const char *what, int (*function)(const struct options *), double limit_s);

#endif
