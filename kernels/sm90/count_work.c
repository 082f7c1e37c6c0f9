/* The matrix products of the tiles that fused_sm90 computes. It follows the kernels, which decide: consume and
 * first_block (fwd/consumer.cuh, mainloop.cuh), Walk, the KV and the dQ warpgroups (bwd/kv_steps.cuh, kv_warpgroup.cuh,
 * kv_short_steps.cuh, dq_warpgroup.cuh, dq_pair.cuh), and the order of work (bwd/work.cuh). */
#include "kernels/sm90/bwd/params.h"
#include "kernels/sm90/bwd/parts.h"
#include "kernels/sm90/fused_sm90.h"
#include "kernels/sm90/fwd/params.h"

enum { GROUP_ROWS = 64, GROUP_THREADS = 128, SUM_COLUMNS = 8 };

/* ---- forward ---- */

/* What a consumer warpgroup has of a block of keys (Traits of fwd/tiles.cuh). */
struct row_group {
    int64_t keys;      /* of a block */
    int64_t splits;    /* warpgroups with the same rows */
    int64_t v_columns; /* head_dim 64 has 8 columns of ones beside V, for the row sums */
    bool skips_blocks; /* that none of its rows sees */
    bool halves_first; /* leaves out half of the scores of the first block where no row sees it */
};

static struct row_group row_group_of(const struct fused_sm90_fwd_tile *tile)
{
    const int64_t consumers = tile->threads / GROUP_THREADS - 1, splits = consumers / (tile->block_m / GROUP_ROWS);
    const int64_t keys = tile->block_n / splits;

    return (struct row_group){.keys = keys,
                              .splits = splits,
                              .v_columns = tile->tile.head_dim + (tile->tile.head_dim == 64 ? SUM_COLUMNS : 0),
                              .skips_blocks = keys < tile->block_m || tile->cluster == 2,
                              .halves_first = tile->tile.head_dim == 128 && splits == 1 && tile->cluster == 1};
}

/* Of the rows of one warpgroup in one work tile; first_row: its own, end_row: the work tile's. */
static double group_flops(const struct attn_problem *p, const struct fused_sm90_fwd_tile *tile,
                          const struct row_group *group, int64_t first_row, int64_t end_row, int64_t first_key)
{
    const int64_t shift = p->kv_len - p->q_len, n = tile->block_n, d = tile->tile.head_dim;
    const int64_t tile_keys = p->causal ? attn_min(p->kv_len, attn_min(end_row, p->q_len) + shift) : p->kv_len;
    const int64_t own_keys = p->causal ? attn_min(p->kv_len, first_row + GROUP_ROWS + shift) : p->kv_len;
    const int64_t seen = first_row >= p->q_len ? 0 : p->causal ? first_row + GROUP_ROWS + shift : p->kv_len;
    int64_t blocks = (attn_max(tile_keys, 1) + n - 1) / n;

    if (group->skips_blocks)
        blocks = attn_min(blocks, attn_max(seen - 1 - first_key, 0) / n + 1);
    const bool halves = group->halves_first && own_keys - (blocks - 1) * n <= group->keys / 2;
    const double scores = ((double)blocks - (halves ? 0.5 : 0)) * (double)group->keys * (double)d;
    return 2.0 * GROUP_ROWS * (scores + (double)blocks * (double)group->keys * (double)group->v_columns);
}

static void forward(const struct attn_request *request, struct attn_work *work)
{
    const struct attn_problem *p = request->problem;
    struct attn_message why;
    const struct fused_sm90_fwd_tile *tile = attn_choose_tile(&fused_sm90_fwd_tiles, request, &why);
    double flops = 0;

    if (tile == NULL)
        return;
    const int64_t rows = (int64_t)tile->block_m * tile->cluster;
    work->tile_rows = rows;
    work->tile_keys = tile->block_n;
    if (!tile->is_dense)
        return;
    const struct row_group group = row_group_of(tile);
    for (int64_t tile_row = 0; tile_row < p->q_len; tile_row += rows)
        for (int64_t row = tile_row; row < tile_row + rows; row += GROUP_ROWS)
            for (int64_t split = 0; split < group.splits; split++)
                flops += group_flops(p, tile, &group, row, tile_row + rows, split * group.keys);
    work->flops = flops * (double)p->batch * (double)p->q_heads;
}

/* ---- backward ---- */

/* Steps of one query head that a warpgroup with 64 keys computes, of those of its work tile. */
static int64_t group_steps(const struct sm90_bwd_shape *s, int64_t first_key, int work_first)
{
    int first =
        sm90_bwd_first_tile((int)first_key, s->causal, s->shift, s->q_len, s->kv_len, s->q_tile.queries, s->q_tiles);

    if (s->q_tile.cluster == 2 && s->group > 1) /* a pair passes over one step at most */
        first = (int)attn_min(first, work_first + 1);
    return s->q_tiles - attn_max(first, work_first);
}

