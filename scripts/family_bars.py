#!/usr/bin/env python3
"""The bars of windows, packed lengths, block masks and softcap on Hopper: measures their points and says which are met.

    scripts/family_bars.py measure OUT [--processes N] [--limit-s S] [--only RUN,...]
    scripts/family_bars.py table OUT... [--csv FILE]

measure: a process for each run and repeat, OUT/<repeat>/<run>.jsonl; a record that is whole is not made again, so that
the same command goes on where a limit ended it. It needs FABENCH (build/release/fabench) on a GPU of sm_90, and for the
figures beside FlashAttention-3 FABENCH_FA3_PLUGIN (fa3.so); without it these are left out.

table: a figure is the median over the repeats. Speeds over fa3 are those of the same rounds. Two problems of one
implementation (a window and none, packed and not) are timed in one process, and where a bar compares their speeds each
is over the GEMM of its own rounds. Rows that did not pass their check count as missing, and a missing figure as missed.

Exit codes: 0 every bar is met, 1 one is not or is missing, 2 usage, 5 nothing to compare, 130 the limit ended it.
"""

import argparse
import glob
import math
import os
import random
import statistics
import sys
import time

from ratios import Failure, make_record, paired, reporting, rows_of, write_csv

OURS, PEER = "fused_sm90", "fa3"
LONG = "--causal --batch 1 --seqlen 16k"
LOGNORMAL = {"2k:1": (2048, 1, 32768), "1k:1.5": (1024, 1.5, 65536)}  # mean, sigma, tokens
DENSE_LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
MASKS = ("random:1", "random:0.5", "random:0.25", "random:0.1", "local:17")

# Each run: what it is asked, for each mode, beside --mode. "peer": with fa3 in the rounds.
RUNS = {"windows": f"peer {LONG} --d 64,128 --window-left none,255,1023,4095",
        **{f"lognormal-{spec}": f"peer --causal --d 64,128 --lengths @lognormal-{spec}" for spec in LOGNORMAL},
        "dense": "--causal --d 64,128 --seqlen 512,1k,2k,4k,8k,16k",
        "equal": "--causal --d 64,128 --lengths list:2k*16,list:2k*16:0*1000",
        "equal-dense": "--causal --d 64,128 --batch 16 --seqlen 2k",
        "one-long": "--causal --d 64,128 --lengths list:16k:1*255,list:16k,list:1*255",
        "masks": f"--causal=no --d 64,128 --batch 1 --seqlen 16k --mask-block 128 --block-mask none,{','.join(MASKS)}",
        "plain": "--causal=both --d 64,128 --seqlen 16k",
        "softcap": "--causal=both --d 64,128 --seqlen 16k --softcap 30",
        "types": f"{LONG} --d 64,128 --window-left 1023 --dtype bf16,fp16",
        "bhsd": f"{LONG} --d 64,128 --window-left 1023 --layout bhsd",
        "shared-heads": f"{LONG} --d 64,128 --window-left 1023 --shape 32x32,32x8",
        "deterministic": f"both {LONG} --d 64,128 --window-left 255,1023,4095",
        "deterministic-lengths": "both --causal --d 64,128 --lengths @lognormal-2k:1"}
SHORT = "--min-time-ms 40 --samples 10 --warmup-ms 40 --max-noise 1% --check sample --plot none --quiet"

# Window: {(mode, head_dim): least speed over fa3}.
WINDOWS = {255: {("fwd", 64): 1.6, ("fwd", 128): 1.2, ("bwd", 64): 1.3, ("bwd", 128): 1.15},
           1023: {("fwd", 64): 1.3, ("fwd", 128): 1.08, ("bwd", 64): 1.10, ("bwd", 128): 1.05},
           4095: {("fwd", 64): 1.05, ("fwd", 128): 1.00, ("bwd", 64): 1.02, ("bwd", 128): 1.02}}
