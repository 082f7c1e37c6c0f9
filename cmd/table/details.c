/* What stands below a row of the table. */
#include "cmd/table/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/program.h"
#include "cmd/base/terminal.h"
#include "cmd/base/text.h"
#include "cmd/problem/problem.h"

void cell_figure(char *cell, double value)
{
    if (!isfinite(value))
        snprintf(cell, CELL_SIZE, "-");
    else
        snprintf(cell, CELL_SIZE, "%.*f", value >= 9.995 ? 1 : value >= 0.9995 ? 2 : value >= 0.00995 ? 3 : 4, value);
}

static void print_failure_head(FILE *out, int width, const struct record_row *row)
{
    char text[600], mask[CELL_SIZE], n[64];
    const char *separator = " ";
    problem_key_mask(&row->key, mask, sizeof mask);
    int used = snprintf(text, sizeof text, "FAIL %s %s %s d%lld n=%s %s:", row->impl, problem_mode_name(row->key.mode),
                        mask, (long long)row->key.head_dim, problem_key_lengths(&row->key, n, sizeof n),
                        problem_dtype_name(row->key.dtype));
    for (int wanted_pass = 0; wanted_pass < 2; wanted_pass++)
        for (int i = 0; i < row->tensor_count; i++) {
            const struct record_tensor *tensor = &row->tensors[i];
            const bool passed = tensor->used <= 1;
            if (passed != (wanted_pass == 1) || used >= (int)sizeof text)
                continue;
            used += snprintf(text + used, sizeof text - (size_t)used, "%s%s %s", separator, tensor->name,
                             passed ? "" : "fails");
            if (passed && used < (int)sizeof text)
                used += snprintf(text + used, sizeof text - (size_t)used, "%.2f of its bound", tensor->used);
            separator = ", ";
        }
    wrap_words(out, width, 0, 2, text);
}

static void print_failing_tensor(FILE *out, int width, const struct record_tensor *tensor)
{
    char text[sizeof tensor->failure + 16];
    text_clean(strncmp(tensor->failure, "FAIL ", 5) == 0 ? tensor->failure + 5 : tensor->failure, text, sizeof text);
    wrap_words(out, width, 2, 4, text[0] ? text : tensor->name);
    if (!isfinite(tensor->rel_rms_err) || !isfinite(tensor->rel_rms_bound))
        return;
    int used = snprintf(text, sizeof text, "%s: rel. RMS %.2g, bound %.2g", tensor->name, tensor->rel_rms_err,
                        tensor->rel_rms_bound);
    if (isfinite(tensor->block_rms_err))
        snprintf(text + used, sizeof text - (size_t)used, "; worst 64 rows %.2g, bound %.2g", tensor->block_rms_err,
                 2 * tensor->rel_rms_bound);
    wrap_words(out, width, 2, 4, text);
}

void details_failure(FILE *out, int width, const struct record_row *row)
{
    char text[sizeof row->reason];
    print_failure_head(out, width, row);
    for (int i = 0; i < row->tensor_count; i++)
        if (!(row->tensors[i].used <= 1) || row->tensors[i].failure[0])
            print_failing_tensor(out, width, &row->tensors[i]);
    text_clean(row->reason, text, sizeof text);
    if (text[0])
        wrap_words(out, width, 2, 4, text);
    if (row->only)
        fprintf(out, "  key: %s\n", row->only);
    if (isfinite(row->time_ms)) {
        char ms[40];
        snprintf(text, sizeof text, "%s ms is kept, TFLOPS withheld.%s",
                 number_print_short(row->time_ms, ms, sizeof ms),
                 row->repro ? " Again, with the tensors as .npy:" : "");
        wrap_words(out, width, 2, 4, text);
    } else if (row->repro) {
        fprintf(out, "  Again, with the tensors as .npy:\n");
    }
    if (row->repro) {
        char *again = program_command(row->repro), *command = xasprintf("%s --dump bad/", again);
        wrap_command(out, width, 2, command);
        free(command);
        free(again);
    }
}

