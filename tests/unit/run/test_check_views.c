/* Which parts of a problem --check sample judges: whole heads, and of long sequences blocks of rows. */
#include "tests/unit/run/model.h"

#include "tests/dense.h"

enum { LONG = CHECK_WHOLE_ROWS + COMPARE_BLOCK_ROWS + 8, MORE_KEYS = 100, DIM = 8 };

static struct plan_item item_of(int64_t rows, enum attn_mode mode)
{
    struct plan_item item = {.mode = mode, .dist = FILL_NORMAL, .logit_std = NAN, .seed = 5};
    item.problem =
        (struct attn_problem)DENSE(2, 4, 2, rows, rows + MORE_KEYS, DIM, ATTN_FP32, ATTN_BSHD, true, -1, -1, 0.35f, 0);
    return item;
}

static void whole_heads(void **state)
{
    (void)state;
    struct check_view views[CHECK_MAX_VIEWS];
    struct plan_item item = item_of(CHECK_WHOLE_ROWS, ATTN_FWD);
    assert_int_equal(check_make_views(&item, CHECK_OFF, views), 0);
    assert_int_equal(check_make_views(&item, CHECK_SAMPLE, views), 2);
    assert_int_equal(views[1].q_head_offset, 2);
    item = item_of(LONG, ATTN_BWD); /* dK and dV are sums over all rows */
    assert_int_equal(check_make_views(&item, CHECK_SAMPLE, views), 2);
    item = item_of(LONG, ATTN_FWD);
    assert_int_equal(check_make_views(&item, CHECK_FULL, views), 1);
    item.problem.causal = false;
    item.problem.window_left = item.problem.window_right = 5; /* its block is no problem with fewer rows and keys */
    assert_int_equal(check_make_views(&item, CHECK_SAMPLE, views), 2);
    item = item_of(LONG, ATTN_FWD);
    item.problem.kv_len = LONG - 1000; /* rows that see nothing */
    assert_int_equal(check_make_views(&item, CHECK_SAMPLE, views), 2);
}

static void blocks_of_rows(void **state)
{
    (void)state;
    struct check_view views[CHECK_MAX_VIEWS], others[CHECK_MAX_VIEWS];
    struct plan_item item = item_of(1 << 20, ATTN_FWD);
    assert_int_equal(check_make_views(&item, CHECK_SAMPLE, views), CHECK_MAX_VIEWS);
    for (int n = 0; n < CHECK_MAX_VIEWS; n++) {
        const bool is_last = n >= CHECK_BLOCKS;
        assert_int_equal(views[n].batch_offset, is_last);
        assert_int_equal(views[n].q_head_offset, (is_last ? 2 : 0) + n % 2); /* the heads of the group in turn */
        assert_int_equal(views[n].kv_head_offset, is_last);
        assert_int_equal(views[n].row_offset % COMPARE_BLOCK_ROWS, 0);
        assert_int_equal(views[n].problem.q_len, COMPARE_BLOCK_ROWS);
        assert_int_equal(views[n].problem.kv_len, views[n].row_offset + COMPARE_BLOCK_ROWS + MORE_KEYS);
        const int64_t eighth = (1 << 20) / CHECK_BLOCKS;
        assert_int_equal(views[n].row_offset / eighth, n % CHECK_BLOCKS);
    }
    assert_int_equal(views[0].row_offset, 0);
    assert_int_equal(views[CHECK_BLOCKS - 1].row_offset, (1 << 20) - COMPARE_BLOCK_ROWS);
    int moved = 0;
    item.seed = 6;
    check_make_views(&item, CHECK_SAMPLE, others);
    for (int n = 0; n < CHECK_MAX_VIEWS; n++)
        moved += others[n].row_offset != views[n].row_offset;
    assert_int_equal(moved, CHECK_MAX_VIEWS - 4); /* all but the first and last blocks */
    check_make_views(&item, CHECK_SAMPLE, views);
    assert_memory_equal(views, others, sizeof views);
    item.problem.q_len = item.problem.kv_len = LONG; /* the last block has 8 rows */
    check_make_views(&item, CHECK_SAMPLE, views);
    assert_int_equal(views[CHECK_MAX_VIEWS - 1].problem.q_len, 8);
    assert_int_equal(views[CHECK_MAX_VIEWS - 1].row_offset + 8, LONG);
}

/* One element of O in float64: the row as one of the whole problem. */
static double element_of(const struct attn_problem *p, const struct attn_tensors *t, int64_t b, int64_t h, int64_t row,
                         int64_t col)
{
    const int64_t kv = h / (p->q_heads / p->kv_heads);
    double sum = 0, weighted = 0;
    for (int64_t j = 0; j <= row + p->kv_len - p->q_len; j++) {
        double s = 0;
        for (int64_t c = 0; c < p->head_dim; c++)
            s += (double)fill_load(t->q.data, p->dtype,
                                   b * t->q.stride_batch + h * t->q.stride_head + row * t->q.stride_row + c) *
                 (double)fill_load(t->k.data, p->dtype,
                                   b * t->k.stride_batch + kv * t->k.stride_head + j * t->k.stride_row + c);
        const double weight = exp((double)p->scale * s);
        sum += weight;
        weighted +=
            weight * (double)fill_load(t->v.data, p->dtype,
                                       b * t->v.stride_batch + kv * t->v.stride_head + j * t->v.stride_row + col);
    }
    return weighted / sum;
}