PACKED = {("fwd", 64): (1.15, 1.15), ("fwd", 128): (1.03, 1.03), ("bwd", 64): (1.03, 1.03), ("bwd", 128): (1.00, 1.05)}
SOFTCAP = {("fwd", 64): 1.5, ("fwd", 128): 1.25, ("bwd", 64): 1.25, ("bwd", 128): 1.25}


def draw(mean, sigma, tokens):
    """Lengths of the lognormal distribution with this mean, the same in every run, until the tokens are used up."""
    random_numbers, lengths = random.Random(1), []
    while sum(lengths) < tokens:
        length = round(random_numbers.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma))
        lengths.append(min(max(length, 1), tokens - sum(lengths)))
    return lengths


def measure(options):
    os.makedirs(options.out, exist_ok=True)
    for spec, numbers in LOGNORMAL.items():
        with open(os.path.join(options.out, f"lognormal-{spec}"), "w", encoding="utf-8") as file:
            file.writelines(f"{length}\n" for length in draw(*numbers))
    program = os.environ.get("FABENCH", "build/release/fabench")
    plugin, until = os.environ.get("FABENCH_FA3_PLUGIN"), time.monotonic() + options.limit_s
    worst = 0
    for repeat in range(1, options.processes + 1):
        for run, asked in RUNS.items():
            for mode in ("fwd", "bwd"):
                folder = os.path.join(options.out, str(repeat))
                record, words = os.path.join(folder, f"{run}-{mode}.jsonl"), asked.split()
                kind = words.pop(0) if words[0] in ("peer", "both") else ""
                words = [word.replace("@", f"@{options.out}/") for word in words]
                if (options.only and run not in options.only or kind == "both" and mode == "fwd" or
                        os.path.exists(record)):
                    continue
                if time.monotonic() > until - 10:
                    return 130
                impl = OURS if not kind else f"{OURS},{OURS}:deterministic" if kind == "both" else f"{OURS},{PEER}"
                if kind == "peer" and not plugin:
                    kind, impl = "", OURS
                words += ["--impl", impl, *SHORT.split(), "--mode", mode, "--out", "none"]
                words += [] if "--dtype" in words else ["--dtype", "bf16"]
                words += ["--impl-lib", plugin, "--peer", PEER] if kind == "peer" else []
                os.makedirs(folder, exist_ok=True)
                code = make_record(program, words, record, until - time.monotonic())
                if code == 130:
                    return code
                print(f"{repeat} {run} {mode}: exit {code}", flush=True)
                worst = max(worst, code != 0)
    return worst


class Rows:
    """Rows that passed of all repeats."""

    def __init__(self, folders):
        self.records = {}
        for folder in folders:
            for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*", "*.jsonl"))):
                name = os.path.basename(path)[:-len(".jsonl")]
                self.records.setdefault(name, []).append(list(rows_of(path).values()))

    def find(self, run, mode, impl, head_dim, **columns):
        """{impl: row} of the only problem in each repeat's record that has these columns."""
        found = []
        for problems in self.records.get(f"{run}-{mode}", []):
            hits = [by_impl for by_impl in problems if impl in by_impl and by_impl[impl]["head_dim"] == head_dim and
                    all(by_impl[impl].get(name) == value for name, value in columns.items())]
            if len(hits) == 1:
                found.append(hits[0])
        return found

    def pairs(self, ours, other):
        """(row, row) of each repeat for two of find's arguments."""
        return list(zip((hit[OURS] for hit in self.find(*ours[:2], OURS, ours[2], **ours[3])),
                        (hit[OURS] for hit in self.find(*other[:2], OURS, other[2], **other[3]))))


def median(values):
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def by_gemm(pairs):
    """Share of the speed of the second, each over the GEMM of its rounds."""
    return median(ours["pct_of_gemm"] / other["pct_of_gemm"] for ours, other in pairs
                  if ours.get("pct_of_gemm") and other.get("pct_of_gemm"))


def over_peer(hits, name=PEER, of=OURS):
    return median(paired(hit[of], hit[name]) for hit in hits if name in hit and of in hit)


def clock(rows):
    mhz = median(row.get("sm_clock_mhz") for row in rows)
    return "" if mhz is None else f"{mhz:.0f}"


