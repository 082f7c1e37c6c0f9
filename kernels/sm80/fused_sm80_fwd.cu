/* fused_sm80, forward: FlashAttention-2's algorithm (Dao 2023, algorithm 1) on mma.sync and cp.async.
 *
 * A block of BLOCK_M rows of one head walks over the keys in tiles of BLOCK_N. Each warp owns 16 or 32 whole rows:
 * their scores, probabilities and output never leave its registers, row statistics need four lanes only.
 *
 *   S = Q K^T                        mma m16n8k16, Q and K fragments by ldmatrix
 *   c = scale * log2(e)
 *   m' = max(m, c * rowmax(S))       only if that is more than 8 above m; else m' = m
 *   P = 2^(c S - m')                 one FFMA and one ex2 an element, rounded to 16 bits
 *   O = 2^(m - m') O + P V           rescaled only where some row of the warp moved its m
 *   l = 2^(m - m') l + rowsum(P)     a lane keeps the sum of its own columns until the end
 *   at the end O / l, LSE = ln 2 * (m + log2 l); a row without a key has l = 0: O = 0, LSE = -inf
 *
 * A maximum that is stale by up to 8 keeps P below 2^8 and cancels in the end, as O and l are held against the same m.
 *
 * Shared memory: two stages. While tile n is computed from one, tile n + 1 is copied into the other; one barrier a tile
 * says both "n is here" and "all are done with n - 1".
 *
 *   | Q, O at the end | K stage 0 | K stage 1 | V stage 0 | V stage 1 |
 *
 * An array is panels of 64 columns, a panel is rows of 128 bytes with the 128B XOR swizzle (device/ldmatrix.cuh).
 *
 * Within a step the copies of the next tile are issued between Q K^T and the maxima, where the load units are idle; the
 * ex2 of 16 keys are under way while P V of the 16 keys before is issued.
 *
 * Masks exist in the last steps only, where the diagonal or the end of the keys is; warps leave out the tiles that none
 * of their rows sees. Rows past q_len and keys past kv_len are zero-filled and masked.
 *
 * Order of blocks: head by head (the heads of one kv head together), so that K and V stay in L2; causal: the long last
 * rows of a head first, and the last heads, four waves of them, together by length, so that the short ones fill the
 * end.
 *
 * Limits: head_dim 64 or 128, strides and pointers on 16 bytes, lengths below 2^31 - 2^16.
 *
 * Ladder. fp16 TFLOPS on an H200 (700 W, near its cap throughout), 16384 tokens, hidden 2048, bshd, cold L2, at length
 * 1k 4k 16k. FlashAttention-2 (PyTorch 2.11), best of the same runs: d64 289 306 310 full and 215 282 299 causal, d128
 * 335 358 361 and 240 302 326.
 * Beside mma.sync (6 clocks a scheduler) an FP32 instruction costs about 0.45 clocks and an ex2 1.3, both measured, so
 * fewer instructions count more than a finer overlap.
 *
 *   step                                           d64 full     d64 causal   d128 full    d128 causal
 *   1 one barrier a tile, stale maxima             300 327 326  235 296 333  348 383 374  252 309 334
 *     (d64: 128 x 64 tile; 16 rows a warp, which doubles the reads of K and V: 287 310 247 and 291 322 310)
 *   2 row sums by mma (fp16), 128 x 128 for d64    329 359 367  246 312 351  358 395 392  266 321 347
 *     (expected a tie in clocks, got it from FP32 sums no longer holding P in registers)
 *   3 copies after Q K^T, fragments two ahead,     342 373 374  258 333 368  371 410 407  274 338 361
 *     pointers kept instead of recomputed (expected 4 %: that much time was waiting for the copies' addresses)
 *   4 last heads by length (expected 3 % at d64,   332 364 358  251 332 358  370 409 409  289 385 390
 *     10 % at d128 causal by simulating the queue)
 *   no gain: P V of the tile before beside this softmax (285 318 326; d128 304 335 343), Q K^T of the tile after beside
 *   this softmax (296 328 335; d128 301 332 340), 256 rows and 8 warps (292 327 345; d128 334 375 364), three blocks on
 *   a multiprocessor (298 311 308), 3 stages (322 352 355).
 */
#include "kernels/sm80/fused_sm80.h"

#include <cmath>
#include <cstring>
#include <cuda_runtime.h>

