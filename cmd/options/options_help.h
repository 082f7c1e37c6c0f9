/* What --help and --version print. */
#ifndef FABENCH_OPTIONS_HELP_H
#define FABENCH_OPTIONS_HELP_H

#include "cmd/options/options_table.h"

void options_print_help(const struct command_def *, bool is_named);
void options_print_version(void);

#endif
