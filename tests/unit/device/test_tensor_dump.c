/* --dump on the CPU: what was written comes back bit for bit, in either dtype of the files, and tensors.json says what
 * the files hold. */
#include "tests/unit/unit_help.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/npy.h"
#include "cmd/device/backend.h"
#include "cmd/device/inputs.h"
#include "cmd/device/tensor_dump.h"
#include "tests/dense.h"

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/fabench-dump-XXXXXX");
    return mkdtemp(dir) ? 0 : 1;
}

static int remove_dir(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    return system(command);
}

static struct plan_item item_of(enum attn_dtype dtype, uint64_t seed)
{
    return (struct plan_item){.problem = DENSE(2, 4, 2, 5, 7, 16, dtype, ATTN_BSHD, false, -1, -1, 0.25f, 0),
                              .mode = ATTN_FWD,
                              .dist = FILL_NORMAL,
                              .seed = seed};
}

static json_t *description(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/tensors.json", dir);
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    return root;
}

static json_t *row_of(json_t *root, const char *tensor)
{
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(root, "tensors"), i,
                       row) if (!strcmp(json_string_value(json_object_get(row, "tensor")), tensor)) return row;
    fail_msg("no row of %s", tensor);
    return NULL;
}

static void assert_text(json_t *row, const char *key, const char *want)
{
    assert_string_equal(json_string_value(json_object_get(row, key)), want);
}

static struct npy read_file(const char *name)
{
    char path[128];
    struct npy file;
    struct reason why;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (!npy_read(path, &file, &why))
        fail_msg("%s", why.text);
    return file;
}

static void what_was_written_comes_back(void **state)
{
    (void)state;
    struct attn_message why = {""};
    struct backend be;
    assert_int_equal(backend_open_cpu(&be, &why), ATTN_OK);
    for (int n = 0; n < 6; n++) {
        const struct plan_item item = item_of((enum attn_dtype)(n / 2), 3);
        const struct plan_item other = item_of((enum attn_dtype)(n / 2), 4);
        struct tensor_set set, again;
        assert_int_equal(inputs_make(&be, &item, NULL, &set, &why), ATTN_OK);
        assert_int_equal(tensor_set_dump(&be, &item, &set, NULL, dir, (enum dump_dtype)(n % 2), &why), ATTN_OK);
        if (!inputs_readable(&other, dir, &why))
            fail_msg("%s", why.text);
        assert_int_equal(inputs_make(&be, &other, dir, &again, &why), ATTN_OK);
        for (int i = TENSOR_Q; i <= TENSOR_V; i++) {
            assert_int_equal(again.buffers[i].bytes, set.buffers[i].bytes);
            assert_memory_equal(again.buffers[i].data, set.buffers[i].data, set.buffers[i].bytes);
        }
        tensor_set_free(&be, &set);
        tensor_set_free(&be, &again);
    }
    be.ops->close(&be);
}

/* The file has the tensor's values, wherever its elements lie in memory. */
static void float32_has_the_values(void **state)
{
    (void)state;
    struct attn_message why = {""};
    struct backend be;
    struct tensor_set set;
    const struct plan_item item = item_of(ATTN_BF16, 3);
    assert_int_equal(backend_open_cpu(&be, &why), ATTN_OK);
    assert_int_equal(inputs_make(&be, &item, NULL, &set, &why), ATTN_OK);
    assert_int_equal(tensor_set_dump(&be, &item, &set, NULL, dir, DUMP_FP32, &why), ATTN_OK);
    struct npy file = read_file("k.npy");
    const struct attn_tensor *k = &set.tensors.k;
    assert_int_equal(file.type, NPY_FLOAT32);
    assert_int_equal(file.dims, 4);
    int64_t n = 0;
    for (int64_t b = 0; b < 2; b++)
        for (int64_t h = 0; h < 2; h++)
            for (int64_t i = 0; i < 7; i++)
                for (int64_t c = 0; c < 16; c++, n++)
                    assert_true(((float *)file.data)[n] ==
                                fill_load(k->data, ATTN_BF16,
                                          b * k->stride_batch + h * k->stride_head + i * k->stride_row + c));
    assert_int_equal(file.bytes, n * (int64_t)sizeof(float));
    npy_free(&file);
    tensor_set_free(&be, &set);
    be.ops->close(&be);
}

