/* Lengths and block masks from their descriptions, and the pairs that they leave. */
#include "tests/unit/unit_help.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/base/npy.h"
#include "cmd/problem/problem.h"
#include "cmd/problem/problem_arrays.h"
#include "cmd/problem/problem_key.h"

static const struct attn_problem base = {.batch = 2,
                                         .q_heads = 4,
                                         .kv_heads = 2,
                                         .q_len = 100,
                                         .kv_len = 130,
                                         .head_dim = 64,
                                         .window_left = -1,
                                         .window_right = -1};

static void refuses_lengths(const char *text, int64_t total, const char *part)
{
    struct attn_problem p = base;
    struct problem_arrays a = {0};
    struct reason why = {""};
    assert_false(problem_set_lengths(&p, &a, text, total, 1, &why));
    assert_non_null(strstr(why.text, "--lengths "));
    if (!strstr(why.text, part))
        fail_msg("%s: \"%s\" has no \"%s\"", text, why.text, part);
    assert_null(a.cu_seqlens_q);
    problem_arrays_free(&a);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void wrong_lengths(void **state)
{
    char path[] = "/tmp/fabench-lengths-XXXXXX", at[sizeof path + 1];
    (void)state;
    refuses_lengths("", 100, "must be fixed");
    refuses_lengths("uniform", 100, "must be fixed");
    refuses_lengths("uniform:0:5", 100, "1 <= LO <= HI");
    refuses_lengths("uniform:6:5", 100, "1 <= LO <= HI");
    refuses_lengths("uniform:-1:5", 100, "1 <= LO <= HI");
    refuses_lengths("uniform:1:5:7", 100, "1 <= LO <= HI");
    refuses_lengths("uniform:1:99999999999", 100, "1 <= LO <= HI");
    refuses_lengths("lognormal:0:1", 100, "at least 1");
    refuses_lengths("lognormal:5:-1", 100, "at least 1");
    refuses_lengths("lognormal:5:nan", 100, "at least 1");
    refuses_lengths("list:", 0, "no sequence");
    refuses_lengths("list:5:-2", 0, "a list is");
    refuses_lengths("list:5x", 0, "a list is");
    refuses_lengths("list:5*0", 0, "a list is");
    refuses_lengths("list:5*x3", 0, "a list is");
    refuses_lengths("list:1*1000001", 0, "more than 1000000 sequences");
    refuses_lengths("list:0x3:0", 0, "all query lengths are 0");
    refuses_lengths("list:3x0", 0, "all key lengths are 0");
    refuses_lengths("list:90:20", 100, "more than --total-tokens 100");
    refuses_lengths("list:2147483647:1", 0, "more than 2147483647 tokens");
    refuses_lengths("@/nonexistent", 0, "/nonexistent");
    close(mkstemp(path));
    snprintf(at, sizeof at, "@%s", path);
    write_file(path, "");
    refuses_lengths(at, 0, "no sequence");
    write_file(path, "5\n-3\n");
    refuses_lengths(at, 0, "line 2");
    write_file(path, "5\nseven\n");
    refuses_lengths(at, 0, "line 2");
    write_file(path, "5,6,7\n");
    refuses_lengths(at, 0, "line 1");
    write_file(path, "60\n50\n");
    refuses_lengths(at, 100, "more than --total-tokens");
    FILE *file = fopen(path, "w");
    for (int i = 0; i < 10000000; i++)
        fputc('1', file);
    fclose(file);
    refuses_lengths(at, 0, path);
    unlink(path);
}

static void check_lengths(const struct attn_problem *p, const struct problem_arrays *a)
{
    int64_t longest_q = 1, longest_k = 1;
    assert_int_equal(p->lengths, ATTN_PACKED);
    assert_true(a->cu_seqlens_q[0] == 0 && a->cu_seqlens_k[0] == 0);
    for (int64_t b = 0; b < p->batch; b++) {
        const int64_t q = a->cu_seqlens_q[b + 1] - a->cu_seqlens_q[b], k = a->cu_seqlens_k[b + 1] - a->cu_seqlens_k[b];
        assert_true(q >= 0 && k >= 0);
        longest_q = q > longest_q ? q : longest_q;
        longest_k = k > longest_k ? k : longest_k;
    }
    assert_int_equal(p->q_len, longest_q);
    assert_int_equal(p->kv_len, longest_k);
    assert_int_equal(p->total_q, a->cu_seqlens_q[p->batch]);
    assert_int_equal(p->total_k, a->cu_seqlens_k[p->batch]);
}

static void draws_until_the_tokens_are_used_up(void **state)
{
    static const char *const texts[] = {"uniform:1:2k", "uniform:100:100", "lognormal:300:1", "lognormal:50:0"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct attn_problem p = base, again = base;
        struct problem_arrays a = {0}, b = {0};
        struct reason why;
        assert_true(problem_set_lengths(&p, &a, texts[i], 100000, 7, &why));
        check_lengths(&p, &a);
        assert_int_equal(p.total_q, 100000);
        assert_true(problem_set_lengths(&again, &b, texts[i], 100000, 7, &why));
        assert_int_equal(again.batch, p.batch);
        assert_memory_equal(a.cu_seqlens_q, b.cu_seqlens_q, (size_t)(p.batch + 1) * sizeof *a.cu_seqlens_q);
        assert_memory_equal(a.cu_seqlens_q, a.cu_seqlens_k, (size_t)(p.batch + 1) * sizeof *a.cu_seqlens_q);
        problem_arrays_free(&a);
        problem_arrays_free(&b);
    }
}

/* The mean of what is drawn is what the text says, within five standard errors. */
static void draws_with_the_mean(void **state)
{
    (void)state;
    const struct {
        const char *text;
        double mean, deviation;
    } all[] = {{"uniform:1:2047", 1024, 591}, {"lognormal:300:0.5", 300, 160}, {"lognormal:200:1", 200, 262}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct attn_problem p = base;
        struct problem_arrays a = {0};
        struct reason why;
        assert_true(problem_set_lengths(&p, &a, all[i].text, 4000000, 3, &why));
        const double mean = (double)p.total_q / (double)p.batch;
        assert_true(fabs(mean - all[i].mean) < 5 * all[i].deviation / sqrt((double)p.batch));
        problem_arrays_free(&a);
    }
}

static void takes_lists_and_files(void **state)
{
    char path[] = "/tmp/fabench-lengths-XXXXXX", at[sizeof path + 1];
    const int32_t want_q[] = {0, 5, 5, 12, 1036}, want_k[] = {0, 5, 8, 8, 1032};
    const char *const texts[] = {"list:5:0x3:7x0:1k", at};
    (void)state;
    close(mkstemp(path));
    snprintf(at, sizeof at, "@%s", path);
    write_file(path, "# a comment\n5\n\n0, 3\n7,0\n1k\n");
    for (int i = 0; i < 2; i++) {
        struct attn_problem p = base;
        struct problem_arrays a = {0};
        struct reason why;
        if (!problem_set_lengths(&p, &a, texts[i], 0, 1, &why))
            fail_msg("%s", why.text);
        check_lengths(&p, &a);
        assert_int_equal(p.batch, 4);
        assert_memory_equal(a.cu_seqlens_q, want_q, sizeof want_q);
        assert_memory_equal(a.cu_seqlens_k, want_k, sizeof want_k);
        assert_string_equal(a.lengths, texts[i]);
        problem_arrays_free(&a);
    }
    unlink(path);
}

static void refuses_mask(const char *text, const char *part)
{
    struct attn_problem p = base;
    struct problem_arrays a = {0};
    struct reason why = {""};
    assert_false(problem_set_block_mask(&p, &a, text, 32, 1, &why));
    assert_non_null(strstr(why.text, "--block-mask "));
    if (!strstr(why.text, part))
        fail_msg("%s: \"%s\" has no \"%s\"", text, why.text, part);
    problem_arrays_free(&a);
}

static void write_mask(const char *path, enum npy_type type, const int64_t *shape, int value)
{
    struct npy file = {.dims = 4, .type = type, .bytes = type == NPY_UINT8 ? 1 : 4};
    struct reason why;
    for (int i = 0; i < 4; i++) {
        file.shape[i] = shape[i];
        file.bytes *= (size_t)shape[i];
    }
    file.data = calloc(1, file.bytes);
    ((uint8_t *)file.data)[file.bytes - 1] = (uint8_t)value;
    assert_true(npy_write(path, &file, &why));
    npy_free(&file);
}

static void wrong_masks(void **state)
{
    char path[] = "/tmp/fabench-mask-XXXXXX", at[sizeof path + 1];
    (void)state;
    refuses_mask("", "must be none");
    refuses_mask("dense", "must be none");
    refuses_mask("random:0", "above 0");
    refuses_mask("random:1.5", "above 0");
    refuses_mask("random:nan", "above 0");
    refuses_mask("random:", "above 0");
    refuses_mask("local:-1", "number of blocks");
    refuses_mask("strided:0", "at least 1");
    refuses_mask("@/nonexistent.npy", "/nonexistent.npy");
    close(mkstemp(path));
    snprintf(at, sizeof at, "@%s", path);
    write_mask(path, NPY_UINT8, (const int64_t[]){1, 1, 4, 4}, 1); /* 4 x 5 blocks */
    refuses_mask(at, "[2 or 1, 4 or 1, 4, 5]");
    write_mask(path, NPY_UINT8, (const int64_t[]){3, 1, 4, 5}, 1);
    refuses_mask(at, "[2 or 1, 4 or 1, 4, 5]");
    write_mask(path, NPY_FLOAT32, (const int64_t[]){1, 1, 4, 5}, 1);
    refuses_mask(at, "uint8 or bool");
    write_mask(path, NPY_UINT8, (const int64_t[]){1, 1, 4, 5}, 2);
    refuses_mask(at, "value 2");
    write_mask(path, NPY_UINT8, (const int64_t[]){2, 4, 4, 5}, 1);
    struct attn_problem p = base;
    struct problem_arrays a = {0};
    struct reason why;
    assert_true(problem_set_block_mask(&p, &a, at, 32, 1, &why));
    assert_true(p.mask_batch == 2 && p.mask_heads == 4 && a.mask[159] == 1 && a.mask[0] == 0);
    problem_arrays_free(&a);
    unlink(path);
}

static void masks_by_rule(void **state)
{
    struct reason why;
    (void)state;
    /* 4 blocks of rows, 5 of keys: block i of the rows has block i + 1 of the keys on its diagonal. */
    for (int kind = 0; kind < 2; kind++) {
        struct attn_problem p = base;
        struct problem_arrays a = {0};
        assert_true(problem_set_block_mask(&p, &a, kind ? "strided:3" : "local:1", 32, 1, &why));
        assert_true(p.mask_batch == 1 && p.mask_heads == 1);
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 5; j++)
                assert_int_equal(a.mask[i * 5 + j], kind ? (i + 1 - j) % 3 == 0 : abs(i + 1 - j) <= 1);
        problem_arrays_free(&a);
    }
    struct attn_problem p = base;
    struct problem_arrays a = {0};
    p.q_len = p.kv_len = 4096;
    assert_true(problem_set_block_mask(&p, &a, "random:0.25", 16, 1, &why));
    assert_int_equal(p.mask_heads, 4);
    double ones = 0;
    for (int i = 0; i < 4 * 256 * 256; i++)
        ones += a.mask[i];
    assert_true(fabs(ones / (4 * 256 * 256) - 0.25) < 0.005);
    assert_memory_not_equal(a.mask, a.mask + 256 * 256, 256 * 256); /* heads have masks of their own */
    problem_arrays_free(&a);
}

