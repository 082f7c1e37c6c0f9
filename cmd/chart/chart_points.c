/* The points of series, ceilings and bounds, and the words of panels. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/text.h"
#include "cmd/chart/chart_data.h"
#include "cmd/record/record_row.h"

static bool is(const char *text, const char *word) { return strcmp(text, word) == 0; }

/* ---- points ---- */

/* The tensor with the largest ratio of error to bound. LSE is left out: its bound is absolute. */
static const struct record_tensor *worst_tensor(const struct record_row *row)
{
    const struct record_tensor *worst = NULL;
    for (int i = 0; i < row->tensor_count; i++) {
        const struct record_tensor *t = &row->tensors[i];
        if (isfinite(t->rel_rms_err) && t->rel_rms_bound > 0 &&
            (!worst || t->rel_rms_err / t->rel_rms_bound > worst->rel_rms_err / worst->rel_rms_bound))
            worst = t;
    }
    return worst;
}

/* The speed of a row whose launch takes so long. */
static double speed_of(const struct chart_set *set, const struct record_row *row, double time_ms)
{
    return row->key.mode == MODE_DECODE ? row->min_gb / time_ms * 1e3 : set->unit_scale * row->flops / time_ms * 1e-9;
}

/* What a chart of times shows of one. */
static double time_of(const struct chart_set *set, double time_ms)
{
    return set->axis == AXIS_BATCH ? 1e3 * time_ms : time_ms;
}

static double value_of(const struct chart_set *set, enum chart_kind kind, const struct record_row *row)
{
    const struct record_tensor *worst;
    switch (kind) {
    case CHART_TFLOPS: return speed_of(set, row, row->time_ms);
    case CHART_SUSTAINED: return speed_of(set, row, row->flops / row->tflops_sustained * 1e-9);
    case CHART_SPEEDUP: return row->speedup_vs_naive;
    case CHART_MEMORY: return row->workspace_mb;
    case CHART_ERROR:
        worst = worst_tensor(row);
        return worst ? worst->rel_rms_err : is(row->err_tensor, "lse") ? NAN : row->rel_rms_err;
    case CHART_GEMM: return row->key.mode == MODE_DECODE ? row->pct_of_read : row->pct_of_gemm;
    case CHART_TIME: return time_of(set, row->time_ms);
    case CHART_ENERGY: return row->energy_j;
    case CHART_QUANTISING:
        worst = worst_tensor(row);
        return worst ? hypot(row->quant_rms_err, worst->rel_rms_err) : NAN;
    case CHART_BYTES: return row->dram_read_gb + row->dram_write_gb;
    case CHART_ROOFLINE: return row->flops / row->time_ms * 1e-9;
    case CHART_KIND_COUNT: break;
    }
    return NAN;
}

static int compare_points(const void *left, const void *right)
{
    const struct chart_point *a = left, *b = right;
    return (a->n > b->n) - (a->n < b->n);
}

/* The point with this n; a new one, without a value, where there is none yet. */
static struct chart_point *point_at(struct chart_point **points, int *count, int64_t n)
{
    for (int i = 0; i < *count; i++)
        if ((*points)[i].n == n)
            return &(*points)[i];
    *points = xrealloc(*points, (unsigned long)(*count + 1) * sizeof **points);
    struct chart_point *point = &(*points)[(*count)++];
    *point = (struct chart_point){.n = n, .value = NAN, .lo = NAN, .hi = NAN};
    return point;
}

/* Sorts, drops the points without a value and marks the gaps they leave. */
static int sort_and_mark_gaps(struct chart_point *points, int count)
{
    int kept = 0;
    bool is_after_gap = false;
    if (count)
        qsort(points, (size_t)count, sizeof *points, compare_points);
    for (int i = 0; i < count; i++) {
        if (!isfinite(points[i].value)) {
            is_after_gap = true;
            continue;
        }
        points[kept] = points[i];
        points[kept++].is_after_gap = is_after_gap;
        is_after_gap = points[i].is_failed;
    }
    return kept;
}

