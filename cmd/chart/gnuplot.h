/* gnuplot as a child process. */
#ifndef FABENCH_GNUPLOT_H
#define FABENCH_GNUPLOT_H

#include <stdio.h>

enum gnuplot_result { GNUPLOT_DONE, GNUPLOT_ABSENT, GNUPLOT_FAILED };

/* Runs gnuplot in `dir` (NULL = here) on a script, "-" = `input`. Its stdout goes to `output`, or to its stderr where
 * that is NULL; the first lines of stderr are printed as warnings with `name`, and so is a failure. No shell and none
 * of the user's start-up files are used. */
enum gnuplot_result gnuplot_run(const char *dir, const char *script, FILE *input, FILE *output, const char *name);

#endif
