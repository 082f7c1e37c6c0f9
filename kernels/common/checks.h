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

/* No attribute beyond dense attention; a CUDA device; fp16 or bf16, head_dim 64 or 128, a finite scale above 0, lengths
 * from 1 to 2^31 - 1, kv_heads divides q_heads. */
enum attn_status attn_check_request(const struct attn_request *, struct attn_message *why);

/* Every tensor that the mode uses is there, its pointer is on a 16-byte boundary (LSE: 4) and so is every stride of
 * a dimension longer than 1. */
enum attn_status attn_check_tensors(const struct attn_request *, const struct attn_tensors *, struct attn_message *why);

/* row_tiles * heads * batch are at most 2^31 - 1: blocks of a one-dimensional grid, or numbers of tiles. */
enum attn_status attn_check_grid(int64_t row_tiles, int64_t heads, int64_t batch, struct attn_message *why);

/* The workspace has at least `needed` bytes. */
enum attn_status attn_check_workspace(const struct attn_run *, size_t needed, struct attn_message *why);

#ifdef __cplusplus
}
#endif
#endif
