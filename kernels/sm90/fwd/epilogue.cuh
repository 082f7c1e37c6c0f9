/* The epilogue of the sm_90 forward: O / l and LSE = ln 2 (m + log2 l) of a work tile's rows. Where the product has
 * the sum of the rounded P (Traits::HAS_SUM_COLUMN), O is divided by that, or by l (1 + 1.1 r) where cancel_rounding
 * has corrected it before; otherwise by l with a correction for the rounding of the largest weight (softmax.cuh),
 * or of the largest one since correct_largest (rounding.cuh). A row that sees no key has l = 0: O = 0, LSE = -inf.
 * O goes to device memory through Q's stage. A part of a work tile (KeyPart) stores O in fp32, m and l to the
 * workspace instead.
 *
 * Where two warpgroups split the keys of the same rows, the first (split 0) sends its O, row max, row sum and largest
 * score through shared memory to the last, which combines both and writes. Each thread sends to the thread of the same
 * number, float4 by float4 with a distance of WARPGROUP. Nothing is overwritten that is still being read: there are
 * either two exchange buffers, used alternately like the stages of Q, or one that is written only after both have
 * finished the tile before. */
#pragma once

#include "kernels/device/barriers.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/device/warp_matrix.cuh"
#include "kernels/sm90/fwd/rounding.cuh"
#include "kernels/sm90/fwd/softmax.cuh"
#include "kernels/sm90/fwd/tiles.cuh"

namespace sm90_fwd {

/* The panel of ones beside V (Traits::HAS_SUM_COLUMN), in its first 8 columns, so that all threads of a quad have the
 * sum. All threads of a warpgroup call it. */
template <typename T, int COUNT> __device__ __forceinline__ void write_ones(uint16_t (&ones)[COUNT], int thread)
{
    uint32_t *const pairs = reinterpret_cast<uint32_t *>(ones);
    for (int i = thread; i < COUNT / 2; i += WARPGROUP)
        pairs[i] = i * 4 / 16 * 16 == swizzle_128b(i / (ROW_BYTES / 4), 0) ? pack2<T>(1.0f, 1.0f) : 0;
    async_proxy_fence();
}

/* Named barriers: 0 is __syncthreads, then one for each set of warpgroups with the same rows (a `team`: one warpgroup,
 * or one for each key split), then one for each warpgroup's ping-pong (mainloop.cuh). */
__device__ __forceinline__ int team_barrier(int team) { return 1 + team; }

/* Split 0: sends what it has of the tile to the last split. `exchange` is this thread's part of the buffer. */
template <typename Tile>
__device__ __forceinline__ void send_partial(float4 *exchange, int team, const float (&o)[Traits<Tile>::ACCUMULATORS],
                                             const RowState &rows)
{
    using S = Traits<Tile>;

    if constexpr (S::EXCHANGE_BUFFERS == 1)
        bar_sync_unaligned(team_barrier(team), 2 * WARPGROUP);
    exchange[0] = make_float4(rows.max_log2[0], rows.max_log2[1], rows.sum[0], rows.sum[1]);
#pragma unroll
    for (int i = 0; i < S::ACCUMULATORS / 4; ++i)
        exchange[(1 + i) * WARPGROUP] = make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]);
    if (!S::HAS_SUM_COLUMN)
        exchange[(1 + S::ACCUMULATORS / 4) * WARPGROUP] = make_float4(rows.top_log2[0], rows.top_log2[1], 0.0f, 0.0f);
    bar_sync_unaligned(team_barrier(team), 2 * WARPGROUP);
}

/* The largest weight of a row, 2^(top - m), and by how much rounding it to T changes it; both times `scale`, which is
 * what O and the row sum are multiplied with where key splits are combined, and 1 elsewhere. */
struct TopWeight {
    float weight, error;

    template <typename T> static __device__ __forceinline__ TopWeight of(float top_log2, float max_log2, float scale)
    {
        const float weight = exp2_approx(top_log2 - max_log2);
        return {weight * scale, (unpack2<T>(pack2<T>(weight, weight)).x - weight) * scale};
    }
};

