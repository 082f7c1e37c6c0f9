/* naive: attention in three passes with S and P in device memory, as frameworks do without a fused kernel.
 *
 * Forward    scores   S = scale Q K^T          cuBLAS, rounded to the I/O dtype
 *            softmax  P = softmax(S), LSE      naive_rows.cu; P takes the place of S
 *            output   O = P V                  cuBLAS
 * Backward   dv       dV = P^T dO              Algorithm 3 of the FlashAttention paper (Dao et al. 2022), from the
 *            dp       dP = dO V^T              stored P: prepare computes it from Q and K and keeps it in the plan,
 *            ds       dS = P * (dP - D)        as a framework keeps it from its forward pass. dS takes the place
 *            dq       dQ = scale dS K          of dP. O and LSE are not read.
 *            dk       dK = scale dS^T Q
 *
 * A matrix is [batch, q_heads, q_len, pitch] with the rows padded to 16 bytes, so that odd lengths keep cuBLAS' fast
 * kernels. Products compute all of S; the row kernels do not use the masked elements and write zeros there.
 *
 * Problems with attributes (windows, softcap, block masks, dropout, packed sequences, caches, 8-bit inputs) take the
 * same passes. Sequences with lengths of their own are multiplied one after the other, by the lengths that prepare has
 * copied to the host; of packed sequences S is [q_heads, total_q, pitch]. With dropout the plan has P * M beside P, for
 * dV and D, and with a softcap its derivative, for dS. A first pass of every launch, "gather", copies pages into
 * contiguous keys and 8-bit inputs times their scales into the output's dtype. It is inside the measured time: a copy
 * that prepare had made would be out of date when the inputs' values change between two launches. Caches and 8-bit
 * inputs are taken forward only.
 *
 * With grouped heads dK and dV are sums over the heads of a group. They are accumulated in fp32 in the workspace and
 * rounded once; with one query head per kv head cuBLAS writes them directly.
 *
 * prepare for backward reads Q and K on the legacy default stream and waits: they must be filled before, and a plan is
 * valid for these contents of Q and K only.
 */
#include "reference/registry.h"

#include <cstdlib>

#include "reference/cublas.h"
#include "reference/cublas_library.h"
#include "reference/gather.cuh"
#include "reference/lengths.h"
#include "reference/naive/naive_rows.h"
#include "reference/status.h"
#include "reference/harness/harness_cuda.h"

enum {
    KNOWN = ATTN_WITH_WINDOW | ATTN_WITH_DROPOUT | ATTN_WITH_SOFTCAP | ATTN_WITH_PACKED_LENGTHS | ATTN_WITH_CACHE |
            ATTN_WITH_PAGES | ATTN_WITH_BLOCK_MASK | ATTN_WITH_8_BIT | ATTN_WITH_V_HEAD_DIM | ATTN_WITH_SINK |
            ATTN_WITH_DSINK | ATTN_WITH_ALIBI | ATTN_WITH_BIAS | ATTN_WITH_DBIAS | ATTN_WITH_FAST
};

/* Sequences of the same lengths, which one product multiplies: [b, b + batch), all of them where the lengths are fixed,
 * else one. */
struct part {
    int64_t b, batch;
    struct attn_sequence at;
};

struct naive_plan {
    cublasHandle_t blas;
    void *blas_workspace;
    struct naive_matrices stored; /* of the size of S, in problem.dtype; backward only */
    struct part *parts;
    int64_t part_count;
};

/* ---- sizes and operands ----------------------------------------------------------------------------------------- */

/* The problem as the passes see it, behind the pass "gather": 16-bit or fp32 inputs and contiguous keys. */
static struct attn_problem gathered_problem(const struct attn_problem *problem)
{
    struct attn_problem p = *problem;
    p.dtype = attn_output_dtype(problem);
    p.quant_scale = ATTN_SCALE_NONE;
    p.page_size = 0;
    return p;
}

