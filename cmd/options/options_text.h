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

/* How values are written, in sentences. */
extern const char option_values_text[];

#endif
