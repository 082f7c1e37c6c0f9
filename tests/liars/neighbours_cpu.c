/* CPU implementations with a right result, each of which harms the worker process that it shares: it changes an input,
 * writes outside its buffers, closes files, dies, starts processes or threads, sends signals, or changes the state of
 * the process. tests/cli/neighbours.sh expects what each gets, and that the others keep their rows. */
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/attention.h"

enum { LATER = 3 /* a launch after the checked one */ };

/* ---- a right result ---- */

static const float *row_of(const struct attn_tensor *t, int64_t b, int64_t h, int64_t i)
{
    return (const float *)t->data + b * t->stride_batch + h * t->stride_head + i * t->stride_row;
}

static void compute_row(const struct attn_problem *p, const struct attn_tensors *t, float *s, int64_t b, int64_t h,
                        int64_t i)
{
    const int64_t kv = h / (p->q_heads / p->kv_heads), d = p->head_dim;
    float *o = (float *)t->o.data + b * t->o.stride_batch + h * t->o.stride_head + i * t->o.stride_row;
    int64_t first, last;
    double sum = 0, max = -INFINITY;
    attn_visible(p, i, &first, &last);
    for (int64_t j = first; j <= last; j++) {
        double dot = 0;
        for (int64_t c = 0; c < d; c++)
            dot += (double)row_of(&t->q, b, h, i)[c] * row_of(&t->k, b, kv, j)[c];
        s[j] = (float)(p->scale * dot);
        max = fmax(max, s[j]);
    }
    for (int64_t j = first; j <= last; j++)
        sum += exp(s[j] - max);
    for (int64_t c = 0; c < d; c++) {
        double value = 0;
        for (int64_t j = first; j <= last; j++)
            value += exp(s[j] - max) * row_of(&t->v, b, kv, j)[c];
        o[c] = first <= last ? (float)(value / sum) : 0;
    }
    t->lse[(b * p->q_heads + h) * p->q_len + i] = first <= last ? (float)(max + log(sum)) : -INFINITY;
}

static void compute(const struct attn_request *r, const struct attn_tensors *t, const struct attn_run *run)
{
    const struct attn_problem *p = r->problem;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = 0; i < p->q_len; i++)
                compute_row(p, t, run->workspace, b, h, i);
}

/* ---- what each does besides ---- */

/* launches: how often it was launched in this process, from 1. */
#define LAUNCH(name) \
    static void do_##name(const struct attn_request *, const struct attn_tensors *, int launches); \
    static enum attn_status launch_##name(const struct attn_request *r, const struct attn_tensors *t, \
                                          const struct attn_run *run, struct attn_message *why) \
    { \
        static int launches; \
        (void)why; \
        compute(r, t, run); \
        do_##name(r, t, ++launches); \
        return ATTN_OK; \
    } \
    static void do_##name(const struct attn_request *r, const struct attn_tensors *t, int launches)
#define UNUSED (void)r, (void)t, (void)launches

