/* The faults of `selftest`: each fault computes what its name says, and the verdict requires the named rule in the
 * right tensor. The kernel here is attention by its definition, with the mask as a function. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/plan/plan.h"
#include "cmd/base/text.h"
#include "cmd/device/inputs.h"
#include "cmd/selftest/selftest.h"
#include "cmd/selftest/selftest_report.h"

enum { LEN = 300, DIM = 8, HEADS = 3 };

typedef bool (*sees)(const struct attn_problem *, int64_t row, int64_t key);

static bool sees_its_mask(const struct attn_problem *p, int64_t row, int64_t key)
{
    int64_t first, last;
    attn_visible(p, row, &first, &last);
    return key >= first && key <= last;
}
static bool sees_the_future(const struct attn_problem *p, int64_t row, int64_t key)
{
    (void)p;
    return key > row;
}
static bool sees_less_than_itself(const struct attn_problem *p, int64_t row, int64_t key)
{
    (void)p;
    return key < row;
}
static bool sees_all_but_a_tile(const struct attn_problem *p, int64_t row, int64_t key)
{
    return sees_its_mask(p, row, key) && key < p->kv_len - FAULT_TILE;
}

static bool sees_no_first_key(const struct attn_problem *p, int64_t row, int64_t key)
{
    return sees_its_mask(p, row, key) && key != row - p->window_left;
}
static bool sees_a_key_of_the_future(const struct attn_problem *p, int64_t row, int64_t key)
{
    return sees_its_mask(p, row, key) || key == row + p->window_right + 1;
}

/* What P is multiplied by. `is_rescaled` is false for the fault that leaves 1 / (1 - P) out. */
struct kept {
    int64_t head;
    bool is_rescaled;
};

static double factor_of(const struct attn_problem *p, struct kept kept, int64_t row, int64_t key)
{
    if (p->dropout == 0)
        return 1;
    const double factor = (double)attn_dropout_factor(p, 0, kept.head, row, key);
    return factor == 0 ? 0 : kept.is_rescaled ? factor : 1;
}

static double dot(const float *a, const float *b)
{
    double sum = 0;
    for (int c = 0; c < DIM; c++)
        sum += (double)a[c] * (double)b[c];
    return sum;
}

static void forward_row(const struct attn_problem *p, sees mask, struct kept kept, int64_t i, const float *q,
                        const float *k, const float *v, float *o, float *lse)
{
    double sum = 0, out[DIM] = {0};
    for (int64_t j = 0; j < p->kv_len; j++) {
        if (!mask(p, i, j))
            continue;
        const double weight = exp((double)p->scale * dot(q, k + j * DIM));
        sum += weight;
        for (int c = 0; c < DIM; c++)
            out[c] += factor_of(p, kept, i, j) * weight * (double)v[j * DIM + c];
    }
    *lse = (float)log(sum);
    for (int c = 0; c < DIM; c++)
        o[c] = sum > 0 ? (float)(out[c] / sum) : 0;
}

/* Everything of one row but the sums over rows, which go to dk and dv. */
static void backward_row(const struct attn_problem *p, sees mask, struct kept kept, int64_t i,
                         const struct host_tensors *t, int64_t at, int64_t keys_at, double *dk, double *dv)
{
    const float *q = t->at[TENSOR_Q] + at * DIM, *dout = t->at[TENSOR_DO] + at * DIM;
    const double delta = dot(dout, t->at[TENSOR_O] + at * DIM);
    double dq[DIM] = {0};
    for (int64_t j = 0; j < p->kv_len; j++) {
        const float *k = t->at[TENSOR_K] + (keys_at + j) * DIM, *v = t->at[TENSOR_V] + (keys_at + j) * DIM;
        if (!mask(p, i, j))
            continue;
        const double weight = exp((double)p->scale * dot(q, k) - (double)t->at[TENSOR_LSE][at]);
        const double factor = factor_of(p, kept, i, j);
        const double ds = weight * (factor * dot(dout, v) - delta) * (double)p->scale;
        for (int c = 0; c < DIM; c++) {
            dq[c] += ds * (double)k[c];
            dk[j * DIM + c] += ds * (double)q[c];
            dv[j * DIM + c] += factor * weight * (double)dout[c];
        }
    }
    for (int c = 0; c < DIM; c++)
        t->at[TENSOR_DQ][at * DIM + c] = (float)dq[c];
}

