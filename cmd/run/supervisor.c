/* Workers one after the other, time limits, interruption. */
#include "cmd/run/supervisor.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cmd/base/clock.h"
#include "cmd/base/log.h"
#include "cmd/base/paths.h"
#include "cmd/base/process.h"
#include "cmd/problem/problem.h"
#include "cmd/run/outputs.h"
#include "cmd/run/supervisor_state.h"
#include "cmd/run/worker.h"

/* Opening a device, loading libraries and preparing a problem may take this much longer than --timeout-s. */
static const double PREPARE_EXTRA_S = 120;
/* Interval in ms at which the supervisor checks the worker and shows progress. */
enum { TICK_MS = 100 };

/* ---- one worker ---- */

/* The input from the current worker, split into lines. */
struct input {
    struct supervisor *supervisor;
    char *text; /* the start of a line that is not complete yet */
    size_t used, capacity;
};

/* No case is begun later, but for the first one of the run. */
static double until_ms(const struct supervisor *s)
{
    return s->options->max_time_s > 0 ? s->started_ms + 1e3 * s->options->max_time_s : INFINITY;
}

/* In the child. */
static int run_worker(void *context, int pipe)
{
    const struct supervisor *s = context;
    const struct worker_task task = {.options = s->options,
                                     .run_id = s->run_id,
                                     .done = s->done ? s->skip : NULL,
                                     .rerun = s->rerun,
                                     .apart = s->apart_now,
                                     .header = s->header,
                                     .resume = s->resume,
                                     .is_first = s->outputs == NULL,
                                     .until_ms = until_ms(s),
                                     .pipe = pipe,
                                     .progress = s->progress};
    if (s->sink)
        close(fileno(s->sink)); /* code of others is not to write there */
    return worker_run(&task);
}

/* Reads what there is and handles every complete line. False at the end of the pipe. */
static bool receive_messages(void *context, int pipe)
{
    struct input *in = context;
    if (in->capacity - in->used < 65536) {
        in->capacity = in->capacity ? 2 * in->capacity : 1 << 18;
        in->text = xrealloc(in->text, in->capacity);
    }
    const ssize_t got = read(pipe, in->text + in->used, in->capacity - in->used - 1);
    if (got < 0)
        return errno == EINTR || errno == EAGAIN;
    if (got == 0)
        return false;
    in->used += (size_t)got;
    char *from = in->text, *end;
    while ((end = memchr(from, '\n', in->used - (size_t)(from - in->text))) != NULL) {
        *end = 0;
        supervisor_handle(in->supervisor, from);
        from = end + 1;
    }
    in->used -= (size_t)(from - in->text);
    memmove(in->text, from, in->used);
    return true;
}

static void show_progress(const struct supervisor *s)
{
    const struct progress_state *p = &s->now;
    char problem[80], left[32] = "";
    if (!s->outputs || p->item < 0 || p->item >= s->plan.count)
        return;
    const double elapsed_s = (clock_ms() - s->started_ms) * 1e-3;
    if (s->rows > s->rows_kept)
        snprintf(left, sizeof left, ", about %.0f s left",
                 elapsed_s / (s->rows - s->rows_kept) * (s->plan.count * s->slot_count - s->rows));
    problem_print(&s->plan.items[p->item].problem, s->plan.items[p->item].mode, problem, sizeof problem);
    log_progress("[%d/%d] %s: %s %s%s", p->item + 1, s->plan.count, problem,
                 p->slot >= 0 && p->slot < s->slot_count ? s->slots[p->slot].name : "harness",
                 case_stage_doing(p->stage), left);
}

/* Duration of the current step in s, without time in which supervisor and worker were suspended. */
static double in_flight_s(struct supervisor *s)
{
    const double now_ms = clock_ms();
    awake_clock_at(&s->clock, now_ms);
    return (now_ms - s->now.since_ms - (s->clock.paused_ms - s->paused_before_ms)) * 1e-3;
}

static bool is_over_limit(struct supervisor *s)
{
    const double elapsed_s = in_flight_s(s);
    /* Slot -1 is the work that belongs to no implementation. On the CPU most of it is the float64 oracle, which takes
     * minutes on long problems. It waits for nothing that could fail to answer, so that it has no limit. */
    if (s->now.slot < 0 && !strcmp(s->facts.device.arch, "cpu"))
        return false;
    const double limit_s = s->options->timeout_s + (s->now.stage == STAGE_PREPARE ? PREPARE_EXTRA_S : 0);
    return s->now.stage != STAGE_IDLE && elapsed_s > limit_s;
}

