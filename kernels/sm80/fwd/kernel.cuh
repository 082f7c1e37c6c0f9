/* fused_sm80, forward: FlashAttention-2's algorithm (Dao 2023, algorithm 1) on mma.sync and cp.async.
 *
 * A block has BLOCK_M rows of one head and goes over the keys in tiles of BLOCK_N. Each warp has 16 or 32 whole rows:
 * their scores, probabilities and output never leave its registers, and row statistics need four lanes only.
 *
 *   S = Q K^T                        mma m16n8k16, Q and K fragments by ldmatrix
 *   c = scale * log2(e)
 *   m' = max(m, c * rowmax(S))       only if that is more than 8 above m; else m' = m
 *   P = 2^(c S - m')                 one FFMA and one ex2 for each element, rounded to 16 bits
 *   O = 2^(m - m') O + P V           rescaled only where the max of some row of the warp changed
 *   l = 2^(m - m') l + rowsum(P)     a lane keeps the sum of its own columns until the end
 *   at the end O / l, LSE = ln 2 * (m + log2 l); a row without a key has l = 0: O = 0, LSE = -inf
 *
 * A max that is too small by up to 8 keeps P below 2^8 and cancels at the end, as O and l use the same m.
 *
 * Shared memory has two stages: while tile n is computed from one, tile n + 1 is copied to the other. One barrier for
 * each tile says both that n has arrived and that all warps have finished with n - 1.
 *
 *   | Q, O at the end | K stage 0 | K stage 1 | V stage 0 | V stage 1 |
 *
 * An array is panels of 64 columns, a panel is rows of 128 bytes with the 128B XOR swizzle (device/warp_matrix.cuh).
 *
 * What must not be reordered: the copies of the next tile are issued between Q K^T and the row maxima, where the load
 * units are idle; the ex2 of 16 keys are issued before P V of the 16 keys before them. Measurements:
 * docs/kernels/sm80.md.
 *
 * Only the last steps, with the diagonal or the end of the keys, have masks; a warp skips tiles that none of its rows
 * sees. Rows past q_len and keys past kv_len are filled with zeros and masked.
 *
 * Order of blocks: head by head, the query heads of a kv head together, so that K and V stay in the L2. Causal: the
 * last rows of a head, which are the longest, first; the last heads, four waves of blocks, together by length, so that
 * short blocks fill the gaps at the end.
 *
 * The family (docs/kernels/sm80.md) is in instantiations with the attributes `Window` (window.cuh), `Sparse`
 * (sparse.cuh), `Family` and `Score`: compute_family. */
#pragma once
#include <type_traits>

#include "kernels/sm80/fwd/sparse.cuh"
#include "kernels/sm80/fwd/window.cuh"