/* Adds exp(sink) to what `lse` is the logarithm of; returns the share that the keys have of it. */
__device__ __forceinline__ float add_sink(float &lse, float sink)
{
    const float keys = lse;
    const bool is_less = keys < sink; /* a NaN stays one */
    const float larger = is_less ? sink : keys, smaller = is_less ? keys : sink;
    lse = larger + LN_2 * __log2f(1.0f + exp2_approx((smaller - larger) * LOG2_E));
    return exp2_approx((keys - lse) * LOG2_E);
}

/* Last split: completes the row sums, writes LSE (that of a part is overwritten by the kernel behind), and says what O
 * is to be multiplied with: `scale_own` (which contains 1 / what O is divided by, or 0 in a row that sees no key) for
 * that of this warpgroup, `scale_sent` for that of split 0, whose row max and row sum it waits for. `rows` has the sums
 * of whole rows afterwards. */
template <typename T, typename Tile>
__device__ __forceinline__ void finalize_rows(float (&scale_own)[2], float (&scale_sent)[2],
                                              const float (&o)[Traits<Tile>::ACCUMULATORS], RowState &rows,
                                              const float4 *exchange, const WorkTileOf<Tile> &tile,
                                              const Params &params, int team, int warp_row, SharedStorage<Tile> &smem)
{
    using S = Traits<Tile>;
    const int lane = threadIdx.x % 32, q_row = tile.first_row + warp_row + lane / 4;
    float *const lse = Tile::Work::lse(params, tile);
    TopWeight top[2];

    if constexpr (!S::HAS_SUM_COLUMN && Tile::KEY_SPLITS == 1) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
            top[half] = TopWeight::of<T>(rows.top_log2[half], rows.max_log2[half], 1.0f);
    }
    if constexpr (Tile::KEY_SPLITS == 2) {
        if constexpr (S::EXCHANGE_BUFFERS == 1)
            bar_sync_unaligned(team_barrier(team), 2 * WARPGROUP);
        bar_sync_unaligned(team_barrier(team), 2 * WARPGROUP);
        const float4 sent = exchange[0];
        const float max_log2[2] = {sent.x, sent.y}, sum[2] = {sent.z, sent.w};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float most = fmaxf(rows.max_log2[half], max_log2[half]);
            scale_own[half] = exp2_approx(rows.max_log2[half] - most);
            scale_sent[half] = exp2_approx(max_log2[half] - most);
            rows.sum[half] = rows.sum[half] * scale_own[half] + sum[half] * scale_sent[half];
            if constexpr (!S::HAS_SUM_COLUMN) {
                const float4 tops = exchange[(1 + S::ACCUMULATORS / 4) * WARPGROUP];
                const float top_sent = half == 0 ? tops.x : tops.y;
                top[half] = rows.top_log2[half] >= top_sent
                                ? TopWeight::of<T>(rows.top_log2[half], rows.max_log2[half], scale_own[half])
                                : TopWeight::of<T>(top_sent, max_log2[half], scale_sent[half]);
            }
            rows.max_log2[half] = most;
        }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float sum = quad_sum(rows.sum[half]);
        float added = sum; /* of P as it was added to O: set below */
        if constexpr (S::HAS_SUM_COLUMN) {
            added = o[S::OUTPUTS + 2 * half] * scale_own[half];
            if constexpr (Tile::KEY_SPLITS == 2) {
                const float4 column = exchange[(1 + S::OUTPUTS / 4) * WARPGROUP];
                added += (half == 0 ? column.x : column.z) * scale_sent[half];
            }
            if (cancels_rounding<T, Tile>(rows)) {
                __syncwarp(); /* a neighbour has written one of the two rows' */
                RowHistory row =
                    refer_to(rows.max_log2[half], smem.history[consumer_thread<Tile>(threadIdx.x & ~1) + half]);
                const float share = rounding_share(row, sum, added - row.added - sum);
                sum += row.sum;
                added = sum + sum * share;
            }
        } else {
            if (CORRECTS_LARGEST<T, Tile> && !has_lag<T>(rows, LAG_FIRST)) {
                /* The largest of the weights that have not been corrected yet, beside those that have. It is up to
                 * 2^64; its square is 0 where it is below about 2^-75. */
                const float2 squares = own_squares(smem);
                const float weight = fminf(top[half].weight, 0x1p60f), own = weight * weight;
                const float share = __fdividef(own, own + (half == 0 ? squares.x : squares.y));
                top[half] = own > 0.0f ? TopWeight{top[half].weight, top[half].error * share} : TopWeight{sum, 0.0f};
            }
            /* softmax.cuh. The quotient is between 0 and 1, where the product would be over 2^128. */
            added += top[half].error * rsqrtf(__fdividef(top[half].weight, sum));
        }
        const bool sees_none = sum == 0.0f; /* otherwise P of the row max is about 2^-30 or more, or NaN */
        const float inverse = sees_none ? 0.0f : __fdividef(1.0f, added);
        scale_own[half] *= inverse;
        if constexpr (Tile::KEY_SPLITS == 2)
            scale_sent[half] *= inverse;
        if constexpr (CORRECTS_LARGEST<T, Tile>) { /* nearer to 1, where the logarithm is more exact */
            constexpr int LESS_LOG2 = int(CORRECTED_MARGIN_LOG2 - FIRST_MARGIN_LOG2);
            rows.max_log2[half] -= LESS_LOG2;
            sum *= 1 << LESS_LOG2;
        }
        rows.sum[half] = sum;
        const bool is_row = lane % 4 == 0 && q_row + 8 * half < Tile::Work::q_len(params, tile);
        if constexpr (!Tile::Work::IS_DENSE) {
            float row_lse = sees_none ? -INFINITY : LN_2 * (rows.max_log2[half] + __log2f(sum));
            if (params.ranges.sinks != NULL)
                scale_own[half] *= add_sink(row_lse, params.ranges.sinks[tile.head]);
            if (is_row)
                lse[q_row + 8 * half] = row_lse;
        } else if (is_row) {
            lse[q_row + 8 * half] = sees_none ? -INFINITY : LN_2 * (rows.max_log2[half] + __log2f(sum));
        }
    }
}

