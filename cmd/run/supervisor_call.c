/* One function in a child process. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/process.h"
#include "cmd/run/supervisor.h"

struct call {
    const struct options *options;
    const char *what;
    int (*function)(const struct options *);
};

/* In the child. */
static int run_call(void *context, int pipe)
{
    const struct call *call = context;
    (void)pipe;
    signal(SIGPIPE, SIG_IGN); /* a closed stdout is then a write error, not a signal */
    const int code = call->function(call->options);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    log_error("%s: stdout could not be written: %s", call->what, strerror(errno));
    return EXIT_IO;
}

int supervisor_call(const struct options *options, const char *what, int (*function)(const struct options *),
                    double limit_s)
{
    struct call call = {options, what, function};
    const struct process_request request = {.function = run_call, .context = &call};
    const struct process_watch watch = {.limit_s = limit_s};
    struct process child;
    struct process_result result;
    char how[100];
    process_catch_interrupts();
    const int error = process_start(&request, &child);
    if (error) {
        log_error("%s: a process cannot be started: %s", what, strerror(error));
        return EXIT_IO;
    }
    process_watch(&child, &watch, &result);
    if (result.end == PROCESS_EXITED)
        return result.code;
    const bool is_by_hand = result.end == PROCESS_SIGNALLED && (result.code == SIGINT || result.code == SIGTERM);
    if (result.end == PROCESS_INTERRUPTED || process_is_interrupted() || is_by_hand) {
        log_error("%s: interrupted", what);
        return EXIT_INTERRUPTED;
    }
    log_error("%s: %s", what, process_describe(&result, how, sizeof how));
    return EXIT_DEVICE;
}
