/* Rows and JSON, column by column. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/text.h"
#include "cmd/record/record.h"
#include "cmd/record/record_column.h"

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
    row->samples_ms = NULL;
    row->repro = NULL;
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

json_t *record_must(json_t *value)
{
    if (!value) {
        log_error("out of host memory (a record)");
        exit(EXIT_IO);
    }
    return value;
}

static void set(json_t *object, const char *key, json_t *value)
{
    FABENCH_ASSERT(json_object_set_new(object, key, record_must(value)) == 0, "key %s", key);
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
        case FIELD_REAL:
            if (isfinite(*(const double *)field))
                set(object, column->name, json_real(*(const double *)field));
            break;
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
