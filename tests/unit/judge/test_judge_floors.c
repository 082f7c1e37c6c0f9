/* Floors of cmd/judge/judge.c for 16 bits: of logits that tensor cores sum, and the unit of rule 5 of a tensor near
 * zero. */
#include "tests/unit/unit_help.h"

#include "cmd/base/numbers.h"
#include "cmd/judge/judge.h"
#include "reference/compare.h"

static struct judge_bounds bounds_of(enum problem_tensor tensor, enum attn_dtype dtype, bool doubled)
{
    const enum attn_mode mode = tensor == TENSOR_O || tensor == TENSOR_LSE ? ATTN_FWD : ATTN_BWD;
    return judge_bounds_for(tensor, dtype, mode, doubled, NAN, NAN, 0.1);
}

/* Nothing is wider at logits of 10 but the unit of rule 5, by 2 %. */
static void small_logits_move_nothing(void **state)
{
    (void)state;
    for (enum attn_dtype dtype = ATTN_FP16; dtype <= ATTN_BF16; dtype++) {
        const struct judge_bounds before = bounds_of(TENSOR_DV, dtype, false);
        struct judge_bounds b = before, lse = bounds_of(TENSOR_LSE, dtype, false);
        judge_floor_of_logits(&b, TENSOR_DV, dtype, false, 128, 10, 0);
        assert_true(b.ulp > before.ulp && b.ulp < 1.02 * before.ulp);
        b.ulp = before.ulp;
        assert_memory_equal(&b, &before, sizeof b);
        judge_floor_of_logits(&lse, TENSOR_LSE, dtype, false, 256, 240, 0);
        assert_true(lse.atol_absolute == 1e-3);
    }
}

/* At logits of 2000 and head_dim 192: 24 units of 2^-23 at most, half of them on average. */
static void large_logits_in_16_bits(void **state)
{
    (void)state;
    const double error = 24 * 0x1p-23 * 2000;
    const struct judge_bounds before = bounds_of(TENSOR_DV, ATTN_FP16, false);
    struct judge_bounds b = before;
    judge_floor_of_logits(&b, TENSOR_DV, ATTN_FP16, false, 192, 2000, 0);
    assert_true(b.rms == error / 2 && b.block_rms == error && b.gain == error / 2 && b.ulp == before.ulp + error);
    assert_true(b.gain < 5e-3); /* a fault of 1 % is found */
    assert_true(b.rtol == before.rtol && b.atol_rms == before.atol_rms && b.norm_abs == before.norm_abs);
    struct judge_bounds bf16 = bounds_of(TENSOR_DV, ATTN_BF16, false);
    judge_floor_of_logits(&bf16, TENSOR_DV, ATTN_BF16, false, 192, 2000, 0);
    assert_true(bf16.rms == 8e-3 && bf16.gain == error / 2); /* the larger one */
    struct judge_bounds naive = bounds_of(TENSOR_DV, ATTN_FP16, true);
    judge_floor_of_logits(&naive, TENSOR_DV, ATTN_FP16, true, 192, 2000, 0);
    assert_true(naive.rms == error);
    struct judge_bounds lse = bounds_of(TENSOR_LSE, ATTN_BF16, false);
    judge_floor_of_logits(&lse, TENSOR_LSE, ATTN_BF16, false, 192, 2000, 0);
    assert_true(lse.atol_absolute == 26 * 0x1p-23 * 2000); /* rounded twice more */
    assert_true(lse.rtol == 0 && lse.rms == 0 && lse.ulp == 0);
}

/* A term that is most of an element has the relative error of its P, which the product over absolute values does not
 * hold: dQ, dK and dBias in fp32, by six deviations, dBias in 16 bits, by all that is cut off. dV and, in 16 bits, dQ
 * and dK, whose product holds it, do not move. */
