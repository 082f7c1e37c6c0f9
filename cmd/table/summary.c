/* Adds up the rows of a run and prints the sums. */
#include "cmd/table/summary.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/program.h"
#include "cmd/base/terminal.h"
#include "cmd/base/text.h"
#include "cmd/device/telemetry.h"
#include "cmd/measure/sustain.h"
#include "cmd/record/record_figures.h"
#include "cmd/record/record_row.h"

void summary_begin(struct summary *s, const char *peer)
{
    memset(s, 0, sizeof *s);
    snprintf(s->peer, sizeof s->peer, "%s", peer ? peer : "");
    s->nearest_used = s->capped_pct = s->throttled_pct = s->power_limit_w = NAN;
    s->temp_low_c = s->temp_high_c = s->clock_low_mhz = s->clock_high_mhz = NAN;
    s->quant_low = INFINITY;
    s->quant_high = -INFINITY;
    s->capped_q_len = s->throttled_q_len = INT64_MIN;
    s->max_failures = INT_MAX;
    s->asked_pct = s->worst_pct = NAN;
    s->load_before = summary_load();
}

static void count_row(struct summary *s, const struct record_row *row)
{
    int *const statuses[] = {[STATUS_OOM] = &s->oom,
                             [STATUS_UNSUPPORTED] = &s->unsupported,
                             [STATUS_SKIPPED] = &s->skipped,
                             [STATUS_ERROR] = &s->error,
                             [STATUS_TIMEOUT] = &s->timeout};
    s->rows++;
    common_add(&s->common, row);
    if (row->status > STATUS_OK)
        ++*statuses[row->status];
    if (row->status != STATUS_OK)
        return;
    if (role_of_name(row->impl) == ATTN_ROLE_NOTHING) { /* computes nothing, so there is nothing to check */
        s->null++;
        return;
    }
    ++*(row->check == CHECKED_PASS ? &s->pass : row->check == CHECKED_FAIL ? &s->fail : &s->off);
    if (row->check < 0 || row->check == CHECKED_OFF || row->check_scope < 0)
        return;
    const char *const scope = problem_scope_name(row->check_scope);
    if (!s->scope[0])
        snprintf(s->scope, sizeof s->scope, "%s", scope);
    else if (strcmp(s->scope, scope) != 0)
        snprintf(s->scope, sizeof s->scope, "mixed");
}

/* Counts a row that was refused, skipped or found no memory, by its implementation and reason. */
static void count_refusal(struct summary *s, const struct record_row *row)
{
    struct summary_refusal *r = s->refusals;
    char impl[sizeof r->impl], reason[sizeof r->reason];
    if (row->status != STATUS_UNSUPPORTED && row->status != STATUS_SKIPPED && row->status != STATUS_OOM)
        return;
    snprintf(impl, sizeof impl, "%s", row->impl);
    text_clean(row->reason, reason, sizeof reason);
    while (r < s->refusals + s->refusal_count &&
           (r->status != row->status || strcmp(r->impl, impl) != 0 || strcmp(r->reason, reason) != 0))
        r++;
    if (r == s->refusals + SUMMARY_REFUSALS_MAX) {
        s->other_refusals++;
        return;
    }
    if (r == s->refusals + s->refusal_count) {
        s->refusal_count++;
        r->status = row->status;
        memcpy(r->impl, impl, sizeof impl);
        memcpy(r->reason, reason, sizeof reason);
    }
    r->count++;
}

/* Adds the speedups over the peer and over naive; not of these two themselves, nor of a failed row. */
static void add_ratios(struct summary *s, const struct record_row *row)
{
    struct summary_impl *impl = NULL;
    const enum attn_role role = role_of_name(row->impl);
    if (role == ATTN_ROLE_NAIVE || role == ATTN_ROLE_NOTHING || strcmp(row->impl, s->peer) == 0 ||
        (row->peer[0] && strcmp(row->impl, row->peer) == 0) || row->check == CHECKED_FAIL)
        return;
    for (int i = 0; i < s->impl_count; i++)
        if (strcmp(s->impls[i].name, row->impl) == 0)
            impl = &s->impls[i];
    if (!impl) {
        if (s->impl_count == SUMMARY_IMPLS_MAX)
            return;
        impl = &s->impls[s->impl_count++];
        snprintf(impl->name, sizeof impl->name, "%s", row->impl);
    }
    impl->row_count++;
    if (isfinite(row->speedup_vs_peer) && row->speedup_vs_peer > 0) {
        impl->peer_log_sum += log(row->speedup_vs_peer);
        impl->peer_count++;
    }
    if (isfinite(row->speedup_vs_naive) && row->speedup_vs_naive > 0) {
        impl->naive_log_sum += log(row->speedup_vs_naive);
        impl->naive_count++;
    }
}

