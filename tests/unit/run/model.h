/* Models of a kernel's arithmetic, computed on the CPU, and what the judge says about their outputs. For the
 * test_check*.c files, each of which has a model and faults of its own. */
#ifndef FABENCH_TEST_MODEL_H
#define FABENCH_TEST_MODEL_H

#include "tests/unit/unit_help.h"

#include "cmd/device/inputs.h"
#include "cmd/run/check.h"

struct model {
    const struct plan_item *item;
    const struct attn_tensors *t; /* the inputs, and for the backward O and LSE */
    struct tensor_set *out;
    int fault;      /* of the file's enum fault */
    float *dk, *dv; /* [kv_len][head_dim] of one kv head; the model's own */
};

/* Rounded to the problem's dtype. */
static inline float rounded(const struct model *m, float x)
{
    float stored = 0;
    fill_store(&stored, m->item->problem.dtype, 0, x);
    return fill_load(&stored, m->item->problem.dtype, 0);
}

/* to += factor * x, head_dim columns. */
static inline void add(const struct model *m, float *to, float factor, const float *x)
{
    for (int64_t c = 0; c < m->item->problem.head_dim; c++)
        to[c] += factor * x[c];
}

/* The verdicts on all outputs of the problem, after `compute` has written them, and how many.
 * is_naive_exact: naive's errors are taken as 0, so that rule 5 of the judge allows no more than its unit. */
static inline int judge_outputs(const struct plan_item *item, int fault, void (*compute)(struct model *),
                                bool is_naive_exact, struct record_tensor *tensors)
{
    struct backend be;
    struct attn_message why = {""};
    struct tensor_set inputs, outputs;
    struct check_reference reference;
    int count = 0;
    assert_int_equal(backend_open(&be, DEVICE_CPU, 0, &why), ATTN_OK);
    assert_int_equal(inputs_make(&be, item, NULL, &inputs, &why), ATTN_OK);
    assert_int_equal(check_reference_make(&be, item, CHECK_FULL, &inputs, &reference, &why), ATTN_OK);
    assert_int_equal(outputs_make(&be, item, &inputs, &outputs, &why), ATTN_OK);
    for (int i = 0; i < TENSOR_COUNT && is_naive_exact; i++)
        reference.max_abs_err[i] = 0;
    struct model model = {.item = item, .t = &inputs.tensors, .out = &outputs, .fault = fault};
    compute(&model);
    const struct check_request request = {
        .item = item, .reference = &reference, .outputs = &outputs, .atol = NAN, .rtol = NAN};
    assert_int_equal(check_outputs(&be, &request, tensors, &count, &why), ATTN_OK);
    assert_true(count > 0);
    tensor_set_free(&be, &outputs);
    tensor_set_free(&be, &inputs);
    check_reference_free(&be, &reference);
    be.ops->close(&be);
    return count;
}

/* The verdict on the tensor with the largest error / bound. */
static inline struct record_tensor judge_model(const struct plan_item *item, int fault, void (*compute)(struct model *),
                                               bool is_naive_exact)
{
    struct record_tensor tensors[RECORD_TENSORS_MAX];
    const int count = judge_outputs(item, fault, compute, is_naive_exact, tensors);
    int worst = 0;
    for (int i = 1; i < count; i++)
        if (tensors[i].used > tensors[worst].used)
            worst = i;
    return tensors[worst];
}

#endif
