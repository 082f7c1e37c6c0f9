/* Child processes (cmd/base/process.h): how they end, their limits, what they write, what they leave behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cmd/base/clock.h"
#include "cmd/base/process.h"

static void sleep_ms(int ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

/* ---- what children do ---- */

static int exit_with(void *context, int pipe)
{
    (void)pipe;
    return *(const int *)context;
}

static int raise_signal(void *context, int pipe)
{
    (void)pipe;
    signal(*(const int *)context, SIG_DFL); /* a sanitizer exits with a code instead of the signal */
    raise(*(const int *)context);
    return 0;
}

static int sleep_long(void *context, int pipe)
{
    (void)context;
    (void)pipe;
    sleep_ms(100000);
    return 0;
}

static struct process_result run_function(int (*function)(void *, int), void *context,
                                          const struct process_watch *watch)
{
    const struct process_request request = {.function = function, .context = context};
    struct process p;
    struct process_result r;
    assert_int_equal(process_start(&request, &p), 0);
    process_watch(&p, watch, &r);
    return r;
}

/* ---- what they write ---- */

struct capture {
    char text[4096];
    size_t used;
    bool at_end;
};

static bool capture_read(void *context, int pipe)
{
    struct capture *c = context;
    const ssize_t got = read(pipe, c->text + c->used, sizeof c->text - 1 - c->used);
    if (got <= 0) {
        c->at_end = got == 0;
        return false;
    }
    c->used += (size_t)got;
    c->text[c->used] = 0;
    return true;
}

static struct process_result run_shell(const char *script, struct capture *capture, bool own_group)
{
    char shell[] = "sh", dash_c[] = "-c", text[500], *argv[] = {shell, dash_c, text, NULL};
    const struct process_request request = {
        .argv = argv, .in = PROCESS_NO_FILE, .has_pipe = true, .own_group = own_group};
    const struct process_watch watch = {.limit_s = 30, .read = capture_read, .context = capture};
    struct process p;
    struct process_result r;
    memset(capture, 0, sizeof *capture);
    snprintf(text, sizeof text, "%s", script);
    assert_int_equal(process_start(&request, &p), 0);
    process_watch(&p, &watch, &r);
    return r;
}

/* ---- tests ---- */

static void exit_code(void **state)
{
    (void)state;
    char wanted[100], text[100];
    const struct process_watch watch = {.limit_s = 30};
    for (int code = 0; code < 256; code += 51) {
        const struct process_result r = run_function(exit_with, &code, &watch);
        assert_int_equal(r.end, PROCESS_EXITED);
        assert_int_equal(r.code, code);
        snprintf(wanted, sizeof wanted, "ended with code %d", code);
        assert_string_equal(process_describe(&r, text, sizeof text), wanted);
    }
}

static void signals(void **state)
{
    (void)state;
    int number = SIGSEGV;
    char text[100];
    const struct process_watch watch = {.limit_s = 30};
    const struct process_result r = run_function(raise_signal, &number, &watch);
    assert_int_equal(r.end, PROCESS_SIGNALLED);
    assert_int_equal(r.code, SIGSEGV);
    assert_string_equal(process_describe(&r, text, sizeof text), "died of signal 11 (Segmentation fault)");
}

static void time_limit(void **state)
{
    (void)state;
    char text[100];
    const struct process_watch watch = {.limit_s = 0.25, .tick_ms = 20};
    const struct process_result r = run_function(sleep_long, NULL, &watch);
    assert_int_equal(r.end, PROCESS_OVER_LIMIT);
    assert_true(r.elapsed_s >= 0.25 && r.elapsed_s < 25);
    assert_string_equal(process_describe(&r, text, sizeof text), "took longer than 0.25 s, the limit, and was killed");
}

static bool stop_at_ten(void *context) { return ++*(int *)context < 10; }

static void stopped_by_tick(void **state)
{
    (void)state;
    int ticks = 0;
    const struct process_watch watch = {.limit_s = 60, .tick_ms = 5, .tick = stop_at_ten, .context = &ticks};
    const struct process_result r = run_function(sleep_long, NULL, &watch);
    assert_int_equal(r.end, PROCESS_STOPPED);
    assert_true(ticks >= 10);
}

