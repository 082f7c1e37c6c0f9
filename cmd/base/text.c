/* Strings that grow, shell words, cleaning of text. */
#include "cmd/base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"

/* ---- growing ---- */

/* Space for `count` more bytes and the NUL. */
static void reserve(struct text *text, size_t count)
{
    const size_t needed = text->length + count + 1;
    if (needed <= text->size)
        return;
    text->size = needed < 2 * text->size ? 2 * text->size : needed < 64 ? 64 : needed;
    text->bytes = xrealloc(text->bytes, text->size);
}

void text_add(struct text *text, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    const int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    FABENCH_ASSERT(length >= 0, "%s", format);
    reserve(text, (size_t)length);
    vsnprintf(text->bytes + text->length, (size_t)length + 1, format, again);
    va_end(again);
    text->length += (size_t)length;
}

void text_add_bytes(struct text *text, const char *bytes, size_t count)
{
    reserve(text, count);
    memcpy(text->bytes + text->length, bytes, count);
    text->length += count;
    text->bytes[text->length] = '\0';
}

void text_add_char(struct text *text, char c) { text_add_bytes(text, &c, 1); }

void text_separate(struct text *text, const char *separator)
{
    if (text->length > 0)
        text_add_bytes(text, separator, strlen(separator));
}

void text_join(struct text *text, const char *separator, const char *format, ...)
{
    char *words = NULL;
    va_list arguments;
    va_start(arguments, format);
    const int length = vasprintf(&words, format, arguments);
    va_end(arguments);
    FABENCH_ASSERT(length >= 0, "%s", format);
    text_separate(text, separator);
    text_add_bytes(text, words, (size_t)length);
    free(words);
}

const char *text_string(const struct text *text) { return text->bytes ? text->bytes : ""; }

char *text_take(struct text *text)
{
    char *bytes = text->bytes ? text->bytes : xstrdup("");
    *text = (struct text){0};
    return bytes;
}

void text_clear(struct text *text)
{
    text->length = 0;
    if (text->bytes)
        text->bytes[0] = '\0';
}

void text_free(struct text *text)
{
    free(text->bytes);
    *text = (struct text){0};
}

/* ---- shell words ---- */

void text_add_quoted(struct text *text, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
    const size_t length = strlen(word);
    if (length > 0 && strspn(word, plain) == length) {
        text_add_bytes(text, word, length);
        return;
    }
    text_add_char(text, '\'');
    for (; *word; word++)
        if (*word == '\'')
            text_add_bytes(text, "'\\''", 4);
        else
            text_add_char(text, *word);
    text_add_char(text, '\'');
}

void text_add_shell_word(struct text *text, const char *word)
{
    text_separate(text, " ");
    text_add_quoted(text, word);
}

/* Adds the next word of *line to `word` and moves *line after it. False when a quote is not closed. */
static bool read_word(const char **line, struct text *word)
{
    const char *at = *line;
    bool is_quoted = false;
    for (; *at && (is_quoted || *at != ' '); at++)
        if (*at == '\'')
            is_quoted = !is_quoted;
        else if (*at == '\\' && !is_quoted && at[1])
            text_add_char(word, *++at);
        else
            text_add_char(word, *at);
    *line = at;
    return !is_quoted;
}

bool text_split_shell(const char *line, struct name_list *words)
{
    struct text word = {0};
    const int count_before = words->count;
    bool is_good = true;
    for (line += strspn(line, " "); is_good && *line; line += strspn(line, " ")) {
        text_clear(&word);
        is_good = read_word(&line, &word);
        name_list_add(words, text_string(&word));
    }
    text_free(&word);
    while (!is_good && words->count > count_before)
        free(words->names[--words->count]);
    return is_good;
}

/* ---- cleaning ---- */

void text_add_clean(struct text *text, const char *from)
{
    const size_t most = strlen(from);
    reserve(text, most);
    text_clean(from, text->bytes + text->length, most + 1);
    text->length += strlen(text->bytes + text->length);
}

static bool is_inside_character(char c) { return ((unsigned char)c & 0xC0) == 0x80; }

char *text_cut_middle(const char *from, char *to, size_t size)
{
    static const char dots[] = "...";
    const size_t length = strlen(from), kept = size - sizeof dots;
    if (length < size) {
        memcpy(to, from, length + 1);
        return to;
    }
    size_t head = kept / 3, tail = length - (kept - kept / 3);
    while (head > 0 && is_inside_character(from[head]))
        head--;
    while (is_inside_character(from[tail]))
        tail++;
    memcpy(to, from, head);
    memcpy(to + head, dots, sizeof dots - 1);
    memcpy(to + head + sizeof dots - 1, from + tail, length - tail + 1);
    return to;
}

/* An array that grows by one. */

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

uint32_t text_hash(const char *text)
{
    uint32_t hash = 2166136261u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}
