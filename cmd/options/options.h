/* What the user asked for. One table (options_table.c) holds every option: name, kind, range, default, help, commands
 * that take it. Parsing, defaults, --help, the nearest-name hint and the recorded command line come from it.
 *
 * Lists: "64,128", ranges "1k:16k:*2" (multiply) and "512:4k:+512" (add), suffixes k = 1024 and m = 1048576. No
 * abbreviations; both "--name value" and "--name=value".
 */
#ifndef FABENCH_OPTIONS_H
#define FABENCH_OPTIONS_H

#include "cmd/base/terminal.h"
#include "cmd/base/text.h"
#include "cmd/options/command_list.h"
#include "cmd/options/exit_style.h"
#include "cmd/problem/problem.h"
#include "cmd/problem/problem_attributes.h"

enum plot_format { PLOT_SVG, PLOT_PNG, PLOT_TERM, PLOT_NONE, PLOT_MARKDOWN };
enum plot_layout { LAYOUT_PAGE, LAYOUT_SLIDE };
enum { PLOT_KINDS = 11 };                   /* of charts: enum chart_kind */
enum dump_dtype { DUMP_NATIVE, DUMP_FP32 }; /* in their own dtype, or as float32 */
enum preset {
    PRESET_NONE,
    PRESET_QUICK,
    PRESET_PAPER,
    PRESET_CI,
    PRESET_ACCEPTANCE,
    PRESET_FULL,
    PRESET_DATA,
    PRESET_NODE,
    PRESET_DECODE,
    PRESET_GENERATIONS
};
enum device_choice { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };
enum soft_code { SOFT_INCONCLUSIVE, SOFT_NOT_COMPARABLE }; /* 4, 5 */

struct int_list {
    int64_t *values;
    int count;
}; /* count 0 = not given */

struct real_list {
    double *values;
    int count;
}; /* likewise */

/* Every field has its final value except where a comment says "not given": those depend on the device or the preset,
 * and plan_make (cmd/plan/plan.h) resolves them. The struct owns all memory; options_free frees
 * it. */
struct options {
    enum command command;
    enum preset preset;              /* PRESET_NONE = not given */
    bool mode_given, modes[3];       /* indexed by problem_mode; absent = fwd and bwd */
    bool causal_given, causal[2];    /* [0] full, [1] causal; absent = both */
    bool page_size_given;            /* attributes.page_size */
    struct int_list head_dims;       /* read them with dims_qk and dims_v; not given: 64,128 */
    struct int_list q_lens, kv_lens; /* not given: by preset; equal */
    bool dtypes_given, dtypes[5];    /* indexed by attn_dtype; not given: by device */
    bool out_dtypes[2];              /* of O of 8-bit inputs: bf16, fp16 */
    bool cache_dtypes[3];            /* of K and V of a cache: none = that of Q, e4m3, e5m2 */
    bool fp8_scales[3];              /* attn_quant_scale - 1: tensor, head, block */
    int64_t scale_block;             /* 0 = not given: 128 */
    bool hadamard;                   /* 8-bit inputs: Q and K are rotated first */
    bool quant_in_time;              /* 8-bit inputs: the time of quantising them counts */
    struct name_list impls;          /* not given: naive,fused,cudnn that serve the device */
    struct name_list impl_libs;
    char *peer;    /* whose speed speedup_vs_peer means; NULL = not given: cudnn */
    char *variant; /* NULL = not given */
    bool deterministic;
    int64_t splits;                              /* of the keys; 0 = the implementation's choice */
    int64_t total_tokens, hidden;                /* 0 = not given */
    struct int_list batches, heads, kv_heads;    /* not given: by tokens; by hidden; equal */
    struct name_list lengths;                    /* of sequences, as typed; not given: fixed */
    struct name_list block_masks;                /* as typed; not given: none */
    int64_t mask_block;                          /* 0 = not given: 128 */
    struct int_list shapes;                      /* query and key heads in turn, instead of heads and kv_heads */
    struct int_list windows_left, windows_right; /* -1 = unbounded; not given: unbounded */
    struct problem_attributes attributes;
    enum problem_bias bias;
    int64_t selftest_heads; /* 0 = not given: 2 */
    enum attn_layout layout;
    double scale;                        /* NaN = not given: 1/sqrt(head_dim) */
    bool dists_given, dists[FILL_DISTS]; /* indexed by fill_dist; not given: normal, or those of the preset */
    enum fill_dist dist;                 /* of selftest */
    struct real_list logit_stds;         /* not given: as drawn, or those of the preset */
    struct real_list logit_means;        /* not given: 0 */
    uint64_t seed;
    enum device_choice device;
    int device_ordinal;               /* with DEVICE_CUDA; of several devices the first */
    struct int_list device_ordinals;  /* several devices in this order; empty = one device, or all */
    bool all_devices;                 /* every CUDA device that this process may use */
    bool one_by_one;                  /* several devices in turn, not together */
    double max_board_spread_pct;      /* NaN = no board is named for its speed beside the others */
    struct name_list board_baselines; /* earlier records of the boards, and folders of them */
    enum check_scope check;
    double atol, rtol;             /* NaN = not given */
    int64_t random_count;          /* verify: random problems instead of the hard shapes; 0 = not given */
    int64_t repeats;               /* verify: runs after the first; promised tensors must be bit-equal */
    bool invariance;               /* verify: the bits of sequences in other batches */
    double warmup_ms, min_time_ms; /* defaults 500, 500; NaN = not given, resolved by preset */
    int64_t samples;               /* minimum number of samples; 0 = not given */
    double max_noise_pct;          /* "0.5%" -> 0.5; NaN = not given */
    double timeout_s;
    bool counters;    /* of the hardware: bytes and FLOPs of each row */
    double sustain_s; /* 0 = no sustained regions; NaN = not given, resolved by preset */
    enum l2_policy l2;
    char *out_dir;               /* NULL = not given: fabench-out/<device>-<utc>/; "none" = nothing is written */
    char *csv_path, *jsonl_path; /* NULL = into out_dir; "-" = stdout (one of them at most) */
    enum plot_format plot;       /* default svg; --plot none */
    bool plot_given;
    enum plot_layout plot_layout;
    bool plot_kinds[PLOT_KINDS]; /* of `plot`, indexed by enum chart_kind; all false = not given */
    char *columns;               /* NULL = the default columns; else comma-separated column names for the CSV */
    char *input_dir, *dump_dir;  /* .npy in and out */
    char *only, *outputs_dir;    /* verify: a problem's key or a part of it; results to judge. NULL = not given */
    enum dump_dtype dump_dtype;  /* how --dump stores the tensors */
    bool profile, dry_run, verbose, quiet;
    enum color_choice color;
    enum exit_style exit_style;   /* applied by main; read it for words alone */
    char *verdict_path;           /* JSON about the node; NULL = not given */
    struct name_list files;       /* positional arguments: records of `plot`, [LABEL=]FILE of `report`, OLD and NEW
                                         of `ab` */
    struct name_list prices;      /* LABEL=AMOUNT and currency, as typed; report checks them */
    char *overlay_path;           /* published points for the charts; NULL = not given */
    bool is_fleet;                /* report: the boards of a fleet */
    struct name_list nodes;       /* hosts that should have a record there */
    bool is_history;              /* report: a line for each case over commits */
    bool resume;                  /* continue the record file of --jsonl or --out */
    bool overwrite;               /* replace the record in the folder of --out */
    double max_time_s;            /* no problem is begun later; NaN = not given */
    char *tuned_path, *tuned_out; /* files of tuned choices, to be taken and to be written; NULL = not given */
    char *deciding;               /* the options that the rows depend on, as typed, in the order of the table */
    double preheat_s;             /* NaN = not given: 0, and 3 in the processes of ab and gate */
    struct int_list points;       /* run only these problems of the plan, numbered from 0; not given: all */
    /* gate and ab */
    struct name_list baselines, currents; /* record files */
    char *floors, *junit_path;            /* NULL = not given */
    int64_t runs_max;                     /* processes that gate measures at most; 0 = not given: 5 */
    int64_t order_seed;                   /* of the order of the processes of ab; 0 = not given: drawn */
    char *accepted_path;                  /* verify: the rows that must run; NULL = not given */
    int64_t max_failures;                 /* failures that are printed */
    bool is_subset;
    bool soft[2];                 /* indexed by enum soft_code */
    double delta_pct;             /* NaN = not given: 2 of ab, 5 of gate */
    struct int_list pairs;        /* fewest and most pairs of ab; not given: decide_defaults */
    struct name_list sweep_words; /* options for a sweep in another process, as typed: no outputs, device, --impl */
    struct name_list given;       /* each option that was given: its name in the table, its value as typed or "" */
    char *command_line;           /* the whole command line, shell-quoted, for the record header */
};

