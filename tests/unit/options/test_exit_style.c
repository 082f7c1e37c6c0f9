/* Exit codes in other words (cmd/options/exit_style.h), code by code, and the table of docs/fleet.md. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "cmd/options/exit_style.h"

static const struct {
    int code, nagios, slurm;
} wanted[] = {{0, 0, 0}, {1, 2, 1}, {2, 3, 0}, {3, 2, 1}, {4, 1, 0}, {5, 3, 0}, {6, 3, 0}, {7, 3, 0}, {130, 3, 0}};
enum { CODES = sizeof wanted / sizeof wanted[0] };

static void code_by_code(void **state)
{
    (void)state;
    for (int i = 0; i < CODES; i++) {
        assert_int_equal(exit_style_code(EXIT_STYLE_PLAIN, wanted[i].code), wanted[i].code);
        assert_int_equal(exit_style_code(EXIT_STYLE_NAGIOS, wanted[i].code), wanted[i].nagios);
        assert_int_equal(exit_style_code(EXIT_STYLE_SLURM, wanted[i].code), wanted[i].slurm);
    }
    assert_int_equal(exit_style_code(EXIT_STYLE_SLURM, 99), 0); /* a code that there is not drains nothing */
    assert_int_equal(exit_style_code(EXIT_STYLE_NAGIOS, 99), 3);
}

static void page_says_it(void **state)
{
    FILE *page = fopen("docs/fleet.md", "r");
    char line[400];
    int found = 0;
    (void)state;
    assert_non_null(page);
    while (fgets(line, sizeof line, page)) {
        int code, nagios, slurm;
        if (sscanf(line, "| %d | %*[^|]| %d | %d |", &code, &nagios, &slurm) != 3)
            continue;
        assert_true(found < CODES);
        assert_int_equal(code, wanted[found].code);
        assert_int_equal(nagios, wanted[found].nagios);
        assert_int_equal(slurm, wanted[found].slurm);
        found++;
    }
    fclose(page);
    assert_int_equal(found, CODES);
}

static void on_a_command_line(void **state)
{
    char *none[] = {"fabench", "verify"}, *one[] = {"fabench", "--exit-style", "slurm"},
         *last[] = {"fabench", "--exit-style=slurm", "--bad", "--exit-style=nagios"},
         *bad[] = {"fabench", "--exit-style", "sl"}, *ended[] = {"fabench", "--", "--exit-style=slurm"},
         *cut[] = {"fabench", "--exit-style"};
    (void)state;
    assert_int_equal(exit_style_of(2, none), EXIT_STYLE_PLAIN);
    assert_int_equal(exit_style_of(3, one), EXIT_STYLE_SLURM);
    assert_int_equal(exit_style_of(4, last), EXIT_STYLE_NAGIOS);
    assert_int_equal(exit_style_of(3, bad), EXIT_STYLE_PLAIN);
    assert_int_equal(exit_style_of(3, ended), EXIT_STYLE_PLAIN);
    assert_int_equal(exit_style_of(2, cut), EXIT_STYLE_PLAIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(code_by_code), cmocka_unit_test(page_says_it),
                                       cmocka_unit_test(on_a_command_line)};
    return cmocka_run_group_tests_name("exit_style", tests, NULL, NULL);
}
