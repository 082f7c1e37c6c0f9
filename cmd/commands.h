/* From a parsed command line to the command's own function. */
#ifndef FABENCH_COMMANDS_H
#define FABENCH_COMMANDS_H

#include "cmd/options/options.h"

/* Runs the command that the options name; returns the program's exit code. */
int command_run(const struct options *);

#endif
