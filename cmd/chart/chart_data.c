/* Rows into panels and series. */
#include "cmd/chart/chart_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/text.h"
#include "cmd/record/record_row.h"

struct chart_family chart_family_of(const struct chart_panel *panel)
{
    return (struct chart_family){panel->dtype, panel->mode == MODE_DECODE};
}

const char *chart_unit(const struct chart_set *set, const struct chart_panel *panel)
{
    return set->axis == AXIS_BATCH ? "us" : panel->mode == MODE_DECODE ? "GB/s" : set->unit;
}

const char *chart_kind_name(enum chart_kind kind, struct chart_family family)
{
    static const char *const names[] = {
        [CHART_TFLOPS] = "tflops", [CHART_SUSTAINED] = "sustained", [CHART_SPEEDUP] = "speedup",
        [CHART_MEMORY] = "memory", [CHART_ERROR] = "error",         [CHART_GEMM] = "gemm",
        [CHART_TIME] = "ms",       [CHART_ENERGY] = "joules",       [CHART_QUANTISING] = "quantising",
        [CHART_BYTES] = "bytes",   [CHART_ROOFLINE] = "roofline"};
    return kind == CHART_TFLOPS && family.is_decode ? "bandwidth" : names[kind];
}

int chart_family_panels(const struct chart_set *set, int first)
{
    const struct chart_family family = chart_family_of(&set->panels[first]);
    int count = 1;
    for (; first + count < set->panel_count; count++) {
        const struct chart_family next = chart_family_of(&set->panels[first + count]);
        if (next.dtype != family.dtype || next.is_decode != family.is_decode)
            break;
    }
    return count;
}

void chart_page_name(struct chart_page *page)
{
    const struct chart_family family = chart_family_of(page->panels);
    snprintf(page->name, sizeof page->name, "%s-%s%s",
             page->over_batch ? "us-batch" : chart_kind_name(page->kind, family), family.is_decode ? "decode-" : "",
             problem_dtype_name(family.dtype));
}

static bool is(const char *text, const char *word) { return strcmp(text, word) == 0; }

bool chart_takes_row(const struct record_row *row)
{
    return row->key.mode >= 0 && row->key.dtype >= 0 && (row->key.causal == 0 || row->key.causal == 1) &&
           row->key.head_dim > 0 && row->key.q_len > 0 && row->key.kv_len > 0 &&
           role_of_name(row->impl) != ATTN_ROLE_NOTHING && row->impl[0];
}

bool chart_row_ran(const struct record_row *row)
{
    return row->status == STATUS_OK && isfinite(row->time_ms) && row->time_ms > 0;
}

static bool has_own_lengths(const struct record_row *row)
{
    return row->key.lengths[0] && !is(row->key.lengths, "fixed");
}

static int64_t panel_batch(const struct record_row *row) { return has_own_lengths(row) ? -1 : row->key.batch; }

bool chart_panel_has(const struct chart_panel *panel, const struct record_row *row)
{
    return chart_takes_row(row) && row->key.mode == panel->mode && row->key.dtype == panel->dtype &&
           row->key.causal == panel->causal && row->key.head_dim == panel->head_dim &&
           (!panel->q_heads || (row->key.q_heads == panel->q_heads && row->key.kv_heads == panel->kv_heads)) &&
           (!panel->batch || panel_batch(row) == panel->batch) &&
           (!panel->kv_len || (row->key.kv_len == panel->kv_len && !has_own_lengths(row)));
}

/* ---- styles ---- */

/* Okabe and Ito's palette. An implementation keeps its colour and point from chart to chart; names that are not listed
 * get one by a hash, or the next free one. */
struct style {
    const char *color;
    int point;
};
static const struct {
    const char *impl;
    struct style style;
} known_styles[] = {
    {"fused_sm90", {"#0072B2", 7}}, {"fused_cpu", {"#0072B2", 7}}, {"fused_sm80", {"#56B4E9", 9}},
    {"cudnn", {"#E69F00", 5}},      {"naive", {"#009E73", 13}},    {"fused_v1", {"#D55E00", 15}},
};
static const struct style other_styles[] = {
    {"#CC79A7", 11}, {"#882255", 15}, {"#000000", 7}, {"#999933", 5}, {"#332288", 9}};
enum { OTHER_STYLES = sizeof other_styles / sizeof other_styles[0] };

