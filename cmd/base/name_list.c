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
