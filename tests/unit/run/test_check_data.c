/* Honest 16-bit arithmetic must pass the judge on every kind of inputs of the preset `data`. The model is that of the
 * fused kernels with 16-bit matrix instructions (FlashAttention-2 and -3, cuDNN, ours): products of 16-bit numbers
 * summed in fp32, P = exp(S - max) or exp(S - LSE) in fp32 and rounded to the dtype before it is multiplied, dS from P
 * before that rounding and rounded itself, outputs rounded once. Tiles of keys run from the last to the first. */
#include "tests/unit/run/model.h"

#include "cmd/base/log.h"
#include "cmd/options/options.h"
#include "cmd/run/resume.h"
#include "tests/dense.h"

enum { TILE = 64, MAX_DIM = 128 };

/* What is wrong with the model; HONEST is what must pass, and DS_OF_ROUNDED_P, which makes dS from P as rounded like
 * fused_sm90 in fp16. */
enum fault { HONEST, DS_OF_ROUNDED_P, SCALE_1_PERCENT, NO_RESCALE, LOST_TILE, DELTA_OF_ROW_BEFORE, DS_4_BITS };

static void load(const struct model *m, struct attn_tensor x, int64_t h, int64_t row, float *to)
{
    for (int64_t c = 0; c < m->item->problem.head_dim; c++)
        to[c] = fill_load(x.data, m->item->problem.dtype, h * x.stride_head + row * x.stride_row + c);
}

static void store(const struct model *m, struct attn_tensor x, int64_t h, int64_t row, const float *from, float factor)
{
    for (int64_t c = 0; c < m->item->problem.head_dim; c++)
        fill_store(x.data, m->item->problem.dtype, h * x.stride_head + row * x.stride_row + c, from[c] * factor);
}

static float dot(const struct model *m, const float *x, const float *y)
{
    float sum = 0;
    for (int64_t c = 0; c < m->item->problem.head_dim; c++)
        sum += x[c] * y[c];
    return sum;
}

static float scale_of(const struct model *m)
{
    return m->item->problem.scale * (m->fault == SCALE_1_PERCENT ? 1.01f : 1.0f);
}

/* The first and the last key of a tile that a row sees; tiles are counted from the end. */
static bool tile_keys(const struct attn_problem *p, int64_t row, int64_t tile, int64_t *first, int64_t *last)
{
    int64_t seen_first, seen_last;
    attn_visible(p, row, &seen_first, &seen_last);
    *first = tile * TILE > seen_first ? tile * TILE : seen_first;
    *last = tile * TILE + TILE - 1 < seen_last ? tile * TILE + TILE - 1 : seen_last;
    return *first <= *last;
}

static int64_t tile_count(const struct attn_problem *p) { return (p->kv_len + TILE - 1) / TILE; }

static void forward_row(const struct model *m, int64_t h, int64_t row)
{
    const struct attn_problem *p = &m->item->problem;
    float q[MAX_DIM], k[MAX_DIM], o[MAX_DIM] = {0}, s[TILE], max = -INFINITY, sum = 0;
    load(m, m->t->q, h, row, q);
    for (int64_t tile = tile_count(p) - 1; tile >= 0; tile--) {
        int64_t first, last;
        if (!tile_keys(p, row, tile, &first, &last))
            continue;
        float new_max = max;
        for (int64_t j = first; j <= last; j++) {
            load(m, m->t->k, h, j, k);
            s[j - first] = dot(m, q, k) * scale_of(m);
            new_max = fmaxf(new_max, s[j - first]);
        }
        const float correction = expf(max - new_max);
        sum *= correction;
        for (int64_t c = 0; c < p->head_dim && m->fault != NO_RESCALE; c++)
            o[c] *= correction;
        for (int64_t j = first; j <= last; j++) {
            const float weight = expf(s[j - first] - new_max);
            sum += weight;
            load(m, m->t->v, h, j, k);
            add(m, o, rounded(m, weight), k);
        }
        max = new_max;
    }
    store(m, m->out->tensors.o, h, row, o, 1 / sum);
    m->out->tensors.lse[h * p->q_len + row] = max + logf(sum);
}

