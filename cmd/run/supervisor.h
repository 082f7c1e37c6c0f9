/* The process that never touches the device: it runs the workers, owns every output, and decides the exit code. */
#ifndef FABENCH_SUPERVISOR_H
#define FABENCH_SUPERVISOR_H

#include "cmd/options/options.h"

/* Runs a sweep or verify to its end and returns the exit code. */
int supervisor_run(const struct options *);

/* Runs one function in a child, so that a library or driver that crashes costs a sentence and exit 6, not the program;
 * killed after the options' time limit (0 = none). `what` names it. */
int supervisor_call(const struct options *, const char *what, int (*function)(const struct options *), double limit_s);

#endif
