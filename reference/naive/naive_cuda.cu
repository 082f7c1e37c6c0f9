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
 * With grouped heads dK and dV are sums over the heads of a group. They are accumulated in fp32 in the workspace and
 * rounded once; with one query head per kv head cuBLAS writes them directly.
 *
 * prepare for backward reads Q and K on the legacy default stream and waits: they must be filled before, and a plan is
 * valid for these contents of Q and K only.
 */
#include "reference/naive/naive.h"

#include <cstdlib>

#include "reference/cublas.h"
#include "reference/cublas_library.h"
#include "reference/naive/naive_rows.h"
#include "reference/status.h"
#include "reference/harness/harness_cuda.h"

struct naive_plan {
    cublasHandle_t blas;
    void *blas_workspace;
    void *p; /* [batch, q_heads, q_len, pitch] in problem.dtype; backward only */
};

/* ---- sizes and operands ----------------------------------------------------------------------------------------- */

/* False when the bytes of S do not fit in 62 bits. */
static bool matrix_bytes(const struct attn_problem *p, size_t *bytes)
{
    size_t n = attn_dtype_bytes(p->dtype);
    const int64_t factors[] = {p->batch, p->q_heads, p->q_len, naive_pitch(p)};
    for (const int64_t factor : factors)
        if (__builtin_mul_overflow(n, (size_t)factor, &n) || n >> 62)
            return false;
    *bytes = align_bytes(n);
    return true;
}

static int64_t group_of(const struct attn_problem *p) { return p->q_heads / p->kv_heads; }

/* fp32 sums of dK or dV over a group; 0 where cuBLAS writes the output. */
static size_t group_sum_bytes(const struct attn_problem *p)
{
    if (group_of(p) == 1)
        return 0;
    return align_bytes((size_t)(p->batch * p->kv_heads * p->kv_len * p->head_dim) * sizeof(float));
}

/* Batch dimensions of every product: batch, kv head, query head within the group. */
static struct cublas_matrix query_matrix(const struct attn_problem *p, const struct attn_tensor *t)
{
    struct cublas_matrix matrix = {
        t->data, t->stride_row, {t->stride_batch, group_of(p) * t->stride_head, t->stride_head}, false};
    return matrix;
}

static struct cublas_matrix key_matrix(const struct attn_tensor *t)
{
    struct cublas_matrix matrix = {t->data, t->stride_row, {t->stride_batch, t->stride_head, 0}, false};
    return matrix;
}

static struct cublas_matrix score_matrix(const struct attn_problem *p, const void *data)
{
    const int64_t head = p->q_len * naive_pitch(p);
    struct cublas_matrix matrix = {data, naive_pitch(p), {p->q_heads * head, group_of(p) * head, head}, false};
    return matrix;
}

static struct cublas_matrix transpose(struct cublas_matrix matrix)
{
    matrix.transposed = true;
    return matrix;
}

/* What the passes of one launch share. `pointers` may be NULL. */
struct pass {
    cublasHandle_t blas;
    const struct attn_problem *problem;
    const struct attn_tensors *tensors;
    const struct attn_run *run;
    void *matrix, *pointers; /* S, P or dP, dS; cuBLAS' scratch */
    float *sums;
};

static enum attn_status multiply(const struct pass *pass, int64_t rows, int64_t cols, int64_t depth, float alpha,
                                 struct cublas_matrix a, struct cublas_matrix b, struct cublas_matrix c,
                                 struct attn_message *why)
{
    const struct attn_problem *p = pass->problem;
    const struct cublas_product product = {
        p->dtype, p->dtype, rows, cols, depth, {p->batch, p->kv_heads, group_of(p)}, 0, pass->pointers,
        alpha,    0,        a,    b,    c};
    return cublas_multiply(pass->blas, &product, why);
}

