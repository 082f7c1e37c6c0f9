/* Which of their kernels fused_sm90's and fused_sm80's decode take for a request, and what they refuse in words. Needs
 * no device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "kernels/attention.h"
#include "kernels/sm80/fused_sm80.h"
#include "kernels/sm90/fused_sm90.h"
#include "tests/dense.h"

static const struct attn_problem dense = DENSE(2, 4, 2, 128, 128, 64, ATTN_FP32, ATTN_BSHD, true, -1, -1, 0.125f, 0);

static const struct attn_device gpu = {
    .platform = ATTN_CUDA, .sm = 90, .multiprocessors = 132, .smem_per_block_bytes = 232448, .l2_bytes = 50 << 20};

/* The words of a refused value; NULL: it is taken. */
static void check_decode(const char *words, struct attn_problem p, int64_t splits)
{
    const struct attn_request request = {.problem = &p, .device = &gpu, .mode = ATTN_FWD, .splits = splits};
    struct attn_message why = {""};
    const enum attn_status status = attn_fused_sm90.accepts(&request, &why);
    if (status != (words ? ATTN_UNSUPPORTED : ATTN_OK) || (words && !strstr(why.text, words)))
        fail_msg("status %d, '%s' where '%s' was expected", (int)status, why.text, words ? words : "");
    if (status == ATTN_OK)
        assert_true(attn_fused_sm90.workspace_bytes(&request) > 0 || splits == 1);
}

static void decode_refuses_values_in_words(void **state)
{
    struct attn_problem p = dense, one;
    (void)state;
    p.lengths = ATTN_CACHE;
    p.dtype = ATTN_BF16;
    p.kv_len = 5000;
    p.pages = 1000;
    for (int64_t q_len = 1; q_len <= 16; q_len++)
        for (int64_t head_dim = 64; head_dim <= 256; head_dim *= 2)
            for (int64_t page = 0; page <= 80; page += 8) {
                one = p;
                one.q_len = q_len, one.head_dim = head_dim, one.page_size = page;
                check_decode(NULL, one, page / 8);
                one.cache_dtype = page % 16 ? ATTN_E4M3 : ATTN_E5M2, one.quant_scale = ATTN_SCALE_HEAD;
                check_decode(NULL, one, page / 8);
            }
    check_decode(NULL, (one = p, one.q_len = 512, one), 0);
    check_decode("513 new rows of a sequence: decode takes 1 to 512", (one = p, one.q_len = 513, one), 0);
    check_decode("e4m3 or e5m2, with a scale for each head", (one = p, one.cache_dtype = ATTN_E4M3, one), 0);
    p.q_len = 1;
    check_decode("head_dim 96: decode takes 64, 128 and 256", (one = p, one.head_dim = 96, one), 0);
    check_decode("257 splits: decode takes up to 256", p, 257);
    check_decode("pages of 12 rows: decode takes multiples of 8", (one = p, one.page_size = 12, one), 0);
    check_decode("0 pages: decode takes 1 to 2147483647", (one = p, one.page_size = 16, one.pages = 0, one), 0);
    check_decode("2147483648 pages: decode takes 1 to", (one = p, one.page_size = 16, one.pages = 1LL << 31, one), 0);
    check_decode("takes fp16 and bf16 only", (one = p, one.dtype = ATTN_FP32, one), 0);
    check_decode("are more than 2147483647", (one = p, one.batch = 1 << 30, one), 0);
}

static void invariant_decode_has_no_splits(void **state)
{
    struct attn_problem p = dense;
    struct attn_request request = {.problem = &p, .device = &gpu, .mode = ATTN_FWD, .invariant = true};
    struct attn_message why = {""};
    (void)state;
    p.lengths = ATTN_CACHE;
    p.dtype = ATTN_BF16;
    p.head_dim = 128, p.kv_len = 5000;
    assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_OK);
    assert_true(attn_fused_sm90.workspace_bytes(&request) > 0);
    request.splits = 2;
    assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "takes the invariant mode without splits and without a variant");
    request.splits = 0;
    request.variant = "decode_d128_n64_s12";
    assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "takes the invariant mode without splits and without a variant");
}