/* The pairs, one by one. */
static double count_pairs(const struct attn_problem *p, const struct problem_arrays *a)
{
    struct attn_tensors t = {.cu_seqlens_q = a->cu_seqlens_q, .cu_seqlens_k = a->cu_seqlens_k, .block_mask = a->mask};
    double pairs = 0;
    for (int64_t b = 0; b < p->batch; b++) {
        const struct attn_sequence s = attn_sequence_at(p, &t, b);
        struct attn_problem one = *p;
        one.q_len = s.q_len;
        one.kv_len = s.kv_len;
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = 0; i < s.q_len; i++) {
                int64_t first, last;
                attn_visible(&one, i, &first, &last);
                for (int64_t j = first; j <= last; j++)
                    pairs += attn_block_is_visible(p, a->mask, b, h, i, j);
            }
    }
    return pairs;
}

static void pairs_are_those_of_the_definition(void **state)
{
    static const char *const lengths[] = {"", "list:5:0x3:7x0:100x130:64x20"};
    static const char *const masks[] = {"", "random:0.3", "local:0", "strided:2", "random:1"};
    struct reason why;
    (void)state;
    for (int l = 0; l < 2; l++)
        for (int m = 0; m < 5; m++)
            for (int causal = 0; causal < 2; causal++)
                for (int left = -1; left < 40; left += 20) {
                    struct attn_problem p = base;
                    struct problem_arrays a = {0};
                    p.causal = causal;
                    p.window_left = left;
                    p.window_right = causal ? -1 : left;
                    if (l)
                        assert_true(problem_set_lengths(&p, &a, lengths[l], 0, 1, &why));
                    if (m)
                        assert_true(problem_set_block_mask(&p, &a, masks[m], 16, 1, &why));
                    /* Without a mask a causal square without a window counts as half, by the papers' convention. */
                    const double half = !m && causal && left < 0 && l ? 0.5 * 5 * 4 : 0;
                    assert_true(problem_pairs(&p, &a) == count_pairs(&p, &a) - half);
                    problem_arrays_free(&a);
                }
}

