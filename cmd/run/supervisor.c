/* Workers one after the other, messages, time limits, interruption. */
#include "cmd/run/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cmd/base/clock.h"
#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/problem/problem.h"
#include "cmd/run/outputs.h"
#include "cmd/run/worker.h"

/* Opening a device, loading libraries and preparing a problem may take this much longer than --timeout-s. */
static const double PREPARE_EXTRA_S = 120;
/* After Ctrl-C the sample in flight may take this long before the worker is killed. */
static const double INTERRUPT_LIMIT_S = 10;

static volatile sig_atomic_t interrupts;

static void on_signal(int number)
{
    (void)number;
    interrupts++;
}

struct slot_state { char name[40]; bool named, has_run; };
/* After SIGKILL a process that hangs in its driver may never go away. */
static const double KILL_LIMIT_S = 10;

struct supervisor {
    const struct options *options;
    char run_id[40];
    struct worker_progress *progress;
    struct run_outputs *outputs;        /* NULL until the first hello */
    struct plan plan;
    struct run_facts facts;
    struct slot_state slots[IMPL_MAX_SLOTS];
    int slot_count;
    unsigned *done;             /* slots of each item that have their row; NULL until the first hello */
    int item;                   /* the first one that is not complete */
    int items_kept;             /* complete before this run began */
    json_t *header;             /* of the first hello */
    struct resume *resume;      /* the record that is gone on with, or NULL */
    int exit_code;
    double started_ms;
    bool finished;              /* done or fatal was read */
    bool reported;              /* the worker said how it failed */
};

static void worsen(struct supervisor *s, int code) { s->exit_code = exit_worst(s->exit_code, code); }

static unsigned all_slots(const struct supervisor *s) { return (unsigned)((UINT64_C(1) << s->slot_count) - 1); }

static void mark_done(struct supervisor *s, int item, int slot)
{
    s->done[item] |= 1u << slot;
    while (s->item < s->plan.count && s->done[s->item] == all_slots(s))
        s->item++;
}

/* The exit code after a row, and the error message of a row that failed. */
static void apply_row(struct supervisor *s, int slot, const struct record_row *row)
{
    if (row->status == STATUS_OK)
        s->slots[slot].has_run = true;
    if (record_row_is_broken(row)) {
        log_error("%s: %s: %s", row->impl, record_status_names[row->status], row->reason);
        worsen(s, EXIT_DEVICE);
    }
    if (row->check == CHECKED_FAIL)
        worsen(s, EXIT_CHECK_FAILED);
}

/* One finished row, from the worker or made here. */
static void handle_row(struct supervisor *s, int item, int slot, const struct record_row *row)
{
    apply_row(s, slot, row);
    if (s->outputs)
        worsen(s, run_outputs_add(s->outputs, row));
    mark_done(s, item, slot);
}

static void handle_failure(struct supervisor *s, int item, int slot, enum record_status status, const char *reason)
{
    struct record_row row;
    if (item < s->item || item >= s->plan.count || (slot >= 0 && s->done[item] & 1u << slot)) {
        log_error("%s: after its row was complete: %s", slot >= 0 ? s->slots[slot].name : "harness", reason);
        worsen(s, EXIT_DEVICE);
        return;
    }
    for (int i = 0; i < s->slot_count; i++) {
        /* A failure of the harness itself (slot -1) leaves no implementation of the problem a chance. */
        if ((slot >= 0 && i != slot) || s->done[item] & 1u << i)
            continue;
        /* Under its own name where it is known which one `fused` meant. */
        const bool in_flight = i == slot && s->progress->slot == slot && s->progress->impl[0];
        row_begin(&row, s->options, &s->facts, &s->plan.items[item], s->slots[i].name,
                  in_flight ? (const char *)s->progress->impl : s->slots[i].name);
        row_end(&row, status, reason);
        handle_row(s, item, i, &row);
        record_row_free(&row);
    }
}

/* The rows that the record holds already, to every view but the record. */
static void show_kept_rows(struct supervisor *s)
{
    const struct record_file *file = &s->resume->file;
    const char *names[IMPL_MAX_SLOTS];
    struct attn_message why;
    for (int i = 0; i < s->slot_count; i++)
        names[i] = s->slots[i].name;
    FABENCH_ASSERT(resume_match(s->resume, &s->plan, names, s->slot_count, s->done, NULL, &why), "%s", why.text);
    for (int i = 0; i < file->count; i++) {
        for (int slot = 0; slot < s->slot_count; slot++)
            if (!strcmp(names[slot], file->rows[i].asked))
                apply_row(s, slot, &file->rows[i]);
        worsen(s, run_outputs_show(s->outputs, &file->rows[i]));
    }
    while (s->item < s->plan.count && s->done[s->item] == all_slots(s))
        s->item++;
    s->items_kept = s->item;
    log_note("%s: %d of %d rows are there%s; the rest is run", file->path, file->count, s->plan.count * s->slot_count,
             file->cut ? ", a cut line is dropped" : "");
}

