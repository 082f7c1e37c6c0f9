/* reference_cuda and naive against the float64 oracle, on small hard shapes: rows that see no key, odd
 * lengths, grouped heads, windows, one query or one key, sums that are cut into pieces, logits far outside exp. */
#include "tests/gpu/gpu_check.h"

#include "reference/registry.h"
#include "reference/harness/harness_cuda.h"
#include "reference/reference.h"
#include "tests/dense.h"

enum { ORACLE_THREADS = 8, OUTPUT_COUNT = 5 };

struct shape {
    const char *what;
    struct attn_problem problem;
    enum fill_dist dist;
};

#define SHAPE(WHAT, DTYPE, LAYOUT, B, HQ, HKV, M, N, D, CAUSAL, LEFT, RIGHT, DIST) \
    { \
        WHAT, DENSE(B, HQ, HKV, M, N, D, ATTN_##DTYPE, ATTN_##LAYOUT, CAUSAL, LEFT, RIGHT, 0.0f, 0.0f), FILL_##DIST \
    }

static const struct shape shapes[] = {
    SHAPE("one of all", FP32, BHSD, 1, 1, 1, 1, 1, 8, false, -1, -1, NORMAL),
    SHAPE("causal", BF16, BSHD, 2, 4, 4, 65, 65, 64, true, -1, -1, NORMAL),
    SHAPE("causal", FP16, BHSD, 2, 3, 3, 128, 128, 128, true, -1, -1, NORMAL),
    SHAPE("multi-query", FP16, BSHD, 2, 3, 1, 37, 129, 128, false, -1, -1, NORMAL),
    SHAPE("multi-query", BF16, BHSD, 3, 4, 1, 70, 33, 64, true, -1, -1, NORMAL),
    SHAPE("blind rows", BF16, BHSD, 2, 2, 2, 130, 67, 64, true, -1, -1, NORMAL),
    SHAPE("blind rows", FP16, BSHD, 3, 5, 5, 53, 47, 16, true, -1, -1, NORMAL),
    SHAPE("more keys", FP16, BSHD, 1, 2, 2, 127, 255, 64, true, -1, -1, NORMAL),
    SHAPE("left window", BF16, BSHD, 2, 6, 3, 100, 100, 72, false, 10, 0, NORMAL),
    SHAPE("window", FP16, BHSD, 1, 2, 1, 64, 64, 128, false, 5, 7, NORMAL),
    SHAPE("causal window", FP32, BSHD, 1, 4, 4, 97, 301, 40, true, 33, -1, NORMAL),
    SHAPE("window, blind rows", BF16, BSHD, 2, 4, 2, 140, 60, 32, false, 3, 4, NORMAL),
    SHAPE("one query", BF16, BSHD, 1, 2, 2, 1, 1000, 128, true, -1, -1, NORMAL),
    SHAPE("one key", BF16, BSHD, 1, 2, 2, 1000, 1, 64, false, -1, -1, NORMAL),
    SHAPE("grouped heads", BF16, BSHD, 2, 8, 2, 257, 259, 96, true, -1, -1, NORMAL),
    SHAPE("grouped heads", FP16, BHSD, 2, 6, 3, 191, 80, 64, false, -1, -1, NORMAL),
    SHAPE("long sums over keys", BF16, BSHD, 1, 1, 1, 150, 5001, 64, false, -1, -1, NORMAL),
    SHAPE("long sums over queries", FP16, BHSD, 1, 2, 1, 2300, 70, 64, false, -1, -1, NORMAL),
    SHAPE("sharp", FP16, BSHD, 1, 2, 2, 129, 200, 128, true, -1, -1, SHARP),
    SHAPE("constant V", BF16, BSHD, 2, 2, 1, 100, 131, 64, true, -1, -1, CONSTANT),
    SHAPE("constant V", FP16, BSHD, 1, 2, 2, 100, 300, 128, false, -1, -1, CONSTANT),
    SHAPE("many heads", FP16, BSHD, 700, 100, 100, 5, 9, 8, true, -1, -1, NORMAL),
    SHAPE("many heads", BF16, BHSD, 700, 100, 50, 5, 9, 8, false, -1, -1, NORMAL),
    SHAPE("odd head dim", FP32, BHSD, 2, 2, 1, 33, 45, 7, true, -1, -1, NORMAL),
};

/* Tensors of a problem in the order q k v o dout dq dk dv. */
enum { Q, K, V, O, DOUT, DQ, DK, DV, TENSORS };

struct bench {
    struct attn_problem problem;
    struct mirror tensor[TENSORS];
    float *device_lse;
    struct attn_tensors host, device;
    struct reference_outputs oracle, judge, judge_host; /* arrays of reference_cuda, in device memory */
    int64_t elements[OUTPUT_COUNT];                     /* o lse dq dk dv */
};

static float **output_slot(struct reference_outputs *out, int i)
{
    float **const slots[] = {&out->o,     &out->lse, &out->dq,     &out->dk,     &out->dv,
                             &out->o_abs, NULL,      &out->dq_abs, &out->dk_abs, &out->dv_abs};
    return slots[i];
}
static const char *const output_names[] = {"o", "lse", "dq", "dk", "dv", "|o|", "", "|dq|", "|dk|", "|dv|"};

static struct attn_tensors tensors_of(const struct bench *b, bool device)
{
    struct attn_tensors t = {.lse = device ? b->device_lse : NULL};
    struct attn_tensor *const slots[TENSORS] = {&t.q, &t.k, &t.v, &t.o, &t.dout, &t.dq, &t.dk, &t.dv};
    for (int i = 0; i < TENSORS; i++)
        *slots[i] = device ? b->tensor[i].device : b->tensor[i].host;
    return t;
}

static void fill_inputs(const struct bench *b, enum fill_dist dist)
{
    static const enum fill_tensor ids[TENSORS] = {[Q] = FILL_Q, [K] = FILL_K, [V] = FILL_V, [DOUT] = FILL_DO};
    float *table = host_alloc(FILL_TABLE_SIZE * sizeof *table), gain;
    for (int i = 0; i < TENSORS; i++) {
        const struct mirror *m = &b->tensor[i];
        if (ids[i]) {
            fill_table(dist, ids[i], table, &gain);
            fill_tensor_host(m->host, m->dtype, m->batch, m->heads, m->len, m->head_dim, 20, ids[i], table, gain);
        } else
            memset(m->host.data, 0xFF, m->bytes); /* NaN: outputs must be written */
        mirror_upload(m);
    }
    free(table);
}

static struct bench bench_create(const struct attn_problem *problem, enum fill_dist dist)
{
    struct bench b = {.problem = *problem};
    struct attn_problem *p = &b.problem;
    if (p->scale == 0)
        p->scale = 1 / sqrtf((float)p->head_dim);
    for (int i = 0; i < TENSORS; i++) {
        const bool keys = i == K || i == V || i == DK || i == DV;
        b.tensor[i] = mirror_create(p->layout, p->dtype, p->batch, keys ? p->kv_heads : p->q_heads,
                                    keys ? p->kv_len : p->q_len, p->head_dim);
    }
    const int64_t queries = p->batch * p->q_heads * p->q_len, keys = p->batch * p->kv_heads * p->kv_len;
    const int64_t counts[OUTPUT_COUNT] = {queries * p->head_dim, queries, queries * p->head_dim, keys * p->head_dim,
                                          keys * p->head_dim};
    b.device_lse = device_alloc((size_t)queries * sizeof(float));
    need_cuda(cudaMemset(b.device_lse, 0xFF, (size_t)queries * sizeof(float)), "cudaMemset");
    for (int i = 0; i < 2 * OUTPUT_COUNT; i++) {
        float **const oracle = output_slot(&b.oracle, i), **const judge = output_slot(&b.judge, i);
        if (!oracle)
            continue;
        b.elements[i % OUTPUT_COUNT] = counts[i % OUTPUT_COUNT];
        const size_t bytes = (size_t)counts[i % OUTPUT_COUNT] * sizeof(float);
        *oracle = host_alloc(bytes);
        *output_slot(&b.judge_host, i) = host_alloc(bytes);
        *judge = device_alloc(bytes);
        need_cuda(cudaMemset(*judge, 0xFF, bytes), "cudaMemset");
    }
    b.host = tensors_of(&b, false);
    b.device = tensors_of(&b, true);
    fill_inputs(&b, dist);
    return b;
}

static void bench_free(struct bench *b)
{
    for (int i = 0; i < TENSORS; i++)
        mirror_free(&b->tensor[i]);
    need_cuda(cudaFree(b->device_lse), "cudaFree");
    for (int i = 0; i < 2 * OUTPUT_COUNT; i++)
        if (output_slot(&b->oracle, i)) {
            free(*output_slot(&b->oracle, i));
            free(*output_slot(&b->judge_host, i));
            need_cuda(cudaFree(*output_slot(&b->judge, i)), "cudaFree");
        }
}

static const char *describe(const struct bench *b, const char *what)
{
    static char text[160];
    const struct attn_problem *p = &b->problem;
    snprintf(text, sizeof text, "%s: %s %s b%lld h%lld/%lld %lldx%lld d%lld%s", what, dtype_text(p->dtype),
             p->layout == ATTN_BSHD ? "bshd" : "bhsd", (long long)p->batch, (long long)p->q_heads,
             (long long)p->kv_heads, (long long)p->q_len, (long long)p->kv_len, (long long)p->head_dim,
             p->causal ? " causal" : "");
    return text;
}

/* ||x - ref|| / max(||ref||, floor * ||abs||); NaN where either is not finite. */
static double relative_rms(const float *x, const float *ref, const float *abs_product, double floor, int64_t count)
{
    double err2 = 0, ref2 = 0, abs2 = 0;
    for (int64_t i = 0; i < count; i++) {
        err2 += ((double)x[i] - ref[i]) * ((double)x[i] - ref[i]);
        ref2 += (double)ref[i] * ref[i];
        abs2 += abs_product ? (double)abs_product[i] * abs_product[i] : 0;
    }
    const double norm2 = fmax(ref2, floor * floor * abs2);
    return err2 == 0 ? 0 : sqrt(err2 / norm2);
}

/* Largest |x - lse|, infinity when the rows of -inf differ. */
static double lse_error(const float *x, const float *ref, int64_t count)
{
    double worst = 0;
    for (int64_t i = 0; i < count; i++) {
        const double err = x[i] == ref[i] ? 0 : fabs((double)x[i] - ref[i]);
        worst = err <= worst ? worst : err; /* NaN stays */
    }
    return worst;
}

/* ---- the judge -------------------------------------------------------------------------------------------------- */

static void run_judge(const struct bench *b, enum attn_mode mode, const struct reference_outputs *out)
{
    struct attn_message why = {""};
    const size_t bytes = reference_cuda_workspace_bytes(&b->problem, mode);
    void *workspace = device_alloc(bytes);
    need_cuda(cudaMemset(workspace, 0xFF, bytes), "cudaMemset");
    need(reference_cuda(&b->problem, mode, &b->device, out, workspace, bytes, NULL, &why) == ATTN_OK, why.text);
    need_cuda(cudaDeviceSynchronize(), "reference_cuda");
    need_cuda(cudaFree(workspace), "cudaFree");
}

/* Against the oracle, whose results for backward are in place. The fp32 reference must be several digits better than 16
 * bits: 2e-6, where an element is not mostly cancellation; 4e-6 for sharp logits, since scores up to 35 carry 35 *
 * 2^-24 = 2e-6 into P by themselves. lse_limit: of LSE, absolute. */
static double judge_worst;
static void check_judge_with(struct bench *b, const char *what, double limit, double lse_limit)
{
    char errors[256] = "";
    bool good = true;
    for (int i = 0; i < 2 * OUTPUT_COUNT; i++) {
        float **const oracle = output_slot(&b->oracle, i), **const host = output_slot(&b->judge_host, i);
        if (!oracle)
            continue;
        const int64_t count = b->elements[i % OUTPUT_COUNT];
        need_cuda(cudaMemcpy(*host, *output_slot(&b->judge, i), (size_t)count * sizeof(float), cudaMemcpyDeviceToHost),
                  "download");
        float **const abs_slot = i < OUTPUT_COUNT && i != 1 ? output_slot(&b->oracle, i + OUTPUT_COUNT) : NULL;
        const double error = i == 1 ? lse_error(*host, *oracle, count)
                                    : relative_rms(*host, *oracle, abs_slot ? *abs_slot : NULL, 0.1, count);
        good = good && error <= (i == 1 ? lse_limit : limit);
        if (i != 1 && error > judge_worst)
            judge_worst = error;
        snprintf(errors + strlen(errors), sizeof errors - strlen(errors), " %s %.1e", output_names[i], error);
    }
    check(good, "reference %s:%s", describe(b, what), errors);
}

static void check_judge(struct bench *b, const char *what, double limit) { check_judge_with(b, what, limit, 2e-5); }

/* Without the products over absolute values nothing is written to them, and forward fills the same o and lse. */
static void check_judge_modes(struct bench *b)
{
    struct reference_outputs partial = {.o = b->judge.o_abs, .lse = b->device_lse};
    run_judge(b, ATTN_FWD, &partial);
    const int64_t count = b->elements[0];
    float *forward = host_alloc((size_t)count * sizeof *forward);
    need_cuda(cudaMemcpy(forward, partial.o, (size_t)count * sizeof *forward, cudaMemcpyDeviceToHost), "download");
    check(memcmp(forward, b->judge_host.o, (size_t)count * sizeof *forward) == 0,
          "reference: forward alone gives backward's o to the bit");
    free(forward);
}

/* Two heads of a group whose rows do not fit into one block of s: the second block starts inside the second head. */
static void test_judge_blocks(void)
{
    const struct shape shape = SHAPE("two blocks of rows", BF16, BSHD, 1, 2, 1, 4100, 16400, 8, true, -1, -1, NORMAL);
    struct bench b = bench_create(&shape.problem, shape.dist);
    struct attn_message why = {""};
    need(oracle_attention(&b.problem, ATTN_BWD, &b.host, &b.oracle, ORACLE_THREADS, &why) == ATTN_OK, why.text);
    run_judge(&b, ATTN_BWD, &b.judge);
    check_judge(&b, shape.what, 2e-6);
    bench_free(&b);
}

/* |LSE| above 120 in fp16, where the products over absolute values hold the error of the logits, without and with
 * dropout, which is computed in reference_sequences.cu. Logits up to 200 carry 200 * 2^-24 = 1.2e-5 into P. LSE has the
 * error of a logit, a sum of head_dim terms in fp32: two deviations of 2^-23 sqrt(head_dim / 12) |LSE|. */
static void test_judge_large_logits(void)
{
    struct shape shape = SHAPE("large logits", FP16, BSHD, 1, 2, 2, 129, 200, 256, true, -1, -1, SHARP);
    shape.problem.scale = 0.5f;
    for (int i = 0; i < 2; i++) {
        shape.problem.dropout = (float)i / 4;
        struct bench b = bench_create(&shape.problem, shape.dist);
        struct attn_message why = {""};
        double largest = 0, smallest = 1, largest_lse = 0;
        need(oracle_attention(&b.problem, ATTN_BWD, &b.host, &b.oracle, ORACLE_THREADS, &why) == ATTN_OK, why.text);
        for (int64_t row = 0; row < b.elements[1]; row++) {
            const double lambda = reference_logit_error(&b.problem, (double)b.oracle.lse[row]);
            largest = fmax(largest, lambda);
            smallest = fmin(smallest, lambda);
            if (isfinite(b.oracle.lse[row]))
                largest_lse = fmax(largest_lse, fabs((double)b.oracle.lse[row]));
        }
        check(largest > 0 && smallest == 0, "large logits: the error of the logits counts in some rows");
        run_judge(&b, ATTN_BWD, &b.judge);
        check_judge_with(&b, shape.what, 6e-5, 2 * 0x1p-23 * sqrt((double)shape.problem.head_dim / 12) * largest_lse);
        bench_free(&b);
    }
}

/* ---- naive ------------------------------------------------------------------------------------------------------ */

struct passes {
    int count;
    char names[160];
};

static void note_pass(void *context, const char *name)
{
    struct passes *p = context;
    p->count++;
    snprintf(p->names + strlen(p->names), sizeof p->names - strlen(p->names), "%s ", name);
}

static unsigned long long output_hash(const struct bench *b, enum attn_mode mode)
{
    static const struct column_signs none;
    unsigned long long *counter = device_alloc(2 * sizeof *counter), value;
    need_cuda(cudaMemset(counter, 0, 2 * sizeof *counter), "cudaMemset");
    for (int i = 0; i < TENSORS; i++) {
        const struct mirror *m = &b->tensor[i];
        if (mode == ATTN_FWD ? i == O : i == DQ || i == DK || i == DV)
            need_cuda((cudaError_t)harness_digest(m->device, attn_dtype_bytes(m->dtype), m->batch, m->heads, m->len,
                                                  m->head_dim, &none, counter, NULL),
                      "harness_digest");
    }
    if (mode == ATTN_FWD) {
        const struct attn_tensor lse = {b->device_lse, 0, 0, 1};
        need_cuda((cudaError_t)harness_digest(lse, 4, 1, 1, b->elements[1], 1, &none, counter, NULL), "harness_digest");
    }
    need_cuda(cudaMemcpy(&value, counter, sizeof value, cudaMemcpyDeviceToHost), "download");
    need_cuda(cudaFree(counter), "cudaFree");
    return value;
}

static void poison_outputs(const struct bench *b, enum attn_mode mode)
{
    for (int i = 0; i < TENSORS; i++)
        if (mode == ATTN_FWD ? i == O : i == DQ || i == DK || i == DV)
            need_cuda(cudaMemset(b->tensor[i].device.data, 0xFF, b->tensor[i].bytes), "cudaMemset");
    if (mode == ATTN_FWD)
        need_cuda(cudaMemset(b->device_lse, 0xFF, (size_t)b->elements[1] * sizeof(float)), "cudaMemset");
}

/* The same launch captured into a graph gives the same bits: nothing is allocated, nothing waits. */
static bool captured_equal(const struct bench *b, const struct attn_request *request, struct attn_run run,
                           unsigned long long want)
{
    struct attn_message why = {""};
    cudaStream_t stream;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    need_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    run.stream = stream;
    run.pass = NULL;
    poison_outputs(b, request->mode);
    need_cuda(cudaDeviceSynchronize(), "poison");
    need_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    const enum attn_status status = attn_naive_cuda.launch(request, &b->device, &run, &why);
    const bool captured = cudaStreamEndCapture(stream, &graph) == cudaSuccess && status == ATTN_OK;
    bool equal = false;
    if (captured) {
        need_cuda(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
        need_cuda(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
        need_cuda(cudaStreamSynchronize(stream), "graph");
        equal = output_hash(b, request->mode) == want;
        need_cuda(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
        need_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    } else
        printf("     not captured: %s\n", why.text);
    need_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
    return equal;
}

/* Runs naive; the outputs are on the device afterwards. */
static bool run_naive(const struct bench *b, const struct attn_device *device, enum attn_mode mode)
{
    static const char *const names[] = {"scores softmax output ", "dv dp ds dq dk "};
    struct attn_message why = {""};
    const struct attn_request request = {.problem = &b->problem, .device = device, .mode = mode, .deterministic = true};
    need(attn_naive_cuda.accepts(&request, &why) == ATTN_OK, why.text);
    const size_t bytes = attn_naive_cuda.workspace_bytes(&request);
    struct passes passes = {0, ""};
    struct attn_run run = {
        .workspace = device_alloc(bytes), .workspace_bytes = bytes, .pass = note_pass, .pass_context = &passes};
    need_cuda(cudaMemset(run.workspace, 0xFF, bytes), "cudaMemset");
    need(attn_naive_cuda.prepare(&request, &b->device, &run.plan, &why) == ATTN_OK, why.text);
    need(attn_naive_cuda.launch(&request, &b->device, &run, &why) == ATTN_OK, why.text);
    need_cuda(cudaDeviceSynchronize(), "naive");
    const unsigned long long first = output_hash(b, mode);
    const bool good = strcmp(passes.names, names[mode]) == 0 && captured_equal(b, &request, run, first);
    attn_naive_cuda.release(run.plan);
    need_cuda(cudaFree(run.workspace), "cudaFree");
    return good;
}

/* A strided output on the host as contiguous fp32. */
static float *contiguous(const struct mirror *m)
{
    float *out = host_alloc((size_t)(m->batch * m->heads * m->len * m->head_dim) * sizeof *out);
    int64_t i = 0;
    mirror_download(m);
    for (int64_t b = 0; b < m->batch; b++)
        for (int64_t h = 0; h < m->heads; h++)
            for (int64_t row = 0; row < m->len; row++)
                for (int64_t col = 0; col < m->head_dim; col++)
                    out[i++] = mirror_at(m, b, h, row, col);
    return out;
}

static const double naive_bounds[3][2] = {{5e-6, 1e-5}, {1.6e-3, 4e-3}, {1e-2, 2e-2}}; /* dtype, mode */
static double naive_worst[3][2];

/* naive's S is rounded to the I/O dtype, and LSE inherits that: half a unit in the last place of the largest logit. */
static double naive_lse_bound(const struct bench *b)
{
    double largest = 1;
    for (int64_t i = 0; i < b->elements[1]; i++)
        if (isfinite(b->oracle.lse[i]))
            largest = fmax(largest, fabs(b->oracle.lse[i]) + 4);
    return b->problem.dtype == ATTN_FP32 ? 2e-5 : largest * (b->problem.dtype == ATTN_FP16 ? 0x1p-11 : 0x1p-8);
}

static void check_naive(struct bench *b, const struct attn_device *device, const char *what, bool backward)
{
    static const int tensor[OUTPUT_COUNT] = {O, -1, DQ, DK, DV};
    const enum attn_dtype dtype = b->problem.dtype;
    const double eps = dtype == ATTN_FP16 ? 0x1p-11 : dtype == ATTN_BF16 ? 0x1p-8 : 0.1;
    char errors[200] = "";
    bool good = true;
    const bool repeatable = run_naive(b, device, ATTN_FWD) && (!backward || run_naive(b, device, ATTN_BWD));
    for (int i = 0; i < (backward ? OUTPUT_COUNT : 2); i++) {
        const enum attn_mode mode = i < 2 ? ATTN_FWD : ATTN_BWD;
        double error, bound;
        if (i == 1) {
            need_cuda(cudaMemcpy(b->judge_host.lse, b->device_lse, (size_t)b->elements[1] * sizeof(float),
                                 cudaMemcpyDeviceToHost),
                      "download");
            error = lse_error(b->judge_host.lse, b->oracle.lse, b->elements[1]);
            bound = naive_lse_bound(b);
        } else {
            float *got = contiguous(&b->tensor[tensor[i]]);
            error = relative_rms(got, *output_slot(&b->oracle, i), *output_slot(&b->oracle, i + OUTPUT_COUNT), eps,
                                 b->elements[i]);
            free(got);
            bound = naive_bounds[dtype][mode];
            naive_worst[dtype][mode] = error > naive_worst[dtype][mode] ? error : naive_worst[dtype][mode];
        }
        good = good && error <= bound;
        snprintf(errors + strlen(errors), sizeof errors - strlen(errors), " %s %.1e", output_names[i], error);
    }
    check(good && repeatable, "naive %s:%s%s", describe(b, what), errors,
          repeatable ? "" : "; passes misnamed, or a graph gave other bits");
}

/* Every kernel of the table of row lengths, its last length and one more, forward and backward. */
static void test_naive_row_lengths(const struct attn_device *device)
{
    static const int64_t lengths[] = {
        7,    8,    9,    256,  257,  512,   600,   1024,  1025, 2048,
        2049, 4096, 4100, 8192, 8193, 16384, 16385, 32768, 32769}; /* fp32's limits are half of these */
    for (int i = 0; i < (int)(sizeof lengths / sizeof lengths[0]); i++)
        for (int dtype = ATTN_FP32; dtype <= ATTN_BF16; dtype++) {
            if (dtype == ATTN_FP16 && i % 2)
                continue; /* the 16-bit types share their table of lengths: bf16 takes all, fp16 every other */
            const struct attn_problem p =
                DENSE(1, 2, 2, 5, lengths[i], 32, (enum attn_dtype)dtype, ATTN_BSHD, i % 3 == 0, -1, -1, 0, 0);
            struct bench b = bench_create(&p, FILL_NORMAL);
            struct attn_message why = {""};
            need(oracle_attention(&b.problem, ATTN_BWD, &b.host, &b.oracle, 2, &why) == ATTN_OK, why.text);
            check_naive(&b, device, "row length", true);
            bench_free(&b);
        }
}

static bool refuses(const struct attn_request *request)
{
    struct attn_message why = {""};
    return attn_naive_cuda.accepts(request, &why) == ATTN_UNSUPPORTED && why.text[0] != 0;
}

static void test_naive_refusals(const struct attn_device *device)
{
    const struct attn_problem good = DENSE(2, 4, 2, 64, 64, 64, ATTN_BF16, ATTN_BSHD, true, -1, -1, 0.125f, 0);
    struct attn_problem p = good;
    struct attn_device turing = *device;
    struct attn_request request = {.problem = &p, .device = device, .mode = ATTN_FWD};
    int wrong = refuses(&request);
    p.window_left = 5;
    wrong += refuses(&request); /* it takes windows */
    p = good;
    request.splits = 2;
    wrong += !refuses(&request);
    request.splits = 0;
    p.head_dim = 36;
    wrong += !refuses(&request);
    p = good;
    p.kv_heads = 3;
    wrong += !refuses(&request);
    p = good;
    p.q_len = p.kv_len = 1 << 28;
    wrong += refuses(&request); /* absurd, but its bytes can be counted */
    p.batch = p.q_heads = 1 << 20;
    wrong += !refuses(&request);
    p = good;
    request.variant = "d64";
    wrong += !refuses(&request);
    request.variant = NULL;
    turing.sm = 75;
    request.device = &turing;
    wrong += !refuses(&request);
    check(wrong == 0, "naive refuses in words what it cannot do: %d of 9 answers wrong", wrong);
}

/* Too little workspace and too much memory are statuses, and the context survives them. */
static void test_naive_failures(const struct attn_device *device)
{
    struct attn_problem p = DENSE(2, 2, 2, 64, 64, 64, ATTN_BF16, ATTN_BSHD, true, -1, -1, 0.125f, 0);
    struct bench b = bench_create(&p, FILL_NORMAL);
    struct attn_message why = {""};
    struct attn_request request = {.problem = &b.problem, .device = device, .mode = ATTN_FWD};
    struct attn_run run = {.workspace = b.device_lse, .workspace_bytes = 16};
    need(attn_naive_cuda.prepare(&request, &b.device, &run.plan, &why) == ATTN_OK, why.text);
    const bool small = attn_naive_cuda.launch(&request, &b.device, &run, &why) == ATTN_ERROR && why.text[0];
    attn_naive_cuda.release(run.plan);
    check(small, "naive says when its workspace is too small: %s", why.text);
    struct attn_problem big = b.problem;
    big.q_len = big.kv_len = 1 << 21; /* 32 TiB of P; fails before anything is read */
    request = (struct attn_request){.problem = &big, .device = device, .mode = ATTN_BWD};
    void *plan = &big;
    const enum attn_status status = attn_naive_cuda.prepare(&request, &b.device, &plan, &why);
    check(status == ATTN_NO_MEMORY && plan == NULL && cudaGetLastError() == cudaSuccess,
          "naive says how much memory is missing: %s", why.text);
    const size_t p_bytes = attn_naive_cuda.plan_bytes(&request, NULL);
    const size_t s_bytes = attn_naive_cuda.workspace_bytes(&request);
    check(s_bytes >= (size_t)4 * 2 << 42 && p_bytes >= (size_t)4 * 2 << 42, "naive counts S and the stored P");
    bench_free(&b);
}

int main(void)
{
    const struct attn_device device = check_device();
    for (int i = 0; i < (int)(sizeof shapes / sizeof shapes[0]); i++) {
        struct bench b = bench_create(&shapes[i].problem, shapes[i].dist);
        struct attn_message why = {""};
        const struct attn_request request = {.problem = &b.problem, .device = &device, .mode = ATTN_FWD};
        need(oracle_attention(&b.problem, ATTN_BWD, &b.host, &b.oracle, ORACLE_THREADS, &why) == ATTN_OK, why.text);
        run_judge(&b, ATTN_BWD, &b.judge);
        check_judge(&b, shapes[i].what, shapes[i].dist == FILL_SHARP ? 4e-6 : 2e-6);
        if (attn_naive_cuda.accepts(&request, &why) == ATTN_OK)
            check_naive(&b, &device, shapes[i].what, true);
        if (i == 1)
            check_judge_modes(&b);
        bench_free(&b);
    }
    test_judge_blocks();
    test_judge_large_logits();
    test_naive_row_lengths(&device);
    test_naive_refusals(&device);
    test_naive_failures(&device);
    printf("worst: reference %.1e; naive fp16 fwd %.1e bwd %.1e, bf16 fwd %.1e bwd %.1e, fp32 fwd %.1e bwd %.1e\n",
           judge_worst, naive_worst[ATTN_FP16][ATTN_FWD], naive_worst[ATTN_FP16][ATTN_BWD],
           naive_worst[ATTN_BF16][ATTN_FWD], naive_worst[ATTN_BF16][ATTN_BWD], naive_worst[ATTN_FP32][ATTN_FWD],
           naive_worst[ATTN_FP32][ATTN_BWD]);
    return check_finish();
}
