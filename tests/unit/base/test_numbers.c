/* Strict parsing and printing of numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/numbers.h"

static void counts_that_are_legal(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {{"0", 0},
                 {"1", 1},
                 {"16384", 16384},
                 {"16k", 16384},
                 {"0k", 0},
                 {"007", 7},
                 {"9223372036854775807", INT64_MAX},
                 {"9007199254740991k", INT64_C(9007199254740991) * 1024}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t value = -1;
        if (!number_parse_count(cases[i].text, &value) || value != cases[i].value)
            fail_msg("%s: got %" PRId64, cases[i].text, value);
    }
}

static void counts_that_are_not(void **state)
{
    (void)state;
    static const char *const cases[] = {"",
                                        "k",
                                        "1kk",
                                        "1K",
                                        "-5",
                                        "+5",
                                        " 5",
                                        "5 ",
                                        "5x",
                                        "1.5",
                                        "1.5k",
                                        "0x10",
                                        "1e3",
                                        "9223372036854775808",
                                        "1k1",
                                        "\n",
                                        "1,2",
                                        "--1",
                                        "k1",
                                        "٣",
                                        "9007199254740992k",
                                        "99999999999999999999999",
                                        "18446744073709551617"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t value = 77;
        if (number_parse_count(cases[i], &value))
            fail_msg("\"%s\" was taken as %" PRId64, cases[i], value);
        assert_int_equal(value, 77);
    }
}

static void reals(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
    } good[] = {{"0", 0},       {"0.5", 0.5},  {"-2.25", -2.25}, {".5", 0.5},     {"5.", 5},
                {"1e-2", 0.01}, {"+1E3", 1e3}, {"0.0", 0},       {"0e999999", 0}, {"4.9e-324", 4.9e-324}};
    static const char *const bad[] = {"",      ".",      "-",        "e5",   "1e",   "1e+", "nan", "inf",
                                      "-inf",  "NaN",    "infinity", "0x10", "1 ",   " 1",  "1,5", "1.5.2",
                                      "1e999", "-1e999", "1e-999",   "1f",   "1e5x", "--1"};
    double value = 0;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (!number_parse_real(good[i].text, &value) || value != good[i].value)
            fail_msg("%s: got %g", good[i].text, value);
    value = 77;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (number_parse_real(bad[i], &value))
            fail_msg("\"%s\" was taken as %g", bad[i], value);
        assert_true(value == 77);
    }
}

static void percents(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "%", "-1", "-0.5%", "0.5%%", "0.5 %", "nan", "inf%", "0.5x", "x%", "1%2"};
    double value = 77;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (number_parse_percent(bad[i], &value))
            fail_msg("\"%s\" was taken as %g", bad[i], value);
        assert_true(value == 77);
    }
    assert_true(number_parse_percent("0.5%", &value) && value == 0.5);
    assert_true(number_parse_percent("0.25", &value) && value == 0.25);
    assert_true(number_parse_percent("0%", &value) && value == 0);
    assert_true(number_parse_percent("120%", &value) && value == 120);
}

/* The list as "1,2,3," or "! why". */
static const char *list_text(const char *text)
{
    static char result[400];
    int64_t *values = NULL;
    int count = 0;
    char why[160] = "";
    result[0] = 0;
    if (!number_parse_list(text, &values, &count, why, sizeof why)) {
        assert_int_equal(count, 0);
        assert_true(strlen(why) > 10);
        snprintf(result, sizeof result, "! %s", why);
    }
    for (int i = 0; i < count; i++)
        snprintf(result + strlen(result), sizeof result - strlen(result), "%" PRId64 ",", values[i]);
    free(values);
    return result;
}

