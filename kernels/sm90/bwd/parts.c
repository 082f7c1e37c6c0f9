/* What follows from the problem, and how many thread blocks share the steps of a tile of keys. That is an estimate: the
 * blocks are put on the multiprocessors in the order of their numbers, each on the one that is free first, as the
 * hardware does. Times are in long steps (geometry.h), about 2.2 us on an H200; docs/kernels/sm90_bwd.md,
 * "Which tile". */
#include "kernels/sm90/bwd/parts.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/common/dispatch.h"
#include "kernels/common/makespan.h"

enum {
    MAX_WAVES = 8,            /* with more blocks than this for each multiprocessor their order leaves little to gain */
    FLOATS = 128 * 64,        /* of dK and dV of a tile of keys: the unit of PART_STEPS */
    AVERAGED = 256,           /* work tiles of a head, at most, of which the average time is taken */
    KEPT = 8,                 /* choices */
    CONTENDED_TILES = 16,     /* dQ is contended with so many tiles of keys for each 128 queries and 16 more */
    FINENESS = 16,            /* sizes of parts that are tried differ by 1/16: about 4 % from the best at most */
    MOST_TAIL_PARTS = 32,     /* of one of the last work tiles */
    MOST_SHORT_PARTS = 32768, /* of all tiles of blocks that drift apart: their sums take up to 4 GB */
    MOST_AGES = 8             /* sections of sm90_bwd_order at the same time, if they have more than one head */
};

static const double PART_STEPS = 0.5;        /* what storing FLOATS in fp32 takes longer */
static const double ADD_UP_STEPS = 0.35;     /* reading them in the kernel behind, for each multiprocessor */
static const double WAIT_STEPS = 0.18;       /* waiting there for a part, or for as many as are read at the same time */
static const double FIND_STEPS = 0.35;       /* of a block with SM90_BWD_WHOLE_PARTS, finding its part */
static const double CONTENTION_STEPS = 0.75; /* of a block that is no pair, where dQ is contended */
static const double HEAD_STEPS = 0.78; /* of a block that keeps its queries, until those of a new head are there */
/* How much longer steps take for each size of the L2 that blocks which drift apart come to read at the same time, at
 * head_dim 128; half as much at 64. */
static const double DRIFT = 0.075;
/* Heads are few where there are fewer than this times those that keep all multiprocessors busy (balanced_sections). */
enum { FEW_HEADS = 4 };
/* Between the starts of two work tiles of a kv head that wait for each other, at most; and more where two tiles of
 * queries share a semaphore, which is released later. */
static const double START_STEPS = 4.5, SHARED_START_STEPS = 0.5;

/* Q, dO and the sums of dQ of a kv head. */
static int64_t query_bytes(const struct sm90_bwd_shape *s, int64_t head_dim)
{
    return (int64_t)s->group * s->q_len * head_dim * (2 + 2 + 4);
}

/* Sections of causal heads of one query head each begin with blocks that are longer than others. The last one has to be
 * so full that its first block ends with the others: of the numbers from two thirds of `heads` on this is the one that
 * leaves the fullest last section. Where all heads are few beside those that keep all multiprocessors busy for as long
 * as the longest block takes, sections have as many as that. docs/kernels/sm90_bwd.md, "Order of work". */
static int balanced_sections(const struct sm90_bwd_shape *s, int heads, int multiprocessors)
{
    const int all = s->kv_heads_total;
    int best = heads;
    double most_filled = 0, head_steps = 0;

    if (!s->causal || s->group > 1)
        return heads;
    for (int tried = heads; tried >= 1 && 3 * tried >= 2 * heads; --tried) {
        const double filled = ((all - 1) % tried + 1) / (double)tried;
        if (filled > most_filled) {
            most_filled = filled;
            best = tried;
        }
    }
    for (int tile = 0; tile < s->kv_tiles; ++tile)
        head_steps += sm90_bwd_steps(s, tile);
    const double busy = head_steps > 0 ? multiprocessors * (double)sm90_bwd_steps(s, 0) / head_steps : 0;
    if (all >= FEW_HEADS * busy || busy <= best)
        return best;
    const int sections = all > busy ? (int)(all / busy) : 1;
    return (all + sections - 1) / sections;
}

