/* The name in hints: the variable of a calling script, argv[0], or the plain name; quoted for a shell. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "cmd/base/program.h"

static void assert_command(const char *line, const char *want)
{
    char *got = program_command(line);
    assert_string_equal(got, want);
    free(got);
}

static void names(void **state)
{
    (void)state;
    unsetenv("FABENCH_CALLED_AS");
    assert_string_equal(program_name(), "fabench");
    program_set_name("build/release/fabench");
    assert_string_equal(program_name(), "build/release/fabench");
    program_set_name("/my tools/fabench");
    assert_string_equal(program_name(), "'/my tools/fabench'");
    setenv("FABENCH_CALLED_AS", "./scripts/run.sh", 1);
    assert_string_equal(program_name(), "./scripts/run.sh");
    setenv("FABENCH_CALLED_AS", "", 1);
    assert_string_equal(program_name(), "'/my tools/fabench'");
    program_set_name("");
    assert_string_equal(program_name(), "fabench");
    unsetenv("FABENCH_CALLED_AS");
}

static void commands(void **state)
{
    (void)state;
    program_set_name("./fabench");
    assert_command("fabench plot a.jsonl", "./fabench plot a.jsonl");
    assert_command("fabench", "./fabench");
    assert_command("fabench2 plot", "fabench2 plot");
    assert_command("git log fabench", "git log fabench");
    assert_command("", "");
    program_set_name(NULL);
    assert_command("fabench plot a.jsonl", "fabench plot a.jsonl");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names), cmocka_unit_test(commands)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
