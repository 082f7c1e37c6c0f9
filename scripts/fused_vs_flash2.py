#!/usr/bin/env python3
"""Compares `fused_sm80` with FlashAttention-2 as PyTorch calls it, on the same problems.

Needs PyTorch with CUDA, whose operators _flash_attention_forward and _flash_attention_backward are FlashAttention-2;
their arguments are those of PyTorch 2.11.

    scripts/fused_vs_flash2.py --fabench build/release/fabench --csv all.csv     every point live
    CUDA_VISIBLE_DEVICES=0 scripts/fused_vs_flash2.py --fabench ... --part 1/2 --csv one.csv &
    CUDA_VISIBLE_DEVICES=1 scripts/fused_vs_flash2.py --fabench ... --part 2/2 --csv two.csv
    scripts/fused_vs_flash2.py --summary one.csv two.csv                         both parts judged together

Problems: bf16, 16384 tokens and a hidden size of 2048 in all (batch = tokens / length, heads = hidden / head_dim),
layout batch-length-heads-head_dim, forward and backward, in four groups:

    head-dims   head dims 32, 96, 192, 256; lengths 4K and 16K; causal and full
    windows     causal, the last 256, 1K or 4K keys and the row's own one; head dims 64 and 128; the windows that are
                shorter than the length, 4K and 16K
    packed      sequences of lognormal lengths, mean 512 and 2K, sigma 1, the same for queries and keys; head dims 64
                and 128; causal and full
    dropout     0.1; head dims 64 and 128; 4K and 16K; causal and full. FlashAttention-2 takes Philox with 7 rounds and
                8 bits for an element (it drops 0.1016), fabench 10 rounds and at least 16 bits

The ratio of a point is the speed of fabench, whose row must pass its check (--check sample), divided by the mean of
PyTorch's before and after it. Times are compared; the TFLOPS that are shown count the same visible pairs for both. A
point below the least ratio of its group is measured twice more, and the median of its three ratios counts. How a sample
is taken: scripts/pytorch_rounds.py. A point that cannot be measured is named, and the others go on.

Bars: head-dims, windows and packed together: geometric mean 1.05, least 0.97; dropout: geometric mean 0.95.

Exit codes: 0 the bars are reached, 1 one is not, 2 usage, 5 a file that cannot be read or has no point, 6 no device or
a point could not be measured, 7 the CSV cannot be written.
"""

import argparse
import csv
import itertools
import math
import random
import statistics
import sys
from typing import NamedTuple, Optional

from pytorch_rounds import HIDDEN, TOKENS, Failure, Rounds, measured_ratio, run_fabench

IMPL, DTYPE = "fused_sm80", "bf16"
SPECS = ["lognormal:512:1", "lognormal:2048:1"]  # of the packed lengths
GROUPS = ["head-dims", "windows", "packed", "dropout"]
BARS = [(["head-dims", "windows", "packed"], 1.05, 0.97), (["dropout"], 0.95, 0.0)]  # geometric mean, least
COLUMNS = ["group", "mode", "causal", "head_dim", "q_len", "lengths", "window_left", "dropout"]
COLUMNS += ["fabench_tflops", "flash2_tflops", "ratio"]


class Point(NamedTuple):
    group: str
    mode: str
    causal: bool
    head_dim: int
    q_len: int  # of packed sequences the longest
    lengths: str = "fixed"
    window_left: Optional[int] = None
    dropout: float = 0.0


def draw_lengths(spec):
    """The lengths that "lognormal:MEAN:SIGMA" means here: drawn until the tokens are used up, the last one cut."""
    mean, sigma = (float(part) for part in spec.split(":")[1:])
    generator, lengths = random.Random(1), []
    while sum(lengths) < TOKENS:
        drawn = round(generator.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma))
        lengths.append(min(max(drawn, 1), TOKENS - sum(lengths)))
    return lengths


def all_points():
    """Head dims change fastest and cost the same, so that every part of --part has about the same work."""
    modes, masks, lengths, dims = ["fwd", "bwd"], [True, False], [4096, 16384], [64, 128]
    points = [Point("head-dims", *rest[:2], rest[3], rest[2])
              for rest in itertools.product(modes, masks, lengths, [32, 96, 192, 256])]
    points += [Point("windows", mode, True, d, length, window_left=window)
               for mode, length, window, d in itertools.product(modes, lengths, [256, 1024, 4096], dims)
               if window < length]
    points += [Point("packed", mode, causal, d, max(draw_lengths(spec)), lengths=spec)
               for mode, causal, spec, d in itertools.product(modes, masks, SPECS, dims)]
    points += [Point("dropout", mode, causal, d, length, dropout=0.1)
               for mode, causal, length, d in itertools.product(modes, masks, lengths, dims)]
    return points


