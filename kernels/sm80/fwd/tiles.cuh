/* fused_sm80, forward: its tiles, what a block has in shared memory and a warp in registers, copies of K and V. The
 * kernel and its description: kernel.cuh. */
#pragma once
#include "kernels/sm80/fused_sm80.h"

#include <cmath>

#include "kernels/device/copies_sm80.cuh"
#include "kernels/device/warp_matrix.cuh"
#include "kernels/sm80/family.cuh"

namespace sm80_fwd {

using namespace device;
using namespace sm80_family;
using Params = fused_sm80_fwd_params;

constexpr int WARP = 32, STAGES = 2;
constexpr float RESCALE_THRESHOLD_LOG2 = 8.0f; /* by how much a row's max may exceed the one in use */
constexpr int PREFETCH = 2;                    /* by how many fragments of K and V the loads are ahead of their use */

/* ---- tiles ---------------------------------------------------------------------------------------------------- */

/* head_dim, rows, keys, warps, blocks on a multiprocessor, KB of shared memory; whether it is compiled as Dense,
 * Sparse and Window, SparseDropout, Family, Score (family.cuh); best first */
#define FWD_TILES_D32(ROW) ROW(32, 128, 64, 4, 2, 48, NO, YES, YES, YES, YES)
#define FWD_TILES_D64(ROW) \
    ROW(64, 128, 128, 4, 2, 80, YES, YES, YES, NO, NO) \
    ROW(64, 128, 64, 4, 2, 48, YES, YES, YES, YES, YES)
#define FWD_TILES_D96(ROW) \
    ROW(96, 128, 64, 4, 2, 96, NO, YES, YES, YES, YES) \
    ROW(96, 128, 32, 4, 2, 64, NO, NO, NO, YES, NO)
#define FWD_TILES_D128(ROW) \
    ROW(128, 128, 64, 4, 2, 96, YES, YES, NO, NO, NO) \
    ROW(128, 128, 32, 4, 2, 64, YES, YES, YES, YES, YES)
#define FWD_TILES_D192(ROW) \
    ROW(192, 128, 64, 8, 1, 144, NO, YES, YES, YES, NO) \
    ROW(192, 64, 32, 4, 2, 72, NO, NO, NO, YES, YES)
#define FWD_TILES_D256(ROW) \
    ROW(256, 128, 64, 8, 1, 192, NO, YES, YES, YES, NO) \
    ROW(256, 64, 32, 4, 2, 96, NO, NO, NO, YES, YES)
/* The same of a V whose head_dim, the second number, is not that of Q and K; compiled as Sparse and Window. */
#define FWD_TILES_D64X128(ROW) \
    ROW(64, 128, 128, 64, 4, 2, 96) \
    ROW(64, 128, 128, 32, 4, 2, 64)
#define FWD_TILES_D192X128(ROW) \
    ROW(192, 128, 256, 64, 8, 1, 192) \
    ROW(192, 128, 256, 32, 8, 1, 144) \
    ROW(192, 128, 128, 32, 4, 2, 96)

#define TILE_STRUCT(DIM, ROWS, KEYS, W, BLOCKS, KB, DENSE, SPARSE, DROPOUT, FAMILY, SCORE) \
    struct FwdD##DIM##M##ROWS##N##KEYS { \
        static constexpr int HEAD_DIM = DIM, V_HEAD_DIM = DIM, BLOCK_M = ROWS, BLOCK_N = KEYS, STAGE_KEYS = KEYS, \
                             WARPS = W, BLOCKS_PER_SM = BLOCKS, SMEM_KB = KB; \
    };
#define V_TILE_STRUCT(DIM, V_DIM, ROWS, KEYS, W, BLOCKS, KB) \
    struct FwdD##DIM##X##V_DIM##M##ROWS##N##KEYS { \
        static constexpr int HEAD_DIM = DIM, V_HEAD_DIM = V_DIM, BLOCK_M = ROWS, BLOCK_N = KEYS, STAGE_KEYS = KEYS, \
                             WARPS = W, BLOCKS_PER_SM = BLOCKS, SMEM_KB = KB; \
    };
