/* The host side of fused_sm80's forward: what it refuses, the kernel's parameters, the launch. */
#include "kernels/sm80/fused_sm80.h"

#include "kernels/common/checks.h"
#include "kernels/common/launch.h"
#include "kernels/sm80/family.h"

static const float LOG2_E = 1.44269504088896340736f;

enum {
    MAX_LEN = INT32_MAX - 65536, /* column and row numbers of whole tiles stay within an int */
    TAIL_WAVES = 4               /* of blocks that are ordered by length across heads */
};

enum sm80_kind fused_sm80_fwd_kind(const struct fused_sm80_fwd_tile *row, const struct attn_request *request)
{
    const enum sm80_kind kind = sm80_kind_of(request);
    const struct attn_problem *p = request->problem;

    if (kind == SM80_SPARSE && p->mask_block == 0 && p->lengths != ATTN_PACKED &&
        row->kernels[SM80_WINDOW][0] != NULL && row->tile.head_dim == p->head_dim)
        return SM80_WINDOW;
    if (kind == SM80_DENSE || kind == SM80_SCORE)
        return kind;
    return row->kernels[kind][0] == NULL || row->tile.head_dim != p->head_dim ? SM80_FAMILY : kind;
}

/* These, [bf16]; the first is NULL where it has none. */
static const fused_sm80_fwd_kernel *kernels_of(const struct fused_sm80_fwd_tile *row,
                                               const struct attn_request *request)
{
    return row->kernels[fused_sm80_fwd_kind(row, request)];
}

static struct family_tiling tiling_of(const struct attn_request *request, const struct fused_sm80_fwd_tile *tile)
{
    return sm80_tiling_of(request->problem, fused_sm80_fwd_kind(tile, request), false, tile->block_m, tile->block_n);
}

/* Whether a row is compiled for what is asked, head_dim of Q and K apart. */
static bool is_compiled(const struct fused_sm80_fwd_tile *row, const struct attn_request *request)
{
    return sm80_has_v(request->problem, row->tile.head_dim, row->v_head_dim) && kernels_of(row, request)[0] != NULL;
}

/* A row is compiled for dense attention with its head_dim, or for the family with those from the next narrower row's
 * on, or for both. */
static bool takes(const struct attn_request *request, const struct attn_tile *tile)
{
    int narrowest = INT32_MAX;

    for (const struct attn_tile *row = NULL; (row = attn_next_tile(&fused_sm80_fwd_tiles, row)) != NULL;)
        if (is_compiled((const struct fused_sm80_fwd_tile *)row, request) &&
            row->head_dim >= request->problem->head_dim && row->head_dim < narrowest)
            narrowest = row->head_dim;
    return tile->head_dim == narrowest && is_compiled((const struct fused_sm80_fwd_tile *)tile, request);
}

static const void *const lists[] = {fused_sm80_fwd_d32,     fused_sm80_fwd_d64,      fused_sm80_fwd_d96,
                                    fused_sm80_fwd_d128,    fused_sm80_fwd_d192,     fused_sm80_fwd_d256,
                                    fused_sm80_fwd_d64x128, fused_sm80_fwd_d192x128, NULL};
const struct attn_tile_table fused_sm80_fwd_tiles = {"forward", lists, sizeof *fused_sm80_fwd_d64, NULL, takes};

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;

    if (sm80_check_v(request, why) != ATTN_OK)
        return ATTN_UNSUPPORTED;
    const struct fused_sm80_fwd_tile *tile = attn_choose_tile(&fused_sm80_fwd_tiles, request, why);
    if (tile == NULL || sm80_check_family(request, why) != ATTN_OK)
        return ATTN_UNSUPPORTED;
    if (p->q_len > MAX_LEN || p->kv_len > MAX_LEN)
        return attn_fail(why, ATTN_UNSUPPORTED, "the forward takes lengths up to %d", (int)MAX_LEN);
    const struct family_tiling tiling = tiling_of(request, tile);
    return family_check_grid(p, &tiling, p->q_heads, why);
}

