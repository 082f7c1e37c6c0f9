/* Completion of command lines by the shell. */
#ifndef FABENCH_OPTIONS_COMPLETION_H
#define FABENCH_OPTIONS_COMPLETION_H

/* A script for bash-completion, to stdout: commands, each command's options, choices, files and folders. */
void options_print_bash(void);

#endif