/* Writes the references of all views to the outputs. */
static void copy_references(const struct check_reference *reference, const struct attn_problem *p,
                            struct tensor_set *outputs)
{
    for (int n = 0; n < reference->count; n++) {
        const struct check_view *view = &reference->views[n];
        const struct attn_tensor o = outputs->tensors.o;
        for (int64_t row = 0; row < view->problem.q_len; row++) {
            const int64_t at = view->row_offset + row;
            for (int64_t c = 0; c < DIM; c++)
                fill_store(o.data, p->dtype,
                           view->batch_offset * o.stride_batch + view->q_head_offset * o.stride_head +
                               at * o.stride_row + c,
                           view->reference.o[row * DIM + c]);
            outputs->tensors.lse[(view->batch_offset * p->q_heads + view->q_head_offset) * p->q_len + at] =
                view->reference.lse[row];
        }
    }
}

/* The references of blocks are those of rows of the whole problem; an output is judged at these rows, and a wrong
 * element is named by its place in the whole tensor. */
static void judged_where_they_lie(void **state)
{
    (void)state;
    struct backend be;
    struct attn_message why = {""};
    struct tensor_set inputs, outputs;
    struct check_reference reference;
    struct record_tensor tensors[RECORD_TENSORS_MAX];
    int count = 0;
    const struct plan_item item = item_of(LONG, ATTN_FWD);
    const struct attn_problem *p = &item.problem;
    assert_int_equal(backend_open(&be, DEVICE_CPU, 0, &why), ATTN_OK);
    assert_int_equal(inputs_make(&be, &item, NULL, &inputs, &why), ATTN_OK);
    assert_int_equal(check_reference_make(&be, &item, CHECK_SAMPLE, &inputs, &reference, &why), ATTN_OK);
    assert_int_equal(outputs_make(&be, &item, &inputs, &outputs, &why), ATTN_OK);
    assert_int_equal(reference.count, CHECK_MAX_VIEWS);
    for (int n = 0; n < reference.count; n++) {
        const struct check_view *view = &reference.views[n];
        const int64_t row = view->problem.q_len - 1 - n % 3;
        const double want =
            element_of(p, &inputs.tensors, view->batch_offset, view->q_head_offset, view->row_offset + row, n % DIM);
        assert_true(fabs((double)view->reference.o[row * DIM + n % DIM] - want) < 1e-6);
    }
    const struct check_request request = {
        .item = &item, .reference = &reference, .outputs = &outputs, .atol = NAN, .rtol = NAN};
    copy_references(&reference, p, &outputs); /* the rest stays unwritten */
    assert_int_equal(check_outputs(&be, &request, tensors, &count, &why), ATTN_OK);
    assert_int_equal(count, 2);
    assert_true(check_passed(tensors, count));

    const struct check_view *view = &reference.views[CHECK_BLOCKS + 3];
    const struct attn_tensor o = outputs.tensors.o;
    const int64_t row = view->row_offset + 17;
    fill_store(o.data, p->dtype, o.stride_batch + view->q_head_offset * o.stride_head + row * o.stride_row + 2, 9);
    char words[100];
    assert_int_equal(check_outputs(&be, &request, tensors, &count, &why), ATTN_OK);
    assert_false(check_passed(tensors, count));
    snprintf(words, sizeof words, "o b=1 h=%lld row=%lld col=2", (long long)view->q_head_offset, (long long)row);
    assert_has(tensors[0].failure, words);
    snprintf(words, sizeof words, "all in rows %lld..%lld", (long long)row, (long long)row);
    assert_has(tensors[0].failure, words);
    tensor_set_free(&be, &outputs);
    tensor_set_free(&be, &inputs);
    check_reference_free(&be, &reference);
    be.ops->close(&be);
}

/* A reference that is not finite is named by its place in the whole tensor: here a row of the last block. */
static void an_unusable_reference(void **state)
{
    (void)state;
    struct backend be;
    struct attn_message why = {""};
    struct tensor_set inputs;
    struct check_reference reference;
    const struct plan_item item = item_of(LONG, ATTN_FWD);
    assert_int_equal(backend_open(&be, DEVICE_CPU, 0, &why), ATTN_OK);
    assert_int_equal(inputs_make(&be, &item, NULL, &inputs, &why), ATTN_OK);
    const struct attn_tensor q = inputs.tensors.q;
    const int64_t row = LONG - 5;
    fill_store(q.data, item.problem.dtype, q.stride_batch + 3 * q.stride_head + row * q.stride_row, INFINITY);
    assert_int_equal(check_reference_make(&be, &item, CHECK_SAMPLE, &inputs, &reference, &why), ATTN_ERROR);
    char words[100];
    snprintf(words, sizeof words, "o has 8 values that are not finite, the first in row %lld of b=1 h=3",
             (long long)row);
    assert_has(why.text, words);
    tensor_set_free(&be, &inputs);
    check_reference_free(&be, &reference);
    be.ops->close(&be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole_heads), cmocka_unit_test(blocks_of_rows),
                                       cmocka_unit_test(judged_where_they_lie),
                                       cmocka_unit_test(an_unusable_reference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
