/* Compares the figures of each row. All comparisons are written so that NaN does not agree. */
#include "cmd/record/record_figures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/base/numbers.h"
#include "cmd/base/paths.h"
#include "cmd/base/stats.h"
#include "cmd/problem/problem.h"
#include "cmd/record/record_row.h"

enum { INTERVAL_SAMPLES = 6 };

bool record_row_is_checked(const struct record_row *row)
{
    return row->status == STATUS_OK && row->check == CHECKED_PASS && row->err_used >= 0 && row->err_used <= 1;
}

bool record_row_has_interval(const struct record_row *row)
{
    return row->samples >= INTERVAL_SAMPLES && row->time_ms_ci_lo > 0 && row->time_ms_ci_hi >= row->time_ms_ci_lo;
}

double record_row_half_width_pct(const struct record_row *row)
{
    return row->time_ms_ci_lo > 0 && row->time_ms_ci_hi >= row->time_ms_ci_lo && row->time_ms > 0
               ? 50 * (row->time_ms_ci_hi - row->time_ms_ci_lo) / row->time_ms
               : NAN;
}

static bool is_time(double ms) { return ms >= RECORD_TIME_LEAST_MS && ms <= RECORD_TIME_MOST_MS; }

static bool is_near(double a, double b, double limit_pct) { return fabs(a / b - 1) <= limit_pct / 100; }

static bool has_words(const struct record_row *row, struct reason *why)
{
    const char *const missing = row->status < 0                              ? "status"
                                : row->key.mode < 0                          ? "mode"
                                : row->key.dtype < 0                         ? "dtype"
                                : row->status == STATUS_OK && row->check < 0 ? "check"
                                                                             : NULL;
    if (missing)
        snprintf(why->text, sizeof why->text, "it has no %s", missing);
    return !missing;
}

static bool check_agrees(const struct record_row *row, struct reason *why)
{
    if (row->check != CHECKED_PASS)
        return true;
    if (isnan(row->err_used))
        snprintf(why->text, sizeof why->text, "its check is pass, without an err_used");
    else if (!record_row_is_checked(row))
        snprintf(why->text, sizeof why->text, "its check is pass, its err_used %.6g; must be from 0 to 1",
                 row->err_used);
    else
        return true;
    return false;
}

/* Do two times differ by more than rounding? */
static bool is_other_time(double a, double b)
{
    return fabs(a - b) > RECORD_SAMPLES_LIMIT_PCT / 100 * fmax(fabs(a), fabs(b));
}

static bool samples_agree(const struct record_row *row, struct reason *why)
{
    if (!row->samples_ms || row->samples < 1 || isnan(row->time_ms))
        return true;
    const struct stats s = stats_of(row->samples_ms, row->samples);
    if (is_other_time(row->time_ms, s.median))
        snprintf(why->text, sizeof why->text, "its time_ms is %.6g, its samples_ms have the median %.6g", row->time_ms,
                 s.median);
    else if (!isnan(row->time_ms_min) && is_other_time(row->time_ms_min, s.min))
        snprintf(why->text, sizeof why->text, "its time_ms_min is %.6g, the least of its samples_ms %.6g",
                 row->time_ms_min, s.min);
    else
        return true;
    return false;
}

static bool times_agree(const struct record_row *row, struct reason *why)
{
    const struct {
        const char *name;
        double ms;
    } times[] = {{"time_ms", row->time_ms},
                 {"time_ms_ci_lo", row->time_ms_ci_lo},
                 {"time_ms_ci_hi", row->time_ms_ci_hi},
                 {"time_ms_min", row->time_ms_min}};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        if (!isnan(times[i].ms) && !is_time(times[i].ms)) {
            snprintf(why->text, sizeof why->text, "its %s is %.6g; must be from %g to %g", times[i].name, times[i].ms,
                     RECORD_TIME_LEAST_MS, RECORD_TIME_MOST_MS);
            return false;
        }
    if (!(row->time_ms < row->time_ms_ci_lo) && !(row->time_ms > row->time_ms_ci_hi))
        return samples_agree(row, why);
    snprintf(why->text, sizeof why->text, "its time_ms is %.6g, outside of its interval %.6g to %.6g", row->time_ms,
             row->time_ms_ci_lo, row->time_ms_ci_hi);
    return false;
}

/* An absent window is unbounded, and so is one that is longer than any length. */
static int64_t window_of(int64_t keys) { return keys < 0 || keys > INT32_MAX ? -1 : keys; }

