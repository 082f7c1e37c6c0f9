/* The table of columns that JSONL, CSV, the terminal table and the floors of a gate are made with. It is made from the
 * list in record_list.h, which says how a column is added. */
#ifndef FABENCH_RECORD_COLUMN_H
#define FABENCH_RECORD_COLUMN_H

#include <stddef.h>

#include "cmd/record/record_row.h"

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

#endif
