/* The choice of a tile from a table (kernels/common/dispatch.h) and what all CUDA implementations share on the host
 * (kernels/common/dispatch.h). Needs no device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "kernels/attention.h"
#include "kernels/common/checks.h"
#include "kernels/common/dispatch.h"
#ifdef FABENCH_WITH_CUDA
#include "kernels/sm80/bwd_params.h"
#include "kernels/sm80/fused_sm80.h"
#include "kernels/sm90/fused_sm90.h"
#include "kernels/sm90/fwd_params.h"
#endif
#include "reference/registry.h"
#include "tests/dense.h"

/* More than its head, as a kernel's rows have. */
struct row {
    struct attn_tile tile;
    double time;
};

static const struct row rows[] = {
    {{{"d64_large", ""}, 64, 2, 60000}, 3.0}, {{{"d64_small", ""}, 64, 2, 40000}, 2.0},
    {{{"d64_tiny", ""}, 64, 2, 20000}, 4.0},  {{{"d128_only", ""}, 128, 1, 90000}, 1.0},
    {{{NULL, NULL}, 0, 0, 0}, 0.0},
};

static double time_of(const struct attn_request *request, const struct attn_tile *tile)
{
    (void)request;
    return ((const struct row *)(const void *)tile)->time;
}

static const struct attn_tile_table in_order = {"forward", rows, sizeof rows[0], NULL, NULL},
                                    by_time = {"backward", rows, sizeof rows[0], time_of, NULL};

static const char *chosen(const struct attn_tile_table *table, int64_t head_dim, size_t smem_bytes, const char *variant,
                          struct attn_message *why)
{
    const struct attn_problem p = {.head_dim = head_dim};
    const struct attn_device device = {.platform = ATTN_CUDA, .smem_per_block_bytes = smem_bytes};
    const struct attn_request request = {.problem = &p, .device = &device, .variant = variant};
    const struct row *row = attn_choose_tile(table, &request, why);
    const char *name = attn_chosen_variant(table, &request);

    assert_true(row == NULL ? name == NULL : strcmp(name, row->tile.shown.name) == 0);
    return name;
}

static void first_tile_that_fits_as_often_as_wanted(void **state)
{
    struct attn_message why = {""};
    (void)state;
    assert_string_equal(chosen(&in_order, 64, 232448, NULL, &why), "d64_large");
    assert_string_equal(chosen(&in_order, 64, 2 * 60000 + 1024, NULL, &why), "d64_large"); /* and 1024 more a block */
    assert_string_equal(chosen(&in_order, 64, 2 * 60000 + 1023, NULL, &why), "d64_small");
    assert_string_equal(chosen(&in_order, 128, 90000, NULL, &why), "d128_only");
}

static void first_tile_that_fits_once_when_none_fits_twice(void **state)
{
    struct attn_message why = {""};
    (void)state;
    assert_string_equal(chosen(&in_order, 64, 2 * 20000 + 1024, NULL, &why), "d64_tiny"); /* the smallest, twice */
    assert_string_equal(chosen(&in_order, 64, 2 * 20000 + 1023, NULL, &why), "d64_small");
    assert_string_equal(chosen(&in_order, 64, 39999, NULL, &why), "d64_tiny");
}

static void shortest_estimated_time(void **state)
{
    struct attn_message why = {""};
    (void)state;
    assert_string_equal(chosen(&by_time, 64, 232448, NULL, &why), "d64_small");
    assert_string_equal(chosen(&by_time, 64, 39999, NULL, &why), "d64_tiny"); /* the others do not fit */
}

static void forced_variants_and_refusals(void **state)
{
    struct attn_message why = {""};
    (void)state;
    assert_string_equal(chosen(&in_order, 64, 232448, "d64_tiny", &why), "d64_tiny");
    assert_null(chosen(&in_order, 64, 232448, "d128_only", &why));
    assert_string_equal(why.text, "the forward has no variant d128_only for head_dim 64");
    assert_null(chosen(&by_time, 128, 89999, NULL, &why));
    assert_string_equal(why.text, "d128_only needs 90000 bytes of shared memory, a block has at most 89999");
}

/* ---- dispatch: a made-up implementation for devices of compute capability 7.5 ----------------------------------- */

static int launched;

static enum attn_status check_device(const struct attn_request *request, struct attn_message *why)
{
    return request->device->sm == 75 ? ATTN_OK : attn_fail(why, ATTN_UNSUPPORTED, "needs 7.5");
}

