/* The data of charts: record rows grouped into panels (one problem family each) and series (one line each), with labels
 * and styles. It draws nothing. */
#ifndef FABENCH_CHART_DATA_H
#define FABENCH_CHART_DATA_H

#include "cmd/base/impl_name.h"
#include "cmd/chart/overlay.h"
#include "cmd/options/options.h"
#include "cmd/record/record.h"
#include "cmd/record/record_file.h"

enum chart_kind {
    CHART_TFLOPS,
    CHART_SUSTAINED,
    CHART_SPEEDUP,
    CHART_MEMORY,
    CHART_ERROR,
    CHART_USUAL_KINDS, /* are drawn where no kind is named */
    CHART_GEMM = CHART_USUAL_KINDS,
    CHART_TIME,
    CHART_ENERGY,
    CHART_QUANTISING,
    CHART_BYTES, /* this and the next are drawn without being named where rows were counted (--counters) */
    CHART_ROOFLINE,
    CHART_KIND_COUNT
};

/* What is to be drawn; the caller owns all of it. */
struct chart_input {
    const struct record_file *files;
    int file_count;
    /* NULL: files are labelled by what differs between them, and colours belong to implementations. Else the labels of
     * the files, one line each: colours belong to files, and labels do not name the implementation (unless it is
     * naive). */
    const char *const *labels;
    const struct overlay *overlay; /* published points, or NULL */
    const bool *kinds;             /* by enum chart_kind; NULL: the usual ones */
    enum plot_layout layout;
    bool over_batch; /* decode alone, with the batch on the axis and times in us */
};

/* What the horizontal axis shows. Where all problems have one length, and several windows or block masks, the
 * length would be one point. */
enum chart_axis {
    AXIS_LENGTH,  /* the sequence length, or the mean of several */
    AXIS_WINDOW,  /* keys left of the diagonal; the key length where the window is unbounded */
    AXIS_DENSITY, /* the share of the FLOPs that the block mask leaves, in per cent; 100 without one */
    AXIS_BATCH,   /* sequences; see chart_input.over_batch */
};

/* One line of every panel: an implementation in a file. */
struct chart_series {
    int file;
    char impl[IMPL_NAME_SIZE];
    int64_t kv_len;               /* kv_len where it is not q_len, else 0 */
    char data[PROBLEM_DATA_SIZE]; /* the inputs, as problem_key_data says */
    char extras[120];             /* what else is not the default, but for what the axis shows; "" = nothing */
    char label[400];
    const char *color; /* "#0072B2" */
    int point, dash;   /* gnuplot's numbers: filled point (its hollow twin is point - 1), dash type */
};

/* One set of axes. */
struct chart_panel {
    int mode, dtype; /* as in struct problem_key */
    int64_t causal, head_dim;
    /* Of decode, where the set has more than one; 0 = all. batch -1: lengths of their own. kv_len: over the batch. */
    int64_t q_heads, kv_heads, batch, kv_len;
};

/* What the panels of a page share: dtype and unit. The speed of decode, whose time is that of reading, is in GB/s. */
struct chart_family {
    int dtype;
    bool is_decode;
};
struct chart_family chart_family_of(const struct chart_panel *);

struct chart_set {
    const struct record_file *files; /* owned by the caller, like overlay */
    int file_count;
    bool is_by_file; /* the caller named the files */
    const struct overlay *overlay;
    char (*overlay_names)[IMPL_NAME_SIZE]; /* the implementations in it */
    int overlay_count;
    char (*file_labels)[160];
    struct chart_series *series;
    int series_count;
    enum chart_axis axis;
    struct chart_panel *panels; /* sorted: dtype, mode (fwd first, decode last), head_dim, mask (full first) */
    int panel_count;
    bool has_shapes, has_batches; /* decode with more than one pair of head counts; batch */
    bool is_synthetic, has_unchecked;
    bool has_counts; /* bytes that the hardware counted */
    /* The unit of speed but of decode: TFLOPS, or GFLOPS where every speed is below 1 TFLOPS. unit_scale: how many make
     * 1 TFLOPS. */
    const char *unit;
    double unit_scale;
};

