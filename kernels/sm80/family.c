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

int64_t sm80_row_blocks(const struct attn_problem *p)
{
    return p->lengths == ATTN_PACKED ? p->total_q / SM80_ROW_BLOCK + p->batch : 0;
}

struct sm80_tiling sm80_tiling_of(const struct attn_problem *p, enum sm80_kind kind, bool is_keys, int own_tile,
                                  int other_tile)
{
    return (struct sm80_tiling){is_keys, own_tile, other_tile,
                                (kind == SM80_SPARSE || kind == SM80_SPARSE_DROPOUT) && p->mask_block > 0};
}

/* The parts of the workspace, in this order; each is a multiple of ALIGNMENT. */
struct parts {
    size_t work, row_blocks, visible, entries;
};

/* How many lists there are for each query head that has a mask of its own, and what they hold. */
static int64_t lists_of_mask(const struct attn_problem *p, const struct sm80_tiling *tiling)
{
    return p->lengths == ATTN_PACKED ? sm80_work_tiles(p, tiling->is_keys, tiling->own_tile)
                                     : attn_tiles(tiling->is_keys ? p->kv_len : p->q_len, tiling->own_tile);
}

static struct fused_sm80_lists layout_of_lists(const struct attn_problem *p, const struct sm80_tiling *tiling)
{
    const int64_t tiles = attn_tiles(tiling->is_keys ? p->q_len : p->kv_len, tiling->other_tile);
    const int64_t of_section = tiles < SM80_LIST_TILES ? tiles : SM80_LIST_TILES, lists = lists_of_mask(p, tiling);

    return (struct fused_sm80_lists){
        .batch_stride = p->lengths != ATTN_PACKED && p->mask_batch > 1 ? p->mask_heads * lists : 0,
        .head_stride = p->mask_heads > 1 ? lists : 0,
        .sections = (int32_t)attn_tiles(tiles, SM80_LIST_TILES),
        .chunks = (int32_t)attn_tiles(of_section + 1, SM80_LIST_CHUNK), /* and the end */
    };
}

static int64_t all_lists(const struct attn_problem *p, const struct sm80_tiling *tiling)
{
    if (!tiling->has_lists)
        return 0;
    return lists_of_mask(p, tiling) * p->mask_heads * (p->lengths == ATTN_PACKED ? 1 : p->mask_batch);
}

static struct parts parts_of(const struct attn_problem *p, const struct sm80_tiling *tiling)
{
    const bool is_packed = p->lengths == ATTN_PACKED;
    const int64_t heads = is_packed ? 1 : tiling->is_keys ? p->kv_heads : p->q_heads;
    const int64_t tiles = sm80_work_tiles(p, tiling->is_keys, tiling->own_tile) * heads;
    const int64_t lists = all_lists(p, tiling);
    const struct fused_sm80_lists layout = layout_of_lists(p, tiling);
    const int64_t bytes[] = {
        is_packed || tiling->has_lists ? tiles * (int64_t)sizeof(struct fused_sm80_work) : 0,
        is_packed && tiling->is_keys ? sm80_row_blocks(p) * (int64_t)sizeof(int32_t) : 0,
        lists * (int64_t)sizeof(int32_t),
        lists * layout.sections * layout.chunks * SM80_LIST_CHUNK * (int64_t)sizeof(uint16_t),
    };

    return (struct parts){(size_t)attn_round_up(bytes[0], ALIGNMENT), (size_t)attn_round_up(bytes[1], ALIGNMENT),
                          (size_t)attn_round_up(bytes[2], ALIGNMENT), (size_t)attn_round_up(bytes[3], ALIGNMENT)};
}

enum attn_status sm80_check_grid(const struct attn_problem *p, const struct sm80_tiling *tiling, int64_t heads,
                                 struct attn_message *why)
{
    const int64_t batch = p->lengths == ATTN_PACKED ? 1 : p->batch;
    const enum attn_status status =
        attn_check_grid(sm80_work_tiles(p, tiling->is_keys, tiling->own_tile) / batch, heads, batch, why);

    return status == ATTN_OK ? attn_check_grid(all_lists(p, tiling), 1, 1, why) : status;
}

size_t sm80_schedule_bytes(const struct attn_problem *p, const struct sm80_tiling *tiling)
{
    const struct parts parts = parts_of(p, tiling);

    return parts.work + parts.row_blocks + parts.visible + parts.entries;
}