static enum attn_status takes(const struct attn_request *request, struct attn_message *why)
{
    return attn_choose_tile(&in_order, request, why) != NULL ? ATTN_OK : ATTN_UNSUPPORTED;
}

static size_t bytes_256(const struct attn_request *request)
{
    (void)request;
    return 256;
}

static enum attn_status count_launch(const struct attn_request *request, const struct attn_tensors *tensors,
                                     const struct attn_run *run, struct attn_message *why)
{
    (void)request, (void)tensors, (void)run, (void)why;
    launched++;
    return ATTN_OK;
}

static const struct attn_direction forward = {takes, bytes_256, count_launch, &in_order},
                                   backward = {takes, bytes_256, count_launch, &by_time};
static const struct attn_dispatch dispatch = {check_device, {&forward, &backward}, {0, 0}};
ATTN_DISPATCH_FUNCTIONS(dispatch)
static const struct attn_impl made_up = {.abi = ATTN_ABI, .name = "made_up", ATTN_DISPATCH_MEMBERS};

static void variants_of_both_directions(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++)
        assert_string_equal(made_up.variants[i].name, rows[i % 4].tile.shown.name);
    assert_null(made_up.variants[8].name);
}

static void launches_what_it_accepts(void **state)
{
    static float memory[64 * 4];
    const struct attn_problem p = {.batch = 1,
                                   .q_heads = 1,
                                   .kv_heads = 1,
                                   .q_len = 1,
                                   .kv_len = 1,
                                   .head_dim = 64,
                                   .dtype = ATTN_FP16,
                                   .window_left = -1,
                                   .window_right = -1,
                                   .scale = 1.0f};
    struct attn_device device = {.platform = ATTN_CUDA, .sm = 75, .smem_per_block_bytes = 232448};
    const struct attn_request request = {.problem = &p, .device = &device, .mode = ATTN_FWD};
    const struct attn_tensor tensor = {.data = memory, .stride_row = 64};
    struct attn_tensors tensors = {.q = tensor, .k = tensor, .v = tensor, .o = tensor, .lse = memory};
    struct attn_run run = {.workspace = memory, .workspace_bytes = 256};
    struct attn_message why = {""};
    (void)state;

    assert_int_equal(made_up.launch(&request, &tensors, &run, &why), ATTN_OK);
    assert_int_equal(launched, 1);
    assert_string_equal(made_up.variant(&request), "d64_large");
    assert_int_equal(made_up.workspace_bytes(&request), 256);
    run.workspace_bytes = 255;
    assert_int_equal(made_up.launch(&request, &tensors, &run, &why), ATTN_ERROR);
    assert_string_equal(why.text, "workspace of 255 bytes where 256 are needed");
    run.workspace_bytes = 256;
    tensors.k.data = NULL;
    assert_int_equal(made_up.launch(&request, &tensors, &run, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "tensor k is missing");
    device.sm = 80;
    assert_int_equal(made_up.accepts(&request, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "needs 7.5");
    device.platform = ATTN_CPU; /* what all refuse comes first */
    assert_int_equal(made_up.accepts(&request, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "runs on CUDA devices only");
    assert_int_equal(launched, 1);
}

static void a_range_says_what_is_taken(void **state)
{
    struct attn_problem p = DENSE(1, 1, 1, 64, 64, 40, ATTN_FP16, ATTN_BSHD, false, -1, -1, 0.125f, 0);
    const struct attn_device device = {.platform = ATTN_CUDA};
    const struct attn_request request = {.problem = &p, .device = &device};
    const struct attn_range narrow = {0, 0}, wide = {ATTN_WITH_WINDOW | ATTN_WITH_BLOCK_MASK, 256};
    struct attn_message why = {""};
    (void)state;

    assert_int_equal(attn_check_request(&request, &wide, &why), ATTN_OK);
    assert_int_equal(attn_check_request(&request, &narrow, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "head_dim 40: takes 64 and 128");
    p.window_left = 3;
    assert_int_equal(attn_check_request(&request, &wide, &why), ATTN_OK);
    assert_int_equal(attn_check_request(&request, &narrow, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "takes no window");
    p.head_dim = 264;
    assert_int_equal(attn_check_request(&request, &wide, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "head_dim 264: takes multiples of 8 from 8 to 256");
    p.head_dim = 12;
    assert_int_equal(attn_check_request(&request, &wide, &why), ATTN_UNSUPPORTED);
    p.head_dim = 256;
    p.mask_block = 12;
    assert_int_equal(attn_check_request(&request, &wide, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "block mask of 12 rows and keys: takes multiples of 8");
    p.mask_block = 16;
    p.softcap = 1;
    assert_int_equal(attn_check_request(&request, &wide, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "takes no softcap");
}

static int tiles_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_tile_that_fits_as_often_as_wanted),
        cmocka_unit_test(first_tile_that_fits_once_when_none_fits_twice),
        cmocka_unit_test(shortest_estimated_time),
        cmocka_unit_test(forced_variants_and_refusals),
        cmocka_unit_test(variants_of_both_directions),
        cmocka_unit_test(launches_what_it_accepts),
        cmocka_unit_test(a_range_says_what_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What a request asks beyond dense attention (attn_attributes) is refused in words by every implementation that has not
 * named it. */

static const struct attn_problem dense = DENSE(2, 4, 2, 128, 128, 64, ATTN_FP32, ATTN_BSHD, true, -1, -1, 0.125f, 0);

/* Each attribute alone, and the words of its refusal. */
struct asked {
    unsigned bit;
    const char *words;
    struct attn_problem problem;
    bool precise;
    int64_t splits;
};

enum { ASKED = 11 };

static void fill_asked(struct asked all[ASKED])
{
    for (int i = 0; i < ASKED; i++)
        all[i] = (struct asked){.problem = dense};
    all[0] = (struct asked){ATTN_WITH_WINDOW, "takes no window", dense, false, 0};
    all[0].problem.window_left = 0;
    all[1] = (struct asked){ATTN_WITH_WINDOW, "takes no window", dense, false, 0};
    all[1].problem.window_right = 7;
    all[2] = (struct asked){ATTN_WITH_DROPOUT, "takes no dropout", dense, false, 0};
    all[2].problem.dropout = 0.1f;
    all[3] = (struct asked){ATTN_WITH_SOFTCAP, "takes no softcap", dense, false, 0};
    all[3].problem.softcap = 30;
    all[4] = (struct asked){ATTN_WITH_PACKED_LENGTHS, "takes no sequences of different lengths", dense, false, 0};
    all[4].problem.lengths = ATTN_PACKED;
    all[5] = (struct asked){ATTN_WITH_CACHE, "takes no cache", dense, false, 0};
    all[5].problem.lengths = ATTN_CACHE;
    all[6] = (struct asked){ATTN_WITH_PAGES, "takes no paged cache", dense, false, 0};
    all[6].problem.page_size = 16;
    all[7] = (struct asked){ATTN_WITH_BLOCK_MASK, "takes no block mask", dense, false, 0};
    all[7].problem.mask_block = 128;
    all[8] = (struct asked){ATTN_WITH_8_BIT, "takes no 8-bit inputs", dense, false, 0};
    all[8].problem.dtype = ATTN_E4M3;
    all[9] = (struct asked){ATTN_WITH_PRECISE, "takes no precise mode", dense, true, 0};
    all[10] = (struct asked){ATTN_WITH_SPLITS, "takes no number of splits", dense, false, 4};
}

static const struct attn_device cpu = {.platform = ATTN_CPU, .threads = 2};
static const struct attn_device gpu = {
    .platform = ATTN_CUDA, .sm = 90, .multiprocessors = 132, .smem_per_block_bytes = 232448, .l2_bytes = 50 << 20};

static struct attn_request request_of(const struct asked *a)
{
    return (struct attn_request){.problem = &a->problem, .device = &cpu, .precise = a->precise, .splits = a->splits};
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
    for (int i = 0; i < ASKED; i++) {
        const struct attn_request request = request_of(&all[i]);
        assert_int_equal(attn_attributes(&request), all[i].bit);
        assert_int_equal(attn_check_attributes(&request, ~all[i].bit, &why), ATTN_UNSUPPORTED);
        assert_string_equal(why.text, all[i].words);
        assert_int_equal(attn_check_attributes(&request, all[i].bit, &why), ATTN_OK);
        seen |= all[i].bit;
    }
    assert_int_equal(seen, 2 * ATTN_WITH_SPLITS - 1); /* no bit without a case here */
}

/* What each implementation computes beyond dense attention; those that are not listed compute nothing of it. */
static const struct {
    const char *name;
    enum attn_platform platform;
    unsigned known;
} known[] = {
    {"cudnn", ATTN_CUDA, ATTN_WITH_WINDOW | ATTN_WITH_DROPOUT | ATTN_WITH_SOFTCAP | ATTN_WITH_PACKED_LENGTHS},
    {"fused_cpu", ATTN_CPU,
     ATTN_WITH_WINDOW | ATTN_WITH_DROPOUT | ATTN_WITH_SOFTCAP | ATTN_WITH_PACKED_LENGTHS | ATTN_WITH_CACHE |
         ATTN_WITH_PAGES | ATTN_WITH_BLOCK_MASK | ATTN_WITH_8_BIT | ATTN_WITH_SPLITS},
    {"fused_sm80", ATTN_CUDA,
     ATTN_WITH_WINDOW | ATTN_WITH_DROPOUT | ATTN_WITH_SOFTCAP | ATTN_WITH_PACKED_LENGTHS | ATTN_WITH_BLOCK_MASK},
    {"naive", ATTN_CPU,
     ATTN_WITH_WINDOW | ATTN_WITH_DROPOUT | ATTN_WITH_SOFTCAP | ATTN_WITH_PACKED_LENGTHS | ATTN_WITH_CACHE |
         ATTN_WITH_PAGES | ATTN_WITH_BLOCK_MASK | ATTN_WITH_8_BIT},
    {"naive", ATTN_CUDA,
     ATTN_WITH_WINDOW | ATTN_WITH_DROPOUT | ATTN_WITH_SOFTCAP | ATTN_WITH_PACKED_LENGTHS | ATTN_WITH_CACHE |
         ATTN_WITH_PAGES | ATTN_WITH_BLOCK_MASK | ATTN_WITH_8_BIT},
    {"null", ATTN_CPU, ~0u},
    {"null", ATTN_CUDA, ~0u}};

static unsigned known_of(const struct attn_impl *impl)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, impl->name) == 0 && known[i].platform == impl->platform)
            return known[i].known;
    return 0;
}

static void check_impl(const struct attn_impl *impl)
{
    struct asked all[ASKED];
    fill_asked(all);
    for (int i = 0; i < 2 * ASKED; i++) {
        struct asked *a = &all[i / 2];
        struct attn_request request = request_of(a);
        struct attn_message why = {""};
        request.mode = (enum attn_mode)(i % 2);
        request.device = impl->platform == ATTN_CUDA ? &gpu : &cpu;
        const enum attn_status status = impl->accepts(&request, &why);
        if ((strcmp(why.text, a->words) == 0) != !(known_of(impl) & a->bit) ||
            (status == ATTN_OK && !(known_of(impl) & a->bit)))
            fail_msg("%s: status %d, '%s' where '%s' belongs to what was asked", impl->name, (int)status, why.text,
                     a->words);
    }
}

#ifdef FABENCH_WITH_CUDA
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
                if (attn_attributes(&request) & ~(ATTN_WITH_WINDOW | ATTN_WITH_DROPOUT | ATTN_WITH_SOFTCAP |
                                                  ATTN_WITH_PACKED_LENGTHS | ATTN_WITH_BLOCK_MASK))
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
    for (const struct fused_sm80_fwd_tile *row = fused_sm80_fwd_tiles; row->tile.shown.name != NULL; row++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            assert_int_equal(row->kernels[SM80_SPARSE][bf16] == NULL, row->kernels[SM80_WINDOW][bf16] == NULL);
            sparse += row->kernels[SM80_SPARSE][bf16] != NULL;
        }
    assert_true(sparse > 0);
}

/* The backward rounds dQ with a kernel of the main kernel's tile: of the dense passes, which serve every mask at head
 * dims 64 and 128 with fixed lengths, and of the family's, which serve packed lengths and all other head dims. */
static void every_tile_rounds_dq(void **state)
{
    (void)state;
    for (const struct fused_sm80_bwd_tile *row = fused_sm80_bwd_tiles; row->tile.shown.name != NULL; row++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            const bool is_family = row->main[SM80_SPARSE][bf16] != NULL ||
                                   row->main[SM80_SPARSE_DROPOUT][bf16] != NULL || row->main[SM80_FAMILY][bf16] != NULL;
            assert_true(is_family || row->main[SM80_DENSE][bf16] != NULL);
            if (row->tile.head_dim == 64 || row->tile.head_dim == 128) {
                assert_non_null(row->convert[0][bf16]);
                assert_int_equal(row->main[SM80_DENSE][bf16] == NULL,
                                 strstr(row->tile.shown.summary, "not dense attention") != NULL);
            }
            if (is_family)
                assert_non_null(row->convert[1][bf16]);
        }
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

static int attributes_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_seen_alone),   cmocka_unit_test(every_implementation_refuses_in_words),
#ifdef FABENCH_WITH_CUDA
        cmocka_unit_test(all_fits_into_99_kb),  cmocka_unit_test(every_sparse_tile_has_windows),
        cmocka_unit_test(every_tile_rounds_dq),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What the fronts of the CUDA kernels choose and refuse: plain C that needs no device, only its description. */

#ifdef FABENCH_WITH_CUDA
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
    assert_string_equal(front_chosen(self_attention(4, 16, 4096, 128, true), ATTN_FWD), "fwd_d128_m128n128_s2");
    /* Blocks of 128 keys go past the diagonal of causal rows; full ones are 2752 tiles of 192 rows in 21 rounds, of 256
     * rows 2048 in 15 and a half, as the last 68 have parts. */
    assert_string_equal(front_chosen(self_attention(1, 32, 16384, 64, true), ATTN_FWD), "fwd_d64_m256n64_s5");
    assert_string_equal(front_chosen(self_attention(1, 32, 16384, 64, false), ATTN_FWD), "fwd_d64_m256n64_s5");
    /* Of 1024 rows 192 pad an eighth. */
    assert_string_equal(front_chosen(self_attention(16, 32, 1024, 64, true), ATTN_FWD), "fwd_d64_m256n64_s5");
    assert_string_equal(front_chosen(self_attention(16, 32, 1024, 64, false), ATTN_FWD), "fwd_d64_m256n64_s5");
    /* 20 rounds of 192 rows or 15 of 256, of which a row costs less. */
    assert_string_equal(front_chosen(self_attention(10, 32, 1536, 64, false), ATTN_FWD), "fwd_d64_m256n64_s5");
}

/* The backward with head_dim 128: blocks take one tile of keys after the other where these are more than
 * multiprocessors. One of N steps takes N + 2 in a block of its own, in a loop N + 1.6, and 0.4 more if it is a block's
 * first. */
static void many_tiles_of_keys_have_a_loop(void **state)
{
    static const char *const once = "bwd_d128_k128q64", *const loop = "bwd_d128_k128q64_loop";
    (void)state;
    assert_string_equal(front_chosen(self_attention(4, 16, 4096, 128, true), ATTN_BWD), loop);
    assert_string_equal(front_chosen(self_attention(64, 16, 256, 128, false), ATTN_BWD), loop);
    assert_string_equal(front_chosen(self_attention(1, 16, 16384, 128, false), ATTN_BWD), loop);
    assert_string_equal(front_chosen(self_attention(1, 16, 16384, 128, true), ATTN_BWD), loop);
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
 * N + 1.6 with N long steps in a loop, 2 N * 0.59 + 1.3 with short ones, which is less up to N = 1.7, and 0.98 N + 2.2
 * in a pair, which is less from N = 30 on. Causal, N is the average, and half a step more in a pair. */
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
    assert_string_equal(front_chosen(self_attention(8, 32, 2048, 64, false), ATTN_BWD), loop); /* 16 */
    assert_string_equal(front_chosen(self_attention(4, 32, 4096, 64, false), ATTN_BWD), pair); /* 32 */
    assert_string_equal(front_chosen(self_attention(1, 32, 16384, 64, false), ATTN_BWD), pair);
    assert_string_equal(front_chosen(self_attention(64, 32, 256, 64, true), ATTN_BWD), short_steps); /* N = 1.5 */
    assert_string_equal(front_chosen(self_attention(32, 32, 512, 64, true), ATTN_BWD), loop);        /* 2.5 */
    assert_string_equal(front_chosen(self_attention(16, 32, 1024, 64, true), ATTN_BWD), loop);
    assert_string_equal(front_chosen(self_attention(2, 32, 8192, 64, true), ATTN_BWD), loop);  /* 32.5 */
    assert_string_equal(front_chosen(self_attention(1, 32, 16384, 64, true), ATTN_BWD), pair); /* 64.5 */
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
    p.kv_len = 1025;
    assert_int_equal(fused_sm90_fwd_sections(&p, L2), 9);
    p = self_attention(1, 16, 65536, 128, true); /* 16 of 32 MB */
    assert_int_equal(fused_sm90_fwd_sections(&p, L2), 16);
    p = self_attention(1, 8, 1024, 64, true); /* 8 of 256 KB */
    assert_int_equal(fused_sm90_fwd_sections(&p, L2), 1);
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

static int fronts_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_follow_head_dim_and_length),
        cmocka_unit_test(many_tiles_of_keys_have_a_loop),
        cmocka_unit_test(short_problems_have_short_steps),
        cmocka_unit_test(sections_of_the_forward),
        cmocka_unit_test(few_tiles_are_spread),
        cmocka_unit_test(refusals_say_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
static int fronts_tests(void) { return 0; }
#endif

int main(void) { return tiles_tests() + attributes_tests() + fronts_tests(); }
