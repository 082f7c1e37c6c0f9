/* The plan: the list of problems that a command runs, all combinations of the options in a fixed order. Pure:
 * supervisor and worker make the same plan from the same options and device. */
#ifndef FABENCH_PLAN_H
#define FABENCH_PLAN_H

#include "cmd/options/options.h"
#include "cmd/problem/problem_key.h"

/* How the rows of the tensors follow each other. In what lies between them outputs and inputs are NaN. */
enum plan_strides {
    PLAN_CONTIGUOUS,
    PLAN_PACKED_QKV,  /* Q, K and V as in one tensor [batch, len, q_heads + 2 kv_heads, head_dim], dQ, dK and dV as in
                        another; q_len = kv_len, layout bshd. Each has a buffer of its own */
    PLAN_PADDED_ROWS, /* PLAN_ROW_PADDING more elements behind each row of every tensor */
    PLAN_OWN_STRIDES  /* tensor t: PLAN_OWN_PADDING (t + 1) more behind each row, as many more behind each sequence */
};
enum { PLAN_ROW_PADDING = 8, PLAN_OWN_PADDING = 16 };
extern const char *const plan_strides_names[]; /* indexed by enum plan_strides; NULL ends them */

/* One problem in one direction; each implementation of it is a case. */
struct plan_item {
    struct attn_problem problem;
    const struct problem_arrays *arrays; /* owned by the plan; NULL = none */
    enum attn_mode mode;
    enum fill_dist dist;
    double logit_std;  /* standard deviation that Q is scaled to give the logits; 0 = as drawn */
    double logit_mean; /* what is added to all logits; 0 = nothing */
    uint64_t seed;
    bool hadamard;      /* 8-bit inputs: Q and K are rotated before they are quantised */
    bool quant_in_time; /* 8-bit inputs: the time of quantising them is part of each launch */
    int64_t batch_gap;  /* extra elements between batches, to get element offsets above 2^31; 0 = packed */
    enum plan_strides strides;
    bool is_captured; /* verify: a launch from a CUDA graph is judged, too */
    bool deterministic;
    int64_t splits;     /* into which a kernel is to split the keys; 0 = its choice */
    int64_t repeats;    /* verify: launches that must be bit-equal where promised; 0 = not checked */
    char name[200];     /* its key: names its folder in --dump, and --only selects by it; different for each item */
    const char *folder; /* of .npy files that its inputs are read from, owned by the plan; NULL = made from the seed */
};

struct plan {
    struct plan_item *items; /* owned */
    int count;
    /* Resolved by device and preset. */
    double warmup_ms, min_time_ms, max_noise_pct;
    double preheat_ms; /* minimum warm-up of the first problem of a process */
    int64_t samples;
    double sustain_s;               /* 0 = no sustained regions */
    const char *preset;             /* name for the record */
    int64_t total_tokens;           /* batch = total_tokens / n; 0 where the user gave --batch, or a dump */
    struct name_list folders;       /* of the items, owned */
    struct problem_arrays **arrays; /* of the items, owned */
    int array_count;
};

/* Fills *plan. EXIT_OK, or EXIT_USAGE with a sentence when a combination of options is illegal (kv-heads that do not
 * divide heads, products that overflow, more than 100000 problems, --profile with more than one problem, --input with
 * tensors of more than one shape), or EXIT_IO for a dump in --input that cannot be read. */
int plan_make(const struct options *, enum attn_platform, struct plan *);

/* The hard shapes of `verify` (section 6 of docs/design.md), in dtypes, masks and modes of the options, or the problems
 * of --random; plan_verify.c. */
int plan_make_verify(const struct options *, enum attn_platform, struct plan *);

/* The problems that --dump wrote into `dir`: of each folder in it, or of itself, whose tensors.json describes a
 * problem, those that the options ask for, in the order of their names. `option` (--input, --outputs) names it in
 * sentences. Nothing is added where `dir` has no such folder. EXIT_OK, EXIT_IO for a tensors.json that cannot be used,
 * EXIT_USAGE when the options leave none; plan_dump.c. */
int plan_add_dump(const struct options *, const char *option, const char *dir, struct plan *);

/* Reads the problem of one tensors.json; its name and folder are left empty, its arrays go to the plan, which may be
 * NULL where there can be none. *has_problem is false where it has none, as in older dumps. False with a sentence that
 * names the file. */
