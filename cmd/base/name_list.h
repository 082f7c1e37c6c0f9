/* A list of strings that owns them: values of options, words of a command line. */
#ifndef FABENCH_NAME_LIST_H
#define FABENCH_NAME_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct name_list {
    char **names;
    int count;
}; /* count 0 = empty, and nothing to free */

void name_list_add(struct name_list *, const char *name);
void name_list_add_part(struct name_list *, const char *name, size_t length); /* the first `length` bytes of name */
__attribute__((format(printf, 2, 3))) void name_list_print(struct name_list *, const char *format, ...);
char *name_list_join(const struct name_list *);               /* "a,b,c"; the caller frees it */
void name_list_remove(struct name_list *, int at, int count); /* `count` names from index `at` */
bool name_list_has(const struct name_list *, const char *name);

/* The names as an array that ends with NULL, as exec takes it. Owned by the list; valid until the list changes. */
char **name_list_argv(struct name_list *);

/* Empties it. */
void name_list_free(struct name_list *);

/* Finds the known name most similar to a mistyped one. */

/* By edit distance (insert, delete, replace, swap two neighbours); NULL when none is similar enough. Leading dashes are
 * ignored. */
const char *nearest_name(const char *word, const char *const *names, int count);

#endif
