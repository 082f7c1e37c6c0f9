/* The host side of fused_sm90's decode: what is refused, the workspace, the kernel's parameters, the launch. */
#include "kernels/sm90/decode/params.h"

#include <string.h>

#include "kernels/common/checks.h"
#include "kernels/common/launch.h"
#include "kernels/sm90/decode/chunk.h"
#include "kernels/sm90/fused_sm90.h"

enum {
    FEW_ROWS = 16,
    MOST_NEW_ROWS = 512,
    ALIGNMENT = 256 /* bytes; of the parts of the workspace */,
    MOST_ZERO_BLOCKS = 64
};

static const int64_t MAX_LEN = INT32_MAX - 65536; /* numbers of keys of whole tiles stay within an int */
static const int64_t MAX_UNITS = INT64_C(1) << 48;
static const float LOG2_E = 1.4426950408889634f;

/* By the forward's kernels (chunk.h). */
static const struct fused_sm90_decode_tile chunks[] = {
    {.tile = {{"decode_chunk_d128", "chunks of a prefill: the forward of packed sequences"}, 128, 1, 0},
     .tile_rows = MOST_NEW_ROWS,
     .tile_keys = 64},
    {.tile = {{"decode_chunk_d64", "chunks of a prefill: the forward of packed sequences"}, 64, 1, 0},
     .tile_rows = MOST_NEW_ROWS,
     .tile_keys = 64},
    {.tile_rows = 0}};

static const void *const lists[] = {chunks, fused_sm90_decode_d128, fused_sm90_decode_d64, fused_sm90_decode_d256,
                                    NULL};

static bool is_chunk(const struct fused_sm90_decode_tile *tile) { return tile->tile_rows == MOST_NEW_ROWS; }

/* Tiles of few rows for each kv head. */
static int64_t row_tiles_of(const struct attn_problem *p)
{
    const struct family_decode_shape shape = family_decode_shape_of(p, 1, FEW_ROWS, 1, 0);

    return (int64_t)shape.head_tiles * shape.token_tiles;
}

/* Thread blocks of a cluster where each item has one: some 64 blocks in all, so that all clusters run at the same time
 * on every device with eight times eight multiprocessors; or twos, for which two neighbours suffice. 0: there are too
 * many items for it. */
static int cluster_of(const struct attn_request *request)
{
    const struct attn_problem *p = request->problem;
    const int64_t items = p->batch * p->kv_heads * row_tiles_of(p);

    if (items > 16)
        return items <= 32 || 2 * items <= request->device->multiprocessors ? 2 : 0;
    return items <= 8 ? 8 : 4;
}

static bool clusters_can(const struct attn_request *request)
{
    return !attn_rows_are_packed(request->problem) && request->splits == 0 && cluster_of(request) != 0;
}

/* What clusters save, counters and a trip to the second-level cache, counts where a block has little to read; more so
 * where there are fewer than 64. Sequences of other lengths leave blocks idle, so that they must be short. */
static bool clusters_pay(const struct attn_request *request)
{
    enum { MOST_BLOCK_KEYS = 4096, MOST_KEYS_OF_FEW_BLOCKS = 1280, MOST_UNEVEN_KEYS = 2048 };
    const struct attn_problem *p = request->problem;
    const int cluster = cluster_of(request);
    const int64_t blocks = p->batch * p->kv_heads * row_tiles_of(p) * cluster;

    return p->kv_len <= cluster * (blocks >= 64 ? MOST_BLOCK_KEYS : MOST_KEYS_OF_FEW_BLOCKS) &&
           (p->batch == 1 || p->kv_len <= MOST_UNEVEN_KEYS);
}

/* Whether more rows than a tile of few rows has are several such tiles, which read the same keys: where there is little
 * to read, adding up parts takes longer than that, and it is faster in narrow tiles. */
static bool rows_have_tiles(const struct attn_problem *p)
{
    enum { MOST_ROW_TILES = 2, MOST_KEYS = 1 << 18 };

    return !attn_rows_are_packed(p) && row_tiles_of(p) <= MOST_ROW_TILES &&
           p->batch * p->kv_heads * p->kv_len <= MOST_KEYS;
}

/* The first member of a row is its tile. A tile of few rows takes the rows of a kv head together. In the invariant mode
 * there is none: where rows are packed those of a sequence's neighbours would decide. */
