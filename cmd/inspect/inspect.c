/* info, list, --dry-run, --profile. */
#include "cmd/inspect/inspect.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/base/host.h"
#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/program.h"
#include "cmd/device/buffers.h"
#include "cmd/device/telemetry.h"
#include "cmd/measure/sustain.h"
#include "cmd/record/record.h"
#include "cmd/run/case_run.h"
#include "cmd/run/session.h"

static void print_real(const char *label, double value, const char *unit)
{
    if (isfinite(value))
        printf("  %-22s %.0f %s\n", label, value, unit);
}

static void print_flag(const char *label, int value)
{
    if (value >= 0)
        printf("  %-22s %s\n", label, value ? "on" : "off");
}

static void print_gemm(struct session *s)
{
    static const enum attn_dtype dtypes[] = {ATTN_FP16, ATTN_BF16};
    struct attn_problem problem = {.dtype = ATTN_FP16};
    const struct attn_request request = {.problem = &problem, .device = &s->backend.device};
    const struct launcher gemm = {.request = &request};
    for (int i = 0; i < 2; i++) {
        struct attn_message why;
        double flops = 0, best_ms = INFINITY, time_ms = 0;
        problem.dtype = dtypes[i];
        const enum attn_status status = s->backend.ops->gemm_prepare(&s->backend, dtypes[i], &flops, &why);
        if (status == ATTN_UNSUPPORTED) /* the CPU has none */
            continue;
        for (int n = 0; n < 50 && status == ATTN_OK; n++)
            if (s->backend.ops->sample(&s->backend, &gemm, true, &time_ms, &why) == ATTN_OK)
                best_ms = fmin(best_ms, time_ms);
        if (!isfinite(best_ms)) {
            printf("  %-22s not measured: %s\n", i == 0 ? "GEMM fp16" : "GEMM bf16", why.text);
            continue;
        }
        printf("  %-22s %.0f TFLOPS (cuBLAS 8192^3, best of 50, L2 cold)\n", i == 0 ? "GEMM fp16" : "GEMM bf16",
               flops / best_ms * 1e-9);
    }
}

static void print_identity(const struct nvml_identity *id)
{
    if (id->driver[0])
        printf("  %-22s %s\n", "driver", id->driver);
    if (id->vbios[0])
        printf("  %-22s %s\n", "VBIOS", id->vbios);
    print_real("power limit", id->power_limit_w, "W");
    print_real("default power limit", id->default_power_limit_w, "W");
    print_real("highest SM clock", id->max_sm_clock_mhz, "MHz");
    print_real("application SM clock", id->application_sm_clock_mhz, "MHz");
    print_flag("persistence mode", id->persistence);
    print_flag("ECC", id->ecc);
    print_flag("MIG", id->mig);
    if (id->ecc_uncorrected >= 0)
        printf("  %-22s %lld uncorrected\n", "ECC errors", (long long)id->ecc_uncorrected);
    if (id->pcie_width >= 0)
        printf("  %-22s x%d of x%d\n", "PCIe lanes", id->pcie_width, id->pcie_width_max);
    if (id->other_processes >= 0)
        printf("  %-22s %d\n", "other processes", id->other_processes);
}

/* Prints which fields the records of this device will lack, and why. */
static void print_absent(void)
{
    const struct nvml_absent *list;
    const int count = nvml_absent(&list);
    for (int i = 0; i < count; i++)
        printf("  %-22s no %s: %s\n", i ? "" : "absent", list[i].field, list[i].why);
}

/* Prints what this process may use of the machine. */
static void print_host(void)
{
    const struct host_limits h = host_limits("");
    char text[32];
    printf("  %-22s %d\n", "CPUs it may run on", h.cpus);
    if (isfinite(h.cpu_quota))
        printf("  %-22s %.3g CPUs (control group)\n", "CPU quota", h.cpu_quota);
    if (h.memory_limit < h.memory_bytes)
        printf("  %-22s %s, limited by the control group\n", "of the machine",
               number_print_bytes((double)h.memory_bytes, text, sizeof text));
    if (h.l3_bytes)
        printf("  %-22s %s\n", "last level cache", number_print_bytes((double)h.l3_bytes, text, sizeof text));
    if (isfinite(h.load))
        printf("  %-22s %.2f\n", "load", h.load);
}

