/* Rules between options: sizes, outputs, pairs that contradict each other; and how an invalid option is refused. */
#ifndef FABENCH_OPTIONS_RULES_H
#define FABENCH_OPTIONS_RULES_H

#include <stdbool.h>

#include "cmd/options/options_table.h"

/* Call it after all options were parsed. Returns false after a sentence on stderr. */
bool options_check(const struct parse *);

/* "fabench: NAME VALUE: sentence" on one line of stderr; value NULL = none. Always false. */
__attribute__((format(printf, 3, 4))) bool options_refuse(const char *name, const char *value, const char *format, ...);

#endif
