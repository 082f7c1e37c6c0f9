/* The products and the arithmetic of a KV warpgroup of the sm_90 backward. Scores are transposed: rows are this
 * warpgroup's keys, columns are queries. A thread has 4 scores of each 8 columns: in the order of a wgmma
 * accumulator (wgmma.cuh). */
#pragma once
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/barriers.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/slab.cuh"
#include "kernels/device/warp_matrix.cuh"
#include "kernels/device/wgmma.cuh"
#include "kernels/sm90/bwd/tiles.cuh"

namespace sm90_bwd {

using namespace device;

/* Registers for the first `steps` times 16 columns of a warp's rows of K or V. */
__host__ __device__ constexpr int operand_registers(int steps) { return steps > 0 ? 4 * steps : 1; }

/* Loads these columns as an A operand. */
template <typename Tile, int STEPS>
__device__ __forceinline__ void load_operand(uint32_t (&operand)[operand_registers(STEPS)], const unsigned char *keys,
                                             int warp_row, int lane)
{
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
        uint32_t chunk[4];
        ldmatrix_x4(chunk, shared_address(keys) + i / 4 * Traits<Tile>::KV_PANEL_BYTES + warp_row * ROW_BYTES +
                               swizzle_128b(lane % 16, i % 4 * 2 + lane / 16));
#pragma unroll
        for (int j = 0; j < 4; ++j)
            operand[4 * i + j] = chunk[j];
    }
}

/* Starts C = A B^T: A this warpgroup's keys of K or V, the first STEPS times 16 columns from registers; B the
 * queries. */
template <typename T, typename Tile, int STEPS>
__device__ __forceinline__ void start_scores(float (&c)[Traits<Tile>::SCORES],
                                             const uint32_t (&operand)[operand_registers(STEPS)], uint32_t keys,
                                             uint32_t queries)
{
    using S = Traits<Tile>;
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < Tile::HEAD_DIM / 16; ++step) {
        const int panel = step / 4, within = step % 4 * 32;
        const uint32_t b = queries + (panel * S::Q_PANEL_BYTES + within) / 16;
        if (step < STEPS)
            wgmma<T, Tile::Q_TILE>::template registers<WGMMA_K_MAJOR>(c, &operand[step < STEPS ? 4 * step : 0], b,
                                                                      step > 0);
        else
            wgmma<T, Tile::Q_TILE>::template shared<WGMMA_K_MAJOR, WGMMA_K_MAJOR>(
                c, keys + (panel * S::KV_PANEL_BYTES + within) / 16, b, step > 0);
    }
    wgmma_commit();
}

/* Starts C += A B, or C = A B: A is P^T or dS^T in registers, B the queries' dO or Q. */
template <typename T, typename Tile>
__device__ __forceinline__ void start_gradient(float (&c)[Traits<Tile>::GRADIENTS],
                                               uint32_t (&a)[Traits<Tile>::SCORES / 2], uint32_t queries,
                                               bool adds = true)
{
    wgmma_hold(c);
    wgmma_hold(a);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < Tile::Q_TILE / 16; ++step)
        wgmma<T, Tile::HEAD_DIM>::template registers<WGMMA_MN_MAJOR>(
            c, &a[4 * step], queries + step * (16 * ROW_BYTES / 16), adds || step > 0);
    wgmma_commit();
}

/* A thread's statistics of its first COUNT times 8 columns, loaded while the product that they are needed for still
 * runs. */
template <int COUNT> struct PrefetchedStats {
    float2 at[COUNT];
};

template <typename Tile> using FirstStats = PrefetchedStats<Tile::SCHEDULE.prefetched>;

template <typename Tile> __device__ __forceinline__ FirstStats<Tile> prefetch_stats(uint32_t stats)
{
    FirstStats<Tile> prefetched;
#pragma unroll
    for (int n = 0; n < Tile::SCHEDULE.prefetched; ++n)
        prefetched.at[n] = load_shared_float2(stats + n * 8 * sizeof(float));
    return prefetched;
}

/* P = exp2(scale_log2 S - lse2) in place (Dao et al. 2022, algorithm 4, line 13). MASKED: columns
 * that `visible` does not have, relative to this thread's first column, become 0; one for each of its two keys. */
