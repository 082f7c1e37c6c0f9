/* What a row asks, field by field: the identity of a problem. One table lists the fields; the columns of records, the key
 * by which rows of different runs are matched, the label that people read and the options of `repro` come from it. A new
 * attribute of a problem is one field of the struct and one row of the table. */
#ifndef FABENCH_PROBLEM_KEY_H
#define FABENCH_PROBLEM_KEY_H

#include <stdbool.h>
#include <stddef.h>

#include "cmd/problem/names.h"

/* Absent: -1 where a comment names an enum, INT64_MIN, NaN. */
struct problem_key {
    int mode;   /* attn_mode */
    int dtype;  /* attn_dtype */
    int64_t causal, batch, q_heads, kv_heads, q_len, kv_len, head_dim;
    int layout; /* attn_layout */
    int64_t window_left, window_right;
    double dropout, scale;
    int dist;   /* fill_dist */
    int64_t seed;
    int l2;     /* l2_policy */
};

enum problem_field_kind { PROBLEM_NAME, PROBLEM_COUNT, PROBLEM_REAL }; /* int with names, int64_t, double */

struct problem_field {
    const char *name;   /* of the column */
    enum problem_field_kind kind;
    size_t offset;      /* in struct problem_key */
    const char *const *names; /* of a PROBLEM_NAME, indexed by its value; NULL ends them */
    const char *option; /* of a sweep, that asks for this value; NULL = there is none (yet) */
    bool (*is_default)(const struct problem_key *); /* then `repro` leaves the option out; NULL = it never does */
    bool is_compared;   /* rows that differ in it are of different problems for a report (the seed is not) */
};

extern const struct problem_field problem_fields[];
extern const int problem_field_count;

void problem_key_clear(struct problem_key *); /* everything absent */

struct problem_key problem_key_of(const struct attn_problem *, enum attn_mode, enum fill_dist, uint64_t seed,
                                  enum l2_policy);

/* The value as records, floors and `repro` write it; "" when it is absent. */
const char *problem_field_text(const struct problem_field *, const struct problem_key *, char *buffer, size_t size);

/* The value that `text` writes, into the key. False when it is none: no such name, no number. */
bool problem_field_parse(const struct problem_field *, const char *text, struct problem_key *);

/* Order by the fields of the table; 0 when all of them agree. only_compared: without the seed. */
int problem_key_compare(const struct problem_key *, const struct problem_key *, bool only_compared);

/* Do they agree in every field that neither of them lacks? */
bool problem_key_agrees(const struct problem_key *, const struct problem_key *);

/* "bwd causal d128 16k bf16" as people read it, in columns. */
enum { PROBLEM_LABEL_SIZE = 96 };
char *problem_key_label(const struct problem_key *, char *buffer, size_t size);

/* The options that ask for this problem, each with a space before it: " --mode fwd --causal=yes ...". The caller frees it. */
char *problem_key_options(const struct problem_key *);

#endif
