/* A sequence lock over two copies. */
#include "cmd/run/progress.h"

#include <string.h>

#include "cmd/base/process.h"

/* Atomics must be lock-free: a lock would stay locked when a worker dies, and does not work between processes. */
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_BOOL_LOCK_FREE == 2,
               "shared memory needs atomics without locks");

struct progress *progress_open(void)
{
    struct progress *p = process_share(sizeof *p);
    if (p)
        progress_reset(p, &(struct progress_state){.item = -1, .slot = -1}, false);
    return p;
}

void progress_close(struct progress *p) { process_unshare(p, sizeof *p); }

void progress_reset(struct progress *p, const struct progress_state *state, bool stop)
{
    for (int i = 0; i < 2; i++) /* odd when a worker died while it was writing */
        atomic_store(&p->copies[i].sequence, 0);
    progress_write(p, state);
    atomic_store(&p->stop, stop);
    atomic_store(&p->witnessed, 0);
    atomic_store(&p->is_confirmed, false);
}

void progress_write(struct progress *p, const struct progress_state *state)
{
    const unsigned next = atomic_load_explicit(&p->written, memory_order_relaxed) + 1;
    struct progress_copy *copy = &p->copies[next % 2];
    uint64_t words[PROGRESS_WORDS] = {0};
    memcpy(words, state, sizeof *state);
    const unsigned sequence = atomic_load_explicit(&copy->sequence, memory_order_relaxed);
    atomic_store_explicit(&copy->sequence, sequence + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* a reader that sees a new word also sees the odd number */
    for (int i = 0; i < PROGRESS_WORDS; i++)
        atomic_store_explicit(&copy->words[i], words[i], memory_order_relaxed);
    atomic_store_explicit(&copy->sequence, sequence + 2, memory_order_release);
    atomic_store_explicit(&p->written, next, memory_order_release);
}

static bool try_read(struct progress *p, uint64_t *words)
{
    struct progress_copy *copy = &p->copies[atomic_load_explicit(&p->written, memory_order_acquire) % 2];
    const unsigned before = atomic_load_explicit(&copy->sequence, memory_order_acquire);
    for (int i = 0; i < PROGRESS_WORDS; i++)
        words[i] = atomic_load_explicit(&copy->words[i], memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    return before % 2 == 0 && atomic_load_explicit(&copy->sequence, memory_order_relaxed) == before;
}

bool progress_read(struct progress *p, struct progress_state *state)
{
    enum { TRIES = 1000 };
    uint64_t words[PROGRESS_WORDS];
    for (int i = 0; i < TRIES; i++)
        if (try_read(p, words)) {
            memcpy(state, words, sizeof *state);
            return true;
        }
    return false;
}
