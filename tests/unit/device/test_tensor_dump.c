/* --dump on the CPU: what was written comes back bit for bit, in either dtype of the files, and tensors.json says what
 * the files hold. */
#include "tests/unit/unit_help.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/npy.h"
#include "cmd/device/backend.h"
#include "cmd/device/implementations.h"
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

static int tensor_dump_tests(void)
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

/* Implementations, and what is said without a device. */

/* ---- implementations ---- */

/* The list of implementations (cmd/device/implementations.h): what libraries add and why some are refused, what --impl
 * chooses, what a slot means for a problem. */

/* impls_load of one library, or of none; what it said is in `said`. */
static const char *said;
static int load(const char *path, struct impls *impls)
{
    struct name_list libraries = {0};
    if (path)
        name_list_add(&libraries, path);
    help_listen();
    const int code = impls_load(&libraries, impls);
    said = help_said();
    name_list_free(&libraries);
    return code;
}

static int select_names(const struct impls *impls, const char *const *names, struct impl_slot *slots, int *count)
{
    struct name_list list = {0};
    for (; *names; names++)
        name_list_add(&list, *names);
    help_listen();
    const struct attn_device cpu = {.platform = ATTN_CPU, .threads = 1};
    const int code = impls_select(impls, &list, &cpu, slots, count);
    said = help_said();
    name_list_free(&list);
    return code;
}

static const struct attn_impl *named(const struct impls *impls, const char *name, enum attn_platform platform)
{
    for (int i = 0; i < impls->count; i++)
        if (strcmp(impls->all[i]->name, name) == 0 && impls->all[i]->platform == platform)
            return impls->all[i];
    return NULL;
}

static void built_in_and_loaded(void **state)
{
    struct impls built_in, more;
    (void)state;
    assert_int_equal(load(NULL, &built_in), EXIT_OK);
    assert_string_equal(said, "");
    assert_string_equal(built_in.all[0]->name, "naive"); /* what the others are compared with comes first */
    assert_non_null(named(&built_in, "fused_cpu", ATTN_CPU));
    assert_null(named(&built_in, "right_cpu", ATTN_CPU));
    assert_int_equal(load(WRONG_FOLDER "/libwrong_cpu.so", &more), EXIT_OK);
    assert_true(more.count > built_in.count);
    assert_non_null(named(&more, "right_cpu", ATTN_CPU));
    assert_int_equal(more.library_count, 1);
    impls_free(&built_in);
    impls_free(&more);
    assert_int_equal(more.count, 0);
}

static void libraries_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *words;
    } refused[] = {
        {"absent", "cannot open shared object file"},
        {"bad_no_symbol", "does not export fabench_impls (see kernels/attention.h)"},
        {"bad_abi_table", "was built for another ABI, this program has ABI 2: compile the library again"},
        {"bad_abi_row", "was built for ABI 1002, this program has ABI 2"},
        {"bad_abi_1",
         "was built for ABI 1, this program has ABI 2: compile the library again with this program's header "
         "fabench/attention.h, and begin its accepts with attn_check_attributes"},
        {"bad_role", "implementation 'bad_role' has a role that this program keeps for its own"},
        {"bad_empty", "its table is empty"},
        {"bad_reserved", "implementation 'cudnn' has a name that"},
        {"bad_letters", "implementation 'Bad-Letters' has a name that is not [a-z0-9_]+"},
        {"bad_no_launch", "implementation 'bad_no_launch' lacks a required function"},
        {"bad_variant", "implementation 'bad_variant' has a variant of a name that this program keeps for its own"}};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct impls impls;
        char path[400], head[420];
        snprintf(path, sizeof path, "%s/lib%s.so", WRONG_FOLDER, refused[i].name);
        assert_int_equal(load(path, &impls), EXIT_USAGE);
        snprintf(head, sizeof head, "fabench: --impl-lib %s: ", path);
        assert_has(said, head);
        assert_has(said, refused[i].words);
        assert_int_equal(impls.count, 0); /* nothing is left of it */
        assert_null(impls.all);
    }
}

static void a_library_twice(void **state)
{
    struct impls impls;
    struct name_list twice = {0};
    (void)state;
    for (int i = 0; i < 2; i++)
        name_list_add(&twice, WRONG_FOLDER "/libwrong_cpu.so");
    help_listen();
    const int code = impls_load(&twice, &impls);
    assert_has(help_said(), "has a name that is taken");
    assert_int_equal(code, EXIT_USAGE);
    name_list_free(&twice);
}

/* A name without a slash is a file of this folder, not a library of the system. */
static void a_path_without_a_slash(void **state)
{
    struct impls impls;
    (void)state;
    assert_int_equal(load("libm.so.6", &impls), EXIT_USAGE);
    assert_has(said, "--impl-lib libm.so.6: ./libm.so.6: cannot open shared object file");
}

