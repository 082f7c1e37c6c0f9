/* The matrix products of the tiles that fused_sm80 computes. It follows the kernels, which decide: compute_dense
 * (fwd/kernel.cuh) and backward_main (bwd/kernel.cuh). */
#include "kernels/sm80/bwd/params.h"
#include "kernels/sm80/family.h"
#include "kernels/sm80/fused_sm80.h"

enum { WARP = 32, SUM_COLUMNS = 8, WARP_KEYS = 32 };

/* ---- forward ---- */

/* visible_keys of the kernel. */
static int64_t visible_keys(const struct attn_problem *p, int64_t row)
{
    return p->causal ? attn_max(attn_min(row, p->q_len - 1) + p->kv_len - p->q_len + 1, 0) : p->kv_len;
}

/* Tiles of keys that a warp computes: all that its block's rows see in full, then those that its own rows see. */
static int64_t warp_tiles(const struct attn_problem *p, const struct fused_sm80_fwd_tile *tile, int64_t block_row,
                          int64_t row, int64_t rows)
{
    const int64_t tiles = attn_tiles(visible_keys(p, block_row + tile->block_m - 1), tile->block_n);
    const int64_t whole = visible_keys(p, block_row) / tile->block_n;
    const int64_t own = row < p->q_len ? attn_tiles(visible_keys(p, row + rows - 1), tile->block_n) : 0;

    return attn_max(whole, attn_min(tiles, own));
}

static void forward(const struct attn_request *request, struct attn_work *work)
{
    const struct attn_problem *p = request->problem;
    struct attn_message why;
    const struct fused_sm80_fwd_tile *tile = attn_choose_tile(&fused_sm80_fwd_tiles, request, &why);
    int64_t tiles = 0;

    if (tile == NULL)
        return;
    work->tile_rows = tile->block_m;
    work->tile_keys = tile->block_n;
    if (fused_sm80_fwd_kind(tile, request) != SM80_DENSE)
        return;
    const int64_t rows = tile->block_m / (tile->threads / WARP); /* of a warp */
    for (int64_t block_row = 0; block_row < p->q_len; block_row += tile->block_m)
        for (int64_t row = block_row; row < block_row + tile->block_m; row += rows)
            tiles += warp_tiles(p, tile, block_row, row, rows);
    /* fp16: row sums are 8 columns more of P V. */
    const double columns = 2.0 * (double)p->head_dim + (p->dtype == ATTN_FP16 ? SUM_COLUMNS : 0);
    work->flops =
        2.0 * (double)rows * (double)tile->block_n * columns * (double)tiles * (double)p->batch * (double)p->q_heads;
}

/* ---- backward ---- */

/* Of one step: a tile of queries that a tile of keys meets, of which `diagonal` is that of its first query and key. */
static double step_flops(const struct attn_problem *p, const struct fused_sm80_bwd_tile *tile, int64_t diagonal)
{
    const int64_t warps_kv = tile->kv_tile / WARP_KEYS, warps_q = tile->threads / WARP / warps_kv;
    const int64_t queries = tile->q_tile / warps_q; /* of a warp in the scores */
    const double warp_product = 2.0 * WARP_KEYS * (double)queries * (double)p->head_dim;
    double flops = 2.0 * (double)tile->kv_tile * (double)tile->q_tile * (double)p->head_dim; /* dQ */

    for (int64_t kv = 0; kv < warps_kv; kv++)
        for (int64_t q = 0; q < warps_q; q++) {
            const bool is_seen = !p->causal || diagonal + q * queries - kv * WARP_KEYS > -queries;
            /* S, dP, and of dV and dK its own columns; then those over the queries of the other warp, always. */
            flops += is_seen ? warp_product * (2 + 2.0 / (double)warps_q) : 0;
            flops += warps_q > 1 ? warp_product * 2.0 / (double)warps_q : 0;
        }
    return flops;
}

static void backward(const struct attn_request *request, struct attn_work *work)
{
    const struct attn_problem *p = request->problem;
    struct attn_message why;
    const struct fused_sm80_bwd_tile *tile = attn_choose_tile(&fused_sm80_bwd_tiles, request, &why);
    const int64_t shift = p->kv_len - p->q_len;
    double flops = 0;

    if (tile == NULL)
        return;
    work->tile_rows = tile->q_tile;
    work->tile_keys = tile->kv_tile;
    if (sm80_kind_of(request) != SM80_DENSE || request->deterministic)
        return;
    for (int64_t key = 0; key < p->kv_len; key += tile->kv_tile) {
        const int64_t first = p->causal && key > shift ? (key - shift) / tile->q_tile : 0;
        for (int64_t query = first * tile->q_tile; query < p->q_len; query += tile->q_tile)
            flops += step_flops(p, tile, query + shift - key);
    }
    work->flops = flops * (double)p->batch * (double)p->q_heads;
}

void fused_sm80_work(const struct attn_request *request, struct attn_work *work)
{
    *work = (struct attn_work){0};
    if ((attn_attributes(request) & (ATTN_WITH_CACHE | ATTN_WITH_8_BIT)) != 0) /* have kernels of their own */
        return;
    if (request->mode == ATTN_FWD)
        forward(request, work);
    else
        backward(request, work);
}
