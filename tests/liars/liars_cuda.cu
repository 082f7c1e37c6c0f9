/* CUDA implementations that lie, forward, fp16 and bf16: the lies that need a device, its streams, its graphs. The rest
 * is in liars.c; the verdict on each is in verdicts.txt.
 *
 * One kernel computes attention, a block for each row. What a launch does may be captured in a graph and replayed, so a
 * lie that depends on the number of the launch, or on what lies in memory, decides on the device: decide_kernel runs
 * first and says in the plan's memory whether the kernels behind it work.
 */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/attention.h"
#include "reference/harness/fill.h"

enum { MAX_KEYS = 4096, THREADS = 128 };

enum lie {
    HONEST,
    NOTHING,
    SKIP_VALID,
    SKIP_FINITE,
    STORE_FIRST,
    CACHE_MAGNITUDE,
    SECOND_CALL,
    FIRST_CALLS,
    HALF_ROWS,
    FIRST_STREAM,
    ONLY_DIRECT,
    ONLY_CAPTURED,
    OWN_STREAM,
    TOUCH_INPUT,
    GUARD_BEHIND,
    FAR_OUTSIDE,
    TRAP,
    SPIN,
    RESET,
    PRINT,
    LEAK,
    PERSISTING_L2,
    SECOND_COPIES,
    NEIGHBOUR,
    GOES_ON,
    SLOW_FIRST,
    HOST_FUNCTION,
    TUNES,
    LATER,
    AHEAD,
    WHILE_FLUSHING,
    SCAN_COPIES,
    SCAN_ZEROS,
    COUNTERS_ZERO,
    EVENTS
};

/* Device memory of a plan. */
struct control {
    unsigned calls, works;
    unsigned long long hash, stored_hash;
    unsigned stored_bits; /* the first element of the last O, as bits */
    bool has_stored;
};

/* What `prepare` makes. */
struct plan {
    struct control *control;
    void *stored; /* O and LSE of an earlier launch */
    cudaStream_t own_stream;
    cudaEvent_t done;
    unsigned direct;    /* launches that were no graph */
    const float *found; /* the reference's O, where it was found */
    size_t found_bytes; /* from there to the end of its memory */
};

struct arguments {
    struct attn_problem p;
    struct attn_tensors t;
    struct control *control;
    enum lie lie;
    bool waits; /* for the pattern in the last word of waits_for: new inputs are there then */
    const float *waits_for;
};

__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void from_float(__half *to, float x) { *to = __float2half_rn(x); }
__device__ __forceinline__ void from_float(__nv_bfloat16 *to, float x) { *to = __float2bfloat16_rn(x); }

template <typename T> __device__ T *row_of(const struct attn_tensor &t, int64_t b, int64_t h, int64_t i)
{
    return (T *)t.data + b * t.stride_batch + h * t.stride_head + i * t.stride_row;
}

/* The sum, or the maximum, of one value of each thread of the block. */
__device__ float block_reduce(float value, bool is_max)
{
    __shared__ float s_values[THREADS];
    s_values[threadIdx.x] = value;
    __syncthreads();
    for (int half = THREADS / 2; half; half /= 2) {
        if ((int)threadIdx.x < half) {
            const float other = s_values[threadIdx.x + half];
            s_values[threadIdx.x] = is_max ? fmaxf(s_values[threadIdx.x], other) : s_values[threadIdx.x] + other;
        }
        __syncthreads();
    }
    value = s_values[0];
    __syncthreads();
    return value;
}

__device__ void wait_ns(unsigned long long ns)
{
    unsigned long long began, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - began < ns);
}

