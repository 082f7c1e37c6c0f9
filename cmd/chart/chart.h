/* Charts from records with gnuplot: for each one a self-contained .gp script and a .dat file beside the image.
 * section 8 of docs/design.md. Without gnuplot, scripts and data are written, and one line on stderr says so. */
#ifndef FABENCH_CHART_H
#define FABENCH_CHART_H

#include "cmd/chart/chart_data.h"
#include "cmd/chart/overlay.h"
#include "cmd/options/options.h"

/* Writes tflops-<mode>-<full|causal>-d<d>-<dtype>.{gp,dat,svg|png} for every (mode, causal, d, dtype) with at least one
 * ok row, and speedup-, memory- and error- charts likewise, into dir. With several files there is one line per file and
 * implementation. Published points appear in the TFLOPS charts. PLOT_TERM prints the TFLOPS charts to stdout, width
 * columns wide (built-in bars where gnuplot is absent). Returns EXIT_OK, or EXIT_IO with a sentence on stderr.
 * *images: the number of images in dir that it drew; 0 with PLOT_TERM and without gnuplot. */
int charts_write(const struct chart_input *, const char *dir, enum plot_format, int width, bool color, int *images);

/* `fabench plot A.jsonl ...`: charts from records, no device needed. */

/* Draws the record files that the options name, with published points where overlay is not NULL, to the folder of --out
 * (default: the working folder), or to stdout with --plot term. EXIT_OK; EXIT_NOT_COMPARABLE where a record cannot be
 * read; EXIT_IO. */
int plot_run(const struct options *, const struct overlay *overlay);

#endif