/* out (dK or dV) = sum over the group of alpha matrix^T from. */
static enum attn_status multiply_group(const struct pass *pass, float alpha, const void *matrix,
                                       const struct attn_tensor *from, const struct attn_tensor *out,
                                       struct attn_message *why)
{
    const struct attn_problem *p = pass->problem;
    const struct cublas_matrix a = transpose(score_matrix(p, matrix)), b = query_matrix(p, from);
    if (group_of(p) == 1)
        return multiply(pass, p->kv_len, p->head_dim, p->q_len, alpha, a, b, key_matrix(out), why);
    const int64_t head = p->kv_len * p->head_dim, bytes = (int64_t)attn_dtype_bytes(p->dtype);
    const struct cublas_matrix c = {pass->sums, p->head_dim, {p->kv_heads * head, head, 0}, false};
    struct cublas_product product = {
        p->dtype, ATTN_FP32, p->kv_len, p->head_dim, p->q_len, {p->batch, p->kv_heads, 1}, 0, pass->pointers,
        alpha,    0,         a,         b,           c};
    for (int64_t g = 0; g < group_of(p); g++) {
        const enum attn_status status = cublas_multiply(pass->blas, &product, why);
        if (status != ATTN_OK)
            return status;
        product.a.data = (const char *)product.a.data + a.stride[2] * bytes;
        product.b.data = (const char *)product.b.data + b.stride[2] * bytes;
        product.beta = 1;
    }
    return status_cuda((cudaError_t)harness_round(pass->sums, *out, p->dtype, p->batch, p->kv_heads, p->kv_len,
                                                  p->head_dim, pass->run->stream),
                       "harness_round", why);
}

/* ---- the implementation ----------------------------------------------------------------------------------------- */

static void begin_pass(const struct pass *pass, const char *name)
{
    if (pass->run->pass)
        pass->run->pass(pass->run->pass_context, name);
}

/* Computes S into the matrix, then P in its place. */
static enum attn_status compute_p(const struct pass *pass, float *lse, struct attn_message *why)
{
    const struct attn_problem *p = pass->problem;
    begin_pass(pass, "scores");
    enum attn_status status =
        multiply(pass, p->q_len, p->kv_len, p->head_dim, p->scale, query_matrix(p, &pass->tensors->q),
                 transpose(key_matrix(&pass->tensors->k)), score_matrix(p, pass->matrix), why);
    if (status != ATTN_OK)
        return status;
    begin_pass(pass, "softmax");
    return naive_softmax(p, pass->matrix, lse, pass->run->stream, why);
}

static enum attn_status forward(const struct pass *pass, struct attn_message *why)
{
    const struct attn_problem *p = pass->problem;
    const enum attn_status status = compute_p(pass, pass->tensors->lse, why);
    if (status != ATTN_OK)
        return status;
    begin_pass(pass, "output");
    return multiply(pass, p->q_len, p->head_dim, p->kv_len, 1, score_matrix(p, pass->matrix),
                    key_matrix(&pass->tensors->v), query_matrix(p, &pass->tensors->o), why);
}

static enum attn_status backward(const struct pass *pass, const void *stored_p, struct attn_message *why)
{
    const struct attn_problem *p = pass->problem;
    const struct attn_tensors *t = pass->tensors;
    begin_pass(pass, "dv");
    enum attn_status status = multiply_group(pass, 1, stored_p, &t->dout, &t->dv, why);
    if (status != ATTN_OK)
        return status;
    begin_pass(pass, "dp");
    status = multiply(pass, p->q_len, p->kv_len, p->head_dim, 1, query_matrix(p, &t->dout),
                      transpose(key_matrix(&t->v)), score_matrix(p, pass->matrix), why);
    if (status != ATTN_OK)
        return status;
    begin_pass(pass, "ds");
    status = naive_gradient(p, stored_p, pass->matrix, pass->run->stream, why);
    if (status != ATTN_OK)
        return status;
    begin_pass(pass, "dq");
    status = multiply(pass, p->q_len, p->head_dim, p->kv_len, p->scale, score_matrix(p, pass->matrix),
                      key_matrix(&t->k), query_matrix(p, &t->dq), why);
    if (status != ATTN_OK)
        return status;
    begin_pass(pass, "dk");
    return multiply_group(pass, p->scale, pass->matrix, &t->q, &t->dk, why);
}

