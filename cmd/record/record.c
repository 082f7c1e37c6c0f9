/* Rows and JSON, column by column. */
#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/text.h"
#include "cmd/record/record.h"
#include "cmd/record/record_row.h"

static void *field_of(const struct column *column, void *base) { return (char *)base + column->offset; }

static void columns_clear(struct column_list list, void *base)
{
    for (int i = 0; i < list.count; i++)
        switch (list.columns[i].kind) {
        case FIELD_TEXT: memset(field_of(&list.columns[i], base), 0, list.columns[i].size); break;
        case FIELD_COUNT: *(int64_t *)field_of(&list.columns[i], base) = INT64_MIN; break;
        case FIELD_REAL: *(double *)field_of(&list.columns[i], base) = NAN; break;
        case FIELD_STRING: *(char **)field_of(&list.columns[i], base) = NULL; break;
        case FIELD_NAME: *(int *)field_of(&list.columns[i], base) = -1; break;
        }
}

void record_row_clear(struct record_row *row)
{
    record_row_free(row);
    memset(row, 0, sizeof *row);
    columns_clear(record_columns(), row);
    for (size_t i = 0; i < sizeof row->tensors / sizeof row->tensors[0]; i++)
        columns_clear(record_tensor_columns, &row->tensors[i]);
    for (size_t i = 0; i < sizeof row->passes / sizeof row->passes[0]; i++)
        columns_clear(record_pass_columns, &row->passes[i]);
    row->schema = RECORD_SCHEMA;
}

void record_row_free(struct record_row *row)
{
    free(row->samples_ms);
    free(row->repro);
    free(row->only);
    row->samples_ms = NULL;
    row->repro = row->only = NULL;
}

/* ---- rows and JSON ---- */

bool record_row_is_timed(const struct record_row *r)
{
    return r->status == STATUS_OK && r->check != CHECKED_FAIL && r->time_ms > 0;
}

bool record_row_is_broken(const struct record_row *r)
{
    return r->status == STATUS_ERROR || r->status == STATUS_TIMEOUT;
}

bool record_row_failed(const struct record_row *r) { return record_row_is_broken(r) || r->check == CHECKED_FAIL; }
bool record_row_is_invariant(const struct record_row *r) { return strcmp(r->batch_invariant, "yes") == 0; }

json_t *record_must(json_t *value)
{
    if (!value) {
        log_error("out of host memory (a record)");
        exit(EXIT_IO);
    }
    return value;
}

void record_board_name(const char *uuid, char *name, size_t size)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (const char *at = uuid; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 16777619u;
    snprintf(name, size, *uuid ? "%08x" : "", (unsigned)hash);
}

static void set(json_t *object, const char *key, json_t *value)
{
    FABENCH_ASSERT(json_object_set_new(object, key, record_must(value)) == 0, "key %s", key);
}

void record_put_real(json_t *object, const char *key, double value)
{
    if (isfinite(value))
        set(object, key, json_real(value));
}

static void append(json_t *array, json_t *value)
{
    FABENCH_ASSERT(json_array_append_new(array, record_must(value)) == 0, "%s", "");
}

/* The text without control characters; the caller frees it. */
static char *clean_copy(const char *value)
{
    const size_t size = strlen(value) + 1;
    char *text = xmalloc(size);
    text_clean(value, text, size);
    return text;
}

/* Text of any length; NULL and "" are left out. */
static void set_string(json_t *object, const char *key, const char *value)
{
    if (!value || !*value)
        return;
    char *text = clean_copy(value);
    set(object, key, json_string(text));
    free(text);
}

static void columns_to_json(struct column_list list, const void *base, json_t *object)
{
    for (int i = 0; i < list.count; i++) {
        const struct column *const column = &list.columns[i];
        const void *field = record_field(column, base);
        char text[1024];
        if (!(column->views & RECORD_JSONL))
            continue;
        switch (column->kind) {
        case FIELD_STRING: set_string(object, column->name, *(char *const *)field); break;
        case FIELD_NAME:
            if (*(const int *)field >= 0)
                set(object, column->name, json_string(column->names[*(const int *)field]));
            break;
        case FIELD_TEXT:
            text_clean(field, text, sizeof text);
            if (text[0])
                set(object, column->name, json_string(text));
            break;
        case FIELD_COUNT:
            if (*(const int64_t *)field != INT64_MIN)
                set(object, column->name, json_integer(*(const int64_t *)field));
            break;
        case FIELD_REAL: record_put_real(object, column->name, *(const double *)field); break;
        }
    }
}