static void the_files_are_described(void **state)
{
    (void)state;
    struct attn_message why = {""};
    struct backend be;
    struct tensor_set inputs, outputs;
    const struct plan_item item = item_of(ATTN_BF16, 3);
    assert_int_equal(backend_open_cpu(&be, &why), ATTN_OK);
    assert_int_equal(inputs_make(&be, &item, NULL, &inputs, &why), ATTN_OK);
    assert_int_equal(outputs_make(&be, &item, &inputs, &outputs, &why), ATTN_OK);

    assert_int_equal(tensor_set_dump(&be, &item, &inputs, NULL, dir, DUMP_NATIVE, &why), ATTN_OK);
    json_t *root = description(), *k = row_of(root, "k");
    assert_int_equal(json_array_size(json_object_get(root, "tensors")), 3);
    assert_text(k, "file", "k.npy");
    assert_text(k, "dtype", "bf16");
    assert_text(k, "stored_as", "uint16: bfloat16 bits");
    assert_text(k, "numpy", "(numpy.load('k.npy').astype(numpy.uint32) << 16).view(numpy.float32)");
    json_t *want = json_pack("[i, i, i, i]", 2, 2, 7, 16);
    assert_true(json_equal(json_object_get(k, "shape"), want));
    json_decref(want);
    want = json_pack("[s, s, s, s]", "batch", "heads", "len", "head_dim");
    assert_true(json_equal(json_object_get(k, "dimensions"), want));
    json_decref(want);
    json_decref(root);

    assert_int_equal(tensor_set_dump(&be, &item, &outputs, NULL, dir, DUMP_FP32, &why), ATTN_OK);
    root = description();
    assert_int_equal(json_array_size(json_object_get(root, "tensors")), 2);
    assert_text(row_of(root, "o"), "dtype", "bf16");
    assert_text(row_of(root, "o"), "stored_as", "float32");
    assert_text(row_of(root, "o"), "numpy", "numpy.load('o.npy')");
    assert_text(row_of(root, "lse"), "dtype", "fp32");
    want = json_pack("[s, s, s]", "batch", "heads", "len");
    assert_true(json_equal(json_object_get(row_of(root, "lse"), "dimensions"), want));
    json_decref(want);
    json_decref(root);
    tensor_set_free(&be, &inputs);
    tensor_set_free(&be, &outputs);
    be.ops->close(&be);
}

/* Beside an output its difference from the reference, NaN where there is no part of the reference; beside the inputs
 * the reference itself. */
static void the_reference_and_the_difference_are_written(void **state)
{
    (void)state;
    enum { LEN = 5, DIM = 16, HEAD = LEN * DIM };
    struct attn_message why = {""};
    struct backend be;
    struct tensor_set inputs, outputs;
    const struct plan_item item = item_of(ATTN_FP32, 3); /* batch 2, 4 heads, bshd */
    float o[2 * HEAD], lse[2 * LEN];
    struct dump_part part = {.problem = item.problem, .batch_offset = 1, .q_head_offset = 2, .kv_head_offset = 1};
    const struct dump_reference reference = {&part, 1};
    part.problem.batch = part.problem.kv_heads = 1;
    part.problem.q_heads = 2;
    part.outputs = (struct reference_outputs){.o = o, .lse = lse};
    for (int i = 0; i < 2 * HEAD; i++)
        o[i] = (float)i;
    for (int i = 0; i < 2 * LEN; i++)
        lse[i] = i ? 1 : -INFINITY;
    assert_int_equal(backend_open_cpu(&be, &why), ATTN_OK);
    assert_int_equal(inputs_make(&be, &item, NULL, &inputs, &why), ATTN_OK);
    assert_int_equal(outputs_make(&be, &item, &inputs, &outputs, &why), ATTN_OK);
    const struct attn_tensor *to = &outputs.tensors.o;
    for (int64_t h = 0; h < 4; h++)
        for (int64_t i = 0; i < LEN; i++)
            for (int64_t c = 0; c < DIM; c++)
                ((float *)to->data)[to->stride_batch + h * to->stride_head + i * to->stride_row + c] = 1;
    outputs.tensors.lse[(1 * 4 + 2) * LEN] = -INFINITY;
    outputs.tensors.lse[(1 * 4 + 2) * LEN + 1] = 3;

    assert_int_equal(tensor_set_dump(&be, &item, &inputs, &reference, dir, DUMP_NATIVE, &why), ATTN_OK);
    struct npy file = read_file("o_reference.npy");
    const float *values = file.data;
    assert_int_equal(file.bytes, 2 * 4 * HEAD * sizeof(float));
    for (int i = 0; i < 2 * 4 * HEAD; i++)
        assert_true(i < 6 * HEAD ? isnan(values[i]) : values[i] == (float)(i - 6 * HEAD));
    npy_free(&file);
    json_t *root = description();
    assert_int_equal(json_array_size(json_object_get(root, "tensors")), 5);
    json_decref(root);

    assert_int_equal(tensor_set_dump(&be, &item, &outputs, &reference, dir, DUMP_NATIVE, &why), ATTN_OK);
    file = read_file("o_difference.npy");
    values = file.data;
    for (int i = 0; i < 2 * 4 * HEAD; i++)
        assert_true(i < 6 * HEAD ? isnan(values[i]) : values[i] == (float)(1 - (i - 6 * HEAD)));
    npy_free(&file);
    file = read_file("lse_difference.npy");
    values = file.data;
    assert_int_equal(file.dims, 3);
    assert_true(values[6 * LEN] == 0 && values[6 * LEN + 1] == 2 && isnan(values[6 * LEN + 2])); /* was poisoned */
    npy_free(&file);
    tensor_set_free(&be, &inputs);
    tensor_set_free(&be, &outputs);
    be.ops->close(&be);
}

