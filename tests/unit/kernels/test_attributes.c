/* What a request asks beyond dense attention (attn_attributes) is refused in words by every implementation that has not
 * named it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "kernels/attention.h"
#include "reference/registry.h"
#include "tests/dense.h"

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
    {"fused_cpu", ATTN_CPU,
     ATTN_WITH_WINDOW | ATTN_WITH_DROPOUT | ATTN_WITH_SOFTCAP | ATTN_WITH_PACKED_LENGTHS | ATTN_WITH_BLOCK_MASK},
    {"naive", ATTN_CPU,
     ATTN_WITH_WINDOW | ATTN_WITH_DROPOUT | ATTN_WITH_SOFTCAP | ATTN_WITH_PACKED_LENGTHS | ATTN_WITH_BLOCK_MASK},
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