static void add_invariance(struct summary *s, const struct record_row *row)
{
    struct summary_invariance *of = s->invariances;
    if (!row->batch_invariant[0])
        return;
    while (of < s->invariances + s->invariance_count && strcmp(of->name, row->impl) != 0)
        of++;
    if (of == s->invariances + SUMMARY_IMPLS_MAX)
        return;
    if (of == s->invariances + s->invariance_count) {
        s->invariance_count++;
        snprintf(of->name, sizeof of->name, "%s", row->impl);
    }
    if (record_row_is_invariant(row)) {
        of->same++;
    } else if (of->other++ == 0) {
        snprintf(of->first, sizeof of->first, "%s: %s", row->only ? row->only : "", row->batch_invariant + 3);
    }
}

static void add_nearest(struct summary *s, const struct record_row *row)
{
    const int rank = role_of_name(row->impl) == ATTN_ROLE_NAIVE ? 2 : strcmp(row->impl, s->peer) == 0 ? 1 : 0;
    if (row->check != CHECKED_PASS || !isfinite(row->err_used))
        return;
    if (isfinite(s->nearest_used) &&
        (rank != s->nearest_rank ? rank > s->nearest_rank : row->err_used <= s->nearest_used))
        return;
    char length[56], rms[80] = "";
    s->nearest_used = row->err_used;
    s->nearest_rank = rank;
    for (int i = 0; i < row->tensor_count; i++)
        if (strcmp(row->tensors[i].name, row->err_tensor) == 0 && isfinite(row->tensors[i].rel_rms_err) &&
            isfinite(row->tensors[i].rel_rms_bound))
            snprintf(rms, sizeof rms, "; rel. RMS %.2g, bound %.2g", row->tensors[i].rel_rms_err,
                     row->tensors[i].rel_rms_bound);
    snprintf(s->nearest, sizeof s->nearest, "%s %s %s d%lld n=%s %s, %s at %.2g of its bound%s", row->impl,
             problem_mode_name(row->key.mode), row->key.causal == 1 ? "causal" : "full", (long long)row->key.head_dim,
             problem_key_lengths(&row->key, length, sizeof length), problem_dtype_name(row->key.dtype),
             row->worst[0] ? row->worst : row->err_tensor, row->err_used, rms);
}

static void add_sustained(struct summary *s, const struct record_row *row)
{
    if (isnan(row->sustain_s)) {
        s->burst_count += isfinite(row->time_ms) && strncmp(row->arch, "sm_", 3) == 0;
        return;
    }
    s->sustained_count++;
    if (!(row->energy_counter_j > 0) || !(row->energy_integral_j > 0))
        return;
    const double apart_pct = 100 * (row->energy_counter_j / row->energy_integral_j - 1);
    if (s->energy_count++ == 0 || fabs(apart_pct) > fabs(s->energy_apart_pct))
        s->energy_apart_pct = apart_pct;
}

static void add_clock(struct summary *s, double clock_mhz)
{
    s->clock_low_mhz = fmin(s->clock_low_mhz, clock_mhz); /* fmin ignores NaN on either side */
    s->clock_high_mhz = fmax(s->clock_high_mhz, clock_mhz);
}