int inspect_info(const struct options *o)
{
    struct session s;
    struct telemetry telemetry;
    const char *clocks = "unknown";
    char text[32], command[120];
    const int status = session_open(o, "info", true, &s);
    if (status != EXIT_OK)
        return status;
    const struct device_info *d = &s.backend.info;
    printf("fabench %s (%s)\n", build_version(), build_commit());
    printf("device: %s (%s)\n", d->name, d->arch);
    printf("  %-22s %s\n", "memory", number_print_bytes(d->memory_bytes, text, sizeof text));
    if (s.backend.device.platform == ATTN_CPU) {
        printf("  %-22s %d\n", "threads", d->multiprocessors);
        print_host();
        session_close(&s);
        return EXIT_OK;
    }
    printf("  %-22s %d\n", "multiprocessors", d->multiprocessors);
    printf("  %-22s %s\n", "L2", number_print_bytes(d->l2_bytes, text, sizeof text));
    printf("  %-22s %s\n", "shared memory / block",
           number_print_bytes((double)s.backend.device.smem_per_block_bytes, text, sizeof text));
    printf("  %-22s %s\n", "CUDA runtime", d->cuda);
    printf("  %-22s %s\n", "cuDNN", s.facts.cudnn[0] ? s.facts.cudnn : "none");
    if (s.nvml_problem[0]) {
        printf("  %-22s %s\n", "NVML", s.nvml_problem);
    } else {
        print_identity(&s.nvml);
        clocks = session_clock_policy(&s);
        printf("  %-22s %s\n", "clocks", clocks);
        print_absent();
    }
    printf("ceilings:\n");
    print_real("copy", s.backend.ops->copy_gbps(&s.backend), "GB/s (read + written)");
    telemetry_begin(&telemetry, !s.nvml_problem[0]);
    print_gemm(&s);
    const struct telemetry_region under_gemm = telemetry_end(&telemetry);
    print_real("SM clock in the GEMM", under_gemm.sm_clock_mhz, "MHz");
    if (!strcmp(clocks, "unlocked") && isfinite(under_gemm.sm_clock_mhz))
        printf("to hold the clocks for comparable runs (root; undo with --reset-gpu-clocks):\n  %s\n",
               telemetry_lock_command(d->pci_bus_id, under_gemm.sm_clock_mhz, command, sizeof command));
    session_close(&s);
    return EXIT_OK;
}

/* `list` asks each implementation about these requests: the four of the default grid. */
static void list_one(const struct session *s, const struct attn_impl *impl)
{
    const bool is_here = impl->platform == s->backend.device.platform;
    printf("%-12s %-4s %s\n", impl->name, impl->platform == ATTN_CUDA ? "cuda" : "cpu", impl->summary);
    for (int i = 0; is_here && i < 2; i++) {
        struct attn_problem p = {.batch = 1,
                                 .q_heads = 1,
                                 .kv_heads = 1,
                                 .q_len = 1024,
                                 .kv_len = 1024,
                                 .head_dim = 128,
                                 .dtype = ATTN_FP16,
                                 .causal = true,
                                 .window_left = -1,
                                 .window_right = -1,
                                 .scale = 0.088f};
        p.dtype = impl->platform == ATTN_CPU ? ATTN_FP32 : ATTN_FP16;
        const struct attn_request request = {.problem = &p, .device = &s->backend.device, .mode = (enum attn_mode)i};
        struct attn_message why = {""};
        if (impl->accepts(&request, &why) == ATTN_OK)
            printf("             %s: runs here\n", problem_mode_name(request.mode));
        else
            printf("             %s: refuses here: %s\n", problem_mode_name(request.mode), why.text);
    }
    if (!is_here)
        printf("             not on this device\n");
    for (const struct attn_variant *v = impl->variants; v && v->name; v++)
        printf("             variant %-28s %s\n", v->name, v->summary);
}

int inspect_list(const struct options *o)
{
    struct session s;
    const int status = session_open(o, "list", true, &s);
    if (status != EXIT_OK)
        return status;
    printf("device: %s (%s)\n", s.backend.info.name, s.backend.info.arch);
    for (int i = 0; i < s.impls.count; i++)
        list_one(&s, s.impls.all[i]);
    session_close(&s);
    return EXIT_OK;
}

double inspect_estimate_s(const struct plan *plan, const struct options *o, int slot_count)
{
    const double sustained_s = plan->sustain_s > 0 ? slot_count * (plan->sustain_s + SUSTAIN_LEAD_S) : 0;
    return (plan->warmup_ms + fmin(8 * plan->min_time_ms, o->timeout_s * 1e3)) * 1.3e-3 + 0.3 + sustained_s;
}

