#include "kernels/common/dispatch.h"

#include "kernels/common/checks.h"

enum attn_status attn_dispatch_accepts(const struct attn_dispatch *dispatch, const struct attn_request *request,
                                       struct attn_message *why)
{
    enum attn_status status = attn_check_request(request, why);

    if (status == ATTN_OK)
        status = dispatch->check_device(request, why);
    return status == ATTN_OK ? dispatch->directions[request->mode]->accepts(request, why) : status;
}

enum attn_status attn_dispatch_launch(const struct attn_dispatch *dispatch, const struct attn_request *request,
                                      const struct attn_tensors *tensors, const struct attn_run *run,
                                      struct attn_message *why)
{
    const struct attn_direction *direction = dispatch->directions[request->mode];
    enum attn_status status = attn_dispatch_accepts(dispatch, request, why);

    if (status == ATTN_OK)
        status = attn_check_tensors(request, tensors, why);
    if (status == ATTN_OK)
        status = attn_check_workspace(run, direction->workspace_bytes(request), why);
    return status == ATTN_OK ? direction->launch(request, tensors, run, why) : status;
}

void attn_dispatch_variants(const struct attn_dispatch *dispatch, struct attn_variant variants[ATTN_MAX_VARIANTS])
{
    size_t count = 0;

    for (int mode = ATTN_FWD; mode <= ATTN_BWD; mode++) {
        const struct attn_tile_table *table = dispatch->directions[mode]->tiles;
        const char *row = table->rows;
        for (const struct attn_tile *tile; (tile = (const void *)row)->shown.name != NULL; row += table->row_bytes)
            if (count + 1 < ATTN_MAX_VARIANTS)
                variants[count++] = tile->shown;
    }
    variants[count] = (struct attn_variant){0};
}
