/* The plugin of examples/peers/flash_attention_3, with a stand-in for the library: what it refuses in words, how it
 * calls the library's functions, and what it says of a library that is absent, another build or of another interface.
 */
#include "tests/unit/unit_help.h"

#include <dlfcn.h>

#include "kernels/attention.h"

static void *plugin, *fake;
static const struct attn_impl *fa3;

/* Loads the plugin anew, with this library. */
static void load(const char *library)
{
    if (plugin)
        assert_int_equal(dlclose(plugin), 0);
    assert_int_equal(library ? setenv("FABENCH_FA3", library, 1) : unsetenv("FABENCH_FA3"), 0);
    plugin = dlopen(FA3_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(plugin);
    fabench_impls_function impls;
    void *const symbol = dlsym(plugin, "fabench_impls");
    assert_non_null(symbol);
    memcpy(&impls, &symbol, sizeof impls);
    assert_null(impls(ATTN_ABI + 1));
    fa3 = impls(ATTN_ABI);
    assert_non_null(fa3);
    assert_string_equal(fa3->name, "fa3");
    assert_int_equal(fa3->role, ATTN_ROLE_PEER);
    assert_null(fa3[1].name);
}

static void *fake_symbol(const char *name)
{
    void *const symbol = dlsym(fake, name);
    assert_non_null(symbol);
    return symbol;
}

static int with_library(void **state)
{
    (void)state;
    load(FAKE_FA3);
    fake = dlopen(FAKE_FA3, RTLD_NOW | RTLD_LOCAL); /* the same copy as the plugin's */
    return fake ? 0 : -1;
}

/* ---- one request, changed by each test ---- */

static struct attn_problem p;
static struct attn_device device;
static struct attn_request request;

static int fresh(void **state)
{
    (void)state;
    p = (struct attn_problem){.batch = 2,
                              .q_heads = 4,
                              .kv_heads = 2,
                              .q_len = 100,
                              .kv_len = 300,
                              .head_dim = 128,
                              .dtype = ATTN_BF16,
                              .window_left = -1,
                              .window_right = -1,
                              .scale = 0.5f};
    device = (struct attn_device){.platform = ATTN_CUDA, .ordinal = 3, .sm = 90};
    request = (struct attn_request){.problem = &p, .device = &device};
    return 0;
}

static const char *refusal(void)
{
    static struct attn_message why;
    why.text[0] = 0;
    const enum attn_status status = fa3->accepts(&request, &why);
    if (status == ATTN_OK)
        return "accepted";
    assert_int_equal(status, ATTN_UNSUPPORTED);
    assert_true(strlen(why.text) > 8 && !strchr(why.text, '\n'));
    return why.text;
}

#define REFUSED(change, words) \
    do { \
        fresh(NULL); \
        change; \
        assert_has(refusal(), words); \
    } while (0)

static void refuses_in_words(void **state)
{
    (void)state;
    assert_string_equal(refusal(), "accepted");
    REFUSED(p.head_dim = 96, "would pad");
    REFUSED(p.head_dim = 80, "would pad");
    REFUSED(p.head_dim = 32, "would pad");
    REFUSED(p.dtype = ATTN_FP32, "fp16 and bf16 only");
    REFUSED(p.layout = ATTN_BHSD, "bshd only");
    REFUSED(p.dropout = 0.1f, "takes no dropout");
    REFUSED(p.softcap = 30, "takes no softcap");
    REFUSED(p.mask_block = 64, "takes no block mask");
    REFUSED(p.lengths = ATTN_CACHE, "takes no cache");
    REFUSED((p.lengths = ATTN_CACHE, p.page_size = 64), "takes no cache");
    REFUSED((p.dtype = ATTN_E4M3, p.out_dtype = ATTN_BF16), "takes no 8-bit inputs");
    REFUSED(request.precise = true, "takes no precise mode");
    REFUSED(request.splits = 4, "takes no number of splits");
    REFUSED(p.v_head_dim = 64, "takes no V whose head_dim");
    REFUSED(p.has_sink = true, "takes no sink");
    REFUSED(p.has_alibi = true, "takes no ALiBi");
    REFUSED(p.bias_batch = p.bias_heads = 1, "takes no bias");
    REFUSED(request.invariant = true, "takes no invariant mode");
    REFUSED(request.outputs = ATTN_O, "a part of the outputs");
    REFUSED(request.variant = "fwd", "no variants");
    REFUSED(device.sm = 80, "this device has 8.0");
    REFUSED(device.sm = 100, "this device has 10.0");
    REFUSED(device.platform = ATTN_CPU, "CUDA devices only");
    REFUSED(p.batch = (int64_t)1 << 25, "below 2^31");
    REFUSED((request.mode = ATTN_BWD, request.deterministic = true), "not deterministic");
    REFUSED((request.mode = ATTN_BWD, p.batch = 65536), "up to 65535");
    REFUSED((request.mode = ATTN_BWD, p.q_heads = 65536), "up to 65535");
    REFUSED(p.batch = 65536, "accepted");              /* forward */
    REFUSED(request.deterministic = true, "accepted"); /* forward: always is */
    for (int i = 0; i < 4; i++)
        REFUSED(p.head_dim = 64 * (i + 1), "accepted");
}

/* ---- calls ---- */

enum { WORKSPACE = 0x10000000 }; /* addresses that nothing reads */

static struct attn_tensor tensor(uintptr_t address, int64_t len, int64_t heads)
{
    return (struct attn_tensor){(void *)address, len * heads * p.head_dim, p.head_dim, heads * p.head_dim};
}

static struct attn_tensors tensors(void)
{
    const int64_t rows = p.lengths == ATTN_PACKED ? p.total_q : p.q_len;
    const int64_t keys = p.lengths == ATTN_PACKED ? p.total_k : p.kv_len;
    return (struct attn_tensors){.q = tensor(0x1000, rows, p.q_heads),
                                 .k = tensor(0x2000, keys, p.kv_heads),
                                 .v = tensor(0x3000, keys, p.kv_heads),
                                 .o = tensor(0x4000, rows, p.q_heads),
                                 .lse = (float *)0x5000,
                                 .dout = tensor(0x6000, rows, p.q_heads),
                                 .dq = tensor(0x7000, rows, p.q_heads),
                                 .dk = tensor(0x8000, keys, p.kv_heads),
                                 .dv = tensor(0x9000, keys, p.kv_heads),
                                 .cu_seqlens_q = (int32_t *)0xa000,
                                 .cu_seqlens_k = (int32_t *)0xb000};
}

static enum attn_status launch(struct attn_tensors t, struct attn_message *why)
{
    const struct attn_run run = {.workspace = (void *)(uintptr_t)WORKSPACE,
                                 .workspace_bytes = fa3->workspace_bytes(&request),
                                 .stream = (void *)0xc000};
    return fa3->launch(&request, &t, &run, why);
}

static void calls(const char *words)
{
    struct attn_message why = {""};
    assert_string_equal(refusal(), "accepted");
    if (launch(tensors(), &why) != ATTN_OK)
        fail_msg("%s", why.text);
    assert_string_equal((const char *)fake_symbol("fake_fa3_seen"), words);
}

static void calls_the_forward(void **state)
{
    (void)state;
    calls("fwd\n"
          "arguments 16:0x1000(2,100,4,128) 16:0x2000(2,300,2,128) 16:0x3000(2,300,2,128)\n"
          "results 16:0x4000(2,100,4,128) 11:0x5000(2,4,100) 11:0x10000000(1,1,1,1) 11:0x10000100(1,1,1)\n"
          "is_causal=0 softmax_scale=0.5 window_size_left=-1 window_size_right=-1\n"
          "stream 0xc000 device 3");
    p.dtype = ATTN_FP16;
    p.causal = true;
    p.window_left = 64;
    p.window_right = 300; /* hides nothing */
    p.head_dim = 64;
    calls("fwd\n"
          "arguments 10:0x1000(2,100,4,64) 10:0x2000(2,300,2,64) 10:0x3000(2,300,2,64)\n"
          "results 10:0x4000(2,100,4,64) 11:0x5000(2,4,100) 11:0x10000000(1,1,1,1) 11:0x10000100(1,1,1)\n"
          "is_causal=1 softmax_scale=0.5 window_size_left=64 window_size_right=-1\n"
          "stream 0xc000 device 3");
}

static void calls_the_backward(void **state)
{
    (void)state;
    request.mode = ATTN_BWD; /* 4 heads x (200 + 3 x 128) floats: 0x2500 bytes, rounded up */
    calls("bwd\n"
          "arguments 16:0x6000(2,100,4,128) 16:0x1000(2,100,4,128) 16:0x2000(2,300,2,128) 16:0x3000(2,300,2,128)"
          " 16:0x4000(2,100,4,128) 11:0x5000(2,4,100)\n"
          "results 16:0x7000(2,100,4,128) 16:0x8000(2,300,2,128) 16:0x9000(2,300,2,128) 11:0x10000000(2336)"
          " 11:0x10002500(2336)\n"
          "is_causal=0 softmax_scale=0.5 window_size_left=-1 window_size_right=-1\n"
          "stream 0xc000 device 3");
    assert_ptr_equal(*(void **)fake_symbol("fake_fa3_given"), (void *)(uintptr_t)(WORKSPACE + 2 * 0x2500));
}

static void calls_the_packed_functions(void **state)
{
    (void)state;
    p.lengths = ATTN_PACKED;
    p.total_q = 150;
    p.total_k = 400;
    calls("varlen_fwd\n"
          "arguments 16:0x1000(150,4,128) 16:0x2000(400,2,128) 16:0x3000(400,2,128) 4:0xa000(3) 4:0xb000(3)\n"
          "results 16:0x4000(150,4,128) 11:0x5000(4,150) 11:0x10000000(1,1,1,1) 11:0x10000100(1,1,1)\n"
          "is_causal=0 max_seqlen=100 max_seqlen_k=300 softmax_scale=0.5 window_size_left=-1 window_size_right=-1\n"
          "stream 0xc000 device 3");
    request.mode = ATTN_BWD;
    calls("varlen_bwd\n"
          "arguments 16:0x6000(150,4,128) 16:0x1000(150,4,128) 16:0x2000(400,2,128) 16:0x3000(400,2,128)"
          " 16:0x4000(150,4,128) 11:0x5000(4,150) 4:0xa000(3) 4:0xb000(3)\n"
          "results 16:0x7000(150,4,128) 16:0x8000(400,2,128) 16:0x9000(400,2,128) 11:0x10000000(2136)"
          " 11:0x10002200(2136)\n"
          "is_causal=0 max_seqlen=100 max_seqlen_k=300 softmax_scale=0.5 window_size_left=-1 window_size_right=-1\n"
          "stream 0xc000 device 3");
}

static void refuses_tensors_with_gaps(void **state)
{
    (void)state;
    struct attn_message why = {""};
    struct attn_tensors t = tensors();
    t.k.stride_row += 8;
    assert_int_equal(launch(t, &why), ATTN_UNSUPPORTED);
    assert_has(why.text, "contiguous tensors");
    t = tensors();
    t.o.stride_batch += 8;
    assert_int_equal(launch(t, &why), ATTN_UNSUPPORTED);
    t = tensors();
    t.v.data = (char *)t.v.data + 2;
    assert_int_equal(launch(t, &why), ATTN_UNSUPPORTED);
}

/* More scratch than the workspace has, and the library's own errors. */
static void reports_failures(void **state)
{
    (void)state;
    struct attn_message why = {""};
    size_t *const scratch = fake_symbol("fake_fa3_scratch");
    const char **const error = fake_symbol("fake_fa3_error");
    int *const code = fake_symbol("fake_fa3_error_code");
    *scratch = (size_t)1 << 40;
    assert_int_equal(launch(tensors(), &why), ATTN_ERROR);
    assert_has(why.text, "asks for 1099511627776 bytes of scratch");
    *scratch = 64;
    *error = "no kernel\nfor this";
    assert_int_equal(launch(tensors(), &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "FlashAttention-3: no kernel for this");
    *code = 13;
    assert_int_equal(launch(tensors(), &why), ATTN_ERROR);
    *error = NULL;
}

/* What the library allocated in measured cases of the real one must fit behind the results. */
static void workspace_has_room(void **state)
{
    (void)state;
    request.mode = ATTN_BWD;
    p = (struct attn_problem){.batch = 4,
                              .q_heads = 16,
                              .kv_heads = 16,
                              .q_len = 4096,
                              .kv_len = 4096,
                              .head_dim = 128,
                              .dtype = ATTN_BF16,
                              .window_left = -1,
                              .window_right = -1,
                              .scale = 1};
    const size_t accumulator = (size_t)4 * 16 * 4160 * 128 * 4; /* 52 tiles of 80 rows */
    const size_t rows = (size_t)16 * (4 * 4096 + 5 * 128) * 4;
    assert_true(fa3->workspace_bytes(&request) >= accumulator + 2 * rows);
    assert_true(fa3->workspace_bytes(&request) < accumulator + 2 * rows + (1 << 16));
    const size_t plain = fa3->workspace_bytes(&request);
    p.kv_heads = 2;
    assert_true(fa3->workspace_bytes(&request) >= plain + (size_t)2 * 4 * 2 * 4096 * 128 * 4);
}

/* ---- libraries that cannot be used ---- */

static void says_why_a_library_cannot_be_used(void **state)
{
    struct attn_message why = {""};
    load("/nowhere/libdew_flash_attn3.so");
    fresh(state);
    assert_has(refusal(), "cannot load FlashAttention-3: /nowhere/libdew_flash_attn3.so");
    assert_has(refusal(), "build.sh");
    assert_int_equal(launch(tensors(), &why), ATTN_ERROR); /* who does not ask is told, too */
    assert_has(why.text, "/nowhere/");
    p.head_dim = 96;
    assert_has(refusal(), "would pad"); /* what no library could change comes first */
    fresh(state);
    load(FAKE_FA3_OTHER);
    assert_has(refusal(), "is not the library of the wheel dew-flash-attn-cu13 0.3.6");
    load(FAKE_FA3_MAJOR);
    assert_has(refusal(), "speaks XLA FFI 1.1, this plugin 0.1");
    load(FA3_PLUGIN);
    assert_has(refusal(), "is not the library of the wheel");
    load(NULL); /* beside the plugin, where none lies */
    assert_has(refusal(), "dew_flash_attn/libdew_flash_attn3.so");
}

int main(void)
{
    const struct CMUnitTest calls_of_it[] = {
        cmocka_unit_test_setup(refuses_in_words, fresh),
        cmocka_unit_test_setup(calls_the_forward, fresh),
        cmocka_unit_test_setup(calls_the_backward, fresh),
        cmocka_unit_test_setup(calls_the_packed_functions, fresh),
        cmocka_unit_test_setup(refuses_tensors_with_gaps, fresh),
        cmocka_unit_test_setup(reports_failures, fresh),
        cmocka_unit_test_setup(workspace_has_room, fresh),
    };
    const struct CMUnitTest libraries[] = {cmocka_unit_test_setup(says_why_a_library_cannot_be_used, fresh)};
    return cmocka_run_group_tests_name("with a library", calls_of_it, with_library, NULL) +
           cmocka_run_group_tests_name("libraries", libraries, NULL, NULL);
}
