/* fused_sm80, forward: what a warp computes of one tile of keys. The kernel and its description: kernel.cuh. */
#pragma once
#include "kernels/device/arithmetic.cuh"
#include "kernels/family/dropout.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/sm80/fwd/work.cuh"
#include "kernels/sm80/score.cuh"

namespace sm80_fwd {

template <typename Tile> __device__ __forceinline__ void clear(Accumulators<Tile> &acc)
{
#pragma unroll
    for (int m = 0; m < Traits<Tile>::ROW_TILES; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            acc.max_log2[m][i / 2] = -INFINITY;
            acc.sum[m][i] = 0.0f;
#pragma unroll
            for (int d = 0; d < Traits<Tile>::V_CHUNKS; ++d)
                acc.o[m][d][i] = 0.0f;
        }
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
        ldmatrix_x4(k[i], fragment<Tile::STAGE_KEYS>(k_lane, i % N_SLICES, i / N_SLICES));
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
        const int d = i / N_SLICES, n = i % N_SLICES, later = i + PREFETCH;
        const uint32_t(&b)[4] = k[i % (PREFETCH + 1)];
        if (n == (N_SLICES > 4 ? N_SLICES - 4 : 0) && d + 1 < D_SLICES)
            load_q<Tile>(q[(d + 1) % 2], q_lane, d + 1);
        if (later < STEPS)
            ldmatrix_x4(k[later % (PREFETCH + 1)],
                        fragment<Tile::STAGE_KEYS>(k_lane, later % N_SLICES, later / N_SLICES));
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

/* What a lane knows of its rows and of a tile where there is more than causality. */
struct FamilyTile {
    const volatile BlockFacts *facts;
    int kv_len;
    int row;         /* the first of the warp's rows */
    int key;         /* the first of the tile's keys */
    int diagonal;    /* the key on the diagonal of the warp's first row */
    bool has_hidden; /* the block mask hides a part of the tile */
    bool is_masked;  /* something hides a part of it */
};

/* x / 8, rounded up. */
__device__ __forceinline__ int eights_up(int x) { return (x + 7) >> 3; }

/* Ones from bit n on, of the lower 31; n may be anything. */
__device__ __forceinline__ uint32_t bits_from(int n) { return ~0u << min(max(n, 0), 31); }

template <typename Tile>
__device__ __forceinline__ void mask_family(Scores<Tile> &scores, const Params &params, const FamilyTile &tile)
{
    constexpr int N8 = Tile::BLOCK_N / 8;
    const fused_sm80_family &family = params.family;
    const int lane = threadIdx.x % WARP, column = tile.key + lane % 4 * 2, diagonal = tile.diagonal + lane / 4;
    /* Of column `column` + 8 n + i the row on `diagonal` sees those with n from `first` to before `right` and `end`. */
    int first[2], right[2], end[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        first[i] = eights_up(diagonal - family.window.left - column - i);
        right[i] = eights_up(diagonal + family.window.right + 1 - column - i);
        end[i] = eights_up(tile.kv_len - column - i);
    }
#pragma unroll
    for (int m = 0; m < Traits<Tile>::ROW_TILES; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int eights = 2 * m + half; /* rows further down, each of which sees one key more to the right */
            uint32_t seen = ~0u;             /* by the eight rows of this half, of every eight keys */
            if (tile.has_hidden) {
                const int row_block =
                    min((tile.row + 16 * m + 8 * half) / family.mask.block, family.mask.row_blocks - 1);
                const int key_block = min((tile.key + lane % N8 * 8) / family.mask.block, family.mask.key_blocks - 1);
                seen = __ballot_sync(
                    WHOLE_WARP,
                    tile.facts->mask[static_cast<int64_t>(row_block) * family.mask.key_blocks + key_block] != 0);
            }
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const uint32_t visible =
                    seen & bits_from(first[i] + eights) & ~bits_from(min(end[i], right[i] + eights));
#pragma unroll
                for (int n = 0; n < N8; ++n)
                    if (!(visible >> n & 1u))
                        scores.s[m][n][2 * half + i] = -INFINITY;
            }
        }
}

/* tanh of the scores times `inner`, which is 2 log2(e) scale / softcap: tanh x = 1 - 2 / (1 + e^2x), whose error is
 * up to 2^-22, and of a score softcap times as much: hence FAMILY_MAX_SOFTCAP. */
template <typename Tile> __device__ __forceinline__ void cap_scores(Scores<Tile> &scores, float inner)
{
#pragma unroll
    for (int m = 0; m < Traits<Tile>::ROW_TILES; ++m)
#pragma unroll
        for (int n = 0; n < Tile::BLOCK_N / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                scores.s[m][n][i] = 1.0f - __fdividef(2.0f, 1.0f + exp2_approx(scores.s[m][n][i] * inner));
}

/* Adds ALiBi or a bias to scores, of which scale_log2 / log2(e) makes logits. */
template <typename T, typename Tile>
__device__ __forceinline__ void add_to_scores_of(Scores<Tile> &scores, const Params &params, const FamilyTile &tile)
{
    const int lane = threadIdx.x % WARP;
    const ScorePlace at = {tile.facts->sequence,
                           tile.facts->head,
                           tile.row + lane / 4,
                           tile.key + lane % 4 * 2,
                           tile.row + tile.kv_len - tile.diagonal,
                           tile.kv_len};
    add_to_scores<T>(params.score, at, [&](const auto &add) {
#pragma unroll
        for (int m = 0; m < Traits<Tile>::ROW_TILES; ++m)
#pragma unroll
            for (int n = 0; n < Tile::BLOCK_N / 8; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    add(scores.s[m][n][i], 16 * m + i / 2 * 8, 8 * n + i % 2);
    });
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
        for (int d = 0; d < Traits<Tile>::V_CHUNKS; ++d)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                acc.o[m][d][i] *= alpha.x[m][i / 2];
    }
}

/* P of piece i: pieces are 16 rows by 8 keys, those of 16 keys one after the other. */
template <typename T, typename Tile, typename Attributes>
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
    if (!SUM_BY_MMA<T, Tile, Attributes>) {
        acc.sum[m][0] += p[0] + p[1];
        acc.sum[m][2] += p[2] + p[3];
    }
    probabilities.p[m][n_slice][2 * tile] = pack2<T>(p[0], p[1]);
    probabilities.p[m][n_slice][2 * tile + 1] = pack2<T>(p[2], p[3]);
}

/* ---- one tile ------------------------------------------------------------------------------------------------- */

template <typename Tile> __device__ __forceinline__ void load_v(uint32_t (&v)[4], uint32_t v_lane, int i)
{
    ldmatrix_x4_trans(v, fragment<Tile::STAGE_KEYS>(v_lane, i / Traits<Tile>::V_SLICES, i % Traits<Tile>::V_SLICES));
}

/* Drops elements of 16 keys of P. */
template <typename Tile>
__device__ __forceinline__ void drop_p(Probabilities<Tile> &probabilities, const fused_sm80_family &family,
                                       const FamilyTile &tile, int n_slice)
{
    const uint32_t lane = threadIdx.x % WARP;
    const DropoutTest test(family.dropout.threshold);
    const DropoutHead head(family.dropout.keys, tile.facts->sequence, tile.facts->head);
    const DropoutKeys keys = dropout_keys(head, (tile.key / 16 + n_slice) * 4 + lane % 4);
#pragma unroll
    for (int m = 0; m < Traits<Tile>::ROW_TILES; ++m) {
        uint32_t kept[4];
        dropout_mask(kept, test, head, dropout_rows(head, (tile.row / 16 + m) * 8 + lane / 4), keys);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            probabilities.p[m][n_slice][i] &= kept[i];
    }
}

/* P and O += P V. Step i takes 16 keys times d slice i % V_SLICES; V is fetched PREFETCH steps before. */
template <typename T, typename Tile, typename Attributes>
__device__ __forceinline__ void accumulate(Accumulators<Tile> &acc, const Scores<Tile> &scores,
                                           const RowValues<Tile> &base, uint32_t (&v)[PREFETCH + 1][4], uint32_t v_lane,
                                           const Params &params, const FamilyTile &tile)
{
    const float scale_log2 = params.scale_log2;
    constexpr int V_SLICES = Traits<Tile>::V_SLICES, STEPS = Traits<Tile>::N_SLICES * V_SLICES;
    constexpr int PIECES = 2 * Traits<Tile>::ROW_TILES; /* of 16 keys */
    Probabilities<Tile> probabilities;

#pragma unroll
    for (int i = 0; i < PIECES; ++i)
        compute_p<T, Tile, Attributes>(probabilities, acc, base, scores, scale_log2, i);
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
        const int n = i / V_SLICES, d = i % V_SLICES;
        const uint32_t(&b)[4] = v[i % (PREFETCH + 1)];
        if (d == 0 && has_dropout<Attributes>(params.family))
            drop_p<Tile>(probabilities, params.family, tile, n);
        if (i + PREFETCH < STEPS)
            load_v<Tile>(v[(i + PREFETCH) % (PREFETCH + 1)], v_lane, i + PREFETCH);
#pragma unroll
        for (int m = 0; m < Traits<Tile>::ROW_TILES; ++m) {
            mma_m16n8k16<T>(acc.o[m][2 * d], probabilities.p[m][n], b[0], b[1]);
            mma_m16n8k16<T>(acc.o[m][2 * d + 1], probabilities.p[m][n], b[2], b[3]);
            if (SUM_BY_MMA<T, Tile, Attributes> && d == V_SLICES - 1) {
                const uint32_t one = pack2<T>(1.0f, 1.0f);
                mma_m16n8k16<T>(acc.sum[m], probabilities.p[m][n], one, one);
            }
        }
        /* For the order of instructions only: otherwise ptxas moves most additions of the sums behind the last mma,
         * where nothing overlaps with them, and keeps the summands in registers until some spill. */
        if (!SUM_BY_MMA<T, Tile, Attributes> && d == 0)
            __syncwarp();
        if (n + 1 < Traits<Tile>::N_SLICES) {
#pragma unroll
            for (int j = d * PIECES / V_SLICES; j < (d + 1) * PIECES / V_SLICES; ++j)
                compute_p<T, Tile, Attributes>(probabilities, acc, base, scores, scale_log2, (n + 1) * PIECES + j);
        }
    }
}

