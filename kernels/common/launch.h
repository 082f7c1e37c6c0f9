/* Launches of CUDA kernels that take one struct, and the tensor maps that they copy with. */
#ifndef FABENCH_LAUNCH_H
#define FABENCH_LAUNCH_H

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

struct attn_launch {
    const char *name;   /* for messages */
    const void *kernel; /* a __global__ function with one parameter */
    int64_t blocks;
    int threads;
    int cluster;            /* blocks of a cluster, which run at the same time; 0 or 1: no clusters */
    size_t smem_bytes;      /* dynamic shared memory of a block */
    bool is_pass;           /* run->pass is called first, with the name */
    bool overlaps_previous; /* may start before the previous kernel of the stream has ended: it waits for it itself
                                (kernels/device/grid_order.cuh). Not where run->pass is there: passes are timed. */
};

/* Raises the kernel's limit of shared memory where needed, launches it with a copy of *params, says what went wrong. */
enum attn_status attn_launch_kernel(const struct attn_launch *, const void *params, const struct attn_run *,
                                    struct attn_message *why);

/* Fills the message for a CUDA function that failed and clears the error, so that a later check does not find it
 * again. */
enum attn_status attn_cuda_failure(const char *call, cudaError_t error, struct attn_message *why);

/* CUtensorMap of a tensor for the copy engine (TMA) of sm_90 and newer, of rank 4, made on the host. CUDA driver API,
 * "Tensor Map Object Management". */

/* What a map describes: coordinates (column, row, head, batch) of t = [batch, heads, len, head_dim], whose elements
 * have 16 or 8 bits; of a paged cache pages are the batch. A copy moves a panel of 64 columns, of 8 bits 128, times
 * box_rows rows of box_heads heads (at most 256 each), in shared memory rows of 128 bytes with the 128B swizzle, those
 * of a head together; rows of 64 elements of 8 bits are rows of 64 bytes with the 64B swizzle. */
struct tensor_map_shape {
    enum attn_dtype dtype;
    int64_t head_dim, len, heads, batch;
    int box_rows, box_heads;
    /* One copy moves all panels of its rows, one behind the other, of one head. The map has rank 5, with coordinates
     * (0, row, 0, head, batch). */
    bool has_all_panels;
    /* What is copied is read once and comes from device memory: the second-level cache fetches what a copy asks for,
     * and not as well what lies beside it in the same 256 bytes, which would come twice. */
    bool is_read_once;
};

/* Refuses, with the reason, a tensor that a map cannot describe; `name` is the tensor's. */
enum attn_status tensor_map_encode_shape(CUtensorMap *map, const char *name, const struct attn_tensor *t,
                                         const struct tensor_map_shape *shape, struct attn_message *why);

/* The same with the problem's batch, head_dim and dtype, and boxes of one head. */
enum attn_status tensor_map_encode(CUtensorMap *map, const char *name, const struct attn_tensor *t,
                                   const struct attn_problem *problem, int64_t heads, int64_t len, int box_rows,
                                   struct attn_message *why);

enum { TENSOR_MAP_WRAP = 1 << 30, TENSOR_MAP_MOST_ROWS = 0x7fff0000 };

/* The same of rank 5, whose boxes end with a sequence: what lies behind it is read as zeros and not written.
 * Coordinates (column, row, head, end, wrap):
 *   fixed lengths   row: of the sequence; end: the batch; wrap: 0
 *   packed          a sequence has `len` rows from row `first` of the tensor on. row: TENSOR_MAP_WRAP - len + its row,
 *                   so that the dimension, which has TENSOR_MAP_WRAP rows, ends with the sequence; end: first + len;
 *                   wrap: TENSOR_MAP_WRAP. The address is that of row `first` + row: the last dimension's stride is
 *                   2^34 less a row's, and TENSOR_MAP_WRAP times 2^34 is 2^64, which addresses do not see. */
enum attn_status tensor_map_encode_ranges(CUtensorMap *map, const char *name, const struct attn_tensor *t,
                                          const struct attn_problem *problem, int64_t heads, int64_t len, int box_rows,
                                          struct attn_message *why);

#ifdef __cplusplus
}
#endif
#endif
