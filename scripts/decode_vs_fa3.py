#!/usr/bin/env python3
"""Compares decode of a fused kernel with FlashAttention-3's, on the problems of `--preset decode` with contiguous caches.

    python3 -m pip install torch==2.11.0 fa3-fwd==0.0.3
    scripts/decode_vs_fa3.py --fabench build/release/fabench --csv decode.csv [--impl fused_sm90] [--shape 32x8,...]
        [--batch 1,8] [--kv-len 1k,8k] [--q-len 1,4] [--page-size 16]

Needs an H100 or H200, PyTorch with CUDA and the wheel fa3-fwd, whose operator is FlashAttention-3's forward with split
keys and packed query heads, its own choice of both (num_splits 0). It has no pages: with --page-size our cache is paged
and FlashAttention-3's is contiguous. bf16, head dim 128, causal, layout batch-length-heads-head_dim; caches above
--most-gb are left out.

One rotation for each point: FlashAttention-3, ours in a fresh process of fabench (its row must pass its check), and
FlashAttention-3 again, whose mean counts. In its rounds a sample of it is followed by one that reads as many bytes, as in
fabench's. How a sample is taken: scripts/pytorch_rounds.py. ratio: their time over ours. A point below 0.99 is measured
twice more, and the median of its three ratios counts.

Bars: all points together: geometric mean 1.06, least 0.99; one key head and batch 1: geometric mean 1.2, least 1.1.

Exit codes: 0 the bars are reached, 1 one is not, 2 usage, 6 no device or a point could not be measured, 7 the CSV
cannot be written.
"""

import itertools
import math
import statistics
import sys

from fa3_rounds import Flash3, counts_of, parser_of, run, shapes_of
from pytorch_rounds import Failure, measured_ratio, run_fabench

HEAD_DIM, DTYPE, LEAST = 128, "bf16", 0.99
COLUMNS = ["q_heads", "kv_heads", "batch", "kv_len", "page_size", "q_len", "mb", "us", "fa3_us", "pct_of_read",
           "fa3_pct_of_read", "ratio"]


class Decode(Flash3):
    """FlashAttention-3's forward against a cache."""

    def __init__(self, options):
        super().__init__(options)
        self.cache = None

    def gemm(self, dtype, stream):
        """In the place of the product of other rounds: as many bytes, only read."""
        words = [x.view(self.torch.int64) for x in self.cache]
        return self.capture(lambda: [x.sum() for x in words], stream)[0]

    def speed(self, point):
        """Passes in a millisecond."""
        torch = self.torch
        batch, kv_len = point["batch"], point["kv_len"]

        def draw(length, heads):
            return torch.randn((batch, length, heads, HEAD_DIM), device="cuda", dtype=self.kind(DTYPE))

        q = draw(point["q_len"], point["q_heads"])
        self.cache = [draw(kv_len, point["kv_heads"]) for _ in range(2)]
        used = torch.tensor([kv_len] * batch, dtype=torch.int32, device="cuda")
        options = {"out": torch.empty_like(q), "seqused_k": used, "softmax_scale": 1.0 / math.sqrt(HEAD_DIM),
                   "is_causal": True, "num_splits": 0}
        try:
            return 1 / self.time_ms(lambda: torch.ops.fa3_fwd.fwd(q, *self.cache, **options), DTYPE)
        finally:
            self.cache = None


class Fabench:
    """fabench's side: a fresh process per point."""

    def __init__(self, options):
        self.program, self.impl, self.row = options.fabench, options.impl, {}
        self.times = ["--warmup-ms", f"{options.warmup_ms:g}", "--min-time-ms", f"{options.min_time_ms:g}"]

    def speed(self, point):
        words = ["--mode", "decode", "--causal=yes", "--d", str(HEAD_DIM), "--dtype", DTYPE, "--layout", "bshd",
                 "--shape", f"{point['q_heads']}x{point['kv_heads']}", "--batch", str(point["batch"]),
                 "--kv-len", str(point["kv_len"]), "--seqlen", str(point["q_len"]),
                 "--page-size", str(point["page_size"]), "--check", "sample", "--max-noise", "2%", *self.times]
        self.row = run_fabench(self.program, self.impl, words)
        if self.row["check"] != "pass":
            raise Failure(6, f"the check of {self.impl} says {self.row['check']}")
        return 1 / float(self.row["time_ms"])


