/* Opening the libraries of vendors at run time: cuDNN (reference/peers/cudnn_library.h) with a made-up library that has
 * only a version, where each attempt is a process of its own, because a library that is loaded already is found by its
 * name; and in a build with CUDA cuBLAS, with the library of the toolkit. Needs no GPU. Runs from the root of the
 * repository. */
#include "tests/unit/unit_help.h"

#include <dlfcn.h>
#include <sys/wait.h>

#include "reference/peers/cudnn_library.h"
#ifdef FABENCH_WITH_CUDA
#include "reference/cublas_library.h"
#endif

enum { FOUND = 0, NOT_FOUND = 1, NO_VERSION = 2 };

/* Tries the places; the sentence is what was refused with, "" = opened. */
static int try_places(const struct cudnn_places *places, char *sentence, size_t size)
{
    int ends[2], status = -1;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct attn_message why = {""};
        void *handle = cudnn_library_open(places, &why);
        size_t (*version)(void) = NULL;
        void *const symbol = handle ? dlsym(handle, "cudnnGetVersion") : NULL;
        memcpy(&version, &symbol, sizeof version); /* POSIX lets void * hold a function, ISO C has no cast for it */
        const size_t length = strlen(why.text) + 1;
        if (write(ends[1], why.text, length) != (ssize_t)length)
            _exit(9);
        _exit(!handle ? NOT_FOUND : version && version() == 91900 ? FOUND : NO_VERSION);
    }
    close(ends[1]);
    const ssize_t got = read(ends[0], sentence, size - 1);
    assert_true(got >= 0);
    sentence[got] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void found(const char *chosen, const char *environment, const char *recorded)
{
    const struct cudnn_places places = {"libfake_cudnn.so.9", chosen, environment, recorded};
    char sentence[512];
    const int code = try_places(&places, sentence, sizeof sentence);
    if (code != FOUND)
        fail_msg("code %d: %s", code, sentence);
}

static void refused(const char *chosen, const char *environment, const char *recorded, const char *want)
{
    const struct cudnn_places places = {"libfake_cudnn.so.9", chosen, environment, recorded};
    char sentence[512];
    assert_int_equal(try_places(&places, sentence, sizeof sentence), NOT_FOUND);
    if (!strstr(sentence, want))
        fail_msg("\"%s\" is not in \"%s\"", want, sentence);
}

/* FAKE_CUDNN_FOLDER is .../cudnn/lib. */
static const char *folder_above(void)
{
    static char folder[4096];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(FAKE_CUDNN_FOLDER, '/') - FAKE_CUDNN_FOLDER),
             FAKE_CUDNN_FOLDER);
    return folder;
}

static void a_path_names_file_or_folder(void **state)
{
    (void)state;
    found(FAKE_CUDNN_FOLDER "/libfake_cudnn.so.9", NULL, NULL);
    found(FAKE_CUDNN_FOLDER, NULL, NULL);
    found(folder_above(), NULL, NULL);
    found(NULL, FAKE_CUDNN_FOLDER, NULL);
}

static void a_named_place_is_not_replaced(void **state)
{
    (void)state;
    refused("tests", FAKE_CUDNN_FOLDER, FAKE_CUDNN_FOLDER, "tests: no libfake_cudnn.so.9 in this folder, its lib or");
    refused(NULL, "README.md", FAKE_CUDNN_FOLDER, "FABENCH_CUDNN=README.md cannot be loaded: ");
    refused(NULL, "/nowhere", FAKE_CUDNN_FOLDER, "FABENCH_CUDNN=/nowhere cannot be loaded: ");
}

/* The installed program in a shell without settings: the folder of set-up, and what is said when it was moved. */
static void the_recorded_folder_is_last(void **state)
{
    (void)state;
    found(NULL, NULL, FAKE_CUDNN_FOLDER);
    found("", "", folder_above());
    refused(
        NULL, NULL, "/moved/.deps/cudnn",
        "libfake_cudnn.so.9 not found (looked in the loader's path and in /moved/.deps/cudnn, where it was when this "
        "program was built; set FABENCH_CUDNN to its path)");
    refused(NULL, NULL, "tests", "not found (looked in the loader's path and in tests, where it was");
    refused(NULL, NULL, "",
            "libfake_cudnn.so.9 not found (looked in the loader's path; set FABENCH_CUDNN to its path)");
    refused(NULL, NULL, NULL,
            "libfake_cudnn.so.9 not found (looked in the loader's path; set FABENCH_CUDNN to its path)");
}

static int cudnn_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_path_names_file_or_folder),
        cmocka_unit_test(a_named_place_is_not_replaced),
        cmocka_unit_test(the_recorded_folder_is_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* ---- cuBLAS: what a path may name, and what is said where there is none ---- */

#ifdef FABENCH_WITH_CUDA
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

static void cublas_refused(const char *named, const char *sentence)
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
    cublas_refused("README.md", "FABENCH_CUBLAS=README.md cannot be loaded: README.md: ");
    cublas_refused("/nonexistent/libcublas.so", "FABENCH_CUBLAS=/nonexistent/libcublas.so cannot be loaded: ");
    cublas_refused("tests", "FABENCH_CUBLAS=tests: no libcublas.so.");
    cublas_refused(FAKE_NVML, "has no cublasGetProperty");
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

static int cublas_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_library_is_refused),
        cmocka_unit_test(the_first_answer_stays),
        cmocka_unit_test(the_toolkit_has_one),
        cmocka_unit_test(a_folder_around_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
static int cublas_tests(void) { return 0; }
#endif

int main(void) { return cudnn_tests() + cublas_tests(); }
