/* The list of implementations (cmd/device/implementations.h): what libraries add and why some are refused, what --impl
 * chooses, what a slot means for a problem. */
#include "tests/unit/unit_help.h"

#include "cmd/base/log.h"
#include "cmd/device/implementations.h"
#include "tests/dense.h"

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
        {"bad_abi_table", "was built for another ABI, this program has ABI 3: compile the library again"},
        {"bad_abi_row", "was built for ABI 1003, this program has ABI 3"},
        {"bad_abi_1",
         "was built for ABI 1, this program has ABI 3: compile the library again with this program's header "
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
                   {{"naive:fest"}, "--impl naive:fest: naive has no variants"},
                   {{"naive:fast:invariant"}, "--impl naive:fast:invariant: invariant goes with no variant (fast)"},
                   {{"naivefast"}, "--impl naivefast: unknown implementation"},
                   {{"fused_cpu:xfast"}, "--impl fused_cpu:xfast: unknown variant"},
                   {{"fused_cpu:portable:invariant"}, "portable:invariant: invariant goes with no variant (portable)"},
                   {{"fused_cpu:portible"}, "unknown variant, did you mean fused_cpu:portable?"},
                   {{"fused_cpu:zzzzzzzzzz"}, "--impl fused_cpu:zzzzzzzzzz: unknown variant; 'fabench list' shows all"},
                   {{"naive:smem_99kb"}, "--impl naive:smem_99kb: the CPU has no shared memory"},
                   {{"fused:portable"}, "--impl fused:portable: what follows the colon belongs to a kernel; name it"},
                   {{"fused_cpu:a_variant_of_more_than_39_characters:deterministic:fast"}, ": unknown variant"},
                   {{"a_name_of_more_than_79_characters_is_no_name_and_this_one_has_some_characters_more"},
                    ": longer than 79 characters"}};
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

static void one_of_many_variants(void **state)
{
    enum { COUNT = 100 };
    static char names[COUNT][8];
    static struct attn_variant variants[COUNT + 1];
    const struct attn_impl many = {.name = "many", .platform = ATTN_CPU, .variants = variants};
    const struct attn_impl *all[] = {&many};
    const struct impls impls = {.all = all, .count = 1};
    struct impl_slot slots[IMPL_MAX_SLOTS];
    int count = 0;
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "v%d", i);
        variants[i].name = names[i];
    }
    assert_int_equal(select_names(&impls, (const char *[]){"many:v0", "many:v99", NULL}, slots, &count), EXIT_OK);
    assert_string_equal(slots[1].variant, "v99");
    assert_int_equal(select_names(&impls, (const char *[]){"many:v100", NULL}, slots, &count), EXIT_USAGE);
    assert_has(said, "--impl many:v100: unknown variant, did you mean many:v10?");
}

static void a_name_of_many_suffixes(void **state)
{
    static const struct attn_problem p = {.batch = 1,
                                          .q_heads = 1,
                                          .kv_heads = 1,
                                          .q_len = 4,
                                          .kv_len = 4,
                                          .head_dim = 8,
                                          .window_left = -1,
                                          .window_right = -1,
                                          .scale = 1};
    static const struct attn_device device = {.platform = ATTN_CPU, .threads = 1};
    struct attn_request request = {.problem = &p, .device = &device};
    struct attn_message why = {""};
    struct impls impls;
    struct impl_slot slots[IMPL_MAX_SLOTS];
    int count = 0;
    (void)state;
    assert_int_equal(load(NULL, &impls), EXIT_OK);
    assert_int_equal(
        select_names(&impls, (const char *[]){"fused_cpu:deterministic:invariant:fast", NULL}, slots, &count), EXIT_OK);
    const struct attn_impl *impl = impl_resolve(&slots[0], &request, &why);
    assert_non_null(impl);
    assert_true(request.deterministic && request.invariant && request.fast);
    assert_null(request.variant);
    assert_string_equal(impl_recorded_name(&slots[0], impl), "fused_cpu:deterministic:invariant:fast");
    request = (struct attn_request){.problem = &p, .device = &device, .splits = 2};
    assert_null(impl_resolve(&slots[0], &request, &why));
    assert_string_equal(why.text, "invariant goes with no --splits");
#if defined(__x86_64__)
    assert_int_equal(
        select_names(&impls, (const char *[]){"fused_cpu:portable:deterministic:fast", NULL}, slots, &count), EXIT_OK);
    request = (struct attn_request){.problem = &p, .device = &device};
    assert_non_null(impl_resolve(&slots[0], &request, &why));
    assert_string_equal(request.variant, "portable");
    assert_true(request.deterministic && !request.invariant && request.fast);
#endif
    impls_free(&impls);
}

/* --invariance: the names of the slots that are asked for, and those that run. */
static void names_for_invariance(void **state)
{
    static const struct {
        const char *asked[4], *runs[4];
    } all[] = {
        {{NULL}, {"naive", "fused_cpu:invariant"}}, /* the defaults of a CPU */
        {{"fused"}, {"fused_cpu:invariant"}},
        {{"fused_cpu:deterministic:fast", "naive"}, {"fused_cpu:deterministic:invariant:fast", "naive"}},
        {{"fused_cpu", "fused_cpu:invariant"}, {"fused_cpu", "fused_cpu:invariant"}},
        {{"fused", "fused_cpu"}, {"fused_cpu:invariant", "fused_cpu"}},
        {{"fused", "fused_cpu:invariant"}, {"fused_cpu:invariant"}},
        {{"fused_cpu:invariant", "fused"}, {"fused_cpu:invariant"}},
#if defined(__x86_64__)
        {{"fused_cpu:portable"}, {"fused_cpu:portable"}},
#endif
    };
    static const struct attn_device device = {.platform = ATTN_CPU, .threads = 1};
    struct impls impls;
    struct impl_slot slots[IMPL_MAX_SLOTS];
    int count = 0;
    (void)state;
    assert_int_equal(load(NULL, &impls), EXIT_OK);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        int wanted = 0;
        assert_int_equal(select_names(&impls, all[i].asked, slots, &count), EXIT_OK);
        assert_int_equal(impls_make_invariant(&impls, &device, slots, &count), EXIT_OK);
        for (; wanted < 4 && all[i].runs[wanted]; wanted++) {
            assert_string_equal(slots[wanted].name, all[i].runs[wanted]);
            assert_int_equal(slots[wanted].is_invariant, strstr(all[i].runs[wanted], ":invariant") != NULL);
            assert_int_equal(slots[wanted].is_named, all[i].asked[0] != NULL);
        }
        assert_int_equal(count, wanted);
    }
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
    assert_false(request.invariant || request.fast);
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
    const struct attn_problem p = DENSE(1, 1, 1, 64, 64, 128, ATTN_FP16, ATTN_BSHD, false, -1, -1, 0.125f, 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(built_in_and_loaded),
        cmocka_unit_test(libraries_that_are_refused),
        cmocka_unit_test(a_library_twice),
        cmocka_unit_test(a_path_without_a_slash),
        cmocka_unit_test(chosen_by_name),
        cmocka_unit_test(names_that_are_refused),
        cmocka_unit_test(one_of_many_variants),
        cmocka_unit_test(a_name_of_many_suffixes),
        cmocka_unit_test(names_for_invariance),
        cmocka_unit_test(a_slot_and_a_problem),
#ifdef FABENCH_WITH_CUDA
        cmocka_unit_test(a_slot_with_less_shared_memory),
#endif
    };
    return cmocka_run_group_tests(tests, help_make_folder, help_remove_folder);
}