static void lists_and_ranges(void **state)
{
    (void)state;
    static const struct {
        const char *text, *values;
    } cases[] = {{"64,128", "64,128,"},
                 {"64", "64,"},
                 {"1k:16k:*2", "1024,2048,4096,8192,16384,"},
                 {"1k:15k:*2", "1024,2048,4096,8192,"},
                 {"512:2k:+512", "512,1024,1536,2048,"},
                 {"5:5:*2", "5,"},
                 {"5:5:+1", "5,"},
                 {"0:2:+1", "0,1,2,"},
                 {"1:100:*10", "1,10,100,"},
                 {"64,1k:4k:*2,1:3:+1", "64,1024,2048,4096,1,2,3,"},
                 {"64,64,64", "64,"},
                 {"1k,512:2k:+512", "1024,512,1536,2048,"},
                 {"4,2,3", "4,2,3,"},
                 {"4611686018427387904:9223372036854775807:*2", "4611686018427387904,"},
                 {"9223372036854775806:9223372036854775807:+1", "9223372036854775806,9223372036854775807,"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(list_text(cases[i].text), cases[i].values);
}

static void lists_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {{"", "the list is empty"},
                 {",", "an item of the list is empty"},
                 {"1,", "an item of the list is empty"},
                 {"1,,2", "an item of the list is empty"},
                 {"1kk", "\"1kk\" is not a whole number"},
                 {"64,1kk", "\"1kk\" is not a whole number"},
                 {"-5", "not a whole number"},
                 {"1:2", "not a range"},
                 {"1:2:3", "not a range"},
                 {"1:2:*", "not a range"},
                 {"1:2:", "not a range"},
                 {":", "not a range"},
                 {"1::*2", "not a range"},
                 {":2:*2", "not a range"},
                 {"1:2:/2", "not a range"},
                 {"1:2:*2:*2", "not a range"},
                 {"1:2:*-2", "not a range"},
                 {"4:2:*2", "ends before it begins"},
                 {"1:9:*1", "never grows"},
                 {"1:9:*0", "never grows"},
                 {"0:9:*2", "never grows"},
                 {"1:9:+0", "never grows"},
                 {"1:5000:+1", "at most 4096"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *text = list_text(cases[i].text);
        if (text[0] != '!' || !strstr(text, cases[i].part))
            fail_msg("%s: %s", cases[i].text, text);
    }
}

static void list_appends_and_keeps_what_was_there(void **state)
{
    (void)state;
    int64_t *values = malloc(2 * sizeof *values);
    int count = 2;
    char why[100];
    values[0] = 7;
    values[1] = 8;
    assert_true(number_parse_list("9,8", &values, &count, why, sizeof why));
    assert_int_equal(count, 3);
    assert_int_equal(values[2], 9);
    assert_false(number_parse_list("10:2000:+1,x", &values, &count, why, sizeof why));
    assert_int_equal(count, 3);
    assert_int_equal(values[0], 7);
    assert_true(number_parse_list("1:4093:+1", &values, &count, why, sizeof why));
    assert_int_equal(count, 4093); /* 7, 8 and 9 are kept once */
    assert_true(number_parse_list("5000,5001,5002", &values, &count, why, sizeof why));
    assert_false(number_parse_list("5003", &values, &count, why, sizeof why));
    assert_int_equal(count, 4096);
    free(values);
}

static void products(void **state)
{
    (void)state;
    int64_t product;
    assert_true(number_multiply(1 << 20, 1 << 20, &product));
    assert_int_equal(product, INT64_C(1) << 40);
    assert_true(number_multiply(INT64_MAX, 1, &product) && product == INT64_MAX);
    assert_true(number_multiply(0, INT64_MAX, &product) && product == 0);
    assert_false(number_multiply(INT64_C(1) << 32, INT64_C(1) << 31, &product));
    assert_false(number_multiply(INT64_MAX, 2, &product));
    assert_false(number_multiply(INT64_MIN, -1, &product));
}

static void printed_counts_read_back(void **state)
{
    (void)state;
    static const struct {
        int64_t value;
        const char *text;
    } cases[] = {{0, "0"},         {1000, "1000"},   {1023, "1023"},
                 {1024, "1k"},     {16384, "16k"},   {1048576, "1024k"},
                 {16385, "16385"}, {-2048, "-2048"}, {INT64_MAX, "9223372036854775807"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char buffer[32];
        int64_t value;
        assert_string_equal(number_print_count(cases[i].value, buffer, sizeof buffer), cases[i].text);
        if (cases[i].value >= 0)
            assert_true(number_parse_count(buffer, &value) && value == cases[i].value);
    }
}

static void short_numbers(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0.4683, "0.468"},
                 {30.012, "30.01"},
                 {1.957, "1.957"},
                 {367.0, "367.0"},
                 {0, "0"},
                 {1234.56, "1235"},
                 {12345.6, "12346"},
                 {9.9996, "10.00"},
                 {0.99951, "1.00"},
                 {0.04683, "0.0468"},
                 {0.0004683, "0.000468"},
                 {0.00004683, "4.68e-05"},
                 {-30.012, "-30.01"},
                 {-0.4683, "-0.468"},
                 {999.96, "1000"},
                 {99999999.0, "1.00e+08"},
                 {NAN, "-"},
                 {INFINITY, "inf"},
                 {-INFINITY, "-inf"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char buffer[32];
        assert_string_equal(number_print_short(cases[i].value, buffer, sizeof buffer), cases[i].text);
    }
}

static void byte_sizes(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1.00 KiB"},
                 {1536, "1.50 KiB"},
                 {2147483648.0, "2.00 GiB"},
                 {1048575.9, "1.00 MiB"},
                 {1.5e15, "1.33 PiB"},
                 {NAN, "-"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char buffer[32];
        assert_string_equal(number_print_bytes(cases[i].value, buffer, sizeof buffer), cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_that_are_legal),
        cmocka_unit_test(counts_that_are_not),
        cmocka_unit_test(reals),
        cmocka_unit_test(percents),
        cmocka_unit_test(lists_and_ranges),
        cmocka_unit_test(lists_that_are_refused),
        cmocka_unit_test(list_appends_and_keeps_what_was_there),
        cmocka_unit_test(products),
        cmocka_unit_test(printed_counts_read_back),
        cmocka_unit_test(short_numbers),
        cmocka_unit_test(byte_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
