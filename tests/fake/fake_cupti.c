/* A fake libcupti.so for tests on machines without a GPU; struct fake_cupti sets its answers. It refuses what the
 * library itself refuses: a size of a struct that counts what the compiler puts behind its last member, and steps out
 * of their order. An image is the list of its metrics. The library itself does not refuse a second configuration of a
 * profiler, but has no values for it; this one refuses it. */
#include <stdlib.h>
#include <string.h>

#include "cmd/device/cupti.h"
#include "tests/fake/fake_cupti.h"

enum { INVALID = 1, WRONG_ORDER = 7 };

static struct fake_cupti state = {.metrics_per_pass = 4};

struct fake_cupti *fake_cupti_state(void) { return &state; }

struct image {
    const char *names[FAKE_METRICS_MAX];
    size_t count;
};

/* A host object is its metrics. */
static struct image hosts[16];

static struct image configured; /* of the profiler that is open */

static bool has_metric(const struct image *host, const char *name)
{
    for (size_t i = 0; i < host->count; i++)
        if (host->names[i] && !strcmp(host->names[i], name))
            return true;
    return false;
}

static int passes_of(const struct image *image)
{
    const int each = state.passes_per_metric ? state.passes_per_metric : 1;
    return ((int)image->count * each + state.metrics_per_pass - 1) / state.metrics_per_pass;
}

static int answer(const char *function, size_t size, size_t expected)
{
    const char *const fails = getenv("FAKE_CUPTI_FAILS");
    const size_t length = strlen(function);
    if (state.failing && !strcmp(state.failing, function))
        return state.status;
    if (fails && !strncmp(fails, function, length) && fails[length] == ':')
        return atoi(fails + length + 1);
    return size == expected ? CUPTI_SUCCESS : INVALID;
}
#define ANSWER(expected) \
    do { \
        const int answered = answer(__func__, p->size, expected); \
        if (answered != CUPTI_SUCCESS) \
            return answered; \
    } while (0)

#define PROTOTYPE(field, function, type) int function(struct type *p);
CUPTI_FUNCTIONS(PROTOTYPE)

int cuptiProfilerInitialize(struct cupti_plain *p)
{
    ANSWER(16);
    state.initialized++;
    return CUPTI_SUCCESS;
}

int cuptiProfilerDeInitialize(struct cupti_plain *p)
{
    ANSWER(16);
    state.initialized--;
    return CUPTI_SUCCESS;
}

int cuptiDeviceGetChipName(struct cupti_chip *p)
{
    ANSWER(32);
    p->name = "GH100";
    return CUPTI_SUCCESS;
}

int cuptiProfilerHostInitialize(struct cupti_host_create *p)
{
    ANSWER(48);
    if (strcmp(p->chip, "GH100"))
        return CUPTI_UNKNOWN_CHIP;
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        if (hosts[i].count)
            continue;
        hosts[i].count = 1; /* and an empty name */
        state.hosts++;
        p->host = &hosts[i];
        return CUPTI_SUCCESS;
    }
    return 8;
}

int cuptiProfilerHostDeinitialize(struct cupti_host *p)
{
    ANSWER(24);
    memset(p->host, 0, sizeof(struct image));
    state.hosts--;
    return CUPTI_SUCCESS;
}

int cuptiProfilerHostConfigAddMetrics(struct cupti_host_metrics *p)
{
    struct image *const host = p->host;
    ANSWER(40);
    for (size_t i = 0; i < p->count; i++) {
        if (state.unknown && strstr(p->names[i], state.unknown))
            return CUPTI_INVALID_METRIC;
        host->names[i] = p->names[i];
    }
    host->count = p->count;
    return CUPTI_SUCCESS;
}

int cuptiProfilerHostGetConfigImageSize(struct cupti_image_size *p)
{
    ANSWER(32);
    p->bytes = sizeof(struct image);
    return CUPTI_SUCCESS;
}

int cuptiProfilerHostGetConfigImage(struct cupti_image *p)
{
    ANSWER(40);
    memcpy(p->image, p->host, sizeof(struct image));
    return CUPTI_SUCCESS;
}

