/* The host side of fused_sm90's 8-bit forward: which tile a request gets, what is refused, the kernels' parameters, the
 * launch. */
#include "kernels/sm90/fwd/fp8/params.h"

#include "kernels/common/checks.h"
#include "kernels/common/launch.h"
#include "kernels/common/makespan.h"
#include "kernels/sm90/fused_sm90.h"

enum {
    MAX_WAVES = 16, /* with more work tiles for each multiprocessor their order leaves little to gain */
    COUNTER_BYTES = 256
};

static const int64_t MAX_LEN = INT32_MAX - 65536; /* column and row numbers of whole tiles stay within an int */
static const float LOG2_E = 1.4426950408889634f;

static int64_t row_tiles_of(const struct attn_problem *p, const struct fused_sm90_fp8_tile *tile)
{
    return attn_tiles(p->q_len, tile->block_m);
}

/* Keys that a work tile goes through, in whole blocks. */
static double keys_of(const struct attn_problem *p, const struct fused_sm90_fp8_tile *tile, int64_t row_tile)
{
    const int64_t end = (row_tile + 1) * tile->block_m, rows = end < p->q_len ? end : p->q_len;
    const int64_t seen = p->causal ? rows + p->kv_len - p->q_len : p->kv_len;

    return (double)(seen <= 0 ? 0 : attn_round_up(seen, tile->block_n));
}

/* The time until the last multiprocessor has finished, in rows times keys times cost: the longest tiles are taken
 * first. With many tiles it is the average of the multiprocessors. */
static double estimated_time(const struct attn_request *request, const struct attn_tile *common)
{
    const struct fused_sm90_fp8_tile *tile = (const void *)common;
    const struct attn_problem *p = request->problem;
    const int64_t row_tiles = row_tiles_of(p, tile), heads = p->batch * p->q_heads;
    const int64_t places = request->device->multiprocessors;
    const double each = (double)row_tiles * (double)heads / (double)places;
    double keys = 0;

    if (each <= MAX_WAVES) {
        struct attn_makespan span = attn_makespan_begin(places);
        for (int64_t row_tile = row_tiles - 1; row_tile >= 0; --row_tile)
            attn_makespan_add(&span, heads, keys_of(p, tile, row_tile) + tile->start);
        keys = attn_makespan_end(&span);
    } else {
        keys = each * ((keys_of(p, tile, 0) + keys_of(p, tile, row_tiles - 1)) / 2 + tile->start);
    }
    return (double)tile->block_m * tile->cost * keys;
}

static const void *const lists[] = {fused_sm90_fp8_d128, fused_sm90_fp8_d64, NULL};
const struct attn_tile_table fused_sm90_fp8_tiles = {
    .direction = "8-bit forward", .lists = lists, .row_bytes = sizeof *fused_sm90_fp8_d128, .time = estimated_time};

/* Scales for blocks of rows. */
static int64_t blocks_of(const struct attn_problem *p, int64_t len) { return attn_tiles(len, p->scale_block); }

static void set_scales(struct fused_sm90_fp8_params *params, const struct attn_problem *p, const struct attn_tensors *t,
                       const struct fused_sm90_fp8_tile *tile)
{
    params->scales_of_q = t->scale_q;
    params->scales_of_k = t->scale_k;
    params->scales_of_v = t->scale_v;
    params->scale_rows = params->scale_blocks = divisor_of(1);
    if (p->quant_scale == ATTN_SCALE_TENSOR) {
        params->scale_q = params->scale_kv = (struct sm90_fp8_scales){0, 0};
    } else if (p->quant_scale == ATTN_SCALE_HEAD) {
        params->scale_q = params->scale_kv = (struct sm90_fp8_scales){(int)p->kv_heads, 1};
    } else {
        const int64_t q_blocks = blocks_of(p, p->q_len), kv_blocks = blocks_of(p, p->kv_len);
        params->scale_q = (struct sm90_fp8_scales){(int)(p->q_heads * q_blocks), (int)q_blocks};
        params->scale_kv = (struct sm90_fp8_scales){(int)(p->kv_heads * kv_blocks), (int)kv_blocks};
        params->scale_rows = divisor_of(p->scale_block);
        params->scale_blocks = divisor_of(p->scale_block / tile->block_n);
    }
}