static void attention_kept(const struct attn_problem *p, enum attn_mode mode, sees mask, bool is_rescaled,
                           struct host_tensors *t)
{
    double *dk = calloc((size_t)(p->kv_len * DIM), sizeof *dk), *dv = calloc((size_t)(p->kv_len * DIM), sizeof *dv);
    for (int64_t h = 0; h < p->q_heads; h++) {
        const struct kept kept = {h, is_rescaled};
        memset(dk, 0, (size_t)(p->kv_len * DIM) * sizeof *dk);
        memset(dv, 0, (size_t)(p->kv_len * DIM) * sizeof *dv);
        for (int64_t i = 0; i < p->q_len; i++) {
            const int64_t at = h * p->q_len + i, keys_at = h * p->kv_len;
            if (mode == ATTN_FWD)
                forward_row(p, mask, kept, i, t->at[TENSOR_Q] + at * DIM, t->at[TENSOR_K] + keys_at * DIM,
                            t->at[TENSOR_V] + keys_at * DIM, t->at[TENSOR_O] + at * DIM, &t->at[TENSOR_LSE][at]);
            else
                backward_row(p, mask, kept, i, t, at, keys_at, dk, dv);
        }
        for (int64_t n = 0; mode == ATTN_BWD && n < p->kv_len * DIM; n++) {
            t->at[TENSOR_DK][h * p->kv_len * DIM + n] = (float)dk[n];
            t->at[TENSOR_DV][h * p->kv_len * DIM + n] = (float)dv[n];
        }
    }
    free(dk);
    free(dv);
}

static void attention(const struct attn_problem *p, enum attn_mode mode, sees mask, struct host_tensors *t)
{
    attention_kept(p, mode, mask, true, t);
}

static enum attn_status attend(void *context, const struct attn_problem *p, enum attn_mode mode, struct host_tensors *t,
                               struct attn_message *why)
{
    (void)why;
    ++*(int *)context;
    attention(p, mode, sees_its_mask, t);
    return ATTN_OK;
}

static struct attn_problem problem_of(bool causal)
{
    return (struct attn_problem){.batch = 1,
                                 .q_heads = HEADS,
                                 .kv_heads = HEADS,
                                 .q_len = LEN,
                                 .kv_len = LEN,
                                 .head_dim = DIM,
                                 .causal = causal,
                                 .window_left = -1,
                                 .window_right = -1,
                                 .scale = 0.35f};
}

/* Inputs without any symmetry, and the correct outputs. */
static struct host_tensors correct_of(const struct attn_problem *p, enum attn_mode mode)
{
    struct host_tensors t = host_tensors_make(p, ATTN_BWD);
    float *table = malloc(FILL_TABLE_SIZE * sizeof *table), gain;
    const enum problem_tensor inputs[] = {TENSOR_Q, TENSOR_K, TENSOR_V, TENSOR_DO};
    fill_table(FILL_NORMAL, FILL_Q, table, &gain);
    for (int i = 0; i < 4; i++)
        for (int n = 0; n < HEADS * LEN * DIM; n++)
            t.at[inputs[i]][n] = table[fill_random16(3, (uint32_t)i, (uint64_t)n)];
    free(table);
    attention(p, ATTN_FWD, sees_its_mask, &t);
    if (mode == ATTN_BWD)
        attention(p, ATTN_BWD, sees_its_mask, &t);
    return t;
}

static const struct fault *fault_called(const char *name)
{
    int count;
    const struct fault *faults = fault_table(&count);
    for (int i = 0; i < count; i++)
        if (!strcmp(faults[i].name, name))
            return &faults[i];
    fail_msg("no fault %s", name);
    return NULL;
}

static void same_outputs(const struct attn_problem *p, enum attn_mode mode, const struct host_tensors *a,
                         const struct host_tensors *b, const char *name)
{
    int count;
    const enum problem_tensor *outputs = problem_outputs(mode, &count);
    for (int n = 0; n < count; n++) {
        const float *x = a->at[outputs[n]], *y = b->at[outputs[n]];
        for (int64_t i = 0; i < host_tensors_elements(p, outputs[n]); i++)
            if (!(x[i] == y[i] || fabsf(x[i] - y[i]) <= 1e-5f + 1e-4f * fabsf(y[i])))
                fail_msg("%s: %s[%lld] is %g, not %g", name, problem_tensor_name(outputs[n]), (long long)i,
                         (double)x[i], (double)y[i]);
    }
}

/* The fault's outputs are those of attention with this mask and scale. */
static void is_attention_with(const char *name, bool causal, sees mask, float scale_factor)
{
    for (int mode = 0; mode < 2; mode++) {
        int calls = 0;
        struct attn_message why;
        const struct fault *fault = fault_called(name);
        const struct attn_problem p = problem_of(causal);
        struct attn_problem wrong_problem = p;
        wrong_problem.scale = scale_factor > 0 ? p.scale * scale_factor : 1;
        struct host_tensors correct = correct_of(&p, (enum attn_mode)mode);
        struct host_tensors expected = host_tensors_copy(&correct, &p, ATTN_BWD);
        struct host_tensors wrong = host_tensors_copy(&correct, &p, ATTN_BWD);
        const struct fault_job job = {&p, (enum attn_mode)mode, &correct, attend, &calls};
        assert_true(fault_applies(fault, &p, (enum attn_mode)mode));
        assert_int_equal(fault->make(&job, TENSOR_O, &wrong, &why), ATTN_OK);
        attention(&wrong_problem, (enum attn_mode)mode, mask, &expected);
        same_outputs(&p, (enum attn_mode)mode, &wrong, &expected, name);
        assert_true(calls > 0);
        host_tensors_free(&correct);
        host_tensors_free(&expected);
        host_tensors_free(&wrong);
    }
}

