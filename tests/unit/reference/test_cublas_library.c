/* Opening cuBLAS at run time: what a path may name, and what is said where there is none. Needs no GPU, only the
 * library of the toolkit that the program was built with. Runs from the root of the repository. */
#include "reference/cublas_library.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* The file of cuBLAS that /proc/self/maps names; false where it names none. */
static bool find_loaded(char file[4096])
{
    char line[4096];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (!found && fgets(line, sizeof line, maps)) {
        found = strstr(line, "/libcublas.so") != NULL;
        if (found)
            snprintf(file, 4096, "%.*s", (int)strcspn(strchr(line, '/'), "\n"), strchr(line, '/'));
    }
    fclose(maps);
    return found;
}

static bool is_loaded(void)
{
    char file[4096];
    return find_loaded(file);
}

static void refused(const char *named, const char *sentence)
{
    struct cublas_functions functions;
    struct attn_message why = {""};
    assert_false(cublas_library_open(named, &functions, &why));
    if (!strstr(why.text, sentence))
        fail_msg("%s: \"%s\" is not in \"%s\"", named, sentence, why.text);
}

static void what_is_no_library_is_refused(void **state)
{
    (void)state;
    assert_false(is_loaded()); /* linked into this program, and yet not loaded at its start */
    refused("README.md", "FABENCH_CUBLAS=README.md cannot be loaded: README.md: ");
    refused("/nonexistent/libcublas.so", "FABENCH_CUBLAS=/nonexistent/libcublas.so cannot be loaded: ");
    refused("tests", "FABENCH_CUBLAS=tests: no libcublas.so.");
    refused(FAKE_NVML, "has no cublasGetProperty");
}

/* FABENCH_CUBLAS is read once, and what it names is not replaced by another library. */
static void the_first_answer_stays(void **state)
{
    (void)state;
    struct attn_message first = {""}, second = {""};
    assert_int_equal(setenv("FABENCH_CUBLAS", "README.md", 1), 0);
    assert_null(cublas_library(&first));
    assert_non_null(strstr(first.text, "FABENCH_CUBLAS=README.md cannot be loaded"));
    assert_int_equal(unsetenv("FABENCH_CUBLAS"), 0);
    assert_null(cublas_library(&second));
    assert_string_equal(first.text, second.text);
    assert_null(cublas_library(NULL));
    assert_false(is_loaded());
}

static void the_toolkit_has_one(void **state)
{
    (void)state;
    struct cublas_functions functions;
    struct attn_message why = {""};
    int version = 0;
    if (!cublas_library_open(NULL, &functions, &why))
        fail_msg("%s", why.text);
    assert_true(is_loaded());
    assert_int_equal(functions.get_property(MAJOR_VERSION, &version), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(version, CUBLAS_VER_MAJOR);
    assert_true(strlen(functions.get_status_string(CUBLAS_STATUS_ALLOC_FAILED)) > 0);
    assert_non_null(functions.create);
    assert_non_null(functions.lt_preference_set);
}

/* A folder may be named instead of the file, itself or one above it. */
static void a_folder_around_it(void **state)
{
    (void)state;
    static const char *const places[] = {"", "lib", "nvidia/cublas/lib"};
    const char *folder = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    char file[4096];
    assert_true(find_loaded(file));
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char root[256], command[2048];
        struct cublas_functions functions;
        struct attn_message why = {""};
        snprintf(root, sizeof root, "%s/fabench-cublas-XXXXXX", folder);
        assert_non_null(mkdtemp(root));
        snprintf(command, sizeof command, "mkdir -p '%s/%s' && ln -s '%.400s' '%s/%s/libcublas.so.%d'", root, places[i],
                 file, root, places[i], CUBLAS_VER_MAJOR);
        assert_int_equal(system(command), 0);
        const bool opened = cublas_library_open(root, &functions, &why);
        snprintf(command, sizeof command, "rm -r '%s'", root);
        assert_int_equal(system(command), 0);
        if (!opened)
            fail_msg("%s: %s", places[i], why.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_library_is_refused),
        cmocka_unit_test(the_first_answer_stays),
        cmocka_unit_test(the_toolkit_has_one),
        cmocka_unit_test(a_folder_around_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
