/* What record.c (columns, rows) and record_file.c (files) share, and floors.c, which names columns in a file. */
#ifndef FABENCH_RECORD_COLUMN_H
#define FABENCH_RECORD_COLUMN_H

#include "cmd/record.h"

enum column_kind { KIND_TEXT, KIND_COUNT, KIND_REAL };

/* One field of a record: its name in the files, where it lies in its struct, which views show it. */
struct column {
    const char *name;
    enum column_kind kind;
    size_t offset, size;
    unsigned views; /* bits of enum record_view */
};

enum { RECORD_COLUMNS_MAX = 128 };

/* The columns of struct record_row, in the order of the CSV. */
const struct column *record_columns(int *count);
const struct column *record_column_find(const char *name, size_t length);

static inline const void *record_field(const struct column *column, const void *base)
{
    return (const char *)base + column->offset;
}

/* False with a sentence when this is not the schema that the program reads. */
bool record_schema_is_ours(int64_t schema, char *why, size_t why_size);

/* Ends the program (exit 7) when a JSON value could not be made. */
json_t *record_must(json_t *);

#endif