static void add_device(struct summary *s, const struct record_row *row)
{
    if (isfinite(row->power_capped_pct) && !(row->power_capped_pct <= s->capped_pct)) {
        s->capped_pct = row->power_capped_pct;
        s->capped_q_len = row->key.q_len;
    }
    if (isfinite(row->throttled_pct) && !(row->throttled_pct <= s->throttled_pct)) {
        s->throttled_pct = row->throttled_pct;
        s->throttled_q_len = row->key.q_len;
    }
    add_clock(s, row->sm_clock_mhz);
    add_clock(s, row->sustain_sm_clock_mhz);
    if (isfinite(row->power_limit_w))
        s->power_limit_w = row->power_limit_w;
    if (isfinite(row->temp_c)) {
        s->temp_low_c = fmin(s->temp_low_c, row->temp_c); /* fmin ignores the NaN of "none yet" */
        s->temp_high_c = fmax(s->temp_high_c, row->temp_c);
    }
    if (!isfinite(row->gemm_tflops))
        return;
    for (int i = 0; i < s->gemm_count; i++)
        if (s->gemms[i].dtype == row->key.dtype) {
            s->gemms[i].last_tflops = row->gemm_tflops;
            return;
        }
    if (s->gemm_count < SUMMARY_DTYPES_MAX) {
        struct summary_gemm *gemm = &s->gemms[s->gemm_count++];
        gemm->dtype = row->key.dtype;
        gemm->first_tflops = gemm->last_tflops = row->gemm_tflops;
    }
}

static void add_noise(struct summary *s, const struct record_row *row)
{
    const double half_pct = record_row_half_width_pct(row);
    if (!isfinite(row->time_ms) || role_of_name(row->impl) == ATTN_ROLE_NOTHING)
        return;
    s->timed++;
    if (!summary_is_noisy(row, s->asked_pct))
        return;
    s->noisy++;
    s->worst_pct = fmax(s->worst_pct, half_pct); /* fmax ignores NaN on either side */
}

void summary_add(struct summary *s, const struct record_row *row)
{
    count_row(s, row);
    count_refusal(s, row);
    s->failures += record_row_failed(row);
    if (row->status != STATUS_OK)
        return;
    add_ratios(s, row);
    add_invariance(s, row);
    add_nearest(s, row);
    s->quant_low = fmin(s->quant_low, row->quant_rms_err); /* fmin ignores NaN */
    s->quant_high = fmax(s->quant_high, row->quant_rms_err);
    add_device(s, row);
    add_sustained(s, row);
    add_noise(s, row);
    if (!s->has_boards)
        data_table_add(&s->data, row);
}

void summary_end(struct summary *s) { data_table_free(&s->data); }

/* Prints the text as wrap_words does and frees it. */
static void print_line(struct text *line, FILE *out, int width, int indent, int hang)
{
    wrap_words(out, width, indent, hang, text_string(line));
    text_free(line);
}

static void print_counts(const struct summary *s, FILE *out, int width)
{
    const struct {
        int count;
        const char *name;
    } others[] = {{s->null, "null"},   {s->oom, "oom"},        {s->skipped, "skipped"}, {s->unsupported, "unsupported"},
                  {s->error, "error"}, {s->timeout, "timeout"}};
    struct text line = {0};
    const int checked = s->pass + s->fail;
    text_add(&line, "%d of %d rows checked", checked, s->rows);
    if (s->scope[0])
        text_add(&line, " (%s)", s->scope);
    if (s->fail)
        text_add(&line, ", %d pass, %d FAIL", s->pass, s->fail);
    else if (checked)
        text_add(&line, ", all pass");
    if (s->off)
        text_add(&line, ", %d not checked", s->off);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (others[i].count)
            text_add(&line, ", %d %s", others[i].count, others[i].name);
    text_add(&line, ".");
    print_line(&line, out, width, 0, 2);
}

static void print_refusals(const struct summary *s, FILE *out, int width)
{
    struct text line = {0};
    for (int i = 0; i < s->refusal_count && s->lists_refusals; i++) {
        const struct summary_refusal *r = &s->refusals[i];
        text_add(&line, "%d x %s %s: %s", r->count, r->impl, record_status_names[r->status], r->reason);
        print_line(&line, out, width, 2, 4);
    }
    if (s->other_refusals && s->lists_refusals) {
        text_add(&line, "%d for other reasons, which the record has", s->other_refusals);
        print_line(&line, out, width, 2, 4);
    }
}

