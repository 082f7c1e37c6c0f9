/* 8-bit inputs on the CPU: what is stored times its scale is near the value that was drawn, a dump brings both back,
 * signs of columns change and change back, and a launch that writes a scale is seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/device/inputs.h"
#include "cmd/device/tensor_dump.h"
#include "tests/dense.h"

static struct plan_item item_of(enum attn_quant_scale scale)
{
    struct plan_item item = {.problem = DENSE(2, 4, 2, 70, 90, 16, ATTN_E4M3, ATTN_BSHD, false, -1, -1, 0.25f, 0),
                             .mode = ATTN_FWD,
                             .dist = FILL_NORMAL,
                             .seed = 3};
    item.problem.out_dtype = ATTN_BF16;
    item.problem.quant_scale = scale;
    item.problem.scale_block = scale == ATTN_SCALE_BLOCK ? 32 : 0;
    return item;
}

static struct backend open_cpu(void)
{
    struct backend be;
    struct attn_message why = {""};
    assert_int_equal(backend_open_cpu(&be, &why), ATTN_OK);
    return be;
}

static void assert_near(const struct plan_item *item, const struct tensor_set *before, const struct tensor_set *set)
{
    const struct attn_problem *p = &item->problem;
    const struct attn_tensor k = set->tensors.k;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->kv_heads; h++)
            for (int64_t i = 0; i < p->kv_len; i++)
                for (int64_t c = 0; c < p->head_dim; c++) {
                    const int64_t at = b * k.stride_batch + h * k.stride_head + i * k.stride_row + c;
                    const float scale = set->tensors.scale_k[quantise_scale_at(p, QUANTISED_K, NULL, b, h, i)];
                    const float want = fill_load(before->tensors.k.data, ATTN_BF16, at);
                    const float got = fill_load(k.data, ATTN_E4M3, at) * scale;
                    assert_true(fabsf(got - want) <= fmaxf(fabsf(want) * 0x1p-4f, scale * 0x1p-10f) * 1.001f);
                }
}

static void made_from_others_in_bf16(void **state)
{
    (void)state;
    struct attn_message why = {""};
    struct backend be = open_cpu();
    for (int scale = ATTN_SCALE_TENSOR; scale <= ATTN_SCALE_BLOCK; scale++) {
        const struct plan_item item = item_of((enum attn_quant_scale)scale);
        struct plan_item item_before;
        struct tensor_set set, before;
        bool holds = false;
        assert_true(inputs_are_quantised(&item, NULL));
        assert_int_equal(inputs_make(&be, &item, NULL, &set, &why), ATTN_OK);
        assert_int_equal(inputs_make_before(&be, &item, NULL, &item_before, &before, &why), ATTN_OK);
        assert_int_equal(item_before.problem.dtype, ATTN_BF16);
        assert_near(&item, &before, &set);
        assert_true(set.quant_ms >= 0 && isnan(before.quant_ms));
        assert_int_equal(inputs_arrays_hold(&be, &item, &set, &holds, &why), ATTN_OK);
        assert_true(holds);
        ((float *)set.scales[QUANTISED_V].data)[0] *= 2;
        assert_int_equal(inputs_arrays_hold(&be, &item, &set, &holds, &why), ATTN_OK);
        assert_false(holds);
        tensor_set_free(&be, &set);
        tensor_set_free(&be, &before);
    }
    be.ops->close(&be);
}

static void signs_change_and_change_back(void **state)
{
    (void)state;
    struct attn_message why = {""};
    struct backend be = open_cpu();
    const struct plan_item item = item_of(ATTN_SCALE_HEAD);
    const struct input_signs some = {.qk = {{0x0006}}, .v = {{0x8001}}}, none = {.qk = {{0}}};
    struct tensor_set set;
    uint64_t hash = 0, changed = 0, other = 0;
    assert_int_equal(inputs_make(&be, &item, NULL, &set, &why), ATTN_OK);
    const struct buffer *v = &set.buffers[TENSOR_V];
    uint8_t *copy = malloc(v->bytes);
    memcpy(copy, v->data, v->bytes);
    assert_int_equal(inputs_hash(&be, &item, &set, &hash, &why), ATTN_OK);
    assert_int_equal(inputs_change_signs(&be, &item, &set, &some, &why), ATTN_OK);
    for (size_t i = 0; i < v->bytes; i++) /* the columns 0 and 15 of 16 */
        assert_int_equal(((const uint8_t *)v->data)[i], copy[i] ^ (i % 16 == 0 || i % 16 == 15 ? 0x80 : 0));
    assert_int_equal(inputs_hash(&be, &item, &set, &changed, &why), ATTN_OK);
    assert_true(hash == changed); /* the hash leaves the change of signs out */
    ((uint8_t *)v->data)[5] ^= 1;
    assert_int_equal(inputs_hash(&be, &item, &set, &other, &why), ATTN_OK);
    assert_true(hash != other);
    ((uint8_t *)v->data)[5] ^= 1;
    assert_int_equal(inputs_change_signs(&be, &item, &set, &none, &why), ATTN_OK);
    assert_memory_equal(v->data, copy, v->bytes);
    free(copy);
    tensor_set_free(&be, &set);
    be.ops->close(&be);
}

