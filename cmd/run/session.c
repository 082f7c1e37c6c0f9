/* Device, implementations and plan of one process. */
#include "cmd/run/session.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/base/clock.h"
#include "cmd/base/log.h"
#include "cmd/base/paths.h"
#include "cmd/base/program.h"
#include "cmd/device/inputs.h"
#include "cmd/device/stored_outputs.h"
#include "cmd/device/telemetry.h"
#include "cmd/record/record.h"

/* The loaded cuDNN's version, from the peer's variant name "cudnn_9.19.0". */
static void find_cudnn(const struct session *s, char *version, size_t size)
{
    const struct attn_problem problem = {.batch = 1,
                                         .q_heads = 1,
                                         .kv_heads = 1,
                                         .q_len = 128,
                                         .kv_len = 128,
                                         .head_dim = 64,
                                         .dtype = ATTN_FP16,
                                         .window_left = -1,
                                         .window_right = -1,
                                         .scale = 0.125f};
    const struct attn_request request = {.problem = &problem, .device = &s->backend.device, .mode = ATTN_FWD};
    version[0] = 0;
    for (int i = 0; i < s->impls.count; i++) {
        const struct attn_impl *impl = s->impls.all[i];
        if (impls_role(&s->impls, impl) != ATTN_ROLE_PEER || !impl->variant ||
            impl->platform != s->backend.device.platform)
            continue;
        const char *variant = impl->variant(&request);
        if (variant && !strncmp(variant, "cudnn_", 6))
            snprintf(version, size, "%s", variant + 6);
    }
}

static void gather_facts(struct session *s, const char *run_id)
{
    s->nvml = nvml_identity_unknown();
    s->nvml_problem[0] = 0;
    if (s->backend.info.pci_bus_id[0]) {
        if (nvml_open(s->backend.info.pci_bus_id, s->nvml_problem, sizeof s->nvml_problem))
            s->nvml = nvml_identify();
        snprintf(s->backend.info.driver, sizeof s->backend.info.driver, "%s", s->nvml.driver);
    } else {
        snprintf(s->nvml_problem, sizeof s->nvml_problem, "the device is the CPU");
    }
    s->backend.info.max_sm_clock_mhz = fmax(s->backend.info.max_sm_clock_mhz, s->nvml.max_sm_clock_mhz);
    snprintf(s->facts.run_id, sizeof s->facts.run_id, "%s", run_id);
    snprintf(s->facts.commit, sizeof s->facts.commit, "%s", build_commit());
    find_cudnn(s, s->facts.cudnn, sizeof s->facts.cudnn);
    s->facts.device = s->backend.info;
    s->facts.power_limit_w = s->nvml.power_limit_w;
    record_board_name(s->nvml.uuid, s->facts.board, sizeof s->facts.board);
}

const char *session_clock_policy(struct session *s)
{
    enum { PROBE_BYTES = 256 << 20, PROBE_MS = 300 };
    const struct backend_ops *ops = s->backend.ops;
    struct telemetry telemetry;
    struct attn_message ignored;
    void *buffer = NULL;
    if (s->backend.device.platform != ATTN_CUDA)
        return NULL;
    if (s->nvml_problem[0] || ops->alloc(&s->backend, PROBE_BYTES, &buffer, &ignored) != ATTN_OK)
        return "unknown";
    enum attn_status status = ATTN_OK;
    telemetry_begin(&telemetry, true);
    const double from_ms = clock_ms();
    do {
        status = ops->pattern(&s->backend, buffer, PROBE_BYTES, 0x3c003c00u, &ignored);
    } while (status == ATTN_OK && clock_ms() - from_ms < PROBE_MS);
    const struct telemetry_region region = telemetry_end(&telemetry);
    ops->release(&s->backend, buffer);
    return status == ATTN_OK ? telemetry_clock_policy(&region, s->nvml.max_sm_clock_mhz) : "unknown";
}

/* True for presets and commands that need a GPU and never fall back to the CPU. */
static bool may_fall_back(const struct options *o)
{
    return o->device != DEVICE_CUDA && o->preset != PRESET_CI && o->preset != PRESET_ACCEPTANCE &&
           o->preset != PRESET_NODE && o->preset != PRESET_GENERATIONS;
}

/* The implementations that were asked for, or those of the preset, which as defaults may run nowhere. */
static int select_impls(const struct options *o, struct session *s)
{
    static const char *const names[] = {"naive", "fused_v1", "fused_sm80", "fused_sm90"};
    struct name_list generations = {0};
    const bool has_own = o->preset == PRESET_GENERATIONS && !o->impls.count && s->backend.device.platform == ATTN_CUDA;
    if (has_own)
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            name_list_add(&generations, names[i]);
    const int status =
        impls_select(&s->impls, has_own ? &generations : &o->impls, &s->backend.device, s->slots, &s->slot_count);
    for (int i = 0; has_own && i < s->slot_count; i++)
        s->slots[i].is_named = false;
    name_list_free(&generations);
    return status;
}

