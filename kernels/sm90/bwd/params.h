/* What the files of fused_sm90's backward share: the host side (host.c), the main kernel
 * (kernel.cuh), the kernels before and after it (preprocess.cu, postprocess.cu).
 * C and CUDA C++. */
#ifndef FABENCH_SM90_BWD_PARAMS_H
#define FABENCH_SM90_BWD_PARAMS_H

#include <cuda.h>

#include "kernels/attention.h"
#include "kernels/common/dispatch.h"
#include "kernels/family/lengths.h"
#include "kernels/family/softcap_near.h"
#include "kernels/family/tile_lists.h"
#include "kernels/family/window.h"
#include "kernels/family/work_order.h"
#include "kernels/sm90/bwd/geometry.h"
#include "kernels/sm90/head_dims.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SM90_BWD_THREADS = 384,                         /* of the main kernel */
    SM90_BWD_ROW_THREADS = 32 * SM90_BWD_ROW_WARPS, /* of preprocess and of convert */
    SM90_BWD_STORE_ROWS = 16,     /* rows of dK and dV that a warp stores: those of the boxes of maps dk and dv */
    SM90_BWD_PANEL_COLUMNS = 64,  /* of a panel in shared memory, see kernels/device/wgmma.cuh */
    SM90_BWD_TILE_SEMAPHORES = 4, /* one for each warp that adds to dq_sum */
};

/* One part of one tile of keys of one kv head, the work of a block of the main kernel for some time; or two tiles, the
 * work of a pair of blocks: kv_tile and, with the same steps, the next one. A step is a tile of queries of a query head
 * of the group, the last tile first. */
struct fused_sm90_bwd_work_tile {
    int batch, kv_head, kv_tile;
    int first_tile[2]; /* of queries that see the keys of a KV warpgroup (of kv_tile); q_tiles when none does */
    int first_head, begin_tile; /* of the first step; the head is counted in the group */
    int steps;       /* of the part; a tile has a step for each tile of queries that sees the first warpgroup's keys,
                        of all query heads of the group. Or one of the values below. */
    int part, parts; /* which part of how many */
    int number;      /* in the order of work */
    int section;     /* of kv heads; filled in where a block takes one work tile after the other. With it the size is a
                        multiple of 16 bytes, for the copy engine */
};

enum {
    SM90_BWD_NO_WORK = -1, /* steps: behind the last work tile */
    SM90_BWD_SKIPPED = -2, /* the tile of keys has fewer parts */
};

/* The parameter of every kernel. "Tiles" are tiles of queries of the main kernel, numbered over all query heads. A head
 * has q_tiles of them; in stats and dq_sum it has those of row_blocks row blocks (sm90_bwd_row_block_rows): where
 * two tiles make a block, the last one may not be used. */
struct fused_sm90_bwd_params {
    CUtensorMap q, k, v, dout, dk, dv;
    struct attn_tensor o_rows, dout_rows, dq_rows, dk_rows, dv_rows;
    const float *lse; /* [batch * q_heads, q_len] */
    float *stats;     /* [tiles][2][q_tile]: lse2 = LSE * log2 e - p_log2, +inf where a row sees no key or pads;
                            -D = -rowsum(dO * O) */
    float *dq_sum;    /* dQ / dqk_scale in fp32: [tiles][slabs][8 quads], a slab being the 16 x 64 part of a warp in the
                            order of its accumulator registers (kernels/device/memory.cuh) */
    int *dq_semaphores; /* [heads][row_blocks][SM90_BWD_TILE_SEMAPHORES]: how many blocks of keys have added their part
                            to a warp's slabs. Tiles that share a semaphore use that of the first of them. NULL:
                            additions go in any order */
    int shift;          /* kv_len - q_len */
    int q_len, kv_len, q_heads, kv_heads, group; /* group: query heads for each kv head */
    int q_tile, q_tiles, kv_tiles;               /* queries of a tile; tiles of a head */
    int kv_heads_total;                          /* batch * kv_heads */
    int section_heads;                           /* kv heads whose work tiles run at the same time */
    int cluster;    /* thread blocks that have a work tile together: as many tiles of keys, from kv_tile on */
    int head_works; /* work tiles of a kv head: kv_tiles / cluster, rounded up, times max_parts; with
                       SM90_BWD_WHOLE_PARTS as many as there are parts */
    int work_tiles; /* kv_heads_total * head_works, and the parts of the last ones (tail) but the first of each */
    /* Work tiles whose blocks take one after the other. */
    void *work;       /* [listed_tiles]: the work tiles, as the kernel's policy has them (Listed, policies.cuh), and one
                         without work behind them */
    int listed_tiles; /* 0 where a block has only the work tile of its own number */
    int early_tiles;  /* as many, from the first one on, whose blocks find out about the next one while they compute */
    int *taken;       /* how many have been taken beside the first one of each block, or pair */
    struct sm90_bwd_tail tail;
    struct sm90_bwd_zeros zeros;
    int *zeroed; /* [zeros.sections]: how many warps of the main kernel have written their zeros for a section */
    /* The steps of a tile of keys may be shared out to several blocks, its parts, where there are too few tiles to keep
     * all multiprocessors busy. Parts add up dK and dV in fp32. */
    float *kv_sums; /* a part's dV / dv_scale and dK / dqk_scale: [part][summed_tiles][2][128 x head_dim, as slabs];
                         NULL where no tile has more than one. A tile that has one part only is not written */
    int summed_tiles, summed_parts;    /* those of tail; otherwise batch * kv_heads * kv_tiles and max_parts */
    int part_steps;                    /* a tile with more steps has parts of at most about as many */
    int max_parts;                     /* of a tile */
    enum sm90_bwd_part_kind part_kind; /* how steps are shared out, and the order of parts */
    int whole_parts;                   /* of a kv head, with SM90_BWD_WHOLE_PARTS: those of part_steps steps */
    float scale_log2;                  /* scale of Q K^T, or with a softcap that, times log2 e */
    /* bf16: in the main kernel P is 2^p_log2 times what it is, because fp16, in which P is kept for dS, has few bits
     * for small weights. fp16: p_log2 is 0, as dS is in fp16, too, and would overflow. dV, dK and dQ are multiplied
     * with these factors at the end. */
    int p_log2;
    float dv_scale, dqk_scale; /* 2^-p_log2; the same times the scale of Q K^T */
    bool causal;
    bool prefetches; /* the kernel before brings Q, K and V to the second-level cache */
    int row_blocks;  /* for each head, of the kernels before and after */
    int stagger;     /* deterministic: work tiles by which a section of heads is further than the next one
                        (sm90_bwd_staggered_place); 0: one section after the other */
    /* Of kernels for ranges (ranges.cuh), whose maps are of tensor_map_encode_ranges. Packed: row_blocks are of all
     * sequences together (family_row_blocks), section_heads kv heads of all sequences. */
    struct family_window window;
    struct family_lengths lengths;
    struct family_work_order order;
    struct family_tile_lists lists; /* of kernels for block masks (lists.cuh), with `order` */
    /* Of kernels for a softcap (softcap.cuh). softcap_inner: that of struct family_softcap. */
    struct family_softcap_near softcap;
    float softcap_inner;
    int heads_of_block; /* packed: query heads of a block of the kernels before and after */
};

