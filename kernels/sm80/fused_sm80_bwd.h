/* What the two files of fused_sm80's backward share: fused_sm80_bwd.cu (the main kernel, its tiles, the functions of
 * fused_sm80.h) and fused_sm80_bwd_side.cu (the kernels that do not depend on a tile). CUDA C++ only. */
#ifndef FABENCH_FUSED_SM80_BWD_H
#define FABENCH_FUSED_SM80_BWD_H

#include "kernels/sm80/fused_sm80.h"

namespace fused_sm80 {

enum {
    LANES = 32,
    ROW_STEP = 64 /* stats and dq_sum are padded to a multiple of this many queries */
};

constexpr float LOG2_E = 1.44269504088896340736f;

/* The argument of every kernel. */
struct bwd_args {
    struct attn_tensor q, k, v, o, dout, dq, dk, dv;
    const float *lse;      /* [batch * q_heads, q_len] */
    float *stats;          /* [batch * q_heads, q_rows / q_tile, 2, q_tile]: lse2 = LSE * log2 e, +inf where no key is
                              seen and where no row is; -D = -rowsum(dO * O) */
    float *dq_sum;         /* [batch * q_heads, q_rows * head_dim], tile by tile in quads; NULL = not wanted */
    int64_t q_rows;        /* q_len rounded up to ROW_STEP */
    int64_t shift;         /* kv_len - q_len */
    int64_t kv_head_count; /* batch * kv_heads */
    int32_t q_len, kv_len, q_heads, kv_heads, group;
    int32_t q_tile;        /* queries of the main kernel's tile, a divisor of ROW_STEP */
    int32_t q_tiles, kv_tiles;
    int32_t section_heads; /* kv heads whose blocks run side by side */
    float scale, scale_log2;
    bool causal;
};

/* Passes the name to run->pass, raises the kernel's limit of dynamic shared memory, launches it and says what went
 * wrong. */
enum attn_status launch_kernel(void (*kernel)(struct bwd_args), const char *name, int64_t blocks, int threads,
                               size_t smem_bytes, const struct bwd_args &args, const struct attn_run *run,
                               struct attn_message *why);

/* stats of every row and zeros in dq_sum. */
enum attn_status launch_preprocess(const struct attn_problem *, const struct bwd_args &, const struct attn_run *,
                                   struct attn_message *why);
int64_t preprocess_head_blocks(int64_t head_dim, int64_t q_rows); /* thread blocks of one head */

/* dQ from Q, K, V, dO and stats alone, every sum in a fixed order. */
enum attn_status launch_dq(const struct attn_problem *, const struct bwd_args &, const struct attn_run *,
                           struct attn_message *why);
size_t dq_smem_bytes(int64_t head_dim);

#ifdef __CUDACC__
/* Where lse2 of a row (counted over all heads, q_rows each) lies in stats; -D is q_tile further. */
__device__ __forceinline__ int64_t stats_index(const struct bwd_args &args, int64_t row)
{
    return row / args.q_tile * (2 * args.q_tile) + row % args.q_tile;
}

template <typename T>
__device__ __forceinline__ T *head_pointer(const struct attn_tensor &tensor, int64_t batch, int64_t head)
{
    return static_cast<T *>(tensor.data) + batch * tensor.stride_batch + head * tensor.stride_head;
}

/* Row and column differences within a tile fit; what is further away stays outside every tile. */
__device__ __forceinline__ int clamp_to_tile(int64_t value)
{
    return static_cast<int>(value < -1024 ? -1024 : value > 1024 ? 1024 : value);
}
#endif

} // namespace fused_sm80

#endif