static void print_invariances(const struct summary *s, FILE *out, int width)
{
    struct text line = {0};
    for (int i = 0; i < s->invariance_count; i++) {
        const struct summary_invariance *of = &s->invariances[i];
        if (of->other)
            text_add(&line, "%s: other bits in other batches in %d of %d rows, first %s", of->name, of->other,
                     of->same + of->other, of->first);
        else
            text_add(&line, "%s: the same bits in all batches, %d of %d rows", of->name, of->same, of->same);
        print_line(&line, out, width, 0, 2);
    }
}

static void print_ratios(const struct summary *s, FILE *out, int width)
{
    for (int i = 0; i < s->impl_count; i++) {
        const struct summary_impl *impl = &s->impls[i];
        const char *separator = "";
        struct text line = {0};
        if (!impl->peer_count && !impl->naive_count)
            continue;
        text_add(&line, "%s: geomean ", impl->name);
        if (impl->peer_count) {
            text_add(&line, "%.2f x %s over %d row%s", exp(impl->peer_log_sum / impl->peer_count), s->peer,
                     impl->peer_count, impl->peer_count == 1 ? "" : "s");
            separator = ", ";
        }
        if (impl->naive_count)
            text_add(&line, "%s%.2f x naive over %d row%s", separator, exp(impl->naive_log_sum / impl->naive_count),
                     impl->naive_count, impl->naive_count == 1 ? "" : "s");
        if (s->off)
            text_add(&line, " (NOT CHECKED)");
        print_line(&line, out, width, 0, 2);
    }
}

static void print_device(const struct summary *s, FILE *out, int width)
{
    struct text line = {0};
    char length[24];
    const char *separator = "device: ";
    if (isfinite(s->capped_pct)) {
        text_add(&line, "%spower-capped %.0f %%", separator, s->capped_pct);
        if (s->capped_pct > 0)
            text_add(&line, " at %s", number_print_count(s->capped_q_len, length, sizeof length));
        if (isfinite(s->power_limit_w))
            text_add(&line, " (normal at %.0f W)", s->power_limit_w);
        separator = ", ";
    }
    if (isfinite(s->throttled_pct)) {
        text_add(&line, "%sthermal/brake %.0f %%", separator, s->throttled_pct);
        if (s->throttled_pct > 0)
            text_add(&line, " at %s", number_print_count(s->throttled_q_len, length, sizeof length));
        separator = ", ";
    }
    if (isfinite(s->temp_low_c)) {
        text_add(&line, "%s%.0f..%.0f C", separator, s->temp_low_c, s->temp_high_c);
        separator = ", ";
    }
    for (int i = 0; i < s->gemm_count; i++) {
        const struct summary_gemm *gemm = &s->gemms[i];
        const double change_pct = 100 * (gemm->last_tflops / gemm->first_tflops - 1);
        if (fabs(change_pct) < 0.05)
            text_add(&line, "%sGEMM %s %.0f TFLOPS", separator, problem_dtype_name(gemm->dtype), gemm->last_tflops);
        else
            text_add(&line, "%sGEMM %s %.0f -> %.0f TFLOPS in this run (%+.1f%%)", separator,
                     problem_dtype_name(gemm->dtype), gemm->first_tflops, gemm->last_tflops, change_pct);
        separator = ", ";
    }
    if (line.length)
        print_line(&line, out, width, 0, 2);
}

/* A clock that changed by more than this share during the run is reported. */
static const double CLOCKS_MOVED = 0.02;

static void print_clocks(const struct summary *s, FILE *out, int width)
{
    struct text line = {0};
    char command[120];
    if (!s->free_clocks_of[0] || !(s->clock_high_mhz > (1 + CLOCKS_MOVED) * s->clock_low_mhz))
        return;
    text_add(&line, "clocks moved from %.0f to %.0f MHz; to lock them, as root:", s->clock_low_mhz, s->clock_high_mhz);
    print_line(&line, out, width, 0, 2);
    text_add(&line, "%s", telemetry_lock_command(s->free_clocks_of, s->clock_low_mhz, command, sizeof command));
    print_line(&line, out, width, 2, 4);
}