/* What --outputs takes: LSE may be absent, other files may not, and shapes must fit. */
static void results_are_read(void **state)
{
    (void)state;
    struct attn_message why = {""};
    struct backend be;
    struct tensor_set inputs, outputs;
    unsigned found = 0;
    enum problem_tensor bad = TENSOR_COUNT;
    char path[128];
    const struct plan_item item = item_of(ATTN_FP16, 3);
    struct npy file = {.dims = 4, .shape = {2, 4, 5, 16}, .type = NPY_FLOAT32, .bytes = 2 * 4 * 5 * 16 * sizeof(float)};
    struct reason reason;
    float *values = file.data = calloc(1, file.bytes);
    values[0] = 0.1f;
    values[1] = NAN;
    values[16] = 7; /* the second row of the first head */
    assert_int_equal(backend_open_cpu(&be, &why), ATTN_OK);
    assert_int_equal(inputs_make(&be, &item, NULL, &inputs, &why), ATTN_OK);
    assert_int_equal(outputs_make(&be, &item, &inputs, &outputs, &why), ATTN_OK);
    assert_int_equal(outputs_read(&be, &item, dir, &outputs, &found, &bad, &why), ATTN_UNSUPPORTED);
    assert_non_null(strstr(why.text, "o.npy: cannot be opened"));
    snprintf(path, sizeof path, "%s/o.npy", dir);
    assert_true(npy_write(path, &file, &reason));
    assert_int_equal(outputs_read(&be, &item, dir, &outputs, &found, &bad, &why), ATTN_OK);
    assert_int_equal(found, ATTN_O);
    const struct attn_tensor *o = &outputs.tensors.o;
    assert_true(fill_load(o->data, ATTN_FP16, 0) == 0.0999755859375f); /* rounded to fp16 */
    assert_true(isnan(fill_load(o->data, ATTN_FP16, 1)));
    assert_true(fill_load(o->data, ATTN_FP16, o->stride_row) == 7);
    snprintf(path, sizeof path, "%s/lse.npy", dir);
    assert_true(npy_write(path, &file, &reason));
    assert_int_equal(outputs_read(&be, &item, dir, &outputs, &found, &bad, &why), ATTN_UNSUPPORTED);
    assert_non_null(strstr(why.text, "lse.npy: its shape is not [2, 4, 5]"));
    assert_int_equal(bad, TENSOR_LSE);
    file.dims = 3;
    file.bytes = 2 * 4 * 5 * sizeof(float);
    assert_true(npy_write(path, &file, &reason));
    assert_int_equal(outputs_read(&be, &item, dir, &outputs, &found, &bad, &why), ATTN_OK);
    assert_int_equal(found, ATTN_O | ATTN_LSE);
    assert_true(isnan(outputs.tensors.lse[1]));
    npy_free(&file);
    tensor_set_free(&be, &inputs);
    tensor_set_free(&be, &outputs);
    be.ops->close(&be);
}

static void a_folder_that_is_not_there_is_a_sentence(void **state)
{
    (void)state;
    struct attn_message why = {""};
    struct backend be;
    struct tensor_set set;
    const struct plan_item item = item_of(ATTN_FP32, 3);
    assert_int_equal(backend_open_cpu(&be, &why), ATTN_OK);
    assert_int_equal(inputs_make(&be, &item, NULL, &set, &why), ATTN_OK);
    assert_int_equal(tensor_set_dump(&be, &item, &set, NULL, "/nonexistent", DUMP_NATIVE, &why), ATTN_ERROR);
    assert_non_null(strstr(why.text, "/nonexistent/q.npy: cannot be written"));
    tensor_set_free(&be, &set);
    be.ops->close(&be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_written_comes_back, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(float32_has_the_values, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(the_files_are_described, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(the_reference_and_the_difference_are_written, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(results_are_read, make_dir, remove_dir),
        cmocka_unit_test(a_folder_that_is_not_there_is_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
