/* The process that touches the device. The supervisor forks it, reads one JSON message per line from its pipe, watches
 * what it is doing through shared memory, and forks the next one behind a case that killed it.
 *
 * Messages: {"msg":"hello","platform":0|1,"slots":[{"name":..,"named":true}],"header":{..},"facts":{..}}
 *           {"msg":"row","item":i,"slot":j,"row":{..}}
 *           {"msg":"failed","item":i,"slot":j,"reason":".."}   the device is in doubt, the worker ends
 *           {"msg":"io"}                                        a file could not be written; the sentence is on stderr already
 *           {"msg":"fatal","exit":n}                            nothing (more) can run; the sentence is on stderr already
 *           {"msg":"done"} */
#ifndef FABENCH_WORKER_H
#define FABENCH_WORKER_H

#include <jansson.h>

#include "cmd/run/case_run.h"
#include "cmd/run/resume.h"
#include "cmd/run/session.h"

/* In memory shared by supervisor and worker. Written by the worker, but stop. */
struct worker_progress {
    volatile int item, slot, stage;
    volatile double since_ms; /* CLOCK_MONOTONIC when stage or slot last changed or a sample began */
    volatile char impl[40];   /* what the slot in flight resolved to, "" when that is not known */
    volatile int stop;        /* the supervisor asks the worker to end after the sample in flight */
};

struct worker_task {
    const struct options *options;
    const char *run_id;
    const unsigned *done;     /* slots of each item that have their row already; NULL for the first worker */
    const json_t *header;     /* the first worker's, NULL for itself: a later one must find the same device */
    const struct resume *resume; /* the record that the first worker goes on with, or NULL */
    bool is_first;            /* the first worker measures the copy ceiling and says what it chose */
    int pipe;
    struct worker_progress *progress;
};

/* Does not return to the caller's program: the forked child exits with this code. */
int worker_run(const struct worker_task *);

/* The facts that rows need, through the hello message. */
json_t *worker_facts_json(const struct run_facts *);
void worker_facts_parse(const json_t *, struct run_facts *);

#endif
