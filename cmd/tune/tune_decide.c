/* The decisions of `fabench tune`, from records alone. */
#include <math.h>
#include <string.h>

#include "cmd/record/record.h"
#include "cmd/record/record_figures.h"
#include "cmd/tune/tune.h"

/* The variant of a row's implementation where that is `impl`; else NULL. */
static const char *variant_of(const struct record_row *row, const char *impl)
{
    const size_t length = strlen(impl);
    const bool is_it = strncmp(row->impl, impl, length) == 0 && row->impl[length] == ':';
    return is_it ? row->impl + length + 1 : NULL;
}

static bool has_passed(const struct record_row *row)
{
    return row->status == STATUS_OK && row->check == CHECKED_PASS && row->time_ms > 0;
}

const struct record_row *tune_fastest(const struct record_file *file, const char *impl)
{
    const struct record_row *best = NULL;
    for (int i = 0; i < file->count; i++) {
        const struct record_row *row = &file->rows[i];
        if (variant_of(row, impl) && has_passed(row) && (!best || row->time_ms < best->time_ms))
            best = row;
    }
    return best;
}

static const struct record_row *row_of(const struct record_file *file, const char *impl, const char *variant)
{
    for (int i = 0; i < file->count; i++) {
        const char *name = variant_of(&file->rows[i], impl);
        if (name && strcmp(name, variant) == 0 && has_passed(&file->rows[i]))
            return &file->rows[i];
    }
    return NULL;
}

double tune_gain_pct(const struct record_file *file, const char *impl, const char *variant, const char *other)
{
    const struct record_row *ours = row_of(file, impl, variant), *theirs = row_of(file, impl, other);
    if (!ours || !theirs)
        return NAN;
    const double paired = record_speedup_over(ours, theirs->impl); /* within the rounds */
    return 100 * ((isnan(paired) ? theirs->time_ms / ours->time_ms : paired) - 1);
}

struct tune_summary tune_summarise(const struct tuned *tuned, const char *impl)
{
    struct tune_summary summary = {0};
    double sum = 0;
    for (int i = 0; i < tuned->count; i++) {
        const struct tuned_choice *choice = &tuned->choices[i];
        if (strcmp(choice->impl, impl) != 0)
            continue;
        const double loss = choice->gain_pct > 0 ? choice->gain_pct : 0; /* NaN: no race */
        summary.problems++;
        summary.kept += strcmp(choice->variant, choice->built_in) != 0;
        summary.above_3_pct += loss > 3;
        summary.above_10_pct += loss > 10;
        sum += log1p(loss / 100);
    }
    summary.geomean_loss_pct = summary.problems ? 100 * expm1(sum / summary.problems) : 0;
    return summary;
}
