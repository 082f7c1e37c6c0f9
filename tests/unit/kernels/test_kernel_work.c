/* What implementations say of their work: the FLOPs of the tiles that they compute, counted by hand here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "kernels/attention.h"
#include "tests/dense.h"

/* Of an H200. */
static const struct attn_device h200 = {
    .platform = ATTN_CUDA, .sm = 90, .multiprocessors = 132, .smem_per_block_bytes = 232448, .l2_bytes = 60 << 20};

static const struct attn_impl *find(const char *name)
{
    for (const struct attn_impl *const *impl = attn_registry(); *impl; impl++)
        if (!strcmp((*impl)->name, name))
            return *impl;
    print_message("this build has no %s\n", name);
    skip();
    return NULL;
}

struct asked {
    const char *impl, *variant;
    enum attn_mode mode;
    enum attn_dtype dtype;
    int64_t q_heads, kv_heads, q_len, kv_len, head_dim;
    bool causal;
};

static struct attn_work work_of(const struct asked *a)
{
    const struct attn_problem p = DENSE(1, a->q_heads, a->kv_heads, a->q_len, a->kv_len, a->head_dim, a->dtype,
                                        ATTN_BSHD, a->causal, -1, -1, 0.125f, 0);
    const struct attn_request request = {.problem = &p, .device = &h200, .mode = a->mode, .variant = a->variant};
    const struct attn_impl *const impl = find(a->impl);
    struct attn_message why = {""};
    struct attn_work work;
    if (impl->accepts(&request, &why) != ATTN_OK)
        fail_msg("%s", why.text);
    impl->work(&request, &work);
    return work;
}

/* FLOPs in products of so many rows, keys and columns. */
static void is_products(const struct asked *a, double rows, double keys, double columns)
{
    const struct attn_work work = work_of(a);
    if (work.flops != 2 * rows * keys * columns)
        fail_msg("%s, head_dim %d, mode %d: %.0f FLOPs, not %.0f", a->impl, (int)a->head_dim, a->mode, work.flops,
                 2 * rows * keys * columns);
}

/* Without a mask everything is computed: S and O of each row and key, five products of each backward; there each
 * warpgroup of fused_sm90 has one product more (whole_squares_backward). */
static void whole_squares(void **state)
{
    (void)state;
    static const char *const d128[] = {"fwd_d128_m128n128_s2", "fwd_d128_m128n128_s2_pair", "fwd_d128_m64n128_s2_k2"};
    for (int i = 0; i < 3; i++)
        is_products(&(struct asked){"fused_sm90", d128[i], ATTN_FWD, ATTN_BF16, 2, 2, 512, 1024, 128, false}, 2 * 512,
                    1024, 2 * 128);
    /* 8 columns of ones beside V. */
    is_products(&(struct asked){"fused_sm90", "fwd_d64_m256n64_s5", ATTN_FWD, ATTN_FP16, 2, 2, 512, 1024, 64, false},
                2 * 512, 1024, 64 + 72);
    is_products(&(struct asked){"fused_sm80", "fwd_d128_m128n64", ATTN_FWD, ATTN_BF16, 2, 2, 512, 1024, 128, false},
                2 * 512, 1024, 2 * 128);
    is_products(&(struct asked){"fused_sm80", "fwd_d64_m128n128", ATTN_FWD, ATTN_FP16, 2, 2, 512, 1024, 64, false},
                2 * 512, 1024, 2 * 64 + 8);
    is_products(&(struct asked){"fused_sm80", NULL, ATTN_BWD, ATTN_BF16, 2, 2, 512, 1024, 128, false}, 2 * 512, 1024,
                5 * 128);
    is_products(&(struct asked){"fused_sm80", NULL, ATTN_BWD, ATTN_FP16, 2, 1, 512, 1024, 64, false}, 2 * 512, 1024,
                5 * 64);
}

/* fused_sm90's warpgroups of 64 keys start S of one step more than there are, with short steps dP as well. */
static void whole_squares_backward(void **state)
{
    (void)state;
    /* Tiles of 64 queries: 16 warpgroups, for each of which the two heads have 16 steps. */
    is_products(
        &(struct asked){"fused_sm90", "bwd_d128_k128q64_pair", ATTN_BWD, ATTN_BF16, 2, 1, 512, 1024, 128, false}, 64,
        64, 128 * 16 * (5 * 16 + 1));
    /* Of 128: in each head 16 warpgroups with 4 steps. */
    is_products(&(struct asked){"fused_sm90", "bwd_d64_k128q128_loop", ATTN_BWD, ATTN_FP16, 2, 2, 512, 1024, 64, false},
                64, 128, 64 * 32 * (5 * 4 + 1));
    /* Short steps: 8. Of 256 heads, so that no tile of keys has parts. */
    is_products(&(struct asked){"fused_sm90", "bwd_d64_k128q64", ATTN_BWD, ATTN_BF16, 256, 256, 512, 1024, 64, false},
                64, 64, 64 * 256 * 16 * (5 * 8 + 2));
    /* One tile of queries, which is kept: nothing more. */
    is_products(&(struct asked){"fused_sm90", "bwd_d64_k128q128_few", ATTN_BWD, ATTN_BF16, 2, 2, 128, 1024, 64, false},
                2 * 128, 1024, 5 * 64);
}

