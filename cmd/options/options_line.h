/* Writes command lines: that of this process, the options that rows depend on, and the command that measures one row
 * again. Every word is quoted for a shell. The caller frees each string. */
#ifndef FABENCH_OPTIONS_LINE_H
#define FABENCH_OPTIONS_LINE_H

#include "cmd/options/options.h"
#include "cmd/problem/problem_key.h"

/* argv, quoted so that a shell reads the same words. */
char *options_line_of(int argc, char **argv);

/* Every option that was given, except output options, in the order of the table. Two equal lines make the same rows on
 * the same device. */
char *options_deciding(const struct options *);

/* `command` ("fabench", with its arguments where it takes some), then the given options that the command `taker` takes,
 * then --impl and the options that select this problem. Left out: outputs, the limits of gate and ab, and the lists
 * that made the plan. impl, key: NULL = left out. */
char *options_repro(const struct options *, enum command taker, const char *command, const char *impl,
                    const struct problem_key *key);

/* True for a word of a command line that is an option on what is computed: "--seqlen" or "--seqlen=4k". */
bool options_word_asks_problem(const char *word);

#endif
