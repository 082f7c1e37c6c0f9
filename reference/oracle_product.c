#include "reference/oracle_product.h"

#include <math.h>

enum { COLUMNS = 256, DEPTH = 64 }; /* 128 KB of B stay in the second-level cache */

static inline __attribute__((always_inline)) double term(double x, enum terms terms)
{
    return terms == TERMS_ABSOLUTE ? fabs(x) : terms == TERMS_SQUARED ? x * x : x;
}

/* One row of C over one block of columns, `depth` steps of k, four at a time. */
static inline __attribute__((always_inline)) void row_product(double *c, int64_t n, const double *a, int64_t a_col,
                                                              const double *b, int64_t b_row, int64_t depth,
                                                              enum terms terms)
{
    int64_t t = 0;
    for (; t + 4 <= depth; t += 4) {
        const double a0 = term(a[t * a_col], terms), a1 = term(a[(t + 1) * a_col], terms);
        const double a2 = term(a[(t + 2) * a_col], terms), a3 = term(a[(t + 3) * a_col], terms);
        const double *b0 = b + t * b_row, *b1 = b0 + b_row, *b2 = b1 + b_row, *b3 = b2 + b_row;
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            c[j] += (a0 * term(b0[j], terms) + a1 * term(b1[j], terms)) +
                    (a2 * term(b2[j], terms) + a3 * term(b3[j], terms));
    }
    for (; t < depth; t++) {
        const double a0 = term(a[t * a_col], terms);
        const double *b0 = b + t * b_row;
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            c[j] += a0 * term(b0[j], terms);
    }
}

static inline __attribute__((always_inline)) void multiply_body(const struct product *p, enum terms terms)
{
    for (int64_t j = 0; j < p->n; j += COLUMNS) {
        const int64_t n = p->n - j < COLUMNS ? p->n - j : COLUMNS;
        for (int64_t t = 0; t < p->k; t += DEPTH) {
            const int64_t depth = p->k - t < DEPTH ? p->k - t : DEPTH;
            for (int64_t i = 0; i < p->m; i++)
                row_product(p->c + i * p->c_row + j, n, p->a + i * p->a_row + t * p->a_col, p->a_col,
                            p->b + t * p->b_row + j, p->b_row, depth, terms);
        }
    }
}

static void multiply_baseline(const struct product *p, enum terms terms)
{
    switch (terms) {
    case TERMS_PLAIN: multiply_body(p, TERMS_PLAIN); return;
    case TERMS_ABSOLUTE: multiply_body(p, TERMS_ABSOLUTE); return;
    case TERMS_SQUARED: multiply_body(p, TERMS_SQUARED); return;
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void multiply_avx2(const struct product *p, enum terms terms)
{
    switch (terms) {
    case TERMS_PLAIN: multiply_body(p, TERMS_PLAIN); return;
    case TERMS_ABSOLUTE: multiply_body(p, TERMS_ABSOLUTE); return;
    case TERMS_SQUARED: multiply_body(p, TERMS_SQUARED); return;
    }
}
#endif

void oracle_multiply(const struct product *p, enum terms terms)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        multiply_avx2(p, terms);
        return;
    }
#endif
    multiply_baseline(p, terms);
}
