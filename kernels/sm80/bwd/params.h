/* What the files of fused_sm80's backward share: the host side (host.c), the main kernel
 * (kernel.cuh), the preprocess kernel and the kernel of the deterministic dQ
 * (preprocess_dq.cu). C and CUDA C++. */
#ifndef FABENCH_SM80_BWD_PARAMS_H
#define FABENCH_SM80_BWD_PARAMS_H

#include "kernels/attention.h"
#include "kernels/common/dispatch.h"
#include "kernels/sm80/bwd/places.h"
#include "kernels/sm80/bwd/zero_shares.h"
#include "kernels/sm80/family.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SM80_BWD_PREPROCESS_THREADS = 256, /* 8 elements of O and dO for each */
    SM80_BWD_DQ_TILE = 64,             /* queries of the deterministic dQ */
    SM80_BWD_DQ_THREADS = 128,
    SM80_BWD_DSINK_THREADS = 512,
    SM80_BWD_DBIAS_THREADS = 256, /* 4 keys of a row each */
    SM80_BWD_DROPOUT_BYTES = 5120 /* of shared memory that a kernel SparseDropout has beside its tile's, at most */
};

/* What the number of a block is divided by, of all kernels but the dense ones. */
struct fused_sm80_bwd_order {
    struct divisor section_blocks; /* section_heads * kv_tiles; 1 of packed sequences, which have a list */
    struct divisor section_heads;
    struct divisor last_heads; /* kv heads of the last section */
    struct divisor kv_heads;
};

/* dBias, where it is asked for. */
struct fused_sm80_dbias {
    float *sums;                              /* [1 or batch, heads, q_len, kv_len]; NULL: not asked for */
    int64_t sequence_elements, head_elements; /* of sums; 0 where they share them */
    int64_t heads;                            /* 1 where they share them */
    struct attn_tensor to;
};

/* The parameter of every kernel. */
struct fused_sm80_bwd_params {
    struct attn_tensor q, k, v, o, dout, dq, dk, dv;
    const float *lse;      /* [batch * q_heads, q_len] */
    float *stats;          /* [batch * q_heads, q_rows / q_tile, 2, q_tile]: lse2 = LSE * log2 e, +inf for rows that see
                              no key and for rows that pad; -D = -rowsum(dO * O) */
    float *dq_sum;         /* [batch * q_heads, q_rows * head_dim]: dQ / ds_scale in fp32, tile by tile in quads
                              (kernels/device/memory.cuh). NULL where a kernel of its own computes dQ */
    int64_t q_rows;        /* rows of a head in stats and dq_sum: q_len rounded up to SM80_BWD_ROW_STEP; of packed
                              sequences FAMILY_ROW_BLOCK for each row block of all of them */
    int64_t shift;         /* kv_len - q_len */
    int64_t kv_head_count; /* batch * kv_heads */
    int32_t q_len, kv_len, q_heads, kv_heads, group; /* group: query heads for each kv head */
    int32_t q_tile; /* queries of the main kernel's tile, a divisor of SM80_BWD_ROW_STEP */
    int32_t q_tiles, kv_tiles;
    int32_t section_heads; /* kv heads whose blocks run at the same time */
    float scale, scale_log2;
    float ds_scale;          /* what dQ and dK are multiplied with at the end */
    bool causal;             /* of dense attention; of the family it is in the windows */
    int32_t padded_head_dim; /* of the family: columns of a row of dq_sum */
    struct fused_sm80_family family;
    float lse2_less; /* by how much lse2 in stats is less: log2 of P's factor in kernels SparseDropout, else 0 */
    struct fused_sm80_bwd_order order;
    struct fused_sm80_bwd_zeros zeros;
    struct fused_sm80_bwd_pieces pieces;
    int64_t converted_rows; /* of dq_sum, the first ones, which pieces convert */
    /* Counters of sections, behind each other: of warps of the main kernel that have written their zeros for it,
     * [zeros.sections]; of blocks that have done their pieces of its lse2, -D and zeros, and of those that have added
     * all they have to its dQ, [pieces.sections] each. */
    int *zeroed, *stats_done, *dq_done;
    int32_t counters; /* all of these */
    struct fused_sm80_score score;
    float *dsink; /* [q_heads] */
    struct fused_sm80_dbias dbias;
};

