/* reference_cuda and naive with the attributes beyond dense attention: against the golden vectors, and against the
 * float64 oracle on listed and on drawn problems. What is behind the used keys of a cache is NaN, so are the outputs
 * and the workspace before a launch; nothing may be written beside an output. Runs from the root of the repository. */
#include "tests/unit/reference/family.h"

#include "reference/registry.h"
#include "tests/gpu/gpu_check.h"

enum { DRAWN_PROBLEMS = 400, GUARD = 64, ORACLE_THREADS = 8 };

static struct attn_device device;
static double worst_reference, worst_naive[3][2]; /* dtype, mode */

/* ---- device memory ----------------------------------------------------------------------------------------------- */

struct copies {
    void *memory[32];
    int count;
};

static void copies_free(struct copies *c)
{
    while (c->count > 0)
        need_cuda(cudaFree(c->memory[--c->count]), "cudaFree");
}

static void *upload(struct copies *c, const void *from, int64_t elements, size_t bytes_each)
{
    if (!from || elements == 0)
        return NULL;
    void *to = device_alloc((size_t)elements * bytes_each);
    c->memory[c->count++] = to;
    need_cuda(cudaMemcpy(to, from, (size_t)elements * bytes_each, cudaMemcpyHostToDevice), "upload");
    return to;
}

/* The inputs and the arrays of a problem on the device. */
static struct attn_tensors upload_inputs(struct copies *c, const struct attn_problem *p, const struct attn_tensors *t)
{
    const size_t in = attn_dtype_bytes(p->dtype), out = attn_dtype_bytes(attn_output_dtype(p));
    const size_t of_keys = attn_dtype_bytes(attn_kv_dtype(p));
    struct attn_tensors d = *t;
    d.q.data = upload(c, t->q.data, q_rows(p) * p->head_dim, in);
    d.k.data = upload(c, t->k.data, kv_elements(p, p->head_dim), of_keys);
    d.v.data = attn_v_is_in_k(p) ? d.k.data : upload(c, t->v.data, kv_elements(p, attn_v_head_dim(p)), of_keys);
    d.dout.data = upload(c, t->dout.data, q_rows(p) * attn_v_head_dim(p), out);
    d.cu_seqlens_q = upload(c, t->cu_seqlens_q, p->batch + 1, sizeof(int32_t));
    d.cu_seqlens_k = upload(c, t->cu_seqlens_k, p->batch + 1, sizeof(int32_t));
    d.seqused_k = upload(c, t->seqused_k, p->batch, sizeof(int32_t));
    d.page_table = upload(c, t->page_table, table_elements(p), sizeof(int32_t));
    d.block_mask = upload(c, t->block_mask, mask_elements(p), 1);
    d.scale_q = upload(c, t->scale_q, scale_elements(p, false), sizeof(float));
    d.scale_k = upload(c, t->scale_k, scale_elements(p, true), sizeof(float));
    d.alibi_slopes = upload(c, t->alibi_slopes, p->q_heads, sizeof(float));
    d.bias.data = upload(c, t->bias.data, bias_elements(p), attn_dtype_bytes(p->bias_dtype));
    d.sink = upload(c, t->sink, p->q_heads, sizeof(float));
    d.scale_v = upload(c, t->scale_v, scale_elements(p, true), sizeof(float));
    return d;
}

/* Filled with NaN, with a guard on either side. */
static void *guarded(struct copies *c, int64_t elements, size_t bytes_each)
{
    const size_t bytes = (size_t)(elements + 2 * GUARD) * bytes_each;
    char *memory = device_alloc(bytes);
    c->memory[c->count++] = memory;
    need_cuda(cudaMemset(memory, 0xFF, bytes), "cudaMemset");
    return memory + GUARD * bytes_each;
}

