/* Quantities derived from a problem; pure arithmetic. */
#include "cmd/problem/problem.h"

#include <stdio.h>
#include <string.h>

#include "cmd/base/numbers.h"

static const struct {
    const char *name, *title;
    unsigned bit; /* enum attn_output */
} tensors[TENSOR_COUNT] = {
    [TENSOR_Q] = {"q", "Q", 0},
    [TENSOR_K] = {"k", "K", 0},
    [TENSOR_V] = {"v", "V", 0},
    [TENSOR_O] = {"o", "O", ATTN_O},
    [TENSOR_DO] = {"do", "dO", 0},
    [TENSOR_DQ] = {"dq", "dQ", ATTN_DQ},
    [TENSOR_DK] = {"dk", "dK", ATTN_DK},
    [TENSOR_DV] = {"dv", "dV", ATTN_DV},
    [TENSOR_LSE] = {"lse", "LSE", ATTN_LSE},
    [TENSOR_DSINK] = {"dsink", "dSink", ATTN_DSINK},
    [TENSOR_BIAS] = {"bias", "bias", 0},
    [TENSOR_DBIAS] = {"dbias", "dBias", ATTN_DBIAS},
};

const char *problem_tensor_name(enum problem_tensor tensor) { return tensors[tensor].name; }
unsigned problem_tensor_bit(enum problem_tensor tensor) { return tensors[tensor].bit; }

const char *problem_tensor_title(const char *name)
{
    for (int t = 0; t < TENSOR_COUNT; t++)
        if (strcmp(tensors[t].name, name) == 0)
            return tensors[t].title;
    return name;
}

const enum problem_tensor *problem_outputs(const struct attn_problem *p, enum attn_mode mode, int *count)
{
    static const enum problem_tensor forward[] = {TENSOR_O, TENSOR_LSE};
    static const enum problem_tensor backward[2][5] = {{TENSOR_DQ, TENSOR_DK, TENSOR_DV, TENSOR_DBIAS},
                                                       {TENSOR_DQ, TENSOR_DK, TENSOR_DV, TENSOR_DSINK, TENSOR_DBIAS}};
    *count = mode == ATTN_FWD ? 2 : 3 + p->has_sink + (p->bias_heads > 0);
    return mode == ATTN_FWD ? forward : backward[p->has_sink];
}

unsigned problem_wanted_outputs(const struct attn_problem *p, enum attn_mode mode)
{
    int count;
    unsigned bits = 0;
    const enum problem_tensor *outputs = problem_outputs(p, mode, &count);
    for (int i = 0; i < count; i++)
        bits |= problem_tensor_bit(outputs[i]);
    return bits == attn_default_outputs(mode) ? 0 : bits;
}

bool problem_is_array(enum problem_tensor tensor) { return tensor == TENSOR_LSE || tensor == TENSOR_DSINK; }

/* The sum of clamp(x, 0, most) over the whole numbers x <= last. */
static double sum_clamped(double last, double most)
{
    const double rising = last < most ? last : most;
    return last <= 0 ? 0 : 0.5 * rising * (rising + 1) + (last - rising) * most;
}

/* The number of keys up to `offset` behind the diagonal, summed over the rows. */
static double keys_up_to(const struct attn_problem *p, double offset)
{
    const double last = (double)p->kv_len + offset;
    return sum_clamped(last, (double)p->kv_len) - sum_clamped(last - (double)p->q_len, (double)p->kv_len);
}

double problem_visible_pairs(const struct attn_problem *p)
{
    if (p->causal && p->q_len == p->kv_len && p->window_left < 0)
        return 0.5 * (double)p->q_len * (double)p->kv_len;
    /* attn_visible, summed over the rows: the keys up to the last visible one, less those before the first. */
    const int64_t after = p->causal ? 0 : p->window_right;
    const double up_to_last = after < 0 ? (double)p->q_len * (double)p->kv_len : keys_up_to(p, (double)after);
    return up_to_last - (p->window_left < 0 ? 0 : keys_up_to(p, -1 - (double)p->window_left));
}