static size_t workspace_bytes(const struct attn_request *request)
{
    struct attn_message why;
    const struct fused_sm80_fwd_tile *tile = attn_choose_tile(&fused_sm80_fwd_tiles, request, &why);

    if (tile == NULL)
        return 0;
    const struct family_tiling tiling = tiling_of(request, tile);
    return family_schedule_bytes(request->problem, &tiling);
}

static struct fused_sm80_strides strides_of(const struct attn_tensor *t)
{
    return (struct fused_sm80_strides){t->stride_batch, t->stride_head, t->stride_row};
}

/* How many heads go one by one: all where no block is longer than another, else all but the last few waves. */
static int bulk_heads(const struct attn_problem *p, const struct attn_device *device, int blocks_per_sm,
                      int64_t row_tiles)
{
    const int64_t heads = p->batch * p->q_heads, group = p->q_heads / p->kv_heads;
    const int64_t tail_blocks = (int64_t)TAIL_WAVES * blocks_per_sm * device->multiprocessors;
    const int64_t tail_heads = p->causal ? attn_tiles(tail_blocks, row_tiles) : 0;

    return tail_heads >= heads ? 0 : (int)((heads - tail_heads) / group * group);
}

static struct fused_sm80_fwd_params params_of(const struct attn_request *request, const struct attn_tensors *t,
                                              void *workspace, const struct fused_sm80_fwd_tile *tile,
                                              const struct family_tiling *tiling)
{
    const struct attn_problem *p = request->problem;
    const int64_t row_tiles = attn_tiles(p->q_len, tile->block_m), heads = p->batch * p->q_heads;
    const int64_t group = p->q_heads / p->kv_heads;
    const int bulk = bulk_heads(p, request->device, tile->tile.blocks_per_sm, row_tiles);

    return (struct fused_sm80_fwd_params){
        .q = t->q.data,
        .k = t->k.data,
        .v = t->v.data,
        .o = t->o.data,
        .lse = t->lse,
        .q_strides = strides_of(&t->q),
        .k_strides = strides_of(&t->k),
        .v_strides = strides_of(&t->v),
        .o_strides = strides_of(&t->o),
        .q_len = (int)p->q_len,
        .kv_len = (int)p->kv_len,
        .q_heads = (int)p->q_heads,
        .group = (int)group,
        .row_tiles = (int)row_tiles,
        .heads_total = (int)heads,
        .bulk_heads = bulk,
        .scale_log2 = (p->softcap > 0.0f ? p->softcap : p->scale) * LOG2_E,
        .causal = p->causal,
        .family = sm80_family_of(request, t, workspace, tiling),
        .order = {divisor_of(p->q_heads), divisor_of(group), divisor_of(group * row_tiles),
                  divisor_of(heads > bulk ? heads - bulk : 1)},
        .score = sm80_score_of(request, t),
    };
}

static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const struct fused_sm80_fwd_tile *tile = attn_choose_tile(&fused_sm80_fwd_tiles, request, why);

    if (tile == NULL)
        return ATTN_UNSUPPORTED;
    const struct family_tiling tiling = tiling_of(request, tile);
    const struct fused_sm80_fwd_params params = params_of(request, tensors, run->workspace, tile, &tiling);
    const enum attn_status status =
        family_launch_schedule(request, tensors, &tiling, 1, tile->tile.blocks_per_sm, run, why);
    if (status != ATTN_OK)
        return status;
    return attn_launch_kernel(
        &(struct attn_launch){.name = "fused_fwd_kernel",
                              .kernel = (const void *)kernels_of(tile, request)[p->dtype == ATTN_BF16],
                              .blocks = family_work_tiles(p, false, tile->block_m) * p->q_heads,
                              .threads = tile->threads,
                              .smem_bytes = tile->tile.smem_bytes},
        &params, run, why);
}

const struct attn_direction fused_sm80_fwd = {accepts, workspace_bytes, launch, &fused_sm80_fwd_tiles};
