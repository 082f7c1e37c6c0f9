/* naive and fused_cpu beyond dense attention, against the float64 oracle and the golden vectors: what they accept is
 * right, in both modes, for every number of threads. Runs from the root of the repository. */
#include "tests/unit/reference/family.h"

#include "kernels/cpu/cpu_kernels.h"
#include "reference/blas.h"
#include "reference/registry.h"

enum { GUARD = 64 };
static const float guard_value = 12345.5f;

static float *guarded(int64_t count)
{
    float *memory = malloc((size_t)(count + 2 * GUARD) * sizeof *memory);
    assert_non_null(memory);
    for (int64_t i = 0; i < count + 2 * GUARD; i++)
        memory[i] = i < GUARD || i >= count + GUARD ? guard_value : NAN;
    return memory + GUARD;
}

static void guarded_free(float *data, int64_t count, const char *where)
{
    for (int i = 0; i < GUARD; i++)
        if (data[-1 - i] != guard_value || data[count + i] != guard_value)
            fail_msg("%s: wrote outside a tensor", where);
    free(data - GUARD);
}

/* The outputs of an implementation, contiguous as the oracle's: [batch or 1, heads, len or total, head_dim]. */
struct outputs {
    float *o, *lse, *dq, *dk, *dv;
};

/* d: its columns. */
static struct attn_tensor shaped(const struct attn_problem *p, void *data, bool is_kv, int64_t d)
{
    const int64_t heads = is_kv ? p->kv_heads : p->q_heads, keys = p->lengths == ATTN_PACKED ? p->total_k : p->kv_len;
    const int64_t len = is_kv ? keys : attn_rows_are_packed(p) ? p->total_q : p->q_len;
    return (struct attn_tensor){data, heads * len * d, len * d, d};
}

static void launch(const struct attn_impl *impl, const struct attn_request *request, const struct attn_tensors *t)
{
    struct attn_message why = {""};
    if (impl->accepts(request, &why) != ATTN_OK)
        fail_msg("%s refused: %s", impl->name, why.text);
    struct attn_run run = {.workspace_bytes = impl->workspace_bytes(request)};
    run.workspace = aligned_alloc(256, run.workspace_bytes / 256 * 256 + 256);
    assert_non_null(run.workspace);
    memset(run.workspace, 0xff, run.workspace_bytes);
    if (impl->prepare)
        assert_int_equal(impl->prepare(request, t, &run.plan, &why), ATTN_OK);
    assert_int_equal(impl->launch(request, t, &run, &why), ATTN_OK);
    if (impl->release)
        impl->release(run.plan);
    free(run.workspace);
}

static void near(const char *where, const char *name, const float *x, const float *ref, const float *abs, int64_t count,
                 double bound)
{
    double error2 = 0, ref2 = 0, abs2 = 0;
    for (int64_t i = 0; i < count; i++) {
        if (x[i] == ref[i]) /* infinities of LSE too */
            continue;
        error2 += pow((double)x[i] - (double)ref[i], 2);
        ref2 += pow((double)ref[i], 2);
        abs2 += abs ? pow((double)abs[i], 2) : 0;
    }
    if (!(sqrt(error2) <= bound * sqrt(ref2) + 4e-7 * sqrt(abs2)))
        fail_msg("%s: %s has a relative RMS error of %.3g, %.3g of the absolute product", where, name,
                 sqrt(error2 / ref2), sqrt(error2 / abs2));
}

