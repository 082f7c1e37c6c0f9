/* The host side of fused_sm90's backward: which tile a request gets, what is refused, the workspace, the kernels'
 * parameters, the three launches. */
#include "kernels/sm90/bwd/params.h"

#include <math.h>

#include "kernels/common/checks.h"
#include "kernels/common/launch.h"
#include "kernels/family/lengths.h"
#include "kernels/family/schedule.h"
#include "kernels/family/softcap.h"
#include "kernels/sm90/bwd/parts.h"
#include "kernels/sm90/fused_sm90.h"

enum {
    MAX_LEN = INT32_MAX - 65536, /* row numbers of whole tiles stay within an int */
    ROW_PADDING = 128,           /* stats and dq_sum have room for so many whole rows; heads follow by row blocks */
    COUNTER_BYTES = 256,         /* of taken */
    /* P is up to 2^12, a sixteenth of the largest number of fp16 (an LSE of large logits is rounded, and P may be over
     * 1); it has all 11 bits of fp16 from 2^-26 on, and bf16's error from 2^-29 on. dS of 2^115 and more overflows. */
    BF16_P_LOG2 = 12
};

static const float LOG2_E = 1.44269504088896340736f, LEAST_SOFTCAP = 1e-12f; /* HIDDEN_TANH in softcap.cuh */

/* Pairs have the times of steady load in the table of tiles. Where a multiprocessor has fewer long steps than
 * LEAST_PAIR_STEPS, some 0.9 ms on an H200, power is no limit, and they are taken to last longer by SHORT_PAIR, about
 * what they lose in bursts; causal ones with shared heads, which were not measured under load, by CAUSAL_SHARED_PAIR.
 * docs/kernels/sm90_bwd.md, "Which tile". */
static const double LEAST_PAIR_STEPS = 400, SHORT_PAIR = 1.06, CAUSAL_SHARED_PAIR = 1.04;

/* Blocks of the kernels before and after, for each head; packed: of all sequences together. */
static int64_t row_blocks_of(const struct attn_problem *p)
{
    const int rows = sm90_bwd_row_block_rows(p->head_dim);

    return p->lengths == ATTN_PACKED ? family_row_blocks(p, rows) : attn_tiles(p->q_len, rows);
}

/* Sequences that have row blocks and work tiles of their own. */
static int64_t batch_of(const struct attn_problem *p) { return p->lengths == ATTN_PACKED ? 1 : p->batch; }

/* How the kernels ahead list the work tiles of packed sequences, and what a block mask shows them. */
static struct family_tiling tiling_of(const struct attn_problem *p, const struct fused_sm90_bwd_tile *tile)
{
    return (struct family_tiling){true,
                                  SM90_BWD_KV_TILE,
                                  tile->q.queries,
                                  tile->has_lists,
                                  sm90_bwd_row_block_rows(p->head_dim),
                                  .has_plain_lists = tile->has_lists};
}

/* Blocks of keys and tiles of queries are numbered in 32 bits. Parts are few where blocks are many. */
static enum attn_status check_grid(const struct attn_problem *p, const struct fused_sm90_bwd_tile *tile,
                                   struct attn_message *why)
{
    const int64_t kv_tiles = p->lengths == ATTN_PACKED ? family_work_tiles(p, true, SM90_BWD_KV_TILE)
                                                       : attn_tiles(p->kv_len, SM90_BWD_KV_TILE);
    const int64_t block_tiles = sm90_bwd_row_block_rows(p->head_dim) / tile->q.queries;
    const enum attn_status status = attn_check_grid(kv_tiles, p->kv_heads, batch_of(p), why);

    if (status != ATTN_OK || attn_check_grid(row_blocks_of(p) * block_tiles, p->q_heads, batch_of(p), why) != ATTN_OK)
        return ATTN_UNSUPPORTED;
    const struct family_tiling tiling = tiling_of(p, tile);
    return tile->has_lists ? family_check_grid(p, &tiling, p->kv_heads, why) : ATTN_OK;
}

/* Of the main kernel and of adding up parts; what comes beside them is the same with all tiles. Sees lengths up to
 * MAX_LEN. A pair of blocks needs two multiprocessors. Deterministic, the waits of blocks for each other, which take
 * about as long with all tiles, are left out. */