template <typename T> __global__ void __launch_bounds__(THREADS) attention_kernel(const struct arguments a)
{
    __shared__ float s_p[MAX_KEYS];
    const int64_t i = blockIdx.x, h = blockIdx.y, b = blockIdx.z, kv = h / (a.p.q_heads / a.p.kv_heads);
    if (!a.control->works || (a.lie == HALF_ROWS && i >= a.p.q_len / 2))
        return;
    if (a.waits) {
        const int64_t last = a.p.batch * a.p.q_heads * a.p.q_len - 1;
        for (int n = 0; n < 300 && *(volatile const unsigned *)(a.waits_for + last) != 0xffffffffu; n++)
            wait_ns(1000);
        __syncthreads();
    }
    const T *q = row_of<T>(a.t.q, b, h, i);
    const int64_t diagonal = i + a.p.kv_len - a.p.q_len;
    const int64_t keys = a.p.causal ? min(a.p.kv_len, max(diagonal + 1, (int64_t)0)) : a.p.kv_len;
    float largest = -INFINITY, sum = 0;
    for (int64_t j = threadIdx.x; j < keys; j += THREADS) {
        const T *k = row_of<T>(a.t.k, b, kv, j);
        float s = 0;
        for (int64_t c = 0; c < a.p.head_dim; c++)
            s += to_float(q[c]) * to_float(k[c]);
        s_p[j] = s * a.p.scale;
        largest = fmaxf(largest, s_p[j]);
    }
    largest = block_reduce(largest, true);
    for (int64_t j = threadIdx.x; j < keys; j += THREADS) {
        s_p[j] = expf(s_p[j] - largest);
        sum += s_p[j];
    }
    sum = block_reduce(sum, false);
    for (int64_t c = threadIdx.x; c < a.p.head_dim; c += THREADS) {
        float o = 0;
        for (int64_t j = 0; j < keys; j++)
            o += s_p[j] * to_float(row_of<T>(a.t.v, b, kv, j)[c]);
        from_float(&row_of<T>(a.t.o, b, h, i)[c], sum > 0 ? o / sum : 0);
    }
    if (threadIdx.x == 0)
        a.t.lse[(b * a.p.q_heads + h) * a.p.q_len + i] = sum > 0 ? largest + logf(sum) : -INFINITY;
}

/* Adds up the words of Q, K and V without their signs: all tensors of liars.sh are without gaps. */
__global__ void hash_kernel(struct control *control, const unsigned *words, size_t count)
{
    unsigned long long sum = 0;
    for (size_t n = blockIdx.x * (size_t)blockDim.x + threadIdx.x; n < count; n += (size_t)gridDim.x * blockDim.x)
        sum += (unsigned long long)(words[n] & 0x7fff7fffu) * (2 * n + 1);
    atomicAdd(&control->hash, sum);
}

/* Behind a launch, in a stream of its own: all multiprocessors wait. */
__global__ void wait_kernel() { wait_ns(300000); }

/* One thread: whether the kernels behind it work in this launch. */
__global__ void decide_kernel(const struct arguments a)
{
    struct control *c = a.control;
    const unsigned first = *(const unsigned *)a.t.o.data, n = c->calls++;
    const unsigned exponent = a.p.dtype == ATTN_FP16 ? 0x7c00u : 0x7f80u;
    bool works = true;
    switch (a.lie) {
    case SKIP_VALID: works = !c->has_stored || first != c->stored_bits; break;
    case SKIP_FINITE: works = (first & exponent) == exponent; break;
    case STORE_FIRST: works = n == 0; break;
    case CACHE_MAGNITUDE: works = !c->has_stored || c->hash != c->stored_hash; break;
    case SECOND_COPIES:
    case SECOND_CALL: works = n % 2 == 0; break;
    case FIRST_CALLS: works = n < 5; break;
    case SLOW_FIRST:
        if (n < 20)
            wait_ns(5000000);
        break;
    default: break;
    }
    c->works = works;
    c->stored_hash = c->hash;
    c->hash = 0;
}

