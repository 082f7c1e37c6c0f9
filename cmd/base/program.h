/* How this program was called, so that the commands in its hints work in a shell as they stand. */
#ifndef FABENCH_BASE_PROGRAM_H
#define FABENCH_BASE_PROGRAM_H

/* argv[0], kept as it is: a name without a slash was found on the PATH, any other is a path from the working folder. */
void program_set_name(const char *argv0);

/* The command, quoted for a shell: FABENCH_CALLED_AS where a script sets it, else the name that was set, else
 * "fabench". Valid until the next call. */
const char *program_name(void);

/* A command line that begins with the word "fabench", with program_name() in its place; any other as it is. The caller
 * frees it. */
char *program_command(const char *line);

#endif
