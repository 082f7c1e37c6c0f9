#!/usr/bin/env python3
"""Compares fused_sm90's forward of 8-bit inputs with FlashAttention-3's.

    python3 -m pip install torch==2.11.0 fa3-fwd==0.0.3
    scripts/eight_bits_vs_fa3.py --fabench build/release/fabench --csv eight_bits_fa3.csv [--d 64,128]
        [--seqlen 1k,4k,16k] [--shape 32x8] [--impl fused_sm90]

Needs an H100 or H200, PyTorch with CUDA and the wheel fa3-fwd, whose operator is FlashAttention-3's forward. e4m3 with
a scale for each sequence and kv head, O in bf16, full and causal, 16384 tokens of a width of 2048 in equal sequences,
layout batch-length-heads-head_dim.

One rotation for each point: FlashAttention-3, ours in a fresh process of fabench (sums in fp32, and :fast; both rows
have to pass their check), and FlashAttention-3 again, whose mean counts. A round of fabench has its two kernels in
turn, one of FlashAttention-3 has two of its launches: cuBLAS has no place in either, and the clock follows from kernels
of the same kind. How a sample is taken: scripts/pytorch_rounds.py. ratio: their time over ours. A point below a bar is
measured twice more, and the median of its three ratios counts.

Bars: :fast 1.05 (head_dim 64: 1.15); sums in fp32 1 from 4096 tokens on (head_dim 64: 1.05), and at most 8 % (15 %)
behind :fast.

Exit codes: 0 the bars are reached, 1 one is not, 2 usage, 6 no device or a point could not be measured, 7 the CSV
cannot be written.
"""

import itertools
import math
import sys

from fa3_rounds import Flash3, counts_of, parser_of, run, shapes_of
from pytorch_rounds import HIDDEN, TOKENS, Failure, run_fabench_for

COLUMNS = ["head_dim", "mask", "n", "q_heads", "kv_heads", "variant", "ms", "fast_ms", "fa3_ms", "tflops",
           "fast_tflops", "fa3_tflops", "ratio", "fast_ratio", "over_fast", "sm_clock_mhz"]


class EightBits(Flash3):
    """FlashAttention-3's forward of e4m3."""

    def __init__(self, options):
        super().__init__(options)
        self.launch = None

    def gemm(self, dtype, stream):
        """In the place of the product of other rounds: another launch of the same kernel."""
        return self.capture(self.launch, stream)[0]

    def time_of(self, point):
        """Milliseconds of a pass."""
        torch, n, d = self.torch, point["n"], point["head_dim"]
        batch, heads, kv_heads = point["batch"], point["q_heads"], point["kv_heads"]

        def draw(heads_of):
            return torch.randn((batch, n, heads_of, d), device="cuda").clamp(-4, 4).mul(100).to(torch.float8_e4m3fn)

        q, k, v = draw(heads), draw(kv_heads), draw(kv_heads)
        scale = torch.full((batch, kv_heads), 0.01, device="cuda")
        options = {"out": torch.empty_like(q, dtype=torch.bfloat16), "softmax_scale": 1.0 / math.sqrt(d),
                   "is_causal": point["mask"] == "causal", "num_splits": 1, "q_descale": scale, "k_descale": scale,
                   "v_descale": scale}
        self.launch = lambda: torch.ops.fa3_fwd.fwd(q, k, v, **options)
        try:
            return self.time_ms(self.launch, None)
        finally:
            self.launch = None


def our_rows(options, point):
    """The rows of both sums of a fresh process."""
    words = ["--mode", "fwd", "--dtype", "e4m3", "--fp8-scale", "head", "--d", str(point["head_dim"]),
             f"--causal={'yes' if point['mask'] == 'causal' else 'no'}", "--layout", "bshd",
             "--seqlen", str(point["n"]), "--batch", str(point["batch"]),
             "--shape", f"{point['q_heads']}x{point['kv_heads']}", "--check", "sample",
             "--max-noise", "2%", "--warmup-ms", f"{options.warmup_ms:g}", "--min-time-ms", f"{options.min_time_ms:g}"]
    rows = run_fabench_for(options.fabench, [options.impl, f"{options.impl}:fast"], words)
    for row in rows:
        if row["check"] != "pass":
            raise Failure(6, f"the check of {row['impl']} says {row['check']}")
    return rows


