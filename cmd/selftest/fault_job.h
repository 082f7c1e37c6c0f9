/* What a fault is made from: the tensors of one problem on the host, and a right kernel. */
#ifndef FABENCH_FAULT_JOB_H
#define FABENCH_FAULT_JOB_H

#include "cmd/device/buffers.h"

/* The tensors of one problem as contiguous fp32 host arrays, whatever their dtype, layout and device. `selftest` builds
 * its wrong results from them. */

/* By enum problem_tensor. Each is contiguous [batch, heads, len, head_dim], LSE [batch, q_heads, q_len], in the shapes
 * of tensor_shape_of where lengths are packed or a cache has pages; NULL where the mode has none. 8-bit inputs are the
 * stored values, without their scales. */
struct host_tensors {
    float *at[TENSOR_COUNT];
    float *scales[QUANTISED_COUNT];      /* of 8-bit inputs, as struct attn_tensors has them; else NULL */
    const struct problem_arrays *arrays; /* not owned; NULL where the problem has none */
};

/* Inputs and outputs of a mode, zeroed; host_tensors_free frees them. The program ends (exit 7) when memory is
 * exhausted. */
struct host_tensors host_tensors_make(const struct attn_problem *, enum attn_mode);
struct host_tensors host_tensors_copy(const struct host_tensors *, const struct attn_problem *, enum attn_mode);
void host_tensors_free(struct host_tensors *);

/* Copy between the host and a set of device tensors of the same problem, scales included. Writing rounds to the
 * tensor's dtype and does not change gaps between the strides; reading is exact, and takes the item's arrays. Only
 * tensors that have a buffer in the set are copied. */
enum attn_status host_tensors_write(struct backend *, const struct plan_item *, const struct host_tensors *,
                                    const struct tensor_set *to, struct attn_message *why);
enum attn_status host_tensors_read(struct backend *, const struct plan_item *, const struct tensor_set *from,
                                   struct host_tensors *, struct attn_message *why);

/* Elements of a tensor of a problem. */
int64_t host_tensors_elements(const struct attn_problem *, enum problem_tensor);

enum { FAULT_TILE = 128 };

/* A right kernel: reads the inputs of `tensors` (fwd: q k v; bwd: q k v o lse dout) and their arrays, fills its
 * outputs. */
typedef enum attn_status (*fault_attend)(void *context, const struct attn_problem *, enum attn_mode,
                                         struct host_tensors *tensors, struct attn_message *why);

/* The true problem: at least two heads, and lengths of FAULT_TILE or more; with the attributes of the fault and no
 * others. q_len = kv_len where there are no arrays. */
struct fault_job {
    const struct attn_problem *problem;
    enum attn_mode mode;
    const struct host_tensors *correct; /* its inputs and the right outputs */
    fault_attend attend;
    void *context;
};

#endif
