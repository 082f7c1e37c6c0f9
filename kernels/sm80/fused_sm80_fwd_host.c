/* The host side of fused_sm80's forward: what it refuses, the kernel's parameters, the launch. */
#include "kernels/sm80/fused_sm80.h"

#include "kernels/common/checks.h"
#include "kernels/common/launch.h"

enum {
    MAX_LEN = INT32_MAX - 65536, /* column and row numbers of whole tiles stay within an int */
    TAIL_WAVES = 4               /* of blocks that are ordered by length across heads */
};

static const float LOG2_E = 1.4426950408889634f;

static const struct attn_tile_table tiles = {"forward", fused_sm80_fwd_tiles, sizeof *fused_sm80_fwd_tiles, NULL};

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const struct fused_sm80_fwd_tile *tile = attn_choose_tile(&tiles, request, why);

    if (tile == NULL)
        return ATTN_UNSUPPORTED;
    if (p->q_len > MAX_LEN || p->kv_len > MAX_LEN)
        return attn_fail(why, ATTN_UNSUPPORTED, "the forward takes lengths up to %d", (int)MAX_LEN);
    return attn_check_grid(attn_tiles(p->q_len, tile->block_m), p->q_heads, p->batch, why);
}

static size_t workspace_bytes(const struct attn_request *request)
{
    (void)request;
    return 0;
}

static struct fused_sm80_strides strides_of(const struct attn_tensor *t)
{
    return (struct fused_sm80_strides){t->stride_batch, t->stride_head, t->stride_row};
}

/* How many heads go one by one: all where no block is longer than another, else all but the last few waves. */
static int bulk_heads(const struct attn_problem *p, const struct attn_device *device, int64_t row_tiles)
{
    const int64_t heads = p->batch * p->q_heads, group = p->q_heads / p->kv_heads;
    const int64_t tail_blocks = (int64_t)TAIL_WAVES * SM80_FWD_BLOCKS_PER_SM * device->multiprocessors;
    const int64_t tail_heads = p->causal ? attn_tiles(tail_blocks, row_tiles) : 0;

    return tail_heads >= heads ? 0 : (int)((heads - tail_heads) / group * group);
}

static struct fused_sm80_fwd_params params_of(const struct attn_request *request, const struct attn_tensors *t,
                                              int block_m)
{
    const struct attn_problem *p = request->problem;
    const int64_t row_tiles = attn_tiles(p->q_len, block_m);

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
        .group = (int)(p->q_heads / p->kv_heads),
        .row_tiles = (int)row_tiles,
        .heads_total = (int)(p->batch * p->q_heads),
        .bulk_heads = bulk_heads(p, request->device, row_tiles),
        .scale_log2 = p->scale * LOG2_E,
        .causal = p->causal,
    };
}

static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const struct fused_sm80_fwd_tile *tile = attn_choose_tile(&tiles, request, why);

    if (tile == NULL)
        return ATTN_UNSUPPORTED;
    const struct fused_sm80_fwd_params params = params_of(request, tensors, tile->block_m);
    return attn_launch_kernel(&(struct attn_launch){.name = "fused_fwd_kernel",
                                                    .kernel = (const void *)tile->kernels[p->dtype == ATTN_BF16],
                                                    .blocks = params.row_tiles * p->q_heads * p->batch,
                                                    .threads = tile->threads,
                                                    .smem_bytes = tile->tile.smem_bytes},
                              &params, run, why);
}

const struct attn_direction fused_sm80_fwd = {accepts, workspace_bytes, launch, &tiles};
