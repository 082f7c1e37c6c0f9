/* The CPU's half, and the table. */
#include "tests/paced/paced.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#ifndef PACED_PCT
#error "PACED_PCT: per cent of delay"
#endif

const struct attn_impl *paced_kernel(enum attn_platform platform)
{
    for (const struct attn_impl *const *impl = attn_registry(); *impl; impl++)
        if ((*impl)->platform == platform && strncmp((*impl)->name, "fused", 5) == 0)
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

enum attn_status paced_accepts(const struct attn_impl *kernel, const struct attn_request *request,
                               struct attn_message *why)
{
#ifdef PACED_REFUSES_BACKWARD
    if (request->mode == ATTN_BWD) {
        snprintf(why->text, sizeof why->text, "refuses backward on purpose");
        return ATTN_UNSUPPORTED;
    }
#endif
    return kernel->accepts(request, why);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    return paced_accepts(paced_kernel(ATTN_CPU), request, why);
}

static size_t workspace_bytes(const struct attn_request *request)
{
    return paced_kernel(ATTN_CPU)->workspace_bytes(request);
}

static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run, struct attn_message *why)
{
    const double start_s = now_s();
    const enum attn_status status = paced_kernel(ATTN_CPU)->launch(request, tensors, run, why);
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
    const struct attn_impl *const kernel = paced_kernel(ATTN_CPU);
    int count = 0;
    if (kernel && !kernel->prepare)
        table[count++] = (struct attn_impl){.abi = ATTN_ABI,
                                            .name = "paced_cpu",
                                            .summary = "our fused kernel, slowed on purpose",
                                            .platform = ATTN_CPU,
                                            .accepts = accepts,
                                            .workspace_bytes = workspace_bytes,
                                            .launch = launch};
#ifdef FABENCH_WITH_CUDA
    if (paced_kernel(ATTN_CUDA))
        paced_cuda_row(&table[count++]);
#endif
    return table;
}
