/* 8-bit inputs for implementations that compute in fp32: copies of Q, K and V in which each element is multiplied by
 * its scale, and an O in fp32 that is rounded to its type at the end. */
#ifndef FABENCH_WIDEN_H
#define FABENCH_WIDEN_H

#include "kernels/attention.h"

/* The problem in fp32, and tensors whose q, k, v and o lie in the workspace of cpu_widen. */
struct cpu_widened {
    struct attn_problem problem;
    struct attn_tensors tensors;
};

/* ATTN_OK for fp32, and for the forward of 8-bit inputs whose O is fp16 or bf16; else refuses with a sentence. */
enum attn_status cpu_accepts_dtype(const struct attn_request *, struct attn_message *why);

/* Bytes of the copies, a multiple of 64; 0 where the inputs are fp32. */
size_t cpu_widened_bytes(const struct attn_problem *);

/* Makes the copies; the keys of a cache become contiguous. `memory`: cpu_widened_bytes on a multiple of 4. */
void cpu_widen(const struct attn_request *, const struct attn_tensors *, void *memory, struct cpu_widened *);

/* Rounds O into the tensors of the caller. */
void cpu_narrow(const struct attn_request *, const struct cpu_widened *, const struct attn_tensors *);

#endif
