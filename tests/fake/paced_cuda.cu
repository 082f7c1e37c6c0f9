/* CUDA's half. The wait is a kernel of one thread behind the wrapped launches, so that it works in a graph as well:
 *
 *     stamp (start) | the fused kernels | wait (until now + share * (now - start))
 *
 * The start lies in the first 256 bytes of the workspace, the rest of which is the wrapped kernel's. */
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

#include "kernels/device/registers.cuh"
#include "tests/fake/paced.h"

enum { STAMP_BYTES = 256 };

__global__ void stamp(uint64_t *start_ns) { *start_ns = device::globaltimer_ns(); }

__global__ void wait_share(const uint64_t *start_ns, double share)
{
    const uint64_t end_ns = device::globaltimer_ns();
    const uint64_t wait_ns = (uint64_t)(share * (double)(end_ns - *start_ns));
    while (device::globaltimer_ns() - end_ns < wait_ns)
        __nanosleep(100);
}

static size_t workspace_bytes(const struct attn_request *request)
{
    struct attn_message why;
    const struct attn_impl *kernel = paced_kernel(request, &why);
    return STAMP_BYTES + (kernel ? kernel->workspace_bytes(request) : 0);
}

static const char *variant(const struct attn_request *request)
{
    struct attn_message why;
    const struct attn_impl *kernel = paced_kernel(request, &why);
    return kernel && kernel->variant ? kernel->variant(request) : "";
}

static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run, struct attn_message *why)
{
    const struct attn_impl *kernel = paced_kernel(request, why);
    if (!kernel)
        return ATTN_UNSUPPORTED;
    const double share = paced_share(request->mode);
    cudaStream_t stream = (cudaStream_t)run->stream;
    uint64_t *const start_ns = (uint64_t *)run->workspace;
    struct attn_run inner = *run;
    inner.workspace = (char *)run->workspace + STAMP_BYTES;
    inner.workspace_bytes = run->workspace_bytes - STAMP_BYTES;
    stamp<<<1, 1, 0, stream>>>(start_ns);
    const enum attn_status status = kernel->launch(request, tensors, &inner, why);
    if (status != ATTN_OK)
        return status;
    wait_share<<<1, 1, 0, stream>>>(start_ns, share);
    const cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess)
        return ATTN_OK;
    snprintf(why->text, sizeof why->text, "launch: %s", cudaGetErrorString(error));
    return ATTN_ERROR;
}

void paced_cuda_row(struct attn_impl *row)
{
    memset(row, 0, sizeof *row);
    row->abi = ATTN_ABI;
    row->name = "paced_cuda";
    row->summary = "our fused kernel, slowed on purpose";
    row->platform = ATTN_CUDA;
    row->accepts = paced_accepts;
    row->workspace_bytes = workspace_bytes;
    row->variant = variant;
    row->launch = launch;
}