/* ---- caches ---- */

static void refuses_caches(const char *text, int64_t batch, int64_t q_len, const char *sentence)
{
    struct attn_problem p = base;
    struct problem_arrays a = {0};
    struct reason why = {""};
    p.batch = batch;
    p.q_len = q_len;
    p.kv_len = 8;
    assert_false(problem_set_cache(&p, &a, text, 1, &why));
    assert_string_equal(why.text, sentence);
    problem_arrays_free(&a);
}

static void wrong_caches(void **state)
{
    (void)state;
    refuses_caches("uniform:1:8", 0, 1, "--lengths uniform:1:8: needs --batch N, the number of caches to draw");
    refuses_caches("list:5:6", 3, 1, "--lengths list:5:6: has 2 lengths for --batch 3");
    refuses_caches("list:5x6:3:9x8", 3, 1,
                   "--lengths list:5x6:3:9x8: sequence 2 has 9 new tokens and a cache of 8 keys, which holds those of "
                   "the new tokens, too; QxK needs a K of at least Q");
    refuses_caches("list:0x6:0", 2, 1, "--lengths list:0x6:0: no sequence has a new token");
    refuses_caches("list:5:0", 2, 1,
                   "--lengths list:5:0: a cache of 0 keys is shorter than the 1 new tokens of --seqlen, which are its "
                   "last keys");
    refuses_caches("fixed", 2, 9,
                   "--kv-len 8: a cache of 8 keys is shorter than the 9 new tokens of --seqlen, which are its last "
                   "keys");
    refuses_caches("zipf:2", 2, 1,
                   "--lengths zipf:2: must be fixed, uniform:LO:HI, lognormal:MEAN:SIGMA, list:Q[xK][*N]:... or @FILE");
}

