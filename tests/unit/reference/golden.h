/* The golden vectors for tests that run from the root of the repository: tests/golden/<case>/case.json and one .npy per
 * result, computed in float64 by tests/golden/make.py and stored as float32; inputs are made here as they are there.
 * The reader knows just what those files are: version 1.0, C order. Every deviation fails the test. */
#ifndef FABENCH_TEST_GOLDEN_H
#define FABENCH_TEST_GOLDEN_H

#include <math.h>
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

static inline uint64_t golden_mixed(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* The state of a tensor's random numbers: see make.py. */
static inline uint64_t golden_state(const char *name, const char *tensor)
{
    char text[128];
    uint64_t state = UINT64_C(0xCBF29CE484222325);
    snprintf(text, sizeof text, "%s/%s", name, tensor);
    for (const char *c = text; *c; c++)
        state = (state ^ (unsigned char)*c) * UINT64_C(0x100000001B3);
    return state;
}

static inline uint64_t golden_next(uint64_t *state) { return golden_mixed(*state += UINT64_C(0x9E3779B97F4A7C15)); }

/* An input tensor. */
static inline float *golden_input(const char *name, const char *tensor, int64_t count, double factor)
{
    const uint64_t field = (1u << 21) - 1;
    uint64_t state = golden_state(name, tensor);
    float *data = malloc((size_t)count * sizeof(float));
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++) {
        const uint64_t z = golden_next(&state);
        const int64_t total = 2 * (int64_t)((z & field) + (z >> 21 & field) + (z >> 42 & field)) - 3 * (int64_t)field;
        int64_t size = total < 0 ? -total : total, unit = 1;
        for (; size >= 256; size /= 2)
            unit *= 2;
        data[i] = (float)((double)((total < 0 ? -size : size) * unit) * factor / (1 << 21));
    }
    return data;
}

/* The same in bf16, which has all its digits; frees the floats. */
static inline uint16_t *golden_bf16(float *from, int64_t count)
{
    uint16_t *to = malloc((size_t)count * sizeof *to);
    assert_non_null(to);
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        assert_int_equal(bits & 0xffff, 0);
        to[i] = (uint16_t)(bits >> 16);
    }
    free(from);
    return to;
}

/* An 8-bit input tensor. */
static inline uint8_t *golden_bytes(const char *name, const char *tensor, int64_t count, enum attn_dtype dtype)
{
    uint64_t state = golden_state(name, tensor);
    uint8_t *data = malloc((size_t)count);
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++) {
        const unsigned byte = golden_next(&state) & 0xff;
        const bool is_finite = dtype == ATTN_E4M3 ? (byte & 0x7f) != 0x7f : (byte & 0x7c) != 0x7c;
        data[i] = (uint8_t)(is_finite ? byte : byte & (dtype == ATTN_E4M3 ? 0x87u : 0x83u));
    }
    return data;
}

/* Scales of q, k or v. */
static inline float *golden_scales(char tensor, int64_t count, enum attn_dtype dtype)
{
    float *data = malloc((size_t)count * sizeof *data);
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++)
        data[i] = (1 + (float)((3 * i + (tensor == 'q'   ? 0
                                         : tensor == 'k' ? 1
                                                         : 2)) %
                               8) /
                           8) *
                  (dtype == ATTN_E4M3 ? 0x1p-7f : 0x1p-14f);
    return data;
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

static inline double golden_number_or(const char *json, const char *key, double absent)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    return strstr(json, quoted) ? golden_number(json, key) : absent;
}

