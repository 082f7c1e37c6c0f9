/* The record header as JSON, and the two short texts made from it. */
#include "cmd/header.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "build_facts.h"
#include "cmd/log.h"

const char *build_version(void) { return FABENCH_VERSION; }
const char *build_commit(void) { return FABENCH_COMMIT; }

/* Empty means unknown: the key is left out. */
static void put_text(json_t *object, const char *key, const char *value)
{
    if (value && *value)
        json_object_set_new(object, key, json_string(value));
}

/* A path may be any bytes, JSON is UTF-8. */
static void put_clean_text(json_t *object, const char *key, const char *value)
{
    const size_t size = strlen(value) + 1;
    char *text = xmalloc(size);
    record_clean_text(value, text, size);
    put_text(object, key, text);
    free(text);
}

static void put_real(json_t *object, const char *key, double value)
{
    if (isfinite(value))
        json_object_set_new(object, key, json_real(value));
}

static void put_flag(json_t *object, const char *key, int value)
{
    if (value >= 0)
        json_object_set_new(object, key, json_boolean(value));
}

static json_t *tool_object(void)
{
    json_t *tool = json_object();
    put_text(tool, "name", "fabench");
    put_text(tool, "version", FABENCH_VERSION);
    put_text(tool, "commit", FABENCH_COMMIT);
    put_text(tool, "build", FABENCH_BUILD);
    return tool;
}

static json_t *host_object(void)
{
    struct utsname name;
    json_t *host = json_object();
    if (uname(&name) == 0) {
        put_text(host, "os", name.sysname);
        put_text(host, "kernel", name.release);
        put_text(host, "machine", name.machine);
    }
    return host;
}

/* Only what may change a measurement, or says which change is measured. */
static json_t *environment_object(void)
{
    static const char *const names[] = {"CUDA_VISIBLE_DEVICES",  "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING",
                                        "CUDA_MODULE_LOADING",   "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS",
                                        "OPENBLAS_NUM_THREADS",  "GITHUB_SHA",        "GITHUB_REF",
                                        "CI_COMMIT_SHA"};
    json_t *object = json_object();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        put_text(object, names[i], getenv(names[i]));
    return object;
}

static json_t *device_object(const struct header_input *in)
{
    const struct device_info *info = &in->backend->info;
    json_t *device = json_object();
    put_text(device, "name", info->name);
    put_text(device, "arch", info->arch);
    put_text(device, "driver", info->driver);
    put_text(device, "cuda", info->cuda);
    put_text(device, "cudnn", in->facts->cudnn);
    put_text(device, "pci_bus_id", info->pci_bus_id);
    put_text(device, "uuid", in->nvml->uuid);
    put_text(device, "vbios", in->nvml->vbios);
    put_real(device, "memory_gb", info->memory_bytes * 1e-9);
    put_real(device, "l2_mb", info->l2_bytes > 0 ? info->l2_bytes * 1e-6 : NAN);
    json_object_set_new(device, in->backend->device.platform == ATTN_CPU ? "threads" : "multiprocessors",
                        json_integer(info->multiprocessors));
    put_real(device, "power_limit_w", in->nvml->power_limit_w);
    put_real(device, "default_power_limit_w", in->nvml->default_power_limit_w);
    put_real(device, "max_sm_clock_mhz", in->nvml->max_sm_clock_mhz);
    put_real(device, "application_sm_clock_mhz", in->nvml->application_sm_clock_mhz);
    put_real(device, "default_application_sm_clock_mhz", in->nvml->default_application_sm_clock_mhz);
    put_flag(device, "persistence", in->nvml->persistence);
    put_flag(device, "ecc", in->nvml->ecc);
    put_flag(device, "mig", in->nvml->mig);
    if (in->nvml->other_processes >= 0)
        json_object_set_new(device, "other_processes", json_integer(in->nvml->other_processes));
    put_real(device, "copy_gbps", in->copy_gbps);
    return device;
}

/* How the telemetry columns come about, and what stays empty and why. */
static json_t *telemetry_object(const struct header_input *in)
{
    const struct nvml_sources sources = nvml_sources();
    const struct nvml_absent *list;
    const int count = nvml_absent(&list);
    json_t *object = json_object(), *absent = json_object();
    put_text(object, "nvml_version", in->nvml->nvml_version);
    put_text(object, "power_capped_pct", sources.power_capped);
    put_text(object, "throttled_pct", sources.throttled);
    put_text(object, "energy_counter_j", sources.energy);
    put_text(object, "energy_integral_j", sources.power);
    for (int i = 0; i < count; i++)
        put_text(absent, list[i].field, list[i].why);
    if (in->nvml_problem)
        put_text(absent, "all", in->nvml_problem);
    json_object_set_new(object, "absent", absent);
    return object;
}