static float ds_of(const struct model *m, float weight, float dp, float delta)
{
    const float ds = (m->fault == DS_OF_ROUNDED_P ? rounded(m, weight) : weight) * (dp - delta);
    if (m->fault != DS_4_BITS)
        return rounded(m, ds);
    int exponent;
    const float mantissa = frexpf(ds, &exponent);
    return ldexpf(roundf(mantissa * 16) / 16, exponent);
}

static void backward_row(const struct model *m, int64_t h, int64_t row)
{
    const struct attn_problem *p = &m->item->problem;
    const int64_t delta_row = m->fault == DELTA_OF_ROW_BEFORE && row ? row - 1 : row, d = p->head_dim;
    float q[MAX_DIM], k[MAX_DIM], v[MAX_DIM], dout[MAX_DIM], o[MAX_DIM], dq[MAX_DIM] = {0};
    load(m, m->t->o, h, delta_row, o);
    load(m, m->t->dout, h, delta_row, dout);
    const float delta = dot(m, dout, o), lse = m->t->lse[h * p->q_len + row];
    load(m, m->t->q, h, row, q);
    load(m, m->t->dout, h, row, dout);
    for (int64_t tile = tile_count(p) - 1; tile >= 0; tile--) {
        int64_t first, last;
        if (!tile_keys(p, row, tile, &first, &last) || (m->fault == LOST_TILE && tile == tile_count(p) / 2))
            continue;
        for (int64_t j = first; j <= last; j++) {
            load(m, m->t->k, h, j, k);
            load(m, m->t->v, h, j, v);
            const float weight = expf(dot(m, q, k) * scale_of(m) - lse);
            const float ds = ds_of(m, weight, dot(m, dout, v), delta);
            add(m, dq, ds, k);
            add(m, m->dk + j * d, ds, q);
            add(m, m->dv + j * d, rounded(m, weight), dout);
        }
    }
    store(m, m->out->tensors.dq, h, row, dq, p->scale);
}

static void compute_head(struct model *m, int64_t h)
{
    const struct attn_problem *p = &m->item->problem;
    for (int64_t row = 0; row < p->q_len && m->item->mode == ATTN_FWD; row++)
        forward_row(m, h, row);
    if (m->item->mode == ATTN_FWD)
        return;
    const size_t count = (size_t)(p->kv_len * p->head_dim);
    m->dk = calloc(count, sizeof *m->dk);
    m->dv = calloc(count, sizeof *m->dv);
    assert_true(m->dk && m->dv);
    for (int64_t row = 0; row < p->q_len; row++)
        backward_row(m, h, row);
    for (int64_t j = 0; j < p->kv_len; j++) {
        store(m, m->out->tensors.dk, h, j, m->dk + j * p->head_dim, p->scale);
        store(m, m->out->tensors.dv, h, j, m->dv + j * p->head_dim, 1);
    }
    free(m->dk);
    free(m->dv);
}

static void compute_all(struct model *m)
{
    for (int64_t h = 0; h < m->item->problem.q_heads; h++)
        compute_head(m, h);
}

/* The largest error / bound of the model on a problem. */
static double used_by(const struct plan_item *item, enum fault fault)
{
    return judge_model(item, (int)fault, compute_all, false).used;
}

static const struct {
    enum fill_dist dist;
    double logit_std;
} kinds[] = {{FILL_NORMAL, 1}, {FILL_NORMAL, 4},  {FILL_NORMAL, 16},
             {FILL_RISING, 0}, {FILL_FALLING, 0}, {FILL_ZEROS, 0}};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static struct plan_item item_of(int kind, enum attn_mode mode, enum attn_dtype dtype, bool causal, int64_t head_dim,
                                int64_t len)
{
    struct plan_item item = {.mode = mode, .dist = kinds[kind].dist, .logit_std = kinds[kind].logit_std, .seed = 3};
    item.problem = (struct attn_problem)DENSE(1, 1, 1, len, len, head_dim, dtype, ATTN_BSHD, causal, -1, -1, 0, 0);
    item.problem.scale = (float)(1 / sqrt((double)head_dim));
    return item;
}

