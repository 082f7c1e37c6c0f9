/* Statistics of samples: quantiles, intervals, ratios. Pure arithmetic. */
#ifndef FABENCH_STATS_H
#define FABENCH_STATS_H

#include <stdint.h>

struct stats {
    int64_t count;
    double median, p25, p75, min, max;
    double ci_lo, ci_hi; /* distribution-free 95 % interval of the median; the range where count < 6 */
};

/* Samples need not be sorted and stay as they are. count >= 1. */
struct stats stats_of(const double *samples, int64_t count);

/* The median alone; NaN for count 0. Samples need not be sorted and stay as they are. */
double stats_median(const double *samples, int64_t count);

/* Ascending, in place. */
void stats_sort(double *values, int64_t count);

/* The ratio of two members of the same rounds: the geometric mean of numerator[i] / denominator[i] without the
 * twentieth (rounded up, none below 5 rounds) at either end. Not the median: a GPU at its power limit alternates
 * between two speeds about once a second, and the median of such a bimodal sample is one or the other by chance. Two
 * runs of 48 points on an H200 differed by at most 1.6 % with the median and 0.8 % with this mean. */
double stats_paired_ratio(const double *numerator, const double *denominator, int64_t count);

/* The uncertainty of that ratio when rounds are not independent: half-width of its 95 % interval in per cent, from the
 * means of ten batches of neighbouring rounds and Student's t (Law and Kelton, batch means); +inf below 20 rounds. It
 * includes variations of about the length of a batch, but not those much longer than all rounds together. */
double stats_paired_half_width_pct(const double *numerator, const double *denominator, int64_t count);

/* Half-width of the 95 % interval of the median relative to the median, in per cent; +inf below 6 samples, for which
 * no such interval exists. */
double stats_noise_half_width_pct(const struct stats *);

/* The ranks (1-based) of the two order statistics that enclose the median with at least 95 %: the largest l with
 * P(Binomial(n, 1/2) <= l - 1) <= 0.025, and n + 1 - l. 0 when n < 6. */
void stats_median_ci_ranks(int64_t n, int64_t *lower, int64_t *upper);

/* The quantile of Student's t with `freedom` >= 1 degrees of freedom, for 0.5 <= probability < 1. */
double stats_t_quantile(double probability, int freedom);

/* exp(mean(log x)); NaN for count 0. */
double stats_geomean(const double *values, int64_t count);

#endif
