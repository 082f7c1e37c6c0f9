/* This program: how it was called, so that the commands in its hints work in a shell as they stand; and its build. */
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

/* Identity of this build, for --version and the record header. */

const char *build_version(void);     /* "0.1.0" */
const char *build_commit(void);      /* of the checkout, with "-dirty" where it had changes; "unknown" without git */
const char *build_description(void); /* build type, compiler, CUDA toolkit and code targets */

#endif
