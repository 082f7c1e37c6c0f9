/* FlashAttention-3 as an implementation for `fabench --impl-lib`: fills the parameters of its kernels from a request.
 *
 * This file has no code of FlashAttention. It includes flash.h of the user's checkout (folder hopper), which declares
 * the parameters and the kernels' entry points; CMakeLists.txt compiles these from the same checkout. Written for its
 * commit 0251105a.
 *
 * Facts of that interface: strides are in elements, the last dimension is contiguous, pointers and strides are
 * multiples of 16 bytes (TMA). LSE is fp32 [batch, heads, q_len], natural logarithm. A causal mask is a window with 0
 * keys on the right and no end on the left; "no end" is the length - 1. Forward under a mask counts its tiles in one
 * int that must be 0. Backward needs fp32 accumulators and semaphores whose sizes follow from the tile of the kernel.
 */
#include <fabench/attention.h>

#include <cuda_runtime.h>
#include <cutlass/numeric_types.h>

#include <cstdio>

#include "flash.h"

namespace {

attn_status refuse(attn_message *why, const char *text)
{
    snprintf(why->text, sizeof why->text, "%s", text);
    return ATTN_UNSUPPORTED;
}

attn_status check(cudaError_t error, const char *call, attn_message *why)
{
    if (error == cudaSuccess)
        return ATTN_OK;
    snprintf(why->text, sizeof why->text, "%s: %s", call, cudaGetErrorString(error));
    return ATTN_ERROR;
}

bool fits_int(int64_t n) { return n > 0 && n < INT32_MAX; }

attn_status accepts(const attn_request *request, attn_message *why)
{
    const attn_problem &p = *request->problem;
    if (attn_check_attributes(request, ATTN_WITH_WINDOW, why) != ATTN_OK)
        return ATTN_UNSUPPORTED;
    if (request->device->platform != ATTN_CUDA)
        return refuse(why, "runs on CUDA devices only");
    if (request->device->sm != 90) {
        snprintf(why->text, sizeof why->text, "needs compute capability 9.0 (H100, H200), this device has %d.%d",
                 request->device->sm / 10, request->device->sm % 10);
        return ATTN_UNSUPPORTED;
    }
    if (p.dtype != ATTN_FP16 && p.dtype != ATTN_BF16)
        return refuse(why, "takes fp16 and bf16 only");
    if (p.head_dim != 64 && p.head_dim != 128)
        return refuse(why, "this plugin builds head dims 64 and 128 only");
    if (!fits_int(p.batch) || !fits_int(p.q_heads) || !fits_int(p.kv_heads) || !fits_int(p.q_len) ||
        !fits_int(p.kv_len) || !fits_int(p.batch * p.q_len) || !fits_int(p.batch * p.kv_len))
        return refuse(why, "takes sizes and numbers of tokens below 2^31 only");
    if (request->mode == ATTN_BWD && request->deterministic)
        return refuse(why, "this plugin calls the backward that sums dQ by atomics, which is not deterministic");
    if (request->variant)
        return refuse(why, "has no variants to choose");
    return ATTN_OK;
}

int rounded_up(int64_t n, int64_t multiple) { return (int)((n + multiple - 1) / multiple * multiple); }

/* The mask as FlashAttention-3 has it. */
struct mask {
    bool causal, local;
    int left, right;
};

mask mask_of(const attn_problem &p)
{
    const int64_t right_asked = p.causal ? 0 : p.window_right;
    const bool left = p.window_left >= 0 && p.window_left < p.kv_len - 1;
    const bool right = right_asked >= 0 && (p.causal || right_asked < p.q_len - 1);
    mask m = {};
    m.causal = !left && right && right_asked == 0;
    m.local = (left || right) && !m.causal;
    m.left = (int)(left ? p.window_left : p.kv_len - 1);
    m.right = (int)(right ? right_asked : p.q_len - 1);
    return m;
}

/* The tile of the backward kernels: rows, and keys. */
int bwd_rows(const attn_problem &p)
{
    const mask m = mask_of(p);
    return p.head_dim == 64 ? 128 : m.causal || m.local ? 64 : 80;
}
enum { BWD_KEYS = 128 };

/* The parts of the workspace, in bytes from its beginning. */
struct parts {
    size_t counter, delta, lse_log2, dq, dk, dv, semaphores, total;
};

size_t place(size_t *total, size_t bytes)
{
    const size_t at = *total;
    *total += (bytes + 255) / 256 * 256;
    return at;
}

parts parts_of(const attn_request *request)
{
    const attn_problem &p = *request->problem;
    parts w = {};
    w.counter = place(&w.total, sizeof(int));
    if (request->mode == ATTN_FWD)
        return w;
    const int rows = rounded_up(p.q_len, bwd_rows(p)), keys = rounded_up(p.kv_len, BWD_KEYS);
    const size_t heads = (size_t)(p.batch * p.q_heads), kv_heads = (size_t)(p.batch * p.kv_heads);
    const size_t d = (size_t)p.head_dim, grouped = p.q_heads != p.kv_heads;
    w.delta = place(&w.total, heads * rows * sizeof(float));
    w.lse_log2 = place(&w.total, heads * rows * sizeof(float));
    w.dq = place(&w.total, heads * rows * d * sizeof(float));
    w.dk = place(&w.total, grouped * kv_heads * keys * d * sizeof(float));
    w.dv = place(&w.total, grouped * kv_heads * keys * d * sizeof(float));
    w.semaphores = place(&w.total, heads * (size_t)(rows / bwd_rows(p)) * sizeof(int));
    return w;
}

size_t workspace_bytes(const attn_request *request) { return parts_of(request).total; }

/* The parameters that forward and backward share. */
void set_problem(const attn_request *request, const attn_tensors *t, Flash_fwd_params &f)
{
    const attn_problem &p = *request->problem;
    const mask m = mask_of(p);
    f.q_ptr = t->q.data;
    f.k_ptr = t->k.data;
    f.v_ptr = t->v.data;
    f.o_ptr = t->o.data;
    f.softmax_lse_ptr = t->lse;
    f.q_batch_stride = t->q.stride_batch;
    f.q_row_stride = t->q.stride_row;
    f.q_head_stride = t->q.stride_head;
    f.k_batch_stride = t->k.stride_batch;
    f.k_row_stride = t->k.stride_row;
    f.k_head_stride = t->k.stride_head;
    f.v_batch_stride = t->v.stride_batch;
    f.v_row_stride = t->v.stride_row;
    f.v_head_stride = t->v.stride_head;
    f.v_dim_stride = 1;
    f.o_batch_stride = t->o.stride_batch;
    f.o_row_stride = t->o.stride_row;
    f.o_head_stride = t->o.stride_head;
    f.b = f.b_k = (int)p.batch;
    f.h = (int)p.q_heads;
    f.h_k = (int)p.kv_heads;
    f.seqlen_q = (int)p.q_len;
    f.seqlen_k = (int)p.kv_len;
    f.total_q = (int)(p.batch * p.q_len);
    f.total_k = (int)(p.batch * p.kv_len);
    f.d = f.dv = f.d_rounded = f.dv_rounded = (int)p.head_dim;
    f.scale_softmax = p.scale;
    f.p_dropout = f.rp_dropout = 1;
    f.p_dropout_in_uint8_t = 255;
    f.is_bf16 = p.dtype == ATTN_BF16;
    f.is_causal = m.causal;
    f.is_local = m.local;
    f.window_size_left = m.left;
    f.window_size_right = m.right;
    f.num_splits = 1;
    f.arch = 90;
    f.num_sm = request->device->multiprocessors;
}

template <typename T> void run_forward(Flash_fwd_params &f, cudaStream_t stream)
{
    if (f.d == 64)
        run_mha_fwd_<90, T, 64, 64, false, false, false, false>(f, stream);
    else
        run_mha_fwd_<90, T, 128, 128, false, false, false, false>(f, stream);
}

template <typename T> void run_backward(Flash_bwd_params &f, cudaStream_t stream)
{
    if (f.d == 64)
        run_mha_bwd_<90, T, 64, false>(f, stream);
    else
        run_mha_bwd_<90, T, 128, false>(f, stream);
}

attn_status forward(const attn_request *request, const attn_tensors *t, const attn_run *run, attn_message *why)
{
    const cudaStream_t stream = (cudaStream_t)run->stream;
    Flash_fwd_params f = {};
    set_problem(request, t, f);
    f.seqlen_q_rounded = rounded_up(f.seqlen_q, 128);
    f.seqlen_k_rounded = rounded_up(f.seqlen_k, 128);
    if (f.is_causal || f.is_local) {
        f.tile_count_semaphore = (int *)run->workspace;
        const attn_status status =
            check(cudaMemsetAsync(run->workspace, 0, sizeof(int), stream), "cudaMemsetAsync", why);
        if (status != ATTN_OK)
            return status;
    }
    if (f.is_bf16)
        run_forward<cutlass::bfloat16_t>(f, stream);
    else
        run_forward<cutlass::half_t>(f, stream);
    return check(cudaGetLastError(), "the launch of the forward", why);
}

void set_gradients(const attn_tensors *t, Flash_bwd_params &f)
{
    f.do_ptr = t->dout.data;
    f.do_batch_stride = t->dout.stride_batch;
    f.do_row_stride = t->dout.stride_row;
    f.do_head_stride = t->dout.stride_head;
    f.dq_ptr = t->dq.data;
    f.dq_batch_stride = t->dq.stride_batch;
    f.dq_row_stride = t->dq.stride_row;
    f.dq_head_stride = t->dq.stride_head;
    f.dk_ptr = t->dk.data;
    f.dk_batch_stride = t->dk.stride_batch;
    f.dk_row_stride = t->dk.stride_row;
    f.dk_head_stride = t->dk.stride_head;
    f.dv_ptr = t->dv.data;
    f.dv_batch_stride = t->dv.stride_batch;
    f.dv_row_stride = t->dv.stride_row;
    f.dv_head_stride = t->dv.stride_head;
}

attn_status backward(const attn_request *request, const attn_tensors *t, const attn_run *run, attn_message *why)
{
    const attn_problem &p = *request->problem;
    const cudaStream_t stream = (cudaStream_t)run->stream;
    const parts w = parts_of(request);
    char *const base = (char *)run->workspace;
    Flash_bwd_params f = {};
    set_problem(request, t, f);
    set_gradients(t, f);
    f.seqlen_q_rounded = rounded_up(p.q_len, bwd_rows(p));
    f.seqlen_k_rounded = rounded_up(p.kv_len, BWD_KEYS);
    f.dsoftmax_sum = base + w.delta;
    f.softmax_lse_log2_ptr = base + w.lse_log2;
    f.dq_accum_ptr = base + w.dq;
    f.dq_semaphore = (int *)(base + w.semaphores);
    if (p.q_heads != p.kv_heads) { /* the query heads of a group add to these; dQ's are cleared by its own kernel */
        f.dk_accum_ptr = base + w.dk;
        f.dv_accum_ptr = base + w.dv;
        const attn_status status =
            check(cudaMemsetAsync(base + w.dk, 0, w.semaphores - w.dk, stream), "cudaMemsetAsync", why);
        if (status != ATTN_OK)
            return status;
    }
    if (f.is_bf16)
        run_backward<cutlass::bfloat16_t>(f, stream);
    else
        run_backward<cutlass::half_t>(f, stream);
    return check(cudaGetLastError(), "the launch of the backward", why);
}

/* TMA reads 16 bytes at a time. */
bool is_aligned(const attn_tensor &t)
{
    return ((uintptr_t)t.data | (uintptr_t)(t.stride_batch * 2) | (uintptr_t)(t.stride_head * 2) |
            (uintptr_t)(t.stride_row * 2)) %
               16 ==
           0;
}

attn_status launch(const attn_request *request, const attn_tensors *t, const attn_run *run, attn_message *why)
{
    const attn_tensor all[] = {t->q, t->k, t->v, t->o, t->dout, t->dq, t->dk, t->dv};
    for (const attn_tensor &tensor : all)
        if (tensor.data && !is_aligned(tensor))
            return refuse(why, "needs tensors whose address and strides are multiples of 16 bytes");
    return request->mode == ATTN_FWD ? forward(request, t, run, why) : backward(request, t, run, why);
}

attn_impl make()
{
    attn_impl impl = {};
    impl.abi = ATTN_ABI;
    impl.name = "fa3";
    impl.summary = "FlashAttention-3 of commit " FLASH_ATTENTION_COMMIT ", head dims 64 and 128, no packed GQA";
    impl.platform = ATTN_CUDA;
    impl.role = ATTN_ROLE_PEER;
    /* One thread block computes a row of O. In the backward dQ is summed by atomics, and dK and dV over a group. */
    impl.repeatable[ATTN_FWD] = impl.repeatable_deterministic[ATTN_FWD] = ATTN_O | ATTN_LSE;
    impl.accepts = accepts;
    impl.workspace_bytes = workspace_bytes;
    impl.launch = launch;
    return impl;
}

} // namespace

extern "C" __attribute__((visibility("default"))) const attn_impl *fabench_impls(int abi)
{
    static const attn_impl table[] = {make(), {}};
    return abi == ATTN_ABI ? table : nullptr;
}
