/* Finds the known name most similar to a mistyped one. */
#ifndef FABENCH_BASE_NEAREST_H
#define FABENCH_BASE_NEAREST_H

/* By edit distance (insert, delete, replace, swap two neighbours); NULL when none is similar enough. Leading dashes are
 * ignored. */
const char *nearest_name(const char *word, const char *const *names, int count);

#endif
