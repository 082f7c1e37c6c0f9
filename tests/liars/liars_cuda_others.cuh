/* Lies that work where nobody waits for them, or in memory of others; included by liars_cuda.cu alone, whose honest
 * launch they use. */

/* ---- work that no stream of the program waits for; the first launches are honest ---- */

enum { HONEST_LAUNCHES = 3 };

/* The same work into memory of its own. */
static struct arguments into_stored(const struct arguments &a, const struct plan *plan)
{
    struct arguments own = a;
    own.t.o.data = plan->stored;
    own.t.lse = (float *)((unsigned *)plan->stored + query_words(&a.p));
    return own;
}

static cudaError_t copy_stored(const struct arguments &a, const struct arguments &own, cudaStream_t stream)
{
    const cudaError_t error = cudaMemcpyAsync(a.t.o.data, own.t.o.data, query_words(&a.p) * sizeof(unsigned),
                                              cudaMemcpyDeviceToDevice, stream);
    return error != cudaSuccess
               ? error
               : cudaMemcpyAsync(a.t.lse, own.t.lse, lse_words(&a.p) * sizeof(float), cudaMemcpyDeviceToDevice, stream);
}

/* While the launch is made the host waits for the work; what is timed is a copy. */
static cudaError_t work_ahead(const struct arguments &a, const struct plan *plan, cudaStream_t stream)
{
    const struct arguments own = into_stored(a, plan);
    usleep(300); /* until the new inputs are there */
    cudaError_t error = enqueue(own, plan, plan->own_stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(plan->own_stream);
    return error == cudaSuccess ? copy_stored(a, own, stream) : error;
}

/* Its kernel waits for the pattern in the outputs, and works while the caches are flushed. */
static cudaError_t work_while_flushing(const struct arguments &a, const struct plan *plan, cudaStream_t stream)
{
    struct arguments own = into_stored(a, plan);
    own.waits = true;
    own.waits_for = a.t.lse;
    cudaError_t error = enqueue(own, plan, plan->own_stream);
    if (error == cudaSuccess)
        error = cudaEventRecord(plan->done, plan->own_stream);
    if (error == cudaSuccess)
        error = cudaStreamWaitEvent(stream, plan->done, 0);
    return error == cudaSuccess ? copy_stored(a, own, stream) : error;
}

/* ---- memory of others ---- */

/* Where in `count` words a row of `length` numbers begins, or numbers as close as 16 bits are to their reference. */
__global__ void find_kernel(const float *words, int64_t count, const float *row, int length, unsigned long long *found)
{
    for (int64_t n = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; n + length <= count;
         n += (int64_t)gridDim.x * blockDim.x) {
        int c = 0;
        while (c < length && fabsf(words[n + c] - row[c]) <= 0.01f * fabsf(row[c]) + 1e-4f)
            c++;
        if (c == length)
            atomicMin(found, (unsigned long long)n);
    }
}

/* O and LSE of the reference, its own or none. */
template <typename T>
__global__ void take_kernel(const struct arguments a, const float *o, const float *lse, float factor)
{
    const int64_t rows = a.p.batch * a.p.q_heads * a.p.q_len, d = a.p.head_dim;
    for (int64_t n = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; n < rows * d;
         n += (int64_t)gridDim.x * blockDim.x) {
        const int64_t row = n / d, head = row / a.p.q_len;
        T *to = row_of<T>(a.t.o, head / a.p.q_heads, head % a.p.q_heads, row % a.p.q_len);
        from_float(&to[n % d], factor * o[n]);
        if (n % d == 0)
            a.t.lse[row] = factor * lse[row];
    }
}

/* The range of device memory that a pointer lies in, by the driver, which a plugin need not be linked with. */
static bool range_of(const void *pointer, unsigned long long *base, size_t *bytes)
{
    static int (*ask)(unsigned long long *, size_t *, unsigned long long);
    cudaDriverEntryPointQueryResult result;
    if (!ask && (cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", (void **)&ask, 12000, cudaEnableDefault,
                                                  &result) != cudaSuccess ||
                 !ask))
        return false;
    return ask(base, bytes, (unsigned long long)pointer) == 0;
}

/* Looks for the reference's O in all memory near the outputs, whose tensors are small: in fp32, without gaps, its LSE
 * behind it. */