static enum attn_status set_params(struct fused_sm90_fp8_params *params, const struct attn_request *request,
                                   const struct attn_tensors *t, const struct fused_sm90_fp8_tile *tile,
                                   const struct attn_run *run, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    struct fused_sm90_fwd_params *dense = &params->dense;
    struct attn_problem outputs = *p;
    enum attn_status status = tensor_map_encode(&dense->q, "q", &t->q, p, p->q_heads, p->q_len, tile->block_m, why);

    outputs.dtype = p->out_dtype;
    if (status == ATTN_OK)
        status = tensor_map_encode(&dense->k, "k", &t->k, p, p->kv_heads, p->kv_len, tile->block_n, why);
    if (status == ATTN_OK)
        status = tensor_map_encode(&dense->v, "v", &t->v, p, p->kv_heads, p->kv_len, tile->block_n, why);
    if (status == ATTN_OK)
        status = tensor_map_encode(&dense->o, "o", &t->o, &outputs, p->q_heads, p->q_len, FUSED_SM90_FWD_O_ROWS, why);
    dense->lse = attn_wanted_outputs(request) & ATTN_LSE ? t->lse : NULL;
    fused_sm90_fwd_set_shape(dense, request, tile->block_m);
    dense->scale_log2 = p->scale * LOG2_E;
    dense->tile_counter = run->workspace;
    set_scales(params, p, t, tile);
    params->has_bf16_output = p->out_dtype == ATTN_BF16;
    return status;
}

/* Scales of blocks are for whole tiles, and their numbers are ints. */
static enum attn_status check_scales(const struct attn_problem *p, const struct fused_sm90_fp8_tile *tile,
                                     struct attn_message *why)
{
    if (p->quant_scale == ATTN_SCALE_NONE)
        return attn_fail(why, ATTN_UNSUPPORTED, "takes no 8-bit inputs without scales");
    if (p->quant_scale != ATTN_SCALE_BLOCK)
        return ATTN_OK;
    if (p->scale_block < 1 || p->scale_block % tile->block_n != 0 || p->scale_block > INT32_MAX)
        return attn_fail(why, ATTN_UNSUPPORTED, "scales of blocks of %lld rows: takes multiples of %d",
                         (long long)p->scale_block, tile->block_n);
    if (blocks_of(p, p->q_len) > INT32_MAX / (p->batch * p->q_heads) ||
        blocks_of(p, p->kv_len) > INT32_MAX / (p->batch * p->kv_heads))
        return attn_fail(why, ATTN_UNSUPPORTED, "more than 2147483647 scales");
    return ATTN_OK;
}

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const struct fused_sm90_fp8_tile *tile = attn_choose_tile(&fused_sm90_fp8_tiles, request, why);

    if (!tile)
        return ATTN_UNSUPPORTED;
    if (p->out_dtype != ATTN_FP16 && p->out_dtype != ATTN_BF16)
        return attn_fail(why, ATTN_UNSUPPORTED, "writes O in fp16 and bf16 only");
    if (!(attn_wanted_outputs(request) & ATTN_O))
        return attn_fail(why, ATTN_UNSUPPORTED, "takes no request without O");
    if (p->q_len > MAX_LEN || p->kv_len > MAX_LEN)
        return attn_fail(why, ATTN_UNSUPPORTED, "the 8-bit forward takes lengths up to %lld", (long long)MAX_LEN);
    enum attn_status status = check_scales(p, tile, why);
    const int64_t row_tiles = row_tiles_of(p, tile);
    if (status == ATTN_OK)
        status = attn_check_grid(row_tiles, p->q_heads, p->batch, why);
    /* The counter may run past the last tile by the number of blocks. */
    if (status == ATTN_OK && row_tiles * p->q_heads * p->batch > INT32_MAX - request->device->multiprocessors)
        return attn_fail(why, ATTN_UNSUPPORTED,
                         "%lld tiles and as many more as there are multiprocessors are over 2^31 - 1",
                         (long long)(row_tiles * p->q_heads * p->batch));
    return status;
}

static size_t workspace_bytes(const struct attn_request *request)
{
    (void)request;
    return COUNTER_BYTES;
}

static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const struct fused_sm90_fp8_tile *tile = attn_choose_tile(&fused_sm90_fp8_tiles, request, why);
    struct fused_sm90_fp8_params params = {.dense = {.tiles = 0}};

    if (!tile)
        return ATTN_UNSUPPORTED;
    const enum attn_status status = set_params(&params, request, tensors, tile, run, why);
    if (status != ATTN_OK)
        return status;
    const int places = request->device->multiprocessors, tiles = params.dense.tiles;
    cudaError_t error = cudaSuccess;
    if (tiles <= places)
        params.dense.tile_counter = NULL;
    else
        error = cudaMemsetAsync(params.dense.tile_counter, 0, sizeof *params.dense.tile_counter, run->stream);
    if (error != cudaSuccess)
        return attn_cuda_failure("cudaMemsetAsync", error, why);
    const bool has_blocks = p->quant_scale == ATTN_SCALE_BLOCK;
    return attn_launch_kernel(
        &(struct attn_launch){.name = "main",
                              .kernel = (const void *)tile->kernels[p->dtype == ATTN_E5M2][has_blocks][request->fast],
                              .blocks = tiles < places ? tiles : places,
                              .threads = tile->threads,
                              .smem_bytes = tile->tile.smem_bytes},
        &params, run, why);
}

const struct attn_direction fused_sm90_fp8 = {accepts, workspace_bytes, launch, &fused_sm90_fp8_tiles};