/* Used where colours belong to files. */
static const struct style file_styles[] = {{"#0072B2", 7},  {"#D55E00", 5},  {"#009E73", 9}, {"#CC79A7", 13},
                                           {"#E69F00", 11}, {"#56B4E9", 15}, {"#000000", 7}};
enum { FILE_STYLES = sizeof file_styles / sizeof file_styles[0] };

const char *chart_file_color(int file) { return file_styles[file % FILE_STYLES].color; }

static void set_style(const struct chart_set *set, struct chart_series *series)
{
    bool is_taken[OTHER_STYLES] = {false};
    /* The dash type shows the file, and a kv_len other than q_len. */
    int dash = series->file % 5 + 1;
    if (set->is_by_file) {
        series->color = chart_file_color(series->file);
        series->point = file_styles[series->file % FILE_STYLES].point;
        series->dash = role_of_name(series->impl) == ATTN_ROLE_NAIVE ? 3
                       : series->kv_len                              ? 4
                                                                     : 1 + 4 * (series->file >= FILE_STYLES);
        return;
    }
    for (const struct chart_series *other = set->series; other < series; other++) {
        if (other->file == series->file && is(other->impl, series->impl))
            dash = dash % 5 + 1;
        if (is(other->impl, series->impl)) {
            series->color = other->color;
            series->point = other->point;
        }
        for (int i = 0; i < OTHER_STYLES; i++)
            is_taken[i] |= other->color == other_styles[i].color;
    }
    series->dash = dash;
    for (size_t i = 0; i < sizeof known_styles / sizeof known_styles[0] && !series->color; i++)
        if (is(known_styles[i].impl, series->impl)) {
            series->color = known_styles[i].style.color;
            series->point = known_styles[i].style.point;
        }
    if (series->color)
        return;
    int slot = (int)(text_hash(series->impl) % OTHER_STYLES);
    for (int i = 0; i < OTHER_STYLES && is_taken[slot]; i++)
        slot = (slot + 1) % OTHER_STYLES;
    series->color = other_styles[slot].color;
    series->point = other_styles[slot].point;
}

/* ---- labels ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static void label_file(const struct record_file *file, int way, char *label, size_t size)
{
    char cut[160];
    if (way == 0)
        text_clean(file->count ? file->rows[0].device : "", label, size);
    else
        text_clean(text_cut_middle(way == 1 ? base_name(file->path) : file->path, cut, sizeof cut), label, size);
    char *end = strrchr(label, '.');
    if (way > 0 && end && is(end, ".jsonl"))
        *end = '\0';
}

/* Labels the files by device, name or path: by the first of these that is different for every file. */
static void label_files(struct chart_set *set)
{
    for (int way = 0; way < 3; way++) {
        bool is_good = true;
        for (int i = 0; i < set->file_count; i++) {
            label_file(&set->files[i], way, set->file_labels[i], sizeof set->file_labels[i]);
            is_good = is_good && set->file_labels[i][0];
            for (int k = 0; k < i; k++)
                is_good = is_good && !is(set->file_labels[i], set->file_labels[k]);
        }
        if (is_good)
            return;
    }
}

/* ", kv 4096", and the inputs where the set has several kinds of them. */
static void describe_series(const struct chart_set *set, const struct chart_series *series, char *text, size_t size)
{
    bool has_others = false, has_other_extras = false;
    char kv[40] = "";
    for (int i = 0; i < set->series_count; i++) {
        has_others |= !is(set->series[i].data, series->data);
        has_other_extras |= !is(set->series[i].extras, series->extras);
    }
    if (series->kv_len)
        snprintf(kv, sizeof kv, ", kv %lld", (long long)series->kv_len);
    has_other_extras &= series->extras[0] != '\0';
    snprintf(text, size, "%s%s%s%s%s", kv, has_others ? ", " : "", has_others ? series->data : "",
             has_other_extras ? ", " : "", has_other_extras ? series->extras : "");
}

