/* A row as a JSON object and back. Empty means not measured: NaN in the struct, an absent key in JSONL, an empty CSV
 * cell. */
#ifndef FABENCH_RECORD_H
#define FABENCH_RECORD_H

#include <jansson.h>
#include <stddef.h>

#include "cmd/record/record_row.h"
#include "kernels/attention.h"

/* Frees the row's memory and sets every field to "not measured", except schema, which gets this program's version. A
 * new row must be zeroed before the first call. */
void record_row_clear(struct record_row *);
void record_row_free(struct record_row *);

/* True for a row whose time may be compared: status ok, a time, check not failed. */
bool record_row_is_timed(const struct record_row *);

/* True for a row whose case ended in an error or a timeout. */
bool record_row_is_broken(const struct record_row *);
/* True for these and for a row that failed its check. */
bool record_row_failed(const struct record_row *);
/* Its batch_invariant is "yes". */
bool record_row_is_invariant(const struct record_row *);

/* The column `board` of a board with this UUID: eight hex digits; "" for "". */
void record_board_name(const char *uuid, char *name, size_t size);

/* Converts a row to a JSON object (the caller owns the reference) and back (unknown keys are ignored, missing ones are
 * "not measured"; control characters of texts become spaces in both directions). record_row_parse returns false with a
 * sentence when a key has the wrong type or the schema version differs. */
json_t *record_row_json(const struct record_row *);
bool record_row_parse(const json_t *, struct record_row *, char *why, size_t why_size);

/* False with a sentence when the schema is not the one that this program reads. */
bool record_schema_is_ours(int64_t schema, char *why, size_t why_size);

/* Ends the program (exit 7) when a JSON value could not be made. */
json_t *record_must(json_t *);

/* Sets a key of a JSON object to a figure; leaves it out where the figure was not measured. */
void record_put_real(json_t *object, const char *key, double value);

/* The table of columns that JSONL, CSV, the terminal table and the floors of a gate are made with. It is made from the
 * list in record_list.h, which says how a column is added. */

enum column_kind {
    FIELD_TEXT,   /* char array */
    FIELD_STRING, /* char *, owned by the row */
    FIELD_COUNT,  /* int64_t */
    FIELD_REAL,   /* double */
    FIELD_NAME    /* int: an index of `names`, -1 = absent */
};

/* One field of a record: its name in the files, its offset in the struct, the views that show it. */
struct column {
    const char *name;
    enum column_kind kind;
    size_t offset, size;
    unsigned views;           /* bits of enum record_view */
    const char *const *names; /* of a FIELD_NAME; NULL ends them */
    const char *unit;         /* "" = none */
    const char *meaning;      /* a few words */
    const char *empty;        /* to follow "empty when"; "never" */
};

enum { RECORD_COLUMNS_MAX = 128 };

/* The views that a column is in; 0 when there is no such column. */
enum record_view { RECORD_CSV = 1, RECORD_JSONL = 2, RECORD_TABLE = 4, RECORD_VERIFY = 8 };
unsigned record_column_views(const char *name);

struct column_list {
    const struct column *columns;
    int count;
};

/* The columns of struct record_row, in the order of the CSV: the run's, the problem's (problem_key.h), the result's. */
struct column_list record_columns(void);

/* The fields of the lists inside a row. */
extern const struct column_list record_tensor_columns, record_pass_columns;

/* The column of struct record_row whose name is name[0, length), or NULL. */
const struct column *record_column_find(const char *name, size_t length);

static inline const void *record_field(const struct column *column, const void *base)
{
    return (const char *)base + column->offset;
}

/* What the header object of a record file says. */

/* The value at a path like "device.name", NULL = absent; and as text: JSON, "absent" where it is missing. */
json_t *header_value(const json_t *header, const char *path);
char *header_value_text(const json_t *value, char *buffer, size_t size);

/* The first path at which the two headers differ, with both values as text; NULL when they are equal at all paths.
 * Absent in both counts as equal. */
const char *header_difference(const json_t *a, const json_t *b, const char *const *paths, int count, char *a_text,
                              char *b_text, size_t size);

/* The line above the table: "NVIDIA H200 141 GB, 700 W, ECC on, driver 580.65 | fabench 0.1.0 (4e1c09a)". */
char *header_line(const json_t *header);

/* "h200-20261121T0802Z", for the folder of a run. */
char *header_folder_name(const json_t *header);

#endif
