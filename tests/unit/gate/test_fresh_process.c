/* Fresh processes (cmd/gate/fresh_process.h) and the device's lock (cmd/device/device_lock.h), with the shell as the
 * program. */
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
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cmd/device/device_lock.h"
#include "cmd/base/log.h"
#include "cmd/gate/fresh_process.h"

static char folder[] = "/tmp/fabench-test-XXXXXX", out[64], err[64];

static struct fresh_result run_shell(const char *script, double limit_s)
{
    char shell[] = "/bin/sh", dash_c[] = "-c", *text = xstrdup(script), *argv[] = {shell, dash_c, text, NULL};
    const struct fresh_request request = {.argv = argv, .out_path = out, .err_path = err, .silence_limit_s = limit_s};
    struct fresh_result result;
    fresh_run(&request, &result);
    free(text);
    return result;
}

static const char *text_of(const char *path)
{
    static char text[1024];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

static void ends_and_words(void **state)
{
    (void)state;
    char text[500];
    struct fresh_result r = run_shell("echo rows; echo first >&2; echo 'fabench: the last' >&2; exit 6", 20);
    assert_int_equal(r.end, FRESH_EXITED);
    assert_int_equal(r.code, 6);
    assert_string_equal(r.last_line, "the last");
    assert_string_equal(text_of(out), "rows\n");
    assert_string_equal(fresh_describe(&r, text, sizeof text), "ended with code 6: the last");
    r = run_shell("kill -SEGV $$", 20);
    assert_int_equal(r.end, FRESH_SIGNALLED);
    assert_int_equal(r.code, SIGSEGV);
    assert_string_equal(r.last_line, "");
    r = run_shell("cat; exit 3", 20); /* no input: it does not wait for a terminal */
    assert_int_equal(r.code, 3);
}

/* A process that hangs is killed, with all its children. */
static void silence(void **state)
{
    (void)state;
    char text[500];
    const struct fresh_result r = run_shell("echo $$ >&1; sleep 1000 & echo working >&2; wait", 0.3);
    assert_int_equal(r.end, FRESH_SILENT);
    assert_true(r.elapsed_s < 100);
    assert_non_null(strstr(fresh_describe(&r, text, sizeof text), "wrote nothing for too long"));
    const pid_t group = (pid_t)atoi(text_of(out));
    assert_true(group > 1);
    for (int i = 0; i < 200 && kill(-group, 0) == 0; i++) /* until init has reaped them */
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    assert_int_equal(kill(-group, 0), -1);
    assert_int_equal(errno, ESRCH);
}

/* A process that writes may run longer than the limit of silence. */
static void slow_but_not_silent(void **state)
{
    (void)state;
    const struct fresh_result r = run_shell("for i in 1 2 3 4 5 6; do echo $i; sleep 0.2; done", 1.0);
    assert_int_equal(r.end, FRESH_EXITED);
    assert_int_equal(r.code, 0);
}

/* A process that never stops writing is killed by the limit of time or of output. */
static void writes_without_end(void **state)
{
    (void)state;
    char text[500], shell[] = "/bin/sh", dash_c[] = "-c", slow[] = "while :; do echo word; sleep 0.05; done",
                    fast[] = "echo $$ >&2; yes words", quick[] = "head -c 300000 /dev/zero >&2";
    char *argv[] = {shell, dash_c, slow, NULL};
    struct fresh_request request = {
        .argv = argv, .out_path = out, .err_path = err, .silence_limit_s = 100, .wall_limit_s = 0.5};
    struct fresh_result r;
    fresh_run(&request, &r);
    assert_int_equal(r.end, FRESH_TOO_LONG);
    assert_true(r.elapsed_s >= 0.5 && r.elapsed_s < 60);
    assert_string_equal(fresh_describe(&r, text, sizeof text), "took longer than 0.5 s, the limit, and was killed");
    argv[2] = fast;
    request.wall_limit_s = 0;
    request.output_limit_mb = 0.25;
    fresh_run(&request, &r);
    assert_int_equal(r.end, FRESH_TOO_MUCH);
    assert_non_null(strstr(fresh_describe(&r, text, sizeof text), "wrote more than 0.25 MB, the limit"));
    const pid_t group = (pid_t)atoi(text_of(err));
    assert_true(group > 1);
    for (int i = 0; i < 200 && kill(-group, 0) == 0; i++) /* until init has reaped them */
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    assert_int_equal(kill(-group, 0), -1);
    argv[2] = quick; /* ends before the first check */
    fresh_run(&request, &r);
    assert_int_equal(r.end, FRESH_TOO_MUCH);
    request.output_limit_mb = 0; /* the default limit is much larger */
    fresh_run(&request, &r);
    assert_int_equal(r.end, FRESH_EXITED);
}

static void not_a_program(void **state)
{
    (void)state;
    char path[64], text[200], *argv[] = {path, NULL};
    const struct fresh_request request = {.argv = argv, .out_path = out, .err_path = err, .silence_limit_s = 5};
    struct fresh_result r;
    snprintf(path, sizeof path, "%s/absent", folder);
    fresh_run(&request, &r);
    assert_int_equal(r.end, FRESH_NOT_STARTED);
    assert_string_equal(fresh_describe(&r, text, sizeof text), "cannot be started: No such file or directory");
}

/* ---- the lock ---- */

static bool never(void) { return false; }
static bool at_once(void) { return true; }

static void one_holder(void **state)
{
    (void)state;
    struct device_hold lock, other;
    int ready[2], byte = 0;
    setenv("FABENCH_LOCK_DIR", folder, 1);
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(device_lock("0000:01:00.0", never, &lock), EXIT_OK);
    const pid_t child = fork(); /* flock belongs to the open file, so another process opens its own */
    if (child == 0) {
        log_set_quiet(true);
        if (!freopen("/dev/null", "w", stderr))
            _exit(9);
        close(lock.files[0]);
        const int refused = device_lock("0000:01:00.0", at_once, &other); /* held: asked to stop, it stops */
        const int another = device_lock("0000:02:00.0", never, &other);   /* another device is free */
        if (write(ready[1], &byte, 1) != 1)
            _exit(9);
        const int waited = device_lock("0000:01:00.0", never, &other);
        _exit(refused == EXIT_INTERRUPTED && another == EXIT_OK && waited == EXIT_OK ? 0 : 1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
    device_unlock(&lock);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    close(ready[0]);
    close(ready[1]);
}

/* The immediate result of device_lock in another process, because flock belongs to the open file. */
static int code_elsewhere(const char *folders)
{
    const pid_t child = fork();
    if (child == 0) {
        struct device_hold hold;
        log_set_quiet(true);
        if (!freopen("/dev/null", "w", stderr) || setenv("FABENCH_LOCK_DIR", folders, 1) != 0)
            _exit(99);
        _exit(device_lock("0000:03:00.0", at_once, &hold));
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void two_folders(void **state)
{
    (void)state;
    char second[100], both[200], same[200], half[200];
    struct device_hold hold;
    snprintf(second, sizeof second, "%s/second", folder);
    snprintf(both, sizeof both, "%s:%s", folder, second);
    snprintf(same, sizeof same, "%s:%s/.", folder, folder);
    snprintf(half, sizeof half, "/no/such/folder:%s", second);
    assert_int_equal(mkdir(second, 0700), 0);
    const struct {
        const char *mine, *theirs;
        int code;
    } cases[] = {{both, folder, EXIT_INTERRUPTED}, {both, second, EXIT_INTERRUPTED}, {folder, both, EXIT_INTERRUPTED},
                 {second, both, EXIT_INTERRUPTED}, {folder, second, EXIT_OK},        {half, both, EXIT_INTERRUPTED},
                 {same, folder, EXIT_INTERRUPTED}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        setenv("FABENCH_LOCK_DIR", cases[i].mine, 1);
        assert_int_equal(device_lock("0000:03:00.0", at_once, &hold), EXIT_OK);
        assert_int_equal(code_elsewhere(cases[i].theirs), cases[i].code);
        device_unlock(&hold);
        assert_int_equal(code_elsewhere(cases[i].theirs), EXIT_OK);
    }
}

static void no_folder(void **state)
{
    (void)state;
    struct device_hold lock;
    setenv("FABENCH_LOCK_DIR", "/no/such/folder", 1);
    assert_int_equal(device_lock("cpu", never, &lock), EXIT_IO);
}

static int enter(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(out, sizeof out, "%s/out", folder);
    snprintf(err, sizeof err, "%s/err", folder);
    return 0;
}

static int leave(void **state)
{
    (void)state;
    char path[100];
    static const char *const names[] = {"out",
                                        "err",
                                        "fabench-0000-01-00.0.lock",
                                        "fabench-0000-02-00.0.lock",
                                        "fabench-0000-03-00.0.lock",
                                        "second/fabench-0000-03-00.0.lock"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/second", folder);
    return rmdir(path) == 0 ? rmdir(folder) : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_and_words),      cmocka_unit_test(silence),
        cmocka_unit_test(slow_but_not_silent), cmocka_unit_test(not_a_program),
        cmocka_unit_test(one_holder),          cmocka_unit_test(two_folders),
        cmocka_unit_test(no_folder),           cmocka_unit_test(writes_without_end),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
