/* What the two files of fused_sm90's backward share: fused_sm90_bwd.cu (the main kernel, its tiles, the functions of
 * fused_sm90.h) and fused_sm90_bwd_side.cu (the kernels before and after it). CUDA C++ only. */
#ifndef FABENCH_FUSED_SM90_BWD_H
#define FABENCH_FUSED_SM90_BWD_H

#include <cuda.h>
#include <cuda_runtime.h>

#include "kernels/attention.h"

namespace fused_sm90_bwd {

enum {
    LANES = 32,
    WARPGROUP = 128,
    SUM_FLOATS = 8192, /* of a tile of queries in dq_sum: 64 x 128 or 128 x 64 */
    SLAB_QUADS = 8,    /* of a warp's 16 x 64 of it, a quad being 16 x 8 */
    SLAB_FLOATS = 1024,
    KV_TILE = 128,
    PANEL_COLUMNS = 64,
    ROW_BYTES = 128 /* of a panel */,
    TILE_TURNS = 4 /* warps that add to a tile, each by turns of its own */
};

constexpr float LOG2_E = 1.44269504088896340736f;

/* The argument of every kernel. Tiles are numbered over all heads of q, q_tiles each. */
struct Arguments {
    CUtensorMap q, k, v, dout, dk, dv;
    struct attn_tensor o_rows, dout_rows, dq_rows;
    const float *lse;      /* [batch * q_heads, q_len] */
    float *stats;          /* [tiles][2][q_tile]: lse2 = LSE * log2 e, +inf where no key is seen and where no row is;
                              -D = -rowsum(dO * O) */
    float *dq_sum;         /* [tiles][8 slabs][8 quads]: a slab is the 16 x 64 of a warp (red_add.cuh) */
    int *turns;            /* [tiles][TILE_TURNS]: blocks of keys that have added a warp's slabs, of tiles that share a turn
                              at the first of them; NULL: in any order */
    int shift;             /* kv_len - q_len */
    int q_len, kv_len, q_heads, kv_heads, group;
    int q_tile, q_tiles, kv_tiles;
    int kv_heads_in_all;   /* batch * kv_heads */
    int section_heads;     /* kv heads whose blocks run side by side */
    float scale, scale_log2;
    bool causal;
};

/* Launches one of the three kernels; `name` goes to run->pass and into messages. `after`: may start before the kernel
 * before it has ended (grid_dependency.cuh). */
enum attn_status launch_kernel(void (*kernel)(Arguments), const char *name, int64_t blocks, int threads,
                               size_t smem_bytes, bool after, const Arguments &, const struct attn_run *,
                               struct attn_message *why);

/* Stats of every row, zeros in dq_sum and turns; and dQ = scale * dq_sum, rounded. */
enum attn_status launch_preprocess(const struct attn_problem *, const Arguments &, const struct attn_run *,
                                   struct attn_message *why);
enum attn_status launch_convert(const struct attn_problem *, const Arguments &, const struct attn_run *,
                                struct attn_message *why);

} // namespace fused_sm90_bwd

#endif