FWD_TILES_D32(TILE_STRUCT)
FWD_TILES_D64(TILE_STRUCT)
FWD_TILES_D96(TILE_STRUCT)
FWD_TILES_D128(TILE_STRUCT)
FWD_TILES_D192(TILE_STRUCT)
FWD_TILES_D256(TILE_STRUCT)
FWD_TILES_D64X128(V_TILE_STRUCT)
FWD_TILES_D192X128(V_TILE_STRUCT)

/* KEYS of the keys of a stage. */
template <typename Tile, int KEYS> struct PieceOf : Tile {
    static constexpr int BLOCK_N = KEYS;
};

template <typename Tile> struct Traits {
    static constexpr int THREADS = Tile::WARPS * WARP;
    static constexpr int ROWS = Tile::BLOCK_M / Tile::WARPS; /* of a warp */
    static constexpr int ROW_TILES = ROWS / 16;
    static constexpr bool V_IS_AS_WIDE = Tile::HEAD_DIM == Tile::V_HEAD_DIM; /* V and O are as wide as Q and K */
    static constexpr int WIDEST = Tile::HEAD_DIM > Tile::V_HEAD_DIM ? Tile::HEAD_DIM : Tile::V_HEAD_DIM;
    static constexpr int D_SLICES = Tile::HEAD_DIM / 16, V_SLICES = Tile::V_HEAD_DIM / 16;
    static constexpr int N_SLICES = Tile::BLOCK_N / 16;
    /* Of 16 bytes in a row of Q and K, of V and O. */
    static constexpr int CHUNKS = Tile::HEAD_DIM / 8, V_CHUNKS = Tile::V_HEAD_DIM / 8;
    static constexpr int ROW_ELEMENTS = (WIDEST + 63) / 64 * 64; /* in shared memory, of all arrays */
    static constexpr int STAGE_BYTES = Tile::STAGE_KEYS * ROW_ELEMENTS * 2;
    static_assert(ROWS % 16 == 0 && Tile::BLOCK_N % 16 == 0, "a warp owns whole 16-row tiles");
    static_assert(Tile::HEAD_DIM % 16 == 0 && Tile::V_HEAD_DIM % 16 == 0, "a row is whole fragments");
};

/* The same with what copies of whole rows need, which are whole 128-byte panels. */
template <typename Tile> struct CopyTraits : Traits<Tile> {
    static constexpr int COPY_STEP = Traits<Tile>::THREADS / Traits<Tile>::CHUNKS; /* rows that one copy of all fills */
    static_assert(Tile::HEAD_DIM % 64 == 0, "a row is whole 128-byte panels");
    static_assert(COPY_STEP % 8 == 0, "the swizzle of a thread's chunk is the same in all its rows");
};

/* Whether row sums are computed from the rounded P by the tensor cores, as P V with V = 1: fewer instructions, but a
 * relative error in the sum of up to half an ulp of P: 2^-11 in fp16; 2^-8 in bf16, which is too much for LSE. Not of
 * the family, whose P has lost the dropped elements when it is an operand. In Window's wide tiles it takes longer. */
template <typename T, typename Tile, typename Attributes> constexpr bool SUM_BY_MMA = false;
template <typename Tile> constexpr bool SUM_BY_MMA<__half, Tile, Dense> = true;
template <typename Tile> constexpr bool SUM_BY_MMA<__half, Tile, Sparse> = true;
template <typename Tile> constexpr bool SUM_BY_MMA<__half, Tile, Window> = Tile::HEAD_DIM <= 128;

/* ---- shared memory and registers ------------------------------------------------------------------------------ */

template <typename Tile> struct alignas(1024) Smem {
    uint16_t q[Tile::BLOCK_M * Traits<Tile>::ROW_ELEMENTS]; /* Q, and O at the end */
    uint16_t k[STAGES][Tile::BLOCK_N * Traits<Tile>::ROW_ELEMENTS];
    uint16_t v[STAGES][Tile::BLOCK_N * Traits<Tile>::ROW_ELEMENTS];
};

