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
 * short blocks fill the gaps at the end. */
#include "kernels/sm80/fused_sm80.h"

#include <cmath>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/copies_sm80.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/device/warp_matrix.cuh"

namespace {

using namespace device;
using Params = fused_sm80_fwd_params;

constexpr int WARP = 32, STAGES = 2, BLOCKS_PER_SM = SM80_FWD_BLOCKS_PER_SM;
constexpr float LN_2 = 0.6931471805599453f;
constexpr float RESCALE_THRESHOLD_LOG2 = 8.0f; /* by how much a row's max may exceed the one in use */
constexpr int PREFETCH = 2;                    /* by how many fragments of K and V the loads are ahead of their use */

/* Whether row sums are computed from the rounded P by the tensor cores, as P V with V = 1: fewer instructions, but a
 * relative error in the sum of up to half an ulp of P: 2^-11 in fp16; 2^-8 in bf16, which is too much for LSE. */
template <typename T> constexpr bool SUM_BY_MMA = false;
template <> constexpr bool SUM_BY_MMA<__half> = true;

/* ---- tiles ---------------------------------------------------------------------------------------------------- */

/* head_dim, rows, keys, warps, KB of shared memory; best first */
#define FWD_TILES(ROW)                                                                                                 \
    ROW(64, 128, 128, 4, 80)                                                                                           \
    ROW(64, 128, 64, 4, 48)                                                                                            \
    ROW(128, 128, 64, 4, 96)                                                                                           \
    ROW(128, 128, 32, 4, 64)                                                                                           \
    ROW(128, 64, 32, 4, 48)

#define TILE_STRUCT(DIM, ROWS, KEYS, W, KB)                                                                            \
    struct FwdD##DIM##M##ROWS##N##KEYS {                                                                               \
        static constexpr int HEAD_DIM = DIM, BLOCK_M = ROWS, BLOCK_N = KEYS, WARPS = W, SMEM_KB = KB;                  \
    };
FWD_TILES(TILE_STRUCT)

template <typename Tile> struct Traits {
    static constexpr int THREADS = Tile::WARPS * WARP;
    static constexpr int ROWS = Tile::BLOCK_M / Tile::WARPS; /* of a warp */
    static constexpr int ROW_TILES = ROWS / 16;
    static constexpr int D_SLICES = Tile::HEAD_DIM / 16;
    static constexpr int N_SLICES = Tile::BLOCK_N / 16;
    static constexpr int CHUNKS = Tile::HEAD_DIM / 8;  /* of 16 bytes in a row */
    static constexpr int COPY_STEP = THREADS / CHUNKS; /* rows that one copy of all threads fills */
    static constexpr int STAGE_BYTES = Tile::BLOCK_N * Tile::HEAD_DIM * 2;
    static_assert(ROWS % 16 == 0 && Tile::BLOCK_N % 16 == 0, "a warp owns whole 16-row tiles");
    static_assert(Tile::HEAD_DIM % 64 == 0, "a row is whole 128-byte panels");
    static_assert(COPY_STEP % 8 == 0, "the swizzle of a thread's chunk is the same in all its rows");
};

/* ---- shared memory and registers ------------------------------------------------------------------------------ */

template <typename Tile> struct alignas(1024) Smem {
    uint16_t q[Tile::BLOCK_M * Tile::HEAD_DIM]; /* Q, and O at the end */
    uint16_t k[STAGES][Tile::BLOCK_N * Tile::HEAD_DIM];
    uint16_t v[STAGES][Tile::BLOCK_N * Tile::HEAD_DIM];
};

/* Which rows of which head a block computes. */
struct WorkTile {
    int batch, head, first_row;
};

template <typename Tile> struct Accumulators {
    float o[Traits<Tile>::ROW_TILES][Traits<Tile>::CHUNKS][4];
    float max_log2[Traits<Tile>::ROW_TILES][2]; /* the maximum in use, times scale_log2; rows lane / 4 and + 8 */
    float sum[Traits<Tile>::ROW_TILES][4];      /* of P over this lane's columns */
};

template <typename Tile> struct Scores {
    float s[Traits<Tile>::ROW_TILES][Tile::BLOCK_N / 8][4];
};

template <typename Tile> struct Probabilities {
    uint32_t p[Traits<Tile>::ROW_TILES][Traits<Tile>::N_SLICES][4];
};

/* One value for each row of the lane. */
template <typename Tile> struct RowValues {
    float x[Traits<Tile>::ROW_TILES][2];
};

