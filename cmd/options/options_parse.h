/* From a command line to struct options. */
#ifndef FABENCH_OPTIONS_PARSE_H
#define FABENCH_OPTIONS_PARSE_H

#include "cmd/options/options.h"

/* EXIT_OK to go on, the struct then to be freed with options_free; EXIT_OK with *done set after --help or --version
 * printed to stdout; EXIT_USAGE after one sentence on stderr. */
int options_parse(int argc, char **argv, struct options *, bool *done);

/* The command line of a record's header, parsed as a sweep's without its outputs. EXIT_USAGE when it is none that works
 * here, maybe after a sentence on stderr. */
int options_parse_line(const char *command_line, struct options *);

/* Frees what the struct owns, and zeroes it. */
void options_free(struct options *);

#endif
