/* The attributes of a problem that are one number, given by one option each. A new one is one line here and one row of
 * cmd/options/options_table.c; its field in struct attn_problem is in the interface already. From this list come the
 * field of struct options, that of struct problem_key, the column of records, the key, the label, the options of
 * `repro`, and the number in struct attn_problem.
 *
 * X(kind, field, name, c_type, option, absent, words): COUNT is an int64_t, REAL a double, FLAG an option without a
 * value and a column of 0 and 1; `field` is the field of attn_problem, c_type its type; `name` is that of the column
 * and the word of the label. `absent` is the value of a problem without it and of records that were written before
 * there was a column; `words` say what the column means. */
#ifndef FABENCH_PROBLEM_ATTRIBUTES_H
#define FABENCH_PROBLEM_ATTRIBUTES_H

#include <stdbool.h>
#include <stdint.h>

#define PROBLEM_ATTRIBUTES(X) \
    X(COUNT, dropout_seed, dropout_seed, uint64_t, "--dropout-seed", 0, "random seed of dropout; see --dropout") \
    X(REAL, softcap, softcap, float, "--softcap", 0, \
      "S = softcap tanh(scale Q K^T / softcap) before the mask; 0 = none") \
    X(COUNT, page_size, page_size, int64_t, "--page-size", 0, "rows of a page of the cache; 0 = contiguous")

/* Later ones, whose columns follow all others. */
#define PROBLEM_LATER_ATTRIBUTES(X) \
    X(FLAG, has_sink, sink, bool, "--sink", 0, \
      "1 with a sink, a logit of each query head in the denominator alone, else 0") \
    X(FLAG, has_alibi, alibi, bool, "--alibi", 0, "1 with ALiBi, a slope of each query head times the distance, else 0")

/* In struct problem_attributes; in struct problem_key. */
#define PROBLEM_TYPE_COUNT int64_t
#define PROBLEM_TYPE_REAL double
#define PROBLEM_TYPE_FLAG bool
#define PROBLEM_ATTRIBUTE_FIELD(kind, field, name, c_type, option, absent, words) PROBLEM_TYPE_##kind field;
#define PROBLEM_KEY_TYPE_COUNT int64_t
#define PROBLEM_KEY_TYPE_REAL double
#define PROBLEM_KEY_TYPE_FLAG int64_t
#define PROBLEM_KEY_FIELD(kind, field, name, c_type, option, absent, words) PROBLEM_KEY_TYPE_##kind field;

struct problem_attributes {
    double dropout; /* its column is among those of the first version of the format */
    PROBLEM_ATTRIBUTES(PROBLEM_ATTRIBUTE_FIELD)
    PROBLEM_LATER_ATTRIBUTES(PROBLEM_ATTRIBUTE_FIELD)
};

#endif