int cuptiProfilerHostGetNumOfPasses(struct cupti_passes *p)
{
    struct image image;
    ANSWER(40);
    memcpy(&image, p->image, sizeof image);
    p->passes = (size_t)passes_of(&image);
    return CUPTI_SUCCESS;
}

/* The value of a metric in FAKE_CUPTI_VALUES, or 0. */
static double value_of_environment(const char *metric)
{
    const char *at = getenv("FAKE_CUPTI_VALUES");
    for (; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, metric, strlen(metric)) && at[strlen(metric)] == '=')
            return atof(at + strlen(metric) + 1);
    return 0;
}

int cuptiProfilerHostEvaluateToGpuValues(struct cupti_values *p)
{
    ANSWER(72);
    for (size_t i = 0; i < p->count; i++) {
        p->values[i] = 0;
        if (!has_metric(p->host, p->names[i]))
            continue;
        p->values[i] = value_of_environment(p->names[i]); /* of each range */
        for (int k = 0; k < FAKE_METRICS_MAX; k++)
            if (state.values[k].metric && !strcmp(state.values[k].metric, p->names[i]))
                p->values[i] = p->range ? state.values[k].behind : state.values[k].value;
    }
    return CUPTI_SUCCESS;
}

int cuptiRangeProfilerEnable(struct cupti_enable *p)
{
    ANSWER(32);
    if (!state.initialized)
        return WRONG_ORDER;
    state.profilers++;
    memset(&configured, 0, sizeof configured);
    p->profiler = &state;
    return CUPTI_SUCCESS;
}

int cuptiRangeProfilerDisable(struct cupti_profiler *p)
{
    ANSWER(24);
    state.profilers--;
    state.is_started = state.is_pushed = false;
    return CUPTI_SUCCESS;
}

int cuptiRangeProfilerGetCounterDataSize(struct cupti_data_size *p)
{
    ANSWER(64);
    p->bytes = 64;
    return CUPTI_SUCCESS;
}

int cuptiRangeProfilerCounterDataImageInitialize(struct cupti_data *p)
{
    ANSWER(40);
    memset(p->data, 1, p->bytes);
    return CUPTI_SUCCESS;
}

int cuptiRangeProfilerSetConfig(struct cupti_config *p)
{
    ANSWER(90);
    if (configured.count && memcmp(&configured, p->config, sizeof configured))
        return WRONG_ORDER;
    memcpy(&configured, p->config, sizeof configured);
    state.pass = 0;
    return p->range == CUPTI_USER_RANGE && p->replay == CUPTI_USER_REPLAY && p->data && p->data[0] == 1 ? CUPTI_SUCCESS
                                                                                                        : INVALID;
}

int cuptiRangeProfilerStart(struct cupti_profiler *p)
{
    ANSWER(24);
    if (state.is_started)
        return WRONG_ORDER;
    state.is_started = true;
    return CUPTI_SUCCESS;
}

int cuptiRangeProfilerPushRange(struct cupti_range *p)
{
    ANSWER(32);
    if (!state.is_started || state.is_pushed)
        return WRONG_ORDER;
    state.is_pushed = true;
    return CUPTI_SUCCESS;
}

int cuptiRangeProfilerPopRange(struct cupti_profiler *p)
{
    ANSWER(24);
    if (!state.is_pushed)
        return WRONG_ORDER;
    state.is_pushed = false;
    return CUPTI_SUCCESS;
}

int cuptiRangeProfilerStop(struct cupti_stop *p)
{
    ANSWER(41);
    if (!state.is_started || state.is_pushed)
        return WRONG_ORDER;
    state.is_started = false;
    p->is_all = ++state.pass == passes_of(&configured) + state.passes_more;
    return CUPTI_SUCCESS;
}

int cuptiRangeProfilerDecodeData(struct cupti_decode *p)
{
    ANSWER(32);
    state.decoded++;
    return CUPTI_SUCCESS;
}
