#!/usr/bin/env python3
"""How far our kernels are from the best published peer, by ratios to cuDNN, which depend little on the clock.

    scripts/beside_peers.py RECORD.jsonl... [--peers FILE.csv] [--impl NAME]

r is our speed over cuDNN's in the rounds of one run (`speedup_vs_peer`; the median where several records, fresh processes
of one build, hold the point). t is the best peer's TFLOPS over cuDNN's in the file of published points, which were
sampled in turns with each other. r / t above 1 is faster than the best of them. Points that only one side
has are left out and counted.

Exit codes: 0 every limit is met, 1 some are not, 2 usage, 5 nothing to compare.
"""

import argparse
import csv
import json
import math
import os
import statistics
import sys

PEERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../results/published/h200_peers.csv")
PROBLEM = ("mode", "dtype", "causal", "batch", "q_heads", "kv_heads", "q_len", "kv_len", "head_dim", "layout", "dist", "logit_std", "l2")


class Failure(Exception):
    """An error: a sentence for the user and the exit code."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def key_of(row):
    return tuple(str(row.get(name, "")) for name in PROBLEM)


def published(path):
    """{problem: (the best peer, its TFLOPS over cudnn's)} of a file as --overlay takes it."""
    speeds = {}
    try:
        with open(path, encoding="utf-8", newline="") as file:
            for row in csv.DictReader(line for line in file if not line.startswith("#")):
                speeds.setdefault(key_of(row), {})[row["impl"]] = float(row["tflops"])
    except (OSError, KeyError, ValueError) as error:
        raise Failure(5, f"{path}: {error}") from error
    best = {}
    for key, by_impl in speeds.items():
        if "cudnn" in by_impl:
            name = max(by_impl, key=by_impl.get)
            best[key] = (name, by_impl[name] / by_impl["cudnn"])
    return best


def measured(paths, impl):
    """{problem: [r of each record]} and how many rows of ours have no ratio to cudnn."""
    ratios, without = {}, 0
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                lines = file.read().splitlines()
        except OSError as error:
            raise Failure(5, f"{path}: {error}") from error
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                if number == len(lines):  # a cut record is readable up to there
                    break
                raise Failure(5, f"{path}: line {number}: {error.msg}") from error
            if row.get("type") != "row" or row.get("impl") != impl:
                continue
            if row.get("check") != "pass" or row.get("peer") != "cudnn" or not row.get("speedup_vs_peer"):
                without += 1
                continue
            ratios.setdefault(key_of(row), []).append(row["speedup_vs_peer"])
    return ratios, without


def order(key):
    row = dict(zip(PROBLEM, key))
    return (row["mode"] != "fwd", int(row["head_dim"]), row["causal"], row["dtype"], int(row["q_len"]))


def geomean(values):
    return math.exp(statistics.fmean(math.log(value) for value in values))


def compare(options):
    best = published(options.peers)
    ratios, without = measured(options.records, options.impl)
    keys = sorted((key for key in ratios if key in best), key=order)
    if not keys:
        raise Failure(5, f"no checked row of {options.impl} beside cudnn is a problem of {options.peers}")
    missed, shares, by_mode = [], [], {}
    print(f"{'':36} {'r':>6} {'t':>6} {'r / t':>6}  best peer")
    for key in keys:
        row = dict(zip(PROBLEM, key))
        r, (name, t) = statistics.median(ratios[key]), best[key]
        shares.append(r / t)
        by_mode.setdefault(row["mode"], []).append(r / t)
        point = f"{row['mode']} {'causal' if row['causal'] == '1' else 'full':6} d{row['head_dim']:<3} {row['dtype']} n={row['q_len']}"
        marks = [text for text, is_missed in (("r", r < options.minimum), ("r / t", r / t < options.share)) if is_missed]
        if marks:
            missed.append(point)
        print(f"{point:36} {r:6.3f} {t:6.3f} {r / t:6.3f}  {name}" + (f"   below: {', '.join(marks)}" if marks else ""))
    runs = max(len(ratios[key]) for key in keys)
    for mode, values in by_mode.items():
        print(f"{mode}: {len(values)} points, r / t: geometric mean {geomean(values):.3f}, "
              f"from {min(values):.3f} to {max(values):.3f}")
    left_out = len(ratios) - len(keys)
    print(f"{len(missed)} of {len(keys)} points below r {options.minimum:g} or r / t {options.share:g}; "
          f"{runs} record{'s' if runs > 1 else ''} a point at most; left out: {left_out} without a published point, "
          f"{without} rows without a ratio")
    is_behind = any(geomean(values) < options.mean for values in by_mode.values())
    return 1 if missed or is_behind else 0


def main():
    parser = argparse.ArgumentParser(usage="%(prog)s RECORD.jsonl... [options]", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="+", metavar="RECORD.jsonl")
    parser.add_argument("--peers", default=PEERS, metavar="FILE.csv")
    parser.add_argument("--impl", default="fused_sm90")
    parser.add_argument("--minimum", type=float, default=1.0, help="smallest r (1)")
    parser.add_argument("--share", type=float, default=0.97, help="smallest r / t (0.97)")
    parser.add_argument("--mean", type=float, default=1.0, help="smallest geometric mean of r / t of a direction (1)")
    options = parser.parse_args()
    try:
        return compare(options)
    except Failure as failure:
        print(f"beside_peers: {failure}", file=sys.stderr)
        return failure.code


if __name__ == "__main__":
    sys.exit(main())
