/* One value of the command line into its field, for the options_*.c files alone. */
#ifndef FABENCH_OPTIONS_VALUES_H
#define FABENCH_OPTIONS_VALUES_H

#include "cmd/options/options_table.h"

/* One option into its field. `name` is the option as the user wrote it. False after a sentence. */
bool option_parse_value(struct options *, const struct option_def *, const char *name, const char *value);

/* Every option that was not given, from the table. */
void options_apply_defaults(struct options *);

/* Frees one option's field and zeroes it, because two rows may have one field. */
void option_free_value(struct options *, const struct option_def *);

/* The index of word[0, length) among the choices of a row, or -1. */
int option_choice_index(const struct option_def *, const char *word, size_t length);

/* Refuses word[0, length), a choice or one of several in `value`. Always false. */
bool option_refuse_choice(const struct option_def *, const char *name, const char *value, const char *word,
                          size_t length);

#endif
