/* Problems with attributes beyond dense attention for tests: their tensors and arrays, made from a seed, and the
 * oracle's outputs. */
#ifndef FABENCH_TEST_FAMILY_H
#define FABENCH_TEST_FAMILY_H

#include "tests/unit/reference/golden.h"

#include "reference/harness/fill.h"
#include "reference/reference.h"

/* Fresh and full of NaN, so that what nobody wrote shows. */
static inline float *floats(int64_t count)
{
    float *data = malloc((size_t)(count + 1) * sizeof *data);
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++)
        data[i] = NAN;
    return data;
}

static inline int64_t q_rows(const struct attn_problem *p)
{
    return p->q_heads * (attn_rows_are_packed(p) ? p->total_q : p->batch * p->q_len);
}

static inline int64_t k_rows(const struct attn_problem *p)
{
    return p->kv_heads * (p->lengths == ATTN_PACKED ? p->total_k : p->batch * p->kv_len);
}

enum { OUTPUTS = 13, FIRST_ABS = 5 }; /* [0, FIRST_ABS) and their _abs but LSE's, then dSink, dBias and theirs */

static inline void list_outputs(struct reference_outputs *x, float **list[OUTPUTS])
{
    float **const all[OUTPUTS] = {&x->o,      &x->lse,    &x->dq,    &x->dk,        &x->dv,    &x->o_abs,    &x->dq_abs,
                                  &x->dk_abs, &x->dv_abs, &x->dsink, &x->dsink_abs, &x->dbias, &x->dbias_abs};
    memcpy(list, all, sizeof all);
}

/* The columns of an output: those of V, or of Q and K. */
static inline int64_t output_columns(const struct attn_problem *p, int output)
{
    static const bool is_of_v[OUTPUTS] = {true, false, false, false, true, true, false, false, true};
    return is_of_v[output] ? attn_v_head_dim(p) : p->head_dim;
}

static inline int64_t bias_elements(const struct attn_problem *p)
{
    return p->bias_batch * p->bias_heads * p->q_len * p->kv_len;
}

static inline int64_t output_elements(const struct attn_problem *p, int output)
{
    static const bool is_kv[OUTPUTS] = {false, false, false, true, true, false, false, true, true};
    if (output >= 11)
        return bias_elements(p);
    if (output >= 9)
        return p->has_sink ? p->q_heads : 0;
    return output == 1 ? q_rows(p) : (is_kv[output] ? k_rows(p) : q_rows(p)) * output_columns(p, output);
}

static inline struct reference_outputs outputs_new(const struct attn_problem *p)
{
    struct reference_outputs x = {0};
    float **list[OUTPUTS];
    list_outputs(&x, list);
    for (int i = 0; i < OUTPUTS; i++)
        *list[i] = floats(output_elements(p, i));
    return x;
}

static inline void outputs_free(struct reference_outputs *x)
{
    float **list[OUTPUTS];
    list_outputs(x, list);
    for (int i = 0; i < OUTPUTS; i++)
        free(*list[i]);
}

static inline void run_oracle(const struct attn_problem *p, enum attn_mode mode, const struct attn_tensors *t,
                              const struct reference_outputs *out, int threads)
{
    struct attn_message why = {""};
    assert_int_equal(oracle_attention(p, mode, t, out, threads, &why), ATTN_OK);
}

/* A problem of the tests: its tensors in fp32 or 8 bits, its arrays. */
struct made {
    struct attn_problem p;
    struct attn_tensors t;
    void *memory[16];
    int count;
};

static inline void *keep(struct made *m, void *memory)
{
    assert_non_null(memory);
    m->memory[m->count++] = memory;
    return memory;
}

static inline uint32_t random_below(uint64_t *random, uint32_t count)
{
    return fill_random16(9, 77, ++*random) % count;
}

