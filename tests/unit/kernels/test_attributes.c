/* What a request asks beyond dense attention (attn_attributes) is refused in words by every implementation that has not
 * named it; what fused_sm80 and fused_sm90's decode have kernels for. Needs no device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "kernels/attention.h"
#include "kernels/common/checks.h"
#ifdef FABENCH_WITH_CUDA
#include "kernels/family/softcap_near.h"
#include "kernels/sm80/bwd/params.h"
#include "kernels/sm80/fused_sm80.h"
#include "kernels/sm90/fused_sm90.h"
#endif
#include "reference/registry.h"
#include "tests/dense.h"

static const struct attn_problem dense = DENSE(2, 4, 2, 128, 128, 64, ATTN_FP32, ATTN_BSHD, true, -1, -1, 0.125f, 0);

/* Each attribute alone, and the words of its refusal. */
struct asked {
    unsigned bit;
    const char *words;
    struct attn_problem problem;
    bool precise, invariant, fast;
    int64_t splits;
    unsigned outputs;    /* beside those of the direction */
    unsigned no_outputs; /* of the direction */
};

enum { ASKED = 22 };

static void fill_asked(struct asked all[ASKED])
{
    static const struct {
        unsigned bit;
        const char *words;
    } asked[ASKED] = {
        {ATTN_WITH_WINDOW, "takes no window"},
        {ATTN_WITH_WINDOW, "takes no window"},
        {ATTN_WITH_DROPOUT, "takes no dropout"},
        {ATTN_WITH_SOFTCAP, "takes no softcap"},
        {ATTN_WITH_PACKED_LENGTHS, "takes no sequences of different lengths"},
        {ATTN_WITH_CACHE, "takes no cache"},
        {ATTN_WITH_PAGES, "takes no paged cache"},
        {ATTN_WITH_BLOCK_MASK, "takes no block mask"},
        {ATTN_WITH_8_BIT, "takes no 8-bit inputs"},
        {ATTN_WITH_PRECISE, "takes no precise mode"},
        {ATTN_WITH_SPLITS, "takes no number of splits"},
        {ATTN_WITH_V_HEAD_DIM, "takes no V whose head_dim is not that of Q and K"},
        {ATTN_WITH_SINK, "takes no sink"},
        {ATTN_WITH_ALIBI, "takes no ALiBi"},
        {ATTN_WITH_BIAS, "takes no bias"},
        {ATTN_WITH_CACHE_DTYPE, "takes no 8-bit cache of 16-bit queries"},
        {ATTN_WITH_CACHE | ATTN_WITH_PACKED_ROWS, "takes no numbers of new rows that differ"},
        {ATTN_WITH_INVARIANT, "takes no invariant mode"},
        {ATTN_WITH_FAST, "takes no fast mode"},
        {ATTN_WITH_FEWER_OUTPUTS, "takes no request for a part of the outputs"},
        {ATTN_WITH_DSINK, "computes no dSink"},
        {ATTN_WITH_DBIAS, "computes no dBias"},
    };
    for (int i = 0; i < ASKED; i++)
        all[i] = (struct asked){.bit = asked[i].bit, .words = asked[i].words, .problem = dense};
    all[0].problem.window_left = 0;
    all[1].problem.window_right = 7;
    all[2].problem.dropout = 0.1f;
    all[3].problem.softcap = 30;
    all[4].problem.lengths = ATTN_PACKED;
    all[5].problem.lengths = ATTN_CACHE;
    all[6].problem.page_size = 16;
    all[7].problem.mask_block = 128;
    all[8].problem.dtype = ATTN_E4M3;
    all[9].precise = true;
    all[10].splits = 4;
    all[11].problem.v_head_dim = 56;
    all[12].problem.has_sink = true;
    all[13].problem.has_alibi = true;
    all[14].problem.bias_batch = all[14].problem.bias_heads = 1;
    all[15].problem.cache_dtype = ATTN_E4M3;
    all[15].problem.quant_scale = ATTN_SCALE_HEAD;
    all[16].problem.lengths = ATTN_CACHE;
    all[16].problem.total_q = 9;
    all[17].invariant = true;
    all[18].fast = true;
    all[19].no_outputs = ATTN_LSE | ATTN_DK;
    all[20].outputs = ATTN_DSINK;
    all[21].outputs = ATTN_DBIAS;
}