static void handle_hello(struct supervisor *s, const json_t *message)
{
    if (s->outputs)
        return; /* a later worker: nothing new */
    const enum attn_platform platform = (enum attn_platform)json_integer_value(json_object_get(message, "platform"));
    const json_t *slots = json_object_get(message, "slots");
    s->slot_count = (int)json_array_size(slots);
    for (int i = 0; i < s->slot_count; i++) {
        const json_t *slot = json_array_get(slots, (size_t)i);
        snprintf(s->slots[i].name, sizeof s->slots[i].name, "%s", json_string_value(json_object_get(slot, "name")));
        s->slots[i].named = json_is_true(json_object_get(slot, "named"));
    }
    worker_facts_parse(json_object_get(message, "facts"), &s->facts);
    const int planned = s->options->command == COMMAND_VERIFY ? plan_make_verify(s->options, platform, &s->plan)
                                                              : plan_make(s->options, platform, &s->plan);
    FABENCH_ASSERT(planned == EXIT_OK, "the worker's plan was legal");
    s->done = xcalloc((unsigned long)s->plan.count, sizeof *s->done);
    s->header = json_incref(json_object_get(message, "header"));
    s->outputs = run_outputs_open(s->options, s->header, s->resume);
    if (!s->outputs) { /* nothing can be kept: the worker need not go on */
        s->progress->stop = 1;
        s->finished = true;
        worsen(s, EXIT_IO);
    } else if (s->resume) {
        show_kept_rows(s);
    }
}

static void handle_message(struct supervisor *s, const char *line)
{
    json_error_t error;
    json_t *message = json_loads(line, 0, &error);
    const char *kind = json_string_value(json_object_get(message, "msg"));
    const int item = (int)json_integer_value(json_object_get(message, "item"));
    const int slot = (int)json_integer_value(json_object_get(message, "slot"));
    if (!kind) {
        json_decref(message); /* the last words of a worker that died in the middle of a line */
        return;
    }
    if (!strcmp(kind, "hello")) {
        handle_hello(s, message);
    } else if (!strcmp(kind, "row")) {
        struct record_row row;
        char why[128];
        memset(&row, 0, sizeof row);
        FABENCH_ASSERT(record_row_parse(json_object_get(message, "row"), &row, why, sizeof why), "%s", why);
        handle_row(s, item, slot, &row);
        record_row_free(&row);
    } else if (!strcmp(kind, "failed")) {
        s->reported = true;
        handle_failure(s, item, slot, STATUS_ERROR, json_string_value(json_object_get(message, "reason")));
    } else if (!strcmp(kind, "io")) {
        worsen(s, EXIT_IO);
    } else if (!strcmp(kind, "fatal")) {
        s->finished = true;
        if (!s->outputs)
            s->exit_code = (int)json_integer_value(json_object_get(message, "exit"));
        else
            worsen(s, EXIT_DEVICE); /* a later worker could not open what the first one could */
    } else if (!strcmp(kind, "done")) {
        s->finished = true;
    }
    json_decref(message);
}

/* ---- one worker ---- */

struct child { pid_t pid; int pipe; char *line; size_t used, capacity; bool abandoned; };

static bool start_worker(struct supervisor *s, struct child *child)
{
    int ends[2];
    memset(child, 0, sizeof *child);
    if (pipe2(ends, O_CLOEXEC) != 0) {
        log_error("pipe: %s", strerror(errno));
        return false;
    }
    fflush(stdout);
    *s->progress = (struct worker_progress){.item = -1, .slot = -1, .stage = STAGE_PREPARE, .since_ms = clock_ms(),
                                            .stop = interrupts > 0};
    s->finished = s->reported = false;
    child->pid = fork();
    if (child->pid < 0) {
        log_error("fork: %s", strerror(errno));
        return false;
    }
    if (child->pid == 0) {
        const struct worker_task task = {.options = s->options, .run_id = s->run_id, .done = s->done,
                                         .header = s->header, .resume = s->resume,
                                         .is_first = s->outputs == NULL, .pipe = ends[1],
                                         .progress = s->progress};
        close(ends[0]);
        const int code = worker_run(&task);
        fflush(NULL);
        _exit(code);
    }
    close(ends[1]);
    child->pipe = ends[0];
    return true;
}

