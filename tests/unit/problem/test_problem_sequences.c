/* Some sequences of a problem as a problem of their own: their lengths, the longest ones, masks, pages and what each
 * head has; and where there is no such problem. */
#include "tests/unit/unit_help.h"

#include "cmd/problem/problem_sequences.h"
#include "tests/dense.h"

enum { SEED = 7 };

static struct attn_problem packed(const char *lengths, struct problem_arrays *arrays)
{
    struct attn_problem p = DENSE(1, 4, 2, 1, 1, 64, ATTN_FP32, ATTN_BSHD, true, -1, -1, 1, 0);
    struct reason why;
    memset(arrays, 0, sizeof *arrays);
    assert_true(problem_set_lengths(&p, arrays, lengths, 0, SEED, &why));
    return p;
}

static void lengths_are_packed_again(void **state)
{
    (void)state;
    static const int64_t order[] = {3, 1, 3};
    static const int32_t want_q[] = {0, 5, 107, 112}, want_k[] = {0, 9, 59, 68};
    struct problem_arrays arrays, taken;
    struct attn_problem p = packed("list:700x1:102x50:0x7:5x9", &arrays), to;
    assert_true(problem_take_sequences(&p, &arrays, order, 3, 0, SEED, &to, &taken));
    assert_int_equal(to.batch, 3);
    assert_int_equal(to.total_q, 112);
    assert_int_equal(to.total_k, 68);
    assert_int_equal(to.q_len, 102);
    assert_int_equal(to.kv_len, 50);
    assert_memory_equal(taken.cu_seqlens_q, want_q, sizeof want_q);
    assert_memory_equal(taken.cu_seqlens_k, want_k, sizeof want_k);
    problem_arrays_free(&taken);
    /* One without rows is no problem, but part of one; where its tokens are beyond 31 bits there is none either. */
    assert_false(problem_take_sequences(&p, &arrays, (const int64_t[]){2}, 1, 0, SEED, &to, &taken));
    assert_true(problem_take_sequences(&p, &arrays, (const int64_t[]){2, 0}, 2, 0, SEED, &to, &taken));
    problem_arrays_free(&taken);
    problem_arrays_free(&arrays);
    p = packed("list:2000000000", &arrays);
    assert_false(problem_take_sequences(&p, &arrays, (const int64_t[]){0, 0}, 2, 0, SEED, &to, &taken));
    problem_arrays_free(&arrays);
}

static void caches_get_pages_of_their_own(void **state)
{
    (void)state;
    static const int64_t order[] = {2, 0};
    struct problem_arrays arrays = {.sink = NULL}, taken;
    struct attn_problem p = DENSE(1, 2, 1, 3, 1, 64, ATTN_FP32, ATTN_BSHD, true, -1, -1, 1, 0), to;
    struct reason why;
    p.batch = 0;
    p.page_size = 16;
    p.has_sink = p.has_alibi = true;
    assert_true(problem_set_cache(&p, &arrays, "list:40:300:17", SEED, &why));
    assert_true(problem_set_sink(&p, &arrays, NULL, SEED, &why));
    problem_set_alibi(&p, &arrays);
    assert_true(problem_take_sequences(&p, &arrays, order, 2, 8, SEED, &to, &taken));
    assert_int_equal(to.kv_len, 40);
    assert_int_equal(to.q_len, 3);
    assert_int_equal(taken.seqused_k[0], 17);
    assert_int_equal(taken.seqused_k[1], 40);
    assert_int_equal(to.pages, 3 + 5 + 1);
    bool is_used[9] = {false};
    for (int i = 0; i < 10; i++) { /* two sequences, each with 5 entries of the table */
        const int32_t page = taken.page_table[i];
        assert_true(page >= 0 && page < to.pages);
        assert_true(i >= 3 && i < 5 ? page == 8 : !is_used[page]);
        is_used[page] = true;
    }
    assert_memory_equal(taken.sink, arrays.sink, 2 * sizeof(float));
    assert_memory_equal(taken.alibi_slopes, arrays.alibi_slopes, 2 * sizeof(float));
    problem_arrays_free(&taken);
    assert_true(problem_take_sequences(&p, &arrays, order, 2, 0, SEED, &to, &taken));
    assert_int_equal(to.page_size, 0);
    assert_null(taken.page_table);
    problem_arrays_free(&taken);
    problem_arrays_free(&arrays);
}

