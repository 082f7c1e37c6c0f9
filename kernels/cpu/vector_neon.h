/* The vector of kernels/cpu/tiles.h in NEON (arm64): 4 floats, 32 registers. */
#ifndef FABENCH_VECTOR_NEON_H
#define FABENCH_VECTOR_NEON_H

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

#endif
