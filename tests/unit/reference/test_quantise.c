/* Quantising: exact values, scales of each kind in their places, saturation, ties, denormals, the rotation. And
 * reference/elements.h and lengths.h: what the CUDA code of the reference and of naive computes on the device, here on
 * the host. */
#include "tests/unit/unit_help.h"

#include "kernels/common/small_floats.h"
#include "reference/elements.h"
#include "reference/harness/fill.h"
#include "reference/harness/quantise.h"
#include "reference/lengths.h"
#include "tests/unit/reference/family.h"

/* One query head, one sequence, in fp32. */
static struct attn_problem small(int64_t rows, int64_t head_dim, enum attn_dtype dtype)
{
    return (struct attn_problem){.batch = 1,
                                 .q_heads = 1,
                                 .kv_heads = 1,
                                 .q_len = rows,
                                 .kv_len = rows,
                                 .head_dim = head_dim,
                                 .dtype = dtype,
                                 .out_dtype = ATTN_BF16,
                                 .quant_scale = ATTN_SCALE_TENSOR};
}

static struct quantise_job job_of(const struct attn_problem *p, enum quantised tensor, float *from, uint8_t *to,
                                  float *scales)
{
    const int64_t heads = tensor == QUANTISED_Q ? p->q_heads : p->kv_heads;
    const int64_t len = tensor == QUANTISED_Q ? p->q_len : p->kv_len, d = p->head_dim;
    const struct attn_tensor shape = {NULL, heads * len * d, len * d, d};
    struct quantise_job job = {
        .problem = p, .tensor = tensor, .from = shape, .from_dtype = ATTN_FP32, .to = shape, .scales = scales};
    job.from.data = from;
    job.to.data = to;
    return job;
}

static void exact_values(void **state)
{
    (void)state;
    /* The largest is 448, so that the scale is 1: ties go to the even code, denormals stay, small ones become 0. */
    float from[8] = {448, -17, 17, 19, 0x1p-9f, -0x1p-10f, 0x1.8p-9f, 0.3f};
    const float want[8] = {448, -16, 16, 20, 0x1p-9f, -0.0f, 0x1p-8f, 0.3125f};
    const struct attn_problem p = small(1, 8, ATTN_E4M3);
    uint8_t to[8];
    float scale;
    const struct quantise_job job = job_of(&p, QUANTISED_K, from, to, &scale);
    quantise(&job, 1);
    assert_true(scale == 1);
    for (int i = 0; i < 8; i++)
        assert_true(attn_from_e4m3(to[i]) == want[i]);
    assert_int_equal(to[5], 0x80); /* half of the smallest denormal: a tie, to zero, which keeps its sign */
}

static void the_other_type(void **state)
{
    (void)state;
    float from[8] = {57344, -1.125f, 1.375f, 0x1p-16f, 0x1p-17f, 0x1.8p-16f, -3, 0};
    const float want[8] = {57344, -1, 1.5f, 0x1p-16f, 0, 0x1p-15f, -3, 0};
    const struct attn_problem p = small(1, 8, ATTN_E5M2);
    uint8_t to[8];
    float scale;
    const struct quantise_job job = job_of(&p, QUANTISED_V, from, to, &scale);
    quantise(&job, 1);
    assert_true(scale == 1);
    for (int i = 0; i < 8; i++)
        assert_true(attn_from_e5m2(to[i]) == want[i]);
}

/* The quotient of the largest value and its rounded scale may be a little above the largest finite value. */
static void the_largest_saturates(void **state)
{
    (void)state;
    const struct attn_problem p = small(1, 8, ATTN_E4M3);
    for (int n = 1; n < 2000; n++) {
        float from[8] = {0}, scale;
        uint8_t to[8];
        from[n % 8] = -(float)n * 0.37f;
        const struct quantise_job job = job_of(&p, QUANTISED_Q, from, to, &scale);
        quantise(&job, 1);
        assert_int_equal(to[n % 8], 0xfe); /* -448 */
    }
}

