/* Honest 16-bit arithmetic must pass the judge where its errors are concentrated: in few rows, which dropout, a block
 * mask or chance leaves, in logits of more than 500, in P below the normal numbers of fp16. The model is that of
 * fused_sm80: S and dP by tensor cores, which cut off what is below the unit of a partial sum; P and dS in fp32,
 * rounded before they are multiplied; P times 1 / (1 - dropout) at the end; D from O as rounded; outputs rounded
 * once. Each problem exceeded a bound before the floor that it is for, and with a fault it still does. naive's errors
 * are taken as 0, so that rule 5 allows no more than its unit. */
#include "tests/unit/run/model.h"

#include "tests/dense.h"

enum { MAX_DIM = 256, MMA_COLUMNS = 16, MMA_BITS = 26 };

/* FACTOR_FIRST is no fault: P is multiplied by 1 / (1 - dropout) before it is rounded. */
enum fault { HONEST, FACTOR_FIRST, SCALE_1_PERMILLE, DELTA_1_PERCENT, OUTPUTS_1_PERCENT, OUTPUTS_3_PERMILLE };

/* sum + products of MMA_COLUMNS columns, as a tensor core adds them: all aligned to the largest and cut off behind
 * MMA_BITS bits, their sum cut off to fp32. */
static float multiply_add(float sum, const float *x, const float *y)
{
    const int none = INT32_MIN / 2;
    int largest = none, exponent = 0;
    if (sum != 0)
        frexpf(sum, &largest);
    for (int c = 0; c < MMA_COLUMNS; c++) {
        int of_x, of_y;
        frexpf(x[c], &of_x);
        frexpf(y[c], &of_y);
        if (x[c] != 0 && y[c] != 0 && of_x + of_y > largest)
            largest = of_x + of_y;
    }
    if (largest == none)
        return 0;
    const double unit = ldexp(1, largest - MMA_BITS);
    double total = trunc((double)sum / unit);
    for (int c = 0; c < MMA_COLUMNS; c++)
        total += trunc((double)x[c] * (double)y[c] / unit);
    total *= unit;
    frexp(total, &exponent);
    return (float)ldexp(trunc(ldexp(total, 24 - exponent)), exponent - 24);
}

static float dot(float start, const float *x, const float *y, int64_t d)
{
    for (int64_t c = 0; c < d; c += MMA_COLUMNS)
        start = multiply_add(start, x + c, y + c);
    return start;
}

static int64_t offset_of(struct attn_tensor x, int64_t b, int64_t h, int64_t row)
{
    return b * x.stride_batch + h * x.stride_head + row * x.stride_row;
}

/* A row, and zeros behind it up to a multiple of MMA_COLUMNS. */
static void load(const struct model *m, struct attn_tensor x, int64_t b, int64_t h, int64_t row, float *to)
{
    const struct attn_problem *p = &m->item->problem;
    for (int64_t c = 0; c < (p->head_dim + MMA_COLUMNS - 1) / MMA_COLUMNS * MMA_COLUMNS; c++)
        to[c] = c < p->head_dim ? fill_load(x.data, p->dtype, offset_of(x, b, h, row) + c) : 0;
}

static void store(const struct model *m, struct attn_tensor x, int64_t b, int64_t h, int64_t row, const float *from,
                  float factor)
{
    const struct attn_problem *p = &m->item->problem;
    const float wrong = m->fault == OUTPUTS_1_PERCENT ? 1.01f : m->fault == OUTPUTS_3_PERMILLE ? 1.003f : 1;
    for (int64_t c = 0; c < p->head_dim; c++)
        fill_store(x.data, p->dtype, offset_of(x, b, h, row) + c, from[c] * factor * wrong);
}

static float scale_of(const struct model *m)
{
    return m->item->problem.scale * (m->fault == SCALE_1_PERMILLE ? 1.001f : 1.0f);
}

static void forward_row(const struct model *m, int64_t b, int64_t h, int64_t row)
{
    const struct attn_problem *p = &m->item->problem;
    const int64_t kv_head = h / (p->q_heads / p->kv_heads);
    const float kept = 1 / (1 - p->dropout), early = m->fault == FACTOR_FIRST ? kept : 1;
    float q[MAX_DIM], k[MAX_DIM], o[MAX_DIM] = {0}, max = -INFINITY, sum = 0;
    float *s = malloc((size_t)p->kv_len * sizeof *s);
    int64_t first, last;
    assert_non_null(s);
    assert_int_equal(p->mask_block, 0); /* for backward_row alone */
    attn_visible(p, row, &first, &last);
    load(m, m->t->q, b, h, row, q);
    for (int64_t j = first; j <= last; j++) {
        load(m, m->t->k, b, kv_head, j, k);
        s[j] = dot(0, q, k, p->head_dim) * scale_of(m);
        if (p->softcap > 0)
            s[j] = p->softcap * tanhf(s[j] / p->softcap);
        max = fmaxf(max, s[j]);
    }
    for (int64_t j = first; j <= last; j++) {
        const float weight = expf(s[j] - max);
        sum += weight;
        if (attn_dropout_factor(p, b, h, row, j) == 0)
            continue;
        load(m, m->t->v, b, kv_head, j, k);
        add(m, o, rounded(m, weight * early), k);
    }
    store(m, m->out->tensors.o, b, h, row, o, kept / early / sum);
    m->out->tensors.lse[(b * p->q_heads + h) * p->q_len + row] = max + logf(sum);
    free(s);
}

