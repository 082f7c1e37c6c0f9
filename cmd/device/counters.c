/* Counters of the hardware by CUPTI's Range Profiler. */
#include "cmd/device/counters.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/device/cupti.h"

const char *const counted_type_names[COUNTED_TYPES] = {"bf16", "fp16", "fp16_in_fp16", "fp8", "tf32"};

/* ---- the table ---- */

#define PATH(rest) "sm__ops_path_tensor_" rest ".sum"
#define ACTIVE(rest) "sm__pipe_tensor_" rest ".avg.pct_of_peak_sustained_active"
enum { ALTERNATIVES = 3, PARTS = 3, RANGES = 2 };

/* A counter is the sum of the metrics of the first alternative that the chip knows. Hopper: HGMMA is wgmma, HMMA
 * mma.sync; mma.sync of 8 bits is done by HMMA in fp16. Of HGMMA with fp16 inputs the chip does not tell in what it
 * adds. may_be_absent: the chip may have no such units, then it is 0. */
static const struct {
    const char *metrics[ALTERNATIVES][PARTS];
    bool may_be_absent;
} table[COUNTER_COUNT] = {
    [COUNTER_DRAM_READ] = {.metrics = {{"dram__bytes_read.sum"}, {"dram__bytes_op_read.sum"}}},
    [COUNTER_DRAM_WRITE] = {.metrics = {{"dram__bytes_write.sum"}, {"dram__bytes_op_write.sum"}}},
    [COUNTER_L2] = {.metrics = {{"lts__t_bytes.sum"}}},
    [COUNTER_TENSOR_ACTIVE] = {.metrics = {{ACTIVE("op_hmma_type_hmma_hgmma_qgmma_cycles_active")},
                                           {ACTIVE("cycles_active")}}},
    [COUNTER_FLOP +
        COUNTED_BF16] = {.metrics = {{PATH("op_hgmma_src_bf16_dst_fp32"), PATH("op_hmma_src_bf16_dst_fp32")},
                                     {PATH("src_bf16_dst_fp32")}},
                         .may_be_absent = true},
    [COUNTER_FLOP + COUNTED_FP16] = {.metrics = {{PATH("op_hgmma_src_fp16"), PATH("op_hmma_src_fp16_dst_fp32")},
                                                 {PATH("src_fp16_dst_fp32")}},
                                     .may_be_absent = true},
    [COUNTER_FLOP +
        COUNTED_FP16_IN_FP16] = {.metrics = {{PATH("op_hmma_src_fp16_dst_fp16")}, {PATH("src_fp16_dst_fp16")}},
                                 .may_be_absent = true},
    [COUNTER_FLOP + COUNTED_FP8] = {.metrics = {{PATH("src_fp8")},
                                                {PATH("src_fp8_dst_fp32"), PATH("src_fp8_dst_fp16")},
                                                {PATH("src_fp4_fp6_fp8_dst_fp32"), PATH("src_fp4_fp6_fp8_dst_fp16")}},
                                    .may_be_absent = true},
    [COUNTER_FLOP +
        COUNTED_TF32] = {.metrics = {{PATH("op_hgmma_src_tf32_dst_fp32"), PATH("op_hmma_src_tf32_dst_fp32")},
                                     {PATH("src_tf32_dst_fp32")}},
                         .may_be_absent = true},
};

double counters_flop(const struct counters *c)
{
    double sum = NAN;
    for (int i = 0; i < COUNTED_TYPES; i++)
        if (!isnan(c->values[COUNTER_FLOP + i]))
            sum = (isnan(sum) ? 0 : sum) + c->values[COUNTER_FLOP + i];
    return sum;
}

struct counters counters_none(void)
{
    struct counters c;
    for (int i = 0; i < COUNTER_COUNT; i++)
        c.values[i] = NAN;
    return c;
}

struct counters counters_begin(const struct counter_plan *plan)
{
    struct counters c = counters_none();
    for (int i = 0; i < COUNTER_COUNT; i++)
        if (plan->is_planned[i] || (plan->is_absent[i] && table[i].may_be_absent))
            c.values[i] = 0;
    return c;
}

/* ---- the plan ---- */

static void *create_host(const struct cupti *cupti, const char *chip, int *status)
{
    struct cupti_host_create create = {
        .size = CUPTI_SIZE(cupti_host_create, host), .profiler_type = CUPTI_RANGE_PROFILER, .chip = chip};
    *status = cupti->host_create(&create);
    return *status == CUPTI_SUCCESS ? create.host : NULL;
}