static void zeros_and_the_smallest(void **state)
{
    (void)state;
    const struct attn_problem p = small(1, 8, ATTN_E4M3);
    float from[8] = {0, -0.0f}, scale;
    uint8_t to[8];
    const struct quantise_job job = job_of(&p, QUANTISED_Q, from, to, &scale);
    quantise(&job, 1);
    assert_true(scale == 1);
    assert_int_equal(to[0], 0);
    assert_int_equal(to[1], 0x80);
    from[3] = 0x1p-133f; /* a scale that would be a denormal is the smallest normal number */
    quantise(&job, 1);
    assert_true(scale == 0x1p-126f);
    assert_true(attn_from_e4m3(to[3]) * scale == 0x1p-133f);
}

/* Values that say batch, head and row: each scale is that of the rows it is for. */
static float value_at(int64_t b, int64_t head, int64_t row, int64_t c)
{
    return (float)((b * 4 + head) * 1000 + row + 1) * (c == 3 ? -1.0f : 0.25f);
}

static void check_scales(const struct attn_problem *p, enum quantised tensor, const int32_t *cu)
{
    const int64_t heads = tensor == QUANTISED_Q ? p->q_heads : p->kv_heads, d = p->head_dim;
    const int64_t len = tensor == QUANTISED_Q ? p->q_len : p->kv_len, group = tensor == QUANTISED_Q ? 2 : 1;
    const int64_t total = cu ? cu[p->batch] : len, batches = cu ? 1 : p->batch;
    const int64_t count = quantise_scales(p, tensor);
    float *from = calloc((size_t)(batches * heads * total * d), sizeof *from);
    uint8_t *to = calloc((size_t)(batches * heads * total * d), 1);
    float *scales = malloc((size_t)(count + 1) * sizeof *scales);
    scales[count] = 77;
    struct quantise_job job = job_of(p, tensor, from, to, scales);
    job.cu_seqlens = cu;
    job.from.stride_head = job.to.stride_head = total * d;
    job.from.stride_batch = job.to.stride_batch = heads * total * d;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1)
            quantise(&job, 3);
        for (int64_t b = 0; b < p->batch; b++)
            for (int64_t h = 0; h < heads; h++)
                for (int64_t i = 0; i < (cu ? cu[b + 1] - cu[b] : len); i++) {
                    const int64_t at = ((cu ? h : b * heads + h) * total + (cu ? cu[b] : 0) + i) * d;
                    for (int64_t c = 0; c < d && pass == 0; c++)
                        from[at + c] = value_at(b, h, i, c);
                    if (pass == 0)
                        continue;
                    const int64_t n = cu ? cu[b + 1] - cu[b] : len, sb = p->scale_block;
                    const int64_t last =
                        p->quant_scale == ATTN_SCALE_BLOCK && (i / sb + 1) * sb < n ? (i / sb + 1) * sb - 1 : n - 1;
                    const int64_t top = p->quant_scale == ATTN_SCALE_HEAD ? h / group * group + group - 1 : h;
                    const float want = -value_at(b, top, last, 3) / 448.0f;
                    const float got = scales[quantise_scale_at(p, tensor, cu, b, h, i)];
                    assert_true(got == want);
                    for (int64_t c = 0; c < d; c++)
                        assert_int_equal(to[at + c], attn_to_e4m3(from[at + c] / got));
                }
    }
    assert_true(scales[count] == 77);
    free(from);
    free(to);
    free(scales);
}