/* All digits of a whole number that a double may not have. */
static inline int64_t golden_whole_or(const char *json, const char *key, int64_t absent)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = strstr(json, quoted);
    return at ? strtoll(at + strlen(quoted), NULL, 10) : absent;
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
    const double factor = golden_number_or(json, "qk_factor", 1);
    free(json);
    const struct attn_problem *p = &g.problem;
    const int64_t rows = p->batch * p->q_heads * p->q_len, q = rows * p->head_dim;
    const int64_t k = p->batch * p->kv_heads * p->kv_len * p->head_dim;
    g.q = golden_input(name, "q", q, factor);
    g.k = golden_input(name, "k", k, factor);
    g.v = golden_input(name, "v", k, 1);
    g.dout = golden_input(name, "do", q, 1);
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

/* The golden vectors of problems with attributes beyond dense attention, as the tensors that an implementation gets and
 * those that are right. Packed tensors and caches lie in memory as in the files. */

static const char *const golden_family_names[] = {
    "block_sparse_64",   "paged_decode_16",     "softcap_2_causal", "varlen_3_causal",    "v_dim_24_16",
    "sink_cross",        "alibi_softcap",       "bias_heads_sink",  "bias_batch_softcap", "chunks_sink_window",
    "decode_alibi",      "decode_576_512",      "cache_e4m3",       "cache_e5m2_chunks",  "e4m3_head",
    "e5m2_block_packed", "dropout_packed_sink", "bias_packed_v"};
enum { GOLDEN_FAMILY_CASES = sizeof golden_family_names / sizeof *golden_family_names };

struct golden_family {
    struct attn_problem problem;
    struct attn_tensors in;   /* q k v dout and the arrays of the attributes */
    struct attn_tensors want; /* o lse dq dk dv */
    bool has_backward;
};

/* A list of whole numbers; returns their count. */
static inline int64_t golden_list(const char *json, const char *key, int64_t values[16])
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\": [", key);
    const char *at = strstr(json, quoted);
    assert_non_null(at);
    at += strlen(quoted);
    int64_t count = 0;
    for (char *end; count < 16; at = end + strspn(end, ", ")) {
        values[count] = strtoll(at, &end, 10);
        if (end == at)
            break;
        count++;
    }
    return count;
}

/* An array of batch + 1 sums, and the longest and the sum of the list. */
static inline int32_t *golden_cu_seqlens(const int64_t lens[16], int64_t batch, int64_t *longest, int64_t *total)
{
    int32_t *sums = calloc((size_t)batch + 1, sizeof *sums);
    assert_non_null(sums);
    *longest = 0;
    for (int64_t b = 0; b < batch; b++) {
        sums[b + 1] = sums[b] + (int32_t)lens[b];
        *longest = lens[b] > *longest ? lens[b] : *longest;
    }
    *total = sums[batch];
    return sums;
}

/* [batch, len, heads, head_dim] or [batch, heads, len, head_dim]; an input of this type, or a result from a
 * file. */
static inline struct attn_tensor golden_typed(const char *name, const char *tensor, int64_t batch, int64_t heads,
                                              int64_t len, int64_t d, bool heads_first, bool is_input,
                                              enum attn_dtype dtype)
{
    char file[32];
    const int64_t count = batch * heads * len * d;
    snprintf(file, sizeof file, "%s.npy", tensor);
    struct attn_tensor t = {.stride_batch = heads * len * d};
    if (!is_input)
        t.data = golden_npy(name, file, count);
    else if (attn_dtype_is_8_bit(dtype))
        t.data = golden_bytes(name, tensor, count, dtype);
    else if (dtype == ATTN_BF16)
        t.data = golden_bf16(golden_input(name, tensor, count, 1), count);
    else
        t.data = golden_input(name, tensor, count, 1);
    t.stride_head = heads_first ? len * d : d;
    t.stride_row = heads_first ? d : heads * d;
    return t;
}

static inline struct attn_tensor golden_tensor(const char *name, const char *tensor, int64_t batch, int64_t heads,
                                               int64_t len, int64_t d, bool heads_first, bool is_input)
{
    return golden_typed(name, tensor, batch, heads, len, d, heads_first, is_input, ATTN_FP32);
}

