/* The process that uses the device. The supervisor starts it, reads one JSON message per line from its pipe, and what
 * it is doing from shared memory (cmd/run/progress.h); it starts the next one after a case that ended this one.
 *
 * Messages: {"msg":"hello","platform":0|1,"slots":[{"name":..,"named":true}],"header":{..},"facts":{..}}
 *           {"msg":"row","item":i,"slot":j,"row":{..}}
 *           {"msg":"failed","item":i,"slot":j,"reason":".."}   the device is in doubt, the worker ends
 *           {"msg":"apart","item":i,"slots":m,"reason":".."}   the loaded slots of these bits are to run in workers of
 *                                                              their own, the others again without them; this one ends
 *           {"msg":"renew"}            its memory cannot be trusted, it ends; another worker goes on
 *           {"msg":"late"}             --max-time-s is over before the next case; it ends
 *           {"msg":"io"}               a file could not be written; the sentence is on stderr already
 *           {"msg":"fatal","exit":n}   nothing (more) can run; the sentence is on stderr already
 *           {"msg":"done"} */
#ifndef FABENCH_WORKER_H
#define FABENCH_WORKER_H

#include <jansson.h>

#include "cmd/run/case_run.h"
#include "cmd/run/progress.h"
#include "cmd/run/resume.h"
#include "cmd/run/session.h"

struct worker_task {
    const struct options *options;
    const char *run_id;
    const unsigned *done;  /* slots of each item that get no row here; NULL for the first worker */
    const unsigned *rerun; /* those that are run nevertheless, without a row, to compare with; NULL = none */
    int apart;             /* the loaded slot for which this worker is, -1 = for all that can run together */
    const json_t *header;  /* header of the first worker, NULL for that one: a later one must find the same device */
    const struct resume *resume; /* the record that the first worker continues, or NULL */
    bool is_first;               /* the first worker: measures the copy ceiling and reports the chosen device */
    double until_ms;             /* clock_ms() from which on no case but the worker's first is begun */
    int pipe;
    struct progress *progress;
};

/* Runs in the child process; its value is the exit code. */
int worker_run(const struct worker_task *);

/* Reads the facts that rows need from the hello message. */
json_t *worker_facts_json(const struct run_facts *);
void worker_facts_parse(const json_t *, struct run_facts *);

#endif
