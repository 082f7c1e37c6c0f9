/* fused_sm80, backward: FlashAttention-2's backward (Dao 2023, algorithm 2) for sm_80 and newer, with mma.sync,
 * ldmatrix and cp.async. Three kernels:
 *   preprocess     lse2 = LSE * log2 e and -D = -rowsum(dO * O) of every query; zeros in dq_sum, the fp32 sums of dQ,
 *                  or in those of the first heads alone: backward_main writes the others (zero_shares.h)
 *   backward_main  a block has KV keys of a kv head and goes through the tiles of Q queries of all query heads of its
 *                  group: recomputes P, keeps dK and dV in registers, adds its part of dQ to dq_sum
 *   convert_dq     dQ = scale * dq_sum, rounded
 * In the sparse kernels other blocks of backward_main do most of preprocess and of convert_dq (places.h).
 * With request.deterministic backward_main leaves out dQ and backward_dq (preprocess_dq.cu) replaces
 * convert_dq.
 *
 * A step, with keys as rows: S^T = K Q^T, P^T = exp2(scale_log2 S^T - lse2), dP^T - D = V dO^T - D, dS^T = P^T *
 * (dP^T - D), dV += P^T dO, dK += dS^T Q, dQ += dS K. A warp has 32 keys and multiplies 32 x 32 of S and of dP at a
 * time: P^T and dS^T leave the accumulators as A operands of dV and dK; only dS goes to shared memory, for dQ. At
 * head_dim 128 registers hold dK and dV of 32 keys x 64 columns: two warps have the same 32 keys, each has half of
 * the queries in S and half of the columns in dK and dV, and they exchange P and dS.
 *
 *   shared memory, d128_kv128q64 (KB):  K 32 | V 32 | Q 2 x 16 | dO 2 x 16 | dS 2 x 16 | P 16 | lse2, -D 2 x 0.5
 *                  d64_kv128q64:        K 16 | V 16 | Q 2 x 8  | dO 2 x 8  | dS 2 x 16 | -    | lse2, -D 2 x 0.5
 *   step i   all warps:   wait for stage i, barrier, start loading stage i + 1
 *            own queries: S, dP, P, dS (to shared memory), dV, dK
 *            all warps:   dQ of step i - 1 from the other buffer of dS, added to dq_sum; of eight warps, and of four
 *                         with one stage, half do this before their own queries
 *            pair (d128): barrier of two warps; dV, dK over the other warp's queries
 *   With one buffer of dS ("oneds") dQ of step i comes last, after a barrier of the block. With one stage ("1 stage")
 *   a barrier ends the step, and stage i + 1 is loaded then.
 *
 * What must not be reordered: dQ of the previous step comes before the barrier of the pair, where it hides the wait
 * for the other warp, or before the own queries, where it runs beside the other warp's exponentials. Lane offsets stay
 * apart from tile addresses (warp_gemm_sm80.cuh), so that the latter are uniform.
 *
 * dq_sum lies in the order of the accumulators (memory.cuh), so that a warp adds to whole lines. Rows without a key
 * and rows that pad have lse2 = +inf, hence P = 0; keys that pad and keys right of the diagonal are masked in a
 * second copy of the step that only boundary tiles run; a warp whose queries see none of its keys skips it. dK and
 * dV are sums of one block in a fixed order. Measurements, and the family (sparse.cuh, family.cuh):
 * docs/kernels/sm80.md. */
#pragma once
#include "kernels/sm80/bwd/divided.cuh"

