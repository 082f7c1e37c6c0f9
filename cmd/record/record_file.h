/* Record files: JSONL and CSV written row by row, JSONL read back.
 *
 * A JSONL file is a header object ({"type":"header", ...}), then one object per row ({"type":"row", ...}: every column
 * that is not empty, by its name, plus the lists that only JSONL has), in the order the cases finished. When the last
 * line is cut, the lines before it are still read.
 */
#ifndef FABENCH_RECORD_FILE_H
#define FABENCH_RECORD_FILE_H

#include <jansson.h>

#include "cmd/record/record_row.h"
#include "kernels/attention.h"

/* Writers. A row is one write call: when the function returns, it is in the file, or the error is returned (0, or an
 * errno). After an error the writer accepts no more rows. A regular file is locked while it is open, so that two runs
 * cannot write one file. CSV follows RFC 4180, but lines end in LF alone. */
struct record_writer;
/* path "-" = stdout. Header is written at once (JSONL) or the column line (CSV). columns: comma-separated names for the
 * CSV, NULL = all. NULL on failure with a sentence. */
struct record_writer *record_open_jsonl(const char *path, const json_t *header, struct attn_message *why);
struct record_writer *record_open_csv(const char *path, const char *columns, struct attn_message *why);
/* Opens a record file to append to it: locks it, reads it into *file (record_read), and returns a writer positioned
 * after the last complete line. The file does not change before record_continue. A file that is empty, or has nothing
 * but the cut line of a header, is no error here: file->header is then NULL. */
struct record_file;
struct record_writer *record_reopen_jsonl(const char *path, struct record_file *, struct attn_message *why);
/* Rows to be replaced by later ones: the offsets of the word "row" in their lines (record_file.types_at). */
struct record_old_rows {
    int64_t *types_at; /* owned by whoever filled it */
    int count;
};
/* Changes the type of the old rows from "row" to "old", which readers skip, truncates a cut last line and appends
 * `note`, an object with its own "type". Returns 0, or an errno. */
int record_continue(struct record_writer *, const struct record_old_rows *, const json_t *note);
int record_write(struct record_writer *, const struct record_row *);
int record_write_json(struct record_writer *, const json_t *); /* an object of another type, into a JSONL file */
int record_close(struct record_writer *); /* flushes, syncs files to disk, and returns the last error */

/* True when every name of the comma-separated list is a column. Else false with a sentence that names the wrong one and
 * the nearest column. */
bool record_columns_valid(const char *columns, struct attn_message *why);
/* The names of all columns of the CSV with commas, in their order; the caller frees it. */
char *record_columns_all(void);

/* Reads a complete record file into memory. Returns false with a sentence when it cannot be read, is not a record file,
 * or has another schema. A cut last line is ignored and `cut` set. Texts come cleaned (text_clean): escape sequences of
 * a record reach no terminal, chart or page. Figures come as they are written: record_file_agrees compares them. */
struct record_file {
    char *path;
    json_t *header;
    json_t *later_headers; /* array of the other headers and notes, in joined or resumed files; NULL = none */
    struct record_row *rows;
    int64_t *types_at; /* of each row: offset of the word row in its line's {"type":"row", or -1 for another order */
    int count;
    bool cut;
    int64_t whole_bytes; /* offset of the end of the last complete line */
    bool is_ended;       /* and that line ends in a newline */
};
bool record_read(const char *path, struct record_file *, struct attn_message *why);
void record_file_free(struct record_file *);

#endif
