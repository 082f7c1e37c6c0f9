/* Inputs on the host: the distributions, the pinned bits, strides, and the 16-bit conversions against arithmetic that
 * is written independently (ldexp and nearbyint instead of bit shifts). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/common/small_floats.h"
#include "reference/harness/fill.h"

static float table[FILL_TABLE_SIZE];

static uint64_t hash_of(const void *data, size_t bytes)
{
    uint64_t hash = 1469598103934665603u; /* FNV-1a */
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    return hash;
}

static void normal_table_has_these_bits_everywhere(void **state)
{
    (void)state;
    float gain;
    fill_table(FILL_NORMAL, FILL_Q, table, &gain);
    assert_true(gain == 1.0f);
    assert_true(hash_of(table, sizeof table) == 0x47bd2d076b1e678fu); /* little-endian; equal to Python's inv_cdf */
}

static void normal_table_inverts_the_distribution(void **state)
{
    (void)state;
    float gain;
    fill_table(FILL_NORMAL, FILL_K, table, &gain);
    double sum = 0, sum2 = 0;
    for (int i = 0; i < FILL_TABLE_SIZE; i++) {
        const double x = (double)table[i], p = 0.5 * erfc(-x / sqrt(2.0));
        const double density = exp(-0.5 * x * x) / 2.5066282746310002;
        /* rounding the quantile to float moves p by the density times half an ulp */
        const double room = density * fabs(x) * 6e-8 + 1e-15;
        assert_true(fabs(p - (i + 0.5) / FILL_TABLE_SIZE) <= room);
        sum += x;
        sum2 += x * x;
    }
    assert_true(sum == 0);
    assert_true(fabs(sum2 / FILL_TABLE_SIZE - 1) < 5e-5);
}

static void distributions_and_gains(void **state)
{
    (void)state;
    float gain;
    fill_table(FILL_UNIFORM, FILL_V, table, &gain);
    assert_true(gain == 1.0f && table[0] == -1.0f && table[32768] == 0.0f && table[65535] == 1.0f - 0x1p-15f);
    fill_table(FILL_ZEROS, FILL_Q, table, &gain);
    for (int i = 0; i < FILL_TABLE_SIZE; i++)
        assert_true(gain * table[i] == 0.0f);
    fill_table(FILL_CONSTANT, FILL_V, table, &gain);
    for (int i = 0; i < FILL_TABLE_SIZE; i++)
        assert_true(gain * table[i] == 1.0f);
    const struct {
        enum fill_dist dist;
        enum fill_tensor tensor;
        float gain;
    } normal[] = {{FILL_CONSTANT, FILL_Q, 1},    {FILL_CONSTANT, FILL_DO, 1},    {FILL_SHARP, FILL_Q, 8},
                  {FILL_SHARP, FILL_K, 1},       {FILL_HUGE, FILL_Q, 256},       {FILL_HUGE, FILL_V, 1},
                  {FILL_TINY, FILL_Q, 0x1p-20f}, {FILL_TINY, FILL_DO, 0x1p-20f}, {FILL_NORMAL, FILL_GEMM, 1}};
    for (size_t i = 0; i < sizeof normal / sizeof *normal; i++) {
        fill_table(normal[i].dist, normal[i].tensor, table, &gain);
        assert_true(gain == normal[i].gain);
        assert_true(hash_of(table, sizeof table) == 0x47bd2d076b1e678fu);
    }
}

static struct attn_tensor tensor_of(void *data, int64_t heads, int64_t len, int64_t d, enum attn_layout layout)
{
    if (layout == ATTN_BSHD)
        return (struct attn_tensor){data, heads * len * d, d, heads * d};
    return (struct attn_tensor){data, heads * len * d, len * d, d};
}

