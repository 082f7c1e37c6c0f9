/* The reader goes through a file character by character; the writer builds rows in memory. */
#include "cmd/base/csv.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/paths.h"

/* ---- reading ---- */

bool csv_open(struct csv_reader *r, const char *path, struct csv_format format, struct reason *why)
{
    *r = (struct csv_reader){.path = path, .format = format, .in = fopen(path, "re")};
    if (!r->in)
        snprintf(why->text, sizeof why->text, "%s: %s", path_shown(path).text, strerror(errno));
    if (r->in)
        file_skip_mark(r->in);
    return r->in != NULL;
}

void csv_close(struct csv_reader *r)
{
    if (r->in)
        fclose(r->in);
    free(r->cells);
    free(r->starts);
    text_free(&r->bytes);
    memset(r, 0, sizeof *r);
}

bool csv_refuse(const struct csv_reader *r, struct reason *why, const char *format, ...)
{
    va_list arguments;
    const int length = snprintf(why->text, sizeof why->text, "%s, line %d: ", path_shown(r->path).text, r->line);
    va_start(arguments, format);
    vsnprintf(why->text + length, sizeof why->text - (size_t)length, format, arguments);
    va_end(arguments);
    return false;
}

/* The next character. EOF at the end of the file; also where the row is invalid, and then r->problem is set. */
static int next(struct csv_reader *r)
{
    const int c = getc_unlocked(r->in);
    if (c == '\0')
        snprintf(r->problem, sizeof r->problem, "a NUL byte: this is not text");
    else if (c == EOF && ferror(r->in))
        snprintf(r->problem, sizeof r->problem, "%s", strerror(errno));
    else if (c != EOF && ++r->row_bytes > r->format.bytes_max)
        snprintf(r->problem, sizeof r->problem, "it is longer than %zu bytes", r->format.bytes_max);
    r->lines_ended += c == '\n';
    return r->problem[0] ? EOF : c;
}

static bool is_space(int c) { return c == ' ' || c == '\t'; }

static void begin_cell(struct csv_reader *r)
{
    if (r->count == r->room) {
        r->room = r->room ? 2 * r->room : 32;
        r->starts = xrealloc(r->starts, (unsigned long)r->room * sizeof *r->starts);
        r->cells = xrealloc(r->cells, (unsigned long)r->room * sizeof *r->cells);
    }
    r->starts[r->count++] = r->bytes.length;
}

/* Each function that reads a cell takes its first unread character and returns the character after the cell: a comma,
 * LF or EOF. */

/* An unquoted cell, or the text after a closing quote. Trailing blanks are removed, but not from the first `kept`
 * bytes. */
static int read_plain(struct csv_reader *r, int c, size_t kept)
{
    struct text *bytes = &r->bytes;
    for (; c != EOF && c != ',' && c != '\n'; c = next(r))
        text_add_char(bytes, (char)c);
    if (c != ',' && bytes->length > kept && bytes->bytes[bytes->length - 1] == '\r')
        bytes->length--;
    while (r->format.trims && bytes->length > kept && is_space(bytes->bytes[bytes->length - 1]))
        bytes->length--;
    return c;
}

/* Reads a quoted cell, starting after the opening quote. */
static int read_quoted(struct csv_reader *r)
{
    for (;;) {
        int c = next(r);
        if (c == '"' && (c = next(r)) != '"')
            return read_plain(r, c, r->bytes.length);
        if (c == EOF) {
            if (!r->problem[0])
                snprintf(r->problem, sizeof r->problem, "a quote stays open");
            return EOF;
        }
        text_add_char(&r->bytes, (char)c);
    }
}

static int read_comment(struct csv_reader *r)
{
    int c;
    while ((c = next(r)) != EOF && c != '\n')
        text_add_char(&r->bytes, (char)c);
    if (r->bytes.length > 0 && r->bytes.bytes[r->bytes.length - 1] == '\r')
        r->bytes.length--;
    return c;
}