/* Keys before both are visible to the lane's first row; each row further down sees one more of the latter. */
struct Mask {
    int kv_len, diagonal;
};

/* A lane's addresses for ldmatrix: of the warp's rows of Q, and of the current stage of K and V. */
struct LaneAddresses {
    uint32_t q, k, v;
};

/* ---- copying -------------------------------------------------------------------------------------------------- */

/* Loads K and V, tile by tile. */
template <typename T, typename Tile> struct KvLoader {
    static constexpr uint32_t V_OFFSET = STAGES * Traits<Tile>::STAGE_BYTES;
    const T *k, *v; /* this thread's chunk of the next tile */
    uint32_t to;    /* its address in stage 0 of K */
    int next;       /* number of that tile */
    bool is_whole;  /* it exists and has BLOCK_N keys */

    __device__ __forceinline__ uint32_t stage() const { return to + next % STAGES * Traits<Tile>::STAGE_BYTES; }

    /* Any tile, at once. */
    __device__ __forceinline__ void copy(const Params &params)
    {
        const int rows = params.kv_len - next * Tile::BLOCK_N;
        copy_tile<T, Traits<Tile>, Tile::BLOCK_N>(stage(), k, params.k, params.k_strides.row, rows);
        copy_tile<T, Traits<Tile>, Tile::BLOCK_N>(stage() + V_OFFSET, v, params.v, params.v_strides.row, rows);
    }

    /* A whole tile, without a branch; nothing when it is not whole. */
    __device__ __forceinline__ void copy_whole(const Params &params)
    {
        const uint32_t shared = stage();
        copy_whole_tile<T, Traits<Tile>, Tile::BLOCK_N>(shared, k, params.k_strides.row, is_whole);
        copy_whole_tile<T, Traits<Tile>, Tile::BLOCK_N>(shared + V_OFFSET, v, params.v_strides.row, is_whole);
    }
};

template <typename T>
__device__ __forceinline__ const T *head_of(const void *tensor, const fused_sm80_strides &strides, int batch, int head)
{
    return static_cast<const T *>(tensor) + batch * strides.batch + head * strides.head;
}

/* On return tile n has arrived for all threads, and all have finished with tile n - 1. */
__device__ __forceinline__ void wait_for_tile()
{
    cp_async_wait<0>();
    __syncthreads();
}

/* ---- S = Q K^T ------------------------------------------------------------------------------------------------ */

template <typename Tile>
__device__ __forceinline__ void load_q(uint32_t (&q)[Traits<Tile>::ROW_TILES][4], uint32_t q_lane, int d_slice)
{
#pragma unroll
    for (int m = 0; m < Traits<Tile>::ROW_TILES; ++m)
        ldmatrix_x4(q[m], fragment<Tile::BLOCK_M>(q_lane, m, d_slice));
}

/* Step i takes d slice i / N_SLICES of Q times 16 keys; K is fetched PREFETCH steps before, Q during the slice
 * before. */
template <typename T, typename Tile>
__device__ __forceinline__ void compute_scores(Scores<Tile> &scores, uint32_t q_lane, uint32_t k_lane)
{
    constexpr int N_SLICES = Traits<Tile>::N_SLICES, D_SLICES = Traits<Tile>::D_SLICES, STEPS = N_SLICES * D_SLICES;
    uint32_t q[2][Traits<Tile>::ROW_TILES][4], k[PREFETCH + 1][4];

#pragma unroll
    for (int m = 0; m < Traits<Tile>::ROW_TILES; ++m)
#pragma unroll
        for (int n = 0; n < Tile::BLOCK_N / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                scores.s[m][n][i] = 0.0f;
    load_q<Tile>(q[0], q_lane, 0);
#pragma unroll
    for (int i = 0; i < PREFETCH; ++i)
        ldmatrix_x4(k[i], fragment<Tile::BLOCK_N>(k_lane, i % N_SLICES, i / N_SLICES));
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
        const int d = i / N_SLICES, n = i % N_SLICES, later = i + PREFETCH;
        const uint32_t(&b)[4] = k[i % (PREFETCH + 1)];
        if (n == (N_SLICES > 4 ? N_SLICES - 4 : 0) && d + 1 < D_SLICES)
            load_q<Tile>(q[(d + 1) % 2], q_lane, d + 1);
        if (later < STEPS)
            ldmatrix_x4(k[later % (PREFETCH + 1)], fragment<Tile::BLOCK_N>(k_lane, later % N_SLICES, later / N_SLICES));
#pragma unroll
        for (int m = 0; m < Traits<Tile>::ROW_TILES; ++m) {
            mma_m16n8k16<T>(scores.s[m][2 * n], q[d % 2][m], b[0], b[1]);
            mma_m16n8k16<T>(scores.s[m][2 * n + 1], q[d % 2][m], b[2], b[3]);
        }
    }
}

