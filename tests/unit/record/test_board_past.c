/* How a board compares with earlier records (cmd/record/board_past.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/record/board_past.h"
#include "cmd/record/record.h"

enum { CASES = 3 };
#define NEAR(value, wanted) assert_true(fabs((value) - (wanted)) < 1e-9)

static void fill(struct board_case *cases, double factor)
{
    memset(cases, 0, CASES * sizeof *cases);
    for (int n = 0; n < CASES; n++) {
        cases[n].key.q_len = n;
        cases[n].time_ms = (n + 1) * factor;
        cases[n].sm_clock_mhz = 1500 / factor;
        cases[n].temp_c = cases[n].power_capped_pct = cases[n].throttled_pct = NAN;
    }
}

static json_t *header_of(int board, const char *run_id, const char *commit, double power_limit_w)
{
    char pci[24];
    snprintf(pci, sizeof pci, "0000:%02x:00.0", board);
    return record_must(json_pack("{s:s, s:s, s:{s:s}, s:{s:s}, s:{s:s, s:s, s:s, s:f}, s:{s:s}}", "type", "header",
                                 "run_id", run_id, "tool", "commit", commit, "host", "name", "gpu01", "device", "name",
                                 "GPU", "pci_bus_id", pci, "uuid", pci, "power_limit_w", power_limit_w, "policy",
                                 "method", "5"));
}

static void add(struct board_records *r, int board, const char *commit, double factor)
{
    struct board_case cases[CASES];
    json_t *header = header_of(board, "then", commit, 700);
    fill(cases, factor);
    board_records_add(r, header, cases, CASES);
    json_decref(header);
}

/* A run of the board now, by commit "a". */
static struct board_past compare(const struct board_records *r, int board, const char *run_id, double factor,
                                 double least_pct)
{
    struct board_case cases[CASES];
    struct board_past past;
    json_t *header = header_of(board, run_id, "a", 600);
    fill(cases, factor);
    board_past_of(r, header, &(struct board_cases){"GPU", cases, CASES}, least_pct, &past);
    json_decref(header);
    return past;
}

static void own_runs(void **state)
{
    struct board_records *r = board_records_new();
    (void)state;
    add(r, 1, "a", 1);
    add(r, 2, "a", 1.25); /* another board: nothing to this one */
    struct board_past p = compare(r, 1, "now", 1.25, 1);
    assert_int_equal(p.of, PAST_BOARD);
    assert_int_equal(p.runs, 1);
    NEAR(p.distance_pct, -20);
    NEAR(p.repeatability_pct, board_assumed_pct);
    NEAR(p.limit_pct, 3.7 * board_assumed_pct * sqrt(2));
    NEAR(p.least_loss_pct, 5.65 * board_assumed_pct * sqrt(2));
    assert_string_equal(p.why, "clock 1200 MHz, before 1500 MHz, power limit 600 W, before 700 W");
    NEAR(compare(r, 1, "now", 1, 6).limit_pct, 6); /* --max-board-spread */
    /* Two runs each of two boards, 1 % and 2 % apart: variances of 0.5 and 2, of one degree of freedom each. */
    add(r, 1, "a", 1.01);
    add(r, 2, "a", 1.275);
    p = compare(r, 1, "now", 1.005, 1);
    assert_int_equal(p.runs, 2);
    NEAR(p.distance_pct, 0);
    const double runs[] = {100 * (1 / 1.01 - 1), 1, 100 * (1.25 / 1.275 - 1), 2};
    double squares = BOARD_ASSUMED_RUNS * board_assumed_pct * board_assumed_pct;
    for (int i = 0; i < 4; i++)
        squares += runs[i] * runs[i] / 4;
    NEAR(p.repeatability_pct, sqrt(squares / (BOARD_ASSUMED_RUNS + 2)));
    NEAR(p.margin, 1 + 2.25 * 2 / 16);
    NEAR(p.limit_pct, 3.7 * p.margin * p.repeatability_pct * sqrt(1.5));
    board_records_free(r);
}