static const struct attn_device cpu = {.platform = ATTN_CPU, .threads = 2};
static const struct attn_device gpu = {
    .platform = ATTN_CUDA, .sm = 90, .multiprocessors = 132, .smem_per_block_bytes = 232448, .l2_bytes = 50 << 20};

static struct attn_request request_of(const struct asked *a, enum attn_mode mode)
{
    struct attn_request request = {.problem = &a->problem,
                                   .device = &cpu,
                                   .mode = mode,
                                   .precise = a->precise,
                                   .splits = a->splits,
                                   .invariant = a->invariant,
                                   .fast = a->fast};
    if (a->outputs || a->no_outputs)
        request.outputs = (attn_default_outputs(mode) | a->outputs) & ~a->no_outputs;
    return request;
}

static void each_is_seen_alone(void **state)
{
    struct asked all[ASKED];
    (void)state;
    fill_asked(all);
    const struct attn_request plain = {.problem = &dense, .device = &cpu};
    assert_int_equal(attn_attributes(&plain), 0);
    struct attn_message why = {""};
    assert_int_equal(attn_check_attributes(&plain, 0, &why), ATTN_OK);
    unsigned seen = 0;
    for (int i = 0; i < 2 * ASKED; i++) {
        const struct asked *a = &all[i / 2];
        const struct attn_request request = request_of(a, (enum attn_mode)(i % 2));
        const unsigned last = a->bit & ~(a->bit & (a->bit - 1) ? ATTN_WITH_CACHE : 0u); /* rows of a cache have two */
        assert_int_equal(attn_attributes(&request), a->bit);
        assert_int_equal(attn_check_attributes(&request, ~last, &why), ATTN_UNSUPPORTED);
        assert_string_equal(why.text, a->words);
        assert_int_equal(attn_check_attributes(&request, a->bit, &why), ATTN_OK);
        seen |= a->bit;
    }
    assert_int_equal(seen, 2 * ATTN_WITH_DBIAS - 1); /* no bit without a case here */
}

/* What each implementation computes beyond dense attention; those that are not listed compute nothing of it. */
static const struct {
    const char *name;
    enum attn_platform platform;
    unsigned known;
} known[] = {
    {"cudnn", ATTN_CUDA,
     ATTN_WITH_WINDOW | ATTN_WITH_DROPOUT | ATTN_WITH_SOFTCAP | ATTN_WITH_PACKED_LENGTHS | ATTN_WITH_V_HEAD_DIM |
         ATTN_WITH_SINK | ATTN_WITH_DSINK | ATTN_WITH_BIAS | ATTN_WITH_DBIAS},
    {"fused_cpu", ATTN_CPU,
     ATTN_WITH_WINDOW | ATTN_WITH_DROPOUT | ATTN_WITH_SOFTCAP | ATTN_WITH_PACKED_LENGTHS | ATTN_WITH_CACHE |
         ATTN_WITH_PAGES | ATTN_WITH_BLOCK_MASK | ATTN_WITH_8_BIT | ATTN_WITH_SPLITS | ATTN_WITH_V_HEAD_DIM |
         ATTN_WITH_SINK | ATTN_WITH_DSINK | ATTN_WITH_ALIBI | ATTN_WITH_BIAS | ATTN_WITH_DBIAS | ATTN_WITH_INVARIANT |
         ATTN_WITH_FAST | ATTN_WITH_FEWER_OUTPUTS | ATTN_WITH_PACKED_ROWS | ATTN_WITH_CACHE_DTYPE},
    {"fused_sm80", ATTN_CUDA,
     ATTN_WITH_WINDOW | ATTN_WITH_DROPOUT | ATTN_WITH_SOFTCAP | ATTN_WITH_PACKED_LENGTHS | ATTN_WITH_BLOCK_MASK |
         ATTN_WITH_V_HEAD_DIM},
    {"fused_sm90", ATTN_CUDA, ATTN_WITH_WINDOW | ATTN_WITH_PACKED_LENGTHS | ATTN_WITH_BLOCK_MASK | ATTN_WITH_SOFTCAP},
    {"naive", ATTN_CPU,
     ATTN_WITH_WINDOW | ATTN_WITH_DROPOUT | ATTN_WITH_SOFTCAP | ATTN_WITH_PACKED_LENGTHS | ATTN_WITH_CACHE |
         ATTN_WITH_PAGES | ATTN_WITH_BLOCK_MASK | ATTN_WITH_8_BIT | ATTN_WITH_V_HEAD_DIM | ATTN_WITH_SINK |
         ATTN_WITH_DSINK | ATTN_WITH_ALIBI | ATTN_WITH_BIAS | ATTN_WITH_DBIAS | ATTN_WITH_FAST |
         ATTN_WITH_FEWER_OUTPUTS | ATTN_WITH_PACKED_ROWS | ATTN_WITH_CACHE_DTYPE},
    {"naive", ATTN_CUDA,
     ATTN_WITH_WINDOW | ATTN_WITH_DROPOUT | ATTN_WITH_SOFTCAP | ATTN_WITH_PACKED_LENGTHS | ATTN_WITH_CACHE |
         ATTN_WITH_PAGES | ATTN_WITH_BLOCK_MASK | ATTN_WITH_8_BIT | ATTN_WITH_V_HEAD_DIM | ATTN_WITH_SINK |
         ATTN_WITH_DSINK | ATTN_WITH_ALIBI | ATTN_WITH_BIAS | ATTN_WITH_DBIAS | ATTN_WITH_FAST},
    {"null", ATTN_CPU, ~0u},
    {"null", ATTN_CUDA, ~0u}};

