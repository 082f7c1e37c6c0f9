/* Checks that all fused CUDA kernels share, and their messages. Nothing here calls CUDA. */
#ifndef FABENCH_CHECKS_H
#define FABENCH_CHECKS_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills the message like printf and returns `status`, so that a check ends with `return attn_fail(...)`. */
enum attn_status attn_fail(struct attn_message *why, enum attn_status status, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;

/* What an implementation computes beyond dense attention with head dims 64 and 128. All zeros: nothing. */
struct attn_range {
    unsigned attributes; /* attn_attribute bits */
    int max_head_dim;    /* every multiple of 8 up to here; 0 = 64 and 128 */
};

/* No attribute and no head_dim outside the range; a CUDA device; fp16 or bf16, a finite scale above 0, lengths from 1
 * to 2^31 - 1, kv_heads divides q_heads; a dropout below 1, a finite softcap from 0 on, blocks of a mask that are
 * multiples of 8. */
enum attn_status attn_check_request(const struct attn_request *, const struct attn_range *, struct attn_message *why);

/* Every tensor that the mode uses and every array of the attributes is there, its pointer is on a 16-byte boundary
 * (LSE and lengths: 4, a block mask: any) and so is every stride of a dimension longer than 1. */
enum attn_status attn_check_tensors(const struct attn_request *, const struct attn_tensors *, struct attn_message *why);

/* row_tiles * heads * batch are at most 2^31 - 1: blocks of a one-dimensional grid, or numbers of tiles. */
enum attn_status attn_check_grid(int64_t row_tiles, int64_t heads, int64_t batch, struct attn_message *why);

/* The workspace has at least `needed` bytes. */
enum attn_status attn_check_workspace(const struct attn_run *, size_t needed, struct attn_message *why);

#ifdef __cplusplus
}
#endif
#endif
