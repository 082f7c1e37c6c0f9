/* The read ceiling of the CPU reads every word once, with any number of threads. */
#include "tests/unit/unit_help.h"

#include "reference/harness/read_host.h"

static void the_sum_is_that_of_every_word(void **state)
{
    (void)state;
    enum { MOST = 1000 };
    uint64_t words[MOST + 1], want = 0;
    for (int i = 0; i <= MOST; i++)
        words[i] = 0x9E3779B97F4A7C15ull * (uint64_t)(i + 1);
    for (int count = 0; count <= MOST; want += words[count++])
        for (int threads = 1; threads < 6; threads++)
            if (harness_read_host(words, count, threads) != want)
                fail_msg("%d words, %d threads: another sum", count, threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_sum_is_that_of_every_word)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
