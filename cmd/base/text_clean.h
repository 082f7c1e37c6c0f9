/* Text that can be shown anywhere: no control characters, valid UTF-8. Needs no memory and no other module, so that
 * messages on stderr can use it. */
#ifndef FABENCH_BASE_TEXT_CLEAN_H
#define FABENCH_BASE_TEXT_CLEAN_H

#include <stddef.h>

/* One line of valid UTF-8 from any bytes: control characters (ESC and the C1 set included) become spaces, stray bytes
 * '?', so that a terminal obeys none of them. Never longer than `from`; cut to `size` at the border of a character.
 * Records are written and read so; tables, charts and messages are written so. */
void text_clean(const char *from, char *to, size_t size);

#endif