/* The forward alone, of a cache or of split keys. */
static void check_forward(const char *name, const struct attn_problem *p, const struct attn_tensors *inputs,
                          const struct attn_impl *impl, int threads, int64_t splits)
{
    char where[100];
    snprintf(where, sizeof where, "%s of %s, %d threads, %d splits", name, impl->name, threads, (int)splits);
    struct reference_outputs ref = outputs_new(p);
    run_oracle(p, ATTN_FWD, inputs, &ref, 1);
    const int64_t q = q_rows(p) * attn_v_head_dim(p);
    float *o = guarded(q), *lse = guarded(q_rows(p));
    struct attn_tensors t = *inputs;
    const struct attn_device device = {.platform = ATTN_CPU, .threads = threads};
    const struct attn_request request = {.problem = p, .device = &device, .splits = splits};
    t.o = shaped(p, o, false, attn_v_head_dim(p));
    t.lse = lse;
    launch(impl, &request, &t);
    near(where, "o", o, ref.o, ref.o_abs, q, 2e-6);
    near(where, "lse", lse, ref.lse, NULL, q_rows(p), 2e-6);
    guarded_free(o, q, where);
    guarded_free(lse, q_rows(p), where);
    if (threads > 1) { /* the same O, and no LSE */
        struct attn_request less = request;
        float *again = guarded(q);
        less.outputs = ATTN_O;
        t.o = shaped(p, again, false, attn_v_head_dim(p));
        t.lse = NULL;
        launch(impl, &less, &t);
        near(where, "o without lse", again, ref.o, ref.o_abs, q, 2e-6);
        guarded_free(again, q, where);
    }
    outputs_free(&ref);
}

static void all_forwards(const char *name, const struct attn_problem *p, const struct attn_tensors *inputs)
{
    static const int64_t splits[] = {0, 1, 2, 3, 7, 100};
    for (int threads = 1; threads <= 3; threads += 2) {
        for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++)
            check_forward(name, p, inputs, &attn_fused_cpu, threads, splits[i]);
        if (blas_library())
            check_forward(name, p, inputs, &attn_naive_cpu, threads, 0);
    }
}

static void check(const char *name, const struct attn_problem *p, const struct attn_tensors *inputs,
                  const struct attn_impl *impl, int threads)
{
    char where[100];
    snprintf(where, sizeof where, "%s of %s, %d threads", name, impl->name, threads);
    struct reference_outputs ref = outputs_new(p);
    struct attn_message why = {""};
    assert_int_equal(oracle_attention(p, ATTN_BWD, inputs, &ref, 1, &why), ATTN_OK);
    const int64_t d = p->head_dim, dv = attn_v_head_dim(p), q = q_rows(p), k = k_rows(p);
    const struct outputs out = {guarded(q * dv), guarded(q), guarded(q * d), guarded(k * d), guarded(k * dv)};
    struct attn_tensors t = *inputs;
    const struct attn_device device = {.platform = ATTN_CPU, .threads = threads};
    struct attn_request request = {.problem = p, .device = &device};
    t.o = shaped(p, out.o, false, dv);
    t.lse = out.lse;
    launch(impl, &request, &t);
    near(where, "o", out.o, ref.o, ref.o_abs, q * dv, 2e-6);
    near(where, "lse", out.lse, ref.lse, NULL, q_rows(p), 2e-6);
    request.mode = ATTN_BWD;
    t.o.data = ref.o;
    t.lse = ref.lse;
    t.dq = shaped(p, out.dq, false, d);
    t.dk = shaped(p, out.dk, true, d);
    t.dv = shaped(p, out.dv, true, dv);
    float *const dsink = t.dsink = p->has_sink ? guarded(p->q_heads) : NULL;
    float *const dbias = p->bias_heads ? guarded(bias_elements(p)) : NULL;
    t.dbias = t.bias;
    t.dbias.data = dbias;
    request.outputs =
        attn_default_outputs(ATTN_BWD) | (p->has_sink ? ATTN_DSINK : 0u) | (p->bias_heads ? ATTN_DBIAS : 0u);
    launch(impl, &request, &t);
    near(where, "dq", out.dq, ref.dq, ref.dq_abs, q * d, 4e-6);
    near(where, "dk", out.dk, ref.dk, ref.dk_abs, k * d, 4e-6);
    if (dbias) {
        near(where, "dbias", dbias, ref.dbias, ref.dbias_abs, bias_elements(p), 4e-6);
        guarded_free(dbias, bias_elements(p), where);
    }
    if (dsink) {
        near(where, "dsink", dsink, ref.dsink, ref.dsink_abs, p->q_heads, 4e-6);
        guarded_free(dsink, p->q_heads, where);
    }
    near(where, "dv", out.dv, ref.dv, ref.dv_abs, k * dv, 4e-6);
    guarded_free(out.o, q * dv, where);
    guarded_free(out.lse, q, where);
    guarded_free(out.dq, q * d, where);
    guarded_free(out.dk, k * d, where);
    guarded_free(out.dv, k * dv, where);
    outputs_free(&ref);
}

