/* The command line, word by word: each value is checked by the kind and range of its row in the option table, then all
 * together by the rules between options (options_check). Parsing ends at the first error, which is one sentence on
 * stderr by options_refuse.
 */
#include "cmd/options/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/program.h"
#include "cmd/base/text.h"
#include "cmd/options/options_line.h"
#include "cmd/options/options_table.h"
#include "cmd/options/options_text.h"
#include "cmd/options/options_values.h"

/* ---- Refusing ---- */

static bool refuse_option(const struct parse *p, const char *word, int length)
{
    const char **names = xcalloc(2 * (unsigned long)option_count, sizeof *names);
    char name[81];
    int count = 0;
    for (int i = 0; i < option_count; i++) {
        if (option_table[i].is_hidden || !option_serves(&option_table[i], p->command))
            continue;
        names[count++] = option_table[i].name;
        if (option_table[i].alias)
            names[count++] = option_table[i].alias;
    }
    snprintf(name, sizeof name, "%.*s", length > 80 ? 80 : length, word);
    const char *nearest = nearest_name(name, names, count);
    free(names);
    return nearest ? options_refuse(name, NULL, "no such option; did you mean %s", nearest)
                   : options_refuse(name, NULL, "no such option; see %s --help", program_name());
}

static bool refuse_command(const char *word)
{
    const char *names[COMMAND_COUNT];
    char legal[120], sentence[200];
    for (int i = 0; i < COMMAND_COUNT; i++)
        names[i] = command_table[i].name;
    const char *nearest = nearest_name(word, names, COMMAND_COUNT);
    /* The first is the sweep, which needs no word. */
    snprintf(sentence, sizeof sentence, "must be %s, or no word for the sweep",
             option_join_names(names + 1, COMMAND_COUNT - 1, legal, sizeof legal));
    return options_refuse(*word ? word : "''", NULL, "no such command; %s%s", nearest ? "did you mean " : sentence,
                          nearest ? nearest : "");
}

/* ---- Words ---- */

static bool is_option_word(const struct parse *p, const char *word)
{
    return strncmp(word, "--", 2) == 0 || (*word == '-' && option_find(p->command, word, strcspn(word, "=")));
}

static bool check_command(const struct parse *p, const struct option_def *def, const char *name)
{
    char takers[80] = "";
    if (option_serves(def, p->command))
        return true;
    for (int i = 0; i < COMMAND_COUNT; i++) /* any row of this name, of whatever command */
        if (option_serves(option_find(&command_table[i], def->name, strlen(def->name)), &command_table[i]))
            snprintf(takers + strlen(takers), sizeof takers - strlen(takers), "%s%s", *takers ? ", " : "",
                     command_table[i].name);
    return options_refuse(name, NULL, "is not an option of %s, only of %s", p->command->name, takers);
}

/* Takes an option out of what keep_for_sweeps noted. */
static void drop_kept(struct options *o, const struct option_def *def)
{
    const size_t length = strlen(def->name);
    for (int i = o->given.count - 2; i >= 0; i -= 2)
        if (strcmp(o->given.names[i], def->name) == 0)
            name_list_remove(&o->given, i, 2);
    for (int i = o->sweep_words.count - 1; i >= 0; i--)
        if (strncmp(o->sweep_words.names[i], def->name, length) == 0 && strchr("=", o->sweep_words.names[i][length]))
            name_list_remove(&o->sweep_words, i, 1);
}

/* An option that is given again replaces what was given before, a list as a whole, so that a script can put options
 * behind its own; --impl-lib and --price are repeatable. False, after a sentence, for --causal and --no-causal. */
static bool replace_earlier(struct parse *p, const struct option_def *def, const char *name)
{
    for (int i = 0; i < option_count && def->kind != KIND_LIBRARY && def->kind != KIND_TEXTS; i++) {
        if (!p->value[i] || option_table[i].offset != def->offset)
            continue;
        if (&option_table[i] != def)
            return options_refuse(name, NULL, "cannot be used with %s; both masks are --causal=both",
                                  option_table[i].name);
        if (!p->replaced[i])
            p->replaced[i] = p->value[i];
        option_free_value(p->o, def);
        drop_kept(p->o, def);
    }
    return true;
}

/* --verbose: which options were given more than once. */
static void note_replaced(const struct parse *p)
{
    for (int i = 0; i < option_count; i++)
        if (p->replaced[i] && strcmp(p->replaced[i], p->value[i]) != 0)
            log_note("%s was given more than once: the last one holds, %s", option_table[i].name,
                     *p->value[i] ? p->value[i] : "without a value");
}

/* The word after an option that needs a value, or NULL after a sentence. */
static const char *next_value(const struct parse *p, const struct option_def *def, const char *name, const char *next)
{
    char legal[160];
    option_legal_text(def, legal, sizeof legal);
    if (!next)
        options_refuse(name, NULL, "needs a value: %s", legal);
    else if (is_option_word(p, next))
        options_refuse(name, NULL, "needs a value: %s; one that begins with - is written %s=%s", legal, name, next);
    else
        return next;
    return NULL;
}

/* Keeps the option as typed, for command lines (options_line.h) and for other processes that must run the same sweep.
 * Always returns true. */
static bool keep_for_sweeps(struct options *o, const struct option_def *def, bool has_value, const char *value)
{
    name_list_add(&o->given, def->name);
    name_list_add(&o->given, has_value ? value : "");
    const bool is_kept =
        def->group != GROUP_OUTPUT && def->group != GROUP_GATES && def->kind != KIND_DEVICE && def->kind != KIND_NAMES;
    if (is_kept) {
        char *word = has_value ? xasprintf("%s=%s", def->name, value) : xstrdup(def->name);
        name_list_add(&o->sweep_words, word);
        free(word);
    }
    return true;
}