struct fused_sm80_family sm80_family_of(const struct attn_request *request, const struct attn_tensors *t,
                                        void *workspace, const struct sm80_tiling *tiling)
{
    const struct attn_problem *p = request->problem;
    const struct parts parts = parts_of(p, tiling);
    char *next = workspace;
    void *work = next, *row_blocks_of = next += parts.work, *visible = next += parts.row_blocks;
    void *entries = next + parts.visible;
    struct fused_sm80_lists lists = {.entries = NULL};
    const int64_t row_blocks = blocks_of(p->q_len, p->mask_block), key_blocks = blocks_of(p->kv_len, p->mask_block);
    const int64_t plane = row_blocks * key_blocks;
    const bool is_packed = p->lengths == ATTN_PACKED;

    if (tiling->has_lists) {
        lists = layout_of_lists(p, tiling);
        lists.entries = entries;
        lists.visible = visible;
    }
    return (struct fused_sm80_family){
        .cu_seqlens_q = is_packed ? t->cu_seqlens_q : NULL,
        .cu_seqlens_k = is_packed ? t->cu_seqlens_k : NULL,
        .block_mask = p->mask_block > 0 ? t->block_mask : NULL,
        .work = parts.work > 0 ? work : NULL,
        .row_blocks = is_packed && tiling->is_keys ? row_blocks_of : NULL,
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
        .work_tiles = (int32_t)sm80_work_tiles(p, tiling->is_keys, tiling->own_tile),
        .mask_block = (int32_t)p->mask_block,
        .mask_row_blocks = (int32_t)row_blocks,
        .mask_key_blocks = (int32_t)key_blocks,
        .mask_batch_stride = p->mask_batch > 1 ? p->mask_heads * plane : 0,
        .mask_head_stride = p->mask_heads > 1 ? plane : 0,
        .mask_block_by = divisor_of(p->mask_block > 0 ? p->mask_block : 1),
        .work_heads = divisor_of(!is_packed        ? 1
                                 : tiling->is_keys ? p->kv_heads
                                                   : p->q_heads),
        .lists = lists,
    };
}

/* One of the kernels ahead, by the name of its pass. */
static enum attn_status launch_ahead(const char *name, fused_sm80_schedule_kernel kernel, int64_t blocks, int threads,
                                     const struct fused_sm80_schedule *params, const struct attn_run *run,
                                     struct attn_message *why)
{
    return attn_launch_kernel(&(struct attn_launch){.name = name,
                                                    .kernel = (const void *)kernel,
                                                    .blocks = blocks,
                                                    .threads = threads,
                                                    .is_pass = params->own_is_keys},
                              params, run, why);
}

int64_t sm80_list_sections(const struct attn_request *request, const struct sm80_tiling *tiling, int64_t section_groups,
                           int blocks_per_sm)
{
    enum { TAIL_WAVES = 2 };
    const struct attn_problem *p = request->problem;
    const int64_t groups = p->batch * p->kv_heads;
    const int64_t group_tiles = tiling->is_keys ? attn_tiles(p->kv_len, tiling->own_tile)
                                                : attn_tiles(p->q_len, tiling->own_tile) * (p->q_heads / p->kv_heads);
    /* The last section has two waves of blocks at least, so that short ones fill the gaps at the end. */
    const int64_t tail =
        attn_tiles((int64_t)TAIL_WAVES * blocks_per_sm * request->device->multiprocessors, group_tiles);

    return groups > tail ? (groups - tail) / section_groups + 1 : 1;
}

enum attn_status sm80_launch_schedule(const struct attn_request *request, const struct fused_sm80_family *family,
                                      const struct sm80_tiling *tiling, int64_t section_groups, int blocks_per_sm,
                                      const struct attn_run *run, struct attn_message *why)
{
    enum { LISTS_A_BLOCK = SM80_LISTS_THREADS / 32 };
    const struct attn_problem *p = request->problem;
    const bool is_packed = p->lengths == ATTN_PACKED;
    const int64_t longest_own = tiling->is_keys ? p->kv_len : p->q_len, groups = p->batch * p->kv_heads;
    const int64_t group = p->q_heads / p->kv_heads, own_tiles = attn_tiles(longest_own, tiling->own_tile);
    const struct fused_sm80_schedule params = {
        .family = *family,
        .own_tile = tiling->own_tile,
        .other_tile = tiling->other_tile,
        .longest_own = (int32_t)longest_own,
        .longest_other = (int32_t)(tiling->is_keys ? p->q_len : p->kv_len),
        .own_is_keys = tiling->is_keys,
        .lists = (int32_t)all_lists(p, tiling),
        .tiles_are_in_blocks = p->mask_block % tiling->own_tile == 0 && p->mask_block % tiling->other_tile == 0,
        .mask_heads = (int32_t)p->mask_heads,
        .own_tiles = (int32_t)own_tiles,
        .heads = (int32_t)(tiling->is_keys ? p->kv_heads : p->q_heads),
        .group = (int32_t)(tiling->is_keys ? 1 : group),
        .list_group = (int32_t)(tiling->is_keys ? group : 1),
        .head_groups = (int32_t)groups,
        .section_groups = (int32_t)section_groups,
        .sections = (int32_t)sm80_list_sections(request, tiling, section_groups, blocks_per_sm),
    };
    enum attn_status status = ATTN_OK;

    if (is_packed)
        status = launch_ahead("schedule", fused_sm80_schedule_work, 1, SM80_SCHEDULE_THREADS, &params, run, why);
    if (status == ATTN_OK && tiling->has_lists)
        status = launch_ahead("lists", fused_sm80_list_tiles, attn_tiles(params.lists, LISTS_A_BLOCK),
                              SM80_LISTS_THREADS, &params, run, why);
    if (status == ATTN_OK && tiling->has_lists && !is_packed)
        status = launch_ahead("sort", fused_sm80_sort_work, params.sections, SM80_SCHEDULE_THREADS, &params, run, why);
    return status;
}
