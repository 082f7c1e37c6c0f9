/* The same sequences in another batch: alone, in another order, beside others, in pages or not. Their inputs have the
 * bits that they have in the problem which they come from. */
#ifndef FABENCH_ARRANGEMENT_H
#define FABENCH_ARRANGEMENT_H

#include "cmd/device/buffers.h"

/* Tensors of a set in host memory, where the device has them at the same strides; the arrays of the item. */
struct host_copy {
    struct attn_tensors tensors;
    void *memory[TENSOR_COUNT]; /* by enum problem_tensor, owned; NULL = not copied */
};

/* Copies those of these tensors that the set has buffers of. */
enum attn_status host_copy_make(struct backend *, const struct plan_item *, const struct tensor_set *,
                                const enum problem_tensor *, int count, struct host_copy *, struct attn_message *why);
void host_copy_free(struct host_copy *);

/* Its item and inputs point into it: it must stay where it is. */
struct arrangement {
    struct plan_item item;
    struct problem_arrays arrays; /* owned */
    struct tensor_set inputs;     /* owned */
};

/* Makes the forward problem of these sequences of `whole`, in this order (problem_take_sequences), and its inputs from
 * those of `whole`, a copy of all that it reads; `scales`: of its 8-bit inputs, as in struct tensor_set. *exists is
 * false, and nothing to be freed, where there is no such problem. arrangement_free frees what is there also after a
 * failure. */
enum attn_status arrangement_make(struct backend *, const struct plan_item *whole, const struct host_copy *inputs,
                                  float *const scales[QUANTISED_COUNT], const int64_t *sequences, int64_t count,
                                  int64_t page_size, struct arrangement *, bool *exists, struct attn_message *why);
void arrangement_free(struct backend *, struct arrangement *);

#endif