/* KV heads whose blocks run at the same time. They are few, so that Q, dO and dq_sum, which take a third of the L2 at
 * most, are still there when the next block of keys uses them: up to eight query heads, two at least. All heads are one
 * section where those tensors take two thirds of the L2 at most and either blocks differ in length (causal), so that
 * the longest ones of all heads come first, or dQ is contended, so that blocks add to different rows. Deterministic,
 * they are more, as blocks of one head wait for each other and with more heads there is more time between the starts of
 * two of them. docs/kernels/sm90_bwd.md, "Order of work". */
static int section_heads(const struct sm90_bwd_shape *s, int64_t head_dim, bool deterministic,
                         const struct attn_device *device)
{
    const int64_t third = (int64_t)(device->l2_bytes / 3), head_bytes = query_bytes(s, head_dim),
                  all = s->kv_heads_total;
    const int q_least = !deterministic ? 2 : s->causal ? 32 : 8, q_most = !deterministic ? 8 : s->causal ? 64 : 32;
    const int64_t fit = (deterministic && s->causal ? 2 * third : third) / head_bytes;
    const int64_t least = q_least / s->group, most = q_most / s->group;

    if ((s->causal || s->contended) && all * head_bytes <= 2 * third)
        return s->kv_heads_total;
    const int64_t heads = fit < least ? least : fit > most ? most : fit;
    const int64_t fitting = heads < 1 ? 1 : heads > all ? all : heads;
    return deterministic ? (int)fitting : balanced_sections(s, (int)fitting, device->multiprocessors);
}

struct sm90_bwd_shape sm90_bwd_shape_of(const struct attn_problem *p, const struct sm90_bwd_q_tile *q_tile,
                                        bool deterministic, const struct attn_device *device)
{
    struct sm90_bwd_shape s = {
        .shift = (int)(p->kv_len - p->q_len),
        .q_len = (int)p->q_len,
        .kv_len = (int)p->kv_len,
        .group = (int)(p->q_heads / p->kv_heads),
        .q_tile = *q_tile,
        .q_tiles = (int)attn_tiles(p->q_len, q_tile->queries),
        .kv_tiles = (int)attn_tiles(p->kv_len, SM90_BWD_KV_TILE),
        .kv_heads_total = (int)(p->batch * p->kv_heads),
        .causal = p->causal,
        .in_order = deterministic,
    };

    s.contended = p->head_dim == 64 && s.kv_tiles >= CONTENDED_TILES * (attn_tiles(p->q_len, 128) * s.group + 1);
    s.section_heads = section_heads(&s, p->head_dim, deterministic, device); /* reads the members above */
    s.query_l2s = (double)query_bytes(&s, p->head_dim) / (double)device->l2_bytes;
    return s;
}

int sm90_bwd_steps(const struct sm90_bwd_shape *s, int kv_tile)
{
    const int first_tile = sm90_bwd_first_tile(kv_tile * SM90_BWD_KV_TILE, s->causal, s->shift, s->q_len, s->kv_len,
                                               s->q_tile.queries, s->q_tiles);

    return (s->q_tiles - first_tile) * s->group;
}

bool sm90_bwd_fits(const struct sm90_bwd_shape *s) { return !s->q_tile.keeps_queries || s->q_tiles * s->group == 1; }

int sm90_bwd_work_tiles(const struct sm90_bwd_shape *s) { return (int)attn_tiles(s->kv_tiles, s->q_tile.cluster); }

int sm90_bwd_early_tiles(const struct sm90_bwd_shape *s, int64_t work_tiles, int clusters)
{
    const int64_t early = s->causal && !s->q_tile.keeps_queries ? work_tiles - 2 * (int64_t)clusters : work_tiles;

    return early < 0 ? 0 : (int)early;
}

/* The time of a work tile whose part is not stored for itself. */
static double block_time(const struct sm90_bwd_shape *s, double steps)
{
    return steps * (s->q_tile.step_time / 100.0) + s->q_tile.block_time / 100.0 +
           (s->contended && s->q_tile.cluster == 1 && !s->q_tile.keeps_queries ? CONTENTION_STEPS : 0);
}

/* Beside that, of a block's first work tile; and, where it keeps its queries, of the heads that begin later. */
static double start_time(const struct sm90_bwd_shape *s, int clusters)
{
    return s->q_tile.start_time / 100.0 + (s->q_tile.keeps_queries ? HEAD_STEPS * s->kv_heads_total / clusters : 0);
}

/* The steps of a work tile without parts, `work` of its kv head: those of its first tile of keys. */
static int work_steps(const struct sm90_bwd_shape *s, int work) { return sm90_bwd_steps(s, work * s->q_tile.cluster); }