static double estimated_time(const struct attn_request *request, const struct attn_tile *common)
{
    const struct fused_sm90_bwd_tile *tile = (const void *)common;
    const struct attn_problem *p = request->problem;
    struct attn_message why;

    if (check_grid(p, tile, &why) != ATTN_OK)
        return INFINITY;
    if (tile->q.cluster > request->device->multiprocessors)
        return INFINITY;
    if (tile->kernels[request->deterministic][p->dtype == ATTN_BF16] == NULL)
        return INFINITY;
    /* Deterministic, a loop gains at head_dim 64 alone: at 128 it is 1 to 2 % slower (docs/kernels/sm90_bwd.md,
     * "How it works"). */
    if (request->deterministic && tile->q.takes_more && p->head_dim == 128)
        return INFINITY;
    const struct sm90_bwd_shape shape = sm90_bwd_shape_of(p, &tile->q, request->deterministic, request->device);
    if (!tile->is_dense) { /* of each head_dim one and its loop, which windows gain from at head_dim 64 alone */
        const bool loops = p->head_dim == 64 || p->lengths == ATTN_PACKED || tile->has_lists;
        return tile->q.takes_more == loops ? 1 : 2;
    }
    if (!sm90_bwd_fits(&shape))
        return INFINITY;
    const double time = sm90_bwd_choose_parts(&shape, (int)p->head_dim, request->device->multiprocessors).time;
    if (tile->q.cluster == 1)
        return time;
    if (time < LEAST_PAIR_STEPS)
        return SHORT_PAIR * time;
    return p->causal && p->q_heads > p->kv_heads ? CAUSAL_SHARED_PAIR * time : time;
}

/* Windows and packed lengths have tiles of their own, and softcaps, with these or without, and block masks. */
static bool takes(const struct attn_request *request, const struct attn_tile *common)
{
    const struct fused_sm90_bwd_tile *tile = (const void *)common;

    return common->head_dim == request->problem->head_dim &&
           tile->is_dense == ((attn_attributes(request) & ~(unsigned)ATTN_WITH_SOFTCAP) == 0) &&
           tile->has_softcap == (request->problem->softcap != 0.0f) &&
           tile->has_lists == (request->problem->mask_block != 0);
}

static const void *const lists[] = {fused_sm90_bwd_d128,
                                    fused_sm90_bwd_d64,
                                    fused_sm90_bwd_ranges,
                                    fused_sm90_bwd_softcap,
                                    fused_sm90_bwd_softcap_dense,
                                    fused_sm90_bwd_lists,
                                    NULL};
const struct attn_tile_table fused_sm90_bwd_tiles = {"backward", lists, sizeof *fused_sm90_bwd_d128, estimated_time,
                                                     takes};

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;

    if (p->q_len > MAX_LEN || p->kv_len > MAX_LEN)
        return attn_fail(why, ATTN_UNSUPPORTED, "the backward takes lengths up to %d", (int)MAX_LEN);
    const struct fused_sm90_bwd_tile *tile = attn_choose_tile(&fused_sm90_bwd_tiles, request, why);
    if (tile == NULL)
        return ATTN_UNSUPPORTED;
    if (tile->q.cluster > request->device->multiprocessors)
        return attn_fail(why, ATTN_UNSUPPORTED, "%s needs %d multiprocessors, the device has %d", tile->tile.shown.name,
                         tile->q.cluster, request->device->multiprocessors);
    if (tile->kernels[request->deterministic][p->dtype == ATTN_BF16] == NULL)
        return attn_fail(why, ATTN_UNSUPPORTED, "%s has no deterministic backward", tile->tile.shown.name);
    const enum attn_status status = check_grid(p, tile, why);
    if (status != ATTN_OK)
        return status;
    if (!tile->is_dense && (p->q_len > FAMILY_MAX_LEN || p->kv_len > FAMILY_MAX_LEN))
        return attn_fail(why, ATTN_UNSUPPORTED,
                         "the backward takes lengths up to %d with windows, packed sequences and block masks",
                         (int)FAMILY_MAX_LEN);
    if (request->deterministic && p->lengths == ATTN_PACKED &&
        p->kv_len > FAMILY_MOST_TILES_IN_ORDER * SM90_BWD_KV_TILE)
        return attn_fail(why, ATTN_UNSUPPORTED, "the deterministic backward takes packed sequences up to %d keys",
                         FAMILY_MOST_TILES_IN_ORDER * SM90_BWD_KV_TILE);
    if (tile->has_softcap && family_check_softcap(p, why) != ATTN_OK)
        return ATTN_UNSUPPORTED;
    if (tile->has_softcap && p->softcap < LEAST_SOFTCAP)
        return attn_fail(why, ATTN_UNSUPPORTED, "softcap %g: the backward takes softcaps from %g on",
                         (double)p->softcap, (double)LEAST_SOFTCAP);
    const struct sm90_bwd_shape shape = sm90_bwd_shape_of(p, &tile->q, request->deterministic, request->device);
    return sm90_bwd_fits(&shape)
               ? ATTN_OK
               : attn_fail(why, ATTN_UNSUPPORTED, "%s takes up to %d queries, of one query head for each key head",
                           tile->tile.shown.name, tile->q.queries);
}

