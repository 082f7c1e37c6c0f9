/* The option table, command lines written back from it, and the long help and the pages that are made from it: whatever
 * the table holds is in each of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/base/text.h"
#include "cmd/options/options_line.h"
#include "cmd/options/options.h"
#include "cmd/options/options_text.h"
#include "tests/unit/options/options_run.h"

/* ---- options_table ---- */

/* What holds for every row of the option table, whatever it is called: wrong values are refused by its kind and range,
 * the least value is taken, and what is allocated is freed. A new option is tested here without a line of its own. */

/* The beginning of a command line that the row's first command takes. */
static const char *command_line(const struct option_def *def)
{
    if (strcmp(def->name, "--board-baseline") == 0)
        return "sweep --device all ";
    if (def->commands & FOR_SWEEP)
        return "sweep ";
    if (def->commands & FOR_VERIFY)
        return "verify ";
    if (def->commands & FOR_GATE)
        return strcmp(def->name, "--baseline") == 0 ? "gate --floors f " : "gate --baseline a ";
    if (def->commands & FOR_AB)
        return "ab a b ";
    if (def->commands & FOR_REPORT)
        return "report a ";
    if (def->commands & FOR_PLOT)
        return "plot a ";
    if (def->commands & FOR_TUNE)
        return "tune --impl a --write w ";
    assert_true(def->commands & FOR_SELFTEST);
    return "selftest ";
}

static void refuses(const struct option_def *def, const char *value)
{
    char line[200], part[100];
    snprintf(line, sizeof line, "%s%s=%s", command_line(def), def->name, value);
    snprintf(part, sizeof part, "fabench: %s", def->name);
    refused_with(line, part);
}

static void wrong_values(void **state)
{
    (void)state;
    for (int i = 0; i < option_count; i++) {
        const struct option_def *def = &option_table[i];
        char beyond[60];
        switch (def->kind) {
        case KIND_COUNT:
        case KIND_COUNT_LIST:
        case KIND_DIMS:
        case KIND_WINDOWS:
        case KIND_REAL:
        case KIND_REAL_LIST:
        case KIND_PERCENT:
            assert_true(def->max > def->min);
            snprintf(beyond, sizeof beyond, "%.0f", def->max * 2 + 1);
            refuses(def, beyond);
            snprintf(beyond, sizeof beyond, "%.9f", def->min - (def->kind == KIND_WINDOWS ? 2 : 1));
            refuses(def, beyond);
            refuses(def, "x");
            break;
        case KIND_WORDS:
        case KIND_TEXT:
        case KIND_TEXTS:
        case KIND_OUT_FILE:
        case KIND_OUT_DIR: refuses(def, ""); break;
        case KIND_LIBRARY:
        case KIND_IN_DIR:
        case KIND_IN_FILE:
            refuses(def, "absent/nowhere");
            refuses(def, "");
            break;
        case KIND_SHAPES:
        case KIND_FLAG:
        case KIND_NO_CAUSAL:
        case KIND_VERSION:
        case KIND_CHOICE:
        case KIND_CHOICE_SET:
        case KIND_CAUSAL:
        case KIND_NAMES:
        case KIND_DEVICE:
        case KIND_HELP:
            refuses(def, "No-such");
            refuses(def, "");
            break;
        }
    }
}

/* The least value lands in the row's own field. */
static void least_values(void **state)
{
    (void)state;
    for (int i = 0; i < option_count; i++) {
        const struct option_def *def = &option_table[i];
        const bool is_count = def->kind == KIND_COUNT, is_real = def->kind == KIND_REAL || def->kind == KIND_PERCENT;
        char line[200];
        if (!is_count && !is_real)
            continue;
        snprintf(line, sizeof line, "%s%s=%.9g%s", command_line(def), def->name, def->min,
                 strcmp(def->name, "--kv-heads") == 0           ? " --heads 4"
                 : strcmp(def->name, "--max-board-spread") == 0 ? " --device all"
                 : strcmp(def->name, "--mask-block") == 0       ? " --block-mask local:1"
                 : strcmp(def->name, "--scale-block") == 0      ? " --dtype e4m3 --fp8-scale block"
                                                                : "");
        taken(line);
        const char *const field = (const char *)&options + def->offset;
        if (is_count ? *(const int64_t *)field != (int64_t)def->min : *(const double *)field != def->min)
            fail_msg("fabench %s: another value", line);
    }
}