static void caches_have_the_lengths(void **state)
{
    struct attn_problem p = base;
    struct problem_arrays a = {0};
    struct reason why;
    int64_t sum = 0;
    (void)state;
    p.q_len = 3;
    p.batch = 0;
    assert_true(problem_set_cache(&p, &a, "list:5:300:3", 1, &why));
    assert_true(p.lengths == ATTN_CACHE && p.batch == 3 && p.kv_len == 300 && p.pages == 0 && !a.page_table);
    assert_true(a.seqused_k[0] == 5 && a.seqused_k[1] == 300 && a.seqused_k[2] == 3);
    assert_true(problem_used_keys(&p, &a) == 308);
    /* Every row of the newest sees all keys but those behind it: 3 + 4 + 5 of the first, and so on. */
    p.causal = true;
    assert_true(problem_pairs(&p, &a) == 4 * ((3 + 4 + 5) + (298 + 299 + 300) + 0.5 * 3 * 3));
    problem_arrays_free(&a);
    p.batch = 0;
    assert_true(problem_set_cache(&p, &a, "list:4*2:1x9:2x8*3", 1, &why));
    const int32_t used[] = {4, 4, 9, 8, 8, 8}, begins[] = {0, 4, 8, 9, 11, 13, 15};
    assert_int_equal(p.batch, 6);
    assert_memory_equal(a.seqused_k, used, sizeof used);
    assert_memory_equal(a.cu_seqlens_q, begins, sizeof begins);
    assert_string_equal(a.lengths, "list:4*2:1x9:2x8*3");
    problem_arrays_free(&a);
    p = base;
    p.q_len = 1;
    p.batch = 1000;
    assert_true(problem_set_cache(&p, &a, "uniform:1:99", 1, &why));
    assert_int_equal(p.batch, 1000);
    for (int64_t b = 0; b < p.batch; b++) {
        assert_in_range(a.seqused_k[b], 1, 99);
        sum += a.seqused_k[b];
    }
    assert_in_range(sum, 47000, 53000);
    assert_int_equal(p.kv_len, 99);
    problem_arrays_free(&a);
    p = base;
    p.q_len = 1;
    assert_true(problem_set_cache(&p, &a, "fixed", 1, &why));
    assert_true(p.batch == base.batch && p.kv_len == base.kv_len && a.seqused_k[1] == base.kv_len);
    assert_string_equal(a.lengths, "");
    problem_arrays_free(&a);
}

