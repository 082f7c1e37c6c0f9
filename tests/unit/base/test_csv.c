/* Files in formats of others: CSV, and JUnit. */
#include "tests/unit/unit_help.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/base/csv.h"
#include "cmd/base/junit.h"
#include "cmd/base/log.h"

/* ---- csv ---- */

/* CSV: what is read, what is refused with its line, and that what is written is read back. */

static char path[] = "/tmp/fabench-csv-XXXXXX";
static const struct csv_format plain = {.bytes_max = 1000};
static const struct csv_format with_comments = {.comment = '#', .trims = true, .bytes_max = 1000};

static int begin(void **state)
{
    (void)state;
    const int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int end(void **state)
{
    (void)state;
    return unlink(path);
}

static void write_file(const char *bytes, size_t count)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, count, out), count);
    assert_int_equal(fclose(out), 0);
}

/* The whole file as "line[cell|cell]line#comment#", at the end "!sentence" when it is refused. */
static const char *read_back(const char *bytes, size_t count, struct csv_format format)
{
    static char result[4000];
    struct text text = {0};
    struct csv_reader r;
    struct reason why;
    enum csv_result kind;
    write_file(bytes, count);
    assert_true(csv_open(&r, path, format, &why));
    while ((kind = csv_next(&r, &why)) == CSV_ROW || kind == CSV_COMMENT) {
        text_add(&text, "%d%s", r.line, kind == CSV_ROW ? "[" : "#");
        for (int i = 0; i < r.count; i++)
            text_add(&text, "%s%s", i ? "|" : "", r.cells[i]);
        text_add(&text, "%s", kind == CSV_ROW ? "]" : "#");
    }
    if (kind == CSV_ERROR) {
        assert_memory_equal(why.text, path, strlen(path)); /* every sentence begins with the file */
        text_add(&text, "!%s", why.text + strlen(path));
    }
    csv_close(&r);
    assert_true(text.length < sizeof result);
    strcpy(result, text_string(&text));
    text_free(&text);
    return result;
}

#define READ(text, format) read_back(text, sizeof text - 1, format)

static void rows_and_cells(void **state)
{
    (void)state;
    assert_string_equal(READ("", plain), "");
    assert_string_equal(READ("\n\n", plain), "");
    assert_string_equal(READ("a,b\nc,d\n", plain), "1[a|b]2[c|d]");
    assert_string_equal(READ("a,b\r\nc,d\r\n", plain), "1[a|b]2[c|d]");
    assert_string_equal(READ("a,b\n\n  \t\r\nc,d", plain), "1[a|b]4[c|d]"); /* blank lines; no newline at the end */
    assert_string_equal(READ("a\r", plain), "1[a]");
    assert_string_equal(READ(",\n,,\n", plain), "1[|]2[||]");
    assert_string_equal(READ("a,\n,b\n", plain), "1[a|]2[|b]");
    assert_string_equal(READ("a,", plain), "1[a|]");
    assert_string_equal(READ(" a , b\n", plain), "1[ a | b]");
    assert_string_equal(READ("#a,b\n", plain), "1[#a|b]");
    assert_string_equal(READ("\xC3\xA9,\xFF\n", plain), "1[\xC3\xA9|\xFF]");
}

static void quotes(void **state)
{
    (void)state;
    assert_string_equal(READ("\"a\",\"b,c\"\n", plain), "1[a|b,c]");
    assert_string_equal(READ("\"a \"\"b\"\" c\"\n", plain), "1[a \"b\" c]");
    assert_string_equal(READ("\"\"\"\",x\n", plain), "1[\"|x]");
    assert_string_equal(READ("\"\"\n", plain), "1[]"); /* a row of one empty cell is no blank line */
    assert_string_equal(READ("\"\",\"\"\r\n\"x\"", plain), "1[|]2[x]");
    assert_string_equal(READ("a,\"two\nlines\"\nb,c\n", plain), "1[a|two\nlines]3[b|c]");
    assert_string_equal(READ("\"a\r\nb\"\r\n", plain), "1[a\r\nb]");
    assert_string_equal(READ("5\" pipe,a\"b\"\n", plain), "1[5\" pipe|a\"b\"]");
    assert_string_equal(READ("b,\"c\"d\r\n\"e\" \n", plain), "1[b|cd]2[e ]");
    assert_string_equal(READ("\" c \" d ,\"e\r\"\r\n", with_comments), "1[ c  d|e\r]");
    assert_string_equal(READ(" \"a\"\n", plain), "1[ \"a\"]");
    assert_string_equal(READ(" \"a\" , \" b \" \r\n", with_comments), "1[a| b ]");
}

static void comments(void **state)
{
    (void)state;
    assert_string_equal(READ("# one, \"two\n  #three\r\na,#b\n#", with_comments), "1# one, \"two#2#three#3[a|#b]4##");
    assert_string_equal(READ("\"#a\",b\n", with_comments), "1[#a|b]");
    assert_string_equal(READ(" a , b\t\n\n,\t,\n", with_comments), "1[a|b]3[||]");
}