/* Every kind, direction, dtype and head dim; the masks alternate. */
static void honest_arithmetic_passes(void **state)
{
    (void)state;
    const int64_t length = getenv("FABENCH_TEST_LONG") ? 448 : 224;
    int failures = 0;
    for (int n = 0; n < KINDS * 8; n++) {
        const enum attn_mode mode = (enum attn_mode)(n & 1);
        const enum attn_dtype dtype = n & 2 ? ATTN_FP16 : ATTN_BF16;
        const int kind = n / 8, head_dim = n & 4 ? 128 : 64;
        const struct plan_item item = item_of(kind, mode, dtype, (n / 2 + n / 4 + kind) % 2, head_dim, length);
        const double used = used_by(&item, HONEST);
        if (!(used <= 0.8)) { /* some distance to 1: longer problems have more elements, and a larger largest error */
            print_message("kind %d %s %s d%d: %.3g of its bound\n", kind, problem_mode_name(mode),
                          problem_dtype_name(dtype), head_dim, used);
            failures++;
        }
    }
    assert_int_equal(failures, 0);
}

/* P and dS of keys with little weight are denormal in fp16: with many rows their errors are above the other bounds. */
static void denormals_in_fp16_pass(void **state)
{
    (void)state;
    /* The short form: dS from the rounded P alone, whose dV is the same. */
    for (int n = getenv("FABENCH_TEST_LONG") ? 0 : 2; n < 4; n++) {
        const struct plan_item item = item_of(n & 1 ? 3 : 4, ATTN_BWD, ATTN_FP16, false, 64, 1536);
        assert_true(used_by(&item, n & 2 ? DS_OF_ROUNDED_P : HONEST) <= 0.9);
    }
}

/* With the same floors a fault is found on these inputs too. */
static void faults_are_found(void **state)
{
    (void)state;
    enum { RISING = 3, FALLING = 4 };
    static const struct {
        enum fault fault;
        enum attn_mode mode;
        int kind;
        bool causal;
    } cases[] = {{SCALE_1_PERCENT, ATTN_FWD, RISING, false},
                 {SCALE_1_PERCENT, ATTN_BWD, RISING, false},
                 {SCALE_1_PERCENT, ATTN_BWD, FALLING, true},
                 {NO_RESCALE, ATTN_FWD, FALLING, false},
                 {LOST_TILE, ATTN_BWD, RISING, true},
                 {DELTA_OF_ROW_BEFORE, ATTN_BWD, RISING, false},
                 {DELTA_OF_ROW_BEFORE, ATTN_BWD, FALLING, true},
                 {DS_4_BITS, ATTN_BWD, RISING, false},
                 {DS_4_BITS, ATTN_BWD, FALLING, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct plan_item item = item_of(cases[i].kind, cases[i].mode, ATTN_BF16, cases[i].causal, 64, 320);
        const double used = used_by(&item, cases[i].fault);
        if (!(used > 1))
            fail_msg("case %zu passes with %.3g of its bound", i, used);
    }
    const size_t step = getenv("FABENCH_TEST_LONG") ? 1 : 3;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i += step) { /* fp16, where denormals have floors */
        const struct plan_item item = item_of(cases[i].kind, cases[i].mode, ATTN_FP16, cases[i].causal, 64, 1024);
        const double used = used_by(&item, cases[i].fault);
        if (!(used > 1))
            fail_msg("case %zu passes in fp16 with %.3g of its bound", i, used);
    }
}

