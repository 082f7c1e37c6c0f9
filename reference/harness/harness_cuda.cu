/* The harness' own kernels, see reference/harness/harness_cuda.h: inputs, fill patterns and their check, signs,
 * digests, the stream gate and the flush of the L2. Plain grid-stride loops: none runs inside a timed region, except
 * the end of the gate. */
#include "reference/harness/harness_cuda.h"

#include "reference/harness/fill.h"
#include "kernels/device/registers.cuh"
#include "reference/rows.cuh"

/* DIGEST_BLOCKS: few, because each of them ends with two atomic additions to one address. */
enum { HARNESS_THREADS = 256, HARNESS_BLOCKS = 8192, DIGEST_BLOCKS = 2048 };

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
__global__ void stretch_kernel(struct attn_tensor tensor, struct extent extent, uint64_t seed, uint32_t tensor_id,
                               enum fill_stretch kind)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < extent.elements;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t row = quotient(i, extent.head_dim);
        const float factor =
            fill_stretch_factor(kind, seed, tensor_id, (uint64_t)i, row - quotient(row, extent.len) * extent.len,
                                extent.len, i - row * extent.head_dim);
        T *const at = &static_cast<T *>(tensor.data)[element_offset(tensor, extent, i)];
        *at = from_float<T>(__fmul_rn(factor, to_float(*at)));
    }
}

int harness_stretch(struct attn_tensor tensor, enum attn_dtype dtype, int64_t batch, int64_t heads, int64_t len,
                    int64_t head_dim, uint64_t seed, uint32_t tensor_id, enum fill_stretch kind, void *stream)
{
    const struct extent extent = extent_of(batch, heads, len, head_dim);
    const unsigned grid = blocks_for(extent.elements);
    const cudaStream_t s = (cudaStream_t)stream;
    if (dtype == ATTN_FP16)
        stretch_kernel<__half><<<grid, HARNESS_THREADS, 0, s>>>(tensor, extent, seed, tensor_id, kind);
    else if (dtype == ATTN_BF16)
        stretch_kernel<__nv_bfloat16><<<grid, HARNESS_THREADS, 0, s>>>(tensor, extent, seed, tensor_id, kind);
    else
        stretch_kernel<float><<<grid, HARNESS_THREADS, 0, s>>>(tensor, extent, seed, tensor_id, kind);
    return cudaGetLastError();
}

template <typename T>
__global__ void first_column_kernel(struct attn_tensor tensor, int64_t heads, int64_t len, int64_t rows,
                                    struct fill_column column)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < rows; i += (int64_t)gridDim.x * blockDim.x)
        static_cast<T *>(tensor.data)[row_offset(tensor, heads, len, i)] =
            from_float<T>(fill_column_value(column, i - quotient(i, len) * len, len));
}

