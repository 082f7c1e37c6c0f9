/* Matrix products of the float64 oracle (oracle.c). */
#ifndef REFERENCE_ORACLE_PRODUCT_H
#define REFERENCE_ORACLE_PRODUCT_H

#include <stdint.h>

/* What is multiplied: the numbers, their absolute values or their squares. */
enum terms { TERMS_PLAIN, TERMS_ABSOLUTE, TERMS_SQUARED };

/* C += A B of such terms; C is m x n, A(i, t) = a[i * a_row + t * a_col], B and C are row-major. */
struct product {
    int64_t m, n, k;
    const double *a;
    int64_t a_row, a_col;
    const double *b;
    int64_t b_row;
    double *c;
    int64_t c_row;
};

/* Blocked for the caches; every sum has an order that depends on m, n and k alone. */
void oracle_multiply(const struct product *, enum terms);

#endif