/* Whether the run has sustained figures (power and energy); if not, how long they would take. */
static void print_sustained(const struct summary *s, FILE *out, int width)
{
    enum { SUGGESTED_S = 10 };
    struct text line = {0};
    const double more_s = s->burst_count * (SUGGESTED_S + SUSTAIN_LEAD_S);
    if (s->sustained_count && s->energy_count)
        text_add(&line, "sustained: %d row%s; the device's energy counter is within %.1f %% of integrated power",
                 s->sustained_count, s->sustained_count == 1 ? "" : "s", fabs(s->energy_apart_pct));
    else if (!s->sustained_count && s->burst_count)
        text_add(&line, "burst figures; --sustain-s %d adds sustained TFLOPS, J per pass, TFLOPS/W (~%.0f %s more)",
                 SUGGESTED_S, more_s < 100 ? more_s : more_s / 60, more_s < 100 ? "s" : "min");
    if (line.length)
        print_line(&line, out, width, 0, 2);
}

/* The path without the folder where it lies in it. */
static const char *within(const char *dir, const char *path)
{
    const size_t length = dir ? strlen(dir) : 0;
    if (!length || strncmp(path, dir, length) != 0)
        return path;
    return path[length] == '/' ? path + length + 1 : dir[length - 1] == '/' ? path + length : path;
}

static void print_next(const char *command, FILE *out, int width)
{
    char *line = xasprintf("next: %s", command);
    wrap_command(out, width, 0, line);
    free(line);
}

/* The files that this run wrote, and the command that draws its record where there is something to draw. */
static void print_records(const struct summary *s, const struct summary_files *files, FILE *out, int width)
{
    struct text line = {0};
    if (!files || (!files->dir && !files->csv && !files->jsonl))
        return;
    const char *const paths[] = {files->csv, files->jsonl};
    text_add(&line, "records:");
    if (files->dir)
        text_add(&line, " %s%s", files->dir, files->dir[strlen(files->dir) - 1] == '/' ? "" : "/");
    for (int i = 0; i < 2; i++)
        if (paths[i])
            text_add(&line, " %s", within(files->dir, paths[i]));
    if (files->charts)
        text_add(&line, ", %d chart%s", files->charts, files->charts == 1 ? "" : "s");
    print_line(&line, out, width, 0, 2);
    if (!files->jsonl || !files->may_draw || !s->timed || s->next)
        return;
    text_add(&line, "%s plot", program_name());
    text_add_shell_word(&line, files->jsonl);
    text_add(&line, " --plot term");
    print_next(text_string(&line), out, width);
    text_free(&line);
}

/* "takes no paged cache" -> "paged cache", "computes in fp32 only" as it is; what is longer ends with "..". */
static void short_reason(const char *reason, char *text, size_t size)
{
    static const char *const prefixes[] = {"takes no ", "computes no "};
    for (int i = 0; i < 2; i++)
        if (strncmp(reason, prefixes[i], strlen(prefixes[i])) == 0)
            reason += strlen(prefixes[i]);
    if (snprintf(text, size, "%s", reason) >= (int)size) {
        char *end = text + size - 3;
        while (end > text && end[-1] != ' ')
            end--;
        snprintf(end > text ? end - 1 : text, 3, "..");
    }
}

/* Refused rows with one short reason. */
struct reason_count {
    char text[26];
    int count;
};

static int by_count(const void *left, const void *right)
{
    const struct reason_count *a = left, *b = right;
    return a->count != b->count ? (a->count < b->count) - (a->count > b->count) : strcmp(a->text, b->text);
}

/* ": 40 head dim, 22 cache, 3 others": why rows were refused, the most frequent reasons first, whoever gave them; as
 * many as the line, of at most `width` columns, has room for. */
