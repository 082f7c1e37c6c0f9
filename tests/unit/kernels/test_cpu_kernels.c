/* The CPU implementations, naive on BLAS and every variant of fused that this processor runs, against the golden
 * vectors and the float64 oracle. Runs from the root of the repository. Outputs are poisoned with NaN and have guard
 * elements on both sides and between rows, the workspace is poisoned too. Without a BLAS the tests of naive are
 * skipped, with a message. */
#include "tests/unit/reference/golden.h"

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cpu/cpu_kernels.h"
#include "reference/blas.h"
#include "reference/harness/fill.h"
#include "reference/reference.h"
#include "reference/registry.h"
#include "tests/dense.h"

/* Bounds of the relative RMS error in fp32, and what rounding may do relative to the product over absolute values. */
static const double rms_bound[2] = {1e-5, 2e-5}, abs_floor = 3e-7;

/* ---- implementations --------------------------------------------------------------------------------------------- */

struct candidate {
    const struct attn_impl *impl;
    const char *variant;
};
static struct candidate candidates[8];
static size_t candidate_count;

static struct attn_device cpu(int threads) { return (struct attn_device){.platform = ATTN_CPU, .threads = threads}; }

static int find_candidates(void **state)
{
    (void)state;
    if (blas_library())
        candidates[candidate_count++] = (struct candidate){&attn_naive_cpu, NULL};
    else
        print_message("naive is not tested: %s\n", blas_problem());
    const struct attn_problem p = DENSE(1, 1, 1, 1, 1, 8, ATTN_FP32, ATTN_BHSD, true, -1, -1, 1.0f, 0);
    const struct attn_device device = cpu(1);
    for (const struct attn_variant *v = attn_fused_cpu.variants; v->name; v++) {
        struct attn_message why;
        if (attn_fused_cpu.accepts(&(struct attn_request){.problem = &p, .device = &device, .variant = v->name},
                                   &why) == ATTN_OK)
            candidates[candidate_count++] = (struct candidate){&attn_fused_cpu, v->name};
        else
            print_message("fused is not tested as %s\n", why.text);
    }
    return candidate_count == 0;
}

/* ---- tensors with guards ----------------------------------------------------------------------------------------- */

enum { TENSORS = 8, GUARD = 32, GAP = 5 };
static const float guard_value = -7777.25f;

/* In the order of struct attn_tensors. Rows are GAP elements further apart than they have to be when `gaps`. */
struct data {
    struct attn_problem p;
    struct attn_tensors t;
    float *memory[TENSORS];
    int64_t elements[TENSORS]; /* without the guards */
    struct reference_outputs ref;
};

static struct attn_tensor *tensor_at(struct data *x, int i)
{
    struct attn_tensor *all[TENSORS] = {&x->t.q, &x->t.o, &x->t.dout, &x->t.dq, &x->t.k, &x->t.v, &x->t.dk, &x->t.dv};
    return all[i];
}

static float *guarded(int64_t elements)
{
    float *memory = malloc((size_t)(elements + 2 * GUARD) * sizeof *memory);
    assert_non_null(memory);
    for (int64_t i = 0; i < elements + 2 * GUARD; i++)
        memory[i] = guard_value;
    return memory;
}

static void allocate(struct data *x, bool gaps)
{
    const struct attn_problem *p = &x->p;
    for (int i = 0; i < TENSORS; i++) {
        const int64_t heads = i < 4 ? p->q_heads : p->kv_heads, len = i < 4 ? p->q_len : p->kv_len;
        const int64_t width = p->head_dim + (gaps ? GAP : 0);
        x->elements[i] = p->batch * heads * len * width;
        x->memory[i] = guarded(x->elements[i]);
        float *data = x->memory[i] + GUARD;
        if (p->layout == ATTN_BSHD)
            *tensor_at(x, i) = (struct attn_tensor){data, heads * len * width, width, heads * width};
        else
            *tensor_at(x, i) = (struct attn_tensor){data, heads * len * width, len * width, width};
    }
    x->t.lse = guarded(p->batch * p->q_heads * p->q_len) + GUARD;
}

static float *element(struct data *x, int i, int64_t row, int64_t c)
{
    const struct attn_tensor *t = tensor_at(x, i);
    const int64_t heads = i < 4 ? x->p.q_heads : x->p.kv_heads, len = i < 4 ? x->p.q_len : x->p.kv_len;
    const int64_t head = row / len;
    return (float *)t->data + head / heads * t->stride_batch + head % heads * t->stride_head +
           row % len * t->stride_row + c;
}

