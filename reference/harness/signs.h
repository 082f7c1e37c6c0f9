/* Signs of a tensor's elements. Before each timed launch the harness changes them in the inputs, in two ways.
 *
 * Single elements at random: Q, K, V and dO then hold values that no launch has seen, as random as before, and every
 * output is another one. A word of 32 signs is a hash of a secret seed and of the word's number among the elements in
 * the order [batch, heads, len, head_dim]; the same seed again takes the change back.
 *
 * Whole columns: with one set of signs for Q and K, and another for V, O and dO:
 *   S = Q K^T, P, LSE, dP = dO V^T and D = rowsum(dO * O) keep every bit, because both factors of each product change
 *   sign or neither does;
 *   O and dV change sign in the columns of the second set, dQ and dK in those of the first.
 * No launch sees the inputs of an earlier one, and its outputs are known without a second reference. Rounding to
 * nearest and rounding toward zero are symmetric in the sign. */
#ifndef FABENCH_SIGNS_H
#define FABENCH_SIGNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIGNS_COLUMNS = 576 }; /* largest head_dim; a multiple of 32 */

/* Bit c is set where column c has the other sign. seeds: of single elements, 0 = none. kept: the first columns, whose
 * single elements keep their signs. All zero: nothing has changed. */
struct column_signs {
    uint32_t negated[SIGNS_COLUMNS / 32];
    uint32_t kept;
    uint64_t seeds[2];
};

#if defined(__CUDACC__)
#define SIGNS_FUNCTION static __host__ __device__ __forceinline__
#else
#define SIGNS_FUNCTION static inline
#endif

SIGNS_FUNCTION bool column_is_negated(const struct column_signs *signs, int64_t column)
{
    return signs->negated[column / 32 % (SIGNS_COLUMNS / 32)] >> (column % 32) & 1;
}

/* The signs of the elements 32 n to 32 n + 31 with this seed: the finaliser of splitmix64 (Steele, Lea, Flood 2014). */
SIGNS_FUNCTION uint32_t element_word(uint64_t seed, int64_t n)
{
    uint64_t z = ((uint64_t)n + 1) * 0x9E3779B97F4A7C15ull + seed;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return seed ? (uint32_t)(z ^ z >> 31) : 0;
}

/* Bit i: element `first` + i of the tensor has the other sign, for as many as lie in one word with the first. column:
 * of the first. */
SIGNS_FUNCTION uint32_t elements_negated(const struct column_signs *signs, int64_t first, int64_t column)
{
    const uint32_t word = element_word(signs->seeds[0], first / 32) ^ element_word(signs->seeds[1], first / 32);
    const uint32_t kept = column < signs->kept ? (1u << (signs->kept - column)) - 1 : 0;
    return word >> (first % 32) & ~kept;
}

/* The bits that an element of 1, 2 or 4 bytes is XORed with to change its sign: the highest one of every type. */
SIGNS_FUNCTION uint32_t sign_bit(size_t element_bytes) { return 1u << (8 * element_bytes - 1); }

#undef SIGNS_FUNCTION

#endif