/* 8-bit inputs: the forward, whose O has 16 bits. */
static void check_8_bits(const char *name, const struct attn_problem *p, const struct attn_tensors *inputs,
                         const struct attn_impl *impl, int threads)
{
    char where[100];
    snprintf(where, sizeof where, "%s of %s, %d threads", name, impl->name, threads);
    struct reference_outputs ref = outputs_new(p);
    run_oracle(p, ATTN_FWD, inputs, &ref, 1);
    const enum attn_dtype out_dtype = attn_output_dtype(p);
    const int64_t q = q_rows(p) * attn_v_head_dim(p);
    float *o = guarded(q / 2), *lse = guarded(q_rows(p));
    struct attn_tensors t = *inputs;
    const struct attn_device device = {.platform = ATTN_CPU, .threads = threads};
    struct attn_request request = {.problem = p, .device = &device};
    struct attn_message why = {""};
    t.o = shaped(p, o, false, attn_v_head_dim(p));
    t.lse = lse;
    launch(impl, &request, &t);
    /* Half a unit in the last place, and the error of fp32. */
    const double half_ulp = out_dtype == ATTN_BF16 ? 0x1p-8 : 0x1p-11;
    for (int64_t i = 0; i < q; i++) {
        const double want = (double)ref.o[i], got = (double)fill_load(o, out_dtype, i);
        if (!(fabs(got - want) <= half_ulp * fabs(want) + 4e-6 * (double)ref.o_abs[i]))
            fail_msg("%s: element %lld of O is %.6g, must be %.6g", where, (long long)i, got, want);
    }
    near(where, "lse", lse, ref.lse, NULL, q_rows(p), 2e-6);
    request.mode = ATTN_BWD;
    assert_int_equal(impl->accepts(&request, &why), ATTN_UNSUPPORTED);
    if (!p->cache_dtype)
        assert_string_equal(why.text, "takes 8-bit inputs in the forward only");
    guarded_free(o, q / 2, where);
    guarded_free(lse, q_rows(p), where);
    outputs_free(&ref);
}

static void both(const char *name, const struct attn_problem *p, const struct attn_tensors *inputs)
{
    const bool has_8_bits = attn_dtype_is_8_bit(attn_kv_dtype(p));
    for (int threads = 1; threads <= 3; threads += 2) {
        (has_8_bits ? check_8_bits : check)(name, p, inputs, &attn_fused_cpu, threads);
        if (blas_library())
            (has_8_bits ? check_8_bits : check)(name, p, inputs, &attn_naive_cpu, threads);
    }
}

static void golden_vectors(void **state)
{
    (void)state;
    for (int i = 0; i < GOLDEN_FAMILY_CASES; i++) {
        struct golden_family g = golden_family_load(golden_family_names[i]);
        if (g.has_backward || attn_dtype_is_8_bit(attn_kv_dtype(&g.problem)))
            both(golden_family_names[i], &g.problem, &g.in);
        else
            all_forwards(golden_family_names[i], &g.problem, &g.in);
        golden_family_free(&g);
    }
}

