/* One value of the command line into its field of struct options, by the kind and range of its row; defaults, and
 * what fields own. */
#include "cmd/options/options_values.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/paths.h"
#include "cmd/base/text.h"
#include "cmd/options/options_text.h"

static bool count_is_legal(const struct option_def *def, int64_t value)
{
    return (double)value >= def->min && (double)value <= def->max && !(def->multiple && value % def->multiple);
}

static bool parse_count_list(const struct option_def *def, const char *name, const char *value, struct int_list *list)
{
    char why[160], legal[160];
    if (!number_parse_list(value, &list->values, &list->count, why, sizeof why))
        return options_refuse(name, value, "%s; must be %s, or a list as 64,128 or 1k:16k:*2", why,
                              option_legal_text(def, legal, sizeof legal));
    for (int i = 0; i < list->count; i++) {
        if (count_is_legal(def, list->values[i]))
            continue;
        if (!strpbrk(value, ",:"))
            return options_refuse(name, value, "must be %s", option_legal_text(def, legal, sizeof legal));
        return options_refuse(name, value, "%" PRId64 " is not allowed; each must be %s", list->values[i],
                              option_legal_text(def, legal, sizeof legal));
    }
    return true;
}

static void list_add(struct int_list *list, int64_t value)
{
    list->values = xrealloc(list->values, (unsigned long)(list->count + 1) * sizeof *list->values);
    list->values[list->count++] = value;
}

static void int_list_free(struct int_list *list)
{
    free(list->values);
    *list = (struct int_list){NULL, 0};
}

enum { PARTS_MAX = 4096, PART_BYTES = 32 };

/* Windows: `none`, -1, or a number of keys; each once. */
static bool parse_windows(const struct option_def *def, const char *name, const char *value, struct int_list *list)
{
    for (const char *item = value;; item++) {
        const size_t length = strcspn(item, ",");
        char word[PART_BYTES];
        int64_t keys = -1;
        bool is_known = false;
        snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), item);
        if (strcmp(word, "none") != 0 && strcmp(word, "-1") != 0 &&
            (!number_parse_count(word, &keys) || !count_is_legal(def, keys)))
            return options_refuse(name, value,
                                  "must be none (or -1), or whole numbers from 0 to 2147483647 with commas");
        for (int i = 0; i < list->count; i++)
            is_known |= list->values[i] == keys;
        if (list->count == PARTS_MAX)
            return options_refuse(name, value, "a list has at most %d values", PARTS_MAX);
        if (!is_known)
            list_add(list, keys);
        item += length;
        if (!*item)
            return true;
    }
}

/* Pairs of query heads and key heads: 32x8,64x8. */
static bool parse_shapes(const char *name, const char *value, struct int_list *list)
{
    for (const char *item = value;; item++) {
        const size_t length = strcspn(item, ",");
        char word[2 * PART_BYTES], *cross;
        int64_t heads[2] = {0, 0};
        snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), item);
        if ((cross = strchr(word, 'x')) != NULL)
            *cross = '\0';
        if (!cross || !number_parse_count(word, &heads[0]) || !number_parse_count(cross + 1, &heads[1]) ||
            heads[0] < 1 || heads[1] < 1 || heads[0] > INT32_MAX || heads[1] > INT32_MAX)
            return options_refuse(name, value, "must be query x key heads with commas, as 32x8,64x8");
        if (heads[0] % heads[1])
            return options_refuse(name, value, "the %" PRId64 " key heads must divide the %" PRId64 " query heads",
                                  heads[1], heads[0]);
        if (list->count >= 2 * PARTS_MAX)
            return options_refuse(name, value, "a list has at most %d values", PARTS_MAX);
        list_add(list, heads[0]);
        list_add(list, heads[1]);
        item += length;
        if (!*item)
            return true;
    }
}

static bool refuse_dims(const char *name, const char *value)
{
    return options_refuse(name, value,
                          "must be multiples of 8 from 8 to 256 with commas, or pairs of them for Q and K x V as "
                          "192x128; or %dx%d in --mode decode",
                          DIMS_CACHE_QK, DIMS_CACHE_V);
}

/* One item of a list with pairs: a pair, a number or a range. */
static bool parse_dims_item(const struct option_def *def, char *word, struct int_list *list)
{
    char why[160], *const cross = strchr(word, 'x');
    int64_t qk = 0, v = 0;
    if (cross) {
        *cross = '\0';
        if (!number_parse_count(word, &qk) || !number_parse_count(cross + 1, &v) ||
            !((count_is_legal(def, qk) && count_is_legal(def, v)) || (qk == DIMS_CACHE_QK && v == DIMS_CACHE_V)))
            return false;
        list_add(list, dims_of(qk, v));
        return true;
    }
    struct int_list plain = {NULL, 0};
    bool good = number_parse_list(word, &plain.values, &plain.count, why, sizeof why);
    for (int i = 0; i < plain.count && good; i++) {
        good = count_is_legal(def, plain.values[i]);
        list_add(list, plain.values[i]);
    }
    free(plain.values);
    return good;
}