/* Contiguous in the order of the problem's layout; rows of the batch and of the heads as the lengths mean. */
static inline struct attn_tensor make_tensor(struct made *m, enum attn_dtype dtype, int64_t batch, int64_t heads,
                                             int64_t len, int64_t d, enum fill_tensor id)
{
    static float table[FILL_TABLE_SIZE];
    float gain;
    struct attn_tensor t = {.stride_batch = heads * len * d, .stride_head = d, .stride_row = heads * d};
    if (m->p.layout == ATTN_BHSD) {
        t.stride_head = len * d;
        t.stride_row = d;
    }
    t.data = keep(m, malloc((size_t)(batch * heads * len * d + 1) * attn_dtype_bytes(dtype)));
    fill_table(FILL_NORMAL, id, table, &gain);
    fill_tensor_host(t, dtype, batch, heads, len, d, 3, id, table, gain);
    return t;
}

static inline int32_t *make_lengths(struct made *m, uint64_t *random, int64_t longest, int64_t *total)
{
    int32_t *cu = keep(m, calloc((size_t)m->p.batch + 1, sizeof *cu));
    for (int64_t b = 0; b < m->p.batch; b++) /* the first sequence is the longest, the second is empty */
        cu[b + 1] = cu[b] + (int32_t)(b == 0 ? longest : b == 1 ? 0 : random_below(random, (uint32_t)longest + 1));
    *total = cu[m->p.batch];
    return cu;
}

static inline float *make_scales(struct made *m, uint64_t *random, int64_t count)
{
    float *scales = keep(m, malloc((size_t)count * sizeof *scales));
    for (int64_t i = 0; i < count; i++)
        scales[i] = 0.5f + (float)random_below(random, 1000) * 1e-3f;
    return scales;
}

static inline void make_cache(struct made *m, uint64_t *random)
{
    struct attn_problem *p = &m->p;
    const int64_t per = p->page_size ? (p->kv_len + p->page_size - 1) / p->page_size : 0;
    int32_t *used = keep(m, malloc((size_t)p->batch * sizeof *used));
    int32_t *table = keep(m, malloc((size_t)(p->batch * per + 1) * sizeof *table));
    for (int64_t b = 0; b < p->batch; b++)
        used[b] = (int32_t)(b == 0 ? p->kv_len : p->q_len + random_below(random, (uint32_t)(p->kv_len - p->q_len + 1)));
    p->pages = p->batch * per + (p->batch * per % 7 == 0 ? 1 : 0);
    for (int64_t i = 0; i < p->batch * per; i++) /* 7 and the number of pages have no common divisor */
        table[i] = (int32_t)(7 * i % p->pages);
    if (p->total_q) { /* new rows of their own, which are the last keys */
        m->t.cu_seqlens_q = make_lengths(m, random, p->q_len, &p->total_q);
        for (int64_t b = 1; b < p->batch; b++) {
            const int32_t rows = m->t.cu_seqlens_q[b + 1] - m->t.cu_seqlens_q[b];
            used[b] = rows + (int32_t)random_below(random, (uint32_t)(p->kv_len - rows + 1));
        }
    }
    m->t.seqused_k = used;
    m->t.page_table = per ? table : NULL;
}

static inline void make_mask(struct made *m, uint64_t *random)
{
    const struct attn_problem *p = &m->p;
    const int64_t count = p->mask_batch * p->mask_heads * ((p->q_len + p->mask_block - 1) / p->mask_block) *
                          ((p->kv_len + p->mask_block - 1) / p->mask_block);
    uint8_t *mask = keep(m, malloc((size_t)count));
    for (int64_t i = 0; i < count; i++)
        mask[i] = random_below(random, 3) > 0;
    m->t.block_mask = mask;
}

static inline void make_sink(struct made *m, uint64_t *random)
{
    float *sink = keep(m, malloc((size_t)m->p.q_heads * sizeof *sink));
    for (int64_t h = 0; h < m->p.q_heads; h++)
        sink[h] = 2e-3f * ((float)random_below(random, 2000) - 1000);
    m->t.sink = sink;
}