/* The time of a work tile without parts, on average. */
static double average_block_time(const struct sm90_bwd_shape *s)
{
    const int works = sm90_bwd_work_tiles(s), count = works < AVERAGED ? works : AVERAGED;
    double sum = 0;

    for (int i = 0; i < count; ++i) /* in the middle of each of `count` equal ranges */
        sum += block_time(s, work_steps(s, (int)((2 * i + 1) * (int64_t)works / (2 * count))));
    return sum / count;
}

/* The time without parts where work tiles are many: all clusters have about as much to do. */
static double average_time(const struct sm90_bwd_shape *s, int clusters)
{
    return start_time(s, clusters) + average_block_time(s) * sm90_bwd_work_tiles(s) * s->kv_heads_total / clusters;
}

/* The time that the last kernel waits for the parts of a tile; where it reads several at once it puts their sums
 * together afterwards. */
static double wait_time(int parts)
{
    return WAIT_STEPS * (double)(sm90_bwd_has_many_parts(parts) ? attn_tiles(parts, SM90_BWD_ROW_WARPS) + 1 : parts);
}

/* What a tile of keys has beside its parts of part_steps steps. */
struct rest {
    int steps;
    double time;
};

static int compare_rests(const void *a, const void *b)
{
    const struct rest *x = a, *y = b;

    return (x->steps < y->steps) - (x->steps > y->steps); /* the longest first */
}

/* The parts of at most part_steps steps, and the time with them, where storing a part takes `store` and reading it
 * again `add_up`. The order is that of the kernels (work.cuh). */
static struct sm90_bwd_parts parts_with(const struct sm90_bwd_shape *s, enum sm90_bwd_part_kind kind, int part_steps,
                                        double store, double add_up, int clusters)
{
    const int works = sm90_bwd_work_tiles(s), max_parts = sm90_bwd_part_count(work_steps(s, 0), part_steps);
    struct sm90_bwd_parts parts = {
        .part_steps = part_steps, .max_parts = max_parts, .kind = kind, .head_works = works * max_parts};
    struct attn_makespan span = attn_makespan_begin(clusters);
    struct rest rests[SM90_BWD_MOST_SEARCHED_TILES];
    int64_t stored = 0;
    /* Without early work tiles each takes as long as the first one of a block. */
    const bool are_late = sm90_bwd_early_tiles(s, (int64_t)parts.head_works * s->kv_heads_total, clusters) == 0;
    const double late = (are_late ? start_time(s, clusters) : 0) + (kind == SM90_BWD_WHOLE_PARTS ? FIND_STEPS : 0);

    for (int first_head = 0; first_head < s->kv_heads_total; first_head += s->section_heads) {
        const int left = s->kv_heads_total - first_head, heads = left < s->section_heads ? left : s->section_heads;
        int rest_count = 0, whole_parts = 0;
        for (int work = 0; work < works; ++work) {
            const int steps = work_steps(s, work), count = sm90_bwd_part_count(steps, part_steps);
            const double beside = late + (count > 1 ? store : 0);
            stored += count > 1 ? (int64_t)heads * count : 0;
            if (kind != SM90_BWD_WHOLE_PARTS) { /* in turns the order is another one, which makes little difference */
                attn_makespan_add(&span, (int64_t)heads * count, block_time(s, (double)steps / count) + beside);
                continue;
            }
            const int whole = steps / part_steps, rest = steps % part_steps;
            attn_makespan_add(&span, (int64_t)heads * whole, block_time(s, part_steps) + beside);
            whole_parts += whole;
            if (rest > 0 || whole == 0)
                rests[rest_count++] = (struct rest){rest, block_time(s, rest) + beside};
        }
        qsort(rests, (size_t)rest_count, sizeof *rests, compare_rests);
        for (int i = 0; i < rest_count; ++i)
            attn_makespan_add(&span, heads, rests[i].time);
        if (kind == SM90_BWD_WHOLE_PARTS) {
            parts.whole_parts = whole_parts;
            parts.head_works = whole_parts + rest_count;
        }
    }
    parts.time = (are_late ? 0 : start_time(s, clusters)) + attn_makespan_end(&span) +
                 (double)stored * add_up / clusters + wait_time(max_parts > 1 ? max_parts : 0);
    return parts;
}

/* Blocks drift apart where tiles of keys, which are causal, have unlike many steps in a head: those that begin with the
 * same head of a group read different ones after some time. This is what they come to read at the same time in parts of
 * part_steps steps, in sizes of the L2: what the steps of a part read at most, Q, dO and sums of dQ; times the share by
 * which the last tile of keys that runs at the same time as the first one has fewer steps; times how often all tiles of
 * keys of a head run at the same time, of other heads or in other parts. */