static enum attn_status encode_maps(const struct attn_problem *p, const struct attn_tensors *t, int q_tile,
                                    bool has_ranges, struct fused_sm90_bwd_params *params, struct attn_message *why)
{
    enum attn_status (*const encode)(CUtensorMap *, const char *, const struct attn_tensor *,
                                     const struct attn_problem *, int64_t, int64_t, int, struct attn_message *) =
        has_ranges ? tensor_map_encode_ranges : tensor_map_encode;
    const struct {
        CUtensorMap *map;
        const char *name;
        const struct attn_tensor *tensor;
        bool is_kv;
        int box_rows;
    } maps[] = {{&params->q, "q", &t->q, false, q_tile},
                {&params->k, "k", &t->k, true, SM90_BWD_KV_TILE},
                {&params->v, "v", &t->v, true, SM90_BWD_KV_TILE},
                {&params->dout, "dout", &t->dout, false, q_tile},
                {&params->dk, "dk", &t->dk, true, SM90_BWD_STORE_ROWS},
                {&params->dv, "dv", &t->dv, true, SM90_BWD_STORE_ROWS}};
    enum attn_status status = ATTN_OK;

    for (size_t i = 0; i < sizeof maps / sizeof maps[0] && status == ATTN_OK; ++i)
        status = encode(maps[i].map, maps[i].name, maps[i].tensor, p, maps[i].is_kv ? p->kv_heads : p->q_heads,
                        maps[i].is_kv ? p->kv_len : p->q_len, maps[i].box_rows, why);
    return status;
}

/* Whether the kernel before brings Q, K and V to the L2: where they and what it reads and writes itself take at most
 * half of it, so that they are still there when the main kernel needs them; and where each of its blocks has two
 * tiles of keys at most, as one thread asks for them. */
static bool prefetches_operands(const struct attn_problem *p, size_t l2_bytes)
{
    const double q_elements = (double)p->batch * (double)p->q_heads * (double)p->q_len * (double)p->head_dim;
    const double kv_elements = (double)p->batch * (double)p->kv_heads * (double)p->kv_len * (double)p->head_dim;
    const double bytes = q_elements * (3 * 2 + 4) /* Q, O, dO, dq_sum */ + kv_elements * (2 * 2);

    return bytes <= (double)l2_bytes / 2 &&
           attn_tiles(p->kv_len, SM90_BWD_KV_TILE) * p->kv_heads <= 2 * row_blocks_of(p) * p->q_heads;
}

/* Packed sequences, whose work tiles are counted on the device: at most so many. Q, dO and dq_sum of all sequences, for
 * the heads of a section, take about a third of the L2. */
static void set_packed_order(struct fused_sm90_bwd_params *params, const struct attn_problem *p,
                             const struct attn_device *device)
{
    const int64_t head_bytes = p->total_q * p->head_dim * (2 * 2 + 4) * (p->q_heads / p->kv_heads),
                  target = (int64_t)(device->l2_bytes / 3),
                  heads = head_bytes == 0 || target / head_bytes < 1 ? 1 : target / head_bytes;

    params->work_tiles = (int)(family_work_tiles(p, true, SM90_BWD_KV_TILE) * p->kv_heads);
    params->section_heads = (int)(heads < p->kv_heads ? heads : p->kv_heads);
}