/* Arrays up to this size are made again to count a row's FLOPs. */
enum { RECORD_REMADE_TOKENS = 1 << 17, RECORD_REMADE_HEADS = 256 };

static bool is_given(const char *text, const char *fallback) { return *text && strcmp(text, fallback) != 0; }

/* Visible pairs of sequences of their own lengths, or under a block mask, as the row's texts describe them. NaN where a
 * file describes them, where they are too large to be made again, or where they are of another shape. */
static double pairs_of_arrays(const struct problem_key *k, struct attn_problem *p)
{
    const bool has_lengths = is_given(k->lengths, "fixed"), has_mask = is_given(k->block_mask, "none");
    const int64_t batch = p->batch, longest = p->q_len > p->kv_len ? p->q_len : p->kv_len;
    struct problem_arrays arrays = {0};
    struct reason ignored;
    if (k->lengths[0] == '@' || k->block_mask[0] == '@' || longest > RECORD_REMADE_TOKENS ||
        (has_lengths && k->mode != MODE_DECODE && !(k->total_q > 0 && k->total_q <= RECORD_REMADE_TOKENS)) ||
        (k->mode == MODE_DECODE && k->batch > RECORD_REMADE_TOKENS) || (has_mask && k->mask_block < 8))
        return NAN;
    const bool is_decode = k->mode == MODE_DECODE;
    const bool good =
        (!has_lengths || is_decode ||
         problem_set_lengths(p, &arrays, k->lengths, k->total_q, (uint64_t)k->seed, &ignored)) &&
        (!is_decode || problem_set_cache(p, &arrays, k->lengths, (uint64_t)k->seed, &ignored)) && p->batch == batch &&
        p->q_heads <= RECORD_REMADE_HEADS &&
        (!has_mask || problem_set_block_mask(p, &arrays, k->block_mask, k->mask_block, (uint64_t)k->seed, &ignored));
    const double pairs = good ? problem_pairs(p, &arrays) : NAN;
    problem_arrays_free(&arrays);
    return pairs;
}

/* The FLOPs of the shape in the row; NaN where the shape is none. Where its arrays cannot be made again they are those
 * that the row says, unless a dense problem with these longest lengths has not half as many. */
static double flops_of_shape(const struct record_row *row)
{
    const struct problem_key *k = &row->key;
    const int64_t sizes[] = {k->batch, k->q_heads, k->q_len, k->kv_len, k->head_dim};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i] < 1 || sizes[i] > INT32_MAX)
            return NAN;
    struct attn_problem problem = {.batch = k->batch,
                                   .q_heads = k->q_heads,
                                   .q_len = k->q_len,
                                   .kv_len = k->kv_len,
                                   .head_dim = k->head_dim,
                                   .v_head_dim = k->v_head_dim > 0 && k->v_head_dim <= INT32_MAX ? k->v_head_dim : 0,
                                   .causal = k->causal == 1,
                                   .window_left = window_of(k->window_left),
                                   .window_right = window_of(k->window_right)};
    const double dense = problem_flops(&problem, problem_direction(k->mode), problem_pairs(&problem, NULL));
    if (!is_given(k->lengths, "fixed") && !is_given(k->block_mask, "none"))
        return dense;
    const double pairs = pairs_of_arrays(k, &problem);
    if (!isnan(pairs))
        return problem_flops(&problem, problem_direction(k->mode), pairs);
    return row->flops >= 0 && row->flops <= 2 * dense ? row->flops : NAN;
}

static bool speeds_agree(const struct record_row *row, double flops, struct reason *why)
{
    const double tflops = flops / row->time_ms * 1e-9;
    if (!isnan(row->flops) && !is_near(row->flops, flops, RECORD_TFLOPS_LIMIT_PCT))
        snprintf(why->text, sizeof why->text, "its flops are %.6g, its shape makes %.6g", row->flops, flops);
    else if (!isnan(row->gb_per_s) &&
             !is_near(row->gb_per_s, row->min_gb / row->time_ms * 1e3, RECORD_TFLOPS_LIMIT_PCT))
        snprintf(why->text, sizeof why->text, "its gb_per_s is %.6g, its min_gb %.6g and its time_ms %.6g make %.6g",
                 row->gb_per_s, row->min_gb, row->time_ms, row->min_gb / row->time_ms * 1e3);
    else if (!isnan(row->tflops) && !is_near(row->tflops, tflops, RECORD_TFLOPS_LIMIT_PCT))
        snprintf(why->text, sizeof why->text, "its tflops is %.6g, its shape and its time_ms %.6g make %.6g",
                 row->tflops, row->time_ms, tflops);
    else
        return true;
    return false;
}