/* What fused_sm80 adds to scores and sums. */
enum { SM80_SCORE_ATTRIBUTES = ATTN_WITH_SINK | ATTN_WITH_ALIBI | ATTN_WITH_BIAS };

/* What one direction of an implementation computes besides. */
static unsigned of_direction(const struct attn_impl *impl, enum attn_mode mode)
{
    if (strcmp(impl->name, "fused_sm80") == 0)
        return SM80_SCORE_ATTRIBUTES | (mode == ATTN_BWD ? ATTN_WITH_DSINK | ATTN_WITH_DBIAS : 0);
    if (mode == ATTN_BWD)
        return 0;
    return strcmp(impl->name, "fused_sm90") == 0 ? ATTN_WITH_SINK | ATTN_WITH_8_BIT : 0;
}

/* Of fused_sm90, whose forward against a cache is a direction of its own. */
enum {
    SM90_DECODE = ATTN_WITH_CACHE | ATTN_WITH_PAGES | ATTN_WITH_SPLITS | ATTN_WITH_WINDOW | ATTN_WITH_SINK |
                  ATTN_WITH_CACHE_DTYPE | ATTN_WITH_PACKED_ROWS | ATTN_WITH_INVARIANT
};

/* The same of fused_sm80. */
enum { SM80_DECODE = ATTN_WITH_CACHE | ATTN_WITH_PAGES | ATTN_WITH_SPLITS | ATTN_WITH_WINDOW | ATTN_WITH_SINK };

static unsigned known_of(const struct attn_impl *impl, const struct attn_request *request)
{
    if (strcmp(impl->name, "fused_sm80") == 0 && request->mode == ATTN_FWD && request->problem->lengths == ATTN_CACHE)
        return SM80_DECODE;
    if (strcmp(impl->name, "fused_sm90") == 0 && request->mode == ATTN_FWD && request->problem->lengths == ATTN_CACHE)
        return SM90_DECODE;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, impl->name) == 0 && known[i].platform == impl->platform)
            return known[i].known | of_direction(impl, request->mode);
    return 0;
}