/* Rows of Q and of K over which S, O and the sums go: of all sequences, or of each. */
static int64_t rows_of_q(const struct attn_problem *p) { return p->lengths == ATTN_PACKED ? p->total_q : p->q_len; }
static int64_t rows_of_k(const struct attn_problem *p) { return p->lengths == ATTN_PACKED ? p->total_k : p->kv_len; }
static int64_t batch_of(const struct attn_problem *p) { return p->lengths == ATTN_PACKED ? 1 : p->batch; }

/* False when the bytes of S do not fit in 62 bits. */
static bool matrix_bytes(const struct attn_problem *p, size_t *bytes)
{
    size_t n = attn_dtype_bytes(attn_output_dtype(p));
    const int64_t factors[] = {batch_of(p), p->q_heads, rows_of_q(p), naive_pitch(p)};
    for (const int64_t factor : factors)
        if (__builtin_mul_overflow(n, (size_t)factor, &n) || n >> 62)
            return false;
    *bytes = align_bytes(n);
    return true;
}

static int64_t group_of(const struct attn_problem *p) { return p->q_heads / p->kv_heads; }

static int64_t widest_of(const struct attn_problem *p)
{
    return attn_v_head_dim(p) > p->head_dim ? attn_v_head_dim(p) : p->head_dim;
}

/* fp32 sums of dK or dV over a group; 0 where cuBLAS writes the output. */
static size_t group_sum_bytes(const struct attn_problem *p)
{
    if (group_of(p) == 1)
        return 0;
    return align_bytes((size_t)(batch_of(p) * p->kv_heads * rows_of_k(p) * widest_of(p)) * sizeof(float));
}

/* Bytes of the copies that the pass "gather" makes of Q, and of K or V; 0 where it makes none. */
static size_t gathered_q_bytes(const struct attn_problem *p)
{
    if (!attn_dtype_is_8_bit(p->dtype))
        return 0;
    return align_bytes((size_t)(batch_of(p) * p->q_heads * rows_of_q(p) * p->head_dim) *
                       attn_dtype_bytes(attn_output_dtype(p)));
}

static size_t gathered_k_bytes(const struct attn_problem *p)
{
    if (!attn_dtype_is_8_bit(p->dtype) && p->page_size == 0)
        return 0;
    return align_bytes((size_t)(batch_of(p) * p->kv_heads * rows_of_k(p) * widest_of(p)) *
                       attn_dtype_bytes(attn_output_dtype(p)));
}

static const void *moved(const void *data, enum attn_dtype dtype, int64_t elements)
{
    return (const char *)data + elements * (int64_t)attn_dtype_bytes(dtype);
}

/* Batch dimensions of every product: batch, kv head, query head within the group. */
static struct cublas_matrix query_matrix(const struct attn_problem *p, const struct part *part,
                                         const struct attn_tensor *t)
{
    const int64_t from = part->b * t->stride_batch + part->at.q_first * t->stride_row;
    struct cublas_matrix matrix = {moved(t->data, p->dtype, from),
                                   t->stride_row,
                                   {t->stride_batch, group_of(p) * t->stride_head, t->stride_head},
                                   false};
    return matrix;
}

static struct cublas_matrix key_matrix(const struct attn_problem *p, const struct part *part,
                                       const struct attn_tensor *t)
{
    const int64_t from = part->b * t->stride_batch + part->at.k_first * t->stride_row;
    struct cublas_matrix matrix = {
        moved(t->data, p->dtype, from), t->stride_row, {t->stride_batch, t->stride_head, 0}, false};
    return matrix;
}

static struct cublas_matrix score_matrix(const struct attn_problem *p, const struct part *part, const void *data)
{
    const int64_t pitch = naive_pitch(p), head = rows_of_q(p) * pitch;
    struct cublas_matrix matrix = {moved(data, p->dtype, part->b * p->q_heads * head + part->at.q_first * pitch),
                                   pitch,
                                   {p->q_heads * head, group_of(p) * head, head},
                                   false};
    return matrix;
}

static struct cublas_matrix transpose(struct cublas_matrix matrix)
{
    matrix.transposed = true;
    return matrix;
}