static void scales_of_heads_and_blocks(void **state)
{
    (void)state;
    static const int32_t cu[] = {0, 40, 40, 77};
    struct attn_problem p = small(70, 8, ATTN_E4M3);
    p.batch = 3;
    p.q_heads = 4;
    p.kv_heads = 2;
    p.total_q = p.total_k = 77;
    for (int packed = 0; packed < 2; packed++)
        for (int tensor = 0; tensor < QUANTISED_COUNT; tensor++) {
            p.lengths = packed ? ATTN_PACKED : ATTN_FIXED;
            p.quant_scale = ATTN_SCALE_HEAD;
            p.scale_block = 0;
            assert_int_equal(quantise_scales(&p, (enum quantised)tensor), 6);
            check_scales(&p, (enum quantised)tensor, packed ? cu : NULL);
            p.quant_scale = ATTN_SCALE_BLOCK;
            p.scale_block = 16;
            assert_int_equal(quantise_scales(&p, (enum quantised)tensor),
                             (packed ? 77 / 16 + 3 : 3 * 5) * (tensor == QUANTISED_Q ? 4 : 2));
            check_scales(&p, (enum quantised)tensor, packed ? cu : NULL);
        }
}

static void the_rotation(void **state)
{
    (void)state;
    enum { D = 128 };
    float a[D], b[D], other[D];
    double before = 0, after = 0, norm_before = 0, norm = 0, largest = 0;
    for (int c = 0; c < D; c++) {
        a[c] = other[c] = c == 5 ? 100.0f : (float)(c % 7) - 3;
        b[c] = (float)(c % 5) - 2;
        before += (double)a[c] * (double)b[c];
        norm_before += (double)a[c] * (double)a[c];
    }
    quantise_rotate(a, D, 1);
    quantise_rotate(b, D, 1);
    quantise_rotate(other, D, 2);
    for (int c = 0; c < D; c++) {
        after += (double)a[c] * (double)b[c];
        norm += (double)a[c] * (double)a[c];
        largest = fmax(largest, fabs((double)a[c]));
    }
    assert_true(fabs(after - before) < 1e-3); /* Q K^T stays */
    /* The large column is spread, the norm stays. */
    assert_true(largest < 25 && fabs(norm / norm_before - 1) < 1e-5);
    assert_true(memcmp(a, other, sizeof a) != 0); /* other signs for another seed */
    float one[1] = {3};
    quantise_rotate(one, 1, 1);
    assert_true(fabsf(one[0]) == 3);
}

/* A rotated tensor: stored * scale is the rotated row within the rounding of the type. */
static void rotated_rows(void **state)
{
    (void)state;
    const struct attn_problem p = small(4, 16, ATTN_E4M3);
    float from[64], row[16], scale;
    uint8_t to[64];
    for (int i = 0; i < 64; i++)
        from[i] = sinf((float)i * 1.7f);
    struct quantise_job job = job_of(&p, QUANTISED_Q, from, to, &scale);
    job.is_rotated = true;
    job.seed = 9;
    quantise(&job, 2);
    for (int i = 0; i < 4; i++) {
        memcpy(row, from + 16 * i, sizeof row);
        quantise_rotate(row, 16, 9);
        for (int c = 0; c < 16; c++)
            assert_true(fabsf(attn_from_e4m3(to[16 * i + c]) * scale - row[c]) <=
                        fmaxf(fabsf(row[c]) * 0x1p-4f, scale * 0x1p-10f) * 1.0001f);
    }
}

/* The value of a code by the definition: (1 + mantissa / 2^bits) 2^(exponent - bias), mantissa / 2^bits 2^(1 - bias)
 * for exponent 0. `infinity`: its code, 0 where the type has none; codes above `largest` are NaN else. */
static float by_definition(int code, int bits, int bias, int largest, int infinity)
{
    const int magnitude = code & 0x7f, exponent = magnitude >> bits, mantissa = magnitude - (exponent << bits);
    float value = exponent ? ldexpf((float)(mantissa + (1 << bits)), exponent - bias - bits)
                           : ldexpf((float)mantissa, 1 - bias - bits);
    if (magnitude > largest)
        value = magnitude == infinity ? INFINITY : NAN;
    return code & 0x80 ? -value : value;
}

