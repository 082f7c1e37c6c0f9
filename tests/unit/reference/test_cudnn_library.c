/* Where cuDNN is looked for (reference/peers/cudnn_peer.h), with a made-up library that has only a version. Each
 * attempt is a process of its own, because a library that is loaded already is found by its name. */
#include "tests/unit/unit_help.h"

#include <dlfcn.h>
#include <sys/wait.h>

#include "reference/peers/cudnn_peer.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_path_names_file_or_folder),
        cmocka_unit_test(a_named_place_is_not_replaced),
        cmocka_unit_test(the_recorded_folder_is_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
