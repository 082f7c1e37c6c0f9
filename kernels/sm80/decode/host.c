/* The host side of fused_sm80's decode: what is refused, the workspace, the kernel's parameters, the launch. */
#include "kernels/sm80/decode/params.h"

#include <string.h>

#include "kernels/common/checks.h"
#include "kernels/common/launch.h"
#include "kernels/sm80/fused_sm80.h"

enum { MOST_NEW_ROWS = 16, ALIGNMENT = 256 /* bytes; of the parts of the workspace */, FEW_ROWS = 16 };

static const int64_t MAX_LEN = INT32_MAX - 65536; /* numbers of keys of whole tiles stay within an int */
static const int64_t MAX_UNITS = INT64_C(1) << 48;
static const float LOG2_E = 1.4426950408889634f;

/* The tile with many rows has what that with few would read several times. */
static bool takes(const struct attn_request *request, const struct attn_tile *tile)
{
    const struct fused_sm80_decode_tile *row = (const struct fused_sm80_decode_tile *)tile;
    const struct attn_problem *p = request->problem;
    const bool has_few = p->q_heads / p->kv_heads * p->q_len <= FEW_ROWS;

    return tile->head_dim == p->head_dim && (row->tile_rows <= FEW_ROWS || !has_few || request->variant != NULL);
}

static const void *const lists[] = {fused_sm80_decode_d128, fused_sm80_decode_d64, fused_sm80_decode_d256, NULL};
const struct attn_tile_table fused_sm80_decode_tiles = {"decode", lists, sizeof *fused_sm80_decode_d128, NULL, takes};

static struct family_decode_shape shape_of(const struct attn_request *request,
                                           const struct fused_sm80_decode_tile *tile)
{
    return family_decode_shape_of(request->problem, tile->tile_keys, tile->tile_rows, request->device->multiprocessors,
                                  request->splits);
}

/* The workspace: the counters, and where the other parts begin, and the size of all. */
struct workspace {
    int64_t counter_bytes, part_rows, part_o, bytes;
};

static struct workspace workspace_of(const struct family_decode_shape *shape, int64_t head_dim)
{
    const int64_t slots = shape->splits == 1 ? 0 : family_decode_slots(shape); /* one split has no parts */
    const int64_t rows = slots * shape->heads * shape->tokens;
    struct workspace space = {.counter_bytes = 2 * slots * (int64_t)sizeof(int)};

    space.part_rows = attn_round_up(space.counter_bytes, ALIGNMENT);
    space.part_o = space.part_rows + attn_round_up(rows * (int64_t)sizeof(float4), ALIGNMENT);
    space.bytes = space.part_o + rows * head_dim * (int64_t)sizeof(float);
    return space;
}

static enum attn_status check_values(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;

    if (p->head_dim != 64 && p->head_dim != 128 && p->head_dim != 256)
        return attn_fail(why, ATTN_UNSUPPORTED, "head_dim %lld: decode takes 64, 128 and 256", (long long)p->head_dim);
    if (p->q_len > MOST_NEW_ROWS)
        return attn_fail(why, ATTN_UNSUPPORTED, "%lld new rows of a sequence: decode takes 1 to %d",
                         (long long)p->q_len, MOST_NEW_ROWS);
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
    const struct fused_sm80_decode_tile *tile = attn_choose_tile(&fused_sm80_decode_tiles, request, why);
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
    const struct fused_sm80_decode_tile *tile = attn_choose_tile(&fused_sm80_decode_tiles, request, &why);

    if (!tile)
        return 0;
    const struct family_decode_shape shape = shape_of(request, tile);
    return (size_t)workspace_of(&shape, request->problem->head_dim).bytes;
}

/* As many slots as there is room for. */
static int slots_of(const struct fused_sm80_decode_tile *tile, const struct attn_device *device)
{
    const size_t more = (device->smem_per_block_bytes - tile->tile.smem_bytes) / (size_t)tile->slot_bytes;
    const int slots = tile->least_slots + (int)more;

    return slots < FUSED_SM80_DECODE_MOST_SLOTS ? slots : FUSED_SM80_DECODE_MOST_SLOTS;
}

/* The largest 2^n by which both can be divided; a tile is a power of two. */
static int box_shift_of(int tile_keys, int64_t page_size)
{
    int shift = 0;

    while ((2 << shift) <= tile_keys && page_size % (2 << shift) == 0)
        ++shift;
    return shift;
}

static struct fused_sm80_decode_params params_of(const struct attn_request *request, const struct attn_tensors *t,
                                                 const struct fused_sm80_decode_tile *tile, char *workspace)
{
    const struct attn_problem *p = request->problem;
    const bool is_paged = p->page_size != 0;
    struct fused_sm80_decode_params params = {.q = t->q,
                                              .k = t->k,
                                              .v = t->v,
                                              .o = t->o,
                                              .shape = shape_of(request, tile),
                                              .lse = t->lse,
                                              .seqused_k = t->seqused_k,
                                              .page_table = is_paged ? t->page_table : NULL,
                                              .sink = p->has_sink ? t->sink : NULL,
                                              .table_pages = is_paged ? attn_tiles(p->kv_len, p->page_size) : 0,
                                              .page_size = divisor_of(is_paged ? p->page_size : 1),
                                              .box_shift = box_shift_of(tile->tile_keys, p->page_size),
                                              .slots = slots_of(tile, request->device),
                                              .q_heads = (int)p->q_heads,
                                              .group = (int)(p->q_heads / p->kv_heads),
                                              .window_right = (int)p->kv_len,
                                              .scale_log2 = p->scale * LOG2_E};
    const struct workspace space = workspace_of(&params.shape, p->head_dim);

    if (p->causal)
        params.window_right = 0;
    else if (p->window_right >= 0 && p->window_right < p->kv_len)
        params.window_right = (int)p->window_right;
    params.counters = (int *)(void *)workspace;
    params.part_rows = (float4 *)(void *)(workspace + space.part_rows);
    params.part_o = (float *)(void *)(workspace + space.part_o);
    return params;
}

static enum attn_status zero_counters(const struct fused_sm80_decode_params *params, int64_t head_dim,
                                      const struct attn_run *run, struct attn_message *why)
{
    const struct workspace space = workspace_of(&params->shape, head_dim);
    const cudaError_t error = cudaMemsetAsync(params->counters, 0, (size_t)space.counter_bytes, run->stream);

    return error == cudaSuccess ? ATTN_OK : attn_cuda_failure("cudaMemsetAsync", error, why);
}

static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const struct fused_sm80_decode_tile *tile = attn_choose_tile(&fused_sm80_decode_tiles, request, why);

    if (!tile)
        return ATTN_UNSUPPORTED;
    const struct fused_sm80_decode_params params = params_of(request, tensors, tile, run->workspace);
    const enum attn_status status = params.shape.splits != 1 ? zero_counters(&params, p->head_dim, run, why) : ATTN_OK;
    if (status != ATTN_OK)
        return status;
    const size_t more_slots = (size_t)(params.slots - tile->least_slots);
    return attn_launch_kernel(
        &(struct attn_launch){.name = "decode",
                              .kernel = (const void *)tile->kernels[p->dtype == ATTN_BF16],
                              .blocks = params.shape.blocks,
                              .threads = tile->threads,
                              .smem_bytes = tile->tile.smem_bytes + more_slots * (size_t)tile->slot_bytes},
        &params, run, why);
}

const struct attn_direction fused_sm80_decode = {accepts, workspace_bytes, launch, &fused_sm80_decode_tiles};
