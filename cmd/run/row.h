/* Makes record rows from run facts, samples and verdicts. Pure. */
#ifndef FABENCH_ROW_H
#define FABENCH_ROW_H

#include "cmd/device/backend.h"
#include "cmd/device/counters.h"
#include "cmd/plan/plan.h"
#include "cmd/record/record.h"
#include "cmd/measure/sustain.h"
#include "cmd/run/traffic.h"

/* Facts that all rows of a run share. */
struct run_facts {
    char run_id[40], commit[48], cudnn[16], board[16];
    struct device_info device;
    double power_limit_w;
};

/* Starts a row with everything that is known before the case runs: identity, problem, policy, repro. status is
 * "skipped". `asked` is the slot's name, impl the implementation it resolved to. */
void row_begin(struct record_row *, const struct options *, const struct run_facts *, const struct plan_item *,
               const char *asked, const char *impl);

/* Sets the status, with the reason. */
void row_end(struct record_row *, enum record_status, const char *reason);

/* Fills the timing columns from samples. The row's check must be final: a failed row gets no tflops. gemm_ms, read_ms,
 * naive_ms, peer_ms: samples of the same rounds, or NULL; gemm_flops, read_gb (1e9 bytes): of one launch. */
struct row_baselines {
    const double *gemm_ms, *read_ms, *naive_ms, *peer_ms;
    double gemm_flops, read_gb;
    const char *peer;
};
void row_times(struct record_row *, const double *samples_ms, int64_t count, const char *stop,
               const struct row_baselines *);

/* Fills the device's telemetry over the problem's rounds, the same for all its rows. */
void row_telemetry(struct record_row *, const struct telemetry_region *);

/* Fills the columns of the model, and those of what was counted, whose row's check must not be final. */
void row_model(struct record_row *, const struct traffic *);
void row_counters(struct record_row *, const struct counters *);

/* Fills the sustained columns. The row's check must be final: a failed row keeps its power and has no speed. */
void row_sustained(struct record_row *, const struct sustain_result *);

/* Fills the check columns from the tensors' verdicts (copied into the row). */
void row_check(struct record_row *, const struct record_tensor *, int count, enum check_scope, double atol,
               double rtol);

/* Changes the repro of a row that failed its check, so that it fails again. It brings naive along where the row was
 * compared with it, and is a verify command where the bits of repeated launches differed. */
void row_failure_repro(struct record_row *, const struct options *, const struct plan_item *);

/* A row that passed, fails after all: by this rule, with this sentence. It keeps its time and has no figures of speed.
 */
void row_withdraw(struct record_row *, const char *rule, const char *sentence);

#endif