/* Two of four cases are slow, or one. */
static void slow_cases(void **state)
{
    enum { FOUR = 4 };
    struct board_records *r = board_records_new();
    struct board_case cases[FOUR];
    struct board_past p;
    json_t *then = header_of(1, "then", "a", 700), *now = header_of(1, "now", "a", 700);
    (void)state;
    for (int run = 0; run < 3; run++) {
        memset(cases, 0, sizeof cases);
        for (int n = 0; n < FOUR; n++) {
            cases[n].key.q_len = n;
            cases[n].time_ms = run == 2 ? 1.03 : 1;
        }
        board_records_add(r, then, cases, FOUR);
    }
    cases[0].time_ms = cases[1].time_ms = 2;
    cases[2].time_ms = cases[3].time_ms = 1;
    board_past_of(r, now, &(struct board_cases){"GPU", cases, FOUR}, 1, &p);
    NEAR(p.cases_pct, 1.4826 * 1.5 * sqrt(2.0 / 3)); /* the middle of 1.5, 1.5 and 2.9 % */
    NEAR(p.cases_limit_pct, 8 * p.cases_pct * sqrt(4.0 / 3));
    NEAR(p.quarter_pct, -50);
    assert_non_null(strstr(p.slow_cases, "2 of 4 cases 50.0 to 50.0 % slower than its earlier runs: "));
    cases[1].time_ms = 1;
    board_past_of(r, now, &(struct board_cases){"GPU", cases, FOUR}, 1, &p);
    NEAR(p.quarter_pct, 0);
    assert_string_equal(p.slow_cases, "");
    cases[1].time_ms = 2;
    board_past_of(r, now, &(struct board_cases){"GPU", cases, FOUR}, 60, &p); /* --max-board-spread holds here too */
    NEAR(p.cases_limit_pct, 60);
    assert_string_equal(p.slow_cases, "");
    json_decref(then);
    json_decref(now);
    board_records_free(r);
}

static void what_does_not_fit(void **state)
{
    struct board_records *r = board_records_new();
    (void)state;
    struct board_past p = compare(r, 1, "now", 1, 1);
    assert_int_equal(p.of, PAST_NONE);
    assert_non_null(strstr(p.why, "there are 0 boards (it needs 16)"));
    add(r, 2, "a", 1);
    add(r, 1, "b", 1); /* another build */
    p = compare(r, 1, "now", 1, 1);
    assert_int_equal(p.of, PAST_NONE);
    assert_string_equal(p.why, "the records' tool.commit is \"b\", here \"a\"");
    add(r, 1, "a", 1);
    assert_int_equal(compare(r, 1, "then", 1, 1).of, PAST_NONE); /* the run itself */
    assert_int_equal(compare(r, 1, "now", 1, 1).of, PAST_BOARD);
    board_records_free(r);
}

static void fleet(void **state)
{
    struct board_records *r = board_records_new();
    (void)state;
    for (int b = 1; b <= 15; b++)
        add(r, b, "a", 1 + 0.001 * (b - 8));
    assert_int_equal(compare(r, 20, "now", 1, 1).of, PAST_NONE); /* a board without records, and too few others */
    add(r, 16, "a", 1);
    add(r, 16, "a", 1);
    struct board_past p = compare(r, 20, "now", 1.25, 1);
    assert_int_equal(p.of, PAST_FLEET);
    assert_int_equal(p.runs, 16);
    NEAR(p.distance_pct, -20);
    assert_true(p.spread_pct > 0.2 && p.spread_pct < 0.8);
    const double run = p.repeatability_pct * p.repeatability_pct / 17; /* 17 runs of 16 boards */
    NEAR(p.limit_pct, 9 * sqrt(p.spread_pct * p.spread_pct + run));
    NEAR(p.least_loss_pct, 10.95 * sqrt(p.spread_pct * p.spread_pct + run));
    NEAR(compare(r, 20, "now", 1, 1).distance_pct, 0);
    board_records_free(r);
}

static void repeatability(void **state)
{
    const double distances[] = {NAN, 0.5, -1, 2, -1};
    const int counts[] = {1, 1, 3}, broken[] = {2, 1, 2};
    double margin;
    (void)state;
    const double assumed = BOARD_ASSUMED_RUNS * board_assumed_pct * board_assumed_pct;
    /* Boards of one run say nothing. */
    NEAR(board_repeatability(distances, counts, 3, &margin), sqrt((assumed + 4.0 / 9 * 6) / (BOARD_ASSUMED_RUNS + 2)));
    NEAR(board_repeatability(distances, broken, 1, &margin), board_assumed_pct);
    NEAR(board_repeatability(NULL, NULL, 0, &margin), board_assumed_pct);
    NEAR(margin, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(own_runs), cmocka_unit_test(slow_cases),
                                       cmocka_unit_test(what_does_not_fit), cmocka_unit_test(fleet),
                                       cmocka_unit_test(repeatability)};
    return cmocka_run_group_tests_name("board_past", tests, NULL, NULL);
}
