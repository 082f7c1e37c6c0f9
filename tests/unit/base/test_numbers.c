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
#include "cmd/base/stats.h"

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
                 {"1m", 1048576},
                 {"8796093022207m", INT64_C(8796093022207) * 1048576},
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
                                        "m",
                                        "1M",
                                        "1km",
                                        "8796093022208m",
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
                 {"512k:1m:*2", "524288,1048576,"},
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

static int numbers_tests(void)
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

/* Order statistics: against hand-made samples, against exact integer arithmetic, and by simulation. */

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * fabs(want) + 1e-300))
        fail_msg("got %.17g want %.17g", got, want);
}

static void one_sample(void **state)
{
    (void)state;
    const double sample = 3.5;
    const struct stats stats = stats_of(&sample, 1);
    assert_int_equal(stats.count, 1);
    assert_near(stats.median, 3.5);
    assert_near(stats.p25, 3.5);
    assert_near(stats.p75, 3.5);
    assert_near(stats.min, 3.5);
    assert_near(stats.max, 3.5);
    assert_near(stats.ci_lo, 3.5);
    assert_near(stats.ci_hi, 3.5);
    assert_true(isinf(stats_noise_half_width_pct(&stats)));
}

static void samples_stay_as_they_are(void **state)
{
    (void)state;
    const double samples[] = {5, 1, 4, 2, 3}, before[] = {5, 1, 4, 2, 3};
    const struct stats stats = stats_of(samples, 5);
    assert_memory_equal(samples, before, sizeof samples);
    assert_near(stats.median, 3);
    assert_near(stats.p25, 2);
    assert_near(stats.p75, 4);
    assert_near(stats.min, 1);
    assert_near(stats.max, 5);
    /* Five samples have no 95 % interval: the range is used instead, and the noise is unknown. */
    assert_near(stats.ci_lo, 1);
    assert_near(stats.ci_hi, 5);
    assert_true(isinf(stats_noise_half_width_pct(&stats)));
}

static void even_counts_and_quartiles_interpolate(void **state)
{
    (void)state;
    const double four[] = {10, 40, 20, 30};
    const struct stats stats = stats_of(four, 4);
    assert_near(stats.median, 25);
    assert_near(stats.p25, 17.5);
    assert_near(stats.p75, 32.5);
    const double outlier[] = {1, 1, 1, 1, 1, 1, 1e9};
    assert_near(stats_of(outlier, 7).median, 1);
    assert_near(stats_of(outlier, 7).p75, 1);
    assert_near(stats_of(outlier, 7).max, 1e9);
}

static void interval_of_thirty(void **state)
{
    (void)state;
    double samples[30];
    for (int i = 0; i < 30; i++)
        samples[i] = 100 + (i * 7) % 30; /* 100..129 shuffled */
    const struct stats stats = stats_of(samples, 30);
    assert_near(stats.median, 114.5);
    assert_near(stats.ci_lo, 109); /* 10th and 21st */
    assert_near(stats.ci_hi, 120);
    assert_near(stats_noise_half_width_pct(&stats), 100 * 5.5 / 114.5);
}

static void equal_samples_have_no_noise(void **state)
{
    (void)state;
    const double ones[6] = {1, 1, 1, 1, 1, 1}, zeros[6] = {0}, signs[6] = {-1, -1, 0, 0, 1, 1};
    struct stats stats = stats_of(ones, 6);
    assert_near(stats_noise_half_width_pct(&stats), 0);
    stats = stats_of(zeros, 6);
    assert_near(stats_noise_half_width_pct(&stats), 0);
    stats = stats_of(signs, 6);
    assert_true(isinf(stats_noise_half_width_pct(&stats)));
}

/* The definition in integers: 40 * sum of C(n, k) for k < l is at most 2^n, for no larger l. */
static void ranks_are_exact_up_to_58(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 58; n++) {
        unsigned __int128 sum = 0, choose = 1;
        int64_t want = 0, lower = -1, upper = -1;
        for (int64_t k = 0; k <= n; k++) {
            sum += choose;
            if (40 * sum > (unsigned __int128)1 << n)
                break;
            want = k + 1;
            choose = choose * (unsigned __int128)(n - k) / (unsigned __int128)(k + 1);
        }
        stats_median_ci_ranks(n, &lower, &upper);
        assert_int_equal(lower, want);
        assert_int_equal(upper, want ? n + 1 - want : 0);
    }
}

/* Computed once with unbounded integers. */
static void ranks_are_exact_for_many_samples(void **state)
{
    (void)state;
    static const struct {
        int64_t n, lower;
    } cases[] = {{0, 0},         {5, 0},          {6, 1},           {100, 40},        {101, 41},
                 {250, 110},     {999, 469},      {1000, 469},      {5000, 2431},     {10000, 4902},
                 {30000, 14830}, {100000, 49690}, {300000, 149463}, {1000000, 499020}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t lower, upper;
        stats_median_ci_ranks(cases[i].n, &lower, &upper);
        assert_int_equal(lower, cases[i].lower);
        assert_int_equal(upper, cases[i].lower ? cases[i].n + 1 - cases[i].lower : 0);
    }
}

/* The interval must hold the true median in at least 95 % of trials, of a skewed distribution too. */
static void interval_covers_the_median(void **state)
{
    (void)state;
    enum { TRIALS = 20000, COUNT = 31 };
    uint64_t random = 12345;
    int covered = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        double samples[COUNT];
        for (int i = 0; i < COUNT; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            samples[i] = -log(((double)(random >> 11) + 0.5) / 9007199254740992.0); /* exponential, median ln 2 */
        }
        const struct stats stats = stats_of(samples, COUNT);
        covered += stats.ci_lo <= log(2.0) && log(2.0) <= stats.ci_hi;
    }
    /* Ranks 10 and 22 of 31 cover 0.9706; three standard deviations are 0.0036. */
    assert_in_range(covered, (int)(0.966 * TRIALS), (int)(0.9745 * TRIALS));
}