static void check_impl(const struct attn_impl *impl)
{
    struct asked all[ASKED];
    fill_asked(all);
    for (int i = 0; i < 2 * ASKED; i++) {
        struct asked *a = &all[i / 2];
        struct attn_request request = request_of(a, (enum attn_mode)(i % 2));
        struct attn_message why = {""};
        request.device = impl->platform == ATTN_CUDA ? &gpu : &cpu;
        const enum attn_status status = impl->accepts(&request, &why);
        const unsigned own = known_of(impl, &request);
        const bool is_known = !(a->bit & ~own), is_next = is_known || !(a->bit & own);
        /* Of two bits that are unknown the first one's words are said. */
        const bool is_refused = strcmp(why.text, a->words) == 0 ||
                                (a->bit & ATTN_WITH_PACKED_ROWS && is_next && strcmp(why.text, "takes no cache") == 0);
        if (is_refused == is_known || (status == ATTN_OK && !is_known))
            fail_msg("%s: status %d, '%s' where '%s' belongs to what was asked", impl->name, (int)status, why.text,
                     a->words);
    }
}

#ifdef FABENCH_WITH_CUDA
/* What fused_sm90's decode takes and refuses, each attribute beside a cache. */
static void decode_has_a_direction(void **state)
{
    struct asked all[ASKED];
    int taken = 0;
    (void)state;
    fill_asked(all);
    for (int i = 0; i < ASKED; i++) {
        struct attn_request request = request_of(&all[i], ATTN_FWD);
        struct attn_message why = {""};
        if (all[i].bit == ATTN_WITH_PACKED_LENGTHS) /* not beside a cache */
            continue;
        all[i].problem.lengths = ATTN_CACHE;
        all[i].problem.dtype = all[i].bit == ATTN_WITH_8_BIT ? ATTN_E4M3 : ATTN_BF16;
        all[i].problem.pages = 99, all[i].problem.q_len = 1;
        request.device = &gpu;
        const bool is_known = !(all[i].bit & ~known_of(&attn_fused_sm90, &request));
        const enum attn_status status = attn_fused_sm90.accepts(&request, &why);
        if ((status == ATTN_OK) != is_known || (!is_known && strcmp(why.text, all[i].words) != 0))
            fail_msg("%s: status %d, '%s'", all[i].words, (int)status, why.text);
        taken += is_known;
    }
    assert_int_equal(taken, 9);
}

/* fused_sm90 takes a block mask with that tile, or refuses it in these words; words: NULL where it takes it. */
static void check_mask(const char *tile, const char *words, struct attn_problem p, enum attn_mode mode)
{
    const struct attn_request request = {.problem = &p, .device = &gpu, .mode = mode};
    struct attn_message why = {""};
    const enum attn_status status = attn_fused_sm90.accepts(&request, &why);
    if (status != (words ? ATTN_UNSUPPORTED : ATTN_OK) || (words && strcmp(why.text, words) != 0))
        fail_msg("status %d, '%s' where '%s' was expected", (int)status, why.text, words ? words : "");
    if (status != ATTN_OK)
        return;
    assert_string_equal(attn_fused_sm90.variant(&request), tile);
    assert_true(attn_fused_sm90.workspace_bytes(&request) > 0);
}

/* Blocks of 128 rows and keys and multiples of that have tiles of their own; others and what comes beside a mask do
 * not, and fused_sm80 takes these. */