static double share_limit_pct(const struct record_row *row)
{
    if (row->samples < INTERVAL_SAMPLES)
        return RECORD_SHARE_LIMIT_FEW_PCT;
    return fmin(fmax(RECORD_SHARE_LIMIT_PCT, row->noise_pct / 2), RECORD_SHARE_LIMIT_MOST_PCT); /* fmax ignores NaN */
}

static bool share_agrees(const struct record_row *row, double flops, struct reason *why)
{
    const double tflops = flops / row->time_ms * 1e-9, share = 100 * tflops / row->gemm_tflops;
    if (isnan(row->pct_of_gemm))
        return true;
    if (isnan(row->gemm_tflops))
        snprintf(why->text, sizeof why->text, "its pct_of_gemm is %.6g, without a gemm_tflops", row->pct_of_gemm);
    else if (!(row->gemm_tflops > 0) || !is_near(row->pct_of_gemm, share, share_limit_pct(row)))
        snprintf(why->text, sizeof why->text,
                 "its pct_of_gemm is %.6g, its shape, its time_ms %.6g and gemm_tflops %.6g make %.6g",
                 row->pct_of_gemm, row->time_ms, row->gemm_tflops, share);
    else
        return true;
    return false;
}

/* How large it is is not compared: a mean over rounds and a quotient of medians can differ by any factor where launches
 * of microseconds are measured on a machine that does other things. No decision depends on it. */
static bool read_agrees(const struct record_row *row, struct reason *why)
{
    if (isnan(row->pct_of_read) || (row->gb_per_s > 0 && row->read_gb_per_s > 0))
        return true;
    snprintf(why->text, sizeof why->text, "its pct_of_read is %.6g, without a gb_per_s or a read_gb_per_s",
             row->pct_of_read);
    return false;
}

static bool row_agrees(const struct record_row *row, struct reason *why)
{
    if (!has_words(row, why))
        return false;
    if (row->status != STATUS_OK || role_of_name(row->impl) == ATTN_ROLE_NOTHING)
        return true;
    if (!check_agrees(row, why) || !times_agree(row, why))
        return false;
    if (isnan(row->time_ms))
        return true;
    const double flops = flops_of_shape(row);
    if (!isnan(flops))
        return speeds_agree(row, flops, why) && share_agrees(row, flops, why) && read_agrees(row, why);
    snprintf(why->text, sizeof why->text, "it has a time_ms, and no shape to compute FLOPs from");
    return false;
}

/* Asks a question about every row; the sentence names the first one that fails. */
static bool all_agree(const struct record_file *file, bool (*agrees)(const struct record_row *, struct reason *),
                      struct attn_message *why)
{
    for (int i = 0; i < file->count; i++) {
        const struct record_row *row = &file->rows[i];
        struct reason reason;
        char label[PROBLEM_LABEL_SIZE];
        if (agrees(row, &reason))
            continue;
        snprintf(why->text, sizeof why->text, "%s, row %d (%s of %s): %.180s", path_shown(file->path).text, i + 1,
                 problem_key_label(&row->key, label, sizeof label), row->impl[0] ? row->impl : "no implementation",
                 reason.text);
        return false;
    }
    return true;
}

bool record_file_agrees(const struct record_file *file, struct attn_message *why)
{
    return all_agree(file, row_agrees, why);
}

bool record_file_samples_agree(const struct record_file *file, struct attn_message *why)
{
    return all_agree(file, samples_agree, why);
}

double record_speedup_over(const struct record_row *row, const char *impl)
{
    const size_t length = strlen(impl);
    for (const char *word = row->speedups; *word;) {
        const size_t size = strcspn(word, " ");
        char text[40];
        double speed = NAN;
        if (size > length + 1 && strncmp(word, impl, length) == 0 && word[length] == '=') {
            snprintf(text, sizeof text, "%.*s", size - length - 1 < sizeof text ? (int)(size - length - 1) : 0,
                     word + length + 1);
            return number_parse_real(text, &speed) && speed > 0 ? speed : NAN;
        }
        word += size + (word[size] == ' ');
    }
    return strcmp(row->peer, impl) == 0 ? row->speedup_vs_peer : NAN;
}
