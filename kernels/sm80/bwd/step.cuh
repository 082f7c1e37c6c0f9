/* fused_sm80, backward: what a warp computes of a tile of queries. The kernel and its description:
 * kernel.cuh. */
#pragma once
#include <climits>

#include "kernels/device/arithmetic.cuh"
#include "kernels/family/dropout.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/sm80/bwd/tiles.cuh"
#include "kernels/sm80/score.cuh"

namespace sm80_bwd {

using namespace device;

/* ---- One step: a tile of queries -------------------------------------------------------------------------------- */

template <typename Tile> using ScoreFragments = Fragments<Traits<Tile>::KEYS16, Traits<Tile>::CHUNK_Q / 16>;

/* dK and dV of a warp. */
template <typename Tile> using Gradient = Accumulator<Traits<Tile>::KEYS16, Traits<Tile>::COLUMNS / 8>;
template <typename Tile> using GradientOfV = Accumulator<Traits<Tile>::KEYS16, Traits<Tile>::OfV::COLUMNS / 8>;

/* What a warp reads and writes in a step. */
struct StepOperands {
    struct operand k, v;              /* A of the scores: this warp's keys */
    struct operand q, dout;           /* B of the scores: this warp's queries */
    struct operand q_rows, dout_rows; /* B of dK, dV: all queries, this warp's columns */
    struct operand ds, p;             /* this warp's keys, all queries */
    uint32_t lse2, neg_delta;         /* this lane's first of this warp's queries */
};

/* All queries and a warp's columns of Q or dO, which lies at `first`; W: a Width. */
template <typename W>
__device__ __forceinline__ struct operand own_columns(uint32_t rows_16, uint32_t first, uint32_t warp_q)
{
    return {columns_right(rows_16, W::OWN_PANEL ? 0 : warp_q * 16),
            first + (W::OWN_PANEL ? warp_q * W::Q_PANEL_BYTES : 0),
            static_cast<uint32_t>(W::OWN_PANEL ? 0 : W::Q_PANEL_BYTES)};
}

template <typename Tile>
__device__ __forceinline__ StepOperands operands_of(const Smem<Tile> &s, int step, uint32_t warp_kv, uint32_t warp_q,
                                                    uint32_t rows_8, uint32_t rows_16)
{
    using S = Traits<Tile>;
    const int stage = S::STAGES == 2 ? step : 0;
    const uint32_t lane = threadIdx.x % LANES;
    const uint32_t keys = warp_kv * Tile::WARP_KEYS * ROW_BYTES, queries = warp_q * S::WARP_Q * ROW_BYTES;
    StepOperands at;
    at.k = {rows_16, shared_address(s.k) + keys, S::KV_PANEL_BYTES};
    at.v = {rows_16, shared_address(s.v) + keys, S::KV_PANEL_BYTES};
    at.q = {rows_8, shared_address(s.q[stage]) + queries, S::Q_PANEL_BYTES};
    at.dout = {rows_8, shared_address(s.dout[stage]) + queries, S::Q_PANEL_BYTES};
    at.q_rows = own_columns<S>(rows_16, shared_address(s.q[stage]), warp_q);
    at.dout_rows = own_columns<typename S::OfV>(rows_16, shared_address(s.dout[stage]), warp_q);
    at.ds = {rows_16, shared_address(s.ds[Tile::DEFER_DQ ? step : 0]) + keys, 0};
    at.p = {rows_16, shared_address(s.ds[S::EXCHANGE ? S::DS_BUFFERS : 0]) + keys, 0};
    at.lse2 = shared_address(s.stats[stage]) + (warp_q * S::WARP_Q + lane % 4 * 2) * sizeof(float);
    at.neg_delta = at.lse2 + Tile::Q * sizeof(float);
    return at;
}

/* P = exp2(scale_log2 S - lse2) in place (Dao et al. 2022, algorithm 4, line 13). */
template <int M16, int N8>
__device__ __forceinline__ void probabilities(Accumulator<M16, N8> &s, float scale_log2, uint32_t lse2)
{
#pragma unroll
    for (int n = 0; n < N8; ++n) {
        const float2 lse = load_shared_float2(lse2 + n * 8 * sizeof(float));
#pragma unroll
        for (int m = 0; m < M16; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                s.at[m][n][i] = exp2_approx(fmaf(s.at[m][n][i], scale_log2, i % 2 ? -lse.y : -lse.x));
    }
}

/* Zeros where key - query, both counted from the tile's first, is over `diagonal`, or the key is not below keys. */
template <int M16, int N8>
__device__ __forceinline__ void mask_probabilities(Accumulator<M16, N8> &p, int diagonal, int keys)
{
    const int lane = threadIdx.x % LANES;
#pragma unroll
    for (int m = 0; m < M16; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int key = 16 * m + half * 8 + lane / 4;
            const int first_query = key < keys ? key - diagonal - lane % 4 * 2 : INT_MAX;
#pragma unroll
            for (int n = 0; n < N8; ++n)
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    if (8 * n + i < first_query)
                        p.at[m][n][2 * half + i] = 0.0f;
        }
}

/* An accumulator that starts from -D, so that the product dO V^T makes it dP - D. */
template <int M16, int N8>
__device__ __forceinline__ void start_from_delta(Accumulator<M16, N8> &dp, uint32_t neg_delta)
{
#pragma unroll
    for (int n = 0; n < N8; ++n) {
        const float2 delta = load_shared_float2(neg_delta + n * 8 * sizeof(float));
#pragma unroll
        for (int m = 0; m < M16; ++m) {
            dp.at[m][n][0] = dp.at[m][n][2] = delta.x;
            dp.at[m][n][1] = dp.at[m][n][3] = delta.y;
        }
    }
}

/* What a block of the family computes: keys of a sequence, and the tiles of queries that see any of them but for the
 * block mask. In shared memory, so that it takes no registers. */
struct BlockFacts {
    Sequence sequence;
    int kv_head, first_key, first_tile, end_tile;
    int own; /* number of its tile among those of the sequence, or among all work tiles of packed sequences */
};

/* What a warp of the family knows of a step. */
struct FamilyStep {
    const volatile BlockFacts *facts;
    int head;         /* query head */
    int key, query;   /* the first of this warp's */
    bool has_hidden;  /* the block mask hides a part of the tile */
    bool is_masked;   /* something hides a part of it from the warp */
    uint32_t of_keys; /* SparseDropout: where in shared memory this thread's DropoutKeys are */

    __device__ __forceinline__ int shift() const { return facts->sequence.kv_len - facts->sequence.q_len; }
};

/* Row `row` of a warp's 32 keys in a kernel SparseDropout. A thread has rows r, r + 8, r + 16 and r + 24 of S^T, r < 8.
 * In this order they are the keys 2 c, 2 c + 1, 2 c + 8 and 2 c + 9 of 16, c < 4: one call of attn_philox. */
__device__ __forceinline__ int key_of_row(int row)
{
    return row / 4 % 2 * 16 + row / 16 * 8 + row % 4 * 2 + row / 8 % 2;
}

/* Zeros where a query does not see a key; `query` counts from the warp's first one. CALLS: as in key_of_row. */
template <int M16, int N8, bool CALLS>
__device__ __forceinline__ void mask_family(Accumulator<M16, N8> &p, const fused_sm80_family &family,
                                            const FamilyStep &step, int query)
{
    const int lane = threadIdx.x % LANES, first_query = step.query + query, column = first_query + lane % 4 * 2;
    const int shift = step.shift(), kv_len = step.facts->sequence.kv_len;
#pragma unroll
    for (int m = 0; m < M16; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int eight_keys = step.key + (CALLS ? lane / 16 * 16 + m * 8 : 16 * m + 8 * half);
            const int key = CALLS ? step.key + key_of_row(16 * m + 8 * half + lane / 4) : eight_keys + lane / 4;
            const int first = key < kv_len ? key - shift - family.window.right - column : INT_MAX;
            const int last = key - shift + family.window.left - column;
            uint32_t seen = ~0u; /* of these eight keys, by every eight queries */
            if (step.has_hidden) {
                const uint8_t *mask = mask_of_head(family.mask, step.facts->sequence.number, step.head);
                const int row_block =
                    min((first_query + lane % N8 * 8) / family.mask.block, family.mask.row_blocks - 1);
                const int key_block = min(eight_keys / family.mask.block, family.mask.key_blocks - 1);
                seen = __ballot_sync(0xffffffffu,
                                     mask[static_cast<int64_t>(row_block) * family.mask.key_blocks + key_block] != 0);
                if (CALLS) /* the threads of other eight keys have their bits there */
                    seen >>= lane & 16;
            }
#pragma unroll
            for (int n = 0; n < N8; ++n)
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    if (8 * n + i < first || 8 * n + i > last || !(seen >> n & 1u))
                        p.at[m][n][2 * half + i] = 0.0f;
        }
}

/* Makes S tanh(inner' S), inner' S = scale / softcap Q K^T, and multiplies dP - D by the derivative 1 - tanh^2. With
 * u = 1 / (1 + e^2x), tanh x = 1 - 2 u and the derivative is 4 u (1 - u). */
template <int M16, int N8>
__device__ __forceinline__ void cap_scores(Accumulator<M16, N8> &s, Accumulator<M16, N8> &dp, float inner)
{
#pragma unroll
    for (int m = 0; m < M16; ++m)
#pragma unroll
        for (int n = 0; n < N8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float u = __fdividef(1.0f, 1.0f + exp2_approx(s.at[m][n][i] * inner));
                dp.at[m][n][i] *= 4.0f * u * (1.0f - u);
                s.at[m][n][i] = 1.0f - 2.0f * u;
            }
}

/* Where this thread's first element of S^T is; `query` counts from the warp's first one. */
__device__ __forceinline__ ScorePlace place_of(const FamilyStep &step, int query)
{
    const int lane = forget(threadIdx.x) % LANES;
    return {step.facts->sequence.number,       step.head,
            step.query + query + lane % 4 * 2, step.key + lane / 4,
            step.facts->sequence.q_len,        step.facts->sequence.kv_len};
}

/* Adds dS^T to the sums of dBias. */
template <int M16, int N8>
__device__ __forceinline__ void add_dbias(const Accumulator<M16, N8> &ds, const Params &params, const FamilyStep &step,
                                          int query)
{
    const ScorePlace at = place_of(step, query);
    const int64_t row_elements = params.kv_len; /* of the longest sequence */
    float *first = params.dbias.sums + at.sequence * params.dbias.sequence_elements +
                   at.head * params.dbias.head_elements + at.row * row_elements + at.key;
    const int rows = at.q_len - at.row, keys = at.kv_len - at.key;
#pragma unroll
    for (int m = 0; m < M16; ++m)
#pragma unroll
        for (int n = 0; n < N8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int row = 8 * n + i % 2, key = 16 * m + i / 2 * 8;
                if (row < rows && key < keys)
                    atomicAdd(first + row * row_elements + key, ds.at[m][n][i]);
            }
}

/* Adds ALiBi or a bias to S^T. */
template <typename T, int M16, int N8>
__device__ __forceinline__ void add_to_scores_of(Accumulator<M16, N8> &s, const Params &params, const FamilyStep &step,
                                                 int query)
{
    add_to_scores<T>(params.score, place_of(step, query), [&](const auto &add) {
#pragma unroll
        for (int m = 0; m < M16; ++m)
#pragma unroll
            for (int n = 0; n < N8; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    add(s.at[m][n][i], 8 * n + i % 2, 16 * m + i / 2 * 8);
    });
}

/* Makes dO V^T the dP of dropout, M times it. Returns a bit for each element that is kept. */
template <int M16, int N8>
__device__ __forceinline__ uint32_t drop_dp(Accumulator<M16, N8> &dp, const fused_sm80_family &family,
                                            const FamilyStep &step, int query)
{
    static_assert(M16 * N8 * 4 <= 32, "a bit for each element");
    const DropoutTest test(family.dropout.threshold);
    const DropoutHead head(family.dropout.keys, step.facts->sequence.number, step.head);
    const uint32_t lane = forget(threadIdx.x % LANES);
    uint32_t bits = 0;
#pragma unroll
    for (int m = 0; m < M16; ++m) {
        const DropoutKeys keys = dropout_keys(head, (step.key / 16 + m) * 4 + lane / 8);
#pragma unroll
        for (int k = 0; k < N8 / 2; ++k) {
            uint32_t kept[4];
            dropout_mask_transposed(
                kept, test, head, dropout_rows(head, ((step.query + query) / 16 + k) * 8 + transposed_row(lane)), keys);
#pragma unroll
            for (int i = 0; i < 8; ++i) { /* register i / 2 of the fragment, its half i % 2 */
                const int n = 2 * k + i / 4, at = i / 2 % 2 * 2 + i % 2;
                const bool is_kept = (kept[i / 2] >> i % 2 * 16 & 1u) != 0;
                dp.at[m][n][at] = is_kept ? dp.at[m][n][at] * family.dropout.keep_factor : 0.0f;
                bits |= is_kept ? 1u << ((m * N8 + n) * 4 + at) : 0u;
            }
        }
    }
    return bits;
}

/* A product of 32 x 32 over columns, as gemm_by_columns, and other work between its instructions. The assembler would
 * put that behind all of the product, where it does not overlap with it: hence the addresses of the next fragments
 * depend on it, by way of `zero`, which is 0 and of which the compiler does not know that. */
template <int K16, typename T, typename Work>
__device__ __forceinline__ void gemm_with_work(Accumulator<2, 4> &c, const struct operand &a, const struct operand &b,
                                               uint32_t zero, Work &&work)
{
    uint32_t a_fragment[2][2][4], b_fragment[2][2][4];
#pragma unroll
    for (int k = 0; k <= K16; ++k) {
        if (k < K16) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                ldmatrix_x4(a_fragment[k & 1][i], block_address(a, i, k) ^ (i == 0 ? work.last & zero : 0));
                ldmatrix_x4(b_fragment[k & 1][i], block_address(b, i, k));
            }
        }
        if (k == 0)
            continue;
        const int now = (k - 1) & 1;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int n = i / 2, m = i % 2;
            mma_m16n8k16<T>(c.at[m][n], a_fragment[now][m], b_fragment[now][n / 2][n % 2 * 2],
                            b_fragment[now][n / 2][n % 2 * 2 + 1]);
            work.between((k - 1) * 8 + i, K16 * 8);
        }
    }
}

