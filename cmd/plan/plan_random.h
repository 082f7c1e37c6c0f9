/* The random problems of `verify --random N --seed S`. What can be asked of a problem is drawn attribute by attribute,
 * by the rows of one table; a new attribute is one function and one row. Each problem follows from S and its number
 * alone, and each row has random numbers of its own, so that a row that is added changes no draw of the others. */
#ifndef FABENCH_PLAN_RANDOM_H
#define FABENCH_PLAN_RANDOM_H

#include "cmd/plan/plan.h"

/* The lengths are 1 to these; mostly powers of two are far apart, edges of tiles are favoured. */
enum { RANDOM_LEN_CPU = 384, RANDOM_LEN_CUDA = 5000 };

/* The most rows of a sequence that has a cache. */
enum { RANDOM_NEW_TOKENS = 8 };

/* One problem while it is drawn. */
struct random_draw {
    const struct options *options;
    enum attn_platform platform;
    uint64_t seed;  /* of the problem */
    uint64_t state; /* of the random numbers of the current row */
    struct plan_item *item;
    /* Made into the item's arrays behind the last row (cmd/problem/problem_arrays.h); "" = none. */
    char lengths[PROBLEM_TEXT_SIZE], block_mask[32];
    int64_t total_tokens, mask_block; /* 0 = no limit of the lengths, no mask */
    int64_t sequences; /* so many of q_len x kv_len take as long as those of `lengths` at most; 0 = none */
};

/* One attribute: draws it into the item. It may read what earlier rows have drawn. */
struct random_attribute {
    const char *name;
    void (*draw)(struct random_draw *);
};

/* The table, in the order of drawing. */
const struct random_attribute *plan_random_attributes(int *count);

/* Draws one row of the table into the item of `draw`. */
void plan_random_draw(struct random_draw *, const struct random_attribute *);

/* Adds problem number `number` of --seed: all rows, and its key, which begins with "r<number>". */
void plan_random_add(const struct options *, enum attn_platform, int64_t number, struct plan *);

#endif
