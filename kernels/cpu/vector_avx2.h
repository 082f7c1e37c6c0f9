/* The vector of kernels/cpu/tiles.h in AVX2 with FMA: 8 floats, 16 registers. */
#ifndef FABENCH_VECTOR_AVX2_H
#define FABENCH_VECTOR_AVX2_H

#include <immintrin.h>

#define CPU_TARGET __attribute__((target("avx2,fma")))
#define CPU_INLINE static inline __attribute__((always_inline)) CPU_TARGET

/* 6 x 2 accumulators, two vectors of B and one broadcast: 15 of the 16 registers. */
enum { LANES = 8, BLOCK_M = 6, BLOCK_N = 2 };
enum { FORWARD_ROWS = 48, FORWARD_COLS = 96, BACKWARD_ROWS = 48, BACKWARD_COLS = 96 };
#define CPU_KERNELS_NAME "avx2"

typedef __m256 vec;

CPU_INLINE vec v_load(const float *p) { return _mm256_loadu_ps(p); }
CPU_INLINE void v_store(float *p, vec x) { _mm256_storeu_ps(p, x); }
CPU_INLINE vec v_set(float x) { return _mm256_set1_ps(x); }
CPU_INLINE vec v_add(vec a, vec b) { return _mm256_add_ps(a, b); }
CPU_INLINE vec v_sub(vec a, vec b) { return _mm256_sub_ps(a, b); }
CPU_INLINE vec v_mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
CPU_INLINE vec v_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
/* The second operand where either is NaN. */
CPU_INLINE vec v_max(vec a, vec b) { return _mm256_max_ps(a, b); }
CPU_INLINE vec v_min(vec a, vec b) { return _mm256_min_ps(a, b); }
CPU_INLINE vec v_round(vec x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* x * 2^n for integral n in [-252, 254], with gradual underflow: two factors, each a normal number. */
CPU_INLINE vec v_scale(vec x, vec n)
{
    const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), bias = _mm256_set1_epi32(127);
    const __m256i rest = _mm256_sub_epi32(whole, half);
    const vec first = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    const vec second = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(x, first), second);
}
/* low <= c && c <= high ? x : other */
CPU_INLINE vec v_between(vec low, vec c, vec high, vec x, vec other)
{
    const vec inside = _mm256_and_ps(_mm256_cmp_ps(low, c, _CMP_LE_OQ), _mm256_cmp_ps(c, high, _CMP_LE_OQ));
    return _mm256_blendv_ps(other, x, inside);
}

#endif