def bars_of(point):
    """Least ratio of :fast; least ratio of sums in fp32 (0: none); least speed of these over :fast's."""
    if point["head_dim"] == 64:
        return 1.15, 1.05, 1 / 1.15
    return 1.05, 1.0 if point["n"] >= 4096 else 0.0, 1 / 1.08


def missed(row):
    least_fast, least, over_fast = bars_of(row)
    return row["fast_ratio"] < least_fast or row["ratio"] < least or row["over_fast"] < over_fast


def rotation(options, flash3, point):
    before = flash3.time_of(point)
    ours, fast = our_rows(options, point)
    fa3_ms = (before + flash3.time_of(point)) / 2
    ms, fast_ms, tflops = float(ours["time_ms"]), float(fast["time_ms"]), float(ours["tflops"])
    return {**point, "variant": ours["variant"], "ms": ms, "fast_ms": fast_ms, "fa3_ms": fa3_ms, "tflops": tflops,
            "fast_tflops": float(fast["tflops"]), "fa3_tflops": tflops * ms / fa3_ms, "ratio": fa3_ms / ms,
            "fast_ratio": fa3_ms / fast_ms, "over_fast": fast_ms / ms, "sm_clock_mhz": ours["sm_clock_mhz"]}


def measure(options, flash3, point):
    rows = [rotation(options, flash3, point)]
    if missed(rows[0]) and not options.once:
        rows = sorted(rows + [rotation(options, flash3, point) for _ in range(2)], key=lambda row: row["fast_ratio"])
    return rows[len(rows) // 2]


def all_points(options):
    points = []
    for d, mask, n in itertools.product(options.d, ("full", "causal"), options.seqlen):
        for heads, kv_heads in options.shape or [(HIDDEN // d, HIDDEN // d)]:
            points.append({"head_dim": d, "mask": mask, "n": n, "batch": max(1, TOKENS // n), "q_heads": heads,
                           "kv_heads": kv_heads})
    return points


def text_of(row):
    digits = {"ms": 4, "fast_ms": 4, "fa3_ms": 4, "tflops": 1, "fast_tflops": 1, "fa3_tflops": 1, "ratio": 4,
              "fast_ratio": 4, "over_fast": 4}
    return {name: f"{row[name]:.{digits[name]}f}" if name in digits else row[name] for name in COLUMNS if name in row}


def measure_all(options, table):
    flash3, points, code = EightBits(options), all_points(options), 0
    print(f"{flash3.torch.cuda.get_device_name(0)}, {options.impl} beside FlashAttention-3, e4m3, {len(points)} points")
    for point in points:
        try:
            row = measure(options, flash3, point)
        except (Failure, RuntimeError) as error:
            print(f"eight_bits_vs_fa3: {error}", file=sys.stderr)
            code = 6
            continue
        is_missed = missed(row)
        code = 1 if is_missed and code == 0 else code
        text = text_of(row)
        print(f"d{text['head_dim']} {text['mask']:6} {text['n']:6}  {text['tflops']:>7} fast {text['fast_tflops']:>7} "
              f"FA3 {text['fa3_tflops']:>7}  ratio {text['ratio']} fast {text['fast_ratio']}, over fast "
              f"{text['over_fast']}{'  MISSED' if is_missed else ''}", flush=True)
        table.write(text)
    return code


def parse_arguments(arguments):
    parser = parser_of(__doc__)
    parser.add_argument("--d", type=counts_of, default=[128, 64], metavar="N,...", help="head dims [128,64]")
    parser.add_argument("--seqlen", type=counts_of, default=counts_of("1k,4k,16k"), metavar="N,...", help="[1k,4k,16k]")
    parser.add_argument("--shape", type=shapes_of, metavar="QxK,...", help="heads [2048 / head dim, of both]")
    parser.add_argument("--once", action="store_true", help="no point is measured again")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(run("eight_bits_vs_fa3", parse_arguments(sys.argv[1:]), COLUMNS, measure_all))