static void computed_faults_are_what_they_are_called(void **state)
{
    (void)state;
    is_attention_with("inverted mask", true, sees_the_future, 1);
    is_attention_with("diagonal off by one", true, sees_less_than_itself, 1);
    is_attention_with("scale off by 1 %", true, sees_its_mask, 1.01f);
    is_attention_with("scale off by 1 %", false, sees_its_mask, 1.01f);
    is_attention_with("missing scale", true, sees_its_mask, 0);
    is_attention_with("last tile skipped", true, sees_all_but_a_tile, 1);
    is_attention_with("last tile skipped", false, sees_all_but_a_tile, 1);
}

/* A problem that the faults beyond dense attention apply to. */
static struct attn_problem family_of(bool causal, float dropout)
{
    struct attn_problem p = problem_of(causal);
    p.window_left = 40;
    p.window_right = causal ? -1 : 17;
    p.dropout = dropout;
    p.dropout_seed = dropout > 0 ? 5 : 0;
    return p;
}

/* The outputs of the fault are those of attention on `wrong_problem` with this mask. */
static void is_family_fault(const char *name, enum attn_mode mode, const struct attn_problem *p,
                            const struct attn_problem *wrong_problem, sees mask, bool is_rescaled)
{
    int calls = 0;
    struct attn_message why;
    struct host_tensors correct = correct_of(p, mode);
    struct host_tensors expected = host_tensors_copy(&correct, p, ATTN_BWD);
    struct host_tensors wrong = host_tensors_copy(&correct, p, ATTN_BWD);
    const struct fault_job job = {p, mode, &correct, attend, &calls};
    assert_true(fault_applies(fault_called(name), p, mode));
    assert_int_equal(fault_called(name)->make(&job, TENSOR_O, &wrong, &why), ATTN_OK);
    attention_kept(wrong_problem, mode, mask, is_rescaled, &expected);
    same_outputs(p, mode, &wrong, &expected, name);
    host_tensors_free(&correct);
    host_tensors_free(&expected);
    host_tensors_free(&wrong);
}

static void faults_of_windows_and_dropout_are_what_they_are_called(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const enum attn_mode mode = (enum attn_mode)(i & 1);
        const bool causal = i >> 1;
        const struct attn_problem window = family_of(causal, 0), dropout = family_of(causal, 0.2f);
        struct attn_problem other = dropout;
        other.dropout_seed++;
        is_family_fault("window left edge", mode, &window, &window, sees_no_first_key, true);
        if (!causal)
            is_family_fault("window right edge", mode, &window, &window, sees_a_key_of_the_future, true);
        is_family_fault("1/(1-P) missing", mode, &dropout, &dropout, sees_its_mask, false);
        if (mode == ATTN_BWD)
            is_family_fault("bwd dropout mask", mode, &dropout, &other, sees_its_mask, true);
    }
}

/* A fault is tried on problems with its attributes and no others. */
static void faults_keep_to_their_attributes(void **state)
{
    (void)state;
    const struct attn_problem dense = problem_of(true), window = family_of(false, 0), dropout = family_of(true, 0.2f);
    assert_true(fault_applies(fault_called("diagonal off by one"), &dense, ATTN_FWD));
    assert_false(fault_applies(fault_called("diagonal off by one"), &dropout, ATTN_FWD));
    assert_false(fault_applies(fault_called("window left edge"), &dense, ATTN_FWD));
    assert_false(fault_applies(fault_called("window left edge"), &dropout, ATTN_FWD));
    assert_true(fault_applies(fault_called("window right edge"), &window, ATTN_BWD));
    const struct attn_problem causal_window = family_of(true, 0);
    assert_false(fault_applies(fault_called("window right edge"), &causal_window, ATTN_BWD));
    assert_false(fault_applies(fault_called("1/(1-P) missing"), &window, ATTN_FWD));
    assert_false(fault_applies(fault_called("bwd dropout mask"), &dropout, ATTN_FWD));
    assert_true(fault_applies(fault_called("bwd dropout mask"), &dropout, ATTN_BWD));
}

