/* The faults of packed sequences, caches, splits, 8-bit scales and block masks: each computes what its name says. The
 * kernel here is attention by its definition, over all keys in memory, with a function that says which of them a row
 * sees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/selftest/faults.h"
#include "tests/unit/selftest/fault_called.h"

enum { DIM = 8, HEADS = 2, MAX_KEYS = 512 };

/* A row of one sequence and head, and a key: packed, the row of K that it lies in, else counted from its sequence. */
struct pair {
    const struct attn_problem *p;
    const struct problem_arrays *a;
    int64_t b, h, row, key;
};

typedef bool (*sees)(const struct pair *);

static int64_t blocks(int64_t len, int64_t block) { return (len + block - 1) / block; }

static bool is_right(const struct pair *at)
{
    const struct attn_problem *p = at->p;
    const struct problem_arrays *a = at->a;
    const bool is_packed = p->lengths == ATTN_PACKED;
    const int64_t first = is_packed ? a->cu_seqlens_k[at->b] : 0;
    const int64_t kv_len = is_packed                  ? a->cu_seqlens_k[at->b + 1] - first
                           : p->lengths == ATTN_CACHE ? a->seqused_k[at->b]
                                                      : p->kv_len;
    const int64_t q_len = attn_rows_are_packed(p) ? a->cu_seqlens_q[at->b + 1] - a->cu_seqlens_q[at->b] : p->q_len;
    const int64_t key = at->key - first;
    const int64_t behind = p->causal              ? 0
                           : p->window_right >= 0 ? p->window_right
                                                  : kv_len; /* keys after the diagonal */
    if (key < 0 || key >= kv_len || key > at->row + kv_len - q_len + behind)
        return false;
    const int64_t columns = p->mask_block ? blocks(p->kv_len, p->mask_block) : 0;
    const int64_t plane = p->mask_block ? at->h * blocks(p->q_len, p->mask_block) * columns : 0;
    return !p->mask_block || a->mask[plane + at->row / p->mask_block * columns + key / p->mask_block];
}

/* Where a key lies in K and V, and a row in Q, O and dQ, in rows. */
static int64_t key_at(const struct pair *at)
{
    const struct attn_problem *p = at->p;
    if (p->lengths == ATTN_PACKED)
        return at->h * p->total_k + at->key;
    if (p->page_size == 0)
        return (at->b * HEADS + at->h) * p->kv_len + at->key;
    const int64_t page = at->a->page_table[at->b * blocks(p->kv_len, p->page_size) + at->key / p->page_size];
    return (page * HEADS + at->h) * p->page_size + at->key % p->page_size;
}

static int64_t row_at(const struct pair *at)
{
    return attn_rows_are_packed(at->p) ? at->h * at->p->total_q + at->a->cu_seqlens_q[at->b] + at->row
                                       : (at->b * HEADS + at->h) * at->p->q_len + at->row;
}

static double scale_of(const struct host_tensors *t, const struct pair *at, enum quantised which, int64_t row)
{
    const int64_t len = which == QUANTISED_Q ? at->p->q_len : at->p->kv_len;
    const float *scales = t->scales[which];
    return scales ? (double)scales[at->h * blocks(len, at->p->scale_block) + row / at->p->scale_block] : 1;
}

static double dot(const float *a, const float *b)
{
    double sum = 0;
    for (int c = 0; c < DIM; c++)
        sum += (double)a[c] * (double)b[c];
    return sum;
}

static double logit(const struct host_tensors *t, const struct pair *at)
{
    return (double)at->p->scale * scale_of(t, at, QUANTISED_Q, at->row) * scale_of(t, at, QUANTISED_K, at->key) *
           dot(t->at[TENSOR_Q] + row_at(at) * DIM, t->at[TENSOR_K] + key_at(at) * DIM);
}

static void forward_row(struct host_tensors *t, struct pair at, int64_t keys, sees sees_it)
{
    double sum = 0, out[DIM] = {0};
    for (at.key = 0; at.key < keys; at.key++) {
        if (!sees_it(&at))
            continue;
        const double weight = exp(logit(t, &at));
        sum += weight;
        for (int c = 0; c < DIM; c++)
            out[c] += weight * scale_of(t, &at, QUANTISED_V, at.key) * (double)t->at[TENSOR_V][key_at(&at) * DIM + c];
    }
    t->at[TENSOR_LSE][row_at(&at)] = (float)log(sum);
    for (int c = 0; c < DIM; c++)
        t->at[TENSOR_O][row_at(&at) * DIM + c] = sum == 0 ? 0 : (float)(out[c] / sum);
}

