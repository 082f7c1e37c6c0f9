/* The estimate of when the last multiprocessor has finished, beside one that goes block by block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "kernels/common/makespan.h"

static void known_cases(void **state)
{
    (void)state;
    struct attn_makespan span = attn_makespan_begin(3);
    assert_true(attn_makespan_end(&span) == 0);
    attn_makespan_add(&span, 2, 5); /* 5 5 0 */
    assert_true(attn_makespan_end(&span) == 5);
    attn_makespan_add(&span, 2, 4); /* 5 5 4, then 5 5 8 */
    assert_true(attn_makespan_end(&span) == 8);
    attn_makespan_add(&span, 0, 100);
    assert_true(attn_makespan_end(&span) == 8);
    attn_makespan_add(&span, 7, 0);
    assert_true(attn_makespan_end(&span) == 8);
    span = attn_makespan_begin(132);
    attn_makespan_add(&span, 132 * 1000 + 1, 2);
    assert_true(attn_makespan_end(&span) == 2002);
}

static void numbers_of_multiprocessors(void **state)
{
    (void)state;
    struct attn_makespan one = attn_makespan_begin(0), most = attn_makespan_begin(1000);
    attn_makespan_add(&one, 3, 1);
    assert_true(attn_makespan_end(&one) == 3);
    attn_makespan_add(&most, ATTN_MAX_MULTIPROCESSORS, 1);
    assert_true(attn_makespan_end(&most) == 1);
    attn_makespan_add(&most, 1, 1);
    assert_true(attn_makespan_end(&most) == 2);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Each block to the multiprocessor that is free first, one by one. */
static void as_one_by_one(void **state)
{
    static const int counts[] = {1, 2, 7, 132, ATTN_MAX_MULTIPROCESSORS};
    (void)state;
    srand(1);
    for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++) {
        double free_at[ATTN_MAX_MULTIPROCESSORS] = {0};
        struct attn_makespan span = attn_makespan_begin(counts[n]);
        for (int call = 0; call < 60; call++) {
            const int blocks = rand() % 300;
            const double time = rand() % 20;
            attn_makespan_add(&span, blocks, time);
            for (int block = 0; block < blocks; block++) {
                free_at[0] += time;
                qsort(free_at, (size_t)counts[n], sizeof free_at[0], by_size);
            }
            assert_true(attn_makespan_end(&span) == free_at[counts[n] - 1]);
            int64_t all = 0;
            for (int i = 0; i < span.count; i++)
                all += span.free[i].multiprocessors;
            assert_int_equal(all, counts[n]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_cases),
        cmocka_unit_test(numbers_of_multiprocessors),
        cmocka_unit_test(as_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
