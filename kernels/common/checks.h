/* What our fused CUDA kernels refuse alike, in the same words. */
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

/* A CUDA device; fp16 or bf16, head_dim 64 or 128, no window, no dropout, a finite scale above 0, lengths from 1 to
 * 2^31 - 1, kv_heads divides q_heads. */
enum attn_status attn_check_request(const struct attn_request *, struct attn_message *why);

/* Every tensor that the mode uses is there, its pointer is on a 16-byte boundary (LSE: 4) and so is every stride of
 * a dimension longer than 1. */
enum attn_status attn_check_tensors(const struct attn_request *, const struct attn_tensors *, struct attn_message *why);

/* row_tiles * heads * batch are at most 2^31 - 1: blocks of a one-dimensional grid, or numbers of tiles. */
enum attn_status attn_check_grid(int64_t row_tiles, int64_t heads, int64_t batch, struct attn_message *why);

/* What attn_impl asks of one direction. The functions see only requests that the implementation's front has accepted, and
 * `launch` only tensors and workspaces that attn_check_run has. */
struct attn_direction {
    enum attn_status (*accepts)(const struct attn_request *, struct attn_message *why);
    size_t (*workspace_bytes)(const struct attn_request *);
    const char *(*variant)(const struct attn_request *);
    enum attn_status (*launch)(const struct attn_request *, const struct attn_tensors *, const struct attn_run *,
                               struct attn_message *why);
};

/* The tensors are as attn_check_tensors wants them and the workspace is large enough for the direction. */
enum attn_status attn_check_run(const struct attn_direction *, const struct attn_request *, const struct attn_tensors *,
                                const struct attn_run *, struct attn_message *why);

/* Rows of both tables one after the other into joined[rows], which keeps a row without a name at its end: the contract
 * wants one array, and C cannot join two files' arrays before the program runs. */
void attn_join_variants(struct attn_variant *joined, size_t rows, const struct attn_variant *first,
                        const struct attn_variant *second);

#ifdef __cplusplus
}
#endif
#endif
