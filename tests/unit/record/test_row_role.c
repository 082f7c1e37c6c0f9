/* The role of an implementation by its name (cmd/record/row_role.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cmd/record/row_role.h"

static void only_whole_names_have_a_role(void **state)
{
    (void)state;
    assert_int_equal(role_of_name("naive"), ROLE_NAIVE);
    assert_int_equal(role_of_name("cudnn"), ROLE_PEER);
    assert_int_equal(role_of_name("cudnn:deterministic"), ROLE_PEER);
    assert_int_equal(role_of_name("null"), ROLE_NULL);
    assert_int_equal(role_of_name("naive2"), ROLE_KERNEL);
    assert_int_equal(role_of_name("cud"), ROLE_KERNEL);
    assert_int_equal(role_of_name("fused_sm90"), ROLE_KERNEL);
}

static void fused_kernels_begin_with_fused_and_underscore(void **state)
{
    (void)state;
    assert_true(role_is_fused("fused_sm90"));
    assert_true(role_is_fused("fused_sm90:fwd_d128_m128n128_s2"));
    assert_false(role_is_fused("fusedkernel"));
    assert_false(role_is_fused("fused2_sm90"));
    assert_false(role_is_fused("naive"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_whole_names_have_a_role),
        cmocka_unit_test(fused_kernels_begin_with_fused_and_underscore),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