/* False when the worker is to be killed for running over its limit. After an interrupt it has a limit of its own. */
static bool check_worker(void *context)
{
    struct supervisor *s = ((struct input *)context)->supervisor;
    supervisor_update_progress(s);
    /* After EXIT_IO rows cannot be written, so that further measurements would be lost. */
    if (process_is_interrupted() || s->exit_code == EXIT_IO)
        s->is_stopping = true;
    if (s->is_stopping)
        atomic_store(&s->progress->stop, true);
    show_progress(s);
    return (!is_over_limit(s) && !process_signal_of_child() && !s->garbled) || process_is_interrupted();
}

/* Reports how the worker ended, when it sent no message about it. */
static void report_end(struct supervisor *s, const struct process_result *result)
{
    char reason[256], how[100];
    supervisor_update_progress(s);
    if (result->end == PROCESS_STUCK) {
        s->finished = true;
        worsen(s, EXIT_DEVICE);
    }
    const int sent = process_signal_of_child();
    if (sent && (s->reported || s->ended))
        log_warn("a worker process sent the supervisor signal %d (%s): ignored", sent, strsignal(sent));
    if (s->finished || s->reported || process_is_interrupted())
        return;
    if (s->ended) {
        if (s->outputs && !s->is_stopping)
            supervisor_check_complete(s);
        return;
    }
    const bool is_timeout = result->end == PROCESS_STOPPED && !sent && !s->garbled;
    if (s->garbled)
        snprintf(reason, sizeof reason, "something wrote into the record pipe of the worker process %s: killed",
                 case_stage_when(s->now.stage));
    else if (s->now.lost_pipe)
        snprintf(reason, sizeof reason, "the worker process lost its record pipe %s: file descriptors were closed",
                 case_stage_when(s->now.stage));
    else if (sent)
        snprintf(reason, sizeof reason, "the worker process sent the supervisor signal %d (%s) %s: killed", sent,
                 strsignal(sent), case_stage_when(s->now.stage));
    else if (is_timeout)
        snprintf(reason, sizeof reason, "no answer for %.0f s %s: killed", in_flight_s(s),
                 case_stage_when(s->now.stage));
    else
        snprintf(reason, sizeof reason, "the worker process %s %s", process_describe(result, how, sizeof how),
                 case_stage_when(s->now.stage));
    if (!s->outputs || s->now.item < 0) { /* before the first case: another worker would fail in the same way */
        log_error("%s (opening the device)", reason);
        worsen(s, EXIT_DEVICE);
        s->finished = true;
        return;
    }
    supervisor_blame(s, s->now.item, s->now.slot, is_timeout ? STATUS_TIMEOUT : STATUS_ERROR,
                     result->end == PROCESS_SIGNALLED ? result->code : 0, reason);
}

/* One worker from start to end. False when it could not be started. */
static bool run_one_worker(struct supervisor *s)
{
    struct input input = {.supervisor = s};
    const struct process_request request = {.function = run_worker, .context = s, .has_pipe = true, .untrusted = true};
    const struct process_watch watch = {
        .tick_ms = TICK_MS, .tick = check_worker, .read = receive_messages, .context = &input};
    struct process worker;
    struct process_result result;
    s->now = (struct progress_state){.item = -1, .slot = -1, .stage = STAGE_PREPARE, .since_ms = clock_ms()};
    s->clock = (struct awake_clock){0};
    s->paused_before_ms = 0;
    progress_reset(s->progress, &s->now, process_is_interrupted());
    supervisor_choose_slots(s);
    const bool keeps_children = process_has_children(); /* of the shell that became this program */
    s->finished = s->reported = s->ended = s->garbled = s->is_stopping = false;
    s->witness_slot = -1;
    for (int i = 0; i < s->slot_count; i++)
        s->slots[i].witness_item = -1;
    const int error = process_start(&request, &worker);
    if (error) {
        log_error("a worker process cannot be started: %s", strerror(error));
        return false;
    }
    process_watch(&worker, &watch, &result);
    if (result.end != PROCESS_STUCK && !keeps_children)
        process_end_children();
    if (result.end == PROCESS_STUCK)
        log_error("the worker process %d cannot be killed: it hangs in the driver", (int)worker.pid);
    report_end(s, &result);
    free(input.text);
    return true;
}

