/* Texts about options, exit codes and presets, shared by error messages, --help and the manual. */
#ifndef FABENCH_OPTIONS_TEXT_H
#define FABENCH_OPTIONS_TEXT_H

#include "cmd/options/options_table.h"

/* "quick, paper, ci or full" in buffer, which is returned. */
const char *option_join_names(const char *const *names, int count, char *buffer, size_t size);

/* The row's choices that a user may type; at most OPTION_CHOICES_MAX of them. Returns how many. */
enum { OPTION_CHOICES_MAX = 16 };
int option_legal_choices(const struct option_def *, const char *choices[OPTION_CHOICES_MAX]);

/* The legal values of a row, to follow "must be ": "a whole number from 1 to 64". */
const char *option_legal_text(const struct option_def *, char *buffer, size_t size);

/* The legal values of a row, for the long help: "" where option_syntax is enough. */
const char *option_values(const struct option_def *, char *buffer, size_t size);

/* "--d, --headdim N,...". */
const char *option_syntax(const struct option_def *, char *buffer, size_t size);

/* "sweep, verify": the commands that take the row. */
const char *option_commands(const struct option_def *, char *buffer, size_t size);

/* In full: the row's detail, or its help. */
const char *option_explanation(const struct option_def *);

/* A name and what it means; a list ends with a row of NULL. */
struct named_text {
    const char *name, *text;
};
extern const struct named_text option_exit_codes[];
extern const struct named_text option_presets[];   /* of the sweep */
extern const struct named_text option_variables[]; /* of the environment */

/* Public models: the options of their attention, and where the sizes are from. */
struct model_shape {
    const char *name, *options, *source;
};
extern const struct model_shape option_models[];

/* How values are written, in sentences. */
extern const char option_values_text[];

/* What --help and --version print: help (options_help.c), the manual, completion for the shell. */

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
