/* The problems of `fabench verify`: hard shapes, what real kernels got wrong (section 6 of docs/design.md). */
#include "cmd/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/problem/problem.h"
#include "cmd/problem/problem_key.h"

static const int64_t verify_dims[] = {64, 128};
#define DIMS_CACHE ((int64_t)DIMS_CACHE_V << 32 | DIMS_CACHE_QK) /* dims_of, as a constant */
#define DIMS_192_128 (INT64_C(128) << 32 | 192)

/* One shape; each is crossed with modes, masks, dtypes and head dims. */
struct hard_shape {
    int64_t batch, q_heads, kv_heads, q_len, kv_len;
    enum fill_dist dist;
    enum attn_layout layout;
    bool quick;     /* also in --preset quick, the set for a sanitizer */
    bool cuda_only; /* too slow for the CPU oracle */
    int64_t batch_gap;
};

static const struct hard_shape shapes[] = {
    /* Lengths around the tiles of 64 and 128, and primes. */
    {1, 1, 1, 1, 1, FILL_NORMAL, ATTN_BSHD, true, false, 0},
    {2, 2, 2, 63, 63, FILL_NORMAL, ATTN_BHSD, false, false, 0},
    {1, 2, 2, 64, 64, FILL_NORMAL, ATTN_BSHD, false, false, 0},
    {1, 2, 2, 65, 65, FILL_NORMAL, ATTN_BSHD, true, false, 0},
    {1, 2, 2, 127, 127, FILL_NORMAL, ATTN_BSHD, false, false, 0},
    {1, 2, 2, 128, 128, FILL_NORMAL, ATTN_BHSD, false, false, 0},
    {2, 3, 3, 129, 129, FILL_NORMAL, ATTN_BSHD, true, false, 0},
    {1, 2, 2, 251, 251, FILL_NORMAL, ATTN_BSHD, false, false, 0},
    {1, 1, 1, 1021, 1021, FILL_NORMAL, ATTN_BSHD, false, false, 0},
    /* q_len and kv_len differ; with the causal mask and q_len > kv_len some rows see no key. */
    {1, 2, 2, 1, 257, FILL_NORMAL, ATTN_BSHD, true, false, 0},
    {1, 2, 2, 257, 1, FILL_NORMAL, ATTN_BSHD, true, false, 0},
    {2, 2, 2, 113, 203, FILL_NORMAL, ATTN_BHSD, false, false, 0},
    {1, 2, 2, 203, 113, FILL_NORMAL, ATTN_BSHD, true, false, 0},
    {1, 2, 2, 64, 700, FILL_NORMAL, ATTN_BSHD, false, false, 0},
    {1, 2, 2, 700, 64, FILL_NORMAL, ATTN_BHSD, false, false, 0},
    /* Shared key heads. */
    {2, 4, 2, 190, 190, FILL_NORMAL, ATTN_BSHD, true, false, 0},
    {1, 6, 1, 129, 255, FILL_NORMAL, ATTN_BHSD, false, false, 0},
    {1, 32, 8, 300, 300, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    /* More work tiles than an H200 has multiprocessors, so that a persistent block takes several of them, also of
     * different key blocks: tiles of rows in the forward, of keys in the backward. With 430 keys a tile of 128
     * has several steps, the last one has keys in its first half alone, and work tiles of fused_sm90's backward
     * write zeros in the sums of dQ. */
    {1, 136, 34, 70, 130, FILL_NORMAL, ATTN_BSHD, true, true, 0},
    {1, 272, 68, 70, 130, FILL_NORMAL, ATTN_BSHD, true, true, 0},
    {5, 30, 30, 330, 430, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    {5, 16, 4, 700, 900, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    /* Full, fused_sm90's forward on an H200: the last work tiles in parts, with both head dims. With 1960 queries the
     * last tile of a head has 64 rows and more behind the last query, with 1300 keys the last block is not whole. */
    {1, 18, 6, 1960, 1300, FILL_NORMAL, ATTN_BHSD, false, true, 0},
    {1, 18, 18, 2100, 1300, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    /* Causal, fused_sm90's backward on an H200: tiles of keys in parts of one size and rests; in equal parts in turns,
     * as the queries of the key head exceed the L2. */
    {4, 24, 2, 137, 655, FILL_NORMAL, ATTN_BSHD, true, true, 0},
    {1, 32, 1, 7700, 200, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    /* Full, fused_sm90's backward on an H200, where blocks take one work tile after the other: the last work tiles in
     * parts, of one query head and of three for each key head, and key heads in sections. */
    {1, 8, 8, 2100, 2150, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    {1, 24, 8, 700, 2150, FILL_NORMAL, ATTN_BSHD, true, true, 0},
    /* Few queries, fused_sm90's backward on an H200: blocks that keep them. With 690 keys they have four or five tiles
     * of keys, begin within a head and end in another, and the last tile has keys in its first half alone; with 2030
     * each head has four blocks with four tiles. */
    {3, 30, 30, 100, 690, FILL_NORMAL, ATTN_BSHD, true, true, 0},
    {2, 16, 16, 128, 2030, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    /* Hard values. */
    {1, 2, 2, 257, 257, FILL_SHARP, ATTN_BSHD, false, false, 0},
    {1, 2, 2, 257, 257, FILL_HUGE, ATTN_BSHD, true, false, 0},
    {1, 2, 2, 257, 257, FILL_PEAK, ATTN_BSHD, true, false, 0},
    {1, 4, 2, 130, 301, FILL_PEAK, ATTN_BHSD, false, false, 0},
    {1, 2, 2, 257, 257, FILL_CONSTANT, ATTN_BSHD, true, false, 0},
    {1, 2, 2, 257, 257, FILL_TINY, ATTN_BSHD, false, false, 0},
    {1, 2, 2, 257, 257, FILL_ZEROS, ATTN_BSHD, false, false, 0},
    {1, 1, 1, 1, 257, FILL_CONSTANT, ATTN_BSHD, false, false, 0},
    /* Many heads (grid limits), long sequences, element offsets past 2^31. */
    {70000, 1, 1, 5, 5, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    {1, 2, 2, 4096, 4096, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    {1, 1, 1, 16384, 16384, FILL_NORMAL, ATTN_BSHD, false, true, 0},
    {2, 2, 2, 130, 130, FILL_NORMAL, ATTN_BSHD, false, true, (INT64_C(1) << 31) + 64},
};

/* Shapes beyond dense attention; each is crossed like the others. Windows are around the diagonal of the bottom
 * right; a window to the right runs without the causal mask alone. */
struct family_shape {
    struct hard_shape shape;
    int64_t window_left, window_right;
    struct problem_attributes attributes;
};

static const struct family_shape family_shapes[] = {
    /* Two keys, the diagonal as an edge, both edges in one tile, edges at and around tiles, rows that see nothing, a
     * window beyond all keys. */
    {{1, 2, 2, 129, 129, FILL_NORMAL, ATTN_BSHD, true, false, 0}, 1, 0, {.dropout = 0}},
    {{1, 2, 2, 129, 140, FILL_NORMAL, ATTN_BSHD, false, false, 0}, 0, 3, {.dropout = 0}},
    {{1, 4, 2, 190, 257, FILL_NORMAL, ATTN_BHSD, false, false, 0}, 5, 3, {.dropout = 0}},
    {{1, 2, 1, 257, 300, FILL_NORMAL, ATTN_BSHD, false, false, 0}, 127, -1, {.dropout = 0}},
    {{1, 2, 2, 300, 300, FILL_NORMAL, ATTN_BSHD, false, false, 0}, 128, 0, {.dropout = 0}},
    {{2, 2, 2, 203, 113, FILL_NORMAL, ATTN_BSHD, true, false, 0}, 16, -1, {.dropout = 0}},
    {{1, 2, 2, 130, 130, FILL_NORMAL, ATTN_BSHD, false, false, 0}, INT32_MAX, 1, {.dropout = 0}},
    {{1, 2, 2, 257, 257, FILL_PEAK, ATTN_BSHD, false, false, 0}, 64, -1, {.dropout = 0}},
    /* Softcap: far below the logits, among them, above them; with a window and dropout. */
    {{1, 4, 2, 190, 190, FILL_NORMAL, ATTN_BSHD, true, false, 0}, -1, -1, {.softcap = 0.5}},
    {{1, 2, 2, 257, 257, FILL_SHARP, ATTN_BSHD, false, false, 0}, 100, -1, {.softcap = 5}},
    {{2, 2, 2, 113, 203, FILL_NORMAL, ATTN_BHSD, false, false, 0}, -1, -1, {.softcap = 50, .dropout = 0.1}},
    /* Dropout, with grouped heads, several sequences, a window. */
    {{2, 4, 2, 190, 190, FILL_NORMAL, ATTN_BSHD, true, false, 0}, -1, -1, {.dropout = 0.1, .dropout_seed = 3}},
    {{1, 2, 2, 113, 203, FILL_NORMAL, ATTN_BHSD, false, false, 0}, -1, -1, {.dropout = 0.9, .dropout_seed = 1}},
    {{1, 2, 1, 257, 257, FILL_NORMAL, ATTN_BSHD, false, false, 0}, 32, -1, {.dropout = 0.5, .dropout_seed = 1}},
    /* A dS so small without its factor 1 / (1 - p) that fp16 has it as a denormal number; a P of 1 in every row, which
     * with that factor is rounded alike everywhere. */
    {{1, 2, 2, 2048, 2048, FILL_NORMAL, ATTN_BSHD, false, true, 0}, -1, -1, {.dropout = 0.999, .dropout_seed = 1}},
    {{1, 70, 5, 64, 64, FILL_HUGE, ATTN_BSHD, false, true, 0}, -1, -1, {.dropout = 0.1, .dropout_seed = 1}},
    /* So many tiles of queries or keys that a kernel which lists them makes its list in several sections. */
    {{1, 4, 2, 33000, 70, FILL_NORMAL, ATTN_BSHD, false, true, 0}, -1, -1, {.dropout = 0.1, .dropout_seed = 1}},
    {{1, 2, 1, 70, 33000, FILL_NORMAL, ATTN_BSHD, false, true, 0}, 32900, -1, {.dropout = 0}},
    /* More pairs of work tiles than an H200 has pairs of multiprocessors, and the second tile of a head's last pair
     * has no rows: pairs of thread blocks of fused_sm90's forward, if they are asked for (--impl). */
    {{1, 24, 8, 1650, 1700, FILL_NORMAL, ATTN_BSHD, false, true, 0}, -1, -1, {.dropout = 0}},
    /* A window with whole tiles between edges that are wider than a tile. */
    {{1, 2, 1, 777, 900, FILL_NORMAL, ATTN_BSHD, false, false, 0}, 500, 150, {.dropout = 0}},
    /* So many key heads that fused_sm80's backward has four sections of them or more where the L2 has up to 60 MB, and
     * blocks with pieces of the passes before and after it, both kinds at both head dims. */
    {{26, 64, 16, 250, 260, FILL_NORMAL, ATTN_BSHD, false, true, 0}, 100, 20, {.dropout = 0}},
};

/* Each tensor with strides of its own, so that one that is read or written by those of another gives another result. */
static const struct hard_shape strided_shapes[] = {
    {2, 4, 2, 129, 190, FILL_NORMAL, ATTN_BSHD, true, false, 0},
    {2, 2, 2, 203, 113, FILL_NORMAL, ATTN_BHSD, false, false, 0},
};

/* Logits with a common part, from where it costs digits to what served models have been seen with. */
static const struct mean_shape {
    struct hard_shape shape;
    double logit_mean;
} mean_shapes[] = {
    {{1, 2, 2, 129, 129, FILL_NORMAL, ATTN_BSHD, true, false, 0}, -500},
    {{1, 4, 2, 130, 257, FILL_NORMAL, ATTN_BHSD, false, false, 0}, -2000},
    {{1, 2, 2, 257, 257, FILL_NORMAL, ATTN_BSHD, false, false, 0}, 20000},
    {{1, 2, 1, 190, 190, FILL_NORMAL, ATTN_BSHD, true, false, 0}, -20000},
};

/* Caches: one key, whole and begun pages, pages smaller and larger than tiles, sequences that use little or all of the
 * table, as many keys as new tokens, new tokens over several tiles, windows, dropout, softcap. Not crossed with the
 * modes; causal unless --causal says otherwise. */
static const struct hard_cache {
    struct hard_shape shape;
    const char *lengths;
    int64_t window_left;
    struct problem_attributes attributes;
    int64_t dims; /* dims_of; 0 = verify_dims */
} cache_shapes[] = {
    {{1, 2, 2, 1, 1, FILL_NORMAL, ATTN_BSHD, true, false, 0}, "fixed", -1, {.page_size = 8}, 0},
    {{3, 4, 2, 1, 300, FILL_NORMAL, ATTN_BSHD, true, false, 0}, "list:300:1:129", -1, {.page_size = 16}, 0},
    {{2, 8, 1, 1, 257, FILL_NORMAL, ATTN_BHSD, true, false, 0}, "list:257:128", -1, {.page_size = 0}, 0},
    {{4, 2, 2, 5, 260, FILL_NORMAL, ATTN_BSHD, false, false, 0}, "list:5:64:65:260", -1, {.page_size = 64}, 0},
    {{1, 2, 1, 1, 4096, FILL_NORMAL, ATTN_BSHD, false, false, 0}, "fixed", -1, {.page_size = 128}, 0},
    {{2, 4, 4, 130, 390, FILL_PEAK, ATTN_BHSD, false, false, 0}, "list:130:390", -1, {.page_size = 256}, 0},
    {{3, 2, 1, 3, 200, FILL_NORMAL, ATTN_BSHD, false, false, 0}, "list:200:7:129", 50, {.dropout = 0.3}, 0},
    {{2, 4, 1, 2, 333, FILL_SHARP, ATTN_BSHD, false, false, 0}, "list:333:40", 127, {.softcap = 5, .page_size = 24}, 0},
    /* V in the first columns of K: one query for many heads, in pages and not, several new tokens; V of another head
     * dim in memory of its own. */
    {{2, 16, 1, 1, 300, FILL_NORMAL, ATTN_BSHD, true, false, 0}, "list:300:65", -1, {.page_size = 16}, DIMS_CACHE},
    {{3, 8, 1, 3, 190, FILL_NORMAL, ATTN_BSHD, false, false, 0}, "list:190:3:64", -1, {.page_size = 0}, DIMS_CACHE},
    {{1, 128, 1, 2, 130, FILL_PEAK, ATTN_BHSD, false, false, 0}, "fixed", 50, {.page_size = 64}, DIMS_CACHE},
    {{2, 4, 2, 1, 257, FILL_NORMAL, ATTN_BSHD, false, false, 0}, "list:257:128", -1, {.page_size = 16}, DIMS_192_128},
    /* Sinks, which count once however the keys are split. */
    {{3, 8, 2, 1, 700, FILL_NORMAL, ATTN_BSHD, true, false, 0},
     "list:700:1:65",
     -1,
     {.page_size = 16, .has_sink = true},
     0},
    {{2, 4, 1, 3, 190, FILL_NORMAL, ATTN_BHSD, false, false, 0}, "list:190:3", 30, {.has_sink = true}, 0},
    {{3, 8, 2, 2, 300, FILL_NORMAL, ATTN_BSHD, false, false, 0},
     "list:300:2:129",
     -1,
     {.page_size = 16, .has_alibi = true},
     0},
    /* Chunks of a prefill beside single new tokens, sequences without one and without a key, a chunk that is its whole
     * cache, chunks over several tiles; in pages and not, with a window, a sink, dropout, and V in the columns of K. */
    {{5, 4, 2, 1, 1, FILL_NORMAL, ATTN_BSHD, true, false, 0},
     "list:130x390:1x257:0x0:64x64:0x7",
     -1,
     {.page_size = 16},
     0},
    {{4, 8, 1, 1, 1, FILL_PEAK, ATTN_BHSD, false, false, 0}, "list:1x64:129x200:1x1:7x65", -1, {.page_size = 0}, 0},
    {{3, 4, 4, 1, 1, FILL_NORMAL, ATTN_BSHD, false, false, 0},
     "list:65x300:1x190:128x128",
     70,
     {.page_size = 64, .dropout = 0.2, .dropout_seed = 1, .has_sink = true},
     0},
    {{3, 8, 1, 1, 1, FILL_NORMAL, ATTN_BSHD, false, false, 0},
     "list:20x190:1x300:0x64",
     -1,
     {.page_size = 16},
     DIMS_CACHE},
};

/* 8-bit K and V beside 16-bit Q and O: one new token in pages and not, chunks of a prefill, V in the columns of K. */
static const struct hard_cache narrow_caches[] = {
    {{3, 8, 2, 1, 300, FILL_NORMAL, ATTN_BSHD, true, false, 0}, "list:300:1:129", -1, {.page_size = 16}, 0},
    {{2, 4, 4, 5, 260, FILL_SHARP, ATTN_BHSD, false, false, 0}, "list:260:64", 50, {.page_size = 0}, 0},
    {{3, 4, 2, 1, 1, FILL_NORMAL, ATTN_BSHD, false, false, 0},
     "list:130x390:1x257:64x64",
     -1,
     {.page_size = 64, .has_sink = true},
     0},
    {{2, 16, 1, 1, 190, FILL_NORMAL, ATTN_BSHD, false, false, 0}, "list:190:65", -1, {.page_size = 16}, DIMS_CACHE},
};

/* Packed sequences and block masks; crossed like the others, but for the head dim, which says nothing about them. q_len
 * and kv_len of packed sequences are those of the list. */
struct hard_arrays {
    struct hard_shape shape;
    int64_t head_dim;
    const char *lengths, *block_mask; /* "" = fixed, none */
    int64_t mask_block, window_left, window_right;
    double dropout;
};

static const struct hard_arrays array_shapes[] = {
    /* Sequences of no token and of one, first and among others; one long beside many short ones; q_len and kv_len
     * differ, and one of them is 0; windows, in lengths that are shorter and longer than they are; dropout, which
     * counts from the beginning of a sequence. */
    {{1, 2, 2, 1, 1, FILL_NORMAL, ATTN_BSHD, true, false, 0}, 64, "list:0:1:129:0:1:64", "", 0, -1, -1, 0},
    {{1, 2, 1, 1, 1, FILL_NORMAL, ATTN_BSHD, false, false, 0}, 128, "list:1:7:260:1:2:1:5:3:1:64:2", "", 0, -1, -1, 0},
    {{1, 2, 1, 1, 1, FILL_NORMAL, ATTN_BHSD, true, false, 0}, 64, "list:70x130:99x7:0x50:60x0", "", 0, -1, -1, 0},
    {{1, 2, 2, 1, 1, FILL_NORMAL, ATTN_BSHD, false, false, 0}, 128, "list:129:1:65:37", "", 0, 16, 3, 0},
    {{1, 2, 1, 1, 1, FILL_NORMAL, ATTN_BSHD, false, false, 0}, 64, "list:100x40:1x65:64x128", "", 0, 50, -1, 0.3},
    /* Blocks of rows that see no key; one visible block in all, and few keys in it; a mask for each head, and lengths
     * that are no multiple of its blocks; with a window; of packed sequences. */
    {{1, 2, 2, 203, 113, FILL_NORMAL, ATTN_BSHD, true, false, 0}, 128, "", "local:0", 64, -1, -1, 0},
    {{1, 2, 1, 40, 300, FILL_NORMAL, ATTN_BHSD, false, false, 0}, 64, "", "local:0", 128, -1, -1, 0},
    {{2, 2, 1, 130, 200, FILL_NORMAL, ATTN_BSHD, true, false, 0}, 128, "", "random:0.3", 64, -1, -1, 0},
    {{1, 2, 2, 150, 150, FILL_NORMAL, ATTN_BSHD, false, false, 0}, 64, "", "strided:3", 16, 40, -1, 0},
    {{1, 2, 2, 1, 1, FILL_NORMAL, ATTN_BSHD, false, false, 0}, 128, "list:130:0:99x70", "random:0.5", 64, -1, -1, 0.1},
    /* Lists of visible tiles in several sections, of which some are empty: the only visible blocks are far apart. */
    {{1, 4, 2, 33000, 130, FILL_NORMAL, ATTN_BSHD, false, true, 0}, 64, "", "random:0.4", 64, -1, -1, 0},
    {{1, 4, 2, 33000, 130, FILL_NORMAL, ATTN_BSHD, false, true, 0}, 128, "", "local:0", 128, -1, -1, 0},
    {{1, 2, 2, 200, 66000, FILL_NORMAL, ATTN_BSHD, false, true, 0}, 64, "", "random:0.4", 128, -1, -1, 0},
    {{1, 2, 1, 200, 33000, FILL_NORMAL, ATTN_BHSD, false, true, 0}, 128, "", "strided:300", 64, -1, -1, 0},
    /* Blocks as large as tiles, whose edges the diagonal cuts: rows with a first key in either of two blocks. */
    {{2, 4, 2, 300, 390, FILL_NORMAL, ATTN_BHSD, true, false, 0}, 64, "", "random:0.5", 128, -1, -1, 0},
};

/* What is asked beyond the tables above; crossed like them, with the head dims of `beyond` where it has some. */
#define NO_WINDOW .window_left = -1, .window_right = -1
static const struct {
    struct hard_shape shape;
    struct attn_problem beyond; /* bias_batch: an enum problem_bias */
} beyond_shapes[] = {
    /* V and O narrower and wider than Q and K: lengths at and beside tiles, groups, rows that see nothing, dropout, and
     * pairs that are no tiles of any kernel. */
    {{1, 2, 2, 129, 129, FILL_NORMAL, ATTN_BSHD, true, false, 0}, {.head_dim = 192, .v_head_dim = 128, NO_WINDOW}},
    {{2, 4, 2, 113, 203, FILL_NORMAL, ATTN_BHSD, false, false, 0}, {.head_dim = 192, .v_head_dim = 128, NO_WINDOW}},
    {{1, 4, 1, 203, 113, FILL_NORMAL, ATTN_BSHD, true, false, 0}, {.head_dim = 64, .v_head_dim = 128, NO_WINDOW}},
    {{1, 2, 2, 257, 257, FILL_PEAK, ATTN_BSHD, false, false, 0}, {.head_dim = 128, .v_head_dim = 64, NO_WINDOW}},
    {{1, 2, 1, 65, 190, FILL_NORMAL, ATTN_BSHD, false, false, 0},
     {.head_dim = 96, .v_head_dim = 72, NO_WINDOW, .dropout = 0.2f, .dropout_seed = 1}},
    {{1, 8, 2, 2048, 2048, FILL_NORMAL, ATTN_BSHD, false, true, 0}, {.head_dim = 192, .v_head_dim = 128, NO_WINDOW}},
    /* Sinks: beside one key and many, of rows that see nothing, far below and above the logits, with a window whose
     * tiles are skipped, with dropout and a softcap, over several sequences, which dSink sums over. */
    {{1, 2, 2, 1, 1, FILL_NORMAL, ATTN_BSHD, true, false, 0}, {.has_sink = true, NO_WINDOW}},
    {{2, 4, 2, 129, 129, FILL_NORMAL, ATTN_BSHD, true, false, 0}, {.has_sink = true, NO_WINDOW}},
    {{1, 4, 1, 203, 113, FILL_NORMAL, ATTN_BHSD, true, false, 0}, {.has_sink = true, NO_WINDOW}},
    {{1, 2, 2, 257, 257, FILL_HUGE, ATTN_BSHD, false, false, 0}, {.has_sink = true, NO_WINDOW}},
    {{3, 2, 1, 257, 300, FILL_NORMAL, ATTN_BSHD, false, false, 0},
     {.has_sink = true, .window_left = 16, .window_right = -1, .dropout = 0.1f, .dropout_seed = 1, .softcap = 5}},
    {{1, 8, 2, 2048, 2048, FILL_NORMAL, ATTN_BSHD, false, true, 0},
     {.has_sink = true, .window_left = 128, .window_right = -1}},
    /* ALiBi: keys before and behind the diagonal, distances beside a softcap and a window, grouped heads. */
    {{1, 4, 4, 129, 129, FILL_NORMAL, ATTN_BSHD, true, false, 0}, {.has_alibi = true, NO_WINDOW}},
    {{2, 6, 2, 113, 203, FILL_NORMAL, ATTN_BHSD, false, false, 0}, {.has_alibi = true, NO_WINDOW}},
    {{1, 4, 1, 203, 113, FILL_NORMAL, ATTN_BSHD, true, false, 0}, {.has_alibi = true, NO_WINDOW, .softcap = 5}},
    {{1, 8, 2, 2048, 2048, FILL_NORMAL, ATTN_BSHD, false, true, 0},
     {.has_alibi = true, .window_left = 300, .window_right = -1, .dropout = 0.1f, .dropout_seed = 1}},
    /* A bias of each head and sequence and shared ones, whose dBias is a sum, rows that end within 16 bytes, beside a
     * softcap, a sink, dropout and a window. */
    {{2, 4, 2, 129, 131, FILL_NORMAL, ATTN_BSHD, true, false, 0}, {.bias_batch = BIAS_FULL, NO_WINDOW}},
    {{3, 4, 1, 113, 203, FILL_NORMAL, ATTN_BHSD, false, false, 0},
     {.bias_batch = BIAS_HEADS, NO_WINDOW, .softcap = 5, .has_sink = true}},
    {{2, 4, 4, 203, 113, FILL_NORMAL, ATTN_BSHD, false, false, 0},
     {.bias_batch = BIAS_BATCH, .window_left = 40, .window_right = -1, .dropout = 0.1f, .dropout_seed = 1}},
    {{1, 4, 2, 1100, 1500, FILL_NORMAL, ATTN_BSHD, false, true, 0}, {.bias_batch = BIAS_HEADS, NO_WINDOW}},
};

const char *const plan_strides_names[] = {[PLAN_CONTIGUOUS] = "contiguous",
                                          [PLAN_PACKED_QKV] = "packed_qkv",
                                          [PLAN_PADDED_ROWS] = "padded_rows",
                                          [PLAN_OWN_STRIDES] = "own_strides",
                                          NULL};

/* The name of a sweep and what may differ between the shapes: "bwd-full-d-64-n-257-fp16-b-1-h-2x2-peak-bshd". */
void plan_name_whole(struct plan_item *item)
{
    const struct attn_problem *p = &item->problem;
    problem_print(p, item->mode, item->name, sizeof item->name);
    plan_name_more(item, " b=%lld h=%lldx%lld %s %s%s", (long long)p->batch, (long long)p->q_heads,
                   (long long)p->kv_heads, problem_dist_name(item->dist), problem_layout_name(p->layout),
                   item->batch_gap ? " far" : "");
    if (item->strides)
        plan_name_more(item, " %s", plan_strides_names[item->strides]);
    plan_name_more(item, "%s", item->is_captured ? " graph" : "");
    if (item->logit_mean != 0)
        plan_name_more(item, " mean %g", item->logit_mean);
    if (item->splits)
        plan_name_more(item, " splits %lld", (long long)item->splits);
    plan_name_attributes(item);
}

/* The seed of the problem with this key: whatever else is in the plan, a key and --seed name one set of inputs. */
static uint64_t seed_of_key(const struct options *o, const char *key)
{
    return number_mix_text(number_mix(o->seed), key) & INT64_MAX; /* what --seed takes */
}

/* Without its name and its seed. */
static struct plan_item item_of_shape(const struct options *o, const struct hard_shape *shape,
                                      const struct attn_problem *beyond, const struct attn_problem *kind,
                                      enum attn_mode mode, bool causal, int64_t dims)
{
    struct plan_item item = {.mode = mode,
                             .dist = shape->dist,
                             .batch_gap = shape->batch_gap,
                             .deterministic = o->deterministic,
                             .hadamard = o->hadamard && attn_dtype_is_8_bit(kind->dtype),
                             .repeats = o->repeats};
    struct attn_problem *p = &item.problem;
    *p = *beyond;
    p->batch = shape->batch;
    p->q_heads = shape->q_heads;
    p->kv_heads = shape->kv_heads;
    p->q_len = shape->q_len;
    p->kv_len = shape->kv_len;
    p->head_dim = dims_qk(dims);
    p->v_head_dim = dims_v(dims);
    p->dtype = kind->dtype;
    p->out_dtype = kind->out_dtype;
    p->quant_scale = kind->quant_scale;
    p->scale_block = kind->scale_block;
    p->cache_dtype = kind->cache_dtype;
    p->layout = shape->layout;
    p->causal = causal;
    p->scale = isnan(o->scale) ? (float)(1.0 / sqrt((double)p->head_dim)) : (float)o->scale;
    problem_set_bias(p, (enum problem_bias)beyond->bias_batch);
    return item;
}

/* What the arrays of a problem are made of; "" = fixed, none. */
struct array_texts {
    const char *lengths, *block_mask;
    int64_t mask_block;
};

/* Makes the arrays, the key and the seed of the item, and adds it. The key is that of a problem with its arrays, whose
 * lengths no seed decides; so it is known before the seed that draws pages, masks and sinks. */
static void add_item(const struct options *o, struct plan_item *item, const struct array_texts *texts,
                     struct plan *plan)
{
    struct reason why;
    struct plan scratch = {.items = NULL};
    struct plan_item named = *item;
    const bool is_named =
        plan_set_arrays(&scratch, &named, texts->lengths, 0, texts->block_mask, texts->mask_block, &why);
    FABENCH_ASSERT(is_named, "%s", why.text);
    plan_name_whole(&named);
    memcpy(item->name, named.name, sizeof item->name);
    item->seed = seed_of_key(o, item->name);
    plan_free(&scratch);
    const bool good = plan_set_arrays(plan, item, texts->lengths, 0, texts->block_mask, texts->mask_block, &why);
    FABENCH_ASSERT(good, "%s", why.text);
    plan_add(plan, item);
}

/* Names a problem without arrays of its own again, when it has got more that belongs to its key. */
static void name_again(const struct options *o, struct plan_item *item)
{
    plan_name_whole(item);
    item->seed = seed_of_key(o, item->name);
}

/* arrays: NULL = none. */
static void add_shape(const struct options *o, const struct hard_shape *shape, const struct hard_arrays *arrays,
                      const struct attn_problem *beyond, const struct attn_problem *kind, enum attn_mode mode,
                      bool causal, int64_t head_dim, struct plan *plan)
{
    struct plan_item item = item_of_shape(o, shape, beyond, kind, mode, causal, head_dim);
    const struct array_texts texts = {arrays ? arrays->lengths : "", arrays ? arrays->block_mask : "",
                                      arrays ? arrays->mask_block : 0};
    add_item(o, &item, &texts, plan);
}

/* A shape with each mode, mask, head dim and kind of the options. */
static void cross_shape(const struct options *o, enum attn_platform platform, const struct hard_shape *shape,
                        const struct hard_arrays *arrays, const struct attn_problem *beyond,
                        const struct attn_problem *kinds, int kind_count, struct plan *plan)
{
    const int64_t own = arrays             ? arrays->head_dim
                        : beyond->head_dim ? dims_of(beyond->head_dim, beyond->v_head_dim)
                                           : 0;
    const int64_t *const dims = o->head_dims.count ? o->head_dims.values : own ? &own : verify_dims;
    const int dim_count = o->head_dims.count ? o->head_dims.count : own ? 1 : 2;
    if ((o->preset == PRESET_QUICK && !shape->quick) || (platform == ATTN_CPU && shape->cuda_only))
        return;
    for (int i = 0; i < 4; i++) {
        const enum attn_mode mode = (enum attn_mode)(i & 1);
        const bool causal = i >> 1 & 1;
        for (int d = 0; d < dim_count; d++)
            for (int k = 0; k < kind_count; k++)
                if (o->modes[mode] && dims_qk(dims[d]) <= 256 &&
                    !(attn_dtype_is_8_bit(kinds[k].dtype) && mode == ATTN_BWD) && o->causal[causal] &&
                    !(causal && beyond->window_right > 0))
                    add_shape(o, shape, arrays, beyond, &kinds[k], mode, causal, dims[d], plan);
    }
}

static void add_arrays(const struct options *o, enum attn_platform platform, const struct attn_problem *kinds,
                       int kind_count, struct plan *plan)
{
    for (size_t s = 0; s < sizeof array_shapes / sizeof array_shapes[0]; s++) {
        const struct hard_arrays *arrays = &array_shapes[s];
        struct attn_problem beyond = {.window_left = arrays->window_left, .window_right = arrays->window_right};
        problem_set_attributes(&(struct problem_attributes){.dropout = arrays->dropout}, &beyond);
        cross_shape(o, platform, &arrays->shape, arrays, &beyond, kinds, kind_count, plan);
    }
}

static void add_family_shapes(const struct options *o, enum attn_platform platform, const struct attn_problem *kinds,
                              int kind_count, struct plan *plan)
{
    for (size_t s = 0; s < sizeof family_shapes / sizeof family_shapes[0]; s++) {
        const struct family_shape *row = &family_shapes[s];
        struct attn_problem beyond = {.window_left = row->window_left, .window_right = row->window_right};
        problem_set_attributes(&row->attributes, &beyond);
        cross_shape(o, platform, &row->shape, NULL, &beyond, kinds, kind_count, plan);
    }
}

static void add_strided_shapes(const struct options *o, enum attn_platform platform, const struct attn_problem *kinds,
                               int kind_count, struct plan *plan)
{
    const struct attn_problem dense = {.window_left = -1, .window_right = -1};
    const int first = plan->count;
    for (size_t s = 0; s < sizeof strided_shapes / sizeof strided_shapes[0]; s++)
        cross_shape(o, platform, &strided_shapes[s], NULL, &dense, kinds, kind_count, plan);
    for (int i = first; i < plan->count; i++) {
        plan->items[i].strides = PLAN_OWN_STRIDES;
        name_again(o, &plan->items[i]);
    }
}

static void add_mean_shapes(const struct options *o, enum attn_platform platform, const struct attn_problem *kinds,
                            int kind_count, struct plan *plan)
{
    const struct attn_problem dense = {.window_left = -1, .window_right = -1};
    for (size_t s = 0; s < sizeof mean_shapes / sizeof mean_shapes[0]; s++) {
        const int first = plan->count;
        cross_shape(o, platform, &mean_shapes[s].shape, NULL, &dense, kinds, kind_count, plan);
        for (int i = first; i < plan->count; i++) {
            plan->items[i].logit_mean = mean_shapes[s].logit_mean;
            name_again(o, &plan->items[i]);
        }
    }
}

static void add_beyond(const struct options *o, enum attn_platform platform, const struct attn_problem *kinds,
                       int kind_count, struct plan *plan)
{
    for (size_t s = 0; s < sizeof beyond_shapes / sizeof beyond_shapes[0]; s++)
        cross_shape(o, platform, &beyond_shapes[s].shape, NULL, &beyond_shapes[s].beyond, kinds, kind_count, plan);
}

static void add_cache(const struct options *o, const struct hard_cache *cache, const struct attn_problem *kind,
                      bool causal, int64_t dims, struct plan *plan)
{
    struct attn_problem beyond = {.lengths = ATTN_CACHE, .window_left = cache->window_left, .window_right = -1};
    problem_set_attributes(&cache->attributes, &beyond);
    struct plan_item item = item_of_shape(o, &cache->shape, &beyond, kind, ATTN_FWD, causal, dims);
    add_item(o, &item, &(struct array_texts){cache->lengths, "", 0}, plan);
}

/* Rows of caches for one dtype and its scales. */
static void cross_caches(const struct options *o, const struct hard_cache *rows, int count,
                         const struct attn_problem *kind, struct plan *plan)
{
    if (o->mode_given && !o->modes[MODE_DECODE])
        return;
    for (int s = 0; s < count; s++) {
        const int64_t *const dims = o->head_dims.count ? o->head_dims.values
                                    : rows[s].dims     ? &rows[s].dims
                                                       : verify_dims;
        const int dim_count = o->head_dims.count ? o->head_dims.count : rows[s].dims ? 1 : 2;
        for (int n = 0; n < 2 * dim_count; n++) {
            const bool causal = n < dim_count;
            if ((o->preset == PRESET_QUICK && !rows[s].shape.quick) || !(o->causal_given ? o->causal[causal] : causal))
                continue;
            add_cache(o, &rows[s], kind, causal, dims[n % dim_count], plan);
        }
    }
}

/* Where the dtype is that of Q: 16 bits, also on a CPU, whose implementations take them beside such a cache alone. */
static void add_narrow_caches(const struct options *o, enum attn_dtype dtype, struct plan *plan)
{
    static const enum attn_dtype caches[] = {ATTN_E4M3, ATTN_E5M2};
    const bool is_wanted = o->dtypes_given ? o->dtypes[dtype] : true;
    for (int c = 0; c < 2 && is_wanted && (dtype == ATTN_FP16 || dtype == ATTN_BF16); c++) {
        const struct attn_problem kind = {.dtype = dtype, .cache_dtype = caches[c], .quant_scale = ATTN_SCALE_HEAD};
        cross_caches(o, narrow_caches, sizeof narrow_caches / sizeof narrow_caches[0], &kind, plan);
    }
}

/* True when the words of `part` follow each other in `name`; words have - between them. */
static bool has_words(const char *name, const char *part)
{
    const size_t length = strlen(part);
    for (const char *at = name; (at = strstr(at, part)); at++)
        if ((at == name || at[-1] == '-') && (at[length] == '\0' || at[length] == '-'))
            return true;
    return false;
}

/* Does every word of `words` stand in the line that the table of verify prints for this problem, as
 * "4x2/2x129x129x128 bhsd full w16,3 fp32 normal bwd"? */
static bool is_printed(const struct options *o, const struct plan_item *item, const char *words)
{
    const struct problem_key key = plan_item_key(item, o->l2);
    char shape[160], mask[80], dist[80], line[400];
    snprintf(line, sizeof line, " %s %s %s %s %s ", problem_key_shape(&key, shape, sizeof shape),
             problem_key_mask(&key, mask, sizeof mask), problem_dtype_name(key.dtype),
             problem_key_dist(&key, dist, sizeof dist), problem_mode_name(key.mode));
    for (const char *at = words + strspn(words, " "); *at; at += strspn(at, " ")) {
        const int length = (int)strcspn(at, " ");
        char word[120];
        if (snprintf(word, sizeof word, " %.*s ", length, at) >= (int)sizeof word || !strstr(line, word))
            return false;
        at += length;
    }
    return *words != '\0';
}

/* --only: removes all other problems. One that has the whole key is taken alone. */
static int keep_only(const struct options *o, struct plan *plan)
{
    int kept = 0;
    bool is_whole = false;
    for (int i = 0; i < plan->count; i++)
        is_whole |= strcmp(plan->items[i].name, o->only) == 0;
    for (int i = 0; i < plan->count; i++)
        if (is_whole ? strcmp(plan->items[i].name, o->only) == 0
                     : has_words(plan->items[i].name, o->only) || is_printed(o, &plan->items[i], o->only))
            plan->items[kept++] = plan->items[i];
    plan->count = kept;
    if (kept)
        return EXIT_OK;
    log_error("--only %s: no problem has this key, nor these words in it; fabench verify --dry-run prints the keys%s",
              o->only, o->outputs_dir ? " with the same --outputs" : ", and --dtype, --mode, --causal, --d add some");
    return EXIT_USAGE;
}

/* The problems of --outputs. */
static int make_outputs(const struct options *o, struct plan *plan)
{
    int status = plan_add_dump(o, "--outputs", o->outputs_dir, plan);
    if (status == EXIT_OK && plan->count == 0) {
        log_error("--outputs %s: neither it nor a folder in it has a tensors.json with a problem, as --dump writes it",
                  o->outputs_dir);
        status = EXIT_IO;
    }
    return status;
}

/* --invariance: removes what has no other batch with the same results, and tensors that are far apart, whose copies
 * would be of several GB. */
static void keep_forwards(struct plan *plan)
{
    enum { GAP_MAX = 1 << 20 };
    int kept = 0;
    for (int i = 0; i < plan->count; i++) {
        const struct plan_item *item = &plan->items[i];
        if (item->mode == ATTN_FWD && item->problem.dropout == 0.0f && item->batch_gap <= GAP_MAX)
            plan->items[kept++] = *item;
    }
    plan->count = kept;
}

static int finish_plan(const struct options *o, int status, struct plan *plan)
{
    if (status == EXIT_OK && o->invariance)
        keep_forwards(plan);
    if (status == EXIT_OK && o->only)
        status = keep_only(o, plan);
    if (status != EXIT_OK)
        plan_free(plan);
    return status;
}

static bool is_wanted_dtype(const struct options *o, enum attn_platform platform, enum attn_dtype dtype)
{
    return o->dtypes_given ? o->dtypes[dtype]
                           : !attn_dtype_is_8_bit(dtype) && (platform == ATTN_CPU) == (dtype == ATTN_FP32);
}

int plan_make_verify(const struct options *o, enum attn_platform platform, struct plan *plan)
{
    static const enum attn_dtype dtypes[] = {ATTN_FP16, ATTN_BF16, ATTN_FP32, ATTN_E4M3, ATTN_E5M2};
    memset(plan, 0, sizeof *plan);
    plan->warmup_ms = plan->min_time_ms = plan->max_noise_pct = NAN; /* nothing is timed */
    plan->preset = o->preset == PRESET_QUICK ? "quick" : "verify";
    if (o->q_lens.count || o->kv_lens.count || o->batches.count || o->heads.count || o->kv_heads.count) {
        log_error(
            "verify brings its own shapes: --seqlen, --kv-len, --batch, --heads and --kv-heads belong to the sweep");
        return EXIT_USAGE;
    }
    if (o->outputs_dir)
        return finish_plan(o, make_outputs(o, plan), plan);
    if (o->random_count) {
        plan->preset = "random";
        for (int64_t n = 0; n < o->random_count; n++)
            plan_random_add(o, platform, n, plan);
        return finish_plan(o, EXIT_OK, plan);
    }
    for (int t = 0; t < 5; t++) {
        struct attn_problem kinds[PLAN_KINDS_MAX];
        const int kind_count = plan_kinds_of(o, dtypes[t], kinds);
        if (!is_wanted_dtype(o, platform, dtypes[t]))
            continue;
        for (size_t n = 0; n < sizeof shapes / sizeof shapes[0]; n++)
            cross_shape(o, platform, &shapes[n], NULL, &(struct attn_problem){.window_left = -1, .window_right = -1},
                        kinds, kind_count, plan);
        add_family_shapes(o, platform, kinds, kind_count, plan);
        for (int k = 0; k < kind_count; k++)
            cross_caches(o, cache_shapes, sizeof cache_shapes / sizeof cache_shapes[0], &kinds[k], plan);
        add_arrays(o, platform, kinds, kind_count, plan);
        add_strided_shapes(o, platform, kinds, kind_count, plan);
        if (!attn_dtype_is_8_bit(dtypes[t]))
            add_mean_shapes(o, platform, kinds, kind_count, plan);
        add_beyond(o, platform, kinds, kind_count, plan);
    }
    for (int t = 0; t < 5; t++)
        add_narrow_caches(o, dtypes[t], plan);
    return finish_plan(o, EXIT_OK, plan);
}
