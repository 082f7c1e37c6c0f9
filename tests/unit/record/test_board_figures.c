/* How boards compare (cmd/record/board_figures.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/record/board_figures.h"
#include "cmd/record/record.h"

enum { CASES = 3 };

/* The case `n` that took so long; it passed its check. */
static struct board_case case_of(int n, double time_ms, enum record_check check)
{
    struct record_row row;
    struct board_case result;
    double samples[] = {1, 1, 1, 1.1, 1.1, 1.1};
    memset(&row, 0, sizeof row);
    record_row_clear(&row);
    snprintf(row.impl, sizeof row.impl, "fused_cpu");
    row.key.q_len = row.key.kv_len = 128 << n;
    row.status = STATUS_OK;
    row.check = check;
    row.time_ms = time_ms;
    row.samples_ms = samples;
    row.samples = 6;
    board_case_of(&row, &result);
    return result;
}

static void fill(struct board_case *rows, double factor)
{
    for (int n = 0; n < CASES; n++)
        rows[n] = case_of(n, (n + 1) * factor, CHECKED_PASS);
}

#define NEAR(value, wanted) assert_true(fabs((value) - (wanted)) < 1e-9)

static void slow_board(void **state)
{
    struct board_case rows[4][CASES];
    struct board_cases boards[4];
    struct board_figures f[4];
    const double factors[] = {1, 1.25, 1.01, 0.99};
    (void)state;
    for (int b = 0; b < 4; b++) {
        fill(rows[b], factors[b]);
        boards[b] = (struct board_cases){"GPU", rows[b], CASES};
    }
    board_figures_of(boards, 4, f);
    NEAR(f[0].distance_pct, 100 * (1.01 / 1 - 1)); /* the median of 0.99, 1.01 and 1.25 */
    NEAR(f[1].distance_pct, 100 * (1 / 1.25 - 1));
    NEAR(f[3].distance_pct, 100 * (1.01 / 0.99 - 1));
    assert_int_equal(f[1].shared, CASES);
    /* Two boards: each is compared with the other. */
    board_figures_of(boards, 2, f);
    NEAR(f[0].distance_pct, 25);
    NEAR(f[1].distance_pct, -20);
}

/* Twelve boards of eight cases; two cases of the last one take twice the time. */
static void slow_cases(void **state)
{
    enum { MANY = 12, EIGHT = 8 };
    struct board_case rows[MANY][EIGHT];
    struct board_cases boards[MANY];
    struct board_figures f[MANY];
    double cases_pct[MANY];
    struct text line = {0};
    (void)state;
    for (int b = 0; b < MANY; b++) {
        for (int n = 0; n < EIGHT; n++)
            rows[b][n] = case_of(n, 1 + 0.01 * (b % 3), CHECKED_PASS);
        boards[b] = (struct board_cases){"GPU", rows[b], EIGHT};
    }
    rows[MANY - 1][1].time_ms = 2.02;
    board_figures_of(boards, MANY, f);
    NEAR(f[MANY - 1].quarter_pct, f[MANY - 1].distance_pct); /* one case is no two */
    rows[MANY - 1][6].time_ms = 4.04;
    board_figures_of(boards, MANY, f);
    NEAR(f[MANY - 1].quarter_pct, -50);
    NEAR(f[MANY - 1].distance_pct, 100 * (1.01 / 1.02 - 1));
    NEAR(f[0].quarter_pct, 1);
    NEAR(f[0].cases_pct, 1.4826);
    for (int b = 0; b < MANY; b++)
        cases_pct[b] = f[b].cases_pct;
    cases_pct[0] = NAN;
    const double limit_pct = board_cases_limit(cases_pct, MANY);
    NEAR(limit_pct, 1.5 * (5 + 64.0 / 11) * 1.4826 * 100 * (1 - 1.01 / 1.02));
    assert_true(isnan(board_cases_limit(cases_pct, BOARDS_FEWEST))); /* one has none */
    assert_true(f[MANY - 1].quarter_pct < -limit_pct && f[2].quarter_pct > -limit_pct);
    for (int b = 0; b < MANY; b++)
        cases_pct[b] = 0;
    NEAR(board_cases_limit(cases_pct, MANY), 5);
    board_say_slow_cases(boards, MANY, MANY - 1, limit_pct, "others", &line);
    assert_ptr_equal(strstr(text_string(&line), "2 of 8 cases 50.0 to 75.0 % slower than others: "),
                     text_string(&line));
    assert_null(strstr(text_string(&line), "  "));
    text_free(&line);
}

