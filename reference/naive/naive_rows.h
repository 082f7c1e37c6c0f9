/* naive's two passes over the rows of a score matrix in problem.dtype: [batch, q_heads, q_len, pitch], of packed
 * sequences [q_heads, total_q, pitch]. */
#ifndef FABENCH_REFERENCE_CUDA_NAIVE_ROWS_H
#define FABENCH_REFERENCE_CUDA_NAIVE_ROWS_H

#include "kernels/attention.h"

/* Elements from one row to the next: kv_len padded to 16 bytes of any dtype. */
static inline int64_t naive_pitch(const struct attn_problem *p) { return (p->kv_len + 7) / 8 * 8; }

/* Dense problems. matrix: S in, P out. lse [batch, q_heads, q_len] may be NULL. Enqueues on `stream`. */
enum attn_status naive_softmax(const struct attn_problem *, void *matrix, float *lse, void *stream,
                               struct attn_message *why);

/* Dense problems. matrix: dP in, dS out. Enqueues on `stream`. */
enum attn_status naive_gradient(const struct attn_problem *, const void *p, void *matrix, void *stream,
                                struct attn_message *why);

/* The matrices of a problem with attributes. kept: P * M, the same pointer as p without dropout. slope: the softcap's
 * derivative, NULL without a softcap. */
struct naive_matrices {
    void *p, *kept, *slope;
};

/* The same with every attribute: windows, softcap, block mask, dropout, lengths. to->p: scale Q K^T in, P out; kept and
 * slope are written where they are matrices of their own. When kept == p, P * M is written there. lse may be NULL. */
enum attn_status naive_masked_softmax(const struct attn_problem *, const struct attn_tensors *,
                                      const struct naive_matrices *to, float *lse, void *stream,
                                      struct attn_message *why);

/* matrix: dP in, dS out. With a sink LSE is read. sink_rows: what each row has of -dSink, in the order of LSE; NULL =
 * nobody asks. */
enum attn_status naive_masked_gradient(const struct attn_problem *, const struct attn_tensors *,
                                       const struct naive_matrices *from, void *matrix, float *sink_rows, void *stream,
                                       struct attn_message *why);

/* tensors.dbias from dS without the softcap's derivative, with which dS is multiplied then. slope: NULL without one. */
enum attn_status naive_sum_biases(const struct attn_problem *, const struct attn_tensors *, const void *slope, void *ds,
                                  void *stream, struct attn_message *why);

/* tensors.dsink from those rows. */
enum attn_status naive_sum_sinks(const struct attn_problem *, const struct attn_tensors *, const float *sink_rows,
                                 void *stream, struct attn_message *why);

/* Zeros in every [rows, cols] matrix at data + i * stride[0] + j * stride[1] + k * stride[2], i, j, k below count. Its
 * rows are row_stride apart. */
struct naive_zeros {
    void *data;
    size_t element_bytes; /* 2 or 4 */
    int64_t rows, cols, row_stride, count[3], stride[3];
};
enum attn_status naive_zero(const struct naive_zeros *, void *stream, struct attn_message *why);

#endif
