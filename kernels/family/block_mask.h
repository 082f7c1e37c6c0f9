/* Block masks: a byte for each block of rows and keys, 0 where no pair of it is visible. C and CUDA C++. */
#ifndef FABENCH_FAMILY_BLOCK_MASK_H
#define FABENCH_FAMILY_BLOCK_MASK_H

#include "kernels/attention.h"
#include "kernels/common/divisor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct family_block_mask {
    const uint8_t *blocks;             /* device, [masks][row_blocks][key_blocks]; NULL: there is no mask */
    int64_t batch_stride, head_stride; /* in bytes; 0 where all share one mask */
    int32_t block;                     /* rows, and keys, of a block */
    int32_t row_blocks, key_blocks;    /* of the longest lengths */
    struct divisor block_by;           /* block; 1 without a mask */
};

struct family_block_mask family_block_mask_of(const struct attn_problem *, const struct attn_tensors *);

#ifdef __cplusplus
}
#endif
#endif
