/* Telemetry with a fake NVML: each field absent in turn, a driver without the counters, a device that is lost; and the
 * arithmetic of a region on invented readings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <time.h>

#include "cmd/device/telemetry.h"
#include "tests/fake/fake_nvml.h"

static char why[128];

static int whole(void **state)
{
    (void)state;
    return fake_nvml_use(FAKE_NVML);
}

static int close_it(void **state)
{
    (void)state;
    nvml_close();
    return 0;
}

static void open_it(void) { assert_true(nvml_open(FAKE_BUS_ID, why, sizeof why)); }

/* The reason for which a field is absent, NULL when it is not. */
static const char *absent(const char *field)
{
    const struct nvml_absent *list;
    const int count = nvml_absent(&list);
    for (int i = 0; i < count; i++)
        if (!strcmp(list[i].field, field))
            return list[i].why;
    return NULL;
}

static int absent_count(void)
{
    const struct nvml_absent *list;
    return nvml_absent(&list);
}

static void everything_there(void **state)
{
    (void)state;
    fake->pids[1] = 1;
    fake->pids[2] = 2;
    fake->pid_count = 3;
    open_it();
    const struct nvml_identity id = nvml_identify();
    assert_string_equal(id.driver, "999.01");
    assert_string_equal(id.uuid, "GPU-fake");
    assert_string_equal(id.vbios, "00.00");
    assert_true(id.power_limit_w == 600 && id.default_power_limit_w == 700);
    assert_true(id.max_sm_clock_mhz == 1980 && id.application_sm_clock_mhz == 1500);
    assert_int_equal(id.ecc, 1);
    assert_int_equal(id.mig, 0);
    assert_int_equal(id.persistence, 1);
    assert_int_equal(id.other_processes, 2);
    assert_int_equal(id.pcie_width, 16);
    assert_int_equal(id.pcie_width_max, 16);
    assert_int_equal(id.ecc_uncorrected, 0);
    const struct nvml_reading r = nvml_read();
    assert_true(r.sm_clock_mhz == 1500 && r.temp_c == 60 && r.power_w == 500);
    assert_true(r.energy_j > 0 && r.power_cap_ns > 0 && r.throttle_ns == 0 && r.reasons == 0);
    assert_false(r.is_lost);
    const struct nvml_sources sources = nvml_sources();
    assert_string_equal(sources.power_capped, "counter");
    assert_string_equal(sources.throttled, "counter");
    assert_string_equal(sources.power, "instant");
    assert_string_equal(sources.energy, "counter");
    assert_int_equal(absent_count(), 0);
    nvml_close();
    assert_int_equal(fake->shutdowns, 1);
}

/* Removes one function at a time: its field is empty and has a reason, every other field is present. */
static void identity_field_by_field(void **state)
{
    (void)state;
    static const struct {
        enum fake_function function;
        const char *field;
    } fields[] = {{FAKE_DRIVER, "driver"},
                  {FAKE_VERSION, "nvml_version"},
                  {FAKE_UUID, "uuid"},
                  {FAKE_VBIOS, "vbios"},
                  {FAKE_POWER_LIMIT, "power_limit_w"},
                  {FAKE_DEFAULT_LIMIT, "default_power_limit_w"},
                  {FAKE_ECC, "ecc"},
                  {FAKE_MIG, "mig"},
                  {FAKE_PERSISTENCE, "persistence"},
                  {FAKE_MAX_CLOCK, "max_sm_clock_mhz"},
                  {FAKE_APP_CLOCK, "application_sm_clock_mhz"},
                  {FAKE_DEFAULT_APP_CLOCK, "default_application_sm_clock_mhz"},
                  {FAKE_PCIE, "pcie_width"},
                  {FAKE_PCIE_MAX, "pcie_width_max"},
                  {FAKE_ECC_ERRORS, "ecc_uncorrected"},
                  {FAKE_PROCESSES, "other_processes"}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        whole(NULL);
        fake->status[fields[i].function] = i % 2 ? 4 : 3;
        open_it();
        const struct nvml_identity id = nvml_identify();
        const int empty = !id.driver[0] + !id.nvml_version[0] + !id.uuid[0] + !id.vbios[0] + isnan(id.power_limit_w) +
                          isnan(id.default_power_limit_w) + (id.ecc < 0) + (id.mig < 0) + (id.persistence < 0) +
                          isnan(id.max_sm_clock_mhz) + isnan(id.application_sm_clock_mhz) +
                          isnan(id.default_application_sm_clock_mhz) + (id.other_processes < 0) + (id.pcie_width < 0) +
                          (id.pcie_width_max < 0) + (id.ecc_uncorrected < 0);
        assert_int_equal(empty, 1);
        assert_int_equal(absent_count(), 1);
        assert_non_null(absent(fields[i].field));
        assert_string_equal(absent(fields[i].field), i % 2 ? "no permission" : "not supported");
    }
}