static void destroy_host(const struct cupti *cupti, void *host)
{
    struct cupti_host destroy = {.size = CUPTI_SIZE(cupti_host, host), .host = host};
    if (host)
        cupti->host_destroy(&destroy);
}

/* The configuration of these metrics, the host object that made it, both of which the caller owns, and how many passes
 * the metrics take together; NULL where the chip does not know one of them. */
static uint8_t *configure(const struct cupti *cupti, const char *chip, const char *const *metrics, int count,
                          size_t *bytes, size_t *passes, void **kept)
{
    int status;
    uint8_t *image = NULL;
    *kept = NULL;
    void *const host = create_host(cupti, chip, &status);
    if (!host)
        return NULL;
    struct cupti_host_metrics add = {
        .size = CUPTI_SIZE(cupti_host_metrics, count), .host = host, .names = metrics, .count = (size_t)count};
    struct cupti_image_size size = {.size = CUPTI_SIZE(cupti_image_size, bytes), .host = host};
    if (cupti->add_metrics(&add) == CUPTI_SUCCESS && cupti->image_size(&size) == CUPTI_SUCCESS && size.bytes > 0) {
        image = xcalloc(1, size.bytes);
        struct cupti_image get = {
            .size = CUPTI_SIZE(cupti_image, image), .host = host, .bytes = size.bytes, .image = image};
        struct cupti_passes ask = {.size = CUPTI_SIZE(cupti_passes, passes), .bytes = size.bytes, .image = image};
        if (cupti->image(&get) != CUPTI_SUCCESS || cupti->passes(&ask) != CUPTI_SUCCESS) {
            free(image);
            image = NULL;
        }
        *bytes = size.bytes;
        *passes = ask.passes;
    }
    if (image)
        *kept = host;
    else
        destroy_host(cupti, host);
    return image;
}

/* Puts the metrics of an alternative into the plan, if the chip knows them all. *is_known: it does; false and known:
 * all together would then take too many passes. */
static bool add_metrics(const struct cupti *cupti, struct counter_plan *plan, enum counter counter,
                        const char *const metrics[PARTS], bool *is_known)
{
    int count = plan->count;
    size_t bytes = 0, passes = 0;
    void *host = NULL;
    for (int i = 0; i < PARTS && metrics[i] && count < COUNTER_METRICS_MAX; i++) {
        plan->metrics[count] = metrics[i];
        plan->counters[count++] = counter;
    }
    uint8_t *const config =
        count > plan->count ? configure(cupti, plan->chip, plan->metrics, count, &bytes, &passes, &host) : NULL;
    *is_known = config != NULL;
    if (!config || passes > COUNTER_PASSES_MAX) {
        destroy_host(cupti, host);
        free(config);
        return false;
    }
    destroy_host(cupti, plan->host);
    free(plan->config);
    plan->count = count;
    plan->passes = (int)passes;
    plan->config = config;
    plan->config_bytes = bytes;
    plan->host = host;
    return true;
}

static void plan_counter(const struct cupti *cupti, struct counter_plan *plan, enum counter counter)
{
    bool is_known = false;
    for (int a = 0; a < ALTERNATIVES && table[counter].metrics[a][0] && !is_known; a++)
        plan->is_planned[counter] = add_metrics(cupti, plan, counter, table[counter].metrics[a], &is_known);
    plan->is_absent[counter] = !is_known;
}

bool counter_plan_make(const char *chip, struct counter_plan *plan, char *why, size_t why_size)
{
    int status;
    memset(plan, 0, sizeof *plan);
    const struct cupti *const cupti = cupti_load(why, why_size);
    if (!cupti)
        return false;
    snprintf(plan->chip, sizeof plan->chip, "%s", chip);
    void *const host = create_host(cupti, chip, &status);
    destroy_host(cupti, host);
    if (!host) {
        snprintf(why, why_size, "the counters of %s: %s", chip, cupti_words(status));
        return false;
    }
    for (int i = 0; i < COUNTER_COUNT; i++)
        plan_counter(cupti, plan, (enum counter)i);
    if (plan->count == 0)
        snprintf(why, why_size, "the counters of %s: it has none of them", chip);
    return plan->count > 0;
}

void counter_plan_free(struct counter_plan *plan)
{
    char ignored[256];
    const struct cupti *const cupti = plan->host ? cupti_load(ignored, sizeof ignored) : NULL;
    if (cupti)
        destroy_host(cupti, plan->host);
    free(plan->config);
    memset(plan, 0, sizeof *plan);
}

/* ---- counting ---- */

/* The current context of the driver; NULL where there is none. */
static void *current_context(void)
{
    void *const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*get)(void **) = NULL;
    void *context = NULL;
    if (!driver)
        return NULL;
    *(void **)&get = dlsym(driver, "cuCtxGetCurrent");
    if (!get || get(&context) != 0)
        context = NULL;
    dlclose(driver);
    return context;
}