namespace sm80_bwd {

using namespace device;

/* ---- Dense attention --------------------------------------------------------------------------------------------- */

/* dK and dV of this warp's keys, by way of the shared memory of K and V. */
template <typename Tile, typename T>
__device__ __forceinline__ void store_gradients(Gradient<Tile> &dk, Gradient<Tile> &dv, const Smem<Tile> &s,
                                                const Params &params, const WorkTile &work, int64_t first_key,
                                                uint32_t warp_kv, uint32_t warp_q, int keys)
{
    const uint32_t panel = warp_q * Traits<Tile>::KV_PANEL_BYTES + warp_kv * Tile::WARP_KEYS * ROW_BYTES;
    const int64_t key = first_key + warp_kv * Tile::WARP_KEYS;
    const int column = warp_q * PANEL_COLUMNS;
    store_rows(dk, params.scale, shared_address(s.k) + panel,
               head_pointer<T>(params.dk, work.batch, work.kv_head) + key * params.dk.stride_row + column,
               params.dk.stride_row, keys);
    store_rows(dv, 1.0f, shared_address(s.v) + panel,
               head_pointer<T>(params.dv, work.batch, work.kv_head) + key * params.dv.stride_row + column,
               params.dv.stride_row, keys);
}

/* ---- Main kernel ----------------------------------------------------------------------------------------------- */

template <typename Tile, typename T, typename Attributes>
__global__ void __launch_bounds__(Traits<Tile>::THREADS, Tile::BLOCKS_PER_SM)
    backward_main(const __grid_constant__ Params params)
{
    extern __shared__ __align__(1024) unsigned char s_bytes[];
    Smem<Tile> &s = *reinterpret_cast<Smem<Tile> *>(s_bytes);
    if constexpr (Attributes::FAMILY) {
        compute_family<Tile, T, Attributes>(params, s);
    } else if constexpr (Attributes::SPARSE) {
        if constexpr (Tile::DIVIDES_SCORES)
            compute_sparse<Tile, T, DividedWarp<Tile, T>>(params, s);
        else
            compute_sparse<Tile, T, SparseWarp<Tile, T, Attributes>>(params, s);
    } else {
        using S = Traits<Tile>;
        static_assert(S::V_IS_AS_WIDE, "loads and stores are of one width");
        constexpr bool DEFERRED = Attributes::WITH_DQ && Tile::DEFER_DQ,
                       AT_ONCE = Attributes::WITH_DQ && !Tile::DEFER_DQ;
        constexpr int WARP_KEYS = Tile::WARP_KEYS;
        const WorkTile work = work_tile_of_block(params);
        /* Read from lane 0 so that the compiler knows it to be uniform. */
        const uint32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / LANES, 0);
        const uint32_t warp_kv = warp / Tile::WARPS_Q, warp_q = warp % Tile::WARPS_Q, first_query = warp_q * S::WARP_Q;
        const int64_t first_key = static_cast<int64_t>(work.kv_tile) * Tile::KV;
        const int keys = clamp_to_tile(params.kv_len - first_key) - static_cast<int>(warp_kv) * WARP_KEYS;
        const uint32_t lane = threadIdx.x % LANES, rows_8 = lane_rows_8(lane), rows_16 = lane_rows_16(lane);
        int32_t first_tile = 0;
        if (params.causal && first_key > params.shift)
            first_tile = static_cast<int32_t>((first_key - params.shift) / Tile::Q);

        Cursor now = cursor_at(params, work, first_tile < params.q_tiles ? 0 : params.group, first_tile);
        Gradient<Tile> dk, dv;
        clear(dk);
        clear(dv);
        load_keys<Tile>(shared_address(s.k), params.k, work, first_key, params.kv_len);
        load_keys<Tile>(shared_address(s.v), params.v, work, first_key, params.kv_len);
        if (now.head < params.group)
            load_step(s, params, now, 0);
        cp_async_commit();
        if (Attributes::WITH_DQ)
            write_next_zeros<Tile>(params, warp);

        int32_t index_before = -1;
        int stage = 0;
        while (now.head < params.group) {
            const int32_t tile = now.tile, index = now.index;
            if constexpr (S::STAGES == 2)
                advance<Tile>(now, params, work, first_tile);
            cp_async_wait<0>();
            __syncthreads();
            if (S::STAGES == 2 && now.head < params.group)
                load_step(s, params, now, stage ^ 1);
            cp_async_commit();

            const auto dq_before = [&] {
                if (DEFERRED && index_before >= 0)
                    add_dq<Tile, T>(params.dq_sum, index_before, shared_address(s.ds[stage ^ 1]), shared_address(s.k),
                                    warp);
            };
            const bool is_dq_first = (S::WARPS == 8 || S::STAGES == 1) && warp >= S::WARPS / 2;
            if (is_dq_first)
                dq_before();
            const StepOperands at = operands_of(s, stage, warp_kv, warp_q, rows_8, rows_16);
            int diagonal = WARP_KEYS; /* this warp's key i sees its query j iff i - j <= diagonal */
            if (params.causal)
                diagonal = clamp_to_tile(static_cast<int64_t>(tile) * Tile::Q + params.shift - first_key) +
                           static_cast<int>(first_query - warp_kv * WARP_KEYS);
            if (diagonal >= WARP_KEYS - 1 && keys >= WARP_KEYS)
                accumulate_own<Tile, T, false, Attributes>(dk, dv, at, first_query, params, diagonal, keys,
                                                           FamilyStep());
            else if (diagonal > -S::WARP_Q)
                accumulate_own<Tile, T, true, Attributes>(dk, dv, at, first_query, params, diagonal, keys,
                                                          FamilyStep());
            else
                store_zeros<Tile>(at, first_query);

            if (!is_dq_first)
                dq_before();
            if (AT_ONCE)
                __syncthreads();
            else if (S::EXCHANGE)
                bar_sync(1 + warp_kv, Tile::WARPS_Q * LANES);
            if (S::EXCHANGE)
                accumulate_other<Tile, T>(dk, dv, at, (warp_q ^ 1) * S::WARP_Q);
            if (AT_ONCE)
                add_dq<Tile, T>(params.dq_sum, index, shared_address(s.ds), shared_address(s.k), warp);
            if constexpr (S::STAGES == 1) {
                __syncthreads();
                /* Registers are short: the work tile is found anew, here and at the end. */
                advance<Tile>(now, params, work_tile_of_block(params, forget(blockIdx.x)), first_tile);
                if (now.head < params.group)
                    load_step(s, params, now, 0);
                cp_async_commit();
            }
            index_before = index;
            stage ^= 1;
        }

        cp_async_wait<0>();
        __syncthreads();
        if (DEFERRED && index_before >= 0) {
            add_dq<Tile, T>(params.dq_sum, index_before, shared_address(s.ds[stage ^ 1]), shared_address(s.k), warp);
            __syncthreads();
        }
        if constexpr (S::STAGES == 1)
            store_gradients<Tile, T>(dk, dv, s, params, work_tile_of_block(params, forget(blockIdx.x)), first_key,
                                     warp_kv, warp_q, keys);
        else
            store_gradients<Tile, T>(dk, dv, s, params, work, first_key, warp_kv, warp_q, keys);
    }
}

