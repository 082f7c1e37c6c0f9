/* Strides that leave room between the rows: where packed Q, K and V lie, what is between the rows, and that a write
 * there is found. */
#include "tests/unit/unit_help.h"

#include "cmd/device/buffers.h"

static struct plan_item item_of(enum plan_strides strides, enum attn_layout layout)
{
    return (struct plan_item){.mode = ATTN_BWD,
                              .dist = FILL_NORMAL,
                              .seed = 3,
                              .strides = strides,
                              .batch_gap = 24,
                              .problem = {.batch = 2,
                                          .q_heads = 4,
                                          .kv_heads = 2,
                                          .q_len = 5,
                                          .kv_len = 5,
                                          .head_dim = 16,
                                          .dtype = ATTN_BF16,
                                          .layout = layout,
                                          .window_left = -1,
                                          .window_right = -1,
                                          .scale = 0.25f}};
}

struct made {
    struct backend be;
    struct tensor_set inputs, outputs;
};

static struct made make(const struct plan_item *item)
{
    struct made m;
    struct attn_message why;
    assert_int_equal(backend_open_cpu(&m.be, &why), ATTN_OK);
    assert_int_equal(inputs_make(&m.be, item, NULL, &m.inputs, &why), ATTN_OK);
    assert_int_equal(outputs_make(&m.be, item, &m.inputs, &m.outputs, &why), ATTN_OK);
    return m;
}

static void done(struct made *m)
{
    tensor_set_free(&m->be, &m->inputs);
    tensor_set_free(&m->be, &m->outputs);
    m->be.ops->close(&m->be);
}

static int64_t offset_of(const struct buffer *buffer) /* elements of 2 bytes behind the first guard */
{
    return ((const char *)buffer->data - (const char *)buffer->base - GUARD_BYTES) / 2;
}

static void packed_tensors_lie_as_in_one(void **state)
{
    (void)state;
    const struct plan_item item = item_of(PLAN_PACKED_QKV, ATTN_BSHD);
    struct made m = make(&item);
    const struct attn_tensors *t = &m.outputs.tensors;
    const struct attn_tensor *const packed[] = {&t->q, &t->k, &t->v, &t->dq, &t->dk, &t->dv};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(packed[i]->stride_row, (4 + 2 * 2) * 16);
        assert_int_equal(packed[i]->stride_head, 16);
        assert_int_equal(packed[i]->stride_batch, 5 * (4 + 2 * 2) * 16 + 24);
    }
    assert_int_equal(t->dout.stride_row, 4 * 16); /* not among them */
    assert_int_equal(offset_of(&m.inputs.buffers[TENSOR_Q]), 0);
    assert_int_equal(offset_of(&m.inputs.buffers[TENSOR_K]), 4 * 16);
    assert_int_equal(offset_of(&m.inputs.buffers[TENSOR_V]), (4 + 2) * 16);
    assert_int_equal(offset_of(&m.outputs.buffers[TENSOR_DV]), (4 + 2) * 16);
    done(&m);
}

/* Elements of a tensor that are not finite, over all of its memory. */
static int64_t nan_count(const struct buffer *buffer)
{
    int64_t count = 0;
    for (int64_t i = 0; i < (int64_t)(buffer->bytes / 2); i++)
        count += !isfinite(fill_load(buffer->data, ATTN_BF16, i));
    return count;
}

static void between_the_rows_is_nan(void **state)
{
    (void)state;
    const enum plan_strides all[] = {PLAN_CONTIGUOUS, PLAN_PACKED_QKV, PLAN_PADDED_ROWS};
    for (int i = 0; i < 3; i++)
        for (int layout = ATTN_BSHD; layout <= ATTN_BHSD; layout++) {
            const struct plan_item item = item_of(all[i], (enum attn_layout)layout);
            struct made m = make(&item);
            for (enum problem_tensor t = TENSOR_Q; t <= TENSOR_V; t++) {
                const struct tensor_shape s = tensor_shape_of(&item.problem, t);
                const struct buffer *buffer = &m.inputs.buffers[t];
                const int64_t elements = s.batch * s.heads * s.len * s.head_dim;
                assert_true((int64_t)buffer->bytes / 2 >= elements + 24);
                assert_int_equal(nan_count(buffer), (int64_t)buffer->bytes / 2 - elements);
            }
            done(&m);
        }
}

/* Behind the used keys of a cache, between its rows and between those of 8-bit inputs is NaN; nothing is written behind
 * a buffer, whose last row has no room behind it. */