static void sm90_has_masks_of_128(void **state)
{
    static const char *const tiles[2][2] = {{"fwd_lists_d64_m128n64_s4_x2", "fwd_lists_d128_m128n128_s2"},
                                            {"bwd_lists_d64_k128q128_loop", "bwd_lists_d128_k128q64_loop"}};
    struct attn_problem p = dense, one;
    struct attn_message why = {""};
    (void)state;
    p.dtype = ATTN_BF16;
    p.mask_batch = p.mask_heads = 1;
    for (int i = 0; i < 16; i++) {
        const enum attn_mode mode = (enum attn_mode)(i & 1);
        p.causal = i & 2;
        p.head_dim = i & 4 ? 128 : 64;
        p.mask_heads = i & 8 ? p.q_heads : 1;
        for (p.mask_block = 128; p.mask_block <= 512; p.mask_block += 128)
            check_mask(tiles[mode][p.head_dim == 128], NULL, p, mode);
        check_mask("", "a block mask of 64 rows and keys: takes multiples of 128", (one = p, one.mask_block = 64, one),
                   mode);
        p.mask_block = 128;
        check_mask("", "a block mask beside a window, packed sequences or a softcap: takes it without these",
                   (one = p, one.window_left = 9, one), mode);
        check_mask("", "a block mask beside a window, packed sequences or a softcap: takes it without these",
                   (one = p, one.lengths = ATTN_PACKED, one.total_q = one.total_k = 256, one), mode);
        check_mask("", "a block mask beside a window, packed sequences or a softcap: takes it without these",
                   (one = p, one.softcap = 30, one), mode);
        check_mask("",
                   mode == ATTN_FWD ? "a block mask over 131584 tiles of 64: takes up to 65536"
                                    : "a block mask over 65792 tiles of 128: takes up to 65536",
                   (one = p, one.head_dim = 64, one.q_len = one.kv_len = 65792 * 128, one), mode);
        const struct attn_request small = {.problem = &one, .device = &gpu, .mode = mode};
        one = p, one.mask_block = 64;
        assert_int_equal(attn_fused_sm80.accepts(&small, &why), ATTN_OK);
        const struct attn_request fixed = {.problem = &p, .device = &gpu, .mode = mode, .deterministic = true};
        assert_int_equal(attn_fused_sm90.accepts(&fixed, &why), mode == ATTN_FWD ? ATTN_OK : ATTN_UNSUPPORTED);
        if (mode == ATTN_BWD)
            assert_non_null(strstr(why.text, "has no deterministic backward"));
    }
}

/* What fused_sm80's backward says of a bias whose dBias is asked for; "" where it takes it. */
static const char *sm80_says(struct attn_problem p, bool deterministic)
{
    static struct attn_message why;
    const struct attn_request request = {.problem = &p,
                                         .device = &gpu,
                                         .mode = ATTN_BWD,
                                         .deterministic = deterministic,
                                         .outputs = attn_default_outputs(ATTN_BWD) | ATTN_DBIAS};
    why.text[0] = '\0';
    const enum attn_status status = attn_fused_sm80.accepts(&request, &why);
    assert_int_equal(status == ATTN_OK, why.text[0] == '\0');
    if (status == ATTN_OK) /* sums in fp32, of which there are as many as elements of the bias */
        assert_true(attn_fused_sm80.workspace_bytes(&request) >=
                    (size_t)(p.bias_batch * p.bias_heads * p.q_len * p.kv_len) * sizeof(float));
    return why.text;
}

static void sm80_refuses_some_biases(void **state)
{
    struct attn_problem p = dense, one;
    (void)state;
    p.dtype = p.bias_dtype = ATTN_BF16;
    p.bias_batch = p.batch, p.bias_heads = p.q_heads;
    assert_string_equal(sm80_says(p, false), "");
    assert_string_equal(sm80_says(p, true), "");
    one = p, one.bias_dtype = ATTN_FP32;
    assert_string_equal(sm80_says(one, false), "");
    one = p, one.bias_heads = 1;
    assert_string_equal(sm80_says(one, false), "");
    assert_string_equal(sm80_says(one, true),
                        "the deterministic backward computes no dBias that sequences or heads share");
    one = p, one.softcap = 30;
    assert_string_equal(sm80_says(one, false), "computes no dBias beside a softcap");
    one = p, one.has_alibi = true;
    assert_string_equal(sm80_says(one, false), "takes no bias beside ALiBi");
    one = p, one.bias_dtype = ATTN_FP16;
    assert_string_equal(sm80_says(one, false), "takes a bias in fp32 or in the type of the inputs");
}

