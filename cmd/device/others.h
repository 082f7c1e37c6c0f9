/* What runs in this process beside the calling thread, and what could run in it: CPU time of threads that are not the
 * program's, and handlers of signals. On Linux; the program's own threads are the calling one and its OpenMP team. */
#ifndef FABENCH_OTHERS_H
#define FABENCH_OTHERS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

enum { OTHERS_TEAM = 512, QUIET_FAULTS = 5 };

/* Times in milliseconds of CPU. Those of a team's thread that was not there at the beginning count from 0. */
struct others {
    double process_ms;
    clockid_t threads[OTHERS_TEAM];
    pid_t ids[OTHERS_TEAM];
    double threads_ms[OTHERS_TEAM];
    int count;
};

/* Begins to count. threads: of the team. */
void others_begin(struct others *, int threads);
/* After a parallel region of the program, whose team may have other threads now. */
void others_add_team(struct others *, int threads);
/* CPU time of all other threads since others_begin, ended ones included. */
double others_ms(const struct others *);
/* Waits until no other thread is runnable, and they take less than a twentieth of a short sleep, limit_ms at most, and
 * begins to count. False when they do not come to rest. */
bool others_settle(struct others *, int threads, double limit_ms);

/* Whether a thread of this process runs or waits for a core; false for one that has ended. */
bool others_is_runnable(pid_t thread);

/* Between quiet_begin and quiet_end no handler of this process runs in the calling thread: signals wait, and a fault
 * ends the process. */
struct quiet {
    bool is_quiet;
    sigset_t mask;
    struct sigaction faults[QUIET_FAULTS];
};
void quiet_begin(struct quiet *);
void quiet_end(struct quiet *);

#endif
