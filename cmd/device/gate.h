/* The stream gate: a kernel that spins until the host opens it, so that what is enqueued behind it begins when all of
 * it is there. */
#ifndef FABENCH_DEVICE_GATE_H
#define FABENCH_DEVICE_GATE_H

#include <stdbool.h>

#include "kernels/attention.h"

enum { GATE_TRIALS = 3 };

/* One try: the gate is closed, a kernel of the program is launched, the gate is opened. *gave_up: the gate's limit came
 * first. */
typedef enum attn_status gate_trial(void *context, bool *gave_up, struct attn_message *why);

/* Whether the call that launches a kernel waits for the device: under compute-sanitizer, a debugger or
 * CUDA_LAUNCH_BLOCKING it returns when the kernel has ended, so that nobody would open the gate. True where the gate
 * gave up in each of the trials; in one or two of them the host may have been busy. Fails with the trial. */
enum attn_status gate_try(gate_trial *trial, void *context, bool *waits, struct attn_message *why);

struct stream_gate {
    struct gate_words *host, *device; /* one memory */
    void *stream;
    bool is_held; /* closed, and the sample that opens it follows */
    bool waits;   /* launches wait for the device: it is never closed */
};

/* In a stream (cudaStream_t) that is idle. word: device memory of 8 bytes. A warning where launches wait. */
enum attn_status gate_make(struct stream_gate *, void *word, void *stream, struct attn_message *why);
void gate_free(struct stream_gate *);
enum attn_status gate_close(struct stream_gate *, struct attn_message *why);
void gate_open(struct stream_gate *);

/* Closed, and held until the sample that follows. Fails where launches wait for the device. */
enum attn_status gate_hold(struct stream_gate *, struct attn_message *why);

/* ATTN_ERROR and a sentence where the gate gave up because the launch behind it waited for the device. */
enum attn_status gate_check(const struct stream_gate *, struct attn_message *why);

#endif