/* Of SparseDropout: the random words of 32 keys x 32 queries, a call for queries 2 (lane % 4) and + 1 of each 16, one
 * round of one call at a time. BEFORE of the four calls are drawn between the products of S, the others between those
 * of dP: the fewer at first, the fewer registers. */
template <int BEFORE> struct DropoutWords {
    enum { PIECES = 1 + ATTN_PHILOX_ROUNDS - DROPOUT_ROUNDS_BEFORE };
    DropoutHead head;
    uint32_t of_keys;   /* where in shared memory this thread's DropoutKeys are */
    uint32_t row, last; /* the counter of the rows of the first call; what was computed last */
    uint32_t of_call[4][4];

    /* step.query + query is a multiple of 32. What depends on the sequence is in the keys' part. */
    __device__ __forceinline__ DropoutWords(const fused_sm80_family &family, const FamilyStep &step, int query)
        : head(family.dropout.keys, 0, step.head), of_keys(step.of_keys), last(0)
    {
        row = (step.query + query) / 16 * 8 + forget(threadIdx.x) % 4 * 2;
    }

    __device__ __forceinline__ void between(int product, int products)
    {
        constexpr int COUNT = BEFORE * PIECES;
#pragma unroll
        for (int index = product * COUNT / products; index < (product + 1) * COUNT / products; ++index)
            draw(index);
    }

    __device__ __forceinline__ void draw(int index)
    {
        const int call = index / PIECES, round = DROPOUT_ROUNDS_BEFORE + index % PIECES - 1;
        uint32_t(&words)[4] = of_call[call];
        if (index % PIECES == 0) {
            const uint4 keys = load_shared_128(of_keys);
            dropout_begin(words, dropout_rows(head, row + call / 2 * 8 + call % 2), {keys.x, keys.y, keys.z, keys.w});
        } else {
            attn_philox_round(words, head.round_keys.low[round], head.round_keys.high[round]);
        }
        last = words[0];
    }
};