static double drift_l2s(const struct sm90_bwd_shape *s, int part_steps, int clusters)
{
    const int running = clusters * s->q_tile.cluster; /* tiles of keys */
    const double all_times = (double)running / s->kv_tiles;
    const double most_times = (double)s->kv_heads_total * sm90_bwd_steps(s, 0) / part_steps; /* all parts */
    const double times = all_times < 1 ? 1 : all_times < most_times ? all_times : most_times;
    const int last = (running < s->kv_tiles ? running : s->kv_tiles) - 1;
    const double apart = 1 - (double)sm90_bwd_steps(s, last) / sm90_bwd_steps(s, 0);

    /* Of all steps of the group, also those that see no key where there are more queries than keys. */
    const double read_l2s = s->query_l2s * part_steps / ((double)s->q_tiles * s->group);

    return s->causal && s->group > 1 ? read_l2s * apart * times : 0;
}

/* Whether they drift apart so far without parts that it counts. */
static bool drifts(const struct sm90_bwd_shape *s, int clusters)
{
    return !s->in_order && drift_l2s(s, sm90_bwd_steps(s, 0), clusters) > 2;
}

/* Steps of blocks that drift apart whose Q, dO and sums of dQ take a third of the L2 at most: those of a query head,
 * half of them, a quarter ... */
static int steps_of_l2(const struct sm90_bwd_shape *s)
{
    int steps = s->q_tiles;

    for (double l2s = s->query_l2s / s->group; steps > 1 && l2s > 1.0 / 3; l2s /= 2)
        steps = (steps + 1) / 2;
    return steps;
}

/* How many times as long steps of blocks that drift apart take in parts of part_steps steps. The rests of whole parts,
 * half a part of each tile of keys, which has half of the steps of the first one on average, begin everywhere in the
 * group. */
static double drift_factor(const struct sm90_bwd_shape *s, enum sm90_bwd_part_kind kind, int part_steps, int head_dim,
                           int clusters)
{
    const int most_steps = sm90_bwd_steps(s, 0);
    const double rests = kind == SM90_BWD_WHOLE_PARTS ? (double)part_steps / most_steps : 0;
    const double l2s = drift_l2s(s, part_steps, clusters) + rests * drift_l2s(s, most_steps, clusters);

    return 1 + DRIFT * head_dim / 128 * l2s;
}

/* Makes *best the choice with these parts where that takes less time. */
static void consider(struct sm90_bwd_parts *best, const struct sm90_bwd_shape *s, enum sm90_bwd_part_kind kind,
                     int part_steps, int head_dim, int clusters)
{
    const double units = 2.0 * SM90_BWD_KV_TILE * head_dim / FLOATS;
    struct sm90_bwd_parts parts = parts_with(s, kind, part_steps, units * PART_STEPS, units * ADD_UP_STEPS, clusters);

    if (drifts(s, clusters))
        parts.time *= drift_factor(s, kind, part_steps, head_dim, clusters);
    if (parts.time < best->time)
        *best = parts;
}

/* The same for blocks that drift apart, with parts of so many steps as stay in the L2, and twice, four times ... as
 * many. Parts that begin at the same head run together: in turns, as whole parts are, too. */
static void consider_short_parts(struct sm90_bwd_parts *best, const struct sm90_bwd_shape *s, int64_t tiles,
                                 enum sm90_bwd_part_kind kind, int head_dim, int clusters)
{
    const int most_steps = sm90_bwd_steps(s, 0);

    for (int part_steps = steps_of_l2(s); part_steps < most_steps; part_steps *= 2) {
        const int parts = sm90_bwd_part_count(most_steps, part_steps);
        if (parts <= SM90_BWD_MOST_PARTS && parts * tiles <= MOST_SHORT_PARTS)
            consider(best, s, kind, part_steps, head_dim, clusters);
    }
}

/* The same with parts of all sizes, where tiles are few, of one kind or of whole parts. */
static void consider_parts(struct sm90_bwd_parts *best, const struct sm90_bwd_shape *s, int64_t tiles,
                           enum sm90_bwd_part_kind kind, bool takes_whole_parts, int head_dim, int clusters)
{
    const int most_steps = sm90_bwd_steps(s, 0);