/* ---- softmax -------------------------------------------------------------------------------------------------- */

template <typename Tile> __device__ __forceinline__ void mask_scores(Scores<Tile> &scores, int first_column, Mask mask)
{
#pragma unroll
    for (int m = 0; m < Traits<Tile>::ROW_TILES; ++m) {
        const int limit[2] = {min(mask.kv_len, mask.diagonal + 16 * m), min(mask.kv_len, mask.diagonal + 16 * m + 8)};
        mask_columns(scores.s[m], first_column, limit);
    }
}

/* Replaces the row maxima that are too small. `base`: what is subtracted from the exponents; `alpha`: the factor by
 * which O and the sums have to be rescaled. Returns whether the max of any row of the warp changed. */
template <typename Tile, bool MASKED>
__device__ __forceinline__ bool update_row_max(Accumulators<Tile> &acc, RowValues<Tile> &base, RowValues<Tile> &alpha,
                                               const Scores<Tile> &scores, float scale_log2)
{
    bool any_changes = false;
#pragma unroll
    for (int m = 0; m < Traits<Tile>::ROW_TILES; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float old = acc.max_log2[m][half];
            const float top = quad_max(lane_max(scores.s[m], half)) * scale_log2;
            const bool changes = top > old + RESCALE_THRESHOLD_LOG2;
            const float now = changes ? top : old;
            acc.max_log2[m][half] = now;
            /* -inf - -inf would be NaN; with base 0 the exponent of a masked score is -inf and P is 0. */
            base.x[m][half] = MASKED && now == -INFINITY ? 0.0f : now;
            alpha.x[m][half] = changes ? exp2_approx(old - now) : 1.0f;
            any_changes = any_changes || changes;
        }
    return __any_sync(WHOLE_WARP, any_changes);
}

template <typename Tile> __device__ __forceinline__ void rescale(Accumulators<Tile> &acc, const RowValues<Tile> &alpha)
{
#pragma unroll
    for (int m = 0; m < Traits<Tile>::ROW_TILES; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            acc.sum[m][i] *= alpha.x[m][i / 2];
#pragma unroll
        for (int d = 0; d < Traits<Tile>::CHUNKS; ++d)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                acc.o[m][d][i] *= alpha.x[m][i / 2];
    }
}

/* P of piece i: pieces are 16 rows by 8 keys, those of 16 keys one after the other. */
template <typename T, typename Tile>
__device__ __forceinline__ void compute_p(Probabilities<Tile> &probabilities, Accumulators<Tile> &acc,
                                          const RowValues<Tile> &base, const Scores<Tile> &scores, float scale_log2,
                                          int i)
{
    const int n_slice = i / (2 * Traits<Tile>::ROW_TILES), m = i / 2 % Traits<Tile>::ROW_TILES, tile = i % 2;
    const float(&s)[4] = scores.s[m][2 * n_slice + tile];
    float p[4];
#pragma unroll
    for (int j = 0; j < 4; ++j)
        p[j] = exp2_approx(fmaf(s[j], scale_log2, -base.x[m][j / 2]));
    if (!SUM_BY_MMA<T>) {
        acc.sum[m][0] += p[0] + p[1];
        acc.sum[m][2] += p[2] + p[3];
    }
    probabilities.p[m][n_slice][2 * tile] = pack2<T>(p[0], p[1]);
    probabilities.p[m][n_slice][2 * tile + 1] = pack2<T>(p[2], p[3]);
}

/* ---- one tile ------------------------------------------------------------------------------------------------- */

template <typename Tile> __device__ __forceinline__ void load_v(uint32_t (&v)[4], uint32_t v_lane, int i)
{
    ldmatrix_x4_trans(v, fragment<Tile::BLOCK_N>(v_lane, i / Traits<Tile>::D_SLICES, i % Traits<Tile>::D_SLICES));
}

