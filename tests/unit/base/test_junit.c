/* JUnit files: counts, elements, escapes, and a file that cannot be written. */
#include "tests/unit/unit_help.h"

#include "cmd/base/junit.h"
#include "cmd/base/log.h"

static char *read_all(const char *path)
{
    FILE *in = fopen(path, "r");
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
    const char *const path = help_path("junit.xml");
    junit_add(&junit, "fabench.mine", "fwd <full> \"d64\"", JUNIT_PASSED, "");
    junit_add(&junit, "fabench.mine", "bwd", JUNIT_FAILED, "dk & dv\x01 fail");
    junit_add(&junit, "fabench.mine", "bwd 2", JUNIT_ERROR, "timeout");
    junit_add(&junit, "fabench.other", "fwd", JUNIT_SKIPPED, "no");
    assert_int_equal(junit_count(&junit, JUNIT_FAILED), 1);
    assert_true(junit_write(&junit, "fabench verify", "1 < 2", path));
    char *text = read_all(path);
    assert_string_equal(
        text,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"
        "  <testsuite name=\"fabench verify\" tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\">\n"
        "    <testcase classname=\"fabench.mine\" name=\"fwd &lt;full&gt; &quot;d64&quot;\"><system-out>"
        "</system-out></testcase>\n"
        "    <testcase classname=\"fabench.mine\" name=\"bwd\"><failure message=\"dk &amp; dv  fail\"/></testcase>\n"
        "    <testcase classname=\"fabench.mine\" name=\"bwd 2\"><error message=\"timeout\"/></testcase>\n"
        "    <testcase classname=\"fabench.other\" name=\"fwd\"><skipped message=\"no\"/></testcase>\n"
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_file), cmocka_unit_test(no_file)};
    return cmocka_run_group_tests(tests, help_make_folder, help_remove_folder);
}
