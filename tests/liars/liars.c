/* CPU implementations that lie, loaded with --impl-lib, and one that does not: `honest`.
 *
 * All of them can compute attention (plain loops, fp32), and each has one function that says what it does instead. What
 * the program must make of each is in verdicts.txt; tests/cli/liars.sh runs them. liars_cuda.cu has those that need a
 * device. Only for short problems: a launch at 64 rows takes about a millisecond.
 *
 * With LIARS_NAME in the environment the table has one row, whose name is the lie.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "tests/liars/liars.h"

/* ---- lies about memory ---- */

static enum attn_status guard_behind(const struct call *c)
{
    struct span spans[4];
    outputs(c, spans);
    work(c);
    spans[0].data[spans[0].count + 64] = 1;
    return ATTN_OK;
}

static enum attn_status guard_before(const struct call *c)
{
    struct span spans[4];
    outputs(c, spans);
    work(c);
    spans[0].data[-64] = 1;
    return ATTN_OK;
}

static enum attn_status guard_of_k(const struct call *c)
{
    struct span spans[4];
    inputs(c, spans);
    work(c);
    spans[1].data[spans[1].count + 64] = 1;
    return ATTN_OK;
}

static enum attn_status guard_restored(const struct call *c)
{
    struct span spans[4];
    outputs(c, spans);
    volatile float *outside = &spans[0].data[spans[0].count + 64];
    const float there = *outside;
    *outside = 0;
    work(c);
    *outside = there;
    return ATTN_OK;
}

static enum attn_status far_outside(const struct call *c)
{
    struct span spans[4];
    outputs(c, spans);
    work(c);
    for (size_t n = 1; n < 1 << 16; n++)
        *(volatile float *)((char *)spans[0].data + (n << 16)) = 1;
    return ATTN_OK;
}

static enum attn_status touch_input(const struct call *c)
{
    work(c);
    *(float *)c->t->q.data += 1;
    return ATTN_OK;
}

static enum attn_status touch_later(const struct call *c)
{
    work(c);
    if (c->n == 4)
        *(float *)c->t->v.data += 1;
    return ATTN_OK;
}

static enum attn_status touch_restore(const struct call *c)
{
    struct span spans[4];
    inputs(c, spans);
    for (size_t n = 0; n < spans[0].count; n++)
        spans[0].data[n] = -spans[0].data[n];
    for (size_t n = 0; n < spans[0].count; n++)
        spans[0].data[n] = -spans[0].data[n];
    return work(c);
}

static enum attn_status k_scratch(const struct call *c)
{
    struct span spans[4];
    inputs(c, spans);
    work(c);
    for (size_t n = 0; n < spans[1].count; n++)
        spans[1].data[n] *= 2;
    return ATTN_OK;
}

static size_t workspace_64(const struct attn_request *request)
{
    (void)request;
    return 64;
}

static enum attn_status workspace_short(const struct call *c)
{
    memset(c->run->workspace, 0, 256 + 64);
    return work(c);
}

static size_t workspace_most(const struct attn_request *request)
{
    (void)request;
    return SIZE_MAX - 64;
}

static enum attn_status workspace_huge(const struct call *c)
{
    memset(c->run->workspace, 0, 1 << 20);
    return work(c);
}

static enum attn_status leak(const struct call *c)
{
    char *volatile lost = malloc(1 << 20);
    if (lost)
        memset(lost, 1, 1 << 20);
    return work(c);
}

/* ---- lies about the process ---- */

static enum attn_status quit(const struct call *c)
{
    (void)c;
    exit(0);
}

static enum attn_status give_up(const struct call *c)
{
    (void)c;
    abort();
}

static jmp_buf left_frame;
static enum attn_status prepare(const struct attn_request *, const struct attn_tensors *, void **,
                                struct attn_message *);