static void mask_faults_need_a_mask(void **state)
{
    (void)state;
    const struct attn_problem full = problem_of(false);
    assert_false(fault_applies(fault_called("inverted mask"), &full, ATTN_FWD));
    assert_false(fault_applies(fault_called("diagonal off by one"), &full, ATTN_BWD));
    assert_true(fault_applies(fault_called("last tile skipped"), &full, ATTN_BWD));
    assert_false(fault_applies(fault_called("dK off by 1 %"), &full, ATTN_FWD));
    assert_true(fault_applies(fault_called("dK off by 1 %"), &full, ATTN_BWD));
}

static struct host_tensors made_by_hand(const char *name, enum attn_mode mode, enum problem_tensor tensor,
                                        const struct host_tensors *correct)
{
    int calls = 0;
    struct attn_message why;
    const struct attn_problem p = problem_of(true);
    const struct fault_job job = {&p, mode, correct, attend, &calls};
    struct host_tensors wrong = host_tensors_copy(correct, &p, ATTN_BWD);
    assert_int_equal(fault_called(name)->make(&job, tensor, &wrong, &why), ATTN_OK);
    assert_int_equal(calls, 0);
    return wrong;
}

static void faults_by_hand_change_what_they_say_and_nothing_else(void **state)
{
    (void)state;
    const struct attn_problem p = problem_of(true);
    struct host_tensors correct = correct_of(&p, ATTN_BWD);
    struct host_tensors nan = made_by_hand("NaN row", ATTN_BWD, TENSOR_DV, &correct);
    struct host_tensors swapped = made_by_hand("swapped heads", ATTN_BWD, TENSOR_O, &correct);
    struct host_tensors swapped_forward = made_by_hand("swapped heads", ATTN_FWD, TENSOR_O, &correct);
    struct host_tensors dk = made_by_hand("dK off by 1 %", ATTN_BWD, TENSOR_DK, &correct);
    const int64_t head = LEN * DIM;
    for (int64_t i = 0; i < HEADS * head; i++) {
        const bool is_nan_row = i / DIM == LEN / 2;
        const int64_t other = i / head == 1 ? i : i < head ? i + 2 * head : i - 2 * head;
        assert_int_equal(isnan(nan.at[TENSOR_DV][i]) != 0, is_nan_row);
        assert_true(is_nan_row || nan.at[TENSOR_DV][i] == correct.at[TENSOR_DV][i]);
        assert_true(swapped.at[TENSOR_DK][i] == correct.at[TENSOR_DK][other]);
        assert_true(swapped.at[TENSOR_O][i] == correct.at[TENSOR_O][i]); /* an input of the backward pass */
        assert_true(swapped_forward.at[TENSOR_O][i] == correct.at[TENSOR_O][other]);
        assert_true(dk.at[TENSOR_DK][i] == correct.at[TENSOR_DK][i] * 1.01f);
        assert_true(dk.at[TENSOR_DQ][i] == correct.at[TENSOR_DQ][i] && dk.at[TENSOR_DV][i] == correct.at[TENSOR_DV][i]);
    }
    for (int64_t i = 0; i < HEADS * LEN; i++)
        assert_true(swapped_forward.at[TENSOR_LSE][i] == correct.at[TENSOR_LSE][i / LEN == 1 ? i
                                                                                : i < LEN    ? i + 2 * LEN
                                                                                             : i - 2 * LEN]);
    host_tensors_free(&correct);
    host_tensors_free(&nan);
    host_tensors_free(&swapped);
    host_tensors_free(&swapped_forward);
    host_tensors_free(&dk);
}

/* ---- the verdict ---- */

struct said {
    struct record_tensor tensors[3];
    double by_rule[3][JUDGE_RULES];
};

/* dq dk dv, every rule at a tenth of its bound. */
static struct said nothing_said(void)
{
    static const char *const names[] = {"dq", "dk", "dv"};
    struct said s;
    memset(&s, 0, sizeof s);
    for (int t = 0; t < 3; t++) {
        strcpy(s.tensors[t].name, names[t]);
        strcpy(s.tensors[t].rule, "element");
        s.tensors[t].used = 0.1;
        for (int r = 0; r < JUDGE_RULES; r++)
            s.by_rule[t][r] = r == RULE_LSE || r == RULE_NAIVE ? NAN : 0.1;
    }
    return s;
}

static void say(struct said *s, int t, enum judge_rule rule, double used)
{
    s->tensors[t].used = used;
    strcpy(s->tensors[t].rule, judge_rule_name(rule));
    if (rule < JUDGE_RULES)
        s->by_rule[t][rule] = used;
}

static bool is_good(const char *fault, int tensor, struct said *s)
{
    struct selftest_verdict v;
    selftest_decide(fault ? fault_called(fault) : NULL, tensor, ATTN_BWD, s->tensors, 3, s->by_rule, &v);
    return v.is_good;
}

