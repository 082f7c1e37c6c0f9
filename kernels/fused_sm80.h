/* What the two directions of fused_sm80 and their common front (fused_sm80.c) tell each other.
 *
 * fused_sm80.c holds the attn_impl, checks what both directions refuse alike, and hands the rest to
 * fused_sm80_fwd.cu and fused_sm80_bwd.cu. A direction's functions are called only through the front, so
 *   - `accepts` sees a request that fused_sm80_check_request has accepted: fp16 or bf16, head_dim 64 or 128, no
 *     window, no dropout, a finite scale above 0, kv_heads divides q_heads, sm >= 80. It adds what depends on its
 *     tiles: the forced variant, shared memory, the size of its grid, its workspace;
 *   - `workspace_bytes`, `variant` and `launch` see only requests that `accepts` took;
 *   - `launch` sees tensors that fused_sm80_check_tensors has accepted and a workspace that is large enough.
 */
#ifndef FABENCH_FUSED_SM80_H
#define FABENCH_FUSED_SM80_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills the message like printf and returns `status`, so that a check ends with `return fused_sm80_fail(...)`. */
enum attn_status fused_sm80_fail(struct attn_message *why, enum attn_status status, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;

/* What both directions ask of problem and device (see above). */
enum attn_status fused_sm80_check_request(const struct attn_request *, struct attn_message *why);

/* Every tensor that the mode uses is there, its pointer is on a 16-byte boundary (LSE: 4) and so is every stride of
 * a dimension longer than 1. */
enum attn_status fused_sm80_check_tensors(const struct attn_request *, const struct attn_tensors *,
                                          struct attn_message *why);

/* A one-dimensional grid of row_tiles * heads * batch blocks is within CUDA's limit of 2^31 - 1. */
enum attn_status fused_sm80_check_grid(int64_t row_tiles, int64_t heads, int64_t batch, struct attn_message *why);

/* Forward: fused_sm80_fwd.cu. */
enum attn_status fused_sm80_fwd_accepts(const struct attn_request *, struct attn_message *why);
size_t fused_sm80_fwd_workspace_bytes(const struct attn_request *);
const char *fused_sm80_fwd_variant(const struct attn_request *);
enum attn_status fused_sm80_fwd_launch(const struct attn_request *, const struct attn_tensors *,
                                       const struct attn_run *, struct attn_message *why);
extern const struct attn_variant fused_sm80_fwd_variants[]; /* terminated by a row without a name */

/* Backward: fused_sm80_bwd.cu. */
enum attn_status fused_sm80_bwd_accepts(const struct attn_request *, struct attn_message *why);
size_t fused_sm80_bwd_workspace_bytes(const struct attn_request *);
const char *fused_sm80_bwd_variant(const struct attn_request *);
enum attn_status fused_sm80_bwd_launch(const struct attn_request *, const struct attn_tensors *,
                                       const struct attn_run *, struct attn_message *why);
extern const struct attn_variant fused_sm80_bwd_variants[]; /* terminated by a row without a name */

/* The table's entry. */
extern const struct attn_impl attn_fused_sm80;

#ifdef __cplusplus
}
#endif
#endif
