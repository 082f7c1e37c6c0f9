/* --help, one screen made from the option table, and --version. */
#include <stdio.h>
#include <string.h>

#include "cmd/base/build.h"
#include "cmd/options/options_help.h"

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

enum { HELP_COLUMN = 39 };

/* "  --d, --headdim N,..." appended to line. */
static void append_syntax(char *line, size_t size, const struct option_def *def)
{
    size_t used = strlen(line);
    used += (size_t)snprintf(
        line + used, size - used, "  %s%s%s%s%s", def->name, def->alias ? ", " : "", def->alias ? def->alias : "",
        option_takes_value(def) && def->kind != KIND_CAUSAL ? " " : "", def->unit ? def->unit : "");
    for (int i = 0; !def->unit && def->choices && def->choices[i]; i++)
        if (!def->choices_shown || i < def->choices_shown)
            used += (size_t)snprintf(line + used, size - used, "%s%s",
                                     i == 0                         ? ""
                                     : def->kind == KIND_CHOICE_SET ? ","
                                                                    : "|",
                                     def->choices[i]);
}

static void print_group(const struct command_def *command, enum option_group group)
{
    char syntax[200] = "", fallback[100] = "";
    bool is_titled = false;
    for (int i = 0; i < option_count; i++) {
        const struct option_def *def = &option_table[i];
        if (def->group != group || def->is_hidden || !option_serves(def, command))
            continue;
        if (!is_titled)
            printf("%s\n", option_group_titles[group]);
        is_titled = true;
        append_syntax(syntax, sizeof syntax, def);
        if (def->fallback)
            snprintf(fallback + strlen(fallback), sizeof fallback - strlen(fallback), "%s%s", *fallback ? ", " : " [",
                     def->fallback);
        if (def->is_joined)
            continue;
        printf("%-*s %s%s%s\n", HELP_COLUMN, syntax, def->help, fallback, *fallback ? "]" : "");
        syntax[0] = fallback[0] = 0;
    }
}

void options_print_help(const struct command_def *command, bool is_named)
{
    static const char options[] = "[OPTIONS]"; /* left out where the line has no room: every command takes some */
    for (int i = 0; i < COMMAND_COUNT; i++) {
        const struct command_def *def = &command_table[i];
        char usage[80];
        if (is_named && def != command)
            continue;
        const bool is_default = def->command == COMMAND_SWEEP;
        const int used = snprintf(usage, sizeof usage, "fabench %s%s%s", is_default ? "" : def->name,
                                  is_default ? "" : " ", def->arguments);
        if (used + (int)strlen(options) <= HELP_COLUMN)
            snprintf(usage + used, sizeof usage - (size_t)used, "%s", options);
        printf("%-*s %s\n", HELP_COLUMN, usage, def->summary);
    }
    puts("Lists: 64,128; ranges: 1k:16k:*2, 512:4k:+512; k = 1024; --name VALUE or --name=VALUE; [default]");
    for (int group = 0; group < GROUP_COUNT; group++)
        print_group(command, (enum option_group)group);
    puts("exit: 0 done or passed, 1 check failed, 2 usage, 3 regression, 4 inconclusive, 5 not comparable,\n"
         "      6 device, 7 files or internal, 130 Ctrl-C");
}

void options_print_version(void)
{
    printf("fabench %s (%s)\nbuilt: %s; for %s; %s; implementations of ABI %d\n", build_version(), build_commit(),
           build_description(), BUILT_FOR, BUILT_PARTS, ATTN_ABI);
}
