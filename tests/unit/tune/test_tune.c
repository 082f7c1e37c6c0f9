/* What `fabench tune` decides from rows, its file, and the problems that --random draws. */
#include "tests/unit/unit_help.h"

#include "cmd/base/log.h"
#include "cmd/tune/tune.h"

/* ---- decisions ---- */

static struct record_file read_rows(const struct help_row *rows, int count)
{
    struct record_file file;
    struct attn_message why = {""};
    if (!record_read(help_record("rows.jsonl", rows, count), &file, &why))
        fail_msg("%s", why.text);
    return file;
}

static void fastest_has_passed(void **state)
{
    const struct help_row rows[] = {{.impl = "mine:a", .time_ms = 3},
                                    {.impl = "mine:b", .time_ms = 2},
                                    {.impl = "mine:wrong", .time_ms = 1, .check = "fail"},
                                    {.impl = "mine:unchecked", .time_ms = 1, .check = "off"},
                                    {.impl = "mine:none", .status = "unsupported"},
                                    {.impl = "mine2:c", .time_ms = 1},
                                    {.impl = "naive", .time_ms = 1}};
    (void)state;
    struct record_file file = read_rows(rows, 7);
    assert_string_equal(tune_fastest(&file, "mine")->impl, "mine:b");
    assert_null(tune_fastest(&file, "min"));
    record_file_free(&file);
    file = read_rows(rows + 2, 3);
    assert_null(tune_fastest(&file, "mine"));
    record_file_free(&file);
}

static void is_near(double value, double wanted)
{
    if (!(fabs(value - wanted) < 1e-6))
        fail_msg("%g where %g belongs", value, wanted);
}

/* The ratio within the rounds where the row has it, else that of the times. */
static void gain_is_of_the_same_rounds(void **state)
{
    const struct help_row rows[] = {
        {.impl = "mine:own", .time_ms = 2},
        {.impl = "mine:b", .time_ms = 1.9, .more = ",\"speedups\":\"mine:own=1.04 naive=3\""},
        {.impl = "mine:c", .time_ms = 1.6},
        {.impl = "mine:d", .time_ms = 1, .check = "fail"}};
    (void)state;
    struct record_file file = read_rows(rows, 4);
    is_near(tune_gain_pct(&file, "mine", "b", "own"), 4);
    is_near(tune_gain_pct(&file, "mine", "c", "own"), 25);
    assert_true(isnan(tune_gain_pct(&file, "mine", "d", "own")));
    assert_true(isnan(tune_gain_pct(&file, "mine", "own", "d")));
    assert_true(isnan(tune_gain_pct(&file, "mine", "b", "absent")));
    record_file_free(&file);
}

static void losses_are_those_of_races(void **state)
{
    struct tuned_choice choices[] = {
        {.impl = "mine", .variant = "b", .built_in = "a", .gain_pct = 12},
        {.impl = "mine", .variant = "b", .built_in = "a", .gain_pct = 3.5},
        {.impl = "mine", .variant = "a", .built_in = "a", .gain_pct = -2}, /* the fastest lost the race */
        {.impl = "mine", .variant = "a", .built_in = "a", .gain_pct = NAN},
        {.impl = "other", .variant = "b", .built_in = "a", .gain_pct = 50}};
    const struct tuned tuned = {.choices = choices, .count = 5};
    (void)state;
    const struct tune_summary s = tune_summarise(&tuned, "mine");
    assert_int_equal(s.problems, 4);
    assert_int_equal(s.kept, 2);
    assert_int_equal(s.above_3_pct, 2);
    assert_int_equal(s.above_10_pct, 1);
    is_near(s.geomean_loss_pct, 100 * (pow(1.12 * 1.035, 0.25) - 1));
}

/* ---- the file ---- */

static struct tuned_choice choice_of(const char *variant, int64_t q_len)
{
    struct attn_problem p = {.batch = 2, .q_heads = 4, .kv_heads = 2, .q_len = q_len, .kv_len = 512, .head_dim = 64};
    struct tuned_choice choice = {.impl = "mine", .built_in = "own", .fastest = "b", .candidates = 3, .gain_pct = 2.5};
    p.dtype = ATTN_BF16;
    p.window_left = p.window_right = -1;
    p.scale = 0.1f;
    p.dropout = 0.25f;
    choice.key = problem_key_of(&p, NULL, ATTN_BWD, FILL_NORMAL, 0, 9, L2_COLD);
    snprintf(choice.variant, sizeof choice.variant, "%s", variant);
    return choice;
}

static void put(FILE *file, json_t *line)
{
    char *text = json_dumps(line, JSON_COMPACT);
    fprintf(file, "%s\n", text);
    free(text);
    json_decref(line);
}