/* The elements on the host, as they lie; fails the test when a guard was written. */
static void *download(const char *where, const void *data, int64_t elements, size_t bytes_each)
{
    const size_t guard = GUARD * bytes_each, bytes = (size_t)elements * bytes_each;
    unsigned char *all = host_alloc(bytes + 2 * guard);
    need_cuda(cudaMemcpy(all, (const char *)data - guard, bytes + 2 * guard, cudaMemcpyDeviceToHost), "download");
    for (size_t i = 0; i < guard; i++)
        if (all[i] != 0xFF || all[guard + bytes + i] != 0xFF)
            fail_msg("%s: wrote outside an output", where);
    memmove(all, all + guard, bytes);
    return all;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

static const char *const output_names[OUTPUTS] = {"o",    "lse",  "dq",    "dk",      "dv",    "|o|",    "|dq|",
                                                  "|dk|", "|dv|", "dsink", "|dsink|", "dbias", "|dbias|"};

/* The rows of a tensor in the order of the outputs of the oracle, as floats. */
static float *in_order(const struct attn_problem *p, const struct attn_tensors *t, struct attn_tensor x,
                       enum attn_dtype dtype, bool is_kv, int64_t d)
{
    const int64_t heads = is_kv ? p->kv_heads : p->q_heads;
    float *to = floats((is_kv ? k_rows(p) : q_rows(p)) * d);
    for (int64_t b = 0; b < p->batch; b++) {
        const struct attn_sequence at = attn_sequence_at(p, t, b);
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < (is_kv ? at.kv_len : at.q_len); i++) {
                const int64_t from = is_kv ? attn_key_offset(p, t, x, b, h, i) : attn_row_offset(p, t, x, b, h, i);
                const int64_t place = !is_kv                      ? attn_lse_index(p, t, b, h, i)
                                      : p->lengths == ATTN_PACKED ? h * p->total_k + at.k_first + i
                                                                  : (b * heads + h) * p->kv_len + i;
                for (int64_t c = 0; c < d; c++)
                    to[place * d + c] = fill_load(x.data, dtype, from + c);
            }
    }
    return to;
}

/* ||x - ref|| / (||ref|| + share * ||abs||). NaN where one is not finite and the other is; equal infinities agree. */
static double distance(const float *x, const float *ref, const float *abs, double share, int64_t count)
{
    double error2 = 0, ref2 = 0, abs2 = 0;
    for (int64_t i = 0; i < count; i++) {
        if (x[i] == ref[i] && isinf(ref[i]))
            continue;
        error2 += pow((double)x[i] - (double)ref[i], 2);
        ref2 += pow((double)ref[i], 2);
        abs2 += abs ? pow((double)abs[i], 2) : 0;
    }
    return error2 == 0 ? 0 : sqrt(error2) / (sqrt(ref2) + share * sqrt(abs2));
}

static double largest_difference(const float *x, const float *ref, int64_t count)
{
    double worst = 0;
    for (int64_t i = 0; i < count; i++) {
        const double error = x[i] == ref[i] ? 0 : fabs((double)x[i] - (double)ref[i]);
        worst = error <= worst ? worst : error; /* NaN stays */
    }
    return worst;
}

/* Output i of both where x has it. Returns the distance, of LSE the largest difference. */
static double compare(const char *where, const struct attn_problem *p, int i, const struct reference_outputs *x,
                      const struct reference_outputs *ref, double share, double bound)
{
    struct reference_outputs a = *x, b = *ref;
    float **got[OUTPUTS], **want[OUTPUTS];
    list_outputs(&a, got);
    list_outputs(&b, want);
    if (!*got[i] || !*want[i])
        return 0;
    const int64_t count = output_elements(p, i);
    const float *const abs = i == 0              ? *want[5]
                             : i >= 2 && i <= 4  ? *want[i + 4]
                             : i == 9 || i == 11 ? *want[i + 1]
                                                 : NULL;
    const double error =
        i == 1 ? largest_difference(*got[i], *want[i], count) : distance(*got[i], *want[i], abs, share, count);
    if (!(error <= bound))
        fail_msg("%s: %s has an error of %.3g, bound %.3g", where, output_names[i], error, bound);
    return error;
}

/* ---- the reference ----------------------------------------------------------------------------------------------- */

