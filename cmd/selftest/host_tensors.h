/* The tensors of one problem as plain fp32 on the host, whatever their dtype, layout and device: what `selftest` takes
 * apart and puts together again. */
#ifndef FABENCH_HOST_TENSORS_H
#define FABENCH_HOST_TENSORS_H

#include "cmd/device/buffers.h"

/* Each is contiguous [batch, heads, len, head_dim], lse [batch, q_heads, q_len]; NULL where the mode has none. */
struct host_tensors {
    float *at[INDEX_COUNT]; /* by tensor_index */
    float *lse;
};

/* Inputs and outputs of a mode, zeroed; host_tensors_free frees them. Memory that is gone ends the program (exit 7). */
struct host_tensors host_tensors_make(const struct attn_problem *, enum attn_mode);
struct host_tensors host_tensors_copy(const struct host_tensors *, const struct attn_problem *, enum attn_mode);
void host_tensors_free(struct host_tensors *);

/* Between the host and a set of device tensors of the same problem (lse's place in `lse`). Writing rounds to the
 * problem's dtype and leaves what lies between the strides as it is; reading loses nothing. Only tensors that have a
 * buffer in the set move. */
enum attn_status host_tensors_write(struct backend *, const struct plan_item *, const struct host_tensors *,
                                    const struct tensor_set *to, struct attn_message *why);
enum attn_status host_tensors_read(struct backend *, const struct plan_item *, const struct tensor_set *from,
                                   struct host_tensors *, struct attn_message *why);

/* Where an output of a mode lies. */
float *host_tensors_output(const struct host_tensors *, enum problem_tensor);

/* Elements of an output tensor of a problem. */
int64_t host_tensors_elements(const struct attn_problem *, enum problem_tensor);

#endif