static void caches_are_nan_but_for_their_keys(void **state)
{
    (void)state;
    for (int n = 0; n < 8; n++) {
        int32_t seqused_k[] = {5, 3};
        int32_t page_table[] = {2, 0};
        const bool has_pages = n & 1, has_8_bits = n & 2;
        const struct problem_arrays arrays = {.seqused_k = seqused_k, .page_table = has_pages ? page_table : NULL};
        struct plan_item item = item_of(PLAN_PADDED_ROWS, n & 4 ? ATTN_BHSD : ATTN_BSHD);
        item.mode = ATTN_FWD;
        item.batch_gap = 0;
        item.arrays = &arrays;
        item.problem.lengths = ATTN_CACHE;
        item.problem.q_len = 1;
        item.problem.page_size = has_pages ? 8 : 0;
        item.problem.pages = has_pages ? 3 : 0;
        if (has_8_bits) {
            item.problem.dtype = ATTN_E4M3;
            item.problem.out_dtype = ATTN_BF16;
            item.problem.quant_scale = ATTN_SCALE_TENSOR;
        }
        struct made m = make(&item);
        for (enum problem_tensor t = TENSOR_Q; t <= TENSOR_V; t++) {
            const struct buffer *buffer = &m.inputs.buffers[t];
            const int64_t elements = (int64_t)(buffer->bytes / attn_dtype_bytes(item.problem.dtype));
            struct attn_message why;
            int64_t finite = 0;
            uint64_t words = 1;
            for (int64_t i = 0; i < elements; i++)
                finite += isfinite(fill_load(buffer->data, item.problem.dtype, i));
            assert_int_equal(finite, t == TENSOR_Q ? 2 * 4 * 16 : (5 + 3) * 2 * 16);
            assert_true(elements > finite);
            assert_int_equal(buffer_guards_broken(&m.be, buffer, &words, &why), ATTN_OK);
            assert_int_equal(words, 0);
        }
        done(&m);
    }
}

/* Writes every element of dQ, then one word between two rows. */
static void a_write_between_the_rows_is_found(void **state)
{
    (void)state;
    const struct plan_item item = item_of(PLAN_PADDED_ROWS, ATTN_BSHD);
    struct made m = make(&item);
    struct attn_message why;
    uint64_t words = 99;
    const struct attn_tensor dq = m.outputs.tensors.dq;
    for (int64_t b = 0; b < 2; b++)
        for (int64_t h = 0; h < 4; h++)
            for (int64_t i = 0; i < 5; i++)
                for (int64_t c = 0; c < 16; c++)
                    fill_store(dq.data, ATTN_BF16, b * dq.stride_batch + h * dq.stride_head + i * dq.stride_row + c, 1);
    assert_int_equal(output_gaps_broken(&m.be, &item, &m.outputs, TENSOR_DQ, &words, &why), ATTN_OK);
    assert_int_equal(words, 0);
    fill_store(dq.data, ATTN_BF16, dq.stride_head - 1, 1); /* the last padding element of the first row */
    assert_int_equal(output_gaps_broken(&m.be, &item, &m.outputs, TENSOR_DQ, &words, &why), ATTN_OK);
    assert_int_equal(words, 1);
    assert_int_equal(output_gaps_broken(&m.be, &item, &m.outputs, TENSOR_DK, &words, &why), ATTN_OK);
    assert_int_equal(words, 0); /* nothing is written there yet */
    done(&m);
}

/* The guard in front reaches up to a tensor that begins further on. */
static void the_guard_reaches_the_tensor(void **state)
{
    (void)state;
    const struct plan_item item = item_of(PLAN_PACKED_QKV, ATTN_BSHD);
    struct made m = make(&item);
    struct attn_message why;
    uint64_t words = 0;
    const struct buffer *dv = &m.outputs.buffers[TENSOR_DV];
    ((uint32_t *)dv->data)[-1] = 7;
    ((uint32_t *)dv->base)[GUARD_BYTES / 4 + 1] = 7;
    assert_int_equal(buffer_guards_broken(&m.be, dv, &words, &why), ATTN_OK);
    assert_int_equal(words, 2);
    assert_int_equal(buffer_guard(&m.be, dv, &why), ATTN_OK);
    assert_int_equal(buffer_guards_broken(&m.be, dv, &words, &why), ATTN_OK);
    assert_int_equal(words, 0);
    done(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_tensors_lie_as_in_one),      cmocka_unit_test(between_the_rows_is_nan),
        cmocka_unit_test(caches_are_nan_but_for_their_keys), cmocka_unit_test(a_write_between_the_rows_is_found),
        cmocka_unit_test(the_guard_reaches_the_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
