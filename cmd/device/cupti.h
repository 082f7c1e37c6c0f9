/* NVIDIA's profiling library (CUPTI), loaded at run time: its Range Profiler and Profiler Host, of CUDA 12.6 and newer.
 * Names and numbers follow the CUPTI reference; the program declares its own structs and prototypes and needs no CUPTI
 * header (cupti_profiler_host.h is no C).
 *
 * The first member of each struct is its size as CUPTI counts it: up to the end of the last member, without what the
 * compiler puts behind that. sizeof may be more, which CUPTI refuses.
 *
 * FABENCH_CUPTI names the library's file; otherwise it is looked for by the loader and in the CUDA toolkit. */
#ifndef FABENCH_CUPTI_H
#define FABENCH_CUPTI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CUPTI_BEGIN \
    size_t size; \
    void *unused
#define CUPTI_SIZE(type, last) (offsetof(struct type, last) + sizeof((struct type *)NULL)->last)

enum { CUPTI_RANGE_PROFILER = 0, CUPTI_USER_RANGE = 2, CUPTI_USER_REPLAY = 3 };

/* CUptiResult; the last two are our own: a function that the library lacks, a range that was not counted. */
enum {
    CUPTI_SUCCESS = 0,
    CUPTI_INVALID_METRIC = 17,
    CUPTI_BUSY = 26,
    CUPTI_NO_PRIVILEGE = 35,
    CUPTI_OTHER_SUBSCRIBER = 39,
    CUPTI_MIG = 43,
    CUPTI_UNKNOWN_CHIP = 46,
    CUPTI_NO_FUNCTION = -1,
    CUPTI_LOST = -2
};

struct cupti_plain { /* initialise, deinitialise */
    CUPTI_BEGIN;
};

struct cupti_chip {
    CUPTI_BEGIN;
    size_t device;
    const char *name; /* out */
};

struct cupti_host_create {
    CUPTI_BEGIN;
    int profiler_type;
    const char *chip;
    const uint8_t *availability; /* NULL: the chip is known to the library */
    void *host;                  /* out */
};

struct cupti_host {
    CUPTI_BEGIN;
    void *host;
};

struct cupti_host_metrics {
    CUPTI_BEGIN;
    void *host;
    const char *const *names;
    size_t count;
};

struct cupti_image_size {
    CUPTI_BEGIN;
    void *host;
    size_t bytes; /* out */
};

struct cupti_image {
    CUPTI_BEGIN;
    void *host;
    size_t bytes;
    uint8_t *image;
};

struct cupti_passes {
    CUPTI_BEGIN;
    size_t bytes;
    const uint8_t *image;
    size_t passes; /* out */
};

struct cupti_values {
    CUPTI_BEGIN;
    void *host;
    const uint8_t *data;
    size_t data_bytes, range;
    const char *const *names;
    size_t count;
    double *values; /* out */
};

struct cupti_enable {
    CUPTI_BEGIN;
    void *context;
    void *profiler; /* out */
};

struct cupti_profiler { /* disable, start, end of a range */
    CUPTI_BEGIN;
    void *profiler;
};

struct cupti_range {
    CUPTI_BEGIN;
    void *profiler;
    const char *name;
};

struct cupti_stop {
    CUPTI_BEGIN;
    void *profiler;
    size_t pass, level; /* out */
    uint8_t is_all;     /* out: no pass is left */
};

struct cupti_decode {
    CUPTI_BEGIN;
    void *profiler;
    size_t dropped; /* out: ranges */
};

struct cupti_data_size {
    CUPTI_BEGIN;
    void *profiler;
    const char *const *names;
    size_t count, ranges;
    uint32_t nodes;
    size_t bytes; /* out */
};

struct cupti_data {
    CUPTI_BEGIN;
    void *profiler;
    size_t bytes;
    uint8_t *data;
};

struct cupti_config {
    CUPTI_BEGIN;
    void *profiler;
    size_t config_bytes;
    const uint8_t *config;
    size_t data_bytes;
    uint8_t *data;
    int range, replay;
    size_t ranges_per_pass;
    uint16_t levels, lowest_level;
    size_t pass;
    uint16_t target_level;
};

/* The functions that are used: field, name, what it takes. */
#define CUPTI_FUNCTIONS(ROW) \
    ROW(initialize, cuptiProfilerInitialize, cupti_plain) \
    ROW(deinitialize, cuptiProfilerDeInitialize, cupti_plain) \
    ROW(chip_name, cuptiDeviceGetChipName, cupti_chip) \
    ROW(host_create, cuptiProfilerHostInitialize, cupti_host_create) \
    ROW(host_destroy, cuptiProfilerHostDeinitialize, cupti_host) \
    ROW(add_metrics, cuptiProfilerHostConfigAddMetrics, cupti_host_metrics) \
    ROW(image_size, cuptiProfilerHostGetConfigImageSize, cupti_image_size) \
    ROW(image, cuptiProfilerHostGetConfigImage, cupti_image) \
    ROW(passes, cuptiProfilerHostGetNumOfPasses, cupti_passes) \
    ROW(values, cuptiProfilerHostEvaluateToGpuValues, cupti_values) \
    ROW(enable, cuptiRangeProfilerEnable, cupti_enable) \
    ROW(disable, cuptiRangeProfilerDisable, cupti_profiler) \
    ROW(data_size, cuptiRangeProfilerGetCounterDataSize, cupti_data_size) \
    ROW(data_begin, cuptiRangeProfilerCounterDataImageInitialize, cupti_data) \
    ROW(set_config, cuptiRangeProfilerSetConfig, cupti_config) \
    ROW(start, cuptiRangeProfilerStart, cupti_profiler) \
    ROW(stop, cuptiRangeProfilerStop, cupti_stop) \
    ROW(push, cuptiRangeProfilerPushRange, cupti_range) \
    ROW(pop, cuptiRangeProfilerPopRange, cupti_profiler) \
    ROW(decode, cuptiRangeProfilerDecodeData, cupti_decode)

#define CUPTI_POINTER(field, function, type) int (*field)(struct type *);
struct cupti {
    CUPTI_FUNCTIONS(CUPTI_POINTER)
};
#undef CUPTI_POINTER

/* The library's functions, or NULL with the reason. It stays loaded; a second call has the answer of the first, as long
 * as FABENCH_CUPTI is the same. */
const struct cupti *cupti_load(char *why, size_t why_size);

/* A status in words; valid until the next call. */
const char *cupti_words(int status);

#endif