static bool refuse(char *why, size_t why_size, const char *step, int status)
{
    snprintf(why, why_size, "%s: %s", step, cupti_words(status));
    return false;
}

bool counting_begin(struct counting *c, int ordinal, char *why, size_t why_size)
{
    int status;
    memset(c, 0, sizeof *c);
    const struct cupti *const cupti = cupti_load(why, why_size);
    if (!cupti)
        return false;
    struct cupti_plain plain = {.size = CUPTI_SIZE(cupti_plain, unused)};
    if ((status = cupti->initialize(&plain)) != CUPTI_SUCCESS)
        return refuse(why, why_size, "CUPTI could not be initialised", status);
    c->is_initialized = true;
    struct cupti_chip chip = {.size = CUPTI_SIZE(cupti_chip, name), .device = (size_t)ordinal};
    if ((status = cupti->chip_name(&chip)) != CUPTI_SUCCESS || !chip.name)
        return refuse(why, why_size, "CUPTI does not tell the chip", status);
    return counter_plan_make(chip.name, &c->plan, why, why_size);
}

bool counting_attach(struct counting *c, char *why, size_t why_size)
{
    const struct cupti *const cupti = cupti_load(why, why_size);
    if (!cupti)
        return false;
    struct cupti_enable enable = {.size = CUPTI_SIZE(cupti_enable, profiler), .context = current_context()};
    const int status = cupti->enable(&enable);
    if (status != CUPTI_SUCCESS)
        return refuse(why, why_size, "the counters", status);
    c->profiler = enable.profiler;
    return true;
}

void counting_detach(struct counting *c)
{
    char ignored[256];
    const struct cupti *const cupti = cupti_load(ignored, sizeof ignored);
    struct cupti_profiler disable = {.size = CUPTI_SIZE(cupti_profiler, profiler), .profiler = c->profiler};
    if (cupti && c->profiler)
        cupti->disable(&disable);
    c->profiler = NULL;
}

void counting_end(struct counting *c)
{
    char ignored[256];
    const struct cupti *const cupti = cupti_load(ignored, sizeof ignored);
    struct cupti_plain plain = {.size = CUPTI_SIZE(cupti_plain, unused)};
    counting_detach(c);
    counter_plan_free(&c->plan);
    if (cupti && c->is_initialized)
        cupti->deinitialize(&plain);
    memset(c, 0, sizeof *c);
}

/* The memory that what is counted is written to, made ready for RANGES ranges; the caller owns it. NULL with the
 * status. */
static uint8_t *make_data(const struct cupti *cupti, const struct counting *c, size_t *bytes, int *status)
{
    struct cupti_data_size ask = {.size = CUPTI_SIZE(cupti_data_size, bytes),
                                  .profiler = c->profiler,
                                  .names = c->plan.metrics,
                                  .count = (size_t)c->plan.count,
                                  .ranges = RANGES,
                                  .nodes = RANGES};
    if ((*status = cupti->data_size(&ask)) != CUPTI_SUCCESS)
        return NULL;
    struct cupti_data begin = {.size = CUPTI_SIZE(cupti_data, data),
                               .profiler = c->profiler,
                               .bytes = ask.bytes,
                               .data = xcalloc(1, ask.bytes + 1)};
    *bytes = ask.bytes;
    if ((*status = cupti->data_begin(&begin)) == CUPTI_SUCCESS)
        return begin.data;
    free(begin.data);
    return NULL;
}

/* The same configuration each time: a profiler takes no other (values of a second one are NaN). */
static int set_config(const struct cupti *cupti, const struct counting *c, uint8_t *data, size_t data_bytes)
{
    struct cupti_config config = {.size = CUPTI_SIZE(cupti_config, target_level),
                                  .profiler = c->profiler,
                                  .config_bytes = c->plan.config_bytes,
                                  .config = c->plan.config,
                                  .data_bytes = data_bytes,
                                  .data = data,
                                  .range = CUPTI_USER_RANGE,
                                  .replay = CUPTI_USER_REPLAY,
                                  .ranges_per_pass = RANGES,
                                  .levels = 1,
                                  .lowest_level = 1,
                                  .target_level = 1};
    return cupti->set_config(&config);
}