static void backward_row(const struct model *m, int64_t b, int64_t h, int64_t row)
{
    const struct attn_problem *p = &m->item->problem;
    const int64_t kv_head = h / (p->q_heads / p->kv_heads), d = p->head_dim;
    float q[MAX_DIM], k[MAX_DIM], v[MAX_DIM], dout[MAX_DIM], o[MAX_DIM], dq[MAX_DIM] = {0}, delta = 0;
    const float lse = m->t->lse[(b * p->q_heads + h) * p->q_len + row];
    int64_t first, last;
    attn_visible(p, row, &first, &last);
    load(m, m->t->q, b, h, row, q);
    load(m, m->t->o, b, h, row, o);
    load(m, m->t->dout, b, h, row, dout);
    for (int64_t c = 0; c < d; c++)
        delta += dout[c] * o[c] * (m->fault == DELTA_1_PERCENT ? 1.01f : 1.0f);
    for (int64_t j = first; j <= last; j++) {
        if (!attn_block_is_visible(p, m->t->block_mask, b, h, row, j))
            continue;
        const float factor = attn_dropout_factor(p, b, h, row, j);
        load(m, m->t->k, b, kv_head, j, k);
        load(m, m->t->v, b, kv_head, j, v);
        const float weight = expf(dot(0, q, k, d) * scale_of(m) - lse);
        const float part = p->dropout > 0 ? dot(0, dout, v, d) * factor - delta : dot(-delta, dout, v, d);
        const float ds = rounded(m, weight * part);
        add(m, dq, ds, k);
        add(m, m->dk + j * d, ds, q);
        add(m, m->dv + j * d, factor != 0 ? rounded(m, weight) : 0, dout);
    }
    store(m, m->out->tensors.dq, b, h, row, dq, p->scale);
}

/* The query heads of one kv head. */
static void compute_group(struct model *m, int64_t b, int64_t kv_head)
{
    const struct attn_problem *p = &m->item->problem;
    const int64_t group = p->q_heads / p->kv_heads, d = p->head_dim;
    m->dk = calloc((size_t)(p->kv_len * d), sizeof *m->dk);
    m->dv = calloc((size_t)(p->kv_len * d), sizeof *m->dv);
    assert_true(m->dk && m->dv);
    for (int64_t n = 0; n < group * p->q_len; n++)
        (m->item->mode == ATTN_FWD ? forward_row : backward_row)(m, b, kv_head * group + n / p->q_len, n % p->q_len);
    for (int64_t j = 0; j < p->kv_len && m->item->mode == ATTN_BWD; j++) {
        store(m, m->out->tensors.dk, b, kv_head, j, m->dk + j * d, p->scale);
        store(m, m->out->tensors.dv, b, kv_head, j, m->dv + j * d, 1 / (1 - p->dropout));
    }
    free(m->dk);
    free(m->dv);
}

static void compute_all(struct model *m)
{
    const struct attn_problem *p = &m->item->problem;
    for (int64_t n = 0; n < p->batch * p->kv_heads; n++)
        compute_group(m, n / p->kv_heads, n % p->kv_heads);
}

struct hard {
    const char *what;
    struct attn_problem problem;
    double scale; /* times 1 / sqrt(head_dim) */
    uint64_t dropout_seed, seed;
    enum attn_mode mode;
    enum fill_dist dist;
    double logit_std;
    enum fault fault;
};

