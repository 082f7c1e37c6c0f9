/* The command in a row that failed its check. */
#include "tests/unit/unit_help.h"

#include "cmd/base/log.h"
#include "cmd/options/options_parse.h"
#include "cmd/record/record.h"
#include "cmd/run/row.h"

/* One forward problem of these options, and a row of it that failed: by `rule` in O, with this ratio to naive's
 * error. */
static char *repro_of(const char *command, const char *impl, const char *rule, double err_ratio)
{
    char *words[] = {"fabench", (char *)(uintptr_t)command, "--mode", "fwd", "--causal", "--dtype", "bf16", "--d",
                     "64"};
    const bool is_verify = strcmp(command, "verify") == 0;
    struct options options;
    struct plan plan;
    struct run_facts facts = {.run_id = "run"};
    struct record_row row;
    struct record_tensor tensors[2] = {{.name = "o", .used = 1.5, .err_ratio = err_ratio},
                                       {.name = "lse", .used = 0.5, .err_ratio = NAN, .rule = "lse"}};
    bool done = false;
    snprintf(tensors[0].rule, sizeof tensors[0].rule, "%s", rule);
    assert_int_equal(options_parse(sizeof words / sizeof *words, words, &options, &done), EXIT_OK);
    assert_int_equal(is_verify ? plan_make_verify(&options, ATTN_CUDA, &plan) : plan_make(&options, ATTN_CUDA, &plan),
                     EXIT_OK);
    row_begin(&row, &options, &facts, &plan.items[0], impl, impl);
    row_check(&row, tensors, 2, CHECK_FULL, NAN, NAN);
    assert_int_equal(row.check, CHECKED_FAIL);
    row_failure_repro(&row, &options, &plan.items[0]);
    char *repro = xstrdup(row.repro);
    record_row_free(&row);
    plan_free(&plan);
    options_free(&options);
    return repro;
}

static void assert_begins(char *text, const char *words)
{
    if (strncmp(text, words, strlen(words)))
        fail_msg("'%s' does not begin with '%s'", text, words);
    free(text);
}

static void a_row_that_was_compared_with_naive_brings_it_along(void **state)
{
    (void)state;
    assert_begins(repro_of("sweep", "mine", "naive", 3), "fabench --impl mine,naive --mode fwd --dtype bf16 ");
    assert_begins(repro_of("sweep", "mine", "rms", 3), "fabench --impl mine,naive --mode fwd ");
    assert_begins(repro_of("sweep", "mine", "rms", NAN), "fabench --impl mine --mode fwd "); /* it did not run */
    assert_begins(repro_of("sweep", "naive", "rms", NAN), "fabench --impl naive --mode fwd ");
    assert_begins(repro_of("verify", "mine", "naive", 3), "fabench --impl mine,naive --mode fwd ");
}

/* A sweep does not launch twice to compare the bits. */
static void different_bits_are_found_by_verify(void **state)
{
    (void)state;
    assert_begins(repro_of("verify", "mine", "repeat", NAN),
                  "fabench verify --mode fwd --causal --dtype bf16 --d 64 --impl mine");
    assert_begins(repro_of("verify", "mine", "repeat", 1),
                  "fabench verify --mode fwd --causal --dtype bf16 --d 64 --impl mine,naive");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_row_that_was_compared_with_naive_brings_it_along),
                                       cmocka_unit_test(different_bits_are_found_by_verify)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
