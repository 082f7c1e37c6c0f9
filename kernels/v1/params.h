/* What the host side of fused_v1 (fused_v1.c) and its kernels (fwd.cu, bwd.cu) share. C and CUDA C++. */
#ifndef FABENCH_V1_PARAMS_H
#define FABENCH_V1_PARAMS_H

#include "kernels/attention.h"
#include "kernels/common/dispatch.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    V1_ROWS = 16,             /* of Q in a step of the inner loop */
    V1_ROW_STEP = 32,         /* rows of a head in the workspace are a multiple of this */
    V1_FWD_WARPS = 4,         /* of a block; each has a part of the keys */
    V1_BWD_WARPS = 8,         /* likewise */
    V1_FWD_BLOCKS_PER_SM = 2, /* that fit on a multiprocessor: by registers */
    V1_BWD_BLOCKS_PER_SM = 1,
    V1_PASS_THREADS = 256 /* of a block of the kernels around the backward; 8 elements for each */
};

/* Keys of a step of the outer loop. */
#define V1_KEYS(head_dim) ((head_dim) == 64 ? 256 : 128)

/* The parameter of every kernel. */
struct fused_v1_params {
    struct attn_tensor q, k, v, o, dout, dq, dk, dv;
    float *lse;                   /* [batch * q_heads, q_len] */
    float *sum;                   /* [batch * q_heads, q_rows, head_dim]: O so far; backward, dQ / scale so far */
    float *rows;                  /* forward [batch * q_heads, q_rows, 2]: the running m and l of a row;
                                                      backward [2, batch * q_heads, q_rows]: LSE to the base 2, and D */
    int64_t q_rows;               /* q_len rounded up to V1_ROW_STEP */
    int32_t q_len, kv_len, shift; /* shift: kv_len - q_len */
    int32_t q_heads, kv_heads, group,
        heads_total;         /* group: query heads for each kv head; heads_total: batch * q_heads */
    int32_t splits;          /* forward: blocks that share the rows of a head; backward: its keys */
    float scale, scale_log2; /* scale_log2: scale * log2(e) */
    bool causal;
};

typedef void (*fused_v1_kernel)(struct fused_v1_params);

struct fused_v1_tile {
    struct attn_tile tile;
    fused_v1_kernel kernels[2], preprocess[2], convert[2]; /* [bf16]; the forward has the first alone */
};

/* fwd.cu, bwd.cu: head_dim 64 and 128; each list ends with a row without a name. */
extern const struct fused_v1_tile fused_v1_fwd_list[], fused_v1_bwd_list[];

#ifdef __cplusplus
}
#endif
#endif