/* Head dims: 64,192x128. */
static bool parse_dims(const struct option_def *def, const char *name, const char *value, struct int_list *list)
{
    if (!strchr(value, 'x'))
        return parse_count_list(def, name, value, list);
    for (const char *item = value;; item++) {
        const size_t length = strcspn(item, ",");
        char word[2 * PART_BYTES];
        snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), item);
        if (list->count >= PARTS_MAX || !parse_dims_item(def, word, list))
            return refuse_dims(name, value);
        item += length;
        if (!*item)
            return true;
    }
}

/* The index of word[0, length) among the choices, or -1. */
int option_choice_index(const struct option_def *def, const char *word, size_t length)
{
    for (int i = 0; def->choices[i]; i++)
        if (strlen(def->choices[i]) == length && strncmp(def->choices[i], word, length) == 0)
            return i;
    return -1;
}

bool option_refuse_choice(const struct option_def *def, const char *name, const char *value, const char *word,
                          size_t length)
{
    const int first = option_is_preset(def); /* the user cannot type "none" */
    char legal[160], bad[64];
    int count = 0;
    while (def->choices[first + count])
        count++;
    snprintf(bad, sizeof bad, "%.*s", (int)(length > 60 ? 60 : length), word);
    const char *nearest = nearest_name(bad, def->choices + first, count);
    option_legal_text(def, legal, sizeof legal);
    if (option_is_dtype(def) && strncmp(bad, "fp8", 3) == 0)
        return options_refuse(name, value, "fp8 is more than one type; must be %s", legal);
    if (!*bad && def->kind == KIND_CHOICE_SET)
        return options_refuse(name, value, "%s; must be %s",
                              *value ? "an item of the list is empty" : "the list is empty", legal);
    return options_refuse(name, value, "must be %s%s%s", legal, nearest ? "; did you mean " : "",
                          nearest ? nearest : "");
}

static bool parse_choice(const struct option_def *def, const char *name, const char *value, void *field)
{
    const int index = option_choice_index(def, value, strlen(value));
    _Static_assert(sizeof(enum preset) == sizeof index, "an enum field is as wide as an int");
    if (index < 0 || (option_is_preset(def) && index == PRESET_NONE))
        return option_refuse_choice(def, name, value, value, strlen(value));
    memcpy(field, &index, sizeof index);
    return true;
}

static bool parse_choice_set(const struct option_def *def, const char *name, const char *value, bool *field)
{
    for (int i = 0; def->choices[i]; i++)
        field[i] = false;
    for (const char *item = value;; item++) {
        const size_t length = strcspn(item, ",");
        const int index = option_choice_index(def, item, length);
        if (index < 0)
            return option_refuse_choice(def, name, value, item, length);
        field[index] = true;
        item += length;
        if (!*item)
            return true;
    }
}

static bool parse_names(const char *name, const char *value, struct name_list *list)
{
    for (const char *item = value;; item++) {
        const size_t length = strcspn(item, ",");
        bool is_known = false;
        if (length == 0)
            return options_refuse(name, value, "%s; must be names with commas, as naive,fused",
                                  *value ? "an item of the list is empty" : "the list is empty");
        if (strspn(item, "abcdefghijklmnopqrstuvwxyz0123456789_:") < length)
            return options_refuse(name, value, "must be names of a-z, 0-9 and _ with commas, as naive,fused");
        for (int i = 0; i < list->count; i++)
            is_known |= strlen(list->names[i]) == length && strncmp(list->names[i], item, length) == 0;
        if (!is_known)
            name_list_add_part(list, item, length);
        item += length;
        if (!*item)
            return true;
    }
}

static bool parse_specs(const char *name, const char *value, struct name_list *list)
{
    for (const char *item = value;; item++) {
        const size_t length = strcspn(item, ",");
        if (length == 0)
            return options_refuse(name, value, "an item of the list is empty");
        name_list_add_part(list, item, length);
        item += length;
        if (!*item)
            return true;
    }
}

/* One item "cuda:N" of a list. */
static bool parse_ordinal(const char *item, size_t length, int64_t *ordinal)
{
    char word[PART_BYTES];
    snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), item);
    return strncmp(word, "cuda:", 5) == 0 && !strchr(word, 'k') && number_parse_count(word + 5, ordinal) &&
           *ordinal < DEVICE_ORDINALS;
}

