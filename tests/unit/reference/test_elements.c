/* reference/elements.h and lengths.h: what the CUDA code of the reference and of naive computes on the device, here on
 * the host. */
#include "tests/unit/reference/family.h"

#include "kernels/common/small_floats.h"
#include "reference/elements.h"
#include "reference/lengths.h"

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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_8_bit_code),
        cmocka_unit_test(softcap_and_its_slope),
        cmocka_unit_test(rows_by_number),
        cmocka_unit_test(wrong_lengths),
        cmocka_unit_test(drawn_problems_have_every_attribute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