    for (int part_steps = most_steps - 1; part_steps >= 2;
         part_steps -= part_steps < 2 * FINENESS ? 1 : part_steps / FINENESS) {
        const int parts = sm90_bwd_part_count(most_steps, part_steps);
        if (parts > SM90_BWD_MOST_PARTS || tiles * parts > 2 * (int64_t)MAX_WAVES * clusters)
            return;
        consider(best, s, kind, part_steps, head_dim, clusters);
        if (takes_whole_parts)
            consider(best, s, SM90_BWD_WHOLE_PARTS, part_steps, head_dim, clusters);
    }
}

static struct sm90_bwd_parts choose_parts(const struct sm90_bwd_shape *s, int head_dim, int multiprocessors)
{
    const int each = multiprocessors / s->q_tile.cluster, most = each < 1 ? 1 : each;
    const int clusters = s->q_tile.keeps_queries ? sm90_bwd_blocks_of_heads(s->kv_heads_total, most) : most;
    const int works = sm90_bwd_work_tiles(s), most_steps = sm90_bwd_steps(s, 0);
    const int64_t tiles = (int64_t)works * s->kv_heads_total;
    const bool has_many = tiles >= (int64_t)MAX_WAVES * clusters, is_long = most_steps > INT_MAX / 2;
    struct sm90_bwd_parts best = {.part_steps = most_steps, .max_parts = 1, .head_works = works};

    if (has_many || is_long) /* sm90_bwd_part_count adds to the steps */
        best.time = average_time(s, clusters);
    else
        best = parts_with(s, SM90_BWD_EQUAL_PARTS, most_steps, 0, 0, clusters);
    if (drifts(s, clusters))
        best.time *= drift_factor(s, best.kind, most_steps, head_dim, clusters);
    /* With parts blocks of one work tile each were as fast as a loop or faster. */
    if (s->q_tile.takes_more || s->q_tile.keeps_queries || is_long)
        return best;
    const bool can_search = !s->in_order && works <= SM90_BWD_MOST_SEARCHED_TILES;
    if (!drifts(s, clusters)) {
        if (!has_many)
            consider_parts(&best, s, tiles, SM90_BWD_EQUAL_PARTS, can_search, head_dim, clusters);
        return best;
    }
    /* With fewer tiles than clusters short parts from all over each tile run at once: they go in turns. */
    const enum sm90_bwd_part_kind kind =
        can_search && tiles >= clusters ? SM90_BWD_WHOLE_PARTS : SM90_BWD_EQUAL_PARTS_IN_TURNS;
    if (!has_many)
        consider_parts(&best, s, tiles, kind, can_search && kind != SM90_BWD_WHOLE_PARTS, head_dim, clusters);
    consider_short_parts(&best, s, tiles, kind, head_dim, clusters);
    return best;
}

/* A launch asks some ten times, for each of a few tiles, and a choice takes up to 4 ms: the last ones are kept. */
struct sm90_bwd_parts sm90_bwd_choose_parts(const struct sm90_bwd_shape *s, int head_dim, int multiprocessors)
{
    static _Thread_local struct {
        struct sm90_bwd_shape shape;
        int head_dim, multiprocessors;
        struct sm90_bwd_parts parts;
    } kept[KEPT];
    static _Thread_local int next;

    for (int i = 0; i < KEPT; ++i) { /* padding that differs costs a new choice, no more */
        if (kept[i].multiprocessors == multiprocessors && kept[i].head_dim == head_dim &&
            memcmp(&kept[i].shape, s, sizeof *s) == 0)
            return kept[i].parts;
    }
    const struct sm90_bwd_parts parts = choose_parts(s, head_dim, multiprocessors);
    kept[next].shape = *s;
    kept[next].head_dim = head_dim;
    kept[next].multiprocessors = multiprocessors;
    kept[next].parts = parts;
    next = (next + 1) % KEPT;
    return parts;
}

