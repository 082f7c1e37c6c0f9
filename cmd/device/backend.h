/* The interface to a device. Code above it (buffers, checking, rounds) is written once for CPU and CUDA. backend_cpu.c
 * and backend_cuda.c are the two implementations. Not thread-safe; used by the worker only.
 */
#ifndef FABENCH_BACKEND_H
#define FABENCH_BACKEND_H

#include "cmd/options/options.h"
#include "kernels/attention.h"
#include "reference/compare.h"
#include "reference/harness/fill.h"
#include "reference/harness/quantise.h"
#include "reference/reference.h"

/* Identity of the device, for the record header and every row. Strings are empty when unknown. */
struct device_info {
    char name[64], arch[16], driver[24], cuda[16], pci_bus_id[24], uuid[48];
    double memory_bytes, l2_bytes;
    int multiprocessors, compute_capability;
    double max_sm_clock_mhz, memory_gb_per_s; /* of CUDA devices, at most; 0 = not known */
};

/* What is digested of one tensor: its elements after a change of these signs. */
struct digest_job {
    struct attn_tensor tensor;
    size_t element_bytes; /* 1, 2 or 4 */
    int64_t batch, heads, len, head_dim;
    struct column_signs signs;
};

/* What a sample is watched by (cmd/run/work.h). */
enum { PROBE_SPANS = 4, PROBE_PAGE = 4096, PROBE_LATE = 3 };
struct probe {
    struct {
        const void *data;
        size_t bytes;
    } spans[PROBE_SPANS]; /* the outputs */
    int count;
    uint64_t seed;   /* of the words that are looked at, one in each page */
    bool is_flushed; /* the caches have been flushed: a cold sample need not */
    bool is_held;    /* `hold` was called before the inputs changed */
    /* Signs that a sample after `hold` changes last, behind the flush of the caches. */
    struct digest_job late[PROBE_LATE];
    int late_count;
    /* Set by a sample: the words, read within the clock; and the CPU time that other threads of the process took
     * between `settle` and the launch. */
    uint64_t seen;
    double others_ms;
    double repeat_ms; /* set by `repeat`: its launches, by the clock that samples are timed with */
};

/* Inputs to quantise, all in memory of the device but lengths and page tables, which are on the host. */
struct quantiser {
    struct quantise_job jobs[QUANTISED_COUNT];
    int count;
    void *workspace; /* as large as quantise_room says */
};

/* One thing to launch and time: an implementation with its buffers, quantising, or a ceiling. */
struct launcher {
    const struct quantiser *quantiser; /* not NULL: nothing else is launched */
    const struct attn_impl *impl; /* NULL = reading read_bytes; where that is 0, the GEMM of request->problem->dtype */
    size_t read_bytes;
    const struct attn_request *request;
    const struct attn_tensors *tensors;
    struct attn_run run;
    void *graph;         /* set by backend_capture, freed by backend_uncapture */
    struct probe *probe; /* NULL = samples are not watched */
};

/* hash: equal for equal elements at equal positions, zeros without their sign; comparable on one device only.
 * all_set: elements whose bits are all set, as POISON_PATTERN leaves them. */
struct digest {
    uint64_t hash, all_set;
};

enum { DIGEST_MAX = 8, READ_MULTIPLE = 64 };

struct backend {
    const struct backend_ops *ops;
    struct attn_device device;
    struct device_info info;
    void *state;
};

