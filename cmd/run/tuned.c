/* Reads, writes and compares files of tuned choices. */
#include "cmd/run/tuned.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/paths.h"
#include "cmd/base/program.h"
#include "cmd/base/text.h"

/* The facts that must agree. */
static const char *const facts[] = {"device", "arch", "multiprocessors", "memory_gb", "version", "commit", "build"};

json_t *tuned_header(const struct device_info *device)
{
    json_t *header = json_pack("{s:s, s:i, s:s, s:s, s:i, s:f, s:s, s:s, s:s}", "type", "tuned", "schema",
                               (int)TUNED_SCHEMA, "device", device->name, "arch", device->arch, "multiprocessors",
                               device->multiprocessors, "memory_gb", round(device->memory_bytes * 1e-9), "version",
                               build_version(), "commit", build_commit(), "build", build_description());
    FABENCH_ASSERT(header, "a header of clean text");
    return header;
}

bool tuned_fits(const struct tuned *tuned, const json_t *header, struct attn_message *why)
{
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        const json_t *was = json_object_get(tuned->header, facts[i]), *is = json_object_get(header, facts[i]);
        if (was && json_equal(was, is))
            continue;
        char *old = was ? json_dumps(was, JSON_ENCODE_ANY) : NULL, *now = json_dumps(is, JSON_ENCODE_ANY);
        snprintf(why->text, sizeof why->text, "was tuned with %s %.200s, here it is %.200s; fabench tune makes one",
                 facts[i], old ? old : "unknown", now);
        free(old);
        free(now);
        return false;
    }
    return true;
}

/* The key without what the tensors hold. */
static struct problem_key work_of(const struct problem_key *key)
{
    struct problem_key work = *key;
    work.dist = work.l2 = -1;
    work.seed = work.dropout_seed = 0;
    work.logit_std = work.logit_mean = NAN;
    return work;
}

bool tuned_is_same(const struct problem_key *a, const struct problem_key *b)
{
    const struct problem_key first = work_of(a), second = work_of(b);
    return problem_key_compare(&first, &second, false) == 0;
}

const struct tuned_choice *tuned_find(const struct tuned *tuned, const char *impl, const struct problem_key *key)
{
    for (int i = tuned->count - 1; i >= 0; i--)
        if (strcmp(tuned->choices[i].impl, impl) == 0 && tuned_is_same(&tuned->choices[i].key, key))
            return &tuned->choices[i];
    return NULL;
}

/* A field that is there; NULL = absent. */
static json_t *field_value(const struct problem_field *field, const struct problem_key *key)
{
    const void *value = (const char *)key + field->offset;
    char text[PROBLEM_TEXT_SIZE];
    if (field->kind == PROBLEM_COUNT)
        return *(const int64_t *)value == INT64_MIN ? NULL : json_integer(*(const int64_t *)value);
    if (field->kind == PROBLEM_REAL)
        return isnan(*(const double *)value) ? NULL : json_real(*(const double *)value);
    const char *word = problem_field_text(field, key, text, sizeof text);
    return *word ? json_string(word) : NULL;
}

static bool take_field(const struct problem_field *field, const json_t *value, struct problem_key *key)
{
    void *to = (char *)key + field->offset;
    if (!value)
        return true;
    if (field->kind == PROBLEM_COUNT && json_is_integer(value))
        *(int64_t *)to = json_integer_value(value);
    else if (field->kind == PROBLEM_REAL && json_is_number(value))
        *(double *)to = json_number_value(value);
    else
        return json_is_string(value) && field->kind != PROBLEM_COUNT && field->kind != PROBLEM_REAL &&
               problem_field_parse(field, json_string_value(value), key);
    return true;
}

json_t *tuned_line(const struct tuned_choice *choice)
{
    json_t *problem = json_object();
    for (int i = 0; i < problem_field_count; i++) {
        json_t *value = field_value(&problem_fields[i], &choice->key);
        if (value)
            json_object_set_new(problem, problem_fields[i].name, value);
    }
    json_t *line = json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:o}", "type", "choice", "impl", choice->impl, "variant",
                             choice->variant, "built_in", choice->built_in, "fastest", choice->fastest, "candidates",
                             choice->candidates, "problem", problem);
    FABENCH_ASSERT(line, "a choice of clean text");
    if (!isnan(choice->gain_pct))
        json_object_set_new(line, "gain_pct", json_real(choice->gain_pct));
    return line;
}

static bool take_name(const json_t *line, const char *name, char to[IMPL_NAME_SIZE])
{
    const char *value = json_string_value(json_object_get(line, name));
    if (!value || !*value || strlen(value) >= IMPL_NAME_SIZE)
        return false;
    text_clean(value, to, IMPL_NAME_SIZE);
    return true;
}

static bool take_choice(const json_t *line, struct tuned_choice *choice)
{
    const json_t *problem = json_object_get(line, "problem"), *gain = json_object_get(line, "gain_pct");
    problem_key_clear(&choice->key);
    for (int i = 0; i < problem_field_count; i++)
        if (!take_field(&problem_fields[i], json_object_get(problem, problem_fields[i].name), &choice->key))
            return false;
    problem_key_complete(&choice->key);
    choice->candidates = (int)json_integer_value(json_object_get(line, "candidates"));
    choice->gain_pct = json_is_number(gain) ? json_number_value(gain) : NAN;
    return json_is_object(problem) && take_name(line, "impl", choice->impl) &&
           take_name(line, "variant", choice->variant) && take_name(line, "built_in", choice->built_in) &&
           take_name(line, "fastest", choice->fastest);
}

/* One whole line; false where it is none of such a file. */
static bool take_line(const char *text, struct tuned *tuned)
{
    json_t *line = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const char *type = json_string_value(json_object_get(line, "type"));
    bool good = false;
    if (type && !tuned->header && strcmp(type, "tuned") == 0) {
        good = json_integer_value(json_object_get(line, "schema")) == TUNED_SCHEMA;
        tuned->header = json_incref(line);
    } else if (type && tuned->header && strcmp(type, "choice") == 0) {
        tuned->choices = xrealloc(tuned->choices, (unsigned long)(tuned->count + 1) * sizeof *tuned->choices);
        good = take_choice(line, &tuned->choices[tuned->count]);
        tuned->count += good;
    }
    json_decref(line);
    return good;
}

bool tuned_read(const char *path, struct tuned *tuned, struct attn_message *why)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t size = 0;
    bool good = file != NULL;
    memset(tuned, 0, sizeof *tuned);
    snprintf(why->text, sizeof why->text, "%s: cannot be read: %s", path_shown(path).text, strerror(errno));
    for (ssize_t length; good && (length = getline(&line, &size, file)) > 0 && line[length - 1] == '\n';) {
        good = take_line(line, tuned);
        tuned->whole_bytes += length;
        snprintf(why->text, sizeof why->text, "%s: line %d is none of a file of fabench tune", path_shown(path).text,
                 tuned->count + 1 + (tuned->header != NULL));
    }
    if (good && !tuned->header) {
        snprintf(why->text, sizeof why->text, "%s: is no file of fabench tune", path_shown(path).text);
        good = false;
    }
    free(line);
    if (file)
        fclose(file);
    if (!good)
        tuned_free(tuned);
    return good;
}

void tuned_free(struct tuned *tuned)
{
    json_decref(tuned->header);
    free(tuned->choices);
    memset(tuned, 0, sizeof *tuned);
}
