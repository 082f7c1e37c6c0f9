/* The line above the table, from headers of any content. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cmd/base/log.h"
#include "cmd/record/header.h"

/* `device`: what follows its name. */
static char *line_of(const char *device, const char *clocks)
{
    char *text = xasprintf("{\"device\": {\"name\": \"Board\"%s}, \"tool\": {\"version\": \"1.2.3\", \"commit\": "
                           "\"0123456789abcdef\"}, \"policy\": {\"clocks\": \"%s\"}}",
                           device, clocks);
    json_t *header = json_loads(text, 0, NULL);
    assert_non_null(header);
    char *line = header_line(header);
    json_decref(header);
    free(text);
    return line;
}

static void is(const char *device, const char *clocks, const char *expected)
{
    char *line = line_of(device, clocks);
    assert_string_equal(line, expected);
    free(line);
}

static void what_the_header_says(void **state)
{
    (void)state;
    is("", "unknown", "Board 0 GiB | fabench 1.2.3 (0123456789ab)");
    is(", \"memory_gb\": 150.3, \"power_limit_w\": 700.0, \"ecc\": true, \"driver\": \"580.65\", "
       "\"other_processes\": 0",
       "free",
       "Board 140 GiB, 700 W, ECC on, driver 580.65, clocks free, no other process | fabench 1.2.3 "
       "(0123456789ab)");
    is(", \"memory_gb\": 17.2, \"threads\": 8, \"ecc\": false, \"other_processes\": 1", "unknown",
       "Board 16 GiB, 8 threads, ECC off, 1 other process | fabench 1.2.3 (0123456789ab)");
    is(", \"other_processes\": 3", "unknown", "Board 0 GiB, 3 other processes | fabench 1.2.3 (0123456789ab)");
}

/* Values of any length stand there whole, and what follows them too. */
static void long_values(void **state)
{
    (void)state;
    char *line = line_of(", \"memory_gb\": 1e299, \"power_limit_w\": 1e200, "
                         "\"driver\": \"a driver's name that is longer than twenty characters\"",
                         "clocks of a description that is longer than twenty characters");
    assert_true(strlen(line) > 500);
    assert_non_null(strstr(line, ", driver a driver's name that is longer than twenty characters, clocks clocks of a "
                                 "description that is longer than twenty characters | fabench 1.2.3 (0123456789ab)"));
    free(line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_header_says),
        cmocka_unit_test(long_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