int inspect_dry_run(const struct options *o)
{
    struct session s;
    const int status = session_open(o, "dry-run", true, &s);
    if (status != EXIT_OK)
        return status;
    enum { DEFAULT_SLOTS = 3 }; /* naive, fused, cudnn */
    const int slot_count = !s.is_plan_only ? s.slot_count : o->impls.count ? o->impls.count : DEFAULT_SLOTS;
    double peak_bytes = 0;
    for (int i = 0; i < s.plan.count; i++) {
        const struct plan_item *item = &s.plan.items[i];
        char name[96], bytes[32];
        /* Every implementation has its own outputs, which are at most as large as the inputs. */
        double total = tensor_set_bytes(item) * (1 + 0.5 * (slot_count - 1));
        problem_print(&item->problem, item->mode, name, sizeof name);
        if (o->command == COMMAND_VERIFY) /* the key has batch and heads in it, and --only takes it */
            printf("%s\n", item->name);
        else
            printf("%-38s batch %lld heads %lld/%lld\n", name, (long long)item->problem.batch,
                   (long long)item->problem.q_heads, (long long)item->problem.kv_heads);
        for (int j = 0; j < s.slot_count; j++) {
            struct attn_request request = {.problem = &item->problem,
                                           .device = &s.backend.device,
                                           .mode = item->mode,
                                           .deterministic = item->deterministic,
                                           .splits = item->splits,
                                           .outputs = problem_wanted_outputs(&item->problem, item->mode),
                                           .variant = o->variant};
            struct attn_message why = {""};
            const struct attn_impl *impl = impl_resolve(&s.slots[j], &request, &why);
            if (!impl) {
                printf("    %-12s refuses: %s\n", s.slots[j].name, why.text);
                continue;
            }
            const char *variant = impl->variant ? impl->variant(&request) : NULL;
            const double workspace = (double)impl->workspace_bytes(&request);
            total += workspace;
            printf("    %-12s workspace %-11s %s\n", impl_recorded_name(&s.slots[j], impl),
                   number_print_bytes(workspace, bytes, sizeof bytes), variant ? variant : "");
        }
        if (!s.is_plan_only)
            total += (double)s.backend.ops->reference_workspace(&s.backend, &item->problem, item->mode);
        peak_bytes = fmax(peak_bytes, total);
    }
    char peak[32], have[32];
    printf("%d problem%s x %d implementation%s, ", s.plan.count, s.plan.count == 1 ? "" : "s", slot_count,
           slot_count == 1 ? "" : "s");
    if (o->command == COMMAND_VERIFY)
        printf("untimed");
    else
        printf("about %.0f s and the references", s.plan.count * inspect_estimate_s(&s.plan, o, slot_count));
    number_print_bytes(peak_bytes, peak, sizeof peak);
    number_print_bytes((double)s.backend.ops->free_bytes(&s.backend), have, sizeof have);
    if (s.is_plan_only)
        printf("; inputs and outputs up to %s (workspaces and the reference come on top)\n", peak);
    else
        printf("; inputs, outputs and workspaces up to %s of %s (the reference's outputs and libraries' plans come on "
               "top)\n",
               peak, have);
    session_close(&s);
    return EXIT_OK;
}

static void profile_stage(void *context, enum case_stage stage, int slot, const char *impl)
{
    (void)impl;
    (void)context;
    (void)stage;
    (void)slot;
}

int inspect_profile(const struct options *o)
{
    struct session s;
    struct attn_message why = {""};
    int status = session_open(o, "profile", true, &s);
    if (status != EXIT_OK)
        return status;
    if (s.slot_count != 1) {
        log_error("--profile runs one implementation: name it with --impl");
        session_close(&s);
        return EXIT_USAGE;
    }
    const struct case_setting setting = {.backend = &s.backend,
                                         .options = o,
                                         .plan = &s.plan,
                                         .facts = &s.facts,
                                         .slots = s.slots,
                                         .slot_count = 1,
                                         .hooks = {.stage = profile_stage}};
    if (case_profile(&setting, &why) != ATTN_OK) {
        log_error("--profile: %s", why.text);
        status = EXIT_DEVICE;
    } else {
        printf("profiled one launch; NOT CHECKED\n");
    }
    session_close(&s);
    return status;
}
