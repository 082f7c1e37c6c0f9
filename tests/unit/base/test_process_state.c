/* What of a process is recorded and put back (cmd/base/process_state.h): each part is changed alone, is named alone,
 * and is as before afterwards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <fenv.h>
#include <limits.h>
#include <locale.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "cmd/base/process_state.h"

/* Puts back, expects these parts to have changed, and that nothing is left to put back. */
static void expect_parts(struct process_state *s, unsigned parts)
{
    unsigned stuck = 0;
    assert_int_equal(process_state_put_back(s, PARTS_ALL, &stuck), parts);
    assert_int_equal(stuck, 0);
    assert_int_equal(process_state_put_back(s, PARTS_ALL, &stuck), 0);
    process_state_free(s);
}

static void nothing(void **state)
{
    (void)state;
    struct process_state *s = process_state_record();
    feraiseexcept(FE_INEXACT | FE_DIVBYZERO); /* what has happened is no setting */
    expect_parts(s, 0);
    feclearexcept(FE_ALL_EXCEPT);
}

static void floating_point(void **state)
{
    (void)state;
    struct process_state *s = process_state_record();
    fesetround(FE_TOWARDZERO);
    expect_parts(s, PART_FLOATING_POINT);
    assert_int_equal(fegetround(), FE_TONEAREST);
}

static void denormals(void **state)
{
    (void)state;
#if defined(__x86_64__)
    struct process_state *s = process_state_record();
    unsigned control = 0;
    volatile float tiny = 1e-38f;
    __asm__ volatile("stmxcsr %0" : "=m"(control));
    control |= 0x8040;
    __asm__ volatile("ldmxcsr %0" : : "m"(control));
    expect_parts(s, PART_FLOATING_POINT);
    tiny /= 16;
    assert_true(tiny > 0);
#else
    skip();
#endif
}

static void locale(void **state)
{
    (void)state;
    struct process_state *s = process_state_record();
    const locale_t own = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    uselocale(own);
    expect_parts(s, PART_LOCALE);
    assert_true(uselocale((locale_t)0) == LC_GLOBAL_LOCALE);
    freelocale(own);
    s = process_state_record();
    if (!setlocale(LC_ALL, "C.UTF-8"))
        fail_msg("this system has no locale C.UTF-8");
    expect_parts(s, PART_LOCALE);
    assert_string_equal(setlocale(LC_ALL, NULL), "C");
}

static void signals(void **state)
{
    (void)state;
    struct process_state *s = process_state_record();
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    expect_parts(s, PART_SIGNAL_MASK);
    s = process_state_record();
    signal(SIGUSR2, SIG_IGN);
    unsigned stuck = 0;
    assert_int_equal(process_state_put_back(s, PARTS_QUICK, &stuck), 0);
    expect_parts(s, PART_SIGNAL_HANDLERS);
    assert_true(signal(SIGUSR2, SIG_DFL) == SIG_DFL);
    s = process_state_record();
    alarm(100);
    expect_parts(s, PART_TIMERS);
    assert_int_equal(alarm(0), 0);
}

static void folder_and_umask(void **state)
{
    (void)state;
    char before[PATH_MAX], after[PATH_MAX];
    struct process_state *s = process_state_record();
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir("/"), 0);
    expect_parts(s, PART_FOLDER);
    assert_non_null(getcwd(after, sizeof after));
    assert_string_equal(before, after);
    s = process_state_record();
    const mode_t mask = umask(0123);
    expect_parts(s, PART_UMASK);
    assert_int_equal(umask(mask), mask);
}

/* A folder that is gone cannot be put back: it is said again each time. */
static void lost_folder(void **state)
{
    (void)state;
    char before[PATH_MAX], folder[] = "/tmp/process_state_XXXXXX";
    unsigned stuck = 0;
    assert_non_null(getcwd(before, sizeof before));
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    struct process_state *s = process_state_record();
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(rmdir(folder), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(process_state_put_back(s, PARTS_ALL, &stuck), PART_FOLDER);
        assert_int_equal(stuck, PART_FOLDER);
    }
    process_state_free(s);
    assert_int_equal(chdir(before), 0);
}

static void environment(void **state)
{
    (void)state;
    setenv("PROCESS_STATE_TEST", "a=b", 1);
    struct process_state *s = process_state_record();
    setenv("PROCESS_STATE_TEST", "c", 1);
    expect_parts(s, PART_ENVIRONMENT);
    assert_string_equal(getenv("PROCESS_STATE_TEST"), "a=b");
    s = process_state_record();
    clearenv();
    expect_parts(s, PART_ENVIRONMENT);
    assert_string_equal(getenv("PROCESS_STATE_TEST"), "a=b");
    unsetenv("PROCESS_STATE_TEST");
    s = process_state_record();
    setenv("PROCESS_STATE_TEST", "new", 1);
    expect_parts(s, PART_ENVIRONMENT);
    assert_null(getenv("PROCESS_STATE_TEST"));
}

static void affinity(void **state)
{
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    if (CPU_COUNT(&all) < 2)
        skip();
    struct process_state *s = process_state_record();
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    expect_parts(s, PART_AFFINITY);
    assert_int_equal(sched_getaffinity(0, sizeof one, &one), 0);
    assert_true(CPU_EQUAL(&one, &all));
}

static void streams(void **state)
{
    (void)state;
    struct process_state *s = process_state_record();
    const struct file_identity was = file_identity_of(STDOUT_FILENO);
    const int other = open("/", O_RDONLY);
    assert_true(other >= 0);
    fflush(stdout);
    assert_true(dup2(other, STDOUT_FILENO) >= 0);
    close(STDIN_FILENO);
    expect_parts(s, PART_STREAMS);
    assert_true(file_identity_holds(&was, STDOUT_FILENO));
    assert_false(file_identity_holds(&was, other));
    close(other);
}

/* Everything was closed: said, and not put back. */
static void lost_streams(void **state)
{
    (void)state;
    unsigned stuck = 0;
    const int keep = 900;
    fflush(NULL);
    for (int i = 0; i < 3; i++)
        assert_true(dup2(i, keep + i) >= 0);
    struct process_state *s = process_state_record();
    for (int i = 0; i < keep; i++)
        close(i);
    assert_int_equal(process_state_put_back(s, PARTS_ALL, &stuck), PART_STREAMS);
    assert_int_equal(stuck, PART_STREAMS);
    for (int i = 0; i < 3; i++) {
        assert_true(dup2(keep + i, i) >= 0);
        close(keep + i);
    }
    process_state_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing),     cmocka_unit_test(floating_point), cmocka_unit_test(denormals),
        cmocka_unit_test(locale),      cmocka_unit_test(signals),        cmocka_unit_test(folder_and_umask),
        cmocka_unit_test(lost_folder), cmocka_unit_test(environment),    cmocka_unit_test(affinity),
        cmocka_unit_test(streams),     cmocka_unit_test(lost_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