static json_t *policy_object(const struct header_input *in)
{
    json_t *policy = json_object();
    json_t *members = json_array();
    put_text(policy, "method", RECORD_METHOD);
    put_text(policy, "preset", in->plan->preset);
    put_clean_text(policy, "options", in->options->deciding);
    put_text(policy, "l2", option_l2_name(in->options->l2));
    put_text(policy, "check", option_check_name(in->options->check));
    put_text(policy, "clocks", in->clocks);
    put_real(policy, "warmup_ms", in->plan->warmup_ms);
    put_real(policy, "preheat_ms", in->plan->preheat_ms > 0 ? in->plan->preheat_ms : NAN);
    put_real(policy, "min_time_ms", in->plan->min_time_ms);
    put_real(policy, "max_noise_pct", in->plan->max_noise_pct);
    put_real(policy, "timeout_s", in->options->timeout_s);
    put_real(policy, "sustain_s", in->plan->sustain_s);
    if (in->plan->samples)
        json_object_set_new(policy, "samples", json_integer(in->plan->samples));
    if (in->plan->total_tokens)
        json_object_set_new(policy, "total_tokens", json_integer(in->plan->total_tokens));
    for (int i = 0; i < in->slot_count; i++)
        json_array_append_new(members, json_string(in->slots[i].name));
    if (in->backend->device.platform == ATTN_CUDA)
        json_array_append_new(members, json_string("gemm"));
    json_object_set_new(policy, "round_members", members);
    return policy;
}

json_t *header_make(const struct header_input *in)
{
    char started[24];
    struct record_row now;
    /* row_begin knows how a time is written; a row of no problem is enough for it. */
    const struct plan_item nothing = {.problem = {.batch = 1, .q_heads = 1, .kv_heads = 1, .q_len = 1, .kv_len = 1,
                                                  .head_dim = 8}};
    row_begin(&now, in->options, in->facts, &nothing, "none", "none");
    snprintf(started, sizeof started, "%s", now.time_utc);
    record_row_free(&now);
    json_t *header = json_pack("{s:s, s:i, s:s, s:s}", "type", "header", "schema", (int)RECORD_SCHEMA, "run_id",
                               in->facts->run_id, "started_utc", started);
    FABENCH_ASSERT(header, "a header of clean text");
    put_clean_text(header, "command_line", in->options->command_line);
    json_object_set_new(header, "tool", tool_object());
    json_object_set_new(header, "host", host_object());
    json_object_set_new(header, "device", device_object(in));
    json_object_set_new(header, "telemetry", telemetry_object(in));
    json_object_set_new(header, "policy", policy_object(in));
    json_object_set_new(header, "environment", environment_object());
    return header;
}

json_t *header_value(const json_t *header, const char *path)
{
    const char *dot = strchr(path, '.');
    char object[24];
    snprintf(object, sizeof object, "%.*s", (int)(dot - path), path);
    return json_object_get(json_object_get(header, object), dot + 1);
}

char *header_value_text(const json_t *value, char *buffer, size_t size)
{
    char *json = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(10)) : NULL;
    snprintf(buffer, size, "%s", json ? json : "absent");
    free(json);
    return buffer;
}

const char *header_difference(const json_t *a, const json_t *b, const char *const *paths, int count, char *a_text,
                              char *b_text, size_t size)
{
    for (int i = 0; i < count; i++) {
        const json_t *one = header_value(a, paths[i]), *two = header_value(b, paths[i]);
        if (one == two || json_equal(one, two))
            continue;
        header_value_text(one, a_text, size);
        header_value_text(two, b_text, size);
        return paths[i];
    }
    return NULL;
}

char *header_line(const json_t *header)
{
    const json_t *device = json_object_get(header, "device"), *tool = json_object_get(header, "tool");
    const json_t *limit = json_object_get(device, "power_limit_w"), *ecc = json_object_get(device, "ecc");
    const json_t *driver = json_object_get(device, "driver"), *others = json_object_get(device, "other_processes");
    const json_t *threads = json_object_get(device, "threads");
    const char *clocks = json_string_value(header_value(header, "policy.clocks"));
    char detail[160] = "";
    size_t used = 0;
#define ADD(...) used += (size_t)snprintf(detail + used, sizeof detail - used, __VA_ARGS__)
    ADD(" %.0f GiB", json_number_value(json_object_get(device, "memory_gb")) * 1e9 / (1 << 30));
    if (threads)
        ADD(", %d threads", (int)json_integer_value(threads));
    if (limit)
        ADD(", %.0f W", json_number_value(limit));
    if (ecc)
        ADD(", ECC %s", json_is_true(ecc) ? "on" : "off");
    if (driver)
        ADD(", driver %.20s", json_string_value(driver));
    if (clocks && strcmp(clocks, "unknown"))
        ADD(", clocks %.20s", clocks);
    if (others && json_integer_value(others) > 0)
        ADD(", %d other process%s", (int)json_integer_value(others), json_integer_value(others) == 1 ? "" : "es");
    else if (others)
        ADD(", no other process");
#undef ADD
    return xasprintf("%s%s | fabench %s (%.12s)", json_string_value(json_object_get(device, "name")), detail,
                     json_string_value(json_object_get(tool, "version")),
                     json_string_value(json_object_get(tool, "commit")));
}

char *header_folder_name(const json_t *header)
{
    const char *name = json_string_value(header_value(header, "device.name"));
    const char *started = json_string_value(json_object_get(header, "started_utc"));
    char slug[40], stamp[24];
    size_t n = 0, s = 0;
    if (!strncmp(name, "NVIDIA ", 7))
        name += 7;
    if (header_value(header, "device.threads"))
        name = "cpu";
    for (; *name && n + 1 < sizeof slug; name++)
        if (isalnum((unsigned char)*name))
            slug[n++] = (char)tolower((unsigned char)*name);
        else if (n && slug[n - 1] != '-')
            slug[n++] = '-';
    slug[n] = 0;
    for (; *started && s + 1 < sizeof stamp; started++)
        if (*started != '-' && *started != ':')
            stamp[s++] = *started;
    stamp[s] = 0;
    return xasprintf("%s-%s", slug, stamp);
}