class Flash2(Rounds):
    """PyTorch's side."""

    def tensors(self, point):
        """q, k, v, dO, and (the starts of packed sequences or None)."""
        torch = self.torch
        shape, starts = (TOKENS // point.q_len, point.q_len), None
        if point.lengths != "fixed":
            shape = (TOKENS,)
            ends = list(itertools.accumulate(draw_lengths(point.lengths), initial=0))
            starts = torch.tensor(ends, dtype=torch.int32, device="cuda")
        shape += (HIDDEN // point.head_dim, point.head_dim)
        generator = torch.Generator(device="cuda").manual_seed(1)
        filled = [torch.randn(shape, generator=generator, device="cuda").to(self.kind(DTYPE)) for _ in range(4)]
        return (*filled, starts)

    def operator(self, point):
        aten = self.torch.ops.aten
        q, k, v, dout, starts = self.tensors(point)
        lengths = (starts, starts, point.q_len, point.q_len)
        more = {"scale": 1.0 / math.sqrt(point.head_dim)}
        if point.window_left is not None:
            more.update(window_size_left=point.window_left, window_size_right=0)

        def forward():
            return aten._flash_attention_forward(q, k, v, *lengths, point.dropout, point.causal, False, **more)

        if point.mode == "fwd":
            return forward
        o, lse, rng_state, unused, _ = forward()

        def backward():
            return aten._flash_attention_backward(
                dout, q, k, v, o, lse, *lengths, point.dropout, point.causal, rng_state, unused, **more
            )

        return backward

    def speed(self, point):
        """Passes in a millisecond."""
        return 1 / self.time_ms(self.operator(point), DTYPE)


class Fabench:
    """fabench's side: a fresh process per point."""

    def __init__(self, options):
        self.program, self.flops = options.fabench, 0.0
        self.times = ["--warmup-ms", f"{options.warmup_ms:g}", "--min-time-ms", f"{options.min_time_ms:g}"]

    def arguments(self, point):
        words = ["--mode", point.mode, f"--causal={'yes' if point.causal else 'no'}", "--d", str(point.head_dim)]
        if point.lengths == "fixed":
            words += ["--seqlen", str(point.q_len)]
        else:
            words += ["--lengths", ":".join(["list", *map(str, draw_lengths(point.lengths))])]
        if point.window_left is not None:
            words += ["--window-left", str(point.window_left)]
        if point.dropout:
            words += ["--dropout", f"{point.dropout:g}"]
        words += ["--total-tokens", str(TOKENS), "--hidden", str(HIDDEN), "--layout", "bshd", "--dtype", DTYPE]
        return words + ["--check", "sample", "--max-noise", "2%", *self.times]

    def speed(self, point):
        row = run_fabench(self.program, IMPL, self.arguments(point))
        if row["check"] != "pass":
            raise Failure(6, f"the check of {IMPL} says {row['check']}")
        if not row["gemm_tflops"]:
            raise Failure(6, "fabench's rounds hold no GEMM (no cuBLAS?), PyTorch's do")
        self.flops = float(row["flops"])
        return 1 / float(row["time_ms"])


def measure(point, fabench, flash2):
    """The row of the CSV."""
    least = next(least for groups, _, least in BARS if point.group in groups)
    ours, theirs, ratio = measured_ratio(lambda: fabench.speed(point), lambda: flash2.speed(point), least)
    tflops = [f"{speed * fabench.flops / 1e9:.1f}" for speed in (ours, theirs)]
    return dict(point_columns(point), fabench_tflops=tflops[0], flash2_tflops=tflops[1], ratio=f"{ratio:.4f}")


def point_columns(point):
    columns = point._asdict()
    columns.update(causal=int(point.causal), dropout=f"{point.dropout:g}")
    columns["window_left"] = -1 if point.window_left is None else point.window_left
    return columns


def print_row(row):
    note = "".join([f"  window {row['window_left']}" if int(row["window_left"]) >= 0 else "",
                    f"  {row['lengths']}" if row["lengths"] != "fixed" else ""])
    print(f"{row['group']:9} {row['mode']:4} {row['causal']:>6} {row['q_len']:>5} {row['head_dim']:>3} "
          f"{row['fabench_tflops']:>9} {row['flash2_tflops']:>9} {row['ratio'] or 'failed':>7}{note}", flush=True)


def print_line(name, ratios, rest=""):
    print(f"{name}: {len(ratios)} points, geometric mean {statistics.geometric_mean(ratios):.3f}, "
          f"least {min(ratios):.3f}{rest}")


def summarise(rows):
    """A line for each group and for each bar; the exit code."""
    code = 0
    measured = {group: [float(row["ratio"]) for row in rows if row["group"] == group and row["ratio"]]
                for group in GROUPS}
    for group, ratios in measured.items():
        if ratios:
            print_line(group, ratios)
    for groups, least_mean, least in BARS:
        ratios = [ratio for group in groups for ratio in measured[group]]
        if not ratios:
            continue
        missed = statistics.geometric_mean(ratios) < least_mean or min(ratios) < least
        at_least = f"; at least {least_mean:g}" + (f" and {least:g}" if least else "")
        print_line("bar of " + ", ".join(groups), ratios, f"{at_least}: {'missed' if missed else 'reached'}")
        code = 1 if missed else code
    failed = sum(not row["ratio"] for row in rows)
    if failed:
        print(f"{failed} points could not be measured")
    return 6 if failed else code


def read_rows(paths):
    rows = []
    for path in paths:
        try:
            with open(path, encoding="utf-8", newline="") as table:
                read = list(csv.DictReader(table))
        except (OSError, UnicodeDecodeError) as error:
            raise Failure(5, f"{path}: {getattr(error, 'strerror', None) or error}") from error
        if not read or not set(COLUMNS) <= set(read[0]):
            raise Failure(5, f"{path}: no table that --csv wrote, or no row")
        rows += read
    return rows


def open_csv(path):
    try:
        return open(path, "w", encoding="utf-8", newline="")
    except OSError as error:
        raise Failure(7, f"{path}: {error.strerror}") from error


def measure_all(points, options, table):
    """Row by row, so that a run that is cut leaves what it has measured."""
    flash2 = Flash2(options.samples, options.warmup_ms, options.min_time_ms)
    fabench, rows = Fabench(options), []
    print(f"{flash2.torch.cuda.get_device_name(0)}, PyTorch {flash2.torch.__version__}, {len(points)} points")
    print("group     mode causal     n   d   fabench    flash2   ratio   (TFLOPS)")
    writer = csv.DictWriter(table, COLUMNS, restval="", lineterminator="\n") if table else None
    if writer:
        writer.writeheader()
    for point in points:
        try:
            row = measure(point, fabench, flash2)
        except (Failure, RuntimeError, TypeError) as error:  # the last two: PyTorch's
            print(f"fused_vs_flash2: {point.group}: {error}", file=sys.stderr)
            row = dict(point_columns(point), fabench_tflops="", flash2_tflops="", ratio="")
        print_row(row)
        rows.append(row)
        if writer:
            writer.writerow(row)
            table.flush()
    return rows


def part_of(text):
    """ "2/3" as (2, 3)."""
    number, separator, count = text.partition("/")
    if not (separator and number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text}: I/N with 1 <= I <= N")
    return int(number), int(count)


def groups_of(text):
    groups = text.split(",")
    if not set(groups) <= set(GROUPS):
        raise argparse.ArgumentTypeError(f"{text}: of {', '.join(GROUPS)}")
    return groups


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--fabench", metavar="PATH", help="run this program point by point")
    source.add_argument("--summary", metavar="FILE", nargs="+", help="judge the points of these files of --csv")
    source.add_argument("--list", action="store_true", help="print the points and end")
    parser.add_argument("--only", type=groups_of, default=GROUPS, metavar="GROUP[,GROUP]", help=", ".join(GROUPS))
    parser.add_argument("--part", type=part_of, default=(1, 1), metavar="I/N", help="the points I, I + N, I + 2N, ...")
    parser.add_argument("--csv", metavar="FILE", help="write a row for each point")
    parser.add_argument("--samples", type=int, default=30, help="of PyTorch, at least [30]")
    parser.add_argument("--warmup-ms", type=float, default=50, help="of each measurement, at least [50]")
    parser.add_argument("--min-time-ms", type=float, default=100, help="of the samples together, at least [100]")
    options = parser.parse_args(arguments)
    if options.samples < 30 or options.warmup_ms < 50 or options.min_time_ms < 100:
        parser.error("fewer than 30 samples, 50 ms of warm-up or 100 ms of samples are no measurement")
    return options


def run(options):
    if options.summary:
        return summarise(read_rows(options.summary))
    number, count = options.part
    points = [point for point in all_points() if point.group in options.only][number - 1 :: count]
    if options.list:
        for point in points:
            print_row(dict(point_columns(point), fabench_tflops="", flash2_tflops="", ratio="-"))
        return 0
    if not options.csv:
        return summarise(measure_all(points, options, None))
    with open_csv(options.csv) as table:
        return summarise(measure_all(points, options, table))


def main():
    try:
        return run(parse_arguments(sys.argv[1:]))
    except Failure as failure:
        print(f"fused_vs_flash2: {failure}", file=sys.stderr)
        return failure.code


if __name__ == "__main__":
    sys.exit(main())