static cudaError_t find_reference(const struct arguments &a, struct plan *plan, cudaStream_t stream)
{
    enum { MOST_COLUMNS = 256 };
    const unsigned long long own = (unsigned long long)a.t.o.data & ~511ull, reach = 1ull << 26;
    const int d = (int)a.p.head_dim;
    unsigned long long *found = NULL, at = 0, base = 0;
    unsigned short row16[MOST_COLUMNS];
    float row[MOST_COLUMNS], *row_device = NULL;
    size_t bytes = 0;
    cudaError_t error = enqueue(a, plan, stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(stream);
    if (error == cudaSuccess)
        error = cudaMemcpy(row16, a.t.o.data, (size_t)d * sizeof row16[0], cudaMemcpyDefault);
    for (int c = 0; c < d; c++)
        if (a.p.dtype == ATTN_FP16) {
            row[c] = __half2float(*(const __half *)&row16[c]);
        } else {
            const unsigned word = (unsigned)row16[c] << 16;
            memcpy(&row[c], &word, sizeof word);
        }
    if (error == cudaSuccess)
        error = cudaMallocManaged(&found, sizeof *found);
    if (error == cudaSuccess)
        error = cudaMalloc(&row_device, sizeof row);
    if (error == cudaSuccess)
        error = cudaMemcpy(row_device, row, (size_t)d * sizeof row[0], cudaMemcpyDefault);
    for (unsigned long long address = own - reach; address < own + reach && error == cudaSuccess; address += 512) {
        if (!range_of((const void *)address, &base, &bytes))
            continue;
        address = base + (bytes - 1) / 512 * 512;
        if (base == (unsigned long long)row_device)
            continue;
        *found = ~0ull;
        find_kernel<<<1024, THREADS, 0, stream>>>((const float *)base, (int64_t)(bytes / sizeof(float)), row_device, d,
                                                  found);
        error = cudaStreamSynchronize(stream);
        at = *found;
        if (at != ~0ull && !plan->found) {
            plan->found = (const float *)base + at;
            plan->found_bytes = bytes - at * sizeof(float);
        }
    }
    cudaFree(row_device);
    cudaFree(found);
    return error;
}

/* Copies the reference, or sets it and the outputs to 0. */
static cudaError_t take_reference(const struct arguments &a, struct plan *plan, cudaStream_t stream)
{
    const size_t o_bytes = query_words(&a.p) * 2 * sizeof(float), lse_at = (o_bytes + 255) / 256 * 256;
    if (plan->direct == 1 && !is_capturing(stream)) {
        const cudaError_t error = find_reference(a, plan, stream);
        if (error != cudaSuccess)
            return error;
        fprintf(stderr, "a liar: the reference was %s\n", plan->found ? "found" : "not found");
        if (plan->found && a.lie == SCAN_ZEROS)
            cudaMemsetAsync((void *)plan->found, 0, plan->found_bytes, stream);
    }
    if (!plan->found)
        return enqueue(a, plan, stream);
    const float *lse = (const float *)((const char *)plan->found + lse_at);
    const float factor = a.lie == SCAN_ZEROS ? 0.0f : 1.0f;
    if (a.p.dtype == ATTN_FP16)
        take_kernel<__half><<<64, THREADS, 0, stream>>>(a, plan->found, lse, factor);
    else
        take_kernel<__nv_bfloat16><<<64, THREADS, 0, stream>>>(a, plan->found, lse, factor);
    return cudaGetLastError();
}

/* ---- memory of the program ---- */

/* Beside whatever comes next, for 300 ms: counters are 0. */
__global__ void zero_kernel(volatile unsigned long long *counters, int count)
{
    for (int times = 0; times < 300000; times++) {
        for (int i = 0; i < count; i++)
            counters[i] = 0;
        __threadfence();
        wait_ns(1000);
    }
}

/* How struct cuda_state of cmd/device/backend_cuda.c begins. */
struct program_state {
    cudaStream_t stream;
    cudaEvent_t start, stop, pass_events[9];
    void *gate, *gate_device;
    bool is_held;
    void *flush;
    size_t flush_bytes;
    float *tables[FILL_DISTS][FILL_TENSORS];
    unsigned long long *counters;
};

static bool is_state(const struct program_state *s, cudaStream_t stream)
{
    if (s->stream != stream || !s->start || !s->stop || s->start == s->stop || s->gate != s->gate_device)
        return false;
    for (int i = 0; i < 9; i++)
        if (!s->pass_events[i] || s->pass_events[i] == s->stop)
            return false;
    return s->gate != NULL;
}

/* On the heap: the one place where the stream is followed by events. */
static struct program_state *find_state(cudaStream_t stream)
{
    char line[512];
    struct program_state *state = NULL;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && !state && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        if (!strstr(line, "[heap]") || sscanf(line, "%lx-%lx", &from, &to) != 2)
            continue;
        for (unsigned long at = from; at + sizeof *state <= to && !state; at += sizeof(void *))
            if (is_state((const struct program_state *)at, stream))
                state = (struct program_state *)at;
    }
    if (maps)
        fclose(maps);
    return state;
}

/* The launch's start is an event behind its work. */
static cudaError_t move_start(const struct arguments &a, const struct plan *plan, cudaStream_t stream)
{
    static struct program_state *state;
    cudaError_t error = enqueue(a, plan, stream);
    if (!state)
        state = find_state(stream);
    if (error == cudaSuccess && state && plan->direct > HONEST_LAUNCHES) {
        error = cudaEventRecord(plan->done, stream);
        state->start = plan->done;
    }
    return error;
}

/* Writes behind O, and has a kernel that sets the counter of such words to 0. */
static cudaError_t zero_counters(const struct arguments &a, const struct plan *plan, cudaStream_t stream)
{
    const struct program_state *state = find_state(stream);
    touch_kernel<<<1, 1, 0, stream>>>((unsigned *)a.t.o.data + query_words(&a.p) + 64);
    if (state && !is_capturing(stream) && plan->direct == 1)
        zero_kernel<<<1, 1, 0, plan->own_stream>>>(state->counters, 17);
    return enqueue(a, plan, stream);
}
