/* What the host side of fused_sm80's decode (host.c) and its kernels (kernel.cuh) share: the kernels' parameters and
 * the table of tiles. C and CUDA C++. */
#ifndef FABENCH_SM80_DECODE_PARAMS_H
#define FABENCH_SM80_DECODE_PARAMS_H

#include <stdbool.h>

#include <cuda_runtime_api.h>

#include "kernels/attention.h"
#include "kernels/common/dispatch.h"
#include "kernels/common/divisor.h"
#include "kernels/family/decode_work.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FUSED_SM80_DECODE_MOST_SLOTS = 16 /* of the circular buffer of K and V */ };

/* The parameter of every kernel. */
struct fused_sm80_decode_params {
    struct attn_tensor q, k, v, o; /* of k and v a page, or a sequence, is the batch */
    struct family_decode_shape shape;
    float *lse;                /* [batch, q_heads, q_len] */
    const int32_t *seqused_k;  /* [batch] */
    const int32_t *page_table; /* [batch, table_pages]; NULL = contiguous */
    const float *sink;         /* [q_heads]; NULL = none */
    int64_t table_pages;
    struct divisor page_size; /* 1 where the cache is contiguous */
    int box_shift;            /* 2^box_shift keys lie together: the greatest divisor of page_size and of a tile */
    int slots;                /* of the circular buffer */
    int q_heads, group;       /* group: query heads for each kv head */
    int window_right;         /* keys right of the diagonal that a row sees; kv_len = all */
    float scale_log2;         /* scale * log2(e) */
    /* The workspace. The counters are 0 at the start. */
    int *counters;     /* [2][slots]: parts of a group that have come; groups of an item */
    float4 *part_rows; /* [slot][heads * tokens]: row max (base 2), sum of P, sum of the rounded P */
    float *part_o;     /* [slot][heads * tokens][head_dim]: sum of P V */
};

typedef void (*fused_sm80_decode_kernel)(struct fused_sm80_decode_params);

/* A row in the table of tiles; the order is the preference. Its shared memory is that with the fewest slots. */
struct fused_sm80_decode_tile {
    struct attn_tile tile;
    int tile_keys, tile_rows, threads;
    int slot_bytes, least_slots;
    fused_sm80_decode_kernel kernels[2]; /* fp16, bf16 */
};

/* One array for each head_dim (instances/). */
extern const struct fused_sm80_decode_tile fused_sm80_decode_d64[], fused_sm80_decode_d128[], fused_sm80_decode_d256[];
extern const struct attn_tile_table fused_sm80_decode_tiles;

#ifdef __cplusplus
}
#endif
#endif
