/* What the CUDA implementations have in common on the host: an implementation is a check of the device and two to four
 * directions, and dispatch.c has the functions of struct attn_impl that follow from them. The file of an
 * implementation reads
 *
 *   static enum attn_status check_device(const struct attn_request *, struct attn_message *why) { ... }
 *   static const struct attn_dispatch dispatch = {check_device, {&fused_sm80_fwd, &fused_sm80_bwd}, {RANGES}};
 *   ATTN_DISPATCH_FUNCTIONS(dispatch)
 *   const struct attn_impl attn_fused_sm80 = {.abi = ATTN_ABI, .name = "fused_sm80", ..., ATTN_DISPATCH_MEMBERS}; */
#ifndef FABENCH_DISPATCH_H
#define FABENCH_DISPATCH_H

#include "kernels/attention.h"
#include "kernels/common/checks.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The choice of a tile: every direction of a kernel has a table of tiles, each compiled for itself, best first. */

/* The head of a row in a list of tiles; the last row of a list has no name. */
struct attn_tile {
    struct attn_variant shown;
    int head_dim;
    int blocks_per_sm; /* thread blocks that should share a multiprocessor */
    size_t smem_bytes; /* of one block */
};

struct attn_tile_table {
    const char *direction;    /* "forward", "backward", "decode" or "8-bit forward", for messages */
    const void *const *lists; /* of rows of row_bytes each, which begin with struct attn_tile; NULL ends them */
    size_t row_bytes;
    /* Estimated time of a tile, in any unit. NULL: the rows are in the order of preference. */
    double (*time)(const struct attn_request *, const struct attn_tile *);
    /* Whether the row is compiled for the request's head_dim and attributes. NULL: the head_dim is the row's. */
    bool (*takes)(const struct attn_request *, const struct attn_tile *);
};

/* The row behind `tile` in the order of the lists, with NULL the first one; NULL: there are no more. */
const struct attn_tile *attn_next_tile(const struct attn_tile_table *, const struct attn_tile *tile);

/* The row that the request forces, or else the best of its head_dim: the one of the shortest estimated time; or the
 * first of which blocks_per_sm blocks fit on a multiprocessor, or else the first of which one fits. NULL with the
 * reason when there is none. */
const void *attn_choose_tile(const struct attn_tile_table *, const struct attn_request *, struct attn_message *why);

/* The name of that row, NULL when there is none. */
const char *attn_chosen_variant(const struct attn_tile_table *, const struct attn_request *);

static inline int64_t attn_max(int64_t a, int64_t b) { return a > b ? a : b; }

static inline int64_t attn_min(int64_t a, int64_t b) { return a < b ? a : b; }

static inline int64_t attn_round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

static inline int64_t attn_tiles(int64_t len, int64_t tile) { return (len + tile - 1) / tile; }

/* The directions of a kernel. */

/* Which direction a request is for: that of its enum attn_mode, or, where the implementation has one, a forward against
 * a cache (ATTN_CACHE), else one of 8-bit inputs. */
enum attn_direction_number {
    ATTN_DIRECTION_FWD,
    ATTN_DIRECTION_BWD,
    ATTN_DIRECTION_DECODE,
    ATTN_DIRECTION_8_BIT,
    ATTN_DIRECTIONS
};

/* One direction of an implementation. */
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
    /* The device, and what else is refused in all directions. */
    enum attn_status (*check_device)(const struct attn_request *, struct attn_message *why);
    /* decode and 8 bits may be NULL: then the forward sees those requests */
    const struct attn_direction *directions[ATTN_DIRECTIONS];
    struct attn_range ranges[ATTN_DIRECTIONS];
};

const struct attn_direction *attn_direction_of(const struct attn_dispatch *, const struct attn_request *);

enum { ATTN_MAX_VARIANTS = 128 }; /* of an implementation, all directions together, and the end of the list */

/* variants: how many the implementation has. With more than its list has room for it refuses every request. */
enum attn_status attn_dispatch_accepts(const struct attn_dispatch *, size_t variants, const struct attn_request *,
                                       struct attn_message *why);
enum attn_status attn_dispatch_launch(const struct attn_dispatch *, size_t variants, const struct attn_request *,
                                      const struct attn_tensors *, const struct attn_run *, struct attn_message *why);
/* Fills the list of variants: of each direction in its order, then a row without a name. Returns how many there
 * are, also where the list has no room for all. */
size_t attn_dispatch_variants(const struct attn_dispatch *, struct attn_variant variants[ATTN_MAX_VARIANTS]);

/* The functions of an attn_impl, and its list of variants. The list is made once, when the program or library is
 * loaded: C cannot join the arrays of two files at compile time. */
#define ATTN_DISPATCH_FUNCTIONS(dispatch) \
    static struct attn_variant variants[ATTN_MAX_VARIANTS]; \
    static size_t variant_count; \
    __attribute__((constructor)) static void fill_variants(void) \
    { \
        variant_count = attn_dispatch_variants(&dispatch, variants); \
    } \
    static enum attn_status accepts(const struct attn_request *request, struct attn_message *why) \
    { \
        return attn_dispatch_accepts(&dispatch, variant_count, request, why); \
    } \
    static size_t workspace_bytes(const struct attn_request *request) \
    { \
        return attn_direction_of(&dispatch, request)->workspace_bytes(request); \
    } \
    static const char *variant(const struct attn_request *request) \
    { \
        return attn_chosen_variant(attn_direction_of(&dispatch, request)->tiles, request); \
    } \
    static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *tensors, \
                                   const struct attn_run *run, struct attn_message *why) \
    { \
        return attn_dispatch_launch(&dispatch, variant_count, request, tensors, run, why); \
    }

#define ATTN_DISPATCH_MEMBERS \
    .accepts = accepts, .workspace_bytes = workspace_bytes, .variant = variant, .launch = launch, .variants = variants

#ifdef __cplusplus
}
#endif
#endif