static void what_does_not_count(void **state)
{
    struct board_case rows[3][CASES];
    struct board_figures f[3];
    (void)state;
    fill(rows[0], 1);
    fill(rows[1], 1);
    fill(rows[2], 2);
    const struct board_cases boards[] = {{"GPU", rows[0], CASES}, {"GPU", rows[1], CASES}, {"GPU MIG", rows[2], CASES}};
    board_figures_of(boards, 3, f);
    assert_true(isnan(f[2].distance_pct)); /* of another model: nothing to compare with */
    assert_int_equal(f[2].shared, 0);
    NEAR(f[0].distance_pct, 0);
    rows[1][0] = case_of(0, 1e-3, CHECKED_FAIL); /* neither its time nor that of the other in this case */
    rows[1][1].key.q_len = 7;                    /* a case that the other has not */
    rows[0][2].noise_pct = 0.5;
    rows[0][2].temp_c = 70;
    rows[0][1].temp_c = 60;
    board_figures_of(boards, 2, f);
    assert_int_equal(f[0].shared, 1);
    assert_int_equal(f[1].shared, 1);
    assert_int_equal(f[1].failed, 1);
    NEAR(f[0].distance_pct, 0);
    NEAR(f[0].temp_c, 70);
    NEAR(f[0].noise_pct, 0.5);
    assert_true(isnan(f[1].temp_c));
    /* A board that has a case twice, and alone, is not compared with itself. */
    rows[0][1] = case_of(0, 1.5, CHECKED_PASS);
    board_figures_of(boards, 1, f);
    assert_int_equal(f[0].shared, 0);
    assert_int_equal(f[0].distinct, 2);
    NEAR(f[0].within_pct, 100 * 0.5 / 1.25); /* 1 and 1.5 ms */
    /* Beside another board its median counts, once. */
    rows[1][0] = case_of(0, 2.5, CHECKED_PASS);
    board_figures_of(boards, 2, f);
    NEAR(f[1].distance_pct, -25); /* -50 and, of another case, 0 */
    NEAR(f[0].distance_pct, 50);
    /* A straight line through 1, 1, 1, 1.1, 1.1, 1.1 rises by 9 / 70 over 5 steps. */
    NEAR(f[0].slope_pct, 100 * (0.45 / 17.5) * 5 / 1.05);
    board_figures_of(boards, 0, f);
}

static void deviations(void **state)
{
    double distances[10] = {0.1, -0.1, 0.2, -0.2, 0.3, -0.3, 0.05, -0.05, -9, NAN}, z[10];
    (void)state;
    assert_int_equal(board_deviations(distances, 10, z), 9);
    assert_true(isnan(z[9]));
    assert_true(z[8] < -board_deviation_limit(9));
    assert_true(z[5] > -3);
    assert_true(board_is_slow(distances[8], z[8], 9));
    assert_false(board_is_slow(distances[5], z[5], 9));
    assert_false(board_is_slow(distances[9], z[9], 9));
    assert_false(board_is_slow(-0.9, -100, 9)); /* too little to matter */
    board_deviations(distances, 7, z);          /* too few boards */
    assert_true(isnan(z[0]));
    for (int i = 0; i < 10; i++)
        distances[i] = 1;
    board_deviations(distances, 10, z); /* they do not differ */
    assert_true(isnan(z[0]));
    assert_true(board_deviation_limit(8) > board_deviation_limit(100));
}

static void explanation(void **state)
{
    const struct board_figures others = {.sm_clock_mhz = 1500, .temp_c = 60, .power_capped_pct = 5},
                               slow = {.sm_clock_mhz = 1400, .temp_c = 69, .throttled_pct = 31, .power_capped_pct = 16},
                               unknown = {.sm_clock_mhz = NAN, .temp_c = NAN, .power_capped_pct = NAN};
    const struct board_figures *const all[] = {&others, &slow, &unknown};
    json_t *header =
        json_pack("{s:{s:i, s:i, s:i}}", "device", "pcie_width", 8, "pcie_width_max", 16, "ecc_uncorrected", 2);
    const struct board_health known = board_health_of(header), none = board_health_of(NULL);
    struct text line = {0};
    (void)state;
    board_explain(all, 3, 1, &known, "others", &line);
    assert_string_equal(text_string(&line),
                        "thermal or brake 31 % of the time, power cap 16 % of the time, others 5 %, clock 1400 MHz, "
                        "others 1500 MHz, 69 C, others 60 C, 2 uncorrected ECC errors, PCIe x8 of x16");
    text_clear(&line);
    board_explain(all, 3, 0, &none, "others", &line);
    assert_string_equal(text_string(&line), "not in its telemetry");
    text_clear(&line);
    board_explain(all, 3, 2, &none, "others", &line);
    assert_string_equal(text_string(&line), "not in its telemetry");
    text_free(&line);
    json_decref(header);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(slow_board), cmocka_unit_test(slow_cases),
                                       cmocka_unit_test(what_does_not_count), cmocka_unit_test(deviations),
                                       cmocka_unit_test(explanation)};
    return cmocka_run_group_tests_name("board_figures", tests, NULL, NULL);
}