/* How many parts of a tile of keys have a step for a warpgroup with own_steps of the head_steps of each query head. */
static int parts_with_steps(const struct sm90_bwd_shape *s, const struct sm90_bwd_parts *parts, int count,
                            int head_steps, int own_steps)
{
    const int steps = head_steps * s->group, semaphore_tiles = s->in_order ? 128 / s->q_tile.queries : 1;
    int with_steps = 0;

    for (int part = 0, begin = 0, end; part < count && own_steps > 0; part++, begin = end) {
        end = sm90_bwd_part_begin(parts->kind, part + 1, count, steps, parts->part_steps, head_steps, s->q_tiles,
                                  semaphore_tiles);
        with_steps += begin < end && (begin % head_steps < own_steps || end - begin > head_steps - begin % head_steps);
    }
    return with_steps;
}

/* Of a tile of keys, of a cluster's both, over all heads. Products are of 64 keys, a tile of queries and the head_dim.
 * extra: of each warpgroup in each work tile, not used. tail_heads: those whose tile is in the tail. */
static double kv_products(const struct sm90_bwd_shape *s, const struct sm90_bwd_parts *parts,
                          const struct sm90_bwd_tail *tail, int64_t first_key, int64_t tail_heads, int extra)
{
    const int first =
        sm90_bwd_first_tile((int)first_key, s->causal, s->shift, s->q_len, s->kv_len, s->q_tile.queries, s->q_tiles);
    const int head_steps = s->q_tiles - first, steps = head_steps * s->group;
    const int count = parts->max_parts == 1 ? 1 : sm90_bwd_part_count(steps, parts->part_steps);
    const int64_t end_key = first_key + (int64_t)SM90_BWD_KV_TILE * s->q_tile.cluster;
    double of_head = 0, of_tail = 0, used = 0;

    for (int64_t key = first_key; key < end_key; key += GROUP_ROWS) {
        const int own = (int)group_steps(s, key, first);
        used += 4.0 * own + head_steps; /* and dQ, of all */
        of_head += extra * parts_with_steps(s, parts, count, head_steps, own);
        of_tail += extra * parts_with_steps(s, parts, tail->parts, head_steps, own);
    }
    return used * s->group * s->kv_heads_total + of_head * (double)(s->kv_heads_total - tail_heads) +
           of_tail * (double)tail_heads;
}

static void backward(const struct attn_request *request, struct attn_work *work)
{
    const struct attn_problem *p = request->problem;
    const int multiprocessors = request->device->multiprocessors, head_dim = (int)p->head_dim;
    struct attn_message why;
    const struct fused_sm90_bwd_tile *tile = attn_choose_tile(&fused_sm90_bwd_tiles, request, &why);
    double products = 0;

    if (tile == NULL)
        return;
    const struct sm90_bwd_shape s = sm90_bwd_shape_of(p, &tile->q, request->deterministic, request->device);
    const int cluster = tile->q.cluster;
    work->tile_rows = tile->q.queries;
    work->tile_keys = (int64_t)SM90_BWD_KV_TILE * cluster;
    if (!tile->is_dense)
        return;
    const struct sm90_bwd_parts parts = sm90_bwd_choose_parts(&s, head_dim, multiprocessors);
    const struct sm90_bwd_tail tail =
        sm90_bwd_tail_of(&s, &parts, head_dim, (int)attn_max(multiprocessors / cluster, 1));
    const int works = sm90_bwd_work_tiles(&s), last_heads = (s.kv_heads_total - 1) % s.section_heads + 1;
    /* S of one step more than there are; with short steps, and dP. */
    const int extra = tile->q.keeps_queries ? 0 : tile->q.queries < sm90_bwd_row_block_rows(head_dim) ? 2 : 1;

    for (int kv = 0; kv < works; kv++) {
        /* The tail is the end of the last section, whose work tiles go over its heads first. */
        const int64_t behind = (int64_t)tail.works - (int64_t)(works - 1 - kv) * last_heads;
        products += kv_products(&s, &parts, &tail, (int64_t)kv * work->tile_keys,
                                attn_min(attn_max(behind, 0), last_heads), extra);
    }
    work->flops = 2.0 * GROUP_ROWS * (double)tile->q.queries * (double)p->head_dim * products;
}

void fused_sm90_work(const struct attn_request *request, struct attn_work *work)
{
    *work = (struct attn_work){0};
    if ((attn_attributes(request) & (ATTN_WITH_CACHE | ATTN_WITH_8_BIT)) != 0) /* have kernels of their own */
        return;
    if (request->mode == ATTN_FWD)
        forward(request, work);
    else
        backward(request, work);
}