/* Places a point over the FLOPs of its visible pairs per byte: of those that were counted, else of the model; takes its
 * value away where there are neither. */
static void set_intensity(struct chart_point *point, const struct record_row *row)
{
    const double counted_gb = row->dram_read_gb + row->dram_write_gb;
    point->is_modelled = !(counted_gb > 0);
    point->intensity = row->flops * 1e-9 / (point->is_modelled ? row->model_dram_gb : counted_gb);
    if (!(point->intensity > 0) || !isfinite(point->intensity))
        point->value = NAN;
}

int chart_points(const struct chart_set *set, const struct chart_panel *panel, const struct chart_series *series,
                 enum chart_kind kind, struct chart_point **points)
{
    const struct record_file *file = &set->files[series->file];
    int count = 0;
    *points = NULL;
    for (int i = 0; i < file->count; i++) {
        const struct record_row *row = &file->rows[i];
        if (!chart_panel_has(panel, row) || !chart_series_has(set, series, row))
            continue;
        struct chart_point *point = point_at(points, &count, chart_axis_value(set->axis, row));
        if (!chart_row_ran(row))
            continue;                            /* a gap, unless another row of this case ran */
        point->value = value_of(set, kind, row); /* the last row of a case counts */
        point->lo = point->hi = point->value;
        if (kind == CHART_TFLOPS && row->time_ms_ci_lo > 0 && row->time_ms_ci_hi > 0) {
            point->lo = speed_of(set, row, row->time_ms_ci_hi);
            point->hi = speed_of(set, row, row->time_ms_ci_lo);
        }
        if (kind == CHART_TIME && row->time_ms_ci_lo > 0 && row->time_ms_ci_hi > 0) {
            point->lo = time_of(set, row->time_ms_ci_lo);
            point->hi = time_of(set, row->time_ms_ci_hi);
        }
        point->is_failed = row->check == CHECKED_FAIL;
        if (kind == CHART_ROOFLINE)
            set_intensity(point, row);
    }
    return sort_and_mark_gaps(*points, count);
}

int chart_model(const struct chart_set *set, const struct chart_panel *panel, const struct chart_series *series,
                struct chart_point **points)
{
    const struct record_file *file = &set->files[series->file];
    int count = 0;
    *points = NULL;
    for (int i = 0; i < file->count; i++) {
        const struct record_row *row = &file->rows[i];
        if (chart_panel_has(panel, row) && chart_series_has(set, series, row) && chart_row_ran(row))
            point_at(points, &count, chart_axis_value(set->axis, row))->value = row->model_dram_gb;
    }
    return sort_and_mark_gaps(*points, count);
}

const char *chart_ceiling_name(const struct chart_panel *panel)
{
    return panel->mode == MODE_DECODE ? "read ceiling" : "GEMM ceiling";
}

int chart_ceiling(const struct chart_set *set, const struct chart_panel *panel, int file, struct chart_point **points)
{
    int count = 0;
    *points = NULL;
    for (int i = 0; i < set->files[file].count; i++) {
        const struct record_row *row = &set->files[file].rows[i];
        const double ceiling = panel->mode == MODE_DECODE ? row->read_gb_per_s : set->unit_scale * row->gemm_tflops;
        if (chart_panel_has(panel, row) && chart_row_ran(row) && isfinite(ceiling))
            point_at(points, &count, chart_axis_value(set->axis, row))->value = ceiling;
    }
    return sort_and_mark_gaps(*points, count);
}

int chart_bound(const struct chart_set *set, const struct chart_panel *panel, bool of_naive,
                struct chart_point **points)
{
    int count = 0;
    *points = NULL;
    for (int f = 0; f < set->file_count; f++)
        for (int i = 0; i < set->files[f].count; i++) {
            const struct record_row *row = &set->files[f].rows[i];
            if (!chart_panel_has(panel, row) || !chart_row_ran(row) ||
                (role_of_name(row->impl) == ATTN_ROLE_NAIVE) != of_naive)
                continue;
            const struct record_tensor *worst = worst_tensor(row);
            if (worst)
                point_at(points, &count, chart_axis_value(set->axis, row))->value = worst->rel_rms_bound;
        }
    return sort_and_mark_gaps(*points, count);
}