static void readings_field_by_field(void **state)
{
    (void)state;
    fake->status[FAKE_CLOCK] = 3;
    open_it();
    assert_true(isnan(nvml_read().sm_clock_mhz));
    assert_string_equal(absent("sm_clock_mhz"), "not supported");

    whole(NULL);
    fake->status[FAKE_TEMPERATURE_V] = 3; /* the older function still answers */
    open_it();
    assert_true(nvml_read().temp_c == 60);
    assert_null(absent("temp_c"));
    whole(NULL);
    fake->status[FAKE_TEMPERATURE_V] = fake->status[FAKE_TEMPERATURE] = 3;
    open_it();
    assert_true(isnan(nvml_read().temp_c));
    assert_string_equal(absent("temp_c"), "not supported");

    whole(NULL);
    fake->status[FAKE_ENERGY] = 3;
    open_it();
    assert_true(isnan(nvml_read().energy_j));
    assert_null(nvml_sources().energy);
    assert_string_equal(absent("energy_counter_j"), "not supported");

    whole(NULL);
    fake->fields[4].status = 3; /* no instant power: the average; then the plain figure; then none */
    open_it();
    assert_string_equal(nvml_sources().power, "average");
    assert_true(nvml_read().power_w == 490);
    fake->fields[5].status = 3;
    open_it();
    assert_string_equal(nvml_sources().power, "usage");
    assert_true(nvml_read().power_w == 480);
    fake->status[FAKE_POWER_USAGE] = 4;
    open_it();
    assert_null(nvml_sources().power);
    assert_true(isnan(nvml_read().power_w));
    assert_string_equal(absent("energy_integral_j"), "no permission");
}

/* No counter: reasons are sampled. No reasons either: the share is empty. */
static void shares_fall_back(void **state)
{
    (void)state;
    for (int field = 1; field <= 3; field++) { /* any of the three that a throttled share is made of */
        whole(NULL);
        fake->fields[field].status = 3;
        open_it();
        assert_string_equal(nvml_sources().throttled, "sampled");
        assert_string_equal(nvml_sources().power_capped, "counter");
        assert_int_equal(absent_count(), 0);
    }
    whole(NULL);
    fake->fields[0].status = 3;
    fake->status[FAKE_REASONS] = 3;
    open_it();
    assert_null(nvml_sources().power_capped);
    assert_string_equal(nvml_sources().throttled, "counter");
    assert_string_equal(absent("power_capped_pct"), "not supported");
    whole(NULL);
    fake->status[FAKE_FIELDS] = 999; /* the whole call fails */
    fake->reasons = NVML_REASON_POWER_CAP | 0x40;
    open_it();
    assert_string_equal(nvml_sources().power_capped, "sampled");
    struct telemetry t;
    telemetry_begin(&t, true);
    const struct telemetry_region r = telemetry_end(&t);
    assert_true(r.power_capped_pct == 100 && r.throttled_pct == 100 && r.setting_limited_pct == 0);
}

static void driver_without_the_newer_functions(void **state)
{
    (void)state;
    assert_int_equal(fake_nvml_use(FAKE_NVML_OLD), 0);
    fake->reasons = NVML_REASON_POWER_CAP;
    open_it();
    const struct nvml_identity id = nvml_identify();
    assert_true(id.power_limit_w == 600);
    assert_int_equal(id.mig, -1);
    assert_int_equal(id.other_processes, -1);
    assert_string_equal(nvml_sources().power_capped, "sampled");
    assert_string_equal(nvml_sources().throttled, "sampled");
    assert_string_equal(nvml_sources().power, "usage");
    assert_null(nvml_sources().energy);
    static const char *const fields[] = {"mig", "other_processes", "energy_counter_j"};
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(absent(fields[i]), "this driver's NVML has no such function");
    assert_int_equal(absent_count(), 3);
    assert_true(nvml_read().temp_c == 60);
    struct telemetry t;
    telemetry_begin(&t, true);
    const struct telemetry_region r = telemetry_end(&t);
    assert_true(r.power_capped_pct == 100 && r.throttled_pct == 0);
    assert_true(isnan(r.energy_counter_j));
}