static void run_workers(struct supervisor *s)
{
    int rows;
    do {
        const unsigned apart = s->apart;
        rows = s->rows;
        if (!run_one_worker(s)) {
            worsen(s, EXIT_IO);
            return;
        }
        supervisor_count_idle(s, s->rows == rows && s->apart == apart && !s->ended);
        s->finished |= s->ended && s->rows == rows; /* another one would come no further */
        s->is_late |= !s->finished && s->item < s->plan.count && s->rows > s->rows_kept && clock_ms() >= until_ms(s);
    } while (!s->finished && !s->is_late && !process_is_interrupted() && s->item < s->plan.count &&
             s->exit_code != EXIT_IO);
}

/* An implementation that the user named and that ran on no problem is an error: exit 6. */
static void check_all_ran(struct supervisor *s)
{
    bool any_ran = false;
    for (int i = 0; i < s->slot_count; i++) {
        any_ran = any_ran || s->slots[i].has_run;
        if (s->slots[i].named && !s->slots[i].has_run) {
            log_error("--impl %s: ran nowhere; its refusals say why", s->slots[i].name);
            worsen(s, EXIT_DEVICE);
        }
    }
    if (!any_ran && s->exit_code == EXIT_OK) {
        log_error("nothing ran; the refusals say why");
        worsen(s, EXIT_DEVICE);
    }
}

void supervisor_run_id(char *id, size_t size)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    snprintf(id, size, "%08llx%05lx%05x", (unsigned long long)t.tv_sec, (unsigned long)t.tv_nsec >> 12,
             (unsigned)getpid());
}

/* Opens the record that --resume continues. EXIT_OK, or a code after a sentence. */
static int open_record(struct supervisor *s, struct resume *resume)
{
    const int opened = resume_open(resume, s->options);
    if (opened != EXIT_OK)
        return opened;
    const char *run_id = json_string_value(json_object_get(resume->file.header, "run_id"));
    if (resume->file.header) {
        snprintf(s->run_id, sizeof s->run_id, "%s", run_id ? run_id : "");
        s->resume = resume;
    } else {
        log_note("%s: no header yet; the run begins anew", path_shown(resume->file.path).text);
        resume_close(resume);
    }
    return EXIT_OK;
}

static void free_supervisor(struct supervisor *s)
{
    if (s->resume)
        resume_close(s->resume);
    free(s->done);
    free(s->ran);
    free(s->skip);
    free(s->rerun);
    json_decref(s->header);
    plan_free(&s->plan);
    progress_close(s->progress);
}

/* From the first worker to the last; the run's id and where rows go are set. */
static int supervise(struct supervisor *s)
{
    const struct options *options = s->options;
    struct resume resume;
    s->started_ms = clock_ms();
    s->progress = progress_open();
    if (!s->progress) {
        log_error("no memory to share with workers: %s", strerror(errno));
        return EXIT_IO;
    }
    process_catch_interrupts();
    process_adopt_orphans();
    const int opened = options->resume && !s->resume ? open_record(s, &resume) : EXIT_OK;
    if (opened != EXIT_OK) {
        free_supervisor(s);
        return opened;
    }
    run_workers(s);
    const bool is_stopped = process_is_interrupted() || s->is_late;
    if (is_stopped)
        worsen(s, EXIT_INTERRUPTED);
    else if (s->outputs && s->exit_code != EXIT_IO)
        check_all_ran(s);
    int code = s->exit_code;
    if (s->broken_rows > options->max_failures)
        log_error("%lld more rows ended in an error or a timeout (--max-failures)",
                  (long long)(s->broken_rows - options->max_failures));
    if (is_stopped)
        log_note("%s; the rows so far are complete",
                 process_is_interrupted() ? "interrupted" : "stopped at --max-time-s");
    if (s->outputs)
        code = run_outputs_close(s->outputs, (clock_ms() - s->started_ms) * 1e-3, s->exit_code);
    if (process_is_interrupted())
        code = exit_worst(code, EXIT_INTERRUPTED);
    free_supervisor(s);
    return code;
}

int supervisor_run(const struct options *options)
{
    struct supervisor s = {.options = options};
    if (options_has_boards(options))
        return supervisor_run_boards(options);
    supervisor_run_id(s.run_id, sizeof s.run_id);
    return supervise(&s);
}

int supervisor_run_board(const struct options *options, const char *run_id, struct resume *resume, FILE *sink)
{
    struct supervisor s = {.options = options, .sink = sink, .resume = resume};
    snprintf(s.run_id, sizeof s.run_id, "%s", run_id);
    return supervise(&s);
}
