/* naive on the CPU: what attention costs when S and P are matrices in memory and a BLAS multiplies them.
 *
 * Forward, over all heads: pass 1 "scores" S = scale Q K^T (sgemm), pass 2 "softmax" P = softmax(S) in place, zeros
 * where a key is not visible, pass 3 "output" O = P V (sgemm). All of S is in the workspace.
 *
 * Backward reads the stored P, as the frameworks do; `prepare` computes it from q and k into the plan. Four sgemm:
 * "dv" dV = P^T dO, "dp" dP = dO V^T, "ds" dS = P * (dP - D) in place with D = sum(P dP) / sum(P), "dq" dQ = scale dS
 * K, "dk" dK = scale dS^T Q.
 *
 * Layouts are expressed by leading dimensions, no tensor is copied. Each thread calls the BLAS for its own slice of
 * rows or keys, with one thread inside the BLAS: that works the same for any library, and no second pool of threads
 * competes for the cores. A head is cut into as many slices as there are threads for it. */
#include "reference/naive/naive.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu_kernels.h"
#include "reference/blas.h"

struct naive_plan {
    float *p; /* [batch, q_heads, q_len, kv_len] */
};

/* Bytes of S for all heads; false when that is more than can be addressed. */
static bool scores_bytes(const struct attn_problem *p, size_t *bytes)
{
    size_t n;
    return !__builtin_mul_overflow((size_t)p->batch, (size_t)p->q_heads, &n) &&
           !__builtin_mul_overflow(n, (size_t)p->q_len, &n) && !__builtin_mul_overflow(n, (size_t)p->kv_len, &n) &&
           !__builtin_mul_overflow(n, sizeof(float), bytes) && *bytes <= PTRDIFF_MAX;
}

static enum attn_status refuse(struct attn_message *why, const char *sentence)
{
    snprintf(why->text, sizeof why->text, "%s", sentence);
    return ATTN_UNSUPPORTED;
}

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    size_t bytes;
    const enum attn_status status = attn_check_attributes(request, 0, why);
    if (status != ATTN_OK)
        return status;
    if (request->device->platform != ATTN_CPU)
        return refuse(why, "runs on the CPU only");
    if (p->dtype != ATTN_FP32)
        return refuse(why, "computes in fp32 only");
    if (request->variant) {
        snprintf(why->text, sizeof why->text, "has no variant %.64s", request->variant);
        return ATTN_UNSUPPORTED;
    }
    if (!scores_bytes(p, &bytes))
        return refuse(why, "S would have more bytes than can be addressed");
    if (!blas_library()) {
        snprintf(why->text, sizeof why->text, "no BLAS: %s", blas_problem());
        return ATTN_UNSUPPORTED;
    }
    return ATTN_OK;
}

static size_t workspace_bytes(const struct attn_request *request)
{
    size_t bytes = 0;
    scores_bytes(request->problem, &bytes);
    return bytes;
}

static size_t plan_bytes(const struct attn_request *request, const void *plan)
{
    return plan ? workspace_bytes(request) : 0;
}

/* ---- slices ------------------------------------------------------------------------------------------------------ */

/* Rows [from, from + count) of head `index`. */
struct slice {
    int64_t index, from, count;
};

static int64_t slices_per_head(int64_t heads, int threads, int64_t len)
{
    const int64_t slices = (threads + heads - 1) / heads;
    return slices < len ? slices : len;
}

static struct slice slice_of(int64_t task, int64_t slices, int64_t len)
{
    const int64_t part = task % slices, from = part * len / slices;
    return (struct slice){task / slices, from, (part + 1) * len / slices - from};
}

static float *row_of(struct attn_tensor tensor, int64_t b, int64_t h, int64_t row)
{
    return (float *)tensor.data + b * tensor.stride_batch + h * tensor.stride_head + row * tensor.stride_row;
}

/* BLAS checks that a leading dimension is not less than the width, also for a single row, where it is not used. */
static int64_t leading(struct attn_tensor tensor, const struct attn_problem *p)
{
    return tensor.stride_row > p->head_dim ? tensor.stride_row : p->head_dim;
}

