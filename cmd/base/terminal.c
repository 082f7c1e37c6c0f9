/* Width and colour, from the terminal driver and the environment. */
#include "cmd/base/terminal.h"

#include <stdbool.h>
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
