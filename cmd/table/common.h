/* What the rows that failed have in common: attributes of their problems, the tensors that fail. Rows are added one by
 * one; nothing of them is kept but these words. */
#ifndef FABENCH_COMMON_H
#define FABENCH_COMMON_H

#include "cmd/record/record_row.h"

enum { COMMON_WORDS_MAX = 24, COMMON_WORD_SIZE = 48 };

struct common_words {
    char words[COMMON_WORDS_MAX][COMMON_WORD_SIZE];
    int count;
};

/* The words of all failures so far, and those of all passes. */
struct common {
    struct common_words failed, passed;
    int failures, passes;
};

void common_add(struct common *, const struct record_row *);

/* "all 16 failures: bwd, kv_heads < heads, dK": what all failures have and not all passes; "" where there are fewer
 * than two failures, or nothing. */
void common_describe(const struct common *, char *text, size_t size);

#endif
