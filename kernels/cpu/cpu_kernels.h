/* The inner routines of the CPU paths, one table per instruction set. kernels/cpu/tiles.h is their only source; tiles.c
 * compiles it over the vector type of each instruction set, and the best table that this processor can run is chosen at
 * run time.
 */
#ifndef FABENCH_CPU_KERNELS_H
#define FABENCH_CPU_KERNELS_H

#include "kernels/attention.h"

/* What the attributes of a problem need beyond the lengths of a sequence. */
struct cpu_place {
    const struct attn_problem *whole; /* with the longest lengths, by which a block mask is laid out */
    const uint8_t *block_mask;
    const float *alibi_slopes; /* of query head 0; NULL = none */
    const float *bias;         /* of the whole problem; NULL = none */
    float *dbias;              /* where dS is added; NULL = nowhere */
    struct attn_tensor strides, dbias_strides;
    int64_t batch, head; /* of the whole problem; of a backward column the first query head */
};

/* Where the keys of a sequence lie: one behind the other (table NULL), or in pages, and then k and v of a tile point at
 * the head in the first page. */
struct cpu_pages {
    const int32_t *table;       /* of this sequence */
    int64_t size;               /* rows of a page */
    int64_t k_stride, v_stride; /* from page to page */
};

/* Rows [row0, row0 + rows) of one query head against those of the keys [key0, key1) that they see. Tensors point at
 * their (batch, head); strides are those of a row. */
struct cpu_forward_tile {
    const struct attn_problem *problem; /* with the lengths of this sequence */
    struct cpu_place place;
    const float *q, *k, *v;
    float *o, *lse; /* lse: NULL = not wanted */
    float sink;     /* of the head; -inf = none */
    int64_t q_stride, k_stride, v_stride, o_stride;
    struct cpu_pages pages;
    int64_t row0, rows; /* rows <= cpu_kernels.forward_rows */
    int64_t key0, key1; /* key0: a multiple of cpu_kernels.forward_cols */
    float *scratch;     /* forward_scratch_floats, 64-byte aligned */
};

/* Keys [col0, col0 + cols) of one kv head against all rows of the query heads that share it. q, dout, dq, lse and delta
 * point at the first head of the group; *_head is the distance to the next one. */
struct cpu_backward_column {
    const struct attn_problem *problem; /* with the lengths of this sequence */
    struct cpu_place place;
    const float *q, *dout, *lse, *delta; /* delta[row] = sum of dO * O */
    const float *k, *v;                  /* at (batch, kv head) */
    float *dq, *dk, *dv;
    int64_t q_stride, dout_stride, dq_stride, q_head, dout_head, dq_head;
    int64_t lse_head; /* of lse and delta, whose rows lie together */
    int64_t k_stride, v_stride, dk_stride, dv_stride;
    int64_t group;      /* query heads per kv head */
    int64_t col0, cols; /* cols <= cpu_kernels.backward_cols */
    /* dq_semaphore[head * row_tiles + tile]: the number of the column tile that may add to these rows of dQ next.
     * Columns add in ascending order, so that dQ is the same sum whatever the number of threads. */
    int32_t *dq_semaphore;
    float *scratch; /* backward_scratch_floats, 64-byte aligned */
};

struct cpu_kernels {
    const char *name;
    int64_t forward_rows, forward_cols, backward_rows, backward_cols; /* the tiles */
    size_t (*forward_scratch_floats)(int64_t head_dim, int64_t v_head_dim);
    size_t (*backward_scratch_floats)(int64_t head_dim, int64_t v_head_dim);
    void (*forward_tile)(const struct cpu_forward_tile *);
    void (*backward_column)(const struct cpu_backward_column *);
    /* In place: x becomes exp(x - max) / sum of the same; returns ln sum exp(x). n >= 1. */
    float (*softmax_row)(float *x, int64_t n);
};

/* NULL where the program was built for another architecture or this processor lacks the instructions. */
const struct cpu_kernels *cpu_kernels_avx512(void);
const struct cpu_kernels *cpu_kernels_avx2(void);
const struct cpu_kernels *cpu_kernels_baseline(void); /* NEON on arm64, else 128-bit vectors; never NULL */

/* The best table for this processor. */
static inline const struct cpu_kernels *cpu_kernels_best(void)
{
    const struct cpu_kernels *kernels = cpu_kernels_avx512();
    if (!kernels)
        kernels = cpu_kernels_avx2();
    return kernels ? kernels : cpu_kernels_baseline();
}

/* What is added to S of an element behind the softcap. problem: with the lengths of the sequence. head: of the place.
 * */
static inline float cpu_added(const struct attn_problem *problem, const struct cpu_place *place, int64_t head,
                              int64_t row, int64_t key)
{
    if (place->bias)
        return place->bias[attn_bias_offset(place->whole, place->strides, place->batch, place->head + head, row) + key];
    return place->alibi_slopes ? -place->alibi_slopes[place->head + head] *
                                     (float)attn_alibi_distance(problem->q_len, problem->kv_len, row, key)
                               : 0.0f;
}

/* Whether scores need more than the mask of attn_visible. */
static inline bool cpu_has_attributes(const struct attn_problem *p)
{
    return p->dropout != 0.0f || p->softcap != 0.0f || p->mask_block != 0 || p->has_alibi || p->bias_heads > 0;
}

/* Keys that rows [row0, row0 + rows) may see: first key of the first row, last key of the last row (both grow with the
 * row). Empty when first > last. */
static inline void cpu_visible_columns(const struct attn_problem *p, int64_t row0, int64_t rows, int64_t *first,
                                       int64_t *last)
{
    int64_t ignored;
    attn_visible(p, row0, first, &ignored);
    attn_visible(p, row0 + rows - 1, &ignored, last);
}

/* Whether every one of these rows sees every key of [col0, col0 + cols). */
static inline bool cpu_sees_all(const struct attn_problem *p, int64_t row0, int64_t rows, int64_t col0, int64_t cols)
{
    int64_t first, last, ignored;
    attn_visible(p, row0, &ignored, &last);
    attn_visible(p, row0 + rows - 1, &first, &ignored);
    return first <= col0 && col0 + cols - 1 <= last;
}

/* FlashAttention-2's algorithm on the CPU, over threads (fused_cpu.c). */
extern const struct attn_impl attn_fused_cpu;

/* 8-bit inputs for implementations that compute in fp32 (widen.c): copies of Q, K and V in which each element is
 * multiplied by its scale, and an O in fp32 that is rounded to its type at the end. */

/* The problem in fp32, and tensors whose q, k, v and o lie in the workspace of cpu_widen. */
struct cpu_widened {
    struct attn_problem problem;
    struct attn_tensors tensors;
};

/* ATTN_OK for fp32, and for the forward of 8-bit inputs whose O is fp16 or bf16, where all outputs are wanted or all
 * but the LSE; else refuses with a sentence. */
enum attn_status cpu_accepts_types(const struct attn_request *, struct attn_message *why);

/* Whether the inputs are copied: those of 8 bits, and the 16-bit queries of an 8-bit cache. */
bool cpu_is_widened(const struct attn_problem *);

/* Bytes of the copies, a multiple of 64; 0 where the inputs are fp32. */
size_t cpu_widened_bytes(const struct attn_problem *);

/* Makes the copies; the keys of a cache become contiguous. `memory`: cpu_widened_bytes on a multiple of 4. */
void cpu_widen(const struct attn_request *, const struct attn_tensors *, void *memory, struct cpu_widened *);

/* Rounds O into the tensors of the caller. */
void cpu_narrow(const struct attn_request *, const struct cpu_widened *, const struct attn_tensors *);

#endif
