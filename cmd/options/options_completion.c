/* Writes the completion script for bash: a fixed frame with lists made from the option table. */

#include <stdio.h>
#include <string.h>

#include "cmd/options/options_text.h"

/* Bash splits --name=value into three words and completes the last one. In a list the items before the last comma are
 * kept. */
static const char head[] =
    "# Completion of fabench for bash; made by `fabench --help=bash`.\n"
    "_fabench() {\n"
    "    local word=${COMP_WORDS[COMP_CWORD]} name=${COMP_WORDS[COMP_CWORD - 1]} equals='' command=sweep\n"
    "    local commands options='' values='' items=''\n"
    "    COMPREPLY=()\n";
static const char split[] = "    if [ \"$word\" = '=' ]; then\n"
                            "        word='' equals='='\n"
                            "    elif [ \"$name\" = '=' ]; then\n"
                            "        name=${COMP_WORDS[COMP_CWORD - 2]} equals='='\n"
                            "    fi\n";
static const char tail[] =
    "    if [[ $values == *,* && $word == *,* ]]; then\n"
    "        items=${word%,*},\n"
    "    fi\n"
    "    case $values in\n"
    "    FILE) mapfile -t COMPREPLY < <(compgen -f -- \"$word\") ;;\n"
    "    DIR) mapfile -t COMPREPLY < <(compgen -d -- \"$word\") ;;\n"
    "    NONE) ;;\n"
    "    ?*) mapfile -t COMPREPLY < <(compgen -P \"$items\" -W \"${values//,/ }\" -- \"${word#\"$items\"}\") ;;\n"
    "    *)\n"
    "        [ \"$COMP_CWORD\" -ne 1 ] || options=\"$commands $options\"\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\")\n"
    "        case $word:$command in\n"
    "        -*) ;;\n";
static const char last[] = "        esac\n"
                           "        ;;\n"
                           "    esac\n"
                           "}\n"
                           "complete -o filenames -F _fabench fabench\n";

static bool takes_files(const struct command_def *command)
{
    return command->takes_words && command->command != COMMAND_HELP;
}

static void put_commands(const char *separator, bool only_those_with_files)
{
    const char *between = "";
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (takes_files(&command_table[i]) || !only_those_with_files) {
            printf("%s%s%s", between, only_those_with_files ? "*:" : "", command_table[i].name);
            between = separator;
        }
}

/* All spellings of one command's options, with their leading dashes. */
static void put_options(const struct command_def *command)
{
    printf("    %s) options='", command->name);
    const char *between = "";
    for (int i = 0; i < option_count; i++) {
        const struct option_def *def = &option_table[i];
        if (def->is_hidden || !option_serves(def, command))
            continue;
        printf("%s%s%s%s", between, def->name, def->alias ? " " : "", def->alias ? def->alias : "");
        between = " ";
    }
    puts("' ;;");
}

/* What the script stores for an option's values: the words, FILE, DIR, or NONE where they cannot be listed. */
static const char *values_of(const struct option_def *def, char *buffer, size_t size)
{
    const char *choices[OPTION_CHOICES_MAX];
    const char *const separator = def->kind == KIND_CHOICE_SET ? "," : " ";
    const int count = option_legal_choices(def, choices);
    buffer[0] = 0;
    for (int i = 0; i < count; i++)
        snprintf(buffer + strlen(buffer), size - strlen(buffer), "%s%s", i ? separator : "", choices[i]);
    for (int i = 0; def->kind == KIND_HELP && i < GROUP_COUNT; i++)
        snprintf(buffer + strlen(buffer), size - strlen(buffer), "%s%s", i ? " " : "all ", option_groups[i].name);
    if (count || def->kind == KIND_HELP)
        return buffer;
    const bool is_path = def->unit && strcmp(def->unit, "PATH") == 0;
    return def->kind == KIND_DEVICE                                             ? "auto cpu all cuda:0"
           : def->kind == KIND_OUT_DIR || def->kind == KIND_IN_DIR              ? "DIR"
           : is_path || def->kind == KIND_OUT_FILE || def->kind == KIND_IN_FILE ? "FILE"
                                                                                : "NONE";
}

/* One pattern for each command and spelling: command:name, after a mark for whether there is an equals sign. */
static void put_values(const struct option_def *def)
{
    const bool needs_equals = def->kind == KIND_CAUSAL || def->kind == KIND_HELP;
    char values[200];
    const char *between = "    ";
    for (int i = 0; i < COMMAND_COUNT; i++) {
        const char *const names[] = {def->name, def->alias};
        for (int j = 0; j < 2 && names[j] && option_serves(def, &command_table[i]); j++) {
            printf("%s%s:%s:%s", between, needs_equals ? "=" : "*", command_table[i].name, names[j]);
            between = " | ";
        }
    }
    printf(") values='%s' ;;\n", values_of(def, values, sizeof values));
}

void options_print_bash(void)
{
    fputs(head, stdout);
    fputs("    commands='", stdout);
    put_commands(" ", false);
    printf("'\n    case $COMP_CWORD:${COMP_WORDS[1]} in\n    1:*) ;;\n    *:");
    put_commands(" | *:", false);
    fputs(") command=${COMP_WORDS[1]} ;;\n    esac\n", stdout);
    fputs(split, stdout);
    puts("    case $command in");
    for (int i = 0; i < COMMAND_COUNT; i++)
        put_options(&command_table[i]);
    puts("    esac\n    case $equals:$command:$name in");
    for (int i = 0; i < option_count; i++)
        if (!option_table[i].is_hidden && (option_takes_value(&option_table[i]) || option_table[i].kind == KIND_HELP))
            put_values(&option_table[i]);
    puts("    esac");
    fputs(tail, stdout);
    fputs("        ", stdout);
    put_commands(" | ", true);
    puts(") mapfile -t -O \"${#COMPREPLY[@]}\" COMPREPLY < <(compgen -f -- \"$word\") ;;");
    printf("        *:%s) mapfile -t COMPREPLY < <(compgen -W \"$commands $options\" -- \"$word\") ;;\n",
           command_table[COMMAND_HELP].name);
    fputs(last, stdout);
}