static void batches_of_rounds(void **state)
{
    (void)state;
    double a[40], b[40];
    for (int i = 0; i < 40; i++) {
        b[i] = 1 + 0.01 * i; /* drift that both have */
        a[i] = 3 * b[i];
    }
    assert_true(stats_paired_half_width_pct(a, b, 40) < 1e-10);
    assert_true(isinf(stats_paired_half_width_pct(a, b, 19)));
    for (int i = 0; i < 40; i++)
        a[i] = b[i] * exp(0.01 * (i / 4)); /* batch means 0, 0.01 .. 0.09: s = 0.0302765 */
    assert_near(stats_paired_half_width_pct(a, b, 40),
                100 * stats_t_quantile(0.975, 9) * 0.01 * sqrt(82.5 / 9) / sqrt(10));
    for (int i = 0; i < 40; i++)
        a[i] = b[i] * (i % 2 ? 1.1 : 1 / 1.1); /* averages out within every batch */
    assert_true(stats_paired_half_width_pct(a, b, 40) < 1e-10);
}

static void ratios_are_paired(void **state)
{
    (void)state;
    /* Both drift by a factor of 4; their ratio is 2 in every round but one. */
    const double slow[] = {2, 4, 6, 8, 100}, fast[] = {1, 2, 3, 4, 1};
    assert_near(stats_paired_ratio(slow, fast, 5), 2);
    assert_near(stats_paired_ratio(fast, slow, 5), 0.5);
    assert_near(stats_paired_ratio(slow, fast, 1), 2);
    assert_true(isnan(stats_paired_ratio(slow, fast, 0)));
    const double a[] = {1, 4}, b[] = {1, 1};
    assert_near(stats_paired_ratio(a, b, 2), 2); /* geometric, none dropped below 5 rounds */
    /* Two speeds, 1 and 1.1, almost equally often: one more round at either speed must not move the mean from one to
     * the other. */
    double humps[200], ones[200];
    for (int more_slow = 0; more_slow < 2; more_slow++) {
        for (int i = 0; i < 200; i++) {
            humps[i] = i < 99 + 2 * more_slow ? 1.1 : 1;
            ones[i] = 1;
        }
        assert_in_range(1e6 * stats_paired_ratio(humps, ones, 200), 1048000, 1050000);
    }
    humps[199] = 1000; /* nor may one sample that was interrupted */
    assert_in_range(1e6 * stats_paired_ratio(humps, ones, 200), 1048000, 1051000);
}

static void geomeans(void **state)
{
    (void)state;
    const double values[] = {1, 2, 4}, huge[] = {1e300, 1e300, 1e-300, 1e-300}, negative[] = {1, -1};
    assert_near(stats_geomean(values, 3), 2);
    assert_true(fabs(stats_geomean(huge, 4) - 1) < 1e-12);
    assert_true(isnan(stats_geomean(values, 0)));
    assert_true(isnan(stats_geomean(negative, 2)));
}

static void medians(void **state)
{
    (void)state;
    const double values[] = {3, 1, 2, 10};
    assert_near(stats_median(values, 4), 2.5);
    assert_near(stats_median(values, 3), 2);
    assert_true(isnan(stats_median(values, 0)));
}

static void a_million_samples(void **state)
{
    (void)state;
    const int64_t count = 1000000;
    double *samples = malloc((size_t)count * sizeof *samples);
    for (int64_t i = 0; i < count; i++)
        samples[i] = (double)(i * 7919 % count);
    const struct stats stats = stats_of(samples, count);
    assert_near(stats.median, 499999.5);
    assert_near(stats.ci_lo, 499019);
    assert_near(stats.ci_hi, 500980);
    free(samples);
}

/* Tables of Student's t. */
static void t_quantiles(void **state)
{
    (void)state;
    static const struct {
        double probability;
        int freedom;
        double quantile;
    } table[] = {{0.95, 1, 6.313752},   {0.99, 1, 31.820516}, {0.95, 4, 2.131847},  {0.99, 4, 3.746947},
                 {0.995, 5, 4.032143},  {0.95, 11, 1.795885}, {0.99, 11, 2.718079}, {0.9995, 10, 4.586894},
                 {0.975, 30, 2.042272}, {0.5, 7, 0}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        assert_true(fabs(stats_t_quantile(table[i].probability, table[i].freedom) - table[i].quantile) < 1e-5);
}

static int stats_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_sample),
        cmocka_unit_test(samples_stay_as_they_are),
        cmocka_unit_test(even_counts_and_quartiles_interpolate),
        cmocka_unit_test(interval_of_thirty),
        cmocka_unit_test(equal_samples_have_no_noise),
        cmocka_unit_test(ranks_are_exact_up_to_58),
        cmocka_unit_test(ranks_are_exact_for_many_samples),
        cmocka_unit_test(interval_covers_the_median),
        cmocka_unit_test(ratios_are_paired),
        cmocka_unit_test(batches_of_rounds),
        cmocka_unit_test(geomeans),
        cmocka_unit_test(medians),
        cmocka_unit_test(a_million_samples),
        cmocka_unit_test(t_quantiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) { return numbers_tests() + stats_tests(); }
