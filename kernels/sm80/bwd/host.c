/* The host side of fused_sm80's backward: what it refuses, its workspace, the kernels' parameters, the launches. */
#include "kernels/sm80/fused_sm80.h"
#include "kernels/sm80/bwd/params.h"

#include <math.h>

#include "kernels/common/checks.h"
#include "kernels/common/launch.h"
#include "kernels/sm80/family.h"

static const float LOG2_E = 1.44269504088896340736f;

/* In the kernels SparseDropout P has the power of two of 1 / (1 - dropout) as a factor, 4096 with this, which 16 bits
 * have to hold. */
static const float MOST_DROPOUT = 1.0f - 1.0f / 4096;

/* Which of a row's main kernels serve a request. */
static enum sm80_kind kind_of(const struct fused_sm80_bwd_tile *row, const struct attn_request *request)
{
    enum sm80_kind kind = sm80_kind_of(request);

    if (kind == SM80_SPARSE_DROPOUT &&
        (row->tile.smem_bytes + SM80_BWD_DROPOUT_BYTES > request->device->smem_per_block_bytes ||
         request->problem->dropout > MOST_DROPOUT))
        kind = SM80_FAMILY;
    if (kind == SM80_DENSE || kind == SM80_SCORE)
        return kind;
    return row->main[kind][0] == NULL || row->tile.head_dim != request->problem->head_dim ? SM80_FAMILY : kind;
}

/* These, [bf16]; the first is NULL where it has none. */
static const fused_sm80_bwd_kernel *kernels_of(const struct fused_sm80_bwd_tile *row,
                                               const struct attn_request *request)
{
    const enum sm80_kind kind = kind_of(row, request);

    return kind == SM80_DENSE && request->deterministic ? row->dense_no_dq : row->main[kind];
}

static struct family_tiling tiling_of(const struct attn_request *request, const struct fused_sm80_bwd_tile *tile)
{
    return sm80_tiling_of(request->problem, kind_of(tile, request), true, tile->kv_tile, tile->q_tile);
}

/* As of the rows of the forward (fwd/host.c). */
static bool is_compiled(const struct fused_sm80_bwd_tile *row, const struct attn_request *request)
{
    return sm80_has_v(request->problem, row->tile.head_dim, row->v_head_dim) && kernels_of(row, request)[0] != NULL;
}

static bool takes(const struct attn_request *request, const struct attn_tile *tile)
{
    int narrowest = INT32_MAX;

    for (const struct attn_tile *row = NULL; (row = attn_next_tile(&fused_sm80_bwd_tiles, row)) != NULL;)
        if (is_compiled((const struct fused_sm80_bwd_tile *)row, request) &&
            row->head_dim >= request->problem->head_dim && row->head_dim < narrowest)
            narrowest = row->head_dim;
    return tile->head_dim == narrowest && is_compiled((const struct fused_sm80_bwd_tile *)tile, request);
}

/* Whether the kernels before and after the main one are those of dense attention: the lengths are fixed, a row has no
 * columns that pad, and all rows have as many. */
static bool has_dense_passes(const struct attn_problem *p)
{
    return p->lengths == ATTN_FIXED && (p->head_dim == 64 || p->head_dim == 128) && attn_v_head_dim(p) == p->head_dim;
}

/* The kernel of the deterministic dQ: one of them holds every head_dim, and every V that a tile has. */
static const struct fused_sm80_bwd_dq_row *dq_row(const struct attn_request *request)
{
    const struct attn_problem *p = request->problem;
    const struct fused_sm80_bwd_dq_row *row = fused_sm80_bwd_dq;

    while (row[1].head_dim != 0 && !(row->head_dim >= p->head_dim && sm80_has_v(p, row->head_dim, row->v_head_dim)))
        row++;
    return row;
}

/* 0 dense attention, 1 the family, 2 with ALiBi or a bias. */
static int dq_kind_of(const struct attn_request *request)
{
    const enum sm80_kind kind = sm80_kind_of(request);

    return kind == SM80_DENSE ? 0 : kind == SM80_SCORE ? 2 : 1;
}

