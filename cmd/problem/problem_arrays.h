/* The arrays of a problem beyond dense attention: sequences of different lengths, a cache and its pages, and a block
 * mask, made from the text that describes them on the command line and in records. Host memory. The same text, seed and
 * shape make the same arrays, so that supervisor, worker and a later run agree.
 *
 * Lengths (--lengths), where each sequence has a query length and a key length:
 *   fixed               all have --seqlen and --kv-len; no arrays
 *   uniform:LO:HI       both lengths of a sequence from LO to HI, drawn from the seed until the tokens are used up; the
 *                       last one is cut to fit
 *   lognormal:MEAN:SIGMA  the same with a log-normal distribution: MEAN tokens on average, SIGMA of the logarithm
 *   list:Q[xK][*N]:...  these, each N times; K = Q where it is not given
 *   @FILE               lines q_len[,kv_len]; empty lines and lines that begin with # are skipped
 *
 * Against a cache a sequence has one length, that of its cache: uniform and lognormal draw as many as there are
 * sequences, list:N:N and @FILE have them, fixed is --kv-len for all. list:QxK and lines with two lengths say the new
 * tokens of each sequence, too: packed rows. A cache in pages has them in an order drawn from the seed. One more page
 * belongs to no sequence; the table has it where a sequence needs no page.
 *
 * Block mask (--block-mask), blocks of --mask-block rows and keys, 1 = computed; block i of the rows and block i +
 * (blocks of keys - blocks of rows) of the keys lie on the diagonal:
 *   none
 *   random:DENSITY      each block with this probability, for each query head its own, for all sequences the same
 *   local:N             blocks at most N from the diagonal
 *   strided:N           every Nth block from the diagonal on
 *   @FILE.npy           uint8 or bool [batch or 1, q_heads or 1, blocks of q_len, blocks of kv_len]
 */
#ifndef FABENCH_PROBLEM_ARRAYS_H
#define FABENCH_PROBLEM_ARRAYS_H

#include "cmd/base/log.h"
#include "kernels/attention.h"

/* The arrays that a problem may have, as struct attn_tensors points to them. */
enum problem_array {
    ARRAY_CU_SEQLENS_Q,
    ARRAY_CU_SEQLENS_K,
    ARRAY_BLOCK_MASK,
    ARRAY_SEQUSED_K,
    ARRAY_PAGE_TABLE,
    ARRAY_SINK,
    ARRAY_ALIBI_SLOPES,
    ARRAY_COUNT
};

/* The longest text of lengths and masks, with its NUL. */
enum { PROBLEM_TEXT_SIZE = 256 };

struct problem_arrays {
    char lengths[PROBLEM_TEXT_SIZE], block_mask[PROBLEM_TEXT_SIZE]; /* "" = fixed, none */
    int32_t *cu_seqlens_q, *cu_seqlens_k;                           /* [batch + 1], owned; NULL = fixed lengths */
    int32_t *seqused_k;                                             /* [batch], owned; NULL = no cache */
    int32_t *page_table; /* [batch, ceil(kv_len / page_size)], owned; NULL = no pages */
    float *alibi_slopes; /* [q_heads], owned; NULL = none */
    float *sink;         /* [q_heads], owned; NULL = none */
    uint8_t *mask;       /* [mask_batch, mask_heads, blocks of q_len, blocks of kv_len], owned; NULL = none */
};

/* Gives the problem these lengths: lengths, batch, q_len, kv_len, total_q, total_k and the arrays of *a. total_tokens:
 * of all queries; 0 = no limit, for list and @FILE alone. False with a sentence that begins with the option. */
bool problem_set_lengths(struct attn_problem *, struct problem_arrays *a, const char *text, int64_t total_tokens,
                         uint64_t seed, struct reason *why);

/* Gives the problem, which has its q_len, page_size and, for "fixed", batch and kv_len, a cache: lengths, batch,
 * kv_len, pages and the arrays of *a; where the text says new tokens, q_len and total_q, too. A batch of 0: as many as
 * a list or a file has. False with a sentence that begins with the option. */
bool problem_set_cache(struct attn_problem *, struct problem_arrays *a, const char *text, uint64_t seed,
                       struct reason *why);

/* Pages of a cache, or blocks of a mask, over so many rows. */
static inline int64_t problem_blocks_of(int64_t len, int64_t block) { return (len + block - 1) / block; }

/* Gives the problem, which has its page_size and the lengths of its caches, its pages: those that sequences use, in an
 * order drawn from the seed, and behind them the page of nobody. */
void problem_set_pages(struct attn_problem *, struct problem_arrays *a, uint64_t seed);

/* Gives the problem, which has its lengths and heads, this block mask. False with a sentence. */
bool problem_set_block_mask(struct attn_problem *, struct problem_arrays *a, const char *text, int64_t mask_block,
                            uint64_t seed, struct reason *why);

/* Gives the problem with a sink the values of `path` (.npy, fp32 [q_heads]) or, where it is NULL, N(0,1) from the seed.
 * False with a sentence that begins with the option. */
bool problem_set_sink(const struct attn_problem *, struct problem_arrays *a, const char *path, uint64_t seed,
                      struct reason *why);

/* Gives the problem with ALiBi its slopes, 2^(-8 (h + 1) / q_heads). */
void problem_set_alibi(const struct attn_problem *, struct problem_arrays *a);

/* The array and its bytes, NULL and 0 where the problem has none; `a` may be NULL. */
const void *problem_array(const struct attn_problem *, const struct problem_arrays *a, enum problem_array,
                          size_t *bytes);

/* The tensors with pointers to these arrays, which must live as long. */
void problem_point_at(struct attn_tensors *, const void *const arrays[ARRAY_COUNT]);

/* The keys of all sequences together; of a cache those that are used. */
double problem_used_keys(const struct attn_problem *, const struct problem_arrays *);

/* Visible (row, key) pairs of all sequences and query heads. A causal square counts as exactly half, by the papers'
 * convention, where there is no block mask. */
double problem_pairs(const struct attn_problem *, const struct problem_arrays *);

void problem_arrays_free(struct problem_arrays *);

#endif
