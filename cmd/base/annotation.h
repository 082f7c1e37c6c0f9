/* Annotations of GitHub Actions: lines on stdout that the pages of a change show. */
#ifndef FABENCH_ANNOTATION_H
#define FABENCH_ANNOTATION_H

#include <stdbool.h>
#include <stdio.h>

/* Does this run under GitHub Actions? */
bool annotation_is_wanted(void);

/* "::LEVEL title=TITLE::TEXT\n", with what would end a part escaped. level: error, warning or notice. */
void annotation_put(FILE *, const char *level, const char *title, const char *text);

#endif