static void label_series(const struct chart_set *set, struct chart_series *series)
{
    char what[44 + PROBLEM_DATA_SIZE + sizeof series->extras], file[100];
    text_cut_middle(set->file_labels[series->file], file, sizeof file);
    describe_series(set, series, what, sizeof what);
    if (set->is_by_file)
        snprintf(series->label, sizeof series->label, "%s%s%s", file,
                 role_of_name(series->impl) == ATTN_ROLE_NAIVE ? ", naive" : "", what);
    else if (set->file_count > 1)
        snprintf(series->label, sizeof series->label, "%s%s, %s", series->impl, what, file);
    else
        snprintf(series->label, sizeof series->label, "%s%s", series->impl, what);
}

/* ---- the set ---- */

/* 0 for decode, whose axis is kv_len. */
static int64_t series_kv_len(const struct record_row *row)
{
    if (row->key.mode == MODE_DECODE)
        return 0;
    return row->key.kv_len == row->key.q_len || row->key.total_q > 0 ? 0 : row->key.kv_len;
}

static bool has_mask(const struct record_row *row)
{
    return row->key.block_mask[0] && !is(row->key.block_mask, "none");
}

/* The share of the FLOPs without its block mask that a row has; 1 without a mask. NaN where lengths differ. */
static double density_of(const struct record_row *row)
{
    const struct problem_key *k = &row->key;
    const struct attn_problem dense = {.batch = k->batch,
                                       .q_heads = k->q_heads,
                                       .q_len = k->q_len,
                                       .kv_len = k->kv_len,
                                       .head_dim = k->head_dim,
                                       .causal = k->causal == 1,
                                       .window_left = k->window_left,
                                       .window_right = k->window_right};
    if (!has_mask(row))
        return 1;
    return k->total_q > 0 ? NAN
                          : row->flops / problem_flops(&dense, (enum attn_mode)k->mode, problem_pairs(&dense, NULL));
}

int64_t chart_axis_value(enum chart_axis axis, const struct record_row *row)
{
    if (axis == AXIS_BATCH)
        return row->key.batch;
    if (axis == AXIS_WINDOW)
        return row->key.window_left < 0 ? row->key.kv_len : row->key.window_left > 0 ? row->key.window_left : 1;
    if (axis == AXIS_DENSITY)
        return (int64_t)fmin(100, fmax(1, round(100 * density_of(row)))); /* fmax and fmin leave NaN out */
    return problem_key_length(&row->key);
}

const char *chart_extras(const struct chart_set *set, const struct record_row *row, char *text, size_t size)
{
    char extras[PROBLEM_LABEL_SIZE], longer[PROBLEM_LABEL_SIZE + 24];
    struct problem_key key = row->key;
    key.seed = 0;
    if (set->axis == AXIS_WINDOW)
        key.window_left = -1;
    if (set->axis == AXIS_DENSITY)
        key.block_mask[strcspn(key.block_mask, ":")] = '\0';
    key.lengths[strcspn(key.lengths, ":")] = '\0';
    const char *from = problem_key_extras(&key, extras, sizeof extras);
    if (key.mode == MODE_DECODE && key.q_len > 1) {
        snprintf(longer, sizeof longer, "q %lld%s", (long long)key.q_len, extras);
        from = longer;
    }
    return text_cut_middle(from + (*from == ' '), text, size);
}

bool chart_series_has(const struct chart_set *set, const struct chart_series *series, const struct record_row *row)
{
    char data[PROBLEM_DATA_SIZE], extras[sizeof series->extras];
    return is(row->impl, series->impl) && series_kv_len(row) == series->kv_len &&
           is(problem_key_data(&row->key, data, sizeof data), series->data) &&
           is(chart_extras(set, row, extras, sizeof extras), series->extras);
}

/* Values that occur, as far as one and more than one differ. */
struct spread {
    double value;
    bool has_one, has_several;
};

static void spread_add(struct spread *spread, double value)
{
    if (isnan(value))
        return;
    spread->has_several |= spread->has_one && spread->value != value;
    spread->has_one = true;
    spread->value = value;
}