static void every_8_bit_code(void **state)
{
    (void)state;
    for (int code = 0; code < 256; code++) {
        const float a = attn_from_e4m3((uint8_t)code), b = by_definition(code, 3, 7, 0x7e, 0);
        const float c = attn_from_e5m2((uint8_t)code), d = by_definition(code, 2, 15, 0x7b, 0x7c);
        if ((isnan(b) ? !isnan(a) : a != b || signbit(a) != signbit(b)) ||
            (isnan(d) ? !isnan(c) : c != d || signbit(c) != signbit(d)))
            fail_msg("code %d: e4m3 %g, not %g; e5m2 %g, not %g", code, (double)a, (double)b, (double)c, (double)d);
    }
}

static void softcap_and_its_slope(void **state)
{
    (void)state;
    static const float caps[] = {0.1f, 1.5f, 20, 50};
    for (size_t n = 0; n < sizeof caps / sizeof *caps; n++)
        for (int i = -200; i <= 200; i++) {
            const float x = (float)i * 0.25f;
            const double a = fabs((double)x / (double)caps[n]), power = exp(-2 * a);
            const double share = tanh((double)x / (double)caps[n]), slope = 4 * power / ((1 + power) * (1 + power));
            assert_true(fabs(1 - share * share - slope) < 1e-14); /* the same, as a difference */
            assert_true(fabs((double)element_capped(x, caps[n]) - (double)caps[n] * share) <= 4e-7 * (double)caps[n]);
            assert_true(fabs((double)element_slope(x, caps[n]) - slope) <= 1e-37 + slope * (3e-7 + 4e-7 * a));
        }
    assert_true(element_capped(3.25f, 0) == 3.25f && element_slope(3.25f, 0) == 1);
}

/* Every row is found by its number, which is its place in LSE. */
static void check_rows(const struct attn_problem *p, const struct attn_tensors *t)
{
    int64_t found = 0;
    for (int64_t b = 0; b < p->batch; b++) {
        const struct attn_sequence sequence = attn_sequence_at(p, t, b);
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = 0; i < sequence.q_len; i++, found++) {
                const struct element_row at = element_row_at(p, t, attn_lse_index(p, t, b, h, i));
                assert_int_equal(at.b, b);
                assert_int_equal(at.head, h);
                assert_int_equal(at.row, i);
                assert_int_equal(at.q_len, sequence.q_len);
                assert_int_equal(at.kv_len, sequence.kv_len);
            }
    }
    assert_int_equal(found, element_rows(p));
}

static void rows_by_number(void **state)
{
    (void)state;
    static const int32_t all[][8] = {{0, 1, 1, 1, 4, 9, 9, 9}, {0, 0, 0, 3, 3, 5, 5, 6}, {0, 0, 0, 0, 0, 0, 0, 1}};
    static const int32_t keys[] = {0, 2, 2, 5, 5, 5, 6, 8};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        for (int64_t batch = 1; batch <= 7; batch++) {
            const struct attn_problem p = {BASE(batch, 4, 2, 9, 9, 8, true, -1, -1), PACKED, .total_q = all[n][batch],
                                           .total_k = keys[batch]};
            const struct attn_tensors t = {.cu_seqlens_q = all[n], .cu_seqlens_k = keys};
            check_rows(&p, &t);
        }
    const struct attn_problem fixed = {ANY}, cache = {BASE(3, 4, 2, 5, 9, 8, true, -1, -1), .lengths = ATTN_CACHE};
    static const int32_t used[] = {5, 9, 7};
    const struct attn_tensors t = {.seqused_k = used};
    check_rows(&fixed, &t);
    check_rows(&cache, &t);
}

