/* Child processes: start a function or a program, wait for it with time limits, kill it, and describe how it ended. */
#ifndef FABENCH_BASE_PROCESS_H
#define FABENCH_BASE_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* ---- starting ---- */

enum { PROCESS_NO_FILE = -1 }; /* /dev/null */

struct process_request {
    /* A function that runs in a fork of this process; its value is the exit code, stdio is flushed. `pipe` is the write
     * end of the pipe to the parent, the function's own to close; -1 without has_pipe. */
    int (*function)(void *context, int pipe);
    void *context;
    /* Or a program: argv ends with NULL; argv[0] is searched for in PATH when it has no slash. SIGINT, SIGTERM and
     * SIGPIPE have their default effect in it. */
    char *const *argv;
    const char *dir;  /* where the program starts, NULL = here */
    int in, out, err; /* the program's descriptors: 0 = this process's own, PROCESS_NO_FILE, or any other open one */
    bool has_pipe;    /* process.pipe reads what the child writes: a program's stdout, or the function's `pipe` */
    bool own_group;   /* starts a process group: signals and the final kill reach its children too */
    /* A function that runs code of others: it has a group of its own, and a signal that the group sends to this process
     * is no interrupt (process_signal_of_child). It is stopped and continued with this process. One at a time. */
    bool untrusted;
};

struct process {
    pid_t pid;
    int watch_file; /* a pidfd, readable when the process has ended; -1 where the kernel has none */
    int pipe;       /* read end, -1 without has_pipe; closed by process_watch */
    bool has_group;
};

/* Returns 0, or the errno of fork or exec. A child never outlives this process: a function is
 * killed with it, a program gets SIGTERM. Each started process must be given to process_watch once. */
int process_start(const struct process_request *, struct process *);

/* ---- watching ---- */

enum process_end {
    PROCESS_EXITED,      /* code: its exit code */
    PROCESS_SIGNALLED,   /* code: the signal */
    PROCESS_OVER_LIMIT,  /* killed after limit_s */
    PROCESS_STOPPED,     /* killed because `tick` returned false */
    PROCESS_INTERRUPTED, /* killed because this process was interrupted */
    PROCESS_STUCK,       /* did not end after SIGKILL: it hangs in the kernel and is not waited for */
};

struct process_result {
    enum process_end end;
    int code; /* exit code or signal, for PROCESS_EXITED and PROCESS_SIGNALLED */
    double elapsed_s;
    double limit_s; /* for PROCESS_OVER_LIMIT: the limit that was exceeded */
};

/* Every field may be 0. Time in which this process itself was suspended does not count. */
struct process_watch {
    double limit_s;                        /* 0 = none */
    double interrupt_limit_s;              /* how long it may run after an interrupt; 0 = PROCESS_INTERRUPT_LIMIT_S */
    int interrupt_signal;                  /* signal sent to it at the first interrupt, 0 = none */
    double kill_limit_s;                   /* how long it may take to end after SIGKILL; 0 = PROCESS_KILL_LIMIT_S */
    int tick_ms;                           /* `tick` is called at least this often; 0 = PROCESS_TICK_MS */
    bool (*tick)(void *context);           /* false = kill it; NULL = none */
    bool (*read)(void *context, int pipe); /* called when the pipe can be read without waiting; false at its end */
    void *context;
};
enum {
    PROCESS_INTERRUPT_LIMIT_S = 10,
    PROCESS_KILL_LIMIT_S = 10,
    PROCESS_CLOSED_LIMIT_S = 60, /* to end after its pipe was closed: tearing down a device takes some seconds */
    PROCESS_DRAIN_LIMIT_S = 2,   /* to read an ended process's pipe: its children may still write to it */
    PROCESS_TICK_MS = 500,
};

/* Waits until the process has ended, or was killed for a limit, `tick` or an interrupt (see process_catch_interrupts; a
 * second one kills at once). Reads the rest of the pipe, closes it, kills the rest of its own group, reaps it. */
void process_watch(struct process *, const struct process_watch *, struct process_result *);

/* "ended with code 6", "died of signal 11 (Segmentation fault)", "took longer than 5 s, the limit, and was killed" */
char *process_describe(const struct process_result *, char *buffer, size_t size);

/* ---- interrupts ---- */

/* From now on SIGINT and SIGTERM are counted instead of ending the program, and SIGPIPE is ignored. Every other signal
 * that can be caught keeps its effect, unless an untrusted child sent it. */
void process_catch_interrupts(void);
bool process_is_interrupted(void);

/* From now on an interrupt of this process is one of the functions, too, that it starts later, and of their children.
 * False with errno. */
bool process_share_interrupts(void);

/* The last signal that the untrusted child, or a process of its group, has sent to this process since it was started;
 * 0 = none. SIGKILL and SIGSTOP cannot be caught. */
int process_signal_of_child(void);

/* ---- what children leave behind ---- */

/* From now on a descendant whose parent ends becomes a child of this process. */
void process_adopt_orphans(void);

/* Children that this process has, running or not reaped: also those that a shell had before it became this program. */
bool process_has_children(void);

/* Kills every child of this process, and with process_adopt_orphans their descendants, and reaps them. Returns how many
 * of them were still running. Only where no child is to go on. */
int process_end_children(void);

/* ---- shared memory ---- */

/* Zeroed memory that this process shares with children that it starts later; NULL with errno. */
void *process_share(size_t bytes);
void process_unshare(void *, size_t bytes);

#endif
