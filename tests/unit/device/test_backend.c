/* What is said where no CUDA device can be used. */
#include "tests/unit/unit_help.h"

#include "cmd/device/backend.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_device)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