void details_passes(FILE *out, int width, const struct record_row *row)
{
    char text[256];
    int used = snprintf(text, sizeof text, "%s:", row->impl);
    for (int i = 0; i < row->pass_count && used < (int)sizeof text; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s %s %.3g ms", i ? "," : "", row->passes[i].name,
                         row->passes[i].time_ms);
    wrap_words(out, width, 10, 12, text);
}

void details_samples(FILE *out, int width, const struct record_row *row)
{
    struct text text = {0};
    text_add(&text, "%s: %lld sample%s, stop: %s", row->impl, (long long)row->samples, row->samples == 1 ? "" : "s",
             row->stop[0] ? row->stop : "not recorded");
    if (strcmp(row->stop, "limit") == 0)
        text_add(&text, " (the time limit of the sampling; the intervals asked for were not reached)");
    wrap_words(out, width, 10, 12, text_string(&text));
    text_free(&text);
}

void details_sustained(FILE *out, int width, const struct record_row *row)
{
    char text[256];
    int used = snprintf(text, sizeof text, "sustained %.*f s:", row->sustain_s < 9.95 ? 1 : 0, row->sustain_s);
#define ADD(value, ...) \
    if (isfinite(value) && used < (int)sizeof text) \
    used += snprintf(text + used, sizeof text - (size_t)used, __VA_ARGS__)
    char tflops[CELL_SIZE];
    cell_figure(tflops, row->tflops_sustained);
    ADD(row->tflops_sustained, " %s TFLOPS", tflops);
    ADD(100 * (row->tflops_sustained / row->tflops - 1), " (%+.1f%%)", 100 * (row->tflops_sustained / row->tflops - 1));
    ADD(row->power_w, ", %.0f W", row->power_w);
    ADD(row->energy_j, ", %.3g J/pass", row->energy_j);
    ADD(row->tflops_per_w, ", %.2f TFLOPS/W", row->tflops_per_w);
    ADD(row->sustain_sm_clock_mhz, ", %.0f MHz", row->sustain_sm_clock_mhz);
    ADD(row->sustain_power_capped_pct, ", capped %.0f%%", row->sustain_power_capped_pct);
    ADD(row->sustain_throttled_pct > 0 ? row->sustain_throttled_pct : NAN, ", throttled %.0f%%",
        row->sustain_throttled_pct);
    ADD(row->sustain_temp_c, ", %.0f C", row->sustain_temp_c);
    if (!isfinite(row->power_w) && used < (int)sizeof text)
        snprintf(text + used, sizeof text - (size_t)used, ", no power figures");
#undef ADD
    wrap_words(out, width, 10, 12, text);
}

void details_counters(FILE *out, int width, const struct record_row *row)
{
    char text[400], read[CELL_SIZE], write[CELL_SIZE], l2[CELL_SIZE];
    int used = snprintf(text, sizeof text, "counted:");
#define ADD(value, ...) \
    if (isfinite(value) && used < (int)sizeof text) \
    used += snprintf(text + used, sizeof text - (size_t)used, __VA_ARGS__)
    cell_figure(read, row->dram_read_gb);
    cell_figure(write, row->dram_write_gb);
    cell_figure(l2, row->l2_gb);
    ADD(row->dram_read_gb, " memory %s GB read, %s written", read, write);
    ADD((row->dram_read_gb + row->dram_write_gb) / row->model_dram_gb, " (%.2f x model)",
        (row->dram_read_gb + row->dram_write_gb) / row->model_dram_gb);
    ADD(row->l2_gb, ", L2 %s GB", l2);
    ADD(row->tensor_active_pct, ", tensor cores %.0f%%", row->tensor_active_pct);
    ADD(row->flop_done, ", FLOPs %s, %.3f of the visible pairs'", row->flop_types, row->flop_done / row->flops);
    ADD(row->flop_done / row->model_flop, ", %.3f of its tiles'", row->flop_done / row->model_flop);
#undef ADD
    wrap_words(out, width, 10, 12, text);
}
