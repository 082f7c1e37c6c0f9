/* fork, exec, poll. */
#include "cmd/gate/fresh_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cmd/base/clock.h"
#include "cmd/base/log.h"
#include "cmd/base/text.h"
#include "cmd/record/record.h"

/* After SIGINT a process may finish the sample in flight, and its own children with it. */
static const double INTERRUPT_LIMIT_S = 15;

static volatile sig_atomic_t interrupts;

static void on_signal(int number)
{
    (void)number;
    interrupts++;
}

void fresh_catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

bool fresh_is_interrupted(void) { return interrupts > 0; }

static double now_s(void) { return 1e-3 * clock_ms(); }

/* In the child: never returns. The errno of a failed exec goes through the pipe. */
static void become(const struct fresh_request *request, int out, int err, int pipe_end)
{
    const int nothing = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    if (nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
        dup2(err, STDERR_FILENO) >= 0)
        execv(request->argv[0], request->argv);
    const int why = errno;
    if (write(pipe_end, &why, sizeof why) != sizeof why)
        _exit(126);
    _exit(127);
}

static off_t size_of(int file)
{
    struct stat status;
    return fstat(file, &status) == 0 ? status.st_size : 0;
}

/* Without reaping it: until then its number, and its group's, are nobody else's. */
static bool has_ended(pid_t pid)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

static double output_limit_mb(const struct fresh_request *request)
{
    return request->output_limit_mb > 0 ? request->output_limit_mb : FRESH_OUTPUT_LIMIT_MB;
}

/* Waits for the end of the child: FRESH_EXITED, or the limit that it passed, and was killed for. */
static enum fresh_end watch(const struct fresh_request *request, pid_t pid, int out, int err, int *state)
{
    const double started_s = now_s(), most_bytes = 1e6 * output_limit_mb(request);
    off_t seen = 0;
    double last_word_s = started_s, interrupted_s = 0;
    enum fresh_end passed = FRESH_EXITED;
    while (!has_ended(pid)) {
        const off_t size = size_of(out) + size_of(err);
        const double t = now_s();
        if (size != seen) {
            seen = size;
            last_word_s = t;
        }
        if (interrupts > 0 && interrupted_s == 0) {
            interrupted_s = t;
            kill(-pid, SIGINT);
        }
        if ((interrupted_s > 0 && t - interrupted_s > INTERRUPT_LIMIT_S) || interrupts > 1)
            kill(-pid, SIGKILL);
        if (passed == FRESH_EXITED)
            passed = (double)size > most_bytes                                              ? FRESH_TOO_MUCH
                     : request->wall_limit_s > 0 && t - started_s > request->wall_limit_s ? FRESH_TOO_LONG
                     : t - last_word_s > request->silence_limit_s                         ? FRESH_SILENT
                                                                                            : FRESH_EXITED;
        if (passed != FRESH_EXITED)
            kill(-pid, SIGKILL);
        if (request->progress)
            log_progress("%s", request->progress);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    kill(-pid, SIGKILL); /* what it left behind would go on measuring beside the next one */
    while (waitpid(pid, state, 0) < 0 && errno == EINTR) {
    }
    log_progress_clear();
    /* Once more: the limit must not depend on whether it ended between two looks. */
    if (passed == FRESH_EXITED && (double)(size_of(out) + size_of(err)) > most_bytes)
        passed = FRESH_TOO_MUCH;
    return passed;
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

void fresh_run(const struct fresh_request *request, struct fresh_result *result)
{
    const int flags = O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC;
    const int out = open(request->out_path, flags, 0666), err = open(request->err_path, flags, 0666);
    int ends[2] = {-1, -1}, state = 0, exec_error = 0;
    memset(result, 0, sizeof *result);
    result->end = FRESH_NOT_STARTED;
    const double started_s = now_s();
    fflush(NULL);
    const pid_t pid = out < 0 || err < 0 || pipe2(ends, O_CLOEXEC) != 0 ? -1 : fork();
    if (pid == 0) {
        close(ends[0]);
        become(request, out, err, ends[1]);
    }
    result->code = errno;
    if (pid > 0) {
        setpgid(pid, pid); /* in both: whoever is first */
        close(ends[1]);
        ends[1] = -1;
        if (read(ends[0], &exec_error, sizeof exec_error) == sizeof exec_error) {
            waitpid(pid, &state, 0);
            result->code = exec_error;
        } else {
            const enum fresh_end passed = watch(request, pid, out, err, &state);
            result->end = interrupts > 0            ? FRESH_INTERRUPTED
                          : passed != FRESH_EXITED ? passed
                          : WIFEXITED(state)      ? FRESH_EXITED
                                                    : FRESH_SIGNALLED;
            result->limit = passed == FRESH_TOO_LONG   ? request->wall_limit_s
                            : passed == FRESH_TOO_MUCH ? output_limit_mb(request)
                                                      : 0;
            result->code = WIFEXITED(state) ? WEXITSTATUS(state) : WTERMSIG(state);
        }
    }
    result->elapsed_s = now_s() - started_s;
    if (err >= 0)
        read_last_line(err, result->last_line, sizeof result->last_line);
    const int open_files[] = {out, err, ends[0], ends[1]};
    for (int i = 0; i < 4; i++)
        if (open_files[i] >= 0)
            close(open_files[i]);
}

char *fresh_describe(const struct fresh_result *r, char *buffer, unsigned long size)
{
    const char *colon = r->last_line[0] ? ": " : "";
    switch (r->end) {
    case FRESH_EXITED:
        snprintf(buffer, size, "ended with code %d%s%s", r->code, colon, r->last_line);
        break;
    case FRESH_SIGNALLED:
        snprintf(buffer, size, "died of signal %d (%s)%s%s", r->code, strsignal(r->code), colon, r->last_line);
        break;
    case FRESH_SILENT:
        snprintf(buffer, size, "said nothing for too long and was killed after %.0f s%s%s", r->elapsed_s, colon,
                 r->last_line);
        break;
    case FRESH_TOO_LONG:
        snprintf(buffer, size, "took longer than %g s, the limit, and was killed%s%s", r->limit, colon, r->last_line);
        break;
    case FRESH_TOO_MUCH:
        snprintf(buffer, size, "wrote more than %g MB, the limit, and was stopped%s%s", r->limit, colon, r->last_line);
        break;
    case FRESH_INTERRUPTED:
        snprintf(buffer, size, "was interrupted");
        break;
    case FRESH_NOT_STARTED:
        snprintf(buffer, size, "cannot be started: %s", strerror(r->code));
        break;
    }
    return buffer;
}
