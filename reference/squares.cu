#include "reference/squares.cuh"

#include "reference/reference.h"
#include "reference/rows.cuh"
#include "reference/status.h"

static unsigned grid_of(int64_t elements)
{
    const int64_t blocks = (elements + REFERENCE_THREADS - 1) / REFERENCE_THREADS;
    return (unsigned)(blocks < 8192 ? blocks : 8192);
}

__global__ void square_elements(const float *x, int64_t elements, float *to)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < elements; i += (int64_t)gridDim.x * blockDim.x)
        to[i] = x[i] * x[i];
}

__global__ void take_products(float *product, const float *squares, double scale, int64_t elements)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < elements; i += (int64_t)gridDim.x * blockDim.x)
        product[i] = (float)reference_product((double)product[i], scale * scale * (double)squares[i]);
}

enum attn_status squares_make(const float *x, int64_t elements, float *to, cudaStream_t stream,
                              struct attn_message *why)
{
    if (elements == 0)
        return ATTN_OK;
    square_elements<<<grid_of(elements), REFERENCE_THREADS, 0, stream>>>(x, elements, to);
    return status_cuda(cudaGetLastError(), "square_elements", why);
}

enum attn_status squares_take(float *product, const float *squares, double scale, int64_t elements, cudaStream_t stream,
                              struct attn_message *why)
{
    if (elements == 0)
        return ATTN_OK;
    take_products<<<grid_of(elements), REFERENCE_THREADS, 0, stream>>>(product, squares, scale, elements);
    return status_cuda(cudaGetLastError(), "take_products", why);
}
