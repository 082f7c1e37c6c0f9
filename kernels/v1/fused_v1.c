/* fused_v1: FlashAttention's first algorithm, for comparison with what came later (docs/generations.md). Its entry in
 * the registry and the host side of both directions; the algorithm is in fwd.cu and bwd.cu. */
#include <stdint.h>

#include "kernels/common/checks.h"
#include "kernels/common/launch.h"
#include "kernels/v1/params.h"

static const float LOG2_E = 1.44269504088896340736f;

enum { MAX_LEN = INT32_MAX - 65536, LEAST_STEPS = 4, WARP = 32 };

/* ---- how the work is shared ---- */

static int64_t heads_of(const struct attn_problem *p) { return p->batch * p->q_heads; }
static int64_t padded_rows(const struct attn_problem *p) { return attn_round_up(p->q_len, V1_ROW_STEP); }
static int64_t key_blocks(const struct attn_problem *p) { return attn_tiles(p->kv_len, V1_KEYS(p->head_dim)); }

/* Blocks that share the rows of a head of the forward: as many as run at a time, where there are fewer heads than that;
 * each has a few steps at least. */
static int64_t fwd_splits(const struct attn_request *request)
{
    const struct attn_problem *p = request->problem;
    const int64_t running = (int64_t)request->device->multiprocessors * V1_FWD_BLOCKS_PER_SM;
    const int64_t wanted = running / heads_of(p), most = attn_tiles(p->q_len, V1_ROWS) / LEAST_STEPS;
    const int64_t splits = wanted < most ? wanted : most;

    return splits < 1 ? 1 : splits;
}

/* The share of the device that so many blocks keep at work, all of one length. */
static double used_share(int64_t blocks, int64_t running)
{
    return (double)blocks / (double)(attn_tiles(blocks, running) * running);
}

/* Blocks that share the keys of a kv head of the backward: one, or as many as there are blocks of keys where this keeps
 * more of the device at work, by more than the share of one block of keys. */
static int64_t bwd_splits(const struct attn_request *request)
{
    const struct attn_problem *p = request->problem;
    const int64_t running = (int64_t)request->device->multiprocessors * V1_BWD_BLOCKS_PER_SM;
    const int64_t heads = p->batch * p->kv_heads, blocks = key_blocks(p);
    const double alone = used_share(heads, running), shared = used_share(heads * blocks, running);

    return request->deterministic || alone * (1.0 + 1.0 / (double)blocks) >= shared ? 1 : blocks;
}

/* ---- workspace ---- */

/* Floats of O or dQ so far; none where one block of keys has all of them. */
static int64_t sum_floats(const struct attn_problem *p)
{
    return key_blocks(p) > 1 ? heads_of(p) * padded_rows(p) * p->head_dim : 0;
}

static int64_t row_floats(const struct attn_problem *p, enum attn_mode mode)
{
    return mode == ATTN_FWD && key_blocks(p) == 1 ? 0 : 2 * heads_of(p) * padded_rows(p);
}

static size_t workspace_bytes_of(const struct attn_request *request)
{
    return (size_t)(sum_floats(request->problem) + row_floats(request->problem, request->mode)) * sizeof(float);
}

static struct fused_v1_params params_of(const struct attn_request *request, const struct attn_tensors *t,
                                        void *workspace, int64_t splits)
{
    const struct attn_problem *p = request->problem;
    float *sum = workspace;

    return (struct fused_v1_params){
        .q = t->q,
        .k = t->k,
        .v = t->v,
        .o = t->o,
        .dout = t->dout,
        .dq = t->dq,
        .dk = t->dk,
        .dv = t->dv,
        .lse = t->lse,
        .sum = sum,
        .rows = sum != NULL ? sum + sum_floats(p) : NULL,
        .q_rows = padded_rows(p),
        .q_len = (int32_t)p->q_len,
        .kv_len = (int32_t)p->kv_len,
        .shift = (int32_t)(p->kv_len - p->q_len),
        .q_heads = (int32_t)p->q_heads,
        .kv_heads = (int32_t)p->kv_heads,
        .group = (int32_t)(p->q_heads / p->kv_heads),
        .heads_total = (int32_t)heads_of(p),
        .splits = (int32_t)splits,
        .scale = p->scale,
        .scale_log2 = p->scale * LOG2_E,
        .causal = p->causal,
    };
}

/* Blocks of the kernels around the backward. */
static int64_t pass_blocks(const struct attn_problem *p)
{
    return attn_tiles(heads_of(p) * padded_rows(p), V1_PASS_THREADS / (p->head_dim / 8));
}

/* ---- the forward ---- */

static const void *const fwd_lists[] = {fused_v1_fwd_list, NULL}, *const bwd_lists[] = {fused_v1_bwd_list, NULL};
static const struct attn_tile_table fwd_tiles = {"forward", fwd_lists, sizeof *fused_v1_fwd_list, NULL, NULL};
static const struct attn_tile_table bwd_tiles = {"backward", bwd_lists, sizeof *fused_v1_bwd_list, NULL, NULL};

static enum attn_status check_lengths(const struct attn_problem *p, struct attn_message *why)
{
    if (p->q_len > MAX_LEN || p->kv_len > MAX_LEN)
        return attn_fail(why, ATTN_UNSUPPORTED, "takes lengths up to %d", (int)MAX_LEN);
    return ATTN_OK;
}

static enum attn_status accepts_fwd(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;

    if (attn_choose_tile(&fwd_tiles, request, why) == NULL || check_lengths(p, why) != ATTN_OK)
        return ATTN_UNSUPPORTED;
    return attn_check_grid(fwd_splits(request), p->q_heads, p->batch, why);
}

