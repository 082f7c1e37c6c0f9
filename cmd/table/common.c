/* Attributes as words, and their intersection. */
#include "cmd/table/common.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cmd/record/record.h"

__attribute__((format(printf, 2, 3))) static void add(struct common_words *w, const char *format, ...)
{
    va_list arguments;
    if (w->count == COMMON_WORDS_MAX)
        return;
    va_start(arguments, format);
    vsnprintf(w->words[w->count], sizeof w->words[0], format, arguments);
    va_end(arguments);
    w->count += w->words[w->count][0] != 0;
}

static void add_shape(struct common_words *w, const struct problem_key *k)
{
    add(w, "d%lld", (long long)k->head_dim);
    if (k->v_head_dim > 0)
        add(w, "V of another head dim");
    if (k->kv_heads < k->q_heads)
        add(w, "kv_heads < heads");
    if (k->q_len != k->kv_len)
        add(w, k->q_len < k->kv_len ? "q_len < kv_len" : "q_len > kv_len");
    if (k->q_len % 64)
        add(w, "q_len no multiple of 64");
    if (k->kv_len % 64)
        add(w, "kv_len no multiple of 64");
    if (k->batch > 1)
        add(w, "batch > 1");
    if (k->layout == ATTN_BHSD)
        add(w, "bhsd");
}

/* The tensors that fail, as they are called in the field; and the rule, where all fail by one. */
static void add_tensors(struct common_words *w, const struct record_row *row)
{
    static const char *const names[][2] = {{"o", "O"}, {"lse", "LSE"}, {"dq", "dQ"}, {"dk", "dK"}, {"dv", "dV"}};
    for (int i = 0; i < row->tensor_count; i++) {
        const char *name = row->tensors[i].name;
        if (row->tensors[i].used <= 1)
            continue;
        for (size_t n = 0; n < sizeof names / sizeof names[0]; n++)
            if (strcmp(name, names[n][0]) == 0)
                name = names[n][1];
        add(w, "%s", name);
    }
}

static void words_of(const struct record_row *row, struct common_words *w)
{
    char extras[PROBLEM_LABEL_SIZE];
    const struct problem_key *const k = &row->key;
    w->count = 0;
    add(w, "%s", row->impl);
    add(w, "%s", problem_mode_name(k->mode));
    add(w, k->causal == 1 ? "causal" : "full");
    add(w, "%s", problem_dtype_name(k->dtype));
    add_shape(w, k);
    add(w, "%s", problem_dist_name(k->dist));
    /* What is beyond dense attention, without its value: the words of the label that are no number. */
    problem_key_extras(k, extras, sizeof extras);
    for (char *word = strtok(extras, " "); word; word = strtok(NULL, " "))
        if (word[0] >= 'a' && word[0] <= 'z' && !strpbrk(word, ":,=") && strcmp(word, problem_dist_name(k->dist)) != 0)
            add(w, "%s", word);
    add_tensors(w, row);
    if (row->status > STATUS_OK)
        add(w, "%s", record_status_names[row->status]);
}

static bool has(const struct common_words *w, const char *word)
{
    for (int i = 0; i < w->count; i++)
        if (strcmp(w->words[i], word) == 0)
            return true;
    return false;
}

static void intersect(struct common_words *all, const struct common_words *one, int before)
{
    int kept = 0;
    if (before == 0) {
        *all = *one;
        return;
    }
    for (int i = 0; i < all->count; i++)
        if (has(one, all->words[i])) {
            if (kept != i)
                memcpy(all->words[kept], all->words[i], sizeof all->words[i]);
            kept++;
        }
    all->count = kept;
}

void common_add(struct common *c, const struct record_row *row)
{
    struct common_words words;
    const bool failed = record_row_failed(row);
    if (!failed && !(row->status == STATUS_OK && row->check == CHECKED_PASS))
        return;
    words_of(row, &words);
    intersect(failed ? &c->failed : &c->passed, &words, failed ? c->failures : c->passes);
    ++*(failed ? &c->failures : &c->passes);
}

void common_describe(const struct common *c, char *text, size_t size)
{
    int used = 0;
    text[0] = 0;
    for (int i = 0; i < c->failed.count && c->failures > 1; i++) {
        if ((c->passes && has(&c->passed, c->failed.words[i])) || used >= (int)size)
            continue;
        if (!used)
            used = snprintf(text, size, "all %d failures: %s", c->failures, c->failed.words[i]);
        else
            used += snprintf(text + used, size - (size_t)used, ", %s", c->failed.words[i]);
    }
}