/* Every kind that owns memory is taken, and freed again: the sanitizer build sees what is left. */
static void all_is_freed(void **state)
{
    (void)state;
    static const char *const values[] = {
        [KIND_COUNT_LIST] = "8,16", [KIND_WINDOWS] = "0,none", [KIND_SHAPES] = "4x2,8x8", [KIND_NAMES] = "naive,fused",
        [KIND_LIBRARY] = "file",    [KIND_TEXT] = "text",      [KIND_OUT_FILE] = "new",   [KIND_OUT_DIR] = "dir",
        [KIND_IN_DIR] = "dir",      [KIND_IN_FILE] = "file",   [KIND_TEXTS] = "a=1EUR",   [KIND_WORDS] = "a:1,b"};
    const struct options zero = {.command = COMMAND_SWEEP};
    int count = 0;
    for (int i = 0; i < option_count; i++) {
        const struct option_def *def = &option_table[i];
        char line[200];
        if (def->kind >= sizeof values / sizeof values[0] || !values[def->kind] || !(def->commands & FOR_SWEEP))
            continue;
        snprintf(line, sizeof line, "%s%s=%s", command_line(def), def->name, values[def->kind]);
        taken(line);
        options_free(&options);
        assert_memory_equal(&options, &zero, sizeof options);
        count++;
    }
    assert_true(count >= 10);
}

static int options_table_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_values),
        cmocka_unit_test(least_values),
        cmocka_unit_test(all_is_freed),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}

/* ---- options_line ---- */

/* Command lines written back: what was given comes back whole, whatever its length and whatever is in a path. */

/* The options of a command line in a shell's words. */
static struct options parse(const char *line)
{
    struct name_list words = {0};
    struct options o;
    bool is_done = false;
    assert_true(text_split_shell(line, &words));
    assert_int_equal(options_parse(words.count, name_list_argv(&words), &o, &is_done), 0);
    assert_false(is_done);
    name_list_free(&words);
    return o;
}

static struct problem_key a_problem(void)
{
    const struct attn_problem p = {.batch = 2,
                                   .q_heads = 16,
                                   .kv_heads = 4,
                                   .q_len = 1000,
                                   .kv_len = 2048,
                                   .head_dim = 128,
                                   .dtype = ATTN_BF16,
                                   .layout = ATTN_BHSD,
                                   .causal = true,
                                   .window_left = -1,
                                   .window_right = -1,
                                   .scale = 0.25f};
    return problem_key_of(&p, NULL, ATTN_BWD, FILL_SHARP, 0, 77, L2_HOT);
}

static void repro_has_what_rows_depend_on(void **state)
{
    (void)state;
    struct options o =
        parse("fabench --preset quick --seqlen 1k,4k --total-tokens 8k --hidden 1024 --check sample --atol 0.5 "
              "--warmup-ms 7 --samples 9 --timeout-s 3 --sustain-s 2 --deterministic --device cpu --out x "
              "--csv y.csv --plot none --quiet --impl naive,fused");
    const struct problem_key key = a_problem();
    char *repro = options_repro(&o, COMMAND_SWEEP, "fabench", "fused_cpu", &key);
    assert_string_equal(repro,
                        "fabench --preset quick --check sample --atol 0.5 --warmup-ms 7 --samples 9 --timeout-s 3 "
                        "--sustain-s 2 --deterministic --device cpu --impl fused_cpu --mode bwd --dtype bf16 "
                        "--causal=yes --batch 2 --heads 16 --kv-heads 4 --seqlen 1000 --kv-len 2048 --d 128 "
                        "--layout bhsd --scale 0.25 --dist sharp --seed 77 --l2 hot");
    struct options again = parse(repro);
    assert_int_equal(again.batches.count, 1);
    assert_int_equal(again.batches.values[0], 2);
    assert_true(again.deterministic);
    char *second = options_repro(&again, COMMAND_SWEEP, "fabench", "fused_cpu", &key);
    assert_string_equal(repro, second);
    free(repro);
    free(second);
    options_free(&o);
    options_free(&again);
}

/* Longer than any fixed field would be, with quotes and spaces. */
static void paths_come_back_whole(void **state)
{
    (void)state;
    char of_libraries[] = "/tmp/fabench-line-XXXXXX", library[4][300];
    struct text line = {0};
    assert_non_null(mkdtemp(of_libraries));
    text_add(&line, "fabench");
    for (int i = 0; i < 4; i++) {
        snprintf(library[i], sizeof library[i], "%s/it's \"%d\" $HOME `x` %0200d.so", of_libraries, i, 0);
        FILE *file = fopen(library[i], "w");
        assert_non_null(file);
        fclose(file);
        text_add_shell_word(&line, "--impl-lib");
        text_add_shell_word(&line, library[i]);
    }
    struct options o = parse(text_string(&line));
    const struct problem_key key = a_problem();
    char *repro = options_repro(&o, COMMAND_SWEEP, "fabench", "mine", &key);
    assert_true(strlen(repro) > 1000);
    struct options again = parse(repro);
    assert_int_equal(again.impl_libs.count, 4);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(again.impl_libs.names[i], library[i]);
        unlink(library[i]);
    }
    assert_string_equal(o.command_line, text_string(&line));
    rmdir(of_libraries);
    free(repro);
    text_free(&line);
    options_free(&o);
    options_free(&again);
}

