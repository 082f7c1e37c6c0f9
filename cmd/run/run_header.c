/* Makes the header object of a record file. */
#include "cmd/run/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "cmd/base/host.h"
#include "cmd/base/log.h"
#include "cmd/base/program.h"
#include "cmd/base/text.h"
#include "cmd/record/record.h"

/* Adds a text; an empty one is unknown, and its key is left out. */
static void put_text(json_t *object, const char *key, const char *value)
{
    if (value && *value)
        json_object_set_new(object, key, json_string(value));
}

/* A path may contain any bytes, JSON must be UTF-8. */
static void put_clean_text(json_t *object, const char *key, const char *value)
{
    const size_t size = strlen(value) + 1;
    char *text = xmalloc(size);
    text_clean(value, text, size);
    put_text(object, key, text);
    free(text);
}

static void put_flag(json_t *object, const char *key, int value)
{
    if (value >= 0)
        json_object_set_new(object, key, json_boolean(value));
}

/* -1 = not known. */
static void put_count(json_t *object, const char *key, int64_t value)
{
    if (value >= 0)
        json_object_set_new(object, key, json_integer(value));
}

static json_t *tool_object(void)
{
    json_t *tool = json_object();
    put_text(tool, "name", "fabench");
    put_text(tool, "version", build_version());
    put_text(tool, "commit", build_commit());
    put_text(tool, "build", build_description());
    return tool;
}

static json_t *host_object(void)
{
    struct utsname name;
    char own[256];
    json_t *host = json_object();
    host_name(own, sizeof own);
    put_text(host, "name", own);
    if (uname(&name) == 0) {
        put_text(host, "os", name.sysname);
        put_text(host, "kernel", name.release);
        put_text(host, "machine", name.machine);
    }
    /* What this process may use, and the load before it began. */
    const struct host_limits limits = host_limits("");
    if (limits.cpus)
        json_object_set_new(host, "cpus", json_integer(limits.cpus));
    record_put_real(host, "cpu_quota", limits.cpu_quota);
    record_put_real(host, "memory_gb", limits.memory_bytes > 0 ? (double)limits.memory_bytes * 1e-9 : NAN);
    record_put_real(host, "memory_limit_gb",
                    limits.memory_limit < limits.memory_bytes ? (double)limits.memory_limit * 1e-9 : NAN);
    record_put_real(host, "load", limits.load);
    return host;
}

/* Environment variables that may change a measurement or identify what is measured. */
static json_t *environment_object(void)
{
    static const char *const names[] = {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",    "CUDA_LAUNCH_BLOCKING",
                                        "CUDA_MODULE_LOADING",  "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS",
                                        "OPENBLAS_NUM_THREADS", "GITHUB_SHA",           "GITHUB_REF",
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
    record_put_real(device, "memory_gb", info->memory_bytes * 1e-9);
    record_put_real(device, "l2_mb", info->l2_bytes > 0 ? info->l2_bytes * 1e-6 : NAN);
    json_object_set_new(device, in->backend->device.platform == ATTN_CPU ? "threads" : "multiprocessors",
                        json_integer(info->multiprocessors));
    record_put_real(device, "power_limit_w", in->nvml->power_limit_w);
    record_put_real(device, "default_power_limit_w", in->nvml->default_power_limit_w);
    record_put_real(device, "max_sm_clock_mhz", in->nvml->max_sm_clock_mhz);
    record_put_real(device, "application_sm_clock_mhz", in->nvml->application_sm_clock_mhz);
    record_put_real(device, "default_application_sm_clock_mhz", in->nvml->default_application_sm_clock_mhz);
    put_flag(device, "persistence", in->nvml->persistence);
    put_flag(device, "ecc", in->nvml->ecc);
    put_flag(device, "mig", in->nvml->mig);
    put_count(device, "pcie_width", in->nvml->pcie_width);
    put_count(device, "pcie_width_max", in->nvml->pcie_width_max);
    put_count(device, "ecc_uncorrected", in->nvml->ecc_uncorrected);
    if (in->nvml->other_processes >= 0)
        json_object_set_new(device, "other_processes", json_integer(in->nvml->other_processes));
    record_put_real(device, "copy_gbps", in->copy_gbps);
    return device;
}

/* The source of each telemetry column, and which ones are empty and why. */
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

/* True when the plan has problems with a cache, or without one. */
static bool plan_has_cache(const struct plan *plan, bool with)
{
    bool has = false;
    for (int i = 0; i < plan->count; i++)
        has |= (plan->items[i].problem.lengths == ATTN_CACHE) == with;
    return has;
}

static json_t *policy_object(const struct header_input *in)
{
    json_t *policy = json_object();
    json_t *members = json_array();
    put_text(policy, "method", RECORD_METHOD);
    put_text(policy, "preset", in->plan->preset);
    put_clean_text(policy, "options", in->options->deciding);
    put_text(policy, "peer", impls_peer(in->slots, in->slot_count, in->options->peer));
    put_text(policy, "l2", problem_l2_name(in->options->l2));
    put_text(policy, "check", problem_scope_name(in->options->check));
    put_text(policy, "clocks", in->clocks);
    record_put_real(policy, "warmup_ms", in->plan->warmup_ms);
    record_put_real(policy, "preheat_ms", in->plan->preheat_ms > 0 ? in->plan->preheat_ms : NAN);
    record_put_real(policy, "min_time_ms", in->plan->min_time_ms);
    record_put_real(policy, "max_noise_pct", in->plan->max_noise_pct);
    record_put_real(policy, "timeout_s", in->options->timeout_s);
    record_put_real(policy, "sustain_s", in->plan->sustain_s);
    if (in->plan->samples)
        json_object_set_new(policy, "samples", json_integer(in->plan->samples));
    if (in->plan->total_tokens)
        json_object_set_new(policy, "total_tokens", json_integer(in->plan->total_tokens));
    for (int i = 0; i < in->slot_count; i++)
        json_array_append_new(members, json_string(in->slots[i].name));
    if (in->backend->device.platform == ATTN_CUDA && plan_has_cache(in->plan, false))
        json_array_append_new(members, json_string("gemm"));
    if (plan_has_cache(in->plan, true))
        json_array_append_new(members, json_string("read"));
    json_object_set_new(policy, "round_members", members);
    return policy;
}

json_t *header_make(const struct header_input *in)
{
    char started[24];
    struct record_row now;
    /* Uses row_begin for the format of the time; an empty item is enough for that. */
    const struct plan_item nothing = {
        .problem = {.batch = 1, .q_heads = 1, .kv_heads = 1, .q_len = 1, .kv_len = 1, .head_dim = 8}};
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