/* Contiguous, in bias_dtype. */
static inline void make_bias(struct made *m, uint64_t *random)
{
    const struct attn_problem *p = &m->p;
    struct attn_tensor *b = &m->t.bias;
    *b = (struct attn_tensor){.stride_batch = p->bias_heads * p->q_len * p->kv_len,
                              .stride_head = p->q_len * p->kv_len,
                              .stride_row = p->kv_len};
    b->data = keep(m, malloc((size_t)bias_elements(p) * attn_dtype_bytes(p->bias_dtype)));
    for (int64_t i = 0; i < bias_elements(p); i++)
        fill_store(b->data, p->bias_dtype, i, 2e-3f * ((float)random_below(random, 2000) - 1000));
}

static inline void make_slopes(struct made *m)
{
    float *slopes = keep(m, malloc((size_t)m->p.q_heads * sizeof *slopes));
    for (int64_t h = 0; h < m->p.q_heads; h++)
        slopes[h] = exp2f(-8.0f * (float)(h + 1) / (float)m->p.q_heads);
    m->t.alibi_slopes = slopes;
}

static inline struct made make(const struct attn_problem *problem)
{
    struct made m = {.p = *problem};
    struct attn_problem *p = &m.p;
    uint64_t random = 1;
    int64_t batch = p->batch, kv_batch = p->batch, q_len = p->q_len, kv_len = p->kv_len;
    if (p->lengths == ATTN_PACKED) {
        m.t.cu_seqlens_q = make_lengths(&m, &random, p->q_len, &p->total_q);
        m.t.cu_seqlens_k = make_lengths(&m, &random, p->kv_len, &p->total_k);
        kv_batch = 1;
        kv_len = p->total_k;
    } else if (p->lengths == ATTN_CACHE) {
        make_cache(&m, &random);
        kv_batch = p->page_size ? p->pages : p->batch;
        kv_len = p->page_size ? p->page_size : p->kv_len;
    }
    if (attn_rows_are_packed(p)) {
        batch = 1;
        q_len = p->total_q;
    }
    if (p->mask_block)
        make_mask(&m, &random);
    if (p->has_sink)
        make_sink(&m, &random);
    if (p->has_alibi)
        make_slopes(&m);
    if (p->bias_heads)
        make_bias(&m, &random);
    if (p->quant_scale) {
        const int64_t per_block = p->scale_block ? p->scale_block : 1;
        float *const scale_q =
            make_scales(&m, &random, p->batch * p->q_heads * (p->q_len + p->total_q / per_block + 1));
        m.t.scale_q = p->cache_dtype ? NULL : scale_q;
        m.t.scale_k = make_scales(&m, &random, p->batch * p->kv_heads * (p->kv_len + p->total_k / per_block + 1));
        m.t.scale_v = make_scales(&m, &random, p->batch * p->kv_heads * (p->kv_len + p->total_k / per_block + 1));
    }
    const int64_t dv = attn_v_head_dim(p);
    m.t.q = make_tensor(&m, p->dtype, batch, p->q_heads, q_len, p->head_dim, FILL_Q);
    m.t.k = make_tensor(&m, attn_kv_dtype(p), kv_batch, p->kv_heads, kv_len, p->head_dim, FILL_K);
    if (attn_v_is_in_k(p)) {
        m.t.v = m.t.k;
        m.t.scale_v = m.t.scale_k;
    } else {
        m.t.v = make_tensor(&m, attn_kv_dtype(p), kv_batch, p->kv_heads, kv_len, dv, FILL_V);
    }
    m.t.dout = make_tensor(&m, attn_output_dtype(p), batch, p->q_heads, q_len, dv, FILL_DO);
    return m;
}

static inline void made_free(struct made *m)
{
    for (int i = 0; i < m->count; i++)
        free(m->memory[i]);
}