static void add_reasons(const struct summary *s, int width, struct text *line)
{
    enum { OTHERS = 14 };
    struct reason_count reasons[SUMMARY_REFUSALS_MAX];
    int count = 0, left = s->unsupported;
    for (int i = 0; i < s->refusal_count; i++) {
        struct reason_count now = {.count = s->refusals[i].count};
        int at = 0;
        if (s->refusals[i].status != STATUS_UNSUPPORTED)
            continue;
        short_reason(s->refusals[i].reason, now.text, sizeof now.text);
        while (at < count && strcmp(reasons[at].text, now.text) != 0)
            at++;
        if (at == count)
            reasons[count++] = now;
        else
            reasons[at].count += now.count;
    }
    qsort(reasons, (size_t)count, sizeof reasons[0], by_count);
    for (int i = 0; i < count; i++) {
        char one[48];
        const int length = snprintf(one, sizeof one, "%s%d %s", i ? ", " : ": ", reasons[i].count, reasons[i].text);
        const bool is_last = reasons[i].count == left;
        if ((int)line->length + length + (is_last ? 0 : OTHERS) > width)
            break;
        text_add(line, "%s", one);
        left -= reasons[i].count;
    }
    if (left && left < s->unsupported)
        text_add(line, ", %d other%s", left, left == 1 ? "" : "s");
}

bool summary_verdict(const struct summary *s, int exit_code, int width, struct text *line)
{
    const int ran = s->pass + s->fail + s->off + s->null;
    if (s->fail)
        text_add(line, "FAILED: %d of %d rows", s->fail, s->rows);
    else if (exit_code == EXIT_INTERRUPTED)
        text_add(line, "INTERRUPTED: %d row%s whole", s->rows, s->rows == 1 ? " is" : "s are");
    else if (s->error + s->timeout)
        text_add(line, "ERROR: %d of %d rows did not finish", s->error + s->timeout, s->rows);
    else if (ran == 0 && s->unsupported == s->rows && s->rows) {
        text_add(line, "NOTHING RAN: %d row%s, all refused", s->rows, s->rows == 1 ? "" : "s");
        add_reasons(s, width, line);
    } else if (ran == 0)
        text_add(line, "NOTHING RAN: 0 of %d rows", s->rows);
    else if (exit_code == EXIT_REGRESSION)
        text_add(line, "SLOW BOARD: %d of %d rows passed", s->pass, s->rows);
    else if (exit_code == EXIT_NOT_COMPARABLE)
        text_add(line, "NOT COMPARED: %d of %d rows passed", s->pass, s->rows);
    else if (exit_code != EXIT_OK)
        text_add(line, "INCOMPLETE: %d of %d rows ran", ran, s->rows);
    else if (s->off)
        text_add(line, "NOT CHECKED: %d of %d rows", s->off, s->rows);
    else if (s->unsupported + s->oom + s->skipped == 0)
        text_add(line, "PASS: %d of %d rows", s->pass, s->rows);
    else
        text_add(line, "PASS: %d row%s", s->pass, s->pass == 1 ? "" : "s");
    if (strncmp(text_string(line), "PASS", 4) == 0) {
        if (s->oom)
            text_add(line, ", %d out of memory", s->oom);
        if (s->skipped)
            text_add(line, ", %d skipped", s->skipped);
        if (s->unsupported) {
            text_add(line, ", %d refused", s->unsupported);
            add_reasons(s, width, line);
        }
    }
    return strncmp(text_string(line), "PASS", 4) == 0;
}

double summary_load(void)
{
    double load;
    return getloadavg(&load, 1) == 1 ? load : NAN;
}

bool summary_is_noisy(const struct record_row *row, double asked_pct)
{
    return row->status == STATUS_OK && isfinite(row->time_ms) && isfinite(asked_pct) &&
           !(record_row_half_width_pct(row) <= asked_pct * (1 + 1e-9)); /* NaN: too few samples for an interval */
}

void summary_noise(const struct summary *s, struct text *line)
{
    const double load = summary_load();
    if (!s->noisy)
        return;
    text_add(line, "NOISY: %d of %d, ", s->noisy, s->timed);
    if (isnan(s->worst_pct))
        text_add(line, "too few samples for an interval");
    else if (s->worst_pct > 999)
        text_add(line, "over 999 %%");
    else
        text_add(line, "up to %.*f %%", s->worst_pct < 9.95 ? 1 : 0, s->worst_pct);
    text_add(line, " (asked: %.3g %%)", s->asked_pct);
    if (isfinite(load) && isfinite(s->load_before))
        text_add(line, "; load %.1f -> %.1f on %ld CPUs", s->load_before, load, sysconf(_SC_NPROCESSORS_ONLN));
}

