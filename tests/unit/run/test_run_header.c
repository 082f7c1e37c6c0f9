/* The header of a record with a made-up NVML: identity, how the telemetry comes about, and why the rest is empty; and
 * where two headers differ, which is what --resume and a worker after another one go by. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "cmd/record/header.h"
#include "cmd/run/run_header.h"
#include "cmd/base/log.h"
#include "cmd/run/worker.h"
#include "cmd/options/options_parse.h"
#include "tests/fake/fake_nvml_use.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(identity_and_sources),
        cmocka_unit_test(nothing_there),
        cmocka_unit_test(differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
