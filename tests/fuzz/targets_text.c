/* The targets that read text: one string, and the words of a command line. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/name_list.h"
#include "cmd/base/numbers.h"
#include "cmd/base/terminal.h"
#include "cmd/base/text.h"
#include "cmd/options/options_line.h"
#include "cmd/options/options_parse.h"
#include "cmd/plan/plan.h"
#include "cmd/problem/problem_key.h"
#include "cmd/record/record_file.h"
#include "tests/fuzz/fuzz.h"

/* ---- fuzz_text ---- */

/* Numbers, lists, shell words, cleaning and layout of one string. */

static void try_numbers(const char *text)
{
    char buffer[64], why[200];
    int64_t whole, again, *values = NULL;
    double real;
    int count = 0;
    if (number_parse_count(text, &whole))
        FUZZ_CHECK(whole >= 0 && number_parse_count(number_print_count(whole, buffer, sizeof buffer), &again) &&
                   again == whole);
    if (number_parse_real(text, &real)) {
        FUZZ_CHECK(isfinite(real));
        number_print_short(real, buffer, sizeof buffer);
        number_print_bytes(real, buffer, sizeof buffer);
    }
    if (number_parse_percent(text, &real))
        FUZZ_CHECK(isfinite(real) && real >= 0);
    if (number_parse_list(text, &values, &count, why, sizeof why))
        FUZZ_CHECK(count > 0 && count <= 4096);
    else
        FUZZ_CHECK(count == 0 && why[0]);
    free(values);
}

static void try_fields(const char *text)
{
    struct problem_key key;
    char buffer[64];
    for (int i = 0; i < problem_field_count; i++) {
        problem_key_clear(&key);
        if (problem_field_parse(&problem_fields[i], text, &key))
            FUZZ_CHECK(*problem_field_text(&problem_fields[i], &key, buffer, sizeof buffer));
    }
}

static void try_clean(const char *text)
{
    struct text clean = {0}, again = {0};
    char part[24], cut[24];
    text_add_clean(&clean, text);
    text_add_clean(&again, text_string(&clean));
    FUZZ_CHECK(strcmp(text_string(&clean), text_string(&again)) == 0);
    text_clean(text, part, sizeof part);
    FUZZ_CHECK(strncmp(text_string(&clean), part, strlen(part)) == 0);
    text_cut_middle(text, cut, sizeof cut);
    FUZZ_CHECK(strlen(cut) < sizeof cut);
    text_free(&clean);
    text_free(&again);
}

static void try_words(const char *text)
{
    struct text line = {0};
    struct name_list words = {0};
    text_add_shell_word(&line, "first");
    text_add_shell_word(&line, text);
    FUZZ_CHECK(text_split_shell(text_string(&line), &words) && words.count == 2 && !strcmp(words.names[1], text));
    text_split_shell(text, &words);
    text_free(&line);
    name_list_free(&words);
}

static void try_layout(const char *text)
{
    static const char *const names[] = {"--seqlen", "--mode", "--impl-lib", "tflops"};
    struct text clean = {0};
    text_add_clean(&clean, text);
    char *shortened = text_take(&clean);
    for (int width = 0; width <= 40; width += 13) {
        wrap_words(stdout, width, 2, 4, shortened);
        wrap_command(stdout, width, 2, shortened);
    }
    for (int limit = 30; limit >= 0; limit -= 7) {
        wrap_shorten(shortened, limit);
        FUZZ_CHECK(wrap_columns(shortened) <= limit);
    }
    free(shortened);
    nearest_name(text, names, sizeof names / sizeof *names);
}

int fuzz_text(const uint8_t *data, size_t size)
{
    char *text = fuzz_string(data, size);
    try_numbers(text);
    try_fields(text);
    try_clean(text);
    try_words(text);
    try_layout(text);
    free(text);
    return 0;
}

/* ---- fuzz_options ---- */

/* The command line: each line of the input is one word. A valid one is planned, and its recorded form is read back. */

enum { WORDS_MAX = 64 };

static void try_plan(const struct options *o)
{
    struct plan made;
    for (int platform = ATTN_CPU; platform <= ATTN_CUDA; platform++) {
        const int status = o->command == COMMAND_VERIFY ? plan_make_verify(o, (enum attn_platform)platform, &made)
                                                        : plan_make(o, (enum attn_platform)platform, &made);
        if (status != EXIT_OK)
            continue;
        FUZZ_CHECK(made.count > 0);
        free(plan_repro(o, &made.items[made.count - 1], "naive"));
        plan_free(&made);
    }
}

static void try_options(const struct options *o)
{
    struct attn_message why = {""};
    struct options again;
    if (o->columns)
        record_columns_valid(o->columns, &why);
    if (o->command == COMMAND_SWEEP || o->command == COMMAND_VERIFY)
        try_plan(o);
    if (o->command != COMMAND_SWEEP)
        return;
    FUZZ_CHECK(options_parse_line(o->command_line, &again) == EXIT_OK);
    options_free(&again);
}

int fuzz_options(const uint8_t *data, size_t size)
{
    char *line = fuzz_string(data, size), *words[WORDS_MAX + 2] = {xstrdup("fabench")}, *rest = line, *word;
    struct options o;
    int count = 1;
    bool done;
    while (count <= WORDS_MAX && (word = strsep(&rest, "\n")) != NULL)
        if (*word || rest) /* not the empty word behind the last line end */
            words[count++] = xstrdup(word);
    if (options_parse(count, words, &o, &done) == EXIT_OK && !done) {
        try_options(&o);
        options_free(&o);
    }
    free(line);
    line = fuzz_string(data, size);
    if (options_parse_line(line, &o) == EXIT_OK)
        options_free(&o);
    for (int i = 0; i < count; i++)
        free(words[i]);
    free(line);
    return 0;
}
