/* The host side of schedule.cu: workspace, refusals, launches. */
#include "kernels/family/schedule.h"

#include "kernels/common/checks.h"
#include "kernels/common/dispatch.h"
#include "kernels/common/launch.h"

enum { ALIGNMENT = 256 };

int64_t family_work_tiles(const struct attn_problem *p, bool is_keys, int own_tile)
{
    if (p->lengths != ATTN_PACKED)
        return p->batch * attn_tiles(is_keys ? p->kv_len : p->q_len, own_tile);
    return (is_keys ? p->total_k : p->total_q) / own_tile + p->batch;
}

/* The parts of the workspace, in this order; each is a multiple of ALIGNMENT. */
struct parts {
    size_t work, row_blocks, visible, entries;
};

/* How many lists there are for each query head that has a mask of its own, and what they hold. */
static int64_t lists_of_mask(const struct attn_problem *p, const struct family_tiling *tiling)
{
    return p->lengths == ATTN_PACKED ? family_work_tiles(p, tiling->is_keys, tiling->own_tile)
                                     : attn_tiles(tiling->is_keys ? p->kv_len : p->q_len, tiling->own_tile);
}

static struct family_tile_lists layout_of_lists(const struct attn_problem *p, const struct family_tiling *tiling)
{
    const int64_t tiles = attn_tiles(tiling->is_keys ? p->q_len : p->kv_len, tiling->other_tile);
    const int64_t of_section = tiles < FAMILY_LIST_TILES ? tiles : FAMILY_LIST_TILES, lists = lists_of_mask(p, tiling);

    return (struct family_tile_lists){
        .batch_stride = p->lengths != ATTN_PACKED && p->mask_batch > 1 ? p->mask_heads * lists : 0,
        .head_stride = p->mask_heads > 1 ? lists : 0,
        .sections = (int32_t)attn_tiles(tiles, FAMILY_LIST_TILES),
        .chunks = (int32_t)attn_tiles(of_section + 1, FAMILY_LIST_CHUNK), /* and the end */
        .is_plain = tiling->has_plain_lists,
    };
}

static int64_t all_lists(const struct attn_problem *p, const struct family_tiling *tiling)
{
    if (!tiling->has_lists)
        return 0;
    return lists_of_mask(p, tiling) * p->mask_heads * (p->lengths == ATTN_PACKED ? 1 : p->mask_batch);
}

static struct parts parts_of(const struct attn_problem *p, const struct family_tiling *tiling)
{
    const bool is_packed = p->lengths == ATTN_PACKED;
    const int64_t heads = is_packed ? 1 : tiling->is_keys ? p->kv_heads : p->q_heads;
    const int64_t tiles = family_work_tiles(p, tiling->is_keys, tiling->own_tile) * heads;
    const int64_t lists = all_lists(p, tiling);
    const struct family_tile_lists layout = layout_of_lists(p, tiling);
    const int64_t bytes[] = {
        is_packed || tiling->has_lists ? tiles * (int64_t)sizeof(struct family_work) + 2 * (int64_t)sizeof(int32_t) : 0,
        is_packed && tiling->is_keys ? family_row_blocks(p, tiling->row_block) * (int64_t)sizeof(int32_t) : 0,
        lists * (int64_t)sizeof(int32_t),
        lists * layout.sections * layout.chunks * FAMILY_LIST_CHUNK * (int64_t)sizeof(uint16_t),
    };

    return (struct parts){(size_t)attn_round_up(bytes[0], ALIGNMENT), (size_t)attn_round_up(bytes[1], ALIGNMENT),
                          (size_t)attn_round_up(bytes[2], ALIGNMENT), (size_t)attn_round_up(bytes[3], ALIGNMENT)};
}

enum attn_status family_check_grid(const struct attn_problem *p, const struct family_tiling *tiling, int64_t heads,
                                   struct attn_message *why)
{
    const int64_t batch = p->lengths == ATTN_PACKED ? 1 : p->batch;
    const enum attn_status status =
        attn_check_grid(family_work_tiles(p, tiling->is_keys, tiling->own_tile) / batch, heads, batch, why);

    if (status != ATTN_OK || !tiling->has_lists)
        return status;
    const int64_t others = attn_tiles(tiling->is_keys ? p->q_len : p->kv_len, tiling->other_tile);
    if (tiling->has_plain_lists && others > FAMILY_MOST_PLAIN_TILES)
        return attn_fail(why, ATTN_UNSUPPORTED, "a block mask over %lld tiles of %d: takes up to %d", (long long)others,
                         tiling->other_tile, (int)FAMILY_MOST_PLAIN_TILES);
    return attn_check_grid(all_lists(p, tiling), 1, 1, why);
}

size_t family_schedule_bytes(const struct attn_problem *p, const struct family_tiling *tiling)
{
    const struct parts parts = parts_of(p, tiling);

    return parts.work + parts.row_blocks + parts.visible + parts.entries;
}