LAUNCH(input)
{
    (void)r, (void)launches;
    ((float *)t->q.data)[1] += 1;
}
LAUNCH(input_later)
{
    (void)r;
    if (launches == LATER)
        ((float *)t->v.data)[1] += 1;
}
/* The whole guard, and the head of the next block of the heap. */
LAUNCH(far)
{
    const struct attn_problem *p = r->problem;
    (void)launches;
    memset((char *)t->o.data + p->batch * p->q_heads * p->q_len * p->head_dim * 4, 0x5a, 4096 + 64);
}
LAUNCH(close)
{
    UNUSED;
    for (int i = 0; i < 1024; i++)
        close(i);
}
LAUNCH(close_later)
{
    UNUSED;
    for (int i = 0; launches == LATER && i < 1024; i++)
        close(i);
}
LAUNCH(dies_in_second_case)
{
    (void)t, (void)launches;
    if (r->problem->q_len == 128)
        raise(SIGKILL);
}
static void *die_soon(void *unused)
{
    (void)unused;
    usleep(20000);
    raise(SIGKILL);
    return NULL;
}
LAUNCH(dies_beside)
{
    pthread_t thread;
    UNUSED;
    if (launches == 1)
        pthread_create(&thread, NULL, die_soon, NULL);
}
static void *spin(void *unused)
{
    (void)unused;
    for (volatile unsigned n = 0;; n++)
        ;
    return NULL;
}
LAUNCH(spins)
{
    pthread_t thread;
    UNUSED;
    if (launches == 1)
        pthread_create(&thread, NULL, spin, NULL);
}
LAUNCH(prints)
{
    UNUSED;
    printf("a line of a plugin\n");
    fflush(stdout);
}
LAUNCH(rounding)
{
    UNUSED;
    fesetround(FE_UPWARD);
}
LAUNCH(flushing)
{
    UNUSED;
#if defined(__x86_64__)
    unsigned control = 0;
    __asm__ volatile("stmxcsr %0" : "=m"(control));
    control |= 0x8040; /* results and operands that are denormal become 0 */
    __asm__ volatile("ldmxcsr %0" : : "m"(control));
#else
    fesetround(FE_DOWNWARD);
#endif
}
LAUNCH(locale)
{
    UNUSED;
    setlocale(LC_ALL, "C.UTF-8");
}
LAUNCH(mask)
{
    sigset_t all;
    UNUSED;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
}
LAUNCH(handlers)
{
    UNUSED;
    signal(SIGSEGV, SIG_IGN);
}
LAUNCH(timers)
{
    UNUSED;
    alarm(1);
}
LAUNCH(folder)
{
    UNUSED;
    if (chdir("/") != 0)
        abort();
}
LAUNCH(umask)
{
    UNUSED;
    umask(0777);
}
LAUNCH(environment)
{
    UNUSED;
    setenv("OMP_NUM_THREADS", "7", 1);
}
LAUNCH(output)
{
    UNUSED;
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, 1);
    dup2(nowhere, 2);
    close(nowhere);
}
LAUNCH(child)
{
    UNUSED;
    if (launches == 1 && fork() == 0)
        for (;;)
            pause();
}
/* A child of a child, in a session of its own. */
LAUNCH(daemon)
{
    UNUSED;
    if (launches == 1 && fork() == 0) {
        setsid();
        if (fork() != 0)
            _exit(0);
        for (;;)
            pause();
    }
}
LAUNCH(copies_itself)
{
    UNUSED;
    if (launches == 1)
        fork(); /* both return */
}
LAUNCH(terminates)
{
    UNUSED;
    if (launches == 1)
        kill(getppid(), SIGTERM);
}
LAUNCH(interrupts)
{
    UNUSED;
    if (launches == 1)
        kill(getppid(), SIGINT);
}
LAUNCH(hangs_up)
{
    UNUSED;
    if (launches == 1)
        kill(getppid(), SIGHUP);
}
LAUNCH(user_signal)
{
    UNUSED;
    if (launches == 1)
        kill(getppid(), SIGUSR1);
}
LAUNCH(ends_group)
{
    UNUSED;
    if (launches == 1)
        kill(0, SIGTERM);
}

/* ---- the table ---- */

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const enum attn_status status = attn_check_attributes(request, 0, why);
    if (status != ATTN_OK || (request->mode == ATTN_FWD && request->problem->dtype == ATTN_FP32))
        return status;
    strcpy(why->text, "computes forward in fp32 only");
    return ATTN_UNSUPPORTED;
}

static size_t workspace_bytes(const struct attn_request *request)
{
    return (size_t)request->problem->kv_len * sizeof(float);
}

#define ROW(kind) \
    { \
        .abi = ATTN_ABI, .name = "bad_" #kind, .summary = "harms its neighbours", .platform = ATTN_CPU, \
        .accepts = accepts, .workspace_bytes = workspace_bytes, .launch = launch_##kind \
    }

const struct attn_impl *fabench_impls(int abi)
{
    static const struct attn_impl table[] = {ROW(input),         ROW(input_later), ROW(far),
                                             ROW(close),         ROW(close_later), ROW(dies_in_second_case),
                                             ROW(dies_beside),   ROW(spins),       ROW(prints),
                                             ROW(rounding),      ROW(flushing),    ROW(locale),
                                             ROW(mask),          ROW(handlers),    ROW(timers),
                                             ROW(folder),        ROW(umask),       ROW(environment),
                                             ROW(output),        ROW(child),       ROW(daemon),
                                             ROW(copies_itself), ROW(terminates),  ROW(interrupts),
                                             ROW(hangs_up),      ROW(user_signal), ROW(ends_group),
                                             {.abi = ATTN_ABI}};
    return abi == ATTN_ABI ? table : NULL;
}