static void filled_tensor_has_the_moments_of_its_distribution(void **state)
{
    (void)state;
    enum { HEADS = 4, LEN = 256, D = 64, COUNT = 2 * HEADS * LEN * D };
    float *data = malloc(COUNT * sizeof *data), gain;
    assert_non_null(data);
    fill_table(FILL_SHARP, FILL_Q, table, &gain);
    fill_tensor_host(tensor_of(data, HEADS, LEN, D, ATTN_BHSD), ATTN_FP32, 2, HEADS, LEN, D, 7, FILL_Q, table, gain);
    double sum = 0, sum2 = 0, sum4 = 0, neighbours = 0;
    int inside = 0;
    for (int i = 0; i < COUNT; i++) {
        const double x = (double)data[i] / 8;
        sum += x;
        sum2 += x * x;
        sum4 += x * x * x * x;
        neighbours += i ? x * (double)data[i - 1] / 8 : 0;
        inside += fabs(x) < 1;
    }
    /* each within 5 standard deviations of a sample of 131072 */
    assert_true(fabs(sum / COUNT) < 5 / sqrt(COUNT));
    assert_true(fabs(sum2 / COUNT - 1) < 5 * sqrt(2.0 / COUNT));
    assert_true(fabs(sum4 / COUNT - 3) < 5 * sqrt(96.0 / COUNT));
    assert_true(fabs(neighbours / COUNT) < 5 / sqrt(COUNT));
    assert_true(fabs((double)inside / COUNT - 0.682689) < 5 * sqrt(0.2167 / COUNT));
    free(data);
}

static void element_depends_on_seed_tensor_and_index_alone(void **state)
{
    (void)state;
    enum { BATCH = 2, HEADS = 3, LEN = 5, D = 8, COUNT = BATCH * HEADS * LEN * D, GAP = 11 };
    float a[COUNT], b[COUNT], other_seed[COUNT], other_tensor[COUNT], wide[BATCH * LEN * (HEADS * D + GAP)], gain;
    fill_table(FILL_NORMAL, FILL_Q, table, &gain);
    fill_tensor_host(tensor_of(a, HEADS, LEN, D, ATTN_BHSD), ATTN_FP32, BATCH, HEADS, LEN, D, 1, FILL_Q, table, gain);
    fill_tensor_host(tensor_of(b, HEADS, LEN, D, ATTN_BSHD), ATTN_FP32, BATCH, HEADS, LEN, D, 1, FILL_Q, table, gain);
    fill_tensor_host(tensor_of(other_seed, HEADS, LEN, D, ATTN_BHSD), ATTN_FP32, BATCH, HEADS, LEN, D, 2, FILL_Q, table,
                     gain);
    fill_tensor_host(tensor_of(other_tensor, HEADS, LEN, D, ATTN_BHSD), ATTN_FP32, BATCH, HEADS, LEN, D, 1, FILL_K,
                     table, gain);
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        wide[i] = 12345.0f;
    const struct attn_tensor strided = {wide, LEN * (HEADS * D + GAP), D, HEADS * D + GAP};
    fill_tensor_host(strided, ATTN_FP32, BATCH, HEADS, LEN, D, 1, FILL_Q, table, gain);
    int same_seed = 0, same_tensor = 0, untouched = 0;
    for (int n = 0; n < BATCH; n++)
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < LEN; i++)
                for (int c = 0; c < D; c++) {
                    const int index = ((n * HEADS + h) * LEN + i) * D + c;
                    assert_true(a[index] == table[fill_random16(1, FILL_Q, (uint64_t)index)]);
                    assert_true(a[index] == b[((n * LEN + i) * HEADS + h) * D + c]);
                    assert_true(a[index] == wide[(n * LEN + i) * (HEADS * D + GAP) + h * D + c]);
                    same_seed += a[index] == other_seed[index];
                    same_tensor += a[index] == other_tensor[index];
                }
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        untouched += wide[i] == 12345.0f;
    assert_int_equal(untouched, BATCH * LEN * GAP);
    assert_true(same_seed < 4 && same_tensor < 4);
    assert_int_equal(fill_random16(0, 0, 0), 0);                               /* the finaliser of 0 */
    assert_int_equal(fill_random16(42, FILL_V, UINT64_C(5000000000)), 0x44f3); /* these two: computed in Python */
    assert_int_equal(fill_random16(UINT64_MAX, FILL_DO, UINT64_C(8589934599)), 0xcdb6);
}