#include "kernels/common/checks.h"
#include "kernels/device/cp_async.cuh"
#include "kernels/device/exp2.cuh"
#include "kernels/device/mma_sm80.cuh"
#include "kernels/device/opaque.cuh"
#include "kernels/device/pack.cuh"
#include "kernels/device/panel_sm80.cuh"
#include "kernels/device/softmax_sm80.cuh"
#include "kernels/device/tile_copy_sm80.cuh"

namespace {

using namespace device;

constexpr int WARP = 32, STAGES = 2, BLOCKS_PER_SM = 2;
constexpr int64_t MAX_LEN = INT32_MAX - 65536; /* column and row numbers of whole tiles stay within an int */
constexpr size_t BLOCK_RESERVED_BYTES = 1024;  /* shared memory of a block that the system keeps, sm_80 and newer */
constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;
constexpr float STALE_LOG2 = 8.0f; /* how far a row's maximum may lag behind */
constexpr int TAIL_WAVES = 4;      /* of blocks that are ordered by length across heads */
constexpr int AHEAD = 2;           /* fragments of K and V that are fetched before they are used */

/* Whether row sums are taken from the rounded P by the matrix units, as P V with V = 1: fewer instructions, but a
 * relative error of up to half an ulp of P in the sum: 2^-11 in fp16, and 2^-8, too much for LSE, in bf16. */
template <typename T> constexpr bool SUM_BY_MMA = false;
template <> constexpr bool SUM_BY_MMA<__half> = true;

/* ---- tiles ---------------------------------------------------------------------------------------------------- */

/* head_dim, rows, keys, warps, KB of shared memory. A device takes the first of its head_dim of which two blocks fit on
 * a multiprocessor. */
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

template <typename Tile> struct Size {
    static constexpr int THREADS = Tile::WARPS * WARP;
    static constexpr int ROWS = Tile::BLOCK_M / Tile::WARPS; /* of a warp */
    static constexpr int ROW_TILES = ROWS / 16;
    static constexpr int D_SLICES = Tile::HEAD_DIM / 16;
    static constexpr int N_SLICES = Tile::BLOCK_N / 16;
    static constexpr int CHUNKS = Tile::HEAD_DIM / 8;     /* of 16 bytes in a row */
    static constexpr int COPY_STEP = THREADS / CHUNKS;    /* rows that one copy of all threads fills */
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

struct Strides {
    int64_t batch, head, row; /* in elements */
};

struct Arguments {
    const void *q, *k, *v; /* [batch, heads, len, head_dim] by strides */
    void *o;
    float *lse;            /* [batch, q_heads, q_len] */
    Strides q_strides, k_strides, v_strides, o_strides;
    int q_len, kv_len, q_heads, group, row_tiles;
    int heads_in_all, bulk_heads; /* batch * q_heads, and how many of them go head by head */
    float scale_log2;             /* scale * log2(e) */
    bool causal;
};

/* Which rows of which head a block computes. */
struct Place {
    int batch, head, first_row;
};

template <typename Tile> struct Accumulators {
    float o[Size<Tile>::ROW_TILES][Size<Tile>::CHUNKS][4];
    float max_log2[Size<Tile>::ROW_TILES][2]; /* the maximum in use, times scale_log2; rows lane / 4 and + 8 */
    float sum[Size<Tile>::ROW_TILES][4];      /* of P over this lane's columns */
};

template <typename Tile> struct Scores {
    float s[Size<Tile>::ROW_TILES][Tile::BLOCK_N / 8][4];
};

template <typename Tile> struct Weights {
    uint32_t p[Size<Tile>::ROW_TILES][Size<Tile>::N_SLICES][4];
};

/* One value for each row of the lane. */
template <typename Tile> struct Rows {
    float x[Size<Tile>::ROW_TILES][2];
};

/* Keys before both are visible to the lane's first row; each row further down sees one more of the latter. */
struct Mask {
    int kv_len, diagonal;
};

/* Lane's parts of shared addresses for ldmatrix, of the warp's Q rows and of the stage of K and V at hand. */
struct Lane {
    uint32_t q, k, v;
};

/* ---- copying -------------------------------------------------------------------------------------------------- */

/* K and V of the tiles to come. */
template <typename T, typename Tile> struct Feed {
    static constexpr uint32_t V_OFFSET = STAGES * Size<Tile>::STAGE_BYTES;
    const T *k, *v; /* this thread's chunk of the next tile */
    uint32_t to;    /* its place in K's stage 0 */
    int next;       /* number of that tile */
    bool is_whole;  /* it exists and has BLOCK_N keys */

    __device__ __forceinline__ uint32_t stage() const { return to + next % STAGES * Size<Tile>::STAGE_BYTES; }

    /* Any tile, at once. */
    __device__ __forceinline__ void copy(const Arguments &arg)
    {
        const int rows = arg.kv_len - next * Tile::BLOCK_N;
        copy_tile<T, Size<Tile>, Tile::BLOCK_N>(stage(), k, arg.k, arg.k_strides.row, rows);
        copy_tile<T, Size<Tile>, Tile::BLOCK_N>(stage() + V_OFFSET, v, arg.v, arg.v_strides.row, rows);
    }

    /* A whole tile, without a branch; nothing when it is not whole. */
    __device__ __forceinline__ void copy_whole(const Arguments &arg)
    {
        const uint32_t shared = stage();
        copy_whole_tile<T, Size<Tile>, Tile::BLOCK_N>(shared, k, arg.k_strides.row, is_whole);
        copy_whole_tile<T, Size<Tile>, Tile::BLOCK_N>(shared + V_OFFSET, v, arg.v_strides.row, is_whole);
    }
};

template <typename T>
__device__ __forceinline__ const T *head_of(const void *tensor, const Strides &strides, int batch, int head)
{
    return static_cast<const T *>(tensor) + batch * strides.batch + head * strides.head;
}

/* On return tile n is here for all threads, and all are done with tile n - 1. */
__device__ __forceinline__ void await_tile()
{
    cp_async_wait<0>();
    __syncthreads();
}

/* ---- S = Q K^T ------------------------------------------------------------------------------------------------ */

template <typename Tile>
__device__ __forceinline__ void load_q(uint32_t (&q)[Size<Tile>::ROW_TILES][4], uint32_t q_lane, int d_slice)
{
#pragma unroll
    for (int m = 0; m < Size<Tile>::ROW_TILES; ++m)
        ldmatrix_x4(q[m], fragment<Tile::BLOCK_M>(q_lane, m, d_slice));
}

/* Step i takes d slice i / N_SLICES of Q times 16 keys; K is fetched AHEAD steps before, Q during the slice before. */
template <typename T, typename Tile>
__device__ __forceinline__ void compute_scores(Scores<Tile> &scores, uint32_t q_lane, uint32_t k_lane)
{
    constexpr int N_SLICES = Size<Tile>::N_SLICES, D_SLICES = Size<Tile>::D_SLICES, STEPS = N_SLICES * D_SLICES;
    uint32_t q[2][Size<Tile>::ROW_TILES][4], k[AHEAD + 1][4];

#pragma unroll
    for (int m = 0; m < Size<Tile>::ROW_TILES; ++m)
#pragma unroll
        for (int n = 0; n < Tile::BLOCK_N / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                scores.s[m][n][i] = 0.0f;
    load_q<Tile>(q[0], q_lane, 0);
#pragma unroll
    for (int i = 0; i < AHEAD; ++i)
        ldmatrix_x4(k[i], fragment<Tile::BLOCK_N>(k_lane, i % N_SLICES, i / N_SLICES));
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
        const int d = i / N_SLICES, n = i % N_SLICES, later = i + AHEAD;
        const uint32_t(&b)[4] = k[i % (AHEAD + 1)];
        if (n == (N_SLICES > 4 ? N_SLICES - 4 : 0) && d + 1 < D_SLICES)
            load_q<Tile>(q[(d + 1) % 2], q_lane, d + 1);
        if (later < STEPS)
            ldmatrix_x4(k[later % (AHEAD + 1)], fragment<Tile::BLOCK_N>(k_lane, later % N_SLICES, later / N_SLICES));
#pragma unroll
        for (int m = 0; m < Size<Tile>::ROW_TILES; ++m) {
            mma_m16n8k16<T>(scores.s[m][2 * n], q[d % 2][m], b[0], b[1]);
            mma_m16n8k16<T>(scores.s[m][2 * n + 1], q[d % 2][m], b[2], b[3]);
        }
    }
}

/* ---- softmax -------------------------------------------------------------------------------------------------- */

template <typename Tile> __device__ __forceinline__ void mask_scores(Scores<Tile> &scores, int first_column, Mask mask)
{
#pragma unroll
    for (int m = 0; m < Size<Tile>::ROW_TILES; ++m) {
        const int limit[2] = {min(mask.kv_len, mask.diagonal + 16 * m), min(mask.kv_len, mask.diagonal + 16 * m + 8)};
        mask_columns(scores.s[m], first_column, limit);
    }
}

/* Moves the maxima that must; `base` is what the exponents are taken against, `alpha` what O and the sums are to be
 * multiplied with. Answers whether any row of the warp moved. */
template <typename Tile, bool MASKED>
__device__ __forceinline__ bool move_maxima(Accumulators<Tile> &acc, Rows<Tile> &base, Rows<Tile> &alpha,
                                            const Scores<Tile> &scores, float scale_log2)
{
    bool any_moves = false;
#pragma unroll
    for (int m = 0; m < Size<Tile>::ROW_TILES; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float old = acc.max_log2[m][half];
            const float top = quad_max(lane_max(scores.s[m], half)) * scale_log2;
            const bool moves = top > old + STALE_LOG2;
            const float now = moves ? top : old;
            acc.max_log2[m][half] = now;
            /* -inf - -inf is NaN; against 0 the exponent of a masked score is -inf and P is 0. */
            base.x[m][half] = MASKED && now == -INFINITY ? 0.0f : now;
            alpha.x[m][half] = moves ? exp2_approx(old - now) : 1.0f;
            any_moves = any_moves || moves;
        }
    return __any_sync(WHOLE_WARP, any_moves);
}

template <typename Tile> __device__ __forceinline__ void rescale(Accumulators<Tile> &acc, const Rows<Tile> &alpha)
{
#pragma unroll
    for (int m = 0; m < Size<Tile>::ROW_TILES; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            acc.sum[m][i] *= alpha.x[m][i / 2];
#pragma unroll
        for (int d = 0; d < Size<Tile>::CHUNKS; ++d)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                acc.o[m][d][i] *= alpha.x[m][i / 2];
    }
}

/* P of piece i: pieces are 16 rows by 8 keys, those of 16 keys one after the other. */
template <typename T, typename Tile>
__device__ __forceinline__ void exponentiate(Weights<Tile> &weights, Accumulators<Tile> &acc, const Rows<Tile> &base,
                                             const Scores<Tile> &scores, float scale_log2, int i)
{
    const int n_slice = i / (2 * Size<Tile>::ROW_TILES), m = i / 2 % Size<Tile>::ROW_TILES, tile = i % 2;
    const float(&s)[4] = scores.s[m][2 * n_slice + tile];
    float p[4];
#pragma unroll
    for (int j = 0; j < 4; ++j)
        p[j] = exp2_approx(fmaf(s[j], scale_log2, -base.x[m][j / 2]));
    if (!SUM_BY_MMA<T>) {
        acc.sum[m][0] += p[0] + p[1];
        acc.sum[m][2] += p[2] + p[3];
    }
    weights.p[m][n_slice][2 * tile] = pack2<T>(p[0], p[1]);
    weights.p[m][n_slice][2 * tile + 1] = pack2<T>(p[2], p[3]);
}

/* ---- one tile ------------------------------------------------------------------------------------------------- */

template <typename Tile> __device__ __forceinline__ void load_v(uint32_t (&v)[4], uint32_t v_lane, int i)
{
    ldmatrix_x4_trans(v, fragment<Tile::BLOCK_N>(v_lane, i / Size<Tile>::D_SLICES, i % Size<Tile>::D_SLICES));
}

/* P and O += P V. Step i takes 16 keys times d slice i % D_SLICES; V is fetched AHEAD steps before. */
template <typename T, typename Tile>
__device__ __forceinline__ void accumulate(Accumulators<Tile> &acc, const Scores<Tile> &scores, const Rows<Tile> &base,
                                           uint32_t (&v)[AHEAD + 1][4], uint32_t v_lane, float scale_log2)
{
    constexpr int D_SLICES = Size<Tile>::D_SLICES, STEPS = Size<Tile>::N_SLICES * D_SLICES;
    constexpr int PIECES = 2 * Size<Tile>::ROW_TILES; /* of 16 keys */
    Weights<Tile> weights;

#pragma unroll
    for (int i = 0; i < PIECES; ++i)
        exponentiate<T, Tile>(weights, acc, base, scores, scale_log2, i);
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
        const int n = i / D_SLICES, d = i % D_SLICES;
        const uint32_t(&b)[4] = v[i % (AHEAD + 1)];
        if (i + AHEAD < STEPS)
            load_v<Tile>(v[(i + AHEAD) % (AHEAD + 1)], v_lane, i + AHEAD);
#pragma unroll
        for (int m = 0; m < Size<Tile>::ROW_TILES; ++m) {
            mma_m16n8k16<T>(acc.o[m][2 * d], weights.p[m][n], b[0], b[1]);
            mma_m16n8k16<T>(acc.o[m][2 * d + 1], weights.p[m][n], b[2], b[3]);
            if (SUM_BY_MMA<T> && d == D_SLICES - 1) {
                const uint32_t one = pack2<T>(1.0f, 1.0f);
                mma_m16n8k16<T>(acc.sum[m], weights.p[m][n], one, one);
            }
        }
        /* Orders instructions only: ptxas else moves most additions of the sums behind the last mma, where nothing
         * hides them, and the summands fill the registers until some spill. */
        if (!SUM_BY_MMA<T> && d == 0)
            __syncwarp();
        if (n + 1 < Size<Tile>::N_SLICES) {
#pragma unroll
            for (int j = d * PIECES / D_SLICES; j < (d + 1) * PIECES / D_SLICES; ++j)
                exponentiate<T, Tile>(weights, acc, base, scores, scale_log2, (n + 1) * PIECES + j);
        }
    }
}

template <typename T, typename Tile, bool MASKED>
__device__ __forceinline__ void compute_tile(Accumulators<Tile> &acc, Feed<T, Tile> &feed, const Arguments &arg,
                                             Lane at, int first_column, Mask mask)
{
    Scores<Tile> scores;
    Rows<Tile> base, alpha;
    uint32_t v[AHEAD + 1][4];

    compute_scores<T, Tile>(scores, at.q, at.k);
    if (MASKED)
        mask_scores<Tile>(scores, first_column, mask);
    else
        feed.copy_whole(arg);
#pragma unroll
    for (int i = 0; i < AHEAD; ++i)
        load_v<Tile>(v[i], at.v, i);
    if (move_maxima<Tile, MASKED>(acc, base, alpha, scores, arg.scale_log2))
        rescale<Tile>(acc, alpha);
    accumulate<T, Tile>(acc, scores, base, v, at.v, arg.scale_log2);
}

/* ---- output --------------------------------------------------------------------------------------------------- */

/* O and LSE of the warp's rows; O goes through the warp's own rows of shared memory to become 16-byte stores. */
template <typename T, typename Tile>
__device__ __forceinline__ void store_output(const Accumulators<Tile> &acc, const Arguments &arg, const Place &place,
                                             uint16_t *s_o)
{
    constexpr int ROWS_AT_ONCE = WARP / Size<Tile>::CHUNKS;
    const int lane = threadIdx.x % WARP, warp_row = threadIdx.x / WARP * Size<Tile>::ROWS;
    char *shared = reinterpret_cast<char *>(s_o);
    float *lse = arg.lse + (int64_t(place.batch) * arg.q_heads + place.head) * arg.q_len;

    __syncwarp(); /* all lanes have read their Q */
#pragma unroll
    for (int m = 0; m < Size<Tile>::ROW_TILES; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int in_block = warp_row + 16 * m + 8 * half + lane / 4, row = place.first_row + in_block;
            const float sum = SUM_BY_MMA<T> ? acc.sum[m][2 * half] : quad_sum(acc.sum[m][2 * half]);
            const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
#pragma unroll
            for (int d = 0; d < Size<Tile>::CHUNKS; ++d)
                *reinterpret_cast<uint32_t *>(shared + d / 8 * (Tile::BLOCK_M * 128) + swizzle_128b(in_block, d % 8)
                                              + lane % 4 * 4)
                    = pack2<T>(acc.o[m][d][2 * half] * inverse, acc.o[m][d][2 * half + 1] * inverse);
            if (lane % 4 == 0 && row < arg.q_len)
                lse[row] = sum == 0.0f ? -INFINITY : LN_2 * (acc.max_log2[m][half] + log2f(sum));
        }
    __syncwarp();

    const int chunk = lane % Size<Tile>::CHUNKS;
    T *o = static_cast<T *>(arg.o) + place.batch * arg.o_strides.batch + place.head * arg.o_strides.head + chunk * 8;
#pragma unroll
    for (int i = 0; i < Size<Tile>::ROWS; i += ROWS_AT_ONCE) {
        const int in_block = warp_row + i + lane / Size<Tile>::CHUNKS, row = place.first_row + in_block;
        if (row < arg.q_len)
            *reinterpret_cast<uint4 *>(o + row * arg.o_strides.row) = *reinterpret_cast<const uint4 *>(
                shared + chunk / 8 * (Tile::BLOCK_M * 128) + swizzle_128b(in_block, chunk % 8));
    }
}

/* ---- the kernel ----------------------------------------------------------------------------------------------- */

__device__ __forceinline__ Place find_place(const Arguments &arg, int block_m, int block)
{
    const int bulk_blocks = arg.bulk_heads * arg.row_tiles, section_blocks = arg.group * arg.row_tiles;
    int first_head = arg.bulk_heads, heads = arg.heads_in_all - arg.bulk_heads, within = block - bulk_blocks;
    if (within < 0) {
        first_head = block / section_blocks * arg.group;
        heads = arg.group;
        within = block % section_blocks;
    }
    const int head = first_head + within % heads;
    return {head / arg.q_heads, head % arg.q_heads, (arg.row_tiles - 1 - within / heads) * block_m};
}

/* How many keys, from key 0 on, row `row` sees; rows past the end see what the last one sees. */
__device__ __forceinline__ int visible_keys(const Arguments &arg, int64_t row)
{
    const int64_t end = (row < arg.q_len ? row : arg.q_len - 1) + arg.kv_len - arg.q_len + 1;
    return !arg.causal ? arg.kv_len : end < 0 ? 0 : int(end);
}

template <typename Tile> __device__ __forceinline__ void clear(Accumulators<Tile> &acc)
{
#pragma unroll
    for (int m = 0; m < Size<Tile>::ROW_TILES; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            acc.max_log2[m][i / 2] = -INFINITY;
            acc.sum[m][i] = 0.0f;
#pragma unroll
            for (int d = 0; d < Size<Tile>::CHUNKS; ++d)
                acc.o[m][d][i] = 0.0f;
        }
}

template <typename T, typename Tile>
__global__ void __launch_bounds__(Size<Tile>::THREADS, BLOCKS_PER_SM)
fused_fwd_kernel(const __grid_constant__ Arguments arg)
{
    extern __shared__ __align__(1024) unsigned char smem_bytes[];
    Smem<Tile> &smem = *reinterpret_cast<Smem<Tile> *>(smem_bytes);
    using Shape = Size<Tile>;
    constexpr int M = Tile::BLOCK_M, N = Tile::BLOCK_N, STAGE_BYTES = Size<Tile>::STAGE_BYTES;
    const int lane = threadIdx.x % WARP, warp_offset = threadIdx.x / WARP * Size<Tile>::ROWS;
    const Place place = find_place(arg, M, blockIdx.x);
    /* Tiles that any row of the block sees, and those that all rows see in full. */
    const int tiles = (visible_keys(arg, place.first_row + M - 1) + N - 1) / N;
    const int whole_tiles = visible_keys(arg, place.first_row) / N;
    Feed<T, Tile> feed;
    Accumulators<Tile> acc;

    const int kv_head = place.head / arg.group;
    feed.k = copy_source<T, Shape>(head_of<T>(arg.k, arg.k_strides, place.batch, kv_head), arg.k_strides.row);
    feed.v = copy_source<T, Shape>(head_of<T>(arg.v, arg.v_strides, place.batch, kv_head), arg.v_strides.row);
    feed.to = shared_address(smem.k) + copy_offset<Shape, N>();
    feed.next = 0;
    if (tiles > 0) {
        const T *rows = head_of<T>(arg.q, arg.q_strides, place.batch, place.head) + place.first_row * arg.q_strides.row;
        const T *from = copy_source<T, Shape>(rows, arg.q_strides.row);
        copy_tile<T, Shape, M>(shared_address(smem.q) + copy_offset<Shape, M>(), from, arg.q, arg.q_strides.row,
                               arg.q_len - place.first_row);
        feed.copy(arg);
        cp_async_commit();
    }
    clear<Tile>(acc);
    Lane at = {shared_address(smem.q) + warp_offset * 128 + rows_first(lane), 0, 0};
    const uint32_t k_lane = shared_address(smem.k) + columns_first(lane);
    const uint32_t v_lane = shared_address(smem.v) + rows_first(lane);

    int n = 0;
    for (; n < whole_tiles; ++n) {
        await_tile();
        feed.next = n + 1;
        feed.is_whole = n + 1 < tiles && (n + 2) * N <= arg.kv_len;
        if (!feed.is_whole && n + 1 < tiles)
            feed.copy(arg);
        at.k = k_lane + n % STAGES * STAGE_BYTES;
        at.v = v_lane + n % STAGES * STAGE_BYTES;
        compute_tile<T, Tile, false>(acc, feed, arg, at, 0, Mask());
        cp_async_commit();
    }

    const Place same = find_place(arg, M, forget(blockIdx.x));
    const int first_row = same.first_row + warp_offset;
    const int warp_tiles
        = first_row < arg.q_len ? (visible_keys(arg, first_row + Size<Tile>::ROWS - 1) + N - 1) / N : 0;
    const Mask mask = {arg.kv_len, arg.causal ? arg.kv_len + 1 + lane / 4 - (arg.q_len - first_row) : arg.kv_len};
    for (; n < tiles; ++n) {
        await_tile();
        feed.next = n + 1;
        if (n + 1 < tiles)
            feed.copy(arg);
        cp_async_commit();
        at.k = k_lane + n % STAGES * STAGE_BYTES;
        at.v = v_lane + n % STAGES * STAGE_BYTES;
        if (n < warp_tiles)
            compute_tile<T, Tile, true>(acc, feed, arg, at, n * N + lane % 4 * 2, mask);
    }
    store_output<T, Tile>(acc, arg, same, smem.q);
}

/* ---- variants and launch -------------------------------------------------------------------------------------- */

struct Variant {
    struct attn_variant shown;
    int head_dim, block_m;
    size_t smem_bytes;
    cudaError_t (*launch)(const Arguments &, enum attn_dtype, unsigned blocks, cudaStream_t, const char **call);
};

template <typename T, typename Tile>
cudaError_t launch_typed(const Arguments &arg, unsigned blocks, cudaStream_t stream, const char **call)
{
    static_assert(sizeof(Smem<Tile>) == Tile::SMEM_KB * 1024, "the table says how much shared memory a tile takes");
    *call = "cudaFuncSetAttribute";
    const cudaError_t error = cudaFuncSetAttribute(
        fused_fwd_kernel<T, Tile>, cudaFuncAttributeMaxDynamicSharedMemorySize, int(sizeof(Smem<Tile>)));
    if (error != cudaSuccess) {
        cudaGetLastError(); /* not to be found again by the next check */
        return error;
    }
    *call = "fused_fwd_kernel";
    fused_fwd_kernel<T, Tile><<<blocks, Size<Tile>::THREADS, sizeof(Smem<Tile>), stream>>>(arg);
    return cudaGetLastError();
}

template <typename Tile>
cudaError_t launch_tile(const Arguments &arg, enum attn_dtype dtype, unsigned blocks, cudaStream_t stream,
                        const char **call)
{
    return dtype == ATTN_FP16 ? launch_typed<__half, Tile>(arg, blocks, stream, call)
                              : launch_typed<__nv_bfloat16, Tile>(arg, blocks, stream, call);
}

#define SHOWN(D, M, N, W, KB)                                                                                          \
    {                                                                                                                  \
        "fwd_d" #D "_m" #M "n" #N, #M " x " #N " tile, " #W " warps, 2 stages, " #KB " KB shared memory"               \
    }
#define TABLE_ROW(DIM, ROWS, KEYS, W, KB)                                                                              \
    {SHOWN(DIM, ROWS, KEYS, W, KB), DIM, ROWS, KB * 1024, launch_tile<FwdD##DIM##M##ROWS##N##KEYS>},
#define SHOWN_ROW(D, M, N, W, KB) SHOWN(D, M, N, W, KB),

const Variant table[] = {FWD_TILES(TABLE_ROW)};

/* The variant that the request forces, or else the first that leaves room for two blocks on a multiprocessor, or else
 * the first that fits at all. NULL with the reason when there is none. */
const Variant *find_variant(const struct attn_request *request, struct attn_message *why)
{
    const size_t limit = request->device->smem_per_block_bytes;
    const int64_t head_dim = request->problem->head_dim;
    const Variant *fits = NULL, *known = NULL;

    for (const Variant &v : table) {
        if (v.head_dim != head_dim || (request->variant && strcmp(v.shown.name, request->variant) != 0))
            continue;
        known = &v;
        if (BLOCKS_PER_SM * (v.smem_bytes + BLOCK_RESERVED_BYTES) <= limit + BLOCK_RESERVED_BYTES)
            return &v;
        if (!fits && v.smem_bytes <= limit)
            fits = &v;
    }
    if (!known)
        attn_fail(why, ATTN_UNSUPPORTED, "the forward has no variant %s for head_dim %d", request->variant,
                        int(head_dim));
    else if (!fits)
        attn_fail(why, ATTN_UNSUPPORTED, "%s needs %zu bytes of shared memory, a block has at most %zu",
                        known->shown.name, known->smem_bytes, limit);
    return fits;
}

Strides strides_of(const struct attn_tensor *t) { return {t->stride_batch, t->stride_head, t->stride_row}; }

int64_t row_tiles_of(const struct attn_problem *p, const Variant *v)
{
    return (p->q_len + v->block_m - 1) / v->block_m;
}

/* How many heads go one by one: all where no block is longer than another, else all but the last few waves. */
int bulk_heads_of(const struct attn_problem *p, const struct attn_device *device, int64_t row_tiles)
{
    const int64_t heads = p->batch * p->q_heads, group = p->q_heads / p->kv_heads;
    const int64_t tail_blocks = int64_t(TAIL_WAVES) * BLOCKS_PER_SM * device->multiprocessors;
    const int64_t tail_heads = p->causal ? (tail_blocks + row_tiles - 1) / row_tiles : 0;

    return tail_heads >= heads ? 0 : int((heads - tail_heads) / group * group);
}

Arguments make_arguments(const struct attn_request *request, const struct attn_tensors *t, const Variant *v)
{
    const struct attn_problem *p = request->problem;
    const int64_t row_tiles = row_tiles_of(p, v);
    Arguments arg;

    arg.q = t->q.data;
    arg.k = t->k.data;
    arg.v = t->v.data;
    arg.o = t->o.data;
    arg.lse = t->lse;
    arg.q_strides = strides_of(&t->q);
    arg.k_strides = strides_of(&t->k);
    arg.v_strides = strides_of(&t->v);
    arg.o_strides = strides_of(&t->o);
    arg.q_len = int(p->q_len);
    arg.kv_len = int(p->kv_len);
    arg.q_heads = int(p->q_heads);
    arg.group = int(p->q_heads / p->kv_heads);
    arg.row_tiles = int(row_tiles);
    arg.heads_in_all = int(p->batch * p->q_heads);
    arg.bulk_heads = bulk_heads_of(p, request->device, row_tiles);
    arg.scale_log2 = p->scale * LOG2_E;
    arg.causal = p->causal;
    return arg;
}

} // namespace

extern "C" {

const struct attn_variant fused_sm80_fwd_variants[] = {FWD_TILES(SHOWN_ROW){NULL, NULL}};

enum attn_status fused_sm80_fwd_accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const Variant *v = find_variant(request, why);

    if (!v)
        return ATTN_UNSUPPORTED;
    if (p->q_len > MAX_LEN || p->kv_len > MAX_LEN)
        return attn_fail(why, ATTN_UNSUPPORTED, "the forward takes lengths up to %lld", (long long)MAX_LEN);
    return attn_check_grid(row_tiles_of(p, v), p->q_heads, p->batch, why);
}

size_t fused_sm80_fwd_workspace_bytes(const struct attn_request *) { return 0; }

const char *fused_sm80_fwd_variant(const struct attn_request *request)
{
    struct attn_message why;
    const Variant *v = find_variant(request, &why);

    return v ? v->shown.name : NULL;
}

enum attn_status fused_sm80_fwd_launch(const struct attn_request *request, const struct attn_tensors *tensors,
                                       const struct attn_run *run, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const Variant *v = find_variant(request, why);
    const char *call = "";

    if (!v)
        return ATTN_UNSUPPORTED;
    const unsigned blocks = unsigned(row_tiles_of(p, v) * p->q_heads * p->batch);
    const cudaError_t error = v->launch(make_arguments(request, tensors, v), p->dtype, blocks,
                                        static_cast<cudaStream_t>(run->stream), &call);
    if (error != cudaSuccess)
        return attn_fail(why, ATTN_ERROR, "%s: %s (%s)", call, cudaGetErrorString(error),
                               cudaGetErrorName(error));
    return ATTN_OK;
}

} /* extern "C" */