/* Of SparseDropout: P times the power of two of 1 / (1 - p), from S, where the sign says of an element whether it is
 * dropped, one element at a time. The factor is in lse2 (params.lse2_less): with it dS is not denormal in fp16; as a
 * power of two it rounds nothing. */
template <int BEFORE> struct DroppedProbabilities {
    enum { PIECES = (4 - BEFORE) * DropoutWords<BEFORE>::PIECES, STEPS = 16 / PIECES };
    Accumulator<2, 4> &p;
    DropoutWords<BEFORE> &words;
    float scale_log2;
    uint32_t lse2;
    const uint32_t &last_dropped;
    uint32_t last;
    float2 lse;

    __device__ __forceinline__ DroppedProbabilities(Accumulator<2, 4> &p, DropoutWords<BEFORE> &words,
                                                    const Params &params, uint32_t lse2)
        : p(p), words(words), scale_log2(params.scale_log2), lse2(lse2),
          last_dropped(params.family.dropout.last_dropped),
          last(words.of_call[BEFORE - 1][0] ^ words.of_call[BEFORE - 1][2])
    {
    }

    __device__ __forceinline__ void mark(int m, int n, int i)
    {
        const uint32_t word = words.of_call[n / 2 * 2 + i % 2][n % 2 + i / 2 * 2];
        const bool is_kept = m == 0 ? is_low_kept(word, last_dropped) : is_high_kept(word, last_dropped);
        p.at[m][n][i] = is_kept ? p.at[m][n][i] : -p.at[m][n][i];
    }

    __device__ __forceinline__ void between(int product, int products)
    {
        const int every = products / 32, index = product / every, n = index / 8, m = index % 2, i = index / 2 % 4;
        if (product % every != every - 1)
            return;
        if (index < 16 && index % STEPS == 0) /* the second half needs them */
            words.draw(BEFORE * DropoutWords<BEFORE>::PIECES + index / STEPS);
        if (index % 8 == 0)
            lse = load_shared_float2(lse2 + n * 8 * sizeof(float));
        p.at[m][n][i] = exp2_approx(fmaf(p.at[m][n][i], scale_log2, i % 2 ? -lse.y : -lse.x));
        mark(m, n, i);
        last = __float_as_uint(p.at[m][n][i]);
    }
};

