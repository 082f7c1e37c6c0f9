/* What the hardware counted during a launch, by CUPTI (cupti.h). The table of counters is in counters.c: each is a sum
 * of metrics of CUPTI, and has other metrics on other chips.
 *
 * The hardware counts some metrics at a time, so that all of them take a few passes. Each pass gets a launch of its
 * own: CUPTI repeats none.
 *
 * Not thread-safe; used by the worker only. */
#ifndef FABENCH_COUNTERS_H
#define FABENCH_COUNTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/attention.h"

/* Types of the products of tensor cores: what they multiply, and, where sums are not in 32 bits, in what they add. */
enum counted_type { COUNTED_BF16, COUNTED_FP16, COUNTED_FP16_IN_FP16, COUNTED_FP8, COUNTED_TF32, COUNTED_TYPES };
extern const char *const counted_type_names[COUNTED_TYPES]; /* bf16 fp16 fp16_in_fp16 fp8 tf32 */

enum counter {
    COUNTER_DRAM_READ, /* bytes */
    COUNTER_DRAM_WRITE,
    COUNTER_L2,            /* bytes that the L2 serves or takes */
    COUNTER_TENSOR_ACTIVE, /* per cent of the cycles in which a multiprocessor has work */
    COUNTER_FLOP,          /* FLOPs of tensor cores, by enum counted_type; a fused multiply and add is two */
    COUNTER_COUNT = COUNTER_FLOP + COUNTED_TYPES
};

/* NaN = not counted. A type that the chip does not have is 0. */
struct counters {
    double values[COUNTER_COUNT];
};

/* Of all types that were counted; NaN where none was. */
double counters_flop(const struct counters *);

/* ---- which metrics: needs CUPTI, no device ---- */

enum { COUNTER_METRICS_MAX = 32, COUNTER_PASSES_MAX = 12 };

struct counter_plan {
    char chip[32]; /* "GH100" */
    const char *metrics[COUNTER_METRICS_MAX];
    enum counter counters[COUNTER_METRICS_MAX]; /* that each belongs to */
    int count;
    int passes;      /* that they take together */
    uint8_t *config; /* owned; of all of them */
    size_t config_bytes;
    void *host;                     /* owned: CUPTI's object that made the configuration and reads what was counted */
    bool is_planned[COUNTER_COUNT]; /* is counted */
    bool is_absent[COUNTER_COUNT];  /* the chip does not have it; neither: it has, and it would take too many passes */
};

/* False with a sentence where CUPTI is absent or does not know the chip. Free it in any case. */
bool counter_plan_make(const char *chip, struct counter_plan *, char *why, size_t why_size);
void counter_plan_free(struct counter_plan *);

/* ---- counting: needs a device, whose context is the current one ---- */

struct counting {
    struct counter_plan plan;
    void *profiler;
    bool is_initialized;
};

/* Opens CUPTI for the device with this number and plans its metrics. False with a sentence: absent, no driver, an
 * unknown chip. End it in any case. */
bool counting_begin(struct counting *, int ordinal, char *why, size_t why_size);
void counting_end(struct counting *);

/* Attaches it to the current context, and detaches it: between the two launches may be slower. False with a sentence:
 * not permitted, held by another program. */
bool counting_attach(struct counting *, char *why, size_t why_size);
void counting_detach(struct counting *);

/* What is done in each pass; each step waits for the device. */
typedef enum attn_status counted_step(void *context, struct attn_message *why);
struct counted_steps {
    counted_step *before; /* not counted; NULL = nothing */
    counted_step *launch; /* counted */
    counted_step *behind; /* counted apart; NULL = nothing */
    void *context;
};

/* Counts the launch, and what is done behind it, each in plan.passes passes. ATTN_ERROR or the like: of a step.
 * *is_counted false: the sentence in `why` says why not. */
enum attn_status counting_run(struct counting *, const struct counted_steps *, struct counters *launch,
                              struct counters *behind, bool *is_counted, struct attn_message *why);

/* Before anything is counted: 0 of what will be counted or the chip does not have, else NaN. */
struct counters counters_begin(const struct counter_plan *);
/* None was counted. */
struct counters counters_none(void);

#endif