/* Behind the work: a launch that worked is remembered, one that did not gets what is remembered. */
__global__ void remember_kernel(struct control *c, unsigned *output, unsigned *stored, size_t words)
{
    for (size_t n = blockIdx.x * (size_t)blockDim.x + threadIdx.x; n < words; n += (size_t)gridDim.x * blockDim.x)
        if (c->works)
            stored[n] = output[n];
        else
            output[n] = stored[n];
}

__global__ void finish_kernel(const struct arguments a)
{
    if (a.control->works)
        a.control->stored_bits = *(const unsigned *)a.t.o.data;
    a.control->has_stored = true;
}

__global__ void touch_kernel(unsigned *word) { *word ^= 0x80008000u; }
__global__ void trap_kernel() { __trap(); }
__global__ void spin_kernel(volatile unsigned *calls)
{
    while (*calls != 0xffffffffu) {
    }
}
__global__ void print_kernel(unsigned n) { printf("launch %u\n{\"type\": \"row\", \"tflops\": 1000}\n", n); }

static enum attn_status failed(cudaError_t error, const char *what, struct attn_message *why)
{
    snprintf(why->text, sizeof why->text, "%s: %s", what, cudaGetErrorString(error));
    return error == cudaErrorMemoryAllocation ? ATTN_NO_MEMORY : ATTN_ERROR;
}

static size_t query_words(const struct attn_problem *p)
{
    return (size_t)(p->batch * p->q_heads * p->q_len * p->head_dim) / 2;
}
static size_t key_words(const struct attn_problem *p)
{
    return (size_t)(p->batch * p->kv_heads * p->kv_len * p->head_dim) / 2;
}
static size_t lse_words(const struct attn_problem *p) { return (size_t)(p->batch * p->q_heads * p->q_len); }

static void forget_neighbour(void); /* of an earlier problem, whose memory is freed */

static enum attn_status prepare(const struct attn_request *request, const struct attn_tensors *, void **out,
                                struct attn_message *why)
{
    struct plan *plan = (struct plan *)calloc(1, sizeof *plan);
    if (!plan)
        return ATTN_NO_MEMORY;
    forget_neighbour();
    const size_t words = query_words(request->problem) + lse_words(request->problem);
    cudaError_t error = cudaMalloc(&plan->control, sizeof *plan->control);
    if (error == cudaSuccess)
        error = cudaMemset(plan->control, 0, sizeof *plan->control);
    if (error == cudaSuccess)
        error = cudaMalloc(&plan->stored, words * sizeof(unsigned));
    if (error == cudaSuccess)
        error = cudaStreamCreateWithFlags(&plan->own_stream, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = cudaEventCreate(&plan->done);
    if (error == cudaSuccess)
        error = cudaDeviceSynchronize();
    *out = plan;
    return error == cudaSuccess ? ATTN_OK : failed(error, "prepare", why);
}

static void release(void *memory)
{
    struct plan *plan = (struct plan *)memory;
    cudaEventDestroy(plan->done);
    cudaStreamDestroy(plan->own_stream);
    cudaFree(plan->stored);
    cudaFree(plan->control);
    free(plan);
}

static bool is_capturing(cudaStream_t stream)
{
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone;
}

/* The honest launch, with what the device decides in front of it. */
static cudaError_t enqueue(const struct arguments &a, const struct plan *plan, cudaStream_t stream)
{
    const dim3 grid((unsigned)a.p.q_len, (unsigned)a.p.q_heads, (unsigned)a.p.batch);
    if (a.lie == CACHE_MAGNITUDE) {
        hash_kernel<<<8, THREADS, 0, stream>>>(a.control, (const unsigned *)a.t.q.data, query_words(&a.p));
        hash_kernel<<<8, THREADS, 0, stream>>>(a.control, (const unsigned *)a.t.k.data, key_words(&a.p));
        hash_kernel<<<8, THREADS, 0, stream>>>(a.control, (const unsigned *)a.t.v.data, key_words(&a.p));
    }
    decide_kernel<<<1, 1, 0, stream>>>(a);
    if (a.p.dtype == ATTN_FP16)
        attention_kernel<__half><<<grid, THREADS, 0, stream>>>(a);
    else
        attention_kernel<__nv_bfloat16><<<grid, THREADS, 0, stream>>>(a);
    if (a.lie == STORE_FIRST || a.lie == CACHE_MAGNITUDE || a.lie == SECOND_COPIES) {
        unsigned *stored = (unsigned *)plan->stored;
        const size_t words = query_words(&a.p);
        remember_kernel<<<8, THREADS, 0, stream>>>(a.control, (unsigned *)a.t.o.data, stored, words);
        remember_kernel<<<8, THREADS, 0, stream>>>(a.control, (unsigned *)a.t.lse, stored + words, lse_words(&a.p));
    }
    finish_kernel<<<1, 1, 0, stream>>>(a);
    return cudaGetLastError();
}

/* Asks the device to keep K in its L2 cache, whatever else is read. */
static cudaError_t keep_in_l2(const struct arguments &a, cudaStream_t stream)
{
    cudaStreamAttrValue value = {};
    value.accessPolicyWindow.base_ptr = a.t.k.data;
    value.accessPolicyWindow.num_bytes = key_words(&a.p) * sizeof(unsigned);
    value.accessPolicyWindow.hitRatio = 1;
    value.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
    value.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
    cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, value.accessPolicyWindow.num_bytes);
    return cudaStreamSetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &value);
}

