/* Inputs: the value of element i of tensor t depends on the seed alone and has the same bits on every machine and
 * device. */
#ifndef FABENCH_FILL_H
#define FABENCH_FILL_H

#include "kernels/attention.h"

enum { FILL_TABLE_SIZE = 65536 };

/* Distributions of --dist. The first three are for measuring; the rest are hard inputs, which `verify` uses. */
enum fill_dist {
    FILL_NORMAL,  /* N(0, 1) by its quantiles at (i + 1/2) / 65536 */
    FILL_UNIFORM, /* uniform in [-1, 1) */
    FILL_ZEROS,
    FILL_SHARP,    /* normal, Q times 8: a few keys have nearly all of P */
    FILL_HUGE,     /* normal, Q times 256: one key has nearly all of P, logits far outside exp's range */
    FILL_CONSTANT, /* normal, but V is 1 in every row: dQ and dK are exactly 0 */
    FILL_TINY,     /* normal times 2^-20: 16-bit denormals */
    FILL_PEAK,     /* normal, but Q's rows are 64 times the key on their diagonal (cmd/device/buffers.c writes them):
                      in every row one logit exceeds all others by hundreds, also where S is rounded to 16 bits */
    FILL_RISING, /* normal, but Q's first column is 8 and K's a ramp from 0 to 60 sqrt(head_dim) / 8 over the keys: with
                      the default scale the logits grow by 60 from the first key to the last */
    FILL_FALLING,  /* the ramp reversed: they fall by 60 */
    FILL_OUTLIERS, /* normal, but one value of Q, K and V in a thousand is N(0, 101): N(0, 1) + N(0, 100) */
    FILL_CHANNELS, /* normal, but every 32nd column of Q and K is 20 times larger */
    FILL_DRIFT,    /* normal, but K and V grow over the keys, from 1 to 8 times */
    FILL_DISTS     /* how many there are */
};

/* Number of the tensor; part of the random counter. FILL_TENSORS: one more than the last. */
enum fill_tensor { FILL_Q = 1, FILL_K, FILL_V, FILL_DO, FILL_GEMM, FILL_BIAS, FILL_TENSORS };

/* 16 uniform bits for element `index` of tensor `tensor_id`: splitmix64's finaliser (Steele, Lea, Flood 2014, fig. 16)
 * over the mixed counter, top 16 bits. The same expression in C and CUDA. */
#if defined(__CUDACC__)
#define FILL_FUNCTION static __host__ __device__ __forceinline__
#else
#define FILL_FUNCTION static inline
#endif
FILL_FUNCTION uint32_t fill_random16(uint64_t seed, uint32_t tensor_id, uint64_t index)
{
    uint64_t z =
        index * 0x9E3779B97F4A7C15ull + seed * 0xD1B54A32D192ED03ull + (uint64_t)tensor_id * 0x8CB92BA72F3D8DD7ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return (uint32_t)((z ^ (z >> 31)) >> 48);
}

/* What the first column of a tensor holds: what was drawn, the number `top`, or a ramp over the rows from 0 to it. */
enum fill_first { FILL_FIRST_DRAWN, FILL_FIRST_CONSTANT, FILL_FIRST_RISING, FILL_FIRST_FALLING };
struct fill_column {
    enum fill_first kind;
    double top;
};

/* Its value in a row of `len` rows: one product and one quotient in double, rounded once, so that no compiler can make
 * other bits of it. */
FILL_FUNCTION float fill_column_value(struct fill_column column, int64_t row, int64_t len)
{
    const double step = (double)(column.kind == FILL_FIRST_FALLING ? len - 1 - row : row);
    if (column.kind == FILL_FIRST_CONSTANT || len == 1)
        return column.kind == FILL_FIRST_CONSTANT ? (float)column.top : 0.0f;
    return (float)(column.top * step / (double)(len - 1));
}

/* What an element is multiplied by after it was drawn: of outliers, channels and drift. */
enum fill_stretch { FILL_STRETCH_NONE, FILL_STRETCH_OUTLIERS, FILL_STRETCH_COLUMNS, FILL_STRETCH_ROWS };
enum { FILL_OUTLIERS_ID = 64, FILL_OUTLIERS_OF_65536 = 66, FILL_WIDE_COLUMN = 7 };

FILL_FUNCTION float fill_stretch_factor(enum fill_stretch kind, uint64_t seed, uint32_t tensor_id, uint64_t index,
                                        int64_t row, int64_t len, int64_t column)
{
    if (kind == FILL_STRETCH_ROWS)
        return len == 1 ? 1.0f : (float)((double)(len - 1 + 7 * row) / (double)(len - 1));
    if (kind == FILL_STRETCH_COLUMNS)
        return column % 32 == FILL_WIDE_COLUMN ? 20.0f : 1.0f;
    if (kind == FILL_STRETCH_OUTLIERS)
        return fill_random16(seed, tensor_id + FILL_OUTLIERS_ID, index) < FILL_OUTLIERS_OF_65536 ? 10.049875f : 1.0f;
    return 1.0f;
}

#ifndef __cplusplus
/* What the inputs of a problem are made from. */
struct fill_spec {
    enum fill_dist dist;
    uint64_t seed;
    double logit_std;  /* standard deviation of the logits; 0 = as drawn */
    double logit_mean; /* what is added to all logits; 0 = nothing */
    double scale;      /* of the softmax */
};

/* Can the logits of this distribution be given a standard deviation? They are sums over columns of products of numbers
 * drawn independently, which Q's gain multiplies: normal, uniform, sharp and huge. */
bool fill_takes_logit_std(enum fill_dist);

/* The factor of Q's table with which the logits have the standard deviation spec->logit_std, instead of the gain of
 * fill_table. With the default scale and normal inputs exactly logit_std. */
float fill_logit_gain(const struct fill_spec *, int64_t head_dim);

/* No |logit| of Q and K as drawn is above this. INFINITY for those that write into Q and K after they are drawn. */
double fill_largest_logit(const struct fill_spec *, int64_t head_dim);

/* The first column of one tensor: a ramp, or with a logit_mean two numbers whose product times the scale is that, Q's a
 * power of two. */
struct fill_column fill_first_column(const struct fill_spec *, enum fill_tensor, int64_t head_dim);

/* Writes it over what was drawn; nothing for FILL_FIRST_DRAWN. */
void fill_first_column_host(struct attn_tensor, enum attn_dtype, int64_t batch, int64_t heads, int64_t len,
                            struct fill_column);

/* What stretches one tensor of a distribution. */
enum fill_stretch fill_stretch_of(enum fill_dist, enum fill_tensor);

/* Multiplies what was drawn by fill_stretch_factor, and rounds it again. */
void fill_stretch_host(struct attn_tensor, enum attn_dtype, int64_t batch, int64_t heads, int64_t len, int64_t head_dim,
                       uint64_t seed, enum fill_tensor, enum fill_stretch);

/* The quantile table of a distribution (normal for all but uniform, zeros and constant's V) and the gain that
 * multiplies it, for one tensor. table: FILL_TABLE_SIZE floats. */
void fill_table(enum fill_dist, enum fill_tensor, float *table, float *gain);

/* Host fill of one tensor [batch, heads, len, head_dim], any dtype, any strides. */
void fill_tensor_host(struct attn_tensor, enum attn_dtype, int64_t batch, int64_t heads, int64_t len, int64_t head_dim,
                      uint64_t seed, enum fill_tensor, const float *table, float gain);

/* Element access for any dtype. */
float fill_load(const void *data, enum attn_dtype, int64_t index);
void fill_store(void *data, enum attn_dtype, int64_t index, float value);
#endif
#endif
