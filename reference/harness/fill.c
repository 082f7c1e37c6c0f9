/* Inputs on the host: quantile tables and the strided fill. Portable C only, because the same seed
 * has to give the same bits on every machine: the tables are computed in double and rounded once, and an element is one
 * table entry times an exact or once rounded gain. tests/unit/reference/test_fill.c checks the hash of the normal
 * table. */
#include "reference/harness/fill.h"

#include <math.h>

#include "kernels/common/small_floats.h"

static double polynomial(const double *c, double x)
{
    double sum = c[7];
    for (int i = 6; i >= 0; i--)
        sum = sum * x + c[i];
    return sum;
}

/* The quantile of N(0, 1) at p in [exp(-25), 1/2], by the rational approximations of algorithm AS 241, PPND16 (Wichura
 * 1988): relative error about 1e-16. The table's smallest p is 2^-17, so the algorithm's part for the far tail is not
 * needed. */
static double normal_quantile(double p)
{
    static const double central_p[8] = {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
                                        1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
                                        3.3430575583588128105e4, 2.5090809287301226727e3};
    static const double central_q[8] = {1.0,
                                        4.2313330701600911252e1,
                                        6.8718700749205790830e2,
                                        5.3941960214247511077e3,
                                        2.1213794301586595867e4,
                                        3.9307895800092710610e4,
                                        2.8729085735721942674e4,
                                        5.2264952788528545610e3};
    static const double tail_p[8] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                                     3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                                     2.27238449892691845833e-2, 7.74545014278341407640e-4};
    static const double tail_q[8] = {1.0,
                                     2.05319162663775882187e0,
                                     1.67638483018380384940e0,
                                     6.89767334985100004550e-1,
                                     1.48103976427480074590e-1,
                                     1.51986665636164571966e-2,
                                     5.47593808499534494600e-4,
                                     1.05075007164441684324e-9};
    const double q = p - 0.5;
    if (q >= -0.425) {
        const double r = 0.180625 - q * q;
        return q * (polynomial(central_p, r) / polynomial(central_q, r));
    }
    const double r = sqrt(-log(p)) - 1.6;
    return -(polynomial(tail_p, r) / polynomial(tail_q, r));
}

static void fill_normal(float *table)
{
    /* The table is exactly antisymmetric, so its mean is exactly zero. */
    for (int i = 0; i < FILL_TABLE_SIZE / 2; i++) {
        const float x = (float)normal_quantile((i + 0.5) / FILL_TABLE_SIZE);
        table[i] = x;
        table[FILL_TABLE_SIZE - 1 - i] = -x;
    }
}

static void fill_with(float *table, float value)
{
    for (int i = 0; i < FILL_TABLE_SIZE; i++)
        table[i] = value;
}

void fill_table(enum fill_dist dist, enum fill_tensor tensor, float *table, float *gain)
{
    *gain = 1.0f;
    switch (dist) {
    case FILL_UNIFORM:
        for (int i = 0; i < FILL_TABLE_SIZE; i++)
            table[i] = (float)i / 32768.0f - 1.0f;
        return;
    case FILL_ZEROS: fill_with(table, 0.0f); return;
    case FILL_CONSTANT:
        if (tensor == FILL_V) {
            fill_with(table, 1.0f);
            return;
        }
        break;
    case FILL_SHARP: *gain = tensor == FILL_Q ? 8.0f : 1.0f; break;
    case FILL_HUGE: *gain = tensor == FILL_Q ? 256.0f : 1.0f; break;
    case FILL_TINY: *gain = 0x1p-20f; break;
    case FILL_NORMAL:
    case FILL_PEAK:
    case FILL_RISING:
    case FILL_FALLING:
    case FILL_OUTLIERS:
    case FILL_CHANNELS:
    case FILL_DRIFT:
    case FILL_DISTS: break;
    }
    fill_normal(table);
}

bool fill_takes_logit_std(enum fill_dist dist)
{
    return dist == FILL_NORMAL || dist == FILL_UNIFORM || dist == FILL_SHARP || dist == FILL_HUGE;
}

float fill_logit_gain(const struct fill_spec *spec, int64_t head_dim)
{
    const double root = sqrt((double)head_dim);
    const bool has_default_scale = (float)spec->scale == (float)(1 / root);
    /* Uniform numbers in [-1, 1) have a variance of 1/3, and so a product of two of them a deviation of 1/3. */
    const double deviation = spec->dist == FILL_UNIFORM ? 1.0 / 3 : 1;
    return (float)(spec->logit_std / (has_default_scale ? deviation : deviation * spec->scale * root));
}

double fill_largest_logit(const struct fill_spec *spec, int64_t head_dim)
{
    double top = spec->dist == FILL_UNIFORM ? 1 : 4.4; /* the largest quantile of the normal table is 4.33 */
    double gain = 1;
    if (spec->logit_mean != 0)
        return INFINITY;
    switch (spec->dist) {
    case FILL_ZEROS: return 0;
    case FILL_PEAK:
    case FILL_RISING:
    case FILL_FALLING:
    case FILL_OUTLIERS:
    case FILL_CHANNELS:
    case FILL_DRIFT:
    case FILL_DISTS: return INFINITY;
    case FILL_TINY: top *= 0x1p-20; break;
    case FILL_SHARP: gain = 8; break;
    case FILL_HUGE: gain = 256; break;
    case FILL_NORMAL:
    case FILL_UNIFORM:
    case FILL_CONSTANT: break;
    }
    if (spec->logit_std > 0)
        gain = (double)fill_logit_gain(spec, head_dim);
    return top * top * gain * fabs(spec->scale) * (double)head_dim;
}

