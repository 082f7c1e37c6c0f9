/* The float64 oracle against the golden vectors, against the definition written as plain loops, and against itself:
 * threads, layouts, 16-bit inputs. Runs from the root of the repository. */
#include "tests/unit/reference/golden.h"

#include <math.h>

#include "reference/harness/fill.h"
#include "reference/reference.h"
#include "tests/dense.h"

/* ---- problems and buffers ---------------------------------------------------------------------------------------- */

struct sizes {
    int64_t q, k, rows; /* elements of Q-like and K-like tensors, and rows of LSE */
};

static struct sizes sizes_of(const struct attn_problem *p)
{
    const int64_t rows = p->batch * p->q_heads * p->q_len;
    return (struct sizes){rows * p->head_dim, p->batch * p->kv_heads * p->kv_len * p->head_dim, rows};
}

/* Fresh and full of NaN, so that what nobody wrote shows. */
static float *floats(int64_t count)
{
    float *data = malloc((size_t)count * sizeof *data);
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++)
        data[i] = NAN;
    return data;
}

static struct reference_outputs outputs_new(const struct attn_problem *p)
{
    const struct sizes n = sizes_of(p);
    return (struct reference_outputs){.o = floats(n.q),
                                      .lse = floats(n.rows),
                                      .dq = floats(n.q),
                                      .dk = floats(n.k),
                                      .dv = floats(n.k),
                                      .o_abs = floats(n.q),
                                      .dq_abs = floats(n.q),
                                      .dk_abs = floats(n.k),
                                      .dv_abs = floats(n.k)};
}

