/* FlashAttention-3 as an implementation for `fabench --impl-lib`: fills in a call of the library's functions from a
 * request, and refuses what the library has no kernel for.
 *
 * Facts of these functions, found by calling them: tensors are contiguous, [batch, len, heads, head_dim] or, packed,
 * [total, heads, head_dim]; LSE is fp32 [batch, heads, len] or [heads, total], natural logarithm. The forward's results
 * are O, LSE and two accumulators of split keys, which it does not use; the backward's are dQ, dK, dV and two arrays of
 * one float a row. Other head dims than those of its kernels it pads.
 */
#include "library.h"

/* ---- what is refused ---- */

static enum attn_status refuse(struct attn_message *why, const char *text)
{
    snprintf(why->text, sizeof why->text, "%s", text);
    return ATTN_UNSUPPORTED;
}

static bool is_packed(const struct attn_problem *p) { return p->lengths == ATTN_PACKED; }
static int64_t tokens_q(const struct attn_problem *p) { return is_packed(p) ? p->total_q : p->batch * p->q_len; }
static int64_t tokens_k(const struct attn_problem *p) { return is_packed(p) ? p->total_k : p->batch * p->kv_len; }
static bool fits_int(int64_t n) { return n > 0 && n < INT32_MAX; }

enum { MOST_BLOCKS = 65535 }; /* of the second and third dimension of a CUDA grid */

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const bool backward = request->mode == ATTN_BWD;
    if (attn_check_attributes(request, ATTN_WITH_WINDOW | ATTN_WITH_PACKED_LENGTHS, why) != ATTN_OK)
        return ATTN_UNSUPPORTED;
    if (request->device->platform != ATTN_CUDA)
        return refuse(why, "runs on CUDA devices only");
    if (request->device->sm != 90) {
        snprintf(why->text, sizeof why->text, "needs compute capability 9.0 (H100, H200), this device has %d.%d",
                 request->device->sm / 10, request->device->sm % 10);
        return ATTN_UNSUPPORTED;
    }
    if (p->dtype != ATTN_FP16 && p->dtype != ATTN_BF16)
        return refuse(why, "takes fp16 and bf16 only");
    if (p->head_dim != 64 && p->head_dim != 128 && p->head_dim != 192 && p->head_dim != 256)
        return refuse(why, "this library has kernels of head dims 64, 128, 192 and 256 only and would pad others");
    if (p->layout != ATTN_BSHD)
        return refuse(why, "takes the layout bshd only");
    if (!fits_int(p->batch) || !fits_int(p->q_heads) || !fits_int(p->kv_heads) || !fits_int(p->q_len) ||
        !fits_int(p->kv_len) || !fits_int(tokens_q(p)) || !fits_int(tokens_k(p)))
        return refuse(why, "takes sizes and numbers of tokens below 2^31 only");
    if (backward && (p->batch > MOST_BLOCKS || p->q_heads > MOST_BLOCKS))
        return refuse(why, "its backward takes a batch and heads up to 65535 only");
    if (backward && request->deterministic)
        return refuse(why, "this library has only the backward that sums dQ by atomics, which is not deterministic");
    if (request->variant)
        return refuse(why, "has no variants to choose");
    if (fa3_library_trouble()[0])
        return refuse(why, fa3_library_trouble());
    return ATTN_OK;
}

/* ---- workspace ---- */

/* Rows of an accumulator: each sequence's rounded up to a tile; packed ones may have one tile more each. */
static size_t tiled_rows(const struct attn_problem *p, int64_t tokens, int64_t longest, int64_t tile)
{
    return is_packed(p) ? fa3_rounded_up((size_t)(tokens + p->batch * tile), (size_t)tile)
                        : (size_t)p->batch * fa3_rounded_up((size_t)longest, (size_t)tile);
}

/* Floats of each of the two arrays of one float a row that are results of the backward. */
static int64_t row_floats(const struct attn_problem *p) { return p->q_heads * (tokens_q(p) + 128 * (p->batch + 1)); }

enum { UNUSED_BYTES = FA3_ALIGNMENT }; /* a result that nothing is written to */

static size_t result_bytes(const struct attn_request *request)
{
    return request->mode == ATTN_FWD
               ? 2 * UNUSED_BYTES
               : 2 * fa3_rounded_up((size_t)row_floats(request->problem) * sizeof(float), FA3_ALIGNMENT);
}