/* The oracle's results are compared with the files' in test_oracle_family.c. */
static const struct attn_problem problems[] = {
    {CAUSAL, .softcap = 1.5f},
    {BASE(1, 2, 1, 40, 33, 8, false, 5, 3), .softcap = 20},
    {BASE(2, 4, 2, 130, 131, 24, false, -1, 7), DROPOUT},
    {BASE(1, 2, 1, 131, 60, 8, true, 40, -1)}, /* rows that see nothing */
    {BASE(1, 2, 2, 200, 200, 64, true, 0, 0)},
    {CAUSAL, .v_head_dim = 24},
    {CAUSAL, .has_sink = true},
    {ANY, .has_alibi = true},
    {ANY, BIAS(3, 4)},
    {BASE(2, 4, 2, 130, 331, 24, true, -1, -1), BIAS(1, 4), DROPOUT, .softcap = 3},
    {BASE(5, 4, 2, 170, 150, 8, true, 12, -1), PACKED, BIAS(5, 1), .has_sink = true},
    {BASE(3, 6, 3, 170, 300, 8, true, 90, -1), PACKED, BIAS(1, 1), .v_head_dim = 24},
    {CAUSAL, EIGHT(ATTN_E5M2, HEAD, 0), BIAS(3, 1)},
    {BASE(2, 4, 2, 130, 131, 24, true, -1, -1), .has_alibi = true, .softcap = 2, MASK(16, 1, 4)},
    {CAUSAL, PACKED, DROPOUT, .has_alibi = true, .has_sink = true},
    {BASE(2, 4, 2, 65, 40, 8, true, 9, -1), .has_sink = true}, /* rows that see nothing */
    {BASE(5, 4, 2, 170, 150, 24, true, -1, -1), PACKED, DROPOUT, .has_sink = true, .softcap = 3, .v_head_dim = 8},
    {CAUSAL, EIGHT(ATTN_E5M2, HEAD, 0), .has_sink = true},
    {BASE(2, 4, 2, 130, 131, 24, true, -1, -1), .v_head_dim = 8, DROPOUT},
    {BASE(1, 2, 1, 131, 60, 192, false, -1, -1), .v_head_dim = 128},
    {CAUSAL, EIGHT(ATTN_E5M2, HEAD, 0), .v_head_dim = 40},
    {ANY, DROPOUT},
    {CAUSAL, DROPOUT, .softcap = 2},
    {BASE(2, 2, 2, 65, 40, 8, true, 9, -1), DROPOUT},
    {ANY, MASK(16, 3, 4)},
    {CAUSAL, MASK(32, 1, 1)},
    {BASE(2, 4, 2, 300, 250, 16, true, -1, -1), MASK(128, 1, 4)},
    {CAUSAL, MASK(64, 3, 1), DROPOUT},
    {ANY, PACKED},
    {CAUSAL, PACKED, DROPOUT},
    {BASE(5, 2, 1, 170, 150, 8, true, 12, -1), PACKED, .softcap = 3},
    {BASE(4, 2, 1, 50, 70, 8, false, 12, 4), PACKED, MASK(16, 4, 2)},
    {BASE(7, 4, 2, 200, 130, 24, true, -1, -1), PACKED},
    {ANY, EIGHT(ATTN_E4M3, TENSOR, 0)},
    {CAUSAL, EIGHT(ATTN_E5M2, HEAD, 0), .softcap = 2},
    {BASE(2, 4, 2, 130, 131, 24, false, -1, 7), EIGHT(ATTN_E4M3, BLOCK, 32)},
    {CAUSAL, EIGHT(ATTN_E5M2, BLOCK, 16), PACKED, DROPOUT},
    {CAUSAL, EIGHT(ATTN_E4M3, HEAD, 0), PACKED, MASK(16, 1, 4)},
    {CAUSAL, .dtype = ATTN_E4M3, .out_dtype = ATTN_FP16, .quant_scale = ATTN_SCALE_TENSOR},
};

static void made_problems(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof problems / sizeof *problems; n++) {
        char name[32];
        snprintf(name, sizeof name, "problem %zu", n);
        struct made m = make(&problems[n]);
        both(name, &m.p, &m.t);
        made_free(&m);
    }
}

/* Caches: ragged, contiguous and in pages, with NaN behind the used keys; and splits of other problems. The lengths
 * reach over several tiles of keys, so that splits have work. */
