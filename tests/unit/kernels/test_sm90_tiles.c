/* Which tiles fused_sm90 chooses and what it refuses: plain C that needs no device, only its description. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "kernels/attention.h"
#include "kernels/sm90/fused_sm90.h"
#include "kernels/sm90/fwd/params.h"
#include "tests/dense.h"

/* Of an H200. */
static const struct attn_device h200 = {
    .platform = ATTN_CUDA, .sm = 90, .multiprocessors = 132, .smem_per_block_bytes = 232448, .l2_bytes = 60 << 20};

static struct attn_problem self_attention(int64_t batch, int64_t heads, int64_t len, int64_t head_dim, bool causal)
{
    const struct attn_problem p =
        DENSE(batch, heads, heads, len, len, head_dim, ATTN_FP16, ATTN_BSHD, causal, -1, -1, 0.125f, 0);
    return p;
}

static const char *front_chosen(struct attn_problem p, enum attn_mode mode)
{
    const struct attn_request request = {.problem = &p, .device = &h200, .mode = mode};
    struct attn_message why = {""};
    assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_OK);
    return attn_fused_sm90.variant(&request);
}

static void tiles_follow_head_dim_and_length(void **state)
{
    (void)state;
    assert_string_equal(front_chosen(self_attention(16, 16, 1024, 128, true), ATTN_FWD), "fwd_d128_m128n128_s2");
    assert_string_equal(front_chosen(self_attention(8, 16, 2048, 128, true), ATTN_FWD), "fwd_d128_m128n128_s2");
    assert_string_equal(front_chosen(self_attention(16, 16, 1024, 128, false), ATTN_FWD), "fwd_d128_m128n128_s2");
    /* Blocks of 128 keys go past the diagonal of causal rows; full ones are 2752 tiles of 192 rows in 21 rounds, of 256
     * rows 2048 in 15 and a half, as the last 68 have parts. */
    assert_string_equal(front_chosen(self_attention(2, 32, 4096, 64, true), ATTN_FWD), "fwd_d64_m256n64_s5");
    assert_string_equal(front_chosen(self_attention(1, 16, 4096, 64, false), ATTN_FWD), "fwd_d64_m256n64_s5");
    /* Of 1024 rows 192 pad an eighth. */
    assert_string_equal(front_chosen(self_attention(16, 32, 1024, 64, true), ATTN_FWD), "fwd_d64_m256n64_s5");
    assert_string_equal(front_chosen(self_attention(16, 32, 1024, 64, false), ATTN_FWD), "fwd_d64_m256n64_s5");
    /* 20 rounds of 192 rows or 15 of 256, of which a row costs less. */
    assert_string_equal(front_chosen(self_attention(10, 32, 1536, 64, false), ATTN_FWD), "fwd_d64_m256n64_s5");
}

/* Pairs of thread blocks are for launches that last long enough for power to be the limit: in the paper sweep from 4k
 * tokens on, causal ones of head_dim 64 from 8k; not with few heads. */
static void long_launches_have_pairs(void **state)
{
    static const char *const d128 = "fwd_d128_m128n128_s2_pair", *const d64 = "fwd_d64_m256n64_s8_pair";
    (void)state;
    for (int64_t len = 4096; len <= 16384; len *= 2) {
        assert_string_equal(front_chosen(self_attention(16384 / len, 16, len, 128, true), ATTN_FWD), d128);
        assert_string_equal(front_chosen(self_attention(16384 / len, 16, len, 128, false), ATTN_FWD), d128);
        assert_string_equal(front_chosen(self_attention(16384 / len, 32, len, 64, false), ATTN_FWD), d64);
    }
    assert_string_equal(front_chosen(self_attention(8, 16, 2048, 128, false), ATTN_FWD), "fwd_d128_m128n128_s2");
    assert_string_equal(front_chosen(self_attention(8, 32, 2048, 64, false), ATTN_FWD), "fwd_d64_m256n64_s5");
    assert_string_equal(front_chosen(self_attention(2, 32, 8192, 64, true), ATTN_FWD), d64);
    assert_string_equal(front_chosen(self_attention(4, 32, 4096, 64, true), ATTN_FWD), "fwd_d64_m256n64_s5");
    assert_string_equal(front_chosen(self_attention(1, 8, 4096, 128, false), ATTN_FWD), "fwd_d128_m128n128_s2");
    /* A pair needs two multiprocessors. */
    struct attn_device one = h200;
    struct attn_message why = {""};
    const struct attn_problem p = self_attention(1, 16, 16384, 128, false);
    struct attn_request request = {.problem = &p, .device = &one, .mode = ATTN_FWD};
    one.multiprocessors = 1;
    assert_string_equal(attn_fused_sm90.variant(&request), "fwd_d128_m128n128_s2");
    request.variant = d128;
    assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "fwd_d128_m128n128_s2_pair needs 2 multiprocessors, the device has 1");
}