static void a_fault_is_caught_by_its_rule_alone(void **state)
{
    (void)state;
    struct said s = nothing_said();
    assert_false(is_good("dK off by 1 %", TENSOR_DK, &s));
    say(&s, 1, RULE_GAIN, 1);
    assert_false(is_good("dK off by 1 %", TENSOR_DK, &s)); /* at the bound is within it */
    say(&s, 1, RULE_GAIN, 1.01);
    assert_true(is_good("dK off by 1 %", TENSOR_DK, &s));
    s = nothing_said();
    say(&s, 1, RULE_ELEMENT, 50);
    assert_false(is_good("dK off by 1 %", TENSOR_DK, &s)); /* another rule than the one that is there for it */
    s = nothing_said();
    say(&s, 0, RULE_GAIN, 50);
    assert_false(is_good("dK off by 1 %", TENSOR_DK, &s)); /* another tensor */
    assert_false(is_good("swapped heads", -1, &s));
    say(&s, 2, RULE_RMS, 2);
    assert_true(is_good("swapped heads", -1, &s)); /* any tensor */
    say(&s, 2, RULE_NONFINITE, NAN);
    assert_false(is_good("NaN row", TENSOR_DV, &s)); /* a share that is NaN does not count as caught */
}

static void a_broken_guard_is_one_of_its_tensor(void **state)
{
    (void)state;
    struct said s = nothing_said();
    assert_false(is_good("one element past the end", TENSOR_DQ, &s));
    say(&s, 1, RULE_GUARD, 999);
    assert_false(is_good("one element past the end", TENSOR_DQ, &s));
    say(&s, 0, RULE_GUARD, 999);
    assert_true(is_good("one element past the end", TENSOR_DQ, &s));
}

static void the_right_result_must_pass(void **state)
{
    (void)state;
    struct said s = nothing_said();
    struct selftest_verdict v;
    assert_true(is_good(NULL, -1, &s));
    say(&s, 2, RULE_BLOCK_RMS, 1.5);
    assert_false(is_good(NULL, -1, &s));
    say(&s, 2, RULE_BLOCK_RMS, NAN);
    assert_false(is_good(NULL, -1, &s));
    selftest_decide(NULL, -1, ATTN_BWD, s.tensors, 0, s.by_rule, &v); /* nothing was judged */
    assert_false(v.is_good);
}

static bool report_of(int good_faults, int bad_faults, bool correct_passes)
{
    struct said s = nothing_said();
    struct selftest_verdict v;
    const struct plan_item item = {.problem = problem_of(true), .mode = ATTN_BWD};
    const struct selftest_problem problem = {&item, "made_up", ATTN_FP32, "fabench selftest"};
    struct selftest_report *r = selftest_report_open(NULL, false, false, 20, NULL, NULL);
    selftest_report_heading(r, "made up", 1);
    selftest_report_begin(r, &problem);
    for (int i = 0; i < good_faults + bad_faults; i++) {
        s = nothing_said();
        if (i < good_faults)
            say(&s, 1, RULE_GAIN, 9);
        selftest_decide(fault_called("dK off by 1 %"), TENSOR_DK, ATTN_BWD, s.tensors, 3, s.by_rule, &v);
        assert_int_equal(selftest_report_add(r, &v, NULL), EXIT_OK);
    }
    s = nothing_said();
    if (!correct_passes)
        say(&s, 0, RULE_ELEMENT, 2);
    selftest_decide(NULL, -1, ATTN_BWD, s.tensors, 3, s.by_rule, &v);
    assert_int_equal(selftest_report_add(r, &v, NULL), EXIT_OK);
    selftest_report_end(r);
    const bool good = selftest_report_is_good(r);
    selftest_report_close(r, 0, NULL, good ? EXIT_OK : EXIT_IO);
    return good;
}

static void one_that_gets_through_spoils_all(void **state)
{
    (void)state;
    assert_true(report_of(3, 0, true));
    assert_false(report_of(3, 1, true));
    assert_false(report_of(3, 0, false));
    assert_false(report_of(0, 0, true)); /* nothing was tried */
}

/* ---- lies about work ---- */

static struct lie_verdict lie_verdict_of(const struct lie *lie, int timed, int idle, double used, bool was_idle)
{
    struct lie_verdict v = {.lie = lie, .timed = timed, .idle = idle, .tensor_count = 1};
    strcpy(v.tensors[0].name, "o");
    strcpy(v.tensors[0].rule, used > 1 ? "work" : "element");
    v.tensors[0].used = used;
    lie_decide(&v, was_idle);
    return v;
}

static bool is_lie_caught(const char *name, int idle, double used, bool was_idle)
{
    int i = 0;
    while (lie_at(i) && strcmp(lie_name(lie_at(i)), name))
        i++;
    assert_non_null(lie_at(i));
    return lie_verdict_of(lie_at(i), 9, idle, used, was_idle).is_good;
}

