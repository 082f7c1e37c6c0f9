/* JUnit XML, as CI systems read it: one suite of test cases. */
#ifndef FABENCH_BASE_JUNIT_H
#define FABENCH_BASE_JUNIT_H

#include <stdbool.h>

enum junit_result { JUNIT_PASSED, JUNIT_SKIPPED, JUNIT_FAILED, JUNIT_ERROR };

struct junit_case {
    char *class_name, *name, *message, *body;
    enum junit_result result;
    double time_s;
};

/* All zero ({0}) is empty. Owns its strings. */
struct junit {
    struct junit_case *cases;
    int count;
};

/* Copies the strings. message: what happened, "" = nothing to say. */
void junit_add(struct junit *, const char *class_name, const char *name, enum junit_result, const char *message);
/* Adds to the last case: how long it took in seconds, and lines below its message, as the command that makes it again;
 * NULL = none. */
void junit_detail(struct junit *, double time_s, const char *body);
int junit_count(const struct junit *, enum junit_result);
/* Writes the file; summary: one sentence about the whole. False after a message on stderr. */
bool junit_write(const struct junit *, const char *suite, const char *summary, const char *path);
void junit_free(struct junit *);

#endif
