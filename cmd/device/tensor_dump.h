/* --dump: writes the tensors of one problem as files, with a description. */
#ifndef FABENCH_DEVICE_TENSOR_DUMP_H
#define FABENCH_DEVICE_TENSOR_DUMP_H

#include "cmd/device/buffers.h"

/* A part of the reference's results: contiguous fp32 tensors of `problem` on the device, which begins at these
 * sequences and heads of the whole one. */
struct dump_part {
    struct attn_problem problem;
    int64_t batch_offset, q_head_offset, kv_head_offset, row_offset;
    struct reference_outputs outputs;
};

struct dump_reference {
    const struct dump_part *parts;
    int count; /* 0 = there is none */
};

/* Writes each tensor of the set that has a buffer as <dir>/<name>.npy, [batch, heads, len, head_dim] in C order (lse:
 * [batch, heads, len]), and <dir>/tensors.json, which describes each file: the tensor, the dtype it was computed in,
 * how the file stores it, the shape and its dimensions, and a line of NumPy that reads it as numbers. NumPy has no
 * bfloat16: DUMP_NATIVE stores its bits as 16-bit integers. DUMP_FP32 stores every tensor as float32, which changes no
 * value. --input reads both. The folder must exist.
 *
 * The arrays of the problem come with them: cu_seqlens_q, cu_seqlens_k, seqused_k, page_table (int32), block_mask
 * (uint8), so that the problem can be computed from the files alone; --input makes them again from the description.
 *
 * Of each output of the problem's mode: where the set has it, also its difference from the reference, as
 * <name>_difference.npy (float32; 0 where both are -inf); where it has it not, the reference, as <name>_reference.npy.
 * Elements of which there is no part are NaN. NULL: neither.
 *
 * The object "problem" of tensors.json has the fields of problem_fields (cmd/problem/problem_key.h), from which
 * plan_add_dump makes the item again. */
enum attn_status tensor_set_dump(struct backend *, const struct plan_item *, const struct tensor_set *,
                                 const struct dump_reference *, const char *dir, enum dump_dtype,
                                 struct attn_message *why);

#endif