namespace sm80_fwd {

/* ---- the kernel ----------------------------------------------------------------------------------------------- */

/* How many keys, from key 0 on, row `row` sees; rows past the end see what the last one sees. */
__device__ __forceinline__ int visible_keys(const Params &params, int64_t row)
{
    const int64_t end = (row < params.q_len ? row : params.q_len - 1) + params.kv_len - params.q_len + 1;
    return !params.causal ? params.kv_len : end < 0 ? 0 : int(end);
}

/* store_output with addresses that are computed where they are used: with that function ptxas keeps values of the loops
 * before it in local memory. */
template <typename T, typename Tile>
__device__ __forceinline__ void store_dense_output(const Accumulators<Tile> &acc, const Params &params,
                                                   const WorkTile &work, uint16_t *s_o)
{
    constexpr int CHUNKS = Traits<Tile>::CHUNKS, ROWS_AT_ONCE = WARP / CHUNKS; /* of one store of a warp */
    const int lane = threadIdx.x % WARP, warp_row = threadIdx.x / WARP * Traits<Tile>::ROWS;
    char *shared = reinterpret_cast<char *>(s_o);
    float *lse = lse_of(params, work);

    __syncwarp(); /* all lanes have read their Q */
#pragma unroll
    for (int m = 0; m < Traits<Tile>::ROW_TILES; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int in_block = warp_row + 16 * m + 8 * half + lane / 4, row = work.first_row + in_block;
            const float sum = SUM_BY_MMA<T, Tile, Dense> ? acc.sum[m][2 * half] : quad_sum(acc.sum[m][2 * half]);
            const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
#pragma unroll
            for (int d = 0; d < Traits<Tile>::CHUNKS; ++d)
                *reinterpret_cast<uint32_t *>(shared + d / 8 * (Tile::BLOCK_M * 128) + swizzle_128b(in_block, d % 8) +
                                              lane % 4 * 4) =
                    pack2<T>(acc.o[m][d][2 * half] * inverse, acc.o[m][d][2 * half + 1] * inverse);
            if (lane % 4 == 0 && row < params.q_len)
                lse[row] = sum == 0.0f ? -INFINITY : LN_2 * (acc.max_log2[m][half] + log2f(sum));
        }
    __syncwarp();

    const int chunk = lane % CHUNKS;
    T *o = output_of<T>(params, work) + chunk * 8;
#pragma unroll
    for (int i = 0; i < Traits<Tile>::ROWS; i += ROWS_AT_ONCE) {
        const int in_block = warp_row + i + lane / CHUNKS, row = work.first_row + in_block;
        if (row < params.q_len)
            *reinterpret_cast<uint4 *>(o + row * params.o_strides.row) = *reinterpret_cast<const uint4 *>(
                shared + chunk / 8 * (Tile::BLOCK_M * 128) + swizzle_128b(in_block, chunk % 8));
    }
}

/* Dense attention: the keys are those from the first on. */
template <typename T, typename Tile>
__device__ __forceinline__ void compute_dense(const Params &params, Smem<Tile> &smem)
{
    using Shape = CopyTraits<Tile>;
    static_assert(Traits<Tile>::V_IS_AS_WIDE, "copies and stores are of one width");
    constexpr int M = Tile::BLOCK_M, N = Tile::BLOCK_N, STAGE_BYTES = Traits<Tile>::STAGE_BYTES;
    const int lane = threadIdx.x % WARP, warp_offset = threadIdx.x / WARP * Traits<Tile>::ROWS;
    const WorkTile work = work_tile_of_block(params, M, blockIdx.x);
    /* Tiles that any row of the block sees, and those that all rows see in full. */
    const int tiles = (visible_keys(params, work.first_row + M - 1) + N - 1) / N;
    const int whole_tiles = visible_keys(params, work.first_row) / N;
    KvLoader<T, Tile> loader;
    Accumulators<Tile> acc;

    const int kv_head = work.head / params.group;
    loader.k = copy_source<T, Shape>(head_of<T>(params.k, params.k_strides, work.batch, kv_head), params.k_strides.row);
    loader.v = copy_source<T, Shape>(head_of<T>(params.v, params.v_strides, work.batch, kv_head), params.v_strides.row);
    loader.to = shared_address(smem.k) + copy_offset<Shape, N>();
    loader.next = 0;
    if (tiles > 0) {
        const T *rows =
            head_of<T>(params.q, params.q_strides, work.batch, work.head) + work.first_row * params.q_strides.row;
        const T *from = copy_source<T, Shape>(rows, params.q_strides.row);
        copy_tile<T, Shape, M>(shared_address(smem.q) + copy_offset<Shape, M>(), from, params.q, params.q_strides.row,
                               params.q_len - work.first_row);
        loader.copy(params);
        cp_async_commit();
    }
    clear<Tile>(acc);
    LaneAddresses at = {shared_address(smem.q) + warp_offset * 128 + rows_first(lane), 0, 0};
    const uint32_t k_lane = shared_address(smem.k) + columns_first(lane);
    const uint32_t v_lane = shared_address(smem.v) + rows_first(lane);

    int n = 0;
    for (; n < whole_tiles; ++n) {
        wait_for_tile();
        loader.next = n + 1;
        loader.is_whole = n + 1 < tiles && (n + 2) * N <= params.kv_len;
        if (!loader.is_whole && n + 1 < tiles)
            loader.copy(params);
        at.k = k_lane + n % STAGES * STAGE_BYTES;
        at.v = v_lane + n % STAGES * STAGE_BYTES;
        compute_tile<T, Tile, false, Dense>(acc, loader, params, at, 0, Mask(), FamilyTile());
        cp_async_commit();
    }

    const WorkTile work_again = work_tile_of_block(params, M, forget(blockIdx.x));
    const int first_row = work_again.first_row + warp_offset;
    const int warp_tiles =
        first_row < params.q_len ? (visible_keys(params, first_row + Traits<Tile>::ROWS - 1) + N - 1) / N : 0;
    const Mask mask = {params.kv_len,
                       params.causal ? params.kv_len + 1 + lane / 4 - (params.q_len - first_row) : params.kv_len};
    for (; n < tiles; ++n) {
        wait_for_tile();
        loader.next = n + 1;
        if (n + 1 < tiles)
            loader.copy(params);
        cp_async_commit();
        at.k = k_lane + n % STAGES * STAGE_BYTES;
        at.v = v_lane + n % STAGES * STAGE_BYTES;
        if (n < warp_tiles)
            compute_tile<T, Tile, true, Dense>(acc, loader, params, at, n * N + lane % 4 * 2, mask, FamilyTile());
    }
    store_dense_output<T, Tile>(acc, params, work_again, smem.q);
}

/* Everything else: the tiles of keys that the rows of the block see, one after the other. */
template <typename T, typename Tile, typename Attributes>
__device__ __forceinline__ void compute_family(const Params &params, Smem<Tile> &smem)
{
    static_assert(Traits<Tile>::V_IS_AS_WIDE, "one head_dim is known at run time");
    constexpr int M = Tile::BLOCK_M, N = Tile::BLOCK_N, STAGE_BYTES = Traits<Tile>::STAGE_BYTES;
    __shared__ BlockFacts facts;
    const fused_sm80_family &family = params.family;
    const int lane = threadIdx.x % WARP, warp_offset = threadIdx.x / WARP * Traits<Tile>::ROWS;
    const FamilyWork work = family_work_of_block(params, M, blockIdx.x);
    const Sequence &s = work.sequence;
    if (s.number < 0)
        return;
    const TileRange range = key_tiles_of(family.window, s, work.first_row, M, N);
    const int warp_row = work.first_row + warp_offset;
    const RowsView view = {warp_row + s.kv_len - s.q_len, min(Traits<Tile>::ROWS, s.q_len - warp_row), s.kv_len};
    const auto mask = [&] { return const_cast<const volatile BlockFacts &>(facts).mask; };
    VisibleTiles<M, N, false> visible;
    KvPanels<Tile> loader = {&facts, 0, s.kv_len, range.end, shared_address(smem.k)};
    Accumulators<Tile> acc;

    if (threadIdx.x == 0) {
        const int kv_head = work.head / params.group;
        facts.k = family_head(params, params.k, params.k_strides, s, s.k_first, kv_head);
        facts.v = family_head(params, params.v, params.v_strides, s, s.k_first, kv_head);
        facts.mask = family.mask.blocks == NULL ? NULL : mask_of_head(family.mask, s.number, work.head);
        facts.sequence = s.number;
        facts.head = work.head;
    }
    __syncthreads();
    int n = visible.start(family.mask, mask, range, work.first_row);
    bool is_whole = visible.is_whole(n);
    loader.next = n;
    if (n < range.end) {
        const uint16_t *q = family_head(params, params.q, params.q_strides, s, s.q_first, work.head);
        load_panels<M, Tile::HEAD_DIM, Traits<Tile>::THREADS>(
            shared_address(smem.q), q + work.first_row * params.q_strides.row, params.q, params.q_strides.row,
            s.q_len - work.first_row, family.head_dim);
        loader.copy(params);
    }
    cp_async_commit();
    clear<Tile>(acc);
    LaneAddresses at = {shared_address(smem.q) + warp_offset * 128 + rows_first(lane), 0, 0};
    for (int stage = 0; n < range.end; stage ^= 1) {
        const FamilyTile tile = {&facts, s.kv_len, warp_row, n * N, view.diagonal, !is_whole, true};
        const bool is_unmasked = is_whole && view.sees_all(family.window, n * N, N);
        loader.next = visible.after(family.mask, mask, n, range.end, warp_row & ~(M - 1));
        loader.to = shared_address(smem.k) + (stage ^ 1) * STAGE_BYTES;
        is_whole = visible.is_whole(loader.next);
        at.k = shared_address(smem.k) + columns_first(lane) + stage * STAGE_BYTES;
        at.v = shared_address(smem.v) + rows_first(lane) + stage * STAGE_BYTES;
        wait_for_tile();
        if (!view.sees(family.window, n * N, N))
            loader.copy(params);
        else if (is_unmasked)
            compute_tile<T, Tile, false, Attributes>(acc, loader, params, at, 0, Mask(), tile);
        else
            compute_tile<T, Tile, true, Attributes>(acc, loader, params, at, 0, Mask(), tile);
        cp_async_commit();
        n = loader.next;
    }
    const FamilyWork again = family_work_of_block(params, M, forget(blockIdx.x));
    store_output<T, Tile, Attributes>(acc, params, again, smem.q);
}

template <typename T, typename Tile, typename Attributes>
__global__ void __launch_bounds__(Traits<Tile>::THREADS, Tile::BLOCKS_PER_SM)
    fused_fwd_kernel(const __grid_constant__ Params params)
{
    extern __shared__ __align__(1024) unsigned char smem_bytes[];
    Smem<Tile> &smem = *reinterpret_cast<Smem<Tile> *>(smem_bytes);
    static_assert(sizeof(Smem<Tile>) == Tile::SMEM_KB * 1024, "the table says how much shared memory a tile takes");
    if constexpr (Attributes::FAMILY)
        compute_family<T, Tile, Attributes>(params, smem);
    else if constexpr (std::is_same<Attributes, Window>::value)
        compute_window<T, Tile, Attributes>(params, smem);
    else if constexpr (Attributes::SPARSE)
        compute_sparse<T, Tile, Attributes>(params, smem);
    else
        compute_dense<T, Tile>(params, smem);
}

} // namespace sm80_fwd