static const struct attn_problem forwards[] = {
    {BASE(3, 4, 2, 1, 60, 16, true, -1, -1), .lengths = ATTN_CACHE, .page_size = 16},
    {BASE(4, 4, 1, 5, 600, 8, true, -1, -1), .lengths = ATTN_CACHE, .page_size = 8, .softcap = 4},
    {BASE(3, 2, 2, 3, 700, 24, false, -1, -1), .lengths = ATTN_CACHE},
    {BASE(3, 2, 1, 3, 330, 64, true, 7, -1), .lengths = ATTN_CACHE, .page_size = 64, DROPOUT},
    {BASE(2, 8, 1, 130, 900, 32, true, 300, -1), .lengths = ATTN_CACHE, .page_size = 24},
    {BASE(1, 2, 1, 1, 3000, 128, true, -1, -1), .lengths = ATTN_CACHE, .page_size = 256},
    {BASE(2, 4, 1, 1, 300, 576, true, -1, -1), .lengths = ATTN_CACHE, .page_size = 16, .v_head_dim = 512},
    {BASE(2, 16, 1, 3, 130, 576, true, 20, -1), .lengths = ATTN_CACHE, .v_head_dim = 512},
    {BASE(3, 4, 2, 2, 600, 16, true, -1, -1), .lengths = ATTN_CACHE, .page_size = 16, .has_sink = true},
    {BASE(3, 4, 2, 2, 600, 16, false, -1, -1), .lengths = ATTN_CACHE, .page_size = 16, .has_alibi = true},
    {BASE(3, 4, 2, 2, 600, 16, true, -1, -1), .lengths = ATTN_CACHE, .page_size = 16, BIAS(3, 4)},
    {BASE(5, 4, 2, 170, 600, 16, true, -1, -1), MIXED, .page_size = 16},
    {BASE(6, 4, 1, 70, 300, 24, true, 90, -1), MIXED, .has_sink = true, .layout = ATTN_BHSD},
    {BASE(5, 2, 2, 40, 330, 64, false, -1, -1), MIXED, .page_size = 64, DROPOUT, .softcap = 2},
    {BASE(4, 4, 2, 130, 300, 16, true, -1, -1), MIXED, .page_size = 8, BIAS(4, 1), .v_head_dim = 40},
    {BASE(4, 4, 2, 30, 300, 16, true, -1, -1), MIXED, .has_alibi = true},
    {BASE(1, 2, 1, 131, 60, 8, true, 40, -1), .has_sink = true}, /* rows that see nothing */
    {BASE(2, 4, 2, 3, 130, 24, true, -1, -1), .lengths = ATTN_CACHE, .page_size = 8, .v_head_dim = 40},
    {BASE(2, 4, 2, 130, 500, 24, true, -1, -1), DROPOUT, .softcap = 2},
    {BASE(5, 2, 1, 170, 450, 8, true, 120, -1), PACKED},
    {BASE(1, 2, 1, 131, 60, 8, true, 40, -1)}, /* rows that see nothing */
    {BASE(2, 4, 2, 300, 650, 16, true, -1, -1), MASK(128, 1, 4)},
};

/* 8-bit K and V beside 16-bit Q and O. */
static const struct attn_problem narrow_caches[] = {
    {BASE(3, 4, 2, 1, 300, 16, true, -1, -1), .lengths = ATTN_CACHE, .page_size = 16,
     NARROW_CACHE(ATTN_E4M3, ATTN_BF16)},
    {BASE(2, 8, 1, 70, 190, 24, false, 9, -1), .lengths = ATTN_CACHE, NARROW_CACHE(ATTN_E5M2, ATTN_FP16), DROPOUT},
    {BASE(5, 4, 2, 40, 290, 16, true, -1, -1), MIXED, .page_size = 8, NARROW_CACHE(ATTN_E4M3, ATTN_FP16)},
    {BASE(2, 4, 1, 1, 130, 576, true, -1, -1), .lengths = ATTN_CACHE, .page_size = 16, .v_head_dim = 512,
     NARROW_CACHE(ATTN_E4M3, ATTN_BF16)},
};

static void caches_of_8_bits(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof narrow_caches / sizeof *narrow_caches; n++) {
        char name[32];
        snprintf(name, sizeof name, "narrow cache %zu", n);
        struct made m = make(&narrow_caches[n]);
        poison_cache(&m);
        both(name, &m.p, &m.t);
        made_free(&m);
    }
    static const struct attn_device device = {.platform = ATTN_CPU, .threads = 1};
    struct attn_message why = {""};
    struct attn_problem p = narrow_caches[0];
    const struct attn_request request = {.problem = &p, .device = &device};
    p.dtype = ATTN_FP32;
    assert_int_equal(attn_fused_cpu.accepts(&request, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "takes an 8-bit cache beside queries in fp16 or bf16 only");
    p = narrow_caches[0];
    p.quant_scale = ATTN_SCALE_TENSOR;
    assert_int_equal(attn_fused_cpu.accepts(&request, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "takes a cache in e4m3 or e5m2 with scales of heads");
}

static void caches_and_splits(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof forwards / sizeof *forwards; n++) {
        char name[32];
        snprintf(name, sizeof name, "forward %zu", n);
        struct made m = make(&forwards[n]);
        if (m.p.lengths == ATTN_CACHE)
            poison_cache(&m);
        all_forwards(name, &m.p, &m.t);
        made_free(&m);
    }
}

