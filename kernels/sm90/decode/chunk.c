/* The host side of chunks of a prefill, see chunk.h. */
#include "kernels/sm90/decode/chunk.h"

#include "kernels/common/checks.h"
#include "kernels/common/launch.h"
#include "kernels/sm90/decode/params.h"
#include "kernels/sm90/fused_sm90.h"

enum { ALIGNMENT = 256 /* bytes; of the parts of the workspace */ };

/* What 64 keys of a tile take, in cycles of an H200: of the decode kernel, and of the forward of packed sequences. Its
 * tiles have FWD_ROWS rows, and are faster where half of them are not there. The other kernels around it take
 * START_CYCLES. Measured at head dim 128. */
enum { DECODE_CYCLES_D128 = 1800, DECODE_CYCLES_D64 = 950 };
enum { FWD_CYCLES_D128 = 1400, HALF_FWD_CYCLES_D128 = 1100, FWD_CYCLES_D64 = 1900, HALF_FWD_CYCLES_D64 = 1400 };
enum { FWD_ROWS_D128 = 128, FWD_ROWS_D64 = 256, START_CYCLES = 15000 };

static const int64_t MAX_KEYS = TENSOR_MAP_MOST_ROWS; /* of all sequences, and between them */

/* The forward's request, which points to its problem. */
struct chunk {
    struct attn_problem problem;
    struct attn_request request;
};

/* pitch: keys from one sequence to the next. Half of the forward's sequences are what lies between. */
static void fill_chunk(struct chunk *chunk, const struct attn_request *request, int64_t pitch)
{
    const struct attn_problem *p = request->problem;

    chunk->problem = *p;
    chunk->problem.lengths = ATTN_PACKED;
    chunk->problem.batch = 2 * p->batch;
    chunk->problem.total_q = p->batch * p->q_len;
    chunk->problem.total_k = (p->batch - 1) * pitch + p->kv_len;
    chunk->request = *request;
    chunk->request.problem = &chunk->problem;
    chunk->request.variant = NULL;
}

/* The parts of the workspace; lse: 0 bytes where the forward's LSE has the order of a cache. */
struct chunk_workspace {
    size_t cu_k, lse, forward;
};

static struct chunk_workspace workspace_of(const struct attn_problem *p)
{
    const int64_t lengths = attn_round_up((2 * p->batch + 1) * (int64_t)sizeof(int32_t), ALIGNMENT);
    const int64_t lse = p->batch == 1 ? 0 : p->batch * p->q_heads * p->q_len * (int64_t)sizeof(float);
    struct chunk_workspace space = {(size_t)lengths, (size_t)(2 * lengths), 0};

    space.forward = space.lse + (size_t)attn_round_up(lse, ALIGNMENT);
    return space;
}

bool sm90_chunk_can(const struct attn_request *request)
{
    const struct attn_problem *p = request->problem;
    struct attn_message why;
    struct chunk chunk;

    if ((p->head_dim != 64 && p->head_dim != 128) || p->cache_dtype != ATTN_FP32 || p->page_size != 0 ||
        p->total_q != 0 || request->invariant || request->splits != 0 || (p->layout != ATTN_BSHD && p->batch > 1) ||
        p->batch > INT32_MAX / 4 || p->kv_len > MAX_KEYS / p->batch || p->q_len > INT32_MAX / 2 / p->batch)
        return false;
    fill_chunk(&chunk, request, p->kv_len);
    return fused_sm90_fwd.accepts(&chunk.request, &why) == ATTN_OK;
}

/* Tiles of rows and the keys of each, one after the other on as many places, rounded up to whole waves where keys are
 * not split. */