static void wrong_lengths(void **state)
{
    (void)state;
    static const int32_t good[] = {0, 3, 3, 8}, late[] = {1, 3, 3, 8}, falling[] = {0, 5, 3, 8},
                         long_one[] = {0, 1, 7, 8}, short_one[] = {0, 3, 3, 7};
    const struct attn_problem p = {BASE(3, 4, 2, 5, 5, 8, true, -1, -1), PACKED, .total_q = 8, .total_k = 8};
    const struct {
        const int32_t *sums;
        const char *words;
    } all[] = {{late, "goes from 1 to 8, not from 0 to 8"},
               {short_one, "goes from 0 to 7, not from 0 to 8"},
               {falling, "sequence 1 has the length -2"},
               {long_one, "sequence 1 has the length 6"}};
    struct attn_message why = {""};
    struct attn_tensors t = {.cu_seqlens_q = good, .cu_seqlens_k = good};
    assert_int_equal(lengths_check(&p, &t, &why), ATTN_OK);
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        for (int is_kv = 0; is_kv < 2; is_kv++) {
            t.cu_seqlens_q = is_kv ? good : all[n].sums;
            t.cu_seqlens_k = is_kv ? all[n].sums : good;
            if (n == 2 || n == 3) /* the first sequence of these is legal */
                assert_true(all[n].sums[1] <= 5);
            assert_int_equal(lengths_check(&p, &t, &why), ATTN_ERROR);
            assert_non_null(strstr(why.text, all[n].words));
            assert_non_null(strstr(why.text, is_kv ? "cu_seqlens_k" : "cu_seqlens_q"));
        }
    const struct attn_problem cache = {BASE(3, 4, 2, 5, 9, 8, true, -1, -1), .lengths = ATTN_CACHE};
    int32_t used[] = {0, 9, 5};
    t.seqused_k = used;
    assert_int_equal(lengths_check(&cache, &t, &why), ATTN_OK);
    used[2] = 10;
    assert_int_equal(lengths_check(&cache, &t, &why), ATTN_ERROR);
    assert_non_null(strstr(why.text, "seqused_k of sequence 2 is 10"));
    used[2] = -1;
    assert_int_equal(lengths_check(&cache, &t, &why), ATTN_ERROR);
}

/* The drawn problems have every attribute, several times, and each attribute with and without the others. */
static void drawn_problems_have_every_attribute(void **state)
{
    (void)state;
    int with[10] = {0}, pairs[10][10] = {{0}};
    for (int n = 0; n < 400; n++) {
        const struct attn_problem p = drawn_problem(n);
        const struct attn_request request = {.problem = &p};
        const unsigned has = attn_attributes(&request);
        for (int i = 0; i < 8; i++)
            for (int j = 0; j < 8 && (has >> i & 1u); j++)
                pairs[i][j] += has >> j & 1u;
        for (int i = 0; i < 8; i++)
            with[i] += has >> i & 1u;
        assert_true(p.q_heads % p.kv_heads == 0 && p.head_dim % 8 == 0 && p.q_len >= 1 && p.kv_len >= 1);
    }
    for (int i = 0; i < 8; i++) {
        assert_true(with[i] >= 40 && with[i] <= 360);
        for (int j = 0; j < 8; j++) /* packed sequences (3) are no cache (4) and have no pages (5) */
            assert_true(pairs[i][j] >= 5 || (i == 3 && (j == 4 || j == 5)) || (j == 3 && (i == 4 || i == 5)));
    }
}

int main(void)
{
    const struct CMUnitTest of_quantise[] = {
        cmocka_unit_test(exact_values),
        cmocka_unit_test(the_other_type),
        cmocka_unit_test(the_largest_saturates),
        cmocka_unit_test(zeros_and_the_smallest),
        cmocka_unit_test(scales_of_heads_and_blocks),
        cmocka_unit_test(the_rotation),
        cmocka_unit_test(rotated_rows),
    };
    const struct CMUnitTest of_elements[] = {
        cmocka_unit_test(every_8_bit_code),
        cmocka_unit_test(softcap_and_its_slope),
        cmocka_unit_test(rows_by_number),
        cmocka_unit_test(wrong_lengths),
        cmocka_unit_test(drawn_problems_have_every_attribute),
    };
    return cmocka_run_group_tests(of_quantise, NULL, NULL) + cmocka_run_group_tests(of_elements, NULL, NULL);
}