def megabytes(point):
    return 4 * HEAD_DIM * point["batch"] * point["kv_len"] * point["kv_heads"] / 1e6


def all_points(options):
    points = []
    for (q_heads, kv_heads), batch, kv_len, q_len in itertools.product(options.shape, options.batch, options.kv_len,
                                                                        options.q_len):
        point = {"q_heads": q_heads, "kv_heads": kv_heads, "batch": batch, "kv_len": kv_len,
                 "page_size": options.page_size, "q_len": q_len}
        if megabytes(point) <= 1e3 * options.most_gb:
            points.append(point)
    return points


def measure(point, fabench, flash3):
    """The row of the CSV."""
    ours, theirs, ratio = measured_ratio(lambda: fabench.speed(point), lambda: flash3.speed(point), LEAST)
    share = float(fabench.row.get("pct_of_read") or "nan")
    return {**point, "mb": f"{megabytes(point):.0f}", "us": f"{1e3 / ours:.1f}", "fa3_us": f"{1e3 / theirs:.1f}",
            "pct_of_read": f"{share:.1f}", "fa3_pct_of_read": f"{share / ratio:.1f}", "ratio": f"{ratio:.4f}"}


def print_row(row):
    print("".join(f"{row.get(column, ''):>{max(len(column), 7) + 1}}" for column in COLUMNS), flush=True)


def summarise(rows):
    """A line for each bar; the exit code."""
    code = 0
    measured = [row for row in rows if row.get("ratio")]
    one_head = [row for row in measured if row["kv_heads"] == 1 and row["batch"] == 1]
    for name, some, least_mean, least in (("all", measured, 1.06, LEAST), ("one key head, batch 1", one_head, 1.2, 1.1)):
        ratios = [float(row["ratio"]) for row in some]
        if not ratios:
            continue
        missed = statistics.geometric_mean(ratios) < least_mean or min(ratios) < least
        print(f"{name}: {len(ratios)} points, geometric mean {statistics.geometric_mean(ratios):.3f}, least "
              f"{min(ratios):.3f}; at least {least_mean:g} and {least:g}: {'missed' if missed else 'reached'}")
        code = 1 if missed else code
    if len(measured) < len(rows):
        print(f"{len(rows) - len(measured)} points could not be measured")
    return 6 if len(measured) < len(rows) or not rows else code


def parse_arguments(arguments):
    parser = parser_of(__doc__)
    parser.add_argument("--shape", type=shapes_of, default=shapes_of("32x8,64x8,32x32,32x1"), metavar="QxK,...")
    parser.add_argument("--batch", type=counts_of, default=[1, 8, 64, 256], metavar="N,...")
    parser.add_argument("--kv-len", type=counts_of, default=counts_of("1k,8k,32k,128k"), metavar="N,...")
    parser.add_argument("--q-len", type=counts_of, default=[1], metavar="N,...", help="new tokens [1]")
    parser.add_argument("--page-size", type=int, default=0, metavar="N", help="of our cache [0]")
    parser.add_argument("--most-gb", type=float, default=9, metavar="X", help="the largest cache, 1e9 bytes [9]")
    return parser.parse_args(arguments)


def measure_all(options, table):
    flash3, fabench, rows, points = Decode(options), Fabench(options), [], all_points(options)
    print(f"{flash3.torch.cuda.get_device_name(0)}, {options.impl} beside FlashAttention-3, {len(points)} points")
    print_row({column: column for column in COLUMNS})
    for point in points:
        try:
            row = measure(point, fabench, flash3)
        except (Failure, RuntimeError) as error:
            print(f"decode_vs_fa3: {error}", file=sys.stderr)
            row = dict(point)
        print_row(row)
        rows.append(row)
        table.write(row)
    return summarise(rows)


if __name__ == "__main__":
    sys.exit(run("decode_vs_fa3", parse_arguments(sys.argv[1:]), COLUMNS, measure_all))
