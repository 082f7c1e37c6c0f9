/* What failures have in common (cmd/table/common.h). */
#include "tests/unit/unit_help.h"

#include <string.h>

#include "cmd/record/record.h"
#include "cmd/table/common.h"

static struct record_row a_row(int mode, int64_t kv_heads, int64_t head_dim, const char *fails)
{
    struct record_row row = {0};
    record_row_clear(&row);
    snprintf(row.impl, sizeof row.impl, "mine");
    row.key.mode = mode;
    row.key.dtype = ATTN_BF16;
    row.key.causal = 0;
    row.key.batch = 1;
    row.key.q_heads = 4;
    row.key.kv_heads = kv_heads;
    row.key.q_len = row.key.kv_len = 128;
    row.key.head_dim = head_dim;
    row.key.layout = ATTN_BSHD;
    row.key.dist = FILL_NORMAL;
    row.status = STATUS_OK;
    row.check = fails ? CHECKED_FAIL : CHECKED_PASS;
    row.tensor_count = fails != NULL;
    if (fails) {
        snprintf(row.tensors[0].name, sizeof row.tensors[0].name, "%s", fails);
        row.tensors[0].used = 9;
    }
    return row;
}

static void the_cause_is_named(void **state)
{
    (void)state;
    struct common c = {.failures = 0};
    char text[400];
    const struct record_row rows[] = {a_row(MODE_FWD, 4, 64, NULL), a_row(MODE_FWD, 2, 64, NULL),
                                      a_row(MODE_BWD, 4, 64, NULL), a_row(MODE_BWD, 2, 64, "dk"),
                                      a_row(MODE_BWD, 1, 128, "dk")};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        common_describe(&c, text, sizeof text);
        assert_string_equal(text, ""); /* one failure has nothing in common */
        common_add(&c, &rows[i]);
    }
    common_describe(&c, text, sizeof text);
    assert_string_equal(text, "all 2 failures: bwd, kv_heads < heads, dK"); /* not bf16, which all have */
    common_describe(&c, text, 20);
    assert_true(strlen(text) < 20);
}

static void nothing_in_common(void **state)
{
    (void)state;
    struct common c = {.failures = 0};
    char text[400];
    const struct record_row rows[] = {a_row(MODE_FWD, 4, 64, NULL), a_row(MODE_FWD, 4, 64, "o"),
                                      a_row(MODE_BWD, 2, 128, "dv")};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        common_add(&c, &rows[i]);
    common_describe(&c, text, sizeof text);
    assert_string_equal(text, "");
}

static void only_failures(void **state)
{
    (void)state;
    struct common c = {.failures = 0};
    char text[400];
    const struct record_row rows[] = {a_row(MODE_BWD, 4, 64, "dv"), a_row(MODE_BWD, 4, 64, "dv")};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        common_add(&c, &rows[i]);
    common_describe(&c, text, sizeof text);
    assert_string_equal(text, "all 2 failures: mine, bwd, full, bf16, d64, normal, dV");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_cause_is_named), cmocka_unit_test(nothing_in_common),
                                       cmocka_unit_test(only_failures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