static inline void golden_load_tensors(const char *name, struct golden_family *g, int64_t batch, int64_t q_len,
                                       int64_t kv_len, bool heads_first)
{
    const struct attn_problem *p = &g->problem;
    const int64_t hq = p->q_heads, hk = p->kv_heads;
    const struct {
        struct attn_tensor *to;
        const char *tensor;
        bool is_kv, is_of_v;
    } all[] = {{&g->in.q, "q", false, false},    {&g->in.k, "k", true, false},   {&g->in.v, "v", true, true},
               {&g->in.dout, "do", false, true}, {&g->want.o, "o", false, true}, {&g->want.dq, "dq", false, false},
               {&g->want.dk, "dk", true, false}, {&g->want.dv, "dv", true, true}};
    g->has_backward = !attn_dtype_is_8_bit(p->dtype);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (g->has_backward || i < 3 || i == 4)
            *all[i].to = golden_typed(name, all[i].tensor, batch, all[i].is_kv ? hk : hq, all[i].is_kv ? kv_len : q_len,
                                      all[i].is_of_v ? attn_v_head_dim(p) : p->head_dim, heads_first, i < 4,
                                      i < 3 ? p->dtype : ATTN_FP32);
    g->want.lse = golden_npy(name, "lse.npy", batch * hq * q_len);
}

static inline void golden_load_packed(const char *name, const char *json, struct golden_family *g)
{
    struct attn_problem *p = &g->problem;
    int64_t q[16], k[16];
    p->batch = golden_list(json, "q_lens", q);
    assert_int_equal(golden_list(json, "kv_lens", k), p->batch);
    p->lengths = ATTN_PACKED;
    g->in.cu_seqlens_q = golden_cu_seqlens(q, p->batch, &p->q_len, &p->total_q);
    g->in.cu_seqlens_k = golden_cu_seqlens(k, p->batch, &p->kv_len, &p->total_k);
    golden_load_tensors(name, g, 1, p->total_q, p->total_k, false);
}

/* K or V in pages. */
static inline struct attn_tensor golden_pages(const char *name, const char *tensor, const struct attn_problem *p,
                                              int64_t d)
{
    return golden_typed(name, tensor, p->pages, p->kv_heads, p->page_size, d, false, true, attn_kv_dtype(p));
}

static inline void golden_load_paged(const char *name, const char *json, struct golden_family *g)
{
    struct attn_problem *p = &g->problem;
    int64_t q[16], k[16], all_keys;
    p->batch = golden_list(json, "kv_lens", k);
    p->lengths = ATTN_CACHE;
    p->page_size = (int64_t)golden_number(json, "page_size");
    free(golden_cu_seqlens(k, p->batch, &p->kv_len, &all_keys));
    int32_t *used = malloc((size_t)p->batch * sizeof *used);
    assert_non_null(used);
    for (int64_t b = 0; b < p->batch; b++)
        used[b] = (int32_t)k[b];
    g->in.seqused_k = used;
    const int64_t table = p->batch * ((p->kv_len + p->page_size - 1) / p->page_size);
    int32_t *pages = golden_array(name, "page_table.npy", "<i4", 4, table);
    for (int64_t i = 0; i < table; i++)
        p->pages = pages[i] >= p->pages ? pages[i] + 1 : p->pages;
    g->in.page_table = pages;
    if (strstr(json, "\"q_lens\"")) {
        assert_int_equal(golden_list(json, "q_lens", q), p->batch);
        g->in.cu_seqlens_q = golden_cu_seqlens(q, p->batch, &p->q_len, &p->total_q);
    }
    const int64_t batch = p->total_q ? 1 : p->batch, rows = p->total_q ? p->total_q : p->q_len;
    g->in.q = golden_typed(name, "q", batch, p->q_heads, rows, p->head_dim, false, true, p->dtype);
    g->want.o = golden_tensor(name, "o", batch, p->q_heads, rows, attn_v_head_dim(p), false, false);
    g->in.dout = g->want.o; /* the strides of O; there is no backward */
    g->in.dout.data = NULL;
    g->want.lse = golden_npy(name, "lse.npy", batch * p->q_heads * rows);
    g->in.k = golden_pages(name, "k_pages", p, p->head_dim);
    g->in.v = attn_v_is_in_k(p) ? g->in.k : golden_pages(name, "v_pages", p, attn_v_head_dim(p));
}