/* The end of a process wakes the watcher at once, not only at its next tick. */
static void end_is_seen_at_once(void **state)
{
    (void)state;
    int code = 3;
    const struct process_watch watch = {.limit_s = 100, .tick_ms = 50000};
    const struct process_result r = run_function(exit_with, &code, &watch);
    assert_int_equal(r.end, PROCESS_EXITED);
    assert_int_equal(r.code, 3);
}

/* The same on a kernel that has no pidfd: the watcher looks often. */
static void without_pidfd(void **state)
{
    (void)state;
    int code = 4;
    const struct process_request request = {.function = exit_with, .context = &code};
    const struct process_watch watch = {.limit_s = 100, .tick_ms = 50000};
    const double started_ms = clock_ms();
    struct process p;
    struct process_result r;
    assert_int_equal(process_start(&request, &p), 0);
    if (p.watch_file >= 0)
        close(p.watch_file);
    p.watch_file = -1;
    process_watch(&p, &watch, &r);
    assert_int_equal(r.end, PROCESS_EXITED);
    assert_int_equal(r.code, 4);
    assert_true(clock_ms() - started_ms < 25000);
}

static void output_is_captured(void **state)
{
    (void)state;
    struct capture c;
    struct process_result r = run_shell("echo one; cat; echo two; exit 5", &c, false);
    assert_int_equal(r.end, PROCESS_EXITED);
    assert_int_equal(r.code, 5);
    assert_string_equal(c.text, "one\ntwo\n"); /* cat: its stdin is empty, it waits for no terminal */
    r = run_shell("kill -KILL $$", &c, false);
    assert_int_equal(r.end, PROCESS_SIGNALLED);
    assert_string_equal(c.text, "");
}

