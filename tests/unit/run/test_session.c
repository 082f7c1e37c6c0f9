/* Parts of a run: session, command of a row, header, what the supervisor reads of a worker. */
#include "tests/unit/unit_help.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/base/clock.h"
#include "cmd/base/log.h"
#include "cmd/options/options.h"
#include "cmd/record/record.h"
#include "cmd/run/progress.h"
#include "cmd/run/row.h"
#include "cmd/run/session.h"
#include "cmd/run/worker.h"
#include "tests/fake/fake_nvml.h"

/* ---- session ---- */

/* What a session allocates on the CPU. */

/* Bytes of address space of this process. */
static double address_space(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld", &pages), 1);
    fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* How much the address space grows while a session is open. */
static double bytes_of_session(const char *l2)
{
    char *words[] = {"fabench", "--device", "cpu", "--seqlen", "64", "--l2", (char *)(uintptr_t)l2, "--out", "none"};
    struct options options;
    struct session session;
    bool done = false;
    assert_int_equal(options_parse(sizeof words / sizeof *words, words, &options, &done), EXIT_OK);
    const double before = address_space();
    assert_int_equal(session_open(&options, "run", false, &session), EXIT_OK);
    const double bytes = address_space() - before;
    session_close(&session);
    options_free(&options);
    return bytes;
}

/* The buffer that flushes the caches has at least 64 MiB. */
static void only_a_cold_cache_needs_a_buffer_to_flush_it(void **state)
{
    const double flush_bytes = 64 << 20;
    (void)state;
    bytes_of_session("hot"); /* loads the libraries */
    assert_true(bytes_of_session("cold") >= flush_bytes);
    assert_true(bytes_of_session("hot") < flush_bytes / 2);
    assert_true(bytes_of_session("cold") >= flush_bytes);
}

static int session_tests(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_a_cold_cache_needs_a_buffer_to_flush_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* ---- row ---- */

/* The command in a row that failed its check. */

/* One forward problem of these options, and a row of it that failed: by `rule` in O, with this ratio to naive's
 * error. */
static char *repro_of(const char *command, const char *impl, const char *rule, double err_ratio)
{
    char *words[] = {"fabench", (char *)(uintptr_t)command, "--mode", "fwd", "--causal", "--dtype", "bf16", "--d",
                     "64"};
    const bool is_verify = strcmp(command, "verify") == 0;
    struct options options;
    struct plan plan;
    struct run_facts facts = {.run_id = "run"};
    struct record_row row;
    struct record_tensor tensors[2] = {{.name = "o", .used = 1.5, .err_ratio = err_ratio},
                                       {.name = "lse", .used = 0.5, .err_ratio = NAN, .rule = "lse"}};
    bool done = false;
    snprintf(tensors[0].rule, sizeof tensors[0].rule, "%s", rule);
    assert_int_equal(options_parse(sizeof words / sizeof *words, words, &options, &done), EXIT_OK);
    assert_int_equal(is_verify ? plan_make_verify(&options, ATTN_CUDA, &plan) : plan_make(&options, ATTN_CUDA, &plan),
                     EXIT_OK);
    row_begin(&row, &options, &facts, &plan.items[0], impl, impl);
    row_check(&row, tensors, 2, CHECK_FULL, NAN, NAN);
    assert_int_equal(row.check, CHECKED_FAIL);
    row_failure_repro(&row, &options, &plan.items[0]);
    char *repro = xstrdup(row.repro);
    record_row_free(&row);
    plan_free(&plan);
    options_free(&options);
    return repro;
}

static void assert_begins(char *text, const char *words)
{
    if (strncmp(text, words, strlen(words)))
        fail_msg("'%s' does not begin with '%s'", text, words);
    free(text);
}

static void a_row_that_was_compared_with_naive_brings_it_along(void **state)
{
    (void)state;
    assert_begins(repro_of("sweep", "mine", "naive", 3), "fabench --impl mine,naive --mode fwd --dtype bf16 ");
    assert_begins(repro_of("sweep", "mine", "rms", 3), "fabench --impl mine,naive --mode fwd ");
    assert_begins(repro_of("sweep", "mine", "rms", NAN), "fabench --impl mine --mode fwd "); /* it did not run */
    assert_begins(repro_of("sweep", "naive", "rms", NAN), "fabench --impl naive --mode fwd ");
    /* verify's own command, which judges that problem alone, by its key */
    assert_begins(repro_of("verify", "mine", "naive", 3),
                  "fabench verify --mode fwd --causal --dtype bf16 --d 64 --impl mine,naive --only fwd-causal-d-64-");
}

/* A sweep does not launch twice to compare the bits. */
static void different_bits_are_found_by_verify(void **state)
{
    (void)state;
    assert_begins(repro_of("verify", "mine", "repeat", NAN),
                  "fabench verify --mode fwd --causal --dtype bf16 --d 64 --impl mine");
    assert_begins(repro_of("verify", "mine", "repeat", 1),
                  "fabench verify --mode fwd --causal --dtype bf16 --d 64 --impl mine,naive");
}

static int row_tests(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_row_that_was_compared_with_naive_brings_it_along),
                                       cmocka_unit_test(different_bits_are_found_by_verify)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* ---- run_header ---- */

/* The header of a record with a made-up NVML: identity, how the telemetry comes about, and why the rest is empty; and
 * where two headers differ, which is what --resume and a worker after another one go by. */

/* The header of a run on the CPU with this NVML identity; the caller owns it. */
static json_t *header_with(const struct nvml_identity *nvml, const char *problem, const char *clocks)
{
    char *words[] = {"fabench", "--device", "cpu", "--seqlen", "64", "--sustain-s", "3"};
    struct options o;
    struct session s;
    bool done = false;
    assert_int_equal(options_parse(sizeof words / sizeof *words, words, &o, &done), EXIT_OK);
    assert_int_equal(session_open(&o, "test", false, &s), EXIT_OK);
    const struct header_input in = {.options = &o,
                                    .plan = &s.plan,
                                    .facts = &s.facts,
                                    .backend = &s.backend,
                                    .nvml = nvml,
                                    .nvml_problem = problem,
                                    .clocks = clocks,
                                    .slots = s.slots,
                                    .slot_count = s.slot_count,
                                    .copy_gbps = NAN};
    json_t *header = header_make(&in);
    plan_free(&s.plan); /* not session_close: it would close the NVML of the test */
    impls_free(&s.impls);
    s.backend.ops->close(&s.backend);
    options_free(&o);
    return header;
}

static const json_t *at(const json_t *header, const char *object, const char *key)
{
    return json_object_get(json_object_get(header, object), key);
}

static void assert_text(const json_t *header, const char *object, const char *key, const char *wanted)
{
    const char *text = json_string_value(at(header, object, key));
    assert_non_null(text);
    assert_string_equal(text, wanted);
}

static const char *absent(const json_t *header, const char *field)
{
    return json_string_value(json_object_get(at(header, "telemetry", "absent"), field));
}

static void identity_and_sources(void **state)
{
    (void)state;
    char why[128];
    assert_int_equal(fake_nvml_use(FAKE_NVML), 0);
    fake->status[FAKE_ECC] = 3;
    fake->status[FAKE_ENERGY] = 4;
    fake->fields[1].status = 3;
    assert_true(nvml_open(FAKE_BUS_ID, why, sizeof why));
    const struct nvml_identity id = nvml_identify();
    json_t *header = header_with(&id, NULL, "unlocked");
    assert_text(header, "device", "vbios", "00.00");
    assert_text(header, "device", "uuid", "GPU-fake");
    assert_true(json_number_value(at(header, "device", "power_limit_w")) == 600);
    assert_true(json_number_value(at(header, "device", "default_power_limit_w")) == 700);
    assert_true(json_number_value(at(header, "device", "application_sm_clock_mhz")) == 1500);
    assert_true(json_is_true(at(header, "device", "persistence")));
    assert_true(json_is_false(at(header, "device", "mig")));
    assert_null(at(header, "device", "ecc"));
    assert_int_equal(json_integer_value(at(header, "device", "other_processes")), 0);
    assert_text(header, "policy", "clocks", "unlocked");
    assert_text(header, "policy", "options", "--seqlen 64 --device cpu --sustain-s 3");
    assert_true(json_number_value(at(header, "policy", "sustain_s")) == 3);
    assert_text(header, "telemetry", "power_capped_pct", "counter");
    assert_text(header, "telemetry", "throttled_pct", "sampled");
    assert_text(header, "telemetry", "energy_integral_j", "instant");
    assert_null(at(header, "telemetry", "energy_counter_j"));
    assert_string_equal(absent(header, "ecc"), "not supported");
    assert_string_equal(absent(header, "energy_counter_j"), "no permission");
    assert_int_equal(json_object_size(at(header, "telemetry", "absent")), 2);
    char *line = header_line(header);
    assert_non_null(strstr(line, ", 600 W, "));
    assert_non_null(strstr(line, ", clocks unlocked, no other process"));
    free(line);
    json_decref(header);
    nvml_close();
}

static void nothing_there(void **state)
{
    (void)state;
    const struct nvml_identity unknown = nvml_identity_unknown();
    json_t *header = header_with(&unknown, "libnvidia-ml.so.1 not found", "unknown");
    static const char *const empty[] = {"vbios", "uuid",        "power_limit_w",  "ecc",
                                        "mig",   "persistence", "other_processes"};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++)
        assert_null(at(header, "device", empty[i]));
    assert_string_equal(absent(header, "all"), "libnvidia-ml.so.1 not found");
    char *line = header_line(header);
    assert_null(strstr(line, "clocks"));
    free(line);
    json_decref(header);
}

static void differences(void **state)
{
    (void)state;
    static const char *const paths[] = {"device.name", "device.power_limit_w", "policy.members"};
    char was[40], is[40];
    json_t *a = json_pack("{s:{s:s, s:f, s:s}, s:{s:[s, s]}}", "device", "name", "One", "power_limit_w", 700.0, "uuid",
                          "GPU-1", "policy", "members", "naive", "gemm");
    json_t *b = json_deep_copy(a);
    assert_non_null(a);
    json_object_set_new(json_object_get(b, "device"), "uuid", json_string("GPU-2")); /* not asked about */
    assert_null(header_difference(a, b, paths, 3, was, is, sizeof was));
    json_object_set_new(json_object_get(b, "device"), "name", json_string("Two"));
    assert_string_equal(header_difference(a, b, paths, 3, was, is, sizeof was), "device.name");
    assert_string_equal(was, "\"One\"");
    assert_string_equal(is, "\"Two\"");
    json_object_set_new(json_object_get(b, "device"), "name", json_string("One"));
    json_object_del(json_object_get(b, "device"), "power_limit_w");
    assert_string_equal(header_difference(a, b, paths, 3, was, is, sizeof was), "device.power_limit_w");
    assert_string_equal(is, "absent");
    json_object_del(json_object_get(a, "device"), "power_limit_w");
    assert_null(header_difference(a, b, paths, 3, was, is, sizeof was));
    json_array_append_new(json_object_get(json_object_get(b, "policy"), "members"), json_string("cudnn"));
    assert_string_equal(header_difference(a, b, paths, 3, was, is, sizeof was), "policy.members");
    json_decref(a);
    json_decref(b);
}

static int run_header_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(identity_and_sources),
        cmocka_unit_test(nothing_there),
        cmocka_unit_test(differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* ---- progress ---- */

/* What the supervisor reads of a worker (cmd/run/progress.h): whole states, also when the worker dies while writing. */

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

static int progress_tests(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(never_torn), cmocka_unit_test(writer_killed),
                                       cmocka_unit_test(cut_write)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) { return session_tests() + row_tests() + run_header_tests() + progress_tests(); }