/* Reads what there is and handles every complete line. False at the end of the pipe. */
static bool receive_messages(struct supervisor *s, struct child *child)
{
    if (child->capacity - child->used < 65536) {
        child->capacity = child->capacity ? 2 * child->capacity : 1 << 18;
        child->line = xrealloc(child->line, child->capacity);
    }
    const ssize_t got = read(child->pipe, child->line + child->used, child->capacity - child->used - 1);
    if (got < 0)
        return errno == EINTR || errno == EAGAIN;
    if (got == 0)
        return false;
    child->used += (size_t)got;
    char *from = child->line, *end;
    while ((end = memchr(from, '\n', child->used - (size_t)(from - child->line))) != NULL) {
        *end = 0;
        handle_message(s, from);
        from = end + 1;
    }
    child->used -= (size_t)(from - child->line);
    memmove(child->line, from, child->used);
    return true;
}

static void show_progress(const struct supervisor *s)
{
    const struct worker_progress *p = s->progress;
    char problem[80], left[32] = "";
    if (!s->outputs || p->item < 0 || p->item >= s->plan.count)
        return;
    const double elapsed_s = (clock_ms() - s->started_ms) * 1e-3;
    if (p->item > s->items_kept)
        snprintf(left, sizeof left, ", about %.0f s left",
                 elapsed_s / (p->item - s->items_kept) * (s->plan.count - p->item));
    problem_print(&s->plan.items[p->item].problem, s->plan.items[p->item].mode, problem, sizeof problem);
    log_progress("[%d/%d] %s: %s %s%s", p->item + 1, s->plan.count, problem,
                 p->slot >= 0 && p->slot < s->slot_count ? s->slots[p->slot].name : "harness",
                 case_stage_doing(p->stage), left);
}

/* Has the work in flight run over its limit? */
static bool is_over_limit(const struct supervisor *s)
{
    /* The float64 oracle takes minutes on long problems, and cannot hang. */
    if (s->progress->slot < 0 && !strcmp(s->facts.device.arch, "cpu"))
        return false;
    const double limit_s = s->options->timeout_s + (s->progress->stage == STAGE_PREPARE ? PREPARE_EXTRA_S : 0);
    return s->progress->stage != STAGE_IDLE && (clock_ms() - s->progress->since_ms) * 1e-3 > limit_s;
}

/* The worker has ended, whoever else may still hold its end of the pipe. */
static bool is_gone(const struct child *child)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child->pid;
}

static void kill_worker(const struct child *child, double *killed_ms)
{
    if (*killed_ms > 0)
        return;
    *killed_ms = clock_ms();
    kill(child->pid, SIGKILL);
}

/* Reads until the worker is gone. Returns true when it was killed for running over its limit. */
static bool watch_worker(struct supervisor *s, struct child *child)
{
    bool killed = false, open = true;
    double interrupted_ms = 0, killed_ms = 0, last_ms = clock_ms();
    while (open) {
        struct pollfd fd = {.fd = child->pipe, .events = POLLIN};
        const int ready = poll(&fd, 1, 100);
        if (ready > 0)
            open = receive_messages(s, child);
        else if (ready == 0 && is_gone(child))
            break;
        if (clock_ms() - last_ms > 2000) /* we were suspended, and so was the worker */
            s->progress->since_ms += clock_ms() - last_ms;
        last_ms = clock_ms();
        if (killed_ms > 0 && (clock_ms() - killed_ms) * 1e-3 > KILL_LIMIT_S) {
            log_error("the worker process %d cannot be killed: it hangs in the driver", (int)child->pid);
            s->finished = child->abandoned = true;
            worsen(s, EXIT_DEVICE);
            break;
        }
        if (interrupts > 0 && !s->progress->stop) {
            s->progress->stop = 1;
            interrupted_ms = clock_ms();
        }
        if (interrupts > 1 || (interrupted_ms > 0 && (clock_ms() - interrupted_ms) * 1e-3 > INTERRUPT_LIMIT_S))
            kill_worker(child, &killed_ms);
        if (!killed && interrupts == 0 && is_over_limit(s)) {
            killed = true;
            kill_worker(child, &killed_ms);
        }
        if (s->exit_code == EXIT_IO)
            s->progress->stop = 1; /* rows can no longer be kept: measuring on would be for nothing */
        show_progress(s);
    }
    return killed;
}

/* How the worker ended, when it did not say so itself. */
static void report_end(struct supervisor *s, const struct child *child, bool killed)
{
    int state = 0;
    char reason[256];
    while (!child->abandoned && waitpid(child->pid, &state, 0) < 0 && errno == EINTR) {
    }
    if (s->finished || s->reported || interrupts > 0)
        return;
    const struct worker_progress *p = s->progress;
    const char *stage = case_stage_when(p->stage);
    if (killed)
        snprintf(reason, sizeof reason, "no answer for %.0f s %s: killed", (clock_ms() - p->since_ms) * 1e-3, stage);
    else if (WIFSIGNALED(state))
        snprintf(reason, sizeof reason, "the worker process died of signal %d (%s) %s", WTERMSIG(state),
                 strsignal(WTERMSIG(state)), stage);
    else
        snprintf(reason, sizeof reason, "the worker process ended with code %d %s", WEXITSTATUS(state), stage);
    if (!s->outputs || p->item < 0) { /* before the first case: nothing that another worker would do better */
        log_error("%s (opening the device)", reason);
        worsen(s, EXIT_DEVICE);
        s->finished = true;
        return;
    }
    handle_failure(s, p->item, p->slot, killed ? STATUS_TIMEOUT : STATUS_ERROR, reason);
}