static void outputs_free(struct reference_outputs *x)
{
    float *all[] = {x->o, x->lse, x->dq, x->dk, x->dv, x->o_abs, x->dq_abs, x->dk_abs, x->dv_abs};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static struct attn_tensor tensor(const struct attn_problem *p, void *data, bool kv)
{
    const int64_t heads = kv ? p->kv_heads : p->q_heads, len = kv ? p->kv_len : p->q_len, d = p->head_dim;
    if (p->layout == ATTN_BSHD)
        return (struct attn_tensor){data, heads * len * d, d, heads * d};
    return (struct attn_tensor){data, heads * len * d, len * d, d};
}

static struct attn_tensors tensors_new(const struct attn_problem *p, enum fill_dist dist)
{
    static float table[FILL_TABLE_SIZE];
    const struct sizes n = sizes_of(p);
    const size_t bytes = attn_dtype_bytes(p->dtype);
    struct attn_tensors t = {.q = tensor(p, malloc((size_t)n.q * bytes), false),
                             .k = tensor(p, malloc((size_t)n.k * bytes), true),
                             .v = tensor(p, malloc((size_t)n.k * bytes), true),
                             .dout = tensor(p, malloc((size_t)n.q * bytes), false)};
    const struct attn_tensor all[] = {t.q, t.k, t.v, t.dout};
    for (int i = 0; i < 4; i++) {
        const bool kv = i == 1 || i == 2;
        float gain;
        assert_non_null(all[i].data);
        fill_table(dist, (enum fill_tensor)(FILL_Q + i), table, &gain);
        fill_tensor_host(all[i], p->dtype, p->batch, kv ? p->kv_heads : p->q_heads, kv ? p->kv_len : p->q_len,
                         p->head_dim, 11, (enum fill_tensor)(FILL_Q + i), table, gain);
    }
    return t;
}

static void tensors_free(struct attn_tensors *t)
{
    free(t->q.data);
    free(t->k.data);
    free(t->v.data);
    free(t->dout.data);
}

static struct reference_outputs run(const struct attn_problem *p, const struct attn_tensors *t, int threads)
{
    struct attn_message why = {""};
    struct reference_outputs out = outputs_new(p);
    assert_int_equal(oracle_attention(p, ATTN_BWD, t, &out, threads, &why), ATTN_OK);
    return out;
}

static void assert_near(const char *where, const char *name, const float *x, const float *ref, int64_t count,
                        double absolute, double relative)
{
    for (int64_t i = 0; i < count; i++) {
        if (x[i] == ref[i]) /* also equal infinities */
            continue;
        const double error = fabs((double)x[i] - (double)ref[i]);
        if (!(error <= absolute + relative * fabs((double)ref[i])))
            fail_msg("%s: %s[%lld] is %.9g, expected %.9g", where, name, (long long)i, (double)x[i], (double)ref[i]);
    }
}

static void assert_same_bits(const struct attn_problem *p, const struct reference_outputs *a,
                             const struct reference_outputs *b)
{
    const struct sizes n = sizes_of(p);
    const struct {
        const float *a, *b;
        int64_t count;
    } all[] = {{a->o, b->o, n.q},           {a->lse, b->lse, n.rows},    {a->dq, b->dq, n.q},
               {a->dk, b->dk, n.k},         {a->dv, b->dv, n.k},         {a->o_abs, b->o_abs, n.q},
               {a->dq_abs, b->dq_abs, n.q}, {a->dk_abs, b->dk_abs, n.k}, {a->dv_abs, b->dv_abs, n.k}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_memory_equal(all[i].a, all[i].b, (size_t)all[i].count * sizeof(float));
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void golden_vectors(void **state)
{
    (void)state;
    for (int i = 0; i < GOLDEN_CASES; i++) {
        struct golden g = golden_load(golden_names[i]);
        const struct attn_problem *p = &g.problem;
        const struct attn_tensors t = {.q = tensor(p, g.q, false),
                                       .k = tensor(p, g.k, true),
                                       .v = tensor(p, g.v, true),
                                       .dout = tensor(p, g.dout, false)};
        const struct sizes n = sizes_of(p);
        struct reference_outputs out = run(p, &t, 2);
        assert_near(golden_names[i], "o", out.o, g.o, n.q, 1e-6, 1e-6);
        assert_near(golden_names[i], "lse", out.lse, g.lse, n.rows, 1e-6, 1e-6);
        assert_near(golden_names[i], "dq", out.dq, g.dq, n.q, 1e-6, 1e-6);
        assert_near(golden_names[i], "dk", out.dk, g.dk, n.k, 1e-6, 1e-6);
        assert_near(golden_names[i], "dv", out.dv, g.dv, n.k, 1e-6, 1e-6);
        outputs_free(&out);
        golden_free(&g);
    }
}

static double at(const struct attn_problem *p, struct attn_tensor x, int64_t b, int64_t h, int64_t i, int64_t c)
{
    return (double)fill_load(x.data, p->dtype, b * x.stride_batch + h * x.stride_head + i * x.stride_row + c);
}

/* The product over absolute values of an element, and the sum of the squares of its terms of dS. */
static double product_of(double absolute, double squares)
{
    return fmax(absolute, sqrt(2 / 3.14159265358979324 * squares));
}

/* Sums of squares of all products of dQ and dK, without and with those. */
static double plain2, with2;

static double counted_product(double absolute, double squares)
{
    const double product = product_of(absolute, squares);
    plain2 += absolute * absolute;
    with2 += product * product;
    return product;
}

/* One row of one query head, from the formulas of attention.h and reference.h; adds to dk, dv and their _abs, and to
 * the squares of dk. */
static void definition_row(const struct attn_problem *p, const struct attn_tensors *t, int64_t b, int64_t h, int64_t i,
                           double *row[5], double *keys[5], double *lse)
{
    const int64_t g = h / (p->q_heads / p->kv_heads), d = p->head_dim;
    double *prob = calloc((size_t)p->kv_len, sizeof *prob), sum = 0, max = -INFINITY;
    assert_non_null(prob);
    for (int pass = 0; pass < 2; pass++)
        for (int64_t j = 0; j < p->kv_len; j++) {
            const int64_t shift = p->kv_len - p->q_len;
            const bool visible = (!p->causal || j <= i + shift) &&
                                 (p->window_left < 0 || j >= i + shift - p->window_left) &&
                                 (p->window_right < 0 || j <= i + shift + p->window_right);
            double s = 0;
            for (int64_t c = 0; c < d && visible; c++)
                s += (double)p->scale * at(p, t->q, b, h, i, c) * at(p, t->k, b, g, j, c);
            if (pass == 0)
                max = visible && s > max ? s : max;
            else
                sum += prob[j] = visible ? exp(s - max) : 0;
        }
    *lse = sum > 0 ? max + log(sum) : -INFINITY;
    for (int64_t c = 0; c < d; c++)
        row[0][c] = row[1][c] = row[2][c] = row[3][c] = row[4][c] = 0;
    for (int64_t j = 0; j < p->kv_len && sum > 0; j++)
        for (int64_t c = 0; c < d; c++) {
            row[0][c] += prob[j] / sum * at(p, t->v, b, g, j, c);
            row[1][c] += prob[j] / sum * fabs(at(p, t->v, b, g, j, c));
        }
    double dot = 0, spread2 = 0, size2 = 0;
    for (int64_t c = 0; c < d; c++) {
        dot += at(p, t->dout, b, h, i, c) * row[0][c];
        spread2 += pow(at(p, t->dout, b, h, i, c) * row[0][c], 2);
    }
    for (int64_t pass = 0, j = 0; pass < 2 && sum > 0; pass += ++j == p->kv_len, j %= p->kv_len) {
        double dp = 0;
        for (int64_t c = 0; c < d; c++)
            dp += at(p, t->dout, b, h, i, c) * at(p, t->v, b, g, j, c);
        const double ds = (double)p->scale * prob[j] / sum * (dp - dot);
        const double ds_abs = fabs((double)p->scale) * prob[j] / sum * sqrt(fmax(spread2, size2));
        if (pass == 0)
            size2 += pow(prob[j] / sum * (dp - dot), 2);
        for (int64_t c = 0; c < d && pass == 1; c++) {
            const int64_t to = ((b * p->kv_heads + g) * p->kv_len + j) * d + c;
            row[2][c] += ds * at(p, t->k, b, g, j, c);
            row[3][c] += ds_abs * fabs(at(p, t->k, b, g, j, c));
            row[4][c] += pow(ds * at(p, t->k, b, g, j, c), 2);
            keys[0][to] += ds * at(p, t->q, b, h, i, c);
            keys[1][to] += ds_abs * fabs(at(p, t->q, b, h, i, c));
            keys[2][to] += prob[j] / sum * at(p, t->dout, b, h, i, c);
            keys[3][to] += prob[j] / sum * fabs(at(p, t->dout, b, h, i, c));
            keys[4][to] += pow(ds * at(p, t->q, b, h, i, c), 2);
        }
    }
    for (int64_t c = 0; c < d; c++)
        row[3][c] = counted_product(row[3][c], row[4][c]);
    free(prob);
}

static void definition(const struct attn_problem *p, const struct attn_tensors *t, struct reference_outputs *out)
{
    const struct sizes n = sizes_of(p);
    double *keys[5], *row[5];
    for (int i = 0; i < 5; i++) {
        keys[i] = calloc((size_t)n.k, sizeof **keys);
        row[i] = calloc((size_t)p->head_dim, sizeof **row);
        assert_true(keys[i] && row[i]);
    }
    for (int64_t r = 0; r < n.rows; r++) {
        const int64_t h = r / p->q_len;
        double lse;
        definition_row(p, t, h / p->q_heads, h % p->q_heads, r % p->q_len, row, keys, &lse);
        out->lse[r] = (float)lse;
        float *to[] = {out->o, out->o_abs, out->dq, out->dq_abs};
        for (int i = 0; i < 4; i++)
            for (int64_t c = 0; c < p->head_dim; c++)
                to[i][r * p->head_dim + c] = (float)row[i][c];
    }
    float *to[] = {out->dk, out->dk_abs, out->dv, out->dv_abs};
    for (int64_t e = 0; e < n.k; e++)
        keys[1][e] = counted_product(keys[1][e], keys[4][e]);
    for (int i = 0; i < 5; i++) {
        for (int64_t e = 0; e < n.k && i < 4; e++)
            to[i][e] = (float)keys[i][e];
        free(keys[i]);
        free(row[i]);
    }
}

/* batch, q_heads, kv_heads, q_len, kv_len, head_dim, dtype, layout, causal, window_left, window_right, scale, dropout
 * */
static const struct attn_problem problems[] = {
    DENSE(1, 1, 1, 1, 1, 8, ATTN_FP32, ATTN_BHSD, true, -1, -1, 0.5f, 0),
    DENSE(2, 4, 2, 19, 31, 24, ATTN_FP32, ATTN_BSHD, true, -1, -1, 0.2f, 0),
    DENSE(1, 3, 1, 150, 41, 16, ATTN_FP16, ATTN_BHSD, true, -1, -1, 0.25f, 0), /* rows that see nothing */
    DENSE(1, 2, 2, 40, 600, 8, ATTN_BF16, ATTN_BSHD, false, -1, -1, 0.3f, 0),  /* many blocks of keys */
    DENSE(1, 2, 1, 70, 70, 12, ATTN_FP32, ATTN_BHSD, false, 5, 3, -0.4f, 0),
    DENSE(1, 1, 1, 33, 65, 8, ATTN_FP32, ATTN_BHSD, false, 0, 0, 1.0f, 0),
    DENSE(1, 1, 1, 65, 33, 8, ATTN_FP32, ATTN_BHSD, true, 4, -1, 0.35f, 0),
    DENSE(1, 1, 1, 17, 300, 7, ATTN_FP32, ATTN_BHSD, false, -1, 2, 0.0f, 0),
};

static void definition_as_plain_loops(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        const struct attn_problem *p = &problems[i];
        char where[32];
        snprintf(where, sizeof where, "problem %zu", i);
        struct attn_tensors t = tensors_new(p, FILL_NORMAL);
        struct reference_outputs out = run(p, &t, 2), ref = outputs_new(p);
        definition(p, &t, &ref);
        const struct sizes n = sizes_of(p);
        assert_near(where, "o", out.o, ref.o, n.q, 1e-11, 2e-7);
        assert_near(where, "lse", out.lse, ref.lse, n.rows, 1e-11, 2e-7);
        assert_near(where, "dq", out.dq, ref.dq, n.q, 1e-11, 2e-7);
        assert_near(where, "dk", out.dk, ref.dk, n.k, 1e-11, 2e-7);
        assert_near(where, "dv", out.dv, ref.dv, n.k, 1e-11, 2e-7);
        assert_near(where, "|o|", out.o_abs, ref.o_abs, n.q, 1e-11, 2e-7);
        assert_near(where, "|dq|", out.dq_abs, ref.dq_abs, n.q, 1e-11, 2e-7);
        assert_near(where, "|dk|", out.dk_abs, ref.dk_abs, n.k, 1e-11, 2e-7);
        assert_near(where, "|dv|", out.dv_abs, ref.dv_abs, n.k, 1e-11, 2e-7);
        outputs_free(&out);
        outputs_free(&ref);
        tensors_free(&t);
    }
}

/* The squares of terms matter where numbers of K or Q differ much or few rows see a key: of usual inputs the products
 * hardly move, and with them the norms that errors are divided by. */
static void squares_hardly_move_usual_products(void **state)
{
    static const struct {
        struct attn_problem problem;
        enum fill_dist dist;
    } usual[] = {{DENSE(1, 2, 1, 130, 130, 32, ATTN_BF16, ATTN_BSHD, true, -1, -1, 0.177f, 0), FILL_NORMAL},
                 {DENSE(1, 1, 1, 257, 257, 16, ATTN_FP16, ATTN_BSHD, false, -1, -1, 0.25f, 0), FILL_UNIFORM}};
    (void)state;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        struct attn_tensors t = tensors_new(&usual[i].problem, usual[i].dist);
        struct reference_outputs ref = outputs_new(&usual[i].problem);
        plain2 = with2 = 0;
        definition(&usual[i].problem, &t, &ref);
        const double times = sqrt(with2 / plain2);
        if (!(times >= 1 && times <= 1.1))
            fail_msg("problem %zu: products are %.3g times as large", i, times);
        outputs_free(&ref);
        tensors_free(&t);
    }
}

static void bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    const struct attn_problem many = DENSE(2, 4, 2, 150, 600, 16, ATTN_FP32, ATTN_BSHD, true, -1, -1, 0.25f, 0);
    struct attn_tensors t = tensors_new(&many, FILL_NORMAL);
    struct reference_outputs one = run(&many, &t, 1);
    const int threads[] = {2, 3, 4, 5, 9, 0};
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        struct reference_outputs out = run(&many, &t, threads[i]);
        assert_same_bits(&many, &out, &one);
        outputs_free(&out);
    }
    outputs_free(&one);
    tensors_free(&t);
}

