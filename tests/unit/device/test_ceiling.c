/* The ceilings of the CPU: reading with buffers that grow and shrink, and no GEMM. */
#include "tests/unit/unit_help.h"

#include "cmd/device/backend.h"

static void reading_is_timed(void **state)
{
    (void)state;
    static const size_t sizes[] = {READ_MULTIPLE, 1 << 20, 3 * READ_MULTIPLE};
    struct attn_message why;
    struct backend be;
    assert_int_equal(backend_open_cpu(&be, &why), ATTN_OK);
    for (int i = 0; i < 3; i++) {
        struct launcher read = {.read_bytes = sizes[i]};
        double time_ms = -1;
        assert_int_equal(be.ops->read_prepare(&be, sizes[i], &why), ATTN_OK);
        assert_int_equal(be.ops->capture(&be, &read, &why), ATTN_OK);
        assert_int_equal(be.ops->launch(&be, &read, &why), ATTN_OK);
        assert_int_equal(be.ops->repeat(&be, &read, 3, &why), ATTN_OK);
        assert_int_equal(be.ops->sample(&be, &read, false, &time_ms, &why), ATTN_OK);
        assert_true(time_ms >= 0);
    }
    assert_int_equal(be.ops->read_prepare(&be, SIZE_MAX / 2, &why), ATTN_NO_MEMORY);
    assert_non_null(strstr(why.text, "out of host memory"));
    assert_int_equal(be.ops->read_prepare(&be, 0, &why), ATTN_OK);
    be.ops->close(&be);
}

static void there_is_no_gemm(void **state)
{
    (void)state;
    struct attn_message why;
    struct backend be;
    double flops;
    assert_int_equal(backend_open_cpu(&be, &why), ATTN_OK);
    assert_int_equal(be.ops->gemm_prepare(&be, ATTN_FP32, &flops, &why), ATTN_UNSUPPORTED);
    be.ops->close(&be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reading_is_timed),
        cmocka_unit_test(there_is_no_gemm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