template <bool MASKED, typename Columns, int SCORES, int COUNT>
__device__ __forceinline__ void scores_to_p(float (&s)[SCORES], uint32_t lse2, const PrefetchedStats<COUNT> &prefetched,
                                            float scale_log2, const Columns (&visible)[2])
{
#pragma unroll
    for (int n = 0; n < SCORES / 4; ++n) {
        const float2 lse = n < COUNT ? prefetched.at[n] : load_shared_float2(lse2 + n * 8 * sizeof(float));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float x = fmaf(s[4 * n + i], scale_log2, i % 2 ? -lse.y : -lse.x);
            s[4 * n + i] = exp2_approx(x);
            if (MASKED && !visible[i / 2].has(8 * n + i % 2))
                s[4 * n + i] = 0.0f;
        }
    }
}

/* S of a tile of queries to P in place. Only tiles at the edges of a mask and at the end of the keys need it.
 * first_key: the warpgroup's. */
template <typename Tile>
__device__ __forceinline__ void scores_to_visible_p(float (&s)[Traits<Tile>::SCORES], uint32_t lse2,
                                                    const FirstStats<Tile> &prefetched, const Params &params,
                                                    const typename Tile::Work::Bounds &bounds, int first_key, int tile,
                                                    int warp, int lane)
{
    using Work = typename Tile::Work;
    constexpr int GROUP_KEYS = Traits<Tile>::GROUP_KEYS;
    /* The query at which the diagonal meets this warpgroup's first key, counted from the tile's first. */
    const int diagonal = Work::diagonal(params, bounds, first_key, tile, Tile::Q_TILE);
    typename Work::Columns visible[2] = {};

    if (Work::is_cut(params, bounds, first_key, GROUP_KEYS, diagonal)) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = warp * 16 + lane / 4 + 8 * i;
            visible[i] = Work::visible(params, bounds, first_key, row, diagonal, lane % 4 * 2);
        }
        scores_to_p<true>(s, lse2, prefetched, params.scale_log2, visible);
    } else {
        scores_to_p<false>(s, lse2, prefetched, params.scale_log2, visible);
    }
}

/* dP - D of columns 8 n to 8 n + 7. `difference` may be `dp`. */
template <int SCORES, int COUNT>
__device__ __forceinline__ void subtract_delta(float (&difference)[SCORES], const float (&dp)[SCORES], int n,
                                               uint32_t neg_delta, const PrefetchedStats<COUNT> &prefetched)
{
    const float2 delta = n < COUNT ? prefetched.at[n] : load_shared_float2(neg_delta + n * 8 * sizeof(float));
#pragma unroll
    for (int i = 0; i < 4; ++i)
        difference[4 * n + i] = dp[4 * n + i] + (i % 2 ? delta.y : delta.x);
}

template <typename T, int SCORES>
__device__ __forceinline__ void pack(uint32_t (&pairs)[SCORES / 2], const float (&scores)[SCORES])
{
#pragma unroll
    for (int i = 0; i < SCORES / 2; ++i)
        pairs[i] = pack2<T>(scores[2 * i], scores[2 * i + 1]);
}

/* dS = P * (dP - D) of columns 8 n to 8 n + 7: replaces P, which is in fp16. */
template <typename T, int SCORES>
__device__ __forceinline__ void p_to_ds(uint32_t (&p_ds)[SCORES / 2], int n, const float (&difference)[SCORES])
{
#pragma unroll
    for (int i = 2 * n; i < 2 * n + 2; ++i) {
        const float2 pair = unpack2<__half>(p_ds[i]);
        p_ds[i] = pack2<T>(pair.x * difference[2 * i], pair.y * difference[2 * i + 1]);
    }
}

/* Has the copy engine store a warp's rows of dK or dV, which are at `rows` in shared memory (its 16 rows of each
 * panel). */
template <typename Tile>
__device__ __forceinline__ void send_gradient(uint32_t rows, const CUtensorMap *map, int row,
                                              const WorkTileOf<Tile> &work, int lane)
{
    using S = Traits<Tile>;
    async_proxy_fence();
    __syncwarp();
    if (lane == 0) {
#pragma unroll
        for (int panel = 0; panel < S::PANELS; ++panel)
            Tile::Work::store_once(map, rows + panel * S::KV_PANEL_BYTES, panel * PANEL_COLUMNS,
                                   Tile::Work::key_place(work, row));
        tma_store_commit();
    }
}