static void layouts_and_dtypes_are_only_ways_to_load(void **state)
{
    (void)state;
    struct attn_problem p = DENSE(2, 4, 2, 50, 60, 24, ATTN_BF16, ATTN_BSHD, true, 20, -1, 0.2f, 0), plain = p;
    struct attn_tensors t = tensors_new(&p, FILL_NORMAL);
    plain.dtype = ATTN_FP32;
    plain.layout = ATTN_BHSD;
    struct attn_tensors copy = tensors_new(&plain, FILL_NORMAL);
    const struct attn_tensor from[] = {t.q, t.k, t.v, t.dout}, to[] = {copy.q, copy.k, copy.v, copy.dout};
    for (int i = 0; i < 4; i++) {
        const bool kv = i == 1 || i == 2;
        const int64_t heads = kv ? p.kv_heads : p.q_heads, len = kv ? p.kv_len : p.q_len;
        for (int64_t e = 0; e < p.batch * heads * len * p.head_dim; e++) {
            const int64_t c = e % p.head_dim, r = e / p.head_dim % len, h = e / p.head_dim / len;
            ((float *)to[i].data)[e] = (float)at(&p, from[i], h / heads, h % heads, r, c);
        }
    }
    struct reference_outputs a = run(&p, &t, 2), b = run(&plain, &copy, 2);
    assert_same_bits(&p, &a, &b);
    outputs_free(&a);
    outputs_free(&b);
    tensors_free(&t);
    tensors_free(&copy);
}

