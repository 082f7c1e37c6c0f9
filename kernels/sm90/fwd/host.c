/* The host side of fused_sm90's forward: which tile a request gets, what is refused, the workspace, the kernels'
 * parameters, the launches. */
#include "kernels/sm90/fwd/params.h"

#include <math.h>

#include "kernels/common/checks.h"
#include "kernels/common/launch.h"
#include "kernels/common/makespan.h"
#include "kernels/family/schedule.h"
#include "kernels/family/softcap.h"
#include "kernels/sm90/fused_sm90.h"

enum {
    MAX_WAVES = 16,      /* with more work tiles for each multiprocessor their order leaves little to gain */
    SHORT_KV_LEN = 1024, /* up to here the sections of causal problems are smaller */
    /* Pairs of thread blocks are there for steady load (tiles.cuh): chosen where a multiprocessor goes through so
     * many keys or more, some 0.4 ms on an H200. In shorter launches they are slower, and were not measured under
     * load. */
    LEAST_PAIR_KEYS = 34000,
    COUNTER_BYTES = 256 /* of windows and packed lengths; of dense attention: tail.c */
};

static const int64_t MAX_LEN = INT32_MAX - 65536; /* column and row numbers of whole tiles stay within an int */
static const float LOG2_E = 1.4426950408889634f;
/* Scores of a softcap stay what they are in the main loop (softcap.cuh) only where the largest small one is a logit of
 * so much: with softcaps from about 28 on. */
static const float LEAST_NEAR_LOGIT = 9.0f;

/* Of a work tile. */
static int rows_of(const struct fused_sm90_fwd_tile *tile) { return tile->block_m * tile->cluster; }

static int64_t row_tiles_of(const struct attn_problem *p, const struct fused_sm90_fwd_tile *tile)
{
    return attn_tiles(p->q_len, rows_of(tile));
}

/* How many work tiles the device has at the same time: one or two on each multiprocessor, or one on each two. */
static int places_of(const struct attn_device *device, const struct fused_sm90_fwd_tile *tile)
{
    return device->multiprocessors / tile->cluster * tile->halves;
}

/* Keys that a causal work tile goes through, in whole blocks. Those of a pair's two thread blocks on average: they take
 * turns with the rows that see more. */
static double keys_of(const struct attn_problem *p, const struct fused_sm90_fwd_tile *tile, int64_t row_tile)
{
    int64_t keys = 0;

    for (int rank = 0; rank < tile->cluster; ++rank) {
        const int64_t end = row_tile * rows_of(tile) + (rank + 1) * tile->block_m;
        const int64_t seen = (end < p->q_len ? end : p->q_len) + p->kv_len - p->q_len;
        keys += seen <= 0 ? 0 : attn_round_up(seen, tile->block_n);
    }
    return (double)keys / tile->cluster;
}

/* The keys that the multiprocessor which finishes last goes through; what a tile costs apart from them is counted as
 * `start` keys. The longest tiles are taken first. With many tiles it is the average of the multiprocessors. */
static double causal_keys(const struct attn_request *request, const struct fused_sm90_fwd_tile *tile)
{
    const struct attn_problem *p = request->problem;
    const int64_t row_tiles = row_tiles_of(p, tile), places = places_of(request->device, tile);
    const double each = (double)row_tiles * (double)p->batch * (double)p->q_heads / (double)places;

    if (each <= MAX_WAVES) {
        struct attn_makespan span = attn_makespan_begin(places);
        for (int64_t row_tile = row_tiles - 1; row_tile >= 0; --row_tile)
            attn_makespan_add(&span, p->batch * p->q_heads, keys_of(p, tile, row_tile) + tile->start);
        return attn_makespan_end(&span);
    }
    const double q_len = (double)p->q_len, kv_len = (double)p->kv_len;
    const double seen = kv_len >= q_len ? kv_len - q_len / 2 : kv_len * kv_len / (2 * q_len); /* by a row, on average */
    return each * (seen + (tile->block_m + tile->block_n) / 2.0 + tile->start);
}

/* Without a mask. Loads and stores of a tile run beside the products of others then: its start takes a quarter. */
static struct sm90_fwd_full_work full_work_of(const struct attn_request *request,
                                              const struct fused_sm90_fwd_tile *tile)
{
    return sm90_fwd_full_work_of(
        request->problem,
        &(struct sm90_fwd_tail_tile){rows_of(tile), tile->block_n, tile->start / 4.0, tile->has_parts},
        places_of(request->device, tile));
}