/* What the passes of one launch share. `pointers` may be NULL. problem, tensors: behind the pass "gather". */
struct pass {
    cublasHandle_t blas;
    const struct naive_plan *plan;
    const struct attn_problem *problem;
    const struct attn_tensors *tensors;
    const struct attn_run *run;
    void *matrix, *pointers; /* S, P or dP, dS; cuBLAS' scratch */
    float *sums;
    float *sink_rows; /* NULL = dSink is not asked for */
    bool has_dbias;
};

/* A product over nothing is a matrix of zeros, unless it is added. */
static enum attn_status multiply_part(const struct pass *pass, const struct cublas_product *product,
                                      struct attn_message *why)
{
    if (product->rows == 0 || product->cols == 0 || (product->depth == 0 && product->beta != 0))
        return ATTN_OK;
    if (product->depth > 0)
        return cublas_multiply(pass->blas, product, why);
    const int64_t *const count = product->count, *const stride = product->c.stride;
    const struct naive_zeros zeros = {(void *)(uintptr_t)product->c.data,
                                      attn_dtype_bytes(product->out),
                                      product->rows,
                                      product->cols,
                                      product->c.row_stride,
                                      {count[0], count[1], count[2]},
                                      {stride[0], stride[1], stride[2]}};
    return naive_zero(&zeros, pass->run->stream, why);
}

static enum attn_status multiply(const struct pass *pass, const struct part *part, int64_t rows, int64_t cols,
                                 int64_t depth, float alpha, struct cublas_matrix a, struct cublas_matrix b,
                                 struct cublas_matrix c, struct attn_message *why)
{
    const struct attn_problem *p = pass->problem;
    const struct cublas_product product = {
        p->dtype, p->dtype, rows, cols, depth, {part->batch, p->kv_heads, group_of(p)}, 0, pass->pointers,
        alpha,    0,        a,    b,    c};
    return multiply_part(pass, &product, why);
}

/* matrix = alpha rows keys^T, of d columns. */
static enum attn_status multiply_pairs(const struct pass *pass, int64_t d, float alpha, const struct attn_tensor *rows,
                                       const struct attn_tensor *keys, struct attn_message *why)
{
    const struct attn_problem *p = pass->problem;
    enum attn_status status = ATTN_OK;
    for (int64_t i = 0; i < pass->plan->part_count && status == ATTN_OK; i++) {
        const struct part *part = &pass->plan->parts[i];
        status = multiply(pass, part, part->at.q_len, part->at.kv_len, d, alpha, query_matrix(p, part, rows),
                          transpose(key_matrix(p, part, keys)), score_matrix(p, part, pass->matrix), why);
    }
    return status;
}

/* out = alpha matrix keys, of d columns. */
static enum attn_status multiply_keys(const struct pass *pass, int64_t d, float alpha, const struct attn_tensor *keys,
                                      const struct attn_tensor *out, struct attn_message *why)
{
    const struct attn_problem *p = pass->problem;
    enum attn_status status = ATTN_OK;
    for (int64_t i = 0; i < pass->plan->part_count && status == ATTN_OK; i++) {
        const struct part *part = &pass->plan->parts[i];
        status = multiply(pass, part, part->at.q_len, d, part->at.kv_len, alpha, score_matrix(p, part, pass->matrix),
                          key_matrix(p, part, keys), query_matrix(p, part, out), why);
    }
    return status;
}

