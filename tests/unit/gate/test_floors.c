/* Floors of a gate (cmd/gate/floors.h): the file of minima, which rows a line selects, which minima a row misses. */
#include "tests/unit/unit_help.h"

#include "cmd/gate/floors.h"
#include "cmd/record/record_file.h"

static struct attn_message why;

static struct floors *read_text(const char *text) { return floors_read(help_write("floors.csv", text), &why); }

/* A record of these rows, in memory. */
static struct record_file file_of(const struct help_row *rows, int count)
{
    struct record_file file;
    if (!record_read(help_record("rows.jsonl", rows, count), &file, &why))
        fail_msg("%s", why.text);
    return file;
}

static void files_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } refused[] = {{"", ": has no floors"},
                   {"# only a comment\n\nmode,min_tflops\n", ": has no floors"},
                   {"mode,q_len\nfwd,1\n", ", line 1: must name columns, one of them a minimum as min_tflops"},
                   {"mode,speed\nfwd,1\n", ", line 1: 'speed' is no column of the records"},
                   {"mode,min_speed\nfwd,1\n", ", line 1: 'min_speed' is no min_ and a measured column of the records"},
                   {"mode,min_impl\nfwd,1\n", ", line 1: 'min_impl' is no min_ and a measured column of the records"},
                   {"mode,min_tflops\n\nfwd\n", ", line 3: has 1 cells, its first line 2"},
                   {"mode,min_tflops\nfwd,1,2\n", ", line 2: has 3 cells, its first line 2"},
                   {"mode,min_tflops\nfwd,fast\n", ", line 2: 'fast' is no number"},
                   {"q_len,min_tflops\n1.5,1\n", ", line 2: '1.5' is no number"},
                   {"mode,min_tflops\nfwd,\n", ", line 2: has no minimum"},
                   {"mode,min_tflops\n\"fwd,1\n", ", line 2: a quote stays open"}};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char wanted[200];
        why.text[0] = 0;
        assert_null(read_text(refused[i].text));
        snprintf(wanted, sizeof wanted, "%s%s", help_path("floors.csv"), refused[i].words);
        assert_string_equal(why.text, wanted);
    }
    assert_null(floors_read("/absent/floors.csv", &why));
    assert_string_equal(why.text, "/absent/floors.csv: No such file or directory");
}

/* Words that no record has would choose no row, or, in a file of several lines, hide a floor. */
static void words_that_are_none(void **state)
{
    (void)state;
    static const char *const texts[][2] = {{"mode,min_tflops\nboth,1\n", "'both' is no mode"},
                                           {"dtype,min_tflops\nfp8,1\n", "'fp8' is no dtype"},
                                           {"status,min_tflops\nOK,1\n", "'OK' is no status"},
                                           {"check,min_tflops\nok,1\n", "'ok' is no check"}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_null(read_text(texts[i][0]));
        assert_has(why.text, texts[i][1]);
    }
}

static void met_and_missed(void **state)
{
    char missed[200] = "";
    (void)state;
    const struct help_row rows[] = {{.share = 50}, {.share = 40, .n = 256}, {.n = 256}, {.n = 512, .share = 1}};
    struct record_file file = file_of(rows, 4);
    struct floors *f = read_text("# least values\n mode , q_len,impl,min_pct_of_gemm,min_time_ms\n\n"
                                 "fwd,128,fused,50,\nfwd,256,fused_fake,40.5,0.5\r\n");
    assert_non_null(f);
    assert_int_equal(floors_check(f, &file.rows[3], missed, sizeof missed),
                     FLOORS_NO_MATCH); /* no line of its length */
    assert_false(floors_are_matched(f, &why));
    assert_has(why.text, "floors.csv, line 4: no row of the current record matches it");
    assert_int_equal(floors_check(f, &file.rows[0], missed, sizeof missed), FLOORS_MET); /* equal to the minimum */
    assert_false(floors_are_matched(f, &why));
    assert_has(why.text, "line 5: no row");
    assert_int_equal(floors_check(f, &file.rows[1], missed, sizeof missed), FLOORS_MISSED);
    assert_string_equal(missed, "pct_of_gemm 40 is below 40.5 (line 5)");
    assert_true(floors_are_matched(f, &why));
    assert_int_equal(floors_check(f, &file.rows[2], missed, sizeof missed), FLOORS_MISSED); /* not measured */
    assert_string_equal(missed, "pct_of_gemm was not measured, minimum 40.5 (line 5)");
    floors_free(f);
    record_file_free(&file);
}

/* `fused` selects all fused implementations, an empty cell selects any row, any other name selects only itself. */
static void rows_that_a_line_selects(void **state)
{
    (void)state;
    const struct help_row rows[] = {{0}, {.impl = "naive"}, {.impl = "flash"}, {.mode = "bwd"}};
    static const struct {
        const char *text;
        bool selected[4];
    } cases[] = {{"impl,min_time_ms\nfused,0.5\n", {true, false, false, true}},
                 {"impl,min_time_ms\n\"naive\",0.5\n", {false, true, false, false}},
                 {"impl,mode,min_time_ms\n,bwd,0.5\n", {false, false, false, true}},
                 {"scale,mode,min_time_ms\n,,0.5\n", {true, true, true, true}}};
    struct record_file file = file_of(rows, 4);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct floors *f = read_text(cases[c].text);
        assert_non_null(f);
        for (int i = 0; i < 4; i++) {
            char missed[200];
            assert_int_equal(floors_check(f, &file.rows[i], missed, sizeof missed),
                             cases[c].selected[i] ? FLOORS_MET : FLOORS_NO_MATCH);
        }
        floors_free(f);
    }
    record_file_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(files_that_are_refused), cmocka_unit_test(words_that_are_none),
                                       cmocka_unit_test(met_and_missed), cmocka_unit_test(rows_that_a_line_selects)};
    return cmocka_run_group_tests(tests, help_make_folder, help_remove_folder);
}
