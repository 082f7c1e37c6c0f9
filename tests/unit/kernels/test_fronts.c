/* What the fronts of the CUDA kernels choose and refuse: plain C that needs no device, only its description. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "kernels/sm90/fused_sm90.h"

/* Of an H200. */
static const struct attn_device h200 = {
    .platform = ATTN_CUDA, .sm = 90, .multiprocessors = 132, .smem_per_block_bytes = 232448, .l2_bytes = 60 << 20};

static struct attn_problem self_attention(int64_t batch, int64_t heads, int64_t len, int64_t head_dim, bool causal)
{
    return (struct attn_problem){.batch = batch,
                                 .q_heads = heads,
                                 .kv_heads = heads,
                                 .q_len = len,
                                 .kv_len = len,
                                 .head_dim = head_dim,
                                 .dtype = ATTN_FP16,
                                 .layout = ATTN_BSHD,
                                 .causal = causal,
                                 .window_left = -1,
                                 .window_right = -1,
                                 .scale = 0.125f};
}

static const char *chosen(struct attn_problem p, enum attn_mode mode)
{
    const struct attn_request request = {.problem = &p, .device = &h200, .mode = mode};
    struct attn_message why = {""};
    assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_OK);
    return attn_fused_sm90.variant(&request);
}

static void tiles_follow_head_dim_and_length(void **state)
{
    (void)state;
    assert_string_equal(chosen(self_attention(4, 16, 4096, 128, true), ATTN_FWD), "fwd_d128_m128n128_s2");
    /* Blocks of 128 keys go past the diagonal of causal rows; full ones are 2752 tiles of 192 rows in 21 rounds, of 256
     * rows 2048 in 16, with more rows in all. */
    assert_string_equal(chosen(self_attention(1, 32, 16384, 64, true), ATTN_FWD), "fwd_d64_m256n64_s5");
    assert_string_equal(chosen(self_attention(1, 32, 16384, 64, false), ATTN_FWD), "fwd_d64_m192n128_s3");
    /* Of 1024 rows 192 pad an eighth. */
    assert_string_equal(chosen(self_attention(16, 32, 1024, 64, true), ATTN_FWD), "fwd_d64_m256n64_s5");
    assert_string_equal(chosen(self_attention(16, 32, 1024, 64, false), ATTN_FWD), "fwd_d64_m256n64_s5");
    /* 20 rounds of 192 rows or 15 of 256, of which a row costs less. */
    assert_string_equal(chosen(self_attention(10, 32, 1536, 64, false), ATTN_FWD), "fwd_d64_m256n64_s5");
    assert_string_equal(chosen(self_attention(4, 32, 4096, 64, true), ATTN_BWD), "bwd_d64_k128q128_v4k3");
    assert_string_equal(chosen(self_attention(4, 16, 4096, 128, true), ATTN_BWD), "bwd_d128_k128q64_v3k0");
}

static void few_tiles_are_spread(void **state)
{
    (void)state;
    /* 88 tiles of 192 rows or 128 of 128: one each. */
    assert_string_equal(chosen(self_attention(1, 8, 2048, 64, false), ATTN_FWD), "fwd_d64_m128n128_s3_k2");
    /* 132 of 192, one each; 192 of 128 would be two for some. */
    assert_string_equal(chosen(self_attention(1, 12, 2048, 64, false), ATTN_FWD), "fwd_d64_m192n128_s3");
    /* 128 of 256, one each; 176 of 192 would be two for some. */
    assert_string_equal(chosen(self_attention(1, 8, 4096, 64, false), ATTN_FWD), "fwd_d64_m256n64_s5");
    /* 128 of 64, one each; of 128 rows there would be 64. */
    assert_string_equal(chosen(self_attention(1, 8, 1024, 64, false), ATTN_FWD), "fwd_d64_m64n128_s5_k2");
    assert_string_equal(chosen(self_attention(1, 4, 2048, 64, false), ATTN_FWD), "fwd_d64_m64n128_s5_k2");
    /* Causal, the longest tile is the time unless there are short ones enough to fill the gaps: 288 and 272 of 64
     * rows. */
    assert_string_equal(chosen(self_attention(1, 9, 2048, 64, true), ATTN_FWD), "fwd_d64_m64n128_s5_k2");
    assert_string_equal(chosen(self_attention(1, 17, 1024, 64, true), ATTN_FWD), "fwd_d64_m64n128_s5_k2");
    assert_string_equal(chosen(self_attention(1, 8, 4096, 64, true), ATTN_FWD), "fwd_d64_m128n128_s3_k2");
    /* The same with head_dim 128: 64 rows where 128 of them leave multiprocessors without work or, causal, with the
     * longest tile alone. */
    assert_string_equal(chosen(self_attention(1, 8, 1024, 128, false), ATTN_FWD), "fwd_d128_m64n128_s2_k2");
    assert_string_equal(chosen(self_attention(1, 8, 2048, 128, true), ATTN_FWD), "fwd_d128_m64n128_s2_k2");
    assert_string_equal(chosen(self_attention(1, 8, 2048, 128, false), ATTN_FWD), "fwd_d128_m128n128_s2");
    assert_string_equal(chosen(self_attention(1, 8, 4096, 128, true), ATTN_FWD), "fwd_d128_m128n128_s2");
    /* Keys that most rows do not see, and rows that see none. */
    struct attn_problem p = self_attention(1, 8, 2048, 64, true);
    p.kv_len = 16384;
    assert_string_equal(chosen(p, ATTN_FWD), "fwd_d64_m128n128_s3_k2");
    p.kv_len = 1;
    assert_non_null(chosen(p, ATTN_FWD));
    /* Long keys before short queries, all tiles about as long: 144 of 256 rows would be two for some, 288 of 128 are
     * three. */
    p = self_attention(1, 144, 256, 64, true);
    p.kv_len = 16384;
    assert_string_equal(chosen(p, ATTN_FWD), "fwd_d64_m128n128_s3_k2");
}

static void refused(struct attn_problem p, struct attn_device device, const char *variant, const char *sentence)
{
    for (int mode = ATTN_FWD; mode <= ATTN_BWD; mode++) {
        const struct attn_request request = {
            .problem = &p, .device = &device, .mode = (enum attn_mode)mode, .variant = variant};
        struct attn_message why = {""};
        assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_UNSUPPORTED);
        if (!strstr(why.text, sentence))
            fail_msg("'%s' does not say '%s'", why.text, sentence);
    }
}

static void refusals_say_why(void **state)
{
    (void)state;
    const struct attn_problem good = self_attention(4, 16, 4096, 128, true);
    struct attn_problem p = good;
    struct attn_device device = h200;
    device.sm = 80;
    refused(p, device, NULL, "needs compute capability 9.0, this device has 8.0");
    device = h200;
    device.smem_per_block_bytes = 166912;
    refused(p, device, NULL, "bytes of shared memory");
    refused(p, h200, "no_such_tile", "no variant no_such_tile");
    p.head_dim = 96;
    refused(p, h200, NULL, "head_dim");
    p = good;
    p.dtype = ATTN_FP32;
    refused(p, h200, NULL, "fp");
    p = good;
    p.q_len = p.kv_len = INT64_C(1) << 31;
    refused(p, h200, NULL, "length");
    p = good;
    p.batch = p.q_heads = p.kv_heads = INT32_MAX;
    refused(p, h200, NULL, "2147483647");
    p = good;
    p.batch = INT64_C(1) << 27;
    refused(p, h200, NULL, "2147483647");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_follow_head_dim_and_length),
        cmocka_unit_test(few_tiles_are_spread),
        cmocka_unit_test(refusals_say_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
