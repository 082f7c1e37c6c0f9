/* Command lines -> options and plans, and whether two problems of plans are the same. For the test_plan*.c files. */
#ifndef FABENCH_TEST_PLAN_OF_H
#define FABENCH_TEST_PLAN_OF_H

#include "tests/unit/unit_help.h"

#include "cmd/base/log.h"
#include "cmd/base/text.h"
#include "cmd/options/options.h"
#include "cmd/plan/plan.h"

/* The options of a line, its words as in a shell. The caller frees them. */
static inline struct options parse(const char *line)
{
    struct name_list words = {0};
    assert_true(text_split_shell(line, &words));
    struct options o;
    bool done = false;
    assert_int_equal(options_parse(words.count, name_list_argv(&words), &o, &done), EXIT_OK);
    assert_false(done);
    name_list_free(&words);
    return o;
}

/* The plan of a sweep. The caller frees it. */
static inline struct plan plan_of(const char *line, enum attn_platform platform)
{
    struct options o = parse(line);
    struct plan plan;
    assert_int_equal(plan_make(&o, platform, &plan), EXIT_OK);
    options_free(&o);
    return plan;
}

/* Equal in every byte, and in the arrays that each plan has made for itself. */
static inline bool is_same_item(const struct plan_item *a, const struct plan_item *b)
{
    struct plan_item other = *b;
    other.arrays = a->arrays;
    if (memcmp(a, &other, sizeof other) != 0 || !a->arrays != !b->arrays)
        return false;
    for (int i = 0; i < ARRAY_COUNT; i++) {
        size_t bytes, other_bytes;
        const void *x = problem_array(&a->problem, a->arrays, (enum problem_array)i, &bytes);
        const void *y = problem_array(&b->problem, b->arrays, (enum problem_array)i, &other_bytes);
        if (bytes != other_bytes || (bytes && memcmp(x, y, bytes) != 0))
            return false;
    }
    return true;
}

#endif
