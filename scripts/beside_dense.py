#!/usr/bin/env python3
"""What windows and block masks gain: each row beside the dense one of the same shape and implementation.

    scripts/beside_dense.py RECORD.jsonl... --of NAME[:VARIANT] [--bars] [--csv FILE]

Density is the share of the dense problem's pairs of a row and a key that are visible. A point's time is the median over
the records that have it and its dense one; both are of one record. Rows that did not pass their check do not count.

The share by GEMM compares what each has of the speed of the matrix product in its own rounds: the clock of a GPU at its
power limit differs between rows (sm_clock_mhz), by up to a tenth between short and long kernels. Records without that
product have none. The limits are of the plain times.

--bars: a block mask of density below 1 may take (density / 0.9) of the dense time and 20 us, one of density 1 1.03 of
the dense time; a window must have 0.8 of the dense TFLOPS in the forward and 0.7 in the backward.

Exit codes: 0 every bar is met, 1 one is not, 2 usage, 5 nothing to compare, 6 the CSV cannot be written.
"""

import argparse
import statistics
import sys

from ratios import ATTRIBUTES, PROBLEM, Failure, name_of, order, reporting, rows_of, write_csv

LIST_MS, MASK_SHARE, WHOLE_MASK, WINDOW_SHARE = 0.02, 0.9, 1.03, {"fwd": 0.8, "bwd": 0.7}
HIDING = ("window_left", "window_right", "block_mask", "mask_block")
HEAD = ("of", "point", "density", "time_ms", "dense_ms", "limit_ms", "time_over_limit", "tflops", "share_of_dense",
        "share_by_gemm", "sm_clock_mhz", "dense_sm_clock_mhz", "records")


def dense_of(problem):
    row = dict(zip(PROBLEM + tuple(ATTRIBUTES), problem))
    return tuple(ATTRIBUTES[name][0] if name in HIDING else value for name, value in row.items())


def limit_ms(problem, density, dense_ms):
    """The longest time by the bars."""
    row = dict(zip(PROBLEM + tuple(ATTRIBUTES), problem))
    if row["block_mask"] == "none":
        return density * dense_ms / WINDOW_SHARE[row["mode"]]
    return WHOLE_MASK * dense_ms if density >= 1 else density / MASK_SHARE * dense_ms + LIST_MS


def median_of(values):
    """Of those that are known; None where none is."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def collect(options):
    """{problem: [(density, time_ms, dense_ms, tflops, dense_tflops, share by GEMM or None, both clocks or
    None) of each record]}"""
    points = {}
    for path in options.records:
        problems = rows_of(path)
        for problem, by_impl in problems.items():
            ours, dense = by_impl.get(options.of), problems.get(dense_of(problem), {}).get(options.of)
            if ours and dense and problem != dense_of(problem) and ours.get("tflops") and dense.get("tflops"):
                by_gemm = [row.get("pct_of_gemm") for row in (ours, dense)]
                points.setdefault(problem, []).append((ours["flops"] / dense["flops"], ours["time_ms"],
                                                       dense["time_ms"], ours["tflops"], dense["tflops"],
                                                       by_gemm[0] / by_gemm[1] if all(by_gemm) else None,
                                                       ours.get("sm_clock_mhz"), dense.get("sm_clock_mhz")))
    return points


def compare(options):
    points = collect(options)
    if not points:
        raise Failure(5, f"no window or block mask of {options.of} that passed, with its dense problem in one record")
    is_met, lines = True, []
    print(f"{options.of}, beside its own dense problems")
    print(f"{'':60} density     ms  dense ms  limit ms  of limit  of dense TFLOPS  by GEMM")
    for problem in sorted(points, key=order):
        density, time_ms, dense_ms = (statistics.median(point[i] for point in points[problem]) for i in range(3))
        limit = limit_ms(problem, density, dense_ms)
        used = statistics.median(point[1] / limit_ms(problem, point[0], point[2]) for point in points[problem])
        share = statistics.median(point[3] / point[4] for point in points[problem])
        tflops = statistics.median(point[3] for point in points[problem])
        share_by_gemm, clock, dense_clock = (median_of(point[i] for point in points[problem]) for i in (5, 6, 7))
        name = name_of(problem)
        is_met = is_met and used <= 1
        lines.append((options.of, " ".join(name.split()), f"{density:.4f}", f"{time_ms:.4f}", f"{dense_ms:.4f}",
                      f"{limit:.4f}", f"{used:.4f}", f"{tflops:.1f}", f"{share:.4f}",
                      "" if share_by_gemm is None else f"{share_by_gemm:.4f}",
                      *("" if mhz is None else f"{mhz:.0f}" for mhz in (clock, dense_clock)), len(points[problem])))
        print(f"{name:60} {density:7.4f} {time_ms:6.3f}  {dense_ms:8.3f}  {limit:8.3f}  {used:8.3f}  {share:6.3f}" +
              ("" if share_by_gemm is None else f"           {share_by_gemm:7.3f}") +
              ("   above" if options.bars and used > 1 else ""))
    if options.csv:
        write_csv(options.csv, HEAD, lines)
    return 0 if is_met or not options.bars else 1


def main():
    parser = argparse.ArgumentParser(usage="%(prog)s RECORD.jsonl... --of NAME [options]", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="+", metavar="RECORD.jsonl")
    parser.add_argument("--of", required=True, metavar="NAME")
    parser.add_argument("--bars", action="store_true", help="end with 1 where one is not met")
    parser.add_argument("--csv", metavar="FILE", help="the points as a table, too")
    return reporting("beside_dense", compare, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