static int write_pipe(void *context, int pipe)
{
    const char *text = context;
    return write(pipe, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : 1;
}

static void function_writes_pipe(void **state)
{
    (void)state;
    char text[] = "from the function";
    struct capture c = {.used = 0};
    const struct process_request request = {.function = write_pipe, .context = text, .has_pipe = true};
    const struct process_watch watch = {.limit_s = 30, .read = capture_read, .context = &c};
    struct process p;
    struct process_result r;
    assert_int_equal(process_start(&request, &p), 0);
    process_watch(&p, &watch, &r);
    assert_int_equal(r.code, 0);
    assert_string_equal(c.text, text);
    assert_int_equal(p.pipe, -1);
}

/* Files as stdout and stderr, and another folder. */
static void redirected(void **state)
{
    (void)state;
    char shell[] = "/bin/sh", dash_c[] = "-c", script[] = "pwd; echo wrong >&2";
    char *argv[] = {shell, dash_c, script, NULL};
    char text[100] = "";
    FILE *out = tmpfile(), *err = tmpfile();
    assert_true(out && err);
    const struct process_request request = {
        .argv = argv, .dir = "/", .in = PROCESS_NO_FILE, .out = fileno(out), .err = fileno(err)};
    const struct process_watch watch = {.limit_s = 30};
    struct process p;
    struct process_result r;
    assert_int_equal(process_start(&request, &p), 0);
    process_watch(&p, &watch, &r);
    assert_int_equal(r.code, 0);
    assert_int_equal(pread(fileno(out), text, sizeof text - 1, 0), 2);
    assert_string_equal(text, "/\n");
    assert_int_equal(pread(fileno(err), text, sizeof text - 1, 0), 6);
    assert_string_equal(text, "wrong\n");
    fclose(out);
    fclose(err);
}

/* A grandchild that holds the pipe open does not block the watcher: what was written is read, then the watch ends. */
static void grandchild_keeps_pipe(void **state)
{
    (void)state;
    struct capture c;
    const struct process_result r = run_shell("sleep 60 2>/dev/null & echo $!; exit 7", &c, false);
    assert_int_equal(r.end, PROCESS_EXITED);
    assert_int_equal(r.code, 7);
    assert_false(c.at_end);
    const pid_t grandchild = (pid_t)atoi(c.text);
    assert_true(grandchild > 1);
    assert_int_equal(kill(grandchild, SIGKILL), 0); /* it is still there */
}

/* With a group of its own nothing is left behind. */
static void group_is_killed(void **state)
{
    (void)state;
    struct capture c;
    const struct process_result r = run_shell("sleep 60 & echo $$; exit 8", &c, true);
    assert_int_equal(r.code, 8);
    const pid_t group = (pid_t)atoi(c.text);
    assert_true(group > 1);
    for (int i = 0; i < 500 && kill(-group, 0) == 0; i++) /* until the grandchild's new parent has reaped it */
        sleep_ms(10);
    assert_int_equal(kill(-group, 0), -1);
    assert_int_equal(errno, ESRCH);
}

static void missing_program(void **state)
{
    (void)state;
    char absent[] = "/no/such/program", nowhere[] = "fabench-no-such-program", folder[] = "/tmp";
    char *names[] = {absent, nowhere, folder};
    const int errors[] = {ENOENT, ENOENT, EACCES};
    for (int i = 0; i < 3; i++) {
        char *argv[] = {names[i], NULL};
        const struct process_request request = {.argv = argv, .has_pipe = true};
        struct process p;
        assert_int_equal(process_start(&request, &p), errors[i]);
        assert_int_equal(p.pipe, -1);
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
    assert_int_equal(errno, ECHILD);
}

/* An inherited SIG_IGN for SIGCHLD does not lose the exit code. */
static void ignored_sigchld(void **state)
{
    (void)state;
    int code = 9;
    const struct process_watch watch = {.limit_s = 30};
    signal(SIGCHLD, SIG_IGN);
    const struct process_result r = run_function(exit_with, &code, &watch);
    signal(SIGCHLD, SIG_DFL);
    assert_int_equal(r.end, PROCESS_EXITED);
    assert_int_equal(r.code, 9);
}

/* Makes SIGKILL stop the child where it exits, and asks for the kill; without the right to trace the limit kills. */
static bool hold_at_exit(void *context)
{
    static bool is_held;
    const struct process *p = context;
    if (!is_held)
        is_held = ptrace(PTRACE_SEIZE, p->pid, NULL, (void *)(uintptr_t)PTRACE_O_TRACEEXIT) == 0;
    return !is_held;
}

/* A child that does not end after SIGKILL, here because a tracer stops it, is reported as stuck after the limit. */
static void cannot_be_killed(void **state)
{
    (void)state;
    const struct process_request request = {.function = sleep_long};
    struct process p;
    struct process_result r;
    char text[100];
    int status = 0;
    assert_int_equal(process_start(&request, &p), 0);
    const struct process_watch watch = {
        .limit_s = 1, .kill_limit_s = 0.2, .tick_ms = 20, .tick = hold_at_exit, .context = &p};
    process_watch(&p, &watch, &r);
    if (r.end == PROCESS_OVER_LIMIT)
        skip(); /* ptrace is not allowed here */
    assert_int_equal(r.end, PROCESS_STUCK);
    assert_string_equal(process_describe(&r, text, sizeof text), "cannot be killed");
    assert_int_equal(waitpid(p.pid, &status, 0), p.pid);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(ptrace(PTRACE_CONT, p.pid, NULL, NULL), 0);
    assert_int_equal(waitpid(p.pid, &status, 0), p.pid);
    assert_true(WIFSIGNALED(status));
}

/* Runs in its own process, because the count of interrupts cannot be reset. context: number of signals to send. */
static int interrupt_self(void *context, int pipe)
{
    (void)pipe;
    const int sent = *(const int *)context;
    const struct process_request request = {.function = sleep_long};
    const struct process_watch watch = {.interrupt_limit_s = sent > 1 ? 50 : 0.2, .tick_ms = 20, .limit_s = 60};
    struct process p;
    struct process_result r;
    process_catch_interrupts();
    if (process_is_interrupted() || process_start(&request, &p) != 0)
        return 1;
    for (int i = 0; i < sent; i++)
        raise(i % 2 ? SIGINT : SIGTERM);
    process_watch(&p, &watch, &r);
    return process_is_interrupted() && r.end == PROCESS_INTERRUPTED && r.elapsed_s < 25 ? 0 : 2;
}

/* A child sees an interrupt of the process that shares its own, and its child does. */
static int wait_for_interrupt(void *context, int pipe)
{
    (void)pipe;
    for (int i = 0; i < 500 && !process_is_interrupted(); i++)
        sleep_ms(20);
    return process_is_interrupted() ? *(const int *)context : 3;
}

static int wait_in_child(void *context, int pipe)
{
    struct process p;
    struct process_result r;
    const struct process_request request = {.function = wait_for_interrupt, .context = context};
    (void)pipe;
    if (process_start(&request, &p) != 0)
        return 4;
    process_watch(&p, &(struct process_watch){.interrupt_limit_s = 50}, &r);
    return r.end == PROCESS_EXITED ? r.code : 5;
}

static int share_interrupts(void *context, int pipe)
{
    struct process p;
    struct process_result r;
    const struct process_request request = {.function = wait_in_child, .context = context};
    (void)pipe;
    process_catch_interrupts();
    if (!process_share_interrupts() || process_start(&request, &p) != 0)
        return 2;
    raise(SIGTERM); /* to this process alone */
    process_watch(&p, &(struct process_watch){.interrupt_limit_s = 50}, &r);
    return r.end == PROCESS_EXITED ? r.code : 6;
}

static void interrupts_are_shared(void **state)
{
    int code = 42;
    const struct process_watch watch = {0};
    (void)state;
    const struct process_result r = run_function(share_interrupts, &code, &watch);
    assert_int_equal(r.end, PROCESS_EXITED);
    assert_int_equal(r.code, 42);
}

static void interrupted(void **state)
{
    (void)state;
    const struct process_watch watch = {.limit_s = 55};
    for (int sent = 1; sent <= 2; sent++) {
        const struct process_result r = run_function(interrupt_self, &sent, &watch);
        assert_int_equal(r.end, PROCESS_EXITED);
        assert_int_equal(r.code, 0);
    }
}

/* A child does not outlive a parent that is killed. */
static int start_and_report(void *context, int pipe)
{
    (void)context;
    const struct process_request request = {.function = sleep_long};
    struct process p;
    if (process_start(&request, &p) == 0 && write(pipe, &p.pid, sizeof p.pid) == sizeof p.pid)
        sleep_ms(100000);
    return 1;
}

static bool kill_parent(void *context, int pipe)
{
    pid_t *const pids = context; /* the child, the grandchild */
    if (read(pipe, &pids[1], sizeof pids[1]) != sizeof pids[1])
        return false;
    kill(pids[0], SIGKILL);
    return true;
}

/* Ended, or a zombie that was not reaped. */
static bool is_dead(pid_t pid)
{
    char path[64], text[300];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return true;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return strstr(text, ") Z ") != NULL;
}

static void dies_with_parent(void **state)
{
    (void)state;
    pid_t pids[2] = {0, 0};
    const struct process_request request = {.function = start_and_report, .has_pipe = true};
    const struct process_watch watch = {.limit_s = 30, .read = kill_parent, .context = pids};
    struct process p;
    struct process_result r;
    assert_int_equal(process_start(&request, &p), 0);
    pids[0] = p.pid;
    process_watch(&p, &watch, &r);
    assert_int_equal(r.end, PROCESS_SIGNALLED);
    assert_true(pids[1] > 1);
    for (int i = 0; i < 500 && !is_dead(pids[1]); i++)
        sleep_ms(10);
    assert_true(is_dead(pids[1]));
}

static void awake_clock(void **state)
{
    (void)state;
    struct awake_clock c = {0};
    assert_int_equal((int)awake_clock_at(&c, 50000), 50000);
    assert_int_equal((int)awake_clock_at(&c, 51900), 51900);
    assert_int_equal((int)awake_clock_at(&c, 91900), 51900); /* 40 s without a look */
    assert_int_equal((int)awake_clock_at(&c, 92000), 52000);
    assert_int_equal((int)c.paused_ms, 40000);
}

/* ---- an untrusted child ---- */

/* In a process of its own, because the handlers stay: what `child` does to it must not end it. */
static void survive(int (*child)(void *, int), void *context, int wanted_signal, bool wanted_interrupt)
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct process_request request = {.function = child, .context = context, .untrusted = true};
        struct process p;
        struct process_result r;
        signal(SIGABRT, SIG_DFL); /* cmocka catches it */
        process_catch_interrupts();
        if (process_start(&request, &p) != 0)
            _exit(2);
        process_watch(&p, &(struct process_watch){.limit_s = 20}, &r);
        if (process_signal_of_child() != wanted_signal)
            _exit(3);
        _exit(process_is_interrupted() == wanted_interrupt ? 0 : 4);
    }
    int state = 0;
    assert_int_equal(waitpid(pid, &state, 0), pid);
    assert_true(WIFEXITED(state));
    assert_int_equal(WEXITSTATUS(state), 0);
}

