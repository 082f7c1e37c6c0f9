/* fused_sm80: its entry in the registry (fused_sm80.c) and its three directions (fwd/host.c, bwd/host.c,
 * decode/host.c; what the last two share with their kernels is in their params.h). C and CUDA C++. */
#ifndef FABENCH_FUSED_SM80_H
#define FABENCH_FUSED_SM80_H

#include "kernels/attention.h"
#include "kernels/common/dispatch.h"
#include "kernels/sm80/family.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct attn_direction fused_sm80_fwd, fused_sm80_bwd, fused_sm80_decode;
extern const struct attn_impl attn_fused_sm80;

/* What it says of its work (attn_work in kernels/attention.h; count_work.c): tiles of the tile configuration that the
 * request gets; FLOPs of dense attention with head_dim 64 and 128, backward not of request.deterministic, which has
 * another kernel for dQ. */
void fused_sm80_work(const struct attn_request *, struct attn_work *);

/* What the host side of the forward and its kernels (fwd/kernel.cuh) share. */

struct fused_sm80_strides {
    int64_t batch, head, row; /* in elements */
};

/* What the number of a block is divided by, of all kernels but the dense ones. */
struct fused_sm80_order {
    struct divisor q_heads, group;
    struct divisor section_blocks; /* group * row_tiles */
    struct divisor tail_heads;     /* heads_total - bulk_heads; 1 where there are none */
};

/* The parameter of every kernel. */
struct fused_sm80_fwd_params {
    const void *q, *k, *v; /* [batch, heads, len, head_dim] by strides */
    void *o;
    float *lse; /* [batch, q_heads, q_len] */
    struct fused_sm80_strides q_strides, k_strides, v_strides, o_strides;
    int q_len, kv_len, q_heads, group, row_tiles; /* group: query heads for each kv head */
    int heads_total, bulk_heads; /* batch * q_heads, and how many of them go head by head; the others go by length */
    float scale_log2;            /* scale * log2(e); with a softcap that in place of the scale */
    bool causal;                 /* of dense attention; of the family it is in the windows */
    struct fused_sm80_family family;
    struct fused_sm80_order order;
    struct fused_sm80_score score;
};

typedef void (*fused_sm80_fwd_kernel)(struct fused_sm80_fwd_params);

struct fused_sm80_fwd_tile {
    struct attn_tile tile;
    int v_head_dim; /* tile.head_dim, or another one: then of these two alone */
    int block_m, block_n, threads;
    fused_sm80_fwd_kernel kernels[SM80_KINDS][2]; /* [enum sm80_kind][bf16]; NULL where it is not compiled for that */
};

/* fwd/instances/: the tiles of a head_dim; each list ends with a row without a name. */
extern const struct fused_sm80_fwd_tile fused_sm80_fwd_d32[], fused_sm80_fwd_d64[], fused_sm80_fwd_d96[],
    fused_sm80_fwd_d128[], fused_sm80_fwd_d192[], fused_sm80_fwd_d256[], fused_sm80_fwd_d64x128[],
    fused_sm80_fwd_d192x128[];
extern const struct attn_tile_table fused_sm80_fwd_tiles; /* of all of them: fwd/host.c */

/* Which of a row's kernels serve a request. */
enum sm80_kind fused_sm80_fwd_kind(const struct fused_sm80_fwd_tile *, const struct attn_request *);

#ifdef __cplusplus
}
#endif
#endif