static enum attn_status naive_accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    size_t bytes;
    const enum attn_status status = attn_check_attributes(request, 0, why);
    if (status != ATTN_OK)
        return status;
    if (request->device->platform != ATTN_CUDA)
        return status_fail(why, ATTN_UNSUPPORTED, "naive on CUDA needs a CUDA device");
    if (request->variant)
        return status_fail(why, ATTN_UNSUPPORTED, "naive has no variants, so none called %s", request->variant);
    if (p->dtype == ATTN_BF16 && request->device->sm < 80)
        return status_fail(why, ATTN_UNSUPPORTED, "naive takes bf16 from sm_80 on, this device is sm_%d",
                           request->device->sm);
    if (p->head_dim < 8 || p->head_dim % 8 != 0)
        return status_fail(why, ATTN_UNSUPPORTED, "naive takes head dims that are multiples of 8, not %lld",
                           (long long)p->head_dim);
    if (p->kv_heads < 1 || p->q_heads % p->kv_heads != 0)
        return status_fail(why, ATTN_UNSUPPORTED, "%lld kv heads do not divide %lld query heads",
                           (long long)p->kv_heads, (long long)p->q_heads);
    if (!matrix_bytes(p, &bytes))
        return status_fail(why, ATTN_UNSUPPORTED, "naive's S would have more than 2^62 bytes");
    return cublas_library(why) ? ATTN_OK : ATTN_UNSUPPORTED;
}

static size_t naive_workspace_bytes(const struct attn_request *request)
{
    const struct attn_problem *p = request->problem;
    size_t bytes = 0;
    (void)matrix_bytes(p, &bytes);
    return bytes + cublas_pointer_bytes(p->batch * p->q_heads) + (request->mode == ATTN_BWD ? group_sum_bytes(p) : 0);
}

/* cuBLAS' workspace, and for backward the stored P. */
static size_t naive_plan_bytes(const struct attn_request *request, const void *)
{
    size_t bytes = 0;
    if (request->mode == ATTN_BWD)
        (void)matrix_bytes(request->problem, &bytes);
    return bytes + cublas_workspace_bytes();
}

static void naive_release(void *opaque)
{
    struct naive_plan *plan = (struct naive_plan *)opaque;
    if (!plan)
        return;
    cublas_destroy(plan->blas);
    (void)cudaFree(plan->blas_workspace);
    (void)cudaFree(plan->p);
    free(plan);
}

/* Computes the P that a framework keeps from its forward pass. */
static enum attn_status store_p(struct naive_plan *plan, const struct attn_request *request,
                                const struct attn_tensors *tensors, struct attn_message *why)
{
    size_t bytes = 0;
    (void)matrix_bytes(request->problem, &bytes);
    enum attn_status status = status_malloc(&plan->p, bytes, "naive's stored P", why);
    if (status != ATTN_OK)
        return status;
    const struct attn_run run = {};
    const struct pass pass = {plan->blas, request->problem, tensors, &run, plan->p, NULL, NULL};
    status = compute_p(&pass, NULL, why);
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
    const enum attn_status status = cublas_bind(plan->blas, run->stream, plan->blas_workspace, why);
    if (status != ATTN_OK)
        return status;
    size_t bytes = 0;
    (void)matrix_bytes(request->problem, &bytes);
    char *const pointers = (char *)run->workspace + bytes;
    char *const sums = pointers + cublas_pointer_bytes(request->problem->batch * request->problem->q_heads);
    const struct pass pass = {plan->blas, request->problem, tensors, run, run->workspace, pointers, (float *)sums};
    return request->mode == ATTN_FWD ? forward(&pass, why) : backward(&pass, plan->p, why);
}

/* Members are set by name, so that a new member of struct attn_impl needs no change here. */
static constexpr struct attn_impl naive_impl()
{
    struct attn_impl impl = {};
    impl.abi = ATTN_ABI;
    impl.name = "naive";
    impl.summary = "three passes with cuBLAS, S and P in device memory in the I/O dtype";
    impl.platform = ATTN_CUDA;
    impl.repeatable[ATTN_FWD] = impl.repeatable_deterministic[ATTN_FWD] = ATTN_O | ATTN_LSE;
    impl.repeatable[ATTN_BWD] = impl.repeatable_deterministic[ATTN_BWD] = ATTN_DQ | ATTN_DK | ATTN_DV;
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
