/* The columns of a row from facts, samples and verdicts. */
#include "cmd/run/row.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cmd/judge/judge.h"
#include "cmd/base/log.h"
#include "cmd/problem/problem.h"
#include "cmd/base/stats.h"

#define PUT(field, text) snprintf(field, sizeof(field), "%s", text)

const char *row_status_name(enum record_status status)
{
    static const char *const names[] = {"ok", "oom", "unsupported", "skipped", "error", "timeout"};
    return names[status];
}

void row_begin(struct record_row *row, const struct options *o, const struct run_facts *facts,
               const struct plan_item *item, const char *asked, const char *impl)
{
    const struct attn_problem *p = &item->problem;
    const time_t now = time(NULL);
    struct tm utc;
    memset(row, 0, sizeof *row);
    record_row_clear(row);
    row->schema = RECORD_SCHEMA;
    PUT(row->run_id, facts->run_id);
    if (gmtime_r(&now, &utc))
        strftime(row->time_utc, sizeof row->time_utc, "%Y-%m-%dT%H:%M:%SZ", &utc);
    PUT(row->commit, facts->commit);
    PUT(row->method, RECORD_METHOD);
    PUT(row->device, facts->device.name);
    PUT(row->arch, facts->device.arch);
    PUT(row->driver, facts->device.driver);
    PUT(row->cuda, facts->device.cuda);
    PUT(row->cudnn, facts->cudnn);
    PUT(row->impl, impl);
    PUT(row->asked, asked);
    PUT(row->mode, problem_mode_name(item->mode));
    PUT(row->dtype, problem_dtype_name(p->dtype));
    row->causal = p->causal;
    row->batch = p->batch;
    row->q_heads = p->q_heads;
    row->kv_heads = p->kv_heads;
    row->q_len = p->q_len;
    row->kv_len = p->kv_len;
    row->head_dim = p->head_dim;
    PUT(row->layout, problem_layout_name(p->layout));
    row->window_left = p->window_left;
    row->window_right = p->window_right;
    row->dropout = (double)p->dropout;
    row->scale = (double)p->scale;
    PUT(row->dist, problem_dist_name(item->dist));
    row->seed = (int64_t)item->seed;
    PUT(row->l2, problem_l2_name(o->l2));
    PUT(row->status, row_status_name(STATUS_SKIPPED));
    PUT(row->check, "off");
    PUT(row->check_scope, option_check_name(o->check));
    row->flops = problem_flops(p, item->mode);
    row->min_gb = problem_min_bytes(p, item->mode) * 1e-9;
    row->power_limit_w = facts->power_limit_w;
    plan_repro(o, item, impl, row->repro, sizeof row->repro);
}

void row_end(struct record_row *row, enum record_status status, const char *reason)
{
    PUT(row->status, row_status_name(status));
    PUT(row->reason, reason ? reason : "");
}

void row_times(struct record_row *row, const double *samples_ms, int64_t count, const char *stop,
               const struct row_baselines *baselines)
{
    const struct stats s = stats_of(samples_ms, count);
    row->samples = count;
    row->samples_ms = xmalloc((unsigned long)count * sizeof *row->samples_ms);
    memcpy(row->samples_ms, samples_ms, (size_t)count * sizeof *samples_ms);
    PUT(row->stop, stop);
    row->time_ms = s.median;
    if (count >= 6) { /* fewer samples have no 95 % interval of the median */
        row->time_ms_ci_lo = s.ci_lo;
        row->time_ms_ci_hi = s.ci_hi;
    }
    row->time_ms_min = s.min;
    if (count >= 4 && s.median > 0)
        row->noise_pct = 100 * (s.p75 - s.p25) / s.median;
    if (baselines->gemm_ms)
        row->gemm_tflops = baselines->gemm_flops / stats_of(baselines->gemm_ms, count).median * 1e-9;
    PUT(row->peer, baselines->peer ? baselines->peer : "");
    /* A wrong result has no speed, and null, which computes nothing, neither. */
    if (!strcmp(row->check, "fail") || !strcmp(row->impl, "null") || !(s.median > 0))
        return;
    row->tflops = row->flops / s.median * 1e-9;
    if (baselines->gemm_ms)
        row->pct_of_gemm =
            100 * row->flops / baselines->gemm_flops * stats_paired_ratio(baselines->gemm_ms, samples_ms, count);
    if (baselines->naive_ms)
        row->speedup_vs_naive = stats_paired_ratio(baselines->naive_ms, samples_ms, count);
    if (baselines->peer_ms)
        row->speedup_vs_peer = stats_paired_ratio(baselines->peer_ms, samples_ms, count);
}

void row_telemetry(struct record_row *row, const struct telemetry_region *r)
{
    row->sm_clock_mhz = r->sm_clock_mhz;
    row->temp_c = r->temp_c;
    row->power_capped_pct = r->power_capped_pct;
    row->throttled_pct = r->throttled_pct;
}

void row_sustained(struct record_row *row, const struct sustain_result *s)
{
    const struct telemetry_region *t = &s->telemetry;
    const bool has_counter = isfinite(t->energy_counter_j) && t->energy_counter_j > 0;
    const double energy_j = has_counter ? t->energy_counter_j : t->energy_integral_j;
    if (s->passes <= 0 || !(s->seconds > 0))
        return;
    row->sustain_s = s->seconds;
    row->sustain_passes = s->passes;
    row->sustain_sm_clock_mhz = t->sm_clock_mhz;
    row->sustain_temp_c = t->temp_c;
    row->sustain_power_capped_pct = t->power_capped_pct;
    row->sustain_throttled_pct = t->throttled_pct;
    row->energy_counter_j = t->energy_counter_j;
    row->energy_integral_j = t->energy_integral_j;
    if (isfinite(energy_j)) {
        PUT(row->energy_source, has_counter ? "counter" : "integral");
        row->power_w = energy_j / t->seconds;
        row->energy_j = row->power_w * s->seconds / (double)s->passes;
    }
    if (!strcmp(row->check, "fail"))
        return;
    row->tflops_sustained = row->flops * (double)s->passes / s->seconds * 1e-12;
    if (row->power_w > 0)
        row->tflops_per_w = row->tflops_sustained / row->power_w;
}

/* Among tensors equally far over their bounds the one with values that are not finite (left unwritten) is named. */
static bool is_worse(const struct record_tensor *a, const struct record_tensor *b)
{
    if (a->used == b->used)
        return !strcmp(a->rule, "nonfinite") && strcmp(b->rule, "nonfinite");
    return !(a->used <= b->used);
}

void row_check(struct record_row *row, const struct record_tensor *tensors, int count, enum check_scope scope,
               double atol, double rtol)
{
    const struct record_tensor *worst = NULL;
    PUT(row->check_scope, option_check_name(scope));
    row->tensor_count = count;
    if (count == 0) {
        PUT(row->check, "off");
        return;
    }
    bool passed = true;
    for (int i = 0; i < count; i++) {
        row->tensors[i] = tensors[i];
        passed = passed && tensors[i].used <= 1;
        if (!worst || is_worse(&tensors[i], worst))
            worst = &tensors[i];
    }
    PUT(row->check, passed ? "pass" : "fail");
    row->max_abs_err = worst->max_abs_err;
    row->rel_rms_err = worst->rel_rms_err;
    row->err_ratio = worst->err_ratio;
    row->err_used = worst->used;
    PUT(row->err_tensor, worst->name);
    PUT(row->worst, worst->worst);
    row->atol = atol;
    row->rtol = rtol;
}
