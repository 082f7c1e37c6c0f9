/* Text: cleaned of what a terminal or a file must not see. */
#ifndef FABENCH_BASE_TEXT_H
#define FABENCH_BASE_TEXT_H

#include <stddef.h>

/* One line of valid UTF-8 from any bytes: control characters become spaces, stray bytes '?'. Cut to `size` at the border of
 * a character. Records, tables and charts are written so. */
void text_clean(const char *from, char *to, size_t size);

#endif