static void fill_rounds_what_it_stores(void **state)
{
    (void)state;
    enum { LEN = 64, D = 32 };
    float exact[LEN * D], gain;
    uint16_t half[LEN * D], brain[LEN * D];
    fill_table(FILL_TINY, FILL_V, table, &gain);
    fill_tensor_host(tensor_of(exact, 1, LEN, D, ATTN_BHSD), ATTN_FP32, 1, 1, LEN, D, 3, FILL_V, table, gain);
    fill_tensor_host(tensor_of(half, 1, LEN, D, ATTN_BHSD), ATTN_FP16, 1, 1, LEN, D, 3, FILL_V, table, gain);
    fill_tensor_host(tensor_of(brain, 1, LEN, D, ATTN_BHSD), ATTN_BF16, 1, 1, LEN, D, 3, FILL_V, table, gain);
    int nonzero = 0;
    for (int i = 0; i < LEN * D; i++) {
        assert_int_equal(half[i], attn_to_fp16(exact[i]));
        assert_int_equal(brain[i], attn_to_bf16(exact[i]));
        assert_true(fabs((double)fill_load(half, ATTN_FP16, i) - (double)exact[i]) <= 0x1p-25);
        assert_true(fabs((double)fill_load(brain, ATTN_BF16, i) - (double)exact[i]) <= 0x1p-8 * fabs((double)exact[i]));
        nonzero += (half[i] & 0x7fff) != 0;
    }
    assert_true(nonzero > LEN * D / 2); /* 2^-20 times normal is denormal in fp16, not zero */
}

/* What the formats are, by arithmetic. */
static double value_of(uint16_t bits, int exponent_bits, int mantissa_bits)
{
    const int bias = (1 << (exponent_bits - 1)) - 1, exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1)
        return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

/* x rounded to nearest even in a format with `precision` bits and the given smallest exponent; infinity from `limit`.
 * */
static double rounded(double x, int precision, int least, double limit)
{
    if (x == 0 || !isfinite(x))
        return x;
    int exponent = ilogb(x);
    exponent = exponent < least ? least : exponent;
    const double unit = ldexp(1, exponent - precision + 1), nearest = nearbyint(x / unit) * unit;
    return fabs(nearest) >= limit ? copysign(INFINITY, x) : nearest;
}

static void every_16_bit_pattern_survives(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        const uint16_t bits = (uint16_t)i;
        const float half = attn_from_fp16(bits), brain = attn_from_bf16(bits);
        const double half_value = value_of(bits, 5, 10), brain_value = value_of(bits, 8, 7);
        if (isnan(half_value)) {
            assert_true(isnan(half) && isnan(attn_from_fp16(attn_to_fp16(half))));
        } else {
            assert_true((double)half == half_value && !signbit(half) == !(bits & 0x8000));
            assert_int_equal(attn_to_fp16(half), bits);
        }
        if (isnan(brain_value)) {
            assert_true(isnan(brain) && isnan(attn_from_bf16(attn_to_bf16(brain))));
        } else {
            assert_true((double)brain == brain_value && !signbit(brain) == !(bits & 0x8000));
            assert_int_equal(attn_to_bf16(brain), bits);
        }
    }
}

static void check_rounding(float x)
{
    const double half = rounded((double)x, 11, -14, 65536), brain = rounded((double)x, 8, -126, ldexp(1, 128));
    assert_true((double)attn_from_fp16(attn_to_fp16(x)) == half);
    assert_true((double)attn_from_bf16(attn_to_bf16(x)) == brain);
    assert_true(!signbit(attn_from_fp16(attn_to_fp16(x))) == !signbit(x));
}

static void rounding_is_to_nearest_even(void **state)
{
    (void)state;
    /* Every tie between neighbours of both formats, and the floats on both sides of it. */
    for (uint32_t i = 0; i < 0x7c00; i++) {
        const double above = i == 0x7bff ? 65536 : value_of((uint16_t)(i + 1), 5, 10);
        const double half_tie = 0.5 * (value_of((uint16_t)i, 5, 10) + above);
        const float tie = (float)half_tie;
        assert_true((double)tie == half_tie);
        check_rounding(tie);
        check_rounding(-tie);
        check_rounding(nextafterf(tie, 0));
        check_rounding(nextafterf(tie, INFINITY));
    }
    for (uint32_t i = 0; i < 0x7f80; i++) {
        uint32_t bits = (i << 16) | 0x8000u;
        float tie;
        memcpy(&tie, &bits, sizeof tie);
        check_rounding(tie);
        check_rounding(-tie);
        check_rounding(nextafterf(tie, 0));
        check_rounding(nextafterf(tie, INFINITY));
    }
    /* A sample of all floats. */
    for (uint64_t i = 0; i < 2000000; i++) {
        const uint32_t bits = fill_random16(9, 1, 2 * i) << 16 | fill_random16(9, 1, 2 * i + 1);
        float x;
        memcpy(&x, &bits, sizeof x);
        if (isnan(x))
            assert_true(isnan(attn_from_fp16(attn_to_fp16(x))) && isnan(attn_from_bf16(attn_to_bf16(x))));
        else
            check_rounding(x);
    }
    assert_int_equal(attn_to_fp16(65519.0f), 0x7bff);
    assert_int_equal(attn_to_fp16(65520.0f), 0x7c00);
    assert_int_equal(attn_to_fp16(-INFINITY), 0xfc00);
    assert_int_equal(attn_to_bf16(3.4e38f), 0x7f80);
    assert_int_equal(attn_to_bf16(INFINITY), 0x7f80);
}

