/* The harness' own kernels, see reference/harness/harness_cuda.h: inputs, fill patterns and their check, hashes, the
 * stream gate and the flush of the L2. Plain grid-stride loops: none runs inside a timed region, except the end of the
 * gate. */
#include "reference/harness/harness_cuda.h"

#include "reference/harness/fill.h"
#include "kernels/device/globaltimer.cuh"
#include "reference/rows.cuh"

enum { HARNESS_THREADS = 256, HARNESS_BLOCKS = 8192 };

static unsigned blocks_for(int64_t items)
{
    const int64_t blocks = (items + HARNESS_THREADS - 1) / HARNESS_THREADS;
    const int64_t limit = HARNESS_BLOCKS;
    return (unsigned)(blocks < 1 ? 1 : blocks < limit ? blocks : limit);
}

/* Shape of a tensor whose elements are visited in the order [batch, heads, len, head_dim]. */
struct extent {
    int64_t heads, len, head_dim, elements;
};

static struct extent extent_of(int64_t batch, int64_t heads, int64_t len, int64_t head_dim)
{
    struct extent extent = {heads, len, head_dim, batch * heads * len * head_dim};
    return extent;
}

__device__ __forceinline__ int64_t element_offset(const struct attn_tensor &tensor, const struct extent &extent,
                                                  int64_t index)
{
    const int64_t row = quotient(index, extent.head_dim);
    return row_offset(tensor, extent.heads, extent.len, row) + (index - row * extent.head_dim);
}

template <typename T>
__global__ void fill_kernel(struct attn_tensor tensor, struct extent extent, uint64_t seed, uint32_t tensor_id,
                            float gain, const float *table)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < extent.elements;
         i += (int64_t)gridDim.x * blockDim.x) {
        const float value = __fmul_rn(gain, table[fill_random16(seed, tensor_id, (uint64_t)i)]);
        static_cast<T *>(tensor.data)[element_offset(tensor, extent, i)] = from_float<T>(value);
    }
}

int harness_fill(struct attn_tensor tensor, enum attn_dtype dtype, int64_t batch, int64_t heads, int64_t len,
                 int64_t head_dim, uint64_t seed, uint32_t tensor_id, float gain, const float *quantile_table,
                 void *stream)
{
    const struct extent extent = extent_of(batch, heads, len, head_dim);
    const unsigned grid = blocks_for(extent.elements);
    const cudaStream_t s = (cudaStream_t)stream;
    if (dtype == ATTN_FP16)
        fill_kernel<__half><<<grid, HARNESS_THREADS, 0, s>>>(tensor, extent, seed, tensor_id, gain, quantile_table);
    else if (dtype == ATTN_BF16)
        fill_kernel<__nv_bfloat16>
            <<<grid, HARNESS_THREADS, 0, s>>>(tensor, extent, seed, tensor_id, gain, quantile_table);
    else
        fill_kernel<float><<<grid, HARNESS_THREADS, 0, s>>>(tensor, extent, seed, tensor_id, gain, quantile_table);
    return cudaGetLastError();
}

template <typename T>
__global__ void round_kernel(const float *__restrict__ from, struct attn_tensor to, struct extent extent)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < extent.elements;
         i += (int64_t)gridDim.x * blockDim.x)
        static_cast<T *>(to.data)[element_offset(to, extent, i)] = from_float<T>(from[i]);
}

int harness_round(const float *from, struct attn_tensor to, enum attn_dtype dtype, int64_t batch, int64_t heads,
                  int64_t len, int64_t head_dim, void *stream)
{
    const struct extent extent = extent_of(batch, heads, len, head_dim);
    const unsigned grid = blocks_for(extent.elements);
    const cudaStream_t s = (cudaStream_t)stream;
    if (dtype == ATTN_FP16)
        round_kernel<__half><<<grid, HARNESS_THREADS, 0, s>>>(from, to, extent);
    else if (dtype == ATTN_BF16)
        round_kernel<__nv_bfloat16><<<grid, HARNESS_THREADS, 0, s>>>(from, to, extent);
    else
        round_kernel<float><<<grid, HARNESS_THREADS, 0, s>>>(from, to, extent);
    return cudaGetLastError();
}

/* The part of a buffer that whole aligned uint4 cover; guard areas may start at any byte. */
struct pattern_span {
    uint4 *vectors;
    int64_t vector_count;
    unsigned char *tail; /* bytes that the vectors do not cover, one by one */
    int64_t tail_bytes;
};

static struct pattern_span span_of(void *buffer, size_t bytes)
{
    struct pattern_span span = {(uint4 *)buffer, (uintptr_t)buffer % 16 == 0 ? (int64_t)(bytes / 16) : 0, NULL, 0};
    span.tail = (unsigned char *)buffer + span.vector_count * 16;
    span.tail_bytes = (int64_t)bytes - span.vector_count * 16;
    return span;
}

