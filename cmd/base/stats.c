/* Order statistics of samples. The confidence interval of the median is distribution-free: its ranks come from the
 * exact binomial tail. The tail is summed from its largest term downwards, so that it does not underflow for large
 * counts.
 */
#include "cmd/base/stats.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"

static int compare_doubles(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

void stats_sort(double *values, int64_t count) { qsort(values, (size_t)count, sizeof *values, compare_doubles); }

/* Quantile of sorted samples by linear interpolation between order statistics (Hyndman and Fan 1996, type 7). */
static double quantile(const double *sorted, int64_t count, double fraction)
{
    const double position = fraction * (double)(count - 1);
    const int64_t below = (int64_t)position;
    const double part = position - (double)below;
    return part > 0 ? sorted[below] + part * (sorted[below + 1] - sorted[below]) : sorted[below];
}

static double *sorted_copy(const double *samples, int64_t count)
{
    double *sorted = xmalloc((unsigned long)count * sizeof *sorted);
    memcpy(sorted, samples, (size_t)count * sizeof *sorted);
    stats_sort(sorted, count);
    return sorted;
}

/* P(Binomial(n, 1/2) <= k) for k below n/2. The terms fall at least geometrically going down; the terms left out are
 * below the rounding error of the sum. Long double is used because the logarithms cancel. */
static long double binomial_tail(int64_t n, int64_t k)
{
    if (k < 0)
        return 0;
    const long double log_term = lgammal((long double)n + 1) - lgammal((long double)k + 1) -
                                 lgammal((long double)(n - k) + 1) - (long double)n * logl(2.0L);
    long double term = expl(log_term), sum = term;
    for (int64_t i = k; i > 0; i--) {
        term *= (long double)i / (long double)(n - i + 1);
        if (term < sum * 1e-21L)
            break;
        sum += term;
    }
    return sum;
}

void stats_median_ci_ranks(int64_t n, int64_t *lower, int64_t *upper)
{
    const long double tail = 0.025L;
    *lower = *upper = 0;
    if (n < 6)
        return;
    /* The normal approximation is wrong by at most one rank; the exact tail corrects it. */
    int64_t rank = (int64_t)floor(0.5 * (double)n - 0.98 * sqrt((double)n));
    if (rank < 1)
        rank = 1;
    while (binomial_tail(n, rank) <= tail)
        rank++;
    while (rank > 1 && binomial_tail(n, rank - 1) > tail)
        rank--;
    *lower = rank;
    *upper = n + 1 - rank;
}

struct stats stats_of(const double *samples, int64_t count)
{
    FABENCH_ASSERT(count >= 1, "no samples");
    double *sorted = sorted_copy(samples, count);
    int64_t lower, upper;
    stats_median_ci_ranks(count, &lower, &upper);
    const struct stats stats = {
        .count = count,
        .median = quantile(sorted, count, 0.5),
        .p25 = quantile(sorted, count, 0.25),
        .p75 = quantile(sorted, count, 0.75),
        .min = sorted[0],
        .max = sorted[count - 1],
        .ci_lo = sorted[lower ? lower - 1 : 0],
        .ci_hi = sorted[upper ? upper - 1 : count - 1],
    };
    free(sorted);
    return stats;
}

double stats_median(const double *samples, int64_t count)
{
    if (count < 1)
        return NAN;
    double *sorted = sorted_copy(samples, count);
    const double median = quantile(sorted, count, 0.5);
    free(sorted);
    return median;
}

double stats_paired_ratio(const double *numerator, const double *denominator, int64_t count)
{
    if (count < 1)
        return NAN;
    double *logs = xmalloc((unsigned long)count * sizeof *logs);
    for (int64_t i = 0; i < count; i++)
        logs[i] = log(numerator[i] / denominator[i]);
    stats_sort(logs, count);
    const int64_t dropped = count < 5 ? 0 : (count + 19) / 20;
    double sum = 0;
    for (int64_t i = dropped; i < count - dropped; i++)
        sum += logs[i];
    free(logs);
    return exp(sum / (double)(count - 2 * dropped));
}

double stats_paired_half_width_pct(const double *numerator, const double *denominator, int64_t count)
{
    enum { BATCHES = 10 };
    double means[BATCHES], mean = 0, squares = 0;
    if (count < 2 * BATCHES)
        return INFINITY;
    for (int b = 0; b < BATCHES; b++) {
        const int64_t first = b * count / BATCHES, end = (b + 1) * count / BATCHES;
        double sum = 0;
        for (int64_t i = first; i < end; i++)
            sum += log(numerator[i] / denominator[i]);
        means[b] = sum / (double)(end - first);
        mean += means[b] / BATCHES;
    }
    for (int b = 0; b < BATCHES; b++)
        squares += (means[b] - mean) * (means[b] - mean);
    return 100 * stats_t_quantile(0.975, BATCHES - 1) * sqrt(squares / (BATCHES - 1) / BATCHES);
}

double stats_noise_half_width_pct(const struct stats *stats)
{
    const double width = stats->ci_hi - stats->ci_lo;
    if (stats->count < 6)
        return INFINITY;
    if (width == 0)
        return 0;
    return stats->median > 0 ? 100 * 0.5 * width / stats->median : INFINITY;
}

double stats_geomean(const double *values, int64_t count)
{
    double sum = 0;
    if (count < 1)
        return NAN;
    for (int64_t i = 0; i < count; i++)
        sum += log(values[i]);
    return exp(sum / (double)count);
}

/* P(|T| < t). The closed form for whole degrees of freedom: a finite series in the cosine of
 * atan(t / sqrt(freedom)). */
static double t_inside(double t, int freedom)
{
    static const double pi = 3.14159265358979323846;
    const double angle = atan(t / sqrt((double)freedom)), cosine = cos(angle);
    const bool is_odd = freedom % 2 != 0;
    double term = is_odd ? cosine : 1, sum = freedom > 1 ? term : 0;
    for (int i = is_odd ? 3 : 2; i < freedom; i += 2) {
        term *= cosine * cosine * (i - 1) / i;
        sum += term;
    }
    return is_odd ? 2 / pi * (angle + sin(angle) * sum) : sin(angle) * sum;
}

double stats_t_quantile(double probability, int freedom)
{
    FABENCH_ASSERT(probability >= 0.5 && probability < 1 && freedom >= 1, "%g, %d", probability, freedom);
    const double inside = 2 * probability - 1;
    double low = 0, high = 1;
    while (t_inside(high, freedom) < inside)
        high *= 2;
    for (int i = 0; i < 100; i++) {
        const double middle = 0.5 * (low + high);
        if (t_inside(middle, freedom) < inside)
            low = middle;
        else
            high = middle;
    }
    return 0.5 * (low + high);
}
