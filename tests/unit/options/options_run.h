/* Running the option parser with both streams caught, in a folder with things to point at. For the test_options*.c
 * files, which include it once each. */
#ifndef FABENCH_TEST_OPTIONS_RUN_H
#define FABENCH_TEST_OPTIONS_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/base/log.h"
#include "cmd/options/options.h"
#include "cmd/options/options_table.h"

enum { WORDS_MAX = 24 };

static struct options options;
static bool done;
static char out_text[65536], err_text[4096];

static void read_back(FILE *file, char *text, size_t size)
{
    rewind(file);
    text[fread(text, 1, size - 1, file)] = 0;
    fclose(file);
}

static int run_words(int argc, char **argv)
{
    FILE *const out = tmpfile(), *const err = tmpfile();
    const int saved_out = dup(STDOUT_FILENO), saved_err = dup(STDERR_FILENO);
    options_free(&options);
    fflush(stdout);
    dup2(fileno(out), STDOUT_FILENO);
    dup2(fileno(err), STDERR_FILENO);
    const int code = options_parse(argc, argv, &options, &done);
    fflush(stdout);
    dup2(saved_out, STDOUT_FILENO);
    dup2(saved_err, STDERR_FILENO);
    close(saved_out);
    close(saved_err);
    read_back(out, out_text, sizeof out_text);
    read_back(err, err_text, sizeof err_text);
    return code;
}

/* One line, words separated by single blanks; '' is an empty word. */
static int run(const char *line)
{
    char copy[1024], empty[] = "", program[] = "fabench", *argv[WORDS_MAX + 2] = {program}, *at = copy;
    int argc = 1;
    snprintf(copy, sizeof copy, "%s", line);
    while (*at && argc <= WORDS_MAX) {
        char *const end = at + strcspn(at, " ");
        const bool is_last = !*end;
        *end = 0;
        argv[argc++] = strcmp(at, "''") == 0 ? empty : at;
        at = is_last ? end : end + 1;
    }
    return run_words(argc, argv);
}

static inline void taken(const char *line)
{
    const int code = run(line);
    if (code != EXIT_OK || done || *err_text || *out_text)
        fail_msg("fabench %s: code %d, stderr \"%s\"", line, code, err_text);
}

static inline void refused(const char *line, const char *sentence)
{
    char want[600];
    const int code = run(line);
    snprintf(want, sizeof want, "fabench: %s\n", sentence);
    if (code != EXIT_USAGE || done || *out_text || strcmp(err_text, want) != 0)
        fail_msg("fabench %s: code %d\n  got  %s  want %s", line, code, err_text, want);
    if (strchr(err_text, '\n') != err_text + strlen(err_text) - 1)
        fail_msg("fabench %s: more than one line: %s", line, err_text);
    assert_null(options.command_line); /* freed */
}

/* The same when only a part of the sentence is known beforehand. */
static inline void refused_with(const char *line, const char *part)
{
    const int code = run(line);
    const size_t length = strlen(err_text);
    if (code != EXIT_USAGE || *out_text || strncmp(err_text, "fabench: ", 9) != 0 || !strstr(err_text, part) ||
        strchr(err_text, '\n') != err_text + length - 1)
        fail_msg("fabench %s: code %d\n  got  %s  want ...%s...", line, code, err_text, part);
}

static inline void assert_list(const struct int_list *list, const char *want)
{
    char got[300] = "";
    for (int i = 0; i < list->count; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%lld,", (long long)list->values[i]);
    assert_string_equal(got, want);
}

static inline void assert_names(const struct name_list *list, const char *want)
{
    char got[300] = "";
    for (int i = 0; i < list->count; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s,", list->names[i]);
    assert_string_equal(got, want);
}

static char folder[] = "/tmp/fabench-options-XXXXXX";

static int enter(void **state)
{
    (void)state;
    memcpy(folder + sizeof folder - sizeof "XXXXXX", "XXXXXX", sizeof "XXXXXX"); /* again, for a second group */
    if (!mkdtemp(folder) || chmod(folder, 0755) != 0 || chdir(folder) != 0 || mkdir("dir", 0755) != 0 ||
        mkdir("locked", 0555) != 0)
        return -1;
    FILE *const file = fopen("file", "w"), *const locked = fopen("readonly", "w");
    if (!file || !locked || fclose(file) || fclose(locked))
        return -1;
    return chmod("readonly", 0444) || symlink("nowhere/x", "dangling");
}

static int leave(void **state)
{
    (void)state;
    options_free(&options);
    unlink("file");
    unlink("readonly");
    unlink("dangling");
    rmdir("dir");
    rmdir("locked");
    return chdir("/") || rmdir(folder);
}

#endif