static const struct hard problems[] = {
    {"LSE of 1024 and more, of sums that are cut off",
     DENSE(1, 1, 1, 64, 64, 256, ATTN_FP16, ATTN_BSHD, true, -1, -1, 0, 0), 1, 0, 3, ATTN_FWD, FILL_PEAK, 0,
     SCALE_1_PERMILLE},
    {"the same P in dV", DENSE(1, 3, 3, 96, 24, 192, ATTN_FP16, ATTN_BSHD, false, -1, -1, 0, 0), 2, 0, 3, ATTN_BWD,
     FILL_PEAK, 0, OUTPUTS_1_PERCENT},
    {"dQ of zero, few rows with a large dO", DENSE(1, 56, 4, 13, 1, 64, ATTN_BF16, ATTN_BSHD, true, -1, -1, 0, 0.1f), 1,
     UINT64_C(8251547184670851868), UINT64_C(3155258907506399153), ATTN_BWD, FILL_CONSTANT, 0, DELTA_1_PERCENT},
    {"dQ of zero, few rows kept", DENSE(5, 6, 6, 6, 1, 256, ATTN_FP16, ATTN_BSHD, true, -1, -1, 0, 0.9f), 2,
     UINT64_C(7856749420167222778), UINT64_C(8370726755812778463), ATTN_BWD, FILL_NORMAL, 0, DELTA_1_PERCENT},
    {"eight columns, of which dO * O is small in some rows",
     DENSE(1, 1, 1, 2049, 2049, 8, ATTN_FP16, ATTN_BSHD, false, 257, -1, 0, 0), 1, 0, UINT64_C(7317359122039562825),
     ATTN_BWD, FILL_RISING, 0, DELTA_1_PERCENT},
    {"numbers of K that are 30 times as large as others, of keys with much of dS",
     DENSE(1, 4, 4, 128, 2048, 64, ATTN_BF16, ATTN_BSHD, false, -1, -1, 0, 0), 1, 0, 372, ATTN_BWD, FILL_OUTLIERS, 0,
     DELTA_1_PERCENT},
    {"P below the normal numbers, times 1000, in O",
     DENSE(1, 1, 1, 257, 2047, 96, ATTN_FP16, ATTN_BSHD, false, -1, 158, 0, 0.999f), 1, 4,
     UINT64_C(4613242234058422114), ATTN_FWD, FILL_UNIFORM, 4, OUTPUTS_1_PERCENT},
    {"P below the normal numbers, times 1000, in dV",
     DENSE(1, 1, 1, 64, 1024, 64, ATTN_FP16, ATTN_BSHD, false, -1, -1, 0, 0.999f), 1, 1, 1, ATTN_BWD, FILL_NORMAL, 4,
     OUTPUTS_1_PERCENT},
    {"one such P in 64 rows of dV", DENSE(1, 6, 6, 1, 3002, 128, ATTN_FP16, ATTN_BHSD, false, -1, -1, 0, 0.999f), 1, 1,
     47, ATTN_BWD, FILL_NORMAL, 4, OUTPUTS_1_PERCENT},
};

static struct plan_item item_of(const struct hard *hard)
{
    struct plan_item item = {.problem = hard->problem,
                             .mode = hard->mode,
                             .dist = hard->dist,
                             .logit_std = hard->logit_std,
                             .seed = hard->seed};
    item.problem.scale = (float)(hard->scale / sqrt((double)hard->problem.head_dim));
    item.problem.dropout_seed = hard->dropout_seed;
    return item;
}

static void honest_arithmetic_passes(void **state)
{
    (void)state;
    int failures = 0;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        const struct plan_item item = item_of(&problems[i]);
        const struct record_tensor v = judge_model(&item, HONEST, compute_all, true);
        if (!(v.used <= 0.7)) {
            print_message("%s: %s by rule %s, %.3g of its bound\n", problems[i].what, v.name, v.rule, v.used);
            failures++;
        }
    }
    assert_int_equal(failures, 0);
}

static void faults_are_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        const struct plan_item item = item_of(&problems[i]);
        const struct record_tensor v = judge_model(&item, problems[i].fault, compute_all, true);
        if (!(v.used > 1))
            fail_msg("%s: a fault passes with %.3g of its bound", problems[i].what, v.used);
    }
}

/* 1 / 0.9 rounded to bf16 is 0.16 % too small, and where one key has all of P so is all of O. */
static void dropout_before_rounding(void **state)
{
    (void)state;
    struct plan_item item = {.problem = DENSE(1, 14, 1, 64, 64, 64, ATTN_BF16, ATTN_BSHD, false, -1, -1, 0.125f, 0.1f),
                             .mode = ATTN_FWD,
                             .dist = FILL_HUGE,
                             .seed = 1};
    item.problem.dropout_seed = 1;
    const struct record_tensor after = judge_model(&item, HONEST, compute_all, false);
    const struct record_tensor before = judge_model(&item, FACTOR_FIRST, compute_all, false);
    const struct record_tensor wrong = judge_model(&item, OUTPUTS_1_PERCENT, compute_all, false);
    assert_string_equal(before.rule, "gain");
    if (!(after.used <= 0.7) || !(before.used <= 0.95) || !(wrong.used > 1))
        fail_msg("%.3g, %.3g of its bound; 1 %% too large has %.3g", after.used, before.used, wrong.used);
    item.dist = FILL_NORMAL;
    item.logit_std = 64; /* the same by the size of the logits */
    const struct record_tensor wide = judge_model(&item, FACTOR_FIRST, compute_all, false);
    if (!(wide.used <= 0.95))
        fail_msg("%.3g of its bound", wide.used);
    item.logit_std = 0; /* there it is one rounding of many, and has no floor */
    const struct record_tensor normal = judge_model(&item, FACTOR_FIRST, compute_all, false);
    assert_true(normal.used <= 0.7);
    assert_true(judge_model(&item, OUTPUTS_3_PERMILLE, compute_all, false).used > 1);
}

