/* The terminal on stdout: how wide it is, and whether it gets colour. */
#ifndef FABENCH_BASE_TERMINAL_H
#define FABENCH_BASE_TERMINAL_H

#include <stdbool.h>

enum color_choice { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER };

/* Width in columns. Without a terminal: COLUMNS, or 110 where it is not set. */
int terminal_width(void);

/* AUTO: on a terminal, unless NO_COLOR is set. */
bool terminal_color(enum color_choice);

#endif
