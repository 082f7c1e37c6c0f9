/* Compares the facts of two headers, and the rows of one file with its header. */
#include "cmd/gate/fingerprint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/paths.h"
#include "cmd/record/record.h"

/* The facts that must agree. tolerance: relative, for numbers. is_major: compare only the part before the first dot. */
static const struct {
    const char *path, *what;
    double tolerance;
    bool is_major;
} facts[] = {
    {"device.name", "device", 0, false},
    {"device.arch", "architecture", 0, false},
    {"device.memory_gb", "device memory (GB)", 0.01, false},
    {"device.threads", "threads", 0, false},
    {"device.power_limit_w", "power limit (W)", 0.01, false},
    {"device.driver", "driver", 0, true},
    {"device.ecc", "ECC", 0, false},
    {"device.mig", "MIG", 0, false},
    {"policy.method", "timing method", 0, false},
    {"policy.clocks", "clock policy", 0, false},
    {"policy.l2", "cache policy", 0, false},
    {"policy.round_members", "members of the rounds", 0, false},
};

static bool is_same(const json_t *a, const json_t *b, size_t i)
{
    if (!a || !b)
        return !a && !b;
    if (json_is_number(a) && json_is_number(b)) {
        const double x = json_number_value(a), y = json_number_value(b);
        return fabs(x - y) <= facts[i].tolerance * fmax(fabs(x), fabs(y));
    }
    if (facts[i].is_major && json_is_string(a) && json_is_string(b)) {
        const char *x = json_string_value(a), *y = json_string_value(b);
        const size_t length = strcspn(x, ".");
        return length == strcspn(y, ".") && strncmp(x, y, length) == 0;
    }
    return json_equal(a, b);
}

bool fingerprint_matches(const struct record_file *baseline, const struct record_file *current,
                         struct attn_message *why)
{
    char was[80], is[80];
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        const json_t *const a = header_value(baseline->header, facts[i].path);
        const json_t *const b = header_value(current->header, facts[i].path);
        if (is_same(a, b, i))
            continue;
        const bool is_method = strcmp(facts[i].path, "policy.method") == 0;
        snprintf(why->text, sizeof why->text,
                 "the baseline's %s is %s, the current one's %s: they cannot be compared%s", facts[i].what,
                 header_value_text(a, was, sizeof was), header_value_text(b, is, sizeof is),
                 is_method ? "; a baseline of another method must be renewed, by a run of this version" : "");
        return false;
    }
    return true;
}

/* Orders rows by configuration. `fused` and the kernel that it resolves to may both have been requested: they are two.
 * */
static int compare_rows(const void *left, const void *right)
{
    const struct record_row *a = *(const struct record_row *const *)left, *b = *(const struct record_row *const *)right;
    int order = problem_key_compare(&a->key, &b->key, false);
    if (!order)
        order = strcmp(a->impl, b->impl);
    return order ? order : strcmp(a->asked, b->asked);
}

/* Is each configuration in the file only once? */
static bool has_no_duplicates(const struct record_file *file, struct attn_message *why)
{
    const struct record_row **rows = xmalloc((unsigned long)(file->count + 1) * sizeof *rows);
    bool good = true;
    for (int i = 0; i < file->count; i++)
        rows[i] = &file->rows[i];
    if (file->count > 1)
        qsort(rows, (size_t)file->count, sizeof *rows, compare_rows);
    for (int i = 1; i < file->count && good; i++) {
        char label[PROBLEM_LABEL_SIZE];
        good = compare_rows(&rows[i - 1], &rows[i]) != 0;
        if (!good)
            snprintf(why->text, sizeof why->text, "%s has %s of %s twice (runs %s and %s); a gate needs each once",
                     path_shown(file->path).text, problem_key_label(&rows[i]->key, label, sizeof label), rows[i]->impl,
                     rows[i - 1]->run_id, rows[i]->run_id);
    }
    free(rows);
    return good;
}

/* Do all runs of a file have the facts of the first? */
static bool one_policy(const struct record_file *file, struct attn_message *why)
{
    char first[80], other[80];
    for (size_t k = 0; k < json_array_size(file->later_headers); k++)
        for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
            const json_t *const a = header_value(file->header, facts[i].path);
            const json_t *const b = header_value(json_array_get(file->later_headers, k), facts[i].path);
            if (is_same(a, b, i))
                continue;
            snprintf(why->text, sizeof why->text,
                     "%s is mixed: the %s of its first run is %s, that of another run is %s",
                     path_shown(file->path).text, facts[i].what, header_value_text(a, first, sizeof first),
                     header_value_text(b, other, sizeof other));
            return false;
        }
    return true;
}

bool fingerprint_is_uniform(const struct record_file *file, struct attn_message *why)
{
    const json_t *device = json_object_get(file->header, "device"), *policy = json_object_get(file->header, "policy");
    const char *name = json_string_value(json_object_get(device, "name"));
    const char *driver = json_string_value(json_object_get(device, "driver"));
    const char *method = json_string_value(json_object_get(policy, "method"));
    if (file->count == 0) {
        snprintf(why->text, sizeof why->text, "%s has no rows", path_shown(file->path).text);
        return false;
    }
    for (int i = 0; i < file->count; i++) {
        const struct record_row *row = &file->rows[i];
        const struct {
            const char *what, *header, *row;
        } pairs[] = {
            {"device", name, row->device}, {"driver", driver, row->driver}, {"timing method", method, row->method}};
        for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++) {
            const char *header = pairs[p].header ? pairs[p].header : "";
            if (strcmp(header, pairs[p].row) == 0)
                continue;
            snprintf(why->text, sizeof why->text, "%s is mixed: row %d is of %s '%s', its header of '%s'",
                     path_shown(file->path).text, i + 1, pairs[p].what, pairs[p].row, header);
            return false;
        }
    }
    return one_policy(file, why) && has_no_duplicates(file, why);
}