/* What follows from the problem alone. */
static void set_problem(struct fused_sm90_bwd_params *params, const struct attn_request *request,
                        const struct fused_sm90_bwd_tile *tile)
{
    const struct attn_problem *p = request->problem;

    const struct sm90_bwd_shape shape = sm90_bwd_shape_of(p, &tile->q, request->deterministic, request->device);
    const struct sm90_bwd_parts parts =
        !tile->is_dense ? (struct sm90_bwd_parts){.part_steps = INT32_MAX / 2,
                                                  .max_parts = 1,
                                                  .kind = SM90_BWD_EQUAL_PARTS,
                                                  .head_works = shape.kv_tiles}
                        : sm90_bwd_choose_parts(&shape, (int)p->head_dim, request->device->multiprocessors);
    params->shift = shape.shift;
    params->q_len = shape.q_len;
    params->kv_len = shape.kv_len;
    params->q_heads = (int)p->q_heads;
    params->kv_heads = (int)p->kv_heads;
    params->group = shape.group;
    params->q_tile = shape.q_tile.queries;
    params->q_tiles = shape.q_tiles;
    params->kv_tiles = shape.kv_tiles;
    params->kv_heads_total = shape.kv_heads_total;
    const struct sm90_bwd_order order = sm90_bwd_order_of(&shape, &parts, request->device->multiprocessors);
    params->section_heads = order.section_heads;
    /* A window's work tiles do not begin at the same queries. */
    params->stagger = tile->is_dense || p->window_left < 0 ? order.stagger : 0;
    params->part_steps = parts.part_steps;
    params->max_parts = parts.max_parts;
    params->cluster = shape.q_tile.cluster;
    params->part_kind = parts.kind;
    params->whole_parts = parts.whole_parts;
    params->head_works = parts.head_works;
    const int each = request->device->multiprocessors / params->cluster, clusters = each < 1 ? 1 : each;
    params->tail = !tile->is_dense ? (struct sm90_bwd_tail){shape.kv_heads_total * parts.head_works, 0, 1}
                                   : sm90_bwd_tail_of(&shape, &parts, (int)p->head_dim, clusters);
    params->work_tiles = shape.kv_heads_total * params->head_works + params->tail.works * (params->tail.parts - 1);
    if (p->lengths == ATTN_PACKED)
        set_packed_order(params, p, request->device);
    params->summed_tiles =
        params->tail.parts > 1 ? params->tail.works * params->cluster : params->kv_heads_total * params->kv_tiles;
    params->summed_parts = params->tail.parts > 1 ? params->tail.parts : params->max_parts;
    params->early_tiles = sm90_bwd_early_tiles(&shape, params->work_tiles, clusters);
    params->listed_tiles = tile->q.takes_more ? params->work_tiles + 1 : 0;
    params->scale_log2 = (tile->has_softcap ? p->softcap : p->scale) * LOG2_E;
    if (tile->has_softcap) {
        params->softcap = family_softcap_near_of(p);
        params->softcap_inner = family_softcap_of(p).inner;
    }
    params->p_log2 = p->dtype == ATTN_BF16 ? BF16_P_LOG2 : 0;
    params->dv_scale = ldexpf(1.0f, -params->p_log2);
    params->dqk_scale = p->scale * params->dv_scale;
    params->causal = shape.causal;
    params->prefetches = tile->is_dense && prefetches_operands(p, request->device->l2_bytes);
    params->row_blocks = (int)row_blocks_of(p);
    if (tile->is_dense || (tile->writes_zeros && p->lengths != ATTN_PACKED)) {
        params->zeros = sm90_bwd_zeros_of(&shape, &parts, params->row_blocks, clusters,
                                          sm90_bwd_zeros_gap(!tile->is_dense, clusters));
    } else { /* work tiles are not in the order of heads: preprocess writes all */
        const int row_blocks = (int)(batch_of(p) * p->q_heads * params->row_blocks);
        params->zeros = (struct sm90_bwd_zeros){
            .sections = 1, .preprocessed = 1, .row_blocks = row_blocks, .all_row_blocks = row_blocks};
    }
}

/* Windows and lengths; the list of packed sequences is at the beginning of the workspace. */
static void set_ranges(struct fused_sm90_bwd_params *params, const struct attn_request *request,
                       const struct attn_tensors *t, const struct fused_sm90_bwd_tile *tile, void *workspace)
{
    const struct attn_problem *p = request->problem;
    const struct family_tiling tiling = tiling_of(p, tile);

    params->window = family_window_of(p);
    params->lengths = family_lengths_of(p, t);
    params->order = family_work_order_of(p, &tiling, workspace);
    params->lists = family_tile_lists_of(p, &tiling, workspace);
}