struct backend_ops {
    void (*close)(struct backend *);
    enum attn_status (*alloc)(struct backend *, size_t bytes, void **pointer, struct attn_message *why);
    void (*release)(struct backend *, void *pointer);
    size_t (*free_bytes)(struct backend *);
    enum attn_status (*upload)(struct backend *, void *to, const void *from, size_t bytes, struct attn_message *why);
    enum attn_status (*download)(struct backend *, void *to, const void *from, size_t bytes, struct attn_message *why);
    enum attn_status (*fill)(struct backend *, struct attn_tensor, enum attn_dtype, int64_t batch, int64_t heads,
                             int64_t len, int64_t head_dim, const struct fill_spec *, enum fill_tensor,
                             struct attn_message *why);
    enum attn_status (*round)(struct backend *, const float *from, struct attn_tensor to, enum attn_dtype,
                              int64_t batch, int64_t heads, int64_t len, int64_t head_dim, struct attn_message *why);
    /* Of the device's memory to the device's memory; enqueues. */
    enum attn_status (*copy)(struct backend *, void *to, const void *from, size_t bytes, struct attn_message *why);
    /* Waits until nothing of this process runs beside the calling thread: on a CPU other threads, limit_ms at most, on
     * CUDA all that was enqueued in any stream. is_before_launch: from then on up to the next launch no handler of a
     * signal runs, and a sample accounts for other threads (cmd/device/others.h). */
    enum attn_status (*settle)(struct backend *, double limit_ms, bool is_before_launch, bool *is_calm,
                               struct attn_message *why);
    /* After a parallel region of the program itself, whose threads are no others. */
    void (*own_threads)(struct backend *);
    /* Reads the words of a probe again. */
    enum attn_status (*look)(struct backend *, const struct probe *, uint64_t *seen, struct attn_message *why);
    /* What is enqueued from now on waits for the sample that follows, which the device does without a pause, or for
     * the next call that waits for the device. NULL on a CPU. */
    enum attn_status (*hold)(struct backend *, struct attn_message *why);
    /* Enqueues and does not wait, as does flip, which changes these signs. */
    enum attn_status (*pattern)(struct backend *, void *buffer, size_t bytes, uint32_t pattern,
                                struct attn_message *why);
    enum attn_status (*count_mismatch)(struct backend *, const void *buffer, size_t bytes, uint32_t pattern,
                                       uint64_t *mismatches, struct attn_message *why);
    enum attn_status (*flip)(struct backend *, struct attn_tensor, size_t element_bytes, int64_t batch, int64_t heads,
                             int64_t len, int64_t head_dim, const struct column_signs *, struct attn_message *why);
    /* Digests of at most DIGEST_MAX tensors. */
    enum attn_status (*digest)(struct backend *, const struct digest_job *, int count, struct digest *digests,
                               struct attn_message *why);
    /* blocks: host memory. */
    enum attn_status (*compare)(struct backend *, const struct compare_job *, struct compare_block *blocks,
                                struct attn_message *why);
    size_t (*reference_workspace)(struct backend *, const struct attn_problem *, enum attn_mode);
    enum attn_status (*reference)(struct backend *, const struct attn_problem *, enum attn_mode,
                                  const struct attn_tensors *, const struct reference_outputs *, void *workspace,
                                  size_t workspace_bytes, struct attn_message *why);
    /* Can the device quantise these jobs itself? Then the bytes of their workspace. */
    bool (*quantise_room)(struct backend *, const struct quantiser *, size_t *workspace_bytes);
    /* Runs the launcher once and waits for it. */
    enum attn_status (*launch)(struct backend *, const struct launcher *, struct attn_message *why);
    /* Tries to capture the launcher in a CUDA graph, which reduces the host's cost of a launch. A launcher that cannot
     * be captured has no graph; this is not an error. */
    enum attn_status (*capture)(struct backend *, struct launcher *, struct attn_message *why);
    void (*uncapture)(struct backend *, struct launcher *);
    /* Allocates the buffer that flushes the caches before a cold sample, once. A cold sample does it where this was not
     * called before; a run calls it first, so that its problems find the memory as it will be when they are timed. */
    enum attn_status (*make_flush)(struct backend *, struct attn_message *why);
    /* Flushes the caches of a CPU; NULL on CUDA, where a sample does it. */
    enum attn_status (*flush)(struct backend *, struct attn_message *why);
    /* One sample: [flush L2 when cold,] start, launch, stop; waits; milliseconds. */
    enum attn_status (*sample)(struct backend *, const struct launcher *, bool cold, double *time_ms,
                               struct attn_message *why);
    /* `count` launches back to back, then waits for the last. */
    enum attn_status (*repeat)(struct backend *, const struct launcher *, int64_t count, struct attn_message *why);
    /* One launch with a time stamp after each pass; fills names and milliseconds of at most `max` passes. */
    enum attn_status (*passes)(struct backend *, const struct launcher *, int max, char names[][16], double *times_ms,
                               int *count, struct attn_message *why);
    /* Makes the GEMM ceiling of a dtype ready; ATTN_UNSUPPORTED on a platform without one. */
    enum attn_status (*gemm_prepare)(struct backend *, enum attn_dtype, double *flops, struct attn_message *why);
    /* Makes the read ceiling ready for launchers with so many read_bytes, a multiple of READ_MULTIPLE: a buffer of its
     * own, which all threads or multiprocessors read. Frees the buffer of the call before; 0 only does that. */
    enum attn_status (*read_prepare)(struct backend *, size_t bytes, struct attn_message *why);
    /* Copy bandwidth in GB/s (1e9, bytes read plus bytes written), NaN where not measured. */
    double (*copy_gbps)(struct backend *);
    void (*profile_range)(struct backend *, bool begin, const char *name);
};

