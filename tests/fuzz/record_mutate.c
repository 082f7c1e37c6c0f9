/* Mutations of record files for libFuzzer: every second time one JSON object changes as an object (a key is removed, a
 * value replaced, taken from another line, ...) or a line is removed or repeated; else bytes change, as libFuzzer does
 * it. Bytes alone seldom leave a line that is still JSON, and the code behind the parser would see little. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/text.h"
#include "tests/fuzz/fuzz.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room); /* of libFuzzer */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);

enum { LINES_MAX = 64 };

struct lines {
    char *text[LINES_MAX];
    int count;
};

static unsigned state;

/* A number below `limit`, from the seed of libFuzzer. */
static size_t pick(size_t limit)
{
    state = state * 1664525u + 1013904223u;
    return limit ? (state >> 8) % limit : 0;
}

static json_t *edge_value(void)
{
    static const char *const words[] = {"",          "ok",
                                        "oom",       "skipped",
                                        "error",     "timeout",
                                        "pass",      "fail",
                                        "off",       "fwd",
                                        "bwd",       "fp32",
                                        "bf16",      "naive",
                                        "cudnn",     "null",
                                        "x",         "fused",
                                        "fused_cpu", "header",
                                        "row",       "%s%n",
                                        "\x1b[",     "\n,\"",
                                        "|<&>'",     "0123456789012345678901234567890123456789"};
    static const double reals[] = {0,      1,      -1,   0.5,  2.5,         1e-300, 1e300, 1.7976931348623157e308,
                                   5e-324, -0.001, 1e18, 1e19, 2147483648.0};
    static const json_int_t counts[] = {0, 1, -1, 2, 64, 128, 4096, 1 << 20, 2147483647, INT64_MAX, INT64_MIN};
    switch (pick(8)) {
    case 0: return json_null();
    case 1: return json_true();
    case 2: return json_array();
    case 3: return json_integer(counts[pick(sizeof counts / sizeof *counts)]);
    case 4:
    case 5: return json_real(reals[pick(sizeof reals / sizeof *reals)]);
    default: return json_string(words[pick(sizeof words / sizeof *words)]);
    }
}

/* A number near the old one: its double, half, negative or neighbour. */
static json_t *near_value(const json_t *old)
{
    const double value = json_number_value(old);
    if (json_is_integer(old) && value > -1e15 && value < 1e15)
        return json_integer(pick(2) ? (json_int_t)value * 2 : (json_int_t)value - 1 + (json_int_t)pick(3));
    const double factors[] = {2, 0.5, -1, 1.02, 1e3};
    const json_t *const made = json_real(value * factors[pick(5)]);
    return made ? (json_t *)(uintptr_t)made : json_null();
}

static const char *pick_key(const json_t *object)
{
    size_t skip = pick(json_object_size(object));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) if (skip-- == 0) return key;
    return NULL;
}

static void change_array(json_t *array);

/* other: an object of another line, or NULL. */
static void change_object(json_t *object, const json_t *other)
{
    const char *const from = pick_key(object);
    if (!from)
        return;
    char *key = xstrdup(from); /* the object's own copy may be freed below */
    json_t *old = json_object_get(object, key);
    json_t *const taken = other ? json_object_get(other, key) : NULL;
    if (json_object_size(old) && pick(4))
        change_object(old, other ? json_object_get(other, key) : NULL);
    else if (json_array_size(old) && pick(4))
        change_array(old);
    else if (pick(4) == 0)
        json_object_del(object, key);
    else if (taken && pick(2))
        json_object_set_new(object, key, json_deep_copy(taken));
    else
        json_object_set_new(object, key, json_is_number(old) && pick(2) ? near_value(old) : edge_value());
    free(key);
}

static void change_array(json_t *array)
{
    const size_t index = pick(json_array_size(array));
    json_t *const old = json_array_get(array, index);
    if (json_is_object(old) && pick(4))
        change_object(old, NULL);
    else if (pick(3) == 0)
        json_array_remove(array, index);
    else if (pick(3) == 0)
        json_array_append_new(array, json_deep_copy(old));
    else
        json_array_set_new(array, index, json_is_number(old) && pick(2) ? near_value(old) : edge_value());
}

static void change_line(struct lines *lines, size_t at)
{
    json_t *object = json_loads(lines->text[at], 0, NULL);
    json_t *other = json_loads(lines->text[pick((size_t)lines->count)], 0, NULL);
    for (size_t times = 1 + pick(3); json_is_object(object) && times > 0; times--)
        change_object(object, json_is_object(other) ? other : NULL);
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    if (text) {
        free(lines->text[at]);
        lines->text[at] = text;
    }
    json_decref(object);
    json_decref(other);
}

static void change_lines(struct lines *lines)
{
    const size_t at = pick((size_t)lines->count), to = pick((size_t)lines->count);
    if (pick(8) || lines->count == 1) {
        change_line(lines, at);
    } else if (pick(2) && lines->count < LINES_MAX) {
        lines->text[lines->count++] = xstrdup(lines->text[at]);
    } else if (pick(2)) {
        free(lines->text[at]);
        lines->text[at] = lines->text[--lines->count];
    } else {
        char *const moved = lines->text[at];
        lines->text[at] = lines->text[to];
        lines->text[to] = moved;
    }
}

static struct lines split(const uint8_t *data, size_t size)
{
    struct lines lines = {.count = 0};
    char *text = fuzz_string(data, size), *rest = text, *line;
    while (lines.count < LINES_MAX && (line = strsep(&rest, "\n")) != NULL)
        if (*line)
            lines.text[lines.count++] = xstrdup(line);
    free(text);
    return lines;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    struct text joined = {0};
    state = seed;
    if (pick(2) || size == 0)
        return LLVMFuzzerMutate(data, size, room);
    struct lines lines = split(data, size);
    if (lines.count)
        change_lines(&lines);
    for (int i = 0; i < lines.count; i++) {
        text_add_bytes(&joined, lines.text[i], strlen(lines.text[i]));
        text_add_char(&joined, '\n');
        free(lines.text[i]);
    }
    const size_t length = joined.length < room ? joined.length : room;
    if (length)
        memcpy(data, joined.bytes, length);
    text_free(&joined);
    return length ? length : LLVMFuzzerMutate(data, size, room);
}