int64_t problem_all_rows(const struct attn_problem *p)
{
    return attn_rows_are_packed(p) ? p->total_q : p->batch * p->q_len;
}

int64_t problem_all_keys(const struct attn_problem *p)
{
    return p->lengths == ATTN_PACKED ? p->total_k : p->batch * p->kv_len;
}

enum problem_mode problem_mode_of(const struct attn_problem *p, enum attn_mode mode)
{
    return p->lengths == ATTN_CACHE ? MODE_DECODE : (enum problem_mode)mode;
}

enum attn_mode problem_direction(int mode) { return mode == MODE_BWD ? ATTN_BWD : ATTN_FWD; }

double problem_flops(const struct attn_problem *p, enum attn_mode mode, double pairs)
{
    const double qk = (double)p->head_dim, v = (double)attn_v_head_dim(p);
    return mode == ATTN_FWD ? 2 * (qk + v) * pairs : 2 * (3 * qk + 2 * v) * pairs;
}

/* Bytes of the tensors that a launch of a direction moves. */
struct tensor_bytes {
    double q, o, k, v, lse, bias;
};

static struct tensor_bytes bytes_of(const struct attn_problem *p, double keys)
{
    const double rows = (double)problem_all_rows(p), v_dim = (double)attn_v_head_dim(p);
    struct tensor_bytes bytes = {.lse = (double)p->q_heads * rows * 4};
    bytes.q = (double)p->q_heads * rows * (double)p->head_dim * (double)attn_dtype_bytes(p->dtype);
    bytes.o = (double)p->q_heads * rows * v_dim * (double)attn_dtype_bytes(attn_output_dtype(p));
    const double k_column = (double)p->kv_heads * keys * (double)attn_dtype_bytes(attn_kv_dtype(p));
    bytes.k = k_column * (double)p->head_dim;
    bytes.v = attn_v_is_in_k(p) ? 0 : k_column * v_dim;
    bytes.bias = (double)p->bias_batch * (double)p->bias_heads * (double)p->q_len * (double)p->kv_len *
                 (double)attn_dtype_bytes(p->bias_dtype);
    return bytes;
}

double problem_needed_bytes(const struct attn_problem *p, enum attn_mode mode, double keys)
{
    const struct tensor_bytes b = bytes_of(p, keys);
    const bool sees_all = !p->causal && p->lengths == ATTN_FIXED;
    return b.q + b.k + b.v + (sees_all ? b.bias : 0) + (mode == ATTN_BWD ? b.o : 0);
}

double problem_min_bytes(const struct attn_problem *p, enum attn_mode mode, double keys)
{
    const struct tensor_bytes b = bytes_of(p, keys);
    /* fwd: Q K V bias -> O LSE.  bwd: Q K V bias O LSE dO -> dQ dK dV dBias. */
    return mode == ATTN_FWD ? b.q + b.o + b.k + b.v + b.lse + b.bias
                            : 2 * (b.q + b.o) + 2 * (b.k + b.v) + b.lse + 2 * b.bias;
}

bool problem_has_blind_rows(const struct attn_problem *p)
{
    for (int64_t i = 0; i < p->q_len; i++) {
        int64_t first, last;
        attn_visible(p, i, &first, &last);
        if (first > last)
            return true;
    }
    return false;
}

const char *problem_print(const struct attn_problem *p, enum attn_mode mode, char *buffer, size_t size)
{
    char q[24], kv[24];
    number_print_count(p->q_len, q, sizeof q);
    number_print_count(p->kv_len, kv, sizeof kv);
    snprintf(buffer, size, "%s %s d=%d n=%s%s%s %s", problem_mode_name(problem_mode_of(p, mode)),
             p->causal ? "causal" : "full", (int)p->head_dim, q, p->q_len == p->kv_len ? "" : "x",
             p->q_len == p->kv_len ? "" : kv, problem_dtype_name(p->dtype));
    return buffer;
}