/* Windows, packed lengths and softcaps have a deterministic backward. */
static void sm90_has_softcaps(void **state)
{
    static const char *const tiles[2][2][2] = {
        {{"fwd_softcap_d64_m256n64_s5", "fwd_softcap_ranges_d64_m256n64_s5"},
         {"fwd_softcap_d128_m128n128_s2", "fwd_softcap_ranges_d128_m128n128_s2"}},
        {{"bwd_softcap_d64_k128q128", "bwd_softcap_ranges_d64_k128q128"},
         {"bwd_softcap_d128_k128q64", "bwd_softcap_ranges_d128_k128q64"}}};
    struct attn_problem p = dense;
    struct attn_message why = {""};
    (void)state;
    p.dtype = ATTN_BF16;
    for (int i = 0; i < 32; i++) {
        const struct attn_request request = {
            .problem = &p, .device = &gpu, .mode = (enum attn_mode)(i & 1), .deterministic = i & 2};
        p.head_dim = i & 4 ? 128 : 64;
        p.window_left = i & 8 ? 99 : -1;
        p.lengths = i & 16 ? ATTN_PACKED : ATTN_FIXED;
        p.total_q = p.total_k = i & 16 ? p.batch * p.q_len : 0;
        p.softcap = 0;
        assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_OK);
        p.softcap = 30;
        assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_OK);
        assert_string_equal(attn_fused_sm90.variant(&request), tiles[request.mode][p.head_dim == 128][i >= 8]);
        assert_true(attn_fused_sm90.workspace_bytes(&request) > 0);
        p.softcap = 3000;
        assert_int_equal(attn_fused_sm90.accepts(&request, &why), ATTN_UNSUPPORTED);
        p.softcap = 1e-13f;
        assert_int_equal(attn_fused_sm90.accepts(&request, &why),
                         request.mode == ATTN_FWD ? ATTN_OK : ATTN_UNSUPPORTED);
        p.softcap = 0;
        p.kv_len = i & 16 ? 131073 : p.kv_len;
        p.total_k = i & 16 ? p.kv_len : 0;
        const bool is_long = request.mode == ATTN_BWD && request.deterministic && (i & 16);
        assert_int_equal(attn_fused_sm90.accepts(&request, &why), is_long ? ATTN_UNSUPPORTED : ATTN_OK);
        assert_true(!is_long || strstr(why.text, "takes packed sequences up to 131072 keys"));
        p.kv_len = dense.kv_len;
    }
}

/* tanh of small logits: off by as much as softcap_near.h says. */
static void small_logits_have_a_polynomial(void **state)
{
    struct attn_problem p = dense;
    (void)state;
    for (p.softcap = 1e-3f; p.softcap < 2000; p.softcap *= 3)
        for (p.scale = 0.01f; p.scale < 2; p.scale *= 5) {
            const struct family_softcap_near near = family_softcap_near_of(&p);
            const double cap = (double)p.softcap, scale = (double)p.scale;
            if (scale / cap < 1e-3 || scale / cap > 1e3) {
                assert_true(near.largest < 0);
                continue;
            }
            assert_true(near.odd[2] > 0 && (double)near.largest * scale / cap > 0.1);
            for (int i = 0; i <= 100; i++) {
                const double s = (double)near.largest * i / 100, y = s * s;
                const double off = s * ((double)near.odd[0] + y * ((double)near.odd[1] + y * (double)near.odd[2])) -
                                   tanh(s * scale / cap);
                if (!(cap * fabs(off) <= 2e-5 + 1e-7 * cap))
                    fail_msg("softcap %g, scale %g, score %g: off by %g", cap, scale, s, cap * off);
            }
        }
}

/* Thread blocks of 99 KB, as devices of compute capability 8.6, 8.9 and 12.0 have: fused_sm80 takes there what it takes
 * elsewhere, with tiles that fit. */
static void all_fits_into_99_kb(void **state)
{
    const struct attn_device small = {
        .platform = ATTN_CUDA, .sm = 86, .multiprocessors = 84, .smem_per_block_bytes = 101376, .l2_bytes = 6 << 20};
    struct asked all[ASKED];
    struct attn_message why = {""};
    (void)state;
    fill_asked(all);
    for (int i = 0; i <= ASKED; i++)
        for (int wish = 0; wish < 4; wish++)
            for (int64_t head_dim = 8; head_dim <= 256; head_dim += 8) {
                struct attn_problem p = i == ASKED ? dense : all[i].problem;
                struct attn_request request = {
                    .problem = &p, .device = &small, .mode = (enum attn_mode)(wish % 2), .deterministic = wish / 2};
                p.head_dim = head_dim;
                p.dtype = p.dtype == ATTN_E4M3 ? p.dtype : ATTN_BF16;
                if (attn_attributes(&request) &
                    ~(ATTN_WITH_WINDOW | ATTN_WITH_DROPOUT | ATTN_WITH_SOFTCAP | ATTN_WITH_PACKED_LENGTHS |
                      ATTN_WITH_BLOCK_MASK | SM80_SCORE_ATTRIBUTES))
                    continue;
                if (attn_fused_sm80.accepts(&request, &why) != ATTN_OK)
                    fail_msg("head_dim %d, attributes %x: %s", (int)head_dim, attn_attributes(&request), why.text);
            }
}