static void backward_row(struct host_tensors *t, struct pair at, int64_t keys, sees sees_it)
{
    const int64_t row = row_at(&at) * DIM;
    const double delta = dot(t->at[TENSOR_DO] + row, t->at[TENSOR_O] + row);
    double dq[DIM] = {0};
    for (at.key = 0; at.key < keys; at.key++) {
        if (!sees_it(&at))
            continue;
        const int64_t key = key_at(&at) * DIM;
        const double weight = exp(logit(t, &at) - (double)t->at[TENSOR_LSE][row_at(&at)]);
        const double ds = (double)at.p->scale * weight * (dot(t->at[TENSOR_DO] + row, t->at[TENSOR_V] + key) - delta);
        for (int c = 0; c < DIM; c++) {
            dq[c] += ds * (double)t->at[TENSOR_K][key + c];
            t->at[TENSOR_DK][key + c] += (float)(ds * (double)t->at[TENSOR_Q][row + c]);
            t->at[TENSOR_DV][key + c] += (float)(weight * (double)t->at[TENSOR_DO][row + c]);
        }
    }
    for (int c = 0; c < DIM; c++)
        t->at[TENSOR_DQ][row + c] = (float)dq[c];
}

static void attention(const struct attn_problem *p, enum attn_mode mode, sees sees_it, struct host_tensors *t)
{
    const struct problem_arrays *a = t->arrays;
    for (int64_t i = 0; mode == ATTN_BWD && i < host_tensors_elements(p, TENSOR_DK); i++)
        t->at[TENSOR_DK][i] = t->at[TENSOR_DV][i] = 0;
    for (int64_t b = 0; b < p->batch; b++) {
        const int64_t rows = attn_rows_are_packed(p) ? a->cu_seqlens_q[b + 1] - a->cu_seqlens_q[b] : p->q_len;
        const int64_t keys = p->lengths == ATTN_PACKED  ? p->total_k
                             : p->lengths == ATTN_CACHE ? a->seqused_k[b]
                                                        : p->kv_len;
        for (int64_t i = 0; i < HEADS * rows; i++) {
            const struct pair at = {.p = p, .a = a, .b = b, .h = i / rows, .row = i % rows};
            (mode == ATTN_FWD ? forward_row : backward_row)(t, at, keys, sees_it);
        }
    }
}

static enum attn_status attend(void *context, const struct attn_problem *p, enum attn_mode mode, struct host_tensors *t,
                               struct attn_message *why)
{
    (void)why;
    ++*(int *)context;
    attention(p, mode, is_right, t);
    return ATTN_OK;
}

/* ---- problems ---- */

struct made {
    struct attn_problem p;
    struct problem_arrays a;
    struct host_tensors correct;
};

static struct attn_problem dense(int64_t len, bool causal)
{
    return (struct attn_problem){.batch = 1,
                                 .q_heads = HEADS,
                                 .kv_heads = HEADS,
                                 .q_len = len,
                                 .kv_len = len,
                                 .head_dim = DIM,
                                 .causal = causal,
                                 .window_left = -1,
                                 .window_right = -1,
                                 .scale = 0.35f};
}