static void chosen_by_name(void **state)
{
    struct impls impls;
    struct impl_slot slots[IMPL_MAX_SLOTS];
    int count = 0;
    (void)state;
    assert_int_equal(load(NULL, &impls), EXIT_OK);
    assert_int_equal(select_names(&impls, (const char *[]){NULL}, slots, &count), EXIT_OK);
    assert_int_equal(count, 2); /* the defaults that the CPU has */
    assert_string_equal(slots[0].name, "naive");
    assert_string_equal(slots[1].name, "fused");
    assert_false(slots[0].is_named);
    assert_null(slots[1].impl); /* each problem decides */
    assert_int_equal(select_names(&impls,
                                  (const char *[]){"fused_cpu", "fused_cpu:portable", "naive:deterministic", NULL},
                                  slots, &count),
                     EXIT_OK);
    assert_int_equal(count, 3);
    assert_true(slots[1].is_named);
    assert_ptr_equal(slots[1].impl, slots[0].impl);
    assert_string_equal(impl_recorded_name(&slots[0], slots[0].impl), "fused_cpu");
    assert_string_equal(impl_recorded_name(&slots[1], slots[1].impl), "fused_cpu:portable");
    assert_string_equal(impl_recorded_name(&slots[2], NULL), "naive:deterministic");
    impls_free(&impls);
}

static void names_that_are_refused(void **state)
{
    struct impls impls;
    struct impl_slot slots[IMPL_MAX_SLOTS];
    int count = 0;
    (void)state;
    static const struct {
        const char *names[3], *words;
    } refused[] = {{{"nobody"}, "--impl nobody: unknown implementation"},
                   {{"fused_cpo"}, "--impl fused_cpo: unknown implementation, did you mean fused_cpu?"},
                   {{"naive", "naive"}, "--impl: naive twice"},
                   {{"naive:fast"}, "--impl naive:fast: naive has no variants"},
                   {{"fused_cpu:portible"}, "unknown variant, did you mean fused_cpu:portable?"},
                   {{"fused_cpu:zzzzzzzzzz"}, "--impl fused_cpu:zzzzzzzzzz: unknown variant; 'fabench list' shows all"},
                   {{"naive:smem_99kb"}, "--impl naive:smem_99kb: the CPU has no shared memory"},
                   {{"fused:portable"}, "--impl fused:portable: what follows the colon belongs to a kernel; name it"},
                   {{"a_name_of_more_than_39_characters_is_no_name"}, ": longer than 39 characters"}};
    assert_int_equal(load(NULL, &impls), EXIT_OK);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        assert_int_equal(select_names(&impls, refused[i].names, slots, &count), EXIT_USAGE);
        assert_has(said, refused[i].words);
    }
    const char *many[IMPL_MAX_SLOTS + 2] = {NULL};
    for (int i = 0; i <= IMPL_MAX_SLOTS; i++)
        many[i] = "naive";
    assert_int_equal(select_names(&impls, many, slots, &count), EXIT_USAGE);
    assert_has(said, "--impl: 33 implementations, at most 32");
#ifdef FABENCH_WITH_CUDA
    assert_int_equal(select_names(&impls, (const char *[]){"fused_sm90", NULL}, slots, &count), EXIT_USAGE);
    assert_has(said, "--impl fused_sm90: does not run on the CPU; 'fabench list' shows what does");
#endif
    impls_free(&impls);
}

/* `fused` is the first kernel of ours that accepts the problem; a variant and "deterministic" go into the request. */
static void a_slot_and_a_problem(void **state)
{
    struct attn_problem p = {.batch = 1,
                             .q_heads = 1,
                             .kv_heads = 1,
                             .q_len = 64,
                             .kv_len = 64,
                             .head_dim = 64,
                             .dtype = ATTN_FP32,
                             .layout = ATTN_BSHD,
                             .window_left = -1,
                             .window_right = -1,
                             .scale = 0.125f};
    const struct attn_device device = {.platform = ATTN_CPU, .threads = 1};
    struct attn_request request = {.problem = &p, .device = &device, .mode = ATTN_FWD};
    struct attn_message why = {""};
    struct impls impls;
    struct impl_slot slots[IMPL_MAX_SLOTS];
    int count = 0;
    (void)state;
    assert_int_equal(load(NULL, &impls), EXIT_OK);
    assert_int_equal(select_names(&impls, (const char *[]){"fused", "fused_cpu:portable", "naive:deterministic", NULL},
                                  slots, &count),
                     EXIT_OK);
    const struct attn_impl *fused = impl_resolve(&slots[0], &request, &why);
    assert_non_null(fused);
    assert_string_equal(fused->name, "fused_cpu");
    assert_string_equal(impl_recorded_name(&slots[0], fused), "fused_cpu");
    assert_null(request.variant);
#if defined(__x86_64__)
    assert_ptr_equal(impl_resolve(&slots[1], &request, &why), fused);
    assert_string_equal(request.variant, "portable");
    request.variant = NULL;
#endif
    assert_string_equal(impl_resolve(&slots[2], &request, &why)->name, "naive");
    assert_true(request.deterministic);
    p.dtype = ATTN_FP16; /* which no kernel of the CPU takes */
    assert_null(impl_resolve(&slots[0], &request, &why));
    assert_has(why.text, "fp32");
    impls_free(&impls);
}