/* What a tile computes with lists in the forward it computes without them where there is neither packing nor a mask. */
static void every_sparse_tile_has_windows(void **state)
{
    int sparse = 0;
    (void)state;
    for (const struct attn_tile *each = NULL; (each = attn_next_tile(&fused_sm80_fwd_tiles, each)) != NULL;) {
        const struct fused_sm80_fwd_tile *row = (const void *)each;
        for (int bf16 = 0; bf16 < 2; bf16++) {
            assert_int_equal(row->kernels[SM80_SPARSE][bf16] == NULL, row->kernels[SM80_WINDOW][bf16] == NULL);
            sparse += row->kernels[SM80_SPARSE][bf16] != NULL;
        }
    }
    assert_true(sparse > 0);
}

/* The kind of kernel that the forward takes for a problem, with the tile of 128 x 64 at head_dim 64. */
static enum sm80_kind kind_of(struct attn_problem p)
{
    const struct attn_request request = {.problem = &p, .device = &gpu, .mode = ATTN_FWD};
    for (const struct attn_tile *each = NULL; (each = attn_next_tile(&fused_sm80_fwd_tiles, each)) != NULL;)
        if (strcmp(each->shown.name, "fwd_d64_m128n64") == 0)
            return fused_sm80_fwd_kind((const void *)each, &request);
    fail();
    return SM80_KINDS;
}

/* Windows need no list of tiles where nothing else says what a row sees. */
static void windows_alone_have_no_lists(void **state)
{
    struct attn_problem p = dense;
    (void)state;
    p.dtype = ATTN_BF16;
    assert_int_equal(kind_of(p), SM80_DENSE);
    p.window_left = 5;
    assert_int_equal(kind_of(p), SM80_WINDOW);
    p.head_dim = 56; /* narrower than the tile */
    assert_int_equal(kind_of(p), SM80_FAMILY);
    p.head_dim = 64;
    p.dropout = 0.1f;
    assert_int_equal(kind_of(p), SM80_SPARSE_DROPOUT);
    p.dropout = 0;
    p.softcap = 30;
    assert_int_equal(kind_of(p), SM80_FAMILY);
    p.has_sink = true;
    assert_int_equal(kind_of(p), SM80_SCORE);
    p.softcap = 0;
    assert_int_equal(kind_of(p), SM80_SCORE);
    p.has_sink = false;
    p.mask_block = 128;
    assert_int_equal(kind_of(p), SM80_SPARSE);
    p.mask_block = 0;
    p.lengths = ATTN_PACKED;
    assert_int_equal(kind_of(p), SM80_SPARSE);
}

/* The backward rounds dQ with a kernel of the main kernel's tile: of the dense passes, which serve every mask at head
 * dims 64 and 128 with fixed lengths, and of the family's, which serve packed lengths and all other head dims. */
static void every_tile_rounds_dq(void **state)
{
    (void)state;
    for (const struct attn_tile *each = NULL; (each = attn_next_tile(&fused_sm80_bwd_tiles, each)) != NULL;) {
        const struct fused_sm80_bwd_tile *row = (const void *)each;
        for (int bf16 = 0; bf16 < 2; bf16++) {
            const bool is_family = row->main[SM80_SPARSE][bf16] != NULL ||
                                   row->main[SM80_SPARSE_DROPOUT][bf16] != NULL || row->main[SM80_FAMILY][bf16] != NULL;
            assert_true(is_family || row->main[SM80_DENSE][bf16] != NULL);
            if ((row->tile.head_dim == 64 || row->tile.head_dim == 128) && row->v_head_dim == row->tile.head_dim) {
                assert_non_null(row->convert[0][bf16]);
                assert_int_equal(row->main[SM80_DENSE][bf16] == NULL,
                                 strstr(row->tile.shown.summary, "not dense attention") != NULL);
            }
            if (is_family)
                assert_non_null(row->convert[1][bf16]);
        }
    }
}

