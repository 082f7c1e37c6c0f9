/* Messages of the program, all to stderr; results go to stdout. */
#ifndef FABENCH_LOG_H
#define FABENCH_LOG_H

#include <stdbool.h>

/* Exit codes of section 4 of docs/design.md. */
enum exit_code {
    EXIT_OK = 0,
    EXIT_CHECK_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_REGRESSION = 3,
    EXIT_INCONCLUSIVE = 4,
    EXIT_NOT_COMPARABLE = 5,
    EXIT_DEVICE = 6,
    EXIT_IO = 7,
    EXIT_INTERRUPTED = 130
};

/* The reason of a failure: one sentence for the user, without a newline. A function that returns a failure fills it. */
struct reason {
    char text[512];
};

/* The worse of two codes in the documented order 130, 7, 6, 1, 5, 3, 4, 0; 2 never occurs with another code. */
enum exit_code exit_worst(enum exit_code, enum exit_code);

void log_set_quiet(bool);

/* What this process is about, behind the program's name in every message: "fabench: cuda:1: ..."; from then on it shows
 * no progress line. For one of several processes on one terminal. */
void log_set_subject(const char *);

/* "fabench: <sentence>\n". log_note is silenced by --quiet, log_warn and log_error are not. */
__attribute__((format(printf, 1, 2))) void log_note(const char *format, ...);
__attribute__((format(printf, 1, 2))) void log_warn(const char *format, ...);
__attribute__((format(printf, 1, 2))) void log_error(const char *format, ...);

/* A progress line that the next one overwrites; only on a terminal and not when quiet. NULL clears it. Every other
 * log_ function clears it first. */
__attribute__((format(printf, 1, 2))) void log_progress(const char *format, ...);
void log_progress_clear(void);

/* An assertion in every build: prints file and line, and aborts. */
#define FABENCH_ASSERT(condition, ...) \
    do { \
        if (!(condition)) \
            log_assert_failed(__FILE__, __LINE__, #condition, __VA_ARGS__); \
    } while (0)
__attribute__((format(printf, 4, 5), noreturn)) void log_assert_failed(const char *file, int line,
                                                                       const char *condition, const char *format, ...);

/* malloc and its relatives; they end the program (exit 7) when memory is exhausted. */
void *xmalloc(unsigned long bytes);
void *xcalloc(unsigned long count, unsigned long bytes);
void *xrealloc(void *pointer, unsigned long bytes);
char *xstrdup(const char *);
__attribute__((format(printf, 1, 2))) char *xasprintf(const char *format, ...);

#endif