static void file_is_read_back(void **state)
{
    const struct device_info device = {
        .name = "Fake GPU", .arch = "sm_90", .multiprocessors = 132, .memory_bytes = 80e9};
    struct device_info other = device;
    struct tuned_choice first = choice_of("b", 512), second = choice_of("own", 300), asked = choice_of("", 300);
    struct tuned tuned;
    struct attn_message why = {""};
    FILE *file = fopen(help_path("tuned.jsonl"), "w");
    (void)state;
    second.gain_pct = NAN;
    put(file, tuned_header(&device));
    put(file, tuned_line(&first));
    put(file, tuned_line(&second));
    fputs("{\"type\":\"cho", file);
    fclose(file);
    if (!tuned_read(help_path("tuned.jsonl"), &tuned, &why))
        fail_msg("%s", why.text);
    assert_int_equal(tuned.count, 2);
    asked.key.seed = 1; /* other data is the same work */
    asked.key.dist = FILL_ZEROS;
    asked.key.dropout_seed = 77;
    const struct tuned_choice *found = tuned_find(&tuned, "mine", &asked.key);
    assert_ptr_equal(found, &tuned.choices[1]);
    assert_string_equal(found->variant, "own");
    assert_true(isnan(found->gain_pct) && tuned.choices[0].gain_pct == 2.5);
    assert_null(tuned_find(&tuned, "yours", &asked.key));
    asked.key.causal = 1;
    assert_null(tuned_find(&tuned, "mine", &asked.key));

    json_t *here = tuned_header(&device);
    assert_true(tuned_fits(&tuned, here, &why));
    json_decref(here);
    other.multiprocessors = 114;
    here = tuned_header(&other);
    assert_false(tuned_fits(&tuned, here, &why));
    assert_string_equal(why.text, "was tuned with multiprocessors 132, here it is 114; fabench tune makes one");
    json_decref(here);
    tuned_free(&tuned);
}

static void other_files_are_refused(void **state)
{
    static const char *const texts[] = {"", "{\"type\":\"header\",\"schema\":1}\n",
                                        "{\"type\":\"tuned\",\"schema\":2}\n", "{\"type\":\"choice\"}\n",
                                        "{\"type\":\"tuned\",\"schema\":1}\n{\"type\":\"choice\",\"impl\":\"a\"}\n"};
    struct tuned tuned;
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct attn_message why = {""};
        assert_false(tuned_read(help_write("bad.jsonl", texts[i]), &tuned, &why));
        assert_has(why.text, "bad.jsonl: ");
        assert_null(tuned.header);
    }
}

/* ---- drawn problems ---- */

static void options_of(const char *line, struct options *o)
{
    if (options_parse_line(line, o) != EXIT_OK)
        fail_msg("%s", line);
}

static void drawn_problems_are_off_the_grid(void **state)
{
    struct options o;
    int heads_seen[2] = {0}, causal = 0, backward = 0, groups = 0, cross = 0;
    (void)state;
    options_of("fabench --seed 3", &o);
    for (int64_t number = 0; number < 400; number++) {
        struct options one;
        char *words = tune_random_options(&o, ATTN_CUDA, number), *again = tune_random_options(&o, ATTN_CUDA, number);
        char line[300];
        snprintf(line, sizeof line, "fabench%s", words);
        assert_string_equal(words, again);
        options_of(line, &one);
        const int64_t q_len = one.q_lens.values[0], kv_len = one.kv_lens.values[0];
        const int64_t q_heads = one.shapes.values[0], kv_heads = one.shapes.values[1];
        const int64_t all = q_heads * one.batches.values[0];
        assert_in_range(q_len, 100, 20000);
        assert_in_range(kv_len, 100, 20000);
        assert_in_range(all, 1, 512);
        assert_int_equal(q_heads % kv_heads, 0);
        assert_true((double)all * (double)q_len * (double)kv_len <= 64.0 * 16384 * 16384 * 1.5 || all == 1);
        heads_seen[all > 32]++;
        causal += one.causal[1];
        backward += one.modes[ATTN_BWD];
        groups += q_heads != kv_heads;
        cross += q_len != kv_len;
        options_free(&one);
        free(words);
        free(again);
    }
    assert_true(heads_seen[0] > 40 && heads_seen[1] > 40 && groups > 40 && cross > 40);
    assert_in_range(causal, 150, 250);
    assert_in_range(backward, 150, 250);
    options_free(&o);
    options_of("fabench --seed 3 --mode fwd --d 128 --causal", &o);
    for (int64_t number = 0; number < 20; number++) {
        char *words = tune_random_options(&o, ATTN_CUDA, number);
        assert_has(words, "--mode fwd --causal=yes");
        assert_has(words, "--d 128 ");
        free(words);
    }
    options_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fastest_has_passed),        cmocka_unit_test(gain_is_of_the_same_rounds),
        cmocka_unit_test(losses_are_those_of_races), cmocka_unit_test(file_is_read_back),
        cmocka_unit_test(other_files_are_refused),   cmocka_unit_test(drawn_problems_are_off_the_grid),
    };
    return cmocka_run_group_tests(tests, help_make_folder, help_remove_folder);
}