/* At least what the library allocates during a call. Forward: counters of its scheduler. Backward: beside them fp32
 * accumulators of dQ and, of grouped heads, dK and dV, and one semaphore for each block of rows. Tiles of the backward
 * have 64, 80 or 128 rows and 80, 96 or 128 keys, by head dim and mask. */
static size_t scratch_bytes(const struct attn_request *request)
{
    const struct attn_problem *p = request->problem;
    const size_t counters = fa3_rounded_up(16 * (size_t)(p->batch + 4) + 256, FA3_ALIGNMENT);
    if (request->mode == ATTN_FWD)
        return counters;
    const int64_t tile_keys = p->head_dim <= 128 ? 128 : p->head_dim == 192 ? 96 : 80;
    size_t rows = tiled_rows(p, tokens_q(p), p->q_len, p->head_dim == 64 ? 128 : 64);
    if (p->head_dim == 128 && rows < tiled_rows(p, tokens_q(p), p->q_len, 80)) /* without a mask */
        rows = tiled_rows(p, tokens_q(p), p->q_len, 80);
    const size_t row_bytes = (size_t)p->head_dim * sizeof(float);
    size_t total = counters + fa3_rounded_up((size_t)p->q_heads * rows * row_bytes, FA3_ALIGNMENT);
    if (p->q_heads != p->kv_heads) {
        const size_t keys = tiled_rows(p, tokens_k(p), p->kv_len, tile_keys);
        total += 2 * fa3_rounded_up((size_t)p->kv_heads * keys * row_bytes, FA3_ALIGNMENT);
    }
    const size_t semaphores = (size_t)(p->batch * p->q_heads) * (size_t)(p->q_len / 64 + 1);
    return total + fa3_rounded_up(semaphores * sizeof(int), FA3_ALIGNMENT);
}

static size_t workspace_bytes(const struct attn_request *request)
{
    return result_bytes(request) + scratch_bytes(request);
}

/* ---- a call ---- */

static void add_tensor(struct fa3_list *list, const struct attn_problem *p, const struct attn_tensor *t, bool of_keys)
{
    const int64_t heads = of_keys ? p->kv_heads : p->q_heads;
    const int64_t dense[] = {p->batch, of_keys ? p->kv_len : p->q_len, heads, p->head_dim};
    const int64_t packed[] = {of_keys ? p->total_k : p->total_q, heads, p->head_dim};
    fa3_add_buffer(list, p->dtype == ATTN_FP16 ? FFI_F16 : FFI_BF16, t->data, is_packed(p) ? 3 : 4,
                   is_packed(p) ? packed : dense);
}

static void add_lse(struct fa3_list *list, const struct attn_problem *p, const float *lse)
{
    const int64_t dense[] = {p->batch, p->q_heads, p->q_len}, packed[] = {p->q_heads, p->total_q};
    fa3_add_buffer(list, FFI_F32, lse, is_packed(p) ? 2 : 3, is_packed(p) ? packed : dense);
}

static void add_arguments(struct fa3_list *list, const struct attn_request *request, const struct attn_tensors *t)
{
    const struct attn_problem *p = request->problem;
    const bool backward = request->mode == ATTN_BWD;
    if (backward)
        add_tensor(list, p, &t->dout, false);
    add_tensor(list, p, &t->q, false);
    add_tensor(list, p, &t->k, true);
    add_tensor(list, p, &t->v, true);
    if (backward) {
        add_tensor(list, p, &t->o, false);
        add_lse(list, p, t->lse);
    }
    if (is_packed(p)) {
        const int64_t ends[] = {p->batch + 1};
        fa3_add_buffer(list, FFI_S32, t->cu_seqlens_q, 1, ends);
        fa3_add_buffer(list, FFI_S32, t->cu_seqlens_k, 1, ends);
    }
}

static void add_results(struct fa3_list *list, const struct attn_request *request, const struct attn_tensors *t,
                        struct fa3_memory *workspace)
{
    const struct attn_problem *p = request->problem;
    if (request->mode == ATTN_FWD) {
        const int64_t ones[] = {1, 1, 1, 1};
        add_tensor(list, p, &t->o, false);
        add_lse(list, p, t->lse);
        fa3_add_buffer(list, FFI_F32, fa3_cut(workspace, UNUSED_BYTES), 4, ones);
        fa3_add_buffer(list, FFI_F32, fa3_cut(workspace, UNUSED_BYTES), 3, ones);
        return;
    }
    add_tensor(list, p, &t->dq, false);
    add_tensor(list, p, &t->dk, true);
    add_tensor(list, p, &t->dv, true);
    const int64_t floats = row_floats(p);
    for (int i = 0; i < 2; i++)
        fa3_add_buffer(list, FFI_F32, fa3_cut(workspace, (size_t)floats * sizeof(float)), 1, &floats);
}

