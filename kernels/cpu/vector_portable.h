/* The vector of kernels/cpu/tiles.h in the vector extension of gcc and clang: 4 floats, for any machine. On x86-64 this
 * is SSE2, which every processor has; there is no fused multiply-add, so v_fma rounds twice. */
#ifndef FABENCH_VECTOR_PORTABLE_H
#define FABENCH_VECTOR_PORTABLE_H

#include <stdint.h>
#include <string.h>

#define CPU_TARGET
#define CPU_INLINE static inline __attribute__((always_inline))

/* 4 x 2 accumulators, two vectors of B, a broadcast and a product: 12 of SSE2's 16 registers. */
enum { LANES = 4, BLOCK_M = 4, BLOCK_N = 2 };
enum { FORWARD_ROWS = 64, FORWARD_COLS = 64, BACKWARD_ROWS = 64, BACKWARD_COLS = 64 };
#define CPU_KERNELS_NAME "portable"

typedef float vec __attribute__((vector_size(16)));
typedef int32_t vec_bits __attribute__((vector_size(16)));

CPU_INLINE vec v_load(const float *p)
{
    vec x;
    memcpy(&x, p, sizeof x);
    return x;
}
CPU_INLINE void v_store(float *p, vec x) { memcpy(p, &x, sizeof x); }
CPU_INLINE vec v_set(float x) { return (vec){x, x, x, x}; }
CPU_INLINE vec v_add(vec a, vec b) { return a + b; }
CPU_INLINE vec v_sub(vec a, vec b) { return a - b; }
CPU_INLINE vec v_mul(vec a, vec b) { return a * b; }
CPU_INLINE vec v_fma(vec a, vec b, vec c) { return a * b + c; }
CPU_INLINE vec v_select(vec_bits mask, vec x, vec other)
{
    return (vec)((mask & (vec_bits)x) | (~mask & (vec_bits)other));
}
/* The second operand where either is NaN. */
CPU_INLINE vec v_max(vec a, vec b) { return v_select(a > b, a, b); }
CPU_INLINE vec v_min(vec a, vec b) { return v_select(a < b, a, b); }
/* |x| < 2^22: adding 1.5 * 2^23 leaves no room for a fraction. */
CPU_INLINE vec v_round(vec x) { return (x + 12582912.0f) - 12582912.0f; }
/* x * 2^n for integral n in [-252, 254], with gradual underflow: two factors, each a normal number. */
CPU_INLINE vec v_scale(vec x, vec n)
{
    const vec_bits whole = (vec_bits)(n + 12582912.0f) - (vec_bits)v_set(12582912.0f), half = whole >> 1;
    const vec first = (vec)((half + 127) << 23), second = (vec)((whole - half + 127) << 23);
    return x * first * second;
}
/* low <= c && c <= high ? x : other */
CPU_INLINE vec v_between(vec low, vec c, vec high, vec x, vec other)
{
    return v_select((low <= c) & (c <= high), x, other);
}

#endif