/* The time until the last multiprocessor has finished, in rows times keys times cost; without what all tiles have in
 * common. */
static double estimated_time(const struct attn_request *request, const struct attn_tile *common)
{
    const struct fused_sm90_fwd_tile *tile = (const void *)common;

    if (tile->cluster > request->device->multiprocessors)
        return INFINITY;
    if (!tile->is_dense)
        return tile->cost;
    const double keys = request->problem->causal ? causal_keys(request, tile) : full_work_of(request, tile).keys;

    return tile->cluster > 1 && keys < LEAST_PAIR_KEYS ? INFINITY : tile->block_m * tile->cost * keys;
}

/* Windows and packed lengths have tiles of their own, and softcaps, with these or without, and block masks. */
static bool takes(const struct attn_request *request, const struct attn_tile *common)
{
    const struct fused_sm90_fwd_tile *tile = (const void *)common;

    return common->head_dim == request->problem->head_dim &&
           tile->is_dense == ((attn_attributes(request) & ~(unsigned)ATTN_WITH_SOFTCAP) == 0) &&
           tile->has_softcap == (request->problem->softcap != 0.0f) &&
           tile->has_lists == (request->problem->mask_block != 0);
}

static const void *const lists[] = {fused_sm90_fwd_d128, fused_sm90_fwd_d64, fused_sm90_fwd_ranges,
                                    fused_sm90_fwd_lists, NULL};
const struct attn_tile_table fused_sm90_fwd_tiles = {"forward", lists, sizeof *fused_sm90_fwd_d128, estimated_time,
                                                     takes};

int64_t fused_sm90_fwd_sections(const struct attn_problem *p, size_t l2_bytes)
{
    const int64_t groups = p->batch * p->kv_heads, row_bytes = p->head_dim * (int64_t)attn_dtype_bytes(p->dtype);
    const int64_t bytes = groups * 2 * p->kv_len * row_bytes;
    const int64_t target = (int64_t)(l2_bytes / (p->kv_len <= SHORT_KV_LEN ? 8 : 4));
    const int64_t sections = p->causal ? (bytes + target / 2) / target : groups;

    return sections < 1 ? 1 : sections > groups ? groups : sections;
}

int64_t fused_sm90_fwd_packed_section(const struct attn_problem *p, int64_t rows, int64_t places, size_t l2_bytes)
{
    const int64_t group = p->q_heads / p->kv_heads, head_bytes = p->total_k * p->head_dim * 2 * 2;
    const int64_t in_l2 = (int64_t)(l2_bytes / 4) / attn_max(head_bytes, 1);
    const int64_t tiles = attn_max(attn_tiles(p->total_q, rows) * group, 1),
                  two_waves = (2 * places + tiles / 2) / tiles;
    const int64_t groups = attn_max(attn_max(in_l2, two_waves), 1), sections = attn_max(p->kv_heads / groups, 1);

    return attn_tiles(p->kv_heads, sections) * group;
}

/* Sections are whole groups of query heads with one kv head. All are of one size but the first, as a small last one
 * would leave most multiprocessors without work. */
static void set_sections(struct fused_sm90_fwd_params *params, const struct attn_problem *p,
                         const struct attn_device *device)
{
    const int64_t groups = p->batch * p->kv_heads, group = p->q_heads / p->kv_heads;
    const int64_t sections = fused_sm90_fwd_sections(p, device->l2_bytes);
    const int64_t size = (groups + sections - 1) / sections, others = (groups - 1) / size;
    params->section_heads = divisor_of(size * group);
    params->section_tiles = divisor_of(size * group * params->row_tiles);
    params->first_heads = divisor_of((groups - others * size) * group);
}

void fused_sm90_fwd_set_shape(struct fused_sm90_fwd_params *params, const struct attn_request *request, int block_m)
{
    const struct attn_problem *p = request->problem;

    params->q_len = (int)p->q_len;
    params->kv_len = (int)p->kv_len;
    params->q_heads = divisor_of(p->q_heads);
    params->group = divisor_of(p->q_heads / p->kv_heads);
    params->row_tiles = (int)attn_tiles(p->q_len, block_m);
    params->tiles = (int)(params->row_tiles * p->batch * p->q_heads);
    set_sections(params, p, request->device);
    params->causal = p->causal;
}

