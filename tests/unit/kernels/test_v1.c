/* The host side of fused_v1: what it takes, its workspace, how blocks share heads, what it says of its work. Needs no
 * device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "kernels/attention.h"
#include "tests/dense.h"

extern const struct attn_impl attn_fused_v1;

static struct attn_device gpu = {
    .platform = ATTN_CUDA, .sm = 90, .multiprocessors = 132, .smem_per_block_bytes = 232448, .l2_bytes = 50 << 20};

static struct attn_problem square(int64_t batch, int64_t heads, int64_t len, int64_t head_dim, bool causal)
{
    const struct attn_problem p =
        DENSE(batch, heads, heads, len, len, head_dim, ATTN_FP16, ATTN_BSHD, causal, -1, -1, 0.125f, 0);
    return p;
}

static void is_refused(struct attn_problem p, const struct attn_device *device, enum attn_mode mode, const char *words)
{
    const struct attn_request request = {.problem = &p, .device = device, .mode = mode};
    struct attn_message why = {""};
    assert_int_equal(attn_fused_v1.accepts(&request, &why), ATTN_UNSUPPORTED);
    if (!strstr(why.text, words))
        fail_msg("'%s' where '%s' was expected", why.text, words);
}

static void refuses_in_words(void **state)
{
    struct attn_device old = gpu, small = gpu;
    struct attn_problem p = square(1, 2, 300, 64, true);
    struct attn_message why = {""};
    (void)state;
    old.sm = 75;
    small.sm = 86;
    small.smem_per_block_bytes = 101376;
    is_refused(p, &old, ATTN_FWD, "needs compute capability 8.0 or newer, this device has 7.5");
    is_refused(p, &small, ATTN_BWD, "bwd_d64_m16n256 needs 123904 bytes of shared memory");
    is_refused(square(1, 2, 300, 96, true), &gpu, ATTN_FWD, "head_dim 96: takes 64 and 128");
    const struct attn_request forward = {.problem = &p, .device = &small, .mode = ATTN_FWD};
    assert_int_equal(attn_fused_v1.accepts(&forward, &why), ATTN_OK);
    p.dtype = ATTN_FP32;
    is_refused(p, &gpu, ATTN_FWD, "takes fp16 and bf16 only");
    p.dtype = ATTN_BF16;
    p.window_left = 4;
    is_refused(p, &gpu, ATTN_BWD, "takes no window");
}

static size_t workspace(struct attn_problem p, enum attn_mode mode)
{
    const struct attn_request request = {.problem = &p, .device = &gpu, .mode = mode};
    struct attn_message why = {""};
    if (attn_fused_v1.accepts(&request, &why) != ATTN_OK)
        fail_msg("%s", why.text);
    return attn_fused_v1.workspace_bytes(&request);
}

/* O, m and l, or dQ, between the turns of the outer loop, with rows rounded up to 32; none where there is one turn. */
static void keeps_sums_between_turns(void **state)
{
    (void)state;
    assert_int_equal(workspace(square(2, 3, 256, 64, false), ATTN_FWD), 0);
    assert_int_equal(workspace(square(2, 3, 257, 64, false), ATTN_FWD), 6 * 288 * (64 + 2) * 4);
    assert_int_equal(workspace(square(2, 3, 129, 128, true), ATTN_FWD), 6 * 160 * (128 + 2) * 4);
    assert_int_equal(workspace(square(2, 3, 256, 64, false), ATTN_BWD), 6 * 256 * 2 * 4);
    assert_int_equal(workspace(square(2, 3, 257, 64, false), ATTN_BWD), 6 * 288 * (64 + 2) * 4);
}

static double flops(struct attn_problem p, enum attn_mode mode)
{
    const struct attn_request request = {.problem = &p, .device = &gpu, .mode = mode};
    struct attn_work work;
    attn_fused_v1.work(&request, &work);
    return work.flops;
}

/* Two products of each tile in the forward, five in the backward; tiles of 16 rows, the last of which is whole, too. */
static void counts_its_tiles(void **state)
{
    (void)state;
    assert_true(flops(square(2, 3, 512, 64, false), ATTN_FWD) == 2.0 * 2 * 6 * 512 * 512 * 64);
    assert_true(flops(square(2, 3, 512, 64, false), ATTN_BWD) == 5.0 * 2 * 6 * 512 * 512 * 64);
    /* Of 512 rows the first block of 256 keys meets all and the second one the last 256. */
    assert_true(flops(square(1, 1, 512, 64, true), ATTN_FWD) == 2.0 * 2 * (512 + 256) * 256 * 64);
    assert_true(flops(square(1, 1, 250, 128, true), ATTN_FWD) == 2.0 * 2 * (256 + 128) * 128 * 128);
    /* More rows than keys: the first 512 rows see nothing, and get that from the first block of keys. */
    struct attn_problem p = square(1, 1, 1024, 64, true);
    p.kv_len = 512;
    assert_true(flops(p, ATTN_FWD) == 2.0 * 2 * (1024 + 256) * 256 * 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refuses_in_words), cmocka_unit_test(keeps_sums_between_turns),
                                       cmocka_unit_test(counts_its_tiles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