/* One query head after the other: the rows of sequence b among those of the batch, and those of it alone. */
static void same_rows(const struct made *m, int64_t b, int64_t rows, const float *const o[2], const float *const lse[2])
{
    const int64_t columns = attn_v_head_dim(&m->p);
    for (int64_t h = 0; h < m->p.q_heads; h++) {
        const int64_t at = attn_lse_index(&m->p, &m->t, b, h, 0);
        assert_memory_equal(o[0] + at * columns, o[1] + h * rows * columns, (size_t)(rows * columns) * sizeof(float));
        assert_memory_equal(lse[0] + at, lse[1] + h * rows, (size_t)rows * sizeof(float));
    }
}

/* The bits of a sequence in a batch and alone, where its own lengths are the longest and its rows are not packed. */
static void alone(const struct made *m, int64_t b)
{
    struct attn_problem one = m->p;
    struct attn_tensors batch = m->t, own = m->t;
    const struct attn_sequence at = attn_sequence_at(&m->p, &m->t, b);
    const int64_t per = m->p.page_size ? (m->p.kv_len + m->p.page_size - 1) / m->p.page_size : 0;
    const int64_t all = q_rows(&m->p), count = m->p.q_heads * at.q_len, columns = attn_v_head_dim(&m->p);
    const struct attn_device device = {.platform = ATTN_CPU, .threads = 3};
    one.batch = 1;
    one.q_len = at.q_len;
    one.total_q = 0;
    one.kv_len = at.kv_len;
    float *const lse[2] = {guarded(all), guarded(count)};
    float *const o[2] = {guarded(all * columns), guarded(count * columns)};
    batch.o = shaped(&m->p, o[0], false, columns);
    batch.lse = lse[0];
    own.o = shaped(&one, o[1], false, columns);
    own.lse = lse[1];
    own.q.data = (float *)own.q.data + attn_row_offset(&m->p, &m->t, m->t.q, b, 0, 0);
    own.seqused_k += b;
    own.page_table += b * per;
    if (per == 0) {
        own.k.data = (float *)own.k.data + b * own.k.stride_batch;
        own.v.data = (float *)own.v.data + b * own.v.stride_batch;
    }
    launch(&attn_fused_cpu, &(struct attn_request){.problem = &m->p, .device = &device, .invariant = true}, &batch);
    if (one.kv_len > 0 && one.q_len > 0) {
        if (per > 0) /* a row of the table has as many entries as kv_len has pages */
            one.kv_len = (one.kv_len + m->p.page_size - 1) / m->p.page_size * m->p.page_size;
        launch(&attn_fused_cpu, &(struct attn_request){.problem = &one, .device = &device, .invariant = true}, &own);
        same_rows(m, b, at.q_len, (const float *const[]){o[0], o[1]}, (const float *const[]){lse[0], lse[1]});
    }
    guarded_free(o[0], all * columns, "o");
    guarded_free(o[1], count * columns, "o alone");
    guarded_free(lse[0], all, "lse");
    guarded_free(lse[1], count, "lse alone");
}

static void invariant(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof forwards / sizeof *forwards; n++) {
        struct made m = make(&forwards[n]);
        for (int64_t b = 0; m.p.lengths == ATTN_CACHE && m.p.dropout == 0 && m.p.bias_heads == 0 && b < m.p.batch; b++)
            alone(&m, b);
        made_free(&m);
    }
    static const struct attn_device device = {.platform = ATTN_CPU, .threads = 1};
    struct attn_message why = {""};
    struct made m = make(&forwards[2]);
    struct attn_request request = {.problem = &m.p, .device = &device, .splits = 2, .invariant = true};
    assert_int_equal(attn_fused_cpu.accepts(&request, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "takes the invariant mode in the forward only, without splits");
    made_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_vectors),   cmocka_unit_test(made_problems), cmocka_unit_test(caches_and_splits),
        cmocka_unit_test(caches_of_8_bits), cmocka_unit_test(invariant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