/* New rows of their own: a sequence that has none is nothing by itself. */
static void chunks_are_packed_again(void **state)
{
    (void)state;
    struct problem_arrays arrays = {.sink = NULL}, taken;
    struct attn_problem p = DENSE(0, 2, 1, 1, 1, 64, ATTN_FP32, ATTN_BSHD, true, -1, -1, 1, 0), to;
    struct reason why;
    assert_true(problem_set_cache(&p, &arrays, "list:130x390:1x257:0x9", SEED, &why));
    assert_true(problem_take_sequences(&p, &arrays, (const int64_t[]){1, 2}, 2, 0, SEED, &to, &taken));
    assert_int_equal(to.total_q, 1);
    assert_int_equal(to.q_len, 1);
    assert_int_equal(to.kv_len, 257);
    problem_arrays_free(&taken);
    assert_false(problem_take_sequences(&p, &arrays, (const int64_t[]){2}, 1, 0, SEED, &to, &taken));
    problem_arrays_free(&arrays);
}

/* The blocks of shorter sequences are those from the first row and key on, of each head and each sequence. */
static void masks_are_cut(void **state)
{
    (void)state;
    static const int64_t order[] = {1};
    struct problem_arrays arrays, taken;
    struct attn_problem p = packed("list:40:20:64", &arrays), to;
    p.mask_block = 16;
    p.mask_batch = 3;
    p.mask_heads = 4;
    arrays.mask = malloc(3 * 4 * 4 * 4);
    for (int n = 0; n < 3 * 4 * 4 * 4; n++)
        arrays.mask[n] = (uint8_t)n;
    assert_true(problem_take_sequences(&p, &arrays, order, 1, 0, SEED, &to, &taken));
    assert_int_equal(to.mask_batch, 1);
    for (int h = 0; h < 4; h++)
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 2; j++)
                assert_int_equal(taken.mask[(h * 2 + i) * 2 + j], ((4 + h) * 4 + i) * 4 + j);
    problem_arrays_free(&taken);
    p.mask_batch = 1; /* shared by all sequences */
    assert_true(problem_take_sequences(&p, &arrays, order, 1, 0, SEED, &to, &taken));
    assert_int_equal(taken.mask[5], (4 + 0) * 4 + 1);
    problem_arrays_free(&taken);
    problem_arrays_free(&arrays);
}

static void equal_lengths_need_no_arrays(void **state)
{
    (void)state;
    struct problem_arrays taken;
    struct attn_problem p = DENSE(3, 4, 2, 9, 8, 64, ATTN_FP32, ATTN_BSHD, true, -1, -1, 1, 0), to;
    p.bias_batch = 3;
    p.bias_heads = 4;
    assert_true(problem_take_sequences(&p, NULL, (const int64_t[]){2, 2, 1, 0}, 4, 64, SEED, &to, &taken));
    assert_int_equal(to.batch, 4);
    assert_int_equal(to.bias_batch, 4);
    assert_int_equal(to.page_size, 0); /* there is no cache */
    assert_int_equal(to.q_len * 100 + to.kv_len, 908);
    problem_arrays_free(&taken);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_are_packed_again),     cmocka_unit_test(caches_get_pages_of_their_own),
        cmocka_unit_test(chunks_are_packed_again),      cmocka_unit_test(masks_are_cut),
        cmocka_unit_test(equal_lengths_need_no_arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