/* Is there a row of this problem, from any file? */
static bool has_row_of_problem(const struct chart_set *set, const struct chart_panel *panel,
                               const struct overlay_point *point)
{
    for (int f = 0; f < set->file_count; f++)
        for (int i = 0; i < set->files[f].count; i++) {
            const struct record_row *row = &set->files[f].rows[i];
            if (chart_panel_has(panel, row) && chart_row_ran(row) && overlay_fits(point, row))
                return true;
        }
    return false;
}

int chart_overlay(const struct chart_set *set, const struct chart_panel *panel, int name, struct chart_point **points)
{
    int count = 0;
    *points = NULL;
    for (int i = 0; i < set->overlay->count && set->axis == AXIS_LENGTH && panel->mode != MODE_DECODE; i++) {
        const struct overlay_point *point = &set->overlay->points[i];
        if (is(point->impl, set->overlay_names[name]) && has_row_of_problem(set, panel, point))
            point_at(points, &count, point->q_len)->value = set->unit_scale * point->tflops;
    }
    return sort_and_mark_gaps(*points, count);
}

/* ---- words ---- */

const char *chart_panel_title(const struct chart_panel *panel, char *text, size_t size)
{
    char heads[64] = "", rest[48] = "";
    if (panel->q_heads)
        snprintf(heads, sizeof heads, ", %lld on %lld heads", (long long)panel->q_heads, (long long)panel->kv_heads);
    if (panel->batch < 0)
        snprintf(rest, sizeof rest, ", unequal lengths");
    else if (panel->batch || panel->kv_len)
        snprintf(rest, sizeof rest, ", %s %lld", panel->batch ? "batch" : "keys",
                 (long long)(panel->batch ? panel->batch : panel->kv_len));
    snprintf(text, size, "%s %s d=%lld%s%s", problem_mode_name(panel->mode), panel->causal ? "causal" : "full",
             (long long)panel->head_dim, heads, rest);
    return text;
}

static bool is_of_family(const struct record_row *row, struct chart_family family)
{
    return row->key.dtype == family.dtype && (row->key.mode == MODE_DECODE) == family.is_decode;
}

/* Calls `merge` for each drawn row of the family; file -1 = all. */
static void each_row(const struct chart_set *set, int file, struct chart_family family,
                     void (*merge)(void *context, const struct record_row *), void *context)
{
    for (int f = 0; f < set->file_count; f++)
        for (int i = 0; (file < 0 || f == file) && i < set->files[f].count; i++) {
            const struct record_row *row = &set->files[f].rows[i];
            if (chart_takes_row(row) && chart_row_ran(row) && is_of_family(row, family))
                merge(context, row);
        }
}

static void merge_text(char *common, size_t size, const char *text)
{
    if (!common[0])
        text_clean(text, common, size);
    else if (!is(common, text))
        snprintf(common, size, "mixed");
}

struct device_facts {
    char device[64], driver[24], commit[48];
};

static void merge_device(void *context, const struct record_row *row)
{
    struct device_facts *words = context;
    merge_text(words->device, sizeof words->device, row->device);
    merge_text(words->driver, sizeof words->driver, row->driver);
    merge_text(words->commit, sizeof words->commit, row->commit);
}

void chart_device_text(const struct chart_set *set, int file, struct chart_family family, char *text, size_t size)
{
    struct device_facts words = {"", "", ""};
    each_row(set, file, family, merge_device, &words);
    words.commit[12] = '\0'; /* the first digits of the commit hash */
    snprintf(text, size, "%s%s%s%s%s", words.device, words.driver[0] ? ", driver " : "", words.driver,
             words.commit[0] ? ", commit " : "", words.commit);
}

/* -1 = no row yet, -2 = the rows differ. */
static void merge_count(int64_t *common, int64_t value) { *common = *common == -1 || *common == value ? value : -2; }

