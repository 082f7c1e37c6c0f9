/* The CPU's half, and the table. */
#include "tests/fake/paced.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef PACED_PCT
#error "PACED_PCT: per cent of delay"
#endif

const struct attn_impl *paced_kernel(const struct attn_request *request, struct attn_message *why)
{
    snprintf(why->text, sizeof why->text, "no fused kernel for this platform in this build");
    for (const struct attn_impl *const *impl = attn_registry(); *impl; impl++)
        if ((*impl)->platform == request->device->platform && strncmp((*impl)->name, "fused", 5) == 0 &&
            !(*impl)->prepare && (*impl)->accepts(request, why) == ATTN_OK)
            return *impl;
    return NULL;
}

double paced_share(enum attn_mode mode)
{
#ifdef PACED_BACKWARD_ONLY
    if (mode != ATTN_BWD)
        return 0;
#endif
    (void)mode;
    return PACED_PCT / 100.0;
}

enum attn_status paced_accepts(const struct attn_request *request, struct attn_message *why)
{
#ifdef PACED_REFUSES_BACKWARD
    if (request->mode == ATTN_BWD) {
        snprintf(why->text, sizeof why->text, "refuses backward on purpose");
        return ATTN_UNSUPPORTED;
    }
#endif
    /* As kernels that take scales of whole tiles alone; 0 = of no blocks. */
    const char *const tile = getenv("PACED_SCALE_TILE");
    const int64_t block = request->problem->scale_block, keys = tile ? strtol(tile, NULL, 10) : 1;
    if (block > 0 && (keys == 0 || block % keys != 0)) {
        snprintf(why->text, sizeof why->text, "scales of blocks of %lld rows: takes multiples of %lld",
                 (long long)block, (long long)keys);
        return ATTN_UNSUPPORTED;
    }
    return paced_kernel(request, why) ? ATTN_OK : ATTN_UNSUPPORTED;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static size_t workspace_bytes(const struct attn_request *request)
{
    struct attn_message why;
    const struct attn_impl *kernel = paced_kernel(request, &why);
    return kernel ? kernel->workspace_bytes(request) : 0;
}

static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run, struct attn_message *why)
{
    const struct attn_impl *kernel = paced_kernel(request, why);
    if (!kernel)
        return ATTN_UNSUPPORTED;
    const double start_s = now_s();
    const enum attn_status status = kernel->launch(request, tensors, run, why);
    const double end_s = now_s(), until_s = end_s + paced_share(request->mode) * (end_s - start_s);
    while (now_s() < until_s) {
    }
    return status;
}

const struct attn_impl *fabench_impls(int abi)
{
    static struct attn_impl table[3];
    if (abi != ATTN_ABI)
        return NULL;
    table[0] = (struct attn_impl){.abi = ATTN_ABI,
                                  .name = "paced_cpu",
                                  .summary = "our fused kernel, slowed on purpose",
                                  .platform = ATTN_CPU,
                                  .accepts = paced_accepts,
                                  .workspace_bytes = workspace_bytes,
                                  .launch = launch};
#ifdef FABENCH_WITH_CUDA
    paced_cuda_row(&table[1]);
#endif
    return table;
}
