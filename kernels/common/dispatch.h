/* What the CUDA implementations have in common on the host: an implementation is a check of the device and two
 * directions, and dispatch.c has the functions of struct attn_impl that follow from them. The file of an
 * implementation reads
 *
 *   static enum attn_status check_device(const struct attn_request *, struct attn_message *why) { ... }
 *   static const struct attn_dispatch dispatch = {check_device, {&fused_sm80_fwd, &fused_sm80_bwd}};
 *   ATTN_DISPATCH_FUNCTIONS(dispatch)
 *   const struct attn_impl attn_fused_sm80 = {.abi = ATTN_ABI, .name = "fused_sm80", ..., ATTN_DISPATCH_MEMBERS}; */
#ifndef FABENCH_DISPATCH_H
#define FABENCH_DISPATCH_H

#include "kernels/attention.h"
#include "kernels/common/tiles.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One direction (forward or backward) of an implementation. */
struct attn_direction {
    /* Sees a request that attn_check_request (checks.h) and the implementation's check have accepted. Adds what
     * depends on the tiles: a forced variant, shared memory, the number of tiles. The other functions see only what
     * it accepted. */
    enum attn_status (*accepts)(const struct attn_request *, struct attn_message *why);
    size_t (*workspace_bytes)(const struct attn_request *);
    /* Sees tensors that attn_check_tensors has accepted and a workspace that is large enough. */
    enum attn_status (*launch)(const struct attn_request *, const struct attn_tensors *, const struct attn_run *,
                               struct attn_message *why);
    const struct attn_tile_table *tiles;
};

struct attn_dispatch {
    enum attn_status (*check_device)(const struct attn_request *, struct attn_message *why);
    const struct attn_direction *directions[2]; /* by enum attn_mode */
};

enum { ATTN_MAX_VARIANTS = 32 };

enum attn_status attn_dispatch_accepts(const struct attn_dispatch *, const struct attn_request *,
                                       struct attn_message *why);
enum attn_status attn_dispatch_launch(const struct attn_dispatch *, const struct attn_request *,
                                      const struct attn_tensors *, const struct attn_run *, struct attn_message *why);
/* Fills the list of variants: those of the forward, those of the backward, a row without a name. */
void attn_dispatch_variants(const struct attn_dispatch *, struct attn_variant variants[ATTN_MAX_VARIANTS]);

/* The functions of an attn_impl, and its list of variants. The list is made once, when the program or library is
 * loaded: C cannot join the arrays of two files at compile time. */
#define ATTN_DISPATCH_FUNCTIONS(dispatch)                                                                              \
    static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)                      \
    {                                                                                                                  \
        return attn_dispatch_accepts(&dispatch, request, why);                                                         \
    }                                                                                                                  \
    static size_t workspace_bytes(const struct attn_request *request)                                                  \
    {                                                                                                                  \
        return dispatch.directions[request->mode]->workspace_bytes(request);                                           \
    }                                                                                                                  \
    static const char *variant(const struct attn_request *request)                                                     \
    {                                                                                                                  \
        return attn_chosen_variant(dispatch.directions[request->mode]->tiles, request);                                \
    }                                                                                                                  \
    static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *tensors,             \
                                   const struct attn_run *run, struct attn_message *why)                               \
    {                                                                                                                  \
        return attn_dispatch_launch(&dispatch, request, tensors, run, why);                                            \
    }                                                                                                                  \
    static struct attn_variant variants[ATTN_MAX_VARIANTS];                                                            \
    __attribute__((constructor)) static void fill_variants(void) { attn_dispatch_variants(&dispatch, variants); }

#define ATTN_DISPATCH_MEMBERS                                                                                          \
    .accepts = accepts, .workspace_bytes = workspace_bytes, .variant = variant, .launch = launch, .variants = variants

#ifdef __cplusplus
}
#endif
#endif