static const void *const lists[] = {fused_sm80_bwd_d32,     fused_sm80_bwd_d64,      fused_sm80_bwd_d96,
                                    fused_sm80_bwd_d128,    fused_sm80_bwd_d192,     fused_sm80_bwd_d256,
                                    fused_sm80_bwd_d64x128, fused_sm80_bwd_d192x128, NULL};
const struct attn_tile_table fused_sm80_bwd_tiles = {"backward", lists, sizeof *fused_sm80_bwd_d64, NULL, takes};

/* Rows of a head in stats and dq_sum, and heads that have so many. */
static int64_t padded_rows(const struct attn_problem *p)
{
    return p->lengths == ATTN_PACKED ? family_row_blocks(p, FAMILY_ROW_BLOCK) * FAMILY_ROW_BLOCK
                                     : attn_round_up(p->q_len, SM80_BWD_ROW_STEP);
}

static int64_t padded_heads(const struct attn_problem *p)
{
    return p->lengths == ATTN_PACKED ? p->q_heads : p->batch * p->q_heads;
}

/* Thread blocks of the preprocess kernel for one head. */
static int64_t preprocess_head_blocks(const struct attn_request *request)
{
    const struct attn_problem *p = request->problem;

    if (!has_dense_passes(p))
        return padded_rows(p) / FAMILY_ROW_BLOCK;
    return padded_rows(p) / (SM80_BWD_PREPROCESS_THREADS / (p->head_dim / 8));
}

/* Rows of dBias, of all its sequences and heads; 0 where it is not asked for. */
static int64_t dbias_rows(const struct attn_request *request)
{
    const struct attn_problem *p = request->problem;
    const bool is_wanted = p->bias_heads > 0 && (attn_wanted_outputs(request) & ATTN_DBIAS) != 0;

    return is_wanted ? p->bias_batch * p->bias_heads * p->q_len : 0;
}

/* The sums of dBias, which are ahead of the statistics. */
static size_t dbias_bytes(const struct attn_request *request)
{
    return (size_t)attn_round_up(dbias_rows(request) * request->problem->kv_len * (int64_t)sizeof(float), 256);
}

static struct fused_sm80_dbias dbias_of(const struct attn_request *request, const struct attn_tensors *t, float *sums)
{
    const struct attn_problem *p = request->problem;

    if (dbias_rows(request) == 0)
        return (struct fused_sm80_dbias){.sums = NULL};
    return (struct fused_sm80_dbias){.sums = sums,
                                     .sequence_elements = p->bias_batch > 1 ? p->bias_heads * p->q_len * p->kv_len : 0,
                                     .head_elements = p->bias_heads > 1 ? p->q_len * p->kv_len : 0,
                                     .heads = p->bias_heads,
                                     .to = t->dbias};
}

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const size_t limit = request->device->smem_per_block_bytes;

    if (sm80_check_v(request, why) != ATTN_OK)
        return ATTN_UNSUPPORTED;
    const size_t dq_bytes = dq_row(request)->smem_bytes;
    const struct fused_sm80_bwd_tile *tile = attn_choose_tile(&fused_sm80_bwd_tiles, request, why);
    if (tile == NULL || sm80_check_family(request, why) != ATTN_OK)
        return ATTN_UNSUPPORTED;
    if (request->deterministic && dq_bytes > limit)
        return attn_fail(why, ATTN_UNSUPPORTED,
                         "the deterministic backward needs %zu bytes of shared memory, a block has at most %zu",
                         dq_bytes, limit);
    if (dbias_rows(request) > 0 && p->softcap > 0.0f) /* the main kernel has dS times the softcap's derivative alone */
        return attn_fail(why, ATTN_UNSUPPORTED, "computes no dBias beside a softcap");
    if (dbias_rows(request) > 0 && request->deterministic && p->bias_batch * p->bias_heads < p->batch * p->q_heads)
        return attn_fail(why, ATTN_UNSUPPORTED,
                         "the deterministic backward computes no dBias that sequences or heads share");
    if (dbias_rows(request) > INT32_MAX)
        return attn_fail(why, ATTN_UNSUPPORTED, "dBias has more than 2147483647 rows");
    const struct family_tiling tiling = tiling_of(request, tile);
    const enum attn_status status = family_check_grid(p, &tiling, p->kv_heads, why);
    if (status != ATTN_OK)
        return status;
    /* Of the grids over queries that of the preprocess kernel is the largest, or that of 32 queries a block. */
    const int64_t blocks = preprocess_head_blocks(request), least = padded_rows(p) / tile->q_tile;
    return attn_check_grid(blocks > least ? blocks : least, padded_heads(p), 1, why);
}