static bool parse_ordinals(const char *name, const char *value, struct int_list *list)
{
    for (const char *item = value;; item++) {
        const size_t length = strcspn(item, ",");
        int64_t ordinal = 0;
        if (!parse_ordinal(item, length, &ordinal))
            return options_refuse(name, value, "must be auto, cpu, all, or cuda:0, cuda:1 and so on%s",
                                  strchr(value, ',') ? ", several with commas" : "");
        for (int i = 0; i < list->count; i++)
            if (list->values[i] == ordinal)
                return options_refuse(name, value, "cuda:%d is there twice; must be each device once", (int)ordinal);
        list_add(list, ordinal);
        item += length;
        if (!*item)
            return true;
    }
}

static bool parse_device(const char *name, const char *value, struct options *o)
{
    o->all_devices = strcmp(value, "all") == 0;
    o->device_ordinal = 0;
    o->device = strcmp(value, "auto") == 0 ? DEVICE_AUTO : strcmp(value, "cpu") == 0 ? DEVICE_CPU : DEVICE_CUDA;
    if (o->device != DEVICE_CUDA || o->all_devices)
        return true;
    if (!parse_ordinals(name, value, &o->device_ordinals))
        return false;
    o->device_ordinal = (int)o->device_ordinals.values[0];
    if (o->device_ordinals.count == 1)
        int_list_free(&o->device_ordinals);
    return true;
}

/* Text fields; `field` is NULL before. Output files are checked later, by options_check. */
static bool parse_text(const struct option_def *def, const char *name, const char *value, char **field)
{
    struct reason why;
    if (!*value)
        return options_refuse(name, value, "must not be empty");
    const bool is_none = def->offset == offsetof(struct options, out_dir) && strcmp(value, "none") == 0;
    if (def->kind == KIND_OUT_DIR && !is_none && !path_takes_dir(value, &why))
        return options_refuse(name, value, "%s", why.text);
    if (def->kind == KIND_IN_DIR && !path_has_dir(value, &why))
        return options_refuse(name, value, "%s", why.text);
    if (def->kind == KIND_IN_FILE && !path_has_file(value, &why))
        return options_refuse(name, value, "%s", why.text);
    *field = xstrdup(value);
    return true;
}

static bool parse_library(const char *name, const char *value, struct name_list *list)
{
    struct reason why;
    if (!*value || !path_has_file(value, &why))
        return options_refuse(name, value, "%s", *value ? why.text : "must name a shared library");
    name_list_add(list, value);
    return true;
}

static bool parse_number(const struct option_def *def, const char *name, const char *value, void *field)
{
    char legal[160];
    int64_t count;
    double real;
    if (def->kind == KIND_COUNT && number_parse_count(value, &count) && count_is_legal(def, count)) {
        memcpy(field, &count, sizeof count);
        return true;
    }
    if (def->kind != KIND_COUNT &&
        (def->kind == KIND_PERCENT ? number_parse_percent : number_parse_real)(value, &real) && real >= def->min &&
        real <= def->max) {
        memcpy(field, &real, sizeof real);
        return true;
    }
    return options_refuse(name, value, "must be %s", option_legal_text(def, legal, sizeof legal));
}

/* Numbers with commas, each in the range of the option. */
static bool parse_real_list(const struct option_def *def, const char *name, const char *value, struct real_list *list)
{
    char legal[160], word[64];
    for (const char *item = value;; item++) {
        const size_t length = strcspn(item, ",");
        double real = NAN;
        snprintf(word, sizeof word, "%.*s", length < sizeof word ? (int)length : 0, item);
        if (!number_parse_real(word, &real) || !(real >= def->min && real <= def->max))
            return options_refuse(name, value, "must be %s", option_legal_text(def, legal, sizeof legal));
        list->values = xrealloc(list->values, (unsigned long)(list->count + 1) * sizeof *list->values);
        list->values[list->count++] = real;
        item += length;
        if (!*item)
            return true;
    }
}

