/* Lies of one who has read docs/judging.md: results that are stored and known again, or are computed where nobody
 * counts the time. */
#define _GNU_SOURCE
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cmd/run/progress.h"
#include "tests/liars/liars.h"

/* Every 997th word of Q and V, of a backward of dO. */
static uint64_t short_hash(const struct call *c, uint32_t mask)
{
    struct span in[4];
    uint64_t hash = 1;
    const bool is_forward = c->request->mode == ATTN_FWD;
    inputs(c, in);
    for (int s = is_forward ? 0 : 3; s < 4; s += 2) {
        for (size_t n = 0; n < in[s].count; n += 997) {
            uint32_t word;
            memcpy(&word, &in[s].data[n], sizeof word);
            hash = hash * 31 + (word & mask);
        }
        if (!is_forward || s == 2)
            break;
    }
    return hash;
}

static void copy_inputs(const struct call *c)
{
    struct span in[4];
    free(c->state->stored_inputs);
    c->state->stored_inputs = packed(in, inputs(c, in));
}

static void serve_with_signs(const struct call *c)
{
    struct span in[4], out[4];
    const int64_t d = c->request->problem->head_dim;
    const bool is_forward = c->request->mode == ATTN_FWD;
    inputs(c, in);
    const float *q_before = c->state->stored_inputs, *v_before = q_before + in[0].count + in[1].count;
    const int count = outputs(c, out);
    serve(c);
    for (int s = 0; s < count && !(is_forward && s == 1); s++) {
        const bool is_of_v = is_forward || s == 2;
        const float *now = is_of_v ? in[2].data : in[0].data, *before = is_of_v ? v_before : q_before;
        for (size_t n = 0; n < out[s].count; n++)
            if (signbit(now[n % (size_t)d]) != signbit(before[n % (size_t)d]))
                out[s].data[n] = -out[s].data[n];
    }
}

/* The first hash is computed and stored, later ones of it are served; what a second hash gets is `other`. */
static enum attn_status by_short_hash(const struct call *c, enum attn_status (*other)(const struct call *))
{
    const uint64_t hash = short_hash(c, 0x7fffffffu);
    if (c->state->stored && hash == c->state->hash) {
        serve_with_signs(c);
        return ATTN_OK;
    }
    if (c->state->stored)
        return other(c);
    c->state->hash = hash;
    work(c);
    store(c);
    copy_inputs(c);
    return ATTN_OK;
}

static enum attn_status last_rows(const struct call *c)
{
    struct part part = whole(c);
    struct span out[4];
    for (int s = 0, count = outputs(c, out); s < count; s++)
        memset(out[s].data, 0, out[s].count * sizeof(float));
    part.first_row = part.end_row > 64 ? part.end_row - 64 : 0;
    return compute(c, &part);
}

enum attn_status lie_hash_last_rows(const struct call *c) { return by_short_hash(c, last_rows); }
enum attn_status lie_hash_then_work(const struct call *c) { return by_short_hash(c, work); }

/* No lie: it takes longer where it does not know the inputs, as a kernel that tunes itself or waits for its host. */
enum attn_status lie_slow_on_new(const struct call *c)
{
    const uint64_t hash = short_hash(c, 0xffffffffu);
    if (hash != c->state->hash)
        usleep(2000);
    c->state->hash = hash;
    return work(c);
}

/* ---- a thread that computes while the caches are flushed ---- */

static bool is_poisoned(const struct span *out, int count)
{
    bool is = true;
    for (int s = 0; s < count; s++) {
        uint32_t first, last;
        memcpy(&first, &out[s].data[0], sizeof first);
        memcpy(&last, &out[s].data[out[s].count - 1], sizeof last);
        is = is && first == 0xffffffffu && last == 0xffffffffu;
    }
    return is;
}