/* sums = sum over the group of alpha matrix^T from. */
static enum attn_status sum_group(const struct pass *pass, const struct part *part, int64_t d, float alpha,
                                  const void *matrix, const struct attn_tensor *from, struct attn_message *why)
{
    const struct attn_problem *p = pass->problem;
    const struct cublas_matrix a = transpose(score_matrix(p, part, matrix)), b = query_matrix(p, part, from);
    const int64_t head = rows_of_k(p) * d;
    const float *const sums = pass->sums + part->b * p->kv_heads * head + part->at.k_first * d;
    const struct cublas_matrix c = {sums, d, {p->kv_heads * head, head, 0}, false};
    struct cublas_product product = {p->dtype,
                                     ATTN_FP32,
                                     part->at.kv_len,
                                     d,
                                     part->at.q_len,
                                     {part->batch, p->kv_heads, 1},
                                     0,
                                     pass->pointers,
                                     alpha,
                                     0,
                                     a,
                                     b,
                                     c};
    for (int64_t g = 0; g < group_of(p); g++) {
        const enum attn_status status = multiply_part(pass, &product, why);
        if (status != ATTN_OK)
            return status;
        product.a.data = moved(product.a.data, p->dtype, a.stride[2]);
        product.b.data = moved(product.b.data, p->dtype, b.stride[2]);
        product.beta = 1;
    }
    return ATTN_OK;
}

/* out (dK or dV) = sum over the group of alpha matrix^T from, of d columns. */
static enum attn_status multiply_group(const struct pass *pass, int64_t d, float alpha, const void *matrix,
                                       const struct attn_tensor *from, const struct attn_tensor *out,
                                       struct attn_message *why)
{
    const struct attn_problem *p = pass->problem;
    enum attn_status status = ATTN_OK;
    for (int64_t i = 0; i < pass->plan->part_count && status == ATTN_OK; i++) {
        const struct part *part = &pass->plan->parts[i];
        if (group_of(p) > 1)
            status = sum_group(pass, part, d, alpha, matrix, from, why);
        else
            status = multiply(pass, part, part->at.kv_len, d, part->at.q_len, alpha,
                              transpose(score_matrix(p, part, matrix)), query_matrix(p, part, from),
                              key_matrix(p, part, out), why);
    }
    if (status != ATTN_OK || group_of(p) == 1)
        return status;
    return status_cuda((cudaError_t)harness_round(pass->sums, *out, p->dtype, batch_of(p), p->kv_heads, rows_of_k(p), d,
                                                  pass->run->stream),
                       "harness_round", why);
}

/* ---- the passes ------------------------------------------------------------------------------------------------- */

static void begin_pass(const struct attn_run *run, const char *name)
{
    if (run->pass)
        run->pass(run->pass_context, name);
}

static bool is_dense(const struct attn_problem *problem)
{
    struct attn_request request = {};
    request.problem = problem;
    return attn_attributes(&request) == 0;
}

/* Computes S into to->p, which is the matrix of the pass, then P in its place. */
static enum attn_status compute_p(const struct pass *pass, const struct naive_matrices *to, float *lse,
                                  struct attn_message *why)
{
    const struct attn_problem *p = pass->problem;
    begin_pass(pass->run, "scores");
    const enum attn_status status =
        multiply_pairs(pass, p->head_dim, p->scale, &pass->tensors->q, &pass->tensors->k, why);
    if (status != ATTN_OK)
        return status;
    begin_pass(pass->run, "softmax");
    return is_dense(p) ? naive_softmax(p, to->p, lse, pass->run->stream, why)
                       : naive_masked_softmax(p, pass->tensors, to, lse, pass->run->stream, why);
}

static enum attn_status forward(const struct pass *pass, struct attn_message *why)
{
    const struct naive_matrices in_place = {pass->matrix, pass->matrix, NULL};
    const enum attn_status status = compute_p(pass, &in_place, pass->tensors->lse, why);
    if (status != ATTN_OK)
        return status;
    begin_pass(pass->run, "output");
    return multiply_keys(pass, attn_v_head_dim(pass->problem), 1, &pass->tensors->v, &pass->tensors->o, why);
}

