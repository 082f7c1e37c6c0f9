/* What cuDNN is told of masks and of packed sequences (reference/peers/cudnn_problem.h), beside the definition of the
 * mask in kernels/attention.h. Needs no GPU and no cuDNN. */
#include "tests/unit/unit_help.h"

#include "reference/peers/cudnn_problem.h"

/* cuDNN's own rule for a key, as its front end writes it: column + left > row + shift and row + shift + right >= column
 * (utils/attn_score_modifiers.h of cudnn-frontend). */
static bool cudnn_shows(const struct cudnn_band *band, int64_t shift, int64_t row, int64_t key)
{
    return (!band->has_left || key + band->left > row + shift) &&
           (!band->has_right || row + shift + band->right >= key);
}

/* The band of `longest` on a sequence of these lengths. */
static void compare(const struct attn_problem *longest, int64_t q_len, int64_t kv_len)
{
    const struct cudnn_band band = cudnn_band_of(longest);
    struct attn_problem p = *longest;
    p.q_len = q_len;
    p.kv_len = kv_len;
    bool all_see = true;
    for (int64_t row = 0; row < q_len; row++) {
        int64_t first, last;
        attn_visible(&p, row, &first, &last);
        all_see = all_see && first <= last;
        for (int64_t key = 0; key < kv_len; key++)
            if ((key >= first && key <= last) != cudnn_shows(&band, kv_len - q_len, row, key))
                fail_msg("window %d, %d, causal %d, q_len %d, kv_len %d, row %d, key %d", (int)p.window_left,
                         (int)p.window_right, p.causal, (int)q_len, (int)kv_len, (int)row, (int)key);
    }
    assert_int_equal(cudnn_every_row_sees_a_key(&p), all_see);
}

static struct attn_problem problem_of(int64_t q_len, int64_t kv_len)
{
    struct attn_problem p = {.batch = 1, .q_heads = 2, .kv_heads = 1, .q_len = q_len, .kv_len = kv_len, .head_dim = 64};
    p.window_left = p.window_right = -1;
    return p;
}

/* Windows up to and past the lengths; the bounds come from the longest sequence and hold for every shorter one. */
static void a_band_is_the_mask(void **state)
{
    (void)state;
    for (int64_t q_len = 1; q_len <= 6; q_len++)
        for (int64_t kv_len = 1; kv_len <= 6; kv_len++)
            for (int64_t window = 0; window < 9 * 9 * 2; window++) {
                struct attn_problem p = problem_of(q_len, kv_len);
                p.window_left = window % 9 - 1;
                p.causal = window / 81 != 0;
                p.window_right = p.causal ? -1 : window / 9 % 9 - 1;
                for (int64_t shorter = 0; shorter < q_len * kv_len; shorter++)
                    compare(&p, q_len - shorter % q_len, kv_len - shorter / q_len);
            }
}

static void sides_that_hide_nothing_are_not_set(void **state)
{
    (void)state;
    struct attn_problem p = problem_of(5, 7);
    p.window_left = 5;
    p.window_right = 3;
    struct cudnn_band band = cudnn_band_of(&p);
    assert_true(band.has_left && band.has_right);
    assert_int_equal(band.left, 6);
    assert_int_equal(band.right, 3);
    p.window_left = 6;
    p.window_right = 4;
    band = cudnn_band_of(&p);
    assert_false(band.has_left || band.has_right);
    p.window_left = p.window_right = INT64_MAX;
    band = cudnn_band_of(&p);
    assert_false(band.has_left || band.has_right);
}

static void causal_with_a_right_side_of_0_is_causal(void **state)
{
    (void)state;
    struct attn_problem p = problem_of(5, 7);
    p.causal = true;
    p.window_right = 0;
    const struct cudnn_band band = cudnn_band_of(&p);
    assert_true(band.has_right);
    assert_int_equal(band.right, 0);
    assert_false(band.has_left);
}

