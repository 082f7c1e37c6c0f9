/* Command lines written back: what was given comes back whole, whatever its length and whatever is in a path. */
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
#include "cmd/options/options_parse.h"

/* The options of a command line in a shell's words. */
static struct options parse(const char *line)
{
    struct name_list words = {0};
    struct options o;
    bool done = false;
    assert_true(text_split_shell(line, &words));
    assert_int_equal(options_parse(words.count, name_list_argv(&words), &o, &done), 0);
    assert_false(done);
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
    return problem_key_of(&p, ATTN_BWD, FILL_SHARP, 0, 77, L2_HOT);
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
    assert_int_equal(again.batch, 2);
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
    char folder[] = "/tmp/fabench-line-XXXXXX", library[4][300];
    struct text line = {0};
    assert_non_null(mkdtemp(folder));
    text_add(&line, "fabench");
    for (int i = 0; i < 4; i++) {
        snprintf(library[i], sizeof library[i], "%s/it's \"%d\" $HOME `x` %0200d.so", folder, i, 0);
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
    rmdir(folder);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repro_has_what_rows_depend_on),
        cmocka_unit_test(paths_come_back_whole),
        cmocka_unit_test(deciding_options_are_in_the_tables_order),
        cmocka_unit_test(repro_of_another_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
