/* Text: lists of names, strings that grow, quoting for a shell, and cleaned text (terminal.h). */
#ifndef FABENCH_BASE_TEXT_H
#define FABENCH_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cmd/base/terminal.h"

/* A list of strings that owns them: values of options, words of a command line. */

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

/* A growing string. All zero ({0}) is the empty string. Functions that add end the program (exit 7) when memory is
 * exhausted, as xmalloc does. Added text must not point into the string itself, whose buffer may move. */
struct text {
    char *bytes;         /* `length` bytes and a NUL; NULL while empty: read it with text_string */
    size_t length, size; /* size: allocated bytes, the NUL included */
};

__attribute__((format(printf, 2, 3))) void text_add(struct text *, const char *format, ...);
void text_add_bytes(struct text *, const char *bytes, size_t count);
void text_add_char(struct text *, char);
/* Adds `separator` unless the text is empty. */
void text_separate(struct text *, const char *separator);
/* The separator, unless the text is empty, and then what text_add adds. */
__attribute__((format(printf, 3, 4))) void text_join(struct text *, const char *separator, const char *format, ...);

/* One word as a POSIX shell reads it back: as it is when it is not empty and has only letters, digits and _@%+=:,./- in
 * it, else in single quotes, with '\'' for a quote inside. */
void text_add_quoted(struct text *, const char *word);
/* The same after one space, which is left out where the text is empty. */
void text_add_shell_word(struct text *, const char *word);

/* The string so far, never NULL. Owned by the text; valid until the next change. */
const char *text_string(const struct text *);
/* Returns the string, which the caller frees; the text is empty afterwards. */
char *text_take(struct text *);
/* Both empty the text; clear keeps the memory for the next string, free releases it. */
void text_clear(struct text *);
void text_free(struct text *);

/* The words of a line that text_add_shell_word wrote are added to `words`. Spaces outside quotes divide words; single
 * quotes and, outside of them, a backslash before any character are understood. False, with `words` as it was, when a
 * quote is not closed. */
bool text_split_shell(const char *line, struct name_list *words);

/* The same as text_clean without a length limit, added to a text. */
void text_add_clean(struct text *, const char *from);

/* FNV-1a: a number for a text; equal for equal texts, on every machine. */
uint32_t text_hash(const char *);

/* Copies the string where it fits into `size` bytes (at least 8); else its beginning and its end with "..." between
 * them, without splitting a UTF-8 character. A path shortened so still shows its last part and cannot be taken for
 * another file's. Returns `to`. */
char *text_cut_middle(const char *from, char *to, size_t size);

#endif
