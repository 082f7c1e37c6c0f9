/* See cublas.h. Row-major C = A B is column-major C^T = B^T A^T: the operands change places, nothing is copied. */
#include "reference/cublas.h"

#include "reference/cublas_library.h"
#include "reference/status.h"

/* The open library. Never NULL where there is a handle or a status: both come from it. */
static const struct cublas_functions *cublas(void) { return cublas_library(NULL); }

cudaDataType_t cublas_type(enum attn_dtype dtype)
{
    return dtype == ATTN_FP16 ? CUDA_R_16F : dtype == ATTN_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

enum attn_status cublas_status(cublasStatus_t status, const char *call, struct attn_message *why)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return ATTN_OK;
    return status_fail(why, status == CUBLAS_STATUS_ALLOC_FAILED ? ATTN_NO_MEMORY : ATTN_ERROR, "%s: %s", call,
                       cublas()->get_status_string(status));
}

enum attn_status cublas_create(cublasHandle_t *handle, struct attn_message *why)
{
    *handle = NULL;
    if (!cublas_library(why))
        return ATTN_ERROR;
    enum attn_status status = cublas_status(cublas()->create(handle), "cublasCreate", why);
    if (status != ATTN_OK)
        return status;
    const unsigned mode = CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    status = cublas_status(cublas()->set_math_mode(*handle, (cublasMath_t)mode), "cublasSetMathMode", why);
    if (status != ATTN_OK) {
        cublas_destroy(*handle);
        *handle = NULL;
    }
    return status;
}

void cublas_destroy(cublasHandle_t handle)
{
    if (handle)
        (void)cublas()->destroy(handle);
}

size_t cublas_workspace_bytes(void)
{
    int device = 0, major = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess)
        major = 0;
    return (size_t)(major >= 9 || major == 0 ? 32 : 8) << 20;
}

enum attn_status cublas_bind(cublasHandle_t handle, void *stream, void *workspace, struct attn_message *why)
{
    enum attn_status status = cublas_status(cublas()->set_stream(handle, (cudaStream_t)stream), "cublasSetStream", why);
    if (status == ATTN_OK)
        status = cublas_status(cublas()->set_workspace(handle, workspace, cublas_workspace_bytes()),
                               "cublasSetWorkspace", why);
    return status;
}

/* The batch dimensions of a product that are left after merging. */
struct batch {
    int dimensions;
    int64_t count[CUBLAS_BATCH_DIMENSIONS];
    int64_t stride[CUBLAS_BATCH_DIMENSIONS][3]; /* of a, b, c */
};

static bool mergeable(const struct batch *batch, int outer, int inner)
{
    for (int m = 0; m < 3; m++)
        if (batch->stride[outer][m] != batch->count[inner] * batch->stride[inner][m])
            return false;
    return true;
}

static void drop_dimension(struct batch *batch, int at)
{
    batch->dimensions--;
    for (int i = at; i < batch->dimensions; i++) {
        batch->count[i] = batch->count[i + 1];
        for (int m = 0; m < 3; m++)
            batch->stride[i][m] = batch->stride[i + 1][m];
    }
}

static bool merge_once(struct batch *batch)
{
    for (int outer = 0; outer < batch->dimensions; outer++)
        for (int inner = 0; inner < batch->dimensions; inner++)
            if (outer != inner && mergeable(batch, outer, inner)) {
                batch->count[inner] *= batch->count[outer];
                drop_dimension(batch, outer);
                return true;
            }
    return false;
}

/* Dimension 0 of the result is the longest, and there is always one. */
static struct batch merged_batch(const struct cublas_product *product)
{
    const struct cublas_matrix *matrix[3] = {&product->a, &product->b, &product->c};
    struct batch batch = {};
    for (int i = 0; i < CUBLAS_BATCH_DIMENSIONS; i++) {
        if (product->count[i] == 1)
            continue;
        batch.count[batch.dimensions] = product->count[i];
        for (int m = 0; m < 3; m++)
            batch.stride[batch.dimensions][m] = matrix[m]->stride[i];
        batch.dimensions++;
    }
    while (merge_once(&batch)) {
    }
    for (int i = 1; i < batch.dimensions; i++)
        if (batch.count[i] > batch.count[0]) {
            const struct batch old = batch;
            batch.count[0] = old.count[i];
            batch.count[i] = old.count[0];
            for (int m = 0; m < 3; m++) {
                batch.stride[0][m] = old.stride[i][m];
                batch.stride[i][m] = old.stride[0][m];
            }
        }
    for (; batch.dimensions < CUBLAS_BATCH_DIMENSIONS; batch.dimensions++)
        batch.count[batch.dimensions] = 1;
    return batch;
}