static json_t *array_to_json(struct column_list list, const void *elements, size_t size, int count)
{
    json_t *array = record_must(json_array());
    for (int i = 0; i < count; i++) {
        json_t *object = record_must(json_object());
        columns_to_json(list, (const char *)elements + (size_t)i * size, object);
        append(array, object);
    }
    return array;
}

json_t *record_row_json(const struct record_row *row)
{
    json_t *object = record_must(json_object());
    set(object, "type", json_string("row"));
    columns_to_json(record_columns(), row, object);
    if (row->tensor_count > 0)
        set(object, "tensors",
            array_to_json(record_tensor_columns, row->tensors, sizeof row->tensors[0], row->tensor_count));
    if (row->pass_count > 0)
        set(object, "passes", array_to_json(record_pass_columns, row->passes, sizeof row->passes[0], row->pass_count));
    if (row->samples_ms && row->samples > 0) {
        json_t *samples = record_must(json_array());
        for (int64_t i = 0; i < row->samples; i++)
            append(samples, isfinite(row->samples_ms[i]) ? json_real(row->samples_ms[i]) : json_null());
        set(object, "samples_ms", samples);
    }
    return object;
}

/* The index of a word among the names, or -1. */
static int name_index(const char *const *names, const char *word)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], word) == 0)
            return i;
    return -1;
}

static bool columns_from_json(struct column_list list, void *base, const json_t *object, char *why, size_t why_size)
{
    for (int i = 0; i < list.count; i++) {
        const struct column *const column = &list.columns[i];
        const json_t *value = json_object_get(object, column->name);
        void *field = field_of(column, base);
        const char *wanted = NULL;
        if (!value || json_is_null(value) || !(column->views & RECORD_JSONL))
            continue;
        switch (column->kind) {
        case FIELD_TEXT:
            if (!json_is_string(value))
                wanted = "text";
            else if (json_string_length(value) >= column->size)
                wanted = "short enough for this program";
            else
                text_clean(json_string_value(value), field, column->size);
            break;
        case FIELD_STRING:
            if (json_is_string(value))
                *(char **)field = clean_copy(json_string_value(value));
            else
                wanted = "text";
            break;
        case FIELD_NAME:
            if (json_is_string(value))
                *(int *)field = name_index(column->names, json_string_value(value));
            if (*(int *)field < 0)
                wanted = "one of the words that this program knows";
            break;
        case FIELD_COUNT:
            if (json_is_integer(value))
                *(int64_t *)field = json_integer_value(value);
            else
                wanted = "a whole number";
            break;
        case FIELD_REAL:
            if (json_is_number(value))
                *(double *)field = json_number_value(value);
            else
                wanted = "a number";
            break;
        }
        if (wanted) {
            snprintf(why, why_size, "\"%s\" must be %s", column->name, wanted);
            return false;
        }
    }
    return true;
}

/* An array of objects into elements[0..max); the number read, or -1 with a sentence. */
static int array_from_json(const json_t *row, const char *key, struct column_list list, void *elements, size_t size,
                           size_t max, char *why, size_t why_size)
{
    const json_t *array = json_object_get(row, key);
    if (!array || json_is_null(array))
        return 0;
    const size_t count = json_array_size(array);
    if (!json_is_array(array) || count > max) {
        snprintf(why, why_size, "\"%s\" must be a list of at most %zu objects", key, max);
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *object = json_array_get(array, i);
        if (!json_is_object(object)) {
            snprintf(why, why_size, "\"%s\" must be a list of objects", key);
            return -1;
        }
        if (!columns_from_json(list, (char *)elements + i * size, object, why, why_size))
            return -1;
    }
    return (int)count;
}

static bool samples_from_json(const json_t *object, struct record_row *row, char *why, size_t why_size)
{
    const json_t *array = json_object_get(object, "samples_ms");
    if (!array || json_is_null(array))
        return true;
    const size_t count = json_array_size(array);
    if (!json_is_array(array) || row->samples < 0 || (size_t)row->samples != count) {
        snprintf(why, why_size, "\"samples_ms\" must be a list of as many numbers as \"samples\" says");
        return false;
    }
    row->samples_ms = xmalloc((count ? count : 1) * sizeof *row->samples_ms);
    for (size_t i = 0; i < count; i++) {
        const json_t *sample = json_array_get(array, i);
        if (!json_is_number(sample) && !json_is_null(sample)) {
            snprintf(why, why_size, "\"samples_ms\" must be a list of numbers");
            return false;
        }
        row->samples_ms[i] = json_is_null(sample) ? NAN : json_number_value(sample);
    }
    return true;
}