/* An item of `head_dims`: columns of Q and K, and of V; dims_v is 0 where they are equal, as in attn_problem. */
static inline int64_t dims_of(int64_t qk, int64_t v) { return qk | (v == qk ? 0 : v) << 32; }
static inline int64_t dims_qk(int64_t item) { return item & INT32_MAX; }
static inline int64_t dims_v(int64_t item) { return item >> 32; }
enum { DIMS_CACHE_QK = 576, DIMS_CACHE_V = 512 }; /* of a cache in which V is the first columns of K */

enum { DEVICE_ORDINALS = 1024 }; /* cuda:N is below */

/* Several devices, or all: one record of them (cmd/run/supervisor_boards.h). */
static inline bool options_has_boards(const struct options *o) { return o->all_devices || o->device_ordinals.count; }

/* The largest --page-size, in rows. */
enum { PAGE_SIZE_MAX = 65536 };

/* The smallest --sustain-s, because the device's energy counter advances in steps. */
#define SUSTAIN_MIN_S 2.0

/* Names of the enums, as typed on the command line and written in records; NULL ends each list. */
extern const char *const option_preset_names[]; /* preset: none quick paper ci acceptance ... */
const char *option_preset_name(enum preset);

/* From a command line to struct options (options_parse.c). */

/* EXIT_OK: the options are valid; free them with options_free. EXIT_OK with *done set: --help or --version was printed
 * to stdout. EXIT_USAGE: one sentence was printed to stderr. */
int options_parse(int argc, char **argv, struct options *, bool *done);

/* Parses the command line of a record's header as a sweep without outputs. EXIT_USAGE when it is not valid here,
 * possibly after a sentence on stderr. */
int options_parse_line(const char *command_line, struct options *);

/* `one` is `all` for cuda:ordinal alone, also in the commands that rows are made again with. It owns its `given` alone:
 * free it with options_free_one, before `all`. */
void options_for_device(const struct options *all, int ordinal, struct options *one);
void options_free_one(struct options *one);

/* Frees what the struct owns, and zeroes it. */
void options_free(struct options *);

#endif
