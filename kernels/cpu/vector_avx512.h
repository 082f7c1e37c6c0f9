/* The vector of kernels/cpu/tiles.h in AVX-512F: 16 floats, 32 registers. */
#ifndef FABENCH_VECTOR_AVX512_H
#define FABENCH_VECTOR_AVX512_H

#include <immintrin.h>

#define CPU_TARGET __attribute__((target("avx512f,avx2,fma")))
#define CPU_INLINE static inline __attribute__((always_inline)) CPU_TARGET

/* 8 x 2 vectors of accumulators: 16 independent chains hide 4 cycles of latency at 2 operations per cycle. */
enum { LANES = 16, BLOCK_M = 8, BLOCK_N = 2 };
enum { FORWARD_ROWS = 64, FORWARD_COLS = 64, BACKWARD_ROWS = 64, BACKWARD_COLS = 64 };
#define CPU_KERNELS_NAME "avx512"

typedef __m512 vec;

CPU_INLINE vec v_load(const float *p) { return _mm512_loadu_ps(p); }
CPU_INLINE void v_store(float *p, vec x) { _mm512_storeu_ps(p, x); }
CPU_INLINE vec v_set(float x) { return _mm512_set1_ps(x); }
CPU_INLINE vec v_add(vec a, vec b) { return _mm512_add_ps(a, b); }
CPU_INLINE vec v_sub(vec a, vec b) { return _mm512_sub_ps(a, b); }
CPU_INLINE vec v_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
CPU_INLINE vec v_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
/* The second operand where either is NaN. */
CPU_INLINE vec v_max(vec a, vec b) { return _mm512_max_ps(a, b); }
CPU_INLINE vec v_min(vec a, vec b) { return _mm512_min_ps(a, b); }
CPU_INLINE vec v_round(vec x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* x * 2^n for integral n in [-252, 254], with gradual underflow. */
CPU_INLINE vec v_scale(vec x, vec n) { return _mm512_scalef_ps(x, n); }
/* low <= c && c <= high ? x : other */
CPU_INLINE vec v_between(vec low, vec c, vec high, vec x, vec other)
{
    const __mmask16 inside = _mm512_cmp_ps_mask(low, c, _CMP_LE_OQ) & _mm512_cmp_ps_mask(c, high, _CMP_LE_OQ);
    return _mm512_mask_blend_ps(inside, other, x);
}

#endif