static int read_cell(struct csv_reader *r, int c, enum csv_result *kind, bool *is_quoted)
{
    begin_cell(r);
    const size_t start = r->bytes.length;
    for (; is_space(c); c = next(r))
        text_add_char(&r->bytes, (char)c);
    const bool has_spaces = r->bytes.length > start;
    *is_quoted = c == '"' && (r->format.trims || !has_spaces);
    *kind = r->count == 1 && r->format.comment && c == r->format.comment ? CSV_COMMENT : CSV_ROW;
    if (*is_quoted || *kind == CSV_COMMENT || r->format.trims)
        r->bytes.length = start;
    c = *kind == CSV_COMMENT ? read_comment(r) : *is_quoted ? read_quoted(r) : read_plain(r, c, start);
    text_add_char(&r->bytes, '\0');
    return c;
}

/* Reads the row that begins with the character c; a blank line is a row without text. */
static enum csv_result read_row(struct csv_reader *r, int c, bool *is_blank)
{
    enum csv_result kind;
    bool is_quoted;
    c = read_cell(r, c, &kind, &is_quoted);
    *is_blank = kind == CSV_ROW && !is_quoted && c != ',' && r->bytes.bytes[strspn(r->bytes.bytes, " \t")] == '\0';
    while (kind == CSV_ROW && c == ',') {
        enum csv_result ignored;
        c = read_cell(r, next(r), &ignored, &is_quoted);
    }
    return kind;
}

enum csv_result csv_next(struct csv_reader *r, struct reason *why)
{
    enum csv_result kind;
    bool is_blank;
    do {
        const int line = r->lines_ended + 1;
        r->count = 0;
        r->row_bytes = 0;
        text_clear(&r->bytes);
        const int first = next(r);
        if (first == EOF && !r->problem[0])
            return CSV_END;
        r->line = line;
        kind = read_row(r, first, &is_blank);
        if (r->problem[0]) {
            csv_refuse(r, why, "%s", r->problem);
            return CSV_ERROR;
        }
    } while (is_blank);
    for (int i = 0; i < r->count; i++)
        r->cells[i] = r->bytes.bytes + r->starts[i];
    return kind;
}

/* ---- writing ---- */

static void begin_written_cell(struct csv_row *row)
{
    if (row->count++ > 0)
        text_add_char(&row->text, ',');
}

void csv_add(struct csv_row *row, const char *cell)
{
    struct text clean = {0};
    text_add_clean(&clean, cell);
    const char *text = text_string(&clean);
    const bool is_plain =
        !strpbrk(text, ",\"") && *text != '#' && (clean.length == 0 || (*text != ' ' && text[clean.length - 1] != ' '));
    begin_written_cell(row);
    if (is_plain) {
        text_add_bytes(&row->text, text, clean.length);
    } else {
        text_add_char(&row->text, '"');
        for (; *text; text++) {
            if (*text == '"')
                text_add_char(&row->text, '"');
            text_add_char(&row->text, *text);
        }
        text_add_char(&row->text, '"');
    }
    text_free(&clean);
}

void csv_add_foreign(struct csv_row *row, const char *cell)
{
    double number;
    if (!*cell || !strchr("=+-@", *cell) || number_parse_real(cell, &number)) {
        csv_add(row, cell);
        return;
    }
    char *text = xasprintf("'%s", cell);
    csv_add(row, text);
    free(text);
}

void csv_add_count(struct csv_row *row, int64_t value)
{
    begin_written_cell(row);
    if (value != INT64_MIN)
        text_add(&row->text, "%lld", (long long)value);
}

void csv_add_real(struct csv_row *row, double value, int digits)
{
    begin_written_cell(row);
    if (isfinite(value))
        text_add(&row->text, "%.*g", digits, value);
}

void csv_end(struct csv_row *row)
{
    text_add_char(&row->text, '\n');
    row->count = 0;
}

void csv_put(struct csv_row *row, FILE *out)
{
    csv_end(row);
    fwrite(text_string(&row->text), 1, row->text.length, out);
    text_clear(&row->text);
}

void csv_free(struct csv_row *row)
{
    text_free(&row->text);
    row->count = 0;
}
