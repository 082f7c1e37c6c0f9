/* Recording and putting back around the steps of loaded implementations. */
#include "cmd/run/neighbours.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cmd/base/log.h"
#include "cmd/base/process.h"
#include "cmd/base/process_state.h"
#include "cmd/device/others.h"

enum {
    THREADS_MAX = 1024,
    CALM_MS = 200, /* threads of OpenMP wait actively for some ms before they sleep */
    CALM_POLL_MS = 10,
    TOLD_CHILD = 1 << 30, /* bits beside those of process_part */
    TOLD_THREADS = 1 << 29,
};

struct neighbours {
    struct progress *progress;
    const struct impl_slot *slots;
    pid_t pid;
    int pipe;
    struct file_identity pipe_file;
    struct process_state *state;
    int slot;          /* the loaded one whose step began last */
    bool is_inside;    /* that step has not ended */
    bool handlers_due; /* signal handlers were not compared since then */
    enum case_stage stage;
    char impl[sizeof((struct progress_state *)0)->impl];
    unsigned called;
    int runaway;
    pid_t threads[THREADS_MAX]; /* those that were there when the step began */
    int thread_count;
    bool keeps_children; /* there were some before the first case: of a profiler, not of an implementation */
};

struct neighbours *neighbours_open(struct progress *progress, const struct impl_slot *slots, int pipe)
{
    struct neighbours *n = xcalloc(1, sizeof *n);
    n->progress = progress;
    n->slots = slots;
    n->pid = getpid();
    n->pipe = pipe;
    n->pipe_file = file_identity_of(pipe);
    n->runaway = -1;
    n->keeps_children = process_has_children();
    process_adopt_orphans();
    return n;
}

void neighbours_close(struct neighbours *n)
{
    process_state_free(n->state);
    free(n);
}

unsigned neighbours_called(const struct neighbours *n) { return n->called; }

/* True the first time in this run. */
static bool is_news(struct neighbours *n, unsigned bit)
{
    return !(atomic_fetch_or(&n->progress->told[n->slot], bit) & bit);
}

/* ---- threads ---- */

/* Lists the threads of this process but the calling one; returns their number. */
static int list_threads(pid_t *threads, int max)
{
    DIR *all = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *entry; all && count < max && (entry = readdir(all)) != NULL;) {
        const long id = strtol(entry->d_name, NULL, 10);
        if (id > 0 && id != getpid())
            threads[count++] = (pid_t)id;
    }
    if (all)
        closedir(all);
    return count;
}

static int count_new_running(const struct neighbours *n)
{
    pid_t now[THREADS_MAX];
    const int count = list_threads(now, THREADS_MAX);
    int running = 0;
    for (int i = 0; i < count; i++) {
        bool is_old = false;
        for (int j = 0; j < n->thread_count && !is_old; j++)
            is_old = n->threads[j] == now[i];
        running += !is_old && others_is_runnable(now[i]);
    }
    return running;
}

/* New threads get CALM_MS to fall asleep. */
static void look_at_threads(struct neighbours *n)
{
    int running = 0;
    for (int waited_ms = 0; (running = count_new_running(n)) > 0 && waited_ms < CALM_MS; waited_ms += CALM_POLL_MS)
        nanosleep(&(struct timespec){.tv_nsec = CALM_POLL_MS * 1000000L}, NULL);
    if (running == 0)
        return;
    n->runaway = n->slot;
    if (is_news(n, TOLD_THREADS))
        log_warn("%s: %d of its threads computed on %d ms after its function had returned", n->impl, running, CALM_MS);
}

/* ---- steps ---- */

/* Nothing can be sent any more: the supervisor reads the step, and why, from shared memory. */
static void end_without_pipe(struct neighbours *n)
{
    struct progress_state now;
    if (progress_read(n->progress, &now)) {
        now.lost_pipe = 1;
        progress_write(n->progress, &now);
    }
    _exit(EXIT_DEVICE);
}

static void check_process(struct neighbours *n, bool has_stuck_streams)
{
    while (getpid() != n->pid) /* a copy that came back from its function: the worker ends it */
        pause();
    if (has_stuck_streams || !file_identity_holds(&n->pipe_file, n->pipe))
        end_without_pipe(n);
}

/* Signal handlers are not compared after each sample: where several slots were timed, it is not known who changed
 * them. */
static void tell_changes(struct neighbours *n, unsigned changed, unsigned stuck)
{
    const bool is_one = (n->called & (n->called - 1)) == 0;
    for (int i = 0; i < PROCESS_PARTS; i++) {
        const unsigned bit = 1u << i;
        const bool is_of_some = n->handlers_due && !is_one && bit == PART_SIGNAL_HANDLERS;
        if (changed & bit && (is_of_some ? !(atomic_fetch_or(&n->progress->told_of_some, bit) & bit) : is_news(n, bit)))
            log_warn("%s changed %s of the worker process: %s", is_of_some ? "a loaded implementation" : n->impl,
                     process_part_name(i), stuck & bit ? "this cannot be put back" : "put back");
    }
}

static void put_back(struct neighbours *n, unsigned parts)
{
    unsigned stuck = 0;
    const unsigned changed = process_state_put_back(n->state, parts, &stuck);
    check_process(n, stuck & PART_STREAMS);
    tell_changes(n, changed, stuck);
    const int ended = n->keeps_children ? 0 : process_end_children();
    if (ended && is_news(n, TOLD_CHILD))
        log_warn("%s left %d child process%s behind: ended", n->impl, ended, ended == 1 ? "" : "es");
}

/* Between two samples. */
static void leave_sample(struct neighbours *n)
{
    if (!n->is_inside)
        return;
    put_back(n, PARTS_QUICK);
    n->is_inside = false;
    n->handlers_due = true;
}

static void leave_all(struct neighbours *n)
{
    if (!n->is_inside && !n->handlers_due)
        return;
    put_back(n, PARTS_ALL);
    if (n->is_inside && n->stage != STAGE_TIME)
        look_at_threads(n);
    n->is_inside = n->handlers_due = false;
}

void neighbours_leave(struct neighbours *n)
{
    if (n->is_inside && n->stage == STAGE_TIME)
        leave_sample(n);
    else
        leave_all(n);
}

void neighbours_enter(struct neighbours *n, enum case_stage stage, int slot, const char *impl)
{
    const bool is_next_sample = n->stage == STAGE_TIME && stage == STAGE_TIME;
    if (is_next_sample)
        leave_sample(n);
    else
        leave_all(n);
    n->stage = stage;
    if (slot < 0 || !n->slots[slot].is_loaded)
        return;
    if (!n->state || !is_next_sample) { /* between two samples nothing else changes the state */
        process_state_free(n->state);
        n->state = process_state_record();
        n->thread_count = list_threads(n->threads, THREADS_MAX);
    }
    n->slot = slot;
    n->is_inside = true;
    n->called |= 1u << slot;
    snprintf(n->impl, sizeof n->impl, "%s", impl[0] ? impl : n->slots[slot].name);
}

int neighbours_runaway(struct neighbours *n)
{
    const int slot = n->runaway;
    n->runaway = -1;
    return slot;
}