static int signal_parent(void *context, int pipe)
{
    (void)pipe;
    kill(getppid(), *(const int *)context);
    return 0;
}

/* Sent by a process that the child has started. */
static int signal_grandparent(void *context, int pipe)
{
    (void)pipe;
    const pid_t to = getppid(), pid = fork();
    if (pid == 0) {
        kill(to, *(const int *)context);
        sleep_ms(200);
        _exit(0);
    }
    return waitpid(pid, NULL, 0) == pid ? 0 : 1;
}

static int signal_group(void *context, int pipe)
{
    (void)pipe;
    kill(0, *(const int *)context);
    return 0;
}

static void signals_of_child(void **state)
{
    (void)state;
    int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGALRM, SIGABRT, SIGTSTP, SIGRTMIN + 1};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        survive(signal_parent, &numbers[i], numbers[i], false);
    survive(signal_grandparent, &numbers[0], numbers[0], false);
    survive(signal_group, &numbers[0], 0, false);
}

static int signal_as_user(void *context, int pipe)
{
    char command[64], shell[] = "sh", dash_c[] = "-c", *argv[] = {shell, dash_c, command, NULL};
    (void)pipe;
    (void)context;
    snprintf(command, sizeof command, "kill -TERM %d", (int)getppid());
    setpgid(0, 0);
    if (fork() == 0) {
        setpgid(0, 0); /* not of the child's group: what a user's shell does */
        execvp(argv[0], argv);
        _exit(126);
    }
    sleep_ms(300);
    return 0;
}