/* The workspace: the list of packed sequences, stats, dq_sum, dq_semaphores, work, taken, zeroed, kv_sums, each from a
 * multiple of 256 bytes on. */
struct workspace {
    int64_t list_bytes, stats_bytes, sum_bytes, semaphore_bytes, work_bytes, zeroed_bytes, kv_bytes;
};

static struct workspace workspace_of(const struct attn_request *request, const struct fused_sm90_bwd_tile *tile,
                                     const struct fused_sm90_bwd_params *params)
{
    const struct attn_problem *p = request->problem;
    const struct family_tiling tiling = tiling_of(p, tile);
    const int block_rows = sm90_bwd_row_block_rows(p->head_dim);
    const int64_t rows = p->lengths == ATTN_PACKED
                             ? attn_round_up(p->q_heads * row_blocks_of(p) * block_rows, ROW_PADDING)
                             : p->batch * p->q_heads * attn_round_up(p->q_len, ROW_PADDING);
    const int64_t row_blocks = rows / block_rows;
    const int64_t semaphores = request->deterministic ? row_blocks * SM90_BWD_TILE_SEMAPHORES : 0;
    const int64_t kv_floats =
        params->summed_parts > 1 ? sm90_bwd_sums_offset(params->summed_parts, 0, params->summed_tiles, (int)p->head_dim)
                                 : 0;

    return (struct workspace){(int64_t)family_schedule_bytes(p, &tiling),
                              2 * rows * (int64_t)sizeof(float),
                              rows * p->head_dim * (int64_t)sizeof(float),
                              attn_round_up(semaphores * (int64_t)sizeof(int), 256),
                              attn_round_up(params->listed_tiles * (int64_t)tile->listed_bytes, 256),
                              attn_round_up(params->zeros.sections * (int64_t)sizeof *params->zeroed, 256),
                              kv_floats * (int64_t)sizeof(float)};
}

static size_t workspace_bytes(const struct attn_request *request)
{
    struct attn_message why;
    const struct fused_sm90_bwd_tile *tile = attn_choose_tile(&fused_sm90_bwd_tiles, request, &why);
    struct fused_sm90_bwd_params params = {.dq_semaphores = NULL};

    if (tile == NULL)
        return 0;
    set_problem(&params, request, tile);
    const struct workspace space = workspace_of(request, tile, &params);
    return (size_t)(space.list_bytes + space.stats_bytes + space.sum_bytes + space.semaphore_bytes + space.work_bytes +
                    COUNTER_BYTES + space.zeroed_bytes + space.kv_bytes);
}

static void set_tensors(struct fused_sm90_bwd_params *params, const struct attn_request *request,
                        const struct attn_tensors *t, const struct fused_sm90_bwd_tile *tile, char *workspace)
{
    const struct workspace space = workspace_of(request, tile, params);

    params->o_rows = t->o;
    params->dout_rows = t->dout;
    params->dq_rows = t->dq;
    params->dk_rows = t->dk;
    params->dv_rows = t->dv;
    params->lse = t->lse;
    if (!tile->is_dense)
        set_ranges(params, request, t, tile, workspace);
    workspace += space.list_bytes;
    params->stats = (float *)(void *)workspace;
    params->dq_sum = (float *)(void *)(workspace + space.stats_bytes);
    workspace += space.stats_bytes + space.sum_bytes;
    if (request->deterministic)
        params->dq_semaphores = (int *)(void *)workspace;
    workspace += space.semaphore_bytes;
    params->work = workspace;
    workspace += space.work_bytes;
    params->taken = (int *)(void *)workspace;
    workspace += COUNTER_BYTES;
    params->zeroed = (int *)(void *)workspace;
    workspace += space.zeroed_bytes;
    if (params->summed_parts > 1)
        params->kv_sums = (float *)(void *)workspace;
}

/* Packed: query heads of a block of the kernels before and after: several where sequences have few rows on average, as
 * then most row blocks have few, or none. */
static int heads_of_block(const struct attn_problem *p)
{
    enum { HEADS = 8, FEW_ROWS = 64 };

    return p->total_q / FEW_ROWS >= p->batch ? 1 : p->q_heads < HEADS ? (int)p->q_heads : HEADS;
}