static enum attn_status backward(const struct pass *pass, struct attn_message *why)
{
    const struct attn_problem *p = pass->problem;
    const struct attn_tensors *t = pass->tensors;
    const struct naive_matrices *stored = &pass->plan->stored;
    const struct naive_matrices without_slope = {stored->p, stored->kept, NULL};
    begin_pass(pass->run, "dv");
    enum attn_status status = multiply_group(pass, attn_v_head_dim(p), 1, stored->kept, &t->dout, &t->dv, why);
    if (status != ATTN_OK)
        return status;
    begin_pass(pass->run, "dp");
    status = multiply_pairs(pass, attn_v_head_dim(p), 1, &t->dout, &t->v, why);
    if (status != ATTN_OK)
        return status;
    begin_pass(pass->run, "ds");
    status = is_dense(p) ? naive_gradient(p, stored->p, pass->matrix, pass->run->stream, why)
                         : naive_masked_gradient(p, t, pass->has_dbias ? &without_slope : stored, pass->matrix,
                                                 pass->sink_rows, pass->run->stream, why);
    if (status == ATTN_OK && pass->has_dbias)
        status = naive_sum_biases(p, t, stored->slope, pass->matrix, pass->run->stream, why);
    if (status == ATTN_OK && pass->sink_rows)
        status = naive_sum_sinks(p, t, pass->sink_rows, pass->run->stream, why);
    if (status != ATTN_OK)
        return status;
    begin_pass(pass->run, "dq");
    status = multiply_keys(pass, p->head_dim, p->scale, &t->k, &t->dq, why);
    if (status != ATTN_OK)
        return status;
    begin_pass(pass->run, "dk");
    return multiply_group(pass, p->head_dim, p->scale, pass->matrix, &t->q, &t->dk, why);
}

/* Copies Q, or K or V, of every sequence to `memory` and makes *tensor describe the copy. */
static enum attn_status gather_tensor(const struct naive_plan *plan, const struct attn_problem *problem,
                                      const struct attn_tensors *tensors, bool is_kv, int64_t d, const float *scales,
                                      void *memory, struct attn_tensor *tensor, void *stream, struct attn_message *why)
{
    const int64_t heads = is_kv ? problem->kv_heads : problem->q_heads;
    const int64_t rows = is_kv ? rows_of_k(problem) : rows_of_q(problem);
    const struct attn_tensor from = *tensor, copy = {memory, heads * rows * d, rows * d, d};
    enum attn_status status = ATTN_OK;
    for (int64_t i = 0; i < plan->part_count && status == ATTN_OK; i++) {
        const struct part *part = &plan->parts[i];
        const bool is_packed = problem->lengths == ATTN_PACKED; /* its sequences have their numbers for scales alone */
        const struct gather_rows which = {
            is_packed ? i : part->b, part->batch, 0, heads, 0, is_kv ? part->at.kv_len : part->at.q_len, is_kv, d, 0};
        const int64_t at =
            part->b * copy.stride_batch + (is_kv ? part->at.k_first : part->at.q_first) * copy.stride_row;
        const enum attn_dtype dtype = attn_output_dtype(problem);
        const struct gather_output out = {(void *)(uintptr_t)moved(memory, dtype, at),
                                          copy.stride_batch,
                                          copy.stride_head,
                                          copy.stride_row,
                                          dtype,
                                          false};
        status = gather(problem, tensors, &which, from, problem->dtype, scales, &out, stream, why);
    }
    *tensor = copy;
    return status;
}

/* Makes *to the tensors that the passes read; `memory` holds the copies. */
static enum attn_status gather_inputs(const struct naive_plan *plan, const struct attn_problem *p,
                                      const struct attn_tensors *from, char *memory, const struct attn_run *run,
                                      struct attn_tensors *to, struct attn_message *why)
{
    char *const k = memory + gathered_q_bytes(p), *const v = k + gathered_k_bytes(p);
    enum attn_status status = ATTN_OK;
    *to = *from;
    if (gathered_k_bytes(p) == 0)
        return ATTN_OK;
    begin_pass(run, "gather");
    if (gathered_q_bytes(p) > 0)
        status = gather_tensor(plan, p, from, false, p->head_dim, from->scale_q, memory, &to->q, run->stream, why);
    if (status == ATTN_OK)
        status = gather_tensor(plan, p, from, true, p->head_dim, from->scale_k, k, &to->k, run->stream, why);
    if (status == ATTN_OK)
        status = gather_tensor(plan, p, from, true, attn_v_head_dim(p), from->scale_v, v, &to->v, run->stream, why);
    return status;
}

