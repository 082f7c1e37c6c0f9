/* Signs of the columns of a tensor: before each timed launch the harness changes the sign of random columns of the
 * inputs. With one set of signs for Q and K, and another for V, O and dO:
 *   S = Q K^T, P, LSE, dP = dO V^T and D = rowsum(dO * O) keep every bit, because both factors of each product change
 *   sign or neither does;
 *   O and dV change sign in the columns of the second set, dQ and dK in those of the first.
 * So no launch sees the inputs of an earlier one, and its outputs are known without a second reference. Rounding to
 * nearest and rounding toward zero are symmetric in the sign. */
#ifndef FABENCH_SIGNS_H
#define FABENCH_SIGNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIGNS_COLUMNS = 576 }; /* largest head_dim; a multiple of 32 */

/* Bit c is set where column c has the other sign. All zero: no column has. */
struct column_signs {
    uint32_t negated[SIGNS_COLUMNS / 32];
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

/* The bits that an element of 1, 2 or 4 bytes is XORed with to change its sign: the highest one of every type. */
SIGNS_FUNCTION uint32_t sign_bit(size_t element_bytes) { return 1u << (8 * element_bytes - 1); }

#undef SIGNS_FUNCTION

#endif