static int64_t rows_of(const struct data *x, int i)
{
    const struct attn_problem *p = &x->p;
    return i < 4 ? p->batch * p->q_heads * p->q_len : p->batch * p->kv_heads * p->kv_len;
}

static void set_tensor(struct data *x, int i, const float *contiguous, float value)
{
    for (int64_t row = 0; row < rows_of(x, i); row++)
        for (int64_t c = 0; c < x->p.head_dim; c++)
            *element(x, i, row, c) = contiguous ? contiguous[row * x->p.head_dim + c] : value;
}

static void get_tensor(struct data *x, int i, float *contiguous)
{
    for (int64_t row = 0; row < rows_of(x, i); row++)
        for (int64_t c = 0; c < x->p.head_dim; c++)
            contiguous[row * x->p.head_dim + c] = *element(x, i, row, c);
}

/* Every element outside the tensor's rows still holds the guard's value. */
static void check_guards(struct data *x, const char *where)
{
    for (int i = 0; i < TENSORS; i++) {
        const int64_t expected = x->elements[i] + 2 * GUARD - rows_of(x, i) * x->p.head_dim;
        set_tensor(x, i, NULL, 0.0f);
        int64_t intact = 0;
        for (int64_t e = 0; e < x->elements[i] + 2 * GUARD; e++)
            intact += x->memory[i][e] == guard_value;
        if (intact != expected)
            fail_msg("%s: wrote outside tensor %d", where, i);
    }
    for (int e = 0; e < GUARD; e++)
        assert_true(x->t.lse[-1 - e] == guard_value && x->t.lse[rows_of(x, 0) + e] == guard_value);
}

static float *zeros(int64_t count)
{
    float *data = calloc((size_t)count, sizeof *data);
    assert_non_null(data);
    return data;
}

static void fill_inputs(struct data *x, enum fill_dist dist, uint64_t seed)
{
    static float table[FILL_TABLE_SIZE];
    const int at[] = {0, 4, 5, 2};
    for (int i = 0; i < 4; i++) {
        float gain;
        const bool kv = at[i] >= 4;
        fill_table(dist, (enum fill_tensor)(FILL_Q + i), table, &gain);
        fill_tensor_host(*tensor_at(x, at[i]), ATTN_FP32, x->p.batch, kv ? x->p.kv_heads : x->p.q_heads,
                         kv ? x->p.kv_len : x->p.q_len, x->p.head_dim, seed, (enum fill_tensor)(FILL_Q + i), table,
                         gain);
    }
}

/* A problem with inputs and what the oracle says about them. */
static struct data *data_new(const struct attn_problem *p, enum fill_dist dist, bool gaps)
{
    struct data *x = calloc(1, sizeof *x);
    assert_non_null(x);
    x->p = *p;
    allocate(x, gaps);
    fill_inputs(x, dist, 5);
    const int64_t rows = rows_of(x, 0), q = rows * p->head_dim, k = rows_of(x, 4) * p->head_dim;
    x->ref = (struct reference_outputs){.o = zeros(q),
                                        .lse = zeros(rows),
                                        .dq = zeros(q),
                                        .dk = zeros(k),
                                        .dv = zeros(k),
                                        .o_abs = zeros(q),
                                        .dq_abs = zeros(q),
                                        .dk_abs = zeros(k),
                                        .dv_abs = zeros(k)};
    struct attn_message why;
    assert_int_equal(oracle_attention(p, ATTN_BWD, &x->t, &x->ref, 2, &why), ATTN_OK);
    return x;
}

static void data_free(struct data *x)
{
    for (int i = 0; i < TENSORS; i++)
        free(x->memory[i]);
    free(x->t.lse - GUARD);
    float *all[] = {x->ref.o,     x->ref.lse,    x->ref.dq,     x->ref.dk,    x->ref.dv,
                    x->ref.o_abs, x->ref.dq_abs, x->ref.dk_abs, x->ref.dv_abs};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free(x);
}

/* ---- running and judging ----------------------------------------------------------------------------------------- */

