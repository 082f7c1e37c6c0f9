/* The long help and the pages that are made from the option table: whatever the table holds is in each of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/options/options_text.h"
#include "tests/unit/options/options_run.h"

static void print(const char *line)
{
    if (run(line) != EXIT_OK || !done || *err_text)
        fail_msg("fabench %s: %s", line, err_text);
    assert_in_range(strlen(out_text), 100, sizeof out_text - 2); /* not cut */
}

static bool has(const char *text) { return strstr(out_text, text); }

/* Both spellings, escaped as Markdown has them or not. */
static void assert_has_option(const char *page, const struct option_def *def)
{
    if (!has(def->name) || (def->alias && !has(def->alias)))
        fail_msg("%s lacks %s", page, def->name);
}

static void every_row_is_explained(void **state)
{
    (void)state;
    for (int i = 0; i < option_count; i++) {
        const struct option_def *def = &option_table[i];
        const char *const text = option_explanation(def);
        if (!text || strlen(text) < 10)
            fail_msg("row %d, %s: neither detail nor help", i, def->name);
        if (!def->is_joined && !def->help)
            fail_msg("row %d, %s: no help", i, def->name);
        if (def->detail && (strstr(def->detail, "  ") || def->detail[strlen(def->detail) - 1] != '.'))
            fail_msg("row %d, %s: the detail is no whole sentence: %s", i, def->name, def->detail);
        assert_true(def->commands != 0 && (def->commands & ~(unsigned)FOR_ANY) == 0);
        assert_in_range(def->group, 0, GROUP_COUNT - 1);
        int choices = 0;
        while (def->choices && def->choices[choices])
            choices++;
        assert_in_range(choices, 0, OPTION_CHOICES_MAX);
    }
}

/* Rows of one name must not serve one command twice. */
static void no_command_has_two_rows_of_one_name(void **state)
{
    (void)state;
    for (int i = 0; i < option_count; i++)
        for (int j = 0; j < i; j++)
            if (strcmp(option_table[i].name, option_table[j].name) == 0 &&
                (option_table[i].commands & option_table[j].commands))
                fail_msg("rows %d and %d: %s", j, i, option_table[i].name);
}

static void commands_are_in_order(void **state)
{
    (void)state;
    for (int i = 0; i < COMMAND_COUNT; i++)
        assert_int_equal(command_table[i].command, i);
    assert_int_equal(command_table[0].command, COMMAND_SWEEP);
}

static void all_has_everything(void **state)
{
    (void)state;
    print("--help=all");
    for (int i = 0; i < option_count; i++) {
        const struct option_def *def = &option_table[i];
        char text[200];
        if (def->is_hidden)
            continue;
        assert_has_option("--help=all", def);
        if (!has(option_syntax(def, text, sizeof text)))
            fail_msg("--help=all lacks the line %s", text);
        if (!has(option_values(def, text, sizeof text)))
            fail_msg("--help=all lacks the values %s", text);
        if (def->fallback && (snprintf(text, sizeof text, "default:  %s\n", def->fallback), !has(text)))
            fail_msg("--help=all lacks %s", text);
    }
    assert_true(has("normal, uniform, zeros, sharp, huge, constant, tiny, peak, rising or falling"));
    assert_true(has("commands: sweep, verify, gate, ab, selftest\n"));
    assert_true(has("Exit codes\n  0  ") && has("\n  130 "));
    assert_true(has("Presets\n  quick "));
    assert_true(has("--pairs MIN,MAX") && has("--price LABEL=31000EUR")); /* other commands' */
    assert_true(has("  --preheat-s X\n")); /* a rare one, which the short help leaves out */
    assert_false(has("--points"));
    for (const char *line = out_text; *line;) {
        const size_t length = strcspn(line, "\n");
        if (length > 110)
            fail_msg("%zu columns: %.*s", length, (int)length, line);
        line += length + (line[length] == '\n');
    }
    print("--help");
    assert_false(has("--preheat-s"));
    print("ab --help=all");
    assert_true(has("--pairs MIN,MAX") && has("fabench ab OLD NEW"));
    assert_false(has("--baseline") || has("--price") || has("fabench gate"));
}

/* True when some row of the group is printed as this line; rows of different groups may have one name. */
static bool is_in_group(const char *line, enum option_group group)
{
    for (int i = 0; i < option_count; i++) {
        char syntax[120] = "  ";
        option_syntax(&option_table[i], syntax + 2, sizeof syntax - 3);
        strcat(syntax, "\n");
        if (option_table[i].group == group && !option_table[i].is_hidden && strcmp(syntax, line) == 0)
            return true;
    }
    return false;
}

static void groups(void **state)
{
    (void)state;
    for (int group = 0; group < GROUP_COUNT; group++) {
        char line[40];
        snprintf(line, sizeof line, "--help=%s", option_groups[group].name);
        print(line);
        for (int i = 0; i < option_count; i++) {
            char syntax[120] = "  ";
            const struct option_def *def = &option_table[i];
            option_syntax(def, syntax + 2, sizeof syntax - 3);
            strcat(syntax, "\n");
            if (has(syntax) != is_in_group(syntax, (enum option_group)group))
                fail_msg("%s and %s", line, syntax);
        }
    }
    assert_int_equal(run("plot --help=gates"), EXIT_OK);
    assert_string_equal(out_text, "plot takes no options of the group gates\n");
    print("verify --help=check");
    assert_true(has("--repeats N\n"));
    assert_false(has("full, sample or off"));
    refused("--help=problems",
            "--help problems: must be all, problem, impl, check, measure, gates or output; did you mean problem");
    refused_with("gate --help=outputs", "did you mean output");
}

