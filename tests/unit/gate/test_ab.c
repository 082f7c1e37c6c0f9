/* `fabench ab` (cmd/gate/gate.h), with tests/fake/fake_fabench.c as both programs: checked runs, pairs
 * in their order, verdicts and exit codes. Nothing is measured. */
#include "tests/unit/unit_help.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cmd/base/log.h"
#include "cmd/device/device_lock.h"
#include "cmd/gate/ab_report.h"
#include "cmd/gate/fresh_process.h"
#include "cmd/gate/gate.h"
#include "cmd/gate/verdicts.h"
#include "cmd/options/options.h"

static int code;
static char said[16384], verdicts[16384], log_old[4096], log_new[4096];

/* Text of a file of the folder; "" where there is none. */
static void take(const char *name, char *text, size_t size)
{
    text[0] = 0;
    if (access(help_path(name), F_OK) == 0)
        snprintf(text, size, "%s", help_read(help_path(name)));
}

static const char *pairs = "2,3";

/* ab OLD NEW --device cpu --pairs of two fake programs with these settings, and one more argument. */
static void ab(const char *old_settings, const char *new_settings, const char *more)
{
    char old[160], new[160], runs[160];
    snprintf(old, sizeof old, "%s", help_path("old"));
    snprintf(new, sizeof new, "%s", help_path("new"));
    snprintf(runs, sizeof runs, "%s", help_path("runs"));
    char *words[] = {"fabench",
                     "ab",
                     old,
                     new,
                     "--device",
                     "cpu",
                     "--pairs",
                     (char *)(uintptr_t)pairs,
                     "--order-seed",
                     "1",
                     "--out",
                     runs,
                     (char *)(uintptr_t)more};
    struct options o;
    bool done = false;
    help_write("old.conf", old_settings);
    help_write("new.conf", new_settings);
    remove(help_path("old.log"));
    remove(help_path("new.log"));
    assert_int_equal(options_parse((int)(sizeof words / sizeof *words) - (more ? 0 : 1), words, &o, &done), EXIT_OK);
    help_listen();
    code = ab_run(&o);
    snprintf(said, sizeof said, "%s", help_said());
    options_free(&o);
    take("runs/verdicts.csv", verdicts, sizeof verdicts);
    take("old.log", log_old, sizeof log_old);
    take("new.log", log_new, sizeof log_new);
}

static int count(const char *text, const char *words)
{
    int n = 0;
    for (; (text = strstr(text, words)) != NULL; text += strlen(words))
        n++;
    return n;
}

static void the_same_twice(void **state)
{
    (void)state;
    ab("", "", NULL);
    assert_int_equal(code, EXIT_OK);
    assert_has(said, "PASS: all 3 pass");
    assert_has(said, "naive, in both");
    assert_int_equal(count(verdicts, "\npass,"), 3);
    assert_int_equal(count(log_old, "\n"), 3); /* one checked process and two of pairs */
    assert_int_equal(count(log_new, "\n"), 3);
    assert_int_equal(count(log_old, "--check=full"), 1);
    assert_int_equal(count(log_old, "--check=off"), 2);
    assert_int_equal(count(log_old, "--preset=quick"), 3); /* no preset on the command line */
    assert_int_equal(count(log_old, "--points="), 0);      /* all points are undecided */
    assert_int_equal(count(said, "pair  "), 2);            /* a line for each */
    assert_has(said, "--order-seed 1");
    uint64_t state_of_order = 1; /* two of each, in the order that is drawn from the seed */
    int order[4];
    decide_draw_order(&state_of_order, 2, order);
    for (int i = 0; i < 4; i++) {
        char name[40];
        snprintf(name, sizeof name, "runs/%02d-%s.jsonl", 3 + i, order[i] ? "NEW" : "OLD");
        assert_int_equal(access(help_path(name), F_OK), 0);
    }
}

static void verdicts_and_codes(void **state)
{
    (void)state;
    static const struct {
        const char *old, *new, *verdict;
        int code;
        const char *words;
    } cases[] = {{"", "times=(1.0 2.4 3.0) shares=(50 33.3 30)", "REGRESS", 3, "REGRESSION: 1 slower of 3"},
                 {"", "times=(0.8 2.0 3.0) shares=(62.5 40 30)", "IMPROVE", 0, "IMPROVE"},
                 {"shares=()", "shares=() times=(1.0 2.4 3.0)", "REGRESS", 3, "REGRESSION"},
                 {"", "control_share=15 times=(1.0 2.4 3.0) shares=(50 33.3 30)", "INCONCLUSIVE", 4, "CHANGED"},
                 {"", "throttled=7", "INCONCLUSIVE", 4, "thermal slowdown"},
                 {"", "checks=(pass fail pass)", "FAIL", 1, "NEW fails its check: o is 7.5 times its bound"},
                 {"checks=(pass fail pass)", "", "FIXED", 0, "OLD fails its check, NEW passes"},
                 {"", "statuses=(ok unsupported ok)", "LOST", 3, "unsupported on purpose"},
                 {"statuses=(ok unsupported ok)", "", "NEW", 0, "NEW"},
                 {"", "statuses=(ok error ok)", "ERROR", 6, "error on purpose"},
                 {"impl=fused_ancient", "impl=fused_modern", "pass", 0, "all 3 pass"},
                 {"", "control=", "pass", 0, "gemm"}};
    pairs = "2,12"; /* a regression of one of three takes ten */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[40];
        ab(cases[i].old, cases[i].new, NULL);
        if (code != cases[i].code)
            fail_msg("case %zu: exit code %d, not %d: %s", i, code, cases[i].code, said);
        snprintf(line, sizeof line, "\n%s,", cases[i].verdict);
        assert_has(verdicts, line);
        assert_has(said, cases[i].words);
    }
    pairs = "2,3";
    ab(cases[0].old, cases[0].new, NULL);
    assert_int_equal(code, EXIT_INCONCLUSIVE);
    assert_has(said, "3 pairs are too few to call one of 3 slower or faster");
    assert_has(said, "it takes 8");
}

