/* What the supervisor reads of a worker (cmd/run/progress.h): whole states, also when the worker dies while writing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/base/clock.h"
#include "cmd/run/progress.h"

enum { LETTERS = sizeof(((struct progress_state *)0)->impl) - 1 };

/* A state whose every byte follows from n. */
static struct progress_state make_state(int n)
{
    struct progress_state s = {.item = n, .slot = n % 7, .stage = n % 5, .since_ms = 0.5 * n};
    memset(s.impl, 'a' + n % 26, LETTERS);
    return s;
}

static bool is_whole(const struct progress_state *s)
{
    const struct progress_state wanted = make_state(s->item);
    return s->slot == wanted.slot && s->stage == wanted.stage && !(s->since_ms < wanted.since_ms) &&
           !(s->since_ms > wanted.since_ms) && !strcmp(s->impl, wanted.impl);
}

static pid_t start_writer(struct progress *p)
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failing test leaves no process behind */
    for (int n = 0; pid == 0; n = (n + 1) % 1000000) {
        const struct progress_state s = make_state(n);
        progress_write(p, &s);
    }
    return pid;
}

static void kill_writer(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static struct progress *open_at_zero(void)
{
    struct progress *p = progress_open();
    struct progress_state s;
    assert_non_null(p);
    assert_true(progress_read(p, &s));
    assert_int_equal(s.item, -1);
    assert_int_equal(s.slot, -1);
    s = make_state(0);
    progress_reset(p, &s, false);
    return p;
}

/* A writer at full speed; what is read is whole, and moves on. */
static void never_torn(void **state)
{
    (void)state;
    struct progress *p = open_at_zero();
    const pid_t writer = start_writer(p);
    const double started_ms = clock_ms();
    int changes = 0, previous = -1;
    long reads = 0, torn = 0;
    while ((clock_ms() - started_ms < 300 || changes < 100) && clock_ms() - started_ms < 30000) {
        struct progress_state s;
        for (int i = 0; i < 100; i++) {
            if (!progress_read(p, &s))
                continue;
            reads++;
            torn += !is_whole(&s);
            changes += s.item != previous;
            previous = s.item;
        }
    }
    kill_writer(writer);
    assert_int_equal(torn, 0);
    assert_true(changes >= 100);
    assert_true(reads >= changes);
    progress_close(p);
}

/* Killed anywhere, most of the time in the middle of writing: the last whole state is there, and the next worker's. */
static void writer_killed(void **state)
{
    (void)state;
    struct progress *p = open_at_zero();
    for (int i = 0; i < 50; i++) {
        struct progress_state s;
        const pid_t writer = start_writer(p);
        for (int n = 0; n < 1 + 37 * i; n++)
            (void)progress_read(p, &s);
        kill_writer(writer);
        assert_true(progress_read(p, &s));
        assert_true(is_whole(&s));
        const struct progress_state first = make_state(1000 + i);
        progress_reset(p, &first, i % 2);
        assert_true(progress_read(p, &s));
        assert_memory_equal(&s, &first, sizeof s);
        assert_int_equal(atomic_load(&p->stop), i % 2);
    }
    progress_close(p);
}

/* The same, deterministic: a write that is interrupted after its first words. */
static void cut_write(void **state)
{
    (void)state;
    struct progress *p = open_at_zero();
    struct progress_state s = make_state(1), was;
    progress_write(p, &s);
    struct progress_copy *other = &p->copies[(atomic_load(&p->written) + 1) % 2];
    atomic_fetch_add(&other->sequence, 1);
    atomic_store(&other->words[0], UINT64_MAX);
    assert_true(progress_read(p, &s));
    assert_int_equal(s.item, 1);
    assert_true(is_whole(&s));

    /* The copy that is read is being written: no state at all rather than a torn one. */
    struct progress_copy *current = &p->copies[atomic_load(&p->written) % 2];
    atomic_fetch_add(&current->sequence, 1);
    was = s;
    assert_false(progress_read(p, &s));
    assert_memory_equal(&s, &was, sizeof s);

    s = make_state(2);
    progress_reset(p, &s, false);
    for (int n = 3; n < 8; n++) { /* both copies work again */
        s = make_state(n);
        progress_write(p, &s);
        assert_true(progress_read(p, &was));
        assert_memory_equal(&s, &was, sizeof s);
    }
    progress_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(never_torn), cmocka_unit_test(writer_killed),
                                       cmocka_unit_test(cut_write)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