/* 16 query rows or fewer have tiles of their own, unless the rows of a sequence's neighbours would decide; clusters
 * have few items with few keys for each block. */
static void few_rows_have_a_decode_tile(void **state)
{
    struct attn_problem p = dense;
    struct attn_request request = {.problem = &p, .device = &gpu, .mode = ATTN_FWD};
    struct attn_message why;
    (void)state;
    p.lengths = ATTN_CACHE, p.dtype = ATTN_BF16, p.head_dim = 128, p.kv_len = 5000, p.q_len = 8;
    assert_string_equal(attn_fused_sm90.variant(&request), "decode_d128_m16n64_s12");
    p.cache_dtype = ATTN_E4M3, p.quant_scale = ATTN_SCALE_HEAD;
    assert_string_equal(attn_fused_sm90.variant(&request), "decode_8bit_d128_m16n64_s24");
    p.q_len = 16; /* two tiles of rows */
    assert_string_equal(attn_fused_sm90.variant(&request), "decode_8bit_d128_m16n64_s24");
    p.q_len = 17;
    assert_string_equal(attn_fused_sm90.variant(&request), "decode_8bit_d128_n64_s4");
    p.cache_dtype = ATTN_FP32;
    assert_string_equal(attn_fused_sm90.variant(&request), "decode_d128_n64_s12");
    p.q_len = 8, p.total_q = 11;
    assert_string_equal(attn_fused_sm90.variant(&request), "decode_d128_m16n64_s12");
    request.invariant = true;
    assert_string_equal(attn_fused_sm90.variant(&request), "decode_d128_n64_s12");
    request.invariant = false;
    p.total_q = 0, p.q_len = 1, p.q_heads = 32, p.kv_heads = 8, p.batch = 8;
    assert_string_equal(attn_fused_sm90.variant(&request), "decode_d128_m16n64_s12");
    p.batch = 1, p.kv_len = 32768;
    assert_string_equal(attn_fused_sm90.variant(&request), "decode_d128_m16n64_s8_cluster");
    p.kv_len = 32769;
    assert_string_equal(attn_fused_sm90.variant(&request), "decode_d128_m16n64_s12");
    p.batch = 4, p.kv_len = 2048; /* a cluster of two */
    assert_string_equal(attn_fused_sm90.variant(&request), "decode_d128_m16n64_s8_cluster");
    p.kv_len = 2049;
    assert_string_equal(attn_fused_sm90.variant(&request), "decode_d128_m16n64_s12");
    p.batch = 1, p.kv_len = 1024, p.cache_dtype = ATTN_E4M3; /* the type of the cache does not decide */
    assert_string_equal(attn_fused_sm90.variant(&request), "decode_8bit_d128_m16n64_s16_cluster");
    p.cache_dtype = ATTN_FP32, p.quant_scale = dense.quant_scale;
    request.variant = "decode_d128_m16n64_s8_cluster";
    assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_OK);
    assert_string_equal(attn_fused_sm90.variant(&request), request.variant);
    p.total_q = 1;
    assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_UNSUPPORTED);
    p.total_q = 0, request.splits = 2;
    assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_UNSUPPORTED);
    request.splits = 0, p.kv_heads = 1; /* two tiles of rows, which read the same keys */
    assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_OK);
    p.q_heads = 24; /* of which the second tile has not all rows */
    assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_OK);
    p.batch = 33; /* 66 tiles of rows have two multiprocessors each, 68 do not */
    assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_OK);
    p.batch = 34;
    assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_UNSUPPORTED);
    p.batch = 1;
    request.variant = NULL;
    p.q_heads = 32, p.kv_len = 10240;
    assert_string_equal(attn_fused_sm90.variant(&request), "decode_d128_m16n64_s8_cluster");
    p.kv_len = 32768; /* 16 blocks in clusters would read too long */
    assert_string_equal(attn_fused_sm90.variant(&request), "decode_d128_m16n64_s12");
    p.batch = 9; /* so many keys are not read twice */
    assert_string_equal(attn_fused_sm90.variant(&request), "decode_d128_n64_s12");
    p.batch = 1, p.q_len = 2;
    assert_string_equal(attn_fused_sm90.variant(&request), "decode_d128_n64_s12");
}

