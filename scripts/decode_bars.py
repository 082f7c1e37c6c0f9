#!/usr/bin/env python3
"""The bars of decode on Hopper: measures their points, checked in the same run, and says which are met.

    scripts/decode_bars.py measure OUT [--limit-s S] [--only RUN,...]
    scripts/decode_bars.py table OUT [--csv FILE]

measure: a process of FABENCH (build/release/fabench) for each run, OUT/<run>.jsonl; a record that is there is not made
again. All take some 80 s on an H200. Beside FlashAttention-3: scripts/decode_vs_fa3.py.

table: pages are compared by their shares of the read ceiling, other pairs of problems by times. Rows that did not pass
their check have no figure and count as missed.

Exit codes: 0 every bar is met, 1 one is not or has no record, 2 usage, 5 nothing to compare, 130 the limit ended it.
"""

import argparse
import math
import os
import statistics
import sys
import time

from ratios import Failure, failed_rows, make_record, reporting, rows_of, write_csv

OURS, STABLE, PAGES = "fused_sm90", "fused_sm90:invariant", (16, 64, 256)
BOTH, CACHE = f"--impl {OURS},{STABLE}", "--mode decode --d 128 --shape 32x8"
RUNS = {"batches": f"{CACHE},64x8,32x32 --batch 8,64 --kv-len 8k {BOTH}",
        "long": f"{CACHE} --batch 8 --kv-len 32k {BOTH}",
        "one": f"{CACHE},32x1 --batch 1 --kv-len 1k,8k,32k,128k {BOTH}",
        **{f"pages-{page}": f"{CACHE} --batch 8,64 --kv-len 8k --page-size {page} --impl {OURS}" for page in PAGES},
        "lengths": f"{CACHE} --lengths list:512*64,list:128*32:4k*32,list:16k:64*15,list:128k:4k*31 {BOTH}",
        "rows": f"{CACHE} --batch 8 --kv-len 8k,32k --seqlen 1,4,8 --impl {OURS}",
        "rows-64x8": f"{CACHE.replace('32x8', '64x8')} --batch 8 --kv-len 8k --seqlen 1,4,8 --impl {OURS}",
        "chunk": f"{CACHE} --batch 8 --kv-len 32k --seqlen 128 --impl {OURS}",
        "chunk-forward": f"--mode fwd --causal --d 128 --shape 32x8 --batch 8 --kv-len 32k --seqlen 128 --impl {OURS}",
        "sm80": f"{CACHE} --batch 64 --kv-len 8k --impl fused_sm80",
        "eight": f"{CACHE} --batch 32,64 --kv-len 8k --cache-dtype none,e4m3 --impl {OURS}"}
SHORT = "--dtype bf16 --min-time-ms 15 --samples 12 --warmup-ms 10 --max-noise 2% --check sample --plot none --quiet"
PROBLEM = ("q_heads", "kv_heads", "batch", "q_len", "kv_len", "lengths", "page_size", "cache_dtype")
COLUMNS = ("impl", "variant", *PROBLEM, "time_ms", "pct_of_read")


def measure(options):
    os.makedirs(options.out, exist_ok=True)
    program, until, worst = os.environ.get("FABENCH", "build/release/fabench"), time.monotonic() + options.limit_s, 0
    for run, asked in RUNS.items():
        record, begin = os.path.join(options.out, f"{run}.jsonl"), time.monotonic()
        if options.only and run not in options.only:
            continue
        code = make_record(program, [*asked.split(), *SHORT.split(), "--out", "none"], record, until - begin)
        if code == 130:
            return code
        if code is not None:
            print(f"{run}: exit {code}, {time.monotonic() - begin:.0f} s", flush=True)
            worst = max(worst, code != 0)
    return worst


