/* Lists of names, joined and searched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cmd/base/name_list.h"

static void joined(void **state)
{
    (void)state;
    struct name_list list = {0};
    static const char *const expected[] = {"", "", ",bcd", ",bcd,", ",bcd,,e"};
    static const char *const names[] = {"", "bcd", "", "e"};
    for (int i = 0; i <= 4; i++) {
        char *text = name_list_join(&list);
        assert_string_equal(text, expected[i]);
        free(text);
        if (i < 4)
            name_list_add(&list, names[i]);
    }
    name_list_free(&list);
}

static void found(void **state)
{
    (void)state;
    struct name_list list = {0};
    assert_false(name_list_has(&list, ""));
    name_list_add_part(&list, "fused_sm90", 5);
    name_list_print(&list, "%s%d", "sm", 90);
    assert_true(name_list_has(&list, "fused"));
    assert_true(name_list_has(&list, "sm90"));
    assert_false(name_list_has(&list, "fused_sm90"));
    assert_null(name_list_argv(&list)[2]);
    assert_int_equal(list.count, 2);
    name_list_free(&list);
}

static void removed(void **state)
{
    (void)state;
    struct name_list list = {0};
    for (int i = 0; i < 5; i++)
        name_list_print(&list, "%d", i);
    name_list_remove(&list, 1, 2);
    assert_int_equal(list.count, 3);
    char *text = name_list_join(&list);
    assert_string_equal(text, "0,3,4");
    free(text);
    name_list_remove(&list, 2, 1);
    name_list_remove(&list, 0, 0);
    name_list_add(&list, "end");
    text = name_list_join(&list);
    assert_string_equal(text, "0,3,end");
    free(text);
    name_list_remove(&list, 0, 3);
    assert_int_equal(list.count, 0);
    name_list_free(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joined),
        cmocka_unit_test(found),
        cmocka_unit_test(removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