/* Where 16 columns of a warp's rows of dK or dV are in shared memory, for stmatrix. */
template <typename Tile> __device__ __forceinline__ uint32_t gradient_address(uint32_t rows, int columns_16, int lane)
{
    return rows + columns_16 / 4 * Traits<Tile>::KV_PANEL_BYTES +
           swizzle_128b(lane % 16, columns_16 % 4 * 2 + lane / 16);
}

/* Stores a warp's rows of dK or dV times `scale`: to shared memory at `rows`, from there by the copy engine to device
 * memory. */
template <typename T, typename Tile>
__device__ __forceinline__ void store_gradient(const float (&c)[Traits<Tile>::GRADIENTS], float scale, uint32_t rows,
                                               const CUtensorMap *map, int row, const WorkTileOf<Tile> &work, int lane)
{
    lane = forget(lane); /* addresses are computed here: kept ones would take registers of the steps */
#pragma unroll
    for (int i = 0; i < Traits<Tile>::GRADIENTS / 8; ++i) {
        uint32_t packed[4];
#pragma unroll
        for (int j = 0; j < 4; ++j)
            packed[j] = pack2<T>(c[8 * i + 2 * j] * scale, c[8 * i + 2 * j + 1] * scale);
        stmatrix_x4(gradient_address<Tile>(rows, i, lane), packed);
    }
    send_gradient<Tile>(rows, map, row, work, lane);
}

/* The same in two steps, with half the registers in between. */
template <typename T, int GRADIENTS>
__device__ __forceinline__ void pack_gradient(uint32_t (&packed)[GRADIENTS / 2], const float (&c)[GRADIENTS],
                                              float scale)
{
#pragma unroll
    for (int i = 0; i < GRADIENTS / 2; ++i)
        packed[i] = pack2<T>(c[2 * i] * scale, c[2 * i + 1] * scale);
}

template <typename Tile>
__device__ __forceinline__ void store_packed_gradient(const uint32_t (&packed)[Traits<Tile>::GRADIENTS / 2],
                                                      uint32_t rows, const CUtensorMap *map, int row,
                                                      const WorkTileOf<Tile> &work, int lane)
{
    lane = forget(lane);
#pragma unroll
    for (int i = 0; i < Traits<Tile>::GRADIENTS / 8; ++i) {
        const uint32_t chunk[4] = {packed[4 * i], packed[4 * i + 1], packed[4 * i + 2], packed[4 * i + 3]};
        stmatrix_x4(gradient_address<Tile>(rows, i, lane), chunk);
    }
    send_gradient<Tile>(rows, map, row, work, lane);
}

/* The same without the copy engine, one panel after the other: `rows` are 16 rows of 128 bytes, which may be used again
 * at once. */
template <typename T, typename Tile>
__device__ __forceinline__ void store_gradient_slabs(const float (&c)[Traits<Tile>::GRADIENTS], float scale,
                                                     uint32_t rows, const struct attn_tensor &tensor, int row,
                                                     const Params &params, const WorkTileOf<Tile> &work, int lane)
{
    const typename Tile::Work::KeyRows keys = Tile::Work::key_rows(params, work);
    T *to = static_cast<T *>(tensor.data) + keys.batch * tensor.stride_batch + work.kv_head * tensor.stride_head +
            (keys.first + row) * tensor.stride_row;

#pragma unroll
    for (int panel = 0; panel < Traits<Tile>::PANELS; ++panel) {
        float slab[SLAB_FLOATS_OF_LANE];
#pragma unroll
        for (int i = 0; i < SLAB_FLOATS_OF_LANE; ++i)
            slab[i] = c[panel * SLAB_FLOATS_OF_LANE + i];
        write_slab<T>(slab, scale, rows, to + panel * PANEL_COLUMNS, tensor.stride_row, keys.count - row, lane);
        __syncwarp();
    }
}

} // namespace sm90_bwd
