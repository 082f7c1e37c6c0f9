/* gnuplot as a child process. */
#ifndef FABENCH_GNUPLOT_H
#define FABENCH_GNUPLOT_H

#include <stdio.h>

enum gnuplot_result { GNUPLOT_DONE, GNUPLOT_ABSENT, GNUPLOT_FAILED };

/* Runs gnuplot in `dir` (NULL = here) on a script, "-" = `input`. Its stdout goes to `output`, or beside its stderr
 * where that is NULL; the first lines of stderr are passed on as warnings under `name`, and a failure is said. No shell
 * is involved, and the user's own start-up files are left out. */
enum gnuplot_result gnuplot_run(const char *dir, const char *script, FILE *input, FILE *output, const char *name);

#endif
