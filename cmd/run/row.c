/* Fills the columns of a row from run facts, samples and verdicts. */
#include "cmd/run/row.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd/base/log.h"
#include "cmd/base/stats.h"
#include "cmd/judge/judge.h"
#include "cmd/problem/problem.h"
#include "cmd/record/record_row.h"
#include "cmd/run/executed.h"

#define PUT(field, text) snprintf(field, sizeof(field), "%s", text)

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
    PUT(row->board, facts->board);
    PUT(row->pci, facts->device.pci_bus_id);
    PUT(row->impl, impl);
    PUT(row->asked, asked);
    row->key = plan_item_key(item, o->l2);
    row->status = STATUS_SKIPPED;
    row->check = CHECKED_OFF;
    row->check_scope = o->check;
    row->flops = plan_item_flops(item);
    row->min_gb = problem_min_bytes(p, item->mode, problem_used_keys(p, item->arrays)) * 1e-9;
    if (row->key.mode == MODE_DECODE)
        row->splits = item->splits;
    row->power_limit_w = facts->power_limit_w;
    row->repro = plan_repro(o, item, impl);
    if (o->command == COMMAND_VERIFY && item->name[0])
        row->only = xstrdup(item->name);
}

void row_end(struct record_row *row, enum record_status status, const char *reason)
{
    row->status = status;
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
    if (baselines->read_ms)
        row->read_gb_per_s = baselines->read_gb / stats_of(baselines->read_ms, count).median * 1e3;
    PUT(row->peer, baselines->peer ? baselines->peer : "");
    /* No TFLOPS for a wrong result, nor for null, which computes nothing. */
    if (row->check == CHECKED_FAIL || role_of_name(row->impl) == ATTN_ROLE_NOTHING || !(s.median > 0))
        return;
    row->tflops = row->flops / s.median * 1e-9;
    if (row->key.mode == MODE_DECODE)
        row->gb_per_s = row->min_gb / s.median * 1e3;
    if (baselines->gemm_ms)
        row->pct_of_gemm =
            100 * row->flops / baselines->gemm_flops * stats_paired_ratio(baselines->gemm_ms, samples_ms, count);
    if (baselines->read_ms)
        row->pct_of_read =
            100 * row->min_gb / baselines->read_gb * stats_paired_ratio(baselines->read_ms, samples_ms, count);
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

void row_model(struct record_row *row, const struct traffic *t)
{
    row->model_dram_gb = t->dram_bytes * 1e-9;
    row->model_l2_gb = t->l2_bytes * 1e-9;
    row->model_flop = t->flops;
}

void row_counters(struct record_row *row, const struct counters *c)
{
    row->dram_read_gb = c->values[COUNTER_DRAM_READ] * 1e-9;
    row->dram_write_gb = c->values[COUNTER_DRAM_WRITE] * 1e-9;
    row->l2_gb = c->values[COUNTER_L2] * 1e-9;
    row->tensor_active_pct = c->values[COUNTER_TENSOR_ACTIVE];
    row->flop_done = counters_flop(c);
    if (isfinite(row->flop_done))
        executed_types(c, row->flop_types, sizeof row->flop_types);
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
    if (row->check == CHECKED_FAIL)
        return;
    row->tflops_sustained = row->flops * (double)s->passes / s->seconds * 1e-12;
    if (row->power_w > 0)
        row->tflops_per_w = row->tflops_sustained / row->power_w;
}

void row_failure_repro(struct record_row *row, const struct options *o, const struct plan_item *item)
{
    const char *naive = role_name(ATTN_ROLE_NAIVE);
    bool beside_naive = false, by_repeats = false;
    for (int i = 0; i < row->tensor_count; i++) {
        beside_naive |= !isnan(row->tensors[i].err_ratio) && strcmp(row->impl, naive);
        by_repeats |= !strcmp(row->tensors[i].rule, "repeat");
    }
    char *impls = beside_naive ? xasprintf("%s,%s", row->impl, naive) : xstrdup(row->impl);
    free(row->repro);
    row->repro =
        by_repeats || o->command == COMMAND_VERIFY ? plan_repro_verify(o, item, impls) : plan_repro(o, item, impls);
    free(impls);
}

/* Among tensors with equal shares of their bounds, one with values that are not finite (not written) is named first. */
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
    row->check_scope = scope;
    row->tensor_count = count;
    if (count == 0) {
        row->check = CHECKED_OFF;
        return;
    }
    bool passed = true;
    for (int i = 0; i < count; i++) {
        row->tensors[i] = tensors[i];
        passed = passed && tensors[i].used <= 1;
        if (!worst || is_worse(&tensors[i], worst))
            worst = &tensors[i];
    }
    row->check = passed ? CHECKED_PASS : CHECKED_FAIL;
    row->max_abs_err = worst->max_abs_err;
    row->rel_rms_err = worst->rel_rms_err;
    row->err_ratio = worst->err_ratio;
    row->err_used = worst->used;
    PUT(row->err_tensor, worst->name);
    PUT(row->worst, worst->worst);
    row->atol = atol;
    row->rtol = rtol;
}

void row_withdraw(struct record_row *row, const char *rule, const char *sentence)
{
    struct record_tensor *t = &row->tensors[row->tensor_count ? 0 : row->tensor_count++];
    if (!t->name[0])
        PUT(t->name, problem_tensor_name(row->key.mode == MODE_BWD ? TENSOR_DQ : TENSOR_O));
    t->used = 999;
    PUT(t->rule, rule);
    PUT(t->failure, sentence);
    row->check = CHECKED_FAIL;
    row->err_used = t->used;
    PUT(row->err_tensor, t->name);
    row->tflops = row->gb_per_s = row->pct_of_gemm = row->pct_of_read = NAN;
    row->speedup_vs_naive = row->speedup_vs_peer = NAN;
    row->tflops_sustained = row->tflops_per_w = NAN;
    row->speedups[0] = 0;
}