#ifdef FABENCH_WITH_CUDA
/* A kernel beside itself as on a device with less shared memory. */
static void a_slot_with_less_shared_memory(void **state)
{
    static const size_t memory[] = {232448, 101376, 65536}, shown[] = {101376, 101376, 65536};
    const struct attn_problem p = {.batch = 1,
                                   .q_heads = 1,
                                   .kv_heads = 1,
                                   .q_len = 64,
                                   .kv_len = 64,
                                   .head_dim = 128,
                                   .dtype = ATTN_FP16,
                                   .layout = ATTN_BSHD,
                                   .window_left = -1,
                                   .window_right = -1,
                                   .scale = 0.125f};
    struct name_list names = {0};
    struct impls impls;
    (void)state;
    assert_int_equal(load(NULL, &impls), EXIT_OK);
    name_list_add(&names, "fused_sm80");
    name_list_add(&names, "fused_sm80:smem_99kb");
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) {
        const struct attn_device gpu = {
            .platform = ATTN_CUDA, .sm = 90, .multiprocessors = 132, .smem_per_block_bytes = memory[i]};
        struct attn_request whole = {.problem = &p, .device = &gpu, .mode = ATTN_BWD}, less = whole;
        struct impl_slot slots[IMPL_MAX_SLOTS];
        struct attn_message why = {""};
        int count = 0;
        assert_int_equal(impls_select(&impls, &names, &gpu, slots, &count), EXIT_OK);
        const struct attn_impl *impl = impl_resolve(&slots[0], &whole, &why);
        assert_ptr_equal(impl_resolve(&slots[1], &less, &why), impl);
        assert_int_equal(whole.device->smem_per_block_bytes, memory[i]);
        assert_int_equal(less.device->smem_per_block_bytes, shown[i]);
        assert_int_equal(less.device->multiprocessors, 132);
        assert_null(less.variant);
        if (i == 0) {
            assert_string_not_equal(impl->variant(&whole), impl->variant(&less));
            assert_string_equal(impl_recorded_name(&slots[1], impl), "fused_sm80:smem_99kb");
        } else if (impl) {
            assert_string_equal(impl->variant(&whole), impl->variant(&less));
        }
    }
    name_list_free(&names);
    impls_free(&impls);
}
#endif

static int implementations_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(built_in_and_loaded),
        cmocka_unit_test(libraries_that_are_refused),
        cmocka_unit_test(a_library_twice),
        cmocka_unit_test(a_path_without_a_slash),
        cmocka_unit_test(chosen_by_name),
        cmocka_unit_test(names_that_are_refused),
        cmocka_unit_test(a_slot_and_a_problem),
#ifdef FABENCH_WITH_CUDA
        cmocka_unit_test(a_slot_with_less_shared_memory),
#endif
    };
    return cmocka_run_group_tests(tests, help_make_folder, help_remove_folder);
}

/* ---- backend ---- */

/* What is said where no CUDA device can be used. */

static void assert_said(int driver, int runtime, const char *error, const char *want)
{
    struct attn_message why = {""};
    backend_say_no_device(driver, runtime, error, &why);
    assert_string_equal(why.text, want);
}

static void no_device(void **state)
{
    (void)state;
    static const char insufficient[] = "CUDA driver version is insufficient for CUDA runtime version";
    assert_said(0, 13000, insufficient,
                "no CUDA device: this machine has no NVIDIA driver, or libcuda.so.1 is not where the loader looks");
    assert_said(
        12080, 13000, insufficient,
        "no CUDA device: the driver here serves CUDA 12.8 at most, and this program was built with CUDA 13.0; a "
        "newer driver, or a build with an older toolkit, is needed");
    assert_said(13000, 13000, "none visible", "no CUDA device: none visible");
    assert_said(13010, 12040, "out of memory", "no CUDA device: out of memory");
}

static int backend_tests(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_device)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) { return tensor_dump_tests() + implementations_tests() + backend_tests(); }
