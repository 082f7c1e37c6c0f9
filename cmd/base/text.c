/* Cleaning text, byte by byte. */
#include "cmd/base/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Length of the UTF-8 sequence at text, 0 when there is none. Overlong forms and surrogates are none. */
static size_t utf8_length(const unsigned char *text)
{
    static const struct { unsigned char mask, lead; uint32_t least; } forms[] = {
        {0x80, 0x00, 0}, {0xE0, 0xC0, 0x80}, {0xF0, 0xE0, 0x800}, {0xF8, 0xF0, 0x10000}};
    for (size_t length = 1; length <= 4; length++) {
        if ((text[0] & forms[length - 1].mask) != forms[length - 1].lead)
            continue;
        uint32_t code = text[0] & (unsigned char)~forms[length - 1].mask;
        for (size_t i = 1; i < length; i++) {
            if ((text[i] & 0xC0) != 0x80)
                return 0;
            code = code << 6 | (text[i] & 0x3F);
        }
        const bool is_legal = code >= forms[length - 1].least && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
        return is_legal ? length : 0;
    }
    return 0;
}

void text_clean(const char *from, char *to, size_t size)
{
    size_t used = 0;
    while (*from) {
        const size_t length = utf8_length((const unsigned char *)from);
        const size_t step = length ? length : 1;
        if (used + step >= size)
            break;
        if (length == 0)
            to[used] = '?';
        else if ((unsigned char)*from < 0x20 || *from == 0x7F)
            to[used] = ' ';
        else
            memcpy(to + used, from, step);
        used += step;
        from += step;
    }
    to[used] = '\0';
}