static void large_logits_in_one_term(void **state)
{
    (void)state;
    const struct judge_bounds fp32 = bounds_of(TENSOR_DK, ATTN_FP32, false);
    struct judge_bounds dk = fp32, dq = bounds_of(TENSOR_DQ, ATTN_FP32, true);
    judge_floor_of_logits(&dk, TENSOR_DK, ATTN_FP32, false, 192, 20000, 0); /* sqrt(192 / 12) = 4 */
    assert_true(dk.rtol == fp32.rtol + 6 * 0x1p-23 * 4 * 20000);
    judge_floor_of_logits(&dq, TENSOR_DQ, ATTN_FP32, true, 192, 20000, 0);
    assert_true(dq.rtol == 2 * fp32.rtol + 2 * 6 * 0x1p-23 * 4 * 20000);
    struct judge_bounds dbias = bounds_of(TENSOR_DBIAS, ATTN_FP32, false);
    judge_floor_of_logits(&dbias, TENSOR_DBIAS, ATTN_FP32, false, 192, 20000, 0);
    assert_true(dbias.rtol == fp32.rtol + 6 * 0x1p-23 * 4 * 20000);
    dk = fp32;
    judge_floor_of_logits(&dk, TENSOR_DK, ATTN_FP32, false, 192, 8, 0); /* ordinary logits */
    assert_true(dk.rtol < 1.25 * fp32.rtol);
    const struct judge_bounds bf16 = bounds_of(TENSOR_DK, ATTN_BF16, false);
    dk = bf16;
    judge_floor_of_logits(&dk, TENSOR_DK, ATTN_BF16, false, 192, 8, 0);
    assert_true(dk.rtol == bf16.rtol);
    judge_floor_of_logits(&dk, TENSOR_DK, ATTN_BF16, false, 192, 20000, 300); /* the product holds it */
    assert_true(dk.rtol == bf16.rtol && dk.atol_element == bf16.atol_element && dk.ulp_abs == bf16.ulp_abs);
    assert_true(dk.rms == bf16.rms && dk.block_rms == bf16.block_rms && dk.norm_abs == bf16.norm_abs);
    assert_true(dk.gain == 24 * 0x1p-23 * 10000);
    dk = bf16;
    judge_floor_of_logits(&dk, TENSOR_DK, ATTN_BF16, false, 192, 300, 20000); /* but not that of the softcap */
    assert_true(dk.rtol == bf16.rtol + 24 * 0x1p-23 * 20000);
    dbias = bounds_of(TENSOR_DBIAS, ATTN_BF16, false);
    judge_floor_of_logits(&dbias, TENSOR_DBIAS, ATTN_BF16, false, 192, 20000, 0);
    assert_true(dbias.rtol == bf16.rtol + 24 * 0x1p-23 * 20000);
    struct judge_bounds dv = bounds_of(TENSOR_DV, ATTN_FP32, false);
    judge_floor_of_logits(&dv, TENSOR_DV, ATTN_FP32, false, 192, 20000, 0);
    assert_true(dv.rtol == fp32.rtol);
}

/* Sums of 13 bits: (64 / 8 + 2) / 8192 of the logits, which LSE is ln(1024) above at most, and 64 / 2 + 2 of them where
 * they are far above 2 ln(1024), so that one key has nearly all of P. At usual logits O has what it had, and LSE of
 * 1024 and 16384 keys, 7.5 and 10.3, about 0.002: that of a scale which is 0.2 % too large. */
