/* What holds for every row of the option table, whatever it is called: wrong values are refused by its kind and range,
 * the least value is taken, and what is allocated is freed. A new option is tested here without a line of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/options/options_run.h"

/* The beginning of a command line that the row's first command takes. */
static const char *command_line(const struct option_def *def)
{
    if (def->commands & FOR_SWEEP)
        return "sweep ";
    if (def->commands & FOR_VERIFY)
        return "verify ";
    if (def->commands & FOR_GATE)
        return strcmp(def->name, "--baseline") == 0 ? "gate --floors f " : "gate --baseline a ";
    if (def->commands & FOR_AB)
        return "ab a b ";
    if (def->commands & FOR_REPORT)
        return "report a ";
    if (def->commands & FOR_PLOT)
        return "plot a ";
    assert_true(def->commands & FOR_SELFTEST);
    return "selftest ";
}

static void refuses(const struct option_def *def, const char *value)
{
    char line[200], part[100];
    snprintf(line, sizeof line, "%s%s=%s", command_line(def), def->name, value);
    snprintf(part, sizeof part, "fabench: %s", def->name);
    refused_with(line, part);
}

static void wrong_values(void **state)
{
    (void)state;
    for (int i = 0; i < option_count; i++) {
        const struct option_def *def = &option_table[i];
        char beyond[60];
        switch (def->kind) {
        case KIND_COUNT:
        case KIND_COUNT_LIST:
        case KIND_REAL:
        case KIND_REAL_LIST:
        case KIND_PERCENT:
            assert_true(def->max > def->min);
            snprintf(beyond, sizeof beyond, "%.0f", def->max * 2 + 1);
            refuses(def, beyond);
            snprintf(beyond, sizeof beyond, "%.9f", def->min - 1);
            refuses(def, beyond);
            refuses(def, "x");
            break;
        case KIND_TEXT:
        case KIND_TEXTS:
        case KIND_OUT_FILE:
        case KIND_OUT_DIR: refuses(def, ""); break;
        case KIND_LIBRARY:
        case KIND_IN_DIR:
        case KIND_IN_FILE:
            refuses(def, "absent/nowhere");
            refuses(def, "");
            break;
        case KIND_FLAG:
        case KIND_NO_CAUSAL:
        case KIND_VERSION:
        case KIND_CHOICE:
        case KIND_CHOICE_SET:
        case KIND_CAUSAL:
        case KIND_NAMES:
        case KIND_DEVICE:
        case KIND_HELP:
            refuses(def, "No-such");
            refuses(def, "");
            break;
        }
    }
}

/* The least value lands in the row's own field. */
static void least_values(void **state)
{
    (void)state;
    for (int i = 0; i < option_count; i++) {
        const struct option_def *def = &option_table[i];
        const bool is_count = def->kind == KIND_COUNT, is_real = def->kind == KIND_REAL || def->kind == KIND_PERCENT;
        char line[200];
        if (!is_count && !is_real)
            continue;
        snprintf(line, sizeof line, "%s%s=%.9g%s", command_line(def), def->name, def->min,
                 strcmp(def->name, "--kv-heads") == 0 ? " --heads 4" : "");
        taken(line);
        const char *const field = (const char *)&options + def->offset;
        if (is_count ? *(const int64_t *)field != (int64_t)def->min : *(const double *)field != def->min)
            fail_msg("fabench %s: another value", line);
    }
}

/* Every kind that owns memory is taken, and freed again: the sanitizer build sees what is left. */
static void all_is_freed(void **state)
{
    (void)state;
    static const char *const values[] = {
        [KIND_COUNT_LIST] = "8,16", [KIND_NAMES] = "naive,fused", [KIND_LIBRARY] = "file",
        [KIND_TEXT] = "text",       [KIND_OUT_FILE] = "new",      [KIND_OUT_DIR] = "dir",
        [KIND_IN_DIR] = "dir",      [KIND_IN_FILE] = "file",      [KIND_TEXTS] = "a=1EUR"};
    const struct options zero = {.command = COMMAND_SWEEP};
    int count = 0;
    for (int i = 0; i < option_count; i++) {
        const struct option_def *def = &option_table[i];
        char line[200];
        if (def->kind >= sizeof values / sizeof values[0] || !values[def->kind] || !(def->commands & FOR_SWEEP))
            continue;
        snprintf(line, sizeof line, "%s%s=%s", command_line(def), def->name, values[def->kind]);
        taken(line);
        options_free(&options);
        assert_memory_equal(&options, &zero, sizeof options);
        count++;
    }
    assert_true(count >= 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_values),
        cmocka_unit_test(least_values),
        cmocka_unit_test(all_is_freed),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