/* ---- the implementation ----------------------------------------------------------------------------------------- */

static enum attn_status check_family(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    if (request->mode == ATTN_BWD && p->lengths == ATTN_CACHE)
        return status_fail(why, ATTN_UNSUPPORTED, "naive computes attention against a cache forward only");
    if (request->mode == ATTN_BWD && attn_dtype_is_8_bit(p->dtype))
        return status_fail(why, ATTN_UNSUPPORTED, "naive takes 8-bit inputs forward only");
    if (attn_dtype_is_8_bit(p->dtype) && p->out_dtype != ATTN_FP16 && p->out_dtype != ATTN_BF16)
        return status_fail(why, ATTN_UNSUPPORTED, "naive takes 8-bit inputs with an output in fp16 or bf16");
    if (!attn_dtype_is_8_bit(p->dtype) && p->quant_scale != ATTN_SCALE_NONE)
        return status_fail(why, ATTN_UNSUPPORTED, "naive takes scales with 8-bit inputs only");
    if (p->bias_heads > 0 && p->bias_dtype != ATTN_FP32 && p->bias_dtype != attn_output_dtype(p))
        return status_fail(why, ATTN_UNSUPPORTED, "naive takes a bias in fp32 or in the type of the output");
    if (p->page_size != 0 && p->lengths != ATTN_CACHE)
        return status_fail(why, ATTN_UNSUPPORTED, "naive takes pages of a cache only");
    return ATTN_OK;
}

static enum attn_status naive_accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    size_t bytes;
    enum attn_status status = attn_check_attributes(request, KNOWN, why);
    if (status == ATTN_OK)
        status = check_family(request, why);
    if (status != ATTN_OK)
        return status;
    if (request->device->platform != ATTN_CUDA)
        return status_fail(why, ATTN_UNSUPPORTED, "naive on CUDA needs a CUDA device");
    if (request->variant)
        return status_fail(why, ATTN_UNSUPPORTED, "naive has no variants, so none called %s", request->variant);
    if (attn_output_dtype(p) == ATTN_BF16 && request->device->sm < 80)
        return status_fail(why, ATTN_UNSUPPORTED, "naive takes bf16 from sm_80 on, this device is sm_%d",
                           request->device->sm);
    if (p->head_dim < 8 || p->head_dim % 8 != 0 || attn_v_head_dim(p) < 8 || attn_v_head_dim(p) % 8 != 0)
        return status_fail(why, ATTN_UNSUPPORTED, "naive takes head dims that are multiples of 8, not %lld and %lld",
                           (long long)p->head_dim, (long long)attn_v_head_dim(p));
    if (p->kv_heads < 1 || p->q_heads % p->kv_heads != 0)
        return status_fail(why, ATTN_UNSUPPORTED, "%lld kv heads do not divide %lld query heads",
                           (long long)p->kv_heads, (long long)p->q_heads);
    if (!matrix_bytes(p, &bytes))
        return status_fail(why, ATTN_UNSUPPORTED, "naive's S would have more than 2^62 bytes");
    return cublas_library(why) ? ATTN_OK : ATTN_UNSUPPORTED;
}

/* Of cuBLAS' pointers, for the products of one part. */
static size_t pointer_bytes(const struct attn_problem *p) { return cublas_pointer_bytes(p->batch * p->q_heads); }

/* What each row adds to dSink. */
static size_t sink_row_bytes(const struct attn_request *request)
{
    const struct attn_problem *p = request->problem;
    if (!(attn_wanted_outputs(request) & ATTN_DSINK))
        return 0;
    return align_bytes((size_t)(batch_of(p) * p->q_heads * rows_of_q(p)) * sizeof(float));
}