/* The backward with head_dim 128: blocks take one tile of keys after the other where these are more than
 * multiprocessors. One of N steps takes N + 2 in a block of its own, in a loop N + 1.6, and 0.4 more if it is a block's
 * first. */
static void many_tiles_of_keys_have_a_loop(void **state)
{
    static const char *const once = "bwd_d128_k128q64", *const loop = "bwd_d128_k128q64_loop";
    static const char *const pair = "bwd_d128_k128q64_pair"; /* of long launches; causal ones of shared heads: less */
    (void)state;
    assert_string_equal(front_chosen(self_attention(8, 16, 2048, 128, true), ATTN_BWD), loop);
    assert_string_equal(front_chosen(self_attention(64, 16, 256, 128, false), ATTN_BWD), loop);
    assert_string_equal(front_chosen(self_attention(16, 16, 1024, 128, false), ATTN_BWD), loop);
    assert_string_equal(front_chosen(self_attention(8, 16, 2048, 128, false), ATTN_BWD), pair);
    assert_string_equal(front_chosen(self_attention(1, 16, 16384, 128, false), ATTN_BWD), pair);
    assert_string_equal(front_chosen(self_attention(4, 16, 4096, 128, true), ATTN_BWD), pair);
    assert_string_equal(front_chosen(self_attention(1, 16, 16384, 128, true), ATTN_BWD), pair);
    struct attn_problem grouped = self_attention(4, 32, 8192, 128, true);
    assert_string_equal(front_chosen(grouped, ATTN_BWD), pair);
    grouped.kv_heads = 8;
    assert_string_equal(front_chosen(grouped, ATTN_BWD), loop);
    grouped.causal = false;
    assert_string_equal(front_chosen(grouped, ATTN_BWD), pair);
    /* 132 tiles, one for each multiprocessor: both take 10, and the first of the table is chosen. 136: 20 and 19.6. */
    assert_string_equal(front_chosen(self_attention(1, 33, 512, 128, false), ATTN_BWD), once);
    assert_string_equal(front_chosen(self_attention(1, 34, 512, 128, false), ATTN_BWD), loop);
    /* Causal, 264 tiles, none of which is taken early, so that each takes as long as a first one: both take 22. 272, of
     * which 8 are: 26 and 25.2. */
    assert_string_equal(front_chosen(self_attention(1, 33, 1024, 128, true), ATTN_BWD), once);
    assert_string_equal(front_chosen(self_attention(1, 34, 1024, 128, true), ATTN_BWD), loop);
    /* 128 tiles of 64 steps: both take 66. Causal, the longest take as long, but those without a loop have parts; so
     * have the tiles of one key head. */
    assert_string_equal(front_chosen(self_attention(1, 4, 4096, 128, false), ATTN_BWD), once);
    assert_string_equal(front_chosen(self_attention(1, 4, 4096, 128, true), ATTN_BWD), once);
    struct attn_problem p = self_attention(1, 32, 4096, 128, false);
    p.kv_heads = 1;
    assert_string_equal(front_chosen(p, ATTN_BWD), once);
    /* Deterministic, and what is asked for by name. */
    p = self_attention(64, 16, 256, 128, false);
    struct attn_request request = {.problem = &p, .device = &h200, .mode = ATTN_BWD, .deterministic = true};
    assert_string_equal(attn_fused_sm90.variant(&request), once);
    request.variant = loop;
    assert_string_equal(attn_fused_sm90.variant(&request), loop);
    request.deterministic = false;
    request.variant = once;
    assert_string_equal(attn_fused_sm90.variant(&request), once);
}

/* The backward with head_dim 64: short steps for short problems, pairs for long ones. Of many tiles of keys each takes
 * N + 1.6 with N long steps in a loop, 2 N * 0.59 + 1.3 with short ones, which is less up to N = 1.7, and 0.94 N + 1.8
 * in a pair, which is chosen where a multiprocessor has 400 steps or more. Causal, N is the average, and half a step
 * more in a pair. */
