/* --dump: writes the tensors of one problem as files, with a description. */
#ifndef FABENCH_DEVICE_TENSOR_DUMP_H
#define FABENCH_DEVICE_TENSOR_DUMP_H

#include "cmd/device/buffers.h"

/* Writes each tensor of the set that has a buffer as <dir>/<name>.npy, [batch, heads, len, head_dim] in C order (lse:
 * [batch, heads, len]), and <dir>/tensors.json, which describes each file: the tensor, the dtype it was computed in,
 * how the file stores it, the shape and its dimensions, and a line of NumPy that reads it as numbers. NumPy has no
 * bfloat16: DUMP_NATIVE stores its bits as 16-bit integers. DUMP_FP32 stores every tensor as float32, which changes no
 * value. --input reads both. The folder must exist. */
enum attn_status tensor_set_dump(struct backend *, const struct plan_item *, const struct tensor_set *, const char *dir,
                                 enum dump_dtype, struct attn_message *why);

#endif