struct sm90_bwd_order sm90_bwd_order_of(const struct sm90_bwd_shape *s, const struct sm90_bwd_parts *parts,
                                        int multiprocessors)
{
    struct sm90_bwd_order order = {s->section_heads, 0};
    const int works = parts->head_works;
    const double between = START_STEPS + (s->q_tile.queries < SM90_BWD_KV_TILE ? SHARED_START_STEPS : 0);

    /* Not where Q, dO and dq_sum of all heads stay in the L2. */
    if (!s->in_order || !s->causal || parts->max_parts > 1 || works < 2 || s->query_l2s * s->kv_heads_total <= 2.0 / 3)
        return order;
    const double steps = average_block_time(s);
    /* Heads under way at the same time: so many that there are half of START_STEPS to START_STEPS between the starts of
     * two work tiles of one, and no more, as Q, dO and dq_sum of all of them should stay in the L2. */
    const int most = s->group > 64 ? 1 : 64 / s->group, least = s->group > 16 ? 1 : 16 / s->group;
    int heads = least;
    while (2 * heads <= most && 2 * heads * steps <= between * multiprocessors)
        heads *= 2;
    int most_ages = MOST_AGES;
    if (4 * heads > s->kv_heads_total) { /* at the start all blocks begin together, with few heads */
        if (s->group > 1 || heads > least || 2 * heads > s->kv_heads_total)
            return order;
        heads /= 2; /* long ones: half as many, in fewer sections if they divide. With a group it was not measured */
        most_ages /= 2;
    }
    int section = heads / (works < most_ages ? works : most_ages);
    while (section > 1 && s->kv_heads_total % section != 0)
        --section;
    if (section < 1)
        section = 1;
    const int ages = heads / section < works ? heads / section : works;
    if (ages < 2)
        return order;
    return (struct sm90_bwd_order){section, (works + ages - 1) / ages};
}

/* Without a mask all work tiles take as long, and where their number is a little more than a multiple of the clusters
 * most of these have nothing to do at the end. */
struct sm90_bwd_tail sm90_bwd_tail_of(const struct sm90_bwd_shape *s, const struct sm90_bwd_parts *parts, int head_dim,
                                      int clusters)
{
    const int all = s->kv_heads_total * parts->head_works, left = all % clusters, steps = sm90_bwd_steps(s, 0);
    const int last_heads = (s->kv_heads_total - 1) % s->section_heads + 1;
    const double units = 2.0 * SM90_BWD_KV_TILE * head_dim / FLOATS;
    const struct sm90_bwd_tail none = {all, 0, 1};
    struct sm90_bwd_tail best = none;

    if (!s->q_tile.takes_more || s->causal || s->in_order || all < clusters || left == 0 ||
        left > last_heads * parts->head_works) /* in the last section no work tile writes zeros for another one */
        return none;
    double best_time = block_time(s, steps);
    for (int count = 2; count <= MOST_TAIL_PARTS && 2 * count <= steps; ++count) {
        const double turns = (double)attn_tiles((int64_t)left * count, clusters);
        const double add_up = units * ADD_UP_STEPS * left * s->q_tile.cluster * count / clusters + wait_time(count);
        const double time = turns * (block_time(s, (double)steps / count) + units * PART_STEPS) + add_up;
        if (time < best_time) {
            best = (struct sm90_bwd_tail){all - left, left, count};
            best_time = time;
        }
    }
    return best;
}

int sm90_bwd_zeros_gap(bool is_short, int clusters) { return is_short ? 2 * clusters : (clusters + 1) / 2; }

/* Zeros are written late, so that they take little of the L2 before they are needed; but between the last work tile
 * that writes some of a section and that section's first one there are `gap` work tiles, so that nobody waits. The
 * clusters' first work tiles are in sections whose zeros preprocess writes. Deterministic, it writes all. */
struct sm90_bwd_zeros sm90_bwd_zeros_of(const struct sm90_bwd_shape *s, const struct sm90_bwd_parts *parts,
                                        int row_blocks, int clusters, int gap)
{
    const int works = s->section_heads * parts->head_works, half = (works + 1) / 2;
    struct sm90_bwd_zeros zeros = {.sections = (s->kv_heads_total + s->section_heads - 1) / s->section_heads,
                                   .all_row_blocks = s->kv_heads_total * s->group * row_blocks,
                                   .row_blocks = s->section_heads * s->group * row_blocks};

    zeros.preprocessed = zeros.sections;
    if (s->in_order || !s->q_tile.takes_more)
        return zeros;
    zeros.ahead = (gap + (works + 3) / 4 + works - 1) / works; /* a quarter of a section's work tiles write, or more */
    zeros.end_work = zeros.ahead * works - gap < works ? zeros.ahead * works - gap : works;
    zeros.first_work = zeros.end_work > half ? zeros.end_work - half : 0;
    const int writers = zeros.end_work - zeros.first_work, first = (clusters + works - 1) / works;
    const int before = first > zeros.ahead ? first : zeros.ahead;
    zeros.share = (zeros.row_blocks + writers - 1) / writers;
    zeros.preprocessed = before < zeros.sections ? before : zeros.sections;
    return zeros;
}