/* Inputs without any symmetry, NaN in pages of nobody and unused slots, and the correct outputs. */
static void make_correct(struct made *m)
{
    static const enum problem_tensor inputs[] = {TENSOR_Q, TENSOR_K, TENSOR_V, TENSOR_DO};
    float *table = malloc(FILL_TABLE_SIZE * sizeof *table), gain;
    fill_table(FILL_NORMAL, FILL_Q, table, &gain);
    m->correct = host_tensors_make(&m->p, ATTN_BWD);
    m->correct.arrays = &m->a;
    for (int i = 0; i < 4; i++)
        for (int64_t n = 0; n < host_tensors_elements(&m->p, inputs[i]); n++)
            m->correct.at[inputs[i]][n] = table[fill_random16(3, (uint32_t)i, (uint64_t)n)];
    for (int i = 0; i < QUANTISED_COUNT && m->correct.scales[i]; i++)
        for (int64_t n = 0; n < quantise_scales(&m->p, (enum quantised)i); n++)
            m->correct.scales[i][n] = 0.5f + 0.125f * (float)n;
    free(table);
    for (int64_t b = 0; b < m->p.batch && m->p.page_size; b++)
        for (int64_t key = m->a.seqused_k[b]; key % m->p.page_size; key++)
            for (int64_t h = 0; h < HEADS; h++) {
                const struct pair at = {.p = &m->p, .a = &m->a, .b = b, .h = h, .key = key};
                for (int c = 0; c < DIM; c++)
                    m->correct.at[TENSOR_K][key_at(&at) * DIM + c] = m->correct.at[TENSOR_V][key_at(&at) * DIM + c] =
                        NAN;
            }
    attention(&m->p, ATTN_FWD, is_right, &m->correct);
    if (m->p.lengths != ATTN_CACHE)
        attention(&m->p, ATTN_BWD, is_right, &m->correct);
}

static void free_made(struct made *m)
{
    host_tensors_free(&m->correct);
    problem_arrays_free(&m->a);
}

static void make_packed(struct made *m, bool causal)
{
    struct reason why;
    memset(m, 0, sizeof *m);
    m->p = dense(1, causal);
    assert_true(problem_set_lengths(&m->p, &m->a, "list:20:0:5:9", 0, 1, &why));
    make_correct(m);
}

static void make_cache(struct made *m)
{
    struct reason why;
    memset(m, 0, sizeof *m);
    m->p = dense(1, true);
    m->p.batch = 0;
    m->p.page_size = 8;
    assert_true(problem_set_cache(&m->p, &m->a, "list:64:40:19", 1, &why));
    make_correct(m);
}

static void make_mixed(struct made *m)
{
    struct reason why;
    memset(m, 0, sizeof *m);
    m->p = dense(1, true);
    m->p.batch = 0;
    m->p.page_size = 8;
    assert_true(problem_set_cache(&m->p, &m->a, "list:100x150:1x90:5x19", 1, &why));
    make_correct(m);
}

/* The outputs of the fault; the caller frees them. */
static struct host_tensors outputs_of(const char *name, const struct made *m, enum attn_mode mode)
{
    int calls = 0;
    struct attn_message why;
    const struct fault_job job = {&m->p, mode, &m->correct, attend, &calls};
    struct host_tensors wrong = host_tensors_copy(&m->correct, &m->p, ATTN_BWD);
    assert_true(fault_applies(fault_called(name), &m->p, mode));
    assert_int_equal(fault_called(name)->make(&job, TENSOR_O, &wrong, &why), ATTN_OK);
    assert_true(calls > 0);
    assert_ptr_equal(wrong.arrays, &m->a);
    return wrong;
}

static bool near(float x, float y)
{
    return x == y || (isnan(x) && isnan(y)) || fabsf(x - y) <= 1e-5f + 1e-4f * fabsf(y);
}

/* How many elements of the outputs differ. */
static int64_t differences(const struct attn_problem *p, enum attn_mode mode, const struct host_tensors *a,
                           const struct host_tensors *b)
{
    int count;
    int64_t found = 0;
    const enum problem_tensor *outputs = problem_outputs(p, mode, &count);
    for (int n = 0; n < count; n++)
        for (int64_t i = 0; i < host_tensors_elements(p, outputs[n]); i++)
            found += !near(a->at[outputs[n]][i], b->at[outputs[n]][i]);
    return found;
}

/* The fault's outputs are those of attention where rows see these keys, and not the right ones. */
static void is_attention_with(const char *name, const struct made *m, enum attn_mode mode, sees sees_it)
{
    struct host_tensors wrong = outputs_of(name, m, mode), expected = host_tensors_copy(&m->correct, &m->p, ATTN_BWD);
    attention(&m->p, mode, sees_it, &expected);
    assert_int_equal(differences(&m->p, mode, &wrong, &expected), 0);
    assert_true(differences(&m->p, mode, &wrong, &m->correct) > 0);
    host_tensors_free(&wrong);
    host_tensors_free(&expected);
}

