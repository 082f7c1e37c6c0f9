#!/usr/bin/env python3
"""Compares fabench's peer `cudnn` with PyTorch's own cuDNN attention operator on the same problems.

Both must call the same library on the same shapes, strides and kind of data, so their speeds should agree; with a peer
that is slower than the framework's, every kernel compared with it would look better than it is. Needs PyTorch with CUDA.

    scripts/cudnn_vs_pytorch.py --fabench build/release/fabench          every point live: PyTorch, fabench, PyTorch
    scripts/cudnn_vs_pytorch.py --records RECORD.jsonl                       PyTorch now against recorded rows

With --fabench the GPU's clock drifts alike for both sides: the figure of a point is fabench divided by the mean of the
PyTorch measurement before it and the one after it. A point below the minimum is measured twice more, and the median of
its three ratios counts. Records have no such pairing; they are only as good as the clock was steady.

Problems: 16384 tokens and a hidden size of 2048 in all (batch = tokens / length, heads = hidden / head_dim), layout
batch-length-heads-head_dim. How a sample is taken: scripts/pytorch_rounds.py.

Exit codes: 0 every ratio reaches the minimum, 1 some do not, 2 usage, 5 not comparable (different libraries, no rows),
6 no device or a program failed.
"""

import argparse
import itertools
import json
import math
import os
import re
import statistics
import sys

from pytorch_rounds import HIDDEN, TOKENS, Failure, Rounds, measured_ratio, run_fabench

LENGTHS = [1024, 2048, 4096, 8192, 16384]


def flops(mode, causal, length, head_dim):
    """The convention of the records: half of the square when causal, backward 2.5 times forward."""
    batch, heads = TOKENS // length, HIDDEN // head_dim
    forward = 4 * batch * heads * head_dim * length * length * (0.5 if causal else 1.0)
    return forward * (2.5 if mode == "bwd" else 1.0)


def version_numbers(text):
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


