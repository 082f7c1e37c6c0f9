/* The command line: each line of the input is one word. A valid one is planned, and its recorded form is read back. */
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/options/options_line.h"
#include "cmd/options/options_parse.h"
#include "cmd/plan/plan.h"
#include "cmd/record/record_file.h"
#include "tests/fuzz/fuzz.h"

enum { WORDS_MAX = 64 };

static void plan(const struct options *o)
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
        plan(o);
    if (o->command != COMMAND_SWEEP)
        return;
    FUZZ_CHECK(options_parse_line(o->command_line, &again) == EXIT_OK);
    options_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
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