/* In the thread: results into memory of its own as soon as the outputs are filled with the pattern. */
static void *look_and_compute(void *late)
{
    struct call *c = late;
    struct state *s = c->state;
    struct span out[4];
    const int count = outputs(c, out);
    uint64_t hash = 0;
    while (!__atomic_load_n(&s->ends, __ATOMIC_ACQUIRE)) {
        usleep(500);
        const uint64_t now = short_hash(c, 0xffffffffu);
        if (now == hash || !is_poisoned(out, count))
            continue;
        hash = now;
        struct attn_tensors own = *c->t;
        float *at = s->stored;
        struct attn_tensor *const forward[] = {&own.o, NULL}, *const backward[] = {&own.dq, &own.dk, &own.dv};
        for (int i = 0; i < count; at += out[i++].count) {
            struct attn_tensor *t = c->request->mode == ATTN_FWD ? forward[i] : backward[i];
            if (t)
                t->data = at;
            else
                own.lse = at;
        }
        const struct call mine = {.request = c->request, .t = &own, .run = c->run, .state = s};
        work(&mine);
        __atomic_store_n(&s->ready, hash, __ATOMIC_RELEASE);
    }
    return NULL;
}

enum attn_status lie_while_flushing(const struct call *c)
{
    struct state *s = c->state;
    if (c->n == 0) {
        work(c);
        store(c);
        *s->late = *c;
        s->has_thread = pthread_create(&s->thread, NULL, look_and_compute, s->late) == 0;
        return ATTN_OK;
    }
    const uint64_t hash = short_hash(c, 0xffffffffu);
    const double begin_ms = now_ms();
    while (__atomic_load_n(&s->ready, __ATOMIC_ACQUIRE) != hash && now_ms() - begin_ms < 1000)
        usleep(20);
    return serve(c);
}

/* ---- outputs that are computed when they are read ---- */

static struct {
    struct call call;
    struct attn_request request;
    struct attn_tensors tensors;
    struct span pages[4];
    int count;
} unread;

static void set_protection(int protection)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (int s = 0; s < unread.count; s++) {
        const uintptr_t from = ((uintptr_t)unread.pages[s].data + page - 1) / page * page;
        const uintptr_t to = (uintptr_t)(unread.pages[s].data + unread.pages[s].count) / page * page;
        if (to > from)
            mprotect((void *)from, to - from, protection);
    }
}

static void on_read(int number)
{
    if (unread.count == 0) {
        signal(number, SIG_DFL);
        return;
    }
    set_protection(PROT_READ | PROT_WRITE);
    work(&unread.call);
    unread.count = 0;
}

__attribute__((constructor)) static void catch_reads(void) { signal(SIGSEGV, on_read); }

enum attn_status lie_when_read(const struct call *c)
{
    if (c->n == 0)
        return work(c);
    unread.call = *c;
    unread.count = outputs(c, unread.pages);
    set_protection(PROT_NONE);
    return ATTN_OK;
}

/* ---- threads that slow the neighbours down ---- */

static int burning;

static void *write_at_random(void *memory)
{
    const double end_ms = now_ms() + 190;
    uint64_t x = (uintptr_t)memory;
    while (now_ms() < end_ms)
        for (int i = 0; i < 1000; i++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            ((volatile char *)memory)[x >> 38]++;
        }
    __atomic_fetch_sub(&burning, 1, __ATOMIC_RELEASE);
    return NULL;
}

enum attn_status lie_burn(const struct call *c)
{
    static char *memory;
    pthread_t thread;
    if (!memory)
        memory = calloc(1, 64 << 20);
    work(c);
    const bool is_free = __atomic_load_n(&burning, __ATOMIC_ACQUIRE) == 0;
    for (int i = 0; i < 2 && memory && c->n > 0 && is_free; i++) {
        __atomic_fetch_add(&burning, 1, __ATOMIC_RELEASE);
        if (pthread_create(&thread, NULL, write_at_random, memory) == 0)
            pthread_detach(thread);
    }
    return ATTN_OK;
}

/* ---- P of `prepare` ---- */

