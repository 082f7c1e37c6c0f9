/* What the host side of fused_sm90's forward (host.c) and its kernels (kernel.cuh, and
 * combine.cu behind it) share: the kernels' parameters and the table of tiles. C and CUDA C++. */
#ifndef FABENCH_SM90_FWD_PARAMS_H
#define FABENCH_SM90_FWD_PARAMS_H

#include <stdbool.h>
#include <stddef.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "kernels/attention.h"
#include "kernels/common/dispatch.h"
#include "kernels/common/divisor.h"
#include "kernels/family/lengths.h"
#include "kernels/family/softcap_near.h"
#include "kernels/family/tile_lists.h"
#include "kernels/family/window.h"
#include "kernels/family/work_order.h"
#include "kernels/sm90/fwd/tail.h"
#include "kernels/sm90/head_dims.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FUSED_SM90_FWD_O_ROWS = 16,          /* rows of O that a warp stores: those of the box of map `o` */
    FUSED_SM90_FWD_COMBINE_THREADS = 256 /* of a block of the kernel behind */
};

/* Windows and lengths of sequences. */
struct sm90_fwd_ranges {
    struct family_lengths lengths;
    struct family_window window;
    struct family_work_order order;
    const float *sinks;       /* [q_heads], or NULL */
    int packed_section_heads; /* query heads whose work tiles run at the same time; whole groups */
};

/* Of Q K^T, with x = scale / softcap Q K^T (softcap.cuh). */
struct sm90_fwd_softcap {
    float inner;   /* e^2x is 2^(inner Q K^T) */
    float largest; /* up to this |Q K^T| tanh x is Q K^T times a polynomial in its square; -1: never */
    float odd[5];  /* its coefficients, the constant one first */
    struct family_softcap_near near;
    float near_limit_log2; /* that logit times log2(e) */
    float near_log2[3];    /* near.odd times softcap log2(e); NaN: no score is small */
};

/* The parameter of every kernel. The order of work tiles is in work.cuh. */
struct fused_sm90_fwd_params {
    CUtensorMap q, k, v, o;
    float *lse;        /* [batch, q_heads, q_len] */
    int *tile_counter; /* tiles taken beyond the first one of each block; NULL = each block has one tile */
    int q_len, kv_len, row_tiles;
    struct divisor q_heads, group; /* group: query heads for each kv head */
    struct divisor first_heads,
        section_heads;            /* query heads of the first section, which may be smaller, and of the others */
    struct divisor section_tiles; /* row_tiles * section_heads */
    /* row_tiles * batch * q_heads (packed: at most), and the parts of the last ones (tail) but the first of each */
    int tiles;
    float scale_log2; /* scale * log2(e); with a softcap softcap * log2(e) */
    bool causal;
    /* The last work tiles, if they have parts. A part has a slot of the workspace. A slab is a warp's 16 rows. */
    struct sm90_fwd_tail tail;
    struct divisor tail_works; /* tail.works, or 1 */
    int work_rows;             /* rows of a work tile */
    /* [slot][slab][head_dim / 8][16 x 8]: O of a part, divided by its row sums; 16 x 8 floats in the order of
     * accumulator registers (store_quad in kernels/device/memory.cuh). */
    float *part_o;
    float *part_max, *part_sum; /* [slot][work_rows]: row max, as in the softmax (softmax.cuh), and row sum */
    struct attn_tensor o_rows;  /* O, for the kernel behind */
    /* Of kernels for these (ranges.cuh); q, k, v, o are then as encode_rows in host.c says. */
    struct sm90_fwd_ranges ranges;
    union { /* of kernels that have one of them */
        struct sm90_fwd_softcap softcap;
        struct family_tile_lists lists; /* for block masks (lists.cuh), with ranges.order and its sinks */
    };
};

typedef void (*fused_sm90_fwd_kernel)(struct fused_sm90_fwd_params);

/* A tile that the forward can use, with what the choice among tiles needs to know. */
struct fused_sm90_fwd_tile {
    struct attn_tile tile;
    int block_m; /* rows of a thread block */
    int cluster; /* thread blocks that have a work tile together, of adjacent rows */
    int halves;  /* work tiles of a thread block at the same time */
    int threads; /* of a thread block */
    int block_n; /* keys of a pipeline stage */
    int cost;    /* time for a row and key, per cent of that of the first tile of the head_dim; of pairs under load */
    int start;   /* causal: time apart from the keys (loads, masks, output), in keys; a quarter of it without a mask */
    bool has_parts;                      /* work tiles without a mask may have parts */
    bool is_dense;                       /* otherwise windows and packed lengths */
    bool has_softcap;                    /* not dense */
    bool has_lists;                      /* not dense: block masks in place of these */
    fused_sm90_fwd_kernel kernels[2][2]; /* [causal][bf16] */
};

/* How many sections the heads are divided into (work.cuh): causal, so many that K and V of one take about a
 * quarter of the L2, of at most 1024 keys, where memory is the limit, an eighth; otherwise, as all tiles are equally
 * long, one for each kv head. docs/kernels/sm90_fwd.md. */
int64_t fused_sm90_fwd_sections(const struct attn_problem *, size_t l2_bytes);

/* Packed sequences: the query heads of a section (ranges.cuh), in each of which the longest work tiles come first. K
 * and V of all sequences, for these heads, take a quarter of the L2; but a section has about two work tiles of `rows`
 * rows for each place at least, as the longest of the last section would otherwise end the launch. */
int64_t fused_sm90_fwd_packed_section(const struct attn_problem *, int64_t rows, int64_t places, size_t l2_bytes);

/* Fills what follows from the request's shape and the rows of a work tile: lengths, heads, sections, causal. */
void fused_sm90_fwd_set_shape(struct fused_sm90_fwd_params *, const struct attn_request *, int block_m);

/* fwd/instances/: the tiles of a head_dim; each list ends with a row without a name. */
extern const struct fused_sm90_fwd_tile fused_sm90_fwd_d64[], fused_sm90_fwd_d128[], fused_sm90_fwd_ranges[],
    fused_sm90_fwd_lists[];
extern const struct attn_tile_table fused_sm90_fwd_tiles;                     /* of all of them: host.c */
extern const fused_sm90_fwd_kernel fused_sm90_fwd_combine[2][SM90_HEAD_DIMS]; /* [bf16] */

#ifdef __cplusplus
}
#endif
#endif
