/* Large records: ten times the rows may cost at most twenty times the comparisons of problems, in gate and report. They
 * are counted: the linker puts the function below in the place of problem_key_compare (tests/CMakeLists.txt). */
#include "tests/unit/unit_help.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/gate/decide.h"
#include "cmd/gate/gate_cases.h"
#include "cmd/options/options.h"
#include "cmd/record/board_figures.h"
#include "cmd/record/record_figures.h"
#include "cmd/report/report_data.h"

static long long compared;

int __real_problem_key_compare(const struct problem_key *, const struct problem_key *, bool);
int __wrap_problem_key_compare(const struct problem_key *a, const struct problem_key *b, bool only_compared);
int __wrap_problem_key_compare(const struct problem_key *a, const struct problem_key *b, bool only_compared)
{
    compared++;
    return __real_problem_key_compare(a, b, only_compared);
}

/* A record of `count` rows, each of another softcap, or all of one problem. */
static const char *a_record(int count, bool is_one)
{
    struct help_row *rows = calloc((size_t)count, sizeof *rows);
    char(*more)[40] = calloc((size_t)count, sizeof *more);
    assert_true(rows && more);
    for (int i = 0; i < count; i++) {
        snprintf(more[i], sizeof more[i], ",\"softcap\":%g", is_one ? 1 : 1 + 0.001 * i);
        rows[i] = (struct help_row){.share = 50, .more = more[i]};
    }
    const char *path = help_record("large.jsonl", rows, count);
    free(more);
    free(rows);
    return path;
}

static long long of_gate(int count)
{
    struct gate_side was = {.count = 1}, is = {.count = 1};
    struct gate_cases cases;
    struct attn_message why;
    const char *path = a_record(count, false);
    assert_true(record_read(path, &was.files[0], &why) && record_read(path, &is.files[0], &why));
    compared = 0;
    gate_side_index(&was);
    gate_side_index(&is);
    gate_cases_make(&cases, &decide_defaults, &was, &is);
    assert_int_equal(cases.count, count);
    assert_int_equal(cases.family.count, count);
    gate_cases_free(&cases);
    gate_side_free(&was);
    gate_side_free(&is);
    return compared;
}

static long long of_report(int count, bool is_one)
{
    char path[200];
    snprintf(path, sizeof path, "%s", a_record(count, is_one));
    char *words[] = {"fabench", "report", path};
    struct options o;
    struct report_input input;
    struct report report;
    bool done;
    assert_int_equal(options_parse(3, words, &o, &done), 0);
    assert_int_equal(report_input_read(&o, &input), 0);
    compared = 0;
    report_make(&report, &input);
    assert_int_equal(report.point_count, is_one ? 1 : count);
    report_free(&report);
    report_input_free(&input);
    options_free(&o);
    return compared;
}

static long long of_points(int count) { return of_report(count, false); }

/* One problem, measured again and again into one file. */
static long long of_repeats(int count) { return of_report(count, true); }

/* Records of 100 boards. */
static long long of_boards(int count)
{
    struct board_case *cases = calloc((size_t)count, sizeof *cases);
    struct board_cases boards[100];
    struct board_figures figures[100];
    assert_non_null(cases);
    for (int i = 0; i < count; i++) {
        cases[i].time_ms = 1 + 0.001 * (i % 7);
        cases[i].key.q_len = i % 6;
    }
    for (int b = 0; b < 100; b++)
        boards[b] = (struct board_cases){"GPU", &cases[b * (count / 100)], count / 100};
    compared = 0;
    board_figures_of(boards, 100, figures);
    free(cases);
    return compared;
}

static void ten_times_the_rows(void **state)
{
    (void)state;
    long long (*const works[])(int) = {of_gate, of_points, of_repeats, of_boards};
    const char *const names[] = {"gate", "report", "report of one problem", "boards of a fleet"};
    for (int i = 0; i < 4; i++) {
        const int rows = i < 3 ? 200 : 600;
        const long long few = works[i](rows), many = works[i](10 * rows);
        print_message("    %s: %lld and %lld comparisons\n", names[i], few, many);
        assert_true(few > 200);
        assert_true(many <= 20 * few);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ten_times_the_rows)};
    return cmocka_run_group_tests(tests, help_make_folder, help_remove_folder);
}