/* P has that factor and those signs. Makes dP the dS of it but for the rest of 1 / (1 - p), P * ((1 - p) (-D) + M dP),
 * M without its factor; then P without what is dropped. */
__device__ __forceinline__ void multiply_kept(Accumulator<2, 4> &p, Accumulator<2, 4> &dp, uint32_t neg_delta,
                                              float keep_share)
{
#pragma unroll
    for (int n = 0; n < 4; ++n) {
        const float2 delta = load_shared_float2(neg_delta + n * 8 * sizeof(float));
        const float shares[2] = {delta.x * keep_share, delta.y * keep_share};
#pragma unroll
        for (int m = 0; m < 2; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float kept = fmaxf(p.at[m][n][i], 0.0f);
                dp.at[m][n][i] = fmaf(kept, dp.at[m][n][i], fabsf(p.at[m][n][i]) * shares[i % 2]);
                p.at[m][n][i] = kept;
            }
    }
}

/* dP - D. */
template <int M16, int N8> __device__ __forceinline__ void subtract_delta(Accumulator<M16, N8> &dp, uint32_t neg_delta)
{
#pragma unroll
    for (int n = 0; n < N8; ++n) {
        const float2 delta = load_shared_float2(neg_delta + n * 8 * sizeof(float));
#pragma unroll
        for (int m = 0; m < M16; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                dp.at[m][n][i] += i % 2 ? delta.y : delta.x;
    }
}

template <int M16, int N8> __device__ __forceinline__ void drop_p(Accumulator<M16, N8> &p, uint32_t kept)
{
#pragma unroll
    for (int m = 0; m < M16; ++m)
#pragma unroll
        for (int n = 0; n < N8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (!(kept >> ((m * N8 + n) * 4 + i) & 1u))
                    p.at[m][n][i] = 0.0f;
}

/* P and dS = P * (dP - D) of CHUNK_Q of this warp's queries, from `query` on. */
template <typename Tile, typename T, bool MASKED, typename Attributes>
__device__ __forceinline__ void score_chunk(ScoreFragments<Tile> &p_fragments, ScoreFragments<Tile> &ds_fragments,
                                            const StepOperands &at, int query, const Params &params, int diagonal,
                                            int keys, const FamilyStep &step)
{
    using S = Traits<Tile>;
    constexpr int N8 = S::CHUNK_Q / 8;
    constexpr bool CALLS = Attributes::SPARSE && Attributes::DROPOUT;
    const uint32_t neg_delta = at.neg_delta + query * sizeof(float);
    Accumulator<S::KEYS16, N8> p, ds;
    struct operand q = at.q, dout = at.dout;
    q.first += query * ROW_BYTES;
    dout.first += query * ROW_BYTES;
    clear(p);
    if constexpr (CALLS) {
        const uint32_t zero = params.family.dropout.threshold >> 17;
        constexpr int BEFORE = Tile::HEAD_DIM < 128 ? 3 : 2;
        DropoutWords<BEFORE> words(params.family, step, query);
        gemm_with_work<Tile::HEAD_DIM / 16, T>(p, at.k, q, zero, words);
        DroppedProbabilities<BEFORE> probability(p, words, params, at.lse2 + query * sizeof(float));
        clear(ds);
        gemm_with_work<Tile::V_HEAD_DIM / 16, T>(ds, at.v, dout, zero, probability);
        if (MASKED && step.is_masked)
            mask_family<S::KEYS16, N8, true>(p, params.family, step, query);
        multiply_kept(p, ds, neg_delta, params.family.dropout.keep_share);
        pack_fragments<T>(p_fragments, p); /* dV takes P without what is dropped, dS all of it */
        pack_fragments<T>(ds_fragments, ds);
        return;
    }
    gemm_by_columns<Tile::HEAD_DIM / 16, T>(p, at.k, q);
    [[maybe_unused]] uint32_t kept = ~0u;
    if (has_dropout<Attributes>(params.family))
        clear(ds);
    else
        start_from_delta(ds, neg_delta);
    gemm_by_columns<Tile::V_HEAD_DIM / 16, T>(ds, at.v, dout);
    if constexpr (Attributes::FAMILY) {
        if (has_dropout<Attributes>(params.family)) {
            kept = drop_dp(ds, params.family, step, query);
            subtract_delta(ds, neg_delta);
        }
        if (params.family.softcap.inner != 0.0f)
            cap_scores(p, ds, params.family.softcap.inner);
        if constexpr (Attributes::SCORE)
            add_to_scores_of<T>(p, params, step, query);
    }
    probabilities(p, params.scale_log2, at.lse2 + query * sizeof(float));
    if constexpr ((Attributes::FAMILY || Attributes::SPARSE) && MASKED)
        mask_family<S::KEYS16, N8, false>(p, params.family, step, query);
    else if constexpr (MASKED)
        mask_probabilities(p, diagonal, keys);
    if (!Attributes::FAMILY)
        pack_fragments<T>(p_fragments, p);
#pragma unroll
    for (int m = 0; m < S::KEYS16; ++m)
#pragma unroll
        for (int n = 0; n < N8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                ds.at[m][n][i] *= p.at[m][n][i];
    if constexpr (Attributes::SCORE) {
        if (params.dbias.sums != NULL)
            add_dbias(ds, params, step, query);
    }
    pack_fragments<T>(ds_fragments, ds);
    if (Attributes::FAMILY) { /* dV takes P without what is dropped, dS all of it */
        if (kept != ~0u)
            drop_p(p, kept);
        pack_fragments<T>(p_fragments, p);
    }
}

/* dQ (without scale) of a finished step: dS K, added to the tile's part of dq_sum. */
template <typename Tile, typename T>
__device__ __forceinline__ void add_dq(float *dq_sum, int32_t index, uint32_t ds_first, uint32_t k_first, uint32_t warp)
{
    using S = Traits<Tile>;
    constexpr int N8 = Tile::DQ_COLUMNS / 8, M16 = Tile::DQ_ROWS / 16;
    constexpr bool IN_PANEL = S::DQ_IN_PANEL;
    constexpr int OF_PANEL = IN_PANEL ? PANEL_COLUMNS / Tile::DQ_COLUMNS : 1;
    const uint32_t lane = threadIdx.x % LANES, warp_d = warp % S::DQ_WARPS_D, warp_q = warp / S::DQ_WARPS_D;
    const struct operand k = {
        columns_right(lane_rows_16(lane), IN_PANEL ? warp_d % OF_PANEL * Tile::DQ_COLUMNS : warp_d * 16),
        k_first + (IN_PANEL ? warp_d / OF_PANEL * S::KV_PANEL_BYTES : 0), S::KV_PANEL_BYTES};
#pragma unroll
    for (int pass = 0; pass < S::DQ_PASSES; ++pass) {
        Accumulator<M16, N8> dq;
        clear(dq);
        const struct operand ds = {columns_right(lane_rows_8(lane), (pass * S::DQ_WARPS_Q + warp_q) * Tile::DQ_ROWS),
                                   ds_first, 0};
        gemm_by_rows<Tile::KV / 16, T>(dq, ds, k, S::DQ_COLUMN16_STEP);
        float *quad = dq_sum + static_cast<int64_t>(index) * (Tile::Q * Tile::HEAD_DIM) +
                      (pass * S::WARPS + warp) * S::DQ_QUADS * QUAD_FLOATS;
#pragma unroll
        for (int m = 0; m < M16; ++m)
#pragma unroll
            for (int n = 0; n < N8; ++n)
                red_add_quad(quad + (m * N8 + n) * QUAD_FLOATS, lane, dq.at[m][n]);
    }
}

/* accumulate_own of CHUNK_Q queries, from `query` on. */
template <typename Tile, typename T, bool MASKED, typename Attributes>
__device__ __forceinline__ void accumulate_chunk(Gradient<Tile> &dk, GradientOfV<Tile> &dv, const StepOperands &at,
                                                 int first_query, int query, const Params &params, int diagonal,
                                                 int keys, const FamilyStep &step)
{
    using S = Traits<Tile>;
    ScoreFragments<Tile> p, ds;
    score_chunk<Tile, T, MASKED, Attributes>(p, ds, at, query, params, diagonal + query, keys, step);
    store_fragments(at.ds, (first_query + query) / 16, ds);
    if (S::EXCHANGE)
        store_fragments(at.p, (first_query + query) / 16, p);
    gemm_registers<T>(dv, p, at.dout_rows, (first_query + query) / 16, S::OfV::COLUMN16_STEP);
    gemm_registers<T>(dk, ds, at.q_rows, (first_query + query) / 16, S::COLUMN16_STEP);
}

/* The products of one step over this warp's own queries: dV += P^T dO, dK += dS^T Q; P and dS to shared memory. */
template <typename Tile, typename T, bool MASKED, typename Attributes>
__device__ __forceinline__ void accumulate_own(Gradient<Tile> &dk, GradientOfV<Tile> &dv, const StepOperands &at,
                                               int first_query, const Params &params, int diagonal, int keys,
                                               const FamilyStep &step)
{
    using S = Traits<Tile>;
    if constexpr (Attributes::SCORE) { /* unrolled it would spill */
#pragma unroll 1
        for (int query = 0; query < S::WARP_Q; query += S::CHUNK_Q)
            accumulate_chunk<Tile, T, MASKED, Attributes>(dk, dv, at, first_query, query, params, diagonal, keys, step);
    } else {
#if __CUDA_ARCH__ >= 900
#pragma unroll
#else /* without uniform offsets in ldmatrix the addresses of two chunks do not fit the registers */
#pragma unroll 1
#endif
        for (int query = 0; query < S::WARP_Q; query += S::CHUNK_Q)
            accumulate_chunk<Tile, T, MASKED, Attributes>(dk, dv, at, first_query, query, params, diagonal, keys, step);
    }
}

/* Instead of accumulate_own where this warp's queries see none of its keys. */
template <typename Tile> __device__ __forceinline__ void store_zeros(const StepOperands &at, int first_query)
{
    using S = Traits<Tile>;
    const ScoreFragments<Tile> zero = {};
#pragma unroll
    for (int query = 0; query < S::WARP_Q; query += S::CHUNK_Q) {
        store_fragments(at.ds, (first_query + query) / 16, zero);
        if (S::EXCHANGE)
            store_fragments(at.p, (first_query + query) / 16, zero);
    }
}

/* The same products over the queries of another warp with the same keys, from what it stored. */
template <typename Tile, typename T>
__device__ __forceinline__ void accumulate_other(Gradient<Tile> &dk, GradientOfV<Tile> &dv, const StepOperands &at,
                                                 int other_query)
{
    using S = Traits<Tile>;
    ScoreFragments<Tile> fragments;
    load_fragments(fragments, at.p, other_query / 16);
    gemm_registers<T>(dv, fragments, at.dout_rows, other_query / 16, S::OfV::COLUMN16_STEP);
    load_fragments(fragments, at.ds, other_query / 16);
    gemm_registers<T>(dk, fragments, at.q_rows, other_query / 16, S::COLUMN16_STEP);
}

} // namespace sm80_bwd
