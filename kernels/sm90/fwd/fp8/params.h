/* What the host side of fused_sm90's 8-bit forward (host.c) and its kernels (kernel.cuh) share. C and CUDA C++. */
#ifndef FABENCH_SM90_FWD_FP8_PARAMS_H
#define FABENCH_SM90_FWD_FP8_PARAMS_H

#include "kernels/sm90/fwd/params.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where the scales of one of Q, K, V lie: of sequence b, head h and block number n at b * batch + h * head + n. With
 * one scale for all, or for each pair of sequence and kv head, there are no blocks, and h is the kv head. */
struct sm90_fp8_scales {
    int batch, head;
};

/* The parameter of every kernel. */
struct fused_sm90_fp8_params {
    /* Q, K, V and O, lengths, the order of work tiles; maps of Q, K and V are of 8 bits. No work tile has parts. */
    struct fused_sm90_fwd_params dense;
    const float *scales_of_q, *scales_of_k, *scales_of_v;
    struct sm90_fp8_scales scale_q, scale_kv; /* of the arrays of Q, and of those of K and V */
    struct divisor scale_rows;                /* rows of Q for each scale, where there are blocks */
    struct divisor scale_blocks;              /* the same of K and V in blocks of keys of the tile */
    bool has_bf16_output;
};

typedef void (*fused_sm90_fp8_kernel)(struct fused_sm90_fp8_params);

/* A tile, with what the choice among tiles needs to know; as in struct fused_sm90_fwd_tile. */
struct fused_sm90_fp8_tile {
    struct attn_tile tile;
    int block_m, threads, block_n, cost, start;
    fused_sm90_fp8_kernel kernels[2][2][2]; /* [e5m2][scales of blocks][fast]; where that is no faster, sums in fp32 */
};

/* fp8/instances/: the tiles of a head_dim; each list ends with a row without a name. */
extern const struct fused_sm90_fp8_tile fused_sm90_fp8_d64[], fused_sm90_fp8_d128[];
extern const struct attn_tile_table fused_sm90_fp8_tiles; /* of all of them: host.c */

#ifdef __cplusplus
}
#endif
#endif
