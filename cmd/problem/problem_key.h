/* The identity of a problem, field by field. One table lists the fields; the columns of records, the key by which rows
 * of different runs are matched, the label that people read and the options of `repro` come from it. A new attribute of
 * a problem is one field of the struct and one row of the table. */
#ifndef FABENCH_PROBLEM_KEY_H
#define FABENCH_PROBLEM_KEY_H

#include <stdbool.h>
#include <stddef.h>

#include "cmd/problem/problem.h"
#include "cmd/problem/problem_arrays.h"
#include "cmd/problem/problem_attributes.h"

/* Value of an absent field: -1 where a comment names an enum, else INT64_MIN, NaN or "". */
struct problem_key {
    int mode;  /* problem_mode */
    int dtype; /* attn_dtype */
    int64_t causal, batch, q_heads, kv_heads, q_len, kv_len, head_dim;
    int layout; /* attn_layout */
    int64_t window_left, window_right;
    double dropout, scale;
    int dist; /* fill_dist */
    int64_t seed;
    int l2;                             /* l2_policy */
    double logit_std;                   /* standard deviation that Q is scaled to give the logits; absent = as drawn */
    double logit_mean;                  /* what is added to all logits; absent = nothing */
    int cache_dtype;                    /* attn_dtype */
    char lengths[PROBLEM_TEXT_SIZE];    /* problem_arrays.h */
    int64_t total_q;                    /* query tokens of all sequences; absent = they are not packed */
    char block_mask[PROBLEM_TEXT_SIZE]; /* problem_arrays.h */
    int64_t mask_block;                 /* rows and keys of a block; 0 = no mask */
    int out_dtype;                      /* attn_dtype of O where dtype has 8 bits, else absent */
    int quant_scale;                    /* attn_quant_scale */
    int64_t scale_block;                /* rows of a block that has a scale; 0 = other scales, or none */
    int64_t hadamard;                   /* 1: Q and K were rotated before they were quantised */
    int64_t v_head_dim;                 /* absent = head_dim */
    PROBLEM_ATTRIBUTES(PROBLEM_KEY_FIELD)
    PROBLEM_LATER_ATTRIBUTES(PROBLEM_KEY_FIELD)
    int bias;              /* problem_bias */
    int64_t quant_in_time; /* 1: the time includes quantising; 0 or absent: it does not */
};

/* int with names, int64_t, double, char[PROBLEM_TEXT_SIZE] */
enum problem_field_kind { PROBLEM_NAME, PROBLEM_COUNT, PROBLEM_REAL, PROBLEM_TEXT };

struct problem_field {
    const char *name; /* of the column */
    enum problem_field_kind kind;
    size_t offset;                                  /* in struct problem_key */
    const char *meaning;                            /* a few words */
    const char *const *names;                       /* of a PROBLEM_NAME, indexed by its value; NULL ends them */
    const char *option;                             /* option of a sweep that sets this value; NULL = none */
    bool (*is_default)(const struct problem_key *); /* then `repro` omits the option; NULL = never omitted */
    bool is_compared;   /* rows that differ in it are different problems in a report (true for all but the seed) */
    const char *label;  /* word before its value in a label, where it is not the default; NULL = not in labels */
    const char *absent; /* the value of rows that were written before there was this column; NULL = stays absent */
    bool is_flag;       /* its option takes no value: it is given where the field is not the default */
    bool may_be_empty;  /* its column is empty where the problem has nothing of the kind */
};

extern const struct problem_field problem_fields[];
extern const int problem_field_count;

void problem_key_clear(struct problem_key *); /* everything absent */

/* Gives absent fields that are newer than the row which was read the value of a problem without them. */
void problem_key_complete(struct problem_key *);

/* The attributes in a key; and into a problem. */
struct problem_attributes problem_attributes_of(const struct problem_key *);
void problem_set_attributes(const struct problem_attributes *, struct attn_problem *);

/* arrays: NULL = none. logit_std: 0 = as drawn. */
struct problem_key problem_key_of(const struct attn_problem *, const struct problem_arrays *, enum attn_mode,
                                  enum fill_dist, double logit_std, uint64_t seed, enum l2_policy);

/* What the inputs are, for people: "N(0,1)", "U(-1,1)", "rising", "N(0,1) with logit-std 4"; "" when it is absent. */
enum { PROBLEM_DATA_SIZE = 48 };
char *problem_key_data(const struct problem_key *, char *buffer, size_t size);

/* The value as records, floors and `repro` write it; "" when it is absent. The
 * buffer has PROBLEM_TEXT_SIZE bytes at least. */
const char *problem_field_text(const struct problem_field *, const struct problem_key *, char *buffer, size_t size);

/* Parses `text` into the key's field. False when it is not a value of this field. */
bool problem_field_parse(const struct problem_field *, const char *text, struct problem_key *);

/* Compares by the fields of the table, in order; 0 when all are equal. only_compared: without the seed. */
int problem_key_compare(const struct problem_key *, const struct problem_key *, bool only_compared);

/* True when the two are equal in every field that both have. */
bool problem_key_agrees(const struct problem_key *, const struct problem_key *);

/* "bwd causal d128 16k bf16", for people, in columns; then what is not the default: "left 128 dropout 0.1". */
enum { PROBLEM_LABEL_SIZE = 768 };
char *problem_key_label(const struct problem_key *, char *buffer, size_t size);
/* The last part alone, a space before each word; "" where everything is the default. */
char *problem_key_extras(const struct problem_key *, char *buffer, size_t size);

/* The length of a problem in tables and charts: q_len, or the mean of the query lengths, rounded, where they differ; of
 * decode kv_len, the longest cache. */
int64_t problem_key_length(const struct problem_key *);
/* "16k", "16kx1k" for queries and keys, "~341" for a mean. */
char *problem_key_lengths(const struct problem_key *, char *buffer, size_t size);

/* "4x2/2x129x129x128 bhsd": batch x heads / key heads x queries x keys x head dim, with that of V where it differs; and
 * the mask with its window: "causal", "full w16,3". As the table of verify prints them. */
char *problem_key_shape(const struct problem_key *, char *buffer, size_t size);
char *problem_key_mask(const struct problem_key *, char *buffer, size_t size);
/* "normal", "normal std 4 mean -500": the inputs, as that table prints them. */
char *problem_key_dist(const struct problem_key *, char *buffer, size_t size);

/* The options that select this problem, each with a space before it: " --mode fwd --causal=yes ...". The caller frees
 * it. */
char *problem_key_options(const struct problem_key *);

#endif