bool record_schema_is_ours(int64_t schema, char *why, size_t why_size)
{
    if (schema == RECORD_SCHEMA)
        return true;
    snprintf(why, why_size, "schema %lld, this program reads schema %d", (long long)schema, RECORD_SCHEMA);
    return false;
}

bool record_row_parse(const json_t *object, struct record_row *row, char *why, size_t why_size)
{
    const char *type = json_string_value(json_object_get(object, "type"));
    record_row_clear(row);
    if (!type || strcmp(type, "row") != 0) {
        snprintf(why, why_size, "no object of \"type\" \"row\"");
        return false;
    }
    bool good = columns_from_json(record_columns(), row, object, why, why_size) &&
                record_schema_is_ours(row->schema, why, why_size) && samples_from_json(object, row, why, why_size);
    if (good) {
        row->tensor_count =
            array_from_json(object, "tensors", record_tensor_columns, row->tensors, sizeof row->tensors[0],
                            sizeof row->tensors / sizeof row->tensors[0], why, why_size);
        good = row->tensor_count >= 0;
    }
    if (good) {
        row->pass_count = array_from_json(object, "passes", record_pass_columns, row->passes, sizeof row->passes[0],
                                          sizeof row->passes / sizeof row->passes[0], why, why_size);
        good = row->pass_count >= 0;
    }
    if (!good)
        record_row_clear(row);
    return good;
}

/* Names and roles. */

static const char *const names[] = {
    [ATTN_ROLE_NAIVE] = "naive", [ATTN_ROLE_PEER] = "cudnn", [ATTN_ROLE_NOTHING] = "null"};

enum attn_role role_of_name(const char *impl)
{
    const size_t length = strcspn(impl, ":");
    for (int role = ATTN_ROLE_NAIVE; role <= ATTN_ROLE_NOTHING; role++)
        if (strlen(names[role]) == length && strncmp(impl, names[role], length) == 0)
            return (enum attn_role)role;
    return ATTN_ROLE_KERNEL;
}

const char *role_name(enum attn_role role) { return names[role]; }

bool role_is_fused(const char *impl) { return strncmp(impl, "fused_", 6) == 0; }

/* The tables of columns, made from the lists of record_list.h. Section 7 of docs/design.md describes the columns. */

#define FIELD(structure, kind, field, views, ...) \
    { \
#field, kind, offsetof(struct structure, field), sizeof(((struct structure *)0)->field), views, NULL, \
            __VA_ARGS__ \
    }
#define COLUMN_TEXT(field, unused, views, ...) FIELD(record_row, FIELD_TEXT, field, views, __VA_ARGS__),
#define COLUMN_STRING(field, unused, views, ...) FIELD(record_row, FIELD_STRING, field, views, __VA_ARGS__),
#define COLUMN_COUNT(field, unused, views, ...) FIELD(record_row, FIELD_COUNT, field, views, __VA_ARGS__),
#define COLUMN_REAL(field, unused, views, ...) FIELD(record_row, FIELD_REAL, field, views, __VA_ARGS__),
#define COLUMN_NAME(field, names, views, ...) \
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
static const struct column late_columns[] = {RECORD_LATE_COLUMNS(COLUMN)};

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
                            .empty = field->may_be_empty ? "the problem has nothing of the kind" : EMPTY_NEVER,
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
        FABENCH_ASSERT(LENGTH(run_columns) + problem_field_count + LENGTH(result_columns) + LENGTH(late_columns) <=
                           RECORD_COLUMNS_MAX,
                       "%s", "a writer selects among at most RECORD_COLUMNS_MAX columns");
        for (int i = 0; i < LENGTH(run_columns); i++)
            columns[count++] = run_columns[i];
        for (int i = 0; i < FIRST_PROBLEM_COLUMNS; i++)
            columns[count++] = problem_column(&problem_fields[i]);
        for (int i = 0; i < LENGTH(result_columns); i++)
            columns[count++] = result_columns[i];
        for (int i = FIRST_PROBLEM_COLUMNS; i < problem_field_count; i++)
            columns[count++] = problem_column(&problem_fields[i]);
        for (int i = 0; i < LENGTH(late_columns); i++)
            columns[count++] = late_columns[i];
    }
    return (struct column_list){columns, count};
}