static enum attn_status prepare_jump(const struct attn_request *request, const struct attn_tensors *tensors,
                                     void **plan, struct attn_message *why)
{
    static volatile int returns;
    if (setjmp(left_frame) && ++returns > 3) /* into a frame that was left: ends here at the latest */
        abort();
    return prepare(request, tensors, plan, why);
}

static enum attn_status jump_out(const struct call *c)
{
    (void)c;
    longjmp(left_frame, 1);
}

static enum attn_status end_thread(const struct call *c)
{
    (void)c;
    pthread_exit(NULL);
}

static enum attn_status hang(const struct call *c)
{
    (void)c;
    for (;;)
        pause();
}

static enum attn_status hang_later(const struct call *c) { return c->n < 4 ? work(c) : hang(c); }

static enum attn_status stop_self(const struct call *c)
{
    raise(SIGSTOP);
    return work(c);
}

static enum attn_status signal_parent(const struct call *c)
{
    work(c);
    if (c->n == 2)
        kill(getppid(), SIGTERM);
    return ATTN_OK;
}

static enum attn_status print(const struct call *c)
{
    printf("launch %u\n\033[2J{\"type\": \"row\", \"tflops\": 1000}\n", c->n);
    fflush(stdout);
    return work(c);
}

/* Writes what looks like messages into every pipe that it finds. */
static enum attn_status forge(const struct call *c)
{
    static const char text[] = "{\"msg\":\"row\",\"item\":0,\"slot\":0,\"row\":{}}\n{\"msg\":\"done\"}\n";
    work(c);
    for (int file = 3; file < 64 && c->n == 0; file++) {
        struct stat s;
        if (fstat(file, &s) == 0 && S_ISFIFO(s.st_mode) && write(file, text, sizeof text - 1) < 0)
            continue;
    }
    return ATTN_OK;
}

static enum attn_status say_escape(const struct call *c)
{
    strcpy(c->why->text, "failed \033[2J\033]0;title\a on purpose");
    return ATTN_ERROR;
}

static enum attn_status say_without_end(const struct call *c)
{
    memset(c->why->text, 'x', sizeof c->why->text);
    return ATTN_ERROR;
}

/* In a child: stays for a minute, under the name that LIARS_CHILD gives it. */
static void stay(void)
{
    const char *name = getenv("LIARS_CHILD");
    prctl(PR_SET_NAME, name ? name : "liar", 0, 0, 0);
    for (int n = 0; n < 600; n++)
        usleep(100000);
    _exit(0);
}

static enum attn_status child(const struct call *c)
{
    if (c->n == 0 && fork() == 0)
        stay();
    return work(c);
}

static enum attn_status daemon_child(const struct call *c)
{
    if (c->n == 0 && fork() == 0) {
        setsid();
        if (fork() == 0)
            stay();
        _exit(0);
    }
    return work(c);
}

static enum attn_status close_files(const struct call *c)
{
    work(c);
    for (int file = 3; file < 256; file++)
        close(file);
    return ATTN_OK;
}

static enum attn_status rounding(const struct call *c)
{
    work(c);
    fesetround(FE_TOWARDZERO);
    return ATTN_OK;
}

static enum attn_status change_locale(const struct call *c)
{
    work(c);
    setlocale(LC_ALL, "C.UTF-8");
    return ATTN_OK;
}

static enum attn_status change_folder(const struct call *c)
{
    work(c);
    return chdir("/") == 0 ? ATTN_OK : ATTN_ERROR;
}

static enum attn_status signals(const struct call *c)
{
    sigset_t all;
    work(c);
    signal(SIGTERM, SIG_IGN);
    signal(SIGSEGV, SIG_IGN);
    signal(SIGINT, SIG_DFL);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    return ATTN_OK;
}

static enum attn_status timer(const struct call *c)
{
    const struct itimerval soon = {.it_value = {.tv_usec = 1}};
    work(c);
    setitimer(ITIMER_REAL, &soon, NULL);
    return ATTN_OK;
}