bool sm90_chunk_pays(const struct attn_request *request)
{
    const struct attn_problem *p = request->problem;
    const int64_t places = request->device->multiprocessors, group = p->q_heads / p->kv_heads;
    const bool is_d64 = p->head_dim == 64;
    const int64_t rows = is_d64 ? FWD_ROWS_D64 : FWD_ROWS_D128;
    const int64_t row_tiles = attn_tiles(p->q_len, rows) * p->batch * p->q_heads;
    const int64_t items = attn_tiles(group * p->q_len, SM90_DECODE_ROWS) * p->batch * p->kv_heads;
    const double steps = (double)attn_tiles(p->kv_len, 64);
    const int fwd_cycles = p->q_len <= rows / 2 ? (is_d64 ? HALF_FWD_CYCLES_D64 : HALF_FWD_CYCLES_D128)
                                                : (is_d64 ? FWD_CYCLES_D64 : FWD_CYCLES_D128);
    const double forward = START_CYCLES + (double)attn_tiles(row_tiles, places) * steps * fwd_cycles;

    return p->q_len > 16 &&
           forward < (double)items / (double)places * steps * (is_d64 ? DECODE_CYCLES_D64 : DECODE_CYCLES_D128);
}

size_t sm90_chunk_workspace_bytes(const struct attn_request *request)
{
    struct chunk chunk;

    fill_chunk(&chunk, request, request->problem->kv_len);
    return workspace_of(request->problem).forward + fused_sm90_fwd.workspace_bytes(&chunk.request);
}

bool sm90_chunk_fits(const struct attn_request *request, const struct attn_tensors *t)
{
    const struct attn_problem *p = request->problem;

    if (p->batch == 1)
        return true;
    const int64_t pitch = t->k.stride_row > 0 ? t->k.stride_batch / t->k.stride_row : 0;
    return t->q.stride_batch == p->q_len * t->q.stride_row && t->o.stride_batch == p->q_len * t->o.stride_row &&
           t->k.stride_batch == pitch * t->k.stride_row && t->v.stride_batch == pitch * t->v.stride_row &&
           pitch >= p->kv_len && pitch <= MAX_KEYS / p->batch;
}

enum attn_status sm90_chunk_launch(const struct attn_request *request, const struct attn_tensors *t,
                                   const struct attn_run *run, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const int64_t pitch = p->batch == 1 ? p->kv_len : t->k.stride_batch / t->k.stride_row;
    const struct chunk_workspace space = workspace_of(p);
    char *const workspace = run->workspace;
    const struct sm90_chunk_ranges ranges = {.seqused_k = t->seqused_k,
                                             .cu_q = (int32_t *)(void *)workspace,
                                             .cu_k = (int32_t *)(void *)(workspace + space.cu_k),
                                             .batch = (int32_t)p->batch,
                                             .q_len = (int32_t)p->q_len,
                                             .kv_len = (int32_t)p->kv_len,
                                             .pitch = (int32_t)pitch};
    struct attn_tensors tensors = *t;
    struct attn_run forward_run = *run;
    struct chunk chunk;

    fill_chunk(&chunk, request, pitch);
    tensors.cu_seqlens_q = ranges.cu_q;
    tensors.cu_seqlens_k = ranges.cu_k;
    if (p->batch > 1)
        tensors.lse = (float *)(void *)(workspace + space.lse);
    forward_run.workspace = workspace + space.forward;
    forward_run.workspace_bytes = run->workspace_bytes - space.forward;
    enum attn_status status =
        attn_launch_kernel(&(struct attn_launch){.name = "ranges of a chunk",
                                                 .kernel = sm90_chunk_write_ranges,
                                                 .blocks = attn_tiles(p->batch, SM90_CHUNK_THREADS),
                                                 .threads = SM90_CHUNK_THREADS},
                           &ranges, run, why);
    if (status == ATTN_OK)
        status = fused_sm90_fwd.launch(&chunk.request, &tensors, &forward_run, why);
    if (status != ATTN_OK || p->batch == 1)
        return status;
    const struct sm90_chunk_lse lse = {.from = tensors.lse,
                                       .to = t->lse,
                                       .count = p->batch * p->q_heads * p->q_len,
                                       .batch = (int32_t)p->batch,
                                       .q_heads = (int32_t)p->q_heads,
                                       .q_len = (int32_t)p->q_len};
    return attn_launch_kernel(&(struct attn_launch){.name = "LSE of a chunk",
                                                    .kernel = sm90_chunk_copy_lse,
                                                    .blocks = attn_tiles(lse.count, SM90_CHUNK_THREADS),
                                                    .threads = SM90_CHUNK_THREADS},
                              &lse, run, why);
}
