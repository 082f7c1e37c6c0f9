/* The GEMM ceiling: one 8192^3 product on normal data through cuBLASLt, see reference/harness/harness_cuda.h.
 *
 * cuBLAS' first choice of a kernel is not always its fastest, and a ceiling that is too low makes kernels look better
 * than they are. So creation takes the heuristic's first CANDIDATES proposals, times each ROUNDS times in turn, and
 * keeps the one with the smallest time. Both operands are contiguous along the summed dimension (TN in cuBLAS' terms),
 * its best-tuned layout. */
#include <cuda_runtime.h>
#include <stdlib.h>

#include "reference/harness/fill.h"
#include "reference/cublas.h"
#include "reference/cublas_library.h"
#include "reference/status.h"
#include "reference/harness/harness_cuda.h"

enum { EXTENT = 8192, CANDIDATES = 8, ROUNDS = 4, WORKSPACE_BYTES = 32 << 20, FILL_SEED = 1 };

struct harness_gemm {
    const struct cublas_functions *cublas;
    enum attn_dtype dtype;
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t layout; /* EXTENT x EXTENT, of all three */
    cublasLtMatmulAlgo_t algorithm;
    void *a, *b, *c, *workspace;
};

static enum attn_status run(const struct harness_gemm *gemm, const cublasLtMatmulAlgo_t *algorithm, cudaStream_t stream,
                            struct attn_message *why)
{
    const float alpha = 1, beta = 0;
    return cublas_status(gemm->cublas->lt_matmul(gemm->lt, gemm->product, &alpha, gemm->a, gemm->layout, gemm->b,
                                                 gemm->layout, &beta, gemm->c, gemm->layout, gemm->c, gemm->layout,
                                                 algorithm, gemm->workspace, WORKSPACE_BYTES, stream),
                         "cublasLtMatmul", why);
}

static enum attn_status fill(void *matrix, enum attn_dtype dtype, uint64_t seed, const float *table,
                             struct attn_message *why)
{
    const struct attn_tensor tensor = {matrix, 0, 0, EXTENT};
    return status_cuda((cudaError_t)harness_fill(tensor, dtype, 1, 1, EXTENT, EXTENT, seed, FILL_GEMM, 1, table, NULL),
                       "harness_fill", why);
}

static enum attn_status allocate(struct harness_gemm *gemm, const float *table, struct attn_message *why)
{
    const size_t bytes = (size_t)EXTENT * EXTENT * attn_dtype_bytes(gemm->dtype);
    enum attn_status status = status_malloc(&gemm->a, bytes, "the GEMM ceiling", why);
    if (status == ATTN_OK)
        status = status_malloc(&gemm->b, bytes, "the GEMM ceiling", why);
    if (status == ATTN_OK)
        status = status_malloc(&gemm->c, bytes, "the GEMM ceiling", why);
    if (status == ATTN_OK)
        status = status_malloc(&gemm->workspace, WORKSPACE_BYTES, "the GEMM ceiling", why);
    if (status == ATTN_OK)
        status = fill(gemm->a, gemm->dtype, FILL_SEED, table, why);
    if (status == ATTN_OK)
        status = fill(gemm->b, gemm->dtype, FILL_SEED + 1, table, why);
    return status;
}

static enum attn_status describe(struct harness_gemm *gemm, struct attn_message *why)
{
    const cublasComputeType_t compute = gemm->dtype == ATTN_FP32 ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    enum attn_status status = cublas_status(gemm->cublas->lt_create(&gemm->lt), "cublasLtCreate", why);
    if (status == ATTN_OK)
        status = cublas_status(gemm->cublas->lt_product_create(&gemm->product, compute, CUDA_R_32F),
                               "cublasLtMatmulDescCreate", why);
    if (status == ATTN_OK)
        status = cublas_status(
            gemm->cublas->lt_product_set(gemm->product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
            "cublasLtMatmulDescSetAttribute", why);
    if (status == ATTN_OK)
        status = cublas_status(
            gemm->cublas->lt_layout_create(&gemm->layout, cublas_type(gemm->dtype), EXTENT, EXTENT, EXTENT),
            "cublasLtMatrixLayoutCreate", why);
    return status;
}

static enum attn_status candidates(const struct harness_gemm *gemm, cublasLtMatmulHeuristicResult_t *found, int *count,
                                   struct attn_message *why)
{
    const size_t workspace_bytes = WORKSPACE_BYTES;
    cublasLtMatmulPreference_t preference = NULL;
    enum attn_status status =
        cublas_status(gemm->cublas->lt_preference_create(&preference), "cublasLtMatmulPreferenceCreate", why);
    if (status != ATTN_OK)
        return status;
    status = cublas_status(gemm->cublas->lt_preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                           &workspace_bytes, sizeof workspace_bytes),
                           "cublasLtMatmulPreferenceSetAttribute", why);
    if (status == ATTN_OK)
        status =
            cublas_status(gemm->cublas->lt_heuristic(gemm->lt, gemm->product, gemm->layout, gemm->layout, gemm->layout,
                                                     gemm->layout, preference, CANDIDATES, found, count),
                          "cublasLtMatmulAlgoGetHeuristic", why);
    (void)gemm->cublas->lt_preference_destroy(preference);
    if (status == ATTN_OK && *count == 0)
        return status_fail(why, ATTN_ERROR, "cuBLAS has no kernel for the GEMM ceiling");
    return status;
}