struct family_work_order family_work_order_of(const struct attn_problem *p, const struct family_tiling *tiling,
                                              void *workspace)
{
    const struct parts parts = parts_of(p, tiling);
    const bool is_packed = p->lengths == ATTN_PACKED;
    void *const work = workspace, *const row_blocks = (char *)workspace + parts.work;

    const int64_t tiles = family_work_tiles(p, tiling->is_keys, tiling->own_tile);

    return (struct family_work_order){
        .work = parts.work > 0 ? work : NULL,
        .count = is_packed ? (int32_t *)((struct family_work *)work + tiles) : NULL,
        .row_blocks = is_packed && tiling->is_keys ? row_blocks : NULL,
        .work_tiles = (int32_t)tiles,
        .heads = divisor_of(!is_packed        ? 1
                            : tiling->is_keys ? p->kv_heads
                                              : p->q_heads),
    };
}

struct family_tile_lists family_tile_lists_of(const struct attn_problem *p, const struct family_tiling *tiling,
                                              void *workspace)
{
    const struct parts parts = parts_of(p, tiling);
    void *const visible = (char *)workspace + parts.work + parts.row_blocks, *const entries =
                                                                                 (char *)visible + parts.visible;
    struct family_tile_lists lists = {.entries = NULL};

    if (tiling->has_lists) {
        lists = layout_of_lists(p, tiling);
        lists.entries = entries;
        lists.visible = visible;
    }
    return lists;
}

/* One of the kernels ahead, by the name of its pass. */
static enum attn_status launch_ahead(const char *name, family_schedule_kernel kernel, int64_t blocks, int threads,
                                     const struct family_schedule *params, const struct attn_run *run,
                                     struct attn_message *why)
{
    return attn_launch_kernel(&(struct attn_launch){.name = name,
                                                    .kernel = (const void *)kernel,
                                                    .blocks = blocks,
                                                    .threads = threads,
                                                    .is_pass = params->own_is_keys},
                              params, run, why);
}

int64_t family_list_sections(const struct attn_request *request, const struct family_tiling *tiling,
                             int64_t section_groups, int blocks_per_sm)
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

/* `work`: the kernel that lists work tiles of packed sequences. */
static enum attn_status launch_schedule(const struct attn_request *request, const struct attn_tensors *tensors,
                                        const struct family_tiling *tiling, family_schedule_kernel work,
                                        int64_t section_groups, int blocks_per_sm, const struct attn_run *run,
                                        struct attn_message *why)
{
    enum { LISTS_A_BLOCK = FAMILY_LISTS_THREADS / 32 };
    const struct attn_problem *p = request->problem;
    const bool is_packed = p->lengths == ATTN_PACKED;
    const int64_t longest_own = tiling->is_keys ? p->kv_len : p->q_len, groups = p->batch * p->kv_heads;
    const int64_t group = p->q_heads / p->kv_heads, own_tiles = attn_tiles(longest_own, tiling->own_tile);
    const struct family_schedule params = {
        .lengths = family_lengths_of(p, tensors),
        .window = family_window_of(p),
        .mask = family_block_mask_of(p, tensors),
        .order = family_work_order_of(p, tiling, run->workspace),
        .lists = family_tile_lists_of(p, tiling, run->workspace),
        .own_tile = tiling->own_tile,
        .other_tile = tiling->other_tile,
        .longest_own = (int32_t)longest_own,
        .longest_other = (int32_t)(tiling->is_keys ? p->q_len : p->kv_len),
        .own_is_keys = tiling->is_keys,
        .row_block = tiling->row_block,
        .list_count = (int32_t)all_lists(p, tiling),
        .tiles_are_in_blocks = p->mask_block % tiling->own_tile == 0 && p->mask_block % tiling->other_tile == 0,
        .mask_heads = (int32_t)p->mask_heads,
        .own_tiles = (int32_t)own_tiles,
        .heads = (int32_t)(tiling->is_keys ? p->kv_heads : p->q_heads),
        .group = (int32_t)(tiling->is_keys ? 1 : group),
        .list_group = (int32_t)(tiling->is_keys ? group : 1),
        .head_groups = (int32_t)groups,
        .section_groups = (int32_t)section_groups,
        .sections = (int32_t)family_list_sections(request, tiling, section_groups, blocks_per_sm),
    };
    enum attn_status status = ATTN_OK;

    if (is_packed)
        status = launch_ahead("schedule", work, 1, FAMILY_SCHEDULE_THREADS, &params, run, why);
    if (status == ATTN_OK && tiling->has_lists)
        status = launch_ahead("lists", family_list_tiles, attn_tiles(params.list_count, LISTS_A_BLOCK),
                              FAMILY_LISTS_THREADS, &params, run, why);
    if (status == ATTN_OK && tiling->has_lists && !is_packed)
        status = launch_ahead("sort", family_sort_work, params.sections, FAMILY_SCHEDULE_THREADS, &params, run, why);
    return status;
}

enum attn_status family_launch_schedule(const struct attn_request *request, const struct attn_tensors *tensors,
                                        const struct family_tiling *tiling, int64_t section_groups, int blocks_per_sm,
                                        const struct attn_run *run, struct attn_message *why)
{
    return launch_schedule(request, tensors, tiling, family_schedule_work, section_groups, blocks_per_sm, run, why);
}

enum attn_status family_launch_schedule_in_order(const struct attn_request *request, const struct attn_tensors *tensors,
                                                 const struct family_tiling *tiling, const struct attn_run *run,
                                                 struct attn_message *why)
{
    return launch_schedule(request, tensors, tiling, family_schedule_work_in_order, 1, 1, run, why);
}
