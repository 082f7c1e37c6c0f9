/* Numbers, lists, shell words, cleaning and layout of one string. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/nearest.h"
#include "cmd/base/numbers.h"
#include "cmd/base/text.h"
#include "cmd/base/wrap.h"
#include "cmd/problem/problem_key.h"
#include "tests/fuzz/fuzz.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
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