int harness_fill_first_column(struct attn_tensor tensor, enum attn_dtype dtype, int64_t batch, int64_t heads,
                              int64_t len, struct fill_column column, void *stream)
{
    const int64_t rows = batch * heads * len;
    const unsigned grid = blocks_for(rows);
    const cudaStream_t s = (cudaStream_t)stream;
    if (dtype == ATTN_FP16)
        first_column_kernel<__half><<<grid, HARNESS_THREADS, 0, s>>>(tensor, heads, len, rows, column);
    else if (dtype == ATTN_BF16)
        first_column_kernel<__nv_bfloat16><<<grid, HARNESS_THREADS, 0, s>>>(tensor, heads, len, rows, column);
    else
        first_column_kernel<float><<<grid, HARNESS_THREADS, 0, s>>>(tensor, heads, len, rows, column);
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

/* What one thread reads and writes at once in a tensor whose rows consist of whole aligned vectors of 16 bytes:
 * `columns` elements. In other tensors single elements. */
struct row_vectors {
    int64_t per_row, count;
    int columns;
};

static struct row_vectors vectors_of(const struct attn_tensor *tensor, size_t element_bytes,
                                     const struct extent *extent)
{
    const int columns = (int)(16 / element_bytes);
    const bool whole = (uintptr_t)tensor->data % 16 == 0 && extent->head_dim % columns == 0 &&
                       tensor->stride_row % columns == 0 && tensor->stride_head % columns == 0 &&
                       tensor->stride_batch % columns == 0;
    const struct row_vectors vectors = {whole ? extent->head_dim / columns : extent->head_dim,
                                        whole ? extent->elements / columns : extent->elements, whole ? columns : 1};
    return vectors;
}

/* The 16 bytes that vector number `vector` of a row is XORed with to change its signs; number: of all vectors. */
template <typename Bits>
__device__ __forceinline__ uint4 sign_mask(const struct column_signs &signs, int64_t vector, int64_t number)
{
    const int columns = 16 / (int)sizeof(Bits);
    const int64_t column = vector * columns;
    const uint32_t bits = signs.negated[column / 32 % (SIGNS_COLUMNS / 32)] >> (column % 32) ^
                          elements_negated(&signs, number * columns, column);
    const int per_word = 4 / (int)sizeof(Bits);
    uint32_t words[4];
    for (int w = 0; w < 4; w++) {
        words[w] = 0;
        for (int i = 0; i < per_word; i++)
            words[w] |= (bits >> (per_word * w + i) & 1) << (8 * (int)sizeof(Bits) * (i + 1) - 1);
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* Does element number `number` of the tensor, in this column, change its sign? */
__device__ __forceinline__ bool is_negated(const struct column_signs &signs, int64_t column, int64_t number)
{
    return column_is_negated(&signs, column) != ((elements_negated(&signs, number, column) & 1) != 0);
}

template <typename Bits>
__global__ void flip_kernel(struct attn_tensor tensor, struct extent extent, struct row_vectors vectors,
                            struct column_signs signs)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < vectors.count;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t row = quotient(i, vectors.per_row), in_row = i - row * vectors.per_row;
        Bits *const at = static_cast<Bits *>(tensor.data) + row_offset(tensor, extent.heads, extent.len, row) +
                         in_row * vectors.columns;
        if (vectors.columns == 1) {
            *at ^= is_negated(signs, in_row, i) ? (Bits)sign_bit(sizeof(Bits)) : (Bits)0;
            continue;
        }
        uint4 *const vector = reinterpret_cast<uint4 *>(at);
        const uint4 mask = sign_mask<Bits>(signs, in_row, i);
        uint4 value = *vector;
        value.x ^= mask.x;
        value.y ^= mask.y;
        value.z ^= mask.z;
        value.w ^= mask.w;
        *vector = value;
    }
}

int harness_flip(struct attn_tensor tensor, size_t element_bytes, int64_t batch, int64_t heads, int64_t len,
                 int64_t head_dim, const struct column_signs *signs, void *stream)
{
    if (element_bytes != 1 && element_bytes != 2 && element_bytes != 4)
        return cudaErrorInvalidValue;
    const struct extent extent = extent_of(batch, heads, len, head_dim);
    const struct row_vectors vectors = vectors_of(&tensor, element_bytes, &extent);
    const unsigned grid = blocks_for(vectors.count);
    if (element_bytes == 1)
        flip_kernel<uint8_t><<<grid, HARNESS_THREADS, 0, (cudaStream_t)stream>>>(tensor, extent, vectors, *signs);
    else if (element_bytes == 2)
        flip_kernel<uint16_t><<<grid, HARNESS_THREADS, 0, (cudaStream_t)stream>>>(tensor, extent, vectors, *signs);
    else
        flip_kernel<uint32_t><<<grid, HARNESS_THREADS, 0, (cudaStream_t)stream>>>(tensor, extent, vectors, *signs);
    return cudaGetLastError();
}

/* A word of one, two or four elements: its signs changed by `mask`, and zeros without a sign. */
template <typename Bits> __device__ __forceinline__ uint32_t canonical(uint32_t word, uint32_t mask)
{
    word ^= mask;
    if (sizeof(Bits) == 4)
        return word << 1 == 0 ? 0 : word;
    if (sizeof(Bits) == 1) {
        uint32_t kept = 0;
        for (int i = 0; i < 32; i += 8)
            kept |= (word >> i & 0x7fu) == 0 ? 0 : word & 0xffu << i;
        return kept;
    }
    const uint32_t low = word & 0xffffu, high = word >> 16;
    return ((low & 0x7fffu) == 0 ? 0 : low) | ((high & 0x7fffu) == 0 ? 0 : high) << 16;
}

/* The number of elements in a word whose bits are all set. */
template <typename Bits> __device__ __forceinline__ unsigned all_set(uint32_t word)
{
    unsigned count = 0;
    for (int i = 0; i < 32; i += 8 * (int)sizeof(Bits))
        count += (Bits)(word >> i) == (Bits) ~(Bits)0;
    return count;
}

__device__ __forceinline__ uint64_t mixed(uint64_t position, uint64_t low, uint64_t high)
{
    uint64_t z = (position * 0x9E3779B97F4A7C15ull ^ low) * 0xD1B54A32D192ED03ull;
    z = ((z ^ z >> 32) + high) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 29) * 0x94D049BB133111EBull;
    return z ^ z >> 32;
}

