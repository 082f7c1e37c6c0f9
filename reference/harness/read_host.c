/* Reading memory with all threads. */
#include "reference/harness/read_host.h"

enum { LANES = 8 }; /* sums that do not wait for each other */

static uint64_t sum_of(const uint64_t *words, int64_t count)
{
    uint64_t sums[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            sums[lane] += words[i + lane];
    for (; i < count; i++)
        sum += words[i];
    for (int lane = 0; lane < LANES; lane++)
        sum += sums[lane];
    return sum;
}

uint64_t harness_read_host(const uint64_t *words, int64_t count, int threads)
{
    const int64_t part = (count + threads - 1) / threads;
    uint64_t sum = 0;
#pragma omp parallel for schedule(static) num_threads(threads) reduction(+ : sum)
    for (int t = 0; t < threads; t++) {
        const int64_t first = t * part, left = count - first;
        sum += left > 0 ? sum_of(words + first, left < part ? left : part) : 0;
    }
    return sum;
}