/* Windows at head_dim 128 are 1 to 2 % slower with it; deterministic, only dense ones at 64 have one. */
static void packed_lengths_have_a_loop(void **state)
{
    (void)state;
    for (int i = 0; i < 16; ++i) {
        const bool d64 = i & 1, is_packed = i & 2, deterministic = i & 8;
        struct attn_problem p = self_attention(2, 16, 2048, d64 ? 64 : 128, true);
        const struct attn_request request = {
            .problem = &p, .device = &h200, .mode = ATTN_BWD, .deterministic = deterministic};
        struct attn_message why = {""};
        p.window_left = i & 4 || !is_packed ? 255 : -1;
        if (is_packed) {
            p.lengths = ATTN_PACKED;
            p.total_q = p.total_k = p.batch * p.q_len;
        }
        assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_OK);
        const bool loops = !deterministic && (d64 || is_packed);
        assert_string_equal(attn_fused_sm90.variant(&request),
                            d64 ? (loops ? "bwd_ranges_d64_k128q128_loop" : "bwd_ranges_d64_k128q128")
                                : (loops ? "bwd_ranges_d128_k128q64_loop" : "bwd_ranges_d128_k128q64"));
    }
}

static void short_problems_have_short_steps(void **state)
{
    static const char *const pair = "bwd_d64_k128q128_pair";
    static const char *const long_steps = "bwd_d64_k128q128", *const short_steps = "bwd_d64_k128q64";
    static const char *const few = "bwd_d64_k128q128_few";
    static const char *const loop = "bwd_d64_k128q128_loop"; /* long steps, one tile of keys after the other */
    (void)state;
    assert_string_equal(front_chosen(self_attention(64, 32, 128, 64, false), ATTN_BWD), short_steps); /* N = 1 */
    assert_string_equal(front_chosen(self_attention(64, 32, 256, 64, false), ATTN_BWD), loop);        /* 2 */
    assert_string_equal(front_chosen(self_attention(32, 32, 512, 64, false), ATTN_BWD), loop);
    assert_string_equal(front_chosen(self_attention(16, 32, 1024, 64, false), ATTN_BWD), loop);
    assert_string_equal(front_chosen(self_attention(8, 32, 2048, 64, false), ATTN_BWD), pair); /* 16 */
    assert_string_equal(front_chosen(self_attention(6, 32, 2048, 64, false), ATTN_BWD), loop); /* 372 in all */
    assert_string_equal(front_chosen(self_attention(1, 32, 16384, 64, false), ATTN_BWD), pair);
    assert_string_equal(front_chosen(self_attention(64, 32, 256, 64, true), ATTN_BWD), short_steps); /* N = 1.5 */
    assert_string_equal(front_chosen(self_attention(32, 32, 512, 64, true), ATTN_BWD), loop);        /* 2.5 */
    assert_string_equal(front_chosen(self_attention(16, 32, 1024, 64, true), ATTN_BWD), loop);
    assert_string_equal(front_chosen(self_attention(8, 32, 2048, 64, true), ATTN_BWD), loop);  /* 8.5 */
    assert_string_equal(front_chosen(self_attention(4, 32, 4096, 64, true), ATTN_BWD), pair);  /* 16.5 */
    assert_string_equal(front_chosen(self_attention(1, 32, 16384, 64, true), ATTN_BWD), pair); /* 64.5 */
    struct attn_problem drifts = self_attention(1, 64, 16384, 64, true); /* in parts, which stay in the L2 */
    drifts.kv_heads = 4;
    assert_string_equal(front_chosen(drifts, ATTN_BWD), long_steps);
    /* No more tiles of keys than multiprocessors, and those of one key head, which are shared out. */
    assert_string_equal(front_chosen(self_attention(1, 4, 4096, 64, false), ATTN_BWD), long_steps);
    struct attn_problem shared = self_attention(1, 32, 4096, 64, false);
    shared.kv_heads = 1;
    assert_string_equal(front_chosen(shared, ATTN_BWD), long_steps);
    /* Many queries for few keys, and few queries for many keys. */
    struct attn_problem p = self_attention(8, 32, 8192, 64, false);
    p.kv_len = 128;
    assert_string_equal(front_chosen(p, ATTN_BWD), loop);
    p.q_len = 128;
    p.kv_len = 128; /* one tile of keys, and one of queries */
    assert_string_equal(front_chosen(p, ATTN_BWD), short_steps);
    p.kv_len = 512; /* four, over which a block keeps the queries */
    assert_string_equal(front_chosen(p, ATTN_BWD), few);
    p.kv_len = 8192;
    assert_string_equal(front_chosen(p, ATTN_BWD), few);
    p.q_len = 256; /* two tiles of queries: pairs add half as often to the same dQ */
    assert_string_equal(front_chosen(p, ATTN_BWD), pair);
    p.q_len = 128;
    p.kv_heads = 16;
    assert_string_equal(front_chosen(p, ATTN_BWD), pair);
    /* Deterministic, and what is asked for by name. */
    p = self_attention(64, 32, 256, 64, true);
    struct attn_request request = {.problem = &p, .device = &h200, .mode = ATTN_BWD, .deterministic = true};
    assert_string_equal(attn_fused_sm90.variant(&request), short_steps);
    request.variant = long_steps;
    struct attn_message why = {""};
    assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_OK);
    assert_string_equal(attn_fused_sm90.variant(&request), long_steps);
    struct attn_problem longest = self_attention(1, 32, 16384, 64, false); /* in pairs where additions have no order */
    const struct attn_request ordered = {.problem = &longest, .device = &h200, .mode = ATTN_BWD, .deterministic = true};
    assert_string_equal(attn_fused_sm90.variant(&ordered), loop);
    request.deterministic = false;
    request.variant = NULL;
    assert_string_equal(attn_fused_sm90.variant(&request), short_steps);
    request.variant = loop;
    assert_string_equal(attn_fused_sm90.variant(&request), loop);
    /* Pairs have no deterministic kernels. */
    request.variant = pair;
    assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_OK);
    request.deterministic = true;
    assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "bwd_d64_k128q128_pair has no deterministic backward");
    /* Nor have blocks that keep their queries, which are those of one head. */
    request.variant = few;
    request.deterministic = false;
    assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "bwd_d64_k128q128_few takes up to 128 queries, of one query head for each key head");
    p.q_len = 128;
    assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_OK);
    request.deterministic = true;
    assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "bwd_d64_k128q128_few has no deterministic backward");
}

