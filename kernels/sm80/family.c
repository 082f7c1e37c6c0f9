/* The family on the host: which request needs it, its part of the kernels' parameters, the list of work tiles. */
#include "kernels/sm80/family.h"

#include <float.h>

#include "kernels/common/checks.h"
#include "kernels/common/dispatch.h"
#include "kernels/common/launch.h"

static const float LOG2_E = 1.44269504088896340736f;

enum { ALIGNMENT = 256 };

enum sm80_kind sm80_kind_of(const struct attn_request *request)
{
    const unsigned attributes = attn_attributes(request);

    if (attributes == 0 && (request->problem->head_dim == 64 || request->problem->head_dim == 128))
        return SM80_DENSE;
    if ((attributes & ATTN_WITH_SOFTCAP) != 0)
        return SM80_FAMILY;
    return attn_dropout_threshold(request->problem->dropout) != 0 ? SM80_SPARSE_DROPOUT : SM80_SPARSE;
}

/* What scores are multiplied with for tanh, in log2; 0 without a softcap. */
static float inner_of_softcap(const struct attn_problem *p)
{
    return p->softcap > 0.0f ? 2.0f * LOG2_E * p->scale / p->softcap : 0.0f;
}

enum attn_status sm80_check_family(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;

    if (sm80_kind_of(request) == SM80_DENSE)
        return ATTN_OK;
    if (p->q_len > SM80_FAMILY_MAX_LEN || p->kv_len > SM80_FAMILY_MAX_LEN)
        return attn_fail(why, ATTN_UNSUPPORTED,
                         "takes lengths up to %d with windows, dropout, softcap, packed sequences, block masks and "
                         "head dims other than 64 and 128",
                         (int)SM80_FAMILY_MAX_LEN);
    const float inner = inner_of_softcap(p);
    if (p->softcap > (float)SM80_FAMILY_MAX_SOFTCAP || (p->softcap > 0.0f && !(inner >= FLT_MIN && inner <= FLT_MAX)))
        return attn_fail(
            why, ATTN_UNSUPPORTED,
            "softcap %g with scale %g: takes softcaps up to %d, and scale / softcap that is a normal fp32 number",
            (double)p->softcap, (double)p->scale, (int)SM80_FAMILY_MAX_SOFTCAP);
    return ATTN_OK;
}

/* A window that the kernel takes: without a bound it is longer than any distance. */
static int32_t window_of(const struct attn_problem *p, int64_t window)
{
    const int64_t unbounded = p->q_len + p->kv_len;

    return (int32_t)(window < 0 || window > unbounded ? unbounded : window);
}

static int64_t blocks_of(int64_t len, int64_t block) { return block > 0 ? attn_tiles(len, block) : 0; }

int64_t sm80_work_tiles(const struct attn_problem *p, bool is_keys, int own_tile)
{
    if (p->lengths != ATTN_PACKED)
        return p->batch * attn_tiles(is_keys ? p->kv_len : p->q_len, own_tile);
    return (is_keys ? p->total_k : p->total_q) / own_tile + p->batch;
}

enum attn_status sm80_check_grid(const struct attn_problem *p, bool is_keys, int own_tile, int64_t heads,
                                 struct attn_message *why)
{
    const int64_t batch = p->lengths == ATTN_PACKED ? 1 : p->batch;

    return attn_check_grid(sm80_work_tiles(p, is_keys, own_tile) / batch, heads, batch, why);
}

int64_t sm80_row_blocks(const struct attn_problem *p)
{
    return p->lengths == ATTN_PACKED ? p->total_q / SM80_ROW_BLOCK + p->batch : 0;
}

static size_t work_bytes(const struct attn_problem *p, bool is_keys, int own_tile)
{
    return (size_t)attn_round_up(sm80_work_tiles(p, is_keys, own_tile) * (int64_t)sizeof(struct fused_sm80_work),
                                 ALIGNMENT);
}

size_t sm80_schedule_bytes(const struct attn_problem *p, bool is_keys, int own_tile)
{
    if (p->lengths != ATTN_PACKED)
        return 0;
    const int64_t rows = is_keys ? sm80_row_blocks(p) * (int64_t)sizeof(int32_t) : 0;
    return work_bytes(p, is_keys, own_tile) + (size_t)attn_round_up(rows, ALIGNMENT);
}

struct fused_sm80_family sm80_family_of(const struct attn_request *request, const struct attn_tensors *t,
                                        void *workspace, bool is_keys, int own_tile)
{
    const struct attn_problem *p = request->problem;
    const int64_t row_blocks = blocks_of(p->q_len, p->mask_block), key_blocks = blocks_of(p->kv_len, p->mask_block);
    const int64_t plane = row_blocks * key_blocks;
    const bool is_packed = p->lengths == ATTN_PACKED;

    return (struct fused_sm80_family){
        .cu_seqlens_q = is_packed ? t->cu_seqlens_q : NULL,
        .cu_seqlens_k = is_packed ? t->cu_seqlens_k : NULL,
        .block_mask = p->mask_block > 0 ? t->block_mask : NULL,
        .work = is_packed ? workspace : NULL,
        .row_blocks = is_packed && is_keys ? (void *)((char *)workspace + work_bytes(p, is_keys, own_tile)) : NULL,
        .total_q = p->total_q,
        .dropout_keys = attn_philox_keys_of(p->dropout_seed),
        .dropout_threshold = p->dropout > 0.0f ? attn_dropout_threshold(p->dropout) : 0,
        .last_dropped = (p->dropout > 0.0f ? attn_dropout_threshold(p->dropout) << 16 : 0) - 1,
        .keep_factor = 1.0f / (1.0f - p->dropout),
        .keep_share = 1.0f - p->dropout,
        .softcap_inner = inner_of_softcap(p),
        .window_left = window_of(p, p->window_left),
        .window_right = p->causal ? 0 : window_of(p, p->window_right),
        .head_dim = (int32_t)p->head_dim,
        .batch = (int32_t)p->batch,
        .work_tiles = (int32_t)sm80_work_tiles(p, is_keys, own_tile),
        .mask_block = (int32_t)p->mask_block,
        .mask_row_blocks = (int32_t)row_blocks,
        .mask_key_blocks = (int32_t)key_blocks,
        .mask_batch_stride = p->mask_batch > 1 ? p->mask_heads * plane : 0,
        .mask_head_stride = p->mask_heads > 1 ? plane : 0,
        .mask_block_by = divisor_of(p->mask_block > 0 ? p->mask_block : 1),
    };
}

enum attn_status sm80_launch_schedule(const struct attn_request *request, const struct fused_sm80_family *family,
                                      bool is_keys, int own_tile, int other_tile, const struct attn_run *run,
                                      struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const struct fused_sm80_schedule params = {.family = *family,
                                               .own_tile = own_tile,
                                               .other_tile = other_tile,
                                               .longest_other = (int32_t)(is_keys ? p->q_len : p->kv_len),
                                               .own_is_keys = is_keys};

    if (family->work == NULL)
        return ATTN_OK;
    return attn_launch_kernel(&(struct attn_launch){.name = "schedule",
                                                    .kernel = (const void *)fused_sm80_schedule_work,
                                                    .blocks = 1,
                                                    .threads = SM80_SCHEDULE_THREADS,
                                                    .is_pass = is_keys},
                              &params, run, why);
}