/* ---- the faults ---- */

/* Lengths 20, 0, 5, 9: the sequences with rows before others are the first and the third. */
static bool sees_the_neighbours_first_key(const struct pair *at)
{
    return is_right(at) || (at->b == 0 && at->key == 20) || (at->b == 2 && at->key == 25);
}

static void a_neighbours_first_key_is_seen_by_every_row(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct made m;
        make_packed(&m, i >> 1);
        is_attention_with("neighbour's first key", &m, (enum attn_mode)(i & 1), sees_the_neighbours_first_key);
        free_made(&m);
    }
}

static void two_pages_change_places(void **state)
{
    (void)state;
    struct made m;
    make_cache(&m);
    struct host_tensors wrong = outputs_of("two pages swapped", &m, ATTN_FWD);
    struct host_tensors expected = host_tensors_copy(&m.correct, &m.p, ATTN_FWD);
    int32_t *const table = m.a.page_table, held = table[0];
    table[0] = table[2 * 8]; /* the table is 8 pages wide */
    table[2 * 8] = held;
    attention(&m.p, ATTN_FWD, is_right, &expected);
    assert_int_equal(differences(&m.p, ATTN_FWD, &wrong, &expected), 0);
    for (int64_t b = 0; b < 3; b++)
        assert_int_equal(near(wrong.at[TENSOR_LSE][b * HEADS], m.correct.at[TENSOR_LSE][b * HEADS]), b == 1);
    host_tensors_free(&wrong);
    host_tensors_free(&expected);
    free_made(&m);
}

/* Up to 64 keys behind the diagonal; the sequence with one new row has none there. */
static bool sees_the_next_chunk(const struct pair *at)
{
    const int32_t *const cu = at->a->cu_seqlens_q, kv_len = at->a->seqused_k[at->b];
    const int64_t diagonal = at->row + kv_len - (cu[at->b + 1] - cu[at->b]);
    return at->key < kv_len && at->key <= diagonal + 64;
}

static void rows_of_a_prefill_see_the_next_chunk(void **state)
{
    (void)state;
    struct made m;
    make_mixed(&m);
    is_attention_with("next chunk is seen", &m, ATTN_FWD, sees_the_next_chunk);
    struct host_tensors wrong = outputs_of("next chunk is seen", &m, ATTN_FWD);
    for (int64_t i = 0; i < m.p.total_q * HEADS; i++) /* the last row of a chunk sees all keys of its cache */
        assert_int_equal(near(wrong.at[TENSOR_LSE][i], m.correct.at[TENSOR_LSE][i]),
                         i % m.p.total_q == 99 || i % m.p.total_q == 100 || i % m.p.total_q == 105);
    host_tensors_free(&wrong);
    m.p.causal = false; /* then all keys are seen anyway */
    assert_false(fault_applies(fault_called("next chunk is seen"), &m.p, ATTN_FWD));
    free_made(&m);
}

/* 19 keys in pages of 8 leave slots unused, 64 and 40 do not. */
static void unused_slots_make_their_sequence_nan(void **state)
{
    (void)state;
    struct made m;
    make_cache(&m);
    struct host_tensors wrong = outputs_of("unused slots read", &m, ATTN_FWD);
    for (int64_t i = 0; i < 3 * HEADS; i++) {
        assert_int_equal(isnan(wrong.at[TENSOR_O][i * DIM]) != 0, i / HEADS == 2);
        assert_int_equal(isnan(wrong.at[TENSOR_LSE][i]) != 0, i / HEADS == 2);
        assert_true(i / HEADS == 2 || near(wrong.at[TENSOR_O][i * DIM], m.correct.at[TENSOR_O][i * DIM]));
    }
    host_tensors_free(&wrong);
    free_made(&m);
}

/* Splits of 16 keys. */
static bool sees_three_splits(const struct pair *at) { return is_right(at) && at->key < 48; }

static void the_last_split_is_forgotten(void **state)
{
    (void)state;
    struct made m;
    make_cache(&m);
    is_attention_with("a split forgotten", &m, ATTN_FWD, sees_three_splits);
    free_made(&m);
}

static int64_t current_split;
static bool sees_one_split(const struct pair *at) { return is_right(at) && at->key / 16 == current_split; }