static void device_lost_in_a_region(void **state)
{
    (void)state;
    struct telemetry t;
    open_it();
    telemetry_begin(&t, true);
    fake->lost_after_calls = fake->calls;
    struct telemetry_region r = telemetry_end(&t);
    assert_true(r.is_lost);
    assert_true(isnan(r.energy_counter_j) && isnan(r.power_capped_pct) && isnan(r.temp_c));
    fake->lost_after_calls = -1;
    telemetry_begin(&t, true);
    r = telemetry_end(&t);
    assert_false(r.is_lost);
    assert_true(isfinite(r.energy_counter_j) && isfinite(r.temp_c) && r.sm_clock_mhz == 1500);
}

static void library_absent_or_useless(void **state)
{
    (void)state;
    setenv("FABENCH_NVML", "/nowhere/libnvidia-ml.so", 1);
    assert_false(nvml_open(FAKE_BUS_ID, why, sizeof why));
    assert_string_equal(why, "FABENCH_NVML=/nowhere/libnvidia-ml.so cannot be loaded");
    setenv("FABENCH_NVML", "libc.so.6", 1); /* a library, but another one */
    assert_false(nvml_open(FAKE_BUS_ID, why, sizeof why));
    assert_non_null(strstr(why, "no such function"));
    whole(NULL);
    fake->status[FAKE_INIT] = 9;
    assert_false(nvml_open(FAKE_BUS_ID, why, sizeof why));
    assert_string_equal(why, "NVML could not be initialised: the driver is not loaded");
    whole(NULL);
    assert_false(nvml_open("0000:02:00.0", why, sizeof why));
    assert_string_equal(why, "NVML does not know the device at 0000:02:00.0: not found");
    fake->status[FAKE_HANDLE] = 15;
    assert_false(nvml_open(FAKE_BUS_ID, why, sizeof why));
    assert_non_null(strstr(why, "the GPU is lost"));
    const struct nvml_reading r = nvml_read(); /* closed: nothing is read, nothing crashes */
    assert_true(isnan(r.power_w) && isnan(r.energy_j) && r.time_ms > 0);
    assert_int_equal(nvml_identify().other_processes, -1);
}

/* In a container the list may lack this process, or be empty. */
static void own_process_not_in_the_list(void **state)
{
    (void)state;
    fake->pids[0] = 1;
    open_it();
    assert_int_equal(nvml_identify().other_processes, -1);
    assert_string_equal(absent("other_processes"), "processes are not visible from here");
    fake->pid_count = 0;
    open_it();
    assert_int_equal(nvml_identify().other_processes, -1);
    fake->pids[0] = (unsigned)getpid();
    fake->pid_count = 1;
    open_it();
    assert_int_equal(nvml_identify().other_processes, 0);
}

static void not_used_means_empty(void **state)
{
    (void)state;
    struct telemetry t;
    telemetry_begin(&t, false);
    const struct telemetry_region r = telemetry_end(&t);
    assert_true(isnan(r.sm_clock_mhz) && isnan(r.temp_c) && isnan(r.power_capped_pct) && isnan(r.throttled_pct) &&
                isnan(r.energy_counter_j) && isnan(r.energy_integral_j) && isnan(r.setting_limited_pct));
    assert_true(r.seconds >= 0);
    assert_false(r.is_lost);
    assert_string_equal(telemetry_clock_policy(&r, 1980), "unknown");
}

/* ---- arithmetic on made-up readings ---- */

static struct nvml_reading reading(double time_ms, double power_w, double energy_j)
{
    return (struct nvml_reading){.time_ms = time_ms,
                                 .power_w = power_w,
                                 .energy_j = energy_j,
                                 .sm_clock_mhz = 1000,
                                 .temp_c = 50,
                                 .power_cap_ns = NAN,
                                 .throttle_ns = NAN};
}