static int check_data_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(honest_arithmetic_passes),
        cmocka_unit_test(denormals_in_fp16_pass),
        cmocka_unit_test(faults_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* --resume (cmd/run/resume.h): is a record of the same run, and which rows of the plan are there already? */

enum { NAIVE = 1, FUSED = 2 }; /* bits of the slots below */
static const char *const slots[] = {"naive", "fused"};
static struct attn_message why;

/* The plan of two lengths, forward, and the options it was made from. */
static struct options options;
static struct plan plan;
static void make_plan(const char *lengths)
{
    char *words[] = {"fabench",   "--device", "cpu",     "--seqlen", (char *)(uintptr_t)lengths,
                     "--d",       "64",       "--batch", "1",        "--heads",
                     "1",         "--mode",   "fwd",     "--causal", "--out",
                     help_folder, "--resume"};
    bool done = false;
    assert_int_equal(options_parse(sizeof words / sizeof *words, words, &options, &done), EXIT_OK);
    assert_int_equal(plan_make(&options, ATTN_CPU, &plan), EXIT_OK);
}

static void drop_plan(void)
{
    plan_free(&plan);
    options_free(&options);
}

/* resume_match of a record with these rows. */
static bool match(const struct help_row *rows, int count, unsigned *done, unsigned *companions)
{
    struct resume r = {.writer = NULL};
    why.text[0] = 0;
    if (!record_read(help_record("run.jsonl", rows, count), &r.file, &why))
        fail_msg("%s", why.text);
    const bool good = resume_match(&r, &plan, slots, 2, done, companions, &why);
    resume_close(&r);
    return good;
}

static void rows_find_their_places(void **state)
{
    unsigned done[3], companions[3];
    (void)state;
    make_plan("64,128,256");
    assert_int_equal(plan.count, 3);
    assert_true(match(NULL, 0, done, companions)); /* a header alone */
    assert_int_equal(done[0] | done[1] | done[2] | companions[0] | companions[1] | companions[2], 0);
    const struct help_row rows[] = {
        {.impl = "naive", .n = 64}, {.impl = "fused_cpu", .asked = "fused", .n = 64}, {.impl = "naive", .n = 128}};
    assert_true(match(rows, 3, done, companions));
    assert_int_equal(done[0], NAIVE | FUSED);
    assert_int_equal(companions[0], 0); /* that problem is whole: nobody runs again */
    assert_int_equal(done[1], NAIVE);
    assert_int_equal(companions[1], NAIVE); /* runs beside `fused` again, without a row */
    assert_int_equal(done[2], 0);
    assert_true(match(rows, 3, NULL, NULL)); /* only whether they fit */
    const struct help_row refused[] = {{.impl = "naive", .n = 64, .status = "unsupported"}};
    assert_true(match(refused, 1, done, companions));
    assert_int_equal(done[0], NAIVE);
    assert_int_equal(companions[0], 0); /* what did not run is no company */
    drop_plan();
}

/* A plan with the same problem twice has two places for its rows. */
static void a_problem_twice(void **state)
{
    unsigned done[2];
    (void)state;
    make_plan("64");
    const struct plan_item again = plan.items[0];
    plan_add(&plan, &again);
    const struct help_row rows[] = {{.impl = "naive", .n = 64}, {.impl = "naive", .n = 64}, {.impl = "naive", .n = 64}};
    assert_true(match(rows, 2, done, NULL));
    assert_int_equal(done[0], NAIVE);
    assert_int_equal(done[1], NAIVE);
    assert_false(match(rows, 3, done, NULL));
    assert_has(why.text, "run.jsonl: row 3 (naive fwd d64 n=64) occurs twice");
    drop_plan();
}

static void rows_of_other_runs(void **state)
{
    unsigned done[2];
    (void)state;
    make_plan("64,128");
    static const struct {
        struct help_row row;
        const char *words;
    } refused[] = {
        {{.impl = "naive", .n = 512}, "row 2 (naive fwd d64 n=512) is not part of what these options run"},
        {{.impl = "naive", .n = 64, .mode = "bwd"}, "row 2 (naive bwd d64 n=64) is not part of what these options run"},
        {{.impl = "cudnn", .n = 64}, "row 2 (cudnn fwd d64 n=64) is of an implementation that was not asked for"},
        {{.impl = "naive", .n = 64, .run_id = "other"}, "row 2 (naive fwd d64 n=64) is of another run than the header"},
        {{.impl = "naive", .n = 128}, "row 2 (naive fwd d64 n=128) occurs twice"}};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const struct help_row rows[] = {{.impl = "naive", .n = 128}, refused[i].row};
        assert_false(match(rows, 2, done, NULL));
        assert_has(why.text, refused[i].words);
    }
    drop_plan();
}