/* A window as long as all rows and keys hides nothing. */
static int64_t window(const struct attn_problem *p, int64_t keys)
{
    return keys >= p->kv_len && keys >= p->q_len ? -1 : keys;
}

static bool is_contiguous(const struct attn_problem *p, const struct attn_tensor *t, bool of_keys)
{
    const int64_t row = (of_keys ? p->kv_heads : p->q_heads) * p->head_dim;
    const int64_t len = of_keys ? p->kv_len : p->q_len;
    return t->stride_head == p->head_dim && t->stride_row == row &&
           (is_packed(p) || p->batch == 1 || t->stride_batch == len * row) && (uintptr_t)t->data % 16 == 0;
}

static bool are_contiguous(const struct attn_problem *p, const struct attn_tensors *t)
{
    const struct attn_tensor *const of_rows[] = {&t->q, &t->o, &t->dout, &t->dq}, *const of_keys[] = {&t->k, &t->v,
                                                                                                      &t->dk, &t->dv};
    for (int i = 0; i < 4; i++)
        if ((of_rows[i]->data && !is_contiguous(p, of_rows[i], false)) ||
            (of_keys[i]->data && !is_contiguous(p, of_keys[i], true)))
            return false;
    return true;
}

static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *t,
                               const struct attn_run *run, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    if (!are_contiguous(p, t))
        return refuse(why, "takes contiguous tensors at multiples of 16 bytes only");
    if (run->workspace_bytes < workspace_bytes(request))
        return refuse(why, "was given less workspace than it asked for");

    struct fa3_call call = {
        .stream = run->stream, .ordinal = request->device->ordinal, .scratch = {run->workspace, run->workspace_bytes}};
    add_arguments(&call.arguments, request, t);
    add_results(&call.results, request, t, &call.scratch);

    bool causal = p->causal;
    double scale = p->scale;
    int64_t longest_q = p->q_len, longest_k = p->kv_len;
    int64_t left = window(p, p->window_left), right = window(p, p->window_right);
    fa3_add_attribute(&call.attributes, "is_causal", FFI_PRED, &causal);
    if (is_packed(p)) {
        fa3_add_attribute(&call.attributes, "max_seqlen", FFI_S64, &longest_q);
        fa3_add_attribute(&call.attributes, "max_seqlen_k", FFI_S64, &longest_k);
    }
    fa3_add_attribute(&call.attributes, "softmax_scale", FFI_F64, &scale);
    fa3_add_attribute(&call.attributes, "window_size_left", FFI_S64, &left);
    fa3_add_attribute(&call.attributes, "window_size_right", FFI_S64, &right);

    const bool backward = request->mode == ATTN_BWD;
    return fa3_run(is_packed(p) ? backward ? FA3_PACKED_BACKWARD : FA3_PACKED_FORWARD
                   : backward   ? FA3_BACKWARD
                                : FA3_FORWARD,
                   &call, why);
}

/* One thread block computes a row of O. In the backward dQ is summed by atomics, and dK and dV over a group. */
static const struct attn_impl table[] = {
    {.abi = ATTN_ABI,
     .name = "fa3",
     .summary = "FlashAttention-3 of the wheel dew-flash-attn-cu13 0.3.6, without packed GQA and split keys",
     .platform = ATTN_CUDA,
     .repeatable = {[ATTN_FWD] = ATTN_O | ATTN_LSE},
     .repeatable_deterministic = {[ATTN_FWD] = ATTN_O | ATTN_LSE},
     .accepts = accepts,
     .workspace_bytes = workspace_bytes,
     .launch = launch,
     .role = ATTN_ROLE_PEER},
    {0}};

__attribute__((visibility("default"))) const struct attn_impl *fabench_impls(int abi)
{
    if (abi != ATTN_ABI)
        return NULL;
    fa3_library_trouble(); /* loaded here, before anything is timed */
    return table;
}
