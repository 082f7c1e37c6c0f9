/* e^x and the matrix products of the CPU tiles, included by tiles.h behind vector.h. Everything is static.
 *
 * Matrix products. One register block computes BLOCK_M rows x BLOCK_N vectors of C: per step of k it loads BLOCK_N
 * vectors of B and multiplies them by BLOCK_M broadcast elements of A. A is read where it lies, by rows or by columns;
 * B needs vectors along n, so what has to be a transposed B (Q^T forward, K^T and V^T backward) is packed into panels
 * once per tile of the outer loop. Sums over k start from zero in registers and are added to C at the end: two levels
 * of summation, which keeps the error of long rows small. */
#ifndef FABENCH_CPU_PRODUCTS_H
#define FABENCH_CPU_PRODUCTS_H

#include <stdint.h>

enum { PANEL = BLOCK_N * LANES, SUM_DEPTH = 32 };

/* The loops over a register block have to be gone before the compiler gives registers to the accumulators. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

/* e^x with at most 1.3 ulp (2^-23.4 relative) in [-87.3, 88.7], gradual underflow to 0 below, infinity above, NaN for
 * NaN. x = n ln 2 + f with ln 2 in two parts, the first short enough for n times it to be exact; then the minimax
 * polynomial 1 + f + f^2 q(f) for |f| <= ln(2)/2, whose own relative error is 3.2e-9. */
CPU_INLINE vec v_exp(vec x)
{
    const vec bounded = v_min(v_set(88.8f), v_max(v_set(-104.0f), x));
    const vec n = v_round(v_mul(bounded, v_set(0x1.715476p+0f)));
    const vec f = v_fma(n, v_set(-0x1.7f7d1cp-20f), v_fma(n, v_set(-0x1.62e4p-1f), bounded));
    vec q = v_fma(v_set(0x1.6a28d6p-10f), f, v_set(0x1.123a16p-7f));
    q = v_fma(q, f, v_set(0x1.5558f0p-5f));
    q = v_fma(q, f, v_set(0x1.555492p-3f));
    q = v_fma(q, f, v_set(0x1.fffffcp-2f));
    const vec p = v_fma(v_mul(f, f), q, f);
    return v_scale(v_add(p, v_set(1.0f)), n);
}

/* C is m x n, row-major. m is a multiple of BLOCK_M and n of LANES. Element (i, t) of A lies at a[i * a_stride + t] in
 * multiply_rows and at a[t * a_stride + i] in multiply_columns. B: rows of a panel are b_stride apart, panels b_panel.
 */
struct product {
    int64_t m, n, k;
    const float *a;
    int64_t a_stride;
    const float *b;
    int64_t b_stride, b_panel;
    float *c;
    int64_t c_stride;
};

CPU_INLINE void block_product(int vectors, bool by_columns, const float *a, int64_t a_stride, const float *b,
                              int64_t b_stride, int64_t k, vec sum[BLOCK_M][BLOCK_N])
{
    UNROLL
    for (int i = 0; i < BLOCK_M; i++)
        UNROLL
    for (int j = 0; j < vectors; j++)
        sum[i][j] = v_set(0.0f);
    for (int64_t t = 0; t < k; t++) {
        vec row[BLOCK_N];
        UNROLL
        for (int j = 0; j < vectors; j++)
            row[j] = v_load(b + t * b_stride + j * LANES);
        UNROLL
        for (int i = 0; i < BLOCK_M; i++) {
            const vec x = v_set(by_columns ? a[t * a_stride + i] : a[i * a_stride + t]);
            UNROLL
            for (int j = 0; j < vectors; j++)
                sum[i][j] = v_fma(x, row[j], sum[i][j]);
        }
    }
}

/* C = A B for one panel of `vectors` vectors. Scores are sums over head_dim; at huge logits their rounding is most of
 * the error of P, and short partial sums make it smaller (docs/kernels/cpu.md). */
CPU_INLINE void panel_rows(int vectors, const struct product *p, const float *b, float *c)
{
    for (int64_t i = 0; i < p->m; i += BLOCK_M)
        for (int64_t t = 0; t < p->k; t += SUM_DEPTH) {
            vec sum[BLOCK_M][BLOCK_N];
            block_product(vectors, false, p->a + i * p->a_stride + t, p->a_stride, b + t * p->b_stride, p->b_stride,
                          p->k - t < SUM_DEPTH ? p->k - t : SUM_DEPTH, sum);
            UNROLL
            for (int row = 0; row < BLOCK_M; row++)
                UNROLL
            for (int j = 0; j < vectors; j++) {
                float *at = c + (i + row) * p->c_stride + j * LANES;
                v_store(at, t == 0 ? sum[row][j] : v_add(v_load(at), sum[row][j]));
            }
        }
}

/* C = diag(factor) C + A^T B for one panel. */
CPU_INLINE void panel_columns(int vectors, const struct product *p, const float *factor, const float *b, float *c)
{
    for (int64_t i = 0; i < p->m; i += BLOCK_M) {
        vec sum[BLOCK_M][BLOCK_N];
        block_product(vectors, true, p->a + i, p->a_stride, b, p->b_stride, p->k, sum);
        UNROLL
        for (int row = 0; row < BLOCK_M; row++) {
            float *at = c + (i + row) * p->c_stride;
            const vec scale = v_set(factor[i + row]);
            UNROLL
            for (int j = 0; j < vectors; j++)
                v_store(at + j * LANES, v_fma(scale, v_load(at + j * LANES), sum[row][j]));
        }
    }
}

CPU_TARGET static void multiply_rows(const struct product *p)
{
    int64_t n = 0;
    const float *b = p->b;
    for (; n + PANEL <= p->n; n += PANEL, b += p->b_panel)
        panel_rows(BLOCK_N, p, b, p->c + n);
    for (; n < p->n; n += LANES, b += LANES)
        panel_rows(1, p, b, p->c + n);
}

CPU_TARGET static void multiply_columns(const struct product *p, const float *factor)
{
    int64_t n = 0;
    const float *b = p->b;
    for (; n + PANEL <= p->n; n += PANEL, b += p->b_panel)
        panel_columns(BLOCK_N, p, factor, b, p->c + n);
    for (; n < p->n; n += LANES, b += LANES)
        panel_columns(1, p, factor, b, p->c + n);
}

#endif