/* One float for each padded row; a multiple of 256 bytes because padded_rows is one of 64. */
static size_t row_bytes(const struct attn_problem *p)
{
    return (size_t)(padded_heads(p) * padded_rows(p)) * sizeof(float);
}

/* Blocks of the main kernel that the device runs at the same time. */
static int64_t running_blocks(const struct attn_request *request, const struct fused_sm80_bwd_tile *tile)
{
    return (int64_t)request->device->multiprocessors * tile->tile.blocks_per_sm;
}

/* KV heads whose blocks run at the same time: so few that Q, dO in 16 bits and dQ in fp32 stay in the L2, with a block
 * mask in half of it (docs/kernels/sm80.md); where blocks differ in length, at least three waves of blocks, so
 * that the short ones fill the gaps at the end. */
static int32_t section_heads(const struct attn_request *request, const struct fused_sm80_bwd_tile *tile)
{
    const struct attn_problem *p = request->problem;
    const int64_t kv_tiles = attn_tiles(p->kv_len, tile->kv_tile), all_heads = p->batch * p->kv_heads;
    const int64_t wave_heads = 3 * running_blocks(request, tile) / kv_tiles;
    const int64_t bytes = (int64_t)request->device->l2_bytes / (p->mask_block != 0 ? 2 : 1);
    int64_t heads = bytes / (p->q_heads / p->kv_heads * p->q_len * (p->head_dim * 6 + attn_v_head_dim(p) * 2));

    if (p->causal && heads < wave_heads)
        heads = wave_heads;
    if (heads > all_heads)
        heads = all_heads;
    return (int32_t)(heads < 1 ? 1 : heads);
}

/* Sections of kv heads, in the order of the main kernel's blocks. */
static int64_t sections_of(const struct attn_request *request, const struct fused_sm80_bwd_tile *tile,
                           const struct family_tiling *tiling)
{
    const struct attn_problem *p = request->problem;
    const int64_t section = section_heads(request, tile);

    return tiling->has_lists ? family_list_sections(request, tiling, section, tile->tile.blocks_per_sm)
                             : attn_tiles(p->batch * p->kv_heads, section);
}

/* Pieces of the passes before and after the main kernel: of its sparse kernels. */
static struct fused_sm80_bwd_pieces pieces_of(const struct attn_request *request,
                                              const struct fused_sm80_bwd_tile *tile,
                                              const struct family_tiling *tiling)
{
    enum { PIECE_BYTES = 512 << 10 }; /* of O and dO, or of dq_sum */
    const struct attn_problem *p = request->problem;
    const bool has_pieces =
        tile->has_pieces && has_dense_passes(p) && kind_of(tile, request) == SM80_SPARSE && !request->deterministic;
    const struct fused_sm80_bwd_pieces_shape shape = {
        .sections = has_pieces ? sections_of(request, tile, tiling) : 0,
        .section_heads = section_heads(request, tile),
        .heads = p->batch * p->kv_heads,
        .head_rows = p->q_heads / p->kv_heads * padded_rows(p),
        .head_blocks = attn_tiles(p->kv_len, tile->kv_tile),
        .running_blocks = running_blocks(request, tile),
        .piece_row_blocks = PIECE_BYTES / (SM80_BWD_ROW_STEP * (int64_t)sizeof(float) * p->head_dim),
    };

    return fused_sm80_bwd_pieces_of(&shape);
}