static void a_lie_is_caught_by_a_finding_or_has_computed(void **state)
{
    (void)state;
    assert_true(is_lie_caught("every second call", 4, 999, false));
    assert_false(is_lie_caught("every second call", 4, 0.5, false)); /* it keeps its time */
    assert_false(is_lie_caught("every second call", 0, 0.5, false)); /* it did not lie: nothing is shown */
    assert_false(is_lie_caught("every second call", 0, 999, false)); /* found, though each launch computed */
    assert_true(is_lie_caught("lazy on valid output", 0, 0.5, true));
    assert_false(is_lie_caught("lazy on valid output", 0, 0.5, false)); /* it never returned early: it is no lie */
    assert_false(is_lie_caught("lazy on valid output", 0, 999, true));
    assert_false(is_lie_caught("lazy on valid output", 1, 0.5, true));
    assert_true(is_lie_caught("lazy on valid output", 1, 999, true));
    assert_true(lie_verdict_of(NULL, 9, 0, 0.5, false).is_good);
    assert_false(lie_verdict_of(NULL, 9, 0, 1.5, false).is_good);
    assert_false(lie_verdict_of(NULL, 9, 0, (double)NAN, false).is_good);
    struct lie_verdict unchecked = {.timed = 9};
    lie_decide(&unchecked, false);
    assert_false(unchecked.is_good);
}

static const struct attn_impl *cpu_kernel(void)
{
    const struct attn_impl *const *kernels = attn_registry();
    while (*kernels && (*kernels)->platform != ATTN_CPU)
        kernels++;
    assert_non_null(*kernels);
    return *kernels;
}

static int launches;
static bool writes_nothing;

static enum attn_status counted(const struct attn_request *request, const struct attn_tensors *t,
                                const struct attn_run *run, struct attn_message *why)
{
    launches++;
    return writes_nothing ? ATTN_OK : cpu_kernel()->launch(request, t, run, why);
}

struct found {
    struct lie_verdict verdicts[16];
    int count, depth;
};

static void calling(void *context, bool begins)
{
    struct found *found = context;
    found->depth += begins ? 1 : -1;
    assert_true(found->depth == 0 || found->depth == 1);
}

static void keep(void *context, const struct lie_verdict *v)
{
    struct found *found = context;
    assert_true(found->count < 16);
    found->verdicts[found->count++] = *v;
}

/* The way of the lies with a kernel of this program on the CPU. */
static struct found lies_of(enum attn_mode mode)
{
    struct found found = {.count = 0};
    struct backend be;
    struct attn_message why = {""};
    struct attn_impl impl = *cpu_kernel();
    assert_int_equal(backend_open_cpu(&be, &why), ATTN_OK);
    const struct plan_item item = {.problem = problem_of(true), .mode = mode, .seed = 4};
    impl.launch = counted;
    const struct lies_job job = {
        .backend = &be, .item = &item, .impl = &impl, .calling = calling, .found = keep, .context = &found};
    launches = 0;
    if (lies_run(&job, &why) != ATTN_OK)
        fail_msg("%s", why.text);
    assert_int_equal(found.depth, 0);
    be.ops->close(&be);
    return found;
}

static void each_lie_goes_the_way_of_a_timed_kernel(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        const struct found found = lies_of((enum attn_mode)mode);
        const struct lie_verdict *honest = &found.verdicts[0];
        int computed = 0;
        assert_true(honest->lie == NULL && honest->is_good && honest->idle == 0 && honest->timed > LIE_SAMPLES);
        for (int i = 0; i < found.count; i++) {
            const struct lie_verdict *v = &found.verdicts[i];
            const char *name = i ? lie_name(v->lie) : "honest";
            if (!v->is_good || v->timed <= LIE_SAMPLES)
                fail_msg("%s: %d timed launches, %d without work", name, v->timed, v->idle);
            if (i > 0)
                assert_ptr_equal(v->lie, lie_at(i - 1));
            if (i > 0 && strcmp(name, "lazy on valid output"))
                assert_true(v->idle > 0);
            computed += v->timed - v->idle;
        }
        assert_null(lie_at(found.count - 1));
        assert_true(launches >= computed + found.count); /* the kernel was called, and in each checked launch */
    }
}

static void a_kernel_that_is_wrong_proves_nothing_about_lies(void **state)
{
    (void)state;
    writes_nothing = true;
    const struct found found = lies_of(ATTN_FWD);
    writes_nothing = false;
    assert_int_equal(found.count, 1);
    assert_null(found.verdicts[0].lie);
    assert_false(found.verdicts[0].is_good);
}