/* Elements of the arrays of a problem that `make` or golden_family_load has made, 0 for those that it has not; what
 * a device copy needs. */
static inline int64_t cache_rows(const struct attn_problem *p)
{
    return p->kv_heads * (p->page_size ? p->pages * p->page_size : p->batch * p->kv_len);
}

static inline int64_t kv_elements(const struct attn_problem *p, int64_t d)
{
    return (p->lengths == ATTN_CACHE ? cache_rows(p) : k_rows(p)) * d;
}

static inline int64_t mask_elements(const struct attn_problem *p)
{
    if (p->mask_block == 0)
        return 0;
    return p->mask_batch * p->mask_heads * ((p->q_len + p->mask_block - 1) / p->mask_block) *
           ((p->kv_len + p->mask_block - 1) / p->mask_block);
}

static inline int64_t table_elements(const struct attn_problem *p)
{
    return p->page_size ? p->batch * ((p->kv_len + p->page_size - 1) / p->page_size) : 0;
}

static inline int64_t scale_elements(const struct attn_problem *p, bool is_kv)
{
    const int64_t per_block = p->scale_block ? p->scale_block : 1;
    const int64_t heads = is_kv ? p->kv_heads : p->q_heads, len = is_kv ? p->kv_len : p->q_len;
    return p->quant_scale ? p->batch * heads * (len + (is_kv ? p->total_k : p->total_q) / per_block + 1) : 0;
}

/* Problem number n of a sequence that crosses all attributes: lengths from 1 to 140 around 16, 64 and 128, groups,
 * windows, causal, dropout, softcap, block masks, packed sequences with empty ones, caches with and without pages, all
 * types, both layouts. */
static inline int64_t drawn_length(uint64_t *random)
{
    static const int64_t edges[] = {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129};
    return random_below(random, 2) ? edges[random_below(random, 11)] : 1 + (int64_t)random_below(random, 140);
}

static inline void draw_masks(struct attn_problem *p, uint64_t *random)
{
    p->causal = random_below(random, 2);
    p->window_left = random_below(random, 3) ? -1 : (int64_t)random_below(random, 80);
    p->window_right = random_below(random, 3) ? -1 : (int64_t)random_below(random, p->causal ? 1 : 80);
    p->softcap = random_below(random, 3) ? 0 : 0.5f + (float)random_below(random, 20);
    p->dropout = random_below(random, 3) ? 0 : 0.05f + 0.01f * (float)random_below(random, 80);
    p->dropout_seed = random_below(random, 65536) * 0x1234567891ull;
    if (random_below(random, 3) == 0) {
        p->mask_block = (int64_t)8 << random_below(random, 5);
        p->mask_batch = random_below(random, 2) ? p->batch : 1;
        p->mask_heads = random_below(random, 2) ? p->q_heads : 1;
    }
}

static inline void draw_type(struct attn_problem *p, uint64_t *random)
{
    p->dtype = (enum attn_dtype)random_below(random, 5);
    p->layout = random_below(random, 2) ? ATTN_BHSD : ATTN_BSHD;
    if (attn_dtype_is_8_bit(p->dtype)) {
        p->out_dtype = random_below(random, 2) ? ATTN_FP16 : ATTN_BF16;
        p->quant_scale = (enum attn_quant_scale)random_below(random, 4);
        p->scale_block = p->quant_scale == ATTN_SCALE_BLOCK ? (int64_t)16 << random_below(random, 3) : 0;
    }
}