/* How the kernels ahead list the work tiles of packed sequences, and what a block mask shows them. */
static struct family_tiling tiling_of(const struct fused_sm90_fwd_tile *tile)
{
    return (struct family_tiling){false, tile->block_m, tile->block_n, .has_lists = tile->has_lists,
                                  .has_plain_lists = tile->has_lists};
}

/* Block masks: heads with one kv head whose work tiles are sorted together, as many as there are at the same
 * time. */
static int64_t list_groups_of(const struct attn_request *request, const struct fused_sm90_fwd_tile *tile)
{
    const struct attn_problem *p = request->problem;
    const int64_t group_tiles = row_tiles_of(p, tile) * (p->q_heads / p->kv_heads);

    return attn_tiles(places_of(request->device, tile), group_tiles);
}

/* tanh x = x (c0 + c1 x^2 + ... + c4 x^8) up to |x| = 0.75, by least relative error: below 6e-7. */
static struct sm90_fwd_softcap softcap_of(const struct attn_problem *p)
{
    static const double ODD[] = {0.99999943, -0.33328251, 0.1325898, -0.05005626, 0.01292961}, LARGEST = 0.75;
    const double x = (double)p->scale / (double)p->softcap; /* of one Q K^T */
    struct sm90_fwd_softcap softcap = {
        .inner = family_softcap_of(p).inner, .largest = -1, .near = family_softcap_near_of(p)};

    const float square = softcap.near.largest * softcap.near.largest;
    for (int k = 0; k < 3; ++k)
        softcap.near_log2[k] = softcap.near.odd[k] * p->softcap * LOG2_E;
    softcap.near_limit_log2 =
        softcap.near.largest * (softcap.near_log2[0] + square * (softcap.near_log2[1] + square * softcap.near_log2[2]));
    /* Where the polynomial is wrong for large negative scores their weights must be small. */
    if (softcap.near.largest < 0 || softcap.near_limit_log2 < LEAST_NEAR_LOGIT * LOG2_E) { /* then no score is small */
        softcap.near.largest = -1;
        softcap.near_limit_log2 = NAN;
        for (int k = 0; k < 3; ++k)
            softcap.near_log2[k] = NAN;
    }
    /* Within these bounds no product of the polynomial overflows, and what underflows does not count. */
    if (fabs(x) < 1e-3 || fabs(x) > 1e3)
        return softcap;
    softcap.largest = (float)(LARGEST / fabs(x));
    for (int k = 0; k < 5; ++k)
        softcap.odd[k] = (float)(ODD[k] * pow(x, 2 * k + 1));
    return softcap;
}

/* Windows and lengths; where lengths are not packed the counter is behind what the kernels ahead fill. */
static void set_ranges(struct fused_sm90_fwd_params *params, const struct attn_request *request,
                       const struct attn_tensors *t, const struct fused_sm90_fwd_tile *tile, char *workspace)
{
    const struct attn_problem *p = request->problem;
    const struct family_tiling tiling = tiling_of(tile);

    params->ranges.lengths = family_lengths_of(p, t);
    params->ranges.window = family_window_of(p);
    params->ranges.sinks = p->has_sink ? t->sink : NULL;
    params->ranges.order = family_work_order_of(p, &tiling, workspace);
    if (tile->has_lists)
        params->lists = family_tile_lists_of(p, &tiling, workspace);
    params->tail = (struct sm90_fwd_tail){INT32_MAX, 0, 1, 0, 0};
    params->tail_works = divisor_of(1);
    params->work_rows = tile->block_m;
    if (p->lengths == ATTN_PACKED) {
        params->ranges.packed_section_heads = (int)fused_sm90_fwd_packed_section(
            p, tile->block_m, places_of(request->device, tile), request->device->l2_bytes);
        params->tiles = (int)(family_work_tiles(p, false, tile->block_m) * p->q_heads);
    }
    params->tile_counter = p->lengths == ATTN_PACKED
                               ? params->ranges.order.count + 1 /* which the kernel ahead makes 0 */
                               : (int *)(void *)(workspace + family_schedule_bytes(p, &tiling));
}