static void energy_of_a_ramp(void **state)
{
    (void)state;
    struct telemetry_sum sum = {.count = 0};
    for (int i = 0; i <= 100; i++) { /* 10 s from 100 W to 300 W: 2000 J */
        const struct nvml_reading r = reading(5000 + 100 * i, 100 + 2 * i, 7 + i);
        telemetry_add(&sum, &r);
    }
    const struct telemetry_region r = telemetry_result(&sum);
    assert_true(fabs(r.seconds - 10) < 1e-9);
    assert_true(fabs(r.energy_integral_j - 2000) < 1e-6);
    assert_true(fabs(r.energy_counter_j - 100) < 1e-9);
}

/* Readings without a power are skipped by interpolation; with too many of them there is no integral. A counter that
 * runs backwards, or fails at one end, is not used. */
static void gaps_and_counters_that_fail(void **state)
{
    (void)state;
    struct telemetry_sum sum = {.count = 0};
    for (int i = 0; i <= 100; i++) {
        const struct nvml_reading r = reading(1 + 10 * i, i > 40 && i < 50 ? NAN : 200, 100 - i);
        telemetry_add(&sum, &r);
    }
    struct telemetry_region r = telemetry_result(&sum);
    assert_true(fabs(r.energy_integral_j - 200) < 1e-9);
    assert_true(isnan(r.energy_counter_j));
    memset(&sum, 0, sizeof sum);
    for (int i = 0; i <= 100; i++) {
        const struct nvml_reading one = reading(1 + 10 * i, i > 80 ? NAN : 200, i == 100 ? NAN : i);
        telemetry_add(&sum, &one);
    }
    r = telemetry_result(&sum);
    assert_true(isnan(r.energy_integral_j) && isnan(r.energy_counter_j));
}

static void shares_and_means(void **state)
{
    (void)state;
    struct telemetry_sum sum = {.count = 0};
    for (int i = 0; i <= 10; i++) {
        struct nvml_reading r = reading(1000 + 100 * i, 1, 1);
        r.sm_clock_mhz = i == 0 ? 345 : 1000 + i; /* idle before the load: no part of the mean */
        r.reasons = i == 0 ? 1 : i <= 3 ? NVML_REASON_POWER_CAP : i <= 4 ? 0x20 : NVML_REASON_SETTING;
        r.throttle_ns = 5e9 + 25e6 * i; /* a quarter of the time */
        telemetry_add(&sum, &r);
    }
    const struct telemetry_region r = telemetry_result(&sum);
    assert_true(fabs(r.sm_clock_mhz - 1005.5) < 1e-9);
    assert_true(fabs(r.power_capped_pct - 30) < 1e-9); /* sampled: there was no counter */
    assert_true(fabs(r.throttled_pct - 25) < 1e-9);    /* counted, whatever the samples say */
    assert_true(fabs(r.setting_limited_pct - 60) < 1e-9);
    assert_string_equal(telemetry_clock_policy(&r, 1980), "locked");
    assert_string_equal(telemetry_clock_policy(&r, 1006), "unlocked"); /* held at the top: as good as free */
    struct telemetry_region other = r;
    other.setting_limited_pct = 0;
    assert_string_equal(telemetry_clock_policy(&other, 1980), "unlocked");
    other.setting_limited_pct = NAN;
    assert_string_equal(telemetry_clock_policy(&other, 1980), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(everything_there, whole, close_it),
        cmocka_unit_test_setup_teardown(identity_field_by_field, whole, close_it),
        cmocka_unit_test_setup_teardown(readings_field_by_field, whole, close_it),
        cmocka_unit_test_setup_teardown(shares_fall_back, whole, close_it),
        cmocka_unit_test_setup_teardown(driver_without_the_newer_functions, whole, close_it),
        cmocka_unit_test_setup_teardown(device_lost_in_a_region, whole, close_it),
        cmocka_unit_test_setup_teardown(library_absent_or_useless, whole, close_it),
        cmocka_unit_test_setup_teardown(own_process_not_in_the_list, whole, close_it),
        cmocka_unit_test(not_used_means_empty),
        cmocka_unit_test(energy_of_a_ramp),
        cmocka_unit_test(gaps_and_counters_that_fail),
        cmocka_unit_test(shares_and_means),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
