/* Honest 16-bit arithmetic must pass the judge where all logits have a part in common: a column of Q and K is large
 * there, and in it the terms of dK may cancel. The model is that of a backward on tensor cores at its worst: each P has
 * a relative error of up to head_dim / 8 units of 2^-23 of its logit, all of one sign or each of its own; dS is rounded
 * before it is multiplied; outputs are rounded once. Judged are dQ and dK. */
#include "tests/unit/run/model.h"

#include "reference/reference.h"
#include "tests/dense.h"

enum { MAX_DIM = 128 };

/* ONE_SIGN and RANDOM_SIGNS are no faults. ONE_TERM: the term of the last row and a key has the wrong sign. */
enum fault { ONE_SIGN, RANDOM_SIGNS, ONE_TERM, DK_1_PERCENT };

static uint64_t state_of_random;

static double uniform(void) /* in [0, 1) */
{
    state_of_random = state_of_random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(state_of_random >> 11) * 0x1p-53;
}

static int64_t offset_of(struct attn_tensor x, int64_t b, int64_t h, int64_t row)
{
    return b * x.stride_batch + h * x.stride_head + row * x.stride_row;
}

static void load(const struct model *m, struct attn_tensor x, int64_t h, int64_t row, float *to)
{
    for (int64_t c = 0; c < m->item->problem.head_dim; c++)
        to[c] = fill_load(x.data, m->item->problem.dtype, offset_of(x, 0, h, row) + c);
}

static void store(const struct model *m, struct attn_tensor x, int64_t h, int64_t row, const float *from, float factor)
{
    for (int64_t c = 0; c < m->item->problem.head_dim; c++)
        fill_store(x.data, m->item->problem.dtype, offset_of(x, 0, h, row) + c, from[c] * factor);
}

static double dot(const float *x, const float *y, int64_t d)
{
    double sum = 0;
    for (int64_t c = 0; c < d; c++)
        sum += (double)x[c] * (double)y[c];
    return sum;
}

static void backward_row(const struct model *m, int64_t h, int64_t row)
{
    const struct attn_problem *p = &m->item->problem;
    const int64_t kv_head = h / (p->q_heads / p->kv_heads), d = p->head_dim;
    float q[MAX_DIM], k[MAX_DIM], v[MAX_DIM], dout[MAX_DIM], o[MAX_DIM], dq[MAX_DIM] = {0};
    const double lse = (double)m->t->lse[h * p->q_len + row];
    const double largest = (double)d / 8 * 0x1p-23 * fabs(lse);
    int64_t first, last;
    attn_visible(p, row, &first, &last);
    load(m, m->t->q, h, row, q);
    load(m, m->t->o, h, row, o);
    load(m, m->t->dout, h, row, dout);
    const double delta = dot(dout, o, d);
    for (int64_t j = first; j <= last; j++) {
        load(m, m->t->k, kv_head, j, k);
        load(m, m->t->v, kv_head, j, v);
        const double error = largest * (m->fault == RANDOM_SIGNS ? 2 * uniform() - 1 : uniform());
        const double weight = exp(dot(q, k, d) * (double)p->scale - lse) * (1 + error);
        const bool is_wrong = m->fault == ONE_TERM && row == p->q_len - 1 && j == last;
        const float ds = rounded(m, (float)(weight * (dot(dout, v, d) - delta)));
        add(m, dq, ds, k);
        add(m, m->dk + (kv_head * p->kv_len + j) * d, is_wrong ? -ds : ds, q);
        add(m, m->dv + (kv_head * p->kv_len + j) * d, rounded(m, (float)weight), dout);
    }
    store(m, m->out->tensors.dq, h, row, dq, p->scale);
}

static void compute_all(struct model *m)
{
    const struct attn_problem *p = &m->item->problem;
    const float wrong = m->fault == DK_1_PERCENT ? 1.01f : 1;
    state_of_random = m->item->seed;
    m->dk = calloc((size_t)(p->kv_heads * p->kv_len * p->head_dim), sizeof *m->dk);
    m->dv = calloc((size_t)(p->kv_heads * p->kv_len * p->head_dim), sizeof *m->dv);
    assert_true(m->dk && m->dv && p->batch == 1);
    for (int64_t n = 0; n < p->q_heads * p->q_len; n++)
        backward_row(m, n / p->q_len, n % p->q_len);
    for (int64_t n = 0; n < p->kv_heads * p->kv_len; n++) {
        store(m, m->out->tensors.dk, n / p->kv_len, n % p->kv_len, m->dk + n * p->head_dim, p->scale * wrong);
        store(m, m->out->tensors.dv, n / p->kv_len, n % p->kv_len, m->dv + n * p->head_dim, 1);
    }
    free(m->dk);
    free(m->dv);
}

struct hard {
    const char *what;
    struct attn_problem problem;
    enum fill_dist dist;
    double logit_mean;
};

