/* Width and colour, from the terminal driver and the environment. */
#include "cmd/base/terminal.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

int terminal_width(void)
{
    struct winsize size;
    const char *columns = getenv("COLUMNS");
    const long wanted = columns ? strtol(columns, NULL, 10) : 0;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return wanted > 0 && wanted < 1000 ? (int)wanted : 110;
}

bool terminal_color(enum color_choice choice)
{
    if (choice != COLOR_AUTO)
        return choice == COLOR_ALWAYS;
    const char *none = getenv("NO_COLOR");
    return isatty(STDOUT_FILENO) && !(none && *none);
}

/* Line breaking by words and by shell words. */

static bool is_continuation(char c) { return ((unsigned char)c & 0xC0) == 0x80; }

static int columns_of(const char *text, size_t bytes)
{
    int columns = 0;
    for (size_t i = 0; i < bytes; i++)
        columns += !is_continuation(text[i]);
    return columns;
}

int wrap_columns(const char *text) { return columns_of(text, strlen(text)); }

/* Bytes of the next word. With quotes, a space inside them does not end it. */
static size_t word_bytes(const char *text, bool has_quotes)
{
    char quote = 0;
    size_t i = 0;
    for (; text[i] && (quote || text[i] != ' '); i++) {
        if (!has_quotes)
            continue;
        if (text[i] == '\\' && quote != '\'' && text[i + 1])
            i++;
        else if (quote)
            quote = text[i] == quote ? 0 : quote;
        else if (text[i] == '\'' || text[i] == '"')
            quote = text[i];
    }
    return i;
}

static void wrap(FILE *out, int width, int indent, int hang, const char *text, const char *line_end, bool has_quotes)
{
    int column = indent;
    bool is_first = true;
    fprintf(out, "%*s", indent, "");
    for (;;) {
        text += strspn(text, " ");
        if (!*text)
            break;
        const size_t bytes = word_bytes(text, has_quotes);
        const int columns = columns_of(text, bytes);
        /* The last word needs no room for the line end. */
        const int reserve = text[bytes + strspn(text + bytes, " ")] ? (int)strlen(line_end) : 0;
        if (!is_first && column + 1 + columns + reserve > width) {
            fprintf(out, "%s\n%*s", line_end, hang, "");
            column = hang;
        } else if (!is_first) {
            fputc(' ', out);
            column++;
        }
        fwrite(text, 1, bytes, out);
        column += columns;
        text += bytes;
        is_first = false;
    }
    fputc('\n', out);
}

void wrap_words(FILE *out, int width, int indent, int hang, const char *text)
{
    wrap(out, width, indent, hang, text, "", false);
}

void wrap_command(FILE *out, int width, int indent, const char *command)
{
    wrap(out, width, indent, indent + 4, command, " \\", true);
}

void wrap_shorten(char *text, int limit)
{
    const char *const dots = "...";
    if (limit < 0)
        limit = 0;
    if (wrap_columns(text) <= limit)
        return;
    const int kept = limit > 3 ? limit - 3 : limit;
    size_t end = 0;
    for (int columns = 0; text[end]; end++) {
        if (!is_continuation(text[end]) && columns++ == kept)
            break;
    }
    strcpy(text + end, limit > 3 ? dots : "");
}

/* ---- text without control characters ---- */

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