static const char *paint_of(const char *verdict)
{
    return strncmp(verdict, "PASS", 4) == 0           ? "\033[32m"
           : strncmp(verdict, "NOT CHECKED", 11) == 0 ? "\033[33m"
                                                      : "\033[1;31m";
}

/* The last line: the verdict, what is noisy, time and exit code; in two lines where the width is too small. */
static void print_end(const struct summary *s, FILE *out, int width, bool color, double elapsed_s, int exit_code)
{
    enum { END_COLUMNS = 24 }; /* of time and exit code, and the gap before them */
    struct text line = {0}, noise = {0}, end = {0};
    summary_verdict(s, exit_code, width - END_COLUMNS, &line);
    summary_noise(s, &noise);
    if (elapsed_s < 9.95)
        text_add(&end, "%.1f s, exit %d", elapsed_s, exit_code);
    else if (elapsed_s < 120)
        text_add(&end, "%.0f s, exit %d", elapsed_s, exit_code);
    else
        text_add(&end, "%d min %02d s, exit %d", (int)(elapsed_s / 60), (int)elapsed_s % 60, exit_code);
    const bool is_one_line = line.length + noise.length + end.length + 4 <= (size_t)width;
    if (noise.length && !is_one_line)
        wrap_words(out, width, 0, 2, text_string(&noise));
    fprintf(out, "%s%s%s", color ? paint_of(text_string(&line)) : "", text_string(&line), color ? "\033[0m" : "");
    if (noise.length && is_one_line)
        fprintf(out, "; %s%s%s", color ? "\033[33m" : "", text_string(&noise), color ? "\033[0m" : "");
    else if (noise.length)
        fprintf(out, "; %sNOISY: %d%s", color ? "\033[33m" : "", s->noisy, color ? "\033[0m" : "");
    const int used =
        (int)line.length +
        (noise.length ? is_one_line ? 2 + (int)noise.length : snprintf(NULL, 0, "; NOISY: %d", s->noisy) : 0);
    const int gap = width - used - (int)end.length;
    fprintf(out, "%*s%s\n", gap > 2 ? gap : 2, "", text_string(&end));
    text_free(&line);
    text_free(&noise);
    text_free(&end);
}

/* What quantising costs, which no verdict counts. */
static void print_quantising(const struct summary *s, FILE *out, int width)
{
    struct text line = {0};
    if (s->quant_low > s->quant_high)
        return;
    text_add(&line, "quantising the inputs changes O by a relative RMS of %.2g", s->quant_low);
    if (s->quant_high > s->quant_low * 1.01)
        text_add(&line, " to %.2g", s->quant_high);
    print_line(&line, out, width, 0, 2);
}

void summary_print(const struct summary *s, FILE *out, int width, bool color, const struct summary_files *files,
                   double elapsed_s, int exit_code)
{
    struct text line = {0};
    char common[400];
    data_table_print(&s->data, out, width);
    print_counts(s, out, width);
    print_refusals(s, out, width);
    print_invariances(s, out, width);
    print_ratios(s, out, width);
    if (isfinite(s->nearest_used)) {
        text_add(&line, "nearest its bound: %s", s->nearest);
        print_line(&line, out, width, 0, 2);
    }
    print_quantising(s, out, width);
    data_table_print_crossovers(&s->data, out, width);
    print_device(s, out, width);
    print_clocks(s, out, width);
    print_sustained(s, out, width);
    print_records(s, files, out, width);
    if (s->next)
        print_next(s->next, out, width);
    if (s->failures > s->max_failures) {
        text_add(&line, "%d failures, the first %d are shown (--max-failures); ", s->failures, s->max_failures);
        text_add(&line, files && files->jsonl ? "the record has all of them" : "all of them are counted");
        print_line(&line, out, width, 0, 2);
    }
    common_describe(&s->common, common, sizeof common);
    if (common[0]) {
        text_add(&line, "%s", common);
        print_line(&line, out, width, 0, 2);
    }
    print_end(s, out, width, color, elapsed_s, exit_code);
    fflush(out);
}
