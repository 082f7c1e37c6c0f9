/* Whether the keys of the last work tiles of the sm_90 forward are shared out, and to how many parts each. An estimate
 * in keys: the time in which a thread block goes on by one key, about 12 ns with 128 rows of head_dim 128 and with 192
 * of 64 on an H100 or H200. In that time it computes 4 operations for each row and column of O, as many as O has bytes
 * in fp32, so that the times below hold for all tiles. docs/kernels/sm90_fwd.md. */
#include "kernels/sm90/fwd/tail.h"

#include <math.h>

enum {
    MOST_PARTS = 16, /* of a work tile */
    MOST_TURNS = 4,  /* parts for each multiprocessor: what they store stays in the L2, with 64 KB each */
    COUNTER_BYTES = 256
};

/* From as many bytes in the backward (PART_STEPS and ADD_UP_STEPS of bwd/parts.c, for 32 KB in units of 2.2 us). On an
 * H100 the gains that follow are right within 1 % of the time from 4k on; with one or two work tiles for each
 * multiprocessor the measured gain is up to 11 % of the time less (12 heads of head_dim 128 at 1536). */
static const double STORE_KEYS = 170;  /* of a part: storing O in fp32 */
static const double ADD_UP_KEYS = 130; /* reading it in the kernel behind, for each multiprocessor */
static const double BEHIND_KEYS = 200; /* of that kernel: its start, and waiting for the first parts; 2.5 us */
static const double LEAST_GAIN = 0.005;

static struct sm90_fwd_tail tail_with(int64_t tiles, int64_t left, int64_t key_blocks, int parts)
{
    return (struct sm90_fwd_tail){(int)(tiles - left), (int)left, parts, (int)(key_blocks / parts),
                                  (int)(key_blocks % parts)};
}

/* The time of the last work tiles with parts: turns of all multiprocessors, first those with a part that has a block
 * more. */
static double tail_keys(const struct sm90_fwd_tail *tail, const struct sm90_fwd_tail_tile *tile, double multiprocessors)
{
    const double turns = ceil((double)tail->works * tail->parts / multiprocessors);
    const double longer_turns = ceil((double)tail->works * tail->longer / multiprocessors);
    const double part = (double)tail->part_blocks * tile->block_n + tile->start + STORE_KEYS;

    return turns * part + longer_turns * tile->block_n +
           (double)tail->works * tail->parts / multiprocessors * ADD_UP_KEYS + BEHIND_KEYS;
}

struct sm90_fwd_full_work sm90_fwd_full_work_of(const struct attn_problem *p, const struct sm90_fwd_tail_tile *tile,
                                                int64_t multiprocessors)
{
    const struct sm90_fwd_tail none = {INT32_MAX, 0, 1, 0, 0};
    struct sm90_fwd_full_work best = {none, 0};
    const double heads = (double)p->batch * (double)p->q_heads;
    const double row_tiles = ceil((double)p->q_len / tile->block_m),
                 key_blocks = ceil((double)p->kv_len / tile->block_n);
    const double waves = ceil(row_tiles * heads / (double)multiprocessors);
    const double each = key_blocks * tile->block_n + tile->start; /* of a work tile */

    if (p->causal)
        return best;
    best.keys = waves * each;
    /* None where a wave less gains too little or a thread block has one work tile. Below, all numbers are within an
     * int. */
    if (!tile->has_parts || !(waves * LEAST_GAIN < 1) || row_tiles * heads < (double)multiprocessors)
        return best;
    const int64_t tiles = (int64_t)(row_tiles * heads), left = tiles % multiprocessors;
    const double most_keys = best.keys * (1 - LEAST_GAIN);
    if (left == 0)
        return best;
    for (int parts = 2; parts <= MOST_PARTS && parts <= key_blocks; ++parts) {
        const struct sm90_fwd_tail tail = tail_with(tiles, left, (int64_t)key_blocks, parts);
        const double keys = (waves - 1) * each + tail_keys(&tail, tile, (double)multiprocessors);
        if (left * parts > MOST_TURNS * multiprocessors)
            break;
        if (keys < most_keys && keys < best.keys)
            best = (struct sm90_fwd_full_work){tail, keys};
    }
    return best;
}

struct sm90_fwd_workspace sm90_fwd_workspace_of(const struct sm90_fwd_tail *tail, int64_t block_m, int64_t head_dim)
{
    const int64_t rows = tail->parts > 1 ? (int64_t)tail->works * tail->parts * block_m : 0;
    const int64_t o_bytes = rows * head_dim * (int64_t)sizeof(float), row_bytes = rows * (int64_t)sizeof(float);
    const int64_t part_max = COUNTER_BYTES + o_bytes; /* rows are a multiple of 64: all begin at one of 256 bytes */

    return (struct sm90_fwd_workspace){0, COUNTER_BYTES, part_max, part_max + row_bytes, part_max + 2 * row_bytes};
}
