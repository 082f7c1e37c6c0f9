/* Some sequences of a problem as a problem of their own. */
#include "cmd/problem/problem_sequences.h"

#include <stdlib.h>
#include <string.h>

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* The number of the lengths that follow each other from [b] to [b + 1]. */
static int64_t length_at(const int32_t *cu_seqlens, int64_t b) { return cu_seqlens[b + 1] - cu_seqlens[b]; }

/* The array of the lengths of these sequences; *longest and *total of them. NULL where they are too many tokens. */
static int32_t *take_cu_seqlens(const int32_t *from, const int64_t *sequences, int64_t count, int64_t *longest,
                                int64_t *total)
{
    *longest = *total = 0;
    for (int64_t i = 0; i < count; i++) {
        *longest = larger(*longest, length_at(from, sequences[i]));
        *total += length_at(from, sequences[i]);
    }
    if (*total > INT32_MAX)
        return NULL;
    int32_t *to = xcalloc((unsigned long)count + 1, sizeof *to);
    for (int64_t i = 0; i < count; i++)
        to[i + 1] = to[i] + (int32_t)length_at(from, sequences[i]);
    return to;
}

/* Lengths, and the longest ones, of the new problem. False where it has no row or no key. */
static bool take_lengths(const struct problem_arrays *from, const int64_t *sequences, int64_t count,
                         struct attn_problem *to, struct problem_arrays *arrays)
{
    if (from && from->cu_seqlens_q) {
        arrays->cu_seqlens_q = take_cu_seqlens(from->cu_seqlens_q, sequences, count, &to->q_len, &to->total_q);
        if (!arrays->cu_seqlens_q || to->total_q == 0)
            return false;
    }
    if (from && from->cu_seqlens_k) {
        arrays->cu_seqlens_k = take_cu_seqlens(from->cu_seqlens_k, sequences, count, &to->kv_len, &to->total_k);
        if (!arrays->cu_seqlens_k || to->total_k == 0)
            return false;
    }
    if (to->lengths != ATTN_CACHE)
        return true;
    arrays->seqused_k = xcalloc((unsigned long)count, sizeof *arrays->seqused_k);
    to->kv_len = 0;
    for (int64_t i = 0; i < count; i++) {
        arrays->seqused_k[i] = from->seqused_k[sequences[i]];
        to->kv_len = larger(to->kv_len, arrays->seqused_k[i]);
    }
    return to->kv_len > 0;
}

/* The blocks of the mask that belong to these sequences: of each plane those of the longest lengths. */
static void take_mask(const struct attn_problem *p, const uint8_t *mask, const int64_t *sequences,
                      struct attn_problem *to, struct problem_arrays *arrays)
{
    const int64_t block = p->mask_block, all_rows = problem_blocks_of(p->q_len, block),
                  all_keys = problem_blocks_of(p->kv_len, block);
    const int64_t rows = problem_blocks_of(to->q_len, block), keys = problem_blocks_of(to->kv_len, block);
    to->mask_batch = p->mask_batch > 1 ? to->batch : 1;
    arrays->mask = xcalloc((unsigned long)(to->mask_batch * to->mask_heads * rows * keys), 1);
    for (int64_t b = 0; b < to->mask_batch; b++)
        for (int64_t h = 0; h < to->mask_heads; h++)
            for (int64_t i = 0; i < rows; i++) {
                const int64_t plane = (p->mask_batch > 1 ? sequences[b] : 0) * p->mask_heads + h;
                memcpy(arrays->mask + ((b * to->mask_heads + h) * rows + i) * keys,
                       mask + (plane * all_rows + i) * all_keys, (size_t)keys);
            }
}

static float *copy_of_heads(const float *from, int64_t heads)
{
    float *to = from ? xmalloc((unsigned long)heads * sizeof *to) : NULL;
    return from ? memcpy(to, from, (size_t)heads * sizeof *to) : NULL;
}

bool problem_take_sequences(const struct attn_problem *p, const struct problem_arrays *from, const int64_t *sequences,
                            int64_t count, int64_t page_size, uint64_t seed, struct attn_problem *to,
                            struct problem_arrays *arrays)
{
    *to = *p;
    memset(arrays, 0, sizeof *arrays);
    to->batch = count;
    to->bias_batch = p->bias_batch > 1 ? count : p->bias_batch;
    to->pages = to->page_size = 0;
    if (!take_lengths(from, sequences, count, to, arrays)) {
        problem_arrays_free(arrays);
        return false;
    }
    if (to->lengths == ATTN_CACHE && page_size > 0) {
        to->page_size = page_size;
        problem_set_pages(to, arrays, seed);
    }
    if (p->mask_block > 0)
        take_mask(p, from->mask, sequences, to, arrays);
    if (from) {
        arrays->sink = copy_of_heads(from->sink, p->q_heads);
        arrays->alibi_slopes = copy_of_heads(from->alibi_slopes, p->q_heads);
    }
    return true;
}
