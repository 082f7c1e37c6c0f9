/* Runs a child process and checks its limits on output, silence and time. */
#include "cmd/gate/fresh_process.h"

#include <fcntl.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/base/clock.h"
#include "cmd/base/log.h"
#include "cmd/base/process.h"
#include "cmd/base/text.h"
#include "cmd/device/backend.h"
#include "cmd/device/implementations.h"
#include "cmd/run/supervisor.h"

/* Seconds after SIGINT in which a process may finish its current sample and end its own children. */
static const double INTERRUPT_LIMIT_S = 15;
/* The interval at which the output is checked. */
enum { TICK_MS = 50 };

/* One process while it runs. */
struct run {
    const struct fresh_request *request;
    int out, err;
    off_t seen;        /* bytes of both files at the last check */
    double last_grown; /* when they last grew, in ms of the awake clock */
    struct awake_clock clock;
    enum fresh_end limit; /* the limit that it exceeded, FRESH_EXITED = none */
};

static off_t size_of(int file)
{
    struct stat status;
    return fstat(file, &status) == 0 ? status.st_size : 0;
}

static double output_limit_mb(const struct fresh_request *request)
{
    return request->output_limit_mb > 0 ? request->output_limit_mb : FRESH_OUTPUT_LIMIT_MB;
}

static bool is_too_much(const struct run *run, off_t bytes)
{
    return (double)bytes > 1e6 * output_limit_mb(run->request);
}

/* False when the process wrote too much, or nothing for too long. */
static bool check_output(void *context)
{
    struct run *run = context;
    const off_t bytes = size_of(run->out) + size_of(run->err);
    const double now = awake_clock_at(&run->clock, clock_ms());
    if (run->request->progress)
        log_progress("%s", run->request->progress);
    if (bytes != run->seen || run->last_grown <= 0)
        run->last_grown = now;
    run->seen = bytes;
    if (run->limit == FRESH_EXITED && is_too_much(run, bytes))
        run->limit = FRESH_TOO_MUCH;
    else if (run->limit == FRESH_EXITED && now - run->last_grown > 1e3 * run->request->silence_limit_s)
        run->limit = FRESH_SILENT;
    return run->limit == FRESH_EXITED;
}

/* The last line of a file that is not blank. */
static void read_last_line(int file, char *last, size_t size)
{
    char tail[2048], line[2048] = "";
    const off_t bytes = size_of(file), from = bytes > (off_t)sizeof tail - 1 ? bytes - (off_t)sizeof tail + 1 : 0;
    const ssize_t got = pread(file, tail, sizeof tail - 1, from);
    tail[got > 0 ? got : 0] = 0;
    for (char *rest = tail, *at; (at = strsep(&rest, "\n")) != NULL;)
        if (at[strspn(at, " \t\r")])
            snprintf(line, sizeof line, "%s", strncmp(at, "fabench: ", 9) == 0 ? at + 9 : at);
    text_clean(line, last, size);
}

/* Fills *result from the end of the process and from the limits. */
static void fill_result(const struct run *run, const struct process_result *ended, struct fresh_result *result)
{
    /* Check again: the limit must also hold for output written after the last check. */
    const bool is_large = is_too_much(run, size_of(run->out) + size_of(run->err));
    result->code = ended->code;
    result->elapsed_s = ended->elapsed_s;
    if (process_is_interrupted())
        result->end = FRESH_INTERRUPTED;
    else if (ended->end == PROCESS_STUCK)
        result->end = FRESH_STUCK;
    else if (ended->end == PROCESS_OVER_LIMIT)
        result->end = FRESH_TOO_LONG;
    else if (ended->end == PROCESS_STOPPED)
        result->end = run->limit;
    else if (is_large)
        result->end = FRESH_TOO_MUCH;
    else
        result->end = ended->end == PROCESS_EXITED ? FRESH_EXITED : FRESH_SIGNALLED;
    result->limit = result->end == FRESH_TOO_LONG   ? run->request->wall_limit_s
                    : result->end == FRESH_TOO_MUCH ? output_limit_mb(run->request)
                                                    : 0;
}