static enum attn_status launch_fwd(const struct attn_request *request, const struct attn_tensors *tensors,
                                   const struct attn_run *run, struct attn_message *why)
{
    const struct fused_v1_tile *tile = attn_choose_tile(&fwd_tiles, request, why);
    const int64_t splits = fwd_splits(request);

    if (tile == NULL)
        return ATTN_UNSUPPORTED;
    const struct fused_v1_params params = params_of(request, tensors, run->workspace, splits);
    return attn_launch_kernel(
        &(struct attn_launch){.name = "fused_v1 forward",
                              .kernel = (const void *)tile->kernels[request->problem->dtype == ATTN_BF16],
                              .blocks = params.heads_total * splits,
                              .threads = V1_FWD_WARPS * WARP,
                              .smem_bytes = tile->tile.smem_bytes},
        &params, run, why);
}

static const struct attn_direction fwd = {accepts_fwd, workspace_bytes_of, launch_fwd, &fwd_tiles};

/* ---- the backward ---- */

static enum attn_status accepts_bwd(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;

    if (attn_choose_tile(&bwd_tiles, request, why) == NULL || check_lengths(p, why) != ATTN_OK)
        return ATTN_UNSUPPORTED;
    /* The largest grid is that of the kernels around the main one, or that with a block for each block of keys. */
    const int64_t around = attn_tiles(padded_rows(p), V1_PASS_THREADS / (p->head_dim / 8)), blocks = key_blocks(p);
    return attn_check_grid(around > blocks ? around : blocks, p->q_heads, p->batch, why);
}

static enum attn_status launch_bwd(const struct attn_request *request, const struct attn_tensors *tensors,
                                   const struct attn_run *run, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const struct fused_v1_tile *tile = attn_choose_tile(&bwd_tiles, request, why);
    const int bf16 = p->dtype == ATTN_BF16;
    const int64_t splits = bwd_splits(request);

    if (tile == NULL)
        return ATTN_UNSUPPORTED;
    const struct fused_v1_params params = params_of(request, tensors, run->workspace, splits);
    const struct attn_launch preprocess = {.name = "preprocess",
                                           .kernel = (const void *)tile->preprocess[bf16],
                                           .blocks = pass_blocks(p),
                                           .threads = V1_PASS_THREADS,
                                           .is_pass = true};
    const struct attn_launch main_kernel = {.name = "main",
                                            .kernel = (const void *)tile->kernels[bf16],
                                            .blocks = p->batch * p->kv_heads * splits,
                                            .threads = V1_BWD_WARPS * WARP,
                                            .smem_bytes = tile->tile.smem_bytes,
                                            .is_pass = true};
    const struct attn_launch convert = {.name = "convert",
                                        .kernel = (const void *)tile->convert[bf16],
                                        .blocks = pass_blocks(p),
                                        .threads = V1_PASS_THREADS,
                                        .is_pass = true};
    enum attn_status status = attn_launch_kernel(&preprocess, &params, run, why);
    if (status == ATTN_OK)
        status = attn_launch_kernel(&main_kernel, &params, run, why);
    return status == ATTN_OK && splits > 1 ? attn_launch_kernel(&convert, &params, run, why) : status;
}

static const struct attn_direction bwd = {accepts_bwd, workspace_bytes_of, launch_bwd, &bwd_tiles};

/* ---- the implementation ---- */

static enum attn_status check_device(const struct attn_request *request, struct attn_message *why)
{
    const int sm = request->device->sm;

    if (sm < 80)
        return attn_fail(why, ATTN_UNSUPPORTED, "needs compute capability 8.0 or newer, this device has %d.%d", sm / 10,
                         sm % 10);
    return ATTN_OK;
}

/* The loops of the kernels: of each block of keys the steps from the first one that meets it. Tiles are not said: the
 * models of other kernels' traffic, which take them, have another order of loops. */
static void work(const struct attn_request *request, struct attn_work *work)
{
    const struct attn_problem *p = request->problem;
    const int64_t keys = V1_KEYS(p->head_dim), shift = p->kv_len - p->q_len;
    double steps = 0;

    for (int64_t key = 0; key < p->kv_len; key += keys) {
        const int64_t first = p->causal && key > 0 && key > shift ? (key - shift) / V1_ROWS : 0;
        steps += (double)(attn_tiles(p->q_len, V1_ROWS) - first);
    }
    *work = (struct attn_work){.flops = (request->mode == ATTN_FWD ? 2 : 5) * 2.0 * V1_ROWS * (double)keys *
                                        (double)p->head_dim * steps * (double)heads_of(p)};
}

static const struct attn_dispatch dispatch = {.check_device = check_device, .directions = {&fwd, &bwd}};
ATTN_DISPATCH_FUNCTIONS(dispatch)

const struct attn_impl attn_fused_v1 = {
    .abi = ATTN_ABI,
    .name = "fused_v1",
    .summary = "FlashAttention-1's algorithm on mma.sync, dense fp16 and bf16, head_dim 64 and 128, sm_80+",
    .platform = ATTN_CUDA,
    /* Blocks that share dQ add to it by atomics; with request.deterministic none share it. */
    .repeatable = {ATTN_O | ATTN_LSE, ATTN_DK | ATTN_DV},
    .repeatable_deterministic = {ATTN_O | ATTN_LSE, ATTN_DQ | ATTN_DK | ATTN_DV},
    .work = work,
    ATTN_DISPATCH_MEMBERS,
};
