/* The rules of cmd/judge/judge.c on block sums of compare_blocks_cpu: each rule must be able to fail alone. */
#include "tests/unit/unit_help.h"

#include "cmd/judge/judge.h"
#include "reference/compare.h"
#include "reference/harness/fill.h"

enum { BATCH = 2, HEADS = 2, LEN = 200, DIM = 64, COUNT = BATCH * HEADS * LEN * DIM };

struct fixture {
    float *x, *ref, *abs;
    int64_t queries;
};

/* A reference of normal values and an output with a relative error of 1e-4, far inside every fp16 bound. */
static struct fixture make(void)
{
    struct fixture f = {malloc(COUNT * sizeof(float)), malloc(COUNT * sizeof(float)), malloc(COUNT * sizeof(float)),
                        BATCH * HEADS * LEN};
    float *table = malloc(FILL_TABLE_SIZE * sizeof *table), gain;
    fill_table(FILL_NORMAL, FILL_Q, table, &gain);
    for (int i = 0; i < COUNT; i++) {
        f.ref[i] = table[fill_random16(1, FILL_Q, (uint64_t)i)] * 0.05f;
        f.abs[i] = 0.02f;
        f.x[i] = f.ref[i] * (1 + 1e-4f * table[fill_random16(2, FILL_K, (uint64_t)i)]);
    }
    free(table);
    return f;
}

static void discard(struct fixture *f)
{
    free(f->x);
    free(f->ref);
    free(f->abs);
}

/* A result beyond the largest number of the output's type is an infinity: right where the reference, with the element's
 * bound, is as large, wrong elsewhere, with the other sign, and where it is NaN. */
static void infinities_that_may_be(void **state)
{
    (void)state;
    enum { PAIRS = 8 };
    static const float refs[PAIRS] = {78854, 65530, 64900, 60000, -70000, 70000, 70000, 1};
    static const uint16_t results[PAIRS] = {0x7c00, 0x7c00, 0x7c00, 0x7c00, 0xfc00, 0xfc00, 0x7e00, 0x3c00};
    static const bool is_right[PAIRS] = {true, true, true, false, true, false, false, true};
    for (int i = 0; i < PAIRS; i++) {
        struct compare_block block;
        const struct compare_job job = {.x = {(void *)(uintptr_t)&results[i], 1, 1, 1},
                                        .dtype = ATTN_FP16,
                                        .ref = &refs[i],
                                        .batch = 1,
                                        .heads = 1,
                                        .len = 1,
                                        .head_dim = 1,
                                        .rtol = 0.01};
        compare_blocks_cpu(&job, &block, 1);
        assert_int_equal(block.nonfinite, !is_right[i]);
        assert_int_equal(block.bad, !is_right[i]);
        assert_true(isfinite(block.err2) && isfinite(block.ref2));
    }
    assert_true(compare_overflow(ATTN_BF16) < FLT_MAX && compare_overflow(ATTN_BF16) > 3.3895e38);
    assert_false(compare_may_overflow(INFINITY, 78854, 788, compare_overflow(ATTN_BF16)));
}

static bool judge(const struct fixture *f, double naive, double atol, double rtol, struct record_tensor *verdict)
{
    struct judge_input in = {.tensor = TENSOR_DK,
                             .batch = BATCH,
                             .heads = HEADS,
                             .len = LEN,
                             .head_dim = DIM,
                             .independent_rows = f->queries,
                             .naive_max_abs_err = naive,
                             .bounds = judge_bounds_for(TENSOR_DK, ATTN_FP16, ATTN_BWD, false, atol, rtol, 0.05)};
    struct compare_job job = {.x = {f->x, HEADS * LEN * DIM, LEN * DIM, DIM},
                              .dtype = ATTN_FP32,
                              .ref = f->ref,
                              .abs = f->abs,
                              .batch = BATCH,
                              .heads = HEADS,
                              .len = LEN,
                              .head_dim = DIM,
                              .atol_absolute = in.bounds.atol_absolute,
                              .atol_rms = in.bounds.atol_rms,
                              .atol_abs = in.bounds.atol_abs,
                              .rtol = in.bounds.rtol};
    struct compare_block blocks[BATCH * HEADS * 4];
    assert_int_equal(compare_blocks_per_head(LEN), 4);
    compare_blocks_cpu(&job, blocks, 2);
    in.blocks = blocks;
    return judge_tensor(&in, verdict);
}