static bool report_with_lie(const struct lie *lie, int idle, double used)
{
    struct said s = nothing_said();
    struct selftest_verdict v;
    const struct plan_item item = {.problem = problem_of(true), .mode = ATTN_BWD};
    const struct selftest_problem problem = {&item, "made_up", ATTN_FP32, "fabench selftest"};
    struct selftest_report *r = selftest_report_open(NULL, false, false, 20, NULL, NULL);
    struct record_row row = {.repro = NULL};
    selftest_report_begin(r, &problem);
    say(&s, 1, RULE_GAIN, 9);
    selftest_decide(fault_called("dK off by 1 %"), TENSOR_DK, ATTN_BWD, s.tensors, 3, s.by_rule, &v);
    assert_int_equal(selftest_report_add(r, &v, NULL), EXIT_OK);
    struct lie_verdict found = lie_verdict_of(lie, 9, idle, used, false);
    found.item = &item;
    assert_int_equal(selftest_report_add_lie(r, &found, &row), EXIT_OK);
    const bool good = selftest_report_is_good(r);
    selftest_report_close(r, 0, NULL, good ? EXIT_OK : EXIT_IO);
    return good;
}

static void a_lie_that_gets_through_spoils_all(void **state)
{
    (void)state;
    assert_true(report_with_lie(lie_at(1), 9, 999));
    assert_false(report_with_lie(lie_at(1), 9, 0.5));
    assert_true(report_with_lie(NULL, 0, 0.5));
    assert_false(report_with_lie(NULL, 0, 999));
}

/* ---- around it ---- */

static void host_tensors_go_there_and_back(void **state)
{
    (void)state;
    struct backend be;
    struct attn_message why;
    const enum attn_layout layouts[] = {ATTN_BSHD, ATTN_BHSD};
    assert_int_equal(backend_open_cpu(&be, &why), ATTN_OK);
    for (int l = 0; l < 2; l++)
        for (int dtype = ATTN_FP32; dtype <= ATTN_BF16; dtype++) {
            struct plan_item item = {.problem = problem_of(true), .mode = ATTN_BWD, .batch_gap = 24, .seed = 5};
            struct tensor_set inputs, outputs;
            item.problem.batch = 2;
            item.problem.layout = layouts[l];
            item.problem.dtype = (enum attn_dtype)dtype;
            assert_int_equal(inputs_make(&be, &item, NULL, &inputs, &why), ATTN_OK);
            assert_int_equal(outputs_make(&be, &item, &inputs, &outputs, &why), ATTN_OK);
            struct host_tensors t = host_tensors_make(&item.problem, ATTN_BWD);
            struct host_tensors back = host_tensors_make(&item.problem, ATTN_BWD);
            for (int64_t i = 0; i < host_tensors_elements(&item.problem, TENSOR_DK); i++)
                t.at[TENSOR_DQ][i] = t.at[TENSOR_DK][i] = t.at[TENSOR_DV][i] = (float)(i % 101) - 50;
            assert_int_equal(host_tensors_write(&be, &item, &t, &outputs, &why), ATTN_OK);
            assert_int_equal(host_tensors_read(&be, &item, &outputs, &back, &why), ATTN_OK);
            assert_memory_equal(t.at[TENSOR_DK], back.at[TENSOR_DK],
                                (size_t)host_tensors_elements(&item.problem, TENSOR_DK) * sizeof(float));
            /* The gap between the batches still holds its poison, the guards are whole. */
            const struct attn_tensor *dq = &outputs.tensors.dq;
            const int64_t gap = dq->stride_batch - 1;
            assert_true(isnan(fill_load(dq->data, item.problem.dtype, gap)));
            uint64_t words = 1;
            assert_int_equal(buffer_guards_broken(&be, &outputs.buffers[TENSOR_DV], &words, &why), ATTN_OK);
            assert_int_equal(words, 0);
            /* Element (1, 2, 7, 3) lies where the strides say. */
            const int64_t packed = ((1 * HEADS + 2) * LEN + 7) * DIM + 3;
            const int64_t strided = dq->stride_batch + 2 * dq->stride_head + 7 * dq->stride_row + 3;
            assert_true(fill_load(dq->data, item.problem.dtype, strided) == t.at[TENSOR_DQ][packed]);
            host_tensors_free(&t);
            host_tensors_free(&back);
            tensor_set_free(&be, &inputs);
            tensor_set_free(&be, &outputs);
        }
    be.ops->close(&be);
}