/* A step in a range of its own. *status: CUPTI's; where it is not success the step may not have run. */
static enum attn_status count_step(const struct cupti *cupti, const struct counting *c, const char *name,
                                   counted_step *step, void *context, int *status, struct attn_message *why)
{
    struct cupti_profiler profiler = {.size = CUPTI_SIZE(cupti_profiler, profiler), .profiler = c->profiler};
    struct cupti_range range = {.size = CUPTI_SIZE(cupti_range, name), .profiler = c->profiler, .name = name};
    if ((*status = cupti->push(&range)) != CUPTI_SUCCESS)
        return ATTN_OK;
    const enum attn_status done = step(context, why);
    *status = cupti->pop(&profiler);
    return done;
}

static enum attn_status run_pass(const struct cupti *cupti, const struct counting *c, const struct counted_steps *steps,
                                 bool *is_last, int *status, struct attn_message *why)
{
    struct cupti_profiler profiler = {.size = CUPTI_SIZE(cupti_profiler, profiler), .profiler = c->profiler};
    struct cupti_stop stopping = {.size = CUPTI_SIZE(cupti_stop, is_all), .profiler = c->profiler};
    enum attn_status done = steps->before ? steps->before(steps->context, why) : ATTN_OK;
    if (done != ATTN_OK || (*status = cupti->start(&profiler)) != CUPTI_SUCCESS)
        return done;
    done = count_step(cupti, c, "launch", steps->launch, steps->context, status, why);
    if (steps->behind && done == ATTN_OK && *status == CUPTI_SUCCESS)
        done = count_step(cupti, c, "behind", steps->behind, steps->context, status, why);
    const int stopped = cupti->stop(&stopping);
    *is_last = stopping.is_all;
    if (*status == CUPTI_SUCCESS)
        *status = stopped;
    return done;
}

/* All passes, into data. */
static enum attn_status run_passes(const struct cupti *cupti, const struct counting *c,
                                   const struct counted_steps *steps, int *status, struct attn_message *why)
{
    struct cupti_decode decode = {.size = CUPTI_SIZE(cupti_decode, dropped), .profiler = c->profiler};
    enum attn_status done = ATTN_OK;
    bool is_last = false;
    for (int i = 0; i < c->plan.passes && !is_last && done == ATTN_OK && *status == CUPTI_SUCCESS; i++)
        done = run_pass(cupti, c, steps, &is_last, status, why);
    if (done == ATTN_OK && *status == CUPTI_SUCCESS)
        *status = cupti->decode(&decode);
    if (*status == CUPTI_SUCCESS && (decode.dropped > 0 || !is_last))
        *status = CUPTI_LOST;
    return done;
}

/* The values of one range. */
static int read_values(const struct cupti *cupti, const struct counter_plan *plan, const uint8_t *data,
                       size_t data_bytes, size_t range, struct counters *counters)
{
    double values[COUNTER_METRICS_MAX] = {0};
    struct cupti_values ask = {.size = CUPTI_SIZE(cupti_values, values),
                               .host = plan->host,
                               .data = data,
                               .data_bytes = data_bytes,
                               .range = range,
                               .names = plan->metrics,
                               .count = (size_t)plan->count,
                               .values = values};
    const int status = cupti->values(&ask);
    *counters = counters_begin(plan);
    for (int i = 0; i < plan->count && status == CUPTI_SUCCESS; i++)
        counters->values[plan->counters[i]] += values[i];
    return status;
}

enum attn_status counting_run(struct counting *c, const struct counted_steps *steps, struct counters *launch,
                              struct counters *behind, bool *is_counted, struct attn_message *why)
{
    const struct cupti *const cupti = cupti_load(why->text, sizeof why->text);
    enum attn_status done = ATTN_OK;
    size_t bytes = 0;
    int status;
    *launch = *behind = counters_none();
    *is_counted = false;
    if (!cupti || (!c->profiler && !counting_attach(c, why->text, sizeof why->text)))
        return ATTN_OK;
    uint8_t *const data = make_data(cupti, c, &bytes, &status);
    if (data && (status = set_config(cupti, c, data, bytes)) == CUPTI_SUCCESS) {
        done = run_passes(cupti, c, steps, &status, why);
        if (done == ATTN_OK && status == CUPTI_SUCCESS)
            status = read_values(cupti, &c->plan, data, bytes, 0, launch);
        if (done == ATTN_OK && status == CUPTI_SUCCESS && steps->behind)
            status = read_values(cupti, &c->plan, data, bytes, 1, behind);
    }
    *is_counted = done == ATTN_OK && status == CUPTI_SUCCESS;
    if (!*is_counted)
        counting_detach(c); /* it may be in the middle of its passes: another one for the next */
    if (!*is_counted && done == ATTN_OK)
        snprintf(why->text, sizeof why->text, "the counters: %s", cupti_words(status));
    free(data);
    return done;
}