/* One option into its field. `name` is the option as the user wrote it. */
bool option_parse_value(struct options *o, const struct option_def *def, const char *name, const char *value)
{
    void *const field = (char *)o + def->offset;
    if (def->given_offset)
        *(bool *)((char *)o + def->given_offset) = true;
    switch (def->kind) {
    case KIND_FLAG: *(bool *)field = true; return true;
    case KIND_CHOICE: return parse_choice(def, name, value, field);
    case KIND_CHOICE_SET: return parse_choice_set(def, name, value, field);
    case KIND_CAUSAL: {
        const int index = *value ? option_choice_index(def, value, strlen(value)) : 1;
        char typed[80];
        if (index < 0) {
            snprintf(typed, sizeof typed, "%s=%s", name, value);
            return option_refuse_choice(def, typed, NULL, value, strlen(value));
        }
        o->causal[0] = index != 1;
        o->causal[1] = index != 0;
        return true;
    }
    case KIND_NO_CAUSAL:
        o->causal[0] = true;
        o->causal[1] = false;
        return true;
    case KIND_COUNT_LIST: return parse_count_list(def, name, value, field);
    case KIND_DIMS: return parse_dims(def, name, value, field);
    case KIND_REAL_LIST: return parse_real_list(def, name, value, field);
    case KIND_WINDOWS: return parse_windows(def, name, value, field);
    case KIND_SHAPES: return parse_shapes(name, value, field);
    case KIND_COUNT:
    case KIND_REAL:
    case KIND_PERCENT: return parse_number(def, name, value, field);
    case KIND_NAMES: return parse_names(name, value, field);
    case KIND_WORDS: return parse_specs(name, value, field);
    case KIND_LIBRARY: return parse_library(name, value, field);
    case KIND_DEVICE: return parse_device(name, value, o);
    case KIND_TEXTS:
        if (!*value)
            return options_refuse(name, value, "must not be empty");
        name_list_add(field, value);
        return true;
    case KIND_TEXT:
    case KIND_OUT_FILE:
    case KIND_OUT_DIR:
    case KIND_IN_DIR:
    case KIND_IN_FILE: return parse_text(def, name, value, field);
    case KIND_HELP:
    case KIND_VERSION: break;
    }
    FABENCH_ASSERT(false, "%s has no value", def->name);
    return false;
}

void options_apply_defaults(struct options *o)
{
    for (int i = 0; i < option_count; i++) {
        const struct option_def *def = &option_table[i];
        if (def->kind == KIND_REAL || def->kind == KIND_PERCENT)
            *(double *)((char *)o + def->offset) = NAN;
        if (def->fallback && !def->is_late)
            FABENCH_ASSERT(option_parse_value(o, def, def->name, def->fallback), "default of %s", def->name);
        if (def->given_offset)
            *(bool *)((char *)o + def->given_offset) = false;
    }
}

void options_for_device(const struct options *all, int ordinal, struct options *one)
{
    *one = *all;
    one->device = DEVICE_CUDA;
    one->device_ordinal = ordinal;
    one->device_ordinals = (struct int_list){NULL, 0};
    one->all_devices = one->one_by_one = false;
    one->resume = false;
    one->max_board_spread_pct = NAN;
    one->board_baselines = one->given = (struct name_list){0};
    for (int i = 0; i + 1 < all->given.count; i += 2) {
        const char *const name = all->given.names[i];
        if (strcmp(name, "--one-by-one") == 0 || strcmp(name, "--max-board-spread") == 0 ||
            strcmp(name, "--board-baseline") == 0)
            continue;
        name_list_add(&one->given, name);
        if (strcmp(name, "--device") == 0)
            name_list_print(&one->given, "cuda:%d", ordinal);
        else
            name_list_add(&one->given, all->given.names[i + 1]);
    }
}

void options_free_one(struct options *one) { name_list_free(&one->given); }

/* One option's field, by the kind of its row. Two rows may have one field, so what is freed is also zeroed. */
void option_free_value(struct options *o, const struct option_def *def)
{
    void *const field = (char *)o + def->offset;
    switch (def->kind) {
    case KIND_COUNT_LIST:
    case KIND_DIMS:
    case KIND_WINDOWS:
    case KIND_SHAPES: int_list_free(field); return;
    case KIND_DEVICE: int_list_free(&o->device_ordinals); return;
    case KIND_REAL_LIST: {
        struct real_list *const list = field;
        free(list->values);
        *list = (struct real_list){NULL, 0};
        return;
    }
    case KIND_NAMES:
    case KIND_WORDS:
    case KIND_LIBRARY:
    case KIND_TEXTS: name_list_free(field); return;
    case KIND_TEXT:
    case KIND_OUT_FILE:
    case KIND_OUT_DIR:
    case KIND_IN_DIR:
    case KIND_IN_FILE: {
        char **const text = field;
        free(*text);
        *text = NULL;
        return;
    }
    case KIND_FLAG:
    case KIND_CHOICE:
    case KIND_CHOICE_SET:
    case KIND_CAUSAL:
    case KIND_NO_CAUSAL:
    case KIND_COUNT:
    case KIND_REAL:
    case KIND_PERCENT:
    case KIND_HELP:
    case KIND_VERSION: return;
    }
}