/* K and V of a section of the forward take a quarter of the L2, 15 MB of an H200's; up to 1024 keys an eighth. */
static void sections_of_the_forward(void **state)
{
    static const size_t L2 = 60 << 20;
    (void)state;
    struct attn_problem p = self_attention(4, 32, 4096, 64, true); /* 128 heads of 1 MB */
    assert_int_equal(fused_sm90_fwd_sections(&p, L2), 9);
    p.causal = false;
    assert_int_equal(fused_sm90_fwd_sections(&p, L2), 128);
    p = self_attention(64, 16, 512, 128, true); /* 1024 of 256 KB */
    assert_int_equal(fused_sm90_fwd_sections(&p, L2), 34);
    p = self_attention(16, 16, 1024, 128, true); /* 256 of 512 KB */
    assert_int_equal(fused_sm90_fwd_sections(&p, L2), 17);
    p.dtype = ATTN_E4M3; /* of half the bytes */
    assert_int_equal(fused_sm90_fwd_sections(&p, L2), 9);
    p.dtype = ATTN_BF16;
    p.kv_len = 1025;
    assert_int_equal(fused_sm90_fwd_sections(&p, L2), 9);
    p = self_attention(1, 16, 65536, 128, true); /* 16 of 32 MB */
    assert_int_equal(fused_sm90_fwd_sections(&p, L2), 16);
    p = self_attention(1, 8, 1024, 64, true); /* 8 of 256 KB */
    assert_int_equal(fused_sm90_fwd_sections(&p, L2), 1);
}

/* Of packed sequences as well; but one has two work tiles for each multiprocessor, and all are of about one size. */
static void sections_of_packed_sequences(void **state)
{
    static const size_t L2 = 60 << 20;
    (void)state;
    struct attn_problem p = self_attention(16, 32, 2048, 64, true);
    p.lengths = ATTN_PACKED;
    p.total_q = p.total_k = 32768; /* heads of 8 MB, each 128 tiles of 256 rows: one would be in the L2 */
    assert_int_equal(fused_sm90_fwd_packed_section(&p, 256, 132, L2), 2);
    p.kv_heads = 8; /* 512 tiles */
    assert_int_equal(fused_sm90_fwd_packed_section(&p, 256, 132, L2), 4);
    p.kv_heads = 32;
    p.total_q = p.total_k = 16384; /* of 4 MB, 64 tiles: four for two waves */
    assert_int_equal(fused_sm90_fwd_packed_section(&p, 256, 132, L2), 4);
    p.total_q = p.total_k = 2048; /* of 512 KB, 8 tiles: 30 in the L2, 33 for two waves */
    assert_int_equal(fused_sm90_fwd_packed_section(&p, 256, 132, L2), 32);
    p.q_heads = p.kv_heads = 7; /* not 4 and 3 sections of 1, but 7 in one */
    p.total_q = p.total_k = 16384;
    assert_int_equal(fused_sm90_fwd_packed_section(&p, 256, 132, L2), 7);
    p.total_q = p.total_k = 0;
    assert_int_equal(fused_sm90_fwd_packed_section(&p, 256, 132, L2), 7);
}