static void what_is_refused(void **state)
{
    (void)state;
    assert_string_equal(READ("a\n\"b,c\nd\n", plain), "1[a]!, line 2: a quote stays open");
    assert_string_equal(READ("a\n\"", plain), "1[a]!, line 2: a quote stays open");
    assert_string_equal(READ("a,b\nc\0d,e\n", plain), "1[a|b]!, line 2: a NUL byte: this is not text");
    assert_string_equal(READ("\0", plain), "!, line 1: a NUL byte: this is not text");
    assert_string_equal(READ("\"a\0\"", plain), "!, line 1: a NUL byte: this is not text");
    assert_string_equal(READ("#\0\n", with_comments), "!, line 1: a NUL byte: this is not text");
}

static void lengths_at_the_limit(void **state)
{
    (void)state;
    char line[32];
    for (int length = 1; length < 30; length++) {
        memset(line, 'x', sizeof line);
        line[length - 1] = '\n';
        const char *result = read_back(line, (size_t)length, (struct csv_format){.bytes_max = 20});
        assert_int_equal(strstr(result, "line 1: it is longer than 20 bytes") != NULL, length > 20);
    }
    /* A row's own bytes count, not those before it. */
    assert_string_equal(read_back("aaaa\nbbbb\ncccc\n", 15, (struct csv_format){.bytes_max = 5}),
                        "1[aaaa]2[bbbb]3[cccc]");
}

static void a_line_of_10_mb(void **state)
{
    (void)state;
    static const char *const begins[] = {"", "a,b\n", "\"", "#"};
    enum { BYTES = 10000000 };
    char *line = malloc(BYTES);
    assert_non_null(line);
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++) {
        memset(line, 'x', BYTES);
        memcpy(line, begins[i], strlen(begins[i]));
        if (!strstr(read_back(line, BYTES, with_comments), "it is longer than 1000 bytes"))
            fail_msg("taken behind '%s'", begins[i]);
    }
    memset(line, ',', BYTES);
    assert_non_null(strstr(read_back(line, BYTES, plain), "line 1: it is longer than 1000 bytes"));
    free(line);
}

static void files_that_cannot_be_read(void **state)
{
    (void)state;
    struct csv_reader r;
    struct reason why;
    assert_false(csv_open(&r, "/nonexistent/x.csv", plain, &why));
    assert_string_equal(why.text, "/nonexistent/x.csv: No such file or directory");
    csv_close(&r);
    assert_true(csv_open(&r, "/tmp", plain, &why)); /* a folder opens, but cannot be read */
    assert_int_equal(csv_next(&r, &why), CSV_ERROR);
    assert_string_equal(why.text, "/tmp, line 1: Is a directory");
    csv_close(&r);
}

/* The sentence stays whole, the path keeps both of its ends. */
static void a_long_path_is_cut_in_its_middle(void **state)
{
    (void)state;
    char long_path[1000];
    struct reason why;
    memset(long_path, 'x', sizeof long_path);
    memcpy(long_path, "/first/", 7);
    strcpy(long_path + 900, "/last.csv");
    const struct csv_reader r = {.path = long_path, .line = 7};
    assert_false(csv_refuse(&r, &why, "has no %s", "cells"));
    assert_memory_equal(why.text, "/first/x", 8);
    assert_non_null(strstr(why.text, "xxx...xxx"));
    assert_non_null(strstr(why.text, "x/last.csv, line 7: has no cells"));
}

