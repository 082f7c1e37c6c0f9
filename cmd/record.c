/* The list of columns, and a row as a JSON object and back. DESIGN section 7. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/log.h"
#include "cmd/record_column.h"

#define FIELD(structure, kind, field, views)                                                                           \
    {#field, kind, offsetof(struct structure, field), sizeof(((struct structure *)0)->field), views}
#define TEXT(field, views) FIELD(record_row, KIND_TEXT, field, views)
#define COUNT(field, views) FIELD(record_row, KIND_COUNT, field, views)
#define REAL(field, views) FIELD(record_row, KIND_REAL, field, views)

enum {
    FILES = RECORD_CSV | RECORD_JSONL,
    TABLE = FILES | RECORD_TABLE,
    VERIFY = FILES | RECORD_VERIFY,
    EVERY = FILES | RECORD_TABLE | RECORD_VERIFY
};

/* The order is the CSV's and part of the contract (DESIGN section 7): new columns go to the end. */
static const struct column columns[] = {
    COUNT(schema, FILES),           TEXT(run_id, FILES),
    TEXT(time_utc, FILES),          TEXT(commit, FILES),
    TEXT(method, FILES),            TEXT(device, FILES),
    TEXT(arch, FILES),              TEXT(driver, FILES),
    TEXT(cuda, FILES),              TEXT(cudnn, FILES),
    TEXT(impl, EVERY),              TEXT(variant, FILES),
    TEXT(mode, EVERY),              TEXT(dtype, EVERY),
    COUNT(causal, EVERY),           COUNT(batch, EVERY),
    COUNT(q_heads, EVERY),          COUNT(kv_heads, EVERY),
    COUNT(q_len, EVERY),            COUNT(kv_len, EVERY),
    COUNT(head_dim, EVERY),         TEXT(layout, EVERY),
    COUNT(window_left, EVERY),      COUNT(window_right, EVERY),
    REAL(dropout, FILES),           REAL(scale, FILES),
    TEXT(dist, EVERY),              COUNT(seed, FILES),
    TEXT(l2, TABLE),                TEXT(status, EVERY),
    TEXT(check, EVERY),             TEXT(check_scope, EVERY),
    TEXT(reason, EVERY),            COUNT(samples, FILES),
    TEXT(stop, FILES),              REAL(time_ms, TABLE),
    REAL(time_ms_ci_lo, TABLE),     REAL(time_ms_ci_hi, TABLE),
    REAL(time_ms_min, FILES),       REAL(noise_pct, FILES),
    REAL(flops, FILES),             REAL(tflops, TABLE),
    REAL(tflops_sustained, FILES),  REAL(gemm_tflops, TABLE),
    REAL(pct_of_gemm, TABLE),       REAL(speedup_vs_naive, TABLE),
    TEXT(peer, FILES),              REAL(speedup_vs_peer, TABLE),
    REAL(min_gb, FILES),            REAL(workspace_mb, FILES),
    REAL(max_abs_err, FILES),       REAL(rel_rms_err, EVERY),
    REAL(err_ratio, FILES),         REAL(err_used, EVERY),
    TEXT(err_tensor, EVERY),        TEXT(worst, EVERY),
    REAL(atol, FILES),              REAL(rtol, FILES),
    REAL(sm_clock_mhz, TABLE),      REAL(temp_c, TABLE),
    REAL(power_capped_pct, TABLE),  REAL(throttled_pct, TABLE),
    REAL(power_w, FILES),           REAL(energy_j, FILES),
    REAL(tflops_per_w, FILES),      REAL(power_limit_w, TABLE),
    TEXT(repro, EVERY),             TEXT(launch, RECORD_JSONL),
    TEXT(asked, RECORD_JSONL),
    REAL(sustain_s, RECORD_JSONL),            COUNT(sustain_passes, RECORD_JSONL),
    TEXT(energy_source, RECORD_JSONL),        REAL(energy_counter_j, RECORD_JSONL),
    REAL(energy_integral_j, RECORD_JSONL),    REAL(sustain_sm_clock_mhz, RECORD_JSONL),
    REAL(sustain_temp_c, RECORD_JSONL),       REAL(sustain_power_capped_pct, RECORD_JSONL),
    REAL(sustain_throttled_pct, RECORD_JSONL),
};
enum { COLUMN_COUNT = sizeof columns / sizeof columns[0] };
_Static_assert((int)COLUMN_COUNT <= (int)RECORD_COLUMNS_MAX,
               "a writer selects among at most RECORD_COLUMNS_MAX columns");