struct attn_tensor problem_strides(enum attn_layout layout, int64_t heads, int64_t len, int64_t head_dim)
{
    struct attn_tensor t = {.stride_batch = heads * len * head_dim};
    t.stride_head = layout == ATTN_BSHD ? head_dim : len * head_dim;
    t.stride_row = layout == ATTN_BSHD ? heads * head_dim : head_dim;
    return t;
}

int64_t problem_extent(const struct attn_tensor *t, int64_t batch, int64_t heads, int64_t len, int64_t head_dim)
{
    return (batch - 1) * t->stride_batch + (heads - 1) * t->stride_head + (len - 1) * t->stride_row + head_dim;
}

enum problem_bias problem_bias_of(const struct attn_problem *p)
{
    if (p->bias_heads == 0)
        return BIAS_NONE;
    return p->bias_heads != p->q_heads ? BIAS_BATCH : p->bias_batch == p->batch ? BIAS_FULL : BIAS_HEADS;
}

void problem_set_bias(struct attn_problem *p, enum problem_bias bias)
{
    const bool is_16_bit = p->dtype == ATTN_FP16 || p->dtype == ATTN_BF16;
    p->bias_batch = bias == BIAS_NONE ? 0 : bias == BIAS_HEADS ? 1 : p->batch;
    p->bias_heads = bias == BIAS_NONE ? 0 : bias == BIAS_BATCH ? 1 : p->q_heads;
    p->bias_dtype = bias != BIAS_NONE && is_16_bit ? p->dtype : ATTN_FP32;
}

/* Names of the enums of a problem. */

const char *const problem_bias_names[] = {
    [BIAS_NONE] = "none", [BIAS_FULL] = "full", [BIAS_HEADS] = "heads", [BIAS_BATCH] = "batch", NULL};

const char *const problem_mode_names[] = {[MODE_FWD] = "fwd", [MODE_BWD] = "bwd", [MODE_DECODE] = "decode", NULL};
const char *const problem_dtype_names[] = {
    [ATTN_FP32] = "fp32", [ATTN_FP16] = "fp16", [ATTN_BF16] = "bf16", [ATTN_E4M3] = "e4m3", [ATTN_E5M2] = "e5m2", NULL};
const char *const problem_quant_names[] = {[ATTN_SCALE_NONE] = "none",
                                           [ATTN_SCALE_TENSOR] = "tensor",
                                           [ATTN_SCALE_HEAD] = "head",
                                           [ATTN_SCALE_BLOCK] = "block",
                                           NULL};
const char *const problem_layout_names[] = {[ATTN_BSHD] = "bshd", [ATTN_BHSD] = "bhsd", NULL};
const char *const problem_dist_names[] = {[FILL_NORMAL] = "normal",     [FILL_UNIFORM] = "uniform",
                                          [FILL_ZEROS] = "zeros",       [FILL_SHARP] = "sharp",
                                          [FILL_HUGE] = "huge",         [FILL_CONSTANT] = "constant",
                                          [FILL_TINY] = "tiny",         [FILL_PEAK] = "peak",
                                          [FILL_RISING] = "rising",     [FILL_FALLING] = "falling",
                                          [FILL_OUTLIERS] = "outliers", [FILL_CHANNELS] = "channels",
                                          [FILL_DRIFT] = "drift",       NULL};
const char *const problem_l2_names[] = {[L2_COLD] = "cold", [L2_HOT] = "hot", NULL};
const char *const problem_scope_names[] = {[CHECK_FULL] = "full", [CHECK_SAMPLE] = "sample", [CHECK_OFF] = "off", NULL};

const char *problem_mode_name(int mode) { return mode < 0 ? "" : problem_mode_names[mode]; }
const char *problem_dtype_name(int dtype) { return dtype < 0 ? "" : problem_dtype_names[dtype]; }
const char *problem_layout_name(int layout) { return layout < 0 ? "" : problem_layout_names[layout]; }
const char *problem_dist_name(int dist) { return dist < 0 ? "" : problem_dist_names[dist]; }
const char *problem_l2_name(int l2) { return l2 < 0 ? "" : problem_l2_names[l2]; }
const char *problem_scope_name(int scope) { return scope < 0 ? "" : problem_scope_names[scope]; }
