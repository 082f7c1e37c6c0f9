/* fork, exec, poll, kill, wait. */
#include "cmd/base/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/base/clock.h"

/* Polling interval for the end of a process where the kernel has no pidfd. */
enum { END_POLL_MS = 20 };

/* ---- interrupts ---- */

static volatile sig_atomic_t interrupts;
static atomic_int *shared_interrupts; /* of the process that shares them, whose number is sharing */
static pid_t sharing;
static volatile sig_atomic_t untrusted;       /* number of the untrusted child and its group, 0 = none */
static volatile sig_atomic_t signal_of_child; /* the last signal that it sent */

/* A sender that has ended and was reaped counts as a process of the user: the `kill` of a shell is gone at once. */
static bool is_of_child(const siginfo_t *info)
{
    const bool was_sent = info->si_code == SI_USER || info->si_code == SI_QUEUE || info->si_code == SI_TKILL;
    return untrusted > 0 && was_sent && (info->si_pid == untrusted || getpgid(info->si_pid) == untrusted);
}

/* Ctrl-Z does not reach the group of the child. */
static void stop_with_child(void)
{
    const pid_t group = untrusted;
    if (group > 0)
        kill(-group, SIGSTOP);
    raise(SIGSTOP);
    if (group > 0 && group == untrusted)
        kill(-group, SIGCONT);
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    const int error = errno;
    (void)context;
    if (is_of_child(info)) {
        signal_of_child = number;
    } else if (number == SIGINT || number == SIGTERM) {
        interrupts++;
        if (shared_interrupts && getpid() == sharing)
            atomic_store(shared_interrupts, interrupts);
    } else if (number == SIGTSTP || number == SIGTTIN || number == SIGTTOU) {
        stop_with_child();
    } else { /* its default effect, as soon as this function returns */
        signal(number, SIG_DFL);
        raise(number);
    }
    errno = error;
}

/* Signals whose default effect would end or stop this process, and that no fault of its own raises. */
static bool is_guarded(int number)
{
    static const int others[] = {SIGHUP,  SIGQUIT, SIGABRT, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM,
                                 SIGPROF, SIGPOLL, SIGXCPU, SIGTSTP, SIGTTIN, SIGTTOU};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (number == others[i])
            return true;
    return number >= SIGRTMIN && number <= SIGRTMAX;
}