/* P and O += P V. Step i takes 16 keys times d slice i % D_SLICES; V is fetched PREFETCH steps before. */
template <typename T, typename Tile>
__device__ __forceinline__ void accumulate(Accumulators<Tile> &acc, const Scores<Tile> &scores,
                                           const RowValues<Tile> &base, uint32_t (&v)[PREFETCH + 1][4], uint32_t v_lane,
                                           float scale_log2)
{
    constexpr int D_SLICES = Traits<Tile>::D_SLICES, STEPS = Traits<Tile>::N_SLICES * D_SLICES;
    constexpr int PIECES = 2 * Traits<Tile>::ROW_TILES; /* of 16 keys */
    Probabilities<Tile> probabilities;

#pragma unroll
    for (int i = 0; i < PIECES; ++i)
        compute_p<T, Tile>(probabilities, acc, base, scores, scale_log2, i);
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
        const int n = i / D_SLICES, d = i % D_SLICES;
        const uint32_t(&b)[4] = v[i % (PREFETCH + 1)];
        if (i + PREFETCH < STEPS)
            load_v<Tile>(v[(i + PREFETCH) % (PREFETCH + 1)], v_lane, i + PREFETCH);
#pragma unroll
        for (int m = 0; m < Traits<Tile>::ROW_TILES; ++m) {
            mma_m16n8k16<T>(acc.o[m][2 * d], probabilities.p[m][n], b[0], b[1]);
            mma_m16n8k16<T>(acc.o[m][2 * d + 1], probabilities.p[m][n], b[2], b[3]);
            if (SUM_BY_MMA<T> && d == D_SLICES - 1) {
                const uint32_t one = pack2<T>(1.0f, 1.0f);
                mma_m16n8k16<T>(acc.sum[m], probabilities.p[m][n], one, one);
            }
        }
        /* For the order of instructions only: otherwise ptxas moves most additions of the sums behind the last mma,
         * where nothing overlaps with them, and keeps the summands in registers until some spill. */
        if (!SUM_BY_MMA<T> && d == 0)
            __syncwarp();
        if (n + 1 < Traits<Tile>::N_SLICES) {
#pragma unroll
            for (int j = d * PIECES / D_SLICES; j < (d + 1) * PIECES / D_SLICES; ++j)
                compute_p<T, Tile>(probabilities, acc, base, scores, scale_log2, (n + 1) * PIECES + j);
        }
    }
}

template <typename T, typename Tile, bool MASKED>
__device__ __forceinline__ void compute_tile(Accumulators<Tile> &acc, KvLoader<T, Tile> &loader, const Params &params,
                                             LaneAddresses at, int first_column, Mask mask)
{
    Scores<Tile> scores;
    RowValues<Tile> base, alpha;
    uint32_t v[PREFETCH + 1][4];

    compute_scores<T, Tile>(scores, at.q, at.k);
    if (MASKED)
        mask_scores<Tile>(scores, first_column, mask);
    else
        loader.copy_whole(params);
#pragma unroll
    for (int i = 0; i < PREFETCH; ++i)
        load_v<Tile>(v[i], at.v, i);
    if (update_row_max<Tile, MASKED>(acc, base, alpha, scores, params.scale_log2))
        rescale<Tile>(acc, alpha);
    accumulate<T, Tile>(acc, scores, base, v, at.v, params.scale_log2);
}

/* ---- output --------------------------------------------------------------------------------------------------- */

