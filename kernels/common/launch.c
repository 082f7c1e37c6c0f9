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
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config = {.gridDim = {(unsigned)launch->blocks, 1, 1},
                                 .blockDim = {(unsigned)launch->threads, 1, 1},
                                 .dynamicSmemBytes = launch->smem_bytes,
                                 .stream = run->stream,
                                 .attrs = attributes};
    void *arguments[] = {(void *)(uintptr_t)params};
    const char *call = "cudaFuncSetAttribute";
    cudaError_t error = cudaSuccess;

    if (launch->overlaps_previous && run->pass == NULL) {
        attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (launch->cluster > 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes[config.numAttrs].val.clusterDim.x = (unsigned)launch->cluster;
        attributes[config.numAttrs].val.clusterDim.y = attributes[config.numAttrs].val.clusterDim.z = 1;
        ++config.numAttrs;
    }
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

/* Tensor maps. */

enum { MAX_RANK = 5, PANEL_BYTES = 128, ENCODE_SINCE = 12000 };

static const int64_t MAX_STRIDE_BYTES = INT64_C(1) << 40;

typedef CUresult (*encode_function)(CUtensorMap *, CUtensorMapDataType, cuuint32_t rank, void *address,
                                    const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                                    const cuuint32_t *steps, CUtensorMapInterleave, CUtensorMapSwizzle,
                                    CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The driver's function, without linking the driver. */
static encode_function find_encode(void)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, ENCODE_SINCE, cudaEnableDefault, &found);
#else
    const cudaError_t error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess)
        return NULL;
    return (encode_function)function;
}

/* A dimension behind the columns. */
struct dimension {
    const char *name;
    int64_t size, bytes; /* bytes: from one to the next */
    int box;             /* of it, that a copy moves */
};

/* A map of the columns and of `count` dimensions; of the shape dtype and head_dim count. */
static enum attn_status encode_map(CUtensorMap *map, const char *name, void *data, const struct tensor_map_shape *shape,
                                   const struct dimension *outer, int count, struct attn_message *why)
{
    const encode_function encode = find_encode();
    const int64_t element_bytes = (int64_t)attn_dtype_bytes(shape->dtype), all_bytes = shape->head_dim * element_bytes;
    const bool is_narrow = element_bytes == 1 && all_bytes == PANEL_BYTES / 2;
    cuuint64_t sizes[MAX_RANK] = {(cuuint64_t)shape->head_dim}, strides[MAX_RANK - 1];
    cuuint32_t box[MAX_RANK] = {(cuuint32_t)(PANEL_BYTES / (is_narrow ? 2 : element_bytes))};
    const cuuint32_t steps[MAX_RANK] = {1, 1, 1, 1, 1};
    const CUtensorMapDataType type = element_bytes == 1          ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                     : shape->dtype == ATTN_FP16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                                 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;

    if (encode == NULL)
        return attn_fail(why, ATTN_UNSUPPORTED, "the driver has no cuTensorMapEncodeTiled (CUDA 12.0)");
    for (int i = 0; i < count; ++i) {
        /* A dimension of length 1 is never stepped over: any legal stride will do. */
        const int64_t bytes = outer[i].size == 1 ? all_bytes : outer[i].bytes;
        if (bytes <= 0 || bytes >= MAX_STRIDE_BYTES || bytes % 16 != 0)
            return attn_fail(why, ATTN_UNSUPPORTED,
                             "tensor %s: its %s stride of %lld bytes must be a multiple of 16 from 16 to 2^40", name,
                             outer[i].name, (long long)bytes);
        sizes[i + 1] = (cuuint64_t)outer[i].size;
        strides[i] = (cuuint64_t)bytes;
        box[i + 1] = (cuuint32_t)outer[i].box;
    }
    const CUresult result =
        encode(map, type, (cuuint32_t)count + 1, data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
               is_narrow ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B,
               shape->is_read_once ? CU_TENSOR_MAP_L2_PROMOTION_NONE : CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        return attn_fail(
            why, ATTN_ERROR,
            "tensor %s: cuTensorMapEncodeTiled failed (%d) for %lld columns, %lld rows of %lld bytes, %lld "
            "heads of %lld bytes, %d rows of %d heads a box",
            name, (int)result, (long long)sizes[0], (long long)sizes[1], (long long)strides[0], (long long)sizes[2],
            (long long)strides[1], shape->box_rows, shape->box_heads);
    return ATTN_OK;
}

enum attn_status tensor_map_encode_shape(CUtensorMap *map, const char *name, const struct attn_tensor *t,
                                         const struct tensor_map_shape *shape, struct attn_message *why)
{
    const int64_t bytes = (int64_t)attn_dtype_bytes(shape->dtype);
    const struct dimension row = {"row", shape->len, t->stride_row * bytes, shape->box_rows},
                           head = {"head", shape->heads, t->stride_head * bytes, shape->box_heads},
                           batch = {"batch", shape->batch, t->stride_batch * bytes, 1};
    const struct dimension outer[] = {row, head, batch};

    if (shape->has_all_panels) {
        const int64_t most = PANEL_BYTES / bytes, columns = shape->head_dim < most ? shape->head_dim : most;
        const int64_t panels = shape->head_dim / columns;
        const struct dimension with_panels[] = {row, {"panel", panels, PANEL_BYTES, (int)panels}, head, batch};
        struct tensor_map_shape panel = *shape;
        panel.head_dim = columns;
        return encode_map(map, name, t->data, &panel, with_panels, 4, why);
    }
    return encode_map(map, name, t->data, shape, outer, 3, why);
}

enum attn_status tensor_map_encode(CUtensorMap *map, const char *name, const struct attn_tensor *t,
                                   const struct attn_problem *problem, int64_t heads, int64_t len, int box_rows,
                                   struct attn_message *why)
{
    const struct tensor_map_shape shape = {
        problem->dtype, problem->head_dim, len, heads, problem->batch, box_rows, 1, false, false};

    return tensor_map_encode_shape(map, name, t, &shape, why);
}

enum attn_status tensor_map_encode_ranges(CUtensorMap *map, const char *name, const struct attn_tensor *t,
                                          const struct attn_problem *problem, int64_t heads, int64_t len, int box_rows,
                                          struct attn_message *why)
{
    const int64_t bytes = (int64_t)attn_dtype_bytes(problem->dtype), row_bytes = t->stride_row * bytes,
                  head_bytes = t->stride_head * bytes;
    const struct dimension fixed[] = {{"row", len, row_bytes, box_rows},
                                      {"head", heads, head_bytes, 1},
                                      {"batch", problem->batch, t->stride_batch * bytes, 1},
                                      {"wrap", 1, 0, 1}};
    const struct dimension packed[] = {{"row", TENSOR_MAP_WRAP, row_bytes, box_rows},
                                       {"head", heads, head_bytes, 1},
                                       {"end", TENSOR_MAP_MOST_ROWS, row_bytes, 1},
                                       {"wrap", TENSOR_MAP_MOST_ROWS, (INT64_C(1) << 34) - row_bytes, 1}};

    if (problem->lengths == ATTN_PACKED && (row_bytes <= 0 || row_bytes >= INT64_C(1) << 34))
        return attn_fail(why, ATTN_UNSUPPORTED, "tensor %s: its row stride of %lld bytes must be below 2^34", name,
                         (long long)row_bytes);
    const struct tensor_map_shape shape = {
        problem->dtype, problem->head_dim, len, heads, problem->batch, box_rows, 1, false, false};
    return encode_map(map, name, t->data, &shape, problem->lengths == ATTN_PACKED ? packed : fixed, 4, why);
}
