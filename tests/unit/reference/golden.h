/* The golden vectors for tests that run from the root of the repository: tests/golden/<case>/case.json and one .npy per
 * tensor, made in float64 by PyTorch and stored as float32. The reader knows just what those files are: version 1.0,
 * C order. Every deviation fails the test. */
#ifndef FABENCH_TEST_GOLDEN_H
#define FABENCH_TEST_GOLDEN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/attention.h"

#ifndef GOLDEN_DIR
#define GOLDEN_DIR "tests/golden"
#endif

static const char *const golden_names[] = {"cross_short_q",  "d16",         "gqa_4_2",        "mha_d128",
                                           "mha_d64_causal", "one_token",   "ragged_prime",   "scale_half_triton",
                                           "window_16_0",    "d256_causal", "d96_gqa_causal", "window_cross_5_3"};
enum { GOLDEN_CASES = sizeof golden_names / sizeof *golden_names };

/* Contiguous [batch, heads, len, head_dim]. */
struct golden {
    struct attn_problem problem;
    float *q, *k, *v, *dout, *o, *lse, *dq, *dk, *dv;
};

static inline char *golden_file(const char *name, const char *file, size_t *bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s/%s", GOLDEN_DIR, name, file);
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("%s cannot be opened; run from the root of the repository", path);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    const long size = ftell(f);
    assert_true(size > 0);
    rewind(f);
    char *text = malloc((size_t)size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)size, f), size);
    fclose(f);
    text[size] = '\0';
    *bytes = (size_t)size;
    return text;
}

/* The elements of a file of this type ('<f4', '<i4', '|u1'), `bytes` each. */
static inline void *golden_array(const char *name, const char *file, const char *type, size_t bytes, int64_t count)
{
    size_t size;
    char quoted[16], *text = golden_file(name, file, &size);
    assert_true(size > 10);
    assert_memory_equal(text, "\x93NUMPY\x01\x00", 8);
    const size_t header = 10u + (unsigned char)text[8] + 256u * (unsigned char)text[9];
    assert_int_equal(size, header + (size_t)count * bytes);
    text[header - 1] = '\0'; /* the newline that ends the header */
    snprintf(quoted, sizeof quoted, "'%s'", type);
    assert_non_null(strstr(text + 10, quoted));
    assert_non_null(strstr(text + 10, "'fortran_order': False"));
    void *data = malloc((size_t)count * bytes);
    assert_non_null(data);
    memcpy(data, text + header, (size_t)count * bytes);
    free(text);
    return data;
}

static inline float *golden_npy(const char *name, const char *file, int64_t count)
{
    return golden_array(name, file, "<f4", sizeof(float), count);
}

static inline double golden_number(const char *json, const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = strstr(json, quoted);
    assert_non_null(at);
    at += strlen(quoted);
    if (strncmp(at, "true", 4) == 0)
        return 1;
    if (strncmp(at, "false", 5) == 0)
        return 0;
    char *end;
    const double value = strtod(at, &end);
    assert_true(end != at);
    return value;
}

static inline struct golden golden_load(const char *name)
{
    size_t bytes;
    char *json = golden_file(name, "case.json", &bytes);
    struct golden g = {.problem = {
                           .batch = (int64_t)golden_number(json, "batch"),
                           .q_heads = (int64_t)golden_number(json, "q_heads"),
                           .kv_heads = (int64_t)golden_number(json, "kv_heads"),
                           .q_len = (int64_t)golden_number(json, "q_len"),
                           .kv_len = (int64_t)golden_number(json, "kv_len"),
                           .head_dim = (int64_t)golden_number(json, "head_dim"),
                           .dtype = ATTN_FP32,
                           .layout = ATTN_BHSD,
                           .causal = golden_number(json, "causal") != 0,
                           .window_left = (int64_t)golden_number(json, "window_left"),
                           .window_right = (int64_t)golden_number(json, "window_right"),
                           .scale = (float)golden_number(json, "scale"),
                       }};
    free(json);
    const struct attn_problem *p = &g.problem;
    const int64_t rows = p->batch * p->q_heads * p->q_len, q = rows * p->head_dim;
    const int64_t k = p->batch * p->kv_heads * p->kv_len * p->head_dim;
    g.q = golden_npy(name, "q.npy", q);
    g.k = golden_npy(name, "k.npy", k);
    g.v = golden_npy(name, "v.npy", k);
    g.dout = golden_npy(name, "do.npy", q);
    g.o = golden_npy(name, "o.npy", q);
    g.lse = golden_npy(name, "lse.npy", rows);
    g.dq = golden_npy(name, "dq.npy", q);
    g.dk = golden_npy(name, "dk.npy", k);
    g.dv = golden_npy(name, "dv.npy", k);
    return g;
}

static inline void golden_free(struct golden *g)
{
    float *all[] = {g->q, g->k, g->v, g->dout, g->o, g->lse, g->dq, g->dk, g->dv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

#endif
