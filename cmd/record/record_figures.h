/* Do the figures of a record agree with one another? A record is a file that anybody can edit, join or cut; gate, ab
 * and report ask here before they compare anything. A record of this program agrees, within the limits below. */
#ifndef FABENCH_RECORD_FIGURES_H
#define FABENCH_RECORD_FIGURES_H

#include "cmd/record/record_file.h"

/* Largest relative differences between a figure and what the other figures make of it, in per cent.
 *
 * pct_of_gemm is a mean over rounds, time_ms and gemm_tflops are medians; the two differ where the clock alternates
 * between two speeds. In the 5472 rows of 45 record files in the history of results/ the largest difference is 4.0 %
 * (noise_pct 17.9), and 2.3 % where noise_pct is below 6: the limit is half of noise_pct, at least 3 % and at most
 * 10 %. A mean over fewer than 6 rounds has no such history; single samples under a power cap vary by 20 %. */
#define RECORD_TFLOPS_LIMIT_PCT 0.1
#define RECORD_SAMPLES_LIMIT_PCT 0.1 /* they may be stored with fewer digits */
#define RECORD_SHARE_LIMIT_PCT 3.0
#define RECORD_SHARE_LIMIT_MOST_PCT 10.0
#define RECORD_SHARE_LIMIT_FEW_PCT 25.0

/* Times outside of these are no measurement, in ms: a nanosecond, and the longest --timeout-s. */
#define RECORD_TIME_LEAST_MS 1e-6
#define RECORD_TIME_MOST_MS 86400e3

/* Did it run, pass its check, and is the share of the error bound in the record, at most 1? */
bool record_row_is_checked(const struct record_row *);

/* Does the row have a 95 % interval of its median time? Fewer than 6 samples have none. */
bool record_row_has_interval(const struct record_row *);

/* Half the width of that interval, where the row has both ends, in per cent of the median; else NaN. */
double record_row_half_width_pct(const struct record_row *);

/* False with a sentence that names the file, the row and both figures when a row
 *   - lacks status, mode, dtype, or its check where it ran (other words than those of the enums are no record);
 *   - says that it passed, without an err_used from 0 to 1;
 *   - has a time that is not within the limits above, or outside its interval, or that its samples do not make;
 *   - has flops or tflops that its shape and time do not make, or a gb_per_s that its min_gb and time do not make;
 *   - has a pct_of_gemm that its shape, its time and gemm_tflops do not make, or a pct_of_read without
 *     both gb_per_s and read_gb_per_s.
 * What is absent was not measured and is not compared. Of `null`, which computes nothing, only the words count. */
bool record_file_agrees(const struct record_file *, struct attn_message *why);

/* The part of it that every reader asks, also those that show a record without comparing it (plot, resume): is time_ms
 * the median of the samples in the record, time_ms_min the least? */
bool record_file_samples_agree(const struct record_file *, struct attn_message *why);

/* The speed of a row over an implementation of the same rounds, from the column speedups, or from speedup_vs_peer where
 * that is the peer; NaN where the row has neither. */
double record_speedup_over(const struct record_row *, const char *impl);

#endif
