/* A CUDA implementation for `fabench --impl-lib`: forward attention in fp16 and bf16, any shape and mask.
 *
 * One warp for each query row, keys one after another with an online softmax in fp32. Lane l holds the elements
 * l, l + 32, ... of the row's Q and O in registers. Written for clarity, not for speed: every key is read from device
 * memory once per row.
 */
#include <fabench/attention.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdio>

enum { WARP = 32, ROWS_PER_BLOCK = 4, MAX_HEAD_DIM = 256, PER_LANE = MAX_HEAD_DIM / WARP };

static __device__ float to_float(__half x) { return __half2float(x); }
static __device__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
static __device__ void from_float(__half *to, float x) { *to = __float2half_rn(x); }
static __device__ void from_float(__nv_bfloat16 *to, float x) { *to = __float2bfloat16_rn(x); }

template <typename T> static __device__ T *row_of(const struct attn_tensor &t, int64_t b, int64_t h, int64_t i)
{
    return (T *)t.data + b * t.stride_batch + h * t.stride_head + i * t.stride_row;
}

/* First and last visible key of a row: attn_visible of the header, for the device. */
static __device__ void visible(const struct attn_problem &p, int64_t row, int64_t *first, int64_t *last)
{
    const int64_t diagonal = row + p.kv_len - p.q_len;
    *first = p.window_left >= 0 ? max((int64_t)0, diagonal - p.window_left) : 0;
    *last = p.kv_len - 1;
    if (p.causal)
        *last = min(*last, diagonal);
    if (p.window_right >= 0)
        *last = min(*last, diagonal + p.window_right);
}

template <typename T>
static __global__ void __launch_bounds__(WARP *ROWS_PER_BLOCK)
    forward_kernel(const struct attn_problem p, const struct attn_tensors t)
{
    const int64_t row = (int64_t)blockIdx.x * ROWS_PER_BLOCK + threadIdx.x / WARP;
    const int64_t i = row % p.q_len, h = row / p.q_len % p.q_heads, b = row / p.q_len / p.q_heads;
    const int64_t kv = h / (p.q_heads / p.kv_heads);
    const int lane = threadIdx.x % WARP;
    if (row >= p.batch * p.q_heads * p.q_len)
        return;

    float q[PER_LANE], o[PER_LANE], row_max = -INFINITY, row_sum = 0;
    for (int n = 0; n < PER_LANE; n++) {
        const int c = lane + n * WARP;
        q[n] = c < p.head_dim ? p.scale * to_float(row_of<T>(t.q, b, h, i)[c]) : 0.0f;
        o[n] = 0;
    }
    int64_t first, last;
    visible(p, i, &first, &last);
    for (int64_t j = first; j <= last; j++) {
        const T *k = row_of<T>(t.k, b, kv, j), *v = row_of<T>(t.v, b, kv, j);
        float score = 0;
        for (int n = 0; n < PER_LANE; n++)
            if (lane + n * WARP < p.head_dim)
                score += q[n] * to_float(k[lane + n * WARP]);
        for (int offset = WARP / 2; offset; offset /= 2)
            score += __shfl_xor_sync(0xffffffffu, score, offset);
        const float new_max = fmaxf(row_max, score);
        const float correction = expf(row_max - new_max), weight = expf(score - new_max);
        row_sum = row_sum * correction + weight;
        row_max = new_max;
        for (int n = 0; n < PER_LANE; n++)
            if (lane + n * WARP < p.head_dim)
                o[n] = o[n] * correction + weight * to_float(v[lane + n * WARP]);
    }
    for (int n = 0; n < PER_LANE; n++)
        if (lane + n * WARP < p.head_dim)
            from_float(&row_of<T>(t.o, b, h, i)[lane + n * WARP], row_sum > 0 ? o[n] / row_sum : 0.0f);
    if (lane == 0)
        t.lse[row] = row_sum > 0 ? row_max + logf(row_sum) : -INFINITY;
}

static int64_t blocks_of(const struct attn_problem *p)
{
    return (p->batch * p->q_heads * p->q_len + ROWS_PER_BLOCK - 1) / ROWS_PER_BLOCK;
}

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const char *reason = NULL;
    const enum attn_status status = attn_check_attributes(request, ATTN_WITH_WINDOW, why);
    if (status != ATTN_OK)
        return status;
    if (request->mode != ATTN_FWD)
        reason = "forward only";
    else if (p->dtype == ATTN_FP32)
        reason = "takes fp16 and bf16";
    else if (p->head_dim > MAX_HEAD_DIM || blocks_of(p) > INT32_MAX)
        reason = "takes head dims up to 256 and 2^33 rows";
    if (!reason)
        return ATTN_OK;
    snprintf(why->text, sizeof why->text, "%s", reason);
    return ATTN_UNSUPPORTED;
}

static size_t workspace_bytes(const struct attn_request *) { return 0; }

static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const cudaStream_t stream = (cudaStream_t)run->stream;
    const unsigned blocks = (unsigned)blocks_of(p);
    if (p->dtype == ATTN_FP16)
        forward_kernel<__half><<<blocks, WARP * ROWS_PER_BLOCK, 0, stream>>>(*p, *tensors);
    else
        forward_kernel<__nv_bfloat16><<<blocks, WARP * ROWS_PER_BLOCK, 0, stream>>>(*p, *tensors);
    const cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess)
        return ATTN_OK;
    snprintf(why->text, sizeof why->text, "forward_kernel: %s", cudaGetErrorString(error));
    return ATTN_ERROR;
}

static struct attn_impl plugin_cuda(void)
{
    struct attn_impl impl = {};
    impl.abi = ATTN_ABI;
    impl.name = "plugin_cuda";
    impl.summary = "example: one warp for each row, forward";
    impl.platform = ATTN_CUDA;
    impl.repeatable[ATTN_FWD] = impl.repeatable_deterministic[ATTN_FWD] = ATTN_O | ATTN_LSE;
    impl.accepts = accepts;
    impl.workspace_bytes = workspace_bytes;
    impl.launch = launch;
    return impl;
}

extern "C" const struct attn_impl *fabench_impls(int abi)
{
    static const struct attn_impl table[] = {plugin_cuda(), {}};
    return abi == ATTN_ABI ? table : NULL;
}
