/* One pair of functions for each part: what it is now, and how it is put back. */
#include "cmd/base/process_state.h"

#include <fcntl.h>
#include <fenv.h>
#include <limits.h>
#include <locale.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "cmd/base/log.h"

extern char **environ;

enum { STREAMS = 3, TIMERS = 3, SIGNALS = 65, COPY_FROM = 200 };

struct process_state {
    fenv_t floating_point;
    uint64_t floating_point_control;
    char *locale;
    locale_t thread_locale;
    sigset_t mask;
    struct sigaction handlers[SIGNALS]; /* by signal number */
    char *folder;                       /* NULL = it could not be read */
    mode_t umask;
    char **variables; /* "NAME=VALUE", ended by NULL */
    cpu_set_t processors;
    bool has_processors;
    struct file_identity streams[STREAMS];
    int copies[STREAMS]; /* other descriptors of the same files, -1 = closed */
};

const char *process_part_name(int number)
{
    static const char *const names[PROCESS_PARTS] = {"the floating-point environment",
                                                     "the locale",
                                                     "the signal mask",
                                                     "signal handlers",
                                                     "timers",
                                                     "the working folder",
                                                     "the umask",
                                                     "environment variables",
                                                     "the processor affinity",
                                                     "standard input, output or error"};
    return number >= 0 && number < PROCESS_PARTS ? names[number] : "";
}

/* ---- floating point ---- */

/* Rounding, masks of traps and flushing of denormals, without the flags that every computation sets. */
static uint64_t floating_point_control(void)
{
#if defined(__x86_64__)
    uint32_t sse = 0;
    uint16_t x87 = 0;
    enum { SSE_FLAGS = 0x3f };
    __asm__ volatile("stmxcsr %0" : "=m"(sse));
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    return (uint64_t)x87 << 32 | (sse & ~(uint32_t)SSE_FLAGS);
#elif defined(__aarch64__)
    uint64_t control = 0;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return control;
#else
    return (uint64_t)fegetround();
#endif
}

static bool put_back_rounding(const struct process_state *s)
{
    return floating_point_control() != s->floating_point_control && fesetenv(&s->floating_point) == 0;
}

/* ---- locale ---- */

static bool put_back_locale(const struct process_state *s)
{
    const char *now = setlocale(LC_ALL, NULL);
    const bool has_changed = !now || strcmp(now, s->locale) != 0 || uselocale((locale_t)0) != s->thread_locale;
    if (has_changed) {
        uselocale(s->thread_locale);
        setlocale(LC_ALL, s->locale);
    }
    return has_changed;
}

/* ---- signals ---- */

/* sigset_t has more bytes than the kernel has signals. */
static bool is_same_set(const sigset_t *a, const sigset_t *b)
{
    for (int number = 1; number < SIGNALS; number++)
        if (sigismember(a, number) != sigismember(b, number))
            return false;
    return true;
}

static bool put_back_mask(const struct process_state *s)
{
    sigset_t now;
    if (pthread_sigmask(SIG_BLOCK, NULL, &now) != 0 || is_same_set(&now, &s->mask))
        return false;
    pthread_sigmask(SIG_SETMASK, &s->mask, NULL);
    return true;
}

/* Linux reports SA_RESTORER, which the C library sets wherever it installs an action. */
static bool is_same_action(const struct sigaction *a, const struct sigaction *b)
{
    enum { SA_RESTORER_BIT = 0x04000000 };
    return a->sa_handler == b->sa_handler && ((a->sa_flags ^ b->sa_flags) & ~SA_RESTORER_BIT) == 0;
}

static bool put_back_handlers(const struct process_state *s)
{
    bool has_changed = false;
    for (int number = 1; number < SIGNALS; number++) {
        struct sigaction now;
        const struct sigaction *was = &s->handlers[number];
        if (sigaction(number, NULL, &now) != 0 || is_same_action(&now, was))
            continue;
        has_changed = true;
        sigaction(number, was, NULL);
    }
    return has_changed;
}

static bool stop_timers(void)
{
    static const int timers[TIMERS] = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF};
    bool has_changed = false;
    for (int i = 0; i < TIMERS; i++) {
        struct itimerval now, none = {0};
        if (getitimer(timers[i], &now) != 0 || (now.it_value.tv_sec == 0 && now.it_value.tv_usec == 0))
            continue;
        has_changed = true;
        setitimer(timers[i], &none, NULL);
    }
    return has_changed;
}

/* ---- folder, umask, variables, processors ---- */

static bool put_back_folder(const struct process_state *s, unsigned *stuck)
{
    char now[PATH_MAX];
    if (!s->folder || (getcwd(now, sizeof now) && !strcmp(now, s->folder)))
        return false;
    if (chdir(s->folder) != 0)
        *stuck |= PART_FOLDER;
    return true;
}

static bool put_back_umask(const struct process_state *s) { return umask(s->umask) != s->umask; }