static struct reference_outputs run_reference(const char *where, const struct attn_problem *p, enum attn_mode mode,
                                              const struct attn_tensors *on_device, struct reference_outputs out)
{
    struct copies c = {.count = 0};
    struct attn_message why = {""};
    struct reference_outputs host = {0};
    float **list[OUTPUTS], **to[OUTPUTS];
    list_outputs(&out, list);
    list_outputs(&host, to);
    for (int i = 0; i < OUTPUTS; i++)
        *list[i] = mode == ATTN_BWD || i < 2 || i == 5 ? guarded(&c, output_elements(p, i), sizeof(float)) : NULL;
    const size_t bytes = reference_cuda_workspace_bytes(p, mode);
    void *workspace = device_alloc(bytes);
    c.memory[c.count++] = workspace;
    need_cuda(cudaMemset(workspace, 0xFF, bytes), "cudaMemset");
    if (reference_cuda(p, mode, on_device, &out, workspace, bytes, NULL, &why) != ATTN_OK)
        fail_msg("%s: %s", where, why.text);
    need_cuda(cudaDeviceSynchronize(), "reference_cuda");
    for (int i = 0; i < OUTPUTS; i++)
        *to[i] = *list[i] ? download(where, *list[i], output_elements(p, i), sizeof(float)) : NULL;
    copies_free(&c);
    return host;
}

static void check_reference(const char *where, const struct attn_problem *p, enum attn_mode mode,
                            const struct attn_tensors *on_device, const struct reference_outputs *want)
{
    const struct reference_outputs place = {
        .first_batch = want->first_batch, .first_head = want->first_head, .first_row = want->first_row};
    struct reference_outputs got = run_reference(where, p, mode, on_device, place);
    for (int i = 0; i < OUTPUTS; i++) {
        const double error = compare(where, p, i, &got, want, 0.04, i == 1 ? 2e-5 : 1e-5);
        worst_reference = i != 1 && error > worst_reference ? error : worst_reference;
    }
    outputs_free(&got);
}

/* ---- naive ------------------------------------------------------------------------------------------------------- */

/* Outputs of a launch, with the strides of Q and of K, or where V has another head dim contiguous ones. lse: on the
 * host; the backward reads it. */
static void set_outputs(struct copies *c, const struct attn_problem *p, enum attn_mode mode, const float *lse,
                        struct attn_tensors *t)
{
    const size_t bytes = attn_dtype_bytes(attn_output_dtype(p));
    const int64_t q = q_rows(p) * p->head_dim, k = k_rows(p) * p->head_dim;
    const int64_t o = q_rows(p) * attn_v_head_dim(p), v = k_rows(p) * attn_v_head_dim(p);
    t->o = attn_v_head_dim(p) == p->head_dim ? t->q : t->dout;
    t->dq = t->q;
    t->dk = t->k;
    t->dv = t->v;
    t->o.data = mode == ATTN_FWD ? guarded(c, o, bytes) : NULL;
    t->lse = guarded(c, q_rows(p), sizeof(float));
    if (mode == ATTN_BWD)
        need_cuda(cudaMemcpy(t->lse, lse, (size_t)q_rows(p) * sizeof(float), cudaMemcpyHostToDevice), "upload");
    t->dq.data = mode == ATTN_BWD ? guarded(c, q, bytes) : NULL;
    t->dk.data = mode == ATTN_BWD ? guarded(c, k, bytes) : NULL;
    t->dv.data = mode == ATTN_BWD ? guarded(c, v, bytes) : NULL;
    t->dbias = t->bias;
    t->dbias.data =
        mode == ATTN_BWD && p->bias_heads ? guarded(c, bias_elements(p), attn_dtype_bytes(p->bias_dtype)) : NULL;
    t->dsink = mode == ATTN_BWD && p->has_sink ? guarded(c, p->q_heads, sizeof(float)) : NULL;
}