void chart_set_make(struct chart_set *, const struct chart_input *);
void chart_set_free(struct chart_set *);

/* The unit of speed in a panel, over the batch that of time. */
const char *chart_unit(const struct chart_set *, const struct chart_panel *);

/* True for rows of problems that a panel can show; a row that did not run is a gap in its line. */
bool chart_takes_row(const struct record_row *);
bool chart_row_ran(const struct record_row *);
bool chart_panel_has(const struct chart_panel *, const struct record_row *);
bool chart_series_has(const struct chart_set *, const struct chart_series *, const struct record_row *);
/* Where a row lies on the axis. */
int64_t chart_axis_value(enum chart_axis, const struct record_row *);
/* What is not the default, but for what the axis shows: of lengths their kind, because their mean is on the axis. Of
 * decode also q_len where it is not 1, because kv_len is on the axis. */
const char *chart_extras(const struct chart_set *, const struct record_row *, char *text, size_t size);

/* One point of a series. A failed point has the value that its time would give. */
struct chart_point {
    int64_t n;            /* where it lies on the axis */
    double value, lo, hi; /* speeds in chart_unit; the interval of the median; equal to value where there is none */
    double intensity;     /* CHART_ROOFLINE: FLOPs per byte of device memory */
    bool is_modelled;     /* its bytes are the model's, as none were counted */
    bool is_failed;
    bool is_after_gap; /* a row between this point and the previous one did not run: the line is interrupted */
};

/* The points of one series in one panel, by rising n, in *points (malloc'd; the caller frees). */
int chart_points(const struct chart_set *, const struct chart_panel *, const struct chart_series *, enum chart_kind,
                 struct chart_point **points);

/* The model of CHART_BYTES, for all rows that have one. */
int chart_model(const struct chart_set *, const struct chart_panel *, const struct chart_series *,
                struct chart_point **points);

/* The lines that points are compared with in a panel: GEMM or read ceiling of one file (CHART_TFLOPS), the bound of the
 * rel. RMS error, or naive's wider one (CHART_ERROR). */
int chart_ceiling(const struct chart_set *, const struct chart_panel *, int file, struct chart_point **points);
const char *chart_ceiling_name(const struct chart_panel *); /* "GEMM ceiling" */
int chart_bound(const struct chart_set *, const struct chart_panel *, bool of_naive, struct chart_point **points);

/* The published points of overlay_names[name] that have a row of the same problem in this panel, by rising n. */
int chart_overlay(const struct chart_set *, const struct chart_panel *, int name, struct chart_point **points);

/* The colour of a file's lines where colours belong to files. */
const char *chart_file_color(int file);

/* "bwd causal d=128"; of several panels of decode "decode causal d=128, 32 on 8 heads, batch 8" */
const char *chart_panel_title(const struct chart_panel *, char *text, size_t size);

/* The conditions that the rows of one family share, for one file: "NVIDIA H200, driver 580.65, commit 4e1c09a" and
 * "16384 tokens, heads x d = 2048, L2 cold, N(0,1)"; "mixed" where they do not share one. */
void chart_device_text(const struct chart_set *, int file, struct chart_family, char *text, size_t size);
void chart_condition_text(const struct chart_set *, struct chart_family, char *text, size_t size);

/* "sequence length n", for the axis. */
const char *chart_axis_title(const struct chart_set *, struct chart_family);

/* The ends of the axis of this family. */
void chart_axis_range(const struct chart_set *, struct chart_family, int64_t *least, int64_t *most);

/* One image: panels of one family, `columns` beside each other, one key and one title for all. */
struct chart_page {
    enum chart_kind kind;
    const struct chart_panel *panels;
    int panel_count, columns;
    char name[128]; /* of the files, without an ending */
    bool over_batch;
};

/* The name of a kind as files have it: tflops sustained speedup memory error gemm ms joules bytes roofline; bandwidth
 * in place of tflops. */
const char *chart_kind_name(enum chart_kind, struct chart_family);

/* How many panels from this one on have its family. */
int chart_family_panels(const struct chart_set *, int first);

/* Names a page of all panels of a family: "tflops-bf16", "bandwidth-decode-bf16". */
void chart_page_name(struct chart_page *);

#endif