static void signals_of_others(void **state)
{
    (void)state;
    survive(signal_as_user, NULL, 0, true);
}

static int count_up(void *context, int pipe)
{
    volatile int *count = context;
    (void)pipe;
    for (;; sleep_ms(5))
        ++*count;
    return 0;
}

/* Ctrl-Z stops both, `fg` lets both go on. */
static void stopped_together(void **state)
{
    (void)state;
    volatile int *count = process_share(sizeof *count);
    int status = 0;
    assert_non_null(count);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct process_request request = {.function = count_up, .context = (void *)count, .untrusted = true};
        struct process p;
        struct process_result r;
        process_catch_interrupts();
        if (process_start(&request, &p) == 0)
            process_watch(&p, &(struct process_watch){.limit_s = 60}, &r);
        _exit(0);
    }
    for (int i = 0; i < 1000 && *count == 0; i++)
        sleep_ms(10);
    assert_true(*count > 0);
    assert_int_equal(kill(pid, SIGTSTP), 0);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    sleep_ms(50);
    const int stopped_at = *count;
    sleep_ms(200);
    assert_int_equal(*count, stopped_at);
    assert_int_equal(kill(pid, SIGCONT), 0);
    for (int i = 0; i < 1000 && *count == stopped_at; i++)
        sleep_ms(10);
    assert_true(*count > stopped_at);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    process_unshare((void *)count, sizeof *count);
}

/* Children and what they have left behind, in sessions of their own. */
static void children_are_ended(void **state)
{
    (void)state;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        process_adopt_orphans();
        if (process_has_children() || process_end_children() != 0)
            _exit(2);
        for (int i = 0; i < 3; i++)
            if (fork() == 0) {
                setsid();
                if (i > 0 && fork() > 0)
                    _exit(0);
                for (;;)
                    pause();
            }
        sleep_ms(100);
        if (!process_has_children() || process_end_children() != 3)
            _exit(3);
        _exit(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD ? 0 : 4);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exit_code),           cmocka_unit_test(signals),
        cmocka_unit_test(time_limit),          cmocka_unit_test(stopped_by_tick),
        cmocka_unit_test(end_is_seen_at_once), cmocka_unit_test(without_pidfd),
        cmocka_unit_test(output_is_captured),  cmocka_unit_test(function_writes_pipe),
        cmocka_unit_test(redirected),          cmocka_unit_test(grandchild_keeps_pipe),
        cmocka_unit_test(group_is_killed),     cmocka_unit_test(missing_program),
        cmocka_unit_test(ignored_sigchld),     cmocka_unit_test(cannot_be_killed),
        cmocka_unit_test(interrupted),         cmocka_unit_test(dies_with_parent),
        cmocka_unit_test(awake_clock),         cmocka_unit_test(signals_of_child),
        cmocka_unit_test(signals_of_others),   cmocka_unit_test(stopped_together),
        cmocka_unit_test(children_are_ended),  cmocka_unit_test(interrupts_are_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