static bool judge_default(const struct fixture *f, struct record_tensor *verdict)
{
    return judge(f, NAN, NAN, NAN, verdict);
}

static void correct_output_passes(void **state)
{
    (void)state;
    struct fixture f = make();
    struct record_tensor v;
    assert_true(judge_default(&f, &v));
    assert_true(v.used > 0 && v.used < 0.2);
    assert_string_equal(v.failure, "");
    assert_true(v.rel_rms_err > 5e-5 && v.rel_rms_err < 2e-4);
    discard(&f);
}

/* Elements that are all equal are all rounded by as much: the nearest number passes, the next one does not. */
static void equal_elements_share_their_rounding(void **state)
{
    (void)state;
    enum { ROWS = 64 };
    static const uint16_t near = 0x3fab, next = 0x3fac; /* 1.3359 and 1.34375 in bf16 */
    float ref[ROWS * DIM];
    uint16_t x[ROWS * DIM];
    for (int wrong = 0; wrong < 2; wrong++) {
        struct compare_block block;
        struct record_tensor verdict;
        for (int i = 0; i < ROWS * DIM; i++) {
            ref[i] = 4.0f / 3;
            x[i] = wrong ? next : near;
        }
        struct judge_input in = {.tensor = TENSOR_O,
                                 .blocks = &block,
                                 .batch = 1,
                                 .heads = 1,
                                 .len = ROWS,
                                 .head_dim = DIM,
                                 .independent_rows = 1 << 20,
                                 .naive_max_abs_err = NAN,
                                 .bounds = judge_bounds_for(TENSOR_O, ATTN_BF16, ATTN_FWD, false, NAN, NAN, 4.0 / 3)};
        const struct compare_job job = {.x = {x, ROWS * DIM, ROWS * DIM, DIM},
                                        .dtype = ATTN_BF16,
                                        .ref = ref,
                                        .batch = 1,
                                        .heads = 1,
                                        .len = ROWS,
                                        .head_dim = DIM,
                                        .atol_rms = in.bounds.atol_rms,
                                        .rtol = in.bounds.rtol};
        compare_blocks_cpu(&job, &block, 1);
        judge_tensor(&in, &verdict);
        if (wrong) {
            assert_true(verdict.used > 1);
            assert_string_equal(verdict.rule, "gain");
        } else {
            assert_true(verdict.used <= 1);
        }
    }
}

static void nan_fails_and_is_named(void **state)
{
    (void)state;
    struct fixture f = make();
    struct record_tensor v;
    f.x[((1 * HEADS + 0) * LEN + 131) * DIM + 7] = NAN;
    assert_false(judge_default(&f, &v));
    assert_string_equal(v.rule, "nonfinite");
    assert_string_equal(v.worst, "dk[1,0,131,7]");
    assert_non_null(strstr(v.failure, "in 1 of 4 heads, all in rows 131..131"));
    discard(&f);
}

/* Where the reference is infinite, the output must be the same infinity. */
static void infinities_must_agree(void **state)
{
    (void)state;
    struct fixture f = make();
    struct record_tensor v;
    f.ref[5] = f.x[5] = -INFINITY;
    assert_true(judge_default(&f, &v));
    f.x[5] = INFINITY;
    assert_false(judge_default(&f, &v));
    f.x[5] = -1e30f;
    assert_false(judge_default(&f, &v));
    discard(&f);
}

static void one_wrong_element_fails(void **state)
{
    (void)state;
    struct fixture f = make();
    struct record_tensor v;
    const int at = (3 * LEN + 64) * DIM + 1;
    f.x[at] = f.ref[at] + 0.02f * fabsf(f.ref[at]) + 0.001f;
    assert_false(judge_default(&f, &v));
    assert_string_equal(v.rule, "element");
    assert_string_equal(v.worst, "dk[1,1,64,1]");
    discard(&f);
}

/* An error below the tolerance of every single element is still found by the norm. */
static void rms_fails_alone(void **state)
{
    (void)state;
    struct fixture f = make();
    struct record_tensor v;
    for (int i = 0; i < COUNT; i++)
        f.x[i] = f.ref[i] * (i % 2 ? 1.006f : 0.994f);
    assert_false(judge_default(&f, &v));
    assert_string_equal(v.rule, "rms");
    assert_true(v.gain_err < 1e-3);
    discard(&f);
}

