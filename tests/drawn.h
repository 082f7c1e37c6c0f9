/* Random numbers for tests, the same in each run. */
#ifndef FABENCH_TEST_DRAWN_H
#define FABENCH_TEST_DRAWN_H

#include <stdint.h>

#include "cmd/base/numbers.h"

/* 1 .. most, small numbers as often as large ones. */
static inline int64_t drawn(uint64_t *random, int64_t most)
{
    const uint64_t bits = number_mix(*random += NUMBER_MIX_STEP);
    const int64_t limit = most >> bits % 8;
    return 1 + (int64_t)((bits >> 8) % (uint64_t)(limit > 0 ? limit : 1));
}

#endif
