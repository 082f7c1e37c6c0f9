/* The states, and the codes that follow from them. */
#include "cmd/options/exit_style.h"

#include <string.h>

#include "cmd/base/log.h"

const char *const exit_style_names[] = {
    [EXIT_STYLE_PLAIN] = "plain", [EXIT_STYLE_NAGIOS] = "nagios", [EXIT_STYLE_SLURM] = "slurm", NULL};

enum node_state exit_style_state(int exit_code)
{
    switch (exit_code) {
    case EXIT_OK: return NODE_OK;
    case EXIT_CHECK_FAILED:
    case EXIT_REGRESSION: return NODE_CRITICAL;
    case EXIT_INCONCLUSIVE: return NODE_WARNING;
    default: return NODE_UNKNOWN;
    }
}

const char *exit_style_state_name(enum node_state state)
{
    static const char *const names[] = {"OK", "WARNING", "CRITICAL", "UNKNOWN"};
    return names[state];
}

int exit_style_code(enum exit_style style, int exit_code)
{
    if (style == EXIT_STYLE_NAGIOS)
        return (int)exit_style_state(exit_code);
    if (style == EXIT_STYLE_SLURM)
        return exit_style_state(exit_code) == NODE_CRITICAL;
    return exit_code;
}

enum exit_style exit_style_of(int argc, char **argv)
{
    static const char name[] = "--exit-style";
    const size_t length = sizeof name - 1;
    enum exit_style style = EXIT_STYLE_PLAIN;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *value = NULL;
        if (strcmp(argv[i], name) == 0 && i + 1 < argc)
            value = argv[i + 1];
        else if (strncmp(argv[i], name, length) == 0 && argv[i][length] == '=')
            value = argv[i] + length + 1;
        for (int k = 0; value && exit_style_names[k]; k++)
            if (strcmp(value, exit_style_names[k]) == 0)
                style = (enum exit_style)k;
    }
    return style;
}