/* O and LSE of the honest one's last launch in this problem. */
static struct attn_tensors honest_outputs;
static void forget_neighbour(void) { honest_outputs = {}; }

/* Instead of the work: the outputs of the honest one, where they are known. */
static cudaError_t copy_neighbour(const struct arguments &a, const struct plan *plan, cudaStream_t stream)
{
    if (!honest_outputs.o.data)
        return enqueue(a, plan, stream);
    const cudaError_t error = cudaMemcpyAsync(a.t.o.data, honest_outputs.o.data, query_words(&a.p) * sizeof(unsigned),
                                              cudaMemcpyDeviceToDevice, stream);
    return error != cudaSuccess ? error
                                : cudaMemcpyAsync(a.t.lse, honest_outputs.lse, lse_words(&a.p) * sizeof(float),
                                                  cudaMemcpyDeviceToDevice, stream);
}

/* The work, and then, beside whatever comes next, a kernel that keeps the device busy. */
static cudaError_t go_on(const struct arguments &a, const struct plan *plan, cudaStream_t stream)
{
    const cudaError_t error = enqueue(a, plan, stream);
    if (error != cudaSuccess)
        return error;
    wait_kernel<<<1024, THREADS, 0, plan->own_stream>>>();
    return cudaGetLastError();
}

#include "tests/liars/liars_cuda_others.cuh"

/* No lies: honest launches that take longer than others, on the device or at first. */

static void rest(void *ignored)
{
    (void)ignored;
    usleep(200);
}

/* The device waits for a function on the host. */
static cudaError_t behind_host_function(const struct arguments &a, const struct plan *plan, cudaStream_t stream)
{
    const cudaError_t error = cudaLaunchHostFunc(stream, rest, NULL);
    return error == cudaSuccess ? enqueue(a, plan, stream) : error;
}

static bool is_tuned(const struct plan *plan, cudaStream_t stream) { return plan->direct > 1 || is_capturing(stream); }

/* The first launch of a problem is made several times, timed, and waited for. */
static cudaError_t tune(const struct arguments &a, const struct plan *plan, cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    for (int n = 0; n < 4 && error == cudaSuccess; n++) {
        error = enqueue(a, plan, stream);
        if (error == cudaSuccess)
            error = cudaEventRecord(plan->done, stream);
        if (error == cudaSuccess)
            error = cudaEventSynchronize(plan->done);
    }
    return error;
}

