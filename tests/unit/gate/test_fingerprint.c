/* Whether records can be compared (cmd/gate/fingerprint.h): one file of one kind with each configuration once, and two
 * files of the same kind. */
#include "tests/unit/unit_help.h"

#include "cmd/gate/fingerprint.h"

static struct attn_message why;

static struct record_file read_file(const char *path)
{
    struct record_file file;
    if (!record_read(path, &file, &why))
        fail_msg("%s", why.text);
    return file;
}

/* Header of these facts, one row. */
static struct record_file file_with(const char *name, const char *device, const char *policy)
{
    char *path = help_path(name);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    help_put_header(out, device, policy);
    help_put_row(out, &(struct help_row){0});
    fclose(out);
    return read_file(path);
}

static bool match(const char *device_a, const char *policy_a, const char *device_b, const char *policy_b)
{
    struct record_file a = file_with("a.jsonl", device_a, policy_a), b = file_with("b.jsonl", device_b, policy_b);
    why.text[0] = 0;
    const bool same = fingerprint_matches(&a, &b, &why);
    record_file_free(&a);
    record_file_free(&b);
    return same;
}

static void two_of_a_kind(void **state)
{
    (void)state;
    assert_true(match(HELP_DEVICE, HELP_POLICY, HELP_DEVICE, HELP_POLICY));
    /* Another driver of the same major version, 1 % of the power limit or the memory: the same. */
    assert_true(match("\"driver\":\"580.65\"", HELP_POLICY, "\"driver\":\"580.9\"", HELP_POLICY));
    assert_true(match("\"power_limit_w\":700", HELP_POLICY, "\"power_limit_w\":695", HELP_POLICY));
    assert_true(match("\"memory_gb\":141.0", HELP_POLICY, "\"memory_gb\":140.5", HELP_POLICY));
    assert_true(match("\"uuid\":\"a\"", HELP_POLICY, "\"uuid\":\"b\"", HELP_POLICY)); /* another board of that kind */
}

static void two_that_differ(void **state)
{
    (void)state;
    static const struct {
        const char *device[2], *policy[2], *words;
    } cases[] = {
        {{"\"name\":\"A\"", "\"name\":\"B\""}, {"", ""}, "the baseline's device is \"A\", the current one's \"B\""},
        {{"\"name\":\"A\"", ""}, {"", ""}, "the baseline's device is \"A\", the current one's absent"},
        {{"\"arch\":\"sm_90\"", "\"arch\":\"sm_80\""}, {"", ""}, "architecture is \"sm_90\""},
        {{"\"driver\":\"58.1\"", "\"driver\":\"580.1\""}, {"", ""}, "driver is \"58.1\", the current one's \"580.1\""},
        {{"\"power_limit_w\":700", "\"power_limit_w\":600"}, {"", ""}, "power limit (W) is 700, the current one's 600"},
        {{"\"memory_gb\":80", "\"memory_gb\":141"}, {"", ""}, "device memory (GB) is 80"},
        {{"\"threads\":2", "\"threads\":4"}, {"", ""}, "threads is 2, the current one's 4"},
        {{"\"ecc\":true", "\"ecc\":false"}, {"", ""}, "ECC is true"},
        {{"\"mig\":true", "\"mig\":false"}, {"", ""}, "MIG is true"},
        {{"", ""}, {"\"method\":\"2\"", "\"method\":\"3\""}, "timing method is \"2\""},
        {{"", ""}, {"\"clocks\":\"x\"", "\"clocks\":\"y\""}, "clock policy is \"x\""},
        {{"", ""}, {"\"l2\":\"cold\"", "\"l2\":\"hot\""}, "cache policy is \"cold\""},
        {{"", ""},
         {"\"round_members\":[\"a\"]", "\"round_members\":[\"a\",\"b\"]"},
         "members of the rounds is [\"a\"]"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_false(match(cases[i].device[0], cases[i].policy[0], cases[i].device[1], cases[i].policy[1]));
        assert_has(why.text, cases[i].words);
        assert_has(why.text, ": they cannot be compared");
    }
}

static bool is_uniform(const struct help_row *rows, int count)
{
    struct record_file file = read_file(help_record("whole.jsonl", rows, count));
    why.text[0] = 0;
    const bool uniform = fingerprint_is_uniform(&file, &why);
    record_file_free(&file);
    return uniform;
}

static void each_configuration_once(void **state)
{
    (void)state;
    const struct help_row good[] = {{0}, {.n = 256}, {.mode = "bwd"}, {.impl = "naive"}, {.asked = "fused"}};
    assert_true(is_uniform(good, 5)); /* the last: `fused` and the kernel that it resolves to, both requested */
    const struct help_row twice[] = {{0}, {.n = 256}, {.time_ms = 2}};
    assert_false(is_uniform(twice, 3));
    assert_has(why.text, "whole.jsonl has fwd causal d64");
    assert_has(why.text, " of fused_fake twice (runs run1 and run1); a gate needs each once");
    assert_false(is_uniform(good, 0));
    assert_has(why.text, "whole.jsonl has no rows");
}

static void rows_of_another_kind(void **state)
{
    (void)state;
    const struct help_row rows[] = {{0}, {.n = 256, .device = "Another GPU"}};
    assert_false(is_uniform(rows, 2));
    assert_has(why.text, "is mixed: row 2 is of device 'Another GPU', its header of 'Fake GPU'");
}

/* The headers of several runs in one file must agree too. */
static void several_headers(void **state)
{
    (void)state;
    for (int is_other = 0; is_other < 2; is_other++) {
        char *path = help_path("several.jsonl");
        FILE *out = fopen(path, "w");
        assert_non_null(out);
        help_put_header(out, HELP_DEVICE, HELP_POLICY);
        help_put_row(out, &(struct help_row){0});
        help_put_header(out, HELP_DEVICE,
                        is_other ? "\"method\":\"3\",\"l2\":\"hot\",\"round_members\":[\"fused\"]" : HELP_POLICY);
        fclose(out);
        struct record_file file = read_file(path);
        assert_int_equal(fingerprint_is_uniform(&file, &why), !is_other);
        record_file_free(&file);
    }
    assert_has(why.text, "is mixed: the cache policy of its first run is \"cold\", that of another run is \"hot\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(two_of_a_kind), cmocka_unit_test(two_that_differ),
                                       cmocka_unit_test(each_configuration_once),
                                       cmocka_unit_test(rows_of_another_kind), cmocka_unit_test(several_headers)};
    return cmocka_run_group_tests(tests, help_make_folder, help_remove_folder);
}