#define TENSOR_TEXT(field) FIELD(record_tensor, KIND_TEXT, field, RECORD_JSONL)
#define TENSOR_REAL(field) FIELD(record_tensor, KIND_REAL, field, RECORD_JSONL)
static const struct column tensor_columns[] = {
    TENSOR_TEXT(name),          TENSOR_REAL(max_abs_err), TENSOR_REAL(rel_rms_err), TENSOR_REAL(rel_rms_bound),
    TENSOR_REAL(block_rms_err), TENSOR_REAL(gain_err),    TENSOR_REAL(err_ratio),   TENSOR_REAL(used),
    TENSOR_TEXT(rule),          TENSOR_TEXT(worst),       TENSOR_TEXT(failure),
};
enum { TENSOR_COLUMN_COUNT = sizeof tensor_columns / sizeof tensor_columns[0] };

static const struct column pass_columns[] = {
    FIELD(record_pass, KIND_TEXT, name, RECORD_JSONL),
    FIELD(record_pass, KIND_REAL, time_ms, RECORD_JSONL),
};
enum { PASS_COLUMN_COUNT = sizeof pass_columns / sizeof pass_columns[0] };

const struct column *record_column_find(const char *name, size_t length)
{
    for (int i = 0; i < COLUMN_COUNT; i++)
        if (strlen(columns[i].name) == length && memcmp(columns[i].name, name, length) == 0)
            return &columns[i];
    return NULL;
}

const struct column *record_columns(int *count)
{
    *count = COLUMN_COUNT;
    return columns;
}

unsigned record_column_views(const char *name)
{
    const struct column *column = record_column_find(name, strlen(name));
    return column ? column->views : 0;
}

static void *field_of(const struct column *column, void *base) { return (char *)base + column->offset; }

static void columns_clear(const struct column *list, int count, void *base)
{
    for (int i = 0; i < count; i++)
        switch (list[i].kind) {
        case KIND_TEXT: memset(field_of(&list[i], base), 0, list[i].size); break;
        case KIND_COUNT: *(int64_t *)field_of(&list[i], base) = INT64_MIN; break;
        case KIND_REAL: *(double *)field_of(&list[i], base) = NAN; break;
        }
}

void record_row_clear(struct record_row *row)
{
    record_row_free(row);
    memset(row, 0, sizeof *row);
    columns_clear(columns, COLUMN_COUNT, row);
    for (size_t i = 0; i < sizeof row->tensors / sizeof row->tensors[0]; i++)
        columns_clear(tensor_columns, TENSOR_COLUMN_COUNT, &row->tensors[i]);
    for (size_t i = 0; i < sizeof row->passes / sizeof row->passes[0]; i++)
        columns_clear(pass_columns, PASS_COLUMN_COUNT, &row->passes[i]);
    row->schema = RECORD_SCHEMA;
}

void record_row_free(struct record_row *row)
{
    free(row->samples_ms);
    row->samples_ms = NULL;
}

/* Length of the UTF-8 sequence at text, 0 when there is none. Overlong forms and surrogates are none. */
static size_t utf8_length(const unsigned char *text)
{
    static const struct { unsigned char mask, lead; uint32_t least; } forms[] = {
        {0x80, 0x00, 0}, {0xE0, 0xC0, 0x80}, {0xF0, 0xE0, 0x800}, {0xF8, 0xF0, 0x10000}};
    for (size_t length = 1; length <= 4; length++) {
        if ((text[0] & forms[length - 1].mask) != forms[length - 1].lead)
            continue;
        uint32_t code = text[0] & (unsigned char)~forms[length - 1].mask;
        for (size_t i = 1; i < length; i++) {
            if ((text[i] & 0xC0) != 0x80)
                return 0;
            code = code << 6 | (text[i] & 0x3F);
        }
        const bool is_legal = code >= forms[length - 1].least && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
        return is_legal ? length : 0;
    }
    return 0;
}

void record_clean_text(const char *from, char *to, size_t size)
{
    size_t used = 0;
    while (*from) {
        const size_t length = utf8_length((const unsigned char *)from);
        const size_t step = length ? length : 1;
        if (used + step >= size)
            break;
        if (length == 0)
            to[used] = '?';
        else if ((unsigned char)*from < 0x20 || *from == 0x7F)
            to[used] = ' ';
        else
            memcpy(to + used, from, step);
        used += step;
        from += step;
    }
    to[used] = '\0';
}