/* Every code of an 8-bit type is a fixed point; what lies between two codes goes to the nearer, a tie to the even one;
 * beyond the largest everything is the largest. */
static void eight_bits(uint8_t (*to)(float), float (*from)(uint8_t), uint8_t largest, float largest_value)
{
    assert_true(from(largest) == largest_value);
    assert_int_equal(to(largest_value * 1.5f), largest);
    assert_int_equal(to(-INFINITY), 0x80 | largest);
    assert_true(isnan(from(to(NAN))) && isnan(from(0x7f)) && isnan(from(0xff)));
    for (int code = 0; code <= largest; code++) {
        const float x = from((uint8_t)code);
        assert_true(isfinite(x) && to(x) == code && to(-x) == (0x80 | code) && from((uint8_t)(0x80 | code)) == -x);
        if (code == largest)
            continue;
        const float next = from((uint8_t)(code + 1)), tie = 0.5f * (x + next); /* exact: both have few bits */
        assert_true(next > x);
        assert_int_equal(to(tie), code % 2 ? code + 1 : code);
        assert_int_equal(to(nextafterf(tie, 0)), code);
        assert_int_equal(to(nextafterf(tie, INFINITY)), code + 1);
    }
}

static void the_8_bit_types(void **state)
{
    (void)state;
    eight_bits(attn_to_e4m3, attn_from_e4m3, 0x7e, 448);
    eight_bits(attn_to_e5m2, attn_from_e5m2, 0x7b, 57344);
    assert_true(attn_from_e4m3(0x01) == 0x1p-9f && attn_from_e4m3(0x38) == 1 && attn_from_e4m3(0x39) == 1.125f);
    assert_true(attn_from_e5m2(0x01) == 0x1p-16f && attn_from_e5m2(0x3c) == 1 && isinf(attn_from_e5m2(0x7c)));
}

static void load_and_store_count_in_elements(void **state)
{
    (void)state;
    float single[3] = {1, 2, 3};
    uint16_t half[3] = {0, 0, 0};
    fill_store(single, ATTN_FP32, 1, 0.1f);
    assert_true(single[0] == 1 && single[1] == 0.1f && single[2] == 3 && fill_load(single, ATTN_FP32, 1) == 0.1f);
    fill_store(half, ATTN_FP16, 2, 1.5f);
    fill_store(half, ATTN_BF16, 0, -2.0f);
    assert_int_equal(half[0], 0xc000);
    assert_int_equal(half[1], 0);
    assert_int_equal(half[2], 0x3e00);
    assert_true(fill_load(half, ATTN_FP16, 2) == 1.5f && fill_load(half, ATTN_BF16, 0) == -2.0f);
    uint8_t small[3] = {0, 0, 0};
    fill_store(small, ATTN_E4M3, 1, 1.125f);
    fill_store(small, ATTN_E5M2, 2, -1.0f);
    assert_true(small[0] == 0 && small[1] == 0x39 && small[2] == 0xbc);
    assert_true(fill_load(small, ATTN_E4M3, 1) == 1.125f && fill_load(small, ATTN_E5M2, 2) == -1.0f);
}

