/* fused_sm80's tiles of a V of another head dim than Q and K: which it takes, and what it says of the rest. Needs no
 * device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "kernels/sm80/fused_sm80.h"
#include "tests/dense.h"

static const struct attn_problem dense = DENSE(2, 4, 2, 128, 128, 64, ATTN_FP32, ATTN_BSHD, true, -1, -1, 0.125f, 0);

/* The tile that fused_sm80 takes for it, or what it says. */
static const char *sm80_takes(struct attn_problem p, const struct attn_device *device, enum attn_mode mode,
                              bool deterministic)
{
    static struct attn_message why;
    const struct attn_request request = {.problem = &p, .device = device, .mode = mode, .deterministic = deterministic};
    if (attn_fused_sm80.accepts(&request, &why) != ATTN_OK)
        return why.text;
    /* Two statistics of each row; sums of dQ, which has Q's columns, where their order is not fixed. */
    const int64_t row_floats = mode == ATTN_FWD ? 0 : 2 + (deterministic ? 0 : p.head_dim);
    assert_true(attn_fused_sm80.workspace_bytes(&request) >=
                (size_t)(p.batch * p.q_heads * p.q_len * row_floats) * sizeof(float));
    return attn_fused_sm80.variant(&request);
}

/* fused_sm80 has tiles of two pairs of head dims for every device, and refuses what they are not compiled for. */
static void sm80_has_wide_and_narrow_v(void **state)
{
    static const struct attn_device devices[] = {
        {.platform = ATTN_CUDA, .sm = 90, .multiprocessors = 132, .smem_per_block_bytes = 232448, .l2_bytes = 50 << 20},
        {.platform = ATTN_CUDA, .sm = 80, .multiprocessors = 108, .smem_per_block_bytes = 166912, .l2_bytes = 40 << 20},
        {.platform = ATTN_CUDA, .sm = 86, .multiprocessors = 84, .smem_per_block_bytes = 101376, .l2_bytes = 6 << 20}};
    static const struct {
        int64_t head_dim;
        const char *fwd[3], *bwd[3];
    } pairs[] = {{192,
                  {"fwd_d192x128_m256n64", "fwd_d192x128_m256n32", "fwd_d192x128_m128n32"},
                  {"d192x128_kv64q64", "d192x128_kv64q64", "d192x128_kv32q32"}},
                 {64,
                  {"fwd_d64x128_m128n64", "fwd_d64x128_m128n32", "fwd_d64x128_m128n64"},
                  {"d64x128_kv128q64", "d64x128_kv128q64", "d64x128_kv64q32"}}};
    (void)state;
    for (int n = 0; n < 2 * 3 * 16; n++) {
        const struct attn_device *device = &devices[n % 3];
        struct attn_problem p = dense, one;
        p.head_dim = pairs[n / 3 % 2].head_dim, p.v_head_dim = 128, p.dtype = n / 6 % 2 ? ATTN_BF16 : ATTN_FP16;
        p.window_left = n / 12 % 2 ? 99 : -1;
        p.lengths = n / 24 % 2 ? ATTN_PACKED : ATTN_FIXED;
        p.total_q = p.total_k = n / 24 % 2 ? p.batch * p.q_len : 0;
        p.mask_block = n / 48 % 2 ? 64 : 0, p.mask_batch = p.mask_heads = n / 48 % 2;
        const char *const fwd = pairs[n / 3 % 2].fwd[n % 3], *const bwd = pairs[n / 3 % 2].bwd[n % 3];
        assert_string_equal(sm80_takes(p, device, ATTN_FWD, false), fwd);
        assert_string_equal(sm80_takes(p, device, ATTN_FWD, true), fwd);
        assert_string_equal(sm80_takes(p, device, ATTN_BWD, false), bwd);
        assert_string_equal(sm80_takes((one = p, one.has_sink = true, one), device, ATTN_BWD, false), bwd);
        assert_string_equal(sm80_takes(p, device, ATTN_BWD, true), bwd);
        for (int i = 0; i < 2; i++) {
            const enum attn_mode mode = (enum attn_mode)i;
            const char *words = mode == ATTN_FWD
                                    ? "takes no dropout, softcap, sink, ALiBi or bias beside V of another head_dim"
                                    : "takes no dropout, softcap, ALiBi or bias beside V of another head_dim";
            assert_string_equal(sm80_takes((one = p, one.dropout = 0.1f, one), device, mode, false), words);
            assert_string_equal(sm80_takes((one = p, one.softcap = 30, one), device, mode, false), words);
            assert_string_equal(sm80_takes((one = p, one.has_alibi = true, one), device, mode, false), words);
            words = p.head_dim == 64 ? "head_dim 64 and 96 of V: takes V of another head_dim as 192x128 or 64x128"
                                     : "head_dim 192 and 96 of V: takes V of another head_dim as 192x128 or 64x128";
            assert_string_equal(sm80_takes((one = p, one.v_head_dim = 96, one), device, mode, false), words);
            one = p, one.v_head_dim = p.head_dim; /* said in other words it has the tile that it had */
            assert_null(strstr(sm80_takes(one, device, mode, false), "x128"));
        }
        assert_string_equal(sm80_takes((one = p, one.has_sink = true, one), device, ATTN_FWD, false),
                            "takes no dropout, softcap, sink, ALiBi or bias beside V of another head_dim");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sm80_has_wide_and_narrow_v)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