static void forward_is_the_forward_of_backward_and_abs_may_be_absent(void **state)
{
    (void)state;
    const struct attn_problem p = DENSE(1, 2, 1, 40, 70, 16, ATTN_FP32, ATTN_BHSD, true, -1, -1, 0.25f, 0);
    struct attn_tensors t = tensors_new(&p, FILL_NORMAL);
    struct reference_outputs all = run(&p, &t, 1);
    const struct sizes n = sizes_of(&p);
    struct attn_message why;
    struct reference_outputs forward = {.o = floats(n.q), .lse = floats(n.rows)};
    assert_int_equal(oracle_attention(&p, ATTN_FWD, &t, &forward, 2, &why), ATTN_OK);
    assert_memory_equal(forward.o, all.o, (size_t)n.q * sizeof(float));
    assert_memory_equal(forward.lse, all.lse, (size_t)n.rows * sizeof(float));
    struct reference_outputs bare = {
        .o = floats(n.q), .lse = floats(n.rows), .dq = floats(n.q), .dk = floats(n.k), .dv = floats(n.k)};
    assert_int_equal(oracle_attention(&p, ATTN_BWD, &t, &bare, 2, &why), ATTN_OK);
    assert_memory_equal(bare.dq, all.dq, (size_t)n.q * sizeof(float));
    assert_memory_equal(bare.dk, all.dk, (size_t)n.k * sizeof(float));
    assert_memory_equal(bare.dv, all.dv, (size_t)n.k * sizeof(float));
    outputs_free(&forward);
    outputs_free(&bare);
    outputs_free(&all);
    tensors_free(&t);
}