void process_catch_interrupts(void)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO}, before;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    for (int number = 1; number <= SIGRTMAX; number++)
        if (is_guarded(number) && sigaction(number, NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            sigaction(number, &action, NULL);
}

/* In a child: what on_signal handles has its default effect again. */
static void release_signals(void)
{
    struct sigaction now;
    for (int number = 1; number <= SIGRTMAX; number++)
        if (sigaction(number, NULL, &now) == 0 && now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_signal)
            signal(number, SIG_DFL);
}

/* This process' own, or those of the one that shares its: a key at the terminal reaches both. */
static int interrupt_count(void)
{
    const int own = interrupts, shared = shared_interrupts ? atomic_load(shared_interrupts) : 0;
    return own > shared ? own : shared;
}

bool process_share_interrupts(void)
{
    shared_interrupts = process_share(sizeof *shared_interrupts);
    sharing = getpid();
    if (shared_interrupts)
        atomic_store(shared_interrupts, interrupts);
    return shared_interrupts != NULL;
}

bool process_is_interrupted(void) { return interrupt_count() > 0; }
int process_signal_of_child(void) { return signal_of_child; }

/* ---- starting ---- */

/* Duplicates `file` onto the child's descriptor `target`. */
static bool redirect(int file, int target)
{
    if (file == PROCESS_NO_FILE)
        file = open("/dev/null", target == STDIN_FILENO ? O_RDONLY : O_WRONLY);
    if (file == target && file > 0)
        return fcntl(target, F_SETFD, 0) == 0; /* already this number, because the parent had closed that descriptor */
    return file == STDIN_FILENO || (file > 0 && dup2(file, target) >= 0);
}

/* Runs in the child that executes a program; does not return. Sends the errno of a failed exec by `report`. */
static void execute(const struct process_request *request, int pipe_end, int report)
{
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    const int out = request->has_pipe ? pipe_end : request->out;
    if (redirect(request->in, STDIN_FILENO) && redirect(out, STDOUT_FILENO) && redirect(request->err, STDERR_FILENO) &&
        (!request->dir || chdir(request->dir) == 0)) {
        if (strchr(request->argv[0], '/'))
            execv(request->argv[0], request->argv); /* not execvp: it would run a text file with a shell */
        else
            execvp(request->argv[0], request->argv);
    }
    const int error = errno;
    _exit(write(report, &error, sizeof error) == sizeof error ? 127 : 126);
}

static bool has_group(const struct process_request *request) { return request->own_group || request->untrusted; }

static void run_child(const struct process_request *request, pid_t parent, int pipe_end, int report)
{
    if (has_group(request))
        setpgid(0, 0);
    if (request->untrusted) {
        release_signals();
        signal(SIGTTOU, SIG_IGN); /* a process group in the background may write to the terminal */
    }
    prctl(PR_SET_PDEATHSIG, request->argv ? SIGTERM : SIGKILL);
    if (getppid() != parent) /* the parent ended before prctl */
        _exit(126);
    if (request->argv)
        execute(request, pipe_end, report);
    const int code = request->function(request->context, pipe_end);
    fflush(NULL);
    _exit(code);
}

static void close_files(const int *files, int count)
{
    for (int i = 0; i < count; i++)
        if (files[i] >= 0)
            close(files[i]);
}

/* The errno of a failed exec, or 0 when the program runs: a successful exec closes the write end of the pipe. */
static int read_exec_error(int report)
{
    int error = 0;
    ssize_t got;
    while ((got = read(report, &error, sizeof error)) < 0 && errno == EINTR) {
    }
    return got == sizeof error ? error : 0;
}

static int open_watch_file(pid_t pid)
{
#ifdef SYS_pidfd_open
    return (int)syscall(SYS_pidfd_open, pid, 0); /* closed on exec by definition */
#else
    (void)pid;
    return -1;
#endif
}

/* fork. A signal that an untrusted child sends at once waits until its number is known here. */
static pid_t fork_unseen(bool is_untrusted)
{
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    const pid_t pid = fork();
    if (is_untrusted && pid >= 0) {
        signal_of_child = 0;
        untrusted = pid; /* in the child 0, none */
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return pid;
}

int process_start(const struct process_request *request, struct process *p)
{
    enum { PIPE_READ, PIPE_WRITE, REPORT_READ, REPORT_WRITE, FILES };
    int files[FILES] = {-1, -1, -1, -1};
    const pid_t parent = getpid();
    *p = (struct process){.pid = -1, .watch_file = -1, .pipe = -1, .has_group = has_group(request)};
    struct sigaction action;
    if (sigaction(SIGCHLD, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
        signal(SIGCHLD, SIG_DFL); /* an inherited SIG_IGN would discard the exit status of children */
    fflush(NULL);
    if ((!request->has_pipe || pipe2(&files[PIPE_READ], O_CLOEXEC) == 0) &&
        (!request->argv || pipe2(&files[REPORT_READ], O_CLOEXEC) == 0))
        p->pid = fork_unseen(request->untrusted);
    if (p->pid == 0) {
        close_files((int[]){files[PIPE_READ], files[REPORT_READ]}, 2);
        run_child(request, parent, files[PIPE_WRITE], files[REPORT_WRITE]);
    }
    int error = p->pid < 0 ? errno : 0;
    close_files((int[]){files[PIPE_WRITE], files[REPORT_WRITE]}, 2);
    if (p->pid > 0 && has_group(request))
        setpgid(p->pid, p->pid); /* called in parent and child, because either may run first */
    if (p->pid > 0 && request->argv && (error = read_exec_error(files[REPORT_READ])) != 0)
        while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR) {
        }
    close_files(&files[REPORT_READ], 1);
    if (error) {
        close_files(&files[PIPE_READ], 1);
        p->pid = -1;
        return error;
    }
    p->pipe = files[PIPE_READ];
    p->watch_file = open_watch_file(p->pid);
    return 0;
}

/* ---- watching ---- */

static void send_signal(const struct process *p, int signal) { kill(p->has_group ? -p->pid : p->pid, signal); }

/* Does not reap the process: until it is reaped, the system does not reuse its process and group numbers. */
static bool has_ended(const struct process *p)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == p->pid &&
           (info.si_code == CLD_EXITED || info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED);
}

/* Waits for the end of the process, data in the pipe, a signal, or the timeout. True when the pipe can be read. */
static bool wait_for_event(const struct process *p, int timeout_ms)
{
    struct pollfd files[] = {{.fd = p->pipe, .events = POLLIN}, {.fd = p->watch_file, .events = POLLIN}};
    const bool must_poll = p->watch_file < 0 && timeout_ms > END_POLL_MS;
    return poll(files, 2, must_poll ? END_POLL_MS : timeout_ms) > 0 && files[0].revents;
}

static void close_pipe(struct process *p)
{
    if (p->pipe >= 0)
        close(p->pipe);
    p->pipe = -1;
}

/* Reads what an ended process left in its pipe. A child of that process may still hold the write end, so the wait is
 * limited. */
static void drain_pipe(struct process *p, const struct process_watch *w)
{
    const double started_ms = clock_ms();
    struct pollfd file = {.fd = p->pipe, .events = POLLIN};
    while (p->pipe >= 0 && w->read && clock_ms() - started_ms < 1e3 * PROCESS_DRAIN_LIMIT_S && poll(&file, 1, 0) > 0)
        if (!w->read(w->context, p->pipe))
            break;
    close_pipe(p);
}

/* State of one process_watch call. Times in ms of the awake clock; 0 = did not happen. */
struct state {
    struct awake_clock clock;
    double now, started, interrupted, closed, killed;
    enum process_end killed_for;
    double limit_s;
};

static void kill_for(const struct process *p, struct state *t, enum process_end reason, double limit_s)
{
    if (t->killed > 0)
        return;
    t->killed = t->now;
    t->killed_for = reason;
    t->limit_s = limit_s;
    send_signal(p, SIGKILL);
}

static void check_limits(const struct process *p, const struct process_watch *w, struct state *t)
{
    const double interrupt_limit_s = w->interrupt_limit_s > 0 ? w->interrupt_limit_s : PROCESS_INTERRUPT_LIMIT_S;
    if (interrupt_count() > 0 && t->interrupted == 0) {
        t->interrupted = t->now;
        if (w->interrupt_signal && t->killed == 0)
            send_signal(p, w->interrupt_signal);
    }
    if (interrupt_count() > 1 || (t->interrupted > 0 && t->now - t->interrupted > 1e3 * interrupt_limit_s))
        kill_for(p, t, PROCESS_INTERRUPTED, 0);
    if (w->limit_s > 0 && t->now - t->started > 1e3 * w->limit_s)
        kill_for(p, t, PROCESS_OVER_LIMIT, w->limit_s);
    if (t->closed > 0 && t->now - t->closed > 1e3 * PROCESS_CLOSED_LIMIT_S)
        kill_for(p, t, PROCESS_OVER_LIMIT, PROCESS_CLOSED_LIMIT_S);
}

/* False when it was killed but did not end within the limit. */
static bool wait_for_end(struct process *p, const struct process_watch *w, struct state *t)
{
    const double kill_limit_s = w->kill_limit_s > 0 ? w->kill_limit_s : PROCESS_KILL_LIMIT_S;
    while (!has_ended(p)) {
        const bool is_readable = wait_for_event(p, w->tick_ms > 0 ? w->tick_ms : PROCESS_TICK_MS);
        t->now = awake_clock_at(&t->clock, clock_ms());
        if (is_readable && (!w->read || !w->read(w->context, p->pipe))) {
            close_pipe(p);
            t->closed = t->now;
        }
        if (w->tick && !w->tick(w->context))
            kill_for(p, t, PROCESS_STOPPED, 0);
        check_limits(p, w, t);
        if (t->killed > 0 && t->now - t->killed > 1e3 * kill_limit_s)
            return false;
    }
    return true;
}

void process_watch(struct process *p, const struct process_watch *w, struct process_result *r)
{
    struct state t = {.killed_for = PROCESS_EXITED};
    int state = 0;
    t.started = awake_clock_at(&t.clock, clock_ms());
    *r = (struct process_result){.end = PROCESS_STUCK};
    if (wait_for_end(p, w, &t)) {
        if (p->has_group)
            send_signal(p, SIGKILL); /* the remaining processes of its group */
        drain_pipe(p, w);
        if (untrusted == p->pid)
            untrusted = 0; /* before its number can be given to another process */
        while (waitpid(p->pid, &state, 0) < 0 && errno == EINTR) {
        }
        r->end = t.killed > 0 ? t.killed_for : WIFSIGNALED(state) ? PROCESS_SIGNALLED : PROCESS_EXITED;
        r->code = WIFSIGNALED(state) ? WTERMSIG(state) : WEXITSTATUS(state);
        r->limit_s = t.limit_s;
    }
    close_pipe(p);
    if (p->watch_file >= 0)
        close(p->watch_file);
    p->watch_file = -1;
    r->elapsed_s = 1e-3 * (awake_clock_at(&t.clock, clock_ms()) - t.started);
}

char *process_describe(const struct process_result *r, char *buffer, size_t size)
{
    switch (r->end) {
    case PROCESS_EXITED: snprintf(buffer, size, "ended with code %d", r->code); break;
    case PROCESS_SIGNALLED: snprintf(buffer, size, "died of signal %d (%s)", r->code, strsignal(r->code)); break;
    case PROCESS_OVER_LIMIT:
        snprintf(buffer, size, "took longer than %g s, the limit, and was killed", r->limit_s);
        break;
    case PROCESS_STOPPED: snprintf(buffer, size, "was killed"); break;
    case PROCESS_INTERRUPTED: snprintf(buffer, size, "was interrupted"); break;
    case PROCESS_STUCK: snprintf(buffer, size, "cannot be killed"); break;
    }
    return buffer;
}

/* ---- what children leave behind ---- */

void process_adopt_orphans(void) { prctl(PR_SET_CHILD_SUBREAPER, 1); }

bool process_has_children(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* The parent of a process, 0 when it has ended or is a zombie. The name, in parentheses, may hold any character. */
static pid_t parent_of(const char *pid)
{
    char path[64], text[512];
    int parent = 0;
    char state = 'Z';
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    const char *end = strrchr(text, ')');
    return end && sscanf(end + 1, " %c %d", &state, &parent) == 2 && state != 'Z' ? parent : 0;
}

static void kill_children(void)
{
    DIR *all = opendir("/proc");
    const pid_t self = getpid();
    for (struct dirent *entry; all && (entry = readdir(all)) != NULL;) {
        const long pid = strtol(entry->d_name, NULL, 10);
        if (pid > 0 && parent_of(entry->d_name) == self)
            kill((pid_t)pid, SIGKILL);
    }
    if (all)
        closedir(all);
}

int process_end_children(void)
{
    const double started_ms = clock_ms();
    int count = 0;
    while (process_has_children() && clock_ms() - started_ms < 1e3 * PROCESS_DRAIN_LIMIT_S) {
        int state = 0;
        kill_children(); /* in each turn: what they leave behind becomes a child of this process */
        while (waitpid(-1, &state, WNOHANG) > 0)
            count += WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL;
        if (process_has_children())
            poll(NULL, 0, 1);
    }
    return count;
}

/* ---- shared memory ---- */

void *process_share(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void process_unshare(void *memory, size_t bytes) { munmap(memory, bytes); }