def weighted_share(rows, mode, head_dim, spec):
    """Packed sequences beside dense speeds of their lengths, weighted with their FLOPs: log-linear between lengths."""
    dense = {}
    for n in DENSE_LENGTHS:
        dense[n] = median(hit[OURS].get("pct_of_gemm") for hit in rows.find("dense", mode, OURS, head_dim, q_len=n))
    if any(value is None for value in dense.values()):
        return None

    def speed(n):
        n = min(max(n, DENSE_LENGTHS[0]), DENSE_LENGTHS[-1])
        low = max(length for length in DENSE_LENGTHS if length <= n)
        high = min(length for length in DENSE_LENGTHS if length >= n)
        part = 0 if low == high else math.log(n / low) / math.log(high / low)
        return dense[low] * (1 - part) + dense[high] * part

    lengths = draw(*LOGNORMAL[spec])
    flops = [n * (n + 1) for n in lengths]
    ideal = sum(flops) / sum(f / speed(n) for f, n in zip(flops, lengths))
    hits = rows.find(f"lognormal-{spec}", mode, OURS, head_dim)
    return median(hit[OURS]["pct_of_gemm"] / ideal for hit in hits if hit[OURS].get("pct_of_gemm"))


def bars_of(rows):
    """(bar, figure or None, limit, whether more is better, clocks) in the order of the table."""
    for left, limits in WINDOWS.items():
        for (mode, d), least in limits.items():
            hits = rows.find("windows", mode, OURS, d, window_left=left)
            yield f"window {left + 1} {mode} d{d} / fa3", over_peer(hits), least, True, clock(h[OURS] for h in hits)
    for mode, least in (("fwd", 0.78), ("bwd", 0.75)):
        for d in (64, 128):
            pairs = rows.pairs(("windows", mode, d, {"window_left": 1023}), ("windows", mode, d, {"window_left": -1}))
            yield (f"window 1024 {mode} d{d} / dense by GEMM", by_gemm(pairs), least, True,
                   "/".join(clock(pair[i] for pair in pairs) for i in (0, 1)))
    for mode in ("fwd", "bwd"):
        for d in (64, 128):
            fixed = ("equal-dense", mode, d, {})
            equal = ("equal", mode, d, {"lengths": "list:2k*16"})
            pairs = rows.pairs(equal, fixed)
            yield f"packed 16 x 2K {mode} d{d} / dense", by_gemm(pairs), 0.98, True, clock(p[0] for p in pairs)
            pairs = rows.pairs(("equal", mode, d, {"lengths": "list:2k*16:0*1000"}), equal)
            yield (f"1000 empty entries {mode} d{d}: us more",
                   median(1e3 * (a["time_ms"] - b["time_ms"]) for a, b in pairs), 3, False, clock(p[0] for p in pairs))
            one, both = (rows.pairs(("one-long", mode, d, {"lengths": "list:16k:1*255"}),
                                    ("one-long", mode, d, {"lengths": spec})) for spec in ("list:16k", "list:1*255"))
            yield (f"16K beside 255 x 1 {mode} d{d} / the sum of both", median(
                a["time_ms"] / (a_["time_ms"] + b["time_ms"]) for (a, a_), (_, b) in zip(one, both)), 1.05, False,
                clock(p[0] for p in one))
            for spec, least in zip(LOGNORMAL, PACKED[mode, d]):
                hits = rows.find(f"lognormal-{spec}", mode, OURS, d)
                yield f"lognormal {spec} {mode} d{d} / fa3", over_peer(hits), least, True, clock(h[OURS] for h in hits)
                yield (f"lognormal {spec} {mode} d{d} / dense by FLOPs and GEMM", weighted_share(rows, mode, d, spec),
                       0.90, True, clock(h[OURS] for h in hits))
    for mode in ("fwd", "bwd"):
        for d in (64, 128):
            for mask in MASKS:
                pairs = rows.pairs(("masks", mode, d, {"block_mask": mask}), ("masks", mode, d, {"block_mask": "none"}))
                whole = 1.06 if d == 64 else 1.04
                used = median(a["time_ms"] / (whole * b["time_ms"] if a["flops"] >= b["flops"] else
                                              a["flops"] / b["flops"] / 0.9 * b["time_ms"] + 0.02) for a, b in pairs)
                yield (f"mask {mask} {mode} d{d}: time / limit", used, 1, False,
                       "/".join(clock(pair[i] for pair in pairs) for i in (0, 1)))
    for (mode, d), most in SOFTCAP.items():
        for causal in (False, True):
            same = {"causal": causal}
            share = by_gemm(rows.pairs(("softcap", mode, d, same), ("plain", mode, d, same)))
            yield (f"softcap 30 {mode} d{d} {'causal' if causal else 'full'}: time / without by GEMM",
                   share and 1 / share, most, False, "")
    for mode in ("fwd", "bwd"):
        for d in (64, 128):
            same = {"bf16": {"dtype": "bf16"}, "fp16": {"dtype": "fp16"}}
            yield (f"window 1024 {mode} d{d}: fp16 / bf16", by_gemm(
                rows.pairs(("types", mode, d, same["fp16"]), ("types", mode, d, same["bf16"]))), 0.97, True, "")
            yield (f"window 1024 {mode} d{d}: bhsd / bshd", by_gemm(
                rows.pairs(("bhsd", mode, d, {}), ("types", mode, d, same["bf16"]))), 0.98, True, "")
            yield (f"window 1024 {mode} d{d}: 32 on 8 heads / 32 on 32", by_gemm(
                rows.pairs(("shared-heads", mode, d, {"kv_heads": 8}), ("shared-heads", mode, d, {"kv_heads": 32}))),
                0.98, True, "")
    for d in (64, 128):
        fixed = f"{OURS}:deterministic"
        for left in WINDOWS:
            hits = rows.find("deterministic", "bwd", fixed, d, window_left=left)
            yield f"deterministic / default: window {left + 1} bwd d{d}", over_peer(hits, OURS, fixed), 0.80, True, ""
        hits = rows.find("deterministic-lengths", "bwd", fixed, d)
        yield f"deterministic / default: lognormal 2k:1 bwd d{d}", over_peer(hits, OURS, fixed), 0.80, True, ""


