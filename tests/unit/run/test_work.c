/* What a sample finds on a device that can be held: new inputs come behind the closed gate, a few rows of them behind
 * the flush of the caches, and all of it can be taken back. The device is the CPU with a gate that only takes notes. */
#include "tests/unit/unit_help.h"

#include "cmd/device/backend.h"
#include "cmd/device/inputs.h"
#include "cmd/run/work.h"
#include "tests/dense.h"

static int holds, early_flips, late_flips;
static struct backend_ops ops;
static const struct backend_ops *cpu;

static enum attn_status note_hold(struct backend *be, struct attn_message *why)
{
    (void)be;
    (void)why;
    holds++;
    return ATTN_OK;
}

static enum attn_status note_flip(struct backend *be, struct attn_tensor tensor, size_t element_bytes, int64_t batch,
                                  int64_t heads, int64_t len, int64_t head_dim, const struct column_signs *signs,
                                  struct attn_message *why)
{
    early_flips += holds == 0;
    late_flips += holds > 0;
    return cpu->flip(be, tensor, element_bytes, batch, heads, len, head_dim, signs, why);
}

struct stand {
    struct backend be;
    struct plan_item item;
    struct tensor_set inputs, outputs;
    struct check_reference reference;
    struct work work;
    struct work_member member;
    uint64_t hash;
};

static void make(struct stand *s, enum attn_mode mode, int64_t rows, bool has_loaded)
{
    struct attn_message why = {""};
    memset(s, 0, sizeof *s);
    s->item = (struct plan_item){.mode = mode, .dist = FILL_NORMAL, .logit_std = NAN, .seed = 5};
    s->item.problem = (struct attn_problem)DENSE(2, 2, 2, rows, rows, 32, ATTN_FP32, ATTN_BSHD, true, -1, -1, 0.2f, 0);
    assert_int_equal(backend_open(&s->be, DEVICE_CPU, 0, &why), ATTN_OK);
    cpu = s->be.ops;
    ops = *cpu;
    ops.hold = note_hold;
    ops.flip = note_flip;
    s->be.ops = &ops;
    assert_int_equal(inputs_make(&s->be, &s->item, NULL, &s->inputs, &why), ATTN_OK);
    assert_int_equal(check_reference_make(&s->be, &s->item, CHECK_FULL, &s->inputs, &s->reference, &why), ATTN_OK);
    assert_int_equal(outputs_make(&s->be, &s->item, &s->inputs, &s->outputs, &why), ATTN_OK);
    assert_int_equal(inputs_hash(&s->be, &s->item, &s->inputs, &s->hash, &why), ATTN_OK);
    assert_int_equal(work_begin(&s->work, &s->be, &s->item, &s->inputs, true, false, has_loaded, &why), ATTN_OK);
    s->member = (struct work_member){.outputs = &s->outputs,
                                     .check = {.item = &s->item, .reference = &s->reference, .outputs = &s->outputs},
                                     .is_loaded = has_loaded};
    holds = early_flips = late_flips = 0;
}

static void end(struct stand *s)
{
    s->be.ops = cpu;
    work_end(&s->work);
    tensor_set_free(&s->be, &s->outputs);
    tensor_set_free(&s->be, &s->inputs);
    check_reference_free(&s->be, &s->reference);
    s->be.ops->close(&s->be);
}

/* As a sample does it behind the flush. */
static void change_late(struct stand *s)
{
    struct attn_message why = {""};
    for (int i = 0; i < s->member.probe.late_count; i++) {
        const struct digest_job *late = &s->member.probe.late[i];
        assert_int_equal(cpu->flip(&s->be, late->tensor, late->element_bytes, late->batch, late->heads, late->len,
                                   late->head_dim, &late->signs, &why),
                         ATTN_OK);
    }
}

static float *copy_of(const struct stand *s, enum problem_tensor t)
{
    float *copy = malloc(s->inputs.buffers[t].bytes);
    assert_non_null(copy);
    memcpy(copy, s->inputs.buffers[t].data, s->inputs.buffers[t].bytes);
    return copy;
}