/* Checks the files of --input for every problem of the plan. The problems differ only in mask, dtype and mode (see
 * plan_make), and backward reads all that forward reads, so each dtype and mode is checked only once. */
static bool are_inputs_readable(const struct plan *plan, struct attn_message *why)
{
    for (int i = 0; i < plan->count; i++) {
        const struct plan_item *item = &plan->items[i];
        bool seen = false;
        for (int j = 0; j < i && !seen; j++)
            seen = plan->items[j].folder == item->folder && plan->items[j].problem.dtype == item->problem.dtype &&
                   (plan->items[j].mode == item->mode || plan->items[j].mode == ATTN_BWD);
        if (item->folder && !seen && !inputs_readable(item, item->folder, why))
            return false;
    }
    return true;
}

/* True when samples are taken with a cold L2. */
static bool flushes_caches(const struct options *o)
{
    return o->command == COMMAND_SWEEP && o->l2 == L2_COLD && !o->dry_run && !o->profile;
}

/* The choices of --tuned, which must have been made here. */
static int read_tuned(const struct options *o, struct session *s)
{
    struct attn_message why = {""};
    if (!o->tuned_path)
        return EXIT_OK;
    if (!tuned_read(o->tuned_path, &s->tuned, &why)) {
        log_error("--tuned %s", why.text);
        return EXIT_NOT_COMPARABLE;
    }
    json_t *here = tuned_header(&s->backend.info);
    const bool fits = tuned_fits(&s->tuned, here, &why);
    json_decref(here);
    if (!fits)
        log_error("--tuned %s %s", path_shown(o->tuned_path).text, why.text);
    return fits ? EXIT_OK : EXIT_NOT_COMPARABLE;
}

int session_open(const struct options *o, const char *run_id, bool say_choice, struct session *s)
{
    struct attn_message why = {""};
    memset(s, 0, sizeof *s);
    const enum device_choice choice = !may_fall_back(o) && o->device == DEVICE_AUTO ? DEVICE_CUDA : o->device;
    const int ordinal = o->device == DEVICE_CUDA ? o->device_ordinal : 0;
    enum attn_status opened = backend_open(&s->backend, choice, ordinal, &why);
    if (opened != ATTN_OK && o->dry_run && choice != o->device) {
        log_note("%s: the plan of a GPU; no implementation was asked", why.text);
        why.text[0] = 0;
        s->is_plan_only = true;
        opened = backend_open(&s->backend, DEVICE_CPU, 0, &why);
    }
    if (opened != ATTN_OK && choice == DEVICE_AUTO && (o->command == COMMAND_INFO || o->command == COMMAND_LIST)) {
        log_note("%s", why.text);
        why.text[0] = 0;
        opened = backend_open(&s->backend, DEVICE_CPU, 0, &why);
    }
    if (opened != ATTN_OK) {
        if (choice != o->device)
            log_error("preset %s needs a GPU: %s", option_preset_name(o->preset), why.text);
        else if (o->device == DEVICE_CUDA)
            log_error("--device cuda:%d: %s", o->device_ordinal, why.text);
        else
            log_error("no device: %s", why.text);
        return EXIT_DEVICE;
    }
    if (why.text[0] && say_choice)
        log_note("%s", why.text);
    int status = impls_load(&o->impl_libs, &s->impls);
    if (status == EXIT_OK && !o->outputs_dir && !s->is_plan_only)
        status = select_impls(o, s);
    if (status == EXIT_OK && o->invariance && s->slot_count)
        status = impls_make_invariant(&s->impls, &s->backend.device, s->slots, &s->slot_count);
    if (status == EXIT_OK && o->peer)
        status = impls_add_peer(&s->impls, o->peer, &s->backend.device, s->slots, &s->slot_count);
    if (status == EXIT_OK)
        status = o->command == COMMAND_VERIFY ? plan_make_verify(o, s->backend.device.platform, &s->plan)
                 : o->command == COMMAND_SELFTEST
                     ? plan_make_selftest(o, &s->plan)
                     : plan_make(o, s->is_plan_only ? ATTN_CUDA : s->backend.device.platform, &s->plan);
    if (status == EXIT_OK && o->outputs_dir)
        status = stored_outputs_select(&s->plan, &o->impls, s->slots, &s->slot_count);
    if (status == EXIT_OK)
        status = read_tuned(o, s);
    if (status == EXIT_OK && !are_inputs_readable(&s->plan, &why)) {
        log_error("%s: %s", o->outputs_dir ? "--outputs" : "--input", why.text);
        status = EXIT_IO;
    }
    if (status == EXIT_OK && flushes_caches(o) && s->backend.ops->make_flush(&s->backend, &why) != ATTN_OK) {
        log_error("--l2 cold: %s", why.text);
        status = EXIT_DEVICE;
    }
    if (status != EXIT_OK) {
        session_close(s);
        return status;
    }
    gather_facts(s, run_id);
    return EXIT_OK;
}

void session_close(struct session *s)
{
    nvml_close();
    tuned_free(&s->tuned);
    plan_free(&s->plan);
    impls_free(&s->impls);
    s->backend.ops->close(&s->backend);
}