/* The option at argv[*index], and its value where that is the next word. *done after --help and --version. */
static bool parse_option(struct parse *p, int argc, char **argv, int *index, bool *done)
{
    const char *const word = argv[*index], *const equals = strchr(word, '=');
    const char *const next = *index + 1 < argc ? argv[*index + 1] : NULL;
    const size_t length = strcspn(word, "=");
    const struct option_def *def = option_find(p->command, word, length);
    const char *value = equals ? equals + 1 : "";
    char name[32];
    if (!def)
        return refuse_option(p, word, (int)length);
    snprintf(name, sizeof name, "%.*s", (int)length, word);
    if (!check_command(p, def, name))
        return false;
    if (!option_takes_value(def) && def->kind != KIND_HELP && equals)
        return options_refuse(name, value, "takes no value");
    if (def->kind == KIND_CAUSAL) {
        if (equals && !*value)
            return option_refuse_choice(def, name, value, value, 0);
        if (!equals && next && option_choice_index(def, next, strlen(next)) >= 0)
            return options_refuse(name, next, "takes no separate word; did you mean %s=%s", name, next);
    } else if (option_takes_value(def) && !equals) {
        value = next_value(p, def, name, next);
        if (!value)
            return false;
        ++*index;
    }
    if (!replace_earlier(p, def, name))
        return false;
    p->value[def - option_table] = value;
    if (p->is_replay && def->group == GROUP_OUTPUT)
        return true; /* the other run's outputs do not concern this one */
    if (def->kind != KIND_HELP && def->kind != KIND_VERSION)
        return option_parse_value(p->o, def, name, value) && keep_for_sweeps(p->o, def, equals || *value, value);
    if (def->kind == KIND_VERSION)
        options_print_version();
    *done = def->kind == KIND_VERSION || options_print_help(p->command, p->is_named, equals ? value : NULL);
    return *done;
}

static bool parse_positional(struct parse *p, const char *word)
{
    if (p->command->takes_words && *word) {
        name_list_add(&p->o->files, word);
        return true;
    }
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(word, command_table[i].name) == 0)
            return options_refuse(word, NULL, "a command is the first word, before the options");
    return options_refuse(*word ? word : "''", NULL,
                          "%s takes no such argument; lists are written with commas, as 64,128", p->command->name);
}

static bool parse_words(struct parse *p, int argc, char **argv, bool *done)
{
    int first = 1;
    if (argc > 1 && argv[1][0] != '-') {
        p->command = NULL;
        for (int i = 0; i < COMMAND_COUNT; i++)
            if (strcmp(argv[1], command_table[i].name) == 0)
                p->command = &command_table[i];
        if (!p->command)
            return refuse_command(argv[1]);
        p->is_named = true;
        p->o->command = p->command->command;
        first = 2;
    }
    bool options_ended = false;
    for (int i = first; i < argc && !*done; i++) {
        if (!options_ended && strcmp(argv[i], "--") == 0)
            options_ended = true;
        else if (!options_ended && argv[i][0] == '-' && argv[i][1]) {
            if (!parse_option(p, argc, argv, &i, done))
                return false;
        } else if (!parse_positional(p, argv[i]))
            return false;
    }
    return true;
}

/* ---- The whole ---- */

void options_free(struct options *o)
{
    for (int i = 0; i < option_count; i++)
        option_free_value(o, &option_table[i]);
    name_list_free(&o->files); /* fields without an option of their own */
    name_list_free(&o->sweep_words);
    name_list_free(&o->given);
    free(o->deciding);
    free(o->command_line);
    memset(o, 0, sizeof *o);
}

/* What the preset says of options that decide which others are legal. */
static void apply_preset(struct options *o)
{
    for (int mode = 0; mode < MODE_COUNT && o->preset == PRESET_DECODE && !o->mode_given; mode++)
        o->modes[mode] = mode == MODE_DECODE;
}

/* An array for parse.value or parse.replaced where no option was given yet. The caller frees it. */
static const char **new_values(void) { return xcalloc((unsigned long)option_count, sizeof(const char *)); }

int options_parse(int argc, char **argv, struct options *o, bool *done)
{
    struct parse p = {.o = o, .command = &command_table[0], .value = new_values(), .replaced = new_values()};
    *done = false;
    memset(o, 0, sizeof *o);
    options_apply_defaults(o);
    o->command_line = options_line_of(argc, argv);
    bool good = parse_words(&p, argc, argv, done);
    apply_preset(o);
    good = good && (*done || options_check(&p));
    if (good && !*done)
        o->deciding = options_deciding(o);
    if (good && !*done && o->verbose)
        note_replaced(&p);
    free(p.value);
    free(p.replaced);
    if (!good) {
        options_free(o);
        return EXIT_USAGE;
    }
    if (*done) {
        options_free(o);
        if (fflush(stdout) != 0 || ferror(stdout)) {
            log_error("stdout cannot be written");
            return EXIT_IO;
        }
    }
    return EXIT_OK;
}

int options_parse_line(const char *command_line, struct options *o)
{
    struct name_list words = {0};
    bool done = false;
    struct parse p = {
        .o = o, .command = &command_table[0], .value = new_values(), .replaced = new_values(), .is_replay = true};
    memset(o, 0, sizeof *o);
    options_apply_defaults(o);
    const bool good = text_split_shell(command_line, &words) && words.count > 0 &&
                      parse_words(&p, words.count, name_list_argv(&words), &done) && !done &&
                      o->command == COMMAND_SWEEP;
    apply_preset(o);
    name_list_free(&words);
    free(p.value);
    free(p.replaced);
    if (!good)
        options_free(o);
    return good ? EXIT_OK : EXIT_USAGE;
}
