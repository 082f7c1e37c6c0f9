/* Removes control characters and invalid UTF-8. */
#include "cmd/base/text_clean.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Length of the UTF-8 sequence at text; 0 when it is invalid. Overlong forms and surrogates are invalid. */
static size_t utf8_length(const unsigned char *text)
{
    static const struct {
        unsigned char mask, lead;
        uint32_t least;
    } forms[] = {{0x80, 0x00, 0}, {0xE0, 0xC0, 0x80}, {0xF0, 0xE0, 0x800}, {0xF8, 0xF0, 0x10000}};
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

/* The control characters of ASCII, and those from U+0080 to U+009F: some terminals take U+009B for ESC [. */
static bool is_control(const unsigned char *character)
{
    return *character < 0x20 || *character == 0x7F || (*character == 0xC2 && character[1] < 0xA0);
}

/* Writes the first character of `from`, cleaned, to `to` (no NUL). Returns its length in bytes, before and after
 * cleaning. */
static size_t clean_character(const char *from, char *to)
{
    const size_t length = utf8_length((const unsigned char *)from);
    if (length == 0)
        *to = '?';
    else if (is_control((const unsigned char *)from))
        memset(to, ' ', length);
    else
        memcpy(to, from, length);
    return length ? length : 1;
}

void text_clean(const char *from, char *to, size_t size)
{
    size_t used = 0;
    while (*from) {
        char character[4];
        const size_t length = clean_character(from, character);
        if (used + length >= size)
            break;
        memcpy(to + used, character, length);
        used += length;
        from += length;
    }
    to[used] = '\0';
}