static void one_block_fails_alone(void **state)
{
    (void)state;
    struct fixture f = make();
    struct record_tensor v;
    for (int row = 128; row < 192; row++)
        for (int c = 0; c < DIM; c++)
            f.x[row * DIM + c] = f.ref[row * DIM + c] * (c % 2 ? 1.006f : 0.994f);
    assert_false(judge_default(&f, &v));
    assert_string_equal(v.rule, "block_rms");
    assert_true(v.rel_rms_err < 2e-3);
    assert_non_null(strstr(v.failure, "rows 128..191"));
    discard(&f);
}

static void gain_fails_alone(void **state)
{
    (void)state;
    struct fixture f = make();
    struct record_tensor v;
    for (int i = 0; i < COUNT; i++)
        f.x[i] = f.ref[i] * 1.0015f;
    assert_false(judge_default(&f, &v));
    assert_string_equal(v.rule, "gain");
    assert_true(v.rel_rms_err < 2e-3);
    discard(&f);
}

/* The bound depends on the number of queries: all keys share the error of a query. */
static void gain_averages_over_queries(void **state)
{
    (void)state;
    struct fixture f = make();
    struct record_tensor v;
    for (int i = 0; i < COUNT; i++)
        f.x[i] = f.ref[i] * 1.0011f;
    assert_false(judge_default(&f, &v));
    assert_string_equal(v.rule, "gain");
    f.queries = 2;
    assert_true(judge_default(&f, &v));
    for (int i = 0; i < COUNT; i++)
        f.x[i] = f.ref[i] * 1.01f;
    assert_false(judge_default(&f, &v));
    assert_true(v.gain_err > 9e-3);
    discard(&f);
}

static double normal(uint64_t *seed)
{
    double u[2];
    for (int i = 0; i < 2; i++) {
        *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        u[i] = ((double)(*seed >> 11) + 0.5) * 0x1p-53;
    }
    return sqrt(-2 * log(u[0])) * cos(6.283185307179586 * u[1]);
}

static double to_bf16(double x)
{
    const float narrow = (float)x;
    uint32_t bits;
    float rounded;
    memcpy(&bits, &narrow, sizeof bits);
    bits = (bits + (bits >> 16 & 1) + 0x7fff) & 0xffff0000;
    memcpy(&rounded, &bits, sizeof rounded);
    return rounded;
}

/* The gain error of dK of one query over 257 keys and two heads, when only O, P and dS are rounded to bf16. The rows of
 * dK are dS times one vector, so dS is sufficient. */
static double gain_error_of_one_query(uint64_t *seed)
{
    enum { KEYS = 257, HEAD_DIM = 64 };
    double dot = 0, norm = 0;
    for (int head = 0; head < 2; head++) {
        double q[HEAD_DIM], dout[HEAD_DIM], o[HEAD_DIM] = {0}, p[KEYS], dp[KEYS] = {0}, sum = 0, d = 0, d_rounded = 0,
                                            q2 = 0;
        for (int c = 0; c < HEAD_DIM; c++) {
            q[c] = normal(seed);
            q2 += q[c] * q[c];
            dout[c] = normal(seed);
        }
        for (int j = 0; j < KEYS; j++) {
            double score = 0;
            for (int c = 0; c < HEAD_DIM; c++)
                score += q[c] * normal(seed);
            sum += p[j] = exp(score / 8);
            for (int c = 0; c < HEAD_DIM; c++) {
                const double v = normal(seed);
                dp[j] += v * dout[c];
                o[c] += p[j] * v;
            }
        }
        for (int c = 0; c < HEAD_DIM; c++) {
            d += o[c] / sum * dout[c];
            d_rounded += to_bf16(o[c] / sum) * dout[c];
        }
        for (int j = 0; j < KEYS; j++) {
            const double ds = p[j] / sum * (dp[j] - d);
            dot += q2 * ds * to_bf16(to_bf16(p[j] / sum) * (dp[j] - d_rounded));
            norm += q2 * ds * ds;
        }
    }
    return fabs(dot / norm - 1);
}