/* Chunks of a prefill go to the forward where its tiles are full and keep the device busy. */
static void chunks_have_the_forward(void **state)
{
    struct attn_problem p = dense;
    struct attn_request request = {.problem = &p, .device = &gpu, .mode = ATTN_FWD};
    struct attn_message why;
    (void)state;
    p.lengths = ATTN_CACHE, p.dtype = ATTN_BF16, p.head_dim = 128, p.kv_len = 32768, p.q_len = 128;
    p.q_heads = 32, p.kv_heads = 8, p.batch = 8;
    assert_string_equal(attn_fused_sm90.variant(&request), "decode_chunk_d128");
    const size_t bytes = attn_fused_sm90.workspace_bytes(&request);
    assert_true(bytes >= (size_t)(p.batch * p.q_heads * p.q_len) * sizeof(float)); /* LSE in the order of the forward */
    p.q_len = 32;
    assert_string_equal(attn_fused_sm90.variant(&request), "decode_d128_n64_s12");
    p.q_len = 128, p.batch = 1; /* a quarter of the multiprocessors would have a tile */
    assert_string_equal(attn_fused_sm90.variant(&request), "decode_d128_n64_s12");
    request.variant = "decode_chunk_d128";
    assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_OK);
    p.page_size = 16, p.pages = 2048;
    assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_UNSUPPORTED);
    p.page_size = p.pages = 0, p.total_q = 100;
    assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_UNSUPPORTED);
    request.variant = NULL, p.batch = 8, p.total_q = 0,
    p.layout = ATTN_BHSD; /* its rows are not one behind the other */
    assert_string_equal(attn_fused_sm90.variant(&request), "decode_d128_n64_s12");
    p.layout = ATTN_BSHD, request.invariant = true;
    assert_string_equal(attn_fused_sm90.variant(&request), "decode_d128_n64_s12");
}

/* fused_sm80's decode: up to 16 rows of a group and 16 new tokens have the small tile, more the large one where it
 * fits. */
static void sm80_decode_has_tiles(void **state)
{
    static const struct attn_device devices[] = {
        {.platform = ATTN_CUDA, .sm = 80, .multiprocessors = 108, .smem_per_block_bytes = 166912},
        {.platform = ATTN_CUDA, .sm = 86, .multiprocessors = 84, .smem_per_block_bytes = 101376},
        {.platform = ATTN_CUDA, .sm = 90, .multiprocessors = 132, .smem_per_block_bytes = 232448}};
    struct attn_message why = {""};
    int large = 0;
    (void)state;
    for (int n = 0; n < 3 * 16 * 11; n++)
        for (int64_t head_dim = 64; head_dim <= 256; head_dim *= 2) {
            struct attn_problem p = dense;
            struct attn_request request = {.problem = &p, .device = &devices[n % 3], .mode = ATTN_FWD};
            p.lengths = ATTN_CACHE;
            p.dtype = ATTN_BF16;
            p.q_heads = 8, p.kv_heads = 2, p.kv_len = 5000, p.pages = 1000;
            p.head_dim = head_dim, p.q_len = 1 + n / 3 % 16, p.page_size = 8 * (n / 48);
            if (attn_fused_sm80.accepts(&request, &why) != ATTN_OK)
                fail_msg("%s", why.text);
            assert_true(attn_fused_sm80.workspace_bytes(&request) > 0);
            const bool is_large = strstr(attn_fused_sm80.variant(&request), "_m64") != NULL;
            assert_true(!is_large || p.q_len > 4);
            assert_true(is_large || p.q_len <= 4 || devices[n % 3].smem_per_block_bytes < 200000);
            large += is_large;
            p.head_dim = 96;
            assert_int_equal(attn_fused_sm80.accepts(&request, &why), ATTN_UNSUPPORTED);
            assert_string_equal(why.text, "head_dim 96: decode takes 64, 128 and 256");
        }
    assert_true(large > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_refuses_values_in_words), cmocka_unit_test(invariant_decode_has_no_splits),
        cmocka_unit_test(few_rows_have_a_decode_tile),    cmocka_unit_test(chunks_have_the_forward),
        cmocka_unit_test(sm80_decode_has_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
