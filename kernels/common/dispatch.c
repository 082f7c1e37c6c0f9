#include "kernels/common/dispatch.h"

#include <string.h>

#include "kernels/common/checks.h"

static enum attn_direction_number number_of(const struct attn_dispatch *dispatch, const struct attn_request *request)
{
    const struct attn_problem *p = request->problem;

    if (request->mode == ATTN_BWD)
        return ATTN_DIRECTION_BWD;
    if (p->lengths == ATTN_CACHE && dispatch->directions[ATTN_DIRECTION_DECODE] != NULL)
        return ATTN_DIRECTION_DECODE;
    if (attn_dtype_is_8_bit(p->dtype) && dispatch->directions[ATTN_DIRECTION_8_BIT] != NULL)
        return ATTN_DIRECTION_8_BIT;
    return ATTN_DIRECTION_FWD;
}

const struct attn_direction *attn_direction_of(const struct attn_dispatch *dispatch, const struct attn_request *request)
{
    return dispatch->directions[number_of(dispatch, request)];
}

enum attn_status attn_dispatch_accepts(const struct attn_dispatch *dispatch, size_t variants,
                                       const struct attn_request *request, struct attn_message *why)
{
    const enum attn_direction_number number = number_of(dispatch, request);
    enum attn_status status = attn_check_request(request, &dispatch->ranges[number], why);

    if (variants >= ATTN_MAX_VARIANTS)
        return attn_fail(why, ATTN_UNSUPPORTED, "has %zu variants and a list of %d: raise ATTN_MAX_VARIANTS", variants,
                         ATTN_MAX_VARIANTS - 1);
    if (status == ATTN_OK)
        status = dispatch->check_device(request, why);
    return status == ATTN_OK ? dispatch->directions[number]->accepts(request, why) : status;
}

enum attn_status attn_dispatch_launch(const struct attn_dispatch *dispatch, size_t variants,
                                      const struct attn_request *request, const struct attn_tensors *tensors,
                                      const struct attn_run *run, struct attn_message *why)
{
    const struct attn_direction *direction = attn_direction_of(dispatch, request);
    enum attn_status status = attn_dispatch_accepts(dispatch, variants, request, why);

    if (status == ATTN_OK)
        status = attn_check_tensors(request, tensors, why);
    if (status == ATTN_OK)
        status = attn_check_workspace(run, direction->workspace_bytes(request), why);
    return status == ATTN_OK ? direction->launch(request, tensors, run, why) : status;
}

const struct attn_tile *attn_next_tile(const struct attn_tile_table *table, const struct attn_tile *tile)
{
    bool is_next = tile == NULL;

    for (const void *const *list = table->lists; *list != NULL; list++) {
        const struct attn_tile *row = *list;
        for (; row->shown.name != NULL; row = (const void *)((const char *)row + table->row_bytes)) {
            if (is_next)
                return row;
            is_next = row == tile;
        }
    }
    return NULL;
}

size_t attn_dispatch_variants(const struct attn_dispatch *dispatch, struct attn_variant variants[ATTN_MAX_VARIANTS])
{
    size_t count = 0;

    for (int number = 0; number < ATTN_DIRECTIONS; number++) {
        if (dispatch->directions[number] == NULL)
            continue;
        const struct attn_tile_table *table = dispatch->directions[number]->tiles;
        for (const struct attn_tile *tile = NULL; (tile = attn_next_tile(table, tile)) != NULL; count++)
            if (count + 1 < ATTN_MAX_VARIANTS)
                variants[count] = tile->shown;
    }
    variants[count + 1 < ATTN_MAX_VARIANTS ? count : ATTN_MAX_VARIANTS - 1] = (struct attn_variant){0};
    return count;
}

/* The choice of a tile. */

enum { BLOCK_RESERVED_BYTES = 1024 /* shared memory of each block that the system keeps, sm_80 and newer */ };

/* Whether a request can have the tile, as far as its head_dim, its attributes and a forced variant go. */
static bool is_meant(const struct attn_tile_table *table, const struct attn_tile *tile,
                     const struct attn_request *request)
{
    return (table->takes != NULL ? table->takes(request, tile) : tile->head_dim == request->problem->head_dim) &&
           (request->variant == NULL || strcmp(tile->shown.name, request->variant) == 0);
}

/* Whether `tile`, of which a block fits, is better than `best`, which comes before it in the table or is NULL. */
static bool is_better(const struct attn_tile_table *table, const struct attn_request *request,
                      const struct attn_tile *tile, const struct attn_tile *best)
{
    const size_t room = request->device->smem_per_block_bytes + BLOCK_RESERVED_BYTES;

    if (best == NULL)
        return true;
    if (table->time != NULL)
        return table->time(request, tile) < table->time(request, best);
    return (size_t)best->blocks_per_sm * (best->smem_bytes + BLOCK_RESERVED_BYTES) > room &&
           (size_t)tile->blocks_per_sm * (tile->smem_bytes + BLOCK_RESERVED_BYTES) <= room;
}

const void *attn_choose_tile(const struct attn_tile_table *table, const struct attn_request *request,
                             struct attn_message *why)
{
    const size_t limit = request->device->smem_per_block_bytes;
    const struct attn_tile *best = NULL, *known = NULL;

    for (const struct attn_tile *tile = NULL; (tile = attn_next_tile(table, tile)) != NULL;) {
        if (!is_meant(table, tile, request))
            continue;
        known = tile;
        if (tile->smem_bytes <= limit && is_better(table, request, tile, best))
            best = tile;
    }
    if (known == NULL && table->takes != NULL)
        attn_fail(why, ATTN_UNSUPPORTED, "the %s has no variant %s for head_dim %d and what else is asked",
                  table->direction, request->variant, (int)request->problem->head_dim);
    else if (known == NULL)
        attn_fail(why, ATTN_UNSUPPORTED, "the %s has no variant %s for head_dim %d", table->direction, request->variant,
                  (int)request->problem->head_dim);
    else if (best == NULL)
        attn_fail(why, ATTN_UNSUPPORTED, "%s needs %zu bytes of shared memory, a block has at most %zu",
                  known->shown.name, known->smem_bytes, limit);
    return best;
}

const char *attn_chosen_variant(const struct attn_tile_table *table, const struct attn_request *request)
{
    struct attn_message why;
    const struct attn_tile *tile = attn_choose_tile(table, request, &why);

    return tile != NULL ? tile->shown.name : NULL;
}