/* The bound for two queries admits the errors of rounding; a bound for 514 keys would not (docs/judging.md). */
static void gain_bound_of_one_query(void **state)
{
    (void)state;
    const int draws = getenv("FABENCH_TEST_LONG") ? 2000 : 400;
    const struct judge_bounds bf16 = judge_bounds_for(TENSOR_DK, ATTN_BF16, ATTN_BWD, false, NAN, NAN, 0.1);
    uint64_t seed = 1;
    int over = 0;
    for (int i = 0; i < draws; i++) {
        const double error = gain_error_of_one_query(&seed);
        assert_true(error < bf16.gain + bf16.rms / sqrt(2));
        over += error > bf16.gain + bf16.rms / sqrt(514);
    }
    assert_in_range(over, draws / 100, draws / 10);
}

static void naive_rule_fails_alone(void **state)
{
    (void)state;
    struct fixture f = make();
    struct record_tensor v;
    assert_true(judge(&f, 1e-4, NAN, NAN, &v));
    f.x[9] = f.ref[9] + 0.0005f;
    assert_true(judge(&f, 1e-3, NAN, NAN, &v));
    assert_false(judge(&f, 1e-5, NAN, NAN, &v));
    assert_string_equal(v.rule, "naive");
    discard(&f);
}

/* The error of a tensor that is exactly zero is relative to eps times the products, not 0 / 0. */
static void zero_reference_has_a_floor(void **state)
{
    (void)state;
    struct fixture f = make();
    struct record_tensor v;
    for (int i = 0; i < COUNT; i++) {
        f.ref[i] = 0;
        f.x[i] = i % 2 ? 1e-7f : -1e-7f;
    }
    assert_true(judge_default(&f, &v));
    for (int i = 0; i < COUNT; i++)
        f.x[i] = i % 2 ? 1e-4f : -1e-4f;
    assert_false(judge_default(&f, &v));
    for (int i = 0; i < COUNT; i++)
        f.x[i] = f.abs[i] = 0;
    assert_true(judge_default(&f, &v));
    f.x[0] = 1e-5f; /* where the products are zero, no value that fp16 distinguishes from 0 is allowed */
    assert_false(judge_default(&f, &v));
    discard(&f);
}

static void users_tolerance_is_literal(void **state)
{
    (void)state;
    struct fixture f = make();
    struct record_tensor v;
    f.x[3] = f.ref[3] + 0.004f;
    assert_false(judge_default(&f, &v));
    assert_true(judge(&f, NAN, 0.005, 0, &v)); /* one element does not move the norms */
    assert_false(judge(&f, NAN, 0.003, 0, &v));
    assert_string_equal(v.rule, "element");
    discard(&f);
}

static void bounds_are_the_documented_ones(void **state)
{
    (void)state;
    const struct judge_bounds fp16 = judge_bounds_for(TENSOR_O, ATTN_FP16, ATTN_FWD, false, NAN, NAN, 0.1);
    const struct judge_bounds bf16 = judge_bounds_for(TENSOR_DQ, ATTN_BF16, ATTN_BWD, false, NAN, NAN, 0.1);
    const struct judge_bounds naive = judge_bounds_for(TENSOR_O, ATTN_FP16, ATTN_FWD, true, NAN, NAN, 0.1);
    const struct judge_bounds lse = judge_bounds_for(TENSOR_LSE, ATTN_BF16, ATTN_FWD, false, NAN, NAN, 0.1);
    assert_true(fp16.rms <= 8e-4 && fp16.block_rms <= 1.6e-3 && fp16.gain <= 1e-3);
    assert_true(fp16.rtol == 1e-2 && fp16.atol_rms == 0.01 && fp16.norm_abs == 0x1p-10);
    assert_true(bf16.rms <= 1e-2 && bf16.gain <= 1e-3 && bf16.atol_rms == 0.05);
    assert_true(naive.rms == 2 * fp16.rms && naive.rtol == 2 * fp16.rtol);
    assert_true(lse.atol_absolute == 1e-3 && lse.rms == 0 && lse.rtol == 0);
}

static struct judge_bounds lse_bounds(enum attn_dtype dtype, bool doubled, double reference_rms)
{
    return judge_bounds_for(TENSOR_LSE, dtype, ATTN_FWD, doubled, NAN, NAN, reference_rms);
}