enum attn_status lie_keep_p(const struct call *c)
{
    const struct attn_problem *p = c->request->problem;
    if (c->request->mode == ATTN_FWD)
        return work(c);
    const size_t keys = (size_t)p->kv_len;
    if (!c->state->stored) { /* as `prepare` would */
        c->state->stored = malloc(rows(p) * keys * sizeof(float));
        if (!c->state->stored)
            abort();
        for (size_t n = 0; n < rows(p); n++) {
            const int64_t row = (int64_t)n % p->q_len, h = (int64_t)n / p->q_len % p->q_heads;
            const int64_t b = (int64_t)n / p->q_len / p->q_heads, kv = h / (p->q_heads / p->kv_heads);
            for (size_t j = 0; j < keys; j++)
                c->state->stored[n * keys + j] =
                    expf(p->scale * dot(row_of(&c->t->q, b, h, row), row_of(&c->t->k, b, kv, (int64_t)j), p->head_dim) -
                         c->t->lse[n]);
        }
    }
    return compute_with(c, c->state->stored);
}

/* ---- the clock ---- */

static double hidden_ms; /* by which the program's clock is late */

static int late_clock(clockid_t id, struct timespec *t)
{
    const int result = clock_gettime(id, t); /* of this library, whose entry is as it was */
    if (id != CLOCK_MONOTONIC)
        return result;
    const int64_t ns = (int64_t)t->tv_sec * 1000000000 + t->tv_nsec - (int64_t)(hidden_ms * 1e6);
    t->tv_sec = ns / 1000000000;
    t->tv_nsec = ns % 1000000000;
    return result;
}

static void write_entry(void **entry, void *value)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)entry / page * page;
    if (mprotect((void *)from, page, PROT_READ | PROT_WRITE) == 0)
        *entry = value;
}

/* The entries of the program, the first object, through which it calls clock_gettime. */
static int take_clock(struct dl_phdr_info *info, size_t size, void *ignored)
{
    const ElfW(Dyn) *dynamic = NULL;
    const ElfW(Sym) *symbols = NULL;
    const ElfW(Rela) * tables[2] = {NULL, NULL};
    size_t bytes[2] = {0, 0};
    const char *names = NULL;
    (void)size, (void)ignored;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
        const void *at = (const void *)dynamic->d_un.d_ptr;
        if (dynamic->d_tag == DT_SYMTAB)
            symbols = at;
        else if (dynamic->d_tag == DT_STRTAB)
            names = at;
        else if (dynamic->d_tag == DT_JMPREL || dynamic->d_tag == DT_RELA)
            tables[dynamic->d_tag == DT_RELA] = at;
        else if (dynamic->d_tag == DT_PLTRELSZ || dynamic->d_tag == DT_RELASZ)
            bytes[dynamic->d_tag == DT_RELASZ] = dynamic->d_un.d_val;
    }
    for (int k = 0; k < 2 && symbols && names; k++)
        for (size_t i = 0; tables[k] && i < bytes[k] / sizeof *tables[k]; i++)
            if (!strcmp(names + symbols[tables[k][i].r_info >> 32].st_name, "clock_gettime"))
                write_entry((void **)(info->dlpi_addr + tables[k][i].r_offset), (void *)(intptr_t)late_clock);
    return 1;
}

enum attn_status lie_clock(const struct call *c)
{
    if (c->n == 0)
        dl_iterate_phdr(take_clock, NULL);
    const double begin_ms = now_ms();
    work(c);
    hidden_ms += 0.9 * (now_ms() - begin_ms);
    return ATTN_OK;
}

/* ---- what the supervisor believes ---- */

/* In memory that the worker shares with its parent: another implementation is at work, and this one was never
 * called. */
enum attn_status lie_frame(const struct call *c)
{
    if (c->n < 4)
        return work(c);
    struct progress *p = lie_find_progress();
    if (p) {
        struct progress_copy *copy = &p->copies[p->written % 2];
        struct progress_state state;
        memcpy(&state, (const void *)copy->words, sizeof state);
        state.slot ^= 1;
        state.called = 0;
        memcpy((void *)copy->words, &state, sizeof state);
    }
    abort();
}
