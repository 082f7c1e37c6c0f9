/* Windows and causality around the bottom-right diagonal, as kernels see them. C and CUDA C++. */
#ifndef FABENCH_FAMILY_WINDOW_H
#define FABENCH_FAMILY_WINDOW_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Keys left and right of the diagonal that a row sees, the diagonal's own beside them. Without a bound it is more than
 * any distance; causal problems have right = 0. */
struct family_window {
    int32_t left, right;
};

struct family_window family_window_of(const struct attn_problem *);

#ifdef __cplusplus
}
#endif
#endif