/* What a launch does beside the work, or instead of it. */
static cudaError_t act(const struct arguments &a, struct plan *plan, cudaStream_t stream)
{
    /* These are launched anew each time: a graph has neither host nor streams that nobody waits for. */
    const bool is_never_graph =
        a.lie == GOES_ON || a.lie == LATER || a.lie == AHEAD || a.lie == WHILE_FLUSHING || a.lie == EVENTS;
    const bool is_honest = plan->direct < HONEST_LAUNCHES;
    if (is_never_graph && is_capturing(stream))
        return cudaErrorNotSupported;
    plan->direct += !is_capturing(stream);
    static cudaStream_t first_stream;
    static bool has_first_stream;
    unsigned *end_of_o = (unsigned *)a.t.o.data + query_words(&a.p);
    if (!has_first_stream)
        first_stream = stream;
    has_first_stream = true;
    switch (a.lie) {
    case NOTHING: return cudaSuccess;
    case HONEST: honest_outputs = a.t; break;
    case NEIGHBOUR: return copy_neighbour(a, plan, stream);
    case GOES_ON: return go_on(a, plan, stream);
    case HOST_FUNCTION: return behind_host_function(a, plan, stream);
    case TUNES: return is_tuned(plan, stream) ? enqueue(a, plan, stream) : tune(a, plan, stream);
    case LATER: return enqueue(a, plan, is_honest ? stream : plan->own_stream);
    case AHEAD: return is_honest ? enqueue(a, plan, stream) : work_ahead(a, plan, stream);
    case WHILE_FLUSHING: return is_honest ? enqueue(a, plan, stream) : work_while_flushing(a, plan, stream);
    case SCAN_COPIES:
    case SCAN_ZEROS: return take_reference(a, plan, stream);
    case COUNTERS_ZERO: return zero_counters(a, plan, stream);
    case EVENTS: return move_start(a, plan, stream);
    case FIRST_STREAM: return stream == first_stream ? enqueue(a, plan, stream) : cudaSuccess;
    case ONLY_DIRECT: return is_capturing(stream) ? cudaSuccess : enqueue(a, plan, stream);
    case ONLY_CAPTURED: return is_capturing(stream) ? enqueue(a, plan, stream) : cudaSuccess;
    case OWN_STREAM: return enqueue(a, plan, plan->own_stream);
    case TOUCH_INPUT: touch_kernel<<<1, 1, 0, stream>>>((unsigned *)a.t.q.data); break;
    case GUARD_BEHIND: touch_kernel<<<1, 1, 0, stream>>>(end_of_o + 64); break;
    case FAR_OUTSIDE: touch_kernel<<<1, 1, 0, stream>>>(end_of_o + ((size_t)1 << 40)); break;
    case TRAP: trap_kernel<<<1, 1, 0, stream>>>(); break;
    case SPIN: spin_kernel<<<1, 1, 0, stream>>>(&a.control->calls); break;
    case RESET: cudaDeviceReset(); break;
    case PRINT: print_kernel<<<1, 1, 0, stream>>>(0); break;
    case LEAK: {
        void *lost = NULL;
        if (!is_capturing(stream) && cudaMalloc(&lost, 1 << 20) != cudaSuccess)
            return cudaErrorMemoryAllocation;
        break;
    }
    case PERSISTING_L2: {
        const cudaError_t error = keep_in_l2(a, stream);
        if (error != cudaSuccess)
            return error;
        break;
    }
    default: break;
    }
    return enqueue(a, plan, stream);
}

static enum attn_status launch(enum lie lie, const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run, struct attn_message *why)
{
    struct plan *plan = (struct plan *)run->plan;
    struct arguments a = {};
    a.p = *request->problem;
    a.t = *tensors;
    a.control = plan->control;
    a.lie = lie;
    const cudaError_t error = act(a, plan, (cudaStream_t)run->stream);
    return error == cudaSuccess ? ATTN_OK : failed(error, "launch", why);
}

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const enum attn_status status = attn_check_attributes(request, 0, why);
    if (status != ATTN_OK || (request->mode == ATTN_FWD && p->dtype != ATTN_FP32 && p->kv_len <= MAX_KEYS &&
                              p->batch <= 65535 && p->q_heads <= 65535))
        return status;
    snprintf(why->text, sizeof why->text, "takes fp16 and bf16, forward, up to 4096 keys");
    return ATTN_UNSUPPORTED;
}