class PyTorch(Rounds):
    """PyTorch's side: one graph per problem."""

    def __init__(self, samples, warmup_ms):
        super().__init__(samples, warmup_ms, 500)
        number = self.torch.backends.cudnn.version()
        self.version = (number // 10000, number // 100 % 100, number % 100)

    def library_path(self):
        """The libcudnn.so.9 that this process has loaded, else the one of the package nvidia.cudnn."""
        with open("/proc/self/maps", encoding="utf-8") as maps:
            for line in maps:
                path = line.split(maxsplit=5)[-1].strip()
                if os.path.basename(path).startswith("libcudnn.so.9"):
                    return path
        try:
            import nvidia.cudnn

            for folder in nvidia.cudnn.__path__:
                path = os.path.join(folder, "lib", "libcudnn.so.9")
                if os.path.exists(path):
                    return path
        except ImportError:
            pass
        raise Failure(5, "the libcudnn.so.9 that PyTorch uses was not found")

    def operator(self, mode, dtype, causal, length, head_dim):
        torch = self.torch
        shape = (TOKENS // length, length, HIDDEN // head_dim, head_dim)
        generator = torch.Generator(device="cuda").manual_seed(1)
        q, k, v, dout = (
            torch.randn(shape, generator=generator, device="cuda").to(self.kind(dtype)).transpose(1, 2)
            for _ in range(4)
        )
        aten = torch.ops.aten
        scale = 1.0 / math.sqrt(head_dim)

        def forward():
            return aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal, False, scale=scale)

        if mode == "fwd":
            return forward
        o, lse, cum_q, cum_k, max_q, max_k, seed, offset, _ = forward()

        def backward():
            return aten._scaled_dot_product_cudnn_attention_backward(
                dout, q, k, v, o, lse, seed, offset, None, cum_q, cum_k, max_q, max_k, 0.0, causal, scale=scale
            )

        return backward

    def tflops(self, mode, dtype, causal, length, head_dim):
        time_ms = self.time_ms(self.operator(mode, dtype, causal, length, head_dim), dtype)
        return flops(mode, causal, length, head_dim) / time_ms / 1e9


class Fabench:
    """fabench's side: a fresh process per point, its CSV on stdout."""

    def __init__(self, program, pytorch):
        self.program, self.version = program, pytorch.version
        self.environment = dict(os.environ, FABENCH_CUDNN=pytorch.library_path())

    def tflops(self, mode, dtype, causal, length, head_dim):
        arguments = ["--mode", mode, f"--causal={'yes' if causal else 'no'}", "--d", str(head_dim)]
        arguments += ["--seqlen", str(length), "--dtype", dtype, "--check", "off", "--max-noise", "2%"]
        row = run_fabench(self.program, "cudnn", arguments, self.environment)
        told = row.get("cudnn") or ""
        if told and version_numbers(told) != self.version:
            raise Failure(5, f"fabench used cuDNN {told}, PyTorch {'.'.join(map(str, self.version))}")
        return float(row["tflops"])


def recorded(path):
    """The rows of cudnn in a record file, by point."""
    points = {}
    try:
        with open(path, encoding="utf-8") as records:
            for line in records:
                try:
                    row = json.loads(line)
                except json.JSONDecodeError:
                    continue  # the last line of a run that was cut
                if row.get("impl") == "cudnn" and row.get("tflops"):
                    causal = bool(int(row["causal"]))
                    key = (row["mode"], row["dtype"], causal, int(row["q_len"]), int(row["head_dim"]))
                    points[key] = float(row["tflops"])
    except OSError as error:
        raise Failure(5, f"{path}: {error.strerror}") from error
    if not points:
        raise Failure(5, f"{path}: no rows of cudnn with tflops")
    return points


def numbers(text):
    return [int(part[:-1]) * 1024 if part.endswith("k") else int(part) for part in text.split(",")]


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--fabench", metavar="PATH", help="run this program point by point (the main way)")
    source.add_argument("--records", metavar="FILE", help="compare with the rows of this record file")
    parser.add_argument("--mode", default="fwd,bwd")
    parser.add_argument("--dtype", default="fp16,bf16")
    parser.add_argument("--causal", default="both", choices=["yes", "no", "both"])
    parser.add_argument("--d", type=numbers, default=[64, 128], metavar="LIST")
    parser.add_argument("--seqlen", type=numbers, default=LENGTHS, metavar="LIST")
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--warmup-ms", type=float, default=300)
    parser.add_argument("--minimum", type=float, default=0.97, help="smallest ratio that passes")
    options = parser.parse_args(arguments)
    options.mode, options.dtype = options.mode.split(","), options.dtype.split(",")
    if not set(options.mode) <= {"fwd", "bwd"} or not set(options.dtype) <= {"fp16", "bf16"}:
        parser.error("--mode takes fwd,bwd and --dtype fp16,bf16")
    if options.samples < 30 or options.warmup_ms < 300:
        parser.error("fewer than 30 samples or 300 ms of warm-up are no measurement")
    if any(n < 1 or TOKENS % n for n in options.seqlen) or any(d < 8 or HIDDEN % d for d in options.d):
        parser.error(f"--seqlen must divide {TOKENS} and --d {HIDDEN}")
    options.causal = {"yes": [True], "no": [False], "both": [False, True]}[options.causal]
    return options


def run(options):
    pytorch = PyTorch(options.samples, options.warmup_ms)
    points = list(itertools.product(options.mode, options.dtype, options.causal, options.seqlen, options.d))
    rows = recorded(options.records) if options.records else None
    fabench = Fabench(options.fabench, pytorch) if options.fabench else None
    if rows is not None:
        points = [point for point in points if point in rows]
    if not points:
        raise Failure(5, "no point is left to compare")
    print(f"{pytorch.torch.cuda.get_device_name(0)}, PyTorch {pytorch.torch.__version__}, "
          f"cuDNN {'.'.join(map(str, pytorch.version))}, {pytorch.library_path()}")
    print("mode dtype causal    n   d   fabench   pytorch  ratio   (TFLOPS)")
    ratios = {}
    for point in sorted(points, key=lambda p: (p[4], p[0] == "bwd", p[2], p[1], p[3])):
        if rows is None:
            ours, theirs, ratio = measured_ratio(
                lambda: fabench.tflops(*point), lambda: pytorch.tflops(*point), options.minimum
            )
        else:
            ours, theirs = rows[point], pytorch.tflops(*point)
            ratio = ours / theirs
        ratios[point] = ratio
        mode, dtype, causal, length, head_dim = point
        mark = "" if ratio >= options.minimum else "  < minimum"
        print(f"{mode:4} {dtype:5} {int(causal):6} {length:5} {head_dim:3} "
              f"{ours:9.1f} {theirs:9.1f} {ratio:6.3f}{mark}", flush=True)
    geomean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios.values()))
    below = sum(not ratio >= options.minimum for ratio in ratios.values())
    print(f"{len(ratios)} points: geomean {geomean:.3f}, minimum {min(ratios.values()):.3f}, "
          f"{below} below {options.minimum:g}")
    return 1 if below else 0


def main():
    try:
        return run(parse_arguments(sys.argv[1:]))
    except Failure as failure:
        print(f"cudnn_vs_pytorch: {failure}", file=sys.stderr)
        return failure.code


if __name__ == "__main__":
    sys.exit(main())