/* O is the mean over the splits that have keys: 4, 3 (the last of 8 keys) and 2 (the last of 3). LSE is right. */
static void splits_are_merged_without_their_weights(void **state)
{
    (void)state;
    static const int64_t splits[] = {4, 3, 2};
    struct made m;
    make_cache(&m);
    struct host_tensors wrong = outputs_of("splits unweighted", &m, ATTN_FWD);
    struct host_tensors mean = host_tensors_copy(&m.correct, &m.p, ATTN_FWD);
    struct host_tensors one = host_tensors_copy(&m.correct, &m.p, ATTN_FWD);
    memset(mean.at[TENSOR_O], 0, 3 * HEADS * DIM * sizeof(float));
    for (current_split = 0; current_split < 4; current_split++) {
        attention(&m.p, ATTN_FWD, sees_one_split, &one);
        for (int64_t i = 0; i < 3 * HEADS * DIM; i++)
            if (current_split < splits[i / HEADS / DIM])
                mean.at[TENSOR_O][i] += one.at[TENSOR_O][i] / (float)splits[i / HEADS / DIM];
    }
    assert_int_equal(differences(&m.p, ATTN_FWD, &wrong, &mean), 0);
    assert_true(differences(&m.p, ATTN_FWD, &wrong, &m.correct) > 0);
    host_tensors_free(&wrong);
    host_tensors_free(&mean);
    host_tensors_free(&one);
    free_made(&m);
}

static void make_8_bits(struct made *m, bool causal)
{
    memset(m, 0, sizeof *m);
    m->p = dense(40, causal);
    m->p.dtype = ATTN_E4M3;
    m->p.out_dtype = ATTN_BF16;
    m->p.quant_scale = ATTN_SCALE_BLOCK;
    m->p.scale_block = 16;
    make_correct(m);
}

static void the_first_scale_is_another(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum quantised which;
        bool is_forgotten;
    } cases[] = {{"Q scale of next block", QUANTISED_Q, false},
                 {"K scale of next block", QUANTISED_K, false},
                 {"K scale forgotten", QUANTISED_K, true},
                 {"V scale forgotten", QUANTISED_V, true}};
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        const enum quantised i = cases[n].which;
        struct made m;
        make_8_bits(&m, true);
        struct host_tensors wrong = outputs_of(cases[n].name, &m, ATTN_FWD);
        struct host_tensors expected = host_tensors_copy(&m.correct, &m.p, ATTN_FWD);
        for (int h = 0; h < HEADS; h++)
            expected.scales[i][3 * h] = cases[n].is_forgotten ? 1 : expected.scales[i][3 * h + 1];
        attention(&m.p, ATTN_FWD, is_right, &expected);
        assert_int_equal(differences(&m.p, ATTN_FWD, &wrong, &expected), 0);
        assert_true(differences(&m.p, ATTN_FWD, &wrong, &m.correct) > 0);
        for (int64_t at = 0; at < 3 * HEADS; at++) /* the right scales are back */
            assert_true(wrong.scales[i][at] == m.correct.scales[i][at]);
        host_tensors_free(&wrong);
        host_tensors_free(&expected);
        free_made(&m);
    }
}

/* Blocks of 16 of 40 rows and keys, a plane for each head. */
static void make_masked(struct made *m, const char *planes, bool causal)
{
    memset(m, 0, sizeof *m);
    m->p = dense(40, causal);
    m->p.mask_block = 16;
    m->p.mask_batch = 1;
    m->p.mask_heads = HEADS;
    m->a.mask = malloc(strlen(planes));
    for (size_t i = 0; planes[i]; i++)
        m->a.mask[i] = planes[i] == '1';
    make_correct(m);
}

static bool hides_2_1(const struct pair *at)
{
    return is_right(at) && !(at->h == 0 && at->row >= 32 && at->key / 16 == 1);
}
static bool hides_1_0(const struct pair *at)
{
    return is_right(at) && !(at->h == 0 && at->row / 16 == 1 && at->key < 16);
}
static bool hides_2_0_of_head_1(const struct pair *at)
{
    return is_right(at) && !(at->h == 1 && at->row >= 32 && at->key < 16);
}
static bool hides_0_0_of_head_1(const struct pair *at) { return is_right(at) && !(at->h == 1 && at->row < 16); }