/* The outputs of a launch, in the order of the oracle's. */
static void take_outputs(const char *where, const struct attn_problem *p, const struct attn_tensors *host,
                         const struct attn_tensors *t, struct reference_outputs *to)
{
    const enum attn_dtype dtype = attn_output_dtype(p);
    const struct {
        struct attn_tensor from;
        float **to;
        bool is_kv;
        int64_t d;
    } all[] = {{t->o, &to->o, false, attn_v_head_dim(p)},
               {t->dq, &to->dq, false, p->head_dim},
               {t->dk, &to->dk, true, p->head_dim},
               {t->dv, &to->dv, true, attn_v_head_dim(p)}};
    for (int i = 0; i < 4; i++)
        if (all[i].from.data) {
            const int64_t elements = (all[i].is_kv ? k_rows(p) : q_rows(p)) * all[i].d;
            struct attn_tensor x = all[i].from;
            void *const data = x.data = download(where, x.data, elements, attn_dtype_bytes(dtype));
            *all[i].to = in_order(p, host, x, dtype, all[i].is_kv, all[i].d);
            free(data);
        }
    if (t->dbias.data) {
        void *const data = download(where, t->dbias.data, bias_elements(p), attn_dtype_bytes(p->bias_dtype));
        to->dbias = floats(bias_elements(p));
        for (int64_t i = 0; i < bias_elements(p); i++)
            to->dbias[i] = fill_load(data, p->bias_dtype, i);
        free(data);
    }
    if (t->dsink)
        to->dsink = download(where, t->dsink, p->q_heads, sizeof(float));
    if (t->lse)
        to->lse = download(where, t->lse, q_rows(p), sizeof(float));
}

