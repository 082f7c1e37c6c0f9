/* An array that grows by one. */
#include "cmd/base/name_list.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"

/* Adds a name; the list then owns it. */
static void append(struct name_list *list, char *name)
{
    list->names = xrealloc(list->names, (unsigned long)(list->count + 1) * sizeof *list->names);
    list->names[list->count++] = name;
}

void name_list_add(struct name_list *list, const char *name) { append(list, xstrdup(name)); }

void name_list_add_part(struct name_list *list, const char *name, size_t length)
{
    append(list, xasprintf("%.*s", (int)length, name));
}

void name_list_print(struct name_list *list, const char *format, ...)
{
    char *name = NULL;
    va_list arguments;
    va_start(arguments, format);
    const int length = vasprintf(&name, format, arguments);
    va_end(arguments);
    FABENCH_ASSERT(length >= 0, "%s", format);
    append(list, name);
}

char *name_list_join(const struct name_list *list)
{
    size_t bytes = 1;
    for (int i = 0; i < list->count; i++)
        bytes += strlen(list->names[i]) + 1;
    char *text = xmalloc(bytes), *to = text;
    for (int i = 0; i < list->count; i++)
        to = stpcpy(stpcpy(to, i ? "," : ""), list->names[i]);
    *to = '\0';
    return text;
}

void name_list_remove(struct name_list *list, int at, int count)
{
    FABENCH_ASSERT(at >= 0 && count >= 0 && at + count <= list->count, "%d names at %d of %d", count, at, list->count);
    for (int i = at; i < at + count; i++)
        free(list->names[i]);
    for (int i = at + count; i < list->count; i++)
        list->names[i - count] = list->names[i];
    list->count -= count;
}

bool name_list_has(const struct name_list *list, const char *name)
{
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->names[i], name) == 0)
            return true;
    return false;
}

char **name_list_argv(struct name_list *list)
{
    append(list, NULL);
    list->count--;
    return list->names;
}

void name_list_free(struct name_list *list)
{
    for (int i = 0; i < list->count; i++)
        free(list->names[i]);
    free(list->names);
    *list = (struct name_list){0};
}

static int edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 40 };
    int row[LONGEST + 1], above[LONGEST + 1], above_that[LONGEST + 1];
    const int a_length = (int)strnlen(a, LONGEST + 1), b_length = (int)strnlen(b, LONGEST + 1);
    if (a_length > LONGEST || b_length > LONGEST)
        return LONGEST;
    for (int j = 0; j <= b_length; j++)
        row[j] = above[j] = j;
    for (int i = 1; i <= a_length; i++) {
        memcpy(above_that, above, sizeof above);
        memcpy(above, row, sizeof above);
        row[0] = i;
        for (int j = 1; j <= b_length; j++) {
            int best = above[j - 1] + (a[i - 1] != b[j - 1]);
            best = above[j] + 1 < best ? above[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && above_that[j - 2] + 1 < best)
                best = above_that[j - 2] + 1; /* two neighbours swapped */
            row[j] = best;
        }
    }
    return row[b_length];
}

const char *nearest_name(const char *word, const char *const *names, int count)
{
    const char *const bare = word + strspn(word, "-");
    const int length = (int)strlen(bare);
    const char *nearest = NULL;
    int least = length / 3 + 1 > 3 ? 4 : length / 3 + 2;
    for (int i = 0; i < count; i++) {
        const char *const name = names[i] + strspn(names[i], "-");
        int distance = edit_distance(bare, name);
        /* A name that shares no letter is not suggested; a part of a name counts as its abbreviation and is. */
        if (distance >= length && distance >= (int)strlen(name))
            continue;
        if (length >= 3 && distance > 1 && strstr(name, bare))
            distance = 1;
        if (distance < least) {
            least = distance;
            nearest = names[i];
        }
    }
    return nearest;
}
