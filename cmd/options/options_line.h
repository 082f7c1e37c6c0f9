/* Command lines written back: the one of this process, the options that rows depend on, and the command that makes one
 * row again. Every word is quoted so that a shell reads it back. The caller frees each. */
#ifndef FABENCH_OPTIONS_LINE_H
#define FABENCH_OPTIONS_LINE_H

#include "cmd/options/options.h"
#include "cmd/problem/problem_key.h"

/* argv as a shell would read it back. */
char *options_line_of(int argc, char **argv);

/* Every option that was given, but those of where the output goes; in the order of the table. Two lines of one text make
 * the same rows on the same device. */
char *options_deciding(const struct options *);

/* `command` ("fabench", with its arguments where it takes some), then the options that were given and that `taker`
 * takes, then --impl and the options that ask for this problem. Outputs, gates' limits and the lists that made the plan
 * are left out. impl, key: NULL = left out. */
char *options_repro(const struct options *, enum command taker, const char *command, const char *impl,
                    const struct problem_key *key);

#endif
