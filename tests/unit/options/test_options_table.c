/* The option table, and command lines written back from it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/base/text.h"
#include "cmd/options/options_line.h"
#include "cmd/options/options.h"
#include "tests/unit/options/options_run.h"

/* ---- options_table ---- */

/* What holds for every row of the option table, whatever it is called: wrong values are refused by its kind and range,
 * the least value is taken, and what is allocated is freed. A new option is tested here without a line of its own. */

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
        case KIND_WINDOWS:
        case KIND_REAL:
        case KIND_REAL_LIST:
        case KIND_PERCENT:
            assert_true(def->max > def->min);
            snprintf(beyond, sizeof beyond, "%.0f", def->max * 2 + 1);
            refuses(def, beyond);
            snprintf(beyond, sizeof beyond, "%.9f", def->min - (def->kind == KIND_WINDOWS ? 2 : 1));
            refuses(def, beyond);
            refuses(def, "x");
            break;
        case KIND_WORDS:
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
        case KIND_SHAPES:
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
                 strcmp(def->name, "--kv-heads") == 0      ? " --heads 4"
                 : strcmp(def->name, "--mask-block") == 0  ? " --block-mask local:1"
                 : strcmp(def->name, "--scale-block") == 0 ? " --dtype e4m3 --fp8-scale block"
                                                           : "");
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
        [KIND_COUNT_LIST] = "8,16", [KIND_WINDOWS] = "0,none", [KIND_SHAPES] = "4x2,8x8", [KIND_NAMES] = "naive,fused",
        [KIND_LIBRARY] = "file",    [KIND_TEXT] = "text",      [KIND_OUT_FILE] = "new",   [KIND_OUT_DIR] = "dir",
        [KIND_IN_DIR] = "dir",      [KIND_IN_FILE] = "file",   [KIND_TEXTS] = "a=1EUR",   [KIND_WORDS] = "a:1,b"};
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

static int options_table_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_values),
        cmocka_unit_test(least_values),
        cmocka_unit_test(all_is_freed),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}

/* ---- options_line ---- */

/* Command lines written back: what was given comes back whole, whatever its length and whatever is in a path. */

/* The options of a command line in a shell's words. */
static struct options parse(const char *line)
{
    struct name_list words = {0};
    struct options o;
    bool is_done = false;
    assert_true(text_split_shell(line, &words));
    assert_int_equal(options_parse(words.count, name_list_argv(&words), &o, &is_done), 0);
    assert_false(is_done);
    name_list_free(&words);
    return o;
}

static struct problem_key a_problem(void)
{
    const struct attn_problem p = {.batch = 2,
                                   .q_heads = 16,
                                   .kv_heads = 4,
                                   .q_len = 1000,
                                   .kv_len = 2048,
                                   .head_dim = 128,
                                   .dtype = ATTN_BF16,
                                   .layout = ATTN_BHSD,
                                   .causal = true,
                                   .window_left = -1,
                                   .window_right = -1,
                                   .scale = 0.25f};
    return problem_key_of(&p, NULL, ATTN_BWD, FILL_SHARP, 0, 77, L2_HOT);
}

static void repro_has_what_rows_depend_on(void **state)
{
    (void)state;
    struct options o =
        parse("fabench --preset quick --seqlen 1k,4k --total-tokens 8k --hidden 1024 --check sample --atol 0.5 "
              "--warmup-ms 7 --samples 9 --timeout-s 3 --sustain-s 2 --deterministic --device cpu --out x "
              "--csv y.csv --plot none --quiet --impl naive,fused");
    const struct problem_key key = a_problem();
    char *repro = options_repro(&o, COMMAND_SWEEP, "fabench", "fused_cpu", &key);
    assert_string_equal(repro,
                        "fabench --preset quick --check sample --atol 0.5 --warmup-ms 7 --samples 9 --timeout-s 3 "
                        "--sustain-s 2 --deterministic --device cpu --impl fused_cpu --mode bwd --dtype bf16 "
                        "--causal=yes --batch 2 --heads 16 --kv-heads 4 --seqlen 1000 --kv-len 2048 --d 128 "
                        "--layout bhsd --scale 0.25 --dist sharp --seed 77 --l2 hot");
    struct options again = parse(repro);
    assert_int_equal(again.batches.count, 1);
    assert_int_equal(again.batches.values[0], 2);
    assert_true(again.deterministic);
    char *second = options_repro(&again, COMMAND_SWEEP, "fabench", "fused_cpu", &key);
    assert_string_equal(repro, second);
    free(repro);
    free(second);
    options_free(&o);
    options_free(&again);
}

/* Longer than any fixed field would be, with quotes and spaces. */
static void paths_come_back_whole(void **state)
{
    (void)state;
    char of_libraries[] = "/tmp/fabench-line-XXXXXX", library[4][300];
    struct text line = {0};
    assert_non_null(mkdtemp(of_libraries));
    text_add(&line, "fabench");
    for (int i = 0; i < 4; i++) {
        snprintf(library[i], sizeof library[i], "%s/it's \"%d\" $HOME `x` %0200d.so", of_libraries, i, 0);
        FILE *file = fopen(library[i], "w");
        assert_non_null(file);
        fclose(file);
        text_add_shell_word(&line, "--impl-lib");
        text_add_shell_word(&line, library[i]);
    }
    struct options o = parse(text_string(&line));
    const struct problem_key key = a_problem();
    char *repro = options_repro(&o, COMMAND_SWEEP, "fabench", "mine", &key);
    assert_true(strlen(repro) > 1000);
    struct options again = parse(repro);
    assert_int_equal(again.impl_libs.count, 4);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(again.impl_libs.names[i], library[i]);
        unlink(library[i]);
    }
    assert_string_equal(o.command_line, text_string(&line));
    rmdir(of_libraries);
    free(repro);
    text_free(&line);
    options_free(&o);
    options_free(&again);
}

static void deciding_options_are_in_the_tables_order(void **state)
{
    (void)state;
    struct options a = parse("fabench --seed 3 --out somewhere --mode fwd --verbose");
    struct options b = parse("fabench --mode=fwd --plot none --seed=3");
    assert_string_equal(a.deciding, "--mode fwd --seed 3");
    assert_string_equal(a.deciding, b.deciding);
    options_free(&a);
    options_free(&b);
}

/* What the other command does not take stays out. */
static void repro_of_another_command(void **state)
{
    (void)state;
    struct options o = parse("fabench verify --repeats 7 --preset quick --dtype fp16 --impl naive");
    struct problem_key key;
    problem_key_clear(&key);
    key.mode = ATTN_FWD;
    key.causal = 0;
    char *repro = options_repro(&o, COMMAND_VERIFY, "fabench verify", "naive", &key);
    assert_string_equal(repro, "fabench verify --repeats 7 --preset quick --impl naive --mode fwd --causal=no");
    free(repro);
    repro = options_repro(&o, COMMAND_SWEEP, "fabench", NULL, &key);
    assert_string_equal(repro, "fabench --preset quick --mode fwd --causal=no");
    free(repro);
    options_free(&o);
}

static int options_line_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repro_has_what_rows_depend_on),
        cmocka_unit_test(paths_come_back_whole),
        cmocka_unit_test(deciding_options_are_in_the_tables_order),
        cmocka_unit_test(repro_of_another_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) { return options_table_tests() + options_line_tests(); }