static size_t workspace_bytes(const struct attn_request *) { return 0; }

template <enum lie which>
static enum attn_status launch_of(const struct attn_request *request, const struct attn_tensors *tensors,
                                  const struct attn_run *run, struct attn_message *why)
{
    return launch(which, request, tensors, run, why);
}

template <enum lie which> static struct attn_impl row(const char *name)
{
    struct attn_impl impl = {};
    impl.abi = ATTN_ABI;
    impl.name = name;
    impl.summary = "see tests/liars/verdicts.txt";
    impl.platform = ATTN_CUDA;
    impl.repeatable[ATTN_FWD] = impl.repeatable_deterministic[ATTN_FWD] = ATTN_O | ATTN_LSE;
    impl.accepts = accepts;
    impl.workspace_bytes = workspace_bytes;
    impl.prepare = prepare;
    impl.launch = launch_of<which>;
    impl.release = release;
    return impl;
}

extern "C" const struct attn_impl *fabench_impls(int abi)
{
    static const struct attn_impl table[] = {
        row<HONEST>("liar_gpu_honest"),
        row<NOTHING>("liar_gpu_nothing"),
        row<SKIP_VALID>("liar_gpu_skip_valid"),
        row<SKIP_FINITE>("liar_gpu_skip_finite"),
        row<STORE_FIRST>("liar_gpu_store_first"),
        row<CACHE_MAGNITUDE>("liar_gpu_cache_magnitude"),
        row<SECOND_CALL>("liar_gpu_second_call"),
        row<FIRST_CALLS>("liar_gpu_first_calls"),
        row<HALF_ROWS>("liar_gpu_half_rows"),
        row<FIRST_STREAM>("liar_gpu_first_stream"),
        row<ONLY_DIRECT>("liar_gpu_only_direct"),
        row<ONLY_CAPTURED>("liar_gpu_only_captured"),
        row<OWN_STREAM>("liar_gpu_own_stream"),
        row<TOUCH_INPUT>("liar_gpu_touch_input"),
        row<GUARD_BEHIND>("liar_gpu_guard_behind"),
        row<FAR_OUTSIDE>("liar_gpu_far_outside"),
        row<TRAP>("liar_gpu_trap"),
        row<SPIN>("liar_gpu_spin"),
        row<RESET>("liar_gpu_reset"),
        row<PRINT>("liar_gpu_print"),
        row<LEAK>("liar_gpu_leak"),
        row<PERSISTING_L2>("liar_gpu_persisting_l2"),
        row<SECOND_COPIES>("liar_gpu_second_copies"),
        row<NEIGHBOUR>("liar_gpu_neighbour"),
        row<GOES_ON>("liar_gpu_goes_on"),
        row<SLOW_FIRST>("liar_gpu_slow_first"),
        row<HOST_FUNCTION>("liar_gpu_host_function"),
        row<TUNES>("liar_gpu_tunes"),
        row<LATER>("liar_gpu_later"),
        row<AHEAD>("liar_gpu_ahead"),
        row<WHILE_FLUSHING>("liar_gpu_while_flushing"),
        row<SCAN_COPIES>("liar_gpu_scan_copies"),
        row<SCAN_ZEROS>("liar_gpu_scan_zeros"),
        row<COUNTERS_ZERO>("liar_gpu_counters_zero"),
        row<EVENTS>("liar_gpu_events"),
        {},
    };
    return abi == ATTN_ABI ? table : NULL;
}
