/* Messages to stderr, exit codes, and allocation that ends the program when memory is exhausted. */
#include "cmd/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/base/terminal.h"

enum { MESSAGE_BYTES = 16384 };

static bool quiet;
static bool progress_shown;
static char subject[40]; /* "cuda:1: " */

enum exit_code exit_worst(enum exit_code a, enum exit_code b)
{
    static const enum exit_code order[] = {EXIT_INTERRUPTED,    EXIT_IO,         EXIT_DEVICE,       EXIT_CHECK_FAILED,
                                           EXIT_NOT_COMPARABLE, EXIT_REGRESSION, EXIT_INCONCLUSIVE, EXIT_OK};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        if (order[i] == a || order[i] == b)
            return order[i];
    return EXIT_USAGE;
}

void log_set_quiet(bool is_quiet) { quiet = is_quiet; }

void log_set_subject(const char *name) { snprintf(subject, sizeof subject, "%.36s: ", name); }

/* Messages name paths, options and texts of files, any of which may hold control characters. The buffer is no
 * struct text: a message must not need memory. A longer message than that is cut. */
static void say(const char *prefix, const char *format, va_list arguments)
{
    char raw[MESSAGE_BYTES], clean[MESSAGE_BYTES];
    vsnprintf(raw, sizeof raw, format, arguments);
    text_clean(raw, clean, sizeof clean);
    log_progress_clear();
    fprintf(stderr, "%s%s%s\n", prefix, subject, clean);
}

void log_note(const char *format, ...)
{
    if (quiet)
        return;
    va_list arguments;
    va_start(arguments, format);
    say("fabench: ", format, arguments);
    va_end(arguments);
}

void log_warn(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say("fabench: warning: ", format, arguments);
    va_end(arguments);
}

void log_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say("fabench: ", format, arguments);
    va_end(arguments);
}

void log_progress(const char *format, ...)
{
    if (quiet || subject[0] || !isatty(STDERR_FILENO))
        return;
    va_list arguments;
    fputs("\r\033[K", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fflush(stderr);
    progress_shown = true;
}

void log_progress_clear(void)
{
    if (!progress_shown)
        return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    progress_shown = false;
}

void log_assert_failed(const char *file, int line, const char *condition, const char *format, ...)
{
    va_list arguments;
    log_progress_clear();
    fprintf(stderr, "fabench: %s:%d: internal error, not true: %s: ", file, line, condition);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    abort();
}

static void *checked(void *pointer, unsigned long bytes)
{
    if (!pointer && bytes) {
        log_error("out of host memory (%lu bytes)", bytes);
        exit(EXIT_IO);
    }
    return pointer;
}

void *xmalloc(unsigned long bytes) { return checked(malloc(bytes), bytes); }
void *xcalloc(unsigned long count, unsigned long bytes) { return checked(calloc(count, bytes), count * bytes); }
void *xrealloc(void *pointer, unsigned long bytes) { return checked(realloc(pointer, bytes), bytes); }
char *xstrdup(const char *text) { return checked(strdup(text), strlen(text) + 1); }

char *xasprintf(const char *format, ...)
{
    va_list arguments;
    char *text = NULL;
    va_start(arguments, format);
    const int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    return checked(length < 0 ? NULL : text, 1);
}