/* Two lengths of a sequence: its new tokens and its cache. */
static void caches_have_new_tokens_of_their_own(void **state)
{
    static const int32_t rows[] = {0, 4, 4, 5, 9}, keys[] = {9, 7, 300, 4};
    struct attn_problem p = base;
    struct problem_arrays a = {0};
    struct reason why;
    size_t bytes;
    (void)state;
    p.batch = 0;
    p.q_len = 1;
    p.causal = true;
    assert_true(problem_set_cache(&p, &a, "list:4x9:0x7:1x300:4", 1, &why));
    assert_true(p.lengths == ATTN_CACHE && p.batch == 4 && p.q_len == 4 && p.kv_len == 300 && p.total_q == 9);
    assert_memory_equal(problem_array(&p, &a, ARRAY_CU_SEQLENS_Q, &bytes), rows, sizeof rows);
    assert_int_equal(bytes, sizeof rows);
    assert_memory_equal(a.seqused_k, keys, sizeof keys);
    assert_null(problem_array(&p, &a, ARRAY_CU_SEQLENS_K, &bytes));
    assert_true(problem_all_rows(&p) == 9 && problem_all_keys(&p) == 4 * 300 && problem_used_keys(&p, &a) == 320);
    /* The rows of the first see 6, 7, 8 and 9 keys, that of the third all, those of the last a causal square. */
    assert_true(problem_pairs(&p, &a) == (double)p.q_heads * (6 + 7 + 8 + 9 + 300 + 0.5 * 4 * 4));
    problem_arrays_free(&a);
}

