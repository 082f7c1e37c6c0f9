/* The manual as Markdown and as a man page. */

#include <stdio.h>
#include <string.h>

#include "cmd/base/program.h"
#include "cmd/options/options_text.h"

static const char about[] =
    "fabench measures fused attention kernels, a naive implementation and cuDNN side by side, forward and backward, "
    "checks every result against an fp32 reference, and records what it measured.";

/* ---- Markdown ---- */

/* Writes a table cell or a paragraph; characters with a meaning in Markdown get a backslash. */
static void put_markdown(const char *text)
{
    for (; *text; text++) {
        if (strchr("|*<>_[]", *text))
            putchar('\\');
        putchar(*text);
    }
}

static void put_row(const char *const *cells, int count)
{
    for (int i = 0; i < count; i++) {
        fputs("| ", stdout);
        put_markdown(cells[i]);
        putchar(' ');
    }
    puts("|");
}

static void put_list(const char *title, const char *head, const struct named_text *list)
{
    printf("\n## %s\n\n| %s | |\n|---|---|\n", title, head);
    for (; list->name; list++)
        put_row((const char *const[]){list->name, list->text}, 2);
}

static void put_markdown_group(enum option_group group)
{
    printf("\n### %s: %s\n\n| option | what it does | values | default | commands |\n|---|---|---|---|---|\n",
           option_groups[group].name, option_groups[group].title);
    for (int i = 0; i < option_count; i++) {
        const struct option_def *def = &option_table[i];
        char syntax[120], values[200], commands[100];
        if (def->group != group || def->is_hidden)
            continue;
        put_row((const char *const[]){option_syntax(def, syntax, sizeof syntax), option_explanation(def),
                                      option_values(def, values, sizeof values), def->fallback ? def->fallback : "",
                                      option_commands(def, commands, sizeof commands)},
                5);
    }
}

void options_print_markdown(void)
{
    printf("# The command line\n\n<!-- Made by scripts/cli_docs.sh from cmd/options/: change the tables there. -->\n\n"
           "%s\n\n## Commands\n\n| command | |\n|---|---|\n",
           about);
    for (int i = 0; i < COMMAND_COUNT; i++) {
        char usage[120];
        snprintf(usage, sizeof usage, "fabench %s %s[OPTIONS]", command_table[i].name, command_table[i].arguments);
        put_row((const char *const[]){usage, command_table[i].summary}, 2);
    }
    fputs("\n## Options\n\n", stdout);
    put_markdown(option_values_text);
    fputs(" An option that is in a table twice differs between commands.\n", stdout);
    for (int group = 0; group < GROUP_COUNT; group++)
        put_markdown_group((enum option_group)group);
    put_list("Presets", "--preset", option_presets);
    puts("\n## Shapes of public models\n\nWith --batch and --seqlen, as in `fabench --causal --shape 32x8 --d 128 "
         "--batch 1 "
         "--seqlen 8k`. The sizes are those of\nconfig.json in the model's repository on huggingface.co; nothing is "
         "loaded from there. On several devices a device has\nits part of the heads.\n\n| model | options | source |\n"
         "|---|---|---|");
    for (const struct model_shape *model = option_models; model->name; model++)
        put_row((const char *const[]){model->name, model->options, model->source}, 3);
    put_list("Exit codes", "code", option_exit_codes);
    put_list("Environment", "variable", option_variables);
}

/* ---- Man page ---- */

/* Writes roff text: no line begins with a control character, and a minus stays an ASCII minus when it is copied. */
static void put_roff(const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", stdout);
    for (; *text; text++)
        switch (*text) {
        case '-': fputs("\\-", stdout); break;
        case '\\': fputs("\\e", stdout); break;
        default: putchar(*text);
        }
}

static void put_roff_line(const char *before, const char *text)
{
    fputs(before, stdout);
    put_roff(text);
    putchar('\n');
}

static void put_roff_list(const char *title, const struct named_text *list)
{
    printf(".SH %s\n", title);
    for (; list->name; list++) {
        put_roff_line(".TP\n.B ", list->name);
        put_roff_line("", list->text);
    }
}

static void put_roff_group(enum option_group group)
{
    printf(".SS \"%s: %s\"\n", option_groups[group].name, option_groups[group].title);
    for (int i = 0; i < option_count; i++) {
        const struct option_def *def = &option_table[i];
        char text[200];
        if (def->group != group || def->is_hidden)
            continue;
        put_roff_line(".TP\n.B ", option_syntax(def, text, sizeof text));
        put_roff_line("", option_explanation(def));
        if (*option_values(def, text, sizeof text))
            put_roff_line(".br\nValues: ", text);
        if (def->fallback)
            put_roff_line(".br\nDefault: ", def->fallback);
        put_roff_line(".br\nCommands: ", option_commands(def, text, sizeof text));
    }
}

void options_print_man(void)
{
    printf(".TH FABENCH 1 \"\" \"fabench %s\"\n", build_version());
    puts(".SH NAME\nfabench \\- attention benchmark and validation\n.SH SYNOPSIS");
    for (int i = 0; i < COMMAND_COUNT; i++) {
        printf("%s.B fabench %s\n", i ? ".br\n" : "", i ? command_table[i].name : "");
        put_roff(command_table[i].arguments);
        puts("[OPTIONS]");
    }
    put_roff_line(".SH DESCRIPTION\n", about);
    puts(".SH COMMANDS");
    for (int i = 0; i < COMMAND_COUNT; i++) {
        put_roff_line(".TP\n.B ", command_table[i].name);
        put_roff_line("", command_table[i].summary);
    }
    put_roff_line(".SH OPTIONS\n", option_values_text);
    for (int group = 0; group < GROUP_COUNT; group++)
        put_roff_group((enum option_group)group);
    put_roff_list("PRESETS", option_presets);
    put_roff_list("EXIT STATUS", option_exit_codes);
    put_roff_list("ENVIRONMENT", option_variables);
}