static cublasOperation_t operation(const struct cublas_matrix *matrix)
{
    return matrix->transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

static cublasComputeType_t compute_type(const struct cublas_product *product)
{
    return product->in == ATTN_FP32 ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F;
}

/* One strided-batched call over dimension 0, `offset` elements into a, b and c. */
static cublasStatus_t multiply_strided(cublasHandle_t handle, const struct cublas_product *product,
                                       const struct batch *batch, const int64_t offset[3], int64_t depth, float beta)
{
    const size_t in_bytes = attn_dtype_bytes(product->in), out_bytes = attn_dtype_bytes(product->out);
    const char *a = (const char *)product->a.data + offset[0] * (int64_t)in_bytes;
    const char *b = (const char *)product->b.data + offset[1] * (int64_t)in_bytes;
    char *c = (char *)product->c.data + offset[2] * (int64_t)out_bytes;
    const cudaDataType_t in = cublas_type(product->in), out = cublas_type(product->out);
    return cublas()->gemm_strided_batched(
        handle, operation(&product->b), operation(&product->a), product->cols, product->rows, depth, &product->alpha, b,
        in, product->b.row_stride, batch->stride[0][1], a, in, product->a.row_stride, batch->stride[0][0], &beta, c,
        out, product->c.row_stride, batch->stride[0][2], batch->count[0], compute_type(product), CUBLAS_GEMM_DEFAULT);
}

/* One strided call for each index of the other dimensions and each piece of the depth. */
static enum attn_status multiply_in_loop(cublasHandle_t handle, const struct cublas_product *product,
                                         const struct batch *batch, struct attn_message *why)
{
    const int64_t step = product->depth_step > 0 ? product->depth_step : product->depth;
    const int64_t a_step = product->a.transposed ? product->a.row_stride : 1;
    const int64_t b_step = product->b.transposed ? 1 : product->b.row_stride;
    for (int64_t i = 0; i < batch->count[1]; i++)
        for (int64_t j = 0; j < batch->count[2]; j++)
            for (int64_t from = 0; from < product->depth; from += step) {
                int64_t offset[3];
                for (int m = 0; m < 3; m++)
                    offset[m] = i * batch->stride[1][m] + j * batch->stride[2][m];
                offset[0] += from * a_step;
                offset[1] += from * b_step;
                const int64_t depth = from + step < product->depth ? step : product->depth - from;
                const enum attn_status status =
                    cublas_status(multiply_strided(handle, product, batch, offset, depth, from ? 1.0f : product->beta),
                                  "cublasGemmStridedBatchedEx", why);
                if (status != ATTN_OK)
                    return status;
            }
    return ATTN_OK;
}

/* What pointer_kernel needs: `batches` pointers of a, then of b, then of c. */
struct pointer_table {
    const char **pointers;
    int64_t batches, count[CUBLAS_BATCH_DIMENSIONS];
    const char *data[3];
    int64_t stride_bytes[CUBLAS_BATCH_DIMENSIONS][3];
};

static __global__ void pointer_kernel(struct pointer_table table)
{
    for (int64_t n = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; n < table.batches;
         n += (int64_t)gridDim.x * blockDim.x) {
        const int64_t i = n % table.count[0], rest = n / table.count[0];
        const int64_t j = rest % table.count[1], k = rest / table.count[1];
        for (int m = 0; m < 3; m++)
            table.pointers[m * table.batches + n] = table.data[m] + i * table.stride_bytes[0][m] +
                                                    j * table.stride_bytes[1][m] + k * table.stride_bytes[2][m];
    }
}

size_t cublas_pointer_bytes(int64_t batches) { return align_bytes((size_t)batches * 3 * sizeof(void *)); }

static bool aligned(const struct cublas_matrix *matrix, enum attn_dtype dtype)
{
    int64_t bits = (int64_t)(uintptr_t)matrix->data | matrix->row_stride * (int64_t)attn_dtype_bytes(dtype);
    for (int i = 0; i < CUBLAS_BATCH_DIMENSIONS; i++)
        bits |= matrix->stride[i] * (int64_t)attn_dtype_bytes(dtype);
    return bits % 16 == 0;
}

static enum attn_status multiply_by_pointers(cublasHandle_t handle, const struct cublas_product *product,
                                             const struct batch *batch, struct attn_message *why)
{
    const struct cublas_matrix *matrix[3] = {&product->a, &product->b, &product->c};
    const cudaDataType_t in = cublas_type(product->in), out = cublas_type(product->out);
    struct pointer_table table = {};
    cudaStream_t stream;
    table.pointers = (const char **)product->pointers;
    table.batches = 1;
    for (int i = 0; i < CUBLAS_BATCH_DIMENSIONS; i++) {
        table.count[i] = batch->count[i];
        table.batches *= batch->count[i];
        for (int m = 0; m < 3; m++)
            table.stride_bytes[i][m] =
                batch->stride[i][m] * (int64_t)attn_dtype_bytes(m < 2 ? product->in : product->out);
    }
    for (int m = 0; m < 3; m++)
        table.data[m] = (const char *)matrix[m]->data;
    enum attn_status status = cublas_status(cublas()->get_stream(handle, &stream), "cublasGetStream", why);
    if (status != ATTN_OK)
        return status;
    const int64_t blocks = (table.batches + 127) / 128;
    pointer_kernel<<<(unsigned)(blocks < 4096 ? blocks : 4096), 128, 0, stream>>>(table);
    status = status_cuda(cudaGetLastError(), "pointer_kernel", why);
    if (status != ATTN_OK)
        return status;
    const void *const *a = (const void *const *)table.pointers, *const *b = a + table.batches;
    return cublas_status(cublas()->gemm_batched(handle, operation(&product->b), operation(&product->a), product->cols,
                                                product->rows, product->depth, &product->alpha, b, in,
                                                product->b.row_stride, a, in, product->a.row_stride, &product->beta,
                                                (void *const *)(b + table.batches), out, product->c.row_stride,
                                                table.batches, compute_type(product), CUBLAS_GEMM_DEFAULT),
                         "cublasGemmBatchedEx", why);
}

enum attn_status cublas_multiply(cublasHandle_t handle, const struct cublas_product *product, struct attn_message *why)
{
    const struct batch batch = merged_batch(product);
    if (batch.count[1] * batch.count[2] > 1 && product->pointers && product->depth_step == 0 &&
        aligned(&product->a, product->in) && aligned(&product->b, product->in) && aligned(&product->c, product->out))
        return multiply_by_pointers(handle, product, &batch, why);
    return multiply_in_loop(handle, product, &batch, why);
}
