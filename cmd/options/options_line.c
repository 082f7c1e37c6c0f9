/* Writes every command line that the program prints or records. */
#include "cmd/options/options_line.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/text.h"
#include "cmd/options/options_table.h"

char *options_line_of(int argc, char **argv)
{
    struct text line = {0};
    for (int i = 0; i < argc; i++)
        text_add_shell_word(&line, argv[i]);
    return text_take(&line);
}

/* options.given holds a name and a value, "" = none, for each option. */
static void add_option(struct text *line, const char *name, const char *value)
{
    text_add_shell_word(line, name);
    if (*value)
        text_add_shell_word(line, value);
}

char *options_deciding(const struct options *o)
{
    struct text line = {0};
    for (const struct option_def *def = option_table; def < option_table + option_count; def++) {
        if (def->group == GROUP_OUTPUT || def->group == GROUP_GATES || !(def->commands & 1u << o->command))
            continue;
        for (int i = 0; i + 1 < o->given.count; i += 2)
            if (strcmp(o->given.names[i], def->name) == 0)
                add_option(&line, def->name, o->given.names[i + 1]);
    }
    return text_take(&line);
}

/* True for options that the problem's fields replace in `repro`, and for lists that make several problems. */
static bool asks_problem(const struct option_def *def)
{
    for (int i = 0; i < problem_field_count; i++)
        if (problem_fields[i].option && strcmp(problem_fields[i].option, def->name) == 0)
            return true;
    return def->kind == KIND_NO_CAUSAL || def->kind == KIND_SHAPES || def->kind == KIND_WORDS ||
           (def->group == GROUP_PROBLEM && def->kind == KIND_COUNT);
}

bool options_word_asks_problem(const char *word)
{
    const size_t length = strcspn(word, "=");
    for (int i = 0; i < option_count; i++)
        if (option_table[i].group == GROUP_PROBLEM && strlen(option_table[i].name) == length &&
            strncmp(option_table[i].name, word, length) == 0)
            return true;
    return false;
}

/* The table row of an option for this command; NULL when the command does not take it. */
static const struct option_def *taken_by(enum command command, const char *name)
{
    for (const struct option_def *def = option_table; def < option_table + option_count; def++)
        if (strcmp(def->name, name) == 0 && def->commands & 1u << command)
            return def;
    return NULL;
}

char *options_repro(const struct options *o, enum command taker, const char *command, const char *impl,
                    const struct problem_key *key)
{
    struct text line = {0};
    text_add(&line, "%s", command);
    for (int i = 0; i + 1 < o->given.count; i += 2) {
        const struct option_def *def = taken_by(taker, o->given.names[i]);
        const bool is_kept = def && !def->is_hidden && def->group != GROUP_OUTPUT && def->group != GROUP_GATES &&
                             def->kind != KIND_NAMES && !(key && asks_problem(def));
        /* Two produce no row; the third says which ones. */
        if (is_kept && strcmp(def->name, "--dry-run") != 0 && strcmp(def->name, "--profile") != 0 &&
            strcmp(def->name, "--only") != 0)
            add_option(&line, def->name, o->given.names[i + 1]);
    }
    if (impl)
        add_option(&line, "--impl", impl);
    if (key) {
        char *problem = problem_key_options(key);
        text_add(&line, "%s", problem);
        free(problem);
        /* What `repro` leaves out as the default is not that of the preset data. */
        if (o->preset == PRESET_DATA && key->dist == FILL_NORMAL && isnan(key->logit_std))
            add_option(&line, "--dist", problem_dist_name(FILL_NORMAL));
    }
    return text_take(&line);
}