static bool takes(const struct attn_request *request, const struct attn_tile *tile)
{
    const struct attn_problem *p = request->problem;
    const struct fused_sm90_decode_tile *row = (const void *)tile;

    if (tile->head_dim != p->head_dim || row->is_8_bit != (p->cache_dtype != ATTN_FP32))
        return false;
    if (is_chunk(row))
        return sm90_chunk_can(request) && (request->variant != NULL || sm90_chunk_pays(request));
    if (row->has_clusters && (!clusters_can(request) || (request->variant == NULL && !clusters_pay(request))))
        return false;
    return row->tile_rows == SM90_DECODE_ROWS || (!request->invariant && (row_tiles_of(p) == 1 || rows_have_tiles(p)));
}

const struct attn_tile_table fused_sm90_decode_tiles = {"decode", lists, sizeof *fused_sm90_decode_d128, NULL, takes};

/* For a chunk whose tensors do not lie as the forward needs them. */
static const struct fused_sm90_decode_tile *tile_without_chunks(const struct fused_sm90_decode_tile *tile)
{
    const struct fused_sm90_decode_tile *row =
        tile->tile.head_dim == 64 ? fused_sm90_decode_d64 : fused_sm90_decode_d128;

    while (row->is_8_bit || row->tile_rows != SM90_DECODE_ROWS)
        ++row;
    return row;
}

/* Which kernels take the request: FUSED_SM90_DECODE_*. */
static int work_of(const struct attn_request *request)
{
    if (request->invariant)
        return FUSED_SM90_DECODE_INVARIANT;
    return attn_rows_are_packed(request->problem) ? FUSED_SM90_DECODE_PACKED : FUSED_SM90_DECODE_ALIKE;
}

static struct family_decode_shape shape_of(const struct attn_request *request,
                                           const struct fused_sm90_decode_tile *tile)
{
    const int multiprocessors = request->device->multiprocessors;

    if (work_of(request) == FUSED_SM90_DECODE_ALIKE)
        return family_decode_shape_of(request->problem, tile->tile_keys, tile->tile_rows, multiprocessors,
                                      request->splits);
    return sm90_decode_ragged_shape_of(request->problem, tile->tile_keys, multiprocessors, request->splits,
                                       request->invariant);
}

static int64_t slots_of(const struct family_decode_shape *shape)
{
    if (shape->most_leaves != 0)
        return sm90_decode_regions(shape) * shape->most_leaves;
    return shape->splits == 1 ? 0 : family_decode_slots(shape); /* one split has no parts */
}

static int64_t counters_of(const struct family_decode_shape *shape)
{
    return shape->most_leaves != 0 ? sm90_decode_regions(shape) * SM90_DECODE_NODE_COUNTERS : 2 * slots_of(shape);
}

/* The workspace: the counters, and where the other parts begin, and the size of all. */
struct workspace {
    int64_t part_rows, part_o, bytes;
};

static struct workspace workspace_of(const struct family_decode_shape *shape, int64_t head_dim)
{
    const int64_t slots = slots_of(shape), counters = counters_of(shape);
    const int64_t rows = slots * shape->heads * shape->tokens;
    struct workspace space = {.part_rows = attn_round_up(counters * (int64_t)sizeof(int), ALIGNMENT)};

    space.part_o = space.part_rows + attn_round_up(rows * (int64_t)sizeof(float4), ALIGNMENT);
    space.bytes = space.part_o + rows * head_dim * (int64_t)sizeof(float);
    return space;
}