def table(options):
    rows = Rows(options.out)
    if not rows.records:
        raise Failure(5, "no record; see measure")
    repeats = max(len(records) for records in rows.records.values())
    lines, missed = [], 0
    for bar, figure, limit, more, mhz in bars_of(rows):
        word = "missing" if figure is None else "met" if (figure >= limit if more else figure <= limit) else "short"
        missed += word != "met"
        shown = "-" if figure is None else f"{figure:.3f}"
        lines.append((bar, shown, ("least " if more else "most ") + f"{limit:g}", word, mhz, repeats))
        print(f"{bar:62} {shown:>8}  {'>=' if more else '<='} {limit:<5g} {word:8} {mhz}")
    print(f"{len(lines) - missed} of {len(lines)} bars are met; medians of up to {repeats} processes")
    if options.csv:
        write_csv(options.csv, ("bar", "figure", "limit", "verdict", "sm_clock_mhz", "processes"), lines)
    return 1 if missed else 0


def main():
    parser = argparse.ArgumentParser(usage="%(prog)s measure|table OUT... [options]", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("measure")
    one.add_argument("out", metavar="OUT")
    one.add_argument("--processes", type=int, default=3, help="repeats of each run (3)")
    one.add_argument("--limit-s", type=float, default=math.inf, help="seconds for this call")
    one.add_argument("--only", type=lambda text: text.split(","), default=[], metavar="RUN,...", help=", ".join(RUNS))
    two = commands.add_parser("table")
    two.add_argument("out", nargs="+", metavar="OUT")
    two.add_argument("--csv", metavar="FILE", help="the bars as a table, too")
    options = parser.parse_args()
    return reporting("family_bars", measure if options.command == "measure" else table, options)


if __name__ == "__main__":
    sys.exit(main())