static struct attn_problem packed_of(int64_t batch, int64_t q_len, int64_t kv_len)
{
    struct attn_problem p = problem_of(q_len, kv_len);
    p.batch = batch;
    p.lengths = ATTN_PACKED;
    return p;
}

/* Sequences of (3, 4), (0, 0), (2, 2), (0, 5), (1, 1). */
static const int32_t mixed_q[] = {0, 3, 3, 5, 5, 6}, mixed_k[] = {0, 4, 4, 6, 11, 12};

static void sequences_without_queries_are_left_out(void **state)
{
    (void)state;
    const struct attn_problem p = packed_of(5, 3, 5);
    struct cudnn_sequences s;
    struct attn_message why = {""};
    assert_int_equal(cudnn_sequences_make(&p, ATTN_FWD, mixed_q, mixed_k, &s, &why), ATTN_OK);
    assert_int_equal(s.count, 3);
    assert_false(s.square);
    const int32_t number[] = {0, 2, 4}, q_len[] = {3, 2, 1}, kv_len[] = {4, 2, 1};
    const int64_t q_first[] = {0, 3, 5, 6}, k_first[] = {0, 4, 11, 12};
    assert_memory_equal(s.number, number, sizeof number);
    assert_memory_equal(s.q_len, q_len, sizeof q_len);
    assert_memory_equal(s.kv_len, kv_len, sizeof kv_len);
    assert_memory_equal(s.q_first, q_first, sizeof q_first);
    assert_memory_equal(s.k_first, k_first, sizeof k_first);
    cudnn_sequences_free(&s);
    assert_null(s.number);
}

static void equal_lengths_are_square(void **state)
{
    (void)state;
    const struct attn_problem p = packed_of(3, 3, 3);
    const int32_t sums[] = {0, 3, 3, 5};
    struct cudnn_sequences s;
    struct attn_message why = {""};
    assert_int_equal(cudnn_sequences_make(&p, ATTN_BWD, sums, sums, &s, &why), ATTN_OK);
    assert_true(s.square);
    assert_int_equal(s.count, 2);
    cudnn_sequences_free(&s);
}

static void refused(const struct attn_problem *p, enum attn_mode mode, const int32_t *q, const int32_t *k,
                    const char *want)
{
    struct cudnn_sequences s;
    struct attn_message why = {""};
    assert_int_equal(cudnn_sequences_make(p, mode, q, k, &s, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, want);
}

static void what_is_undefined_is_refused(void **state)
{
    (void)state;
    const int32_t twos[] = {0, 2, 4}, none[] = {0, 0, 0}, second[] = {0, 2, 2}, ones[] = {0, 2, 3};
    struct attn_problem p = packed_of(5, 3, 5);
    refused(&p, ATTN_BWD, mixed_q, mixed_k,
            "sequence 3 has no queries, but keys: cuDNN does not promise to write their dK and dV");
    p = packed_of(2, 2, 2);
    refused(&p, ATTN_FWD, none, none, "no sequence has queries: there is nothing for cuDNN to compute");
    refused(&p, ATTN_FWD, twos, second,
            "rows that see no key: sequence 1 has q_len 2 and kv_len 0, undefined in cuDNN");
    p.causal = true;
    refused(&p, ATTN_FWD, twos, ones, "rows that see no key: sequence 1 has q_len 2 and kv_len 1, undefined in cuDNN");
    p.causal = false;
    p.window_right = 0;
    refused(&p, ATTN_BWD, twos, ones, "rows that see no key: sequence 1 has q_len 2 and kv_len 1, undefined in cuDNN");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_band_is_the_mask),
        cmocka_unit_test(sides_that_hide_nothing_are_not_set),
        cmocka_unit_test(causal_with_a_right_side_of_0_is_causal),
        cmocka_unit_test(sequences_without_queries_are_left_out),
        cmocka_unit_test(equal_lengths_are_square),
        cmocka_unit_test(what_is_undefined_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