/* Of sparse attention `loader` has a tile to copy only where nothing is masked. */
template <typename T, typename Tile, bool MASKED, typename Attributes, typename Loader>
__device__ __forceinline__ void compute_tile(Accumulators<Tile> &acc, Loader &loader, const Params &params,
                                             LaneAddresses at, int first_column, Mask mask, const FamilyTile &tile)
{
    Scores<Tile> scores;
    RowValues<Tile> base, alpha;
    uint32_t v[PREFETCH + 1][4];

    compute_scores<T, Tile>(scores, at.q, at.k);
    if constexpr (Attributes::FAMILY) {
        loader.copy(params);
        if (params.family.softcap.inner != 0.0f)
            cap_scores<Tile>(scores, params.family.softcap.inner);
        if constexpr (Attributes::SCORE)
            add_to_scores_of<T, Tile>(scores, params, tile);
        if (MASKED)
            mask_family<Tile>(scores, params, tile);
    } else if constexpr (MASKED && Attributes::SPARSE) {
        if (tile.is_masked)
            mask_family<Tile>(scores, params, tile);
    } else if constexpr (MASKED) {
        mask_scores<Tile>(scores, first_column, mask);
    } else {
        loader.copy_whole(params);
    }
#pragma unroll
    for (int i = 0; i < PREFETCH; ++i)
        load_v<Tile>(v[i], at.v, i);
    if (update_row_max<Tile, MASKED>(acc, base, alpha, scores, params.scale_log2))
        rescale<Tile>(acc, alpha);
    accumulate<T, Tile, Attributes>(acc, scores, base, v, at.v, params, tile);
}

} // namespace sm80_fwd