/* Ten times tighter in fp32. It grows with the size of the logits, whose sums are rounded to fp32. */
static void lse_is_bounded_by_dtype(void **state)
{
    (void)state;
    assert_true(lse_bounds(ATTN_FP32, false, 0).atol_absolute == 1e-4);
    assert_true(lse_bounds(ATTN_FP32, true, 0).atol_absolute == 1e-4);
    const struct judge_bounds normal = lse_bounds(ATTN_FP32, false, 7), huge = lse_bounds(ATTN_FP32, false, 700);
    assert_true(normal.atol_absolute + 7 * normal.rtol < 1.11e-4);
    assert_true(huge.atol_absolute + 700 * huge.rtol > 1e-3);
    for (enum attn_dtype dtype = ATTN_FP16; dtype <= ATTN_BF16; dtype++) {
        assert_true(lse_bounds(dtype, false, 700).atol_absolute == 1e-3 && lse_bounds(dtype, false, 700).rtol == 0);
        assert_true(lse_bounds(dtype, true, 700).atol_absolute > 2e-3 && lse_bounds(dtype, true, 700).rtol > 0);
    }
}

/* Rounded logits: bounds of rules 3 and 4 in fp32, where the logits are large; nothing else moves. */
static void large_logits_in_fp32(void **state)
{
    (void)state;
    const struct judge_bounds before = judge_bounds_for(TENSOR_DV, ATTN_FP32, ATTN_BWD, false, NAN, NAN, 0.1);
    struct judge_bounds b = before;
    judge_floor_of_logits(&b, TENSOR_DV, ATTN_FP32, false, 128, 40, 0);
    assert_memory_equal(&b, &before, sizeof b);
    judge_floor_of_logits(&b, TENSOR_DV, ATTN_FP32, false, 192, 2000, 0); /* sqrt(192 / 12) = 4 */
    assert_true(b.rms == 2 * 0x1p-23 * 4 * 2000 && b.block_rms == 2 * b.rms && b.gain == b.rms);
    assert_true(b.rtol == before.rtol && b.atol_rms == before.atol_rms && b.norm_abs == before.norm_abs);
    struct judge_bounds lse = judge_bounds_for(TENSOR_LSE, ATTN_FP32, ATTN_FWD, true, NAN, NAN, 100);
    judge_floor_of_logits(&lse, TENSOR_LSE, ATTN_FP32, true, 192, 2000, 0);
    assert_true(lse.atol_absolute == 2 * 0x1p-23 * 4 * 2000 && lse.rms == 0 && lse.gain == 0);
    struct judge_bounds doubled = before;
    judge_floor_of_logits(&doubled, TENSOR_DV, ATTN_FP32, true, 192, 2000, 0);
    assert_true(doubled.rms == 2 * b.rms);
}

/* Logits near zero: the bound of rule 4 in bf16, for every tensor but LSE; nothing else moves, and nothing where P
 * differs or has more digits. */
static void equal_weights_in_bf16(void **state)
{
    (void)state;
    const struct judge_bounds before = judge_bounds_for(TENSOR_DV, ATTN_BF16, ATTN_BWD, false, NAN, NAN, 0.1);
    struct judge_bounds b = before;
    judge_floor_of_equal_weights(&b, TENSOR_DV, ATTN_BF16, 0x1p-10);
    judge_floor_of_equal_weights(&b, TENSOR_DV, ATTN_BF16, INFINITY);
    judge_floor_of_equal_weights(&b, TENSOR_LSE, ATTN_BF16, 0);
    judge_floor_of_equal_weights(&b, TENSOR_DV, ATTN_FP32, 0);
    assert_memory_equal(&b, &before, sizeof b);
    judge_floor_of_equal_weights(&b, TENSOR_DV, ATTN_BF16, 0x1p-11);
    assert_true(b.gain == 0x1p-8); /* a fault of 1 % is found */
    b.gain = before.gain;
    assert_memory_equal(&b, &before, sizeof b);
    struct judge_bounds fp16 = judge_bounds_for(TENSOR_DV, ATTN_FP16, ATTN_BWD, false, NAN, NAN, 0.1);
    judge_floor_of_equal_weights(&fp16, TENSOR_DV, ATTN_FP16, 0);
    assert_true(fp16.gain == 1e-3);
}

