#include "kernels/common/launch.h"

#include "kernels/common/checks.h"

enum attn_status attn_cuda_failure(const char *call, cudaError_t error, struct attn_message *why)
{
    cudaGetLastError();
    return attn_fail(why, error == cudaErrorMemoryAllocation ? ATTN_NO_MEMORY : ATTN_ERROR, "%s: %s (%s)", call,
                     cudaGetErrorString(error), cudaGetErrorName(error));
}

enum attn_status attn_launch_kernel(const struct attn_launch *launch, const void *params, const struct attn_run *run,
                                    struct attn_message *why)
{
    cudaLaunchAttribute overlap = {.id = cudaLaunchAttributeProgrammaticStreamSerialization};
    cudaLaunchConfig_t config = {.gridDim = {(unsigned)launch->blocks, 1, 1},
                                 .blockDim = {(unsigned)launch->threads, 1, 1},
                                 .dynamicSmemBytes = launch->smem_bytes,
                                 .stream = run->stream,
                                 .attrs = &overlap};
    void *arguments[] = {(void *)(uintptr_t)params};
    const char *call = "cudaFuncSetAttribute";
    cudaError_t error = cudaSuccess;

    overlap.val.programmaticStreamSerializationAllowed = 1;
    config.numAttrs = launch->overlaps_previous && run->pass == NULL;
    if (launch->is_pass && run->pass != NULL)
        run->pass(run->pass_context, launch->name);
    if (launch->smem_bytes > 0)
        error =
            cudaFuncSetAttribute(launch->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)launch->smem_bytes);
    if (error == cudaSuccess) {
        call = launch->name;
        error = cudaLaunchKernelExC(&config, launch->kernel, arguments);
    }
    return error == cudaSuccess ? ATTN_OK : attn_cuda_failure(call, error, why);
}
