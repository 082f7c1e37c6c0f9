/* What the host side of fused_sm90's decode (host.c) and its kernels (kernel.cuh) share: the kernels' parameters and
 * the table of tiles. C and CUDA C++. */
#ifndef FABENCH_SM90_DECODE_PARAMS_H
#define FABENCH_SM90_DECODE_PARAMS_H

#include <stdbool.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "kernels/attention.h"
#include "kernels/common/dispatch.h"
#include "kernels/common/divisor.h"
#include "kernels/sm90/decode/ragged.h"
#include "kernels/family/decode_work.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The parameter of every kernel. */
struct fused_sm90_decode_params {
    CUtensorMap q, k, v; /* of k and v a page, or a sequence, is the batch */
    struct family_decode_shape shape;
    struct attn_tensor o;
    float *lse;                /* [batch, q_heads, q_len], packed [q_heads, total_q] */
    const int32_t *seqused_k;  /* [batch] */
    const int32_t *page_table; /* [batch, table_pages]; NULL = contiguous */
    const float *sink;         /* [q_heads]; NULL = none */
    int64_t table_pages;
    struct divisor page_size; /* 1 where the cache is contiguous */
    int box_rows;             /* keys of a copy: a divisor of page_size and of a tile */
    int q_heads, group;       /* group: query heads for each kv head */
    int cluster;              /* thread blocks of an item, where a cluster has it; else 0 */
    int window_right;         /* keys right of the diagonal that a row sees; kv_len = all */
    float scale_log2;         /* scale * log2(e) */
    /* Of packed rows: where they begin, and their number; NULL, 0 = they are not packed. */
    const int32_t *cu_seqlens_q;
    int64_t total_q;
    const float *scale_k, *scale_v; /* [batch, kv_heads], of an 8-bit cache; NULL = 1 */
    bool cache_is_e5m2;             /* of an 8-bit cache; otherwise it is e4m3 */
    int kv_heads;
    /* The workspace. The counters are 0 behind grid_wait_for_last. */
    int *counters;     /* [2][slots]: parts of a group that have come; groups of an item. In the invariant mode
                          [region][33]: leaves of a node; nodes of the item */
    float4 *part_rows; /* [slot][heads * tokens]: row max (base 2), sum of P, sum of the rounded P, and in the invariant
                          mode the number of leaves that are in it */
    float *part_o;     /* [slot][heads * tokens][head_dim]: sum of P V */
};

typedef void (*fused_sm90_decode_kernel)(struct fused_sm90_decode_params);

/* The parameter of the kernel that sets the counters to 0 (counters.cu). */
struct fused_sm90_decode_zeros {
    int *counters;
    int64_t count;
};

enum { FUSED_SM90_DECODE_ZERO_THREADS = 1024 };

extern const void *const fused_sm90_decode_zero_counters;

/* A row in the table of tiles; the order is the preference. */
struct fused_sm90_decode_tile {
    struct attn_tile tile;
    int tile_rows, tile_keys, threads;      /* tile_rows: query rows that it takes at most */
    bool has_clusters;                      /* a cluster of thread blocks for each item */
    bool is_8_bit;                          /* of a cache with 8 bits */
    fused_sm90_decode_kernel kernels[3][2]; /* rows alike, packed rows, invariant mode; fp16, bf16. NULL: none */
};

enum { FUSED_SM90_DECODE_ALIKE, FUSED_SM90_DECODE_PACKED, FUSED_SM90_DECODE_INVARIANT };

/* One array for each head_dim (instances/). */
extern const struct fused_sm90_decode_tile fused_sm90_decode_d64[], fused_sm90_decode_d128[], fused_sm90_decode_d256[];
extern const struct attn_tile_table fused_sm90_decode_tiles;

#ifdef __cplusplus
}
#endif
#endif