static double rounded_to_8_bits(double x)
{
    int exponent;
    const double digits = ldexp(frexp(x, &exponent), 8);
    return ldexp(nearbyint(digits), exponent - 8);
}

/* All P of a row over n keys with equal logits are 1 / n: no length has a larger error than the floor, and some lengths
 * have a larger one than the bound without it. */
static void equal_weights_stay_below_the_floor(void **state)
{
    (void)state;
    struct judge_bounds b = judge_bounds_for(TENSOR_DV, ATTN_BF16, ATTN_BWD, false, NAN, NAN, 0.1);
    const double before = b.gain;
    judge_floor_of_equal_weights(&b, TENSOR_DV, ATTN_BF16, 0);
    double worst = 0;
    for (int n = 1; n <= 20000; n++) {
        const double error = fabs(rounded_to_8_bits(1.0 / n) * n - 1);
        assert_true(error < b.gain);
        worst = fmax(worst, error);
    }
    assert_true(worst > 3 * before && worst > 0.97 * b.gain);
}

/* Denormals in fp16: a term of the bound of an element, and a norm of which the bound of rule 3 is 1.25 deviations. */
static void denormals_have_a_floor(void **state)
{
    (void)state;
    const struct judge_bounds before = judge_bounds_for(TENSOR_DV, ATTN_FP16, ATTN_BWD, false, NAN, NAN, 1e-3);
    struct judge_bounds b = before;
    judge_floor_of_denormals(&b, &(struct judge_denormals){0, 0, 0, 0});
    assert_memory_equal(&b, &before, sizeof b);
    judge_floor_of_denormals(&b, &(struct judge_denormals){2e-5, 1e-5, 3e-5, 4e-5});
    assert_true(fabs(b.atol_absolute - before.atol_absolute - 1.5e-4) < 1e-12);
    assert_true(fabs(b.norm_floor * b.rms - 1.25e-5) < 1e-15);
    assert_true(b.rms == before.rms && b.block_rms == before.block_rms && b.gain == before.gain);
    judge_floor_of_denormals(&b, &(struct judge_denormals){0, 1e-9, 0, 1e-9}); /* the larger floors stay */
    assert_true(fabs(b.norm_floor * b.rms - 1.25e-5) < 1e-15 && fabs(b.norm_row * b.rms - 4e-5) < 1e-15);
}

static void rows_that_share_a_norm(void **state)
{
    (void)state;
    struct compare_block rows[8] = {{0}};
    assert_true(judge_rows_sharing(rows, 8) == 0);
    rows[3].ref2 = 5;
    assert_true(judge_rows_sharing(rows, 8) == 1);
    for (int i = 0; i < 8; i++)
        rows[i].ref2 = 5;
    assert_true(judge_rows_sharing(rows, 8) == 8);
    rows[0].ref2 = 1e6;
    assert_true(judge_rows_sharing(rows, 8) < 1.01);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(infinities_that_may_be),
        cmocka_unit_test(equal_elements_share_their_rounding),
        cmocka_unit_test(correct_output_passes),
        cmocka_unit_test(nan_fails_and_is_named),
        cmocka_unit_test(infinities_must_agree),
        cmocka_unit_test(one_wrong_element_fails),
        cmocka_unit_test(rms_fails_alone),
        cmocka_unit_test(one_block_fails_alone),
        cmocka_unit_test(gain_fails_alone),
        cmocka_unit_test(gain_averages_over_queries),
        cmocka_unit_test(gain_bound_of_one_query),
        cmocka_unit_test(naive_rule_fails_alone),
        cmocka_unit_test(zero_reference_has_a_floor),
        cmocka_unit_test(users_tolerance_is_literal),
        cmocka_unit_test(bounds_are_the_documented_ones),
        cmocka_unit_test(lse_is_bounded_by_dtype),
        cmocka_unit_test(large_logits_in_fp32),
        cmocka_unit_test(equal_weights_in_bf16),
        cmocka_unit_test(equal_weights_stay_below_the_floor),
        cmocka_unit_test(denormals_have_a_floor),
        cmocka_unit_test(rows_that_share_a_norm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
