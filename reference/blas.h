/* BLAS at run time: the program needs none to build or to start. The first call of any function here loads, in this
 * order, the library that FABENCH_BLAS names (and then no other), libopenblas.so.0, libblas.so.3. Thread-safe.
 */
#ifndef FABENCH_BLAS_H
#define FABENCH_BLAS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The name by which the library was loaded, or NULL when there is none. */
const char *blas_library(void);

/* Why blas_library() is NULL, as a sentence; "" when a library is loaded. */
const char *blas_problem(void);

/* Threads inside one later blas_sgemm call, where the library has a setting for it (OpenBLAS). Not for calls from two
 * threads at once. */
void blas_set_threads(int threads);

/* Row-major C[m, n] = alpha * op(A) op(B) + beta * C, op(X) = X^T where transposed. A is m x k (k x m where
 * transposed), B is k x n (n x k). Leading dimensions in elements. May be called from several threads at once after
 * blas_set_threads(1). The library must be loaded. */
struct blas_operand {
    const float *data;
    int64_t stride; /* leading dimension, at most INT32_MAX */
    bool transposed;
};
void blas_sgemm(int64_t m, int64_t n, int64_t k, float alpha, struct blas_operand a, struct blas_operand b, float beta,
                float *c, int64_t c_stride);

#ifdef __cplusplus
}
#endif
#endif
