/* naive's two passes over the rows of a score matrix [batch, q_heads, q_len, pitch] in problem.dtype. Windows are
 * ignored: naive takes none. */
#ifndef FABENCH_REFERENCE_CUDA_NAIVE_ROWS_H
#define FABENCH_REFERENCE_CUDA_NAIVE_ROWS_H

#include "kernels/attention.h"

/* Elements from one row to the next: kv_len padded to 16 bytes of any dtype. */
static inline int64_t naive_pitch(const struct attn_problem *p) { return (p->kv_len + 7) / 8 * 8; }

/* matrix: S in, P out. lse [batch, q_heads, q_len] may be NULL. Enqueues on `stream`. */
enum attn_status naive_softmax(const struct attn_problem *, void *matrix, float *lse, void *stream,
                               struct attn_message *why);

/* matrix: dP in, dS out. Enqueues on `stream`. */
enum attn_status naive_gradient(const struct attn_problem *, const void *p, void *matrix, void *stream,
                                struct attn_message *why);

#endif
