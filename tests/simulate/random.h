/* Random numbers of simulations, the same on every machine: xorshift64* (Vigna 2016), normal deviates by Box and
 * Muller. random_state: the seed, not 0. */
#ifndef FABENCH_SIMULATE_RANDOM_H
#define FABENCH_SIMULATE_RANDOM_H

#include <math.h>
#include <stdint.h>

static uint64_t random_state = 88172645463325252u;

/* Between 0 and 1, neither of them. */
static inline double uniform(void)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return ((double)(random_state * 2685821657736338717u >> 11) + 0.5) / 9007199254740992.0;
}

/* N(0, 1). */
static inline double normal(void) { return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform()); }

#endif