/* A launch on a stream that captures it, and the graph: nothing allocates, nothing waits. */
static void launch_captured(const char *where, const struct attn_request *request, const struct attn_tensors *t,
                            struct attn_run run)
{
    struct attn_message why = {""};
    cudaStream_t stream;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    need_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    run.stream = stream;
    need_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    const enum attn_status status = attn_naive_cuda.launch(request, t, &run, &why);
    if (cudaStreamEndCapture(stream, &graph) != cudaSuccess || status != ATTN_OK)
        fail_msg("%s: not captured: %s", where, why.text);
    need_cuda(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    need_cuda(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
    need_cuda(cudaStreamSynchronize(stream), "graph");
    need_cuda(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
    need_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    need_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

static void run_naive(const char *where, const struct attn_request *request, const struct attn_tensors *host,
                      const struct attn_tensors *on_device, const float *lse, bool captured,
                      struct reference_outputs *to)
{
    struct copies c = {.count = 0};
    struct attn_tensors t = *on_device;
    struct attn_message why = {""};
    set_outputs(&c, request->problem, request->mode, lse, &t);
    struct attn_run run = {.workspace_bytes = attn_naive_cuda.workspace_bytes(request)};
    c.memory[c.count++] = run.workspace = device_alloc(run.workspace_bytes);
    need_cuda(cudaMemset(run.workspace, 0xFF, run.workspace_bytes), "cudaMemset");
    if (attn_naive_cuda.prepare(request, &t, &run.plan, &why) != ATTN_OK)
        fail_msg("%s: %s", where, why.text);
    need_cuda(cudaDeviceSynchronize(), "naive's plan");
    if (captured)
        launch_captured(where, request, &t, run);
    else if (attn_naive_cuda.launch(request, &t, &run, &why) != ATTN_OK)
        fail_msg("%s: %s", where, why.text);
    need_cuda(cudaDeviceSynchronize(), "naive");
    attn_naive_cuda.release(run.plan);
    take_outputs(where, request->problem, host, &t, to);
    copies_free(&c);
}

/* naive's S has the precision of the I/O dtype, and LSE inherits that of the largest logit. */
static double lse_bound(const struct attn_problem *p, const float *lse)
{
    const enum attn_dtype dtype = attn_output_dtype(p);
    double largest = 1;
    for (int64_t i = 0; i < q_rows(p); i++)
        if (isfinite(lse[i]))
            largest = fmax(largest, fabs((double)lse[i]) + 4);
    return dtype == ATTN_FP32 ? 2e-5 : largest * (dtype == ATTN_FP16 ? 0x1p-11 : 0x1p-8);
}

static const double naive_bounds[3][2] = {{1e-5, 2e-5}, {1.6e-3, 4e-3}, {1e-2, 2e-2}}; /* dtype, mode */

static void check_naive(const char *where, const struct attn_problem *p, enum attn_mode mode,
                        const struct attn_tensors *host, const struct attn_tensors *on_device,
                        const struct reference_outputs *want)
{
    const struct attn_request request = {.problem = p,
                                         .device = &device,
                                         .mode = mode,
                                         .outputs = attn_default_outputs(mode) |
                                                    (mode == ATTN_BWD && p->has_sink ? ATTN_DSINK : 0u) |
                                                    (mode == ATTN_BWD && p->bias_heads ? ATTN_DBIAS : 0u)};
    const enum attn_dtype dtype = attn_output_dtype(p);
    const double eps = dtype == ATTN_FP32 ? 0.04 : dtype == ATTN_FP16 ? 0x1p-11 : 0x1p-8;
    struct attn_message why = {""};
    struct reference_outputs got = {0};
    const enum attn_status accepted = attn_naive_cuda.accepts(&request, &why);
    if (p->lengths == ATTN_CACHE && (p->total_q != 0 || p->cache_dtype)) { /* which naive does not compute on CUDA */
        assert_int_equal(accepted, ATTN_UNSUPPORTED);
        assert_string_equal(why.text, p->cache_dtype ? "takes no 8-bit cache of 16-bit queries"
                                                     : "takes no numbers of new rows that differ");
        return;
    }
    if (accepted != ATTN_OK)
        fail_msg("%s: refused: %s", where, why.text);
    run_naive(where, &request, host, on_device, want->lse, mode == ATTN_FWD, &got);
    for (int i = 0; i < OUTPUTS; i++) {
        /* dSink has an element a head, no rms over many: twice the bound, for naive rounds S and with it each P. */
        const double bound = i == 1 ? lse_bound(p, want->lse) : naive_bounds[dtype][mode] * (i == 9 ? 2 : 1);
        const double error = compare(where, p, i, &got, want, eps, bound);
        if (i != 1 && error > worst_naive[dtype][mode])
            worst_naive[dtype][mode] = error;
    }
    outputs_free(&got);
}

/* ---- the tests --------------------------------------------------------------------------------------------------- */

/* The results of the file in the order of the oracle's. */
static struct reference_outputs golden_results(const struct golden_family *g)
{
    const struct attn_problem *p = &g->problem;
    struct reference_outputs want = {.o = in_order(p, &g->in, g->want.o, ATTN_FP32, false, attn_v_head_dim(p))};
    want.lse = host_alloc((size_t)q_rows(p) * sizeof(float));
    memcpy(want.lse, g->want.lse, (size_t)q_rows(p) * sizeof(float));
    if (g->has_backward) {
        want.dq = in_order(p, &g->in, g->want.dq, ATTN_FP32, false, p->head_dim);
        want.dk = in_order(p, &g->in, g->want.dk, ATTN_FP32, true, p->head_dim);
        want.dv = in_order(p, &g->in, g->want.dv, ATTN_FP32, true, attn_v_head_dim(p));
    }
    return want;
}

static void golden_vectors(void **state)
{
    (void)state;
    for (int i = 0; i < GOLDEN_FAMILY_CASES; i++) {
        const char *const name = golden_family_names[i];
        struct golden_family g = golden_family_load(name);
        struct copies c = {.count = 0};
        struct reference_outputs want = golden_results(&g);
        const struct attn_tensors d = upload_inputs(&c, &g.problem, &g.in);
        check_reference(name, &g.problem, g.has_backward ? ATTN_BWD : ATTN_FWD, &d, &want);
        check_naive(name, &g.problem, ATTN_FWD, &g.in, &d, &want);
        if (g.has_backward)
            check_naive(name, &g.problem, ATTN_BWD, &g.in, &d, &want);
        outputs_free(&want);
        copies_free(&c);
        golden_family_free(&g);
    }
}

/* Against the oracle: both modes where the problem has both. */
static void check_problem(const char *where, const struct attn_problem *problem)
{
    struct made m = make(problem);
    const struct attn_problem *p = &m.p;
    const enum attn_mode mode = p->lengths == ATTN_CACHE ? ATTN_FWD : ATTN_BWD;
    struct reference_outputs want = outputs_new(p);
    struct copies c = {.count = 0};
    if (p->lengths == ATTN_CACHE)
        poison_cache(&m);
    const struct attn_tensors d = upload_inputs(&c, p, &m.t);
    want.first_batch = 1 + p->q_len % 2;
    want.first_head = 1 + p->kv_len % 3;
    run_oracle(p, mode, &m.t, &want, ORACLE_THREADS);
    check_reference(where, p, mode, &d, &want);
    if (p->dropout != 0) { /* naive computes the whole */
        want.first_batch = want.first_head = 0;
        run_oracle(p, mode, &m.t, &want, ORACLE_THREADS);
    }
    check_naive(where, p, ATTN_FWD, &m.t, &d, &want);
    if (mode == ATTN_BWD && !attn_dtype_is_8_bit(p->dtype))
        check_naive(where, p, ATTN_BWD, &m.t, &d, &want);
    outputs_free(&want);
    copies_free(&c);
    made_free(&m);
}

#define CACHE(size) .lengths = ATTN_CACHE, .page_size = size

static const struct attn_problem problems[] = {
    {BASE(1, 2, 1, 40, 33, 8, false, 5, 3)},
    {BASE(1, 2, 1, 131, 60, 8, true, 40, -1)}, /* rows that see nothing */
    {CAUSAL, .softcap = 1.5f},
    {BASE(1, 2, 1, 40, 33, 8, false, 5, 3), .softcap = 20},
    {BASE(2, 2, 2, 64, 64, 64, true, -1, -1), .softcap = 0.1f}, /* most logits at the cap */
    {ANY, DROPOUT},
    {CAUSAL, DROPOUT, .softcap = 2},
    {ANY, MASK(16, 3, 4)},
    {CAUSAL, MASK(32, 1, 1)},
    {CAUSAL, MASK(64, 3, 1), DROPOUT},
    {BASE(2, 4, 2, 300, 250, 16, true, -1, -1), MASK(128, 1, 4)},
    {ANY, PACKED},
    {CAUSAL, PACKED, DROPOUT},
    {BASE(5, 2, 1, 70, 50, 8, true, 12, -1), PACKED, .softcap = 3, .layout = ATTN_BHSD},
    {BASE(4, 2, 2, 50, 70, 8, false, 12, 4), PACKED, MASK(16, 4, 2)},
    {BASE(7, 4, 2, 200, 130, 24, true, -1, -1), PACKED, .dtype = ATTN_BF16},
    {BASE(9, 4, 2, 1, 2, 8, true, -1, -1), PACKED, DROPOUT}, /* most lengths are 0 on one side */
    {BASE(9, 2, 2, 2, 1, 8, false, -1, -1), PACKED, .softcap = 2},
    {BASE(3, 4, 2, 1, 60, 16, true, -1, -1), CACHE(16)},
    {BASE(4, 4, 1, 5, 61, 8, true, -1, -1), CACHE(8), .softcap = 4, .dtype = ATTN_FP16},
    {BASE(3, 2, 2, 3, 40, 8, false, -1, -1), CACHE(0), .layout = ATTN_BHSD},
    {BASE(3, 2, 2, 3, 40, 8, true, 7, -1), CACHE(16), DROPOUT},
    {BASE(3, 4, 2, 2, 50, 16, true, -1, -1), CACHE(16), EIGHT(ATTN_E4M3, BLOCK, 32)},
    {BASE(5, 4, 2, 70, 150, 16, true, -1, -1), MIXED, .page_size = 16},
    {BASE(6, 2, 1, 20, 40, 8, false, 12, -1), MIXED, DROPOUT, .has_sink = true, .layout = ATTN_BHSD},
    {BASE(5, 4, 2, 40, 90, 16, true, -1, -1), MIXED, .page_size = 16, EIGHT(ATTN_E4M3, BLOCK, 16)},
    {BASE(3, 4, 2, 7, 60, 16, false, 9, -1), CACHE(0), NARROW_CACHE(ATTN_E5M2, ATTN_FP16), DROPOUT},
    {BASE(5, 4, 2, 40, 90, 16, true, -1, -1), MIXED, .page_size = 8, NARROW_CACHE(ATTN_E4M3, ATTN_BF16)},
    {ANY, EIGHT(ATTN_E4M3, TENSOR, 0)},
    {CAUSAL, EIGHT(ATTN_E5M2, HEAD, 0)},
    {CAUSAL, EIGHT(ATTN_E4M3, BLOCK, 32), .layout = ATTN_BHSD},
    {CAUSAL, EIGHT(ATTN_E4M3, BLOCK, 16), PACKED},
    {CAUSAL, EIGHT(ATTN_E5M2, HEAD, 0), PACKED, DROPOUT},
};

static void listed_problems(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof problems / sizeof *problems; n++) {
        char where[32];
        snprintf(where, sizeof where, "problem %zu", n);
        check_problem(where, &problems[n]);
    }
}

static void drawn_problems(void **state)
{
    (void)state;
    for (int n = 0; n < DRAWN_PROBLEMS; n++) {
        char where[32];
        const struct attn_problem p = drawn_problem(n);
        snprintf(where, sizeof where, "drawn problem %d", n);
        check_problem(where, &p);
    }
}

static struct attn_tensor moved(struct attn_tensor x, enum attn_dtype dtype, int64_t elements)
{
    x.data = (char *)x.data + elements * (int64_t)attn_dtype_bytes(dtype);
    return x;
}

/* The last rows of one head of a problem, told where they lie, have the results of the oracle, which has those of the
 * whole (test_oracle_family.c). */
static void a_part_counts_from_its_place(void **state)
{
    (void)state;
    enum { B = 1, HEAD = 3, ROW = 50, ROWS = 20 };
    static const struct attn_problem wholes[] = {
        {BASE(2, 4, 2, 70, 90, 16, true, -1, -1), DROPOUT, MASK(16, 1, 1)},
        {BASE(2, 4, 2, 70, 90, 16, false, 30, -1), MASK(8, 1, 1), .softcap = 2},
        {BASE(2, 4, 2, 70, 90, 16, true, -1, -1), EIGHT(ATTN_E4M3, BLOCK, 16)},
    };
    for (size_t n = 0; n < sizeof wholes / sizeof *wholes; n++) {
        struct made m = make(&wholes[n]);
        struct copies c = {.count = 0};
        struct attn_tensors t = m.t, d = upload_inputs(&c, &m.p, &m.t);
        struct attn_problem part = m.p;
        part.batch = part.q_heads = part.kv_heads = 1;
        part.q_len = ROWS;
        for (int i = 0; i < 2; i++) {
            struct attn_tensors *const x = i ? &d : &t;
            const int64_t row = B * x->q.stride_batch + HEAD * x->q.stride_head + ROW * x->q.stride_row;
            const int64_t key = B * x->k.stride_batch + x->k.stride_head;
            x->q = moved(x->q, m.p.dtype, row);
            x->dout = moved(x->dout, attn_output_dtype(&m.p), row);
            x->k = moved(x->k, m.p.dtype, key);
            x->v = moved(x->v, m.p.dtype, key);
        }
        struct reference_outputs want = outputs_new(&part);
        want.first_batch = B;
        want.first_head = HEAD;
        want.first_row = ROW;
        run_oracle(&part, ATTN_BWD, &t, &want, 1);
        check_reference("part", &part, ATTN_BWD, &d, &want);
        outputs_free(&want);
        copies_free(&c);
        made_free(&m);
    }
}

/* S in several blocks of rows, and sums in several pieces: 2^27 / 131200 = 1023 rows a block. */
static void rows_in_blocks(void **state)
{
    (void)state;
    const struct attn_problem p = {BASE(1, 1, 1, 1100, 131200, 8, true, -1, -1), DROPOUT, .softcap = 5};
    struct made m = make(&p);
    struct copies c = {.count = 0};
    struct reference_outputs want = outputs_new(&p);
    const struct attn_tensors d = upload_inputs(&c, &p, &m.t);
    run_oracle(&p, ATTN_BWD, &m.t, &want, ORACLE_THREADS);
    check_reference("rows in blocks", &p, ATTN_BWD, &d, &want);
    outputs_free(&want);
    copies_free(&c);
    made_free(&m);
}

static void naive_refuses(const struct attn_problem *p, enum attn_mode mode, const char *words)
{
    const struct attn_request request = {.problem = p, .device = &device, .mode = mode};
    struct attn_message why = {""};
    assert_int_equal(attn_naive_cuda.accepts(&request, &why), ATTN_UNSUPPORTED);
    assert_non_null(strstr(why.text, words));
}

static void refusals(void **state)
{
    (void)state;
    const struct attn_problem cache = {BASE(3, 4, 2, 1, 60, 16, true, -1, -1), CACHE(16)};
    const struct attn_problem eight = {CAUSAL, EIGHT(ATTN_E4M3, TENSOR, 0)};
    struct attn_problem p = eight;
    struct attn_message why = {""};
    naive_refuses(&cache, ATTN_BWD, "against a cache forward only");
    naive_refuses(&eight, ATTN_BWD, "8-bit inputs forward only");
    p.out_dtype = ATTN_FP32;
    naive_refuses(&p, ATTN_FWD, "output in fp16 or bf16");
    const struct attn_tensors nothing = {.lse = NULL};
    const struct reference_outputs out = {.o = NULL};
    assert_int_equal(reference_cuda(&cache, ATTN_BWD, &nothing, &out, NULL, 0, NULL, &why), ATTN_UNSUPPORTED);
    assert_non_null(strstr(why.text, "has no backward"));
}

/* Lengths in device memory that contradict the problem are an error in words, and nothing is computed. */
static void wrong_lengths(void **state)
{
    (void)state;
    const struct attn_problem packed = {CAUSAL, PACKED};
    struct made m = make(&packed);
    struct copies c = {.count = 0};
    struct attn_message why = {""};
    int32_t sums[4];
    memcpy(sums, m.t.cu_seqlens_k, sizeof sums);
    sums[1] = sums[3] + 1;
    m.t.cu_seqlens_k = sums;
    const struct attn_tensors d = upload_inputs(&c, &m.p, &m.t);
    const struct reference_outputs out = {.o = NULL};
    const size_t bytes = reference_cuda_workspace_bytes(&m.p, ATTN_FWD);
    void *workspace = device_alloc(bytes), *plan = &m;
    assert_int_equal(reference_cuda(&m.p, ATTN_FWD, &d, &out, workspace, bytes, NULL, &why), ATTN_ERROR);
    assert_non_null(strstr(why.text, "cu_seqlens_k"));
    const struct attn_request request = {.problem = &m.p, .device = &device, .mode = ATTN_FWD};
    assert_int_equal(attn_naive_cuda.prepare(&request, &d, &plan, &why), ATTN_ERROR);
    assert_null(plan);
    need_cuda(cudaFree(workspace), "cudaFree");
    copies_free(&c);
    made_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_vectors), cmocka_unit_test(listed_problems),
        cmocka_unit_test(drawn_problems), cmocka_unit_test(a_part_counts_from_its_place),
        cmocka_unit_test(rows_in_blocks), cmocka_unit_test(refusals),
        cmocka_unit_test(wrong_lengths),
    };
    device = check_device();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("worst: reference %.1e; naive fp32 fwd %.1e bwd %.1e, fp16 fwd %.1e bwd %.1e, bf16 fwd %.1e bwd %.1e\n",
           worst_reference, worst_naive[ATTN_FP32][ATTN_FWD], worst_naive[ATTN_FP32][ATTN_BWD],
           worst_naive[ATTN_FP16][ATTN_FWD], worst_naive[ATTN_FP16][ATTN_BWD], worst_naive[ATTN_BF16][ATTN_FWD],
           worst_naive[ATTN_BF16][ATTN_BWD]);
    return failed != 0;
}
