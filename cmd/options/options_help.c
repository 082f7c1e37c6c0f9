/* --help and --version, made from the option table. */

#include <stdio.h>
#include <string.h>

#include "cmd/base/program.h"
#include "cmd/base/terminal.h"
#include "cmd/base/text.h"
#include "cmd/options/options_table.h"
#include "cmd/options/options_text.h"

#if defined(FABENCH_WITH_CUDNN)
#define BUILT_PARTS "CUDA, cudnn peer"
#elif defined(FABENCH_WITH_CUDA)
#define BUILT_PARTS "CUDA, no cudnn peer"
#else
#define BUILT_PARTS "no CUDA"
#endif
#if defined(__aarch64__)
#define BUILT_FOR "arm64"
#elif defined(__x86_64__)
#define BUILT_FOR "x86-64"
#else
#define BUILT_FOR "another machine"
#endif

enum { HELP_COLUMN = 39, HELP_WIDTH = 100 };

/* ---- One screen ---- */

/* Prints the options of one command; options that the table joins share a line. */
static void print_group(const struct command_def *command, enum option_group group)
{
    char line[200] = "", fallback[100] = "", syntax[120];
    bool is_titled = false;
    for (int i = 0; i < option_count; i++) {
        const struct option_def *def = &option_table[i];
        if (def->group != group || def->is_hidden || def->is_rare || !option_serves(def, command))
            continue;
        if (!is_titled)
            printf("%s: %s\n", option_groups[group].name, option_groups[group].title);
        is_titled = true;
        snprintf(line + strlen(line), sizeof line - strlen(line), "  %s", option_syntax(def, syntax, sizeof syntax));
        if (def->fallback)
            snprintf(fallback + strlen(fallback), sizeof fallback - strlen(fallback), "%s%s", *fallback ? ", " : " [",
                     def->fallback);
        if (def->is_joined)
            continue;
        printf("%-*s %s%s%s\n", HELP_COLUMN, line, def->help, fallback, *fallback ? "]" : "");
        line[0] = fallback[0] = 0;
    }
}

static void print_commands(const struct command_def *command, bool is_named)
{
    static const char options[] = "[OPTIONS]"; /* left out where the line is too short for it */
    for (int i = 0; i < COMMAND_COUNT; i++) {
        const struct command_def *def = &command_table[i];
        char usage[80];
        if (is_named && def != command)
            continue;
        const bool is_default = i == 0;
        const int used = snprintf(usage, sizeof usage, "fabench %s%s%s", is_default ? "" : def->name,
                                  is_default ? "" : " ", def->arguments);
        if (used + (int)strlen(options) <= HELP_COLUMN)
            snprintf(usage + used, sizeof usage - (size_t)used, "%s", options);
        printf("%-*s %s\n", HELP_COLUMN, usage, def->summary);
    }
}

static void print_short(const struct command_def *command, bool is_named)
{
    print_commands(command, is_named);
    puts("Lists: 64,128; ranges: 1k:16k:*2, 512:4k:+512; k = 1024; --name VALUE or --name=VALUE; [default]");
    for (int group = 0; group < GROUP_COUNT; group++)
        print_group(command, (enum option_group)group);
    puts("exit: 0 done or passed, 1 check failed, 2 usage, 3 regression, 4 inconclusive, 5 not comparable,\n"
         "      6 device, 7 files or internal, 130 Ctrl-C");
}

/* ---- In full ---- */

static void print_option(const struct option_def *def)
{
    char text[200];
    printf("  %s\n", option_syntax(def, text, sizeof text));
    wrap_words(stdout, HELP_WIDTH, 6, 6, option_explanation(def));
    if (*option_values(def, text, sizeof text)) {
        const int used = printf("      values:   ");
        wrap_words(stdout, HELP_WIDTH - used, 0, used, text);
    }
    if (def->fallback)
        printf("      default:  %s\n", def->fallback);
    printf("      commands: %s\n", option_commands(def, text, sizeof text));
}

