/* From a command line to struct options. */
#ifndef FABENCH_OPTIONS_PARSE_H
#define FABENCH_OPTIONS_PARSE_H

#include "cmd/options/options.h"

/* EXIT_OK: the options are valid; free them with options_free. EXIT_OK with *done set: --help or --version was printed
 * to stdout. EXIT_USAGE: one sentence was printed to stderr. */
int options_parse(int argc, char **argv, struct options *, bool *done);

/* Parses the command line of a record's header as a sweep without outputs. EXIT_USAGE when it is not valid here,
 * possibly after a sentence on stderr. */
int options_parse_line(const char *command_line, struct options *);

/* Frees what the struct owns, and zeroes it. */
void options_free(struct options *);

#endif
