/* Dropout's mask as a tensor in device memory, which the peer `cudnn` gives to cuDNN. */
#ifndef FABENCH_CUDNN_MASK_H
#define FABENCH_CUDNN_MASK_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the mask of `count` sequences: [count, q_heads, q_len, kv_len] of the problem's dtype, contiguous. */
size_t cudnn_mask_bytes(const struct attn_problem *, int64_t count);

/* Writes 1 for an element that is kept and 0 for one that is dropped, by attn_dropout_factor, and waits for it. number:
 * [count] in device memory, which of the problem's sequences each is; NULL = the first `count`. */
enum attn_status cudnn_mask_fill(const struct attn_problem *, int64_t count, const int32_t *number, void *mask,
                                 struct attn_message *why);

#ifdef __cplusplus
}
#endif
#endif