/* The logits have the standard deviation that was asked for, whatever the scale; 1 is what is drawn, bit for bit. */
static void logits_have_the_deviation(void **state)
{
    (void)state;
    enum { LEN = 128 };
    static const struct {
        enum fill_dist dist;
        int64_t d;
        double scale, logit_std;
    } cases[] = {{FILL_NORMAL, 64, 0.125, 4},
                 {FILL_NORMAL, 128, 0.5, 16},
                 {FILL_UNIFORM, 64, 0.125, 1},
                 {FILL_SHARP, 64, 0.125, 2},
                 {FILL_HUGE, 128, 0.01, 0.25}};
    static float q[LEN * 128], k[LEN * 128];
    float gain;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int64_t d = cases[i].d;
        const struct fill_spec spec = {
            .dist = cases[i].dist, .seed = 5, .logit_std = cases[i].logit_std, .scale = cases[i].scale};
        assert_true(fill_takes_logit_std(cases[i].dist));
        fill_table(cases[i].dist, FILL_K, table, &gain);
        fill_tensor_host(tensor_of(k, 1, LEN, d, ATTN_BHSD), ATTN_FP32, 1, 1, LEN, d, 5, FILL_K, table, gain);
        fill_table(cases[i].dist, FILL_Q, table, &gain);
        fill_tensor_host(tensor_of(q, 1, LEN, d, ATTN_BHSD), ATTN_FP32, 1, 1, LEN, d, 5, FILL_Q, table,
                         fill_logit_gain(&spec, d));
        double sum2 = 0;
        for (int64_t r = 0; r < LEN; r++)
            for (int64_t j = 0; j < LEN; j++) {
                double s = 0;
                for (int64_t c = 0; c < d; c++)
                    s += (double)q[r * d + c] * (double)k[j * d + c];
                sum2 += cases[i].scale * s * cases[i].scale * s;
                assert_true(fabs(cases[i].scale * s) <= fill_largest_logit(&spec, d));
            }
        assert_true(fabs(sqrt(sum2) / LEN / cases[i].logit_std - 1) < 0.03);
    }
    const struct fill_spec as_drawn = {.dist = FILL_NORMAL, .logit_std = 1, .scale = (double)(float)(1 / sqrt(128.0))};
    assert_true(fill_logit_gain(&as_drawn, 128) == 1.0f);
    const struct fill_spec tiny = {.dist = FILL_TINY, .scale = 1}, zeros = {.dist = FILL_ZEROS, .scale = 1};
    const struct fill_spec peak = {.dist = FILL_PEAK, .scale = 1};
    assert_true(fill_largest_logit(&tiny, 256) < 1e-8 && fill_largest_logit(&tiny, 256) > 0);
    assert_true(fill_largest_logit(&zeros, 256) == 0 && isinf(fill_largest_logit(&peak, 64)));
    static const enum fill_dist others[] = {FILL_ZEROS,   FILL_CONSTANT, FILL_TINY,     FILL_PEAK, FILL_RISING,
                                            FILL_FALLING, FILL_OUTLIERS, FILL_CHANNELS, FILL_DRIFT};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_false(fill_takes_logit_std(others[i]));
}

/* K's first column is the ramp, Q's is 8, the rest is what normal inputs are; V and dO too. */
static void ramps_are_in_the_first_columns(void **state)
{
    (void)state;
    enum { LEN = 31, D = 16, COUNT = LEN * D };
    float want[COUNT], got[COUNT], gain;
    for (int falling = 0; falling < 2; falling++)
        for (int t = FILL_Q; t <= FILL_DO; t++) {
            const enum fill_dist dist = falling ? FILL_FALLING : FILL_RISING;
            const struct attn_tensor x = tensor_of(got, 1, LEN, D, ATTN_BHSD);
            fill_table(FILL_NORMAL, (enum fill_tensor)t, table, &gain);
            fill_tensor_host(tensor_of(want, 1, LEN, D, ATTN_BHSD), ATTN_FP32, 1, 1, LEN, D, 9, (enum fill_tensor)t,
                             table, gain);
            fill_table(dist, (enum fill_tensor)t, table, &gain);
            fill_tensor_host(x, ATTN_FP32, 1, 1, LEN, D, 9, (enum fill_tensor)t, table, gain);
            fill_first_column_host(x, ATTN_FP32, 1, 1, LEN,
                                   fill_first_column(&(struct fill_spec){.dist = dist}, (enum fill_tensor)t, D));
            for (int row = 0; row < LEN; row++) {
                if (t == FILL_Q)
                    want[row * D] = 8;
                if (t == FILL_K) /* 60 sqrt(16) / 8 = 30, and 30 steps */
                    want[row * D] = (float)(falling ? LEN - 1 - row : row);
            }
            assert_memory_equal(want, got, sizeof want);
        }
    const struct fill_column one_key = fill_first_column(&(struct fill_spec){.dist = FILL_RISING}, FILL_K, D);
    assert_true(fill_column_value(one_key, 0, 1) == 0.0f);
}

