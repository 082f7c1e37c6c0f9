/* The inputs of a cache: the values of a contiguous one at the places that the table names, NaN everywhere else, also
 * after changes of signs; and its .npy files, which have no pages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/npy.h"
#include "cmd/device/inputs.h"
#include "cmd/device/tensor_dump.h"
#include "tests/dense.h"

enum { BATCH = 3, HEADS = 2, LEN = 21, DIM = 16 };
static const int32_t used[BATCH] = {21, 1, 8};

/* A problem with caches; page_size < 0: fixed lengths without a cache, whose values are those to be found. */
static struct plan_item item_of(enum attn_dtype dtype, enum attn_layout layout, int64_t page_size,
                                struct problem_arrays *arrays)
{
    struct plan_item item = {.problem = DENSE(BATCH, 4, HEADS, 1, LEN, DIM, dtype, layout, true, -1, -1, 0.25f, 0),
                             .mode = ATTN_FWD,
                             .dist = FILL_NORMAL,
                             .seed = 3};
    struct reason why;
    memset(arrays, 0, sizeof *arrays);
    if (page_size < 0)
        return item;
    item.problem.page_size = page_size;
    assert_true(problem_set_cache(&item.problem, arrays, "list:21:1:8", 3, &why));
    item.arrays = arrays;
    return item;
}

static float value_at(const struct attn_problem *p, const struct attn_tensor *t, int64_t element)
{
    return fill_load(t->data, p->dtype, element);
}

/* The number of elements that are not NaN. */
static int64_t count_values(const struct plan_item *item, const struct tensor_set *set, enum problem_tensor tensor)
{
    const struct buffer *buffer = &set->buffers[tensor];
    int64_t count = 0;
    for (size_t i = 0; i < buffer->bytes / attn_dtype_bytes(item->problem.dtype); i++)
        count += !isnan(fill_load(buffer->data, item->problem.dtype, (int64_t)i));
    return count;
}

static void assert_cache(const struct plan_item *item, const struct tensor_set *set, const struct plan_item *plain,
                         const struct tensor_set *all)
{
    for (enum problem_tensor tensor = TENSOR_K; tensor <= TENSOR_V; tensor++) {
        const struct attn_tensor x = tensor_of(&item->problem, &set->tensors, tensor);
        const struct attn_tensor y = tensor_of(&plain->problem, &all->tensors, tensor);
        for (int64_t b = 0; b < BATCH; b++)
            for (int64_t h = 0; h < HEADS; h++)
                for (int64_t i = 0; i < used[b]; i++)
                    for (int64_t c = 0; c < DIM; c++)
                        assert_true(value_at(&item->problem, &x,
                                             attn_key_offset(&item->problem, &set->tensors, x, b, h, i) + c) ==
                                    value_at(&plain->problem, &y,
                                             b * y.stride_batch + h * y.stride_head + i * y.stride_row + c));
        assert_int_equal(count_values(item, set, tensor), (21 + 1 + 8) * HEADS * DIM);
    }
}

static void caches_hold_the_values_and_nan(void **state)
{
    static const int64_t pages[] = {0, 8, 64};
    const struct input_signs flipped = {{{0x5u}}, {{0xffu}}}, none = {{{0}}, {{0}}};
    struct attn_message why = {""};
    struct backend be;
    (void)state;
    assert_int_equal(backend_open_cpu(&be, &why), ATTN_OK);
    for (int n = 0; n < 3 * 3 * 2; n++) {
        const enum attn_dtype dtype = (enum attn_dtype)(n / 6);
        const enum attn_layout layout = n % 2 ? ATTN_BSHD : ATTN_BHSD;
        struct problem_arrays arrays, no_arrays;
        const struct plan_item item = item_of(dtype, layout, pages[n / 2 % 3], &arrays);
        const struct plan_item plain = item_of(dtype, layout, -1, &no_arrays);
        struct tensor_set set, all;
        uint64_t before, after;
        bool holds;
        assert_int_equal(inputs_make(&be, &item, NULL, &set, &why), ATTN_OK);
        assert_int_equal(inputs_make(&be, &plain, NULL, &all, &why), ATTN_OK);
        assert_cache(&item, &set, &plain, &all);
        assert_int_equal(inputs_hash(&be, &item, &set, &before, &why), ATTN_OK);
        assert_int_equal(inputs_change_signs(&be, &item, &set, &flipped, &why), ATTN_OK);
        assert_int_equal(inputs_change_signs(&be, &plain, &all, &flipped, &why), ATTN_OK);
        assert_cache(&item, &set, &plain, &all);
        assert_int_equal(inputs_hash(&be, &item, &set, &after, &why), ATTN_OK);
        assert_true(before == after);
        assert_int_equal(inputs_change_signs(&be, &item, &set, &none, &why), ATTN_OK);
        /* A launch that changes an array, or what is behind the used keys, is seen. */
        assert_int_equal(inputs_arrays_hold(&be, &item, &set, &holds, &why), ATTN_OK);
        assert_true(holds);
        fill_store(set.buffers[TENSOR_K].data, dtype,
                   (int64_t)(set.buffers[TENSOR_K].bytes / attn_dtype_bytes(dtype)) - 1, 1);
        ((int32_t *)set.arrays[ARRAY_SEQUSED_K].data)[1]++;
        assert_int_equal(inputs_hash(&be, &item, &set, &after, &why), ATTN_OK);
        assert_true(before != after);
        assert_int_equal(inputs_arrays_hold(&be, &item, &set, &holds, &why), ATTN_OK);
        assert_false(holds);
        tensor_set_free(&be, &set);
        tensor_set_free(&be, &all);
        problem_arrays_free(&arrays);
    }
    be.ops->close(&be);
}

/* A file has the keys in their order, whatever the pages, and makes them again. */
static void files_have_no_pages(void **state)
{
    struct attn_message why = {""};
    struct backend be;
    char dir[] = "/tmp/fabench-buffers-XXXXXX", path[64], command[64];
    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(backend_open_cpu(&be, &why), ATTN_OK);
    for (int n = 0; n < 4; n++) {
        struct problem_arrays arrays, no_arrays;
        const struct plan_item item = item_of(n % 2 ? ATTN_FP32 : ATTN_BF16, ATTN_BSHD, n / 2 * 8, &arrays);
        const struct plan_item plain = item_of(n % 2 ? ATTN_FP32 : ATTN_BF16, ATTN_BSHD, -1, &no_arrays);
        struct tensor_set set, again, all;
        struct npy file;
        struct reason reason;
        assert_int_equal(inputs_make(&be, &item, NULL, &set, &why), ATTN_OK);
        assert_int_equal(inputs_make(&be, &plain, NULL, &all, &why), ATTN_OK);
        assert_int_equal(tensor_set_dump(&be, &item, &set, NULL, dir, n == 2 ? DUMP_FP32 : DUMP_NATIVE, &why), ATTN_OK);
        snprintf(path, sizeof path, "%s/k.npy", dir);
        assert_true(npy_read(path, &file, &reason));
        assert_true(file.dims == 4 && file.shape[0] == BATCH && file.shape[1] == HEADS && file.shape[2] == LEN);
        npy_free(&file);
        assert_int_equal(inputs_make(&be, &item, dir, &again, &why), ATTN_OK);
        assert_cache(&item, &again, &plain, &all);
        tensor_set_free(&be, &set);
        tensor_set_free(&be, &again);
        tensor_set_free(&be, &all);
        problem_arrays_free(&arrays);
    }
    be.ops->close(&be);
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(caches_hold_the_values_and_nan),
        cmocka_unit_test(files_have_no_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