/* Its key says the rows together; --seqlen is said by the list, and nothing limits the tokens. */
static void a_key_of_new_tokens(void **state)
{
    struct attn_problem p = base;
    struct problem_arrays a = {0};
    struct reason why;
    (void)state;
    p.batch = 0;
    p.q_len = 1;
    assert_true(problem_set_cache(&p, &a, "list:4x9:1x300", 1, &why));
    const struct problem_key key = problem_key_of(&p, &a, ATTN_FWD, FILL_NORMAL, 0, 1, L2_COLD);
    assert_true(key.mode == MODE_DECODE && key.total_q == 5 && key.q_len == 4 && key.kv_len == 300);
    char *const options = problem_key_options(&key);
    assert_non_null(strstr(options, " --mode decode"));
    assert_non_null(strstr(options, " --lengths list:4x9:1x300"));
    assert_null(strstr(options, "--seqlen"));
    assert_null(strstr(options, "--kv-len"));
    assert_null(strstr(options, "--total-tokens"));
    free(options);
    problem_arrays_free(&a);
    p = base;
    p.batch = 0;
    p.q_len = 1;
    assert_true(problem_set_cache(&p, &a, "list:9:300", 1, &why));
    const struct problem_key other = problem_key_of(&p, &a, ATTN_FWD, FILL_NORMAL, 0, 1, L2_COLD);
    assert_int_equal(other.total_q, INT64_MIN);
    char *const plain = problem_key_options(&other);
    assert_non_null(strstr(plain, " --seqlen 1"));
    free(plain);
    problem_arrays_free(&a);
}

/* Each page is used once, by the sequence that needs it; the others name the last page, which nobody uses. */
static void pages_are_shuffled(void **state)
{
    struct attn_problem p = base, q = base;
    struct problem_arrays a = {0}, other = {0}, again = {0};
    struct reason why;
    bool is_used[200] = {false};
    int in_order = 0;
    (void)state;
    p.q_len = q.q_len = 1;
    p.batch = q.batch = 4;
    p.page_size = q.page_size = 8;
    static const char text[] = "list:500:1:16:500";
    assert_true(problem_set_cache(&p, &a, text, 5, &why));
    const int64_t per = 63, needed[] = {63, 1, 2, 63};
    assert_int_equal(p.pages, 63 + 1 + 2 + 63 + 1);
    for (int64_t b = 0, n = 0; b < 4; b++)
        for (int64_t i = 0; i < per; i++) {
            const int32_t page = a.page_table[b * per + i];
            assert_in_range(page, 0, p.pages - 1);
            assert_true((page == p.pages - 1) == (i >= needed[b]));
            assert_true(i >= needed[b] || !is_used[page]);
            in_order += i < needed[b] && page == n;
            n += i < needed[b];
            is_used[page] |= i < needed[b];
        }
    for (int64_t page = 0; page < p.pages; page++)
        assert_true(is_used[page] == (page < p.pages - 1));
    assert_true(in_order < 10);
    size_t bytes, more;
    const void *table = problem_array(&p, &a, ARRAY_PAGE_TABLE, &bytes);
    assert_int_equal(bytes, 4 * per * 4);
    assert_ptr_equal(problem_array(&p, &a, ARRAY_SEQUSED_K, &more), a.seqused_k);
    assert_int_equal(more, 4 * 4);
    /* The seed decides the order. */
    assert_true(problem_set_cache(&q, &again, text, 5, &why));
    assert_memory_equal(again.page_table, table, bytes);
    q = base;
    q.q_len = 1;
    q.batch = 4;
    q.page_size = 8;
    assert_true(problem_set_cache(&q, &other, text, 6, &why));
    assert_memory_not_equal(other.page_table, table, bytes);
    problem_arrays_free(&a);
    problem_arrays_free(&again);
    problem_arrays_free(&other);
}