/* Parts of the last work tiles, and the workspace. */
static void set_parts(struct fused_sm90_fwd_params *params, const struct attn_request *request,
                      const struct fused_sm90_fwd_tile *tile, char *workspace)
{
    params->tail = full_work_of(request, tile).tail;
    params->tail_works = divisor_of(params->tail.works > 0 ? params->tail.works : 1);
    params->tiles += params->tail.works * (params->tail.parts - 1);
    params->work_rows = rows_of(tile);
    const struct sm90_fwd_workspace space = sm90_fwd_workspace_of(&params->tail, rows_of(tile), tile->tile.head_dim);
    params->tile_counter = (int *)(void *)(workspace + space.tile_counter);
    params->part_o = (float *)(void *)(workspace + space.part_o);
    params->part_max = (float *)(void *)(workspace + space.part_max);
    params->part_sum = (float *)(void *)(workspace + space.part_sum);
}

/* The map of a tensor of `heads` heads and of sequences of up to `len` rows. Packed, the tensor has `total` rows, and
 * the rows of the map end with a sequence, so that what lies behind is read as zeros and not written: row i of a
 * sequence of n rows is row len - n + i of the map, whose origin is `len` rows ahead of the tensor, and the last
 * coordinate, which is the batch elsewhere, is the tensor's row behind the sequence. */
static enum attn_status encode_rows(CUtensorMap *map, const char *name, const struct attn_tensor *t,
                                    const struct attn_problem *p, int64_t heads, int64_t len, int64_t total,
                                    int box_rows, struct attn_message *why)
{
    const int64_t ahead = len * t->stride_row * (int64_t)attn_dtype_bytes(p->dtype);
    struct attn_tensor ends = *t;
    struct attn_problem sequences = *p;

    if (p->lengths != ATTN_PACKED)
        return tensor_map_encode(map, name, t, p, heads, len, box_rows, why);
    if (ahead < 0 || (uintptr_t)t->data < (uintptr_t)ahead)
        return attn_fail(why, ATTN_UNSUPPORTED, "tensor %s: its address is below that of %lld rows", name,
                         (long long)len);
    ends.data = (void *)((uintptr_t)t->data - (uintptr_t)ahead);
    ends.stride_batch = t->stride_row;
    sequences.batch = total + 1;
    return tensor_map_encode(map, name, &ends, &sequences, heads, len, box_rows, why);
}

static enum attn_status set_params(struct fused_sm90_fwd_params *params, const struct attn_request *request,
                                   const struct attn_tensors *t, const struct fused_sm90_fwd_tile *tile,
                                   void *workspace, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const int loaded_keys = tile->block_n / tile->cluster; /* by each block of a cluster, into all of them */
    enum attn_status status =
        encode_rows(&params->q, "q", &t->q, p, p->q_heads, p->q_len, p->total_q, tile->block_m, why);

    if (status == ATTN_OK)
        status = encode_rows(&params->k, "k", &t->k, p, p->kv_heads, p->kv_len, p->total_k, loaded_keys, why);
    if (status == ATTN_OK)
        status = encode_rows(&params->v, "v", &t->v, p, p->kv_heads, p->kv_len, p->total_k, loaded_keys, why);
    if (status == ATTN_OK)
        status = encode_rows(&params->o, "o", &t->o, p, p->q_heads, p->q_len, p->total_q, FUSED_SM90_FWD_O_ROWS, why);
    params->lse = t->lse;
    fused_sm90_fwd_set_shape(params, request, rows_of(tile));
    params->scale_log2 = (tile->has_softcap ? p->softcap : p->scale) * LOG2_E;
    if (tile->has_softcap)
        params->softcap = softcap_of(p);
    params->o_rows = t->o;
    if (!tile->is_dense)
        set_ranges(params, request, t, tile, workspace);
    else
        set_parts(params, request, tile, workspace);
    return status;
}

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const struct fused_sm90_fwd_tile *tile = attn_choose_tile(&fused_sm90_fwd_tiles, request, why);

    if (!tile)
        return ATTN_UNSUPPORTED;
    if (tile->cluster > request->device->multiprocessors)
        return attn_fail(why, ATTN_UNSUPPORTED, "%s needs %d multiprocessors, the device has %d", tile->tile.shown.name,
                         tile->cluster, request->device->multiprocessors);
    const int64_t most = !tile->is_dense ? FAMILY_MAX_LEN : MAX_LEN;
    if (p->q_len > most || p->kv_len > most)
        return attn_fail(why, ATTN_UNSUPPORTED, "the forward takes lengths up to %lld%s", (long long)most,
                         !tile->is_dense ? " with windows, packed sequences and block masks" : "");
    if (tile->has_softcap && family_check_softcap(p, why) != ATTN_OK)
        return ATTN_UNSUPPORTED;
    const struct family_tiling tiling = tiling_of(tile);
    if (!tile->is_dense && family_check_grid(p, &tiling, p->q_heads, why) != ATTN_OK)
        return ATTN_UNSUPPORTED;
    const int64_t row_tiles = row_tiles_of(p, tile);
    const enum attn_status status = attn_check_grid(row_tiles, p->q_heads, p->batch, why);
    /* The counter may run past the last tile by the number of blocks. There are parts only where tiles are some hundred
     * times as many as multiprocessors at most. */
    if (status == ATTN_OK && row_tiles * p->q_heads * p->batch > INT32_MAX - places_of(request->device, tile))
        return attn_fail(why, ATTN_UNSUPPORTED,
                         "%lld tiles and as many more as there are multiprocessors are over 2^31 - 1",
                         (long long)(row_tiles * p->q_heads * p->batch));
    return status;
}

