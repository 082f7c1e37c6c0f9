/* The tensors of one problem as contiguous fp32 host arrays, whatever their dtype, layout and device. `selftest` builds
 * its wrong results from them. */
#ifndef FABENCH_HOST_TENSORS_H
#define FABENCH_HOST_TENSORS_H

#include "cmd/device/buffers.h"

/* By enum problem_tensor. Each is contiguous [batch, heads, len, head_dim], LSE [batch, q_heads, q_len]; NULL where the
 * mode has none. */
struct host_tensors {
    float *at[TENSOR_COUNT];
};

/* Inputs and outputs of a mode, zeroed; host_tensors_free frees them. The program ends (exit 7) when memory is
 * exhausted. */
struct host_tensors host_tensors_make(const struct attn_problem *, enum attn_mode);
struct host_tensors host_tensors_copy(const struct host_tensors *, const struct attn_problem *, enum attn_mode);
void host_tensors_free(struct host_tensors *);

/* Copy between the host and a set of device tensors of the same problem. Writing rounds to the
 * tensor's dtype and does not change gaps between the strides; reading is exact. Only tensors that have a buffer in
 * the set are copied. */
enum attn_status host_tensors_write(struct backend *, const struct plan_item *, const struct host_tensors *,
                                    const struct tensor_set *to, struct attn_message *why);
enum attn_status host_tensors_read(struct backend *, const struct plan_item *, const struct tensor_set *from,
                                   struct host_tensors *, struct attn_message *why);

/* Elements of a tensor of a problem. */
int64_t host_tensors_elements(const struct attn_problem *, enum problem_tensor);

#endif