/* O and LSE of the warp's rows; O goes through the warp's own rows of shared memory to become 16-byte stores. */
template <typename T, typename Tile>
__device__ __forceinline__ void store_output(const Accumulators<Tile> &acc, const Params &params, const WorkTile &work,
                                             uint16_t *s_o)
{
    constexpr int ROWS_AT_ONCE = WARP / Traits<Tile>::CHUNKS;
    const int lane = threadIdx.x % WARP, warp_row = threadIdx.x / WARP * Traits<Tile>::ROWS;
    char *shared = reinterpret_cast<char *>(s_o);
    float *lse = params.lse + (int64_t(work.batch) * params.q_heads + work.head) * params.q_len;

    __syncwarp(); /* all lanes have read their Q */
#pragma unroll
    for (int m = 0; m < Traits<Tile>::ROW_TILES; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int in_block = warp_row + 16 * m + 8 * half + lane / 4, row = work.first_row + in_block;
            const float sum = SUM_BY_MMA<T> ? acc.sum[m][2 * half] : quad_sum(acc.sum[m][2 * half]);
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

    const int chunk = lane % Traits<Tile>::CHUNKS;
    T *o = static_cast<T *>(params.o) + work.batch * params.o_strides.batch + work.head * params.o_strides.head +
           chunk * 8;
#pragma unroll
    for (int i = 0; i < Traits<Tile>::ROWS; i += ROWS_AT_ONCE) {
        const int in_block = warp_row + i + lane / Traits<Tile>::CHUNKS, row = work.first_row + in_block;
        if (row < params.q_len)
            *reinterpret_cast<uint4 *>(o + row * params.o_strides.row) = *reinterpret_cast<const uint4 *>(
                shared + chunk / 8 * (Tile::BLOCK_M * 128) + swizzle_128b(in_block, chunk % 8));
    }
}

/* ---- the kernel ----------------------------------------------------------------------------------------------- */

__device__ __forceinline__ WorkTile work_tile_of_block(const Params &params, int block_m, int block)
{
    const int bulk_blocks = params.bulk_heads * params.row_tiles, section_blocks = params.group * params.row_tiles;
    int first_head = params.bulk_heads, heads = params.heads_total - params.bulk_heads, within = block - bulk_blocks;
    if (within < 0) {
        first_head = block / section_blocks * params.group;
        heads = params.group;
        within = block % section_blocks;
    }
    const int head = first_head + within % heads;
    return {head / params.q_heads, head % params.q_heads, (params.row_tiles - 1 - within / heads) * block_m};
}

/* How many keys, from key 0 on, row `row` sees; rows past the end see what the last one sees. */
__device__ __forceinline__ int visible_keys(const Params &params, int64_t row)
{
    const int64_t end = (row < params.q_len ? row : params.q_len - 1) + params.kv_len - params.q_len + 1;
    return !params.causal ? params.kv_len : end < 0 ? 0 : int(end);
}

template <typename Tile> __device__ __forceinline__ void clear(Accumulators<Tile> &acc)
{
#pragma unroll
    for (int m = 0; m < Traits<Tile>::ROW_TILES; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            acc.max_log2[m][i / 2] = -INFINITY;
            acc.sum[m][i] = 0.0f;
#pragma unroll
            for (int d = 0; d < Traits<Tile>::CHUNKS; ++d)
                acc.o[m][d][i] = 0.0f;
        }
}

template <typename T, typename Tile>
__global__ void __launch_bounds__(Traits<Tile>::THREADS, BLOCKS_PER_SM)
    fused_fwd_kernel(const __grid_constant__ Params params)
{
    extern __shared__ __align__(1024) unsigned char smem_bytes[];
    Smem<Tile> &smem = *reinterpret_cast<Smem<Tile> *>(smem_bytes);
    using Shape = Traits<Tile>;
    constexpr int M = Tile::BLOCK_M, N = Tile::BLOCK_N, STAGE_BYTES = Traits<Tile>::STAGE_BYTES;
    static_assert(sizeof(Smem<Tile>) == Tile::SMEM_KB * 1024, "the table says how much shared memory a tile takes");
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
        compute_tile<T, Tile, false>(acc, loader, params, at, 0, Mask());
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
            compute_tile<T, Tile, true>(acc, loader, params, at, n * N + lane % 4 * 2, mask);
    }
    store_output<T, Tile>(acc, params, work_again, smem.q);
}

} // namespace

/* ---- variants --------------------------------------------------------------------------------------------------- */

#define TILE(DIM, ROWS, KEYS) FwdD##DIM##M##ROWS##N##KEYS
#define TILE_ROW(DIM, ROWS, KEYS, W, KB)                                                                               \
    {{{"fwd_d" #DIM "_m" #ROWS "n" #KEYS,                                                                              \
       #ROWS " x " #KEYS " tile, " #W " warps, 2 stages, " #KB " KB shared memory"},                                   \
      DIM,                                                                                                             \
      BLOCKS_PER_SM,                                                                                                   \
      sizeof(Smem<TILE(DIM, ROWS, KEYS)>)},                                                                            \
     ROWS,                                                                                                             \
     Traits<TILE(DIM, ROWS, KEYS)>::THREADS,                                                                           \
     {fused_fwd_kernel<__half, TILE(DIM, ROWS, KEYS)>, fused_fwd_kernel<__nv_bfloat16, TILE(DIM, ROWS, KEYS)>}},

extern "C" const struct fused_sm80_fwd_tile fused_sm80_fwd_tiles[] = {FWD_TILES(TILE_ROW){}};