/* Pairs after the minimum have only the undecided points. */
static void more_pairs_of_open_points(void **state)
{
    (void)state;
    ab("shares=()", "shares=() times=(1.0 2.1 3.0) shifts=(0 0.6 0)", NULL);
    assert_int_equal(code, EXIT_INCONCLUSIVE);
    assert_int_equal(count(log_new, "--check=off"), 3);
    assert_int_equal(count(log_new, "--points=1 "), 1);
    ab("shares=()", "shares=() times=(1.0 2.1 3.0) shifts=(0 0.6 0)", "--soft=4");
    assert_int_equal(code, EXIT_OK);
    assert_has(said, "replaced 4");
}

static void programs_that_cannot_be_compared(void **state)
{
    (void)state;
    static const struct {
        const char *old, *new;
        int code;
        const char *words;
    } cases[] = {
        {"", "method=2", 5, "timing method '2', the first with '1': they cannot be compared"},
        {"", "device=\"Another GPU\"", 5, "device 'Another GPU', the first with 'Fake GPU'"},
        {"", "schema=999", 5, "wrote no record that this program reads"},
        {"", "always_instead=\"echo no record\"", 5, "wrote no record that this program reads"},
        {"", "run_instead=\"head -c 300 $(dirname $0)/old.conf\"", 5, "wrote no record"},
        {"", "run=\"echo fabench: no device here >&2; exit 6\"", 6, "process 3 ended with code 6: no device here"},
        {"", "run=\"kill -SEGV $$\"", 6, "signal 11"},
        {"always_instead=\"echo fabench: --points: no such option >&2; exit 2\"", "", 5,
         "refuses these options: --points: no such option"},
        {"always_instead=\"exit 2\"", "always_instead=\"exit 2\"", 2, "refuses these options"},
        {"statuses=(unsupported unsupported unsupported)", "statuses=(unsupported unsupported unsupported)", 6,
         "ab: neither OLD nor NEW runs any of this: unsupported on purpose"},
        {"", "version=\"something else\"", 2, "is no fabench program: --version answers something else"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ab(cases[i].old, cases[i].new, NULL);
        if (code != cases[i].code)
            fail_msg("case %zu: exit code %d, not %d: %s", i, code, cases[i].code, said);
        assert_has(said, cases[i].words);
    }
}

static void verdicts_of_checked_runs(void **state)
{
    (void)state;
    static const struct {
        enum ab_outcome old, new;
        int verdict;
    } cases[] = {{OUTCOME_PASS, OUTCOME_PASS, VERDICT_PASS},
                 {OUTCOME_FAIL, OUTCOME_PASS, VERDICT_FIXED},
                 {OUTCOME_ERROR, OUTCOME_PASS, VERDICT_FIXED},
                 {OUTCOME_REFUSED, OUTCOME_PASS, VERDICT_NEW},
                 {OUTCOME_NONE, OUTCOME_PASS, VERDICT_NEW},
                 {OUTCOME_PASS, OUTCOME_FAIL, VERDICT_FAIL},
                 {OUTCOME_FAIL, OUTCOME_FAIL, VERDICT_FAIL},
                 {OUTCOME_PASS, OUTCOME_ERROR, VERDICT_ERROR},
                 {OUTCOME_REFUSED, OUTCOME_ERROR, VERDICT_ERROR},
                 {OUTCOME_PASS, OUTCOME_REFUSED, VERDICT_LOST},
                 {OUTCOME_FAIL, OUTCOME_NONE, VERDICT_LOST},
                 {OUTCOME_REFUSED, OUTCOME_REFUSED, -1},
                 {OUTCOME_NONE, OUTCOME_REFUSED, -1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct ab_config c = {.outcome = {cases[i].old, cases[i].new}};
        assert_int_equal(ab_untimed_verdict(&c), cases[i].verdict);
    }
}

static int copy_fake_programs(void **state)
{
    char command[600];
    if (help_make_folder(state) != 0)
        return -1;
    snprintf(command, sizeof command, "cp '%s' '%s/old' && cp '%s' '%s/new'", FAKE_FABENCH, help_folder, FAKE_FABENCH,
             help_folder);
    setenv("FABENCH_LOCK_DIR", help_folder, 1);
    unsetenv("GITHUB_ACTIONS");
    return system(command);
}

static int ab_tests(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_twice), cmocka_unit_test(verdicts_and_codes),
                                       cmocka_unit_test(more_pairs_of_open_points),
                                       cmocka_unit_test(programs_that_cannot_be_compared),
                                       cmocka_unit_test(verdicts_of_checked_runs)};
    return cmocka_run_group_tests(tests, copy_fake_programs, help_remove_folder);
}

/* Fresh processes (cmd/gate/fresh_process.h) and the device's lock (cmd/device/device_lock.h), with the shell as the
 * program. */

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

static int fresh_process_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_and_words),      cmocka_unit_test(silence),
        cmocka_unit_test(slow_but_not_silent), cmocka_unit_test(not_a_program),
        cmocka_unit_test(one_holder),          cmocka_unit_test(two_folders),
        cmocka_unit_test(no_folder),           cmocka_unit_test(writes_without_end),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}

int main(void) { return ab_tests() + fresh_process_tests(); }