static char **copy_variables(void)
{
    size_t count = 0;
    while (environ && environ[count])
        count++;
    char **copy = xcalloc(count + 1, sizeof *copy);
    for (size_t i = 0; i < count; i++)
        copy[i] = xstrdup(environ[i]);
    return copy;
}

static bool put_back_variables(const struct process_state *s)
{
    size_t at = 0;
    while (environ && environ[at] && s->variables[at] && !strcmp(environ[at], s->variables[at]))
        at++;
    if (!s->variables[at] && (!environ || !environ[at]))
        return false;
    clearenv();
    for (at = 0; s->variables[at]; at++) {
        const char *equals = strchr(s->variables[at], '=');
        if (!equals)
            continue;
        char *name = xstrdup(s->variables[at]);
        name[equals - s->variables[at]] = 0;
        setenv(name, equals + 1, 1);
        free(name);
    }
    return true;
}

static bool put_back_processors(const struct process_state *s, unsigned *stuck)
{
    cpu_set_t now;
    if (!s->has_processors || sched_getaffinity(0, sizeof now, &now) != 0 || CPU_EQUAL(&now, &s->processors))
        return false;
    if (sched_setaffinity(0, sizeof s->processors, &s->processors) != 0)
        *stuck |= PART_AFFINITY;
    return true;
}

/* ---- open files ---- */

struct file_identity file_identity_of(int descriptor)
{
    struct stat s;
    if (descriptor < 0 || fstat(descriptor, &s) != 0)
        return (struct file_identity){0, 0};
    return (struct file_identity){s.st_dev, s.st_ino};
}

bool file_identity_holds(const struct file_identity *was, int descriptor)
{
    const struct file_identity now = file_identity_of(descriptor);
    return now.device == was->device && now.node == was->node;
}

static bool put_back_streams(const struct process_state *s, unsigned *stuck)
{
    bool has_changed = false;
    for (int i = 0; i < STREAMS; i++) {
        if (file_identity_holds(&s->streams[i], i))
            continue;
        has_changed = true;
        if (s->copies[i] < 0)
            close(i);
        else if (!file_identity_holds(&s->streams[i], s->copies[i]) || dup2(s->copies[i], i) < 0)
            *stuck |= PART_STREAMS;
    }
    return has_changed;
}

/* ---- all of them ---- */

struct process_state *process_state_record(void)
{
    struct process_state *s = xcalloc(1, sizeof *s);
    char folder[PATH_MAX];
    const char *locale = setlocale(LC_ALL, NULL);
    fegetenv(&s->floating_point);
    s->floating_point_control = floating_point_control();
    s->locale = xstrdup(locale ? locale : "C");
    s->thread_locale = uselocale((locale_t)0);
    pthread_sigmask(SIG_BLOCK, NULL, &s->mask);
    for (int number = 1; number < SIGNALS; number++)
        sigaction(number, NULL, &s->handlers[number]);
    s->folder = getcwd(folder, sizeof folder) ? xstrdup(folder) : NULL;
    s->umask = umask(0);
    umask(s->umask);
    s->variables = copy_variables();
    s->has_processors = sched_getaffinity(0, sizeof s->processors, &s->processors) == 0;
    for (int i = 0; i < STREAMS; i++) {
        s->streams[i] = file_identity_of(i);
        s->copies[i] = fcntl(i, F_DUPFD_CLOEXEC, COPY_FROM);
    }
    return s;
}

void process_state_free(struct process_state *s)
{
    if (!s)
        return;
    for (int i = 0; i < STREAMS; i++)
        if (s->copies[i] >= 0 && file_identity_holds(&s->streams[i], s->copies[i]))
            close(s->copies[i]);
    for (char **variable = s->variables; *variable; variable++)
        free(*variable);
    free(s->variables);
    free(s->locale);
    free(s->folder);
    free(s);
}

unsigned process_state_put_back(struct process_state *s, unsigned parts, unsigned *stuck)
{
    unsigned changed = 0;
    *stuck = 0;
    changed |= parts & PART_FLOATING_POINT && put_back_rounding(s) ? PART_FLOATING_POINT : 0;
    changed |= parts & PART_LOCALE && put_back_locale(s) ? PART_LOCALE : 0;
    changed |= parts & PART_SIGNAL_HANDLERS && put_back_handlers(s) ? PART_SIGNAL_HANDLERS : 0;
    changed |= parts & PART_TIMERS && stop_timers() ? PART_TIMERS : 0;
    changed |= parts & PART_SIGNAL_MASK && put_back_mask(s) ? PART_SIGNAL_MASK : 0;
    changed |= parts & PART_FOLDER && put_back_folder(s, stuck) ? PART_FOLDER : 0;
    changed |= parts & PART_UMASK && put_back_umask(s) ? PART_UMASK : 0;
    changed |= parts & PART_ENVIRONMENT && put_back_variables(s) ? PART_ENVIRONMENT : 0;
    changed |= parts & PART_AFFINITY && put_back_processors(s, stuck) ? PART_AFFINITY : 0;
    changed |= parts & PART_STREAMS && put_back_streams(s, stuck) ? PART_STREAMS : 0;
    return changed;
}