/* S; cuBLAS' pointers; the copies of the pass "gather", or the sums over groups; the rows of dSink. */
static size_t naive_workspace_bytes(const struct attn_request *request)
{
    const struct attn_problem *p = request->problem;
    size_t bytes = 0;
    (void)matrix_bytes(p, &bytes);
    return bytes + pointer_bytes(p) + gathered_q_bytes(p) + 2 * gathered_k_bytes(p) +
           (request->mode == ATTN_BWD ? group_sum_bytes(p) : 0) + sink_row_bytes(request);
}

/* cuBLAS' workspace, and for backward the stored matrices. */
static size_t naive_plan_bytes(const struct attn_request *request, const void *)
{
    const struct attn_problem *p = request->problem;
    size_t bytes = 0;
    if (request->mode == ATTN_BWD)
        (void)matrix_bytes(p, &bytes);
    return bytes * (1 + (p->dropout != 0) + (p->softcap != 0)) + cublas_workspace_bytes();
}

static void naive_release(void *opaque)
{
    struct naive_plan *plan = (struct naive_plan *)opaque;
    if (!plan)
        return;
    cublas_destroy(plan->blas);
    (void)cudaFree(plan->blas_workspace);
    if (plan->stored.kept != plan->stored.p)
        (void)cudaFree(plan->stored.kept);
    (void)cudaFree(plan->stored.p);
    (void)cudaFree(plan->stored.slope);
    free(plan->parts);
    free(plan);
}

/* The sequences of the plan, by the lengths in device memory. */
static enum attn_status make_parts(struct naive_plan *plan, const struct attn_problem *p,
                                   const struct attn_tensors *tensors, struct attn_message *why)
{
    struct lengths lengths;
    const enum attn_status status = lengths_copy(p, tensors, NULL, &lengths, why);
    if (status != ATTN_OK)
        return status;
    plan->part_count = p->lengths == ATTN_FIXED ? 1 : p->batch;
    plan->parts = (struct part *)calloc((size_t)plan->part_count, sizeof *plan->parts);
    for (int64_t i = 0; i < plan->part_count && plan->parts; i++) {
        plan->parts[i].b = p->lengths == ATTN_PACKED ? 0 : i; /* packed tensors have no batch */
        plan->parts[i].batch = p->lengths == ATTN_FIXED ? p->batch : 1;
        plan->parts[i].at = attn_sequence_at(p, &lengths.tensors, i);
    }
    lengths_free(&lengths);
    if (!plan->parts)
        return status_fail(why, ATTN_NO_MEMORY, "naive's plan needs %zu bytes of host memory",
                           (size_t)plan->part_count * sizeof *plan->parts);
    return ATTN_OK;
}

/* Memory for what a framework keeps from its forward pass. */
static enum attn_status allocate_stored(struct naive_plan *plan, const struct attn_problem *p, struct attn_message *why)
{
    size_t bytes = 0;
    (void)matrix_bytes(p, &bytes);
    enum attn_status status = status_malloc(&plan->stored.p, bytes, "naive's stored P", why);
    if (status == ATTN_OK && p->dropout != 0)
        status = status_malloc(&plan->stored.kept, bytes, "naive's stored P with dropout", why);
    else
        plan->stored.kept = plan->stored.p;
    if (status == ATTN_OK && p->softcap != 0)
        status = status_malloc(&plan->stored.slope, bytes, "naive's stored derivative of the softcap", why);
    return status;
}

/* Computes what a framework keeps from its forward pass. */
static enum attn_status store_p(struct naive_plan *plan, const struct attn_request *request,
                                const struct attn_tensors *tensors, struct attn_message *why)
{
    enum attn_status status = allocate_stored(plan, request->problem, why);
    if (status != ATTN_OK)
        return status;
    const struct attn_run run = {};
    const struct pass pass = {plan->blas, plan, request->problem, tensors, &run, plan->stored.p, NULL, NULL,
                              NULL,       false};
    status = compute_p(&pass, &plan->stored, NULL, why);
    if (status != ATTN_OK)
        return status;
    return status_cuda(cudaStreamSynchronize(NULL), "computing naive's stored P", why);
}

