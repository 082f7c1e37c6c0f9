#!/usr/bin/env python3
"""What the judge's defences cost: records of one program with them and without, taken in turn on one device.

    scripts/judge_cost.py --with RECORD.jsonl... --without RECORD.jsonl...
                          [--seconds WITH WITHOUT] [--bars] [--csv FILE]

Without: the build's tests/fake/fabench_lost with LOST_DEFENCE=new_values; without the variable it is the program.
Columns of the inputs then change their signs between samples and single elements do not, and a sample is compared with
the first launch, as before method 5. A figure of a point is the median over the records that have it.

--seconds: the wall time of all runs of each side. --bars: at most 5 % longer and 5 % fewer samples over all points,
medians within 0.3 % (n = 1024: 0.5 %), ratios between implementations within 0.3 %, each as the median over the points.
Single points are printed, and how far the records of one side are apart there.

Exit codes: 0 every bar is met, 1 one is not, 2 usage, 5 nothing to compare, 6 the CSV cannot be written.
"""

import argparse
import statistics
import sys

from ratios import Failure, name_of, order, paired, reporting, rows_of, write_csv

HEAD = ("point", "impl", "with_ms", "without_ms", "ratio", "apart_with", "apart_without", "samples_with",
        "samples_without")


def collect(paths):
    """{(problem, impl): [row of each record]}"""
    rows = {}
    for path in paths:
        for problem, by_impl in rows_of(path).items():
            for row in {id(row): row for row in by_impl.values() if row.get("time_ms")}.values():
                rows.setdefault((problem, row["impl"]), []).append(row)
    return rows


def median_of(rows, column):
    return statistics.median(row[column] for row in rows)


def apart(rows):
    times = [row["time_ms"] for row in rows]
    return max(times) / min(times) - 1


def points_of(sides):
    both = sorted(set(sides[0]) & set(sides[1]), key=lambda key: (order(key[0]), key[1]))
    if not both:
        raise Failure(5, "no row that passed its check is in records of both sides")
    lines = []
    for key in both:
        ours, theirs = sides[0][key], sides[1][key]
        now, before = median_of(ours, "time_ms"), median_of(theirs, "time_ms")
        lines.append((name_of(key[0]), key[1], now, before, now / before, apart(ours), apart(theirs),
                      median_of(ours, "samples"), median_of(theirs, "samples")))
    return both, lines


def ratio_changes(sides, keys):
    """How much the speed of one implementation over another's changes, over all pairs of a point."""
    changes = []
    for problem, impl in keys:
        for other in (name for at, name in keys if at == problem and name > impl):
            found = []
            for side in sides:
                pairs = [paired(*rows) for rows in zip(side[problem, impl], side[problem, other])]
                found.append(statistics.median(pair for pair in pairs if pair) if any(pairs) else None)
            if all(found):
                changes.append(found[0] / found[1] - 1)
    return changes


def bar(name, value, limit, is_met):
    print(f"{name}: {100 * value:+.2f} % (bar: {limit}): {'met' if is_met else 'NOT MET'}")
    return is_met


def compare(options):
    sides = [collect(options.having), collect(options.without)]
    keys, lines = points_of(sides)
    print(f"{'point':40} {'impl':12} {'with ms':>9} {'without':>9} {'change':>8} {'apart':>7} {'apart':>7}  samples")
    for line in lines:
        print(f"{line[0]:40} {line[1]:12} {line[2]:9.4f} {line[3]:9.4f} {100 * (line[4] - 1):+7.2f}% "
              f"{100 * line[5]:6.2f}% {100 * line[6]:6.2f}%  {line[7]:.0f} {line[8]:.0f}")
    if options.csv:
        write_csv(options.csv, HEAD, lines)
    short = [line[4] - 1 for line in lines if " n=1024" in line[0]]
    longer = [line[4] - 1 for line in lines if " n=1024" not in line[0]]
    samples = sum(line[7] for line in lines) / sum(line[8] for line in lines) - 1
    ratios = ratio_changes(sides, keys)
    met = [bar("samples", samples, "at least -5 %", samples >= -0.05)]
    for name, changes, limit in (("medians, n = 1024", short, 0.005), ("medians, longer", longer, 0.003),
                                 ("ratios between implementations", ratios, 0.003)):
        if changes:
            change = statistics.median(changes)
            met.append(bar(name, change, f"{100 * limit:g} %", abs(change) <= limit))
    if options.seconds:
        change = options.seconds[0] / options.seconds[1] - 1
        met.append(bar("wall time", change, "at most +5 %", change <= 0.05))
    return 0 if all(met) or not options.bars else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--with", dest="having", nargs="+", required=True, metavar="RECORD")
    parser.add_argument("--without", nargs="+", required=True, metavar="RECORD")
    parser.add_argument("--seconds", nargs=2, type=float, metavar="S")
    parser.add_argument("--bars", action="store_true")
    parser.add_argument("--csv")
    return reporting("judge_cost", compare, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
