/* CSV after RFC 4180: one reader and one writer for every file of the program.
 *
 * Cells are divided by commas, rows by line ends (LF or CRLF). A cell in double quotes may hold commas, line ends and,
 * written twice, quotes. A quote inside a cell that does not begin with one stands for itself; text behind a closing
 * quote belongs to the cell. */
#ifndef FABENCH_BASE_CSV_H
#define FABENCH_BASE_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "cmd/base/reason.h"
#include "cmd/base/text.h"

/* ---- reading ---- */

/* How the rows of a file are read. */
struct csv_format {
    char comment;     /* lines whose first character, behind spaces, is this one are comments; '\0' = there are none */
    bool trims;       /* spaces and tabs around a cell are not part of it, inside quotes they are */
    size_t bytes_max; /* of one row with its quotes and line ends; a longer one is an error */
};

enum csv_result { CSV_ROW, CSV_COMMENT, CSV_END, CSV_ERROR };

struct csv_reader {
    const char *path; /* the caller's, must live as long as the reader */
    int line;         /* where the row, comment or blank line read last begins, from 1; 0 = nothing was read */
    char **cells;     /* of the row read last; they last until the next csv_next */
    int count;
    /* The reader's own. */
    struct csv_format format;
    FILE *in;
    int lines_ended;
    size_t row_bytes;
    struct text bytes; /* the cells, each with its NUL */
    size_t *starts;    /* of the cells in `bytes` */
    int room;          /* for cells */
    char problem[80];  /* empty = none */
};

/* False with a sentence that names the file. csv_close in any case. */
bool csv_open(struct csv_reader *, const char *path, struct csv_format, struct reason *why);

/* The next row, or comment (one cell: what follows the comment character). Blank lines are passed over. Errors (a quote
 * that stays open, a NUL byte, a row over its limit, a failed read) are a sentence that names file and line; after one
 * the reader must not be used again. */
enum csv_result csv_next(struct csv_reader *, struct reason *why);
void csv_close(struct csv_reader *);

/* "<path>, line <line of the row>: <sentence>" in *why. Returns false. A long path is cut in its middle. */
__attribute__((format(printf, 3, 4))) bool csv_refuse(const struct csv_reader *, struct reason *why, const char *format,
                                                      ...);

/* ---- writing ---- */

/* A row that is built cell by cell; {0} begins the first one. */
struct csv_row {
    struct text text;
    int count; /* of cells */
};

/* One more cell. Text is cleaned as text_clean does and quoted where a reader needs it. */
void csv_add(struct csv_row *, const char *cell);
void csv_add_count(struct csv_row *, int64_t value); /* INT64_MIN: an empty cell */
/* `digits` significant ones; an empty cell when the value is not finite. */
void csv_add_real(struct csv_row *, double value, int digits);
/* Ends the row with LF. The next cell begins another one in the same text. */
void csv_end(struct csv_row *);
/* Ends the row, writes its text to the stream and empties it. */
void csv_put(struct csv_row *, FILE *out);
void csv_free(struct csv_row *);

#endif