#define TENSOR_TEXT(field, ...) FIELD(record_tensor, FIELD_TEXT, field, RECORD_JSONL, "", __VA_ARGS__)
#define TENSOR_REAL(field, ...) FIELD(record_tensor, FIELD_REAL, field, RECORD_JSONL, "", __VA_ARGS__)
#define EMPTY_OF_FINDING "no comparison: a guard, an input, other bits in another run or batch, a file"
static const struct column tensor_columns[] = {
    TENSOR_TEXT(name, "o, lse, dq, dk, dv; or what else a launch changed: an input, wksp (the workspace)", EMPTY_NEVER),
    TENSOR_REAL(max_abs_err, "largest absolute error", EMPTY_OF_FINDING),
    TENSOR_REAL(rel_rms_err, "rms(x - reference) / rms(reference); of lse no rule uses it", EMPTY_OF_FINDING),
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

/* Reading a record's header. */

json_t *header_value(const json_t *header, const char *path)
{
    const char *dot = strchr(path, '.');
    char object[24];
    snprintf(object, sizeof object, "%.*s", (int)(dot - path), path);
    return json_object_get(json_object_get(header, object), dot + 1);
}

char *header_value_text(const json_t *value, char *buffer, size_t size)
{
    char *json = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(10)) : NULL;
    snprintf(buffer, size, "%s", json ? json : "absent");
    free(json);
    return buffer;
}

const char *header_difference(const json_t *a, const json_t *b, const char *const *paths, int count, char *a_text,
                              char *b_text, size_t size)
{
    for (int i = 0; i < count; i++) {
        const json_t *one = header_value(a, paths[i]), *two = header_value(b, paths[i]);
        if (one == two || json_equal(one, two))
            continue;
        header_value_text(one, a_text, size);
        header_value_text(two, b_text, size);
        return paths[i];
    }
    return NULL;
}

char *header_line(const json_t *header)
{
    const json_t *device = json_object_get(header, "device"), *tool = json_object_get(header, "tool");
    const json_t *limit = json_object_get(device, "power_limit_w"), *ecc = json_object_get(device, "ecc");
    const json_t *driver = json_object_get(device, "driver"), *others = json_object_get(device, "other_processes");
    const json_t *threads = json_object_get(device, "threads");
    const char *clocks = json_string_value(header_value(header, "policy.clocks"));
    struct text line = {0};
    text_add(&line, "%s %.0f GiB", json_string_value(json_object_get(device, "name")),
             json_number_value(json_object_get(device, "memory_gb")) * 1e9 / (1 << 30));
    if (threads)
        text_add(&line, ", %d threads", (int)json_integer_value(threads));
    if (limit)
        text_add(&line, ", %.0f W", json_number_value(limit));
    if (ecc)
        text_add(&line, ", ECC %s", json_is_true(ecc) ? "on" : "off");
    if (driver)
        text_add(&line, ", driver %s", json_string_value(driver));
    if (clocks && strcmp(clocks, "unknown"))
        text_add(&line, ", clocks %s", clocks);
    if (others && json_integer_value(others) > 0)
        text_add(&line, ", %d other process%s", (int)json_integer_value(others),
                 json_integer_value(others) == 1 ? "" : "es");
    else if (others)
        text_add(&line, ", no other process");
    text_add(&line, " | fabench %s (%.12s)", json_string_value(json_object_get(tool, "version")),
             json_string_value(json_object_get(tool, "commit")));
    return text_take(&line);
}

char *header_folder_name(const json_t *header)
{
    const char *name = json_string_value(header_value(header, "device.name"));
    const char *started = json_string_value(json_object_get(header, "started_utc"));
    char slug[40], stamp[24];
    size_t n = 0, s = 0;
    if (!strncmp(name, "NVIDIA ", 7))
        name += 7;
    if (header_value(header, "device.threads"))
        name = "cpu";
    for (; *name && n + 1 < sizeof slug; name++)
        if (isalnum((unsigned char)*name))
            slug[n++] = (char)tolower((unsigned char)*name);
        else if (n && slug[n - 1] != '-')
            slug[n++] = '-';
    slug[n] = 0;
    for (; *started && s + 1 < sizeof stamp; started++)
        if (*started != '-' && *started != ':')
            stamp[s++] = *started;
    stamp[s] = 0;
    return xasprintf("%s-%s", slug, stamp);
}