/* Opens the device that the options ask for. AUTO takes CUDA device 0 where it can be used, else, where the driver
 * reports no GPU, the CPU; then it returns ATTN_OK with a note in `why`. ATTN_ERROR with a sentence when the requested
 * device is not usable, and for AUTO where there is a GPU that this build cannot use: a benchmark of a GPU must not run
 * on the CPU by mistake. */
enum attn_status backend_open(struct backend *, enum device_choice, int ordinal, struct attn_message *why);

/* The CUDA devices that this process may use, in their order; at most DEVICES_MAX. Of each its name, PCI address and
 * UUID, without a context. ATTN_ERROR with a sentence where there is none. */
enum { DEVICES_MAX = 64 };
enum attn_status backend_list(struct device_info devices[DEVICES_MAX], int *count, struct attn_message *why);

/* The GPUs that the driver of this machine reports, whether this build can use them or not; those that
 * CUDA_VISIBLE_DEVICES hides do not count. */
int backend_driver_gpus(void);

/* The sentence for a machine where no CUDA device can be used. driver: the CUDA version that the driver serves, 0 =
 * there is no driver; runtime: the one this program was built with; both 1000 * major + 10 * minor. error: the words of
 * the CUDA runtime, which stand where the two versions are not the cause. */
void backend_say_no_device(int driver, int runtime, const char *error, struct attn_message *why);

enum attn_status backend_open_cpu(struct backend *, struct attn_message *why);
enum attn_status backend_open_cuda(struct backend *, int ordinal, struct attn_message *why);
/* The number of CUDA devices, at least 1; or a sentence. */
enum attn_status backend_count_cuda(int *count, struct attn_message *why);
/* Of CUDA: free_bytes; quantise_room, and the jobs in a stream, a cudaError_t. */
size_t backend_free_bytes_cuda(struct backend *);
bool backend_quantise_room_cuda(struct backend *, const struct quantiser *, size_t *workspace_bytes);
int backend_quantise_cuda(const struct quantiser *, void *stream);
enum attn_status backend_list_cuda(struct device_info devices[DEVICES_MAX], int *count, struct attn_message *why);
/* Fills what is known of a device. */
enum attn_status backend_describe_cuda(struct backend *, int ordinal, struct attn_message *why);
double backend_copy_gbps_cuda(void *stream);

/* Returns the status of a call that did not succeed to the caller, whose `why` the call has filled. */
#define TRY(call) \
    do { \
        const enum attn_status try_status = (call); \
        if (try_status != ATTN_OK) \
            return try_status; \
    } while (0)

#endif