/* The sum of `value` over the threads of the block, added to *sum by one of them. Integer addition, so the order does
 * not matter. */
__device__ __forceinline__ void add_threads(unsigned long long value, unsigned long long *sum)
{
    __shared__ unsigned long long warps[HARNESS_THREADS / 32];
    for (int lane = 16; lane > 0; lane >>= 1)
        value += __shfl_xor_sync(0xffffffffu, value, lane);
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < HARNESS_THREADS / 32; w++)
            value += warps[w];
        if (value != 0)
            atomicAdd(sum, value);
    }
    __syncthreads();
}

template <typename Bits>
__global__ void digest_kernel(struct attn_tensor tensor, struct extent extent, struct row_vectors vectors,
                              struct column_signs signs, unsigned long long *digest)
{
    unsigned long long hash = 0, poisoned = 0;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < vectors.count;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t row = quotient(i, vectors.per_row), in_row = i - row * vectors.per_row;
        const Bits *const at = static_cast<const Bits *>(tensor.data) +
                               row_offset(tensor, extent.heads, extent.len, row) + in_row * vectors.columns;
        if (vectors.columns == 1) {
            const Bits negate = is_negated(signs, in_row, i) ? (Bits)sign_bit(sizeof(Bits)) : (Bits)0;
            poisoned += *at == (Bits) ~(Bits)0;
            hash += mixed((uint64_t)i, canonical<Bits>(*at, negate), 0);
            continue;
        }
        const uint4 value = *reinterpret_cast<const uint4 *>(at), mask = sign_mask<Bits>(signs, in_row, i);
        poisoned += all_set<Bits>(value.x) + all_set<Bits>(value.y) + all_set<Bits>(value.z) + all_set<Bits>(value.w);
        const uint64_t low = (uint64_t)canonical<Bits>(value.y, mask.y) << 32 | canonical<Bits>(value.x, mask.x);
        const uint64_t high = (uint64_t)canonical<Bits>(value.w, mask.w) << 32 | canonical<Bits>(value.z, mask.z);
        hash += mixed((uint64_t)i, low, high);
    }
    add_threads(hash, &digest[0]);
    add_threads(poisoned, &digest[1]);
}

int harness_digest(struct attn_tensor tensor, size_t element_bytes, int64_t batch, int64_t heads, int64_t len,
                   int64_t head_dim, const struct column_signs *signs, unsigned long long *digest, void *stream)
{
    if (element_bytes != 1 && element_bytes != 2 && element_bytes != 4)
        return cudaErrorInvalidValue;
    const struct extent extent = extent_of(batch, heads, len, head_dim);
    const struct row_vectors vectors = vectors_of(&tensor, element_bytes, &extent);
    const unsigned wanted = blocks_for(vectors.count), limit = DIGEST_BLOCKS, grid = wanted < limit ? wanted : limit;
    const cudaStream_t s = (cudaStream_t)stream;
    if (element_bytes == 1)
        digest_kernel<uint8_t><<<grid, HARNESS_THREADS, 0, s>>>(tensor, extent, vectors, *signs, digest);
    else if (element_bytes == 2)
        digest_kernel<uint16_t><<<grid, HARNESS_THREADS, 0, s>>>(tensor, extent, vectors, *signs, digest);
    else
        digest_kernel<uint32_t><<<grid, HARNESS_THREADS, 0, s>>>(tensor, extent, vectors, *signs, digest);
    return cudaGetLastError();
}

__global__ void look_kernel(struct harness_look look, unsigned long long *sum)
{
    const int64_t thread = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    const int64_t page_words = look.page_bytes / 4;
    unsigned long long seen = 0;
    for (int s = 0; s < look.count; s++) {
        const volatile uint32_t *const words = (const volatile uint32_t *)look.data[s];
        const int64_t count = (int64_t)(look.bytes[s] / 4);
        for (int64_t page = thread; page * page_words < count; page += step) {
            const int64_t first = page * page_words, left = count - first;
            const uint64_t number = (uint64_t)page * HARNESS_SPANS + s;
            const int64_t word = (int64_t)(mixed(number, look.seed, 0) % (left < page_words ? left : page_words));
            seen += mixed(number, words[first + word], 1);
        }
    }
    add_threads(seen, sum);
}

int harness_look(const struct harness_look *look, unsigned long long *sum, void *stream)
{
    size_t most = 0;
    for (int s = 0; s < look->count; s++)
        most = look->bytes[s] > most ? look->bytes[s] : most;
    const unsigned grid = blocks_for((int64_t)(most / look->page_bytes) + 1);
    look_kernel<<<grid, HARNESS_THREADS, 0, (cudaStream_t)stream>>>(*look, sum);
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