/* The types of 8-bit inputs, or of a cache beside 16-bit queries; the scales, when the lengths are known. */
static inline void golden_load_types(const char *json, struct attn_problem *p)
{
    const enum attn_dtype narrow = strstr(json, "\"e4m3\"")   ? ATTN_E4M3
                                   : strstr(json, "\"e5m2\"") ? ATTN_E5M2
                                                              : ATTN_FP32;
    if (narrow == ATTN_FP32)
        return;
    const bool is_cache = strstr(json, "\"cache_dtype\"") != NULL;
    p->dtype = is_cache ? ATTN_BF16 : narrow;
    p->cache_dtype = is_cache ? narrow : ATTN_FP32;
    p->out_dtype = is_cache ? ATTN_FP32 : ATTN_BF16;
    p->scale_block = (int64_t)golden_number_or(json, "scale_block", 0);
    p->quant_scale = p->scale_block ? ATTN_SCALE_BLOCK : ATTN_SCALE_HEAD;
}

static inline void golden_load_scales(struct golden_family *g)
{
    const struct attn_problem *p = &g->problem;
    const int64_t per_block = p->scale_block ? p->scale_block : 1;
    const int64_t of_q = p->batch * p->q_heads * (p->q_len + p->total_q / per_block + 1); /* or fewer */
    const int64_t of_k = p->batch * p->kv_heads * (p->kv_len + p->total_k / per_block + 1);
    if (p->quant_scale == ATTN_SCALE_NONE)
        return;
    g->in.scale_q = p->cache_dtype ? NULL : golden_scales('q', of_q, p->dtype);
    g->in.scale_k = golden_scales('k', of_k, attn_kv_dtype(p));
    g->in.scale_v = golden_scales('v', of_k, attn_kv_dtype(p));
}

/* Sinks, slopes and the bias, and the results that belong to them. */
static inline void golden_load_added(const char *name, const char *json, struct golden_family *g)
{
    struct attn_problem *p = &g->problem;
    p->has_sink = strstr(json, "\"sink\"") != NULL;
    p->has_alibi = strstr(json, "\"alibi\"") != NULL;
    if (p->has_sink) {
        g->in.sink = golden_input(name, "sink", p->q_heads, 1);
        g->want.dsink = g->has_backward ? golden_npy(name, "dsink.npy", p->q_heads) : NULL;
    }
    if (p->has_alibi) {
        float *slopes = malloc((size_t)p->q_heads * sizeof *slopes);
        assert_non_null(slopes);
        for (int64_t h = 0; h < p->q_heads; h++)
            slopes[h] = exp2f(-8.0f * (float)(h + 1) / (float)p->q_heads);
        g->in.alibi_slopes = slopes;
    }
    if (!strstr(json, "\"bias\""))
        return;
    p->bias_batch = strstr(json, "\"bias\": \"heads\"") ? 1 : p->batch;
    p->bias_heads = strstr(json, "\"bias\": \"batch\"") ? 1 : p->q_heads;
    g->in.bias = golden_tensor(name, "bias", p->bias_batch, p->bias_heads, p->q_len, p->kv_len, true, true);
    g->want.dbias = golden_tensor(name, "dbias", p->bias_batch, p->bias_heads, p->q_len, p->kv_len, true, false);
}

