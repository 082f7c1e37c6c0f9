/* What --help and --version print. */
#ifndef FABENCH_OPTIONS_HELP_H
#define FABENCH_OPTIONS_HELP_H

#include "cmd/options/options_table.h"

/* --help and --help=TOPIC, to stdout. Topics: NULL, one screen; `all` or a group's name, every option in full;
 * `markdown`, `man` and `bash`, the pages that are made from the table. After a command that was typed only that
 * command's options. False after a sentence about a wrong topic. */
bool options_print_help(const struct command_def *, bool is_named, const char *topic);
void options_print_version(void);

#endif