/* Milliseconds of one run, between two events; the host waits. Only for the choice of an algorithm. */
static enum attn_status time_once(const struct harness_gemm *gemm, const cublasLtMatmulAlgo_t *algorithm,
                                  const cudaEvent_t event[2], float *ms, struct attn_message *why)
{
    enum attn_status status = status_cuda(cudaEventRecord(event[0], NULL), "cudaEventRecord", why);
    if (status == ATTN_OK)
        status = run(gemm, algorithm, NULL, why);
    if (status == ATTN_OK)
        status = status_cuda(cudaEventRecord(event[1], NULL), "cudaEventRecord", why);
    if (status == ATTN_OK)
        status = status_cuda(cudaEventSynchronize(event[1]), "cudaEventSynchronize", why);
    if (status == ATTN_OK)
        status = status_cuda(cudaEventElapsedTime(ms, event[0], event[1]), "cudaEventElapsedTime", why);
    return status;
}

/* A candidate that fails to run is left out; the first round only warms up. */
static enum attn_status choose(struct harness_gemm *gemm, const cudaEvent_t event[2], struct attn_message *why)
{
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int count = 0;
    const enum attn_status status = candidates(gemm, found, &count, why);
    if (status != ATTN_OK)
        return status;
    float best_ms = INFINITY;
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < count; i++) {
            float ms;
            if (time_once(gemm, &found[i].algo, event, &ms, why) == ATTN_OK && round > 0 && ms < best_ms) {
                best_ms = ms;
                gemm->algorithm = found[i].algo;
            }
        }
    return best_ms < INFINITY ? ATTN_OK : ATTN_ERROR; /* the message is the last candidate's */
}

static enum attn_status search(struct harness_gemm *gemm, struct attn_message *why)
{
    cudaEvent_t event[2] = {NULL, NULL};
    enum attn_status status = status_cuda(cudaEventCreate(&event[0]), "cudaEventCreate", why);
    if (status == ATTN_OK)
        status = status_cuda(cudaEventCreate(&event[1]), "cudaEventCreate", why);
    if (status == ATTN_OK)
        status = choose(gemm, event, why);
    for (int i = 0; i < 2; i++)
        if (event[i])
            (void)cudaEventDestroy(event[i]);
    return status;
}

struct harness_gemm *harness_gemm_create(enum attn_dtype dtype, const float *quantile_table, struct attn_message *why)
{
    struct harness_gemm *gemm = (struct harness_gemm *)calloc(1, sizeof *gemm);
    if (!gemm) {
        status_fail(why, ATTN_NO_MEMORY, "the GEMM ceiling needs %zu bytes of host memory", sizeof *gemm);
        return NULL;
    }
    gemm->dtype = dtype;
    gemm->cublas = cublas_library(why);
    enum attn_status status = gemm->cublas ? allocate(gemm, quantile_table, why) : ATTN_ERROR;
    if (status == ATTN_OK)
        status = describe(gemm, why);
    if (status == ATTN_OK)
        status = search(gemm, why);
    if (status == ATTN_OK)
        return gemm;
    harness_gemm_destroy(gemm);
    return NULL;
}

enum attn_status harness_gemm_launch(struct harness_gemm *gemm, void *stream, struct attn_message *why)
{
    return run(gemm, &gemm->algorithm, (cudaStream_t)stream, why);
}

double harness_gemm_flops(const struct harness_gemm *) { return 2.0 * EXTENT * EXTENT * EXTENT; }

void harness_gemm_destroy(struct harness_gemm *gemm)
{
    if (!gemm)
        return;
    if (gemm->layout)
        (void)gemm->cublas->lt_layout_destroy(gemm->layout);
    if (gemm->product)
        (void)gemm->cublas->lt_product_destroy(gemm->product);
    if (gemm->lt)
        (void)gemm->cublas->lt_destroy(gemm->lt);
    (void)cudaFree(gemm->a);
    (void)cudaFree(gemm->b);
    (void)cudaFree(gemm->c);
    (void)cudaFree(gemm->workspace);
    free(gemm);
}