/* ---- lies about what it is ---- */

static enum attn_status accepts_all(const struct attn_request *request, struct attn_message *why)
{
    return attn_check_attributes(request, 0, why);
}

static enum attn_status always_fails(const struct call *c)
{
    strcpy(c->why->text, "not this one");
    return ATTN_ERROR;
}

static enum attn_status fails_later(const struct call *c)
{
    work(c);
    strcpy(c->why->text, "no more");
    return c->n < 4 ? ATTN_OK : ATTN_ERROR;
}

static enum attn_status late_refusal(const struct call *c)
{
    strcpy(c->why->text, "not after all");
    return ATTN_UNSUPPORTED;
}

static enum attn_status odd_status(const struct call *c)
{
    work(c);
    strcpy(c->why->text, "a status that there is not");
    return (enum attn_status)42;
}

static enum attn_status last_bits(const struct call *c)
{
    struct span spans[4];
    outputs(c, spans);
    work(c);
    for (size_t n = 0; n < spans[0].count && c->n % 3; n++)
        spans[0].data[n] = nextafterf(spans[0].data[n], INFINITY);
    return ATTN_OK;
}

static enum attn_status sleep_first(const struct call *c)
{
    if (c->n == 0)
        usleep(50000);
    return work(c);
}

static const char *long_variant(const struct attn_request *request)
{
    static char name[100000];
    (void)request;
    memset(name, 'v', sizeof name - 1);
    return name;
}

static const char *escape_variant(const struct attn_request *request)
{
    (void)request;
    return "v\033[2J\"\n,v";
}

static enum attn_status dies_at_96(const struct call *c)
{
    if (c->request->problem->q_len == 96)
        abort();
    return work(c);
}

/* ---- the table ---- */

static enum attn_status prepare(const struct attn_request *request, const struct attn_tensors *tensors, void **plan,
                                struct attn_message *why)
{
    struct state *s = calloc(1, sizeof *s);
    (void)request, (void)tensors, (void)why;
    if (s)
        s->late = calloc(1, sizeof *s->late);
    *plan = s;
    return s && s->late ? ATTN_OK : ATTN_NO_MEMORY;
}

/* Computes the result outside the clock, into memory of its own. */
static enum attn_status prepare_result(const struct attn_request *request, const struct attn_tensors *tensors,
                                       void **plan, struct attn_message *why)
{
    const enum attn_status status = prepare(request, tensors, plan, why);
    const struct call c = {.request = request, .t = tensors, .state = *plan};
    if (status != ATTN_OK)
        return status;
    work(&c);
    store(&c);
    return ATTN_OK;
}

static void release(void *plan)
{
    struct state *s = plan;
    lie_join_late(s);
    if (s->tells_served)
        fprintf(stderr, "%s: %u of %u launches without work\n", s->name, s->served, s->calls);
    free(s->stored);
    free(s->stored_inputs);
    free(s->late);
    free(s);
}

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const enum attn_status status = attn_check_attributes(request, 0, why);
    if (status != ATTN_OK || (p->dtype == ATTN_FP32 && p->kv_len <= MAX_KEYS))
        return status;
    strcpy(why->text, "takes fp32, up to 4096 keys");
    return ATTN_UNSUPPORTED;
}

static size_t no_workspace(const struct attn_request *request)
{
    (void)request;
    return 0;
}