def bars_of(records):
    """(bar, row, figure, limit, whether more is better) of each point."""
    ours = {run: [by_impl[OURS] for by_impl in problems if OURS in by_impl] for run, problems in records.items()}

    def pairs(run, column, base, other_run=None):
        """(row, row of the same problem where `column` is `base`)"""
        key = lambda row: tuple(row.get(name) for name in PROBLEM if name != column)
        bases = {key(row): row for row in ours.get(other_run or run, []) if row.get(column) == base}
        return [(row, bases[key(row)]) for row in ours.get(run, []) if row.get(column) != base and key(row) in bases]

    for row in (row for run in ("batches", "long", "one") for row in ours.get(run, []) if row["kv_heads"] > 1):
        if row["min_gb"] < 0.268:
            yield "us above the ceiling", row, 1e3 * row["time_ms"] * (1 - row["pct_of_read"] / 100), 4, False
        else:
            yield "read ceiling", row, row["pct_of_read"] / 100, 0.98 if row["min_gb"] >= 1 else 0.95, True
    for row in (by_impl["fused_sm80"] for by_impl in records.get("sm80", [])):
        yield "read ceiling", row, row["pct_of_read"] / 100, 0.93, True
    for page in PAGES:
        for row, plain in pairs(f"pages-{page}", "page_size", 0, "batches"):
            yield "pages", row, row["pct_of_read"] / plain["pct_of_read"], 0.97 if page == 16 else 0.99, True
    for row in ours.get("lengths", []):
        if row["min_gb"] >= 0.134:
            yield "unequal lengths", row, row["pct_of_read"] / 100, 0.93, True
    for row, one in pairs("rows", "q_len", 1) + pairs("rows-64x8", "q_len", 1):
        yield "new rows", row, row["time_ms"] / one["time_ms"], 1.04, False
    for row, forward in pairs("chunk", "mode", "fwd", "chunk-forward"):
        yield "chunk / forward", row, row["tflops"] / forward["tflops"], 0.9, True
    for row, plain in pairs("eight", "cache_dtype", None):
        yield "8 bits / 16 bits", row, plain["time_ms"] / row["time_ms"], 1.8, True
    speeds = [by_impl[OURS]["time_ms"] / by_impl[STABLE]["time_ms"] for run in ("batches", "long", "one", "lengths")
              for by_impl in records.get(run, []) if OURS in by_impl and STABLE in by_impl]
    mean = statistics.geometric_mean(speeds) if speeds else math.nan
    yield f"invariant, mean of {len(speeds)}", {"impl": STABLE}, mean, 0.97, True


def table(options):
    paths = {run: path for run in RUNS if os.path.exists(path := os.path.join(options.out, f"{run}.jsonl"))}
    records = {run: list(rows_of(path).values()) for run, path in paths.items()}
    if not records:
        raise Failure(5, f"{options.out}: no record of a run")
    lines = []
    for bar, row, figure, limit, is_more in bars_of(records):
        words = ["" if word is None else f"{word:.4g}" if isinstance(word, float) else word
                 for word in map(row.get, COLUMNS)]
        met = "met" if (figure >= limit if is_more else figure <= limit) else "missed"
        lines.append([bar, *words, f"{figure:.3f}", limit, met])
        print(*(word for word in lines[-1] if word not in ("", 0, "fixed")))
    missed, missing = sum(line[-1] != "met" for line in lines), sorted(set(RUNS) - set(records))
    failed = sum(map(failed_rows, paths.values()))
    print(f"{len(lines)} points, {missed} missed; {failed} rows did not pass" +
          (f"; no record: {', '.join(missing)}" if missing else ""))
    if options.csv:
        write_csv(options.csv, ["bar", *COLUMNS, "figure", "limit", "met"], lines)
    return 1 if missed or missing or failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one, two = commands.add_parser("measure"), commands.add_parser("table")
    for command in (one, two):
        command.add_argument("out", metavar="OUT")
    one.add_argument("--limit-s", type=float, default=600, metavar="S")
    one.add_argument("--only", type=lambda text: text.split(","), metavar="RUN,...")
    two.add_argument("--csv", metavar="FILE")
    options = parser.parse_args()
    return reporting("decode_bars", measure if options.command == "measure" else table, options)


if __name__ == "__main__":
    sys.exit(main())
