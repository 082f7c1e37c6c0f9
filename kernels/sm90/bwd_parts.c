/* How many thread blocks of fused_sm90's backward share the steps of a tile of keys: an estimate. The blocks are put on
 * the multiprocessors in the order of their numbers, each on the one that is free first, as the hardware does. Times
 * are in steps of the main kernel, about 2.2 us on an H200; docs/kernels/sm90_bwd.md, step 27, has the measurements. */
#include "kernels/sm90/bwd_parts.h"

#include <limits.h>

#include "kernels/common/dispatch.h"

enum {
    MAX_MULTIPROCESSORS = 256,
    MAX_WAVES = 8,    /* with more blocks than this for each multiprocessor their order leaves little to gain */
    MOST_PARTS = 64,  /* of a tile */
    FLOATS = 128 * 64 /* of dK and dV of a tile of keys: the unit of PART_STEPS */
};

static const double BLOCK_STEPS = 2.0;   /* loading K and V, the first step, storing dK and dV */
static const double PART_STEPS = 0.5;    /* what storing FLOATS in fp32 takes longer */
static const double ADD_UP_STEPS = 0.35; /* reading them in the kernel behind, for each multiprocessor */

/* Times at which the multiprocessors are free, as a heap: the first one is the smallest. */
struct free_times {
    double at[MAX_MULTIPROCESSORS];
    int count;
};

static void take_first(struct free_times *times, double steps)
{
    const double now = times->at[0] + steps;
    int hole = 0;

    for (int child = 1; child < times->count; child = 2 * hole + 1) {
        if (child + 1 < times->count && times->at[child + 1] < times->at[child])
            ++child;
        if (times->at[child] >= now)
            break;
        times->at[hole] = times->at[child];
        hole = child;
    }
    times->at[hole] = now;
}

/* Steps of a tile of keys: tiles of queries that see any of its keys, of all heads of the group. */
static int steps_of(const struct fused_sm90_bwd_params *p, int kv_tile)
{
    const int first_tile = sm90_bwd_first_tile(kv_tile * SM90_BWD_KV_TILE, p->causal, p->shift, p->q_len, p->kv_len,
                                               p->q_tile, p->q_tiles);

    return (p->q_tiles - first_tile) * p->group;
}

/* The time with parts of at most part_steps steps, where storing a part takes `store` and reading it again `add_up`. */
static double time_of(const struct fused_sm90_bwd_params *p, int part_steps, double store, double add_up,
                      int multiprocessors)
{
    struct free_times times = {.count = multiprocessors};
    int64_t stored = 0;
    double last = 0;

    for (int first_head = 0; first_head < p->kv_heads_total; first_head += p->section_heads) {
        const int left = p->kv_heads_total - first_head, heads = left < p->section_heads ? left : p->section_heads;
        for (int kv_tile = 0; kv_tile < p->kv_tiles; ++kv_tile) {
            const int steps = steps_of(p, kv_tile), parts = sm90_bwd_part_count(steps, part_steps);
            const double time = (double)steps / (double)parts + BLOCK_STEPS + (parts > 1 ? store : 0);
            for (int64_t block = 0; block < (int64_t)heads * parts; ++block)
                take_first(&times, time);
            stored += parts > 1 ? (int64_t)heads * parts : 0;
        }
    }
    for (int i = 0; i < times.count; ++i)
        last = times.at[i] > last ? times.at[i] : last;
    return last + (double)stored * add_up / multiprocessors;
}

struct sm90_bwd_parts sm90_bwd_choose_parts(const struct fused_sm90_bwd_params *p, int head_dim, int multiprocessors)
{
    const int sms = multiprocessors < 1                     ? 1
                    : multiprocessors < MAX_MULTIPROCESSORS ? multiprocessors
                                                            : MAX_MULTIPROCESSORS;
    const int64_t tiles = (int64_t)p->kv_tiles * p->kv_heads_total;
    const int most_steps = steps_of(p, 0);
    const double units = 2.0 * SM90_BWD_KV_TILE * head_dim / FLOATS;
    struct sm90_bwd_parts best = {most_steps, 1};

    if (tiles >= (int64_t)MAX_WAVES * sms || most_steps > INT_MAX / 2) /* sm90_bwd_part_count adds to them */
        return best;
    double best_time = time_of(p, most_steps, 0, 0, sms);
    for (int parts = 2; parts <= MOST_PARTS && parts <= most_steps / 2; parts += parts / 4 + 1) {
        const int part_steps = (int)attn_tiles(most_steps, parts);
        if (tiles * parts > 2 * (int64_t)MAX_WAVES * sms)
            break;
        const double time = time_of(p, part_steps, units * PART_STEPS, units * ADD_UP_STEPS, sms);
        if (time < best_time) {
            best_time = time;
            best = (struct sm90_bwd_parts){part_steps, sm90_bwd_part_count(most_steps, part_steps)};
        }
    }
    return best;
}