struct condition_facts {
    int64_t tokens, batch, heads, kv_heads, hidden, head_dim, length;
    char data[PROBLEM_DATA_SIZE], l2[8], layout[8];
    const struct chart_set *set;
    char extras[120]; /* "none" where nothing differs from the default */
};

static int64_t product(int64_t a, int64_t b)
{
    int64_t value;
    return number_multiply(a, b, &value) ? value : -2;
}

static void merge_condition(void *context, const struct record_row *row)
{
    struct condition_facts *words = context;
    char data[PROBLEM_DATA_SIZE], extras[sizeof words->extras];
    chart_extras(words->set, row, extras, sizeof extras);
    merge_text(words->extras, sizeof words->extras, extras[0] ? extras : "none");
    const int64_t len = row->key.mode == MODE_DECODE ? row->key.kv_len : row->key.q_len;
    merge_count(&words->tokens, row->key.total_q > 0 ? row->key.total_q : product(row->key.batch, len));
    merge_count(&words->batch, row->key.batch);
    merge_count(&words->length, problem_key_length(&row->key));
    merge_count(&words->heads, row->key.q_heads);
    merge_count(&words->kv_heads, row->key.kv_heads);
    merge_count(&words->hidden, product(row->key.q_heads, row->key.head_dim));
    merge_count(&words->head_dim, row->key.head_dim);
    merge_text(words->data, sizeof words->data, problem_key_data(&row->key, data, sizeof data));
    merge_text(words->l2, sizeof words->l2, problem_l2_name(row->key.l2));
    merge_text(words->layout, sizeof words->layout, problem_layout_name(row->key.layout));
}

void chart_condition_text(const struct chart_set *set, struct chart_family family, char *text, size_t size)
{
    struct condition_facts w = {
        .tokens = -1, .batch = -1, .heads = -1, .kv_heads = -1, .hidden = -1, .head_dim = -1, .length = -1, .set = set};
    struct text problem = {0};
    each_row(set, -1, family, merge_condition, &w);
    if (w.batch > 0)
        text_add(&problem, "batch %lld", (long long)w.batch);
    else if (w.tokens > 0)
        text_add(&problem, "%lld tokens (batch = tokens / n)", (long long)w.tokens);
    else
        text_add(&problem, "batch varies");
    if (set->axis != AXIS_LENGTH && w.length > 0)
        text_add(&problem, ", n %lld", (long long)w.length);
    if (w.heads > 0 && w.kv_heads == w.heads)
        text_add(&problem, ", %lld head%s", (long long)w.heads, w.heads == 1 ? "" : "s");
    else if (w.heads > 0 && w.kv_heads > 0)
        text_add(&problem, ", %lld heads on %lld kv heads", (long long)w.heads, (long long)w.kv_heads);
    else if (w.hidden > 0)
        text_add(&problem, ", heads x d = %lld", (long long)w.hidden);
    else
        text_add(&problem, ", heads vary");
    const bool has_extras = w.extras[0] && !is(w.extras, "none") && !is(w.extras, "mixed"); /* mixed: in the key */
    snprintf(text, size, "%s, %s%s%s%s%s, inputs %s%s%s", problem_dtype_name(family.dtype), text_string(&problem),
             w.layout[0] ? ", " : "", w.layout, w.l2[0] ? ", L2 " : "", w.l2, w.data, has_extras ? ", " : "",
             has_extras ? w.extras : "");
    text_free(&problem);
}

struct axis_range {
    enum chart_axis axis;
    int64_t least, most;
};

static void merge_axis_range(void *context, const struct record_row *row)
{
    struct axis_range *span = context;
    const int64_t n = chart_axis_value(span->axis, row);
    span->least = n < span->least ? n : span->least;
    span->most = n > span->most ? n : span->most;
}

void chart_axis_range(const struct chart_set *set, struct chart_family family, int64_t *least, int64_t *most)
{
    struct axis_range span = {set->axis, INT64_MAX, 0};
    each_row(set, -1, family, merge_axis_range, &span);
    *least = span.least;
    *most = span.most;
}