static void large_logits_in_8_bits(void **state)
{
    (void)state;
    struct judge_bounds o = bounds_of(TENSOR_O, ATTN_BF16, false), lse = bounds_of(TENSOR_LSE, ATTN_BF16, false);
    judge_rounded_p(&o, ATTN_E4M3, false, NAN);
    const struct judge_bounds o_before = o, lse_before = lse;
    judge_floor_of_8_bits(&o, TENSOR_O, 64, 1024, 7.5, 0);
    judge_floor_of_8_bits(&o, TENSOR_O, 128, 16384, 10.3, 0);
    judge_floor_of_8_bits(&lse, TENSOR_LSE, 64, 1024, log(1024), 0); /* all keys alike */
    assert_memory_equal(&o, &o_before, sizeof o);
    assert_memory_equal(&lse, &lse_before, sizeof lse);
    judge_floor_of_8_bits(&lse, TENSOR_LSE, 64, 1024, log(1024), 0x1p-4);
    assert_memory_equal(&lse, &lse_before, sizeof lse);
    judge_floor_of_8_bits(&o, TENSOR_O, 64, 1024, 7.5, 0x1p-4); /* outliers of V */
    assert_true(o.rtol == 0x1p-4);
    o.rtol = o_before.rtol;
    assert_memory_equal(&o, &o_before, sizeof o);
    judge_floor_of_8_bits(&lse, TENSOR_LSE, 64, 1024, 7.5, 0);
    assert_true(lse.atol_absolute > 1e-3 && lse.atol_absolute < 2e-3);
    lse = lse_before;
    judge_floor_of_8_bits(&lse, TENSOR_LSE, 128, 16384, 10.3, 0);
    assert_true(lse.atol_absolute > 1e-3 && lse.atol_absolute < 2.5e-3);
    lse = lse_before;
    /* One key has nearly all of P: half a unit of each product. */
    const double error = 10 * 0x1p-13 * (1000 - log(1024)) + 24 * 0x1p-13 * (1000 - 2 * log(1024));
    judge_floor_of_8_bits(&lse, TENSOR_LSE, 64, 1024, 1000, 0);
    judge_floor_of_8_bits(&o, TENSOR_O, 64, 1024, 1000, 0);
    assert_true(fabs(lse.atol_absolute - 1e-3 - error) < 1e-12 && lse.rtol == 0 && lse.rms == 0);
    assert_true(fabs(o.atol_element - error) < 1e-12 && o.rms == 0.045 && o.block_rms == 0.09);
    assert_true(o.gain == 0x1p-12 * (1000 - log(1024)));
    assert_true(o.atol_rms == o_before.atol_rms && o.rtol == o_before.rtol && o.ulp == 0);
}

/* 1 / 0.9 is 1.1111, in bf16 1.1094; 1 / 0.5 is exact in every type. */
static void dropout_where_one_key_has_all(void **state)
{
    (void)state;
    const struct judge_bounds bf16 = bounds_of(TENSOR_O, ATTN_BF16, false);
    struct judge_bounds o = bf16, dv = bounds_of(TENSOR_DV, ATTN_BF16, false),
                        dq = bounds_of(TENSOR_DQ, ATTN_BF16, false);
    struct judge_bounds half = bf16, fp16 = bounds_of(TENSOR_O, ATTN_FP16, false);
    judge_floor_of_dropout(&o, TENSOR_O, ATTN_BF16, 0.1);
    judge_floor_of_dropout(&dv, TENSOR_DV, ATTN_BF16, 0.1);
    assert_true(fabs(o.gain - 1.5625e-3) < 1e-6 && dv.gain == o.gain);
    assert_true(o.rms == bf16.rms && o.rtol == bf16.rtol);
    judge_floor_of_dropout(&dq, TENSOR_DQ, ATTN_BF16, 0.1);
    judge_floor_of_dropout(&half, TENSOR_O, ATTN_BF16, 0.5);
    judge_floor_of_dropout(&fp16, TENSOR_O, ATTN_FP16, 0.1); /* 2e-4 is within the bound */
    assert_true(dq.gain == bf16.gain && half.gain == bf16.gain && fp16.gain == bf16.gain);
}

enum { BLOCKS = 4, DIM = 64, LEN = BLOCKS * COMPARE_BLOCK_ROWS };

/* The verdict on a dQ of zero of which each block has products of 1, the last one also one of `product`, and where the
 * largest error in block `at` is `error`; naive has none. */