__global__ void pattern_kernel(struct pattern_span span, uint32_t pattern)
{
    const int64_t first = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = first; i < span.vector_count; i += step)
        span.vectors[i] = make_uint4(pattern, pattern, pattern, pattern);
    for (int64_t i = first; i < span.tail_bytes; i += step)
        span.tail[i] = (unsigned char)(pattern >> (8 * (i % 4)));
}

int harness_pattern(void *buffer, size_t bytes, uint32_t pattern, void *stream)
{
    const struct pattern_span span = span_of(buffer, bytes);
    pattern_kernel<<<blocks_for(span.vector_count + span.tail_bytes), HARNESS_THREADS, 0, (cudaStream_t)stream>>>(
        span, pattern);
    return cudaGetLastError();
}

/* Adds the values of a block's threads to *sum. Integer addition, so the order does not matter. */
__device__ __forceinline__ void add_block(unsigned long long value, unsigned long long *sum)
{
    for (int lane = 16; lane > 0; lane >>= 1)
        value += __shfl_xor_sync(0xffffffffu, value, lane);
    if (threadIdx.x % 32 == 0 && value != 0)
        atomicAdd(sum, value);
}

__global__ void mismatch_kernel(struct pattern_span span, uint32_t pattern, unsigned long long *mismatches)
{
    const int64_t first = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    unsigned long long count = 0;
    for (int64_t i = first; i < span.vector_count; i += step) {
        const uint4 v = span.vectors[i];
        count += (v.x != pattern) + (v.y != pattern) + (v.z != pattern) + (v.w != pattern);
    }
    for (int64_t word = first; word * 4 < span.tail_bytes; word += step) {
        bool equal = true;
        for (int64_t i = word * 4; i < word * 4 + 4 && i < span.tail_bytes; i++)
            equal = equal && span.tail[i] == (unsigned char)(pattern >> (8 * (i % 4)));
        count += !equal;
    }
    add_block(count, mismatches);
}

int harness_count_mismatch(const void *buffer, size_t bytes, uint32_t pattern, unsigned long long *mismatches,
                           void *stream)
{
    const struct pattern_span span = span_of((void *)buffer, bytes);
    mismatch_kernel<<<blocks_for(span.vector_count + span.tail_bytes), HARNESS_THREADS, 0, (cudaStream_t)stream>>>(
        span, pattern, mismatches);
    return cudaGetLastError();
}

/* A sum of hashed (position, bits) pairs: equal for equal tensors, different with high probability otherwise. */
template <typename Bits>
__global__ void hash_kernel(struct attn_tensor tensor, struct extent extent, unsigned long long *hash)
{
    unsigned long long sum = 0;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < extent.elements;
         i += (int64_t)gridDim.x * blockDim.x) {
        const uint64_t bits = static_cast<const Bits *>(tensor.data)[element_offset(tensor, extent, i)];
        uint64_t z = (uint64_t)i * 0x9E3779B97F4A7C15ull + (bits + 1) * 0xD1B54A32D192ED03ull;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        sum += z ^ (z >> 31);
    }
    add_block(sum, hash);
}

int harness_hash(struct attn_tensor tensor, size_t element_bytes, int64_t batch, int64_t heads, int64_t len,
                 int64_t head_dim, unsigned long long *hash, void *stream)
{
    const struct extent extent = extent_of(batch, heads, len, head_dim);
    const unsigned grid = blocks_for(extent.elements);
    if (element_bytes == 2)
        hash_kernel<uint16_t><<<grid, HARNESS_THREADS, 0, (cudaStream_t)stream>>>(tensor, extent, hash);
    else if (element_bytes == 4)
        hash_kernel<uint32_t><<<grid, HARNESS_THREADS, 0, (cudaStream_t)stream>>>(tensor, extent, hash);
    else
        return cudaErrorInvalidValue;
    return cudaGetLastError();
}

__global__ void gate_kernel(volatile int *open, volatile int *timed_out, uint64_t limit_ns)
{
    const uint64_t start = device::globaltimer_ns();
    while (*open == 0)
        if (device::globaltimer_ns() - start > limit_ns) {
            *timed_out = 1;
            __threadfence_system();
            return;
        }
}

int harness_gate(volatile int *open_device, volatile int *timed_out_device, uint64_t limit_ns, void *stream)
{
    gate_kernel<<<1, 1, 0, (cudaStream_t)stream>>>(open_device, timed_out_device, limit_ns);
    return cudaGetLastError();
}

__global__ void flush_kernel(uint32_t *words, int64_t count)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x)
        words[i] += 1;
}

int harness_flush_l2(void *buffer, size_t bytes, void *stream)
{
    const int64_t words = (int64_t)(bytes / sizeof(uint32_t));
    flush_kernel<<<blocks_for(words), HARNESS_THREADS, 0, (cudaStream_t)stream>>>((uint32_t *)buffer, words);
    return cudaGetLastError();
}