/* Parts of a tile of keys have it each: as many as the host chooses where tiles are few. */
static void parts_backward(void **state)
{
    (void)state;
    const struct asked a = {"fused_sm90", "bwd_d128_k128q64", ATTN_BWD, ATTN_BF16, 1, 1, 2048, 1024, 128, false};
    const double unit = 2.0 * 64 * 64 * 128, parts = work_of(&a).flops / unit / 16 - 5 * 32;
    assert_true(parts >= 2 && parts <= 32 && parts == (int)parts);
}

/* What an H200 counted (results/h200/bars/counters.csv), to the last product. */
static void as_counted(void **state)
{
    static const struct {
        const char *variant;
        int64_t heads, length;
        bool causal;
        double flops;
    } counted[] = {{"bwd_d128_k128q64_loop", 256, 1024, false, 347892350976},
                   {"bwd_d128_k128q64_pair", 64, 4096, false, 1378969714688},  /* the last work tiles have 3 parts */
                   {"bwd_d128_k128q64_pair", 32, 8192, false, 2753644462080},  /* 5 */
                   {"bwd_d128_k128q64_pair", 16, 16384, false, 5502708744192}, /* 7 */
                   {"bwd_d128_k128q64_pair", 64, 4096, true, 708669603840},
                   {"bwd_d128_k128q64_pair", 32, 8192, true, 1395864371200},
                   {"bwd_d128_k128q64_pair", 16, 16384, true, 2770253905920},
                   {"fwd_d128_m128n128_s2_pair", 64, 4096, true, 283467841536}};
    (void)state;
    for (size_t i = 0; i < sizeof counted / sizeof counted[0]; i++) {
        const int64_t heads = counted[i].heads, length = counted[i].length;
        const struct asked a = {
            "fused_sm90", counted[i].variant, i == 7 ? ATTN_FWD : ATTN_BWD, ATTN_BF16, heads, heads, length, length,
            128,          counted[i].causal};
        if (work_of(&a).flops != counted[i].flops)
            fail_msg("%s, %d rows: %.0f FLOPs, counted %.0f", a.variant, (int)length, work_of(&a).flops,
                     counted[i].flops);
    }
}

/* Rows and keys that pad a tile are computed as well; of the last block of keys half the scores where no row sees more.
 */
static void padding(void **state)
{
    (void)state;
    is_products(&(struct asked){"fused_sm90", "fwd_d128_m128n128_s2", ATTN_FWD, ATTN_BF16, 1, 1, 128, 129, 128, false},
                128, (128 + 64) + 2 * 128, 128);
    is_products(&(struct asked){"fused_sm90", "fwd_d128_m128n128_s2", ATTN_FWD, ATTN_BF16, 1, 1, 128, 193, 128, false},
                128, 256, 2 * 128);
    is_products(&(struct asked){"fused_sm90", "bwd_d128_k128q64_loop", ATTN_BWD, ATTN_BF16, 1, 1, 65, 128, 128, false},
                64, 64, 128 * 2 * (5 * 2 + 1));
}

/* 256 rows and keys: two tiles of 128 rows, of which each 64 see of their last block 64 keys, or all 128. */
static void causal_forward(void **state)
{
    (void)state;
    /* Both warpgroups compute all blocks of their tile, but the upper one half the scores of the block on the diagonal:
     * (1 + 2) blocks x 2 warpgroups, less half of S in two. */
    const double blocks = 2.0 * (1 + 2);
    is_products(&(struct asked){"fused_sm90", "fwd_d128_m128n128_s2", ATTN_FWD, ATTN_BF16, 1, 1, 256, 256, 128, true},
                64, 128, 128 * (blocks - 2 * 0.5) + 128 * blocks);
    /* A pair: each warpgroup goes through the blocks that its own rows see: 1, 1, 2, 2. */
    is_products(
        &(struct asked){"fused_sm90", "fwd_d128_m128n128_s2_pair", ATTN_FWD, ATTN_BF16, 1, 1, 256, 256, 128, true}, 64,
        128, 2 * 128 * 6);
    /* Blocks of 64 keys: 1, 2, 3, 4. */
    is_products(&(struct asked){"fused_sm90", "fwd_d64_m256n64_s5", ATTN_FWD, ATTN_BF16, 1, 1, 256, 256, 64, true}, 64,
                64, (64 + 72) * 10);
    /* mma.sync: warps of 32 rows. Of the first 128 rows tiles of 64 keys: 1, 1, 2, 2; then 3, 3, 4, 4. */
    is_products(&(struct asked){"fused_sm80", "fwd_d128_m128n64", ATTN_FWD, ATTN_BF16, 1, 1, 256, 256, 128, true}, 32,
                64, 2 * 128 * (6 + 14));
}

