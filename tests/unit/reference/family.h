/* Problems with attributes beyond dense attention for tests: their tensors and arrays, made from a seed, and the
 * oracle's outputs. */
#ifndef FABENCH_TEST_FAMILY_H
#define FABENCH_TEST_FAMILY_H

#include "tests/unit/reference/golden_family.h"

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
    return p->q_heads * (p->lengths == ATTN_PACKED ? p->total_q : p->batch * p->q_len);
}

static inline int64_t k_rows(const struct attn_problem *p)
{
    return p->kv_heads * (p->lengths == ATTN_PACKED ? p->total_k : p->batch * p->kv_len);
}

enum { OUTPUTS = 9 };

static inline void list_outputs(struct reference_outputs *x, float **list[OUTPUTS])
{
    float **const all[OUTPUTS] = {&x->o,     &x->lse,    &x->dq,     &x->dk,    &x->dv,
                                  &x->o_abs, &x->dq_abs, &x->dk_abs, &x->dv_abs};
    memcpy(list, all, sizeof all);
}

static inline int64_t output_elements(const struct attn_problem *p, int output)
{
    static const bool is_kv[OUTPUTS] = {false, false, false, true, true, false, false, true, true};
    return output == 1 ? q_rows(p) : (is_kv[output] ? k_rows(p) : q_rows(p)) * p->head_dim;
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

/* Contiguous; rows of the batch and of the heads as the lengths mean. */
static inline struct attn_tensor make_tensor(struct made *m, enum attn_dtype dtype, int64_t batch, int64_t heads,
                                             int64_t len, enum fill_tensor id)
{
    static float table[FILL_TABLE_SIZE];
    float gain;
    const int64_t d = m->p.head_dim;
    struct attn_tensor t = {.stride_batch = heads * len * d, .stride_head = d, .stride_row = heads * d};
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
    p->pages = p->batch * per;
    for (int64_t i = 0; i < p->pages; i++) /* 7 and the number of pages have no common divisor */
        table[i] = (int32_t)(7 * i % p->pages);
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

static inline struct made make(const struct attn_problem *problem)
{
    struct made m = {.p = *problem};
    struct attn_problem *p = &m.p;
    uint64_t random = 1;
    int64_t batch = p->batch, kv_batch = p->batch, q_len = p->q_len, kv_len = p->kv_len;
    if (p->lengths == ATTN_PACKED) {
        m.t.cu_seqlens_q = make_lengths(&m, &random, p->q_len, &p->total_q);
        m.t.cu_seqlens_k = make_lengths(&m, &random, p->kv_len, &p->total_k);
        batch = kv_batch = 1;
        q_len = p->total_q;
        kv_len = p->total_k;
    } else if (p->lengths == ATTN_CACHE) {
        make_cache(&m, &random);
        kv_batch = p->page_size ? p->pages : p->batch;
        kv_len = p->page_size ? p->page_size : p->kv_len;
    }
    if (p->mask_block)
        make_mask(&m, &random);
    if (p->quant_scale) {
        const int64_t per_block = p->scale_block ? p->scale_block : 1;
        m.t.scale_q = make_scales(&m, &random, p->batch * p->q_heads * (p->q_len + p->total_q / per_block + 1));
        m.t.scale_k = make_scales(&m, &random, p->batch * p->kv_heads * (p->kv_len + p->total_k / per_block + 1));
        m.t.scale_v = make_scales(&m, &random, p->batch * p->kv_heads * (p->kv_len + p->total_k / per_block + 1));
    }
    m.t.q = make_tensor(&m, p->dtype, batch, p->q_heads, q_len, FILL_Q);
    m.t.k = make_tensor(&m, p->dtype, kv_batch, p->kv_heads, kv_len, FILL_K);
    m.t.v = make_tensor(&m, p->dtype, kv_batch, p->kv_heads, kv_len, FILL_V);
    m.t.dout = make_tensor(&m, attn_output_dtype(p), batch, p->q_heads, q_len, FILL_DO);
    return m;
}

static inline void made_free(struct made *m)
{
    for (int i = 0; i < m->count; i++)
        free(m->memory[i]);
}

#define BASE(b, hq, hk, q, k, d, is_causal, left, right)                                                               \
    .batch = b, .q_heads = hq, .kv_heads = hk, .q_len = q, .kv_len = k, .head_dim = d, .causal = is_causal,            \
    .window_left = left, .window_right = right, .scale = 0.3f
#define ANY BASE(3, 4, 2, 70, 90, 16, false, -1, -1)
#define CAUSAL BASE(3, 4, 2, 70, 90, 16, true, -1, -1)
#define DROPOUT .dropout = 0.3f, .dropout_seed = 0x123456789abcdefull
#define PACKED .lengths = ATTN_PACKED
#define MASK(rows, planes, heads) .mask_block = rows, .mask_batch = planes, .mask_heads = heads
#define EIGHT(type, mode, block)                                                                                       \
    .dtype = type, .out_dtype = ATTN_BF16, .quant_scale = ATTN_SCALE_##mode, .scale_block = block

#endif
