/* fused_sm80, backward: the sparse kernels of wide heads, whose warps divide S and dP among them. The kernel and its
 * description: kernel.cuh.
 *
 * Half of the warps compute S, P and dV, the other half dP, dS and dK, each 32 keys x 32 queries of scores at a time,
 * where all warps computing both would have 32 x 16: that reads a quarter less of shared memory. A pair of warps,
 * one of each half, has the same scores: the first one gives P in fp32 to the second one, half of it in the place of
 * the second one's part of dS, half of it in a buffer of its own.
 *
 *   step i   first half:   S, P, to the pair's other warp, dV over own queries, dQ of step i - 1, barrier with those
 *                          warps that have the same keys, dV over their queries
 *            second half:  dQ of step i - 1, dP, P of the pair's other warp, dS, dK over own queries, the same barrier,
 *                          dK over the other queries */
#pragma once
#include "kernels/sm80/bwd/sparse.cuh"

namespace sm80_bwd {

using namespace device;

/* The tile of one half of the warps. All warps together compute dQ; its division here only has to be a possible one. */
template <typename Tile> struct HalfOf : Tile {
    static constexpr int WARPS_Q = Tile::WARPS_Q / 2, DQ_ROWS = 16, DQ_COLUMNS = Tile::HEAD_DIM % 128 == 0 ? 64 : 48,
                         CHUNK = 64;
};

/* 32 keys x 32 queries of P in fp32 on their way between two warps: 16 keys each from `first` and from `second` on, the
 * place of these scores in buffers like that of dS. */
struct SumsOnTheWay {
    uint32_t lane, first, second;
};

template <int N8> __device__ __forceinline__ void give_sums(const SumsOnTheWay &to, const Accumulator<2, N8> &sums)
{
    static_assert(N8 <= 8, "a row of scores in one panel");
#pragma unroll
    for (int n = 0; n < N8; ++n) {
        store_shared_float4((to.lane ^ n * 16) + to.first, sums.at[0][n]);
        store_shared_float4((to.lane ^ n * 16) + to.second, sums.at[1][n]);
    }
}

/* Multiplies `sums` with those. */
template <int N8> __device__ __forceinline__ void take_sums(const SumsOnTheWay &from, Accumulator<2, N8> &sums)
{
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int n = 0; n < N8; ++n) {
            const uint4 p = load_shared_128((from.lane ^ n * 16) + (m == 0 ? from.first : from.second));
            sums.at[m][n][0] *= __uint_as_float(p.x);
            sums.at[m][n][1] *= __uint_as_float(p.y);
            sums.at[m][n][2] *= __uint_as_float(p.z);
            sums.at[m][n][3] *= __uint_as_float(p.w);
        }
}