/* The elements of a tensor that a late change has changed, and the rows that have one. */
static void count_late(const struct stand *s, enum problem_tensor t, const float *before, int64_t *rows,
                       int64_t *elements)
{
    const float *now = s->inputs.buffers[t].data;
    const int64_t columns = s->item.problem.q_heads * 32;
    *rows = *elements = 0;
    for (int64_t row = 0; row < 2 * s->item.problem.q_len; row++) {
        bool has = false;
        for (int64_t c = 0; c < columns; c++) {
            const bool is_changed = signbit(now[row * columns + c]) != signbit(before[row * columns + c]);
            *elements += is_changed;
            has |= is_changed;
            assert_true(fabsf(now[row * columns + c]) == fabsf(before[row * columns + c]));
        }
        *rows += has;
    }
}

static void forward_rows_change_late(void **state)
{
    static const enum problem_tensor changed[] = {TENSOR_Q, TENSOR_K, TENSOR_V};
    struct attn_message why = {""};
    struct stand s;
    (void)state;
    make(&s, ATTN_FWD, 300, true);
    for (int n = 0; n < 20; n++) {
        int64_t rows, elements;
        assert_int_equal(work_change(&s.work, &s.member, true, &why), ATTN_OK);
        assert_true(s.member.probe.is_held);
        assert_int_equal(holds, n + 1);
        assert_int_equal(s.member.probe.late_count, 3);
        float *before[3];
        for (int i = 0; i < 3; i++)
            before[i] = copy_of(&s, changed[i]);
        change_late(&s);
        for (int i = 0; i < 3; i++) {
            count_late(&s, changed[i], before[i], &rows, &elements);
            assert_in_range(rows, 4, 6); /* 2 or 3 of 300, in 2 sequences */
            assert_in_range(elements, rows * 64 / 4, rows * 64 * 3 / 4);
            free(before[i]);
        }
    }
    assert_int_equal(early_flips, 0); /* nothing changes in front of the gate */
    uint64_t hash = 0;
    assert_int_equal(work_restore(&s.work, &why), ATTN_OK);
    assert_int_equal(inputs_hash(&s.be, &s.item, &s.inputs, &hash, &why), ATTN_OK);
    assert_true(hash == s.hash);
    end(&s);
}

/* Known values are left as they are, a launch that only warms the caches is not held, and without a loaded
 * implementation nothing is. */
static void what_is_not_held(void **state)
{
    struct attn_message why = {""};
    struct stand s;
    (void)state;
    make(&s, ATTN_FWD, 300, true);
    assert_int_equal(work_known(&s.work, &s.member, true, &why), ATTN_OK);
    assert_true(s.member.probe.is_held);
    assert_int_equal(s.member.probe.late_count, 0);
    assert_int_equal(work_change(&s.work, &s.member, false, &why), ATTN_OK);
    assert_false(s.member.probe.is_held);
    assert_int_equal(s.member.probe.late_count, 0);
    assert_int_equal(holds, 1);
    end(&s);
    make(&s, ATTN_FWD, 300, false);
    assert_int_equal(work_change(&s.work, &s.member, true, &why), ATTN_OK);
    assert_false(s.member.probe.is_held);
    assert_int_equal(holds, 0);
    end(&s);
    make(&s, ATTN_FWD, WORK_LATE_LEAST - 1, true); /* one row would be too large a part */
    assert_int_equal(work_change(&s.work, &s.member, true, &why), ATTN_OK);
    assert_int_equal(s.member.probe.late_count, 0);
    end(&s);
}

/* O and LSE belong to Q, K and V: dO alone changes late, and a forward that is computed comes before the gate. */
static void backward_changes_dout_late(void **state)
{
    struct attn_message why = {""};
    struct stand s;
    int64_t rows, elements;
    uint64_t hash = 0;
    (void)state;
    make(&s, ATTN_BWD, 130, true);
    for (int n = 0; n < 3; n++) {
        assert_int_equal(work_change(&s.work, &s.member, true, &why), ATTN_OK);
        assert_int_equal(holds, n + 1);
        assert_int_equal(s.member.probe.late_count, 1);
        float *before = copy_of(&s, TENSOR_DO);
        change_late(&s);
        count_late(&s, TENSOR_DO, before, &rows, &elements);
        assert_in_range(rows, 2, 4);
        free(before);
    }
    assert_true(early_flips > 0); /* a loaded implementation on the CPU gets new Q, K and V each time */
    assert_int_equal(work_restore(&s.work, &why), ATTN_OK);
    assert_int_equal(inputs_hash(&s.be, &s.item, &s.inputs, &hash, &why), ATTN_OK);
    assert_true(hash == s.hash);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_rows_change_late),
        cmocka_unit_test(what_is_not_held),
        cmocka_unit_test(backward_changes_dout_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
