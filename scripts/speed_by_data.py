#!/usr/bin/env python3
"""How much of its speed on N(0,1) logits one implementation keeps on other data.

    scripts/speed_by_data.py RECORD.jsonl... --of NAME --over NAME [--least X] [--csv FILE]

Share: the time of the same problem with `--logit-std 1` over the time with that data. Both are of one record; a point's
figure is the median over the records. Beside it are the share of another implementation, whose speed the device's power
limit changes as well, and the clock of the first one's row over that of its row with `--logit-std 1`. Rows that did not
pass their check do not count.

--least: a point must have this share, or at least that of the other implementation.

Exit codes: 0 every limit is met, 1 one is not, 2 usage, 5 nothing to compare, 6 the CSV cannot be written.
"""

import argparse
import statistics
import sys

from ratios import ATTRIBUTES, PROBLEM, Failure, name_of, order, reporting, rows_of, write_csv

HEAD = ("of", "over", "point", "share", "share_of_other", "clock_share", "records")


def usual_of(problem):
    """The same problem with normally distributed logits of standard deviation 1."""
    row = dict(zip(PROBLEM + tuple(ATTRIBUTES), problem))
    return tuple({"dist": "normal", "logit_std": 1}.get(name, value) for name, value in row.items())


def collect(options):
    """{problem: [(share, that of the other one, clock over clock or None) of each record]}"""
    points = {}
    for path in options.records:
        problems = rows_of(path)
        for problem, by_impl in problems.items():
            usual = problems.get(usual_of(problem), {})
            rows = [(by_impl.get(name), usual.get(name)) for name in (options.of, options.over)]
            if problem == usual_of(problem) or not all(row and row.get("time_ms") for pair in rows for row in pair):
                continue
            shares = [base["time_ms"] / row["time_ms"] for row, base in rows]
            clocks = [row.get("sm_clock_mhz") for row in rows[0]]
            points.setdefault(problem, []).append((*shares, clocks[0] / clocks[1] if all(clocks) else None))
    return points


def compare(options):
    points = collect(options)
    if not points:
        raise Failure(5, f"no point where {options.of} and {options.over} passed, with the one of --logit-std 1 in the "
                         "same record")
    is_met, lines = True, []
    print(f"{options.of}: speed beside that with --logit-std 1")
    print(f"{'':48} {'share':>6}  {'of ' + options.over:>12}  {'clock':>6}  records")
    for problem in sorted(points, key=order):
        values = points[problem]
        share, other = (statistics.median(value[i] for value in values) for i in (0, 1))
        known = [value[2] for value in values if value[2] is not None]
        clock = statistics.median(known) if known else None
        lacks = share < min(options.least, other)
        is_met = is_met and not lacks
        lines.append((options.of, options.over, " ".join(name_of(problem).split()), f"{share:.4f}", f"{other:.4f}",
                      "" if clock is None else f"{clock:.4f}", len(values)))
        print(f"{name_of(problem):48} {share:6.3f}  {other:12.3f}  {'-' if clock is None else f'{clock:.3f}':>6}  "
              f"{len(values):7}" + ("   limit" if lacks else ""))
    if options.csv:
        write_csv(options.csv, HEAD, lines)
    return 0 if is_met else 1


def main():
    parser = argparse.ArgumentParser(usage="%(prog)s RECORD.jsonl... --of NAME --over NAME [options]",
                                     description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="+", metavar="RECORD.jsonl")
    parser.add_argument("--of", required=True, metavar="NAME")
    parser.add_argument("--over", required=True, metavar="NAME")
    parser.add_argument("--least", type=float, default=0, help="least share, if the other one's is not smaller")
    parser.add_argument("--csv", metavar="FILE", help="the points as a table, too")
    return reporting("speed_by_data", compare, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