static enum chart_axis choose_axis(struct chart_set *set, bool over_batch)
{
    struct spread lengths = {0}, windows = {0}, densities = {0}, q_heads = {0}, kv_heads = {0}, batches = {0};
    for (int f = 0; f < set->file_count; f++)
        for (int i = 0; i < set->files[f].count; i++) {
            const struct record_row *row = &set->files[f].rows[i];
            if (!chart_takes_row(row) || !chart_row_ran(row))
                continue;
            spread_add(&lengths, (double)problem_key_length(&row->key));
            spread_add(&windows, (double)row->key.window_left);
            spread_add(&densities, density_of(row));
            if (row->key.mode != MODE_DECODE)
                continue;
            spread_add(&q_heads, (double)row->key.q_heads);
            spread_add(&kv_heads, (double)row->key.kv_heads);
            if (!over_batch || !has_own_lengths(row))
                spread_add(&batches, (double)panel_batch(row));
        }
    set->has_shapes = q_heads.has_several || kv_heads.has_several;
    set->has_batches = batches.has_several;
    if (over_batch)
        return AXIS_BATCH;
    if (lengths.has_several)
        return AXIS_LENGTH;
    return windows.has_several ? AXIS_WINDOW : densities.has_several ? AXIS_DENSITY : AXIS_LENGTH;
}

const char *chart_axis_title(const struct chart_set *set, struct chart_family family)
{
    static const char *const titles[] = {[AXIS_LENGTH] = "sequence length n",
                                         [AXIS_WINDOW] = "window, keys left of the diagonal",
                                         [AXIS_DENSITY] = "share computed, %",
                                         [AXIS_BATCH] = "sequences of a batch"};
    return set->axis == AXIS_LENGTH && family.is_decode ? "keys in the cache" : titles[set->axis];
}

static void add_series(struct chart_set *set, int file, const struct record_row *row)
{
    for (int i = 0; i < set->series_count; i++)
        if (set->series[i].file == file && chart_series_has(set, &set->series[i], row))
            return;
    set->series = xrealloc(set->series, (unsigned long)(set->series_count + 1) * sizeof *set->series);
    struct chart_series *series = &set->series[set->series_count++];
    memset(series, 0, sizeof *series);
    series->file = file;
    series->kv_len = series_kv_len(row);
    problem_key_data(&row->key, series->data, sizeof series->data);
    chart_extras(set, row, series->extras, sizeof series->extras);
    snprintf(series->impl, sizeof series->impl, "%s", row->impl);
}

static void add_panel(struct chart_set *set, const struct record_row *row)
{
    for (int i = 0; i < set->panel_count; i++)
        if (chart_panel_has(&set->panels[i], row))
            return;
    set->panels = xrealloc(set->panels, (unsigned long)(set->panel_count + 1) * sizeof *set->panels);
    struct chart_panel *panel = &set->panels[set->panel_count++];
    memset(panel, 0, sizeof *panel);
    panel->mode = row->key.mode;
    panel->dtype = row->key.dtype;
    panel->causal = row->key.causal;
    panel->head_dim = row->key.head_dim;
    if (row->key.mode != MODE_DECODE)
        return;
    panel->q_heads = set->has_shapes ? row->key.q_heads : 0;
    panel->kv_heads = set->has_shapes ? row->key.kv_heads : 0;
    panel->batch = set->has_batches && set->axis != AXIS_BATCH ? panel_batch(row) : 0;
    panel->kv_len = set->axis == AXIS_BATCH ? row->key.kv_len : 0;
}

static int compare_panels(const void *left, const void *right)
{
    const struct chart_panel *a = left, *b = right;
    if (a->dtype != b->dtype)
        return strcmp(problem_dtype_name(a->dtype), problem_dtype_name(b->dtype));
    if (a->mode != b->mode)
        return a->mode - b->mode;
    if (a->head_dim != b->head_dim)
        return a->head_dim < b->head_dim ? -1 : 1;
    if (a->causal != b->causal)
        return (int)(a->causal - b->causal);
    const int64_t of_a[] = {a->kv_heads, a->q_heads, a->batch < 0 ? INT64_MAX : a->batch, a->kv_len};
    const int64_t of_b[] = {b->kv_heads, b->q_heads, b->batch < 0 ? INT64_MAX : b->batch, b->kv_len};
    for (int i = 0; i < 4; i++)
        if (of_a[i] != of_b[i])
            return of_a[i] < of_b[i] ? -1 : 1;
    return 0;
}