static int problem_arrays_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_lengths),
        cmocka_unit_test(draws_until_the_tokens_are_used_up),
        cmocka_unit_test(draws_with_the_mean),
        cmocka_unit_test(takes_lists_and_files),
        cmocka_unit_test(wrong_masks),
        cmocka_unit_test(masks_by_rule),
        cmocka_unit_test(pairs_are_those_of_the_definition),
        cmocka_unit_test(wrong_caches),
        cmocka_unit_test(caches_have_new_tokens_of_their_own),
        cmocka_unit_test(a_key_of_new_tokens),
        cmocka_unit_test(caches_have_the_lengths),
        cmocka_unit_test(pages_are_shuffled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The table of tensors (cmd/problem/problem.h): their names, their bits in attn_impl.repeatable, and which of them a
 * mode writes. */

static void every_tensor_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (int t = 0; t < TENSOR_COUNT; t++) {
        assert_non_null(problem_tensor_name((enum problem_tensor)t));
        for (int other = 0; other < t; other++)
            assert_string_not_equal(problem_tensor_name((enum problem_tensor)t),
                                    problem_tensor_name((enum problem_tensor)other));
    }
    assert_string_equal(problem_tensor_name(TENSOR_DO), "do");
    assert_string_equal(problem_tensor_name(TENSOR_LSE), "lse");
    assert_string_equal(problem_tensor_title("dk"), "dK");
    assert_string_equal(problem_tensor_title("lse"), "LSE");
    assert_string_equal(problem_tensor_title("wksp"), "wksp");
}

/* A promise of attn_impl.repeatable is about the tensor that has its bit. */
static void outputs_have_the_bits_of_the_contract(void **state)
{
    static const enum problem_tensor want[4][5] = {{TENSOR_O, TENSOR_LSE},
                                                   {TENSOR_DQ, TENSOR_DK, TENSOR_DV, TENSOR_DBIAS},
                                                   {TENSOR_O, TENSOR_LSE},
                                                   {TENSOR_DQ, TENSOR_DK, TENSOR_DV, TENSOR_DSINK, TENSOR_DBIAS}};
    static const unsigned bits[4][5] = {{ATTN_O, ATTN_LSE},
                                        {ATTN_DQ, ATTN_DK, ATTN_DV, ATTN_DBIAS},
                                        {ATTN_O, ATTN_LSE},
                                        {ATTN_DQ, ATTN_DK, ATTN_DV, ATTN_DSINK, ATTN_DBIAS}};
    (void)state;
    for (int i = 0; i < 8; i++) {
        const enum attn_mode mode = (enum attn_mode)(i % 2);
        const struct attn_problem p = {.has_sink = i / 2 % 2, .bias_batch = i / 4, .bias_heads = i / 4};
        unsigned all = 0;
        int count;
        const enum problem_tensor *outputs = problem_outputs(&p, mode, &count);
        assert_int_equal(count, mode == ATTN_FWD ? 2 : 3 + p.has_sink + p.bias_heads);
        for (int n = 0; n < count; n++) {
            assert_int_equal(outputs[n], want[i % 4][n]);
            assert_int_equal(problem_tensor_bit(outputs[n]), bits[i % 4][n]);
            all |= bits[i % 4][n];
        }
        assert_int_equal(problem_wanted_outputs(&p, mode), all == attn_default_outputs(mode) ? 0 : all);
    }
    assert_int_equal(problem_tensor_bit(TENSOR_Q) | problem_tensor_bit(TENSOR_DO), 0);
}

static int problem_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor_has_a_name_of_its_own),
        cmocka_unit_test(outputs_have_the_bits_of_the_contract),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) { return problem_arrays_tests() + problem_tests(); }