/* Packed sequences have one list of work tiles of all heads, whose order is not that of sections. */
static struct fused_sm80_bwd_zeros zeros_of(const struct attn_request *request, const struct fused_sm80_bwd_tile *tile,
                                            const struct family_tiling *tiling,
                                            const struct fused_sm80_bwd_pieces *pieces)
{
    const struct attn_problem *p = request->problem;
    const bool is_packed = p->lengths == ATTN_PACKED;
    const int64_t section = section_heads(request, tile), heads = (is_packed ? 1 : p->batch) * p->kv_heads;
    const struct fused_sm80_bwd_zeros_shape shape = {
        .sections = sections_of(request, tile, tiling),
        .section_heads = section,
        .heads = heads,
        .head_rows = p->q_heads / p->kv_heads * padded_rows(p),
        .section_blocks = section * attn_tiles(p->kv_len, tile->kv_tile),
        .running_blocks = running_blocks(request, tile),
        .by_blocks = !is_packed && kind_of(tile, request) != SM80_FAMILY && kind_of(tile, request) != SM80_SCORE &&
                     pieces->sections == 0,
    };

    return request->deterministic ? (struct fused_sm80_bwd_zeros){0} : fused_sm80_bwd_zeros_of(&shape);
}

/* Counters of sections. */
static int32_t counters_of(const struct fused_sm80_bwd_zeros *zeros, const struct fused_sm80_bwd_pieces *pieces)
{
    return zeros->sections + 2 * pieces->sections;
}

/* Of these, which are behind dq_sum. */
static size_t counter_bytes(int32_t counters) { return (size_t)attn_round_up(counters * (int64_t)sizeof(int), 256); }

static size_t workspace_bytes(const struct attn_request *request)
{
    const struct attn_problem *p = request->problem;
    struct attn_message why;
    const struct fused_sm80_bwd_tile *tile = attn_choose_tile(&fused_sm80_bwd_tiles, request, &why);

    if (tile == NULL)
        return 0;
    const struct family_tiling tiling = tiling_of(request, tile);
    const struct fused_sm80_bwd_pieces pieces = pieces_of(request, tile, &tiling);
    const struct fused_sm80_bwd_zeros zeros = zeros_of(request, tile, &tiling, &pieces);
    const size_t stats = dbias_bytes(request) + 2 * row_bytes(p) + family_schedule_bytes(p, &tiling);
    if (request->deterministic)
        return stats;
    return stats + row_bytes(p) * (size_t)tile->tile.head_dim + counter_bytes(counters_of(&zeros, &pieces));
}

