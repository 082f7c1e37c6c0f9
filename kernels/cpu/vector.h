/* The vector of kernels/cpu/tiles.h: the same functions in each instruction set, of which tiles.c chooses one. */
#ifndef FABENCH_VECTOR_H
#define FABENCH_VECTOR_H

#if defined(CPU_TILES_AVX512) || defined(CPU_TILES_AVX2)

#include <immintrin.h>

#if defined(CPU_TILES_AVX512)
/* AVX-512F: 16 floats, 32 registers. */
#define CPU_TARGET __attribute__((target("avx512f,avx2,fma")))
#define INTRINSIC(name) _mm512_##name
typedef __m512 vec;

/* 8 x 2 vectors of accumulators: 16 independent chains hide 4 cycles of latency at 2 operations per cycle. */
enum { LANES = 16, BLOCK_M = 8, BLOCK_N = 2 };
enum { FORWARD_ROWS = 64, FORWARD_COLS = 64, BACKWARD_ROWS = 64, BACKWARD_COLS = 64 };
#define CPU_KERNELS_NAME "avx512"
#else
/* AVX2 with FMA: 8 floats, 16 registers. */
#define CPU_TARGET __attribute__((target("avx2,fma")))
#define INTRINSIC(name) _mm256_##name
typedef __m256 vec;

/* 6 x 2 accumulators, two vectors of B and one broadcast: 15 of the 16 registers. */
enum { LANES = 8, BLOCK_M = 6, BLOCK_N = 2 };
enum { FORWARD_ROWS = 48, FORWARD_COLS = 96, BACKWARD_ROWS = 48, BACKWARD_COLS = 96 };
#define CPU_KERNELS_NAME "avx2"
#endif

#define CPU_INLINE static inline __attribute__((always_inline)) CPU_TARGET

CPU_INLINE vec v_load(const float *p) { return INTRINSIC(loadu_ps)(p); }
CPU_INLINE void v_store(float *p, vec x) { INTRINSIC(storeu_ps)(p, x); }
CPU_INLINE vec v_set(float x) { return INTRINSIC(set1_ps)(x); }
CPU_INLINE vec v_add(vec a, vec b) { return INTRINSIC(add_ps)(a, b); }
CPU_INLINE vec v_sub(vec a, vec b) { return INTRINSIC(sub_ps)(a, b); }
CPU_INLINE vec v_mul(vec a, vec b) { return INTRINSIC(mul_ps)(a, b); }
CPU_INLINE vec v_fma(vec a, vec b, vec c) { return INTRINSIC(fmadd_ps)(a, b, c); }
/* The second operand where either is NaN. */
CPU_INLINE vec v_max(vec a, vec b) { return INTRINSIC(max_ps)(a, b); }
CPU_INLINE vec v_min(vec a, vec b) { return INTRINSIC(min_ps)(a, b); }

#if defined(CPU_TILES_AVX512)
CPU_INLINE vec v_round(vec x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* x * 2^n for integral n in [-252, 254], with gradual underflow. */
CPU_INLINE vec v_scale(vec x, vec n) { return _mm512_scalef_ps(x, n); }
/* low <= c && c <= high ? x : other */
CPU_INLINE vec v_between(vec low, vec c, vec high, vec x, vec other)
{
    const __mmask16 inside = _mm512_cmp_ps_mask(low, c, _CMP_LE_OQ) & _mm512_cmp_ps_mask(c, high, _CMP_LE_OQ);
    return _mm512_mask_blend_ps(inside, other, x);
}
#else
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

#elif defined(__aarch64__)
/* NEON (arm64): 4 floats, 32 registers. */

#include <arm_neon.h>

#define CPU_TARGET
#define CPU_INLINE static inline __attribute__((always_inline))

/* 8 x 2 accumulators: 16 independent chains hide 4 cycles of latency on cores with up to 4 vector units. */
enum { LANES = 4, BLOCK_M = 8, BLOCK_N = 2 };
enum { FORWARD_ROWS = 64, FORWARD_COLS = 64, BACKWARD_ROWS = 64, BACKWARD_COLS = 64 };
#define CPU_KERNELS_NAME "neon"

typedef float32x4_t vec;

CPU_INLINE vec v_load(const float *p) { return vld1q_f32(p); }
CPU_INLINE void v_store(float *p, vec x) { vst1q_f32(p, x); }
CPU_INLINE vec v_set(float x) { return vdupq_n_f32(x); }
CPU_INLINE vec v_add(vec a, vec b) { return vaddq_f32(a, b); }
CPU_INLINE vec v_sub(vec a, vec b) { return vsubq_f32(a, b); }
CPU_INLINE vec v_mul(vec a, vec b) { return vmulq_f32(a, b); }
CPU_INLINE vec v_fma(vec a, vec b, vec c) { return vfmaq_f32(c, a, b); }
/* NaN where either is NaN. */
CPU_INLINE vec v_max(vec a, vec b) { return vmaxq_f32(a, b); }
CPU_INLINE vec v_min(vec a, vec b) { return vminq_f32(a, b); }
CPU_INLINE vec v_round(vec x) { return vrndnq_f32(x); }
/* x * 2^n for integral n in [-252, 254], with gradual underflow: two factors, each a normal number. */
CPU_INLINE vec v_scale(vec x, vec n)
{
    const int32x4_t whole = vcvtq_s32_f32(n), half = vshrq_n_s32(whole, 1), bias = vdupq_n_s32(127);
    const vec first = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23));
    const vec second = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vsubq_s32(whole, half), bias), 23));
    return vmulq_f32(vmulq_f32(x, first), second);
}
/* low <= c && c <= high ? x : other */
CPU_INLINE vec v_between(vec low, vec c, vec high, vec x, vec other)
{
    return vbslq_f32(vandq_u32(vcleq_f32(low, c), vcleq_f32(c, high)), x, other);
}

#else
/* The vector extension of gcc and clang: 4 floats, for any machine. On x86-64 this
 * is SSE2, which every processor has; there is no fused multiply-add, so v_fma rounds twice. */

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

#endif
