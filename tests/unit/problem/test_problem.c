/* The table of tensors (cmd/problem/problem.h): their names, their bits in attn_impl.repeatable, and which of them a
 * mode writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "cmd/problem/problem.h"

static void every_tensor_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (int t = 0; t < TENSOR_COUNT; t++) {
        assert_non_null(problem_tensor_name((enum problem_tensor)t));
        for (int other = 0; other < t; other++)
            assert_string_not_equal(problem_tensor_name((enum problem_tensor)t),
                                    problem_tensor_name((enum problem_tensor)other));
    }
    assert_string_equal(problem_tensor_name(TENSOR_DO), "do");
    assert_string_equal(problem_tensor_name(TENSOR_LSE), "lse");
    assert_string_equal(problem_tensor_title("dk"), "dK");
    assert_string_equal(problem_tensor_title("lse"), "LSE");
    assert_string_equal(problem_tensor_title("wksp"), "wksp");
}

/* A promise of attn_impl.repeatable is about the tensor that has its bit. */
static void outputs_have_the_bits_of_the_contract(void **state)
{
    static const enum problem_tensor want[2][3] = {{TENSOR_O, TENSOR_LSE}, {TENSOR_DQ, TENSOR_DK, TENSOR_DV}};
    static const unsigned bits[2][3] = {{ATTN_O, ATTN_LSE}, {ATTN_DQ, ATTN_DK, ATTN_DV}};
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        int count;
        const enum problem_tensor *outputs = problem_outputs((enum attn_mode)mode, &count);
        assert_int_equal(count, mode == ATTN_FWD ? 2 : 3);
        for (int i = 0; i < count; i++) {
            assert_int_equal(outputs[i], want[mode][i]);
            assert_int_equal(problem_tensor_bit(outputs[i]), bits[mode][i]);
        }
    }
    assert_int_equal(problem_tensor_bit(TENSOR_Q) | problem_tensor_bit(TENSOR_DO), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor_has_a_name_of_its_own),
        cmocka_unit_test(outputs_have_the_bits_of_the_contract),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
