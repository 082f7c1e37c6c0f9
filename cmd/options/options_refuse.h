/* The error message for an invalid option. */
#ifndef FABENCH_OPTIONS_REFUSE_H
#define FABENCH_OPTIONS_REFUSE_H

#include <stdbool.h>

/* "fabench: NAME VALUE: sentence" on one line of stderr; value NULL = none. Always false. */
__attribute__((format(printf, 3, 4))) bool options_refuse(const char *name, const char *value, const char *format, ...);

#endif