static struct blas_operand rows_of(struct attn_tensor tensor, const struct attn_problem *p, int64_t b, int64_t h,
                                   int64_t row, bool transposed)
{
    return (struct blas_operand){row_of(tensor, b, h, row), leading(tensor, p), transposed};
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

struct passes {
    const struct attn_problem *p;
    const struct attn_tensors *t;
    const struct attn_run *run; /* NULL inside prepare */
    int threads;
    int64_t group;
};

static struct passes passes_of(const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run)
{
    const struct attn_problem *p = request->problem;
    blas_set_threads(1);
    return (struct passes){p, tensors, run, request->device->threads > 0 ? request->device->threads : 1,
                           p->q_heads / p->kv_heads};
}

static void begin(const struct passes *x, const char *name)
{
    if (x->run && x->run->pass)
        x->run->pass(x->run->pass_context, name);
}

/* s = alpha A B^T for all heads: A has q_len rows per query head, B kv_len rows per kv head. */
static void all_pairs(const struct passes *x, float alpha, struct attn_tensor a, struct attn_tensor b, float *s)
{
    const struct attn_problem *p = x->p;
    const int64_t heads = p->batch * p->q_heads, slices = slices_per_head(heads, x->threads, p->q_len);
#pragma omp parallel for schedule(dynamic) num_threads(x->threads)
    for (int64_t task = 0; task < heads * slices; task++) {
        const struct slice at = slice_of(task, slices, p->q_len);
        const int64_t batch = at.index / p->q_heads, h = at.index % p->q_heads;
        blas_sgemm(at.count, p->kv_len, p->head_dim, alpha, rows_of(a, p, batch, h, at.from, false),
                   rows_of(b, p, batch, h / x->group, 0, true), 0, s + (at.index * p->q_len + at.from) * p->kv_len,
                   p->kv_len);
    }
}

/* out = alpha S B for all heads: out has q_len rows per query head, B kv_len rows per kv head. */
static void times_keys(const struct passes *x, float alpha, const float *s, struct attn_tensor b,
                       struct attn_tensor out)
{
    const struct attn_problem *p = x->p;
    const int64_t heads = p->batch * p->q_heads, slices = slices_per_head(heads, x->threads, p->q_len);
#pragma omp parallel for schedule(dynamic) num_threads(x->threads)
    for (int64_t task = 0; task < heads * slices; task++) {
        const struct slice at = slice_of(task, slices, p->q_len);
        const int64_t batch = at.index / p->q_heads, h = at.index % p->q_heads;
        blas_sgemm(at.count, p->head_dim, p->kv_len, alpha,
                   (struct blas_operand){s + (at.index * p->q_len + at.from) * p->kv_len, p->kv_len, false},
                   rows_of(b, p, batch, h / x->group, 0, false), 0, row_of(out, batch, h, at.from), leading(out, p));
    }
}

/* out = alpha S^T B, summed over the query heads of each kv head: out has kv_len rows, B q_len rows per query head. */
static void times_rows(const struct passes *x, float alpha, const float *s, struct attn_tensor b,
                       struct attn_tensor out)
{
    const struct attn_problem *p = x->p;
    const int64_t heads = p->batch * p->kv_heads, slices = slices_per_head(heads, x->threads, p->kv_len);
#pragma omp parallel for schedule(dynamic) num_threads(x->threads)
    for (int64_t task = 0; task < heads * slices; task++) {
        const struct slice at = slice_of(task, slices, p->kv_len);
        const int64_t batch = at.index / p->kv_heads, h = at.index % p->kv_heads;
        for (int64_t g = 0; g < x->group; g++) {
            const int64_t q_head = h * x->group + g;
            const float *head = s + (batch * p->q_heads + q_head) * p->q_len * p->kv_len;
            blas_sgemm(at.count, p->head_dim, p->q_len, alpha, (struct blas_operand){head + at.from, p->kv_len, true},
                       rows_of(b, p, batch, q_head, 0, false), g == 0 ? 0.0f : 1.0f, row_of(out, batch, h, at.from),
                       leading(out, p));
        }
    }
}

/* Pass 2. lse may be NULL. */
static void softmax(const struct passes *x, float *s, float *lse)
{
    const struct attn_problem *p = x->p;
    const struct cpu_kernels *kernels = cpu_kernels_best();
    const int64_t rows = p->batch * p->q_heads * p->q_len;
#pragma omp parallel for schedule(static) num_threads(x->threads)
    for (int64_t row = 0; row < rows; row++) {
        float *at = s + row * p->kv_len;
        int64_t first, last;
        attn_visible(p, row % p->q_len, &first, &last);
        /* Without windows the first visible key is 0, and last < 0 says that there is none. */
        const int64_t seen = last + 1 > 0 ? last + 1 : 0;
        const float row_lse = seen > 0 ? kernels->softmax_row(at, seen) : -INFINITY;
        memset(at + seen, 0, (size_t)(p->kv_len - seen) * sizeof *at);
        if (lse)
            lse[row] = row_lse;
    }
}

static void score_gradients(const struct passes *x, const float *probabilities, float *dp)
{
    const struct attn_problem *p = x->p;
    const int64_t rows = p->batch * p->q_heads * p->q_len;
#pragma omp parallel for schedule(static) num_threads(x->threads)
    for (int64_t row = 0; row < rows; row++) {
        const float *prob = probabilities + row * p->kv_len;
        float *at = dp + row * p->kv_len;
        float sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
        for (int64_t j = 0; j < p->kv_len; j++) {
            sum += prob[j];
            dot += prob[j] * at[j];
        }
        const float d = sum > 0 ? dot / sum : 0.0f;
#pragma omp simd
        for (int64_t j = 0; j < p->kv_len; j++)
            at[j] = prob[j] * (at[j] - d);
    }
}

/* ---- the implementation ------------------------------------------------------------------------------------------ */

static enum attn_status check_strides(const struct attn_tensors *t, struct attn_message *why)
{
    const struct attn_tensor all[] = {t->q, t->k, t->v, t->o, t->dout, t->dq, t->dk, t->dv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].data && all[i].stride_row > INT32_MAX)
            return refuse(why, "BLAS takes 32-bit leading dimensions, and a row stride is larger");
    return ATTN_OK;
}