/* Which rows of which head a block computes. */
struct WorkTile {
    int batch, head, first_row;
};

/* Which rows of which head of which sequence a block computes; sequence.number is -1 for none. */
struct FamilyWork {
    Sequence sequence;
    int head, first_row;
    int own; /* number of its tile among those of the sequence, or among all work tiles of packed sequences */
};

template <int ROW_TILES, int CHUNKS> struct AccumulatorsOf {
    float o[ROW_TILES][CHUNKS][4];
    float max_log2[ROW_TILES][2]; /* the maximum in use, times scale_log2; rows lane / 4 and + 8 */
    float sum[ROW_TILES][4];      /* of P over this lane's columns */
};
template <typename Tile> using Accumulators = AccumulatorsOf<Traits<Tile>::ROW_TILES, Traits<Tile>::V_CHUNKS>;

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
        copy_tile<T, CopyTraits<Tile>, Tile::BLOCK_N>(stage(), k, params.k, params.k_strides.row, rows);
        copy_tile<T, CopyTraits<Tile>, Tile::BLOCK_N>(stage() + V_OFFSET, v, params.v, params.v_strides.row, rows);
    }

    /* A whole tile, without a branch; nothing when it is not whole. */
    __device__ __forceinline__ void copy_whole(const Params &params)
    {
        const uint32_t shared = stage();
        copy_whole_tile<T, CopyTraits<Tile>, Tile::BLOCK_N>(shared, k, params.k_strides.row, is_whole);
        copy_whole_tile<T, CopyTraits<Tile>, Tile::BLOCK_N>(shared + V_OFFSET, v, params.v_strides.row, is_whole);
    }
};

/* What all warps of a block of the family know and need seldom: in shared memory, so that it takes no registers. */
struct BlockFacts {
    const uint16_t *k, *v; /* of the sequence and head */
    const uint8_t *mask;   /* block mask of the head, or NULL */
    int sequence, head;
};

/* The same for any tiles of a sequence, in any order, and rows of any width. */
template <typename Tile> struct KvPanels {
    static constexpr int N = Tile::BLOCK_N, STAGE_BYTES = Traits<Tile>::STAGE_BYTES;
    const volatile BlockFacts *facts;
    int next;        /* number of the next tile */
    int kv_len, end; /* tiles from `end` on are not copied */
    uint32_t to;     /* the stage of K that it goes to */

    __device__ __forceinline__ void copy(const Params &params) const
    {
        const int rows = kv_len - next * N, columns = params.family.head_dim;
        if (next >= end)
            return;
        load_panels<N, Tile::HEAD_DIM, Traits<Tile>::THREADS>(
            to, facts->k + static_cast<int64_t>(next) * N * params.k_strides.row, params.k, params.k_strides.row, rows,
            columns);
        load_panels<N, Tile::HEAD_DIM, Traits<Tile>::THREADS>(
            to + STAGES * STAGE_BYTES, facts->v + static_cast<int64_t>(next) * N * params.v_strides.row, params.v,
            params.v_strides.row, rows, columns);
    }
};

template <typename T>
__device__ __forceinline__ const T *head_of(const void *tensor, const fused_sm80_strides &strides, int batch, int head)
{
    return static_cast<const T *>(tensor) + batch * strides.batch + head * strides.head;
}

/* Row 0 of a head of a sequence, `first` rows into the tensor where sequences are packed. */
__device__ __forceinline__ uint16_t *family_head(const Params &params, const void *tensor,
                                                 const fused_sm80_strides &strides, const Sequence &s, int first,
                                                 int head)
{
    return static_cast<uint16_t *>(const_cast<void *>(tensor)) +
           head_offset(params.family.lengths, strides.batch, strides.head, strides.row, s, first, head);
}

/* On return tile n has arrived for all threads, and all have finished with tile n - 1. */
__device__ __forceinline__ void wait_for_tile()
{
    cp_async_wait<0>();
    __syncthreads();
}

} // namespace sm80_fwd
