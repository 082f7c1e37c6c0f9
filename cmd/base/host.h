/* What this process may use of the machine: the limits of its CPU mask and of its control groups, not the size of the
 * host. All are read from files below a root folder: "" is the machine itself, tests bring trees of their own. */
#ifndef FABENCH_HOST_H
#define FABENCH_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct host_limits {
    int cpus;             /* that the process may run on: Cpus_allowed_list of /proc/self/status; 0 = not known */
    double cpu_quota;     /* of the control groups, in CPUs; +inf = none */
    int threads;          /* that can run all the time: the smaller of both, rounded down, at least 1 */
    int64_t memory_bytes; /* of the machine; 0 = not known */
    int64_t memory_limit; /* the smallest of the machine and of its control groups; 0 = not known */
    int64_t l3_bytes;     /* of the last level cache of the first CPU that it may run on; 0 = not known */
    double load;          /* of the machine, mean of the last minute; NaN = not known */
};

/* Of all threads of this process together, since each began: the time on a CPU, and the time in which they could have
 * run and waited for one, because others had it. False where the kernel does not tell. */
struct host_thread_times {
    double ran_s, waited_s;
};
bool host_thread_times(const char *root, struct host_thread_times *);

/* The share of the time between two of these in which they waited, in per cent; NaN = not known. */
double host_wait_pct(const struct host_thread_times *from, const struct host_thread_times *to);

/* Control groups of version 1 and 2, also nested: the limits of all groups above count. */
struct host_limits host_limits(const char *root);

/* The name of the CPU in /proc/cpuinfo, with its family and model where the name has no number, as it is in virtual
 * machines: "AMD EPYC (25/17)". False where there is no name: not on x86. */
bool host_cpu_name(const char *root, char *name, size_t size);

/* The host's name in records and verdicts: FABENCH_HOST, or its own; "" = not known. Control characters are spaces. */
void host_name(char *name, size_t size);

/* The threads that OMP_NUM_THREADS asks for, the first number of its list; 0 = it is not set. -1: not a whole number
 * from 1 to HOST_THREADS_MAX. */
enum { HOST_THREADS_MAX = 4096 };
int host_threads_wanted(const char *value);

#endif