static inline struct golden_family golden_family_load(const char *name)
{
    size_t bytes;
    char *json = golden_file(name, "case.json", &bytes);
    struct golden_family g = {.problem = {
                                  .batch = (int64_t)golden_number_or(json, "batch", 0),
                                  .q_heads = (int64_t)golden_number(json, "q_heads"),
                                  .kv_heads = (int64_t)golden_number(json, "kv_heads"),
                                  .q_len = (int64_t)golden_number_or(json, "q_len", 0),
                                  .kv_len = (int64_t)golden_number_or(json, "kv_len", 0),
                                  .head_dim = (int64_t)golden_number(json, "head_dim"),
                                  .dtype = ATTN_FP32,
                                  .causal = golden_number(json, "causal") != 0,
                                  .window_left = (int64_t)golden_number_or(json, "window_left", -1),
                                  .window_right = (int64_t)golden_number_or(json, "window_right", -1),
                                  .scale = (float)golden_number(json, "scale"),
                                  .softcap = (float)golden_number_or(json, "softcap", 0),
                                  .v_head_dim = (int64_t)golden_number_or(json, "v_head_dim", 0),
                                  .dropout = (float)golden_number_or(json, "dropout", 0),
                                  .dropout_seed = (uint64_t)golden_whole_or(json, "dropout_seed", 0),
                              }};
    struct attn_problem *p = &g.problem;
    golden_load_types(json, p);
    if (strstr(json, "\"varlen\"")) {
        golden_load_packed(name, json, &g);
    } else if (strstr(json, "\"paged\"")) {
        golden_load_paged(name, json, &g);
    } else {
        p->layout = ATTN_BHSD;
        golden_load_tensors(name, &g, p->batch, p->q_len, p->kv_len, true);
    }
    golden_load_added(name, json, &g);
    golden_load_scales(&g);
    const double block = golden_number_or(json, "block_rows", 0);
    if (block > 0) {
        assert_true(golden_number(json, "block_cols") == block);
        p->mask_block = (int64_t)block;
        p->mask_batch = 1;
        p->mask_heads = p->q_heads;
        const int64_t planes = p->mask_heads * ((p->q_len + p->mask_block - 1) / p->mask_block);
        g.in.block_mask =
            golden_array(name, "block_mask.npy", "|u1", 1, planes * ((p->kv_len + p->mask_block - 1) / p->mask_block));
    }
    free(json);
    return g;
}

static inline void golden_family_free(struct golden_family *g)
{
    void *const v = attn_v_is_in_k(&g->problem) ? NULL : g->in.v.data;
    const void *const all[] = {g->in.q.data,       g->in.k.data,       v,
                               g->in.dout.data,    g->want.o.data,     g->want.dq.data,
                               g->want.dk.data,    g->want.dv.data,    g->want.lse,
                               g->in.seqused_k,    g->in.page_table,   g->in.block_mask,
                               g->in.cu_seqlens_q, g->in.cu_seqlens_k, g->in.sink,
                               g->want.dsink,      g->in.alibi_slopes, g->in.bias.data,
                               g->want.dbias.data, g->in.scale_q,      g->in.scale_k,
                               g->in.scale_v};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free((void *)(uintptr_t)all[i]);
}

/* The relative RMS error of a tensor against another, element by element by their strides. */
static inline double golden_rms(struct attn_tensor x, struct attn_tensor want, int64_t batch, int64_t heads,
                                int64_t len, int64_t d)
{
    double error2 = 0, want2 = 0;
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < len; i++)
                for (int64_t c = 0; c < d; c++) {
                    const float *const at = x.data, *const right = want.data;
                    const double w =
                        (double)right[b * want.stride_batch + h * want.stride_head + i * want.stride_row + c];
                    const double got = (double)at[b * x.stride_batch + h * x.stride_head + i * x.stride_row + c];
                    const double e = got == w ? 0 : got - w; /* also of equal infinities */
                    error2 += e * e;
                    want2 += isinf(w) ? 0 : w * w;
                }
    return error2 == 0 ? 0 : sqrt(error2 / want2);
}

#endif