/* True when the group has an option for the command; when no command was typed, for any command. */
static bool print_group_in_full(const struct command_def *command, bool is_named, enum option_group group)
{
    bool is_titled = false;
    for (int i = 0; i < option_count; i++) {
        const struct option_def *def = &option_table[i];
        if (def->group != group || def->is_hidden || (is_named && !option_serves(def, command)))
            continue;
        if (!is_titled)
            printf("%s: %s\n", option_groups[group].name, option_groups[group].title);
        is_titled = true;
        print_option(def);
    }
    return is_titled;
}

static void print_list(const char *title, const struct named_text *list)
{
    enum { NAME_COLUMNS = 19 };
    printf("%s\n", title);
    for (; list->name; list++) {
        printf("  %-*s", NAME_COLUMNS - 2, list->name);
        wrap_words(stdout, HELP_WIDTH - NAME_COLUMNS, 1, NAME_COLUMNS + 1, list->text);
    }
}

static void print_all(const struct command_def *command, bool is_named)
{
    print_commands(command, is_named);
    wrap_words(stdout, HELP_WIDTH, 0, 0, option_values_text);
    for (int group = 0; group < GROUP_COUNT; group++)
        print_group_in_full(command, is_named, (enum option_group)group);
    print_list("Presets", option_presets);
    print_list("Exit codes", option_exit_codes);
    print_list("Environment", option_variables);
}

/* ---- Which one ---- */

static bool refuse_topic(const char *topic)
{
    const char *names[GROUP_COUNT + 1] = {"all"};
    char legal[120];
    for (int i = 0; i < GROUP_COUNT; i++)
        names[i + 1] = option_groups[i].name;
    const char *const nearest = nearest_name(topic, names, GROUP_COUNT + 1);
    return options_refuse("--help", topic, "must be %s%s%s",
                          option_join_names(names, GROUP_COUNT + 1, legal, sizeof legal),
                          nearest ? "; did you mean " : "", nearest ? nearest : "");
}

bool options_print_help(const struct command_def *command, bool is_named, const char *topic)
{
    static const struct {
        const char *name;
        void (*print)(void);
    } pages[] = {{"markdown", options_print_markdown}, {"man", options_print_man}, {"bash", options_print_bash}};
    if (!topic) {
        print_short(command, is_named);
        return true;
    }
    if (strcmp(topic, "all") == 0) {
        print_all(command, is_named);
        return true;
    }
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++)
        if (strcmp(topic, pages[i].name) == 0) {
            pages[i].print();
            return true;
        }
    for (int i = 0; i < GROUP_COUNT; i++)
        if (strcmp(topic, option_groups[i].name) == 0) {
            if (!print_group_in_full(command, is_named, (enum option_group)i))
                printf("%s takes no options of the group %s\n", command->name, topic);
            return true;
        }
    return refuse_topic(topic);
}

static bool refuse_help(const char *word)
{
    const char *names[COMMAND_COUNT];
    char legal[120];
    for (int i = 0; i < COMMAND_COUNT; i++)
        names[i] = command_table[i].name;
    const char *const nearest = nearest_name(word, names, COMMAND_COUNT);
    return options_refuse("help", word, "no such command; %s%s", nearest ? "did you mean " : "must be ",
                          nearest ? nearest : option_join_names(names, COMMAND_COUNT, legal, sizeof legal));
}

bool options_print_help_on(const struct name_list *words)
{
    const char *const word = words->count ? words->names[0] : NULL;
    if (words->count > 1)
        return options_refuse("help", words->names[1], "one command at a time");
    for (int i = 0; word && i < COMMAND_COUNT; i++)
        if (strcmp(word, command_table[i].name) == 0)
            return options_print_help(&command_table[i], true, NULL);
    bool is_topic = !word || strcmp(word, "all") == 0;
    for (int i = 0; word && i < GROUP_COUNT; i++)
        is_topic = is_topic || strcmp(word, option_groups[i].name) == 0;
    return is_topic ? options_print_help(&command_table[0], false, word) : refuse_help(word);
}

void options_print_version(void)
{
    printf("fabench %s (%s)\nbuilt: %s; for %s; %s; implementations of ABI %d\n", build_version(), build_commit(),
           build_description(), BUILT_FOR, BUILT_PARTS, ATTN_ABI);
}