static void the_plan_has_every_dtype_mask_and_length(void **state)
{
    (void)state;
    struct plan plan;
    int64_t lens[] = {512};
    struct options o = {.modes = {true, true}, .causal = {true, true}};
    assert_int_equal(plan_make_selftest(&o, &plan), EXIT_OK);
    assert_int_equal(plan.count, 3 * 2 * 2 * 2 * 3); /* dense, with a window, with dropout too */
    unsigned seen[3] = {0};
    for (int i = 0; i < plan.count; i++) {
        const struct attn_problem *p = &plan.items[i].problem;
        assert_true(p->q_len == p->kv_len && (p->q_len == 1024 || p->q_len == 16384) && p->q_heads == 2);
        const int kind = (p->window_left >= 0) + (p->dropout > 0);
        assert_true(kind == i % 3 && (p->window_right >= 0) == (kind > 0 && !p->causal));
        seen[kind] |= 1u << ((int)p->dtype * 8 + (int)plan.items[i].mode * 4 + p->causal * 2 + (p->q_len > 1024));
    }
    for (int kind = 0; kind < 3; kind++)
        assert_int_equal(seen[kind], 0xFFFFFF);
    plan_free(&plan);
    o = (struct options){.modes = {false, true},
                         .causal = {false, true},
                         .dtypes_given = true,
                         .selftest_heads = 4,
                         .dtypes = {[ATTN_BF16] = true},
                         .q_lens = {lens, 1}};
    assert_int_equal(plan_make_selftest(&o, &plan), EXIT_OK);
    assert_int_equal(plan.count, 3);
    assert_int_equal(plan.items[0].problem.dtype, ATTN_BF16);
    assert_int_equal(plan.items[0].problem.kv_heads, 4);
    assert_int_equal(plan.items[0].problem.q_len, 512);
    plan_free(&plan);
}

static void every_fault_names_a_rule(void **state)
{
    (void)state;
    int count;
    const struct fault *faults = fault_table(&count);
    assert_int_equal(count, 14);
    for (int i = 0; i < count; i++) {
        assert_true(faults[i].rules[ATTN_FWD] | faults[i].rules[ATTN_BWD]);
        assert_true((faults[i].rules[ATTN_FWD] | faults[i].rules[ATTN_BWD]) < 1u << RULE_COUNT);
        assert_true(faults[i].make || faults[i].way != FAULT_RESULT);
    }
}

/* The command of a problem: long paths whole, quoted for a shell, and what follows them. */
static void the_command_names_what_was_tried(void **state)
{
    (void)state;
    char first[200], second[200];
    struct options o = {.device = DEVICE_CPU};
    const struct plan_item item = {.problem = problem_of(true), .mode = ATTN_BWD, .dist = FILL_CONSTANT, .seed = 7};
    memset(first, 'a', sizeof first);
    memset(second, 'b', sizeof second);
    strcpy(first + 190, "/one.so");
    strcpy(second + 190, "'s/two.so");
    const char *const given[] = {"--impl-lib", first, "--impl-lib", second, "--impl", "one", "--device", "cpu"};
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++)
        name_list_add(&o.given, given[i]);
    name_list_add(&o.impls, "one");
    char *line = selftest_repro(&o, &item, "one");
    struct name_list words = {0};
    assert_true(text_split_shell(line, &words));
    const char *const expected[] = {
        "fabench", "selftest", "--impl-lib", first,     "--impl-lib", second,         "--device", "cpu", "--impl",
        "one",     "--mode",   "bwd",        "--dtype", "fp32",       "--causal=yes", "--heads",  "3",   "--seqlen",
        "300",     "--d",      "8",          "--dist",  "constant",   "--seed",       "7"};
    assert_int_equal(words.count, sizeof expected / sizeof expected[0]);
    for (int i = 0; i < words.count; i++)
        assert_string_equal(words.names[i], expected[i]);
    free(line);
    name_list_free(&words);
    name_list_free(&o.given);
    name_list_free(&o.impls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(computed_faults_are_what_they_are_called),
        cmocka_unit_test(faults_of_windows_and_dropout_are_what_they_are_called),
        cmocka_unit_test(faults_keep_to_their_attributes),
        cmocka_unit_test(mask_faults_need_a_mask),
        cmocka_unit_test(faults_by_hand_change_what_they_say_and_nothing_else),
        cmocka_unit_test(a_fault_is_caught_by_its_rule_alone),
        cmocka_unit_test(a_broken_guard_is_one_of_its_tensor),
        cmocka_unit_test(the_right_result_must_pass),
        cmocka_unit_test(one_that_gets_through_spoils_all),
        cmocka_unit_test(a_lie_is_caught_by_a_finding_or_has_computed),
        cmocka_unit_test(each_lie_goes_the_way_of_a_timed_kernel),
        cmocka_unit_test(a_kernel_that_is_wrong_proves_nothing_about_lies),
        cmocka_unit_test(a_lie_that_gets_through_spoils_all),
        cmocka_unit_test(host_tensors_go_there_and_back),
        cmocka_unit_test(the_plan_has_every_dtype_mask_and_length),
        cmocka_unit_test(every_fault_names_a_rule),
        cmocka_unit_test(the_command_names_what_was_tried),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