/* ---- Convert: dQ = scale * dq_sum ------------------------------------------------------------------------------ */

/* One block per tile of queries, its warps placed as add_dq places them. */
template <typename Tile, typename T, typename Attributes>
__global__ void __launch_bounds__(Traits<Tile>::THREADS) convert_dq(const __grid_constant__ Params params)
{
    using S = Traits<Tile>;
    constexpr int M16 = Tile::DQ_ROWS / 16, N8 = Tile::DQ_COLUMNS / 8;
    __shared__ alignas(1024) unsigned char s_dq[S::Q_BYTES];
    const uint32_t warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const uint32_t warp_d = warp % S::DQ_WARPS_D, warp_q = warp / S::DQ_WARPS_D;
    const uint32_t tiles = Attributes::FAMILY ? static_cast<uint32_t>(params.q_rows / Tile::Q) : params.q_tiles;
    /* From the last row back: what the main kernel has added last is in the L2, and the first rows it may have
     * converted. */
    const uint32_t number = params.converted_rows / Tile::Q + gridDim.x - 1 - blockIdx.x;
    const int64_t head_index = number / tiles, tile = number % tiles;
    const float *dq_tile = params.dq_sum + (head_index * params.q_rows + tile * Tile::Q) * Tile::HEAD_DIM;

#pragma unroll
    for (int pass = 0; pass < S::DQ_PASSES; ++pass) {
        Accumulator<M16, N8> dq;
        Fragments<M16, N8 / 2> packed;
        const float *quad = dq_tile + (pass * S::WARPS + warp) * S::DQ_QUADS * QUAD_FLOATS;
#pragma unroll
        for (int m = 0; m < M16; ++m)
#pragma unroll
            for (int n = 0; n < N8; ++n) {
                load_quad(dq.at[m][n], quad + (m * N8 + n) * QUAD_FLOATS, lane);
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    dq.at[m][n][i] *= params.ds_scale;
            }
        pack_fragments<T>(packed, dq);
        const uint32_t first_row = (pass * S::DQ_WARPS_Q + warp_q) * Tile::DQ_ROWS;
        if constexpr (!Attributes::FAMILY) {
            const uint32_t first = shared_address(s_dq) + warp_d / 2 * S::Q_PANEL_BYTES + first_row * ROW_BYTES;
            store_fragments({lane_rows_16(lane), first, 0}, warp_d % 2 * 2, packed);
        } else {
            store_columns<S::Q_PANEL_BYTES>(shared_address(s_dq) + first_row * ROW_BYTES,
                                            S::DQ_IN_PANEL ? warp_d * (Tile::DQ_COLUMNS / 16) : warp_d,
                                            S::DQ_COLUMN16_STEP, packed);
        }
    }
    __syncthreads();
    if constexpr (Attributes::FAMILY) {
        const RowBlock block = row_block_at(params, head_index, tile * Tile::Q);
        store_panels<Tile::Q, Tile::HEAD_DIM, S::THREADS>(
            family_head(params, params.dq, block.sequence, block.sequence.q_first, block.head) +
                block.row * params.dq.stride_row,
            params.dq.stride_row, shared_address(s_dq), block.sequence.q_len - block.row, params.family.head_dim);
    } else {
        constexpr int ROW_CHUNKS = Tile::HEAD_DIM / 8;
        T *head = head_pointer<T>(params.dq, head_index / params.q_heads, head_index % params.q_heads);
#pragma unroll
        for (int index = threadIdx.x; index < Tile::Q * ROW_CHUNKS; index += S::THREADS) {
            const int row = index / ROW_CHUNKS, chunk = index % ROW_CHUNKS;
            const int64_t q_row = tile * Tile::Q + row;
            const uint32_t address = shared_address(s_dq) + chunk / 8 * S::Q_PANEL_BYTES + swizzle_128b(row, chunk % 8);
            if (q_row < params.q_len)
                store_once(reinterpret_cast<uint4 *>(head + q_row * params.dq.stride_row + chunk * 8),
                           load_shared_128(address));
        }
    }
}

/* Every tile of a head_dim with dense passes has this kernel of dense attention (has_dense_passes of the host),
 * whatever its main kernels are: with fixed lengths a window or a mask does not matter to dQ's sums. */
template <typename Tile, typename T> constexpr fused_sm80_bwd_kernel dense_convert()
{
    if constexpr ((Tile::HEAD_DIM == 64 || Tile::HEAD_DIM == 128) && Traits<Tile>::V_IS_AS_WIDE)
        return convert_dq<Tile, T, DenseDq>;
    else
        return NULL;
}

} // namespace sm80_bwd