static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const int bf16 = p->dtype == ATTN_BF16, head_dim = sm90_head_dim_of(p->head_dim);
    const struct fused_sm90_bwd_tile *tile = attn_choose_tile(&fused_sm90_bwd_tiles, request, why);
    struct fused_sm90_bwd_params params = {.dq_semaphores = NULL};

    if (tile == NULL)
        return ATTN_UNSUPPORTED;
    enum attn_status status =
        encode_maps(p, tensors, tile->q.queries, !tile->is_dense && !tile->has_lists, &params, why);
    if (status != ATTN_OK)
        return status;
    set_problem(&params, request, tile);
    set_tensors(&params, request, tensors, tile, run->workspace);
    const int64_t row_blocks = batch_of(p) * p->q_heads * params.row_blocks;
    const bool is_packed = p->lengths == ATTN_PACKED;
    params.heads_of_block = heads_of_block(p);
    const int64_t q_blocks = is_packed ? params.row_blocks * attn_tiles(p->q_heads, params.heads_of_block) : row_blocks;
    /* A block has a panel of dK or dV of a tile, a slab a warp; where parts are many it has one slab. */
    const int64_t panel_blocks = sm90_bwd_has_many_parts(params.summed_parts) ? SM90_BWD_ROW_WARPS : 1;
    const int64_t sum_blocks = params.summed_parts > 1 ? (int64_t)params.summed_tiles * 2 *
                                                             (p->head_dim / SM90_BWD_PANEL_COLUMNS) * panel_blocks
                                                       : 0;
    /* Where a multiprocessor has no neighbour fewer run at the same time: the last ones start late. */
    const int most_clusters = request->device->multiprocessors / params.cluster;
    const int most =
        tile->q.keeps_queries ? sm90_bwd_blocks_of_heads(params.kv_heads_total, most_clusters) : most_clusters;
    const bool has_many = tile->q.takes_more || tile->q.keeps_queries;
    const int clusters = has_many && params.work_tiles > most ? most : params.work_tiles;
    const struct attn_launch preprocess = {
        .name = "preprocess",
        .kernel = (const void *)(is_packed ? fused_sm90_bwd_preprocess_packed[bf16][head_dim]
                                 : params.listed_tiles > 0 && tile->has_lists
                                     ? fused_sm90_bwd_preprocess_listed[bf16][head_dim]
                                 : params.listed_tiles > 0 && !tile->is_dense
                                     ? fused_sm90_bwd_preprocess_windows[bf16][head_dim]
                                     : fused_sm90_bwd_preprocess[request->deterministic][bf16][head_dim]),
        .blocks = q_blocks,
        .threads = SM90_BWD_ROW_THREADS,
        .is_pass = true};
    const struct attn_launch main_kernel = {.name = "main",
                                            .kernel = (const void *)tile->kernels[request->deterministic][bf16],
                                            .blocks = (int64_t)clusters * params.cluster,
                                            .cluster = params.cluster,
                                            .threads = SM90_BWD_THREADS,
                                            .smem_bytes = tile->tile.smem_bytes,
                                            .is_pass = true,
                                            .overlaps_previous = true};
    const struct attn_launch convert = {.name = "convert",
                                        .kernel =
                                            (const void *)(is_packed ? fused_sm90_bwd_convert_packed[bf16][head_dim]
                                                                     : fused_sm90_bwd_convert[bf16][head_dim]),
                                        .blocks = q_blocks + sum_blocks,
                                        .threads = SM90_BWD_ROW_THREADS,
                                        .is_pass = true,
                                        .overlaps_previous = true};
    const struct family_tiling tiling = tiling_of(p, tile);
    if (!tile->is_dense)
        status = request->deterministic && is_packed
                     ? family_launch_schedule_in_order(request, tensors, &tiling, run, why)
                     : family_launch_schedule(request, tensors, &tiling, tile->has_lists ? params.section_heads : 1, 1,
                                              run, why);
    if (status == ATTN_OK)
        status = attn_launch_kernel(&preprocess, &params, run, why);
    if (status == ATTN_OK)
        status = attn_launch_kernel(&main_kernel, &params, run, why);
    if (status == ATTN_OK)
        status = attn_launch_kernel(&convert, &params, run, why);
    return status;
}

const struct attn_direction fused_sm90_bwd = {accepts, workspace_bytes, launch, &fused_sm90_bwd_tiles};
