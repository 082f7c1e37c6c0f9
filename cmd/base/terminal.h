/* The terminal on stdout: how wide it is, whether it gets colour, how text is laid out in its
 * width, and text that it can show. */
#ifndef FABENCH_BASE_TERMINAL_H
#define FABENCH_BASE_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum color_choice { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER };

/* Width in columns. Without a terminal: COLUMNS, or 110 where it is not set. */
int terminal_width(void);

/* AUTO: on a terminal, unless NO_COLOR is set. */
bool terminal_color(enum color_choice);

/* Sentences and commands laid out in a terminal of a given width. */

/* Prints words on lines of at most `width` columns (a single longer word overflows): the first line begins behind
 * `indent` spaces, the others behind `hang`. A newline ends it. */
void wrap_words(FILE *, int width, int indent, int hang, const char *text);

/* The same for a shell command, so that it can be copied into a shell: lines end in a backslash and break only at
 * spaces outside quotes. */
void wrap_command(FILE *, int width, int indent, const char *command);

/* Cuts text to `limit` columns without splitting a character, and ends it with "..." where there is room for it. */
void wrap_shorten(char *text, int limit);

/* Columns that UTF-8 text takes, one for each character. */
int wrap_columns(const char *text);

/* Text that can be shown anywhere: no control characters, valid UTF-8. Needs no memory and no other module, so that
 * messages on stderr can use it. */

/* One line of valid UTF-8 from any bytes: control characters (ESC and the C1 set included) become spaces, stray bytes
 * '?', so that a terminal obeys none of them. Never longer than `from`; cut to `size` at the border of a character.
 * Records are written and read so; tables, charts and messages are written so. */
void text_clean(const char *from, char *to, size_t size);

#endif