static enum attn_status naive_prepare(const struct attn_request *request, const struct attn_tensors *tensors,
                                      void **opaque, struct attn_message *why)
{
    *opaque = NULL;
    struct naive_plan *plan = (struct naive_plan *)calloc(1, sizeof *plan);
    if (!plan)
        return status_fail(why, ATTN_NO_MEMORY, "naive's plan needs %zu bytes of host memory", sizeof *plan);
    enum attn_status status =
        status_malloc(&plan->blas_workspace, cublas_workspace_bytes(), "naive's cuBLAS workspace", why);
    if (status == ATTN_OK)
        status = cublas_create(&plan->blas, why);
    if (status == ATTN_OK)
        status = cublas_bind(plan->blas, NULL, plan->blas_workspace, why);
    if (status == ATTN_OK)
        status = make_parts(plan, request->problem, tensors, why);
    if (status == ATTN_OK && request->mode == ATTN_BWD)
        status = store_p(plan, request, tensors, why);
    if (status != ATTN_OK) {
        naive_release(plan);
        return status;
    }
    *opaque = plan;
    return ATTN_OK;
}

static enum attn_status naive_launch(const struct attn_request *request, const struct attn_tensors *tensors,
                                     const struct attn_run *run, struct attn_message *why)
{
    const struct naive_plan *plan = (const struct naive_plan *)run->plan;
    if (!plan)
        return status_fail(why, ATTN_ERROR, "naive was launched without its plan");
    if (run->workspace_bytes < naive_workspace_bytes(request))
        return status_fail(why, ATTN_ERROR, "naive needs %zu bytes of workspace, got %zu",
                           naive_workspace_bytes(request), run->workspace_bytes);
    enum attn_status status = cublas_bind(plan->blas, run->stream, plan->blas_workspace, why);
    if (status != ATTN_OK)
        return status;
    size_t bytes = 0;
    (void)matrix_bytes(request->problem, &bytes);
    char *const pointers = (char *)run->workspace + bytes;
    char *const rest = pointers + pointer_bytes(request->problem); /* no problem with copies has sums */
    struct attn_tensors gathered;
    status = gather_inputs(plan, request->problem, tensors, rest, run, &gathered, why);
    if (status != ATTN_OK)
        return status;
    const struct attn_problem problem = gathered_problem(request->problem);
    float *const sink_rows =
        sink_row_bytes(request) ? (float *)(rest + group_sum_bytes(request->problem)) : NULL; /* backward: no copies */
    const struct pass pass = {
        plan->blas,     plan,     &problem,      &gathered, run,
        run->workspace, pointers, (float *)rest, sink_rows, (attn_wanted_outputs(request) & ATTN_DBIAS) != 0};
    return request->mode == ATTN_FWD ? forward(&pass, why) : backward(&pass, why);
}

/* Members are set by name, so that a new member of struct attn_impl needs no change here. */
static constexpr struct attn_impl naive_impl()
{
    struct attn_impl impl = {};
    impl.abi = ATTN_ABI;
    impl.name = "naive";
    impl.summary =
        "three passes with cuBLAS, S and P in device memory in the I/O dtype; copies pages, 8-bit inputs in its time";
    impl.platform = ATTN_CUDA;
    impl.repeatable[ATTN_FWD] = impl.repeatable_deterministic[ATTN_FWD] = ATTN_O | ATTN_LSE;
    impl.repeatable[ATTN_BWD] = impl.repeatable_deterministic[ATTN_BWD] =
        ATTN_DQ | ATTN_DK | ATTN_DV | ATTN_DSINK | ATTN_DBIAS;
    impl.accepts = naive_accepts;
    impl.workspace_bytes = naive_workspace_bytes;
    impl.plan_bytes = naive_plan_bytes;
    impl.prepare = naive_prepare;
    impl.launch = naive_launch;
    impl.release = naive_release;
    impl.role = ATTN_ROLE_NAIVE;
    return impl;
}

constexpr struct attn_impl attn_naive_cuda = naive_impl();