/* What fused_sm90 says to a request of 8-bit inputs; "" where it takes it. */
static const char *sm90_says(struct attn_problem p, enum attn_mode mode, bool fast, unsigned outputs)
{
    static struct attn_message why;
    const struct attn_request request = {.problem = &p, .device = &gpu, .mode = mode, .fast = fast, .outputs = outputs};
    why.text[0] = '\0';
    const enum attn_status status = attn_fused_sm90.accepts(&request, &why);
    assert_int_equal(status == ATTN_OK, why.text[0] == '\0');
    return why.text;
}

static void sm90_takes_8_bits_forward(void **state)
{
    struct attn_problem p = dense;
    (void)state;
    p.dtype = ATTN_E5M2;
    p.out_dtype = ATTN_BF16;
    for (int scale = ATTN_SCALE_TENSOR; scale <= ATTN_SCALE_BLOCK; scale++)
        for (int fast = 0; fast < 2; fast++) {
            p.quant_scale = (enum attn_quant_scale)scale;
            p.scale_block = scale == ATTN_SCALE_BLOCK ? 256 : 0;
            assert_string_equal(sm90_says(p, ATTN_FWD, fast, 0), "");
            assert_string_equal(sm90_says(p, ATTN_FWD, fast, ATTN_O), "");
        }
    assert_string_equal(sm90_says(p, ATTN_BWD, false, 0), "takes no 8-bit inputs");
    assert_string_equal(sm90_says(p, ATTN_FWD, false, ATTN_LSE), "takes no request without O");
    p.scale_block = 64;
    assert_string_equal(sm90_says(p, ATTN_FWD, false, 0), "scales of blocks of 64 rows: takes multiples of 128");
    p.quant_scale = ATTN_SCALE_NONE;
    assert_string_equal(sm90_says(p, ATTN_FWD, false, 0), "takes no 8-bit inputs without scales");
    p.quant_scale = ATTN_SCALE_HEAD;
    p.out_dtype = ATTN_FP32;
    assert_string_equal(sm90_says(p, ATTN_FWD, false, 0), "writes O in fp16 and bf16 only");
    p.out_dtype = ATTN_FP16;
    p.window_left = 5;
    assert_string_equal(sm90_says(p, ATTN_FWD, false, 0), "takes no window");
    p.window_left = -1;
    p.dtype = ATTN_BF16;
    p.quant_scale = ATTN_SCALE_NONE;
    assert_string_equal(sm90_says(p, ATTN_FWD, true, 0), "takes no fast mode");
}
#endif

static void every_implementation_refuses_in_words(void **state)
{
    (void)state;
    for (const struct attn_impl *const *impl = attn_registry(); *impl; impl++)
        check_impl(*impl);
    for (const struct attn_impl *const *impl = reference_registry(); *impl; impl++)
        check_impl(*impl);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_seen_alone),
        cmocka_unit_test(every_implementation_refuses_in_words),
#ifdef FABENCH_WITH_CUDA
        cmocka_unit_test(decode_has_a_direction),
        cmocka_unit_test(all_fits_into_99_kb),
        cmocka_unit_test(every_sparse_tile_has_windows),
        cmocka_unit_test(windows_alone_have_no_lists),
        cmocka_unit_test(every_tile_rounds_dq),
        cmocka_unit_test(sm90_has_masks_of_128),
        cmocka_unit_test(sm80_refuses_some_biases),
        cmocka_unit_test(sm90_takes_8_bits_forward),
        cmocka_unit_test(sm90_has_softcaps),
        cmocka_unit_test(small_logits_have_a_polynomial),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
