/* What a session allocates on the CPU. */
#include "tests/unit/unit_help.h"

#include "cmd/base/log.h"
#include "cmd/options/options_parse.h"
#include "cmd/run/session.h"

/* Bytes of address space of this process. */
static double address_space(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld", &pages), 1);
    fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* How much the address space grows while a session is open. */
static double bytes_of_session(const char *l2)
{
    char *words[] = {"fabench", "--device", "cpu", "--seqlen", "64", "--l2", (char *)(uintptr_t)l2, "--out", "none"};
    struct options options;
    struct session session;
    bool done = false;
    assert_int_equal(options_parse(sizeof words / sizeof *words, words, &options, &done), EXIT_OK);
    const double before = address_space();
    assert_int_equal(session_open(&options, "run", false, &session), EXIT_OK);
    const double bytes = address_space() - before;
    session_close(&session);
    options_free(&options);
    return bytes;
}

/* The buffer that flushes the caches has at least 64 MiB. */
static void only_a_cold_cache_needs_a_buffer_to_flush_it(void **state)
{
    const double flush_bytes = 64 << 20;
    (void)state;
    bytes_of_session("hot"); /* loads the libraries */
    assert_true(bytes_of_session("cold") >= flush_bytes);
    assert_true(bytes_of_session("hot") < flush_bytes / 2);
    assert_true(bytes_of_session("cold") >= flush_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_a_cold_cache_needs_a_buffer_to_flush_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
