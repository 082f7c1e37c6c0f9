/* Rules between options: sizes, outputs, pairs that contradict each other. */
#ifndef FABENCH_OPTIONS_RULES_H
#define FABENCH_OPTIONS_RULES_H

#include "cmd/options/options_table.h"

/* Call it after all options were parsed. Returns false after a sentence on stderr. */
bool options_check(const struct parse *);

#endif