/* What the three kinds of stretched inputs promise of each tensor, element by element beside the normal inputs. */
static void stretched_inputs(void **state)
{
    (void)state;
    enum { HEADS = 2, LEN = 50, D = 40, COUNT = 2 * HEADS * LEN * D };
    static float normal[COUNT], got[COUNT];
    static const struct {
        enum fill_dist dist;
        bool is_stretched[3]; /* Q, K, V */
    } kinds[] = {
        {FILL_OUTLIERS, {true, true, true}}, {FILL_CHANNELS, {true, true, false}}, {FILL_DRIFT, {false, true, true}}};
    float gain;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (int t = FILL_Q; t <= FILL_DO; t++) {
            const enum fill_tensor id = (enum fill_tensor)t;
            const struct attn_tensor x = tensor_of(got, HEADS, LEN, D, ATTN_BSHD);
            fill_table(kinds[k].dist, id, table, &gain);
            fill_tensor_host(tensor_of(normal, HEADS, LEN, D, ATTN_BHSD), ATTN_FP32, 2, HEADS, LEN, D, 9, id, table,
                             gain);
            fill_tensor_host(x, ATTN_FP32, 2, HEADS, LEN, D, 9, id, table, gain);
            fill_stretch_host(x, ATTN_FP32, 2, HEADS, LEN, D, 9, id, fill_stretch_of(kinds[k].dist, id));
            int64_t outliers = 0;
            for (int64_t i = 0; i < COUNT; i++) {
                const int64_t col = i % D, row = i / D % LEN, head = i / D / LEN;
                const float before = normal[i];
                const float after =
                    got[head / HEADS * x.stride_batch + head % HEADS * x.stride_head + row * x.stride_row + col];
                float factor = 1;
                if (t <= FILL_V && kinds[k].is_stretched[t - FILL_Q])
                    factor = k == 1            ? (col == 7 || col == 39 ? 20.0f : 1.0f)
                             : k == 2          ? (float)((49.0 + 7 * (double)row) / 49)
                             : after == before ? 1.0f
                                               : sqrtf(101);
                outliers += k == 0 && factor > 1;
                assert_true(after == factor * before);
            }
            if (k == 0) /* 66 of 65536 of 8000 are 8 */
                assert_true(t > FILL_V ? outliers == 0 : outliers >= 1 && outliers <= 20);
        }
    uint64_t count = 0;
    for (uint64_t i = 0; i < 1000000; i++)
        count += fill_stretch_factor(FILL_STRETCH_OUTLIERS, 3, FILL_K, i, 0, 1, 0) > 1;
    assert_true(count > 900 && count < 1120); /* 1007 and four deviations */
    assert_true(fill_stretch_factor(FILL_STRETCH_ROWS, 1, FILL_K, 0, 99, 100, 0) == 8.0f);
    assert_true(fill_stretch_factor(FILL_STRETCH_ROWS, 1, FILL_K, 0, 0, 1, 0) == 1.0f); /* a single key */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_have_the_deviation),
        cmocka_unit_test(ramps_are_in_the_first_columns),
        cmocka_unit_test(stretched_inputs),
        cmocka_unit_test(normal_table_has_these_bits_everywhere),
        cmocka_unit_test(normal_table_inverts_the_distribution),
        cmocka_unit_test(distributions_and_gains),
        cmocka_unit_test(filled_tensor_has_the_moments_of_its_distribution),
        cmocka_unit_test(element_depends_on_seed_tensor_and_index_alone),
        cmocka_unit_test(fill_rounds_what_it_stores),
        cmocka_unit_test(every_16_bit_pattern_survives),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(the_8_bit_types),
        cmocka_unit_test(load_and_store_count_in_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
