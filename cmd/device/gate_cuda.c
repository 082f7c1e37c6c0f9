#include "cmd/device/gate.h"

#include <cuda_runtime_api.h>
#include <stdio.h>

#include "cmd/base/log.h"
#include "cmd/device/backend.h"
#include "reference/harness/harness_cuda.h"

/* Time limits, in ns: of a launch, which shows by it that it waits for the device; and of a trial. */
#define GATE_LIMIT_NS UINT64_C(2000000000)
#define TRIAL_LIMIT_NS UINT64_C(100000000)

struct gate_words {
    volatile int open, timed_out;
};

static enum attn_status failed(struct attn_message *why, const char *what, cudaError_t error)
{
    if (error == cudaSuccess)
        return ATTN_OK;
    snprintf(why->text, sizeof why->text, "%s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
    cudaGetLastError();
    return ATTN_ERROR;
}

void gate_open(struct stream_gate *g)
{
    __atomic_store_n(&g->host->open, 1, __ATOMIC_SEQ_CST);
    g->is_held = false;
}

static enum attn_status close_for(struct stream_gate *g, uint64_t limit_ns, struct attn_message *why)
{
    g->host->open = g->host->timed_out = 0;
    if (g->waits)
        return ATTN_OK;
    return failed(why, "harness_gate",
                  (cudaError_t)harness_gate(&g->device->open, &g->device->timed_out, limit_ns, g->stream));
}

enum attn_status gate_close(struct stream_gate *g, struct attn_message *why)
{
    return close_for(g, GATE_LIMIT_NS, why);
}

enum attn_status gate_hold(struct stream_gate *g, struct attn_message *why)
{
    if (g->waits) {
        snprintf(why->text, sizeof why->text,
                 "launches wait for the device here (compute-sanitizer, a debugger, CUDA_LAUNCH_BLOCKING): where "
                 "libraries take part nothing can be timed");
        return ATTN_ERROR;
    }
    TRY(gate_close(g, why));
    g->is_held = true;
    return ATTN_OK;
}

enum attn_status gate_check(const struct stream_gate *g, struct attn_message *why)
{
    if (!g->host->timed_out)
        return ATTN_OK;
    snprintf(why->text, sizeof why->text, "the launch waited for the device for %g s: a launch must only enqueue",
             (double)GATE_LIMIT_NS * 1e-9);
    return ATTN_ERROR;
}

struct trial {
    struct stream_gate *gate;
    void *word;
};

static enum attn_status launch_behind(void *context, bool *gave_up, struct attn_message *why)
{
    const struct trial *trial = context;
    struct stream_gate *const g = trial->gate;
    TRY(close_for(g, TRIAL_LIMIT_NS, why));
    const cudaError_t launched = (cudaError_t)harness_pattern(trial->word, 8, 0, g->stream);
    gate_open(g);
    TRY(failed(why, "a kernel behind the gate", launched));
    TRY(failed(why, "a kernel behind the gate", cudaStreamSynchronize(g->stream)));
    *gave_up = g->host->timed_out != 0;
    return ATTN_OK;
}

enum attn_status gate_make(struct stream_gate *g, void *word, void *stream, struct attn_message *why)
{
    struct trial trial = {g, word};
    bool waits = false;
    *g = (struct stream_gate){.stream = stream};
    TRY(failed(why, "cudaHostAlloc", cudaHostAlloc((void **)&g->host, sizeof *g->host, cudaHostAllocMapped)));
    TRY(failed(why, "cudaHostGetDevicePointer", cudaHostGetDevicePointer((void **)&g->device, g->host, 0)));
    /* Loads the kernel, which may take longer than a trial. */
    TRY(failed(why, "the first kernel", (cudaError_t)harness_pattern(word, 8, 0, stream)));
    TRY(failed(why, "the first kernel", cudaStreamSynchronize(stream)));
    TRY(gate_try(launch_behind, &trial, &waits, why));
    g->waits = waits;
    if (waits)
        log_warn("launches wait for the device here (compute-sanitizer, a debugger, CUDA_LAUNCH_BLOCKING): in all "
                 "times is what the host does meanwhile");
    return ATTN_OK;
}

void gate_free(struct stream_gate *g) { cudaFreeHost(g->host); }