static inline struct attn_problem drawn_problem(int number)
{
    uint64_t random = (uint64_t)number * 1000;
    struct attn_problem p = {.batch = 1 + random_below(&random, 4)};
    p.kv_heads = 1 + random_below(&random, 3);
    p.q_heads = p.kv_heads * (1 + random_below(&random, 3));
    p.q_len = drawn_length(&random);
    p.kv_len = drawn_length(&random);
    p.head_dim = 8 * (1 + (int64_t)random_below(&random, 5));
    p.scale = 1 / sqrtf((float)p.head_dim);
    draw_masks(&p, &random);
    draw_type(&p, &random);
    const uint32_t lengths = random_below(&random, 3);
    p.lengths = lengths == 0 ? ATTN_FIXED : lengths == 1 ? ATTN_PACKED : ATTN_CACHE;
    if (p.lengths == ATTN_CACHE) {
        p.kv_len += p.q_len;
        p.page_size = random_below(&random, 3) ? (int64_t)8 << random_below(&random, 3) : 0;
    }
    p.v_head_dim = random_below(&random, 4) ? 0 : 8 * (1 + (int64_t)random_below(&random, 5));
    p.has_sink = random_below(&random, 3) == 0;
    p.has_alibi = random_below(&random, 3) == 0;
    if (!p.has_alibi && random_below(&random, 3) == 0) {
        p.bias_batch = random_below(&random, 2) ? p.batch : 1;
        p.bias_heads = random_below(&random, 2) ? p.q_heads : 1;
        p.bias_dtype = random_below(&random, 2) ? ATTN_FP32 : attn_output_dtype(&p);
    }
    p.total_q = p.lengths == ATTN_CACHE && random_below(&random, 3) == 0; /* 1: rows are packed; `make` says how many */
    if (p.lengths == ATTN_CACHE && p.bias_heads == 0 && random_below(&random, 3) == 0) {
        p.dtype = random_below(&random, 2) ? ATTN_FP16 : ATTN_BF16;
        p.cache_dtype = random_below(&random, 2) ? ATTN_E4M3 : ATTN_E5M2;
        p.quant_scale = ATTN_SCALE_HEAD;
        p.scale_block = 0;
    }
    return p;
}

/* NaN behind the used keys of a cache. */
static inline void poison_cache(struct made *m)
{
    const struct attn_problem *p = &m->p;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->kv_heads; h++)
            for (int64_t j = m->t.seqused_k[b]; j < p->kv_len; j++) {
                const int64_t k = attn_key_offset(p, &m->t, m->t.k, b, h, j);
                const int64_t v = attn_key_offset(p, &m->t, m->t.v, b, h, j);
                for (int64_t c = 0; c < p->head_dim; c++)
                    fill_store(m->t.k.data, attn_kv_dtype(p), k + c, NAN);
                for (int64_t c = 0; c < attn_v_head_dim(p); c++)
                    fill_store(m->t.v.data, attn_kv_dtype(p), v + c, NAN);
            }
}

#define BASE(b, hq, hk, q, k, d, is_causal, left, right) \
    .batch = b, .q_heads = hq, .kv_heads = hk, .q_len = q, .kv_len = k, .head_dim = d, .causal = is_causal, \
    .window_left = left, .window_right = right, .scale = 0.3f
#define ANY BASE(3, 4, 2, 70, 90, 16, false, -1, -1)
#define CAUSAL BASE(3, 4, 2, 70, 90, 16, true, -1, -1)
#define DROPOUT .dropout = 0.3f, .dropout_seed = 0x123456789abcdefull
#define BIAS(planes, heads) .bias_batch = planes, .bias_heads = heads
#define PACKED .lengths = ATTN_PACKED
#define MIXED .lengths = ATTN_CACHE, .total_q = 1 /* new rows of several lengths; `make` says how many */
#define MASK(rows, planes, heads) .mask_block = rows, .mask_batch = planes, .mask_heads = heads
#define NARROW_CACHE(type, of_q) .cache_dtype = type, .dtype = of_q, .quant_scale = ATTN_SCALE_HEAD
#define EIGHT(type, mode, block) \
    .dtype = type, .out_dtype = ATTN_BF16, .quant_scale = ATTN_SCALE_##mode, .scale_block = block

#endif
