/* What fused_sm90's kernels and their front (fused_sm90.c) tell each other.
 *
 * fused_sm90.c holds the attn_impl, checks what every kernel of it refuses alike, and hands the rest to
 * fused_sm90_fwd_host.c and fused_sm90_bwd.cu. Their functions are called only through the front, so
 *   - `accepts` sees a request that attn_check_request (checks.h) has accepted, on compute capability 9.0. It adds what
 *     depends on its tiles: the forced variant, shared memory, the number of tiles, its workspace;
 *   - `workspace_bytes`, `variant` and `launch` see only requests that `accepts` took;
 *   - `launch` sees tensors that attn_check_tensors has accepted and a workspace that is large enough.
 */
#ifndef FABENCH_FUSED_SM90_H
#define FABENCH_FUSED_SM90_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Forward: fused_sm90_fwd_host.c. */
enum attn_status fused_sm90_fwd_accepts(const struct attn_request *, struct attn_message *why);
size_t fused_sm90_fwd_workspace_bytes(const struct attn_request *);
const char *fused_sm90_fwd_variant(const struct attn_request *);
enum attn_status fused_sm90_fwd_launch(const struct attn_request *, const struct attn_tensors *,
                                       const struct attn_run *, struct attn_message *why);
extern const struct attn_variant fused_sm90_fwd_variants[]; /* terminated by a row without a name */

/* Backward: fused_sm90_bwd.cu. */
enum attn_status fused_sm90_bwd_accepts(const struct attn_request *, struct attn_message *why);
size_t fused_sm90_bwd_workspace_bytes(const struct attn_request *);
const char *fused_sm90_bwd_variant(const struct attn_request *);
enum attn_status fused_sm90_bwd_launch(const struct attn_request *, const struct attn_tensors *,
                                       const struct attn_run *, struct attn_message *why);
extern const struct attn_variant fused_sm90_bwd_variants[]; /* terminated by a row without a name */

/* The table's entry. */
extern const struct attn_impl attn_fused_sm90;

#ifdef __cplusplus
}
#endif
#endif