/* Adds the O that split 0 has sent to that of this warpgroup. */
template <typename Tile>
__device__ __forceinline__ void combine_partial(float (&o)[Traits<Tile>::ACCUMULATORS], const float (&scale_own)[2],
                                                const float (&scale_sent)[2], const float4 *exchange)
{
#pragma unroll
    for (int i = 0; i < Traits<Tile>::OUTPUTS / 4; ++i) {
        const float4 sent = exchange[(1 + i) * WARPGROUP];
        o[4 * i] = o[4 * i] * scale_own[0] + sent.x * scale_sent[0];
        o[4 * i + 1] = o[4 * i + 1] * scale_own[0] + sent.y * scale_sent[0];
        o[4 * i + 2] = o[4 * i + 2] * scale_own[1] + sent.z * scale_sent[1];
        o[4 * i + 3] = o[4 * i + 3] * scale_own[1] + sent.w * scale_sent[1];
    }
}

/* Zeros in rows that see no key, as 0 times an infinite V is not 0. */
template <int OUTPUTS> __device__ __forceinline__ void clear_unseen_rows(float (&o)[OUTPUTS], const RowState &rows)
{
    if (__any_sync(WHOLE_WARP, rows.sum[0] == 0.0f || rows.sum[1] == 0.0f)) {
#pragma unroll
        for (int i = 0; i < OUTPUTS; ++i)
            if (rows.sum[i / 2 % 2] == 0.0f)
                o[i] = 0.0f;
    }
}

/* This warp's O, rounded, to Q's stage, which all warps of the team have read for the last time, and from there to
 * device memory by TMA, which does not write rows from q_len on. */