/* Poisons what the mode writes, gives backward the reference's O and LSE, launches. */
static void launch(struct data *x, const struct candidate *c, enum attn_mode mode, int threads)
{
    const struct attn_device device = cpu(threads);
    const struct attn_request request = {
        .problem = &x->p, .device = &device, .mode = mode, .deterministic = true, .variant = c->variant};
    struct attn_message why = {""};
    if (c->impl->accepts(&request, &why) != ATTN_OK)
        fail_msg("%s refused: %s", c->impl->name, why.text);
    set_tensor(x, 1, mode == ATTN_BWD ? x->ref.o : NULL, NAN);
    for (int64_t i = 0; i < rows_of(x, 0); i++)
        x->t.lse[i] = mode == ATTN_BWD ? x->ref.lse[i] : NAN;
    const int gradients[] = {3, 6, 7};
    for (int i = 0; i < 3; i++)
        set_tensor(x, gradients[i], NULL, NAN);
    struct attn_run run = {.workspace_bytes = c->impl->workspace_bytes(&request)};
    run.workspace = aligned_alloc(256, (run.workspace_bytes + 255) / 256 * 256);
    assert_non_null(run.workspace);
    memset(run.workspace, 0xff, run.workspace_bytes);
    if (c->impl->prepare)
        assert_int_equal(c->impl->prepare(&request, &x->t, &run.plan, &why), ATTN_OK);
    if (c->impl->launch(&request, &x->t, &run, &why) != ATTN_OK)
        fail_msg("%s: %s", c->impl->name, why.text);
    if (c->impl->release)
        c->impl->release(run.plan);
    free(run.workspace);
}

static const char *describe(const struct data *x, const struct candidate *c, enum attn_mode mode)
{
    static char text[256];
    snprintf(text, sizeof text, "%s %s %s b%lld h%lld/%lld q%lld kv%lld d%lld %s%s", c->impl->name,
             c->variant ? c->variant : "", mode == ATTN_BWD ? "bwd" : "fwd", (long long)x->p.batch,
             (long long)x->p.q_heads, (long long)x->p.kv_heads, (long long)x->p.q_len, (long long)x->p.kv_len,
             (long long)x->p.head_dim, x->p.causal ? "causal " : "full ", x->p.layout == ATTN_BSHD ? "bshd" : "bhsd");
    return text;
}

/* What is below the smallest normal number counts as zero: exp of very negative scores ends there. */
static void judge(const char *where, const char *name, const float *x, const float *ref, const float *abs_product,
                  int64_t count, double bound, double floor)
{
    double error2 = 0, ref2 = 0, abs2 = 0;
    for (int64_t i = 0; i < count; i++) {
        const double error = (double)x[i] - (double)ref[i];
        if (!isfinite(x[i]))
            fail_msg("%s: %s[%lld] is %g", where, name, (long long)i, (double)x[i]);
        error2 += error * error;
        ref2 += (double)ref[i] * (double)ref[i];
        abs2 += (double)abs_product[i] * (double)abs_product[i];
    }
    const double limit = bound * sqrt(ref2) + floor * sqrt(abs2) + 1e-36 * sqrt((double)count);
    if (!(sqrt(error2) <= limit))
        fail_msg("%s: %s has an RMS error of %.3g of the reference, %.3g of the absolute product", where, name,
                 sqrt(error2 / ref2), sqrt(error2 / abs2));
}

static void judge_lse(const char *where, const float *x, const float *ref, int64_t count, double relative)
{
    for (int64_t i = 0; i < count; i++) {
        const bool same = ref[i] == -INFINITY
                              ? x[i] == -INFINITY
                              : fabs((double)x[i] - (double)ref[i]) <= 2e-6 + relative * fabs((double)ref[i]);
        if (!same)
            fail_msg("%s: lse[%lld] is %.9g, expected %.9g", where, (long long)i, (double)x[i], (double)ref[i]);
    }
}

/* Runs both modes of a candidate and judges every output. `loose` widens the floor where rounding of S itself counts.
 * */