static int greatest_divisor(int a, int b) /* of both */
{
    while (b != 0) {
        const int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static enum attn_status check_values(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;

    if (p->head_dim != 64 && p->head_dim != 128 && p->head_dim != 256)
        return attn_fail(why, ATTN_UNSUPPORTED, "head_dim %lld: decode takes 64, 128 and 256", (long long)p->head_dim);
    if (p->q_len > MOST_NEW_ROWS)
        return attn_fail(why, ATTN_UNSUPPORTED, "%lld new rows of a sequence: decode takes 1 to %d",
                         (long long)p->q_len, MOST_NEW_ROWS);
    if (request->invariant && (request->splits != 0 || request->variant != NULL))
        return attn_fail(why, ATTN_UNSUPPORTED, "takes the invariant mode without splits and without a variant");
    if (p->cache_dtype != ATTN_FP32 && (!attn_dtype_is_8_bit(p->cache_dtype) || p->quant_scale != ATTN_SCALE_HEAD))
        return attn_fail(why, ATTN_UNSUPPORTED, "a cache of another type is e4m3 or e5m2, with a scale for each head");
    if (request->splits < 0 || request->splits > FAMILY_DECODE_MOST_SPLITS)
        return attn_fail(why, ATTN_UNSUPPORTED, "%lld splits: decode takes up to %d", (long long)request->splits,
                         FAMILY_DECODE_MOST_SPLITS);
    if (p->kv_len > MAX_LEN)
        return attn_fail(why, ATTN_UNSUPPORTED, "decode takes caches of up to %lld keys", (long long)MAX_LEN);
    if (p->page_size < 0 || p->page_size % 8 != 0 || p->page_size > MAX_LEN)
        return attn_fail(why, ATTN_UNSUPPORTED, "pages of %lld rows: decode takes multiples of 8 up to %lld",
                         (long long)p->page_size, (long long)MAX_LEN);
    if (p->page_size != 0 && (p->pages < 1 || p->pages > INT32_MAX))
        return attn_fail(why, ATTN_UNSUPPORTED, "%lld pages: decode takes 1 to 2147483647", (long long)p->pages);
    return ATTN_OK;
}

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    enum attn_status status = check_values(request, why);

    if (status == ATTN_OK) /* that many tiles of rows, or fewer */
        status = attn_check_grid(p->q_heads / p->kv_heads * p->q_len, p->kv_heads, p->batch, why);
    if (status != ATTN_OK)
        return status;
    const struct fused_sm90_decode_tile *tile = attn_choose_tile(&fused_sm90_decode_tiles, request, why);
    if (!tile)
        return ATTN_UNSUPPORTED;
    const struct family_decode_shape shape = shape_of(request, tile);
    if (p->batch * shape.items > MAX_UNITS / attn_tiles(p->kv_len, tile->tile_keys))
        return attn_fail(why, ATTN_UNSUPPORTED, "%lld tiles of rows and as many keys each are over 2^48 tiles",
                         (long long)(p->batch * shape.items));
    return ATTN_OK;
}

static size_t workspace_bytes(const struct attn_request *request)
{
    struct attn_message why;
    const struct fused_sm90_decode_tile *tile = attn_choose_tile(&fused_sm90_decode_tiles, request, &why);

    if (!tile)
        return 0;
    const struct family_decode_shape shape = shape_of(request, is_chunk(tile) ? tile_without_chunks(tile) : tile);
    const size_t bytes = (size_t)workspace_of(&shape, request->problem->head_dim).bytes;
    const size_t of_chunk = is_chunk(tile) ? sm90_chunk_workspace_bytes(request) : 0;
    return bytes > of_chunk ? bytes : of_chunk;
}

static enum attn_status encode_maps(struct fused_sm90_decode_params *params, const struct attn_problem *p,
                                    const struct attn_tensors *t, const struct fused_sm90_decode_tile *tile,
                                    struct attn_message *why)
{
    const bool paged = p->page_size != 0, packed = attn_rows_are_packed(p);
    const struct tensor_map_shape rows = {.dtype = p->dtype,
                                          .head_dim = p->head_dim,
                                          .len = packed ? p->total_q : p->q_len,
                                          .heads = p->q_heads,
                                          .batch = packed ? 1 : p->batch,
                                          .box_rows = params->shape.tokens,
                                          .box_heads = params->shape.heads},
                                  keys = {.dtype = attn_kv_dtype(p),
                                          .head_dim = p->head_dim,
                                          .len = paged ? p->page_size : p->kv_len,
                                          .heads = p->kv_heads,
                                          .batch = paged ? p->pages : p->batch,
                                          .box_rows = params->box_rows,
                                          .box_heads = 1,
                                          .has_all_panels = tile->tile_rows < SM90_DECODE_ROWS,
                                          .is_read_once = true};
    enum attn_status status = tensor_map_encode_shape(&params->q, "q", &t->q, &rows, why);

    if (status == ATTN_OK)
        status = tensor_map_encode_shape(&params->k, "k", &t->k, &keys, why);
    if (status == ATTN_OK)
        status = tensor_map_encode_shape(&params->v, "v", &t->v, &keys, why);
    return status;
}

static enum attn_status set_params(struct fused_sm90_decode_params *params, const struct attn_request *request,
                                   const struct attn_tensors *t, const struct fused_sm90_decode_tile *tile,
                                   char *workspace, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const bool paged = p->page_size != 0;

    memset(params, 0, sizeof *params);
    params->shape = shape_of(request, tile);
    params->o = t->o;
    params->lse = t->lse;
    params->seqused_k = t->seqused_k;
    if (attn_rows_are_packed(p)) {
        params->cu_seqlens_q = t->cu_seqlens_q;
        params->total_q = p->total_q;
    }
    if (p->cache_dtype != ATTN_FP32) {
        params->scale_k = t->scale_k;
        params->scale_v = t->scale_v;
        params->cache_is_e5m2 = p->cache_dtype == ATTN_E5M2;
    }
    params->sink = p->has_sink ? t->sink : NULL;
    params->page_size = divisor_of(paged ? p->page_size : 1);
    params->box_rows = tile->tile_keys;
    if (paged) {
        params->page_table = t->page_table;
        params->table_pages = attn_tiles(p->kv_len, p->page_size);
        params->box_rows = greatest_divisor(tile->tile_keys, (int)p->page_size);
    }
    params->q_heads = (int)p->q_heads;
    params->kv_heads = (int)p->kv_heads;
    params->cluster = tile->has_clusters ? cluster_of(request) : 0;
    params->group = (int)(p->q_heads / p->kv_heads);
    params->window_right =
        p->causal ? 0 : (int)(p->window_right < 0 || p->window_right > p->kv_len ? p->kv_len : p->window_right);
    params->scale_log2 = p->scale * LOG2_E;
    const struct workspace space = workspace_of(&params->shape, p->head_dim);
    params->counters = (int *)(void *)workspace;
    params->part_rows = (float4 *)(void *)(workspace + space.part_rows);
    params->part_o = (float *)(void *)(workspace + space.part_o);
    return encode_maps(params, p, t, tile, why);
}

static enum attn_status zero_counters(const struct fused_sm90_decode_params *params, const struct attn_run *run,
                                      struct attn_message *why)
{
    const struct fused_sm90_decode_zeros zeros = {params->counters, counters_of(&params->shape)};

    return attn_launch_kernel(
        &(struct attn_launch){.name = "zero counters",
                              .kernel = fused_sm90_decode_zero_counters,
                              .blocks = attn_tiles(zeros.count, FUSED_SM90_DECODE_ZERO_THREADS) < MOST_ZERO_BLOCKS
                                            ? attn_tiles(zeros.count, FUSED_SM90_DECODE_ZERO_THREADS)
                                            : MOST_ZERO_BLOCKS,
                              .threads = FUSED_SM90_DECODE_ZERO_THREADS},
        &zeros, run, why);
}

static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const struct fused_sm90_decode_tile *tile = attn_choose_tile(&fused_sm90_decode_tiles, request, why);
    struct fused_sm90_decode_params params;

    if (!tile)
        return ATTN_UNSUPPORTED;
    if (is_chunk(tile)) {
        if (sm90_chunk_fits(request, tensors))
            return sm90_chunk_launch(request, tensors, run, why);
        tile = tile_without_chunks(tile);
    }
    enum attn_status status = set_params(&params, request, tensors, tile, run->workspace, why);
    const bool has_counters = request->splits != 1 && !tile->has_clusters;
    if (status == ATTN_OK && has_counters)
        status = zero_counters(&params, run, why);
    if (status != ATTN_OK)
        return status;
    const fused_sm90_decode_kernel kernel = tile->kernels[work_of(request)][p->dtype == ATTN_BF16];
    return attn_launch_kernel(&(struct attn_launch){.name = "decode",
                                                    .kernel = (const void *)kernel,
                                                    .blocks = tile->has_clusters
                                                                  ? p->batch * params.shape.items * params.cluster
                                                                  : params.shape.blocks,
                                                    .threads = tile->threads,
                                                    .cluster = params.cluster,
                                                    .smem_bytes = tile->tile.smem_bytes,
                                                    .overlaps_previous = has_counters},
                              &params, run, why);
}

const struct attn_direction fused_sm90_decode = {accepts, workspace_bytes, launch, &fused_sm90_decode_tiles};