typedef void (*fused_sm80_bwd_kernel)(struct fused_sm80_bwd_params);

struct fused_sm80_bwd_tile {
    struct attn_tile tile;
    int v_head_dim; /* tile.head_dim, or another one: then of these two alone */
    int q_tile, kv_tile, threads;
    bool has_pieces;                           /* whether its sparse kernels have them (places.h) */
    fused_sm80_bwd_kernel main[SM80_KINDS][2]; /* [bf16]; NULL where it is not compiled for that */
    fused_sm80_bwd_kernel dense_no_dq[2];      /* SM80_DENSE where a kernel of its own computes dQ */
    fused_sm80_bwd_kernel convert[2][2];       /* [family][bf16]: dQ = scale * dq_sum, rounded */
};

/* bwd/instances/: the tiles of a head_dim; each list ends with a row without a name. */
extern const struct fused_sm80_bwd_tile fused_sm80_bwd_d32[], fused_sm80_bwd_d64[], fused_sm80_bwd_d96[],
    fused_sm80_bwd_d128[], fused_sm80_bwd_d192[], fused_sm80_bwd_d256[], fused_sm80_bwd_d64x128[],
    fused_sm80_bwd_d192x128[];
extern const struct attn_tile_table fused_sm80_bwd_tiles; /* of all of them: bwd/host.c */
/* Of fixed lengths and head_dim 64 and 128, [bf16][head_dim 128], and of everything else, [bf16]. */
extern const fused_sm80_bwd_kernel fused_sm80_bwd_preprocess[2][2];
extern const fused_sm80_bwd_kernel fused_sm80_bwd_preprocess_rows[2];

extern const fused_sm80_bwd_kernel fused_sm80_bwd_dsink;
/* Zeros in the sums of dBias, and dBias from them, [fp16, bf16, fp32]. */
extern const fused_sm80_bwd_kernel fused_sm80_bwd_dbias_zeros, fused_sm80_bwd_dbias[3];

/* The deterministic dQ of a head_dim up to this, and V as wide, or of these two head dims alone. */
struct fused_sm80_bwd_dq_row {
    int head_dim, v_head_dim;
    size_t smem_bytes;
    fused_sm80_bwd_kernel kernels[3][2]; /* [dense, Family, Score][bf16] */
};
extern const struct fused_sm80_bwd_dq_row fused_sm80_bwd_dq[]; /* ends with a row of head_dim 0 */

#ifdef __cplusplus
}

namespace sm80_bwd {

using Params = fused_sm80_bwd_params;

constexpr int LANES = 32, ROW_STEP = SM80_BWD_ROW_STEP;

#ifdef __CUDACC__
/* Where lse2 of a row (counted over all heads, q_rows each) lies in stats; -D is q_tile further. */
__device__ __forceinline__ int64_t stats_index(const Params &params, int64_t row)
{
    return row / params.q_tile * (2 * params.q_tile) + row % params.q_tile;
}

template <typename T>
__device__ __forceinline__ T *head_pointer(const struct attn_tensor &tensor, int64_t batch, int64_t head)
{
    return static_cast<T *>(tensor.data) + batch * tensor.stride_batch + head * tensor.stride_head;
}

/* Differences of rows and columns within a tile fit; what is further away stays outside every tile. */
__device__ __forceinline__ int clamp_to_tile(int64_t value)
{
    return static_cast<int>(value < -1024 ? -1024 : value > 1024 ? 1024 : value);
}
#endif

} // namespace sm80_bwd
#endif

#endif