static void a_dump_comes_back(void **state)
{
    (void)state;
    char dir[] = "/tmp/fabench-8-bits-XXXXXX", command[64];
    struct attn_message why = {""};
    struct backend be = open_cpu();
    assert_non_null(mkdtemp(dir));
    for (int scale = ATTN_SCALE_TENSOR; scale <= ATTN_SCALE_BLOCK; scale++) {
        const struct plan_item item = item_of((enum attn_quant_scale)scale);
        struct plan_item other = item;
        struct tensor_set set, again;
        other.seed = 4;
        assert_int_equal(inputs_make(&be, &item, NULL, &set, &why), ATTN_OK);
        assert_int_equal(tensor_set_dump(&be, &item, &set, NULL, dir, DUMP_FP32, &why), ATTN_OK);
        assert_true(inputs_readable(&other, dir, &why));
        assert_false(inputs_are_quantised(&other, dir));
        assert_int_equal(inputs_make(&be, &other, dir, &again, &why), ATTN_OK);
        assert_true(isnan(again.quant_ms));
        for (int i = 0; i < QUANTISED_COUNT; i++) {
            assert_int_equal(again.scales[i].bytes, set.scales[i].bytes);
            assert_memory_equal(again.scales[i].data, set.scales[i].data, set.scales[i].bytes);
        }
        for (int i = TENSOR_Q; i <= TENSOR_V; i++)
            assert_memory_equal(again.buffers[i].data, set.buffers[i].data, set.buffers[i].bytes);
        tensor_set_free(&be, &set);
        tensor_set_free(&be, &again);
    }
    be.ops->close(&be);
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    assert_int_equal(system(command), 0);
}

/* Each input is read once, O is written in its own type. */
static void bytes_of_the_types(void **state)
{
    (void)state;
    struct plan_item item = item_of(ATTN_SCALE_TENSOR);
    const double rows = 2 * 4 * 70, keys = 2 * 2 * 90;
    assert_true(problem_min_bytes(&item.problem, ATTN_FWD, (double)problem_all_keys(&item.problem)) ==
                rows * 16 * (1 + 2) + 2 * keys * 16 + rows * 4);
    item.problem.dtype = ATTN_FP16;
    assert_true(problem_min_bytes(&item.problem, ATTN_FWD, (double)problem_all_keys(&item.problem)) ==
                2 * rows * 16 * 2 + 2 * keys * 16 * 2 + rows * 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(made_from_others_in_bf16),
        cmocka_unit_test(signs_change_and_change_back),
        cmocka_unit_test(a_dump_comes_back),
        cmocka_unit_test(bytes_of_the_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