static enum attn_status prepare(const struct attn_request *request, const struct attn_tensors *tensors, void **plan,
                                struct attn_message *why)
{
    *plan = NULL;
    const enum attn_status status = check_strides(tensors, why);
    if (status != ATTN_OK || request->mode == ATTN_FWD)
        return status;
    const size_t bytes = workspace_bytes(request);
    struct naive_plan *made = malloc(sizeof *made);
    float *p = malloc(bytes);
    if (!made || !p) {
        free(made);
        free(p);
        snprintf(why->text, sizeof why->text, "P needs %.1f GB of host memory", (double)bytes / 1e9);
        return ATTN_NO_MEMORY;
    }
    const struct passes x = passes_of(request, tensors, NULL);
    all_pairs(&x, request->problem->scale, tensors->q, tensors->k, p);
    softmax(&x, p, NULL);
    made->p = p;
    *plan = made;
    return ATTN_OK;
}

static void release(void *plan)
{
    struct naive_plan *made = plan;
    if (made)
        free(made->p);
    free(made);
}

static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *t,
                               const struct attn_run *run, struct attn_message *why)
{
    const struct naive_plan *plan = run->plan;
    if (!blas_library() || !run->workspace || run->workspace_bytes < workspace_bytes(request) ||
        (request->mode == ATTN_BWD && !plan)) {
        snprintf(why->text, sizeof why->text, "naive: launched without a BLAS, its workspace or its plan");
        return ATTN_ERROR;
    }
    const struct passes x = passes_of(request, t, run);
    const float scale = request->problem->scale;
    float *s = run->workspace;
    if (request->mode == ATTN_FWD) {
        begin(&x, "scores");
        all_pairs(&x, scale, t->q, t->k, s);
        begin(&x, "softmax");
        softmax(&x, s, t->lse);
        begin(&x, "output");
        times_keys(&x, 1, s, t->v, t->o);
        return ATTN_OK;
    }
    begin(&x, "dv");
    times_rows(&x, 1, plan->p, t->dout, t->dv);
    begin(&x, "dp");
    all_pairs(&x, 1, t->dout, t->v, s);
    begin(&x, "ds");
    score_gradients(&x, plan->p, s);
    begin(&x, "dq");
    times_keys(&x, scale, s, t->k, t->dq);
    begin(&x, "dk");
    times_rows(&x, scale, s, t->q, t->dk);
    return ATTN_OK;
}

enum { FORWARD_OUTPUTS = ATTN_O | ATTN_LSE, BACKWARD_OUTPUTS = ATTN_DQ | ATTN_DK | ATTN_DV };

const struct attn_impl attn_naive_cpu = {
    .abi = ATTN_ABI,
    .name = "naive",
    .summary = "three passes on BLAS, S and P in memory, fp32",
    .platform = ATTN_CPU,
    .repeatable = {FORWARD_OUTPUTS, BACKWARD_OUTPUTS},
    .repeatable_deterministic = {FORWARD_OUTPUTS, BACKWARD_OUTPUTS},
    .accepts = accepts,
    .workspace_bytes = workspace_bytes,
    .plan_bytes = plan_bytes,
    .prepare = prepare,
    .launch = launch,
    .release = release,
    .role = ATTN_ROLE_NAIVE,
};