static void headers_that_fit(void **state)
{
    (void)state;
    static const struct {
        const char *object, *key, *was, *is, *words;
    } cases[] = {{"device", "name", "\"A\"", "\"A\"", NULL},
                 {"device", "name", "\"A\"", "\"B\"", "is of another run: its device.name is \"A\", here it is \"B\""},
                 {"device", "uuid", "\"A\"", "\"B\"", "device.uuid"},
                 {"device", "driver", "\"580.1\"", "\"580.2\"", "device.driver"},
                 {"tool", "commit", "\"abc\"", "\"abd\"", "tool.commit"},
                 {"policy", "options", "\"--d 64\"", "\"--d 128\"", "policy.options"},
                 {"policy", "timeout_s", "120", "60", "its policy.timeout_s is 120, here it is 60"},
                 {"policy", "round_members", "[\"fused\"]", "[\"fused\",\"naive\"]", "policy.round_members"},
                 {"environment", "OMP_NUM_THREADS", "\"2\"", "\"4\"", "environment.OMP_NUM_THREADS"},
                 {"environment", "LANG", "\"C\"", "\"de\"", NULL}, /* times do not depend on it */
                 {"device", "clock_mhz", "1500", "1600", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *headers[2];
        for (int h = 0; h < 2; h++) {
            char text[200];
            snprintf(text, sizeof text, "{\"%s\":{\"%s\":%s}}", cases[i].object, cases[i].key,
                     h ? cases[i].is : cases[i].was);
            headers[h] = json_loads(text, 0, NULL);
            assert_non_null(headers[h]);
        }
        struct resume r = {.file = {.path = help_path("run.jsonl"), .header = headers[0]}};
        why.text[0] = 0;
        assert_int_equal(resume_fits(&r, headers[1], &why), cases[i].words == NULL);
        assert_has(why.text, cases[i].words ? cases[i].words : "");
        json_decref(headers[0]);
        json_decref(headers[1]);
    }
}

/* The file of --out, locked while it is continued. */
static void the_file_is_opened(void **state)
{
    struct resume first, second;
    (void)state;
    make_plan("64");
    remove(help_path("run.jsonl"));
    help_listen();
    int code = resume_open(&first, &options);
    assert_has(help_said(), "fabench: --resume: ");
    assert_int_equal(code, EXIT_NOT_COMPARABLE);
    help_write("run.jsonl", "no record\n");
    help_listen();
    code = resume_open(&first, &options);
    assert_has(help_said(), "run.jsonl");
    assert_int_equal(code, EXIT_NOT_COMPARABLE);
    const struct help_row row = {.impl = "naive", .n = 64};
    help_record("run.jsonl", &row, 1);
    assert_int_equal(resume_open(&first, &options), EXIT_OK);
    assert_int_equal(first.file.count, 1);
    help_listen();
    code = resume_open(&second, &options);
    assert_has(help_said(), "fabench: --resume: ");
    assert_int_equal(code, EXIT_NOT_COMPARABLE);
    resume_close(&first);
    assert_int_equal(resume_open(&second, &options), EXIT_OK);
    resume_close(&second);
    drop_plan();
}

static int resume_tests(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_find_their_places), cmocka_unit_test(a_problem_twice),
                                       cmocka_unit_test(rows_of_other_runs), cmocka_unit_test(headers_that_fit),
                                       cmocka_unit_test(the_file_is_opened)};
    return cmocka_run_group_tests(tests, help_make_folder, help_remove_folder);
}

int main(void) { return check_data_tests() + resume_tests(); }
