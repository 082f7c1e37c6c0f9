/* CSV by RFC 4180: one reader and one writer for all CSV files of the program.
 *
 * Cells are divided by commas, rows by line ends (LF or CRLF). A cell in double quotes may hold commas, line ends and,
 * written twice, quotes. A quote inside an unquoted cell is an ordinary character; text after a closing quote is added
 * to the cell. */
#ifndef FABENCH_BASE_CSV_H
#define FABENCH_BASE_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "cmd/base/log.h"
#include "cmd/base/text.h"

/* ---- reading ---- */

/* How the rows of a file are read. */
struct csv_format {
    char comment;     /* a line whose first non-space character is this one is a comment; '\0' = no comments */
    bool trims;       /* removes spaces and tabs around a cell, but not inside quotes */
    size_t bytes_max; /* longest row, with its quotes and line ends; a longer one is an error */
};

enum csv_result { CSV_ROW, CSV_COMMENT, CSV_END, CSV_ERROR };

struct csv_reader {
    const char *path; /* the caller's, must live as long as the reader */
    int line;         /* first line of the row, comment or blank line read last, from 1; 0 = nothing was read */
    char **cells;     /* cells of the row read last; valid until the next csv_next */
    int count;
    /* Private to the reader. */
    struct csv_format format;
    FILE *in;
    int lines_ended;
    size_t row_bytes;
    struct text bytes; /* the cells, each with its NUL */
    size_t *starts;    /* of the cells in `bytes` */
    int room;          /* for cells */
    char problem[80];  /* empty = none */
};

/* Returns false with a sentence that names the file. Call csv_close in both cases. */
bool csv_open(struct csv_reader *, const char *path, struct csv_format, struct reason *why);

/* The next row, or comment (one cell: what follows the comment character). Blank lines are skipped. On an error (an
 * unclosed quote, a NUL byte, a row over bytes_max, a failed read) *why names file and line, and the reader must not be
 * used again. */
enum csv_result csv_next(struct csv_reader *, struct reason *why);
void csv_close(struct csv_reader *);

/* "<path>, line <line of the row>: <sentence>" in *why. Returns false. A long path is cut in its middle. */
__attribute__((format(printf, 3, 4))) bool csv_refuse(const struct csv_reader *, struct reason *why, const char *format,
                                                      ...);

/* ---- writing ---- */

/* A row under construction, one cell at a time. Starts as {0}. */
struct csv_row {
    struct text text;
    int count; /* of cells */
};

/* Each function adds one cell. Text is cleaned as by text_clean, and quoted where CSV requires it. */
/* As csv_add, for a text that others chose: one that a spreadsheet would take for a formula (=, +, -, @ before anything
 * but a number) gets an apostrophe before it. */
void csv_add_foreign(struct csv_row *, const char *cell);
void csv_add(struct csv_row *, const char *cell);
void csv_add_count(struct csv_row *, int64_t value); /* INT64_MIN: an empty cell */
/* `digits` significant ones; an empty cell when the value is not finite. */
void csv_add_real(struct csv_row *, double value, int digits);
/* Ends the row with LF. The next cell starts a new row in the same text. */
void csv_end(struct csv_row *);
/* Ends the row, writes its text to the stream and empties it. */
void csv_put(struct csv_row *, FILE *out);
void csv_free(struct csv_row *);

#endif