static struct fused_sm80_bwd_params params_of(const struct attn_request *request, const struct attn_tensors *t,
                                              void *workspace, const struct fused_sm80_bwd_tile *tile,
                                              const struct family_tiling *tiling)
{
    const struct attn_problem *p = request->problem;
    float *dbias_sums = (void *)((char *)workspace + family_schedule_bytes(p, tiling));
    float *stats = (void *)((char *)dbias_sums + dbias_bytes(request));
    struct fused_sm80_bwd_params params = {
        .q = t->q,
        .k = t->k,
        .v = t->v,
        .o = t->o,
        .dout = t->dout,
        .dq = t->dq,
        .dk = t->dk,
        .dv = t->dv,
        .lse = t->lse,
        .stats = stats,
        .dq_sum = request->deterministic ? NULL : stats + 2 * row_bytes(p) / sizeof(float),
        .q_rows = padded_rows(p),
        .shift = p->kv_len - p->q_len,
        .kv_head_count = p->batch * p->kv_heads,
        .q_len = (int32_t)p->q_len,
        .kv_len = (int32_t)p->kv_len,
        .q_heads = (int32_t)p->q_heads,
        .kv_heads = (int32_t)p->kv_heads,
        .group = (int32_t)(p->q_heads / p->kv_heads),
        .q_tile = tile->q_tile,
        .q_tiles = (int32_t)attn_tiles(p->q_len, tile->q_tile),
        .kv_tiles = (int32_t)attn_tiles(p->kv_len, tile->kv_tile),
        .scale = p->scale,
        .scale_log2 = (p->softcap > 0.0f ? p->softcap : p->scale) * LOG2_E,
        .causal = p->causal,
        .padded_head_dim = tile->tile.head_dim,
        .family = sm80_family_of(request, t, workspace, tiling),
        .score = sm80_score_of(request, t),
        .dsink = t->dsink,
        .dbias = dbias_of(request, t, dbias_sums),
    };

    params.ds_scale = p->scale;
    if (kernels_of(tile, request) == tile->main[SM80_SPARSE_DROPOUT]) { /* P has the power of two of the factor */
        const int exponent = ilogbf(params.family.dropout.keep_factor);
        params.lse2_less = (float)exponent;
        params.family.dropout.keep_factor = ldexpf(params.family.dropout.keep_factor, -exponent);
        params.ds_scale *= params.family.dropout.keep_factor;
    }
    params.section_heads = section_heads(request, tile);
    params.pieces = pieces_of(request, tile, tiling);
    params.converted_rows = (int64_t)params.pieces.converted * params.section_heads * params.group * params.q_rows;
    params.zeros = zeros_of(request, tile, tiling, &params.pieces);
    params.counters = counters_of(&params.zeros, &params.pieces);
    if (params.counters > 0) {
        params.zeroed = (int *)(void *)((char *)params.dq_sum + row_bytes(p) * (size_t)tile->tile.head_dim);
        params.stats_done = params.zeroed + params.zeros.sections;
        params.dq_done = params.stats_done + params.pieces.sections;
    }
    /* Packed sequences have a list instead, and tiles of the longest one times all of them may be over 31 bits. */
    const int64_t section_blocks = p->lengths == ATTN_PACKED ? 1 : (int64_t)params.section_heads * params.kv_tiles;
    params.order = (struct fused_sm80_bwd_order){divisor_of(section_blocks), divisor_of(params.section_heads),
                                                 divisor_of((params.kv_head_count - 1) % params.section_heads + 1),
                                                 divisor_of(p->kv_heads)};
    return params;
}

/* One of the kernels of dBias, where that is asked for. */
static enum attn_status launch_dbias(const struct attn_request *request, const struct fused_sm80_bwd_params *params,
                                     const char *name, fused_sm80_bwd_kernel kernel, const struct attn_run *run,
                                     struct attn_message *why)
{
    const struct attn_launch dbias = {.name = name,
                                      .kernel = (const void *)kernel,
                                      .blocks = dbias_rows(request),
                                      .threads = SM80_BWD_DBIAS_THREADS,
                                      .is_pass = true};

    return dbias.blocks > 0 ? attn_launch_kernel(&dbias, params, run, why) : ATTN_OK;
}

/* The kernel of dSink, where that is asked for. */
static enum attn_status launch_dsink(const struct attn_request *request, const struct fused_sm80_bwd_params *params,
                                     const struct attn_run *run, struct attn_message *why)
{
    const struct attn_launch dsink = {.name = "dsink",
                                      .kernel = (const void *)fused_sm80_bwd_dsink,
                                      .blocks = request->problem->q_heads,
                                      .threads = SM80_BWD_DSINK_THREADS,
                                      .is_pass = true};
    const bool is_wanted = request->problem->has_sink && (attn_wanted_outputs(request) & ATTN_DSINK) != 0;

    return is_wanted ? attn_launch_kernel(&dsink, params, run, why) : ATTN_OK;
}