/* What a warp of a kernel that divides the scores computes: S and dV, or dP and dK. */
template <typename Tile, typename T> struct DividedWarp {
    using Half = HalfOf<Tile>;
    using S = Traits<Half>;
    static constexpr bool CALLS = false;
    static_assert(S::WARPS * 2 == Traits<Tile>::WARPS && Tile::WARP_KEYS == 32 && S::CHUNK_Q == S::WARP_Q,
                  "two halves");
    static_assert(!S::OWN_PANEL && S::DS_BUFFERS == 2, "of the tiles that it is compiled for");
    using OfV = typename S::OfV;
    union { /* dK of the second half, dV of the first one; where they are of one width both are in `dk` */
        Gradient<Half> dk;
        GradientOfV<Half> dv;
    };
    uint32_t warp;

    __device__ __forceinline__ bool has_dk() const { return S::V_IS_AS_WIDE || warp >= S::WARPS; }

    __device__ __forceinline__ void start(uint32_t index)
    {
        warp = index;
        if (has_dk())
            clear(dk);
        else
            clear(dv);
    }

    /* S or dP: the product over the columns of Q and K, or of V and dO. */
    template <typename Sums>
    __device__ __forceinline__ void multiply_columns(Sums &sums, const struct operand &a, const struct operand &b) const
    {
        if (S::V_IS_AS_WIDE || warp < S::WARPS)
            gemm_by_columns<Tile::HEAD_DIM / 16, T>(sums, a, b);
        else
            gemm_by_columns<Tile::V_HEAD_DIM / 16, T>(sums, a, b);
    }

    /* To dK or dV. */
    __device__ __forceinline__ void accumulate(const ScoreFragments<Half> &fragments, const struct operand &rows,
                                               uint32_t row16)
    {
        if (has_dk())
            gemm_registers<T>(dk, fragments, rows, row16, S::COLUMN16_STEP);
        else
            gemm_registers<T>(dv, fragments, rows, row16, OfV::COLUMN16_STEP);
    }

    template <typename Dq>
    __device__ __forceinline__ void step(const Smem<Tile> &s, const Params &params, const SparseBlock &block, int entry,
                                         int i, const Dq &dq)
    {
        const uint32_t lane = threadIdx.x % LANES, rows_16 = lane_rows_16(lane);
        const bool has_dp = warp >= S::WARPS;
        const uint32_t pair = warp % S::WARPS, warp_kv = pair / Half::WARPS_Q, warp_q = pair % Half::WARPS_Q;
        const uint32_t pair_barrier = 1 + pair;
        const uint32_t keys_barrier = 1 + S::WARPS + (has_dp ? Tile::WARPS_KV : 0) + warp_kv;
        /* Computed anew: head_dim 256 has no register in which the assembler could keep what follows from it. */
        const int stage = forget(i) & 1, query = static_cast<int>(warp_q) * S::WARP_Q;
        const uint32_t keys = warp_kv * Tile::WARP_KEYS * ROW_BYTES;
        const uint32_t q = shared_address(s.q[stage]), dout = shared_address(s.dout[stage]);
        const uint32_t ds = shared_address(s.ds[stage]) + keys, p = shared_address(s.ds[S::DS_BUFFERS]) + keys;
        const uint32_t last = shared_address(s.ds[S::DS_BUFFERS + (S::EXCHANGE ? 1 : 0)]) + keys;
        const uint32_t lse2 = shared_address(s.stats[stage]) + (query + lane % 4 * 2) * sizeof(float);
        const struct operand a = {rows_16, shared_address(has_dp ? s.v : s.k) + keys, S::KV_PANEL_BYTES};
        const struct operand rows =
            has_dk() ? own_columns<S>(rows_16, has_dp ? q : dout, warp_q) : own_columns<OfV>(rows_16, dout, warp_q);
        const struct operand scores = {rows_16, has_dp ? ds : p, 0};
        FamilyStep step = {};
        const bool is_whole = sees_all_of<Half>(step, params, block, entry, i, warp_kv, query, false);
        const bool any = is_whole || sees_any_of<Half>(step, params.family, 0);
        ScoreFragments<Half> fragments;

        if (has_dp)
            dq();
        const SumsOnTheWay way = {swizzle_128b(lane, query / 8), ds, last};
        Accumulator<2, S::WARP_Q / 8> sums;
        if (any) {
            if (has_dp)
                start_from_delta(sums, lse2 + Tile::Q * sizeof(float));
            else
                clear(sums);
            multiply_columns(sums, a, {lane_rows_8(lane), (has_dp ? dout : q) + query * ROW_BYTES, S::Q_PANEL_BYTES});
        } else {
            clear(sums);
        }
        if (has_dp) {
            if (any) {
                bar_sync(pair_barrier, 2 * LANES);
                take_sums(way, sums);
                __syncwarp();
            }
        } else if (any) {
            probabilities(sums, params.scale_log2, lse2);
            if (!is_whole)
                mask_family<2, S::WARP_Q / 8, false>(sums, params.family, step, 0);
            give_sums(way, sums);
            bar_arrive(pair_barrier, 2 * LANES);
        }
        pack_fragments<T>(fragments, sums);
        if (S::EXCHANGE || has_dp)
            store_fragments(scores, query / 16, fragments);
        if (any)
            accumulate(fragments, rows, query / 16);
        if (!has_dp)
            dq();
        if (S::EXCHANGE) {
            bar_sync(keys_barrier, Half::WARPS_Q * LANES);
#pragma unroll
            for (int other = 1; other < Half::WARPS_Q; ++other) {
                const int other_query = (warp_q ^ other) * S::WARP_Q;
                load_fragments(fragments, scores, other_query / 16);
                accumulate(fragments, rows, other_query / 16);
            }
        }
    }

    __device__ __forceinline__ void store(const Smem<Tile> &s, const Params &params, const BlockFacts &facts)
    {
        const bool has_dp = warp >= S::WARPS;
        const uint32_t pair = warp % S::WARPS, warp_kv = pair / Half::WARPS_Q, warp_q = pair % Half::WARPS_Q;
        const uint32_t keys = warp_kv * Tile::WARP_KEYS * ROW_BYTES;
        if (has_dk())
            round_gradient<S, T>(dk, has_dp ? params.scale : params.family.dropout.keep_factor,
                                 shared_address(has_dp ? s.k : s.v) + keys, warp_q);
        else
            round_gradient<OfV, T>(dv, params.family.dropout.keep_factor, shared_address(s.v) + keys, warp_q);
        __syncthreads();
        store_family_keys<Tile>(s, params, facts);
    }
};

} // namespace sm80_bwd