void fresh_run(const struct fresh_request *request, struct fresh_result *result)
{
    const int flags = O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC;
    struct run run = {.request = request, .limit = FRESH_EXITED, .out = open(request->out_path, flags, 0666)};
    const int out_error = errno;
    run.err = open(request->err_path, flags, 0666);
    memset(result, 0, sizeof *result);
    result->end = FRESH_NOT_STARTED;
    result->code = run.out < 0 ? out_error : errno;
    if (run.out >= 0 && run.err >= 0) {
        const struct process_request start = {
            .argv = request->argv, .in = PROCESS_NO_FILE, .out = run.out, .err = run.err, .own_group = true};
        const struct process_watch watch = {.limit_s = request->wall_limit_s,
                                            .interrupt_limit_s = INTERRUPT_LIMIT_S,
                                            .interrupt_signal = SIGINT,
                                            .tick_ms = TICK_MS,
                                            .tick = check_output,
                                            .context = &run};
        struct process process;
        struct process_result ended;
        result->code = process_start(&start, &process);
        if (result->code == 0) {
            process_watch(&process, &watch, &ended);
            log_progress_clear();
            fill_result(&run, &ended, result);
        }
        read_last_line(run.err, result->last_line, sizeof result->last_line);
    }
    if (run.out >= 0)
        close(run.out);
    if (run.err >= 0)
        close(run.err);
}

char *fresh_describe(const struct fresh_result *r, char *buffer, unsigned long size)
{
    const char *colon = r->last_line[0] ? ": " : "";
    switch (r->end) {
    case FRESH_EXITED: snprintf(buffer, size, "ended with code %d%s%s", r->code, colon, r->last_line); break;
    case FRESH_SIGNALLED:
        snprintf(buffer, size, "died of signal %d (%s)%s%s", r->code, strsignal(r->code), colon, r->last_line);
        break;
    case FRESH_SILENT:
        snprintf(buffer, size, "wrote nothing for too long and was killed after %.0f s%s%s", r->elapsed_s, colon,
                 r->last_line);
        break;
    case FRESH_TOO_LONG:
        snprintf(buffer, size, "took longer than %g s, the limit, and was killed%s%s", r->limit, colon, r->last_line);
        break;
    case FRESH_TOO_MUCH:
        snprintf(buffer, size, "wrote more than %g MB, the limit, and was stopped%s%s", r->limit, colon, r->last_line);
        break;
    case FRESH_STUCK: snprintf(buffer, size, "cannot be killed%s%s", colon, r->last_line); break;
    case FRESH_INTERRUPTED: snprintf(buffer, size, "was interrupted"); break;
    case FRESH_NOT_STARTED: snprintf(buffer, size, "cannot be started: %s", strerror(r->code)); break;
    }
    return buffer;
}

/* Runs backend_open and impls_load in the child of supervisor_call; the result comes back through shared memory. */

static struct shared {
    struct device_probe probe;
    const char *command, *library;
} * shared;

static int list_library(enum attn_platform platform, struct device_probe *probe)
{
    struct impls built_in, all;
    char *names[] = {(char *)(uintptr_t)shared->library};
    const struct name_list none = {0}, library = {names, 1};
    int status = impls_load(&none, &built_in);
    if (status == EXIT_OK)
        status = impls_load(&library, &all);
    if (status != EXIT_OK)
        return status;
    for (int i = built_in.count; i < all.count && probe->impl_count < PROBE_IMPLS_MAX; i++)
        if (all.all[i]->platform == platform)
            snprintf(probe->impls[probe->impl_count++], sizeof probe->impls[0], "%s", all.all[i]->name);
    return EXIT_OK;
}

static int probe_here(const struct options *o)
{
    struct backend backend;
    struct attn_message why = {""};
    const enum device_choice choice = o->device == DEVICE_AUTO ? DEVICE_CUDA : o->device;
    if (backend_open(&backend, choice, o->device_ordinal, &why) != ATTN_OK) {
        if (o->device == DEVICE_AUTO)
            log_error("%s needs a GPU: %s; --device cpu compares on the CPU", shared->command, why.text);
        else
            log_error("--device cuda:%d: %s", o->device_ordinal, why.text);
        return EXIT_DEVICE;
    }
    const enum attn_platform platform = backend.device.platform;
    snprintf(shared->probe.device, sizeof shared->probe.device, "%s", backend.info.name);
    snprintf(shared->probe.lock_name, sizeof shared->probe.lock_name, "%s",
             platform == ATTN_CPU ? "cpu" : backend.info.pci_bus_id);
    const int status = shared->library ? list_library(platform, &shared->probe) : EXIT_OK;
    backend.ops->close(&backend);
    return status;
}

int probe_device(const struct options *o, const char *command, const char *library, struct device_probe *probe)
{
    shared = process_share(sizeof *shared);
    if (!shared) {
        log_error("no memory to share with a child process: %s", strerror(errno));
        return EXIT_IO;
    }
    shared->command = command; /* valid in the child too, which is a copy of this process */
    shared->library = library;
    const int status = supervisor_call(o, command, probe_here, 120);
    *probe = shared->probe;
    process_unshare(shared, sizeof *shared);
    return status;
}