typedef void (*fused_sm90_bwd_kernel)(struct fused_sm90_bwd_params);

struct fused_sm90_bwd_tile {
    struct attn_tile tile;
    struct sm90_bwd_q_tile q;
    bool is_dense;                       /* otherwise windows and packed lengths */
    bool has_softcap;                    /* with either */
    bool has_lists;                      /* not dense: block masks in place of these */
    bool writes_zeros;                   /* work tiles write zeros in dq_sum, but those of packed sequences */
    size_t listed_bytes;                 /* of a work tile in the list (fused_sm90_bwd_params::work) */
    fused_sm90_bwd_kernel kernels[2][2]; /* [deterministic][bf16] */
};

/* bwd/instances/: the tiles of a head_dim; each list ends with a row without a name. */
extern const struct fused_sm90_bwd_tile fused_sm90_bwd_d64[], fused_sm90_bwd_d128[], fused_sm90_bwd_ranges[],
    fused_sm90_bwd_softcap[], fused_sm90_bwd_softcap_dense[], fused_sm90_bwd_lists[];
extern const struct attn_tile_table fused_sm90_bwd_tiles;                           /* of all of them: host.c */
extern const fused_sm90_bwd_kernel fused_sm90_bwd_preprocess[2][2][SM90_HEAD_DIMS]; /* [deterministic][bf16] */
extern const fused_sm90_bwd_kernel fused_sm90_bwd_convert[2][SM90_HEAD_DIMS];       /* [bf16] */
/* The same for packed sequences. */
extern const fused_sm90_bwd_kernel fused_sm90_bwd_preprocess_packed[2][SM90_HEAD_DIMS];
extern const fused_sm90_bwd_kernel fused_sm90_bwd_convert_packed[2][SM90_HEAD_DIMS];
/* Of windows and of block masks, where blocks take one work tile after the other. */
extern const fused_sm90_bwd_kernel fused_sm90_bwd_preprocess_windows[2][SM90_HEAD_DIMS];
extern const fused_sm90_bwd_kernel fused_sm90_bwd_preprocess_listed[2][SM90_HEAD_DIMS];

#ifdef __cplusplus
}

namespace sm90_bwd {

using Params = fused_sm90_bwd_params;

constexpr int LANES = 32, WARPGROUP = 128;
constexpr int KV_TILE = SM90_BWD_KV_TILE;
/* Queries of a row block, and elements of its dQ. */
template <int HEAD_DIM>
constexpr int ROW_BLOCK_ROWS = HEAD_DIM == 64 ? SM90_BWD_ROW_BLOCK_ROWS_D64 : SM90_BWD_ROW_BLOCK_ROWS_D128;
template <int HEAD_DIM> constexpr int ROW_BLOCK_FLOATS = ROW_BLOCK_ROWS<HEAD_DIM> *HEAD_DIM;
constexpr int SLAB_FLOATS = 1024, SLAB_QUADS = 8; /* a quad is 16 x 8 floats */
constexpr int PANEL_COLUMNS = SM90_BWD_PANEL_COLUMNS, ROW_BYTES = 2 * PANEL_COLUMNS;
constexpr int NO_WORK = SM90_BWD_NO_WORK, SKIPPED = SM90_BWD_SKIPPED;

} // namespace sm90_bwd
#endif

#endif