template <typename T, typename Tile>
__device__ __forceinline__ void store_output(const uint16_t *q_stage, const WorkTileOf<Tile> &tile,
                                             const Params &params, int warp_row,
                                             const float (&o)[Traits<Tile>::ACCUMULATORS])
{
    const int lane = threadIdx.x % 32;
    const uint32_t to = shared_address(q_stage) + warp_row * ROW_BYTES;
#pragma unroll
    for (int i = 0; i < Tile::HEAD_DIM / 16; ++i) {
        const uint32_t packed[4] = {pack2<T>(o[8 * i], o[8 * i + 1]), pack2<T>(o[8 * i + 2], o[8 * i + 3]),
                                    pack2<T>(o[8 * i + 4], o[8 * i + 5]), pack2<T>(o[8 * i + 6], o[8 * i + 7])};
        stmatrix_x4(to + i / 4 * Traits<Tile>::Q_PANEL_BYTES + (rows_first(lane) ^ i % 4 * 32), packed);
    }
    async_proxy_fence();
    __syncwarp();
    if (elect_one()) {
#pragma unroll
        for (int panel = 0; panel < Traits<Tile>::PANELS; ++panel)
            Tile::Work::store(&params.o, to + panel * Traits<Tile>::Q_PANEL_BYTES, panel * PANEL_COLUMNS,
                              Tile::Work::q_place(tile, tile.first_row + warp_row));
        tma_store_commit();
    }
}

/* Writes what a part of a tile has to its slot of the workspace, for the kernel behind. `row_in_work`: the warp's first
 * row, counted from the work tile's, which a pair has together. Rows from q_len on are written,
 * too, and not read. Row max and row sum are stored one by one: in a pair of registers they would need other registers
 * in the main loop, whose schedule the assembler then changes. */
template <typename Tile>
__device__ __forceinline__ void store_part(const float (&o)[Traits<Tile>::ACCUMULATORS], const float (&scale_own)[2],
                                           const RowState &rows, int slot, const Params &params, int row_in_work)
{
    const int lane = threadIdx.x % 32;
    const int64_t first_row = int64_t(slot) * Traits<Tile>::WORK_ROWS + row_in_work, row = first_row + lane / 4;
    float *const to = params.part_o + first_row * Tile::HEAD_DIM;
#pragma unroll
    for (int i = 0; i < Tile::HEAD_DIM / 8; ++i) {
        const float quad[4] = {o[4 * i] * scale_own[0], o[4 * i + 1] * scale_own[0], o[4 * i + 2] * scale_own[1],
                               o[4 * i + 3] * scale_own[1]};
        store_quad(to + i * QUAD_FLOATS, lane, quad);
    }
    if (lane % 4 == 0) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            params.part_max[row + 8 * half] = rows.max_log2[half];
            params.part_sum[row + 8 * half] = rows.sum[half];
        }
    }
}

/* Last split: writes O of a tile. */
template <typename T, typename Tile>
__device__ __forceinline__ void write_output(SharedStorage<Tile> &smem, int stage,
                                             float (&o)[Traits<Tile>::ACCUMULATORS], const float (&scale_own)[2],
                                             const float (&scale_sent)[2], const RowState &rows, const float4 *exchange,
                                             const WorkTileOf<Tile> &tile, const Params &params, int team, int warp_row)
{
    if constexpr (Tile::KEY_SPLITS == 1)
        rescale(o, scale_own);
    else
        combine_partial<Tile>(o, scale_own, scale_sent, exchange);
    clear_unseen_rows(o, rows);
    if constexpr (Tile::KEY_SPLITS == 1)
        bar_sync(team_barrier(Tile::HALVES == 1 ? team : threadIdx.x / WARPGROUP - 1),
                 WARPGROUP); /* all four warps have read Q for the last time */
    store_output<T, Tile>(smem.q[stage], tile, params, warp_row, o);
}

} // namespace sm90_fwd