static void deciding_options_are_in_the_tables_order(void **state)
{
    (void)state;
    struct options a = parse("fabench --seed 3 --out somewhere --mode fwd --verbose");
    struct options b = parse("fabench --mode=fwd --plot none --seed=3");
    assert_string_equal(a.deciding, "--mode fwd --seed 3");
    assert_string_equal(a.deciding, b.deciding);
    options_free(&a);
    options_free(&b);
}

/* What the other command does not take stays out. */
static void repro_of_another_command(void **state)
{
    (void)state;
    struct options o = parse("fabench verify --repeats 7 --preset quick --dtype fp16 --impl naive");
    struct problem_key key;
    problem_key_clear(&key);
    key.mode = ATTN_FWD;
    key.causal = 0;
    char *repro = options_repro(&o, COMMAND_VERIFY, "fabench verify", "naive", &key);
    assert_string_equal(repro, "fabench verify --repeats 7 --preset quick --impl naive --mode fwd --causal=no");
    free(repro);
    repro = options_repro(&o, COMMAND_SWEEP, "fabench", NULL, &key);
    assert_string_equal(repro, "fabench --preset quick --mode fwd --causal=no");
    free(repro);
    options_free(&o);
}

static int options_line_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repro_has_what_rows_depend_on),
        cmocka_unit_test(paths_come_back_whole),
        cmocka_unit_test(deciding_options_are_in_the_tables_order),
        cmocka_unit_test(repro_of_another_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* ---- options_help ---- */

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

/* has(), on however many lines it was wrapped. */
static bool has_words(const char *words)
{
    for (const char *from = out_text; *from; from++) {
        const char *at = from, *word = words;
        while (*word && *at && (*at == *word || (*word == ' ' && *at == '\n'))) {
            at += *word == ' ' ? strspn(at, " \n") : 1;
            word++;
        }
        if (!*word)
            return true;
    }
    return false;
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
        if (!has_words(option_values(def, text, sizeof text)))
            fail_msg("--help=all lacks the values %s", text);
        if (def->fallback && (snprintf(text, sizeof text, "default:  %s\n", def->fallback), !has(text)))
            fail_msg("--help=all lacks %s", text);
    }
    assert_true(has_words(
        "normal, uniform, zeros, sharp, huge, constant, tiny, peak, rising, falling, outliers, channels or drift"));
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

/* The options of each model are taken as they are in the table. */
static void public_models(void **state)
{
    (void)state;
    print("--help=markdown");
    assert_true(has("## Shapes of public models"));
    for (const struct model_shape *model = option_models; model->name; model++) {
        char line[300];
        snprintf(line, sizeof line, "fabench %s --batch 1%s --dry-run", model->options,
                 strstr(model->options, "decode") ? "" : " --seqlen 8k");
        struct options o = parse(line);
        assert_int_equal(o.shapes.count, 2);
        assert_true(o.shapes.values[0] % o.shapes.values[1] == 0);
        options_free(&o);
        assert_true(has(model->name) && strchr(model->source, ' ') != model->source);
    }
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
    completes("fabench --preset ''", "quick paper ci acceptance full data node decode generations");
    completes("fabench --help = g", "gates");
    completes("fabench -h = a", "all");
    completes("fabench --d 6", "");
    completes("fabench --csv fi", "file");
    completes("fabench --dump d", "dir");
    completes("fabench plot fi", "file");
    completes("fabench plot --pl", "--plot --plot-layout --plot-kind");
    completes("fabench info fi", "");
    completes("fabench plot x --plot sv", "svg");
}

static int options_help_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_explained),
        cmocka_unit_test(no_command_has_two_rows_of_one_name),
        cmocka_unit_test(commands_are_in_order),
        cmocka_unit_test(all_has_everything),
        cmocka_unit_test(groups),
        cmocka_unit_test(presets_are_explained),
        cmocka_unit_test(public_models),
        cmocka_unit_test(markdown),
        cmocka_unit_test(man_page),
        cmocka_unit_test(bash_completion),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}

int main(void) { return options_table_tests() + options_line_tests() + options_help_tests(); }
