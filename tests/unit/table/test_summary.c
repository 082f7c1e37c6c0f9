/* The end of a run's output (cmd/table/summary.h): the files in its folder, and what to type next. */
#include "tests/unit/unit_help.h"

#include <sys/stat.h>

#include "cmd/table/summary.h"

/* What summary_print says of an empty run with records in this folder. */
static const char *printed(const char *folder)
{
    static char text[4096];
    struct summary s;
    FILE *out = tmpfile();
    assert_non_null(out);
    summary_begin(&s, NULL);
    summary_print(&s, out, 110, false, folder, 1.5, 0);
    rewind(out);
    text[fread(text, 1, sizeof text - 1, out)] = 0;
    fclose(out);
    return text;
}

static void the_files_of_a_run(void **state)
{
    char words[300];
    (void)state;
    assert_int_equal(mkdir(help_path("run"), 0777), 0);
    const char *text = printed(help_path("run")); /* nothing in it */
    assert_has(text, "/run/\n");
    assert_null(strstr(text, "next:"));
    help_write("run/run.csv", "x");
    help_write("run/notes.txt", "x");
    text = printed(help_path("run")); /* no record that could be drawn */
    assert_has(text, "/run/ run.csv\n");
    assert_null(strstr(text, "next:"));
    help_write("run/run.jsonl", "x");
    help_write("run/tflops.svg", "x");
    text = printed(help_path("run"));
    assert_has(text, "/run/ run.csv run.jsonl, 1 chart\n");
    snprintf(words, sizeof words, "next: fabench plot %s/run.jsonl --plot term\n", help_path("run"));
    assert_has(text, words);
    snprintf(words, sizeof words, "next: fabench plot %s/run.jsonl --plot term\n", help_path("run"));
    assert_has(printed(help_path("run/")), words); /* no slash twice */
}

static void no_folder(void **state)
{
    (void)state;
    assert_null(strstr(printed(NULL), "records:"));
    const char *text = printed("/absent"); /* the folder is gone: no crash */
    assert_has(text, "records: /absent/\n");
    assert_has(text, "1.5 s, exit 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_files_of_a_run), cmocka_unit_test(no_folder)};
    return cmocka_run_group_tests(tests, help_make_folder, help_remove_folder);
}