bool plan_item_read(const char *path, struct plan *, struct plan_item *, bool *has_problem, struct attn_message *why);

/* True when no tensor of the problem has more than 2^40 elements, nor a size that is not in 1..INT32_MAX. */
bool plan_shape_fits(const struct attn_problem *);

/* The problems of `selftest`: batch 1, few heads, every dtype, dense and with attributes beyond that. */
int plan_make_selftest(const struct options *, struct plan *);
void plan_free(struct plan *);

/* Adds to the name of an item, like printf; and the attributes that are not the default, each after a space. */
void plan_name_more(struct plan_item *, const char *format, ...) __attribute__((format(printf, 2, 3)));
void plan_name_attributes(struct plan_item *);

/* Gives the item the lengths and the block mask that these texts describe (cmd/problem/problem_arrays.h), from its
 * seed; "" or fixed, and "" or none, leave it as it is. One whose problem.lengths is ATTN_CACHE gets a cache of these
 * lengths. total_tokens: of packed lengths; 0 = no limit, for list and @FILE alone. False with a sentence. */
bool plan_set_arrays(struct plan *, struct plan_item *, const char *lengths, int64_t total_tokens,
                     const char *block_mask, int64_t mask_block, struct reason *why);

/* What kinds of tensors a dtype has among the options: the dtype, and of 8-bit inputs each type of O with each kind of
 * scales, block of scales included. The rest of the problems is zero. */
enum { PLAN_KINDS_MAX = 6 };
int plan_kinds_of(const struct options *, enum attn_dtype, struct attn_problem kinds[PLAN_KINDS_MAX]);

/* The identity of an item, and its FLOPs. */
struct problem_key plan_item_key(const struct plan_item *, enum l2_policy);
double plan_item_flops(const struct plan_item *);

/* Names a problem of `verify` by all that it asks. */
void plan_name_whole(struct plan_item *);

/* Appends one item; plan_verify.c uses it. */
void plan_add(struct plan *, const struct plan_item *);

/* The command that makes this case's row again; the caller frees it. impl may be NULL. */
char *plan_repro(const struct options *, const struct plan_item *, const char *impl);

/* The whole `verify` command, with this implementation alone, for a row that only verify makes, with the key
 * of its problem. */
char *plan_repro_verify(const struct options *, const struct plan_item *, const char *impl);

/* The random problems of `verify --random N --seed S` (plan_random.c). What can be asked of a problem is drawn
 * attribute by attribute, by the rows of one table; a new attribute is one function and one row. Each problem follows
 * from S and its number alone, and each row has random numbers of its own, so that a row that is added changes no draw
 * of the others. */

/* The lengths are 1 to these; mostly powers of two are far apart, edges of tiles are favoured. */
enum { RANDOM_LEN_CPU = 384, RANDOM_LEN_CUDA = 5000 };

/* The most rows of a sequence that has a cache. */
enum { RANDOM_NEW_TOKENS = 8 };

/* One problem while it is drawn. */
struct random_draw {
    const struct options *options;
    enum attn_platform platform;
    uint64_t seed;  /* of the problem */
    uint64_t state; /* of the random numbers of the current row */
    struct plan_item *item;
    /* Made into the item's arrays behind the last row (cmd/problem/problem_arrays.h); "" = none. */
    char lengths[PROBLEM_TEXT_SIZE], block_mask[32];
    int64_t total_tokens, mask_block; /* 0 = no limit of the lengths, no mask */
    enum problem_bias bias;
    int64_t sequences; /* so many of q_len x kv_len take as long as those of `lengths` at most; 0 = none */
};

/* One attribute: draws it into the item. It may read what earlier rows have drawn. */
struct random_attribute {
    const char *name;
    void (*draw)(struct random_draw *);
};

/* The table, in the order of drawing. */
const struct random_attribute *plan_random_attributes(int *count);

/* Draws one row of the table into the item of `draw`. */
void plan_random_draw(struct random_draw *, const struct random_attribute *);

/* Adds problem number `number` of --seed: all rows, and its key, which begins with "r<number>". */
void plan_random_add(const struct options *, enum attn_platform, int64_t number, struct plan *);

#endif
