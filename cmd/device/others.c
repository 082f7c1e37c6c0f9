/* CPU clocks of threads, and signals that wait. */
#include "cmd/device/others.h"

#include <dirent.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cmd/base/clock.h"

/* 0 for the clock of a thread that has ended. */
static double read_ms(clockid_t clock)
{
    struct timespec t;
    return clock_gettime(clock, &t) == 0 ? (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6 : 0;
}

static void add_thread(struct others *o, bool is_new)
{
    clockid_t clock;
    if (pthread_getcpuclockid(pthread_self(), &clock) != 0)
        return;
    for (int i = 0; i < o->count; i++)
        if (o->threads[i] == clock)
            return;
    if (o->count == OTHERS_TEAM)
        return;
    o->threads[o->count] = clock;
    o->ids[o->count] = (pid_t)syscall(SYS_gettid);
    o->threads_ms[o->count++] = is_new ? 0 : read_ms(clock);
}

static void list_team(struct others *o, int threads, bool is_new)
{
#pragma omp parallel num_threads(threads) if (threads > 1)
#pragma omp critical(fabench_others)
    add_thread(o, is_new);
}

void others_begin(struct others *o, int threads)
{
    o->count = 0;
    list_team(o, threads, false);
    o->process_ms = read_ms(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < o->count; i++) /* again, as close to the process' clock as can be */
        o->threads_ms[i] = read_ms(o->threads[i]);
}

void others_add_team(struct others *o, int threads) { list_team(o, threads, true); }

double others_ms(const struct others *o)
{
    double own_ms = 0;
    for (int i = 0; i < o->count; i++) {
        const double now_ms = read_ms(o->threads[i]);
        own_ms += now_ms > o->threads_ms[i] ? now_ms - o->threads_ms[i] : 0;
    }
    const double all_ms = read_ms(CLOCK_PROCESS_CPUTIME_ID) - o->process_ms;
    return all_ms > own_ms ? all_ms - own_ms : 0;
}

static bool is_own(const struct others *o, pid_t id)
{
    for (int i = 0; i < o->count; i++)
        if (o->ids[i] == id)
            return true;
    return false;
}

bool others_is_runnable(pid_t thread)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    const char *end = strrchr(text, ')'); /* the name, in parentheses, may hold any character */
    return end && end[1] == ' ' && end[2] == 'R';
}

/* On a machine with much other work a thread that computes may have no core for a while. */
static bool is_any_runnable(const struct others *o)
{
    DIR *all = opendir("/proc/self/task");
    bool is_any = false;
    for (struct dirent *entry; all && !is_any && (entry = readdir(all)) != NULL;)
        if (entry->d_name[0] != '.' && !is_own(o, (pid_t)atoi(entry->d_name)))
            is_any = others_is_runnable((pid_t)atoi(entry->d_name));
    if (all)
        closedir(all);
    return is_any;
}

bool others_settle(struct others *o, int threads, double limit_ms)
{
    static const struct timespec nap = {.tv_nsec = 100000};
    const double begin_ms = clock_ms();
    bool is_calm;
    do {
        others_begin(o, threads);
        const double start_ms = clock_ms();
        nanosleep(&nap, NULL);
        is_calm = others_ms(o) < 0.05 * (clock_ms() - start_ms) && !is_any_runnable(o);
    } while (!is_calm && clock_ms() - begin_ms < limit_ms);
    others_begin(o, threads);
    return is_calm;
}

static const int faults[QUIET_FAULTS] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};

void quiet_begin(struct quiet *q)
{
    const struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t all;
    if (q->is_quiet)
        return;
    sigfillset(&all);
    for (int i = 0; i < QUIET_FAULTS; i++) {
        sigdelset(&all, faults[i]);
        sigaction(faults[i], &plain, &q->faults[i]);
    }
    pthread_sigmask(SIG_BLOCK, &all, &q->mask);
    q->is_quiet = true;
}

void quiet_end(struct quiet *q)
{
    if (!q->is_quiet)
        return;
    for (int i = 0; i < QUIET_FAULTS; i++)
        sigaction(faults[i], &q->faults[i], NULL);
    pthread_sigmask(SIG_SETMASK, &q->mask, NULL);
    q->is_quiet = false;
}