static void causal_backward(void **state)
{
    (void)state;
    /* Tiles of 64 queries. Keys 0 to 127: steps 0 to 3, of which the second 64 keys leave out the first. Keys 128 to
     * 255: steps 2 and 3, likewise. dQ takes all 128 keys of each step; four warpgroups have one product more. */
    is_products(&(struct asked){"fused_sm90", "bwd_d128_k128q64_loop", ATTN_BWD, ATTN_BF16, 1, 1, 256, 256, 128, true},
                64, 64, 128 * (4.0 * (4 + 3 + 2 + 1) + 2.0 * (4 + 2) + 4));
    /* A pair goes through the steps of both tiles of keys; dQ is for all 256. */
    is_products(&(struct asked){"fused_sm90", "bwd_d128_k128q64_pair", ATTN_BWD, ATTN_BF16, 1, 1, 256, 256, 128, true},
                64, 64, 128 * (4.0 * (4 + 3 + 2 + 1) + 4.0 * 4 + 4));
    /* With shared heads it passes over one step at most: 4, 3, 3, 3. */
    is_products(&(struct asked){"fused_sm90", "bwd_d128_k128q64_pair", ATTN_BWD, ATTN_BF16, 2, 1, 256, 256, 128, true},
                64, 64, 128 * (2 * (4.0 * (4 + 3 + 3 + 3) + 4.0 * 4) + 4));
    /* mma.sync: 32 keys, all 64 queries of a step (d64). Keys 0 to 127: the step of queries 0 to 63 is seen by two
     * warps of four, the others by all; the same for keys 128 to 255. dQ: 128 keys in each step. */
    is_products(&(struct asked){"fused_sm80", NULL, ATTN_BWD, ATTN_BF16, 1, 1, 256, 256, 64, true}, 32, 64,
                64 * (4.0 * (2 + 4 + 4 + 4 + 2 + 4) + 4.0 * (4 + 2)));
}

/* What it says is at least what the visible pairs need, for any lengths. */
static void at_least_what_is_needed(void **state)
{
    static const char *const impls[] = {"fused_sm90", "fused_sm80"};
    (void)state;
    for (int i = 0; i < 2; i++)
        for (int64_t q_len = 1; q_len < 900; q_len += 149)
            for (int64_t kv_len = q_len; kv_len < 1200; kv_len += 211)
                for (int c = 0; c < 8; c++) {
                    const bool causal = c & 1, is_bwd = c & 2;
                    const int64_t d = c & 4 ? 128 : 64;
                    const struct asked a = {
                        impls[i], NULL, is_bwd ? ATTN_BWD : ATTN_FWD, ATTN_BF16, 2, 2, q_len, kv_len, d, causal};
                    const double pairs =
                        (double)q_len * (double)kv_len - (causal ? (double)q_len * (double)(q_len - 1) / 2 : 0);
                    if (work_of(&a).flops < 2 * pairs * 2.0 * (double)d * (is_bwd ? 5 : 2))
                        fail_msg("%s: %d rows, %d keys, case %d", impls[i], (int)q_len, (int)kv_len, c);
                }
}

/* Of decode and of 8 bits, whose kernels are others, nothing is said. */
static void of_dense_16_bits_alone(void **state)
{
    static const char *const impls[] = {"fused_sm90", "fused_sm80"};
    struct attn_problem p = DENSE(1, 2, 2, 256, 256, 128, ATTN_BF16, ATTN_BSHD, false, -1, -1, 0.125f, 0);
    const struct attn_request request = {.problem = &p, .device = &h200, .mode = ATTN_FWD};
    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct attn_impl *const impl = find(impls[i]);
        struct attn_work work;
        p.lengths = ATTN_FIXED;
        p.dtype = ATTN_BF16;
        impl->work(&request, &work);
        assert_true(work.flops > 0 && work.tile_rows > 0);
        p.lengths = ATTN_CACHE;
        impl->work(&request, &work);
        assert_true(work.flops == 0 && work.tile_rows == 0);
        p.lengths = ATTN_FIXED;
        p.dtype = ATTN_E4M3;
        impl->work(&request, &work);
        assert_true(work.flops == 0 && work.tile_rows == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_squares),
        cmocka_unit_test(whole_squares_backward),
        cmocka_unit_test(parts_backward),
        cmocka_unit_test(as_counted),
        cmocka_unit_test(padding),
        cmocka_unit_test(causal_forward),
        cmocka_unit_test(causal_backward),
        cmocka_unit_test(at_least_what_is_needed),
        cmocka_unit_test(of_dense_16_bits_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