static void hard_inputs(void **state)
{
    (void)state;
    const struct attn_problem p = DENSE(1, 1, 1, 90, 130, 32, ATTN_FP32, ATTN_BHSD, true, -1, -1, 0.17677669f, 0);
    const struct sizes n = sizes_of(&p);
    struct attn_tensors t = tensors_new(&p, FILL_CONSTANT);
    struct reference_outputs out = run(&p, &t, 2);
    for (int64_t i = 0; i < n.q; i++) {
        assert_true(out.o[i] == 1.0f && out.o_abs[i] == 1.0f);
        assert_true(fabsf(out.dq[i]) <= 1e-14f * out.dq_abs[i]);
    }
    for (int64_t i = 0; i < n.k; i++)
        assert_true(fabsf(out.dk[i]) <= 1e-14f * out.dk_abs[i]);
    outputs_free(&out);
    tensors_free(&t);
    const enum fill_dist dists[] = {FILL_SHARP, FILL_HUGE, FILL_TINY, FILL_ZEROS, FILL_UNIFORM};
    for (size_t i = 0; i < sizeof dists / sizeof *dists; i++) {
        t = tensors_new(&p, dists[i]);
        out = run(&p, &t, 2);
        struct reference_outputs ref = outputs_new(&p);
        definition(&p, &t, &ref);
        assert_near("hard", "o", out.o, ref.o, n.q, 1e-12, 2e-7);
        assert_near("hard", "lse", out.lse, ref.lse, n.rows, 1e-12, 2e-7);
        assert_near("hard", "dq", out.dq, ref.dq, n.q, 1e-10, 2e-7);
        assert_near("hard", "dk", out.dk, ref.dk, n.k, 1e-10, 2e-7);
        assert_near("hard", "dv", out.dv, ref.dv, n.k, 1e-12, 2e-7);
        outputs_free(&out);
        outputs_free(&ref);
        tensors_free(&t);
    }
}

static void too_little_memory_is_a_sentence(void **state)
{
    (void)state;
    /* The request is refused by its size, before any tensor is touched. */
    const struct attn_problem p = DENSE(1, 1, 1, 1, INT32_MAX, 1 << 30, ATTN_FP32, ATTN_BHSD, false, -1, -1, 1.0f, 0);
    const struct attn_tensors t = {.lse = NULL};
    const struct reference_outputs out = {.o = NULL};
    struct attn_message why = {""};
    assert_int_equal(oracle_attention(&p, ATTN_BWD, &t, &out, 1, &why), ATTN_NO_MEMORY);
    assert_non_null(strstr(why.text, "GB of host memory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_vectors),
        cmocka_unit_test(definition_as_plain_loops),
        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(layouts_and_dtypes_are_only_ways_to_load),
        cmocka_unit_test(forward_is_the_forward_of_backward_and_abs_may_be_absent),
        cmocka_unit_test(squares_hardly_move_usual_products),
        cmocka_unit_test(hard_inputs),
        cmocka_unit_test(too_little_memory_is_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