static struct record_tensor near_zero(float product, int at, float error)
{
    struct compare_block blocks[BLOCKS];
    memset(blocks, 0, sizeof blocks);
    for (int n = 0; n < BLOCKS; n++) {
        blocks[n].max_used_at = blocks[n].first_bad_row = blocks[n].last_bad_row = blocks[n].first_nonfinite_at = -1;
        blocks[n].abs2 = COMPARE_BLOCK_ROWS * DIM;
        blocks[n].max_abs_product = n == BLOCKS - 1 ? product : 1;
    }
    blocks[at].max_abs_err = blocks[at].max_abs_x = error;
    blocks[at].err2 = (double)error * (double)error;
    blocks[at].max_used_at = 0;
    const struct judge_input in = {.tensor = TENSOR_DQ,
                                   .blocks = blocks,
                                   .batch = 1,
                                   .heads = 1,
                                   .len = LEN,
                                   .head_dim = DIM,
                                   .independent_rows = LEN,
                                   .naive_max_abs_err = 0,
                                   .bounds = bounds_of(TENSOR_DQ, ATTN_FP16, false)};
    struct record_tensor verdict;
    judge_tensor(&in, &verdict);
    return verdict;
}

/* Where a block has a product of 50, errors of two eps of it are rounding, but not in the other blocks. */
static void rule_5_has_the_unit_of_a_block(void **state)
{
    (void)state;
    const float eps = 0x1p-10f;
    assert_true(near_zero(1, BLOCKS - 1, 3.9f * eps).used <= 1); /* four eps of the mean of all */
    assert_true(near_zero(1, BLOCKS - 1, 4.1f * eps).used > 1);
    assert_true(near_zero(50, BLOCKS - 1, 99 * eps).used <= 1);
    assert_true(near_zero(50, BLOCKS - 1, 101 * eps).used > 1);
    const struct record_tensor elsewhere = near_zero(50, 1, 99 * eps);
    assert_true(elsewhere.used > 20);
    assert_string_equal(elsewhere.rule, "naive");
    assert_string_equal(elsewhere.worst, "dq[0,0,64,0]");
}

/* ---- dSink ---- */

enum { SINK_ROWS = 30, SINK_COLUMNS = 8, SINK_HEADS = 4 };

static uint64_t drawn;

static double uniform(void) { return ldexp((double)(number_mix(drawn += NUMBER_MIX_STEP) >> 12) + 0.5, -52); }

static double normal(void) { return sqrt(-2 * log(uniform())) * cos(2 * 3.141592653589793 * uniform()); }

/* dSink of one head whose rows all have the same O, as inputs that rise have them, from that O in bf16 as a kernel gets
 * it, and the reference. Rows of `weight` times what they are. */
static void one_sink(double weight, float *x, float *ref, float *product)
{
    double o[SINK_COLUMNS], got = 0, want = 0, squares = 0;
    for (int c = 0; c < SINK_COLUMNS; c++)
        o[c] = normal();
    for (int row = 0; row < SINK_ROWS; row++) {
        const double share = weight * (0.2 + 0.1 * uniform());
        for (int c = 0; c < SINK_COLUMNS; c++) {
            const double dout = normal(), term = share * dout * o[c];
            got -= share * dout * (double)compare_rounded((float)o[c], ATTN_BF16);
            want -= term;
            squares += term * term;
        }
    }
    *x = (float)got;
    *ref = (float)want;
    *product = (float)sqrt(squares);
}

/* Of `heads` heads, all but the first with rows of weight `others`. factor: of the result. *eps_off: what all are off,
 * in eps of their products. */