/* Backward passes of one query under a block mask that leaves keys to one or two of the query heads. */
static void masks_leave_few_rows(void **state)
{
    static const uint64_t seeds[] = {UINT64_C(4994452177194828785), 24, 30, 37};
    (void)state;
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        struct problem_arrays arrays = {.mask = NULL};
        struct reason why = {""};
        struct plan_item item = {.problem =
                                     DENSE(1, 14, 7, 1, 22, 256, ATTN_BF16, ATTN_BSHD, false, -1, -1, 0.015625f, 0.1f),
                                 .mode = ATTN_BWD,
                                 .dist = FILL_NORMAL,
                                 .seed = seeds[i],
                                 .arrays = &arrays};
        item.problem.dropout_seed = UINT64_C(5501994091559728380);
        assert_true(problem_set_block_mask(&item.problem, &arrays, "random:0.1", 16, seeds[i], &why));
        const struct record_tensor right = judge_model(&item, HONEST, compute_all, false);
        const struct record_tensor wrong = judge_model(&item, OUTPUTS_1_PERCENT, compute_all, false);
        if (!(right.used <= 0.7) || !(wrong.used > 1))
            fail_msg("seed %zu: %s by rule %s, %.3g of its bound; 1 %% too large has %.3g", i, right.name, right.rule,
                     right.used, wrong.used);
        free(arrays.mask);
    }
}

/* A mask that hides nothing changes no verdict, though the first rows of a causal problem have most of the norm. */
static void masks_leave_all_rows(void **state)
{
    struct problem_arrays arrays = {.mask = NULL};
    struct reason why = {""};
    struct plan_item item = {.problem = DENSE(1, 1, 1, 256, 256, 16, ATTN_BF16, ATTN_BSHD, true, -1, -1, 0.25f, 0),
                             .mode = ATTN_BWD,
                             .dist = FILL_NORMAL,
                             .seed = 1,
                             .arrays = &arrays};
    (void)state;
    const struct record_tensor without = judge_model(&item, OUTPUTS_1_PERCENT, compute_all, false);
    assert_true(problem_set_block_mask(&item.problem, &arrays, "random:1", 16, 1, &why));
    const struct record_tensor with = judge_model(&item, OUTPUTS_1_PERCENT, compute_all, false);
    assert_string_equal(with.rule, "gain");
    assert_true(with.used == without.used);
    free(arrays.mask);
}

/* A softcap of half of the logits or more makes P equal, and then rule 4 has a floor; no other softcap does. */
static void softcaps(void **state)
{
    static const struct {
        enum fill_dist dist;
        float cap;
        double logit_mean;
        bool has_floor;
    } cases[] = {{FILL_RISING, 5, 0, true},  {FILL_RISING, 30, 0, false},    {FILL_NORMAL, 30, 0, false},
                 {FILL_HUGE, 5, 0, false},   {FILL_NORMAL, 5, -20000, true}, {FILL_NORMAL, 5, 20000, true},
                 {FILL_NORMAL, 5, -1, false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan_item item = {.problem =
                                     DENSE(1, 4, 1, 300, 178, 160, ATTN_BF16, ATTN_BSHD, false, -1, -1, 0.0790569f, 0),
                                 .mode = ATTN_FWD,
                                 .dist = cases[i].dist,
                                 .logit_mean = cases[i].logit_mean,
                                 .seed = 1};
        item.problem.softcap = cases[i].cap;
        const struct record_tensor right = judge_model(&item, HONEST, compute_all, false);
        const struct record_tensor wrong = judge_model(&item, OUTPUTS_3_PERMILLE, compute_all, false);
        if (!(right.used <= 0.7))
            fail_msg("case %zu: %s by rule %s, %.3g of its bound", i, right.name, right.rule, right.used);
        if ((wrong.used > 1) == cases[i].has_floor)
            fail_msg("case %zu: 0.3 %% too large has %.3g of its bound", i, wrong.used);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(honest_arithmetic_passes), cmocka_unit_test(faults_are_found),
        cmocka_unit_test(dropout_before_rounding),  cmocka_unit_test(masks_leave_few_rows),
        cmocka_unit_test(masks_leave_all_rows),     cmocka_unit_test(softcaps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