static size_t workspace_bytes(const struct attn_request *request)
{
    struct attn_message why;
    const struct fused_sm90_fwd_tile *tile = attn_choose_tile(&fused_sm90_fwd_tiles, request, &why);

    if (!tile)
        return 0;
    if (!tile->is_dense) {
        const struct family_tiling tiling = tiling_of(tile);
        return family_schedule_bytes(request->problem, &tiling) + COUNTER_BYTES;
    }
    const struct sm90_fwd_tail tail = full_work_of(request, tile).tail;
    return (size_t)sm90_fwd_workspace_of(&tail, rows_of(tile), tile->tile.head_dim).bytes;
}

static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const struct fused_sm90_fwd_tile *tile = attn_choose_tile(&fused_sm90_fwd_tiles, request, why);
    struct fused_sm90_fwd_params params;

    if (!tile)
        return ATTN_UNSUPPORTED;
    enum attn_status status = set_params(&params, request, tensors, tile, run->workspace, why);
    if (status != ATTN_OK)
        return status;
    const int places = places_of(request->device, tile), clusters = places < params.tiles ? places : params.tiles;
    cudaError_t error = cudaSuccess;
    /* The counter first: the main kernel starts beside the one that lists its work, if nothing is between the two. */
    if (clusters == params.tiles)
        params.tile_counter = NULL;
    else if (p->lengths != ATTN_PACKED)
        error = cudaMemsetAsync(params.tile_counter, 0, sizeof *params.tile_counter, run->stream);
    if (error != cudaSuccess)
        return attn_cuda_failure("cudaMemsetAsync", error, why);
    if (!tile->is_dense) {
        const struct family_tiling tiling = tiling_of(tile);
        status = family_launch_schedule(request, tensors, &tiling, tile->has_lists ? list_groups_of(request, tile) : 1,
                                        1, run, why);
        if (status != ATTN_OK)
            return status;
    }
    const bool bf16 = p->dtype == ATTN_BF16, has_parts = params.tail.parts > 1;
    const int64_t slabs =
        params.tail.works * (int64_t)rows_of(tile) / FUSED_SM90_FWD_O_ROWS; /* a warp for 64 columns */
    status = attn_launch_kernel(
        &(struct attn_launch){.name = "main",
                              .kernel = (const void *)tile->kernels[p->causal][bf16],
                              .blocks = attn_tiles(clusters, tile->halves) * tile->cluster,
                              .threads = tile->threads,
                              .cluster = tile->cluster,
                              .smem_bytes = tile->tile.smem_bytes,
                              .is_pass = has_parts,
                              .overlaps_previous = !tile->is_dense && params.ranges.order.work != NULL},
        &params, run, why);
    if (status == ATTN_OK && has_parts)
        status = attn_launch_kernel(
            &(struct attn_launch){.name = "combine",
                                  .kernel = (const void *)fused_sm90_fwd_combine[bf16][sm90_head_dim_of(p->head_dim)],
                                  .blocks = attn_tiles(slabs * (p->head_dim / 64), FUSED_SM90_FWD_COMBINE_THREADS / 32),
                                  .threads = FUSED_SM90_FWD_COMBINE_THREADS,
                                  .is_pass = true,
                                  .overlaps_previous = true},
            &params, run, why);
    return status;
}

const struct attn_direction fused_sm90_fwd = {accepts, workspace_bytes, launch, &fused_sm90_fwd_tiles};