struct fill_column fill_first_column(const struct fill_spec *spec, enum fill_tensor tensor, int64_t head_dim)
{
    const enum fill_dist dist = spec->dist;
    if (spec->logit_mean != 0 && (tensor == FILL_Q || tensor == FILL_K)) {
        const double of_q = exp2(round(log2(fabs(spec->logit_mean / spec->scale)) / 2));
        return (struct fill_column){FILL_FIRST_CONSTANT,
                                    tensor == FILL_Q ? of_q : spec->logit_mean / spec->scale / of_q};
    }
    const bool is_ramp = (dist == FILL_RISING || dist == FILL_FALLING) && (tensor == FILL_Q || tensor == FILL_K);
    if (!is_ramp)
        return (struct fill_column){FILL_FIRST_DRAWN, 0};
    if (tensor == FILL_Q)
        return (struct fill_column){FILL_FIRST_CONSTANT, 8};
    return (struct fill_column){dist == FILL_RISING ? FILL_FIRST_RISING : FILL_FIRST_FALLING,
                                60 * sqrt((double)head_dim) / 8};
}

void fill_first_column_host(struct attn_tensor tensor, enum attn_dtype dtype, int64_t batch, int64_t heads, int64_t len,
                            struct fill_column column)
{
    for (int64_t b = 0; b < batch && column.kind != FILL_FIRST_DRAWN; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t row = 0; row < len; row++)
                fill_store(tensor.data, dtype,
                           b * tensor.stride_batch + h * tensor.stride_head + row * tensor.stride_row,
                           fill_column_value(column, row, len));
}

enum fill_stretch fill_stretch_of(enum fill_dist dist, enum fill_tensor tensor)
{
    if (tensor != FILL_Q && tensor != FILL_K && tensor != FILL_V)
        return FILL_STRETCH_NONE;
    if (dist == FILL_OUTLIERS)
        return FILL_STRETCH_OUTLIERS;
    if (dist == FILL_CHANNELS && tensor != FILL_V)
        return FILL_STRETCH_COLUMNS;
    return dist == FILL_DRIFT && tensor != FILL_Q ? FILL_STRETCH_ROWS : FILL_STRETCH_NONE;
}

void fill_stretch_host(struct attn_tensor tensor, enum attn_dtype dtype, int64_t batch, int64_t heads, int64_t len,
                       int64_t head_dim, uint64_t seed, enum fill_tensor id, enum fill_stretch kind)
{
    const int64_t elements = kind == FILL_STRETCH_NONE ? 0 : batch * heads * len * head_dim;
    for (int64_t i = 0; i < elements; i++) {
        const int64_t col = i % head_dim, row = i / head_dim % len, head = i / head_dim / len;
        const int64_t at =
            head / heads * tensor.stride_batch + head % heads * tensor.stride_head + row * tensor.stride_row + col;
        const float factor = fill_stretch_factor(kind, seed, (uint32_t)id, (uint64_t)i, row, len, col);
        fill_store(tensor.data, dtype, at, factor * fill_load(tensor.data, dtype, at));
    }
}

void fill_tensor_host(struct attn_tensor tensor, enum attn_dtype dtype, int64_t batch, int64_t heads, int64_t len,
                      int64_t head_dim, uint64_t seed, enum fill_tensor id, const float *table, float gain)
{
    uint64_t index = 0;
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t row = 0; row < len; row++) {
                const int64_t at = b * tensor.stride_batch + h * tensor.stride_head + row * tensor.stride_row;
                for (int64_t col = 0; col < head_dim; col++, index++)
                    fill_store(tensor.data, dtype, at + col, gain * table[fill_random16(seed, (uint32_t)id, index)]);
            }
}

float fill_load(const void *data, enum attn_dtype dtype, int64_t index)
{
    switch (dtype) {
    case ATTN_E4M3: return attn_from_e4m3(((const uint8_t *)data)[index]);
    case ATTN_E5M2: return attn_from_e5m2(((const uint8_t *)data)[index]);
    case ATTN_FP16: return attn_from_fp16(((const uint16_t *)data)[index]);
    case ATTN_BF16: return attn_from_bf16(((const uint16_t *)data)[index]);
    case ATTN_FP32: break;
    }
    return ((const float *)data)[index];
}

void fill_store(void *data, enum attn_dtype dtype, int64_t index, float value)
{
    switch (dtype) {
    case ATTN_FP16: ((uint16_t *)data)[index] = attn_to_fp16(value); return;
    case ATTN_BF16: ((uint16_t *)data)[index] = attn_to_bf16(value); return;
    case ATTN_E4M3: ((uint8_t *)data)[index] = attn_to_e4m3(value); return;
    case ATTN_E5M2: ((uint8_t *)data)[index] = attn_to_e5m2(value); return;
    case ATTN_FP32: break;
    }
    ((float *)data)[index] = value;
}