/* The first visible block of the last row that has two; else one of a row that has no other. */
static void one_visible_block_is_skipped(void **state)
{
    (void)state;
    static const struct {
        const char *planes;
        bool causal;
        sees expected;
    } cases[] = {
        {"111111011111111111", false, hides_2_1},          /* the last row of head 0 has the blocks 1 and 2 */
        {"111111001111111111", true, hides_1_0},           /* the row above it: it has block 2 alone */
        {"100010001100010101", true, hides_2_0_of_head_1}, /* head 0 has one in each row */
        {"011001000111000000", true, hides_0_0_of_head_1}, /* the causal mask leaves one block of all */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int mode = 0; mode < 2; mode++) {
            struct made m;
            make_masked(&m, cases[i].planes, cases[i].causal);
            is_attention_with("a block skipped", &m, (enum attn_mode)mode, cases[i].expected);
            free_made(&m);
        }
}

/* ---- what they apply to ---- */

static void they_keep_to_their_problems(void **state)
{
    (void)state;
    struct made packed, cache, narrow, masked;
    make_packed(&packed, true);
    make_cache(&cache);
    make_8_bits(&narrow, true);
    make_masked(&masked, "111111111111111111", true);
    const struct {
        const char *name;
        bool of[4][2]; /* packed, cache, narrow, masked; fwd, bwd */
    } wanted[] = {
        {"neighbour's first key", {{true, true}}},
        {"two pages swapped", {{false}, {true, false}}},
        {"unused slots read", {{false}, {true, false}}},
        {"a split forgotten", {{false}, {true, false}}},
        {"splits unweighted", {{false}, {true, false}}},
        {"next chunk is seen", {{false}}},
        {"Q scale of next block", {{false}, {false}, {true, false}}},
        {"K scale of next block", {{false}, {false}, {true, false}}},
        {"K scale forgotten", {{false}, {false}, {true, false}}},
        {"V scale forgotten", {{false}, {false}, {true, false}}},
        {"a block skipped", {{false}, {false}, {false}, {true, true}}},
        {"scale off by 1 %", {{false}}},
    };
    const struct attn_problem *const problems[] = {&packed.p, &cache.p, &narrow.p, &masked.p};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        for (int n = 0; n < 8; n++)
            if (fault_applies(fault_called(wanted[i].name), problems[n / 2], (enum attn_mode)(n % 2)) !=
                wanted[i].of[n / 2][n % 2])
                fail_msg("%s: problem %d, direction %d", wanted[i].name, n / 2, n % 2);
    struct attn_problem one = cache.p; /* each needs what it confuses */
    one.batch = 1;
    assert_false(fault_applies(fault_called("two pages swapped"), &one, ATTN_FWD));
    one.q_len = 2;
    assert_false(fault_applies(fault_called("splits unweighted"), &one, ATTN_FWD));
    one = narrow.p;
    one.causal = false;
    assert_true(fault_applies(fault_called("Q scale of next block"), &one, ATTN_FWD));
    assert_false(fault_applies(fault_called("K scale of next block"), &one, ATTN_FWD));
    assert_true(fault_applies(fault_called("K scale forgotten"), &one, ATTN_FWD));
    one.scale_block = 64;
    assert_false(fault_applies(fault_called("V scale forgotten"), &one, ATTN_FWD));
    assert_false(fault_applies(fault_called("Q scale of next block"), &one, ATTN_FWD));
    one = dense(255, true);
    assert_false(fault_applies(fault_called("last tile skipped"), &one, ATTN_FWD));
    free_made(&packed);
    free_made(&cache);
    free_made(&narrow);
    free_made(&masked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_neighbours_first_key_is_seen_by_every_row),
        cmocka_unit_test(two_pages_change_places),
        cmocka_unit_test(rows_of_a_prefill_see_the_next_chunk),
        cmocka_unit_test(unused_slots_make_their_sequence_nan),
        cmocka_unit_test(the_last_split_is_forgotten),
        cmocka_unit_test(splits_are_merged_without_their_weights),
        cmocka_unit_test(the_first_scale_is_another),
        cmocka_unit_test(one_visible_block_is_skipped),
        cmocka_unit_test(they_keep_to_their_problems),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
