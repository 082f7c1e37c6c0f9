/* What --help and --version print: help, the manual, completion for the shell. */
#ifndef FABENCH_OPTIONS_HELP_H
#define FABENCH_OPTIONS_HELP_H

#include "cmd/options/options_table.h"

/* --help and --help=TOPIC, to stdout. Topics: NULL prints one screen; `all` or a group's name, the options in full;
 * `markdown`, `man` and `bash`, the generated pages. When a command was typed, only its options are printed. Returns
 * false, after a sentence on stderr, for an unknown topic. */
bool options_print_help(const struct command_def *, bool is_named, const char *topic);
/* `fabench help`: the words after it name a command, or a topic as of --help; none = one screen. */
bool options_print_help_on(const struct name_list *words);
void options_print_version(void);

/* The manual made from the option table: docs/cli.md and the man page. */

/* To stdout. The Markdown depends on nothing but the tables: every build prints the same. */
void options_print_markdown(void);
void options_print_man(void);

/* Completion of command lines by the shell. */

/* A script for bash-completion, to stdout: commands, each command's options, choices, files and folders. */
void options_print_bash(void);

#endif