static void run_workers(struct supervisor *s)
{
    struct child child;
    do {
        if (!start_worker(s, &child)) {
            worsen(s, EXIT_IO);
            return;
        }
        const bool killed = watch_worker(s, &child);
        report_end(s, &child, killed);
        close(child.pipe);
        free(child.line);
    } while (!s->finished && interrupts == 0 && s->item < s->plan.count && s->exit_code != EXIT_IO);
}

/* An implementation that the user named and that ran on no problem is a failure: exit 6, not 0. */
static void check_all_ran(struct supervisor *s)
{
    bool any_ran = false;
    for (int i = 0; i < s->slot_count; i++) {
        any_ran = any_ran || s->slots[i].has_run;
        if (s->slots[i].named && !s->slots[i].has_run) {
            log_error("--impl %s: ran nowhere; the rows say why", s->slots[i].name);
            worsen(s, EXIT_DEVICE);
        }
    }
    if (!any_ran && s->exit_code == EXIT_OK) {
        log_error("nothing ran; the rows say why");
        worsen(s, EXIT_DEVICE);
    }
}

int supervisor_run(const struct options *options)
{
    struct supervisor s = {.options = options, .started_ms = clock_ms()};
    struct resume resume;
    struct sigaction action = {.sa_handler = on_signal};
    struct timespec t;
    s.progress = mmap(NULL, sizeof *s.progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s.progress == MAP_FAILED) {
        log_error("mmap: %s", strerror(errno));
        return EXIT_IO;
    }
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    clock_gettime(CLOCK_REALTIME, &t);
    snprintf(s.run_id, sizeof s.run_id, "%08llx%05lx%05x", (unsigned long long)t.tv_sec, (unsigned long)t.tv_nsec >> 12,
             (unsigned)getpid());
    if (options->resume) {
        const int opened = resume_open(&resume, options);
        if (opened != EXIT_OK) {
            munmap(s.progress, sizeof *s.progress);
            return opened;
        }
        const char *run_id = json_string_value(json_object_get(resume.file.header, "run_id"));
        snprintf(s.run_id, sizeof s.run_id, "%s", run_id ? run_id : "");
        s.resume = &resume;
    }
    run_workers(&s);
    if (interrupts > 0)
        worsen(&s, EXIT_INTERRUPTED);
    else if (s.outputs && s.exit_code != EXIT_IO)
        check_all_ran(&s);
    int code = s.exit_code;
    if (s.outputs)
        code = run_outputs_close(s.outputs, (clock_ms() - s.started_ms) * 1e-3, s.exit_code);
    if (interrupts > 0) {
        code = exit_worst(code, EXIT_INTERRUPTED);
        log_note("interrupted; the rows so far are whole");
    }
    if (s.resume)
        resume_close(s.resume);
    free(s.done);
    json_decref(s.header);
    plan_free(&s.plan);
    munmap(s.progress, sizeof *s.progress);
    return code;
}

int supervisor_call(const struct options *options, const char *what, int (*function)(const struct options *),
                    double limit_s)
{
    int state = 0;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid < 0) {
        log_error("fork: %s", strerror(errno));
        return EXIT_IO;
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGPIPE, SIG_IGN);
        const int code = function(options);
        if (fflush(stdout) == 0 && !ferror(stdout))
            _exit(code);
        log_error("%s: stdout could not be written: %s", what, strerror(errno));
        _exit(EXIT_IO);
    }
    const double start_ms = clock_ms();
    for (;;) {
        const pid_t gone = waitpid(pid, &state, WNOHANG);
        if (gone == pid)
            break;
        if (gone < 0 && errno != EINTR) {
            log_error("%s: waitpid: %s", what, strerror(errno));
            return EXIT_IO;
        }
        if (limit_s > 0 && (clock_ms() - start_ms) * 1e-3 > limit_s) {
            kill(pid, SIGKILL);
            waitpid(pid, &state, 0);
            log_error("%s: no answer for %.0f s: killed", what, limit_s);
            return EXIT_DEVICE;
        }
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    if (WIFEXITED(state))
        return WEXITSTATUS(state);
    log_error("%s: died of signal %d (%s)", what, WTERMSIG(state), strsignal(WTERMSIG(state)));
    return EXIT_DEVICE;
}