/* ---- rows and JSON ---- */

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

static void columns_to_json(const struct column *list, int count, const void *base, json_t *object)
{
    for (int i = 0; i < count; i++) {
        const void *field = record_field(&list[i], base);
        char text[1024];
        if (!(list[i].views & RECORD_JSONL))
            continue;
        switch (list[i].kind) {
        case KIND_TEXT:
            record_clean_text(field, text, sizeof text);
            if (text[0])
                set(object, list[i].name, json_string(text));
            break;
        case KIND_COUNT:
            if (*(const int64_t *)field != INT64_MIN)
                set(object, list[i].name, json_integer(*(const int64_t *)field));
            break;
        case KIND_REAL:
            if (isfinite(*(const double *)field))
                set(object, list[i].name, json_real(*(const double *)field));
            break;
        }
    }
}

static json_t *array_to_json(const struct column *list, int column_count, const void *elements, size_t size, int count)
{
    json_t *array = record_must(json_array());
    for (int i = 0; i < count; i++) {
        json_t *object = record_must(json_object());
        columns_to_json(list, column_count, (const char *)elements + (size_t)i * size, object);
        append(array, object);
    }
    return array;
}

json_t *record_row_json(const struct record_row *row)
{
    json_t *object = record_must(json_object());
    set(object, "type", json_string("row"));
    columns_to_json(columns, COLUMN_COUNT, row, object);
    if (row->tensor_count > 0)
        set(object, "tensors", array_to_json(tensor_columns, TENSOR_COLUMN_COUNT, row->tensors, sizeof row->tensors[0],
                                             row->tensor_count));
    if (row->pass_count > 0)
        set(object, "passes", array_to_json(pass_columns, PASS_COLUMN_COUNT, row->passes, sizeof row->passes[0],
                                            row->pass_count));
    if (row->samples_ms && row->samples > 0) {
        json_t *samples = record_must(json_array());
        for (int64_t i = 0; i < row->samples; i++)
            append(samples, isfinite(row->samples_ms[i]) ? json_real(row->samples_ms[i]) : json_null());
        set(object, "samples_ms", samples);
    }
    return object;
}

static bool columns_from_json(const struct column *list, int count, void *base, const json_t *object, char *why,
                              size_t why_size)
{
    for (int i = 0; i < count; i++) {
        const json_t *value = json_object_get(object, list[i].name);
        void *field = field_of(&list[i], base);
        const char *wanted = NULL;
        if (!value || json_is_null(value) || !(list[i].views & RECORD_JSONL))
            continue;
        switch (list[i].kind) {
        case KIND_TEXT:
            if (!json_is_string(value))
                wanted = "text";
            else if (json_string_length(value) >= list[i].size)
                wanted = "short enough for this program";
            else
                memcpy(field, json_string_value(value), json_string_length(value) + 1);
            break;
        case KIND_COUNT:
            if (json_is_integer(value))
                *(int64_t *)field = json_integer_value(value);
            else
                wanted = "a whole number";
            break;
        case KIND_REAL:
            if (json_is_number(value))
                *(double *)field = json_number_value(value);
            else
                wanted = "a number";
            break;
        }
        if (wanted) {
            snprintf(why, why_size, "\"%s\" must be %s", list[i].name, wanted);
            return false;
        }
    }
    return true;
}

/* An array of objects into elements[0..max); the number read, or -1 with a sentence. */
static int array_from_json(const json_t *row, const char *key, const struct column *list, int column_count,
                           void *elements, size_t size, size_t max, char *why, size_t why_size)
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
        if (!columns_from_json(list, column_count, (char *)elements + i * size, object, why, why_size))
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
    bool good = columns_from_json(columns, COLUMN_COUNT, row, object, why, why_size) &&
                record_schema_is_ours(row->schema, why, why_size) && samples_from_json(object, row, why, why_size);
    if (good) {
        row->tensor_count =
            array_from_json(object, "tensors", tensor_columns, TENSOR_COLUMN_COUNT, row->tensors,
                            sizeof row->tensors[0], sizeof row->tensors / sizeof row->tensors[0], why, why_size);
        good = row->tensor_count >= 0;
    }
    if (good) {
        row->pass_count = array_from_json(object, "passes", pass_columns, PASS_COLUMN_COUNT, row->passes,
                                          sizeof row->passes[0], sizeof row->passes / sizeof row->passes[0], why,
                                          why_size);
        good = row->pass_count >= 0;
    }
    if (!good)
        record_row_clear(row);
    return good;
}

