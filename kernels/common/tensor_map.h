/* CUtensorMap of a tensor for the copy engine (TMA) of sm_90 and newer, rank 4, made on the host. CUDA driver API,
 * "Tensor Map Object Management". */
#ifndef FABENCH_TENSOR_MAP_H
#define FABENCH_TENSOR_MAP_H

#include <cuda.h>

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Coordinates (column, row, head, batch) of t = [batch, heads, len, head_dim] in dtype (16 bits); a copy moves a panel
 * of 64 columns x box_rows (at most 256) rows, in shared memory rows of 128 bytes with the 128B swizzle. Refuses, with
 * the reason, a tensor that a map cannot describe; `name` is the tensor's. */
enum attn_status tensor_map_encode(CUtensorMap *map, const char *name, const struct attn_tensor *t,
                                   const struct attn_problem *problem, int64_t heads, int64_t len, int box_rows,
                                   struct attn_message *why);

#ifdef __cplusplus
}
#endif
#endif