/* The first four failed on a GPU. In the last two errors of the logits are small, and those of dS are left: few rows
 * see a key, and a row sees many keys. */
static const struct hard problems[] = {
    {"causal, more keys than rows, in fp16", DENSE(1, 2, 2, 130, 257, 128, ATTN_FP16, ATTN_BSHD, true, -1, -1, 0, 0),
     FILL_NORMAL, -2000},
    {"causal, in fp16", DENSE(1, 2, 2, 257, 257, 64, ATTN_FP16, ATTN_BSHD, true, -1, -1, 0, 0), FILL_NORMAL, 20000},
    {"ten rows and a window, in bf16", DENSE(1, 8, 8, 10, 319, 64, ATTN_BF16, ATTN_BSHD, false, -1, 13, 0, 0),
     FILL_NORMAL, -2000},
    {"the last key is seen by one row of each of five heads, in bf16",
     DENSE(1, 10, 2, 32, 2049, 128, ATTN_BF16, ATTN_BSHD, true, -1, -1, 0, 0), FILL_UNIFORM, -20000},
    {"ten rows and a window, logits of 20", DENSE(1, 8, 8, 10, 319, 64, ATTN_BF16, ATTN_BSHD, false, -1, 13, 0, 0),
     FILL_NORMAL, -20},
    {"ten rows, fp16, logits of 100", DENSE(1, 8, 8, 10, 319, 64, ATTN_FP16, ATTN_BSHD, false, -1, 13, 0, 0),
     FILL_NORMAL, -100}};

static struct plan_item item_of(const struct hard *hard, uint64_t seed)
{
    struct plan_item item = {
        .problem = hard->problem, .mode = ATTN_BWD, .dist = hard->dist, .logit_mean = hard->logit_mean, .seed = seed};
    item.problem.scale = (float)(1 / sqrt((double)hard->problem.head_dim));
    return item;
}

/* The worse of the verdicts on dQ and dK. */
static struct record_tensor verdict_on(const struct hard *hard, uint64_t seed, int fault)
{
    const struct plan_item item = item_of(hard, seed);
    struct record_tensor tensors[RECORD_TENSORS_MAX], worse = {.used = -1};
    const int count = judge_outputs(&item, fault, compute_all, false, tensors);
    for (int i = 0; i < count; i++)
        if (strcmp(tensors[i].name, "dv") != 0 && tensors[i].used > worse.used)
            worse = tensors[i];
    return worse;
}

static void honest_arithmetic_passes(void **state)
{
    (void)state;
    int failures = 0;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        for (int fault = ONE_SIGN; fault <= RANDOM_SIGNS; fault++) {
            const struct record_tensor v = verdict_on(&problems[i], 1, fault);
            if (!(v.used <= 0.95)) {
                print_message("%s: %s by rule %s, %.3g of its bound\n", problems[i].what, v.worst, v.rule, v.used);
                failures++;
            }
        }
    assert_int_equal(failures, 0);
}

static void one_wrong_term_is_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        const struct record_tensor v = verdict_on(&problems[i], 1, ONE_TERM);
        if (!(v.used > 5))
            fail_msg("%s: a wrong term passes with %.3g of its bound", problems[i].what, v.used);
        if (fabs(problems[i].logit_mean) > 2000)
            continue;
        const struct record_tensor wider = verdict_on(&problems[i], 1, DK_1_PERCENT);
        if (!(wider.used > 2))
            fail_msg("%s: dK that is 1 %% too large passes with %.3g of its bound", problems[i].what, wider.used);
    }
}

/* The error of the logits is in the product from half an eps on, and whatever a row's LSE is. */
static void usual_logits_move_nothing(void **state)
{
    struct attn_problem p = DENSE(1, 1, 1, 64, 64, 256, ATTN_FP16, ATTN_BSHD, false, -1, -1, 0, 0);
    (void)state;
    assert_true(reference_logit_error(&p, 100) == 0 && reference_logit_error(&p, -100) == 0);
    assert_true(reference_logit_error(&p, INFINITY) == 0 && reference_logit_error(&p, -INFINITY) == 0 &&
                reference_logit_error(&p, NAN) == 0);
    const double error = 34 * 0x1p-23 * 2000;
    assert_true(fabs(reference_logit_error(&p, -2000) - (error / 0x1p-9 - 0.25)) < 1e-12);
    p.dtype = ATTN_BF16;
    assert_true(reference_logit_error(&p, 900) == 0 && reference_logit_error(&p, 1000) > 0);
    p.dtype = ATTN_FP32;
    assert_true(reference_logit_error(&p, 20000) == 0);
    p.dtype = ATTN_E4M3;
    assert_true(reference_logit_error(&p, 20000) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(honest_arithmetic_passes),
                                       cmocka_unit_test(one_wrong_term_is_found),
                                       cmocka_unit_test(usual_logits_move_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