static void cells_are_quoted_where_needed(void **state)
{
    (void)state;
    static const struct {
        const char *cell, *written;
    } cases[] = {
        {"", ""},
        {"a b", "a b"},
        {"a,b", "\"a,b\""},
        {"\"", "\"\"\"\""},
        {"say \"x\"", "\"say \"\"x\"\"\""},
        {"#1", "\"#1\""},
        {" a", "\" a\""},
        {"a ", "\"a \""},
        {"two\nlines", "two lines"},
        {"\xFF", "?"},
        {"x;y", "x;y"},
        {"it's", "it's"},
        {"\r\n", "\"  \""},
        {"\xC3\xA9", "\xC3\xA9"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct csv_row row = {0};
        csv_add(&row, cases[i].cell);
        assert_string_equal(text_string(&row.text), cases[i].written);
        csv_free(&row);
    }
}

static void numbers(void **state)
{
    (void)state;
    struct csv_row row = {0};
    csv_add_count(&row, INT64_MIN);
    csv_add_count(&row, -5);
    csv_add_count(&row, INT64_MAX);
    csv_add_real(&row, NAN, 6);
    csv_add_real(&row, INFINITY, 6);
    csv_add_real(&row, 1.0 / 3, 6);
    csv_add_real(&row, 1.0 / 3, 10);
    csv_end(&row);
    csv_add(&row, "");
    csv_add(&row, "x");
    csv_end(&row);
    assert_string_equal(text_string(&row.text), ",-5,9223372036854775807,,,0.333333,0.3333333333\n,x\n");
    csv_free(&row);
}

/* Random texts, written and read by both formats. */
static void what_is_written_is_read_back(void **state)
{
    (void)state;
    static const char special[] = ",,\"\"# \t\r\nab\xC3\xA9\xFF";
    enum { ROWS = 300, CELLS = 5, BYTES = 8 };
    char cells[ROWS][CELLS][BYTES];
    struct csv_row row = {0};
    uint64_t seed = 3;
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < CELLS; k++) {
            char raw[BYTES] = "";
            for (int n = 0; n < BYTES - 1; n++) {
                seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
                raw[n] = special[(seed >> 33) % sizeof special];
            }
            text_clean(raw, cells[i][k], BYTES);
            csv_add(&row, raw);
        }
        csv_put(&row, out);
    }
    csv_free(&row);
    assert_int_equal(fclose(out), 0);
    for (int f = 0; f < 2; f++) {
        struct csv_reader r;
        struct reason why;
        assert_true(csv_open(&r, path, f ? with_comments : plain, &why));
        for (int i = 0; i < ROWS; i++) {
            assert_int_equal(csv_next(&r, &why), CSV_ROW);
            assert_int_equal(r.line, i + 1);
            assert_int_equal(r.count, CELLS);
            for (int k = 0; k < CELLS; k++)
                assert_string_equal(r.cells[k], cells[i][k]);
        }
        assert_int_equal(csv_next(&r, &why), CSV_END);
        csv_close(&r);
    }
}

static int csv_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_and_cells),
        cmocka_unit_test(quotes),
        cmocka_unit_test(comments),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(lengths_at_the_limit),
        cmocka_unit_test(a_line_of_10_mb),
        cmocka_unit_test(files_that_cannot_be_read),
        cmocka_unit_test(a_long_path_is_cut_in_its_middle),
        cmocka_unit_test(cells_are_quoted_where_needed),
        cmocka_unit_test(numbers),
        cmocka_unit_test(what_is_written_is_read_back),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

/* ---- junit ---- */

/* JUnit files: counts, elements, escapes, and a file that cannot be written. */

static char *read_all(const char *file)
{
    FILE *in = fopen(file, "r");
    assert_non_null(in);
    char *text = xcalloc(1, 4096);
    assert_true(fread(text, 1, 4095, in) > 0);
    fclose(in);
    return text;
}

static void a_file(void **state)
{
    (void)state;
    struct junit junit = {0};
    const char *const file = help_path("junit.xml");
    junit_add(&junit, "fabench.mine", "fwd <full> \"d64\"", JUNIT_PASSED, "");
    junit_add(&junit, "fabench.mine", "bwd", JUNIT_FAILED, "dk & dv\x01 fail");
    junit_detail(&junit, 1.25, "again: a < b");
    junit_add(&junit, "fabench.mine", "bwd 2", JUNIT_ERROR, "timeout");
    junit_add(&junit, "fabench.other", "fwd", JUNIT_SKIPPED, "no");
    assert_int_equal(junit_count(&junit, JUNIT_FAILED), 1);
    assert_true(junit_write(&junit, "fabench verify", "1 < 2", file));
    char *text = read_all(file);
    assert_string_equal(
        text,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"
        "  <testsuite name=\"fabench verify\" tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\">\n"
        "    <testcase classname=\"fabench.mine\" name=\"fwd &lt;full&gt; &quot;d64&quot;\" time=\"0.000\"><system-out>"
        "</system-out></testcase>\n"
        "    <testcase classname=\"fabench.mine\" name=\"bwd\" time=\"1.250\"><failure message=\"dk &amp; dv  "
        "fail\">again: a &lt; b"
        "</failure></testcase>\n"
        "    <testcase classname=\"fabench.mine\" name=\"bwd 2\" time=\"0.000\"><error "
        "message=\"timeout\"></error></testcase>\n"
        "    <testcase classname=\"fabench.other\" name=\"fwd\" time=\"0.000\"><skipped "
        "message=\"no\"></skipped></testcase>\n"
        "    <system-out>1 &lt; 2</system-out>\n  </testsuite>\n</testsuites>\n");
    free(text);
    junit_free(&junit);
    assert_int_equal(junit.count, 0);
}

static void no_file(void **state)
{
    (void)state;
    const struct junit junit = {0};
    help_listen();
    assert_false(junit_write(&junit, "x", "", "/nowhere/at/all.xml"));
    assert_non_null(strstr(help_said(), "/nowhere/at/all.xml: cannot be written"));
}

static int junit_tests(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_file), cmocka_unit_test(no_file)};
    return cmocka_run_group_tests(tests, help_make_folder, help_remove_folder);
}

int main(void) { return csv_tests() + junit_tests(); }