static void few_tiles_are_spread(void **state)
{
    (void)state;
    /* 88 tiles of 192 rows or 128 of 128: one each. */
    assert_string_equal(front_chosen(self_attention(1, 8, 2048, 64, false), ATTN_FWD), "fwd_d64_m128n128_s3_k2");
    /* 132 of 192, one each; 192 of 128 would be two for some. */
    assert_string_equal(front_chosen(self_attention(1, 12, 2048, 64, false), ATTN_FWD), "fwd_d64_m192n128_s3");
    /* 128 of 256, one each; 176 of 192 would be two for some. */
    assert_string_equal(front_chosen(self_attention(1, 8, 4096, 64, false), ATTN_FWD), "fwd_d64_m256n64_s5");
    /* 128 of 64, one each; of 128 rows there would be 64. */
    assert_string_equal(front_chosen(self_attention(1, 8, 1024, 64, false), ATTN_FWD), "fwd_d64_m64n128_s5_k2");
    assert_string_equal(front_chosen(self_attention(1, 4, 2048, 64, false), ATTN_FWD), "fwd_d64_m64n128_s5_k2");
    /* Causal, the longest tile is the time unless there are short ones enough to fill the gaps: 288 and 272 of 64
     * rows. */
    assert_string_equal(front_chosen(self_attention(1, 9, 2048, 64, true), ATTN_FWD), "fwd_d64_m64n128_s5_k2");
    assert_string_equal(front_chosen(self_attention(1, 17, 1024, 64, true), ATTN_FWD), "fwd_d64_m64n128_s5_k2");
    assert_string_equal(front_chosen(self_attention(1, 8, 4096, 64, true), ATTN_FWD), "fwd_d64_m128n128_s3_k2");
    /* The same with head_dim 128: 64 rows where 128 of them leave multiprocessors without work or, causal, with the
     * longest tile alone. */
    assert_string_equal(front_chosen(self_attention(1, 8, 1024, 128, false), ATTN_FWD), "fwd_d128_m64n128_s2_k2");
    assert_string_equal(front_chosen(self_attention(1, 8, 2048, 128, true), ATTN_FWD), "fwd_d128_m64n128_s2_k2");
    assert_string_equal(front_chosen(self_attention(1, 8, 2048, 128, false), ATTN_FWD), "fwd_d128_m128n128_s2");
    assert_string_equal(front_chosen(self_attention(1, 8, 4096, 128, true), ATTN_FWD), "fwd_d128_m128n128_s2");
    /* Causal, 192 tiles of 128 rows: those of the first 132 are long and stay alone; of 64 rows there would be three
     * for most. */
    assert_string_equal(front_chosen(self_attention(2, 12, 1024, 128, true), ATTN_FWD), "fwd_d128_m128n128_s2");
    assert_string_equal(front_chosen(self_attention(1, 12, 2048, 128, true), ATTN_FWD), "fwd_d128_m128n128_s2");
    /* Full, the last 60 of them have two parts each. */
    assert_string_equal(front_chosen(self_attention(1, 12, 2048, 128, false), ATTN_FWD), "fwd_d128_m128n128_s2");
    /* Keys that most rows do not see, and rows that see none. */
    struct attn_problem p = self_attention(1, 8, 2048, 64, true);
    p.kv_len = 16384;
    assert_string_equal(front_chosen(p, ATTN_FWD), "fwd_d64_m128n128_s3_k2");
    p.kv_len = 1;
    assert_non_null(front_chosen(p, ATTN_FWD));
    /* Long keys before short queries, all tiles about as long: 144 of 256 rows would be two for some, 288 of 128 are
     * three. */
    p = self_attention(1, 144, 256, 64, true);
    p.kv_len = 16384;
    assert_string_equal(front_chosen(p, ATTN_FWD), "fwd_d64_m128n128_s3_k2");
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
        cmocka_unit_test(long_launches_have_pairs),
        cmocka_unit_test(many_tiles_of_keys_have_a_loop),
        cmocka_unit_test(packed_lengths_have_a_loop),
        cmocka_unit_test(short_problems_have_short_steps),
        cmocka_unit_test(sections_of_the_forward),
        cmocka_unit_test(sections_of_packed_sequences),
        cmocka_unit_test(few_tiles_are_spread),
        cmocka_unit_test(refusals_say_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
