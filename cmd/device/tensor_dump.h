/* --dump: the tensors of one problem as files, with a description beside them. */
#ifndef FABENCH_DEVICE_TENSOR_DUMP_H
#define FABENCH_DEVICE_TENSOR_DUMP_H

#include "cmd/device/buffers.h"

/* Writes each tensor of the set that has a buffer as <dir>/<name>.npy, [batch, heads, len, head_dim] in C order (lse:
 * [batch, heads, len]), and <dir>/tensors.json, which says of each file: the tensor, the dtype it was computed in, how
 * the file stores it, the shape and what its dimensions are, and a line for NumPy that gives numbers. NumPy has no
 * bfloat16: DUMP_NATIVE stores its bits as 16-bit integers. DUMP_FP32 stores every tensor as float32, which changes no
 * value. Either can be read back by --input. The folder is there. */
enum attn_status tensor_set_dump(struct backend *, const struct plan_item *, const struct tensor_set *, const char *dir,
                                 enum dump_dtype, struct attn_message *why);

#endif