static void presets_are_explained(void **state)
{
    (void)state;
    int count = 0;
    for (; option_presets[count].name; count++) {
        char line[60];
        snprintf(line, sizeof line, "--preset %s", option_presets[count].name);
        taken(line);
        assert_int_equal(options.preset, count + 1);
    }
    assert_null(option_preset_names[count + 1]);
}

static void markdown(void **state)
{
    (void)state;
    print("--help=markdown");
    for (int i = 0; i < option_count; i++)
        if (!option_table[i].is_hidden)
            assert_has_option("markdown", &option_table[i]);
    for (int i = 0; i < COMMAND_COUNT; i++)
        assert_true(has(command_table[i].summary));
    assert_true(has("| acceptance |") && has("| 130 |") && has("| FABENCH\\_LOCK\\_DIR |"));
    assert_true(has("fabench-out/\\<device\\>-\\<utc\\>/"));
    assert_false(has("--points"));
    /* Each row of a table has as many cells as its head: a bar within a cell is escaped. */
    int head_cells = 0;
    for (const char *line = out_text; *line;) {
        const size_t length = strcspn(line, "\n");
        int cells = 0;
        for (size_t i = 0; *line == '|' && i < length; i++)
            cells += line[i] == '|' && (i == 0 || line[i - 1] != '\\');
        if (*line == '|' && head_cells && cells != head_cells)
            fail_msg("%d bars, not %d: %.*s", cells, head_cells, (int)length, line);
        head_cells = cells;
        line += length + (line[length] == '\n');
    }
}

static void man_page(void **state)
{
    (void)state;
    print("--help=man");
    assert_int_equal(strncmp(out_text, ".TH FABENCH 1 ", 14), 0);
    assert_true(has(".B \\-\\-d, \\-\\-headdim N,...\n") && has(".SH EXIT STATUS\n.TP\n.B 0\n"));
    assert_true(has(".SS \"gates: "));
    assert_false(has("\\-points"));
    for (const char *line = out_text; line; line = strchr(line, '\n'), line += line != NULL)
        assert_true(*line != '\'' && (*line != '.' || strchr("TSBb", line[1])));
}

/* bash itself says what it would complete. */
static void completes(const char *words, const char *want)
{
    char got[4096] = "";
    FILE *const file = fopen("completion.bash", "w");
    assert_non_null(file);
    fputs(out_text, file);
    fprintf(file, "COMP_WORDS=(%s)\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n", words);
    fputs("_fabench\necho \"${COMPREPLY[*]}\"\n", file);
    assert_int_equal(fclose(file), 0);
    FILE *const shell = popen("bash --norc completion.bash 2>&1", "r");
    assert_non_null(shell);
    got[fread(got, 1, sizeof got - 1, shell)] = 0;
    assert_int_equal(pclose(shell), 0);
    assert_int_equal(remove("completion.bash"), 0);
    got[strcspn(got, "\n")] = 0;
    if (strcmp(got, want) != 0)
        fail_msg("completing %s\n  got  %s\n  want %s", words, got, want);
}

static void bash_completion(void **state)
{
    (void)state;
    if (system("command -v bash >/dev/null") != 0)
        skip();
    print("--help=bash");
    completes("fabench ver", "verify");
    completes("fabench --kv", "--kv-len --kv-heads");
    completes("fabench verify --kv", "");
    completes("fabench gate --ba", "--batch --baseline");
    completes("fabench --mode ''", "fwd bwd decode");
    completes("fabench --mode = b", "bwd");
    completes("fabench --mode fwd,b", "fwd,bwd");
    completes("fabench --dtype = fp32,fp", "fp32,fp32 fp32,fp16");
    completes("fabench --causal = ''", "no yes both");
    completes("fabench --causal =", "no yes both");
    completes("fabench --causal --see", "--seed");
    completes("fabench verify --check ''", "full sample");
    completes("fabench sweep --check ''", "full sample off");
    completes("fabench --preset ''", "quick paper ci acceptance full data");
    completes("fabench --help = g", "gates");
    completes("fabench -h = a", "all");
    completes("fabench --d 6", "");
    completes("fabench --csv fi", "file");
    completes("fabench --dump d", "dir");
    completes("fabench plot fi", "file");
    completes("fabench plot --pl", "--plot");
    completes("fabench info fi", "");
    completes("fabench plot x --plot sv", "svg");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_explained),
        cmocka_unit_test(no_command_has_two_rows_of_one_name),
        cmocka_unit_test(commands_are_in_order),
        cmocka_unit_test(all_has_everything),
        cmocka_unit_test(groups),
        cmocka_unit_test(presets_are_explained),
        cmocka_unit_test(markdown),
        cmocka_unit_test(man_page),
        cmocka_unit_test(bash_completion),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
