/* Record files: JSONL and CSV written row by row, JSONL read back.
 *
 * A JSONL file is a header object ({"type":"header", ...}), then one object per row ({"type":"row", ...}: every column
 * that is not empty, by its name, plus what only JSONL carries), in the order the cases finished. A file whose last
 * line is cut is readable up to there.
 */
#ifndef FABENCH_RECORD_FILE_H
#define FABENCH_RECORD_FILE_H

#include <jansson.h>

#include "cmd/record/record_row.h"
#include "kernels/attention.h"

/* Writers. A row is one write to the file: whole when the call returns, write errors seen. 0, or an errno; a writer
 * that failed once stays failed. A regular file is locked while it is written: another run's file is refused. CSV is RFC
 * 4180's, but with lines that end in a newline alone. */
struct record_writer;
/* path "-" = stdout. Header is written at once (JSONL) or the column line (CSV). columns: comma-separated names for the
 * CSV, NULL = all. NULL on failure with a sentence. */
struct record_writer *record_open_jsonl(const char *path, const json_t *header, struct attn_message *why);
struct record_writer *record_open_csv(const char *path, const char *columns, struct attn_message *why);
/* Opens a record file to go on with it: locks it, reads it into *file (record_read), and returns its writer, which
 * stands behind the last whole line. Nothing in the file changes before record_continue. */
struct record_file;
struct record_writer *record_reopen_jsonl(const char *path, struct record_file *, struct attn_message *why);
/* Drops what was cut and appends `note`, an object with a "type" of its own. 0, or an errno. */
int record_continue(struct record_writer *, const json_t *note);
int record_write(struct record_writer *, const struct record_row *);
int record_write_json(struct record_writer *, const json_t *); /* an object of another type, into a JSONL file */
int record_close(struct record_writer *);     /* flushes, fsyncs files, reports the last error */

/* Is every name of the comma-separated list a column? Else false with a sentence naming the bad one and the nearest. */
bool record_columns_valid(const char *columns, struct attn_message *why);

/* A whole record file in memory. Returns false with a sentence when it cannot be read, is no record file, or has
 * another schema; a cut last line is dropped and `cut` set. */
struct record_file {
    char *path;
    json_t *header;
    json_t *later_headers; /* array, of files that were put together or gone on with; NULL = none */
    struct record_row *rows;
    int count;
    bool cut;
    int64_t whole_bytes; /* up to the end of the last whole line */
    bool is_ended;       /* and that line ends in a newline */
};
bool record_read(const char *path, struct record_file *, struct attn_message *why);
void record_file_free(struct record_file *);

#endif