static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const struct fused_sm80_bwd_tile *tile = attn_choose_tile(&fused_sm80_bwd_tiles, request, why);
    const struct fused_sm80_bwd_dq_row *dq_kernel = dq_row(request);
    const int bf16 = p->dtype == ATTN_BF16;
    const bool deterministic = request->deterministic, is_family = !has_dense_passes(p);

    if (tile == NULL)
        return ATTN_UNSUPPORTED;
    const struct family_tiling tiling = tiling_of(request, tile);
    const struct fused_sm80_bwd_params params = params_of(request, tensors, run->workspace, tile, &tiling);
    const int64_t heads = padded_heads(p);
    const bool has_pieces = params.pieces.sections > 0;
    const int64_t preprocessed = (int64_t)params.pieces.preprocessed * params.section_heads * params.group;
    struct fused_sm80_bwd_params row_params = params; /* of preprocess, which reads O and dO */
    row_params.family.head_dim = (int32_t)attn_v_head_dim(p);
    const struct attn_launch preprocess = {
        .name = "preprocess",
        .kernel = (const void *)(is_family ? fused_sm80_bwd_preprocess_rows[bf16]
                                           : fused_sm80_bwd_preprocess[bf16][p->head_dim == 128]),
        .blocks = preprocess_head_blocks(request) * (has_pieces ? preprocessed : heads),
        .threads = SM80_BWD_PREPROCESS_THREADS,
        .is_pass = true};
    const struct attn_launch main_kernel = {.name = deterministic ? "dk_dv" : "main",
                                            .kernel = (const void *)kernels_of(tile, request)[bf16],
                                            .blocks = has_pieces
                                                          ? fused_sm80_bwd_launched_blocks(&params.pieces)
                                                          : family_work_tiles(p, true, tile->kv_tile) * p->kv_heads,
                                            .threads = tile->threads,
                                            .smem_bytes = tile->tile.smem_bytes,
                                            .is_pass = true};
    const struct attn_launch dq = {.name = "dq",
                                   .kernel = (const void *)dq_kernel->kernels[dq_kind_of(request)][bf16],
                                   .blocks = params.q_rows / SM80_BWD_DQ_TILE * heads,
                                   .threads = SM80_BWD_DQ_THREADS,
                                   .smem_bytes = dq_kernel->smem_bytes,
                                   .is_pass = true};
    const struct attn_launch convert = {.name = "convert",
                                        .kernel = (const void *)tile->convert[is_family][bf16],
                                        .blocks = (is_family ? params.q_rows / tile->q_tile : params.q_tiles) * heads -
                                                  params.converted_rows / tile->q_tile,
                                        .threads = tile->threads,
                                        .is_pass = true};
    enum attn_status status =
        family_launch_schedule(request, tensors, &tiling, params.section_heads, tile->tile.blocks_per_sm, run, why);
    if (status == ATTN_OK)
        status = launch_dbias(request, &params, "dbias_zeros", fused_sm80_bwd_dbias_zeros, run, why);
    if (status == ATTN_OK)
        status = attn_launch_kernel(&preprocess, &row_params, run, why);
    if (status == ATTN_OK)
        status = attn_launch_kernel(&main_kernel, &params, run, why);
    if (status == ATTN_OK)
        status = launch_dbias(request, &params, "dbias", fused_sm80_bwd_dbias[p->bias_dtype == ATTN_FP32 ? 2 : bf16],
                              run, why);
    if (status == ATTN_OK)
        status = launch_dsink(request, &params, run, why);
    if (status != ATTN_OK || !deterministic)
        return status == ATTN_OK ? attn_launch_kernel(&convert, &params, run, why) : status;
    struct fused_sm80_bwd_params dq_params = params; /* its kernel has all of the factor, whatever the main one has */
    dq_params.family = sm80_family_of(request, tensors, run->workspace, &tiling);
    return attn_launch_kernel(&dq, &dq_params, run, why);
}

const struct attn_direction fused_sm80_bwd = {accepts, workspace_bytes, launch, &fused_sm80_bwd_tiles};