static void check(struct data *x, const struct candidate *c, int threads, double loose)
{
    const int64_t rows = rows_of(x, 0), q = rows * x->p.head_dim, k = rows_of(x, 4) * x->p.head_dim;
    float *got = zeros(q > k ? q : k);
    launch(x, c, ATTN_FWD, threads);
    const char *where = describe(x, c, ATTN_FWD);
    judge_lse(where, x->t.lse, x->ref.lse, rows, 1.5e-6);
    get_tensor(x, 1, got);
    judge(where, "o", got, x->ref.o, x->ref.o_abs, q, rms_bound[0] * loose, abs_floor * loose);
    launch(x, c, ATTN_BWD, threads);
    where = describe(x, c, ATTN_BWD);
    get_tensor(x, 3, got);
    judge(where, "dq", got, x->ref.dq, x->ref.dq_abs, q, rms_bound[1] * loose, abs_floor * loose);
    get_tensor(x, 6, got);
    judge(where, "dk", got, x->ref.dk, x->ref.dk_abs, k, rms_bound[1] * loose, abs_floor * loose);
    get_tensor(x, 7, got);
    judge(where, "dv", got, x->ref.dv, x->ref.dv_abs, k, rms_bound[1] * loose, abs_floor * loose);
    free(got);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void golden_vectors(void **state)
{
    (void)state;
    for (int i = 0; i < GOLDEN_CASES; i++) {
        struct golden g = golden_load(golden_names[i]);
        struct data *x = data_new(&g.problem, FILL_ZEROS, false);
        const float *inputs[] = {g.q, g.k, g.v, g.dout};
        const int at[] = {0, 4, 5, 2};
        for (int j = 0; j < 4; j++)
            set_tensor(x, at[j], inputs[j], 0);
        /* The oracle's absolute products, the files' values. */
        struct attn_message why;
        assert_int_equal(oracle_attention(&x->p, ATTN_BWD, &x->t, &x->ref, 1, &why), ATTN_OK);
        const int64_t rows = rows_of(x, 0), q = rows * x->p.head_dim, k = rows_of(x, 4) * x->p.head_dim;
        memcpy(x->ref.o, g.o, (size_t)q * sizeof(float));
        memcpy(x->ref.lse, g.lse, (size_t)rows * sizeof(float));
        memcpy(x->ref.dq, g.dq, (size_t)q * sizeof(float));
        memcpy(x->ref.dk, g.dk, (size_t)k * sizeof(float));
        memcpy(x->ref.dv, g.dv, (size_t)k * sizeof(float));
        for (size_t c = 0; c < candidate_count; c++)
            check(x, &candidates[c], 2, 1);
        data_free(x);
        golden_free(&g);
    }
}

static void hard_shapes(void **state)
{
    (void)state;
    static const int64_t lengths[][2] = {{1, 1},     {1, 131},  {131, 1},  {2, 3},    {47, 49},  {48, 48},  {49, 47},
                                         {63, 63},   {64, 64},  {65, 65},  {95, 97},  {96, 96},  {97, 95},  {113, 113},
                                         {127, 129}, {128, 64}, {64, 128}, {37, 131}, {131, 37}, {257, 193}};
    static const int64_t dims[] = {8, 64, 72, 128};
    unsigned count = 0;
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
            for (int causal = 0; causal < 2; causal++, count++) {
                const int64_t heads = count % 3 == 0 ? 4 : count % 3, kv_heads = count % 3 == 0 ? 2 : 1;
                const struct attn_problem p =
                    DENSE(1 + count % 2, heads, kv_heads, lengths[l][0], lengths[l][1], dims[d], ATTN_FP32,
                          count % 2 ? ATTN_BSHD : ATTN_BHSD, causal != 0, -1, -1, 1 / sqrtf((float)dims[d]), 0);
                struct data *x = data_new(&p, FILL_NORMAL, count % 5 == 0);
                for (size_t c = 0; c < candidate_count; c++)
                    check(x, &candidates[c], 1 + (int)(count + c) % 4, 1);
                check_guards(x, "hard shapes");
                data_free(x);
            }
}

static void every_head_dim(void **state)
{
    (void)state;
    for (int64_t d = 8; d <= 256; d += 8) {
        const struct attn_problem p =
            DENSE(1, 2, 1, 70, 50, d, ATTN_FP32, d % 16 ? ATTN_BSHD : ATTN_BHSD, true, -1, -1, 1 / sqrtf((float)d), 0);
        struct data *x = data_new(&p, FILL_NORMAL, d % 24 == 0);
        for (size_t c = 0; c < candidate_count; c++)
            check(x, &candidates[c], 2, 1);
        check_guards(x, "head dims");
        data_free(x);
    }
}

static void windows_and_scales(void **state)
{
    (void)state;
    static const struct {
        int64_t q_len, kv_len, left, right;
        bool causal;
        float scale;
    } cases[] = {{150, 150, 16, 0, false, 0.125f}, {150, 150, 16, -1, true, 0.125f}, {150, 90, 5, 7, false, 0.125f},
                 {90, 150, 0, 0, false, 0.125f},   {200, 40, 3, 3, false, 0.125f},   {64, 300, 100, 20, false, 0.125f},
                 {130, 130, -1, 9, false, 0.125f}, {100, 100, -1, -1, true, -0.3f},  {100, 100, -1, -1, false, 0.0f},
                 {100, 70, -1, -1, true, 1.0f}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct attn_problem p = DENSE(1, 2, 1, cases[i].q_len, cases[i].kv_len, 64, ATTN_FP32, ATTN_BHSD,
                                            cases[i].causal, cases[i].left, cases[i].right, cases[i].scale, 0);
        struct data *x = data_new(&p, FILL_NORMAL, false);
        for (size_t c = 0; c < candidate_count; c++)
            check(x, &candidates[c], 3, 1);
        check_guards(x, "windows");
        data_free(x);
    }
}

static void hard_inputs(void **state)
{
    (void)state;
    /* S itself is rounded: at |S| of about 100 (sharp) and 3000 (huge) an error of one part in 2^23 of it moves P. */
    static const struct {
        enum fill_dist dist;
        double loose;
    } cases[] = {{FILL_SHARP, 1}, {FILL_HUGE, 20}, {FILL_CONSTANT, 1},
                 {FILL_TINY, 1},  {FILL_ZEROS, 1}, {FILL_UNIFORM, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int64_t d = 64; d <= 128; d *= 2) {
            const struct attn_problem p =
                DENSE(1, 2, 2, 200, 260, d, ATTN_FP32, ATTN_BSHD, d == 64, -1, -1, 1 / sqrtf((float)d), 0);
            struct data *x = data_new(&p, cases[i].dist, false);
            for (size_t c = 0; c < candidate_count; c++)
                check(x, &candidates[c], 2, cases[i].loose);
            data_free(x);
        }
}

static void long_rows_stay_accurate(void **state)
{
    (void)state;
    for (int causal = 0; causal < 2; causal++) {
        const struct attn_problem p = DENSE(1, 1, 1, 1024, 1024, causal ? 64 : 128, ATTN_FP32, ATTN_BSHD, causal != 0,
                                            -1, -1, causal ? 0.125f : 0.088388346f, 0);
        struct data *x = data_new(&p, FILL_NORMAL, false);
        for (size_t c = 0; c < candidate_count; c++)
            check(x, &candidates[c], 2, 0.2);
        data_free(x);
    }
    /* Many steps of the running maximum and sum, each of which could lose a little. */
    const struct attn_problem p = DENSE(1, 1, 1, 70, 16384, 128, ATTN_FP32, ATTN_BSHD, false, -1, -1, 0.088388346f, 0);
    struct data *x = data_new(&p, FILL_NORMAL, false);
    for (size_t c = 0; c < candidate_count; c++)
        check(x, &candidates[c], 2, 0.2);
    data_free(x);
}

static void assert_same(struct data *x, int tensor, const float *before, const char *where)
{
    for (int64_t row = 0; row < rows_of(x, tensor); row++)
        if (memcmp(element(x, tensor, row, 0), before + row * x->p.head_dim, (size_t)x->p.head_dim * sizeof *before))
            fail_msg("%s: tensor %d differs between runs", where, tensor);
}

static void bits_repeat(void **state)
{
    (void)state;
    const struct attn_problem p = DENSE(2, 4, 2, 300, 333, 72, ATTN_FP32, ATTN_BSHD, true, -1, -1, 0.11785113f, 0);
    const int outputs[] = {1, 3, 6, 7};
    struct data *x = data_new(&p, FILL_NORMAL, false);
    for (size_t c = 0; c < candidate_count; c++) {
        const bool any_threads = candidates[c].impl == &attn_fused_cpu;
        for (enum attn_mode mode = ATTN_FWD; mode <= ATTN_BWD; mode++) {
            float *before[4], *lse = zeros(rows_of(x, 0));
            launch(x, &candidates[c], mode, 2);
            for (int i = 0; i < 4; i++) {
                before[i] = zeros(rows_of(x, outputs[i]) * p.head_dim);
                get_tensor(x, outputs[i], before[i]);
            }
            memcpy(lse, x->t.lse, (size_t)rows_of(x, 0) * sizeof *lse);
            for (int round = 0; round < 12; round++) {
                launch(x, &candidates[c], mode, any_threads ? 1 + round % 6 : 2);
                for (int i = mode == ATTN_FWD ? 0 : 1; i < (mode == ATTN_FWD ? 1 : 4); i++)
                    assert_same(x, outputs[i], before[i], describe(x, &candidates[c], mode));
                assert_memory_equal(lse, x->t.lse, (size_t)rows_of(x, 0) * sizeof *lse);
            }
            for (int i = 0; i < 4; i++)
                free(before[i]);
            free(lse);
        }
        assert_int_equal(candidates[c].impl->repeatable[ATTN_FWD], ATTN_O | ATTN_LSE);
        assert_int_equal(candidates[c].impl->repeatable[ATTN_BWD],
                         ATTN_DQ | ATTN_DK | ATTN_DV | ATTN_DSINK | ATTN_DBIAS);
    }
    data_free(x);
}

static void nan_is_not_hidden(void **state)
{
    (void)state;
    const struct attn_problem p = DENSE(1, 1, 1, 130, 130, 64, ATTN_FP32, ATTN_BHSD, true, -1, -1, 0.125f, 0);
    for (size_t c = 0; c < candidate_count; c++) {
        struct data *x = data_new(&p, FILL_NORMAL, false);
        *element(x, 0, 70, 3) = NAN;  /* a row of Q: this row of O */
        *element(x, 4, 100, 5) = NAN; /* a row of K: the rows that see it */
        launch(x, &candidates[c], ATTN_FWD, 2);
        for (int64_t row = 0; row < 130; row++) {
            const bool hit = row == 70 || row >= 100;
            assert_true(isnan(x->t.lse[row]) == hit);
            for (int64_t e = 0; e < 64; e++)
                assert_true(isnan(*element(x, 1, row, e)) == hit);
        }
        data_free(x);
    }
}

static enum attn_status asks(const struct attn_impl *impl, struct attn_problem p, const char *variant,
                             const char *words)
{
    const struct attn_device device = cpu(1);
    struct attn_message why = {""};
    const enum attn_status status =
        impl->accepts(&(struct attn_request){.problem = &p, .device = &device, .variant = variant}, &why);
    if (status != ATTN_OK && !strstr(why.text, words))
        fail_msg("%s refuses with: %s", impl->name, why.text);
    return status;
}

static void refusals_say_why(void **state)
{
    (void)state;
    const struct attn_problem good = DENSE(1, 1, 1, 8, 8, 64, ATTN_FP32, ATTN_BSHD, true, -1, -1, 0.125f, 0);
    const struct attn_impl *both[] = {&attn_naive_cpu, &attn_fused_cpu};
    for (int i = blas_library() ? 0 : 1; i < 2; i++) {
        struct attn_problem p = good;
        assert_int_equal(asks(both[i], p, NULL, ""), ATTN_OK);
        p.dtype = ATTN_BF16;
        assert_int_equal(asks(both[i], p, NULL, "fp32"), ATTN_UNSUPPORTED);
        p = good;
        p.page_size = 16;
        assert_int_equal(asks(both[i], p, NULL, "pages of a cache only"), ATTN_UNSUPPORTED);
        assert_int_equal(asks(both[i], good, "nonsense", "nonsense"), ATTN_UNSUPPORTED);
    }
    struct attn_problem p = good;
    p.q_len = p.kv_len = p.q_heads = p.kv_heads = INT32_MAX;
    assert_int_equal(asks(&attn_naive_cpu, p, NULL, "addressed"), ATTN_UNSUPPORTED);
    p = good;
    p.head_dim = 264;
    assert_int_equal(asks(&attn_fused_cpu, p, NULL, "256"), ATTN_UNSUPPORTED);
    p.head_dim = 12;
    assert_int_equal(asks(&attn_fused_cpu, p, NULL, "multiples of 8"), ATTN_UNSUPPORTED);
    p.dtype = ATTN_FP16;
    assert_int_equal(asks(&attn_null_cpu, p, NULL, ""), ATTN_OK);
}

/* What naive says in a process whose FABENCH_BLAS is `library`; exit status 0 when it refuses with `words`. */
static int refusal_with_blas(const char *library, const char *words)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct attn_problem p = DENSE(1, 1, 1, 8, 8, 64, ATTN_FP32, ATTN_BSHD, true, -1, -1, 0.125f, 0);
        const struct attn_device device = cpu(1);
        struct attn_message why = {""};
        setenv("FABENCH_BLAS", library, 1);
        const struct attn_request request = {.problem = &p, .device = &device, .mode = ATTN_FWD};
        const enum attn_status status = attn_naive_cpu.accepts(&request, &why);
        _exit(status == ATTN_UNSUPPORTED && strstr(why.text, words) && !blas_library() ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* Has to be the first test: the library is looked for once per process. */
static void absent_blas_is_named(void **state)
{
    (void)state;
    assert_int_equal(refusal_with_blas("/nonexistent/libnothing.so.7", "libnothing.so.7"), 0);
    assert_int_equal(refusal_with_blas("libm.so.6", "has no cblas_sgemm"), 0);
    char long_name[400];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    assert_int_equal(refusal_with_blas(long_name, "longer"), 0);
}

static void workspaces_grow_as_promised(void **state)
{
    (void)state;
    const struct attn_problem p =
        DENSE(1, 1, 1, 16384, 16384, 128, ATTN_FP32, ATTN_BSHD, true, -1, -1, 0.088388346f, 0);
    const struct attn_device device = cpu(2);
    for (enum attn_mode mode = ATTN_FWD; mode <= ATTN_BWD; mode++) {
        const struct attn_request request = {.problem = &p, .device = &device, .mode = mode};
        const size_t naive = attn_naive_cpu.workspace_bytes(&request);
        assert_int_equal(naive, 16384ull * 16384 * 4);
        assert_true(attn_fused_cpu.workspace_bytes(&request) <= naive / 50);
        assert_int_equal(attn_null_cpu.workspace_bytes(&request), 0);
    }
    assert_string_equal(attn_fused_cpu.variant(&(struct attn_request){.problem = &p, .device = &device}),
                        cpu_kernels_best()->name);
}

static void count_pass(void *context, const char *name)
{
    char *seen = context;
    strcat(strcat(seen, name), " ");
}

static void naive_names_its_passes(void **state)
{
    (void)state;
    if (!blas_library())
        skip();
    const struct attn_problem p = DENSE(1, 1, 1, 20, 30, 16, ATTN_FP32, ATTN_BSHD, true, -1, -1, 0.25f, 0);
    const struct attn_device device = cpu(2);
    struct data *x = data_new(&p, FILL_NORMAL, false);
    for (enum attn_mode mode = ATTN_FWD; mode <= ATTN_BWD; mode++) {
        const struct attn_request request = {.problem = &p, .device = &device, .mode = mode};
        float workspace[20 * 30];
        char seen[256] = "";
        struct attn_message why;
        struct attn_run run = {
            .workspace = workspace, .workspace_bytes = sizeof workspace, .pass = count_pass, .pass_context = seen};
        assert_int_equal(attn_naive_cpu.prepare(&request, &x->t, &run.plan, &why), ATTN_OK);
        assert_int_equal(attn_naive_cpu.plan_bytes(&request, run.plan), mode == ATTN_BWD ? sizeof workspace : 0);
        assert_int_equal(attn_naive_cpu.launch(&request, &x->t, &run, &why), ATTN_OK);
        assert_string_equal(seen, mode == ATTN_BWD ? "dv dp ds dq dk " : "scores softmax output ");
        attn_naive_cpu.release(run.plan);
    }
    data_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_vectors),
        cmocka_unit_test(hard_shapes),
        cmocka_unit_test(every_head_dim),
        cmocka_unit_test(windows_and_scales),
        cmocka_unit_test(hard_inputs),
        cmocka_unit_test(long_rows_stay_accurate),
        cmocka_unit_test(bits_repeat),
        cmocka_unit_test(nan_is_not_hidden),
        cmocka_unit_test(refusals_say_why),
        cmocka_unit_test(workspaces_grow_as_promised),
        cmocka_unit_test(naive_names_its_passes),
    };
    const struct CMUnitTest first[] = {cmocka_unit_test(absent_blas_is_named)};
    const int failed = cmocka_run_group_tests_name("blas", first, NULL, NULL);
    return failed + cmocka_run_group_tests_name("cpu_kernels", tests, find_candidates, NULL);
}
