/* The tables of columns, made from the lists of record_list.h. Section 7 of docs/design.md describes the columns. */
#include "cmd/record/record_column.h"

#include <string.h>

#include "cmd/base/log.h"

#define FIELD(structure, kind, field, views, ...)                                                                      \
    {                                                                                                                  \
#field, kind, offsetof(struct structure, field), sizeof(((struct structure *)0)->field), views, NULL,          \
            __VA_ARGS__                                                                                                \
    }
#define COLUMN_TEXT(field, unused, views, ...) FIELD(record_row, FIELD_TEXT, field, views, __VA_ARGS__),
#define COLUMN_STRING(field, unused, views, ...) FIELD(record_row, FIELD_STRING, field, views, __VA_ARGS__),
#define COLUMN_COUNT(field, unused, views, ...) FIELD(record_row, FIELD_COUNT, field, views, __VA_ARGS__),
#define COLUMN_REAL(field, unused, views, ...) FIELD(record_row, FIELD_REAL, field, views, __VA_ARGS__),
#define COLUMN_NAME(field, names, views, ...)                                                                          \
    {#field, FIELD_NAME, offsetof(struct record_row, field), sizeof(int), views, names, __VA_ARGS__},
#define COLUMN(kind, field, extra, views, ...) COLUMN_##kind(field, extra, views, __VA_ARGS__)

enum {
    FILES = RECORD_CSV | RECORD_JSONL,
    TABLE = FILES | RECORD_TABLE,
    VERIFY = FILES | RECORD_VERIFY,
    EVERY = FILES | RECORD_TABLE | RECORD_VERIFY
};

const char *const record_status_names[] = {[STATUS_OK] = "ok",
                                           [STATUS_OOM] = "oom",
                                           [STATUS_UNSUPPORTED] = "unsupported",
                                           [STATUS_SKIPPED] = "skipped",
                                           [STATUS_ERROR] = "error",
                                           [STATUS_TIMEOUT] = "timeout",
                                           NULL};
const char *const record_check_names[] = {
    [CHECKED_PASS] = "pass", [CHECKED_FAIL] = "fail", [CHECKED_OFF] = "off", NULL};

/* The order is the CSV's and part of the contract (docs/design.md, section 7): new columns go to the end. */
static const struct column run_columns[] = {RECORD_RUN_COLUMNS(COLUMN)};
static const struct column result_columns[] = {RECORD_RESULT_COLUMNS(COLUMN)};

/* The problem's columns of the first version of the format are placed between them; later ones go to the end. */
enum { FIRST_PROBLEM_COLUMNS = 17 };
/* The views of columns that are not in every view. */
static const struct {
    const char *name;
    unsigned views;
} problem_views[] = {{"dropout", FILES}, {"scale", FILES}, {"seed", FILES}, {"l2", TABLE}};

#define LENGTH(array) ((int)(sizeof(array) / sizeof(array)[0]))

static struct column problem_column(const struct problem_field *field)
{
    static const enum column_kind kinds[] = {[PROBLEM_NAME] = FIELD_NAME,
                                             [PROBLEM_COUNT] = FIELD_COUNT,
                                             [PROBLEM_REAL] = FIELD_REAL,
                                             [PROBLEM_TEXT] = FIELD_TEXT};
    struct column column = {.name = field->name,
                            .kind = kinds[field->kind],
                            .views = EVERY,
                            .names = field->names,
                            .unit = "",
                            .meaning = field->meaning,
                            .empty = EMPTY_NEVER,
                            .offset = offsetof(struct record_row, key) + field->offset};
    column.size = field->kind == PROBLEM_NAME ? sizeof(int) : field->kind == PROBLEM_TEXT ? PROBLEM_TEXT_SIZE : 8;
    for (int i = 0; i < LENGTH(problem_views); i++)
        if (strcmp(problem_views[i].name, field->name) == 0)
            column.views = problem_views[i].views;
    return column;
}

struct column_list record_columns(void)
{
    static struct column columns[RECORD_COLUMNS_MAX];
    static int count; /* 0 until the first call; called by one thread only */
    if (count == 0) {
        FABENCH_ASSERT(LENGTH(run_columns) + problem_field_count + LENGTH(result_columns) <= RECORD_COLUMNS_MAX, "%s",
                       "a writer selects among at most RECORD_COLUMNS_MAX columns");
        for (int i = 0; i < LENGTH(run_columns); i++)
            columns[count++] = run_columns[i];
        for (int i = 0; i < FIRST_PROBLEM_COLUMNS; i++)
            columns[count++] = problem_column(&problem_fields[i]);
        for (int i = 0; i < LENGTH(result_columns); i++)
            columns[count++] = result_columns[i];
        for (int i = FIRST_PROBLEM_COLUMNS; i < problem_field_count; i++)
            columns[count++] = problem_column(&problem_fields[i]);
    }
    return (struct column_list){columns, count};
}

#define TENSOR_TEXT(field, ...) FIELD(record_tensor, FIELD_TEXT, field, RECORD_JSONL, "", __VA_ARGS__)
#define TENSOR_REAL(field, ...) FIELD(record_tensor, FIELD_REAL, field, RECORD_JSONL, "", __VA_ARGS__)
#define EMPTY_OF_FINDING "no comparison: a guard, an input, other bits in another run, a file"
static const struct column tensor_columns[] = {
    TENSOR_TEXT(name, "o, lse, dq, dk, dv; or what else a launch changed: an input, wksp (the workspace)", EMPTY_NEVER),
    TENSOR_REAL(max_abs_err, "largest absolute error", EMPTY_OF_FINDING),
    TENSOR_REAL(rel_rms_err, "rms(x - reference) / rms(reference)", "of lse, or " EMPTY_OF_FINDING),
    TENSOR_REAL(rel_rms_bound, "its bound", "of lse, or " EMPTY_OF_FINDING),
    TENSOR_REAL(block_rms_err, "the same of the worst 64 rows; their bound is twice that",
                "of lse, or " EMPTY_OF_FINDING),
    TENSOR_REAL(gain_err, "|<x, reference> / <reference, reference> - 1|", "of lse, or " EMPTY_OF_FINDING),
    TENSOR_REAL(err_ratio, "largest error / that of naive", "naive did not run beside it, or failed its check"),
    TENSOR_REAL(used, "largest error / bound over the rules", EMPTY_NEVER),
    TENSOR_TEXT(rule, "the rule nearest its bound: nonfinite, element, rms, block_rms, gain, naive, lse, ...",
                "all is 0"),
    TENSOR_TEXT(worst, "its worst element, as dk[b,h,row,col]", EMPTY_OF_FINDING),
    TENSOR_TEXT(failure, "what failed, and where", "it passed"),
};
enum { TENSOR_COLUMN_COUNT = sizeof tensor_columns / sizeof tensor_columns[0] };

static const struct column pass_columns[] = {
    FIELD(record_pass, FIELD_TEXT, name, RECORD_JSONL, "", "of the pass", EMPTY_NEVER),
    FIELD(record_pass, FIELD_REAL, time_ms, RECORD_JSONL, "ms", "from one launch with time stamps", EMPTY_NEVER),
};
enum { PASS_COLUMN_COUNT = sizeof pass_columns / sizeof pass_columns[0] };

const struct column *record_column_find(const char *name, size_t length)
{
    const struct column_list list = record_columns();
    for (int i = 0; i < list.count; i++)
        if (strlen(list.columns[i].name) == length && memcmp(list.columns[i].name, name, length) == 0)
            return &list.columns[i];
    return NULL;
}

unsigned record_column_views(const char *name)
{
    const struct column *column = record_column_find(name, strlen(name));
    return column ? column->views : 0;
}

const struct column_list record_tensor_columns = {tensor_columns, TENSOR_COLUMN_COUNT};
const struct column_list record_pass_columns = {pass_columns, PASS_COLUMN_COUNT};