static struct record_tensor sink_verdict(int heads, double others, float factor, double *eps_off)
{
    float x[SINK_HEADS], ref[SINK_HEADS], product[SINK_HEADS];
    struct compare_block blocks[SINK_HEADS];
    double err2 = 0, abs2 = 0, ref2 = 0;
    for (int h = 0; h < heads; h++) {
        one_sink(h == 0 ? 1 : others, &x[h], &ref[h], &product[h]);
        x[h] *= factor;
        err2 += ((double)x[h] - (double)ref[h]) * ((double)x[h] - (double)ref[h]);
        abs2 += (double)product[h] * (double)product[h];
        ref2 += (double)ref[h] * (double)ref[h];
    }
    struct judge_input in = {
        .tensor = TENSOR_DSINK,
        .blocks = blocks,
        .batch = 1,
        .heads = heads,
        .len = 1,
        .head_dim = 1,
        .independent_rows = heads,
        .naive_max_abs_err = NAN,
        .bounds = judge_bounds_for(TENSOR_DSINK, ATTN_BF16, ATTN_BWD, false, NAN, NAN, sqrt(ref2 / heads))};
    judge_floor_of_sums(&in.bounds, TENSOR_DSINK, ATTN_BF16, false, SINK_COLUMNS, 1);
    const struct compare_job job = {.x = {x, heads, 1, 1},
                                    .dtype = ATTN_FP32,
                                    .ref = ref,
                                    .abs = product,
                                    .batch = 1,
                                    .heads = heads,
                                    .len = 1,
                                    .head_dim = 1,
                                    .atol_absolute = in.bounds.atol_absolute,
                                    .atol_element = in.bounds.atol_element,
                                    .atol_rms = in.bounds.atol_rms,
                                    .atol_abs = in.bounds.atol_abs,
                                    .rtol = in.bounds.rtol};
    struct record_tensor verdict;
    compare_blocks_cpu(&job, blocks, 1);
    judge_tensor(&in, &verdict);
    *eps_off = sqrt(err2 / abs2) * 0x1p7;
    return verdict;
}

/* The error of a norm of one element is above eps of its product in some of 20,000, and within the bounds; so where one
 * of several heads has nearly all of it. A result that is a tenth too large is found. */
static void sinks_of_few_heads(void **state)
{
    static const struct {
        int heads;
        double others;
    } cases[] = {{1, 0}, {2, 1}, {SINK_HEADS, 0.01}, {SINK_HEADS, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double most_used = 0, most_eps = 0, off = 0;
        int found = 0;
        drawn = i;
        for (int n = 0; n < 20000; n++) {
            most_used = fmax(most_used, sink_verdict(cases[i].heads, cases[i].others, 1, &off).used);
            most_eps = fmax(most_eps, off);
        }
        for (int n = 0; n < 1000; n++)
            found += sink_verdict(cases[i].heads, cases[i].others, 1.1f, &off).used > 1;
        if (!(most_used > 0.3 && most_used <= 0.85 && (most_eps > 1 || cases[i].heads > 1) && found > 700))
            fail_msg("%d heads, %g: at most %.3g of a bound, %.3g eps; %d of 1000 wrong ones found", cases[i].heads,
                     cases[i].others, most_used, most_eps, found);
    }
}

/* Not for O, dV and fp32, and whatever tolerances a user gave. */
static void the_unit_is_of_dq_and_dk(void **state)
{
    (void)state;
    assert_true(bounds_of(TENSOR_DV, ATTN_FP16, false).ulp_abs == 0 &&
                bounds_of(TENSOR_O, ATTN_BF16, false).ulp_abs == 0);
    assert_true(bounds_of(TENSOR_DK, ATTN_FP32, false).ulp_abs == 0);
    const struct judge_bounds mine = judge_bounds_for(TENSOR_DK, ATTN_BF16, ATTN_BWD, false, 1e-9, 0, 0.1);
    assert_true(mine.ulp_abs == 2 * 0x1p-7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_logits_move_nothing),      cmocka_unit_test(large_logits_in_16_bits),
        cmocka_unit_test(dropout_where_one_key_has_all),  cmocka_unit_test(large_logits_in_one_term),
        cmocka_unit_test(rule_5_has_the_unit_of_a_block), cmocka_unit_test(the_unit_is_of_dq_and_dk),
        cmocka_unit_test(large_logits_in_8_bits),         cmocka_unit_test(sinks_of_few_heads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
