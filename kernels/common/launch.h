/* Launches of CUDA kernels that take one struct. */
#ifndef FABENCH_LAUNCH_H
#define FABENCH_LAUNCH_H

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

#ifdef __cplusplus
}
#endif
#endif
