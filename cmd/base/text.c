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
