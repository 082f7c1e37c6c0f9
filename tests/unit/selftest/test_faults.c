/* The faults of `selftest` (cmd/selftest/faults.h): each computes what its name says. The kernel here is attention by
 * its definition, with the mask as a function. */
#include "tests/unit/unit_help.h"

#include "cmd/device/inputs.h"
#include "cmd/selftest/faults.h"
#include "tests/unit/selftest/fault_called.h"

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

static void same_outputs(const struct attn_problem *p, enum attn_mode mode, const struct host_tensors *a,
                         const struct host_tensors *b, const char *name)
{
    int count;
    const enum problem_tensor *outputs = problem_outputs(p, mode, &count);
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

static void every_fault_names_a_rule(void **state)
{
    (void)state;
    int count;
    const struct fault *faults = fault_table(&count);
    assert_int_equal(count, 30);
    for (int i = 0; i < count; i++) {
        assert_true(faults[i].rules[ATTN_FWD] | faults[i].rules[ATTN_BWD]);
        assert_true((faults[i].rules[ATTN_FWD] | faults[i].rules[ATTN_BWD]) < 1u << RULE_COUNT);
        assert_true(faults[i].make || faults[i].way != FAULT_RESULT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(computed_faults_are_what_they_are_called),
        cmocka_unit_test(faults_of_windows_and_dropout_are_what_they_are_called),
        cmocka_unit_test(faults_keep_to_their_attributes),
        cmocka_unit_test(mask_faults_need_a_mask),
        cmocka_unit_test(faults_by_hand_change_what_they_say_and_nothing_else),
        cmocka_unit_test(host_tensors_go_there_and_back),
        cmocka_unit_test(every_fault_names_a_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