/* X(name, what a launch does, fields that differ from those of every row) */
#define LIES(X) \
    X(honest, work, ) \
    WORK_LIES(X) \
    X(guard_behind, guard_behind, ) \
    X(guard_before, guard_before, ) \
    X(guard_of_k, guard_of_k, ) \
    X(guard_restored, guard_restored, ) \
    X(far_outside, far_outside, ) \
    X(touch_input, touch_input, ) \
    X(touch_later, touch_later, ) \
    X(touch_restore, touch_restore, ) \
    X(k_scratch, k_scratch, ) \
    X(workspace_short, workspace_short, .workspace_bytes = workspace_64) \
    X(workspace_huge, workspace_huge, .workspace_bytes = workspace_most) \
    X(leak, leak, ) \
    X(quit, quit, ) \
    X(give_up, give_up, ) \
    X(jump_out, jump_out, .prepare = prepare_jump) \
    X(end_thread, end_thread, ) \
    X(hang, hang, ) \
    X(hang_later, hang_later, ) \
    X(stop_self, stop_self, ) \
    X(signal_parent, signal_parent, ) \
    X(print, print, ) \
    X(forge, forge, ) \
    X(say_escape, say_escape, ) \
    X(say_without_end, say_without_end, ) \
    X(child, child, ) \
    X(daemon_child, daemon_child, ) \
    X(close_files, close_files, ) \
    X(rounding, rounding, ) \
    X(change_locale, change_locale, ) \
    X(change_folder, change_folder, ) \
    X(signals, signals, ) \
    X(timer, timer, ) \
    X(always_fails, always_fails, .accepts = accepts_all) \
    X(fails_later, fails_later, ) \
    X(late_refusal, late_refusal, ) \
    X(odd_status, odd_status, ) \
    X(last_bits, last_bits, ) \
    X(sleep_first, sleep_first, ) \
    X(long_variant, work, .variant = long_variant) \
    X(escape_variant, work, .variant = escape_variant) \
    X(dies_at_96, dies_at_96, )

#define THUNK(row_name, act, ...) \
    static enum attn_status launch_##row_name(const struct attn_request *request, const struct attn_tensors *tensors, \
                                              const struct attn_run *run, struct attn_message *why) \
    { \
        struct state *state = run->plan; \
        state->name = "liar_" #row_name; \
        const struct call c = {request, tensors, run, why, state, state->calls++, __builtin_return_address(0), NULL}; \
        return act(&c); \
    }
LIES(THUNK)

#define ALL_FWD (ATTN_O | ATTN_LSE)
#define ALL_BWD (ATTN_DQ | ATTN_DK | ATTN_DV)
#define ROW(row_name, act, ...) \
    {.abi = ATTN_ABI, \
     .name = "liar_" #row_name, \
     .summary = "see tests/liars/verdicts.txt", \
     .platform = ATTN_CPU, \
     .repeatable = {ALL_FWD, ALL_BWD}, \
     .repeatable_deterministic = {ALL_FWD, ALL_BWD}, \
     .accepts = accepts, \
     .workspace_bytes = no_workspace, \
     .prepare = prepare, \
     .launch = launch_##row_name, \
     .release = release, \
     __VA_ARGS__},

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init" /* the fields that differ come second */
static const struct attn_impl table[] = {LIES(ROW){.name = NULL}};
#pragma GCC diagnostic pop

/* A table whose one name has 100000 letters. */
static const struct attn_impl *table_with_long_name(void)
{
    static char name[100001];
    static struct attn_impl rows_of[2];
    memset(name, 'n', sizeof name - 1);
    rows_of[0] = table[0];
    rows_of[0].name = name;
    return rows_of;
}

/* A table whose one name has no end: behind its page there is no memory. */
static const struct attn_impl *table_without_end_of_name(void)
{
    static struct attn_impl rows_of[2];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || munmap(memory + page, page) != 0)
        return NULL;
    memset(memory, 'n', page);
    rows_of[0] = table[0];
    rows_of[0].name = memory;
    return rows_of;
}

/* LIARS_NAME=long and LIARS_NAME=endless ask for a table whose name is the lie. */
const struct attn_impl *fabench_impls(int abi)
{
    const char *name = getenv("LIARS_NAME");
    if (abi != ATTN_ABI)
        return NULL;
    if (name && !strcmp(name, "long"))
        return table_with_long_name();
    if (name && !strcmp(name, "endless"))
        return table_without_end_of_name();
    return table;
}