/* Order of the key: our kernels, then others, then naive. */
static int compare_series(const void *left, const void *right)
{
    const struct chart_series *a = left, *b = right;
    const int rank_a = role_of_name(a->impl) == ATTN_ROLE_NAIVE ? 2 : !role_is_fused(a->impl);
    const int rank_b = role_of_name(b->impl) == ATTN_ROLE_NAIVE ? 2 : !role_is_fused(b->impl);
    if (rank_a != rank_b)
        return rank_a - rank_b;
    if (!is(a->impl, b->impl))
        return strcmp(a->impl, b->impl);
    if (a->file != b->file)
        return a->file - b->file;
    if (a->kv_len != b->kv_len)
        return (a->kv_len > b->kv_len) - (a->kv_len < b->kv_len);
    return is(a->data, b->data) ? strcmp(a->extras, b->extras) : strcmp(a->data, b->data);
}

static void name_overlay(struct chart_set *set)
{
    for (int i = 0; set->overlay && i < set->overlay->count; i++) {
        const char *impl = set->overlay->points[i].impl;
        bool is_known = false;
        for (int k = 0; k < set->overlay_count; k++)
            is_known |= is(set->overlay_names[k], impl);
        if (is_known)
            continue;
        set->overlay_names =
            xrealloc(set->overlay_names, (unsigned long)(set->overlay_count + 1) * sizeof *set->overlay_names);
        snprintf(set->overlay_names[set->overlay_count++], sizeof *set->overlay_names, "%s", impl);
    }
}

/* The largest speed in TFLOPS that a page of this set can show. */
static double largest_speed(const struct chart_set *set)
{
    double most = 0;
    for (int f = 0; f < set->file_count; f++)
        for (int i = 0; i < set->files[f].count; i++) {
            const struct record_row *row = &set->files[f].rows[i];
            if (chart_takes_row(row) && chart_row_ran(row) && row->key.mode != MODE_DECODE) /* fmax ignores NaN */
                most =
                    fmax(fmax(most, row->flops / row->time_ms * 1e-9), fmax(row->tflops_sustained, row->gemm_tflops));
        }
    for (int p = 0; p < set->panel_count; p++)
        for (int name = 0; name < set->overlay_count; name++) {
            struct chart_point *points;
            const int count = chart_overlay(set, &set->panels[p], name, &points);
            for (int k = 0; k < count; k++)
                most = fmax(most, points[k].value);
            free(points);
        }
    return most;
}

void chart_set_make(struct chart_set *set, const struct chart_input *input)
{
    const struct record_file *files = input->files;
    const int file_count = input->file_count;
    memset(set, 0, sizeof *set);
    set->files = files;
    set->file_count = file_count;
    set->overlay = input->overlay;
    set->is_by_file = input->labels != NULL;
    set->file_labels = xcalloc((unsigned long)(file_count ? file_count : 1), sizeof *set->file_labels);
    for (int f = 0; set->is_by_file && f < file_count; f++)
        text_clean(input->labels[f], set->file_labels[f], sizeof set->file_labels[f]);
    if (!set->is_by_file)
        label_files(set);
    name_overlay(set);
    set->axis = choose_axis(set, input->over_batch);
    for (int f = 0; f < file_count; f++) {
        set->is_synthetic |= json_is_true(json_object_get(files[f].header, "synthetic"));
        for (int i = 0; i < files[f].count; i++) {
            const struct record_row *row = &files[f].rows[i];
            if (!chart_takes_row(row) || !chart_row_ran(row) ||
                (input->over_batch && (row->key.mode != MODE_DECODE || has_own_lengths(row))))
                continue;
            set->has_unchecked |= row->check != CHECKED_PASS && row->check != CHECKED_FAIL;
            set->has_counts |= isfinite(row->dram_read_gb);
            add_series(set, f, row);
            add_panel(set, row);
        }
    }
    set->unit_scale = 1;
    const bool is_small = largest_speed(set) < 1;
    set->unit = is_small ? "GFLOPS" : "TFLOPS";
    set->unit_scale = is_small ? 1000 : 1;
    if (set->panel_count)
        qsort(set->panels, (size_t)set->panel_count, sizeof *set->panels, compare_panels);
    if (set->series_count)
        qsort(set->series, (size_t)set->series_count, sizeof *set->series, compare_series);
    for (int i = 0; i < set->series_count; i++) {
        set_style(set, &set->series[i]);
        label_series(set, &set->series[i]);
    }
}

void chart_set_free(struct chart_set *set)
{
    free(set->file_labels);
    free(set->series);
    free(set->panels);
    free(set->overlay_names);
    memset(set, 0, sizeof *set);
}
